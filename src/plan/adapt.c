/* The steps of adapters, put into a plan. */
#include "plan/adapt.h"

#include <stdio.h>

#include "base/mem.h"
#include "ops/lora.h"

/* What adapters have for the step's matrix; NULL: nothing. */
static const lora_site *site_of(const step *s)
{
    return s->op == OP_MATMUL  ? s->a.matmul.weights[0]->lora
           : s->op == OP_EMBED ? s->a.embed.table->lora
                               : NULL;
}

/* A matrix that adapters know, in a step that they cannot be put around. */
static bool is_out_of_reach(const step *s)
{
    op_weight w[OP_MAX_WEIGHTS];
    if (s->op == OP_EMBED)
        return s->a.embed.table->lora && s->a.embed.by != EMBED_BY_TOKEN;
    for (int i = 0, n = step_weights(s, w); i < n && s->op != OP_MATMUL; i++)
        if (w[i].w->lora)
            return true;
    return false;
}

static void take(plan *p, const step *s)
{
    step *to = plan_append(p, s->op);
    if (to)
        *to = *s;
}

/* A step of an adapter beside s, which has rows like it. */
static step *append_beside(plan *p, op o, const step *s)
{
    p->layer = s->layer;
    step *to = plan_append(p, o);
    if (to) {
        to->is_output = s->is_output;
        to->row_factor = s->row_factor;
        to->a.lora.site = site_of(s);
    }
    return to;
}

/* Returns the value that it makes. */
static int32_t add_down(plan *p, const step *s)
{
    int32_t low = plan_add_value(p, ACT_F32, site_of(s)->n_low, s->is_output);
    step *down = low < 0 ? NULL : append_beside(p, OP_LORA_DOWN, s);
    if (!down)
        return -1;
    p->values[low].row_factor = s->row_factor;
    if (s->op == OP_MATMUL)
        down->in[0] = s->in[0];
    down->out[0] = plan_operand(p, low);
    return low;
}

/* out += scale * what low becomes. */
static void add_up(plan *p, const step *s, int32_t low, const operand *out, float scale)
{
    step *up = low < 0 ? NULL : append_beside(p, OP_LORA_UP, s);
    if (!up)
        return;
    up->in[0] = plan_operand(p, low);
    up->out[0] = *out;
    up->a.lora.scale = scale;
}

static void adapt_embed(plan *p, const step *s)
{
    take(p, s);
    add_up(p, s, add_down(p, s), &s->out[0], s->a.embed.scale);
}

enum { RUN_MOST = 8 };

/* Up to RUN_MOST products of one input that follow each other; returns how many. */
static int32_t run_of(const step *s, int32_t left)
{
    int32_t n = 1;
    while (n < left && n < RUN_MOST && s[n].op == OP_MATMUL && s[n].in[0].value == s[0].in[0].value)
        n++;
    return n;
}

/* Products and what adapters add to them; returns how many steps of the plan that were. */
static int32_t adapt_products(plan *p, const step *s, int32_t left)
{
    int32_t low[RUN_MOST], n = run_of(s, left);
    bool adds = n == 1 && left > 1 && s[1].op == OP_ADD && plan_feeds_only(p, &s[0], &s[1], 0);
    for (int32_t i = 0; i < n; i++)
        low[i] = site_of(&s[i]) ? add_down(p, &s[i]) : -1;
    for (int32_t i = 0; i < n + adds; i++)
        take(p, &s[i]);
    for (int32_t i = 0; i < n; i++) {
        const step *to = adds ? &s[1] : &s[i];
        float scale = s[i].a.matmul.scale * (adds ? s[1].a.add.scale : 1.0f);
        if (site_of(&s[i]))
            add_up(p, &s[i], low[i], &to->out[0], scale);
    }
    return n + adds;
}

static bool has_sites(const plan *p)
{
    for (int32_t i = 0; i < p->n_steps; i++)
        if (site_of(&p->steps[i]) || is_out_of_reach(&p->steps[i]))
            return true;
    return false;
}

void plan_adapt(plan *p)
{
    if (p->status != LACE_OK || !has_sites(p))
        return;
    plan_count_reads(p);
    step *steps = p->steps;
    int32_t n_steps = p->n_steps;
    p->steps = NULL;
    p->n_steps = p->steps_capacity = 0;
    for (int32_t i = 0; i < n_steps && p->status == LACE_OK;) {
        const step *s = &steps[i];
        if (is_out_of_reach(s)) {
            p->status = LACE_E_UNSUPPORTED;
            p->fault_layer = s->layer;
            snprintf(p->fault, sizeof p->fault, "has a matrix for %s, which adapters cannot change",
                     op_name(s->op));
        } else if (s->op == OP_MATMUL) {
            i += adapt_products(p, s, n_steps - i);
        } else if (site_of(s)) {
            adapt_embed(p, s);
            i++;
        } else {
            take(p, s);
            i++;
        }
    }
    p->layer = -1;
    mem_free(steps);
}
