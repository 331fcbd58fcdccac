/*
 * Images of sessions: which ones a sequence has, for callers who append them by themselves. Their
 * rows are needed once, where they stand as long as the sequence.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/image.h"

/* Of one sequence. */
struct session_images {
    image_span *spans;
    int32_t n, capacity;
};

/* Tell the runner. */
static void show(lace_session *s, int32_t sequence)
{
    struct session_images *i = &s->images[sequence];
    s->runner->images[sequence] = (image_list){i->spans, i->n};
}

static lace_status reserve(lace_session *s, int32_t sequence, int32_t n, lace_error *err)
{
    if (!s->images)
        s->images = mem_calloc((size_t)s->options.n_sequences, sizeof *s->images);
    if (!s->images)
        return error_nomem(err, "an image");
    struct session_images *i = &s->images[sequence];
    if (n <= i->capacity)
        return LACE_OK;
    image_span *grown = mem_realloc(i->spans, (size_t)(2 * n) * sizeof *grown);
    if (!grown)
        return error_nomem(err, "an image");
    i->spans = grown;
    i->capacity = 2 * n;
    return LACE_OK;
}

lace_status session_cut_images(lace_session *s, int32_t sequence, int32_t n_tokens, lace_error *err)
{
    if (!s->images)
        return LACE_OK;
    struct session_images *i = &s->images[sequence];
    int32_t n = i->n;
    while (n > 0 && i->spans[n - 1].start >= n_tokens)
        n--;
    const image_span *last = n > 0 ? &i->spans[n - 1] : NULL;
    if (last && last->start + last->n > n_tokens)
        return error_set(err, LACE_E_ARG,
                         "sequence %d cannot be cut at %d tokens, in the middle of an image "
                         "(%d to %d)",
                         sequence, n_tokens, last->start, last->start + last->n);
    i->n = n;
    show(s, sequence);
    return LACE_OK;
}

lace_status session_copy_images(lace_session *s, int32_t from, int32_t to, lace_error *err)
{
    if (!s->images)
        return LACE_OK;
    int32_t n = s->images[from].n;
    TRY(reserve(s, to, n, err));
    if (n > 0)
        memcpy(s->images[to].spans, s->images[from].spans, (size_t)n * sizeof(image_span));
    s->images[to].n = n;
    show(s, to);
    return LACE_OK;
}

void session_free_images(lace_session *s)
{
    for (int32_t i = 0; s->images && i < s->options.n_sequences; i++)
        mem_free(s->images[i].spans);
    mem_free(s->images);
}

lace_status lace_session_eval_image(lace_session *s, int32_t sequence, const lace_image *image,
                                    bool want_logits, lace_error *err)
{
    if (!s->options.tower)
        return error_set(err, LACE_E_ARG, "the session has no tower: lace_session_options.tower");
    if (sequence < 0 || sequence >= s->options.n_sequences)
        return error_set(err, LACE_E_ARG, "sequence %d, expected 0 to %d", sequence,
                         s->options.n_sequences - 1);
    TRY(image_check_tower(image, s->options.tower, err));
    if (s->runner->options.sees_both_ways && image->n > s->options.n_batch)
        return error_set(err, LACE_E_LIMIT,
                         "an image of %d tokens is computed in one batch, which has %d", image->n,
                         s->options.n_batch);
    int32_t n = s->images ? s->images[sequence].n : 0;
    TRY(reserve(s, sequence, n + 1, err));
    lace_token *tokens = mem_calloc((size_t)image->n, sizeof *tokens);
    lace_item *items = mem_calloc((size_t)image->n, sizeof *items);
    lace_status status = tokens && items ? LACE_OK : error_nomem(err, "an image");
    struct session_images *i = &s->images[sequence];
    i->spans[i->n++] = image_span_of(image, lace_session_length(s, sequence));
    show(s, sequence);
    if (status == LACE_OK) {
        lace_image_tokens(image, tokens);
        for (int32_t k = 0; k < image->n; k++)
            items[k] = (lace_item){tokens[k], sequence, want_logits};
        status = lace_session_eval(s, items, (size_t)image->n, err);
    }
    if (status == LACE_OK)
        i->spans[i->n - 1].rows = NULL;
    else
        i->n--;
    show(s, sequence);
    mem_free_all(tokens, items);
    return status;
}
