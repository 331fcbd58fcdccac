/* A layer of a known form as fused kernels, and what is handed from one to the next. */
#include "backend/cuda/lower_layer.h"

#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_product.h"

/* ---- Fused kernels --------------------------------------------------------------------------- */

/* Kernels with one struct of parameters; all of them overlap, where the card can do that. */
lace_status lower_launch_fused(const gpu_job *j, const device_step *d, lace_error *err)
{
    cuda_launch l = {.kernel = d->found,
                     .grid = {d->grid, d->grid_y},
                     .block = {d->block},
                     .shared_bytes = d->shared_bytes,
                     .overlaps = j->g->can.overlaps};
    if (d->divides) {
        int32_t log2 = j->cluster < d->most_cluster ? j->cluster : d->most_cluster;
        uint32_t n = log2 < d->most_cluster ? 1u << log2 : d->most_blocks;
        l.cluster = j->g->can.most_cluster > 1 ? n : 1;
        l.grid[0] *= n;
    }
    void *arguments[] = {(void *)(uintptr_t)&d->a};
    return cuda_run(j->queue, &l, arguments, err);
}

device_step *lower_add(lowering *w, const char *name, const char *kernel, const step *first,
                       const step *last)
{
    device_step *d = w->status == LACE_OK ? device_list_add(&w->out->list) : NULL;
    if (!d) {
        if (w->status == LACE_OK)
            w->status = error_nomem(w->err, "a plan for a GPU");
        return NULL;
    }
    d->name = name;
    d->layer = first->layer;
    d->first = first;
    d->n_steps = last ? (int32_t)(last - first) + 1 : 0;
    d->launch = lower_launch_fused;
    d->kernel = kernel;
    return d;
}

void lower_add_plain(lowering *w, const step *s)
{
    w->out->has_plain = true;
    w->out->attends_plain |= s->op == OP_ATTEND;
    device_step *d = w->status == LACE_OK ? device_list_add(&w->out->list) : NULL;
    if (d)
        *d = lower_alone(w->g, w->is_exact, s, 1, 1);
    else if (w->status == LACE_OK)
        w->status = error_nomem(w->err, "a plan for a GPU");
}

/* ---- Products -------------------------------------------------------------------------------- */

static decode_product as_ordinary(const decode_product_any *p)
{
    decode_product out = {.n_parts = p->n_parts,
                          .x = p->x,
                          .next = p->next,
                          .squares = p->squares,
                          .n_squares = p->n_squares,
                          .width = p->width,
                          .eps = p->eps,
                          .scale = p->scale,
                          .softcap = p->softcap,
                          .mode = p->mode,
                          .glu = p->glu,
                          .residual = p->residual,
                          .next_norm = p->next_norm,
                          .next_squares = p->next_squares,
                          .best = p->best,
                          .n_blocks = p->n_blocks,
                          .ring_bytes = p->ring_bytes,
                          .triggers_late = p->triggers_late};
    for (int32_t i = 0; i < p->n_parts; i++)
        out.parts[i] = p->parts[i];
    return out;
}

void lower_add_product(lowering *w, const char *name, const step *first, const step *last,
                       decode_product_any *p)
{
    const product_room *room = p->is_any ? &w->room_any : &w->room;
    device_step *d = lower_add(w, name, room->kernel, first, last);
    if (!d)
        return;
    d->grid = product_room_place(room, w->g, p, &d->shared_bytes);
    d->block = DECODE_THREADS;
    d->most_bytes = (uint32_t)w->g->info.max_shared_bytes;
    if (p->is_any)
        d->a.any = *p;
    else
        d->a.product = as_ordinary(p);
}

/* How many blocks write the sums of squares of a product into the residual. */
int32_t lower_n_blocks(const lowering *w, const weight *of)
{
    int32_t units = (int32_t)((of->n_rows + TILE_ROWS - 1) / TILE_ROWS);
    return units < w->g->info.n_processors ? units : w->g->info.n_processors;
}

/* norm: NULL if the product reads its input as it is. */
void lower_norm_by(const lowering *w, decode_product_any *p, const step *norm, const float *squares)
{
    if (!norm || w->n_squares == 0)
        return;
    p->squares = squares;
    p->n_squares = w->n_squares;
    p->width = (int32_t)norm->in[0].width;
    p->eps = norm->a.norm.eps;
}

decode_vector lower_vector(const lowering *w, vector_role role, const step *s)
{
    return decode_layout_vector(w->m, role, s->a.matmul.weights[0]);
}

/* ---- Between layers -------------------------------------------------------------------------- */

/* What the last step of a layer leaves, besides the residual. */
typedef struct handover {
    decode_vector v;
    const float *norm; /* NULL: the residual as it is */
} handover;

/*
 * Whether the segment's first product finds its input made: by a fused layer in front of it. A
 * product can only leave a vector that is normed.
 */
bool lower_is_handed_over(const lowering *w, int32_t i)
{
    if (i == 0) /* by the kernel that begins a token */
        return w->f->n_segments > 0 && w->f->segments[0].is_fused;
    const decode_segment *before = &w->f->segments[i - 1];
    if (!before->is_fused || before->l.is_attention)
        return false;
    return i == w->f->n_segments || before->l.down_norm || w->f->segments[i].l.norm;
}

/* What a product leaves where nobody reads it: a vector of the layer's own. */
static handover to_nobody(const lowering *w, const layer_steps *l)
{
    const step *any = l->norm ? l->norm : l->ffn_norm;
    any = any ? any : l->o_norm;
    return (handover){lower_vector(w, FOR_QKV, l->qkv), any->a.norm.weight};
}

/* For the segment i, the head behind the last of them; `before` gives a vector that nobody reads,
 * if it makes its input itself. */
static handover handover_to(const lowering *w, int32_t i, const layer_steps *before)
{
    const decode_form *f = w->f;
    if (i == f->n_segments && f->head)
        return (handover){lower_vector(w, FOR_HEAD, f->head), f->final_norm->a.norm.weight};
    if (i < f->n_segments && f->segments[i].is_fused && lower_is_handed_over(w, i)) {
        const layer_steps *l = &f->segments[i].l;
        return (handover){lower_vector(w, FOR_QKV, l->qkv),
                          l->norm ? l->norm->a.norm.weight : NULL};
    }
    return to_nobody(w, before);
}

static void add_pack(lowering *w, const step *at, const float *x, int64_t width, decode_vector to)
{
    device_step *d = lower_add(w, "pack", "decode_pack_kernel", at, NULL);
    if (!d)
        return;
    int32_t each = 4 * DECODE_PACK_THREADS;
    d->a.pack = (decode_pack){.x = x, .next = to, .width = (int32_t)width};
    d->grid = (uint32_t)((width + each - 1) / each);
    d->block = DECODE_PACK_THREADS;
}

/* The input of the product `at`, which other steps have left as the residual. */
void lower_enter(lowering *w, const step *norm, const step *at, decode_vector to)
{
    if (norm)
        lower_add_plain(w, norm);
    const float *x = norm ? (const float *)norm->out[0].data : w->m->residual;
    add_pack(w, at, x, at->in[0].width, to);
    w->n_squares = 0;
}

/* Whether blocks can make the input of a product: of all types but lace's own. */
static bool can_make(const step *s)
{
    for (int32_t i = 0; i < s->a.matmul.n_weights; i++) {
        gpu_act act = tile_kind_act(tile_kind_of(s->a.matmul.weights[i]->type));
        if (act == GPU_ACT_FLOATS || act == GPU_ACT_ROTATED)
            return false;
    }
    return true;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* makes: its blocks make the input by themselves; is_normed: a step in front has made it. */
static void add_qkv(lowering *w, const layer_steps *l, bool makes, bool is_normed)
{
    const weight *const *k = l->qkv->a.matmul.weights;
    const float *const *b = l->qkv->a.matmul.biases;
    float *out[3] = {w->m->q, w->m->k, w->m->v};
    for (int n = 0; n < 3 && l->attends_by_steps; n++)
        out[n] = (float *)l->qkv->out[n].data;
    decode_product_any p = {.parts = {gpu_product_part(w->g, k[0], b[0], out[0]),
                                      gpu_product_part(w->g, k[1], b[1], out[1]),
                                      gpu_product_part(w->g, k[2], b[2], out[2])},
                            .n_parts = 3,
                            .x = lower_vector(w, FOR_QKV, l->qkv),
                            .scale = l->qkv->a.matmul.scale,
                            .mode = DECODE_STORE,
                            /* Attention reads the position before it waits: it must be there. */
                            .triggers_late = !w->has_late};
    w->has_late = true;
    if (makes) {
        step_form form = {.norm = l->norm};
        decode_input in = lower_input(l->qkv, &form);
        lower_make_input(&p, &in);
    } else {
        lower_norm_by(w, &p, l->norm, w->m->squares[0]);
    }
    lower_add_product(w, "qkv", l->norm && !is_normed ? l->norm : l->qkv, l->qkv, &p);
}

static const struct {
    int32_t dim;
    const char *any, *neighbours, *halves; /* F16 */
    const char *bytes;                     /* Q8_0 */
} attend_names[] = {
    {64, "decode_attend_64", "decode_attend_64_neighbours", "decode_attend_64_halves",
     "decode_attend_64_bytes"},
    {80, "decode_attend_80", "decode_attend_80", "decode_attend_80", NULL},
    {96, "decode_attend_96", "decode_attend_96_neighbours", "decode_attend_96_halves",
     "decode_attend_96_bytes"},
    {128, "decode_attend_128", "decode_attend_128_neighbours", "decode_attend_128_halves",
     "decode_attend_128_bytes"},
    {256, "decode_attend_256", "decode_attend_256", "decode_attend_256", "decode_attend_256_bytes"},
};

/* The kernel for heads of this size: of f16 those that are turned as a whole in all layers, without
 * caps, have quicker ones. */
static const char *attend_name(const decode_form *f, const kv_layer *kv)
{
    int32_t at = 0, head_dim = kv->head_dim;
    while (attend_names[at].dim != head_dim)
        at++;
    if (kv->type == DTYPE_Q8_0)
        return attend_names[at].bytes;
    bool is_neox = false;
    for (int32_t i = 0; i < f->n_segments; i++) {
        const layer_steps *l = &f->segments[i].l;
        if (!f->segments[i].is_fused || l->attends_by_steps || l->attend->kv.head_dim != head_dim)
            continue;
        bool turns = l->rope->op == OP_ROPE_KV;
        if (l->attend->a.attend.softcap > 0 || (turns && l->rope->a.rope.n_dims != head_dim))
            return attend_names[at].any;
        is_neox |= turns && l->rope->a.rope.is_neox;
    }
    return is_neox ? attend_names[at].halves : attend_names[at].neighbours;
}

/* What a block of it asks for: of each warp keys and values of 16 positions, once or twice. */
static uint32_t attend_bytes(const kv_layer *kv)
{
    bool has_bytes = kv->type == DTYPE_Q8_0;
    uint32_t row =
        has_bytes ? (uint32_t)row_bytes(DTYPE_Q8_0, kv->head_dim) : 2 * (uint32_t)kv->head_dim + 16;
    return DECODE_ATTEND_WARPS * (has_bytes || kv->head_dim <= 128 ? 2 : 1) * 2 * 16 * row;
}

gpu_cache lower_cache(const lowering *w, const kv_layer *kv)
{
    return (gpu_cache){.data = kv->data,
                       .page_bytes = kv->page_bytes,
                       .k_offset = kv->k_offset,
                       .v_offset = kv->v_offset,
                       .row_bytes = kv->row_bytes,
                       .type = (int32_t)kv->type,
                       .page_tokens = kv->page_tokens,
                       .n_heads = kv->n_heads,
                       .head_dim = kv->head_dim,
                       .tables = w->tables->tables[kv->group],
                       .pages_per_sequence = w->tables->pages_per_sequence,
                       .sequences = &w->m->state->sequence,
                       .positions = &w->m->state->position};
}

/* How many blocks may share a head's context: so many that each has a processor, but two at least.
 * Without clusters, whose sizes are powers of two, any number will do. */
static void divide_context(const gpu *g, int32_t n_kv_heads, device_step *d)
{
    bool has_clusters = g->can.most_cluster > 1;
    int32_t most = g->info.n_processors / n_kv_heads, log2 = 1;
    int32_t limit = has_clusters ? g->can.most_cluster : DECODE_MAX_CLUSTER;
    most = most > limit ? limit : most;
    while (log2 < LOWER_MOST_CLUSTER && 2 << log2 <= most)
        log2++;
    d->divides = true;
    d->most_cluster = log2;
    d->most_blocks = has_clusters || most < 2 ? 1u << log2 : (uint32_t)most;
}

void lower_add_attention(lowering *w, const layer_steps *l)
{
    decode_vector next = lower_vector(w, FOR_OUTPUT, l->o);
    if (l->attends_by_steps) {
        const operand *out = &l->attend->out[0];
        lower_add_steps(w, l->qkv + 1, l->attend + 1);
        if (!can_make(l->o))
            add_pack(w, l->attend, (const float *)out->data, out->width, next);
        return;
    }
    const kv_layer *kv = &l->rope->kv;
    device_step *d = lower_add(w, "attend", attend_name(w->f, kv), l->qkv + 1, l->attend);
    if (!d)
        return;
    d->grid = (uint32_t)kv->n_heads;
    d->block = 32 * DECODE_ATTEND_WARPS;
    d->shared_bytes = d->most_bytes = attend_bytes(kv);
    divide_context(w->g, kv->n_heads, d);
    if (d->most_cluster > w->out->most_cluster)
        w->out->most_cluster = d->most_cluster;
    const step *normed = l->q_norm ? l->q_norm : l->k_norm;
    decode_attention attention = {
        .q = w->m->q,
        .k = w->m->k,
        .v = w->m->v,
        .q_norm = l->q_norm ? l->q_norm->a.norm.weight : NULL,
        .k_norm = l->k_norm ? l->k_norm->a.norm.weight : NULL,
        .eps = normed ? normed->a.norm.eps : 0,
        .angles = l->rope->op == OP_ROPE_KV ? (const float *)l->rope->in[0].data : NULL,
        .sinks = l->attend->a.attend.sinks,
        .state = w->m->state,
        .cache = lower_cache(w, kv),
        .next = next,
        .scale = l->attend->a.attend.scale,
        .softcap = l->attend->a.attend.softcap,
        .window = l->attend->a.attend.window,
        .n_heads = l->attend->a.attend.n_heads,
        .n_dims = l->rope->a.rope.n_dims,
        .is_neox = l->rope->a.rope.is_neox};
    /* Kernels with clusters read the first of these alone. */
    d->a.attention = (decode_attention_parts){.in = attention,
                                              .values = w->m->part_values,
                                              .sums = w->m->part_sums,
                                              .tickets = w->m->tickets};
}

/* residual += norm(y), by the steps that stand for it. */
static void add_join(lowering *w, const step *norm, const step *plus, handover to, float *squares)
{
    device_step *d = lower_add(w, "norm_add", "decode_join_kernel", norm, plus);
    w->n_squares = 1;
    if (!d)
        return;
    d->grid = 1;
    d->block = DECODE_JOIN_THREADS;
    d->a.join = (decode_join){.y = w->m->y,
                              .norm = norm->a.norm.weight,
                              .next_norm = to.norm,
                              .residual = w->m->residual,
                              .before = w->m->residual,
                              .next = to.v,
                              .next_squares = squares,
                              .width = (int32_t)norm->in[0].width,
                              .eps = norm->a.norm.eps,
                              .scale = plus->a.add.scale,
                              .keep = 1};
}

/* Output and down: into the residual, and on as the input of what follows. norm, plus: NULL if
 * results are added as they are. makes: blocks make the input by themselves, of floats. */
static void add_residual(lowering *w, const char *name, const step *s, const step *norm,
                         const step *plus, bool makes, decode_vector x, handover to, float *squares)
{
    const weight *of = s->a.matmul.weights[0];
    decode_product_any p = {
        .parts = {gpu_product_part(w->g, of, s->a.matmul.biases[0], norm ? w->m->y : NULL)},
        .n_parts = 1,
        .x = x,
        .scale = s->a.matmul.scale,
        .mode = norm ? DECODE_STORE : DECODE_RESIDUAL};
    if (makes) {
        decode_input in = lower_input(s, &(step_form){0});
        lower_make_input(&p, &in);
    }
    if (norm) {
        lower_add_product(w, name, s, s, &p);
        add_join(w, norm, plus, to, squares);
        return;
    }
    p.next = to.v;
    p.residual = w->m->residual;
    p.next_norm = to.norm;
    p.next_squares = squares;
    lower_add_product(w, name, s, s, &p);
    w->n_squares = lower_n_blocks(w, of);
}

static void add_glu(lowering *w, const layer_steps *l)
{
    const step *s = l->glu;
    decode_product_any p = {
        .parts = {gpu_product_part(w->g, s->a.matmul.weights[0], s->a.matmul.biases[0], NULL)},
        .n_parts = 1,
        .x = lower_vector(w, FOR_GLU, s),
        .next = lower_vector(w, FOR_DOWN, l->down),
        .scale = s->a.matmul.scale,
        .mode = DECODE_GLU,
        .glu = (int32_t)s->a.matmul.glu};
    p.parts[0].pair = s->a.matmul.weights[1]->data;
    p.parts[0].pair_bias = s->a.matmul.biases[1];
    lower_norm_by(w, &p, l->ffn_norm, w->m->squares[1]);
    lower_add_product(w, "gate_up", l->ffn_norm ? l->ffn_norm : s, s, &p);
}

static void add_router(lowering *w, const layer_steps *l)
{
    const step *s = l->router;
    const weight *of = s->a.matmul.weights[0];
    device_step *d = lower_add(w, "router", "decode_router_kernel", l->ffn_norm, s);
    if (!d)
        return;
    d->grid = (uint32_t)of->n_rows;
    d->block = DECODE_ROUTER_THREADS;
    d->a.router = (decode_router){.weights = (const float *)of->data,
                                  .bias = s->a.matmul.biases[0],
                                  .residual = w->m->residual,
                                  .norm = l->ffn_norm->a.norm.weight,
                                  .squares = w->m->squares[1],
                                  .logits = w->m->router,
                                  .n_squares = w->n_squares,
                                  .width = (int32_t)of->n_cols,
                                  .eps = l->ffn_norm->a.norm.eps,
                                  .scale = s->a.matmul.scale};
}

/* Blocks without work keep places, or two of the next kernel would meet there. */
static void add_experts(lowering *w, const layer_steps *l, handover to)
{
    const decode_layout *m = w->m;
    uint32_t most = (uint32_t)w->g->info.max_shared_bytes;
    uint32_t down_bytes = w->room.residual_shared < most ? w->room.residual_shared : most;
    decode_vector in = decode_layout_vector(m, FOR_EXPERTS, l->expert_glu->a.moe.gate),
                  hidden = decode_layout_vector(m, FOR_EXPERTS_DOWN, l->expert_down->a.moe.down);
    add_router(w, l);
    device_step *d = lower_add(w, "experts_gate_up", "decode_experts_glu", l->route, l->expert_glu);
    if (d) {
        decode_experts *p = &d->a.experts;
        d->shared_bytes = gpu_experts_glu(w->g, l, in, down_bytes, p);
        p->logits = m->router;
        p->next = hidden;
        p->squares = m->squares[1];
        p->n_squares = w->n_squares;
        p->width = (int32_t)l->ffn_norm->in[0].width;
        p->eps = l->ffn_norm->a.norm.eps;
        d->grid = (uint32_t)w->g->info.n_processors;
        d->block = DECODE_THREADS;
        d->most_bytes = most;
    }
    d = lower_add(w, "experts_down", "decode_experts_down", l->expert_down, l->expert_down);
    if (d) {
        decode_experts *p = &d->a.experts;
        d->shared_bytes = gpu_experts_down(w->g, l, hidden, down_bytes, p);
        p->logits = m->router;
        p->next = to.v;
        p->residual = m->residual;
        p->next_norm = to.norm;
        p->next_squares = m->squares[0];
        d->grid = (uint32_t)w->g->info.n_processors;
        d->block = DECODE_THREADS;
        d->most_bytes = most;
    }
    w->n_squares = gpu_experts_n_blocks(w->g, l);
}

void lower_add_layer(lowering *w, int32_t i)
{
    const layer_steps *l = &w->f->segments[i].l;
    bool is_made = lower_is_handed_over(w, i), makes = !is_made && can_make(l->qkv);
    if (!is_made && !makes)
        lower_enter(w, l->norm, l->qkv, lower_vector(w, FOR_QKV, l->qkv));
    add_qkv(w, l, makes, !is_made && !makes);
    lower_add_attention(w, l);
    handover amid = {.norm = l->ffn_norm ? l->ffn_norm->a.norm.weight : NULL};
    if (l->is_attention)
        amid = to_nobody(w, l);
    else
        amid.v = l->glu ? lower_vector(w, FOR_GLU, l->glu)
                        : decode_layout_vector(w->m, FOR_EXPERTS, l->expert_glu->a.moe.gate);
    add_residual(w, "output", l->o, l->o_norm, l->o_add, l->attends_by_steps && can_make(l->o),
                 lower_vector(w, FOR_OUTPUT, l->o), amid, w->m->squares[1]);
    if (l->is_attention)
        return;
    handover next = handover_to(w, i + 1, l);
    if (l->glu) {
        add_glu(w, l);
        add_residual(w, "down", l->down, l->down_norm, l->down_add, false,
                     lower_vector(w, FOR_DOWN, l->down), next, w->m->squares[0]);
    } else {
        add_experts(w, l, next);
    }
}
