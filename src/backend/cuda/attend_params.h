/* Parameters of attention by warpgroups (attend_groups.cu); read by C and by CUDA. */
#ifndef LACE_BACKEND_CUDA_ATTEND_PARAMS_H
#define LACE_BACKEND_CUDA_ATTEND_PARAMS_H

#include "backend/cuda/batch_params.h"

#ifdef __cplusplus
#define GPU_BOXES_ALIGN alignas(64)
#else
#define GPU_BOXES_ALIGN _Alignas(64)
#endif

/* Rows of f16 in pages as the copy engine takes them, in boxes; cuda_describe_boxes makes it. */
typedef struct gpu_boxes {
    GPU_BOXES_ALIGN uint64_t words[16];
} gpu_boxes;

/* Rows of a block, and stages of positions. */
enum { ATTEND_GROUP_ROWS = 128, ATTEND_GROUP_STAGES = 2 };

/* Positions of a stage: sums and scores of so many must fit into registers. */
#ifdef __cplusplus
static constexpr
#else
static inline
#endif
    int
    attend_group_keys(int v_dim)
{
    return v_dim > 128 ? 64 : 128;
}

typedef struct batch_attend_boxes {
    gpu_boxes keys, values; /* 32 positions by 64 values of the cache */
    batch_attend in;
} batch_attend_boxes;

#endif
