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

lace_status record_rope(recorder *r, const step *s, lace_error *err)
{
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

lace_status record_attend(recorder *r, const step *s, lace_error *err)
{
    int64_t n = r->batch->n_tokens;
    struct attend_args p = {.cache = cache_of(r, &s->kv),
                            .q = address_of(s->in[0].data),
                            .result = address_of(s->out[0].data),
                            .sinks = address_of(s->a.attend.sinks),
                            .q_stride = floats_of(&s->in[0]),
                            .out_stride = floats_of(&s->out[0]),
                            .n_heads = (uint32_t)s->a.attend.n_heads,
                            .window = (uint32_t)s->a.attend.window,
                            .chunk = (uint32_t)s->a.attend.chunk,
                            .ahead = (uint32_t)s->a.attend.ahead,
                            .scale = s->a.attend.scale,
                            .softcap = s->a.attend.softcap};
    record_reads(r, &s->in[0], n);
    record_reads_at(r, cache_mark(&s->kv), 1);
    record_writes(r, &s->out[0], n);
    record_launch l = {SHADER_attend, {weights_number(s->kv.type)}, {n, p.n_heads, 1}};
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
