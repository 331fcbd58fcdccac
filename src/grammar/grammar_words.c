/* Nodes for texts with marks in them, and for texts without a word in them. */
#include <string.h>

#include "base/utf8.h"
#include "grammar/grammar_ast.h"
#include "grammar/grammar_vocab.h"

/* ---- Marks ----------------------------------------------------------------------------------- */

static void add_part(grammar_ast *g, node_list *parts, const grammar_node *node)
{
    g->is_out_of_memory |= !node_list_add(parts, node);
}

const grammar_node *grammar_marked(grammar_ast *g, text chars)
{
    static const char begin[] = {GRAMMAR_MARK_BEGIN}, end[] = {GRAMMAR_MARK_END};
    node_list parts = {0};
    size_t from = 0, at = 0;
    while (at < chars.size) {
        text rest = {chars.data + at, chars.size - at};
        size_t n = g->vocab ? grammar_vocab_find_mark(g->vocab, rest) : 0;
        if (n == 0) {
            at++;
            continue;
        }
        if (at > from)
            add_part(g, &parts, grammar_bytes(g, chars.data + from, at - from));
        add_part(g, &parts, grammar_bytes(g, begin, 1));
        add_part(g, &parts, grammar_bytes(g, rest.data, n));
        add_part(g, &parts, grammar_bytes(g, end, 1));
        from = at += n;
    }
    if (at > from)
        add_part(g, &parts, grammar_bytes(g, chars.data + from, at - from));
    const grammar_node *node = grammar_list(g, NODE_SEQ, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return node;
}

/* ---- Without a word -------------------------------------------------------------------------- */

enum { MAX_WORD = 128 }; /* characters of it */

/*
 * How much of the word stands at the end of its first n characters and one more: the automaton of
 * Knuth, Morris and Pratt, in which a word is found by never reading a character twice.
 */
static uint32_t next_length(const uint32_t *word, uint32_t n, uint32_t c)
{
    for (uint32_t k = n + 1; k > 0; k--) {
        bool is_same = word[k - 1] == c;
        for (uint32_t i = 0; is_same && i + 1 < k; i++)
            is_same = word[i] == word[n - k + 1 + i];
        if (is_same)
            return k;
    }
    return 0;
}

static bool is_before(const uint32_t *word, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (word[k] == word[i])
            return true;
    return false;
}

/* Point i: the first i characters of the word stand here. The last point is the end. */
static void add_edges(grammar_ast *g, const uint32_t *word, uint32_t n, const grammar_node *others,
                      edge_list *edges)
{
    for (uint32_t i = 0; i < n; i++) {
        edge_list_add(edges, i, n, grammar_empty(g));
        edge_list_add(edges, i, 0, others);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t to = next_length(word, i, word[k]);
            code_range one = {word[k], word[k]};
            if (to < n && !is_before(word, k))
                edge_list_add(edges, i, to, grammar_set(g, &one, 1));
        }
    }
}

const grammar_node *grammar_without(grammar_ast *g, text chars)
{
    uint32_t word[MAX_WORD], n = 0;
    code_set others = {0};
    edge_list edges = {0};
    bool ok = true;
    for (size_t at = 0; at < chars.size && n < MAX_WORD; n++) {
        at += (size_t)utf8_decode(chars.data + at, chars.size - at, &word[n]);
        ok = ok && code_set_add(&others, word[n], word[n]);
    }
    code_set_sort(&others);
    ok = ok && code_set_invert(&others);
    if (ok)
        add_edges(g, word, n, grammar_set(g, others.ranges, others.n), &edges);
    g->is_out_of_memory |= !ok || edges.is_out_of_memory;
    const grammar_node *node = ok ? grammar_net(g, n + 1, edges.data, edges.n) : grammar_empty(g);
    code_set_deinit(&others);
    edge_list_deinit(&edges);
    return node;
}
