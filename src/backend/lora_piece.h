/*
 * What kernels of devices read of adapters (ops/lora.h): for each matrix a list of pieces, one for each
 * adapter that knows it. Read by C, CUDA and GLSL.
 */
#ifndef LACE_BACKEND_LORA_PIECE_H
#define LACE_BACKEND_LORA_PIECE_H

/* Types of both matrices of a piece. */
#define LORA_PIECE_F32  0
#define LORA_PIECE_F16  1
#define LORA_PIECE_BF16 2

#define LORA_PIECE_PANEL 32 /* LORA_PANEL */

#ifndef SHADER
#include <stdint.h>

typedef struct lora_piece {
    uint64_t down, up; /* addresses on the device, laid out as lora_pair has them */
    int32_t adapter, rank, first, type;
    float factor;
    int32_t padding;
} lora_piece;
#endif

#endif
