/*
 * Devices that round sums of several rows otherwise than those of one: a text that is computed beside
 * others, or with guesses, may go another way there at a near tie.
 */
#ifndef LACE_TESTS_ROWS_APART_H
#define LACE_TESTS_ROWS_APART_H

#include <stdbool.h>
#include <stddef.h>

#include "lace.h"

/* Whether the model's device is one of those. The CPU is none, whatever it says. */
bool rounds_rows_apart(lace_model *model);

/*
 * Whether a greedy text behind a prompt is one that the model's own logits give: each token is the
 * best, or so near to it that rounding decides. Says which is not. No more than 512 tokens in all.
 */
bool is_of_logits(lace_model *model, const lace_token *prompt, size_t n_prompt,
                  const lace_token *tokens, size_t n_tokens);

#endif
