/* Numbers to the device, choices and logits back. */
#include "backend/vulkan/batch_transfer.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "backend/choice_draw.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "state/states.h"

_Static_assert(offsetof(choice_rule, temperature) == 4 * RULE_TEMPERATURE &&
                   offsetof(choice_rule, top_k) == 4 * RULE_TOP_K &&
                   offsetof(choice_rule, n_edits) == 4 * RULE_N_EDITS &&
                   offsetof(choice_rule, edits) == 4 * RULE_EDITS &&
                   sizeof(choice_rule) == 4 * RULE_WORDS,
               "shaders read rules in words");
_Static_assert(ID_CHOSEN == TOKEN_CHOSEN && ID_GIVEN == TOKEN_GIVEN,
               "shaders know ids that are none");
_Static_assert(CHOOSE_REFUSED == CHOICE_REFUSED, "shaders refuse as choice.h has it");

/* Lists of numbers that a batch has: six, and its positions along each axis. */
enum {
    TOKEN_LISTS = 6 + ROPE_MAX_AXES,
    SEND_GROUPS = 8,
    SEND_MOST_GROUPS = 64,
    PARAMS_BYTES = 1024
};

static uint64_t aligned(uint64_t n)
{
    return round_up(n, 256);
}

static uint64_t n_table_entries(const transfer_options *o)
{
    return (uint64_t)o->n_groups * (uint64_t)o->n_sequences * (uint64_t)o->pages_per_sequence;
}

static int64_t n_parts(const transfer_options *o)
{
    return divide_up(o->n_vocab, CHOOSE_PART);
}

/* ---- On the device --------------------------------------------------------------------------- */

static uint64_t given_bytes(const transfer_options *o)
{
    return 4 * (uint64_t)o->max_tokens * (uint64_t)o->given_width;
}

/* Of so many rows that tokens are chosen from. */
static uint64_t parts_bytes(const transfer_options *o, int32_t n_rows)
{
    return 4 * (uint64_t)n_rows * (uint64_t)n_parts(o) * CHOOSE_PART_WORDS;
}

static uint64_t scales_bytes(const transfer_options *o)
{
    return 4 * (uint64_t)o->n_sequences * (uint64_t)o->n_adapters;
}

static uint64_t own_bytes(const transfer_options *o)
{
    return aligned(4 * TOKEN_LISTS * (uint64_t)o->max_tokens) +
           aligned(4 * (uint64_t)o->max_outputs) + aligned(4 * n_table_entries(o)) +
           aligned(given_bytes(o)) + aligned(scales_bytes(o)) +
           aligned(4 * (uint64_t)o->n_sequences);
}

uint64_t transfer_bytes(const transfer_options *o)
{
    return own_bytes(o) + parts_bytes(o, (int32_t)min_i64(o->n_sequences, o->max_outputs));
}

static void locate(transfer *t)
{
    const transfer_options *o = &t->o;
    uint64_t each = 4 * (uint64_t)o->max_tokens, at = t->memory;
    vulkan_batch *b = &t->batch;
    uint64_t *const lists[] = {&b->tokens, &b->positions, &b->sequences,
                               &b->slots,  &b->seen,      &b->segments};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        *lists[i] = at + i * each;
    b->axes = b->segments + each;
    b->axis_stride = o->max_tokens;
    b->given_width = o->given_width;
    at += aligned(TOKEN_LISTS * each);
    b->outputs = at;
    at += aligned(4 * (uint64_t)o->max_outputs);
    b->pages_per_sequence = o->pages_per_sequence;
    for (int32_t g = 0; g < o->n_groups; g++)
        b->tables[g] =
            at + 4 * (uint64_t)g * (uint64_t)o->n_sequences * (uint64_t)o->pages_per_sequence;
    at += aligned(4 * n_table_entries(o));
    b->given = at;
    at += aligned(given_bytes(o));
    b->scales = at;
    b->n_adapters = o->n_adapters;
    at += aligned(scales_bytes(o));
    t->last_tokens = at;
}

lace_status transfer_open(transfer *t, const transfer_options *o, lace_error *err)
{
    t->o = *o;
    t->v = vulkan_queue_device(o->queue);
    size_t n_sequences = (size_t)o->n_sequences, n_entries = n_table_entries(o) + 1;
    t->tables_sent = mem_alloc(n_entries * sizeof *t->tables_sent);
    t->patches = mem_calloc(2 * TRANSFER_PATCHES, sizeof *t->patches);
    t->last_chosen = mem_calloc(n_sequences, sizeof *t->last_chosen);
    t->randoms = mem_calloc(n_sequences, sizeof *t->randoms);
    t->list = mem_calloc(CHOOSE_MOST, sizeof *t->list);
    if (!t->tables_sent || !t->patches || !t->last_chosen || !t->randoms || !t->list)
        return error_nomem(err, "a program");
    memset(t->tables_sent, 0, n_entries * sizeof *t->tables_sent);
    TRY(vulkan_alloc(t->v, VULKAN_LOCAL, own_bytes(o), &t->memory, NULL, err));
    locate(t);
    return vulkan_fill(o->queue, t->memory, 0, own_bytes(o), err);
}

void transfer_close(transfer *t)
{
    if (t->v) {
        vulkan_free(t->v, t->memory);
        vulkan_free(t->v, t->parts);
    }
    mem_free_all(t->tables_sent, t->patches, t->last_chosen, t->randoms, t->list);
    *t = (transfer){0};
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* Words of the numbers that are sent, and where its parts begin. */
static uint32_t outputs_word(const transfer_place *p)
{
    return SEND_HEAD + TOKEN_LISTS * (uint32_t)p->max_tokens;
}

static uint32_t patches_word(const transfer_place *p)
{
    return outputs_word(p) + (uint32_t)p->max_outputs;
}

static uint32_t given_word(const transfer_place *p)
{
    return patches_word(p) + 2 * TRANSFER_PATCHES;
}

static uint32_t scales_word(const transfer *t, const transfer_place *p)
{
    return given_word(p) + (uint32_t)p->max_tokens * (uint32_t)t->o.given_width;
}

static uint64_t rules_byte(const transfer *t, const transfer_place *p)
{
    return aligned(4 * (uint64_t)scales_word(t, p) + scales_bytes(&t->o));
}

/* The launch that brings numbers to the device. */
static lace_status record_send(transfer *t, transfer_place *p, lace_error *err)
{
    const vulkan_batch *b = &t->batch;
    recorder r = {.v = t->v,
                  .given = {-1, -1},
                  .params = p->params,
                  .params_host = p->params_host,
                  .params_bytes = PARAMS_BYTES};
    struct send_args a = {.from = p->up,
                          .to = b->tokens,
                          .outputs = b->outputs,
                          .tables = b->tables[0],
                          .given = b->given,
                          .scales = b->scales,
                          .last_tokens = t->last_tokens,
                          .from_stride = (uint32_t)p->max_tokens,
                          .to_stride = (uint32_t)t->o.max_tokens,
                          .n_lists = TOKEN_LISTS,
                          .from_outputs = outputs_word(p),
                          .from_patches = patches_word(p),
                          .from_given = given_word(p),
                          .from_scales = scales_word(t, p)};
    TRY(vulkan_list_begin(t->o.queue, &p->send, err));
    r.list = p->send;
    record_reads_at(&r, p->up, rules_byte(t, p));
    record_reads_at(&r, t->last_tokens, 4 * (uint64_t)t->o.n_sequences);
    record_writes_at(&r, t->memory, t->last_tokens - t->memory);
    int64_t most = t->o.given_width > 0 ? SEND_MOST_GROUPS : SEND_GROUPS;
    record_launch l = {SHADER_send, .grid = {p->max_tokens > 1 ? most : 1, 1, 1}};
    TRY(record_start(&r, &l, &a, sizeof a, err));
    return record_end(&r, err);
}

lace_status transfer_place_open(transfer *t, transfer_place *p, int32_t max_tokens,
                                int32_t max_outputs, bool keeps_logits, lace_error *err)
{
    p->max_tokens = max_tokens;
    p->max_outputs = max_outputs;
    p->keeps_logits = keeps_logits;
    size_t n = (size_t)max_outputs;
    uint64_t up = rules_byte(t, p) + n * sizeof *p->rules;
    uint64_t down = aligned(4 * n) + 4 * n * CHOOSE_ROW_WORDS;
    TRY(vulkan_alloc(t->v, VULKAN_UPLOAD, up, &p->up, (void **)&p->up_host, err));
    TRY(vulkan_alloc(t->v, VULKAN_READBACK, down, &p->down, (void **)&p->down_host, err));
    TRY(vulkan_alloc(t->v, VULKAN_UPLOAD, 2 * PARAMS_BYTES, &p->params, (void **)&p->params_host,
                     err));
    p->rules = mem_calloc(n, sizeof *p->rules);
    p->words = mem_calloc(n, sizeof *p->words);
    p->sequences = mem_calloc(n, sizeof *p->sequences);
    if (!p->rules || !p->words || !p->sequences)
        return error_nomem(err, "a program");
    return record_send(t, p, err);
}

void transfer_place_close(transfer *t, transfer_place *p)
{
    vulkan_list_free(p->send);
    vulkan_list_free(p->results);
    if (t->v) {
        vulkan_free(t->v, p->up);
        vulkan_free(t->v, p->down);
        vulkan_free(t->v, p->params);
        vulkan_free(t->v, p->logits);
    }
    mem_free_all(p->rules, p->words, p->sequences);
    *p = (transfer_place){0};
}

/* ---- To the device --------------------------------------------------------------------------- */

lace_status transfer_table(transfer *t, int32_t group, int32_t sequence, const int32_t *pages,
                           int32_t n, lace_error *err)
{
    int64_t at = ((int64_t)group * t->o.n_sequences + sequence) * t->o.pages_per_sequence;
    int32_t *sent = t->tables_sent + at;
    for (int32_t i = 0; i < n; i++) {
        if (sent[i] == pages[i])
            continue;
        if (t->n_patches == TRANSFER_PATCHES) {
            /* More than a batch takes along, as when a long text is restored: wait, and write. */
            memcpy(sent + i, pages + i, (size_t)(n - i) * sizeof *sent);
            TRY(vulkan_wait(t->o.queue, err));
            t->n_patches = 0;
            return vulkan_write(t->o.queue, t->batch.tables[0], t->tables_sent,
                                4 * n_table_entries(&t->o), err);
        }
        sent[i] = pages[i];
        t->patches[2 * t->n_patches] = (int32_t)(at + i);
        t->patches[2 * t->n_patches++ + 1] = pages[i];
    }
    return LACE_OK;
}

/* The page numbers of each sequence, up to the last one that is read; without, they are there. */
static lace_status put_tables(transfer *t, const batch *b, lace_error *err)
{
    for (int32_t g = 0; b->pages && g < t->o.n_groups; g++)
        for (int32_t i = 0; i < b->n_tokens; i++) {
            if (i + 1 < b->n_tokens && b->sequences[i + 1] == b->sequences[i])
                continue;
            int32_t last = (int32_t)max_i64(b->positions[i], batch_seen(b, i) - 1);
            TRY(transfer_table(t, g, b->sequences[i], b->pages[g][i], last / PAGE_TOKENS + 1, err));
        }
    return LACE_OK;
}

static void put_lists(const transfer *t, transfer_place *p, const batch *b)
{
    size_t stride = (size_t)p->max_tokens, n = (size_t)b->n_tokens * sizeof(int32_t);
    uint32_t *to = p->up_host + SEND_HEAD;
    p->up_host[SEND_N_TOKENS] = (uint32_t)b->n_tokens;
    p->up_host[SEND_N_OUTPUTS] = (uint32_t)b->n_outputs;
    memcpy(to, b->tokens, n);
    memcpy(to + stride, b->positions, n);
    memcpy(to + SEND_SEQUENCES * stride, b->sequences, n);
    for (int32_t i = 0; i < b->n_tokens; i++) {
        to[3 * stride + (size_t)i] = b->slots ? (uint32_t)b->slots[i] : 0;
        to[4 * stride + (size_t)i] = (uint32_t)batch_seen(b, i);
        to[5 * stride + (size_t)i] = b->segments ? (uint32_t)b->segments[i] : 0;
        for (int32_t axis = 0; axis < ROPE_MAX_AXES; axis++)
            to[(size_t)(6 + axis) * stride + (size_t)i] = (uint32_t)batch_axis(b, axis, i);
    }
    if (b->n_outputs > 0)
        memcpy(p->up_host + outputs_word(p), b->outputs, (size_t)b->n_outputs * sizeof(int32_t));
    size_t n_given = b->embeddings ? (size_t)b->n_tokens * (size_t)t->o.given_width : 0;
    p->up_host[SEND_N_GIVEN] = (uint32_t)n_given;
    if (n_given > 0)
        memcpy(p->up_host + given_word(p), b->embeddings, n_given * sizeof(float));
    size_t n_scales = b->adapter_scales ? (size_t)t->o.n_sequences * (size_t)t->o.n_adapters : 0;
    p->up_host[SEND_N_SCALES] = (uint32_t)n_scales;
    if (n_scales > 0)
        memcpy(p->up_host + scales_word(t, p), b->adapter_scales, n_scales * sizeof(float));
}

/* No two of few tokens are of one sequence. */
static bool is_spread(const batch *b)
{
    for (int32_t i = 1; i < b->n_tokens; i++)
        for (int32_t k = 0; k < i; k++)
            if (b->n_tokens > RECORD_FEW || b->sequences[i] == b->sequences[k])
                return false;
    return true;
}

lace_status transfer_put(transfer *t, transfer_place *p, const batch *b, const choice_rule *rules,
                         lace_error *err)
{
    assert(b->n_tokens <= p->max_tokens && b->n_outputs <= p->max_outputs);
    p->n_tokens = b->n_tokens;
    p->n_outputs = b->n_outputs;
    p->is_spread = is_spread(b);
    p->has_adapters = b->adapter_scales && t->o.n_adapters > 0;
    assert(!p->has_adapters || b->n_adapters == t->o.n_adapters);
    p->has_rules = rules && b->n_outputs > 0;
    p->draws = p->is_read = false;
    p->number = 0;
    p->failed.status = LACE_OK;
    put_lists(t, p, b);
    for (int32_t i = 0; i < b->n_outputs; i++)
        p->sequences[i] = b->sequences[b->outputs[i]];
    if (p->has_rules) {
        size_t n = (size_t)b->n_outputs * sizeof *rules;
        memcpy(p->rules, rules, n);
        for (int32_t i = 0; i < b->n_outputs; i++) {
            choice_rule *rule = &p->rules[i];
            bool is_long = rule->temperature > 0 && (rule->top_k < 1 || rule->top_k > CHOOSE_MOST);
            rule->temperature = is_long ? -1 : rule->temperature;
            p->draws = p->draws || rule->temperature > 0;
        }
        memcpy((uint8_t *)p->up_host + rules_byte(t, p), p->rules, n);
    }
    return put_tables(t, b, err);
}

void transfer_fill_tokens(const transfer *t, transfer_place *p)
{
    uint32_t *tokens = p->up_host + SEND_HEAD;
    const uint32_t *sequences = tokens + SEND_SEQUENCES * (size_t)p->max_tokens;
    for (int32_t i = 0; i < p->n_tokens; i++)
        if ((int32_t)tokens[i] == TOKEN_CHOSEN)
            tokens[i] = (uint32_t)t->last_chosen[sequences[i]];
}

/* ---- Back ------------------------------------------------------------------------------------ */

/* Room for the logits of rows that the host chooses from. */
static lace_status need_logits(transfer *t, transfer_place *p, lace_error *err)
{
    if (!p->keeps_logits || p->n_outputs <= p->logits_rows)
        return LACE_OK;
    vulkan_list_free(p->results);
    p->results = NULL;
    vulkan_free(t->v, p->logits);
    p->logits = 0;
    p->logits_rows = 0;
    TRY(vulkan_alloc(t->v, VULKAN_READBACK, 4 * (uint64_t)p->n_outputs * (uint64_t)t->o.n_vocab,
                     &p->logits, (void **)&p->logits_host, err));
    p->logits_rows = p->n_outputs;
    return LACE_OK;
}

/* Room for the candidates of parts. Lists that know the old one are recorded anew. */
static lace_status need_parts(transfer *t, const transfer_place *p, lace_error *err)
{
    if (!p->has_rules || p->n_outputs <= t->parts_rows)
        return LACE_OK;
    TRY(vulkan_wait(t->o.queue, err));
    vulkan_free(t->v, t->parts);
    t->parts = 0;
    t->parts_rows = 0;
    TRY(vulkan_alloc(t->v, VULKAN_LOCAL, parts_bytes(&t->o, p->n_outputs), &t->parts, NULL, err));
    t->parts_rows = p->n_outputs;
    return LACE_OK;
}

static lace_status record_choose(transfer *t, transfer_place *p, recorder *r, lace_error *err)
{
    int64_t n = p->n_outputs, parts = n_parts(&t->o);
    uint64_t words_bytes = aligned(4 * (uint64_t)p->max_outputs);
    struct choose_args a = {.logits = t->o.logits,
                            .rules = p->has_rules ? p->up + rules_byte(t, p) : 0,
                            .outputs = t->batch.outputs,
                            .sequences = t->batch.sequences,
                            .last_tokens = t->last_tokens,
                            .parts = t->parts,
                            .words = p->down,
                            .candidates = p->down + words_bytes,
                            .copy = p->logits,
                            .stride = t->o.logits_stride,
                            .n_vocab = (uint32_t)t->o.n_vocab,
                            .n_parts = (uint32_t)parts};
    uint64_t logits_bytes = 4 * (uint64_t)n * t->o.logits_stride;
    uint64_t copy_bytes = p->logits ? 4 * (uint64_t)n * (uint64_t)t->o.n_vocab : 0;
    record_reads_at(r, t->o.logits, logits_bytes);
    record_writes_at(r, p->logits, copy_bytes);
    if (p->has_rules)
        record_writes_at(r, t->parts, parts_bytes(&t->o, p->n_outputs));
    record_launch part = {SHADER_choose_part, .grid = {parts, n, 1}};
    TRY(record_start(r, &part, &a, sizeof a, err));
    if (!p->has_rules)
        return LACE_OK;
    record_reads_at(r, t->o.logits, logits_bytes);
    record_reads_at(r, t->parts, parts_bytes(&t->o, p->n_outputs));
    record_writes_at(r, t->last_tokens, 4 * (uint64_t)t->o.n_sequences);
    record_writes_at(r, p->down, words_bytes + 4 * (uint64_t)n * CHOOSE_ROW_WORDS);
    record_writes_at(r, p->logits, copy_bytes);
    record_launch row = {SHADER_choose_row, .grid = {n, 1, 1}};
    return record_start(r, &row, &a, sizeof a, err);
}

/* The list of results for a batch of this shape. */
static lace_status need_results(transfer *t, transfer_place *p, lace_error *err)
{
    TRY(need_logits(t, p, err));
    TRY(need_parts(t, p, err));
    if (p->results && p->results_rows == p->n_outputs && p->results_choose == p->has_rules &&
        p->results_parts == t->parts)
        return LACE_OK;
    vulkan_list_free(p->results);
    p->results = NULL;
    recorder r = {.v = t->v,
                  .given = {-1, -1},
                  .params = p->params + PARAMS_BYTES,
                  .params_host = p->params_host + PARAMS_BYTES,
                  .params_bytes = PARAMS_BYTES};
    vulkan_list *list = NULL;
    TRY(vulkan_list_begin(t->o.queue, &list, err));
    r.list = list;
    lace_status status = record_choose(t, p, &r, err);
    if (status == LACE_OK)
        status = record_end(&r, err);
    p->results_rows = p->n_outputs;
    p->results_choose = p->has_rules;
    p->results_parts = t->parts;
    return GIVE_OR_FREE(status, list, &p->results, vulkan_list_free);
}

lace_status transfer_submit(transfer *t, transfer_place *p, vulkan_list *steps, lace_error *err)
{
    vulkan_list *lists[3] = {p->send, steps};
    int n = 2;
    if (p->n_outputs > 0) {
        TRY(need_results(t, p, err));
        lists[n++] = p->results;
    }
    memcpy(p->up_host + patches_word(p), t->patches, 8 * (size_t)t->n_patches);
    p->up_host[SEND_N_PATCHES] = (uint32_t)t->n_patches;
    t->n_patches = 0;
    return vulkan_lists_run(lists, n, &p->number, err);
}

/* From the candidates of a row. */
static int32_t draw(const transfer *t, const transfer_place *p, int32_t row)
{
    const uint32_t *from =
        p->down_host + aligned(4 * (uint64_t)p->max_outputs) / 4 + (size_t)row * CHOOSE_ROW_WORDS;
    uint32_t n = from[0];
    if (n < 1 || n > CHOOSE_MOST)
        return CHOICE_REFUSED;
    memcpy(t->list, from + 1, n * sizeof *t->list);
    return choice_draw(&p->rules[row], t->list, (int32_t)n);
}

lace_status transfer_read(transfer *t, transfer_place *p, lace_error *err)
{
    if (p->is_read)
        return LACE_OK;
    if (p->failed.status != LACE_OK)
        return error_set(err, p->failed.status, "%s", p->failed.text);
    TRY(vulkan_wait_for(t->o.queue, p->number, err));
    p->is_read = true;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        int32_t sequence = p->sequences[i];
        p->words[i] = CHOICE_REFUSED;
        if (!p->has_rules)
            continue;
        choice_rule *rule = &p->rules[i];
        if (rule->goes_on)
            memcpy(rule->random, t->randoms[sequence], sizeof rule->random);
        if (rule->temperature >= 0)
            p->words[i] = p->down_host[i] ? (int32_t)p->down_host[i] : draw(t, p, i);
        memcpy(t->randoms[sequence], rule->random, sizeof rule->random);
        t->last_chosen[sequence] =
            p->words[i] == CHOICE_REFUSED ? 0 : (p->words[i] & CHOICE_TOKEN) - 1;
    }
    return LACE_OK;
}
