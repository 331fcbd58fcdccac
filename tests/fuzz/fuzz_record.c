/*
 * Fuzzing what rank 0 tells: whatever the words are, a record is refused, or every number in it is
 * within the limits of the runner that it is for.
 */
#include <stdlib.h>
#include <string.h>

#include "rank/record.h"

static const record_limits limits = {.n_batch = 16,
                                     .n_outputs = 4,
                                     .n_sequences = 3,
                                     .n_context = 96,
                                     .n_vocab = 100,
                                     .n_segments = 2,
                                     .pages_per_sequence = 3,
                                     .n_groups = 2,
                                     .n_pages = {9, 5},
                                     .n_slots = 6};

static void need(bool ok)
{
    if (!ok)
        abort();
}

static bool is_within(const int32_t *words, int32_t n, int32_t most)
{
    for (int32_t i = 0; i < n; i++)
        if (words[i] < 0 || words[i] > most)
            return false;
    return true;
}

static void check_run(const record_run *r)
{
    need(r->n_tokens >= 1 && r->n_tokens <= 16 && r->n_outputs >= 0 && r->n_outputs <= 4);
    need(is_within(r->tokens, r->n_tokens, 99) && is_within(r->sequences, r->n_tokens, 2));
    need(is_within(r->positions, r->n_tokens, 95));
    need(is_within(r->outputs, r->n_outputs, r->n_tokens - 1));
    need(!r->seen ||
         (is_within(r->seen, r->n_tokens, 96) && is_within(r->segments, r->n_tokens, 1)));
    for (int32_t i = 0; i < r->n_edits; i++) {
        const record_edit *e = &r->edits[i];
        need(e->sequence >= 0 && e->sequence < 3 && e->group >= 0 && e->group < 2);
        need(e->index >= 0 && e->index < 3 && e->page >= -1 && e->page < limits.n_pages[e->group]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    record r;
    lace_error err;
    int64_t n = (int64_t)(size / sizeof(int32_t));
    int32_t *words = malloc((size_t)n * sizeof *words + 1);
    if (!words)
        return 0;
    memcpy(words, data, (size_t)n * sizeof *words);
    if (record_read(words, n, &limits, &r, &err) == LACE_OK && r.kind == RECORD_RUN)
        check_run(&r.run);
    free(words);
    return 0;
}
