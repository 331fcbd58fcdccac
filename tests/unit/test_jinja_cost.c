/*
 * chat/jinja: what a template does costs what it says. Every filter, test, method, function and
 * operator is called in a loop on large values until a budget of steps ends it; the time that takes
 * is compared with that of a plain loop with the same budget. Work that is not counted stands out
 * by orders of magnitude.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "jinja/jinja_eval.h"
#include "sanitized.h"
#include "tap.h"

enum {
    STEPS = 20000,
    /*
     * How much dearer than a step of a plain loop (4 ns) a step may be. A step stands for 64 bytes
     * copied or 8 characters looked at: the slowest are seen to take 11 times as long, and twice
     * that is left for a busy machine. 2,000,000 steps, the budget, then take less than 0.2 s. What
     * is not counted takes hundreds of times as long. Sanitizers look at all that memmem might.
     */
    FACTOR = IS_SANITIZED ? 250 : 22,
    LARGE = 400000, /* bytes of the large strings */
};

/* Values to call things on and with. What is too large for the source is in the context. */
static const char *const values[] = {"S", "W", "D", "L", "M", "'a'", "7"};
enum { N_VALUES = sizeof values / sizeof values[0] };

static json_t *context;

static json_t *repeated(const char *unit, size_t n_bytes)
{
    size_t n = strlen(unit);
    char *chars = malloc(n_bytes + n);
    json_t *json = NULL;
    if (chars) {
        for (size_t i = 0; i < n_bytes; i += n)
            memcpy(chars + i, unit, n);
        json = json_stringn(chars, n_bytes / n * n);
    }
    free(chars);
    return json;
}

static void make_context(void)
{
    context = json_object();
    json_t *list = json_array(), *dict = json_object();
    for (int i = 0; i < 2000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        json_array_append_new(list, json_pack("{s:i, s:s}", "a", i, "b", key));
        json_object_set_new(dict, key, json_integer(i));
    }
    json_object_set_new(context, "S", repeated("a", LARGE));
    json_object_set_new(context, "W", repeated(" ", LARGE));
    json_object_set_new(context, "D", repeated("0.", LARGE));
    json_object_set_new(context, "L", list);
    json_object_set_new(context, "M", dict);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The time of rendering; parsing apart. */
static double time_of(const char *source, lace_status *status)
{
    jinja_options options = jinja_options_default();
    lace_error err = {0};
    jinja *t;
    buf out;
    options.max_steps = STEPS;
    buf_init(&out, 1 << 24);
    *status = jinja_parse(text_of(source), &t, &err);
    double begin = cpu_ms();
    if (*status == LACE_OK)
        *status = jinja_render(t, context, &options, &out, &err);
    double taken = cpu_ms() - begin;
    jinja_free(t);
    buf_deinit(&out);
    return taken;
}

/* More rounds than any budget lasts for; a long range would be one itself. */
#define LOOP_BEGIN                                                                                 \
    "{% for h in range(99) %}{% for i in range(99) %}{% for j in range(99) %}{% set x = "
#define LOOP_END " %}{% endfor %}{% endfor %}{% endfor %}"

static double plain_ms;

static void measure_plain(void)
{
    lace_status status;
    for (int i = 0; i < 5; i++) {
        double ms = time_of(LOOP_BEGIN "1 + i" LOOP_END, &status);
        if (!CHECK(status == LACE_E_LIMIT))
            return;
        if (i == 0 || ms < plain_ms)
            plain_ms = ms;
    }
    tap_note("a plain loop: %.2f ms for %d steps", plain_ms, STEPS);
}

static int n_seen, n_to_the_limit;
static double worst;
static char worst_source[128];

/* Evaluate an expression until the budget is used up; one that fails at once costs nothing. */
static void check_expression(const char *expression)
{
    char source[256];
    lace_status status;
    snprintf(source, sizeof source, "%s%s%s", LOOP_BEGIN, expression, LOOP_END);
    double ms = time_of(source, &status);
    for (int i = 0; i < 4 && ms > FACTOR * plain_ms; i++) { /* the machine may be busy */
        double again = time_of(source, &status);
        ms = again < ms ? again : ms;
    }
    n_seen++;
    n_to_the_limit += status == LACE_E_LIMIT;
    if (ms > worst) {
        worst = ms;
        snprintf(worst_source, sizeof worst_source, "%s", expression);
    }
    if (ms > FACTOR * plain_ms) {
        CHECK(ms <= FACTOR * plain_ms);
        tap_note("%s: %.1f ms, %.0f times a plain loop", expression, ms, ms / plain_ms);
    }
}

static int n_params(const jinja_builtin *row)
{
    int n = row->params[0] != 0;
    for (const char *p = row->params; *p; p++)
        n += *p == ' ';
    return row->params[0] == '*' ? 2 : n;
}

/* With no arguments, and with every one and every two of the values that it takes. */
static void check_calls(const char *before, const jinja_builtin *row)
{
    char expression[128];
    const char *name = row->name;
    snprintf(expression, sizeof expression, "%s%s()", before, name);
    check_expression(expression);
    for (int a = 0; a < N_VALUES && n_params(row) > 0; a++) {
        snprintf(expression, sizeof expression, "%s%s(%s)", before, name, values[a]);
        check_expression(expression);
        for (int b = 0; b < N_VALUES && n_params(row) > 1; b++) {
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
            if (strpbrk(rows->name, "=<>!")) /* tests of these names have no syntax of their own */
                continue;
            snprintf(before, sizeof before, format, values[v]);
            check_calls(before, rows);
        }
}

/* The methods of one kind of value, on values of that kind only. */
static void check_methods(const jinja_builtin *rows, const char *const *of)
{
    for (; *of; of++)
        for (const jinja_builtin *row = rows; row->name; row++) {
            char before[64];
            snprintf(before, sizeof before, "%s.", *of);
            check_calls(before, row);
        }
}

static void note_worst(void)
{
    tap_note(
        "%d expressions, %d to the end of the budget; the dearest, %s: %.0f times a plain loop",
        n_seen, n_to_the_limit, worst_source, worst / plain_ms);
    CHECK(n_seen > 0 && n_to_the_limit > 0);
    n_seen = n_to_the_limit = 0;
    worst = 0;
}

static void every_filter_pays_for_what_it_touches(void)
{
    check_table(jinja_text_filters, "%s|");
    check_table(jinja_list_filters, "%s|");
    check_table(jinja_number_filters, "%s|");
    note_worst();
}

static void every_test_pays_for_what_it_touches(void)
{
    check_table(jinja_tests, "%s is ");
    note_worst();
}

static void every_method_pays_for_what_it_touches(void)
{
    static const char *const strings[] = {"S", "W", "D", "'a'", NULL};
    static const char *const lists[] = {"L", "[1, 2]", NULL}, *const dicts[] = {"M", "{}", NULL};
    static const char *const tuples[] = {"(S, W)", NULL}, *const loops[] = {"loop", NULL};
    check_methods(jinja_string_methods, strings);
    check_methods(jinja_list_methods, lists);
    check_methods(jinja_tuple_methods, tuples);
    check_methods(jinja_dict_methods, dicts);
    check_methods(jinja_loop_methods, loops);
    note_worst();
}

static void every_function_pays_for_what_it_touches(void)
{
    for (const jinja_builtin *row = jinja_functions; row->name; row++)
        check_calls("", row);
    for (const jinja_builtin *row = jinja_cycler_methods; row->name; row++)
        check_calls("cycler(S, W).", row);
    note_worst();
}

static void every_operator_pays_for_what_it_touches(void)
{
    static const char *const signs[] = {"+",  "-", "*",  "/", "//", "%",  "**",  "~",  "==",
                                        "!=", "<", "<=", ">", ">=", "in", "and", "or", "not in"};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        for (int a = 0; a < N_VALUES; a++)
            for (int b = 0; b < N_VALUES; b++) {
                char expression[64];
                snprintf(expression, sizeof expression, "%s %s %s", values[a], signs[i], values[b]);
                check_expression(expression);
            }
    for (int a = 0; a < N_VALUES; a++)
        for (int b = 0; b < N_VALUES; b++) {
            char expression[64];
            snprintf(expression, sizeof expression, "%s[%s]", values[a], values[b]);
            check_expression(expression);
            snprintf(expression, sizeof expression, "%s[%s:]", values[a], values[b]);
            check_expression(expression);
            snprintf(expression, sizeof expression, "%s[::-%s]", values[a], values[b]);
            check_expression(expression);
        }
    note_worst();
}

/* Shapes with names, which the tables cannot show. */
static void named_arguments_and_paths_are_paid_for(void)
{
    static const char *const expressions[] = {
        "L|map(attribute=D)|list",
        "L|map(attribute=S)|list",
        "L|map(attribute=W, default=7)|list",
        "L|selectattr(D)|list",
        "L|selectattr(S, 'eq', 7)|list",
        "L|rejectattr(D)|list",
        "L|unique(attribute=D)|list",
        "L|unique(attribute=S)|list",
        "L|sort(attribute=D)",
        "L|sort(attribute='b')",
        "L|groupby(D)",
        "L|groupby('b')",
        "L|sum(attribute=D)",
        "L|min(attribute=S)",
        "L|max(attribute='b')",
        "L|join(S, attribute='b')",
        "L|tojson(sort_keys=true)",
        "M|tojson(sort_keys=true)",
        "M|tojson(indent=4)",
        "S|truncate(10, end=S)",
        "S|truncate(399990, true)",
        "S|truncate(7, leeway=0, end='')",
        "S|indent(S)",
        "W|indent(1, first=true, blank=true)",
        "S|replace('', 'b')",
        "S|replace('a', '', 7)",
        "S|trim('a')",
        "S|trim(S)",
        "W|trim('a b')",
        "S.strip('cba')",
        "S.rfind('a' * 60 + 'b')",
        "S.rsplit('b' + 'a' * 60)",
        "W|int",
        "W|float",
        "'%s' % S",
        "'%.7s' % S",
        "'{:>7}'.format(S)",
        "'{0}{0}{0}'.format(S)",
        "strftime_now(S)",
        "D.format(7)",
        "dict(M, **M)",
        "'%(k1)s' % M",
        "[S, W, D] == [S, W, D]",
        "(S, W) in [(S, D)]",
        "L|string",
        "M|string|length",
        "L|batch(3)|list",
        "L|reverse|list",
        "S|list|length",
        "S|first",
        "S|last",
        "M|dictsort(by='value')",
    };
    for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++)
        check_expression(expressions[i]);
    note_worst();
}

int main(void)
{
    make_context();
    CASE(measure_plain);
    CASE(every_filter_pays_for_what_it_touches);
    CASE(every_test_pays_for_what_it_touches);
    CASE(every_method_pays_for_what_it_touches);
    CASE(every_function_pays_for_what_it_touches);
    CASE(every_operator_pays_for_what_it_touches);
    CASE(named_arguments_and_paths_are_paid_for);
    json_decref(context);
    return tap_end();
}
