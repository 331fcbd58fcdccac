/* Weights on their way to the card, step by step. */
#include "backend/cuda/weight_stream.h"

#include "backend/backend.h"
#include "base/numbers.h"

enum { ALIGN = 4096 };

/* Matrices of experts lie one behind the other in tiles; others begin at a page. */
static uint64_t operand_bytes(const op_weight *o)
{
    return o->w->streamed ? round_up((uint64_t)o->n_experts * o->w->n_bytes, ALIGN) : 0;
}

static uint64_t step_stream_bytes(const step *s)
{
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(s, w);
    uint64_t all = 0;
    for (int i = 0; i < n; i++)
        all += operand_bytes(&w[i]);
    return all;
}

/* Of steps that are joined, as plan_fuse does, the weights are all of one step. */
uint64_t weight_stream_slot_bytes(const plan *p)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        uint64_t n = step_stream_bytes(&p->steps[i]);
        most = n > most ? n : most;
    }
    return most;
}

lace_status weight_stream_init(weight_stream *w, gpu *g, gpu_uploader *u, cuda_queue *q,
                               uint8_t *memory, uint64_t slot_bytes, lace_error *err)
{
    if (slot_bytes == 0)
        return LACE_OK;
    for (int i = 0; i < WEIGHT_STREAM_SLOTS; i++) {
        w->slots[i] = memory + (uint64_t)i * slot_bytes;
        TRY(cuda_event_create(g->device, &w->used[i], err));
    }
    TRY(cuda_event_create(g->device, &w->ready, err));
    w->uploader = u;
    w->queue = q;
    return LACE_OK;
}

void weight_stream_deinit(weight_stream *w)
{
    for (int i = 0; i < WEIGHT_STREAM_SLOTS; i++)
        cuda_event_free(w->used[i]);
    cuda_event_free(w->ready);
}

/* Whether the rows of all experts follow each other in the file, as their tiles do. */
static bool is_one_matrix(const op_weight *o)
{
    for (int32_t i = 0; i < o->n_experts; i++) {
        const weight_rows *r = o->w[i].streamed, *first = o->w[0].streamed;
        if (r->blocks != first->blocks + (uint64_t)i * first->n_bytes ||
            r->n_rows % TILE_ROWS != 0 || r->kept != first->kept)
            return false;
    }
    return true;
}

/* The weights of an operand into a slot, and their addresses. */
static lace_status bring_operand(weight_stream *w, const op_weight *o, uint8_t *to, lace_error *err)
{
    weight *all = (weight *)(uintptr_t)o->w; /* made for this program alone */
    const weight_rows *r = o->w->streamed;
    bool is_one = o->n_experts > 1 && is_one_matrix(o);
    for (int32_t i = 0; i < o->n_experts; i++)
        all[i].data = to + (uint64_t)i * o->w->n_bytes;
    if (is_one)
        return gpu_upload_matrix(w->uploader, r->type, r->kept, r->blocks, r->n_rows * o->n_experts,
                                 r->n_cols, to, err);
    for (int32_t i = 0; i < o->n_experts; i++) {
        r = o->w[i].streamed;
        TRY(gpu_upload_matrix(w->uploader, r->type, r->kept, r->blocks, r->n_rows, r->n_cols,
                              (uint8_t *)(uintptr_t)all[i].data, err));
    }
    return LACE_OK;
}

static bool has_any(const device_step *d)
{
    bool found = false;
    for (int32_t i = 0; i < d->n_steps && !found; i++)
        found = step_stream_bytes(&d->first[i]) > 0;
    return found;
}

lace_status weight_stream_bring(weight_stream *w, const device_step *d, bool *has_brought,
                                lace_error *err)
{
    *has_brought = w->uploader && has_any(d);
    if (!*has_brought)
        return LACE_OK;
    cuda_queue *copies = gpu_uploader_queue(w->uploader);
    int32_t slot = w->last = w->next;
    w->next = (w->next + 1) % WEIGHT_STREAM_SLOTS;
    if (w->is_used[slot])
        TRY(cuda_queue_wait_event(copies, w->used[slot], err));
    uint8_t *at = w->slots[slot];
    for (int32_t i = 0; i < d->n_steps; i++) {
        op_weight of[OP_MAX_WEIGHTS];
        int n = step_weights(&d->first[i], of);
        for (int k = 0; k < n; k++) {
            if (!of[k].w->streamed)
                continue;
            TRY(bring_operand(w, &of[k], at, err));
            at += operand_bytes(&of[k]);
        }
    }
    TRY(cuda_event_record(w->ready, copies, err));
    return cuda_queue_wait_event(w->queue, w->ready, err);
}

lace_status weight_stream_used(weight_stream *w, lace_error *err)
{
    w->is_used[w->last] = true;
    return cuda_event_record(w->used[w->last], w->queue, err);
}
