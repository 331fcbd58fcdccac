/* Steps on a GPU, for checks and timings. */
#include "check_gpu.h"

#include "backend/cuda/lower.h"
#include "backend/lora_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 4096, BENCH_RUNS = 7 };

static gpu *card;
static cuda_queue *queue;
static gpu_uploader *uploader;
static void *blocks[MAX_BLOCKS];
static int n_blocks;
static weight device_weights[MAX_BLOCKS];
static int n_device_weights;

/* Nothing can be said about a kernel when the driver fails. */
static void must(lace_status status, const lace_error *err)
{
    if (status == LACE_OK)
        return;
    printf("not ok - the GPU failed: %s\n", err->text);
    exit(1);
}

static void *on_card(uint64_t n_bytes)
{
    lace_error err;
    if (n_blocks == MAX_BLOCKS) {
        printf("not ok - too many blocks of memory in one shape\n");
        exit(1);
    }
    must(cuda_alloc(card->device, n_bytes ? n_bytes : 1, &blocks[n_blocks], &err), &err);
    return blocks[n_blocks++];
}

static void *copy_to_card(const void *host, uint64_t n_bytes)
{
    lace_error err;
    if (!host)
        return NULL;
    void *at = on_card(n_bytes);
    must(cuda_copy_to(queue, at, host, n_bytes, &err), &err);
    must(cuda_wait(queue, &err), &err);
    return at;
}

void gpu_step_release(void)
{
    for (int i = 0; i < n_blocks; i++)
        cuda_free(card->device, blocks[i]);
    n_blocks = n_device_weights = 0;
}

/* n matrices that lie one after the other, packed into tiles. */
static const weight *weights_to_card(const weight *w, int n)
{
    lace_error err;
    if (!w)
        return NULL;
    weight *out = &device_weights[n_device_weights];
    n_device_weights += n;
    uint64_t each = tile_matrix_bytes(tile_kind_of(w->type), w->n_rows, w->n_cols);
    uint8_t *at = on_card(each * (uint64_t)n);
    for (int i = 0; i < n; i++) {
        out[i] = w[i];
        out[i].data = at + each * (uint64_t)i;
        must(gpu_upload_matrix(uploader, w[i].type, w[i].type, w[i].data, w->n_rows, w->n_cols,
                               at + each * (uint64_t)i, &err),
             &err);
    }
    must(gpu_uploader_wait(uploader, &err), &err);
    return out;
}

static void operands_to_card(gpu_step *g)
{
    step *s = &g->s;
    int n_used = s->op == OP_MOE_GLU || s->op == OP_MOE_DOWN ? s->a.moe.n_used : 1;
    for (int i = 0; i < STEP_MAX_IN; i++) {
        bool is_items = s->op == OP_MOE_DOWN && i == 0;
        int64_t rows = g->n_rows * (is_items ? n_used : 1);
        s->in[i].data = copy_to_card(s->in[i].data, (uint64_t)rows * s->in[i].stride);
    }
    for (int i = 0; i < STEP_MAX_OUT; i++) {
        int64_t rows = g->n_rows * (s->op == OP_MOE_GLU ? n_used : 1);
        s->out[i].data = copy_to_card(s->out[i].data, (uint64_t)rows * s->out[i].stride);
    }
}

/* Adapters: their matrices, and the list that kernels read. */
static void site_to_card(step *s)
{
    enum { MOST = 16 };
    const lora_site *site = s->a.lora.site;
    lora_piece list[MOST];
    for (int32_t i = 0; i < site->n_pairs && i < MOST; i++) {
        const lora_pair *p = &site->pairs[i];
        list[i] =
            lora_piece_of(p, (uint64_t)(uintptr_t)copy_to_card(p->down, lora_down_size(site, p)),
                          (uint64_t)(uintptr_t)copy_to_card(p->up, lora_up_size(site, p)));
    }
    s->a.lora.pieces =
        (uint64_t)(uintptr_t)copy_to_card(list, (uint64_t)site->n_pairs * sizeof *list);
}

static void arguments_to_card(step *s, uint64_t states_bytes)
{
    switch (s->op) {
    case OP_MATMUL:
    case OP_MATMUL_ADD:
    case OP_MATMUL_GROUP:
    case OP_MATMUL_GLU:
        for (int i = 0; i < s->a.matmul.n_weights; i++) {
            const weight *w = s->a.matmul.weights[i];
            s->a.matmul.weights[i] = weights_to_card(w, 1);
            s->a.matmul.biases[i] = copy_to_card(s->a.matmul.biases[i], 4 * (uint64_t)w->n_rows);
        }
        break;
    case OP_MOE_GLU:
    case OP_MOE_DOWN: {
        int n = s->a.moe.n_experts;
        const weight *gate = s->a.moe.gate, *up = s->a.moe.up, *down = s->a.moe.down;
        s->a.moe.gate = weights_to_card(gate, n);
        s->a.moe.up = weights_to_card(up, n);
        s->a.moe.down = weights_to_card(down, n);
        uint64_t ff = up ? 4 * (uint64_t)n * (uint64_t)up->n_rows : 0;
        s->a.moe.gate_bias = copy_to_card(s->a.moe.gate_bias, ff);
        s->a.moe.up_bias = copy_to_card(s->a.moe.up_bias, ff);
        s->a.moe.down_bias =
            copy_to_card(s->a.moe.down_bias, down ? 4 * (uint64_t)n * (uint64_t)down->n_rows : 0);
        break;
    }
    case OP_MATMUL_HEADS:
        s->a.heads.weights = weights_to_card(s->a.heads.weights, s->a.heads.n_heads);
        break;
    case OP_ATTEND:
        s->kv.data = copy_to_card(s->kv.data, states_bytes);
        s->a.attend.sinks = copy_to_card(s->a.attend.sinks, 4 * (uint64_t)s->a.attend.n_heads);
        break;
    case OP_LORA_DOWN:
    case OP_LORA_UP:
        site_to_card(s);
        break;
    default: {
        op_vector vectors[OP_MAX_VECTORS];
        int n = step_vectors(s, vectors);
        for (int i = 0; i < n; i++)
            *vectors[i].at = copy_to_card(*vectors[i].at, 4 * (uint64_t)vectors[i].n);
        break;
    }
    }
}

void gpu_step_prepare(gpu_step *g, const step *s, const batch *b, const int32_t *sequences,
                      const int32_t *const *tables, int n_sequences, int pages_per_sequence,
                      uint64_t states_bytes, int64_t n_context)
{
    memset(g, 0, sizeof *g);
    g->s = *s;
    g->n_rows = b->n_tokens;
    operands_to_card(g);
    arguments_to_card(&g->s, states_bytes);
    uint64_t n = 4 * (uint64_t)b->n_tokens;
    g->batch = (gpu_batch){.n_tokens = b->n_tokens,
                           .positions = copy_to_card(b->positions, n),
                           .sequences = copy_to_card(sequences, n),
                           .seen = copy_to_card(b->seen, n),
                           .segments = copy_to_card(b->segments, n),
                           .tokens = copy_to_card(b->tokens, n),
                           .n_outputs = b->n_outputs,
                           .outputs = copy_to_card(b->outputs, 4 * (uint64_t)b->n_outputs),
                           .given_width = b->embedding_width,
                           .given = copy_to_card(b->embeddings, n * (uint64_t)b->embedding_width),
                           .n_axes = b->n_axes,
                           .axes = copy_to_card(b->axes, n * (uint64_t)b->n_axes),
                           .pages_per_sequence = pages_per_sequence,
                           .host = b,
                           .host_sequences = sequences};
    if (b->adapter_scales) {
        int32_t last = 0;
        for (int t = 0; t < b->n_tokens; t++)
            last = b->sequences[t] > last ? b->sequences[t] : last;
        g->batch.scales =
            copy_to_card(b->adapter_scales, 4 * (uint64_t)(last + 1) * (uint64_t)b->n_adapters);
        g->batch.n_adapters = b->n_adapters;
    }
    if (tables) {
        uint64_t row = 4 * (uint64_t)pages_per_sequence;
        uint8_t *at = on_card(row * (uint64_t)n_sequences);
        lace_error err;
        for (int i = 0; i < n_sequences; i++) {
            must(cuda_copy_to(queue, at + row * (uint64_t)i, tables[i], row, &err), &err);
            must(cuda_wait(queue, &err), &err);
        }
        g->batch.tables[0] = g->batch.tables[1] = (const int32_t *)at;
    }
    g->job = (gpu_job){.g = card, .queue = queue, .batch = &g->batch};
    g->job.scratch_bytes = gpu_step_scratch_bytes(card, s, b->n_tokens, n_context);
    g->job.scratch = on_card(g->job.scratch_bytes + 1);
    lace_error err; /* a NaN wherever nothing is written */
    must(cuda_fill(queue, g->job.scratch, 0xff, g->job.scratch_bytes + 1, &err), &err);
}

/* As a list of this step alone would. */
static void launch(const gpu_step *g, const step *s)
{
    lace_error err;
    device_step d = lower_alone(card, g->job.is_exact, s, g->batch.n_tokens, g->batch.n_outputs);
    must(d.launch(&g->job, &d, &err), &err);
}

void gpu_step_run(gpu_step *g)
{
    lace_error err;
    g->job.batch = &g->batch;
    launch(g, &g->s);
    must(cuda_wait(queue, &err), &err);
}

void gpu_step_fetch(const gpu_step *g, int i, const operand *to, int64_t n_rows)
{
    lace_error err;
    must(cuda_copy_from(queue, to->data, g->s.out[i].data, (uint64_t)n_rows * to->stride, &err),
         &err);
    must(cuda_wait(queue, &err), &err);
}

void check_gpu_use_bytes(bool uses)
{
    card->fast_prompts = uses;
}

void check_gpu_run_step(const step *s, const batch *b, const worker *w)
{
    if (w->index != 0)
        return;
    gpu_step g;
    gpu_step_prepare(&g, s, b, b->slots ? b->slots : b->sequences, NULL, 0, 0, 0, 0);
    uint64_t slots_bytes = 0;
    for (int t = 0; op_describe(s->op)->state == OP_RECURRENT && t < b->n_tokens; t++) {
        uint64_t bytes = (uint64_t)(b->slots[t] + 1) * s->recurrent.slot_bytes;
        slots_bytes = bytes > slots_bytes ? bytes : slots_bytes;
    }
    if (slots_bytes)
        g.s.recurrent.data = copy_to_card(s->recurrent.data, slots_bytes);
    gpu_step_run(&g);
    int64_t n_results = g.n_rows * (s->op == OP_MOE_GLU ? s->a.moe.n_used : 1);
    for (int i = 0; i < STEP_MAX_OUT && s->out[i].data; i++)
        gpu_step_fetch(&g, i, &s->out[i], n_results);
    if (slots_bytes)
        check_gpu_fetch(s->recurrent.data, g.s.recurrent.data, slots_bytes);
    gpu_step_release();
}

/* Families of the CPU's checks that the card's general kernels go through as well. */
static void check_as_table(const kernel_table *ref)
{
    kernel_table table = {0};
    for (int i = 0; i < OP_COUNT; i++)
        table.ops[i] = gpu_has_kernel((op)i) ? check_gpu_run_step : NULL;
    check_norm(ref, &table);
    check_conv(ref, &table);
    check_delta(ref, &table);
    check_moe(ref, &table);
    check_scan(ref, &table);
    check_streams(ref, &table);
    check_lora(ref, &table);
    check_image(ref, &table);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void gpu_step_bench(gpu_step *g, const char *what, double n_bytes, double n_flops)
{
    enum { INNER = 20 };
    cuda_event *begin, *end;
    lace_error err;
    double times[BENCH_RUNS];
    g->job.batch = &g->batch;
    must(cuda_event_create(card->device, &begin, &err), &err);
    must(cuda_event_create(card->device, &end, &err), &err);
    /* Copies of the weights, so that they come from memory as they do in a model. */
    enum { COPIES = 6 };
    step copies[COPIES];
    bool is_product = g->s.op == OP_MATMUL || g->s.op == OP_MATMUL_ADD ||
                      g->s.op == OP_MATMUL_GROUP || g->s.op == OP_MATMUL_GLU;
    for (int c = 0; c < COPIES; c++) {
        copies[c] = g->s;
        for (int i = 0; c > 0 && is_product && i < g->s.a.matmul.n_weights; i++) {
            const weight *w = g->s.a.matmul.weights[i];
            uint64_t n = tile_matrix_bytes(tile_kind_of(w->type), w->n_rows, w->n_cols);
            weight *copy = &device_weights[n_device_weights++];
            *copy = *w;
            copy->data = on_card(n);
            must(cuda_copy_on(queue, (void *)(uintptr_t)copy->data, w->data, n, &err), &err);
            copies[c].a.matmul.weights[i] = copy;
        }
    }
    for (int r = -1; r < BENCH_RUNS; r++) {
        must(cuda_event_record(begin, queue, &err), &err);
        for (int i = 0; i < INNER; i++)
            launch(g, &copies[i % COPIES]);
        must(cuda_event_record(end, queue, &err), &err);
        must(cuda_wait(queue, &err), &err);
        double us;
        must(cuda_event_elapsed(begin, end, &us, &err), &err);
        if (r >= 0)
            times[r] = us / INNER;
    }
    qsort(times, BENCH_RUNS, sizeof *times, compare);
    double us = times[BENCH_RUNS / 2];
    printf("# %-44s %9.1f us %8.0f GB/s %7.1f TFLOP/s\n", what, us, n_bytes / us / 1e3,
           n_flops / us / 1e6);
    fflush(stdout);
    cuda_event_free(begin);
    cuda_event_free(end);
}

gpu *check_gpu_card(void)
{
    return card;
}

cuda_queue *check_gpu_queue(void)
{
    return queue;
}

void check_gpu_must(lace_status status)
{
    lace_error err = {.text = "a launch was refused"};
    must(status, &err);
}

void *check_gpu_copy(const void *host, uint64_t n_bytes)
{
    return copy_to_card(host, n_bytes);
}

void check_gpu_fetch(void *host, const void *device, uint64_t n_bytes)
{
    lace_error err;
    must(cuda_copy_from(queue, host, device, n_bytes, &err), &err);
    must(cuda_wait(queue, &err), &err);
}

/* Called by checkkernels after the CPU's levels. False: there is no GPU. */
bool check_gpu(const kernel_table *ref, const check_wish *wish);
bool check_gpu(const kernel_table *ref, const check_wish *wish)
{
    lace_error err;
    if (!gpu_is_built() || cuda_count() == 0)
        return false;
    must(gpu_open(0, &card, &err), &err);
    must(cuda_queue_create(card->device, &queue, &err), &err);
    must(gpu_uploader_create(card, &uploader, &err), &err);
    printf("# on %s\n", card->info.name);
    if (!check_is_bench())
        check_as_table(ref);
    check_gpu_matmul(ref);
    check_gpu_bytes(ref);
    check_gpu_moe(ref);
    if (!check_is_bench())
        check_gpu_heads();
    check_gpu_attend(ref);
    if (!check_is_bench())
        check_gpu_token(ref);
    check_gpu_sample();
    gpu_uploader_free(uploader);
    cuda_queue_free(queue);
    gpu_close(card);
    return true;
}
