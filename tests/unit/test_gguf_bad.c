/* formats/gguf against single faults in a valid file, each with the error that it must give. */
#include <stdlib.h>
#include <string.h>

#include "bad_file.h"
#include "tap.h"

/* ---- Faults in the container ----------------------------------------------------------------- */

static size_t place(const void *p)
{
    return (size_t)((const char *)p - bad_seed.data);
}

/* Where the fields of a value and of a directory entry are: each name is preceded by its length. */
static size_t key_at(const char *key)
{
    return place(gguf_find(bad_seed_gguf, key)->key.data) - 8;
}

static size_t type_at(const char *key)
{
    return key_at(key) + 8 + strlen(key);
}

static size_t value_at(const char *key)
{
    return (size_t)gguf_find(bad_seed_gguf, key)->offset;
}

#define TENSOR "blk.0.attn_q.weight" /* of two dimensions */

static size_t entry_at(void)
{
    return place(gguf_find_tensor(bad_seed_gguf, TENSOR)->name.data) - 8;
}

static size_t dims_at(void) /* n_dims u32, dims u64[2], type u32, offset u64 */
{
    return entry_at() + 8 + strlen(TENSOR);
}

/* A key, a type and raw bytes, in front of the others. */
static void insert_value(buf *b, text key, uint32_t type, const void *bytes, size_t n_bytes)
{
    char head[12] = {0};
    buf value;
    buf_init(&value, 1 << 20);
    CHECK(buf_append(&value, head, 8) == LACE_OK &&
          buf_append(&value, key.data, key.size) == LACE_OK);
    CHECK(buf_append(&value, head, 4) == LACE_OK && buf_append(&value, bytes, n_bytes) == LACE_OK);
    bad_set_u64(&value, 0, key.size);
    bad_set_u32(&value, 8 + key.size, type);
    bad_insert(b, 24, value.data, value.size);
    bad_set_u64(b, 16, gguf_n_values(bad_seed_gguf) + 1);
    buf_deinit(&value);
}

/* A directory entry of one F32 value, in front of the others. */
static void insert_tensor(buf *b, text name)
{
    uint8_t tail[4 + 8 + 4 + 8] = {1, 0, 0, 0, 1};
    uint8_t length[8] = {(uint8_t)name.size, (uint8_t)(name.size >> 8), (uint8_t)(name.size >> 16)};
    size_t at = place(gguf_tensor_at(bad_seed_gguf, 0)->name.data) - 8;
    bad_insert(b, at, tail, sizeof tail);
    bad_insert(b, at, name.data, name.size);
    bad_insert(b, at, length, 8);
    bad_set_u64(b, 8, gguf_n_tensors(bad_seed_gguf) + 1);
}

/* What a row of the table does to the model; `n` and `s` are its arguments. */
typedef void (*fault_fn)(buf *b, uint64_t n, const char *s);

static void cut_to(buf *b, uint64_t n, const char *s)
{
    b->size = (size_t)n;
}

static void set_magic(buf *b, uint64_t n, const char *s)
{
    memcpy(b->data, s, 4);
}

static void set_version(buf *b, uint64_t n, const char *s)
{
    bad_set_u32(b, 4, n);
}

static void set_n_tensors(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, 8, n);
}

static void set_n_values(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, 16, n);
}

static void one_value_more(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, 16, gguf_n_values(bad_seed_gguf) + n);
}

static void one_tensor_more(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, 8, gguf_n_tensors(bad_seed_gguf) + n);
}

static void set_key_length(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, key_at("general.name"), n);
}

static void key_longer_than_the_rest(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, key_at("general.name"), b->size - key_at("general.name") - 8 + n);
}

static void add_key(buf *b, uint64_t n, const char *s)
{
    insert_value(b, (text){s, n ? (size_t)n : strlen(s)}, GGUF_U8, "x", 1);
}

static void add_long_key(buf *b, uint64_t n, const char *s)
{
    char *name = malloc((size_t)n);
    memset(name, 'k', (size_t)n);
    insert_value(b, (text){name, (size_t)n}, GGUF_U8, "x", 1);
    free(name);
}

static void set_type(buf *b, uint64_t n, const char *s)
{
    bad_set_u32(b, type_at("general.name"), n);
}

static void set_text_length(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, value_at("general.name"), n);
}

static void text_longer_than_the_rest(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, value_at("general.name"), b->size - value_at("general.name") - 8 + n);
}

static void set_token_length(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, value_at("tokenizer.ggml.tokens"), n);
}

/* An array of items of type n: three of them, without their bytes. */
static void add_array(buf *b, uint64_t n, const char *s)
{
    uint8_t head[12] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24), 3};
    insert_value(b, text_of("array"), GGUF_ARRAY, head, sizeof head);
}

static void array_longer_than_the_rest(buf *b, uint64_t n, const char *s)
{
    size_t at = value_at("tokenizer.ggml.scores") - 8; /* its items' offset; the length is before */
    bad_set_u64(b, at, (b->size - at - 8) / 4 + n);
}

/* The smallest file with an array: header, "a", array, u8, n. */
static void array_alone(buf *b, uint64_t n, const char *s)
{
    static const char file[] = "GGUF\3\0\0\0"
                               "\0\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0"
                               "a"
                               "\11\0\0\0"
                               "\0\0\0\0"
                               "\0\0\0\0\0\0\0\0";
    buf_clear(b);
    CHECK(buf_append(b, file, sizeof file - 1) == LACE_OK);
    bad_set_u64(b, b->size - 8, n);
}

static void set_bool(buf *b, uint64_t n, const char *s)
{
    b->data[value_at("tokenizer.ggml.add_bos_token")] = (char)n;
}

static void add_alignment(buf *b, uint64_t n, const char *s)
{
    uint8_t value[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    insert_value(b, text_of("general.alignment"), GGUF_U32, value, 4);
}

static void add_alignment_of_type(buf *b, uint64_t n, const char *s)
{
    /* Bytes that are a value of any type: 32, a string of 32 bytes, an array of u8. */
    uint8_t value[40] = {32};
    if (n == GGUF_ARRAY) {
        value[0] = GGUF_U8;
        value[4] = 28;
    }
    static const uint8_t sizes[GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 40, 40, 8, 8, 8};
    insert_value(b, text_of("general.alignment"), (uint32_t)n, value, sizes[n]);
}

static void add_tensor(buf *b, uint64_t n, const char *s)
{
    char *name = malloc((size_t)n + strlen(s) + 1);
    strcpy(name, s);
    memset(name + strlen(s), 't', (size_t)n);
    insert_tensor(b, (text){name, strlen(s) + (size_t)n});
    free(name);
}

static void set_n_dims(buf *b, uint64_t n, const char *s)
{
    bad_set_u32(b, dims_at(), n);
}

static void set_dim_0(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, dims_at() + 4, n);
}

static void set_dim_1(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, dims_at() + 12, n);
}

static void set_both_dims(buf *b, uint64_t n, const char *s)
{
    bad_set_u32(b, dims_at() + 20, 0); /* F32 */
    bad_set_u64(b, dims_at() + 4, n);
    bad_set_u64(b, dims_at() + 12, n);
}

static void set_q4_k(buf *b, uint64_t n, const char *s)
{
    bad_set_u32(b, dims_at() + 20, 12);
    bad_set_u64(b, dims_at() + 4, n);
}

static void set_tensor_type(buf *b, uint64_t n, const char *s)
{
    bad_set_u32(b, dims_at() + 20, n);
}

static void set_offset(buf *b, uint64_t n, const char *s)
{
    bad_set_u64(b, dims_at() + 24, n);
}

/* The last byte of the last tensor, and the padding after it, are missing. */
static void cut_last_tensor(buf *b, uint64_t n, const char *s)
{
    const tensor *last = gguf_tensor_at(bad_seed_gguf, gguf_n_tensors(bad_seed_gguf) - 1);
    b->size = place(last->data + last->n_bytes) - (size_t)n;
}

static void add_tail(buf *b, uint64_t n, const char *s)
{
    CHECK(buf_reserve(b, (size_t)n) == LACE_OK);
    memset(b->data + b->size, 0x5A, (size_t)n);
    b->size += (size_t)n;
}

static void add_itself(buf *b, uint64_t n, const char *s)
{
    CHECK(buf_append(b, bad_seed.data, bad_seed.size) == LACE_OK);
}

typedef struct fault {
    const char *id;
    fault_fn fn;
    uint64_t n;
    const char *s;
    lace_status expected, or_else; /* or_else: 0 if there is only one */
} fault;

#define MAX64 UINT64_MAX
/* clang-format off */
static const fault faults[] = {
    {"empty file", cut_to, 0, "", LACE_E_TRUNC, 0},
    {"the magic only", cut_to, 4, "", LACE_E_TRUNC, 0},
    {"header short by one", cut_to, 23, "", LACE_E_TRUNC, 0},
    {"magic FUGG", set_magic, 0, "FUGG", LACE_E_MAGIC, 0},
    {"magic GGUf", set_magic, 0, "GGUf", LACE_E_MAGIC, 0},
    {"magic GGML", set_magic, 0, "GGML", LACE_E_MAGIC, 0},
    {"magic GGJT", set_magic, 0, "GGJT", LACE_E_MAGIC, 0},
    {"version 0", set_version, 0, "", LACE_E_VERSION, 0},
    {"version 1", set_version, 1, "", LACE_E_VERSION, 0},
    {"version 4", set_version, 4, "", LACE_E_VERSION, 0},
    {"version 2^32-1", set_version, UINT32_MAX, "", LACE_E_VERSION, 0},
    {"big-endian", set_version, 3u << 24, "", LACE_E_VERSION, 0},
    {"n_kv 2^64-1", set_n_values, MAX64, "", LACE_E_COUNT, 0},
    {"n_kv 2^63", set_n_values, 1ull << 63, "", LACE_E_COUNT, 0},
    {"n_kv of 2^60, wraps when multiplied", set_n_values, 1ull << 60, "", LACE_E_COUNT, 0},
    {"n_tensors 2^64-1", set_n_tensors, MAX64, "", LACE_E_COUNT, 0},
    {"n_tensors 2^63", set_n_tensors, 1ull << 63, "", LACE_E_COUNT, 0},
    {"n_tensors one more than there are", one_tensor_more, 1, "", LACE_E_STRLEN, LACE_E_NAME},
    {"n_kv one more than there are", one_value_more, 1, "", LACE_E_TYPE, LACE_E_STRLEN},
    {"key length 2^64-1", set_key_length, MAX64, "", LACE_E_STRLEN, 0},
    {"key length 2^63", set_key_length, 1ull << 63, "", LACE_E_STRLEN, 0},
    {"key length rem+1", key_longer_than_the_rest, 1, "", LACE_E_STRLEN, 0},
    {"empty key", set_key_length, 0, "", LACE_E_NAME, 0},
    {"key with NUL", add_key, 3, "a\0b", LACE_E_NAME, 0},
    {"key with a newline", add_key, 0, "a\nb", LACE_E_NAME, 0},
    {"key not UTF-8", add_key, 0, "a\xFF", LACE_E_NAME, 0},
    {"key overlong UTF-8", add_key, 0, "a\xC0\x80", LACE_E_NAME, 0},
    {"key of 65,535 bytes", add_long_key, 65535, "", LACE_OK, 0},
    {"key of 65,536 bytes", add_long_key, 65536, "", LACE_E_NAME, 0},
    {"duplicate key", add_key, 0, "general.name", LACE_E_DUP, 0},
    {"key that is a NUL alias", add_key, 13, "general.name\0", LACE_E_NAME, 0},
    {"value type 13", set_type, 13, "", LACE_E_TYPE, 0},
    {"value type 14", set_type, 14, "", LACE_E_TYPE, 0},
    {"value type 255", set_type, 255, "", LACE_E_TYPE, 0},
    {"value type 2^32-1", set_type, UINT32_MAX, "", LACE_E_TYPE, 0},
    {"string length rem+1", text_longer_than_the_rest, 1, "", LACE_E_STRLEN, 0},
    {"string length 2^64-1", set_text_length, MAX64, "", LACE_E_STRLEN, 0},
    {"token length 2^64-1", set_token_length, MAX64, "", LACE_E_STRLEN, 0},
    {"token length 2^64-8", set_token_length, MAX64 - 7, "", LACE_E_STRLEN, 0},
    {"array of arrays", add_array, GGUF_ARRAY, "", LACE_E_ARRAY, 0},
    {"array of type 13", add_array, 13, "", LACE_E_TYPE, 0},
    {"array of type 2^32-1", add_array, UINT32_MAX, "", LACE_E_TYPE, 0},
    {"array rem/4+1", array_longer_than_the_rest, 1, "", LACE_E_ARRAY, 0},
    {"array of 2^63 u8", array_alone, 1ull << 63, "", LACE_E_ARRAY, 0},
    {"array of 2^64-1 u8", array_alone, MAX64, "", LACE_E_ARRAY, 0},
    {"array of 1 u8 that is missing", array_alone, 1, "", LACE_E_ARRAY, 0},
    {"bool 2", set_bool, 2, "", LACE_OK, 0},
    {"bool 255", set_bool, 255, "", LACE_OK, 0},
    {"alignment 0", add_alignment, 0, "", LACE_E_ALIGN, 0},
    {"alignment 3", add_alignment, 3, "", LACE_E_ALIGN, 0},
    {"alignment 13", add_alignment, 13, "", LACE_E_ALIGN, 0},
    {"alignment 2^32-1", add_alignment, UINT32_MAX, "", LACE_E_ALIGN, 0},
    {"alignment 2^31, past the end", add_alignment, 1u << 31, "", LACE_E_OFFSET, 0},
    {"alignment as i32", add_alignment_of_type, GGUF_I32, "", LACE_E_META, 0},
    {"alignment as u8", add_alignment_of_type, GGUF_U8, "", LACE_E_META, 0},
    {"alignment as u64", add_alignment_of_type, GGUF_U64, "", LACE_E_META, 0},
    {"alignment as f32", add_alignment_of_type, GGUF_F32, "", LACE_E_META, 0},
    {"alignment as string", add_alignment_of_type, GGUF_STRING, "", LACE_E_META, 0},
    {"alignment as array", add_alignment_of_type, GGUF_ARRAY, "", LACE_E_META, 0},
    {"empty tensor name", add_tensor, 0, "", LACE_E_NAME, 0},
    {"tensor name of 64 bytes", add_tensor, 64, "", LACE_E_NAME, 0},
    {"tensor name of 64 KiB", add_tensor, 65536, "", LACE_E_NAME, 0},
    {"tensor name with escape", add_tensor, 1, "\x1b[2J", LACE_E_NAME, 0},
    {"duplicate tensor name", add_tensor, 0, TENSOR, LACE_E_DUP, 0},
    {"n_dims 5", set_n_dims, 5, "", LACE_E_DIMS, 0},
    {"n_dims 2^32-1", set_n_dims, UINT32_MAX, "", LACE_E_DIMS, 0},
    {"n_dims 0", set_n_dims, 0, "", LACE_E_DIMS, 0},
    {"dim 0 is 0", set_dim_0, 0, "", LACE_E_DIMS, 0},
    {"dim 1 is 0", set_dim_1, 0, "", LACE_E_DIMS, 0},
    {"dim 0 is -1", set_dim_0, MAX64, "", LACE_E_DIMS, 0},
    {"dim 1 is -1", set_dim_1, MAX64, "", LACE_E_DIMS, 0},
    {"2^32 x 2^32", set_both_dims, 1ull << 32, "", LACE_E_OVERFLOW, 0},
    {"2^31 x 2^31, bytes wrap", set_both_dims, 1ull << 31, "", LACE_E_OVERFLOW, 0},
    {"2^24 x 2^24, only too large", set_both_dims, 1ull << 24, "", LACE_E_OFFSET, 0},
    {"Q4_K rows of 255", set_q4_k, 255, "", LACE_E_DIMS, 0},
    {"tensor type 4, removed", set_tensor_type, 4, "", LACE_E_TENSOR_TYPE, 0},
    {"tensor type 2^31", set_tensor_type, 1u << 31, "", LACE_E_TENSOR_TYPE, 0},
    {"tensor type -1", set_tensor_type, UINT32_MAX, "", LACE_E_TENSOR_TYPE, 0},
    {"offset 2^64-1", set_offset, MAX64, "", LACE_E_OFFSET, 0},
    {"offset 2^64-32, wraps", set_offset, MAX64 - 31, "", LACE_E_OFFSET, 0},
    {"last tensor one byte past the end", cut_last_tensor, 1, "", LACE_E_OFFSET, 0},
    {"tensor on another", set_offset, 0, "", LACE_E_OVERLAP, 0},
    {"offset not aligned", set_offset, 1, "", LACE_E_ALIGN, 0},
    {"1 MiB after the end", add_tail, 1 << 20, "", LACE_OK, 0},
    {"last padding missing", cut_last_tensor, 0, "", LACE_OK, 0},
    {"two files in one", add_itself, 0, "", LACE_OK, 0},
};
/* clang-format on */

static void run_fault(void *arg)
{
    const fault *f = arg;
    buf b;
    lace_error err = {0};
    buf_init(&b, 1 << 22);
    CHECK(buf_append(&b, bad_seed.data, bad_seed.size) == LACE_OK);
    f->fn(&b, f->n, f->s);
    double start = bad_cpu_ms();
    lace_status status = bad_load_exact(b.data, b.size, &err);
    CHECK(bad_cpu_ms() - start <= 100);
    if (!CHECK(status == f->expected || (f->or_else && status == f->or_else)))
        tap_note("got %s: %s", lace_status_name(status), err.text);
    if (status != LACE_OK && !CHECK(bad_message_is_good(&err, status)))
        tap_note("message: %s", err.text);
    buf_deinit(&b);
}

int main(void)
{
    if (!bad_seed_create())
        return 1;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        tap_case_arg(faults[i].id, run_fault, (void *)&faults[i]);
    bad_seed_free();
    return tap_end();
}
