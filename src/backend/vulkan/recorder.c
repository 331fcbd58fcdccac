/* Steps become launches, with the barriers that what they read and write asks for. */
#include "backend/vulkan/recorder.h"

#include <assert.h>
#include <string.h>

#include "backend/vulkan/vulkan_weights.h"
#include "base/numbers.h"
#include "ops/lora.h"

enum { MOST_GROUPS = 65535, PARAMS_ALIGN = 16 };

/* Workgroups that share the columns of a row, where each column is by itself. */
static int64_t parts_of(int64_t width)
{
    enum { COLUMNS = 512, MOST_PARTS = 1024 };
    return min_i64(max_i64(divide_up(width, COLUMNS), 1), MOST_PARTS);
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

static uint64_t operand_bytes(const operand *o, int64_t n_rows)
{
    return n_rows > 0 ? (uint64_t)(n_rows - 1) * o->stride + 4 * (uint64_t)o->width : 0;
}

/* What was formed of memory that is written is no more. */
static void forget_formed(recorder *r, uint64_t address, uint64_t n_bytes)
{
    for (int i = 0; i < RECORD_FORMED; i++) {
        formed_rows *f = &r->formed[i];
        if (address < f->source + f->source_bytes && f->source < address + n_bytes)
            f->n_rows = 0;
    }
}

/* An operand of a step that is recorded has been named. */
static void name(recorder *r, const operand *o)
{
    for (int32_t k = 0; k < RECORD_MOST_TAKEN && k < r->n_left; k++) {
        const step *s = r->s + k;
        if (o >= s->in && o < s->in + STEP_MAX_IN)
            r->named_in[k] |= 1u << (o - s->in);
        if (o >= s->out && o < s->out + STEP_MAX_OUT)
            r->named_out[k] |= 1u << (o - s->out);
    }
}

void record_skips(recorder *r, const operand *o, int64_t n_rows)
{
    forget_formed(r, address_of(o->data), operand_bytes(o, n_rows));
    name(r, o);
}

void record_reads(recorder *r, const operand *o, int64_t n_rows)
{
    name(r, o);
    ranges_read(&r->next, address_of(o->data), operand_bytes(o, n_rows));
}

void record_writes(recorder *r, const operand *o, int64_t n_rows)
{
    forget_formed(r, address_of(o->data), operand_bytes(o, n_rows));
    name(r, o);
    ranges_write(&r->next, address_of(o->data), operand_bytes(o, n_rows));
}

void record_reads_at(recorder *r, uint64_t address, uint64_t n_bytes)
{
    if (!vulkan_forgets(r->v))
        ranges_read(&r->next, address, n_bytes);
}

void record_writes_at(recorder *r, uint64_t address, uint64_t n_bytes)
{
    forget_formed(r, address, n_bytes);
    ranges_write(&r->next, address, n_bytes);
}

/* ---- Launches -------------------------------------------------------------------------------- */

uint64_t record_numbers(recorder *r, const void *data, uint64_t n_bytes)
{
    uint64_t at = r->params_used;
    assert(at + n_bytes <= r->params_bytes);
    memcpy(r->params_host + at, data, n_bytes);
    r->params_used = round_up(at + n_bytes, PARAMS_ALIGN);
    return r->params + at;
}

/*
 * Launches between two barriers may run in any order. Where mistakes are looked for they run in the
 * reverse one ("reverse" of LACE_VULKAN_DEBUG), so that one which did not say what it reads computes
 * something else, on a processor too.
 */
static void let_go(recorder *r)
{
    while (r->n_held > 0) {
        const struct held_launch *h = &r->held[--r->n_held];
        vulkan_list_launch(r->list, h->pipeline, h->grid, h->params);
    }
}

static void put_barrier(recorder *r)
{
    let_go(r);
    vulkan_list_barrier(r->list);
    ranges_clear(&r->since);
    r->n_barriers++;
}

static void put_launch(recorder *r, const vulkan_pipeline *p, const uint32_t grid[3],
                       uint64_t params)
{
    r->n_launches++;
    if (!vulkan_reverses(r->v)) {
        vulkan_list_launch(r->list, p, grid, params);
        return;
    }
    if (r->n_held == RECORD_MOST_HELD)
        let_go(r);
    r->held[r->n_held++] = (struct held_launch){p, {grid[0], grid[1], grid[2]}, params};
}

lace_status record_end(recorder *r, lace_error *err)
{
    let_go(r);
    return vulkan_list_end(r->list, err);
}

/* A launch of a list that is traced: it ends before the next begins. */
static void stamp(recorder *r)
{
    if (r->n_traced >= r->most_traced)
        return;
    bool is_first = r->n_traced == 0 || r->trace[r->n_traced - 1].first != r->s;
    r->trace[r->n_traced++] = (record_trace){.first = r->s, .n_steps = 1, .is_first = is_first};
    put_barrier(r);
    vulkan_list_stamp(r->list);
}

lace_status record_start(recorder *r, const record_launch *l, const void *params, uint64_t n_bytes,
                         lace_error *err)
{
    uint32_t grid[3];
    bool is_empty = false;
    for (int i = 0; i < 3; i++) {
        if (l->grid[i] > MOST_GROUPS)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "%s has too many rows at once for Vulkan; use smaller batches",
                             r->s ? op_name(r->s->op) : "a copy");
        grid[i] = (uint32_t)l->grid[i];
        is_empty |= grid[i] == 0;
    }
    const vulkan_pipeline *p;
    if (!is_empty) {
        if (vulkan_reverses(r->v) && ranges_collide(&r->next))
            return error_set(err, LACE_E_DEVICE, "%s writes over what its other workgroups read",
                             r->s ? op_name(r->s->op) : "a copy");
        TRY(vulkan_find_pipeline(r->v, l->shader, l->constants, &p, err));
        if (ranges_conflict(&r->since, &r->next))
            put_barrier(r);
        ranges_join(&r->since, &r->next);
        put_launch(r, p, grid, record_numbers(r, params, n_bytes));
        stamp(r);
    }
    ranges_clear(&r->next);
    return LACE_OK;
}

lace_status record_copy(recorder *r, uint64_t to, uint32_t to_stride, uint64_t from,
                        uint32_t from_stride, uint32_t width, int64_t n_rows, lace_error *err)
{
    struct rows_args p = {
        .x = from, .y = to, .x_stride = from_stride, .y_stride = to_stride, .width = width};
    record_reads_at(r, from, (uint64_t)n_rows * from_stride * 4);
    record_writes_at(r, to, (uint64_t)n_rows * to_stride * 4);
    record_launch l = {SHADER_copy, .grid = {n_rows, parts_of(width), 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* What most operations on rows have in common. */
static struct rows_args rows_of(const step *s)
{
    return (struct rows_args){.x = address_of(s->in[0].data),
                              .z = address_of(s->in[1].data),
                              .y = address_of(s->out[0].data),
                              .x_stride = floats_of(&s->in[0]),
                              .z_stride = floats_of(&s->in[1]),
                              .y_stride = floats_of(&s->out[0]),
                              .width = (uint32_t)s->out[0].width,
                              .group = 1};
}

/* Name all operands, with the same rows, and launch n_parts workgroups for each. */
static lace_status start_rows(recorder *r, const step *s, vulkan_shader shader, int64_t n_rows,
                              int64_t n_parts, const void *params, uint64_t n_bytes,
                              lace_error *err)
{
    for (int i = 0; i < STEP_MAX_IN; i++)
        if (s->in[i].data)
            record_reads(r, &s->in[i], n_rows);
    record_writes(r, &s->out[0], n_rows);
    record_launch l = {shader, .grid = {n_rows, n_parts, 1}};
    return record_start(r, &l, params, n_bytes, err);
}

static lace_status start_plain(recorder *r, const step *s, vulkan_shader shader, int64_t n_parts,
                               const struct rows_args *p, lace_error *err)
{
    return start_rows(r, s, shader, record_rows(r, s), n_parts, p, sizeof *p, err);
}

static lace_status record_embed(recorder *r, const step *s, lace_error *err)
{
    const weight *table = s->a.embed.table;
    const vulkan_batch *b = r->batch;
    struct embed_args p = {.table = address_of(table->data),
                           .indices = s->a.embed.by == EMBED_BY_POSITION  ? b->positions
                                      : s->a.embed.by == EMBED_BY_SEGMENT ? b->segments
                                                                          : b->tokens,
                           .result = address_of(s->out[0].data),
                           .row_bytes = (uint32_t)weights_row_bytes(table->type, table->n_cols),
                           .out_stride = floats_of(&s->out[0]),
                           .width = (uint32_t)table->n_cols,
                           .n_rows = (uint32_t)table->n_rows,
                           .scale = s->a.embed.scale};
    if (s->a.embed.by == EMBED_BESIDE)
        p.beside = b->given;
    else if (s->a.embed.by == EMBED_BY_TOKEN && b->given_width > 0) {
        p.given = b->given;
        p.given_stride = (uint32_t)b->given_width;
    }
    record_writes(r, &s->out[0], b->n_tokens);
    record_launch l = {
        SHADER_embed, {weights_number(table->type)}, {b->n_tokens, parts_of(s->out[0].width), 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

static lace_status record_add_given(recorder *r, const step *s, lace_error *err)
{
    const vulkan_batch *b = r->batch;
    int64_t n = b->given_width > 0 ? b->n_tokens : 0; /* without rows there is nothing to add */
    struct add_given_args p = {.y = address_of(s->out[0].data),
                               .given = b->given,
                               .tokens = b->tokens,
                               .y_stride = floats_of(&s->out[0]),
                               .given_stride = (uint32_t)b->given_width,
                               .width = (uint32_t)s->out[0].width,
                               .column = (uint32_t)s->a.given.column};
    record_writes(r, &s->out[0], b->n_tokens);
    record_launch l = {SHADER_add_given, .grid = {n, parts_of(s->out[0].width), 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

/* Rows that use no adapter are passed over by the shaders, batches without any here. */
static lace_status record_lora(recorder *r, const step *s, lace_error *err)
{
    enum { MOST_PARTS = 16 };
    const vulkan_batch *b = r->batch;
    const lora_site *site = s->a.lora.site;
    int64_t n = record_rows(r, s);
    bool is_down = s->op == OP_LORA_DOWN;
    struct lora_args p = {.pieces = s->a.lora.pieces,
                          .x = address_of(s->in[0].data),
                          .y = address_of(s->out[0].data),
                          .scales = b->scales,
                          .tokens = b->tokens,
                          .sequences = b->sequences,
                          .outputs = b->outputs,
                          .x_stride = floats_of(&s->in[0]),
                          .y_stride = floats_of(&s->out[0]),
                          .n_pieces = (uint32_t)site->n_pairs,
                          .n_adapters = (uint32_t)b->n_adapters,
                          .n_in = (uint32_t)site->n_in,
                          .n_out = (uint32_t)site->n_out,
                          .is_table = site->is_table,
                          .is_output = s->is_output,
                          .row_factor = (uint32_t)s->row_factor,
                          .scale = s->a.lora.scale};
    record_reads(r, &s->in[0], n);
    record_writes(r, &s->out[0], n);
    int64_t parts = is_down ? min_i64(site->n_low, MOST_PARTS) : parts_of(site->n_out);
    record_launch l = {is_down ? SHADER_lora_down : SHADER_lora_up,
                       .grid = {b->has_adapters ? n : 0, parts, 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

static lace_status record_gather(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.indices = r->batch->outputs;
    record_reads(r, &s->in[0], r->batch->n_tokens);
    record_writes(r, &s->out[0], r->batch->n_outputs);
    record_launch l = {SHADER_gather, .grid = {r->batch->n_outputs, parts_of(s->out[0].width), 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

static lace_status record_rope_table(recorder *r, const step *s, lace_error *err)
{
    struct rope_table_args p = {.frequencies = address_of(s->a.rope_table.frequencies),
                                .result = address_of(s->out[0].data),
                                .axes = r->batch->axes,
                                .is_interleaved = s->a.rope_table.is_interleaved,
                                .axis_stride = (uint32_t)r->batch->axis_stride,
                                .out_stride = floats_of(&s->out[0]),
                                .n_frequencies = (uint32_t)(s->out[0].width / 2),
                                .magnitude = s->a.rope_table.magnitude};
    for (int i = 0; i < ROPE_MAX_AXES; i++)
        p.sections[i] = (uint32_t)s->a.rope_table.sections[i];
    return start_rows(r, s, SHADER_rope_table, r->batch->n_tokens, 1, &p, sizeof p, err);
}

/* The threshold of activation sparsity for this batch. */
static float threshold_of(const recorder *r, const step *s)
{
    batch b = {.n_tokens = r->batch->n_tokens};
    return step_threshold(s, &b);
}

/* A norm whose rows are multiplied next: they are also written in the product's form. */
static lace_status record_norm_and_form(recorder *r, const step *s, row_form form, lace_error *err)
{
    int64_t n = record_rows(r, s), n_cols = s->out[0].width;
    record_reads(r, &s->in[0], n);
    record_writes(r, &s->out[0], n);
    formed_rows *f = record_new_formed(r, &s->out[0], n, n_cols, form);
    struct form_args p = {.x = address_of(s->in[0].data),
                          .weight = address_of(s->a.norm.weight),
                          .y = address_of(s->out[0].data),
                          .result = f->at,
                          .x_stride = floats_of(&s->in[0]),
                          .y_stride = floats_of(&s->out[0]),
                          .result_stride = (uint32_t)(record_form_row_bytes(form, n_cols) / 4),
                          .n_cols = (uint32_t)n_cols,
                          .n_heads = 1,
                          .eps = s->a.norm.eps};
    return record_form(r, f, &p, err);
}

static lace_status record_norm(recorder *r, const step *s, lace_error *err)
{
    row_form form = record_wanted(r, &s->out[0], record_rows(r, s));
    if (s->op == OP_RMS_NORM && s->a.norm.group == s->in[0].width && threshold_of(r, s) == 0 &&
        form != FORM_COUNT && form != FORM_FLOATS)
        return record_norm_and_form(r, s, form, err);
    struct rows_args p = rows_of(s);
    p.weight = address_of(s->a.norm.weight);
    p.bias = address_of(s->a.norm.bias);
    p.group = (uint32_t)s->a.norm.group;
    p.kind = s->a.norm.is_wide;
    p.eps = s->a.norm.eps;
    p.least = threshold_of(r, s);
    return start_plain(r, s, s->op == OP_RMS_NORM ? SHADER_rms_norm : SHADER_layer_norm,
                       s->in[0].width / s->a.norm.group, &p, err);
}

static lace_status record_drop_small(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.least = threshold_of(r, s);
    return start_plain(r, s, SHADER_drop_small, 1, &p, err);
}

static lace_status record_add(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.scale = s->a.add.scale;
    return start_plain(r, s, SHADER_add, parts_of(s->out[0].width), &p, err);
}

_Static_assert(GLU_COUNT == 8, "glu() in math.glsl knows eight");

static lace_status record_glu(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.kind = (uint32_t)s->a.glu.kind;
    p.group = (uint32_t)(s->out[0].width / s->in[0].width);
    return start_plain(r, s, SHADER_glu, parts_of(s->out[0].width), &p, err);
}

static lace_status record_xielu(recorder *r, const step *s, lace_error *err)
{
    struct xielu_args p = {.y = address_of(s->out[0].data),
                           .y_stride = floats_of(&s->out[0]),
                           .width = (uint32_t)s->out[0].width,
                           .alpha_p = s->a.xielu.alpha_p,
                           .alpha_n = s->a.xielu.alpha_n,
                           .beta = s->a.xielu.beta,
                           .eps = s->a.xielu.eps};
    return start_rows(r, s, SHADER_xielu, record_rows(r, s), 1, &p, sizeof p, err);
}

static lace_status record_pick(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.group = (uint32_t)s->a.pick.n;
    p.kind = (uint32_t)s->a.pick.stride;
    p.offset = (int32_t)s->a.pick.offset;
    return start_plain(r, s, SHADER_pick, 1, &p, err);
}

static lace_status record_temperature(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.indices = r->batch->positions;
    p.scale = s->a.temperature.scale;
    p.group = (uint32_t)s->a.temperature.length;
    p.offset = s->a.temperature.offset;
    return start_plain(r, s, SHADER_temperature, 1, &p, err);
}

static lace_status record_mix(recorder *r, const step *s, lace_error *err)
{
    struct mix_args p = {.x = address_of(s->in[0].data),
                         .weights = address_of(s->in[1].data),
                         .base = address_of(s->in[2].data),
                         .y = address_of(s->out[0].data),
                         .x_stride = floats_of(&s->in[0]),
                         .weights_stride = floats_of(&s->in[1]),
                         .base_stride = floats_of(&s->in[2]),
                         .y_stride = floats_of(&s->out[0]),
                         .width = (uint32_t)s->a.mix.width,
                         .n_in = (uint32_t)(s->in[0].width / s->a.mix.width)};
    return start_rows(r, s, SHADER_mix, record_rows(r, s), s->out[0].width / s->a.mix.width, &p,
                      sizeof p, err);
}

static lace_status record_match(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.scale = s->a.match.scale;
    p.eps = s->a.match.least;
    p.kind = s->a.match.leads;
    p.group = (uint32_t)s->in[1].width;
    return start_plain(r, s, SHADER_match, s->out[0].width / s->in[1].width, &p, err);
}

static lace_status record_cutoff(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.scale = s->a.cutoff.factor;
    return start_plain(r, s, SHADER_cutoff, 1, &p, err);
}

static lace_status record_softcap(recorder *r, const step *s, lace_error *err)
{
    struct rows_args p = rows_of(s);
    p.scale = s->a.softcap.cap;
    return start_plain(r, s, SHADER_softcap, 1, &p, err);
}

static lace_status record_route(recorder *r, const step *s, lace_error *err)
{
    const route_rule *rule = &s->a.moe.rule;
    struct route_args p = {.logits = address_of(s->in[0].data),
                           .bias = address_of(rule->bias),
                           .scales = address_of(rule->scales),
                           .result = address_of(s->out[0].data),
                           .logits_stride = floats_of(&s->in[0]),
                           .out_stride = floats_of(&s->out[0]) / 2,
                           .n_experts = (uint32_t)s->a.moe.n_experts,
                           .n_used = (uint32_t)s->a.moe.n_used,
                           .scores = (uint32_t)rule->scores,
                           .n_groups = (uint32_t)rule->n_groups,
                           .n_groups_used = (uint32_t)rule->n_groups_used,
                           .n_ranking = (uint32_t)rule->n_ranking,
                           .norms = rule->norms,
                           .norm_more = rule->norm_more,
                           .norm_least = rule->norm_least,
                           .factor = rule->factor != 0 ? rule->factor : 1,
                           .jitter = rule->jitter};
    return start_rows(r, s, SHADER_route, record_rows(r, s), 1, &p, sizeof p, err);
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* One for each operation; NULL: plans for Vulkan do not contain it. */
static const record_fn recorders[OP_COUNT] = {
    [OP_EMBED] = record_embed,
    [OP_GATHER] = record_gather,
    [OP_ADD_GIVEN] = record_add_given,
    [OP_ROPE_TABLE] = record_rope_table,
    [OP_RMS_NORM] = record_norm,
    [OP_LAYER_NORM] = record_norm,
    [OP_DROP_SMALL] = record_drop_small,
    [OP_MATMUL] = record_matmul,
    [OP_ADD] = record_add,
    [OP_GLU] = record_glu,
    [OP_XIELU] = record_xielu,
    [OP_PICK] = record_pick,
    [OP_TEMPERATURE] = record_temperature,
    [OP_MIX] = record_mix,
    [OP_MATCH] = record_match,
    [OP_CUTOFF] = record_cutoff,
    [OP_ROPE] = record_rope,
    [OP_KV_WRITE] = record_rope,
    [OP_ATTEND] = record_attend,
    [OP_MATMUL_HEADS] = record_heads,
    [OP_CONV] = record_conv,
    [OP_SCAN] = record_scan,
    [OP_DELTA] = record_delta,
    [OP_LORA_DOWN] = record_lora,
    [OP_LORA_UP] = record_lora,
    [OP_SOFTCAP] = record_softcap,
    [OP_ROUTE] = record_route,
    [OP_MOE_GLU] = record_moe,
    [OP_MOE_DOWN] = record_moe,
    [OP_MATMUL_ADD] = record_matmul,
    [OP_MATMUL_GROUP] = record_matmul,
    [OP_MATMUL_GLU] = record_matmul,
    [OP_ROPE_KV] = record_rope,
};

bool record_has_shader(op o)
{
    return recorders[o] != NULL;
}

/* Whether the launches of a step named every operand that it has. */
static bool has_named_all(const recorder *r, int32_t k)
{
    const step *s = r->s + k;
    for (int i = 0; i < STEP_MAX_IN; i++)
        if (s->in[i].data && !(r->named_in[k] >> i & 1))
            return false;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        if (s->out[i].data && !(r->named_out[k] >> i & 1))
            return false;
    return true;
}

bool record_is_given(const recorder *r, int32_t root)
{
    bool leaves = r->values && root >= 0 && r->values[root].leaves;
    return leaves || (root >= 0 && (r->given[0] == root || r->given[1] == root));
}

bool record_is_read_behind(const recorder *r, int32_t n, const operand *o)
{
    if (record_is_given(r, o->root))
        return true;
    for (int32_t k = n; k < r->n_left; k++) {
        const step *s = r->s + k;
        for (int i = 0; i < STEP_MAX_IN; i++)
            if (s->in[i].value >= 0 && s->in[i].root == o->root)
                return true;
        for (int i = 0; i < STEP_MAX_OUT; i++)
            if (s->out[i].value >= 0 && s->out[i].root == o->root)
                return true; /* it may be changed in place */
    }
    return false;
}

lace_status record_step(recorder *r, const step *s, int32_t n_left, lace_error *err)
{
    assert(recorders[s->op] && n_left > 0);
    int32_t first = r->n_traced;
    r->s = s;
    r->n_left = n_left;
    r->n_taken = 1;
    memset(r->named_in, 0, sizeof r->named_in);
    memset(r->named_out, 0, sizeof r->named_out);
    TRY(recorders[s->op](r, s, err));
    for (int32_t i = first; i < r->n_traced; i++)
        r->trace[i].n_steps = r->n_taken;
    for (int32_t k = 0; k < r->n_taken; k++)
        if (!has_named_all(r, k))
            return error_set(err, LACE_E_DEVICE,
                             "Vulkan: %s does not say all that it reads and writes",
                             op_name(s[k].op));
    return LACE_OK;
}

uint64_t record_params_bytes(const step *s)
{
    enum { MOST_BYTES = 384 };
    uint64_t bytes = RECORD_MOST_LAUNCHES * MOST_BYTES;
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(s, w);
    for (int i = 0; i < n; i++)
        bytes += 8 * (uint64_t)w[i].n_experts + PARAMS_ALIGN;
    return bytes;
}
