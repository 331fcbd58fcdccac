/* Drawing from candidates by a rule (choice.h), on the host. */
#ifndef LACE_BACKEND_CHOICE_DRAW_H
#define LACE_BACKEND_CHOICE_DRAW_H

#include "backend/choice.h"

/*
 * A word from n candidates, whose logits are numbers, by a rule whose temperature is above 0. Where
 * the rule cuts, they are put in order and cut; its generator is stepped if one is drawn. With top_k, the
 * list needs to hold no more than the best so many.
 */
int32_t choice_draw(choice_rule *rule, choice_edit *list, int32_t n);

#endif
