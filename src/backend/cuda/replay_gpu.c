/* One token on a GPU: the steps of a plan as they are, recorded and replayed. */
#include "backend/cuda/replay_gpu.h"

#include <assert.h>

#include "base/mem.h"
#include "backend/cuda/token_ring.h"

/*
 * How the context is divided depends on its length, so there is a graph for each power of two of
 * it: the first up to 128 positions.
 */
enum { FIRST_LENGTH = 128, N_LENGTHS = 16, SINGLE = 0, AHEAD = 1, N_KINDS = 2 };

struct gpu_replay {
    gpu_token_options o;
    const float *logits;
    int32_t n_vocab;
    gpu_batch batch;
    batch host; /* what launchers see of a token that is not known yet */
    int32_t host_position, host_sequence, host_output;

    uint8_t *memory;     /* on the card, cut up into: */
    decode_state *state; /* and the batch's four numbers behind it */
    decode_best *drawn;
    choice_rule *rule;

    decode_state *state_host; /* pinned */
    choice_rule *rule_host;
    token_ring ring;
    bool is_loaded; /* every kernel has run once: nothing is loaded while recording */
    cuda_graph *graphs[N_KINDS][N_LENGTHS];
};

enum { STATE = 0, NUMBERS = 256, DRAWN = 512, RULE = 768, MEMORY = 1024 };

static lace_status prepare(gpu_replay *r, lace_error *err)
{
    cuda_device *device = r->o.g->device;
    TRY(cuda_alloc(device, MEMORY, (void **)&r->memory, err));
    TRY(cuda_fill(r->o.queue, r->memory, 0, MEMORY, err));
    TRY(cuda_alloc_host(device, sizeof *r->state_host, (void **)&r->state_host, NULL, err));
    TRY(cuda_alloc_host(device, sizeof *r->rule_host, (void **)&r->rule_host, NULL, err));
    TRY(token_ring_create(r->o.g, &r->ring, err));
    int32_t *numbers = (int32_t *)(r->memory + NUMBERS);
    r->state = (decode_state *)(r->memory + STATE);
    r->drawn = (decode_best *)(r->memory + DRAWN);
    r->rule = (choice_rule *)(r->memory + RULE);
    r->host = (batch){
        .n_tokens = 1, .n_outputs = 1, .positions = &r->host_position, .outputs = &r->host_output};
    r->batch = r->o.tables;
    r->batch.n_tokens = r->batch.n_outputs = 1;
    r->batch.tokens = numbers;
    r->batch.positions = numbers + 1;
    r->batch.sequences = numbers + 2;
    r->batch.outputs = numbers + 3; /* 0 */
    r->batch.host = &r->host;
    r->batch.host_sequences = &r->host_sequence;
    return LACE_OK;
}

lace_status gpu_replay_create(const gpu_token_options *o, gpu_replay **out, lace_error *err)
{
    *out = NULL;
    gpu_replay *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, "a recorded plan");
    r->o = *o;
    r->n_vocab = (int32_t)o->p->values[o->p->logits].width;
    for (int32_t i = 0; i < o->p->n_steps; i++)
        for (int j = 0; j < STEP_MAX_OUT; j++)
            if (o->p->steps[i].out[j].value == o->p->logits)
                r->logits = (const float *)o->p->steps[i].out[j].data;
    lace_status status = prepare(r, err);
    if (status != LACE_OK) {
        gpu_replay_free(r);
        return status;
    }
    *out = r;
    return LACE_OK;
}

void gpu_replay_free(gpu_replay *r)
{
    if (!r)
        return;
    cuda_wait(r->o.queue, NULL);
    for (int i = 0; i < N_KINDS; i++)
        for (int n = 0; n < N_LENGTHS; n++)
            cuda_graph_free(r->graphs[i][n]);
    cuda_free(r->o.g->device, r->memory);
    cuda_free_host(r->o.g->device, r->state_host);
    cuda_free_host(r->o.g->device, r->rule_host);
    token_ring_free(r->o.g, &r->ring);
    mem_free(r);
}

/* ---- Launches -------------------------------------------------------------------------------- */

static lace_status launch_begin(gpu_replay *r, bool chooses, lace_error *err)
{
    int32_t *numbers = (int32_t *)(r->memory + NUMBERS);
    replay_begin p = {.state = r->state,
                      .best = chooses ? r->drawn : NULL,
                      .token = numbers,
                      .position = numbers + 1,
                      .sequence = numbers + 2};
    cuda_launch l = {.grid = {1}, .block = {1}, .overlaps = r->o.g->has_overlap};
    TRY(gpu_prepare(r->o.g, "replay_begin_kernel", 0, &l.kernel, err));
    void *arguments[] = {&p};
    return cuda_run(r->o.queue, &l, arguments, err);
}

static lace_status launch_steps(gpu_replay *r, lace_error *err)
{
    gpu_job j = {.g = r->o.g,
                 .queue = r->o.queue,
                 .batch = &r->batch,
                 .scratch = r->o.scratch,
                 .scratch_bytes = r->o.scratch_bytes,
                 .is_exact = r->o.is_exact};
    for (int32_t i = 0; i < r->o.p->n_steps; i++) {
        const step *s = &r->o.p->steps[i];
        assert(r->o.launchers->ops[s->op]);
        TRY(r->o.launchers->ops[s->op](&j, s, err));
    }
    return LACE_OK;
}

static lace_status launch_token(gpu_replay *r, int kind, lace_error *err)
{
    if (kind == SINGLE)
        TRY(launch_begin(r, false, err));
    TRY(launch_steps(r, err));
    if (kind == SINGLE)
        return LACE_OK;
    sample_params p = {.logits = r->logits,
                       .n_vocab = r->n_vocab,
                       .rows = r->rule,
                       .state = r->state,
                       .ring = r->ring.device,
                       .best = r->drawn};
    TRY(gpu_sample(r->o.g, r->o.queue, &p, 1, err));
    return launch_begin(r, true, err);
}

static lace_status record(gpu_replay *r, int kind, cuda_graph **out, lace_error *err)
{
    *out = NULL;
    TRY(cuda_record_begin(r->o.queue, err));
    lace_status status = launch_token(r, kind, err);
    lace_status ended = cuda_record_end(r->o.queue, out, status == LACE_OK ? err : NULL);
    if (status == LACE_OK && ended == LACE_OK)
        return LACE_OK;
    cuda_graph_free(*out);
    *out = NULL;
    return status != LACE_OK ? status : ended;
}

static lace_status run(gpu_replay *r, int kind, int32_t position, lace_error *err)
{
    int length = 0;
    while (length + 1 < N_LENGTHS && position >= FIRST_LENGTH << length)
        length++;
    int32_t longest = r->o.p->limits.n_context, top = FIRST_LENGTH << length;
    r->host_position = (top < longest && length + 1 < N_LENGTHS ? top : longest) - 1;
    if (!r->is_loaded) {
        r->is_loaded = true;
        return launch_token(r, kind, err);
    }
    cuda_graph **graph = &r->graphs[kind][length];
    if (!*graph)
        TRY(record(r, kind, graph, err));
    return cuda_graph_run(r->o.queue, *graph, err);
}

/* ---- Running --------------------------------------------------------------------------------- */

static lace_status send_state(gpu_replay *r, int32_t token, int32_t position, int32_t sequence,
                              lace_error *err)
{
    *r->state_host = (decode_state){token, position, sequence, 0};
    return cuda_copy_to(r->o.queue, r->state, r->state_host, sizeof *r->state, err);
}

lace_status gpu_replay_token(gpu_replay *r, int32_t token, int32_t position, int32_t sequence,
                             lace_error *err)
{
    TRY(send_state(r, token, position, sequence, err));
    return run(r, SINGLE, position, err);
}

lace_status gpu_replay_begin(gpu_replay *r, int32_t token, int32_t position, int32_t sequence,
                             const choice_rule *rule, lace_error *err)
{
    TRY(cuda_wait(r->o.queue, err)); /* what was queued ahead and not taken is forgotten */
    token_ring_clear(&r->ring);
    *r->rule_host = rule ? *rule : (choice_rule){.temperature = 0};
    TRY(cuda_copy_to(r->o.queue, r->rule, r->rule_host, sizeof *r->rule, err));
    TRY(send_state(r, token, position, sequence, err));
    return launch_begin(r, false, err);
}

lace_status gpu_replay_ahead(gpu_replay *r, int32_t position, lace_error *err)
{
    return run(r, AHEAD, position, err);
}

lace_status gpu_replay_next(gpu_replay *r, int32_t *word, lace_error *err)
{
    return token_ring_take(&r->ring, r->o.queue, word, err);
}
