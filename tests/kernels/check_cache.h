/* A paged cache with a batch of sequences in it, for the checks of rope, kv_write and attend. */
#ifndef LACE_TESTS_CHECK_CACHE_H
#define LACE_TESTS_CHECK_CACHE_H

#include "checkkernels.h"

enum { CACHE_MAX_SEQUENCES = 6, CACHE_MAX_TOKENS = 4096 };

typedef struct cache_shape {
    dtype type;
    bool is_mixed; /* values are of v_type, where they are no part of keys */
    dtype v_type;
    int n_heads, head_dim, page_tokens;
    int v_dim;   /* 0: head_dim */
    bool v_in_k; /* latent: V is a part of K */
    int n_sequences;
    int n_past[CACHE_MAX_SEQUENCES]; /* positions before the batch */
    int n_new[CACHE_MAX_SEQUENCES];  /* tokens in the batch */
} cache_shape;

typedef struct check_cache {
    kv_layer kv; /* its pages are scattered, its group is 1 */
    batch b;
    uint64_t n_bytes;
    int n_context; /* of the longest sequence */
} check_cache;

/* Memory from check_alloc: poisoned, until it is filled or copied. */
void check_cache_init(check_cache *c, const cache_shape *cs);

/* Rows of random values, as large as `size`, for every position and head. */
void check_cache_fill(check_cache *c, float size);

/* The same place in memory of its own, with the same bytes. */
kv_layer check_cache_copy(const check_cache *c);

#endif
