/* compress/convert.c: GGUF files of directories, against those that llama.cpp's converter made. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compress/convert.h"
#include "compress/convert_meta.h"
#include "formats/weights.h"
#include "tensor/codec/unpack.h"
#include "alloc_faults.h"
#include "data.h"
#include "scratch.h"
#include "golden_file.h"
#include "status_check.h"
#include "tap.h"
#include "tensor/half.h"
#include "tiny_hf.h"

/* Convert to `name` in the scratch folder and open the result; NULL on failure. */
static weights *convert(const char *directory, const char *name, const convert_options *options)
{
    convert_options o = options ? *options : convert_options_default();
    weights *w = NULL;
    lace_error err;
    if (CHECK(is_ok(convert_directory(directory, scratch_path(name), &o, NULL, &err), &err)))
        CHECK(is_ok(weights_open(scratch_path(name), &w, &err), &err));
    return w;
}

/* ---- Against the reference ------------------------------------------------------------------- */

static bool is_same_tensor(const tensor *a, const tensor *b)
{
    if (a->type != b->type || a->shape.n_dims != b->shape.n_dims || a->n_bytes != b->n_bytes)
        return false;
    for (int i = 0; i < a->shape.n_dims; i++)
        if (a->shape.dims[i] != b->shape.dims[i])
            return false;
    return memcmp(a->data, b->data, (size_t)a->n_bytes) == 0;
}

static void compare_tensors(const weights *found, const weights *expected)
{
    CHECK(weights_count(found) == weights_count(expected));
    for (size_t i = 0; i < weights_count(expected); i++) {
        const tensor *want = weights_at(expected, i);
        char name[GGUF_MAX_NAME_BYTES + 1];
        snprintf(name, sizeof name, "%.*s", (int)want->name.size, want->name.data);
        const tensor *got = weights_find(found, name);
        if (!CHECK(got && is_same_tensor(got, want)))
            tap_note("tensor %s differs", name);
    }
}

/* Every value of the reference is there; `skipped` begins the keys that may differ. */
static void compare_values(const gguf *found, const gguf *expected, const char *const *skipped)
{
    for (size_t i = 0; i < gguf_n_values(expected); i++) {
        const gguf_value *want = gguf_value_at(expected, i);
        char key[256];
        snprintf(key, sizeof key, "%.*s", (int)want->key.size, want->key.data);
        bool is_skipped = false;
        for (size_t k = 0; skipped && skipped[k]; k++)
            is_skipped = is_skipped || strncmp(key, skipped[k], strlen(skipped[k])) == 0;
        const gguf_value *got = gguf_find(found, key);
        if (is_skipped)
            continue;
        if (!CHECK(got && got->type == want->type && got->bytes.size == want->bytes.size &&
                   memcmp(got->bytes.data, want->bytes.data, want->bytes.size) == 0))
            tap_note("key %s differs", key);
    }
}

static void golden_directory_becomes_its_gguf(void *arg)
{
    const char *name = arg;
    char *directory = golden_path(name, ""), *file = golden_path(name, "model.gguf");
    CHECK(scratch_create() != NULL);
    weights *found = convert(directory, "out.gguf", NULL), *expected = NULL;
    lace_error err;
    if (file && CHECK(is_ok(weights_open(file, &expected, &err), &err)) && found) {
        compare_tensors(found, expected);
        compare_values(weights_gguf(found), weights_gguf(expected), NULL);
    }
    /* Both are there for all but gemma3, which has no reference. */
    CHECK(found && (file != NULL) == (strcmp(name, "gemma3") != 0));
    weights_close(found);
    weights_close(expected);
    scratch_remove();
    free(directory);
    free(file);
}

/*
 * The same of golden2/. The converter gives Hunyuan a context of 256 Ki and a method that stretches
 * nothing; and some files were converted under another name.
 */
static void golden2_directory_becomes_its_gguf(void *arg)
{
    static const char *const skipped[] = {"general.", "hunyuan-moe.context_length",
                                          "hunyuan-moe.rope.scaling", NULL};
    const char *name = arg;
    char *directory = golden_path(name, ""), *file = golden_path(name, "model.gguf");
    CHECK(scratch_create() != NULL);
    weights *expected = NULL, *found = file ? convert(directory, "out.gguf", NULL) : NULL;
    lace_error err;
    if (file && CHECK(is_ok(weights_open(file, &expected, &err), &err)) && found) {
        compare_tensors(found, expected);
        compare_values(weights_gguf(found), weights_gguf(expected), skipped);
    }
    weights_close(found);
    weights_close(expected);
    scratch_remove();
    free(directory);
    free(file);
}

/* No key says the length of chunks, or where queries begin to be scaled. */
static void what_files_of_llama4_cannot_say_is_refused(void)
{
    char *directory = golden_path("llama4-chunk", "");
    convert_options o = convert_options_default();
    lace_error err = {0};
    CHECK(scratch_create() != NULL);
    if (directory) {
        CHECK(convert_directory(directory, scratch_path("out.gguf"), &o, NULL, &err) ==
              LACE_E_UNSUPPORTED);
        CHECK(strstr(err.text, "attention_chunk_size"));
    }
    scratch_remove();
    free(directory);
}

static void tales_4m_becomes_its_gguf(void)
{
    /* Names for people are taken from the directory's. */
    static const char *const skipped[] = {"general.basename", "general.size_label", NULL};
    char *directory = data_path("models/tales-4m");
    char *file = data_path("models/tales-4m-f16.gguf");
    if (!directory || !file)
        return;
    weights *expected = NULL;
    lace_error err;
    CHECK(scratch_create() != NULL);
    weights *found = convert(directory, "out.gguf", NULL);
    if (CHECK(is_ok(weights_open(file, &expected, &err), &err)) && found) {
        compare_tensors(found, expected);
        compare_values(weights_gguf(found), weights_gguf(expected), skipped);
    }
    weights_close(found);
    weights_close(expected);
    scratch_remove();
    free(directory);
    free(file);
}

/* ---- Types ----------------------------------------------------------------------------------- */

static void types_follow_the_rules(void)
{
    static const struct {
        bool has_type;
        dtype type;
        dtype matrix, embedding;
        int file_type;
    } cases[] = {
        {false, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, 32},
        {true, DTYPE_F32, DTYPE_F32, DTYPE_F32, 0},
        {true, DTYPE_F16, DTYPE_F16, DTYPE_F16, 1},
        {true, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 32},
        {true, DTYPE_Q8_0, DTYPE_F16, DTYPE_F16, 7}, /* rows of 8 are no whole blocks */
    };
    CHECK(scratch_create() && tiny_hf_llama("BF16"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        convert_options o = convert_options_default();
        o.has_type = cases[i].has_type;
        o.type = cases[i].type;
        weights *w = convert(scratch_path(""), "out.gguf", &o);
        if (!w)
            continue;
        CHECK(weights_find(w, "blk.0.ffn_up.weight")->type == cases[i].matrix);
        CHECK(weights_find(w, "token_embd.weight")->type == cases[i].embedding);
        CHECK(weights_find(w, "blk.0.attn_norm.weight")->type == DTYPE_F32);
        CHECK(weights_find(w, "rope_freqs.weight")->type == DTYPE_F32);
        int64_t file_type = -1;
        CHECK(gguf_get_int(weights_gguf(w), "general.file_type", 0, 99, &file_type, NULL, NULL) ==
                  LACE_OK &&
              file_type == cases[i].file_type);
        weights_close(w);
    }
    scratch_remove();
}

/* Q8_0 of a real model: each value within half a step of its block. */
static void q8_0_is_near(void)
{
    char *directory = data_path("models/tales-4m");
    if (!directory)
        return;
    CHECK(scratch_create() != NULL);
    convert_options o = convert_options_default();
    o.has_type = true;
    o.type = DTYPE_Q8_0;
    weights *small = convert(directory, "q8.gguf", &o),
            *whole = convert(directory, "f16.gguf", NULL);
    const char *name = "blk.3.ffn_down.weight";
    if (small && whole) {
        const tensor *a = weights_find(small, name), *b = weights_find(whole, name);
        CHECK(a && b && a->type == DTYPE_Q8_0 && b->type == DTYPE_F16);
        for (uint64_t i = 0; a && b && i < a->n_values; i += 32) {
            float x[32], y[32];
            unpack_row(DTYPE_Q8_0, a->data + i / 32 * 34, 32, x);
            unpack_row(DTYPE_F16, b->data + 2 * i, 32, y);
            float most = 0;
            for (int k = 0; k < 32; k++)
                most = y[k] > most ? y[k] : -y[k] > most ? -y[k] : most;
            /* Half a step, and the rounding of the scale to f16 times 127. */
            for (int k = 0; k < 32; k++)
                if (!(x[k] - y[k] <= most * 0.0045f && y[k] - x[k] <= most * 0.0045f))
                    CHECK(!"a value is too far");
        }
    }
    weights_close(small);
    weights_close(whole);
    scratch_remove();
    free(directory);
}

static void values_too_large_for_f16_are_named(void)
{
    CHECK(scratch_create() && tiny_hf_llama("F32"));
    /* The last value of the file becomes 1e6. */
    FILE *f = fopen(scratch_path("model.safetensors"), "r+b");
    float large = 1e6f;
    CHECK(f && fseek(f, -4, SEEK_END) == 0 && fwrite(&large, 4, 1, f) == 1 && fclose(f) == 0);
    convert_options o = convert_options_default();
    lace_error err;
    o.has_type = true;
    CHECK(convert_directory(scratch_path(""), scratch_path("o.gguf"), &o, NULL, &err) ==
          LACE_E_NUMERIC);
    CHECK(strstr(err.text, "blk.0.ffn_down.weight") && access(scratch_path("o.gguf"), F_OK) != 0);
    o.type = DTYPE_BF16;
    CHECK(is_ok(convert_directory(scratch_path(""), scratch_path("o.gguf"), &o, NULL, &err), &err));
    scratch_remove();
}

/* ---- Layouts --------------------------------------------------------------------------------- */

/* Value v of row r of expert e, as the reference computes it from quants and scales. */
static float mxfp4_value(const weights *w, const char *stem, int n_rows, int e, int row, int v)
{
    static const float values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    char name[128];
    snprintf(name, sizeof name, "model.layers.0.mlp.experts.%s_blocks", stem);
    const tensor *blocks = weights_find(w, name);
    snprintf(name, sizeof name, "model.layers.0.mlp.experts.%s_scales", stem);
    const tensor *scales = weights_find(w, name);
    int block = e * n_rows + row; /* one block a row */
    int quant = blocks->data[16 * block + v / 2] >> 4 * (v % 2) & 15;
    /* Twice half of the power, because 2^128 is no float. */
    return values[quant] * e8m0_to_f32_half(scales->data[block]) * 2;
}

static void mxfp4_experts_keep_their_values(void)
{
    CHECK(scratch_create() && tiny_hf_gpt_oss());
    weights *hf = NULL;
    lace_error err;
    CHECK(is_ok(weights_open(scratch_path(""), &hf, &err), &err));
    weights *w = convert(scratch_path(""), "out.gguf", NULL);
    static const struct {
        const char *name, *stem;
        int n_rows, part, n_parts;
    } cases[] = {
        {"blk.0.ffn_gate_exps.weight", "gate_up_proj", 64, 0, 2},
        {"blk.0.ffn_up_exps.weight", "gate_up_proj", 64, 1, 2},
        {"blk.0.ffn_down_exps.weight", "down_proj", 32, 0, 1},
    };
    for (size_t i = 0; hf && w && i < sizeof cases / sizeof *cases; i++) {
        const tensor *t = weights_find(w, cases[i].name);
        CHECK(t && t->type == DTYPE_MXFP4 && t->shape.dims[0] == 32 && t->shape.dims[1] == 32 &&
              t->shape.dims[2] == 2);
        for (int row = 0; t && row < 64; row++) {
            float found[32];
            unpack_row(DTYPE_MXFP4, t->data + 17 * row, 32, found);
            for (int v = 0; v < 32; v++)
                CHECK(found[v] == mxfp4_value(hf, cases[i].stem, cases[i].n_rows, row / 32,
                                              row % 32 * cases[i].n_parts + cases[i].part, v));
        }
    }
    /* Biases of gate and up alternate. */
    if (hf && w) {
        const tensor *both = weights_find(hf, "model.layers.0.mlp.experts.gate_up_proj_bias");
        const tensor *up = weights_find(w, "blk.0.ffn_up_exps.bias");
        for (int i = 0; i < 64; i++)
            CHECK(load_u32(up->data + 4 * i) == load_u32(both->data + 4 * (2 * i + 1)));
        int64_t file_type = 0;
        gguf_get_int(weights_gguf(w), "general.file_type", 0, 99, &file_type, NULL, NULL);
        CHECK(file_type == 38);
    }
    weights_close(w);
    weights_close(hf);
    scratch_remove();
}

/* Pairs (i, i + half) of each head lie side by side in the file. */
static void rows_of_q_and_k_are_permuted(void)
{
    CHECK(scratch_create() && tiny_hf_llama("F32"));
    weights *hf = NULL;
    lace_error err;
    CHECK(is_ok(weights_open(scratch_path(""), &hf, &err), &err));
    weights *w = convert(scratch_path(""), "out.gguf", NULL);
    const tensor *in = hf ? weights_find(hf, "model.layers.0.self_attn.q_proj.weight") : NULL;
    const tensor *out = w ? weights_find(w, "blk.0.attn_q.weight") : NULL;
    static const int from[8] = {0, 2, 1, 3, 4, 6, 5, 7}; /* 2 heads of 4 rows */
    for (int row = 0; CHECK(in && out) && row < 8; row++)
        CHECK(memcmp(out->data + 32 * row, in->data + 32 * from[row], 32) == 0);
    weights_close(w);
    weights_close(hf);
    scratch_remove();
}

/* ---- What cannot be converted ---------------------------------------------------------------- */

static void refuse(lace_status expected, const char *part)
{
    lace_error err;
    CHECK(scratch_write("out.gguf", "kept"));
    lace_status status =
        convert_directory(scratch_path(""), scratch_path("out.gguf"), NULL, NULL, &err);
    if (!CHECK(status == expected && strstr(err.text, part)))
        tap_note("%s", status ? err.text : "was converted");
    CHECK(scratch_holds("out.gguf", "kept"));
}

static void add_to_llama(const char *name, const char *type, const char *dims, size_t n_bytes)
{
    st_file f;
    buf b;
    st_begin(&f);
    buf_init(&b, 1 << 20);
    st_add(&f, "model.embed_tokens.weight", "F32", "[16,8]", NULL, 512);
    st_add(&f, name, type, dims, NULL, n_bytes);
    st_end(&f, &b);
    CHECK(tiny_hf_write("model.safetensors", &b));
    buf_deinit(&b);
}

static void what_has_no_place_is_named(void)
{
    CHECK(scratch_create() && tiny_hf_llama("F32"));
    add_to_llama("model.layers.0.mlp.extra.weight", "F32", "[1]", 4);
    refuse(LACE_E_UNSUPPORTED, "model.layers.0.mlp.extra.weight");
    add_to_llama("model.layers.1.mlp.up_proj.weight", "F32", "[12,8]", 384);
    refuse(LACE_E_UNSUPPORTED, "model.layers.1.mlp.up_proj.weight");
    add_to_llama("model.layers.0.mlp.up_proj.weight", "I32", "[12,8]", 384);
    refuse(LACE_E_TENSOR_TYPE, "blk.0.ffn_up.weight: type i32");
    add_to_llama("model.layers.0.self_attn.q_proj.weight", "F32", "[6,8]", 192);
    refuse(LACE_E_SHAPE, "model.layers.0.self_attn.q_proj.weight");
    add_to_llama("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[2]", 8);
    weights *w = convert(scratch_path(""), "out.gguf", NULL);
    CHECK(w && weights_count(w) == 2); /* the embedding and llama3's factors */
    weights_close(w);
    lace_error err;
    CHECK(convert_directory(scratch_path("out.gguf"), scratch_path("x"), NULL, NULL, &err) ==
          LACE_E_ARG);
    scratch_remove();
}

static void kinds_of_layers_that_gguf_cannot_say_are_refused(void)
{
    CHECK(scratch_create() && tiny_hf_gpt_oss());
    CHECK(scratch_write("config.json",
                        "{\"model_type\":\"gpt_oss\",\"hidden_size\":32,\"num_hidden_layers\":1,"
                        "\"num_attention_heads\":2,\"head_dim\":16,\"intermediate_size\":32,"
                        "\"vocab_size\":16,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
                        "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"sliding_window\":8,"
                        "\"layer_types\":[\"full_attention\"]}"));
    refuse(LACE_E_UNSUPPORTED, "layer_types");
    scratch_remove();
}

/* ---- Failures in the middle ------------------------------------------------------------------ */

/* Beside the two files of the directory there is a third one only if all went well. */
static lace_status convert_once(lace_error *err)
{
    convert_options o = convert_options_default();
    o.no_vocab = true;
    lace_status status =
        convert_directory(scratch_path(""), scratch_path("out.gguf"), &o, NULL, err);
    CHECK(scratch_count() == (status == LACE_OK ? 3 : 2));
    return status;
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_create() && tiny_hf_gpt_oss());
    fail_each_allocation(convert_once, false);
    scratch_remove();
}

static bool stop_at_half(void *user, const char *what, double done)
{
    return done < 0.5;
}

static void a_cancelled_convert_leaves_nothing(void)
{
    CHECK(scratch_create() && tiny_hf_llama("F32"));
    convert_options o = convert_options_default();
    lace_error err;
    o.on_progress = stop_at_half;
    CHECK(convert_directory(scratch_path(""), scratch_path("out.gguf"), &o, NULL, &err) ==
          LACE_E_CANCELLED);
    CHECK(scratch_count() == 2);
    scratch_remove();
}

/* ---- Names for people ------------------------------------------------------------------------ */

static void titles_are_made_of_names(void)
{
    static const char *const cases[][2] = {
        {"qwen3moe", "Qwen3Moe"},         {"llama-tied-headdim", "Llama Tied Headdim"},
        {"tales-4m", "Tales 4m"},         {"SmolLM2-1.7B-Instruct", "SmolLM2 1.7B Instruct"},
        {"mistral-v0.3", "Mistral v0.3"}, {"a--b-", "A B"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[64];
        convert_title(cases[i][0], found, sizeof found);
        if (!CHECK(strcmp(found, cases[i][1]) == 0))
            tap_note("%s: %s", cases[i][0], found);
    }
    char few[4];
    convert_title("abcdef", few, sizeof few);
    CHECK(strcmp(few, "Abc") == 0);
}

int main(void)
{
    golden_each("directory_%s_becomes_its_gguf", golden_directory_becomes_its_gguf);
    static const char *const mixtures[] = {
        "glm4_moe",  "minimax_m2", "ernie4_5_moe", "dots1",  "hunyuan_v1_moe",
        "qwen2_moe", "olmoe",      "granitemoe",   "phimoe", "llama4"};
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        char name[96];
        snprintf(name, sizeof name, "mixture_%s_becomes_its_gguf", mixtures[i]);
        tap_case_arg(name, golden2_directory_becomes_its_gguf, (void *)mixtures[i]);
    }
    CASE(what_files_of_llama4_cannot_say_is_refused);
    CASE(tales_4m_becomes_its_gguf);
    CASE(types_follow_the_rules);
    CASE(q8_0_is_near);
    CASE(values_too_large_for_f16_are_named);
    CASE(mxfp4_experts_keep_their_values);
    CASE(rows_of_q_and_k_are_permuted);
    CASE(what_has_no_place_is_named);
    CASE(kinds_of_layers_that_gguf_cannot_say_are_refused);
    CASE(every_allocation_may_fail);
    CASE(a_cancelled_convert_leaves_nothing);
    CASE(titles_are_made_of_names);
    return tap_end();
}
