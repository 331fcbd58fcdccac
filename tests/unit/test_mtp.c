/*
 * Guesses by a layer that predicts further tokens: what it computes is what its definition says,
 * texts are the same with and without, and a layer that knows the next tokens is believed.
 *
 * The oracle makes the layer's input in plain arithmetic, of hidden rows that the model gives out as
 * embeddings, and lets a model that consists of this one layer compute the rest. LACE_DEVICE=cuda
 * lets all run on a card.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "engine/guess.h"
#include "named_device.h"
#include "status_check.h"
#include "tap.h"
#include "tensor/codec/unpack.h"
#include "tiny_model.h"

enum { N_EMBD = 16, N_VOCAB = 64, N_TEXT = 45, CONTEXT = 128, MOST_ROWS = 64 };

static const char *const archs[] = {"qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek2"};
enum { N_ARCHS = sizeof archs / sizeof *archs };

static tiny_options options_of(const char *architecture)
{
    tiny_options o = tiny_options_arch(architecture);
    o.n_embd = N_EMBD;
    o.n_ff = 32;
    o.n_vocab = N_VOCAB;
    o.n_context = CONTEXT;
    o.type = DTYPE_F32;
    o.n_predicting = 1;
    return o;
}

static lace_model *open_on(const char *name, const buf *file, bool use_mtp)
{
    lace_model *lm = NULL;
    lace_error err;
    lace_model_options o = lace_model_options_default();
    o.device = name;
    o.use_exact = !name;
    o.use_mtp = use_mtp;
    CHECK(is_ok(lace_model_open_memory(file->data, file->size, "tiny", &o, &lm, &err), &err));
    return lm;
}

static lace_model *open_model(const buf *file, bool use_mtp)
{
    return open_on(getenv("LACE_DEVICE"), file, use_mtp);
}

static lace_session *open_session(lace_model *lm, bool use_mtp, bool wants_hidden)
{
    lace_session *s = NULL;
    lace_error err;
    lace_session_options o = lace_session_options_default();
    o.n_context = CONTEXT;
    o.n_sequences = 3;
    o.n_outputs = o.n_batch = MOST_ROWS;
    o.n_threads = 1;
    o.kv_type = LACE_KV_F32;
    o.use_mtp = use_mtp;
    o.wants_hidden = wants_hidden;
    CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
    return s;
}

static lace_token text_token(int i)
{
    return (lace_token)(3 + (i * 7 + i * i * 5) % (N_VOCAB - 3));
}

/* Tokens [from, to) of the text, `piece` in each call. */
static void eval_text(lace_session *s, int32_t sequence, int from, int to, int piece)
{
    lace_error err;
    for (int at = from; at < to; at += piece) {
        lace_item items[MOST_ROWS];
        size_t n = 0;
        for (int i = at; i < to && i < at + piece; i++)
            items[n++] = (lace_item){text_token(i), sequence, true};
        CHECK(is_ok(lace_session_eval(s, items, n, &err), &err));
    }
}

/* ---- The oracle ------------------------------------------------------------------------------ */

static void read_floats(const weights *files, const char *name, float *out)
{
    const tensor *t = weights_find(files, name);
    if (!CHECK(t != NULL))
        return;
    unpack_row(t->type, t->data, (int64_t)t->n_values, out);
}

static void norm_into(const float *x, const float *scales, double *out)
{
    double sum = 0;
    for (int i = 0; i < N_EMBD; i++)
        sum += (double)x[i] * x[i];
    for (int i = 0; i < N_EMBD; i++)
        out[i] = x[i] / sqrt(sum / N_EMBD + 1e-5) * scales[i];
}

/* What the layer reads: of the token and the hidden row before it. */
static void join(const weights *files, int layer, lace_token token, const float *before, float *out)
{
    static float table[N_VOCAB * N_EMBD], matrix[N_EMBD * 2 * N_EMBD];
    float e[N_EMBD], h[N_EMBD];
    double both[2 * N_EMBD];
    char name[64];
    read_floats(files, "token_embd.weight", table);
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", layer);
    read_floats(files, name, matrix);
    snprintf(name, sizeof name, "blk.%d.nextn.enorm.weight", layer);
    read_floats(files, name, e);
    snprintf(name, sizeof name, "blk.%d.nextn.hnorm.weight", layer);
    read_floats(files, name, h);
    norm_into(table + (size_t)token * N_EMBD, e, both);
    norm_into(before, h, both + N_EMBD);
    for (int row = 0; row < N_EMBD; row++) {
        double sum = 0;
        for (int i = 0; i < 2 * N_EMBD; i++)
            sum += (double)matrix[row * 2 * N_EMBD + i] * both[i];
        out[row] = (float)sum;
    }
}

/* Names of the layer that predicts become those of the only layer. */
static bool new_name(text name, int layer, char out[96])
{
    char block[16];
    int n = snprintf(block, sizeof block, "blk.%d.", layer);
    snprintf(out, 96, "%.*s", text_width(name), name.data);
    if (strcmp(out, "output_norm.weight") == 0)
        return false;
    if (strncmp(out, "blk.", 4) != 0)
        return true;
    if (strncmp(out, block, (size_t)n) != 0)
        return false;
    if (strstr(out, "nextn.shared_head_norm")) {
        snprintf(out, 96, "output_norm.weight");
        return true;
    }
    snprintf(out, 96, "blk.0.%.*s", (int)name.size - n, name.data + n);
    return !strstr(out, "nextn.");
}

/* Values of the model's file, but for those that count its layers. */
static void copy_values(gguf_writer *w, const gguf *g)
{
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        static const char *const others[] = {".block_count", ".nextn_predict_layers",
                                             ".full_attention_interval",
                                             ".leading_dense_block_count"};
        char key[96];
        int64_t number = 1;
        bool is_other = false, is_left_out = false;
        snprintf(key, sizeof key, "%.*s", text_width(v->key), v->key.data);
        for (int k = 0; k < 4; k++)
            if (strstr(key, others[k])) {
                is_other = true;
                is_left_out = k == 1;
                number = k != 3;
            }
        if (!is_other)
            gguf_writer_add_value(w, v, NULL);
        else if (!is_left_out)
            gguf_writer_add_int(w, key, GGUF_U32, number, NULL);
    }
}

/* A model of one layer: the one that predicts. */
static buf make_oracle(const weights *files, int layer)
{
    gguf_writer *w = NULL;
    lace_error err;
    buf out;
    buf_init(&out, 1 << 24);
    CHECK(is_ok(gguf_writer_create(&w, &err), &err));
    copy_values(w, weights_gguf(files));
    for (size_t i = 0; i < weights_count(files); i++) {
        char name[96];
        const tensor *t = weights_at(files, i);
        if (new_name(t->name, layer, name))
            gguf_writer_add_tensor(w, text_of(name), t->type, &t->shape, t->data, NULL);
    }
    CHECK(is_ok(gguf_writer_to_buf(w, &out, &err), &err));
    gguf_writer_free(w);
    return out;
}

/* Rows of the oracle's layer, all at once; out: [n] rows of logits, or of hidden states. */
static void run_oracle(lace_session *s, const float *rows, int n, float *out)
{
    runner *r = s->runner;
    lace_error err;
    lace_item items[MOST_ROWS];
    size_t width = (size_t)runner_width(r);
    for (int i = 0; i < n; i++)
        items[i] = (lace_item){.want_logits = true};
    states_set_length(s->kv, 0, 0);
    CHECK(runner_fill(r, items, (size_t)n) == (size_t)n);
    for (int i = 0; i < n; i++)
        r->tokens[i] = TOKEN_GIVEN;
    r->b.embeddings = rows;
    CHECK(is_ok(runner_reserve(r, &err), &err) && is_ok(runner_run(r, NULL, false, &err), &err));
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)i * width, program_logits(r->program, i), width * sizeof *out);
}

/*
 * Logits behind each token of the text, and behind the guesses that follow it, by definition: row i
 * is made of token i and the hidden row before it, which behind the text is the layer's own.
 */
typedef struct expected {
    float logits[MOST_ROWS][N_VOCAB];
    lace_token guesses[4];
} expected;

static void find_expected(const buf *file, const char *architecture, expected *out)
{
    static float before[MOST_ROWS + 1][N_EMBD], rows[MOST_ROWS][N_EMBD];
    static float hidden[MOST_ROWS][N_EMBD];
    lace_model *lm = open_on(NULL, file, false);
    int layer = lm->m->config.n_layers;
    lace_session *s = open_session(lm, false, true);
    eval_text(s, 0, 0, N_TEXT, N_TEXT);
    memset(before, 0, sizeof before);
    for (int i = 0; i < N_TEXT; i++)
        memcpy(before[i + 1], lace_session_logits(s, (size_t)i), sizeof before[0]);
    buf one = make_oracle(lm->files, layer);
    lace_model *oracle = open_on(NULL, &one, false);
    lace_session *logits = open_session(oracle, false, false);
    lace_session *rows_of = open_session(oracle, false, true);
    for (int i = 0; i < N_TEXT + 4; i++) {
        lace_token token = i < N_TEXT ? text_token(i) : out->guesses[i - N_TEXT];
        if (i > N_TEXT) /* the layer's own row */
            memcpy(before[i], hidden[i - 1], sizeof hidden[0]);
        join(lm->files, layer, token, before[i], rows[i]);
        if (i + 1 < N_TEXT)
            continue;
        run_oracle(logits, rows[0], i + 1, out->logits[0]);
        run_oracle(rows_of, rows[0], i + 1, hidden[0]);
        if (i + 1 - N_TEXT < 4)
            out->guesses[i + 1 - N_TEXT] = best_token(out->logits[i], N_VOCAB);
    }
    lace_session_free(s);
    lace_session_free(logits);
    lace_session_free(rows_of);
    lace_model_close(oracle);
    lace_model_close(lm);
    buf_deinit(&one);
}

/* Cards compute with another order of sums, and some of them with halves. */
static double most_nmse(void)
{
    return getenv("LACE_DEVICE") ? 1e-6 : 1e-10;
}

static double nmse(const float *x, const float *want)
{
    double error = 0, power = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        error += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        power += (double)want[i] * want[i];
    }
    return error / power;
}

/* ---- What it computes ------------------------------------------------------------------------ */

/* Asks what comes behind token i of the text, of which the sequence holds what is before it. */
static const float *ask(lace_session *s, int32_t sequence, int i)
{
    lace_error err;
    predictor_row row = {.sequence = sequence, .position = i, .token = text_token(i)};
    CHECK(is_ok(states_reserve_pages(s->kv, sequence, 1, &err), &err));
    CHECK(is_ok(predictor_ask(s->predictor, &row, 1, &err), &err));
    return predictor_logits(s->predictor, 0);
}

/* The text in pieces, asked between them; then guesses, each behind the one before. */
static void check_steps(lace_model *lm, const expected *want, int piece)
{
    lace_session *s = open_session(lm, true, false);
    double worst = 0;
    for (int at = 0; at < N_TEXT; at += piece) {
        worst = fmax(worst, nmse(ask(s, 1, at), want->logits[at]));
        eval_text(s, 1, at, at + piece < N_TEXT ? at + piece : N_TEXT, piece);
    }
    guess_source source;
    guesses g = guess_none();
    lace_error err;
    lace_token tokens[CONTEXT];
    for (int i = 0; i < N_TEXT; i++)
        tokens[i] = text_token(i);
    tokens[N_TEXT] = want->guesses[0];
    CHECK(is_ok(guess_source_init(&source, lm, NULL, 0, false, 6, &err), &err));
    source.predictor = s->predictor;
    guess_request request = {
        .to = &g, .text = tokens, .n_text = N_TEXT + 1, .most = 8, .sequence = 1};
    CHECK(is_ok(guess_make(&source, &request, 1, &err), &err));
    for (int i = 0; i < g.n; i++)
        CHECK(g.tokens[i] == best_token(want->logits[N_TEXT + i], N_VOCAB));
    CHECK(g.n == 3);
    CHECK(worst < most_nmse());
    tap_note("%s in steps of %d: nmse %g", lm->m->config.architecture, piece, worst);
    guess_source_deinit(&source);
    lace_session_free(s);
}

static void a_layer_predicts_what_its_definition_says(void)
{
    for (int i = 0; i < N_ARCHS; i++) {
        static expected want;
        buf file = tiny_model_bytes(options_of(archs[i]));
        find_expected(&file, archs[i], &want);
        lace_model *lm = open_model(&file, true);
        check_steps(lm, &want, 1);
        check_steps(lm, &want, 7);
        check_steps(lm, &want, N_TEXT);
        lace_model_close(lm);
        buf_deinit(&file);
    }
}

/* What a sequence was before, what it shares and what was taken back leaves no trace. */
static void forks_and_what_is_taken_back_leave_it_right(void)
{
    for (int i = 0; i < N_ARCHS; i++) {
        static expected want;
        lace_error err;
        buf file = tiny_model_bytes(options_of(archs[i]));
        find_expected(&file, archs[i], &want);
        lace_model *lm = open_model(&file, true);
        lace_session *s = open_session(lm, true, false);
        eval_text(s, 0, 0, 40, 9);
        session_mark(s, 0);
        lace_item wrong[] = {{text_token(40), 0, true}, {5, 0, true}, {6, 0, true}};
        bool is_recurrent = s->history != NULL;
        CHECK(is_ok(lace_session_eval(s, wrong, 3, &err), &err));
        CHECK(is_ok(lace_session_truncate(s, 0, 41, &err), &err));
        CHECK(nmse(ask(s, 0, 41), want.logits[41]) < most_nmse());
        CHECK(is_ok(lace_session_fork(s, 0, 2, &err), &err));
        eval_text(s, 0, 41, 43, 1);
        eval_text(s, 2, 41, 44, 3);
        CHECK(nmse(ask(s, 0, 43), want.logits[43]) < most_nmse());
        CHECK(nmse(ask(s, 2, 44), want.logits[44]) < most_nmse());
        CHECK(is_ok(lace_session_truncate(s, 2, 0, &err), &err));
        eval_text(s, 2, 0, 20, 20);
        CHECK(nmse(ask(s, 2, 20), want.logits[20]) < most_nmse());
        tap_note("%s%s", archs[i], is_recurrent ? ", recurrent" : "");
        lace_session_free(s);
        lace_model_close(lm);
        buf_deinit(&file);
    }
}

/* ---- Texts ----------------------------------------------------------------------------------- */

enum { N_PROMPT = 37, N_NEW = 40, MOST_TEXTS = 6 };

typedef struct result {
    lace_token tokens[N_NEW];
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

/* Room for fewer tokens than a few texts have. */
static uint64_t few_bytes(lace_model *lm, const lace_session_options *o)
{
    lace_memory need;
    lace_error err;
    CHECK(is_ok(lace_session_memory(lm, o, &need, &err), &err));
    uint64_t all = (uint64_t)o->n_sequences * CONTEXT * need.token_bytes;
    return need.kv - all + 5 * PAGE_TOKENS * need.token_bytes;
}

/* is_tight: texts give way. Twice: the second time prefixes are known. */
static lace_batcher_stats generate(lace_model *lm, bool use_mtp, int n_texts, float temperature,
                                   bool is_tight, result *out)
{
    lace_batcher *b = NULL;
    lace_generation *g = NULL;
    lace_error err;
    static lace_token prompts[MOST_TEXTS][N_PROMPT];
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_sequences = 8;
    o.session.n_batch = 64;
    o.session.n_threads = 1;
    o.session.kv_type = LACE_KV_F32;
    o.use_mtp = o.session.use_mtp = use_mtp;
    o.guesses_always = true;
    o.session.kv_bytes = is_tight ? few_bytes(lm, &o.session) : 0;
    CHECK(is_ok(lace_batcher_create(lm, &o, &b, &err), &err));
    memset(out, 0, sizeof *out * 2 * MOST_TEXTS);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n_texts; i++) {
            for (int k = 0; k < N_PROMPT; k++)
                prompts[i][k] = k < 34 ? text_token(k) : text_token(k + 3 * i + round);
            lace_generation_options go = lace_generation_options_default();
            go.prompt = prompts[i];
            go.n_prompt = N_PROMPT;
            go.max_tokens = go.min_tokens = N_NEW;
            go.sampler.temperature = temperature;
            go.sampler.top_k = 5;
            go.sampler.seed = 11 + (uint64_t)i;
            go.on_piece = on_piece;
            go.user = &out[round * MOST_TEXTS + i];
            CHECK(is_ok(lace_batcher_add(b, &go, &g, &err), &err));
        }
        while (lace_batcher_step(b))
            continue;
    }
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    lace_batcher_free(b);
    return stats;
}

static void check_same_texts(lace_model *lm, int n_texts, float temperature, bool is_tight)
{
    static result plain[2 * MOST_TEXTS], guessed[2 * MOST_TEXTS];
    lace_batcher_stats a = generate(lm, false, n_texts, temperature, is_tight, plain);
    lace_batcher_stats b = generate(lm, true, n_texts, temperature, is_tight, guessed);
    for (int i = 0; i < 2 * MOST_TEXTS; i++) {
        CHECK(plain[i].n == guessed[i].n && (i % MOST_TEXTS >= n_texts || plain[i].n == N_NEW));
        CHECK(memcmp(plain[i].tokens, guessed[i].tokens, sizeof plain[i].tokens) == 0);
    }
    CHECK(a.n_guessed == 0 && (b.n_guessed > 0 || n_texts > 4));
    CHECK(!is_tight || b.n_preempted > 0);
    tap_note("%s, %d texts, temperature %g: %d guessed, %d right, %d gave way",
             lm->m->config.architecture, n_texts, (double)temperature, (int)b.n_guessed,
             (int)b.n_accepted, (int)b.n_preempted);
}

static void texts_stay_the_same(void)
{
    for (int i = 0; i < N_ARCHS; i++) {
        buf file = tiny_model_bytes(options_of(archs[i]));
        lace_model *lm = open_model(&file, true);
        check_same_texts(lm, 1, 0, false);
        check_same_texts(lm, 1, 1, false);
        check_same_texts(lm, 3, 0, false);
        check_same_texts(lm, 3, 1, false);
        check_same_texts(lm, 6, 1, false);
        check_same_texts(lm, 4, 1, true);
        lace_model_close(lm);
        buf_deinit(&file);
    }
}

/* A device that queues and chooses gives hidden rows out when a batch is collected, no earlier. */
static void texts_stay_the_same_on_a_device_that_works_late(void)
{
    for (int i = 0; i < N_ARCHS; i++) {
        buf file = tiny_model_bytes(options_of(archs[i]));
        lace_model *lm = open_on("ref:1", &file, true);
        check_same_texts(lm, 1, 0, false);
        check_same_texts(lm, 3, 1, false);
        check_same_texts(lm, 4, 1, true);
        lace_model_close(lm);
        buf_deinit(&file);
    }
}

/* Each token says the next one, and the layer knows it: nearly every guess is right. */
static void a_layer_that_knows_is_believed(void)
{
    for (int i = 0; i < N_ARCHS; i++) {
        static result plain[2 * MOST_TEXTS], guessed[2 * MOST_TEXTS];
        tiny_options o = options_of(archs[i]);
        o.is_bigram = true;
        o.seed = 3; /* no text comes to </s>, which must not end it */
        buf file = tiny_model_bytes(o);
        lace_model *lm = open_model(&file, true);
        lace_batcher_stats a = generate(lm, false, 2, 0, false, plain);
        lace_batcher_stats b = generate(lm, true, 2, 0, false, guessed);
        for (int k = 0; k < 2 * MOST_TEXTS; k++)
            CHECK(memcmp(plain[k].tokens, guessed[k].tokens, sizeof plain[k].tokens) == 0);
        CHECK(b.n_accepted == b.n_guessed && b.n_accepted > 2 * 2 * N_NEW / 2);
        CHECK(b.n_steps < a.n_steps / 2);
        tap_note("%s: %d of %d guesses are right, %d steps in place of %d", archs[i],
                 (int)b.n_accepted, (int)b.n_guessed, (int)b.n_steps, (int)a.n_steps);
        lace_model_close(lm);
        buf_deinit(&file);
    }
}

/* The token that a model of bigrams says behind each. */
static void find_next(const buf *file, lace_token *next)
{
    lace_error err;
    lace_model *lm = open_model(file, false);
    lace_session *s = open_session(lm, false, false);
    for (lace_token t = 0; t < N_VOCAB; t++) {
        lace_session_truncate(s, 0, 0, NULL);
        CHECK(is_ok(lace_session_eval(s, &(lace_item){t, 0, true}, 1, &err), &err));
        next[t] = best_token(lace_session_logits(s, 0), N_VOCAB);
    }
    lace_session_free(s);
    lace_model_close(lm);
}

/*
 * A model of bigrams whose layer looks at the hidden row alone: that of the token before. What is
 * said behind that token is the token itself; so the layer has an output matrix of its own, in which
 * the row of each token of a cycle stands at the place of the token behind it. Of the guesses in a row
 * the first is right, once a text has come to a cycle.
 */
static buf make_looking_back(const char *architecture)
{
    static float matrix[N_EMBD * 2 * N_EMBD], head[N_VOCAB][N_EMBD], output[N_VOCAB][N_EMBD];
    float ones[N_EMBD];
    lace_token next[N_VOCAB];
    char name[96];
    gguf_writer *w = NULL;
    lace_error err;
    tiny_options o = options_of(architecture);
    o.is_bigram = true;
    o.seed = 3;
    buf file = tiny_model_bytes(o), out;
    find_next(&file, next);
    lace_model *lm = open_model(&file, false);
    read_floats(lm->files, "output.weight", output[0]);
    memset(head, 0, sizeof head);
    for (lace_token begin = 0; begin < N_VOCAB; begin++) {
        lace_token t = begin;
        for (int i = 0; i < N_VOCAB; i++)
            t = next[t];
        memcpy(head[next[t]], output[t], sizeof head[0]); /* it is in a cycle by now */
    }
    for (int i = 0; i < N_EMBD * 2 * N_EMBD; i++)
        matrix[i] = i % (2 * N_EMBD) == N_EMBD + i / (2 * N_EMBD);
    for (int i = 0; i < N_EMBD; i++)
        ones[i] = 1;
    buf_init(&out, 1 << 24);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(weights_gguf(lm->files)); i++)
        gguf_writer_add_value(w, gguf_value_at(weights_gguf(lm->files), i), NULL);
    for (size_t i = 0; i < weights_count(lm->files); i++) {
        const tensor *x = weights_at(lm->files, i);
        snprintf(name, sizeof name, "%.*s", text_width(x->name), x->name.data);
        const void *data = strstr(name, "nextn.eh_proj") ? (const void *)matrix
                           : strstr(name, "nextn.hnorm") ? (const void *)ones
                                                         : (const void *)x->data;
        gguf_writer_add_tensor(w, x->name, x->type, &x->shape, data, NULL);
    }
    snprintf(name, sizeof name, "blk.%d.nextn.shared_head_head.weight", o.n_layers);
    gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &(shape){2, {N_EMBD, N_VOCAB, 1, 1}}, head,
                           NULL);
    snprintf(name, sizeof name, "blk.%d.nextn.shared_head_norm.weight", o.n_layers);
    gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &(shape){1, {N_EMBD, 1, 1, 1}}, ones, NULL);
    CHECK(is_ok(gguf_writer_to_buf(w, &out, &err), &err));
    gguf_writer_free(w);
    lace_model_close(lm);
    buf_deinit(&file);
    return out;
}

/* In texts of the batcher the layer sees the hidden rows; also of several, and when they give way. */
static void check_hidden_rows(const char *on)
{
    for (int i = 0; i < N_ARCHS; i++) {
        static result guessed[2 * MOST_TEXTS];
        buf file = make_looking_back(archs[i]);
        lace_model *lm = open_on(on, &file, true);
        for (int n_texts = 1; n_texts <= 4; n_texts += 3) {
            lace_batcher_stats b = generate(lm, true, n_texts, 0, n_texts == 4, guessed);
            CHECK(3 * b.n_accepted > b.n_guessed && b.n_accepted > (uint64_t)(10 * n_texts));
            tap_note("%s, %d texts: %d of %d guesses are right", archs[i], n_texts,
                     (int)b.n_accepted, (int)b.n_guessed);
        }
        lace_model_close(lm);
        buf_deinit(&file);
    }
}

static void it_sees_the_hidden_rows_of_texts(void)
{
    check_hidden_rows(getenv("LACE_DEVICE"));
}

static void it_sees_them_on_a_device_that_works_late(void)
{
    check_hidden_rows("ref:1");
}

/* A speculator, for callers who choose by themselves. */
static void speculators_guess_with_it(void)
{
    tiny_options o = options_of("qwen3next");
    lace_error err;
    o.is_bigram = true;
    o.seed = 3;
    buf file = tiny_model_bytes(o);
    lace_model *lm = open_model(&file, true);
    lace_session *s = open_session(lm, true, false), *other = open_session(lm, false, false);
    lace_speculator *sp = NULL;
    lace_speculator_options so = lace_speculator_options_default();
    lace_token tokens[N_TEXT];
    so.use_mtp = true;
    CHECK(lace_speculator_create(other, 0, &so, &sp, &err) == LACE_E_ARG);
    CHECK(is_ok(lace_speculator_create(s, 1, &so, &sp, &err), &err));
    for (int i = 0; i < N_TEXT; i++)
        tokens[i] = text_token(i);
    eval_text(s, 1, 0, N_TEXT, N_TEXT);
    eval_text(other, 1, 0, N_TEXT, N_TEXT);
    CHECK(is_ok(lace_speculator_begin(sp, tokens, N_TEXT, &err), &err));
    const float *want = lace_session_logits(other, N_TEXT - 1);
    for (int i = 0; i < 40; i++) {
        lace_token best = best_token(want, N_VOCAB);
        lace_token token = i % 9 == 5 ? 7 : best; /* now and then another one than was guessed */
        CHECK(best_token(lace_speculator_logits(sp), N_VOCAB) == best);
        CHECK(is_ok(lace_speculator_push(sp, token, &err), &err));
        CHECK(is_ok(lace_session_eval(other, &(lace_item){token, 1, true}, 1, &err), &err));
        want = lace_session_logits(other, 0);
    }
    lace_speculation count;
    lace_speculator_count(sp, &count);
    CHECK(count.n_accepted > 20 && count.n_accepted < count.n_guessed);
    lace_speculator_free(sp);
    lace_session_free(s);
    lace_session_free(other);
    lace_model_close(lm);
    buf_deinit(&file);
}

/* ---- What is not there ----------------------------------------------------------------------- */

static lace_status try_open(tiny_options o, lace_error *err)
{
    buf file = tiny_model_bytes(o);
    lace_model *lm = NULL;
    lace_model_options mo = lace_model_options_default();
    mo.use_mtp = true;
    lace_status status = lace_model_open_memory(file.data, file.size, "tiny", &mo, &lm, err);
    lace_model_close(lm);
    buf_deinit(&file);
    return status;
}

static void models_without_such_a_layer_say_so(void)
{
    lace_error err;
    tiny_options o = options_of("glm4moe");
    o.n_predicting = 0;
    CHECK(try_open(o, &err) == LACE_E_UNSUPPORTED && strstr(err.text, "no layer that predicts"));
    CHECK(try_open(tiny_options_default(), &err) == LACE_E_UNSUPPORTED);
    buf file = tiny_model_bytes(options_of("glm4moe"));
    lace_model *lm = open_model(&file, false);
    lace_session *s = NULL;
    lace_session_options so = lace_session_options_default();
    so.use_mtp = true;
    CHECK(lace_session_create(lm, &so, &s, &err) == LACE_E_ARG && strstr(err.text, "use_mtp"));
    lace_model_close(lm);
    buf_deinit(&file);
}

/* The file with a tensor of the layer left out, or in another shape. */
static void check_bad(const char *tensor_name, bool is_gone, lace_status status, const char *says)
{
    buf file = tiny_model_bytes(options_of("deepseek2")), out;
    lace_model *good = open_model(&file, false), *lm = NULL;
    gguf_writer *w = NULL;
    lace_error err;
    buf_init(&out, 1 << 24);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(weights_gguf(good->files)); i++)
        gguf_writer_add_value(w, gguf_value_at(weights_gguf(good->files), i), NULL);
    for (size_t i = 0; i < weights_count(good->files); i++) {
        const tensor *t = weights_at(good->files, i);
        bool is_it = text_equals(t->name, text_of(tensor_name));
        shape s = t->shape;
        s.dims[0] /= is_it ? 2 : 1;
        if (!is_it || !is_gone)
            gguf_writer_add_tensor(w, t->name, t->type, &s, t->data, NULL);
    }
    CHECK(is_ok(gguf_writer_to_buf(w, &out, &err), &err));
    gguf_writer_free(w);
    lace_model_options mo = lace_model_options_default();
    mo.use_mtp = true;
    if (!CHECK(lace_model_open_memory(out.data, out.size, "bad", &mo, &lm, &err) == status) ||
        !CHECK(strstr(err.text, says) != NULL))
        tap_note("%s: %s", tensor_name, err.text);
    lace_model_close(lm);
    mo.use_mtp = false; /* it does not matter to who does not use it */
    CHECK(is_ok(lace_model_open_memory(out.data, out.size, "bad", &mo, &lm, &err), &err));
    lace_model_close(lm);
    lace_model_close(good);
    buf_deinit(&file);
    buf_deinit(&out);
}

static void bad_layers_are_refused_where_they_are_used(void)
{
    static const char *const names[] = {"enorm", "hnorm", "shared_head_norm", "eh_proj"};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.2.nextn.%s.weight", names[i]);
        check_bad(name, false, LACE_E_SHAPE, name);
        if (i < 2)
            check_bad(name, true, LACE_E_META, name);
    }
    check_bad("blk.2.nextn.eh_proj.weight", true, LACE_E_UNSUPPORTED, "left out of the file");
    check_bad("blk.2.attn_kv_a_mqa.weight", true, LACE_E_META, "blk.2.attn_kv_a_mqa.weight");
    check_bad("blk.2.ffn_up_exps.weight", false, LACE_E_SHAPE, "blk.2.ffn_up_exps.weight");
}

/* ---- The program ----------------------------------------------------------------------------- */

#define RUN "run $dir/mtp.gguf -p the -n 30 --temp 0 --raw --ignore-eos -t 1 "

static void the_program_guesses_with_it(void)
{
    static char expected_text[sizeof ran.out];
    tiny_options o = options_of("glm4moe");
    o.n_vocab = 320;
    o.is_bigram = true;
    o.seed = 3;
    buf file = tiny_model_bytes(o);
    CHECK(command_write("mtp.gguf", file.data, file.size));
    command_run("inspect $dir/mtp.gguf");
    CHECK(command_check_success() && strstr(ran.out, "predicting    1 layer"));
    command_run(RUN);
    CHECK(command_check_success() && !strstr(ran.err, "guesses right"));
    memcpy(expected_text, ran.out, sizeof expected_text);
    command_run(RUN "--mtp --n-draft 4");
    CHECK(command_check_success() && strcmp(ran.out, expected_text) == 0);
    CHECK(strstr(ran.err, "guesses right (100 %)") != NULL);
    command_run("run models/tales-4m.gguf -p the --mtp");
    command_check_error("no layer that predicts further tokens");
    command_run(RUN "--spec-type draft-mtp");
    command_check_error("use --mtp");
    buf_deinit(&file);
}

/* The layer's weights stay when a model is pruned, and follow when it is quantized. */
static void smaller_models_keep_it(void)
{
    weights *before = NULL, *after = NULL;
    lace_error err;
    command_run("prune $dir/mtp.gguf $dir/pruned.gguf --sparsity 0.5 --method magnitude");
    CHECK(command_check_success());
    char path[256];
    snprintf(path, sizeof path, "%s", command_path("mtp.gguf"));
    CHECK(is_ok(weights_open(path, &before, &err), &err));
    CHECK(is_ok(weights_open(command_path("pruned.gguf"), &after, &err), &err));
    for (size_t i = 0; before && after && i < weights_count(before); i++) {
        const tensor *a = weights_at(before, i);
        char name[96];
        snprintf(name, sizeof name, "%.*s", text_width(a->name), a->name.data);
        const tensor *b = weights_find(after, name);
        bool is_same = b && a->n_bytes == b->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0;
        CHECK(is_same || strncmp(name, "blk.2.", 6) != 0);
        CHECK(!is_same || strcmp(name, "blk.1.attn_q.weight") != 0);
    }
    weights_close(before);
    weights_close(after);
    command_run("quantize $dir/mtp.gguf $dir/small.gguf q8_0");
    CHECK(command_check_success());
    command_run("run $dir/small.gguf -p the -n 30 --temp 0 --raw --ignore-eos -t 1 --mtp");
    CHECK(command_check_success() && strstr(ran.err, "guesses right (") != NULL);
}

int main(void)
{
    if (!named_device_opens())
        return tap_end();
    if (!command_begin())
        return 1;
    CASE(a_layer_predicts_what_its_definition_says);
    CASE(forks_and_what_is_taken_back_leave_it_right);
    CASE(texts_stay_the_same);
    CASE(texts_stay_the_same_on_a_device_that_works_late);
    CASE(a_layer_that_knows_is_believed);
    CASE(it_sees_the_hidden_rows_of_texts);
    CASE(it_sees_them_on_a_device_that_works_late);
    CASE(speculators_guess_with_it);
    CASE(models_without_such_a_layer_say_so);
    CASE(bad_layers_are_refused_where_they_are_used);
    CASE(the_program_guesses_with_it);
    CASE(smaller_models_keep_it);
    command_end();
    return tap_end();
}
