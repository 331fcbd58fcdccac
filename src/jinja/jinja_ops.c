/* The operators of templates on values: arithmetic and comparisons, as in Python. */
#include <math.h>

#include "jinja/jinja_eval.h"

static const char *const op_signs[] = {"+", "-", "*", "/", "//", "%", "**"};

static lace_status overflow(jinja_run *r)
{
    return jinja_limit(r, "digits of an integer");
}

static lace_status int_pow(jinja_run *r, int64_t base, int64_t exponent, jv *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return jinja_fail(r, "0.0 cannot be raised to a negative power");
        *out = jv_float(pow((double)base, (double)exponent));
        return LACE_OK;
    }
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return overflow(r);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return overflow(r);
    }
    *out = jv_int(result);
    return LACE_OK;
}

static lace_status int_op(jinja_run *r, binary_op op, int64_t a, int64_t b, jv *out)
{
    int64_t result = 0;
    bool is_too_large = false;
    switch (op) {
    case BINARY_ADD:
        is_too_large = __builtin_add_overflow(a, b, &result);
        break;
    case BINARY_SUB:
        is_too_large = __builtin_sub_overflow(a, b, &result);
        break;
    case BINARY_MUL:
        is_too_large = __builtin_mul_overflow(a, b, &result);
        break;
    case BINARY_POW:
        return int_pow(r, a, b, out);
    default:
        if (b == 0)
            return jinja_fail(r, "division by zero");
        if (op == BINARY_DIV) {
            *out = jv_float((double)a / (double)b);
            return LACE_OK;
        }
        if (b == -1) { /* the smallest integer has no opposite */
            is_too_large = op == BINARY_FLOORDIV && __builtin_sub_overflow(0, a, &result);
            break;
        }
        bool rounds_up = a % b != 0 && (a < 0) != (b < 0); /* C cuts toward 0, Python down */
        result = op == BINARY_MOD ? a % b + (rounds_up ? b : 0) : a / b - rounds_up;
        break;
    }
    if (is_too_large)
        return overflow(r);
    *out = jv_int(result);
    return LACE_OK;
}

static lace_status float_op(jinja_run *r, binary_op op, double a, double b, jv *out)
{
    if (b == 0 && (op == BINARY_DIV || op == BINARY_FLOORDIV || op == BINARY_MOD))
        return jinja_fail(r, "float division by zero");
    double remainder = op == BINARY_MOD ? fmod(a, b) : 0;
    switch (op) {
    case BINARY_ADD:
        *out = jv_float(a + b);
        break;
    case BINARY_SUB:
        *out = jv_float(a - b);
        break;
    case BINARY_MUL:
        *out = jv_float(a * b);
        break;
    case BINARY_DIV:
        *out = jv_float(a / b);
        break;
    case BINARY_FLOORDIV:
        *out = jv_float(floor(a / b));
        break;
    case BINARY_MOD:
        *out = jv_float(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
        break;
    case BINARY_POW:
        *out = jv_float(pow(a, b));
        break;
    }
    return LACE_OK;
}

/* A string or list, n times. */
static lace_status repeat(jinja_run *r, jv v, int64_t n, jv *out)
{
    size_t times = n > 0 ? (size_t)n : 0;
    if (v.kind == JV_STRING) {
        size_t start = r->out->size;
        TRY(jinja_write_fill(r, jv_marked(v), times));
        TRY(jinja_take_output(r, start, out));
        out->is_safe = v.is_safe;
        return LACE_OK;
    }
    size_t length = v.as.list->n;
    if (length > 0 && times > SIZE_MAX / sizeof(jv) / length)
        return jinja_limit(r, "bytes of memory");
    TRY(jv_list_new(r, v.kind, length * times, out));
    for (size_t i = 0; i < length * times; i++)
        TRY(jv_list_add(r, out->as.list, v.as.list->items[i % length]));
    return LACE_OK;
}

static lace_status add_strings(jinja_run *r, jv a, jv b, jv *out)
{
    if (a.is_safe != b.is_safe) {
        /* Markup escapes whatever is added to either side of it. */
        TRY(jv_escape(r, a, &a));
        TRY(jv_escape(r, b, &b));
    }
    return jv_concat(r, a, jv_marked(b), out);
}

static lace_status add_lists(jinja_run *r, jv a, jv b, jv *out)
{
    TRY(jv_list_new(r, a.kind, a.as.list->n + b.as.list->n, out));
    for (size_t i = 0; i < a.as.list->n; i++)
        TRY(jv_list_add(r, out->as.list, a.as.list->items[i]));
    for (size_t i = 0; i < b.as.list->n; i++)
        TRY(jv_list_add(r, out->as.list, b.as.list->items[i]));
    return LACE_OK;
}

static bool is_repeatable(jv v)
{
    return v.kind == JV_STRING || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

static lace_status percent(jinja_run *r, jv format, jv value, jv *out)
{
    jinja_args args = {&value, 1, NULL, 0};
    if (value.kind == JV_TUPLE)
        args = (jinja_args){value.as.list->items, value.as.list->n, NULL, 0};
    TRY(jinja_format_percent(r, jv_marked(format), &args, out));
    out->is_safe = format.is_safe;
    return LACE_OK;
}

lace_status jinja_binary(jinja_run *r, binary_op op, jv a, jv b, jv *out)
{
    if (jv_is_int(a) && jv_is_int(b))
        return int_op(r, op, jv_as_int(a), jv_as_int(b), out);
    if (jv_is_number(a) && jv_is_number(b))
        return float_op(r, op, jv_number(a), jv_number(b), out);
    if (op == BINARY_MOD && a.kind == JV_STRING)
        return percent(r, a, b, out);
    jv undefined = a.kind == JV_UNDEFINED ? a : b;
    if (undefined.kind == JV_UNDEFINED)
        return jinja_fail(r, "'%.*s' is undefined", text_width(jv_chars(undefined)),
                          jv_chars(undefined).data);
    if (op == BINARY_ADD && a.kind == JV_STRING && b.kind == JV_STRING)
        return add_strings(r, a, b, out);
    if (op == BINARY_ADD && a.kind == b.kind && is_repeatable(a))
        return add_lists(r, a, b, out);
    if (op == BINARY_MUL && is_repeatable(a) && jv_is_int(b))
        return repeat(r, a, jv_as_int(b), out);
    if (op == BINARY_MUL && jv_is_int(a) && is_repeatable(b))
        return repeat(r, b, jv_as_int(a), out);
    return jinja_fail(r, "unsupported operand types for %s: '%s' and '%s'", op_signs[op],
                      jv_type_name(a), jv_type_name(b));
}

lace_status jinja_compare(jinja_run *r, compare_op op, jv a, jv b, bool *out)
{
    int order;
    switch (op) {
    case COMPARE_EQ:
    case COMPARE_NE:
        TRY(jv_equals(r, a, b, out));
        *out ^= op == COMPARE_NE;
        return LACE_OK;
    case COMPARE_IN:
    case COMPARE_NOT_IN:
        TRY(jv_contains(r, b, a, out));
        *out ^= op == COMPARE_NOT_IN;
        return LACE_OK;
    default:
        break;
    }
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        return jinja_binary(r, BINARY_SUB, a, b, &a); /* says what is undefined */
    if ((a.kind == JV_FLOAT && isnan(a.as.f)) || (b.kind == JV_FLOAT && isnan(b.as.f))) {
        *out = false;
        return LACE_OK;
    }
    TRY(jv_compare(r, a, b, &order));
    *out = op == COMPARE_LT   ? order < 0
           : op == COMPARE_LE ? order <= 0
           : op == COMPARE_GT ? order > 0
                              : order >= 0;
    return LACE_OK;
}
