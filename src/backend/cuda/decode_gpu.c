/* One token on a GPU: the plan recognized, its kernels launched, recorded and replayed. */
#include "backend/cuda/decode_gpu.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "backend/cuda/decode_apart.h"
#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_form.h"
#include "backend/cuda/decode_product.h"
#include "backend/cuda/token_ring.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

enum {
    N_CLUSTERS = 5,
    N_LENGTHS = GPU_APART_LENGTHS,
    AHEAD = 0,
    SINGLE = 1,
    SAMPLED = 2,
    N_GRAPHS = 3
};

struct gpu_decode {
    gpu *g;
    cuda_queue *queue;
    gpu_batch batch; /* where the page tables are */
    decode_form form;
    gpu_experts experts;
    gpu_apart apart;
    cuda_kernel *product, *attend, *begin; /* product: the form that suits the layers */
    int32_t head_dim, n_kv_heads;
    uint32_t attend_bytes;
    bool shares;              /* processors: see launch_product */
    uint32_t residual_shared; /* what a block of output or down asks for then */
    bool is_late;             /* most of the ring is filled when the input is there */

    uint8_t *memory; /* on the card, cut up into: */
    uint64_t memory_bytes;
    decode_state *state;
    float *residual, *q, *k, *v, *squares[2], *angles[2], *logits;
    decode_best *best, *drawn;
    choice_rule *rule;
    decode_vector in, attended, ffn_in, hidden, head_in;

    decode_state *state_host; /* pinned */
    choice_rule *rule_host;
    token_ring ring;
    bool samples;     /* what is queued ahead is drawn, not the best */
    int32_t n_queued; /* choices */
    bool is_loaded;   /* steps as they are have run once: nothing is loaded in a record */
    cuda_graph *graphs[N_GRAPHS][N_LENGTHS]; /* [][log2 of the cluster, or a length of contexts] */
};

static uint64_t round_up(uint64_t n)
{
    return (n + 255) & ~(uint64_t)255;
}

/* Cuts memory up, or only counts it when `at` begins at 0. */
static void *cut(uint64_t *at, uint8_t *memory, uint64_t n)
{
    uint64_t begin = *at;
    *at += round_up(n);
    return memory ? memory + begin : NULL;
}

/* For a consumer. wants_floats: so does another one, of this layer or of others. */
static decode_vector cut_vector(uint64_t *at, uint8_t *memory, const weight *consumer,
                                bool wants_floats)
{
    gpu_act act = wants_floats ? GPU_ACT_FLOATS : tile_kind_act(tile_kind_of(consumer->type));
    int64_t k = (consumer->n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN;
    return (decode_vector){.planes = cut(at, memory, gpu_act_bytes(act, consumer->n_cols)),
                           .k = (int32_t)k,
                           .act = (int32_t)act};
}

static bool wants_floats(const step *s)
{
    for (int i = 0; s && i < s->a.matmul.n_weights; i++)
        if (tile_kind_act(tile_kind_of(s->a.matmul.weights[i]->type)) == GPU_ACT_FLOATS)
            return true;
    return false;
}

static uint64_t lay_out(gpu_decode *d)
{
    const layer_steps *l = &d->form.layers[0];
    uint64_t at = 0, n_blocks = (uint64_t)d->g->info.n_processors;
    uint8_t *m = d->memory;
    const weight *const *w = l->qkv->a.matmul.weights;
    d->state = cut(&at, m, sizeof *d->state);
    d->residual = cut(&at, m, 4 * (uint64_t)d->form.embed->out[0].width);
    d->q = cut(&at, m, 4 * (uint64_t)w[0]->n_rows);
    d->k = cut(&at, m, 4 * (uint64_t)w[1]->n_rows);
    d->v = cut(&at, m, 4 * (uint64_t)w[2]->n_rows);
    d->squares[0] = cut(&at, m, 4 * n_blocks);
    d->squares[1] = cut(&at, m, 4 * n_blocks);
    for (int t = 0; t < 2; t++)
        d->angles[t] =
            d->form.tables[t] ? cut(&at, m, 4 * (uint64_t)d->form.tables[t]->out[0].width) : NULL;
    d->apart.y = cut(&at, m, 4 * (uint64_t)d->form.embed->out[0].width);
    d->logits = cut(&at, m, 4 * (uint64_t)d->form.head->out[0].width);
    d->best = cut(&at, m, sizeof *d->best * n_blocks);
    d->drawn = cut(&at, m, sizeof *d->drawn);
    d->rule = cut(&at, m, sizeof *d->rule);
    bool in = false, attended = false, ffn_in = false, hidden = false;
    for (int32_t i = 0; i < d->form.n_layers; i++) {
        in |= wants_floats(d->form.layers[i].qkv);
        attended |= wants_floats(d->form.layers[i].o);
        ffn_in |= wants_floats(d->form.layers[i].glu);
        hidden |= wants_floats(d->form.layers[i].down);
    }
    d->in = cut_vector(&at, m, w[0], in);
    d->attended = cut_vector(&at, m, l->o->a.matmul.weights[0], attended);
    if (l->glu) {
        d->ffn_in = cut_vector(&at, m, l->glu->a.matmul.weights[0], ffn_in);
        d->hidden = cut_vector(&at, m, l->down->a.matmul.weights[0], hidden);
    } else {
        d->ffn_in = cut_vector(&at, m, l->expert_glu->a.moe.gate, false);
        d->hidden = cut_vector(&at, m, l->expert_down->a.moe.down, false);
        cut(&at, m, gpu_experts_stride(l) * (uint64_t)(l->route->a.moe.n_used - 1));
        d->experts.logits = cut(&at, m, 4 * (uint64_t)l->route->a.moe.n_experts);
    }
    d->head_in = cut_vector(&at, m, d->form.head->a.matmul.weights[0], false);
    return at;
}

uint64_t gpu_decode_bytes(const plan *p, const gpu *g)
{
    gpu_decode d = {.g = (gpu *)(uintptr_t)g};
    if (!g->has_overlap || !decode_form_match(p, g, &d.form))
        return 0;
    uint64_t bytes = lay_out(&d);
    mem_free(d.form.layers);
    return bytes;
}

static const char *choose_product(gpu_decode *d);

static lace_status prepare_experts(gpu_decode *d, lace_error *err)
{
    gpu_experts *e = &d->experts;
    e->g = d->g;
    e->queue = d->queue;
    uint32_t most = (uint32_t)d->g->info.max_shared_bytes;
    e->down_bytes = d->residual_shared < most ? d->residual_shared : most;
    e->in = d->ffn_in;
    e->hidden = d->hidden;
    e->residual = d->residual;
    return gpu_experts_prepare(e, err);
}

/* The kernel for attention: heads that are turned as a whole, without caps, have quicker ones. */
static const char *attend_form(const gpu_decode *d)
{
    bool is_neox = false;
    for (int32_t i = 0; i < d->form.n_layers; i++) {
        const layer_steps *l = &d->form.layers[i];
        bool turns = l->rope->op == OP_ROPE_KV;
        if (l->attend->a.attend.softcap > 0 || d->head_dim % 32 != 0 ||
            (turns && l->rope->a.rope.n_dims != d->head_dim))
            return "";
        is_neox |= turns && l->rope->a.rope.is_neox;
    }
    return is_neox ? "_halves" : "_neighbours";
}

/* Clusters of more than 8 blocks are not for all cards; that Hopper has them was seen. */
static bool has_large_clusters(const gpu_decode *d)
{
    return d->g->info.major == 9;
}

static lace_status prepare_attend(gpu_decode *d, lace_error *err)
{
    char name[32];
    const kv_layer *kv = &d->form.layers[0].attend->kv;
    d->head_dim = kv->head_dim;
    d->n_kv_heads = kv->n_heads;
    if (d->form.attends_by_steps)
        return LACE_OK;
    snprintf(name, sizeof name, "decode_attend_%d%s", d->head_dim, attend_form(d));
    TRY(gpu_find(d->g, name, &d->attend, err));
    d->attend_bytes =
        (uint32_t)(DECODE_ATTEND_WARPS * 2 * kv->page_tokens * (2 * d->head_dim + 16));
    return cuda_kernel_allow(d->attend, d->attend_bytes, has_large_clusters(d), err);
}

static lace_status prepare(gpu_decode *d, const gpu_token_options *o, lace_error *err)
{
    TRY(prepare_attend(d, err));
    TRY(gpu_find(d->g, "decode_begin_kernel", &d->begin, err));
    TRY(cuda_kernel_allow(d->begin, 0, false, err));
    d->memory_bytes = lay_out(d);
    TRY(cuda_alloc(d->g->device, d->memory_bytes, (void **)&d->memory, err));
    lay_out(d);
    TRY(gpu_find(d->g, choose_product(d), &d->product, err));
    TRY(cuda_kernel_allow(d->product, (uint32_t)d->g->info.max_shared_bytes, false, err));
    if (!d->form.layers[0].glu)
        TRY(prepare_experts(d, err));
    TRY(gpu_apart_prepare(&d->apart, o, d->state, err));
    TRY(cuda_fill(d->queue, d->memory, 0, d->memory_bytes, err));
    TRY(cuda_alloc_host(d->g->device, sizeof *d->state_host, (void **)&d->state_host, NULL, err));
    TRY(cuda_alloc_host(d->g->device, sizeof *d->rule_host, (void **)&d->rule_host, NULL, err));
    return token_ring_create(d->g, &d->ring, err);
}

lace_status gpu_decode_create(const gpu_token_options *o, gpu_decode **out, lace_error *err)
{
    *out = NULL;
    decode_form form;
    if (!o->g->has_overlap || !decode_form_match(o->p, o->g, &form))
        return LACE_OK;
    gpu_decode *d = mem_calloc(1, sizeof *d);
    if (!d) {
        mem_free(form.layers);
        return error_nomem(err, "a decoder");
    }
    d->g = o->g;
    d->queue = o->queue;
    d->batch = o->tables;
    d->form = form;
    lace_status status = prepare(d, o, err);
    if (status != LACE_OK) {
        gpu_decode_free(d);
        return status;
    }
    *out = d;
    return LACE_OK;
}

void gpu_decode_free(gpu_decode *d)
{
    if (!d)
        return;
    cuda_wait(d->queue, NULL);
    for (int i = 0; i < N_GRAPHS; i++)
        for (int n = 0; n < N_LENGTHS; n++)
            cuda_graph_free(d->graphs[i][n]);
    cuda_free(d->g->device, d->memory);
    cuda_free_host(d->g->device, d->state_host);
    cuda_free_host(d->g->device, d->rule_host);
    token_ring_free(d->g, &d->ring);
    mem_free(d->form.layers);
    mem_free(d);
}

/* ---- Products -------------------------------------------------------------------------------- */

/*
 * Shared memory decides who meets on a processor. Two blocks of one product there would halve its
 * speed, since other processors have nothing to do then. So each asks for more than half, and is
 * alone but for attention.
 *
 * Models with small layers share: products into the residual (output, down) ask for a little more
 * than half, those between them (q k v, gate and up) for what is left. Then a block fits beside one
 * of its predecessor and fills its ring with weights while that one works: TinyLlama from 1,791 to
 * 2,056 tokens a second on an H200. Layers much larger than all rings together gain nothing.
 */
enum {
    ALONE_BYTES = 116 * 1024,
    SHARED_RING = 64 * 1024, /* at least */
    LARGE_LAYER = 64 * 1024 * 1024
};

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What a block of output or down, whose input is x, asks for when processors are shared. */
static uint32_t residual_bytes(const gpu_decode *d, const weight *w, decode_vector x)
{
    decode_product p = {.parts = {gpu_product_part(w, NULL, NULL)}, .n_parts = 1, .x = x};
    gpu_product_hand_out(&p, d->g->info.n_processors);
    /* Each block costs 1024 bytes more than it asks for. */
    uint32_t half = ((uint32_t)d->g->info.max_shared_bytes + 1024) / 2 - 1024 + 128;
    return larger(gpu_product_fixed_bytes(&p) + larger(gpu_product_least_ring(&p), SHARED_RING),
                  half);
}

static uint64_t matrix_bytes(const step *s)
{
    uint64_t n = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        n += tile_matrix_bytes(tile_kind_of(w->type), w->n_rows, w->n_cols);
    }
    return n;
}

/* The kernel for products. Processors are shared if layers are small, and not so small that many
 * are empty. */
static const char *choose_product(gpu_decode *d)
{
    const layer_steps *first = &d->form.layers[0];
    uint64_t layer = matrix_bytes(first->qkv) + matrix_bytes(first->o);
    layer += first->glu ? matrix_bytes(first->glu) + matrix_bytes(first->down)
                        : gpu_experts_bytes(first);
    for (int32_t i = 0; i < d->form.n_layers; i++) {
        const layer_steps *l = &d->form.layers[i];
        uint32_t o = residual_bytes(d, l->o->a.matmul.weights[0], d->attended);
        uint32_t down = l->glu ? residual_bytes(d, l->down->a.matmul.weights[0], d->hidden)
                               : gpu_experts_down_bytes(d->g, l);
        d->residual_shared = larger(d->residual_shared, larger(o, down));
    }
    int64_t units = first->o->a.matmul.weights[0]->n_rows / TILE_ROWS;
    d->shares = layer < LARGE_LAYER && !first->o_norm && 4 * units >= 3 * d->g->info.n_processors &&
                d->residual_shared + 1024 < (uint32_t)d->g->info.max_shared_bytes;
    d->is_late = layer >= LARGE_LAYER;
    return d->shares ? "decode_product_shared" : "decode_product_kernel";
}

static lace_status launch_product(gpu_decode *d, decode_product *p, lace_error *err)
{
    int32_t n_blocks = gpu_product_hand_out(p, d->g->info.n_processors);
    uint32_t fixed = gpu_product_fixed_bytes(p), most = (uint32_t)d->g->info.max_shared_bytes;
    uint32_t least = fixed + gpu_product_least_ring(p), shared = 0;
    if (d->shares)
        shared = p->mode == DECODE_RESIDUAL ? d->residual_shared
                                            : (most - 1024 - d->residual_shared) / 128 * 128;
    bool is_shared = shared >= larger(least, fixed + SHARED_RING);
    if (is_shared) {
        p->ring_bytes = (int32_t)((shared - fixed) / 128 * 128);
    } else {
        p->ring_bytes = (int32_t)gpu_product_alone_ring(p, most - fixed);
        shared = larger(fixed + (uint32_t)p->ring_bytes, most < ALONE_BYTES ? most : ALONE_BYTES);
    }
    p->n_blocks = n_blocks;
    for (int32_t i = 0; i < p->n_parts; i++) {
        decode_part *part = &p->parts[i];
        part->n_places = p->ring_bytes / part->stage_bytes;
        if (part->n_places > DECODE_MAX_PLACES)
            part->n_places = DECODE_MAX_PLACES;
        part->n_early = d->is_late ? DECODE_WARPS : DECODE_MAX_PLACES;
    }
    /* Blocks without work keep places, or two of the next product would meet there. */
    if (d->shares && p->mode == DECODE_RESIDUAL)
        n_blocks = d->g->info.n_processors;
    cuda_launch l = {.kernel = d->product,
                     .grid = {(uint32_t)n_blocks},
                     .block = {DECODE_THREADS},
                     .shared_bytes = shared,
                     .overlaps = true};
    void *arguments[] = {p};
    return cuda_run(d->queue, &l, arguments, err);
}

/* How many blocks wrote the sums of squares that a product reads. */
static int32_t n_blocks_of(const gpu_decode *d, const weight *w)
{
    int32_t units = (int32_t)((w->n_rows + TILE_ROWS - 1) / TILE_ROWS);
    return units < d->g->info.n_processors ? units : d->g->info.n_processors;
}

/* The same behind a layer's output and behind the layer. */
static int32_t n_blocks_amid(const gpu_decode *d, const layer_steps *l)
{
    return l->o_norm ? 1 : n_blocks_of(d, l->o->a.matmul.weights[0]);
}

static int32_t n_blocks_behind(const gpu_decode *d, const layer_steps *l)
{
    return l->down_norm ? 1
           : l->glu     ? n_blocks_of(d, l->down->a.matmul.weights[0])
                        : gpu_experts_n_blocks(d->g, l);
}

/* norm: NULL if the product reads the residual as it is. */
static void norms_by(decode_product *p, const step *norm, const float *squares, int32_t n)
{
    if (!norm)
        return;
    p->squares = squares;
    p->n_squares = n;
    p->width = (int32_t)norm->in[0].width;
    p->eps = norm->a.norm.eps;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static lace_status launch_qkv(gpu_decode *d, int32_t i, lace_error *err)
{
    const layer_steps *l = &d->form.layers[i];
    const weight *const *w = l->qkv->a.matmul.weights;
    const float *const *b = l->qkv->a.matmul.biases;
    float *out[3] = {d->q, d->k, d->v};
    for (int n = 0; n < 3 && d->form.attends_by_steps; n++)
        out[n] = (float *)l->qkv->out[n].data;
    decode_product p = {.parts = {gpu_product_part(w[0], b[0], out[0]),
                                  gpu_product_part(w[1], b[1], out[1]),
                                  gpu_product_part(w[2], b[2], out[2])},
                        .n_parts = 3,
                        .x = d->in,
                        .scale = l->qkv->a.matmul.scale,
                        .mode = DECODE_STORE,
                        /* Attention reads the position before it waits: it must be there. */
                        .triggers_late = i == 0};
    int32_t n = i == 0 ? 1 : n_blocks_behind(d, &d->form.layers[i - 1]);
    norms_by(&p, l->norm, d->squares[0], n);
    return launch_product(d, &p, err);
}

static lace_status launch_attend(gpu_decode *d, int32_t i, uint32_t cluster, lace_error *err)
{
    const layer_steps *l = &d->form.layers[i];
    if (d->form.attends_by_steps)
        return gpu_apart_attend(&d->apart, l, d->attended, err);
    const kv_layer *kv = &l->rope->kv;
    decode_attention p = {.q = d->q,
                          .k = d->k,
                          .v = d->v,
                          .q_norm = l->q_norm ? l->q_norm->a.norm.weight : NULL,
                          .k_norm = l->k_norm ? l->k_norm->a.norm.weight : NULL,
                          .eps = l->q_norm   ? l->q_norm->a.norm.eps
                                 : l->k_norm ? l->k_norm->a.norm.eps
                                             : 0,
                          .sinks = l->attend->a.attend.sinks,
                          .state = d->state,
                          .next = d->attended,
                          .scale = l->attend->a.attend.scale,
                          .softcap = l->attend->a.attend.softcap,
                          .window = l->attend->a.attend.window,
                          .n_heads = l->attend->a.attend.n_heads,
                          .n_dims = l->rope->a.rope.n_dims,
                          .is_neox = l->rope->a.rope.is_neox};
    p.cache = (gpu_cache){.data = kv->data,
                          .page_bytes = kv->page_bytes,
                          .k_offset = kv->k_offset,
                          .v_offset = kv->v_offset,
                          .row_bytes = kv->row_bytes,
                          .type = (int32_t)kv->type,
                          .page_tokens = kv->page_tokens,
                          .n_heads = kv->n_heads,
                          .head_dim = kv->head_dim,
                          .tables = d->batch.tables[kv->group],
                          .pages_per_sequence = d->batch.pages_per_sequence};
    for (int t = 0; t < 2 && l->rope->op == OP_ROPE_KV; t++)
        if (d->form.tables[t] && l->rope->in[0].value == d->form.tables[t]->out[0].value)
            p.angles = d->angles[t];
    cuda_launch launch = {.kernel = d->attend,
                          .grid = {(uint32_t)d->n_kv_heads * cluster},
                          .block = {32 * DECODE_ATTEND_WARPS},
                          .shared_bytes = d->attend_bytes,
                          .cluster = cluster,
                          .overlaps = true};
    void *arguments[] = {&p};
    return cuda_run(d->queue, &launch, arguments, err);
}

/* Output and down: into the residual, and on as the input of what follows. norm, add: NULL if
 * results are added as they are. */
static lace_status launch_residual(gpu_decode *d, const step *s, const step *norm, const step *add,
                                   decode_vector x, decode_vector next, const step *next_norm,
                                   float *squares, lace_error *err)
{
    if (norm) {
        decode_part part =
            gpu_product_part(s->a.matmul.weights[0], s->a.matmul.biases[0], d->apart.y);
        decode_product p = {.parts = {part},
                            .n_parts = 1,
                            .x = x,
                            .scale = s->a.matmul.scale,
                            .mode = DECODE_STORE};
        TRY(launch_product(d, &p, err));
        return gpu_apart_join(&d->apart, norm, add, d->residual, next, next_norm, squares, err);
    }
    decode_product p = {
        .parts = {gpu_product_part(s->a.matmul.weights[0], s->a.matmul.biases[0], NULL)},
        .n_parts = 1,
        .x = x,
        .next = next,
        .scale = s->a.matmul.scale,
        .mode = DECODE_RESIDUAL,
        .residual = d->residual,
        .next_norm = next_norm->a.norm.weight,
        .next_squares = squares};
    return launch_product(d, &p, err);
}

static lace_status launch_glu(gpu_decode *d, const layer_steps *l, lace_error *err)
{
    const step *s = l->glu;
    decode_product p = {
        .parts = {gpu_product_part(s->a.matmul.weights[0], s->a.matmul.biases[0], NULL)},
        .n_parts = 1,
        .x = d->ffn_in,
        .next = d->hidden,
        .scale = s->a.matmul.scale,
        .mode = DECODE_GLU,
        .glu = (int32_t)s->a.matmul.glu};
    p.parts[0].pair = s->a.matmul.weights[1]->data;
    p.parts[0].pair_bias = s->a.matmul.biases[1];
    norms_by(&p, l->ffn_norm, d->squares[1], n_blocks_amid(d, l));
    return launch_product(d, &p, err);
}

static lace_status launch_layers(gpu_decode *d, uint32_t cluster, lace_error *err)
{
    const decode_form *f = &d->form;
    for (int32_t i = 0; i < f->n_layers; i++) {
        const layer_steps *l = &f->layers[i];
        bool is_last = i + 1 == f->n_layers;
        TRY(launch_qkv(d, i, err));
        TRY(launch_attend(d, i, cluster, err));
        TRY(launch_residual(d, l->o, l->o_norm, l->o_add, d->attended, d->ffn_in, l->ffn_norm,
                            d->squares[1], err));
        decode_vector next = is_last ? d->head_in : d->in;
        const step *next_norm = is_last ? f->final_norm : f->layers[i + 1].norm;
        if (l->glu) {
            TRY(launch_glu(d, l, err));
            TRY(launch_residual(d, l->down, l->down_norm, l->down_add, d->hidden, next, next_norm,
                                d->squares[0], err));
        } else {
            TRY(gpu_experts_launch(&d->experts, l, d->squares[1], n_blocks_amid(d, l), next,
                                   next_norm, d->squares[0], err));
        }
    }
    const step *s = f->head;
    decode_product p = {
        .parts = {gpu_product_part(s->a.matmul.weights[0], s->a.matmul.biases[0], d->logits)},
        .n_parts = 1,
        .x = d->head_in,
        .scale = s->a.matmul.scale,
        .softcap = f->softcap ? f->softcap->a.softcap.cap : 0,
        .mode = DECODE_STORE,
        .best = d->best};
    norms_by(&p, f->final_norm, d->squares[0], n_blocks_behind(d, &f->layers[f->n_layers - 1]));
    return launch_product(d, &p, err);
}

/* best: where the token is, in n_best places; NULL: the state has it. */
static lace_status launch_begin(gpu_decode *d, const decode_best *best, int32_t n_best,
                                int32_t *ring, lace_error *err)
{
    const step *e = d->form.embed, *first = d->form.layers[0].norm;
    decode_begin p = {.state = d->state,
                      .best = best,
                      .n_best = n_best,
                      .ring = ring,
                      .table = e->a.embed.table,
                      .row_bytes = row_bytes(e->a.embed.type, e->out[0].width),
                      .type = (int32_t)e->a.embed.type,
                      .width = (int32_t)e->out[0].width,
                      .scale = e->a.embed.scale,
                      .residual = d->residual,
                      .next_norm = first ? first->a.norm.weight : NULL,
                      .next = d->in,
                      .next_squares = d->squares[0]};
    for (int t = 0; t < 2; t++)
        if (d->form.tables[t]) {
            p.frequencies[t] = d->form.tables[t]->a.rope_table.frequencies;
            p.magnitudes[t] = d->form.tables[t]->a.rope_table.magnitude;
            p.n_dims[t] = (int32_t)d->form.tables[t]->out[0].width;
            p.angles[t] =
                d->form.attends_by_steps ? (float *)d->form.tables[t]->out[0].data : d->angles[t];
        }
    cuda_launch l = {.kernel = d->begin, .grid = {1}, .block = {1024}, .overlaps = true};
    void *arguments[] = {&p};
    return cuda_run(d->queue, &l, arguments, err);
}

/* Choose the token behind this one, and begin it. */
static lace_status launch_choice(gpu_decode *d, bool samples, lace_error *err)
{
    const weight *head = d->form.head->a.matmul.weights[0];
    if (!samples)
        return launch_begin(d, d->best, n_blocks_of(d, head), d->ring.device, err);
    sample_params p = {.logits = d->logits,
                       .n_vocab = (int32_t)head->n_rows,
                       .rows = d->rule,
                       .state = d->state,
                       .ring = d->ring.device,
                       .best = d->drawn};
    TRY(gpu_sample(d->g, d->queue, &p, 1, err));
    return launch_begin(d, d->drawn, 1, NULL, err);
}

/* ---- Running --------------------------------------------------------------------------------- */

/*
 * How many blocks share a head's context, as a power of two: about one piece of 16 positions for
 * each warp while that is to be had with 8 blocks, which are quicker to come together than 16.
 */
static int cluster_for(const gpu_decode *d, int32_t position)
{
    int32_t n_pieces = position / 16 + 1, most = d->g->info.n_processors / d->n_kv_heads;
    if (!has_large_clusters(d) && most > 8)
        most = 8;
    int log2 = 1;
    while (log2 + 1 < N_CLUSTERS && (2 << log2) <= most &&
           n_pieces > (1 << log2) * DECODE_ATTEND_WARPS * (log2 < 3 ? 1 : 5))
        log2++;
    return log2;
}

static lace_status launch_token(gpu_decode *d, int kind, int number, lace_error *err)
{
    if (kind == SINGLE)
        TRY(launch_begin(d, NULL, 0, NULL, err));
    TRY(launch_layers(d, 1u << number, err)); /* which is no matter if steps attend */
    return kind == SINGLE ? LACE_OK : launch_choice(d, kind == SAMPLED, err);
}

static lace_status record(gpu_decode *d, int kind, int number, lace_error *err)
{
    TRY(cuda_record_begin(d->queue, err));
    lace_status status = launch_token(d, kind, number, err);
    cuda_graph *graph = NULL;
    lace_status ended = cuda_record_end(d->queue, &graph, status == LACE_OK ? err : NULL);
    if (status == LACE_OK && ended == LACE_OK) {
        d->graphs[kind][number] = graph;
        return LACE_OK;
    }
    cuda_graph_free(graph);
    return status != LACE_OK ? status : ended;
}

/* The graph for a position: recorded when it is wanted first. */
static lace_status run(gpu_decode *d, int kind, int32_t position, lace_error *err)
{
    bool by_steps = d->form.attends_by_steps;
    int number = by_steps ? gpu_apart_choose_length(&d->apart, position) : cluster_for(d, position);
    if (by_steps && !d->is_loaded) {
        d->is_loaded = true;
        return launch_token(d, kind, number, err);
    }
    if (!d->graphs[kind][number])
        TRY(record(d, kind, number, err));
    return cuda_graph_run(d->queue, d->graphs[kind][number], err);
}

static lace_status send_state(gpu_decode *d, int32_t token, int32_t position, int32_t sequence,
                              lace_error *err)
{
    *d->state_host = (decode_state){token, position, sequence, d->n_queued};
    return cuda_copy_to(d->queue, d->state, d->state_host, sizeof *d->state, err);
}

lace_status gpu_decode_token(gpu_decode *d, int32_t token, int32_t position, int32_t sequence,
                             lace_error *err)
{
    TRY(send_state(d, token, position, sequence, err));
    return run(d, SINGLE, position, err);
}

const float *gpu_decode_logits(const gpu_decode *d)
{
    return d->logits;
}

lace_status gpu_decode_begin(gpu_decode *d, int32_t token, int32_t position, int32_t sequence,
                             const choice_rule *rule, lace_error *err)
{
    TRY(cuda_wait(d->queue, err)); /* what was queued ahead and not taken is done, and forgotten */
    d->n_queued = 0;
    d->samples = rule != NULL;
    token_ring_clear(&d->ring);
    if (rule) {
        *d->rule_host = *rule;
        TRY(cuda_copy_to(d->queue, d->rule, d->rule_host, sizeof *rule, err));
    }
    TRY(send_state(d, token, position, sequence, err));
    return launch_begin(d, NULL, 0, NULL, err);
}

lace_status gpu_decode_ahead(gpu_decode *d, int32_t position, lace_error *err)
{
    TRY(run(d, d->samples ? SAMPLED : AHEAD, position, err));
    d->n_queued++;
    return LACE_OK;
}

lace_status gpu_decode_next(gpu_decode *d, int32_t *word, lace_error *err)
{
    return token_ring_take(&d->ring, d->queue, word, err);
}
