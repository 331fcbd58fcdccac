/* Columns of all ranks: each gives its own and takes those of the others. */
#include <string.h>

#include "backend/ref/ref.h"
#include "rank/rank.h"

static int64_t begin_of(const step *s, int32_t rank)
{
    const rank_shares *shares = &s->a.collect.ranks->shares;
    return rank_column(shares, s->out[0].width, s->a.collect.n_units, rank);
}

void collect_ref(const step *s, const batch *b, const worker *w)
{
    ranks *r = s->a.collect.ranks;
    int32_t me = r->shares.rank, n = r->shares.n_ranks;
    int64_t n_rows = step_rows(s, b);
    uint64_t row[RANKS_MAX], bytes[RANKS_MAX];
    if (n_rows == 0 || r->status != LACE_OK)
        return;
    for (int32_t k = 0; k < n; k++) {
        row[k] = (uint64_t)(begin_of(s, k + 1) - begin_of(s, k)) * sizeof(float);
        bytes[k] = s->a.collect.at_first && k == 0 ? 0 : row[k] * (uint64_t)n_rows;
    }
    uint8_t *mine = ranks_mine(r);
    for (int64_t i = 0; bytes[me] && i < n_rows; i++)
        memcpy(mine + (uint64_t)i * row[me], operand_row(&s->in[0], i), row[me]);
    if (ranks_exchange(r, bytes) != LACE_OK)
        return;
    for (int32_t k = 0; k < n && !(s->a.collect.at_first && me != 0); k++) {
        const uint8_t *part = ranks_part(r, k);
        for (int64_t i = 0; k != me && i < n_rows; i++)
            memcpy(operand_row(&s->out[0], i) + begin_of(s, k), part + (uint64_t)i * row[k],
                   row[k]);
    }
}
