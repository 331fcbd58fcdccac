/* A plan on a GPU: batches on their way to it, the launches of its steps, what comes of them. */
#include "backend/cuda/gpu_plan.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ops/op_info.h"
#include "backend/backend.h"
#include "backend/cuda/card_link.h"
#include "backend/cuda/token_ring.h"
#include "state/states.h"

/* ---- Batches --------------------------------------------------------------------------------- */

/*
 * Bring a sequence's page numbers up to date on the card, up to its page `n`: most often nothing,
 * or one page. Entries behind that are never read. What is on its way lies in the slot.
 */
static lace_status send_table(gpu_plan *gp, const gpu_slot *slot, int32_t group, int32_t sequence,
                              const int32_t *pages, int32_t n, lace_error *err)
{
    int32_t *sent = gpu_plan_table(gp, gp->tables_sent, group, sequence), first = 0;
    while (first < n && sent[first] == pages[first])
        first++;
    while (n > first && sent[n - 1] == pages[n - 1])
        n--;
    if (first == n)
        return LACE_OK;
    int32_t *from =
        gpu_plan_table(gp, slot->batch + gpu_plan_batch_head(gp->p), group, sequence) + first;
    size_t bytes = (size_t)(n - first) * sizeof *pages;
    memcpy(from, pages + first, bytes);
    memcpy(sent + first, pages + first, bytes);
    return cuda_copy_to(gp->queue, gpu_plan_table(gp, gp->tables_device, group, sequence) + first,
                        from, bytes, err);
}

/* Tokens that the host does not know are those that the card chose last. */
static lace_status fill_tokens(gpu_plan *gp, const batch *b, lace_error *err)
{
    const int32_t *sequences = gp->batch_device + 2 * (size_t)gp->p->limits.max_tokens;
    fill_tokens_params p = {.tokens = gp->batch_device,
                            .sequences = sequences,
                            .last_tokens = gp->last_tokens,
                            .n = b->n_tokens,
                            .chosen_id = TOKEN_CHOSEN};
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (b->tokens[t] == TOKEN_CHOSEN)
            return gpu_fill_tokens(gp->g, gp->queue, &p, err);
    return LACE_OK;
}

/* What tokens bring along. */
static lace_status send_given(gpu_plan *gp, const gpu_slot *slot, const batch *b, gpu_batch *out,
                              lace_error *err)
{
    if (gp->given_width == 0 || !b->embeddings)
        return LACE_OK;
    assert(b->embedding_width == 0 || b->embedding_width == gp->given_width);
    size_t n_bytes = 4 * (size_t)b->n_tokens * (size_t)gp->given_width;
    memcpy(slot->given, b->embeddings, n_bytes);
    out->given = gp->given;
    out->given_width = gp->given_width;
    return cuda_copy_to(gp->queue, gp->given, slot->given, n_bytes, err);
}

/* How much of each adapter sequences want; NULL: nobody wants any. Mostly it is known. */
static lace_status send_scales(gpu_plan *gp, const gpu_slot *slot, const float *scales,
                               lace_error *err)
{
    size_t n = (size_t)gp->n_sequences * (size_t)gp->p->limits.n_adapters;
    bool is_known = true;
    for (size_t i = 0; i < n && is_known; i++)
        is_known = gp->scales_sent[i] == (scales ? scales[i] : 0.0f);
    if (is_known)
        return LACE_OK;
    for (size_t i = 0; i < n; i++)
        gp->scales_sent[i] = slot->scales[i] = scales ? scales[i] : 0.0f;
    return cuda_copy_to(gp->queue, gp->scales, slot->scales, n * sizeof *scales, err);
}

static lace_status send_batch(gpu_plan *gp, const gpu_slot *slot, const batch *b, gpu_batch *out,
                              lace_error *err)
{
    const plan_limits *l = &gp->p->limits;
    const int32_t *sequences = b->sequences;
    int32_t *to = slot->batch;
    size_t n = (size_t)b->n_tokens * 4, max = (size_t)l->max_tokens;
    memcpy(to, b->tokens, n);
    memcpy(to + max, b->positions, n);
    memcpy(to + 2 * max, sequences, n);
    if (b->n_outputs > 0)
        memcpy(to + 3 * max, b->outputs, (size_t)b->n_outputs * 4);
    /* Behind the outputs: most batches have none of these. */
    size_t segments = 3 * max + (size_t)l->max_outputs, seen = segments + max, axes = seen + max;
    size_t n_sent = 3 * max + (size_t)b->n_outputs;
    if (b->segments) {
        memcpy(to + segments, b->segments, n);
        n_sent = segments + (size_t)b->n_tokens;
    }
    if (b->seen) {
        memcpy(to + seen, b->seen, n);
        n_sent = seen + (size_t)b->n_tokens;
    }
    if (b->axes) {
        size_t n_axes = (size_t)b->n_axes * (size_t)b->n_tokens;
        memcpy(to + axes, b->axes, 4 * n_axes);
        n_sent = axes + n_axes;
    }
    TRY(cuda_copy_to(gp->queue, gp->batch_device, to, 4 * n_sent, err));
    *out = (gpu_batch){.n_tokens = b->n_tokens,
                       .n_outputs = b->n_outputs,
                       .tokens = gp->batch_device,
                       .positions = gp->batch_device + max,
                       .sequences = gp->batch_device + 2 * max,
                       .outputs = gp->batch_device + 3 * max,
                       .segments = b->segments ? gp->batch_device + segments : NULL,
                       .seen = b->seen ? gp->batch_device + seen : NULL,
                       .axes = b->axes ? gp->batch_device + axes : NULL,
                       .n_axes = b->n_axes,
                       .pages_per_sequence = gp->pages_per_sequence,
                       .host = b,
                       .host_sequences = sequences};
    for (int32_t g = 0; g < gp->n_groups; g++) {
        out->tables[g] = gpu_plan_table(gp, gp->tables_device, g, 0);
        /* The last token of each sequence has seen all of its pages. */
        for (int32_t t = 0; t < b->n_tokens; t++)
            if (t + 1 == b->n_tokens || sequences[t + 1] != sequences[t])
                TRY(send_table(gp, slot, g, sequences[t], b->pages[g][t],
                               b->positions[t] / PAGE_TOKENS + 1, err));
    }
    TRY(send_given(gp, slot, b, out, err));
    if (b->adapter_scales && l->n_adapters > 0) {
        TRY(send_scales(gp, slot, b->adapter_scales, err));
        out->scales = gp->scales;
        out->n_adapters = b->n_adapters;
    }
    return fill_tokens(gp, b, err);
}

/* The list for a batch: one of the last few, or a new one in the place of the oldest. */
static lace_status find_list(gpu_plan *gp, const gpu_batch *b, lace_error *err)
{
    batch_shape wanted = gpu_shape_of(b);
    for (int i = 0; i < N_BATCH_LISTS; i++) {
        const batch_shape *its = &gp->batches[i].shape;
        if (its->n_tokens == wanted.n_tokens && its->n_outputs == wanted.n_outputs &&
            its->has_runs == wanted.has_runs && its->is_short == wanted.is_short) {
            gp->last_list = &gp->batches[i].list;
            return LACE_OK;
        }
    }
    gp->last_batch = (gp->last_batch + 1) % N_BATCH_LISTS;
    batch_list *to = &gp->batches[gp->last_batch];
    to->shape = (batch_shape){0};
    TRY(lower_batch(gp->p, gp->g, gp->is_exact, &wanted, &to->list, err));
    to->shape = wanted;
    gp->last_list = &to->list;
    return LACE_OK;
}

/* ns: [steps], filled if given; then each is waited for. */
static lace_status launch_batch(gpu_plan *gp, const gpu_batch *b, uint64_t *ns, lace_error *err)
{
    gp->handover.n_sums = 0;
    gpu_job j = {.g = gp->g,
                 .queue = gp->queue,
                 .batch = b,
                 .scratch = gp->scratch,
                 .scratch_bytes = gp->scratch_bytes,
                 .handover = &gp->handover,
                 .is_exact = gp->is_exact};
    uint64_t before = 0;
    if (ns) {
        TRY(cuda_wait(gp->queue, err));
        before = clock_ns();
    }
    for (int32_t i = 0; i < gp->last_list->n_steps; i++) {
        const device_step *d = &gp->last_list->steps[i];
        bool has_brought = false;
        TRY(weight_stream_bring(&gp->stream, d, &has_brought, err));
        TRY(d->launch(&j, d, err));
        if (has_brought)
            TRY(weight_stream_used(&gp->stream, err));
        if (ns) {
            TRY(cuda_wait(gp->queue, err));
            uint64_t now = clock_ns();
            ns[i] = now - before;
            before = now;
        }
    }
    return LACE_OK;
}

/* Whether a recorded token is what the batch needs: one with a row of its own is not. Of text, all axes
 * are the same behind an image. */
static bool is_single_token(const gpu_plan *gp, const batch *b)
{
    return gp->player && b->n_tokens == 1 && b->tokens[0] != TOKEN_GIVEN;
}

/* One token: as a recorded graph, or step by step. */
static lace_status launch_token(gpu_plan *gp, const gpu_slot *slot, const batch *b, uint64_t *ns,
                                lace_error *err)
{
    int32_t token = b->tokens[0], position = b->positions[0], sequence = b->sequences[0];
    int32_t turn = batch_axis(b, 0, 0) - position;
    for (int32_t g = 0; g < gp->n_groups; g++)
        TRY(send_table(gp, slot, g, sequence, b->pages[g][0], position / PAGE_TOKENS + 1, err));
    TRY(send_scales(gp, slot, b->adapter_scales, err));
    gp->last_logits = token_player_logits(gp->player);
    if (gp->border.shared)
        card_border_begin_token(&gp->border, token, position, turn, sequence);
    if (gp->border.shared && !ns)
        return token_player_part(gp->player, position, err);
    return ns ? token_player_trace(gp->player, token, position, turn, sequence, ns, err)
              : token_player_token(gp->player, token, position, turn, sequence, gp->last_tokens,
                                   err);
}

/* ---- Traces ---------------------------------------------------------------------------------- */

/* Room for the times of the list that is run next. */
static lace_status prepare_trace(gpu_plan *gp, lace_error *err)
{
    size_t n = (size_t)gp->last_list->n_steps;
    uint64_t *ns = mem_realloc(gp->ns, n * sizeof *ns);
    if (!ns)
        return error_nomem(err, "a trace");
    memset(ns, 0, n * sizeof *ns);
    gp->ns = ns;
    return LACE_OK;
}

int32_t gpu_plan_n_steps(const gpu_plan *gp)
{
    return gp->last_list ? gp->last_list->n_steps : 0;
}

gpu_plan_step gpu_plan_step_at(const gpu_plan *gp, int32_t i, const batch *b)
{
    assert(i < gpu_plan_n_steps(gp));
    const device_step *d = &gp->last_list->steps[i];
    gpu_plan_step out = {.name = d->name,
                         .layer = d->layer,
                         .first = (int32_t)(d->first - gp->p->steps),
                         .n_steps = d->n_steps,
                         .ns = gp->ns ? gp->ns[i] : 0};
    for (int32_t n = 0; n < d->n_steps; n++) {
        out.n_bytes += step_bytes(&d->first[n], b, false);
        out.n_products += step_products(&d->first[n], b);
    }
    return out;
}

/* ---- Results --------------------------------------------------------------------------------- */

static lace_status copy_logits(gpu_plan *gp, gpu_slot *slot, int32_t n, lace_error *err)
{
    for (int32_t i = 0; i < n; i++)
        slot->words[i] = CHOICE_REFUSED;
    if (gp->p->logits < 0)
        return LACE_OK;
    int64_t width = gp->p->values[gp->p->logits].width;
    if (gp->last_stride == width && n > 0)
        return cuda_copy_from(gp->queue, slot->logits, gp->last_logits,
                              4 * (uint64_t)n * (uint64_t)width, err);
    for (int32_t i = 0; i < n; i++)
        TRY(cuda_copy_from(gp->queue, slot->logits + i * width,
                           gp->last_logits + i * gp->last_stride, 4 * (uint64_t)width, err));
    return LACE_OK;
}

/* What is given out beside the logits. */
static lace_status copy_hidden(gpu_plan *gp, gpu_slot *slot, const batch *b, lace_error *err)
{
    int32_t n = plan_hidden_rows(gp->p, b);
    if (n == 0)
        return LACE_OK;
    const plan_value *v = &gp->p->values[gp->p->hidden];
    const uint8_t *from = gp->memory + v->offset;
    uint64_t stride = act_row_bytes(v->format, v->width), width = 4 * (uint64_t)v->width;
    if (stride == width)
        return cuda_copy_from(gp->queue, slot->hidden, from, (uint64_t)n * width, err);
    for (int32_t i = 0; i < n; i++)
        TRY(cuda_copy_from(gp->queue, slot->hidden + (int64_t)i * v->width,
                           from + (uint64_t)i * stride, width, err));
    return LACE_OK;
}

/* The choices of the rows that have a rule, the logits of the others. */
static lace_status choose_rows(gpu_plan *gp, gpu_slot *slot, const gpu_batch *b, int32_t n,
                               const choice_rule *rules, lace_error *err)
{
    sample_params p = {.logits = gp->last_logits,
                       .stride = gp->last_stride,
                       .n_vocab = (int32_t)gp->p->values[gp->p->logits].width,
                       .rows = gp->rules,
                       .words = gp->words,
                       .refused = slot->logits_on_card,
                       .outputs = b->outputs,
                       .sequences = b->sequences,
                       .last_tokens = gp->last_tokens,
                       .randoms = gp->randoms};
    memcpy(slot->rules, rules, (size_t)n * sizeof *rules);
    TRY(cuda_copy_to(gp->queue, gp->rules, slot->rules, (uint64_t)n * sizeof *rules, err));
    TRY(gpu_sample(gp->g, gp->queue, &p, n, err));
    return cuda_copy_from(gp->queue, slot->words, gp->words, 4 * (uint64_t)n, err);
}

/* Queue a batch; traced, every device step is waited for. */
static lace_status queue_batch(gpu_plan *gp, const batch *b, const choice_rule *rules,
                               bool is_traced, lace_error *err)
{
    const plan_value *v = gp->p->logits >= 0 ? &gp->p->values[gp->p->logits] : NULL;
    gpu_slot *slot = &gp->slots[gp->n_submitted % PROGRAM_SLOTS];
    assert(gp->n_submitted - gp->n_collected < PROGRAM_SLOTS);
    gp->last_logits = v ? (const float *)(gp->memory + v->offset) : NULL;
    gp->last_stride = v ? (int64_t)act_row_bytes(v->format, v->width) / 4 : 0;
    bool is_token = is_single_token(gp, b);
    gpu_batch sent;
    const gpu_batch *on_card = is_token ? token_player_batch(gp->player) : &sent;
    if (is_token) {
        gp->last_list = token_player_list(gp->player);
    } else {
        TRY(send_batch(gp, slot, b, &sent, err));
        TRY(find_list(gp, on_card, err));
    }
    if (is_traced)
        TRY(prepare_trace(gp, err));
    uint64_t *ns = is_traced ? gp->ns : NULL;
    TRY(is_token ? launch_token(gp, slot, b, ns, err) : launch_batch(gp, on_card, ns, err));
    TRY(rules && gp->can_sample && b->n_outputs > 0
            ? choose_rows(gp, slot, on_card, b->n_outputs, rules, err)
            : copy_logits(gp, slot, b->n_outputs, err));
    TRY(copy_hidden(gp, slot, b, err));
    slot->n_outputs = b->n_outputs;
    gp->n_submitted++;
    return cuda_event_record(slot->done, gp->queue, err);
}

lace_status gpu_plan_submit(gpu_plan *gp, const batch *b, const choice_rule *rules, lace_error *err)
{
    return queue_batch(gp, b, rules, false, err);
}

lace_status gpu_plan_collect(gpu_plan *gp, lace_error *err)
{
    assert(gp->n_collected < gp->n_submitted);
    TRY(cuda_event_wait(gp->slots[gp->n_collected++ % PROGRAM_SLOTS].done, err));
    return card_link_check(gp->g->link, err);
}

/* A part's single token: what crosses is fetched and brought by the launches themselves. */
static lace_status run_part_token(gpu_plan *gp, const batch *b, bool is_traced, lace_error *err)
{
    gp->last_list = token_player_list(gp->player);
    if (is_traced)
        TRY(prepare_trace(gp, err));
    TRY(launch_token(gp, &gp->slots[0], b, is_traced ? gp->ns : NULL, err));
    return card_border_wait_token(&gp->border, err);
}

lace_status gpu_plan_run(gpu_plan *gp, const batch *b, const choice_rule *rules, bool is_traced,
                         lace_error *err)
{
    if (gp->border.shared && is_single_token(gp, b))
        return run_part_token(gp, b, is_traced, err);
    TRY(card_border_send(&gp->border, b, err));
    TRY(queue_batch(gp, b, rules, is_traced, err));
    TRY(card_border_fetch(&gp->border, b, err));
    TRY(gpu_plan_collect(gp, err));
    if (gp->stream.uploader) /* all is over: whether something could not be put into tiles */
        TRY(gpu_uploader_wait(gp->stream.uploader, err));
    return card_border_finish(&gp->border, b, err);
}

/* The one that was collected last. */
static const gpu_slot *last_slot(const gpu_plan *gp)
{
    return &gp->slots[(gp->n_collected + PROGRAM_SLOTS - 1) % PROGRAM_SLOTS];
}

int32_t gpu_plan_word(const gpu_plan *gp, int32_t row)
{
    assert(row < last_slot(gp)->n_outputs);
    return last_slot(gp)->words[row];
}

const float *gpu_plan_logits(const gpu_plan *gp, int32_t row)
{
    const gpu_slot *slot = last_slot(gp);
    assert(row < slot->n_outputs);
    return slot->logits + (uint64_t)row * (uint64_t)gp->p->values[gp->p->logits].width;
}

const float *gpu_plan_hidden(const gpu_plan *gp, int32_t row)
{
    return last_slot(gp)->hidden + (int64_t)row * gp->p->values[gp->p->hidden].width;
}

lace_status gpu_plan_warm_up(gpu_plan *gp, lace_error *err)
{
    return gp->player ? token_player_warm_up(gp->player, gp->can_sample, err) : LACE_OK;
}

/* ---- Ahead ----------------------------------------------------------------------------------- */

bool gpu_plan_chooses(const gpu_plan *gp)
{
    return gp->can_sample && gp->player;
}

lace_status gpu_plan_begin(gpu_plan *gp, const ahead_start *start, const choice_rule *rule,
                           lace_error *err)
{
    TRY(cuda_wait(gp->queue, err)); /* what was sent before is there */
    TRY(send_scales(gp, &gp->slots[0], start->adapter_scales, err));
    return token_player_begin(gp->player, start, rule, err);
}

lace_status gpu_plan_ahead(gpu_plan *gp, const int32_t *const *pages, int32_t sequence,
                           int32_t position, lace_error *err)
{
    for (int32_t g = 0; g < gp->n_groups; g++)
        TRY(send_table(gp, &gp->slots[0], g, sequence, pages[g], position / PAGE_TOKENS + 1, err));
    return token_player_ahead(gp->player, position, err);
}

lace_status gpu_plan_next(gpu_plan *gp, int32_t *word, lace_error *err)
{
    return token_player_next(gp->player, word, err);
}
