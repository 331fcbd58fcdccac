/* The layer of a model that guesses further tokens, on the states of a runner. */
#include "runner/predictor.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"

/* ---- Life ------------------------------------------------------------------------------------ */

lace_status predictor_outline(runner *r, predictor **out, lace_error *err)
{
    assert(r->options.gives_hidden && r->m->predicting.is_bound);
    *out = NULL;
    predictor *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "a predictor");
    p->r = r;
    const runner_options *o = &r->options;
    plan_limits limits = {.max_tokens = o->n_batch,
                          .max_outputs = (int32_t)min_i64(o->n_outputs, o->n_batch),
                          .n_context = o->n_context,
                          .n_workers = o->n_threads};
    lace_status status = runner_compile(r, &limits, model_build_predicting, &p->program, err);
    return GIVE_OR_FREE(status, p, out, predictor_free);
}

static size_t row_bytes_of(const predictor *p)
{
    return (size_t)p->r->m->config.n_embd * sizeof(float);
}

uint64_t predictor_bytes(const predictor *p)
{
    const runner_options *o = &p->r->options;
    uint64_t n_rows = 2 * (uint64_t)o->n_batch + (uint64_t)o->n_sequences;
    return p->program->n_bytes + n_rows * row_bytes_of(p);
}

static bool allocate(predictor *p)
{
    size_t n = (size_t)p->r->options.n_batch, n_sequences = (size_t)p->r->options.n_sequences;
    int32_t **lists[] = {&p->waiting_tokens, &p->waiting_positions, &p->waiting_sequences,
                         &p->tokens,         &p->positions,         &p->sequences,
                         &p->outputs};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!(*lists[i] = mem_calloc(n, sizeof **lists)))
            return false;
    for (int32_t g = 0; g < p->r->states->n_groups; g++)
        if (!(p->pages[g] = mem_calloc(n, sizeof *p->pages[g])))
            return false;
    return (p->n_seen = mem_calloc(n_sequences, sizeof *p->n_seen)) &&
           (p->last_rows = mem_calloc(n_sequences, row_bytes_of(p))) &&
           (p->waiting_rows = mem_calloc(n, row_bytes_of(p))) &&
           (p->rows = mem_calloc(n, row_bytes_of(p)));
}

lace_status predictor_prepare(predictor *p, lace_error *err)
{
    if (!allocate(p))
        return error_nomem(err, "a predictor");
    p->b = (batch){.tokens = p->tokens,
                   .positions = p->positions,
                   .sequences = p->sequences,
                   .outputs = p->outputs,
                   .pages = (const int32_t *const *const *)p->pages,
                   .embeddings = p->rows};
    return runner_prepare_program(p->r, p->program, err);
}

void predictor_free(predictor *p)
{
    if (!p)
        return;
    program_free(p->program);
    for (int32_t g = 0; g < STATES_MAX_GROUPS; g++)
        mem_free(p->pages[g]);
    mem_free_all(p->waiting_tokens, p->waiting_positions, p->waiting_sequences, p->waiting_rows,
                 p->last_rows, p->n_seen, p->tokens, p->positions, p->sequences, p->outputs,
                 p->rows, p);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static float *row_of(const predictor *p, float *rows, int32_t i)
{
    return rows + (size_t)i * (size_t)p->r->m->config.n_embd;
}

void predictor_see(predictor *p)
{
    const batch *b = &p->r->b;
    assert(p->n_waiting == 0);
    p->n_waiting = b->n_tokens;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        int32_t sequence = b->sequences[i];
        p->waiting_tokens[i] = b->tokens[i];
        p->waiting_positions[i] = b->positions[i];
        p->waiting_sequences[i] = sequence;
        memcpy(row_of(p, p->waiting_rows, i), program_hidden(p->r->program, i), row_bytes_of(p));
        if (p->n_seen[sequence] > b->positions[i]) /* other tokens stand there now */
            p->n_seen[sequence] = 0;
    }
}

void predictor_forget(predictor *p, int32_t sequence)
{
    p->n_seen[sequence] = 0;
}

void predictor_copy(predictor *p, int32_t from, int32_t to)
{
    p->n_seen[to] = p->n_seen[from];
    memcpy(row_of(p, p->last_rows, to), row_of(p, p->last_rows, from), row_bytes_of(p));
}

/* Puts a row into the batch. before: as in predictor_row. */
static void add_row(predictor *p, lace_token token, int32_t sequence, int32_t position,
                    const float *before)
{
    int32_t i = p->b.n_tokens++;
    const states *s = p->r->states;
    p->tokens[i] = token;
    p->sequences[i] = sequence;
    p->positions[i] = position;
    for (int32_t g = 0; g < s->n_groups; g++)
        p->pages[g][i] = s->sequences[sequence].tables[g];
    if (!before && position > 0 && p->n_seen[sequence] == position)
        before = row_of(p, p->last_rows, sequence);
    if (before)
        memcpy(row_of(p, p->rows, i), before, row_bytes_of(p));
    else
        memset(row_of(p, p->rows, i), 0, row_bytes_of(p));
}

/* Of what is kept: the rows that their sequences still hold, each behind the one before it. */
static void add_waiting(predictor *p)
{
    for (int32_t i = 0; i < p->n_waiting; i++) {
        int32_t sequence = p->waiting_sequences[i], position = p->waiting_positions[i];
        if (position >= p->r->states->sequences[sequence].n_tokens)
            continue;
        add_row(p, p->waiting_tokens[i], sequence, position, NULL);
        memcpy(row_of(p, p->last_rows, sequence), row_of(p, p->waiting_rows, i), row_bytes_of(p));
        p->n_seen[sequence] = position + 1;
    }
    p->n_waiting = 0;
}

static lace_status run(predictor *p, lace_error *err)
{
    lace_status status =
        p->b.n_tokens > 0 ? program_run(p->program, &p->b, NULL, false, err) : LACE_OK;
    p->b.n_tokens = p->b.n_outputs = 0;
    return status;
}

lace_status predictor_settle(predictor *p, lace_error *err)
{
    add_waiting(p);
    return run(p, err);
}

lace_status predictor_ask(predictor *p, const predictor_row *rows, int32_t n, lace_error *err)
{
    assert(n <= p->r->options.n_batch);
    add_waiting(p);
    if (p->b.n_tokens + n > p->r->options.n_batch)
        TRY(run(p, err));
    for (int32_t i = 0; i < n; i++) {
        p->outputs[p->b.n_outputs++] = p->b.n_tokens;
        add_row(p, rows[i].token, rows[i].sequence, rows[i].position, rows[i].before);
    }
    return run(p, err);
}

const float *predictor_logits(const predictor *p, int32_t i)
{
    return program_logits(p->program, i);
}

const float *predictor_hidden(const predictor *p, int32_t i)
{
    return program_hidden(p->program, i);
}
