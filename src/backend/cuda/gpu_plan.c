/* A plan on a GPU: memory on the card, and what its steps need there. */
#include "backend/cuda/gpu_plan.h"

#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "ops/op_info.h"
#include "backend/backend.h"
#include "backend/lora_pieces.h"
#include "backend/cuda/token_ring.h"
#include "state/states.h"

_Static_assert((int)GPU_MAX_GROUPS == (int)STATES_MAX_GROUPS, "a batch has all groups' tables");
_Static_assert((int)DECODE_PAGE == (int)PAGE_TOKENS, "fused attention knows pages of one size");

/* As the card likes addresses. */
static uint64_t aligned(uint64_t n)
{
    return round_up(n, 256);
}

/* ---- Vectors --------------------------------------------------------------------------------- */

static vector *find_vector(gpu_plan *gp, const float *host)
{
    for (int32_t i = 0; i < gp->n_vectors; i++)
        if (gp->vectors[i].host == host)
            return &gp->vectors[i];
    return NULL;
}

/* Upload what steps point to, from *at on, and let them point there. */
static lace_status move_vectors(gpu_plan *gp, uint8_t **at, lace_error *err)
{
    for (int32_t i = 0; i < gp->p->n_steps; i++) {
        op_vector found[OP_MAX_VECTORS];
        int count = step_vectors(&gp->p->steps[i], found);
        for (int k = 0; k < count; k++) {
            vector *v = find_vector(gp, *found[k].at);
            if (!v) {
                if (gp->n_vectors == gp->vectors_capacity) {
                    int32_t more = gp->vectors_capacity ? 2 * gp->vectors_capacity : 64;
                    vector *grown = mem_realloc(gp->vectors, (size_t)more * sizeof *grown);
                    if (!grown)
                        return error_nomem(err, "a plan");
                    gp->vectors = grown;
                    gp->vectors_capacity = more;
                }
                v = &gp->vectors[gp->n_vectors++];
                *v = (vector){*found[k].at, found[k].n, (float *)*at};
                TRY(cuda_copy_to(gp->queue, v->device, v->host, 4 * (uint64_t)v->n, err));
                *at += aligned(4 * (uint64_t)v->n);
            }
            *found[k].at = v->device;
        }
    }
    return LACE_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint64_t scratch_bytes(const plan *p, const gpu_plan_options *o)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        int64_t rows = p->steps[i].is_output ? p->limits.max_outputs : p->limits.max_tokens;
        uint64_t bytes = gpu_step_scratch_bytes(o->g, &p->steps[i], rows, p->limits.n_context);
        most = bytes > most ? bytes : most;
    }
    return aligned(most);
}

static uint64_t handover_bytes(const plan *p)
{
    return aligned(gpu_handover_bytes(p->steps, p->n_steps, p->limits.max_tokens));
}

/* Numbers of a batch without its tables, and with them. */
uint64_t gpu_plan_batch_head(const plan *p)
{
    return ((5 + ROPE_MAX_AXES) * (uint64_t)p->limits.max_tokens + (uint64_t)p->limits.max_outputs +
            63) /
           64 * 64;
}

static uint64_t batch_numbers(const plan *p, const gpu_plan_options *o)
{
    return gpu_plan_batch_head(p) +
           (uint64_t)o->n_groups * (uint64_t)o->n_sequences * (uint64_t)o->pages_per_sequence;
}

/* Rules and words of choices, and what is known of sequences. */
static uint64_t choice_bytes(const plan *p, const gpu_plan_options *o)
{
    uint64_t n = (uint64_t)p->limits.max_outputs, n_sequences = (uint64_t)o->n_sequences;
    return aligned(n * sizeof(choice_rule)) + aligned(n * sizeof(int32_t)) +
           aligned(n_sequences * sizeof(int32_t)) + aligned(n_sequences * 4 * sizeof(uint64_t));
}

static uint64_t given_bytes(const plan *p)
{
    return aligned(4 * (uint64_t)p->limits.max_tokens * (uint64_t)plan_given_width(p));
}

static uint64_t scales_bytes(const plan *p, const gpu_plan_options *o)
{
    return aligned(4 * (uint64_t)o->n_sequences * (uint64_t)p->limits.n_adapters);
}

/* Single tokens are recorded, but for plans that end early or read more than tokens. */
static bool has_player(const plan *p)
{
    return (card_border_has(p) ? card_border_fits_token(p) : p->logits >= 0) &&
           !p->limits.stops_at_hidden && !plan_is_beside(p) && weight_stream_slot_bytes(p) == 0;
}

uint64_t gpu_plan_room_bytes(const plan *p, const gpu_plan_options *o)
{
    return aligned(p->value_bytes) + scratch_bytes(p, o) + handover_bytes(p) +
           WEIGHT_STREAM_SLOTS * weight_stream_slot_bytes(p);
}

/* What stays from run to run, without the player's, which allocates its own. */
static uint64_t own_bytes(const plan *p, const gpu_plan_options *o)
{
    return plan_vector_bytes(p, aligned(1)) + aligned(4 * batch_numbers(p, o)) +
           choice_bytes(p, o) + given_bytes(p) + scales_bytes(p, o) + aligned(lora_memory_bytes(p));
}

uint64_t gpu_plan_bytes(const plan *p, const gpu_plan_options *o)
{
    return gpu_plan_room_bytes(p, o) + own_bytes(p, o) +
           (has_player(p) ? token_player_bytes(p, o->g) : 0);
}

static uint64_t logits_bytes(const plan *p)
{
    uint64_t width = p->logits >= 0 ? (uint64_t)p->values[p->logits].width : 1;
    return (uint64_t)p->limits.max_outputs * 4 * width;
}

static bool is_float(const weight *w)
{
    return w->type == DTYPE_F32 || w->type == DTYPE_F16 || w->type == DTYPE_BF16;
}

/* Whether all weights of a plan are floats. */
static bool has_floats_only(const plan *p)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        op_weight w[OP_MAX_WEIGHTS];
        int n = step_weights(&p->steps[i], w);
        for (int k = 0; k < n; k++)
            if (!is_float(w[k].w))
                return false;
    }
    return true;
}

int32_t *gpu_plan_table(const gpu_plan *gp, int32_t *tables, int32_t group, int32_t sequence)
{
    return tables + ((uint64_t)group * (uint64_t)gp->n_sequences + (uint64_t)sequence) *
                        (uint64_t)gp->pages_per_sequence;
}

static lace_status create_slot(gpu_plan *gp, const gpu_plan_options *o, gpu_slot *s,
                               lace_error *err)
{
    cuda_device *d = o->g->device;
    uint64_t n = (uint64_t)gp->p->limits.max_outputs, rules = aligned(n * sizeof *s->rules);
    TRY(cuda_alloc_host(d, 4 * batch_numbers(gp->p, o), (void **)&s->batch, NULL, err));
    TRY(cuda_alloc_host(d, rules + n * sizeof *s->words, (void **)&s->rules, NULL, err));
    s->words = (int32_t *)((uint8_t *)s->rules + rules);
    TRY(cuda_alloc_host(d, logits_bytes(gp->p), (void **)&s->logits, (void **)&s->logits_on_card,
                        err));
    uint64_t n_hidden = plan_hidden_floats(gp->p), n_given = given_bytes(gp->p);
    if (n_hidden > 0)
        TRY(cuda_alloc_host(d, 4 * n_hidden, (void **)&s->hidden, NULL, err));
    if (n_given > 0)
        TRY(cuda_alloc_host(d, n_given, (void **)&s->given, NULL, err));
    if (scales_bytes(gp->p, o) > 0)
        TRY(cuda_alloc_host(d, scales_bytes(gp->p, o), (void **)&s->scales, NULL, err));
    return cuda_event_create(d, &s->done, err);
}

static void free_slot(gpu_plan *gp, gpu_slot *s)
{
    cuda_device *d = gp->g->device;
    cuda_free_host(d, s->batch);
    cuda_free_host(d, s->rules);
    cuda_free_host(d, s->logits);
    cuda_free_host(d, s->hidden);
    cuda_free_host(d, s->given);
    cuda_free_host(d, s->scales);
    cuda_event_free(s->done);
}

/* Where everything is, behind the values and in the plan's own memory. Returns the end. */
static uint8_t *place_parts(gpu_plan *gp, const gpu_plan_options *o)
{
    const plan *p = gp->p;
    uint64_t n_outputs = (uint64_t)p->limits.max_outputs, n_sequences = (uint64_t)o->n_sequences;
    gp->scratch = gp->memory + aligned(p->value_bytes);
    gp->handover.memory = gp->scratch + gp->scratch_bytes;
    uint8_t *at = gp->own;
    gp->batch_device = (int32_t *)at;
    gp->tables_device = gp->batch_device + gpu_plan_batch_head(p);
    at += aligned(4 * batch_numbers(p, o));
    gp->rules = (choice_rule *)at;
    at += aligned(n_outputs * sizeof *gp->rules);
    gp->words = (int32_t *)at;
    at += aligned(n_outputs * sizeof *gp->words);
    gp->last_tokens = (int32_t *)at;
    at += aligned(n_sequences * sizeof *gp->last_tokens);
    gp->randoms = (uint64_t(*)[4])at;
    at += aligned(n_sequences * sizeof *gp->randoms);
    gp->given = (float *)at;
    at += given_bytes(p);
    gp->scales = (float *)at;
    return at + scales_bytes(p, o);
}

static lace_status write_adapter(void *q, uint64_t to, const void *from, uint64_t n,
                                 lace_error *err)
{
    TRY(cuda_copy_to(q, (void *)(uintptr_t)to, from, n, err));
    return cuda_wait(q, err); /* `from` may be gone soon */
}

/* How single tokens are computed. */
static lace_status create_player(gpu_plan *gp, lace_error *err)
{
    plan *p = gp->p;
    bool is_part = card_border_has(p);
    if (!has_player(p) || (is_part && !gp->border.shared))
        return LACE_OK;
    gpu_batch tables = {.pages_per_sequence = gp->pages_per_sequence,
                        .scales = p->limits.n_adapters > 0 ? gp->scales : NULL,
                        .n_adapters = p->limits.n_adapters};
    for (int32_t g = 0; g < gp->n_groups; g++)
        tables.tables[g] = gpu_plan_table(gp, gp->tables_device, g, 0);
    gp->can_sample = !is_part && gpu_can_sample(gp->g, p->values[p->logits].width);
    token_player_options o = {.p = p,
                              .g = gp->g,
                              .queue = gp->queue,
                              .scratch = gp->scratch,
                              .scratch_bytes = gp->scratch_bytes,
                              .is_exact = gp->is_exact,
                              .tables = tables,
                              .border = is_part ? &gp->border : NULL};
    return token_player_create(&o, &gp->player, err);
}

lace_status gpu_plan_create(plan *p, const gpu_plan_options *o, gpu_plan **out, lace_error *err)
{
    *out = NULL;
    gpu_plan *gp = mem_calloc(1, sizeof *gp);
    if (!gp)
        return error_nomem(err, "a plan");
    gp->p = p;
    gp->g = o->g;
    gp->queue = o->queue;
    gp->n_sequences = o->n_sequences;
    gp->pages_per_sequence = o->pages_per_sequence;
    gp->n_groups = o->n_groups;
    gp->scratch_bytes = scratch_bytes(p, o);
    gp->is_exact = has_floats_only(p);
    gp->given_width = plan_given_width(p);
    lace_status status;
    uint64_t n = batch_numbers(p, o), head = gpu_plan_batch_head(p);
    gp->has_room = o->room != NULL;
    gp->memory = o->room;
    if (!gp->has_room)
        TRY_GOTO(status, done,
                 cuda_alloc(o->g->device, gpu_plan_room_bytes(p, o), (void **)&gp->memory, err));
    TRY_GOTO(status, done, cuda_alloc(o->g->device, own_bytes(p, o), (void **)&gp->own, err));
    gp->border = (card_border){.p = p,
                               .device = o->g->device,
                               .queue = o->queue,
                               .values = gp->memory,
                               .border = o->border};
    TRY_GOTO(status, done, card_border_init(&gp->border, o->is_shared, err));
    for (int i = 0; i < PROGRAM_SLOTS; i++)
        TRY_GOTO(status, done, create_slot(gp, o, &gp->slots[i], err));
    if (o->streamer)
        TRY_GOTO(status, done,
                 weight_stream_init(&gp->stream, o->g, o->streamer, gp->queue,
                                    gp->memory + aligned(p->value_bytes) + gp->scratch_bytes +
                                        handover_bytes(p),
                                    weight_stream_slot_bytes(p), err));
    gp->tables_sent = mem_alloc(4 * (size_t)(n - head) + 1);
    gp->scales_sent = mem_calloc(1, scales_bytes(p, o) + 1);
    if (!gp->tables_sent || !gp->scales_sent) {
        status = error_nomem(err, "a plan");
        goto done;
    }
    plan_locate(p, &(plan_memory){gp->memory, o->kv_data, o->slots, NULL});
    uint8_t *at = place_parts(gp, o);
    memset(gp->tables_sent, 0xFF, 4 * (size_t)(n - head)); /* none has been sent */
    TRY_GOTO(status, done, cuda_fill(o->queue, gp->batch_device, 0xFF, 4 * n, err));
    TRY_GOTO(status, done,
             cuda_fill(o->queue, gp->last_tokens, 0, 4 * (uint64_t)o->n_sequences, err));
    TRY_GOTO(status, done, move_vectors(gp, &at, err));
    TRY_GOTO(status, done,
             lora_memory_fill(p, (uint64_t)(uintptr_t)at, write_adapter, gp->queue, err));
    if (scales_bytes(p, o) > 0)
        TRY_GOTO(status, done, cuda_fill(o->queue, gp->scales, 0, scales_bytes(p, o), err));
    TRY_GOTO(status, done, create_player(gp, err));
    TRY_GOTO(status, done, cuda_wait(o->queue, err));
done:
    return GIVE_OR_FREE(status, gp, out, gpu_plan_free);
}

void gpu_plan_free(gpu_plan *gp)
{
    if (!gp)
        return;
    cuda_wait(gp->queue, NULL);
    token_player_free(gp->player);
    for (int i = 0; i < N_BATCH_LISTS; i++)
        device_list_free(&gp->batches[i].list);
    mem_free(gp->ns);
    if (!gp->has_room)
        cuda_free(gp->g->device, gp->memory);
    cuda_free(gp->g->device, gp->own);
    card_border_deinit(&gp->border);
    weight_stream_deinit(&gp->stream);
    for (int i = 0; i < PROGRAM_SLOTS; i++)
        free_slot(gp, &gp->slots[i]);
    mem_free_all(gp->tables_sent, gp->scales_sent, gp->vectors, gp);
}
