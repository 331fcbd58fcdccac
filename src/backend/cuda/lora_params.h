/* Parameters of the kernels of adapters (lora.cu), both of which go from x to y. */
#ifndef LACE_BACKEND_CUDA_LORA_PARAMS_H
#define LACE_BACKEND_CUDA_LORA_PARAMS_H

#include "backend/lora_piece.h"

typedef struct gpu_lora {
    const lora_piece *pieces; /* [n_pieces] */
    const float *x;
    float *y;
    const float *scales; /* [n_sequences, n_adapters] */
    const int32_t *tokens, *sequences, *outputs;
    int64_t x_stride, y_stride, n_in, n_out;
    int32_t n_pieces, n_adapters, is_table, is_output, row_factor;
    float scale;
} gpu_lora;

#endif
