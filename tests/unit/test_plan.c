/* plan/: fusion changes nothing but the number of steps; memory is shared only by the dead. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "backend/ref/ref.h"
#include "plan/build.h"
#include "tap.h"

enum { N = 64, FF = 96, TOKENS = 5, VOCAB = 40 };

static float table_data[VOCAB * N], w_data[8][FF * N], norm_data[N];

static float noise(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (1 << 24) - 0.5f;
}

static weight matrix(int i, int64_t n_rows, int64_t n_cols)
{
    return (weight){.type = DTYPE_F32,
                    .n_rows = n_rows,
                    .n_cols = n_cols,
                    .data = (const uint8_t *)w_data[i],
                    .impl = &matmul_ref};
}

static weight gate, up, down, head;

static void fill(void)
{
    unsigned seed = 7;
    for (size_t i = 0; i < sizeof table_data / 4; i++)
        table_data[i] = noise(&seed);
    for (size_t i = 0; i < sizeof w_data / 4; i++)
        (&w_data[0][0])[i] = noise(&seed);
    for (int i = 0; i < N; i++)
        norm_data[i] = noise(&seed) + 1;
    gate = matrix(0, FF, N);
    up = matrix(1, FF, N);
    down = matrix(2, N, FF);
    head = matrix(3, VOCAB, N);
}

/* A little network with three feed-forward layers. */
static plan *make(const kernel_table *table, bool is_fused)
{
    static tensor embedding = {.type = DTYPE_F32, .shape = {2, {N, VOCAB}}};
    embedding.data = (const uint8_t *)table_data;
    plan_limits limits = {.max_tokens = 8, .max_outputs = 8, .n_context = 32, .n_workers = 3};
    plan *p;
    CHECK(plan_create(table, &limits, &p, NULL) == LACE_OK);
    value x = plan_embed(p, &embedding, 2);
    for (int i = 0; i < 3; i++) {
        value n = plan_norm(p, x, norm_data, N, 1e-6);
        value g = plan_linear(p, n, &gate, NULL, 1), u = plan_linear(p, n, &up, NULL, 1);
        x = plan_add(p, x, plan_linear(p, plan_glu(p, GLU_SILU, g, u), &down, NULL, 1), 0.5f);
    }
    plan_result(p, plan_linear(p, plan_gather(p, x), &head, NULL, 1));
    if (is_fused)
        plan_fuse(p);
    plan_place(p);
    CHECK(plan_allocate(p, NULL, NULL) == LACE_OK);
    return p;
}

static void evaluate(const plan *p, int n_threads, float out[TOKENS][VOCAB])
{
    int32_t tokens[TOKENS] = {3, 1, 4, 1, 39}, positions[TOKENS] = {0, 1, 2, 3, 4};
    batch b = {.n_tokens = TOKENS,
               .n_outputs = TOKENS,
               .tokens = tokens,
               .positions = positions,
               .outputs = positions};
    pool *workers;
    CHECK(pool_create(n_threads, &workers, NULL) == LACE_OK);
    plan_run(p, workers, &b, NULL);
    for (int t = 0; t < TOKENS; t++)
        memcpy(out[t], plan_logits(p, t), sizeof out[t]);
    pool_free(workers);
}

static int count(const plan *p, op o)
{
    int n = 0;
    for (int32_t i = 0; i < p->n_steps; i++)
        n += p->steps[i].op == o;
    return n;
}

static void fusion_changes_no_result(void)
{
    kernel_table table;
    kernels_init(&table, CPU_PLAIN);
    plan *plain = make(&table, false), *fused = make(&table, true);
    static float a[TOKENS][VOCAB], b[TOKENS][VOCAB], c[TOKENS][VOCAB];
    evaluate(plain, 1, a);
    evaluate(fused, 1, b);
    evaluate(fused, 3, c);
    CHECK(count(fused, OP_MATMUL_GLU) == 3 && count(fused, OP_MATMUL_ADD) == 3);
    CHECK(count(fused, OP_MATMUL) == 1 && count(fused, OP_ADD) == 0);
    CHECK(fused->n_steps < plain->n_steps);
    /* The factor of add is applied before the sum instead of in it: the same products. */
    double worst = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < VOCAB; i++)
            worst = fmax(worst, fabs((double)a[t][i] - b[t][i]));
    CHECK(worst < 1e-5 && fabs(a[0][0]) > 1e-3);
    CHECK(memcmp(b, c, sizeof b) == 0);
    plan_free(plain);
    plan_free(fused);
}

static void living_values_do_not_overlap(void)
{
    kernel_table table;
    kernels_init(&table, CPU_PLAIN);
    plan *p = make(&table, true);
    uint64_t all = 0;
    for (int32_t i = 0; i < p->n_values; i++) {
        const plan_value *x = &p->values[i];
        all += x->n_bytes;
        for (int32_t j = 0; j < i; j++) {
            const plan_value *y = &p->values[j];
            bool live = x->n_bytes && y->n_bytes && x->first <= y->last && y->first <= x->last;
            bool apart = x->offset + x->n_bytes <= y->offset || y->offset + y->n_bytes <= x->offset;
            CHECK(!live || apart);
        }
    }
    CHECK(p->value_bytes < all); /* and the dead make room */
    plan_free(p);
}

static void dependent_steps_are_separated(void)
{
    kernel_table table;
    kernels_init(&table, CPU_PLAIN);
    plan *p = make(&table, true);
    for (int32_t i = 0; i + 1 < p->n_steps; i++)
        for (int j = 0; j < STEP_MAX_OUT; j++) {
            int32_t made = p->steps[i].out[j].value;
            if (made >= 0 && step_reads(&p->steps[i + 1], made))
                CHECK(!p->steps[i].skips_barrier);
        }
    plan_free(p);
}

/* Whatever the level: a plan with it is refused, before any kernel could take it for another. */
static void unknown_activations_and_absent_matrices_are_refused(void)
{
    static const char *const faults[] = {"activation", "activation", "matrix", "matrix"};
    kernel_table table;
    kernels_init(&table, cpu_level_detect());
    plan_limits limits = {.max_tokens = 1, .max_outputs = 1, .n_context = 1, .n_workers = 1};
    for (int i = 0; i < 4; i++) {
        weight absent = {0};
        moe_params moe = {.gate = i == 3 ? &absent : &gate,
                          .up = &up,
                          .down = &down,
                          .n_experts = 1,
                          .n_used = 1,
                          .glu = i == 1 ? GLU_COUNT : GLU_SILU};
        rope_params rope = {.n_dims = N};
        plan *p;
        lace_error err = {0};
        CHECK(plan_create(&table, &limits, &p, NULL) == LACE_OK);
        value x = plan_rope_table(p, &rope);
        p->layer = 5;
        x = i == 0   ? plan_glu(p, (glu_kind)GLU_COUNT, x, x)
            : i == 2 ? plan_linear(p, x, &absent, NULL, 1)
                     : plan_moe_add(p, x, x, x, &moe, 1);
        plan_result(p, plan_gather(p, plan_norm(p, x, norm_data, N, 1e-6)));
        CHECK(plan_finish(p, &err) == LACE_E_UNSUPPORTED);
        CHECK(strstr(err.text, faults[i]) && strstr(err.text, "layer 5"));
        plan_free(p);
    }
}

static void failing_allocations_are_clean(void)
{
    kernel_table table;
    kernels_init(&table, CPU_PLAIN);
    plan_limits limits = {.max_tokens = 1, .max_outputs = 1, .n_context = 1, .n_workers = 1};
    for (long i = 0; i < 4; i++) {
        plan *p;
        mem_fail_at(i, true);
        lace_status status = plan_create(&table, &limits, &p, NULL);
        if (status == LACE_OK) {
            rope_params rope = {.n_dims = 4};
            plan_result(p, plan_rope_table(p, &rope));
            status = plan_finish(p, NULL);
            if (status == LACE_OK)
                status = plan_allocate(p, NULL, NULL);
        }
        mem_fail_at(-1, false);
        CHECK(status == LACE_E_NOMEM);
        plan_free(p);
    }
}

int main(void)
{
    fill();
    CASE(fusion_changes_no_result);
    CASE(living_values_do_not_overlap);
    CASE(dependent_steps_are_separated);
    CASE(unknown_activations_and_absent_matrices_are_refused);
    CASE(failing_allocations_are_clean);
    return tap_end();
}
