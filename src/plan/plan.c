/* A plan's life, and how backends change a copy of it. */
#include "plan/plan.h"

#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "ops/op_info.h"

lace_status plan_create(const plan_limits *limits, plan **out, lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "a plan");
    (*out)->limits = *limits;
    (*out)->layer = -1;
    (*out)->last_fused = GLU_COUNT;
    (*out)->logits = (*out)->hidden = -1;
    return LACE_OK;
}

lace_status plan_copy(const plan *p, plan **out, lace_error *err)
{
    TRY(plan_create(&p->limits, out, err));
    plan *copy = *out;
    copy->logits = p->logits;
    copy->hidden = p->hidden;
    copy->exchange_bytes = p->exchange_bytes;
    copy->steps = mem_alloc((size_t)p->n_steps * sizeof *copy->steps + 1);
    copy->values = mem_alloc((size_t)p->n_values * sizeof *copy->values + 1);
    if (!copy->steps || !copy->values) {
        plan_free(copy);
        *out = NULL;
        return error_nomem(err, "a plan");
    }
    memcpy(copy->steps, p->steps, (size_t)p->n_steps * sizeof *copy->steps);
    memcpy(copy->values, p->values, (size_t)p->n_values * sizeof *copy->values);
    copy->n_steps = copy->steps_capacity = p->n_steps;
    copy->n_values = copy->values_capacity = p->n_values;
    return LACE_OK;
}

void plan_free(plan *p)
{
    if (!p)
        return;
    mem_free_all(p->steps, p->values, p);
}

lace_status plan_check(const plan *p, lace_error *err)
{
    if (p->fault[0] && p->fault_layer < 0)
        return error_set(err, p->status, "the model %s", p->fault);
    if (p->fault[0])
        return error_set(err, p->status, "layer %d: %s", p->fault_layer, p->fault);
    return p->status == LACE_OK ? LACE_OK : error_nomem(err, "a plan");
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

int32_t plan_add_value(plan *p, act_format format, int64_t width, bool is_output)
{
    if (!grow(p, (void **)&p->values, p->n_values, &p->values_capacity, sizeof *p->values))
        return -1;
    p->values[p->n_values] = (plan_value){
        .format = format, .width = width, .is_output = is_output, .row_factor = 1, .of = -1};
    return p->n_values++;
}

operand plan_operand(const plan *p, int32_t value)
{
    const plan_value *v = &p->values[value];
    int32_t root = v->of >= 0 ? v->of : value;
    return (operand){.value = value,
                     .root = root,
                     .format = v->format,
                     .width = v->width,
                     .stride = act_row_bytes(v->format, p->values[root].width)};
}

step *plan_append(plan *p, op o)
{
    if (!grow(p, (void **)&p->steps, p->n_steps, &p->steps_capacity, sizeof *p->steps))
        return NULL;
    step *s = &p->steps[p->n_steps++];
    memset(s, 0, sizeof *s);
    s->op = o;
    s->row_factor = 1;
    s->layer = p->layer;
    for (int i = 0; i < STEP_MAX_IN; i++)
        s->in[i].value = s->in[i].root = -1;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        s->out[i].value = s->out[i].root = -1;
    return s;
}

int64_t plan_given_width(const plan *p)
{
    if (plan_is_beside(p))
        return p->steps[0].a.embed.table->n_cols;
    for (int32_t i = 0; i < p->n_steps; i++)
        if (step_may_read_given(&p->steps[i]))
            return p->limits.given_width;
    return 0;
}

uint64_t plan_vector_bytes(const plan *p, uint64_t align)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        op_vector v[OP_MAX_VECTORS];
        step s = p->steps[i];
        int count = step_vectors(&s, v);
        for (int k = 0; k < count; k++)
            bytes += round_up(4 * (uint64_t)v[k].n, align);
    }
    return bytes;
}
