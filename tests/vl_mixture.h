/*
 * A directory of Qwen3-VL made over into one of its mixtures that computes the same, so that what was
 * recorded of the one must hold for the other.
 */
#ifndef LACE_TESTS_VL_MIXTURE_H
#define LACE_TESTS_VL_MIXTURE_H

#include <stdbool.h>

/*
 * Writes it into the scratch folder, with four experts in a layer, as published mixtures have them.
 * is_cut: each has a quarter of the feed-forward part, and all are used alike; else each has all of
 * it, and two are used, in shares that only make one if they are divided by their sum.
 */
bool vl_mixture_write(const char *directory, bool is_cut);

#endif
