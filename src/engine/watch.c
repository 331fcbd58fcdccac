/* A watch over a text: how long it reasons, and whether it repeats itself. */
#include "engine/watch.h"

#include <string.h>

enum { LEAST_REPEATED = 256, LEAST_PASSAGES = 6 };

void watch_init(watch *w, const lace_reasoning *reasoning, bool breaks_loops)
{
    *w = (watch){.reasoning = *reasoning, .breaks_loops = breaks_loops};
    w->is_open = reasoning->end && reasoning->is_open;
}

lace_token watch_forced(const watch *w)
{
    return w->is_closing ? w->reasoning.closing[w->n_forced] : -1;
}

int32_t watch_free(const watch *w)
{
    int32_t max = w->reasoning.max_tokens;
    if (w->is_closing)
        return 0;
    if (!w->reasoning.end || max < 0 || w->reasoning.n_closing == 0)
        return INT32_MAX;
    return w->is_open ? max - w->n_thought : max;
}

/* The text ends with this word. */
static bool ends_with(const watch *w, const char *word)
{
    size_t n = strlen(word);
    return n <= w->n_tail && memcmp(w->tail + w->n_tail - n, word, n) == 0;
}

/* Byte by byte, as a token may hold a word and more. */
static void read_text(watch *w, text piece)
{
    const lace_reasoning *r = &w->reasoning;
    for (size_t i = 0; i < piece.size; i++) {
        if (w->n_tail == WATCH_WORD) {
            memmove(w->tail, w->tail + 1, WATCH_WORD - 1);
            w->n_tail--;
        }
        w->tail[w->n_tail++] = piece.data[i];
        if (w->is_open ? ends_with(w, r->end) : r->begin && ends_with(w, r->begin)) {
            w->is_open = !w->is_open;
            w->n_thought = 0;
            w->n_tail = 0;
            memset(w->runs, 0, sizeof w->runs);
        }
    }
}

/* Whether the last tokens are a passage again and again. */
static bool is_loop(watch *w, const lace_token *t, int32_t n)
{
    bool is_found = false;
    int32_t longest = n - 1 < WATCH_LONGEST ? n - 1 : WATCH_LONGEST;
    for (int32_t p = 1; p <= longest; p++) {
        bool repeats = t[n - 1] == t[n - 1 - p];
        int32_t run = repeats ? w->runs[p] + 1 : 0;
        w->runs[p] = (uint16_t)(run < UINT16_MAX ? run : UINT16_MAX);
        is_found = is_found || (run + p >= LEAST_REPEATED + 4 * p && run + p >= LEAST_PASSAGES * p);
    }
    return is_found;
}

static void close_reasoning(watch *w, lace_cut why)
{
    w->reasoning_cut = why;
    w->is_closing = true;
    w->n_forced = 0;
}

void watch_note(watch *w, const lace_token *generated, int32_t n, text piece)
{
    bool is_closed = w->is_closing && ++w->n_forced == w->reasoning.n_closing;
    w->n_thought += w->is_open;
    if (w->reasoning.end)
        read_text(w, piece);
    if (is_closed) /* whatever the words were */
        w->is_closing = w->is_open = false;
    bool loops = w->breaks_loops && is_loop(w, generated, n);
    if (w->is_closing)
        return;
    bool can_close = w->is_open && w->reasoning.n_closing > 0;
    if (loops && can_close)
        close_reasoning(w, LACE_CUT_LOOP);
    else if (loops)
        w->text_cut = LACE_CUT_LOOP;
    else if (can_close && w->reasoning.max_tokens >= 0 && w->n_thought >= w->reasoning.max_tokens)
        close_reasoning(w, LACE_CUT_BUDGET);
}
