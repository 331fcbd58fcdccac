/*
 * A plan on a Vulkan device. Batches of a shape are one recorded list: a token is written to where the
 * list reads it, the list is run, and the logits are read.
 */
#include "backend/vulkan/vulkan_program.h"

#include <assert.h>
#include <string.h>

#include "backend/vulkan/recorder.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "state/states.h"

_Static_assert((int)RECORD_MAX_GROUPS == (int)STATES_MAX_GROUPS, "a batch has all groups' tables");

/* A vector of the model: norm weights, biases, frequencies. Each is uploaded once. */
typedef struct vector {
    const float *host;
    uint64_t address;
} vector;

/* The list of batches of a shape, and the memory of its parameters. */
typedef struct recorded {
    int32_t n_tokens, n_outputs; /* no tokens: there is none */
    vulkan_list *list;
    uint64_t params;
} recorded;

enum { N_RECORDED = 8 };

/* A value that the host reads: where it is, or copied to where the host sees it. */
typedef struct given {
    int32_t value;       /* of the plan; -1: there is none */
    uint64_t at;         /* of the copy, [rows, width]; 0: in place */
    const uint8_t *rows; /* the host's address */
    uint64_t stride;     /* bytes */
} given;

typedef struct vulkan_program {
    program base;
    vulkan *v;
    plan *p; /* fused and placed */
    program_options options;
    vulkan_queue *q;

    uint64_t memory; /* values, scratch, vectors */
    uint64_t scratch;
    vector *vectors;
    size_t n_vectors, vectors_capacity;

    uint64_t numbers_at; /* of the batch, which the host writes, */
    uint64_t numbers_on; /* and a copy that lies nearer to the device; 0: there is no need */
    int32_t *numbers;
    vulkan_batch batch; /* where in it everything is */
    given logits, hidden;

    recorded lists[N_RECORDED];
    int32_t newest;
    uint64_t *ns; /* [n_steps] of the last traced run, or NULL */
} vulkan_program;

static uint64_t aligned(uint64_t n)
{
    return round_up(n, 256);
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* The most that a step needs, by a function of recorder.h. */
static uint64_t most_bytes(const plan *p, uint64_t (*needs)(const step *s, int64_t n_rows))
{
    uint64_t most = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        int64_t rows = p->steps[i].is_output ? p->limits.max_outputs : p->limits.max_tokens;
        uint64_t n = needs(&p->steps[i], rows);
        most = n > most ? n : most;
    }
    return aligned(most);
}

/* Scratch, and behind it the places of formed rows. */
static uint64_t scratch_bytes(const plan *p)
{
    return most_bytes(p, record_scratch_bytes) + RECORD_FORMED * most_bytes(p, record_form_bytes);
}

/* Lists of [max_tokens] numbers that a batch has: six, and its positions along each axis. */
enum { TOKEN_LISTS = 6 + ROPE_MAX_AXES };

/* Floats that each token brings along (EMBED_BESIDE). */
static uint64_t beside_width(const plan *p)
{
    bool is_beside = p->steps[0].op == OP_EMBED && p->steps[0].a.embed.by == EMBED_BESIDE;
    return is_beside ? (uint64_t)p->steps[0].a.embed.table->n_cols : 0;
}

static uint64_t batch_numbers(const plan *p, const program_options *o)
{
    return (TOKEN_LISTS + beside_width(p)) * (uint64_t)p->limits.max_tokens +
           (uint64_t)p->limits.max_outputs +
           (uint64_t)o->n_groups * (uint64_t)o->n_sequences * (uint64_t)o->pages_per_sequence;
}

static uint64_t params_bytes(const plan *p)
{
    uint64_t bytes = 1024; /* for the copy of results */
    for (int32_t i = 0; i < p->n_steps; i++)
        bytes += record_params_bytes(&p->steps[i]);
    return bytes;
}

static uint64_t memory_bytes(const plan *p)
{
    return aligned(p->value_bytes) + scratch_bytes(p) + plan_vector_bytes(p, aligned(1));
}

/* ---- Compiling ------------------------------------------------------------------------------- */

lace_status vulkan_program_compile(device *d, vulkan *v, const plan *p, const program_options *o,
                                   program **out, lace_error *err)
{
    *out = NULL;
    vulkan_program *vp = mem_calloc(1, sizeof *vp);
    if (!vp)
        return error_nomem(err, "a program");
    vp->base.backend = d->backend;
    vp->v = v;
    vp->options = *o;
    lace_status status = plan_copy(p, &vp->p, err);
    for (int32_t i = 0; status == LACE_OK && i < p->n_steps; i++)
        status = record_check(&p->steps[i], err);
    if (status != LACE_OK) {
        vulkan_program_free(&vp->base);
        return status;
    }
    plan_count_reads(vp->p);
    vp->p->last_fused = GLU_COUNT - 1;
    plan_fuse(vp->p);
    plan_place(vp->p, NULL);
    vp->base.n_bytes =
        memory_bytes(vp->p) + 8 * batch_numbers(vp->p, o) + N_RECORDED * params_bytes(vp->p);
    *out = &vp->base;
    return LACE_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static const vector *find_vector(const vulkan_program *vp, const float *host)
{
    for (size_t i = 0; i < vp->n_vectors; i++)
        if (vp->vectors[i].host == host)
            return &vp->vectors[i];
    return NULL;
}

/* Upload what steps point to, from `at` on, and let them point there. */
static lace_status move_vectors(vulkan_program *vp, uint64_t at, lace_error *err)
{
    for (int32_t i = 0; i < vp->p->n_steps; i++) {
        op_vector found[OP_MAX_VECTORS];
        int count = step_vectors(&vp->p->steps[i], found);
        for (int k = 0; k < count; k++) {
            const vector *v = find_vector(vp, *found[k].at);
            if (!v) {
                uint64_t n = 4 * (uint64_t)found[k].n;
                if (!mem_grow(&vp->vectors, vp->n_vectors, &vp->vectors_capacity,
                              sizeof *vp->vectors, 64))
                    return error_nomem(err, "a plan");
                TRY(vulkan_write(vp->q, at, *found[k].at, n, err));
                vp->vectors[vp->n_vectors] = (vector){*found[k].at, at};
                v = &vp->vectors[vp->n_vectors++];
                at += aligned(n);
            }
            *found[k].at = (const float *)(uintptr_t)v->address;
        }
    }
    return LACE_OK;
}

/* Where each list of numbers of a batch is. */
static void locate_batch(vulkan_program *vp)
{
    uint64_t each = 4 * (uint64_t)vp->p->limits.max_tokens;
    uint64_t at = vp->numbers_on ? vp->numbers_on : vp->numbers_at;
    vulkan_batch *b = &vp->batch;
    uint64_t *const lists[] = {&b->tokens, &b->positions, &b->sequences,
                               &b->slots,  &b->seen,      &b->segments};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++, at += each)
        *lists[i] = at;
    b->axes = at;
    b->axis_stride = vp->p->limits.max_tokens;
    at += ROPE_MAX_AXES * each;
    b->outputs = at;
    at += 4 * (uint64_t)vp->p->limits.max_outputs;
    b->pages_per_sequence = vp->options.pages_per_sequence;
    for (int32_t g = 0; g < vp->options.n_groups; g++) {
        b->tables[g] = at;
        at += 4 * (uint64_t)vp->options.n_sequences * (uint64_t)vp->options.pages_per_sequence;
    }
    b->beside = at;
}

static lace_status locate_given(vulkan_program *vp, int32_t value, given *out, lace_error *err)
{
    *out = (given){.value = value};
    if (value < 0)
        return LACE_OK;
    const plan_value *v = &vp->p->values[value];
    const plan_limits *l = &vp->p->limits;
    uint64_t n_rows = (uint64_t)(v->is_output ? l->max_outputs : l->max_tokens);
    out->rows = vulkan_host_address(vp->v, vp->memory + v->offset);
    out->stride = plan_operand(vp->p, value).stride;
    if (out->rows)
        return LACE_OK;
    out->stride = 4 * (uint64_t)v->width;
    return vulkan_alloc(vp->v, VULKAN_READBACK, n_rows * out->stride, &out->at, (void **)&out->rows,
                        err);
}

lace_status vulkan_program_prepare(program *p, const program_memory *m, lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)p;
    uint64_t n = 4 * batch_numbers(vp->p, &vp->options);
    vp->q = vulkan_queue_of(m->queue);
    TRY(vulkan_alloc(vp->v, VULKAN_LOCAL, memory_bytes(vp->p), &vp->memory, NULL, err));
    TRY(vulkan_alloc(vp->v, VULKAN_UPLOAD, n, &vp->numbers_at, (void **)&vp->numbers, err));
    memset(vp->numbers, 0, n);
    if (!vulkan_features(vp->v)->is_unified)
        TRY(vulkan_alloc(vp->v, VULKAN_LOCAL, n, &vp->numbers_on, NULL, err));
    plan_locate(vp->p, (uint8_t *)(uintptr_t)vp->memory, m->pages, m->slots);
    vp->scratch = vp->memory + aligned(vp->p->value_bytes);
    locate_batch(vp);
    TRY(locate_given(vp, vp->p->logits, &vp->logits, err));
    TRY(locate_given(vp, vp->p->hidden, &vp->hidden, err));
    return move_vectors(vp, vp->scratch + scratch_bytes(vp->p), err);
}

static void forget(vulkan_program *vp, recorded *r)
{
    vulkan_list_free(r->list);
    vulkan_free(vp->v, r->params);
    *r = (recorded){0};
}

void vulkan_program_free(program *p)
{
    vulkan_program *vp = (vulkan_program *)p;
    if (vp->q)
        vulkan_wait(vp->q, NULL);
    for (int i = 0; i < N_RECORDED; i++)
        forget(vp, &vp->lists[i]);
    vulkan_free(vp->v, vp->memory);
    vulkan_free(vp->v, vp->numbers_at);
    vulkan_free(vp->v, vp->numbers_on);
    vulkan_free(vp->v, vp->logits.at);
    vulkan_free(vp->v, vp->hidden.at);
    mem_free(vp->vectors);
    mem_free(vp->ns);
    plan_free(vp->p);
    mem_free(vp);
}

/* ---- Batches --------------------------------------------------------------------------------- */

/* The host's address of numbers of the batch. */
static int32_t *numbers_of(const vulkan_program *vp, uint64_t address)
{
    return vp->numbers + (address - (vp->numbers_on ? vp->numbers_on : vp->numbers_at)) / 4;
}

/* The page numbers of each sequence, up to the last one that is read. */
static void send_tables(vulkan_program *vp, const batch *b)
{
    for (int32_t g = 0; g < vp->options.n_groups; g++)
        for (int32_t t = 0; t < b->n_tokens; t++) {
            if (t + 1 < b->n_tokens && b->sequences[t + 1] == b->sequences[t])
                continue;
            int32_t last = (int32_t)max_i64(b->positions[t], batch_seen(b, t) - 1);
            int32_t *to = numbers_of(vp, vp->batch.tables[g]) +
                          (int64_t)b->sequences[t] * vp->options.pages_per_sequence;
            memcpy(to, b->pages[g][t], (size_t)(last / PAGE_TOKENS + 1) * sizeof *to);
        }
}

/* Nothing is running: what the device reads may be written. */
static void send_batch(vulkan_program *vp, const batch *b)
{
    vulkan_batch *on = &vp->batch;
    size_t n = (size_t)b->n_tokens * sizeof(int32_t);
    on->n_tokens = b->n_tokens;
    on->n_outputs = b->n_outputs;
    memcpy(numbers_of(vp, on->tokens), b->tokens, n);
    memcpy(numbers_of(vp, on->positions), b->positions, n);
    memcpy(numbers_of(vp, on->sequences), b->sequences, n);
    if (b->n_outputs > 0)
        memcpy(numbers_of(vp, on->outputs), b->outputs, (size_t)b->n_outputs * sizeof(int32_t));
    for (int32_t t = 0; t < b->n_tokens; t++) {
        numbers_of(vp, on->slots)[t] = b->slots ? b->slots[t] : 0;
        numbers_of(vp, on->seen)[t] = batch_seen(b, t);
        numbers_of(vp, on->segments)[t] = b->segments ? b->segments[t] : 0;
        for (int32_t axis = 0; axis < ROPE_MAX_AXES; axis++)
            numbers_of(vp, on->axes)[(int64_t)axis * on->axis_stride + t] = batch_axis(b, axis, t);
    }
    if (b->embeddings)
        memcpy(numbers_of(vp, on->beside), b->embeddings,
               (size_t)b->n_tokens * (size_t)beside_width(vp->p) * sizeof(float));
    send_tables(vp, b);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

/* To where the host sees it. */
static lace_status record_given(vulkan_program *vp, recorder *r, const given *g, lace_error *err)
{
    if (!g->at)
        return LACE_OK;
    const plan_value *v = &vp->p->values[g->value];
    return record_copy(r, g->at, (uint32_t)v->width, vp->memory + v->offset,
                       floats_of(&(operand){.stride = plan_operand(vp->p, g->value).stride}),
                       (uint32_t)v->width, v->is_output ? vp->batch.n_outputs : vp->batch.n_tokens,
                       err);
}

/* All steps, and the results. A traced list has a stamp in front of each step and behind the last. */
static lace_status record_steps(vulkan_program *vp, recorder *r, lace_error *err)
{
    const plan *p = vp->p;
    for (int32_t i = 0; i < p->n_steps; i++) {
        TRY(record_step(r, &p->steps[i], i + 1 < p->n_steps ? &p->steps[i + 1] : NULL, err));
        record_stamp(r);
    }
    TRY(record_given(vp, r, &vp->logits, err));
    return record_given(vp, r, &vp->hidden, err);
}

/* The batch's numbers to where the device reads them, many times, without a way to the host. */
static lace_status record_numbers_copy(vulkan_program *vp, recorder *r, lace_error *err)
{
    uint32_t n = (uint32_t)batch_numbers(vp->p, &vp->options);
    if (!vp->numbers_on)
        return LACE_OK;
    TRY(record_copy(r, vp->numbers_on, n, vp->numbers_at, n, n, 1, err));
    vulkan_list_barrier(r->list);
    return LACE_OK;
}

/* The launches of a list. Parameters are gathered on the host, and go to the device as a whole. */
static lace_status record_launches(vulkan_program *vp, recorder *r, recorded *out, lace_error *err)
{
    TRY(vulkan_alloc(vp->v, VULKAN_LOCAL, r->params_bytes, &out->params, NULL, err));
    r->params = out->params;
    TRY(vulkan_list_begin(vp->q, &out->list, err));
    r->list = out->list;
    if (r->is_traced)
        TRY(vulkan_list_time(r->list, (uint32_t)vp->p->n_steps + 1, err));
    TRY(record_numbers_copy(vp, r, err));
    record_stamp(r);
    TRY(record_steps(vp, r, err));
    TRY(vulkan_list_end(out->list, err));
    return vulkan_write(vp->q, r->params, r->params_host, r->params_used, err);
}

/* A list for batches of the shape of the one that was sent. */
static lace_status record_list(vulkan_program *vp, bool is_traced, recorded *out, lace_error *err)
{
    recorder r = {.v = vp->v,
                  .batch = &vp->batch,
                  .scratch = vp->scratch,
                  .forms = vp->scratch + most_bytes(vp->p, record_scratch_bytes),
                  .form_bytes = most_bytes(vp->p, record_form_bytes),
                  .params_bytes = params_bytes(vp->p),
                  .is_traced = is_traced};
    r.params_host = mem_alloc(r.params_bytes);
    if (!r.params_host)
        return error_nomem(err, "a list");
    lace_status status = record_launches(vp, &r, out, err);
    mem_free(r.params_host);
    out->n_tokens = vp->batch.n_tokens;
    out->n_outputs = vp->batch.n_outputs;
    return status;
}

/* The list for the batch that was sent: one of the last few, or a new one in the oldest's place. */
static lace_status find_list(vulkan_program *vp, const recorded **out, lace_error *err)
{
    for (int i = 0; i < N_RECORDED; i++) {
        *out = &vp->lists[i];
        if ((*out)->n_tokens == vp->batch.n_tokens && (*out)->n_outputs == vp->batch.n_outputs)
            return LACE_OK;
    }
    vp->newest = (vp->newest + 1) % N_RECORDED;
    recorded *to = &vp->lists[vp->newest];
    forget(vp, to);
    lace_status status = record_list(vp, false, to, err);
    if (status != LACE_OK)
        forget(vp, to);
    *out = to;
    return status;
}

/* With the device's own time of each step. */
static lace_status run_traced(vulkan_program *vp, lace_error *err)
{
    if (!vp->ns && !(vp->ns = mem_calloc((size_t)vp->p->n_steps + 1, sizeof *vp->ns)))
        return error_nomem(err, "a trace");
    recorded one = {0};
    lace_status status = record_list(vp, true, &one, err);
    if (status == LACE_OK)
        status = vulkan_list_run(one.list, err);
    if (status == LACE_OK)
        status = vulkan_wait(vp->q, err);
    if (status == LACE_OK)
        status = vulkan_list_times(one.list, vp->ns, err);
    forget(vp, &one);
    return status;
}

lace_status vulkan_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                               lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)p;
    if (b->embeddings && beside_width(vp->p) == 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "Vulkan devices compute batches of tokens alone; use --device cpu");
    TRY(vulkan_wait(vp->q, err));
    send_batch(vp, b);
    if (is_traced)
        return run_traced(vp, err);
    const recorded *r;
    TRY(find_list(vp, &r, err));
    TRY(vulkan_list_run(r->list, err));
    return vulkan_wait(vp->q, err);
}

/* ---- Results --------------------------------------------------------------------------------- */

static const float *row_of(const given *g, int32_t row)
{
    return (const float *)(const void *)(g->rows + (uint64_t)row * g->stride);
}

const float *vulkan_program_logits(const program *p, int32_t row)
{
    return row_of(&((const vulkan_program *)p)->logits, row);
}

const float *vulkan_program_hidden(const program *p, int32_t row)
{
    return row_of(&((const vulkan_program *)p)->hidden, row);
}

int32_t vulkan_program_n_steps(const program *p)
{
    return ((const vulkan_program *)p)->p->n_steps;
}

program_step vulkan_program_step_at(const program *p, int32_t i, const batch *b)
{
    const vulkan_program *vp = (const vulkan_program *)p;
    const step *s = &vp->p->steps[i];
    return (program_step){.name = op_name(s->op),
                          .layer = s->layer,
                          .n_bytes = step_bytes(s, b, false),
                          .n_products = step_products(s, b),
                          .ns = vp->ns ? vp->ns[i] : 0};
}
