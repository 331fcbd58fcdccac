/* Devices that round sums of several rows otherwise than those of one. */
#include "rows_apart.h"

#include <string.h>

#include "status_check.h"
#include "tap.h"

bool rounds_rows_apart(lace_model *model)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = 64;
    o.session.n_sequences = 2;
    o.is_deterministic = true;
    o.use_lookup = true;
    lace_batcher *b = NULL;
    lace_error err = {0};
    lace_status status = lace_batcher_create(model, &o, &b, &err);
    lace_batcher_free(b);
    CHECK(status == LACE_OK || status == LACE_E_UNSUPPORTED);
    return status == LACE_E_UNSUPPORTED && strcmp(info.device, "cpu") != 0;
}

/*
 * Products with operands of f16 are off by up to 2^-11 each; logits of models that tests have, by a
 * few thousandths, and two of them by a few times that. A text that is wrong for another reason is far
 * off: a_text_is_what_the_logits_give (test_batcher.c) changes a token.
 */
static const float near_tie = 0.02f;

bool is_of_logits(lace_model *model, const lace_token *prompt, size_t n_prompt,
                  const lace_token *tokens, size_t n_tokens)
{
    enum { MOST = 512 };
    lace_item items[MOST];
    lace_model_info info;
    lace_session *s = NULL;
    lace_error err = {0};
    size_t n = n_prompt + n_tokens - 1;
    if (!CHECK(n_prompt > 0 && n_tokens > 0 && n <= MOST))
        return false;
    lace_model_describe(model, &info);
    lace_session_options o = lace_session_options_default();
    o.n_context = o.n_batch = MOST;
    o.n_outputs = (int32_t)n_tokens;
    for (size_t i = 0; i < n; i++)
        items[i] = (lace_item){.token = i < n_prompt ? prompt[i] : tokens[i - n_prompt],
                               .want_logits = i + 1 >= n_prompt};
    bool is_so = CHECK(is_ok(lace_session_create(model, &o, &s, &err), &err)) &&
                 CHECK(is_ok(lace_session_eval(s, items, n, &err), &err));
    for (size_t k = 0; is_so && k < n_tokens; k++) {
        const float *logits = lace_session_logits(s, k);
        float most = logits[0];
        for (int32_t i = 1; i < info.n_vocab; i++)
            most = logits[i] > most ? logits[i] : most;
        is_so = logits[tokens[k]] >= most - near_tie;
        if (!is_so)
            tap_note("token %d has the logit %g, the best %g", (int)k, (double)logits[tokens[k]],
                     (double)most);
    }
    lace_session_free(s);
    return is_so;
}
