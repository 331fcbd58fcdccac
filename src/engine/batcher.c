/*
 * The batcher: which generations run, and what is computed in a step.
 *
 * Generations wait in the order of their coming. While a sequence is free and the pool has room for
 * the prompt, the first of them starts. A step takes one token of every generation that is past its
 * prompt, and fills the batch with pieces of prompts, oldest first; so a long prompt delays others
 * by one piece at a time.
 */
#include "engine/batcher.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/late_choice.h"
#include "state/prefix_tree.h"

enum {
    LOOK_AHEAD = 64, /* waiting generations that may start before the first */
    /*
     * Tokens of prompts in a step while others wait for its end. A quarter of the usual batch costs
     * 3 % of the speed of prompts (TinyLlama Q4_K_M, 2 cores: 252 in place of 261 tokens/s) and
     * makes four times shorter pauses.
     */
    PROMPT_SHARE = 128,
};

/* For masks of a step, all together, and for one; what takes longer is chosen late. */
#define CHOOSE_ALL_NS (INT64_C(4) * 1000000)
#define CHOOSE_ONE_NS (INT64_C(1) * 1000000)
#define LATE_WAIT_NS  (UINT64_C(5) * 1000000) /* where there is nothing else to do */

typedef struct generation_list {
    lace_generation *first;
    int32_t n;
} generation_list;

struct lace_batcher {
    lace_model *model;
    lace_batcher_options options;
    lace_session *session;
    lace_item *items;              /* [n_batch] */
    sample_row *rules;             /* [n_sequences] of a batch's outputs; NULL: on the CPU */
    lace_generation **by_sequence; /* [n_sequences] while a batch is counted */
    bool *is_used;                 /* [n_sequences] */
    lace_token *ends;              /* [n_ends] */
    size_t n_ends;
    prefix_tree *prefixes;            /* NULL: not used */
    generation_list running, waiting; /* oldest first */
    generation_list late;             /* sit out while their choice is made; they keep their KV */
    late_choice *chooser;
    _Atomic int64_t choose_ns; /* left for masks of this step */
    lace_batcher_stats stats;
};

lace_batcher_options lace_batcher_options_default(void)
{
    lace_batcher_options o = {.session = lace_session_options_default(), .use_prefixes = true};
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

lace_status lace_batcher_create(lace_model *lm, const lace_batcher_options *options,
                                lace_batcher **out, lace_error *err)
{
    *out = NULL;
    lace_batcher *b = mem_calloc(1, sizeof *b);
    if (!b)
        return error_nomem(err, "a batcher");
    b->model = lm;
    b->options = options ? *options : lace_batcher_options_default();
    lace_session_options *o = &b->options.session;
    o->n_outputs = o->n_sequences;
    if (o->n_batch != 0 && o->n_batch < o->n_sequences)
        o->n_batch = o->n_sequences;
    lace_status status;
    TRY_GOTO(status, fail, lace_session_create(lm, o, &b->session, err));
    *o = b->session->options;
    b->items = mem_calloc((size_t)o->n_batch, sizeof *b->items);
    b->by_sequence = mem_calloc((size_t)o->n_sequences, sizeof *b->by_sequence);
    b->is_used = mem_calloc((size_t)o->n_sequences, sizeof *b->is_used);
    if (b->session->on_card)
        b->rules = mem_calloc((size_t)o->n_sequences, sizeof *b->rules);
    if (!b->items || !b->by_sequence || !b->is_used || (b->session->on_card && !b->rules)) {
        status = error_nomem(err, "a batcher");
        goto fail;
    }
    TRY_GOTO(status, fail, find_ends(b, err));
    TRY_GOTO(status, fail, late_create(&b->chooser, err));
    if (b->options.use_prefixes && !b->options.is_deterministic)
        TRY_GOTO(status, fail, prefix_tree_create(b->session->kv, &b->prefixes, err));
    *out = b;
    return LACE_OK;

fail:
    lace_batcher_free(b);
    return status;
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
            list_remove(lists[i], g);
            generation_free(g);
        }
    late_free(b->chooser);
    prefix_tree_free(b->prefixes);
    lace_session_free(b->session);
    mem_free(b->items);
    mem_free(b->by_sequence);
    mem_free(b->rules);
    mem_free(b->is_used);
    mem_free(b->ends);
    mem_free(b);
}

lace_status lace_batcher_add(lace_batcher *b, const lace_generation_options *options,
                             lace_generation **out, lace_error *err)
{
    TRY(generation_create(b->model, options, b->options.session.n_context, b->ends, b->n_ends, out,
                          err));
    list_append(&b->waiting, *out);
    return LACE_OK;
}

static void recall_youngest(lace_batcher *b);

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool uses_prefixes(const lace_batcher *b, const lace_generation *g)
{
    return b->prefixes && g->options.use_prefixes;
}

static bool make_room(lace_batcher *b, const kv_demand *demand)
{
    return kv_can_meet(b->session->kv, demand) ||
           (b->prefixes && prefix_tree_make_room(b->prefixes, demand));
}

/* What was computed is kept for others, unless something is wrong with it. */
static void stop_running(lace_batcher *b, lace_generation *g)
{
    if (uses_prefixes(b, g) && g->n_computed > 0 && g->finish != LACE_FINISH_ERROR)
        prefix_tree_keep(b->prefixes, g->options.owner, g->sequence, g->tokens, g->n_computed,
                         true);
    kv_set_length(b->session->kv, g->sequence, 0);
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

/* The youngest gives its memory back and waits, before all others. False if it is the only one. */
static bool preempt_youngest(lace_batcher *b)
{
    if (b->late.first && b->running.n < 2) {
        recall_youngest(b);
        return true;
    }
    lace_generation *youngest = b->running.first;
    if (!youngest || !youngest->next)
        return false;
    while (youngest->next)
        youngest = youngest->next;
    preempt(b, youngest);
    return true;
}

/* ---- A step ---------------------------------------------------------------------------------- */

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
    if (!uses_prefixes(b, g))
        return false;
    int32_t known = -1;
    for (const lace_generation *r = b->running.first; r; r = r->next) {
        if (r->n_computed + 1 >= r->n_tokens || !uses_prefixes(b, r) ||
            r->options.owner != g->options.owner)
            continue;
        int32_t shared = n_common(g, r) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (shared == 0)
            continue;
        if (known < 0)
            known = prefix_tree_find(b->prefixes, g->options.owner, g->tokens, g->n_tokens - 1);
        if (shared > known + KV_PAGE_TOKENS)
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
    if (uses_prefixes(b, g))
        g->n_computed =
            prefix_tree_begin(b->prefixes, g->options.owner, sequence, g->tokens, g->n_tokens - 1);
}

/* Start the next generation, if a sequence and memory for its text are free. */
static bool start_next(lace_batcher *b)
{
    int32_t sequence = free_sequence(b);
    lace_generation *g = sequence >= 0 ? next_waiting(b) : NULL;
    if (!g)
        return false;
    begin_sequence(b, g, sequence);
    kv_demand demand = {0};
    kv_add_demand(b->session->kv, sequence, g->n_tokens - g->n_computed, &demand);
    if (!make_room(b, &demand) && b->running.n > 0) {
        kv_set_length(b->session->kv, sequence, 0);
        g->sequence = -1;
        g->n_computed = 0;
        return false;
    }
    list_remove(&b->waiting, g);
    g->state = GENERATION_RUNNING;
    b->is_used[sequence] = true;
    list_append(&b->running, g);
    if (!g->started_ns) {
        g->started_ns = clock_ns();
        g->stats.queue_ns = g->started_ns - g->added_ns;
        g->stats.n_cached = g->stats.n_read = g->n_computed;
        if (g->options.shows_prompt)
            generation_show_prompt(g);
        b->stats.n_prefix_queries += uses_prefixes(b, g) ? (uint64_t)g->n_tokens : 0;
        b->stats.n_prefix_hits += (uint64_t)g->n_computed;
    }
    return true;
}

/* Adds n tokens of g to the batch; the last of all gives logits. */
static size_t add_items(lace_batcher *b, size_t n_items, lace_generation *g, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t at = g->n_computed + i;
        b->items[n_items + (size_t)i] = (lace_item){
            .token = g->tokens[at], .sequence = g->sequence, .want_logits = at + 1 == g->n_tokens};
    }
    return n_items + (size_t)n;
}

/* The one that has waited longest gets a batch of its own, cut as if there were no others. */
static size_t fill_alone(lace_batcher *b)
{
    lace_generation *g = b->running.first;
    for (lace_generation *other = g; other; other = other->next)
        if (other->last_step < g->last_step)
            g = other;
    if (!g)
        return 0;
    g->last_step = b->stats.n_steps + 1;
    int32_t n = g->stats.n_prompt - g->n_computed, n_batch = b->options.session.n_batch;
    return add_items(b, 0, g, n <= 1 ? 1 : n < n_batch ? n : n_batch);
}

/* Puts the batch together: generations first, then prompts, the oldest first. Returns its size. */
static size_t fill_batch(lace_batcher *b)
{
    if (b->options.is_deterministic)
        return fill_alone(b);
    size_t n_items = 0, n_prompts = 0, capacity = (size_t)b->options.session.n_batch;
    for (lace_generation *g = b->running.first; g; g = g->next)
        if (g->n_tokens - g->n_computed == 1)
            n_items = add_items(b, n_items, g, 1);
        else
            n_prompts++;
    if ((n_items > 0 || n_prompts > 1) && n_items + PROMPT_SHARE < capacity)
        capacity = n_items + PROMPT_SHARE;
    for (lace_generation *g = b->running.first; g && n_items < capacity; g = g->next) {
        int32_t n = g->n_tokens - g->n_computed;
        if (n <= 1)
            continue;
        int32_t room = (int32_t)(capacity - n_items);
        n_items = add_items(b, n_items, g, n < room ? n : room);
    }
    return n_items;
}

/* Makes sure that the pool can take the batch; who must give way is out of it. */
static size_t prepare_batch(lace_batcher *b)
{
    for (;;) {
        size_t n_items = fill_batch(b);
        kv_demand demand = {0};
        for (size_t i = 0; i < n_items;) {
            size_t n = 1;
            while (i + n < n_items && b->items[i + n].sequence == b->items[i].sequence)
                n++;
            kv_add_demand(b->session->kv, b->items[i].sequence, (int32_t)n, &demand);
            i += n;
        }
        if (make_room(b, &demand) || !preempt_youngest(b))
            return n_items;
    }
}

/* A generation whose late choice is made, or was recalled, is one of the others again. */
static void end_late(lace_batcher *b, lace_generation *g)
{
    list_remove(&b->late, g);
    g->state = GENERATION_RUNNING;
    list_insert(&b->running, g);
}

static void end_generation(lace_batcher *b, lace_generation *g)
{
    if (g->state == GENERATION_RUNNING)
        stop_running(b, g);
    else
        list_remove(&b->waiting, g);
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
    end_generation(b, g);
}

/* Whose row of logits is which, and who has computed how much. */
static int32_t count_computed(lace_batcher *b, size_t n_items)
{
    int32_t n_rows = 0;
    for (lace_generation *g = b->running.first; g; g = g->next) {
        g->row = -1;
        b->by_sequence[g->sequence] = g;
    }
    for (size_t i = 0; i < n_items; i++) {
        lace_generation *g = b->by_sequence[b->items[i].sequence];
        g->n_computed++;
        b->stats.n_prompt_tokens += g->n_computed <= g->stats.n_prompt;
        if (b->items[i].want_logits)
            g->row = n_rows++;
    }
    return n_rows;
}

/* How far prompts are read; one that is computed again does not go back. */
static void show_prompts(lace_batcher *b)
{
    uint64_t now = clock_ns();
    for (lace_generation *g = b->running.first; g; g = g->next) {
        int32_t n = g->n_computed < g->stats.n_prompt ? g->n_computed : g->stats.n_prompt;
        if (n <= g->stats.n_read)
            continue;
        g->stats.n_read = n;
        g->stats.prompt_ns = now - g->started_ns;
        if (g->options.shows_prompt)
            generation_show_prompt(g);
    }
}

/* Whole pages of prompts are of use to others from now on. */
static void keep_prompts(lace_batcher *b)
{
    for (lace_generation *g = b->running.first; g; g = g->next)
        if (uses_prefixes(b, g) && g->n_computed <= g->stats.n_prompt &&
            g->n_computed >= KV_PAGE_TOKENS)
            prefix_tree_keep(b->prefixes, g->options.owner, g->sequence, g->tokens, g->n_computed,
                             false);
}

/* What a grammar allows is found out within the step's time, or late. */
static void choose_within(lace_batcher *b, lace_generation *g, int32_t word, const float *logits)
{
    int64_t left = atomic_load(&b->choose_ns);
    int64_t most = left < CHOOSE_ONE_NS ? left : CHOOSE_ONE_NS;
    if (left > 0 && g->last_late_ns < (uint64_t)CHOOSE_ONE_NS) {
        work_limit limit;
        uint64_t begin = work_thread_ns();
        work_limit_init(&limit, (uint64_t)most, NULL, NULL);
        bool is_done = generation_try_choose(g, word, logits, &limit);
        atomic_fetch_sub(&b->choose_ns, (int64_t)(work_thread_ns() - begin));
        if (is_done)
            return;
    }
    g->finish = LACE_FINISH_NONE;
    g->is_late = generation_keep_logits(g, logits);
    if (!g->is_late)
        generation_fail(g, LACE_E_NOMEM, NULL);
}

static void choose_tokens(void *arg, int self, int n_workers)
{
    lace_batcher *b = arg;
    for (lace_generation *g = b->running.first; g; g = g->next) {
        if (g->row < 0 || g->row % n_workers != self)
            continue;
        int32_t word = session_word(b->session, (size_t)g->row);
        const float *logits = lace_session_logits(b->session, (size_t)g->row);
        if (g->form && word == SAMPLE_REFUSED)
            choose_within(b, g, word, logits);
        else
            generation_choose(g, word, logits);
    }
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

static void note_times(lace_generation *g, uint64_t now)
{
    if (!g->first_ns) {
        g->first_ns = now;
        g->stats.prompt_ns = now - g->started_ns;
    }
    g->stats.generate_ns = now - g->first_ns;
}

static void deliver_one(lace_batcher *b, lace_generation *g, uint64_t now)
{
    g->row = -1;
    note_times(g, now);
    b->stats.n_generated_tokens += g->token >= 0;
    if (g->finish != LACE_FINISH_NONE)
        end_generation(b, g);
    else
        generation_deliver(g);
}

static void deliver(lace_batcher *b)
{
    uint64_t now = clock_ns();
    lace_generation *next;
    for (lace_generation *g = b->running.first; g; g = next) {
        next = g->next;
        if (g->row >= 0)
            deliver_one(b, g, now);
    }
}

/* Choices that were late and are made by now; waits a little for one. */
static void deliver_late(lace_batcher *b, uint64_t wait_ns)
{
    for (lace_generation *g; b->late.first && (g = late_take(b->chooser, wait_ns)); wait_ns = 0) {
        end_late(b, g);
        deliver_one(b, g, clock_ns());
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
        deliver_one(b, g, clock_ns());
    } else {
        g->finish = LACE_FINISH_NONE;
        preempt(b, g);
    }
}

/* A batch that cannot be computed ends all that were in it. */
static void fail_batch(lace_batcher *b, size_t n_items, lace_status status, const lace_error *err)
{
    for (size_t i = 0; i < n_items; i++)
        for (lace_generation *g = b->running.first; g; g = g->next)
            if (g->sequence == b->items[i].sequence && g->finish == LACE_FINISH_NONE)
                generation_fail(g, status, err);
    lace_generation *next;
    for (lace_generation *g = b->running.first; g; g = next) {
        next = g->next;
        if (g->finish != LACE_FINISH_NONE)
            end_generation(b, g);
    }
}

/* How the card is to choose, in the order of the batch's outputs. */
static void set_rules(lace_batcher *b, size_t n_items)
{
    size_t n = 0;
    for (lace_generation *g = b->running.first; g; g = g->next)
        b->by_sequence[g->sequence] = g;
    for (size_t i = 0; i < n_items; i++)
        if (b->items[i].want_logits)
            b->rules[n++] = generation_rule(b->by_sequence[b->items[i].sequence]);
}

bool lace_batcher_step(lace_batcher *b)
{
    deliver_late(b, 0);
    while (start_next(b))
        continue;
    size_t n_items = prepare_batch(b);
    if (n_items == 0) {
        deliver_late(b, LATE_WAIT_NS);
        return b->running.n + b->late.n > 0;
    }
    lace_error err = {0};
    if (b->rules)
        set_rules(b, n_items);
    lace_status status = session_eval_choosing(b->session, b->items, n_items, b->rules, &err);
    b->stats.n_steps++;
    if (status != LACE_OK) {
        fail_batch(b, n_items, status, &err);
        return true;
    }
    int32_t n_rows = count_computed(b, n_items);
    show_prompts(b);
    keep_prompts(b);
    atomic_store(&b->choose_ns, CHOOSE_ALL_NS);
    if (n_rows > 1)
        pool_run(b->session->workers, choose_tokens, b);
    else
        choose_tokens(b, 0, 1);
    set_late_apart(b);
    deliver(b);
    return true;
}

void lace_batcher_count(const lace_batcher *b, lace_batcher_stats *out)
{
    const kv_group *group = &b->session->kv->groups[0];
    *out = b->stats;
    out->n_running = b->running.n + b->late.n;
    out->n_waiting = b->waiting.n;
    out->n_context = b->options.session.n_context;
    out->kv_tokens = (int64_t)group->n_pages * KV_PAGE_TOKENS;
    int64_t n_unused = b->prefixes ? prefix_tree_unused_pages(b->prefixes) : 0;
    out->kv_tokens_used = (group->n_pages - group->n_free - n_unused) * KV_PAGE_TOKENS;
    out->kv_tokens_kept = n_unused * KV_PAGE_TOKENS;
    out->n_prefix_evicted = b->prefixes ? prefix_tree_n_evicted(b->prefixes) : 0;
}
