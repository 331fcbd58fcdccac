/* Programs on several devices: one of each part of the plan, run in turn. */
#include <string.h>

#include "backend/mixed/mixed_device.h"
#include "base/mem.h"
#include "plan/parts.h"

typedef struct mixed_part {
    program *program;
    int32_t device;
    bool reads_embeddings;
} mixed_part;

/* The parts of a plan. */
typedef struct mixed_list {
    mixed_part *parts;
    int32_t n_parts;
    uint64_t border_bytes;
    uint64_t logits, hidden; /* in the border */
    stream_twins twins;
} mixed_list;

enum { AS_IT_LIES, STREAMED, N_LISTS };

typedef struct mixed_program {
    program base;
    const mixed_device *device;
    mixed_list lists[N_LISTS]; /* for most batches; for large ones, or nothing */
    const mixed_list *last;    /* that was run */
    int32_t stream_tokens;     /* batches of so many are large */
    int32_t n_workers;
    uint64_t bytes_on[DEVICES_MAX];
    uint64_t room_bytes[DEVICES_MAX]; /* of it: what the parts of a device share */
    uint8_t *rooms[DEVICES_MAX];
    queue *queues[DEVICES_MAX];
    uint64_t border_bytes;
    uint8_t *border;
    queue *sharer; /* who gave the border; NULL: the host */
    uint64_t logits_stride, hidden_stride;
} mixed_program;

/* ---- Compiling ------------------------------------------------------------------------------- */

/*
 * Where a step runs. made_on: [n_values] where what it reads was made; has_layers: some layer stands
 * before it; streams: what can be is on a card.
 */
static int32_t device_of(const mixed_device *d, const step *s, const int32_t *made_on,
                         bool has_layers, bool streams)
{
    op_weight w[OP_MAX_WEIGHTS];
    if (s->op == OP_COLLECT)
        return 0;
    if (streams && s->layer >= 0 && stream_can(d, s))
        return d->streamer;
    if (step_weights(s, w) > 0)
        return w[0].w->device;
    if (s->op == OP_EMBED)
        return s->a.embed.table->device;
    if (op_describe(s->op)->state == OP_PAGES)
        return s->kv.device;
    if (op_describe(s->op)->state == OP_RECURRENT)
        return s->recurrent.device;
    if (s->layer >= 0 && s->layer < d->n_layers)
        return streams && d->layers[s->layer] == 0 ? d->streamer : d->layers[s->layer];
    if (has_layers)
        return d->output;
    return s->in[0].value >= 0 ? made_on[s->in[0].root] : 0;
}

static void find_devices(const mixed_device *d, const plan *p, bool streams, int32_t *made_on,
                         int32_t *devices)
{
    bool has_layers = false;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        has_layers = has_layers || s->layer >= 0;
        devices[i] = device_of(d, s, made_on, has_layers, streams);
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (s->out[k].value >= 0)
                made_on[s->out[k].root] = devices[i];
    }
}

static lace_status cut(const mixed_device *d, const plan *p, bool streams, plan_parts *out,
                       lace_error *err)
{
    int32_t *made_on = mem_calloc((size_t)p->n_values + 1, sizeof *made_on);
    int32_t *devices = mem_calloc((size_t)p->n_steps + 1, sizeof *devices);
    lace_status status = made_on && devices ? LACE_OK : error_nomem(err, "a plan");
    if (status == LACE_OK) {
        find_devices(d, p, streams, made_on, devices);
        status = plan_parts_create(p, devices, out, err);
    }
    mem_free_all(made_on, devices);
    return status;
}

static uint64_t stride_of(const plan *p, int32_t value)
{
    return value >= 0 ? act_row_bytes(p->values[value].format, p->values[value].width) : 0;
}

/* Parts of a device share what is of no use between two of them. */
static void add_up(mixed_program *mp)
{
    for (int k = 0; k < N_LISTS; k++) {
        const mixed_list *l = &mp->lists[k];
        for (int32_t i = 0; i < l->n_parts; i++) {
            const program *p = l->parts[i].program;
            int32_t d = l->parts[i].device;
            mp->bytes_on[d] += p->n_bytes - p->room_bytes;
            if (p->room_bytes > mp->room_bytes[d])
                mp->room_bytes[d] = p->room_bytes;
        }
        if (l->border_bytes > mp->border_bytes)
            mp->border_bytes = l->border_bytes;
    }
    mp->bytes_on[0] += mp->border_bytes;
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        mp->bytes_on[d] += mp->room_bytes[d];
        mp->base.n_bytes += mp->bytes_on[d];
    }
}

/* Weights of the host in steps of another device are brought there. */
static lace_status let_stream(const mixed_device *d, plan *p, stream_twins *twins, lace_error *err)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        op_weight w[OP_MAX_WEIGHTS];
        if (step_weights(&p->steps[i], w) > 0 && w[0].w->device == 0)
            TRY(stream_step(d, &p->steps[i], twins, err));
    }
    return LACE_OK;
}

static lace_status compile_parts(mixed_list *l, const mixed_device *d, const plan_parts *parts,
                                 const program_options *o, lace_error *err)
{
    l->parts = mem_calloc((size_t)parts->n_parts + 1, sizeof *l->parts);
    if (!l->parts)
        return error_nomem(err, "a program");
    for (; l->n_parts < parts->n_parts; l->n_parts++) {
        const plan_part *from = &parts->parts[l->n_parts];
        mixed_part *to = &l->parts[l->n_parts];
        to->device = from->device;
        to->reads_embeddings = from->reads_embeddings;
        if (from->device > 0)
            TRY(let_stream(d, from->p, &l->twins, err));
        TRY(device_compile(d->parts[from->device], from->p, o, &to->program, err));
    }
    return LACE_OK;
}

static lace_status compile_list(mixed_list *l, const mixed_device *d, const plan *p, bool streams,
                                const program_options *o, lace_error *err)
{
    plan_parts parts;
    TRY(cut(d, p, streams, &parts, err));
    l->border_bytes = parts.border_bytes;
    l->logits = parts.logits;
    l->hidden = parts.hidden;
    lace_status status = compile_parts(l, d, &parts, o, err);
    plan_parts_free(&parts);
    return status;
}

static void free_list(mixed_list *l)
{
    for (int32_t i = 0; i < l->n_parts; i++)
        program_free(l->parts[i].program);
    stream_twins_free(&l->twins);
    mem_free(l->parts);
    *l = (mixed_list){0};
}

/* For large batches. What cannot be computed so is computed as it lies. */
static void compile_streamed(mixed_program *mp, const plan *p, const program_options *o)
{
    const mixed_device *d = mp->device;
    mixed_list *l = &mp->lists[STREAMED];
    bool has_any = false;
    for (int32_t i = 0; i < p->n_steps && !has_any && d->streamer > 0; i++)
        has_any = p->steps[i].layer >= 0 && stream_can(d, &p->steps[i]);
    if (!has_any || p->limits.max_tokens < STREAM_LEAST ||
        (d->stream_tokens > 0 && p->limits.max_tokens < d->stream_tokens))
        return;
    if (compile_list(l, d, p, true, o, NULL) != LACE_OK ||
        l->twins.n_bytes > mem_machine_available())
        free_list(l);
}

lace_status mixed_program_compile(device *dev, const plan *p, const program_options *o,
                                  program **out, lace_error *err)
{
    *out = NULL;
    mixed_program *mp = mem_calloc(1, sizeof *mp);
    if (!mp)
        return error_nomem(err, "a program");
    mp->base.backend = dev->backend;
    mp->device = (const mixed_device *)dev;
    mp->last = &mp->lists[AS_IT_LIES];
    mp->logits_stride = stride_of(p, p->logits);
    mp->hidden_stride = stride_of(p, p->hidden);
    mp->n_workers = p->limits.n_workers;
    lace_status status = compile_list(&mp->lists[AS_IT_LIES], mp->device, p, false, o, err);
    if (status == LACE_OK) {
        compile_streamed(mp, p, o);
        add_up(mp);
    } else {
        mixed_program_free(&mp->base);
    }
    *out = status == LACE_OK ? &mp->base : NULL;
    return status;
}

uint64_t program_bytes_on(const program *p, int32_t i)
{
    if (p->backend != &backend_mixed)
        return i == 0 ? p->n_bytes : 0;
    return ((const mixed_program *)p)->bytes_on[i];
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Memory that a card can use by itself, if there is one that can: nothing is copied twice then. */
static lace_status take_border(mixed_program *mp, const program_memory *m, lace_error *err)
{
    for (int32_t d = 1; d < mp->device->n_parts && !mp->sharer; d++) {
        queue *q = queue_of_device(m->queue, d);
        if (queue_shares_memory(q) &&
            queue_take_shared(q, mp->border_bytes, &mp->border, NULL) == LACE_OK)
            mp->sharer = q;
    }
    if (!mp->sharer && !(mp->border = mem_map(mp->border_bytes)))
        return error_nomem(err, "the values between devices");
    return LACE_OK;
}

static void give_back_border(mixed_program *mp)
{
    if (mp->sharer)
        queue_give_back_shared(mp->sharer, mp->border);
    else
        mem_unmap(mp->border, mp->border_bytes);
}

static lace_status prepare_list(mixed_program *mp, const mixed_list *l, const program_memory *m,
                                lace_error *err)
{
    for (int32_t i = 0; i < l->n_parts; i++) {
        int32_t d = l->parts[i].device;
        mp->queues[d] = queue_of_device(m->queue, d);
        if (!mp->rooms[d] && mp->room_bytes[d])
            TRY(queue_take(mp->queues[d], mp->room_bytes[d], &mp->rooms[d], err));
        program_memory memory = *m;
        memory.queue = mp->queues[d];
        memory.border = mp->border;
        memory.is_shared = mp->sharer != NULL;
        memory.room = mp->rooms[d];
        TRY(program_prepare(l->parts[i].program, &memory, err));
    }
    return LACE_OK;
}

static lace_status choose_stream_tokens(mixed_program *mp, lace_error *err)
{
    const mixed_device *d = mp->device;
    double link = 0;
    mp->stream_tokens = d->stream_tokens;
    if (mp->lists[STREAMED].n_parts == 0 || d->stream_tokens > 0)
        return LACE_OK;
    TRY(stream_time_link(mp->queues[d->streamer], &link, err));
    mp->stream_tokens = stream_worth(&mp->lists[STREAMED].twins, link, mp->n_workers);
    return LACE_OK;
}

lace_status mixed_program_prepare(program *p, const program_memory *m, lace_error *err)
{
    mixed_program *mp = (mixed_program *)p;
    TRY(take_border(mp, m, err));
    for (int k = 0; k < N_LISTS; k++)
        TRY(prepare_list(mp, &mp->lists[k], m, err));
    return choose_stream_tokens(mp, err);
}

void mixed_program_free(program *p)
{
    mixed_program *mp = (mixed_program *)p;
    for (int k = 0; k < N_LISTS; k++)
        free_list(&mp->lists[k]);
    for (int32_t d = 0; d < DEVICES_MAX; d++)
        if (mp->rooms[d])
            queue_give_back(mp->queues[d], mp->rooms[d], mp->room_bytes[d]);
    give_back_border(mp);
    mem_free(mp);
}

/* ---- Running --------------------------------------------------------------------------------- */

lace_status mixed_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                              lace_error *err)
{
    mixed_program *mp = (mixed_program *)p;
    bool is_large = mp->lists[STREAMED].n_parts > 0 && b->n_tokens >= mp->stream_tokens;
    const mixed_list *l = mp->last = &mp->lists[is_large ? STREAMED : AS_IT_LIES];
    for (int32_t i = 0; i < l->n_parts; i++) {
        batch its = *b;
        if (!l->parts[i].reads_embeddings)
            its.embeddings = NULL;
        TRY(program_run(l->parts[i].program, &its, NULL, is_traced, err));
    }
    return LACE_OK;
}

lace_status mixed_program_warm_up(program *p, lace_error *err)
{
    const mixed_list *l = &((const mixed_program *)p)->lists[AS_IT_LIES];
    for (int32_t i = 0; i < l->n_parts; i++)
        TRY(program_warm_up(l->parts[i].program, err));
    return LACE_OK;
}

const float *mixed_program_logits(const program *p, int32_t row)
{
    const mixed_program *mp = (const mixed_program *)p;
    return (const float *)(mp->border + mp->last->logits + (uint64_t)row * mp->logits_stride);
}

const float *mixed_program_hidden(const program *p, int32_t row)
{
    const mixed_program *mp = (const mixed_program *)p;
    return (const float *)(mp->border + mp->last->hidden + (uint64_t)row * mp->hidden_stride);
}

int32_t mixed_program_n_steps(const program *p)
{
    const mixed_list *l = ((const mixed_program *)p)->last;
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_parts; i++)
        n += program_n_steps(l->parts[i].program);
    return n;
}

program_step mixed_program_step_at(const program *p, int32_t i, const batch *b)
{
    const mixed_list *l = ((const mixed_program *)p)->last;
    int32_t part = 0;
    for (; i >= program_n_steps(l->parts[part].program); part++)
        i -= program_n_steps(l->parts[part].program);
    return program_step_at(l->parts[part].program, i, b);
}
