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

/* A number of 22 bits behind the point as a byte. */
static uint8_t byte_of(int64_t sum)
{
    sum = (sum + (1 << (BITS - 1))) >> BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* n weights, each for the next of values that are `stride` bytes apart. */
static int64_t weigh(const int32_t *weights, int32_t n, const uint8_t *from, size_t stride)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < n; k++)
        sum += (int64_t)weights[k] * from[(size_t)k * stride];
    return sum;
}

/* A row of another width. */
static void resize_row(const uint8_t *from, int32_t n_in, const filter *f, int32_t n_out,
                       uint8_t *to)
{
    if (n_in == n_out) {
        memcpy(to, from, 3 * (size_t)n_out);
        return;
    }
    for (int32_t x = 0; x < n_out; x++)
        for (size_t c = 0; c < 3; c++)
            to[3 * (size_t)x + c] = byte_of(weigh(f->weights + (int64_t)x * f->n_taps, f->counts[x],
                                                  from + 3 * (size_t)f->begins[x] + c, 3));
}

/* Rows in between: row r lies in rows[r % n]. */
typedef struct row_ring {
    uint8_t *rows; /* [n, width] */
    int32_t n;
    size_t width; /* bytes */
} row_ring;

static uint8_t *ring_row(const row_ring *ring, int32_t r)
{
    return ring->rows + (size_t)(r % ring->n) * ring->width;
}

/* Row y of what comes out. */
static void join_rows(const row_ring *ring, const filter *f, int32_t y, uint8_t *to)
{
    const int32_t *weights = f->weights + (int64_t)y * f->n_taps;
    const uint8_t *first = ring_row(ring, f->begins[y]);
    int32_t n = f->counts[y], n_left = ring->n - f->begins[y] % ring->n;
    int32_t n_before = n < n_left ? n : n_left; /* the ring's end */
    for (size_t i = 0; i < ring->width; i++)
        to[i] = byte_of(weigh(weights, n_before, first + i, ring->width) +
                        weigh(weights + n_before, n - n_before, ring->rows + i, ring->width));
}

/*
 * First the widths, then the heights, as Pillow does it. Of the rows in between no more are kept than
 * one row is made of: of a high image all of them would be many times as large as both.
 */
static void resize(const pixels *from, const filter *across, const filter *down,
                   const row_ring *ring, pixels *to)
{
    size_t from_width = 3 * (size_t)from->width;
    for (int32_t y = 0, n_made = 0; y < to->height; y++) {
        int32_t begin = down->begins[y], end = begin + down->counts[y];
        for (n_made = n_made > begin ? n_made : begin; n_made < end; n_made++)
            resize_row(from->rgb + (size_t)n_made * from_width, from->width, across, to->width,
                       ring_row(ring, n_made));
        uint8_t *row = to->rgb + (size_t)y * ring->width;
        if (from->height == to->height)
            memcpy(row, ring_row(ring, y), ring->width);
        else
            join_rows(ring, down, y, row);
    }
}

lace_status pixels_resize(const pixels *from, int32_t width, int32_t height, bool is_cubic,
                          pixels *out, lace_error *err)
{
    filter across = {0}, down = {0};
    row_ring ring = {.width = 3 * (size_t)width};
    lace_status status;
    *out = (pixels){0};
    if ((int64_t)width * from->height > MAX_PIXELS) /* so many are computed in between */
        return error_set(err, LACE_E_LIMIT, "an image of %d x %d pixels cannot become %d x %d",
                         from->width, from->height, width, height);
    TRY_GOTO(status, done, filter_make(from->width, width, is_cubic, &across, err));
    TRY_GOTO(status, done, filter_make(from->height, height, is_cubic, &down, err));
    TRY_GOTO(status, done, pixels_create(width, height, out, err));
    ring.n = down.n_taps < from->height ? down.n_taps : from->height;
    ring.rows = mem_alloc((size_t)ring.n * ring.width);
    if (ring.rows)
        resize(from, &across, &down, &ring, out);
    else
        status = error_nomem(err, "an image");
done:
    filter_free(&across);
    filter_free(&down);
    mem_free(ring.rows);
    if (status != LACE_OK)
        pixels_free(out);
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
