/* How many tokens to guess for each text of a step: as many as pay. */
#include "engine/guess_plan.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/numbers.h"

/* What a text's record is worth against what is known of others: so many guesses. */
#define PRIOR_WEIGHT 2.0
/* Of a server that has not guessed yet, worth so many guesses. */
#define FIRST_RIGHT  0.7
#define FIRST_WEIGHT 16.0
/* What an older guess counts, in a text's record and in that of all. */
#define KEEP_OF_TEXT 0.92f
#define KEEP_OF_ALL  0.99f
/* Guesses must promise so much more than a step without. */
#define LEAST_GAIN 1.02
/* Of the time, for guesses that may not pay. */
#define SPARE_SHARE 0.01

enum {
    OLD_NOTES = 2048,  /* steps after which a time is not believed any more */
    PLAIN_NOTES = 512, /* that of a step without guesses is measured anew, as all depends on it */
    LEAST_IDLE = 16,   /* tokens before a text is tried again */
    TRIED = 3,         /* guesses, then */
    SPARE_STEPS = 16,  /* what can be saved for that, in steps */
    MOST_LOST = 3,     /* steps' worth of time that guesses may lose before a rest */
    LEAST_REST = 64,   /* steps */
    MOST_REST = 1024,
    USUAL_UNREAD =
        2, /* tokens that a draft reads for its first guess, where it is used all the time */
};

uint64_t guess_plan_clock(const guess_plan *p)
{
    return p->is_host ? clock_used_ns() : clock_ns();
}

/* ---- Times ----------------------------------------------------------------------------------- */

void row_times_note(row_times *t, int32_t n_rows, uint64_t ns)
{
    if (n_rows < 1 || n_rows > TIMED_STEP_ROWS)
        return;
    t->n_notes++;
    float now = (float)ns, *at = &t->ns[n_rows];
    bool is_known = *at > 0 && t->n_notes - t->noted_at[n_rows] < OLD_NOTES;
    /* One that took longer may have had to wait for something else: it counts less. */
    *at = !is_known ? now : now < *at ? *at + (now - *at) / 4 : *at + (now - *at) / 16;
    t->noted_at[n_rows] = t->n_notes;
}

static double time_of(const row_times *t, int32_t n_rows, uint32_t most_notes)
{
    bool is_new = t->n_notes - t->noted_at[n_rows] < most_notes;
    return is_new ? (double)t->ns[n_rows] : 0;
}

double row_times_expect(const row_times *t, int32_t n_rows)
{
    int32_t below = n_rows < TIMED_STEP_ROWS ? n_rows : TIMED_STEP_ROWS, above = n_rows;
    while (below > 0 && time_of(t, below, OLD_NOTES) == 0)
        below--;
    if (below == n_rows)
        return time_of(t, below, OLD_NOTES);
    while (above <= TIMED_STEP_ROWS && time_of(t, above, OLD_NOTES) == 0)
        above++;
    double less = below > 0 ? time_of(t, below, OLD_NOTES) : 0;
    if (above <= TIMED_STEP_ROWS) {
        double more = time_of(t, above, OLD_NOTES);
        if (below == 0)
            return more * (0.5 + 0.5 * n_rows / above);
        return less + (more - less) * (n_rows - below) / (above - below);
    }
    /* Hopefully: what is tried is measured. */
    return below > 0 ? less * (1 + 0.25 * (n_rows - below) / below) : 0;
}

/* ---- Records --------------------------------------------------------------------------------- */

static double share_right(const guess_record *r, double prior, double weight)
{
    return ((double)r->n_right + weight * prior) / ((double)r->n_judged + weight);
}

double guess_plan_likely(const guess_plan *p, guess_kind kind, const guess_record *record)
{
    double prior = share_right(&p->all[kind], FIRST_RIGHT, FIRST_WEIGHT);
    return share_right(record, prior, PRIOR_WEIGHT);
}

static void add_to_record(guess_record *r, float keep, int32_t n_judged, int32_t n_right)
{
    for (int32_t i = 0; i < n_judged; i++) {
        r->n_judged = r->n_judged * keep + 1;
        r->n_right = r->n_right * keep + (float)(i < n_right);
    }
}

void guess_plan_note_guesses(guess_plan *p, guess_kind kind, guess_record *record, int32_t n_judged,
                             int32_t n_right)
{
    int32_t n = n_right < n_judged ? n_right + 1 : n_judged;
    p->last_right += n_right;
    add_to_record(record, KEEP_OF_TEXT, n, n_right);
    add_to_record(&p->all[kind], KEEP_OF_ALL, n, n_right);
}

void guess_plan_note_step(guess_plan *p, int32_t n_rows, uint64_t ns)
{
    row_times_note(&p->steps, n_rows, ns);
    p->last_step_ns = (double)ns;
    double most = SPARE_STEPS * (double)ns;
    if (p->steps.n_notes == 1) /* to begin with: nothing is known yet */
        p->spare_ns = most;
    p->spare_ns += SPARE_SHARE * (double)ns;
    p->spare_ns = p->spare_ns < most ? p->spare_ns : most;
}

void guess_plan_note_draft(guess_plan *p, int32_t n_rows, uint64_t ns)
{
    row_times_note(&p->drafts, n_rows, ns);
    p->last_draft_ns += (double)ns;
}

/* What the guesses of the last step have won or lost; many that lose are followed by a rest. */
static void settle(guess_plan *p)
{
    double plain = p->last_rows > 0 ? row_times_expect(&p->steps, p->last_rows) : 0;
    if (plain > 0 && p->last_step_ns > 0)
        p->balance_ns = 0.95 * p->balance_ns + p->last_right * plain / p->last_rows -
                        (p->last_step_ns - plain) - p->last_draft_ns;
    if (p->balance_ns < -MOST_LOST * plain && plain > 0) {
        p->rest = p->rest ? (int32_t)min_i64(2 * p->rest, MOST_REST) : LEAST_REST;
        p->n_rest = p->rest;
        p->balance_ns = 0;
    } else if (p->balance_ns > MOST_LOST * plain) {
        p->rest = 0;
    }
    p->last_rows = p->last_right = 0;
    p->last_step_ns = p->last_draft_ns = 0;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* Texts whose n-th guess a model makes: it is asked so often, and with so many rows. */
typedef struct asked {
    int32_t n_texts[GUESS_MOST];
} asked;

static double draft_ns(const guess_plan *p, const asked *a)
{
    double ns = 0;
    for (int i = 0; i < GUESS_MOST && a->n_texts[i] > 0; i++)
        ns += row_times_expect(&p->drafts, a->n_texts[i] * (i == 0 ? USUAL_UNREAD : 1));
    return ns;
}

/* The guess that is most likely of use; NULL: none is left. */
static guess_chance *best_of(guess_chance *chances, int32_t n, const double *likely_next,
                             double *best)
{
    guess_chance *at = NULL;
    *best = 0;
    for (int32_t i = 0; i < n; i++)
        if (chances[i].n < chances[i].most && likely_next[i] > *best) {
            *best = likely_next[i];
            at = &chances[i];
        }
    return at;
}

/* Whoever has been without guesses longest is tried, if there is time to spare. */
static void try_one(guess_plan *p, guess_chance *chances, int32_t n)
{
    guess_chance *longest = NULL;
    for (int32_t i = 0; i < n; i++)
        if (chances[i].most > 0 && chances[i].n == 0 && chances[i].n_idle >= LEAST_IDLE &&
            (!longest || chances[i].n_idle > longest->n_idle))
            longest = &chances[i];
    if (!longest)
        return;
    int32_t tried = longest->most < TRIED ? longest->most : TRIED;
    double cost =
        row_times_expect(&p->steps, p->n_rows + tried) - row_times_expect(&p->steps, p->n_rows);
    if (longest->kind == GUESS_BY_MODEL)
        cost += row_times_expect(&p->drafts, longest->n_unread) +
                (tried - 1) * row_times_expect(&p->drafts, 1);
    if (cost > p->spare_ns)
        return;
    longest->n = tried;
    p->spare_ns -= cost > 0 ? cost : 0;
}

void guess_plan_choose(guess_plan *p, guess_chance *chances, int32_t n_chances)
{
    double likely_one[GUESS_MOST], likely_next[GUESS_MOST];
    int32_t best_n[GUESS_MOST] = {0}, n_most = p->rows_most - p->n_rows;
    n_chances = n_chances < GUESS_MOST ? n_chances : GUESS_MOST;
    n_most = n_most < GUESS_ROWS ? n_most : GUESS_ROWS;
    settle(p);
    p->n_rest -= p->n_rest > 0;
    for (int32_t i = 0; i < n_chances; i++) {
        chances[i].n = 0;
        likely_one[i] = likely_next[i] = guess_plan_likely(p, chances[i].kind, chances[i].record);
    }
    /* What a step without guesses takes is measured now and then. */
    bool is_known = p->n_rows <= TIMED_STEP_ROWS && time_of(&p->steps, p->n_rows, PLAIN_NOTES) > 0;
    if (!is_known || n_most < 1 || p->n_rest > 0)
        return;
    double plain = p->n_rows / row_times_expect(&p->steps, p->n_rows), best = plain * LEAST_GAIN;
    double n_tokens = p->n_rows, gain;
    asked a = {{0}};
    for (int32_t n = 1; n <= n_most; n++) {
        guess_chance *c = best_of(chances, n_chances, likely_next, &gain);
        if (!c)
            break;
        if (c->kind == GUESS_BY_MODEL)
            a.n_texts[c->n]++;
        c->n++;
        likely_next[c - chances] *= likely_one[c - chances];
        n_tokens += gain;
        double rate = n_tokens / (row_times_expect(&p->steps, p->n_rows + n) + draft_ns(p, &a));
        if (rate <= best)
            continue;
        best = rate;
        for (int32_t i = 0; i < n_chances; i++)
            best_n[i] = chances[i].n;
    }
    for (int32_t i = 0; i < n_chances; i++)
        chances[i].n = best_n[i];
    try_one(p, chances, n_chances);
    for (int32_t i = 0; i < n_chances; i++)
        if (chances[i].n > 0)
            p->last_rows = p->n_rows;
}
