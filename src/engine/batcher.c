/*
 * The batcher: which generations run, wait, and give way.
 *
 * Generations wait in the order of their coming. While a sequence is free and the pool has room for
 * the prompt, the first of them starts. Where the pool is full, the youngest gives way.
 */
#include "engine/batcher.h"
#include "engine/image.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { LOOK_AHEAD = 64 }; /* waiting generations that may start before the first */

#define CACHE_BYTES  (UINT64_C(16) << 30)
#define LATE_WAIT_NS (UINT64_C(5) * 1000000) /* where there is nothing else to do */

lace_batcher_options lace_batcher_options_default(void)
{
    lace_batcher_options o = {
        .session = lace_session_options_default(), .use_prefixes = true, .n_draft = 8};
    o.session.n_sequences = 32;
    return o;
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static void list_append(generation_list *list, lace_generation *g)
{
    lace_generation **end = &list->first;
    while (*end)
        end = &(*end)->next;
    g->next = NULL;
    *end = g;
    list->n++;
}

static void list_prepend(generation_list *list, lace_generation *g)
{
    g->next = list->first;
    list->first = g;
    list->n++;
}

/* Where it belongs by its age. */
static void list_insert(generation_list *list, lace_generation *g)
{
    lace_generation **at = &list->first;
    while (*at && (*at)->added_ns <= g->added_ns)
        at = &(*at)->next;
    g->next = *at;
    *at = g;
    list->n++;
}

static void list_remove(generation_list *list, lace_generation *g)
{
    lace_generation **at = &list->first;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    g->next = NULL;
    list->n--;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status find_ends(lace_batcher *b, lace_error *err)
{
    int32_t n_vocab = b->model->m->config.n_vocab;
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (lace_token t = 0; t < n_vocab; t++)
            if (lace_token_is_end(b->model, t)) {
                if (pass == 1)
                    b->ends[n] = t;
                n++;
            }
        b->n_ends = n;
        if (pass == 0 && !(b->ends = mem_calloc(n ? n : 1, sizeof *b->ends)))
            return error_nomem(err, "a batcher");
    }
    return LACE_OK;
}

/* A draft reads along with as many texts as are guessed for; in what the budget leaves. */
static lace_status create_draft(lace_batcher *b, lace_error *err)
{
    lace_session_options o = b->options.session, one = o;
    lace_memory need, least;
    one.n_sequences = one.n_outputs = 1;
    one.tower = o.tower = NULL;
    one.n_batch = 0;
    one.kv_bytes = 0;
    o.n_sequences = o.n_sequences < GUESS_MOST ? o.n_sequences : GUESS_MOST;
    o.n_outputs = o.n_sequences;
    o.n_batch = 0;
    TRY(lace_session_memory(b->model, &b->options.session, &need, err));
    TRY(lace_session_memory(b->options.draft, &one, &least, err));
    if (o.kv_bytes) /* its tokens take less room; what does not fit is read again */
        o.kv_bytes = o.kv_bytes / 4 > least.kv ? o.kv_bytes / 4 : least.kv;
    if (o.memory_bytes)
        o.memory_bytes = o.memory_bytes > need.total ? o.memory_bytes - need.total : 1;
    lace_status status = lace_session_create(b->options.draft, &o, &b->draft, err);
    return status == LACE_OK ? status : error_prefix(err, status, "the draft model");
}

static lace_status create_guesses(lace_batcher *b, lace_error *err)
{
    const lace_batcher_options *o = &b->options;
    if (!b->guesses)
        return LACE_OK;
    if (o->draft)
        TRY(create_draft(b, err));
    int32_t n_readers = b->draft ? b->draft->options.n_sequences : 0;
    TRY(guess_source_init(&b->source, b->model, b->draft, n_readers, o->use_lookup, o->n_draft,
                          err));
    b->source.predictor = b->session->predictor;
    b->plan.is_host = b->model->m->device->is_host && (!o->draft || o->draft->m->device->is_host);
    b->source.plan = o->guesses_always ? NULL : &b->plan;
    return LACE_OK;
}

static lace_status create_session(lace_batcher *b, lace_error *err)
{
    lace_session_options *o = &b->options.session;
    if (b->options.n_draft < 1 || b->options.n_draft > GUESS_MOST)
        return error_set(err, LACE_E_ARG, "n_draft is %d, expected 1 to %d", b->options.n_draft,
                         GUESS_MOST);
    if (b->options.next_target_ms < 0 || b->options.first_target_ms < 0)
        return error_set(err, LACE_E_ARG, "a target in milliseconds is below 0");
    b->guesses = b->options.draft || b->options.use_lookup || b->options.use_mtp;
    o->use_mtp = b->options.use_mtp;
    o->n_outputs = o->n_sequences;
    if (b->guesses)
        o->n_outputs += (int32_t)min_i64(GUESS_ROWS, (int64_t)o->n_sequences * b->options.n_draft);
    if (o->n_batch != 0 && o->n_batch < o->n_outputs)
        o->n_batch = o->n_outputs;
    TRY(lace_session_create(b->model, o, &b->session, err));
    *o = b->session->options;
    int32_t same = b->model->others ? 1 : b->session->runner->program->same_tokens;
    b->same_tokens = same < 1 ? 1 : same < o->n_batch ? same : o->n_batch;
    if (b->options.is_deterministic && b->guesses && b->same_tokens == 1)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "this model computes several rows together otherwise than one, on this "
                         "device: guesses and is_deterministic (--deterministic) exclude each "
                         "other here");
    return LACE_OK;
}

/* What the device says of the rows of a step. */
static void find_step(lace_batcher *b)
{
    device_info info = {0};
    device_describe(b->model->m->device, &info, NULL);
    b->rests = !info.computes_late;
    b->size = (step_size){.tile_rows = info.tile_rows,
                          .step_rows = info.step_rows,
                          .next_ns = (uint64_t)b->options.next_target_ms * 1000000,
                          .first_ns = (uint64_t)b->options.first_target_ms * 1000000};
}

/* What pages are right for: the model, how it is computed, and how pages lie in memory. */
static bool digest_pages(const lace_batcher *b, digest *out)
{
    const states *kv = b->session->kv;
    const char *kind = b->model->m->device->backend->name;
    digest_stream *s = digest_stream_create();
    digest files;
    bool ok = s && weights_digest(b->model->files, &files) &&
              digest_stream_add(s, &files, sizeof files) &&
              digest_stream_add(s, LACE_VERSION, sizeof LACE_VERSION) &&
              digest_stream_add(s, kind, strlen(kind)) &&
              digest_stream_add(s, &kv->options.type, sizeof kv->options.type) &&
              digest_stream_add(s, &kv->options.v_type, sizeof kv->options.v_type) &&
              digest_stream_add(s, &kv->slots.slot_bytes, sizeof kv->slots.slot_bytes);
    for (int32_t g = 0; ok && g < kv->n_groups; g++)
        ok = digest_stream_add(s, &kv->groups[g].window, sizeof kv->groups[g].window) &&
             digest_stream_add(s, &kv->groups[g].page_bytes, sizeof kv->groups[g].page_bytes);
    ok = ok && digest_stream_peek(s, NULL, 0, out);
    digest_stream_free(s);
    return ok;
}

static lace_status create_prefixes(lace_batcher *b, lace_error *err)
{
    const lace_batcher_options *o = &b->options;
    digest pages;
    TRY(prefix_tree_create(b->session->kv, &b->prefixes, err));
    if (o->cache_dir && b->session->model->others)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "what prompts began with is kept in files by one rank, not by several: "
                         "leave --cache-dir out");
    if (!o->cache_dir)
        return LACE_OK;
    if (!digest_pages(b, &pages))
        return error_nomem(err, "a page store");
    TRY(page_store_open(o->cache_dir, o->cache_bytes ? o->cache_bytes : CACHE_BYTES, &pages,
                        &b->store, err));
    prefix_tree_use_store(b->prefixes, b->store);
    return LACE_OK;
}

/* On devices that load kernels or record when something is computed first. */
static lace_status warm_up(lace_batcher *b, lace_error *err)
{
    if (program_can_warm_up(b->session->runner->program))
        TRY(session_warm_up(b->session, err));
    if (b->draft && program_can_warm_up(b->draft->runner->program))
        TRY(session_warm_up(b->draft, err));
    return LACE_OK;
}

lace_status lace_batcher_create(lace_model *lm, const lace_batcher_options *options,
                                lace_batcher **out, lace_error *err)
{
    *out = NULL;
    lace_batcher *b = mem_calloc(1, sizeof *b);
    if (!b)
        return error_nomem(err, "a batcher");
    b->model = lm;
    b->options = options ? *options : lace_batcher_options_default();
    const lace_session_options *o = &b->options.session;
    lace_status status;
    TRY_GOTO(status, done, create_session(b, err));
    b->items = mem_calloc((size_t)o->n_batch, sizeof *b->items);
    b->by_sequence = mem_calloc((size_t)o->n_sequences, sizeof *b->by_sequence);
    b->is_used = mem_calloc((size_t)o->n_sequences, sizeof *b->is_used);
    if (b->session->runner->program->chooses)
        b->rules = mem_calloc((size_t)o->n_outputs, sizeof *b->rules);
    if (!b->items || !b->by_sequence || !b->is_used ||
        (b->session->runner->program->chooses && !b->rules)) {
        status = error_nomem(err, "a batcher");
        goto done;
    }
    find_step(b);
    TRY_GOTO(status, done, flights_create(b, err));
    TRY_GOTO(status, done, find_ends(b, err));
    TRY_GOTO(status, done, late_create(&b->chooser, err));
    TRY_GOTO(status, done, create_guesses(b, err));
    if (b->options.use_prefixes && !b->options.is_deterministic)
        TRY_GOTO(status, done, create_prefixes(b, err));
    TRY_GOTO(status, done, warm_up(b, err));
done:
    return GIVE_OR_FREE(status, b, out, lace_batcher_free);
}

void lace_batcher_free(lace_batcher *b)
{
    if (!b)
        return;
    generation_list *lists[] = {&b->late, &b->running, &b->waiting};
    for (int i = 0; i < 3; i++)
        while (lists[i]->first) {
            lace_generation *g = lists[i]->first;
            if (lists[i] == &b->late)
                late_recall(b->chooser, g);
            ahead_end(&g->ahead, NULL);
            list_remove(lists[i], g);
            generation_free(g);
        }
    late_free(b->chooser);
    flights_free(b);
    prefix_tree_free(b->prefixes);
    page_store_close(b->store);
    guess_source_deinit(&b->source);
    lace_session_free(b->draft);
    lace_session_free(b->session);
    mem_free_all(b->items, b->by_sequence, b->rules, b->is_used, b->ends, b);
}

/* Whether images can be computed here; one that sees itself both ways in one batch, beside others. */
static lace_status check_images(const lace_batcher *b, const lace_generation_options *o,
                                lace_error *err)
{
    const lace_session_options *s = &b->options.session;
    if (o->n_images > 0 && !s->tower)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the model has no vision tower: it sees no images");
    for (size_t i = 0; i < o->n_images; i++) {
        TRY(image_check_tower(o->images[i], s->tower, err));
        if (b->session->runner->options.sees_both_ways &&
            o->images[i]->n + s->n_outputs > s->n_batch)
            return error_set(err, LACE_E_LIMIT,
                             "an image of %d tokens is computed in one batch with the tokens of "
                             "others, which has room for %d; a batch of %d would do (--batch-size)",
                             o->images[i]->n, s->n_batch - s->n_outputs,
                             o->images[i]->n + s->n_outputs);
    }
    return LACE_OK;
}

lace_status lace_batcher_add(lace_batcher *b, const lace_generation_options *options,
                             lace_generation **out, lace_error *err)
{
    *out = NULL;
    TRY(check_images(b, options, err));
    TRY(generation_create(b->model, options, b->options.session.n_context, b->ends, b->n_ends, out,
                          err));
    list_append(&b->waiting, *out);
    return LACE_OK;
}

static void recall_youngest(lace_batcher *b);

/* ---- Memory ---------------------------------------------------------------------------------- */

bool batcher_uses_prefixes(const lace_batcher *b, const lace_generation *g)
{
    return b->prefixes && g->options.use_prefixes;
}

bool batcher_make_room(lace_batcher *b, const page_demand *demand)
{
    return states_can_meet(b->session->kv, demand) ||
           (b->prefixes && prefix_tree_make_room(b->prefixes, demand));
}

/* What was computed is kept for others, unless something is wrong with it. */
static void stop_running(lace_batcher *b, lace_generation *g)
{
    if (g->ahead.is_under_way) {
        ahead_end(&g->ahead, NULL);
        g->n_computed = b->session->kv->sequences[g->sequence].n_tokens;
    }
    flight_forget(b, g);
    guess_release(&b->source, &g->guess);
    /* What the layer that predicts has not seen is of less use to others, and of no harm. */
    session_settle(b->session, NULL);
    if (batcher_uses_prefixes(b, g) && g->n_computed > 0 && g->finish != LACE_FINISH_ERROR) {
        prefix_tree_keep(b->prefixes, g->owner, g->sequence, g->tokens, g->n_computed, true);
        prefix_tree_store(b->prefixes, g->owner, g->tokens, g->n_computed);
    }
    states_set_length(b->session->kv, g->sequence, 0);
    b->session->runner->images[g->sequence] = (image_list){0};
    b->is_used[g->sequence] = false;
    g->sequence = -1;
    g->n_computed = 0;
    list_remove(&b->running, g);
}

/* It waits, before all others, and is computed again. */
static void preempt(lace_batcher *b, lace_generation *g)
{
    stop_running(b, g);
    g->state = GENERATION_WAITING;
    list_prepend(&b->waiting, g);
    b->stats.n_preempted++;
}

/*
 * A page that is known in part is copied before it grows. If the only one that runs finds no room
 * for the copy, it goes back to its whole pages and computes the part itself.
 */
static bool leave_part(lace_batcher *b, lace_generation *g)
{
    states *kv = b->session->kv;
    int32_t page = g->n_computed / PAGE_TOKENS;
    if (kv->n_groups == 0 || page * PAGE_TOKENS == g->n_computed ||
        kv->groups[0].n_users[kv->sequences[g->sequence].tables[0][page]] < 2)
        return false;
    g->n_computed = states_reach(kv, g->sequence, page * PAGE_TOKENS);
    states_set_length(kv, g->sequence, g->n_computed);
    return true;
}

bool batcher_give_way(lace_batcher *b)
{
    if (b->late.first && b->running.n < 2) {
        recall_youngest(b);
        return true;
    }
    lace_generation *youngest = b->running.first;
    if (!youngest || !youngest->next)
        return youngest && leave_part(b, youngest);
    while (youngest->next)
        youngest = youngest->next;
    preempt(b, youngest);
    return true;
}

/* ---- Starting -------------------------------------------------------------------------------- */

static int32_t n_common(const lace_generation *a, const lace_generation *b)
{
    int32_t i = 0, n = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens;
    while (i < n && a->tokens[i] == b->tokens[i])
        i++;
    return i;
}

/*
 * Whether another generation is about to compute what this one begins with: then it is quicker to
 * wait for it than to compute it twice.
 */
static bool should_wait(const lace_batcher *b, const lace_generation *g)
{
    if (!batcher_uses_prefixes(b, g))
        return false;
    int32_t known = -1;
    for (const lace_generation *r = b->running.first; r; r = r->next) {
        if (r->n_computed + 1 >= r->n_tokens || !batcher_uses_prefixes(b, r) ||
            r->owner != g->owner)
            continue;
        int32_t shared = n_common(g, r) / PAGE_TOKENS * PAGE_TOKENS;
        if (shared == 0)
            continue;
        if (known < 0)
            known = prefix_tree_find(b->prefixes, g->owner, g->tokens, g->n_tokens - 1);
        if (shared > known + PAGE_TOKENS)
            return true;
    }
    return false;
}

/* The first of the waiting generations that need not wait for what another one computes. */
static lace_generation *next_waiting(const lace_batcher *b)
{
    lace_generation *g = b->waiting.first;
    for (int i = 0; g && i < LOOK_AHEAD; i++, g = g->next)
        if (!should_wait(b, g))
            return g;
    return NULL;
}

static int32_t free_sequence(const lace_batcher *b)
{
    for (int32_t i = 0; i < b->options.session.n_sequences; i++)
        if (!b->is_used[i])
            return i;
    return -1;
}

/* Share what is known of the text; the last token is computed in any case, for its logits. */
static void begin_sequence(lace_batcher *b, lace_generation *g, int32_t sequence)
{
    g->sequence = sequence;
    g->n_computed = 0;
    b->session->runner->images[sequence] = (image_list){g->spans, g->n_images};
    if (b->session->predictor)
        predictor_forget(b->session->predictor, sequence);
    adapters_apply(b->session, sequence, g->adapter_scales);
    if (batcher_uses_prefixes(b, g))
        g->n_computed =
            prefix_tree_begin(b->prefixes, g->owner, sequence, g->tokens, g->n_tokens - 1,
                              g->started_ns ? NULL : &g->stats.reuse_end);
}

/* Start the next generation, if a sequence and memory for its text are free. */
static bool start_next(lace_batcher *b)
{
    int32_t sequence = free_sequence(b);
    lace_generation *g = sequence >= 0 ? next_waiting(b) : NULL;
    if (!g)
        return false;
    begin_sequence(b, g, sequence);
    page_demand demand = {0};
    states_add_demand(b->session->kv, sequence, g->n_tokens - g->n_computed, &demand);
    if (!batcher_make_room(b, &demand) && b->running.n > 0) {
        states_set_length(b->session->kv, sequence, 0);
        b->session->runner->images[sequence] = (image_list){0};
        g->sequence = -1;
        g->n_computed = 0;
        return false;
    }
    list_remove(&b->waiting, g);
    g->state = GENERATION_RUNNING;
    b->is_used[sequence] = true;
    g->ahead = (ahead){.session = b->session, .sequence = sequence};
    list_append(&b->running, g);
    if (!g->started_ns) {
        g->started_ns = clock_ns();
        g->stats.queue_ns = g->started_ns - g->added_ns;
        g->stats.n_cached = g->stats.n_read = g->n_computed;
        if (g->options.shows_prompt)
            generation_show_prompt(g);
        b->stats.n_prefix_queries += batcher_uses_prefixes(b, g) ? (uint64_t)g->n_tokens : 0;
        b->stats.n_prefix_hits += (uint64_t)g->n_computed;
    }
    return true;
}

/* ---- Ending, late choices -------------------------------------------------------------------- */

/* A generation whose late choice is made, or was recalled, is one of the others again. */
static void end_late(lace_batcher *b, lace_generation *g)
{
    list_remove(&b->late, g);
    g->state = GENERATION_RUNNING;
    list_insert(&b->running, g);
}

void batcher_refill(lace_batcher *b, lace_generation *g)
{
    stop_running(b, g);
    g->state = GENERATION_WAITING;
    list_prepend(&b->waiting, g);
    if (!generation_refill(g))
        batcher_end(b, g);
}

void batcher_end(lace_batcher *b, lace_generation *g)
{
    if (g->state == GENERATION_RUNNING)
        stop_running(b, g);
    else
        list_remove(&b->waiting, g);
    if (g->stats.n_generated > 0)
        step_size_end(&b->size, (size_t)(g->stats.n_prompt - g->stats.n_cached),
                      (size_t)g->stats.n_generated);
    generation_deliver(g);
    generation_free(g);
}

void lace_batcher_cancel(lace_batcher *b, lace_generation *g)
{
    if (g->state == GENERATION_LATE) {
        late_recall(b->chooser, g);
        end_late(b, g);
    }
    g->finish = LACE_FINISH_CANCELLED;
    batcher_end(b, g);
}

/* Those whose choice takes longer sit out. */
static void set_late_apart(lace_batcher *b)
{
    lace_generation *next;
    for (lace_generation *g = b->running.first; g; g = next) {
        next = g->next;
        if (!g->is_late)
            continue;
        g->is_late = false;
        list_remove(&b->running, g);
        g->state = GENERATION_LATE;
        list_insert(&b->late, g);
        late_push(b->chooser, g);
    }
}

/* Choices that were late and are made by now; waits a little for one. */
static void deliver_late(lace_batcher *b, uint64_t wait_ns)
{
    for (lace_generation *g; b->late.first && (g = late_take(b->chooser, wait_ns)); wait_ns = 0) {
        end_late(b, g);
        advance_deliver(b, g, clock_ns());
    }
}

/* Memory is needed: the youngest that is late gives up its choice, unless it has just been made. */
static void recall_youngest(lace_batcher *b)
{
    lace_generation *g = b->late.first;
    while (g->next)
        g = g->next;
    bool is_chosen = late_recall(b->chooser, g);
    end_late(b, g);
    if (is_chosen) {
        advance_deliver(b, g, clock_ns());
    } else {
        g->finish = LACE_FINISH_NONE;
        preempt(b, g);
    }
}

/* ---- A step ---------------------------------------------------------------------------------- */

bool lace_batcher_step(lace_batcher *b)
{
    if (advance_ahead(b))
        return true;
    deliver_late(b, 0);
    while (start_next(b))
        continue;
    if (advance_batch(b)) {
        set_late_apart(b);
        return true;
    }
    deliver_late(b, LATE_WAIT_NS);
    return b->running.n + b->late.n > 0;
}

uint64_t lace_batcher_rest_ns(const lace_batcher *b)
{
    return advance_rest_ns(b);
}

void lace_batcher_count(const lace_batcher *b, lace_batcher_stats *out)
{
    const page_group *group = &b->session->kv->groups[0];
    *out = b->stats;
    out->n_running = b->running.n + b->late.n;
    out->n_waiting = b->waiting.n;
    out->n_context = b->options.session.n_context;
    out->kv_tokens = (int64_t)group->n_pages * PAGE_TOKENS;
    int64_t n_unused = b->prefixes ? prefix_tree_unused_pages(b->prefixes) : 0;
    out->kv_tokens_used = (group->n_pages - group->n_free - n_unused) * PAGE_TOKENS;
    out->kv_tokens_kept = n_unused * PAGE_TOKENS;
    out->n_prefix_evicted = b->prefixes ? prefix_tree_n_evicted(b->prefixes) : 0;
}
