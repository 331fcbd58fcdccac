/* glu, the row function that matmul_glu uses, add, and softcap. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "checkkernels.h"

/*
 * silu: exp is within 1.1 ulp in each version and three roundings follow, 7e-8 of a value on
 * average: squared 5e-15. gelu: the plain version computes 1 + tanh(u), which is off by 6e-8
 * however small it is; where such a value is the largest of a row, that is up to 3e-6 of it.
 * clamped, sigmoid and tanh: as silu, where one value may be most of a row. gelu: erfc is within 1.2e-7 of itself, and within 6e-8
 * of x^2 where that is large. relu2: two roundings.
 */
static const struct {
    const char *name;
    double max_nmse;
} kinds[GLU_COUNT] = {
    [GLU_SILU] = {"silu", 3e-14},       [GLU_GELU_TANH] = {"gelu_tanh", 1e-11},
    [GLU_CLAMPED] = {"clamped", 5e-14}, [GLU_GELU] = {"gelu", 5e-13},
    [GLU_RELU2] = {"relu2", 3e-14},     [GLU_SIGMOID] = {"sigmoid", 5e-14},
    [GLU_TANH] = {"tanh", 5e-14},       [GLU_PRODUCT] = {"product", 0},
};

bool check_may_flush;

/* A value that is taken as 0 is off by 1e-38 where the others of its row are near 1. */
static double max_nmse(glu_kind kind)
{
    return kinds[kind].max_nmse + (check_may_flush ? 1e-70 : 0);
}

/* What may be lost where a factor, or what comes of all of them, is taken as 0. */
static float flushed(float gate, float up)
{
    return check_may_flush ? FLT_MIN * fmaxf(fabsf(gate), 1) * fmaxf(fabsf(up), 1) : 0;
}

/* What differs by no more than that is taken as equal: of tiny rows it is all that there is. */
static void forgive_flushed(const step *s, const operand *want, const operand *got, int n_rows)
{
    for (int r = 0; check_may_flush && r < n_rows; r++)
        for (int i = 0; i < want->width; i++) {
            const float *a = &check_row(want, r)[i];
            float *c = &check_row(got, r)[i];
            if (fabsf(*a - *c) <= flushed(check_row(&s->in[0], r)[i], check_row(&s->in[1], r)[i]))
                *c = *a;
        }
}

static step make_step(op which, int width, int n_rows, check_fill fill)
{
    step s = {.op = which};
    for (int i = 0; i < 2; i++) {
        s.in[i] = check_operand(ACT_F32, width, n_rows);
        for (int r = 0; r < n_rows; r++)
            check_fill_f32(check_row(&s.in[i], r), width, i == 0 ? fill : CHECK_NORMAL);
    }
    return s;
}

static void bench(kernel_fn fn, step s, const char *what, int width, int n_rows)
{
    if (!check_is_bench())
        return;
    check_shape("bench");
    step made = make_step(s.op, width, n_rows, CHECK_NORMAL);
    made.a = s.a;
    made.out[0] = check_operand(ACT_F32, width, n_rows);
    memset(made.out[0].data, 0, made.out[0].stride * (uint64_t)n_rows);
    batch b = {.n_tokens = n_rows};
    check_bench_step(what, fn, &made, &b, 0, (check_rate){.n_bytes = 12.0 * width * n_rows});
}

/* Where exp overflows, vanishes or becomes subnormal. */
static void fill_edges(float *x, int n)
{
    static const float edges[] = {0.0f,    -0.0f,   88.0f,  89.0f, -88.0f, -87.4f, -90.0f,
                                  -103.0f, -104.5f, 200.0f, 1e30f, -1e30f, 0.624f, 0.626f,
                                  9.0f,    -9.0f,   5.0f,   -5.0f, 1e-30f, 1e-38f, -1e-40f};
    for (int i = 0; i < n; i++)
        x[i] = edges[i % (int)(sizeof edges / sizeof edges[0])];
}

static void check_glu_kind(const kernel_table *ref, const kernel_table *table, glu_kind kind)
{
    const char *name = kinds[kind].name;
    kernel_fn fn = table->ops[OP_GLU];
    if (!check_begin("glu", name, CHECK_FN(fn)))
        return;
    for (int width = 1; width < 12000; width = width < 40 ? width + 3 : width * 2 + 1)
        for (int fill = 0; fill <= CHECK_N_FILLS; fill++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_rows = check_random_int(1, 14);
                bool is_edges = fill == CHECK_N_FILLS;
                if (fill == CHECK_LARGE) /* its cube overflows; the edges have 1e30 for silu */
                    continue;
                check_shape("%s width %d rows %d %s workers %d", name, width, n_rows,
                            is_edges ? "edges" : check_fill_name((check_fill)fill), n);
                step s =
                    make_step(OP_GLU, width, n_rows, is_edges ? CHECK_NORMAL : (check_fill)fill);
                if (is_edges) {
                    fill_edges(check_row(&s.in[0], 0), width);
                    for (int i = 0; i < width && (kind == GLU_GELU_TANH || kind == GLU_RELU2); i++)
                        if (fabsf(check_row(&s.in[0], 0)[i]) > 1e12f)
                            check_row(&s.in[0], 0)[i] = 1e12f;
                }
                s.a.glu.kind = kind;
                batch b = {.n_tokens = n_rows};
                operand want = check_operand(ACT_F32, width, n_rows);
                operand got = check_operand_copy(&want, n_rows);
                s.out[0] = want;
                check_run(ref->ops[OP_GLU], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                if (is_edges) /* one by one, or the largest hides the others */
                    for (int i = 0; i < width; i++) {
                        float a = check_row(&want, 0)[i], c = check_row(&got, 0)[i];
                        /* 6e-8 |gate up|: what 1 + tanh(u) loses near -1. */
                        float gate = check_row(&s.in[0], 0)[i], up = check_row(&s.in[1], 0)[i];
                        float lost = 6e-8f * fabsf(gate * up) + flushed(gate, up);
                        check_true(fabsf(a - c) <= 1e-6f * fabsf(a) + lost + 1e-38f, "an edge");
                    }
                forgive_flushed(&s, &want, &got, n_rows);
                check_rows("out", &want, &got, n_rows, max_nmse(kind));
            }
    step s = {.op = OP_GLU};
    s.a.glu.kind = kind;
    bench(fn, s, "14336, 1 token", 14336, 1);
    bench(fn, s, "14336, 32 tokens", 14336, 32);
    check_end();
}

/* A gate with a value for several columns, and an activation alone. */
static void check_narrow_and_alone(const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[OP_GLU];
    if (!check_begin("glu", "narrow", CHECK_FN(fn)))
        return;
    for (int kind = 0; kind < GLU_COUNT; kind++)
        for (int share = 0; share < 70; share = 2 * share + 1) /* 0: without up */
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_rows = check_random_int(1, 5), n_gates = check_random_int(1, 40);
                int width = share ? share * n_gates : n_gates;
                if (kind == GLU_CLAMPED)
                    continue;
                check_shape("kind %d gates %d width %d workers %d", kind, n_gates, width, n);
                step s = make_step(OP_GLU, width, n_rows, CHECK_NORMAL);
                s.in[0].width = n_gates;
                s.in[1].value = share ? 0 : -1;
                s.a.glu.kind = (glu_kind)kind;
                batch b = {.n_tokens = n_rows};
                operand want = check_operand(ACT_F32, width, n_rows);
                operand got = check_operand_copy(&want, n_rows);
                s.out[0] = want;
                check_run(ref->ops[OP_GLU], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                check_rows("out", &want, &got, n_rows, max_nmse((glu_kind)kind) + 3e-14);
            }
    check_end();
}

static void check_glu_row(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("glu_row", NULL, CHECK_FN(table->glu_row)))
        return;
    for (int n = 1; n < 2000; n = n < 70 ? n + 1 : n * 2)
        for (int kind = GLU_SILU; kind < GLU_COUNT; kind++) {
            check_shape("kind %d width %d", kind, n);
            uint64_t bytes = 4 * (uint64_t)n;
            float *gate = check_alloc(bytes), *up = check_alloc(bytes);
            float *want = check_alloc(bytes), *got = check_alloc(bytes);
            check_fill_f32(gate, n, CHECK_NORMAL);
            check_fill_f32(up, n, CHECK_OUTLIER);
            ref->glu_row((glu_kind)kind, gate, up, n, want);
            table->glu_row((glu_kind)kind, gate, up, n, got);
            check_f32("out", want, got, n, max_nmse((glu_kind)kind));
        }
    float one = 1, got = 0;
    table->glu_row(GLU_COUNT, &one, &one, 1, &got);
    check_true(isnan(got), "what is no activation gives no number");
    check_end();
}

static void check_add(const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[OP_ADD];
    if (!check_begin("add", NULL, CHECK_FN(fn)))
        return;
    for (int width = 1; width < 9000; width = width < 40 ? width + 3 : width * 2 + 1)
        for (int fill = 0; fill < CHECK_N_FILLS; fill++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_rows = check_random_int(1, 14);
                check_shape("width %d rows %d %s workers %d", width, n_rows,
                            check_fill_name((check_fill)fill), n);
                step s = make_step(OP_ADD, width, n_rows, (check_fill)fill);
                s.a.add.scale = n == 1 ? 1.0f : check_random_f32(-2, 2);
                batch b = {.n_tokens = n_rows};
                operand want = s.in[1], got = check_operand_copy(&want, n_rows);
                s.out[0] = want;
                check_run(ref->ops[OP_ADD], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                /* One rounding less where multiply and add are fused: 6e-8 of the product, which
                 * may be a few times larger than the sum. Squared, 4e-15 to 1e-13. */
                check_rows("out", &want, &got, n_rows, 1e-13);
            }
    step s = {.op = OP_ADD};
    s.a.add.scale = 1.0f;
    bench(fn, s, "4096, 1 token", 4096, 1);
    bench(fn, s, "4096, 128 tokens", 4096, 128);
    check_end();
}

static void check_softcap(const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[OP_SOFTCAP];
    if (!check_begin("softcap", NULL, CHECK_FN(fn)))
        return;
    for (int width = 1; width < 9000; width = width < 40 ? width + 3 : width * 2 + 1)
        for (int fill = 0; fill <= CHECK_N_FILLS; fill++) {
            int n_rows = check_random_int(1, 14), n = check_random_int(1, CHECK_MAX_WORKERS);
            bool is_edges = fill == CHECK_N_FILLS;
            check_shape("width %d rows %d %s workers %d", width, n_rows,
                        is_edges ? "edges" : check_fill_name((check_fill)fill), n);
            step s =
                make_step(OP_SOFTCAP, width, n_rows, is_edges ? CHECK_NORMAL : (check_fill)fill);
            for (int r = 0; is_edges && r < n_rows; r++)
                fill_edges(check_row(&s.in[0], r), width);
            s.a.softcap.cap = n == 1 ? 30.0f : check_random_f32(0.5f, 50);
            batch b = {.n_tokens = n_rows};
            operand want = s.in[0], got = check_operand_copy(&want, n_rows);
            s.out[0] = want;
            check_run(ref->ops[OP_SOFTCAP], &s, &b, 1, 0);
            s.out[0] = got;
            check_run(fn, &s, &b, n, 0);
            check_rows("out", &want, &got, n_rows, max_nmse(GLU_TANH));
        }
    bench(fn, (step){.op = OP_SOFTCAP, .a.softcap.cap = 30}, "262144, 1 token", 262144, 1);
    check_end();
}

void check_glu(const kernel_table *ref, const kernel_table *table)
{
    for (int kind = 0; kind < GLU_COUNT; kind++)
        check_glu_kind(ref, table, (glu_kind)kind);
    check_narrow_and_alone(ref, table);
    check_glu_row(ref, table);
    check_add(ref, table);
    check_softcap(ref, table);
}
