/*
 * Sessions: workers, a KV cache and a plan, and the tokens that go through them.
 *
 * A session is used by one thread at a time. Evaluating allocates nothing: all arrays have their
 * largest size from the start.
 */
#include <inttypes.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file_guard.h"
#include "base/mem.h"
#include "engine/engine.h"

enum {
    DEFAULT_CONTEXT = 4096,
    DEFAULT_BATCH = 512,
    CARD_BATCH = 2048, /* Llama-3-8B on an H200: 30,586 tokens/s, 23,779 with 512 */
    MAX_BATCH = 1 << 16,
    MAX_SEQUENCES = 1 << 16,
    MAX_THREADS = 1024
};

lace_session_options lace_session_options_default(void)
{
    return (lace_session_options){.n_sequences = 1, .kv_type = LACE_KV_F16};
}

/* ---- Options and memory ---------------------------------------------------------------------- */

static lace_status check_range(const char *name, int64_t found, int64_t low, int64_t high,
                               lace_error *err)
{
    if (found >= low && found <= high)
        return LACE_OK;
    return error_set(err, LACE_E_ARG, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, name,
                     found, low, high);
}

/* A batch that was not asked for: one token of each sequence fits. */
static int32_t batch_for(const lace_session_options *o, int32_t usual)
{
    return o->n_sequences > usual ? o->n_sequences : usual;
}

static lace_status fill_options(const lace_model *lm, const lace_session_options *given,
                                lace_session_options *out, lace_error *err)
{
    lace_session_options o = given ? *given : lace_session_options_default();
    if (!lm->m)
        return error_set(err, LACE_E_ARG, "the model was opened for its vocabulary alone");
    int32_t trained = lm->m->config.n_context;
    if (o.n_context == 0)
        o.n_context = trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    if (o.n_threads == 0)
        o.n_threads = cpu_count() < MAX_THREADS ? cpu_count() : MAX_THREADS;
    if (o.n_outputs == 0)
        o.n_outputs = o.n_sequences;
    if (o.n_batch == 0)
        o.n_batch = batch_for(&o, lm->m->card ? CARD_BATCH : DEFAULT_BATCH);
    TRY(check_range("n_context", o.n_context, 1, CONFIG_MAX_CONTEXT, err));
    TRY(check_range("n_sequences", o.n_sequences, 1, MAX_SEQUENCES, err));
    TRY(check_range("n_batch", o.n_batch, 1, MAX_BATCH, err));
    TRY(check_range("n_outputs", o.n_outputs, 1, MAX_BATCH, err));
    TRY(check_range("n_threads", o.n_threads, 1, MAX_THREADS, err));
    TRY(check_range("kv_type", o.kv_type, LACE_KV_F32, LACE_KV_Q8_0, err));
    *out = o;
    return LACE_OK;
}

static lace_status create_cache(const model *m, const lace_session_options *o, queue *q,
                                states **out, lace_error *err)
{
    static const dtype types[] = {
        [LACE_KV_F32] = DTYPE_F32, [LACE_KV_F16] = DTYPE_F16, [LACE_KV_Q8_0] = DTYPE_Q8_0};
    states_options options = {.type = types[o->kv_type],
                              .n_sequences = o->n_sequences,
                              .n_context = o->n_context,
                              .n_batch = o->n_batch,
                              .n_snapshots = SLOT_KEPT * o->n_sequences,
                              .max_bytes = o->kv_bytes,
                              .queue = q};
    return model_states(m, &options, out, err);
}

static lace_status create_plan(const model *m, const lace_session_options *o, const states *kv,
                               plan **out, lace_error *err)
{
    plan_limits limits = {.max_tokens = o->n_batch,
                          .max_outputs = o->n_outputs < o->n_batch ? o->n_outputs : o->n_batch,
                          .n_context = o->n_context,
                          .n_workers = o->n_threads,
                          .stops_at_hidden = o->wants_hidden};
    TRY(plan_create(&m->kernels, &limits, out, err));
    m->arch->build(m, *out, kv->layers);
    lace_status status = plan_finish(*out, err);
    if (status != LACE_OK) {
        plan_free(*out);
        *out = NULL;
    }
    return status;
}

static gpu_plan_options card_options(const model *m, const lace_session_options *o,
                                     const states *kv, queue *q)
{
    return (gpu_plan_options){.g = m->card,
                              .queue = q ? card_queue_stream(q) : NULL,
                              .n_sequences = o->n_sequences,
                              .pages_per_sequence = kv->pages_per_sequence,
                              .n_groups = kv->n_groups,
                              .embedding = m->card_embedding};
}

/* Rows that outlive a batch, when an eval needs several. */
static size_t result_width(const model *m, const lace_session_options *o)
{
    return (size_t)(o->wants_hidden ? m->config.n_embd : m->config.n_vocab);
}

static uint64_t kept_logits_bytes(const model *m, const lace_session_options *o)
{
    return 4 * (uint64_t)o->n_outputs * (uint64_t)result_width(m, o);
}

static lace_memory add_up(const model *m, const lace_session_options *o, const states *kv,
                          const plan *p)
{
    lace_memory need = {.weights = model_weight_bytes(m),
                        .kv = states_bytes(kv),
                        .scratch = plan_memory_bytes(p) + kept_logits_bytes(m, o)};
    if (m->card) {
        gpu_plan_options card = card_options(m, o, kv, NULL);
        cuda_info info;
        need.scratch = gpu_plan_bytes(p, &card);
        if (cuda_describe(m->card->device, &info, NULL) == LACE_OK)
            need.available = info.free_bytes + (m->is_loaded ? need.weights : 0);
    }
    need.total = need.weights + need.kv + need.scratch;
    return need;
}

/* Through which weights are loaded, and what the driver takes for itself. */
static const uint64_t CARD_RESERVE = (uint64_t)384 << 20;

static lace_status check_budget(const lace_memory *need, uint64_t budget, lace_error *err)
{
    const double mib = 1024.0 * 1024.0;
    if (need->available && need->total + CARD_RESERVE > need->available)
        return error_set(err, LACE_E_MEMORY,
                         "needs %.1f MiB on the GPU (weights %.1f, KV cache %.1f, scratch %.1f, "
                         "loading %.1f), which has %.1f MiB free; a shorter context or fewer "
                         "sequences need less, --device cpu needs none",
                         (double)(need->total + CARD_RESERVE) / mib, (double)need->weights / mib,
                         (double)need->kv / mib, (double)need->scratch / mib,
                         (double)CARD_RESERVE / mib, (double)need->available / mib);
    if (budget == 0 || need->total <= budget)
        return LACE_OK;
    return error_set(
        err, LACE_E_MEMORY,
        "needs %.1f MiB (weights %.1f, KV cache %.1f, scratch %.1f), the memory budget "
        "is %.1f MiB; a shorter context or a smaller batch needs less",
        (double)need->total / mib, (double)need->weights / mib, (double)need->kv / mib,
        (double)need->scratch / mib, (double)budget / mib);
}

/*
 * Options with their defaults, the cache and the plan without their memory, and what they need. A
 * batch that was not asked for is a smaller one where the usual one of a card does not fit.
 */
static lace_status outline(const lace_model *lm, const lace_session_options *given, queue *q,
                           lace_session_options *o, states **kv, plan **p, lace_memory *need,
                           lace_error *err)
{
    bool is_fixed = given && given->n_batch != 0;
    TRY(fill_options(lm, given, o, err));
    for (;;) {
        TRY(create_cache(lm->m, o, q, kv, err));
        lace_status status = create_plan(lm->m, o, *kv, p, err);
        int32_t less = batch_for(o, DEFAULT_BATCH);
        if (status == LACE_OK)
            *need = add_up(lm->m, o, *kv, *p);
        if (status == LACE_OK && (is_fixed || o->n_batch <= less ||
                                  check_budget(need, o->memory_bytes, NULL) == LACE_OK))
            return LACE_OK;
        plan_free(*p);
        states_free(*kv);
        *p = NULL;
        *kv = NULL;
        if (status != LACE_OK)
            return status;
        o->n_batch = less;
    }
}

lace_status lace_session_memory(const lace_model *lm, const lace_session_options *options,
                                lace_memory *out, lace_error *err)
{
    lace_session_options o;
    states *kv = NULL;
    plan *p = NULL;
    *out = (lace_memory){0};
    TRY(outline(lm, options, &host_queue, &o, &kv, &p, out, err));
    plan_free(p);
    states_free(kv);
    return LACE_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status allocate_arrays(lace_session *s, lace_error *err)
{
    const lace_session_options *o = &s->options;
    size_t n = (size_t)o->n_batch, n_sequences = (size_t)o->n_sequences;
    bool ok = (s->tokens = mem_calloc(n, sizeof *s->tokens)) &&
              (s->positions = mem_calloc(n, sizeof *s->positions)) &&
              (s->outputs = mem_calloc(n, sizeof *s->outputs)) &&
              (s->sequences = mem_calloc(n, sizeof *s->sequences)) &&
              (s->lengths = mem_calloc(n_sequences, sizeof *s->lengths)) &&
              (s->new_lengths = mem_calloc(n_sequences, sizeof *s->new_lengths)) &&
              (s->logits = mem_calloc((size_t)o->n_outputs, sizeof *s->logits)) &&
              (s->kept_logits = mem_map(kept_logits_bytes(s->model->m, o)));
    for (int32_t g = 0; ok && g < s->kv->n_groups; g++)
        ok = (s->pages[g] = mem_calloc(n, sizeof *s->pages[g])) != NULL;
    return ok ? LACE_OK : error_nomem(err, "a session");
}

static lace_status load_weights(lace_session *s, lace_error *err)
{
    pthread_mutex_lock(&s->model->load_lock);
    lace_status status =
        model_load(s->model->m, s->workers, s->options.on_progress, s->options.progress_user, err);
    pthread_mutex_unlock(&s->model->load_lock);
    return status;
}

/* The plan's memory and the weights: on the card, or in the host's memory. */
static lace_status make_ready(lace_session *s, lace_error *err)
{
    uint8_t *kv_data[STATES_MAX_GROUPS] = {0};
    for (int32_t g = 0; g < s->kv->n_groups; g++)
        kv_data[g] = s->kv->groups[g].data;
    if (s->queue == &host_queue) {
        TRY(plan_allocate(s->p, kv_data, err));
        return load_weights(s, err);
    }
    /* Steps take the addresses of weights that are there. */
    TRY(load_weights(s, err));
    gpu_plan_options card = card_options(s->model->m, &s->options, s->kv, s->queue);
    card.kv_data = kv_data;
    return gpu_plan_create(s->p, &card, &s->on_card, err);
}

lace_status lace_session_create(lace_model *lm, const lace_session_options *options,
                                lace_session **out, lace_error *err)
{
    *out = NULL;
    lace_session *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a session");
    s->model = lm;
    lace_status status;
    lace_memory need;
    s->queue = &host_queue;
    if (lm->m && lm->m->card)
        TRY_GOTO(status, fail, card_queue_open(lm->m->card->device, &s->queue, err));
    TRY_GOTO(status, fail, outline(lm, options, s->queue, &s->options, &s->kv, &s->p, &need, err));
    TRY_GOTO(status, fail, check_budget(&need, s->options.memory_bytes, err));

    TRY_GOTO(status, fail, pool_create(s->options.n_threads, &s->workers, err));
    TRY_GOTO(status, fail, states_allocate(s->kv, err));
    TRY_GOTO(status, fail, allocate_arrays(s, err));
    TRY_GOTO(status, fail, make_ready(s, err));
    *out = s;
    return LACE_OK;

fail:
    lace_session_free(s);
    return status;
}

void lace_session_free(lace_session *s)
{
    if (!s)
        return;
    pool_free(s->workers);
    session_trace_free(s->trace);
    gpu_plan_free(s->on_card);
    plan_free(s->p);
    states_free(s->kv);
    queue_close(s->queue);
    for (int32_t g = 0; g < STATES_MAX_GROUPS; g++)
        mem_free(s->pages[g]);
    mem_free(s->tokens);
    mem_free(s->positions);
    mem_free(s->outputs);
    mem_free(s->sequences);
    mem_free(s->lengths);
    mem_free(s->new_lengths);
    mem_free(s->logits);
    mem_unmap(s->kept_logits, kept_logits_bytes(s->model->m, &s->options));
    mem_free(s);
}

/* ---- Evaluation ------------------------------------------------------------------------------ */

/* Checks every item and leaves the lengths after the whole eval in new_lengths. */
static lace_status check_items(lace_session *s, const lace_item *items, size_t n_items,
                               lace_error *err)
{
    const lace_session_options *o = &s->options;
    int32_t n_vocab = s->model->m->config.n_vocab;
    size_t n_outputs = 0;
    for (int32_t i = 0; i < o->n_sequences; i++)
        s->lengths[i] = s->new_lengths[i] = s->kv->sequences[i].n_tokens;
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].token < 0 || items[i].token >= n_vocab)
            return error_set(err, LACE_E_ARG, "item %zu: token %d, expected 0 to %d", i,
                             items[i].token, n_vocab - 1);
        if (items[i].sequence < 0 || items[i].sequence >= o->n_sequences)
            return error_set(err, LACE_E_ARG, "item %zu: sequence %d, expected 0 to %d", i,
                             items[i].sequence, o->n_sequences - 1);
        if (++s->new_lengths[items[i].sequence] > o->n_context)
            return error_set(
                err, LACE_E_CONTEXT,
                "sequence %d holds %d tokens, and the new ones do not fit into its context of %d",
                items[i].sequence, s->lengths[items[i].sequence], o->n_context);
        n_outputs += items[i].want_logits;
    }
    if (n_outputs > (size_t)o->n_outputs)
        return error_set(
            err, LACE_E_ARG,
            "logits are asked for %zu items, but the session has room for %d (n_outputs)",
            n_outputs, o->n_outputs);
    return LACE_OK;
}

/* Puts up to n_batch items into the arrays of the batch. Returns how many. */
static size_t fill_batch(lace_session *s, const lace_item *items, size_t n_items, batch *b)
{
    size_t n = n_items < (size_t)s->options.n_batch ? n_items : (size_t)s->options.n_batch;
    for (int32_t i = 0; i < s->options.n_sequences; i++)
        s->new_lengths[i] = s->kv->sequences[i].n_tokens;
    *b = (batch){.n_tokens = (int32_t)n,
                 .tokens = s->tokens,
                 .positions = s->positions,
                 .outputs = s->outputs,
                 .pages = (const int32_t *const *const *)s->pages};
    for (size_t i = 0; i < n; i++) {
        s->tokens[i] = items[i].token;
        s->sequences[i] = items[i].sequence;
        s->positions[i] = s->new_lengths[items[i].sequence]++;
        for (int32_t g = 0; g < s->kv->n_groups; g++)
            s->pages[g][i] = s->kv->sequences[items[i].sequence].tables[g];
        /* A plan has room for so many outputs; check_items has seen to it. */
        if (items[i].want_logits)
            s->outputs[b->n_outputs++] = (int32_t)i;
    }
    return n;
}

/* Where this batch's logits are; kept aside if another batch of the same eval follows. */
static void collect_logits(lace_session *s, const batch *b, bool is_last)
{
    size_t width = result_width(s->model->m, &s->options);
    for (int32_t i = 0; i < b->n_outputs; i++) {
        const float *row = s->on_card ? gpu_plan_logits(s->on_card, i) : plan_logits(s->p, i);
        if (!is_last) {
            float *kept = s->kept_logits + (size_t)s->n_logits * width;
            memcpy(kept, row, width * sizeof *kept);
            row = kept;
        }
        s->logits[s->n_logits++] = row;
    }
}

/*
 * Everything as it was before the eval. If earlier batches of it have moved a window on, what the
 * sequence saw before is gone; then all of it is, so that nobody reads pages that are not there.
 */
static lace_status undo_eval(lace_session *s, lace_status status)
{
    for (int32_t i = 0; i < s->options.n_sequences; i++)
        states_set_length(s->kv, i,
                          states_can_truncate(s->kv, i, s->lengths[i]) ? s->lengths[i] : 0);
    s->n_logits = 0;
    return status;
}

static lace_status run_batch(lace_session *s, const batch *b, const choice_rule *rules,
                             lace_error *err)
{
    plan_trace *trace = session_trace_times(s->trace);
    if (s->on_card)
        return gpu_plan_run(s->on_card, b, s->sequences, rules, trace, err);
    if (s->has_run)
        model_pack_more(s->model->m, s->workers);
    s->has_run = true;
    plan_run(s->p, s->workers, b, trace);
    return file_guard_is_broken()
               ? error_set(
                     err, LACE_E_IO,
                     "a model file was truncated while it was in use; restore it and start again")
               : LACE_OK;
}

lace_status session_eval_choosing(lace_session *s, const lace_item *items, size_t n_items,
                                  const choice_rule *rules, lace_error *err)
{
    s->n_logits = 0;
    s->has_words = false;
    TRY(check_items(s, items, n_items, err));
    for (size_t at = 0; at < n_items;) {
        batch b;
        size_t n = fill_batch(s, items + at, n_items - at, &b);
        lace_status status = states_reserve_all(s->kv, s->new_lengths, err);
        if (status == LACE_OK)
            status = run_batch(s, &b, n == n_items ? rules : NULL, err);
        if (status != LACE_OK)
            return undo_eval(s, status);
        session_trace_add(s->trace, s->p, &b, !s->on_card);
        for (int32_t i = 0; i < s->options.n_sequences; i++)
            if (s->new_lengths[i] != s->kv->sequences[i].n_tokens)
                states_set_length(s->kv, i, s->new_lengths[i]);
        at += n;
        collect_logits(s, &b, at == n_items);
        s->has_words = s->on_card && rules && n == n_items;
    }
    return LACE_OK;
}

lace_status lace_session_eval(lace_session *s, const lace_item *items, size_t n_items,
                              lace_error *err)
{
    return session_eval_choosing(s, items, n_items, NULL, err);
}

int32_t session_word(const lace_session *s, size_t k)
{
    return s->has_words ? gpu_plan_word(s->on_card, (int32_t)k) : CHOICE_REFUSED;
}

const float *lace_session_logits(const lace_session *s, size_t k)
{
    return k < (size_t)s->n_logits ? s->logits[k] : NULL;
}

/* ---- Sequences ------------------------------------------------------------------------------- */

static bool is_sequence(const lace_session *s, int32_t sequence)
{
    return sequence >= 0 && sequence < s->options.n_sequences;
}

int32_t lace_session_length(const lace_session *s, int32_t sequence)
{
    return is_sequence(s, sequence) ? s->kv->sequences[sequence].n_tokens : 0;
}

lace_status lace_session_truncate(lace_session *s, int32_t sequence, int32_t n_tokens,
                                  lace_error *err)
{
    TRY(check_range("sequence", sequence, 0, s->options.n_sequences - 1, err));
    TRY(check_range("n_tokens", n_tokens, 0, lace_session_length(s, sequence), err));
    if (!states_can_truncate(s->kv, sequence, n_tokens))
        return error_set(
            err, LACE_E_UNSUPPORTED,
            "sequence %d cannot go back from %d to %d tokens: layers with a window have dropped "
            "the tokens that this needs; clear the sequence and evaluate it again",
            sequence, lace_session_length(s, sequence), n_tokens);
    states_set_length(s->kv, sequence, n_tokens);
    return LACE_OK;
}

lace_status lace_session_fork(lace_session *s, int32_t from, int32_t to, lace_error *err)
{
    TRY(check_range("from", from, 0, s->options.n_sequences - 1, err));
    TRY(check_range("to", to, 0, s->options.n_sequences - 1, err));
    if (from == to || s->kv->sequences[to].n_tokens != 0)
        return error_set(err, LACE_E_ARG, "sequence %d cannot become a copy: it is not empty", to);
    return states_fork(s->kv, from, to, err);
}
