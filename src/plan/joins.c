/*
 * Steps that join: a matrix step whose weights lie in columns leaves sums of parts, and the step
 * behind it, added here, makes the products of them. With more than one token it does nothing.
 */
#include "base/mem.h"
#include "backend/cpu/columns.h"
#include "ops/op_info.h"
#include "plan/plan.h"

bool plan_has_columns(const step *s)
{
    return step_is_matmul(s) && columns_can(s);
}

void plan_add_joins(plan *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_steps; i++)
        n += plan_has_columns(&p->steps[i]);
    if (n == 0)
        return;
    step *steps = mem_alloc((size_t)(p->n_steps + n) * sizeof *steps);
    if (!steps) {
        p->status = LACE_E_NOMEM;
        return;
    }
    n = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        steps[n++] = *s;
        if (!plan_has_columns(s))
            continue;
        step *join = &steps[n++];
        *join = *s;
        join->op = OP_MATMUL_JOIN;
        join->a.matmul.joins = s->op;
        for (int k = 0; k < STEP_MAX_IN; k++)
            join->in[k].value = -1;
    }
    mem_free(p->steps);
    p->steps = steps;
    p->n_steps = p->steps_capacity = n;
}
