/* A plan on a GPU: memory on the card, batches on their way to it, the launches of its steps. */
#include "backend/cuda/run_gpu.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "ops/op_info.h"
#include "backend/cuda/handover.h"
#include "state/states.h"
#include "backend/cuda/token_player.h"
#include "backend/cuda/token_ring.h"

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

struct gpu_plan {
    plan *p;
    gpu *g;
    cuda_queue *queue;
    int32_t n_sequences, pages_per_sequence, n_groups;

    uint8_t *memory;  /* on the card: values, scratch, vectors, the batch */
    uint8_t *scratch; /* these are parts of it */
    uint64_t scratch_bytes;
    gpu_handover handover;
    bool is_exact; /* gpu_job */
    vector *vectors;
    int32_t n_vectors, vectors_capacity;

    /*
     * The batch: [max_tokens] tokens, positions, sequences, [max_outputs] outputs, then [max_tokens]
     * segments and what tokens see, where there are any, then the page tables of all groups. The host's copy is pinned; `sent` is what the card has of the tables.
     */
    int32_t *batch_host, *batch_device;
    int32_t *tables_host[GPU_MAX_GROUPS], *tables_device[GPU_MAX_GROUPS];

    token_player *player;              /* of single tokens; NULL: the plan ends early */
    batch_list batches[N_BATCH_LISTS]; /* the last few, the newest at last_batch */
    int32_t last_batch;
    const device_list *last_list;
    uint64_t *ns;  /* [last_list's steps] of the last traced run, or NULL */
    float *logits; /* [max_outputs, n_vocab] pinned */
    int32_t n_logits;
    bool can_sample;
    choice_rule *rules_host, *rules; /* [max_outputs] pinned, and on the card */
    int32_t *words_host, *words;     /* [max_outputs] what the card chose */
    const float *last_logits;        /* on the card, of the last run, and a row's floats */
    int64_t last_stride;
};

/* As the card likes addresses. */
static uint64_t aligned(uint64_t n)
{
    return round_up(n, 256);
}

/* ---- Vectors --------------------------------------------------------------------------------- */

/* Bytes of all vectors, those that steps share counted once for each. */
static uint64_t vector_bytes(const plan *p)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        op_vector v[OP_MAX_VECTORS];
        step s = p->steps[i];
        int count = step_vectors(&s, v);
        for (int k = 0; k < count; k++)
            bytes += aligned(4 * (uint64_t)v[k].n);
    }
    return bytes;
}

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
    return (5 * (uint64_t)p->limits.max_tokens + (uint64_t)p->limits.max_outputs + 63) / 64 * 64;
}

static uint64_t batch_numbers(const plan *p, const gpu_plan_options *o)
{
    return batch_head(p) +
           (uint64_t)o->n_groups * (uint64_t)o->n_sequences * (uint64_t)o->pages_per_sequence;
}

/* Rules and words of choices. */
static uint64_t choice_bytes(const plan *p)
{
    uint64_t n = (uint64_t)p->limits.max_outputs;
    return aligned(n * sizeof(choice_rule)) + aligned(n * sizeof(int32_t));
}

/* Without the player's, which allocates its own. */
static uint64_t own_bytes(const plan *p, const gpu_plan_options *o)
{
    return aligned(p->value_bytes) + scratch_bytes(p, o) + handover_bytes(p) + vector_bytes(p) +
           aligned(4 * batch_numbers(p, o)) + choice_bytes(p);
}

uint64_t gpu_plan_bytes(const plan *p, const gpu_plan_options *o)
{
    return own_bytes(p, o) + (p->limits.stops_at_hidden ? 0 : token_player_bytes(p, o->g));
}

static uint64_t logits_bytes(const plan *p)
{
    return (uint64_t)p->limits.max_outputs * 4 * (uint64_t)p->values[p->logits].width;
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

/* How single tokens are computed. */
static lace_status create_player(gpu_plan *gp, lace_error *err)
{
    plan *p = gp->p;
    if (p->limits.stops_at_hidden)
        return LACE_OK;
    gpu_batch tables = {.pages_per_sequence = gp->pages_per_sequence};
    for (int32_t g = 0; g < gp->n_groups; g++)
        tables.tables[g] = gp->tables_device[g];
    gp->can_sample = gpu_can_sample(gp->g, p->values[p->logits].width);
    token_player_options o = {.p = p,
                              .g = gp->g,
                              .queue = gp->queue,
                              .scratch = gp->scratch,
                              .scratch_bytes = gp->scratch_bytes,
                              .is_exact = gp->is_exact,
                              .tables = tables};
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
    lace_status status;
    uint64_t n = batch_numbers(p, o);
    TRY_GOTO(status, done, cuda_alloc(o->g->device, own_bytes(p, o), (void **)&gp->memory, err));
    TRY_GOTO(status, done,
             cuda_alloc_host(o->g->device, 4 * n, (void **)&gp->batch_host, NULL, err));
    TRY_GOTO(status, done,
             cuda_alloc_host(o->g->device, logits_bytes(p), (void **)&gp->logits, NULL, err));
    TRY_GOTO(status, done,
             cuda_alloc_host(o->g->device, choice_bytes(p), (void **)&gp->rules_host, NULL, err));
    plan_locate(p, gp->memory, o->kv_data, o->slots);
    gp->scratch = gp->memory + aligned(p->value_bytes);
    gp->handover.memory = gp->scratch + gp->scratch_bytes;
    uint8_t *at = gp->handover.memory + handover_bytes(p);
    gp->batch_device = (int32_t *)at;
    at += aligned(4 * n);
    memset(gp->batch_host, 0xFF, 4 * n); /* no table has been sent */
    for (int32_t g = 0; g < gp->n_groups; g++) {
        uint64_t table = batch_head(p) +
                         (uint64_t)g * (uint64_t)o->n_sequences * (uint64_t)o->pages_per_sequence;
        gp->tables_host[g] = gp->batch_host + table;
        gp->tables_device[g] = gp->batch_device + table;
    }
    TRY_GOTO(status, done, cuda_copy_to(o->queue, gp->batch_device, gp->batch_host, 4 * n, err));
    uint64_t rules = aligned((uint64_t)p->limits.max_outputs * sizeof(choice_rule));
    gp->words_host = (int32_t *)((uint8_t *)gp->rules_host + rules);
    gp->rules = (choice_rule *)at;
    gp->words = (int32_t *)(at + rules);
    at += choice_bytes(p);
    TRY_GOTO(status, done, move_vectors(gp, &at, err));
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
    cuda_free(gp->g->device, gp->memory);
    cuda_free_host(gp->g->device, gp->batch_host);
    cuda_free_host(gp->g->device, gp->logits);
    cuda_free_host(gp->g->device, gp->rules_host);
    mem_free(gp->vectors);
    mem_free(gp);
}

/* ---- Batches --------------------------------------------------------------------------------- */

/*
 * Bring a sequence's page numbers up to date on the card, up to its page `n`: most often nothing,
 * or one page. Entries behind that are never read.
 */
static lace_status send_table(gpu_plan *gp, int32_t group, int32_t sequence, const int32_t *pages,
                              int32_t n, lace_error *err)
{
    uint64_t at = (uint64_t)sequence * (uint64_t)gp->pages_per_sequence;
    int32_t *sent = gp->tables_host[group] + at, first = 0;
    while (first < n && sent[first] == pages[first])
        first++;
    while (n > first && sent[n - 1] == pages[n - 1])
        n--;
    if (first == n)
        return LACE_OK;
    size_t bytes = (size_t)(n - first) * sizeof *pages;
    memcpy(sent + first, pages + first, bytes);
    return cuda_copy_to(gp->queue, gp->tables_device[group] + at + first, sent + first, bytes, err);
}

static lace_status send_batch(gpu_plan *gp, const batch *b, const int32_t *sequences,
                              gpu_batch *out, lace_error *err)
{
    const plan_limits *l = &gp->p->limits;
    size_t n = (size_t)b->n_tokens * 4, max = (size_t)l->max_tokens;
    memcpy(gp->batch_host, b->tokens, n);
    memcpy(gp->batch_host + max, b->positions, n);
    memcpy(gp->batch_host + 2 * max, sequences, n);
    if (b->n_outputs > 0)
        memcpy(gp->batch_host + 3 * max, b->outputs, (size_t)b->n_outputs * 4);
    /* Behind the outputs: most batches have neither. */
    size_t segments = 3 * max + (size_t)l->max_outputs, seen = segments + max;
    size_t n_sent = 3 * max + (size_t)b->n_outputs;
    if (b->segments) {
        memcpy(gp->batch_host + segments, b->segments, n);
        n_sent = segments + (size_t)b->n_tokens;
    }
    if (b->seen) {
        memcpy(gp->batch_host + seen, b->seen, n);
        n_sent = seen + (size_t)b->n_tokens;
    }
    TRY(cuda_copy_to(gp->queue, gp->batch_device, gp->batch_host, 4 * n_sent, err));
    *out = (gpu_batch){.n_tokens = b->n_tokens,
                       .n_outputs = b->n_outputs,
                       .tokens = gp->batch_device,
                       .positions = gp->batch_device + max,
                       .sequences = gp->batch_device + 2 * max,
                       .outputs = gp->batch_device + 3 * max,
                       .segments = b->segments ? gp->batch_device + segments : NULL,
                       .seen = b->seen ? gp->batch_device + seen : NULL,
                       .pages_per_sequence = gp->pages_per_sequence,
                       .host = b,
                       .host_sequences = sequences};
    for (int32_t g = 0; g < gp->n_groups; g++) {
        out->tables[g] = gp->tables_device[g];
        /* The last token of each sequence has seen all of its pages. */
        for (int32_t t = 0; t < b->n_tokens; t++)
            if (t + 1 == b->n_tokens || sequences[t + 1] != sequences[t])
                TRY(send_table(gp, g, sequences[t], b->pages[g][t],
                               b->positions[t] / PAGE_TOKENS + 1, err));
    }
    return LACE_OK;
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
        TRY(d->launch(&j, d, err));
        if (ns) {
            TRY(cuda_wait(gp->queue, err));
            uint64_t now = clock_ns();
            ns[i] = now - before;
            before = now;
        }
    }
    return LACE_OK;
}

/* One token: as a recorded graph, or step by step. */
static lace_status launch_token(gpu_plan *gp, const batch *b, int32_t sequence, uint64_t *ns,
                                lace_error *err)
{
    for (int32_t g = 0; g < gp->n_groups; g++)
        TRY(send_table(gp, g, sequence, b->pages[g][0], b->positions[0] / PAGE_TOKENS + 1, err));
    gp->last_logits = token_player_logits(gp->player);
    return ns ? token_player_trace(gp->player, b->tokens[0], b->positions[0], sequence, ns, err)
              : token_player_token(gp->player, b->tokens[0], b->positions[0], sequence, err);
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

static lace_status copy_logits(gpu_plan *gp, int32_t row, lace_error *err)
{
    int64_t width = gp->p->values[gp->p->logits].width;
    return cuda_copy_from(gp->queue, gp->logits + row * width,
                          gp->last_logits + row * gp->last_stride, 4 * (uint64_t)width, err);
}

/* The choices of the rows that have a rule, the logits of the others. */
static lace_status choose_rows(gpu_plan *gp, int32_t n, const choice_rule *rules, lace_error *err)
{
    sample_params p = {.logits = gp->last_logits,
                       .stride = gp->last_stride,
                       .n_vocab = (int32_t)gp->p->values[gp->p->logits].width,
                       .rows = gp->rules,
                       .words = gp->words};
    memcpy(gp->rules_host, rules, (size_t)n * sizeof *rules);
    TRY(cuda_copy_to(gp->queue, gp->rules, gp->rules_host, (uint64_t)n * sizeof *rules, err));
    TRY(gpu_sample(gp->g, gp->queue, &p, n, err));
    TRY(cuda_copy_from(gp->queue, gp->words_host, gp->words, 4 * (uint64_t)n, err));
    TRY(cuda_wait(gp->queue, err));
    bool is_copied = false;
    for (int32_t i = 0; i < n; i++)
        if (gp->words_host[i] == CHOICE_REFUSED) {
            TRY(copy_logits(gp, i, err));
            is_copied = true;
        }
    return is_copied ? cuda_wait(gp->queue, err) : LACE_OK;
}

lace_status gpu_plan_run(gpu_plan *gp, const batch *b, const choice_rule *rules, bool is_traced,
                         lace_error *err)
{
    const plan_value *v = &gp->p->values[gp->p->logits];
    gp->n_logits = 0;
    gp->last_logits = (const float *)(gp->memory + v->offset);
    gp->last_stride = (int64_t)act_row_bytes(v->format, v->width) / 4;
    bool is_token = gp->player && b->n_tokens == 1;
    gpu_batch on_card;
    if (is_token) {
        gp->last_list = token_player_list(gp->player);
    } else {
        TRY(send_batch(gp, b, b->sequences, &on_card, err));
        TRY(find_list(gp, &on_card, err));
    }
    if (is_traced)
        TRY(prepare_trace(gp, err));
    uint64_t *ns = is_traced ? gp->ns : NULL;
    TRY(is_token ? launch_token(gp, b, b->sequences[0], ns, err)
                 : launch_batch(gp, &on_card, ns, err));
    gp->n_logits = b->n_outputs;
    if (rules && gp->can_sample && b->n_outputs > 0)
        return choose_rows(gp, b->n_outputs, rules, err);
    for (int32_t i = 0; i < b->n_outputs; i++)
        gp->words_host[i] = CHOICE_REFUSED;
    if (gp->last_stride == v->width && b->n_outputs > 0)
        TRY(cuda_copy_from(gp->queue, gp->logits, gp->last_logits,
                           4 * (uint64_t)b->n_outputs * (uint64_t)v->width, err));
    for (int32_t i = 0; i < b->n_outputs && gp->last_stride != v->width; i++)
        TRY(copy_logits(gp, i, err));
    return cuda_wait(gp->queue, err);
}

int32_t gpu_plan_word(const gpu_plan *gp, int32_t row)
{
    assert(row < gp->n_logits);
    return gp->words_host[row];
}

const float *gpu_plan_logits(const gpu_plan *gp, int32_t row)
{
    assert(row < gp->n_logits);
    return gp->logits + (uint64_t)row * (uint64_t)gp->p->values[gp->p->logits].width;
}

/* ---- Ahead ----------------------------------------------------------------------------------- */

bool gpu_plan_chooses(const gpu_plan *gp)
{
    return gp->can_sample && gp->player;
}

lace_status gpu_plan_begin(gpu_plan *gp, int32_t token, int32_t position, int32_t sequence,
                           const choice_rule *rule, lace_error *err)
{
    return token_player_begin(gp->player, token, position, sequence, rule, err);
}

lace_status gpu_plan_ahead(gpu_plan *gp, const int32_t *const *pages, int32_t sequence,
                           int32_t position, lace_error *err)
{
    for (int32_t g = 0; g < gp->n_groups; g++)
        TRY(send_table(gp, g, sequence, pages[g], position / PAGE_TOKENS + 1, err));
    return token_player_ahead(gp->player, position, err);
}

lace_status gpu_plan_next(gpu_plan *gp, int32_t *word, lace_error *err)
{
    return token_player_next(gp->player, word, err);
}
