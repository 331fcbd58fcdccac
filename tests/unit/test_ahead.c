/*
 * The batcher with a device that works ahead, which the CPU plays here: this program has the
 * functions of engine/ahead.c, so that the library's are not linked. Every text must be the one that
 * comes without such a played.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "engine/ahead.h"
#include "tap.h"

enum { N_TEXTS = 3, N_NEW = 40, CONTEXT = 96, AHEAD = 8 };

/* ---- The device ------------------------------------------------------------------------------ */

static struct {
    bool is_there;
    int refuses_at, fails_at; /* of the words that are asked for; 0: never */
    int n_asked, n_given;
    int32_t words[AHEAD_MOST];
    lace_token newest;
    choice_rule rule; /* the best, behind these edits */
    int n_edited;     /* times that it was told to edit */
} played;

bool session_rule(const lace_sampler *sampler, choice_rule *out)
{
    sampler_rule rule = {.temperature = 0};
    if (sampler && !sampler_describe(sampler, &rule))
        return false;
    *out = (choice_rule){.temperature = rule.temperature};
    return true;
}

bool ahead_is_possible(const lace_session *s)
{
    return s && played.is_there;
}

bool ahead_is_hosts_turn(ahead *a)
{
    return a->n_by_host > 0 && a->n_by_host-- > 0;
}

lace_status ahead_begin(ahead *a, lace_token token, const choice_rule *rule, int32_t n,
                        lace_error *err)
{
    (void)err;
    CHECK(!a->is_under_way && n > 0 && n <= AHEAD_MOST && (!rule || rule->temperature == 0));
    played.rule = rule ? *rule : (choice_rule){.temperature = 0};
    played.n_edited += rule != NULL;
    a->is_under_way = true;
    a->length = lace_session_length(a->session, a->sequence);
    a->n_most = n;
    a->n_queued = a->n_taken = 0;
    played.newest = token;
    return LACE_OK;
}

void ahead_hold(ahead *a)
{
    a->n_most = a->n_queued;
}

bool ahead_is_spent(const ahead *a)
{
    return a->n_taken == a->n_most;
}

/* By the rule. */
static lace_token best_of(const lace_session *s)
{
    static float edited[1 << 16];
    size_t n = (size_t)s->model->n_vocab;
    CHECK(n <= sizeof edited / sizeof *edited);
    memcpy(edited, lace_session_logits(s, 0), n * sizeof *edited);
    for (int32_t i = 0; i < played.rule.n_edits; i++)
        edited[played.rule.edits[i].token] += played.rule.edits[i].bias;
    return best_token(edited, (int32_t)n);
}

lace_status ahead_next(ahead *a, int32_t *word, lace_error *err)
{
    CHECK(a->is_under_way && a->n_taken < a->n_most);
    for (; a->n_queued < a->n_most && a->n_queued - a->n_taken < AHEAD; a->n_queued++) {
        lace_item item = {.token = played.newest, .sequence = a->sequence, .want_logits = true};
        TRY(lace_session_eval(a->session, &item, 1, err));
        played.newest = best_of(a->session);
        played.words[a->n_queued] = played.newest + 1;
    }
    played.n_asked++;
    if (played.fails_at && played.n_asked == played.fails_at)
        return error_set(err, LACE_E_DEVICE, "the device is gone");
    *word = played.words[a->n_taken];
    if (played.refuses_at && played.n_asked % played.refuses_at == 0) {
        *word = CHOICE_REFUSED;
        a->n_by_host = 2;
        return LACE_OK;
    }
    a->n_taken++;
    played.n_given++;
    return LACE_OK;
}

lace_status ahead_end(ahead *a, lace_error *err)
{
    if (!a->is_under_way)
        return LACE_OK;
    a->is_under_way = false;
    return lace_session_truncate(a->session, a->sequence, a->length + a->n_taken, err);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

static lace_model *tales;

static const char *const prompts[N_TEXTS] = {"Once upon a time there was a king",
                                             "The fox said to the wolf", "A poor miller had"};

typedef struct result {
    lace_token tokens[CONTEXT + 1];
    int n_tokens;
    lace_finish finish;
    lace_status status;
} result;

static void on_piece(void *user, const lace_piece *p)
{
    result *r = user;
    if (p->token >= 0)
        r->tokens[r->n_tokens++] = p->token;
    r->finish = p->finish;
    r->status = p->error ? p->error->status : LACE_OK;
}

static lace_batcher *start(void)
{
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_sequences = 2;
    o.session.n_threads = 2;
    o.session.kv_type = LACE_KV_F32;
    lace_batcher *b = NULL;
    CHECK(lace_batcher_create(tales, &o, &b, NULL) == LACE_OK);
    return b;
}

static lace_generation *add_with(lace_batcher *b, int which, lace_generation_options o, result *r)
{
    lace_token tokens[CONTEXT];
    size_t n = 0;
    *r = (result){.n_tokens = 0};
    CHECK(lace_tokenize(tales, prompts[which], strlen(prompts[which]), LACE_TOKENIZE_ADD_SPECIAL,
                        tokens, CONTEXT, &n, NULL) == LACE_OK);
    o.prompt = tokens;
    o.n_prompt = n;
    o.on_piece = on_piece;
    o.user = r;
    lace_generation *g = NULL;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
    return g;
}

static lace_generation *add(lace_batcher *b, int which, int32_t max_tokens, float temperature,
                            result *r)
{
    lace_generation_options o = lace_generation_options_default();
    o.max_tokens = max_tokens;
    o.sampler.temperature = temperature;
    o.sampler.repeat_penalty = temperature > 0 ? 1.1f : 1; /* no rule for a device */
    return add_with(b, which, o, r);
}

static bool is_same(const result *a, const result *b)
{
    return a->n_tokens == b->n_tokens && a->finish == b->finish && a->status == b->status &&
           memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens) == 0;
}

static void finish(lace_batcher *b)
{
    while (lace_batcher_step(b))
        continue;
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    CHECK(stats.kv_tokens_used == 0 && stats.n_running == 0);
    lace_batcher_free(b);
}

static result plain[N_TEXTS], longest, drawn;

static void texts_without_the_device(void)
{
    played.is_there = false;
    lace_batcher *b = start();
    result unused;
    for (int i = 0; i < N_TEXTS; i++) {
        add(b, i, N_NEW, 0, &plain[i]);
        while (lace_batcher_step(b))
            continue;
        CHECK(plain[i].n_tokens == N_NEW);
    }
    add(b, 0, -1, 0, &longest);
    while (lace_batcher_step(b))
        continue;
    add(b, 1, N_NEW, 0.8f, &drawn);
    while (lace_batcher_step(b))
        continue;
    add(b, 1, 1, 0, &unused);
    finish(b);
    CHECK(played.n_asked == 0);
    played.is_there = true;
}

static void a_text_that_is_alone_comes_from_the_device(void)
{
    lace_batcher *b = start();
    result r;
    played.n_given = 0;
    add(b, 0, N_NEW, 0, &r);
    while (lace_batcher_step(b))
        continue;
    CHECK(is_same(&r, &plain[0]) && played.n_given == N_NEW - 1);
    add(b, 0, -1, 0, &r); /* to the end of the context, or of the text */
    while (lace_batcher_step(b))
        continue;
    CHECK(is_same(&r, &longest));
    played.n_given = 0;
    add(b, 1, N_NEW, 0.8f, &r);
    finish(b);
    CHECK(is_same(&r, &drawn) && played.n_given == 0);
}

static void texts_that_come_and_leave_in_the_middle_change_no_other(void)
{
    for (int n_before = 1; n_before < 22; n_before += 4) {
        lace_batcher *b = start();
        result first, second, leaves;
        add(b, 0, N_NEW, 0, &first);
        while (first.n_tokens < n_before)
            CHECK(lace_batcher_step(b));
        lace_generation *g = add(b, 2, N_NEW, 0, &leaves);
        while (leaves.n_tokens < 4)
            CHECK(lace_batcher_step(b));
        lace_batcher_cancel(b, g);
        CHECK(memcmp(leaves.tokens, plain[2].tokens, 4 * sizeof(lace_token)) == 0);
        for (int i = 0; i < 3; i++)
            lace_batcher_step(b);
        add(b, 1, N_NEW, 0, &second);
        finish(b);
        CHECK(is_same(&first, &plain[0]) && is_same(&second, &plain[1]));
    }
}

static void a_text_cancelled_while_the_device_is_ahead_leaves_its_beginning(void)
{
    lace_batcher *b = start();
    result first, second;
    lace_generation *g = add(b, 0, N_NEW, 0, &first);
    while (first.n_tokens < 9)
        CHECK(lace_batcher_step(b));
    lace_batcher_cancel(b, g);
    CHECK(first.finish == LACE_FINISH_CANCELLED && first.n_tokens == 9);
    add(b, 0, N_NEW, 0, &second);
    finish(b);
    CHECK(is_same(&second, &plain[0]));
    b = start();
    add(b, 0, N_NEW, 0, &first);
    while (first.n_tokens < 9)
        CHECK(lace_batcher_step(b));
    lace_batcher_free(b); /* in the middle */
}

static void what_the_device_refuses_the_host_chooses(void)
{
    for (int every = 1; every < 12; every += 5) {
        lace_batcher *b = start();
        result r;
        played.refuses_at = every;
        played.n_asked = 0;
        add(b, 0, N_NEW, 0, &r);
        finish(b);
        CHECK(is_same(&r, &plain[0]) && played.n_asked > 0);
        played.refuses_at = 0;
    }
}

static void a_device_that_fails_ends_the_text_and_no_other(void)
{
    lace_batcher *b = start();
    result r;
    played.n_asked = 0;
    played.fails_at = 6;
    add(b, 0, N_NEW, 0, &r);
    while (lace_batcher_step(b))
        continue;
    CHECK(r.finish == LACE_FINISH_ERROR && r.status == LACE_E_DEVICE && r.n_tokens == 6);
    played.fails_at = 0;
    add(b, 1, N_NEW, 0, &r);
    finish(b);
    CHECK(is_same(&r, &plain[1]));
}

static result edited_text(const lace_generation_options *o)
{
    lace_batcher *b = start();
    result r;
    add_with(b, 0, *o, &r);
    finish(b);
    return r;
}

/* Biases, bans, and ends that may not come yet: what the device is told is what the host does. */
static void what_is_edited_for_the_device_is_what_the_host_edits(void)
{
    enum { N_MOST = CHOICE_MAX_EDITS + 1 };
    lace_bias biases[N_MOST] = {{plain[0].tokens[2], -INFINITY},
                                {plain[0].tokens[5], 2.5f},
                                {plain[0].tokens[5], -8.25f},
                                {plain[0].tokens[7], 4}};
    for (int i = 4; i < N_MOST; i++)
        biases[i] = (lace_bias){plain[1].tokens[i % N_NEW], -0.5f * (float)i};
    for (int which = 0; which < 5; which++) {
        lace_generation_options o = lace_generation_options_default();
        o.sampler.temperature = 0;
        o.max_tokens = N_NEW;
        o.ignore_end = which == 1;
        o.min_tokens = which == 2 ? 11 : 0;
        o.stop_tokens = &plain[0].tokens[9]; /* else the text ends with it */
        o.n_stop_tokens = which == 1 || which == 2;
        o.biases = biases;
        o.n_biases = which == 0 ? 4 : which == 3 ? N_MOST - 1 : which == 4 ? N_MOST : 0;
        played.is_there = false;
        result want = edited_text(&o);
        played.is_there = true;
        played.n_given = played.n_edited = 0;
        result got = edited_text(&o);
        CHECK(is_same(&got, &want) && !is_same(&got, &plain[0]));
        bool is_told = which < 4; /* more than a rule holds is the host's */
        CHECK((played.n_edited > 0) == is_told && (played.n_given > 0) == is_told);
    }
}

static void the_model_opens(void)
{
    CHECK(tales != NULL);
}

int main(void)
{
    char *path = data_path("models/tales-4m-f16.gguf");
    if (path)
        lace_model_open(path, NULL, &tales, NULL);
    free(path);
    CASE(the_model_opens);
    if (!tales)
        return tap_end();
    CASE(texts_without_the_device);
    CASE(a_text_that_is_alone_comes_from_the_device);
    CASE(texts_that_come_and_leave_in_the_middle_change_no_other);
    CASE(a_text_cancelled_while_the_device_is_ahead_leaves_its_beginning);
    CASE(what_the_device_refuses_the_host_chooses);
    CASE(a_device_that_fails_ends_the_text_and_no_other);
    CASE(what_is_edited_for_the_device_is_what_the_host_edits);
    lace_model_close(tales);
    return tap_end();
}
