/* Steps that are of no known layer, for one token: products with what they take along, and the rest. */
#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_product.h"
#include "backend/cuda/lower_layer.h"

/* ---- Inputs ---------------------------------------------------------------------------------- */

decode_input lower_input(const step *s, const step_form *f)
{
    const step *glu = f->glu, *norm = f->norm;
    bool has_up = glu && glu->in[1].value >= 0;
    const operand *x = glu && !f->norms_first ? &glu->in[has_up] : norm ? &norm->in[0] : &s->in[0];
    decode_input in = {.x = (const float *)x->data, .width = (int32_t)s->in[0].width, .glu = -1};
    if (norm) {
        in.norm = norm->a.norm.weight;
        in.bias = norm->a.norm.bias;
        in.group = (int32_t)norm->a.norm.group;
        in.is_wide = norm->a.norm.is_wide;
        in.centers = norm->op == OP_LAYER_NORM;
        in.eps = norm->a.norm.eps;
        in.norms_first = f->norms_first;
    }
    if (!glu)
        return in;
    in.glu = (int32_t)glu->a.glu.kind;
    if (!has_up)
        return in;
    in.gate = (const float *)glu->in[0].data;
    in.gate_each = (int32_t)(glu->out[0].width / glu->in[0].width);
    if (f->pick) {
        in.gate = (const float *)f->pick->in[0].data + f->pick->a.pick.offset;
        in.gate_n = (int32_t)f->pick->a.pick.n;
        in.gate_step = (int32_t)f->pick->a.pick.stride;
    }
    return in;
}

/* The factor of a norm of all columns is applied to results: each warp has a sum of squares. */
void lower_make_input(decode_product_any *p, const decode_input *in)
{
    p->is_any = true;
    p->made = *in;
    p->n_squares = DECODE_WARPS;
    p->width = in->width;
    p->eps = in->eps;
    for (int32_t i = 0; i < p->n_parts; i++)
        p->scales[i] = p->scales[i] != 0 ? p->scales[i] : p->scale;
}

/* ---- Steps of the plan ----------------------------------------------------------------------- */

/* The plan's steps that a device step for `s` stands for begin here: with those in front of it, of
 * the same layer, that nothing is launched for. The device step before it stands for others. */
static const step *begin_with(lowering *w, const step *s, bool is_alone)
{
    device_list *l = &w->out->list;
    while (w->next < s && (is_alone || w->next->layer != s->layer)) {
        l->steps[l->n_steps - 1].n_steps++;
        w->next++;
    }
    const step *first = w->next;
    w->next = s + 1;
    return first;
}

/* ---- Products -------------------------------------------------------------------------------- */

static const step *step_of(const step *s, const step_form *f, int32_t n)
{
    return n == 0 ? s : f->joined[n - 1];
}

/* Matrices of floats, of a step and of those that are joined to it. */
static void add_rows(lowering *w, const step *s, const step_form *f, const step *first)
{
    bool adds = s->op == OP_MATMUL_ADD || f->add;
    decode_rows p = {.adds = adds, .made = lower_input(s, f)};
    int32_t at = 0;
    for (int32_t n = 0; n <= f->n_joined; n++) {
        const step *of = step_of(s, f, n);
        int32_t parts[STEP_MAX_OUT], n_parts = decode_step_parts(of, true, parts);
        for (int32_t i = 0; i < n_parts; i++) {
            const weight *by = of->a.matmul.weights[parts[i]];
            const operand *out = f->add ? &f->add->out[0] : &of->out[parts[i]];
            bool is_shares = w->f->forms[of - w->f->steps].with == s;
            p.parts[p.n_parts].weights = (const float *)by->data;
            p.parts[p.n_parts].bias = of->a.matmul.biases[parts[i]];
            p.parts[p.n_parts].out = is_shares ? w->m->shared_by : (float *)out->data;
            p.parts[p.n_parts].first = at;
            p.parts[p.n_parts++].scale = of->a.matmul.scale * (f->add ? f->add->a.add.scale : 1);
            at += (int32_t)by->n_rows;
        }
    }
    device_step *d = p.n_parts > 0 ? lower_add(w, adds ? "rows_add" : "rows", "decode_rows_kernel",
                                               first ? first : s, first ? s : NULL)
                                   : NULL;
    if (!d)
        return;
    d->grid = (uint32_t)at;
    d->block = DECODE_ROUTER_THREADS;
    d->a.rows = p;
}

/* The convolution behind a part. */
static void add_conv(const lowering *w, decode_product_any *p, const step *conv)
{
    p->conv_part = p->n_parts - 1;
    p->parts[p->conv_part].out = (float *)conv->out[0].data;
    p->sequence = &w->m->state->sequence;
    p->conv = (decode_conv){.weight = conv->a.conv.weight,
                            .bias = conv->a.conv.bias,
                            .state = conv->recurrent.data + conv->recurrent.offset,
                            .slot_bytes = conv->recurrent.slot_bytes,
                            .n_taps = conv->a.conv.n_taps,
                            .is_silu = conv->a.conv.is_silu};
}

static decode_product_any product_of(const lowering *w, const step *s, const step_form *f)
{
    decode_product_any p = {.scale = s->a.matmul.scale, .glu = (int32_t)s->a.matmul.glu};
    p.mode = s->op == OP_MATMUL_GLU             ? DECODE_GLU
             : s->op == OP_MATMUL_ADD || f->add ? DECODE_RESIDUAL
                                                : DECODE_STORE;
    for (int32_t n = 0; n <= f->n_joined; n++) {
        const step *of = step_of(s, f, n);
        int32_t parts[STEP_MAX_OUT], n_parts = decode_step_parts(of, false, parts);
        for (int32_t i = 0; i < n_parts && !(p.mode == DECODE_GLU && i > 0); i++) {
            int32_t k = parts[i];
            p.scales[p.n_parts] = of->a.matmul.scale * (f->add ? f->add->a.add.scale : 1);
            p.parts[p.n_parts++] = gpu_product_part(
                w->g, of->a.matmul.weights[k], of->a.matmul.biases[k], (float *)of->out[k].data);
            if (f->conv && f->conv->in[0].value == of->out[k].value)
                add_conv(w, &p, f->conv);
        }
    }
    if (p.mode == DECODE_RESIDUAL)
        p.residual = (float *)(f->add ? f->add->out[0].data : s->out[0].data);
    p.share = f->share ? (const float *)f->share->in[0].data : NULL;
    return p;
}

static void add_product(lowering *w, const step *s, const step_form *f)
{
    static const char *const names[] = {"product", "product_add", "gate_up"};
    decode_product_any p = product_of(w, s, f);
    const step *first = begin_with(w, s, false);
    if (p.n_parts == 0) {
        add_rows(w, s, f, first);
        return;
    }
    decode_input in = lower_input(s, f);
    p.x.k = (int32_t)((in.width + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN);
    p.x.act = GPU_ACT_INT;
    if (f->maker || f->before) {
        in = (decode_input){0};
        p.x = lower_vector(w, f->maker ? FOR_DOWN : FOR_GLU, s);
    }
    lower_make_input(&p, &in);
    if (f->before)
        lower_norm_by(w, &p, f->norm, w->m->squares[1]);
    if (p.mode == DECODE_GLU) {
        p.parts[0].pair = s->a.matmul.weights[1]->data;
        p.parts[0].pair_bias = s->a.matmul.biases[1];
        p.next = (decode_vector){.planes = s->out[0].data, .act = GPU_ACT_FLOATS};
        if (f->reader)
            p.next = lower_vector(w, FOR_DOWN, f->reader);
    }
    if (f->next) {
        p.next = lower_vector(w, FOR_GLU, f->next);
        p.next_norm = w->f->forms[f->next - w->f->steps].norm->a.norm.weight;
        p.next_squares = w->m->squares[1];
        w->n_squares = lower_n_blocks(w, s->a.matmul.weights[0]);
    }
    p.triggers_late = !w->has_late; /* what reads state before it waits finds the last token's */
    w->has_late = true;
    lower_add_product(w, f->maker && p.mode == DECODE_RESIDUAL ? "down" : names[p.mode], first, s,
                      &p);
    add_rows(w, s, f, NULL);
}

/* ---- Experts --------------------------------------------------------------------------------- */

static void add_experts(lowering *w, const step *s, const step_form *f)
{
    layer_steps l = {.route = f->route,
                     .expert_glu = s,
                     .expert_down = s + 1,
                     .shared_glu = f->shared_glu,
                     .shared_down = f->shared_down};
    uint32_t most = (uint32_t)w->g->info.max_shared_bytes;
    uint32_t down_bytes = gpu_experts_down_bytes(w->g, &l);
    const weight *gate = s->a.moe.gate, *down = s[1].a.moe.down;
    decode_vector hidden = decode_layout_vector(w->m, FOR_EXPERTS_DOWN, down);
    decode_vector in = {.k =
                            (int32_t)((gate->n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN),
                        .act = (int32_t)tile_kind_act(tile_kind_of(gate->type))};
    for (int i = 0; i < 2; i++) {
        const step *at = s + i, *first = begin_with(w, at, false);
        device_step *d =
            lower_add(w, i ? "experts_down" : "experts_gate_up",
                      i ? "decode_experts_down_any" : "decode_experts_glu_any", first, at);
        if (!d)
            return;
        decode_experts *p = &d->a.experts;
        d->shared_bytes = i ? gpu_experts_down(w->g, &l, hidden, down_bytes, p)
                            : gpu_experts_glu(w->g, &l, in, down_bytes, p);
        d->grid = (uint32_t)w->g->info.n_processors;
        d->block = DECODE_THREADS;
        d->most_bytes = most;
        p->logits = f->routes ? (const float *)f->route->in[0].data : NULL;
        p->choices = f->routes ? NULL : (const gpu_choice *)s->in[1].data;
        p->shared_by = f->shared_by ? w->m->shared_by : NULL;
        const route_rule *rule = &f->route->a.moe.rule;
        p->choice_bias = rule->bias;
        p->expert_scales = rule->scales;
        p->is_sigmoid = rule->scores == ROUTE_SIGMOID;
        p->norm_more = rule->norm_more;
        p->norm_least = rule->norm_least;
        p->factor = rule->factor != 0 ? rule->factor : 1;
        if (i == 0) {
            p->next = hidden;
            p->made = lower_input(s, f);
            p->n_squares = DECODE_WARPS;
            p->width = p->made.width;
            p->eps = p->made.eps;
        } else {
            p->residual = (float *)at->out[0].data;
            p->makes = at->a.moe.makes;
        }
    }
}

/* ---- State ----------------------------------------------------------------------------------- */

static gpu_scan scan_of(const lowering *w, const step *s)
{
    return (gpu_scan){.x = (const float *)s->in[0].data,
                      .b = (const float *)s->in[1].data,
                      .c = (const float *)s->in[2].data,
                      .dt = (const float *)s->in[3].data,
                      .out = (float *)s->out[0].data,
                      .a = s->a.scan.a,
                      .d = s->a.scan.d,
                      .dt_bias = s->a.scan.dt_bias,
                      .dt_min = s->a.scan.dt_min,
                      .dt_max = s->a.scan.dt_max,
                      .state = (float *)(s->recurrent.data + s->recurrent.offset),
                      .slot_floats = (int64_t)(s->recurrent.slot_bytes / 4),
                      .sequences = &w->m->state->sequence,
                      .n_tokens = 1,
                      .head_dim = s->a.scan.head_dim,
                      .n_state = s->a.scan.n_state,
                      .group_heads = s->a.scan.n_heads / s->a.scan.n_groups};
}

static gpu_delta delta_of(const lowering *w, const step *s)
{
    return (gpu_delta){.qkv = (const float *)s->in[0].data,
                       .a = (const float *)s->in[1].data,
                       .b = (const float *)s->in[2].data,
                       .out = (float *)s->out[0].data,
                       .rate = s->a.delta.rate,
                       .bias = s->a.delta.bias,
                       .state = s->recurrent.data + s->recurrent.offset,
                       .slot_bytes = s->recurrent.slot_bytes,
                       .sequences = &w->m->state->sequence,
                       .n_tokens = 1,
                       .n_heads = s->a.delta.n_heads,
                       .n_key_heads = s->a.delta.n_key_heads,
                       .k_dim = s->a.delta.k_dim,
                       .v_dim = s->a.delta.v_dim,
                       .is_tiled = s->a.delta.is_tiled,
                       .eps = DELTA_EPS};
}

/* They read the state before they wait: a product in front has begun when all before it had ended. */
static void add_state(lowering *w, const step *s)
{
    bool is_scan = s->op == OP_SCAN;
    const step *first = begin_with(w, s, false);
    device_step *d = lower_add(w, is_scan ? "scan" : "delta",
                               is_scan ? "decode_scan_kernel" : "decode_delta_kernel", first, s);
    if (!d)
        return;
    int32_t columns = is_scan ? s->a.scan.head_dim : s->a.delta.v_dim;
    d->grid = (uint32_t)(is_scan ? s->a.scan.n_heads : s->a.delta.n_heads);
    d->grid_y = (uint32_t)((columns + 31) / 32);
    d->block = 32 * DECODE_STATE_WARPS;
    if (is_scan)
        d->a.scan = scan_of(w, s);
    else
        d->a.delta = delta_of(w, s);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

static decode_stream stream_of(const step_form *f, int which, const operand *made, int64_t n_heads,
                               int64_t dim)
{
    const step *norm = f->heads[which].norm, *pick = f->heads[which].pick;
    const operand *x = pick ? &pick->in[0] : norm ? &norm->in[0] : made;
    return (decode_stream){.x = (const float *)x->data + (pick ? pick->a.pick.offset : 0),
                           .norm = norm ? norm->a.norm.weight : NULL,
                           .n_heads = (int32_t)n_heads,
                           .dim = (int32_t)dim,
                           .x_step = (int32_t)(pick ? pick->a.pick.stride : dim),
                           .out_step = (int32_t)dim,
                           .is_wide = norm && norm->a.norm.is_wide,
                           .eps = norm ? norm->a.norm.eps : 0};
}

/* q is turned where it is, the latent normed; that and the key are one row of the cache. */
static decode_heads latent_of(const lowering *w, const step *s, const step_form *f)
{
    const step *q = f->heads[0].rope, *key = f->heads[2].rope;
    const kv_layer *kv = &s->kv;
    decode_heads p = {.angles = (const float *)key->in[0].data,
                      .n_dims = key->a.rope.n_dims,
                      .is_neox = key->a.rope.is_neox,
                      .cache = lower_cache(w, kv)};
    decode_stream *latent = &p.streams[0], *turned = &p.streams[1];
    *latent = stream_of(f, 1, NULL, 1, kv->v_dim);
    *turned = stream_of(f, 2, &key->out[0], 1, key->a.rope.n_dims);
    turned->turns = latent->writes = turned->writes = true;
    latent->offset = kv->k_offset;
    turned->offset = kv->k_offset + row_bytes(kv->type, kv->v_dim);
    if (!q)
        return p;
    p.streams[2] = stream_of(f, 0, &q->out[0], q->a.rope.n_heads, q->a.rope.n_dims);
    p.streams[2].x_step = p.streams[2].out_step = q->a.rope.head_dim;
    p.streams[2].out = (float *)q->out[0].data;
    p.streams[2].turns = true;
    return p;
}

static decode_heads heads_of(const lowering *w, const step *s, const step_form *f)
{
    const kv_layer *kv = &s->kv;
    bool has_kv = s->op == OP_ROPE_KV;
    int64_t dim = has_kv ? kv->head_dim : s->a.rope.head_dim;
    decode_heads p = {.angles = (const float *)s->in[0].data,
                      .n_dims = s->a.rope.n_dims,
                      .is_neox = s->a.rope.is_neox};
    p.streams[0] = stream_of(f, 0, &s->out[0], s->a.rope.n_heads, dim);
    p.streams[0].out = (float *)s->out[0].data;
    p.streams[0].turns = true;
    if (has_kv) {
        p.cache = lower_cache(w, kv);
        p.streams[1] = stream_of(f, 1, &s->out[1], kv->n_heads, dim);
        p.streams[1].turns = p.streams[1].writes = true;
        p.streams[1].offset = kv->k_offset;
        p.streams[2] = stream_of(f, 2, &s->in[1], kv->n_heads, dim);
        p.streams[2].writes = true;
        p.streams[2].offset = kv->v_offset;
    }
    return p;
}

static void add_heads(lowering *w, const step *s, const step_form *f)
{
    const step *first = begin_with(w, s, false);
    device_step *d = lower_add(w, "heads", "decode_heads_kernel", first, s);
    if (!d)
        return;
    decode_heads p = s->op == OP_KV_WRITE ? latent_of(w, s, f) : heads_of(w, s, f);
    for (int i = 0; i < 3; i++)
        d->grid += (uint32_t)p.streams[i].n_heads;
    d->block = DECODE_HEAD_THREADS;
    d->a.heads = p;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* y += norm(x), or y = norm(x) and then y += z */
static void add_join(lowering *w, const step *norm)
{
    const step *plus = norm + 1, *first = begin_with(w, norm, false);
    bool is_first = plus->out[0].value == norm->out[0].value;
    device_step *d = lower_add(w, "norm_add", "decode_join_kernel", first, plus);
    w->next = plus + 1;
    if (!d)
        return;
    d->grid = 1;
    d->block = DECODE_JOIN_THREADS;
    d->a.join = (decode_join){.y = (const float *)norm->in[0].data,
                              .norm = norm->a.norm.weight,
                              .residual = (float *)plus->out[0].data,
                              .before = (float *)plus->in[0].data,
                              .width = (int32_t)norm->in[0].width,
                              .eps = norm->a.norm.eps,
                              .scale = is_first ? 1 : plus->a.add.scale,
                              .keep = is_first ? plus->a.add.scale : 1};
    if (!is_first)
        d->a.join.before = d->a.join.residual;
}

void lower_add_steps(lowering *w, const step *first, const step *end)
{
    w->next = first;
    for (const step *s = first; s < end && w->status == LACE_OK; s++) {
        const step_form *f = &w->f->forms[s - w->f->steps];
        if (f->use == USE_PRODUCT) {
            add_product(w, s, f);
        } else if (f->use == USE_EXPERTS) {
            add_experts(w, s++, f);
        } else if (f->use == USE_STATE && w->has_late) {
            add_state(w, s);
        } else if (f->use == USE_HEADS) {
            add_heads(w, s, f);
        } else if (f->use == USE_JOIN) {
            add_join(w, s++);
        } else if (f->use != USE_NOTHING) {
            begin_with(w, s, true);
            lower_add_plain(w, s);
        }
    }
    if (w->status == LACE_OK)
        begin_with(w, end, true);
}
