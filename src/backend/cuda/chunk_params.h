/*
 * Recurrent layers of prompts, in chunks of CHUNK_TOKENS tokens: what a first kernel makes of every
 * chunk by itself, and what a second one, which has the state, makes of that chunk after chunk.
 * Read by C and by CUDA.
 *
 * A chunk of a head is, with zeros for what is not there:
 *
 *     rows [state rows][CHUNK_TOKENS (twice for the delta rule)] what each token multiplies the
 *          state with: first what it takes from what is new to it (delta rule), then its query
 *     keys [CHUNK_TOKENS][state rows] of each token, as much as is left of it at the chunk's end
 *     pair [CHUNK_TOKENS][CHUNK_TOKENS] what token j (first index) is worth to the query of token i
 *     news [CHUNK_TOKENS][columns] what each token adds; 32s of columns
 *     left [4] how much of the state is left at the chunk's end
 */
#ifndef LACE_BACKEND_CUDA_CHUNK_PARAMS_H
#define LACE_BACKEND_CUDA_CHUNK_PARAMS_H

#include "backend/cuda/gpu_params.h"

enum {
    CHUNK_TOKENS = 64,
    CHUNK_COLUMNS = 32, /* of a head's state, for one block */
    CHUNK_THREADS = 256,
    CHUNK_MOST = 16,       /* that are worked on at a time */
    CHUNK_DELTA_ROWS = 128 /* of a state of the delta rule, at most */
};

/* Tokens of a batch that lie together and are of one sequence. */
typedef struct gpu_chunk {
    int32_t token0, n_tokens, slot;
} gpu_chunk;

/* Chunks by slot; those of a slot in their order. */
typedef struct gpu_chunks {
    float *memory; /* chunk c of head h at (c * n_heads + h) * floats */
    int64_t floats;
    int32_t n_heads, n_rows, n_cols; /* of the state, as it is */
    int32_t news_stride;             /* columns of news: 32s */
    int32_t n_chunks, n_slots;
    gpu_chunk chunks[CHUNK_MOST];
    int32_t first[CHUNK_MOST + 1]; /* where each slot's chunks begin */
} gpu_chunks;

typedef struct gpu_delta_chunks {
    gpu_delta a;
    gpu_chunks c;
} gpu_delta_chunks;

typedef struct gpu_scan_chunks {
    gpu_scan a;
    gpu_chunks c;
} gpu_scan_chunks;

#endif
