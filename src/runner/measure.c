/* Devices timed with a model's own matrices. */
#include "runner/measure.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "runner/measure_time.h"
#include "tensor/sparse.h"

/* As many bytes as take long enough, and as many steps as tell what one takes by itself. */
enum { MOST_MATRICES = 16, MANY_ROWS = 256, STREAM_ROWS = 64, MOST_BYTES = 256 << 20 };
enum { RUNS = 5, MANY_STEPS = 64 };

/* Matrices of one type on a device, and a program that multiplies with each of them. */
typedef struct bench_set {
    device *d;
    queue *q;
    program *program;
    weight table, matrices[MOST_MATRICES];
    const model_matrix *sources[MOST_MATRICES];
    weight_rows rows[MOST_MATRICES]; /* of experts, all that lie in one tensor */
    int n;
    float *zeros; /* the row that is multiplied with */
    uint64_t bytes, products;
    bool is_streamed; /* the matrices stay in the file, and are brought to the device by each run */
} bench_set;

/* Of a mixture, all experts as one matrix: a single one would come from a cache. */
static weight_rows whole_rows(const model_matrix *matrix)
{
    const tensor *t = matrix->source;
    weight_rows rows = matrix->rows;
    if (t->shape.n_dims != 3 || dtype_is_sparse(rows.type))
        return rows;
    rows.blocks = t->data;
    rows.n_rows = (int64_t)t->n_values / rows.n_cols;
    rows.n_bytes = t->n_bytes;
    return rows;
}

static void choose_matrices(const model *m, dtype type, bench_set *s)
{
    for (int32_t i = 0; i < m->n_matrices && s->n < MOST_MATRICES; i++) {
        const model_matrix *matrix = &m->matrices[i];
        weight_rows rows = whole_rows(matrix);
        bool is_first = i == 0 || m->matrices[i - 1].source != matrix->source;
        bool is_fit = rows.type == type && !rows.is_table && is_first &&
                      (s->n == 0 || rows.n_cols == s->rows[0].n_cols) &&
                      (s->n == 0 || s->bytes + rows.n_bytes <= MOST_BYTES);
        if (!is_fit)
            continue;
        s->bytes += rows.n_bytes;
        s->products += (uint64_t)(rows.n_rows * rows.n_cols);
        s->rows[s->n] = rows;
        s->sources[s->n++] = matrix;
    }
}

static lace_status load_set(const model *m, bench_set *s, pool *workers, lace_error *err)
{
    int64_t n_cols = s->rows[0].n_cols;
    s->zeros = mem_calloc((size_t)n_cols, sizeof *s->zeros);
    if (!s->zeros)
        return error_nomem(err, "a measurement");
    weight_rows table = {.type = DTYPE_F32,
                         .kept = DTYPE_F32,
                         .blocks = (const uint8_t *)s->zeros,
                         .n_rows = 1,
                         .n_cols = n_cols,
                         .n_bytes = 4 * (uint64_t)n_cols,
                         .is_table = true};
    weight_rows *rows = s->rows;
    TRY(device_place(s->d, &table, &s->table, err));
    for (int i = 0; i < s->n; i++) {
        rows[i].kept = device_kept_as(s->d, rows[i].type, rows[i].blocks, rows[i].n_rows, n_cols);
        TRY(s->is_streamed ? s->d->backend->place_streamed(s->d, &rows[i], &s->matrices[i], err)
                           : device_place(s->d, &rows[i], &s->matrices[i], err));
    }
    TRY(device_begin_load(s->d, err));
    lace_status status = device_load(s->d, &table, &s->table, workers, err);
    for (int i = 0; i < s->n && status == LACE_OK; i++) {
        status = weights_prepare(m->files, s->sources[i]->source, err);
        if (status == LACE_OK && !s->is_streamed)
            status = device_load(s->d, &rows[i], &s->matrices[i], workers, err);
    }
    lace_status ended = device_end_load(s->d, status == LACE_OK ? err : NULL);
    return status == LACE_OK ? ended : status;
}

static lace_status make_program(bench_set *s, pool *workers, lace_error *err)
{
    plan_limits limits = {.max_tokens = MANY_ROWS,
                          .max_outputs = 1,
                          .n_context = MANY_ROWS,
                          .n_workers = pool_size(workers)};
    program_options options = {.n_sequences = 1, .pages_per_sequence = 1};
    plan *p;
    TRY(plan_create(&limits, &p, err));
    value x = plan_embed(p, &s->table, 1), y = -1;
    for (int i = 0; i < s->n; i++)
        y = plan_linear(p, x, &s->matrices[i], NULL, 1);
    if (p->status == LACE_OK)
        plan_result(p, plan_gather(p, y));
    lace_status status = plan_check(p, err);
    if (status == LACE_OK)
        status = device_compile(s->d, p, &options, &s->program, err);
    plan_free(p);
    TRY(status);
    TRY(device_open_queue(s->d, &s->q, err));
    program_memory memory = {.queue = s->q, .workers = workers};
    return program_prepare(s->program, &memory, err);
}

static lace_status time_set(const model *m, bench_set *s, const spoiler *spoil, type_speed *out,
                            lace_error *err)
{
    double one, many;
    TRY(load_set(m, s, spoil->workers, err));
    TRY(make_program(s, spoil->workers, err));
    if (s->is_streamed) { /* few rows: the time is that of the way */
        TRY(time_rows(s->program, STREAM_ROWS, spoil, &many, err));
        out->bring_bytes_s = (double)s->bytes / many;
        return LACE_OK;
    }
    TRY(time_rows(s->program, 1, s->d->is_host ? spoil : NULL, &one, err));
    TRY(time_rows(s->program, MANY_ROWS, NULL, &many, err));
    out->bytes_s = (double)s->bytes / one;
    out->products_s = MANY_ROWS * (double)s->products / many;
    return LACE_OK;
}

static lace_status time_type(const model *m, const char *device_name, const device_options *o,
                             const spoiler *spoil, dtype type, bool is_streamed, type_speed *out,
                             lace_error *err)
{
    bench_set s = {.is_streamed = is_streamed};
    choose_matrices(m, type, &s);
    if (s.n == 0)
        return LACE_OK;
    TRY(device_open(device_name, o, &s.d, err));
    bool can =
        !is_streamed || (s.d->backend->place_streamed && !s.d->is_host && !dtype_is_sparse(type));
    lace_status status = can ? time_set(m, &s, spoil, out, err) : LACE_OK;
    program_free(s.program);
    queue_close(s.q);
    device_close(s.d);
    mem_free(s.zeros);
    return status;
}

lace_status measure_types(const model *m, const char *device_name, const device_options *o,
                          pool *workers, type_speed out[DTYPE_COUNT], lace_error *err)
{
    spoiler spoil;
    lace_status status = LACE_OK;
    memset(out, 0, DTYPE_COUNT * sizeof *out);
    spoiler_init(&spoil, workers);
    for (int t = 0; t < DTYPE_COUNT && status == LACE_OK; t++) {
        status = time_type(m, device_name, o, &spoil, (dtype)t, false, &out[t], err);
        /* A device that cannot, for want of memory, is counted by its link. */
        if (status == LACE_OK &&
            time_type(m, device_name, o, &spoil, (dtype)t, true, &out[t], NULL))
            out[t].bring_bytes_s = 0;
    }
    spoiler_deinit(&spoil);
    return status;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* A step that is not worth anything: norms of a short row, one behind the other. */
static lace_status time_steps(bench_set *s, pool *workers, double *out, lace_error *err)
{
    enum { WIDTH = 256 };
    static const float zeros[WIDTH];
    weight_rows table = {.type = DTYPE_F32,
                         .kept = DTYPE_F32,
                         .blocks = (const uint8_t *)zeros,
                         .n_rows = 1,
                         .n_cols = WIDTH,
                         .n_bytes = sizeof zeros,
                         .is_table = true};
    plan_limits limits = {
        .max_tokens = 1, .max_outputs = 1, .n_context = 1, .n_workers = pool_size(workers)};
    program_options options = {.n_sequences = 1, .pages_per_sequence = 1};
    plan *p;
    TRY(device_place(s->d, &table, &s->table, err));
    TRY(device_begin_load(s->d, err));
    lace_status status = device_load(s->d, &table, &s->table, workers, err);
    lace_status ended = device_end_load(s->d, status == LACE_OK ? err : NULL);
    TRY(status != LACE_OK ? status : ended);
    TRY(plan_create(&limits, &p, err));
    value x = plan_embed(p, &s->table, 1);
    norm_params norm = {.kind = OP_RMS_NORM, .scales = zeros, .group = WIDTH, .eps = 1e-5f};
    for (int i = 0; i < MANY_STEPS; i++)
        x = plan_norm(p, x, &norm);
    if (p->status == LACE_OK)
        plan_result(p, plan_gather(p, x));
    status = plan_check(p, err);
    if (status == LACE_OK)
        status = device_compile(s->d, p, &options, &s->program, err);
    plan_free(p);
    TRY(status);
    TRY(device_open_queue(s->d, &s->q, err));
    program_memory memory = {.queue = s->q, .workers = workers};
    TRY(program_prepare(s->program, &memory, err));
    TRY(time_rows(s->program, 1, NULL, out, err));
    *out /= MANY_STEPS;
    return LACE_OK;
}

lace_status measure_step(const char *device_name, const device_options *o, pool *workers,
                         double *out, lace_error *err)
{
    bench_set s = {0};
    *out = 0;
    TRY(device_open(device_name, o, &s.d, err));
    lace_status status = time_steps(&s, workers, out, err);
    program_free(s.program);
    queue_close(s.q);
    device_close(s.d);
    return status;
}

/* ---- Links ----------------------------------------------------------------------------------- */

/* The time to bring n bytes to the device and back, the median of some. */
static lace_status time_copies(queue *q, uint8_t *there, uint8_t *here, uint64_t n, double *out,
                               lace_error *err)
{
    double times[RUNS];
    *out = 0;
    for (int i = 0; i < RUNS; i++) {
        uint64_t begin = clock_ns();
        TRY(queue_write(q, there, here, n, err));
        TRY(queue_read(q, here, there, n, err));
        times[i] = 1e-9 * (double)(clock_ns() - begin);
    }
    *out = median_of(times, RUNS);
    return LACE_OK;
}

lace_status measure_link(const char *device_name, const device_options *o, double *bytes_s,
                         double *switch_s, lace_error *err)
{
    enum { LARGE = 4 << 20, SMALL = 64 };
    device *d;
    queue *q = NULL;
    uint8_t *there = NULL, *own = mem_calloc(LARGE, 1), *shared = NULL, *here = own;
    double large = 0, small = 0;
    lace_status status = own ? device_open(device_name, o, &d, err) : error_nomem(err, "a copy");
    if (status != LACE_OK) {
        mem_free(own);
        return status;
    }
    status = device_open_queue(d, &q, err);
    if (status == LACE_OK && queue_shares_memory(q)) { /* as values go that cross */
        status = queue_take_shared(q, LARGE, &shared, err);
        here = shared;
    }
    if (status == LACE_OK)
        status = queue_take(q, LARGE, &there, err);
    if (status == LACE_OK)
        status = time_copies(q, there, here, SMALL, &small, err);
    if (status == LACE_OK)
        status = time_copies(q, there, here, LARGE, &large, err);
    *switch_s = small / 2;
    *bytes_s = large > small ? 2.0 * LARGE / (large - small) : 0;
    if (q)
        queue_give_back(q, there, LARGE);
    if (shared)
        queue_give_back_shared(q, shared);
    queue_close(q);
    device_close(d);
    mem_free(own);
    return status;
}
