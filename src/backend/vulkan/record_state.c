/* Operations with a sequence's past: attention with its cache, and recurrent state. */
#include <assert.h>

#include "backend/vulkan/recorder.h"
#include "backend/vulkan/vulkan_weights.h"
#include "base/numbers.h"

enum { THREADS = 64, MAX_HEAD_DIM = 1024, MAX_EXPERTS = 2048 };

static struct cache_args cache_of(const recorder *r, const kv_layer *kv)
{
    return (struct cache_args){.data = address_of(kv->data),
                               .tables = r->batch->tables[kv->group],
                               .sequences = r->batch->sequences,
                               .positions = r->batch->positions,
                               .seen = r->batch->seen,
                               .pages_per_sequence = (uint32_t)r->batch->pages_per_sequence,
                               .page_bytes = (uint32_t)kv->page_bytes,
                               .k_offset = (uint32_t)kv->k_offset,
                               .v_offset = (uint32_t)kv->v_offset,
                               .row_bytes = (uint32_t)kv->row_bytes,
                               .v_row_bytes = (uint32_t)kv->v_row_bytes,
                               .page_tokens = (uint32_t)kv->page_tokens,
                               .n_heads = (uint32_t)kv->n_heads,
                               .head_dim = (uint32_t)kv->head_dim,
                               .v_dim = (uint32_t)kv->v_dim,
                               .v_in_k = kv->v_in_k};
}

/* The first byte of a layer in page 0 stands for all that the layer has in any page. */
static uint64_t cache_mark(const kv_layer *kv)
{
    return address_of(kv->data) + kv->k_offset;
}

/* What slot 0 has of a layer stands for all slots. */
static uint64_t slots_of(const step *s)
{
    return address_of(s->recurrent.data) + s->recurrent.offset;
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Tokens of a batch whose attention is computed in parts, and how many parts. */
enum { PARTS_TOKENS = 8, PARTS = 16, PARTS_MOST_HEADS = 16, WHOLE_MOST_DIM = 256 };

/* Operands of attention that record_keep_keys adds: the angles, the keys and values of its own tokens. */
enum { ATTEND_TABLE = 1, ATTEND_K = 2, ATTEND_V = 3 };

/* Bytes that a workgroup of attend_parts.glsl shares: q or the result, shares of sums, scores, and small things. */
static int64_t parts_shared_bytes(const kv_layer *kv, int64_t heads)
{
    enum { ROOM = 256 * 4 * 16, SCORES = 64 * 4, SMALL = 2048 + 256 };
    return 4 * heads * max_i64(kv->head_dim, kv->v_dim) + ROOM + heads * (SCORES + 32 + 16 * 12) +
           SMALL;
}

/* Whether attend_parts.comp can do it: rows of the cache are whole pieces, and shared memory suffices. */
static bool goes_in_parts(const recorder *r, const step *s)
{
    const kv_layer *kv = &s->kv;
    int64_t heads = s->a.attend.n_heads / kv->n_heads;
    uint64_t all = kv->page_bytes | kv->k_offset | kv->v_offset | kv->row_bytes | kv->v_row_bytes;
    return r->batch->n_tokens <= PARTS_TOKENS && (all % 16 == 0 || kv->type == DTYPE_Q8_0) &&
           !kv->v_in_k && heads <= PARTS_MOST_HEADS &&
           parts_shared_bytes(kv, heads) <= vulkan_features(r->v)->shared_bytes &&
           kv->head_dim % (kv->type == DTYPE_Q8_0 ? 32 : 8) == 0 && kv->v_dim % 32 == 0 &&
           kv->v_dim <= 256;
}

static record_launch launch_parts(vulkan_shader shader, const step *s, int64_t n)
{
    const kv_layer *kv = &s->kv;
    return (record_launch){shader,
                           {weights_number(kv->type), (uint32_t)(s->a.attend.n_heads / kv->n_heads),
                            (uint32_t)kv->head_dim / 4, (uint32_t)kv->v_dim / 4,
                            (uint32_t)kv->page_tokens},
                           {n, kv->n_heads, PARTS}};
}

static uint64_t parts_bytes(const step *s, int64_t n)
{
    return 4 * (uint64_t)n * (uint64_t)s->a.attend.n_heads * PARTS * (uint64_t)(s->kv.v_dim + 2);
}

uint64_t record_attend_bytes(const step *s, int64_t n_rows)
{
    return parts_bytes(s, min_i64(n_rows, PARTS_TOKENS));
}

/* The result in the form of the product behind attention, if that is planes. */
static void write_planes(recorder *r, const operand *out, int64_t n, bool is_wanted,
                         struct attend_args *p)
{
    if (!is_wanted)
        return;
    uint64_t row_bytes = record_form_row_bytes(FORM_PLANES, out->width);
    p->next = record_new_formed(r, out, n, out->width, FORM_PLANES)->at;
    p->next_stride = (uint32_t)(row_bytes / 4);
    record_writes_at(r, p->next, (uint64_t)n * row_bytes);
}

static lace_status record_attend_parts(recorder *r, const step *s, struct attend_args *p,
                                       lace_error *err)
{
    int64_t n = r->batch->n_tokens;
    p->parts = r->scratch;
    p->n_parts = PARTS;
    record_reads(r, &s->in[0], n);
    record_reads_at(r, cache_mark(&s->kv), 1);
    record_writes_at(r, p->parts, parts_bytes(s, n));
    record_launch l = launch_parts(SHADER_attend_parts, s, n);
    TRY(record_start(r, &l, p, sizeof *p, err));
    record_reads_at(r, p->parts, parts_bytes(s, n));
    record_writes(r, &s->out[0], n);
    write_planes(r, &s->out[0], n, record_wanted(r, &s->out[0], n) == FORM_PLANES, p);
    record_launch join = {SHADER_attend_join, .grid = {n, p->n_heads, 1}};
    return record_start(r, &join, p, sizeof *p, err);
}

/* attend_many.comp: rows of q and positions of a workgroup, and the widest head. */
enum { MANY_ROWS = 32, MANY_COLS = 32, MANY_MOST_DIM = 256 };

static int64_t many_dim(const kv_layer *kv)
{
    return max_i64(kv->head_dim, kv->v_dim);
}

/* Wide heads take half as many rows and positions, so that shared memory holds them. */
static int64_t many_part(const kv_layer *kv)
{
    return many_dim(kv) > MANY_MOST_DIM / 2 ? 2 : 1;
}

static bool goes_in_tiles(const recorder *r, const step *s)
{
    const kv_layer *kv = &s->kv;
    uint64_t all = kv->page_bytes | kv->k_offset | kv->v_offset | kv->row_bytes | kv->v_row_bytes;
    int64_t part = many_part(kv), rows = MANY_ROWS / part, cols = MANY_COLS / part;
    int64_t bytes = 4 * (rows + cols) * (many_dim(kv) + 4) + 4 * rows * (cols + 6);
    return record_is_many(r->batch->n_tokens) && !kv->v_in_k &&
           (all % 16 == 0 || kv->type == DTYPE_Q8_0) && (kv->head_dim | kv->v_dim) % 4 == 0 &&
           many_dim(kv) <= MANY_MOST_DIM && s->a.attend.n_heads / kv->n_heads <= rows &&
           bytes <= vulkan_features(r->v)->shared_bytes;
}

static record_launch launch_attend_many(const step *s, int64_t n)
{
    const kv_layer *kv = &s->kv;
    int64_t heads = s->a.attend.n_heads / kv->n_heads, rows = MANY_ROWS / many_part(kv);
    return (record_launch){SHADER_attend_many,
                           {weights_number(kv->type), (uint32_t)heads, (uint32_t)(many_dim(kv) / 4),
                            (uint32_t)rows, (uint32_t)(MANY_COLS / many_part(kv))},
                           {divide_up(n, rows / heads), kv->n_heads, 1}};
}

/* attend_matrices.glsl: rows of q and positions of a workgroup, subgroups, and the widest head. */
enum { MATRIX_ROWS = 64, MATRIX_COLS = 32, MATRIX_SUBGROUPS = 4, MATRIX_MOST_DIM = 128 };

static bool goes_by_matrices(const recorder *r, const step *s)
{
    const kv_layer *kv = &s->kv;
    const vulkan_info *info = vulkan_features(r->v);
    uint64_t all = kv->page_bytes | kv->k_offset | kv->v_offset | kv->row_bytes | kv->v_row_bytes;
    int64_t rows = 2 * (kv->head_dim + 8),
            tiles = MATRIX_COLS * (rows + 2 * ((int64_t)kv->v_dim + 8));
    int64_t bytes = max_i64(tiles, MATRIX_ROWS * rows) + MATRIX_ROWS * 4 * (MATRIX_COLS + 4) +
                    MATRIX_ROWS * 2 * (MATRIX_COLS + 8) + MATRIX_ROWS * 20;
    return info->has_matrices && record_is_many(r->batch->n_tokens) && kv->type == DTYPE_F16 &&
           !kv->v_in_k && all % 16 == 0 && (kv->head_dim | kv->v_dim) % 16 == 0 &&
           many_dim(kv) <= MATRIX_MOST_DIM && s->a.attend.n_heads / kv->n_heads <= MATRIX_ROWS &&
           bytes <= info->shared_bytes;
}

static record_launch launch_attend_matrix(const recorder *r, const step *s, int64_t n)
{
    const kv_layer *kv = &s->kv;
    const vulkan_info *info = vulkan_features(r->v);
    int64_t heads = s->a.attend.n_heads / kv->n_heads;
    return (record_launch){info->emulates_matrices ? SHADER_attend_emulated : SHADER_attend_matrix,
                           {0, MATRIX_SUBGROUPS * info->matrix_lanes, (uint32_t)heads,
                            (uint32_t)kv->head_dim / 16, (uint32_t)kv->v_dim / 16,
                            (uint32_t)kv->page_tokens},
                           {divide_up(n, MATRIX_ROWS / heads), kv->n_heads, 1}};
}

static struct attend_args attend_of(const recorder *r, const step *s)
{
    return (struct attend_args){.cache = cache_of(r, &s->kv),
                                .q = address_of(s->in[0].data),
                                .result = address_of(s->out[0].data),
                                .sinks = address_of(s->a.attend.sinks),
                                .q_stride = floats_of(&s->in[0]),
                                .out_stride = floats_of(&s->out[0]),
                                .n_heads = (uint32_t)s->a.attend.n_heads,
                                .window = (uint32_t)s->a.attend.window,
                                .chunk = (uint32_t)s->a.attend.chunk,
                                .ahead = (uint32_t)s->a.attend.ahead,
                                .n_tokens = (uint32_t)r->batch->n_tokens,
                                .scale = s->a.attend.scale,
                                .softcap = s->a.attend.softcap};
}

lace_status record_attend(recorder *r, const step *s, lace_error *err)
{
    int64_t n = r->batch->n_tokens;
    struct attend_args p = attend_of(r, s);
    record_skips(r, &s->in[ATTEND_TABLE], 0);
    record_skips(r, &s->in[ATTEND_K], 0);
    record_skips(r, &s->in[ATTEND_V], 0);
    if (goes_in_parts(r, s))
        return record_attend_parts(r, s, &p, err);
    record_launch l = {SHADER_attend, {weights_number(s->kv.type)}, {n, p.n_heads, 1}};
    if (goes_by_matrices(r, s))
        l = launch_attend_matrix(r, s, n);
    else if (goes_in_tiles(r, s))
        l = launch_attend_many(s, n);
    record_reads(r, &s->in[0], n);
    record_reads_at(r, cache_mark(&s->kv), 1);
    record_writes(r, &s->out[0], n);
    return record_start(r, &l, &p, sizeof p, err);
}

/* ---- All of attention in one launch ---------------------------------------------------------- */

void record_keep_keys(plan *p)
{
    for (int32_t i = 0; i + 1 < p->n_steps; i++) {
        const step *rope = &p->steps[i];
        step *attend = &p->steps[i + 1];
        if (rope->op == OP_ROPE_KV && attend->op == OP_ATTEND &&
            attend->in[0].value == rope->out[0].value && attend->in[ATTEND_K].value < 0) {
            attend->in[ATTEND_TABLE] = rope->in[0];
            attend->in[ATTEND_K] = rope->out[1];
            attend->in[ATTEND_V] = rope->in[1];
        }
    }
}

/* Rotation and cache of this step can be part of the attention behind it. */
static bool can_attend_at_once(const recorder *r, const step *s)
{
    const step *attend = record_behind(r);
    int64_t n = r->batch->n_tokens;
    return s->op == OP_ROPE_KV && r->counts && attend && attend->op == OP_ATTEND &&
           attend->in[0].value == s->out[0].value &&
           attend->in[ATTEND_TABLE].value == s->in[0].value &&
           attend->in[ATTEND_K].value == s->out[1].value &&
           attend->in[ATTEND_V].value == s->in[1].value && (n == 1 || r->batch->is_spread) &&
           goes_in_parts(r, attend) && s->kv.head_dim <= WHOLE_MOST_DIM &&
           s->kv.group == attend->kv.group && 4 * n * s->kv.n_heads <= RECORD_COUNTS_BYTES &&
           !record_is_read_behind(r, 2, &s->out[0]) && !record_is_read_behind(r, 2, &s->out[1]);
}

static lace_status record_attend_whole(recorder *r, const step *s, const step *attend,
                                       lace_error *err)
{
    int64_t n = r->batch->n_tokens;
    struct attend_args p = attend_of(r, attend);
    p.table = address_of(s->in[0].data);
    p.k = address_of(s->out[1].data);
    p.v = address_of(s->in[1].data);
    p.counts = r->counts;
    p.table_stride = floats_of(&s->in[0]);
    p.k_stride = floats_of(&s->out[1]);
    p.v_stride = floats_of(&s->in[1]);
    p.n_dims = (uint32_t)s->a.rope.n_dims;
    p.is_neox = s->a.rope.is_neox;
    p.parts = r->scratch;
    p.n_parts = PARTS;
    record_reads(r, &s->in[0], n);
    record_reads(r, &s->in[1], n);
    record_reads(r, &s->out[0], n); /* nobody sees q and k turned */
    record_reads(r, &s->out[1], n);
    record_reads(r, &attend->in[0], n);
    record_reads(r, &attend->in[ATTEND_TABLE], n);
    record_reads(r, &attend->in[ATTEND_K], n);
    record_reads(r, &attend->in[ATTEND_V], n);
    record_writes_at(r, cache_mark(&s->kv), 1);
    record_writes_at(r, p.parts, parts_bytes(attend, n));
    record_writes_at(r, r->counts, RECORD_COUNTS_BYTES);
    record_writes(r, &attend->out[0], n);
    write_planes(r, &attend->out[0], n, record_wanted_by(r, 2, &attend->out[0], n) == FORM_PLANES,
                 &p);
    r->n_taken = 2;
    record_launch l = launch_parts(SHADER_attend_whole, attend, n);
    return record_start(r, &l, &p, sizeof p, err);
}

lace_status record_rope(recorder *r, const step *s, lace_error *err)
{
    if (can_attend_at_once(r, s))
        return record_attend_whole(r, s, record_behind(r), err);
    const kv_layer *kv = &s->kv;
    int64_t n = r->batch->n_tokens, n_kv_heads = s->op == OP_ROPE ? 0 : kv->n_heads;
    struct rope_args p = {.n_dims = (uint32_t)s->a.rope.n_dims,
                          .is_neox = s->a.rope.is_neox,
                          .turns = s->op == OP_ROPE_KV};
    if (s->op == OP_KV_WRITE) {
        p.k = address_of(s->in[0].data);
        p.k_stride = floats_of(&s->in[0]);
        record_reads(r, &s->in[0], n);
    } else {
        p.table = address_of(s->in[0].data);
        p.table_stride = floats_of(&s->in[0]);
        p.q = address_of(s->out[0].data);
        p.q_stride = floats_of(&s->out[0]);
        p.n_heads = (uint32_t)s->a.rope.n_heads;
        p.head_dim = (uint32_t)(s->op == OP_ROPE ? s->a.rope.head_dim : kv->head_dim);
        record_reads(r, &s->in[0], n);
        record_writes(r, &s->out[0], n);
    }
    if (s->op == OP_ROPE_KV) {
        p.k = address_of(s->out[1].data);
        p.k_stride = floats_of(&s->out[1]);
        record_writes(r, &s->out[1], n);
    }
    if (s->op != OP_ROPE) {
        p.cache = cache_of(r, kv);
        p.k_dim = (uint32_t)(kv->v_in_k ? kv->v_dim : kv->head_dim);
        p.v = address_of(s->in[1].data);
        p.v_stride = floats_of(&s->in[1]);
        record_reads(r, &s->in[1], n);
        record_writes_at(r, cache_mark(kv), 1);
    }
    uint32_t type = s->op == OP_ROPE ? 0 : weights_number(kv->type);
    record_launch l = {SHADER_rope, {type}, {n, p.n_heads + n_kv_heads, 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

/* ---- Recurrent state ------------------------------------------------------------------------- */

/* Name all operands and the state. */
static void name_recurrent(recorder *r, const step *s)
{
    for (int i = 0; i < STEP_MAX_IN; i++)
        if (s->in[i].data)
            record_reads(r, &s->in[i], r->batch->n_tokens);
    record_writes(r, &s->out[0], r->batch->n_tokens);
    record_writes_at(r, slots_of(s), s->recurrent.n_bytes ? s->recurrent.n_bytes : 1);
}

lace_status record_conv(recorder *r, const step *s, lace_error *err)
{
    struct conv_args p = {.x = address_of(s->in[0].data),
                          .y = address_of(s->out[0].data),
                          .weight = address_of(s->a.conv.weight),
                          .bias = address_of(s->a.conv.bias),
                          .state = slots_of(s),
                          .slots = r->batch->slots,
                          .x_stride = floats_of(&s->in[0]),
                          .y_stride = floats_of(&s->out[0]),
                          .slot_bytes = (uint32_t)s->recurrent.slot_bytes,
                          .n_tokens = (uint32_t)r->batch->n_tokens,
                          .width = (uint32_t)s->out[0].width,
                          .n_taps = (uint32_t)s->a.conv.n_taps,
                          .is_silu = s->a.conv.is_silu};
    name_recurrent(r, s);
    record_launch l = {SHADER_conv, .grid = {divide_up(s->out[0].width, THREADS), 1, 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

lace_status record_delta(recorder *r, const step *s, lace_error *err)
{
    struct delta_args p = {.qkv = address_of(s->in[0].data),
                           .a = address_of(s->in[1].data),
                           .b = address_of(s->in[2].data),
                           .result = address_of(s->out[0].data),
                           .rate = address_of(s->a.delta.rate),
                           .bias = address_of(s->a.delta.bias),
                           .state = slots_of(s),
                           .slots = r->batch->slots,
                           .qkv_stride = floats_of(&s->in[0]),
                           .a_stride = floats_of(&s->in[1]),
                           .b_stride = floats_of(&s->in[2]),
                           .out_stride = floats_of(&s->out[0]),
                           .slot_bytes = (uint32_t)s->recurrent.slot_bytes,
                           .n_tokens = (uint32_t)r->batch->n_tokens,
                           .n_heads = (uint32_t)s->a.delta.n_heads,
                           .n_key_heads = (uint32_t)s->a.delta.n_key_heads,
                           .k_dim = (uint32_t)s->a.delta.k_dim,
                           .v_dim = (uint32_t)s->a.delta.v_dim,
                           .is_tiled = s->a.delta.is_tiled,
                           .eps = DELTA_EPS};
    name_recurrent(r, s);
    record_launch l = {SHADER_delta,
                       .grid = {divide_up(s->a.delta.v_dim, THREADS), s->a.delta.n_heads, 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

lace_status record_scan(recorder *r, const step *s, lace_error *err)
{
    struct scan_args p = {.x = address_of(s->in[0].data),
                          .b = address_of(s->in[1].data),
                          .c = address_of(s->in[2].data),
                          .dt = address_of(s->in[3].data),
                          .result = address_of(s->out[0].data),
                          .a = address_of(s->a.scan.a),
                          .d = address_of(s->a.scan.d),
                          .dt_bias = address_of(s->a.scan.dt_bias),
                          .state = slots_of(s),
                          .slots = r->batch->slots,
                          .x_stride = floats_of(&s->in[0]),
                          .b_stride = floats_of(&s->in[1]),
                          .c_stride = floats_of(&s->in[2]),
                          .dt_stride = floats_of(&s->in[3]),
                          .out_stride = floats_of(&s->out[0]),
                          .slot_bytes = (uint32_t)s->recurrent.slot_bytes,
                          .n_tokens = (uint32_t)r->batch->n_tokens,
                          .n_heads = (uint32_t)s->a.scan.n_heads,
                          .head_dim = (uint32_t)s->a.scan.head_dim,
                          .n_state = (uint32_t)s->a.scan.n_state,
                          .group_heads = (uint32_t)(s->a.scan.n_heads / s->a.scan.n_groups),
                          .dt_min = s->a.scan.dt_min,
                          .dt_max = s->a.scan.dt_max};
    name_recurrent(r, s);
    record_launch l = {SHADER_scan,
                       .grid = {divide_up(s->a.scan.head_dim, THREADS), s->a.scan.n_heads, 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

/* ---- What there is no shader for ------------------------------------------------------------- */

lace_status record_check(const step *s, lace_error *err)
{
    bool has_pages = op_describe(s->op)->state == OP_PAGES;
    int32_t head_dim = has_pages ? s->kv.head_dim : s->op == OP_ROPE ? s->a.rope.head_dim : 0;
    if (!record_has_shader(s->op))
        return error_set(err, LACE_E_UNSUPPORTED,
                         "layer %d: there is no shader that computes %s; use --device cpu",
                         s->layer, op_name(s->op));
    if (head_dim > MAX_HEAD_DIM || (has_pages && s->kv.v_dim > MAX_HEAD_DIM))
        return error_set(err, LACE_E_UNSUPPORTED,
                         "layer %d: heads of %d numbers, and shaders know up to %d; use --device "
                         "cpu",
                         s->layer, head_dim, MAX_HEAD_DIM);
    if (s->op == OP_ROUTE && s->a.moe.n_experts > MAX_EXPERTS)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "layer %d: %d experts, and shaders know up to %d; use --device cpu",
                         s->layer, s->a.moe.n_experts, MAX_EXPERTS);
    return LACE_OK;
}
