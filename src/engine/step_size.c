/* How many rows a step of the batcher has. */
#include "engine/step_size.h"

#include "base/numbers.h"

enum {
    /*
     * Tokens of prompts in a step while others wait for its end, where every row costs. A quarter of
     * the usual batch costs 3 % of the speed of prompts (TinyLlama Q4_K_M, 2 cores: 252 in place of
     * 261 tokens/s) and makes four times shorter pauses.
     */
    PROMPT_SHARE = 128,
    /*
     * What a request asks for, until some have ended, and how many tokens of those that ended are
     * remembered in full.
     */
    FIRST_READ = 2048,
    FIRST_MADE = 512,
    REMEMBERED = 1 << 14,
    MOST_STEPS = 8, /* a step has at most so many times the usual rows, if nobody says otherwise */
};

static int32_t tiles_of(const step_size *s, size_t n_rows)
{
    return (int32_t)divide_up((int64_t)n_rows, s->tile_rows);
}

/* What a step took: the shorter of the last two, as one may have had to load something. 0: not known. */
static uint64_t shorter(const uint64_t times[2])
{
    return times[0] < times[1] ? times[0] : times[1];
}

static uint64_t time_of(const step_size *s, int32_t n_tiles)
{
    return shorter(s->times[n_tiles]);
}

/* Of the steps within a tile, the kind that one of so many rows is. */
static int kind_of_few(size_t n_rows)
{
    int kind = 0;
    while (((size_t)1 << kind) < n_rows && kind < STEP_FEW_KINDS - 1)
        kind++;
    return kind;
}

/* What it would take: what it took, or by that of the next smaller one that is known. */
static uint64_t expect(const step_size *s, size_t n_rows)
{
    int32_t n = tiles_of(s, n_rows);
    for (int32_t i = n < STEP_MOST_TILES ? n : STEP_MOST_TILES; i > 0; i--)
        if (time_of(s, i) > 0)
            return time_of(s, i) * (uint64_t)n / (uint64_t)i;
    return 0;
}

static void note(uint64_t times[2], uint64_t ns)
{
    times[1] = times[0];
    times[0] = ns;
}

void step_size_note(step_size *s, size_t n_rows, uint64_t ns)
{
    int32_t n = s->tile_rows > 0 ? tiles_of(s, n_rows) : 0;
    if (n < 1 || n > STEP_MOST_TILES)
        return;
    note(s->times[n], ns);
    if (n == 1)
        note(s->few_times[kind_of_few(n_rows)], ns);
}

uint64_t step_size_time(const step_size *s, size_t n_rows)
{
    int32_t n = s->tile_rows > 0 ? tiles_of(s, n_rows) : 0;
    if (n < 1 || n > STEP_MOST_TILES)
        return 0;
    return n == 1 ? shorter(s->few_times[kind_of_few(n_rows)]) : time_of(s, n);
}

void step_size_end(step_size *s, size_t n_read, size_t n_made)
{
    s->n_read += n_read;
    s->n_made += n_made;
    while (s->n_read + s->n_made > REMEMBERED) {
        s->n_read /= 2;
        s->n_made /= 2;
    }
}

/*
 * Tokens of prompts that come with one token of every text: for each one that is made, requests
 * bring so many that are read. Texts whose prompts wait count, too: they would make tokens if prompts
 * had not piled up. Somewhat more, so that they do not.
 */
static size_t share_of(const step_size *s, const step_load *l)
{
    size_t n_texts = l->n_next + l->n_prompts;
    return n_texts * 5 * (s->n_read + FIRST_READ) / (4 * (s->n_made + FIRST_MADE));
}

/* Whether all prompts would be read in time by steps of so many rows. */
static bool meets_first(const step_size *s, const step_load *l, size_t rows)
{
    uint64_t n_steps = (uint64_t)divide_up((int64_t)l->n_unread, (int64_t)(rows - l->n_next));
    return l->waits_ns + n_steps * expect(s, rows) <= s->first_ns;
}

static bool meets_next(const step_size *s, size_t rows)
{
    return s->next_ns == 0 || expect(s, rows) <= s->next_ns;
}

size_t step_size_rows(const step_size *s, const step_load *l)
{
    size_t tile = (size_t)s->tile_rows, usual = (size_t)s->step_rows;
    if (tile == 0)
        return (size_t)min_i64((int64_t)(l->n_next + PROMPT_SHARE), (int64_t)l->most);
    size_t least = round_up(l->n_next + tile, tile); /* reading goes on in any case */
    size_t rows = l->n_next == 0 ? 2 * usual : round_up(l->n_next + share_of(s, l), tile);
    rows = rows < usual ? usual : rows < MOST_STEPS * usual ? rows : MOST_STEPS * usual;
    rows = rows > least ? rows : least;
    while (s->first_ns > 0 && rows + tile <= l->most && !meets_first(s, l, rows) &&
           meets_next(s, rows + tile))
        rows += tile;
    while (rows > least && !meets_next(s, rows))
        rows -= tile;
    /* Where less is left: as many tiles as it fills, and the rest comes in the next step. */
    size_t filled = (l->n_next + l->n_unread) / tile * tile;
    if (filled > l->n_next && filled < rows)
        rows = filled;
    return rows < l->most ? rows : l->most;
}
