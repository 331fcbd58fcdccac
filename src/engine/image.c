/*
 * Images: files decoded and brought to size, cut into patches, and computed by a vision tower. What
 * was made lately is kept, as conversations come again with every turn.
 */
#include "engine/image.h"

#include <string.h>

#include "base/mem.h"
#include "image/decode.h"

enum { KEPT_BYTES = 64 << 20 };

/* ---- Images ---------------------------------------------------------------------------------- */

lace_image *image_ref(lace_image *i)
{
    atomic_fetch_add(&i->n_users, 1);
    return i;
}

void lace_image_free(lace_image *i)
{
    if (i && atomic_fetch_sub(&i->n_users, 1) == 1)
        mem_free(i);
}

size_t lace_image_n_tokens(const lace_image *i)
{
    return (size_t)i->n;
}

const float *lace_image_row(const lace_image *i, size_t row)
{
    return row < (size_t)i->n ? i->rows + row * (size_t)i->row_width : NULL;
}

lace_status image_check_tower(const lace_image *image, const lace_tower *tower, lace_error *err)
{
    int64_t expected = tower_row_width(&tower->config);
    if (image->row_width == expected)
        return LACE_OK;
    return error_set(err, LACE_E_ARG,
                     "an image of another tower, with rows of %lld values; those of the session's "
                     "tower have %lld",
                     (long long)image->row_width, (long long)expected);
}

/* A part of the digest for each row, below IMAGE_TOKENS. */
void image_tokens_of(const lace_image *image, int32_t begin, int32_t n, lace_token *out)
{
    enum { WORDS = DIGEST_BYTES / 4 };
    for (int32_t i = 0; i < n; i++) {
        uint32_t word, at = (uint32_t)(begin + i);
        memcpy(&word, image->key.bytes + 4 * (at % WORDS), sizeof word);
        word ^= at / WORDS * UINT32_C(0x9e3779b9);
        out[i] = IMAGE_TOKENS - 1 - (lace_token)(word >> 2);
    }
}

void lace_image_tokens(const lace_image *image, lace_token *out)
{
    image_tokens_of(image, 0, image->n, out);
}

image_span image_span_of(const lace_image *i, int32_t start)
{
    return (image_span){
        .start = start, .n = i->n, .n_rows = i->n_rows, .n_cols = i->n_cols, .rows = i->rows};
}

/* ---- Those that are kept --------------------------------------------------------------------- */

static size_t bytes_of(const lace_image *i)
{
    return sizeof *i + (size_t)i->n * (size_t)i->row_width * sizeof *i->rows;
}

/* One that was made of the same bytes; it is the newest then. */
static lace_image *find_kept(lace_tower *t, const digest *key)
{
    for (lace_image **at = &t->kept; *at; at = &(*at)->next) {
        lace_image *i = *at;
        if (!digest_equals(&i->key, key))
            continue;
        *at = i->next;
        i->next = t->kept;
        t->kept = i;
        return image_ref(i);
    }
    return NULL;
}

static void keep(lace_tower *t, lace_image *i)
{
    size_t n_bytes = 0;
    i->next = t->kept;
    t->kept = image_ref(i);
    for (lace_image **at = &t->kept; *at;) {
        n_bytes += bytes_of(*at);
        if (n_bytes <= KEPT_BYTES) {
            at = &(*at)->next;
            continue;
        }
        lace_image *old = *at;
        *at = old->next;
        lace_image_free(old);
    }
}

/* ---- Computing ------------------------------------------------------------------------------- */

/* Patches in the order in which they are computed: square by square, each in reading order. */
static void order_patches(lace_tower *t, int32_t n_rows, int32_t n_cols)
{
    int32_t merge = t->config.merge, at = 0, n = n_rows * n_cols;
    for (int32_t y = 0; y < n_rows; y += merge)
        for (int32_t x = 0; x < n_cols; x += merge)
            for (int32_t k = 0; k < merge * merge; k++, at++) {
                int32_t row = y + k / merge, col = x + k % merge;
                t->segments[at] = row * n_cols + col;
                t->axes[at] = row;
                t->axes[n + at] = col;
                t->items[at] = (lace_item){.token = TOKEN_GIVEN, .want_logits = k == 0};
            }
}

static lace_status run(lace_tower *t, const float *patches, int32_t n_rows, int32_t n_cols,
                       lace_error *err)
{
    runner *r = t->runner;
    size_t n = (size_t)n_rows * (size_t)n_cols;
    order_patches(t, n_rows, n_cols);
    r->item_segments = t->segments;
    runner_fill(r, t->items, n);
    r->b.embeddings = patches;
    r->b.embedding_width = tower_patch_width(&t->config);
    r->b.grid_rows = n_rows;
    r->b.grid_cols = n_cols;
    r->b.axes = t->axes;
    r->b.n_axes = 2;
    lace_status status = runner_reserve(r, err);
    if (status == LACE_OK)
        status = runner_run(r, NULL, false, err);
    states_set_length(r->states, 0, 0);
    return status;
}

lace_status image_of_patches(lace_tower *t, const float *patches, int32_t n_rows, int32_t n_cols,
                             const digest *key, lace_image **out, lace_error *err)
{
    int32_t merge = t->config.merge;
    size_t width = (size_t)tower_row_width(&t->config);
    *out = NULL;
    if (n_rows < merge || n_cols < merge || n_rows % merge != 0 || n_cols % merge != 0 ||
        (int64_t)n_rows * n_cols > tower_max_patches(&t->config))
        return error_set(err, LACE_E_ARG,
                         "a grid of %d x %d patches, expected multiples of %d and at most %lld",
                         n_rows, n_cols, merge, (long long)tower_max_patches(&t->config));
    TRY(tower_start(t, err));
    TRY(run(t, patches, n_rows, n_cols, err));
    int32_t n = n_rows / merge * (n_cols / merge);
    lace_image *i = mem_alloc(sizeof *i + (size_t)n * width * sizeof *i->rows);
    if (!i)
        return error_nomem(err, "an image");
    *i = (lace_image){.key = *key,
                      .n = n,
                      .n_rows = n_rows / merge,
                      .n_cols = n_cols / merge,
                      .row_width = (int64_t)width};
    atomic_init(&i->n_users, 1);
    for (int32_t k = 0; k < n; k++)
        memcpy(i->rows + (size_t)k * width, program_logits(t->runner->program, k),
               width * sizeof *i->rows);
    *out = i;
    return LACE_OK;
}

/* The values of patches, in the tower's order; a patch is its red, then its green, its blue. */
static void cut_patches(lace_tower *t, const pixels *p)
{
    const tower_config *c = &t->config;
    int32_t n_rows = p->height / c->patch, n_cols = p->width / c->patch;
    size_t area = (size_t)c->patch * (size_t)c->patch;
    order_patches(t, n_rows, n_cols);
    for (int32_t i = 0; i < n_rows * n_cols; i++) {
        float *to = t->patches + (size_t)i * TOWER_CHANNELS * area;
        int32_t top = t->segments[i] / n_cols * c->patch, left = t->segments[i] % n_cols * c->patch;
        for (size_t k = 0; k < area; k++) {
            size_t y = (size_t)top + k / (size_t)c->patch, x = (size_t)left + k % (size_t)c->patch;
            const uint8_t *from = p->rgb + 3 * (y * (size_t)p->width + x);
            for (size_t colour = 0; colour < TOWER_CHANNELS; colour++)
                to[colour * area + k] =
                    (float)((from[colour] / 255.0 - c->mean[colour]) / c->deviation[colour]);
        }
    }
}

/* The size that the tower takes. */
static lace_status fit_size(const lace_tower *t, const pixels *p, pixels *out, lace_error *err)
{
    const tower_config *c = &t->config;
    int32_t width = c->side * c->patch, height = width;
    if (!tower_is_fixed(c))
        TRY(pixels_choose_size(p->width, p->height, c->patch * c->merge, c->min_pixels,
                               c->max_pixels, &width, &height, err));
    return pixels_resize(p, width, height, c->resample == RESAMPLE_BICUBIC, out, err);
}

/* Behind decoding. The tower is locked. */
static lace_status make_image(lace_tower *t, const pixels *p, const digest *key, lace_image **out,
                              lace_error *err)
{
    pixels sized;
    TRY(tower_start(t, err));
    TRY(fit_size(t, p, &sized, err));
    cut_patches(t, &sized);
    int32_t n_rows = sized.height / t->config.patch, n_cols = sized.width / t->config.patch;
    pixels_free(&sized);
    TRY(image_of_patches(t, t->patches, n_rows, n_cols, key, out, err));
    keep(t, *out);
    return LACE_OK;
}

static lace_status find_or_make(lace_tower *t, const pixels *p, const digest *key, lace_image **out,
                                lace_error *err)
{
    pthread_mutex_lock(&t->lock);
    *out = find_kept(t, key);
    lace_status status = *out || !p ? LACE_OK : make_image(t, p, key, out, err);
    pthread_mutex_unlock(&t->lock);
    return status;
}

lace_status lace_image_create(lace_tower *t, const void *bytes, size_t n_bytes, lace_image **out,
                              lace_error *err)
{
    digest key;
    pixels p;
    decode_limits limits = decode_limits_default();
    *out = NULL;
    if (t->options.max_pixels)
        limits.max_pixels = t->options.max_pixels;
    if (!digest_of(&t->files, sizeof t->files, bytes, n_bytes, &key))
        return error_nomem(err, "an image");
    TRY(find_or_make(t, NULL, &key, out, err));
    if (*out)
        return LACE_OK;
    TRY(decode_apart(bytes, n_bytes, &limits, &p, err));
    lace_status status = find_or_make(t, &p, &key, out, err);
    pixels_free(&p);
    return status;
}

lace_status lace_image_create_rgb(lace_tower *t, const uint8_t *rgb, int32_t width, int32_t height,
                                  lace_image **out, lace_error *err)
{
    struct {
        digest files;
        int32_t width, height;
    } head = {t->files, width, height};
    digest key;
    *out = NULL;
    if (width < 1 || height < 1 || (int64_t)width * height > INT32_MAX / 3)
        return error_set(err, LACE_E_ARG, "an image of %d x %d pixels", width, height);
    if (!digest_of(&head, sizeof head, rgb, 3 * (size_t)width * (size_t)height, &key))
        return error_nomem(err, "an image");
    pixels p = {.rgb = (uint8_t *)rgb, .width = width, .height = height};
    return find_or_make(t, &p, &key, out, err);
}
