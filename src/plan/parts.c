/* Plans cut into parts by device. */
#include "plan/parts.h"

#include <string.h>

#include "base/mem.h"

/* While a plan is cut. */
typedef struct cutting {
    const plan *p;
    int32_t *part_of; /* [n_steps]; -1: a step of positions alone */
    int32_t n_parts;
    plan *border; /* whose values are those that cross; phases are parts */
} cutting;

static bool is_of_positions(const step *s)
{
    return op_describe(s->op)->is_of_positions;
}

static const operand *operand_at(const step *s, int i)
{
    return i < STEP_MAX_IN ? &s->in[i] : &s->out[i - STEP_MAX_IN];
}

static void number_parts(cutting *c, const int32_t *devices)
{
    int32_t last = -1;
    for (int32_t i = 0; i < c->p->n_steps; i++) {
        c->part_of[i] = -1;
        if (is_of_positions(&c->p->steps[i]))
            continue;
        c->n_parts += c->n_parts == 0 || devices[i] != last;
        last = devices[i];
        c->part_of[i] = c->n_parts - 1;
    }
}

/* From the part that makes a value first to the last one that has it as an operand. */
static void note_life(cutting *c, int32_t i)
{
    for (int k = 0; k < STEP_MAX_IN + STEP_MAX_OUT; k++) {
        int32_t root = operand_at(&c->p->steps[i], k)->root;
        if (root < 0)
            continue;
        plan_value *v = &c->border->values[root];
        if (k >= STEP_MAX_IN && c->part_of[i] < v->first)
            v->first = c->part_of[i];
        if (c->part_of[i] > v->last)
            v->last = c->part_of[i];
    }
}

/* Which values cross, and where they lie meanwhile. */
static void place_border(cutting *c)
{
    for (int32_t v = 0; v < c->p->n_values; v++) {
        c->border->values[v].first = INT32_MAX;
        c->border->values[v].last = -1;
    }
    for (int32_t i = 0; i < c->p->n_steps; i++)
        if (c->part_of[i] >= 0)
            note_life(c, i);
    const int32_t results[] = {c->p->logits, c->p->hidden};
    for (int i = 0; i < 2; i++)
        if (results[i] >= 0)
            c->border->values[results[i]].last = INT32_MAX;
    for (int32_t v = 0; v < c->p->n_values; v++)
        if (c->border->values[v].first >= c->border->values[v].last)
            c->border->values[v].last =
                -1; /* it stays, or nobody but a step of positions makes it */
    plan_place_values(c->border);
}

/* Behind what of positions it reads, unless that is there. */
static void take_angles(cutting *c, plan *to, const step *reader)
{
    for (int k = 0; k < STEP_MAX_IN; k++)
        for (int32_t i = 0; i < c->p->n_steps; i++) {
            const step *made = &c->p->steps[i];
            if (c->part_of[i] >= 0 || reader->in[k].value < 0 ||
                made->out[0].root != reader->in[k].root)
                continue;
            bool is_there = false;
            for (int32_t n = 0; n < to->n_steps; n++)
                is_there = is_there || step_writes(&to->steps[n], made->out[0].root);
            step *copy = is_there ? NULL : plan_append(to, made->op);
            if (copy)
                *copy = *made;
        }
}

/* What of a step's operands comes from another part or goes to one. */
static void mark_crossings(const cutting *c, int32_t part, const step *s, plan *to)
{
    for (int k = 0; k < STEP_MAX_IN + STEP_MAX_OUT; k++) {
        int32_t root = operand_at(s, k)->root;
        const plan_value *life = root >= 0 ? &c->border->values[root] : NULL;
        if (!life || life->last < 0)
            continue;
        to->values[root].border = life->offset;
        if (part > life->first)
            to->values[root].enters = true;
        if (k >= STEP_MAX_IN && part < life->last)
            to->values[root].leaves = true;
    }
}

static lace_status make_part(cutting *c, int32_t part, const int32_t *devices, plan_part *out,
                             lace_error *err)
{
    TRY(plan_copy(c->p, &out->p, err));
    plan *to = out->p;
    to->n_steps = 0;
    to->logits = to->hidden = -1;
    for (int32_t i = 0; i < c->p->n_steps; i++)
        if (c->part_of[i] == part)
            take_angles(c, to, &c->p->steps[i]);
    for (int32_t i = 0; i < c->p->n_steps; i++) {
        const step *s = &c->p->steps[i];
        if (c->part_of[i] != part)
            continue;
        step *copy = plan_append(to, s->op);
        if (!copy)
            break;
        *copy = *s;
        out->device = devices[i];
        out->reads_embeddings = out->reads_embeddings || step_may_read_given(s);
        mark_crossings(c, part, s, to);
    }
    return plan_check(to, err);
}

static lace_status make_parts(cutting *c, const int32_t *devices, plan_parts *out, lace_error *err)
{
    number_parts(c, devices);
    place_border(c);
    out->parts = mem_calloc((size_t)c->n_parts + 1, sizeof *out->parts);
    if (!out->parts)
        return error_nomem(err, "a plan");
    for (; out->n_parts < c->n_parts; out->n_parts++)
        TRY(make_part(c, out->n_parts, devices, &out->parts[out->n_parts], err));
    out->border_bytes = c->border->value_bytes;
    out->logits = c->p->logits >= 0 ? c->border->values[c->p->logits].offset : 0;
    out->hidden = c->p->hidden >= 0 ? c->border->values[c->p->hidden].offset : 0;
    return LACE_OK;
}

lace_status plan_parts_create(const plan *p, const int32_t *devices, plan_parts *out,
                              lace_error *err)
{
    *out = (plan_parts){0};
    cutting c = {.p = p};
    c.part_of = mem_calloc((size_t)p->n_steps + 1, sizeof *c.part_of);
    lace_status status = c.part_of ? plan_copy(p, &c.border, err) : error_nomem(err, "a plan");
    if (status == LACE_OK)
        status = make_parts(&c, devices, out, err);
    if (status != LACE_OK)
        plan_parts_free(out);
    mem_free(c.part_of);
    plan_free(c.border);
    return status;
}

void plan_parts_free(plan_parts *parts)
{
    /* One more: that which could not be made. */
    for (int32_t i = 0; parts->parts && i <= parts->n_parts; i++)
        plan_free(parts->parts[i].p);
    mem_free(parts->parts);
    *parts = (plan_parts){0};
}
