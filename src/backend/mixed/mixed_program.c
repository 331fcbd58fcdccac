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

typedef struct mixed_program {
    program base;
    mixed_part *parts;
    int32_t n_parts;
    uint64_t bytes_on[DEVICES_MAX];
    uint64_t room_bytes[DEVICES_MAX]; /* of it: what the parts of a device share */
    uint8_t *rooms[DEVICES_MAX];
    queue *queues[DEVICES_MAX];
    uint64_t border_bytes;
    uint8_t *border;
    queue *sharer;                  /* who gave the border; NULL: the host */
    uint64_t logits, logits_stride; /* in the border */
    uint64_t hidden, hidden_stride;
} mixed_program;

/* ---- Compiling ------------------------------------------------------------------------------- */

/*
 * Where a step runs. made_on: [n_values] where what it reads was made; has_layers: some layer stands
 * before it.
 */
static int32_t device_of(const mixed_device *d, const step *s, const int32_t *made_on,
                         bool has_layers)
{
    op_weight w[OP_MAX_WEIGHTS];
    if (step_weights(s, w) > 0)
        return w[0].w->device;
    if (s->op == OP_EMBED)
        return s->a.embed.table->device;
    if (op_describe(s->op)->state == OP_PAGES)
        return s->kv.device;
    if (op_describe(s->op)->state == OP_RECURRENT)
        return s->recurrent.device;
    if (s->layer >= 0 && s->layer < d->n_layers)
        return d->layers[s->layer];
    if (has_layers)
        return d->output;
    return s->in[0].value >= 0 ? made_on[s->in[0].root] : 0;
}

static void find_devices(const mixed_device *d, const plan *p, int32_t *made_on, int32_t *devices)
{
    bool has_layers = false;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        has_layers = has_layers || s->layer >= 0;
        devices[i] = device_of(d, s, made_on, has_layers);
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (s->out[k].value >= 0)
                made_on[s->out[k].root] = devices[i];
    }
}

static lace_status cut(const mixed_device *d, const plan *p, plan_parts *out, lace_error *err)
{
    int32_t *made_on = mem_calloc((size_t)p->n_values + 1, sizeof *made_on);
    int32_t *devices = mem_calloc((size_t)p->n_steps + 1, sizeof *devices);
    lace_status status = made_on && devices ? LACE_OK : error_nomem(err, "a plan");
    if (status == LACE_OK) {
        find_devices(d, p, made_on, devices);
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
    for (int32_t i = 0; i < mp->n_parts; i++) {
        const program *p = mp->parts[i].program;
        int32_t d = mp->parts[i].device;
        mp->bytes_on[d] += p->n_bytes - p->room_bytes;
        if (p->room_bytes > mp->room_bytes[d])
            mp->room_bytes[d] = p->room_bytes;
    }
    mp->bytes_on[0] += mp->border_bytes;
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        mp->bytes_on[d] += mp->room_bytes[d];
        mp->base.n_bytes += mp->bytes_on[d];
    }
}

static lace_status compile_parts(mixed_program *mp, const mixed_device *d, const plan_parts *parts,
                                 const program_options *o, lace_error *err)
{
    mp->parts = mem_calloc((size_t)parts->n_parts + 1, sizeof *mp->parts);
    if (!mp->parts)
        return error_nomem(err, "a program");
    for (; mp->n_parts < parts->n_parts; mp->n_parts++) {
        const plan_part *from = &parts->parts[mp->n_parts];
        mixed_part *to = &mp->parts[mp->n_parts];
        to->device = from->device;
        to->reads_embeddings = from->reads_embeddings;
        TRY(device_compile(d->parts[from->device], from->p, o, &to->program, err));
    }
    return LACE_OK;
}

lace_status mixed_program_compile(device *dev, const plan *p, const program_options *o,
                                  program **out, lace_error *err)
{
    const mixed_device *d = (const mixed_device *)dev;
    plan_parts parts;
    *out = NULL;
    mixed_program *mp = mem_calloc(1, sizeof *mp);
    if (!mp)
        return error_nomem(err, "a program");
    mp->base.backend = dev->backend;
    lace_status status = cut(d, p, &parts, err);
    if (status == LACE_OK) {
        mp->border_bytes = parts.border_bytes;
        mp->logits = parts.logits;
        mp->hidden = parts.hidden;
        mp->logits_stride = stride_of(p, p->logits);
        mp->hidden_stride = stride_of(p, p->hidden);
        status = compile_parts(mp, d, &parts, o, err);
        plan_parts_free(&parts);
    }
    if (status == LACE_OK)
        add_up(mp);
    else
        mixed_program_free(&mp->base);
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
    for (int32_t i = 0; i < mp->n_parts && !mp->sharer; i++) {
        queue *q = queue_of_device(m->queue, mp->parts[i].device);
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

lace_status mixed_program_prepare(program *p, const program_memory *m, lace_error *err)
{
    mixed_program *mp = (mixed_program *)p;
    TRY(take_border(mp, m, err));
    for (int32_t i = 0; i < mp->n_parts; i++) {
        int32_t d = mp->parts[i].device;
        mp->queues[d] = queue_of_device(m->queue, d);
        if (!mp->rooms[d] && mp->room_bytes[d])
            TRY(queue_take(mp->queues[d], mp->room_bytes[d], &mp->rooms[d], err));
        program_memory memory = *m;
        memory.queue = mp->queues[d];
        memory.border = mp->border;
        memory.is_shared = mp->sharer != NULL;
        memory.room = mp->rooms[d];
        TRY(program_prepare(mp->parts[i].program, &memory, err));
    }
    return LACE_OK;
}

void mixed_program_free(program *p)
{
    mixed_program *mp = (mixed_program *)p;
    for (int32_t i = 0; i < mp->n_parts; i++)
        program_free(mp->parts[i].program);
    for (int32_t d = 0; d < DEVICES_MAX; d++)
        if (mp->rooms[d])
            queue_give_back(mp->queues[d], mp->rooms[d], mp->room_bytes[d]);
    give_back_border(mp);
    mem_free_all(mp->parts, mp);
}

/* ---- Running --------------------------------------------------------------------------------- */

lace_status mixed_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                              lace_error *err)
{
    mixed_program *mp = (mixed_program *)p;
    for (int32_t i = 0; i < mp->n_parts; i++) {
        batch its = *b;
        if (!mp->parts[i].reads_embeddings)
            its.embeddings = NULL;
        TRY(program_run(mp->parts[i].program, &its, NULL, is_traced, err));
    }
    return LACE_OK;
}

lace_status mixed_program_warm_up(program *p, lace_error *err)
{
    const mixed_program *mp = (const mixed_program *)p;
    for (int32_t i = 0; i < mp->n_parts; i++)
        TRY(program_warm_up(mp->parts[i].program, err));
    return LACE_OK;
}

const float *mixed_program_logits(const program *p, int32_t row)
{
    const mixed_program *mp = (const mixed_program *)p;
    return (const float *)(mp->border + mp->logits + (uint64_t)row * mp->logits_stride);
}

const float *mixed_program_hidden(const program *p, int32_t row)
{
    const mixed_program *mp = (const mixed_program *)p;
    return (const float *)(mp->border + mp->hidden + (uint64_t)row * mp->hidden_stride);
}

int32_t mixed_program_n_steps(const program *p)
{
    const mixed_program *mp = (const mixed_program *)p;
    int32_t n = 0;
    for (int32_t i = 0; i < mp->n_parts; i++)
        n += program_n_steps(mp->parts[i].program);
    return n;
}

program_step mixed_program_step_at(const program *p, int32_t i, const batch *b)
{
    const mixed_program *mp = (const mixed_program *)p;
    int32_t part = 0;
    for (; i >= program_n_steps(mp->parts[part].program); part++)
        i -= program_n_steps(mp->parts[part].program);
    return program_step_at(mp->parts[part].program, i, b);
}
