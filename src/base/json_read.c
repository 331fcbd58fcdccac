/* Reading JSON strictly and within bounds. */
#include "base/json_read.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/*
 * What values take in jansson 2.14, measured with its default heap. Every value counts once: at the
 * bracket or comma in front of it. Containers, texts and names of members come on top; so do the
 * letters of texts, as the length of the whole.
 */
enum { VALUE_BYTES = 40, OBJECT_BYTES = 192, ARRAY_BYTES = 96, TEXT_BYTES = 48, MEMBER_BYTES = 32 };

/* jansson reports a failed allocation as a mistake in the text, or not at all. */
static _Thread_local bool is_out_of_memory;

static void *allocate(size_t n_bytes)
{
    void *p = mem_alloc(n_bytes);
    is_out_of_memory = is_out_of_memory || !p;
    return p;
}

static void use_our_heap(void)
{
    json_set_alloc_funcs(allocate, mem_free);
}

/*
 * Depth and memory, by counting brackets and separators outside of strings. It need not know what
 * is malformed: for anything that parses, it is right.
 */
static lace_status check_cost(span bytes, uint64_t offset, uint64_t max_memory, lace_error *err)
{
    size_t depth = 0;
    uint64_t cost = bytes.size;
    bool is_text = false;
    for (size_t i = 0; i < bytes.size; i++) {
        uint8_t c = bytes.data[i];
        if (is_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                is_text = false;
            continue;
        }
        switch (c) {
        case '"':
            is_text = true;
            cost += TEXT_BYTES;
            break;
        case '{':
        case '[':
            if (++depth > JSON_READ_MAX_DEPTH)
                return error_at(err, LACE_E_LIMIT, offset + i, "JSON nested deeper than %d",
                                JSON_READ_MAX_DEPTH);
            cost += (c == '{' ? OBJECT_BYTES : ARRAY_BYTES) + VALUE_BYTES;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ':':
            cost += MEMBER_BYTES;
            break;
        case ',':
            cost += VALUE_BYTES;
            break;
        default:
            break;
        }
    }
    if (cost - bytes.size > max_memory)
        return error_at(err, LACE_E_LIMIT, offset, "JSON of more values than fit into %d MiB",
                        (int)(max_memory >> 20));
    return LACE_OK;
}

static lace_status status_of(const json_error_t *failure)
{
    switch (json_error_code(failure)) {
    case json_error_duplicate_key:
        return LACE_E_DUP;
    case json_error_numeric_overflow:
        return LACE_E_OVERFLOW;
    case json_error_invalid_utf8:
        return LACE_E_UTF8;
    case json_error_stack_overflow:
        return LACE_E_LIMIT;
    default:
        return LACE_E_JSON;
    }
}

static lace_status read_with(span bytes, uint64_t offset, uint64_t max_memory, size_t flags,
                             json_t **out, lace_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_our_heap);
    *out = NULL;
    for (size_t i = 0; i < bytes.size;) {
        uint32_t code;
        int n = utf8_decode((const char *)bytes.data + i, bytes.size - i, &code);
        /* U+FFFD that is really there has three bytes; malformed text gives it with fewer or
         * others. */
        if (code == UTF8_REPLACEMENT && (n != 3 || memcmp(bytes.data + i, "\xEF\xBF\xBD", 3) != 0))
            return error_at(err, LACE_E_UTF8, offset + i, "JSON that is not UTF-8");
        i += (size_t)n;
    }
    TRY(check_cost(bytes, offset, max_memory, err));
    json_error_t failure;
    is_out_of_memory = false;
    json_t *value =
        json_loadb((const char *)bytes.data, bytes.size, JSON_REJECT_DUPLICATES | flags, &failure);
    if (is_out_of_memory) {
        json_decref(value);
        return error_nomem(err, "JSON");
    }
    size_t at = failure.position > 0 ? (size_t)failure.position : 0;
    if (!value)
        return error_at(err, status_of(&failure), offset + at, "JSON: %s", failure.text);
    *out = value;
    return LACE_OK;
}

lace_status json_read(span bytes, uint64_t offset, json_t **out, lace_error *err)
{
    return read_with(bytes, offset, JSON_READ_MAX_MEMORY, 0, out, err);
}

lace_status json_read_large(span bytes, uint64_t offset, uint64_t max_memory, json_t **out,
                            lace_error *err)
{
    return read_with(bytes, offset, max_memory, 0, out, err);
}

lace_status json_read_as_reals(span bytes, uint64_t offset, json_t **out, lace_error *err)
{
    return read_with(bytes, offset, JSON_READ_MAX_MEMORY, JSON_DECODE_INT_AS_REAL, out, err);
}

const char *json_kind(const json_t *value)
{
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}
