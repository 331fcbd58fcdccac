/* A token from a row of logits by a rule: what every device that chooses must do. */
#ifndef LACE_BACKEND_REF_CHOOSE_REF_H
#define LACE_BACKEND_REF_CHOOSE_REF_H

#include "backend/choice.h"

/* The word for logits [n_vocab]; steps the rule's random generator. list: [n_vocab] scratch. */
int32_t choose_ref(choice_rule *rule, const float *logits, int32_t n_vocab, choice_edit *list);

#endif
