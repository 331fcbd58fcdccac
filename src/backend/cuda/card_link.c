/* Cards that give each other columns. */
#include "backend/cuda/card_link.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/collect_params.h"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/nccl.h"
#include "base/mem.h"
#include "base/numbers.h"

_Static_assert((int)COLLECT_RANKS == (int)RANKS_MAX, "the board has a place for every rank");

/* So long a card waits for the others; a prompt's first batch may load kernels meanwhile. */
static const uint64_t DEADLINE_NS = (uint64_t)20 * 1000 * 1000 * 1000;

enum { ALIGN = 256, BLOCK_BYTES = 64 << 10, TRIAL_BYTES = 256 };

/* Memory that may be named in what was recorded, so it stays to the end. */
typedef struct link_memory {
    struct link_memory *next;
    void *data;
} link_memory;

struct card_link {
    gpu *g;
    ranks *r;
    collect_board *board, *board_on_card; /* pinned; rank 0's */
    collect_counts *counts;               /* on the card */
    uint64_t part_bytes;
    link_memory *pinned; /* rank 0: parts of all ranks */
    nccl_comm *nccl;     /* NULL: through pinned memory */
    link_memory *staging;
};

/* ---- Memory ---------------------------------------------------------------------------------- */

static lace_status remember(link_memory **list, void *data, lace_error *err)
{
    link_memory *m = mem_alloc(sizeof *m);
    if (!m)
        return error_nomem(err, "what GPUs exchange");
    *m = (link_memory){*list, data};
    *list = m;
    return LACE_OK;
}

static lace_status take_pinned(card_link *l, uint64_t part_bytes, lace_error *err)
{
    uint8_t *data, *on_card;
    int32_t n = l->r->shares.n_ranks;
    TRY(cuda_alloc_host(l->g->device, 2 * (uint64_t)n * part_bytes, (void **)&data,
                        (void **)&on_card, err));
    lace_status status = remember(&l->pinned, data, err);
    if (status != LACE_OK) {
        cuda_free_host(l->g->device, data);
        return status;
    }
    for (int32_t k = 0; k < n; k++)
        for (int i = 0; i < 2; i++)
            l->board->parts[k][i] =
                (uint64_t)(uintptr_t)(on_card + (uint64_t)(2 * k + i) * part_bytes);
    return LACE_OK;
}

static lace_status take_staging(card_link *l, uint64_t part_bytes, lace_error *err)
{
    void *data;
    TRY(cuda_alloc(l->g->device, (uint64_t)l->r->shares.n_ranks * part_bytes, &data, err));
    lace_status status = remember(&l->staging, data, err);
    if (status != LACE_OK)
        cuda_free(l->g->device, data);
    return status;
}

lace_status card_link_reserve(card_link *l, uint64_t n_bytes, lace_error *err)
{
    uint64_t part_bytes = round_up(n_bytes, ALIGN);
    if (part_bytes <= l->part_bytes)
        return LACE_OK;
    if (l->nccl)
        TRY(take_staging(l, part_bytes, err));
    else if (l->r->shares.rank == 0)
        TRY(take_pinned(l, part_bytes, err));
    l->part_bytes = part_bytes;
    return LACE_OK;
}

void card_link_close(card_link *l)
{
    if (!l)
        return;
    nccl_leave(l->nccl);
    for (link_memory *m = l->pinned, *next; m; m = next) {
        next = m->next;
        cuda_free_host(l->g->device, m->data);
        mem_free(m);
    }
    for (link_memory *m = l->staging, *next; m; m = next) {
        next = m->next;
        cuda_free(l->g->device, m->data);
        mem_free(m);
    }
    if (l->r->shares.rank == 0)
        cuda_free_host(l->g->device, l->board);
    cuda_free(l->g->device, l->counts);
    mem_free(l);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Memory that rank 0 has for all, and an id that it has made. */
typedef struct invitation {
    uint64_t board, board_on_card;
    uint8_t id[NCCL_ID_BYTES];
    int32_t has_id;
} invitation;

_Static_assert(sizeof(invitation) <= RANKS_LEAST_BYTES, "ranks have room for it from the start");

/* All say something of `n` bytes; what rank k said is in ranks_part then. */
static lace_status say(ranks *r, const void *what, size_t n, lace_error *err)
{
    uint64_t bytes[RANKS_MAX];
    for (int32_t k = 0; k < r->shares.n_ranks; k++)
        bytes[k] = n;
    memcpy(ranks_mine(r), what, n);
    ranks_exchange(r, bytes);
    return ranks_status(r, err);
}

/* Whether two ranks are on the same card. */
static lace_status find_shared(const gpu *g, ranks *r, bool *out, lace_error *err)
{
    int32_t seen[RANKS_MAX], index = g->info.index;
    TRY(say(r, &index, sizeof index, err));
    *out = false;
    for (int32_t k = 0; k < r->shares.n_ranks; k++) {
        memcpy(&seen[k], ranks_part(r, k), sizeof seen[k]);
        for (int32_t i = 0; i < k; i++)
            *out = *out || seen[i] == seen[k];
    }
    return LACE_OK;
}

/*
 * On a card that ranks share, one waits on it for what another one launches there: loading a kernel then
 * would wait for the card, and so for itself.
 */
static lace_status load_all(gpu *g, lace_error *err)
{
    for (int i = 0; i < g->n_modules; i++)
        TRY(cuda_module_load_all(g->modules[i], err));
    return LACE_OK;
}

/* What a rank has by itself. */
static lace_status prepare(card_link *l, bool wants_id, invitation *out, lace_error *err)
{
    *out = (invitation){0};
    TRY(cuda_alloc(l->g->device, sizeof *l->counts, (void **)&l->counts, err));
    cuda_queue *q;
    TRY(cuda_queue_create(l->g->device, &q, err));
    lace_status status = cuda_fill(q, l->counts, 0, sizeof *l->counts, err);
    if (status == LACE_OK)
        status = cuda_wait(q, err);
    cuda_queue_free(q);
    if (status != LACE_OK || l->r->shares.rank != 0)
        return status;
    TRY(cuda_alloc_host(l->g->device, sizeof *l->board, (void **)&l->board,
                        (void **)&l->board_on_card, err));
    memset(l->board, 0, sizeof *l->board);
    out->board = (uint64_t)(uintptr_t)l->board;
    out->board_on_card = (uint64_t)(uintptr_t)l->board_on_card;
    out->has_id = wants_id && nccl_make_id(out->id, NULL) == LACE_OK;
    return LACE_OK;
}

/* Join, and let a small exchange show that it works. */
static lace_status try_nccl(card_link *l, const invitation *from, lace_error *err)
{
    const rank_shares *s = &l->r->shares;
    uint64_t bytes[RANKS_MAX];
    void *parts[RANKS_MAX], *memory = NULL;
    cuda_queue *q = NULL;
    lace_status status = from->has_id
                             ? nccl_join(l->g->device, from->id, s->n_ranks, s->rank, &l->nccl, err)
                             : error_set(err, LACE_E_DEVICE, "NCCL: ncclGetUniqueId failed");
    TRY(ranks_agree(l->r, status, err));
    TRY_GOTO(status, done,
             cuda_alloc(l->g->device, (uint64_t)s->n_ranks * TRIAL_BYTES, &memory, err));
    TRY_GOTO(status, done, cuda_queue_create(l->g->device, &q, err));
done:
    status = ranks_agree(l->r, status, err);
    for (int32_t k = 0; k < s->n_ranks; k++) {
        bytes[k] = TRIAL_BYTES;
        parts[k] = (uint8_t *)memory + k * TRIAL_BYTES;
    }
    if (status == LACE_OK) {
        status = nccl_share(l->nccl, q, parts, bytes, err);
        if (status == LACE_OK)
            status = cuda_wait(q, err);
        status = ranks_agree(l->r, status, err);
    }
    cuda_queue_free(q);
    cuda_free(l->g->device, memory);
    return status;
}

static lace_status open_link(card_link *l, bool wants_nccl, char note[DEVICE_NOTE_BYTES],
                             lace_error *err)
{
    invitation mine, from;
    lace_error why = {0};
    TRY(ranks_agree(l->r, prepare(l, wants_nccl, &mine, err), err));
    TRY(say(l->r, &mine, sizeof mine, err));
    memcpy(&from, ranks_part(l->r, 0), sizeof from);
    l->board = (collect_board *)(uintptr_t)from.board;
    l->board_on_card = (collect_board *)(uintptr_t)from.board_on_card;
    if (!wants_nccl || try_nccl(l, &from, &why) == LACE_OK)
        return ranks_status(l->r, err);
    nccl_leave(l->nccl);
    l->nccl = NULL;
    snprintf(note, DEVICE_NOTE_BYTES, "%.180s; GPUs exchange through pinned memory", why.text);
    return ranks_status(l->r, err);
}

lace_status card_link_open(gpu *g, ranks *r, char note[DEVICE_NOTE_BYTES], card_link **out,
                           lace_error *err)
{
    const char *wish = getenv("LACE_CARD_LINK");
    bool is_shared, is_nccl = wish && strcmp(wish, "nccl") == 0;
    lace_error why = {0};
    *out = NULL;
    if (wish && !is_nccl && strcmp(wish, "pinned") != 0 && strcmp(wish, "host") != 0)
        return error_set(err, LACE_E_ARG, "LACE_CARD_LINK is %.40s, expected nccl, pinned or host",
                         wish);
    if (wish && strcmp(wish, "host") == 0)
        return LACE_OK;
    TRY(find_shared(g, r, &is_shared, err));
    bool wants_nccl = is_nccl || (!wish && !is_shared);
    lace_status status = ranks_agree(r, is_shared ? load_all(g, &why) : LACE_OK, &why);
    if (status != LACE_OK) {
        snprintf(note, DEVICE_NOTE_BYTES, "%.180s; GPUs exchange through the host", why.text);
        return ranks_status(r, err);
    }
    if (wants_nccl && nccl_find(&why) != LACE_OK) {
        snprintf(note, DEVICE_NOTE_BYTES, "%.180s; GPUs exchange through pinned memory", why.text);
        wants_nccl = false;
    }
    card_link *l = mem_calloc(1, sizeof *l);
    TRY(ranks_agree(r, l ? LACE_OK : error_nomem(err, "a link of GPUs"), err));
    l->g = g;
    l->r = r;
    status = open_link(l, wants_nccl, note, err);
    return GIVE_OR_FREE(status, l, out, card_link_close);
}

/* ---- Running --------------------------------------------------------------------------------- */

link_records card_link_records(const card_link *l)
{
    return !l || !l->nccl           ? LINK_RECORDS
           : nccl_can_be_recorded() ? LINK_RECORDS_TOGETHER
                                    : LINK_RECORDS_NEVER;
}

lace_status card_link_check(const card_link *l, lace_error *err)
{
    if (!l || !*(volatile uint32_t *)&l->board->has_failed)
        return LACE_OK;
    return error_set(err, LACE_E_RANK, "a GPU waited %d seconds for another one",
                     (int)(DEADLINE_NS / 1000000000));
}

static gpu_collect collect_of(const gpu_job *j, const step *s)
{
    const card_link *l = j->g->link;
    const rank_shares *shares = &l->r->shares;
    gpu_collect p = {.x = (float *)s->out[0].data,
                     .stride = (int64_t)(s->out[0].stride / 4),
                     .n_rows = (int32_t)gpu_rows_of(j, s),
                     .n_ranks = shares->n_ranks,
                     .rank = shares->rank,
                     .at_first = s->a.collect.at_first,
                     .board = l->board_on_card,
                     .staging = l->staging ? l->staging->data : NULL,
                     .part_bytes = l->part_bytes,
                     .counts = l->counts,
                     .deadline_ns = DEADLINE_NS};
    p.is_wide = p.stride % 4 == 0 && (uintptr_t)p.x % 16 == 0;
    for (int32_t k = 0; k <= shares->n_ranks; k++) {
        p.first[k] = (int32_t)rank_column(shares, s->out[0].width, s->a.collect.n_units, k);
        p.is_wide = p.is_wide && p.first[k] % 4 == 0;
    }
    return p;
}

static uint64_t bytes_of(const gpu_collect *p, int32_t rank)
{
    return 4 * (uint64_t)p->n_rows * (uint64_t)(p->first[rank + 1] - p->first[rank]);
}

/* behind_kernel: what is before it in the queue is a kernel of ours, near whose end it may begin. */
static lace_status start(const gpu_job *j, const char *name, bool behind_kernel,
                         const gpu_collect *p, lace_error *err)
{
    uint64_t most = 1;
    for (int32_t k = 0; k < p->n_ranks; k++)
        most = bytes_of(p, k) > most ? bytes_of(p, k) : most;
    uint64_t n = divide_up((int64_t)most, BLOCK_BYTES);
    cuda_launch l = {.grid = {n < COLLECT_BLOCKS ? (uint32_t)n : COLLECT_BLOCKS},
                     .block = {COLLECT_THREADS},
                     .overlaps = behind_kernel && j->g->can.overlaps};
    TRY(gpu_prepare(j->g, name, 0, &l.kernel, err));
    void *arguments[] = {(void *)(uintptr_t)p};
    return cuda_run(j->queue, &l, arguments, err);
}

lace_status card_link_collect(const gpu_job *j, const step *s, lace_error *err)
{
    const card_link *l = j->g->link;
    gpu_collect p = collect_of(j, s);
    uint64_t bytes[RANKS_MAX];
    void *parts[RANKS_MAX];
    assert(s->in[0].root == s->out[0].root);
    if (p.n_rows == 0)
        return LACE_OK;
    if (!l->nccl)
        return start(j, "collect_rows", true, &p, err);
    for (int32_t k = 0; k < p.n_ranks; k++) {
        bytes[k] = bytes_of(&p, k);
        parts[k] = p.n_rows == 1 ? (void *)(p.x + p.first[k])
                                 : (void *)(p.staging + (uint64_t)k * p.part_bytes);
    }
    if (p.n_rows > 1)
        TRY(start(j, "collect_give", true, &p, err));
    TRY(nccl_share(l->nccl, j->queue, parts, bytes, err));
    /* A row's columns lie together; yet a kernel stands between NCCL's and one that begins early. */
    if (p.n_rows == 1)
        p.n_ranks = 0;
    return start(j, "collect_take", false, &p, err);
}
