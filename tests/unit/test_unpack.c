/* backend/ref/: decoding and encoding blocks, and the short floats in tensor/half.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"
#include "data.h"
#include "random_blocks.h"
#include "tap.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

/* ---- Test data: blocks made by ggml, and the floats it decodes them to ----------------------- */

enum { MAX_SAMPLES = 64 };

typedef struct sample {
    char type_name[32];
    unsigned number;
    int block_values, block_bytes;
    int n_rows, row_values;
    char blocks_file[64], values_file[64];
} sample;

static sample samples[MAX_SAMPLES];
static int n_samples;

/* A whole file below quant/, as the caller's to free(), or NULL. */
static void *read_quant(const char *name, size_t *n_bytes)
{
    char relative[128];
    snprintf(relative, sizeof relative, "quant/%s", name);
    char *path = data_path(relative);
    FILE *f = path ? fopen(path, "rb") : NULL;
    free(path);
    *n_bytes = 0;
    if (!f)
        return NULL;
    size_t capacity = 1 << 20;
    char *data = malloc(capacity);
    if (data)
        *n_bytes = fread(data, 1, capacity - 1, f);
    if (data)
        data[*n_bytes] = 0;
    fclose(f);
    return data;
}

static void read_index(void)
{
    size_t n_bytes;
    char *text = read_quant("INDEX.tsv", &n_bytes);
    char *line = text ? strchr(text, '\n') : NULL; /* past the headings */
    while (line && n_samples < MAX_SAMPLES) {
        sample *s = &samples[n_samples];
        if (sscanf(line + 1, "%31s %u %d %d %d %d %63s %63s", s->type_name, &s->number,
                   &s->block_values, &s->block_bytes, &s->n_rows, &s->row_values, s->blocks_file,
                   s->values_file) == 8)
            n_samples++;
        line = strchr(line + 1, '\n');
    }
    free(text);
}

static const sample *find_sample(const char *type_name)
{
    for (int i = 0; i < n_samples; i++)
        if (strcmp(samples[i].type_name, type_name) == 0)
            return &samples[i];
    return NULL;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static void index_has_every_gguf_type_but_f32(void)
{
    int n_types = 0;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!unpack_ref[type] || type == DTYPE_F32 ||
            dtype_describe((dtype)type)->number >= DTYPE_OWN)
            continue;
        n_types++;
        if (!CHECK(find_sample(dtype_describe((dtype)type)->name)))
            tap_note("no sample of %s", dtype_describe((dtype)type)->name);
    }
    tap_note("%d samples for %d types", n_samples, n_types);
}

/* Compares bits, so that -0 and 0 differ; the output is poisoned and guarded. */
static void row_equals(dtype type, const uint8_t *blocks, int64_t n, const float *expected)
{
    enum { GUARD = 8 };
    float *out = malloc(((size_t)n + 2 * GUARD) * sizeof(float));
    if (!CHECK(out))
        return;
    memset(out, 0xA5, ((size_t)n + 2 * GUARD) * sizeof(float));
    unpack_row(type, blocks, n, out + GUARD);
    int64_t n_wrong = 0;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&out[GUARD + i], &expected[i], sizeof(float)) != 0 && n_wrong++ == 0)
            tap_note("value %lld is %a, expected %a", (long long)i, out[GUARD + i], expected[i]);
    CHECK(n_wrong == 0);
    for (int i = 0; i < GUARD; i++)
        CHECK(f32_to_bits(out[i]) == 0xA5A5A5A5 && f32_to_bits(out[GUARD + n + i]) == 0xA5A5A5A5);
    free(out);
}

static void decode_sample(void *arg)
{
    const sample *s = arg;
    dtype type;
    if (!CHECK(dtype_from_name(s->type_name, &type)) || !CHECK(unpack_ref[type]))
        return;
    const dtype_info *info = dtype_describe(type);
    CHECK((unsigned)info->number == s->number);
    CHECK(info->block_values == s->block_values && info->block_bytes == s->block_bytes);
    int64_t n = (int64_t)s->n_rows * s->row_values;
    size_t blocks_bytes, values_bytes;
    uint8_t *blocks = read_quant(s->blocks_file, &blocks_bytes);
    float *expected = read_quant(s->values_file, &values_bytes);
    if (CHECK(blocks && blocks_bytes == row_bytes(type, n)) &&
        CHECK(expected && values_bytes == (size_t)n * sizeof(float))) {
        row_equals(type, blocks, n, expected);
        memmove(blocks + 1, blocks, blocks_bytes); /* read_quant leaves room */
        row_equals(type, blocks + 1, n, expected);
    }
    free(blocks);
    free(expected);
}

static void f32_rows_are_copied(void)
{
    float x[300];
    random_floats(1, 300, x);
    row_equals(DTYPE_F32, (const uint8_t *)x, 300, x);
}

static void plain_integers_and_f64_have_no_decoder(void)
{
    const dtype plain[] = {DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64, DTYPE_F64};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        CHECK(unpack_ref[plain[i]] == NULL);
}

static void stored_signs_are_made_even(void)
{
    for (uint32_t stored = 0; stored < 128; stored++) {
        uint8_t signs = iq_signs(stored);
        int n_minus = 0;
        for (int i = 0; i < 8; i++)
            n_minus += signs >> i & 1;
        CHECK(n_minus % 2 == 0 && (signs & 127u) == stored);
    }
}

/* ---- Short floats ---------------------------------------------------------------------------- */

static void known_f16_values_are_exact(void)
{
    static const struct {
        uint16_t h;
        float x;
    } known[] = {
        {0x0000, 0.0f},        {0x0001, 0x1p-24f}, {0x03ff, 0x3ffp-24f}, {0x0400, 0x1p-14f},
        {0x3555, 0x1.554p-2f}, {0x3c00, 1.0f},     {0x3c01, 0x1.004p0f}, {0xc000, -2.0f},
        {0x7bff, 65504.0f},    {0x7c00, INFINITY}, {0xfc00, -INFINITY},  {0x8001, -0x1p-24f},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        CHECK(f16_to_f32(known[i].h) == known[i].x);
        CHECK(f16_from_f32(known[i].x) == known[i].h);
    }
    CHECK(f32_to_bits(f16_to_f32(0x8000)) == 0x80000000);
    CHECK(f16_from_f32(-0.0f) == 0x8000);
    CHECK(f16_from_f32(0x1.ffep15f) == 0x7c00); /* 65520, the first to become infinite */
    CHECK(f16_from_f32(nextafterf(65520.0f, 0)) == 0x7bff);
    CHECK(f16_from_f32(1e30f) == 0x7c00 && f16_from_f32(-1e30f) == 0xfc00);
    CHECK(f16_from_f32(0x1p-25f) == 0 && f16_from_f32(0x1.000002p-25f) == 1);
    CHECK(f16_from_f32(0x1p-149f) == 0 && f16_from_f32(-0x1p-149f) == 0x8000);
}

static void every_f16_survives_a_round_trip(void)
{
    int n_wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        bool is_nan = (h & 0x7fff) > 0x7c00;
        uint16_t expected = (uint16_t)(is_nan ? h | 0x200 : h); /* NaNs become quiet */
        float x = f16_to_f32((uint16_t)h);
        if (f16_from_f32(x) != expected || is_nan != !!isnan(x))
            n_wrong++;
    }
    CHECK(n_wrong == 0);
}

/* The float between two neighbours goes to the even one, and those beside it to the nearer one. */
static void every_f16_is_rounded_to_nearest_even(void)
{
    int n_wrong = 0;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        uint16_t even = (uint16_t)(h % 2 ? h + 1 : h);
        float low = f16_to_f32((uint16_t)h);
        float high = f16_to_f32((uint16_t)(h + 1));
        float middle = low + (high - low) / 2; /* exact: one bit more than f16 */
        if (!(low < middle && middle < high))
            n_wrong++;
        if (f16_from_f32(middle) != even || f16_from_f32(-middle) != (even | 0x8000) ||
            f16_from_f32(nextafterf(middle, 0)) != h ||
            f16_from_f32(nextafterf(middle, INFINITY)) != h + 1)
            n_wrong++;
    }
    CHECK(n_wrong == 0);
}

static void every_bf16_is_kept_and_rounded_to_nearest_even(void)
{
    int n_wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        bool is_nan = (h & 0x7fff) > 0x7f80;
        float x = bf16_to_f32((uint16_t)h);
        if (bf16_from_f32(x) != (is_nan ? (h | 0x40) : h) || is_nan != !!isnan(x))
            n_wrong++;
        if ((h & 0x7fff) >= 0x7f80)
            continue;
        uint32_t middle = h << 16 | 0x8000; /* past the largest, this rounds to infinity */
        if (bf16_from_f32(f32_from_bits(middle)) != (h % 2 ? h + 1 : h) ||
            bf16_from_f32(f32_from_bits(middle - 1)) != h ||
            bf16_from_f32(f32_from_bits(middle + 1)) != h + 1)
            n_wrong++;
    }
    CHECK(n_wrong == 0);
    CHECK(bf16_to_f32(0x3f80) == 1.0f && bf16_from_f32(-2.0f) == 0xc000);
}

static void fp4_scales_are_half_their_value(void)
{
    for (int e = 0; e < 256; e++)
        CHECK(e8m0_to_f32_half((uint8_t)e) == ldexpf(1, e - 128));
    for (int s = 0; s < 127; s++) {
        int exponent = s / 8, mantissa = s % 8;
        float value =
            exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
        CHECK(ue4m3_to_f32_half((uint8_t)s) == value / 2);
    }
    CHECK(ue4m3_to_f32_half(0x38) == 0.5f && ue4m3_to_f32_half(0x7e) == 224.0f);
    CHECK(ue4m3_to_f32_half(0x7f) == 0);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

/* Bytes are equal to what ggml made of the same floats, for the types that it
 * does not search for. */
static void encode_source(void *arg)
{
    const sample *s = find_sample(arg);
    size_t source_bytes, blocks_bytes;
    float *source = read_quant("source.f32", &source_bytes);
    uint8_t *stored = s ? read_quant(s->blocks_file, &blocks_bytes) : NULL;
    dtype type;
    if (CHECK(source && stored) && CHECK(dtype_from_name(arg, &type)) && CHECK(pack_ref[type])) {
        int64_t n = (int64_t)(source_bytes / sizeof(float));
        uint8_t *packed = malloc(blocks_bytes);
        if (CHECK(packed && n > 0 && blocks_bytes == row_bytes(type, n))) {
            pack_row(type, source, n, packed);
            CHECK(memcmp(packed, stored, blocks_bytes) == 0);
        }
        free(packed);
    }
    free(source);
    free(stored);
}

static uint64_t fnv1a(const uint8_t *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

/*
 * The hashes were taken from the output of ggml's quantize_row_*_ref for these floats: `smooth` are
 * random_floats(1), `tied` are random_floats(2) cut to eighths, so that many lie between two
 * quants.
 */
static void pack_gives_the_bytes_of_ggml_s_reference(void)
{
    static const struct {
        dtype type;
        uint64_t smooth, tied;
    } known[] = {
        {DTYPE_Q4_0, 0xc5b754b6ddbab251, 0x55a09b83e5ffe97e},
        {DTYPE_Q4_1, 0x661a37682005fe9d, 0xc43e08b3faa8be3b},
        {DTYPE_Q5_0, 0x323f36d4d1084157, 0x10c66e721677580a},
        {DTYPE_Q5_1, 0x5dbe0c8a50009625, 0x0431049a2202a522},
        {DTYPE_Q8_0, 0x9f5b605293057ef8, 0xa63a251191035d52},
    };
    enum { N = 4096 };
    static float smooth[N], tied[N];
    static uint8_t blocks[N * sizeof(float)];
    random_floats(1, N, smooth);
    random_floats(2, N, tied);
    for (int i = 0; i < N; i++)
        tied[i] = truncf(tied[i] * 8) / 8;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n_bytes = row_bytes(known[i].type, N);
        pack_row(known[i].type, smooth, N, blocks);
        bool is_right = CHECK(fnv1a(blocks, n_bytes) == known[i].smooth);
        pack_row(known[i].type, tied, N, blocks);
        if (!CHECK(fnv1a(blocks, n_bytes) == known[i].tied) || !is_right)
            tap_note("%s", dtype_describe(known[i].type)->name);
    }
}

static double rms_error(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum / (double)n);
}

/*
 * Even steps over a group's range lose little against ggml's search for the best steps. The factor
 * is far from what a misplaced quant or scale would give: that makes an error of the values' own
 * size.
 */
static void even_steps_come_close_to_searched_ones(void)
{
    size_t source_bytes, stored_bytes;
    float *source = read_quant("source.f32", &source_bytes);
    if (!CHECK(source))
        return;
    int64_t n = (int64_t)(source_bytes / sizeof(float));
    const struct {
        dtype type;
        const char *values_file;
    } types[] = {{DTYPE_Q4_K, "q4_k.f32"}, {DTYPE_Q6_K, "q6_k.f32"}};
    for (int i = 0; i < 2; i++) {
        float *stored = read_quant(types[i].values_file, &stored_bytes);
        uint8_t *packed = malloc(row_bytes(types[i].type, n));
        float *decoded = malloc(source_bytes);
        if (CHECK(stored && packed && decoded && stored_bytes == source_bytes)) {
            pack_row(types[i].type, source, n, packed);
            unpack_row(types[i].type, packed, n, decoded);
            double even = rms_error(source, decoded, n);
            double searched = rms_error(source, stored, n);
            tap_note("%s: error %.6f, searched %.6f", dtype_describe(types[i].type)->name, even,
                     searched);
            CHECK(even < 1.5 * searched);
        }
        free(stored);
        free(packed);
        free(decoded);
    }
    free(source);
}

/* A second look at where each quant goes: of zeros and a single one, only that one comes back. */
static void a_single_value_is_found_where_it_was(void)
{
    static float x[256], y[256];
    uint8_t blocks[256 * sizeof(float)];
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!pack_ref[type])
            continue;
        for (int at = 0; at < 256; at++) {
            memset(x, 0, sizeof x);
            x[at] = at % 2 ? -1 : 1;
            pack_row((dtype)type, x, 256, blocks);
            unpack_row((dtype)type, blocks, 256, y);
            bool is_right = true;
            for (int i = 0; i < 256; i++)
                is_right = is_right && fabsf(y[i] - x[i]) <= 0x1p-10f; /* f16 scale and min */
            if (!CHECK(is_right))
                tap_note("%s, value %d", dtype_describe((dtype)type)->name, at);
        }
    }
}

static void odd_input_gives_blocks_of_the_same_size(void)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 0x1p-149f, 1e38f, 0};
    float x[256];
    uint8_t blocks[256 * sizeof(float) + 1];
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t i = 0; pack_ref[type] && i < sizeof odd / sizeof *odd; i++) {
            size_t n_bytes = row_bytes((dtype)type, 256);
            random_floats(i, 256, x);
            for (int j = 0; j < 256; j += 3)
                x[j] = odd[i];
            blocks[n_bytes] = 0xA5;
            pack_row((dtype)type, x, 256, blocks);
            CHECK(blocks[n_bytes] == 0xA5);
        }
}

static void rows_of_zeros_decode_to_zeros(void)
{
    float x[256] = {0}, y[256];
    uint8_t blocks[256 * sizeof(float)];
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!pack_ref[type])
            continue;
        pack_row((dtype)type, x, 256, blocks);
        unpack_row((dtype)type, blocks, 256, y);
        for (int i = 0; i < 256; i++)
            CHECK(y[i] == 0);
    }
}

/* ---- Floats of eight bits -------------------------------------------------------------------- */

/* Every one of the 256, from the definition: (-1)^s * 2^(e - bias) * (1 + m / 2^bits). */
static float float_by_definition(int code, int n_mantissa, int bias)
{
    int n_exponent = 7 - n_mantissa;
    int exponent = code >> n_mantissa & ((1 << n_exponent) - 1);
    int mantissa = code & ((1 << n_mantissa) - 1);
    double fraction = (double)mantissa / (1 << n_mantissa);
    double size = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, exponent - bias);
    return (float)(code & 0x80 ? -size : size);
}

static void f8_decodes_by_its_definition(void)
{
    for (int code = 0; code < 256; code++) {
        uint8_t byte = (uint8_t)code;
        float x, y;
        unpack_row(DTYPE_F8_E4M3, &byte, 1, &x);
        unpack_row(DTYPE_F8_E5M2, &byte, 1, &y);
        if ((code & 0x7f) == 0x7f)
            CHECK(isnan(x));
        else
            CHECK(f32_to_bits(x) == f32_to_bits(float_by_definition(code, 3, 7)));
        if ((code & 0x7f) > 0x7c)
            CHECK(isnan(y));
        else if ((code & 0x7f) == 0x7c)
            CHECK(isinf(y) && (y < 0) == (code > 127));
        else
            CHECK(f32_to_bits(y) == f32_to_bits(float_by_definition(code, 2, 15)));
    }
    float largest;
    unpack_row(DTYPE_F8_E4M3, (const uint8_t[]){0x7e}, 1, &largest);
    CHECK(largest == 448);
}

static void numbers_of_other_formats_are_not_gguf_types(void)
{
    for (uint32_t number = 0; number < 2000; number++) {
        dtype type;
        if (dtype_from_number(number, &type))
            CHECK(number < DTYPE_NOT_GGUF && dtype_describe(type)->number == (int)number);
    }
    dtype type;
    CHECK(dtype_from_name("f8_e4m3", &type) && type == DTYPE_F8_E4M3);
    CHECK(!dtype_from_number((uint32_t)dtype_describe(DTYPE_U8)->number, &type));
}

/* ---- Random blocks --------------------------------------------------------------------------- */

static void random_blocks_are_finite_and_repeatable(void)
{
    enum { N = 256 * 16 };
    static float values[N];
    static uint8_t blocks[N * sizeof(float)], again[N * sizeof(float)];
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!unpack_ref[type])
            continue;
        int64_t n_blocks = N / dtype_describe((dtype)type)->block_values;
        size_t n_bytes = row_bytes((dtype)type, N);
        random_blocks((dtype)type, 7, n_blocks, blocks);
        random_blocks((dtype)type, 7, n_blocks, again);
        CHECK(memcmp(blocks, again, n_bytes) == 0);
        random_blocks((dtype)type, 8, n_blocks, again);
        CHECK(memcmp(blocks, again, n_bytes) != 0);
        unpack_row((dtype)type, blocks, N, values);
        float least = 0, most = 0;
        for (int i = 0; i < N; i++) {
            if (!(fabsf(values[i]) <= RANDOM_BLOCKS_MAX))
                CHECK(!"a value is out of range");
            least = fminf(least, values[i]);
            most = fmaxf(most, values[i]);
        }
        if (!CHECK(least < 0 && most > 0))
            tap_note("%s: from %g to %g", dtype_describe((dtype)type)->name, least, most);
    }
}

int main(void)
{
    read_index();
    CASE(index_has_every_gguf_type_but_f32);
    for (int i = 0; i < n_samples; i++) {
        char title[128];
        snprintf(title, sizeof title, "unpack_%.60s_equals_ggml", samples[i].type_name);
        tap_case_arg(title, decode_sample, &samples[i]);
    }
    CASE(f32_rows_are_copied);
    CASE(plain_integers_and_f64_have_no_decoder);
    CASE(stored_signs_are_made_even);
    CASE(known_f16_values_are_exact);
    CASE(every_f16_survives_a_round_trip);
    CASE(every_f16_is_rounded_to_nearest_even);
    CASE(every_bf16_is_kept_and_rounded_to_nearest_even);
    CASE(fp4_scales_are_half_their_value);
    tap_case_arg("pack_f16_equals_ggml", encode_source, "f16");
    tap_case_arg("pack_bf16_equals_ggml", encode_source, "bf16");
    tap_case_arg("pack_q8_0_equals_ggml", encode_source, "q8_0");
    CASE(pack_gives_the_bytes_of_ggml_s_reference);
    CASE(even_steps_come_close_to_searched_ones);
    CASE(a_single_value_is_found_where_it_was);
    CASE(odd_input_gives_blocks_of_the_same_size);
    CASE(rows_of_zeros_decode_to_zeros);
    CASE(f8_decodes_by_its_definition);
    CASE(numbers_of_other_formats_are_not_gguf_types);
    CASE(random_blocks_are_finite_and_repeatable);
    return tap_end();
}
