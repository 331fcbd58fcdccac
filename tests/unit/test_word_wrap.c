/* Text in lines that end between words: what is shown is the same, however it comes in pieces. */
#include <string.h>

#include "cli/word_wrap.h"
#include "tap.h"

/* The text in pieces of so many bytes, which no character of it is cut by. */
static const char *wrapped(const char *text, int n_columns, size_t n_piece)
{
    static char shown[4096];
    word_wrap w;
    buf out;
    size_t n = strlen(text);
    word_wrap_init(&w, n_columns);
    buf_init(&out, sizeof shown - 1);
    for (size_t i = 0; i < n; i += n_piece)
        CHECK(word_wrap_push(&w, text + i, n - i < n_piece ? n - i : n_piece, &out) == LACE_OK);
    CHECK(word_wrap_end(&w, &out) == LACE_OK);
    memcpy(shown, out.data, out.size);
    shown[out.size] = 0;
    buf_deinit(&out);
    word_wrap_deinit(&w);
    return shown;
}

static void lines_end_between_words(void)
{
    for (size_t n = 1; n < 30; n++) {
        CHECK(strcmp(wrapped("the king had three sons", 8, n), "the king\nhad\nthree\nsons") == 0);
        CHECK(strcmp(wrapped("the king is", 8, n), "the king\nis") == 0); /* a full line */
        CHECK(strcmp(wrapped("a  b\n\n  c d", 10, n), "a  b\n\n  c d") == 0);
        CHECK(strcmp(wrapped("ab incomprehensible cd", 6, n), "ab\nincomprehensible\ncd") == 0);
    }
}

static void no_terminal_changes_nothing(void)
{
    CHECK(strcmp(wrapped("a text  with\tall in it \n", 0, 3), "a text  with\tall in it \n") == 0);
}

static void code_stays_as_it_is(void)
{
    static const char text[] =
        "see this here:\n```c\nint\tlong_name = other_name + 1;\n```\nand so on";
    for (size_t n = 1; n < 30; n++)
        CHECK(strcmp(wrapped(text, 10, n), "see this\nhere:\n```c\nint\tlong_name = other_name + "
                                           "1;\n```\nand so on") == 0);
    CHECK(strcmp(wrapped("use `a` or ``b`` here", 11, 4), "use `a` or\n``b`` here") == 0);
}

static void wide_characters_take_two_columns(void)
{
    CHECK(strcmp(wrapped("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", 4, 3),
                 "\xe6\xbc\xa2\xe6\xbc\xa2\n\xe6\xbc\xa2") == 0);
    CHECK(strcmp(wrapped("\xc3\xa4\xc3\xb6 \xc3\xbc", 4, 100), "\xc3\xa4\xc3\xb6 \xc3\xbc") == 0);
}

int main(void)
{
    CASE(lines_end_between_words);
    CASE(no_terminal_changes_nothing);
    CASE(code_stays_as_it_is);
    CASE(wide_characters_take_two_columns);
    return tap_end();
}
