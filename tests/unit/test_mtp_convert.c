/*
 * Layers that predict further tokens in Hugging Face directories: they are read, lace convert keeps
 * them under upstream's names, and the file guesses what the directory does.
 *
 * The directories are golden ones with such a layer added: a copy of the last that attends, and
 * tensors of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/convert.h"
#include "data.h"
#include "engine/engine.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tensor/codec/unpack.h"
#include "tiny_hf.h"

enum { MOST_BYTES = 8 << 20, MOST_VALUES = 1 << 16, N_TEXT = 20 };

typedef struct a_family {
    const char *directory;
    const char *like;       /* names of the layer that is copied begin so, */
    const char *copy;       /* those of the copy so, */
    const char *start;      /* and its own tensors so: */
    const char *own[4];     /* the matrix that joins; norms of token, hidden row and head */
    const char *config_key; /* that counts such layers; it is 0 or absent */
    int n_layers;
    float norm_offset; /* norms of directories are smaller by this */
} a_family;

#define QWEN_OWN                                                                                   \
    {                                                                                              \
        "fc.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight"    \
    }
#define GLM_OWN                                                                                    \
    {                                                                                              \
        "eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight"                \
    }

/* clang-format off */
static const a_family families[] = {
    {"qwen3_5", "model.layers.3.", "mtp.layers.0.", "mtp.", QWEN_OWN, "mtp_num_hidden_layers", 4, 1},
    {"qwen3_5_moe", "model.layers.3.", "mtp.layers.0.", "mtp.", QWEN_OWN, "mtp_num_hidden_layers", 4, 1},
    {"qwen3_next", "model.layers.3.", "mtp.layers.0.", "mtp.", QWEN_OWN, NULL, 4, 1},
    {"glm4_moe", "model.layers.2.", "model.layers.3.", "model.layers.3.", GLM_OWN, "num_nextn_predict_layers", 3, 0},
    {"glm4_moe_lite", "model.layers.2.", "model.layers.3.", "model.layers.3.", GLM_OWN, "num_nextn_predict_layers", 3, 0},
    {"deepseek_v3", "model.layers.2.", "model.layers.3.", "model.layers.3.", GLM_OWN, "num_nextn_predict_layers", 3, 0},
};
/* clang-format on */

/* ---- Directories ----------------------------------------------------------------------------- */

static void add_copy(st_file *f, const tensor *t, const char *name)
{
    char dims[96] = "[";
    size_t used = 1;
    for (int i = t->shape.n_dims - 1; i >= 0; i--)
        used += (size_t)snprintf(dims + used, sizeof dims - used, "%lld%s",
                                 (long long)t->shape.dims[i], i > 0 ? "," : "]");
    const char *type = t->type == DTYPE_F32 ? "F32" : t->type == DTYPE_F16 ? "F16" : "BF16";
    st_add(f, name, type, dims, t->data, t->n_bytes);
}

static void add_own(st_file *f, const a_family *family, int64_t n_embd)
{
    for (int i = 0; i < 4; i++) {
        char name[128], dims[64];
        static float values[MOST_VALUES];
        int64_t n = i == 0 ? 2 * n_embd * n_embd : n_embd;
        for (int64_t k = 0; k < n; k++)
            values[k] = (float)((k * 37 + i * 11) % 101) / 500 - 0.1f + (i > 0) -
                        family->norm_offset * (i > 0);
        snprintf(name, sizeof name, "%s%s", family->start, family->own[i]);
        if (i == 0)
            snprintf(dims, sizeof dims, "[%lld,%lld]", (long long)n_embd, (long long)(2 * n_embd));
        else
            snprintf(dims, sizeof dims, "[%lld]", (long long)n_embd);
        st_add(f, name, "F32", dims, values, (size_t)n * sizeof *values);
    }
}

/* The config with a count of 1: a key that is there, or one in front of num_hidden_layers. */
static bool write_config(const char *path, const a_family *family)
{
    static char text_in[1 << 14], text_out[1 << 14];
    char zero[64], one[64];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text_in, 1, sizeof text_in - 1, f) : 0;
    if (f)
        fclose(f);
    text_in[n] = 0;
    snprintf(zero, sizeof zero, "\"%s\": 0", family->config_key ? family->config_key : "-");
    snprintf(one, sizeof one, "\"%s\": 1", family->config_key ? family->config_key : "-");
    const char *at = family->config_key ? strstr(text_in, zero) : NULL;
    size_t skip = at ? strlen(zero) : 0;
    if (family->config_key && !at)
        at = strstr(text_in, "\"num_hidden_layers\"");
    if (!family->config_key)
        return n > 0 && scratch_write("config.json", text_in);
    if (!CHECK(at != NULL))
        return false;
    snprintf(text_out, sizeof text_out, "%.*s%s%s%s", (int)(at - text_in), text_in, one,
             skip ? "" : ",\n", at + skip);
    return scratch_write("config.json", text_out);
}

static bool write_directory(const a_family *family)
{
    char name[192], relative[64];
    lace_error err;
    weights *files = NULL;
    st_file f;
    buf out;
    snprintf(relative, sizeof relative, "golden2/%s", family->directory);
    char *path = data_path_if_there(relative);
    if (!path)
        return false;
    CHECK(is_ok(weights_open(path, &files, &err), &err));
    snprintf(name, sizeof name, "%s/config.json", path);
    bool ok = scratch_create() && write_config(name, family);
    st_begin(&f);
    int64_t n_embd = 0;
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        size_t n = strlen(family->like);
        snprintf(name, sizeof name, "%.*s", text_width(t->name), t->name.data);
        add_copy(&f, t, name);
        if (strstr(name, "embed_tokens.weight"))
            n_embd = t->shape.dims[0];
        if (strncmp(name, family->like, n) != 0)
            continue;
        snprintf(name, sizeof name, "%s%.*s", family->copy, (int)(t->name.size - n),
                 t->name.data + n);
        add_copy(&f, t, name);
    }
    add_own(&f, family, n_embd);
    buf_init(&out, MOST_BYTES);
    st_end(&f, &out);
    ok = ok && tiny_hf_write("model.safetensors", &out);
    buf_deinit(&out);
    weights_close(files);
    free(path);
    return ok;
}

/* ---- What they become ------------------------------------------------------------------------ */

static void check_tensor(const weights *files, const char *name, int64_t n_values, int which)
{
    static float values[MOST_VALUES];
    const tensor *t = weights_find(files, name);
    if (!CHECK(t && (int64_t)t->n_values == n_values)) {
        tap_note("%s", name);
        return;
    }
    unpack_row(t->type, t->data, n_values, values);
    int n_wrong = 0;
    for (int64_t k = 0; k < n_values; k++) {
        float want = (float)((k * 37 + which * 11) % 101) / 500 - 0.1f + (which > 0);
        n_wrong += values[k] < want - 1e-6f || values[k] > want + 1e-6f;
    }
    CHECK(n_wrong == 0);
}

/* The file has the layer among its blocks, and its own tensors under upstream's names. */
static void check_file(const char *path, const a_family *family)
{
    static const char *const names[] = {"eh_proj", "enorm", "hnorm", "shared_head_norm"};
    weights *files = NULL;
    lace_error err;
    char name[96], architecture[64];
    int64_t n_blocks = 0, n_predicting = 0, n_embd = 0;
    CHECK(is_ok(weights_open(path, &files, &err), &err));
    const gguf *g = weights_gguf(files);
    CHECK(config_architecture(g, architecture, &err) == LACE_OK);
    snprintf(name, sizeof name, "%s.block_count", architecture);
    CHECK(is_ok(gguf_get_int(g, name, 0, 100, &n_blocks, NULL, &err), &err));
    snprintf(name, sizeof name, "%s.nextn_predict_layers", architecture);
    CHECK(is_ok(gguf_get_int(g, name, 0, 100, &n_predicting, NULL, &err), &err));
    snprintf(name, sizeof name, "%s.embedding_length", architecture);
    CHECK(is_ok(gguf_get_int(g, name, 0, 1000, &n_embd, NULL, &err), &err));
    CHECK(n_blocks == family->n_layers + 1 && n_predicting == 1);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", family->n_layers, names[i]);
        check_tensor(files, name, i == 0 ? 2 * n_embd * n_embd : n_embd, i);
    }
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", family->n_layers);
    CHECK(weights_find(files, name) != NULL);
    weights_close(files);
}

/* Logits behind the last token of a text, of which the session holds all others. */
static int32_t predict(const char *path, float *out)
{
    lace_model *lm = NULL;
    lace_session *s = NULL;
    lace_error err;
    lace_item items[N_TEXT];
    lace_model_info info;
    lace_model_options mo = lace_model_options_default();
    mo.use_exact = mo.use_mtp = true;
    lace_session_options so = lace_session_options_default();
    so.n_context = 64;
    so.n_threads = 1;
    so.kv_type = LACE_KV_F32;
    so.use_mtp = true;
    if (!CHECK(is_ok(lace_model_open(path, &mo, &lm, &err), &err)) ||
        !CHECK(is_ok(lace_session_create(lm, &so, &s, &err), &err))) {
        lace_model_close(lm);
        return 0;
    }
    lace_model_describe(lm, &info);
    CHECK(info.n_predicting == 1);
    for (int i = 0; i < N_TEXT; i++)
        items[i] = (lace_item){.token = 3 + i * 5 % 60};
    CHECK(is_ok(lace_session_eval(s, items, N_TEXT, &err), &err));
    predictor_row row = {.position = N_TEXT, .token = 7};
    CHECK(is_ok(states_reserve_pages(s->kv, 0, 1, &err), &err));
    CHECK(is_ok(predictor_ask(s->predictor, &row, 1, &err), &err));
    memcpy(out, predictor_logits(s->predictor, 0), (size_t)info.n_vocab * sizeof *out);
    lace_session_free(s);
    lace_model_close(lm);
    return info.n_vocab;
}

static void check_family(void *arg)
{
    static float of_directory[MOST_VALUES], of_file[MOST_VALUES];
    const a_family *family = arg;
    lace_error err;
    if (!write_directory(family)) {
        tap_skip("golden2/%s is not here", family->directory);
        scratch_remove();
        return;
    }
    char directory[256];
    snprintf(directory, sizeof directory, "%s", scratch_path("."));
    convert_options o = convert_options_default();
    CHECK(is_ok(convert_directory(directory, scratch_path("out.gguf"), &o, NULL, &err), &err));
    check_file(scratch_path("out.gguf"), family);
    int32_t n = predict(directory, of_directory);
    CHECK(n > 0 && predict(scratch_path("out.gguf"), of_file) == n);
    double error = 0, power = 0;
    for (int32_t i = 0; i < n; i++) {
        error += (of_directory[i] - of_file[i]) * (of_directory[i] - of_file[i]);
        power += of_directory[i] * of_directory[i];
    }
    CHECK(power > 0 && error < 1e-10 * power);
    tap_note("nmse %g", error / power);
    scratch_remove();
}

int main(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        tap_case_arg(families[i].directory, check_family, (void *)&families[i]);
    return tap_end();
}
