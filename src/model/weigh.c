/* The parts of a model weighed. */
#include "model/weigh.h"

#include "base/numbers.h"
#include "model/outline.h"

enum { CARD_ALIGN = 4096 };

model_speeds model_speeds_alike(const type_speed *host, const type_speed *card)
{
    model_speeds s = {0};
    for (int t = 0; t < DTYPE_COUNT; t++) {
        s.of[ON_HOST][t] = *host;
        s.of[ON_CARD][t] = *card;
    }
    return s;
}

/* One matrix into an item. share: how much of it a token uses. */
static void add_matrix(place_item *to, const model_matrix *matrix, const weight *on_card,
                       const model_speeds *speeds, double share)
{
    const weight *of[N_PLACES] = {matrix->target, on_card};
    double products = (double)matrix->rows.n_rows * (double)matrix->rows.n_cols * share;
    for (int at = 0; at < N_PLACES; at++) {
        bool is_scattered = share < 1 && speeds->experts[at].bytes_s > 0;
        const type_speed *s =
            is_scattered ? &speeds->experts[at] : &speeds->of[at][matrix->rows.type];
        uint64_t bytes = round_up(of[at]->n_bytes, CARD_ALIGN);
        to->bytes[at] += bytes;
        to->token_s[at] += s->bytes_s > 0 ? share * (double)bytes / s->bytes_s : 0;
        to->prompt_s[at] += s->products_s > 0 ? products / s->products_s : 0;
    }
    double bring = speeds->of[ON_CARD][matrix->rows.type].bring_bytes_s;
    to->bring_s += bring > 0 ? (double)matrix->rows.n_bytes / bring : 0;
}

/* Which item a matrix belongs to; NULL: it stays on the host. */
static place_item *item_of(const model *m, const plan *p, const model_matrix *matrix,
                           place_facts *f, double *share)
{
    int32_t at = outline_find_step(p, matrix->target);
    int32_t layer = at >= 0 ? p->steps[at].layer : -1;
    bool is_experts = at >= 0 && step_has_experts(&p->steps[at]);
    const model_config *c = &m->config;
    *share = is_experts && c->n_experts > 0 ? (double)c->n_experts_used / c->n_experts : 1;
    if (layer >= 0)
        return is_experts ? &f->layers[layer].experts : &f->layers[layer].rest;
    if (outline_is_in_front(p, at) && !matrix->rows.is_table)
        return &f->layers[0].rest;
    return matrix->target == &m->output ? &f->output : NULL;
}

/* Attention, and the states of the tokens that room is left for, in one sequence. */
static void add_states(const model *m, const model_speeds *speeds, int32_t n_tokens,
                       const states *kv, place_facts *f)
{
    for (int32_t i = 0; i < m->config.n_layers; i++) {
        const layer_memory *l = &kv->layers[i];
        uint64_t rows = (uint64_t)l->kv.n_heads * (uint64_t)n_tokens;
        if (l->kind & STATE_PAGED) {
            f->layers[i].state_bytes +=
                rows * (l->kv.row_bytes + (l->kv.v_in_k ? 0 : l->kv.v_row_bytes));
            f->layers[i].attend_s = speeds->attend_s[ON_HOST];
            /* q, k and v, and what comes of them */
            f->layers[i].attend_bytes =
                2 * sizeof(float) *
                (uint64_t)(config_q_width(&m->config, i) + config_kv_width(&m->config, i));
        }
        f->layers[i].state_bytes += (1 + SLOT_KEPT) * l->recurrent.n_bytes;
    }
}

lace_status model_weigh(model *m, device *card, const model_speeds *speeds, int32_t n_tokens,
                        place_facts *out, lace_error *err)
{
    states_options options = {.type = DTYPE_F16,
                              .v_type = DTYPE_F16,
                              .n_sequences = 1,
                              .n_context = n_tokens,
                              .n_batch = 1};
    plan *p = NULL;
    states *kv = NULL;
    out->n_layers = m->config.n_layers;
    out->host_bytes = m->memory.used + (m->table_rows.is_shared ? 0 : m->table_rows.n_bytes);
    out->border_bytes = 2 * sizeof(float) * (uint64_t)m->config.n_embd;
    lace_status status = outline_create(m, &p, err);
    if (status == LACE_OK)
        status = model_states(m, &options, &kv, err);
    if (status == LACE_OK)
        add_states(m, speeds, n_tokens, kv, out);
    for (int32_t i = 0; status == LACE_OK && i < m->n_matrices; i++) {
        model_matrix matrix = m->matrices[i];
        double share;
        place_item *item = item_of(m, p, &matrix, out, &share);
        weight on_card;
        matrix.rows.kept = matrix.rows.is_table ? matrix.rows.type : matrix_kept_as(card, &matrix);
        status = device_place(card, &matrix.rows, &on_card, err);
        if (status == LACE_OK && item)
            add_matrix(item, &matrix, &on_card, speeds, share);
        else
            out->host_bytes += matrix.rows.n_bytes;
    }
    states_free(kv);
    plan_free(p);
    return status;
}
