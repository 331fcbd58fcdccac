/* Latent attention of prompts with keys and values: which steps they are, and when it pays. */
#include "plan/latents.h"

#include <stdlib.h>
#include <string.h>

static bool feeds_next(const plan *p, const step *s)
{
    return s[1].in[0].value == s->out[0].value && p->values[s->out[0].value].n_reads == 1 &&
           s[1].is_output == s->is_output && s->out[0].root == s->out[0].value;
}

bool plan_find_latents(const plan *p, const step *s, int32_t left, latent_form *out)
{
    if (left < 3 || s[0].op != OP_MATMUL_HEADS || s[1].op != OP_ATTEND ||
        s[2].op != OP_MATMUL_HEADS || !feeds_next(p, &s[0]) || !feeds_next(p, &s[1]))
        return false;
    const kv_layer *kv = &s[1].kv;
    const weight *k = s[0].a.heads.weights, *v = s[2].a.heads.weights;
    *out = (latent_form){.n_heads = s[1].a.attend.n_heads,
                         .rank = kv->v_dim,
                         .nope = (int32_t)k->n_cols,
                         .turned = s[0].a.heads.n_rest,
                         .value = (int32_t)v->n_rows,
                         .group = kv->group};
    return kv->v_in_k && kv->n_heads == 1 && s[0].a.heads.n_heads == out->n_heads &&
           s[2].a.heads.n_heads == out->n_heads && k->n_rows == out->rank &&
           v->n_cols == out->rank && s[2].a.heads.n_rest == 0 &&
           kv->head_dim == out->rank + out->turned && s[1].a.attend.window == 0 &&
           s[1].a.attend.chunk == 0 && s[1].a.attend.softcap <= 0 && !s[1].a.attend.sinks &&
           !s->is_output;
}

/* A value that is alive, but not read or written in the usual way. */
static operand kept(const operand *o)
{
    return (operand){.value = -1, .root = o->root};
}

void plan_keep_latents(plan *p)
{
    latent_form f;
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        if (!plan_find_latents(p, s, p->n_steps - i, &f))
            continue;
        s[2].in[1] = kept(&s[0].in[0]);
        s[2].in[2] = kept(&s[0].out[0]);
        s[1].out[1] = kept(&s[2].out[0]);
    }
}

bool latents_expand(const latent_form *f, const latent_costs *c, int64_t n_rows, int64_t n_past)
{
    const char *forced = getenv("LACE_LATENTS");
    if (forced && strcmp(forced, "absorbed") == 0)
        return false;
    if (forced && strcmp(forced, "expanded") == 0)
        return true;
    if (!c)
        return false;
    double rows = (double)n_rows, past = (double)n_past;
    double pairs = rows * past + rows * (rows + 1) / 2;
    double each = (double)f->rank * (f->nope + f->value);
    double absorbed = rows * each * c->matrices + pairs * (2 * f->rank + f->turned) * c->absorbed;
    double expanded =
        (past + rows) * each * c->making + pairs * (f->nope + f->turned + f->value) * c->expanded;
    return expanded < absorbed;
}
