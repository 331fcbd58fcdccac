/* Walking a model over a text. */
#include "compress/walk.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "model/sparsity.h"
#include "ops/op_info.h"
#include "tensor/codec/pack.h"
#include "vocab/vocab_gguf.h"
#include "vocab/vocab_hf.h"

walk_options walk_options_default(void)
{
    return (walk_options){.n_context = 512};
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status open_tokenizer(walk *w, lace_error *err)
{
    const gguf *g = weights_gguf(w->m->files);
    if (g) {
        TRY(vocab_gguf_open(g, &w->tokenizer, err));
    } else {
        hf_tokenizer *t = NULL;
        TRY(hf_tokenizer_open(weights_name(w->m->files), weights_config(w->m->files), &t, err));
        lace_status status =
            t ? tokenizer_create(&hf_tokenizer_vocab(t)->v, &w->tokenizer, err) : LACE_OK;
        hf_tokenizer_close(t);
        TRY(status);
    }
    if (!w->tokenizer)
        return error_set(err, LACE_E_VOCAB, "the model has no vocabulary to read a text with");
    if (tokenizer_n_tokens(w->tokenizer) > (size_t)w->m->config.n_vocab)
        return error_set(err, LACE_E_VOCAB,
                         "the vocabulary has %zu tokens, but the model computes %d",
                         tokenizer_n_tokens(w->tokenizer), w->m->config.n_vocab);
    token_list special = {0};
    w->bos = -1;
    lace_status status =
        tokenizer_encode(w->tokenizer, "", 0, LACE_TOKENIZE_ADD_SPECIAL, &special, err);
    if (status == LACE_OK && special.size > 0 && special.data[0] == tokenizer_bos(w->tokenizer))
        w->bos = special.data[0];
    token_list_deinit(&special);
    return status;
}

/* One sequence of one window: all its tokens are a batch, and all have logits. */
static lace_status create_runner(walk *w, const walk_options *o, lace_error *err)
{
    int32_t n = w->n_context;
    runner_options options = {.n_sequences = 1,
                              .n_context = n,
                              .n_batch = n,
                              .n_outputs = n,
                              .n_threads = o->n_threads ? o->n_threads : cpu_count(),
                              .kv_type = DTYPE_F32,
                              .v_type = DTYPE_F32,
                              .stops_at_hidden = w->m->config.encoder.is_on};
    TRY(runner_outline(w->m, &options, &w->runner, err));
    TRY(runner_prepare(w->runner, o->on_progress, o->progress_user, err));
    w->runner->b.n_tokens = w->runner->b.n_outputs = n; /* of every window, also before the first */
    w->p = w->runner->program->lowered;
    w->workers = w->runner->workers;
    w->items = mem_calloc((size_t)n, sizeof *w->items);
    w->is_saved = mem_calloc((size_t)w->p->n_values, sizeof *w->is_saved);
    return w->items && w->is_saved ? LACE_OK : error_nomem(err, "a window");
}

lace_status walk_open(weights *files, const walk_options *o, walk **out, lace_error *err)
{
    *out = NULL;
    walk *w = mem_calloc(1, sizeof *w);
    if (!w) {
        weights_close(files);
        return error_nomem(err, "a model");
    }
    w->n_context = o->n_context;
    w->uses_int8 = o->use_int8;
    lace_status status;
    device_options options = {.level = cpu_level_detect(),
                              .mode = o->use_int8 ? WEIGHTS_PACKED : WEIGHTS_EXACT};
    TRY_GOTO(status, done, model_create(files, NULL, &options, &w->m, err));
    if (o->uses_sparsity)
        TRY_GOTO(status, done, model_use_sparsity(w->m, true, err));
    TRY_GOTO(status, done, open_tokenizer(w, err));
    TRY_GOTO(status, done, create_runner(w, o, err));
done:
    return GIVE_OR_FREE(status, w, out, walk_close);
}

void walk_close(walk *w)
{
    if (!w)
        return;
    runner_free(w->runner);
    tokenizer_free(w->tokenizer);
    model_free(w->m);
    mem_free_all(w->items, w->is_saved, w);
}

/* ---- Windows --------------------------------------------------------------------------------- */

lace_status walk_tokenize(const walk *w, const char *source, size_t n_bytes, token_list *out,
                          lace_error *err)
{
    size_t n_context = (size_t)w->n_context;
    TRY(tokenizer_encode(w->tokenizer, source, n_bytes, LACE_TOKENIZE_ADD_SPECIAL, out, err));
    if (out->size < n_context)
        return error_set(err, LACE_E_ARG,
                         "the text has %zu token%s, fewer than one window of %zu; a longer text is "
                         "needed",
                         out->size, out->size == 1 ? "" : "s", n_context);
    out->size -= out->size % n_context;
    return LACE_OK;
}

lace_status walk_begin(walk *w, const lace_token *window, lace_error *err)
{
    for (int32_t i = 0; i < w->n_context; i++)
        w->items[i] = (lace_item){.token = window[i], .want_logits = true};
    if (w->bos >= 0)
        w->items[0].token = w->bos;
    states_set_length(w->runner->states, 0, 0);
    runner_fill(w->runner, w->items, (size_t)w->n_context);
    return runner_reserve(w->runner, err);
}

void walk_run(walk *w, int32_t begin, int32_t end)
{
    program_run_steps(w->runner->program, &w->runner->b, begin, end);
}

const float *walk_logits(const walk *w, int32_t row)
{
    return program_logits(w->runner->program, row);
}

int32_t walk_end(const walk *w)
{
    return w->p->n_steps;
}

/* ---- Matrices -------------------------------------------------------------------------------- */

int32_t walk_next_matrix(const walk *w, int32_t from)
{
    while (from < w->p->n_steps && !step_has_weights(&w->p->steps[from]))
        from++;
    return from;
}

static void add_matrix(const walk *w, const weight *target, walk_matrices *out)
{
    for (int32_t i = 0; i < w->m->n_matrices; i++)
        if (w->m->matrices[i].target == target) {
            out->weights[out->n] = w->m->matrices[i].target;
            out->sources[out->n++] = &w->m->matrices[i];
            return;
        }
    assert(!"every matrix of a plan was bound");
}

void walk_matrices_view(const walk *w, int32_t step_index, walk_matrices *out)
{
    const step *s = &w->p->steps[step_index];
    *out = (walk_matrices){
        .s = s, .n_rows = step_rows(s, &w->runner->b), .n_parts = 1, .width = s->in[0].width};
    op_weight of[OP_MAX_WEIGHTS];
    int n = step_weights(s, of);
    for (int i = 0; i < n; i++)
        add_matrix(w, of[i].w, out);
    if (step_is_matmul(s))
        return;
    out->n_experts = of[0].n_experts;
    if (s->op == OP_MATMUL_HEADS) {
        out->n_parts = s->a.heads.n_heads;
        out->width = of[0].w->n_cols;
        return;
    }
    out->n_rows *= op_describe(s->op)->reads_choices ? s->a.moe.n_used : 1;
}

void walk_input_row(const walk_matrices *x, int64_t row, float *out)
{
    const operand *in = &x->s->in[0];
    const uint8_t *data = in->data + (uint64_t)row * in->stride;
    if (x->s->op == OP_MATMUL_HEADS) { /* rows of a token's heads */
        int64_t n_heads = x->s->a.heads.n_heads, head = x->width + x->s->a.heads.n_rest;
        data = (const uint8_t *)(operand_row(in, row / n_heads) + row % n_heads * head);
    }
    if (in->format == ACT_F32) {
        memcpy(out, data, (size_t)x->width * sizeof *out);
        return;
    }
    const float *d = act_q8_scales(data, x->width);
    for (int64_t i = 0; i < x->width; i++)
        out[i] = d[i / 32] * (float)((const int8_t *)data)[i];
}

int walk_row_experts(const walk_matrices *x, int64_t row, int32_t *out)
{
    if (x->s->op == OP_MATMUL_HEADS) {
        out[0] = (int32_t)(row % x->s->a.heads.n_heads);
        return 1;
    }
    int32_t n_used = x->s->a.moe.n_used;
    bool is_choice = op_describe(x->s->op)->reads_choices;
    const expert_choice *choices =
        (const expert_choice *)operand_row(&x->s->in[1], is_choice ? row / n_used : row);
    if (is_choice) {
        out[0] = choices[row % n_used].expert;
        return 1;
    }
    for (int32_t i = 0; i < n_used; i++)
        out[i] = choices[i].expert;
    return n_used;
}

bool walk_uses_int8(const walk *w)
{
    return w->uses_int8;
}

lace_status walk_weight_make(walk *w, const float *rows, int64_t n_rows, int64_t n_cols, dtype like,
                             weight *out, lace_error *err)
{
    return device_make_weight(w->m->device, rows, n_rows, n_cols, w->uses_int8 && like != DTYPE_F32,
                              w->workers, out, err);
}

void walk_weight_free(walk *w, weight *x)
{
    if (x->data)
        device_free_weight(w->m->device, x);
}

/* ---- What is alive --------------------------------------------------------------------------- */

static bool is_used_from(const walk *w, int32_t v, int32_t step_index)
{
    for (int32_t i = step_index; i < w->p->n_steps; i++)
        if (step_reads(&w->p->steps[i], v) || step_writes(&w->p->steps[i], v))
            return true;
    return false;
}

/* Marks the values that were made before a step and are used by it or later. */
static void mark_alive(const walk *w, int32_t step_index)
{
    memset(w->is_saved, 0, (size_t)w->p->n_values * sizeof *w->is_saved);
    for (int32_t i = 0; i < step_index; i++) {
        const step *s = &w->p->steps[i];
        /* Angles are the same for all windows, and are made anew. */
        for (int k = 0; k < STEP_MAX_OUT && !op_describe(s->op)->is_of_positions; k++)
            if (s->out[k].value >= 0)
                w->is_saved[s->out[k].value] = true;
    }
    for (int32_t v = 0; v < w->p->n_values; v++)
        w->is_saved[v] = w->is_saved[v] && is_used_from(w, v, step_index);
}

static bool is_same_cache(const step *a, const step *b)
{
    return op_describe(b->op)->state == OP_PAGES && a->kv.group == b->kv.group &&
           a->kv.k_offset == b->kv.k_offset;
}

/*
 * Whether step number i is the first with the pages of its layer, before a step behind which they
 * are still read: by attention of the same layer, or of a later one that shares them.
 */
static bool has_alive_pages(const walk *w, int32_t i, int32_t step_index)
{
    const step *s = &w->p->steps[i];
    if (op_describe(s->op)->state != OP_PAGES)
        return false;
    for (int32_t k = 0; k < i; k++)
        if (is_same_cache(s, &w->p->steps[k]))
            return false;
    for (int32_t k = step_index; k < w->p->n_steps; k++)
        if (is_same_cache(s, &w->p->steps[k]))
            return true;
    return false;
}

/* Pages of the window: what is to be done with each of the two parts that a layer has in it. */
typedef void part_fn(uint8_t *part, uint64_t n_bytes, void *user);

static void each_page_part(const walk *w, const kv_layer *kv, part_fn *fn, void *user)
{
    const page_group *group = &w->runner->states->groups[kv->group];
    const int32_t *table = w->runner->states->sequences[0].tables[kv->group];
    uint64_t rows = (uint64_t)kv->n_heads * (uint64_t)kv->page_tokens;
    for (int32_t i = 0; i < divide_up(w->n_context, kv->page_tokens); i++) {
        uint8_t *page = table[i] < 0 ? NULL : group->data + (uint64_t)table[i] * group->page_bytes;
        fn(page ? page + kv->k_offset : NULL, rows * kv->row_bytes, user);
        if (!kv->v_in_k)
            fn(page ? page + kv->v_offset : NULL, rows * kv->v_row_bytes, user);
    }
}

static void each_alive_part(const walk *w, int32_t step_index, part_fn *fn, void *user)
{
    mark_alive(w, step_index);
    for (int32_t v = 0; v < w->p->n_values; v++)
        if (w->is_saved[v])
            fn(w->runner->program->values + w->p->values[v].offset, w->p->values[v].n_bytes, user);
    for (int32_t i = 0; i < step_index; i++)
        if (has_alive_pages(w, i, step_index))
            each_page_part(w, &w->p->steps[i].kv, fn, user);
}

static void count_part(uint8_t *part, uint64_t n_bytes, void *user)
{
    (void)part;
    *(uint64_t *)user += n_bytes;
}

static void save_part(uint8_t *part, uint64_t n_bytes, void *user)
{
    uint8_t **to = user;
    if (part)
        memcpy(*to, part, n_bytes);
    *to += n_bytes;
}

static void restore_part(uint8_t *part, uint64_t n_bytes, void *user)
{
    const uint8_t **from = user;
    if (part)
        memcpy(part, *from, n_bytes);
    *from += n_bytes;
}

uint64_t walk_state_bytes(const walk *w, int32_t step_index)
{
    uint64_t n = 0;
    each_alive_part(w, step_index, count_part, &n);
    return n;
}

void walk_save(const walk *w, int32_t step_index, uint8_t *out)
{
    each_alive_part(w, step_index, save_part, &out);
}

void walk_restore(walk *w, int32_t step_index, const uint8_t *state)
{
    for (int32_t i = 0; i < step_index; i++)
        if (op_describe(w->p->steps[i].op)->is_of_positions &&
            is_used_from(w, w->p->steps[i].out[0].value, step_index))
            walk_run(w, i, i + 1);
    each_alive_part(w, step_index, restore_part, &state);
}
