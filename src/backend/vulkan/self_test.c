/* A small product of each fast kind, and attention by matrices, against plain C. */
#include "backend/vulkan/self_test.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "backend/vulkan/recorder.h"
#include "backend/vulkan/vulkan_weights.h"
#include "base/mem.h"
#include "tensor/half.h"

enum { ROWS = 40, COLS = 512, MOST_TOKENS = 20, BLOCK = 34 /* bytes of 32 weights of Q8_0 */ };

/* What the device is given: a matrix, rows of x and of results, parameters, and formed rows. */
typedef struct trial {
    vulkan *v;
    vulkan_queue *q;
    uint8_t blocks[ROWS * COLS / 32 * BLOCK];
    float x[MOST_TOKENS * COLS], y[MOST_TOKENS * ROWS];
    uint64_t memory, matrix_bytes, params;
    uint8_t *params_host;
} trial;

static int weight_at(int row, int col)
{
    return (row * 37 + col * 11) % 251 - 125;
}

/* Scales are 1, 2 or 4 times 2^-9. */
static float scale_at(int row, int block)
{
    return (float)(1 << (row + block) % 3) / 512;
}

static void make_numbers(trial *t)
{
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < COLS / 32; b++) {
            uint8_t *to = t->blocks + (r * (COLS / 32) + b) * BLOCK;
            uint16_t half = f16_from_f32(scale_at(r, b));
            memcpy(to, &half, sizeof half);
            for (int i = 0; i < 32; i++)
                to[2 + i] = (uint8_t)(int8_t)weight_at(r, 32 * b + i);
        }
    for (int i = 0; i < MOST_TOKENS * COLS; i++)
        t->x[i] = (float)((i * 29 + i / COLS * 7) % 401 - 200) / 64;
}

/* The error of n tokens, against sums in double, squared and by the sums' own squares. */
static double error_of(const trial *t, int n)
{
    double wrong = 0, all = 1e-30;
    for (int k = 0; k < n; k++)
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int c = 0; c < COLS; c++)
                sum += (double)scale_at(r, c / 32) * weight_at(r, c) * (double)t->x[k * COLS + c];
            double d = sum - (double)t->y[k * ROWS + r];
            wrong += d * d;
            all += sum * sum;
        }
    return wrong / all;
}

/* A product of n tokens, as plans have it. */
static lace_status multiply(trial *t, int n, lace_error *err)
{
    uint64_t x_at = t->memory + t->matrix_bytes, y_at = x_at + sizeof t->x;
    weight w = {.type = DTYPE_Q8_0,
                .n_rows = ROWS,
                .n_cols = COLS,
                .data = (const uint8_t *)(uintptr_t)t->memory};
    step s = {.op = OP_MATMUL};
    for (int i = 0; i < STEP_MAX_IN; i++)
        s.in[i].value = s.in[i].root = -1;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        s.out[i].value = s.out[i].root = -1;
    s.in[0] = (operand){.width = COLS, .stride = 4 * COLS, .data = (uint8_t *)(uintptr_t)x_at};
    s.out[0] = (operand){.value = 1,
                         .root = 1,
                         .width = ROWS,
                         .stride = 4 * ROWS,
                         .data = (uint8_t *)(uintptr_t)y_at};
    s.a.matmul.weights[0] = &w;
    s.a.matmul.n_weights = 1;
    s.a.matmul.scale = 1;
    vulkan_batch b = {.n_tokens = n, .n_outputs = n};
    recorder r = {.v = t->v,
                  .given = {-1, -1},
                  .batch = &b,
                  .forms = y_at + sizeof t->y,
                  .form_bytes = record_form_bytes(&s, MOST_TOKENS),
                  .params = t->params,
                  .params_host = t->params_host,
                  .params_bytes = record_params_bytes(&s)};
    TRY(vulkan_list_begin(t->q, &r.list, err));
    lace_status status = record_step(&r, &s, 1, err);
    if (status == LACE_OK)
        status = record_end(&r, err);
    if (status == LACE_OK)
        status = vulkan_list_run(r.list, err);
    if (status == LACE_OK)
        status = vulkan_read(t->q, t->y, y_at, sizeof t->y, err);
    vulkan_list_free(r.list);
    return status;
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Two heads of q for one of the cache, whose page has keys, then values. */
enum { HEADS = 2, DIM = 64, PAGE_TOKENS = 32, SEEN = 20 };

typedef struct attention {
    float q[SEEN * HEADS * DIM], y[SEEN * HEADS * DIM];
    uint16_t cache[2 * PAGE_TOKENS * DIM];
    uint32_t tables[4], sequences[SEEN], positions[SEEN], seen[SEEN];
} attention;

static void make_attention(attention *a)
{
    memset(a, 0, sizeof *a);
    for (int i = 0; i < SEEN * HEADS * DIM; i++)
        a->q[i] = (float)((i * 31 + i / DIM * 5) % 97 - 48) / 64;
    for (int i = 0; i < 2 * PAGE_TOKENS * DIM; i++)
        a->cache[i] = f16_from_f32((float)((i * 23 + i / DIM * 3) % 89 - 44) / 32);
    for (uint32_t i = 0; i < SEEN; i++) {
        a->positions[i] = i;
        a->seen[i] = i + 1;
    }
}

/* As error_of: of the rows of q, each of which sees the positions up to its own. */
static double attention_error(const attention *a)
{
    double wrong = 0, all = 1e-30;
    for (int row = 0; row < SEEN * HEADS; row++) {
        double sums[DIM] = {0}, total = 0;
        for (int k = 0; k <= row / HEADS; k++) {
            double dot = 0;
            for (int i = 0; i < DIM; i++)
                dot += (double)a->q[row * DIM + i] * (double)f16_to_f32(a->cache[k * DIM + i]);
            double e = exp(dot / 8);
            total += e;
            for (int i = 0; i < DIM; i++)
                sums[i] += e * (double)f16_to_f32(a->cache[(PAGE_TOKENS + k) * DIM + i]);
        }
        for (int i = 0; i < DIM; i++) {
            double y = sums[i] / total, d = y - (double)a->y[row * DIM + i];
            wrong += d * d;
            all += y * y;
        }
    }
    return wrong / all;
}

/* Attention of all rows, with `a` at an address of the device. */
static lace_status run_attention(trial *t, uint64_t at, lace_error *err)
{
    step s = {.op = OP_ATTEND};
    for (int i = 0; i < STEP_MAX_IN; i++)
        s.in[i].value = s.in[i].root = -1;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        s.out[i].value = s.out[i].root = -1;
    s.in[0] = (operand){.width = HEADS * DIM,
                        .stride = 4 * HEADS * DIM,
                        .data = (uint8_t *)(uintptr_t)(at + offsetof(attention, q))};
    s.out[0] = (operand){.value = 1,
                         .root = 1,
                         .width = HEADS * DIM,
                         .stride = 4 * HEADS * DIM,
                         .data = (uint8_t *)(uintptr_t)(at + offsetof(attention, y))};
    s.a.attend.n_heads = HEADS;
    s.a.attend.scale = 0.125f;
    s.kv = (kv_layer){.data = (uint8_t *)(uintptr_t)(at + offsetof(attention, cache)),
                      .page_bytes = 4 * PAGE_TOKENS * DIM,
                      .v_offset = 2 * PAGE_TOKENS * DIM,
                      .row_bytes = 2 * DIM,
                      .v_row_bytes = 2 * DIM,
                      .type = DTYPE_F16,
                      .v_type = DTYPE_F16,
                      .page_tokens = PAGE_TOKENS,
                      .n_heads = 1,
                      .head_dim = DIM,
                      .v_dim = DIM};
    vulkan_batch b = {.n_tokens = SEEN,
                      .n_outputs = SEEN,
                      .positions = at + offsetof(attention, positions),
                      .sequences = at + offsetof(attention, sequences),
                      .seen = at + offsetof(attention, seen),
                      .tables = {at + offsetof(attention, tables)},
                      .pages_per_sequence = 1};
    recorder r = {.v = t->v,
                  .given = {-1, -1},
                  .batch = &b,
                  .params = t->params,
                  .params_host = t->params_host,
                  .params_bytes = record_params_bytes(&s)};
    TRY(vulkan_list_begin(t->q, &r.list, err));
    lace_status status = record_step(&r, &s, 1, err);
    if (status == LACE_OK)
        status = record_end(&r, err);
    if (status == LACE_OK)
        status = vulkan_list_run(r.list, err);
    if (status == LACE_OK)
        status = vulkan_wait(t->q, err);
    vulkan_list_free(r.list);
    return status;
}

/* Whether attention of many tokens is right; what it allows is that of checkkernels. */
static bool attends_right(trial *t)
{
    attention *a = mem_alloc(sizeof *a);
    uint64_t at = 0;
    if (!a)
        return false;
    make_attention(a);
    bool is_run = vulkan_alloc(t->v, VULKAN_LOCAL, sizeof *a, &at, NULL, NULL) == LACE_OK &&
                  vulkan_write(t->q, at, a, sizeof *a, NULL) == LACE_OK &&
                  run_attention(t, at, NULL) == LACE_OK &&
                  vulkan_read(t->q, a, at, sizeof *a, NULL) == LACE_OK;
    bool is_right = is_run && attention_error(a) < 1e-7;
    vulkan_free(t->v, at);
    mem_free(a);
    return is_right;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static lace_status prepare(trial *t, lace_error *err)
{
    enum { FORM_BYTES = 4 * COLS * (MOST_TOKENS + RECORD_FEW) + 4096, PARAMS_BYTES = 8192 };
    weights_job job = {.type = DTYPE_Q8_0,
                       .kept = DTYPE_Q8_0,
                       .blocks = t->blocks,
                       .n_rows = ROWS,
                       .n_cols = COLS};
    t->matrix_bytes = weights_bytes(DTYPE_Q8_0, false, ROWS, COLS);
    make_numbers(t);
    job.out = mem_alloc(t->matrix_bytes);
    if (!job.out)
        return error_nomem(err, "a matrix");
    lace_status status = weights_pack(&job, NULL, err);
    uint64_t bytes = t->matrix_bytes + sizeof t->x + sizeof t->y + RECORD_FORMED * FORM_BYTES;
    if (status == LACE_OK)
        status = vulkan_queue_create(t->v, &t->q, err);
    if (status == LACE_OK)
        status = vulkan_alloc(t->v, VULKAN_LOCAL, bytes, &t->memory, NULL, err);
    if (status == LACE_OK)
        status = vulkan_alloc(t->v, VULKAN_UPLOAD, PARAMS_BYTES, &t->params,
                              (void **)&t->params_host, err);
    if (status == LACE_OK)
        status = vulkan_write(t->q, t->memory, job.out, t->matrix_bytes, err);
    if (status == LACE_OK)
        status = vulkan_write(t->q, t->memory + t->matrix_bytes, t->x, sizeof t->x, err);
    mem_free(job.out);
    return status;
}

/* Whether a product of n tokens is right; a pipeline that cannot be made is not. */
static bool is_right(trial *t, int n, double allowed)
{
    memset(t->y, 0, sizeof t->y);
    return multiply(t, n, NULL) == LACE_OK && error_of(t, n) < allowed && !vulkan_is_suspect(t->v);
}

/* Whether there is something that was not found right before. */
static bool is_untested(const vulkan *v, bool has, uint32_t what)
{
    return has && !vulkan_has_passed(v, what);
}

lace_status vulkan_self_test(vulkan *v, lace_error *err)
{
    const vulkan_info *info = vulkan_features(v);
    bool tests_dot4 = is_untested(v, info->has_dot4, VULKAN_PASSED_DOT4);
    bool tests_matrices = is_untested(v, info->has_matrices, VULKAN_PASSED_MATRICES);
    if (!tests_dot4 && !tests_matrices)
        return LACE_OK;
    trial *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a self-test");
    t->v = v;
    lace_status status = prepare(t, err);
    if (status == LACE_OK && tests_dot4) {
        if (is_right(t, 2, 1e-7))
            vulkan_note_passed(v, VULKAN_PASSED_DOT4);
        else
            vulkan_distrust_dot4(v);
    }
    if (status == LACE_OK && tests_matrices) {
        if (is_right(t, MOST_TOKENS, 1e-5) && attends_right(t))
            vulkan_note_passed(v, VULKAN_PASSED_MATRICES);
        else
            vulkan_distrust_matrices(v);
    }
    vulkan_queue_free(t->q);
    vulkan_free(v, t->memory);
    vulkan_free(v, t->params);
    mem_free(t);
    return status;
}
