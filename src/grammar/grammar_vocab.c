/* The tree of a vocabulary's tokens, made from the sorted list of them. */
#include "grammar/grammar_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_TOKEN_BYTES = 1024 }; /* longer ones are left out: no text needs them */

typedef struct sorted_token {
    text bytes;
    lace_token id;
} sorted_token;

static int compare_tokens(const void *a, const void *b)
{
    const sorted_token *x = a, *y = b;
    size_t n = x->bytes.size < y->bytes.size ? x->bytes.size : y->bytes.size;
    int order = memcmp(x->bytes.data, y->bytes.data, n);
    if (order != 0)
        return order;
    if (x->bytes.size != y->bytes.size)
        return x->bytes.size < y->bytes.size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static size_t common_prefix(text a, text b)
{
    size_t n = 0;
    while (n < a.size && n < b.size && a.data[n] == b.data[n])
        n++;
    return n;
}

static void add_nodes(grammar_vocab *v, const sorted_token *sorted)
{
    uint32_t open[MAX_TOKEN_BYTES + 1] = {0}; /* the node at each depth of the token before */
    size_t n_open = 0;                        /* its length */
    text before = {"", 0};
    v->n_nodes = 1;
    for (uint32_t i = 0; i < v->n_order; i++) {
        text t = sorted[i].bytes;
        size_t common = common_prefix(before, t);
        for (; n_open > common; n_open--)
            v->next[open[n_open]] = v->n_nodes;
        for (; n_open < t.size; n_open++) {
            uint32_t node = v->n_nodes++;
            v->byte[node] = (uint8_t)t.data[n_open];
            v->depth[node] = (uint16_t)(n_open + 1);
            v->first[node] = i;
            open[n_open + 1] = node;
        }
        v->order[i] = sorted[i].id;
        before = t;
    }
    for (; n_open > 0; n_open--)
        v->next[open[n_open]] = v->n_nodes;
    v->next[0] = v->n_nodes;
    v->first[v->n_nodes] = v->n_order;
}

static lace_status build_tree(grammar_vocab *v, lace_error *err)
{
    size_t n_bytes = 1;
    sorted_token *sorted = mem_calloc(v->n_order ? v->n_order : 1, sizeof *sorted);
    if (!sorted)
        return error_nomem(err, "the tokens of a grammar");
    uint32_t n = 0;
    for (lace_token t = 0; t < v->n_vocab; t++)
        if (v->kind[t] == GRAMMAR_TOKEN_TEXT || v->kind[t] == GRAMMAR_TOKEN_MARK) {
            sorted[n++] = (sorted_token){v->bytes[t], t};
            n_bytes += v->bytes[t].size;
            if (v->bytes[t].size > v->max_depth)
                v->max_depth = (uint32_t)v->bytes[t].size;
        }
    qsort(sorted, n, sizeof *sorted, compare_tokens);
    /* At most a node for each byte; few tokens share so little that more than half
     * of it is used. */
    v->byte = mem_calloc(n_bytes, sizeof *v->byte);
    v->depth = mem_calloc(n_bytes, sizeof *v->depth);
    v->next = mem_calloc(n_bytes, sizeof *v->next);
    v->first = mem_calloc(n_bytes + 1, sizeof *v->first);
    v->order = mem_calloc(n ? n : 1, sizeof *v->order);
    bool ok = v->byte && v->depth && v->next && v->first && v->order && n_bytes < UINT32_MAX;
    if (ok)
        add_nodes(v, sorted);
    mem_free(sorted);
    return ok ? LACE_OK : error_nomem(err, "the tokens of a grammar");
}

/* Room for all marks and their texts. */
static lace_status make_marks(grammar_vocab *v, const text *bytes, const uint8_t *kinds,
                              lace_error *err)
{
    size_t n_bytes = 1, n = 1;
    for (int32_t i = 0; i < v->n_vocab; i++) {
        n += kinds[i] == GRAMMAR_TOKEN_MARK;
        n_bytes += kinds[i] == GRAMMAR_TOKEN_MARK ? bytes[i].size + 2 : 0;
    }
    v->mark_bytes = mem_calloc(n_bytes, 1);
    v->marks = mem_calloc(n, sizeof *v->marks);
    return v->mark_bytes && v->marks ? LACE_OK : error_nomem(err, "the tokens of a grammar");
}

/* A token's text as it stands in the tree; *used bytes of mark_bytes are taken. */
static text tree_text(grammar_vocab *v, lace_token token, text bytes, size_t *used)
{
    if (v->kind[token] != GRAMMAR_TOKEN_MARK)
        return bytes;
    v->marks[v->n_marks++] = token;
    v->begins_mark[(uint8_t)bytes.data[0]] = true;
    char *at = v->mark_bytes + *used;
    at[0] = GRAMMAR_MARK_BEGIN;
    memcpy(at + 1, bytes.data, bytes.size);
    at[bytes.size + 1] = GRAMMAR_MARK_END;
    *used += bytes.size + 2;
    return (text){at, bytes.size + 2};
}

/* Whether a token has no text, more than is sensible, or a byte that is kept for marks. */
static bool is_unfit(text bytes)
{
    return bytes.size == 0 || bytes.size > MAX_TOKEN_BYTES - 2 ||
           memchr(bytes.data, GRAMMAR_MARK_BEGIN, bytes.size) ||
           memchr(bytes.data, GRAMMAR_MARK_END, bytes.size);
}

size_t grammar_vocab_find_mark(const grammar_vocab *v, text t)
{
    size_t longest = 0;
    if (t.size == 0 || !v->begins_mark[(uint8_t)t.data[0]])
        return 0;
    for (uint32_t i = 0; i < v->n_marks; i++) {
        text mark = v->bytes[v->marks[i]];
        size_t n = mark.size - 2;
        if (n > longest && n <= t.size && memcmp(mark.data + 1, t.data, n) == 0)
            longest = n;
    }
    return longest;
}

lace_status grammar_vocab_create(const text *bytes, const uint8_t *kinds, int32_t n_vocab,
                                 grammar_vocab **out, lace_error *err)
{
    *out = NULL;
    grammar_vocab *v = mem_calloc(1, sizeof *v);
    if (!v)
        return error_nomem(err, "the tokens of a grammar");
    size_t n = n_vocab > 0 ? (size_t)n_vocab : 0;
    v->n_vocab = (int32_t)n;
    v->bytes = mem_calloc(n ? n : 1, sizeof *v->bytes);
    v->kind = mem_calloc(n ? n : 1, sizeof *v->kind);
    v->ends = mem_calloc(n ? n : 1, sizeof *v->ends);
    lace_status status =
        v->bytes && v->kind && v->ends ? LACE_OK : error_nomem(err, "the tokens of a grammar");
    size_t n_used = 0;
    if (status == LACE_OK)
        status = make_marks(v, bytes, kinds, err);
    for (size_t i = 0; i < n && status == LACE_OK; i++) {
        v->kind[i] = kinds[i];
        if (kinds[i] == GRAMMAR_TOKEN_END)
            v->ends[v->n_ends++] = (lace_token)i;
        if (kinds[i] != GRAMMAR_TOKEN_TEXT && kinds[i] != GRAMMAR_TOKEN_MARK)
            continue;
        if (is_unfit(bytes[i])) {
            v->kind[i] = GRAMMAR_TOKEN_OTHER;
            continue;
        }
        v->bytes[i] = tree_text(v, (lace_token)i, bytes[i], &n_used);
        v->n_order++;
    }
    if (status == LACE_OK)
        status = build_tree(v, err);
    return GIVE_OR_FREE(status, v, out, grammar_vocab_free);
}

void grammar_vocab_free(grammar_vocab *v)
{
    if (!v)
        return;
    mem_free_all(v->bytes, v->kind, v->byte, v->depth, v->next, v->first, v->order, v->ends,
                 v->mark_bytes, v->marks, v);
}
