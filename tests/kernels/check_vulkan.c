/*
 * Shaders against the plain versions of their operations. A device is one more table of kernels: its
 * functions copy a step to the device, record and run it, and bring the results back.
 *
 * Everything that a step points to lies in one piece of memory, an image of which is made on the
 * host, with guards between the parts. The image goes to the device and comes back as a whole, so
 * that what is written outside of the results is seen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/lora_pieces.h"
#include "backend/vulkan/recorder.h"
#include "backend/vulkan/vulkan_weights.h"
#include "check_products.h"

enum { IMAGE_BYTES = 256 << 20, GUARD_BYTES = 64, MAX_PARTS = 4096, MAX_WEIGHTS = 2048 };

static const uint8_t guard_byte = 0xA5;

static vulkan *card;
static vulkan_queue *queue;
static uint64_t memory; /* of the device, IMAGE_BYTES */
static uint8_t *image;
static uint64_t image_used;

/* What is in the image: where it came from, and whether it may change. */
static struct {
    const void *host;
    uint64_t at, n_bytes;
} parts[MAX_PARTS];
static int n_parts;
static weight weights[MAX_WEIGHTS];
static int n_weights;
static bool is_run[OP_COUNT];

/* Nothing can be said about a shader when the driver fails. */
static void must(lace_status status, const lace_error *err)
{
    if (status == LACE_OK)
        return;
    printf("not ok - Vulkan failed: %s\n", err->text);
    exit(1);
}

/* ---- The image ------------------------------------------------------------------------------- */

static void begin_image(void)
{
    image_used = GUARD_BYTES;
    memset(image, guard_byte, GUARD_BYTES);
    n_parts = n_weights = 0;
}

/* Room in the image, aligned, with a guard behind it; nothing of `host` is copied. */
static uint64_t reserve(const void *host, uint64_t n_bytes)
{
    uint64_t at = (image_used + 255) / 256 * 256, end = at + n_bytes + GUARD_BYTES;
    if (end > IMAGE_BYTES || n_parts == MAX_PARTS) {
        printf("not ok - a shape is too large for the image\n");
        exit(1);
    }
    memset(image + image_used, guard_byte, end - image_used);
    image_used = end;
    parts[n_parts].host = host;
    parts[n_parts].at = at;
    parts[n_parts++].n_bytes = n_bytes;
    return at;
}

/* The address of a copy of n bytes; the same one for what was put there before. NULL stays 0. */
static void *put(const void *host, uint64_t n_bytes)
{
    if (!host)
        return NULL;
    for (int i = 0; i < n_parts; i++)
        if (parts[i].host == host && parts[i].n_bytes >= n_bytes)
            return (void *)(uintptr_t)(memory + parts[i].at);
    uint64_t at = reserve(host, n_bytes);
    memcpy(image + at, host, n_bytes);
    return (void *)(uintptr_t)(memory + at);
}

static void take_back(void *host, const void *device, uint64_t n_bytes)
{
    memcpy(host, image + ((uint64_t)(uintptr_t)device - memory), n_bytes);
}

static void check_guards(void)
{
    uint64_t at = 0;
    for (int i = 0; i <= n_parts; i++) {
        uint64_t end = i < n_parts ? parts[i].at : image_used;
        for (; at < end; at++)
            if (image[at] != guard_byte) {
                check_true(false, "nothing is written outside");
                return;
            }
        at = i < n_parts ? parts[i].at + parts[i].n_bytes : end;
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* n matrices that are alike, as the device keeps them. */
static const weight *put_weights(const weight *w, int n, bool is_table)
{
    lace_error err;
    if (!w)
        return NULL;
    if (n_weights + n > MAX_WEIGHTS) {
        printf("not ok - too many matrices in one shape\n");
        exit(1);
    }
    weight *out = &weights[n_weights];
    n_weights += n;
    for (int i = 0; i < n; i++) {
        out[i] = w[i];
        out[i].type = weights_kept_as(w[i].type);
        uint64_t n_bytes = weights_bytes(out[i].type, is_table, w->n_rows, w->n_cols);
        uint64_t at = reserve(NULL, n_bytes);
        weights_job job = {.type = w[i].type,
                           .kept = out[i].type,
                           .is_table = is_table,
                           .blocks = w[i].data,
                           .n_rows = w->n_rows,
                           .n_cols = w->n_cols,
                           .out = image + at};
        must(weights_pack(&job, NULL, &err), &err);
        out[i].data = (const uint8_t *)(uintptr_t)(memory + at);
    }
    return out;
}

/* Adapters: their matrices, and the list that shaders read. */
static void put_site(step *s)
{
    enum { MOST = 16 };
    const lora_site *site = s->a.lora.site;
    lora_piece list[MOST];
    for (int32_t i = 0; i < site->n_pairs && i < MOST; i++) {
        const lora_pair *p = &site->pairs[i];
        list[i] = lora_piece_of(p, address_of(put(p->down, lora_down_size(site, p))),
                                address_of(put(p->up, lora_up_size(site, p))));
    }
    s->a.lora.pieces = address_of(put(list, (uint64_t)site->n_pairs * sizeof *list));
}

static void put_arguments(step *s)
{
    op_vector vectors[OP_MAX_VECTORS];
    int n = step_vectors(s, vectors);
    for (int i = 0; i < n; i++)
        *vectors[i].at = put(*vectors[i].at, 4 * (uint64_t)vectors[i].n);
    if (s->op == OP_LORA_DOWN || s->op == OP_LORA_UP)
        put_site(s);
    if (s->op == OP_EMBED)
        s->a.embed.table = put_weights(s->a.embed.table, 1, true);
    if (step_is_matmul(s))
        for (int i = 0; i < s->a.matmul.n_weights; i++)
            s->a.matmul.weights[i] = put_weights(s->a.matmul.weights[i], 1, false);
    if (s->op == OP_MATMUL_HEADS)
        s->a.heads.weights = put_weights(s->a.heads.weights, s->a.heads.n_heads, false);
    if (s->op == OP_MOE_GLU) {
        s->a.moe.gate = put_weights(s->a.moe.gate, s->a.moe.n_experts, false);
        s->a.moe.up = put_weights(s->a.moe.up, s->a.moe.n_experts, false);
    }
    if (s->op == OP_MOE_DOWN)
        s->a.moe.down = put_weights(s->a.moe.down, s->a.moe.n_experts, false);
}

/* Rows of an operand, in or out. */
static int64_t rows_of(const step *s, const batch *b, bool is_out, int i)
{
    bool is_items = (s->op == OP_MOE_DOWN && !is_out && i == 0) || (s->op == OP_MOE_GLU && is_out);
    bool is_output = s->is_output && (is_out || s->op != OP_GATHER);
    return (is_output ? b->n_outputs : b->n_tokens) * (is_items ? s->a.moe.n_used : 1);
}

static void put_operands(step *s, const batch *b)
{
    for (int i = 0; i < STEP_MAX_IN; i++) {
        uint64_t n = (uint64_t)rows_of(s, b, false, i) * s->in[i].stride;
        s->in[i].data = s->in[i].value < 0 ? NULL : put(s->in[i].data, n);
    }
    for (int i = 0; i < STEP_MAX_OUT; i++)
        s->out[i].data = put(s->out[i].data, (uint64_t)rows_of(s, b, true, i) * s->out[i].stride);
}

/* The last position that a token writes or sees. */
static int32_t last_position(const batch *b, int32_t t)
{
    int32_t seen = batch_seen(b, t) - 1;
    return seen > b->positions[t] ? seen : b->positions[t];
}

/* The cache, and a row of page numbers for each token. Returns the cache's bytes. */
static uint64_t put_pages(step *s, const batch *b, vulkan_batch *on)
{
    int32_t width = 1, last = 0;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        int32_t n = last_position(b, t) / s->kv.page_tokens + 1;
        width = n > width ? n : width;
    }
    size_t n_numbers = (size_t)width * (size_t)(b->n_tokens + 1);
    int32_t *table = calloc(n_numbers, sizeof *table), *own = calloc(n_numbers, sizeof *own);
    for (int32_t t = 0; t < b->n_tokens; t++) {
        own[t] = t;
        for (int32_t i = 0; i <= last_position(b, t) / s->kv.page_tokens; i++) {
            int32_t page = b->pages[s->kv.group][t][i];
            table[(int64_t)t * width + i] = page;
            last = page > last ? page : last;
        }
    }
    on->tables[s->kv.group] = address_of(put(table, n_numbers * sizeof *table));
    on->sequences = address_of(put(own, (uint64_t)b->n_tokens * sizeof *own));
    on->pages_per_sequence = width;
    free(table);
    free(own);
    uint64_t n_bytes = (uint64_t)(last + 1) * s->kv.page_bytes;
    s->kv.data = put(s->kv.data, n_bytes);
    return n_bytes;
}

static uint64_t put_slots(step *s, const batch *b)
{
    int32_t last = 0;
    for (int32_t t = 0; t < b->n_tokens; t++)
        last = b->slots[t] > last ? b->slots[t] : last;
    uint64_t n_bytes = (uint64_t)(last + 1) * s->recurrent.slot_bytes;
    s->recurrent.data = put(s->recurrent.data, n_bytes);
    return n_bytes;
}

static void put_batch(const batch *b, vulkan_batch *on)
{
    enum { MOST = 4096 };
    static int32_t seen[MOST], axes[ROPE_MAX_AXES * MOST], zeros[MOST];
    uint64_t n = 4 * (uint64_t)b->n_tokens;
    on->n_tokens = b->n_tokens;
    on->n_outputs = b->n_outputs;
    on->tokens = address_of(put(b->tokens, n));
    on->positions = address_of(put(b->positions, n));
    on->slots = address_of(put(b->slots ? b->slots : zeros, n));
    on->segments = address_of(put(b->segments ? b->segments : zeros, n));
    on->outputs = address_of(put(b->outputs, 4 * (uint64_t)b->n_outputs));
    on->axis_stride = b->n_tokens;
    on->sequences = address_of(put(b->sequences, n));
    if (b->adapter_scales) {
        int32_t last = 0;
        for (int32_t t = 0; t < b->n_tokens; t++)
            last = b->sequences[t] > last ? b->sequences[t] : last;
        on->scales =
            address_of(put(b->adapter_scales, 4 * (uint64_t)(last + 1) * (uint64_t)b->n_adapters));
        on->n_adapters = b->n_adapters;
        on->has_adapters = true;
    }
    on->given_width = b->embedding_width;
    if (b->embeddings)
        on->given = address_of(put(b->embeddings, n * (uint64_t)b->embedding_width));
    for (int32_t t = 0; b->positions && t < b->n_tokens; t++) {
        seen[t] = batch_seen(b, t);
        for (int32_t axis = 0; axis < ROPE_MAX_AXES; axis++)
            axes[axis * b->n_tokens + t] = batch_axis(b, axis, t);
    }
    on->seen = address_of(put(seen, n));
    on->axes = address_of(put(axes, ROPE_MAX_AXES * n));
}

/* Record the step, with parameters in the image's place on the device, and run it. */
static void record_and_run(const step *s, const vulkan_batch *on)
{
    lace_error err;
    recorder r = {
        .v = card, .batch = on, .params_bytes = record_params_bytes(s), .given = {-1, -1}};
    int64_t n_rows = s->is_output ? on->n_outputs : on->n_tokens;
    uint64_t at = reserve(NULL, record_scratch_bytes(s, n_rows));
    memset(image + at, 0xff, record_scratch_bytes(s, n_rows)); /* NaNs */
    r.scratch = memory + at;
    r.form_bytes = record_form_bytes(s, n_rows);
    at = reserve(NULL, RECORD_FORMED * r.form_bytes);
    memset(image + at, 0xff, RECORD_FORMED * r.form_bytes);
    r.forms = memory + at;
    at = reserve(NULL, r.params_bytes);
    r.params = memory + at;
    r.params_host = image + at;
    must(vulkan_list_begin(queue, &r.list, &err), &err);
    must(record_step(&r, s, 1, &err), &err);
    must(record_end(&r, &err), &err);
    must(vulkan_write(queue, memory, image, image_used, &err), &err);
    must(vulkan_list_run(r.list, &err), &err);
    must(vulkan_read(queue, image, memory, image_used, &err), &err);
    vulkan_list_free(r.list);
}

/* A step on the device, as a kernel of the host: one worker has it done. */
static void run_step(const step *host, const batch *b, const worker *w)
{
    if (w->index != 0)
        return;
    step s = *host;
    vulkan_batch on = {0};
    op_state state = op_describe(s.op)->state;
    uint64_t n_bytes = 0;
    begin_image();
    put_operands(&s, b);
    put_arguments(&s);
    put_batch(b, &on);
    if (state == OP_PAGES)
        n_bytes = put_pages(&s, b, &on);
    if (state == OP_RECURRENT)
        n_bytes = put_slots(&s, b);
    record_and_run(&s, &on);
    check_guards();
    for (int i = 0; i < STEP_MAX_OUT; i++)
        if (host->out[i].data)
            take_back(host->out[i].data, s.out[i].data,
                      (uint64_t)rows_of(&s, b, true, i) * s.out[i].stride);
    if (state == OP_PAGES)
        take_back(host->kv.data, s.kv.data, n_bytes);
    if (state == OP_RECURRENT)
        take_back(host->recurrent.data, s.recurrent.data, n_bytes);
    is_run[s.op] = true;
}

/* ---- Families -------------------------------------------------------------------------------- */

/*
 * Types that are kept as f16 lose 2^-12 of each value on average: 1e-7, squared and with room. dot4
 * sees 15 bits of the inputs, cooperative matrices see 11 of everything.
 */
static double nmse_of(dtype type, int n_tokens)
{
    const vulkan_info *info = vulkan_features(card);
    if (weights_kept_as(type) != type || (info->has_matrices && record_is_many(n_tokens)))
        return 1e-6;
    return info->has_dot4 && type > DTYPE_F16 ? 1e-8 : 1e-10;
}

static void check_products(const kernel_table *ref)
{
    static const op ops[] = {OP_MATMUL, OP_MATMUL_ADD, OP_MATMUL_GROUP, OP_MATMUL_GLU};
    static const int shapes[][2] = {{64, 256}, {200, 512}, {24, 768}, {130, 256}};
    static const int tokens[] = {1, 2, 5, 9};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        product_check c = {.ref = ref, .fn = run_step};
        bool is_matrix = ref->exact[type] && dtype_describe((dtype)type)->block_bytes > 0;
        if (!is_matrix || !check_begin("products", dtype_describe((dtype)type)->name, run_step))
            continue;
        for (int k = 0; k < 4; k++)
            for (int t = 0; t < 4; t++) {
                c.max_nmse = nmse_of((dtype)type, tokens[t]);
                check_product(&c, ops[k], (dtype)type, tokens[t], shapes[(k + t) % 4][0],
                              shapes[(k + t) % 4][1], t == 2 ? CHECK_OUTLIER : CHECK_NORMAL);
            }
        check_end();
    }
}

/*
 * Halves are off by 2^-11 at most and by 2e-4 on average, 4e-8 squared; both operands by 8e-8. What is
 * behind a gate, or squared, may have twice as much, and check_expert_product allows for it.
 */
static double nmse_of_experts(dtype type, int n_tokens)
{
    bool has_halves = check_has_matrices && record_is_many(n_tokens) && type != DTYPE_F32 &&
                      weights_kept_as(type) == type;
    return has_halves ? 1e-7 : nmse_of(type, 1);
}

static void check_expert_products(const kernel_table *ref)
{
    static const dtype types[] = {DTYPE_F32,  DTYPE_F16,   DTYPE_Q4_K,
                                  DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_S4};
    static const int tokens[] = {1, 3, 10};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        product_check c = {.ref = ref, .fn = run_step};
        if (!check_begin("experts", dtype_describe(types[i])->name, run_step))
            continue;
        for (int k = 0; k < 6; k++) {
            c.max_nmse = nmse_of_experts(types[i], tokens[k / 2]);
            check_expert_product(&c, k % 2, types[i], tokens[k / 2], 8, 2, true, false);
            check_expert_product(&c, k % 2, types[i], tokens[k / 2], 33, 5, true, false);
            check_expert_product(&c, k % 2, types[i], tokens[k / 2], 8, 2, false, false);
            check_expert_product(&c, k % 2, types[i], tokens[k / 2], 8, 1, true, true);
        }
        check_end();
    }
}

/* The CPU's families, and products, whose families there know tiles. */
static void check_families(const kernel_table *ref)
{
    static matmul_impl impl;
    kernel_table table = {0};
    impl = *ref->exact[DTYPE_F32];
    for (int i = 0; i < OP_COUNT; i++)
        table.ops[i] = record_has_shader((op)i) ? run_step : NULL;
    for (int i = 0; i < DTYPE_COUNT; i++)
        table.packed[i] = ref->packed[i] && weights_kept_as((dtype)i) == (dtype)i ? &impl : NULL;
    check_embed(ref, &table);
    check_norm(ref, &table);
    check_glu(ref, &table);
    check_row_ops(ref, &table);
    check_rope(ref, &table);
    check_kv(ref, &table);
    check_attend(ref, &table);
    check_conv(ref, &table);
    check_scan(ref, &table);
    check_streams(ref, &table);
    check_moe(ref, &table);
    check_delta(ref, &table);
    check_heads(ref, &table);
    check_sparse(ref, &table);
    check_lora(ref, &table);
    check_image(ref, &table);
    check_products(ref);
    check_expert_products(ref);
}

/*
 * Called by checkkernels after the CPU's levels. False: there is no Vulkan, or only on a processor,
 * which is slow and checked when it is asked for.
 */
bool check_vulkan(const kernel_table *ref, const check_wish *wish);
bool check_vulkan(const kernel_table *ref, const check_wish *wish)
{
    lace_error err;
    vulkan_info info;
    if (vulkan_count() == 0 || check_is_bench())
        return false;
    must(vulkan_open(0, &card, &err), &err);
    must(vulkan_describe(card, &info, &err), &err);
    if (info.is_cpu && !wish->is_named) {
        vulkan_close(card);
        return false;
    }
    must(vulkan_queue_create(card, &queue, &err), &err);
    must(vulkan_alloc(card, VULKAN_LOCAL, IMAGE_BYTES, &memory, NULL, &err), &err);
    image = malloc(IMAGE_BYTES);
    printf("# on %s, %s, subgroups of %u\n", info.name, info.driver, info.subgroup_lanes);
    check_may_flush = !info.is_cpu; /* processors keep them, so that mistakes are seen there */
    check_has_matrices = info.has_matrices;
    check_has_planes = info.has_dot4;
    check_divides_roughly = !info.is_cpu;
    check_families(ref);
    check_may_flush = check_has_matrices = check_has_planes = check_divides_roughly = false;
    if (wish->is_all && check_begin("all operations", NULL, run_step)) {
        for (int i = 0; i < OP_COUNT; i++) {
            check_shape("%s", op_name((op)i));
            check_true(is_run[i] || !record_has_shader((op)i), "it was checked");
        }
        check_end();
    }
    free(image);
    vulkan_queue_free(queue);
    vulkan_close(card);
    return true;
}
