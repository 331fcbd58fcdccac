/* Reading JSON strictly and within bounds. */
#include "base/json_read.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/*
 * What values take in jansson 2.14, measured with its default heap. Every value counts once: at the
 * bracket or comma in front of it. Containers, texts and names of members come on top; so do the
 * letters of texts, as the length of the whole.
 */
enum { VALUE_BYTES = 40, OBJECT_BYTES = 192, ARRAY_BYTES = 96, TEXT_BYTES = 48, MEMBER_BYTES = 32 };

/*
 * When memory runs out, jansson 2.14 fails in ways that its caller cannot see: a token's buffer
 * that cannot grow loses characters without a word. What follows is an abort (a character that was
 * to be taken back is not there), or a search for a closing quote beyond the end. Hence three rules
 * while it reads: after the first failure every further allocation fails, so that the token is
 * dropped before it is looked at; texts with control characters are refused before (jansson takes
 * those back); and the buffer can always grow to the length of a number, from the spare slots
 * below. A value that takes a slot before the buffer does is the last one that is made, so a few
 * are enough.
 */
enum {
    BARE_MAX = 100,                          /* bytes of a number or a word */
    N_SIZES = 3,                             /* the buffer has 16 bytes, then 32, 64, 128 */
    N_SLOTS = 4,                             /* of each size */
    SPARE_BYTES = N_SLOTS * (32 + 64 + 128), /* the slots, by their size */
};

typedef struct reader {
    bool is_reading;
    bool is_out_of_memory;
    bool has_failed; /* an allocation for a value, while nothing was read */
    size_t n_used[N_SIZES];
    _Alignas(16) char spare[SPARE_BYTES];
} reader;

static _Thread_local reader own;

static void *take_slot(size_t n_bytes)
{
    size_t at = 0, size = 32;
    for (int i = 0; i < N_SIZES; i++, at += N_SLOTS * size, size *= 2)
        if (size == n_bytes && own.n_used[i] < N_SLOTS)
            return own.spare + at + size * own.n_used[i]++;
    return NULL;
}

static void *allocate(size_t n_bytes)
{
    if (!own.is_reading) {
        void *made = mem_alloc(n_bytes);
        own.has_failed |= !made;
        return made;
    }
    void *p = own.is_out_of_memory ? NULL : mem_alloc(n_bytes);
    own.is_out_of_memory = !p;
    return p ? p : take_slot(n_bytes);
}

static void release(void *p)
{
    uintptr_t at = (uintptr_t)p, spare = (uintptr_t)own.spare;
    if (at < spare || at >= spare + SPARE_BYTES)
        mem_free(p);
}

static void use_our_heap(void)
{
    json_set_alloc_funcs(allocate, release);
}

bool json_heap_failed(void)
{
    bool has_failed = own.has_failed;
    own.has_failed = false;
    return has_failed;
}

/* jansson's reader, with the rules above. NULL and *is_nomem: out of memory. */
static json_t *load(span bytes, size_t flags, bool *is_nomem, json_error_t *failure)
{
    memset(own.n_used, 0, sizeof own.n_used);
    own.is_out_of_memory = false;
    own.is_reading = true;
    json_t *value =
        json_loadb((const char *)bytes.data, bytes.size, JSON_REJECT_DUPLICATES | flags, failure);
    if (own.is_out_of_memory) {
        json_decref(value);
        value = NULL;
    }
    *is_nomem = own.is_out_of_memory;
    own.is_reading = false;
    return value;
}

/* Part of a number, or of a word: true, false, null. */
static bool is_bare(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '+';
}

/* "JSON, at byte 9: ...": whoever knows the file or the field puts its name in front. */
__attribute__((format(printf, 4, 5))) static lace_status
fail_at(lace_error *err, lace_status status, uint64_t offset, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(err, status, "JSON, at byte %" PRIu64 ": %s", offset, what);
}

/*
 * Depth and memory, by counting brackets and separators outside of strings, and what jansson cannot
 * be trusted with. It need not know what else is malformed: for anything that parses, it is right.
 */
static lace_status check_cost(span bytes, uint64_t offset, uint64_t max_memory, lace_error *err)
{
    size_t depth = 0, n_bare = 0;
    uint64_t cost = bytes.size;
    bool is_text = false;
    for (size_t i = 0; i < bytes.size; i++) {
        uint8_t c = bytes.data[i];
        if (is_text) {
            if (c < ' ')
                return fail_at(err, LACE_E_JSON, offset + i, "control character 0x%x in a text",
                               (unsigned)c);
            if (c == '\\')
                i++;
            else if (c == '"')
                is_text = false;
            continue;
        }
        n_bare = is_bare(c) ? n_bare + 1 : 0;
        if (n_bare > BARE_MAX)
            return fail_at(err, LACE_E_OVERFLOW, offset + i,
                           "has a number or a word of more than %d characters", BARE_MAX);
        switch (c) {
        case '"':
            is_text = true;
            cost += TEXT_BYTES;
            break;
        case '{':
        case '[':
            if (++depth > JSON_READ_MAX_DEPTH)
                return fail_at(err, LACE_E_LIMIT, offset + i, "nested deeper than %d",
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
        return fail_at(err, LACE_E_LIMIT, offset, "has more values than fit into %d MiB",
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
    if (bytes.size == 0) /* jansson would call it wrong arguments */
        return fail_at(err, LACE_E_JSON, offset, "the text is empty");
    for (size_t i = 0; i < bytes.size;) {
        uint32_t code;
        int n = utf8_decode((const char *)bytes.data + i, bytes.size - i, &code);
        /* U+FFFD that is really there has three bytes; malformed text gives it with fewer or
         * others. */
        if (code == UTF8_REPLACEMENT && (n != 3 || memcmp(bytes.data + i, "\xEF\xBF\xBD", 3) != 0))
            return fail_at(err, LACE_E_UTF8, offset + i, "the text is not UTF-8");
        i += (size_t)n;
    }
    TRY(check_cost(bytes, offset, max_memory, err));
    json_error_t failure;
    bool is_nomem;
    json_t *value = load(bytes, flags, &is_nomem, &failure);
    if (is_nomem)
        return error_nomem(err, "JSON");
    size_t at = failure.position > 0 ? (size_t)failure.position : 0;
    if (!value)
        return fail_at(err, status_of(&failure), offset + at, "%s", failure.text);
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

json_t *json_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const char *json_type_word(const json_t *object)
{
    const char *word = json_string_value(json_object_get(object, "type"));
    return word ? word : "";
}

const char *json_kind(const json_t *value)
{
    if (!value)
        return "missing";
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
