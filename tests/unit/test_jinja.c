/*
 * chat/jinja: the language against Jinja2's results, 68 templates of real models, and templates
 * that mean harm.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "jinja/jinja.h"
#include "cost.h"
#include "data.h"
#include "sanitized.h"
#include "tap.h"

/* 2026-01-15T12:30:00, the clock of the expected results. */
static const int64_t test_now = 1768480200;

static const char context_text[] =
    "{\"x\": 5, \"f\": 2.5, \"s\": \"Hello World\", \"e\": \"\", \"n\": null, \"b\": true,"
    " \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": 2, \"C\": 3}, \"u\": \"héllo ß 😀\","
    " \"m\": [{\"role\": \"user\", \"content\": \"hi\", \"n\": 1},"
    " {\"role\": \"assistant\", \"content\": \"yo\", \"n\": 2},"
    " {\"role\": \"user\", \"content\": \"bye\", \"n\": 3}],"
    " \"html\": \"<a href='x'>&\\\"</a>\", \"nested\": {\"a\": {\"b\": [1, {\"c\": null}]}},"
    " \"big\": 1e22, \"tiny\": 1.5e-7, \"neg\": -7}";

static json_t *context;

static json_t *read_json(const char *chars)
{
    json_t *json;
    lace_error err;
    if (json_read((span){(const uint8_t *)chars, strlen(chars)}, 0, &json, &err) != LACE_OK) {
        tap_note("test data: %s", err.text);
        abort();
    }
    return json;
}

static lace_status render_with(const char *source, const json_t *with, const jinja_options *options,
                               buf *out, lace_error *err)
{
    jinja *t;
    lace_status status = jinja_parse(text_of(source), &t, err);
    if (status == LACE_OK)
        status = jinja_render(t, with, options, out, err);
    jinja_free(t);
    return status;
}

static lace_status render(const char *source, buf *out, lace_error *err)
{
    jinja_options options = jinja_options_default();
    options.now = test_now;
    return render_with(source, context, &options, out, err);
}

/* ---- The language ---------------------------------------------------------------------------- */

typedef struct row {
    const char *subject, *source, *result;
} row;

static const row rows[] = {
#define ROW(subject, source, result) {#subject, source, result},
#include "jinja_language.def"
#undef ROW
};

static void check_subject(void *arg)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buf out;
        lace_error err = {0};
        if (strcmp(rows[i].subject, arg) != 0)
            continue;
        buf_init(&out, 1 << 20);
        lace_status status = render(rows[i].source, &out, &err);
        const char *got = status == LACE_OK ? out.data ? out.data : "" : NULL;
        bool is_right = rows[i].result ? got && strcmp(got, rows[i].result) == 0 : !got;
        if (!CHECK(is_right))
            tap_note("%s\n#   gives %s\n#   not   %s", rows[i].source, got ? got : err.text,
                     rows[i].result ? rows[i].result : "an error");
        if (status != LACE_OK)
            CHECK(status == LACE_E_TEMPLATE && err.status == status &&
                  strncmp(err.text, "line ", 5) == 0 && out.size == 0);
        buf_deinit(&out);
    }
}

static void language(void)
{
    const char *last = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        if (strcmp(rows[i].subject, last) == 0)
            continue;
        last = rows[i].subject;
        snprintf(name, sizeof name, "%s_are_as_in_jinja2", last);
        tap_case_arg(name, check_subject, (void *)last);
    }
}

/* ---- Real templates -------------------------------------------------------------------------- */

static json_t *cases; /* now, contexts, expected: {"file|context": text or null} */
static int n_rendered, n_raised;

static void check_template(void *arg)
{
    static const char *const names[] = {"simple", "multi", "tools", "toolcall"};
    char relative[256];
    snprintf(relative, sizeof relative, "templates/%s", (const char *)arg);
    char *path = data_path(relative);
    FILE *f = path ? fopen(path, "rb") : NULL;
    char *source = calloc(1, JINJA_MAX_SOURCE);
    if (!CHECK(f && source) || !CHECK(fread(source, 1, JINJA_MAX_SOURCE - 1, f) > 0))
        return;
    fclose(f);
    free(path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char key[300];
        snprintf(key, sizeof key, "%s|%s", (const char *)arg, names[i]);
        const json_t *with = json_object_get(json_object_get(cases, "contexts"), names[i]);
        const json_t *expected = json_object_get(json_object_get(cases, "expected"), key);
        jinja_options options = jinja_options_default();
        options.now = test_now;
        buf out;
        lace_error err = {0};
        buf_init(&out, 1 << 20);
        lace_status status = render_with(source, with, &options, &out, &err);
        if (!CHECK(with && expected))
            continue;
        if (json_is_null(expected)) {
            CHECK(status == LACE_E_TEMPLATE && strncmp(err.text, "line ", 5) == 0);
            n_raised++;
        } else if (CHECK(status == LACE_OK)) {
            CHECK(out.size == json_string_length(expected) &&
                  memcmp(out.data, json_string_value(expected), out.size) == 0);
            n_rendered++;
        } else {
            tap_note("%s: %s", key, err.text);
        }
        buf_deinit(&out);
    }
    free(source);
}

static void all_cases_were_seen(void)
{
    tap_note("%d rendered byte for byte, %d raised", n_rendered, n_raised);
    CHECK(n_rendered == 259 && n_raised == 13);
}

static void real_templates(void)
{
    char *path = data_path("templates/cases.json");
    cases = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    char last[200] = "";
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(cases, "expected"), key, value)
    {
        size_t n = strcspn(key, "|");
        if (strlen(last) == n && strncmp(last, key, n) == 0)
            continue;
        snprintf(last, sizeof last, "%.*s", (int)n, key);
        tap_case_arg(last, check_template, last);
    }
    CASE(all_cases_were_seen);
    json_decref(cases);
}

/* ---- Templates that mean harm ---------------------------------------------------------------- */

typedef struct evil {
    const char *name, *prefix, *unit, *middle, *closing, *suffix;
    int n;              /* prefix, n times unit, middle, n times closing, suffix */
    lace_status status; /* LACE_OK: may do what it likes, within the bounds */
} evil;

/* clang-format off */
static const evil evils[] = {
    {"a_huge_range", "{% for i in range(10**12) %}x{% endfor %}", .status = LACE_E_LIMIT},
    {"100000_parentheses", "{{ ", "(", "1", ")", " }}", 100000, LACE_E_TEMPLATE},
    {"6000_parentheses", "{{ ", "(", "1", ")", " }}", 6000, LACE_E_TEMPLATE},
    {"5500_nested_ifs", "", "{% if x %}", "", "{% endif %}", "", 5500, LACE_E_TEMPLATE},
    {"100000_nested_ifs", "", "{% if x %}", "", "{% endif %}", "", 100000, LACE_E_LIMIT},
    {"40000_unclosed_ifs", "", "{% if x %}", "", "", "", 40000, LACE_E_TEMPLATE},
    {"100000_brackets", "{{ ", "[", "", "", " }}", 100000, LACE_E_TEMPLATE},
    {"100000_dicts", "{{ ", "{'a':", "", "", " }}", 100000, LACE_E_TEMPLATE},
    {"100000_nots", "{{ ", "not ", "1", "", " }}", 100000, LACE_E_TEMPLATE},
    {"100000_minuses", "{{ ", "-", "1", "", " }}", 100000, LACE_E_TEMPLATE},
    {"20000_inline_ifs", "{{ ", "x if x else ", "1", "", " }}", 20000, LACE_E_TEMPLATE},
    {"a_sum_of_20000", "{{ 1", "+1", "", "", " }}", 20000, LACE_E_LIMIT},
    {"20000_attributes", "{{ x", ".a", "", "", " }}", 20000, LACE_E_LIMIT},
    {"20000_filters", "{{ x", "|e", "", "", " }}", 20000, LACE_E_LIMIT},
    {"20000_elifs", "{% if 0 %}", "{% elif 0 %}", "", "", "{% endif %}", 20000, LACE_OK},
    {"200000_outputs", "", "{{a}}", "", "", "", 200000, LACE_E_LIMIT},
    {"200000_strings", "{{ ", "'a' ", "", "", " }}", 200000, LACE_E_LIMIT},
    {"a_long_string", "{{ 'x' * 10**10 }}", .status = LACE_E_LIMIT},
    {"a_string_of_no_length", "{{ 'x' * -1 }}", .status = LACE_OK},
    {"a_wide_number", "{{ '%1000000000d' % 1 }}", .status = LACE_E_LIMIT},
    {"a_wider_number", "{{ '%99999999999999999999d' % 1 }}", .status = LACE_E_LIMIT},
    {"a_wide_field", "{{ '{:1000000000}'.format(1) }}", .status = LACE_E_LIMIT},
    {"a_starred_width", "{{ '%*d' % (10**15, 1) }}", .status = LACE_E_LIMIT},
    {"a_precise_float", "{{ '%.999999f' % 1.5 }}", .status = LACE_E_LIMIT},
    {"many_long_floats", "{% for i in range(100000) %}{{ '%.300f' % 1.7e308 }}{% endfor %}", .status = LACE_E_LIMIT},
    {"many_floats", "{% for i in range(100000) %}{{ 1.2345678901234567 * i }}{% endfor %}", .status = LACE_E_LIMIT},
    {"a_wide_center", "{{ 'a'|center(1000000000) }}", .status = LACE_E_LIMIT},
    {"a_wide_ljust", "{{ 'a'.ljust(10**15) }}", .status = LACE_E_LIMIT},
    {"a_long_list", "{{ [1] * 10**9 }}", .status = LACE_E_LIMIT},
    {"an_endless_macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", .status = LACE_E_LIMIT},
    {"a_growing_macro", "{% macro m(x) %}{{ x }}{{ m(x ~ x) }}{% endmacro %}{{ m('aaaaaaaa') }}", .status = LACE_E_LIMIT},
    {"an_endless_loop", "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}", .status = LACE_E_LIMIT},
    {"loops_in_loops", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", .status = LACE_E_LIMIT},
    {"100_MB_of_output", "{% for i in range(1000) %}{{ 'x' * 100000 }}{% endfor %}", .status = LACE_E_LIMIT},
    {"100_MB_of_macros", "{% macro m() %}{{ 'x' * 100000 }}{% endmacro %}{% for i in range(1000) %}{{ m()|length }}{% endfor %}", .status = LACE_E_LIMIT},
    {"lists_in_lists", "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", .status = LACE_E_LIMIT},
    {"lists_that_double", "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", .status = LACE_E_LIMIT},
    {"strings_that_double", "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", .status = LACE_E_LIMIT},
    {"trees_that_double", "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}", .status = LACE_E_LIMIT},
    {"twins_that_double", "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}", .status = LACE_E_LIMIT},
    {"a_list_in_itself", "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", .status = LACE_E_LIMIT},
    {"json_of_a_list_in_itself", "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", .status = LACE_E_LIMIT},
    {"comparing_lists_in_themselves", "{% set l = [] %}{% set _ = l.append(l) %}{% set k = [] %}{% set _ = k.append(k) %}{{ l == k }}", .status = LACE_E_LIMIT},
    {"a_wide_indent", "{{ ('\\n' * 100000)|indent(1000000, blank=true) }}", .status = LACE_E_LIMIT},
    {"a_wide_json", "{{ [1]|tojson(indent=1000000000) }}", .status = LACE_E_LIMIT},
    {"deep_json", "{{ ('[' * 100000)|from_json }}", .status = LACE_E_TEMPLATE},
    {"wide_json", "{{ ('[' ~ '1,' * 120000 ~ '1]')|from_json|length }}", .status = LACE_OK},
    {"a_search_backward", "{{ ('a' * 1000000).rfind('b' + 'a' * 500000) }}", .status = LACE_E_LIMIT},
    {"a_search_forward", "{{ ('a' * 1000000).find('a' * 500000 + 'b') }}", .status = LACE_OK},
    {"a_strip_of_a_large_set", "{{ ('a' * 1000000).strip('b' * 1000000 + 'a') }}", .status = LACE_E_LIMIT},
    {"many_truncations", "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% set x = s|truncate(9) %}{% endfor %}", .status = LACE_E_LIMIT},
    {"many_prefixes", "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% set x = s.removeprefix(s) %}{% endfor %}", .status = LACE_E_LIMIT},
    {"many_suffixes", "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% set x = s.removesuffix(s) %}{% endfor %}", .status = LACE_E_LIMIT},
    {"a_long_path_of_map", "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% set x = range(99)|map(attribute=s)|list %}{% endfor %}", .status = LACE_E_LIMIT},
    {"a_long_path_of_selectattr", "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% set x = range(99)|selectattr(s)|list %}{% endfor %}", .status = LACE_E_LIMIT},
    {"a_long_path_of_unique", "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% set x = range(99)|unique(attribute=s)|list %}{% endfor %}", .status = LACE_E_LIMIT},
    {"many_numbers_in_blanks", "{% set s = ' ' * 4000000 %}{% for i in range(99999) %}{% set x = s|int %}{% endfor %}", .status = LACE_E_LIMIT},
    {"a_replacement_that_grows", "{{ ('ab' * 500000).replace('a', 'b' * 1000) }}", .status = LACE_E_LIMIT},
    {"a_large_dict", "{% set ns=namespace(d={}) %}{% for i in range(99999) %}{% set _ = ns.d.update({i:i}) %}{% endfor %}", .status = LACE_E_LIMIT},
    {"a_large_power", "{{ 10**100 }}", .status = LACE_E_LIMIT},
    {"the_smallest_integer_divided", "{{ (-9223372036854775807 - 1) // -1 }}", .status = LACE_E_LIMIT},
    {"many_dates", "{% for i in range(90000) %}{{ strftime_now('%c' * 100) }}{% endfor %}", .status = LACE_E_LIMIT},
};
/* clang-format on */

static lace_status run_evil(const evil *e)
{
    buf source, out;
    buf_init(&source, 1 << 24);
    buf_init(&out, 1 << 30);
    buf_append_text(&source, e->prefix);
    for (int i = 0; i < e->n; i++)
        buf_append_text(&source, e->unit);
    if (e->n > 0)
        buf_append_text(&source, e->middle);
    for (int i = 0; i < e->n; i++)
        buf_append_text(&source, e->closing);
    if (e->n > 0)
        buf_append_text(&source, e->suffix);
    lace_error err = {0};
    lace_status status = render(source.data, &out, &err);
    if (status != LACE_OK)
        printf("#   %s: %s\n", lace_status_name(status), err.text);
    buf_deinit(&source);
    buf_deinit(&out);
    return status;
}

static int call_evil(const void *arg)
{
    const evil *e = arg;
    lace_status status = run_evil(e);
    return e->status == LACE_OK || status == e->status ? 0 : 1;
}

static void evil_ends_in_time(void *arg)
{
    call_cost c = cost_of_call(call_evil, arg);
    CHECK(c.code == 0);
    if (IS_SANITIZED) /* which cost time and memory of their own */
        return;
    if (!CHECK(c.ms < 100 && c.mib < 64))
        tap_note("%.1f ms of CPU, %.1f MiB", c.ms, c.mib);
}

static void evil_templates(void)
{
    for (size_t i = 0; i < sizeof evils / sizeof evils[0]; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s_ends_within_100_ms_and_64_MiB", evils[i].name);
        tap_case_arg(name, evil_ends_in_time, (void *)&evils[i]);
    }
}

/* ---- Errors and budgets ---------------------------------------------------------------------- */

static void check_error(const char *source, const char *expected)
{
    buf out;
    lace_error err = {0};
    buf_init(&out, 1 << 20);
    CHECK(render(source, &out, &err) == LACE_E_TEMPLATE);
    if (!CHECK(strstr(err.text, expected)))
        tap_note("'%s' does not say '%s'", err.text, expected);
    buf_deinit(&out);
}

static void errors_name_the_line(void)
{
    check_error("a\nb\n{{ 1 + }}", "line 3: unexpected '}}', expected an expression");
    check_error("{% if x %}\n\n{{ y }", "line 3:");
    check_error("a\n{% if x %}\nb\n", "the 'if' of line 2 has no end");
    check_error("{% set a = 1 %}\n{# c\nc #}\n{{ nope.x }}", "line 4: 'nope' is undefined");
    check_error("{{ 'a'\n~\nnope.x }}", "line 3: 'nope' is undefined");
    check_error("\n\n{{ raise_exception('Stop\nhere') }}", "line 3: Stop?here");
    check_error("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n{{ m() }}",
                "line 2: division by zero");
    check_error("\r\n\r\n{{ x.y.z }}", "line 3:");
    check_error("{{ '\n\n' }}{{ 1 / 0 }}", "line 3:");
    check_error("{% frob %}", "line 1: unknown tag 'frob'");
    check_error("{{ x|frob }}", "line 1: no filter named 'frob'");
    check_error("a\n{{ '\xff' }}", "line 2: malformed UTF-8");
}

static void a_failed_render_leaves_the_buffer_as_it_was(void)
{
    buf out;
    lace_error err = {0};
    buf_init(&out, 1 << 20);
    buf_append_text(&out, "kept");
    CHECK(render("abc{{ 1 / 0 }}", &out, &err) == LACE_E_TEMPLATE);
    CHECK(out.size == 4 && strcmp(out.data, "kept") == 0);
    CHECK(render("abc", &out, &err) == LACE_OK && strcmp(out.data, "keptabc") == 0);
    buf_deinit(&out);
}

static void each_budget_is_kept(void)
{
    static const char source[] = "{% for i in range(100) %}{{ ('ab' * 10) ~ i }}{% endfor %}";
    jinja_options options = jinja_options_default();
    buf out;
    lace_error err = {0};
    buf_init(&out, 1 << 20);
    CHECK(render_with(source, context, &options, &out, &err) == LACE_OK && out.size == 2190);
    options.max_output = 2190;
    CHECK(render_with(source, context, &options, &out, &err) == LACE_OK);
    options.max_output = 2189;
    CHECK(render_with(source, context, &options, &out, &err) == LACE_E_LIMIT);
    CHECK(strstr(err.text, "line 1:") && strstr(err.text, "bytes of output"));
    options = jinja_options_default();
    options.max_steps = 300;
    CHECK(render_with(source, context, &options, &out, &err) == LACE_E_LIMIT);
    CHECK(strstr(err.text, "steps") != NULL);
    options = jinja_options_default();
    options.max_heap = 8192;
    CHECK(render_with(source, context, &options, &out, &err) == LACE_E_LIMIT);
    CHECK(strstr(err.text, "bytes of memory") != NULL);
    options = jinja_options_default();
    options.max_depth = 3;
    CHECK(render_with(source, context, &options, &out, &err) == LACE_E_LIMIT);
    CHECK(strstr(err.text, "levels") != NULL);
    buf_deinit(&out);
}

static void a_string_that_grows_in_a_loop_takes_linear_memory(void)
{
    buf out;
    lace_error err = {0};
    buf_init(&out, 1 << 24);
    CHECK(render("{% set ns = namespace(s='') %}{% for i in range(5000) %}"
                 "{% set ns.s = ns.s ~ 'twenty characters!!! ' %}{% set ns.s = ns.s + 'x' %}"
                 "{% endfor %}{{ ns.s }}",
                 &out, &err) == LACE_OK);
    CHECK(out.size == 5000 * 22);
    buf_deinit(&out);
    /* Two strings that go on from one must not write over each other. */
    buf_init(&out, 1 << 20);
    CHECK(render("{% set a = 'x' * 300 + 'y' %}{% set b = a + 'B' %}{% set c = a + 'C' %}"
                 "{{ b[-2:] }}{{ c[-2:] }}{{ a[-1] }}",
                 &out, &err) == LACE_OK);
    CHECK(strcmp(out.data, "yByCy") == 0);
    buf_deinit(&out);
}

static void every_allocation_may_fail(void)
{
    static const char source[] =
        "{% macro show(a, b='q') %}{{ a }}{{ b|upper }}{{ varargs }}{% endmacro %}"
        "{% set ns = namespace(s='') %}{% for x in m if x.role == 'user' %}"
        "{% set ns.s = ns.s ~ show(x.content, 1, 2) ~ ('%5d' % loop.index) %}{% endfor %}"
        "{{ ns.s }}{{ m|tojson(indent=2) }}{{ '{\"a\": [1, \"b\"]}'|from_json }}"
        "{% set v0 = 1 %}{% set v1 = 'a\\n' 'b' %}{{ [v0, v1, v2, v3]|join(',') }}"
        "{{ range(9000)|list|length }}{{ 'abc' * 40000 }}";
    jinja_options options = jinja_options_default();
    long n_allocations = 0;
    for (long i = 0; i < 10000; i++) {
        buf out;
        lace_error err = {0};
        buf_init(&out, 1 << 20);
        mem_fail_at(i, i % 2 == 0);
        lace_status status = render_with(source, context, &options, &out, &err);
        n_allocations = mem_count();
        mem_fail_at(-1, false);
        CHECK(status == LACE_E_NOMEM || status == LACE_OK);
        CHECK(status == LACE_OK || err.status == LACE_E_NOMEM);
        buf_deinit(&out);
        if (status == LACE_OK && n_allocations <= i)
            break;
    }
    tap_note("%ld allocations", n_allocations);
    CHECK(n_allocations > 15);
}

static void nothing_of_python_can_be_reached(void)
{
    static const char *const sources[] = {
        "{{ ''.__class__.__mro__ }}", "{{ messages.__init__.__globals__ }}",
        "{% import 'os' as os %}",    "{% include '/etc/passwd' %}",
        "{% extends 'x' %}",          "{{ cycler.__init__.__globals__.os }}",
        "{{ range.__self__.x }}",
    };
    buf out;
    lace_error err = {0};
    buf_init(&out, 1 << 20);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        CHECK(render(sources[i], &out, &err) == LACE_E_TEMPLATE);
    CHECK(render("{{ self }}{{ messages.__init__ }}{{ x.__class__ }}", &out, &err) != LACE_OK ||
          out.size == 0);
    buf_deinit(&out);
}

int main(void)
{
    context = read_json(context_text);
    language();
    real_templates();
    evil_templates();
    CASE(errors_name_the_line);
    CASE(a_failed_render_leaves_the_buffer_as_it_was);
    CASE(each_budget_is_kept);
    CASE(a_string_that_grows_in_a_loop_takes_linear_memory);
    CASE(every_allocation_may_fail);
    CASE(nothing_of_python_can_be_reached);
    json_decref(context);
    return tap_end();
}
