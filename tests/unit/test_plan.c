/*
 * plan/ and its lowering for the CPU: a little model with attention, rotation and experts gives what
 * the plain kernels give; fusion changes nothing but the number of steps; memory is shared only by
 * the dead.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/lower.h"
#include "backend/ref/ref.h"
#include "backend/ref/ref_device.h"
#include "base/mem.h"
#include "plan/build.h"
#include "state/states.h"
#include "tap.h"

enum { N = 64, FF = 96, TOKENS = 5, VOCAB = 48, HEADS = 4, KV_HEADS = 2, HEAD = 16, EXPERTS = 4 };
enum { WQ, WK, WV, WO, GATE, UP, DOWN, ROUTER, HEAD_MATRIX, GATES, UPS, DOWNS, N_MATRICES };

static float table_data[VOCAB * N], w_data[N_MATRICES][EXPERTS * FF * N], norm_data[N];
static float frequencies[HEAD / 2];
static weight matrices[N_MATRICES], experts[3][EXPERTS], table;

static float noise(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (1 << 24) - 0.5f;
}

/* Matrices as the device would keep them. */
static void place(device *d, int which, int64_t n_rows, int64_t n_cols, int64_t skipped,
                  weight *out)
{
    weight_rows rows = {.type = DTYPE_F32,
                        .kept = DTYPE_F32,
                        .blocks = (const uint8_t *)(w_data[which] + skipped),
                        .n_rows = n_rows,
                        .n_cols = n_cols,
                        .n_bytes = (uint64_t)(n_rows * n_cols) * 4};
    CHECK(device_place(d, &rows, out, NULL) == LACE_OK);
}

static void place_all(device *d)
{
    static const int64_t shapes[N_MATRICES][2] = {{HEADS * HEAD, N},
                                                  {KV_HEADS * HEAD, N},
                                                  {KV_HEADS * HEAD, N},
                                                  {N, HEADS * HEAD},
                                                  {FF, N},
                                                  {FF, N},
                                                  {N, FF},
                                                  {EXPERTS, N},
                                                  {VOCAB, N}};
    unsigned seed = 7;
    for (size_t i = 0; i < sizeof table_data / 4; i++)
        table_data[i] = noise(&seed);
    for (size_t i = 0; i < sizeof w_data / 4; i++)
        (&w_data[0][0])[i] = noise(&seed);
    for (int i = 0; i < N; i++)
        norm_data[i] = noise(&seed) + 1;
    for (int i = 0; i < HEAD / 2; i++)
        frequencies[i] = 1.0f / (float)(1 + i);
    for (int i = 0; i <= HEAD_MATRIX; i++)
        place(d, i, shapes[i][0], shapes[i][1], 0, &matrices[i]);
    for (int e = 0; e < EXPERTS; e++) {
        place(d, GATES, FF, N, e * FF * N, &experts[0][e]);
        place(d, UPS, FF, N, e * FF * N, &experts[1][e]);
        place(d, DOWNS, N, FF, e * FF * N, &experts[2][e]);
    }
    table = (weight){
        .type = DTYPE_F32, .n_rows = VOCAB, .n_cols = N, .data = (const uint8_t *)table_data};
}

static value add_attention(plan *p, value n, value angles, const rope_params *rope,
                           const kv_layer *kv)
{
    attend_params attend = {.n_heads = HEADS, .scale = 0.25f};
    value q = plan_linear(p, n, &matrices[WQ], NULL, 1);
    value k = plan_linear(p, n, &matrices[WK], NULL, 1);
    value v = plan_linear(p, n, &matrices[WV], NULL, 1);
    q = plan_rope(p, q, angles, rope, HEADS, HEAD);
    k = plan_rope(p, k, angles, rope, KV_HEADS, HEAD);
    plan_kv_write(p, k, v, kv);
    return plan_linear(p, plan_attend(p, q, kv, &attend), &matrices[WO], NULL, 1);
}

static value add_ffn(plan *p, value x, value n, bool is_mixture)
{
    moe_params moe = {.gate = experts[0],
                      .up = experts[1],
                      .down = experts[2],
                      .n_experts = EXPERTS,
                      .n_used = 2,
                      .rule = {.norms = true},
                      .glu = GLU_SILU};
    if (is_mixture)
        return plan_moe_add(p, x, n, plan_linear(p, n, &matrices[ROUTER], NULL, 1), &moe, 1);
    value g = plan_linear(p, n, &matrices[GATE], NULL, 1);
    value u = plan_linear(p, n, &matrices[UP], NULL, 1);
    return plan_add(p, x, plan_linear(p, plan_glu(p, GLU_SILU, g, u), &matrices[DOWN], NULL, 1),
                    0.5f);
}

static value rms_norm(plan *p, value x, int64_t group)
{
    norm_params norm = {.kind = OP_RMS_NORM, .scales = norm_data, .group = group, .eps = 1e-6};
    return plan_norm(p, x, &norm);
}

/* Three layers: a dense one, and two with experts. */
static plan *build(const states *s)
{
    plan_limits limits = {.max_tokens = 8, .max_outputs = 8, .n_context = 32, .n_workers = 3};
    rope_params rope = {.frequencies = frequencies, .magnitude = 1, .n_dims = HEAD};
    plan *p;
    CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
    value x = plan_embed(p, &table, 2), angles = plan_rope_table(p, &rope);
    for (int i = 0; i < 3; i++) {
        p->layer = i;
        value n = rms_norm(p, x, N);
        x = plan_add(p, x, add_attention(p, n, angles, &rope, &s->layers[i].kv), 1);
        x = add_ffn(p, x, rms_norm(p, x, N), i > 0);
    }
    p->layer = -1;
    plan_result(p, plan_linear(p, plan_gather(p, x), &matrices[HEAD_MATRIX], NULL, 1));
    CHECK(plan_check(p, NULL) == LACE_OK);
    return p;
}

static states *make_states(void)
{
    layer_state layers[3];
    for (int i = 0; i < 3; i++)
        layers[i] = layer_state_paged(KV_HEADS, HEAD, HEAD, 0);
    states_options o = {.type = DTYPE_F32, .n_sequences = 1, .n_context = 32, .n_batch = 8};
    states *s;
    CHECK(states_create(layers, 3, &o, &s, NULL) == LACE_OK);
    CHECK(states_allocate(s, &host_queue, NULL) == LACE_OK);
    return s;
}

/* A device with the model on it, and the plan as its program. */
typedef struct made {
    device *d;
    states *s;
    plan *p;
    program *program;
    pool *workers;
} made;

static made make(const char *name, int n_threads)
{
    made m;
    device_options o = {.level = CPU_PLAIN, .mode = WEIGHTS_EXACT};
    program_options options = {.n_sequences = 1, .pages_per_sequence = 1, .n_groups = 1};
    CHECK(device_open(name, &o, &m.d, NULL) == LACE_OK);
    place_all(m.d);
    m.s = make_states();
    m.p = build(m.s);
    CHECK(pool_create(n_threads, &m.workers, NULL) == LACE_OK);
    CHECK(device_compile(m.d, m.p, &options, &m.program, NULL) == LACE_OK);
    uint8_t *pages[] = {m.s->groups[0].data};
    program_memory memory = {.queue = &host_queue, .workers = m.workers, .pages = pages};
    CHECK(program_prepare(m.program, &memory, NULL) == LACE_OK);
    return m;
}

static void unmake(made *m)
{
    program_free(m->program);
    plan_free(m->p);
    states_free(m->s);
    pool_free(m->workers);
    device_close(m->d);
}

static void evaluate(const char *name, int n_threads, float out[TOKENS][VOCAB])
{
    int32_t tokens[TOKENS] = {3, 1, 4, 1, VOCAB - 1}, positions[TOKENS] = {0, 1, 2, 3, 4};
    int32_t sequences[TOKENS] = {0};
    made m = make(name, n_threads);
    CHECK(states_reserve(m.s, 0, TOKENS, NULL) == LACE_OK);
    const int32_t *of[TOKENS], *const *groups[] = {of};
    for (int i = 0; i < TOKENS; i++)
        of[i] = m.s->sequences[0].tables[0];
    batch b = {.n_tokens = TOKENS,
               .n_outputs = TOKENS,
               .tokens = tokens,
               .positions = positions,
               .sequences = sequences,
               .outputs = positions,
               .pages = groups};
    CHECK(program_run(m.program, &b, NULL, false, NULL) == LACE_OK);
    for (int t = 0; t < TOKENS; t++)
        memcpy(out[t], program_logits(m.program, t), sizeof out[t]);
    unmake(&m);
}

static int count(const plan *p, op o)
{
    int n = 0;
    for (int32_t i = 0; i < p->n_steps; i++)
        n += p->steps[i].op == o;
    return n;
}

static void lowering_changes_no_result(void)
{
    static float plain[TOKENS][VOCAB], one[TOKENS][VOCAB], three[TOKENS][VOCAB];
    evaluate("ref", 1, plain);
    evaluate("cpu", 1, one);
    evaluate("cpu", 3, three);
    /* The factor of add is applied before the sum instead of in it: the same products. */
    double worst = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < VOCAB; i++)
            worst = fmax(worst, fabs((double)plain[t][i] - one[t][i]));
    CHECK(worst < 1e-3 && fabs(plain[0][0]) > 1e-3);
    CHECK(memcmp(one, three, sizeof one) == 0);
}

static void known_forms_are_fused_in_their_layers(void)
{
    made m = make("cpu", 1);
    const plan *p = m.program->lowered;
    CHECK(p->n_steps < m.p->n_steps && count(m.p, OP_MATMUL_GROUP) == 0);
    CHECK(count(p, OP_MATMUL_GROUP) == 3 && count(p, OP_ROPE_KV) == 3);
    CHECK(count(p, OP_MATMUL_GLU) == 1 && count(p, OP_MOE_GLU) == 2 && count(p, OP_MOE_DOWN) == 2);
    CHECK(count(p, OP_MATMUL_ADD) == 4 && count(p, OP_ADD) == 0 && count(p, OP_ROPE) == 0);
    CHECK(count(p, OP_MATMUL) == 3); /* two routers and the head */
    unmake(&m);
}

static void living_values_do_not_overlap(void)
{
    made m = make("cpu", 1);
    const plan *p = m.program->lowered;
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
    unmake(&m);
}

static void dependent_steps_are_separated(void)
{
    made m = make("cpu", 1);
    const plan *p = m.program->lowered;
    for (int32_t i = 0; i + 1 < p->n_steps; i++)
        for (int j = 0; j < STEP_MAX_OUT; j++) {
            int32_t out = p->steps[i].out[j].value;
            if (out >= 0 && step_reads(&p->steps[i + 1], out))
                CHECK(!p->steps[i].skips_barrier);
        }
    unmake(&m);
}

/* Whatever the device: a plan with it is refused, before any kernel could take it for another. */
/* A slice lies in the value that it is of, lives as long, and its writers are waited for. */
static void slices_lie_in_their_values(void)
{
    plan *p = NULL;
    plan_limits limits = {.max_tokens = 3, .max_outputs = 3, .n_context = 8, .n_workers = 2};
    CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
    value x = plan_embed(p, &table, 1);
    value tail = plan_slice(p, plan_slice(p, x, 16, 32), 8, 16);
    value other = plan_act(p, GLU_SILU, x);
    plan_softcap(p, tail, 2);
    value y = plan_mul(p, x, other);
    plan_result(p, y);
    CHECK(plan_check(p, NULL) == LACE_OK);
    plan_count_reads(p);
    plan_place(p, NULL);
    static uint8_t memory[1 << 16];
    CHECK(p->value_bytes <= sizeof memory);
    plan_locate(p, &(plan_memory){.values = memory});
    const step *s = p->steps;
    CHECK(s[2].op == OP_SOFTCAP && s[2].out[0].data == s[0].out[0].data + 4 * 24);
    CHECK(s[2].out[0].stride == s[0].out[0].stride && s[2].out[0].width == 16);
    CHECK(!s[0].skips_barrier && !s[1].skips_barrier && !s[2].skips_barrier);
    CHECK(s[1].out[0].data != s[0].out[0].data);
    plan_free(p);
}

static void unknown_activations_and_absent_matrices_are_refused(void)
{
    static const char *const faults[] = {"activation", "activation", "matrix", "matrix"};
    plan_limits limits = {.max_tokens = 1, .max_outputs = 1, .n_context = 1, .n_workers = 1};
    for (int i = 0; i < 4; i++) {
        weight absent = {0};
        moe_params moe = {.gate = i == 3 ? &absent : experts[0],
                          .up = experts[1],
                          .down = experts[2],
                          .n_experts = 1,
                          .n_used = 1,
                          .glu = i == 1 ? GLU_COUNT : GLU_SILU};
        rope_params rope = {.n_dims = N};
        plan *p;
        lace_error err = {0};
        CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
        value x = plan_rope_table(p, &rope);
        p->layer = 5;
        x = i == 0   ? plan_glu(p, (glu_kind)GLU_COUNT, x, x)
            : i == 2 ? plan_linear(p, x, &absent, NULL, 1)
                     : plan_moe_add(p, x, x, x, &moe, 1);
        plan_result(p, plan_gather(p, rms_norm(p, x, N)));
        CHECK(plan_check(p, &err) == LACE_E_UNSUPPORTED);
        CHECK(strstr(err.text, faults[i]) && strstr(err.text, "layer 5"));
        plan_free(p);
    }
}

/* Positions behind the end of a table would be read from what lies there. */
static void a_table_of_positions_limits_the_context(void)
{
    for (int more = 0; more < 2; more++) {
        plan_limits limits = {.max_tokens = 1, .max_outputs = 1, .n_workers = 1};
        limits.n_context = VOCAB + more;
        plan *p;
        lace_error err = {0};
        CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
        value x = plan_embed(p, &table, 1), y = plan_lookup(p, &table, EMBED_BY_POSITION);
        y = plan_add(p, y, plan_lookup(p, &table, EMBED_BY_SEGMENT), 1);
        plan_result(p, plan_gather(p, plan_add(p, x, y, 1)));
        CHECK(plan_check(p, &err) == (more ? LACE_E_UNSUPPORTED : LACE_OK));
        char said[96];
        snprintf(said, sizeof said,
                 "the model has embeddings for %d positions, and a context of %d", (int)VOCAB,
                 (int)VOCAB + 1);
        CHECK(!more || strstr(err.text, said));
        plan_free(p);
    }
}

/* As above, for rules of routers that do not fit the experts. */
static void impossible_rules_of_routers_are_refused(void)
{
    static const moe_params bad[] = {
        {.n_used = 9},
        {.n_used = 1, .rule = {.scores = ROUTE_N_SCORES}},
        {.n_used = 1, .rule = {.n_groups = 3, .n_groups_used = 1, .n_ranking = 1}},
        {.n_used = 1, .rule = {.n_groups = 4, .n_groups_used = 0, .n_ranking = 1}},
        {.n_used = 1, .rule = {.n_groups = 4, .n_groups_used = 5, .n_ranking = 1}},
        {.n_used = 1, .rule = {.n_groups = 4, .n_groups_used = 1, .n_ranking = 3}},
        {.n_used = 3, .rule = {.n_groups = 4, .n_groups_used = 1, .n_ranking = 1}},
        {.n_used = 1, .glu = GLU_CLAMPED}, /* without a gate */
    };
    plan_limits limits = {.max_tokens = 1, .max_outputs = 1, .n_context = 1, .n_workers = 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        moe_params moe = bad[i];
        moe.up = experts[1];
        moe.down = experts[2];
        moe.n_experts = 8;
        rope_params rope = {.n_dims = N};
        plan *p;
        lace_error err = {0};
        CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
        value x = plan_rope_table(p, &rope);
        plan_moe_add(p, x, x, x, &moe, 1);
        CHECK(plan_check(p, &err) == LACE_E_UNSUPPORTED && strstr(err.text, "experts"));
        plan_free(p);
    }
}

static void failing_allocations_are_clean(void)
{
    plan_limits limits = {.max_tokens = 1, .max_outputs = 1, .n_context = 1, .n_workers = 1};
    device_options o = {.level = CPU_PLAIN};
    program_options options = {0};
    device *d;
    CHECK(device_open("cpu", &o, &d, NULL) == LACE_OK);
    int n_failed = 0;
    for (long i = 0; i < 20; i++) {
        plan *p = NULL;
        program *compiled = NULL;
        mem_fail_at(i, true);
        lace_status status = plan_create(&limits, &p, NULL);
        if (status == LACE_OK) {
            rope_params rope = {.n_dims = 4};
            plan_result(p, plan_rope_table(p, &rope));
            status = plan_check(p, NULL);
        }
        if (status == LACE_OK)
            status = device_compile(d, p, &options, &compiled, NULL);
        mem_fail_at(-1, false);
        CHECK(status == LACE_OK || status == LACE_E_NOMEM);
        n_failed += status != LACE_OK;
        program_free(compiled);
        plan_free(p);
    }
    CHECK(n_failed >= 6);
    device_close(d);
}

int main(void)
{
    CASE(lowering_changes_no_result);
    CASE(known_forms_are_fused_in_their_layers);
    CASE(living_values_do_not_overlap);
    CASE(dependent_steps_are_separated);
    CASE(slices_lie_in_their_values);
    CASE(unknown_activations_and_absent_matrices_are_refused);
    CASE(a_table_of_positions_limits_the_context);
    CASE(impossible_rules_of_routers_are_refused);
    CASE(failing_allocations_are_clean);
    return tap_end();
}
