/* Text as it comes, in lines that end between words. */
#include "cli/word_wrap.h"

#include "base/utf8.h"

enum { MAX_WORD = 1 << 16, TAB = 8 };

void word_wrap_init(word_wrap *w, int n_columns)
{
    *w = (word_wrap){.n_columns = n_columns};
    buf_init(&w->word, MAX_WORD);
}

void word_wrap_deinit(word_wrap *w)
{
    buf_deinit(&w->word);
}

typedef struct range {
    uint32_t first, last;
} range;

static bool is_in(uint32_t code, const range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

/* Columns of a character, as terminals have them: 2 for those of East Asia and for pictures. */
static int width_of(uint32_t code)
{
    static const range none[] = {
        {0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0x1f3fb, 0x1f3ff}};
    static const range wide[] = {{0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                 {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                 {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff},
                                 {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};
    if (code < 0x300)
        return 1;
    if (is_in(code, none, sizeof none / sizeof *none))
        return 0;
    return is_in(code, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

/* The word that is complete, on this line or on the next one. */
static lace_status put_word(word_wrap *w, buf *out)
{
    if (w->word.size == 0)
        return LACE_OK;
    if (w->column > 0 && w->column + w->n_spaces + w->n_width > w->n_columns) {
        TRY(buf_append(out, "\n", 1));
        w->column = w->n_spaces = 0;
    }
    for (; w->n_spaces > 0; w->n_spaces--, w->column++)
        TRY(buf_append(out, " ", 1));
    TRY(buf_append(out, w->word.data, w->word.size));
    w->column += w->n_width;
    while (w->column > w->n_columns) /* a word may be longer than a line */
        w->column -= w->n_columns;
    w->n_width = 0;
    buf_clear(&w->word);
    return LACE_OK;
}

static lace_status end_line(word_wrap *w, buf *out)
{
    TRY(put_word(w, out));
    if (w->n_ticks >= 3)
        w->is_code = !w->is_code;
    w->column = w->n_spaces = w->n_ticks = 0;
    return buf_append(out, "\n", 1);
}

/* Three of them at the beginning of a line, or more, begin and end code. */
static void count_tick(word_wrap *w, uint32_t code)
{
    if (code == '`' && w->n_ticks >= 0)
        w->n_ticks++;
    else if (code != ' ' && w->n_ticks < 3)
        w->n_ticks = -1;
}

lace_status word_wrap_push(word_wrap *w, const char *chars, size_t n, buf *out)
{
    if (w->n_columns <= 0)
        return buf_append(out, chars, n);
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t size = (size_t)utf8_decode(chars + i, n - i, &code);
        int width = width_of(code);
        if (code == '\n') {
            TRY(end_line(w, out));
        } else if (w->is_code) {
            TRY(buf_append(out, chars + i, size));
            count_tick(w, code);
        } else if (code == ' ' || code == '\t') {
            TRY(put_word(w, out));
            w->n_spaces += code == ' ' ? 1 : TAB - (w->column + w->n_spaces) % TAB;
        } else {
            /* Where words have no spaces between them, a line may end before any character. */
            if (width == 2 || w->word.size + size > MAX_WORD)
                TRY(put_word(w, out));
            TRY(buf_append(&w->word, chars + i, size));
            w->n_width += width;
            if (width == 2)
                TRY(put_word(w, out));
            count_tick(w, code);
        }
        i += size;
    }
    return LACE_OK;
}

lace_status word_wrap_end(word_wrap *w, buf *out)
{
    lace_status status = w->n_columns > 0 ? put_word(w, out) : LACE_OK;
    w->column = w->n_spaces = w->n_width = w->n_ticks = 0;
    w->is_code = false;
    buf_clear(&w->word);
    return status;
}
