/* What the two files that make a tiny model share. Private to them. */
#ifndef LACE_TESTS_TINY_MAKER_H
#define LACE_TESTS_TINY_MAKER_H

#include "tiny_model.h"

typedef struct maker {
    gguf_writer *w;
    const tiny_options *o;
    uint32_t n_made;
} maker;

/* What the layers of an architecture have beside or instead of llama's. */
enum {
    HAS_BIASES = 1,          /* q, k, v */
    HAS_HEAD_NORMS = 2,      /* q, k, each head */
    HAS_WIDE_NORMS = 4,      /* q, k, all heads */
    HAS_POST_NORMS = 8,      /* after attention and feed-forward */
    LACKS_PRE_NORMS = 16,    /* before them */
    IS_JOINED = 32,          /* q, k, v and gate, up in one tensor each */
    HAS_SINKS = 64,          /* and the norm before the experts under another name */
    HAS_OUTPUT_BIAS = 128,   /* of attention */
    HAS_EXPERT_BIASES = 256, /* and of the router */
    HAS_WINDOW = 512,
    HAS_SOFTCAPS = 1024,
    HAS_FACTORS = 2048,
    LACKS_GATE = 1 << 12,     /* of the feed-forward part */
    LACKS_FFN_NORM = 1 << 13, /* one norm for both parts */
    HAS_POSITIONS = 1 << 14,  /* learned ones */
    HAS_XIELU = 1 << 15,
    HAS_OTHER_NORM = 1 << 16, /* the norm before the feed-forward part has another name */
    HAS_DELTA = 1 << 24,      /* every other layer is a delta net's; attention is gated */
    IS_ENCODER = 1 << 17,     /* without output matrix */
    HAS_LATE_NORMS = 1 << 18, /* of what attention and feed-forward were added to, with biases */
    HAS_FFN_BIASES = 1 << 19,
    HAS_CHOICE_BIAS = 1 << 20, /* of the router */
    HAS_SHARED_EXPERT = 1 << 21,
    HAS_SHARED_ROUTER = 1 << 22,
    HAS_NORM_BIASES = 1 << 23,
    HAS_SECOND = 1 << 25,  /* a second embedding; the first layer is local, two others are not */
    HAS_SHAPES = 1 << 26,  /* larger heads in local layers; the second layer has no v */
    HAS_STREAMS = 1 << 27, /* two residual streams, and gates that are cut off */
};

int tiny_parts_of(const char *architecture);

/* Sizes of the parts. */
enum { Q_RANK = 4, KV_RANK = 4, NOPE_DIM = 4, LATENT_V_DIM = 6 };
enum { N_SECOND = 4, N_STREAMS = 2, LOW_RANK = 2 };
enum { N_TAPS = 3, N_STATE = 2, N_GROUPS = 2, N_STATE_HEADS = 4 };

/* What the layers of an architecture are, by letters: M state space, C convolution, * attention, -
 * feed-forward, H the first three at once; NULL: all have attention and feed-forward parts. */
const char *tiny_kinds_of(const char *architecture);

/* Latent attention, experts behind a dense layer, and one that every token goes through. */
bool tiny_is_latent(const char *architecture);

/* tiny_meta.c: the vocabulary and the keys; failures stay in the writer. */
void tiny_add_vocab(maker *m);
void tiny_add_config(maker *m);

#endif
