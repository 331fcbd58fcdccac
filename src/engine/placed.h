/* For the command line: where a model runs, what was chosen, and what could be. */
#ifndef LACE_ENGINE_PLACED_H
#define LACE_ENGINE_PLACED_H

#include "lace.h"
#include "place/forms.h"
#include "place/what_if.h"

/* One line that says what was chosen by itself, and why; "": nothing was. */
const char *lace_model_placing_note(const lace_model *model);

/* Every form of a model on this machine's host and card, by measured speeds. */
typedef struct place_survey {
    char card[PLACE_NAME_BYTES]; /* "": there is none */
    place_facts facts;
    place_forms forms;
    placement where; /* as the chosen one */
} place_survey;

/*
 * A model that was opened for the CPU. card: NULL: the one that "auto" takes. card_bytes: that may be used
 * of it; 0: what is free. n_tokens: 0: 4,096.
 */
lace_status place_survey_make(lace_model *model, const char *card, uint64_t card_bytes,
                              place_goal goal, int32_t n_tokens, int32_t n_threads,
                              place_survey *out, lace_error *err);

/* The same by the speeds of a machine with a card that is not here. */
lace_status place_survey_imagine(lace_model *model, const what_if_machines *m, place_goal goal,
                                 int32_t n_tokens, place_survey *out, lace_error *err);

/* What the formulas of several machines need of it. */
void place_describe_model(const lace_model *model, what_if_model *out);

#endif
