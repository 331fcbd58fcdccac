/*
 * Steps on a GPU: everything that a step points to is copied there, the step is launched, and what
 * it made comes back. Checks of GPU kernels skip, in sight, where there is none.
 */
#ifndef LACE_TESTS_CHECK_GPU_H
#define LACE_TESTS_CHECK_GPU_H

#include "checkkernels.h"
#include "backend/cuda/gpu.h"

/* The checks, in check_gpu_matmul.c, check_gpu_heads.c, check_gpu_attend.c and check_gpu_token.c. ref: the
 * plain kernels. */
void check_gpu_matmul(const kernel_table *ref);
void check_gpu_moe(const kernel_table *ref);
void check_gpu_bytes(const kernel_table *ref);
void check_gpu_heads(void);
void check_gpu_attend(const kernel_table *ref);
void check_gpu_token(const kernel_table *ref);
void check_gpu_sample(void);

/* For checks of kernels that are no steps. Failures of the driver end the program. */
gpu *check_gpu_card(void);
cuda_queue *check_gpu_queue(void);
void check_gpu_must(lace_status status);
void *check_gpu_copy(const void *host, uint64_t n_bytes); /* until gpu_step_release */
void check_gpu_fetch(void *host, const void *device, uint64_t n_bytes);

/* A step that is prepared on the card. Memory lives until gpu_step_release. */
typedef struct gpu_step {
    step s; /* with addresses of the card */
    gpu_job job;
    gpu_batch batch;
    int64_t n_rows;
} gpu_step;

/*
 * s: with addresses of the host; weights hold the file's blocks. sequences: [n_tokens] the row of
 * the page tables that each token has, or NULL without a cache. states_bytes: size of the cache.
 */
void gpu_step_prepare(gpu_step *g, const step *s, const batch *b, const int32_t *sequences,
                      const int32_t *const *tables, int n_sequences, int pages_per_sequence,
                      uint64_t states_bytes, int64_t n_context);

/* Launch it, and wait. */
void gpu_step_run(gpu_step *g);

/* Rows of out[i] to an operand of the host. */
void gpu_step_fetch(const gpu_step *g, int i, const operand *to, int64_t n_rows);

/* Time it, and print a line: the median of several runs. The weights rotate through copies. */
void gpu_step_bench(gpu_step *g, const char *what, double n_bytes, double n_flops);

void gpu_step_release(void);

/* Products of many rows in int8 (gpu.fast_prompts), until it is said otherwise. */
void check_gpu_use_bytes(bool uses);

/* A step on the card, as a kernel of the host: one worker has it done. */
void check_gpu_run_step(const step *s, const batch *b, const worker *w);

#endif
