/*
 * chat/jinja: where each byte of a prompt comes from. The context's strings have the letters q, x
 * and z, in which nothing that templates write here is; so every such letter in a result must be
 * marked as the context's, and every a and b as the template's, whatever was done to them.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "jinja/jinja_eval.h"
#include "tap.h"

static const char context_text[] =
    "{\"C\": \"qx <z> 7\", \"E\": \"{\\\"q\\\": [\\\"x\\\"]}\", \"L\": [\"qx\", \"zz\", {\"x\": "
    "\"q\"}],"
    " \"M\": {\"qz\": \"xx\", \"role\": \"qq\"}, \"P\": [{\"role\": \"user\", \"content\": \"q\"}],"
    " \"bos_token\": \"<ab>\"}";

static const char *const values[] = {"C",    "'ab <a> b'",  "C ~ 'ab'", "L", "M", "('ab' + C)[1:5]",
                                     "'%s'", "'{} {:a>9}'", "3"};
enum { N_VALUES = sizeof values / sizeof values[0] };

static json_t *context;
static int n_rendered, n_letters;

static bool is_one_of(char c, const char *letters)
{
    return c && strchr(letters, c) != NULL;
}

/* Render and check; `own` are the letters that must be the template's. False: it raised. */
static bool check_source(const char *source, const char *own)
{
    jinja_options options = jinja_options_default();
    lace_error err = {0};
    jinja *t;
    buf out, marks;
    buf_init(&out, 1 << 24);
    buf_init(&marks, 1 << 24);
    lace_status status = jinja_parse(text_of(source), &t, &err);
    if (!CHECK(status == LACE_OK))
        tap_note("%s: %s", source, err.text);
    else
        status = jinja_render_marked(t, context, &options, &out, &marks, &err);
    CHECK(status != LACE_OK || marks.size == out.size);
    for (size_t i = 0; status == LACE_OK && i < out.size; i++) {
        bool is_content = is_one_of(out.data[i], "qxzQXZ");
        n_letters += is_content;
        if ((is_content && !marks.data[i]) || (is_one_of(out.data[i], own) && marks.data[i])) {
            CHECK(!"a byte has the wrong mark");
            tap_note("%s gives %s, byte %zu", source, out.data, i);
            break;
        }
    }
    n_rendered += status == LACE_OK;
    jinja_free(t);
    buf_deinit(&out);
    buf_deinit(&marks);
    return status == LACE_OK;
}

static bool check_expression(const char *expression)
{
    char source[256];
    snprintf(source, sizeof source, "{{ %s }}", expression);
    return check_source(source, "abAB");
}

static void check_calls(const char *before, const char *name)
{
    char expression[192];
    snprintf(expression, sizeof expression, "%s%s()", before, name);
    check_expression(expression);
    for (int a = 0; a < N_VALUES; a++) {
        snprintf(expression, sizeof expression, "%s%s(%s)", before, name, values[a]);
        check_expression(expression);
        for (int b = 0; b < N_VALUES; b++) {
            snprintf(expression, sizeof expression, "%s%s(%s, %s)", before, name, values[a],
                     values[b]);
            check_expression(expression);
        }
    }
}

static void check_table(const jinja_builtin *rows, const char *format)
{
    for (; rows->name; rows++)
        for (int v = 0; v < N_VALUES; v++) {
            char before[64];
            snprintf(before, sizeof before, format, values[v]);
            check_calls(before, rows->name);
        }
}

static void note_count(void)
{
    tap_note("%d rendered, %d letters of the context", n_rendered, n_letters);
    CHECK(n_rendered > 0 && n_letters > 0);
    n_rendered = n_letters = 0;
}

static void every_filter_passes_on_where_bytes_come_from(void)
{
    check_table(jinja_text_filters, "(%s)|");
    check_table(jinja_list_filters, "(%s)|");
    check_table(jinja_number_filters, "(%s)|");
    note_count();
}

static void every_method_passes_on_where_bytes_come_from(void)
{
    check_table(jinja_string_methods, "(%s).");
    check_table(jinja_list_methods, "(%s).");
    check_table(jinja_dict_methods, "(%s).");
    check_table(jinja_functions, "(%s) ~ ");
    note_count();
}

static void every_operator_passes_on_where_bytes_come_from(void)
{
    static const char *const signs[] = {"+", "*", "%", "~", "and", "or"};
    char expression[192];
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        for (int a = 0; a < N_VALUES; a++)
            for (int b = 0; b < N_VALUES; b++) {
                snprintf(expression, sizeof expression, "(%s) %s (%s)", values[a], signs[i],
                         values[b]);
                check_expression(expression);
            }
    for (int a = 0; a < N_VALUES; a++) {
        static const char *const parts[] = {"[0]", "[-1]", "[1:3]", "[::-1]", "[::2]"};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            snprintf(expression, sizeof expression, "(%s)%s", values[a], parts[i]);
            check_expression(expression);
        }
    }
    note_count();
}

static void statements_pass_on_where_bytes_come_from(void)
{
    static const char *const sources[] = {
        "ab{{ C }}ab{% for c in C %}{{ c }}a{% endfor %}",
        "{% set s %}ab{{ C }}ab{% endset %}{{ s }}{{ s[1:] | trim }}{{ s.split('q') | join('b') }}",
        "{% set s | upper %}ab{{ C }}{% endset %}{{ s }}",
        "{% macro m(v) %}a{{ v }}b{{ kwargs }}{% endmacro %}{{ m(C) }}{{ m('b', **M) }}",
        "{% macro m() %}a{{ caller(C) }}{% endmacro %}{% call(v) m() %}b{{ v }}{% endcall %}",
        "{% filter replace('q', 'ab') %}{{ C }}a{% endfilter %}",
        "{% set ns = namespace(s='') %}{% for i in range(300) %}{% set ns.s = ns.s + 'ab' + C %}"
        "{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=C) %}{% for i in range(300) %}{% set t = ns.s ~ 'ab' %}"
        "{% set ns.s = ns.s ~ C %}{{ t }}{% endfor %}{{ ns.s }}",
        "{{ M | tojson(indent=2) }}{{ M | string }}{{ M.items() | list }}{{ M | dictsort }}",
        "{{ dict(a='b', **M) }}{{ L | map('upper') | join(C) }}{{ L | tojson(separators=('a', C)) "
        "}}",
        "{{ E | from_json }}{{ (E | from_json).q[0] }}{{ '{\"a\": \"b\"}' | from_json }}",
        "{{ '%s|%r|%5s|%-9s|%(qz)s' | format(C, C, C, C) }}{{ 'ab%(qz)s' % M }}",
        "{{ 'ab{0}{0!r}{v:>9}'.format(C, v=C) }}{{ strftime_now('ab' ~ C) }}",
        "{% for k in M %}{{ k }}{{ M[k] }}{% endfor %}{{ loop }}{{ cycler(C, 'ab').next() }}",
        "{{ joiner(C) }}{{ C | default('ab') }}{{ nope | default(C) }}{{ 'ab' if C else '' }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (!check_source(sources[i], "abAB") && i != 11)
            CHECK(!"a statement raised"), tap_note("%s", sources[i]);
    note_count();
}

/* "<|" + message.role + "|>" is a special token of the template; a role that is none is content. */
static void tokens_and_roles_are_the_templates_words(void)
{
    static const struct {
        const char *source, *marks;
    } rows[] = {
        {"{{ bos_token }}{{ C[:2] }}", "000011"},
        {"{{ '<|' + P[0].role + '|>' + P[0].content }}", "000000001"},
        {"{{ '<|' + M.role + '|>' }}", "001100"},
        {"{{ P[0]['role'] | upper | trim }}", "0000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        jinja_options options = jinja_options_default();
        lace_error err = {0};
        jinja *t;
        buf out, marks;
        buf_init(&out, 1 << 16);
        buf_init(&marks, 1 << 16);
        CHECK(jinja_parse(text_of(rows[i].source), &t, &err) == LACE_OK);
        CHECK(jinja_render_marked(t, context, &options, &out, &marks, &err) == LACE_OK);
        bool is_right = marks.size == strlen(rows[i].marks);
        for (size_t k = 0; is_right && k < marks.size; k++)
            is_right = marks.data[k] == rows[i].marks[k] - '0';
        if (!CHECK(is_right))
            tap_note("%s", rows[i].source);
        jinja_free(t);
        buf_deinit(&out);
        buf_deinit(&marks);
    }
}

int main(void)
{
    context = json_loads(context_text, 0, NULL);
    CASE(every_filter_passes_on_where_bytes_come_from);
    CASE(every_method_passes_on_where_bytes_come_from);
    CASE(every_operator_passes_on_where_bytes_come_from);
    CASE(statements_pass_on_where_bytes_come_from);
    CASE(tokens_and_roles_are_the_templates_words);
    json_decref(context);
    return tap_end();
}
