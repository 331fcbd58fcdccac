/*
 * Guesses with recurrent layers: wrong ones are taken back to the state before them, not to an
 * earlier page or the beginning. The layers are those of llama, which are said to have recurrent
 * state as well.
 */
#include <string.h>

#include "engine/engine.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_PROMPT = 40, N_NEW = 48, CONTEXT = 128 };

static void make_recurrent(const model_config *c, int32_t layer, layer_state *out)
{
    out->kind |= STATE_RECURRENT;
    out->n_bytes = 64;
}

/* Tokens that the model has computed. */
static const backend *real;
static int64_t n_computed;

static lace_status count_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                             lace_error *err)
{
    n_computed += b->n_tokens;
    return real->run(p, b, rules, is_traced, err);
}

typedef struct result {
    lace_token tokens[N_NEW + 1];
    int n;
    lace_generation_stats stats;
} result;

static void on_piece(void *user, const lace_piece *p)
{
    result *r = user;
    if (p->token >= 0 && r->n < N_NEW)
        r->tokens[r->n++] = p->token;
    r->stats = *p->stats;
}

static void generate(lace_model *lm, lace_model *draft, bool use_lookup, uint64_t seed, result *out)
{
    lace_batcher *b = NULL;
    lace_generation *g = NULL;
    lace_error err;
    lace_token prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = 5 + i % 7;
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_sequences = 2;
    o.session.n_batch = 64;
    o.session.n_threads = 1;
    o.session.kv_type = LACE_KV_F32;
    o.use_lookup = use_lookup;
    o.guesses_always = true;
    o.draft = draft;
    CHECK(is_ok(lace_batcher_create(lm, &o, &b, &err), &err));
    lace_generation_options go = lace_generation_options_default();
    go.prompt = prompt;
    go.n_prompt = N_PROMPT;
    go.max_tokens = N_NEW;
    go.min_tokens = N_NEW;
    go.sampler.temperature = 1;
    go.sampler.top_k = 3;
    go.sampler.seed = seed;
    go.on_piece = on_piece;
    go.user = out;
    *out = (result){0};
    n_computed = 0;
    CHECK(is_ok(lace_batcher_add(b, &go, &g, &err), &err));
    while (lace_batcher_step(b))
        continue;
    lace_batcher_free(b);
}

static void check_guesses(bool use_draft)
{
    buf file = tiny_model_bytes(tiny_options_default());
    lace_model *lm = NULL;
    lace_error err;
    lace_model_options mo = lace_model_options_default();
    mo.use_exact = true;
    CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", &mo, &lm, &err), &err));
    arch recurrent = *lm->m->arch;
    recurrent.state = make_recurrent;
    lm->m->arch = &recurrent;
    real = lm->m->device->backend;
    backend counting = *real;
    counting.run = count_run;
    lm->m->device->backend = &counting;
    int n_wrong = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        static result plain, guessed;
        generate(lm, NULL, false, seed, &plain);
        generate(lm, use_draft ? lm : NULL, !use_draft, seed, &guessed);
        CHECK(plain.n == N_NEW && guessed.n == N_NEW);
        CHECK(memcmp(plain.tokens, guessed.tokens, sizeof plain.tokens) == 0);
        n_wrong += guessed.stats.n_guessed - guessed.stats.n_accepted;
        /* Every token, every guess, and again what was right since the state that is gone back to;
         * a draft reads and guesses once more. */
        int64_t most = N_PROMPT + N_NEW + 3 * guessed.stats.n_guessed;
        CHECK(n_computed <= (use_draft ? 2 : 1) * most);
        tap_note("%d tokens computed, %d guessed, %d right", (int)n_computed,
                 guessed.stats.n_guessed, guessed.stats.n_accepted);
    }
    CHECK(n_wrong > 20);
    lace_model_close(lm);
    buf_deinit(&file);
}

static void the_text_goes_back_to_the_state_before_its_guesses(void)
{
    check_guesses(false);
}

static void so_does_a_draft(void)
{
    check_guesses(true);
}

int main(void)
{
    CASE(the_text_goes_back_to_the_state_before_its_guesses);
    CASE(so_does_a_draft);
    return tap_end();
}
