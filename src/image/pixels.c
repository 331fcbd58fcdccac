/* Pixels, and how their number is changed. */
#include "image/pixels.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_PIXELS = 1 << 28, MAX_SHAPE = 200, BITS = 22 };

lace_status pixels_create(int32_t width, int32_t height, pixels *out, lace_error *err)
{
    *out = (pixels){0};
    if (width < 1 || height < 1 || (int64_t)width * height > MAX_PIXELS)
        return error_set(err, LACE_E_LIMIT, "an image of %d x %d pixels", width, height);
    out->rgb = mem_alloc(3 * (size_t)width * (size_t)height);
    if (!out->rgb)
        return error_nomem(err, "an image");
    out->width = width;
    out->height = height;
    return LACE_OK;
}

void pixels_free(pixels *p)
{
    mem_free(p->rgb);
    *p = (pixels){0};
}

/* ---- Resampling ------------------------------------------------------------------------------ */

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* Which pixels make one, and how much each counts. */
typedef struct taps {
    int32_t first, n;
    const int32_t *weights;
} taps;

typedef struct filter {
    int32_t n_taps;   /* room for each */
    int32_t *begins;  /* [n] */
    int32_t *counts;  /* [n] */
    int32_t *weights; /* [n, n_taps] of 22 bits */
} filter;

static void filter_free(filter *f)
{
    mem_free_all(f->begins, f->counts, f->weights);
}

/* The weights for n_out pixels of n_in. */
static lace_status filter_make(int32_t n_in, int32_t n_out, bool is_cubic, filter *f,
                               lace_error *err)
{
    double scale = (double)n_in / n_out, wide = scale > 1 ? scale : 1;
    double support = (is_cubic ? 2.0 : 1.0) * wide;
    *f = (filter){.n_taps = (int32_t)ceil(support) * 2 + 1};
    f->begins = mem_calloc((size_t)n_out, sizeof *f->begins);
    f->counts = mem_calloc((size_t)n_out, sizeof *f->counts);
    f->weights = mem_calloc((size_t)n_out * (size_t)f->n_taps, sizeof *f->weights);
    double *exact = mem_calloc((size_t)f->n_taps, sizeof *exact);
    if (!f->begins || !f->counts || !f->weights || !exact) {
        mem_free(exact);
        filter_free(f);
        return error_nomem(err, "an image");
    }
    for (int32_t i = 0; i < n_out; i++) {
        double center = (i + 0.5) * scale, sum = 0;
        int32_t begin = (int32_t)(center - support + 0.5), end = (int32_t)(center + support + 0.5);
        begin = begin > 0 ? begin : 0;
        end = end < n_in ? end : n_in;
        for (int32_t k = 0; k < end - begin; k++) {
            double at = (k + begin - center + 0.5) / wide;
            exact[k] = is_cubic ? cubic(at) : triangle(at);
            sum += exact[k];
        }
        for (int32_t k = 0; k < end - begin; k++) {
            double x = (sum != 0 ? exact[k] / sum : exact[k]) * (1 << BITS);
            f->weights[(int64_t)i * f->n_taps + k] = (int32_t)(x < 0 ? x - 0.5 : x + 0.5);
        }
        f->begins[i] = begin;
        f->counts[i] = end - begin;
    }
    mem_free(exact);
    return LACE_OK;
}

static taps taps_of(const filter *f, int32_t i)
{
    return (taps){f->begins[i], f->counts[i], f->weights + (int64_t)i * f->n_taps};
}

/* One value of pixels that are `stride` bytes apart. */
static uint8_t weigh(const taps *t, const uint8_t *from, size_t stride)
{
    int64_t sum = 1 << (BITS - 1);
    for (int32_t k = 0; k < t->n; k++)
        sum += (int64_t)t->weights[k] * from[(size_t)(t->first + k) * stride];
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void resize_rows(const pixels *from, const filter *f, pixels *to)
{
    for (int32_t y = 0; y < to->height; y++)
        for (int32_t x = 0; x < to->width; x++) {
            taps t = taps_of(f, x);
            for (size_t c = 0; c < 3; c++)
                to->rgb[3 * ((size_t)y * (size_t)to->width + (size_t)x) + c] =
                    weigh(&t, from->rgb + 3 * (size_t)y * (size_t)from->width + c, 3);
        }
}

static void resize_columns(const pixels *from, const filter *f, pixels *to)
{
    size_t row = 3 * (size_t)to->width;
    for (int32_t y = 0; y < to->height; y++) {
        taps t = taps_of(f, y);
        for (size_t i = 0; i < row; i++)
            to->rgb[(size_t)y * row + i] = weigh(&t, from->rgb + i, row);
    }
}

lace_status pixels_resize(const pixels *from, int32_t width, int32_t height, bool is_cubic,
                          pixels *out, lace_error *err)
{
    filter across = {0}, down = {0};
    pixels half = {0};
    lace_status status;
    *out = (pixels){0};
    TRY_GOTO(status, done, filter_make(from->width, width, is_cubic, &across, err));
    TRY_GOTO(status, done, filter_make(from->height, height, is_cubic, &down, err));
    TRY_GOTO(status, done, pixels_create(width, from->height, &half, err));
    TRY_GOTO(status, done, pixels_create(width, height, out, err));
    if (width == from->width)
        memcpy(half.rgb, from->rgb, 3 * (size_t)width * (size_t)from->height);
    else
        resize_rows(from, &across, &half);
    if (height == from->height)
        memcpy(out->rgb, half.rgb, 3 * (size_t)width * (size_t)height);
    else
        resize_columns(&half, &down, out);
done:
    filter_free(&across);
    filter_free(&down);
    pixels_free(&half);
    return status;
}

/* ---- Size ------------------------------------------------------------------------------------ */

/* The multiple of `unit` that is nearest, of two the even one, as Python rounds. */
static int64_t nearest(double x, int32_t unit)
{
    return (int64_t)rint(x / unit) * unit;
}

static int64_t at_least(int64_t x, int32_t unit)
{
    return x > unit ? x : unit;
}

lace_status pixels_choose_size(int32_t width, int32_t height, int32_t unit, int64_t min_pixels,
                               int64_t max_pixels, int32_t *out_width, int32_t *out_height,
                               lace_error *err)
{
    int64_t low = width < height ? width : height, high = width < height ? height : width;
    if (low < 1 || high > low * MAX_SHAPE)
        return error_set(err, LACE_E_IMAGE,
                         "the image has %d x %d pixels: one side is more than %d times as long as "
                         "the other",
                         width, height, MAX_SHAPE);
    double area = (double)width * height;
    int64_t w = at_least(nearest(width, unit), unit), h = at_least(nearest(height, unit), unit);
    if (w * h > max_pixels) {
        double by = sqrt(area / (double)max_pixels);
        w = at_least((int64_t)floor(width / by / unit) * unit, unit);
        h = at_least((int64_t)floor(height / by / unit) * unit, unit);
        while (w * h > max_pixels && (w > unit || h > unit)) { /* of very long ones */
            int64_t *side = w > h ? &w : &h;
            *side -= unit;
        }
    } else if (w * h < min_pixels) {
        double by = sqrt((double)min_pixels / area);
        w = (int64_t)ceil(width * by / unit) * unit;
        h = (int64_t)ceil(height * by / unit) * unit;
        if (w * h > max_pixels)
            return error_set(err, LACE_E_IMAGE,
                             "the image of %d x %d pixels cannot be brought to "
                             "at least %lld and at most %lld pixels",
                             width, height, (long long)min_pixels, (long long)max_pixels);
    }
    *out_width = (int32_t)w;
    *out_height = (int32_t)h;
    return LACE_OK;
}
