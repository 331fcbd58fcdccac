/*
 * The words in which architectures are written. Each adds a step and returns the value that it
 * makes. A failure (memory, a matrix that was not bound, an activation that no kernel knows) is
 * kept in plan->status and reported by plan_check, so that the text of a model reads without error
 * handling.
 */
#ifndef LACE_PLAN_BUILD_H
#define LACE_PLAN_BUILD_H

#include "plan/plan.h"

typedef int32_t value; /* a number in plan->values */

/* How q and k are rotated: what plan_rope needs to know. */
typedef struct rope_params {
    const float *frequencies; /* [n_dims / 2] */
    float magnitude;
    int32_t n_dims;
    bool is_neox;
    int32_t sections[ROPE_MAX_AXES]; /* frequencies of each axis of positions; all 0: one axis */
    bool is_interleaved;             /* see step.h */
} rope_params;

typedef struct attend_params {
    int32_t n_heads;
    float scale;
    int32_t window, ahead; /* how far back and ahead a token sees; 0: as far as there are tokens */
    int32_t chunk;         /* it sees nothing before the last multiple of this; 0: no chunks */
    float softcap;
    const float *sinks;
} attend_params;

/* Rows of the table for the batch's tokens, times scale. */
value plan_embed(plan *p, const weight *table, float scale);

/* The same; of a table that need not have every token: the first row for those it lacks. */
value plan_embed_known(plan *p, const weight *table, float scale);

/* The same, times scale, with the batch's embeddings, one for each token, behind them. */
value plan_embed_beside(plan *p, const weight *table, float scale);

/* Rows of a table for the batch's positions, or for what else `by` names. */
value plan_lookup(plan *p, const weight *table, embed_index by);

/* Cosines and sines of the batch's positions; one value serves all layers. */
value plan_rope_table(plan *p, const rope_params *rope);

/*
 * Columns [begin, begin + width) of x, without a copy: who changes them changes x. A result that is
 * given out (plan_result) is no slice.
 */
value plan_slice(plan *p, value x, int64_t begin, int64_t width);

/* Of every `stride` columns of x the n from `offset` on, as a value of its own. */
value plan_pick(plan *p, value x, int64_t n, int64_t stride, int64_t offset);

/* A norm: which one, and what it multiplies and adds. */
typedef struct norm_params {
    op kind;             /* OP_RMS_NORM: x * scales / rms(x) */
    const float *scales; /* [group], or [width] if is_wide */
    const float *bias;   /* the same, or NULL; of kinds that add one */
    bool is_wide;        /* every group has scales of its own */
    int64_t group;       /* values that are normed together: a whole row, or each head */
    double eps;
} norm_params;

value plan_norm(plan *p, value x, const norm_params *norm);

/* scale * W x + bias */
value plan_linear(plan *p, value x, const weight *w, const float *bias, float scale);

/*
 * Of each of n_heads heads of x: w[head] times its first values, and the n_rest behind them as they
 * are.
 */
value plan_linear_heads(plan *p, value x, const weight *w, int32_t n_heads, int32_t n_rest);

/* x += scale * y; returns x. */
value plan_add(plan *p, value x, value y, float scale);

/* act(gate) * up. A narrower gate has one value for several columns of up that lie together. */
value plan_glu(plan *p, glu_kind kind, value gate, value up);

/* act(x), for kinds that need no second value. */
value plan_act(plan *p, glu_kind kind, value x);

/* x y, y as wide as x, or one value of it for several columns of x that lie together. */
static inline value plan_mul(plan *p, value x, value y)
{
    return plan_glu(p, GLU_PRODUCT, y, x);
}

/*
 * xIELU (arXiv 2411.13010), in place: above 0 alpha_p x^2 + beta x, below alpha_n (exp(min(x, eps)) - 1 -
 * x) + beta x; returns x.
 */
typedef struct xielu_params {
    float alpha_p, alpha_n, beta, eps;
} xielu_params;

value plan_xielu(plan *p, value x, const xielu_params *params);

/* x times 1 + scale * ln(1 + floor((position + offset) / length)), in place; returns x. */
value plan_temperature(plan *p, value x, float scale, int32_t offset, int32_t length);

/*
 * Streams of `width` columns: `base` plus, for each of its streams, a sum of those of x. A token
 * weighs them by a row of `weights` for each stream of the base.
 */
value plan_mix(plan *p, value base, value x, value weights, int64_t width);

/*
 * Each stream of x, as wide as `target`, with scale times the target's root mean square; squares of
 * x count as `least` on average, if they are smaller.
 */
value plan_match(plan *p, value x, value target, float scale, float least);

/* The same, with the target as one stream more in front. */
value plan_match_behind(plan *p, value x, value target, float least);

/* What of x is above its mean by more than some deviations, in place; returns x. */
value plan_cutoff(plan *p, value x, float factor);

/* Rotate the heads of x in place; returns x. */
value plan_rope(plan *p, value x, value table, const rope_params *rope, int32_t n_heads,
                int32_t head_dim);

/* Keep keys and values in the cache. */
void plan_kv_write(plan *p, value k, value v, const kv_layer *kv);

value plan_attend(plan *p, value q, const kv_layer *kv, const attend_params *params);

typedef struct conv_params {
    const float *weight; /* [width, n_taps] */
    const float *bias;   /* [width], or NULL */
    int32_t n_taps;      /* at least 2 */
    bool is_silu;        /* what comes out is silu of the sum */
} conv_params;

/*
 * A short convolution of each channel over its sequence: what comes out is made of a token's own
 * input and those of the n_taps - 1 before it, which the state holds (conv_state_bytes).
 */
value plan_conv(plan *p, value x, const recurrent_layer *state, const conv_params *params);

typedef struct scan_params {
    const float *a, *d, *dt_bias; /* [n_heads] */
    float dt_min, dt_max;         /* limits of time steps */
    int32_t n_heads, head_dim;
    int32_t n_groups, n_state;
} scan_params;

/*
 * The state space of Mamba-2. x: [n_heads, head_dim], b and c: [n_groups, n_state], dt: [n_heads].
 * What it computes stands with its arguments in ops/step.h; the state holds scan_state_bytes.
 */
value plan_scan(plan *p, value x, value b, value c, value dt, const recurrent_layer *state,
                const scan_params *params);

/* How DELTA's heads lie and forget; see step.h. */
typedef struct delta_params {
    const float *rate, *bias; /* [n_heads] */
    int32_t n_heads, n_key_heads, k_dim, v_dim;
    bool is_tiled;
} delta_params;

/*
 * The gated delta rule of each head over its sequence (Yang, Kautz and Hatamizadeh, "Gated Delta
 * Networks", 2024). qkv: heads of q, of k and of v side by side; a says how fast a head forgets, b how
 * much it learns of a token: a number a head. The state holds what it learned (delta_state_bytes).
 */
value plan_delta(plan *p, value qkv, value a, value b, const recurrent_layer *state,
                 const delta_params *params);

/* The experts of a mixture, and how they are chosen. */
typedef struct moe_params {
    const weight *gate, *up, *down; /* [n_experts] each; gate NULL: act(up) alone */
    const float *gate_bias, *up_bias, *down_bias;
    int32_t n_experts, n_used;
    route_rule rule;
    bool weighs_inputs; /* a choice's weight multiplies what its expert reads, not its answer */
    glu_kind glu;
} moe_params;

/* x += scale * what the experts chosen by the router's logits make of y; returns x. */
value plan_moe_add(plan *p, value x, value y, value logits, const moe_params *moe, float scale);

/* The same as a value of its own. */
value plan_moe(plan *p, value y, value logits, const moe_params *moe, float scale);

/* x becomes cap * tanh(x / cap), in place. */
value plan_softcap(plan *p, value x, float cap);

/* Columns [column, column + width) of the batch's own rows (batch.embeddings). */
value plan_given(plan *p, int64_t column, int64_t width);

/* x += columns of the batch's own rows from `column` on, where there is a row and no token. */
value plan_add_given(plan *p, value x, int64_t column);

/* For each wanted row n of x, from it on: side by side, or their mean. */
value plan_gather_run(plan *p, value x, int32_t n, bool is_mean);

/* n values, 2 or more, side by side in one. */
value plan_side_by_side(plan *p, const value *parts, int32_t n);

/*
 * Positions of patches in a grid of any size: rows of a table for a grid of side x side, between the
 * four that are nearest when both are stretched to the same size.
 */
value plan_grid_embed(plan *p, const weight *table, int32_t side);

/* Only the rows whose logits are wanted. */
value plan_gather(plan *p, value x);

/* The value that plan_logits gives out. */
void plan_result(plan *p, value logits);

/* A second one, which program_hidden gives out. */
void plan_hidden(plan *p, value hidden);

#endif
