/* The words in which architectures are written: each adds a step to a plan. */
#include "plan/build.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

lace_status plan_create(const kernel_table *table, const plan_limits *limits, plan **out,
                        lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "a plan");
    (*out)->table = table;
    (*out)->limits = *limits;
    (*out)->layer = -1;
    (*out)->logits = -1;
    return LACE_OK;
}

void plan_free(plan *p)
{
    if (!p)
        return;
    mem_unmap(p->memory, plan_memory_bytes(p));
    mem_free(p->steps);
    mem_free(p->values);
    mem_free(p);
}

/* Room for one more item of a growing array; false (and a status) without memory. */
static bool grow(plan *p, void **items, int32_t n, int32_t *capacity, size_t size)
{
    if (p->status != LACE_OK)
        return false;
    if (n < *capacity)
        return true;
    int32_t more = *capacity ? 2 * *capacity : 64;
    void *grown = mem_realloc(*items, (size_t)more * size);
    if (!grown) {
        p->status = LACE_E_NOMEM;
        return false;
    }
    *items = grown;
    *capacity = more;
    return true;
}

/* What an architecture file must not ask for ends its plan, and plan_finish says why. */
static void refuse(plan *p, const char *fault)
{
    if (p->status != LACE_OK)
        return;
    p->status = LACE_E_UNSUPPORTED;
    p->fault = fault;
    p->fault_layer = p->layer;
}

/* A matrix that was bound. */
static bool is_bound(plan *p, const weight *w)
{
    if (!w || !w->impl)
        refuse(p, "needs a matrix that the model does not have");
    return p->status == LACE_OK;
}

static value add_value(plan *p, act_format format, int64_t width, bool is_output)
{
    if (!grow(p, (void **)&p->values, p->n_values, &p->values_capacity, sizeof *p->values))
        return -1;
    p->values[p->n_values] = (plan_value){.format = format,
                                          .width = width,
                                          .is_output = is_output,
                                          .row_factor = 1,
                                          .quantized = -1,
                                          .rotated = -1,
                                          .thinned = -1};
    return p->n_values++;
}

/* A step without operands, or NULL after a failure. */
static step *add_step(plan *p, op o, bool is_output)
{
    if (!grow(p, (void **)&p->steps, p->n_steps, &p->steps_capacity, sizeof *p->steps))
        return NULL;
    step *s = &p->steps[p->n_steps++];
    memset(s, 0, sizeof *s);
    s->op = o;
    s->is_output = is_output;
    s->row_factor = 1;
    s->layer = p->layer;
    for (int i = 0; i < STEP_MAX_IN; i++)
        s->in[i].value = -1;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        s->out[i].value = -1;
    return s;
}

static operand operand_of(const plan *p, value v)
{
    const plan_value *pv = &p->values[v];
    return (operand){.value = v,
                     .format = pv->format,
                     .width = pv->width,
                     .stride = act_row_bytes(pv->format, pv->width)};
}

/* Adds a step that makes a new value from up to two others (-1: none). Its arguments are the
 * caller's. */
static step *add_making(plan *p, op o, value in0, value in1, act_format format, int64_t width,
                        bool is_output)
{
    value out = add_value(p, format, width, is_output);
    step *s = add_step(p, o, is_output);
    if (!s || out < 0)
        return NULL;
    if (in0 >= 0)
        s->in[0] = operand_of(p, in0);
    if (in1 >= 0)
        s->in[1] = operand_of(p, in1);
    s->out[0] = operand_of(p, out);
    return s;
}

value plan_embed(plan *p, const tensor *table, float scale)
{
    step *s = add_making(p, OP_EMBED, -1, -1, ACT_F32, table->shape.dims[0], false);
    if (!s)
        return -1;
    s->a.embed.table = table->data;
    s->a.embed.type = table->type;
    s->a.embed.n_rows = table->shape.dims[1];
    s->a.embed.scale = scale;
    return s->out[0].value;
}

value plan_rope_table(plan *p, const rope_params *rope)
{
    step *s = add_making(p, OP_ROPE_TABLE, -1, -1, ACT_F32, rope->n_dims, false);
    if (!s)
        return -1;
    s->a.rope_table.frequencies = rope->frequencies;
    s->a.rope_table.magnitude = rope->magnitude;
    return s->out[0].value;
}

value plan_norm(plan *p, value x, const float *scales, int64_t group, double eps)
{
    if (p->status != LACE_OK)
        return -1;
    int64_t width = p->values[x].width;
    assert(width % group == 0);
    step *s = add_making(p, OP_RMS_NORM, x, -1, ACT_F32, width, p->values[x].is_output);
    if (!s)
        return -1;
    s->a.norm.weight = scales;
    s->a.norm.group = group;
    s->a.norm.eps = (float)eps;
    return s->out[0].value;
}

/* x in the form that a kernel reads; quantized once, however many matrices want it. */
static value as_format(plan *p, value x, act_format format)
{
    if (p->status != LACE_OK || p->values[x].format == format)
        return x;
    assert(format != ACT_F32);
    bool is_rotated = format == ACT_ROTATED_Q8;
    int32_t made = is_rotated ? p->values[x].rotated : p->values[x].quantized;
    if (made < 0) {
        step *s = add_making(p, is_rotated ? OP_ROTATE_QUANTIZE : OP_QUANTIZE, x, -1, format,
                             p->values[x].width, p->values[x].is_output);
        if (!s)
            return -1;
        made = s->out[0].value;
        s->row_factor = p->values[made].row_factor = p->values[x].row_factor;
        *(is_rotated ? &p->values[x].rotated : &p->values[x].quantized) = made;
    }
    return made;
}

/* x in the form that the kernel of a weight reads, without what its thinning leaves out. */
static value as_input(plan *p, value x, const weight *w)
{
    act_format format = w->impl->act;
    if (p->status != LACE_OK || !w->thin)
        return as_format(p, x, format);
    bool is_known = p->values[x].thinned >= 0 && p->values[x].thin == w->thin;
    value made = is_known ? p->values[x].thinned : -1;
    /*
     * Quantizing thins on the way; what is to be rotated is thinned before, and what is measured
     * too: so its floats can be looked at.
     */
    bool quantizes = format == ACT_Q8 && !w->thin->in_batches;
    act_format thinned = quantizes ? ACT_Q8 : ACT_F32;
    if (made < 0 || p->values[made].format != thinned) {
        step *s = add_making(p, quantizes ? OP_QUANTIZE : OP_THIN, x, -1, thinned,
                             p->values[x].width, p->values[x].is_output);
        if (!s)
            return -1;
        s->thin = w->thin;
        made = s->out[0].value;
        p->values[x].thinned = made;
        p->values[x].thin = w->thin;
    }
    return as_format(p, made, format);
}

value plan_linear(plan *p, value x, const weight *w, const float *bias, float scale)
{
    if (!is_bound(p, w))
        return -1;
    x = as_input(p, x, w);
    if (p->status != LACE_OK)
        return -1;
    assert(p->values[x].width == w->n_cols);
    step *s = add_making(p, OP_MATMUL, x, -1, ACT_F32, w->n_rows, p->values[x].is_output);
    if (!s)
        return -1;
    s->a.matmul.weights[0] = w;
    s->a.matmul.biases[0] = bias;
    s->a.matmul.n_weights = 1;
    s->a.matmul.scale = scale;
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
    s->in[0] = operand_of(p, y);
    s->out[0] = operand_of(p, x);
    s->a.add.scale = scale;
    p->values[x].quantized = p->values[x].rotated = p->values[x].thinned = -1; /* it has changed */
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
    step *s =
        add_making(p, OP_GLU, gate, up, ACT_F32, p->values[gate].width, p->values[gate].is_output);
    if (!s)
        return -1;
    s->a.glu.kind = kind;
    return s->out[0].value;
}

value plan_rope(plan *p, value x, value table, const rope_params *rope, int32_t n_heads,
                int32_t head_dim)
{
    step *s = add_step(p, OP_ROPE, false);
    if (!s)
        return -1;
    s->in[0] = operand_of(p, table);
    s->out[0] = operand_of(p, x);
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
    s->in[0] = operand_of(p, k);
    s->in[1] = operand_of(p, v);
    s->kv = *kv;
}

value plan_attend(plan *p, value q, const kv_layer *kv, const attend_params *params)
{
    if (p->status != LACE_OK)
        return -1;
    step *s = add_making(p, OP_ATTEND, q, -1, ACT_F32, p->values[q].width, false);
    if (!s)
        return -1;
    s->kv = *kv;
    s->a.attend.n_heads = params->n_heads;
    s->a.attend.scale = params->scale;
    s->a.attend.window = params->window;
    s->a.attend.softcap = params->softcap;
    s->a.attend.sinks = params->sinks;
    return s->out[0].value;
}

value plan_moe_add(plan *p, value x, value y, value logits, const moe_params *moe, float scale)
{
    if (!knows_activation(p, moe->glu) || !is_bound(p, moe->gate) || !is_bound(p, moe->up) ||
        !is_bound(p, moe->down))
        return -1;
    bool is_output = p->values[x].is_output;
    step *s = add_making(p, OP_ROUTE, logits, -1, ACT_F32, 2 * moe->n_used, is_output);
    if (!s)
        return -1;
    value choices = s->out[0].value;
    s->a.moe.n_experts = moe->n_experts;
    s->a.moe.n_used = moe->n_used;
    s->a.moe.norms = moe->norms;

    y = as_format(p, y, moe->gate->impl->act);
    if (p->status != LACE_OK)
        return -1;
    s = add_making(p, OP_MOE_GLU, y, choices, ACT_F32, moe->gate->n_rows, is_output);
    if (!s)
        return -1;
    s->a.moe.gate = moe->gate;
    s->a.moe.up = moe->up;
    s->a.moe.gate_bias = moe->gate_bias;
    s->a.moe.up_bias = moe->up_bias;
    s->a.moe.n_experts = moe->n_experts;
    s->a.moe.n_used = moe->n_used;
    s->a.moe.glu = moe->glu;
    s->a.moe.glu_row = p->table->glu_row;
    value h = s->out[0].value;
    p->values[h].row_factor = moe->n_used;

    h = as_format(p, h, moe->down->impl->act);
    s = add_step(p, OP_MOE_DOWN, is_output);
    if (!s)
        return -1;
    s->in[0] = operand_of(p, h);
    s->in[1] = operand_of(p, choices);
    s->out[0] = operand_of(p, x);
    s->a.moe.down = moe->down;
    s->a.moe.down_bias = moe->down_bias;
    s->a.moe.n_experts = moe->n_experts;
    s->a.moe.n_used = moe->n_used;
    s->a.moe.scale = scale;
    p->values[x].quantized = p->values[x].rotated = p->values[x].thinned = -1;
    return x;
}

value plan_softcap(plan *p, value x, float cap)
{
    if (p->status != LACE_OK)
        return -1;
    step *s = add_step(p, OP_SOFTCAP, p->values[x].is_output);
    if (!s)
        return -1;
    s->out[0] = operand_of(p, x);
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

void plan_result(plan *p, value logits)
{
    p->logits = logits;
}
