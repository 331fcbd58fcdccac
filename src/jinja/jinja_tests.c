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

static lace_status test_undefined(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_UNDEFINED);
}

static lace_status test_none(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_NONE);
}

static lace_status test_boolean(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_BOOL);
}

static lace_status test_true(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_BOOL && c->self.as.b);
}

static lace_status test_false(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_BOOL && !c->self.as.b);
}

static lace_status test_integer(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_INT);
}

static lace_status test_float(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_FLOAT);
}

static lace_status test_number(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, jv_is_number(c->self));
}

static lace_status test_string(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_STRING);
}

static lace_status test_mapping(jinja_run *r, const jinja_call *c, jv *out)
{
    return answer(out, c->self.kind == JV_DICT);
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
static lace_status is_cased(jinja_run *r, jv v, bool upper, jv *out)
{
    jv string;
    bool has_letter = false;
    TRY(jv_to_string(r, v, &string));
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

static lace_status test_lower(jinja_run *r, const jinja_call *c, jv *out)
{
    return is_cased(r, c->self, false, out);
}

static lace_status test_upper(jinja_run *r, const jinja_call *c, jv *out)
{
    return is_cased(r, c->self, true, out);
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

#define COMPARISON(name, op)                                                                       \
    static lace_status test_##name(jinja_run *r, const jinja_call *c, jv *out)                     \
    {                                                                                              \
        bool is_true;                                                                              \
        if (c->p[0].kind == JV_UNSET)                                                              \
            return jinja_fail(r, "a comparison needs something to compare with");                  \
        TRY(jinja_compare(r, op, c->self, c->p[0], &is_true));                                     \
        return answer(out, is_true);                                                               \
    }
COMPARISON(eq, COMPARE_EQ)
COMPARISON(ne, COMPARE_NE)
COMPARISON(lt, COMPARE_LT)
COMPARISON(le, COMPARE_LE)
COMPARISON(gt, COMPARE_GT)
COMPARISON(ge, COMPARE_GE)
COMPARISON(in, COMPARE_IN)
#undef COMPARISON

const jinja_builtin jinja_tests[] = {
    {"defined", "", test_defined},
    {"undefined", "", test_undefined},
    {"none", "", test_none},
    {"boolean", "", test_boolean},
    {"true", "", test_true},
    {"false", "", test_false},
    {"integer", "", test_integer},
    {"float", "", test_float},
    {"number", "", test_number},
    {"string", "", test_string},
    {"mapping", "", test_mapping},
    {"iterable", "", test_iterable},
    {"sequence", "", test_sequence},
    {"callable", "", test_callable},
    {"escaped", "", test_escaped},
    {"odd", "", test_odd},
    {"even", "", test_even},
    {"divisibleby", "num", test_divisibleby},
    {"lower", "", test_lower},
    {"upper", "", test_upper},
    {"sameas", "other", test_sameas},
    {"filter", "", test_filter},
    {"test", "", test_test},
    {"eq", "other", test_eq},
    {"equalto", "other", test_eq},
    {"==", "other", test_eq},
    {"ne", "other", test_ne},
    {"!=", "other", test_ne},
    {"lt", "other", test_lt},
    {"lessthan", "other", test_lt},
    {"<", "other", test_lt},
    {"le", "other", test_le},
    {"<=", "other", test_le},
    {"gt", "other", test_gt},
    {"greaterthan", "other", test_gt},
    {">", "other", test_gt},
    {"ge", "other", test_ge},
    {">=", "other", test_ge},
    {"in", "seq", test_in},
    {0},
};

const jinja_builtin *jinja_find_test(text name)
{
    return jinja_find_row(jinja_tests, name);
}
