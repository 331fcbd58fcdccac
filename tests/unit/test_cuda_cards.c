/*
 * backend/cuda/lower: models that people run, on cards that people own. No GPU is needed: of a card
 * only its numbers are known, and addresses are never followed.
 */
#include <stdio.h>
#include <string.h>

#include "plan/build.h"
#include "backend/cuda/decode_product.h"
#include "backend/cuda/launch_products.h"
#include "backend/cuda/lower.h"
#include "tap.h"

typedef struct card {
    const char *name;
    int32_t compiled_for, n_processors, shared_bytes;
} card;

static const card cards[] = {{"RTX 3060", 80, 28, 101376},  {"RTX 3090", 80, 82, 101376},
                             {"RTX 4090", 80, 128, 101376}, {"L4", 80, 58, 101376},
                             {"A100", 80, 108, 166912},     {"RTX 5090", 120, 170, 101376},
                             {"H200", 90, 132, 232448}};

enum { N_CARDS = sizeof cards / sizeof cards[0], MAX_EXPERTS = 128 };

/* The shapes of a model; its layers are alike but for the types of v and down. */
typedef struct model_shape {
    const char *name;
    int32_t width, ff, n_heads, n_kv_heads, head_dim, n_vocab, n_experts, n_used;
    dtype type, more, head; /* more: of v and down */
} model_shape;

static const model_shape shapes[] = {
    {"8B Q4_K_M", 4096, 14336, 32, 8, 128, 128256, 0, 0, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q6_K},
    {"8B Q4_K", 4096, 14336, 32, 8, 128, 128256, 0, 0, DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K},
    {"14B Q4_K", 5120, 17920, 40, 10, 128, 100352, 0, 0, DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K},
    {"1.1B Q4_0", 2048, 5632, 32, 4, 64, 32000, 0, 0, DTYPE_Q4_0, DTYPE_Q4_0, DTYPE_Q6_K},
    {"135M F16", 576, 1536, 9, 3, 64, 49152, 0, 0, DTYPE_F16, DTYPE_F16, DTYPE_F16},
    {"30B-A3B Q4_K_M", 2048, 768, 32, 4, 128, 151936, 128, 8, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q6_K}};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static float floats[8192];
static weight w[9], experts[3][MAX_EXPERTS];
static uint8_t card_memory[1 << 22]; /* stands for the card's: only addresses are taken */

static weight matrix(dtype type, int64_t n_rows, int64_t n_cols)
{
    return (weight){.type = type, .n_rows = n_rows, .n_cols = n_cols, .data = card_memory};
}

static value rms_norm(plan *p, value x, int64_t group)
{
    norm_params norm = {.kind = OP_RMS_NORM, .scales = floats, .group = group, .eps = 1e-5};
    return plan_norm(p, x, &norm);
}

static value add_attention(plan *p, const model_shape *s, value x, value angles)
{
    rope_params rope = {.frequencies = floats, .magnitude = 1, .n_dims = s->head_dim};
    kv_layer cache = {.type = DTYPE_F16,
                      .page_tokens = 32,
                      .n_heads = s->n_kv_heads,
                      .head_dim = s->head_dim,
                      .v_dim = s->head_dim};
    attend_params attend = {.n_heads = s->n_heads, .scale = 0.1f};
    w[0] = matrix(s->type, s->n_heads * s->head_dim, s->width);
    w[1] = matrix(s->type, s->n_kv_heads * s->head_dim, s->width);
    w[2] = matrix(s->more, s->n_kv_heads * s->head_dim, s->width);
    w[3] = matrix(s->type, s->width, s->n_heads * s->head_dim);
    value n = rms_norm(p, x, s->width);
    value q = plan_linear(p, n, &w[0], NULL, 1), k = plan_linear(p, n, &w[1], NULL, 1),
          v = plan_linear(p, n, &w[2], NULL, 1);
    q = plan_rope(p, q, angles, &rope, s->n_heads, s->head_dim);
    k = plan_rope(p, k, angles, &rope, s->n_kv_heads, s->head_dim);
    plan_kv_write(p, k, v, &cache);
    value y = plan_linear(p, plan_attend(p, q, &cache, &attend), &w[3], NULL, 1);
    return plan_add(p, x, y, 1);
}

static value add_ffn(plan *p, const model_shape *s, value x)
{
    value n = rms_norm(p, x, s->width);
    w[4] = w[5] = matrix(s->type, s->ff, s->width);
    w[6] = matrix(s->more, s->width, s->ff);
    if (s->n_experts > 0) {
        w[7] = matrix(DTYPE_F32, s->n_experts, s->width);
        for (int e = 0; e < s->n_experts; e++) {
            experts[0][e] = experts[1][e] = w[4];
            experts[2][e] = w[6];
        }
        moe_params moe = {.gate = experts[0],
                          .up = experts[1],
                          .down = experts[2],
                          .n_experts = s->n_experts,
                          .n_used = s->n_used,
                          .rule = {.norms = true}};
        return plan_moe_add(p, x, n, plan_linear(p, n, &w[7], NULL, 1), &moe, 1);
    }
    value g = plan_linear(p, n, &w[4], NULL, 1), u = plan_linear(p, n, &w[5], NULL, 1);
    return plan_add(p, x, plan_linear(p, plan_glu(p, GLU_SILU, g, u), &w[6], NULL, 1), 1);
}

/* One layer and the head, for one token. */
typedef struct lowered {
    plan *p;
    gpu g;
    decode_form form;
    bool is_known;
    decode_layout layout;
    token_list list;
} lowered;

static plan *make_plan(const model_shape *s)
{
    static weight embedding;
    embedding = (weight){.type = DTYPE_Q8_0, .n_rows = s->n_vocab, .n_cols = s->width};
    rope_params rope = {.frequencies = floats, .magnitude = 1, .n_dims = s->head_dim};
    plan_limits limits = {.max_tokens = 512, .max_outputs = 8, .n_context = 1024, .n_workers = 1};
    plan *p;
    CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
    value x = plan_embed(p, &embedding, 1), angles = plan_rope_table(p, &rope);
    p->layer = 0;
    x = add_ffn(p, s, add_attention(p, s, x, angles));
    p->layer = -1;
    w[8] = matrix(s->head, s->n_vocab, s->width);
    plan_result(p, plan_linear(p, rms_norm(p, plan_gather(p, x), s->width), &w[8], NULL, 1));
    CHECK(plan_check(p, NULL) == LACE_OK);
    plan_count_reads(p); /* as cuda_device.c does */
    plan_fuse(p);
    plan_place(p, NULL);
    uint8_t *pages[] = {card_memory, card_memory};
    plan_locate(p, &(plan_memory){.values = card_memory, .pages = pages});
    return p;
}

static void lower_model(const model_shape *s, const card *c, lowered *out)
{
    memset(out, 0, sizeof *out);
    out->g.can = gpu_abilities_of(c->compiled_for);
    out->g.info.n_processors = c->n_processors;
    out->g.info.max_shared_bytes = c->shared_bytes;
    out->p = make_plan(s);
    out->is_known = decode_form_match(out->p, &out->g, &out->form);
    const decode_form *f = out->is_known ? &out->form : NULL;
    gpu_batch tables = {.pages_per_sequence = 32};
    CHECK(decode_layout_init(f, &out->g, &out->layout, NULL) == LACE_OK);
    decode_layout_place(&out->layout, f, &out->g, card_memory);
    CHECK(lower_token(out->p, &out->g, false, &tables, f, &out->layout, NULL, NULL, &out->list,
                      NULL) == LACE_OK);
}

static void free_lowered(lowered *l)
{
    token_list_free(&l->list);
    decode_layout_free(&l->layout);
    decode_form_free(&l->form);
    plan_free(l->p);
}

static const device_step *find(const lowered *l, const char *name)
{
    for (int32_t i = 0; i < l->list.list.n_steps; i++)
        if (strcmp(l->list.list.steps[i].name, name) == 0)
            return &l->list.list.steps[i];
    return NULL;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Every model is five or six kernels a layer, and its head finds the best token. */
static void layers_and_heads_are_fused_on_every_card(void)
{
    for (int c = 0; c < N_CARDS; c++)
        for (int i = 0; i < N_SHAPES; i++) {
            lowered l;
            lower_model(&shapes[i], &cards[c], &l);
            bool is_whole = l.is_known && l.form.n_layers == 1 && l.list.has_best &&
                            !l.list.has_plain && find(&l, "attend") != NULL;
            if (!is_whole)
                printf("# %s on %s is not fused\n", shapes[i].name, cards[c].name);
            CHECK(is_whole);
            free_lowered(&l);
        }
}

/* What decode_product.cu takes of its shared memory lies in what it asks for, which the card has. */
static void check_product(const device_step *d, const gpu *g)
{
    const decode_product *p = &d->a.product;
    uint32_t x = (uint32_t)gpu_act_bytes((gpu_act)p->x.act, p->x.k) + 64 + 128;
    int32_t at = 0;
    CHECK(d->shared_bytes <= (uint32_t)g->info.max_shared_bytes);
    CHECK((int32_t)d->grid <= g->info.n_processors);
    for (int32_t i = 0; i < p->n_parts; i++) {
        const decode_part *part = &p->parts[i];
        int32_t units = part->each + (part->more > 0),
                n = p->mode == DECODE_GLU ? 2 * units : units;
        int32_t round = DECODE_ROUND(part->n_tiles) < n ? DECODE_ROUND(part->n_tiles) : n;
        uint32_t sums = g->can.rounds ? (uint32_t)(1024 * round + 64 * n) : (uint32_t)(1024 * n);
        CHECK(DECODE_RING_AT + (uint32_t)p->ring_bytes + x + sums + 128 <= d->shared_bytes);
        CHECK(part->n_places * part->stage_bytes <= p->ring_bytes);
        CHECK(part->n_places >= DECODE_WARPS && part->n_places <= DECODE_MAX_PLACES);
        CHECK(part->stage_bytes >=
              part->tile_bytes + (g->can.bulk && part->tile_bytes % 128 ? 96 : 0));
        CHECK(part->first_block == at);
        CHECK(part->each * part->n_blocks + part->more == (part->n_rows + 15) / 16);
        at += part->n_blocks;
        if (p->mode == DECODE_RESIDUAL)
            CHECK(units * TILE_ROWS <= DECODE_THREADS);
    }
    CHECK(at == p->n_blocks);
}

static void products_fit_and_have_all_rows(void)
{
    static const char *const names[] = {"qkv", "output", "gate_up", "down", "head"};
    for (int c = 0; c < N_CARDS; c++)
        for (int i = 0; i < N_SHAPES; i++) {
            lowered l;
            lower_model(&shapes[i], &cards[c], &l);
            for (int n = 0; n < 5; n++) {
                const device_step *d = find(&l, names[n]);
                CHECK(d != NULL || (shapes[i].n_experts > 0 && (n == 2 || n == 3)));
                if (d)
                    check_product(d, &l.g);
            }
            free_lowered(&l);
        }
}

static void experts_fit(void)
{
    static const char *const names[] = {"experts_gate_up", "experts_down"};
    for (int c = 0; c < N_CARDS; c++)
        for (int i = 0; i < N_SHAPES; i++) {
            lowered l;
            lower_model(&shapes[i], &cards[c], &l);
            for (int n = 0; n < 2; n++) {
                const device_step *d = find(&l, names[n]);
                CHECK((d != NULL) == (shapes[i].n_experts > 0));
                if (!d)
                    continue;
                CHECK(d->shared_bytes <= (uint32_t)cards[c].shared_bytes);
                CHECK(d->a.experts.n_places >= DECODE_WARPS);
                CHECK(d->a.experts.n_places <= DECODE_MAX_PLACES);
                CHECK((int32_t)d->grid <= cards[c].n_processors);
            }
            free_lowered(&l);
        }
}

/* Where there are no clusters, blocks meet in memory; and the longest contexts keep most processors
 * at work. */
static void blocks_that_share_a_context_have_a_place_to_meet(void)
{
    for (int c = 0; c < N_CARDS; c++) {
        const model_shape *s = &shapes[0];
        lowered l;
        lower_model(s, &cards[c], &l);
        const device_step *d = find(&l, "attend");
        const decode_attention_parts *a = &d->a.attention;
        bool has_clusters = l.g.can.most_cluster > 1;
        CHECK(d->divides && d->most_blocks >= 2 && d->most_blocks <= DECODE_MAX_CLUSTER);
        CHECK((a->tickets == NULL) == has_clusters && (a->values == NULL) == has_clusters);
        CHECK((a->sums == NULL) == has_clusters);
        int32_t most = cards[c].n_processors / s->n_kv_heads;
        most = most > DECODE_MAX_CLUSTER ? DECODE_MAX_CLUSTER : most;
        CHECK(1u << d->most_cluster <= d->most_blocks);
        CHECK(has_clusters ? (int32_t)d->most_blocks <= l.g.can.most_cluster
                           : (int32_t)d->most_blocks == most);
        CHECK(d->shared_bytes + 8192 <= (uint32_t)cards[c].shared_bytes);
        free_lowered(&l);
    }
}

/* Only there is shared memory for two blocks. */
static void products_share_processors_of_hopper(void)
{
    for (int c = 0; c < N_CARDS; c++) {
        lowered l;
        lower_model(&shapes[3], &cards[c], &l);
        bool is_shared = strcmp(find(&l, "output")->kernel, "decode_product_shared") == 0;
        CHECK(is_shared == (cards[c].compiled_for == 90));
        free_lowered(&l);
    }
}

/* Rings of batched products, for every kind of tiles and number of tokens. */
static void blocks_of_batches_fit(void)
{
    for (int c = 0; c < N_CARDS; c++)
        for (int kind = TILE_F16; kind < TILE_COUNT; kind++)
            for (int n = 8; n <= 128; n *= 2) {
                gpu g = {.can = gpu_abilities_of(cards[c].compiled_for),
                         .info = {.n_processors = cards[c].n_processors,
                                  .max_shared_bytes = cards[c].shared_bytes}};
                int n_groups = batch_most_groups(&g);
                batch_kernel k = batch_kernel_for(&g, (tile_kind)kind, n, n_groups);
                uint32_t gates = (uint32_t)(n_groups / 2 * GROUP_ROWS * 4) * 33;
                CHECK(k.n_tokens >= n && k.shared_bytes >= gates);
                CHECK(k.shared_bytes <= (uint32_t)cards[c].shared_bytes);
                CHECK(g.can.wgmma || n_groups * GROUP_THREADS <= 256);
            }
}

int main(void)
{
    CASE(layers_and_heads_are_fused_on_every_card);
    CASE(products_fit_and_have_all_rows);
    CASE(experts_fit);
    CASE(blocks_that_share_a_context_have_a_place_to_meet);
    CASE(products_share_processors_of_hopper);
    CASE(blocks_of_batches_fit);
    return tap_end();
}
