/*
 * Grammars, for the public API. What a text compiles to never changes, so the model keeps those
 * that were used last, by kind and text, and gives them out again.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "grammar/grammar_match.h"

enum {
    PREPARE_MS = 20, /* of a limit, what is left for preparing after compiling */
    MAX_KEPT = 64,   /* grammars that a model keeps */
    MAX_KEPT_BYTES = 64 << 20,
};

struct lace_grammar {
    grammar_core *core;
    atomic_int n_users; /* its owners; the model's list is one */
    int32_t n_vocab;
};

/* What a state and its clones share. */
typedef struct shared_matcher {
    grammar_matcher *m;
    pthread_mutex_t lock;
    atomic_int n_users;
} shared_matcher;

struct lace_grammar_state {
    shared_matcher *shared;
    grammar_position *position;
    int32_t n_vocab;
};

/* ---- Tokens ---------------------------------------------------------------------------------- */

/*
 * Whether a token is text. Control tokens, and marks such as "<tool_call>" that a vocabulary lists
 * as its user's, are not: in a JSON string they would be read as what they mark.
 */
static uint8_t kind_of_token(const tokenizer *t, lace_token id)
{
    text bytes = tokenizer_token_bytes(t, id);
    if (tokenizer_is_end(t, id))
        return GRAMMAR_TOKEN_END;
    switch (tokenizer_token_type(t, id)) {
    case TOKEN_NORMAL:
    case TOKEN_BYTE:
        return GRAMMAR_TOKEN_TEXT;
    case TOKEN_USER_DEFINED: {
        bool is_mark = bytes.size > 2 && (bytes.data[0] == '<' || bytes.data[0] == '[') &&
                       (bytes.data[bytes.size - 1] == '>' || bytes.data[bytes.size - 1] == ']');
        return is_mark ? GRAMMAR_TOKEN_MARK : GRAMMAR_TOKEN_TEXT;
    }
    case TOKEN_CONTROL:
        return GRAMMAR_TOKEN_MARK;
    default:
        return GRAMMAR_TOKEN_OTHER;
    }
}

static lace_status make_tokens(lace_model *lm, lace_error *err)
{
    int32_t n_vocab = lm->n_vocab;
    size_t n = (size_t)n_vocab;
    text *bytes = mem_calloc(n, sizeof *bytes);
    uint8_t *kinds = mem_calloc(n, sizeof *kinds);
    lace_status status = bytes && kinds ? LACE_OK : error_nomem(err, "the tokens of a grammar");
    for (size_t i = 0; status == LACE_OK && i < n && i < tokenizer_n_tokens(lm->tokens); i++) {
        bytes[i] = tokenizer_token_bytes(lm->tokens, (lace_token)i);
        kinds[i] = kind_of_token(lm->tokens, (lace_token)i);
    }
    if (status == LACE_OK)
        status = grammar_vocab_create(bytes, kinds, n_vocab, &lm->grammar_tokens, err);
    mem_free(bytes);
    mem_free(kinds);
    return status;
}

static lace_status find_tokens(lace_model *lm, lace_error *err)
{
    if (!lm->tokens)
        return error_set(err, LACE_E_VOCAB, "a grammar needs a model with a vocabulary");
    pthread_mutex_lock(&lm->load_lock);
    lace_status status = lm->grammar_tokens ? LACE_OK : make_tokens(lm, err);
    pthread_mutex_unlock(&lm->load_lock);
    return status;
}

/* ---- Grammars -------------------------------------------------------------------------------- */

static lace_status read_regex(grammar_ast *g, text source, lace_error *err)
{
    regex_options options = {0};
    const grammar_node *node;
    TRY(grammar_read_regex(g, source, &options, &node, NULL, NULL, err));
    g->root = grammar_add_rule(g, text_of("regex"));
    TRY(grammar_ast_check(g, err));
    g->rules[g->root].body = node;
    return LACE_OK;
}

static lace_status compile(const lace_model *lm, lace_grammar_kind kind, text source,
                           work_limit *limit, grammar_automaton *out, lace_error *err)
{
    grammar_ast g;
    lace_status status;
    grammar_ast_init(&g);
    g.limit = limit;
    g.vocab = lm->grammar_tokens;
    switch (kind) {
    case LACE_GRAMMAR_GBNF:
        status = grammar_read_gbnf(&g, source, err);
        break;
    case LACE_GRAMMAR_JSON_SCHEMA:
        status = grammar_read_schema(&g, source, err);
        break;
    case LACE_GRAMMAR_REGEX:
        status = read_regex(&g, source, err);
        break;
    case LACE_GRAMMAR_JSON_OBJECT:
        status = grammar_read_json_object(&g, err);
        break;
    default:
        status = error_set(err, LACE_E_ARG, "%d is not a kind of grammar", (int)kind);
        break;
    }
    if (status == LACE_OK)
        status = grammar_compile(&g, out, err);
    grammar_ast_deinit(&g);
    return status;
}

static lace_status make_grammar(lace_model *lm, lace_grammar_kind kind, text source,
                                const lace_grammar_options *o, lace_grammar **out, lace_error *err)
{
    grammar_automaton a;
    work_limit limit;
    int ms = o->max_ms > 2 * PREPARE_MS ? o->max_ms - PREPARE_MS : o->max_ms;
    work_limit_init(&limit, (uint64_t)(ms > 0 ? ms : 0) * 1000000, o->is_unwanted, o->user);
    TRY(compile(lm, kind, source, &limit, &a, err));
    lace_grammar *g = mem_calloc(1, sizeof *g);
    if (!g) {
        grammar_automaton_deinit(&a);
        return error_nomem(err, "a grammar");
    }
    g->n_vocab = lm->n_vocab;
    atomic_init(&g->n_users, 1);
    lace_status status = grammar_core_create(&a, lm->grammar_tokens, &g->core, err);
    return GIVE_OR_FREE(status, g, out, mem_free);
}

/* ---- Those that are kept --------------------------------------------------------------------- */

typedef struct kept_grammar {
    struct kept_grammar *next;
    lace_grammar *grammar;
    lace_grammar_kind kind;
    uint32_t hash;
    size_t n_bytes; /* of the text */
    char text[];
} kept_grammar;

/* Under the lock: the grammar of a text, which is then the first of the list; NULL: none. */
static lace_grammar *find_kept(lace_model *lm, lace_grammar_kind kind, text source, uint32_t hash)
{
    for (kept_grammar **at = &lm->kept_grammars; *at; at = &(*at)->next) {
        kept_grammar *k = *at;
        if (k->hash != hash || k->kind != kind || k->n_bytes != source.size ||
            memcmp(k->text, source.data, source.size) != 0)
            continue;
        *at = k->next;
        k->next = lm->kept_grammars;
        lm->kept_grammars = k;
        atomic_fetch_add(&k->grammar->n_users, 1);
        return k->grammar;
    }
    return NULL;
}

/* Under the lock: forget those that are too many, or too large together; the first ones stay. */
static void forget_grammars(lace_model *lm, size_t max_bytes, int max)
{
    size_t n_bytes = 0;
    int n = 0;
    for (kept_grammar **at = &lm->kept_grammars; *at;) {
        kept_grammar *k = *at;
        n_bytes += k->n_bytes + grammar_core_bytes(k->grammar->core);
        if (++n <= max && n_bytes <= max_bytes) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        lace_grammar_free(k->grammar);
        mem_free(k);
    }
}

/* No more than a convenience: without memory it is not kept. */
static void keep_grammar(lace_model *lm, lace_grammar_kind kind, text source, uint32_t hash,
                         lace_grammar *g)
{
    kept_grammar *k = mem_alloc(sizeof *k + source.size);
    if (!k)
        return;
    *k = (kept_grammar){.grammar = g, .kind = kind, .hash = hash, .n_bytes = source.size};
    memcpy(k->text, source.data, source.size);
    pthread_mutex_lock(&lm->load_lock);
    atomic_fetch_add(&g->n_users, 1);
    k->next = lm->kept_grammars;
    lm->kept_grammars = k;
    forget_grammars(lm, MAX_KEPT_BYTES, MAX_KEPT);
    pthread_mutex_unlock(&lm->load_lock);
}

void grammars_forget(lace_model *lm)
{
    forget_grammars(lm, 0, 0);
}

/* ---- Grammars to the outside ----------------------------------------------------------------- */

lace_grammar_options lace_grammar_options_default(void)
{
    return (lace_grammar_options){.max_ms = 1000};
}

lace_status lace_grammar_create_within(lace_model *lm, lace_grammar_kind kind, const char *source,
                                       size_t n_bytes, const lace_grammar_options *options,
                                       lace_grammar **out, lace_error *err)
{
    text given = {source ? source : "", source ? n_bytes : 0};
    lace_grammar_options o = options ? *options : lace_grammar_options_default();
    uint32_t hash = hash_bytes(given.data, given.size);
    TRY(find_tokens(lm, err));
    pthread_mutex_lock(&lm->load_lock);
    *out = find_kept(lm, kind, given, hash);
    pthread_mutex_unlock(&lm->load_lock);
    if (*out)
        return LACE_OK;
    TRY(make_grammar(lm, kind, given, &o, out, err));
    keep_grammar(lm, kind, given, hash, *out);
    return LACE_OK;
}

lace_status lace_grammar_create(lace_model *lm, lace_grammar_kind kind, const char *source,
                                size_t n_bytes, lace_grammar **out, lace_error *err)
{
    return lace_grammar_create_within(lm, kind, source, n_bytes, NULL, out, err);
}

void lace_grammar_free(lace_grammar *g)
{
    if (!g || atomic_fetch_sub(&g->n_users, 1) > 1)
        return;
    grammar_core_unref(g->core);
    mem_free(g);
}

/* ---- States ---------------------------------------------------------------------------------- */

static void release_matcher(shared_matcher *s)
{
    if (atomic_fetch_sub(&s->n_users, 1) > 1)
        return;
    grammar_matcher_free(s->m);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static lace_status make_matcher(grammar_core *core, shared_matcher **out, lace_error *err)
{
    shared_matcher *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a grammar's state");
    lace_status status = grammar_matcher_create(core, &s->m, err);
    if (status != LACE_OK) {
        mem_free(s);
        return status;
    }
    pthread_mutex_init(&s->lock, NULL);
    atomic_init(&s->n_users, 1);
    *out = s;
    return LACE_OK;
}

lace_status lace_grammar_state_create(lace_grammar *g, lace_grammar_state **out, lace_error *err)
{
    *out = NULL;
    lace_grammar_state *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a grammar's state");
    s->n_vocab = g->n_vocab;
    lace_status status = make_matcher(g->core, &s->shared, err);
    if (status == LACE_OK) {
        status = grammar_position_create(s->shared->m, &s->position, err);
        if (status != LACE_OK)
            release_matcher(s->shared);
    }
    return GIVE_OR_FREE(status, s, out, mem_free);
}

lace_status lace_grammar_state_clone(const lace_grammar_state *from, lace_grammar_state **out,
                                     lace_error *err)
{
    *out = NULL;
    lace_grammar_state *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a grammar's state");
    *s = (lace_grammar_state){.shared = from->shared, .n_vocab = from->n_vocab};
    pthread_mutex_lock(&s->shared->lock);
    lace_status status = grammar_position_clone(from->position, &s->position, err);
    pthread_mutex_unlock(&s->shared->lock);
    if (status != LACE_OK) {
        mem_free(s);
        return status;
    }
    atomic_fetch_add(&s->shared->n_users, 1);
    *out = s;
    return LACE_OK;
}

void lace_grammar_state_free(lace_grammar_state *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->shared->lock);
    grammar_position_free(s->position);
    pthread_mutex_unlock(&s->shared->lock);
    release_matcher(s->shared);
    mem_free(s);
}

static void mask_logits(const uint64_t *allowed, int32_t n, float *logits)
{
    for (int32_t i = 0; i < n; i += 64) {
        uint64_t word = allowed[i / 64];
        int32_t end = i + 64 < n ? i + 64 : n;
        if (word == UINT64_MAX)
            continue;
        for (int32_t k = i; k < end; k++)
            if (!(word >> (k - i) & 1))
                logits[k] = -INFINITY;
    }
}

lace_status grammar_state_mask_within(lace_grammar_state *s, work_limit *limit, float *logits,
                                      lace_error *err)
{
    const uint64_t *allowed;
    pthread_mutex_lock(&s->shared->lock);
    grammar_matcher_limit(s->shared->m, limit);
    lace_status status = grammar_position_allowed(s->position, &allowed, err);
    grammar_matcher_limit(s->shared->m, NULL);
    if (status == LACE_OK)
        mask_logits(allowed, s->n_vocab, logits);
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}

lace_status lace_grammar_state_mask(lace_grammar_state *s, float *logits, lace_error *err)
{
    return grammar_state_mask_within(s, NULL, logits, err);
}

lace_status lace_grammar_state_accept(lace_grammar_state *s, lace_token token, lace_error *err)
{
    pthread_mutex_lock(&s->shared->lock);
    lace_status status = grammar_position_accept(s->position, token, err);
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}

bool lace_grammar_state_is_complete(const lace_grammar_state *s)
{
    return grammar_position_is_complete(s->position);
}

bool lace_grammar_state_is_finished(const lace_grammar_state *s)
{
    return grammar_position_is_finished(s->position);
}
