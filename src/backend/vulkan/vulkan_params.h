/*
 * The parameters of shaders: one struct for each kind, read by C and by GLSL. They lie in memory, and
 * a launch is told the address of its own. Layouts are scalar: as C has them.
 *
 * What ends in _at is an address on the device; strides are in floats.
 */
#ifndef LACE_BACKEND_VULKAN_VULKAN_PARAMS_H
#define LACE_BACKEND_VULKAN_VULKAN_PARAMS_H

#include "backend/lora_piece.h"

#ifndef SHADER
#include <stdint.h>

typedef uint32_t uint;
typedef uint64_t floats_at, words_at, choices_at, matrices_at, pieces_at, lora_pieces_at;
typedef struct cache_args cache_args;
#endif

struct embed_args {
    words_at table;
    words_at indices; /* which row each token takes */
    floats_at beside; /* [n_tokens, width] stands behind each row; 0: nothing does */
    floats_at given;  /* [n_tokens, given_stride] rows of TOKEN_GIVEN; 0: there is none */
    floats_at result;
    uint row_bytes, out_stride, given_stride, width;
    uint n_rows; /* what is not below takes the first */
    float scale;
};

/* Operations on rows: y of row t at t * y_stride. Each uses what it needs. */
struct rows_args {
    floats_at x, z, y;
    floats_at weight, bias;
    words_at indices; /* gather: rows of x; temperature: positions */
    uint x_stride, z_stride, y_stride;
    uint width, group, kind; /* group: of a norm; columns of each value of a gate */
    int offset;
    float scale, eps, least;
};

/* y += columns of the batch's own rows, where there is no token. */
struct add_given_args {
    floats_at y, given;
    words_at tokens;
    uint y_stride, given_stride, width, column;
};

#ifdef SHADER
struct lora_piece {
    words_at down, up;
    uint adapter, rank, first, type;
    float factor;
    uint padding;
};

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer lora_pieces_at
{
    lora_piece v[];
};
#endif

/* Both steps of adapters: from x to y. */
struct lora_args {
    lora_pieces_at pieces;
    floats_at x, y, scales; /* scales: [n_sequences, n_adapters] */
    words_at tokens, sequences, outputs;
    uint x_stride, y_stride, n_pieces, n_adapters, n_in, n_out;
    uint is_table, is_output, row_factor;
    float scale;
};

struct xielu_args {
    floats_at y;
    uint y_stride, width;
    float alpha_p, alpha_n, beta, eps;
};

struct mix_args {
    floats_at x, weights, base, y;
    uint x_stride, weights_stride, base_stride, y_stride;
    uint width, n_in; /* of a stream; streams of x */
};

struct rope_table_args {
    floats_at frequencies, result;
    words_at axes;    /* [4][axis_stride] positions along each axis */
    uint sections[4]; /* as rope_table.sections */
    uint is_interleaved, axis_stride, out_stride, n_frequencies;
    float magnitude;
};

/*
 * out[t] (=, or +=) scale * W x[t / x_divisor] + bias, with W the matrix, or one of several: that of
 * the choice (workgroups of y are choices), or that of the head (workgroups of z are heads).
 */
struct matmul_args {
    words_at matrix;
    matrices_at matrices; /* NULL: there is one */
    choices_at choices;   /* NULL: matrices are heads */
    floats_at bias;       /* [n_rows], of expert e at e * n_rows; or NULL */
    floats_at x, result;
    uint x_stride, out_stride, row_bytes;
    uint n_rows, n_cols, n_tokens;
    uint adds, n_used, choice_stride, x_divisor;
    uint x_head, out_head; /* floats from one head to the next */
    uint weighs;           /* the choice's weight multiplies the scale */
    float scale;
};

/*
 * Rows in the form that products read, what is missing of 256 columns filled with zeros; normed
 * before, if there is a weight: then they also go to y as they are. The row of head h of a token is
 * row token * n_heads + h.
 */
struct form_args {
    floats_at x, weight, y;
    words_at result;
    uint x_stride, y_stride, result_stride; /* floats; words */
    uint n_cols, n_heads, x_head;
    float eps;
};

/*
 * As matmul_args, with matrices in tiles and rows of x in a form (form.comp). With a pair: act(W x) *
 * (pair x). The result goes to `result`, and to `next` in the form of the product that comes behind.
 */
struct product_args {
    pieces_at matrix, pair;
    matrices_at matrices, pairs; /* NULL: there is one */
    choices_at choices;          /* NULL: matrices are heads */
    floats_at bias, pair_bias;
    pieces_at x;
    floats_at result;
    words_at next;                                   /* or NULL */
    uint x_stride, out_stride, next_stride;          /* pieces; floats; words */
    uint n_rows, n_cols, n_tiles, n_tokens, n_heads; /* tiles across */
    uint adds, n_used, choice_stride, x_divisor, out_head, weighs, glu;
    float scale;

    /* Rows of x are normed: the sums of squares of each 32 values, [n_tokens, n_squares]; or NULL. */
    floats_at squares;
    /* The rows in `next` are to be normed: the norm's weights, and where their squares go; or NULL. */
    floats_at next_weight, next_squares;
    uint n_squares;
    float eps;

    /* Experts of many tokens (sort_experts.comp): choices by expert, and tiles of them; or NULL. */
    words_at order, tiles;

    /* Further matrices for the same rows of x; no rows: there are none. */
    pieces_at more_matrix[2];
    floats_at more_bias[2], more_result[2];
    uint more_stride[2], more_rows[2];
};

/* n choices in the order of their experts, and tiles of up to `tile`: expert, first, how many. */
struct sort_args {
    choices_at choices;
    words_at order; /* [n] */
    words_at tiles; /* [n_tiles, 3]; none in the last few */
    uint n, n_used, choice_stride, n_experts, tile, n_tiles;
};

/* Of each head of x, the n_rest values behind n_cols go behind n_rows of y. */
struct rest_args {
    floats_at x, y;
    uint x_stride, y_stride;
    uint n_heads, n_rest, n_cols, n_rows;
};

/* The cache of a layer, as ops/step.h has it, and where its pages are found. */
struct cache_args {
    words_at data;
    words_at tables; /* [n_sequences, pages_per_sequence] */
    words_at sequences, positions, seen;
    uint pages_per_sequence, page_bytes, k_offset, v_offset, row_bytes, v_row_bytes;
    uint page_tokens, n_heads, head_dim, v_dim, v_in_k;
};

struct rope_args {
    cache_args cache;
    floats_at table, q, k, v;
    uint table_stride, q_stride, k_stride, v_stride;
    uint n_heads; /* of q, in front of those of k */
    uint head_dim, n_dims, is_neox;
    uint k_dim; /* values of a head of k: all of a key, or what lies in front of v in it */
    uint turns; /* k is turned, too */
};

struct attend_args {
    cache_args cache;
    floats_at q, result, sinks;
    floats_at parts; /* of attend_join.glsl */
    words_at next;   /* planes of the result; or NULL */
    uint q_stride, out_stride, next_stride;
    uint n_heads, window, chunk, ahead, n_parts, n_tokens;
    float scale, softcap;

    /* As rope_args, where rotation and the cache are part of it. */
    floats_at table, k, v;
    words_at counts; /* [n_tokens, heads of the cache] parts that are done; 0 before and behind */
    uint table_stride, k_stride, v_stride, n_dims, is_neox;
};

struct conv_args {
    floats_at x, y, weight, bias;
    words_at state; /* of slot 0 */
    words_at slots; /* [n_tokens] */
    uint x_stride, y_stride, slot_bytes;
    uint n_tokens, width, n_taps, is_silu;
};

struct delta_args {
    floats_at qkv, a, b, result, rate, bias;
    words_at state, slots;
    uint qkv_stride, a_stride, b_stride, out_stride, slot_bytes;
    uint n_tokens, n_heads, n_key_heads, k_dim, v_dim, is_tiled;
    float eps;
};

struct scan_args {
    floats_at x, b, c, dt, result, a, d, dt_bias;
    words_at state, slots;
    uint x_stride, b_stride, c_stride, dt_stride, out_stride, slot_bytes;
    uint n_tokens, n_heads, head_dim, n_state, group_heads;
    float dt_min, dt_max;
};

/* route_rule of ops/route_rule.h, field by field. */
struct route_args {
    floats_at logits, bias, scales;
    choices_at result;
    uint logits_stride, out_stride; /* floats; choices */
    uint n_experts, n_used, scores;
    uint n_groups, n_groups_used, n_ranking, norms;
    float norm_more, norm_least, factor, jitter;
};

/* out[t] (=, or +=) scale * sum over k of weight(t, k) * rows[t * n_used + k] */
struct combine_args {
    floats_at rows, result;
    choices_at choices;
    uint rows_stride, choice_stride, out_stride;
    uint width, n_used, is_weighed, makes;
    float scale;
};

/* Numbers of a batch that the host sends begin with these, and then the lists of [from_stride]. */
#define SEND_N_TOKENS  0
#define SEND_N_OUTPUTS 1
#define SEND_N_PATCHES 2
#define SEND_N_GIVEN   3
#define SEND_N_SCALES  4
#define SEND_HEAD      5
#define ID_CHOSEN      (-1) /* TOKEN_CHOSEN and TOKEN_GIVEN of ops/step.h */
#define ID_GIVEN       (-2)
#define SEND_SEQUENCES 2 /* the list of them; the first is that of tokens */

struct send_args {
    words_at from, to; /* to: lists of [to_stride] */
    words_at outputs, tables, given, scales, last_tokens;
    uint from_stride, to_stride, n_lists;
    uint from_outputs, from_patches, from_given,
        from_scales; /* words of `from`; patches are places and values */
};

/* choice_rule of backend/choice.h in words. */
#define RULE_TEMPERATURE 8
#define RULE_TOP_K       11
#define RULE_N_EDITS     13
#define RULE_EDITS       14
#define RULE_WORDS       78

/*
 * Choosing: logits of a part, threads, candidates at most; words of a part's result (how many logits
 * are no numbers, how many candidates, and those, with their keys) and of a row's.
 */
#define CHOOSE_PART       2048
#define CHOOSE_THREADS    256
#define CHOOSE_MOST       256
#define CHOOSE_PART_WORDS (2 + 2 * CHOOSE_MOST)
#define CHOOSE_ROW_WORDS  (1 + 2 * CHOOSE_MOST)
#define CHOOSE_REFUSED    0x3fffffff

struct choose_args {
    floats_at logits;
    words_at rules; /* or NULL: no row has one */
    words_at outputs, sequences, last_tokens;
    words_at parts;      /* [rows, n_parts, CHOOSE_PART_WORDS] */
    words_at words;      /* [rows] choices; 0: the host draws from the candidates */
    words_at candidates; /* [rows, CHOOSE_ROW_WORDS] how many, and each one's token and logit */
    floats_at copy;      /* [rows, n_vocab] of rows that the host chooses from; or NULL */
    uint stride, n_vocab, n_parts;
};

#endif
