/*
 * Shared memory of the products of one token: it decides who meets on a processor.
 *
 * Two blocks of one product there would halve its speed, since other processors have nothing to do
 * then. So each asks for more than half, and is alone but for attention.
 *
 * Models with small layers share: products into the residual (output, down) ask for a little more
 * than half, those between them (q k v, gate and up) for what is left. Then a block fits beside one
 * of its predecessor and fills its ring with weights while that one works: TinyLlama from 1,791 to
 * 2,056 tokens a second on an H200. Layers much larger than all rings together gain nothing.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_ROOM_H
#define LACE_BACKEND_CUDA_DECODE_ROOM_H

#include "backend/cuda/decode_layout.h"

typedef struct product_room {
    bool shares;              /* processors */
    uint32_t residual_shared; /* what a block of output or down asks for then */
    bool is_late;             /* most of the ring is filled when the input is there */
    const char *kernel;       /* for products */
} product_room;

/* Processors are shared if layers are small, and not so small that many are empty; and if there is
 * shared memory for two. */
product_room product_room_choose(const decode_form *f, const decode_layout *m, const gpu *g);

/* The same for products that may make their input by themselves. */
product_room product_room_choose_any(const decode_form *f, const gpu *g);

/* Hands out processors and places of the ring. Returns the blocks, and what each asks for. */
uint32_t product_room_place(const product_room *r, const gpu *g, decode_product_any *p,
                            uint32_t *shared_bytes);

#endif
