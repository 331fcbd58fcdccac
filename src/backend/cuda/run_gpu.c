/* A plan on a GPU: memory on the card, batches on their way to it, the launches of its steps. */
#include "backend/lora_pieces.h"
#include "backend/cuda/run_gpu.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "ops/op_info.h"
#include "backend/backend.h"
#include "backend/cuda/card_border.h"
#include "backend/cuda/card_link.h"
#include "backend/cuda/handover.h"
#include "state/states.h"
#include "backend/cuda/token_player.h"
#include "backend/cuda/token_ring.h"
#include "backend/cuda/weight_stream.h"

_Static_assert((int)GPU_MAX_GROUPS == (int)STATES_MAX_GROUPS, "a batch has all groups' tables");
_Static_assert((int)DECODE_PAGE == (int)PAGE_TOKENS, "fused attention knows pages of one size");

/* A vector of the model: norm weights, biases, frequencies. Each is uploaded once. */
typedef struct vector {
    const float *host;
    int64_t n;
    float *device;
} vector;

/* The list of batches of a shape. */
typedef struct batch_list {
    batch_shape shape; /* no tokens: there is none */
    device_list list;
} batch_list;

enum { N_BATCH_LISTS = 8 };

/*
 * A batch on its way, and what comes of it; all pinned. [max_tokens] tokens, positions, sequences,
 * [max_outputs] outputs, then [max_tokens] segments, what tokens see and [ROPE_MAX_AXES, n_tokens]
 * axes, where there are any, then of the page tables of all groups what is sent with it.
 */
typedef struct gpu_slot {
    int32_t *batch;
    choice_rule *rules;             /* [max_outputs] */
    int32_t *words;                 /* [max_outputs] what the card chose */
    float *logits, *logits_on_card; /* [max_outputs, n_vocab] and how the card writes there */
    float *hidden;                  /* [rows, width] what is given out beside them, or NULL */
    float *given;                   /* [max_tokens, given_width] what tokens bring along, or NULL */
    float *scales;                  /* [n_sequences, n_adapters] of adapters, or NULL */
    cuda_event *done;
    int32_t n_outputs;
} gpu_slot;

struct gpu_plan {
    plan *p;
    gpu *g;
    cuda_queue *queue;
    int32_t n_sequences, pages_per_sequence, n_groups;

    uint8_t *memory;  /* on the card: values, scratch, what steps hand over */
    bool has_room;    /* that is somebody else's */
    uint8_t *own;     /* the batch, choices, vectors */
    uint8_t *scratch; /* of the first */
    uint64_t scratch_bytes;
    gpu_handover handover;
    bool is_exact; /* gpu_job */
    vector *vectors;
    int32_t n_vectors, vectors_capacity;

    card_border border;            /* of a part of a plan */
    weight_stream stream;          /* where steps have weights that are brought */
    gpu_slot slots[PROGRAM_SLOTS]; /* in turn */
    int32_t n_submitted, n_collected;
    int32_t *batch_device; /* as in a slot */
    int32_t *tables_sent;  /* [groups, sequences, pages] what the card has, or will have */
    int32_t *tables_device;
    int64_t given_width; /* of rows that tokens bring along; 0: none do */
    float *given;        /* [max_tokens, given_width] on the card */
    float *scales;       /* [n_sequences, n_adapters] on the card, */
    float *scales_sent;  /* and what is there, or will be */

    token_player *player;              /* of single tokens; NULL: the plan ends early */
    batch_list batches[N_BATCH_LISTS]; /* the last few, the newest at last_batch */
    int32_t last_batch;
    const device_list *last_list;
    uint64_t *ns; /* [last_list's steps] of the last traced run, or NULL */
    bool can_sample;
    choice_rule *rules;       /* [max_outputs] on the card */
    int32_t *words;           /* [max_outputs] */
    int32_t *last_tokens;     /* [n_sequences] that the card chose */
    uint64_t (*randoms)[4];   /* [n_sequences] */
    const float *last_logits; /* on the card, of the last run, and a row's floats */
    int64_t last_stride;
};

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
static uint64_t batch_head(const plan *p)
{
    return ((5 + ROPE_MAX_AXES) * (uint64_t)p->limits.max_tokens + (uint64_t)p->limits.max_outputs +
            63) /
           64 * 64;
}

static uint64_t batch_numbers(const plan *p, const gpu_plan_options *o)
{
    return batch_head(p) +
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

/* A sequence's part of the tables. */
static int32_t *table_of(const gpu_plan *gp, int32_t *tables, int32_t group, int32_t sequence)
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
    gp->tables_device = gp->batch_device + batch_head(p);
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
        tables.tables[g] = table_of(gp, gp->tables_device, g, 0);
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
    uint64_t n = batch_numbers(p, o), head = batch_head(p);
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

/* ---- Batches --------------------------------------------------------------------------------- */

/*
 * Bring a sequence's page numbers up to date on the card, up to its page `n`: most often nothing,
 * or one page. Entries behind that are never read. What is on its way lies in the slot.
 */
static lace_status send_table(gpu_plan *gp, const gpu_slot *slot, int32_t group, int32_t sequence,
                              const int32_t *pages, int32_t n, lace_error *err)
{
    int32_t *sent = table_of(gp, gp->tables_sent, group, sequence), first = 0;
    while (first < n && sent[first] == pages[first])
        first++;
    while (n > first && sent[n - 1] == pages[n - 1])
        n--;
    if (first == n)
        return LACE_OK;
    int32_t *from = table_of(gp, slot->batch + batch_head(gp->p), group, sequence) + first;
    size_t bytes = (size_t)(n - first) * sizeof *pages;
    memcpy(from, pages + first, bytes);
    memcpy(sent + first, pages + first, bytes);
    return cuda_copy_to(gp->queue, table_of(gp, gp->tables_device, group, sequence) + first, from,
                        bytes, err);
}

/* Tokens that the host does not know are those that the card chose last. */
static lace_status fill_tokens(gpu_plan *gp, const batch *b, lace_error *err)
{
    const int32_t *sequences = gp->batch_device + 2 * (size_t)gp->p->limits.max_tokens;
    fill_tokens_params p = {.tokens = gp->batch_device,
                            .sequences = sequences,
                            .last_tokens = gp->last_tokens,
                            .n = b->n_tokens,
                            .chosen_id = TOKEN_CHOSEN};
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (b->tokens[t] == TOKEN_CHOSEN)
            return gpu_fill_tokens(gp->g, gp->queue, &p, err);
    return LACE_OK;
}

/* What tokens bring along. */
static lace_status send_given(gpu_plan *gp, const gpu_slot *slot, const batch *b, gpu_batch *out,
                              lace_error *err)
{
    if (gp->given_width == 0 || !b->embeddings)
        return LACE_OK;
    assert(b->embedding_width == 0 || b->embedding_width == gp->given_width);
    size_t n_bytes = 4 * (size_t)b->n_tokens * (size_t)gp->given_width;
    memcpy(slot->given, b->embeddings, n_bytes);
    out->given = gp->given;
    out->given_width = gp->given_width;
    return cuda_copy_to(gp->queue, gp->given, slot->given, n_bytes, err);
}

/* How much of each adapter sequences want; NULL: nobody wants any. Mostly it is known. */
static lace_status send_scales(gpu_plan *gp, const gpu_slot *slot, const float *scales,
                               lace_error *err)
{
    size_t n = (size_t)gp->n_sequences * (size_t)gp->p->limits.n_adapters;
    bool is_known = true;
    for (size_t i = 0; i < n && is_known; i++)
        is_known = gp->scales_sent[i] == (scales ? scales[i] : 0.0f);
    if (is_known)
        return LACE_OK;
    for (size_t i = 0; i < n; i++)
        gp->scales_sent[i] = slot->scales[i] = scales ? scales[i] : 0.0f;
    return cuda_copy_to(gp->queue, gp->scales, slot->scales, n * sizeof *scales, err);
}

static lace_status send_batch(gpu_plan *gp, const gpu_slot *slot, const batch *b, gpu_batch *out,
                              lace_error *err)
{
    const plan_limits *l = &gp->p->limits;
    const int32_t *sequences = b->sequences;
    int32_t *to = slot->batch;
    size_t n = (size_t)b->n_tokens * 4, max = (size_t)l->max_tokens;
    memcpy(to, b->tokens, n);
    memcpy(to + max, b->positions, n);
    memcpy(to + 2 * max, sequences, n);
    if (b->n_outputs > 0)
        memcpy(to + 3 * max, b->outputs, (size_t)b->n_outputs * 4);
    /* Behind the outputs: most batches have none of these. */
    size_t segments = 3 * max + (size_t)l->max_outputs, seen = segments + max, axes = seen + max;
    size_t n_sent = 3 * max + (size_t)b->n_outputs;
    if (b->segments) {
        memcpy(to + segments, b->segments, n);
        n_sent = segments + (size_t)b->n_tokens;
    }
    if (b->seen) {
        memcpy(to + seen, b->seen, n);
        n_sent = seen + (size_t)b->n_tokens;
    }
    if (b->axes) {
        size_t n_axes = (size_t)b->n_axes * (size_t)b->n_tokens;
        memcpy(to + axes, b->axes, 4 * n_axes);
        n_sent = axes + n_axes;
    }
    TRY(cuda_copy_to(gp->queue, gp->batch_device, to, 4 * n_sent, err));
    *out = (gpu_batch){.n_tokens = b->n_tokens,
                       .n_outputs = b->n_outputs,
                       .tokens = gp->batch_device,
                       .positions = gp->batch_device + max,
                       .sequences = gp->batch_device + 2 * max,
                       .outputs = gp->batch_device + 3 * max,
                       .segments = b->segments ? gp->batch_device + segments : NULL,
                       .seen = b->seen ? gp->batch_device + seen : NULL,
                       .axes = b->axes ? gp->batch_device + axes : NULL,
                       .n_axes = b->n_axes,
                       .pages_per_sequence = gp->pages_per_sequence,
                       .host = b,
                       .host_sequences = sequences};
    for (int32_t g = 0; g < gp->n_groups; g++) {
        out->tables[g] = table_of(gp, gp->tables_device, g, 0);
        /* The last token of each sequence has seen all of its pages. */
        for (int32_t t = 0; t < b->n_tokens; t++)
            if (t + 1 == b->n_tokens || sequences[t + 1] != sequences[t])
                TRY(send_table(gp, slot, g, sequences[t], b->pages[g][t],
                               b->positions[t] / PAGE_TOKENS + 1, err));
    }
    TRY(send_given(gp, slot, b, out, err));
    if (b->adapter_scales && l->n_adapters > 0) {
        TRY(send_scales(gp, slot, b->adapter_scales, err));
        out->scales = gp->scales;
        out->n_adapters = b->n_adapters;
    }
    return fill_tokens(gp, b, err);
}

/* The list for a batch: one of the last few, or a new one in the place of the oldest. */
static lace_status find_list(gpu_plan *gp, const gpu_batch *b, lace_error *err)
{
    batch_shape wanted = gpu_shape_of(b);
    for (int i = 0; i < N_BATCH_LISTS; i++) {
        const batch_shape *its = &gp->batches[i].shape;
        if (its->n_tokens == wanted.n_tokens && its->n_outputs == wanted.n_outputs &&
            its->has_runs == wanted.has_runs && its->is_short == wanted.is_short) {
            gp->last_list = &gp->batches[i].list;
            return LACE_OK;
        }
    }
    gp->last_batch = (gp->last_batch + 1) % N_BATCH_LISTS;
    batch_list *to = &gp->batches[gp->last_batch];
    to->shape = (batch_shape){0};
    TRY(lower_batch(gp->p, gp->g, gp->is_exact, &wanted, &to->list, err));
    to->shape = wanted;
    gp->last_list = &to->list;
    return LACE_OK;
}

/* ns: [steps], filled if given; then each is waited for. */
static lace_status launch_batch(gpu_plan *gp, const gpu_batch *b, uint64_t *ns, lace_error *err)
{
    gp->handover.n_sums = 0;
    gpu_job j = {.g = gp->g,
                 .queue = gp->queue,
                 .batch = b,
                 .scratch = gp->scratch,
                 .scratch_bytes = gp->scratch_bytes,
                 .handover = &gp->handover,
                 .is_exact = gp->is_exact};
    uint64_t before = 0;
    if (ns) {
        TRY(cuda_wait(gp->queue, err));
        before = clock_ns();
    }
    for (int32_t i = 0; i < gp->last_list->n_steps; i++) {
        const device_step *d = &gp->last_list->steps[i];
        bool has_brought = false;
        TRY(weight_stream_bring(&gp->stream, d, &has_brought, err));
        TRY(d->launch(&j, d, err));
        if (has_brought)
            TRY(weight_stream_used(&gp->stream, err));
        if (ns) {
            TRY(cuda_wait(gp->queue, err));
            uint64_t now = clock_ns();
            ns[i] = now - before;
            before = now;
        }
    }
    return LACE_OK;
}

/* Whether a recorded token is what the batch needs: one with a row of its own is not. Of text, all axes
 * are the same behind an image. */
static bool is_single_token(const gpu_plan *gp, const batch *b)
{
    return gp->player && b->n_tokens == 1 && b->tokens[0] != TOKEN_GIVEN;
}

/* One token: as a recorded graph, or step by step. */
static lace_status launch_token(gpu_plan *gp, const gpu_slot *slot, const batch *b, uint64_t *ns,
                                lace_error *err)
{
    int32_t token = b->tokens[0], position = b->positions[0], sequence = b->sequences[0];
    int32_t turn = batch_axis(b, 0, 0) - position;
    for (int32_t g = 0; g < gp->n_groups; g++)
        TRY(send_table(gp, slot, g, sequence, b->pages[g][0], position / PAGE_TOKENS + 1, err));
    TRY(send_scales(gp, slot, b->adapter_scales, err));
    gp->last_logits = token_player_logits(gp->player);
    if (gp->border.shared)
        card_border_begin_token(&gp->border, token, position, turn, sequence);
    if (gp->border.shared && !ns)
        return token_player_part(gp->player, position, err);
    return ns ? token_player_trace(gp->player, token, position, turn, sequence, ns, err)
              : token_player_token(gp->player, token, position, turn, sequence, gp->last_tokens,
                                   err);
}

/* ---- Traces ---------------------------------------------------------------------------------- */

/* Room for the times of the list that is run next. */
static lace_status prepare_trace(gpu_plan *gp, lace_error *err)
{
    size_t n = (size_t)gp->last_list->n_steps;
    uint64_t *ns = mem_realloc(gp->ns, n * sizeof *ns);
    if (!ns)
        return error_nomem(err, "a trace");
    memset(ns, 0, n * sizeof *ns);
    gp->ns = ns;
    return LACE_OK;
}

int32_t gpu_plan_n_steps(const gpu_plan *gp)
{
    return gp->last_list ? gp->last_list->n_steps : 0;
}

gpu_plan_step gpu_plan_step_at(const gpu_plan *gp, int32_t i, const batch *b)
{
    assert(i < gpu_plan_n_steps(gp));
    const device_step *d = &gp->last_list->steps[i];
    gpu_plan_step out = {.name = d->name,
                         .layer = d->layer,
                         .first = (int32_t)(d->first - gp->p->steps),
                         .n_steps = d->n_steps,
                         .ns = gp->ns ? gp->ns[i] : 0};
    for (int32_t n = 0; n < d->n_steps; n++) {
        out.n_bytes += step_bytes(&d->first[n], b, false);
        out.n_products += step_products(&d->first[n], b);
    }
    return out;
}

/* ---- Results --------------------------------------------------------------------------------- */

static lace_status copy_logits(gpu_plan *gp, gpu_slot *slot, int32_t n, lace_error *err)
{
    for (int32_t i = 0; i < n; i++)
        slot->words[i] = CHOICE_REFUSED;
    if (gp->p->logits < 0)
        return LACE_OK;
    int64_t width = gp->p->values[gp->p->logits].width;
    if (gp->last_stride == width && n > 0)
        return cuda_copy_from(gp->queue, slot->logits, gp->last_logits,
                              4 * (uint64_t)n * (uint64_t)width, err);
    for (int32_t i = 0; i < n; i++)
        TRY(cuda_copy_from(gp->queue, slot->logits + i * width,
                           gp->last_logits + i * gp->last_stride, 4 * (uint64_t)width, err));
    return LACE_OK;
}

/* What is given out beside the logits. */
static lace_status copy_hidden(gpu_plan *gp, gpu_slot *slot, const batch *b, lace_error *err)
{
    int32_t n = plan_hidden_rows(gp->p, b);
    if (n == 0)
        return LACE_OK;
    const plan_value *v = &gp->p->values[gp->p->hidden];
    const uint8_t *from = gp->memory + v->offset;
    uint64_t stride = act_row_bytes(v->format, v->width), width = 4 * (uint64_t)v->width;
    if (stride == width)
        return cuda_copy_from(gp->queue, slot->hidden, from, (uint64_t)n * width, err);
    for (int32_t i = 0; i < n; i++)
        TRY(cuda_copy_from(gp->queue, slot->hidden + (int64_t)i * v->width,
                           from + (uint64_t)i * stride, width, err));
    return LACE_OK;
}

/* The choices of the rows that have a rule, the logits of the others. */
static lace_status choose_rows(gpu_plan *gp, gpu_slot *slot, const gpu_batch *b, int32_t n,
                               const choice_rule *rules, lace_error *err)
{
    sample_params p = {.logits = gp->last_logits,
                       .stride = gp->last_stride,
                       .n_vocab = (int32_t)gp->p->values[gp->p->logits].width,
                       .rows = gp->rules,
                       .words = gp->words,
                       .refused = slot->logits_on_card,
                       .outputs = b->outputs,
                       .sequences = b->sequences,
                       .last_tokens = gp->last_tokens,
                       .randoms = gp->randoms};
    memcpy(slot->rules, rules, (size_t)n * sizeof *rules);
    TRY(cuda_copy_to(gp->queue, gp->rules, slot->rules, (uint64_t)n * sizeof *rules, err));
    TRY(gpu_sample(gp->g, gp->queue, &p, n, err));
    return cuda_copy_from(gp->queue, slot->words, gp->words, 4 * (uint64_t)n, err);
}

/* Queue a batch; traced, every device step is waited for. */
static lace_status queue_batch(gpu_plan *gp, const batch *b, const choice_rule *rules,
                               bool is_traced, lace_error *err)
{
    const plan_value *v = gp->p->logits >= 0 ? &gp->p->values[gp->p->logits] : NULL;
    gpu_slot *slot = &gp->slots[gp->n_submitted % PROGRAM_SLOTS];
    assert(gp->n_submitted - gp->n_collected < PROGRAM_SLOTS);
    gp->last_logits = v ? (const float *)(gp->memory + v->offset) : NULL;
    gp->last_stride = v ? (int64_t)act_row_bytes(v->format, v->width) / 4 : 0;
    bool is_token = is_single_token(gp, b);
    gpu_batch sent;
    const gpu_batch *on_card = is_token ? token_player_batch(gp->player) : &sent;
    if (is_token) {
        gp->last_list = token_player_list(gp->player);
    } else {
        TRY(send_batch(gp, slot, b, &sent, err));
        TRY(find_list(gp, on_card, err));
    }
    if (is_traced)
        TRY(prepare_trace(gp, err));
    uint64_t *ns = is_traced ? gp->ns : NULL;
    TRY(is_token ? launch_token(gp, slot, b, ns, err) : launch_batch(gp, on_card, ns, err));
    TRY(rules && gp->can_sample && b->n_outputs > 0
            ? choose_rows(gp, slot, on_card, b->n_outputs, rules, err)
            : copy_logits(gp, slot, b->n_outputs, err));
    TRY(copy_hidden(gp, slot, b, err));
    slot->n_outputs = b->n_outputs;
    gp->n_submitted++;
    return cuda_event_record(slot->done, gp->queue, err);
}

lace_status gpu_plan_submit(gpu_plan *gp, const batch *b, const choice_rule *rules, lace_error *err)
{
    return queue_batch(gp, b, rules, false, err);
}

lace_status gpu_plan_collect(gpu_plan *gp, lace_error *err)
{
    assert(gp->n_collected < gp->n_submitted);
    TRY(cuda_event_wait(gp->slots[gp->n_collected++ % PROGRAM_SLOTS].done, err));
    return card_link_check(gp->g->link, err);
}

/* A part's single token: what crosses is fetched and brought by the launches themselves. */
static lace_status run_part_token(gpu_plan *gp, const batch *b, bool is_traced, lace_error *err)
{
    gp->last_list = token_player_list(gp->player);
    if (is_traced)
        TRY(prepare_trace(gp, err));
    TRY(launch_token(gp, &gp->slots[0], b, is_traced ? gp->ns : NULL, err));
    return card_border_wait_token(&gp->border, err);
}

lace_status gpu_plan_run(gpu_plan *gp, const batch *b, const choice_rule *rules, bool is_traced,
                         lace_error *err)
{
    if (gp->border.shared && is_single_token(gp, b))
        return run_part_token(gp, b, is_traced, err);
    TRY(card_border_send(&gp->border, b, err));
    TRY(queue_batch(gp, b, rules, is_traced, err));
    TRY(card_border_fetch(&gp->border, b, err));
    TRY(gpu_plan_collect(gp, err));
    if (gp->stream.uploader) /* all is over: whether something could not be put into tiles */
        TRY(gpu_uploader_wait(gp->stream.uploader, err));
    return card_border_finish(&gp->border, b, err);
}

/* The one that was collected last. */
static const gpu_slot *last_slot(const gpu_plan *gp)
{
    return &gp->slots[(gp->n_collected + PROGRAM_SLOTS - 1) % PROGRAM_SLOTS];
}

int32_t gpu_plan_word(const gpu_plan *gp, int32_t row)
{
    assert(row < last_slot(gp)->n_outputs);
    return last_slot(gp)->words[row];
}

const float *gpu_plan_logits(const gpu_plan *gp, int32_t row)
{
    const gpu_slot *slot = last_slot(gp);
    assert(row < slot->n_outputs);
    return slot->logits + (uint64_t)row * (uint64_t)gp->p->values[gp->p->logits].width;
}

const float *gpu_plan_hidden(const gpu_plan *gp, int32_t row)
{
    return last_slot(gp)->hidden + (int64_t)row * gp->p->values[gp->p->hidden].width;
}

lace_status gpu_plan_warm_up(gpu_plan *gp, lace_error *err)
{
    return gp->player ? token_player_warm_up(gp->player, gp->can_sample, err) : LACE_OK;
}

/* ---- Ahead ----------------------------------------------------------------------------------- */

bool gpu_plan_chooses(const gpu_plan *gp)
{
    return gp->can_sample && gp->player;
}

lace_status gpu_plan_begin(gpu_plan *gp, const ahead_start *start, const choice_rule *rule,
                           lace_error *err)
{
    TRY(cuda_wait(gp->queue, err)); /* what was sent before is there */
    TRY(send_scales(gp, &gp->slots[0], start->adapter_scales, err));
    return token_player_begin(gp->player, start, rule, err);
}

lace_status gpu_plan_ahead(gpu_plan *gp, const int32_t *const *pages, int32_t sequence,
                           int32_t position, lace_error *err)
{
    for (int32_t g = 0; g < gp->n_groups; g++)
        TRY(send_table(gp, &gp->slots[0], g, sequence, pages[g], position / PAGE_TOKENS + 1, err));
    return token_player_ahead(gp->player, position, err);
}

lace_status gpu_plan_next(gpu_plan *gp, int32_t *word, lace_error *err)
{
    return token_player_next(gp->player, word, err);
}
