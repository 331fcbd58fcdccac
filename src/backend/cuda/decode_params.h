/*
 * The parameters of the fused kernels that compute one token (decode_*.cu); read by C and by CUDA.
 * All pointers are addresses on the card.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_PARAMS_H
#define LACE_BACKEND_CUDA_DECODE_PARAMS_H

#include "backend/cuda/gpu_params.h"

enum {
    DECODE_THREADS = 512, /* of a product's block: one block on a processor */
    DECODE_WARPS = DECODE_THREADS / 32,
    DECODE_MAX_BLOCKS = 256, /* of a product */
    DECODE_MAX_PLACES = 96,  /* of the ring of tiles: tiles on their way */
    /* In shared memory: barriers of the places; sums of squares; for each row that a block adds
     * to the residual, its norm weight and what was there before; then the ring. */
    DECODE_SQUARES_AT = 1024,
    DECODE_NORMS_AT = 2048,
    DECODE_BEFORE_AT = DECODE_NORMS_AT + 4 * DECODE_THREADS,
    DECODE_RING_AT = DECODE_BEFORE_AT + 4 * DECODE_THREADS,
    DECODE_ATTEND_WARPS = 4,
    DECODE_PAGE = 32, /* positions of a page of the cache */
    DECODE_MAX_CLUSTER = 16,
    DECODE_MAX_GROUP = 8, /* heads of q for each of k */
    DECODE_MAX_PARTS = 3,
    DECODE_MAX_ANY = 6, /* parts of a product with any input */
    DECODE_CHUNK = 128, /* values of an input that a warp sums up at a time */
    /* Of experts. Their blocks have a table behind what others have in front of the ring: where the
     * tiles of each slot (16 rows of a matrix) are, then the choices. */
    DECODE_MAX_EXPERTS = 512,
    DECODE_MAX_USED = 16,
    DECODE_MAX_SLOTS = 256,
    DECODE_TABLE_AT = DECODE_RING_AT,
    DECODE_CHOICES_AT = DECODE_TABLE_AT + 16 * DECODE_MAX_SLOTS,
    DECODE_EXPERTS_RING_AT = DECODE_CHOICES_AT + 8 * DECODE_MAX_USED,
    DECODE_ROUTER_THREADS = 256, /* a block for each expert */
    DECODE_STATE_WARPS = 8,
    DECODE_STATE_ROWS = 128, /* of a head's state, at most */
    DECODE_HEAD_THREADS = 128,
    DECODE_HEAD_DIM = 1024, /* at most */
    DECODE_JOIN_THREADS = 1024,
    DECODE_JOIN_WIDTH = 8192, /* of a residual behind norms, at most */
    DECODE_PACK_THREADS = 256,
    DECODE_RING = 1024 /* tokens that the card may be ahead of the host */
};

/* How many slots of a block with rounds are summed up at a time: tiles for all warps in each. */
#define DECODE_ROUND(n_tiles) ((n_tiles) > 16 ? 2 : (n_tiles) > 8 ? 4 : 8)

/* Which token is computed; the card advances it by itself when it chooses tokens. */
typedef struct decode_state {
    int32_t token, position, sequence, n_chosen;
    int32_t turn; /* rotation is by position + turn: images in front take less room there */
} decode_state;

/* The largest result of a block, and its row. */
typedef struct decode_best {
    float value;
    int32_t row;
} decode_best;

/* Activations on their way to a product: planes as gpu_tiles.h has them. */
typedef struct decode_vector {
    uint8_t *planes;
    int32_t k;   /* values of a plane */
    int32_t act; /* gpu_act */
} decode_vector;

/*
 * A vector that the blocks of a product make by themselves, of floats that other steps have left:
 * gated, normed, or as they are. norms_first: the norm is of x, and the gate is applied to that.
 */
typedef struct decode_input {
    const float *x;           /* [width]; NULL: the vector comes as planes */
    const float *gate;        /* act(gate) * x; NULL: act(x), if glu says so */
    const float *norm, *bias; /* [group], or [width] if is_wide; NULL: none */
    int32_t width;
    int32_t glu;                     /* glu_kind; -1: none */
    int32_t gate_each;               /* columns of x for each value of the gate */
    int32_t gate_n, gate_step;       /* of each gate_step values of the gate, the first gate_n */
    int32_t group, is_wide, centers; /* of the norm; centers: of LayerNorm */
    int32_t norms_first;
    float eps;
} decode_input;

/* What a product's result becomes. */
typedef enum decode_mode {
    DECODE_STORE,    /* out = y */
    DECODE_RESIDUAL, /* residual += y; next = residual * next_norm, and its sum of squares */
    DECODE_GLU       /* next = act(gate) * up */
} decode_mode;

/* A matrix, or the pair of gate and up, and the blocks that compute it. */
typedef struct decode_part {
    const uint8_t *tiles, *pair;
    const float *bias, *pair_bias;
    float *out;
    int32_t kind;
    int32_t n_rows, n_tiles; /* tiles across */
    int32_t first_block, n_blocks;
    /* Of the blocks, the first `more` have each + 1 rows of tiles, the others each. */
    int32_t each, more;
    int32_t tile_bytes, stage_bytes; /* a stage: what a tile takes in the ring */
    int32_t n_places;                /* of the ring */
    int32_t n_early;                 /* tiles that a block asks for before its input is there */
} decode_part;

typedef struct decode_product {
    decode_part parts[DECODE_MAX_PARTS];
    int32_t n_parts;
    decode_vector x, next;
    const float *squares; /* [n_squares] whose sum norms x; NULL: x is as it should be */
    int32_t n_squares, width;
    float eps, scale, softcap;
    int32_t mode, glu;
    float *residual;
    const float *next_norm;
    float *next_squares; /* [blocks] */
    decode_best *best;   /* [blocks] or NULL */
    int32_t n_blocks;    /* that have something to do */
    int32_t ring_bytes, triggers_late;
} decode_product;

/* A short convolution of what a part stores, row by row: CONV of ops/step.h. */
typedef struct decode_conv {
    const float *weight, *bias; /* [n_rows, n_taps]; [n_rows] or NULL. NULL: there is none */
    uint8_t *state;             /* of slot 0: [n_taps - 1, n_rows] */
    uint64_t slot_bytes;
    int32_t n_taps, is_silu;
} decode_conv;

/*
 * A product with any input, which its blocks make by themselves or find as planes, and with more
 * parts. All as in decode_product, but next, next_norm and next_squares may be NULL. (That is a
 * struct of its own because small models notice how large it is: TinyLlama runs 3 % slower with
 * this one.)
 */
typedef struct decode_product_any {
    decode_part parts[DECODE_MAX_ANY];
    int32_t n_parts;
    decode_vector x, next;
    const float *squares;
    int32_t n_squares, width;
    float eps, scale, softcap;
    int32_t mode, glu;
    float *residual;
    const float *next_norm;
    float *next_squares;
    decode_best *best;
    int32_t n_blocks;
    int32_t ring_bytes, triggers_late;
    int32_t is_any;               /* it is launched as such, and not as a decode_product */
    float scales[DECODE_MAX_ANY]; /* of each part, in place of scale */
    decode_input made;
    const float *share; /* [1] the residual gets as much as the sigmoid of this; or NULL: all */
    decode_conv conv;   /* behind the part conv_part */
    int32_t conv_part;
    const int32_t *sequence; /* whose slot it is */
} decode_product_any;

/* Rows of floats times one vector: a block for each row. */
typedef struct decode_rows {
    struct {
        const float *weights, *bias; /* [n_rows, width]; [n_rows] or NULL */
        float *out;
        int32_t first; /* row of the grid */
        float scale;
    } parts[DECODE_MAX_ANY];
    int32_t n_parts, adds; /* to out */
    decode_input made;     /* groups are whole rows, without a mean */
} decode_rows;

/* Logits of all experts for one token: of the residual, normed. */
typedef struct decode_router {
    const float *weights; /* [n_experts, width] */
    const float *bias;    /* [n_experts] or NULL */
    const float *residual, *norm;
    const float *squares; /* [n_squares] whose sum norms the residual */
    float *logits;        /* [n_experts] */
    int32_t n_squares, width;
    float eps, scale;
} decode_router;

/*
 * Products of one token with the matrices of the experts that it chooses: gate and up, with the
 * activation, into a vector for each of them; or down, all of them into the residual.
 */
typedef struct decode_experts {
    const float *logits; /* [n_experts] */
    int32_t n_experts, n_used, norms;
    int32_t n_all; /* n_used, and one if there is a shared expert */
    int32_t kind, tile_bytes;
    const uint8_t *tiles, *pair; /* of expert 0: gate and up, or down and NULL */
    uint64_t expert_bytes, pair_bytes;
    const float *bias, *pair_bias; /* [n_experts, n_rows] or NULL */
    int32_t n_rows, n_tiles;       /* of one expert; tiles across */
    int32_t x_stride, next_stride; /* bytes from an expert's vector to the next one's */
    decode_vector x, next;
    const float *squares; /* as decode_product has them */
    int32_t n_squares, width;
    float eps, scale;
    int32_t glu;
    float *residual;
    const float *next_norm;
    float *next_squares;
    int32_t n_blocks; /* that have something to do */
    int32_t stage_bytes, n_places;
    /* Of decode_experts_glu_any and decode_experts_down_any, where next_norm, next_squares and the
     * vector next of down may be NULL: */
    const gpu_choice *choices;                /* [n_used]; NULL: by the logits and what follows */
    const float *choice_bias, *expert_scales; /* [n_experts] or NULL, as route_rule has them */
    int32_t is_sigmoid;
    float norm_more, norm_least, factor;
    decode_input made; /* of gate and up */
    int32_t makes;     /* down: the residual is what was not there before */
    /* One more, like the chosen ones, behind them: the shared expert's gate and up, or down and NULL.
     * Its share is the sigmoid of *shared_by; NULL: 1. */
    const uint8_t *shared, *shared_pair;
    const float *shared_by;
} decode_experts;

typedef struct decode_attention {
    const float *q, *k, *v;
    const float *q_norm, *k_norm; /* [head_dim] or NULL */
    const float *angles;          /* [n_dims]: cos, sin; NULL: not turned */
    const float *sinks;           /* [n_heads] or NULL */
    const decode_state *state;
    gpu_cache cache; /* F16 or Q8_0 */
    decode_vector next;
    float eps, scale, softcap;
    int32_t n_heads, n_dims, is_neox, window;
} decode_attention;

/* The same where blocks that share a head's context meet in memory: the last one adds up. */
typedef struct decode_attention_parts {
    decode_attention in;
    float *values;     /* [heads of k][DECODE_MAX_CLUSTER][heads of q for each, head_dim] */
    float *sums;       /* [heads of k][DECODE_MAX_CLUSTER][DECODE_MAX_GROUP][2] */
    uint32_t *tickets; /* [heads of k] how many have come; zeros before and after */
} decode_attention_parts;

/* Heads of q, of k or of v, on their way to attention. */
typedef struct decode_stream {
    const float *x;
    float *out;        /* or NULL; may be x */
    const float *norm; /* [dim], or [n_heads, dim] if is_wide; NULL: none */
    uint64_t offset;   /* in a page, if it is written to the cache */
    int32_t n_heads, dim;
    int32_t x_step, out_step; /* from head to head */
    int32_t is_wide, turns, writes;
    float eps;
} decode_stream;

typedef struct decode_heads {
    decode_stream streams[3]; /* one after the other; those without heads are the last */
    const float *angles;      /* [n_dims]: cos, sin */
    gpu_cache cache;
    int32_t n_dims, is_neox;
} decode_heads;

/* residual += scale * norm(y); next = residual * next_norm, and its sum of squares. */
typedef struct decode_join {
    const float *y, *norm;  /* [width] */
    const float *next_norm; /* [width] or NULL: next is the residual */
    float *residual;
    const float *before; /* [width] what it was: where it is, or elsewhere, times `keep` */
    decode_vector next;
    float *next_squares; /* [1] */
    int32_t width;
    float eps, scale, keep;
} decode_join;

/* next = x */
typedef struct decode_pack {
    const float *x; /* [width] */
    decode_vector next;
    int32_t width;
} decode_pack;

typedef struct decode_begin {
    decode_state *state;
    const decode_best *best; /* [n_best] of the last product; NULL: the state has the token */
    int32_t n_best;
    int32_t *ring;        /* pinned: [DECODE_RING] token + 1 of each choice; NULL: told already */
    const uint8_t *table; /* the embedding */
    uint64_t row_bytes;
    int32_t type, width;
    float scale;
    float *residual;
    const float *next_norm; /* NULL: the first product reads the embedding as it is */
    decode_vector next;
    float *next_squares; /* [1] */
    const float *frequencies[2];
    float *angles[2];
    float magnitudes[2];
    int32_t n_dims[2];
} decode_begin;

/* The same for plans of other forms, whose steps are recorded as they are (lower.h). */
typedef struct replay_begin {
    decode_state *state;
    const decode_best *best; /* the token that was chosen; NULL: the state has it */
    int32_t *token, *position, *sequence;
} replay_begin;

#endif
