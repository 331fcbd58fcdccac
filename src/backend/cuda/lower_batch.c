/* The list of a batch: which launcher each step has, what it takes and what it leaves. */
#include "base/mem.h"
#include "ops/op_info.h"
#include "backend/cuda/handover.h"

/* While a list is made. */
typedef struct lowering {
    const gpu *g;
    bool is_exact;
    const batch_shape *shape;
    const step *end; /* behind the plan's last step */
} lowering;

static int64_t n_rows_of(const step *s, int64_t n_tokens, int64_t n_outputs)
{
    int64_t n = s->is_output ? n_outputs : n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

static lace_status launch_general(const gpu_job *j, const device_step *d, lace_error *err)
{
    return gpu_launch_general(j, d->first, err);
}

device_step lower_alone(const gpu *g, bool is_exact, const step *s, int32_t n_tokens,
                        int32_t n_outputs)
{
    int64_t n = n_rows_of(s, n_tokens, n_outputs);
    device_step d = {.name = op_name(s->op),
                     .layer = s->layer,
                     .first = s,
                     .n_steps = 1,
                     .launch = launch_general};
    if (step_is_matmul(s) && gpu_product_is_batched(s, n))
        d.launch = gpu_product_is_small(g, s, n) ? gpu_launch_small_batch : gpu_launch_products;
    if ((s->op == OP_MOE_GLU || s->op == OP_MOE_DOWN) &&
        gpu_experts_are_batched(s, s->is_output ? n_outputs : n_tokens))
        d.launch = gpu_launch_experts;
    if (s->op == OP_MATMUL_HEADS && gpu_heads_are_batched(s, n))
        d.launch = gpu_launch_heads;
    if (s->op == OP_ATTEND && gpu_attend_is_batched(g, is_exact, s))
        d.launch = gpu_launch_attention;
    return d;
}

/* ---- What a step leaves ---------------------------------------------------------------------- */

static int64_t rows(const lowering *w, const step *s)
{
    return n_rows_of(s, w->shape->n_tokens, w->shape->n_outputs);
}

/* The step behind s, if it reads the first result of s, row by row; NULL: it does not. */
static const step *reader_of(const lowering *w, const step *s)
{
    const step *next = s + 1;
    bool reads = next < w->end && next->in[0].value == s->out[0].value &&
                 next->is_output == s->is_output && step_is_matmul(next);
    return reads ? next : NULL;
}

/* Whether the step behind the product s adds up its parts. */
static bool leaves_parts(const lowering *w, const step *s)
{
    const step *next = s + 1;
    if (next >= w->end || next->is_output != s->is_output)
        return false;
    if (s->op == OP_MATMUL_ADD && s->a.matmul.n_weights == 1)
        return gpu_norm_is_batched(next, rows(w, next)) && next->in[0].value == s->out[0].value;
    return s->op == OP_MATMUL_GROUP && s->a.matmul.n_weights == 3 &&
           gpu_rope_is_batched(next, rows(w, next)) && next->out[0].value == s->out[0].value &&
           next->out[1].value == s->out[1].value && next->in[1].value == s->out[2].value;
}

/* A norm leaves what the product behind it reads: slabs, or atoms in the order of its first
 * weight. */
static void lower_norm(const lowering *w, device_step *d)
{
    const step *reader = reader_of(w, d->first);
    d->launch = gpu_launch_norm;
    if (!reader || reader->op == OP_MATMUL_ADD)
        return;
    tile_kind kind = tile_kind_of(reader->a.matmul.weights[0]->type);
    if (kind == TILE_F32 || tile_is_rotated(kind))
        return;
    if (gpu_product_is_small(w->g, reader, rows(w, reader))) {
        d->leaves = ROWS_SLABS;
        return;
    }
    if (gpu_product_is_bytes(w->g, reader, 0, rows(w, reader))) {
        d->leaves = ROWS_BYTES;
        return;
    }
    int64_t cols = tile_cols(kind);
    d->leaves = kind == TILE_F16 || kind == TILE_BF16 ? ROWS_ATOMS_HALF : ROWS_ATOMS_INT;
    d->n_k64 = (int32_t)((d->first->in[0].width + cols - 1) / cols * (cols / 64));
}

/* Whether the step behind it is a product of a small batch that reads its result. */
static bool is_read_as_slabs(const lowering *w, const step *s)
{
    const step *reader = reader_of(w, s);
    return reader && gpu_product_is_small(w->g, reader, rows(w, reader));
}

/* Whether MOE_DOWN is behind s, with the same choices. */
static bool leaves_slots(const lowering *w, const step *s)
{
    const step *next = s + 1;
    return s->op == OP_MOE_GLU && next < w->end && next->op == OP_MOE_DOWN &&
           next->in[1].value == s->in[1].value && next->is_output == s->is_output &&
           next->a.moe.n_experts == s->a.moe.n_experts && next->a.moe.n_used == s->a.moe.n_used &&
           gpu_experts_are_batched(next, rows(w, next));
}

/* ---- All steps ------------------------------------------------------------------------------- */

static device_step lower_step(const lowering *w, const step *s, row_form left)
{
    device_step d = lower_alone(w->g, w->is_exact, s, w->shape->n_tokens, w->shape->n_outputs);
    int64_t n = rows(w, s);
    bool is_product = d.launch == gpu_launch_products || d.launch == gpu_launch_small_batch;
    if (gpu_norm_is_batched(s, n))
        lower_norm(w, &d);
    else if (gpu_rope_is_batched(s, n))
        d.launch = gpu_launch_rope;
    else if (is_product && leaves_parts(w, s))
        d.leaves = ROWS_PARTS;
    else if (d.launch == gpu_launch_small_batch && s->op == OP_MATMUL_GLU && is_read_as_slabs(w, s))
        d.leaves = ROWS_SLABS;
    else if (d.launch == gpu_launch_attention && is_read_as_slabs(w, s) &&
             gpu_attend_leaves_slabs(w->g, s, w->shape))
        d.leaves = ROWS_SLABS;
    else if (d.launch == gpu_launch_experts && leaves_slots(w, s))
        d.leaves = ROWS_SLOTS;
    if (d.launch != launch_general)
        d.takes = left;
    return d;
}

lace_status lower_batch(const plan *p, const gpu *g, bool is_exact, const batch_shape *of,
                        device_list *out, lace_error *err)
{
    lowering w = {.g = g, .is_exact = is_exact, .shape = of, .end = p->steps + p->n_steps};
    row_form left = ROWS_PLAIN;
    out->n_steps = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        device_step *d = device_list_add(out);
        if (!d)
            return error_nomem(err, "a plan for a GPU");
        latent_form f;
        if (left == ROWS_PLAIN && plan_find_latents(p, &p->steps[i], p->n_steps - i, &f) &&
            gpu_latents_are_batched(g, is_exact, &p->steps[i], &f, of->n_tokens)) {
            *d = (device_step){.name = "latents",
                               .layer = p->steps[i].layer,
                               .first = &p->steps[i],
                               .n_steps = 3,
                               .launch = gpu_launch_latents,
                               .a.latents = f};
            i += 2;
            continue;
        }
        *d = lower_step(&w, &p->steps[i], left);
        left = d->leaves;
    }
    return LACE_OK;
}
