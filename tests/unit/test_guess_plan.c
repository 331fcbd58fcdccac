/* How many guesses are planned: as many as pay, by times and records that are made up. */
#include "engine/guess_plan.h"
#include "tap.h"

enum { N = 8 };

static guess_record records[N];

/* A step takes `base` and `each` for every row, a draft's evaluation `draft`. */
static guess_plan make_plan(double base, double each, double draft)
{
    guess_plan p = {.n_rows = N, .rows_most = N + GUESS_ROWS};
    for (int rows = 1; rows <= TIMED_STEP_ROWS; rows++) {
        row_times_note(&p.steps, rows, (uint64_t)(base + each * rows));
        row_times_note(&p.drafts, rows, (uint64_t)draft);
    }
    return p;
}

/* n_right of 20 guesses were. */
static void set_record(guess_plan *p, int text, int n_right)
{
    records[text] = (guess_record){0};
    for (int i = 0; i < 20; i++)
        guess_plan_note_guesses(p, GUESS_BY_MODEL, &records[text], 1,
                                i * n_right / 20 < (i + 1) * n_right / 20);
}

static int choose(guess_plan *p, guess_chance *chances, int n_idle)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        chances[i] = (guess_chance){.kind = GUESS_BY_MODEL,
                                    .record = &records[i],
                                    .most = 8,
                                    .n_idle = n_idle,
                                    .n_unread = 2};
    guess_plan_choose(p, chances, N);
    for (int i = 0; i < N; i++)
        n += chances[i].n;
    return n;
}

static void rows_that_cost_little_are_used(void)
{
    guess_chance chances[N];
    guess_plan p = make_plan(10e6, 1e3, 1e5);
    for (int i = 0; i < N; i++)
        set_record(&p, i, 19);
    CHECK(choose(&p, chances, 0) == GUESS_ROWS);
    for (int i = 0; i < N; i++)
        CHECK(chances[i].n == GUESS_ROWS / N);
}

static void each_text_has_guesses_by_its_own_record(void)
{
    guess_chance chances[N];
    guess_plan p = make_plan(4e6, 3e5, 1e5);
    for (int i = 0; i < N; i++)
        set_record(&p, i, i < 2 ? 19 : 1);
    CHECK(choose(&p, chances, 0) > 0);
    CHECK(chances[0].n > 0 && chances[1].n > 0);
    for (int i = 2; i < N; i++)
        CHECK(chances[i].n == 0);
}

static void what_does_not_pay_is_left(void)
{
    guess_chance chances[N];
    guess_plan p = make_plan(1e5, 1e6, 1e5); /* every row costs as much as the others */
    for (int i = 0; i < N; i++)
        set_record(&p, i, 18);
    CHECK(choose(&p, chances, 0) == 0);
    p = make_plan(10e6, 1e3, 40e6); /* the draft takes longer than the model */
    for (int i = 0; i < N; i++)
        set_record(&p, i, 18);
    CHECK(choose(&p, chances, 0) == 0);
    p = make_plan(10e6, 1e5, 1e5); /* no guess is right */
    for (int i = 0; i < N; i++)
        set_record(&p, i, 0);
    CHECK(choose(&p, chances, 0) == 0);
}

static void the_limit_of_rows_is_kept(void)
{
    guess_chance chances[N];
    guess_plan p = make_plan(10e6, 1e3, 1e5);
    p.rows_most = N + 3;
    for (int i = 0; i < N; i++)
        set_record(&p, i, 19);
    CHECK(choose(&p, chances, 0) == 3);
    p.rows_most = N;
    CHECK(choose(&p, chances, 0) == 0);
}

/* Trials take a small share of the time: over many steps, what they cost is in it. */
static void trials_take_a_small_share(void)
{
    guess_chance chances[N];
    guess_plan p = make_plan(2e6, 5e5, 1e6);
    double spent = 0, total = 0;
    int n_tried = 0;
    for (int i = 0; i < N; i++)
        set_record(&p, i, 0);
    for (int step = 0; step < 20000; step++) {
        int n = choose(&p, chances, 100);
        double ns = 2e6 + 5e5 * (N + n);
        n_tried += n > 0;
        spent += n > 0 ? 5e5 * n + 2e6 : 0;
        total += ns;
        guess_plan_note_step(&p, N + n, (uint64_t)ns);
        for (int i = 0; i < N; i++)
            if (chances[i].n > 0)
                guess_plan_note_guesses(&p, GUESS_BY_MODEL, &records[i], chances[i].n, 0);
    }
    tap_note("%d trials, %.2f %% of the time", n_tried, 100 * spent / total);
    CHECK(n_tried > 10 && spent < 0.02 * total);
}

/* A text whose guesses have become good is found by trials, and has guesses from then on. */
static void a_text_that_changes_is_found(void)
{
    guess_chance chances[N];
    guess_plan p = make_plan(8e6, 1e4, 1e5);
    int n = 0;
    for (int i = 0; i < N; i++)
        set_record(&p, i, 0);
    for (int step = 0; step < 3000; step++) {
        n = choose(&p, chances, 100);
        guess_plan_note_step(&p, N + n, (uint64_t)(8e6 + 1e4 * (N + n)));
        for (int i = 0; i < N; i++)
            if (chances[i].n > 0)
                guess_plan_note_guesses(&p, GUESS_BY_MODEL, &records[i], chances[i].n,
                                        chances[i].n);
    }
    CHECK(n > N);
}

static void times_in_between_are_between(void)
{
    row_times t = {0};
    CHECK(row_times_expect(&t, 4) == 0);
    row_times_note(&t, 4, 4000);
    row_times_note(&t, 8, 6000);
    CHECK(row_times_expect(&t, 4) == 4000 && row_times_expect(&t, 6) == 5000);
    CHECK(row_times_expect(&t, 12) > 6000 && row_times_expect(&t, 12) < 9000);
    CHECK(row_times_expect(&t, 2) < 4000 && row_times_expect(&t, 2) > 0);
    row_times_note(&t, 0, 1);
    row_times_note(&t, TIMED_STEP_ROWS + 1, 1);
    CHECK(row_times_expect(&t, 4) == 4000);
}

int main(void)
{
    CASE(rows_that_cost_little_are_used);
    CASE(each_text_has_guesses_by_its_own_record);
    CASE(what_does_not_pay_is_left);
    CASE(the_limit_of_rows_is_kept);
    CASE(trials_take_a_small_share);
    CASE(a_text_that_changes_is_found);
    CASE(times_in_between_are_between);
    return tap_end();
}
