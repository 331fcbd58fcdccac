/*
 * Products of one token (backend/cuda/decode_product.cu): which blocks compute which rows, and what
 * they need of shared memory.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_PRODUCT_H
#define LACE_BACKEND_CUDA_DECODE_PRODUCT_H

#include "backend/cuda/decode_params.h"
#include "backend/cuda/gpu.h"
#include "plan/plan.h"

/* What a tile takes in a ring, as decode_ring.cuh has it. */
int32_t gpu_stage_bytes(const gpu *g, tile_kind kind);

decode_part gpu_product_part(const gpu *g, const weight *w, const float *bias, float *out);

/* Hands out the processors: the next one always to the part whose blocks have most to do. Returns
 * how many blocks there are. */
int32_t gpu_product_hand_out(decode_product_any *p, int32_t n_processors);

/* Shared memory of a block, when processors are handed out: without its ring; of a ring with a
 * place for each warp; and of the ring of a block that is alone on its processor, with two places
 * for each warp, more if tiles are small, less if there is no room for them. */
uint32_t gpu_product_fixed_bytes(const gpu *g, const decode_product_any *p);
uint32_t gpu_product_least_ring(const decode_product_any *p);
uint32_t gpu_product_alone_ring(const decode_product_any *p, uint32_t room);

/* Hands out processors, and says whether blocks of this card have room. */
bool gpu_product_has_room(const gpu *g, decode_product_any *p);

/* The same for a step's products. */
bool gpu_product_fits(const gpu *g, const step *s);

#endif
