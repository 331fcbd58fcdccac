/* Columns of all ranks: each gives its own and takes those of the others. */
#include <string.h>

#include "backend/ref/ref.h"
#include "rank/rank.h"

/* Columns [begin, end) of a rank, and the bytes of a row of them. */
typedef struct share {
    int64_t begin, end;
    uint64_t row_bytes;
} share;

static share share_of(const step *s, int32_t rank)
{
    const rank_shares *shares = &s->a.collect.ranks->shares;
    int64_t width = s->out[0].width, n_units = s->a.collect.n_units;
    share h = {.begin = rank_column(shares, width, n_units, rank),
               .end = rank_column(shares, width, n_units, rank + 1)};
    uint64_t n = (uint64_t)(h.end - h.begin);
    h.row_bytes = s->out[0].format == ACT_F32 ? 4 * n : n + n / 32 * 4 + n / 16 * 2;
    return h;
}

/* A rank's part of a row into its place: floats, or int8 with scales and sums (act_format). */
static void take_row(const step *s, const share *h, const uint8_t *from, uint8_t *row)
{
    uint64_t n = (uint64_t)(h->end - h->begin), at = (uint64_t)h->begin;
    uint64_t width = (uint64_t)s->out[0].width;
    if (s->out[0].format == ACT_F32) {
        memcpy(row + 4 * at, from, 4 * n);
        return;
    }
    uint8_t *scales = row + width, *sums = scales + width / 32 * 4;
    memcpy(row + at, from, n);
    memcpy(scales + at / 32 * 4, from + n, n / 32 * 4);
    memcpy(sums + at / 16 * 2, from + n + n / 32 * 4, n / 16 * 2);
}

void collect_ref(const step *s, const batch *b, const worker *w)
{
    ranks *r = s->a.collect.ranks;
    int32_t me = r->shares.rank, n = r->shares.n_ranks;
    int64_t n_rows = step_rows(s, b);
    share shares[RANKS_MAX];
    uint64_t bytes[RANKS_MAX];
    bool at_first = s->a.collect.at_first;
    if (n_rows == 0 || r->status != LACE_OK)
        return;
    for (int32_t k = 0; k < n; k++) {
        shares[k] = share_of(s, k);
        bytes[k] = at_first && k == 0 ? 0 : shares[k].row_bytes * (uint64_t)n_rows;
    }
    uint8_t *mine = ranks_mine(r);
    uint64_t row = shares[me].row_bytes;
    for (int64_t i = 0; bytes[me] && i < n_rows; i++)
        memcpy(mine + (uint64_t)i * row, operand_row(&s->in[0], i), row);
    if (ranks_exchange(r, bytes) != LACE_OK || (at_first && me != 0))
        return;
    bool has_mine = s->in[0].root == s->out[0].root;
    for (int32_t k = 0; k < n; k++) {
        const uint8_t *part = k == me ? mine : ranks_part(r, k);
        for (int64_t i = 0; !(k == me && has_mine) && i < n_rows; i++)
            take_row(s, &shares[k], part + (uint64_t)i * shares[k].row_bytes,
                     (uint8_t *)operand_row(&s->out[0], i));
    }
}
