/*
 * Models in every type on a card (LACE_DEVICE=cuda): their logits are those of the reference device,
 * whether tokens come one by one, a few at a time, or all at once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/quantize.h"
#include "lace.h"
#include "named_device.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_TOKENS = 40, CONTEXT = 320 };

static const char *card; /* the device; NULL: none */

/*
 * Mean squared error, by the mean square of the logits. Of a token alone activations are rounded to 15
 * bits, in blocks of 16 columns, or of 256 for lace's own types; with several rows, and in caches, to
 * f16. What is computed wrongly is off by 1e-2 and more.
 */
static const double max_nmse = 1e-4;

static lace_model *open_model(const buf *file, const char *device, bool fast_prompts)
{
    lace_model *m = NULL;
    lace_error err;
    lace_model_options o = lace_model_options_default();
    o.device = device;
    o.fast_prompts = fast_prompts;
    CHECK(is_ok(lace_model_open_memory(file->data, file->size, "tiny", &o, &m, &err), &err));
    return m;
}

/* Logits of n tokens, so many in a step; [n][n_vocab]. NULL: the check has failed. */
static float *logits_of(const buf *file, const char *device, bool fast_prompts, int n, int in_step,
                        int *n_vocab)
{
    lace_error err;
    lace_model *m = open_model(file, device, fast_prompts);
    lace_model_info info;
    lace_session *s = NULL;
    lace_session_options o = lace_session_options_default();
    float *out = NULL;
    if (!m)
        return NULL;
    lace_model_describe(m, &info);
    *n_vocab = info.n_vocab;
    o.n_context = o.n_batch = o.n_outputs = CONTEXT;
    o.n_threads = 2;
    bool done = CHECK(is_ok(lace_session_create(m, &o, &s, &err), &err));
    out = done ? malloc((size_t)n * (size_t)info.n_vocab * sizeof *out) : NULL;
    for (int i = 0; done && i < n; i += in_step) {
        lace_item items[CONTEXT];
        const int n_items = i + in_step < n ? in_step : n - i;
        for (int k = 0; k < n_items; k++)
            items[k] =
                (lace_item){.token = 3 + (i + k) * 7 % (info.n_vocab - 3), .want_logits = true};
        done = CHECK(is_ok(lace_session_eval(s, items, n_items, &err), &err));
        for (int k = 0; done && k < n_items; k++)
            memcpy(out + (size_t)(i + k) * (size_t)info.n_vocab, lace_session_logits(s, k),
                   (size_t)info.n_vocab * sizeof *out);
    }
    lace_session_free(s);
    lace_model_close(m);
    return out;
}

static double nmse_of(const float *is, const float *should, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += pow((double)is[i] - (double)should[i], 2);
        all += pow((double)should[i], 2);
    }
    return off / all;
}

/* Rows of 256, so that all types fit; a mixture if there are experts. */
static buf make_model(const char *architecture, const char *type)
{
    tiny_options o = tiny_options_default();
    o.architecture = architecture;
    o.n_embd = o.n_ff = 256;
    o.n_heads = 4;
    o.n_kv_heads = 2;
    o.n_context = CONTEXT;
    o.type = DTYPE_F32;
    quantize_options q = quantize_options_default();
    q.mix = mix_find(type);
    q.n_threads = 2;
    gguf_writer *w = NULL;
    buf out;
    lace_error err;
    buf_init(&out, (size_t)1 << 24);
    CHECK(scratch_create() != NULL);
    if (CHECK(q.mix) && CHECK(is_ok(tiny_model_create(&o, &w, &err), &err)) &&
        CHECK(is_ok(gguf_writer_to_file(w, scratch_path("in"), NULL, NULL, &err), &err)))
        CHECK(is_ok(quantize_to_buf(scratch_path("in"), &out, &q, NULL, &err), &err));
    gguf_writer_free(w);
    scratch_remove();
    return out;
}

static void check_model(const char *architecture, const char *type)
{
    static const int in_step[] = {1, 5, N_TOKENS};
    int n_vocab = 0;
    buf file = make_model(architecture, type);
    float *should = logits_of(&file, "ref", false, N_TOKENS, N_TOKENS, &n_vocab);
    for (int i = 0; should && i < 3; i++) {
        float *is = logits_of(&file, card, false, N_TOKENS, in_step[i], &n_vocab);
        const double nmse = is ? nmse_of(is, should, (size_t)N_TOKENS * (size_t)n_vocab) : NAN;
        const bool is_right = CHECK(nmse <= max_nmse);
        if (!is_right || getenv("LACE_VERBOSE"))
            tap_note("%s in %s, %d at once: NMSE %.2g", architecture, type, in_step[i], nmse);
        free(is);
    }
    free(should);
    buf_deinit(&file);
}

/* ---- The cases ------------------------------------------------------------------------------- */

static void models_of_every_type_are_right(void)
{
    static const char *const types[] = {"q8_0", "q6_k", "q5_k_m", "q5_1",   "q5_0",  "q4_k_m",
                                        "q4_1", "q4_0", "iq4_nl", "iq4_xs", "mxfp4", "q3_k_m",
                                        "q2_k", "s8",   "s6",     "s5",     "s4",    "s3",
                                        "s2",   "t4",   "t3"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_model("llama", types[i]);
}

static void mixtures_are_right(void)
{
    static const char *const types[] = {"q8_0", "q4_k_m", "mxfp4", "s4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_model("qwen3moe", types[i]);
}

/*
 * Rows of more than 128 are computed in bytes, and the reference device rounds in the same way. But
 * what is rounded differs by a little (f16 in attention), and what lies between two bytes becomes the
 * other one: that is less than what bytes cost at all.
 */
static void prompts_in_bytes_are_right(void)
{
    static const char *const types[] = {"q8_0", "q6_k", "q4_k_m", "s4"};
    enum { N = 200 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int n_vocab = 0;
        buf file = make_model("llama", types[i]);
        float *should = logits_of(&file, "ref", true, N, N, &n_vocab);
        float *plain = logits_of(&file, "ref", false, N, N, &n_vocab);
        float *is = logits_of(&file, card, true, N, N, &n_vocab);
        const size_t n = (size_t)N * (size_t)n_vocab;
        const double nmse = should && is ? nmse_of(is, should, n) : NAN;
        const double rounding = should && plain ? nmse_of(plain, should, n) : NAN;
        if (!CHECK(nmse <= 0.3 * rounding) || getenv("LACE_VERBOSE"))
            tap_note("%s: NMSE %.2g; without bytes %.2g", types[i], nmse, rounding);
        free(should);
        free(plain);
        free(is);
        buf_deinit(&file);
    }
}

static void no_card_is_named(void)
{
    tap_skip("LACE_DEVICE names no card");
}

int main(void)
{
    card = getenv("LACE_DEVICE");
    if (!card || strncmp(card, "cuda", 4) != 0) {
        CASE(no_card_is_named);
        return tap_end();
    }
    if (!named_device_opens())
        return tap_end();
    CASE(models_of_every_type_are_right);
    CASE(mixtures_are_right);
    CASE(prompts_in_bytes_are_right);
    return tap_end();
}
