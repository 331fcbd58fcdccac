/* Layers of known forms, found among the steps of a plan. */
#include "backend/cuda/decode_form.h"

#include <string.h>

#include "base/mem.h"
#include "backend/cuda/decode_params.h"
#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_product.h"

static bool is_norm_of(const step *s, const step *before, int output)
{
    return s->op == OP_RMS_NORM && s->in[0].value == before->out[output].value;
}

/* Whether both can be multiplied with one vector: whoever wants INT can make it of FLOATS. */
static bool same_kind_act(const weight *a, const weight *b)
{
    gpu_act x = tile_kind_act(tile_kind_of(a->type)), y = tile_kind_act(tile_kind_of(b->type));
    return x == y || (x == GPU_ACT_INT && y == GPU_ACT_FLOATS) ||
           (x == GPU_ACT_FLOATS && y == GPU_ACT_INT);
}

/* A norm of all columns, of either kind. */
static bool is_whole_norm(const step *s, const step *before)
{
    return (s->op == OP_RMS_NORM || s->op == OP_LAYER_NORM) &&
           s->in[0].value == before->out[0].value && s->a.norm.group == s->in[0].width;
}

static bool is_of_own_type(const step *s)
{
    gpu_act act = tile_kind_act(tile_kind_of(s->a.matmul.weights[0]->type));
    return act == GPU_ACT_FLOATS || act == GPU_ACT_ROTATED;
}

static bool is_tiled(const weight *w)
{
    return tile_kind_of(w->type) != TILE_F32 && w->n_rows % TILE_ROWS == 0;
}

/* Whether there is a kernel for this cache (decode_attend*.cu). */
static bool is_known_cache(const kv_layer *kv)
{
    int32_t dim = kv->head_dim;
    bool is_size = dim == 64 || dim == 96 || dim == 128 || dim == 256;
    return kv->type == DTYPE_Q8_0 ? is_size : kv->type == DTYPE_F16 && (is_size || dim == 80);
}

/* A product into the residual, from *at on: it alone, or normed and then added. */
static bool match_residual(const step **at, const step *end, int32_t residual, const step **matmul,
                           const step **norm, const step **add)
{
    if (end - *at < 1)
        return false;
    const step *s = *matmul = (*at)++;
    if (s->op == OP_MATMUL_ADD)
        return s->out[0].value == residual && is_tiled(s->a.matmul.weights[0]);
    if (s->op != OP_MATMUL || end - *at < 2)
        return false;
    *norm = (*at)++;
    *add = (*at)++;
    return is_norm_of(*norm, s, 0) && (*norm)->a.norm.group == (*norm)->in[0].width &&
           (*norm)->in[0].width <= DECODE_JOIN_WIDTH && (*add)->op == OP_ADD &&
           (*add)->in[0].value == (*norm)->out[0].value && (*add)->out[0].value == residual &&
           is_tiled(s->a.matmul.weights[0]);
}

/* Gate and up, then down. */
static bool match_ffn(const step **at, const step *end, int32_t in, int32_t residual,
                      layer_steps *l)
{
    if (end - *at < 2)
        return false;
    l->glu = (*at)++;
    const weight *const *f = l->glu->a.matmul.weights;
    return l->glu->op == OP_MATMUL_GLU && l->glu->in[0].value == in && is_tiled(f[0]) &&
           is_tiled(f[1]) && tile_kind_of(f[0]->type) == tile_kind_of(f[1]->type) &&
           match_residual(at, end, residual, &l->down, &l->down_norm, &l->down_add) &&
           l->down->in[0].value == l->glu->out[0].value;
}

/* The router, its choice, and the experts. */
static bool match_experts(const step **at, const step *end, int32_t residual, const gpu *g,
                          layer_steps *l)
{
    if (end - *at < 4 || !l->ffn_norm)
        return false;
    l->router = (*at)++;
    l->route = (*at)++;
    l->expert_glu = (*at)++;
    l->expert_down = (*at)++;
    if (l->router->op != OP_MATMUL || l->route->op != OP_ROUTE || l->expert_glu->op != OP_MOE_GLU ||
        l->expert_down->op != OP_MOE_DOWN || !route_is_plain(&l->route->a.moe.rule) ||
        !l->expert_glu->a.moe.gate || l->expert_glu->a.moe.weighs_inputs)
        return false;
    const weight *gate = l->expert_glu->a.moe.gate, *up = l->expert_glu->a.moe.up,
                 *down = l->expert_down->a.moe.down;
    int32_t in = l->ffn_norm->out[0].value, choices = l->route->out[0].value;
    bool chain = l->router->in[0].value == in && l->route->in[0].value == l->router->out[0].value &&
                 l->expert_glu->in[0].value == in && l->expert_glu->in[1].value == choices &&
                 l->expert_down->in[0].value == l->expert_glu->out[0].value &&
                 l->expert_down->in[1].value == choices && l->expert_down->out[0].value == residual;
    return chain && tile_kind_of(l->router->a.matmul.weights[0]->type) == TILE_F32 &&
           is_tiled(gate) && is_tiled(up) && is_tiled(down) &&
           tile_kind_of(gate->type) == tile_kind_of(up->type) && gpu_experts_fit(g, l);
}

/* Whether rope, or what keeps k and v as they are, and attention have these as q, k and v. */
static bool is_chain(const layer_steps *l)
{
    int32_t q = (l->q_norm ? l->q_norm : l->qkv)->out[0].value,
            k = l->k_norm ? l->k_norm->out[0].value : l->qkv->out[1].value,
            v = l->qkv->out[2].value;
    const kv_layer *to = &l->rope->kv, *from = &l->attend->kv;
    bool turns = l->rope->op == OP_ROPE_KV;
    return (turns ? l->rope->out[0].value == q && l->rope->out[1].value == k
                  : l->rope->op == OP_KV_WRITE && l->rope->in[0].value == k) &&
           l->rope->in[1].value == v && l->attend->in[0].value == q && to->group == from->group &&
           to->k_offset == from->k_offset && to->v_offset == from->v_offset;
}

/* Whether the fused kernel knows the attention behind qkv. */
static bool match_heads(layer_steps *l)
{
    const step *at = l->qkv + 1;
    if (is_norm_of(at, l->qkv, 0))
        l->q_norm = at++;
    if (is_norm_of(at, l->qkv, 1))
        l->k_norm = at++;
    l->rope = at++;
    const kv_layer *kv = &l->rope->kv;
    return at == l->attend && is_chain(l) && is_known_cache(kv) && kv->v_dim == kv->head_dim &&
           kv->page_tokens == DECODE_PAGE && l->attend->a.attend.chunk == 0 &&
           l->attend->a.attend.n_heads / kv->n_heads <= DECODE_MAX_GROUP &&
           (!l->q_norm ||
            (l->q_norm->a.norm.group == kv->head_dim && !l->q_norm->a.norm.is_wide)) &&
           (!l->k_norm || (l->k_norm->a.norm.group == kv->head_dim && !l->k_norm->a.norm.is_wide));
}

/* From q k v to attention, whatever is between them. */
static bool match_attention(const step **at, const step *end, int32_t in, layer_steps *l)
{
    const step *s = *at;
    if (end - s < 4 || s->op != OP_MATMUL_GROUP || s->a.matmul.n_weights != 3 ||
        s->in[0].value != in)
        return false;
    const weight *const *w = s->a.matmul.weights;
    l->qkv = s++;
    while (s < end && (s->op == OP_RMS_NORM || s->op == OP_LAYER_NORM || s->op == OP_ROPE ||
                       s->op == OP_ROPE_KV || s->op == OP_KV_WRITE || s->op == OP_TEMPERATURE))
        s++;
    if (s == end || s->op != OP_ATTEND || s->out[0].width % GPU_GROUP != 0)
        return false;
    l->attend = s++;
    *at = s;
    return is_tiled(w[0]) && is_tiled(w[1]) && is_tiled(w[2]) && same_kind_act(w[0], w[1]) &&
           same_kind_act(w[0], w[2]);
}

/* A norm of the whole residual, if there is one; returns what the next product reads. */
static int32_t match_norm(const step **at, const step *end, int32_t residual, const step **norm)
{
    const step *s = *at;
    if (s == end || s->op != OP_RMS_NORM || s->in[0].value != residual ||
        s->a.norm.group != s->in[0].width)
        return residual;
    *norm = (*at)++;
    return s->out[0].value;
}

/*
 * One layer from s on; returns how many steps it has, 0 if it has another form. may_end: what is
 * behind attention may be missing, or of another form: then it is not a part of it.
 */
static int32_t match_layer(const step *s, int32_t left, int32_t residual, bool may_end,
                           const gpu *g, layer_steps *l)
{
    const step *at = s, *end = s + left;
    memset(l, 0, sizeof *l);
    int32_t in = match_norm(&at, end, residual, &l->norm);
    if (!match_attention(&at, end, in, l) ||
        !match_residual(&at, end, residual, &l->o, &l->o_norm, &l->o_add) ||
        l->o->in[0].value != l->attend->out[0].value)
        return 0;
    layer_steps attention = *l;
    int32_t n_attention = (int32_t)(at - s);
    in = match_norm(&at, end, residual, &l->ffn_norm);
    bool has_experts = at < end && at->op == OP_MATMUL;
    if (has_experts ? match_experts(&at, end, residual, g, l)
                    : match_ffn(&at, end, in, residual, l))
        return (int32_t)(at - s);
    *l = attention;
    l->is_attention = true;
    return may_end ? n_attention : 0;
}

/* Whether blocks have room for a layer's products, and norms are where they are needed: what is
 * added to the residual as it is goes on normed. */
static bool can_run(const layer_steps *l, const gpu *g)
{
    return gpu_product_fits(g, l->qkv) && gpu_product_fits(g, l->o) &&
           (!l->glu || (gpu_product_fits(g, l->glu) && gpu_product_fits(g, l->down))) &&
           (l->o_norm || (l->is_attention ? l->norm : l->ffn_norm));
}

/* ---- The plan -------------------------------------------------------------------------------- */

/* While a plan is cut up. */
typedef struct matcher {
    const plan *p;
    const gpu *g;
    decode_form *f;
    int32_t residual;
    bool is_part;      /* of a plan */
    int32_t *last_use; /* [n_values] the last step that has it as an operand */
} matcher;

static void note_uses(matcher *m)
{
    for (int32_t i = 0; i < m->p->n_steps; i++) {
        const step *s = &m->p->steps[i];
        for (int k = 0; k < STEP_MAX_IN; k++)
            if (s->in[k].value >= 0)
                m->last_use[s->in[k].value] = i;
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (s->out[k].value >= 0)
                m->last_use[s->out[k].value] = i;
    }
}

/* Whether steps [i, end) leave nothing behind but the residual: nobody else reads what a fused
 * layer does not write. */
static bool is_closed(const matcher *m, int32_t i, int32_t end)
{
    for (int32_t n = i; n < end; n++)
        for (int k = 0; k < STEP_MAX_OUT; k++) {
            int32_t v = m->p->steps[n].out[k].value;
            if (v >= 0 && v != m->residual &&
                (m->last_use[v] >= end || v == m->p->logits || v == m->p->hidden ||
                 m->p->values[v].leaves))
                return false;
        }
    return true;
}

/* Whether the table of angles is among those that are made before all layers. */
static bool has_early_angles(const matcher *m, const step *rope)
{
    if (rope->op != OP_ROPE_KV)
        return true;
    const step *at = m->p->steps + (m->f->embed != NULL), *end = m->p->steps + m->p->n_steps;
    for (; at < end && at->op == OP_ROPE_TABLE; at++)
        if (at->out[0].value == rope->in[0].value)
            return true;
    return false;
}

static void add_layer(matcher *m, int32_t i, int32_t n, const layer_steps *l)
{
    decode_segment *to = &m->f->segments[m->f->n_segments++];
    *to = (decode_segment){.first = &m->p->steps[i], .n_steps = n, .is_fused = true, .l = *l};
    layer_steps *its = &to->l;
    its->attends_by_steps = !match_heads(its) || !has_early_angles(m, its->rope);
    if (its->attends_by_steps)
        its->q_norm = its->k_norm = its->rope = NULL;
    m->f->n_layers++;
}

static void add_plain(matcher *m, int32_t i)
{
    decode_form *f = m->f;
    if (f->n_segments == 0 || f->segments[f->n_segments - 1].is_fused)
        f->segments[f->n_segments++] = (decode_segment){.first = &m->p->steps[i]};
    f->segments[f->n_segments - 1].n_steps++;
}

static bool is_behind_fused(const matcher *m)
{
    return m->f->n_segments > 0 && m->f->segments[m->f->n_segments - 1].is_fused;
}

/* The end of a plan, from step i on. */
static bool match_head(matcher *m, int32_t i)
{
    const step *s = &m->p->steps[i];
    int32_t n = m->p->n_steps - i;
    bool ends = m->p->hidden < 0 && (n == 3 || (n == 4 && s[3].op == OP_SOFTCAP)) &&
                s[0].op == OP_GATHER && is_whole_norm(&s[1], &s[0]) && s[2].op == OP_MATMUL &&
                s[2].in[0].value == s[1].out[0].value &&
                tile_kind_of(s[2].a.matmul.weights[0]->type) != TILE_F32 &&
                gpu_product_fits(m->g, &s[2]);
    /* Behind a fused layer the norm's factor is all that is left to do. */
    bool is_made = !is_behind_fused(m);
    bool is_usual = s[1].op == OP_RMS_NORM && s[0].in[0].value == m->residual;
    if (!ends || (!is_usual && (!is_made || is_of_own_type(&s[2]))))
        return false;
    m->f->gather = &s[0];
    m->f->final_norm = &s[1];
    m->f->head = &s[2];
    m->f->softcap = n == 4 ? &s[3] : NULL;
    return true;
}

static void match_segments(matcher *m, int32_t i)
{
    int32_t n = m->p->n_steps;
    while (i < n && !match_head(m, i)) {
        layer_steps l;
        /* Single tokens have no rows of their own: between fused layers nothing stands here. */
        if (m->p->steps[i].op == OP_ADD_GIVEN && is_behind_fused(m)) {
            i++;
            continue;
        }
        int32_t taken = match_layer(&m->p->steps[i], n - i, m->residual, m->is_part, m->g, &l);
        if (taken > 0 && can_run(&l, m->g) && is_closed(m, i, i + taken)) {
            add_layer(m, i, taken, &l);
            i += taken;
        } else {
            add_plain(m, i++);
        }
    }
}

/* The steps that no fused layer and no fused end stands for. */
static bool match_steps(const matcher *m)
{
    const decode_form *f = m->f;
    bool has_any = m->is_part && f->head; /* a part may have nothing else */
    for (int32_t i = 0; i < m->p->n_steps; i++)
        f->forms[i].is_layers = i < f->n_begin || (f->head && &m->p->steps[i] >= f->gather);
    for (int32_t i = 0; i < f->n_segments; i++) {
        const decode_segment *at = &f->segments[i];
        for (int32_t n = 0; at->is_fused && n < at->n_steps; n++) {
            const step *s = at->first + n;
            f->forms[s - m->p->steps].is_layers =
                !(at->l.attends_by_steps && s > at->l.qkv && s < at->l.attend);
        }
    }
    decode_steps_match(m->p, m->g, f->forms);
    for (int32_t i = 0; i < m->p->n_steps; i++)
        has_any |= f->forms[i].use != USE_PLAIN;
    return has_any || f->n_layers > 0;
}

/* What the plan begins with: the embedding of a token; of a part, what its first step reads, if that
 * comes from another one. */
static bool match_entry(const plan *p, decode_form *f)
{
    const step *s = p->steps;
    if (s->op == OP_EMBED) {
        f->embed = &p->steps[f->n_begin++];
        f->entry = s->out[0];
        return s->a.embed.by == EMBED_BY_TOKEN;
    }
    while (s + 1 < p->steps + p->n_steps && s->op == OP_ROPE_TABLE)
        s++;
    f->entry = s->in[0];
    const plan_value *v = f->entry.value >= 0 ? &p->values[f->entry.value] : NULL;
    return v && v->enters && f->entry.root == f->entry.value && v->format == ACT_F32 &&
           v->row_factor <= 1;
}

bool decode_form_match(const plan *p, const gpu *g, decode_form *f)
{
    memset(f, 0, sizeof *f);
    if (p->n_steps < 2 || !match_entry(p, f) || f->entry.width % GPU_GROUP != 0 ||
        g->info.n_processors > DECODE_MAX_BLOCKS)
        return false;
    matcher m = {.p = p, .g = g, .f = f, .residual = f->entry.value, .is_part = !f->embed};
    f->steps = p->steps;
    f->n_steps = p->n_steps;
    for (int t = 0; t < 2 && f->n_begin < p->n_steps && p->steps[f->n_begin].op == OP_ROPE_TABLE;
         t++)
        f->tables[t] = &p->steps[f->n_begin++];
    f->segments = mem_calloc((size_t)p->n_steps, sizeof *f->segments);
    f->forms = mem_calloc((size_t)p->n_steps, sizeof *f->forms);
    m.last_use = mem_calloc((size_t)p->n_values, sizeof *m.last_use);
    bool has_any = false;
    if (f->segments && f->forms && m.last_use) {
        note_uses(&m);
        match_segments(&m, f->n_begin);
        has_any = match_steps(&m);
    }
    mem_free(m.last_use);
    if (!has_any)
        decode_form_free(f);
    return has_any;
}

void decode_form_free(decode_form *f)
{
    mem_free(f->segments);
    mem_free(f->forms);
    f->segments = NULL;
    f->forms = NULL;
}
