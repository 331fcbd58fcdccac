/*
 * Sessions: a runner, and the tokens that go through it.
 *
 * A session is used by one thread at a time. Evaluating allocates nothing: all arrays have their
 * largest size from the start.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "backend/mixed.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/image.h"
#include "engine/together.h"

enum {
    DEFAULT_CONTEXT = 4096,
    ENCODER_CONTEXT = 8192,
    DEFAULT_BATCH = 512,
    MAX_BATCH = 1 << 16,
    MAX_SEQUENCES = 1 << 16,
    MAX_THREADS = 1024
};

lace_session_options lace_session_options_default(void)
{
    return (lace_session_options){.n_sequences = 1, .kv_type = LACE_KV_F16, .v_type = LACE_KV_SAME};
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

static int32_t usual_batch(const model *m)
{
    device_info info = {.usual_batch = DEFAULT_BATCH};
    device_describe(m->device, &info, NULL);
    return info.usual_batch;
}

/* Cores are shared among the ranks of this machine. */
static int32_t usual_threads(const lace_model *lm)
{
    int32_t n = cpu_count() / together_count(lm->others);
    return n < 1 ? 1 : n < MAX_THREADS ? n : MAX_THREADS;
}

/* Whether the model has what is wanted of it. */
static lace_status check_results(const model *m, const lace_session_options *o, lace_error *err)
{
    const encoder_config *e = &m->config.encoder;
    if (o->wants_scores && e->n_classes == 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the model has no head that gives scores: it is not a reranker");
    if (o->use_mtp && !m->predicting.is_bound)
        return error_set(err, LACE_E_ARG,
                         "use_mtp of a session needs a model that was opened with use_mtp");
    if (o->tower && (o->use_mtp || m->ranks))
        return error_set(err, LACE_E_UNSUPPORTED,
                         "images go neither with a layer that predicts further tokens (--mtp) nor "
                         "with several ranks");
    if (o->tower && (o->tower->config.n_out != m->config.n_embd ||
                     o->tower->config.n_deep > m->config.n_layers))
        return error_set(err, LACE_E_ARG,
                         "the tower of a session is another model's: its rows have %d values, the "
                         "model's embeddings %d",
                         o->tower->config.n_out, m->config.n_embd);
    if (e->is_on && !o->wants_hidden && !o->wants_scores)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the model is an encoder: it predicts no tokens; lace embed and lace "
                         "rerank use it");
    return LACE_OK;
}

/* Texts of an encoder are computed whole, so a batch holds the longest. */
static void fill_encoder(lace_session_options *o)
{
    if (o->n_batch == 0)
        o->n_batch = batch_for(o, o->n_context > DEFAULT_BATCH ? o->n_context : DEFAULT_BATCH);
    o->kv_tokens = o->n_batch > o->n_context ? o->n_batch : o->n_context;
    o->kv_bytes = 0;
}

lace_status session_fill_options(const lace_model *lm, const lace_session_options *given,
                                 lace_session_options *out, lace_error *err)
{
    lace_session_options o = given ? *given : lace_session_options_default();
    if (!lm->m)
        return error_set(err, LACE_E_ARG, "the model was opened for its vocabulary alone");
    TRY(check_results(lm->m, &o, err));
    int32_t trained = lm->m->config.n_context;
    bool is_encoder = lm->m->config.encoder.is_on;
    int32_t usual = is_encoder ? ENCODER_CONTEXT : DEFAULT_CONTEXT;
    if (o.n_context == 0)
        o.n_context = trained < usual ? trained : usual;
    if (is_encoder)
        fill_encoder(&o);
    if (o.n_threads == 0)
        o.n_threads = usual_threads(lm);
    if (o.n_outputs == 0)
        o.n_outputs = o.n_sequences;
    if (o.n_batch == 0)
        o.n_batch = batch_for(&o, usual_batch(lm->m));
    TRY(check_range("n_context", o.n_context, 1, CONFIG_MAX_CONTEXT, err));
    TRY(check_range("n_sequences", o.n_sequences, 1, MAX_SEQUENCES, err));
    TRY(check_range("n_batch", o.n_batch, 1, MAX_BATCH, err));
    TRY(check_range("n_outputs", o.n_outputs, 1, MAX_BATCH, err));
    TRY(check_range("n_threads", o.n_threads, 1, MAX_THREADS, err));
    TRY(check_range("kv_type", o.kv_type, LACE_KV_F32, LACE_KV_IQ4_NL, err));
    TRY(check_range("v_type", o.v_type, LACE_KV_SAME, LACE_KV_IQ4_NL, err));
    if (o.kv_tokens != 0)
        TRY(check_range("kv_tokens", o.kv_tokens, o.n_context, INT32_MAX, err));
    *out = o;
    return LACE_OK;
}

static runner_options runner_options_of(const lace_session_options *o)
{
    static const dtype types[] = {[LACE_KV_F32] = DTYPE_F32,
                                  [LACE_KV_F16] = DTYPE_F16,
                                  [LACE_KV_Q8_0] = DTYPE_Q8_0,
                                  [LACE_KV_Q5_0] = DTYPE_Q5_0,
                                  [LACE_KV_IQ4_NL] = DTYPE_IQ4_NL};
    const tower_config *tower = o->tower ? &o->tower->config : NULL;
    return (runner_options){.row_width = tower ? tower_row_width(tower) : 0,
                            .n_deep = tower ? tower->n_deep : 0,
                            .sees_both_ways = tower && tower_is_fixed(tower),
                            .n_sequences = o->n_sequences,
                            .n_context = o->n_context,
                            .n_batch = o->n_batch,
                            .n_outputs = o->n_outputs,
                            .n_threads = o->n_threads,
                            .kv_type = types[o->kv_type],
                            .v_type = types[o->v_type < 0 ? o->kv_type : o->v_type],
                            .kv_tokens = o->kv_tokens,
                            .kv_bytes = o->kv_bytes,
                            .stops_at_hidden = o->wants_hidden || o->wants_scores,
                            .wants_scores = o->wants_scores,
                            .gives_hidden = o->use_mtp};
}

/* Rows that outlive a batch, when an eval needs several. */
static uint64_t kept_logits_bytes(const runner *r)
{
    return 4 * (uint64_t)r->options.n_outputs * (uint64_t)runner_width(r);
}

/*
 * Of a model on several devices: how large all may be together if the KV cache alone grows, until one
 * of the cards is full; 0: none has a limit.
 */
static uint64_t available_of_parts(const runner *r, uint64_t total)
{
    model *m = r->m;
    uint64_t least = 0;
    for (int32_t d = 1; d < device_n_parts(m->device); d++) {
        device *part = device_part(m->device, d);
        device_info info = {0};
        uint64_t kv = states_bytes_on(r->states, d);
        if (device_describe(part, &info, NULL) != LACE_OK || info.total_bytes == 0 || kv == 0)
            continue;
        uint64_t used = part->weight_bytes + program_bytes_on(r->program, d) + info.loading_bytes;
        uint64_t room = info.free_bytes + (m->is_loaded ? part->weight_bytes : 0);
        double most = room > used ? (double)(room - used) / (double)kv : 0; /* of what it has now */
        uint64_t all =
            total - states_bytes(r->states) + (uint64_t)(most * (double)states_bytes(r->states));
        least = least == 0 || all < least ? all : least;
    }
    return least;
}

static lace_memory add_up(const runner *r, const predictor *p)
{
    const model *m = r->m;
    lace_memory need = {.weights = model_weight_bytes(m),
                        .kv = states_bytes(r->states),
                        .scratch = runner_bytes(r) + (p ? predictor_bytes(p) : 0),
                        .token_bytes = states_token_bytes(r->states),
                        .sequence_bytes = states_sequence_bytes(r->states)};
    device_info info = {0};
    if (m->device->is_host || device_n_parts(m->device) > 1)
        need.scratch += kept_logits_bytes(r);
    else if (device_describe(m->device, &info, NULL) == LACE_OK)
        need.available = info.free_bytes + (m->is_loaded ? need.weights : 0);
    if (m->ranks && m->ranks->is_here &&
        m->device->is_host) { /* all of them on this machine; of weights, all together */
        need.weights *= (uint64_t)m->ranks->shares.n_ranks;
        need.kv *= (uint64_t)m->ranks->shares.n_ranks;
        need.scratch *= (uint64_t)m->ranks->shares.n_ranks;
    }
    need.total = need.weights + need.kv + need.scratch;
    if (device_n_parts(m->device) > 1)
        need.available = available_of_parts(r, need.total);
    return need;
}

/* Memory that was not given: what all of it would have been. */
static lace_status tell_need(lace_status status, const lace_memory *need, lace_error *err)
{
    const double mib = 1024.0 * 1024.0;
    if (status != LACE_E_NOMEM || need->total == 0)
        return status;
    return error_set(err, status,
                     "out of memory: needs %.1f MiB (weights %.1f, KV cache %.1f, scratch %.1f); "
                     "a shorter context or a smaller batch needs less",
                     (double)need->total / mib, (double)need->weights / mib, (double)need->kv / mib,
                     (double)need->scratch / mib);
}

/* Of a model on several devices: whether each has room for its part. */
static lace_status check_parts(const runner *r, lace_error *err)
{
    const double mib = 1024.0 * 1024.0;
    model *m = r->m;
    for (int32_t d = 1; d < device_n_parts(m->device); d++) {
        device *part = device_part(m->device, d);
        uint64_t placed = part->weight_bytes, kv = states_bytes_on(r->states, d);
        uint64_t scratch = program_bytes_on(r->program, d);
        device_info info = {0};
        TRY(device_describe(part, &info, err));
        uint64_t available = info.free_bytes + (m->is_loaded ? placed : 0);
        if (info.total_bytes && placed + kv + scratch + info.loading_bytes > available)
            return error_set(err, LACE_E_MEMORY,
                             "needs %.1f MiB on %s (weights %.1f, KV cache %.1f, scratch %.1f, "
                             "loading %.1f), which has %.1f MiB free; fewer layers there "
                             "(--gpu-layers), experts in RAM (--cpu-moe), a shorter context or a "
                             "smaller batch need less",
                             (double)(placed + kv + scratch + info.loading_bytes) / mib,
                             m->where->devices[d], (double)placed / mib, (double)kv / mib,
                             (double)scratch / mib, (double)info.loading_bytes / mib,
                             (double)available / mib);
    }
    return LACE_OK;
}

static lace_status check_budget(const runner *r, const lace_memory *need, uint64_t budget,
                                lace_error *err)
{
    const double mib = 1024.0 * 1024.0;
    const model *m = r->m;
    TRY(check_parts(r, err));
    device_info info = {0};
    device_describe(m->device, &info, NULL);
    if (need->available && need->total + info.loading_bytes > need->available)
        return error_set(err, LACE_E_MEMORY,
                         "needs %.1f MiB on the GPU (weights %.1f, KV cache %.1f, scratch %.1f, "
                         "loading %.1f), which has %.1f MiB free; a shorter context or fewer "
                         "sequences need less, --device cpu needs none",
                         (double)(need->total + info.loading_bytes) / mib,
                         (double)need->weights / mib, (double)need->kv / mib,
                         (double)need->scratch / mib, (double)info.loading_bytes / mib,
                         (double)need->available / mib);
    if (budget == 0 || need->total <= budget)
        return LACE_OK;
    return error_set(
        err, LACE_E_MEMORY,
        "needs %.1f MiB (weights %.1f, KV cache %.1f, scratch %.1f), the memory budget "
        "is %.1f MiB; a shorter context or a smaller batch needs less",
        (double)need->total / mib, (double)need->weights / mib, (double)need->kv / mib,
        (double)need->scratch / mib, (double)budget / mib);
}

/* What computes: a runner, and what predicts if that is asked for. */
typedef struct engines {
    runner *runner;
    predictor *predictor;
} engines;

static void free_engines(engines *e)
{
    predictor_free(e->predictor);
    runner_free(e->runner);
    *e = (engines){0};
}

static lace_status outline_engines(model *m, const lace_session_options *o, engines *out,
                                   lace_error *err)
{
    runner_options options = runner_options_of(o);
    TRY(runner_outline(m, &options, &out->runner, err));
    lace_status status =
        o->use_mtp ? predictor_outline(out->runner, &out->predictor, err) : LACE_OK;
    if (status != LACE_OK)
        free_engines(out);
    return status;
}

/*
 * Options with their defaults, engines without their memory, and what they need. A batch that was
 * not asked for is a smaller one where the device's usual one does not fit.
 */
static lace_status outline(const lace_model *lm, const lace_session_options *given,
                           lace_session_options *o, engines *e, lace_memory *need, lace_error *err)
{
    TRY(session_fill_options(lm, given, o, err));
    bool is_fixed = (given && given->n_batch != 0) || lm->m->config.encoder.is_on;
    for (;;) {
        int32_t less = batch_for(o, DEFAULT_BATCH);
        TRY(outline_engines(lm->m, o, e, err));
        *need = add_up(e->runner, e->predictor);
        if (is_fixed || o->n_batch <= less ||
            check_budget(e->runner, need, o->memory_bytes, NULL) == LACE_OK)
            return LACE_OK;
        free_engines(e);
        o->n_batch = less;
    }
}

lace_status lace_session_memory(const lace_model *lm, const lace_session_options *options,
                                lace_memory *out, lace_error *err)
{
    lace_session_options o;
    engines e = {0};
    *out = (lace_memory){0};
    TRY(outline(lm, options, &o, &e, out, err));
    free_engines(&e);
    return LACE_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status allocate_arrays(lace_session *s, lace_error *err)
{
    const lace_session_options *o = &s->options;
    bool ok = (s->lengths = mem_calloc((size_t)o->n_sequences, sizeof *s->lengths)) &&
              (s->new_lengths = mem_calloc((size_t)o->n_sequences, sizeof *s->new_lengths)) &&
              (s->logits = mem_calloc((size_t)o->n_outputs, sizeof *s->logits)) &&
              (s->kept_logits = mem_map(kept_logits_bytes(s->runner)));
    if (ok && s->runner->states->slots.slot_bytes > 0)
        ok = (s->history = mem_calloc((size_t)o->n_sequences * (size_t)o->n_context,
                                      sizeof *s->history)) != NULL;
    return ok ? LACE_OK : error_nomem(err, "a session");
}

/* The first session of a model loads its weights; others wait for it. */
static lace_status prepare(lace_session *s, lace_error *err)
{
    pthread_mutex_lock(&s->model->load_lock);
    lace_status status =
        runner_prepare(s->runner, s->options.on_progress, s->options.progress_user, err);
    pthread_mutex_unlock(&s->model->load_lock);
    if (status == LACE_OK && s->predictor)
        status = predictor_prepare(s->predictor, err);
    return status;
}

/* A device that was lost is opened anew, if nothing else is left of before. */
static lace_status renew_device(lace_model *lm, lace_error *err)
{
    if (!lm->m)
        return LACE_OK;
    pthread_mutex_lock(&lm->load_lock);
    lace_status status = model_renew(lm->m, err);
    pthread_mutex_unlock(&lm->load_lock);
    return status;
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
    lace_memory need = {0};
    engines e = {0};
    TRY_GOTO(status, done, renew_device(lm, err));
    TRY_GOTO(status, done, outline(lm, options, &s->options, &e, &need, err));
    s->runner = e.runner;
    s->predictor = e.predictor;
    TRY_GOTO(status, done, check_budget(s->runner, &need, s->options.memory_bytes, err));
    TRY_GOTO(status, done, allocate_arrays(s, err));
    TRY_GOTO(status, done, prepare(s, err));
    s->kv = s->runner->states;
    s->workers = s->runner->workers;
    for (int32_t i = 0; i < s->options.n_sequences; i++)
        adapters_apply(s, i, NULL);
done:
    status = tell_need(status, &need, err);
    return GIVE_OR_FREE(status, s, out, lace_session_free);
}

void lace_session_free(lace_session *s)
{
    if (!s)
        return;
    session_trace_free(s->trace);
    session_free_images(s);
    mem_free_all(s->lengths, s->new_lengths, s->history, s->logits);
    if (s->kept_logits)
        mem_unmap(s->kept_logits, kept_logits_bytes(s->runner));
    predictor_free(s->predictor);
    runner_free(s->runner);
    mem_free(s);
}

/* ---- Evaluation ------------------------------------------------------------------------------ */

/* Whether an item, behind what new_lengths says, stands where an image's row is. */
static bool is_image_row(const lace_session *s, const lace_item *item)
{
    if (s->runner->options.row_width == 0 || item->sequence < 0 ||
        item->sequence >= s->options.n_sequences)
        return false;
    const image_span *row =
        image_at(&s->runner->images[item->sequence], s->new_lengths[item->sequence]);
    return row && row->rows;
}

/*
 * Checks every item and leaves the lengths after the whole eval in new_lengths. least: the smallest
 * token.
 */
static lace_status check_items(lace_session *s, const lace_item *items, size_t n_items,
                               lace_token least, lace_error *err)
{
    const lace_session_options *o = &s->options;
    const model_config *c = &s->model->m->config;
    int32_t n_vocab = c->n_vocab;
    size_t n_outputs = 0;
    for (int32_t i = 0; i < o->n_sequences; i++)
        s->lengths[i] = s->new_lengths[i] = s->kv->sequences[i].n_tokens;
    if (c->encoder.is_on && n_items > (size_t)o->n_batch)
        return error_set(err, LACE_E_LIMIT,
                         "%zu tokens are more than the %d that an encoder computes together",
                         n_items, o->n_batch);
    for (size_t i = 0; i < n_items; i++) {
        bool is_row = items[i].token < IMAGE_TOKENS && is_image_row(s, &items[i]);
        if ((items[i].token < least && !is_row) || items[i].token >= n_vocab)
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

static int32_t *history_of(const lace_session *s, int32_t sequence)
{
    return s->history + (size_t)sequence * (size_t)s->options.n_context;
}

/* Items that are checked: what sequences are made of. */
static void keep_history(lace_session *s, const lace_item *items, size_t n_items)
{
    for (size_t i = n_items; s->history && i-- > 0;) /* new_lengths go back to where they began */
        history_of(s, items[i].sequence)[--s->new_lengths[items[i].sequence]] = items[i].token;
}

/* Where this batch's logits are; kept aside if another batch of the same eval follows. */
static void collect_logits(lace_session *s, int32_t n_outputs, bool is_last)
{
    size_t width = (size_t)runner_width(s->runner);
    for (int32_t i = 0; i < n_outputs; i++) {
        const float *row = program_logits(s->runner->program, i);
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

lace_status session_settle(lace_session *s, lace_error *err)
{
    return s->predictor ? predictor_settle(s->predictor, err) : LACE_OK;
}

lace_status session_eval_choosing(lace_session *s, const lace_item *items, size_t n_items,
                                  const choice_rule *rules, lace_error *err)
{
    runner *r = s->runner;
    s->n_logits = 0;
    s->has_words = false;
    if (s->model->m->config.encoder.is_on) /* nothing outlives its batch */
        for (int32_t i = 0; i < s->options.n_sequences; i++)
            states_set_length(s->kv, i, 0);
    TRY(check_items(s, items, n_items, 0, err));
    keep_history(s, items, n_items);
    for (size_t at = 0; at < n_items;) {
        lace_status status = session_settle(s, err);
        size_t n = runner_fill(r, items + at, n_items - at);
        if (status == LACE_OK)
            status = runner_reserve(r, err);
        if (status == LACE_OK)
            status = runner_run(r, n == n_items ? rules : NULL, s->trace, err);
        if (status == LACE_OK)
            status = session_trace_add(s->trace, r->program, &r->b, err);
        if (status != LACE_OK)
            return undo_eval(s, status);
        if (s->predictor)
            predictor_see(s->predictor);
        at += n;
        collect_logits(s, r->b.n_outputs, at == n_items);
        s->has_words = rules && n == n_items;
    }
    return LACE_OK;
}

lace_status session_submit(lace_session *s, const lace_item *items, size_t n_items,
                           const choice_rule *rules, lace_error *err)
{
    runner *r = s->runner;
    assert(n_items <= (size_t)s->options.n_batch && !s->trace);
    TRY(check_items(s, items, n_items, r->program->queues ? -1 : 0, err));
    keep_history(s, items, n_items);
    lace_status status = session_settle(s, err);
    runner_fill(r, items, n_items);
    if (status == LACE_OK)
        status = runner_reserve(r, err);
    if (status == LACE_OK)
        status = runner_submit(r, rules, err);
    return status == LACE_OK ? LACE_OK : undo_eval(s, status);
}

lace_status session_collect(lace_session *s, int32_t n_outputs, lace_error *err)
{
    s->n_logits = 0;
    TRY(runner_collect(s->runner, err));
    if (s->predictor) {
        assert(!s->runner->program->queues); /* the runner's batch is the one that is collected */
        predictor_see(s->predictor);
    }
    s->has_words = true;
    collect_logits(s, n_outputs, true);
    return LACE_OK;
}

lace_status session_eval_segments(lace_session *s, const lace_item *items, size_t n_items,
                                  const int32_t *segments, lace_error *err)
{
    s->runner->item_segments = segments;
    lace_status status = lace_session_eval(s, items, n_items, err);
    s->runner->item_segments = NULL;
    return status;
}

lace_status lace_session_eval(lace_session *s, const lace_item *items, size_t n_items,
                              lace_error *err)
{
    return session_eval_choosing(s, items, n_items, NULL, err);
}

int32_t session_word(const lace_session *s, size_t k)
{
    return s->has_words ? program_word(s->runner->program, (int32_t)k) : CHOICE_REFUSED;
}

lace_token best_token(const float *logits, int32_t n)
{
    lace_token best = 0;
    for (lace_token i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
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

void session_remember(lace_session *s, int32_t sequence, int32_t position, lace_token token)
{
    if (s->history)
        history_of(s, sequence)[position] = token;
}

lace_status session_compute_again(lace_session *s, int32_t sequence, int32_t n_tokens,
                                  lace_error *err)
{
    enum { MOST = 64 };
    lace_item items[MOST];
    while (lace_session_length(s, sequence) < n_tokens) {
        int32_t from = lace_session_length(s, sequence);
        int32_t n = n_tokens - from < MOST ? n_tokens - from : MOST;
        for (int32_t i = 0; i < n; i++)
            items[i] = (lace_item){history_of(s, sequence)[from + i], sequence, false};
        TRY(lace_session_eval(s, items, (size_t)n, err));
    }
    return LACE_OK;
}

lace_status lace_session_truncate(lace_session *s, int32_t sequence, int32_t n_tokens,
                                  lace_error *err)
{
    TRY(check_range("sequence", sequence, 0, s->options.n_sequences - 1, err));
    TRY(check_range("n_tokens", n_tokens, 0, lace_session_length(s, sequence), err));
    int32_t reach = states_reach(s->kv, sequence, n_tokens);
    if (reach != n_tokens && !s->history)
        return error_set(
            err, LACE_E_UNSUPPORTED,
            "sequence %d cannot go back from %d to %d tokens: layers with a window have dropped "
            "the tokens that this needs; clear the sequence and evaluate it again",
            sequence, lace_session_length(s, sequence), n_tokens);
    TRY(session_cut_images(s, sequence, n_tokens, err));
    states_set_length(s->kv, sequence, reach);
    return session_compute_again(s, sequence, n_tokens, err);
}

void session_mark(lace_session *s, int32_t sequence)
{
    int32_t snapshot = states_snapshot(s->kv, sequence); /* the sequence holds it, too */
    snapshot_drop(&s->kv->slots, &snapshot);
}

lace_status lace_session_fork(lace_session *s, int32_t from, int32_t to, lace_error *err)
{
    TRY(check_range("from", from, 0, s->options.n_sequences - 1, err));
    TRY(check_range("to", to, 0, s->options.n_sequences - 1, err));
    if (from == to || s->kv->sequences[to].n_tokens != 0)
        return error_set(err, LACE_E_ARG, "sequence %d cannot become a copy: it is not empty", to);
    TRY(session_settle(s, err));
    if (s->predictor)
        predictor_copy(s->predictor, from, to);
    TRY(session_copy_images(s, from, to, err));
    if (s->history)
        memcpy(history_of(s, to), history_of(s, from),
               (size_t)lace_session_length(s, from) * sizeof *s->history);
    adapters_apply(s, to, runner_adapter_scales(s->runner, from));
    return states_fork(s->kv, from, to, err);
}
