/* Methods of lists, dicts and the other objects in templates. */
#include <string.h>

#include "jinja/jinja_eval.h"

/* ---- Dicts ----------------------------------------------------------------------------------- */

typedef enum dict_part { PART_KEY, PART_VALUE, PART_PAIR } dict_part;

/* The mode is the part. */
static lace_status dict_list(jinja_run *r, const jinja_call *c, jv *out)
{
    const jv_dict *d = c->self.as.dict;
    dict_part part = (dict_part)c->mode;
    TRY(jv_list_new(r, JV_LIST, d->n, out));
    for (size_t i = 0; i < d->n; i++) {
        const jv_entry *e = &d->entries[i];
        jv item = part == PART_VALUE ? e->value : e->key;
        if (part == PART_PAIR)
            TRY(jv_pair(r, e->key, e->value, &item));
        TRY(jv_list_add(r, out->as.list, item));
    }
    return LACE_OK;
}

static lace_status dict_get(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *found;
    if (c->p[0].kind == JV_UNSET)
        return jinja_fail(r, "get() needs a key");
    TRY(jv_dict_find(r, c->self.as.dict, c->p[0], &found));
    *out = found ? *found : c->p[1].kind == JV_UNSET ? jv_none() : c->p[1];
    return LACE_OK;
}

static lace_status dict_pop(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *found;
    if (c->p[0].kind == JV_UNSET)
        return jinja_fail(r, "pop() needs a key");
    TRY(jv_dict_find(r, c->self.as.dict, c->p[0], &found));
    if (!found && c->p[1].kind == JV_UNSET)
        return jinja_fail(r, "pop(): the key does not exist");
    *out = found ? *found : c->p[1];
    return found ? jv_dict_remove(r, c->self.as.dict, found) : LACE_OK;
}

static lace_status dict_setdefault(jinja_run *r, const jinja_call *c, jv *out)
{
    TRY(dict_get(r, c, out));
    jv *found;
    TRY(jv_dict_find(r, c->self.as.dict, c->p[0], &found));
    return found ? LACE_OK : jv_dict_set(r, c->self.as.dict, c->p[0], *out);
}

static lace_status dict_update(jinja_run *r, const jinja_call *c, jv *out)
{
    jv other;
    TRY(jinja_call_builtin(r, jinja_find_function(text_of("dict")), jv_none(), c->args, &other));
    for (size_t i = 0; i < other.as.dict->n; i++)
        TRY(jv_dict_set(r, c->self.as.dict, other.as.dict->entries[i].key,
                        other.as.dict->entries[i].value));
    *out = jv_none();
    return LACE_OK;
}

static lace_status dict_copy(jinja_run *r, const jinja_call *c, jv *out)
{
    jinja_args self = {.items = &c->self, .n = 1};
    return jinja_call_builtin(r, jinja_find_function(text_of("dict")), jv_none(), &self, out);
}

const jinja_builtin jinja_dict_methods[] = {
    {"get", "key default", dict_get, 0},
    {"items", "", dict_list, PART_PAIR},
    {"keys", "", dict_list, PART_KEY},
    {"values", "", dict_list, PART_VALUE},
    {"pop", "key default", dict_pop, 0},
    {"setdefault", "key default", dict_setdefault, 0},
    {"update", "*", dict_update, 0},
    {"copy", "", dict_copy, 0},
    {0},
};

/* ---- Lists ----------------------------------------------------------------------------------- */

static lace_status list_append(jinja_run *r, const jinja_call *c, jv *out)
{
    if (c->p[0].kind == JV_UNSET)
        return jinja_fail(r, "append() needs an item");
    *out = jv_none();
    return jv_list_add(r, c->self.as.list, c->p[0]);
}

static lace_status list_extend(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items;
    size_t n;
    TRY(jv_items(r, c->p[0], &items, &n));
    for (size_t i = 0; i < n; i++)
        TRY(jv_list_add(r, c->self.as.list, items[i]));
    *out = jv_none();
    return LACE_OK;
}

/* An index into a list as Python reads it; false if there is no such item. */
static bool list_place(const jv_list *list, int64_t i, size_t *out)
{
    if (i < 0)
        i += (int64_t)list->n;
    *out = (size_t)i;
    return i >= 0 && (uint64_t)i < list->n;
}

static lace_status list_pop(jinja_run *r, const jinja_call *c, jv *out)
{
    jv_list *list = c->self.as.list;
    int64_t i;
    size_t at;
    TRY(jinja_param_int(r, c->p[0], -1, &i));
    if (!list_place(list, i, &at))
        return jinja_fail(r, "pop index out of range");
    *out = list->items[at];
    TRY(jinja_spend(r, (list->n - at) / 16));
    memmove(list->items + at, list->items + at + 1, (list->n - at - 1) * sizeof *list->items);
    list->n--;
    return LACE_OK;
}

static lace_status list_insert(jinja_run *r, const jinja_call *c, jv *out)
{
    jv_list *list = c->self.as.list;
    int64_t i;
    TRY(jinja_param_int(r, c->p[0], 0, &i));
    int64_t n = (int64_t)list->n;
    if (i < 0)
        i += n;
    size_t at = (size_t)(i < 0 ? 0 : i > n ? n : i);
    TRY(jv_list_add(r, list, jv_none()));
    TRY(jinja_spend(r, (list->n - at) / 16));
    memmove(list->items + at + 1, list->items + at, (list->n - 1 - at) * sizeof *list->items);
    list->items[at] = c->p[1];
    *out = jv_none();
    return LACE_OK;
}

static lace_status list_index(jinja_run *r, const jinja_call *c, jv *out)
{
    for (size_t i = 0; i < c->self.as.list->n; i++) {
        bool is_equal;
        TRY(jv_equals(r, c->self.as.list->items[i], c->p[0], &is_equal));
        if (is_equal) {
            *out = jv_int((int64_t)i);
            return LACE_OK;
        }
    }
    return jinja_fail(r, "the value is not in the list");
}

static lace_status list_count(jinja_run *r, const jinja_call *c, jv *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.as.list->n; i++) {
        bool is_equal;
        TRY(jv_equals(r, c->self.as.list->items[i], c->p[0], &is_equal));
        n += is_equal;
    }
    *out = jv_int(n);
    return LACE_OK;
}

static lace_status list_copy(jinja_run *r, const jinja_call *c, jv *out)
{
    jv unset[3] = {0};
    return jinja_get_slice(r, c->self, unset, out);
}

static lace_status list_reverse(jinja_run *r, const jinja_call *c, jv *out)
{
    jv_list *list = c->self.as.list;
    TRY(jinja_spend(r, list->n));
    for (size_t i = 0; i < list->n / 2; i++) {
        jv swap = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
    *out = jv_none();
    return LACE_OK;
}

const jinja_builtin jinja_list_methods[] = {
    {"append", "object", list_append, 0},
    {"extend", "iterable", list_extend, 0},
    {"pop", "index", list_pop, 0},
    {"insert", "index object", list_insert, 0},
    {"index", "value", list_index, 0},
    {"count", "value", list_count, 0},
    {"copy", "", list_copy, 0},
    {"reverse", "", list_reverse, 0},
    {0},
};

const jinja_builtin jinja_tuple_methods[] = {
    {"index", "value", list_index, 0},
    {"count", "value", list_count, 0},
    {0},
};

/* ---- Loops, cyclers -------------------------------------------------------------------------- */

static lace_status loop_cycle(jinja_run *r, const jinja_call *c, jv *out)
{
    if (c->args->n == 0)
        return jinja_fail(r, "no items for cycling given");
    *out = c->args->items[c->self.as.loop->at % c->args->n];
    return LACE_OK;
}

static lace_status loop_changed(jinja_run *r, const jinja_call *c, jv *out)
{
    jinja_loop *loop = c->self.as.loop;
    jv now;
    bool is_equal;
    TRY(jv_list_new(r, JV_TUPLE, 0, &now));
    for (size_t i = 0; i < c->args->n; i++)
        TRY(jv_list_add(r, now.as.list, c->args->items[i]));
    TRY(jv_equals(r, loop->last_changed, now, &is_equal));
    loop->last_changed = now;
    *out = jv_bool(!is_equal);
    return LACE_OK;
}

const jinja_builtin jinja_loop_methods[] = {
    {"cycle", "*", loop_cycle, 0},
    {"changed", "*", loop_changed, 0},
    {0},
};

static lace_status cycler_next(jinja_run *r, const jinja_call *c, jv *out)
{
    jv_list *list = c->self.as.list;
    *out = list->items[list->at];
    list->at = (list->at + 1) % list->n;
    return LACE_OK;
}

static lace_status cycler_reset(jinja_run *r, const jinja_call *c, jv *out)
{
    c->self.as.list->at = 0;
    *out = jv_none();
    return LACE_OK;
}

const jinja_builtin jinja_cycler_methods[] = {
    {"next", "", cycler_next, 0},
    {"reset", "", cycler_reset, 0},
    {0},
};

const jinja_builtin *jinja_find_method(jv_kind kind, text name)
{
    static const jinja_builtin *const tables[JV_JOINER + 1] = {
        [JV_STRING] = jinja_string_methods, [JV_LIST] = jinja_list_methods,
        [JV_TUPLE] = jinja_tuple_methods,   [JV_DICT] = jinja_dict_methods,
        [JV_LOOP] = jinja_loop_methods,     [JV_CYCLER] = jinja_cycler_methods,
    };
    return tables[kind] ? jinja_find_row(tables[kind], name) : NULL;
}
