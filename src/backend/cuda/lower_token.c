/* The list of one token: layers of known forms, other steps, and both ends. */
#include "backend/cuda/decode_product.h"
#include "backend/cuda/lower_layer.h"

/* ---- The end --------------------------------------------------------------------------------- */

static void add_head(lowering *w)
{
    const decode_form *f = w->f;
    const step *s = f->head, *last = f->softcap ? f->softcap : s;
    bool is_made = lower_is_handed_over(w, f->n_segments);
    gpu_act act = tile_kind_act(tile_kind_of(s->a.matmul.weights[0]->type));
    bool makes = !is_made && act != GPU_ACT_FLOATS && act != GPU_ACT_ROTATED;
    if (!is_made && !makes) {
        lower_add_plain(w, f->gather);
        lower_enter(w, f->final_norm, s, lower_vector(w, FOR_HEAD, s));
    }
    decode_product_any p = {.parts = {gpu_product_part(w->g, s->a.matmul.weights[0],
                                                       s->a.matmul.biases[0], w->m->logits)},
                            .n_parts = 1,
                            .x = lower_vector(w, FOR_HEAD, s),
                            .scale = s->a.matmul.scale,
                            .softcap = f->softcap ? f->softcap->a.softcap.cap : 0,
                            .mode = DECODE_STORE,
                            .best = w->m->best};
    if (makes) { /* of the one row that is gathered */
        step_form form = {.norm = f->final_norm};
        decode_input in = lower_input(s, &form);
        in.x = (const float *)f->gather->in[0].data;
        lower_make_input(&p, &in);
    } else {
        lower_norm_by(w, &p, f->final_norm, w->m->squares[0]);
    }
    lower_add_product(w, "head", is_made || makes ? f->gather : s, last, &p);
}

/* ---- The beginning --------------------------------------------------------------------------- */

/* best: where the token is, in n_best places; NULL: the state has it. */
static device_step begin_of(const lowering *w, const decode_best *best, int32_t n_best,
                            int32_t *ring)
{
    const step *e = w->f->embed;
    int64_t width = w->f->entry.width;
    const decode_segment *s = w->f->segments;
    bool is_read = w->f->n_segments > 0 && s->is_fused;
    const step *norm = is_read ? s->l.norm : NULL;
    device_step d = {.name = "begin",
                     .layer = -1,
                     .first = w->f->steps,
                     .n_steps = w->f->n_begin,
                     .launch = lower_launch_fused,
                     .kernel = "decode_begin_kernel",
                     .grid = 1,
                     .block = 1024};
    decode_begin *p = &d.a.begin;
    *p = (decode_begin){.state = w->m->state,
                        .best = best,
                        .n_best = n_best,
                        .ring = ring,
                        .table = (const uint8_t *)w->m->residual, /* that has entered */
                        .type = (int32_t)DTYPE_F32,
                        .width = (int32_t)width,
                        .scale = 1,
                        .residual = w->m->residual,
                        .next_norm = norm ? norm->a.norm.weight : NULL,
                        .next = is_read ? lower_vector(w, FOR_QKV, s->l.qkv) : (decode_vector){0},
                        .next_squares = w->m->squares[0]};
    if (e) {
        p->table = e->a.embed.table->data;
        p->row_bytes = row_bytes(e->a.embed.table->type, width);
        p->type = (int32_t)e->a.embed.table->type;
        p->scale = e->a.embed.scale;
    }
    for (int t = 0; t < 2; t++) {
        const step *table = w->f->tables[t];
        if (!table)
            continue;
        p->frequencies[t] = table->a.rope_table.frequencies;
        p->magnitudes[t] = table->a.rope_table.magnitude;
        p->n_dims[t] = (int32_t)table->out[0].width;
        p->angles[t] = (float *)table->out[0].data;
    }
    return d;
}

static device_step *add_any(lowering *w)
{
    device_step *d = w->status == LACE_OK ? device_list_add(&w->out->list) : NULL;
    if (!d && w->status == LACE_OK)
        w->status = error_nomem(w->err, "a plan for a GPU");
    return d;
}

static void lower_fused(lowering *w, int32_t *ring)
{
    token_list *out = w->out;
    device_step *d = add_any(w);
    if (!d)
        return;
    *d = begin_of(w, NULL, 0, NULL);
    w->n_squares = 1;
    for (int32_t i = 0; i < w->f->n_segments; i++) {
        const decode_segment *s = &w->f->segments[i];
        if (s->is_fused)
            lower_add_layer(w, i);
        else
            lower_add_steps(w, s->first, s->first + s->n_steps);
    }
    out->begin_drawn = begin_of(w, w->m->drawn, 1, NULL);
    if (!w->f->head)
        return;
    add_head(w);
    const weight *head = w->f->head->a.matmul.weights[0];
    out->has_best = true;
    out->begin_best = begin_of(w, w->m->best, lower_n_blocks(w, head), ring);
    out->logits = w->m->logits;
}

/* ---- Plans without anything fused ------------------------------------------------------------- */

static lace_status launch_begin_plain(const gpu_job *j, const device_step *d, lace_error *err)
{
    uint32_t grid[3] = {1, 1, 1};
    return gpu_start(j, "replay_begin_kernel", grid, 1, 0, &d->a.begin_plain, err);
}

static device_step begin_plain(const plan *p, const decode_layout *m, const decode_best *best)
{
    device_step d = {
        .name = "begin", .layer = -1, .first = &p->steps[0], .launch = launch_begin_plain};
    d.a.begin_plain = (replay_begin){.state = m->state,
                                     .best = best,
                                     .token = &m->state->token,
                                     .position = &m->state->position,
                                     .sequence = &m->state->sequence};
    return d;
}

static void lower_plain(lowering *w, const plan *p)
{
    device_step *d = add_any(w);
    if (!d)
        return;
    *d = begin_plain(p, w->m, NULL);
    w->out->begin_drawn = begin_plain(p, w->m, w->m->drawn);
    for (int32_t i = 0; i < p->n_steps; i++)
        lower_add_plain(w, &p->steps[i]);
}

/* ---- All ------------------------------------------------------------------------------------- */

/* ---- Parts of plans -------------------------------------------------------------------------- */

/* Behind a copy by the card's engine nothing can begin early. */
static lace_status launch_border(const gpu_job *j, const device_step *d, lace_error *err)
{
    const border_step *b = &d->a.border;
    cuda_launch l = {
        .grid = {1}, .block = {BORDER_THREADS}, .overlaps = j->g->can.overlaps && b->n_large == 0};
    TRY(gpu_prepare(j->g, d->name, 0, &l.kernel, err));
    TRY(card_border_copy_large(j->queue, b->large, b->n_large, b->enters, err));
    void *arguments[] = {(void *)(uintptr_t)&b->by_kernel};
    return cuda_run(j->queue, &l, arguments, err);
}

/* What enters a part, or leaves it. */
static void add_border(lowering *w, const plan *p, const card_border *b, bool enters)
{
    device_step *d = b ? add_any(w) : NULL;
    if (!d)
        return;
    *d = (device_step){.name = enters ? "border_enter" : "border_leave",
                       .layer = p->steps[enters ? 0 : p->n_steps - 1].layer,
                       .first = &p->steps[enters ? 0 : p->n_steps - 1],
                       .launch = launch_border};
    card_border_of_token(b, enters, w->m->state, &d->a.border);
    w->out->has_plain = true; /* these kernels are found when they are launched first */
}

lace_status lower_token(const plan *p, const gpu *g, bool is_exact, const gpu_batch *tables,
                        const decode_form *f, const decode_layout *m, const card_border *border,
                        int32_t *ring, token_list *out, lace_error *err)
{
    *out = (token_list){.n_vocab = p->logits < 0 ? 0 : (int32_t)p->values[p->logits].width};
    lowering w = {
        .g = g, .is_exact = is_exact, .tables = tables, .f = f, .m = m, .out = out, .err = err};
    for (int32_t i = 0; i < p->n_steps && p->logits >= 0; i++)
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (p->steps[i].out[k].value == p->logits)
                out->logits = (const float *)p->steps[i].out[k].data;
    if (f) {
        w.room = product_room_choose(f, m, g);
        w.room_any = product_room_choose_any(f, g);
    }
    add_border(&w, p, border, true);
    if (f)
        lower_fused(&w, ring);
    else
        lower_plain(&w, p);
    add_border(&w, p, border, false);
    if (w.status != LACE_OK)
        token_list_free(out);
    return w.status;
}

void token_list_free(token_list *l)
{
    device_list_free(&l->list);
}

int32_t token_list_cluster(const token_list *l, int32_t position)
{
    int32_t n_pieces = position / 16 + 1, log2 = 1;
    while (log2 < l->most_cluster &&
           n_pieces > (1 << log2) * DECODE_ATTEND_WARPS * (log2 < 3 ? 1 : 5))
        log2++;
    return log2;
}
