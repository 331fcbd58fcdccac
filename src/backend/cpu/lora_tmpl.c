/*
 * LoRA adapters (ops/lora.h). Compiled once per CPU level (level.h).
 *
 * Rows that use an adapter are found by going through the batch, up to LORA_ROWS at a time, and
 * taken four at a time: an adapter's values are loaded once for them. Each row has sums of its own,
 * so what comes out of it does not depend on which others are there.
 */
#include "backend/cpu/level.h"

#include "ops/lora.h"

#include "base/numbers.h"
#include "base/threads.h"
#include "backend/cpu/ops.h"

/* Rows that are listed at once; rows and values of `down` that are multiplied together. */
enum { LORA_ROWS = 64, LORA_X = 4, LORA_A = VW == 16 ? 4 : 2 };

ALWAYS_INLINE vf load(const dtype type, const uint8_t *values, int64_t i)
{
    return type == DTYPE_F32   ? v_load((const float *)values + i)
           : type == DTYPE_F16 ? v_load_f16(values + 2 * i)
                               : v_load_bf16(values + 2 * i);
}

/* From row *next on, up to LORA_ROWS that use the adapter; how many. */
static int list_rows(const step *s, const batch *b, const lora_pair *p, int64_t *next,
                     int32_t rows[LORA_ROWS])
{
    int64_t n_rows = step_rows(s, b);
    int n = 0;
    for (; *next < n_rows && n < LORA_ROWS; ++*next)
        if (lora_scale(s, b, p, *next) != 0)
            rows[n++] = (int32_t)*next;
    return n;
}

/* ---- Down ------------------------------------------------------------------------------------ */

/* Of n_x rows of x their products with n_a rows of `down`, from `a` on: low[x][a]. */
ALWAYS_INLINE void products(const dtype type, const uint8_t *down, int64_t n_in, const int n_x,
                            const int n_a, const float *const *x, float *const *low)
{
    vf sums[LORA_X][LORA_A];
    int64_t stride = lora_padded(n_in), i = 0;
    for (int t = 0; t < n_x; t++)
        for (int a = 0; a < n_a; a++)
            sums[t][a] = v_set(0);
    for (; i + VW <= n_in; i += VW) {
        vf values[LORA_A];
        for (int a = 0; a < n_a; a++)
            values[a] = load(type, down, a * stride + i);
        for (int t = 0; t < n_x; t++) {
            vf y = v_load(x[t] + i);
            for (int a = 0; a < n_a; a++)
                sums[t][a] = v_fma(values[a], y, sums[t][a]);
        }
    }
    for (int t = 0; i < n_in && t < n_x; t++) { /* down is padded, x is not */
        vf y = v_load_n(x[t] + i, n_in - i);
        for (int a = 0; a < n_a; a++)
            sums[t][a] = v_fma(load(type, down, a * stride + i), y, sums[t][a]);
    }
    for (int t = 0; t < n_x; t++)
        for (int a = 0; a < n_a; a++)
            low[t][a] = v_sum(sums[t][a]);
}

ALWAYS_INLINE void products_of_type(const dtype type, const uint8_t *down, int64_t n_in, int n_x,
                                    int n_a, const float *const *x, float *const *low)
{
    if (n_x == LORA_X && n_a == LORA_A) {
        products(type, down, n_in, LORA_X, LORA_A, x, low);
        return;
    }
    for (int t = 0; t < n_x; t++) {
        if (n_a == LORA_A) {
            products(type, down, n_in, 1, LORA_A, x + t, low + t);
            continue;
        }
        for (int a = 0; a < n_a; a++) {
            float *at = low[t] + a;
            products(type, down + (uint64_t)a * row_bytes(type, lora_padded(n_in)), n_in, 1, 1,
                     x + t, &at);
        }
    }
}

/* Values [r, r + n_a) of an adapter, for the rows listed. */
static void down_rows(const step *s, const lora_pair *p, int32_t r, int n_a, const int32_t *rows,
                      int n_rows)
{
    int64_t n_in = s->a.lora.site->n_in;
    const uint8_t *down = p->down + (uint64_t)r * row_bytes(p->type, lora_padded(n_in));
    for (int i = 0; i < n_rows; i += LORA_X) {
        int n_x = (int)min_i64(n_rows - i, LORA_X);
        const float *x[LORA_X];
        float *low[LORA_X];
        for (int t = 0; t < n_x; t++) {
            x[t] = operand_row(&s->in[0], rows[i + t]);
            low[t] = operand_row(&s->out[0], rows[i + t]) + p->first + r;
        }
        if (p->type == DTYPE_F32)
            products_of_type(DTYPE_F32, down, n_in, n_x, n_a, x, low);
        else if (p->type == DTYPE_F16)
            products_of_type(DTYPE_F16, down, n_in, n_x, n_a, x, low);
        else
            products_of_type(DTYPE_BF16, down, n_in, n_x, n_a, x, low);
    }
}

static void lora_down(const step *s, const batch *b, const worker *w)
{
    const lora_site *site = s->a.lora.site;
    int32_t rows[LORA_ROWS];
    int64_t unit = 0; /* some values of an adapter for some rows: workers take them in turn */
    if (!b->adapter_scales)
        return;
    if (site->is_table) {
        lora_down_ref(s, b, w);
        return;
    }
    for (int32_t i = 0; i < site->n_pairs; i++) {
        const lora_pair *p = &site->pairs[i];
        int64_t next = 0;
        for (int n; (n = list_rows(s, b, p, &next, rows)) > 0;)
            for (int32_t r = 0; r < p->rank; r += LORA_A)
                if (unit++ % w->count == w->index)
                    down_rows(s, p, r, (int)min_i64(p->rank - r, LORA_A), rows, n);
    }
}

/* ---- Up -------------------------------------------------------------------------------------- */

/* Vectors of columns that are summed together: with 16 values in each two panels, so that what is
 * loaded meets four multiply-adds. */
enum { UP_VECTORS = VW == 16 ? 4 : 2 };

/* n_x rows: y[c .. c + n) += factor[x] * the sum over rank of low and `up`, n <= n_v * VW. */
ALWAYS_INLINE void add_up(const dtype type, const lora_pair *p, int64_t c, int64_t n, const int n_x,
                          const int n_v, const float *const *low, const float *factors,
                          float *const *y)
{
    const int64_t value_bytes = type == DTYPE_F32 ? 4 : 2;
    vf sums[LORA_X][UP_VECTORS];
    const uint8_t *up[UP_VECTORS];
    for (int k = 0; k < n_v; k++)
        up[k] = p->up + value_bytes * lora_up_at(p, 0, c + k * VW);
    for (int t = 0; t < n_x; t++)
        for (int k = 0; k < n_v; k++)
            sums[t][k] = v_set(0);
    for (int32_t r = 0; r < p->rank; r++) {
        vf values[UP_VECTORS];
        for (int k = 0; k < n_v; k++)
            values[k] = load(type, up[k], (int64_t)r * LORA_PANEL);
        for (int t = 0; t < n_x; t++) {
            vf x = v_set(low[t][r]);
            for (int k = 0; k < n_v; k++)
                sums[t][k] = v_fma(values[k], x, sums[t][k]);
        }
    }
    for (int t = 0; t < n_x; t++)
        for (int k = 0; k < n_v && k * VW < n; k++) {
            float *at = y[t] + c + k * VW;
            int64_t left = min_i64(n - k * VW, VW);
            if (left == VW)
                v_store(at, v_fma(sums[t][k], v_set(factors[t]), v_load(at)));
            else
                v_store_n(at, v_fma(sums[t][k], v_set(factors[t]), v_load_n(at, left)), left);
        }
}

ALWAYS_INLINE void up_of_type(const dtype type, const lora_pair *p, int64_t begin, int64_t end,
                              int n_x, const float *const *low, const float *factors,
                              float *const *y)
{
    int64_t n;
    for (int64_t c = begin; c < end; c += n) {
        n = min_i64(end - c, UP_VECTORS * VW);
        bool is_wide = n > 2 * VW; /* behind the last panel there is nothing to load */
        if (n_x == LORA_X && is_wide)
            add_up(type, p, c, n, LORA_X, UP_VECTORS, low, factors, y);
        else if (n_x == LORA_X)
            add_up(type, p, c, n, LORA_X, 2, low, factors, y);
        for (int t = 0; n_x < LORA_X && t < n_x; t++)
            if (is_wide)
                add_up(type, p, c, n, 1, UP_VECTORS, low + t, factors + t, y + t);
            else
                add_up(type, p, c, n, 1, 2, low + t, factors + t, y + t);
    }
}

/* Columns [begin, end) of the rows listed. */
static void up_rows(const step *s, const batch *b, const lora_pair *p, int64_t begin, int64_t end,
                    const int32_t *rows, int n_rows)
{
    for (int i = 0; i < n_rows; i += LORA_X) {
        int n_x = (int)min_i64(n_rows - i, LORA_X);
        const float *low[LORA_X];
        float factors[LORA_X], *y[LORA_X];
        for (int t = 0; t < n_x; t++) {
            low[t] = operand_row(&s->in[0], rows[i + t]) + p->first;
            y[t] = operand_row(&s->out[0], rows[i + t]);
            factors[t] = lora_scale(s, b, p, rows[i + t]) * p->factor * s->a.lora.scale;
        }
        if (p->type == DTYPE_F32)
            up_of_type(DTYPE_F32, p, begin, end, n_x, low, factors, y);
        else if (p->type == DTYPE_F16)
            up_of_type(DTYPE_F16, p, begin, end, n_x, low, factors, y);
        else
            up_of_type(DTYPE_BF16, p, begin, end, n_x, low, factors, y);
    }
}

static void lora_up(const step *s, const batch *b, const worker *w)
{
    const lora_site *site = s->a.lora.site;
    int32_t rows[LORA_ROWS];
    int64_t begin, end;
    if (!b->adapter_scales)
        return;
    pool_share(site->n_out, LORA_PANEL, w->index, w->count, &begin, &end);
    for (int32_t i = 0; begin < end && i < site->n_pairs; i++) {
        int64_t next = 0;
        for (int n; (n = list_rows(s, b, &site->pairs[i], &next, rows)) > 0;)
            up_rows(s, b, &site->pairs[i], begin, end, rows, n);
    }
}

void FN(lora_use)(kernel_table *table)
{
    table->ops[OP_LORA_DOWN] = lora_down;
    table->ops[OP_LORA_UP] = lora_up;
}
