/* Attributes, items and slices of values. */
#include "jinja/jinja_eval.h"

static lace_status no_such(jinja_run *r, jv object, text name, jv *out)
{
    if (object.kind == JV_UNDEFINED) {
        text what = jv_chars(object);
        return jinja_fail(r, "'%.*s' is undefined", text_width(what), what.data);
    }
    return jv_undefined(r, name, out);
}

static lace_status loop_attr(jinja_run *r, const jinja_loop *loop, text name, jv *out)
{
    const struct {
        const char *name;
        jv value;
    } numbers[] = {
        {"index", jv_int((int64_t)loop->at + 1)},
        {"index0", jv_int((int64_t)loop->at)},
        {"revindex", jv_int((int64_t)(loop->n - loop->at))},
        {"revindex0", jv_int((int64_t)(loop->n - loop->at) - 1)},
        {"first", jv_bool(loop->at == 0)},
        {"last", jv_bool(loop->at + 1 == loop->n)},
        {"length", jv_int((int64_t)loop->n)},
        {"depth", jv_int(loop->depth + 1)},
        {"depth0", jv_int(loop->depth)},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (text_is(name, numbers[i].name)) {
            *out = numbers[i].value;
            return LACE_OK;
        }
    }
    if (text_is(name, "previtem") && loop->at > 0) {
        *out = loop->items[loop->at - 1];
        return LACE_OK;
    }
    if (text_is(name, "nextitem") && loop->at + 1 < loop->n) {
        *out = loop->items[loop->at + 1];
        return LACE_OK;
    }
    return jv_undefined(r, name, out);
}

/* A builtin method of the object, or *is_found is false. */
static lace_status find_method(jinja_run *r, jv object, text name, bool *is_found, jv *out)
{
    const jinja_builtin *builtin = jinja_find_method(object.kind, name);
    *is_found = builtin != NULL;
    if (!builtin)
        return LACE_OK;
    jv_bound *bound;
    TRY(jinja_alloc(r, 1, sizeof *bound, &bound));
    *bound = (jv_bound){builtin, object};
    *out = (jv){.kind = JV_METHOD, .as.bound = bound};
    return LACE_OK;
}

lace_status jinja_get_attr(jinja_run *r, jv object, text name, jv *out)
{
    bool is_found;
    jv *member = NULL;
    TRY(find_method(r, object, name, &is_found, out));
    if (is_found)
        return LACE_OK;
    switch (object.kind) {
    case JV_DICT:
    case JV_NAMESPACE:
        TRY(jv_dict_find_text(r, object.as.dict, name, &member));
        break;
    case JV_LOOP:
        return loop_attr(r, object.as.loop, name, out);
    case JV_MACRO:
        if (text_is(name, "name"))
            return jv_view(r, object.as.macro->definition->chars, out);
        break;
    case JV_CYCLER:
        if (text_is(name, "current"))
            member = &object.as.list->items[object.as.list->at];
        break;
    default:
        break;
    }
    if (member) {
        *out = *member;
        return LACE_OK;
    }
    return no_such(r, object, name, out);
}

/* Item number i, counted from the end if negative, or *out stays as it is. */
static lace_status get_number(jinja_run *r, jv object, int64_t i, bool *is_found, jv *out)
{
    size_t n = jv_length(object);
    *is_found = false;
    if (object.kind == JV_STRING)
        TRY(jinja_spend_chars(r, jv_chars(object).size));
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n)
        return LACE_OK;
    *is_found = true;
    if (object.kind != JV_STRING) {
        *out = object.as.list->items[i];
        return LACE_OK;
    }
    text all = jv_chars(object);
    size_t from = chars_offset(all, (size_t)i);
    text rest = {all.data + from, all.size - from};
    text one = {rest.data, chars_offset(rest, 1)};
    TRY(jv_part(r, marked_part(jv_marked(object), one), out));
    out->is_safe = object.is_safe;
    return LACE_OK;
}

lace_status jinja_get_item(jinja_run *r, jv object, jv key, jv *out)
{
    bool is_found = false;
    if (object.kind == JV_DICT) {
        jv *member;
        TRY(jv_dict_find(r, object.as.dict, key, &member));
        if (member) {
            *out = *member;
            return LACE_OK;
        }
    } else if ((object.kind == JV_LIST || object.kind == JV_TUPLE || object.kind == JV_STRING) &&
               jv_is_int(key)) {
        TRY(get_number(r, object, jv_as_int(key), &is_found, out));
        if (is_found)
            return LACE_OK;
    }
    /* What is no item may be an attribute, but not a member of a dict once more. */
    if (key.kind == JV_STRING && object.kind != JV_DICT)
        return jinja_get_attr(r, object, jv_chars(key), out);
    if (key.kind == JV_STRING) {
        TRY(find_method(r, object, jv_chars(key), &is_found, out));
        if (is_found)
            return LACE_OK;
    }
    return no_such(r, object, key.kind == JV_STRING ? jv_chars(key) : text_of("item"), out);
}

/* ---- Slices ---------------------------------------------------------------------------------- */

/* A bound as Python reads it: from the end if negative, cut to [low, high]. */
static lace_status slice_bound(jinja_run *r, jv bound, int64_t n, int64_t low, int64_t high,
                               int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (bound.kind == JV_UNSET || bound.kind == JV_NONE)
        return LACE_OK;
    if (!jv_is_int(bound))
        return jinja_fail(r, "slice indices must be integers or None, not %s", jv_type_name(bound));
    int64_t i = jv_as_int(bound);
    if (i < 0)
        i += n;
    *out = i < low ? low : i > high ? high : i;
    return LACE_OK;
}

static lace_status slice_string(jinja_run *r, jv object, int64_t from, int64_t step, size_t count,
                                jv *out)
{
    text all = jv_chars(object);
    TRY(jinja_spend_chars(r, all.size));
    if (step == 1) {
        size_t begin = chars_offset(all, (size_t)from);
        text rest = {all.data + begin, all.size - begin};
        text part = {rest.data, chars_offset(rest, count)};
        TRY(jv_part(r, marked_part(jv_marked(object), part), out));
    } else {
        jv *chars;
        size_t n_chars, start = r->out->size;
        TRY(jv_items(r, object, &chars, &n_chars));
        for (size_t k = 0; k < count; k++, from += step) {
            TRY(jinja_spend(r, 1));
            TRY(jv_print(r, chars[from]));
        }
        TRY(jinja_take_output(r, start, out));
    }
    out->is_safe = object.is_safe;
    return LACE_OK;
}

lace_status jinja_get_slice(jinja_run *r, jv object, const jv bounds[3], jv *out)
{
    if (object.kind == JV_UNDEFINED)
        return no_such(r, object, text_of("slice"), out);
    if (object.kind != JV_STRING && object.kind != JV_LIST && object.kind != JV_TUPLE)
        return jinja_fail(r, "'%s' object is not subscriptable by a slice", jv_type_name(object));
    int64_t n = (int64_t)jv_length(object), step = 1, from, to;
    if (bounds[2].kind != JV_UNSET && bounds[2].kind != JV_NONE) {
        if (!jv_is_int(bounds[2]) || jv_as_int(bounds[2]) == 0)
            return jinja_fail(r, "slice step must be an integer other than zero");
        step = jv_as_int(bounds[2]);
    }
    /* Steps longer than the whole give one item, and are cut so that nothing overflows. */
    step = step > n ? n + 1 : step < -n ? -n - 1 : step;
    bool is_back = step < 0;
    int64_t low = is_back ? -1 : 0, high = is_back ? n - 1 : n;
    TRY(slice_bound(r, bounds[0], n, low, high, is_back ? high : low, &from));
    TRY(slice_bound(r, bounds[1], n, low, high, is_back ? low : high, &to));
    int64_t distance = is_back ? from - to : to - from, stride = is_back ? -step : step;
    size_t count = distance > 0 ? (size_t)((distance + stride - 1) / stride) : 0;
    if (object.kind == JV_STRING)
        return slice_string(r, object, from, step, count, out);
    TRY(jv_list_new(r, object.kind, count, out));
    for (size_t k = 0; k < count; k++, from += step)
        TRY(jv_list_add(r, out->as.list, object.as.list->items[from]));
    return LACE_OK;
}
