/*
 * The lexer of templates: text, tags and what is inside tags.
 *
 * White space around tags goes as Jinja2 does it with trim_blocks and lstrip_blocks: the end of
 * line after a block or comment goes, and so do blanks before it if nothing else is on the line;
 * "-" takes all white space on its side, "+" none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja_ast.h"

void jinja_lex_init(lexer *lex, text source, arena *heap, lace_error *err)
{
    *lex = (lexer){.source = source,
                   .line = 1,
                   .tag = TOK_DATA,
                   .is_line_start = true,
                   .heap = heap,
                   .err = err};
}

static lace_status fail(lexer *lex, const char *what)
{
    return error_set(lex->err, LACE_E_TEMPLATE, "line %u: %s", lex->line, what);
}

/* The byte `ahead` of the current one, or 0 past the end. */
static char peek(const lexer *lex, size_t ahead)
{
    return ahead < lex->source.size - lex->at ? lex->source.data[lex->at + ahead] : 0;
}

static bool starts_with(const lexer *lex, size_t at, const char *word)
{
    size_t n = strlen(word);
    return n <= lex->source.size - at && memcmp(lex->source.data + at, word, n) == 0;
}

/* Go on by n bytes, counting lines. */
static void skip(lexer *lex, size_t n)
{
    for (size_t end = lex->at + n; lex->at < end; lex->at++)
        lex->line += lex->source.data[lex->at] == '\n';
}

/* The length of the white space character at an offset, or 0. */
static size_t space_at(const lexer *lex, size_t at)
{
    uint32_t code;
    if (at >= lex->source.size)
        return 0;
    size_t n = (size_t)utf8_decode(lex->source.data + at, lex->source.size - at, &code);
    return chars_is_space(code) ? n : 0;
}

static size_t skip_spaces_from(const lexer *lex, size_t at)
{
    for (size_t n; (n = space_at(lex, at)) > 0;)
        at += n;
    return at;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* The end of a tag has been read: what follows goes along, as its sign says. */
static void end_tag(lexer *lex, char sign, bool is_block)
{
    size_t from = lex->at;
    if (sign == '-')
        skip(lex, skip_spaces_from(lex, lex->at) - lex->at);
    else if (sign != '+' && is_block && peek(lex, 0) == '\n')
        skip(lex, 1);
    lex->is_line_start = lex->at > from && lex->source.data[lex->at - 1] == '\n';
}

/* The text before a tag, without the white space that the tag takes away. */
static text before_tag(text data, char sign, bool is_variable, bool is_line_start)
{
    if (sign == '-')
        return chars_strip(data, false, true);
    if (sign == '+' || is_variable)
        return data;
    size_t line = data.size;
    while (line > 0 && data.data[line - 1] != '\n')
        line--;
    text last = {data.data + line, data.size - line};
    if ((line > 0 || is_line_start) && chars_strip(last, true, true).size == 0)
        data.size = line;
    return data;
}

/* At "{#": to behind its "#}". */
static lace_status skip_comment(lexer *lex)
{
    size_t begin = lex->at + (peek(lex, 2) == '-' || peek(lex, 2) == '+' ? 3 : 2), end = begin;
    while (end < lex->source.size && !starts_with(lex, end, "#}"))
        end++;
    if (end >= lex->source.size)
        return fail(lex, "a comment has no end: expected '#}'");
    char sign = end > begin ? lex->source.data[end - 1] : 0;
    skip(lex, end + 2 - lex->at);
    end_tag(lex, sign, true);
    return LACE_OK;
}

/* Where "{%- word -%}" at an offset ends, or 0; *sign is the sign at its end. */
static size_t match_word_tag(const lexer *lex, size_t at, const char *word, char *sign)
{
    if (!starts_with(lex, at, "{%"))
        return 0;
    at += 2;
    if (at < lex->source.size && (lex->source.data[at] == '-' || lex->source.data[at] == '+'))
        at++;
    at = skip_spaces_from(lex, at);
    if (!starts_with(lex, at, word))
        return 0;
    at = skip_spaces_from(lex, at + strlen(word));
    *sign = at < lex->source.size ? lex->source.data[at] : 0;
    at += *sign == '-' || *sign == '+';
    return starts_with(lex, at, "%}") ? at + 2 : 0;
}

/* At "{% raw %}", which ends at `begin`: its text, up to "{% endraw %}". */
static lace_status read_raw(lexer *lex, size_t begin, char begin_sign, token *out)
{
    char sign = 0;
    if (begin_sign == '-')
        begin = skip_spaces_from(lex, begin);
    for (size_t at = begin; at < lex->source.size; at++) {
        size_t end = match_word_tag(lex, at, "endraw", &sign);
        if (end == 0)
            continue;
        text data = {lex->source.data + begin, at - begin};
        out->kind = TOK_DATA;
        out->line = lex->line;
        out->chars = before_tag(data, lex->source.data[at + 2], false, false);
        skip(lex, end - lex->at);
        end_tag(lex, sign, true);
        return LACE_OK;
    }
    return fail(lex, "a raw block has no end: expected '{% endraw %}'");
}

/* Text up to the next tag; out->kind is TOK_END if there is none before the tag (or the end). */
static lace_status read_text(lexer *lex, token *out)
{
    size_t from = lex->at, at = from;
    while (at < lex->source.size) {
        const char *brace = memchr(lex->source.data + at, '{', lex->source.size - at);
        at = brace ? (size_t)(brace - lex->source.data) : lex->source.size;
        char second = at + 1 < lex->source.size ? lex->source.data[at + 1] : 0;
        if (second == '{' || second == '%' || second == '#' || at == lex->source.size)
            break;
        at++;
    }
    text data = {lex->source.data + from, at - from};
    *out = (token){.kind = TOK_DATA, .line = lex->line, .chars = data};
    skip(lex, at - from);
    if (at < lex->source.size) {
        char kind = peek(lex, 1), sign = peek(lex, 2), raw_sign = 0;
        out->chars = before_tag(data, sign, kind == '{', lex->is_line_start);
        lex->is_line_start = false;
        size_t raw = kind == '%' ? match_word_tag(lex, at, "raw", &raw_sign) : 0;
        if (out->chars.size > 0 && (kind == '#' || raw))
            return LACE_OK; /* the rest in the next call, which finds no text before it */
        if (kind == '#') {
            TRY(skip_comment(lex));
        } else if (raw && raw_sign != '+') {
            return read_raw(lex, raw, raw_sign, out);
        } else {
            lex->next_tag = kind == '{' ? TOK_VARIABLE_BEGIN : TOK_BLOCK_BEGIN;
            skip(lex, sign == '-' || sign == '+' ? 3 : 2);
        }
    }
    if (out->chars.size == 0)
        out->kind = TOK_END;
    return LACE_OK;
}

/* ---- Inside tags ----------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static size_t digits_at(const lexer *lex, size_t ahead)
{
    size_t n = 0;
    while (is_digit(peek(lex, ahead + n)) || (n > 0 && peek(lex, ahead + n) == '_'))
        n++;
    return n;
}

static lace_status read_number(lexer *lex, token *out)
{
    int base = 10;
    size_t n = 0, skipped = 0;
    bool is_float = false;
    char second = (char)(peek(lex, 1) | 0x20);
    if (peek(lex, 0) == '0' && (second == 'x' || second == 'o' || second == 'b')) {
        base = second == 'x' ? 16 : second == 'o' ? 8 : 2;
        skipped = 2;
        while (is_name_char(peek(lex, skipped + n)))
            n++;
    } else {
        n = digits_at(lex, 0);
        if (peek(lex, n) == '.' && is_digit(peek(lex, n + 1)))
            is_float = true, n += 1 + digits_at(lex, n + 1);
        if ((peek(lex, n) | 0x20) == 'e') {
            size_t sign = peek(lex, n + 1) == '+' || peek(lex, n + 1) == '-';
            size_t digits = digits_at(lex, n + 1 + sign);
            is_float = is_float || digits > 0;
            n += digits > 0 ? 1 + sign + digits : 0;
        }
    }
    char digits[64], *end;
    size_t n_digits = 0;
    for (size_t i = 0; i < n; i++) {
        char c = peek(lex, skipped + i);
        if (n_digits == sizeof digits - 1)
            return fail(lex, "a number has too many digits");
        if (c != '_')
            digits[n_digits++] = c;
    }
    digits[n_digits] = 0;
    out->kind = is_float ? TOK_FLOAT : TOK_INT;
    out->chars = (text){lex->source.data + lex->at, skipped + n};
    errno = 0;
    if (is_float)
        out->number = strtod(digits, &end);
    else
        out->integer = strtoll(digits, &end, base);
    if (n_digits == 0 || *end != 0 || (!is_float && errno == ERANGE))
        return fail(lex, is_float ? "this number is malformed"
                                  : "this integer does not fit into 64 bits");
    skip(lex, skipped + n);
    return LACE_OK;
}

/* Up to n digits of a base; returns how many there were. */
static size_t read_code(text raw, size_t at, size_t n, uint32_t base, uint32_t *out)
{
    size_t i = 0;
    *out = 0;
    for (; i < n && at + i < raw.size; i++) {
        char c = raw.data[at + i], low = (char)(c | 0x20);
        uint32_t digit = is_digit(c)                ? (uint32_t)(c - '0')
                         : low >= 'a' && low <= 'f' ? (uint32_t)(low - 'a' + 10)
                                                    : 99;
        if (digit >= base)
            break;
        *out = *out * base + digit;
    }
    return i;
}

/* The text of a string literal's inside, with its escapes resolved. */
static lace_status unescape(lexer *lex, text raw, text *out)
{
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    /* No escape is longer than what it is written as. */
    char *chars = arena_alloc(lex->heap, raw.size + 4, 1);
    size_t n = 0, i = 0;
    if (!chars)
        return raw.size + 64 > lex->heap->max - lex->heap->used
                   ? error_set(lex->err, LACE_E_LIMIT, "line %u: the template is too large",
                               lex->line)
                   : error_nomem(lex->err, "a template");
    while (i < raw.size) {
        char c = raw.data[i++];
        if (c != '\\' || i == raw.size) {
            chars[n++] = c;
            continue;
        }
        c = raw.data[i];
        const char *simple = c ? strchr(from, c) : NULL;
        size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, got = 0;
        uint32_t code = 0;
        if (simple) {
            chars[n++] = to[simple - from];
            i++;
        } else if (c == '\n') {
            i++;
        } else if (wanted > 0 || (c >= '0' && c <= '7')) {
            if (wanted > 0)
                got = read_code(raw, ++i, wanted, 16, &code);
            else
                got = read_code(raw, i, 3, 8, &code);
            if (got < wanted || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
                return fail(lex, "a string has a malformed escape");
            i += got;
            n += (size_t)utf8_encode(code, chars + n);
        } else {
            chars[n++] = '\\';
        }
    }
    *out = (text){chars, n};
    return LACE_OK;
}

static lace_status read_string(lexer *lex, token *out)
{
    char quote = peek(lex, 0);
    size_t n = 1;
    bool has_escape = false;
    for (;; n++) {
        if (n >= lex->source.size - lex->at)
            return fail(lex, "a string has no end");
        char c = peek(lex, n);
        if (c == quote)
            break;
        if (c == '\\') {
            has_escape = true;
            n++;
        }
    }
    out->kind = TOK_STRING;
    out->chars = (text){lex->source.data + lex->at + 1, n - 1};
    if (has_escape)
        TRY(unescape(lex, out->chars, &out->chars));
    skip(lex, n + 1);
    return LACE_OK;
}

static lace_status read_operator(lexer *lex, token *out)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = peek(lex, 0);
    size_t n = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (starts_with(lex, lex->at, pairs[i]))
            n = 2;
    if (n == 0 && c != 0 && strchr("+-/*%~[](){}<>=.:|,;", c))
        n = 1;
    if (n == 0)
        return error_set(lex->err, LACE_E_TEMPLATE, "line %u: unexpected character '%c'", lex->line,
                         c);
    if (c == '(' || c == '[' || c == '{') {
        if (lex->n_brackets == JINJA_MAX_NESTING)
            return fail(lex, "brackets are nested too deeply");
        lex->brackets[lex->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (lex->n_brackets == 0 || lex->brackets[lex->n_brackets - 1] != c)
            return error_set(lex->err, LACE_E_TEMPLATE, "line %u: unexpected '%c'", lex->line, c);
        lex->n_brackets--;
    }
    out->kind = TOK_OP;
    out->op = OP(c, n == 2 ? peek(lex, 1) : 0);
    out->chars = (text){lex->source.data + lex->at, n};
    skip(lex, n);
    return LACE_OK;
}

/* Whether the tag ends here; "}}" inside of brackets is two brackets. */
static bool read_tag_end(lexer *lex, token *out)
{
    bool is_block = lex->tag == TOK_BLOCK_BEGIN;
    char c = peek(lex, 0), sign = c == '-' || (c == '+' && is_block) ? c : 0;
    if (lex->n_brackets > 0 || !starts_with(lex, lex->at + (sign != 0), is_block ? "%}" : "}}"))
        return false;
    out->kind = is_block ? TOK_BLOCK_END : TOK_VARIABLE_END;
    out->chars = text_of(is_block ? "%}" : "}}");
    skip(lex, 2 + (sign != 0));
    end_tag(lex, sign, is_block);
    lex->tag = TOK_DATA;
    return true;
}

static lace_status read_in_tag(lexer *lex, token *out)
{
    skip(lex, skip_spaces_from(lex, lex->at) - lex->at);
    *out = (token){.line = lex->line};
    if (lex->at == lex->source.size)
        return fail(lex, lex->tag == TOK_BLOCK_BEGIN ? "the template ends inside '{%'"
                                                     : "the template ends inside '{{'");
    if (read_tag_end(lex, out))
        return LACE_OK;
    char c = peek(lex, 0);
    if (is_digit(c))
        return read_number(lex, out);
    if (c == '"' || c == '\'')
        return read_string(lex, out);
    if (!is_name_char(c))
        return read_operator(lex, out);
    size_t n = 1;
    while (is_name_char(peek(lex, n)))
        n++;
    out->kind = TOK_NAME;
    out->chars = (text){lex->source.data + lex->at, n};
    lex->at += n;
    return LACE_OK;
}

lace_status jinja_lex_next(lexer *lex, token *out)
{
    *out = (token){.kind = TOK_END, .line = lex->line, .chars = text_of("the end")};
    if (lex->next_tag != TOK_END) {
        out->kind = lex->tag = lex->next_tag;
        out->chars = text_of(lex->tag == TOK_BLOCK_BEGIN ? "{%" : "{{");
        lex->next_tag = TOK_END;
        return LACE_OK;
    }
    if (lex->tag != TOK_DATA)
        return read_in_tag(lex, out);
    while (lex->at < lex->source.size) {
        TRY(read_text(lex, out));
        if (out->kind != TOK_END)
            return LACE_OK;
        if (lex->next_tag != TOK_END)
            return jinja_lex_next(lex, out);
    }
    out->chars = text_of("the end");
    return LACE_OK;
}
