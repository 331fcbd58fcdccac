/* The points and values that the IQ and FP4 types name by number. */
#include "tensor/iq_grids.h"

#include "tensor/iq_codes.h"

const uint64_t iq2_xxs_grid[256] = {IQ2_XXS_CODES(IQ2_POINT)};
const uint64_t iq2_xs_grid[512] = {IQ2_XS_CODES(IQ2_POINT)};
const uint64_t iq2_s_grid[1024] = {IQ2_S_CODES(IQ2_POINT)};
const uint64_t iq1_grid[2048] = {IQ1_CODES(IQ1_POINT)};
const uint32_t iq3_xxs_grid[256] = {IQ3_XXS_CODES(IQ3_XXS_POINT)};
const uint32_t iq3_s_grid[512] = {IQ3_S_CODES(IQ3_S_POINT)};
const int8_t iq4_values[16] = {IQ4_VALUES};
const int8_t fp4_values[16] = {FP4_VALUES};
