/* Where the lanes of a warp touch memory: addresses of all spaces become pointers, and are checked. */
#ifndef TESTS_CARD_PTX_ADDRESS_H
#define TESTS_CARD_PTX_ADDRESS_H

#include "ptx_run.h"

/*
 * Pointers to n_bytes each, which lie at multiples of `align`; lanes outside of the mask get that of a
 * lane in it. `where`: the operand with the address. false: the launch has failed.
 */
bool lane_pointers(warp *w, const instr *i, uint32_t where, int64_t offset, space_kind space,
                   uint32_t n_bytes, uint32_t align, uint32_t mask, uint8_t *out[N_LANES]);

/* Addresses as numbers, without a look at what they are. */
void lane_addresses(const warp *w, const instr *i, uint32_t where, int64_t offset,
                    uint64_t out[N_LANES]);

/* One pointer, for a lane. NULL: the launch has failed. */
uint8_t *one_pointer(warp *w, const instr *i, int lane, uint64_t address, space_kind space,
                     uint32_t n_bytes);

#endif
