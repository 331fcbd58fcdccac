/*
 * Weights to the card: the file's blocks go through pinned buffers and a staging place on the card,
 * where a kernel puts them into tiles. While some buffers are on their way the next is filled, by
 * several threads: one alone copies 4 GB/s from the file's pages, a card takes 25 to 50.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/threads.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/gpu_params.h"
#include "tensor/codec/unpack.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/sparse.h"

enum {
    N_BUFFERS = 4,
    BUFFER_BYTES = 32 << 20, /* 16 rows of 2^20 halves */
    PACK_THREADS = 256,
    COPY_GRAIN = 1 << 20 /* bytes that are worth another thread */
};

typedef struct buffer {
    uint8_t *host, *device;
    cuda_event *is_free; /* recorded behind the last use */
    bool is_used;
} buffer;

struct gpu_uploader {
    gpu *g;
    cuda_queue *queue;
    buffer buffers[N_BUFFERS];
    int next;
    uint32_t *error, *device_error; /* pinned; set by kernels */
    float *row;                     /* for types that the host decodes */
    int64_t row_capacity;
    pool *workers; /* fill buffers */
};

lace_status gpu_uploader_create(gpu *g, gpu_uploader **out, lace_error *err)
{
    *out = NULL;
    gpu_uploader *u = mem_calloc(1, sizeof *u);
    if (!u)
        return error_nomem(err, "an uploader");
    u->g = g;
    lace_status status;
    TRY_GOTO(status, done, cuda_queue_create(g->device, &u->queue, err));
    TRY_GOTO(status, done,
             cuda_alloc_host(g->device, 64, (void **)&u->error, (void **)&u->device_error, err));
    *u->error = 0;
    TRY_GOTO(status, done, pool_create(cpu_count(), &u->workers, err));
    for (int i = 0; i < N_BUFFERS; i++) {
        buffer *b = &u->buffers[i];
        TRY_GOTO(status, done,
                 cuda_alloc_host(g->device, BUFFER_BYTES, (void **)&b->host, NULL, err));
        TRY_GOTO(status, done, cuda_alloc(g->device, BUFFER_BYTES, (void **)&b->device, err));
        TRY_GOTO(status, done, cuda_event_create(g->device, &b->is_free, err));
    }
done:
    return GIVE_OR_FREE(status, u, out, gpu_uploader_free);
}

void gpu_uploader_free(gpu_uploader *u)
{
    if (!u)
        return;
    cuda_queue_free(u->queue);
    for (int i = 0; i < N_BUFFERS; i++) {
        cuda_free_host(u->g->device, u->buffers[i].host);
        cuda_free(u->g->device, u->buffers[i].device);
        cuda_event_free(u->buffers[i].is_free);
    }
    cuda_free_host(u->g->device, u->error);
    mem_free(u->row);
    pool_free(u->workers);
    mem_free(u);
}

/* The buffer that is to be filled next, when what was in it is on the card. */
static lace_status take_buffer(gpu_uploader *u, buffer **out, lace_error *err)
{
    *out = &u->buffers[u->next];
    u->next = (u->next + 1) % N_BUFFERS;
    if ((*out)->is_used)
        TRY(cuda_event_wait((*out)->is_free, err));
    (*out)->is_used = true;
    return LACE_OK;
}

typedef struct copy_job {
    uint8_t *to;
    const uint8_t *from;
    uint64_t n;
} copy_job;

static void copy_share(void *arg, int number, int n_workers)
{
    const copy_job *j = arg;
    int64_t begin, end;
    pool_share((int64_t)j->n, COPY_GRAIN, number, n_workers, &begin, &end);
    memcpy(j->to + begin, j->from + begin, (size_t)(end - begin));
}

/* Into a buffer, by all workers if there is enough. */
static void fill_buffer(gpu_uploader *u, buffer *b, const void *from, uint64_t n)
{
    copy_job job = {b->host, from, n};
    if (n <= COPY_GRAIN)
        memcpy(b->host, from, (size_t)n);
    else
        pool_run(u->workers, copy_share, &job);
}

lace_status gpu_upload_bytes(gpu_uploader *u, const void *bytes, uint64_t n, void *out,
                             lace_error *err)
{
    for (uint64_t at = 0; at < n;) {
        uint64_t piece = n - at < BUFFER_BYTES ? n - at : BUFFER_BYTES;
        buffer *b;
        TRY(take_buffer(u, &b, err));
        fill_buffer(u, b, (const uint8_t *)bytes + at, piece);
        TRY(cuda_copy_to(u->queue, (uint8_t *)out + at, b->host, piece, err));
        TRY(cuda_event_record(b->is_free, u->queue, err));
        at += piece;
    }
    return LACE_OK;
}

/* What rows that become tiles of `kept` are sent as: as they are if the card decodes them. */
static dtype sent_as(dtype type, dtype kept)
{
    tile_kind kind = tile_kind_of(kept);
    if (dtype_is_sparse(type))
        return kind == TILE_Q8_0 ? DTYPE_Q8_0 : DTYPE_F16;
    return kind != TILE_F16 || type == DTYPE_F16 ? type : DTYPE_F16;
}

static const char *pack_kernel(tile_kind kind)
{
    switch (kind) {
    case TILE_F16:
    case TILE_BF16:
        return "pack_tiles_half";
    case TILE_Q4_K:
    case TILE_Q5_K:
    case TILE_IQ4_XS:
        return "pack_tiles_k";
    case TILE_Q2_K:
        return "pack_tiles_q2_k";
    case TILE_Q6_K:
        return "pack_tiles_q6_k";
    case TILE_S3:
    case TILE_S4:
    case TILE_S8:
        return "pack_tiles_own";
    default:
        return "pack_tiles_small";
    }
}

/* A row of a sparse matrix, zeros included, as Q8_0: values are scale times a byte. */
static void sparse_to_q8_0(dtype type, const uint8_t *panel, int64_t n_cols, int row, float *values,
                           block_q8_0 *out)
{
    float *scales = values + n_cols; /* one for each 128 columns: there is room */
    sparse_unpack_row(sparse_kind_of(type), panel, n_cols, row, values);
    sparse_row_scales(sparse_kind_of(type), panel, n_cols, row, scales);
    for (int64_t b = 0; b < n_cols / 32; b++) {
        float scale = scales[32 * b / SPARSE_GROUP];
        out[b].scale = f16_from_f32(scale);
        for (int i = 0; i < 32; i++)
            out[b].quants[i] = (int8_t)lrintf(values[32 * b + i] / scale);
    }
}

/* Rows as F16 or Q8_0, for types that the card does not know. */
static lace_status decode_rows(gpu_uploader *u, dtype type, dtype sent, const uint8_t *blocks,
                               int64_t n_rows, int64_t n_cols, uint8_t *out, lace_error *err)
{
    if (u->row_capacity < 2 * n_cols) {
        float *grown = mem_realloc(u->row, 2 * (size_t)n_cols * sizeof *grown);
        if (!grown)
            return error_nomem(err, "a row of weights");
        u->row = grown;
        u->row_capacity = 2 * n_cols;
    }
    for (int64_t r = 0; r < n_rows; r++) {
        uint8_t *row = out + (uint64_t)r * row_bytes(sent, n_cols);
        if (sent == DTYPE_Q8_0) {
            sparse_to_q8_0(type, sparse_panel(blocks, r / SPARSE_PANEL), n_cols,
                           (int)(r % SPARSE_PANEL), u->row, (block_q8_0 *)(void *)row);
            continue;
        }
        if (dtype_is_sparse(type))
            sparse_unpack_row(sparse_kind_of(type), sparse_panel(blocks, r / SPARSE_PANEL), n_cols,
                              (int)(r % SPARSE_PANEL), u->row);
        else
            unpack_row(type, blocks + (uint64_t)r * row_bytes(type, n_cols), n_cols, u->row);
        for (int64_t i = 0; i < n_cols; i++)
            ((uint16_t *)(void *)row)[i] = f16_from_f32(u->row[i]);
    }
    return LACE_OK;
}

/*
 * Rows into a buffer, as the type `sent`, on to the card, and into `tiles` (NULL: as they are to
 * `plain`).
 */
static lace_status send_rows(gpu_uploader *u, dtype type, dtype sent, tile_kind kind,
                             const uint8_t *blocks, int64_t n_rows, int64_t n_cols, uint8_t *tiles,
                             uint8_t *plain, lace_error *err)
{
    uint64_t stride = row_bytes(sent, n_cols), n = stride * (uint64_t)n_rows;
    buffer *b;
    TRY(take_buffer(u, &b, err));
    if (sent == type)
        fill_buffer(u, b, blocks, n);
    else
        TRY(decode_rows(u, type, sent, blocks, n_rows, n_cols, b->host, err));
    TRY(cuda_copy_to(u->queue, plain ? plain : b->device, b->host, n, err));
    if (tiles) {
        gpu_pack p = {.blocks = b->device,
                      .tiles = tiles,
                      .row_bytes = stride,
                      .n_rows = (int32_t)n_rows,
                      .n_cols = (int32_t)n_cols,
                      .type = (int32_t)sent,
                      .error = u->device_error};
        int32_t number = (int32_t)kind;
        uint64_t n_tiles = tile_matrix_bytes(kind, n_rows, n_cols) / (uint64_t)tile_bytes(kind);
        cuda_launch l = {.grid = {(uint32_t)n_tiles}, .block = {PACK_THREADS}};
        void *arguments[] = {&p, &number};
        TRY(gpu_find(u->g, pack_kernel(kind), &l.kernel, err));
        TRY(cuda_run(u->queue, &l, arguments, err));
    }
    return cuda_event_record(b->is_free, u->queue, err);
}

/* How many rows of a type go through a buffer at once: whole tiles. */
static int64_t rows_at_once(dtype sent, int64_t n_cols)
{
    int64_t rows = (int64_t)(BUFFER_BYTES / row_bytes(sent, n_cols)) / TILE_ROWS * TILE_ROWS;
    assert(rows > 0); /* rows have at most 2^20 values */
    return rows;
}

typedef void (*pack_fn)(const uint8_t *where, int64_t first, int64_t n, int64_t n_cols,
                        uint8_t *tiles);

typedef struct pack_job {
    pack_fn pack;
    const uint8_t *where;
    int64_t first, n, n_cols;
    uint64_t each; /* bytes of a panel's tiles */
    uint8_t *tiles;
} pack_job;

static void pack_share(void *arg, int number, int n_workers)
{
    const pack_job *j = arg;
    int64_t begin, end;
    pool_share(j->n, 1, number, n_workers, &begin, &end);
    j->pack(j->where, j->first + begin, end - begin, j->n_cols,
            j->tiles + (uint64_t)begin * j->each);
}

/* Panels that the host puts into tiles. */
static lace_status upload_panels(gpu_uploader *u, pack_fn pack, tile_kind kind,
                                 const uint8_t *where, int64_t n_rows, int64_t n_cols, uint8_t *out,
                                 lace_error *err)
{
    int64_t n_panels = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    uint64_t each = tile_matrix_bytes(kind, TILE_ROWS, n_cols);
    int64_t most = (int64_t)(BUFFER_BYTES / each);
    for (int64_t at = 0; at < n_panels; at += most) {
        int64_t n = n_panels - at < most ? n_panels - at : most;
        buffer *b;
        TRY(take_buffer(u, &b, err));
        pack_job job = {pack, where, at, n, n_cols, each, b->host};
        pool_run(u->workers, pack_share, &job);
        TRY(cuda_copy_to(u->queue, out + (uint64_t)at * each, b->host, (uint64_t)n * each, err));
        TRY(cuda_event_record(b->is_free, u->queue, err));
    }
    return LACE_OK;
}

dtype gpu_kept_as(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols)
{
    int64_t n_panels = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    return type == DTYPE_M4 && !gpu_holds_m4(blocks, n_panels, n_cols) ? DTYPE_M8 : type;
}

lace_status gpu_upload_matrix(gpu_uploader *u, dtype type, dtype kept, const uint8_t *blocks,
                              int64_t n_rows, int64_t n_cols, void *out, lace_error *err)
{
    tile_kind kind = tile_kind_of(kept);
    if (kind == TILE_F32)
        return gpu_upload_bytes(u, blocks, 4 * (uint64_t)n_rows * (uint64_t)n_cols, out, err);
    if (kind == TILE_N24)
        return upload_panels(u, gpu_pack_n24, kind, blocks, n_rows, n_cols, out, err);
    if (kind == TILE_M4)
        return upload_panels(u, gpu_pack_m4, kind, blocks, n_rows, n_cols, out, err);
    dtype sent = sent_as(type, kept);
    int64_t most = rows_at_once(sent, n_cols);
    for (int64_t at = 0; at < n_rows; at += most) {
        int64_t n = n_rows - at < most ? n_rows - at : most;
        /* Of sparse matrices there is a table of panels. */
        uint64_t from = dtype_is_sparse(type) ? 8 * (uint64_t)(at / SPARSE_PANEL)
                                              : (uint64_t)at * row_bytes(type, n_cols);
        TRY(send_rows(u, type, sent, kind, blocks + from, n, n_cols,
                      (uint8_t *)out + tile_matrix_bytes(kind, at, n_cols), NULL, err));
    }
    return LACE_OK;
}

dtype gpu_embedding_type(dtype type)
{
    return tile_is_rotated(tile_kind_of(type)) ? DTYPE_F16 : sent_as(type, type);
}

lace_status gpu_upload_embedding(gpu_uploader *u, dtype type, const uint8_t *blocks, int64_t n_rows,
                                 int64_t n_cols, void *out, lace_error *err)
{
    dtype sent = gpu_embedding_type(type);
    int64_t most = rows_at_once(sent, n_cols);
    uint64_t stride = row_bytes(sent, n_cols);
    for (int64_t at = 0; at < n_rows; at += most) {
        int64_t n = n_rows - at < most ? n_rows - at : most;
        TRY(send_rows(u, type, sent, tile_kind_of(type),
                      blocks + (uint64_t)at * row_bytes(type, n_cols), n, n_cols, NULL,
                      (uint8_t *)out + (uint64_t)at * stride, err));
    }
    return LACE_OK;
}

cuda_queue *gpu_uploader_queue(gpu_uploader *u)
{
    return u->queue;
}

lace_status gpu_uploader_wait(gpu_uploader *u, lace_error *err)
{
    TRY(cuda_wait(u->queue, err));
    return *u->error
               ? error_set(
                     err, LACE_E_UNSUPPORTED,
                     "a scale of MXFP4 is too small or too large for the GPU; use --device cpu")
               : LACE_OK;
}
