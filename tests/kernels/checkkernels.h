/*
 * checkkernels: every kernel of every CPU level against the plain version of its operation.
 *
 * The program walks the levels that this machine has, from plain upward, builds the kernel table of
 * each, and calls every family in check_cases.def with it. A family asks check_begin() whether a
 * function is one that has not been seen, and if so runs the plain version and the new one on the
 * same random data and compares:
 *
 *     void check_add(const kernel_table *ref, const kernel_table *table)
 *     {
 *         if (!check_begin("add", NULL, CHECK_FN(table->ops[OP_ADD])))
 *             return;
 *         for (int width = 1; width < 100; width++) {
 *             check_shape("width %d", width);
 *             float *want = check_alloc(width * 4), *got = check_alloc(width * 4);
 *             ...fill the inputs, run both...
 *             check_f32("out", want, got, width, 1e-12);
 *         }
 *         check_end();
 *     }
 *
 * At the plain level `ref` and `table` hold the same functions; the checks then show that the
 * result does not depend on the number of workers, and that nothing is written outside.
 *
 * All memory comes from check_alloc(): it is filled with 0xFF (a NaN as f32 and as f16), with
 * guards at both ends that check_shape() and check_end() look at.
 */
#ifndef LACE_TESTS_CHECKKERNELS_H
#define LACE_TESTS_CHECKKERNELS_H

#include "backend/cpu/kernels.h"
#include "ops/op_info.h"

/* One function for each line of check_cases.def. `ref` is the table of plain functions. */
typedef struct check_case {
    const char *name;
    void (*run)(const kernel_table *ref, const kernel_table *table);
} check_case;

/* What the checks of a device are told of the options. */
typedef struct check_wish {
    bool is_named; /* --level names the device */
    bool is_all;   /* no operation and no type is chosen */
} check_wish;

#define X(name) void check_##name(const kernel_table *ref, const kernel_table *table);
#include "check_cases.def"
#undef X

/* ---- A case: one function, many shapes ------------------------------------------------------- */

/* What identifies a kernel: its function, or its matmul_impl. */
#define CHECK_FN(fn) ((const void *)(uintptr_t)(fn))

/*
 * Start the case "op type level" (type may be NULL), unless this version has been seen at a lower
 * level, is absent (NULL), or the options --op, --type or --level exclude it. The random numbers
 * start anew, from the seed, op and type: the same at every level and with every choice of options.
 */
bool check_begin(const char *op, const char *type, const void *version);

/* The next shape of the case: counts it, and names it in messages. Frees the memory of the last. */
__attribute__((format(printf, 1, 2))) void check_shape(const char *format, ...);

/* Print the case's line. */
void check_end(void);

/* ---- Data ------------------------------------------------------------------------------------ */

/* Aligned to 64 bytes, poisoned, guarded at both ends; freed by the
 * next check_shape or check_end. */
void *check_alloc(uint64_t n_bytes);

uint64_t check_random(void);
int check_random_int(int low, int high); /* both included */
float check_random_f32(float low, float high);

/* Values as they occur, and at the edges. */
typedef enum check_fill {
    CHECK_NORMAL,  /* bell curve of width 1 */
    CHECK_OUTLIER, /* the same, with a few values hundreds of times as large */
    CHECK_TINY,    /* around 1e-20 */
    CHECK_LARGE,   /* around 1e+8 */
    CHECK_ZERO,    /* zeros of both signs */
    CHECK_EQUAL,   /* one value and its negative: extremes in every place, ties in rounding */
    CHECK_N_FILLS
} check_fill;

const char *check_fill_name(check_fill kind);
void check_fill_f32(float *x, int64_t n, check_fill kind);
void check_fill_bytes(void *x, uint64_t n_bytes);

/* An operand of n_rows rows (rows of f32 are padded by a few values, to see
 * that strides are used). */
operand check_operand(act_format format, int64_t width, int64_t n_rows);
static inline float *check_row(const operand *o, int64_t row)
{
    return (float *)(void *)(o->data + (uint64_t)row * o->stride);
}
/* Another operand of the same form with the same bytes. */
operand check_operand_copy(const operand *o, int64_t n_rows);

/* ---- Running --------------------------------------------------------------------------------- */

enum { CHECK_MAX_WORKERS = 3 };

/*
 * Run a step as n_workers workers, one after the other (with --threads: on threads). Each has
 * scratch of exactly step_scratch_bytes(s, b->n_tokens, n_context), poisoned and guarded.
 */
void check_run(kernel_fn fn, const step *s, const batch *b, int n_workers, int64_t n_context);

/* ---- Comparing ------------------------------------------------------------------------------- */

/*
 * Normalized mean square error: sum (got - want)^2 / sum want^2 <= max_nmse. A NaN fails. State the
 * reason for max_nmse where it is given.
 */
bool check_f32(const char *what, const float *want, const float *got, int64_t n, double max_nmse);

/* The same over the rows of an operand of format ACT_F32; the padding must be untouched. */
bool check_rows(const char *what, const operand *want, const operand *got, int64_t n_rows,
                double max_nmse);

bool check_bytes(const char *what, const void *want, const void *got, uint64_t n_bytes);

/* Any other claim. */
bool check_true(bool ok, const char *what);

/* Whether this is a GPU, which sums in f32 where the CPU's levels do in double. */
bool check_is_gpu(void);

/* Whether --quick was given. Families then leave out large shapes, and some combinations. */
bool check_is_quick(void);

/* ---- Timing ---------------------------------------------------------------------------------- */

/* Whether --bench was given. Families then time a few shapes that models have. */
bool check_is_bench(void);

typedef struct check_rate {
    double n_bytes; /* moved by one run; 0: do not show GB/s */
    double n_macs;  /* multiplied and added by one run; 0: do not show */
} check_rate;

/* Time a step on --threads threads and print a line. `what` names the shape. */
void check_bench_step(const char *what, kernel_fn fn, const step *s, const batch *b,
                      int64_t n_context, check_rate rate);

/* Time anything else, e.g. a matmul_impl: run(arg, worker, n_workers) on all threads. */
void check_bench(const char *what, void (*run)(void *arg, int worker, int n_workers), void *arg,
                 check_rate rate);

/*
 * The device may take numbers below the smallest normal float as 0, in what it reads, computes on the
 * way and writes. Vulkan leaves that to a device unless a shader asks, and many cannot be asked.
 */
extern bool check_may_flush;

/* Attention may take weights as halves: cooperative matrices do. */
extern bool check_has_matrices;

/* Products of heads may take inputs as planes of int8, with 15 bits and a sign: dot4 does. */
extern bool check_has_planes;

/* Quotients may be off by 2.5 units in the last place, as Vulkan allows. */
extern bool check_divides_roughly;

#endif
