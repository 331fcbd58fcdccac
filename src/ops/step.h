/*
 * Steps: the words between those who write plans and those who run them.
 *
 * A step is one operation of ops.def with its operands. Plans (plan/) are lists of steps, backends
 * (backend/) turn such a list into their own and run it for one batch after the other. What an
 * operation reads, writes and costs is described once, in op_info.h.
 */
#ifndef LACE_OPS_STEP_H
#define LACE_OPS_STEP_H

#include <string.h>

#include "base/status.h"
#include "ops/route_rule.h"
#include "tensor/dtype.h"

/* ---- Activations ----------------------------------------------------------------------------- */

/*
 * ACT_F32: plain floats, [n_rows, width].
 *
 * ACT_Q8: int8 in blocks of 32 with one scale each. A row is three arrays, one after the other:
 *
 *     int8_t  q[width]        x is about d * q; |q| <= 127
 *     float   d[width / 32]   powers of two, see act_q8_scale
 *     int16_t s[width / 16]   sums of 16 q's, for kernels that add an offset to the weights
 *
 * and is padded to 64 bytes. width is a multiple of 32.
 *
 * ACT_ROTATED_Q8: the same of values that were rotated (tensor/rotate.h), 128 at a time.
 */
typedef enum act_format { ACT_F32, ACT_Q8, ACT_ROTATED_Q8, ACT_N_FORMATS } act_format;

static inline uint64_t act_row_bytes(act_format format, int64_t width)
{
    uint64_t n = (uint64_t)width;
    uint64_t bytes = format == ACT_F32 ? 4 * n : n + n / 32 * 4 + n / 16 * 2;
    return (bytes + 63) & ~(uint64_t)63;
}

/*
 * The scale d of 32 values whose largest is `most`: the smallest power of two that keeps them
 * within 127. A power of two is an addition to an exponent where any other scale is a
 * multiplication, which is what limits large products (gemm_avx512vnni.c). For that, too, d stays
 * within 2^-60 ... 2^40: what is smaller than half of the former becomes 0.
 */
static inline float act_q8_scale(float most)
{
    float d = most / 127.0f;
    uint32_t bits;
    if (!(d > 0x1p-60f))
        return 0x1p-60f;
    if (d > 0x1p40f)
        return 0x1p40f;
    memcpy(&bits, &d, 4);
    bits = (bits + 0x7fffff) & 0x7f800000;
    memcpy(&d, &bits, 4);
    return d;
}

static inline const float *act_q8_scales(const void *row, int64_t width)
{
    return (const float *)((const int8_t *)row + width);
}

static inline const int16_t *act_q8_sums(const void *row, int64_t width)
{
    return (const int16_t *)(act_q8_scales(row, width) + width / 32);
}

/* ---- Batches --------------------------------------------------------------------------------- */

/*
 * Ids that are none. Of a batch that is queued, the token that was chosen last for its sequence, which
 * the host does not know yet (backend/backend.h); and a token whose row the batch has itself.
 */
enum { TOKEN_CHOSEN = -1, TOKEN_GIVEN = -2 };

/*
 * What changes from one run to the next: rows of tokens, of any number of sequences. Owned by the
 * runner (runner/runner.h).
 */
typedef struct batch {
    int32_t n_tokens;
    int32_t n_outputs;        /* tokens whose logits are wanted */
    const int32_t *tokens;    /* [n_tokens] ids */
    const int32_t *positions; /* [n_tokens] in their sequences */
    const int32_t *sequences; /* [n_tokens] whose they are */
    const int32_t *outputs;   /* [n_outputs] indices of tokens */

    /* Page tables: [group][token] -> the pages of the token's sequence, by position / page_tokens.
     * Recurrent state: [token] -> the slot of its sequence. */
    const int32_t *const *const *pages;
    const int32_t *slots;

    /* These may be NULL. */
    const float *embeddings; /* [n_tokens, embedding_width] taken as they are of TOKEN_GIVEN, or
                                beside a token's own row (EMBED_BESIDE) */
    int64_t embedding_width; /* values of such a row; 0: as many as are taken. A tower's rows have
                                more behind those of the embedding (ADD_GIVEN) */
    const int32_t *seen;     /* [n_tokens] positions that a token sees, from the first on: up to
                                its own (causal) if NULL, all of its sequence for an encoder */
    const int32_t *axes;     /* [n_axes][n_tokens] positions that rotation uses; NULL: positions */
    int32_t n_axes;
    const int32_t *segments; /* [n_tokens] which text of a pair a token belongs to; of an image's
                                patches, which one it is in reading order; NULL: all 0 */
    int32_t grid_rows, grid_cols; /* of the patches, if the batch is an image */
    const float *adapter_scales;  /* [n_sequences, n_adapters] how much of each LoRA adapter a
                                    sequence wants (lora.h); NULL: no row of the batch uses any */
    int32_t n_adapters;
} batch;

/* The batch's own row of token t, for whoever takes `width` values of it, from `column` on. */
static inline const float *batch_given(const batch *b, int64_t t, int64_t width, int64_t column)
{
    return b->embeddings + t * (b->embedding_width ? b->embedding_width : width) + column;
}

/* How many positions of its sequence token t sees, windows apart. */
static inline int32_t batch_seen(const batch *b, int32_t t)
{
    return b->seen ? b->seen[t] : b->positions[t] + 1;
}

/* Where token t stands along an axis. */
static inline int32_t batch_axis(const batch *b, int32_t axis, int32_t t)
{
    return axis < b->n_axes ? b->axes[(int64_t)axis * b->n_tokens + t] : b->positions[t];
}

/* ---- Weights --------------------------------------------------------------------------------- */

typedef struct matmul_impl matmul_impl;   /* backend/cpu/kernels.h */
typedef struct columns_impl columns_impl; /* backend/cpu/columns.h */

/*
 * Activation sparsity: inputs of a matrix that are smaller than the threshold are taken as 0. For
 * single tokens, which then need not read the weights that meet them; for batches only where that
 * is to be measured. Matrices with the same input share one.
 */
typedef struct sparsity_rule {
    float threshold;
    bool in_batches;
} sparsity_rule;

/* weight.offset of rows that are never moved from where they lie. */
#define WEIGHT_IN_PLACE UINT64_MAX

/* A matrix of weights, y[row] = sum over col of W[row][col] x[col]. */
typedef struct weight {
    dtype type;
    int64_t n_rows, n_cols;
    uint64_t n_bytes;        /* that it takes in memory */
    const uint8_t *data;     /* file blocks, or what impl->pack made of them; tiles on a GPU */
    const matmul_impl *impl; /* how `data` lies and who multiplies with it */
    const sparsity_rule *sparsity;    /* of its inputs, or NULL */
    const columns_impl *columns_impl; /* who multiplies with `columns`; NULL: nobody */
    const uint8_t *columns;           /* the weights once more, for single tokens: see columns.h */
    uint64_t offset, columns_offset;  /* where both lie in their device's memory */
    int64_t next; /* of rows packed in passing: how far behind `data` lies what is packed next; 0 */
    int32_t device; /* of a model on several (backend/mixed.h): where it lies; 0: the host */
    const struct lora_site *lora; /* what adapters add to its products (lora.h), or NULL */
    /* Rows of the file (backend.h) that are brought to the device whenever a step uses the weight, which
     * does not stay there; NULL: it lies there. */
    const struct weight_rows *streamed;

    /* Of a model that several ranks compute (rank/rank.h), where this one has some of the rows: */
    int64_t n_total; /* rows of all ranks; 0: this one has all */
    int64_t n_units; /* that ranks divide among themselves */
} weight;

/* Rows of the whole matrix, whoever has them. */
static inline int64_t weight_total(const weight *w)
{
    return w->n_total ? w->n_total : w->n_rows;
}

/* ---- State ----------------------------------------------------------------------------------- */

/*
 * Where a layer's keys and values are. K of (page, head, position) is a row of head_dim values, V
 * one of v_dim. Latent attention has no V of its own: with v_in_k it is the first v_dim values of K.
 */
typedef struct kv_layer {
    uint8_t *data;
    uint64_t page_bytes;             /* from one page to the next */
    uint64_t k_offset, v_offset;     /* of this layer in a page */
    uint64_t row_bytes, v_row_bytes; /* from one position of a head to the next */
    dtype type, v_type;              /* of K and V: F32, F16, Q8_0, or Q5_0 and IQ4_NL, rotated */
    int32_t k_span, v_span;          /* values that are rotated together (cache_row.h); 0: none */
    int32_t page_tokens;             /* positions in a page: rows of one head lie together */
    int32_t n_heads, head_dim, v_dim;
    bool v_in_k;
    int32_t group;   /* which page tables of the batch */
    int32_t device;  /* of a model on several: where it is */
    int32_t n_total; /* heads of all ranks, if n_heads are this rank's; 0: it has all */
} kv_layer;

/* Where a layer's recurrent state is: one piece of memory for each sequence. */
typedef struct recurrent_layer {
    uint8_t *data;
    uint64_t slot_bytes; /* from one slot to the next */
    uint64_t offset;     /* of this layer in a slot */
    uint64_t n_bytes;    /* of this layer */
    int32_t device;      /* of a model on several: where it is */
} recurrent_layer;

/* What a convolution of CONV remembers: the inputs that the next one is summed up with. */
static inline uint64_t conv_state_bytes(int64_t width, int32_t n_taps)
{
    return sizeof(float) * (uint64_t)width * (uint64_t)(n_taps - 1);
}

/* What DELTA remembers: a matrix for each head, [n_heads, k_dim, v_dim]. */
static inline uint64_t delta_state_bytes(int64_t n_heads, int64_t k_dim, int64_t v_dim)
{
    return sizeof(float) * (uint64_t)n_heads * (uint64_t)k_dim * (uint64_t)v_dim;
}

/* What a SCAN remembers: one matrix for each head. */
static inline uint64_t scan_state_bytes(int32_t n_heads, int32_t head_dim, int32_t n_state)
{
    return sizeof(float) * (uint64_t)n_heads * (uint64_t)head_dim * (uint64_t)n_state;
}

/* Some bytes of a layer's recurrent state, for a layer whose operations remember different things. */
static inline recurrent_layer recurrent_part(const recurrent_layer *l, uint64_t from,
                                             uint64_t n_bytes)
{
    recurrent_layer part = *l;
    part.offset += from;
    part.n_bytes = n_bytes;
    return part;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef enum op {
#define X(id, ...) OP_##id,
#include "ops/ops.def"
#undef X
    OP_COUNT
} op;

/* A buffer that a step reads or writes: [rows, width]. */
typedef struct operand {
    int32_t value; /* the plan's number for it; -1: none */
    int32_t root;  /* the value whose memory it is: itself, or what it is a slice of */
    act_format format;
    int64_t width;   /* values in a row */
    uint64_t stride; /* bytes from row to row */
    uint8_t *data;   /* set when the plan's memory is placed */
} operand;

static inline float *operand_row(const operand *o, int64_t row)
{
    return (float *)(o->data + (uint64_t)row * o->stride);
}

/*
 * GLU_CLAMPED is gpt-oss's: with gate at most 7 and up in -7..7, gate * sigmoid(1.702 gate) * (up +
 * 1). GLU_GELU is the one with erf, GLU_RELU2 the square of what is above 0.
 */
typedef enum glu_kind {
    GLU_SILU,
    GLU_GELU_TANH,
    GLU_CLAMPED,
    GLU_GELU,
    GLU_RELU2,
    GLU_SIGMOID,
    GLU_TANH,
    GLU_PRODUCT, /* the gate as it is */
    GLU_COUNT
} glu_kind;

/* One row: out[i] = act(gate[i]) * up[i]. Every level has every kind; plans refuse others. */
typedef void (*glu_row_fn)(glu_kind kind, const float *gate, const float *up, int64_t n,
                           float *out);

/* What of a token says which row of a table is its. */
typedef enum embed_index {
    EMBED_BY_TOKEN,
    EMBED_BY_POSITION,
    EMBED_BY_SEGMENT,
    EMBED_BY_KNOWN_TOKEN, /* the first row for ids that the table does not have */
    EMBED_BESIDE,         /* by token; the batch's embedding, which is as wide, stands behind it */
} embed_index;

/* A kernel of the CPU (backend/cpu/kernels.h). */
struct step;
struct worker;
typedef void (*step_fn)(const struct step *s, const batch *b, const struct worker *w);

/* Latent attention of a prompt, which can also be done with keys and values (plan/latents.h). */
typedef struct latent_form {
    int32_t n_heads;
    int32_t rank;         /* values of a latent; 0: these are no such steps */
    int32_t nope, turned; /* of a head's key: made of the latent; of the position, for all heads */
    int32_t value;        /* values of a head, made of the latent */
    int32_t group;        /* page tables of the batch */
    int32_t n_workers;    /* CPU: how many share the heads */
} latent_form;

/* Added to the sum of squares when DELTA makes the length of q and k 1. */
#define DELTA_EPS 1e-6f

enum { STEP_MAX_IN = 4, STEP_MAX_OUT = 3, ROPE_MAX_AXES = 4 };

typedef struct step {
    op op;
    bool is_output;     /* rows are the batch's outputs, not its tokens */
    int32_t row_factor; /* rows for each token; 1, or experts per token */
    bool skips_barrier; /* the next step does not depend on this one */
    int32_t layer;      /* for traces; -1 outside of layers */
    const sparsity_rule
        *sparsity; /* DROP_SMALL, QUANTIZE, RMS_NORM(_QUANTIZE): of what comes out; or NULL */
    operand in[STEP_MAX_IN];
    operand out[STEP_MAX_OUT];
    kv_layer kv;               /* of operations with pages */
    recurrent_layer recurrent; /* of operations with recurrent state */
    union {
        struct {                 /* EMBED: -> out[0] */
            const weight *table; /* whose rows are looked up: blocks as in a file */
            float scale;
            embed_index by;
        } embed;
        struct { /* GATHER_RUN: in[0] -> out[0]: of each output the n rows from it on */
            int32_t n;
            bool is_mean; /* their mean, as wide as one; else side by side */
        } gather_run;
        struct { /* GIVEN: -> out[0]. ADD_GIVEN: out[0] +=, of TOKEN_GIVEN */
            int64_t column;
        } given;
        struct { /* GRID_EMBED: -> out[0]: the patches' places, stretched over the table from corner
                    to corner */
            const weight *table; /* [side * side, width] */
            int32_t side;
        } grid;
        struct { /* ROPE_TABLE: -> out[0], n_dims values a row: cos, sin of each frequency */
            const float *frequencies;        /* [n_dims / 2] radians per position */
            float magnitude;                 /* multiplies cos and sin */
            int32_t sections[ROPE_MAX_AXES]; /* frequencies of each axis of positions, in their
                                                order; all 0: one axis */
            bool is_interleaved; /* the first three axes take turns, until those of the second or
                                    the third are used up; what is left is the first's */
        } rope_table;
        struct {                 /* Norms: in[0] -> out[0]; each row is `width / group` norms */
            const float *weight; /* [group], or [width] if is_wide */
            const float *bias;   /* the same, or NULL; an RMS norm has none */
            bool is_wide;        /* every group has weights of its own */
            int64_t group;       /* values that are normed together */
            float eps;
        } norm;
        struct { /* MATMUL: in[0] -> out[0]; _ADD: out[0] += ; _GROUP: in[0] -> out[0..n-1];
                    _GLU: weights 0 gate and 1 up, in[0] -> out[0]; _JOIN: sums -> out */
            const weight *weights[STEP_MAX_OUT];
            const float *biases[STEP_MAX_OUT]; /* [n_rows], or NULL */
            int n_weights;
            float scale; /* multiplies W x (not the bias) */
            glu_kind glu;
            glu_row_fn glu_row; /* the table's */
            op joins;           /* JOIN: the step whose sums it joins */
            float *sums;        /* with columns: products of parts, until they are joined */
        } matmul;
        struct { /* GLU: gate in[0], up in[1] -> out[0]; without up: act(gate). A narrower gate
                    has one value for several columns of up that lie together. */
            glu_kind kind;
        } glu;
        struct { /* XIELU: out[0] in place */
            float alpha_p, alpha_n, beta, eps;
        } xielu;
        struct { /* PICK: in[0] -> out[0]: of every `stride` columns `n`, from `offset` on */
            int64_t n, stride, offset;
        } pick;
        struct { /* TEMPERATURE: out[0] in place, times 1 + scale * ln(1 + floor((position + offset)
                    / length)) */
            float scale;
            int32_t offset, length;
        } temperature;
        struct
        { /* MIX: streams in[0], weights in[1], as many streams in[2] -> out[0] = in[2] + ...:
                    stream i of out gets the sum over k of weights[i * n + k] * stream k of in[0],
                    of which there are n */
            int64_t width; /* of a stream */
        } mix;
        struct { /* MATCH: in[0] -> out[0]: each stream as wide as in[1] gets scale times its root
                    mean square; with leads, in[1] itself comes out in front of them */
            float scale;
            float least; /* squares of in[0] have no smaller mean */
            bool leads;
        } match;
        struct { /* CUTOFF: out[0] in place: x - (mean + factor * deviation), at least 0 */
            float factor;
        } cutoff;
        struct { /* ADD: out[0] += scale * in[0] */
            float scale;
        } add;
        struct { /* SOFTCAP: out[0] in place */
            float cap;
        } softcap;
        struct {                            /* ROUTE: logits in[0] -> out[0], n_used choices a row.
                                               MOE_GLU: x in[0], choices in[1] -> out[0], n_used rows a token.
                                               MOE_DOWN: n_used rows a token in[0], choices in[1], out[0] += */
            const weight *gate, *up, *down; /* [n_experts] each; gate may be NULL: act(up) alone */
            const float *gate_bias, *up_bias; /* [n_experts, n_ff], or NULL */
            const float *down_bias;           /* [n_experts, n_embd], or NULL */
            int32_t n_experts, n_used;
            route_rule rule;    /* ROUTE */
            bool weighs_inputs; /* MOE_GLU multiplies x by the choice's weight, and MOE_DOWN does
                                   not weigh any more */
            bool makes;         /* MOE_DOWN: out[0] = instead of += */
            glu_kind glu;
            glu_row_fn glu_row;
            float scale;
        } moe;
        struct {             /* ROPE: in[0] table, out[0] rotated in place.
                                ROPE_KV: table in[0], values in[1], q out[0] in place, k out[1] in place.
                                (KV_WRITE: keys in[0], values in[1], no arguments; with v_in_k, one
                                head: in[0] its first v_dim values, in[1] the rest.) */
            int32_t n_heads; /* of out[0] */
            int32_t head_dim;
            int32_t n_dims; /* rotated */
            bool is_neox;
        } rope;
        struct { /* ATTEND: q in[0] -> out[0] */
            int32_t n_heads;
            float scale;
            int32_t window;     /* a position sees this many, itself included; 0: all */
            int32_t chunk;      /* and none before the last multiple of this; 0: no chunks */
            int32_t ahead;      /* where batch.seen says how many it sees: no more than this many
                                   behind its own; 0: as it says */
            float softcap;      /* scores become cap * tanh(score / cap); 0: off */
            const float *sinks; /* [n_heads] extra scores without a value, or NULL */
            /* CPU: latents that may be expanded: queries before they are absorbed are in[1], and the
             * values of heads go to out[1]. */
            latent_form latents;
            const weight *k_heads, *v_heads; /* [n_heads] of the steps around this one */
            step_fn k_form, v_form;          /* as `form` below */
        } attend;
        struct {                   /* MATMUL_HEADS: in[0] -> out[0]. Of each head, the first n_cols
                                      values meet its matrix; the n_rest behind them are copied. */
            const weight *weights; /* [n_heads], alike */
            int32_t n_heads;
            int32_t n_rest; /* values of a head */
            step_fn form;   /* CPU: who brings rows into the form that the kernel reads; or NULL */
            latent_form latents; /* CPU: nothing to do in batches in which ATTEND expands them */
        } heads;
        struct {                 /* CONV: in[0] -> out[0], each channel (column) on its own:
                                    out[t] = bias + sum over k of weight[k] * in[t - n_taps + 1 + k],
                                    or silu of that;
                                    state: the sequence's last inputs, [n_taps - 1, width] */
            const float *weight; /* [width, n_taps] */
            const float *bias;   /* [width], or NULL */
            int32_t n_taps;      /* inputs that make an output, its own the last */
            bool is_silu;
        } conv;
        struct { /* SCAN: x in[0], b in[1], c in[2], time steps in[3] -> out[0]. A head h has
                    head_dim columns of x and of out, one column of in[3], and of b and c the
                    n_state columns of its group. With S its state, and all products of vectors:
                        dt  = softplus(in[3][h] + dt_bias[h]), within dt_min and dt_max
                        S   = exp(dt * a[h]) * S + b * (dt * x)
                        out = c S + d[h] * x
                    state: [n_heads, n_state, head_dim] */
            const float *a, *d, *dt_bias; /* [n_heads] */
            float dt_min, dt_max;
            int32_t n_heads, head_dim;
            int32_t n_groups, n_state; /* the heads of a group are neighbours */
        } scan;
        struct { /* DELTA: q, k, v side by side in[0], a in[1], b in[2] -> out[0]. Of a head of a
                    token, with q and k made 1 long, q then divided by sqrt(k_dim), S its state:
                        S  *= exp(rate * softplus(a + bias))
                        S  += k (sigmoid(b) (v - k S))
                        out = q S */
            const float *rate;   /* [n_heads] below 0 */
            const float *bias;   /* [n_heads] */
            int32_t n_heads;     /* of v, a, b and the state */
            int32_t n_key_heads; /* of q and k, a divisor of n_heads */
            int32_t k_dim, v_dim;
            bool is_tiled; /* head h has q and k of head h % n_key_heads; else they are for
                              n_heads / n_key_heads heads that lie together */
        } delta;
        struct { /* LORA_DOWN: in[0] -> out[0], of a table of embeddings without an input; LORA_UP:
                    out[0] += scale * what in[0] becomes. See lora.h. */
            const struct lora_site *site;
            float scale;
            uint64_t pieces; /* on a device: where kernels find what they read (lora_piece.h) */
        } lora;
        struct { /* COLLECT: this rank's columns in[0] -> the columns of all ranks out[0] */
            struct ranks *ranks; /* rank/rank.h */
            int64_t n_units;     /* into which the columns are divided among ranks */
            bool at_first;       /* only rank 0 needs them */
        } collect;
    } a;
} step;

/* How many rows the step has in this batch. */
static inline int64_t step_rows(const step *s, const batch *b)
{
    int64_t n = s->is_output ? b->n_outputs : b->n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

/*
 * The positions [*first, *end) that token t sees in a step ATTEND. A window is as far back from a
 * token's own position, whatever it sees behind it.
 */
static inline void attend_range(const step *s, const batch *b, int32_t t, int32_t *first,
                                int32_t *end)
{
    int32_t after = b->positions[t] + 1, window = s->a.attend.window, ahead = s->a.attend.ahead;
    *first = window && after > window ? after - window : 0;
    if (s->a.attend.chunk) {
        int32_t begin = b->positions[t] / s->a.attend.chunk * s->a.attend.chunk;
        *first = begin > *first ? begin : *first;
    }
    *end = batch_seen(b, t);
    if (ahead && *end - after > ahead)
        *end = after + ahead;
}

/* What must not be smaller to count; 0: everything counts. */
static inline float step_threshold(const step *s, const batch *b)
{
    return s->sparsity && (b->n_tokens == 1 || s->sparsity->in_batches) ? s->sparsity->threshold
                                                                        : 0;
}

/* One choice of a router: a row of a ROUTE value is n_used of them, best first. */
typedef struct expert_choice {
    int32_t expert;
    float weight;
} expert_choice;

#endif
