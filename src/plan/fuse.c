/*
 * Fusion: named rewrites of the step list, for all backends. Each replaces steps that stand next to
 * each other by one operation of ops.def that gives the same result, where nobody else reads what
 * lay between them.
 */
#include <string.h>

#include "plan/plan.h"

bool step_reads(const step *s, int32_t root)
{
    for (int i = 0; i < STEP_MAX_IN; i++)
        if (s->in[i].root == root)
            return true;
    return false;
}

bool step_writes(const step *s, int32_t root)
{
    for (int i = 0; i < STEP_MAX_OUT; i++)
        if (s->out[i].root == root)
            return true;
    return false;
}

void plan_count_reads(plan *p)
{
    for (int32_t v = 0; v < p->n_values; v++)
        p->values[v].n_reads = (v == p->logits) + (v == p->hidden) + p->values[v].leaves;
    for (int32_t i = 0; i < p->n_steps; i++)
        for (int j = 0; j < STEP_MAX_IN; j++) {
            const operand *o = &p->steps[i].in[j];
            if (o->value >= 0)
                p->values[o->value].n_reads++;
            if (o->root != o->value)
                p->values[o->root].n_reads += 2; /* never the only one: who reads a slice is not
                                                    handed the whole */
        }
}

bool plan_feeds_only(const plan *p, const step *from, const step *to, int input)
{
    int32_t v = from->out[0].value;
    return to->in[input].value == v && p->values[v].n_reads == 1;
}

/* matmul gate, matmul up, glu -> matmul_glu */
static int fuse_matmul_glu(plan *p, step *s, int32_t left)
{
    if (left < 3 || s[0].op != OP_MATMUL || s[1].op != OP_MATMUL || s[2].op != OP_GLU ||
        s[0].in[0].value != s[1].in[0].value || !plan_feeds_only(p, &s[0], &s[2], 0) ||
        !plan_feeds_only(p, &s[1], &s[2], 1) || s[2].in[0].width != s[2].in[1].width ||
        s[2].a.glu.kind > p->last_fused || s[0].a.matmul.scale != s[1].a.matmul.scale)
        return 0;
    s[0].op = OP_MATMUL_GLU;
    s[0].a.matmul.weights[1] = s[1].a.matmul.weights[0];
    s[0].a.matmul.biases[1] = s[1].a.matmul.biases[0];
    s[0].a.matmul.n_weights = 2;
    s[0].a.matmul.glu = s[2].a.glu.kind;
    s[0].out[0] = s[2].out[0];
    return 2;
}

/* matmul, add -> matmul_add */
static int fuse_matmul_add(plan *p, step *s, int32_t left)
{
    if (left < 2 || s[0].op != OP_MATMUL || s[1].op != OP_ADD ||
        !plan_feeds_only(p, &s[0], &s[1], 0) ||
        (s[0].a.matmul.biases[0] && s[1].a.add.scale != 1.0f))
        return 0;
    s[0].op = OP_MATMUL_ADD;
    s[0].a.matmul.scale *= s[1].a.add.scale;
    s[0].out[0] = s[1].out[0];
    return 1;
}

/* up to three matmuls of one input -> matmul_group */
static int fuse_matmul_group(plan *p, step *s, int32_t left)
{
    if (s[0].op != OP_MATMUL)
        return 0;
    int n = 1;
    while (n < STEP_MAX_OUT && n < left && s[n].op == OP_MATMUL &&
           s[n].in[0].value == s[0].in[0].value && s[n].a.matmul.scale == s[0].a.matmul.scale) {
        s[0].a.matmul.weights[n] = s[n].a.matmul.weights[0];
        s[0].a.matmul.biases[n] = s[n].a.matmul.biases[0];
        s[0].out[n] = s[n].out[0];
        n++;
    }
    if (n == 1)
        return 0;
    s[0].op = OP_MATMUL_GROUP;
    s[0].a.matmul.n_weights = n;
    return n - 1;
}

/* rope q, rope k, kv_write -> rope_kv */
static int fuse_rope_kv(plan *p, step *s, int32_t left)
{
    if (left < 3 || s[0].op != OP_ROPE || s[1].op != OP_ROPE || s[2].op != OP_KV_WRITE ||
        s[0].in[0].value != s[1].in[0].value || s[1].out[0].value != s[2].in[0].value ||
        s[0].a.rope.is_neox != s[1].a.rope.is_neox || s[0].a.rope.n_dims != s[1].a.rope.n_dims)
        return 0;
    s[0].op = OP_ROPE_KV;
    s[0].in[1] = s[2].in[1];
    s[0].out[1] = s[1].out[0];
    s[0].kv = s[2].kv;
    return 2;
}

void plan_rewrite(plan *p, plan_rule rule)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        int gone = rule(p, &p->steps[i], p->n_steps - i);
        p->steps[n++] = p->steps[i];
        i += gone;
    }
    p->n_steps = n;
}

/* In this order: a pair that ends in glu or add must not be taken into a group first. */
static const plan_rule rules[] = {fuse_matmul_glu, fuse_matmul_add, fuse_matmul_group,
                                  fuse_rope_kv};

void plan_fuse(plan *p)
{
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        plan_rewrite(p, rules[r]);
}
