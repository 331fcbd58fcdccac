/*
 * Attention of prompts to keys and values that are made of latents on the way (latents_cpu.h): a part
 * of attend_tmpl.c.
 *
 * Values of a head are products of its matrix with latents, by the kernel that the matrix has. Keys
 * are products with the other axis of theirs, for which no type has a kernel: the matrix is decoded
 * once for a head (it is multiplied with the identity), and keys are made in fixed point, or in
 * floats, as scores are.
 */
#ifndef LACE_BACKEND_CPU_ATTEND_EXPANDED_H
#define LACE_BACKEND_CPU_ATTEND_EXPANDED_H

_Static_assert(sizeof(query) <= LATENT_QUERY_BYTES, "queries have room");

/* What a worker has for one head of one run. */
typedef struct expanded {
    const step *s;
    const batch *b;
    const latent_form *f;
    step with; /* the step with the keys and values of the head as its cache */
    latent_room room;
    tiles t;
    bool is_in_words;
    int64_t token;
    int n_rows; /* tokens of the run, from `token` on */
} expanded;

/* n values from number i on of a row of the cache, all multiples of VW. */
static void floats_of_row(dtype type, const uint8_t *row, int32_t i, int32_t n, float *out)
{
#define FLOATS(type)                                                                               \
    case type:                                                                                     \
        for (int32_t k = 0; k < n; k += VW)                                                        \
            v_store(out + k, load_kv(type, row, i + k));                                           \
        break;
    switch (type) {
        FLOATS(DTYPE_F32)
        FLOATS(DTYPE_F16)
        FLOATS(DTYPE_Q5_0)
        FLOATS(DTYPE_IQ4_NL)
    default:
        FLOATS(DTYPE_Q8_0)
    }
#undef FLOATS
}

/* ---- Keys and values ------------------------------------------------------------------------- */

#if LEVEL_HAS_WORDS
static void words_of_matrix(const expanded *e)
{
    const int32_t rank = e->f->rank, pair = 2 * rank / 32 * WORDS_GROUP_BYTES;
    uint8_t *to = e->room.k_words;
    for (int32_t d = 0; d < e->f->nope; d += 2 * VW, to += pair) {
        block rows;
        for (int i = 0; i < 2 * VW; i++)
            rows.k[i] = (const uint8_t *)(e->room.k_matrix + (int64_t)(d + i) * rank);
        words_from_keys(DTYPE_F32, &rows, 0, rank, to);
    }
}

static void make_keys_in_words(const expanded *e, int n)
{
    const int32_t rank = e->f->rank, dim = e->f->nope + e->f->turned;
    const uint64_t x_row = words_row_bytes(rank), panel = (uint64_t)rank / 32 * WORDS_GROUP_BYTES;
    float y[GEMM_TOKENS][GEMM_ROWS] __attribute__((aligned(64)));
    for (int p = 0; p < n; p++)
        words_from_floats(e->room.latents + (int64_t)p * rank, rank,
                          e->room.x_words + (uint64_t)p * x_row);
    memset(e->room.x_words + (uint64_t)n * x_row, 0, (GEMM_TOKENS - 1) * x_row);
    for (int32_t d = 0; d < e->f->nope; d += GEMM_ROWS)
        for (int p = 0; p < n; p += GEMM_TOKENS) {
            const uint8_t *x = e->room.x_words + (uint64_t)p * x_row;
            gemm_args a = {.x = x,
                           .x_stride = x_row,
                           .exponents = x + 2 * rank,
                           .extra = x,
                           .stride = x_row,
                           .n_groups = rank / 32,
                           .out = &y[0][0]};
            a.w[0] = e->room.k_words + (uint64_t)d / VW * panel;
            a.w[1] = a.w[0] + panel;
            gemm_words_avx512vnni(&a);
            for (int i = 0; i < GEMM_TOKENS && p + i < n; i++)
                memcpy(e->room.keys + (int64_t)(p + i) * dim + d, y[i], sizeof y[i]);
        }
}
#else
static void words_of_matrix(const expanded *e)
{
}
static void make_keys_in_words(const expanded *e, int n)
{
}
#endif

static void make_keys_in_floats(const expanded *e, int n)
{
    const int32_t rank = e->f->rank, nope = e->f->nope, dim = nope + e->f->turned;
    const float *a[LATENT_CHUNK];
    float *c[LATENT_CHUNK];
    for (int p = 0; p < n; p++) {
        a[p] = e->room.latents + (int64_t)p * rank;
        c[p] = e->room.keys + (int64_t)p * dim;
    }
    gemm(n, a, e->room.k_turned, nope, rank, c, NULL, nope);
}

/* The matrix of a head's keys, decoded: a product with each column. */
static void decode_matrix(const expanded *e, int32_t head)
{
    const int32_t rank = e->f->rank, nope = e->f->nope;
    heads_product(&e->s->a.attend.k_heads[head], e->s->a.attend.k_form, e->room.identity, nope,
                  e->room.k_matrix, e->room.product);
    if (e->is_in_words) {
        words_of_matrix(e);
        return;
    }
    for (int32_t d = 0; d < nope; d++)
        for (int32_t r = 0; r < rank; r++)
            e->room.k_turned[(int64_t)r * nope + d] = e->room.k_matrix[(int64_t)d * rank + r];
}

/* Of n positions from `first` on, for one head. */
static void make_chunk(const expanded *e, int32_t head, int32_t first, int n)
{
    const kv_layer *kv = &e->s->kv;
    const int32_t rank = e->f->rank, nope = e->f->nope, dim = nope + e->f->turned;
    const int32_t *pages = e->b->pages[kv->group][e->token];
    for (int p = 0; p < n; p += ATTEND_BLOCK) {
        block rows;
        find_rows(kv, pages, 0, first + p, first + n, &rows);
        for (int i = 0; i < rows.n; i++) {
            floats_of_row(kv->type, rows.k[i], 0, rank, e->room.latents + (int64_t)(p + i) * rank);
            floats_of_row(kv->type, rows.k[i], rank, e->f->turned,
                          e->room.keys + (int64_t)(p + i) * dim + nope);
        }
    }
    heads_product(&e->s->a.attend.v_heads[head], e->s->a.attend.v_form, e->room.latents, n,
                  e->room.values, e->room.product);
    if (e->is_in_words)
        make_keys_in_words(e, n);
    else
        make_keys_in_floats(e, n);
}

/* ---- Attention ------------------------------------------------------------------------------- */

static void attend_to_chunk(const expanded *e, query *q, int32_t first, int n)
{
    const int32_t dim = e->f->nope + e->f->turned, value = e->f->value;
    for (int p = 0; p < n; p += ATTEND_BLOCK) {
        block now = {.first = first + p, .n = n - p < ATTEND_BLOCK ? n - p : ATTEND_BLOCK};
        now.next = &now;
        for (int i = 0; i < ATTEND_BLOCK; i++) {
            int64_t at = p + (i < now.n ? i : now.n - 1);
            now.k[i] = (const uint8_t *)(e->room.keys + at * dim);
            now.v[i] = (const uint8_t *)(e->room.values + at * value);
        }
        int r = 0; /* rows before do not see this block */
        while (r < e->n_rows && q[r].last < now.first)
            r++;
        if (e->is_in_words) {
            r -= r % 6; /* as words lie */
            tiles t = e->t;
            t.q += (uint64_t)r * queries_row_bytes(dim);
            attend_words(&e->with, q + r, e->n_rows - r, &now, &t);
            continue;
        }
        for (; r < e->n_rows; r += ATTEND_ROWS)
            attend_block(&e->with, q + r, e->n_rows - r < ATTEND_ROWS ? e->n_rows - r : ATTEND_ROWS,
                         &now, &e->t);
    }
}

static void attend_head(expanded *e, int32_t head)
{
    const latent_form *f = e->f;
    const int32_t dim = f->nope + f->turned, end = e->b->positions[e->token] + e->n_rows;
    query *q = (query *)e->room.queries;
    for (int r = 0; r < e->n_rows; r++) {
        q[r] = (query){.q = operand_row(&e->s->in[1], e->token + r) + (int64_t)head * dim,
                       .out = operand_row(&e->s->out[1], e->token + r) + (int64_t)head * f->value,
                       .last = e->b->positions[e->token] + r,
                       .most = -FLT_MAX};
        memset(q[r].out, 0, (size_t)f->value * sizeof(float));
    }
    if (e->is_in_words)
        words_from_queries(q, e->n_rows, dim, e->t.q);
    decode_matrix(e, head);
    for (int32_t first = 0; first < end; first += LATENT_CHUNK) {
        int n = end - first < LATENT_CHUNK ? end - first : LATENT_CHUNK;
        make_chunk(e, head, first, n);
        attend_to_chunk(e, q, first, n);
    }
    finish_queries(&e->with.kv, q, e->n_rows);
}

/* Heads of all runs of a batch. */
static void attend_expanded(const step *s, const batch *b, const worker *w)
{
    const latent_form *f = &s->a.attend.latents;
    const int32_t dim = f->nope + f->turned, most = dim > f->value ? dim : f->value;
    expanded e = {.s = s, .b = b, .f = f, .with = *s};
    e.room = latent_room_at(s, b->n_tokens, w->scratch);
    e.is_in_words = words_suit(&s->kv);
    e.with.kv = (kv_layer){.type = DTYPE_F32,
                           .v_type = DTYPE_F32,
                           .n_heads = f->n_heads,
                           .head_dim = dim,
                           .v_dim = f->value};
    e.t.scores = (float *)e.room.attend;
    e.t.k = e.t.scores + ATTEND_ROWS * ATTEND_BLOCK;
    e.t.v = e.t.k + most * ATTEND_BLOCK;
    e.t.q = (uint8_t *)(e.t.v + most * ATTEND_BLOCK);
    memset(e.room.identity, 0, sizeof(float) * (size_t)f->nope * (size_t)f->nope);
    for (int32_t d = 0; d < f->nope; d++)
        e.room.identity[(int64_t)d * f->nope + d] = 1;
    for (e.token = 0; e.token < b->n_tokens; e.token += e.n_rows) {
        e.n_rows = 1;
        while (e.token + e.n_rows < b->n_tokens &&
               b->pages[f->group][e.token + e.n_rows] == b->pages[f->group][e.token] &&
               b->positions[e.token + e.n_rows] == b->positions[e.token] + e.n_rows)
            e.n_rows++;
        for (int32_t head = w->index; head < f->n_heads; head += w->count)
            attend_head(&e, head);
    }
}

#endif
