/*
 * The plain kernels alone, as a backend. Nothing is packed, fused, quantized or shared among
 * workers: a plan's steps are run one after the other, each by the function that defines it. It is
 * what other backends are compared with, and how little a backend needs.
 */
#include "backend/ref/ref_device.h"

#include "backend/ref/bytes_ref.h"
#include "backend/ref/late_device.h"
#include "backend/ref/ref.h"
#include "base/clock.h"
#include "base/file_guard.h"
#include "base/mem.h"
#include "tensor/sparse.h"

typedef struct ref_device {
    device base;
    bool fast_prompts;
} ref_device;

typedef struct ref_program {
    program base;
    plan *p;
    weight *bytes; /* matrices of layers whose products are in int8; NULL: none */
    uint64_t scratch_bytes;
    uint8_t *memory;  /* values, then scratch */
    bool has_room;    /* that is somebody else's */
    step_cost *costs; /* [n_steps] of the last run */
} ref_program;

static int count(void)
{
    return 2;
}

static lace_status open(int index, const device_options *o, device **out, lace_error *err)
{
    *out = NULL;
    if (index == 1)
        return late_device_open(out, err);
    if (index != 0)
        return error_set(err, LACE_E_DEVICE,
                         "there are two reference devices, 0 and one that works late, 1; not %d",
                         index);
    ref_device *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, "a device");
    r->base.backend = &backend_ref;
    r->base.is_host = r->base.collects = true;
    r->fast_prompts = o && o->fast_prompts;
    *out = &r->base;
    return LACE_OK;
}

static void close(device *d)
{
    mem_free(d);
}

static lace_status describe(device *d, device_info *out, lace_error *err)
{
    *out = (device_info){.name = "reference",
                         .usual_batch = 64,
                         .has_fast_prompts = d->backend == &backend_ref,
                         .has_all_caches = true};
    return LACE_OK;
}

/* Weights stay where they are, in the file's own blocks. */
static lace_status place(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    *out = (weight){.type = rows->type,
                    .n_rows = rows->n_rows,
                    .n_cols = rows->n_cols,
                    .n_bytes = rows->n_bytes,
                    .data = rows->blocks,
                    .offset = WEIGHT_IN_PLACE,
                    .impl = dtype_is_sparse(rows->type) ? &matmul_sparse_ref : &matmul_rows_ref};
    d->weight_bytes += rows->is_shared ? 0 : rows->n_bytes;
    return LACE_OK;
}

/* Rows are used where they are. */
static lace_status place_streamed(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    uint64_t before = d->weight_bytes;
    TRY(place(d, rows, out, err));
    d->weight_bytes = before;
    out->streamed = rows;
    return LACE_OK;
}

static void free_program(program *p)
{
    ref_program *rp = (ref_program *)p;
    if (!rp->has_room)
        mem_unmap(rp->memory, p->n_bytes);
    mem_free(rp->costs);
    mem_free(rp->bytes);
    plan_free(rp->p);
    mem_free(rp);
}

/* Products of layers in int8, as a GPU computes those of prompts. */
static lace_status use_bytes(ref_program *rp, lace_error *err)
{
    int n = 0;
    for (int32_t i = 0; i < rp->p->n_steps; i++)
        n += step_is_matmul(&rp->p->steps[i]) ? rp->p->steps[i].a.matmul.n_weights : 0;
    rp->bytes = mem_calloc((size_t)n + 1, sizeof *rp->bytes);
    if (!rp->bytes)
        return error_nomem(err, "a program");
    weight *next = rp->bytes;
    for (int32_t i = 0; i < rp->p->n_steps; i++) {
        step *s = &rp->p->steps[i];
        for (int k = 0; step_is_matmul(s) && s->layer >= 0 && k < s->a.matmul.n_weights; k++) {
            if (!bytes_ref_has(s->a.matmul.weights[k]->type))
                continue;
            *next = *s->a.matmul.weights[k];
            next->impl = &matmul_bytes_ref;
            s->a.matmul.weights[k] = next++;
        }
    }
    return LACE_OK;
}

static lace_status compile(device *d, const plan *p, const program_options *o, program **out,
                           lace_error *err)
{
    *out = NULL;
    ref_program *rp = mem_calloc(1, sizeof *rp);
    if (!rp)
        return error_nomem(err, "a program");
    rp->base.backend = d->backend;
    lace_status status = plan_copy(p, &rp->p, err);
    if (status != LACE_OK || !(rp->costs = mem_calloc((size_t)p->n_steps + 1, sizeof *rp->costs))) {
        free_program(&rp->base);
        return status != LACE_OK ? status : error_nomem(err, "a program");
    }
    if (d->backend == &backend_ref && ((ref_device *)d)->fast_prompts &&
        (status = use_bytes(rp, err)) != LACE_OK) {
        free_program(&rp->base);
        return status;
    }
    plan_place(rp->p, NULL);
    for (int32_t i = 0; i < p->n_steps; i++) {
        int64_t rows = p->steps[i].is_output ? p->limits.max_outputs : p->limits.max_tokens;
        uint64_t n = step_scratch_bytes(&rp->p->steps[i], rows, p->limits.n_context);
        rp->scratch_bytes = n > rp->scratch_bytes ? n : rp->scratch_bytes;
    }
    for (int32_t i = 0; i < p->n_steps; i++)
        if (step_has_experts(&p->steps[i]))
            rp->p->steps[i].a.moe.glu_row = glu_row_ref;
    rp->base.n_bytes = rp->base.room_bytes = rp->p->value_bytes + rp->scratch_bytes;
    rp->base.lowered = rp->p;
    *out = &rp->base;
    return LACE_OK;
}

static lace_status prepare(program *p, const program_memory *m, lace_error *err)
{
    ref_program *rp = (ref_program *)p;
    rp->has_room = m->room != NULL;
    rp->memory = m->room ? m->room : mem_map(p->n_bytes);
    if (!rp->memory)
        return error_nomem(err, "the plan's values");
    plan_memory where = program_plan_memory(m, rp->memory);
    plan_locate(rp->p, &where);
    p->values = rp->memory;
    return LACE_OK;
}

static void run_steps(program *p, const batch *b, int32_t begin, int32_t end)
{
    ref_program *rp = (ref_program *)p;
    worker w = {
        .count = 1, .scratch = rp->memory + rp->p->value_bytes, .scratch_bytes = rp->scratch_bytes};
    for (int32_t i = begin; i < end; i++) {
        rp->costs[i].n_bytes = step_bytes(&rp->p->steps[i], b, true);
        uint64_t before = clock_ns();
        kernels_ref[rp->p->steps[i].op](&rp->p->steps[i], b, &w);
        rp->costs[i].ns = clock_ns() - before;
    }
}

static lace_status run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                       lace_error *err)
{
    run_steps(p, b, 0, ((ref_program *)p)->p->n_steps);
    return file_guard_check(err);
}

static const float *value_row(const ref_program *rp, int32_t value, int32_t row)
{
    operand o = plan_operand(rp->p, value);
    return (const float *)(rp->memory + rp->p->values[value].offset + (uint64_t)row * o.stride);
}

static const float *logits(const program *p, int32_t row)
{
    const ref_program *rp = (const ref_program *)p;
    return value_row(rp, rp->p->logits, row);
}

static const float *hidden(const program *p, int32_t row)
{
    const ref_program *rp = (const ref_program *)p;
    return value_row(rp, rp->p->hidden, row);
}

static int32_t n_steps(const program *p)
{
    return ((const ref_program *)p)->p->n_steps;
}

static program_step step_at(const program *p, int32_t i, const batch *b)
{
    const ref_program *rp = (const ref_program *)p;
    const step *s = &rp->p->steps[i];
    return (program_step){.name = op_name(s->op),
                          .layer = s->layer,
                          .n_bytes = rp->costs[i].n_bytes,
                          .n_products = step_products(s, b),
                          .ns = rp->costs[i].ns};
}

const backend backend_ref = {
    .name = "ref",
    .count = count,
    .open = open,
    .close = close,
    .describe = describe,
    .place = place,
    .place_streamed = place_streamed,
    .compile = compile,
    .prepare = prepare,
    .free = free_program,
    .run = run,
    .logits = logits,
    .hidden = hidden,
    .n_steps = n_steps,
    .step_at = step_at,
    .run_steps = run_steps,
};
