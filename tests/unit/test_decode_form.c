/*
 * backend/cuda/decode_form: which plans the fused kernels of single tokens know. No GPU is needed for that:
 * plans are made with a GPU's kernel table, and its numbers are an H200's.
 */
#include <string.h>

#include "base/mem.h"
#include "plan/build.h"
#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_form.h"
#include "tap.h"

enum { WIDTH = 512, FF = 768, N_LAYERS = 2, VOCAB = 1000, MAX_EXPERTS = 600 };

/* What a plan is like; zeros are a llama's. */
typedef struct kind {
    dtype type, cache, router, last_down; /* F32 is 0: ordinary() fills in others */
    int32_t head_dim, n_experts, n_used, n_vocab, n_processors;
    bool norms_behind, norms_all_heads, has_no_norm_in_front;
} kind;

static kind ordinary(void)
{
    return (kind){.type = DTYPE_Q4_K,
                  .cache = DTYPE_F16,
                  .router = DTYPE_F32,
                  .last_down = DTYPE_Q4_K,
                  .head_dim = 128,
                  .n_vocab = VOCAB,
                  .n_processors = 132};
}

static float floats[WIDTH * 4];
static kernel_table table;
static weight q, kv, o, gate, up, down, last_down, router, head, experts[3][MAX_EXPERTS];

static weight matrix(dtype type, int64_t n_rows, int64_t n_cols)
{
    return (weight){.type = type, .n_rows = n_rows, .n_cols = n_cols, .impl = table.packed[type]};
}

static void make_weights(const kind *k)
{
    int64_t heads = 4 * (int64_t)k->head_dim;
    q = matrix(k->type, heads, WIDTH);
    kv = matrix(k->type, heads / 2, WIDTH);
    o = matrix(k->type, WIDTH, heads);
    gate = up = matrix(k->type, FF, WIDTH);
    down = matrix(k->type, WIDTH, FF);
    last_down = matrix(k->last_down, WIDTH, FF);
    router = matrix(k->router, k->n_experts, WIDTH);
    head = matrix(k->type, k->n_vocab, WIDTH);
    for (int e = 0; e < k->n_experts; e++) {
        experts[0][e] = experts[1][e] = gate;
        experts[2][e] = down;
    }
}

static value add_layer(plan *p, const kind *k, value x, value angles, bool is_last)
{
    rope_params rope = {.frequencies = floats, .magnitude = 1, .n_dims = k->head_dim};
    kv_layer cache = {.type = k->cache, .page_tokens = 32, .n_heads = 2, .head_dim = k->head_dim};
    attend_params attend = {.n_heads = 4, .scale = 0.1f};
    value n = k->has_no_norm_in_front ? x : plan_norm(p, x, floats, WIDTH, 1e-5);
    value a = plan_linear(p, n, &q, NULL, 1), b = plan_linear(p, n, &kv, NULL, 1),
          c = plan_linear(p, n, &kv, NULL, 1);
    if (k->norms_all_heads) {
        a = plan_norm(p, a, floats, q.n_rows, 1e-5);
        b = plan_norm(p, b, floats, kv.n_rows, 1e-5);
    }
    a = plan_rope(p, a, angles, &rope, 4, k->head_dim);
    b = plan_rope(p, b, angles, &rope, 2, k->head_dim);
    plan_kv_write(p, b, c, &cache);
    value y = plan_linear(p, plan_attend(p, a, &cache, &attend), &o, NULL, 1);
    if (k->norms_behind)
        y = plan_norm(p, y, floats, WIDTH, 1e-5);
    x = plan_add(p, x, y, 1);
    n = k->has_no_norm_in_front ? x : plan_norm(p, x, floats, WIDTH, 1e-5);
    if (k->n_experts > 0) {
        moe_params moe = {.gate = experts[0],
                          .up = experts[1],
                          .down = experts[2],
                          .n_experts = k->n_experts,
                          .n_used = k->n_used};
        return plan_moe_add(p, x, n, plan_linear(p, n, &router, NULL, 1), &moe, 1);
    }
    value g = plan_linear(p, n, &gate, NULL, 1), u = plan_linear(p, n, &up, NULL, 1);
    y = plan_linear(p, plan_glu(p, GLU_SILU, g, u), is_last ? &last_down : &down, NULL, 1);
    if (k->norms_behind)
        y = plan_norm(p, y, floats, WIDTH, 1e-5);
    return plan_add(p, x, y, 1);
}

/* Whether the form is known; then *f is to be freed. */
static bool match(const kind *k, decode_form *f, plan **out)
{
    tensor embedding = {.type = DTYPE_Q8_0, .shape = {2, {WIDTH, k->n_vocab}}};
    rope_params rope = {.frequencies = floats, .magnitude = 1, .n_dims = k->head_dim};
    plan_limits limits = {.max_tokens = 8, .max_outputs = 8, .n_context = 64, .n_workers = 1};
    gpu g = {.has_overlap = true,
             .info = {.n_processors = k->n_processors, .max_shared_bytes = 232448}};
    make_weights(k);
    CHECK(plan_create(&table, &limits, out, NULL) == LACE_OK);
    plan *p = *out;
    value x = plan_embed(p, &embedding, 1), angles = plan_rope_table(p, &rope);
    for (int i = 0; i < N_LAYERS; i++)
        x = add_layer(p, k, x, angles, i + 1 == N_LAYERS);
    value last = plan_norm(p, plan_gather(p, x), floats, WIDTH, 1e-5);
    plan_result(p, plan_linear(p, last, &head, NULL, 1));
    CHECK(plan_finish(p, NULL) == LACE_OK);
    return decode_form_match(p, &g, f);
}

static void check_known(const kind *k, bool attends_by_steps)
{
    decode_form f;
    plan *p;
    if (!match(k, &f, &p)) {
        CHECK(!"the form is known");
        plan_free(p);
        return;
    }
    CHECK(f.n_layers == N_LAYERS && f.attends_by_steps == attends_by_steps);
    for (int32_t i = 0; i < f.n_layers; i++) {
        const layer_steps *l = &f.layers[i];
        CHECK(l->qkv && l->attend->op == OP_ATTEND && l->o);
        CHECK(!l->rope == attends_by_steps);
        CHECK(!l->norm == k->has_no_norm_in_front && !l->ffn_norm == k->has_no_norm_in_front);
        CHECK(!l->o_norm == !k->norms_behind && !l->o_add == !k->norms_behind);
        CHECK(!l->glu == (k->n_experts > 0) && !l->router == (k->n_experts == 0));
    }
    mem_free(f.layers);
    plan_free(p);
}

static void check_unknown(const kind *k)
{
    decode_form f;
    plan *p;
    CHECK(!match(k, &f, &p));
    plan_free(p);
}

static void layers_of_llamas_are_fused_whole(void)
{
    kind k = ordinary();
    check_known(&k, false);
    k.type = k.last_down = DTYPE_F16;
    k.head_dim = 64;
    check_known(&k, false);
}

static void experts_are_fused(void)
{
    kind k = ordinary();
    k.n_experts = 128;
    k.n_used = 8;
    check_known(&k, false);
    k.cache = DTYPE_Q8_0;
    check_known(&k, true);
}

static void experts_without_room_are_not(void)
{
    kind k = ordinary();
    k.n_experts = 600; /* more than a block can choose from */
    k.n_used = 8;
    check_unknown(&k);
    k.n_experts = 64;
    k.n_used = 17; /* more than it can keep */
    check_unknown(&k);
    k.n_used = 4;
    k.router = DTYPE_F16; /* routers are floats */
    check_unknown(&k);
}

/* Their blocks take planes as they come, and those of lace's own types would have to be made. */
static void experts_of_own_types_are_left_to_steps(void)
{
    const dtype types[] = {DTYPE_S4, DTYPE_N24, DTYPE_M4};
    for (int i = 0; i < 3; i++) {
        kind k = ordinary();
        k.type = k.last_down = types[i];
        check_known(&k, false);
        k.n_experts = 8;
        k.n_used = 2;
        check_unknown(&k);
    }
}

/* Whoever adds to the residual norms what goes on, or there is a norm behind it. */
static void layers_without_any_norms_are_left_to_steps(void)
{
    kind k = ordinary();
    k.has_no_norm_in_front = true;
    check_unknown(&k);
}

/* A block keeps the sums of all its rows: 1 KB for 16 of them. */
static void vocabularies_without_room_are_left_to_steps(void)
{
    kind k = ordinary();
    k.type = k.last_down = DTYPE_Q8_0;
    k.n_vocab = 262144;
    check_known(&k, false);
    k.n_processors = 100;
    check_unknown(&k);
}

/* One thread finishes one row of gate and up, and there are 512 of them. */
static void blocks_have_no_more_rows_than_threads(void)
{
    kind k = ordinary();
    k.n_processors = 2;
    check_known(&k, false);
    k.n_processors = 1;
    check_unknown(&k);
}

/* The sums of squares of 256 blocks have a place. */
static void cards_with_too_many_processors_are_left_to_steps(void)
{
    kind k = ordinary();
    k.n_processors = 256;
    check_known(&k, false);
    k.n_processors = 257;
    check_unknown(&k);
}

static void norms_behind_products_are_known(void)
{
    kind k = ordinary();
    k.norms_behind = true;
    check_known(&k, false);
    k.has_no_norm_in_front = k.norms_all_heads = true;
    check_known(&k, true);
}

static void attention_of_other_kinds_goes_by_steps(void)
{
    kind k = ordinary();
    k.cache = DTYPE_Q8_0;
    check_known(&k, true);
    k.cache = DTYPE_F32;
    check_known(&k, true);
    k.cache = DTYPE_F16;
    k.head_dim = 256;
    check_known(&k, true);
}

static void float_matrices_are_left_to_steps(void)
{
    kind k = ordinary();
    k.type = k.last_down = DTYPE_F32;
    check_unknown(&k);
}

/* What pads a vector must stay zero, so that its form is the same in all layers. */
static void layers_that_want_other_vectors_are_left_to_steps(void)
{
    kind k = ordinary();
    k.last_down = DTYPE_F16;
    check_unknown(&k);
    k.last_down = DTYPE_Q6_K;
    check_known(&k, false);
}

/* 32 rows of tiles are 32 blocks; two of down do not fit beside each other on a processor. */
static void blocks_of_experts_have_rows_and_room(void)
{
    kind k = ordinary();
    k.n_experts = 16;
    k.n_used = 4;
    decode_form f;
    plan *p;
    CHECK(match(&k, &f, &p));
    gpu g = {.has_overlap = true, .info = {.n_processors = 132, .max_shared_bytes = 232448}};
    const layer_steps *l = &f.layers[0];
    CHECK(gpu_experts_n_blocks(&g, l) == WIDTH / 16);
    CHECK(gpu_experts_bytes(l) == 4 * 3 * tile_matrix_bytes(TILE_Q4_K, FF, WIDTH));
    CHECK(gpu_experts_stride(l) >= gpu_act_bytes(GPU_ACT_INT, FF) &&
          gpu_experts_stride(l) % 256 == 0);
    uint32_t bytes = gpu_experts_down_bytes(&g, l);
    CHECK(2 * (bytes + 1024) > 232448 + 1024 && bytes <= 232448);
    mem_free(f.layers);
    plan_free(p);
}

int main(void)
{
    kernels_init(&table, CPU_PLAIN);
    kernels_init_cuda(&table);
    CASE(layers_of_llamas_are_fused_whole);
    CASE(experts_are_fused);
    CASE(experts_without_room_are_not);
    CASE(experts_of_own_types_are_left_to_steps);
    CASE(layers_without_any_norms_are_left_to_steps);
    CASE(vocabularies_without_room_are_left_to_steps);
    CASE(blocks_have_no_more_rows_than_threads);
    CASE(cards_with_too_many_processors_are_left_to_steps);
    CASE(norms_behind_products_are_known);
    CASE(attention_of_other_kinds_goes_by_steps);
    CASE(float_matrices_are_left_to_steps);
    CASE(layers_that_want_other_vectors_are_left_to_steps);
    CASE(blocks_of_experts_have_rows_and_room);
    return tap_end();
}
