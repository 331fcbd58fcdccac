/*
 * Tool calls written as Python, [name(key='value', n=2), ...] or a line for each, and as Gemma has
 * it, call:name{key:<|"|>value<|"|>,n:2}.
 */
#include <string.h>

#include "base/utf8.h"
#include "chat/reply_types.h"

enum { MAX_DEPTH = 32 };

/* Reads the source; on the first pass nothing is given out, so that only whole lists are calls. */
typedef struct python_reader {
    reply_parser *p;
    text source;
    size_t at;
    bool is_valid, is_dry, is_gemma;
    const char *quote_mark; /* that stands on both sides of strings; NULL: none does */
    buf word;
    type_schema argument; /* of the value that is read now, if it is an argument */
} python_reader;

static char peek(python_reader *r)
{
    while (r->at < r->source.size && reply_is_space(r->source.data[r->at]))
        r->at++;
    return r->at < r->source.size ? r->source.data[r->at] : 0;
}

static bool is_at(python_reader *r, const char *word)
{
    size_t n = word ? strlen(word) : 0;
    if (n == 0)
        return false;
    peek(r);
    return n <= r->source.size - r->at && memcmp(r->source.data + r->at, word, n) == 0;
}

static bool accept(python_reader *r, char c)
{
    if (peek(r) != c)
        return false;
    r->at++;
    return true;
}

static void expect(python_reader *r, char c)
{
    if (!accept(r, c))
        r->is_valid = false;
}

static lace_status put(python_reader *r, const char *chars, size_t n)
{
    return r->is_dry ? LACE_OK : reply_put_args(r->p, chars, n);
}

static text read_name(python_reader *r)
{
    peek(r);
    size_t from = r->at;
    while (r->at < r->source.size) {
        char c = r->source.data[r->at];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '.' || c == '-' || c == '+'))
            break;
        r->at++;
    }
    return (text){r->source.data + from, r->at - from};
}

/* A string; where the argument can be none, what it says: days="2" is a number. */
static lace_status put_typed(python_reader *r, text chars)
{
    type_schema of = r->argument;
    if (!of.schema || reply_schema_types(of) & VALUE_STRING)
        return reply_put_string(r->p, chars);
    r->argument = (type_schema){0};
    return reply_put_value(r->p, of, chars);
}

/* The number in the 4 hexadecimal digits of an escape at the reader, or -1. */
static int32_t peek_unit(const python_reader *r)
{
    int32_t unit = 0;
    if (r->source.size - r->at < 5 || r->source.data[r->at] != 'u')
        return -1;
    for (size_t i = 1; i < 5; i++) {
        char c = r->source.data[r->at + i];
        const char *digits = "0123456789abcdef", *found = strchr(digits, c | 32);
        if (!c || !found || (c < '0' || (c > '9' && c < 'A')))
            return -1;
        unit = unit * 16 + (int32_t)(found - digits);
    }
    return unit;
}

/* What stands behind a backslash in a string. */
static lace_status read_escape(python_reader *r)
{
    static const char from[] = "ntr\\'\"/", to[] = "\n\t\r\\'\"/";
    char next = r->source.data[r->at], bytes[4];
    const char *found = next ? strchr(from, next) : NULL;
    int32_t code = peek_unit(r);
    if (found) {
        r->at++;
        return buf_append(&r->word, &to[found - from], 1);
    }
    if (code < 0)
        return buf_append(&r->word, "\\", 1);
    r->at += 5;
    if (code >= 0xD800 && code < 0xDC00 && r->at < r->source.size &&
        r->source.data[r->at] == '\\') {
        r->at++;
        int32_t low = peek_unit(r);
        bool is_pair = low >= 0xDC00 && low < 0xE000;
        code = is_pair ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
        if (is_pair)
            r->at += 5;
        else
            r->at--;
    }
    if (code >= 0xD800 && code < 0xE000)
        code = 0xFFFD;
    return buf_append(&r->word, bytes, (size_t)utf8_encode((uint32_t)code, bytes));
}

static lace_status read_string(python_reader *r)
{
    char quote = r->source.data[r->at++];
    buf_clear(&r->word);
    while (r->at < r->source.size && r->source.data[r->at] != quote) {
        char c = r->source.data[r->at++];
        TRY(c == '\\' && r->at < r->source.size ? read_escape(r) : buf_append(&r->word, &c, 1));
    }
    r->is_valid = r->is_valid && r->at < r->source.size;
    r->at += r->is_valid;
    return r->is_dry ? LACE_OK
                     : put_typed(r, (text){r->word.data ? r->word.data : "", r->word.size});
}

/* Text between marks that are single tokens, without escapes. */
static lace_status read_marked(python_reader *r)
{
    size_t n = strlen(r->quote_mark), from = r->at += n;
    while (n <= r->source.size - r->at && memcmp(r->source.data + r->at, r->quote_mark, n) != 0)
        r->at++;
    text chars = {r->source.data + from, r->at - from};
    r->is_valid = r->is_valid && n <= r->source.size - r->at;
    r->at += r->is_valid ? n : 0;
    return r->is_dry ? LACE_OK : put_typed(r, chars);
}

static lace_status read_word(python_reader *r)
{
    text word = read_name(r);
    const char *json = text_is(word, "True") || text_is(word, "true")     ? "true"
                       : text_is(word, "False") || text_is(word, "false") ? "false"
                       : text_is(word, "None") || text_is(word, "null")   ? "null"
                                                                          : NULL;
    if (json)
        return put(r, json, strlen(json));
    /* A number: digits with at most one point and one exponent, as JSON has them. */
    size_t i = word.size > 0 && word.data[0] == '-', n_digits = 0;
    bool has_point = false, has_exponent = false;
    for (; i < word.size; i++) {
        char c = word.data[i];
        if (c >= '0' && c <= '9') {
            n_digits++;
        } else if (c == '.' && !has_point && !has_exponent && n_digits > 0) {
            has_point = true;
            n_digits = 0;
        } else if ((c == 'e' || c == 'E') && !has_exponent && n_digits > 0) {
            has_exponent = true;
            n_digits = 0;
            i += i + 1 < word.size && (word.data[i + 1] == '-' || word.data[i + 1] == '+');
        } else {
            r->is_valid = false;
            return LACE_OK;
        }
    }
    r->is_valid = r->is_valid && n_digits > 0;
    return put(r, word.data, word.size);
}

static lace_status read_value(python_reader *r, int depth);

/* A key of a dict and the colon behind it. */
static lace_status read_key(python_reader *r)
{
    char c = peek(r);
    if (c == '\'' || c == '"') {
        TRY(read_string(r));
    } else if (is_at(r, r->quote_mark)) {
        TRY(read_marked(r));
    } else {
        text key = read_name(r);
        r->is_valid = r->is_valid && r->is_gemma && key.size > 0;
        if (!r->is_dry)
            TRY(reply_put_string(r->p, key));
    }
    expect(r, ':');
    return put(r, ":", 1);
}

/* A list, a tuple or a dict, from its opening bracket on. */
static lace_status read_items(python_reader *r, char close, int depth)
{
    bool is_dict = close == '}', is_first = true;
    TRY(put(r, is_dict ? "{" : "[", 1));
    while (r->is_valid && !accept(r, close)) {
        if (!is_first) {
            expect(r, ',');
            if (accept(r, close))
                break;
            TRY(put(r, ",", 1));
        }
        is_first = false;
        if (is_dict)
            TRY(read_key(r));
        TRY(read_value(r, depth + 1));
    }
    return put(r, is_dict ? "}" : "]", 1);
}

static lace_status read_value(python_reader *r, int depth)
{
    char c = peek(r);
    if (depth > MAX_DEPTH)
        r->is_valid = false;
    if (!r->is_valid)
        return LACE_OK;
    if (c == '\'' || c == '"')
        return read_string(r);
    if (is_at(r, r->quote_mark))
        return read_marked(r);
    if (c == '[' || c == '(' || c == '{') {
        r->at++;
        return read_items(r, c == '[' ? ']' : c == '(' ? ')' : '}', depth);
    }
    return read_word(r);
}

/* A value of the type in the schema: a number where a string is wanted is one without its quotes. */
static lace_status read_argument(python_reader *r, text key)
{
    char c = peek(r);
    bool is_number = (c >= '0' && c <= '9') || c == '-';
    bool is_string = c == '"' || c == '\'' || is_at(r, r->quote_mark);
    if (r->is_dry)
        return read_value(r, 0);
    type_schema of = reply_schema_member(reply_schema_of_call(r->p), key);
    if (is_number && reply_wants_string(of))
        return reply_put_string(r->p, read_name(r));
    r->argument = is_string ? of : (type_schema){0};
    lace_status status = read_value(r, 0);
    r->argument = (type_schema){0};
    return status;
}

static lace_status read_call(python_reader *r)
{
    reply_call *c = &r->p->call;
    text name = read_name(r);
    bool is_first = true;
    expect(r, r->is_gemma ? '{' : '(');
    bool is_bare = r->p->n_raw_marker == 0;
    r->is_valid = r->is_valid && name.size > 0 && (!is_bare || reply_knows_tool(r->p, name));
    if (!r->is_valid)
        return LACE_OK;
    if (!r->is_dry) {
        buf_clear(&c->name);
        TRY(buf_append(&c->name, name.data, name.size));
        TRY(reply_begin_call(r->p));
    }
    TRY(put(r, "{", 1));
    while (r->is_valid && !accept(r, r->is_gemma ? '}' : ')')) {
        if (!is_first) {
            expect(r, ',');
            TRY(put(r, ",", 1));
        }
        is_first = false;
        text key = read_name(r);
        expect(r, r->is_gemma ? ':' : '=');
        r->is_valid = r->is_valid && key.size > 0;
        if (!r->is_dry) {
            TRY(reply_put_string(r->p, key));
            TRY(put(r, ":", 1));
        }
        TRY(read_argument(r, key));
    }
    TRY(put(r, "}", 1));
    return r->is_dry ? LACE_OK : reply_end_call(r->p, true);
}

static lace_status read_calls(python_reader *r)
{
    bool is_list = accept(r, '[');
    r->is_gemma = is_at(r, "call:");
    do {
        if (r->is_gemma)
            r->at += is_at(r, "call:") ? strlen("call:") : 0;
        TRY(read_call(r));
    } while (r->is_valid && (accept(r, ',') || (!is_list && !r->is_gemma && peek(r) != 0)));
    if (is_list)
        expect(r, ']');
    if (peek(r) != 0 || r->at < r->source.size)
        r->is_valid = false;
    return LACE_OK;
}

/* One pass over a copy that nobody changes, then, if it is valid, one that gives out. */
static lace_status read_twice(reply_parser *p, text source, lace_status (*read)(python_reader *),
                              bool *is_valid)
{
    python_reader r = {
        .p = p,
        .is_valid = true,
        .is_dry = true,
        .quote_mark = p->format.calls->style == CALL_PYTHON ? p->format.calls->value_begin : NULL};
    buf copy;
    buf_init(&r.word, REPLY_MAX_HELD);
    buf_init(&copy, REPLY_MAX_HELD);
    lace_status status = buf_append(&copy, source.data, source.size);
    r.source = (text){copy.data ? copy.data : "", copy.size};
    if (status == LACE_OK)
        status = read(&r);
    *is_valid = r.is_valid;
    if (status == LACE_OK && r.is_valid) {
        r.is_dry = false;
        r.at = 0;
        status = read(&r);
    }
    buf_deinit(&copy);
    buf_deinit(&r.word);
    return status;
}

bool reply_begins_python(text source)
{
    python_reader r = {.source = source};
    if (!accept(&r, '[') || peek(&r) == 0)
        return r.at > 0;
    text name = read_name(&r);
    return name.size > 0 && (peek(&r) == 0 || peek(&r) == '(');
}

lace_status reply_read_python(reply_parser *p, text source, bool *is_valid)
{
    return read_twice(p, source, read_calls, is_valid);
}

static lace_status read_lone_value(python_reader *r)
{
    TRY(read_value(r, 0));
    r->is_valid = r->is_valid && peek(r) == 0 && r->at >= r->source.size;
    return LACE_OK;
}

lace_status reply_put_python(reply_parser *p, text value, bool *is_valid)
{
    return read_twice(p, value, read_lone_value, is_valid);
}
