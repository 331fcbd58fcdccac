/*
 * Fuzzing the surgery file: whatever the text is, it is refused with a line that names the place,
 * or gives rules within their ranges, which match names.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compress/surgery.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rule(const surgery_rule *r)
{
    if (r->n_tensors < 1 || r->method >= PRUNE_N_METHODS || r->store >= STORE_N ||
        !(r->sparsity >= 0 && r->sparsity < 1) || !(r->max_kld >= 0) || r->line < 1)
        abort();
    if (r->out_of && !(r->keep >= 1 && r->keep < r->out_of && r->out_of <= PRUNE_MAX_GROUP))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"blk.0.ffn_up.weight", "blk.12.attn_q.weight", "blk.3", ""};
    surgery *s = NULL;
    lace_error err = {0};
    lace_status status = surgery_parse((text){(const char *)data, size}, "fuzz", &s, &err);
    if (status != LACE_OK) {
        if (s || err.status != status || strncmp(err.text, "fuzz:", 5) != 0 ||
            strchr(err.text, '\n'))
            abort();
        return 0;
    }
    for (int32_t i = 0; i < s->n_rules; i++)
        check_rule(&s->rules[i]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int is_structured = 0; is_structured < 2; is_structured++) {
            int32_t rule = surgery_match(s, names[i], is_structured);
            if (rule < -1 || rule >= s->n_rules)
                abort();
        }
    surgery_free(s);
    return 0;
}
