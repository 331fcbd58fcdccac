/* compress/quantize.c, mix.c and imatrix.c: whole files, their types, and what must not happen. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "compress/quantize.h"
#include "formats/weights.h"
#include "tensor/codec/unpack.h"
#include "data.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_hf.h"
#include "tiny_model.h"

/* ---- Models ---------------------------------------------------------------------------------- */

/* A model with rows of whole blocks of 256, as NAME in the scratch folder. */
static void write_model(const char *name)
{
    tiny_options o = tiny_options_default();
    o.n_embd = o.n_ff = 256;
    o.n_layers = 1;
    o.type = DTYPE_F32;
    gguf_writer *w = NULL;
    lace_error err;
    CHECK(is_ok(tiny_model_create(&o, &w, &err), &err) &&
          is_ok(gguf_writer_to_file(w, scratch_path(name), NULL, NULL, &err), &err));
    gguf_writer_free(w);
}

static weights *quantize(const char *input, const char *name, const char *type,
                         const quantize_options *options)
{
    quantize_options o = options ? *options : quantize_options_default();
    lace_error err;
    weights *w = NULL;
    o.mix = mix_find(type);
    if (CHECK(o.mix) &&
        CHECK(is_ok(quantize_model(input, scratch_path(name), &o, NULL, &err), &err)))
        CHECK(is_ok(weights_open(scratch_path(name), &w, &err), &err));
    return w;
}

/* ---- Types ----------------------------------------------------------------------------------- */

/* One letter for each layer: 2 to 6 for Q2_K to Q6_K. */
static void expect_layers(const char *type, const mix_context *c, const char *stem,
                          const char *expected)
{
    char found[16] = "";
    for (int i = 0; i < c->n_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, stem);
        tensor t = {.name = text_of(name), .shape = {2, {512, 512, 1, 1}}};
        found[i] = dtype_describe(mix_type_of(mix_find(type), c, &t))->name[1];
    }
    if (!CHECK(strcmp(found, expected) == 0))
        tap_note("%s %s: %s, expected %s", type, stem, found, expected);
}

/* As llama-quantize did it for a model of 8 layers with 4 heads for each of keys and values. */
static void mixes_are_those_of_llama_cpp(void)
{
    mix_context c = {.n_layers = 8, .n_heads_per_kv = 4, .is_tied = true};
    static const struct {
        const char *type, *v, *output, *down, *q;
    } cases[] = {
        {"q2_k", "44444444", "33333333", "33333333", "22222222"},
        {"q3_k_s", "33333333", "33333333", "33333333", "33333333"},
        {"q3_k_m", "55444444", "44444444", "44444444", "33333333"},
        {"q3_k_l", "55555555", "55555555", "55555555", "33333333"},
        {"q4_k_s", "55554444", "44444444", "54444444", "44444444"},
        {"q4_k_m", "64464466", "44444444", "64464466", "44444444"},
        {"q5_k_m", "65565566", "55555555", "65565566", "55555555"},
        {"q6_k", "66666666", "66666666", "66666666", "66666666"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_layers(cases[i].type, &c, "attn_v", cases[i].v);
        expect_layers(cases[i].type, &c, "attn_output", cases[i].output);
        expect_layers(cases[i].type, &c, "ffn_down", cases[i].down);
        expect_layers(cases[i].type, &c, "attn_q", cases[i].q);
    }
    tensor embedding = {.name = text_of("token_embd.weight"), .shape = {2, {512, 99, 1, 1}}};
    CHECK(mix_type_of(mix_find("q4_0"), &c, &embedding) == DTYPE_Q6_K);
    CHECK(mix_type_of(mix_find("q8_0"), &c, &embedding) == DTYPE_Q8_0);
    CHECK(mix_find("Q8_0") == mix_find("q8_0") && mix_find("Q4_K") == mix_find("q4_k_m"));
    c.is_tied = false;
    CHECK(mix_type_of(mix_find("q4_0"), &c, &embedding) == DTYPE_Q4_0);
    /* Rows of 96 hold no blocks of 256, rows of 40 none of 32. */
    tensor odd = {.name = text_of("blk.1.ffn_up.weight"), .shape = {2, {96, 99, 1, 1}}};
    CHECK(mix_type_of(mix_find("q4_k_m"), &c, &odd) == DTYPE_Q5_0);
    CHECK(mix_type_of(mix_find("q6_k"), &c, &odd) == DTYPE_Q8_0);
    odd.shape.dims[0] = 40;
    CHECK(mix_type_of(mix_find("q4_k_m"), &c, &odd) == DTYPE_F16);
}

/* Blocks of trellis types have 256 values, those of tables 128. */
static void trellis_types_leave_short_rows_to_tables(void)
{
    mix_context c = {.n_layers = 8, .n_heads_per_kv = 4, .is_tied = true};
    tensor embedding = {.name = text_of("token_embd.weight"), .shape = {2, {512, 99, 1, 1}}};
    tensor t = {.name = text_of("blk.1.ffn_up.weight"), .shape = {2, {512, 99, 1, 1}}};
    CHECK(mix_type_of(mix_find("t3"), &c, &t) == DTYPE_T3);
    CHECK(mix_type_of(mix_find("t3"), &c, &embedding) == DTYPE_T5);
    t.shape.dims[0] = embedding.shape.dims[0] = 384;
    CHECK(mix_type_of(mix_find("t3"), &c, &t) == DTYPE_S3);
    CHECK(mix_type_of(mix_find("t3"), &c, &embedding) == DTYPE_S5);
    t.shape.dims[0] = 96;
    CHECK(mix_type_of(mix_find("t3"), &c, &t) == DTYPE_Q4_0);
}

static void every_mix_writes_a_file_that_opens(void)
{
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    for (size_t i = 0; mix_at(i); i++) {
        weights *w = quantize(scratch_path("in.gguf"), "out.gguf", mix_at(i)->name, NULL);
        if (!w)
            continue;
        int64_t file_type = -1;
        CHECK(gguf_get_int(weights_gguf(w), "general.file_type", 0, 1999, &file_type, NULL, NULL) ==
                  LACE_OK &&
              file_type == mix_at(i)->file_type);
        CHECK(weights_find(w, "blk.0.attn_q.weight")->type == mix_at(i)->type);
        CHECK(weights_find(w, "blk.0.attn_norm.weight")->type == DTYPE_F32);
        weights_close(w);
    }
    scratch_remove();
}

static void a_directory_gives_the_file_of_its_gguf(void)
{
    char *directory = data_path("models/tales-4m"), *file = data_path("models/tales-4m-f16.gguf");
    if (directory && file) {
        CHECK(scratch_create() != NULL);
        weights *a = quantize(directory, "a.gguf", "q4_0", NULL);
        weights *b = quantize(file, "b.gguf", "q4_0", NULL);
        for (size_t i = 0; a && b && i < weights_count(a); i++) {
            const tensor *t = weights_at(a, i);
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
            const tensor *u = weights_find(b, name);
            CHECK(u && u->type == t->type && u->n_bytes == t->n_bytes &&
                  memcmp(u->data, t->data, (size_t)t->n_bytes) == 0);
        }
        weights_close(a);
        weights_close(b);
        scratch_remove();
    }
    free(directory);
    free(file);
}

static void threads_do_not_change_the_file(void)
{
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    quantize_options o = quantize_options_default();
    o.n_threads = 1;
    weights_close(quantize(scratch_path("in.gguf"), "1.gguf", "q4_k_m", &o));
    o.n_threads = 5;
    weights_close(quantize(scratch_path("in.gguf"), "5.gguf", "q4_k_m", &o));
    CHECK(scratch_are_same("1.gguf", "5.gguf"));
    scratch_remove();
}

static void quantized_models_are_taken_only_on_request(void)
{
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    weights_close(quantize(scratch_path("in.gguf"), "q8.gguf", "q8_0", NULL));
    quantize_options o = quantize_options_default();
    lace_error err;
    o.mix = mix_find("q4_0");
    CHECK(quantize_model(scratch_path("q8.gguf"), scratch_path("q4.gguf"), &o, NULL, &err) ==
              LACE_E_ARG &&
          strstr(err.text, "is q8_0 already"));
    CHECK(access(scratch_path("q4.gguf"), F_OK) != 0);
    o.allow_requantize = true;
    weights_close(quantize(scratch_path("q8.gguf"), "q4.gguf", "q4_0", &o));
    /* To the type that it has: the same bytes. */
    weights_close(quantize(scratch_path("q8.gguf"), "same.gguf", "q8_0", NULL));
    CHECK(scratch_are_same("q8.gguf", "same.gguf"));
    scratch_remove();
}

/* ---- Importance ------------------------------------------------------------------------------ */

/* An importance matrix for one tensor, whose first columns alone matter. */
static imatrix *make_importance(const char *name, int64_t n_cols)
{
    imatrix *m = NULL;
    imatrix_entry *e = NULL;
    lace_error err;
    CHECK(is_ok(imatrix_create(&m, &err), &err) &&
          is_ok(imatrix_add(m, text_of(name), n_cols, 1, &e, &err), &err));
    for (int64_t i = 0; e && i < n_cols; i++)
        e->sums[i] = i % 32 < 8 ? 1000 : 1;
    if (e)
        e->counts[0] = 10;
    return m;
}

/* The squared error of a tensor in the columns that matter. */
static double error_where_it_matters(const weights *found, const weights *expected,
                                     const char *name)
{
    const tensor *a = weights_find(found, name), *b = weights_find(expected, name);
    double sum = 0;
    for (uint64_t i = 0; i < a->n_values; i += 256) {
        float x[256], y[256];
        unpack_row(a->type, a->data + row_bytes(a->type, (int64_t)i), 256, x);
        unpack_row(b->type, b->data + row_bytes(b->type, (int64_t)i), 256, y);
        for (int k = 0; k < 256; k++)
            sum += k % 32 < 8 ? (double)(x[k] - y[k]) * (x[k] - y[k]) : 0;
    }
    return sum;
}

static void important_columns_get_less_error(void)
{
    const char *name = "blk.0.ffn_up.weight";
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    weights *in = NULL;
    CHECK(weights_open(scratch_path("in.gguf"), &in, NULL) == LACE_OK);
    quantize_options o = quantize_options_default();
    imatrix *m = make_importance(name, 256);
    weights *plain = quantize(scratch_path("in.gguf"), "a.gguf", "q4_k_s", NULL);
    o.importance = m;
    weights *weighed = quantize(scratch_path("in.gguf"), "b.gguf", "q4_k_s", &o);
    if (in && plain && weighed) {
        double a = error_where_it_matters(plain, in, name);
        double b = error_where_it_matters(weighed, in, name);
        tap_note("%g of the error without", b / a);
        CHECK(b < 0.8 * a);
    }
    weights_close(in);
    weights_close(plain);
    weights_close(weighed);
    imatrix_free(m);
    m = make_importance(name, 255);
    o.importance = m;
    o.mix = mix_find("q4_0");
    lace_error err;
    CHECK(quantize_model(scratch_path("in.gguf"), scratch_path("c.gguf"), &o, NULL, &err) ==
              LACE_E_SHAPE &&
          strstr(err.text, name));
    imatrix_free(m);
    scratch_remove();
}

static void importance_files_are_read_as_written(void)
{
    CHECK(scratch_create() != NULL);
    imatrix *m = make_importance("blk.0.attn_q.weight", 64), *back = NULL;
    imatrix_entry *e;
    lace_error err;
    CHECK(is_ok(imatrix_add(m, text_of("blk.0.ffn_down_exps.weight"), 32, 3, &e, &err), &err));
    for (int i = 0; i < 96; i++)
        e->sums[i] = (float)i;
    e->counts[0] = 2;
    e->counts[2] = 4; /* and the second expert saw nothing */
    CHECK(imatrix_add(m, text_of("blk.0.attn_q.weight"), 64, 1, &e, &err) == LACE_E_DUP);
    CHECK(is_ok(imatrix_write(m, scratch_path("i.gguf"), NULL, "text", 3, 512, &err), &err));
    CHECK(is_ok(imatrix_read(scratch_path("i.gguf"), &back, &err), &err));
    CHECK(back && imatrix_count(back) == 2);
    e = back ? imatrix_find(back, text_of("blk.0.ffn_down_exps.weight")) : NULL;
    if (CHECK(e && e->n_cols == 32 && e->n_experts == 3)) {
        float means[32];
        imatrix_means(e, 2, means);
        CHECK(means[1] == 65.0f / 4);
        imatrix_means(e, 1, means);
        CHECK(means[1] == 1);
    }
    imatrix_free(m);
    imatrix_free(back);
    scratch_remove();
}

/* A file with one entry whose parts are given. */
static lace_status parse_entry(const char *kind, const char *sums_name, int64_t n_counts,
                               float first, float count, lace_error *err)
{
    gguf_writer *w = NULL;
    float sums[8] = {first, 1, 1, 1, 1, 1, 1, 1}, counts[4] = {count, 1, 1, 1};
    shape s = {2, {4, 2, 1, 1}}, c = {2, {1, n_counts, 1, 1}};
    buf file;
    buf_init(&file, 1 << 16);
    gguf_writer_create(&w, NULL);
    gguf_writer_add_text(w, "general.type", text_of(kind), NULL);
    gguf_writer_add_tensor(w, text_of(sums_name), DTYPE_F32, &s, sums, NULL);
    gguf_writer_add_tensor(w, text_of("a.counts"), DTYPE_F32, &c, counts, NULL);
    CHECK(gguf_writer_to_buf(w, &file, NULL) == LACE_OK);
    imatrix *m = NULL;
    lace_status status = imatrix_parse((span){(uint8_t *)file.data, file.size}, &m, err);
    CHECK((m != NULL) == (status == LACE_OK));
    imatrix_free(m);
    gguf_writer_free(w);
    buf_deinit(&file);
    return status;
}

static void bad_importance_files_are_refused(void)
{
    lace_error err;
    CHECK(is_ok(parse_entry("imatrix", "a.in_sum2", 2, 1, 1, &err), &err));
    CHECK(parse_entry("model", "a.in_sum2", 2, 1, 1, &err) == LACE_E_META &&
          strstr(err.text, "general.type"));
    CHECK(parse_entry("imatrix", "a.in_sum2", 3, 1, 1, &err) == LACE_E_META);
    CHECK(parse_entry("imatrix", "b.in_sum2", 2, 1, 1, &err) == LACE_E_META &&
          strstr(err.text, "b.counts"));
    CHECK(parse_entry("imatrix", "a.weight", 2, 1, 1, &err) == LACE_E_NAME);
    CHECK(parse_entry("imatrix", "a.in_sum2", 2, -1, 1, &err) == LACE_E_NUMERIC);
    CHECK(parse_entry("imatrix", "a.in_sum2", 2, 0.0f / 0.0f, 1, &err) == LACE_E_NUMERIC);
    /* A mean that is no number. */
    CHECK(parse_entry("imatrix", "a.in_sum2", 2, 1e38f, 1e-3f, &err) == LACE_E_NUMERIC &&
          strstr(err.text, "a: value 0 is 1e+38 over 0.001 tokens"));
    CHECK(is_ok(parse_entry("imatrix", "a.in_sum2", 2, 1e38f, 0, &err), &err));
}

/* ---- The older form of importance files ------------------------------------------------------ */

static void put_int(buf *b, int32_t n)
{
    uint8_t bytes[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    CHECK(buf_append(b, bytes, 4) == LACE_OK);
}

/* An entry as llama-imatrix wrote it: means times calls. */
static void put_entry(buf *b, const char *name, int32_t n_calls, const float *means, int32_t n)
{
    put_int(b, (int32_t)strlen(name));
    CHECK(buf_append_text(b, name) == LACE_OK);
    put_int(b, n_calls);
    put_int(b, n);
    for (int32_t i = 0; i < n; i++) {
        float value = means[i] * (float)n_calls;
        CHECK(buf_append(b, &value, sizeof value) == LACE_OK);
    }
}

static lace_status parse_dat(const buf *b, size_t n, imatrix **out, lace_error *err)
{
    return imatrix_parse((span){(const uint8_t *)b->data, n}, out, err);
}

static void an_old_imatrix_dat_is_read_as_its_means(void)
{
    float means[6] = {1, 2, 3, 4, 5, 6}, found[6];
    imatrix *m = NULL;
    lace_error err;
    buf b;
    buf_init(&b, 1 << 16);
    put_int(&b, 2);
    put_entry(&b, "blk.0.attn_q.weight", 7, means, 6);
    put_entry(&b, "blk.0.ffn_up_exps.weight", 3, means, 6);
    put_int(&b, 7); /* chunks, and the text's name */
    put_int(&b, 4);
    CHECK(buf_append_text(&b, "text") == LACE_OK);
    if (CHECK(is_ok(parse_dat(&b, b.size, &m, &err), &err)) && CHECK(imatrix_count(m) == 2)) {
        imatrix_entry *q = imatrix_find(m, text_of("blk.0.attn_q.weight"));
        CHECK(q && !imatrix_fits(q, 5, 1) && imatrix_fits(q, 6, 1));
        imatrix_means(q, 0, found);
        CHECK(memcmp(found, means, sizeof means) == 0);
        /* Three experts of two columns: only the model knows. */
        imatrix_entry *up = imatrix_find(m, text_of("blk.0.ffn_up_exps.weight"));
        CHECK(up && !imatrix_fits(up, 4, 1) && imatrix_fits(up, 2, 3));
        imatrix_means(up, 2, found);
        CHECK(found[0] == 5 && found[1] == 6);
    }
    imatrix_free(m);
    /* Cut anywhere before the end of the entries, it is refused. */
    for (size_t n = 0; n < b.size - 12; n++)
        if (!CHECK(parse_dat(&b, n, &m, &err) != LACE_OK && !m && err.text[0]))
            tap_note("%zu bytes were taken", n);
    b.data[0] = 'x'; /* 120 entries, of which two are there */
    CHECK(parse_dat(&b, b.size, &m, &err) != LACE_OK && !m);
    memcpy(b.data, "text", 4);
    CHECK(parse_dat(&b, b.size, &m, &err) == LACE_E_COUNT &&
          strstr(err.text, "is not an importance matrix"));
    buf_deinit(&b);
}

static void old_and_new_importance_give_the_same_file(void)
{
    float means[256];
    for (int i = 0; i < 256; i++)
        means[i] = i % 32 < 8 ? 100 : 0.125f;
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    imatrix *old = NULL, *now = NULL;
    imatrix_entry *e;
    lace_error err;
    buf b;
    buf_init(&b, 1 << 16);
    put_int(&b, 1);
    put_entry(&b, "blk.0.ffn_up.weight", 8, means, 256);
    CHECK(is_ok(parse_dat(&b, b.size, &old, &err), &err) &&
          is_ok(imatrix_create(&now, &err), &err));
    CHECK(is_ok(imatrix_add(now, text_of("blk.0.ffn_up.weight"), 256, 1, &e, &err), &err));
    memcpy(e->sums, means, sizeof means);
    e->counts[0] = 1;
    quantize_options o = quantize_options_default();
    o.importance = old;
    weights *a = quantize(scratch_path("in.gguf"), "a.gguf", "q4_k_s", &o);
    o.importance = now;
    weights *c = quantize(scratch_path("in.gguf"), "b.gguf", "q4_k_s", &o);
    const tensor *x = a ? weights_find(a, "blk.0.ffn_up.weight") : NULL;
    const tensor *y = c ? weights_find(c, "blk.0.ffn_up.weight") : NULL;
    CHECK(x && y && x->n_bytes == y->n_bytes && memcmp(x->data, y->data, x->n_bytes) == 0);
    weights_close(a);
    weights_close(c);
    imatrix_free(old);
    imatrix_free(now);
    buf_deinit(&b);
    scratch_remove();
}

/* Importance is known for three dimensions at most: the fourth is not another expert. */
static void tensors_of_four_dimensions_have_no_importance(void)
{
    tiny_options t = tiny_options_default();
    static const float zeros[32 * 2 * 2 * 64];
    shape s = {4, {32, 2, 2, 64}};
    gguf_writer *w = NULL;
    imatrix *m = NULL;
    imatrix_entry *e = NULL;
    lace_error err;
    CHECK(scratch_create() != NULL);
    CHECK(is_ok(tiny_model_create(&t, &w, &err), &err));
    gguf_writer_add_tensor(w, text_of("x.weight"), DTYPE_F32, &s, zeros, NULL);
    CHECK(is_ok(gguf_writer_to_file(w, scratch_path("in.gguf"), NULL, NULL, &err), &err));
    CHECK(is_ok(imatrix_create(&m, &err), &err) &&
          is_ok(imatrix_add(m, text_of("x.weight"), 32, 2, &e, &err), &err));
    quantize_options o = quantize_options_default();
    o.mix = mix_find("q4_0");
    o.importance = m;
    CHECK(quantize_model(scratch_path("in.gguf"), scratch_path("out.gguf"), &o, NULL, &err) ==
          LACE_E_SHAPE);
    CHECK(strstr(err.text, "x.weight") && scratch_count() == 1);
    imatrix_free(m);
    gguf_writer_free(w);
    scratch_remove();
}

/* ---- Failures in the middle ------------------------------------------------------------------ */

static void every_allocation_may_fail(void)
{
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    quantize_options o = quantize_options_default();
    imatrix *m = make_importance("blk.0.ffn_up.weight", 256);
    o.mix = mix_find("q8_0");
    o.importance = m;
    for (long i = 0;; i++) {
        lace_error err;
        mem_fail_at(i, false);
        lace_status status =
            quantize_model(scratch_path("in.gguf"), scratch_path("out.gguf"), &o, NULL, &err);
        long n = mem_count();
        mem_fail_at(-1, false);
        if (i >= n) {
            CHECK(status == LACE_OK && scratch_count() == 2);
            tap_note("%ld allocations", n);
            break;
        }
        /* A config.json beside the file is looked for, and not needed. */
        bool is_whole = status == LACE_OK && unlink(scratch_path("out.gguf")) == 0;
        if (!CHECK((status == LACE_E_NOMEM || is_whole) && scratch_count() == 1))
            tap_note("allocation %ld: %s", i, lace_status_name(status));
    }
    imatrix_free(m);
    scratch_remove();
}

static bool stop_at_half(void *user, const char *what, double done)
{
    return done < 0.5;
}

/* Overwrite one value of a tensor in a file that write_model made. */
static void put_value(const char *name, const char *tensor_name, uint64_t index, float value)
{
    weights *w = NULL;
    lace_error err;
    CHECK(is_ok(weights_open(scratch_path(name), &w, &err), &err));
    const tensor *t = weights_find(w, tensor_name);
    const tensor *last = weights_at(w, weights_count(w) - 1); /* the file ends with it */
    long from_end = (long)(last->data + last->n_bytes - t->data) - 4 * (long)index;
    weights_close(w);
    FILE *f = fopen(scratch_path(name), "r+b");
    CHECK(f && fseek(f, -from_end, SEEK_END) == 0 && fwrite(&value, 4, 1, f) == 1);
    if (f)
        fclose(f);
}

static void weights_that_are_no_numbers_are_refused(void)
{
    static const struct {
        const char *tensor;
        uint64_t index;
        float value;
        const char *type, *line;
    } cases[] = {
        {"blk.0.ffn_up.weight", 1000, NAN, "q4_k_m",
         "tensor blk.0.ffn_up.weight: value 1000 (row 3, column 232) is nan, which q4_k cannot"},
        {"blk.0.attn_q.weight", 0, INFINITY, "s4", "value 0 (row 0, column 0) is inf, which s4"},
        {"output.weight", 81919, -INFINITY, "q8_0", "row 319, column 255) is -inf, which q8_0"},
        {"blk.0.ffn_down.weight", 5, 1e6f, "q4_0", "is 1e+06, which q4_0 cannot hold"},
        {"blk.0.attn_norm.weight", 7, NAN, "q8_0", "blk.0.attn_norm.weight: value 7 (row 0, "},
        {"blk.0.attn_k.weight", 77, NAN, "t3", "value 77 (row 0, column 77) is nan, which t3"},
    };
    if (!CHECK(scratch_create()))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lace_error err = {0};
        quantize_options o = quantize_options_default();
        o.mix = mix_find(cases[i].type);
        o.n_threads = 2;
        write_model("in.gguf");
        put_value("in.gguf", cases[i].tensor, cases[i].index, cases[i].value);
        CHECK(quantize_model(scratch_path("in.gguf"), scratch_path("out.gguf"), &o, NULL, &err) ==
              LACE_E_NUMERIC);
        if (!CHECK(strstr(err.text, cases[i].line)))
            tap_note("%s", err.text);
        CHECK(access(scratch_path("out.gguf"), F_OK) != 0);
    }
    scratch_remove();
}

static void a_cancelled_quantize_leaves_nothing(void)
{
    CHECK(scratch_create() != NULL);
    write_model("in.gguf");
    quantize_options o = quantize_options_default();
    o.mix = mix_find("q8_0");
    o.on_progress = stop_at_half;
    lace_error err;
    CHECK(quantize_model(scratch_path("in.gguf"), scratch_path("out.gguf"), &o, NULL, &err) ==
          LACE_E_CANCELLED);
    CHECK(scratch_count() == 1);
    scratch_remove();
}

int main(void)
{
    CASE(mixes_are_those_of_llama_cpp);
    CASE(trellis_types_leave_short_rows_to_tables);
    CASE(every_mix_writes_a_file_that_opens);
    CASE(a_directory_gives_the_file_of_its_gguf);
    CASE(threads_do_not_change_the_file);
    CASE(quantized_models_are_taken_only_on_request);
    CASE(important_columns_get_less_error);
    CASE(importance_files_are_read_as_written);
    CASE(bad_importance_files_are_refused);
    CASE(an_old_imatrix_dat_is_read_as_its_means);
    CASE(old_and_new_importance_give_the_same_file);
    CASE(tensors_of_four_dimensions_have_no_importance);
    CASE(every_allocation_may_fail);
    CASE(weights_that_are_no_numbers_are_refused);
    CASE(a_cancelled_quantize_leaves_nothing);
    return tap_end();
}
