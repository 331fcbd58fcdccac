/*
 * The reference device in the manner of a card: it queues all work, chooses tokens, and does nothing
 * before it must, when somebody waits. So whoever looks at results too early, or counts on work that
 * is still in the queue, gets something else than on the reference device itself.
 */
#include "backend/ref/late_device.h"

#include <math.h>
#include <string.h>

#include "backend/ref/choose_ref.h"
#include "backend/ref/ref_device.h"
#include "base/mem.h"

enum { LATE_TILE = 8, LATE_STEP = 24, LATE_MOST_GROUPS = 8, NUMBERS = 6 + ROPE_MAX_AXES };

/* ---- The queue ------------------------------------------------------------------------------- */

typedef struct late_work {
    uint8_t *to;
    const uint8_t *from; /* NULL: zeros */
    uint64_t n;
    struct late_slot *batch; /* NULL: a copy */
} late_work;

typedef struct late_queue {
    queue base;
    late_work *work; /* [capacity], done up to n_done */
    size_t n_work, n_done, capacity;
    lace_status status; /* of the first batch that failed */
    lace_error err;
} late_queue;

static lace_status run_slot(struct late_slot *slot, lace_error *err);

/* Up to a batch, or all (NULL). */
static void work_off(late_queue *q, const struct late_slot *until)
{
    bool goes_on = true;
    for (; goes_on && q->n_done < q->n_work; q->n_done++) {
        const late_work *w = &q->work[q->n_done];
        goes_on = !until || w->batch != until;
        if (w->batch && q->status == LACE_OK)
            q->status = run_slot(w->batch, &q->err);
        else if (!w->batch && w->from)
            memcpy(w->to, w->from, w->n);
        else if (!w->batch)
            memset(w->to, 0, w->n);
    }
    if (q->n_done == q->n_work)
        q->n_done = q->n_work = 0;
}

static lace_status add_work(late_queue *q, late_work w, lace_error *err)
{
    if (q->n_work == q->capacity) {
        size_t more = q->capacity ? 2 * q->capacity : 64;
        late_work *grown = mem_realloc(q->work, more * sizeof *grown);
        if (!grown)
            return error_nomem(err, "a queue");
        q->work = grown;
        q->capacity = more;
    }
    q->work[q->n_work++] = w;
    return LACE_OK;
}

static lace_status take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    return queue_take(&host_queue, n_bytes, out, err);
}

static void give_back(queue *q, uint8_t *data, uint64_t n_bytes)
{
    work_off((late_queue *)q, NULL);
    queue_give_back(&host_queue, data, n_bytes);
}

static lace_status copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    return add_work((late_queue *)q, (late_work){.to = to, .from = from, .n = n}, err);
}

static lace_status zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    return add_work((late_queue *)q, (late_work){.to = data, .n = n}, err);
}

static lace_status wait(queue *base, lace_error *err)
{
    late_queue *q = (late_queue *)base;
    work_off(q, NULL);
    if (q->status != LACE_OK && err)
        *err = q->err;
    return q->status;
}

static lace_status read(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    TRY(wait(q, err));
    memcpy(to, from, n);
    return LACE_OK;
}

static lace_status write(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err)
{
    TRY(wait(q, err));
    memcpy(to, from, n);
    return LACE_OK;
}

static void close_queue(queue *base)
{
    mem_free(((late_queue *)base)->work);
    mem_free(base);
}

static const queue_calls calls = {.take = take,
                                  .give_back = give_back,
                                  .copy = copy,
                                  .zero = zero,
                                  .wait = wait,
                                  .read = read,
                                  .write = write,
                                  .close = close_queue};

static lace_status open_queue(device *d, queue **out, lace_error *err)
{
    late_queue *q = mem_calloc(1, sizeof *q);
    if (!q)
        return error_nomem(err, "a queue");
    q->base.calls = &calls;
    *out = &q->base;
    return LACE_OK;
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* A batch under way: a copy of it, and what comes of it. */
typedef struct late_slot {
    struct late_program *p;
    batch b;
    int32_t *numbers; /* [NUMBERS][max_tokens] of the batch's arrays */
    const int32_t **pages[LATE_MOST_GROUPS];
    int32_t *tables; /* [group][sequence][pages_per_sequence] */
    choice_rule *rules;
    bool has_rules;
    int32_t *words;
    float *logits; /* [max_outputs, n_vocab] of the rows that were refused; others hold NaN */
    float *hidden; /* [rows, hidden_width], where the plan gives such rows out */
    float *adapter_scales; /* [n_sequences, n_adapters], once a batch had some */
    float *given;          /* [max_tokens, given_width], where batches may have rows of their own */
} late_slot;

typedef struct late_program {
    program base;
    program *plain; /* the reference's */
    program_options options;
    plan_limits limits;
    int32_t n_vocab;
    const plan *p; /* the reference's copy */
    late_queue *queue;
    late_slot slots[PROGRAM_SLOTS];
    int32_t n_submitted, n_collected;
    int32_t *last_tokens; /* [n_sequences] */
    uint64_t (*randoms)[4];
    choice_edit *list; /* [n_vocab] */
} late_program;

static void free_program(program *base)
{
    late_program *p = (late_program *)base;
    if (p->queue)
        work_off(p->queue, NULL);
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        late_slot *s = &p->slots[i];
        mem_free_all(s->numbers, s->tables, s->rules, s->words, s->logits, s->hidden,
                     s->adapter_scales, s->given);
        for (int g = 0; g < LATE_MOST_GROUPS; g++)
            mem_free(s->pages[g]);
    }
    mem_free_all(p->last_tokens, p->randoms, p->list);
    program_free(p->plain);
    mem_free(p);
}

static lace_status compile(device *d, const plan *from, const program_options *o, program **out,
                           lace_error *err)
{
    *out = NULL;
    late_program *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "a program");
    p->base.backend = d->backend;
    p->options = *o;
    p->limits = from->limits;
    p->n_vocab = from->logits >= 0 ? (int32_t)from->values[from->logits].width : 0;
    lace_status status = backend_ref.compile(d, from, o, &p->plain, err);
    if (status != LACE_OK) {
        free_program(&p->base);
        return status;
    }
    p->plain->backend = &backend_ref;
    p->base.n_bytes = p->plain->n_bytes;
    p->base.room_bytes = p->plain->room_bytes;
    p->base.lowered = p->plain->lowered;
    p->p = p->plain->lowered;
    *out = &p->base;
    return LACE_OK;
}

static bool prepare_slot(late_program *p, late_slot *s)
{
    size_t n = (size_t)p->limits.max_tokens, n_out = (size_t)p->limits.max_outputs;
    size_t n_tables = (size_t)p->options.n_groups * (size_t)p->options.n_sequences *
                      (size_t)p->options.pages_per_sequence;
    s->p = p;
    bool ok = (s->numbers = mem_calloc(NUMBERS * n, sizeof *s->numbers)) &&
              (s->tables = mem_calloc(n_tables + 1, sizeof *s->tables)) &&
              (s->rules = mem_calloc(n_out, sizeof *s->rules)) &&
              (s->words = mem_calloc(n_out, sizeof *s->words)) &&
              (s->logits = mem_calloc(n_out * (size_t)p->n_vocab + 1, sizeof *s->logits)) &&
              (s->hidden = mem_calloc(plan_hidden_floats(p->p) + 1, sizeof *s->hidden)) &&
              (s->given = mem_calloc(n * (size_t)plan_given_width(p->p) + 1, sizeof *s->given));
    for (int32_t g = 0; ok && g < p->options.n_groups; g++)
        ok = (s->pages[g] = mem_calloc(n, sizeof *s->pages[g])) != NULL;
    return ok;
}

static lace_status prepare(program *base, const program_memory *m, lace_error *err)
{
    late_program *p = (late_program *)base;
    size_t n = (size_t)p->options.n_sequences;
    p->queue = (late_queue *)m->queue;
    bool ok = (p->last_tokens = mem_calloc(n, sizeof *p->last_tokens)) &&
              (p->randoms = mem_calloc(n, sizeof *p->randoms)) &&
              (p->list = mem_calloc((size_t)p->n_vocab + 1, sizeof *p->list));
    for (int i = 0; ok && i < PROGRAM_SLOTS; i++)
        ok = prepare_slot(p, &p->slots[i]);
    if (!ok)
        return error_nomem(err, "a program");
    TRY(program_prepare(p->plain, m, err));
    base->values = p->plain->values;
    base->chooses = p->n_vocab > 0;
    base->queues = base->chooses && p->p->hidden < 0;
    return LACE_OK;
}

/* ---- Batches --------------------------------------------------------------------------------- */

static int32_t *keep(late_slot *s, int which, const int32_t *from, int32_t n)
{
    int32_t *to = s->numbers + (size_t)which * (size_t)s->p->limits.max_tokens;
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

/* Tables as they are now: they change before the batch is run. */
static void keep_tables(late_slot *s, const batch *b)
{
    const program_options *o = &s->p->options;
    for (int32_t g = 0; g < o->n_groups; g++)
        for (int32_t t = 0; t < b->n_tokens; t++) {
            size_t at = ((size_t)g * (size_t)o->n_sequences + (size_t)b->sequences[t]) *
                        (size_t)o->pages_per_sequence;
            s->pages[g][t] = s->tables + at;
            memcpy(s->tables + at, b->pages[g][t],
                   (size_t)o->pages_per_sequence * sizeof *s->tables);
        }
}

/* Sequences may have other adapters before the batch is run. */
static lace_status keep_adapters(late_slot *s, const batch *b, lace_error *err)
{
    size_t n = (size_t)s->p->options.n_sequences * (size_t)b->n_adapters;
    if (!b->adapter_scales)
        return LACE_OK;
    if (!s->adapter_scales && !(s->adapter_scales = mem_calloc(n, sizeof *s->adapter_scales)))
        return error_nomem(err, "a batch");
    memcpy(s->adapter_scales, b->adapter_scales, n * sizeof *s->adapter_scales);
    s->b.adapter_scales = s->adapter_scales;
    s->b.n_adapters = b->n_adapters;
    return LACE_OK;
}

/* What images need. */
static void keep_images(late_slot *s, const batch *b)
{
    size_t width = (size_t)plan_given_width(s->p->p);
    if (b->embeddings && width > 0) {
        memcpy(s->given, b->embeddings, (size_t)b->n_tokens * width * sizeof *s->given);
        s->b.embeddings = s->given;
        s->b.embedding_width = b->embedding_width;
    }
    if (b->seen)
        s->b.seen = keep(s, 5, b->seen, b->n_tokens);
    if (b->axes)
        s->b.axes = keep(s, 6, b->axes, b->n_axes * b->n_tokens);
    s->b.n_axes = b->n_axes;
}

static lace_status submit(program *base, const batch *b, const choice_rule *rules, lace_error *err)
{
    late_program *p = (late_program *)base;
    late_slot *s = &p->slots[p->n_submitted % PROGRAM_SLOTS];
    if (p->n_submitted - p->n_collected == PROGRAM_SLOTS)
        return error_set(err, LACE_E_ARG, "%d batches are under way", PROGRAM_SLOTS);
    s->b = (batch){.n_tokens = b->n_tokens,
                   .n_outputs = b->n_outputs,
                   .tokens = keep(s, 0, b->tokens, b->n_tokens),
                   .positions = keep(s, 1, b->positions, b->n_tokens),
                   .sequences = keep(s, 2, b->sequences, b->n_tokens),
                   .outputs = keep(s, 3, b->outputs, b->n_outputs),
                   .slots = b->slots ? keep(s, 4, b->slots, b->n_tokens) : NULL,
                   .pages = (const int32_t *const *const *)s->pages};
    keep_tables(s, b);
    keep_images(s, b);
    TRY(keep_adapters(s, b, err));
    s->has_rules = rules != NULL;
    if (rules)
        memcpy(s->rules, rules, (size_t)b->n_outputs * sizeof *rules);
    for (int32_t i = 0; i < b->n_outputs; i++)
        s->words[i] = CHOICE_REFUSED;
    TRY(add_work(p->queue, (late_work){.batch = s}, err));
    p->n_submitted++;
    return LACE_OK;
}

/* Row i of a batch that has been run. */
static void choose_row(late_slot *s, int32_t i)
{
    late_program *p = s->p;
    const float *row = program_logits(p->plain, i);
    float *out = s->logits + (size_t)i * (size_t)p->n_vocab;
    int32_t sequence = s->b.sequences[s->b.outputs[i]];
    choice_rule *rule = &s->rules[i];
    if (s->has_rules && rule->goes_on)
        memcpy(rule->random, p->randoms[sequence], sizeof rule->random);
    if (s->has_rules)
        s->words[i] = choose_ref(rule, row, p->n_vocab, p->list);
    bool is_refused = s->words[i] == CHOICE_REFUSED;
    p->last_tokens[sequence] = is_refused ? 0 : (s->words[i] & CHOICE_TOKEN) - 1;
    memcpy(p->randoms[sequence], rule->random, sizeof rule->random);
    for (int32_t t = 0; t < p->n_vocab; t++)
        out[t] = is_refused ? row[t] : NAN;
}

/* Of a batch that the reference has run. */
static void keep_hidden(late_slot *s, const batch *b)
{
    const late_program *p = s->p;
    for (int32_t i = 0; i < plan_hidden_rows(p->p, b); i++) {
        size_t width = (size_t)p->p->values[p->p->hidden].width;
        memcpy(s->hidden + (size_t)i * width, program_hidden(p->plain, i), width * sizeof(float));
    }
}

static lace_status run_slot(late_slot *s, lace_error *err)
{
    late_program *p = s->p;
    int32_t *tokens = s->numbers;
    for (int32_t t = 0; t < s->b.n_tokens; t++)
        if (tokens[t] == TOKEN_CHOSEN)
            tokens[t] = p->last_tokens[s->b.sequences[t]];
    TRY(program_run(p->plain, &s->b, NULL, false, err));
    keep_hidden(s, &s->b);
    for (int32_t i = 0; i < s->b.n_outputs; i++)
        choose_row(s, i);
    return LACE_OK;
}

static lace_status collect(program *base, lace_error *err)
{
    late_program *p = (late_program *)base;
    late_slot *s = &p->slots[p->n_collected++ % PROGRAM_SLOTS];
    work_off(p->queue, s);
    if (p->queue->status != LACE_OK && err)
        *err = p->queue->err;
    return p->queue->status;
}

/* With a trace, of an encoder, or of a part: at once, by the reference. */
static lace_status run(program *base, const batch *b, const choice_rule *rules, bool is_traced,
                       lace_error *err)
{
    late_program *p = (late_program *)base;
    TRY(queue_wait(&p->queue->base, err));
    if (p->n_vocab > 0 && !is_traced && !b->segments) {
        TRY(submit(base, b, rules, err));
        return collect(base, err);
    }
    late_slot *s = &p->slots[p->n_submitted++ % PROGRAM_SLOTS];
    p->n_collected++;
    TRY(program_run(p->plain, b, NULL, is_traced, err));
    keep_hidden(s, b);
    for (int32_t i = 0; p->n_vocab > 0 && i < b->n_outputs; i++) {
        s->words[i] = CHOICE_REFUSED;
        memcpy(s->logits + (size_t)i * (size_t)p->n_vocab, program_logits(p->plain, i),
               (size_t)p->n_vocab * sizeof *s->logits);
    }
    return LACE_OK;
}

static late_slot *last_slot(const program *base)
{
    late_program *p = (late_program *)(uintptr_t)base;
    return &p->slots[(p->n_collected + PROGRAM_SLOTS - 1) % PROGRAM_SLOTS];
}

static const float *logits(const program *base, int32_t row)
{
    return last_slot(base)->logits + (size_t)row * (size_t)((const late_program *)base)->n_vocab;
}

static const float *hidden(const program *base, int32_t row)
{
    const plan *p = ((const late_program *)base)->p;
    return last_slot(base)->hidden + (size_t)row * (size_t)p->values[p->hidden].width;
}

static int32_t word(const program *base, int32_t row)
{
    return last_slot(base)->words[row];
}

static int32_t n_steps(const program *base)
{
    return program_n_steps(((const late_program *)base)->plain);
}

static program_step step_at(const program *base, int32_t i, const batch *b)
{
    return program_step_at(((const late_program *)base)->plain, i, b);
}

static void run_steps(program *base, const batch *b, int32_t begin, int32_t end)
{
    program_run_steps(((late_program *)base)->plain, b, begin, end);
}

/* ---- The device ------------------------------------------------------------------------------ */

static lace_status describe(device *d, device_info *out, lace_error *err)
{
    *out = (device_info){.name = "reference, late",
                         .usual_batch = 64,
                         .tile_rows = LATE_TILE,
                         .step_rows = LATE_STEP,
                         .computes_late = true,
                         .has_all_caches = true};
    return LACE_OK;
}

static int count(void)
{
    return backend_ref.count();
}

static lace_status open(int index, const device_options *o, device **out, lace_error *err)
{
    return backend_ref.open(index, o, out, err);
}

static void close(device *d)
{
    backend_ref.close(d);
}

static lace_status place(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    return backend_ref.place(d, rows, out, err);
}

static lace_status place_streamed(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    return backend_ref.place_streamed(d, rows, out, err);
}

static const backend backend_late = {
    .name = "ref",
    .count = count,
    .open = open,
    .close = close,
    .describe = describe,
    .open_queue = open_queue,
    .place = place,
    .place_streamed = place_streamed,
    .compile = compile,
    .prepare = prepare,
    .free = free_program,
    .run = run,
    .submit = submit,
    .collect = collect,
    .logits = logits,
    .hidden = hidden,
    .n_steps = n_steps,
    .step_at = step_at,
    .run_steps = run_steps,
    .word = word,
};

lace_status late_device_open(device **out, lace_error *err)
{
    TRY(backend_ref.open(0, NULL, out, err));
    (*out)->backend = &backend_late;
    (*out)->collects = false; /* as of a card: a host beside it does that */
    return LACE_OK;
}
