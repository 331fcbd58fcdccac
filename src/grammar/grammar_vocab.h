/*
 * The tokens that text may be made of, as a tree by their bytes: tokens with a common beginning are
 * checked against a grammar together, and a beginning that does not match rules out all of them.
 *
 * The nodes lie in the order of a walk, each in front of its children. Whoever wants to pass over
 * a node's subtree goes on at `next`. Node 0 is the empty text. Read-only once it is made.
 */
#ifndef LACE_GRAMMAR_GRAMMAR_VOCAB_H
#define LACE_GRAMMAR_GRAMMAR_VOCAB_H

#include "base/bytes.h"

enum {
    GRAMMAR_TOKEN_OTHER, /* never part of constrained text: control, unknown, unused */
    GRAMMAR_TOKEN_TEXT,
    GRAMMAR_TOKEN_END,  /* ends a generation */
    GRAMMAR_TOKEN_MARK, /* passes only where a grammar names it: "<tool_call>" */
};

/*
 * A mark stands in the tree, and in the automata of grammars, between two bytes that no text has, so
 * that text never matches it, nor it text.
 */
#define GRAMMAR_MARK_BEGIN '\xFF'
#define GRAMMAR_MARK_END   '\xFE'

typedef struct grammar_vocab {
    int32_t n_vocab;
    text *bytes;   /* [n_vocab] borrowed, of marks between their bytes; empty for other tokens */
    uint8_t *kind; /* [n_vocab] */

    uint32_t n_nodes;
    uint8_t *byte;   /* [n_nodes] the last byte of the node's text */
    uint16_t *depth; /* [n_nodes] the length of its text */
    uint32_t *next;  /* [n_nodes] the first node behind its subtree */
    uint32_t *first; /* [n_nodes + 1] its tokens are order[first[i] .. first[i + 1]) */
    uint32_t max_depth;
    lace_token *order; /* the text tokens, by their bytes */
    uint32_t n_order;
    lace_token *ends;
    uint32_t n_ends;
    char *mark_bytes; /* what the texts of marks are in */
    lace_token *marks;
    uint32_t n_marks;
    bool begins_mark[256]; /* a mark has this first byte */
} grammar_vocab;

/* kinds [n_vocab] of GRAMMAR_TOKEN_TEXT and so on. The bytes must outlive the result. */
lace_status grammar_vocab_create(const text *bytes, const uint8_t *kinds, int32_t n_vocab,
                                 grammar_vocab **out, lace_error *err);
void grammar_vocab_free(grammar_vocab *v);

/* The length of the longest mark that the text begins with; 0: none. */
size_t grammar_vocab_find_mark(const grammar_vocab *v, text t);

#endif
