/* Whether all ranks could do what they were told. */
#include <string.h>

#include "rank/rank.h"

enum { AGREE_MS = 600000 };

typedef struct answer {
    int32_t status;
    char text[RANKS_LEAST_BYTES - sizeof(int32_t)];
} answer;

lace_status ranks_agree(ranks *r, lace_status status, lace_error *err)
{
    answer mine = {.status = status};
    uint64_t bytes[RANKS_MAX];
    if (status != LACE_OK && err)
        memcpy(mine.text, err->text, sizeof mine.text - 1);
    memcpy(ranks_mine(r), &mine, sizeof mine);
    for (int32_t k = 0; k < r->shares.n_ranks; k++)
        bytes[k] = sizeof mine;
    int32_t usual = atomic_exchange(&r->deadline_ms, AGREE_MS); /* some load longer than others */
    lace_status exchanged = ranks_exchange(r, bytes);
    atomic_store(&r->deadline_ms, usual);
    if (exchanged != LACE_OK)
        return status != LACE_OK ? status : ranks_status(r, err);
    for (int32_t k = 0; k < r->shares.n_ranks && status == LACE_OK; k++) {
        answer a;
        memcpy(&a, ranks_part(r, k), sizeof a);
        a.text[sizeof a.text - 1] = 0;
        if (a.status != LACE_OK)
            status =
                error_set(err, (lace_status)a.status, "rank %d (%s): %s", k, r->hosts[k], a.text);
    }
    return status;
}
