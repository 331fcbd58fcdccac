/* The common form of a plan: its layers found among its steps. */
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

static bool is_tiled(const weight *w)
{
    return tile_kind_of(w->type) != TILE_F32 && w->n_rows % TILE_ROWS == 0;
}

static bool has_head_dim(int32_t dim)
{
    return dim == 64 || dim == 80 || dim == 96 || dim == 128;
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
        l->expert_down->op != OP_MOE_DOWN)
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
    return at == l->attend && (l->rope->op == OP_ROPE_KV || l->rope->op == OP_KV_WRITE) &&
           kv->type == DTYPE_F16 && has_head_dim(kv->head_dim) && kv->page_tokens == 32 &&
           l->attend->a.attend.n_heads / kv->n_heads <= DECODE_MAX_GROUP &&
           (!l->q_norm || l->q_norm->a.norm.group == kv->head_dim) &&
           (!l->k_norm || l->k_norm->a.norm.group == kv->head_dim);
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
    while (s < end && (s->op == OP_RMS_NORM || s->op == OP_ROPE || s->op == OP_ROPE_KV ||
                       s->op == OP_KV_WRITE))
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

/* One layer from s on; returns how many steps it has, 0 if it has another form. */
static int32_t match_layer(const step *s, int32_t left, int32_t residual, const gpu *g,
                           layer_steps *l)
{
    const step *at = s, *end = s + left;
    memset(l, 0, sizeof *l);
    int32_t in = match_norm(&at, end, residual, &l->norm);
    if (!match_attention(&at, end, in, l) ||
        !match_residual(&at, end, residual, &l->o, &l->o_norm, &l->o_add) ||
        l->o->in[0].value != l->attend->out[0].value)
        return 0;
    in = match_norm(&at, end, residual, &l->ffn_norm);
    bool has_experts = at < end && at->op == OP_MATMUL;
    if (has_experts ? !match_experts(&at, end, residual, g, l)
                    : !match_ffn(&at, end, in, residual, l))
        return 0;
    return (int32_t)(at - s);
}

/* Vectors have one length and one form for all layers, so that what pads them stays zero. */
static bool have_one_form(const layer_steps *a, const layer_steps *b)
{
    const kv_layer *kv = &a->attend->kv, *other_kv = &b->attend->kv;
    for (int i = 0; i < 3; i++)
        if (a->qkv->a.matmul.weights[i]->n_rows != b->qkv->a.matmul.weights[i]->n_rows)
            return false;
    if (kv->head_dim != other_kv->head_dim || kv->n_heads != other_kv->n_heads)
        return false;
    if (!same_kind_act(a->qkv->a.matmul.weights[0], b->qkv->a.matmul.weights[0]) ||
        !same_kind_act(a->o->a.matmul.weights[0], b->o->a.matmul.weights[0]) ||
        !a->glu != !b->glu || !a->o_norm != !b->o_norm || !a->down_norm != !b->down_norm ||
        a->attend->out[0].width != b->attend->out[0].width)
        return false;
    if (a->glu)
        return same_kind_act(a->glu->a.matmul.weights[0], b->glu->a.matmul.weights[0]) &&
               same_kind_act(a->down->a.matmul.weights[0], b->down->a.matmul.weights[0]) &&
               a->glu->out[0].width == b->glu->out[0].width;
    const weight *down = a->expert_down->a.moe.down, *other = b->expert_down->a.moe.down;
    return same_kind_act(a->expert_glu->a.moe.gate, b->expert_glu->a.moe.gate) &&
           same_kind_act(down, other) && down->n_cols == other->n_cols &&
           a->route->a.moe.n_experts == b->route->a.moe.n_experts &&
           a->route->a.moe.n_used == b->route->a.moe.n_used;
}

/* Whether blocks have room for a layer's products, and norms are where they are needed: what is
 * added to the residual as it is goes on normed. next: the norm behind the layer. */
static bool can_run(const layer_steps *l, const step *next, const gpu *g)
{
    return gpu_product_fits(g, l->qkv) && gpu_product_fits(g, l->o) &&
           (!l->glu || (gpu_product_fits(g, l->glu) && gpu_product_fits(g, l->down))) &&
           (l->o_norm || l->ffn_norm) && (l->down_norm || next);
}

bool decode_form_match(const plan *p, const gpu *g, decode_form *f)
{
    memset(f, 0, sizeof *f);
    int32_t i = 0, n = p->n_steps;
    if (n < 12 || p->steps[i].op != OP_EMBED || g->info.n_processors > DECODE_MAX_BLOCKS)
        return false;
    f->embed = &p->steps[i++];
    for (int t = 0; t < 2 && p->steps[i].op == OP_ROPE_TABLE; t++)
        f->tables[t] = &p->steps[i++];
    f->layers = mem_calloc((size_t)n, sizeof *f->layers);
    if (!f->layers)
        return false;
    while (i < n && p->steps[i].op != OP_GATHER) {
        int32_t taken =
            match_layer(&p->steps[i], n - i, f->embed->out[0].value, g, &f->layers[f->n_layers]);
        if (taken == 0)
            break;
        f->n_layers++;
        i += taken;
    }
    bool ends = f->n_layers > 0 && n - i >= 3 && p->steps[i].op == OP_GATHER &&
                p->steps[i + 1].op == OP_RMS_NORM && p->steps[i + 2].op == OP_MATMUL &&
                tile_kind_of(p->steps[i + 2].a.matmul.weights[0]->type) != TILE_F32 &&
                (n - i == 3 || (n - i == 4 && p->steps[i + 3].op == OP_SOFTCAP));
    if (ends) {
        f->final_norm = &p->steps[i + 1];
        f->head = &p->steps[i + 2];
        f->softcap = n - i == 4 ? &p->steps[i + 3] : NULL;
        ends = gpu_product_fits(g, f->head);
    }
    for (int32_t l = 0; ends && l < f->n_layers; l++) {
        const step *next = l + 1 < f->n_layers ? f->layers[l + 1].norm : f->final_norm;
        ends = have_one_form(&f->layers[0], &f->layers[l]) && can_run(&f->layers[l], next, g);
        f->attends_by_steps |= !match_heads(&f->layers[l]);
    }
    for (int32_t l = 0; f->attends_by_steps && l < f->n_layers; l++)
        f->layers[l].q_norm = f->layers[l].k_norm = f->layers[l].rope = NULL;
    if (!ends) {
        mem_free(f->layers);
        f->layers = NULL;
    }
    return ends;
}
