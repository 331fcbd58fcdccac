/* The help of a verb, from its table of options. */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 80 }; /* where explanations begin, and where they wrap */

/* Words of a text, wrapped at HELP_WIDTH; later lines are indented. `column` is where it starts. */
static lace_status append_wrapped(buf *out, const char *words, size_t column, size_t indent)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        if (column > indent && column + 1 + n > HELP_WIDTH) {
            TRY(buf_printf(out, "\n%*s", (int)indent, ""));
            column = indent;
        } else if (column > indent) {
            TRY(buf_append(out, " ", 1));
            column++;
        }
        TRY(buf_append(out, words, n));
        column += n;
        words += n + strspn(words + n, " ");
    }
    return buf_append(out, "\n", 1);
}

static lace_status append_option(buf *out, const arg_option *o)
{
    if (o->kind == ARG_HEADING)
        return buf_printf(out, "\n%s:\n", o->help);
    char left[96];
    char letter[8] = "    ";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->value ? " " : "",
                     o->value ? o->value : "");
    TRY(buf_append_text(out, left));
    if (n + 2 > HELP_COLUMN)
        TRY(buf_printf(out, "\n%*s", HELP_COLUMN, ""));
    else
        TRY(buf_printf(out, "%*s", HELP_COLUMN - n, ""));
    char help[512];
    snprintf(help, sizeof help, "%s%s", o->help, o->is_needed ? " (required)" : "");
    return append_wrapped(out, help, HELP_COLUMN, HELP_COLUMN);
}

lace_status args_help(const verb *v, buf *out)
{
    TRY(buf_printf(out, "lace %s: %s\n\nusage: lace %s %s\n", v->name, v->summary, v->name,
                   v->usage));
    if (v->description[0])
        TRY(buf_printf(out, "\n%s", v->description));
    if (v->n_options > 0 && v->options[0].kind != ARG_HEADING)
        TRY(buf_append_text(out, "\nOptions:\n"));
    for (size_t i = 0; i < v->n_options; i++)
        TRY(append_option(out, &v->options[i]));
    return buf_printf(out, "\nExamples:\n%s", v->examples);
}
