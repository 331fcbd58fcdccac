/*
 * A model on several devices: which one each matrix goes to. That follows from the step that uses it,
 * so it is found when everything is bound, and before anything is loaded.
 */
#include "backend/mixed.h"
#include "base/mem.h"
#include "model/outline.h"

_Static_assert((int)PLACE_MAX_DEVICES == (int)DEVICES_MAX,
               "all devices of a placement can be mixed");
_Static_assert((int)PLACE_MAX_LAYERS >= (int)CONFIG_MAX_LAYERS, "it knows all layers");

bool outline_is_in_front(const plan *p, int32_t at)
{
    for (int32_t i = 0; i <= at; i++)
        if (p->steps[i].layer >= 0)
            return false;
    return at >= 0;
}

int32_t outline_device_of(const plan *p, int32_t at, bool is_table, const placement *where)
{
    if (is_table)
        return 0;
    int32_t layer = at >= 0 ? p->steps[at].layer : -1;
    if (layer >= 0)
        return step_has_experts(&p->steps[at]) ? where->experts[layer] : where->layers[layer];
    return outline_is_in_front(p, at) ? where->layers[0] : where->output;
}

dtype matrix_kept_as(device *d, const model_matrix *matrix)
{
    const tensor *t = matrix->source;
    int64_t n_cols = t->shape.dims[0];
    bool is_stack = t->shape.n_dims == 3;
    return device_kept_as(d, t->type, is_stack ? t->data : matrix->rows.blocks,
                          is_stack ? (int64_t)t->n_values / n_cols : matrix->rows.n_rows, n_cols);
}

/* Whether the output matrix is made of the table of embeddings. */
static bool is_tied(const model *m)
{
    for (int32_t i = 0; i < m->n_matrices; i++)
        if (m->matrices[i].target == &m->output)
            return m->matrices[i].source == m->embedding;
    return false;
}

static lace_status place_again(model *m, const plan *p, lace_error *err)
{
    for (int32_t i = 0; i < m->n_matrices; i++) {
        model_matrix *matrix = &m->matrices[i];
        weight_rows *rows = &matrix->rows;
        int32_t at = outline_find_step(p, matrix->target);
        rows->device = outline_device_of(p, at, rows->is_table, m->where);
        if (!rows->is_table)
            rows->kept = matrix_kept_as(device_part(m->device, rows->device), matrix);
        TRY(device_place(m->device, rows, matrix->target, err));
    }
    m->table_rows.device = 0;
    m->table_rows.is_shared = is_tied(m) && m->output.device == 0;
    return device_place(m->device, &m->table_rows, &m->table, err);
}

/* stays: rows of the file can be read at any time. */
static lace_status open_parts(const placement *where, const device_options *o, bool stays,
                              device **out, lace_error *err)
{
    if (!placement_uses_cards(where))
        return device_open(where->devices[0], o, out, err);
    mixed_options mixed = {
        .layers = where->layers, .n_layers = where->n_layers, .output = where->output};
    mixed.stream_tokens = stays ? where->stream_tokens : 0;
    lace_status status = LACE_OK;
    for (; mixed.n_devices < where->n_devices && status == LACE_OK; mixed.n_devices++)
        status =
            device_open(where->devices[mixed.n_devices], o, &mixed.devices[mixed.n_devices], err);
    if (status == LACE_OK)
        return device_mix(&mixed, out, err);
    for (int32_t i = 0; i < mixed.n_devices; i++)
        device_close(mixed.devices[i]);
    return status;
}

lace_status model_spread(model *m, const placement *where, const device_options *o, lace_error *err)
{
    plan *p = NULL;
    device *d = NULL;
    bool is_one = false;
    if (where->n_layers != m->config.n_layers)
        return error_set(err, LACE_E_ARG, "the placement is of a model of %d layers, not of %d",
                         where->n_layers, m->config.n_layers);
    placement *copy = arena_alloc(&m->memory, 1, sizeof *copy);
    lace_status status = copy ? outline_create(m, &p, err) : error_nomem(err, "a placement");
    if (status == LACE_OK)
        status = open_parts(where, o, weights_stay(m->files), &d, err);
    if (status == LACE_OK) {
        *copy = *where;
        m->where = copy;
        is_one = !placement_uses_cards(where);
        device_close(m->device);
        m->device = d;
        status = place_again(m, p, err);
        m->where = is_one ? NULL : copy;
    }
    plan_free(p);
    return status;
}
