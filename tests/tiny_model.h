/*
 * A small but complete model, made on the spot: every tensor, real (pseudo-random) weights and a
 * SentencePiece-like vocabulary. Tests break it in all ways, or run it.
 */
#ifndef LACE_TESTS_TINY_MODEL_H
#define LACE_TESTS_TINY_MODEL_H

#include "formats/gguf_write.h"

/* Every architecture that lace has. */
extern const int tiny_n_archs;
extern const char *const tiny_archs[];

typedef struct tiny_options {
    const char *architecture; /* "llama"; mixtures have 4 experts by default */
    int n_layers;             /* 2 */
    int n_embd;               /* 16 */
    int n_heads;              /* 2 */
    int n_kv_heads;           /* 1 */
    int n_ff;                 /* 32 */
    int n_ff_shared;          /* of a shared expert; 0 (default): half of n_ff */
    int n_experts;            /* 0 (default): none; else a mixture, 2 of them for each token */
    int n_vocab;        /* 320: <unk> <s> </s>, the 256 byte tokens, then pieces; at least 4 */
    int n_context;      /* 64 */
    dtype type;         /* of the matrices: DTYPE_F16 (default) or DTYPE_F32; norms are F32 */
    bool is_tied;       /* without output.weight; default false */
    bool has_infill;    /* the last tokens are <fim_prefix>, <fim_suffix>, <fim_middle> */
    uint32_t alignment; /* 32 */
    uint32_t seed;      /* of the weights; 1 */
    int n_predicting;   /* layers behind the others that predict further tokens; 0 */
    bool is_bigram;     /* layers add nothing: a token says the next one, and what predicts knows */
} tiny_options;

tiny_options tiny_options_default(void);

/* The same with a vocabulary of 64 tokens, which leaves no room for all byte tokens. */
tiny_options tiny_options_small(void);

/* The smallest: one layer, 16 tokens, under 3 KiB. For fuzzing. */
tiny_options tiny_options_least(void);

/* The smallest of an architecture, two layers and a window where it has one, under 12 KiB. */
tiny_options tiny_options_arch(const char *architecture);

/* The model's values and tensors in a writer, to which a test may add its own. */
lace_status tiny_model_create(const tiny_options *options, gguf_writer **out, lace_error *err);

/* The model as a GGUF file in memory, appended to *out. */
lace_status tiny_model_build(const tiny_options *options, buf *out, lace_error *err);

/* The same in a new buffer; a failure fails the test. */
buf tiny_model_bytes(tiny_options options);

#endif
