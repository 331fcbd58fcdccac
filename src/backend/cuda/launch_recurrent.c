/*
 * Launches of operations with recurrent state.
 *
 * The tokens of a sequence that has few of them in a batch are taken one after the other. Of a
 * sequence with many, chunks of tokens that lie together are taken at once (chunk_params.h), up to
 * CHUNK_MOST of them in a round.
 */
#include "backend/cuda/launch_recurrent.h"

#include <string.h>

#include "base/numbers.h"
#include "backend/cuda/chunk_params.h"
#include "backend/cuda/gpu_params.h"

enum { CONV_THREADS = 128, CONV_TOKENS = 8, TOKEN_THREADS = 256, TOKEN_COLUMNS = 32 };

/* Sequences with so many tokens in a batch have them taken in chunks: those of more slots are taken
 * one by one. */
enum { CHUNK_LEAST = 16, MOST_SLOTS = 1024 };

/* Slots up to the last one that the batch uses. Of a single token the card knows which it is. */
static uint32_t n_slots(const gpu_job *j)
{
    int32_t last = 0;
    for (int32_t t = 0; t < j->batch->n_tokens && j->batch->n_tokens > 1; t++)
        last = j->batch->host_sequences[t] > last ? j->batch->host_sequences[t] : last;
    return (uint32_t)last + 1;
}

/* Where slot 0 has the layer's state. */
static uint8_t *slots_of(const step *s)
{
    return s->recurrent.data + s->recurrent.offset;
}

/* ---- Convolutions ---------------------------------------------------------------------------- */

lace_status gpu_launch_conv(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_conv p = {.x = data(&s->in[0]),
                  .y = data(&s->out[0]),
                  .x_stride = floats(&s->in[0]),
                  .y_stride = floats(&s->out[0]),
                  .weight = s->a.conv.weight,
                  .bias = s->a.conv.bias,
                  .state = slots_of(s),
                  .slot_bytes = s->recurrent.slot_bytes,
                  .sequences = j->batch->sequences,
                  .n_tokens = j->batch->n_tokens,
                  .width = (int32_t)s->out[0].width,
                  .n_taps = s->a.conv.n_taps,
                  .is_silu = s->a.conv.is_silu};
    uint32_t n_blocks = (uint32_t)((p.width + CONV_THREADS - 1) / CONV_THREADS);
    uint32_t tokens[3] = {n_blocks, (uint32_t)divide_up(p.n_tokens, CONV_TOKENS), 1},
             kept[3] = {n_blocks, n_slots(j), 1};
    if (p.n_tokens == 0)
        return LACE_OK;
    TRY(gpu_start(j, "conv_channels", tokens, CONV_THREADS, 0, &p, err));
    return p.n_tokens == 1 ? LACE_OK : gpu_start(j, "conv_keep", kept, CONV_THREADS, 0, &p, err);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* Which kernels an operation has for chunks, and what they work on. */
typedef struct chunk_kind {
    const char *make, *run;
    int32_t n_heads, n_rows, n_cols; /* of the state */
    int32_t padded;                  /* rows that the kernels work on */
    bool is_delta;
} chunk_kind;

/* False: the state is too large for them. */
static bool kind_of(const step *s, chunk_kind *out)
{
    if (s->op == OP_DELTA) {
        *out = (chunk_kind){.make = "delta_make_chunks",
                            .run = "delta_run_chunks",
                            .n_heads = s->a.delta.n_heads,
                            .n_rows = s->a.delta.k_dim,
                            .n_cols = s->a.delta.v_dim,
                            .padded = CHUNK_DELTA_ROWS,
                            .is_delta = true};
        return out->n_rows <= CHUNK_DELTA_ROWS && out->n_cols <= CHUNK_THREADS - CHUNK_DELTA_ROWS;
    }
    bool is_small = s->a.scan.n_state <= 128;
    *out = (chunk_kind){.make = is_small ? "scan_make_chunks_128" : "scan_make_chunks_256",
                        .run = is_small ? "scan_run_chunks_128" : "scan_run_chunks_256",
                        .n_heads = s->a.scan.n_heads,
                        .n_rows = s->a.scan.n_state,
                        .n_cols = s->a.scan.head_dim,
                        .padded = is_small ? 128 : 256};
    return out->n_rows <= 256;
}

static int64_t news_stride(const chunk_kind *k)
{
    return (int64_t)round_up((uint64_t)k->n_cols, CHUNK_COLUMNS);
}

/* Floats of what tokens multiply the state with, and of a whole chunk (chunk_params.h). */
static int64_t rows_floats(const chunk_kind *k)
{
    return (int64_t)k->padded * CHUNK_TOKENS * (k->is_delta ? 2 : 1);
}

static int64_t chunk_floats(const chunk_kind *k)
{
    return rows_floats(k) + CHUNK_TOKENS * ((int64_t)k->padded + CHUNK_TOKENS + news_stride(k)) + 4;
}

/* Shared memory of the kernel that makes chunks: keys and queries. */
static uint32_t make_bytes(const chunk_kind *k)
{
    return (uint32_t)(4 * k->padded * (2 * CHUNK_TOKENS + 4));
}

/* Of the one with the state: all of a chunk but left, and 32 columns of news and of the state. */
static uint32_t run_bytes(const chunk_kind *k)
{
    return (uint32_t)(4 * (rows_floats(k) + CHUNK_TOKENS * (k->padded + CHUNK_TOKENS) +
                           CHUNK_COLUMNS * (CHUNK_TOKENS + k->padded)));
}

/* Whether the card has room for a chunk. Some of it is not the caller's to ask for. */
static bool has_room(const gpu *g, const chunk_kind *k)
{
    enum { FIXED = 20 * 1024 };
    uint32_t make = make_bytes(k) + FIXED, run = run_bytes(k);
    return (make > run ? make : run) <= (uint32_t)g->info.max_shared_bytes;
}

uint64_t gpu_chunks_scratch_bytes(const gpu *g, const step *s, int64_t n_rows)
{
    chunk_kind k;
    if (n_rows < CHUNK_LEAST || !kind_of(s, &k) || !has_room(g, &k))
        return 0;
    int64_t n = min_i64(divide_up(n_rows, CHUNK_TOKENS) + 1, CHUNK_MOST);
    return 4 * (uint64_t)n * (uint64_t)k.n_heads * (uint64_t)chunk_floats(&k);
}

/* Chunks that are collected until a round is full. */
typedef struct chunk_round {
    const gpu_job *j;
    const chunk_kind *kind;
    gpu_chunks *c; /* within `params` */
    const void *params;
    int32_t most;
} chunk_round;

static lace_status run_round(const chunk_round *r, lace_error *err)
{
    gpu_chunks *c = r->c;
    if (c->n_chunks == 0)
        return LACE_OK;
    uint32_t make[3] = {(uint32_t)c->n_chunks, (uint32_t)c->n_heads, 1};
    uint32_t run[3] = {(uint32_t)c->n_heads, (uint32_t)(c->news_stride / CHUNK_COLUMNS),
                       (uint32_t)c->n_slots};
    c->first[c->n_slots] = c->n_chunks;
    TRY(gpu_start(r->j, r->kind->make, make, CHUNK_THREADS, make_bytes(r->kind), r->params, err));
    TRY(gpu_start(r->j, r->kind->run, run, CHUNK_THREADS, run_bytes(r->kind), r->params, err));
    c->n_chunks = c->n_slots = 0;
    return LACE_OK;
}

static lace_status add_chunk(const chunk_round *r, gpu_chunk one, lace_error *err)
{
    gpu_chunks *c = r->c;
    if (c->n_chunks == r->most)
        TRY(run_round(r, err));
    if (c->n_chunks == 0 || c->chunks[c->n_chunks - 1].slot != one.slot)
        c->first[c->n_slots++] = c->n_chunks;
    c->chunks[c->n_chunks++] = one;
    return LACE_OK;
}

/* How many tokens each slot has in the batch, and the first of them. */
typedef struct slot_tokens {
    int32_t count[MOST_SLOTS], first[MOST_SLOTS];
} slot_tokens;

static void count_tokens(const gpu_batch *b, slot_tokens *out)
{
    memset(out->count, 0, sizeof out->count);
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (out->count[b->host_sequences[t]]++ == 0)
            out->first[b->host_sequences[t]] = t;
}

/* All tokens of one slot. */
static lace_status add_slot(const chunk_round *r, int32_t slot, const slot_tokens *of,
                            lace_error *err)
{
    const int32_t *slots = r->j->batch->host_sequences;
    for (int32_t t = of->first[slot], left = of->count[slot], n; left > 0; t += n) {
        for (n = 1; slots[t] == slot && n < left && n < CHUNK_TOKENS && slots[t + n] == slot; n++)
            ;
        if (slots[t] != slot)
            continue;
        TRY(add_chunk(r, (gpu_chunk){.token0 = t, .n_tokens = n, .slot = slot}, err));
        left -= n;
    }
    return LACE_OK;
}

/*
 * Takes the tokens of slots that have many of them. *few: slots with as many are done; 0: none is.
 * params: of the kernels, whose chunks are `c`. *has_others: some slots are not done.
 */
static lace_status run_chunks(const gpu_job *j, const step *s, const void *params, gpu_chunks *c,
                              int32_t *few, bool *has_others, lace_error *err)
{
    chunk_kind k;
    uint32_t slots = n_slots(j);
    *few = 0;
    *has_others = true;
    if (j->batch->n_tokens < CHUNK_LEAST || slots > MOST_SLOTS || !kind_of(s, &k) ||
        !has_room(j->g, &k))
        return LACE_OK;
    *c = (gpu_chunks){.memory = (float *)j->scratch,
                      .floats = chunk_floats(&k),
                      .n_heads = k.n_heads,
                      .n_rows = k.n_rows,
                      .n_cols = k.n_cols,
                      .news_stride = (int32_t)news_stride(&k)};
    uint64_t each = 4 * (uint64_t)k.n_heads * (uint64_t)c->floats;
    chunk_round round = {.j = j,
                         .kind = &k,
                         .c = c,
                         .params = params,
                         .most = (int32_t)min_i64((int64_t)(j->scratch_bytes / each), CHUNK_MOST)};
    if (round.most == 0)
        return LACE_OK;
    slot_tokens of;
    count_tokens(j->batch, &of);
    *few = CHUNK_LEAST;
    *has_others = false;
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (of.count[slot] >= CHUNK_LEAST)
            TRY(add_slot(&round, (int32_t)slot, &of, err));
        else
            *has_others |= of.count[slot] > 0;
    }
    return run_round(&round, err);
}

/* ---- State spaces and the delta rule --------------------------------------------------------- */

/* A block for each head, 32 of its columns and each slot, whose state is in shared memory
 * meanwhile. */
lace_status gpu_launch_scan(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_scan p = {.x = data(&s->in[0]),
                  .b = data(&s->in[1]),
                  .c = data(&s->in[2]),
                  .dt = data(&s->in[3]),
                  .out = data(&s->out[0]),
                  .x_stride = floats(&s->in[0]),
                  .b_stride = floats(&s->in[1]),
                  .c_stride = floats(&s->in[2]),
                  .dt_stride = floats(&s->in[3]),
                  .out_stride = floats(&s->out[0]),
                  .a = s->a.scan.a,
                  .d = s->a.scan.d,
                  .dt_bias = s->a.scan.dt_bias,
                  .dt_min = s->a.scan.dt_min,
                  .dt_max = s->a.scan.dt_max,
                  .state = (float *)(s->recurrent.data + s->recurrent.offset),
                  .slot_floats = (int64_t)(s->recurrent.slot_bytes / 4),
                  .sequences = j->batch->sequences,
                  .n_tokens = j->batch->n_tokens,
                  .head_dim = s->a.scan.head_dim,
                  .n_state = s->a.scan.n_state,
                  .group_heads = s->a.scan.n_heads / s->a.scan.n_groups};
    bool has_others;
    gpu_scan_chunks chunks = {.a = p};
    if (p.n_tokens == 0)
        return LACE_OK;
    TRY(run_chunks(j, s, &chunks, &chunks.c, &p.few, &has_others, err));
    uint32_t n_parts = (uint32_t)divide_up(p.head_dim, TOKEN_COLUMNS);
    uint32_t grid[3] = {(uint32_t)s->a.scan.n_heads, n_parts, n_slots(j)};
    uint32_t shared = 4 * TOKEN_COLUMNS * (uint32_t)p.n_state;
    return has_others ? gpu_start(j, "scan_heads", grid, TOKEN_THREADS, shared, &p, err) : LACE_OK;
}

lace_status gpu_launch_delta(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_delta p = {.qkv = data(&s->in[0]),
                   .a = data(&s->in[1]),
                   .b = data(&s->in[2]),
                   .out = data(&s->out[0]),
                   .qkv_stride = floats(&s->in[0]),
                   .a_stride = floats(&s->in[1]),
                   .b_stride = floats(&s->in[2]),
                   .out_stride = floats(&s->out[0]),
                   .rate = s->a.delta.rate,
                   .bias = s->a.delta.bias,
                   .state = slots_of(s),
                   .slot_bytes = s->recurrent.slot_bytes,
                   .sequences = j->batch->sequences,
                   .n_tokens = j->batch->n_tokens,
                   .n_heads = s->a.delta.n_heads,
                   .n_key_heads = s->a.delta.n_key_heads,
                   .k_dim = s->a.delta.k_dim,
                   .v_dim = s->a.delta.v_dim,
                   .is_tiled = s->a.delta.is_tiled,
                   .eps = DELTA_EPS};
    bool has_others;
    gpu_delta_chunks chunks = {.a = p};
    if (p.n_tokens == 0)
        return LACE_OK;
    TRY(run_chunks(j, s, &chunks, &chunks.c, &p.few, &has_others, err));
    uint32_t grid[3] = {(uint32_t)p.n_heads, (uint32_t)divide_up(p.v_dim, TOKEN_COLUMNS),
                        n_slots(j)};
    const char *name = p.k_dim <= 128   ? "delta_columns_16"
                       : p.k_dim <= 256 ? "delta_columns_32"
                                        : "delta_columns_128";
    return has_others ? gpu_start(j, name, grid, TOKEN_THREADS, 0, &p, err) : LACE_OK;
}
