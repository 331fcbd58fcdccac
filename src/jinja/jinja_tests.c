/* The tests of templates: what may stand behind `is`. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/jinja_eval.h"

static lace_status answer(jv *out, bool is_true)
{
    *out = jv_bool(is_true);
    return LACE_OK;
}

static lace_status test_defined(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind != JV_UNDEFINED);
}

/* The mode is the kind of value that is asked for. */
static lace_status test_kind(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == (jv_kind)c->mode);
}

static lace_status test_true(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_BOOL && c->self.as.b);
}

static lace_status test_false(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_BOOL && !c->self.as.b);
}

static lace_status test_number(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, jv_is_number(c->self));
}

static lace_status test_iterable(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, jv_is_sized(c->self) || c->self.kind == JV_GENERATOR);
}

/* Python asks for a length and for items, which a dict and even an undefined value offer. */
static lace_status test_sequence(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, jv_is_sized(c->self) && c->self.kind != JV_LOOP);
}

static lace_status test_callable(jinja_run *r, const jinja_call *c, jv *out)
{
    jv_kind k = c->self.kind;
    return answer(out, k == JV_MACRO || k == JV_FUNCTION || k == JV_METHOD || k == JV_LOOP ||
                           k == JV_JOINER || k == JV_UNDEFINED);
}

static lace_status test_escaped(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_STRING && c->self.is_safe);
}

static lace_status modulo(jinja_run *r, jv value, jv divisor, jv *out)
{
    return jinja_binary(r, BINARY_MOD, value, divisor, out);
}

static lace_status test_odd(jinja_run *r, const jinja_call *c, jv *out)
{
    jv rest;
    TRY(modulo(r, c->self, jv_int(2), &rest));
    return answer(out, jv_is_number(rest) && jv_number(rest) == 1);
}

static lace_status test_even(jinja_run *r, const jinja_call *c, jv *out)
{
    jv rest;
    TRY(modulo(r, c->self, jv_int(2), &rest));
    return answer(out, jv_is_number(rest) && jv_number(rest) == 0);
}

static lace_status test_divisibleby(jinja_run *r, const jinja_call *c, jv *out)
{
    jv rest;
    TRY(modulo(r, c->self, c->p[0], &rest));
    return answer(out, jv_is_number(rest) && jv_number(rest) == 0);
}

/* Whether all letters are of one case, and there is one. */
static lace_status test_case(jinja_run *r, const jinja_call *c, jv *out)
{
    bool upper = c->mode == CASE_UPPER;
    jv string;
    bool has_letter = false;
    TRY(jv_to_string(r, c->self, &string));
    text t = jv_chars(string);
    TRY(jinja_spend(r, t.size / 4)); /* tables of Unicode are slow */
    for (size_t i = 0; i < t.size;) {
        uint32_t code;
        i += (size_t)utf8_decode(t.data + i, t.size - i, &code);
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
        if (category == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
            return answer(out, false);
        has_letter |= category == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return answer(out, has_letter);
}

static lace_status test_sameas(jinja_run *r, const jinja_call *c, jv *out)
{
    if (c->self.kind != c->p[0].kind)
        return answer(out, false);
    if (jv_is_number(c->self) || c->self.kind == JV_STRING || c->self.kind == JV_NONE) {
        bool is_equal;
        TRY(jv_equals(r, c->self, c->p[0], &is_equal));
        return answer(out, is_equal);
    }
    return answer(out, c->self.as.list == c->p[0].as.list);
}

static lace_status test_filter(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_STRING && jinja_find_filter(jv_chars(c->self)));
}

static lace_status test_test(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_STRING && jinja_find_test(jv_chars(c->self)));
}

/* The mode is the comparison. */
static lace_status test_compare(jinja_run *r, const jinja_call *c, jv *out)
{
    bool is_true;
    if (c->p[0].kind == JV_UNSET)
        return jinja_fail(r, "a comparison needs something to compare with");
    TRY(jinja_compare(r, (compare_op)c->mode, c->self, c->p[0], &is_true));
    return answer(out, is_true);
}

const jinja_builtin jinja_tests[] = {
    {"defined", "", test_defined, 0},
    {"undefined", "", test_kind, JV_UNDEFINED},
    {"none", "", test_kind, JV_NONE},
    {"boolean", "", test_kind, JV_BOOL},
    {"true", "", test_true, 0},
    {"false", "", test_false, 0},
    {"integer", "", test_kind, JV_INT},
    {"float", "", test_kind, JV_FLOAT},
    {"number", "", test_number, 0},
    {"string", "", test_kind, JV_STRING},
    {"mapping", "", test_kind, JV_DICT},
    {"iterable", "", test_iterable, 0},
    {"sequence", "", test_sequence, 0},
    {"callable", "", test_callable, 0},
    {"escaped", "", test_escaped, 0},
    {"odd", "", test_odd, 0},
    {"even", "", test_even, 0},
    {"divisibleby", "num", test_divisibleby, 0},
    {"lower", "", test_case, CASE_LOWER},
    {"upper", "", test_case, CASE_UPPER},
    {"sameas", "other", test_sameas, 0},
    {"filter", "", test_filter, 0},
    {"test", "", test_test, 0},
    {"eq", "other", test_compare, COMPARE_EQ},
    {"equalto", "other", test_compare, COMPARE_EQ},
    {"==", "other", test_compare, COMPARE_EQ},
    {"ne", "other", test_compare, COMPARE_NE},
    {"!=", "other", test_compare, COMPARE_NE},
    {"lt", "other", test_compare, COMPARE_LT},
    {"lessthan", "other", test_compare, COMPARE_LT},
    {"<", "other", test_compare, COMPARE_LT},
    {"le", "other", test_compare, COMPARE_LE},
    {"<=", "other", test_compare, COMPARE_LE},
    {"gt", "other", test_compare, COMPARE_GT},
    {"greaterthan", "other", test_compare, COMPARE_GT},
    {">", "other", test_compare, COMPARE_GT},
    {"ge", "other", test_compare, COMPARE_GE},
    {">=", "other", test_compare, COMPARE_GE},
    {"in", "seq", test_compare, COMPARE_IN},
    {0},
};

const jinja_builtin *jinja_find_test(text name)
{
    return jinja_find_row(jinja_tests, name);
}
