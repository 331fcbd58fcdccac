/* rope: all versions round in the same places, and must give the same bits. */
#include <math.h>

#include "checkkernels.h"

/* n_heads heads of head_dim values, of which n_dims are rotated. */
static const struct {
    int n_heads, head_dim, n_dims;
} shapes[] = {{1, 64, 64}, {32, 128, 128}, {4, 96, 96},  {3, 80, 32}, {2, 256, 64},
              {5, 64, 16}, {7, 24, 20},    {1, 128, 64}, {2, 6, 2},   {8, 112, 112}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static step make_step(int n_heads, int head_dim, int n_dims, int n_tokens, check_fill fill)
{
    step s = {.op = OP_ROPE, .in = {check_operand(ACT_F32, n_dims, n_tokens)}};
    s.out[0] = check_operand(ACT_F32, (int64_t)n_heads * head_dim, n_tokens);
    for (int t = 0; t < n_tokens; t++) {
        check_fill_f32(check_row(&s.out[0], t), s.out[0].width, fill);
        for (int i = 0; i < n_dims / 2; i++) {
            float angle = check_random_f32(-3.2f, 3.2f);
            check_row(&s.in[0], t)[2 * i] = cosf(angle);
            check_row(&s.in[0], t)[2 * i + 1] = sinf(angle);
        }
    }
    s.a.rope.n_heads = n_heads;
    s.a.rope.head_dim = head_dim;
    s.a.rope.n_dims = n_dims;
    return s;
}

void check_rope(const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[OP_ROPE];
    if (!check_begin("rope", NULL, CHECK_FN(fn)))
        return;
    for (int i = 0; i < N_SHAPES; i++)
        for (int fill = 0; fill < CHECK_N_FILLS; fill++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_tokens = check_random_int(1, 9);
                bool is_neox = check_random_int(0, 1);
                check_shape("%d heads of %d, %d rotated, tokens %d %s%s workers %d",
                            shapes[i].n_heads, shapes[i].head_dim, shapes[i].n_dims, n_tokens,
                            check_fill_name((check_fill)fill), is_neox ? " neox" : "", n);
                step s = make_step(shapes[i].n_heads, shapes[i].head_dim, shapes[i].n_dims,
                                   n_tokens, (check_fill)fill);
                s.a.rope.is_neox = is_neox;
                batch b = {.n_tokens = n_tokens};
                operand want = s.out[0], got = check_operand_copy(&want, n_tokens);
                check_run(ref->ops[OP_ROPE], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                check_bytes("out", want.data, got.data, want.stride * (uint64_t)n_tokens);
            }
    for (int is_neox = 0; is_neox < 2 && check_is_bench(); is_neox++) {
        check_shape("bench");
        step s = make_step(32, 128, 128, 32, CHECK_NORMAL);
        s.a.rope.is_neox = is_neox;
        batch b = {.n_tokens = 32};
        check_bench_step(is_neox ? "32 x 128, 32 tokens, neox" : "32 x 128, 32 tokens", fn, &s, &b,
                         0, (check_rate){.n_bytes = 4.0 * 32 * 128 * 32});
    }
    check_end();
}
