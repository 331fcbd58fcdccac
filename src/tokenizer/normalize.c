/* Unicode normal forms and classes of characters, by utf8proc. */
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

/*
 * Marks in a row after which the text is cut: sorting them takes quadratic time. Unicode's
 * Stream-Safe Text Format cuts at 30; no real text gets near.
 */
enum { MAX_MARKS = 64 };

size_t normalize_spaces(text input, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < input.size;) {
        if (input.size - i >= 3 && memcmp(input.data + i, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = input.data[i++];
        }
    }
    return n;
}

bool code_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool code_is_word(uint32_t code)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO) || c == UTF8PROC_CATEGORY_PC;
}

/* How much of the text can be normalized on its own: all of it, but for absurd runs of marks. */
static size_t chunk_size(text input)
{
    size_t i = 0;
    for (int n_marks = 0; i < input.size && n_marks < MAX_MARKS;) {
        uint32_t code;
        i += (size_t)utf8_decode(input.data + i, input.size - i, &code);
        bool is_mark =
            code >= 0x300 && utf8proc_get_property((utf8proc_int32_t)code)->combining_class != 0;
        n_marks = is_mark ? n_marks + 1 : 0;
    }
    return i;
}

static lace_status append_chunk(buf *out, text chunk, utf8proc_option_t options)
{
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)chunk.data;
    utf8proc_ssize_t n = utf8proc_decompose(bytes, (utf8proc_ssize_t)chunk.size, NULL, 0, options);
    if (n < 0)
        return LACE_E_NOMEM;
    /* reencode writes UTF-8 over the code points, and a NUL behind it. */
    utf8proc_int32_t *codes = mem_calloc((size_t)n + 1, sizeof *codes);
    if (!codes)
        return LACE_E_NOMEM;
    n = utf8proc_decompose(bytes, (utf8proc_ssize_t)chunk.size, codes, n, options);
    if (n >= 0)
        n = utf8proc_reencode(codes, n, options);
    lace_status status = n >= 0 ? buf_append(out, codes, (size_t)n) : LACE_E_NOMEM;
    mem_free(codes);
    return status;
}

lace_status normalize_text(encoding *e, text *input, lace_error *err)
{
    static const utf8proc_option_t options_of[] = {
        [FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    if (e->t->rules.form == FORM_NONE)
        return LACE_OK;
    buf_clear(&e->form);
    for (text rest = *input; rest.size > 0;) {
        size_t n = chunk_size(rest);
        if (append_chunk(&e->form, (text){rest.data, n}, options_of[e->t->rules.form]) != LACE_OK)
            return error_nomem(err, "the normal form of a text");
        rest = (text){rest.data + n, rest.size - n};
    }
    *input = (text){e->form.data, e->form.size};
    return LACE_OK;
}
