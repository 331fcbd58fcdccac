/* Memory with guards, random data and comparisons for the checks. */
#include "checkkernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_internal.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

enum { GUARD_BYTES = 192, MAX_BLOCKS = 1024, POISON = 0xFF, GUARD = 0xAA };

static struct {
    uint8_t *start; /* of the first guard */
    uint64_t n_bytes;
} blocks[MAX_BLOCKS];
static int n_blocks;

/*
 * guard | data | guard: both guards touch the data, so that a write of one byte too many shows. The
 * data starts on 64 bytes.
 */
void *check_alloc(uint64_t n_bytes)
{
    uint64_t whole = (n_bytes + 2 * GUARD_BYTES + 63) & ~(uint64_t)63;
    uint8_t *start = n_blocks < MAX_BLOCKS ? aligned_alloc(64, whole) : NULL;
    if (!start) {
        fprintf(stderr, "checkkernels: cannot have %llu bytes\n", (unsigned long long)whole);
        exit(2);
    }
    memset(start, GUARD, whole);
    memset(start + GUARD_BYTES, POISON, n_bytes);
    blocks[n_blocks].start = start;
    blocks[n_blocks++].n_bytes = n_bytes;
    return start + GUARD_BYTES;
}

void check_release(void)
{
    for (int i = 0; i < n_blocks; i++) {
        const uint8_t *start = blocks[i].start, *end = start + GUARD_BYTES + blocks[i].n_bytes;
        for (int k = 0; k < GUARD_BYTES; k++) {
            if (start[k] == GUARD && end[k] == GUARD)
                continue;
            int at = start[k] != GUARD ? GUARD_BYTES - k : k;
            check_fail("written %d bytes %s of buffer %d (%llu bytes)", at,
                       start[k] != GUARD ? "before the start" : "past the end", i,
                       (unsigned long long)blocks[i].n_bytes);
            break;
        }
        free(blocks[i].start);
    }
    n_blocks = 0;
}

/* ---- Random data ----------------------------------------------------------------------------- */

static uint64_t state;

void check_seed(uint64_t seed)
{
    state = seed;
}

uint64_t check_random(void) /* SplitMix64 */
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int check_random_int(int low, int high)
{
    return low + (int)(check_random() % (uint64_t)(high - low + 1));
}

float check_random_f32(float low, float high)
{
    return low + (high - low) * (float)(check_random() >> 40) * 0x1p-24f;
}

const char *check_fill_name(check_fill kind)
{
    static const char *const names[] = {"normal", "outlier", "tiny", "large", "zero", "equal"};
    return names[kind];
}

/* Three uniform numbers are bell-shaped enough, and cheap. */
static float bell(void)
{
    return check_random_f32(-1, 1) + check_random_f32(-1, 1) + check_random_f32(-1, 1);
}

void check_fill_f32(float *x, int64_t n, check_fill kind)
{
    float one = check_random_f32(0.5f, 2.0f);
    for (int64_t i = 0; i < n; i++) {
        bool is_negative = check_random() >> 63;
        switch (kind) {
        case CHECK_OUTLIER:
            x[i] = bell() * (check_random_int(0, 40) == 0 ? 500.0f : 1.0f);
            break;
        case CHECK_TINY:
            x[i] = bell() * 1e-20f;
            break;
        case CHECK_LARGE:
            x[i] = bell() * 1e8f;
            break;
        case CHECK_ZERO:
            x[i] = is_negative ? -0.0f : 0.0f;
            break;
        case CHECK_EQUAL:
            x[i] = is_negative ? -one : one;
            break;
        default:
            x[i] = bell();
        }
    }
}

void check_fill_bytes(void *x, uint64_t n_bytes)
{
    uint8_t *p = x;
    for (uint64_t i = 0; i < n_bytes; i++)
        p[i] = (uint8_t)(check_random() >> 56);
}

/* ---- Operands -------------------------------------------------------------------------------- */

operand check_operand(act_format format, int64_t width, int64_t n_rows)
{
    operand o = {.value = 0, .format = format, .width = width};
    o.stride = act_row_bytes(format, width);
    if (format == ACT_F32)
        o.stride += 64;
    o.data = check_alloc(o.stride * (uint64_t)n_rows);
    return o;
}

operand check_operand_copy(const operand *o, int64_t n_rows)
{
    operand copy = *o;
    copy.data = check_alloc(o->stride * (uint64_t)n_rows);
    memcpy(copy.data, o->data, o->stride * (uint64_t)n_rows);
    return copy;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

bool check_true(bool ok, const char *what)
{
    if (!ok)
        check_fail("%s", what);
    return ok;
}

bool check_bytes(const char *what, const void *want, const void *got, uint64_t n_bytes)
{
    const uint8_t *a = want, *b = got;
    if (memcmp(a, b, n_bytes) == 0)
        return true;
    uint64_t i = 0, n = 0;
    while (a[i] == b[i])
        i++;
    for (uint64_t k = i; k < n_bytes; k++)
        n += a[k] != b[k];
    check_fail("%s: %llu of %llu bytes differ; the first is byte %llu: %d, expected %d", what,
               (unsigned long long)n, (unsigned long long)n_bytes, (unsigned long long)i, b[i],
               a[i]);
    return false;
}

/* Sums are double: the square of 1e-20 does not vanish, that of 1e30 does not overflow. */
typedef struct error_sum {
    double error, size;
    int64_t worst;
    double worst_error;
} error_sum;

static void add_errors(error_sum *sum, const float *want, const float *got, int64_t n,
                       int64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        if (isinf(want[i]) && want[i] == got[i])
            d = 0;
        sum->error += d * d;
        sum->size += isinf(want[i]) ? 0 : (double)want[i] * want[i];
        if (!(fabs(d) <= sum->worst_error)) {
            sum->worst = first + i;
            sum->worst_error = fabs(d);
        }
    }
}

static bool judge(const char *what, const error_sum *sum, double max_nmse, float want, float got)
{
    if (sum->error <= max_nmse * sum->size) /* false for a NaN */
        return true;
    check_fail("%s: NMSE %.3g, allowed %.3g; worst at %lld: %.9g, expected %.9g", what,
               sum->error / sum->size, max_nmse, (long long)sum->worst, got, want);
    return false;
}

bool check_f32(const char *what, const float *want, const float *got, int64_t n, double max_nmse)
{
    error_sum sum = {.worst_error = 0};
    add_errors(&sum, want, got, n, 0);
    return judge(what, &sum, max_nmse, want[sum.worst], got[sum.worst]);
}

bool check_rows(const char *what, const operand *want, const operand *got, int64_t n_rows,
                double max_nmse)
{
    error_sum sum = {.worst_error = 0};
    uint64_t padding = want->stride - 4 * (uint64_t)want->width;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *a = check_row(want, r), *b = check_row(got, r);
        add_errors(&sum, a, b, want->width, r * want->width);
        if (memcmp(a + want->width, b + want->width, padding) != 0) {
            check_fail("%s: written past the end of row %lld", what, (long long)r);
            return false;
        }
    }
    int64_t r = sum.worst / want->width, i = sum.worst % want->width;
    return n_rows == 0 || judge(what, &sum, max_nmse, check_row(want, r)[i], check_row(got, r)[i]);
}
