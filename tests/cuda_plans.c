/* Plans of made-up models, and what they become on a card. */
#include "cuda_plans.h"

#include "base/mem.h"

kind ordinary_layer(void)
{
    return (kind){.type = DTYPE_Q4_K,
                  .cache = DTYPE_F16,
                  .router = DTYPE_F32,
                  .down = DTYPE_Q4_K,
                  .head_dim = 128,
                  .n_kv_heads = 2};
}

kind mixture_layer(void)
{
    kind k = ordinary_layer();
    k.n_experts = 16;
    k.n_used = 4;
    return k;
}

model_kind model_of(kind k)
{
    return (model_kind){
        .layers = {k, k}, .n_layers = 2, .n_vocab = VOCAB, .n_processors = 132, .head = k.type};
}

static float floats[WIDTH * 4];
static weight matrices[MAX_LAYERS][8], head, experts[MAX_LAYERS][3][MAX_EXPERTS];
uint8_t card_memory[1 << 22];

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
plan *write_plan(const model_kind *m)
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

plan *fuse_plan(plan *p)
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

plan *make_plan(const model_kind *m)
{
    return fuse_plan(write_plan(m));
}

card_kind lowered_card = {90, 232448};

void lower_plan(const model_kind *m, plan *p, const card_border *border, lowered *out)
{
    memset(out, 0, sizeof *out);
    out->g.can = gpu_abilities_of(lowered_card.compiled_for);
    out->g.info.n_processors = m->n_processors;
    out->g.info.max_shared_bytes = lowered_card.shared_bytes;
    out->p = p;
    out->is_known = decode_form_match(out->p, &out->g, &out->form);
    const decode_form *f = out->is_known ? &out->form : NULL;
    gpu_batch tables = {.pages_per_sequence = 32};
    CHECK(decode_layout_init(f, &out->g, &out->layout, NULL) == LACE_OK);
    decode_layout_place(&out->layout, f, &out->g, card_memory);
    CHECK(lower_token(out->p, &out->g, false, &tables, f, &out->layout, border, NULL, &out->list,
                      NULL) == LACE_OK);
}

void lower_model(const model_kind *m, lowered *out)
{
    lower_plan(m, make_plan(m), NULL, out);
}

void free_lowered(lowered *l)
{
    token_list_free(&l->list);
    decode_layout_free(&l->layout);
    decode_form_free(&l->form);
    plan_free(l->p);
}

const char *step_names(const device_list *l, int32_t layer)
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

void check_whole(const lowered *l)
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

void check_both(const model_kind *m, const char *expected)
{
    lowered l;
    lower_model(m, &l);
    CHECK_NAMES(&l.list.list, 0, expected);
    CHECK_NAMES(&l.list.list, 1, expected);
    check_whole(&l);
    free_lowered(&l);
}

void check_plain(const model_kind *m)
{
    lowered l;
    lower_model(m, &l);
    CHECK(!l.is_known && !l.list.has_best && l.list.has_plain && l.list.most_cluster == 0);
    CHECK(l.list.list.n_steps == 1 + l.p->n_steps);
    check_whole(&l);
    free_lowered(&l);
}

void check_pieces(const model_kind *m, const char *expected)
{
    lowered l;
    lower_model(m, &l);
    CHECK(l.is_known && l.form.n_layers == 0 && l.list.has_plain && l.list.most_cluster == 0);
    free_lowered(&l);
    check_both(m, expected);
}

void on_other_cards(void (*run)(void))
{
    static const card_kind cards[] = {{80, 101376}, {80, 166912}, {120, 101376}};
    const card_kind usual = lowered_card;
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        lowered_card = cards[i];
        run();
    }
    lowered_card = usual;
}
