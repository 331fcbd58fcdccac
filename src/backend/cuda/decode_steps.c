/* Which steps of a plan products take along, by who reads and writes what between them. */
#include "backend/cuda/decode_steps.h"

#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_product.h"

/* While a plan is looked at. */
typedef struct matcher {
    const plan *p;
    const gpu *g;
    step_form *forms;
} matcher;

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Where an operand's row lies in the memory of values, [from, to). */
static void range_of(const plan *p, const operand *o, uint64_t *from, uint64_t *to)
{
    const plan_value *v = &p->values[o->value];
    int64_t n_rows = v->row_factor > 1 ? v->row_factor : 1;
    *from = p->values[o->root].offset + 4 * (uint64_t)v->column;
    *to = *from + (uint64_t)(n_rows - 1) * o->stride + 4 * (uint64_t)o->width;
}

static bool overlap(const plan *p, const operand *a, const operand *b)
{
    uint64_t a0, a1, b0, b1;
    if (a->value < 0 || b->value < 0)
        return false;
    range_of(p, a, &a0, &a1);
    range_of(p, b, &b0, &b1);
    return a0 < b1 && b0 < a1;
}

static bool writes(const matcher *m, const step *s, const operand *o)
{
    for (int k = 0; k < STEP_MAX_OUT; k++)
        if (overlap(m->p, &s->out[k], o))
            return true;
    const step *add = m->forms[s - m->p->steps].add;
    return add && overlap(m->p, &add->out[0], o);
}

static bool reads(const matcher *m, const step *s, const operand *o)
{
    for (int k = 0; s && k < STEP_MAX_IN; k++)
        if (overlap(m->p, &s->in[k], o))
            return true;
    return false;
}

/* Whether steps that s takes along read the place. */
static bool takes_from(const matcher *m, const step *s, const operand *o)
{
    const step_form *f = &m->forms[s - m->p->steps];
    for (int i = 0; i < 3; i++)
        if (reads(m, f->heads[i].norm, o) || reads(m, f->heads[i].pick, o) ||
            reads(m, f->heads[i].rope, o))
            return true;
    return reads(m, f->norm, o) || reads(m, f->glu, o) || reads(m, f->pick, o) ||
           reads(m, f->route, o);
}

/* Whether the step, or one that it takes along, has to do with the place. */
static bool touches(const matcher *m, const step *s, const operand *o)
{
    return reads(m, s, o) || takes_from(m, s, o) || writes(m, s, o);
}

/* The same when it is settled who takes what along: what is not launched, and what a product does not
 * read because it makes its input, does not count. */
static bool will_touch(const matcher *m, const step *s, const operand *o)
{
    const step_form *f = &m->forms[s - m->p->steps];
    bool makes = f->norm || f->glu;
    if (f->use == USE_NOTHING && !step_is_matmul(s))
        return false;
    return (!makes && reads(m, s, o)) || takes_from(m, s, o) || writes(m, s, o);
}

/* Whether a step behind `from`, up to `to` itself, writes there. */
static bool is_written(const matcher *m, const step *from, const step *to, const operand *o)
{
    for (const step *s = from + 1; s <= to; s++)
        if (writes(m, s, o))
            return true;
    return false;
}

/* Columns in fours, that begin at a multiple of 16 bytes. */
static bool is_aligned(const plan *p, const operand *o)
{
    return p->values[o->value].column % 4 == 0 && o->width % 4 == 0;
}

/* The last step in front of s that writes the value; NULL: there is none. */
static const step *maker_of(const matcher *m, const step *s, int32_t value)
{
    while (s-- > m->p->steps)
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (s->out[k].value == value && value >= 0)
                return s;
    return NULL;
}

static bool is_given_out(const matcher *m, int32_t value)
{
    return value == m->p->logits || value == m->p->hidden || m->p->values[value].leaves;
}

/* The one step that has what `s` made as an operand, or a part of it; NULL: there are more. */
static const step *only_reader(const matcher *m, const step *s)
{
    const step *found = NULL, *end = m->p->steps + m->p->n_steps;
    if (s->out[0].root != s->out[0].value || is_given_out(m, s->out[0].value))
        return NULL;
    for (const step *at = s + 1; at < end; at++)
        if (step_reads(at, s->out[0].root) || step_writes(at, s->out[0].root)) {
            if (found)
                return NULL;
            found = at;
        }
    return found;
}

/* ---- Products -------------------------------------------------------------------------------- */

static bool is_floats(const weight *w)
{
    return tile_kind_of(w->type) == TILE_F32;
}

int32_t decode_step_parts(const step *s, bool floats, int32_t parts[STEP_MAX_OUT])
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->a.matmul.n_weights; i++)
        if (is_floats(s->a.matmul.weights[i]) == floats)
            parts[n++] = i;
    return n;
}

static bool has_floats(const step *s)
{
    int32_t parts[STEP_MAX_OUT];
    return decode_step_parts(s, true, parts) > 0;
}

/* Whether blocks have room for the tiles of a step and of those that are joined to it. */
static bool has_room(const matcher *m, const step *s, const step *more)
{
    const step_form *f = &m->forms[s - m->p->steps];
    bool adds = s->op == OP_MATMUL_ADD || f->add;
    decode_product_any p = {.mode = s->op == OP_MATMUL_GLU ? DECODE_GLU
                                    : adds                 ? DECODE_RESIDUAL
                                                           : DECODE_STORE};
    int32_t n_all = 0;
    for (int32_t n = -1; n <= f->n_joined; n++) {
        const step *of = n < 0 ? s : n < f->n_joined ? f->joined[n] : more;
        int32_t parts[STEP_MAX_OUT], n_parts = of ? decode_step_parts(of, false, parts) : 0;
        n_all += of ? of->a.matmul.n_weights : 0;
        if (n_all > DECODE_MAX_ANY)
            return false;
        for (int32_t i = 0; i < n_parts && !(p.mode == DECODE_GLU && i > 0); i++)
            p.parts[p.n_parts++] =
                gpu_product_part(m->g, of->a.matmul.weights[parts[i]], NULL, NULL);
    }
    p.made.x = (const float *)m; /* that there is one */
    p.x.k = (int32_t)((s->in[0].width + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN);
    return p.n_parts == 0 || gpu_product_has_room(m->g, &p);
}

static bool can_multiply(const matcher *m, const step *s)
{
    bool is_glu = s->op == OP_MATMUL_GLU, adds = s->op == OP_MATMUL_ADD;
    if ((s->op != OP_MATMUL && s->op != OP_MATMUL_GROUP && !is_glu && !adds) || s->row_factor > 1 ||
        !is_aligned(m->p, &s->in[0]) || (is_glu && !gpu_glu_is_fused(s->a.matmul.glu)))
        return false;
    for (int32_t i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        gpu_act act = tile_kind_act(tile_kind_of(w->type));
        if (w->n_cols != s->in[0].width || act == GPU_ACT_FLOATS || act == GPU_ACT_ROTATED ||
            (is_floats(w) ? is_glu : (is_glu || adds) && w->n_rows % TILE_ROWS != 0))
            return false;
        if (i < STEP_MAX_OUT && overlap(m->p, &s->out[i], &s->in[0]))
            return false;
    }
    if (is_glu &&
        tile_kind_of(s->a.matmul.weights[0]->type) != tile_kind_of(s->a.matmul.weights[1]->type))
        return false;
    return has_room(m, s, NULL);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* A gate that is one number, known before the product s whose result it is for. */
static bool is_share(const matcher *m, const step *s, const step *glu)
{
    if (glu->op != OP_GLU || glu->a.glu.kind != GLU_SIGMOID || glu->in[0].width != 1 ||
        glu->in[1].value != s->out[0].value || s->a.matmul.biases[0] ||
        is_floats(s->a.matmul.weights[0]) || m->forms[glu - m->p->steps].is_layers)
        return false;
    const step *made = maker_of(m, glu, glu->in[0].value);
    return made && made < s && !is_written(m, made, s, &glu->in[0]);
}

/* A product whose result is added to another value later on adds it at once, if nobody looks at that
 * value meanwhile but others that add to it. */
static void match_add(matcher *m, const step *s)
{
    step_form *f = &m->forms[s - m->p->steps];
    const step *add = s->op == OP_MATMUL ? only_reader(m, s) : NULL;
    const weight *w = s->a.matmul.weights[0];
    const step *share = add && is_share(m, s, add) ? add : NULL, *made = share ? share : s;
    add = share ? only_reader(m, share) : add;
    if (!add || add->op != OP_ADD || add->in[0].value != made->out[0].value ||
        m->forms[add - m->p->steps].is_layers ||
        (s->a.matmul.biases[0] && add->a.add.scale != 1.0f) ||
        (!is_floats(w) && w->n_rows % TILE_ROWS != 0))
        return;
    for (const step *at = s; at < add; at++) {
        bool adds = at->op == OP_ADD && at->out[0].value == add->out[0].value &&
                    !overlap(m->p, &at->in[0], &add->out[0]);
        if (!adds && touches(m, at, &add->out[0]))
            return;
    }
    f->add = add;
    f->share = share;
    if (has_room(m, s, NULL)) {
        m->forms[add - m->p->steps].use = USE_NOTHING;
        if (share)
            m->forms[share - m->p->steps].use = USE_NOTHING;
    } else {
        f->add = f->share = NULL;
    }
}

/* A norm, and its result added to something that stays where it is; or something added to it. */
static void match_join(matcher *m, const step *s, const step *end)
{
    const step *add = s + 1;
    if (s->op != OP_RMS_NORM || add >= end || add->op != OP_ADD || s->row_factor > 1 ||
        s->a.norm.group != s->in[0].width || s->in[0].width > DECODE_JOIN_WIDTH ||
        m->forms[add - m->p->steps].is_layers || !is_aligned(m->p, &s->in[0]) ||
        !is_aligned(m->p, &add->out[0]) || overlap(m->p, &s->in[0], &add->out[0]))
        return;
    int32_t normed = s->out[0].value;
    bool is_added = add->in[0].value == normed && only_reader(m, s) == add,
         is_first = add->out[0].value == normed && add->in[0].value != normed &&
                    is_aligned(m->p, &add->in[0]) && !overlap(m->p, &add->in[0], &add->out[0]);
    if (!is_added && !is_first)
        return;
    m->forms[s - m->p->steps].use = USE_JOIN;
    m->forms[add - m->p->steps].use = USE_NOTHING;
}

/* ---- What is in front of a product ----------------------------------------------------------- */

/* Whether blocks can compute the norm; those of rows of floats have one for the whole vector. */
static bool can_norm(const matcher *m, const step *s, bool is_of_floats)
{
    int64_t group = s->a.norm.group, width = s->in[0].width;
    bool is_whole = group == width, is_rms = s->op == OP_RMS_NORM;
    bool is_small = group == 16 || group == 32 || group == 64 || group == DECODE_CHUNK;
    if ((!is_rms && s->op != OP_LAYER_NORM) || s->row_factor > 1 || !is_aligned(m->p, &s->in[0]) ||
        s->sparsity)
        return false;
    if (is_of_floats)
        return is_rms && is_whole;
    return width <= 128 * DECODE_CHUNK &&
           (is_whole || (is_rms && (is_small || group % DECODE_CHUNK == 0)));
}

static bool can_gate(const matcher *m, const step *s)
{
    bool has_up = s->in[1].value >= 0;
    return s->op == OP_GLU && s->row_factor <= 1 && is_aligned(m->p, &s->in[has_up]) &&
           s->in[has_up].width == s->out[0].width &&
           (s->in[0].width == s->out[0].width ? is_aligned(m->p, &s->in[0])
                                              : s->out[0].width / s->in[0].width % 4 == 0);
}

static bool can_pick(const matcher *m, const step *s)
{
    return s->op == OP_PICK && s->row_factor <= 1 && s->a.pick.n % 4 == 0 &&
           s->a.pick.stride % 4 == 0 && s->a.pick.offset % 4 == 0 && is_aligned(m->p, &s->in[0]);
}

/* Whether `s` may compute again what `made` did: what that read is still there. */
static bool is_still_there(const matcher *m, const step *made, const step *s)
{
    for (int k = 0; k < STEP_MAX_IN; k++)
        if (made->in[k].value >= 0 && is_written(m, made, s, &made->in[k]))
            return false;
    return !m->forms[made - m->p->steps].is_layers && !is_written(m, made, s, &made->out[0]);
}

/* The steps in front of `s` that it may take along. */
static void match_input(matcher *m, const step *s, bool is_of_floats)
{
    step_form *f = &m->forms[s - m->p->steps];
    const step *first = maker_of(m, s, s->in[0].value);
    if (!first || first->out[0].value != s->in[0].value || !is_still_there(m, first, s))
        return;
    if (can_norm(m, first, is_of_floats)) {
        f->norm = first;
        const step *glu = maker_of(m, first, first->in[0].value);
        if (glu && can_gate(m, glu) && glu->out[0].value == first->in[0].value &&
            is_still_there(m, glu, s))
            f->glu = glu;
    } else if (can_gate(m, first)) {
        f->glu = first;
        const step *norm = maker_of(m, first, first->in[1].value);
        f->norms_first = norm && can_norm(m, norm, is_of_floats) && !norm->a.norm.bias &&
                         norm->op == OP_RMS_NORM && first->a.glu.kind != GLU_CLAMPED &&
                         norm->out[0].value == first->in[1].value &&
                         first->in[0].value != first->in[1].value && is_still_there(m, norm, s);
        f->norm = f->norms_first ? norm : NULL;
    }
    const step *pick = f->glu ? maker_of(m, f->glu, f->glu->in[0].value) : NULL;
    if (pick && f->glu->in[1].value >= 0 && f->glu->in[0].width == f->glu->out[0].width &&
        can_pick(m, pick) && is_still_there(m, pick, s))
        f->pick = pick;
}

/* Whether the form takes the step along. */
static bool takes(const step_form *f, const step *s)
{
    return f->norm == s || f->glu == s || f->pick == s;
}

/* Whether all who have the step's result as an operand take it along, or are taken along with it. */
static bool is_taken_by_all(const matcher *m, const step *s)
{
    if (s->out[0].root != s->out[0].value || is_given_out(m, s->out[0].value))
        return false;
    for (int32_t i = (int32_t)(s - m->p->steps) + 1; i < m->p->n_steps; i++) {
        const step *at = &m->p->steps[i];
        if (!step_reads(at, s->out[0].root) && !step_writes(at, s->out[0].root))
            continue;
        bool is_inside = false; /* a norm or a gate between s and the product */
        for (int32_t n = i + 1; n < m->p->n_steps && !is_inside; n++)
            is_inside = takes(&m->forms[n], s) && takes(&m->forms[n], at);
        const step *with = m->forms[i].with; /* who launches it */
        if (is_inside ? !is_taken_by_all(m, at)
                      : !takes(with ? &m->forms[with - m->p->steps] : &m->forms[i], s))
            return false;
    }
    return true;
}

/* A step is launched after all: whoever took it along reads its result. */
static void leave(matcher *m, const step *s)
{
    for (int32_t i = 0; i < m->p->n_steps; i++) {
        step_form *f = &m->forms[i];
        if (!takes(f, s))
            continue;
        bool is_nearest = f->norms_first || !f->norm ? f->glu == s : f->norm == s;
        if (is_nearest)
            f->norm = f->glu = f->pick = NULL;
        if (f->norm == s)
            f->norm = NULL;
        if (f->glu == s)
            f->glu = f->pick = NULL;
        if (f->pick == s)
            f->pick = NULL;
        f->norms_first &= f->norm && f->glu;
    }
}

/* Steps that all their readers take along are not launched, the others are. */
static void settle_inputs(matcher *m)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < m->p->n_steps; i++) {
            bool is_taken = false;
            for (int32_t n = i + 1; n < m->p->n_steps && !is_taken; n++)
                is_taken = takes(&m->forms[n], &m->p->steps[i]);
            if (is_taken && !is_taken_by_all(m, &m->p->steps[i])) {
                leave(m, &m->p->steps[i]);
                changed = true;
            }
        }
    }
    for (int32_t n = 0; n < m->p->n_steps; n++)
        for (int32_t i = 0; i < n; i++)
            if (takes(&m->forms[n], &m->p->steps[i]))
                m->forms[i].use = USE_NOTHING;
}

/* ---- Products that share a launch ------------------------------------------------------------ */

static bool only_stores(const matcher *m, const step *s)
{
    const step_form *f = &m->forms[s - m->p->steps];
    return f->use == USE_PRODUCT && !f->add && (s->op == OP_MATMUL || s->op == OP_MATMUL_GROUP);
}

/* Whether `later` may be computed along with s: nobody between them looks at its results' places. */
static bool can_join(const matcher *m, const step *s, const step *later)
{
    const step_form *a = &m->forms[s - m->p->steps], *b = &m->forms[later - m->p->steps];
    if (!only_stores(m, later) || later->in[0].value != s->in[0].value || a->norm != b->norm ||
        a->glu != b->glu || a->pick != b->pick || is_written(m, s - 1, later, &s->in[0]) ||
        has_floats(s) != has_floats(later) || later->is_output != s->is_output)
        return false;
    for (int32_t i = 0; i < later->a.matmul.n_weights; i++)
        for (const step *at = s; at < later; at++)
            if (will_touch(m, at, &later->out[i]))
                return false;
    return has_room(m, s, later);
}

static void join_products(matcher *m, const step *s, const step *end)
{
    enum { AHEAD = 8 };
    step_form *f = &m->forms[s - m->p->steps];
    for (const step *at = s + 1; at < end && at <= s + AHEAD && f->n_joined < STEP_MAX_JOINED; at++)
        if (only_stores(m, s) && can_join(m, s, at)) {
            f->joined[f->n_joined++] = at;
            m->forms[at - m->p->steps].use = USE_NOTHING;
        }
}

/* Whether nobody but `reader` has the value as an operand, or a part of it. */
static bool is_for_one(const matcher *m, const operand *o, const step *reader)
{
    if (o->root != o->value || is_given_out(m, o->value))
        return false;
    for (int32_t i = 0; i < m->p->n_steps; i++) {
        const step *s = &m->p->steps[i];
        if (s != reader && step_reads(s, o->root))
            return false;
    }
    return true;
}

/* A convolution of what a product makes, row by row, is done where rows are stored. */
static void match_conv(matcher *m, const step *s)
{
    step_form *f = &m->forms[s - m->p->steps];
    for (int32_t n = -1; n < f->n_joined && only_stores(m, s) && !f->conv; n++) {
        const step *of = n < 0 ? s : f->joined[n];
        int32_t parts[STEP_MAX_OUT], n_parts = decode_step_parts(of, false, parts);
        for (int32_t i = 0; i < n_parts && !f->conv; i++) {
            const operand *out = &of->out[parts[i]];
            const step *conv = of + 1, *end = m->p->steps + m->p->n_steps;
            while (conv < end && !(conv->op == OP_CONV && conv->in[0].value == out->value))
                conv++;
            if (conv == end || m->forms[conv - m->p->steps].is_layers || conv->a.conv.n_taps < 2 ||
                !is_for_one(m, out, conv))
                continue;
            bool is_free = true; /* and nobody changes what is convolved, as adapters do */
            for (const step *at = s; at < conv; at++)
                is_free &= !will_touch(m, at, &conv->out[0]) && (at == of || !writes(m, at, out));
            if (is_free) {
                f->conv = conv;
                m->forms[conv - m->p->steps].use = USE_NOTHING;
            }
        }
    }
}

/* Recurrences whose rows fit a block. */
static void match_state(matcher *m, const step *s)
{
    int32_t n_rows = s->op == OP_SCAN    ? s->a.scan.n_state
                     : s->op == OP_DELTA ? s->a.delta.k_dim
                                         : INT32_MAX;
    if (n_rows <= DECODE_STATE_ROWS && m->forms[s - m->p->steps].use == USE_PLAIN)
        m->forms[s - m->p->steps].use = USE_STATE;
}

/* Whether one vector does for all matrices of a launch. */
static bool has_one_form(const matcher *m, const step *s)
{
    const step_form *f = &m->forms[s - m->p->steps];
    gpu_act act = tile_kind_act(tile_kind_of(s->a.matmul.weights[0]->type));
    for (int32_t n = -1; n < f->n_joined; n++) {
        const step *of = n < 0 ? s : f->joined[n];
        for (int32_t i = 0; i < of->a.matmul.n_weights; i++)
            if (tile_kind_act(tile_kind_of(of->a.matmul.weights[i]->type)) != act)
                return false;
    }
    return act != GPU_ACT_F32;
}

static int32_t n_launches_with(const matcher *m, const step *taken)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->p->n_steps; i++)
        n += takes(&m->forms[i], taken) && m->forms[i].use != USE_NOTHING;
    return n;
}

/* A product into the residual, and the next one, which reads the norm of that and is alone in it:
 * what it reads is left as planes. */
static void match_next(matcher *m, const step *s, const step *end)
{
    step_form *f = &m->forms[s - m->p->steps];
    const operand *out = f->add ? &f->add->out[0] : &s->out[0];
    if ((s->op != OP_MATMUL_ADD && !f->add) || has_floats(s))
        return;
    for (const step *at = s + 1; at < end && !m->forms[at - m->p->steps].is_layers; at++) {
        step_form *to = &m->forms[at - m->p->steps];
        if (to->use == USE_PRODUCT && to->norm && !to->glu && to->norm->in[0].value == out->value) {
            bool is_whole = to->norm->op == OP_RMS_NORM && to->norm->a.norm.group == out->width;
            if (is_whole && has_one_form(m, at) && n_launches_with(m, to->norm) == 1) {
                f->next = at;
                to->before = s;
            }
            return;
        }
        if (writes(m, at, out) || to->next)
            return;
    }
}

/* Gate and up whose result the product behind them reads, and nobody else. */
static void match_planes(matcher *m, const step *s)
{
    const step *reader = s->op == OP_MATMUL_GLU ? only_reader(m, s) : NULL;
    if (reader != s + 1 || (reader->op != OP_MATMUL && reader->op != OP_MATMUL_ADD) ||
        reader->in[0].value != s->out[0].value || has_floats(reader))
        return;
    step_form *f = &m->forms[reader - m->p->steps];
    if (f->use != USE_PRODUCT || f->n_joined > 0)
        return;
    m->forms[s - m->p->steps].reader = reader;
    f->maker = s;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* The steps in front of one that turns heads or writes them to the cache. */
typedef struct head_steps {
    const step *taken[8];
    int32_t n;
} head_steps;

static bool is_head_norm(const step *s, int64_t dim)
{
    return s && s->op == OP_RMS_NORM && s->row_factor <= 1 && s->a.norm.group == dim &&
           dim <= DECODE_HEAD_DIM && !s->sparsity;
}

/* A norm of heads that makes the value, and for q the columns that it picks. */
static void match_stream(const matcher *m, const step *s, int32_t value, int64_t dim, int which,
                         step_form *f, head_steps *taken)
{
    const step *at = maker_of(m, s, value);
    if (is_head_norm(at, dim) && at->out[0].value == value) {
        f->heads[which].norm = taken->taken[taken->n++] = at;
        value = at->in[0].value;
        at = maker_of(m, at, value);
    }
    if (which == 0 && at && at->op == OP_PICK && at->a.pick.n == dim && at->out[0].value == value)
        f->heads[which].pick = taken->taken[taken->n++] = at;
}

/* Whether what the steps read is still there at s, and nobody else reads what they do not write. */
static bool can_take(const matcher *m, const step *s, const head_steps *t, const operand *out)
{
    for (int32_t i = 0; i < t->n; i++) {
        const step *from = t->taken[i];
        int32_t root = from->out[0].root;
        if (m->forms[from - m->p->steps].is_layers ||
            m->forms[from - m->p->steps].use != USE_PLAIN ||
            (out && from->in[0].root != out->root && overlap(m->p, &from->in[0], out)))
            return false;
        for (const step *at = from + 1; at < s; at++) {
            bool is_taken = false;
            for (int32_t n = 0; n < t->n; n++)
                is_taken |= t->taken[n] == at;
            if (!is_taken && (writes(m, at, &from->in[0]) || step_reads(at, root)))
                return false;
        }
        for (const step *at = s + 1; at < m->p->steps + m->p->n_steps; at++)
            if (step_reads(at, root) && !(out && root == out->root))
                return false;
    }
    return t->n > 0;
}

static void take(matcher *m, const step *s, const step_form *f, const head_steps *taken)
{
    m->forms[s - m->p->steps] = *f;
    for (int32_t i = 0; i < taken->n; i++)
        m->forms[taken->taken[i] - m->p->steps].use = USE_NOTHING;
}

/* The latent's norm, the rotations of q and of the key, and both into the cache. */
static void match_latent(matcher *m, const step *s)
{
    step_form f = {.use = USE_HEADS};
    const step *norm = maker_of(m, s, s->in[0].value), *key = maker_of(m, s, s->in[1].value);
    if (!s->kv.v_in_k || !is_head_norm(norm, s->kv.v_dim) || !key || key->op != OP_ROPE ||
        key->a.rope.n_heads != 1 || key->a.rope.n_dims != s->in[1].width)
        return;
    const step *q = key - 1;
    head_steps taken = {.taken = {norm, key}, .n = 2};
    if (q->op == OP_ROPE && q->in[0].value == key->in[0].value &&
        q->a.rope.n_dims == key->a.rope.n_dims && q->a.rope.is_neox == key->a.rope.is_neox)
        f.heads[0].rope = q;
    f.heads[1].norm = norm;
    f.heads[2].rope = key;
    for (const step *at = key; f.heads[0].rope && at < s; at++)
        if (at != key && at != norm && touches(m, at, &q->out[0]))
            return;
    if (!can_take(m, s, &taken, NULL))
        return;
    take(m, s, &f, &taken);
    if (f.heads[0].rope)
        m->forms[q - m->p->steps].use = USE_NOTHING;
}

/* Norms of q, k and v and the rotation, in one step. */
static void match_heads(matcher *m, const step *s)
{
    step_form f = {.use = USE_HEADS};
    head_steps taken = {.n = 0};
    bool has_kv = s->op == OP_ROPE_KV;
    if (!has_kv && s->op != OP_ROPE)
        return;
    int64_t dim = has_kv ? s->kv.head_dim : s->a.rope.head_dim;
    if (s->out[0].width != s->a.rope.n_heads * dim || (has_kv && s->kv.v_in_k))
        return;
    match_stream(m, s, s->out[0].value, dim, 0, &f, &taken);
    if (has_kv) {
        match_stream(m, s, s->out[1].value, dim, 1, &f, &taken);
        match_stream(m, s, s->in[1].value, dim, 2, &f, &taken);
        for (const step *at = s + 1; at < m->p->steps + m->p->n_steps; at++)
            if (step_reads(at, s->out[1].root) || s->out[1].root == s->in[1].root)
                return;
    }
    if (!can_take(m, s, &taken, &s->out[0]))
        return;
    take(m, s, &f, &taken);
}

/* ---- Experts --------------------------------------------------------------------------------- */

static bool is_tiled(const weight *w)
{
    return tile_kind_of(w->type) != TILE_F32 && w->n_rows % TILE_ROWS == 0;
}

static void match_experts(matcher *m, const step *s, const step *end)
{
    const step *down = s + 1;
    if (s->op != OP_MOE_GLU || down >= end || down->op != OP_MOE_DOWN || !s->a.moe.gate ||
        s->a.moe.weighs_inputs || only_reader(m, s) != down ||
        down->in[1].value != s->in[1].value || !is_tiled(s->a.moe.gate) || !is_tiled(s->a.moe.up) ||
        !is_tiled(down->a.moe.down) ||
        tile_kind_of(s->a.moe.gate->type) != tile_kind_of(s->a.moe.up->type) ||
        !is_aligned(m->p, &s->in[0]) || !is_aligned(m->p, &down->out[0]) ||
        s->a.moe.gate->n_cols != s->in[0].width)
        return;
    const step *route = maker_of(m, s, s->in[1].value);
    layer_steps l = {.route = route, .expert_glu = s, .expert_down = down};
    if (!route || route->op != OP_ROUTE || !gpu_experts_fit(m->g, &l))
        return;
    step_form *f = &m->forms[s - m->p->steps];
    f->use = m->forms[down - m->p->steps].use = USE_EXPERTS;
    f->route = route;
    const route_rule *rule = &route->a.moe.rule;
    if (rule->n_groups > 1 || rule->scores == ROUTE_MIXER ||
        m->forms[route - m->p->steps].is_layers || is_written(m, route, down, &route->in[0]))
        return;
    for (const step *at = route + 1; at < m->p->steps + m->p->n_steps; at++)
        if (at != s && at != down && step_reads(at, route->out[0].root))
            return;
    f->routes = true;
    m->forms[route - m->p->steps].use = USE_NOTHING;
}

/* Whether a matrix is like those of the experts. */
static bool is_alike(const weight *a, const weight *b)
{
    return tile_kind_of(a->type) == tile_kind_of(b->type) && a->n_rows == b->n_rows &&
           a->n_cols == b->n_cols;
}

/* Gate, up and down of a shared expert, as the experts of s and the MOE_DOWN behind it have them. */
static bool is_shared_expert(const matcher *m, const step *s, const step *glu, const step *down)
{
    const step *adds = m->forms[down - m->p->steps].add;
    const operand *to = adds ? &adds->out[0] : &down->out[0];
    return m->forms[glu - m->p->steps].use == USE_PRODUCT && glu->op == OP_MATMUL_GLU &&
           m->forms[down - m->p->steps].use == USE_PRODUCT &&
           (adds ? adds->a.add.scale == 1 : down->op == OP_MATMUL_ADD) &&
           glu->in[0].value == s->in[0].value && only_reader(m, glu) == down &&
           down->in[0].value == glu->out[0].value && to->value == s[1].out[0].value &&
           is_alike(glu->a.matmul.weights[0], s->a.moe.gate) &&
           is_alike(glu->a.matmul.weights[1], s->a.moe.up) &&
           is_alike(down->a.matmul.weights[0], s[1].a.moe.down) && glu->a.matmul.scale == 1 &&
           down->a.matmul.scale == 1 && s[1].a.moe.scale == 1 &&
           glu->a.matmul.glu == s->a.moe.glu && !glu->a.matmul.biases[0] &&
           !glu->a.matmul.biases[1] && !down->a.matmul.biases[0] && !s->a.moe.gate_bias &&
           !s[1].a.moe.down_bias;
}

/* The product of one row that says how much of the shared expert is added: it can be joined to the
 * router's, since its result has a place of its own. */
static bool can_join_router(const matcher *m, const step *router, const step *by, const step *share)
{
    const step_form *f = &m->forms[router - m->p->steps];
    return by->op == OP_MATMUL && only_stores(m, router) && only_stores(m, by) &&
           has_floats(router) && has_floats(by) && router->op == OP_MATMUL &&
           by->a.matmul.weights[0]->n_rows == 1 && router->in[0].value == by->in[0].value &&
           only_reader(m, by) == share && share->in[0].value == by->out[0].value &&
           f->n_joined == 0;
}

/*
 * A shared expert right behind the experts, with what is added of it, and nothing else between them:
 * it is one more of those that are chosen.
 */
static void match_shared(matcher *m, const step *s, const step *end)
{
    step_form *f = &m->forms[s - m->p->steps];
    const step *at = s + 2, *router = maker_of(m, f->route, f->route->in[0].value), *by = NULL;
    if (at < end && at->op == OP_MATMUL)
        by = at++;
    if (end - at < 2 || !router || !is_shared_expert(m, s, at, at + 1))
        return;
    const step *glu = at, *down = at + 1;
    const step_form *d = &m->forms[down - m->p->steps];
    const step *last = d->add ? d->add : down;
    if (last - down != (d->add != NULL) + (d->share != NULL) || !d->share != !by ||
        (by &&
         (router->in[0].value != s->in[0].value || !can_join_router(m, router, by, d->share))))
        return;
    layer_steps l = {.route = f->route,
                     .expert_glu = s,
                     .expert_down = s + 1,
                     .shared_glu = glu,
                     .shared_down = down};
    if (!gpu_experts_fit(m->g, &l))
        return;
    f->shared_glu = glu;
    f->shared_down = down;
    f->shared_by = by;
    for (const step *of = by ? by : glu; of <= down; of++) {
        m->forms[of - m->p->steps].use = USE_NOTHING;
        m->forms[of - m->p->steps].with = of == by ? router : s;
    }
    if (by) {
        step_form *r = &m->forms[router - m->p->steps];
        r->joined[r->n_joined++] = by;
    }
}

/* ---- All ------------------------------------------------------------------------------------- */

void decode_steps_match(const plan *p, const gpu *g, step_form *forms)
{
    matcher m = {.p = p, .g = g, .forms = forms};
    const step *end = p->steps + p->n_steps;
    for (const step *s = p->steps; s < end; s++)
        if (!forms[s - p->steps].is_layers && can_multiply(&m, s))
            forms[s - p->steps].use = USE_PRODUCT;
    for (const step *s = p->steps; s < end; s++) {
        const step_form *f = &forms[s - p->steps];
        if (f->use == USE_PRODUCT)
            match_add(&m, s);
        else if (!f->is_layers && f->use == USE_PLAIN) {
            match_join(&m, s, end);
            match_experts(&m, s, end);
            match_heads(&m, s);
            if (s->op == OP_KV_WRITE)
                match_latent(&m, s);
        }
    }
    for (const step *s = p->steps; s < end; s++)
        if (forms[s - p->steps].use == USE_EXPERTS && s->op == OP_MOE_GLU)
            match_shared(&m, s, end);
    for (const step *s = p->steps; s < end; s++)
        if (forms[s - p->steps].use == USE_PRODUCT)
            match_input(&m, s, has_floats(s));
        else if (forms[s - p->steps].use == USE_EXPERTS && s->op == OP_MOE_GLU)
            match_input(&m, s, false);
    settle_inputs(&m);
    for (const step *s = p->steps; s < end; s++) {
        if (forms[s - p->steps].use != USE_PRODUCT)
            continue;
        join_products(&m, s, end);
        match_planes(&m, s);
    }
    for (const step *s = p->steps; s < end; s++)
        if (forms[s - p->steps].use == USE_PRODUCT) {
            match_next(&m, s, end);
            match_conv(&m, s);
        } else if (!forms[s - p->steps].is_layers) {
            match_state(&m, s);
        }
}
