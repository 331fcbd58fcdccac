/* Pruning: which weights go, what becomes of the file, and that what is left still runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "compress/prune.h"
#include "compress/prune_choose.h"
#include "compress/sparse_encode.h"
#include "formats/weights.h"
#include "data.h"
#include "command.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tensor/sparse.h"
#include "tiny_model.h"

/* ---- Choosing -------------------------------------------------------------------------------- */

static void choose(prune_method method, double sparsity, int keep, int out_of, const float *w,
                   const float *inputs, int64_t n, uint8_t *keeps)
{
    surgery_rule rule = {.method = method, .sparsity = sparsity, .keep = keep, .out_of = out_of};
    float columns[64], scratch[128];
    prune_matrix m = {.w = w, .n_rows = 1, .n_cols = n, .inputs = inputs};
    prune_column_sums(&m, columns);
    m.columns = columns;
    prune_choose_row(&rule, &m, 0, keeps, scratch);
}

static void the_smallest_go(void)
{
    const float w[] = {3, -1, 0.5f, -4, 2, 0.1f, 1.5f, -2.5f};
    uint8_t keeps[8];
    choose(PRUNE_MAGNITUDE, 0.5, 0, 0, w, NULL, 8, keeps);
    CHECK(memcmp(keeps, (uint8_t[]){1, 0, 0, 1, 1, 0, 0, 1}, 8) == 0);
    choose(PRUNE_MAGNITUDE, 0, 0, 0, w, NULL, 8, keeps);
    CHECK(memcmp(keeps, (uint8_t[]){1, 1, 1, 1, 1, 1, 1, 1}, 8) == 0);
    /* Two of each four. */
    choose(PRUNE_MAGNITUDE, 0, 2, 4, w, NULL, 8, keeps);
    CHECK(memcmp(keeps, (uint8_t[]){1, 0, 0, 1, 1, 0, 0, 1}, 8) == 0);
}

static void equal_weights_go_from_the_left(void)
{
    const float w[] = {1, 1, 1, 1, 2, 1, 1, 1};
    uint8_t keeps[8];
    choose(PRUNE_MAGNITUDE, 0.5, 0, 0, w, NULL, 8, keeps);
    CHECK(memcmp(keeps, (uint8_t[]){0, 0, 0, 0, 1, 1, 1, 1}, 8) == 0);
}

static void wanda_weighs_by_the_inputs(void)
{
    const float w[] = {1, 2, 3, 4}, inputs[] = {100, 4, 1, 0.01f}; /* scores 10, 4, 3, 0.4 */
    uint8_t keeps[4];
    choose(PRUNE_WANDA, 0.5, 0, 0, w, inputs, 4, keeps);
    CHECK(memcmp(keeps, (uint8_t[]){1, 1, 0, 0}, 4) == 0);
}

/* ---- Whole models ---------------------------------------------------------------------------- */

static const char *model_path;

/* Prune the golden model by rules given as text. */
static lace_status prune_by(const char *rules, buf *out, prune_result *r, lace_error *err)
{
    surgery *s = NULL;
    buf_init(out, SIZE_MAX / 2);
    *r = (prune_result){0};
    lace_status status = surgery_parse(text_of(rules), "test.conf", &s, err);
    prune_options o = prune_options_default();
    o.n_threads = 2;
    if (status == LACE_OK)
        status = prune_model(model_path, s, &o, out, r, err);
    surgery_free(s);
    return status;
}

/* Logits of a few tokens, [n_vocab] of the last; the caller frees. */
static float *logits_of(const void *data, size_t n_bytes, int32_t *n_vocab)
{
    lace_model *m = NULL;
    lace_session *s = NULL;
    lace_error err = {0};
    float *out = NULL;
    lace_model_info info;
    lace_session_options o = lace_session_options_default();
    o.n_threads = 1;
    o.n_context = 64;
    lace_item items[] = {{3, 0, false}, {5, 0, false}, {7, 0, true}};
    if (lace_model_open_memory(data, n_bytes, "pruned", NULL, &m, &err) == LACE_OK &&
        lace_session_create(m, &o, &s, &err) == LACE_OK &&
        lace_session_eval(s, items, 3, &err) == LACE_OK) {
        lace_model_describe(m, &info);
        *n_vocab = info.n_vocab;
        out = malloc((size_t)info.n_vocab * sizeof *out);
        memcpy(out, lace_session_logits(s, 0), (size_t)info.n_vocab * sizeof *out);
    } else {
        tap_note("%s", err.text);
    }
    lace_session_free(s);
    lace_model_close(m);
    return out;
}

/* Mean square difference of two models' logits, as a share of the first; -1 if it failed. */
static double distance_of(span original, const buf *made)
{
    int32_t n, n2;
    float *want = logits_of(original.data, original.size, &n);
    float *got = logits_of(made->data, made->size, &n2);
    double error = 0, square = 0;
    for (int32_t i = 0; want && got && n == n2 && i < n; i++) {
        error += pow((double)got[i] - want[i], 2);
        square += pow(want[i], 2);
    }
    free(want);
    free(got);
    return square > 0 ? error / square : -1;
}

static double distance(const buf *made)
{
    file_map map;
    if (file_map_open(model_path, &map, NULL) != LACE_OK)
        return -1;
    double d = distance_of(map.bytes, made);
    file_map_close(&map);
    return d;
}

#define RULE(method, amount, store)                                                                \
    "[[rule]]\ntensors = \"blk.*.weight\"\nmethod = \"" method "\"\n" amount "\nstore = \"" store  \
    "\"\n"

static void taking_nothing_changes_nothing(void)
{
    buf b;
    prune_result r;
    lace_error err = {0};
    if (!CHECK(prune_by(RULE("magnitude", "sparsity = 0", "same"), &b, &r, &err) == LACE_OK))
        tap_note("%s", err.text);
    else
        CHECK(distance(&b) == 0 && r.rows[0].n_gone == 0 && r.rows[0].n_tensors > 0);
    prune_result_deinit(&r);
    buf_deinit(&b);
}

/*
 * What the same zeros do in the type of the original is what each store is held against: how far a
 * model of random weights is from itself without half of them depends on the weights alone.
 */
static void every_store_runs_and_is_as_far_off_as_it_should_be(void)
{
#define PAIR(amount, store) RULE("magnitude", amount, store), RULE("magnitude", amount, "same")
    static const struct {
        const char *rules, *plain;
        double least, most; /* relative square error of logits of a random model */
        double bits;        /* at most, of a pruned weight; small matrices have large tables */
    } cases[] = {
        {PAIR("sparsity = 0", "m8"), 1e-9, 1e-2, 9.3},
        {PAIR("sparsity = 0", "m4"), 1e-6, 0.2, 5.4},
        {PAIR("sparsity = 0.5", "m4"), 1e-6, 0.2, 3.5},
        {PAIR("sparsity = 0.5", "m8"), 1e-9, 1e-2, 5.4},
        {PAIR("pattern = \"2:4\"", "n24"), 1e-6, 0.2, 3.5},
        {PAIR("sparsity = 0.9", "csr"), 1e-12, 1e-3, 4.3},
    };
#undef PAIR
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf made, plain;
        prune_result r, r2;
        lace_error err = {0};
        if (CHECK(prune_by(cases[i].rules, &made, &r, &err) == LACE_OK) &&
            CHECK(prune_by(cases[i].plain, &plain, &r2, &err) == LACE_OK)) {
            double d = distance_of(span_of(&plain), &made);
            double bits = 8 * (double)r.rows[0].bytes_after / (double)r.rows[0].n_weights;
            tap_note("case %zu: distance %g, %g bits", i, d, bits);
            CHECK(d >= cases[i].least && d <= cases[i].most && bits <= cases[i].bits);
            prune_result_deinit(&r2);
            buf_deinit(&plain);
        } else {
            tap_note("%s", err.text);
        }
        prune_result_deinit(&r);
        buf_deinit(&made);
    }
}

static void heads_and_neurons_make_matrices_smaller(void)
{
    buf b;
    prune_result r;
    lace_error err = {0};
    const char *rules = "[[rule]]\ntensors = \"blk.*\"\nmethod = \"heads\"\nsparsity = 0.5\n"
                        "[[rule]]\ntensors = \"blk.*\"\nmethod = \"neurons\"\nsparsity = 0.5\n";
    if (!CHECK(prune_by(rules, &b, &r, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        return;
    }
    weights *before = NULL, *after = NULL;
    if (CHECK(weights_open(model_path, &before, &err) == LACE_OK) &&
        CHECK(weights_open_memory((span){(const uint8_t *)b.data, b.size}, "pruned", &after,
                                  &err) == LACE_OK)) {
        const tensor *q = weights_find(after, "blk.0.attn_q.weight");
        const tensor *q0 = weights_find(before, "blk.0.attn_q.weight");
        const tensor *d = weights_find(after, "blk.0.ffn_down.weight");
        const tensor *d0 = weights_find(before, "blk.0.ffn_down.weight");
        CHECK(q && q0 && 2 * q->shape.dims[1] == q0->shape.dims[1]);
        CHECK(q && q0 && q->shape.dims[0] == q0->shape.dims[0]);
        CHECK(d && d0 && d->shape.dims[0] < d0->shape.dims[0]);
    }
    double distance_now = distance(&b);
    CHECK(distance_now > 0 && distance_now < 5);
    weights_close(before);
    weights_close(after);
    prune_result_deinit(&r);
    buf_deinit(&b);
}

static void rules_that_cannot_be_are_named(void)
{
    static const struct {
        const char *rules, *message;
    } cases[] = {
        {"[[rule]]\ntensors = \"nothing.*\"\nmethod = \"magnitude\"\nsparsity = 0.5\n",
         "the rule of line 1 (tensors \"nothing.*\") matches no tensor"},
        {"[limits]\nprotect = \"blk.0.*\"\n[[rule]]\ntensors = \"blk.*\"\nmethod = \"neurons\"\n"
         "sparsity = 0.5\n",
         "every layer must lose the same number of neurons"},
        {"[[rule]]\ntensors = \"blk.*\"\nmethod = \"heads\"\nsparsity = 0.01\n",
         "is not one of them"},
        {RULE("wanda", "sparsity = 0.5", "same"), "the importance matrix has no entry for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf b;
        prune_result r;
        lace_error err = {0};
        lace_status status = prune_by(cases[i].rules, &b, &r, &err);
        if (!CHECK(status == LACE_E_META && strstr(err.text, cases[i].message)))
            tap_note("case %zu: %s", i, err.text);
        prune_result_deinit(&r);
        buf_deinit(&b);
    }
}

/* What a type cannot hold is an error now, not when the file is opened. */
static void weights_beyond_a_type_are_named(void)
{
    float w[32] = {1e5f, 2, 3};
    uint8_t keeps[32] = {1, 1};
    sparse_matrix m = {.w = w, .n_rows = 1, .n_cols = 32, .keeps = keeps};
    pool *workers = NULL;
    lace_error err = {0};
    buf out;
    buf_init(&out, 1 << 16);
    CHECK(pool_create(1, &workers, NULL) == LACE_OK);
    CHECK(sparse_encode(SPARSE_CSR, &m, workers, &out, &err) == LACE_E_NUMERIC &&
          strstr(err.text, "100000 does not fit CSR"));
    w[0] = 65000;
    CHECK(sparse_encode(SPARSE_CSR, &m, workers, &out, &err) == LACE_OK);
    sparse s;
    CHECK(sparse_parse((span){(uint8_t *)out.data, out.size}, &s, &err) == LACE_OK);
    pool_free(workers);
    buf_deinit(&out);
}

static void a_weight_that_is_no_number_is_named(void)
{
    tiny_options o = tiny_options_default();
    o.type = DTYPE_F32;
    buf b = tiny_model_bytes(o), out;
    gguf *g = NULL;
    lace_error err = {0};
    prune_result r;
    CHECK(scratch_create() != NULL);
    CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &g, NULL) == LACE_OK);
    memset((uint8_t *)gguf_find_tensor(g, "blk.1.ffn_up.weight")->data + 4 * 7, 0xFF, 4);
    FILE *f = fopen(scratch_path("nan.gguf"), "wb");
    CHECK(f && fwrite(b.data, 1, b.size, f) == b.size && fclose(f) == 0);
    const char *kept = model_path;
    model_path = scratch_path("nan.gguf");
    CHECK(prune_by(RULE("magnitude", "sparsity = 0.5", "same"), &out, &r, &err) == LACE_E_NUMERIC &&
          strstr(err.text, "blk.1.ffn_up.weight: weight 7 is"));
    model_path = kept;
    prune_result_deinit(&r);
    buf_deinit(&out);
    buf_deinit(&b);
    gguf_free(g);
    scratch_remove();
}

/* ---- The verb -------------------------------------------------------------------------------- */

static const char *tales_path, *calib_path, *test_path;

static void the_verb_measures_and_writes_a_file_that_runs(void)
{
    static const char *const methods[] = {"magnitude", "wanda", "ria", "sparsegpt"};
    double kld[4] = {0};
    for (int i = 0; i < 4; i++) {
        command_run("prune %s $dir/p.gguf --sparsity 0.5 --method %s --store m4 --calibrate %s "
                    "--calibrate-windows 4 -f %s --windows 2 -y",
                    tales_path, methods[i], calib_path, test_path);
        const char *at = strstr(ran.out, "KLD ");
        if (!CHECK(ran.code == 0 && at && command_exists("p.gguf")))
            tap_note("%s: %s", methods[i], ran.err);
        else
            kld[i] = atof(at + 4);
    }
    /* Feedback is worth a third here; by far more than the noise of two windows. */
    if (!CHECK(kld[3] > 0 && kld[3] < 0.9 * kld[0]))
        tap_note("KLD %g %g %g %g", kld[0], kld[1], kld[2], kld[3]);
    command_run("run $dir/p.gguf -p \"Once\" -n 5 --temp 0");
    CHECK(ran.code == 0 && strncmp(ran.out, "Once", 4) == 0);
    command_run("inspect $dir/p.gguf");
    CHECK(ran.code == 0 && strstr(ran.out, "m4"));
}

/* M4R without zeros has S4's codes and scales, and sums of the same integers. */
static void a_sparse_model_without_zeros_writes_what_s4_writes(void)
{
    static char written[sizeof ran.out];
    command_run("quantize %s $dir/s4.gguf --type s4", tales_path);
    CHECK(ran.code == 0);
    command_run("run $dir/s4.gguf -p \"Once upon a time\" -n 120 --temp 0");
    CHECK(ran.code == 0 && ran.n_out > 200);
    memcpy(written, ran.out, sizeof written);
    command_run("prune $dir/s4.gguf $dir/m4.gguf --sparsity 0 --method magnitude --store m4 "
                "--accept-loss");
    CHECK(ran.code == 0);
    command_run("inspect $dir/m4.gguf");
    CHECK(ran.code == 0 && strstr(ran.out, "m4r"));
    command_run("run $dir/m4.gguf -p \"Once upon a time\" -n 120 --temp 0");
    if (!CHECK(ran.code == 0 && strcmp(written, ran.out) == 0))
        tap_note("%s\ninstead of\n%s", ran.out, written);
}

static void a_file_past_the_limit_is_not_written(void)
{
    FILE *f = fopen(command_path("rules"), "w");
    fputs("[limits]\nkld = 0.0001\n[[rule]]\ntensors = \"blk.*.weight\"\n"
          "method = \"magnitude\"\nsparsity = 0.5\n",
          f);
    fclose(f);
    command_run("prune %s $dir/q.gguf --config $dir/rules -f %s --windows 1", tales_path,
                test_path);
    CHECK(ran.code == 1 && strstr(ran.err, "above the limit") && !command_exists("q.gguf"));
    command_run("prune %s $dir/q.gguf --config $dir/rules", tales_path);
    CHECK(ran.code == 1 && strstr(ran.err, "--accept-loss") && !command_exists("q.gguf"));
    command_run("prune %s $dir/q.gguf --config $dir/rules --accept-loss", tales_path);
    CHECK(ran.code == 0 && command_exists("q.gguf"));
    /* A limit of one rule among several counts too. */
    f = fopen(command_path("rules2"), "w");
    fputs("[[rule]]\ntensors = \"blk.0.*.weight\"\nmethod = \"magnitude\"\nsparsity = 0.5\n"
          "kld = 0.0001\n[[rule]]\ntensors = \"blk.1.*.weight\"\nmethod = \"magnitude\"\n"
          "sparsity = 0.1\n",
          f);
    fclose(f);
    command_run("prune %s $dir/r.gguf --config $dir/rules2", tales_path);
    CHECK(ran.code == 1 && strstr(ran.err, "--accept-loss") && !command_exists("r.gguf"));
    command_run("prune %s $dir/r.gguf --config $dir/rules2 -f %s --windows 1", tales_path,
                test_path);
    CHECK(ran.code == 1 && strstr(ran.err, "above the limit") && !command_exists("r.gguf"));
    command_run("run %s --surgery $dir/rules -p \"Once\" -n 5 --temp 0", tales_path);
    CHECK(ran.code == 0 && strncmp(ran.out, "Once", 4) == 0);
}

/* What stands for the cases that need test data and the program. */
static void the_data_is_there(void)
{
    CHECK(model_path && tales_path && calib_path && test_path);
}

int main(void)
{
    CASE(the_smallest_go);
    CASE(equal_weights_go_from_the_left);
    CASE(wanda_weighs_by_the_inputs);
    CASE(weights_beyond_a_type_are_named);
    CASE(a_weight_that_is_no_number_is_named);
    char *path = data_path("golden/llama/model.gguf");
    char *tales = data_path("models/tales-4m-f16.gguf");
    char *calib = data_path("text/calib.txt"), *test = data_path("text/test.txt");
    model_path = path;
    tales_path = tales;
    calib_path = calib;
    test_path = test;
    if (path && tales && calib && test && command_begin()) {
        CASE(taking_nothing_changes_nothing);
        CASE(every_store_runs_and_is_as_far_off_as_it_should_be);
        CASE(heads_and_neurons_make_matrices_smaller);
        CASE(rules_that_cannot_be_are_named);
        CASE(the_verb_measures_and_writes_a_file_that_runs);
        CASE(a_sparse_model_without_zeros_writes_what_s4_writes);
        CASE(a_file_past_the_limit_is_not_written);
        command_end();
    } else {
        CASE(the_data_is_there);
    }
    free(path);
    free(tales);
    free(calib);
    free(test);
    return tap_end();
}
