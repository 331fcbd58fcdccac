/* Where a model runs: one device, or several. */
#include "engine/placing.h"

#include <stdio.h>
#include <string.h>

#include "backend/mixed.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "model/weigh.h"
#include "place/place_file.h"
#include "runner/runner.h"

_Static_assert((int)DEVICE_NAME_BYTES == (int)PLACE_NAME_BYTES, "a card's name fits");

enum { USUAL_TOKENS = 4096, USUAL_BATCH = 512, USUAL_OUTPUTS = 32, TRIES = 8 };

/* Where nobody has measured: a card reads and multiplies about as much faster as cards do. */
static const type_speed usual_host = {.bytes_s = 40e9, .products_s = 0.4e12};
static const type_speed usual_card = {.bytes_s = 400e9, .products_s = 20e12};
static const double usual_host_step_s = 4e-6, usual_card_step_s = 3e-6;
static const double usual_switch_s = 25e-6, usual_link_bytes_s = 12e9;

lace_status placing_begin(placing *p, const char *said, const device_options *o, lace_error *err)
{
    *p = (placing){0};
    TRY(place_rules_parse(said ? said : "cpu", &p->rules, err));
    bool is_auto = strcmp(p->rules.devices, "auto") == 0;
    bool has_all = true, has_card = false;
    if (is_auto && !o->has_columns) {
        char card[DEVICE_NAME_BYTES];
        has_card = device_find_card(o, card, &has_all);
        if (has_card)
            memcpy(p->rules.devices, card, sizeof card);
    }
    if (is_auto && !has_card) { /* rules for cards say nothing then */
        p->rules = (place_rules){.devices = "cpu", .layers = -1, .host_experts = -1};
        has_all = true;
    }
    bool is_plain = place_rules_are_plain(&p->rules);
    /* A card of which a part may be used is asked whether that is enough, like one without room. */
    bool is_limited = p->rules.card_bytes > 0 && strcmp(p->rules.devices, "cpu") != 0;
    bool is_whole = is_plain && !is_limited && (!is_auto || has_all);
    snprintf(p->name, sizeof p->name, "%.31s", is_whole ? p->rules.devices : "cpu");
    if (is_plain && strlen(p->rules.devices) >= sizeof p->name)
        return error_set(err, LACE_E_ARG, "device \"%.60s\", which is no name of one",
                         p->rules.devices);
    p->where.n_devices = is_whole ? 0 : is_plain ? -1 : 1; /* -1: to be chosen */
    return LACE_OK;
}

/* ---- By rules, or as a file says ------------------------------------------------------------- */

static lace_status read_file(const char *path, placement *out, lace_error *err)
{
    enum { MAX_BYTES = 1 << 20 };
    buf bytes;
    buf_init(&bytes, MAX_BYTES);
    lace_status status = file_read(path, &bytes, err);
    if (status == LACE_OK) {
        status = placement_read((span){(const uint8_t *)bytes.data, bytes.size}, out, err);
        if (status != LACE_OK)
            error_prefix(err, status, path);
    }
    buf_deinit(&bytes);
    return status;
}

/* ---- By itself ------------------------------------------------------------------------------- */

/* What a session of the usual kind takes of each device; the states of n_tokens. */
static lace_status measure_need(model *m, int32_t n_tokens, uint64_t need[DEVICES_MAX],
                                lace_error *err)
{
    bool is_encoder = m->config.encoder.is_on;
    int32_t n_context = n_tokens < m->config.n_context ? n_tokens : m->config.n_context;
    runner_options o = {.n_sequences = (int32_t)divide_up(n_tokens, n_context),
                        .n_context = n_context,
                        .n_batch = is_encoder ? n_context : USUAL_BATCH,
                        .n_outputs = USUAL_OUTPUTS,
                        .n_threads = cpu_count(),
                        .kv_type = DTYPE_F16,
                        .v_type = DTYPE_F16,
                        .stops_at_hidden = is_encoder};
    runner *r;
    TRY(runner_outline(m, &o, &r, err));
    for (int32_t d = 0; d < device_n_parts(m->device); d++)
        need[d] = device_part(m->device, d)->weight_bytes + states_bytes_on(r->states, d) +
                  program_bytes_on(r->program, d);
    runner_free(r);
    return LACE_OK;
}

static void write_note(placing *p, const place_forms *forms, uint64_t free_bytes)
{
    const place_form *all = &forms->forms[1], *form = &forms->forms[forms->chosen];
    p->note[0] = 0;
    if (form == all)
        return;
    const double mib = 1024.0 * 1024.0;
    char what[96];
    if (form->host_experts > 0)
        snprintf(what, sizeof what, "experts of %d of %d layers stay in RAM, the rest is on it",
                 form->host_experts, p->where.n_layers);
    else if (form->layers_on_card > 0 || form->has_output_on_card)
        snprintf(what, sizeof what, "the last %d of %d layers%s are on it", form->layers_on_card,
                 p->where.n_layers, form->has_output_on_card ? " and the output" : "");
    else
        snprintf(what, sizeof what, "the model runs on the CPU");
    snprintf(p->note, sizeof p->note, "%.31s has %.0f MiB free, the model needs %.0f MiB there: %s",
             p->rules.devices, (double)free_bytes / mib, (double)all->card_bytes / mib, what);
}

/* The best form that fits into `room` bytes of the card. */
static lace_status choose_form(placing *p, model *m, uint64_t room, const device_options *o,
                               place_forms *out, lace_error *err)
{
    place_facts *f = mem_calloc(1, sizeof *f);
    device *card = NULL;
    model_speeds speeds = model_speeds_alike(&usual_host, &usual_card);
    int32_t n_tokens = p->rules.n_tokens ? p->rules.n_tokens : USUAL_TOKENS;
    lace_status status =
        f ? device_open(p->rules.devices, o, &card, err) : error_nomem(err, "a placement");
    if (status == LACE_OK)
        status = model_weigh(m, card, &speeds, n_tokens, f, err);
    if (status == LACE_OK) {
        f->card_free = room;
        f->switch_s = usual_switch_s;
        f->link_bytes_s = usual_link_bytes_s;
        f->step_s[ON_HOST] = usual_host_step_s;
        f->step_s[ON_CARD] = usual_card_step_s;
        f->streams = card->backend->place_streamed != NULL;
        f->n_prompt = 512;
        f->n_write = 128;
        place_forms_find(f, PLACE_LATENCY, out);
    }
    device_close(card);
    mem_free(f);
    return status;
}

/*
 * Forms count weights and states; what programs take beside them is known when the model is spread.
 * So a form that turns out to be too large is chosen again with less room.
 */
static lace_status choose(placing *p, model *m, const device_options *o, lace_error *err)
{
    device_info info = {0};
    device *card;
    TRY(device_open(p->rules.devices, o, &card, err));
    lace_status status = device_describe(card, &info, err);
    device_close(card);
    TRY(status);
    if (p->rules.card_bytes > 0 && p->rules.card_bytes < info.free_bytes)
        info.free_bytes = p->rules.card_bytes;
    uint64_t free_bytes =
        info.free_bytes > info.loading_bytes ? info.free_bytes - info.loading_bytes : 0;
    uint64_t room = free_bytes;
    int32_t n_tokens = p->rules.n_tokens ? p->rules.n_tokens : USUAL_TOKENS;
    if (p->rules.n_tokens == 0 && m->config.n_context < n_tokens)
        n_tokens = m->config.n_context;
    p->rules.n_tokens = n_tokens;
    for (int i = 0; i < TRIES; i++) {
        place_forms forms;
        uint64_t need[DEVICES_MAX] = {0};
        TRY(choose_form(p, m, room, o, &forms, err));
        TRY(placement_init(&p->where, p->rules.devices, m->config.n_layers, err));
        place_form_apply(&forms.forms[forms.chosen], &p->where);
        p->where.stream_tokens = p->rules.stream_tokens;
        write_note(p, &forms, info.free_bytes);
        TRY(model_spread(m, &p->where, o, err));
        TRY(measure_need(m, n_tokens, need, err));
        if (need[1] <= free_bytes)
            return LACE_OK;
        uint64_t over = need[1] - free_bytes;
        room = room > over ? room - over : 0;
    }
    placement_last_layers(&p->where, 0, NULL);
    snprintf(p->note, sizeof p->note,
             "%.31s has too little memory for a part of the model: it runs on the CPU",
             p->rules.devices);
    return model_spread(m, &p->where, o, err);
}

lace_status placing_end(placing *p, model *m, const device_options *o, lace_error *err)
{
    if (p->where.n_devices == 0)
        return LACE_OK;
    if (p->where.n_devices < 0)
        return choose(p, m, o, err);
    if (p->rules.file[0])
        TRY(read_file(p->rules.file, &p->where, err));
    else
        TRY(place_rules_apply(&p->rules, m->config.n_layers, &p->where, err));
    return placement_uses_cards(&p->where) ? model_spread(m, &p->where, o, err) : LACE_OK;
}
