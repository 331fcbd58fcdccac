/* The words in which architectures are written: each adds a step to a plan. */
#include "plan/build.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What an architecture file must not ask for ends its plan, and plan_check says why. */
__attribute__((format(printf, 2, 3))) static void refuse(plan *p, const char *format, ...)
{
    va_list args;
    if (p->status != LACE_OK)
        return;
    p->status = LACE_E_UNSUPPORTED;
    va_start(args, format);
    vsnprintf(p->fault, sizeof p->fault, format, args);
    va_end(args);
    p->fault_layer = p->layer;
}

/* A matrix that was bound. */
static bool is_bound(plan *p, const weight *w)
{
    if (!w || weight_total(w) == 0)
        refuse(p, "needs a matrix that the model does not have");
    return p->status == LACE_OK;
}

/* A step without operands, behind the others, or NULL after a failure. */
static step *add_step(plan *p, op o, bool is_output)
{
    step *s = plan_append(p, o);
    if (s)
        s->is_output = is_output;
    return s;
}

/* Adds a step that makes a new value from up to two others (-1: none). Its arguments are the
 * caller's. */
static step *add_making(plan *p, op o, value in0, value in1, act_format format, int64_t width,
                        bool is_output)
{
    value out = plan_add_value(p, format, width, is_output);
    step *s = add_step(p, o, is_output);
    if (!s || out < 0)
        return NULL;
    if (in0 >= 0)
        s->in[0] = plan_operand(p, in0);
    if (in1 >= 0)
        s->in[1] = plan_operand(p, in1);
    s->out[0] = plan_operand(p, out);
    return s;
}

static value embed_by(plan *p, const weight *table, float scale, embed_index by)
{
    if (!is_bound(p, table))
        return -1;
    if (by == EMBED_BY_POSITION && table->n_rows < p->limits.n_context) {
        refuse(p, "has embeddings for %" PRId64 " positions, and a context of %d was asked for",
               table->n_rows, p->limits.n_context);
        return -1;
    }
    int64_t width = by == EMBED_BESIDE ? 2 * table->n_cols : table->n_cols;
    step *s = add_making(p, OP_EMBED, -1, -1, ACT_F32, width, false);
    if (!s)
        return -1;
    s->a.embed.table = table;
    s->a.embed.scale = scale;
    s->a.embed.by = by;
    return s->out[0].value;
}

value plan_embed(plan *p, const weight *table, float scale)
{
    return embed_by(p, table, scale, EMBED_BY_TOKEN);
}

value plan_embed_known(plan *p, const weight *table, float scale)
{
    return embed_by(p, table, scale, EMBED_BY_KNOWN_TOKEN);
}

value plan_embed_beside(plan *p, const weight *table, float scale)
{
    return embed_by(p, table, scale, EMBED_BESIDE);
}

value plan_lookup(plan *p, const weight *table, embed_index by)
{
    return embed_by(p, table, 1, by);
}

value plan_rope_table(plan *p, const rope_params *rope)
{
    step *s = add_making(p, OP_ROPE_TABLE, -1, -1, ACT_F32, rope->n_dims, false);
    if (!s)
        return -1;
    s->a.rope_table.frequencies = rope->frequencies;
    s->a.rope_table.magnitude = rope->magnitude;
    memcpy(s->a.rope_table.sections, rope->sections, sizeof rope->sections);
    s->a.rope_table.is_interleaved = rope->is_interleaved;
    return s->out[0].value;
}

value plan_slice(plan *p, value x, int64_t begin, int64_t width)
{
    if (p->status != LACE_OK)
        return -1;
    plan_value whole = p->values[x];
    assert(whole.format == ACT_F32 && begin >= 0 && width > 0 && begin + width <= whole.width);
    value v = plan_add_value(p, ACT_F32, width, whole.is_output);
    if (v < 0)
        return -1;
    p->values[v].row_factor = whole.row_factor;
    p->values[v].of = whole.of >= 0 ? whole.of : x;
    p->values[v].column = whole.column + begin;
    return v;
}

value plan_pick(plan *p, value x, int64_t n, int64_t stride, int64_t offset)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = p->values[x].width;
    assert(width % stride == 0 && offset >= 0 && offset + n <= stride);
    step *s = add_making(p, OP_PICK, x, -1, ACT_F32, width / stride * n, p->values[x].is_output);
    if (!s)
        return -1;
    s->a.pick.n = n;
    s->a.pick.stride = stride;
    s->a.pick.offset = offset;
    return s->out[0].value;
}

value plan_norm(plan *p, value x, const norm_params *norm)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = p->values[x].width;
    assert(width % norm->group == 0);
    assert(norm->kind != OP_RMS_NORM || !norm->bias);
    step *s = add_making(p, norm->kind, x, -1, ACT_F32, width, p->values[x].is_output);
    if (!s)
        return -1;
    s->a.norm.weight = norm->scales;
    s->a.norm.bias = norm->bias;
    s->a.norm.group = norm->group;
    s->a.norm.is_wide = norm->is_wide && norm->group < width;
    s->a.norm.eps = (float)norm->eps;
    return s->out[0].value;
}

value plan_linear(plan *p, value x, const weight *w, const float *bias, float scale)
{
    if (!is_bound(p, w))
        return -1;
    assert(p->values[x].width == w->n_cols);
    step *s = add_making(p, OP_MATMUL, x, -1, ACT_F32, weight_total(w), p->values[x].is_output);
    if (!s)
        return -1;
    s->a.matmul.weights[0] = w;
    s->a.matmul.biases[0] = bias;
    s->a.matmul.n_weights = 1;
    s->a.matmul.scale = scale;
    return s->out[0].value;
}

value plan_linear_heads(plan *p, value x, const weight *w, int32_t n_heads, int32_t n_rest)
{
    if (!is_bound(p, w))
        return -1;
    assert(p->values[x].width == n_heads * (w->n_cols + n_rest));
    step *s = add_making(p, OP_MATMUL_HEADS, x, -1, ACT_F32, n_heads * (w->n_rows + n_rest),
                         p->values[x].is_output);
    if (!s)
        return -1;
    s->a.heads.weights = w;
    s->a.heads.n_heads = n_heads;
    s->a.heads.n_rest = n_rest;
    return s->out[0].value;
}

value plan_add(plan *p, value x, value y, float scale)
{
    if (p->status != LACE_OK)
        return -1;
    assert(p->values[x].width == p->values[y].width);
    step *s = add_step(p, OP_ADD, p->values[x].is_output);
    if (!s)
        return -1;
    s->in[0] = plan_operand(p, y);
    s->out[0] = plan_operand(p, x);
    s->a.add.scale = scale;
    return x;
}

/* Whether kernels know the activation; another one ends the plan. */
static bool knows_activation(plan *p, glu_kind kind)
{
    if ((unsigned)kind >= GLU_COUNT)
        refuse(p, "has an activation function that no kernel knows");
    return p->status == LACE_OK;
}

value plan_glu(plan *p, glu_kind kind, value gate, value up)
{
    if (!knows_activation(p, kind))
        return -1;
    int64_t width = p->values[up].width;
    assert(width % p->values[gate].width == 0);
    step *s = add_making(p, OP_GLU, gate, up, ACT_F32, width, p->values[up].is_output);
    if (!s)
        return -1;
    s->a.glu.kind = kind;
    return s->out[0].value;
}

value plan_act(plan *p, glu_kind kind, value x)
{
    if (!knows_activation(p, kind))
        return -1;
    assert(kind != GLU_CLAMPED);
    step *s = add_making(p, OP_GLU, x, -1, ACT_F32, p->values[x].width, p->values[x].is_output);
    if (!s)
        return -1;
    s->a.glu.kind = kind;
    return s->out[0].value;
}

/* A step that changes x where it is; NULL after a failure. */
static step *add_changing(plan *p, op o, value x)
{
    step *s = p->status == LACE_OK ? add_step(p, o, p->values[x].is_output) : NULL;
    if (s)
        s->out[0] = plan_operand(p, x);
    return s;
}

value plan_xielu(plan *p, value x, const xielu_params *params)
{
    step *s = add_changing(p, OP_XIELU, x);
    if (!s)
        return -1;
    s->a.xielu.alpha_p = params->alpha_p;
    s->a.xielu.alpha_n = params->alpha_n;
    s->a.xielu.beta = params->beta;
    s->a.xielu.eps = params->eps;
    return x;
}

value plan_temperature(plan *p, value x, float scale, int32_t offset, int32_t length)
{
    assert(length > 0);
    step *s = add_changing(p, OP_TEMPERATURE, x);
    if (!s)
        return -1;
    s->a.temperature.scale = scale;
    s->a.temperature.offset = offset;
    s->a.temperature.length = length;
    return x;
}

value plan_mix(plan *p, value base, value x, value weights, int64_t width)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t n = p->values[base].width;
    assert(n % width == 0 && p->values[x].width % width == 0);
    assert(p->values[weights].width == n / width * (p->values[x].width / width));
    step *s = add_making(p, OP_MIX, x, weights, ACT_F32, n, p->values[x].is_output);
    if (!s)
        return -1;
    s->in[2] = plan_operand(p, base);
    s->a.mix.width = width;
    return s->out[0].value;
}

static value match(plan *p, value x, value target, float scale, float least, bool leads)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = p->values[target].width, n = p->values[x].width;
    assert(n % width == 0);
    step *s =
        add_making(p, OP_MATCH, x, target, ACT_F32, leads ? n + width : n, p->values[x].is_output);
    if (!s)
        return -1;
    s->a.match.scale = scale;
    s->a.match.least = least;
    s->a.match.leads = leads;
    return s->out[0].value;
}

value plan_match(plan *p, value x, value target, float scale, float least)
{
    return match(p, x, target, scale, least, false);
}

value plan_match_behind(plan *p, value x, value target, float least)
{
    return match(p, x, target, 1, least, true);
}

value plan_cutoff(plan *p, value x, float factor)
{
    step *s = add_changing(p, OP_CUTOFF, x);
    if (!s)
        return -1;
    s->a.cutoff.factor = factor;
    return x;
}

value plan_rope(plan *p, value x, value table, const rope_params *rope, int32_t n_heads,
                int32_t head_dim)
{
    step *s = add_step(p, OP_ROPE, false);
    if (!s)
        return -1;
    s->in[0] = plan_operand(p, table);
    s->out[0] = plan_operand(p, x);
    s->a.rope.n_heads = n_heads;
    s->a.rope.head_dim = head_dim;
    s->a.rope.n_dims = rope->n_dims;
    s->a.rope.is_neox = rope->is_neox;
    return x;
}

void plan_kv_write(plan *p, value k, value v, const kv_layer *kv)
{
    step *s = add_step(p, OP_KV_WRITE, false);
    if (!s)
        return;
    s->in[0] = plan_operand(p, k);
    s->in[1] = plan_operand(p, v);
    s->kv = *kv;
}

value plan_attend(plan *p, value q, const kv_layer *kv, const attend_params *params)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = (int64_t)params->n_heads * kv->v_dim;
    step *s = add_making(p, OP_ATTEND, q, -1, ACT_F32, width, false);
    if (!s)
        return -1;
    s->kv = *kv;
    s->a.attend.n_heads = params->n_heads;
    s->a.attend.scale = params->scale;
    s->a.attend.window = params->window;
    s->a.attend.chunk = params->chunk;
    s->a.attend.ahead = params->ahead;
    s->a.attend.softcap = params->softcap;
    s->a.attend.sinks = params->sinks;
    return s->out[0].value;
}

value plan_conv(plan *p, value x, const recurrent_layer *state, const conv_params *params)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = p->values[x].width;
    assert(params->n_taps > 1 && state->n_bytes == conv_state_bytes(width, params->n_taps));
    assert(!p->values[x].is_output); /* every token changes the state */
    step *s = add_making(p, OP_CONV, x, -1, ACT_F32, width, false);
    if (!s)
        return -1;
    s->recurrent = *state;
    s->a.conv.weight = params->weight;
    s->a.conv.bias = params->bias;
    s->a.conv.n_taps = params->n_taps;
    s->a.conv.is_silu = params->is_silu;
    return s->out[0].value;
}

value plan_delta(plan *p, value qkv, value a, value b, const recurrent_layer *state,
                 const delta_params *d)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = (int64_t)d->n_heads * d->v_dim;
    assert(p->values[qkv].width == width + 2 * (int64_t)d->n_key_heads * d->k_dim);
    assert(p->values[a].width == d->n_heads && p->values[b].width == d->n_heads);
    assert(state->n_bytes == delta_state_bytes(d->n_heads, d->k_dim, d->v_dim));
    assert(!p->values[qkv].is_output); /* every token changes the state */
    step *s = add_making(p, OP_DELTA, qkv, a, ACT_F32, width, false);
    if (!s)
        return -1;
    s->in[2] = plan_operand(p, b);
    s->recurrent = *state;
    s->a.delta.rate = d->rate;
    s->a.delta.bias = d->bias;
    s->a.delta.n_heads = d->n_heads;
    s->a.delta.n_key_heads = d->n_key_heads;
    s->a.delta.k_dim = d->k_dim;
    s->a.delta.v_dim = d->v_dim;
    s->a.delta.is_tiled = d->is_tiled;
    return s->out[0].value;
}

value plan_scan(plan *p, value x, value b, value c, value dt, const recurrent_layer *state,
                const scan_params *params)
{
    if (p->status != LACE_OK)
        return -1;
    assert(p->values[x].width == (int64_t)params->n_heads * params->head_dim);
    assert(p->values[b].width == (int64_t)params->n_groups * params->n_state);
    assert(p->values[c].width == p->values[b].width && p->values[dt].width == params->n_heads);
    assert(params->n_heads % params->n_groups == 0 && !p->values[x].is_output);
    assert(state->n_bytes == scan_state_bytes(params->n_heads, params->head_dim, params->n_state));
    step *s = add_making(p, OP_SCAN, x, b, ACT_F32, p->values[x].width, false);
    if (!s)
        return -1;
    s->in[2] = plan_operand(p, c);
    s->in[3] = plan_operand(p, dt);
    s->recurrent = *state;
    s->a.scan.a = params->a;
    s->a.scan.d = params->d;
    s->a.scan.dt_bias = params->dt_bias;
    s->a.scan.dt_min = params->dt_min;
    s->a.scan.dt_max = params->dt_max;
    s->a.scan.n_heads = params->n_heads;
    s->a.scan.head_dim = params->head_dim;
    s->a.scan.n_groups = params->n_groups;
    s->a.scan.n_state = params->n_state;
    return s->out[0].value;
}

/* Whether experts can be chosen by the rule: their groups are equal and have enough of them. */
static bool knows_rule(plan *p, const moe_params *moe)
{
    const route_rule *r = &moe->rule;
    bool fits = (unsigned)r->scores < ROUTE_N_SCORES && moe->n_used <= moe->n_experts;
    if (r->n_groups > 1)
        fits = fits && moe->n_experts % r->n_groups == 0 && r->n_groups_used >= 1 &&
               r->n_groups_used <= r->n_groups && r->n_ranking >= 1 && r->n_ranking <= 2 &&
               moe->n_used <= moe->n_experts / r->n_groups * r->n_groups_used;
    if (!fits)
        refuse(p, "chooses experts by a rule that no kernel knows");
    else if (!moe->gate && moe->glu == GLU_CLAMPED)
        refuse(p, "has experts without a gate whose activation needs one");
    return p->status == LACE_OK;
}

/* Choices by the router's logits, and what the first matrices of the chosen make of y. */
static bool add_choices(plan *p, value y, value logits, const moe_params *moe, value *choices,
                        value *h)
{
    if (!knows_activation(p, moe->glu) || (moe->gate && !is_bound(p, moe->gate)) ||
        !is_bound(p, moe->up) || !is_bound(p, moe->down) || !knows_rule(p, moe))
        return false;
    bool is_output = p->values[y].is_output;
    step *s = add_making(p, OP_ROUTE, logits, -1, ACT_F32, 2 * moe->n_used, is_output);
    if (!s)
        return false;
    *choices = s->out[0].value;
    s->a.moe.n_experts = moe->n_experts;
    s->a.moe.n_used = moe->n_used;
    s->a.moe.rule = moe->rule;

    s = add_making(p, OP_MOE_GLU, y, *choices, ACT_F32, weight_total(moe->up), is_output);
    if (!s)
        return false;
    s->a.moe.gate = moe->gate;
    s->a.moe.up = moe->up;
    s->a.moe.gate_bias = moe->gate_bias;
    s->a.moe.up_bias = moe->up_bias;
    s->a.moe.n_experts = moe->n_experts;
    s->a.moe.n_used = moe->n_used;
    s->a.moe.glu = moe->glu;
    s->a.moe.weighs_inputs = moe->weighs_inputs;
    *h = s->out[0].value;
    p->values[*h].row_factor = moe->n_used;
    return true;
}

static void set_down(step *s, const moe_params *moe, float scale)
{
    s->a.moe.down = moe->down;
    s->a.moe.down_bias = moe->down_bias;
    s->a.moe.n_experts = moe->n_experts;
    s->a.moe.n_used = moe->n_used;
    s->a.moe.scale = scale;
    s->a.moe.weighs_inputs = moe->weighs_inputs;
}

value plan_moe_add(plan *p, value x, value y, value logits, const moe_params *moe, float scale)
{
    value choices, h;
    if (!add_choices(p, y, logits, moe, &choices, &h))
        return -1;
    step *s = add_step(p, OP_MOE_DOWN, p->values[x].is_output);
    if (!s)
        return -1;
    s->in[0] = plan_operand(p, h);
    s->in[1] = plan_operand(p, choices);
    s->out[0] = plan_operand(p, x);
    set_down(s, moe, scale);
    return x;
}

value plan_moe(plan *p, value y, value logits, const moe_params *moe, float scale)
{
    value choices, h;
    if (!add_choices(p, y, logits, moe, &choices, &h))
        return -1;
    step *s = add_making(p, OP_MOE_DOWN, h, choices, ACT_F32, weight_total(moe->down),
                         p->values[y].is_output);
    if (!s)
        return -1;
    set_down(s, moe, scale);
    s->a.moe.makes = true;
    return s->out[0].value;
}

value plan_softcap(plan *p, value x, float cap)
{
    step *s = add_changing(p, OP_SOFTCAP, x);
    if (!s)
        return -1;
    s->a.softcap.cap = cap;
    return x;
}

value plan_gather(plan *p, value x)
{
    if (p->status != LACE_OK)
        return -1;
    step *s = add_making(p, OP_GATHER, x, -1, ACT_F32, p->values[x].width, true);
    return s ? s->out[0].value : -1;
}

value plan_given(plan *p, int64_t column, int64_t width)
{
    step *s = add_making(p, OP_GIVEN, -1, -1, ACT_F32, width, false);
    if (!s)
        return -1;
    s->a.given.column = column;
    return s->out[0].value;
}

value plan_add_given(plan *p, value x, int64_t column)
{
    step *s = add_changing(p, OP_ADD_GIVEN, x);
    if (!s)
        return -1;
    s->a.given.column = column;
    return x;
}

value plan_gather_run(plan *p, value x, int32_t n, bool is_mean)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = p->values[x].width;
    step *s = add_making(p, OP_GATHER_RUN, x, -1, ACT_F32, is_mean ? width : n * width, true);
    if (!s)
        return -1;
    s->a.gather_run.n = n;
    s->a.gather_run.is_mean = is_mean;
    return s->out[0].value;
}

/* Up to STEP_MAX_IN values. */
static value join_some(plan *p, const value *parts, int32_t n)
{
    int64_t width = 0;
    if (p->status != LACE_OK)
        return -1;
    for (int32_t i = 0; i < n; i++)
        width += p->values[parts[i]].width;
    step *s = add_making(p, OP_SIDE_BY_SIDE, parts[0], parts[1], ACT_F32, width,
                         p->values[parts[0]].is_output);
    for (int32_t i = 2; s && i < n; i++)
        s->in[i] = plan_operand(p, parts[i]);
    return s ? s->out[0].value : -1;
}

value plan_side_by_side(plan *p, const value *parts, int32_t n)
{
    value some[STEP_MAX_IN] = {parts[0]};
    for (int32_t done = 1; done < n;) {
        int32_t k = 1;
        while (k < STEP_MAX_IN && done < n)
            some[k++] = parts[done++];
        some[0] = join_some(p, some, k);
    }
    return some[0];
}

value plan_grid_embed(plan *p, const weight *table, int32_t side)
{
    if (!is_bound(p, table))
        return -1;
    step *s = add_making(p, OP_GRID_EMBED, -1, -1, ACT_F32, table->n_cols, false);
    if (!s)
        return -1;
    s->a.grid.table = table;
    s->a.grid.side = side;
    return s->out[0].value;
}

void plan_result(plan *p, value logits)
{
    p->logits = logits;
}

void plan_hidden(plan *p, value hidden)
{
    p->hidden = hidden;
}
