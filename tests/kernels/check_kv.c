/*
 * kv_write and rope_kv: what is stored in the cache. All versions round in the same places, so that
 * the whole cache must be equal, the bytes between and around the rows included.
 */
#include <math.h>

#include "check_cache.h"

static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_IQ4_NL};
enum { N_TYPES = 3 };

/*
 * Heads and sizes; 24 and 40 do not fill a vector. v_in_k: rows of two parts,
 * which rope_kv does not write.
 */
static const struct {
    int n_heads, n_kv_heads, head_dim, n_dims, v_dim;
    bool v_in_k;
} shapes[] = {{4, 2, 64, 64, 64, false},   {8, 8, 32, 32, 32, false},    {6, 3, 96, 48, 96, false},
              {1, 1, 256, 64, 256, false}, {4, 1, 128, 128, 128, false}, {2, 2, 24, 24, 24, false},
              {5, 5, 40, 20, 40, false},   {4, 2, 64, 32, 96, false},    {1, 1, 72, 8, 64, true},
              {1, 1, 576, 64, 512, true}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void fill_rows(operand *o, int n_rows, check_fill fill)
{
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(o, r), o->width, fill);
}

/* Where rounding is decided: with a largest value of 127 the scale of a block is 1. */
static void fill_halves(float *x)
{
    static const float at[] = {127.0f,      0.5f, -0.5f, 1.5f,    -1.5f,        2.5f,
                               0.49999997f, 0.0f, 63.5f, -126.5f, -0.49999997f, 126.49999f};
    for (int i = 0; i < 32; i++)
        x[i] = at[i % (int)(sizeof at / sizeof at[0])];
}

/* All operands of both operations, for the batch of the cache. */
static step make_step(op which, int n_heads, int n_dims, check_fill fill, const check_cache *c)
{
    int n = c->b.n_tokens, dim = c->kv.head_dim, width = c->kv.n_heads * dim;
    int v_dim = c->kv.v_dim, rest = c->kv.v_in_k ? dim - v_dim : v_dim;
    step s = {.op = which};
    s.in[1] = check_operand(ACT_F32, (int64_t)c->kv.n_heads * rest, n);
    fill_rows(&s.in[1], n, fill);
    if (fill == CHECK_EQUAL && rest >= 32)
        fill_halves(check_row(&s.in[1], 0));
    if (which == OP_KV_WRITE) {
        s.in[0] = check_operand(ACT_F32, c->kv.v_in_k ? v_dim : width, n);
        fill_rows(&s.in[0], n, fill);
    } else {
        s.in[0] = check_operand(ACT_F32, n_dims, n);
        s.out[0] = check_operand(ACT_F32, (int64_t)n_heads * dim, n);
        s.out[1] = check_operand(ACT_F32, width, n);
        fill_rows(&s.out[0], n, fill);
        fill_rows(&s.out[1], n, fill);
        for (int t = 0; t < n; t++)
            for (int k = 0; k < n_dims / 2; k++) {
                float angle = check_random_f32(-3.2f, 3.2f);
                check_row(&s.in[0], t)[2 * k] = cosf(angle);
                check_row(&s.in[0], t)[2 * k + 1] = sinf(angle);
            }
    }
    s.a.rope.n_heads = n_heads;
    s.a.rope.head_dim = dim;
    s.a.rope.n_dims = n_dims;
    s.a.rope.is_neox = check_random_int(0, 1);
    s.kv = c->kv;
    return s;
}

static cache_shape random_sequences(dtype type, int i)
{
    cache_shape cs = {.type = type,
                      .n_heads = shapes[i].n_kv_heads,
                      .head_dim = shapes[i].head_dim,
                      .v_dim = shapes[i].v_dim,
                      .v_in_k = shapes[i].v_in_k,
                      .page_tokens = 1 << check_random_int(0, 5),
                      .n_sequences = check_random_int(1, CACHE_MAX_SEQUENCES)};
    for (int k = 0; k < cs.n_sequences; k++) {
        cs.n_past[k] = check_random_int(0, 40);
        cs.n_new[k] = check_random_int(1, 9);
    }
    return cs;
}

static void bench(op which, kernel_fn fn, dtype type, const char *what, int n_tokens)
{
    if (!check_is_bench())
        return;
    check_cache c;
    cache_shape cs = {.type = type,
                      .n_heads = 8,
                      .head_dim = 128,
                      .page_tokens = 64,
                      .n_sequences = 1,
                      .n_past = {100},
                      .n_new = {n_tokens}};
    check_shape("bench");
    check_cache_init(&c, &cs);
    step s = make_step(which, 32, 128, CHECK_NORMAL, &c);
    double width = which == OP_KV_WRITE ? 2 * 8 * 128 : (32 + 8 + 8) * 128;
    check_bench_step(what, fn, &s, &c.b, c.n_context,
                     (check_rate){.n_bytes = 4 * width * n_tokens});
}

/*
 * A value that lies as good as between two numbers of Q8_0 becomes one or the other, as two quotients of
 * its block's largest are rounded. These are off by up to 3e-7, of numbers up to 127: less than one value
 * in 10,000 is that near to a half.
 */
bool check_divides_roughly;

static void forgive_halves(const uint8_t *want, uint8_t *got, uint64_t n)
{
    uint64_t n_forgiven = 0;
    for (uint64_t i = 0; i < n && n_forgiven < 1 + n / 10000; i++)
        if ((int8_t)(uint8_t)(got[i] - want[i]) == 1 || (int8_t)(uint8_t)(got[i] - want[i]) == -1) {
            got[i] = want[i];
            n_forgiven++;
        }
}

static void check_op(op which, const kernel_table *ref, const kernel_table *table, dtype type)
{
    static const check_fill fills[] = {CHECK_NORMAL, CHECK_OUTLIER, CHECK_TINY, CHECK_ZERO,
                                       CHECK_EQUAL};
    kernel_fn fn = table->ops[which];
    if (!check_begin(op_name(which), dtype_describe(type)->name, CHECK_FN(fn)))
        return;
    for (int i = 0; i < N_SHAPES; i++)
        for (int f = 0; f < 5 && shapes[i].head_dim % dtype_describe(type)->block_values == 0; f++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                check_cache c;
                if (shapes[i].v_in_k && which == OP_ROPE_KV)
                    continue;
                check_shape("%d heads, %d of kv, of %d, %d rotated, %s, workers %d",
                            shapes[i].n_heads, shapes[i].n_kv_heads, shapes[i].head_dim,
                            shapes[i].n_dims, check_fill_name(fills[f]), n);
                cache_shape cs = random_sequences(type, i);
                check_cache_init(&c, &cs);
                step s = make_step(which, shapes[i].n_heads, shapes[i].n_dims, fills[f], &c);
                operand want_q = s.out[0], want_k = s.out[1];
                operand got_q = want_q, got_k = want_k;
                bool is_rope = which == OP_ROPE_KV;
                if (is_rope) {
                    got_q = check_operand_copy(&want_q, c.b.n_tokens);
                    got_k = check_operand_copy(&want_k, c.b.n_tokens);
                }
                kv_layer got = check_cache_copy(&c);
                check_run(ref->ops[which], &s, &c.b, 1, c.n_context);
                s.out[0] = got_q;
                s.out[1] = got_k;
                s.kv = got;
                check_run(fn, &s, &c.b, n, c.n_context);
                if (check_divides_roughly && type == DTYPE_Q8_0)
                    forgive_halves(c.kv.data, got.data, c.n_bytes);
                check_bytes("cache", c.kv.data, got.data, c.n_bytes);
                if (is_rope) {
                    uint64_t rows = (uint64_t)c.b.n_tokens;
                    check_bytes("q", want_q.data, got_q.data, want_q.stride * rows);
                    check_bytes("k", want_k.data, got_k.data, want_k.stride * rows);
                }
            }
    bench(which, fn, type, "32/8 x 128, 1 token", 1);
    bench(which, fn, type, "32/8 x 128, 32 tokens", 32);
    check_end();
}

void check_kv(const kernel_table *ref, const kernel_table *table)
{
    const int n = check_is_gpu() ? 3 : N_TYPES; /* a GPU has none of 4 and 5 bits */
    for (int i = 0; i < n; i++)
        check_op(OP_KV_WRITE, ref, table, types[i]);
    for (int i = 0; i < n; i++)
        check_op(OP_ROPE_KV, ref, table, types[i]);
}
