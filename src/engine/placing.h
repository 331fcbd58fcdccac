/*
 * Where a model runs: what lace_model_options.device says (place/rules.h) becomes a model on one
 * device or on several; by itself, where a card has not room for all of it.
 */
#ifndef LACE_ENGINE_PLACING_H
#define LACE_ENGINE_PLACING_H

#include "model/model.h"
#include "place/rules.h"

enum { PLACING_NOTE_BYTES = 256 };

typedef struct placing {
    place_rules rules;
    placement where;             /* n_devices 0: on one device, whole */
    char name[PLACE_NAME_BYTES]; /* that one */
    char note
        [PLACING_NOTE_BYTES]; /* one line: what was chosen by itself, and why; "": nothing was */
} placing;

/* Which device to bind on first, and for what. */
lace_status placing_begin(placing *p, const char *said, const device_options *o, lace_error *err);

/* When all is bound: bring it where it belongs, if that is not one device. */
lace_status placing_end(placing *p, model *m, const device_options *o, lace_error *err);

#endif
