/*
 * Rows of a batch on the CPU: up to as many tokens as a program says, what is computed of one is the
 * same to the bit, whatever else is in the batch. That is what --deterministic stands on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "engine/engine.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_TOKENS = 96, N_SEQUENCES = 3, N_CONTEXT = 128 };

static lace_session *start(lace_model *lm, lace_kv_type kv)
{
    lace_session *s = NULL;
    lace_error err = {0};
    lace_session_options o = lace_session_options_default();
    o.n_context = N_CONTEXT;
    o.n_sequences = N_SEQUENCES;
    o.n_outputs = o.n_batch = 48;
    o.n_threads = 2;
    o.kv_type = kv;
    CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
    return s;
}

/* Another text in each sequence. */
static lace_token token_at(const lace_model *lm, int32_t sequence, int32_t i)
{
    return (lace_token)((7 + 31 * i + 17 * sequence * i + i * i / 3) % lm->n_vocab);
}

/* Logits of all tokens of a sequence, each computed in a batch of its own. */
static float *compute_alone(lace_model *lm, lace_kv_type kv, int32_t sequence)
{
    size_t n_vocab = (size_t)lm->n_vocab;
    float *out = calloc(N_TOKENS * n_vocab, sizeof *out);
    lace_session *s = start(lm, kv);
    for (int32_t i = 0; s && i < N_TOKENS; i++) {
        lace_error err;
        lace_item item = {
            .token = token_at(lm, sequence, i), .sequence = sequence, .want_logits = true};
        CHECK(is_ok(lace_session_eval(s, &item, 1, &err), &err));
        memcpy(out + (size_t)i * n_vocab, lace_session_logits(s, 0), n_vocab * sizeof *out);
    }
    lace_session_free(s);
    return out;
}

/* Batches of ever other shapes. Returns how many rows had other bits than alone. */
static int compare(lace_model *lm, lace_kv_type kv, float *const alone[N_SEQUENCES])
{
    size_t n_vocab = (size_t)lm->n_vocab;
    lace_session *s = start(lm, kv);
    int32_t done[N_SEQUENCES] = {0}, n_wrong = 0, same = s ? s->runner->program->same_tokens : 0;
    uint32_t random = 1;
    CHECK(same >= 1);
    for (; s && done[0] + done[1] + done[2] < N_SEQUENCES * N_TOKENS;) {
        lace_item items[48];
        int32_t rows[48][2], n = 0, most = same < 48 ? same : 48;
        lace_error err;
        for (int32_t q = 0; q < N_SEQUENCES; q++) {
            random = random * 1664525 + 1013904223;
            int32_t want = (int32_t)(random >> 16) % (q == 0 ? 20 : 5);
            for (; want > 0 && n < most && done[q] < N_TOKENS; want--, n++) {
                rows[n][0] = q;
                rows[n][1] = done[q]++;
                items[n] = (lace_item){
                    .token = token_at(lm, q, rows[n][1]), .sequence = q, .want_logits = true};
            }
        }
        if (!CHECK(is_ok(lace_session_eval(s, items, (size_t)n, &err), &err)))
            break;
        for (int32_t i = 0; i < n; i++)
            n_wrong += memcmp(lace_session_logits(s, (size_t)i),
                              alone[rows[i][0]] + (size_t)rows[i][1] * n_vocab,
                              n_vocab * sizeof(float)) != 0;
    }
    lace_session_free(s);
    return n_wrong;
}

static int32_t check(lace_model *lm, const char *name, lace_kv_type kv)
{
    float *alone[N_SEQUENCES];
    for (int32_t q = 0; q < N_SEQUENCES; q++)
        alone[q] = compute_alone(lm, kv, q);
    int n_wrong = compare(lm, kv, alone);
    if (!CHECK(n_wrong == 0))
        tap_note("%s: %d rows differ", name, n_wrong);
    for (int32_t q = 0; q < N_SEQUENCES; q++)
        free(alone[q]);
    lace_session *s = start(lm, kv);
    int32_t same = s ? s->runner->program->same_tokens : 0;
    lace_session_free(s);
    return same;
}

static void check_path(const char *folder, const char *name, lace_kv_type kv)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *at = data_path(path);
    lace_model *lm = NULL;
    lace_error err = {0};
    lace_model_info info = {0};
    if (at && lace_model_open(at, NULL, &lm, &err) == LACE_OK)
        lace_model_describe(lm, &info);
    if (lm && !info.is_encoder)
        tap_note("%s: up to %d tokens", name, check(lm, name, kv));
    lace_model_close(lm);
    free(at);
}

static void golden_models(void)
{
    const char **names = NULL;
    size_t n = data_names("golden", &names);
    for (size_t i = 0; i < n; i++)
        check_path("golden", names[i], LACE_KV_F16);
    free(names);
    n = data_names("golden2", &names);
    for (size_t i = 0; i < n; i++)
        check_path("golden2", names[i], LACE_KV_F16);
    free(names);
}

/* A model with heads of 64, and caches of all types. */
static void caches_of_all_types(void)
{
    static const lace_kv_type types[] = {LACE_KV_F32, LACE_KV_F16, LACE_KV_Q8_0, LACE_KV_Q5_0,
                                         LACE_KV_IQ4_NL};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        check_path("models", "tales-4m-f16.gguf", types[i]);
}

int main(void)
{
    CASE(caches_of_all_types);
    CASE(golden_models);
    return tap_end();
}
