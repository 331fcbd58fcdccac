/*
 * What a step computes, and what comes of it: the batch is put together and evaluated, each
 * generation chooses from its row of logits, and pieces go out.
 *
 * A step takes one token of every generation that is past its prompt, and fills the batch with
 * pieces of prompts, oldest first; so a long prompt delays others by one piece at a time. Where it
 * pays, guesses stand behind their tokens:
 *
 *     | t g0 g1 g2 |      logits after t, g0, g1, g2 come out
 *
 * If the token chosen after t is g0, the next one is chosen from g0's row, and so on; what was
 * wrong is taken back. Where one generation is alone, a device that chooses tokens works ahead, and
 * a step only takes the next.
 */
#include "base/clock.h"
#include "engine/batcher.h"

/* For masks of a step, all together, and for one; what takes longer is chosen late. */
#define CHOOSE_ALL_NS (INT64_C(4) * 1000000)
#define CHOOSE_ONE_NS (INT64_C(1) * 1000000)

/* What is left for a thread that waits for a time to go on behind it: a guess. */
#define WAKE_NS (UINT64_C(300) * 1000)

/* Steps after which guesses are tried again, where steps overlap while there are none. */
enum { GUESS_AGAIN = 64 };

/* ---- The batch ------------------------------------------------------------------------------- */

/* Tokens of g that are known, and neither computed nor under way. */
static int32_t count_unread(const lace_generation *g)
{
    return g->n_tokens - g->n_computed - g->n_queued;
}

/* Adds n tokens of g to the batch; the last of all gives logits. */
static size_t add_items(lace_batcher *b, size_t n_items, lace_generation *g, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t at = g->n_computed + g->n_queued + i;
        b->items[n_items + (size_t)i] = (lace_item){
            .token = g->tokens[at], .sequence = g->sequence, .want_logits = at + 1 == g->n_tokens};
    }
    return n_items + (size_t)n;
}

/* Adds the newest token of g, and the guesses behind it. */
static size_t add_newest(lace_batcher *b, size_t n_items, lace_generation *g)
{
    n_items = add_items(b, n_items, g, 1);
    for (int32_t i = 0; i < g->guess.n; i++)
        b->items[n_items++] =
            (lace_item){.token = g->guess.tokens[i], .sequence = g->sequence, .want_logits = true};
    return n_items;
}

/* The token that a step under way chooses for g will not be the last, and the card can choose more. */
static bool follows(const lace_generation *g)
{
    int32_t max = g->options.max_tokens;
    return g->is_asked && (max < 0 || g->stats.n_generated + 1 < max) &&
           g->n_tokens + 1 < g->n_context && generation_rule(g, 1).temperature >= 0;
}

/* Adds the token that a step under way chooses for g, whatever it will be. */
static size_t add_unknown(lace_batcher *b, size_t n_items, const lace_generation *g)
{
    b->items[n_items] =
        (lace_item){.token = TOKEN_CHOSEN, .sequence = g->sequence, .want_logits = true};
    return n_items + 1;
}

/*
 * How many of the next n tokens to read: up to where others can go on from (states_next_stop), and
 * no part of an image whose rows see each other. n_items: that the batch has already.
 */
static int32_t count_read(const lace_batcher *b, const lace_generation *g, int32_t n,
                          size_t n_items)
{
    n = states_next_stop(b->session->kv, g->sequence, n);
    if (!b->session->runner->options.sees_both_ways)
        return n;
    return generation_cut(g, g->n_computed + g->n_queued, n,
                          b->options.session.n_batch - (int32_t)n_items);
}

/* Its prompt is not read to the end: its next batch has several tokens. */
static bool reads_prompt(const lace_generation *g)
{
    return g->stats.n_prompt - g->n_computed > 1;
}

/* Who has waited longest, of those that are not in step number `now`; NULL: nobody. */
static lace_generation *find_waiting(const lace_batcher *b, uint64_t now, bool may_read)
{
    lace_generation *longest = NULL;
    for (lace_generation *g = b->running.first; g; g = g->next)
        if (g->last_step != now && (may_read || !reads_prompt(g)) &&
            (!longest || g->last_step < longest->last_step))
            longest = g;
    return longest;
}

/*
 * If deterministic. Who has waited longest gets a batch of its own, cut as if there were no others,
 * while it reads its prompt. Else all that are past their prompts are in it, as far as a row does not
 * depend on how many there are.
 */
static size_t fill_same(lace_batcher *b)
{
    uint64_t now = b->stats.n_steps + 1;
    size_t n_items = 0, most = (size_t)b->same_tokens;
    for (lace_generation *g = b->running.first; g; g = g->next)
        if (g->last_step == now) /* this step is put together again */
            g->last_step--;
    lace_generation *g = find_waiting(b, now, true);
    if (g && reads_prompt(g)) {
        g->last_step = now;
        int32_t n = g->stats.n_prompt - g->n_computed, n_batch = b->options.session.n_batch;
        return add_items(b, 0, g, count_read(b, g, n < n_batch ? n : n_batch, 0));
    }
    for (; g && n_items < most; g = find_waiting(b, now, false)) {
        g->last_step = now;
        if (n_items + 1 + (size_t)g->guess.n > most)
            g->guess.n = 0;
        n_items = count_unread(g) == 1 ? add_newest(b, n_items, g) : add_items(b, n_items, g, 1);
    }
    return n_items;
}

/* Puts the batch together: generations first, then prompts, the oldest first. Returns its size. */
static size_t fill_batch(lace_batcher *b)
{
    if (b->options.is_deterministic)
        return fill_same(b);
    size_t n_items = 0, capacity = (size_t)b->options.session.n_batch;
    step_load load = {.most = capacity};
    uint64_t now = clock_ns();
    for (lace_generation *g = b->running.first; g; g = g->next) {
        int32_t n = count_unread(g);
        if (n == 1)
            n_items = add_newest(b, n_items, g);
        else if (n == 0 && follows(g))
            n_items = add_unknown(b, n_items, g);
        if (n <= 1)
            continue;
        load.n_prompts++;
        load.n_unread += (size_t)n;
        if (!g->first_ns && now - g->added_ns > load.waits_ns)
            load.waits_ns = now - g->added_ns;
    }
    load.n_next = n_items;
    if (n_items > 0 || load.n_prompts > 1)
        capacity = step_size_rows(&b->size, &load);
    for (lace_generation *g = b->running.first; g && n_items < capacity; g = g->next) {
        int32_t n = count_unread(g);
        if (n <= 1)
            continue;
        int32_t room = (int32_t)(capacity - n_items);
        n_items = add_items(b, n_items, g, count_read(b, g, n < room ? n : room, n_items));
    }
    return n_items;
}

/* Its last late choice has taken so long that the next one is made late, too. */
static bool chooses_late(const lace_generation *g)
{
    return g->last_late_ns >= (uint64_t)CHOOSE_ONE_NS;
}

/* Where nobody asks whether guesses pay: few generations have some. */
static int32_t count_always(const lace_batcher *b)
{
    int32_t n_running = b->running.n + b->late.n, each = b->options.n_draft / n_running;
    return n_running > GUESSING_MOST ? 0 : each > 1 ? each : 1;
}

/* How many tokens may be guessed for a generation: no more than can be of use. */
static int32_t count_room(const lace_batcher *b, const lace_generation *g)
{
    int32_t most = b->source.plan ? b->options.n_draft : count_always(b);
    int32_t room = b->options.session.n_context - g->n_tokens;
    int32_t left = g->options.max_tokens - g->stats.n_generated - 1;
    if (g->options.max_tokens >= 0 && left < room)
        room = left;
    return most < room ? most : room;
}

/* What predicts needs pages for its guesses. Without them, it guesses nothing. */
static void make_room_for_guesses(lace_batcher *b, const guess_request *requests, size_t n)
{
    page_demand demand = {0};
    for (size_t i = 0; b->source.predictor && i < n; i++)
        states_add_demand(b->session->kv, requests[i].sequence, requests[i].most, &demand);
    batcher_make_room(b, &demand);
}

/* What the plan must know of the step. Returns whether it may have guesses. */
static bool begin_plan(lace_batcher *b)
{
    int32_t n_most = b->options.session.n_outputs;
    b->plan.n_rows = 0;
    for (lace_generation *g = b->running.first; g; g = g->next) {
        g->guess.n = g->guess.n_right = 0;
        b->plan.n_rows += g->n_tokens - g->n_computed == 1;
    }
    /* No more rows than give the bits of one: guesses then change no text by rounding. */
    b->plan.rows_most = b->same_tokens > 1 && b->same_tokens < n_most ? b->same_tokens : n_most;
    if (b->options.is_deterministic) {
        const lace_generation *g = find_waiting(b, UINT64_MAX, true);
        if (g && reads_prompt(g))
            return false;
    }
    return b->guesses && b->plan.n_rows > 0 && b->n_flights == 0;
}

static void make_guesses(lace_batcher *b)
{
    guess_request requests[GUESS_MOST];
    size_t n = 0;
    bool may_guess = begin_plan(b);
    for (lace_generation *g = b->running.first; may_guess && g && n < GUESS_MOST; g = g->next)
        if (g->n_tokens - g->n_computed == 1 && !chooses_late(g) && g->n_images == 0)
            requests[n++] = (guess_request){.to = &g->guess,
                                            .text = g->tokens,
                                            .n_text = g->n_tokens,
                                            .most = count_room(b, g),
                                            .sequence = g->sequence};
    b->n_plain = n > 0 ? 0 : b->n_plain + 1;
    b->is_guessing = false;
    if (n == 0)
        return;
    make_room_for_guesses(b, requests, n);
    /* Texts do without a draft that fails. */
    if (guess_make(&b->source, requests, n, NULL) != LACE_OK) {
        b->source.draft = NULL;
        b->source.predictor = NULL;
        b->guesses = b->source.use_lookup;
    }
    for (size_t i = 0; i < n; i++)
        b->is_guessing = b->is_guessing || requests[i].to->n > 0;
}

/* False if there are none. */
static bool drop_guesses(lace_batcher *b)
{
    bool has_some = false;
    for (lace_generation *g = b->running.first; g; g = g->next) {
        has_some = has_some || g->guess.n > 0;
        g->guess.n = 0;
    }
    return has_some;
}

/* Makes sure that the pool can take the batch; who must give way is out of it. */
static size_t prepare_batch(lace_batcher *b)
{
    for (;;) {
        size_t n_items = fill_batch(b);
        page_demand demand = {0};
        for (size_t i = 0; i < n_items;) {
            size_t n = 1;
            while (i + n < n_items && b->items[i + n].sequence == b->items[i].sequence)
                n++;
            states_add_demand(b->session->kv, b->items[i].sequence, (int32_t)n, &demand);
            i += n;
        }
        if (batcher_make_room(b, &demand))
            return n_items;
        if (b->n_flights > 0) /* what comes of it may leave room */
            return 0;
        if (!drop_guesses(b) && !batcher_give_way(b))
            return n_items;
    }
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* What a grammar allows is found out within the step's time, or late. */
static void choose_within(lace_batcher *b, lace_generation *g, int32_t word, const float *logits)
{
    int64_t left = atomic_load(&b->choose_ns);
    int64_t most = left < CHOOSE_ONE_NS ? left : CHOOSE_ONE_NS;
    if (left > 0 && !chooses_late(g)) {
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

static void choose_one(lace_batcher *b, lace_generation *g)
{
    int32_t word = session_word(b->session, (size_t)g->row);
    const float *logits = lace_session_logits(b->session, (size_t)g->row);
    if (g->form && word == CHOICE_REFUSED)
        choose_within(b, g, word, logits);
    else
        generation_choose(g, word, logits);
}

static void choose_tokens(void *arg, int self, int n_workers)
{
    lace_batcher *b = arg;
    int i = 0;
    for (lace_generation *g = b->running.first; g; g = g->next)
        if (g->row >= 0 && i++ % n_workers == self)
            choose_one(b, g);
}

static void note_times(lace_generation *g, uint64_t now)
{
    if (!g->first_ns) {
        g->first_ns = now;
        g->stats.prompt_ns = now - g->started_ns;
    }
    g->stats.generate_ns = now - g->first_ns;
}

bool advance_deliver(lace_batcher *b, lace_generation *g, uint64_t now)
{
    g->row = -1;
    note_times(g, now);
    b->stats.n_generated_tokens += g->token >= 0;
    if (g->finish != LACE_FINISH_NONE) {
        batcher_end(b, g);
        return false;
    }
    generation_deliver(g);
    if (!g->is_full)
        return true;
    batcher_refill(b, g);
    return false;
}

/*
 * The guesses that are left are of no use: the sequence goes back to where the text is, or to where
 * its state can still be had, and what is missing is computed again.
 */
static void take_back(lace_batcher *b, lace_generation *g, bool is_wrong)
{
    if (g->guess.n == 0)
        return;
    int32_t n_right = g->guess.n_right, n_judged = guess_judge(&b->source, &g->guess, is_wrong);
    g->stats.n_guessed += n_judged;
    g->stats.n_accepted += n_right;
    b->stats.n_guessed += (uint64_t)n_judged;
    b->stats.n_accepted += (uint64_t)n_right;
    g->n_computed = states_reach(b->session->kv, g->sequence, g->n_computed);
    states_set_length(b->session->kv, g->sequence, g->n_computed);
}

/* What was chosen goes out; as long as it was guessed, the row to choose the next one is there. */
static void take_rows(lace_batcher *b, lace_generation *g, uint64_t now)
{
    if (g->n_queued > 0 &&
        (g->was_forced || session_word(b->session, (size_t)g->row) == CHOICE_REFUSED))
        flight_take_back(b, g);
    for (;;) {
        int32_t row = g->row;
        bool goes_on = !g->is_late && g->finish == LACE_FINISH_NONE && !g->is_full;
        bool is_right = goes_on && g->token == guess_next(&g->guess);
        if (!is_right)
            take_back(b, g, goes_on);
        if (g->is_late)
            return;
        if (is_right) {
            g->guess.n_right++;
            g->n_computed++;
        }
        if (!advance_deliver(b, g, now) || !is_right)
            return;
        g->row = row + 1;
        choose_one(b, g);
    }
}

static void deliver(lace_batcher *b)
{
    uint64_t now = clock_ns();
    lace_generation *next;
    for (lace_generation *g = b->running.first; g; g = next) {
        next = g->next;
        if (g->row >= 0)
            take_rows(b, g, now);
    }
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* How far prompts are read; one that is computed again does not go back. */
static void show_prompts(lace_batcher *b)
{
    uint64_t now = clock_ns();
    for (lace_generation *g = b->running.first; g; g = g->next) {
        int32_t n = g->n_computed < g->stats.n_prompt ? g->n_computed : g->stats.n_prompt;
        if (n <= g->stats.n_read)
            continue;
        g->stats.n_read = n;
        if (!g->first_ns)
            g->stats.prompt_ns = now - g->started_ns;
        if (g->options.shows_prompt)
            generation_show_prompt(g);
    }
}

/* Whole pages of prompts are of use to others from now on. */
static void keep_prompts(lace_batcher *b)
{
    for (lace_generation *g = b->running.first; g; g = g->next) {
        if (!batcher_uses_prefixes(b, g) || g->n_computed > g->stats.n_prompt ||
            g->n_computed < PAGE_TOKENS)
            continue;
        prefix_tree_keep(b->prefixes, g->owner, g->sequence, g->tokens, g->n_computed, false);
        if (g->n_computed == g->stats.n_prompt)
            prefix_tree_store(b->prefixes, g->owner, g->tokens, g->n_computed);
    }
}

/*
 * How the card is to choose, in the order of the batch's outputs. A row behind a guess is behind so many
 * tokens more: one that may not end the text here may end it there. What is drawn behind a guess
 * depends on the draw before: the host does that.
 */
static void set_rules(lace_batcher *b, size_t n_items)
{
    size_t n = 0;
    int32_t last = -1, n_ahead = 0;
    flight_map_sequences(b);
    for (size_t i = 0; i < n_items; i++) {
        const lace_item *item = &b->items[i];
        if (!item->want_logits)
            continue;
        bool is_behind = item->sequence == last;
        n_ahead = is_behind ? n_ahead + 1 : item->token < 0;
        choice_rule rule = generation_rule(b->by_sequence[item->sequence], n_ahead);
        if (is_behind && rule.temperature > 0)
            rule.temperature = -1;
        rule.goes_on =
            rule.goes_on && item->token < 0; /* with the draws of a row that is not known yet */
        last = item->sequence;
        b->rules[n++] = rule;
    }
}

/* Put a step together and queue it. False if there is nothing to compute. */
static bool submit_step(lace_batcher *b)
{
    make_guesses(b);
    size_t n_items = prepare_batch(b);
    if (n_items == 0)
        return false;
    for (lace_generation *g = b->running.first; g; g = g->next)
        if (g->guess.n > 0)
            session_mark(b->session, g->sequence);
    if (b->rules)
        set_rules(b, n_items);
    flight_submit(b, n_items);
    return true;
}

/* What comes of the oldest step. */
static void collect_step(lace_batcher *b)
{
    int32_t n_choosing;
    if (!flight_collect(b, &n_choosing))
        return;
    show_prompts(b);
    keep_prompts(b);
    atomic_store(&b->choose_ns, CHOOSE_ALL_NS);
    if (n_choosing > 1)
        pool_run(b->session->workers, choose_tokens, b);
    else
        choose_tokens(b, 0, 1);
    deliver(b);
}

static bool is_alone(const lace_batcher *b)
{
    return b->running.n == 1 && b->waiting.n + b->late.n == 0;
}

/*
 * Whether a step may be queued before what came of the one before is known. Guesses stand behind
 * tokens that are known: where they pay, or to find out now and then; and one that is alone and past
 * its prompt is computed ahead.
 */
static bool may_overlap(const lace_batcher *b)
{
    bool is_guessing = b->source.plan ? b->is_guessing || b->n_plain >= GUESS_AGAIN
                                      : b->running.n + b->late.n <= GUESSING_MOST;
    bool goes_ahead =
        is_alone(b) && ahead_is_possible(b->session) && count_unread(b->running.first) == 0;
    return b->session->runner->program->queues && !b->options.is_deterministic &&
           !(b->guesses && is_guessing) && !goes_ahead;
}

bool advance_batch(lace_batcher *b)
{
    bool is_waited_for = b->n_flights > 0, is_done = is_waited_for;
    if (!is_waited_for || may_overlap(b)) {
        uint64_t begin = clock_ns();
        is_done = submit_step(b) || is_done;
        b->queuing_ns[1] = b->queuing_ns[0];
        b->queuing_ns[0] = clock_ns() - begin;
    }
    if (b->n_flights > 0 && (is_waited_for || !may_overlap(b)))
        collect_step(b);
    return is_done;
}

/*
 * The next step is queued before the one under way ends, but no sooner than it must be: a request that
 * comes meanwhile does not wait for a step that nobody had to queue yet. A quarter of the step is left
 * for what it may be shorter this time.
 */
uint64_t advance_rest_ns(const lace_batcher *b)
{
    bool is_full = b->running.n + b->late.n >= b->options.session.n_sequences;
    if (!b->rests || b->n_hurried > 0 || b->n_flights != 1 || is_full || !may_overlap(b))
        return 0;
    const uint64_t *queuing = b->queuing_ns;
    uint64_t needed = WAKE_NS + 2 * (queuing[0] > queuing[1] ? queuing[0] : queuing[1]);
    flight_times t = flight_time(b);
    uint64_t spare = t.takes_ns / 4 > needed ? t.takes_ns / 4 : needed;
    uint64_t gone = clock_ns() - t.begin_ns + spare;
    return gone < t.takes_ns ? t.takes_ns - gone : 0;
}

/* ---- Working ahead --------------------------------------------------------------------------- */

/* One generation has the batcher to itself, is past its prompt, and the device knows its rule. */
static bool may_work_ahead(lace_batcher *b, lace_generation *g, choice_rule *rule)
{
    if (!ahead_is_possible(b->session) || b->guesses || b->n_flights > 0 || !is_alone(b) ||
        g->n_tokens - g->n_computed != 1)
        return false;
    *rule = generation_rule(g, 0);
    return rule->temperature >= 0 && !ahead_is_hosts_turn(&g->ahead);
}

/* False: not possible, or there is no room. */
static bool begin_ahead(lace_batcher *b, lace_generation *g, lace_status *status, lace_error *err)
{
    choice_rule rule;
    page_demand demand = {0};
    int32_t n = b->options.session.n_context - g->n_computed;
    int32_t left = g->options.max_tokens - g->stats.n_generated;
    if (g->options.max_tokens >= 0 && left < n)
        n = left;
    left = watch_free(&g->watch);
    n = left < n ? left : n;
    left = g->options.min_tokens - g->stats.n_generated;
    if (left > 0 && left < n) /* the rule is another one behind those */
        n = left;
    n = n < AHEAD_MOST ? n : AHEAD_MOST;
    if (n < 1 || !may_work_ahead(b, g, &rule))
        return false;
    states_add_demand(b->session->kv, g->sequence, n, &demand);
    if (!batcher_make_room(b, &demand))
        return false;
    *status = ahead_begin(&g->ahead, g->tokens[g->n_tokens - 1],
                          rule.temperature > 0 || rule.n_edits > 0 ? &rule : NULL, n, err);
    return true;
}

bool advance_ahead(lace_batcher *b)
{
    lace_error err = {0};
    lace_status status = LACE_OK;
    lace_generation *g;
    while ((g = b->running.first) && (g->ahead.is_under_way || begin_ahead(b, g, &status, &err))) {
        int32_t word = CHOICE_REFUSED;
        if (b->waiting.n > 0) /* they begin behind what is queued by now */
            ahead_hold(&g->ahead);
        if (status == LACE_OK && !ahead_is_spent(&g->ahead) && watch_forced(&g->watch) < 0)
            status = ahead_next(&g->ahead, &word, &err);
        if (status == LACE_OK && word != CHOICE_REFUSED) {
            b->stats.n_steps++;
            g->n_computed++;
            generation_choose(g, word, NULL);
            advance_deliver(b, g, clock_ns());
            return true;
        }
        lace_status ended = ahead_end(&g->ahead, status == LACE_OK ? &err : NULL);
        g->n_computed = b->session->kv->sequences[g->sequence].n_tokens; /* or further back */
        if (status == LACE_OK)
            status = ended;
        if (status != LACE_OK) {
            generation_fail(g, status, &err);
            batcher_end(b, g);
            return true;
        }
    }
    return false;
}
