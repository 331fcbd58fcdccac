/*
 * The CPU level that a template, X_tmpl.c, is compiled for.
 *
 * The build compiles a template once for each level in its line of levels.mk. It gives the template
 * one macro, and the level's compiler flags:
 *
 *     LEVEL              the level's name: plain, avx2, avx2vnni, avx512, avx512vnni, avx512vbmi,
 *                        avx512vbmi2, neon, dotprod or i8mm
 *
 * A template includes this file first. It gives every template
 *
 *     FN(name)           name_<level>: what a template defines for others is called so
 *     LEVEL_NAME         the level's name as a string
 *     LEVEL_IS(name)     for #if: whether this is the level
 *     CAT(a, b)          a_b, after macros in both are replaced
 *     ALWAYS_INLINE, UNROLL          unroll.h
 *     LEVEL_BYTES        in a vector register
 *     LEVEL_DENSE_ROWS   rows that dense_tmpl.c holds in registers, in two vectors each
 *
 * All levels but plain, which leaves vectors to the compiler, have
 *
 *     vf, VW, v_add ...  vectors of floats: vec_<level>.h, and vec_math.h
 *     LEVEL_FLOAT_TOKENS tokens whose sums matmul_float_tmpl.c holds in registers
 *     LEVEL_HAS_WORDS    whether attention to many rows is done in fixed point (attend_words.h)
 *
 * Levels with products of bytes have these. The first are the names of headers, which a template
 * that needs their words includes by that name: #include LEVEL_DOT
 *
 *     LEVEL_DOT          dot_words and dot_bytes, and the words of tile_<level>.h
 *     LEVEL_TRELLIS      windows and levels of trellis codes, see trellis_avx512.h
 *     LEVEL_EXPAND       expand_tile of sparse tiles, see matmul_sparse_tmpl.c; of some levels
 *     LEVEL_FEW          if LEVEL_HAS_FEW
 *     LEVEL_SIGNED       whether weights of 8 bits are taken as signed bytes
 *     LEVEL_TOKENS       tokens that are multiplied at once: 4, or 8
 *     LEVEL_DIRECT       tokens up to which panels are not decoded first, or if none ever is, whose
 *                        activations stay in the L2 cache together
 *     LEVEL_DIRECT_TRELLIS           the same for trellis types
 *     LEVEL_PACK         the function that packs tiles (tiles.h)
 *     LEVEL_HAS_PAIRS    whether dot_pair multiplies with two tokens at once
 *     LEVEL_HAS_GEMM     whether there is gemm_<level>.h for many tokens
 *     LEVEL_HAS_FEW      whether there is few_<level>.h for few tokens
 */
#ifndef LACE_BACKEND_CPU_LEVEL_H
#define LACE_BACKEND_CPU_LEVEL_H

#include "backend/cpu/unroll.h"

#if !defined(LEVEL)
#error "LEVEL is not defined: templates are compiled by the Makefile, see levels.mk"
#endif

/* ---- Names ----------------------------------------------------------------------------------- */

#define CAT_(a, b)    a##_##b
#define CAT(a, b)     CAT_(a, b)
#define FN(name)      CAT(name, LEVEL)
#define STRING_(x)    #x
#define STRING(x)     STRING_(x)
#define LEVEL_NAME    STRING(LEVEL)
#define LEVEL_IS(who) (CAT(LEVEL_NUMBER, LEVEL) == CAT(LEVEL_NUMBER, who))

#define LEVEL_NUMBER_plain       1
#define LEVEL_NUMBER_avx2        2
#define LEVEL_NUMBER_avx2vnni    3
#define LEVEL_NUMBER_avx512      4
#define LEVEL_NUMBER_avx512vnni  5
#define LEVEL_NUMBER_avx512vbmi  6
#define LEVEL_NUMBER_avx512vbmi2 7
#define LEVEL_NUMBER_neon        8
#define LEVEL_NUMBER_dotprod     9
#define LEVEL_NUMBER_i8mm        10

/* The levels that multiply bytes in vectors of 512 bits. They differ in how bytes are looked up. */
#define IS_512_BYTES (LEVEL_IS(avx512vnni) || LEVEL_IS(avx512vbmi) || LEVEL_IS(avx512vbmi2))

/* ---- Vectors --------------------------------------------------------------------------------- */

#if LEVEL_IS(plain)
#define LEVEL_BYTES      16
#define LEVEL_DENSE_ROWS 4

#elif LEVEL_IS(avx2) || LEVEL_IS(avx2vnni)
#include "backend/cpu/vec_avx2.h"
#define LEVEL_BYTES        32
#define LEVEL_DENSE_ROWS   4
#define LEVEL_FLOAT_TOKENS 6
#define LEVEL_HAS_WORDS    0

#elif LEVEL_IS(avx512) || IS_512_BYTES
#include "backend/cpu/vec_avx512.h"
#define LEVEL_BYTES        64
#define LEVEL_DENSE_ROWS   8
#define LEVEL_FLOAT_TOKENS 12
#define LEVEL_HAS_WORDS    (!LEVEL_IS(avx512))

#elif LEVEL_IS(neon) || LEVEL_IS(dotprod) || LEVEL_IS(i8mm)
#include "backend/cpu/vec_neon.h"
#define LEVEL_BYTES        16
#define LEVEL_DENSE_ROWS   4
#define LEVEL_FLOAT_TOKENS 6
#define LEVEL_HAS_WORDS    0
#endif

/* ---- Products of bytes ----------------------------------------------------------------------- */

#if LEVEL_IS(avx2)
#define LEVEL_DOT     "backend/cpu/dot_avx2.h"
#define LEVEL_TRELLIS "backend/cpu/trellis_avx2.h"
#define LEVEL_EXPAND  "backend/cpu/expand_avx2.h"
#define LEVEL_SIGNED  1

#elif LEVEL_IS(avx2vnni)
#define LEVEL_DOT     "backend/cpu/dot_avx2vnni.h"
#define LEVEL_TRELLIS "backend/cpu/trellis_avx2.h"
#define LEVEL_SIGNED  0

#elif IS_512_BYTES
#define LEVEL_DOT     "backend/cpu/dot_avx512vnni.h"
#define LEVEL_FEW     "backend/cpu/few_avx512vnni.h"
#define LEVEL_TRELLIS "backend/cpu/trellis_avx512.h"
#define LEVEL_SIGNED  0
#if LEVEL_IS(avx512vbmi2)
#define LEVEL_EXPAND "backend/cpu/expand_avx512vbmi2.h"
#endif

#elif LEVEL_IS(neon)
#define LEVEL_DOT     "backend/cpu/dot_neon.h"
#define LEVEL_TRELLIS "backend/cpu/trellis_neon.h"
#define LEVEL_EXPAND  "backend/cpu/expand_neon.h"
#define LEVEL_SIGNED  1

#elif LEVEL_IS(dotprod)
#define LEVEL_DOT     "backend/cpu/dot_dotprod.h"
#define LEVEL_TRELLIS "backend/cpu/trellis_neon.h"
#define LEVEL_SIGNED  1

#elif LEVEL_IS(i8mm)
#define LEVEL_DOT     "backend/cpu/dot_i8mm.h"
#define LEVEL_TRELLIS "backend/cpu/trellis_neon.h"
#define LEVEL_SIGNED  0
#endif

/* ---- Tokens and panels ----------------------------------------------------------------------- */

/*
 * With trellis types decoding sets the pace, not memory: from the 9th token on a panel would be
 * decoded once for every 8 of them, so it is decoded first. tales-26m in T3, two cores of a Xeon,
 * tokens a second of 16 and 32 texts at once: 2,449 and 2,680 straight from the tiles, 3,419 and
 * 4,194 to 5,480 this way.
 */
#if IS_512_BYTES
#define LEVEL_TOKENS         8 /* their sums fit in registers beside 8 vectors of weights */
#define LEVEL_DIRECT         32
#define LEVEL_DIRECT_TRELLIS 8
#define LEVEL_PACK           tiles_pack_avx512
#define LEVEL_HAS_PAIRS      0
#define LEVEL_HAS_GEMM       1
#define LEVEL_HAS_FEW        1

#elif defined(LEVEL_DOT)
#define LEVEL_TOKENS         4
#define LEVEL_DIRECT         64
#define LEVEL_DIRECT_TRELLIS 64
#define LEVEL_PACK           tiles_pack_plain
#define LEVEL_HAS_PAIRS      LEVEL_IS(i8mm)
#define LEVEL_HAS_GEMM       0
#define LEVEL_HAS_FEW        0
#endif

/* ---- What is missing ------------------------------------------------------------------------- */

#if !defined(LEVEL_BYTES) || !defined(LEVEL_DENSE_ROWS)
#error "level.h does not know this LEVEL, or its block lacks LEVEL_BYTES or LEVEL_DENSE_ROWS"
#endif

#if !LEVEL_IS(plain)
#if !defined(LEVEL_FLOAT_TOKENS) || !defined(LEVEL_HAS_WORDS)
#error "the block of this LEVEL lacks LEVEL_FLOAT_TOKENS or LEVEL_HAS_WORDS"
#endif
#include "backend/cpu/vec_math.h"
#endif

#if defined(LEVEL_DOT)
#if !defined(LEVEL_TRELLIS) || !defined(LEVEL_SIGNED) || !defined(LEVEL_TOKENS) ||                 \
    !defined(LEVEL_DIRECT) || !defined(LEVEL_DIRECT_TRELLIS) || !defined(LEVEL_PACK)
#error "the block of this LEVEL lacks one of LEVEL_TRELLIS ... LEVEL_PACK"
#endif
#if !defined(LEVEL_HAS_PAIRS) || !defined(LEVEL_HAS_GEMM) || !defined(LEVEL_HAS_FEW)
#error "the block of this LEVEL lacks one of LEVEL_HAS_PAIRS, LEVEL_HAS_GEMM and LEVEL_HAS_FEW"
#endif
#if LEVEL_HAS_FEW && !defined(LEVEL_FEW)
#error "the block of this LEVEL has LEVEL_HAS_FEW, but lacks LEVEL_FEW"
#endif
#endif

#endif
