/* A rank that does what rank 0 tells it. */
#include "runner/follower.h"

#include <string.h>

#include "rank/record.h"
#include "runner/leader.h"

typedef struct follower {
    model *m;
    ranks *ranks;
    runner *runners[RECORD_RUNNERS];
} follower;

/* ---- Runners --------------------------------------------------------------------------------- */

static bool is_of_cache(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_Q8_0 || type == DTYPE_Q5_0 ||
           type == DTYPE_IQ4_NL;
}

static lace_status open_runner(follower *f, int32_t number, const record_open *open,
                               lace_error *err)
{
    if (f->runners[number])
        return error_set(err, LACE_E_ARG, "runner %d is open already", number);
    runner_options o = {.n_sequences = open->n_sequences,
                        .n_context = open->n_context,
                        .n_batch = open->n_batch,
                        .n_outputs = open->n_outputs,
                        .n_threads = open->n_threads,
                        .kv_type = (dtype)open->kv_type,
                        .v_type = (dtype)open->v_type,
                        .stops_at_hidden = open->stops_at_hidden,
                        .wants_scores = open->wants_scores};
    if (!is_of_cache(o.kv_type) || !is_of_cache(o.v_type))
        return error_set(err, LACE_E_TYPE, "a KV cache cannot be of types number %d and %d",
                         o.kv_type, o.v_type);
    runner *r;
    TRY(runner_outline(f->m, &o, &r, err));
    f->runners[number] = r;
    if (r->states->n_groups != open->n_groups)
        return error_set(err, LACE_E_META, "rank 0 has %d groups of layers, this one %d",
                         open->n_groups, r->states->n_groups);
    states_set_pages(r->states, open->n_pages);
    return runner_prepare_alone(r, NULL, NULL, err);
}

static record_limits limits_of(const runner *r)
{
    const runner_options *o = &r->options;
    const states *kv = r->states;
    record_limits l = {
        .n_batch = o->n_batch,
        .n_outputs = (int32_t)min_i64(o->n_outputs, o->n_batch),
        .n_sequences = o->n_sequences,
        .n_context = o->n_context,
        .n_vocab = r->m->config.n_vocab,
        .n_segments = r->m->config.encoder.n_segments,
        .pages_per_sequence = kv->pages_per_sequence,
        .n_groups = kv->n_groups,
        .n_slots = kv->slots.slot_bytes ? kv->slots.n_sequences + kv->slots.n_snapshots : 0};
    for (int32_t g = 0; g < kv->n_groups; g++)
        l.n_pages[g] = kv->groups[g].n_pages;
    l.n_segments = l.n_segments > 0 ? l.n_segments : 1;
    return l;
}

/* ---- Batches --------------------------------------------------------------------------------- */

static lace_status copy_state(const runner *r, const record_copy *c, lace_error *err)
{
    const states *kv = r->states;
    bool is_slot = c->what == RECORD_SLOTS;
    const slot_part *part = &kv->slots.parts[slots_device(&kv->slots)];
    const page_group *group = &kv->groups[is_slot ? 0 : c->what];
    uint8_t *data = is_slot ? part->data : group->data;
    uint64_t size = is_slot ? part->slot_bytes : group->page_bytes;
    queue *q = is_slot ? part->queue : group->queue;
    uint8_t *to = data + (uint64_t)c->to * size;
    return c->from == RECORD_NOTHING
               ? queue_zero(q, to, size, err)
               : queue_copy(q, to, data + (uint64_t)c->from * size, size, err);
}

/* Whether a token's sequence has the pages that it needs; those of the token before it are known. */
static bool has_pages(const runner *r, int32_t token)
{
    const states *kv = r->states;
    int32_t s = r->sequences[token], at = r->positions[token];
    int32_t end = (batch_seen(&r->b, token) - 1) / PAGE_TOKENS;
    bool goes_on = token > 0 && r->sequences[token - 1] == s && r->positions[token - 1] < at;
    for (int32_t g = 0; g < kv->n_groups; g++) {
        int32_t begin =
            goes_on ? r->positions[token - 1] / PAGE_TOKENS : states_first_page(kv, g, at);
        for (int32_t i = begin; i <= end; i++)
            if (kv->sequences[s].tables[g][i] < 0)
                return false;
    }
    return true;
}

static lace_status fill(runner *r, const record_run *run, lace_error *err)
{
    states *kv = r->states;
    size_t bytes = (size_t)run->n_tokens * sizeof(int32_t);
    for (int32_t i = 0; i < run->n_edits; i++) {
        const record_edit *e = &run->edits[i];
        kv->sequences[e->sequence].tables[e->group][e->index] = e->page;
    }
    r->b.n_tokens = run->n_tokens;
    r->b.n_outputs = run->n_outputs;
    memcpy(r->tokens, run->tokens, bytes);
    memcpy(r->sequences, run->sequences, bytes);
    memcpy(r->positions, run->positions, bytes);
    memcpy(r->outputs, run->outputs, (size_t)run->n_outputs * sizeof(int32_t));
    if (!r->b.seen != !run->seen)
        return error_set(err, LACE_E_META, "rank 0 has a model of another kind");
    if (run->seen) {
        memcpy(r->seen, run->seen, bytes);
        memcpy(r->segments, run->segments, bytes);
    }
    for (int32_t i = 0; i < run->n_tokens; i++) {
        int32_t s = r->sequences[i];
        r->slots[i] = states_slot(kv, s);
        for (int32_t g = 0; g < kv->n_groups; g++)
            r->pages[g][i] = kv->sequences[s].tables[g];
        if (!has_pages(r, i))
            return error_set(err, LACE_E_LIMIT, "sequence %d has no page for position %d", s,
                             r->positions[i]);
    }
    return LACE_OK;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Do what a record says. */
static lace_status obey(follower *f, const int32_t *words, int64_t n, bool *is_over,
                        lace_error *err)
{
    record rec;
    record_limits limits = {0};
    TRY(record_read_header(words, n, &rec, err));
    runner *r = f->runners[rec.runner];
    if (r)
        limits = limits_of(r);
    else if (rec.kind == RECORD_COPY || rec.kind == RECORD_RUN)
        return error_set(err, LACE_E_ARG, "runner %d is not open", rec.runner);
    TRY(record_read(words, n, &limits, &rec, err));
    switch (rec.kind) {
    case RECORD_OPEN: /* a failure is reported by rank 0, which closes it then */
        ranks_agree(f->ranks, open_runner(f, rec.runner, &rec.open, err), err);
        return ranks_status(f->ranks, err);
    case RECORD_CLOSE:
        runner_free(r);
        f->runners[rec.runner] = NULL;
        return LACE_OK;
    case RECORD_COPY:
        return copy_state(r, &rec.copy, err);
    case RECORD_RUN:
        TRY(fill(r, &rec.run, err));
        TRY(runner_run(r, NULL, false, err));
        return ranks_status(f->ranks, err);
    case RECORD_END:
        *is_over = true;
        return LACE_OK;
    default:
        return LACE_OK;
    }
}

lace_status follower_run(model *m, lace_error *err)
{
    follower f = {.m = m, .ranks = m->ranks};
    lace_error why = {0};
    lace_status status = LACE_OK;
    for (bool is_over = false; !is_over && status == LACE_OK;) {
        const int32_t *words;
        int64_t n;
        status = ranks_hear(f.ranks, &words, &n);
        if (status != LACE_OK)
            error_set(&why, status, "%s", f.ranks->fault.text);
        else
            status = obey(&f, words, n, &is_over, &why);
    }
    if (status != LACE_OK)
        ranks_fail(f.ranks, status, why.text);
    for (int32_t i = 0; i < RECORD_RUNNERS; i++)
        runner_free(f.runners[i]);
    return status == LACE_OK ? LACE_OK : error_set(err, status, "%s", why.text);
}
