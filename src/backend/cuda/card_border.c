/* Values that enter and leave a part of a plan on a card. */
#include "backend/cuda/card_border.h"

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

lace_status card_border_init(card_border *b, lace_error *err)
{
    uint64_t n = pinned_bytes(b->p);
    return n ? cuda_alloc_host(b->device, n, (void **)&b->pinned, NULL, err) : LACE_OK;
}

void card_border_deinit(card_border *b)
{
    cuda_free_host(b->device, b->pinned);
    b->pinned = NULL;
}

lace_status card_border_send(card_border *b, const batch *of, lace_error *err)
{
    uint8_t *at = b->pinned;
    for (int32_t i = 0; i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        uint64_t n = v->enters ? plan_batch_bytes(v, of) : 0;
        if (n > 0) {
            memcpy(at, b->border + v->border, n);
            TRY(cuda_copy_to(b->queue, b->values + v->offset, at, n, err));
        }
        at += plan_crosses(v) ? v->n_bytes : 0;
    }
    return LACE_OK;
}

lace_status card_border_fetch(card_border *b, const batch *of, lace_error *err)
{
    uint8_t *at = b->pinned;
    for (int32_t i = 0; i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        uint64_t n = v->leaves ? plan_batch_bytes(v, of) : 0;
        if (n > 0)
            TRY(cuda_copy_from(b->queue, at, b->values + v->offset, n, err));
        at += plan_crosses(v) ? v->n_bytes : 0;
    }
    return LACE_OK;
}

lace_status card_border_finish(card_border *b, const batch *of, lace_error *err)
{
    uint8_t *at = b->pinned;
    if (!at)
        return LACE_OK;
    TRY(cuda_wait(b->queue, err));
    for (int32_t i = 0; i < b->p->n_values; i++) {
        const plan_value *v = &b->p->values[i];
        if (v->leaves)
            memcpy(b->border + v->border, at, plan_batch_bytes(v, of));
        at += plan_crosses(v) ? v->n_bytes : 0;
    }
    return LACE_OK;
}
