/* The forms of a model on this machine, measured. */
#include <string.h>

#include "backend/mixed.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/placed.h"
#include "runner/measure.h"

enum { USUAL_TOKENS = 4096 };

static lace_status measure(model *m, const device_options *o, uint64_t card_bytes,
                           int32_t n_threads, int32_t n_tokens, place_survey *s, lace_error *err)
{
    model_speeds *speeds = mem_calloc(1, sizeof *speeds);
    pool *workers = NULL;
    device *card = NULL;
    device_info info = {0};
    lace_status status =
        speeds ? pool_create(n_threads, &workers, err) : error_nomem(err, "a measurement");
    if (status == LACE_OK)
        status = measure_types(m, "cpu", o, workers, speeds->of[ON_HOST], err);
    if (status == LACE_OK)
        status = measure_experts(m, o, workers, &speeds->experts[ON_HOST], err);
    if (status == LACE_OK)
        status =
            measure_attention(m, o, workers, s->facts.n_prompt, &speeds->attend_s[ON_HOST], err);
    if (status == LACE_OK)
        status = measure_types(m, s->card, o, workers, speeds->of[ON_CARD], err);
    if (status == LACE_OK)
        status = measure_link(s->card, o, &s->facts.link_bytes_s, &s->facts.switch_s, err);
    if (status == LACE_OK)
        status = measure_step("cpu", o, workers, &s->facts.step_s[ON_HOST], err);
    if (status == LACE_OK)
        status = measure_step(s->card, o, workers, &s->facts.step_s[ON_CARD], err);
    if (status == LACE_OK)
        status = device_open(s->card, o, &card, err);
    for (int t = 0; status == LACE_OK && t < DTYPE_COUNT; t++) /* what nobody could measure */
        if (speeds->of[ON_CARD][t].bring_bytes_s == 0)
            speeds->of[ON_CARD][t].bring_bytes_s = s->facts.link_bytes_s;
    s->facts.streams = card && card->backend->place_streamed && !card->is_host;
    if (status == LACE_OK)
        status = device_describe(card, &info, err);
    if (status == LACE_OK)
        status = model_weigh(m, card, speeds, n_tokens, &s->facts, err);
    if (card_bytes > 0 && card_bytes < info.free_bytes)
        info.free_bytes = card_bytes;
    s->facts.card_free =
        info.free_bytes > info.loading_bytes ? info.free_bytes - info.loading_bytes : 0;
    device_close(card);
    pool_free(workers);
    mem_free(speeds);
    return status;
}

lace_status place_survey_make(lace_model *lm, const char *card, uint64_t card_bytes,
                              place_goal goal, int32_t n_tokens, int32_t n_threads,
                              place_survey *out, lace_error *err)
{
    device_options o = {.level = cpu_level_detect()};
    bool has_all;
    memset(out, 0, sizeof *out);
    if (card && strlen(card) < sizeof out->card)
        memcpy(out->card, card, strlen(card) + 1);
    else if (card || !device_find_card(&o, out->card, &has_all))
        return error_set(err, LACE_E_DEVICE,
                         "there is no card here; --device NAME names one, --what-if computes for "
                         "machines that are not here");
    out->facts.n_prompt = 512;
    out->facts.n_write = 128;
    TRY(measure(lm->m, &o, card_bytes, n_threads ? n_threads : cpu_count(),
                n_tokens ? n_tokens : USUAL_TOKENS, out, err));
    place_forms_find(&out->facts, goal, &out->forms);
    TRY(placement_init(&out->where, out->card, out->facts.n_layers, err));
    place_form_apply(&out->forms.forms[out->forms.chosen], &out->where);
    return LACE_OK;
}

lace_status place_survey_imagine(lace_model *lm, const what_if_machines *m, place_goal goal,
                                 int32_t n_tokens, place_survey *s, lace_error *err)
{
    /* Products for each byte that is read: a host's of int8, and a card's of f16. */
    const double host_products = 10, card_products = 50;
    type_speed host = {.bytes_s = m->read_bytes_s, .products_s = host_products * m->read_bytes_s};
    type_speed card = {.bytes_s = m->card_bytes_s, .products_s = card_products * m->card_bytes_s};
    device_options o = {.level = cpu_level_detect(), .mode = WEIGHTS_IN_PLACE};
    model_speeds *speeds = mem_alloc(sizeof *speeds);
    device *any = NULL;
    memset(s, 0, sizeof *s);
    memcpy(s->card, "card", 5);
    lace_status status = speeds ? device_open("cpu", &o, &any, err) : error_nomem(err, "a survey");
    if (status == LACE_OK) {
        *speeds = model_speeds_alike(&host, &card);
        status =
            model_weigh(lm->m, any, speeds, n_tokens ? n_tokens : USUAL_TOKENS, &s->facts, err);
    }
    device_close(any);
    mem_free(speeds);
    TRY(status);
    what_if_facts(m, &s->facts);
    place_forms_find(&s->facts, goal, &s->forms);
    return LACE_OK;
}

void place_describe_model(const lace_model *lm, what_if_model *out)
{
    const model *m = lm->m;
    const model_config *c = &m->config;
    double used = c->n_experts > 0 ? (double)c->n_experts_used / c->n_experts : 1;
    *out =
        (what_if_model){.n_layers = c->n_layers,
                        .n_embd = c->n_embd,
                        .n_heads_values = (double)c->n_heads * c->head_dim,
                        .n_ff_values = c->n_experts > 0 ? (double)c->n_ff_expert * c->n_experts_used
                                                        : (double)c->n_ff};
    for (int32_t i = 0; i < m->n_matrices; i++) {
        const model_matrix *matrix = &m->matrices[i];
        bool is_expert = matrix->source->shape.n_dims == 3;
        if (!matrix->rows.is_table)
            out->token_bytes += (double)matrix->rows.n_bytes * (is_expert ? used : 1);
    }
}
