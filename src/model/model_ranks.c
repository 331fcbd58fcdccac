/*
 * A model that several ranks compute: which rows of each matrix this one has. That follows from the
 * model's plan (plan/cut.h), so it is found when everything is bound, and before anything is loaded.
 */
#include "backend/mixed.h"
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
        weight_rows *rows = &matrix->rows;
        int32_t at = rows->is_table ? -1 : outline_find_step(p, matrix->target);
        int64_t n_units = at >= 0 ? units[at] : 0, n_total = rows->n_rows;
        rows->device = m->where ? outline_device_of(p, at, rows->is_table, m->where) : 0;
        if (!rows->is_table)
            rows->kept = matrix_kept_as(device_part(m->device, rows->device), matrix);
        if (n_units > 0)
            cut_rows(&m->ranks->shares, n_units, rows);
        TRY(device_place(m->device, rows, matrix->target, err));
        matrix->target->n_total = n_units > 0 ? n_total : 0;
        matrix->target->n_units = n_units;
    }
    return device_place(m->device, &m->table_rows, &m->table, err);
}

/* A card that cannot exchange columns has a host beside it, which does; all layers are on the card. */
static lace_status add_host(model *m, const char *name, const device_options *o, device **d,
                            lace_error *err)
{
    mixed_options mixed = {.devices = {NULL, *d}, .n_devices = 2};
    placement *where = arena_alloc(&m->memory, 1, sizeof *where);
    *d = NULL;
    lace_status status = where ? placement_init(where, name, m->config.n_layers, err)
                               : error_nomem(err, "a placement");
    if (status == LACE_OK)
        status = device_open(where->devices[0], o, &mixed.devices[0], err);
    if (status != LACE_OK) {
        device_close(mixed.devices[1]);
        return status;
    }
    placement_last_layers(where, INT32_MAX, NULL);
    mixed.layers = where->layers;
    mixed.n_layers = where->n_layers;
    mixed.output = where->output;
    m->where = where;
    return device_mix(&mixed, d, err);
}

lace_status model_cut(model *m, const char *device_name, const device_options *o, device *d,
                      ranks *together, lace_error *err)
{
    m->ranks = together;
    int64_t *units = NULL;
    plan *p = NULL;
    lace_status status = d->collects ? LACE_OK : add_host(m, device_name, o, &d, err);
    if (status != LACE_OK)
        return status;
    device_close(m->device);
    m->device = d;
    status = outline_create(m, &p, err);
    if (status == LACE_OK && !(units = mem_calloc((size_t)p->n_steps + 1, sizeof *units)))
        status = error_nomem(err, "a plan");
    if (status == LACE_OK)
        status = plan_units(p, &together->shares, units, err);
    if (status == LACE_OK)
        status = place_again(m, p, units, err);
    mem_free(units);
    plan_free(p);
    return status;
}
