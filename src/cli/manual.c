/* Manual pages in the language of man(1), from the tables of options that help is made of. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"

/* n bytes in which nothing is a command of roff: hyphens stay hyphens, a line begins with no dot. */
static lace_status append_escaped(buf *out, const char *chars, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool begins_line = out->size == 0 || out->data[out->size - 1] == '\n';
        if (begins_line && (chars[i] == '.' || chars[i] == '\''))
            TRY(buf_append_text(out, "\\&"));
        if (chars[i] == '-')
            TRY(buf_append_text(out, "\\-"));
        else if (chars[i] == '\\')
            TRY(buf_append_text(out, "\\e"));
        else
            TRY(buf_append(out, &chars[i], 1));
    }
    return LACE_OK;
}

static lace_status append_text(buf *out, const char *chars)
{
    return append_escaped(out, chars, strlen(chars));
}

/* "bench serve" is the page lace-bench-serve. */
static lace_status append_page_name(buf *out, const verb *v, bool is_title)
{
    char name[64];
    int n = snprintf(name, sizeof name, "lace%s%s", v ? "-" : "", v ? v->name : "");
    for (int i = 0; i < n; i++) {
        name[i] = name[i] == ' ' ? '-' : name[i];
        name[i] = is_title ? (char)toupper((unsigned char)name[i]) : name[i];
    }
    return append_text(out, name);
}

/* Lines: those that begin with a space stay as they are, others are filled to the page's width. */
static lace_status append_paragraphs(buf *out, const char *lines)
{
    bool is_kept = false;
    while (*lines) {
        size_t n = strcspn(lines, "\n");
        bool keeps = lines[0] == ' ';
        if (keeps != is_kept)
            TRY(buf_append_text(out, keeps ? ".PP\n.nf\n" : ".fi\n.PP\n"));
        is_kept = keeps;
        if (n == 0)
            TRY(buf_append_text(out, ".PP"));
        TRY(append_escaped(out, lines, n));
        TRY(buf_append_text(out, "\n"));
        lines += n + (lines[n] == '\n');
    }
    return is_kept ? buf_append_text(out, ".fi\n") : LACE_OK;
}

static lace_status append_option(buf *out, const arg_option *o)
{
    if (o->kind == ARG_HEADING) {
        TRY(buf_append_text(out, ".SS "));
        TRY(append_text(out, o->help));
        return buf_append_text(out, "\n");
    }
    TRY(buf_append_text(out, ".TP\n"));
    if (o->letter)
        TRY(buf_printf(out, "\\fB\\-%c\\fR, ", o->letter));
    TRY(buf_append_text(out, "\\fB"));
    TRY(buf_append_text(out, "\\-\\-"));
    TRY(append_text(out, o->name));
    TRY(buf_append_text(out, "\\fR"));
    if (o->value) {
        TRY(buf_append_text(out, " \\fI"));
        TRY(append_text(out, o->value));
        TRY(buf_append_text(out, "\\fR"));
    }
    TRY(buf_append_text(out, "\n"));
    TRY(append_text(out, o->help));
    return buf_append_text(out, o->is_needed ? " (required)\n" : "\n");
}

static lace_status append_head(buf *out, const verb *v, const char *summary)
{
    TRY(buf_append_text(out, ".TH "));
    TRY(append_page_name(out, v, true));
    TRY(buf_append_text(out, " 1 \"\" \"lace " LACE_VERSION "\" \"User Commands\"\n.SH NAME\n"));
    TRY(append_page_name(out, v, false));
    TRY(buf_append_text(out, " \\- "));
    TRY(append_text(out, summary));
    return buf_append_text(out, "\n.SH SYNOPSIS\n");
}

static lace_status append_page_link(buf *out, const verb *v, const char *behind)
{
    TRY(buf_append_text(out, ".BR "));
    TRY(append_page_name(out, v, false));
    return buf_printf(out, " (1)%s\n", behind);
}

static lace_status append_program(verb_table verbs, buf *out)
{
    TRY(append_head(out, NULL, "run language models"));
    TRY(buf_append_text(out, ".B lace\n.I VERB\n[arguments]\n.br\n.B lace help\n[\\fIVERB\\fR]\n"
                             ".br\n.B lace \\-\\-version\n.SH VERBS\n"));
    for (size_t i = 0; i < verbs.n; i++) {
        TRY(buf_append_text(out, ".TP\n"));
        TRY(append_page_link(out, verbs.at[i], ""));
        TRY(append_text(out, verbs.at[i]->summary));
        TRY(buf_append_text(out, "\n"));
    }
    TRY(buf_append_text(out,
                        ".SH ENVIRONMENT\n"
                        ".TP\n.B LACE_MODELS\nfolders of models that can be named, with colons "
                        "between them\n"
                        ".TP\n.B LACE_CPU\nthe most of the processor that is used: plain, avx2, "
                        "avx2vnni, avx512, avx512vnni, avx512vbmi, neon, dotprod or i8mm\n"
                        ".SH EXIT STATUS\n0 done, 1 an error, which one line on standard error "
                        "explains, 130 stopped by Ctrl\\-C.\n"));
    return LACE_OK;
}

lace_status args_manual(verb_table verbs, const verb *v, buf *out)
{
    if (!v)
        return append_program(verbs, out);
    TRY(append_head(out, v, v->summary));
    TRY(buf_append_text(out, ".B lace "));
    TRY(append_text(out, v->name));
    TRY(buf_append_text(out, "\n"));
    TRY(append_text(out, v->usage));
    if (v->description[0]) {
        TRY(buf_append_text(out, "\n.SH DESCRIPTION\n"));
        TRY(append_paragraphs(out, v->description));
        out->size -= out->data[out->size - 1] == '\n';
    }
    TRY(buf_append_text(out, v->n_options ? "\n.SH OPTIONS\n" : "\n"));
    for (size_t i = 0; i < v->n_options; i++)
        TRY(append_option(out, &v->options[i]));
    TRY(buf_append_text(out, ".SH EXAMPLES\n"));
    TRY(append_paragraphs(out, v->examples));
    TRY(buf_append_text(out, ".SH SEE ALSO\n"));
    return append_page_link(out, NULL, "");
}
