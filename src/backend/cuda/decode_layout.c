/* Memory that the fused kernels of one token share: who needs what, and where it lies. */
#include "backend/cuda/decode_layout.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "backend/cuda/decode_experts.h"

/* ---- Vectors --------------------------------------------------------------------------------- */

static gpu_act act_of(const weight *w)
{
    return tile_kind_act(tile_kind_of(w->type));
}

/* Whoever wants INT can make it of FLOATS (tile_grouped.cuh), so one memory does for both. */
static bool share_form(gpu_act a, gpu_act b)
{
    return a == b || (a == GPU_ACT_INT && b == GPU_ACT_FLOATS) ||
           (a == GPU_ACT_FLOATS && b == GPU_ACT_INT);
}

static layout_vector *find(const decode_layout *l, vector_role role, const weight *w)
{
    for (int32_t i = 0; i < l->n_vectors; i++) {
        layout_vector *v = &l->vectors[i];
        if (v->role == role && v->n_cols == w->n_cols && share_form((gpu_act)v->v.act, act_of(w)))
            return v;
    }
    return NULL;
}

decode_vector decode_layout_vector(const decode_layout *l, vector_role role, const weight *w)
{
    const layout_vector *v = find(l, role, w);
    assert(v);
    return v->v;
}

/* n: how many of them follow each other, `stride` apart. */
static void need(decode_layout *l, vector_role role, const weight *w, int32_t n, uint64_t stride)
{
    layout_vector *v = find(l, role, w);
    if (!v) {
        v = &l->vectors[l->n_vectors++];
        *v = (layout_vector){.role = role, .n_cols = w->n_cols};
        v->v.k = (int32_t)((w->n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN);
        v->v.act = (int32_t)act_of(w);
    }
    if (act_of(w) == GPU_ACT_FLOATS)
        v->v.act = GPU_ACT_FLOATS;
    uint64_t bytes = gpu_act_bytes((gpu_act)v->v.act, w->n_cols) + (uint64_t)(n - 1) * stride;
    v->n_bytes = bytes > v->n_bytes ? bytes : v->n_bytes;
}

static void need_product(decode_layout *l, vector_role role, const step *s)
{
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        need(l, role, s->a.matmul.weights[i], 1, 0);
}

static void need_vectors(decode_layout *l, const decode_form *f)
{
    for (int32_t i = 0; i < f->n_segments; i++) {
        const layer_steps *s = &f->segments[i].l;
        if (!f->segments[i].is_fused)
            continue;
        need_product(l, FOR_QKV, s->qkv);
        need_product(l, FOR_OUTPUT, s->o);
        if (s->glu) {
            need_product(l, FOR_GLU, s->glu);
            need_product(l, FOR_DOWN, s->down);
        } else if (s->expert_glu) {
            need(l, FOR_EXPERTS, s->expert_glu->a.moe.gate, 1, 0);
            need(l, FOR_EXPERTS_DOWN, s->expert_down->a.moe.down, s->route->a.moe.n_used,
                 gpu_experts_stride(s));
        }
    }
    for (int32_t i = 0; i < f->n_steps; i++) {
        const step_form *form = &f->forms[i];
        if (form->reader)
            need_product(l, FOR_DOWN, form->reader);
        if (form->next)
            need_product(l, FOR_GLU, form->next);
        if (form->route) {
            layer_steps s = {.expert_glu = &f->steps[i], .expert_down = &f->steps[i + 1]};
            need(l, FOR_EXPERTS_DOWN, s.expert_down->a.moe.down,
                 f->steps[i].a.moe.n_used + (form->shared_glu != NULL), gpu_experts_stride(&s));
        }
    }
    if (f->head)
        need_product(l, FOR_HEAD, f->head);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* What is cut into pieces, or only counted if there is none. */
typedef struct cutter {
    uint8_t *memory;
    uint64_t at;
} cutter;

static void *cut(cutter *c, uint64_t n)
{
    uint64_t begin = c->at;
    c->at += (n + 255) & ~(uint64_t)255;
    return c->memory ? c->memory + begin : NULL;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Where blocks that share a head's context meet, if they are no cluster. */
static void cut_for_attention(decode_layout *l, const decode_form *f, const gpu *g, cutter *c)
{
    uint64_t n_values = 0, n_heads = 0;
    for (int32_t i = 0; i < f->n_segments; i++) {
        const layer_steps *s = &f->segments[i].l;
        if (!f->segments[i].is_fused || s->attends_by_steps)
            continue;
        const kv_layer *kv = &s->rope->kv;
        n_values = larger(n_values, (uint64_t)s->attend->a.attend.n_heads * (uint64_t)kv->head_dim);
        n_heads = larger(n_heads, (uint64_t)kv->n_heads);
    }
    l->part_values = l->part_sums = NULL;
    l->tickets = NULL;
    if (g->can.most_cluster > 1 || n_heads == 0)
        return;
    /* Lanes beyond the last value read on. */
    l->part_values = cut(c, 4 * (DECODE_MAX_CLUSTER * n_values + 32));
    l->part_sums = cut(c, 8 * n_heads * DECODE_MAX_CLUSTER * DECODE_MAX_GROUP);
    l->tickets = cut(c, sizeof *l->tickets * n_heads);
}

/* What the layer that needs most of it needs. */
static void cut_for_layers(decode_layout *l, const decode_form *f, const gpu *g, cutter *c)
{
    uint64_t n_blocks = (uint64_t)g->info.n_processors, width = (uint64_t)f->entry.width;
    uint64_t rows[3] = {0}, n_experts = 0;
    for (int32_t i = 0; i < f->n_segments; i++) {
        const layer_steps *s = &f->segments[i].l;
        if (!f->segments[i].is_fused)
            continue;
        for (int n = 0; n < 3; n++)
            rows[n] = larger(rows[n], (uint64_t)s->qkv->a.matmul.weights[n]->n_rows);
        if (s->route)
            n_experts = larger(n_experts, (uint64_t)s->route->a.moe.n_experts);
    }
    cut_for_attention(l, f, g, c);
    l->residual = (float *)f->entry.data;
    l->q = cut(c, 4 * rows[0]);
    l->k = cut(c, 4 * rows[1]);
    l->v = cut(c, 4 * rows[2]);
    l->squares[0] = cut(c, 4 * n_blocks);
    l->squares[1] = cut(c, 4 * n_blocks);
    l->y = cut(c, 4 * width);
    l->router = n_experts > 0 ? cut(c, 4 * n_experts) : NULL;
    l->shared_by = cut(c, 4);
    const step *last = f->softcap ? f->softcap : f->head;
    if (last && !f->embed) /* of a part: it leaves from there */
        l->logits = (float *)last->out[0].data;
    else
        l->logits = f->head ? cut(c, 4 * (uint64_t)f->head->out[0].width) : NULL;
    l->best = cut(c, sizeof *l->best * n_blocks);
    for (int32_t i = 0; i < l->n_vectors; i++)
        l->vectors[i].v.planes = cut(c, l->vectors[i].n_bytes);
}

void decode_layout_place(decode_layout *l, const decode_form *f, const gpu *g, uint8_t *memory)
{
    cutter c = {.memory = memory};
    l->state = cut(&c, sizeof *l->state);
    l->output = cut(&c, sizeof *l->output);
    l->drawn = cut(&c, sizeof *l->drawn);
    l->rule = cut(&c, sizeof *l->rule);
    if (f)
        cut_for_layers(l, f, g, &c);
    l->n_bytes = c.at;
}

lace_status decode_layout_init(const decode_form *f, const gpu *g, decode_layout *l,
                               lace_error *err)
{
    memset(l, 0, sizeof *l);
    if (f) {
        /* A layer has four products, of up to three forms; a step has up to three. */
        l->vectors =
            mem_calloc((size_t)(12 * f->n_layers + 3 * f->n_steps + 3), sizeof *l->vectors);
        if (!l->vectors)
            return error_nomem(err, "a plan for a GPU");
        need_vectors(l, f);
    }
    decode_layout_place(l, f, g, NULL);
    return LACE_OK;
}

void decode_layout_free(decode_layout *l)
{
    mem_free(l->vectors);
    l->vectors = NULL;
}
