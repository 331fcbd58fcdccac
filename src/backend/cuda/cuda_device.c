/* NVIDIA's GPUs as a backend: weights in tiles on the card, programs of launches. */
#include "backend/cuda/cuda_device.h"

#include <string.h>

#include "backend/cuda/card_link.h"
#include "backend/cuda/card_queue.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/decode_steps.h"
#include "backend/cuda/run_gpu.h"
#include "backend/cuda/weight_stream.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "plan/latents.h"

typedef struct cuda_card {
    device base;
    gpu *g;
    uint8_t *memory;        /* of all weights, weight_bytes; NULL until loading begins */
    gpu_uploader *uploader; /* while loading */
    gpu_uploader *streamer; /* of programs with weights that are brought for each step; or NULL */
} cuda_card;

enum {
    USUAL_BATCH = 2048, /* Llama-3-8B on an H200: 30,586 tokens/s, 23,779 with 512 */
    /*
     * Llama-3-8B on an H200: a step of 128 rows takes 8 ms, of 160 rows 9.6, of 256 rows 10.6, of 512
     * rows 19. So steps are whole tiles, and two of them make good use of the time.
     */
    BATCH_TILE = 128,
    BATCH_STEP = 256,
    ALIGN = 4096
};

/* Through which weights are loaded, and what the driver takes for itself. */
static const uint64_t LOADING_BYTES = (uint64_t)384 << 20;

static int count(void)
{
    return gpu_is_built() ? cuda_count() : 0;
}

static lace_status open(int index, const device_options *o, device **out, lace_error *err)
{
    *out = NULL;
    cuda_card *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "a device");
    c->base.backend = &backend_cuda;
    lace_status status = gpu_open(index, &c->g, err);
    if (status != LACE_OK) {
        mem_free(c);
        return status;
    }
    c->g->fast_prompts = o->fast_prompts;
    *out = &c->base;
    return LACE_OK;
}

static void close(device *d)
{
    cuda_card *c = (cuda_card *)d;
    gpu_uploader_free(c->uploader);
    gpu_uploader_free(c->streamer);
    cuda_free(c->g->device, c->memory);
    card_link_close(c->g->link);
    gpu_close(c->g);
    mem_free(c);
}

static lace_status describe(device *d, device_info *out, lace_error *err)
{
    cuda_info info;
    TRY(cuda_describe(((cuda_card *)d)->g->device, &info, err));
    *out = (device_info){.total_bytes = info.total_bytes,
                         .free_bytes = info.free_bytes,
                         .loading_bytes = LOADING_BYTES,
                         .usual_batch = USUAL_BATCH,
                         .tile_rows = BATCH_TILE,
                         .step_rows = BATCH_STEP,
                         .has_fast_prompts = true};
    memcpy(out->name, info.name, sizeof out->name);
    return LACE_OK;
}

static lace_status join(device *d, ranks *r, char note[DEVICE_NOTE_BYTES], lace_error *err)
{
    gpu *g = ((cuda_card *)d)->g;
    TRY(card_link_open(g, r, note, &g->link, err));
    d->collects = g->link != NULL;
    return LACE_OK;
}

static lace_status open_queue(device *d, queue **out, lace_error *err)
{
    return card_queue_open(((cuda_card *)d)->g->device, out, err);
}

/* ---- Weights --------------------------------------------------------------------------------- */

static dtype kept_as(device *d, dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols)
{
    return gpu_kept_as(type, blocks, n_rows, n_cols);
}

static lace_status place(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    dtype type = rows->is_table ? gpu_embedding_type(rows->type) : rows->kept;
    *out = (weight){
        .type = type, .n_rows = rows->n_rows, .n_cols = rows->n_cols, .offset = d->weight_bytes};
    out->n_bytes = rows->is_table
                       ? (uint64_t)rows->n_rows * row_bytes(type, rows->n_cols)
                       : tile_matrix_bytes(tile_kind_of(type), rows->n_rows, rows->n_cols);
    d->weight_bytes += round_up(out->n_bytes, ALIGN);
    return LACE_OK;
}

static lace_status place_streamed(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    uint64_t before = d->weight_bytes;
    TRY(place(d, rows, out, err));
    d->weight_bytes = before;
    out->streamed = rows;
    return LACE_OK;
}

static lace_status begin_load(device *d, lace_error *err)
{
    cuda_card *c = (cuda_card *)d;
    if (!c->memory)
        TRY(cuda_alloc(c->g->device, d->weight_bytes, (void **)&c->memory, err));
    return c->uploader ? LACE_OK : gpu_uploader_create(c->g, &c->uploader, err);
}

static lace_status load(device *d, const weight_rows *rows, weight *w, pool *workers,
                        lace_error *err)
{
    cuda_card *c = (cuda_card *)d;
    uint8_t *to = c->memory + w->offset;
    w->data = to;
    return rows->is_table ? gpu_upload_embedding(c->uploader, rows->type, rows->blocks,
                                                 rows->n_rows, rows->n_cols, to, err)
                          : gpu_upload_matrix(c->uploader, rows->type, rows->kept, rows->blocks,
                                              rows->n_rows, rows->n_cols, to, err);
}

static lace_status end_load(device *d, lace_error *err)
{
    cuda_card *c = (cuda_card *)d;
    lace_status status = gpu_uploader_wait(c->uploader, err);
    gpu_uploader_free(c->uploader);
    c->uploader = NULL;
    return status;
}

/* ---- Programs -------------------------------------------------------------------------------- */

typedef struct cuda_program {
    program base;
    cuda_card *card;
    gpu *g;
    plan *p; /* fused and placed */
    program_options options;
    gpu_plan *on_card; /* NULL until it is prepared */
} cuda_program;

static gpu_plan_options options_of(const cuda_program *cp)
{
    return (gpu_plan_options){.g = cp->g,
                              .n_sequences = cp->options.n_sequences,
                              .pages_per_sequence = cp->options.pages_per_sequence,
                              .n_groups = cp->options.n_groups};
}

/* Everything that the card has kernels for. */
static lace_status check_steps(const gpu *g, const plan *p, lace_error *err)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        bool has_pages = op_describe(s->op)->state == OP_PAGES;
        bool is_linked = s->op != OP_COLLECT || g->link;
        if (!gpu_has_kernel(s->op) || !is_linked)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "layer %d: there is no kernel for GPUs that computes %s; use "
                             "--device cpu",
                             s->layer, op_name(s->op));
        if (has_pages && s->kv.v_dim != s->kv.head_dim && !s->kv.v_in_k)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "layer %d: there is no kernel for GPUs for keys of %d and values of "
                             "%d numbers; use --device cpu",
                             s->layer, s->kv.head_dim, s->kv.v_dim);
    }
    return LACE_OK;
}

static void free_program(program *p)
{
    cuda_program *cp = (cuda_program *)p;
    gpu_plan_free(cp->on_card);
    plan_free(cp->p);
    mem_free(cp);
}

static lace_status compile(device *d, const plan *p, const program_options *o, program **out,
                           lace_error *err)
{
    *out = NULL;
    cuda_program *cp = mem_calloc(1, sizeof *cp);
    if (!cp)
        return error_nomem(err, "a program");
    cp->base.backend = d->backend;
    cp->card = (cuda_card *)d;
    cp->g = cp->card->g;
    cp->options = *o;
    lace_status status = plan_copy(p, &cp->p, err);
    if (status == LACE_OK)
        status = check_steps(cp->g, cp->p, err);
    if (status != LACE_OK) {
        free_program(&cp->base);
        return status;
    }
    plan_count_reads(cp->p);
    cp->p->last_fused = GPU_LAST_FUSED_GLU;
    cp->p->kept_phases = GPU_KEPT_PHASES;
    cp->p->has_copies = true;
    plan_fuse(cp->p);
    plan_keep_latents(cp->p);
    plan_place(cp->p, NULL);
    gpu_plan_options options = options_of(cp);
    cp->base.n_bytes = gpu_plan_bytes(cp->p, &options);
    cp->base.room_bytes = gpu_plan_room_bytes(cp->p, &options);
    *out = &cp->base;
    return LACE_OK;
}

static lace_status prepare(program *p, const program_memory *m, lace_error *err)
{
    cuda_program *cp = (cuda_program *)p;
    gpu_plan_options options = options_of(cp);
    options.queue = card_queue_stream(m->queue);
    options.kv_data = m->pages;
    options.slots = m->slots;
    options.border = m->border;
    options.is_shared = m->is_shared;
    if (weight_stream_slot_bytes(cp->p) > 0 && !cp->card->streamer)
        TRY(gpu_uploader_create(cp->g, &cp->card->streamer, err));
    options.streamer = cp->card->streamer;
    options.room = m->room;
    if (cp->g->link)
        TRY(card_link_reserve(cp->g->link, cp->p->exchange_bytes, err));
    TRY(gpu_plan_create(cp->p, &options, &cp->on_card, err));
    p->chooses = gpu_plan_chooses(cp->on_card);
    p->queues = p->chooses && cp->p->hidden < 0;
    return LACE_OK;
}

static lace_status run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                       lace_error *err)
{
    return gpu_plan_run(((cuda_program *)p)->on_card, b, rules, is_traced, err);
}

static lace_status submit(program *p, const batch *b, const choice_rule *rules, lace_error *err)
{
    return gpu_plan_submit(((cuda_program *)p)->on_card, b, rules, err);
}

static lace_status collect(program *p, lace_error *err)
{
    return gpu_plan_collect(((cuda_program *)p)->on_card, err);
}

static lace_status warm_up(program *p, lace_error *err)
{
    return gpu_plan_warm_up(((cuda_program *)p)->on_card, err);
}

static const float *logits(const program *p, int32_t row)
{
    return gpu_plan_logits(((const cuda_program *)p)->on_card, row);
}

static const float *hidden(const program *p, int32_t row)
{
    return gpu_plan_hidden(((const cuda_program *)p)->on_card, row);
}

static int32_t n_steps(const program *p)
{
    return gpu_plan_n_steps(((const cuda_program *)p)->on_card);
}

static program_step step_at(const program *p, int32_t i, const batch *b)
{
    gpu_plan_step s = gpu_plan_step_at(((const cuda_program *)p)->on_card, i, b);
    return (program_step){.name = s.name,
                          .layer = s.layer,
                          .n_bytes = s.n_bytes,
                          .n_products = s.n_products,
                          .ns = s.ns};
}

static int32_t word(const program *p, int32_t row)
{
    return gpu_plan_word(((const cuda_program *)p)->on_card, row);
}

static lace_status begin(program *p, const ahead_start *start, const choice_rule *rule,
                         lace_error *err)
{
    return gpu_plan_begin(((cuda_program *)p)->on_card, start, rule, err);
}

static lace_status ahead(program *p, const int32_t *const *pages, int32_t sequence,
                         int32_t position, lace_error *err)
{
    return gpu_plan_ahead(((cuda_program *)p)->on_card, pages, sequence, position, err);
}

static lace_status next(program *p, int32_t *out, lace_error *err)
{
    return gpu_plan_next(((cuda_program *)p)->on_card, out, err);
}

const backend backend_cuda = {
    .name = "cuda",
    .count = count,
    .open = open,
    .close = close,
    .describe = describe,
    .join = join,
    .open_queue = open_queue,
    .kept_as = kept_as,
    .place = place,
    .place_streamed = place_streamed,
    .begin_load = begin_load,
    .load = load,
    .end_load = end_load,
    .compile = compile,
    .prepare = prepare,
    .free = free_program,
    .run = run,
    .submit = submit,
    .collect = collect,
    .warm_up = warm_up,
    .logits = logits,
    .hidden = hidden,
    .n_steps = n_steps,
    .step_at = step_at,
    .word = word,
    .begin = begin,
    .ahead = ahead,
    .next = next,
};
