/* lora_down and lora_up: adapters of several ranks and types, of which each row uses some or none. */
#include <string.h>

#include "checkkernels.h"
#include "ops/lora.h"
#include "tensor/codec/pack.h"

enum { N_ADAPTERS = 3, N_SEQUENCES = 4, MAX_ROWS = 70 };

static uint8_t *random_values(dtype type, int64_t n_rows, int64_t n, int64_t stride)
{
    uint8_t *out = check_alloc(row_bytes(type, n_rows * stride));
    float *row = check_alloc((uint64_t)stride * 4);
    for (int64_t r = 0; r < n_rows; r++) {
        memset(row, 0, (size_t)stride * 4);
        check_fill_f32(row, n, CHECK_NORMAL);
        pack_row(type, row, stride, out + row_bytes(type, r * stride));
    }
    return out;
}

static lora_site make_site(int64_t n_in, int64_t n_out, bool is_table, lora_pair *pairs)
{
    static const dtype types[N_ADAPTERS] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    lora_site site = {.n_in = n_in, .n_out = n_out, .is_table = is_table, .pairs = pairs};
    for (int32_t a = 0; a < N_ADAPTERS; a++) {
        int32_t rank = check_random_int(1, 20);
        int64_t padded = lora_padded(n_out);
        pairs[site.n_pairs++] =
            (lora_pair){.adapter = a,
                        .rank = rank,
                        .first = site.n_low,
                        .factor = 0.25f,
                        .type = types[a],
                        .down = is_table ? random_values(types[a], n_in, rank, rank)
                                         : random_values(types[a], rank, n_in, lora_padded(n_in)),
                        .up = random_values(types[a], rank, padded, padded)};
        site.n_low += rank;
    }
    return site;
}

/* Rows of sequences in any order; each sequence uses some of the adapters. */
typedef struct rows {
    int32_t sequences[MAX_ROWS], tokens[MAX_ROWS], outputs[MAX_ROWS];
    float scales[N_SEQUENCES][N_ADAPTERS];
    batch b;
} rows;

static void make_rows(rows *r, int n, int64_t n_vocab)
{
    for (int i = 0; i < n; i++) {
        r->sequences[i] = check_random_int(0, N_SEQUENCES - 1);
        r->tokens[i] = check_random_int(0, (int)n_vocab - 1);
        r->outputs[i] = n - 1 - i;
    }
    for (int i = 0; i < N_SEQUENCES; i++)
        for (int a = 0; a < N_ADAPTERS; a++)
            r->scales[i][a] = check_random_int(0, 2) ? 0 : check_random_f32(-2, 2);
    r->b = (batch){.n_tokens = n,
                   .n_outputs = n,
                   .tokens = r->tokens,
                   .sequences = r->sequences,
                   .outputs = r->outputs,
                   .adapter_scales = &r->scales[0][0],
                   .n_adapters = N_ADAPTERS};
}

/* An operand of zeros: what no adapter writes stays as it is. */
static operand zeros(int64_t width, int n)
{
    operand o = check_operand(ACT_F32, width, n);
    for (int i = 0; i < n; i++)
        memset(check_row(&o, i), 0, (size_t)width * 4);
    return o;
}

static operand random_rows(int64_t width, int n)
{
    operand o = check_operand(ACT_F32, width, n);
    for (int i = 0; i < n; i++)
        check_fill_f32(check_row(&o, i), width, CHECK_NORMAL);
    return o;
}

/* Both versions on the same step; `in` and `out` as they are before. */
static void compare(kernel_fn ref, kernel_fn fn, step *s, const batch *b, operand out, int workers)
{
    operand got = check_operand_copy(&out, b->n_tokens);
    s->out[0] = out;
    check_run(ref, s, b, 1, 0);
    s->out[0] = got;
    check_run(fn, s, b, workers, 0);
    check_rows("out", &out, &got, b->n_tokens, 1e-12); /* f32 sums in another order */
}

static void check_one(const kernel_table *ref, kernel_fn fn, op o)
{
    static const int widths[] = {1, 7, 16, 33, 64, 100, 257};
    static const int counts[] = {1, 3, 4, 9, MAX_ROWS};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int workers = 1; workers <= CHECK_MAX_WORKERS; workers++) {
                int n = counts[c], n_in = widths[w], n_out = widths[(w + c) % 7];
                bool is_table = workers == 2 && n_in > 1;
                check_shape("in %d out %d rows %d table %d workers %d", n_in, n_out, n, is_table,
                            workers);
                lora_pair pairs[N_ADAPTERS];
                lora_site site = make_site(n_in, n_out, is_table, pairs);
                rows r;
                make_rows(&r, n, n_in);
                step s = {.op = o, .row_factor = 1, .is_output = !is_table && workers == 3};
                s.a.lora.site = &site;
                s.a.lora.scale = 0.7f;
                s.in[0] = random_rows(o == OP_LORA_DOWN ? n_in : site.n_low, n);
                operand out = o == OP_LORA_DOWN ? zeros(site.n_low, n) : random_rows(n_out, n);
                compare(ref->ops[o], fn, &s, &r.b, out, workers);
            }
}

void check_lora(const kernel_table *ref, const kernel_table *table)
{
    static const op ops[] = {OP_LORA_DOWN, OP_LORA_UP};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (!check_begin(op_name(ops[i]), NULL, CHECK_FN(table->ops[ops[i]])))
            continue;
        check_one(ref, table->ops[ops[i]], ops[i]);
        check_end();
    }
}
