/* formats/safetensors.c and base/json_read.c: good files, and every way to break one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/safetensors.h"
#include "alloc_faults.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_hf.h"

static lace_status parse(const buf *b, lace_error *err)
{
    safetensors *st;
    lace_status status = safetensors_parse(span_of(b), &st, err);
    CHECK((status == LACE_OK) == (st != NULL));
    safetensors_free(st);
    return status;
}

/* A file of a given header and n bytes of data must be refused with this status. */
static void refuse(const char *header, size_t n_data, lace_status expected)
{
    buf b;
    lace_error err = {0};
    buf_init(&b, 1 << 20);
    st_raw(header, n_data, &b);
    lace_status status = parse(&b, &err);
    if (!CHECK(status == expected))
        tap_note("%s: %s, expected %s (%s)", header, lace_status_name(status),
                 lace_status_name(expected), err.text);
    /* One line that names the place. */
    CHECK(err.status == status && strstr(err.text, "at byte ") && !strchr(err.text, '\n'));
    buf_deinit(&b);
}

/* A tensor "t" with these fields, in quotes where JSON wants them. */
static void refuse_tensor(const char *fields, size_t n_data, lace_status expected)
{
    char header[1024];
    snprintf(header, sizeof header, "{\"t\":{%s}}", fields);
    refuse(header, n_data, expected);
}

/* ---- Good files ------------------------------------------------------------------------------ */

static void every_type_and_shape_is_listed(void)
{
    st_file f;
    buf b;
    safetensors *st = NULL;
    lace_error err;
    st_begin(&f);
    buf_init(&b, 1 << 20);
    st_add(&f, "scalar", "F32", "[]", NULL, 4);
    st_add(&f, "four", "BF16", "[2,3,4,5]", NULL, 240);
    st_add(&f, "e4m3", "F8_E4M3", "[3]", NULL, 3);
    st_add(&f, "e5m2", "F8_E5M2", "[3]", NULL, 3);
    st_add(&f, "e8m0", "F8_E8M0", "[3]", NULL, 3);
    st_add(&f, "f16", "F16", "[3]", NULL, 6);
    st_add(&f, "f64", "F64", "[3]", NULL, 24);
    st_add(&f, "f4", "F4", "[4]", NULL, 2);
    st_add(&f, "f6", "F6_E2M3", "[4]", NULL, 3);
    st_add(&f, "c64", "C64", "[3]", NULL, 24);
    st_add(&f, "i8", "I8", "[3]", NULL, 3);
    st_add(&f, "i16", "I16", "[3]", NULL, 6);
    st_add(&f, "i32", "I32", "[3]", NULL, 12);
    st_add(&f, "i64", "I64", "[3]", NULL, 24);
    st_add(&f, "u8", "U8", "[3]", NULL, 3);
    st_add(&f, "u16", "U16", "[3]", NULL, 6);
    st_add(&f, "u32", "U32", "[3]", NULL, 12);
    st_add(&f, "u64", "U64", "[3]", NULL, 24);
    st_add(&f, "bool", "BOOL", "[3]", NULL, 3);
    st_end(&f, &b);
    if (!CHECK(safetensors_parse(span_of(&b), &st, &err) == LACE_OK)) {
        tap_note("%s", err.text);
    } else {
        CHECK(safetensors_count(st) == 19 && safetensors_at(st, 19) == NULL);
        const tensor *scalar = safetensors_at(st, 0), *four = safetensors_at(st, 1);
        CHECK(text_is(scalar->name, "scalar") && scalar->shape.n_dims == 1);
        CHECK(scalar->n_values == 1 && scalar->shape.dims[0] == 1);
        /* The fastest dimension comes first. */
        CHECK(four->type == DTYPE_BF16 && four->shape.n_dims == 4 && four->shape.dims[0] == 5 &&
              four->shape.dims[1] == 4 && four->shape.dims[2] == 3 && four->shape.dims[3] == 2);
        CHECK(four->data == scalar->data + 4 && four->n_bytes == 240);
        CHECK(safetensors_at(st, 2)->type == DTYPE_F8_E4M3);
        CHECK(safetensors_at(st, 14)->type == DTYPE_U8);
    }
    safetensors_free(st);
    buf_deinit(&b);
}

static void names_may_be_escaped_and_order_does_not_matter(void)
{
    buf b;
    safetensors *st = NULL;
    lace_error err;
    buf_init(&b, 4096);
    st_raw("{\"__metadata__\":{\"format\":\"pt\"},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
           "\"\\u0061\":{\"data_offsets\":[0,1],\"shape\":[1],\"dtype\":\"U8\"}}   ",
           2, &b);
    CHECK(safetensors_parse(span_of(&b), &st, &err) == LACE_OK);
    CHECK(st && safetensors_count(st) == 2 && text_is(safetensors_at(st, 0)->name, "a"));
    safetensors_free(st);
    buf_deinit(&b);
}

/* ---- Bad files ------------------------------------------------------------------------------- */

static void sizes_of_the_header_are_checked(void)
{
    static const struct {
        uint64_t n;
        size_t file_bytes;
        lace_status expected;
    } cases[] = {
        {0, 0, LACE_E_TRUNC},           {0, 1, LACE_E_TRUNC},
        {0, 7, LACE_E_TRUNC},           {0, 8, LACE_E_JSON},
        {UINT64_MAX, 64, LACE_E_LIMIT}, {(uint64_t)1 << 63, 64, LACE_E_LIMIT},
        {100000001, 64, LACE_E_LIMIT},  {(32 << 20) + 1, 64, LACE_E_LIMIT},
        {32 << 20, 64, LACE_E_TRUNC},   {64 - 7, 64, LACE_E_TRUNC},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[64] = {0};
        for (int k = 0; k < 8; k++)
            file[k] = (uint8_t)(cases[i].n >> 8 * k);
        safetensors *st;
        lace_error err;
        lace_status status = safetensors_parse((span){file, cases[i].file_bytes}, &st, &err);
        if (!CHECK(status == cases[i].expected && !st))
            tap_note("case %zu: %s", i, lace_status_name(status));
    }
}

static void malformed_headers_are_refused_by_class(void)
{
    refuse("{}", 0, LACE_E_META);
    refuse("{\"__metadata__\":{}}", 0, LACE_E_META);
    refuse("[]", 0, LACE_E_JSON);
    refuse("null", 0, LACE_E_JSON);
    refuse(" {}", 0, LACE_E_JSON);
    refuse("{", 0, LACE_E_JSON);
    refuse("{} {}", 0, LACE_E_JSON);
    refuse("{\"a\":1,}", 0, LACE_E_JSON);
    refuse("{/* c */}", 0, LACE_E_JSON);
    refuse("{'a':1}", 0, LACE_E_JSON);
    refuse("\xEF\xBB\xBF{}", 0, LACE_E_JSON);
    refuse("{\"a\":\"\xFF\"}", 0, LACE_E_UTF8);
    refuse("{\xFF", 0, LACE_E_UTF8);
    refuse("{\"a\":\"\xED\xA0\x80\"}", 0, LACE_E_UTF8); /* a surrogate */
    refuse("{\"a\":1e999}", 0, LACE_E_OVERFLOW);
    refuse("{\"a\":5}", 0, LACE_E_JSON);
    refuse("{\"__metadata__\":{\"a\":5}}", 0, LACE_E_META);
    refuse("{\"__metadata__\":[]}", 0, LACE_E_META);
}

static void names_that_come_twice_or_cannot_be_are_refused(void)
{
#define ONE "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}"
    refuse("{\"t\":" ONE ",\"t\":" ONE "}", 1, LACE_E_DUP);
    refuse("{\"t\":" ONE ",\"\\u0074\":" ONE "}", 1, LACE_E_DUP);
    refuse("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
           LACE_E_DUP);
    refuse("{\"\":" ONE "}", 1, LACE_E_NAME);
    refuse("{\"a\\nb\":" ONE "}", 1, LACE_E_NAME);
    char header[1024], name[301];
    memset(name, 'x', 300);
    name[300] = 0;
    snprintf(header, sizeof header, "{\"%s\":" ONE "}", name);
    refuse(header, 1, LACE_E_NAME);
#undef ONE
}

static void bad_types_shapes_and_offsets_are_refused(void)
{
#define REST ",\"shape\":[1],\"data_offsets\":[0,4]"
    refuse_tensor("\"dtype\":\"F31\"" REST, 4, LACE_E_TENSOR_TYPE);
    refuse_tensor("\"dtype\":\"\"" REST, 4, LACE_E_TENSOR_TYPE);
    refuse_tensor("\"dtype\":5" REST, 4, LACE_E_TENSOR_TYPE);
    refuse_tensor("\"dtype\":\"f32\"" REST, 4, LACE_E_TENSOR_TYPE);
    refuse_tensor("\"shape\":[1],\"data_offsets\":[0,4]", 4, LACE_E_TENSOR_TYPE);
#undef REST
    static const char *const shapes[] = {"[-1]",
                                         "[0]",
                                         "[1.5]",
                                         "[1e3]",
                                         "[\"4\"]",
                                         "null",
                                         "[[1]]",
                                         "[null]",
                                         "5",
                                         "[1,1,1,1,1,1]",
                                         "[1,1,1,1,1,1,1,1,1]"};
    char fields[256];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        snprintf(fields, sizeof fields, "\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,4]",
                 shapes[i]);
        refuse_tensor(fields, 4, LACE_E_DIMS);
    }
    static const char *const offsets[] = {"[4,0]",     "[-4,0]", "[0,4,8]", "[0]",
                                          "[0.0,4.0]", "null",   "{}",      "[\"0\",\"4\"]"};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        snprintf(fields, sizeof fields, "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s",
                 offsets[i]);
        refuse_tensor(fields, 4, LACE_E_OFFSET);
    }
    refuse_tensor("\"dtype\":\"F32\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,4]", 4,
                  LACE_E_OVERFLOW);
    refuse_tensor("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]", 4,
                  LACE_E_OVERFLOW);
    refuse_tensor("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]", 2, LACE_E_DIMS);
    refuse_tensor("\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,4]", 4, LACE_E_SHAPE);
}

static void data_is_covered_exactly(void)
{
#define TENSOR(name, begin, end)                                                                   \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[" begin "," end "]}"
    refuse("{" TENSOR("a", "0", "16") "}", 16 + 35, LACE_E_TAIL);
    refuse("{" TENSOR("a", "0", "16") "}", 16 - 2, LACE_E_TRUNC);
    refuse("{" TENSOR("a", "1", "17") "}", 17, LACE_E_OFFSET);
    refuse("{" TENSOR("a", "0", "16") "," TENSOR("b", "17", "33") "}", 33, LACE_E_OFFSET);
    refuse("{" TENSOR("a", "0", "16") "," TENSOR("b", "15", "31") "}", 31, LACE_E_OVERLAP);
    refuse("{" TENSOR("a", "0", "16") "," TENSOR("b", "0", "16") "," TENSOR("c", "0", "16") "}", 16,
           LACE_E_OVERLAP);
#undef TENSOR
}

/* Fills *b with `n` times `unit` between an opening and a closing text. */
static void repeat(buf *b, const char *open, const char *unit, size_t n, const char *close)
{
    buf header;
    buf_init(&header, 64 << 20);
    buf_append_text(&header, open);
    for (size_t i = 0; i < n; i++)
        buf_append_text(&header, unit);
    buf_append_text(&header, close);
    st_raw(header.data, 0, b);
    buf_deinit(&header);
}

static void costly_headers_are_refused_before_they_cost(void)
{
    static const struct {
        const char *open, *unit, *close;
        size_t n;
    } cases[] = {
        {"{\"a\":", "[", "", 100000},         {"{\"a\":", "{\"a\":", "", 100000},
        {"{\"a\":[{}", ",{}", "]}", 5000000}, {"{\"a\":[[]", ",[]", "]}", 5000000},
        {"{\"a\":[0", ",0", "]}", 8000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf b;
        lace_error err;
        buf_init(&b, 64 << 20);
        repeat(&b, cases[i].open, cases[i].unit, cases[i].n, cases[i].close);
        CHECK(parse(&b, &err) == LACE_E_LIMIT);
        buf_deinit(&b);
    }
}

/* A quadratic search for names would take minutes. */
static void many_tensors_are_read_in_time(void)
{
    enum { N = 60000 };
    st_file f;
    buf b;
    lace_error err;
    char name[64];
    st_begin(&f);
    buf_init(&b, 64 << 20);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%d.weight", i);
        st_add(&f, name, "U8", "[1]", NULL, 1);
    }
    st_end(&f, &b);
    clock_t begin = clock();
    CHECK(parse(&b, &err) == LACE_OK);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    tap_note("%d tensors in %.2f s", N, seconds);
    CHECK(seconds < 5); /* 0.1 s; sanitizers and a loaded machine take longer */
    buf_deinit(&b);
}

/* ---- Sweeps ---------------------------------------------------------------------------------- */

static void make_small(buf *b)
{
    st_file f;
    st_begin(&f);
    buf_init(b, 4096);
    st_add(&f, "model.norm.weight", "F16", "[3,2]", NULL, 12);
    st_add(&f, "b", "U8", "[5]", NULL, 5);
    st_end(&f, b);
}

static void a_file_cut_anywhere_is_refused(void)
{
    buf b;
    make_small(&b);
    for (size_t n = 0; n < b.size; n++) {
        /* A copy of exactly this size, so that a sanitizer sees every byte too far. */
        uint8_t *copy = malloc(n ? n : 1);
        memcpy(copy, b.data, n);
        safetensors *st;
        lace_error err;
        CHECK(safetensors_parse((span){copy, n}, &st, &err) != LACE_OK && !st);
        free(copy);
    }
    buf_deinit(&b);
}

/* Whatever the bits: no, or a directory whose every byte can be read. */
static void flipped_bits_are_refused_or_harmless(void)
{
    buf b;
    make_small(&b);
    int n_taken = 0;
    unsigned sum = 0;
    for (size_t bit = 0; bit < (b.size - 17) * 8; bit++) {
        uint8_t *copy = malloc(b.size);
        memcpy(copy, b.data, b.size);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        safetensors *st;
        lace_error err;
        if (safetensors_parse((span){copy, b.size}, &st, &err) == LACE_OK) {
            n_taken++;
            for (size_t i = 0; i < safetensors_count(st); i++) {
                const tensor *t = safetensors_at(st, i);
                for (uint64_t k = 0; k < t->n_bytes; k++)
                    sum += t->data[k];
                CHECK(t->data >= copy && t->data + t->n_bytes <= copy + b.size);
            }
        }
        safetensors_free(st);
        free(copy);
    }
    tap_note("%d of %zu flips are taken, sum %u", n_taken, (b.size - 17) * 8, sum);
    CHECK(n_taken > 0 && n_taken < 300); /* those of letters in names */
    buf_deinit(&b);
}

static buf small;

static lace_status parse_once(lace_error *err)
{
    safetensors *st;
    lace_status status = safetensors_parse(span_of(&small), &st, err);
    CHECK((st != NULL) == (status == LACE_OK));
    safetensors_free(st);
    return status;
}

static void every_allocation_may_fail(void)
{
    make_small(&small);
    fail_each_allocation(parse_once, false);
    buf_deinit(&small);
}

int main(void)
{
    CASE(every_type_and_shape_is_listed);
    CASE(names_may_be_escaped_and_order_does_not_matter);
    CASE(sizes_of_the_header_are_checked);
    CASE(malformed_headers_are_refused_by_class);
    CASE(names_that_come_twice_or_cannot_be_are_refused);
    CASE(bad_types_shapes_and_offsets_are_refused);
    CASE(data_is_covered_exactly);
    CASE(costly_headers_are_refused_before_they_cost);
    CASE(many_tensors_are_read_in_time);
    CASE(a_file_cut_anywhere_is_refused);
    CASE(flipped_bits_are_refused_or_harmless);
    CASE(every_allocation_may_fail);
    return tap_end();
}
