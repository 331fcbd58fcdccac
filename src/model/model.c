/* A model: opened, bound, and its matrices packed. */
#include "model/model.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "backend/cpu/columns.h"
#include "model/mistral_window.h"
#include "hf/hf_names.h"

/* What lace cannot run need not have the metadata that lace expects: that it is said first. */
static lace_status check_runnable(const weights *files, lace_error *err)
{
    char architecture[64];
    if (!weights_gguf(files))
        return LACE_OK; /* reading config.json says it */
    TRY(config_architecture(weights_gguf(files), architecture, err));
    if (!arch_find(architecture))
        return error_set(err, LACE_E_META,
                         "is a model of the architecture \"%s\", which lace does not run",
                         architecture);
    if (weights_count(files) == 0)
        return error_set(err, LACE_E_META,
                         "has a vocabulary and no weights: only lace tokenize can use it");
    return LACE_OK;
}

lace_status model_create(weights *files, cpu_level level, weight_mode mode, gpu *card, model **out,
                         lace_error *err)
{
    *out = NULL;
    model *m = mem_calloc(1, sizeof *m);
    if (!m) {
        gpu_close(card);
        weights_close(files);
        return error_nomem(err, "a model");
    }
    m->files = files;
    m->mode = mode;
    m->card = card;
    arena_init(&m->memory, SIZE_MAX / 2);
    kernels_init(&m->kernels, level);
    if (mode == WEIGHTS_EXACT)
        m->kernels.ops[OP_ATTEND] = m->kernels.exact_attend;
    if (card)
        kernels_init_cuda(&m->kernels);

    lace_status status;
    TRY_GOTO(status, fail, check_runnable(files, err));
    TRY_GOTO(status, fail, config_from_weights(files, &m->config, err));
    m->arch = arch_find(m->config.architecture);
    assert(m->arch);
    int64_t version = 0;
    if (weights_gguf(files))
        TRY_GOTO(status, fail,
                 gguf_get_int(weights_gguf(files), "lace.format.version", 0, DTYPE_OWN_VERSION,
                              &version, NULL, err));
    if (weights_gguf(files))
        mistral_window_find(weights_name(files), &m->config);
    if (m->arch->configure)
        TRY_GOTO(status, fail, m->arch->configure(&m->config, err));
    if (weights_gguf(files))
        TRY_GOTO(status, fail, arch_check_keys(m->arch, weights_gguf(files), &m->config, err));
    m->layers = arena_alloc(&m->memory, (size_t)m->config.n_layers, sizeof *m->layers);
    if (!m->layers) {
        status = error_nomem(err, "the layers");
        goto fail;
    }
    TRY_GOTO(status, fail, m->arch->bind(m, err));
    *out = m;
    return LACE_OK;

fail:
    error_prefix(err, status, weights_name(files));
    model_free(m);
    return status;
}

void model_free(model *m)
{
    if (!m)
        return;
    if (m->card) {
        cuda_free(m->card->device, m->packed);
        cuda_free(m->card->device, m->card_embedding);
        gpu_close(m->card);
    } else {
        mem_unmap(m->packed, m->packed_bytes);
    }
    mem_free(m->matrices);
    arena_deinit(&m->memory);
    weights_close(m->files);
    mem_free(m);
}

uint64_t model_weight_bytes(const model *m)
{
    return m->packed_bytes + m->in_place_bytes + m->memory.used;
}

/* ---- Packing --------------------------------------------------------------------------------- */

typedef struct pack_job {
    const model_matrix *matrix;
    uint8_t *out;
} pack_job;

static void pack_share(void *arg, int index, int count)
{
    const pack_job *job = arg;
    const weight *w = job->matrix->target;
    int64_t begin, end;
    pool_share(w->n_rows, MATMUL_TILE_ROWS, index, count, &begin, &end);
    if (begin < end)
        w->impl->pack(w->type, job->matrix->blocks, w->n_rows, w->n_cols, begin, end, job->out);
}

static void pack_columns_share(void *arg, int index, int count)
{
    const pack_job *job = arg;
    const weight *w = job->matrix->target;
    int64_t begin, end;
    pool_share(w->n_cols / COLUMNS_GROUP, 1, index, count, &begin, &end);
    columns_pack(w->type, job->matrix->blocks, w->n_rows, w->n_cols, begin, end, job->out);
}

static void pack_columns(model *m, const model_matrix *matrix, pool *workers)
{
    pack_job job = {matrix, m->packed + matrix->columns_offset};
    pool_run(workers, pack_columns_share, &job);
    matrix->target->columns = job.out;
}

/* Pack one matrix and use it from now on. */
static void pack_matrix(model *m, int32_t i, pool *workers)
{
    const model_matrix *matrix = &m->matrices[i];
    weight *w = matrix->target;
    if (w->impl->panels)
        w->impl = w->impl->panels;
    pack_job job = {matrix, m->packed + matrix->offset};
    pool_run(workers, pack_share, &job);
    w->data = job.out;
    /* The table of a tied model is still read row by row. */
    bool is_last = i + 1 == m->n_matrices || m->matrices[i + 1].source != matrix->source;
    if (is_last && matrix->source != m->embedding)
        weights_release(m->files, matrix->source);
}

void model_pack_more(model *m, pool *workers)
{
    uint64_t done = 0;
    if (m->mode != WEIGHTS_PACKED_LATER || m->card || !m->is_loaded || m->n_ready == m->n_matrices)
        return;
    uint64_t begin = clock_ns();
    for (; m->n_ready < m->n_matrices && done < m->packed_bytes / 8; m->n_ready++)
        if (m->matrices[m->n_ready].target->impl->panels) {
            pack_matrix(m, m->n_ready, workers);
            done += m->matrices[m->n_ready].n_bytes;
        }
    m->packing_ns += clock_ns() - begin;
}

lace_status model_load(model *m, pool *workers, lace_progress_fn on_progress, void *user,
                       lace_error *err)
{
    if (m->is_loaded)
        return LACE_OK;
    if (m->card)
        return model_load_gpu(m, on_progress, user, err);
    if (m->packed_bytes && !m->packed) {
        m->packed = mem_map(m->packed_bytes);
        if (!m->packed)
            return error_nomem(err, "the packed weights");
    }
    uint64_t done = 0;
    for (int32_t i = 0; i < m->n_matrices; i++) {
        const model_matrix *matrix = &m->matrices[i];
        TRY(weights_prepare(m->files, matrix->source, err));
        if (matrix->columns_bytes) {
            pack_columns(m, matrix, workers);
            done += matrix->columns_bytes;
        }
        if (matrix->n_bytes == 0 || matrix->target->impl->panels)
            continue; /* in place, for ever or at first */
        pack_matrix(m, i, workers);
        done += matrix->n_bytes;
        if (on_progress && !on_progress(user, "loading", (double)done / (double)m->packed_bytes))
            return error_set(err, LACE_E_CANCELLED, "loading was cancelled");
    }
    m->is_loaded = true;
    return LACE_OK;
}
