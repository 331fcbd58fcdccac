/* Who has how much: shares of work as units of rows, heads and columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank/rank.h"

/* How many of the parts the first `rank` ranks have. */
static int64_t parts_before(const rank_shares *s, int32_t rank)
{
    int64_t n = 0;
    for (int32_t i = 0; i < rank; i++)
        n += s->parts[i];
    return n;
}

int64_t rank_begin(const rank_shares *s, int64_t n_units, int32_t rank)
{
    int64_t all = parts_before(s, s->n_ranks);
    if (n_units < s->n_ranks) /* to the first ones, one each */
        return min_i64(rank, n_units);
    int64_t spare = n_units - s->n_ranks; /* what is left when everybody has one */
    return rank + (int64_t)((__int128)spare * parts_before(s, rank) / all);
}

lace_status rank_shares_parse(const char *text, rank_shares *out, lace_error *err)
{
    *out = (rank_shares){0};
    const char *at = text;
    int32_t n = 0;
    for (;; at++) {
        char *end;
        long part = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (part < 1 || part > RANK_SHARE_MAX || n == RANKS_MAX || (*end && *end != ','))
            return error_set(err, LACE_E_ARG,
                             "ranks \"%s\", expected a number from 1 to %d, or what each rank does "
                             "of the work, as in 3,1",
                             text, RANKS_MAX);
        out->parts[n++] = (int32_t)part;
        at = end;
        if (!*at)
            break;
    }
    out->n_ranks = n;
    if (n > 1)
        return LACE_OK;
    out->n_ranks = out->parts[0];
    if (out->n_ranks > RANKS_MAX)
        return error_set(err, LACE_E_ARG, "%d ranks, expected 1 to %d", out->n_ranks, RANKS_MAX);
    for (int32_t i = 0; i < out->n_ranks; i++)
        out->parts[i] = 1;
    return LACE_OK;
}

lace_status ranks_status(const ranks *r, lace_error *err)
{
    return r->status == LACE_OK ? LACE_OK : error_set(err, r->status, "%s", r->fault.text);
}

void ranks_fail(ranks *r, lace_status status, const char *text)
{
    if (r->status != LACE_OK)
        return;
    error_set(&r->fault, status, "%s", text);
    r->status = status;
    r->calls->fail(r);
}
