/*
 * Vision towers: what turns the patches of an image into rows that a language model reads in place
 * of embeddings. A tower is an encoder (encoder.h) whose tokens are patches, and a model of its own:
 * it has a device, weights and a plan, and is run by a runner like any other.
 *
 *     Gemma 3     SigLIP: learned positions; means of squares of patches, a norm, a projection
 *     Qwen3-VL    positions between those of a table, two-dimensional rotation; squares of patches
 *                 merged by a small network, also behind some layers, for the first layers of the
 *                 language model (DeepStack)
 *
 * The patches of a batch come square by square: those of the `merge` x `merge` patches that become
 * one row lie together. A batch is one image; its rows of pixels are batch.embeddings, the place of
 * a patch in reading order is its segment.
 */
#ifndef LACE_MODEL_TOWER_H
#define LACE_MODEL_TOWER_H

#include "model/encoder.h"

typedef enum tower_kind { TOWER_GEMMA3, TOWER_QWEN3VL } tower_kind;

enum {
    TOWER_CHANNELS = 3,
    TOWER_MAX_LAYERS = 128,
    TOWER_MAX_PATCH = 64,
    TOWER_MAX_MERGE = 16,
    TOWER_MAX_PATCHES = 1 << 16, /* of an image */
};

/* How pixels are weighed when the size of an image changes. Numbers as Pillow has them. */
typedef enum resample_kind { RESAMPLE_BILINEAR = 2, RESAMPLE_BICUBIC = 3 } resample_kind;

typedef struct tower_config {
    tower_kind kind;
    int32_t n_layers, n_embd, n_heads, n_ff;
    double norm_eps, rope_base;
    int32_t patch;  /* pixels along a side of a patch */
    int32_t merge;  /* patches along a side of what becomes one row */
    int32_t side;   /* patches along a side of the table of positions */
    int32_t n_out;  /* values of a row that stand for an embedding */
    int32_t n_deep; /* layers whose rows are added in the language model, each n_out values more */
    bool is_deep[TOWER_MAX_LAYERS];

    /* How pixels become values: (byte / 255 - mean) / deviation. */
    double mean[TOWER_CHANNELS], deviation[TOWER_CHANNELS];
    resample_kind resample;
    int64_t min_pixels, max_pixels; /* of an image, if it is not always side * patch squared */
} tower_config;

/* Values of a patch, and of a row that comes out. */
static inline int64_t tower_patch_width(const tower_config *c)
{
    return (int64_t)TOWER_CHANNELS * c->patch * c->patch;
}

static inline int64_t tower_row_width(const tower_config *c)
{
    return (int64_t)c->n_out * (1 + c->n_deep);
}

/* Whether images have one size, and tokens of one see each other both ways. */
static inline bool tower_is_fixed(const tower_config *c)
{
    return c->kind == TOWER_GEMMA3;
}

/* Patches of the largest image. */
int64_t tower_max_patches(const tower_config *c);

/* From the metadata of an mmproj file, or from config.json of a directory. */
lace_status tower_config_read(const weights *files, tower_config *out, lace_error *err);

/* Give the tensors of the files the names and shapes that the tower binds. */
lace_status tower_set_names(weights *files, const tower_config *c, lace_error *err);

/* A tower's weights beside those of encoder_parts. */
typedef struct tower_merger {
    encoder_norm norm;
    weight up, down;
    const float *up_bias, *down_bias;
} tower_merger;

struct tower_parts {
    tower_config config;
    weight patch; /* [n_embd, tower_patch_width] */
    const float *patch_bias;
    encoder_norm output;    /* Gemma: behind all layers */
    const float *soft_norm; /* [n_embd] Gemma: of means */
    weight projection;      /* [n_out, n_embd] Gemma */
    tower_merger merger;    /* Qwen; its norm is of single patches */
    tower_merger *deep;     /* [n_layers] of those that are deep; norms of squares */
};

/* Whether a directory or a file has a tower that lace knows; reads nothing but names and keys. */
bool tower_is_there(const weights *files);

/* Bind a tower, on the CPU. Takes `files`, also on failure. */
lace_status tower_create(weights *files, const device_options *o, model **out, lace_error *err);

#endif
