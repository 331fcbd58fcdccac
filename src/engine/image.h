/* What towers and images are made of. */
#ifndef LACE_ENGINE_IMAGE_H
#define LACE_ENGINE_IMAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/digest.h"
#include "engine/engine.h"
#include "model/tower.h"

struct lace_image {
    atomic_int n_users;
    digest key;             /* of its bytes and of the tower */
    int32_t n;              /* rows */
    int32_t n_rows, n_cols; /* of the grid that they are */
    int64_t row_width;
    lace_image *next; /* of those that a tower keeps; newest first */
    float rows[];     /* [n, row_width] */
};

/* The tokens around an image, and in its place. -1: the vocabulary has none. */
typedef struct image_marks {
    lace_token mark;          /* stands where an image is to be */
    lace_token before, after; /* that the rows are put between; -1: the template writes them */
} image_marks;

struct lace_tower {
    model *m;
    runner *runner; /* NULL: the last try to start it has failed */
    tower_config config;
    lace_tower_options options;
    image_marks marks;
    uint64_t scratch;             /* bytes that it takes beside its weights, once it is started */
    digest files;                 /* of its weights, and of the sizes that images get */
    pthread_mutex_t lock;         /* of everything below, and of the runner */
    float *patches;               /* [max patches, patch width] of the image under way */
    int32_t *segments;            /* [max patches] */
    int32_t *axes;                /* [2, max patches] */
    lace_item *items;             /* [max patches] */
    lace_image *kept;             /* images that were made lately */
    bool is_prepared, is_started; /* the runner has its memory; and everything has */
};

/* Take the memory and load the weights, once, for the first image. The tower is locked. */
lace_status tower_start(lace_tower *t, lace_error *err);

/* One more user of an image, who frees it. */
lace_image *image_ref(lace_image *i);

/* Whether an image has the rows that sessions with this tower read. */
lace_status image_check_tower(const lace_image *image, const lace_tower *tower, lace_error *err);

/* Tokens [begin, begin + n) of its rows. */
void image_tokens_of(const lace_image *image, int32_t begin, int32_t n, lace_token *out);

/* Where it is, from a position on; rows are the image's. */
image_span image_span_of(const lace_image *i, int32_t start);

/*
 * Rows of patches that are ready: [n_rows * n_cols, tower_patch_width] in the tower's order (square
 * by square). What lace_image_create does behind decoding and bringing to size.
 */
lace_status image_of_patches(lace_tower *t, const float *patches, int32_t n_rows, int32_t n_cols,
                             const digest *key, lace_image **out, lace_error *err);

#endif
