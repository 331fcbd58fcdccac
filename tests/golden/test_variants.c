/*
 * Models of other shapes than those that are released: heads of 24 and 40 values, 3 of 5 experts,
 * layers of one kind alone, windows at other distances. Each file of tests/data/variants has a
 * config.json, the tensors and some rows of logits, which a program of its own computed with doubles
 * (tests/data/README.md). Weights are not stored but drawn, by the same generator as there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "compress/convert.h"
#include "data.h"
#include "golden_file.h"
#include "lace.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_hf.h"

enum { N_TOKENS = 70, MAX_BYTES = 8 << 20 }; /* of a variant */

typedef struct subject {
    const json_t *variant;
    const char *path;   /* of the directory or file */
    const char *device; /* NULL: the CPU */
    int32_t n_batch;
} subject;

/* ---- Weights --------------------------------------------------------------------------------- */

/* FNV-1a. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

/* splitmix64: number i of the tensor, from 0 to below 1. */
static double draw(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 40) / (1 << 24);
}

/* A float whose lower half is 0, as in files of bfloat16. */
static float shorten(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x8000) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* `spec` is the middle of the values, how far they lie from it, and the shape. */
static void add_tensor(st_file *f, const char *name, const json_t *spec)
{
    double middle = json_number_value(json_array_get(spec, 0));
    double range = json_number_value(json_array_get(spec, 1));
    size_t n = 1, at = 1;
    char dims[96] = "[";
    for (size_t i = 2; i < json_array_size(spec); i++) {
        size_t dim = (size_t)json_integer_value(json_array_get(spec, i));
        n *= dim;
        at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%zu", i > 2 ? ", " : "", dim);
    }
    snprintf(dims + at, sizeof dims - at, "]");
    float *values = calloc(n, sizeof *values);
    uint64_t seed = hash_name(name);
    for (size_t i = 0; i < n; i++)
        values[i] = shorten((float)(middle + range * (2 * draw(seed, i) - 1)));
    st_add(f, name, "F32", dims, values, n * sizeof *values);
    free(values);
}

static bool write_directory(const json_t *variant)
{
    json_t *tensors = json_object_get(variant, "tensors");
    char *config = json_dumps(json_object_get(variant, "config"), 0);
    const char *name;
    json_t *spec;
    buf whole;
    st_file f;
    buf_init(&whole, MAX_BYTES);
    st_begin(&f);
    json_object_foreach(tensors, name, spec)
    {
        add_tensor(&f, name, spec);
    }
    st_end(&f, &whole);
    bool ok = scratch_write("config.json", config) && tiny_hf_write("model.safetensors", &whole);
    buf_deinit(&whole);
    free(config);
    return ok;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static void check_rows(const subject *s, lace_session *session, int32_t n_vocab)
{
    const json_t *rows = json_object_get(s->variant, "logits");
    const char *number;
    json_t *row;
    json_object_foreach((json_t *)rows, number, row)
    {
        float expected[64] = {0};
        const float *found = lace_session_logits(session, (size_t)atoi(number));
        for (int32_t i = 0; i < n_vocab; i++)
            expected[i] = (float)json_number_value(json_array_get(row, (size_t)i));
        double error = found ? nmse(found, expected, (size_t)n_vocab) : 1;
        if (!CHECK(error <= 1e-9))
            tap_note("logits of token %s: nmse %g", number, error);
    }
}

static void check_logits(void *arg)
{
    const subject *s = arg;
    lace_model_options mo = lace_model_options_default();
    lace_session_options o = lace_session_options_default();
    lace_model *model = NULL;
    lace_session *session = NULL;
    lace_model_info info = {0};
    lace_item items[N_TOKENS];
    lace_error err = {0};
    mo.device = s->device;
    o.n_context = o.n_outputs = N_TOKENS;
    o.n_batch = s->n_batch;
    o.n_threads = 2;
    o.kv_type = LACE_KV_F32;
    bool ok = lace_model_open(s->path, &mo, &model, &err) == LACE_OK &&
              lace_session_create(model, &o, &session, &err) == LACE_OK;
    if (ok) {
        lace_model_describe(model, &info);
        for (int32_t i = 0; i < N_TOKENS; i++)
            items[i] = (lace_item){(5 * i * i + 7 * i + 3) % info.n_vocab, 0, true};
        ok = lace_session_eval(session, items, N_TOKENS, &err) == LACE_OK;
    }
    if (!CHECK(ok))
        tap_note("%s", err.text);
    else
        check_rows(s, session, info.n_vocab);
    lace_session_free(session);
    lace_model_close(model);
}

static void run(const char *name, const char *how, subject s)
{
    char title[160];
    snprintf(title, sizeof title, "%s: %s", name, how);
    tap_case_arg(title, check_logits, &s);
}

static void failed(void *arg)
{
    tap_note("%s", (const char *)arg);
    CHECK(!"it is converted, or refused");
}

/* What a GGUF file cannot say is refused. */
static void check_converted(const char *name, const json_t *variant, const char *directory)
{
    lace_error err = {0};
    convert_options o = convert_options_default();
    o.no_vocab = true;
    lace_status status = convert_directory(directory, scratch_path("made.gguf"), &o, NULL, &err);
    if (status == LACE_OK)
        run(name, "converted", (subject){variant, scratch_path("made.gguf"), NULL, N_TOKENS});
    else if (status == LACE_E_UNSUPPORTED)
        tap_note("%s is not converted: %s", name, err.text);
    else
        tap_case_arg(name, failed, err.text);
}

static void check_variant(const char *name)
{
    char relative[160];
    snprintf(relative, sizeof relative, "variants/%s", name);
    char *path = data_path(relative);
    json_error_t problem;
    json_t *variant = path ? json_load_file(path, 0, &problem) : NULL;
    const char *directory = scratch_create();
    if (variant && directory && write_directory(variant)) {
        run(name, "in one batch", (subject){variant, directory, NULL, N_TOKENS});
        run(name, "in batches of 7", (subject){variant, directory, NULL, 7});
        run(name, "token by token", (subject){variant, directory, NULL, 1});
        run(name, "by the plain kernels", (subject){variant, directory, "ref", N_TOKENS});
        check_converted(name, variant, directory);
    } else {
        tap_case_arg(name, failed, "it cannot be read");
    }
    scratch_remove();
    json_decref(variant);
    free(path);
}

static void there_are_enough(void *arg)
{
    CHECK(*(const size_t *)arg >= 23);
}

int main(void)
{
    const char **names;
    size_t n = data_names("variants", &names);
    for (size_t i = 0; i < n; i++)
        check_variant(names[i]);
    free(names);
    tap_case_arg("there_are_enough_variants", there_are_enough, &n);
    return tap_end();
}
