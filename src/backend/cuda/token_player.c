/* One token on a GPU: its list recorded, played, timed. */
#include "backend/cuda/token_player.h"

#include <assert.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "backend/cuda/card_link.h"
#include "backend/cuda/token_ring.h"

/*
 * There is a graph for each class of positions: by how many blocks share a head's context in fused
 * attention; and, where attention goes by the plan's steps, whose division of the context depends
 * on its length, by powers of two of it, the first up to 128 positions.
 */
enum {
    N_CLUSTERS = LOWER_MOST_CLUSTER + 1,
    N_LENGTHS = 16,
    FIRST_LENGTH = 128,
    AHEAD = 0,  /* the best token is chosen behind it */
    SINGLE = 1, /* nothing is */
    SAMPLED = 2,
    N_KINDS = 3
};

struct token_player {
    token_player_options o;
    decode_form form;
    bool has_form; /* some layers are fused */
    decode_layout layout;
    token_list list;
    gpu_batch batch; /* one token, which the state on the card names */
    batch host;      /* what launchers see of it */
    int32_t host_position, host_sequence, host_output;
    gpu_job job;

    uint8_t *memory;          /* on the card */
    decode_state *state_host; /* [PROGRAM_SLOTS] pinned, in turn: a copy may be under way */
    int32_t n_sent;
    choice_rule *rule_host;
    token_ring ring;
    bool samples;   /* what is queued ahead is drawn, not the best */
    bool is_loaded; /* the plan's own steps have run once: nothing is loaded in a record */
    cuda_graph *graphs[N_KINDS][N_CLUSTERS][N_LENGTHS];
};

/* ---- Making ---------------------------------------------------------------------------------- */

static bool match(const plan *p, const gpu *g, decode_form *f)
{
    return decode_form_match(p, g, f);
}

uint64_t token_player_bytes(const plan *p, const gpu *g)
{
    decode_form f;
    decode_layout l;
    bool is_known = match(p, g, &f);
    if (decode_layout_init(is_known ? &f : NULL, g, &l, NULL) == LACE_OK)
        decode_layout_free(&l);
    if (is_known)
        decode_form_free(&f);
    return l.n_bytes;
}

static void prepare_job(token_player *t)
{
    t->host = (batch){
        .n_tokens = 1, .n_outputs = 1, .positions = &t->host_position, .outputs = &t->host_output};
    t->batch = t->o.tables;
    t->batch.n_tokens = t->batch.n_outputs = 1;
    t->batch.tokens = &t->layout.state->token;
    t->batch.positions = &t->layout.state->position;
    t->batch.turn = &t->layout.state->turn;
    t->batch.sequences = &t->layout.state->sequence;
    t->batch.outputs = t->layout.output;
    t->batch.host = &t->host;
    t->batch.host_sequences = &t->host_sequence;
    t->job = (gpu_job){.g = t->o.g,
                       .queue = t->o.queue,
                       .batch = &t->batch,
                       .scratch = t->o.scratch,
                       .scratch_bytes = t->o.scratch_bytes,
                       .is_exact = t->o.is_exact};
}

static lace_status prepare(token_player *t, lace_error *err)
{
    gpu *g = t->o.g;
    const decode_form *f = t->has_form ? &t->form : NULL;
    TRY(decode_layout_init(f, g, &t->layout, err));
    TRY(cuda_alloc(g->device, t->layout.n_bytes, (void **)&t->memory, err));
    TRY(cuda_fill(t->o.queue, t->memory, 0, t->layout.n_bytes, err));
    decode_layout_place(&t->layout, f, g, t->memory);
    TRY(cuda_alloc_host(g->device, PROGRAM_SLOTS * sizeof *t->state_host, (void **)&t->state_host,
                        NULL, err));
    TRY(cuda_alloc_host(g->device, sizeof *t->rule_host, (void **)&t->rule_host, NULL, err));
    TRY(token_ring_create(g, &t->ring, err));
    TRY(lower_token(t->o.p, g, t->o.is_exact, &t->o.tables, f, &t->layout, t->o.border,
                    t->ring.device, &t->list, err));
    TRY(device_list_prepare(g, t->list.list.steps, t->list.list.n_steps, err));
    TRY(device_list_prepare(g, &t->list.begin_best, 1, err));
    TRY(device_list_prepare(g, &t->list.begin_drawn, 1, err));
    prepare_job(t);
    return LACE_OK;
}

lace_status token_player_create(const token_player_options *o, token_player **out, lace_error *err)
{
    *out = NULL;
    token_player *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a recorded plan");
    t->o = *o;
    t->has_form = match(o->p, o->g, &t->form);
    lace_status status = prepare(t, err);
    return GIVE_OR_FREE(status, t, out, token_player_free);
}

void token_player_free(token_player *t)
{
    if (!t)
        return;
    cuda_wait(t->o.queue, NULL);
    for (int i = 0; i < N_KINDS; i++)
        for (int c = 0; c < N_CLUSTERS; c++)
            for (int n = 0; n < N_LENGTHS; n++)
                cuda_graph_free(t->graphs[i][c][n]);
    token_list_free(&t->list);
    decode_layout_free(&t->layout);
    cuda_free(t->o.g->device, t->memory);
    cuda_free_host(t->o.g->device, t->state_host);
    cuda_free_host(t->o.g->device, t->rule_host);
    token_ring_free(t->o.g, &t->ring);
    decode_form_free(&t->form);
    mem_free(t);
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Choose the token behind this one, and begin it. */
static lace_status launch_choice(token_player *t, bool samples, lace_error *err)
{
    if (!samples)
        return t->list.begin_best.launch(&t->job, &t->list.begin_best, err);
    sample_params p = {.logits = t->list.logits,
                       .n_vocab = t->list.n_vocab,
                       .rows = t->layout.rule,
                       .state = t->layout.state,
                       .ring = t->ring.device,
                       .best = t->layout.drawn};
    TRY(gpu_sample(t->o.g, t->o.queue, &p, 1, err));
    return t->list.begin_drawn.launch(&t->job, &t->list.begin_drawn, err);
}

static lace_status launch_token(token_player *t, int kind, lace_error *err)
{
    const device_list *l = &t->list.list;
    for (int32_t i = kind == SINGLE ? 0 : 1; i < l->n_steps; i++)
        TRY(l->steps[i].launch(&t->job, &l->steps[i], err));
    return kind == SINGLE ? LACE_OK : launch_choice(t, kind == SAMPLED, err);
}

static lace_status record(token_player *t, int kind, cuda_graph **out, lace_error *err)
{
    *out = NULL;
    TRY(cuda_record_begin(t->o.queue, err));
    lace_status status = launch_token(t, kind, err);
    lace_status ended = cuda_record_end(t->o.queue, out, status == LACE_OK ? err : NULL);
    if (status == LACE_OK && ended == LACE_OK)
        return LACE_OK;
    cuda_graph_free(*out);
    *out = NULL;
    return status != LACE_OK ? status : ended;
}

/* What is launched from now on is for this position, and others of its class. */
static cuda_graph **choose_graph(token_player *t, int kind, int32_t position)
{
    int length = 0;
    t->job.cluster = t->list.most_cluster > 0 ? token_list_cluster(&t->list, position) : 0;
    if (t->list.attends_plain) {
        while (length + 1 < N_LENGTHS && position >= FIRST_LENGTH << length)
            length++;
        int32_t longest = t->o.p->limits.n_context, top = FIRST_LENGTH << length;
        t->host_position = (top < longest && length + 1 < N_LENGTHS ? top : longest) - 1;
    }
    return &t->graphs[kind][t->job.cluster][length];
}

/* The graph for a position: recorded when it is wanted first. */
static lace_status run(token_player *t, int kind, int32_t position, lace_error *err)
{
    cuda_graph **graph = choose_graph(t, kind, position);
    bool records = card_link_records(t->o.g->link) != LINK_RECORDS_NEVER;
    if (!records || (t->list.has_plain && !t->is_loaded)) {
        t->is_loaded = true;
        return launch_token(t, kind, err);
    }
    if (!*graph)
        TRY(record(t, kind, graph, err));
    return cuda_graph_run(t->o.queue, *graph, err);
}

lace_status token_player_warm_up(token_player *t, bool samples, lace_error *err)
{
    enum { STEP = 16 }; /* positions of one class stand together, and are more than these */
    const bool is_used[N_KINDS] = {
        [AHEAD] = samples && t->list.has_best, [SINGLE] = true, [SAMPLED] = samples};
    if (card_link_records(t->o.g->link) != LINK_RECORDS)
        return LACE_OK;
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int32_t at = 0; at < t->o.p->limits.n_context && is_used[kind]; at += STEP) {
            cuda_graph **graph = choose_graph(t, kind, at);
            if (*graph)
                continue;
            TRY(record(t, kind, graph, err));
            TRY(cuda_graph_upload(t->o.queue, *graph, err));
        }
    return cuda_wait(t->o.queue, err);
}

static lace_status send_state(token_player *t, int32_t token, int32_t position, int32_t turn,
                              int32_t sequence, lace_error *err)
{
    decode_state *s = &t->state_host[t->n_sent++ % PROGRAM_SLOTS];
    *s = (decode_state){token, position, sequence, 0, turn};
    return cuda_copy_to(t->o.queue, t->layout.state, s, sizeof *s, err);
}

/* ---- Running --------------------------------------------------------------------------------- */

lace_status token_player_token(token_player *t, int32_t token, int32_t position, int32_t turn,
                               int32_t sequence, const int32_t *last_tokens, lace_error *err)
{
    TRY(send_state(t, token, position, turn, sequence, err));
    fill_tokens_params p = {.tokens = &t->layout.state->token,
                            .sequences = t->batch.sequences,
                            .last_tokens = last_tokens,
                            .n = 1,
                            .chosen_id = TOKEN_CHOSEN};
    if (token == TOKEN_CHOSEN)
        TRY(gpu_fill_tokens(t->o.g, t->o.queue, &p, err));
    return run(t, SINGLE, position, err);
}

lace_status token_player_part(token_player *t, int32_t position, lace_error *err)
{
    return run(t, SINGLE, position, err);
}

const gpu_batch *token_player_batch(const token_player *t)
{
    return &t->batch;
}

const float *token_player_logits(const token_player *t)
{
    return t->list.logits;
}

lace_status token_player_trace(token_player *t, int32_t token, int32_t position, int32_t turn,
                               int32_t sequence, uint64_t *ns, lace_error *err)
{
    TRY(send_state(t, token, position, turn, sequence, err));
    choose_graph(t, SINGLE, position);
    TRY(cuda_wait(t->o.queue, err));
    uint64_t before = clock_ns();
    for (int32_t i = 0; i < t->list.list.n_steps; i++) {
        const device_step *d = &t->list.list.steps[i];
        TRY(d->launch(&t->job, d, err));
        TRY(cuda_wait(t->o.queue, err));
        uint64_t now = clock_ns();
        ns[i] = now - before;
        before = now;
    }
    return LACE_OK;
}

const device_list *token_player_list(const token_player *t)
{
    return &t->list.list;
}

lace_status token_player_begin(token_player *t, const ahead_start *start, const choice_rule *rule,
                               lace_error *err)
{
    TRY(cuda_wait(t->o.queue,
                  err)); /* what was queued ahead and not taken is done, and forgotten */
    t->samples = rule || !t->list.has_best;
    token_ring_clear(&t->ring);
    if (t->samples) {
        *t->rule_host = rule ? *rule : (choice_rule){.temperature = 0};
        TRY(cuda_copy_to(t->o.queue, t->layout.rule, t->rule_host, sizeof *t->rule_host, err));
    }
    TRY(send_state(t, start->token, start->position, start->turn, start->sequence, err));
    const device_step *begin = &t->list.list.steps[0];
    return begin->launch(&t->job, begin, err);
}

lace_status token_player_ahead(token_player *t, int32_t position, lace_error *err)
{
    return run(t, t->samples ? SAMPLED : AHEAD, position, err);
}

lace_status token_player_next(token_player *t, int32_t *word, lace_error *err)
{
    return token_ring_take(&t->ring, t->o.queue, word, err);
}
