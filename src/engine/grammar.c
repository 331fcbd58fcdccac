/* Grammars, for the public API. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "sampler/grammar_match.h"

struct lace_grammar {
    grammar_matcher *matcher;
    pthread_mutex_t lock; /* of the matcher: states of one grammar share what was computed */
    atomic_int n_users;   /* its owner and its states */
    int32_t n_vocab;
};

struct lace_grammar_state {
    lace_grammar *grammar;
    grammar_position *position;
};

/* ---- Tokens ---------------------------------------------------------------------------------- */

/*
 * Whether a token is text. Marks such as "<tool_call>" that a vocabulary lists as its user's are
 * not: in a JSON string they would be read as what they mark.
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
        return is_mark ? GRAMMAR_TOKEN_OTHER : GRAMMAR_TOKEN_TEXT;
    }
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

static lace_status compile(lace_grammar_kind kind, text source, grammar_automaton *out,
                           lace_error *err)
{
    grammar_ast g;
    lace_status status;
    grammar_ast_init(&g);
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
        status = error_set(err, LACE_E_ARG, "%d is no kind of grammar", (int)kind);
        break;
    }
    if (status == LACE_OK)
        status = grammar_compile(&g, out, err);
    grammar_ast_deinit(&g);
    return status;
}

lace_status lace_grammar_create(lace_model *lm, lace_grammar_kind kind, const char *source,
                                size_t n_bytes, lace_grammar **out, lace_error *err)
{
    *out = NULL;
    grammar_automaton a;
    TRY(find_tokens(lm, err));
    TRY(compile(kind, (text){source ? source : "", source ? n_bytes : 0}, &a, err));
    lace_grammar *g = mem_calloc(1, sizeof *g);
    if (!g) {
        grammar_automaton_deinit(&a);
        return error_nomem(err, "a grammar");
    }
    g->n_vocab = lm->n_vocab;
    lace_status status = grammar_matcher_create(&a, lm->grammar_tokens, &g->matcher, err);
    if (status != LACE_OK) {
        mem_free(g);
        return status;
    }
    pthread_mutex_init(&g->lock, NULL);
    atomic_init(&g->n_users, 1);
    *out = g;
    return LACE_OK;
}

void lace_grammar_free(lace_grammar *g)
{
    if (!g || atomic_fetch_sub(&g->n_users, 1) > 1)
        return;
    grammar_matcher_free(g->matcher);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

/* ---- States ---------------------------------------------------------------------------------- */

static lace_status make_state(lace_grammar *g, const grammar_position *from,
                              lace_grammar_state **out, lace_error *err)
{
    *out = NULL;
    lace_grammar_state *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a grammar's state");
    s->grammar = g;
    pthread_mutex_lock(&g->lock);
    lace_status status = from ? grammar_position_clone(from, &s->position, err)
                              : grammar_position_create(g->matcher, &s->position, err);
    pthread_mutex_unlock(&g->lock);
    if (status != LACE_OK) {
        mem_free(s);
        return status;
    }
    atomic_fetch_add(&g->n_users, 1);
    *out = s;
    return LACE_OK;
}

lace_status lace_grammar_state_create(lace_grammar *g, lace_grammar_state **out, lace_error *err)
{
    return make_state(g, NULL, out, err);
}

lace_status lace_grammar_state_clone(const lace_grammar_state *s, lace_grammar_state **out,
                                     lace_error *err)
{
    return make_state(s->grammar, s->position, out, err);
}

void lace_grammar_state_free(lace_grammar_state *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->grammar->lock);
    grammar_position_free(s->position);
    pthread_mutex_unlock(&s->grammar->lock);
    lace_grammar_free(s->grammar);
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

lace_status lace_grammar_state_mask(lace_grammar_state *s, float *logits, lace_error *err)
{
    const uint64_t *allowed;
    pthread_mutex_lock(&s->grammar->lock);
    lace_status status = grammar_position_allowed(s->position, &allowed, err);
    if (status == LACE_OK)
        mask_logits(allowed, s->grammar->n_vocab, logits);
    pthread_mutex_unlock(&s->grammar->lock);
    return status;
}

lace_status lace_grammar_state_accept(lace_grammar_state *s, lace_token token, lace_error *err)
{
    pthread_mutex_lock(&s->grammar->lock);
    lace_status status = grammar_position_accept(s->position, token, err);
    pthread_mutex_unlock(&s->grammar->lock);
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
