/*
 * How many tokens to guess for each text of a step: as many as pay.
 *
 * A guess is one more row of the step, and costs what a step of one row more takes longer. It brings
 * a token if it is right, and all before it are. So the guesses of all texts are sorted by how likely
 * that is, by what each text's own guesses were worth so far, and as many of the best are taken as
 * make the most tokens in the time: that of the step, and that of the model that guesses. Both times
 * are measured, for each number of rows.
 *
 * Where nothing pays, a text is tried again now and then, in a small share of the time. And what came
 * of steps with guesses is added up: if they lose time after all, there are none for a while.
 */
#ifndef LACE_ENGINE_GUESS_PLAN_H
#define LACE_ENGINE_GUESS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GUESS_MOST = 32,      /* for one text at once, and texts of a step that have some */
    GUESS_ROWS = 64,      /* for all texts of a step */
    TIMED_STEP_ROWS = 96, /* steps of up to so many rows are timed */
};

/* What steps of so many rows took. */
typedef struct row_times {
    float ns[TIMED_STEP_ROWS + 1];          /* smoothed; 0: not known */
    uint32_t noted_at[TIMED_STEP_ROWS + 1]; /* number of the note */
    uint32_t n_notes;
} row_times;

void row_times_note(row_times *t, int32_t n_rows, uint64_t ns);

/* What a step would take: by steps with about as many rows. 0: nothing is known. */
double row_times_expect(const row_times *t, int32_t n_rows);

/* Guesses of one text, or of many, newer ones counting more. */
typedef struct guess_record {
    float n_judged, n_right;
} guess_record;

/* Where a guess comes from. */
typedef enum guess_kind { GUESS_BY_TEXT, GUESS_BY_MODEL, N_GUESS_KINDS } guess_kind;

typedef struct guess_plan {
    row_times steps;  /* of the model that checks */
    row_times drafts; /* of the draft, or of the layer that predicts: one evaluation */
    guess_record all[N_GUESS_KINDS]; /* what a new text begins with */
    double spare_ns;                 /* that may go to guesses of which nobody knows if they pay */
    double last_step_ns, last_draft_ns; /* of the last step; with guesses, if last_rows > 0 */
    int32_t last_rows, last_right; /* its rows without guesses; guesses of it that were right */
    double balance_ns;             /* won by guesses lately, or lost */
    int32_t n_rest, rest;          /* steps without guesses to come; how many the next time */
    bool is_host;                  /* what is timed runs on this process's threads */
    int32_t n_rows;                /* the step's, without guesses */
    int32_t rows_most;             /* that a step may have, with them */
} guess_plan;

/* A text for which tokens could be guessed. */
typedef struct guess_chance {
    guess_kind kind;
    const guess_record *record; /* of its guesses of this kind */
    int32_t most;               /* that can be guessed */
    int32_t n_idle;             /* its tokens since it had guesses */
    int32_t n_unread;           /* by the model that guesses */
    int32_t n;                  /* out: how many to guess */
} guess_chance;

/*
 * The clock that times are taken by. On the host it counts what all threads have computed, and not what
 * other programs took from them: that would make long steps longer, and short ones not.
 */
uint64_t guess_plan_clock(const guess_plan *p);

/* How likely the next guess of a text is right, if those before it are. */
double guess_plan_likely(const guess_plan *p, guess_kind kind, const guess_record *record);

/* Sets `n` of each. */
void guess_plan_choose(guess_plan *p, guess_chance *chances, int32_t n_chances);

/* A step with as many rows, and without a prompt, took so long. */
void guess_plan_note_step(guess_plan *p, int32_t n_rows, uint64_t ns);

/* An evaluation of what guesses, for the step to come. */
void guess_plan_note_draft(guess_plan *p, int32_t n_rows, uint64_t ns);

/* n_judged guesses, of which n_right were, the first ones; none behind a wrong one counts. */
void guess_plan_note_guesses(guess_plan *p, guess_kind kind, guess_record *record, int32_t n_judged,
                             int32_t n_right);

#endif
