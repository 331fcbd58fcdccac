/* A token from a row of logits by a rule (backend/choice.h), written to be read. */
#include "backend/ref/choose_ref.h"

#include <math.h>

#include "backend/choice_draw.h"

int32_t choose_ref(choice_rule *rule, const float *logits, int32_t n_vocab, choice_edit *list)
{
    int32_t n = 0;
    const choice_edit *best = list;
    if (rule->temperature < 0)
        return CHOICE_REFUSED;
    for (int32_t t = 0; t < n_vocab; t++)
        list[t] = (choice_edit){t, logits[t]};
    for (int32_t i = 0; i < rule->n_edits; i++)
        list[rule->edits[i].token].bias += rule->edits[i].bias;
    for (int32_t t = 0; t < n_vocab; t++) {
        if (!(list[t].bias < INFINITY))
            return CHOICE_REFUSED;
        if (list[t].bias == -INFINITY)
            continue;
        list[n] = list[t];
        best = list[n].bias > best->bias || n == 0 ? &list[n] : best;
        n++;
    }
    if (n == 0)
        return CHOICE_REFUSED;
    if (rule->temperature == 0)
        return best->token + 1;
    return choice_draw(rule, list, n);
}
