/* Records: written by rank 0, checked by the others. */
#include "rank/record.h"

#include <string.h>

#include "base/mem.h"

/* ---- Reading --------------------------------------------------------------------------------- */

enum { HEADER_WORDS = 3, RUN_WORDS = 4, EDIT_WORDS = sizeof(record_edit) / sizeof(int32_t) };

/* Most of what a runner may be asked for; the session's own limits are not wider. */
enum { MOST = 1 << 26 };

static lace_status wrong(lace_error *err, const char *what, int64_t value)
{
    return error_set(err, LACE_E_LIMIT, "a record of rank 0 has %s %lld, which is not allowed",
                     what, (long long)value);
}

/* Every word is within [least, most]. */
static lace_status check(const int32_t *words, int64_t n, int64_t least, int64_t most,
                         const char *what, lace_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (words[i] < least || words[i] > most)
            return wrong(err, what, words[i]);
    return LACE_OK;
}

lace_status record_read_header(const int32_t *words, int64_t n, record *out, lace_error *err)
{
    *out = (record){0};
    if (n < HEADER_WORDS)
        return wrong(err, "a length of", n);
    if (words[0] != RECORD_MAGIC)
        return wrong(err, "a beginning of", words[0]);
    TRY(check(words + 1, 1, 0, RECORD_N_KINDS - 1, "a kind of", err));
    TRY(check(words + 2, 1, 0, RECORD_RUNNERS - 1, "a runner of", err));
    out->kind = (record_kind)words[1];
    out->runner = words[2];
    return LACE_OK;
}

static lace_status read_open(const int32_t *words, record_open *out, lace_error *err)
{
    memcpy(out, words, sizeof *out);
    TRY(check(&out->n_sequences, 5, 1, MOST, "an option of", err));
    TRY(check(&out->kv_type, 2, 0, 255, "a type of", err));
    TRY(check(&out->stops_at_hidden, 2, 0, 1, "a switch of", err));
    TRY(check(&out->n_groups, 1, 0, RECORD_GROUPS, "groups of pages:", err));
    return check(out->n_pages, RECORD_GROUPS, 0, INT32_MAX, "pages:", err);
}

static lace_status read_copy(const int32_t *words, const record_limits *l, record_copy *out,
                             lace_error *err)
{
    memcpy(out, words, sizeof *out);
    TRY(check(&out->what, 1, RECORD_SLOTS, (int64_t)l->n_groups - 1, "a group of", err));
    bool is_slot = out->what == RECORD_SLOTS;
    int64_t most = (int64_t)(is_slot ? l->n_slots : l->n_pages[out->what]) - 1;
    TRY(check(&out->from, 1, is_slot ? RECORD_NOTHING : 0, most, "a source of", err));
    TRY(check(&out->to, 1, 0, most, "a target of", err));
    return out->from == out->to ? wrong(err, "a copy to its own source,", out->to) : LACE_OK;
}

static lace_status check_edits(const record_run *r, const record_limits *l, lace_error *err)
{
    for (int32_t i = 0; i < r->n_edits; i++) {
        const record_edit *e = &r->edits[i];
        TRY(check(&e->sequence, 1, 0, l->n_sequences - 1, "an edit of sequence", err));
        TRY(check(&e->group, 1, 0, l->n_groups - 1, "an edit of group", err));
        TRY(check(&e->index, 1, 0, l->pages_per_sequence - 1, "an edit of entry", err));
        TRY(check(&e->page, 1, -1, (int64_t)l->n_pages[e->group] - 1, "an edit with page", err));
    }
    return LACE_OK;
}

static lace_status read_run(const int32_t *words, int64_t n, const record_limits *l,
                            record_run *out, lace_error *err)
{
    if (n < RUN_WORDS)
        return wrong(err, "a length of", n);
    TRY(check(words, 1, 1, l->n_batch, "tokens:", err));
    TRY(check(words + 1, 1, 0, l->n_outputs < words[0] ? l->n_outputs : words[0], "outputs:", err));
    TRY(check(words + 2, 1, 0, MOST, "edits:", err));
    TRY(check(words + 3, 1, 0, 1, "a switch of", err));
    *out = (record_run){.n_tokens = words[0], .n_outputs = words[1], .n_edits = words[2]};
    bool has_more = words[3];
    int64_t rows = out->n_tokens;
    if (n !=
        RUN_WORDS + (has_more ? 5 : 3) * rows + out->n_outputs + (int64_t)EDIT_WORDS * out->n_edits)
        return wrong(err, "a length of", n);
    const int32_t *at = words + RUN_WORDS;
    out->tokens = at;
    out->sequences = at += rows;
    out->positions = at += rows;
    if (has_more) {
        out->seen = at += rows;
        out->segments = at += rows;
    }
    out->outputs = at += rows;
    out->edits = (const record_edit *)(at + out->n_outputs);
    TRY(check(out->tokens, rows, 0, (int64_t)l->n_vocab - 1, "a token of", err));
    TRY(check(out->sequences, rows, 0, (int64_t)l->n_sequences - 1, "a sequence of", err));
    TRY(check(out->positions, rows, 0, (int64_t)l->n_context - 1, "a position of", err));
    TRY(check(out->outputs, out->n_outputs, 0, rows - 1, "an output of", err));
    for (int64_t i = 0; has_more && i < rows; i++) {
        TRY(check(&out->seen[i], 1, (int64_t)out->positions[i] + 1, l->n_context, "a view of",
                  err));
        TRY(check(&out->segments[i], 1, 0, (int64_t)l->n_segments - 1, "a segment of", err));
    }
    return check_edits(out, l, err);
}

lace_status record_read(const int32_t *words, int64_t n, const record_limits *limits, record *out,
                        lace_error *err)
{
    static const int64_t sizes[RECORD_N_KINDS] = {
        [RECORD_OPEN] = sizeof(record_open) / sizeof(int32_t),
        [RECORD_COPY] = sizeof(record_copy) / sizeof(int32_t)};
    TRY(record_read_header(words, n, out, err));
    words += HEADER_WORDS;
    n -= HEADER_WORDS;
    if (out->kind == RECORD_RUN)
        return read_run(words, n, limits, &out->run, err);
    if (n != sizes[out->kind])
        return wrong(err, "a length of", n);
    if (out->kind == RECORD_OPEN)
        return read_open(words, &out->open, err);
    return out->kind == RECORD_COPY ? read_copy(words, limits, &out->copy, err) : LACE_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

void record_add(record_writer *w, const int32_t *words, int64_t n)
{
    if (w->n + n > w->capacity && !w->has_failed) {
        int64_t capacity = 2 * (w->n + n);
        int32_t *more = mem_realloc(w->words, (size_t)capacity * sizeof *more);
        w->has_failed = !more;
        if (more) {
            w->words = more;
            w->capacity = capacity;
        }
    }
    if (w->has_failed)
        return;
    if (n > 0)
        memcpy(w->words + w->n, words, (size_t)n * sizeof *words);
    w->n += n;
}

void record_add_one(record_writer *w, int32_t word)
{
    record_add(w, &word, 1);
}

void record_begin(record_writer *w, record_kind kind, int32_t runner)
{
    int32_t header[HEADER_WORDS] = {RECORD_MAGIC, (int32_t)kind, runner};
    w->n = 0;
    w->has_failed = false;
    record_add(w, header, HEADER_WORDS);
}

void record_deinit(record_writer *w)
{
    mem_free(w->words);
    *w = (record_writer){0};
}
