/*
 * Steps under way: batches that a device has been given and whose results nobody has looked at.
 *
 *     host      | submit 1 | submit 2 | collect 1, text, stops | submit 3 | collect 2 ...
 *     device               | step 1          | step 2                     | step 3
 *
 * While step 2 is put together, the tokens that step 1 chooses are not known. A generation goes on
 * all the same: the device is told to take the token that it chose last. If the text ends with that
 * token, or the device refuses to choose, what step 2 computes of it is forgotten. Its pages may be
 * given back at once: whoever takes them is computed behind step 2.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/batcher.h"

/* Who waits for a step that is not over waits longer than that: a guess, which no card has tried. */
#define OVER_NS (UINT64_C(50) * 1000)

enum { HURRIED_STEPS = 32 };

lace_status flights_create(lace_batcher *b, lace_error *err)
{
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        b->flights[i].rows =
            mem_calloc((size_t)b->options.session.n_sequences, sizeof *b->flights[i].rows);
        if (!b->flights[i].rows)
            return error_nomem(err, "a batcher");
    }
    return LACE_OK;
}

void flights_free(lace_batcher *b)
{
    for (int i = 0; i < PROGRAM_SLOTS; i++)
        mem_free(b->flights[i].rows);
}

void flight_map_sequences(lace_batcher *b)
{
    for (lace_generation *g = b->running.first; g; g = g->next)
        b->by_sequence[g->sequence] = g;
}

/* Who is in the batch. The tokens of a sequence stand together; guesses count when they are right. */
static void record(lace_batcher *b, flight *f, size_t n_items)
{
    f->n_rows = f->n_outputs = 0;
    flight_row *at = NULL;
    flight_map_sequences(b);
    for (size_t i = 0; i < n_items; i++) {
        lace_generation *g = b->by_sequence[b->items[i].sequence];
        if (!at || at->g != g) {
            at = &f->rows[f->n_rows++];
            *at = (flight_row){.g = g, .row = -1};
        }
        at->n += at->row < 0;
        if (b->items[i].want_logits && at->row < 0)
            at->row = f->n_outputs;
        f->n_outputs += b->items[i].want_logits;
    }
    for (int32_t i = 0; i < f->n_rows; i++) {
        f->rows[i].g->n_queued += f->rows[i].n;
        f->rows[i].g->is_asked = f->rows[i].g->is_asked || f->rows[i].row >= 0;
    }
}

/* A step that cannot be computed ends all that were in it. */
static void fail(lace_batcher *b, const flight *f, lace_status status, const lace_error *err)
{
    for (int32_t i = 0; i < f->n_rows; i++)
        if (f->rows[i].g && f->rows[i].g->finish == LACE_FINISH_NONE)
            generation_fail(f->rows[i].g, status, err);
    lace_generation *next;
    for (lace_generation *g = b->running.first; g; g = next) {
        next = g->next;
        if (g->finish != LACE_FINISH_NONE)
            batcher_end(b, g);
    }
}

static flight *flight_at(lace_batcher *b, int32_t i)
{
    return &b->flights[(b->first_flight + i) % PROGRAM_SLOTS];
}

void flight_submit(lace_batcher *b, size_t n_items)
{
    lace_error err = {0};
    flight *f = flight_at(b, b->n_flights);
    f->begun_ns = guess_plan_clock(&b->plan);
    lace_status status = session_submit(b->session, b->items, n_items, b->rules, &err);
    b->stats.n_steps++;
    record(b, f, n_items);
    f->n_items = n_items;
    f->submitted_ns = clock_ns();
    if (status == LACE_OK)
        b->n_flights++;
    else
        fail(b, f, status, &err);
}

/* A step begins when it is submitted, or when the one before ends. */
static uint64_t begin_of(const lace_batcher *b, const flight *f)
{
    return f->submitted_ns > b->collected_ns ? f->submitted_ns : b->collected_ns;
}

flight_times flight_time(const lace_batcher *b)
{
    const flight *f = &b->flights[b->first_flight];
    return (flight_times){begin_of(b, f), step_size_time(&b->size, f->n_items)};
}

/*
 * f was waited for from `asked` on. If it was over by then, nobody saw when it ended: the next step may
 * have come too late for the device. Then nobody rests for some steps, which are seen to end.
 */
static void note_time(lace_batcher *b, const flight *f, uint64_t asked)
{
    uint64_t now = clock_ns(), took = now - begin_of(b, f);
    bool was_over = now - asked < OVER_NS;
    bool has_rested = b->n_flights > 0 && flight_at(b, 0)->submitted_ns > begin_of(b, f) + took / 2;
    if (was_over)
        b->n_hurried = HURRIED_STEPS;
    else if (b->n_hurried > 0)
        b->n_hurried--;
    if (!was_over || !has_rested)
        step_size_note(&b->size, f->n_items, took);
    uint64_t planned = guess_plan_clock(&b->plan);
    uint64_t begin = f->begun_ns > b->planned_ns ? f->begun_ns : b->planned_ns;
    if ((size_t)f->n_outputs == f->n_items && f->n_items <= TIMED_STEP_ROWS)
        guess_plan_note_step(&b->plan, (int32_t)f->n_items, planned - begin);
    b->planned_ns = planned;
    b->collected_ns = now;
}

bool flight_collect(lace_batcher *b, int32_t *n_choosing)
{
    lace_error err = {0};
    flight *f = flight_at(b, 0);
    uint64_t asked = clock_ns();
    lace_status status = session_collect(b->session, f->n_outputs, &err);
    b->first_flight = (b->first_flight + 1) % PROGRAM_SLOTS;
    b->n_flights--;
    *n_choosing = 0;
    note_time(b, f, asked);
    if (status != LACE_OK) {
        fail(b, f, status, &err);
        return false;
    }
    for (lace_generation *g = b->running.first; g; g = g->next)
        g->row = -1;
    for (int32_t i = 0; i < f->n_rows; i++) {
        lace_generation *g = f->rows[i].g;
        if (!g)
            continue;
        int32_t unread = g->stats.n_prompt - g->n_computed, n = f->rows[i].n;
        b->stats.n_prompt_tokens += (uint64_t)(unread < 0 ? 0 : unread < n ? unread : n);
        g->n_computed += n;
        g->n_queued -= n;
        g->row = f->rows[i].row;
        *n_choosing += g->row >= 0;
        g->is_asked = g->is_asked && (g->row < 0 || g->n_queued > 0);
    }
    return true;
}

void flight_forget(lace_batcher *b, lace_generation *g)
{
    for (int32_t i = 0; i < b->n_flights; i++) {
        flight *f = flight_at(b, i);
        for (int32_t k = 0; k < f->n_rows; k++)
            if (f->rows[k].g == g)
                f->rows[k].g = NULL;
    }
    g->n_queued = 0;
    g->is_asked = false;
}

void flight_take_back(lace_batcher *b, lace_generation *g)
{
    flight_forget(b, g);
    g->n_computed = states_reach(b->session->kv, g->sequence, g->n_computed);
    states_set_length(b->session->kv, g->sequence, g->n_computed);
}
