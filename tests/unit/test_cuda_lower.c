/*
 * backend/cuda/lower: what plans become on a card. No GPU is needed for that: plans are made with a
 * GPU's, its numbers are an H200's where no other card is named, and addresses are never followed.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/build.h"
#include "plan/parts.h"
#include "backend/cuda/decode_experts.h"
#include "backend/cuda/handover.h"
#include "tap.h"

enum { WIDTH = 512, FF = 768, VOCAB = 1000, MAX_EXPERTS = 600, MAX_LAYERS = 4 };

/* What a layer is like. */
typedef struct kind {
    dtype type, cache, router, down;
    int32_t head_dim, n_kv_heads, n_experts, n_used, window;
    bool norms_behind, norms_all_heads, has_no_norm_in_front, has_softcap_amid;
    bool has_no_gate, weighs_inputs;
    route_rule rule;
} kind;

/* A model: its layers, and its card. */
typedef struct model_kind {
    kind layers[MAX_LAYERS];
    int32_t n_layers, n_vocab, n_processors;
    dtype head;
} model_kind;

static kind ordinary(void)
{
    return (kind){.type = DTYPE_Q4_K,
                  .cache = DTYPE_F16,
                  .router = DTYPE_F32,
                  .down = DTYPE_Q4_K,
                  .head_dim = 128,
                  .n_kv_heads = 2};
}

static kind mixture(void)
{
    kind k = ordinary();
    k.n_experts = 16;
    k.n_used = 4;
    return k;
}

/* Two layers of a kind. */
static model_kind model_of(kind k)
{
    return (model_kind){
        .layers = {k, k}, .n_layers = 2, .n_vocab = VOCAB, .n_processors = 132, .head = k.type};
}

static float floats[WIDTH * 4];
static weight matrices[MAX_LAYERS][8], head, experts[MAX_LAYERS][3][MAX_EXPERTS];
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

static value add_attention(plan *p, const kind *k, weight *w, value n, value angles)
{
    rope_params rope = {.frequencies = floats, .magnitude = 1, .n_dims = k->head_dim};
    kv_layer cache = {.type = k->cache,
                      .page_tokens = 32,
                      .n_heads = k->n_kv_heads,
                      .head_dim = k->head_dim,
                      .v_dim = k->head_dim};
    attend_params attend = {.n_heads = 4, .scale = 0.1f, .window = k->window};
    w[0] = matrix(k->type, 4 * k->head_dim, WIDTH);
    w[1] = w[2] = matrix(k->type, k->n_kv_heads * k->head_dim, WIDTH);
    w[3] = matrix(k->type, WIDTH, 4 * k->head_dim);
    value q = plan_linear(p, n, &w[0], NULL, 1), a = plan_linear(p, n, &w[1], NULL, 1),
          b = plan_linear(p, n, &w[2], NULL, 1);
    if (k->norms_all_heads) {
        q = rms_norm(p, q, w[0].n_rows);
        a = rms_norm(p, a, w[1].n_rows);
    }
    q = plan_rope(p, q, angles, &rope, 4, k->head_dim);
    a = plan_rope(p, a, angles, &rope, k->n_kv_heads, k->head_dim);
    plan_kv_write(p, a, b, &cache);
    value y = plan_linear(p, plan_attend(p, q, &cache, &attend), &w[3], NULL, 1);
    return k->norms_behind ? rms_norm(p, y, WIDTH) : y;
}

static value add_layer(plan *p, const kind *k, int i, value x, value angles)
{
    weight *w = matrices[i];
    value n = k->has_no_norm_in_front ? x : rms_norm(p, x, WIDTH);
    x = plan_add(p, x, add_attention(p, k, w, n, angles), 1);
    if (k->has_softcap_amid) /* which no fused layer has */
        x = plan_softcap(p, x, 30);
    n = k->has_no_norm_in_front ? x : rms_norm(p, x, WIDTH);
    w[4] = w[5] = matrix(k->type, FF, WIDTH);
    w[6] = matrix(k->down, WIDTH, FF);
    if (k->n_experts > 0) {
        w[7] = matrix(k->router, k->n_experts, WIDTH);
        for (int e = 0; e < k->n_experts; e++) {
            experts[i][0][e] = experts[i][1][e] = w[4];
            experts[i][2][e] = w[6];
        }
        moe_params moe = {.gate = k->has_no_gate ? NULL : experts[i][0],
                          .up = experts[i][1],
                          .down = experts[i][2],
                          .n_experts = k->n_experts,
                          .n_used = k->n_used,
                          .rule = k->rule,
                          .weighs_inputs = k->weighs_inputs};
        return plan_moe_add(p, x, n, plan_linear(p, n, &w[7], NULL, 1), &moe, 1);
    }
    value g = plan_linear(p, n, &w[4], NULL, 1), u = plan_linear(p, n, &w[5], NULL, 1);
    value y = plan_linear(p, plan_glu(p, GLU_SILU, g, u), &w[6], NULL, 1);
    if (k->norms_behind)
        y = rms_norm(p, y, WIDTH);
    return plan_add(p, x, y, 1);
}

/* As an architecture writes it. */
static plan *write_plan(const model_kind *m)
{
    static weight embedding;
    embedding = (weight){.type = DTYPE_Q8_0, .n_rows = m->n_vocab, .n_cols = WIDTH};
    rope_params rope = {.frequencies = floats, .magnitude = 1, .n_dims = m->layers[0].head_dim};
    plan_limits limits = {.max_tokens = 512, .max_outputs = 8, .n_context = 1024, .n_workers = 1};
    plan *p;
    CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
    value x = plan_embed(p, &embedding, 1), angles = plan_rope_table(p, &rope);
    for (int i = 0; i < m->n_layers; i++) {
        p->layer = i;
        x = add_layer(p, &m->layers[i], i, x, angles);
    }
    p->layer = -1;
    head = matrix(m->head, m->n_vocab, WIDTH);
    value last = rms_norm(p, plan_gather(p, x), WIDTH);
    plan_result(p, plan_linear(p, last, &head, NULL, 1));
    CHECK(plan_check(p, NULL) == LACE_OK);
    return p;
}

/* As cuda_device.c has it. */
static plan *fuse_plan(plan *p)
{
    plan_count_reads(p);
    p->has_copies = true;
    p->kept_phases = GPU_KEPT_PHASES;
    plan_fuse(p);
    plan_place(p, NULL);
    uint8_t *pages[] = {card_memory, card_memory};
    plan_locate(p, &(plan_memory){.values = card_memory, .pages = pages});
    return p;
}

static plan *make_plan(const model_kind *m)
{
    return fuse_plan(write_plan(m));
}

/* The card that models are lowered for; its processors are the model's. */
static struct {
    int compiled_for, shared_bytes;
} card = {90, 232448};

/* A plan and what it becomes for one token. */
typedef struct lowered {
    plan *p;
    gpu g;
    decode_form form;
    bool is_known;
    decode_layout layout;
    token_list list;
} lowered;

/* p: fused, and taken. */
static void lower_plan(const model_kind *m, plan *p, const card_border *border, lowered *out)
{
    memset(out, 0, sizeof *out);
    out->g.can = gpu_abilities_of(card.compiled_for);
    out->g.info.n_processors = m->n_processors;
    out->g.info.max_shared_bytes = card.shared_bytes;
    out->p = p;
    out->is_known = decode_form_match(out->p, &out->g, &out->form);
    const decode_form *f = out->is_known ? &out->form : NULL;
    gpu_batch tables = {.pages_per_sequence = 32};
    CHECK(decode_layout_init(f, &out->g, &out->layout, NULL) == LACE_OK);
    decode_layout_place(&out->layout, f, &out->g, card_memory);
    CHECK(lower_token(out->p, &out->g, false, &tables, f, &out->layout, border, NULL, &out->list,
                      NULL) == LACE_OK);
}

static void lower_model(const model_kind *m, lowered *out)
{
    lower_plan(m, make_plan(m), NULL, out);
}

static void free_lowered(lowered *l)
{
    token_list_free(&l->list);
    decode_layout_free(&l->layout);
    decode_form_free(&l->form);
    plan_free(l->p);
}

/* The names of a layer's device steps, or of those outside of layers, with spaces between them. */
static const char *names(const device_list *l, int32_t layer)
{
    static char joined[2048];
    size_t at = 0;
    joined[0] = 0;
    for (int32_t i = 0; i < l->n_steps; i++)
        if (l->steps[i].layer == layer)
            at += (size_t)snprintf(joined + at, sizeof joined - at, "%s%s", at ? " " : "",
                                   l->steps[i].name);
    return joined;
}

#define CHECK_NAMES(list, layer, expected)                                                         \
    do {                                                                                           \
        const char *got_ = names(list, layer);                                                     \
        if (strcmp(got_, expected) != 0)                                                           \
            printf("# %s\n", got_);                                                                \
        CHECK(strcmp(got_, expected) == 0);                                                        \
    } while (0)

#define DENSE    "qkv attend output gate_up down"
#define MIXED    "qkv attend output router experts_gate_up experts_down"
#define BY_STEPS "qkv rope_kv attend output gate_up down"
#define PIECES   "product rope_kv attend product_add gate_up down"
#define FLOATS   "rows rope_kv attend rows_add rms_norm matmul_glu rows_add"

/* Each step of the plan is stood for once, in its order. */
static void check_whole(const lowered *l)
{
    int32_t next = 0;
    for (int32_t i = 0; i < l->list.list.n_steps; i++) {
        const device_step *d = &l->list.list.steps[i];
        CHECK(d->launch != NULL && d->name != NULL);
        if (d->n_steps == 0)
            continue;
        CHECK(d->first == &l->p->steps[next]);
        next += d->n_steps;
    }
    CHECK(next == l->p->n_steps);
}

/* Two layers that become these. */
static void check_both(const model_kind *m, const char *expected)
{
    lowered l;
    lower_model(m, &l);
    CHECK_NAMES(&l.list.list, 0, expected);
    CHECK_NAMES(&l.list.list, 1, expected);
    check_whole(&l);
    free_lowered(&l);
}

static void check_plain(const model_kind *m)
{
    lowered l;
    lower_model(m, &l);
    CHECK(!l.is_known && !l.list.has_best && l.list.has_plain && l.list.most_cluster == 0);
    CHECK(l.list.list.n_steps == 1 + l.p->n_steps);
    check_whole(&l);
    free_lowered(&l);
}

/* No layer is of a known form, but its products are fused. */
static void check_pieces(const model_kind *m, const char *expected)
{
    lowered l;
    lower_model(m, &l);
    CHECK(l.is_known && l.form.n_layers == 0 && l.list.has_plain && l.list.most_cluster == 0);
    free_lowered(&l);
    check_both(m, expected);
}

/* ---- All layers alike ------------------------------------------------------------------------ */

static void layers_of_llamas_are_fused_whole(void)
{
    model_kind m = model_of(ordinary());
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, -1, "begin head");
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK(l.list.has_best && !l.list.has_plain && !l.list.attends_plain);
    CHECK(l.list.list.steps[1].a.product.triggers_late);
    CHECK(!l.list.list.steps[6].a.product.triggers_late);
    CHECK(l.list.list.steps[1].a.product.n_squares == 1);          /* begin's */
    CHECK(l.list.list.steps[6].a.product.n_squares == WIDTH / 16); /* of each block of down */
    CHECK(l.list.logits == l.layout.logits);
    check_whole(&l);
    free_lowered(&l);
    kind k = ordinary();
    k.type = k.down = DTYPE_F16;
    k.head_dim = 64;
    m = model_of(k);
    check_both(&m, DENSE);
}

static void experts_are_fused(void)
{
    kind k = ordinary();
    k.n_experts = 128;
    k.n_used = 8;
    model_kind m = model_of(k);
    check_both(&m, MIXED);
    m.layers[0].cache = m.layers[1].cache = DTYPE_Q8_0;
    check_both(&m, MIXED);
    m.layers[0].cache = m.layers[1].cache = DTYPE_F32;
    check_both(&m, "qkv rope_kv attend output router experts_gate_up experts_down");
}

#define MIXED_BY_STEPS "product rope_kv attend product_add rms_norm rows route moe_glu moe_down"

static void experts_without_room_are_not(void)
{
    kind k = ordinary();
    k.n_experts = 600; /* more than a block can choose from */
    k.n_used = 8;
    model_kind m = model_of(k);
    check_pieces(&m, MIXED_BY_STEPS);
    k.n_experts = 64;
    k.n_used = 17; /* more than it can keep */
    m = model_of(k);
    check_pieces(&m, MIXED_BY_STEPS);
}

#define MIXED_PIECES "product rope_kv attend product_add rows experts_gate_up experts_down"

/* Where the form of a layer is not known, experts choose by any rule but those with groups and
 * SparseMixer's, whose choice is a step of its own. */
static void experts_by_other_rules_are_fused(void)
{
    static const route_rule others[] = {{.scores = ROUTE_SIGMOID},
                                        {.bias = floats},
                                        {.scales = floats},
                                        {.factor = 2.5f},
                                        {.norms = true, .norm_more = 1},
                                        {.norms = true, .norm_least = 0.1f}};
    static const route_rule steps[] = {{.scores = ROUTE_MIXER},
                                       {.n_groups = 4, .n_groups_used = 2, .n_ranking = 1}};
    model_kind m;
    kind k = mixture();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        k.rule = others[i];
        m = model_of(k);
        check_pieces(&m, MIXED_PIECES);
    }
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        k.rule = steps[i];
        m = model_of(k);
        check_pieces(&m,
                     "product rope_kv attend product_add rows route experts_gate_up experts_down");
    }
    k.rule = (route_rule){.norms = true, .factor = 1};
    m = model_of(k);
    check_both(&m, MIXED);
    k.router = DTYPE_F16; /* routers of known layers are floats */
    m = model_of(k);
    check_pieces(&m, "product rope_kv attend product_add product experts_gate_up experts_down");
}

static void experts_without_a_gate_are_left_to_steps(void)
{
    for (int i = 0; i < 2; i++) {
        kind k = mixture();
        k.has_no_gate = i == 0;
        k.weighs_inputs = i == 1;
        model_kind m = model_of(k);
        check_pieces(&m, MIXED_BY_STEPS);
    }
}

/* Blocks that make their input by themselves, and those of experts, do not know lace's own types. */
static void experts_of_own_types_are_left_to_steps(void)
{
    const dtype types[] = {DTYPE_S4, DTYPE_N24, DTYPE_M4};
    for (int i = 0; i < 3; i++) {
        kind k = ordinary();
        k.type = k.down = types[i];
        model_kind m = model_of(k);
        check_both(&m, DENSE);
        k.n_experts = 8;
        k.n_used = 2;
        m = model_of(k);
        check_pieces(&m, "rms_norm matmul_group rope_kv attend matmul_add rms_norm rows route "
                         "moe_glu moe_down");
    }
}

/* In known layers whoever adds to the residual norms what goes on, or there is a norm behind it. */
static void layers_without_any_norms_are_pieces(void)
{
    kind k = ordinary();
    k.has_no_norm_in_front = true;
    model_kind m = model_of(k);
    check_pieces(&m, PIECES);
}

/* A block keeps the sums of all its rows: 1 KB for 16 of them. */
static void vocabularies_without_room_are_left_to_steps(void)
{
    kind k = ordinary();
    k.type = k.down = DTYPE_Q8_0;
    model_kind m = model_of(k);
    m.n_vocab = 262144;
    check_both(&m, DENSE);
    m.n_processors = 100;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, -1, "begin gather rms_norm matmul");
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK(!l.list.has_best && l.list.logits != l.layout.logits);
    check_whole(&l);
    free_lowered(&l);
}

/* One thread finishes one row of gate and up, and there are 512 of them. */
static void blocks_have_no_more_rows_than_threads(void)
{
    model_kind m = model_of(ordinary());
    m.n_processors = 2;
    check_both(&m, DENSE);
    m.n_processors = 1;
    lowered l;
    lower_model(&m, &l);
    CHECK(l.form.n_layers == 0);
    CHECK_NAMES(&l.list.list, 0,
                "product rope_kv attend product_add rms_norm matmul_glu product_add");
    free_lowered(&l);
}

/* The sums of squares of 256 blocks have a place. */
static void cards_with_too_many_processors_are_left_to_steps(void)
{
    model_kind m = model_of(ordinary());
    m.n_processors = 256;
    check_both(&m, DENSE);
    m.n_processors = 257;
    check_plain(&m);
}

static void norms_behind_products_are_known(void)
{
    kind k = ordinary();
    k.norms_behind = true;
    model_kind m = model_of(k);
    check_both(&m, "qkv attend output norm_add gate_up down norm_add");
    k.has_no_norm_in_front = k.norms_all_heads = true;
    m = model_of(k);
    check_both(&m, "qkv rms_norm rms_norm rope_kv attend output norm_add gate_up down norm_add");
}

static void float_matrices_have_their_kernel(void)
{
    kind k = ordinary();
    k.type = k.down = DTYPE_F32;
    model_kind m = model_of(k);
    check_pieces(&m, FLOATS);
}

/* ---- Layers that differ ---------------------------------------------------------------------- */

static void attention_of_other_kinds_goes_by_steps_in_its_layer(void)
{
    model_kind m = model_of(ordinary());
    m.layers[1].head_dim = 512; /* the first layer's angles are for 128 of them */
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, BY_STEPS);
    CHECK(l.list.has_plain && l.list.attends_plain && l.list.most_cluster > 0);
    check_whole(&l);
    free_lowered(&l);
    kind k = ordinary();
    k.cache = DTYPE_F32;
    m = model_of(k);
    check_both(&m, BY_STEPS);
}

/* Caches of q8_0 and heads of 256 values have kernels of their own, which any card has room for: of the
 * least, 99 KiB, 24 are for what a block has besides. */
static void attention_of_bytes_and_of_large_heads_is_one_launch(void)
{
    static const struct {
        dtype cache;
        int32_t head_dim;
        const char *kernel;
    } all[] = {{DTYPE_F16, 256, "decode_attend_256"},
               {DTYPE_Q8_0, 64, "decode_attend_64_bytes"},
               {DTYPE_Q8_0, 96, "decode_attend_96_bytes"},
               {DTYPE_Q8_0, 128, "decode_attend_128_bytes"},
               {DTYPE_Q8_0, 256, "decode_attend_256_bytes"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        kind k = ordinary();
        k.cache = all[i].cache;
        k.head_dim = all[i].head_dim;
        model_kind m = model_of(k);
        check_both(&m, DENSE);
        lowered l;
        lower_model(&m, &l);
        const device_step *attend = &l.list.list.steps[2];
        CHECK(strcmp(attend->kernel, all[i].kernel) == 0);
        CHECK(attend->shared_bytes <= (99 - 24) * 1024);
        CHECK(!l.list.has_plain && !l.list.attends_plain);
        free_lowered(&l);
    }
}

static void a_dense_first_layer_goes_before_experts(void)
{
    model_kind m = model_of(ordinary());
    m.n_layers = 3;
    m.layers[1] = m.layers[2] = mixture();
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, MIXED);
    CHECK_NAMES(&l.list.list, 2, MIXED);
    CHECK(!l.list.has_plain && l.list.has_best);
    check_whole(&l);
    free_lowered(&l);
}

static void windows_that_alternate_change_parameters_alone(void)
{
    model_kind m = model_of(ordinary());
    m.layers[1].window = 64;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK(l.list.list.steps[2].a.attention.in.window == 0);
    CHECK(l.list.list.steps[7].a.attention.in.window == 64);
    CHECK(l.list.list.steps[2].kernel == l.list.list.steps[7].kernel);
    free_lowered(&l);
}

/* What pads a vector must stay zero: other forms and other lengths have memory of their own. */
static void vectors_of_other_forms_have_their_own_memory(void)
{
    model_kind m = model_of(ordinary());
    m.layers[1].down = DTYPE_F16;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    const decode_product *a = &l.list.list.steps[5].a.product,
                         *b = &l.list.list.steps[10].a.product;
    CHECK(a->mode == DECODE_RESIDUAL && b->mode == DECODE_RESIDUAL);
    CHECK(a->x.act == GPU_ACT_INT && b->x.act == GPU_ACT_F16 && a->x.planes != b->x.planes);
    free_lowered(&l);
    m.layers[1].down = DTYPE_Q6_K;
    lower_model(&m, &l);
    CHECK(l.list.list.steps[5].a.product.x.planes == l.list.list.steps[10].a.product.x.planes);
    free_lowered(&l);
    m = model_of(ordinary());
    m.layers[1].n_kv_heads = 1;
    m.layers[1].head_dim = 64;
    lower_model(&m, &l);
    CHECK(l.list.list.steps[3].a.product.x.k == 512 && l.list.list.steps[8].a.product.x.k == 256);
    CHECK(l.list.list.steps[3].a.product.x.planes != l.list.list.steps[8].a.product.x.planes);
    free_lowered(&l);
}

static void a_layer_of_another_form_stands_among_fused_ones(void)
{
    model_kind m = model_of(ordinary());
    m.n_layers = 3;
    m.layers[2] = m.layers[0];
    m.layers[1].has_softcap_amid = true;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, "product rope_kv attend product_add softcap gate_up down");
    CHECK_NAMES(&l.list.list, 2, DENSE); /* its first product makes its input */
    CHECK(l.list.list.steps[13].a.any.is_any && l.list.list.steps[13].a.any.made.norm);
    CHECK_NAMES(&l.list.list, -1, "begin head");
    check_whole(&l);
    /* The residual is the plan's value, for all. */
    const float *residual = (const float *)l.p->steps[0].out[0].data;
    CHECK(l.list.list.steps[0].a.begin.residual == residual);
    CHECK(l.list.list.steps[5].a.product.residual == residual);
    CHECK(l.list.attends_plain && l.list.most_cluster > 0);
    free_lowered(&l);
}

static void other_layers_stand_at_both_ends_too(void)
{
    model_kind m = model_of(ordinary());
    m.n_layers = 3;
    m.layers[2] = m.layers[0];
    m.layers[0].type = m.layers[2].type = m.head = DTYPE_F32;
    m.layers[0].down = m.layers[2].down = DTYPE_F32;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, FLOATS);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK_NAMES(&l.list.list, 2, FLOATS);
    CHECK_NAMES(&l.list.list, -1, "begin gather rows"); /* the head is of floats too */
    check_whole(&l);
    free_lowered(&l);
    m.head = DTYPE_Q6_K;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, -1, "begin head");
    check_whole(&l);
    free_lowered(&l);
}

/* ---- Batches --------------------------------------------------------------------------------- */

static device_list batch_of(const lowered *l, int32_t n_tokens, bool has_runs, bool is_short)
{
    device_list out = {0};
    batch_shape of = {n_tokens, n_tokens < 8 ? n_tokens : 8, has_runs, is_short};
    CHECK(lower_batch(l->p, &l->g, false, &of, &out, NULL) == LACE_OK);
    CHECK(out.n_steps == l->p->n_steps);
    for (int32_t i = 0; i < out.n_steps; i++) {
        const device_step *d = &out.steps[i], *before = i > 0 ? d - 1 : NULL;
        CHECK(d->first == &l->p->steps[i] && d->n_steps == 1 && d->launch);
        /* What is taken was left, and what is left is taken. */
        CHECK(d->takes == ROWS_PLAIN || (before && before->leaves == d->takes));
        CHECK(!before || before->leaves == ROWS_PLAIN || before->leaves == d->takes);
    }
    return out;
}

/* The layer is rms_norm qkv rope_kv attend output rms_norm gate_up down, behind two other steps. */
static void check_forms(const device_list *l, const row_form leaves[8])
{
    for (int i = 0; i < 8; i++) {
        if (l->steps[2 + i].leaves != leaves[i])
            printf("# step %d leaves %d, expected %d\n", i, l->steps[2 + i].leaves, leaves[i]);
        CHECK(l->steps[2 + i].leaves == leaves[i]);
    }
}

static void single_rows_are_launched_alone(void)
{
    model_kind m = model_of(ordinary());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 1, false, true);
    check_forms(&b, (row_form[8]){ROWS_PLAIN});
    device_list_free(&b);
    free_lowered(&l);
}

static void small_batches_go_in_slabs(void)
{
    model_kind m = model_of(ordinary());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 8, false, true);
    check_forms(&b, (row_form[8]){ROWS_SLABS, ROWS_PARTS, ROWS_PLAIN, ROWS_SLABS, ROWS_PARTS,
                                  ROWS_SLABS, ROWS_SLABS, ROWS_PARTS});
    CHECK(b.steps[3].launch == gpu_launch_small_batch);
    device_list_free(&b);
    b = batch_of(&l, 8, true, true); /* a run of tokens is attended to otherwise */
    CHECK(b.steps[5].leaves == ROWS_PLAIN && b.steps[6].takes == ROWS_PLAIN);
    device_list_free(&b);
    b = batch_of(&l, 8, false, false); /* long contexts are cut into parts */
    CHECK(b.steps[5].leaves == ROWS_PLAIN && b.steps[6].takes == ROWS_PLAIN);
    device_list_free(&b);
    free_lowered(&l);
}

static void larger_batches_go_in_atoms(void)
{
    model_kind m = model_of(ordinary());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 64, false, true);
    check_forms(&b, (row_form[8]){ROWS_ATOMS_INT, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_INT, ROWS_PLAIN, ROWS_PARTS});
    CHECK(b.steps[3].launch == gpu_launch_products && b.steps[2].n_k64 == WIDTH / 64);
    device_list_free(&b);
    b = batch_of(&l, 512, false, true); /* rotations of any number add up what products left */
    check_forms(&b, (row_form[8]){ROWS_ATOMS_INT, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_INT, ROWS_PLAIN, ROWS_PARTS});
    device_list_free(&b);
    free_lowered(&l);
    kind k = ordinary();
    k.type = k.down = DTYPE_F16;
    m = model_of(k);
    lower_model(&m, &l);
    b = batch_of(&l, 8, false, true); /* slabs are for int kinds */
    check_forms(&b, (row_form[8]){ROWS_ATOMS_HALF, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_HALF, ROWS_PLAIN, ROWS_PARTS});
    device_list_free(&b);
    free_lowered(&l);
}

static void fast_prompts_go_in_bytes(void)
{
    model_kind m = model_of(ordinary());
    lowered l;
    lower_model(&m, &l);
    l.g.fast_prompts = true;
    device_list b = batch_of(&l, 129, false, true);
    check_forms(&b, (row_form[8]){ROWS_BYTES, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_BYTES, ROWS_PLAIN, ROWS_PARTS});
    CHECK(gpu_product_is_bytes(&l.g, b.steps[3].first, 0, 129));
    for (int32_t i = 0; i < b.n_steps; i++) /* the logits stay as they are */
        CHECK(!step_is_matmul(b.steps[i].first) || b.steps[i].first->layer >= 0 ||
              !gpu_product_is_bytes(&l.g, b.steps[i].first, 0, 512));
    device_list_free(&b);
    b = batch_of(&l, 128, false, true); /* a step of texts */
    check_forms(&b, (row_form[8]){ROWS_ATOMS_INT, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_INT, ROWS_PLAIN, ROWS_PARTS});
    device_list_free(&b);
    free_lowered(&l);
}

static void experts_of_batches_have_their_launcher(void)
{
    model_kind m = model_of(mixture());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 64, false, true);
    int32_t n = 0;
    for (int32_t i = 0; i < b.n_steps; i++)
        n += b.steps[i].launch == gpu_launch_experts;
    CHECK(n == 4);
    for (int32_t i = 0; i < b.n_steps; i++) { /* choices are sorted once */
        CHECK((b.steps[i].leaves == ROWS_SLOTS) == (l.p->steps[i].op == OP_MOE_GLU));
        CHECK((b.steps[i].takes == ROWS_SLOTS) == (l.p->steps[i].op == OP_MOE_DOWN));
    }
    device_list_free(&b);
    free_lowered(&l);
}

/* Only down: the kernel of gate and up has pairs, and reads what is not weighed. */
static void experts_without_a_gate_have_it_for_down(void)
{
    for (int i = 0; i < 2; i++) {
        kind k = mixture();
        k.has_no_gate = i == 0;
        k.weighs_inputs = i == 1;
        model_kind m = model_of(k);
        lowered l;
        lower_model(&m, &l);
        device_list b = batch_of(&l, 64, false, true);
        for (int32_t n = 0; n < b.n_steps; n++)
            CHECK((b.steps[n].launch == gpu_launch_experts) ==
                  (b.steps[n].first->op == OP_MOE_DOWN));
        device_list_free(&b);
        free_lowered(&l);
    }
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* 32 rows of tiles are 32 blocks; two of down do not fit beside each other on a processor. */
static void blocks_of_experts_have_rows_and_room(void)
{
    model_kind m = model_of(mixture());
    lowered low;
    lower_model(&m, &low);
    const layer_steps *l = &low.form.segments[0].l;
    CHECK(gpu_experts_n_blocks(&low.g, l) == WIDTH / 16);
    CHECK(gpu_experts_bytes(l) == 4 * 3 * tile_matrix_bytes(TILE_Q4_K, FF, WIDTH));
    CHECK(gpu_experts_stride(l) >= gpu_act_bytes(GPU_ACT_INT, FF) &&
          gpu_experts_stride(l) % 256 == 0);
    uint32_t bytes = gpu_experts_down_bytes(&low.g, l);
    CHECK(2 * (bytes + 1024) > 232448 + 1024 && bytes <= 232448);
    free_lowered(&low);
}

static void more_blocks_share_longer_contexts(void)
{
    model_kind m = model_of(ordinary());
    lowered l;
    lower_model(&m, &l);
    CHECK(token_list_cluster(&l.list, 0) == 1);
    CHECK(token_list_cluster(&l.list, 127) == 1 && token_list_cluster(&l.list, 128) == 2);
    CHECK(token_list_cluster(&l.list, 100000) == LOWER_MOST_CLUSTER);
    free_lowered(&l);
}

/* What a card is decides how steps are launched, and not which ones are fused. */
static void other_cards_have_the_same_lists(void)
{
    static const struct {
        int compiled_for, shared_bytes;
    } cards[] = {{80, 101376}, {80, 166912}, {120, 101376}};
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        card.compiled_for = cards[i].compiled_for;
        card.shared_bytes = cards[i].shared_bytes;
        layers_of_llamas_are_fused_whole();
        experts_are_fused();
        experts_by_other_rules_are_fused();
        layers_without_any_norms_are_pieces();
        cards_with_too_many_processors_are_left_to_steps();
        norms_behind_products_are_known();
        float_matrices_have_their_kernel();
        attention_of_other_kinds_goes_by_steps_in_its_layer();
        a_dense_first_layer_goes_before_experts();
        windows_that_alternate_change_parameters_alone();
        a_layer_of_another_form_stands_among_fused_ones();
        other_layers_stand_at_both_ends_too();
        single_rows_are_launched_alone();
        experts_of_batches_have_their_launcher();
    }
    card.compiled_for = 90;
    card.shared_bytes = 232448;
}

/* Rounds need little memory, and finish more rows than there are threads. */
static void rounds_have_room_for_many_rows(void)
{
    kind k = ordinary();
    k.type = k.down = DTYPE_Q8_0;
    model_kind m = model_of(k);
    m.n_vocab = 262144;
    m.n_processors = 28;
    card.compiled_for = 80;
    card.shared_bytes = 166912;
    lowered l;
    lower_model(&m, &l);
    CHECK(l.list.has_best);
    free_lowered(&l);
    m = model_of(ordinary());
    m.n_processors = 1;
    check_both(&m, DENSE);
    card.compiled_for = 90;
    card.shared_bytes = 232448;
}

/* ---- Parts of plans -------------------------------------------------------------------------- */

/* The parts of a plan; on the host are experts, or else the first layer. */
static void cut_plan(const model_kind *m, bool has_experts_apart, plan_parts *out)
{
    plan *p = write_plan(m);
    int32_t devices[256];
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        bool is_first = s->layer == 0;
        devices[i] =
            s->op == OP_EMBED || (has_experts_apart ? step_has_experts(s) : is_first) ? 0 : 1;
    }
    CHECK(plan_parts_create(p, devices, out, NULL) == LACE_OK);
    plan_free(p);
}

/* A part, lowered; addresses are such that those of the border are told from those of values. */
static void lower_part(const model_kind *m, plan_part *part, card_border *border, lowered *out)
{
    static uint8_t between[1 << 16];
    static border_token token;
    plan *p = part->p;
    part->p = NULL;
    *border = (card_border){.p = p,
                            .values = card_memory,
                            .border = between,
                            .shared = between,
                            .token = &token,
                            .token_on_card = &token};
    lower_plan(m, fuse_plan(p), border, out);
}

/* What a step of the list copies, of the kernel's copies and the engine's. */
static int32_t n_copied(const device_step *d)
{
    return d->a.border.n_large + d->a.border.by_kernel.n_values;
}

static void last_layers_of_a_part_are_fused_whole(void)
{
    model_kind m = model_of(ordinary());
    m.n_layers = 3;
    m.layers[2] = m.layers[1];
    plan_parts parts;
    card_border border;
    lowered l;
    cut_plan(&m, false, &parts);
    CHECK(parts.n_parts == 2 && parts.parts[1].device == 1);
    CHECK(card_border_fits_token(parts.parts[1].p));
    lower_part(&m, &parts.parts[1], &border, &l);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK_NAMES(&l.list.list, 2, DENSE);
    CHECK_NAMES(&l.list.list, -1, "border_enter begin head border_leave");
    const device_list *list = &l.list.list;
    const device_step *enter = &list->steps[0], *begin = &list->steps[1],
                      *leave = &list->steps[list->n_steps - 1],
                      *last = &list->steps[list->n_steps - 2];
    CHECK(n_copied(enter) == 1 && enter->a.border.by_kernel.said &&
          !enter->a.border.by_kernel.done);
    CHECK(enter->a.border.by_kernel.values[0].to == (const uint8_t *)l.layout.residual);
    CHECK(enter->a.border.by_kernel.values[0].n == WIDTH / 4);
    CHECK(begin->a.begin.table == (const uint8_t *)begin->a.begin.residual &&
          begin->a.begin.row_bytes == 0 && begin->a.begin.type == DTYPE_F32 &&
          begin->a.begin.angles[0] && begin->a.begin.next.planes);
    CHECK(n_copied(leave) == 1 && leave->a.border.by_kernel.done);
    CHECK(leave->a.border.by_kernel.values[0].from ==
          (const uint8_t *)last->a.product.parts[0].out);
    free_lowered(&l);
    plan_parts_free(&parts);
}

static void attention_between_experts_of_the_host_is_fused(void)
{
    model_kind m = model_of(mixture());
    plan_parts parts;
    card_border border;
    lowered l;
    cut_plan(&m, true, &parts);
    CHECK(parts.n_parts == 6); /* embedding, attention, experts, attention, experts, the end */
    lower_part(&m, &parts.parts[3], &border, &l);
    CHECK_NAMES(&l.list.list, 1, "qkv attend output rms_norm rows route border_leave");
    const device_list *list = &l.list.list;
    const device_step *leave = &list->steps[list->n_steps - 1];
    CHECK(n_copied(&list->steps[0]) == 1);
    CHECK(n_copied(leave) == 3); /* the residual, its norm, the choices */
    CHECK(!list->steps[2].a.product.next_squares && list->steps[2].a.product.triggers_late);
    check_whole(&l);
    free_lowered(&l);
    lower_part(&m, &parts.parts[5], &border, &l);
    CHECK_NAMES(&l.list.list, -1, "border_enter begin head border_leave");
    free_lowered(&l);
    plan_parts_free(&parts);
}

int main(void)
{
    CASE(last_layers_of_a_part_are_fused_whole);
    CASE(attention_between_experts_of_the_host_is_fused);
    CASE(layers_of_llamas_are_fused_whole);
    CASE(experts_are_fused);
    CASE(experts_without_room_are_not);
    CASE(experts_by_other_rules_are_fused);
    CASE(experts_without_a_gate_are_left_to_steps);
    CASE(experts_of_own_types_are_left_to_steps);
    CASE(layers_without_any_norms_are_pieces);
    CASE(vocabularies_without_room_are_left_to_steps);
    CASE(blocks_have_no_more_rows_than_threads);
    CASE(cards_with_too_many_processors_are_left_to_steps);
    CASE(norms_behind_products_are_known);
    CASE(float_matrices_have_their_kernel);
    CASE(attention_of_other_kinds_goes_by_steps_in_its_layer);
    CASE(attention_of_bytes_and_of_large_heads_is_one_launch);
    CASE(a_dense_first_layer_goes_before_experts);
    CASE(windows_that_alternate_change_parameters_alone);
    CASE(vectors_of_other_forms_have_their_own_memory);
    CASE(a_layer_of_another_form_stands_among_fused_ones);
    CASE(other_layers_stand_at_both_ends_too);
    CASE(single_rows_are_launched_alone);
    CASE(small_batches_go_in_slabs);
    CASE(larger_batches_go_in_atoms);
    CASE(fast_prompts_go_in_bytes);
    CASE(experts_of_batches_have_their_launcher);
    CASE(experts_without_a_gate_have_it_for_down);
    CASE(blocks_of_experts_have_rows_and_room);
    CASE(more_blocks_share_longer_contexts);
    CASE(other_cards_have_the_same_lists);
    CASE(rounds_have_room_for_many_rows);
    return tap_end();
}
