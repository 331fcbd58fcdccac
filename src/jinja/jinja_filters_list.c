/* Filters of templates that work on lists and dicts. */
#include <string.h>

#include "jinja/jinja_eval.h"

/* ---- Attributes ------------------------------------------------------------------------------ */

/* item["a"]["b"] for an attribute "a.b" or a number; none at all gives the item itself. */
static lace_status get_path(jinja_run *r, jv item, jv path, jv *out)
{
    *out = item;
    if (!jinja_param_is_set(path))
        return LACE_OK;
    if (path.kind != JV_STRING)
        return jinja_get_item(r, item, path, out);
    text rest = jv_chars(path);
    TRY(jinja_spend_chars(r, rest.size));
    for (bool is_last = false; !is_last;) {
        size_t dot = chars_find(rest, text_of("."), 0), n_digits = 0;
        is_last = dot == SIZE_MAX;
        text part = {rest.data, is_last ? rest.size : dot};
        while (n_digits < part.size && part.data[n_digits] >= '0' && part.data[n_digits] <= '9')
            n_digits++;
        jv key;
        if (n_digits > 0 && n_digits == part.size && n_digits < 10) {
            int64_t number = 0;
            for (size_t i = 0; i < n_digits; i++)
                number = number * 10 + (part.data[i] - '0');
            key = jv_int(number);
        } else {
            TRY(jv_view(r, part, &key));
        }
        TRY(jinja_spend(r, 1));
        TRY(jinja_get_item(r, *out, key, out));
        if (!is_last)
            rest = (text){rest.data + dot + 1, rest.size - dot - 1};
    }
    return LACE_OK;
}

static const jv *find_arg(const jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (text_is(args->named[i].name.chars, name))
            return &args->named[i].value;
    return NULL;
}

/* ---- map and select -------------------------------------------------------------------------- */

/* Nothing to walk through is fine with these filters, whatever it is. */
static lace_status lenient_items(jinja_run *r, jv v, jv **items, size_t *n)
{
    *items = NULL;
    *n = 0;
    return jv_is_true(v) ? jv_items(r, v, items, n) : LACE_OK;
}

static lace_status filter_map(jinja_run *r, const jinja_call *c, jv *out)
{
    const jv *attribute = find_arg(c->args, "attribute"), *otherwise = find_arg(c->args, "default");
    const jinja_builtin *filter = NULL;
    jinja_args rest = {0};
    jv *items;
    size_t n;
    if (c->args->n > 0) {
        text name;
        TRY(jinja_param_text(r, c->args->items[0], NULL, &name));
        filter = jinja_find_filter(name);
        if (!filter)
            return jinja_fail(r, "no filter named '%.*s'", text_width(name), name.data);
        rest = (jinja_args){c->args->items + 1, c->args->n - 1, c->args->named, c->args->n_named};
    } else if (!attribute) {
        return jinja_fail(r, "map requires a filter argument");
    }
    TRY(lenient_items(r, c->self, &items, &n));
    TRY(jv_list_new(r, JV_GENERATOR, n, out));
    for (size_t i = 0; i < n; i++) {
        jv value;
        if (filter)
            TRY(jinja_call_builtin(r, filter, items[i], &rest, &value));
        else
            TRY(get_path(r, items[i], *attribute, &value));
        if (!filter && otherwise && value.kind == JV_UNDEFINED)
            value = *otherwise;
        TRY(jv_list_add(r, out->as.list, value));
    }
    return LACE_OK;
}

enum { SELECT_TRUE = 1, SELECT_ATTRIBUTE = 2 };

/* The items, or by their attribute, for which a test, named in the arguments, answers as wanted. */
static lace_status filter_select(jinja_run *r, const jinja_call *c, jv *out)
{
    bool with_attribute = c->mode & SELECT_ATTRIBUTE, wanted = c->mode & SELECT_TRUE;
    const jinja_builtin *test = NULL;
    size_t n_own = with_attribute, n;
    jinja_args rest = {0};
    jv *items;
    if (c->args->n < n_own)
        return jinja_fail(r, "the name of an attribute is missing");
    if (c->args->n > n_own) {
        text name;
        TRY(jinja_param_text(r, c->args->items[n_own], NULL, &name));
        test = jinja_find_test(name);
        if (!test)
            return jinja_fail(r, "no test named '%.*s'", text_width(name), name.data);
        n_own++;
        rest = (jinja_args){c->args->items + n_own, c->args->n - n_own, c->args->named,
                            c->args->n_named};
    }
    TRY(lenient_items(r, c->self, &items, &n));
    TRY(jv_list_new(r, JV_GENERATOR, 0, out));
    for (size_t i = 0; i < n; i++) {
        jv value = items[i];
        if (with_attribute)
            TRY(get_path(r, items[i], c->args->items[0], &value));
        if (test)
            TRY(jinja_call_builtin(r, test, value, &rest, &value));
        TRY(jinja_spend(r, 1));
        if (jv_is_true(value) == wanted)
            TRY(jv_list_add(r, out->as.list, items[i]));
    }
    return LACE_OK;
}

/* ---- Plain ones ------------------------------------------------------------------------------ */

static lace_status filter_length(jinja_run *r, const jinja_call *c, jv *out)
{
    if (!jv_is_sized(c->self))
        return jinja_fail(r, "object of type '%s' has no len()", jv_type_name(c->self));
    if (c->self.kind == JV_STRING)
        TRY(jinja_spend_bytes(r, jv_chars(c->self).size));
    *out = jv_int((int64_t)jv_length(c->self));
    return LACE_OK;
}

static lace_status filter_list(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items;
    size_t n;
    TRY(jv_items(r, c->self, &items, &n));
    TRY(jv_list_new(r, JV_LIST, n, out));
    for (size_t i = 0; i < n; i++)
        TRY(jv_list_add(r, out->as.list, items[i]));
    return LACE_OK;
}

static lace_status filter_first(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items;
    size_t n;
    if (c->self.kind == JV_GENERATOR && c->self.as.list->n > 0) {
        /* A generator gives its first item away and keeps the others. */
        *out = *c->self.as.list->items++;
        c->self.as.list->n--;
        c->self.as.list->capacity--;
        return LACE_OK;
    }
    TRY(jv_items(r, c->self, &items, &n));
    if (n == 0)
        return jv_undefined(r, text_of("the first item of nothing"), out);
    *out = items[0];
    return LACE_OK;
}

static lace_status filter_last(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items;
    size_t n;
    if (c->self.kind == JV_GENERATOR)
        return jinja_fail(r, "'generator' object is not reversible");
    TRY(jv_items(r, c->self, &items, &n));
    if (n == 0)
        return jv_undefined(r, text_of("the last item of nothing"), out);
    *out = items[n - 1];
    return LACE_OK;
}

static lace_status filter_reverse(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items;
    size_t n, start = r->out->size;
    TRY(jv_items(r, c->self, &items, &n));
    if (c->self.kind == JV_STRING) {
        for (size_t i = n; i-- > 0;)
            TRY(jv_print(r, items[i]));
        return jinja_take_output(r, start, out);
    }
    TRY(jv_list_new(r, JV_GENERATOR, n, out));
    for (size_t i = n; i-- > 0;)
        TRY(jv_list_add(r, out->as.list, items[i]));
    return LACE_OK;
}

static lace_status filter_join(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items, separator;
    size_t n, start = r->out->size;
    TRY(jv_items(r, c->self, &items, &n));
    TRY(jv_view(r, text_of(""), &separator));
    if (c->p[0].kind != JV_UNSET)
        TRY(jv_to_string(r, c->p[0], &separator));
    for (size_t i = 0; i < n; i++) {
        jv item;
        TRY(get_path(r, items[i], c->p[1], &item));
        if (i > 0)
            TRY(jinja_write_marked(r, jv_marked(separator)));
        TRY(jv_print(r, item));
    }
    return jinja_take_output(r, start, out);
}

static lace_status filter_items(jinja_run *r, const jinja_call *c, jv *out)
{
    TRY(jv_list_new(r, JV_GENERATOR, 0, out));
    if (c->self.kind == JV_UNDEFINED)
        return LACE_OK;
    if (c->self.kind != JV_DICT)
        return jinja_fail(r, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < c->self.as.dict->n; i++) {
        jv pair;
        TRY(jv_pair(r, c->self.as.dict->entries[i].key, c->self.as.dict->entries[i].value, &pair));
        TRY(jv_list_add(r, out->as.list, pair));
    }
    return LACE_OK;
}

static lace_status filter_attr(jinja_run *r, const jinja_call *c, jv *out)
{
    text name;
    TRY(jinja_param_text(r, c->p[0], NULL, &name));
    if (c->self.kind == JV_DICT && !jinja_find_method(JV_DICT, name))
        return jv_undefined(r, name, out); /* attributes only, not members */
    return jinja_get_attr(r, c->self, name, out);
}

static lace_status filter_default(jinja_run *r, const jinja_call *c, jv *out)
{
    bool is_missing = c->self.kind == JV_UNDEFINED || (jv_is_true(c->p[1]) && !jv_is_true(c->self));
    *out = is_missing ? c->p[0] : c->self;
    return out->kind == JV_UNSET ? jv_view(r, text_of(""), out) : LACE_OK;
}

/* ---- Order ----------------------------------------------------------------------------------- */

typedef struct sort_item {
    jv key, value;
} sort_item;

/* What is compared: a string counts in lower case unless case matters. */
static lace_status sort_key(jinja_run *r, jv value, bool is_case_sensitive, jv *out)
{
    *out = value;
    if (value.kind == JV_STRING && !is_case_sensitive)
        return jinja_change_case(r, jv_marked(value), CASE_LOWER, out);
    return LACE_OK;
}

static lace_status sort_keys(jinja_run *r, const jv *values, size_t n, jv attribute,
                             bool is_case_sensitive, sort_item **out)
{
    TRY(jinja_alloc(r, n, sizeof **out, out));
    for (size_t i = 0; i < n; i++) {
        (*out)[i].value = values[i];
        TRY(get_path(r, values[i], attribute, &(*out)[i].key));
        TRY(sort_key(r, (*out)[i].key, is_case_sensitive, &(*out)[i].key));
    }
    return LACE_OK;
}

/* Merge sort from below: stable, in n log n comparisons, each of which may fail. */
static lace_status sort_items(jinja_run *r, sort_item **items, size_t n, bool is_reverse)
{
    sort_item *from = *items, *to;
    TRY(jinja_alloc(r, n, sizeof *to, &to));
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t middle = low + width < n ? low + width : n;
            size_t high = low + 2 * width < n ? low + 2 * width : n;
            for (size_t i = low, j = middle, k = low; k < high; k++) {
                int order = -1;
                if (i < middle && j < high)
                    TRY(jv_compare(r, from[i].key, from[j].key, &order));
                bool takes_left = j >= high || (i < middle && (is_reverse ? -order : order) <= 0);
                to[k] = takes_left ? from[i++] : from[j++];
            }
        }
        sort_item *swap = from;
        from = to;
        to = swap;
    }
    *items = from;
    return LACE_OK;
}

static lace_status sorted_list(jinja_run *r, sort_item *items, size_t n, bool is_reverse, jv *out)
{
    TRY(sort_items(r, &items, n, is_reverse));
    TRY(jv_list_new(r, JV_LIST, n, out));
    for (size_t i = 0; i < n; i++)
        TRY(jv_list_add(r, out->as.list, items[i].value));
    return LACE_OK;
}

static lace_status filter_sort(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *values;
    size_t n;
    sort_item *items;
    TRY(jv_items(r, c->self, &values, &n));
    TRY(sort_keys(r, values, n, c->p[2], jv_is_true(c->p[1]), &items));
    return sorted_list(r, items, n, jv_is_true(c->p[0]), out);
}

static lace_status filter_dictsort(jinja_run *r, const jinja_call *c, jv *out)
{
    text by;
    sort_item *items;
    if (c->self.kind != JV_DICT)
        return jinja_fail(r, "dictsort needs a mapping, not '%s'", jv_type_name(c->self));
    TRY(jinja_param_text(r, c->p[1], "key", &by));
    const jv_dict *d = c->self.as.dict;
    TRY(jinja_alloc(r, d->n, sizeof *items, &items));
    for (size_t i = 0; i < d->n; i++) {
        jv key = text_is(by, "value") ? d->entries[i].value : d->entries[i].key;
        TRY(sort_key(r, key, jv_is_true(c->p[0]), &items[i].key));
        TRY(jv_pair(r, d->entries[i].key, d->entries[i].value, &items[i].value));
    }
    return sorted_list(r, items, d->n, jv_is_true(c->p[2]), out);
}

static lace_status filter_unique(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *values, seen, *found;
    size_t n;
    sort_item *items;
    TRY(jv_items(r, c->self, &values, &n));
    TRY(sort_keys(r, values, n, c->p[1], jv_is_true(c->p[0]), &items));
    TRY(jv_dict_new(r, JV_DICT, &seen));
    TRY(jv_list_new(r, JV_GENERATOR, 0, out));
    for (size_t i = 0; i < n; i++) {
        TRY(jv_dict_find(r, seen.as.dict, items[i].key, &found));
        if (found)
            continue;
        TRY(jv_dict_set(r, seen.as.dict, items[i].key, jv_none()));
        TRY(jv_list_add(r, out->as.list, items[i].value));
    }
    return LACE_OK;
}

/* The mode is the sign of what to look for. */
static lace_status filter_extreme(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *values;
    size_t n, best = 0;
    sort_item *items;
    TRY(jv_items(r, c->self, &values, &n));
    if (n == 0)
        return jv_undefined(r, text_of("the extreme of nothing"), out);
    TRY(sort_keys(r, values, n, c->p[1], jv_is_true(c->p[0]), &items));
    for (size_t i = 1; i < n; i++) {
        int order;
        TRY(jv_compare(r, items[i].key, items[best].key, &order));
        if (order * c->mode > 0)
            best = i;
    }
    *out = items[best].value;
    return LACE_OK;
}

/* ---- Sums and groups ------------------------------------------------------------------------- */

static lace_status filter_sum(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items, item;
    size_t n;
    *out = c->p[1].kind == JV_UNSET ? jv_int(0) : c->p[1];
    TRY(jv_items(r, c->self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        TRY(get_path(r, items[i], c->p[0], &item));
        TRY(jinja_spend(r, 1));
        TRY(jinja_binary(r, BINARY_ADD, *out, item, out));
    }
    return LACE_OK;
}

/* Lists of `linecount` items, the last one filled up if a filler is given. */
static lace_status filter_batch(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items, group = {0};
    size_t n;
    int64_t size;
    TRY(jinja_param_int(r, c->p[0], 0, &size));
    TRY(jv_items(r, c->self, &items, &n));
    if (size <= 0)
        return jinja_fail(r, "batch() needs a number of items above 0");
    TRY(jv_list_new(r, JV_GENERATOR, 0, out));
    for (size_t i = 0; i < n; i++) {
        if (i % (size_t)size == 0) {
            TRY(jv_list_new(r, JV_LIST, 0, &group));
            TRY(jv_list_add(r, out->as.list, group));
        }
        TRY(jv_list_add(r, group.as.list, items[i]));
    }
    while (n > 0 && jinja_param_is_set(c->p[1]) && group.as.list->n < (size_t)size)
        TRY(jv_list_add(r, group.as.list, c->p[1]));
    return LACE_OK;
}

/* (key, items) for each value of an attribute, in its order. */
static lace_status filter_groupby(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *values, group = {0}, pair;
    size_t n;
    sort_item *items;
    bool is_same = false;
    TRY(jv_items(r, c->self, &values, &n));
    TRY(sort_keys(r, values, n, c->p[0], false, &items));
    TRY(sort_items(r, &items, n, false));
    TRY(jv_list_new(r, JV_LIST, 0, out));
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            TRY(jv_equals(r, items[i - 1].key, items[i].key, &is_same));
        if (!is_same) {
            jv key;
            TRY(get_path(r, items[i].value, c->p[0], &key));
            TRY(jv_list_new(r, JV_LIST, 0, &group));
            TRY(jv_pair(r, key, group, &pair));
            TRY(jv_list_add(r, out->as.list, pair));
        }
        TRY(jv_list_add(r, group.as.list, items[i].value));
    }
    return LACE_OK;
}

const jinja_builtin jinja_list_filters[] = {
    {"length", "", filter_length, 0},
    {"count", "", filter_length, 0},
    {"list", "", filter_list, 0},
    {"first", "", filter_first, 0},
    {"last", "", filter_last, 0},
    {"reverse", "", filter_reverse, 0},
    {"join", "d attribute", filter_join, 0},
    {"items", "", filter_items, 0},
    {"attr", "name", filter_attr, 0},
    {"default", "default_value boolean", filter_default, 0},
    {"d", "default_value boolean", filter_default, 0},
    {"map", "*", filter_map, 0},
    {"select", "*", filter_select, SELECT_TRUE},
    {"reject", "*", filter_select, 0},
    {"selectattr", "*", filter_select, SELECT_ATTRIBUTE | SELECT_TRUE},
    {"rejectattr", "*", filter_select, SELECT_ATTRIBUTE},
    {"sort", "reverse case_sensitive attribute", filter_sort, 0},
    {"dictsort", "case_sensitive by reverse", filter_dictsort, 0},
    {"unique", "case_sensitive attribute", filter_unique, 0},
    {"min", "case_sensitive attribute", filter_extreme, -1},
    {"max", "case_sensitive attribute", filter_extreme, 1},
    {"sum", "attribute start", filter_sum, 0},
    {"batch", "linecount fill_with", filter_batch, 0},
    {"groupby", "attribute", filter_groupby, 0},
    {0},
};
