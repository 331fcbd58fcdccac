/*
 * What the threads of a warp do together with matrices, on the CPU: mma, mma.sp, ldmatrix, stmatrix,
 * and wgmma of sm_90a, with the layouts of NVIDIA's PTX ISA.
 *
 * A register of a warp is 32 words, one for each lane: f32 as its bits, f16 and bytes packed with the
 * first in the low bits. Registers of an operand are named by an array of pointers to such words, in
 * the order in which the instruction lists them; results may be operands, too. A function that can
 * be called wrongly by a kernel returns NULL, or a sentence that says what was wrong.
 *
 * Products of floats are exact, are summed in double, and are rounded once for each instruction. Real
 * tensor cores drop some low bits, in an order of their own: results there differ by as much.
 */
#ifndef LACE_TESTS_CARD_WARP_MATRIX_H
#define LACE_TESTS_CARD_WARP_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

enum { WARP_LANES = 32 };

typedef enum matrix_type { MATRIX_F16, MATRIX_BF16, MATRIX_S8, MATRIX_U8 } matrix_type;

/* ---- mma.sync and mma.sp --------------------------------------------------------------------- */

/*
 * mma.sync.m16n8k: d[4] = a x b + c[4]. f16 and bf16 (both factors the same): k is 8 or 16, a[k / 4],
 * b[k / 8], sums are f32. Bytes: k is 16 or 32, a[k / 8], b[k / 16], sums are s32 and wrap around.
 */
const char *warp_mma(int k, matrix_type a_type, matrix_type b_type, uint32_t *const *d,
                     uint32_t *const *a, uint32_t *const *b, uint32_t *const *c);

/*
 * mma.sp::ordered_metadata.m16n8k64 of bytes: `a` has those 2 of each 4 columns that `places` names,
 * 4 registers as b has. `selector`: the last operand, 0.
 */
const char *warp_mma_sparse(matrix_type a_type, matrix_type b_type, uint32_t *const *d,
                            uint32_t *const *a, uint32_t *const *b, uint32_t *const *c,
                            const uint32_t *places, int selector);

/* ---- ldmatrix and stmatrix ------------------------------------------------------------------- */

/*
 * n (1, 2, 4) matrices of 8 rows of 16 bytes: rows[8 * i + r] is where lane 8 * i + r says that row r
 * of matrix i begins; 8 * n of them are used. Whoever calls has checked that 16 bytes are there.
 */
void warp_load_matrices(uint32_t *const *d, int n, bool is_turned, const void *const *rows);
void warp_store_matrices(uint32_t *const *from, int n, bool is_turned, void *const *rows);

/* ---- wgmma ----------------------------------------------------------------------------------- */

/*
 * Each of the four warps of a group computes its own 16 rows, so that each has a state of its own,
 * and nothing waits for the others. Sums are hidden from wgmma_issue until wgmma_wait has them done:
 * their registers hold POISON meanwhile, and whoever reads too early computes with that. It is an
 * error if shared memory that is read, or registers of sums, change meanwhile, if wgmma.fence is
 * missing, or if a warp ends before its products.
 */
#define WGMMA_POISON 0xffc0dead /* also no number */

typedef struct wgmma_state wgmma_state;

/* Shared memory of a block: the byte with the address `base` is data[0]. */
typedef struct shared_view {
    uint8_t *data;
    uint32_t base, n_bytes;
} shared_view;

/* wgmma.mma_async.m64nNk16 of f16 or bf16, or .m64nNk32 of bytes. */
typedef struct wgmma_product {
    int n;                      /* columns of d: a multiple of 8, 256 at most */
    matrix_type a_type, b_type; /* both the same but for bytes */
    int warp;                   /* of the group: thread / 32 % 4 */
    uint32_t *const *d;         /* n / 2 registers; they stay where they are until the wait */
    uint32_t *const *a;         /* 4 registers; NULL: a_place */
    uint64_t a_place, b_place;  /* descriptors of matrices in shared memory */
    bool adds;                  /* scale-d: to what d has */
    int a_sign, b_sign;         /* imm-scale-a and -b: 1 or -1; bytes: 1 */
    bool a_turned, b_turned;    /* imm-trans-a and -b: K far apart, for f16 and bf16 only */
} wgmma_product;

wgmma_state *wgmma_create(void); /* NULL: no memory */
void wgmma_free(wgmma_state *s);

void wgmma_fence(wgmma_state *s);
const char *wgmma_issue(wgmma_state *s, const wgmma_product *p, const shared_view *memory);
void wgmma_commit(wgmma_state *s);
const char *wgmma_wait(wgmma_state *s, int n_left); /* all but the last n_left groups are done */
const char *wgmma_end(wgmma_state *s);              /* the warp has ended */

#endif
