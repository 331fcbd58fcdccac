/* Loading a model onto a GPU: every matrix into tiles, the embedding table as it is. */
#include "base/mem.h"
#include "model/model.h"

static lace_status upload_all(model *m, gpu_uploader *u, lace_progress_fn on_progress, void *user,
                              lace_error *err)
{
    uint64_t done = 0;
    const tensor *table = m->embedding;
    for (int32_t i = 0; i < m->n_matrices; i++) {
        const model_matrix *matrix = &m->matrices[i];
        weight *w = matrix->target;
        TRY(weights_prepare(m->files, matrix->source, err));
        TRY(gpu_upload_matrix(u, matrix->source->type, w->type, matrix->blocks, w->n_rows,
                              w->n_cols, m->packed + matrix->offset, err));
        w->data = m->packed + matrix->offset;
        bool is_last = i + 1 == m->n_matrices || m->matrices[i + 1].source != matrix->source;
        if (is_last && matrix->source != table)
            weights_release(m->files, matrix->source);
        done += matrix->n_bytes;
        if (on_progress && !on_progress(user, "loading", (double)done / (double)m->packed_bytes))
            return error_set(err, LACE_E_CANCELLED, "loading was cancelled");
    }
    TRY(weights_prepare(m->files, table, err));
    TRY(gpu_upload_embedding(u, table->type, table->data, m->config.n_vocab, m->config.n_embd,
                             m->card_embedding, err));
    TRY(gpu_uploader_wait(u, err));
    weights_release(m->files, table);
    return LACE_OK;
}

lace_status model_load_gpu(model *m, lace_progress_fn on_progress, void *user, lace_error *err)
{
    uint64_t table_bytes = (uint64_t)m->config.n_vocab *
                           row_bytes(gpu_embedding_type(m->embedding->type), m->config.n_embd);
    if (!m->packed)
        TRY(cuda_alloc(m->card->device, m->packed_bytes, (void **)&m->packed, err));
    if (!m->card_embedding)
        TRY(cuda_alloc(m->card->device, table_bytes, (void **)&m->card_embedding, err));
    gpu_uploader *u;
    TRY(gpu_uploader_create(m->card, &u, err));
    lace_status status = upload_all(m, u, on_progress, user, err);
    gpu_uploader_free(u);
    m->is_loaded = status == LACE_OK;
    return status;
}
