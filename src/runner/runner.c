/* A model, the states of its sequences, and its plan as a program. */
#include "runner/runner.h"

#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "plan/adapt.h"
#include "plan/cut.h"
#include "runner/leader.h"
#include "tensor/cache_row.h"

/* ---- Outline --------------------------------------------------------------------------------- */

lace_status runner_compile(const runner *r, const plan_limits *limits, runner_build *build,
                           program **out, lace_error *err)
{
    program_options options = {.n_sequences = r->options.n_sequences,
                               .pages_per_sequence = r->states->pages_per_sequence,
                               .n_groups = r->states->n_groups};
    plan *p;
    TRY(plan_create(limits, &p, err));
    build(r->m, p, r->states->layers);
    if (r->m->ranks && p->status == LACE_OK)
        plan_cut(p, r->m->ranks);
    lace_status status = plan_check(p, err);
    if (status == LACE_OK)
        status = device_compile(r->m->device, p, &options, out, err);
    if (status == LACE_OK)
        (*out)->exchange_bytes = p->exchange_bytes;
    plan_free(p);
    return status;
}

/* The model with its adapters. What predicts further tokens only guesses, and has none. */
static void build_adapted(const model *m, plan *p, const layer_memory *memory)
{
    model_build(m, p, memory);
    plan_adapt(p);
}

static lace_status create_program(runner *r, lace_error *err)
{
    const runner_options *o = &r->options;
    plan_limits limits = {.max_tokens = o->n_batch,
                          .max_outputs = (int32_t)min_i64(o->n_outputs, o->n_batch),
                          .n_context = o->n_context,
                          .n_workers = o->n_threads,
                          .stops_at_hidden = o->stops_at_hidden,
                          .wants_scores = o->wants_scores,
                          .gives_hidden = o->gives_hidden,
                          .n_deep = o->n_deep,
                          .n_adapters = r->n_adapters,
                          .given_width = o->row_width};
    return runner_compile(r, &limits, build_adapted, &r->program, err);
}

/* Not every device reads every KV cache. */
static lace_status check_cache_types(const model *m, const runner_options *o, lace_error *err)
{
    device_info info = {0};
    TRY(device_describe(m->device, &info, err));
    bool is_usual = o->kv_type == o->v_type && cache_span(o->kv_type, 32) == 0;
    if (is_usual || info.has_all_caches)
        return LACE_OK;
    return error_set(
        err, LACE_E_UNSUPPORTED,
        "a KV cache of keys as %s and values as %s is for the CPU (--device cpu); this "
        "device reads f32, f16 and q8_0, keys and values alike",
        dtype_describe(o->kv_type)->name, dtype_describe(o->v_type)->name);
}

lace_status runner_outline(model *m, const runner_options *o, runner **out, lace_error *err)
{
    *out = NULL;
    TRY(check_cache_types(m, o, err));
    runner *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, "a session");
    r->m = m;
    r->options = *o;
    r->n_adapters = m->n_adapters;
    states_options options = {.type = o->kv_type,
                              .v_type = o->v_type,
                              .n_sequences = o->n_sequences,
                              .n_context = o->n_context,
                              .n_batch = o->n_batch,
                              .n_snapshots = SLOT_KEPT * o->n_sequences,
                              .max_tokens = o->kv_tokens,
                              .max_bytes = o->kv_bytes};
    lace_status status = model_states(m, &options, &r->states, err);
    if (status == LACE_OK)
        status = create_program(r, err);
    return GIVE_OR_FREE(status, r, out, runner_free);
}

uint64_t runner_bytes(const runner *r)
{
    return r->program->n_bytes;
}

int64_t runner_width(const runner *r)
{
    const model_config *c = &r->m->config;
    return r->options.wants_scores      ? c->encoder.n_classes
           : r->options.stops_at_hidden ? c->n_embd
                                        : c->n_vocab;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* What images need; nothing where sequences have none. */
static bool allocate_images(runner *r)
{
    size_t n = (size_t)r->options.n_batch, width = (size_t)r->options.row_width;
    return (r->images = mem_calloc((size_t)r->options.n_sequences, sizeof *r->images)) &&
           (width == 0 || ((r->axes = mem_calloc(3 * n, sizeof *r->axes)) &&
                           (r->given = mem_calloc(n * width, sizeof *r->given))));
}

static lace_status allocate_arrays(runner *r, lace_error *err)
{
    size_t n = (size_t)r->options.n_batch, n_sequences = (size_t)r->options.n_sequences;
    bool ok = (r->tokens = mem_calloc(n, sizeof *r->tokens)) &&
              (r->positions = mem_calloc(n, sizeof *r->positions)) &&
              (r->outputs = mem_calloc(n, sizeof *r->outputs)) &&
              (r->sequences = mem_calloc(n, sizeof *r->sequences)) &&
              (r->slots = mem_calloc(n, sizeof *r->slots)) &&
              (r->seen = mem_calloc(n, sizeof *r->seen)) &&
              (r->segments = mem_calloc(n, sizeof *r->segments)) &&
              (r->new_lengths = mem_calloc(n_sequences, sizeof *r->new_lengths)) &&
              (r->adapter_scales = mem_calloc(n_sequences * (size_t)r->n_adapters + 1,
                                              sizeof *r->adapter_scales)) &&
              allocate_images(r);
    for (int32_t g = 0; ok && g < r->states->n_groups; g++)
        ok = (r->pages[g] = mem_calloc(n, sizeof *r->pages[g])) != NULL;
    if (!ok)
        return error_nomem(err, "a session");
    r->b = (batch){.tokens = r->tokens,
                   .positions = r->positions,
                   .sequences = r->sequences,
                   .outputs = r->outputs,
                   .pages = (const int32_t *const *const *)r->pages,
                   .slots = r->slots,
                   .n_adapters = r->n_adapters};
    if (r->m->config.encoder.is_on) {
        r->b.seen = r->seen;
        r->b.segments = r->segments;
    }
    return LACE_OK;
}

lace_status runner_prepare_program(const runner *r, program *p, lace_error *err)
{
    uint8_t *pages[STATES_MAX_GROUPS] = {0}, *recurrent[DEVICES_MAX];
    for (int32_t g = 0; g < r->states->n_groups; g++)
        pages[g] = r->states->groups[g].data;
    for (int32_t d = 0; d < DEVICES_MAX; d++)
        recurrent[d] = r->states->slots.parts[d].data;
    if (r->m->ranks)
        TRY(ranks_reserve(r->m->ranks, p->exchange_bytes, err));
    program_memory memory = {.queue = r->leader ? leader_inner_queue(r->leader) : r->queue,
                             .workers = r->workers,
                             .pages = pages,
                             .slots = recurrent};
    TRY(program_prepare(p, &memory, err));
    if (r->m->ranks) /* rank 0's host chooses, from what all have computed */
        p->chooses = p->queues = false;
    return LACE_OK;
}

lace_status runner_prepare_alone(runner *r, lace_progress_fn on_progress, void *user,
                                 lace_error *err)
{
    TRY(pool_create(r->options.n_threads, &r->workers, err));
    TRY(device_open_queue(r->m->device, &r->queue, err));
    if (r->leader)
        r->queue = leader_queue(r->leader, r->queue);
    TRY(states_allocate(r->states, r->queue, err));
    TRY(allocate_arrays(r, err));
    TRY(model_load(r->m, r->workers, on_progress, user, err));
    return runner_prepare_program(r, r->program, err);
}

lace_status runner_prepare(runner *r, lace_progress_fn on_progress, void *user, lace_error *err)
{
    if (!r->m->ranks)
        return runner_prepare_alone(r, on_progress, user, err);
    ranks *others = r->m->ranks;
    pthread_mutex_lock(&others->lock);
    lace_status status = leader_open(r, &r->leader, err);
    if (status == LACE_OK)
        status = ranks_agree(others, runner_prepare_alone(r, on_progress, user, err), err);
    pthread_mutex_unlock(&others->lock);
    return status;
}

void runner_free(runner *r)
{
    if (!r)
        return;
    program_free(r->program);
    pool_free(r->workers);
    states_free(r->states);
    queue_close(r->queue);
    leader_close(r->leader);
    for (int32_t g = 0; g < STATES_MAX_GROUPS; g++)
        mem_free(r->pages[g]);
    mem_free_all(r->tokens, r->positions, r->outputs, r->sequences, r->slots, r->seen, r->segments,
                 r->new_lengths, r->adapter_scales, r->axes, r->given, r->images, r);
}

/* ---- Images ---------------------------------------------------------------------------------- */

const image_span *image_at(const image_list *list, int32_t position)
{
    for (int32_t i = 0; i < list->n; i++)
        if (position >= list->spans[i].start && position - list->spans[i].start < list->spans[i].n)
            return &list->spans[i];
    return NULL;
}

/*
 * Where a token stands in time, in height and in width. An image takes one moment, and as much of
 * the others as its grid is long; what follows it begins behind the longer side.
 */
static void find_axes(const image_list *list, int32_t position, int32_t out[3])
{
    int32_t saved = 0;
    for (int32_t i = 0; i < list->n; i++) {
        const image_span *s = &list->spans[i];
        int32_t at = position - s->start;
        if (at < 0)
            break;
        if (at < s->n) {
            out[0] = s->start - saved;
            out[1] = out[0] + at / s->n_cols;
            out[2] = out[0] + at % s->n_cols;
            return;
        }
        saved += s->n - (s->n_rows > s->n_cols ? s->n_rows : s->n_cols);
    }
    out[0] = out[1] = out[2] = position - saved;
}

/* What a batch needs to know of the images in it, and in front of it. */
static void fill_images(runner *r)
{
    batch *b = &r->b;
    bool has_rows = false, is_shifted = false;
    b->embeddings = NULL;
    b->axes = NULL;
    b->n_axes = 0;
    if (r->options.row_width == 0)
        return;
    b->seen = NULL;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        const image_list *list = &r->images[r->sequences[t]];
        int32_t position = r->positions[t], axes[3];
        const image_span *s = image_at(list, position);
        bool is_row = s && s->rows && r->tokens[t] < IMAGE_TOKENS;
        r->seen[t] = position + 1;
        if (is_row) {
            memcpy(r->given + t * r->options.row_width,
                   s->rows + (int64_t)(position - s->start) * r->options.row_width,
                   (size_t)r->options.row_width * sizeof *r->given);
            r->tokens[t] = TOKEN_GIVEN;
            r->seen[t] = r->options.sees_both_ways ? s->start + s->n : position + 1;
        }
        find_axes(list, position, axes);
        for (int k = 0; k < 3; k++)
            r->axes[(int64_t)k * b->n_tokens + t] = axes[k];
        has_rows = has_rows || is_row;
        is_shifted = is_shifted || list->n > 0;
    }
    if (has_rows) {
        b->embeddings = r->given;
        b->embedding_width = r->options.row_width;
        b->seen = r->options.sees_both_ways ? r->seen : NULL;
    }
    if (is_shifted && r->m->rope.sections[0] > 0) {
        b->axes = r->axes;
        b->n_axes = 3;
    }
}

/* ---- Running --------------------------------------------------------------------------------- */

float *runner_adapter_scales(const runner *r, int32_t sequence)
{
    return r->adapter_scales + (size_t)sequence * (size_t)r->n_adapters;
}

static bool scales_any(const runner *r, int32_t sequence)
{
    const float *scales = runner_adapter_scales(r, sequence);
    for (int32_t a = 0; a < r->n_adapters; a++)
        if (scales[a] != 0)
            return true;
    return false;
}

/* Whether a token of the batch uses an adapter. */
static bool uses_adapters(const runner *r)
{
    for (int32_t i = 0; r->n_adapters > 0 && i < r->b.n_tokens; i++)
        if (scales_any(r, r->sequences[i]))
            return true;
    return false;
}

size_t runner_fill(runner *r, const lace_item *items, size_t n_items)
{
    const states *s = r->states;
    size_t n = n_items < (size_t)r->options.n_batch ? n_items : (size_t)r->options.n_batch;
    for (int32_t i = 0; i < r->options.n_sequences; i++)
        r->new_lengths[i] = s->sequences[i].n_tokens;
    r->b.n_tokens = (int32_t)n;
    r->b.n_outputs = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t sequence = items[i].sequence;
        r->tokens[i] = items[i].token;
        r->sequences[i] = sequence;
        r->positions[i] = r->new_lengths[sequence]++;
        r->slots[i] = states_slot(s, sequence);
        for (int32_t g = 0; g < s->n_groups; g++)
            r->pages[g][i] = s->sequences[sequence].tables[g];
        r->segments[i] = r->item_segments ? r->item_segments[i] : 0;
        if (items[i].want_logits)
            r->outputs[r->b.n_outputs++] = (int32_t)i;
    }
    for (size_t i = 0; r->m->config.encoder.is_on && i < n; i++)
        r->seen[i] = r->new_lengths[items[i].sequence];
    r->b.adapter_scales = uses_adapters(r) ? r->adapter_scales : NULL;
    if (!r->m->config.encoder.is_on)
        fill_images(r);
    return n;
}

ahead_start runner_ahead_start(const runner *r, int32_t token, int32_t position, int32_t sequence)
{
    ahead_start start = {.token = token, .position = position, .sequence = sequence};
    if (r->options.row_width > 0 && r->m->rope.sections[0] > 0) {
        int32_t axes[3];
        find_axes(&r->images[sequence], position, axes);
        start.turn = axes[0] - position;
    }
    if (scales_any(r, sequence)) {
        start.adapter_scales = r->adapter_scales;
        start.n_adapters = r->n_adapters;
    }
    return start;
}

lace_status runner_reserve(runner *r, lace_error *err)
{
    return states_reserve_all(r->states, r->new_lengths, err);
}

static void pack_more(runner *r)
{
    if (r->has_run)
        model_pack_more(r->m, r->workers);
    r->has_run = true;
}

static void set_lengths(runner *r)
{
    for (int32_t i = 0; i < r->options.n_sequences; i++)
        if (r->new_lengths[i] != r->states->sequences[i].n_tokens)
            states_set_length(r->states, i, r->new_lengths[i]);
}

lace_status runner_run(runner *r, const choice_rule *rules, bool is_traced, lace_error *err)
{
    pack_more(r);
    if (r->leader)
        TRY(leader_run(r->leader, is_traced, err));
    else
        TRY(program_run(r->program, &r->b, rules, is_traced, err));
    if (!r->m->ranks || r->leader) /* others know no lengths, only tables */
        set_lengths(r);
    return LACE_OK;
}

lace_status runner_submit(runner *r, const choice_rule *rules, lace_error *err)
{
    if (r->leader)
        return runner_run(r, NULL, false, err);
    pack_more(r);
    TRY(program_submit(r->program, &r->b, rules, err));
    set_lengths(r);
    return LACE_OK;
}

lace_status runner_collect(runner *r, lace_error *err)
{
    return r->leader ? LACE_OK : program_collect(r->program, err); /* several ranks have run it */
}
