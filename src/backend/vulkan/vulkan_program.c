/*
 * A plan on a Vulkan device. The steps of batches of a shape are one recorded list, which is run again
 * and again. Batches come and go as batch_transfer.h has it: one may be queued while the one before
 * is computed, and tokens of one sequence are queued ahead of the host.
 *
 * What the host draws is known when it has read the candidates. A batch that begins with such a token
 * waits on the host, until the one before is collected; it is then submitted before anybody looks at
 * the results of that.
 */
#include "backend/vulkan/vulkan_program.h"

#include <assert.h>
#include <string.h>

#include "backend/lora_pieces.h"
#include "backend/vulkan/batch_transfer.h"
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
    int32_t n_tokens, n_outputs;  /* no tokens: there is none */
    bool is_spread, has_adapters; /* as vulkan_batch has them */
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

enum { AHEAD_PLACES = 10 };

/* Tokens of one sequence that are computed ahead of the host. */
typedef struct ahead_queue {
    transfer_place
        places[AHEAD_PLACES]; /* of single tokens, in turn; opened when they are needed */
    bool is_open;
    ahead_start start;
    choice_rule rule;
    int32_t n_asked, n_sent, n_taken;
} ahead_queue;

typedef struct vulkan_program {
    program base;
    vulkan *v;
    plan *p; /* fused and placed */
    program_options options;
    vulkan_queue *q;
    queue *shared; /* the same, as others use it */

    uint64_t memory; /* values, scratch, vectors */
    uint64_t scratch, counts;
    vector *vectors;
    size_t n_vectors, vectors_capacity;

    transfer transfer;
    transfer_place places[PROGRAM_SLOTS]; /* of batches, in turn */
    int32_t n_submitted, n_collected;
    given hidden;
    uint8_t *border; /* of a part of a plan: where values enter and leave; else NULL */
    ahead_queue ahead;

    recorded lists[N_RECORDED];
    int32_t newest;
    record_trace *trace; /* [most_launches] of the last traced run, or NULL */
    uint64_t *ns;
    int32_t n_traced;
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

static transfer_options transfer_options_of(const plan *p, const program_options *o)
{
    return (transfer_options){.max_tokens = p->limits.max_tokens,
                              .max_outputs = p->limits.max_outputs,
                              .n_vocab = p->logits < 0 ? 1 : (int32_t)p->values[p->logits].width,
                              .n_sequences = o->n_sequences,
                              .pages_per_sequence = o->pages_per_sequence,
                              .n_groups = o->n_groups,
                              .n_adapters = p->limits.n_adapters,
                              .given_width = plan_given_width(p)};
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
    return aligned(p->value_bytes) + scratch_bytes(p) + RECORD_COUNTS_BYTES +
           plan_vector_bytes(p, aligned(1)) + aligned(lora_memory_bytes(p));
}

/* Of a list: those of the steps, and copies of results. */
static int32_t most_launches(const plan *p)
{
    return RECORD_MOST_LAUNCHES * p->n_steps + 2;
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
    record_keep_keys(vp->p);
    vp->p->has_copies = true;
    plan_place(vp->p, NULL);
    transfer_options t = transfer_options_of(vp->p, o);
    vp->base.n_bytes = memory_bytes(vp->p) + transfer_bytes(&t) + N_RECORDED * params_bytes(vp->p);
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

static lace_status write_adapter(void *q, uint64_t to, const void *from, uint64_t n,
                                 lace_error *err)
{
    return vulkan_write(q, to, from, n, err);
}

/* Whether the device finds the best tokens of rows. */
static bool can_choose(const vulkan_program *vp)
{
    const plan *p = vp->p;
    return p->logits >= 0 && !p->limits.stops_at_hidden && !plan_is_beside(p) &&
           vulkan_features(vp->v)->max_threads >= CHOOSE_THREADS;
}

static lace_status settle(void *arg, lace_error *err);

lace_status vulkan_program_prepare(program *p, const program_memory *m, lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)p;
    const plan_limits *l = &vp->p->limits;
    vp->q = vulkan_queue_of(m->queue);
    TRY(vulkan_alloc(vp->v, VULKAN_LOCAL, memory_bytes(vp->p), &vp->memory, NULL, err));
    plan_memory where = program_plan_memory(m, (uint8_t *)(uintptr_t)vp->memory);
    plan_locate(vp->p, &where);
    vp->border = m->border;
    vp->scratch = vp->memory + aligned(vp->p->value_bytes);
    transfer_options t = transfer_options_of(vp->p, &vp->options);
    t.queue = vp->q;
    t.logits = vp->memory;
    t.logits_stride = 1;
    if (vp->p->logits >= 0) { /* a part has none */
        t.logits += vp->p->values[vp->p->logits].offset;
        t.logits_stride = (uint32_t)(plan_operand(vp->p, vp->p->logits).stride / 4);
    }
    TRY(transfer_open(&vp->transfer, &t, err));
    for (int i = 0; i < PROGRAM_SLOTS; i++)
        TRY(transfer_place_open(&vp->transfer, &vp->places[i], l->max_tokens, l->max_outputs, true,
                                err));
    TRY(locate_given(vp, vp->p->hidden, &vp->hidden, err));
    p->chooses = can_choose(vp);
    p->most_drawn_from = CHOOSE_MOST;
    p->queues = p->chooses && vp->p->hidden < 0;
    vp->shared = m->queue;
    if (p->queues)
        vulkan_queue_settle(vp->shared, settle, vp);
    vp->counts = vp->scratch + scratch_bytes(vp->p);
    TRY(vulkan_fill(vp->q, vp->counts, 0, RECORD_COUNTS_BYTES, err));
    uint64_t vectors = vp->counts + RECORD_COUNTS_BYTES;
    TRY(move_vectors(vp, vectors, err));
    return lora_memory_fill(vp->p, vectors + plan_vector_bytes(vp->p, aligned(1)), write_adapter,
                            vp->q, err);
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
    if (vp->base.queues)
        vulkan_queue_settle(vp->shared, NULL, NULL);
    if (vp->q)
        vulkan_wait(vp->q, NULL);
    for (int i = 0; i < N_RECORDED; i++)
        forget(vp, &vp->lists[i]);
    for (int i = 0; i < PROGRAM_SLOTS; i++)
        transfer_place_close(&vp->transfer, &vp->places[i]);
    for (int i = 0; i < AHEAD_PLACES; i++)
        transfer_place_close(&vp->transfer, &vp->ahead.places[i]);
    transfer_close(&vp->transfer);
    vulkan_free(vp->v, vp->memory);
    vulkan_free(vp->v, vp->hidden.at);
    mem_free_all(vp->vectors, vp->trace, vp->ns);
    plan_free(vp->p);
    mem_free(vp);
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
                       (uint32_t)v->width, v->is_output ? r->batch->n_outputs : r->batch->n_tokens,
                       err);
}

/* All steps, and the results. */
static lace_status record_steps(vulkan_program *vp, recorder *r, lace_error *err)
{
    const plan *p = vp->p;
    for (int32_t i = 0; i < p->n_steps; i += r->n_taken)
        TRY(record_step(r, &p->steps[i], p->n_steps - i, err));
    r->s = NULL;
    r->n_left = 0;
    return record_given(vp, r, &vp->hidden, err);
}

/* The launches of a list. Parameters are gathered on the host, and go to the device as a whole. */
static lace_status record_launches(vulkan_program *vp, recorder *r, recorded *out, lace_error *err)
{
    TRY(vulkan_alloc(vp->v, VULKAN_LOCAL, r->params_bytes, &out->params, NULL, err));
    r->params = out->params;
    TRY(vulkan_list_begin(vp->q, &out->list, err));
    r->list = out->list;
    if (r->trace) {
        TRY(vulkan_list_time(r->list, (uint32_t)r->most_traced + 1, err));
        vulkan_list_stamp(r->list);
    }
    TRY(record_steps(vp, r, err));
    TRY(record_end(r, err));
    return vulkan_write(vp->q, r->params, r->params_host, r->params_used, err);
}

/* A list for batches of the shape of a place's. */
static lace_status record_list(vulkan_program *vp, const transfer_place *p, bool is_traced,
                               recorded *out, lace_error *err)
{
    vulkan_batch b = vp->transfer.batch;
    b.n_tokens = out->n_tokens = p->n_tokens;
    b.n_outputs = out->n_outputs = p->n_outputs;
    b.is_spread = out->is_spread = p->is_spread;
    b.has_adapters = out->has_adapters = p->has_adapters;
    recorder r = {.v = vp->v,
                  .batch = &b,
                  .scratch = vp->scratch,
                  .forms = vp->scratch + most_bytes(vp->p, record_scratch_bytes),
                  .form_bytes = most_bytes(vp->p, record_form_bytes),
                  .params_bytes = params_bytes(vp->p),
                  .counts = vp->counts,
                  .values = vp->p->values,
                  .given = {vp->p->logits < 0 ? -1 : plan_operand(vp->p, vp->p->logits).root,
                            vp->p->hidden < 0 ? -1 : plan_operand(vp->p, vp->p->hidden).root},
                  .trace = is_traced ? vp->trace : NULL,
                  .most_traced = is_traced ? most_launches(vp->p) : 0};
    r.params_host = mem_alloc(r.params_bytes);
    if (!r.params_host)
        return error_nomem(err, "a list");
    lace_status status = record_launches(vp, &r, out, err);
    mem_free(r.params_host);
    vp->n_traced = is_traced ? r.n_traced : vp->n_traced;
    return status;
}

/* The list for a place's batch: one of the last few, or a new one in the oldest's place. */
static lace_status find_list(vulkan_program *vp, const transfer_place *p, const recorded **out,
                             lace_error *err)
{
    for (int i = 0; i < N_RECORDED; i++) {
        *out = &vp->lists[i];
        if ((*out)->n_tokens == p->n_tokens && (*out)->n_outputs == p->n_outputs &&
            (*out)->is_spread == p->is_spread && (*out)->has_adapters == p->has_adapters)
            return LACE_OK;
    }
    vp->newest = (vp->newest + 1) % N_RECORDED;
    recorded *to = &vp->lists[vp->newest];
    forget(vp, to);
    lace_status status = record_list(vp, p, false, to, err);
    if (status != LACE_OK)
        forget(vp, to);
    *out = to;
    return status;
}

/* ---- Batches --------------------------------------------------------------------------------- */

static lace_status launch(vulkan_program *vp, transfer_place *p, lace_error *err)
{
    const recorded *r;
    TRY(find_list(vp, p, &r, err));
    return transfer_submit(&vp->transfer, p, r->list, err);
}

static transfer_place *place_at(vulkan_program *vp, int32_t number)
{
    return &vp->places[number % PROGRAM_SLOTS];
}

static bool has_unknown_token(const batch *b)
{
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (b->tokens[t] == TOKEN_CHOSEN)
            return true;
    return false;
}

static lace_status put(vulkan_program *vp, transfer_place *p, const batch *b,
                       const choice_rule *rules, lace_error *err)
{
    return transfer_put(&vp->transfer, p, b, vp->base.chooses ? rules : NULL, err);
}

lace_status vulkan_program_submit(program *base, const batch *b, const choice_rule *rules,
                                  lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)base;
    transfer_place *p = place_at(vp, vp->n_submitted);
    const transfer_place *before = place_at(vp, vp->n_submitted + 1);
    assert(vp->n_submitted - vp->n_collected < PROGRAM_SLOTS);
    TRY(put(vp, p, b, rules, err));
    bool waits = vp->n_submitted > vp->n_collected && before->draws && !before->is_read &&
                 has_unknown_token(b);
    if (!waits)
        TRY(launch(vp, p, err));
    vp->n_submitted++;
    return LACE_OK;
}

/* Submit the batch behind one that was read, if it waited for that. */
static void submit_late(vulkan_program *vp, int32_t number)
{
    transfer_place *p = place_at(vp, number);
    if (number >= vp->n_submitted || p->number || p->failed.status != LACE_OK)
        return;
    transfer_fill_tokens(&vp->transfer, p);
    if (launch(vp, p, &p->failed) != LACE_OK && p->failed.status == LACE_OK)
        p->failed.status = LACE_E_DEVICE;
}

/* Before the queue does something else: what waits goes in front of it. */
static lace_status settle(void *arg, lace_error *err)
{
    vulkan_program *vp = arg;
    if (vp->n_submitted - vp->n_collected < PROGRAM_SLOTS)
        return LACE_OK;
    TRY(transfer_read(&vp->transfer, place_at(vp, vp->n_collected), err));
    submit_late(vp, vp->n_collected + 1);
    return LACE_OK;
}

lace_status vulkan_program_collect(program *base, lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)base;
    lace_status status = transfer_read(&vp->transfer, place_at(vp, vp->n_collected), err);
    vp->n_collected++;
    if (status == LACE_OK)
        submit_late(vp, vp->n_collected);
    else if (vp->n_submitted > vp->n_collected && !place_at(vp, vp->n_collected)->number)
        error_set(&place_at(vp, vp->n_collected)->failed, status, "%s", err ? err->text : "");
    return status;
}

/* With the device's own time of each launch. */
static lace_status run_traced(vulkan_program *vp, transfer_place *p, lace_error *err)
{
    size_t most = (size_t)most_launches(vp->p);
    if (!vp->ns)
        vp->ns = mem_calloc(most, sizeof *vp->ns);
    if (!vp->trace)
        vp->trace = mem_calloc(most, sizeof *vp->trace);
    if (!vp->ns || !vp->trace)
        return error_nomem(err, "a trace");
    recorded one = {0};
    lace_status status = record_list(vp, p, true, &one, err);
    if (status == LACE_OK)
        status = transfer_submit(&vp->transfer, p, one.list, err);
    if (status == LACE_OK)
        status = transfer_read(&vp->transfer, p, err);
    if (status == LACE_OK)
        status = vulkan_list_times(one.list, vp->ns, err);
    forget(vp, &one);
    return status;
}

/* What enters a part, or what leaves it, between the border and the memory of values. */
static lace_status cross(vulkan_program *vp, const batch *b, bool enters, lace_error *err)
{
    for (int32_t i = 0; vp->border && i < vp->p->n_values; i++) {
        const plan_value *v = &vp->p->values[i];
        uint64_t at = vp->memory + v->offset, n = plan_batch_bytes(v, b);
        if (enters && v->enters && n > 0)
            TRY(vulkan_write(vp->q, at, vp->border + v->border, n, err));
        if (!enters && v->leaves && n > 0)
            TRY(vulkan_read(vp->q, vp->border + v->border, at, n, err));
    }
    return LACE_OK;
}

lace_status vulkan_program_run(program *base, const batch *b, const choice_rule *rules,
                               bool is_traced, lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)base;
    assert(vp->n_submitted == vp->n_collected);
    transfer_place *p = place_at(vp, vp->n_submitted);
    TRY(cross(vp, b, true, err));
    TRY(put(vp, p, b, rules, err));
    lace_status status = is_traced ? run_traced(vp, p, err) : launch(vp, p, err);
    if (status == LACE_OK)
        status = transfer_read(&vp->transfer, p, err);
    vp->n_collected = ++vp->n_submitted;
    return status == LACE_OK ? cross(vp, b, false, err) : status;
}

/* ---- Ahead ----------------------------------------------------------------------------------- */

static transfer_place *ahead_place(vulkan_program *vp, int32_t number)
{
    return &vp->ahead.places[number % AHEAD_PLACES];
}

lace_status vulkan_program_begin(program *base, const ahead_start *start, const choice_rule *rule,
                                 lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)base;
    ahead_queue *a = &vp->ahead;
    TRY(vulkan_wait(vp->q, err)); /* what was queued ahead and not taken is forgotten */
    for (int i = 0; i < AHEAD_PLACES && !a->is_open; i++)
        TRY(transfer_place_open(&vp->transfer, &a->places[i], 1, 1, false, err));
    a->is_open = true;
    a->start = *start;
    a->rule = rule ? *rule : (choice_rule){.temperature = 0};
    a->n_asked = a->n_sent = a->n_taken = 0;
    return LACE_OK;
}

/* Submit the next token. The tables have been brought up to date. */
static lace_status send_ahead(vulkan_program *vp, lace_error *err)
{
    ahead_queue *a = &vp->ahead;
    transfer_place *p = ahead_place(vp, a->n_sent);
    int32_t token = a->n_sent == 0 ? a->start.token : TOKEN_CHOSEN, output = 0;
    int32_t position = a->start.position + a->n_sent, axes[ROPE_MAX_AXES];
    for (int i = 0; i < ROPE_MAX_AXES; i++)
        axes[i] = position + a->start.turn;
    batch b = {.n_tokens = 1,
               .n_outputs = 1,
               .tokens = &token,
               .positions = &position,
               .sequences = &a->start.sequence,
               .slots = &a->start.sequence,
               .axes = axes,
               .n_axes = ROPE_MAX_AXES,
               .adapter_scales = a->start.adapter_scales,
               .n_adapters = a->start.n_adapters,
               .outputs = &output};
    TRY(transfer_put(&vp->transfer, p, &b, &a->rule, err));
    if (p->draws)
        transfer_fill_tokens(&vp->transfer, p);
    TRY(launch(vp, p, err));
    a->n_sent++;
    a->rule.goes_on = 1;
    return LACE_OK;
}

/* Submit as many tokens as there are places; of tokens that the host draws, one. */
static lace_status send_asked(vulkan_program *vp, lace_error *err)
{
    ahead_queue *a = &vp->ahead;
    int32_t most = a->rule.temperature > 0 ? 1 : AHEAD_PLACES;
    while (a->n_sent < a->n_asked && a->n_sent - a->n_taken < most)
        TRY(send_ahead(vp, err));
    return LACE_OK;
}

lace_status vulkan_program_ahead(program *base, const int32_t *const *pages, int32_t sequence,
                                 int32_t position, lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)base;
    assert(position == vp->ahead.start.position + vp->ahead.n_asked &&
           sequence == vp->ahead.start.sequence);
    for (int32_t g = 0; g < vp->options.n_groups; g++)
        TRY(transfer_table(&vp->transfer, g, sequence, pages[g], position / PAGE_TOKENS + 1, err));
    vp->ahead.n_asked++;
    return send_asked(vp, err);
}

lace_status vulkan_program_next(program *base, int32_t *word, lace_error *err)
{
    vulkan_program *vp = (vulkan_program *)base;
    transfer_place *p = ahead_place(vp, vp->ahead.n_taken);
    assert(vp->ahead.n_taken < vp->ahead.n_sent);
    TRY(transfer_read(&vp->transfer, p, err));
    *word = p->words[0];
    vp->ahead.n_taken++;
    return *word == CHOICE_REFUSED ? LACE_OK : send_asked(vp, err);
}

/* ---- Results --------------------------------------------------------------------------------- */

/* The place of the batch that was collected last. */
static const transfer_place *last_place(const vulkan_program *vp)
{
    return &vp->places[(vp->n_collected + PROGRAM_SLOTS - 1) % PROGRAM_SLOTS];
}

const float *vulkan_program_logits(const program *p, int32_t row)
{
    const vulkan_program *vp = (const vulkan_program *)p;
    return last_place(vp)->logits_host + (int64_t)row * vp->transfer.o.n_vocab;
}

int32_t vulkan_program_word(const program *p, int32_t row)
{
    return last_place((const vulkan_program *)p)->words[row];
}

const float *vulkan_program_hidden(const program *p, int32_t row)
{
    const given *g = &((const vulkan_program *)p)->hidden;
    return (const float *)(const void *)(g->rows + (uint64_t)row * g->stride);
}

/* A traced run goes through launches. */
int32_t vulkan_program_n_steps(const program *p)
{
    return ((const vulkan_program *)p)->n_traced;
}

program_step vulkan_program_step_at(const program *p, int32_t i, const batch *b)
{
    const vulkan_program *vp = (const vulkan_program *)p;
    const record_trace *t = &vp->trace[i];
    program_step out = {.name = "copy", .layer = -1, .ns = vp->ns[i]};
    if (!t->first)
        return out;
    out.name = op_name(t->first->op);
    out.layer = t->first->layer;
    for (int32_t k = 0; k < t->n_steps && t->is_first; k++) {
        out.n_bytes += step_bytes(&t->first[k], b, false);
        out.n_products += step_products(&t->first[k], b);
    }
    return out;
}
