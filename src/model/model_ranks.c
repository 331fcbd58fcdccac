/*
 * A model that several ranks compute: which rows of each matrix this one has. That follows from the
 * model's plan (plan/cut.h), so it is found when everything is bound, and before anything is loaded.
 */
#include "base/mem.h"
#include "model/outline.h"
#include "plan/cut.h"
#include "tensor/sparse.h"

/* This rank's rows of a matrix. */
static void cut_rows(const rank_shares *s, int64_t n_units, weight_rows *rows)
{
    int64_t begin = rank_column(s, rows->n_rows, n_units, s->rank);
    int64_t end = rank_column(s, rows->n_rows, n_units, s->rank + 1);
    uint64_t bytes = rows->n_bytes / (uint64_t)rows->n_rows;
    rows->blocks += dtype_is_sparse(rows->type)
                        ? 8 * (uint64_t)(begin / SPARSE_PANEL)
                        : (uint64_t)begin * row_bytes(rows->type, rows->n_cols);
    rows->n_rows = end - begin;
    rows->n_bytes = bytes * (uint64_t)rows->n_rows;
}

/* Place everything again: what was placed first was whole. */
static lace_status place_again(model *m, const plan *p, const int64_t *units, lace_error *err)
{
    for (int32_t i = 0; i < m->n_matrices; i++) {
        model_matrix *matrix = &m->matrices[i];
        int32_t at = matrix->rows.is_table ? -1 : outline_find_step(p, matrix->target);
        int64_t n_units = at >= 0 ? units[at] : 0, n_total = matrix->rows.n_rows;
        if (n_units > 0)
            cut_rows(&m->ranks->shares, n_units, &matrix->rows);
        TRY(device_place(m->device, &matrix->rows, matrix->target, err));
        matrix->target->n_total = n_units > 0 ? n_total : 0;
        matrix->target->n_units = n_units;
    }
    return device_place(m->device, &m->table_rows, &m->table, err);
}

lace_status model_cut(model *m, const char *device_name, const device_options *o, ranks *together,
                      lace_error *err)
{
    m->ranks = together;
    device *d = NULL;
    int64_t *units = NULL;
    plan *p = NULL;
    lace_status status = outline_create(m, &p, err);
    if (status == LACE_OK && !(units = mem_calloc((size_t)p->n_steps + 1, sizeof *units)))
        status = error_nomem(err, "a plan");
    if (status == LACE_OK)
        status = plan_units(p, &together->shares, units, err);
    if (status == LACE_OK)
        status = device_open(device_name, o, &d, err);
    if (status == LACE_OK) {
        device_close(m->device);
        m->device = d;
        status = place_again(m, p, units, err);
    }
    mem_free(units);
    plan_free(p);
    return status;
}
