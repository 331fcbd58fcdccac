/* Image files to pixels, by the libraries that everybody uses. */
#include "image/decode.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>
#include <webp/decode.h>

#include "base/mem.h"

/* What a decoder is given, and where its pixels go. */
typedef struct job {
    const uint8_t *bytes;
    size_t n_bytes;
    uint64_t max_pixels;
    uint8_t *room;
    size_t n_room;
    int32_t width, height;
    lace_error *err;
} job;

static lace_status fail(const job *j, const char *kind, const char *what)
{
    return error_set(j->err, LACE_E_IMAGE, "the %s image cannot be read: %s", kind, what);
}

/* Before a pixel is decoded. */
static lace_status set_size(job *j, const char *kind, uint64_t width, uint64_t height)
{
    if (width < 1 || height < 1 || width > INT32_MAX || height > INT32_MAX)
        return fail(j, kind, "it has no size");
    if (width > j->max_pixels / height || 3 * width * height > j->n_room)
        return error_set(j->err, LACE_E_IMAGE,
                         "the %s image has %llu x %llu pixels, more than the %llu that are allowed",
                         kind, (unsigned long long)width, (unsigned long long)height,
                         (unsigned long long)j->max_pixels);
    j->width = (int32_t)width;
    j->height = (int32_t)height;
    return LACE_OK;
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

typedef struct jpeg_fault {
    struct jpeg_error_mgr base;
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
    int orientation; /* that the file says; 1: as it is */
} jpeg_fault;

static void jpeg_leave(j_common_ptr c)
{
    jpeg_fault *f = (jpeg_fault *)c->err;
    c->err->format_message(c, f->text);
    longjmp(f->back, 1);
}

/*
 * Files with many faults would be decoded for ever; a cut one ends with such a message, too. Bytes
 * that stand between what markers begin are no part of the image: some cameras leave a few.
 */
static void jpeg_note(j_common_ptr c, int level)
{
    if (level < 0 && c->err->msg_code != JWRN_EXTRANEOUS_DATA)
        jpeg_leave(c);
}

static void jpeg_say_nothing(j_common_ptr c)
{
}

/* Four inks to three colours; Adobe's files have them inverted. */
static void mix_inks(const uint8_t *inks, int32_t width, bool is_inverted, uint8_t *rgb)
{
    for (int32_t x = 0; x < width; x++, inks += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            unsigned ink = is_inverted ? inks[c] : 255u - inks[c];
            unsigned black = is_inverted ? inks[3] : 255u - inks[3];
            rgb[c] = (uint8_t)(ink * black / 255);
        }
}

/* The orientation that a camera wrote into an Exif block; 1: as it is. */
static int exif_orientation(const uint8_t *at, size_t n)
{
    if (n < 14 || memcmp(at, "Exif\0\0", 6) != 0)
        return 1;
    at += 6;
    n -= 6;
    bool is_little = at[0] == 'I';
#define EXIF_16(i) (is_little ? at[i] | at[(i) + 1] << 8 : at[i] << 8 | at[(i) + 1])
#define EXIF_32(i)                                                                                 \
    (is_little ? (uint32_t)EXIF_16(i) | (uint32_t)EXIF_16((i) + 2) << 16                           \
               : (uint32_t)EXIF_16(i) << 16 | (uint32_t)EXIF_16((i) + 2))
    size_t list = EXIF_32(4);
    if (list > n || n - list < 2)
        return 1;
    size_t count = (size_t)EXIF_16(list);
    for (size_t i = 0; i < count && list + 2 + 12 * i + 12 <= n; i++) {
        size_t entry = list + 2 + 12 * i;
        int value = EXIF_16(entry + 8);
        if (EXIF_16(entry) == 0x0112)
            return value >= 1 && value <= 8 ? value : 1;
    }
#undef EXIF_16
#undef EXIF_32
    return 1;
}

/* Turn the pixels as the orientation says. 5 to 8 swap the sides. */
static lace_status turn(job *j, int orientation)
{
    size_t n = 3 * (size_t)j->width * (size_t)j->height;
    int32_t w = j->width, h = j->height;
    if (orientation <= 1)
        return LACE_OK;
    uint8_t *copy = mem_alloc(n);
    if (!copy)
        return error_nomem(j->err, "an image");
    memcpy(copy, j->room, n);
    bool swaps = orientation >= 5;
    bool mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    int32_t out_w = swaps ? h : w, out_h = swaps ? w : h;
    for (int32_t y = 0; y < out_h; y++)
        for (int32_t x = 0; x < out_w; x++) {
            int32_t from_x = swaps ? y : x, from_y = swaps ? x : y;
            from_x = mirrors_x ? w - 1 - from_x : from_x;
            from_y = mirrors_y ? h - 1 - from_y : from_y;
            memcpy(j->room + 3 * ((size_t)y * (size_t)out_w + (size_t)x),
                   copy + 3 * ((size_t)from_y * (size_t)w + (size_t)from_x), 3);
        }
    j->width = out_w;
    j->height = out_h;
    mem_free(copy);
    return LACE_OK;
}

/* Between create and destroy; leaves by longjmp where the library finds a fault. */
static lace_status read_jpeg(struct jpeg_decompress_struct *c, job *j, int *orientation)
{
    jpeg_save_markers(c, JPEG_APP0 + 1, 0xffff);
    jpeg_mem_src(c, j->bytes, j->n_bytes);
    jpeg_read_header(c, TRUE);
    for (jpeg_saved_marker_ptr m = c->marker_list; m; m = m->next)
        if (*orientation == 1)
            *orientation = exif_orientation(m->data, m->data_length);
    TRY(set_size(j, "JPEG", c->image_width, c->image_height));
    bool has_inks = c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK;
    c->out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(c);
    size_t row = 3 * (size_t)c->output_width;
    JSAMPARRAY inks = NULL;
    if (has_inks)
        inks = c->mem->alloc_sarray((j_common_ptr)c, JPOOL_IMAGE, 4 * c->output_width, 1);
    while (c->output_scanline < c->output_height) {
        uint8_t *to = j->room + row * c->output_scanline;
        JSAMPROW rows[1] = {has_inks ? inks[0] : to};
        jpeg_read_scanlines(c, rows, 1);
        if (has_inks)
            mix_inks(inks[0], j->width, c->saw_Adobe_marker, to);
    }
    jpeg_finish_decompress(c);
    return LACE_OK;
}

static lace_status decode_jpeg(job *j)
{
    struct jpeg_decompress_struct c;
    jpeg_fault fault = {.orientation = 1};
    volatile lace_status status = LACE_OK;
    memset(&c, 0, sizeof c);
    c.err = jpeg_std_error(&fault.base);
    fault.base.error_exit = jpeg_leave;
    fault.base.emit_message = jpeg_note;
    fault.base.output_message = jpeg_say_nothing;
    if (setjmp(fault.back) == 0) {
        jpeg_create_decompress(&c);
        status = read_jpeg(&c, j, &fault.orientation);
    } else {
        status = fail(j, "JPEG", fault.text);
    }
    jpeg_destroy_decompress(&c);
    return status == LACE_OK ? turn(j, fault.orientation) : status;
}

/* ---- PNG ------------------------------------------------------------------------------------- */

typedef struct png_source {
    const job *j;
    size_t at;
    char text[128];
} png_source;

static void png_leave(png_structp c, png_const_charp what)
{
    png_source *s = png_get_error_ptr(c);
    snprintf(s->text, sizeof s->text, "%s", what);
    png_longjmp(c, 1);
}

static void png_say_nothing(png_structp c, png_const_charp what)
{
}

static void png_take(png_structp c, png_bytep out, size_t n)
{
    png_source *s = png_get_io_ptr(c);
    if (n > s->j->n_bytes - s->at)
        png_error(c, "it is cut off");
    memcpy(out, s->j->bytes + s->at, n);
    s->at += n;
}

/* Leaves by longjmp where the library finds a fault. Alpha is dropped, as Pillow does for RGB. */
static lace_status read_png(png_structp c, png_infop info, png_source *s, job *j)
{
    png_set_read_fn(c, s, png_take);
    png_set_user_limits(c, INT32_MAX, INT32_MAX); /* set_size has the real one */
    png_set_chunk_malloc_max(c, 8 << 20);
    png_read_info(c, info);
    TRY(set_size(j, "PNG", png_get_image_width(c, info), png_get_image_height(c, info)));
    png_set_expand(c);
    png_set_strip_16(c);
    png_set_gray_to_rgb(c);
    png_set_strip_alpha(c);
    int n_passes = png_set_interlace_handling(c);
    png_read_update_info(c, info);
    size_t row = 3 * (size_t)j->width;
    if (png_get_rowbytes(c, info) != row)
        return fail(j, "PNG", "it has an unknown form");
    for (int pass = 0; pass < n_passes; pass++)
        for (int32_t y = 0; y < j->height; y++)
            png_read_row(c, j->room + (size_t)y * row, NULL);
    png_read_end(c, NULL);
    return LACE_OK;
}

static lace_status decode_png(job *j)
{
    png_source s = {.j = j};
    png_structp c = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, png_leave, png_say_nothing);
    png_infop info = c ? png_create_info_struct(c) : NULL;
    volatile lace_status status = LACE_OK;
    if (!info)
        status = error_nomem(j->err, "an image");
    else if (setjmp(png_jmpbuf(c)) == 0)
        status = read_png(c, info, &s, j);
    else
        status = fail(j, "PNG", s.text);
    png_destroy_read_struct(&c, &info, NULL);
    return status;
}

/* ---- WebP ------------------------------------------------------------------------------------ */

static lace_status decode_webp(job *j)
{
    WebPBitstreamFeatures head;
    if (WebPGetFeatures(j->bytes, j->n_bytes, &head) != VP8_STATUS_OK)
        return fail(j, "WebP", "its head is broken or cut off");
    if (head.has_animation)
        return fail(j, "WebP", "it is animated; give one picture of it");
    TRY(set_size(j, "WebP", (uint64_t)head.width, (uint64_t)head.height));
    if (!WebPDecodeRGBInto(j->bytes, j->n_bytes, j->room, j->n_room, 3 * j->width))
        return fail(j, "WebP", "its data is broken or cut off");
    return LACE_OK;
}

/* ---- By what they begin with ----------------------------------------------------------------- */

typedef struct image_kind {
    const char *magic;
    size_t n_magic;
    lace_status (*decode)(job *j);
} image_kind;

static bool begins(const job *j, const char *magic, size_t n)
{
    return j->n_bytes >= n && memcmp(j->bytes, magic, n) == 0;
}

lace_status decode_here(const uint8_t *bytes, size_t n_bytes, uint64_t max_pixels, uint8_t *room,
                        size_t n_room, int32_t *width, int32_t *height, lace_error *err)
{
    static const image_kind kinds[] = {
        {"\xff\xd8\xff", 3, decode_jpeg},
        {"\x89PNG\r\n\x1a\n", 8, decode_png},
        {"RIFF", 4, decode_webp},
    };
    job j = {.bytes = bytes,
             .n_bytes = n_bytes,
             .max_pixels = max_pixels,
             .room = room,
             .n_room = n_room,
             .err = err};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!begins(&j, kinds[i].magic, kinds[i].n_magic) ||
            (kinds[i].decode == decode_webp && (n_bytes < 12 || memcmp(bytes + 8, "WEBP", 4) != 0)))
            continue;
        TRY(kinds[i].decode(&j));
        *width = j.width;
        *height = j.height;
        return LACE_OK;
    }
    return error_set(err, LACE_E_IMAGE,
                     n_bytes == 0 ? "the image is empty"
                                  : "the image is neither a JPEG nor a PNG nor a WebP file");
}
