/* Values that enter and leave a part of a plan on a card. */
#define _DEFAULT_SOURCE
#include "backend/cuda/card_border.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

bool card_border_has(const plan *p)
{
    for (int32_t v = 0; v < p->n_values; v++)
        if (plan_crosses(&p->values[v]))
            return true;
    return false;
}

/* Values that cross have their memory of values as large as the pinned one: n_bytes. */
static uint64_t pinned_bytes(const plan *p)
{
    uint64_t n = 0;
    for (int32_t v = 0; v < p->n_values; v++)
        n += plan_crosses(&p->values[v]) ? p->values[v].n_bytes : 0;
    return n;
}

lace_status card_border_init(card_border *b, bool is_shared, lace_error *err)
{
    uint64_t n = pinned_bytes(b->p);
    if (n == 0)
        return LACE_OK;
    if (!is_shared)
        return cuda_alloc_host(b->device, n, (void **)&b->pinned, NULL, err);
    TRY(cuda_host_address(b->device, b->border, (void **)&b->shared, err));
    TRY(cuda_alloc_host(b->device, sizeof *b->token, (void **)&b->token, (void **)&b->token_on_card,
                        err));
    *b->token = (border_token){0};
    return LACE_OK;
}

void card_border_deinit(card_border *b)
{
    cuda_free_host(b->device, b->pinned);
    cuda_free_host(b->device, b->token);
    b->pinned = NULL;
    b->token = NULL;
}

lace_status card_border_send(card_border *b, const batch *of, lace_error *err)
{
    uint8_t *at = b->pinned;
    for (int32_t i = 0; i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        uint64_t n = v->enters ? plan_batch_bytes(v, of) : 0;
        uint8_t *from = b->border + v->border;
        if (n > 0 && !b->shared) {
            memcpy(at, from, n);
            from = at;
        }
        if (n > 0)
            TRY(cuda_copy_to(b->queue, b->values + v->offset, from, n, err));
        at += plan_crosses(v) && !b->shared ? v->n_bytes : 0;
    }
    return LACE_OK;
}

lace_status card_border_fetch(card_border *b, const batch *of, lace_error *err)
{
    uint8_t *at = b->pinned;
    for (int32_t i = 0; i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        uint64_t n = v->leaves ? plan_batch_bytes(v, of) : 0;
        uint8_t *to = b->shared ? b->border + v->border : at;
        if (n > 0)
            TRY(cuda_copy_from(b->queue, to, b->values + v->offset, n, err));
        at += plan_crosses(v) && !b->shared ? v->n_bytes : 0;
    }
    return LACE_OK;
}

lace_status card_border_finish(card_border *b, const batch *of, lace_error *err)
{
    uint8_t *at = b->pinned;
    if (!at && !b->shared)
        return LACE_OK;
    TRY(cuda_wait(b->queue, err));
    for (int32_t i = 0; at && i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        if (v->leaves)
            memcpy(b->border + v->border, at, plan_batch_bytes(v, of));
        at += plan_crosses(v) ? v->n_bytes : 0;
    }
    return LACE_OK;
}

/* ---- Single tokens --------------------------------------------------------------------------- */

/* Rows are whole units of 64 bytes. */
static uint64_t token_bytes(const plan_value *v)
{
    int32_t rows = v->row_factor > 1 ? v->row_factor : 1;
    return (uint64_t)rows * act_row_bytes(v->format, v->width);
}

bool card_border_fits_token(const plan *p)
{
    const int32_t most_large = sizeof((border_step *)0)->large / sizeof(border_copy);
    int32_t n[2] = {0, 0}, n_large[2] = {0, 0};
    for (int32_t i = 0; i < p->n_values; i++) {
        const plan_value *v = &p->values[i];
        int32_t *to = token_bytes(v) > BORDER_LARGEST ? n_large : n;
        to[0] += v->enters;
        to[1] += v->leaves;
    }
    for (int k = 0; k < 2; k++)
        if (n[k] > BORDER_VALUES || n_large[k] > most_large)
            return false;
    return true;
}

void card_border_of_token(const card_border *b, bool enters, decode_state *state, border_step *out)
{
    border_copies *p = &out->by_kernel;
    *out = (border_step){.enters = enters};
    for (int32_t i = 0; i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        if (enters ? !v->enters : !v->leaves)
            continue;
        bool is_large = token_bytes(v) > BORDER_LARGEST;
        /* The card's engine takes the host's name of its memory, a kernel its own. */
        uint8_t *here = (is_large ? b->border : b->shared) + v->border;
        uint8_t *there = b->values + v->offset;
        border_copy c = {enters ? here : there, enters ? there : here,
                         (int32_t)(token_bytes(v) / 16)};
        if (is_large)
            out->large[out->n_large++] = c;
        else
            p->values[p->n_values++] = c;
    }
    p->state = state;
    if (enters)
        p->said = &b->token_on_card->said;
    else
        p->done = (int32_t *)&b->token_on_card->done;
}

lace_status card_border_copy_large(cuda_queue *q, const border_copy *large, int32_t n, bool enters,
                                   lace_error *err)
{
    for (int32_t i = 0; i < n; i++)
        TRY(enters ? cuda_copy_to(q, large[i].to, large[i].from, 16 * (uint64_t)large[i].n, err)
                   : cuda_copy_from(q, large[i].to, large[i].from, 16 * (uint64_t)large[i].n, err));
    return LACE_OK;
}

void card_border_begin_token(card_border *b, int32_t token, int32_t position, int32_t turn,
                             int32_t sequence)
{
    int32_t number = b->token->said.n_chosen + 1;
    b->token->said = (decode_state){token, position, sequence, number, turn};
    atomic_thread_fence(memory_order_seq_cst);
}

lace_status card_border_wait_token(card_border *b, lace_error *err)
{
    int32_t wanted = b->token->said.n_chosen;
    /* A kernel that failed would never write: look at the queue now and then. */
    for (uint64_t n = 1; b->token->done != wanted; n++) {
        if (n % (1 << 22) == 0) {
            TRY(cuda_wait(b->queue, err));
            if (b->token->done != wanted)
                return error_set(err, LACE_E_DEVICE, "the GPU did not end its part of a token");
        }
        if (n % 4096 == 0)
            sched_yield();
    }
    atomic_thread_fence(memory_order_seq_cst);
    return LACE_OK;
}
