/* Values of templates: making, comparing and walking them. */
#include "jinja/jinja_value.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "jinja/jinja_eval.h"

/* ---- Plain values ---------------------------------------------------------------------------- */

jv jv_none(void)
{
    return (jv){.kind = JV_NONE};
}

jv jv_bool(bool b)
{
    return (jv){.kind = JV_BOOL, .as.b = b};
}

jv jv_int(int64_t i)
{
    return (jv){.kind = JV_INT, .as.i = i};
}

jv jv_float(double f)
{
    return (jv){.kind = JV_FLOAT, .as.f = f};
}

bool jv_is_int(jv v)
{
    return v.kind == JV_INT || v.kind == JV_BOOL;
}

int64_t jv_as_int(jv v)
{
    return v.kind == JV_BOOL ? v.as.b : v.as.i;
}

bool jv_is_number(jv v)
{
    return jv_is_int(v) || v.kind == JV_FLOAT;
}

double jv_number(jv v)
{
    return v.kind == JV_FLOAT ? v.as.f : (double)jv_as_int(v);
}

text jv_chars(jv v)
{
    return v.as.s->all.chars;
}

marked jv_marked(jv v)
{
    return v.as.s->all;
}

marked marked_own(text chars)
{
    return (marked){.chars = chars};
}

marked marked_part(marked whole, text part)
{
    const uint8_t *marks = whole.marks ? whole.marks + (part.data - whole.chars.data) : NULL;
    return (marked){part, marks, whole.is_content};
}

bool marked_is_content(marked m, size_t at)
{
    return m.marks ? m.marks[at] : m.is_content;
}

const char *jv_type_name(jv v)
{
    static const char *const names[] = {
        [JV_UNSET] = "nothing",     [JV_UNDEFINED] = "Undefined",
        [JV_NONE] = "NoneType",     [JV_BOOL] = "bool",
        [JV_INT] = "int",           [JV_FLOAT] = "float",
        [JV_STRING] = "str",        [JV_LIST] = "list",
        [JV_TUPLE] = "tuple",       [JV_GENERATOR] = "generator",
        [JV_DICT] = "dict",         [JV_NAMESPACE] = "Namespace",
        [JV_LOOP] = "LoopContext",  [JV_MACRO] = "Macro",
        [JV_FUNCTION] = "function", [JV_METHOD] = "method",
        [JV_CYCLER] = "Cycler",     [JV_JOINER] = "Joiner",
    };
    return names[v.kind];
}

static bool is_sequence(jv v)
{
    return v.kind == JV_LIST || v.kind == JV_TUPLE;
}

bool jv_is_sized(jv v)
{
    return v.kind == JV_STRING || is_sequence(v) || v.kind == JV_DICT || v.kind == JV_UNDEFINED ||
           v.kind == JV_LOOP;
}

size_t jv_length(jv v)
{
    switch (v.kind) {
    case JV_STRING:
        return chars_count(jv_chars(v));
    case JV_LIST:
    case JV_TUPLE:
        return v.as.list->n;
    case JV_DICT:
        return v.as.dict->n;
    case JV_LOOP:
        return v.as.loop->n;
    default:
        return 0;
    }
}

bool jv_is_true(jv v)
{
    switch (v.kind) {
    case JV_UNSET:
    case JV_UNDEFINED:
    case JV_NONE:
        return false;
    case JV_BOOL:
        return v.as.b;
    case JV_INT:
        return v.as.i != 0;
    case JV_FLOAT:
        return v.as.f != 0;
    case JV_STRING:
        return jv_chars(v).size > 0;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_LOOP:
        return jv_length(v) > 0;
    default:
        return true;
    }
}

/* ---- Strings --------------------------------------------------------------------------------- */

lace_status jv_part(jinja_run *r, marked part, jv *out)
{
    jv_string *s;
    TRY(jinja_alloc(r, 1, sizeof *s, &s));
    s->all = part;
    *out = (jv){.kind = JV_STRING, .as.s = s};
    return LACE_OK;
}

lace_status jv_view(jinja_run *r, text chars, jv *out)
{
    return jv_part(r, marked_own(chars), out);
}

lace_status jv_undefined(jinja_run *r, text what, jv *out)
{
    TRY(jv_view(r, what, out));
    out->kind = JV_UNDEFINED;
    return LACE_OK;
}

static void copy_marks(uint8_t *to, marked m)
{
    if (m.chars.size && m.marks)
        memcpy(to, m.marks, m.chars.size);
    else if (m.chars.size)
        memset(to, m.is_content, m.chars.size);
}

lace_status jv_copy(jinja_run *r, marked m, jv *out)
{
    char *copy;
    uint8_t *marks = NULL;
    size_t n = m.chars.size;
    TRY(jinja_spend_bytes(r, n));
    TRY(jinja_alloc(r, n, 1, &copy));
    if (n)
        memcpy(copy, m.chars.data, n);
    if (m.marks) {
        TRY(jinja_alloc(r, n, 1, &marks));
        copy_marks(marks, m);
    }
    return jv_part(r, (marked){{copy, n}, marks, m.is_content}, out);
}

/* Short strings are not worth room to grow. */
enum { ROOM_FROM = 256 };

/* A string's bytes where b.chars.size more can follow: in its room, or copied to a new one. */
static lace_status make_room(jinja_run *r, const jv_string *left, size_t n_more, jv_room **out)
{
    text chars = left->all.chars;
    jv_room *room = left->room;
    bool is_at_end = room && chars.data == room->data && chars.size == room->used;
    if (!is_at_end || room->capacity - room->used < n_more) {
        size_t n = chars.size + n_more, capacity = n < ROOM_FROM ? n : 2 * n;
        TRY(jinja_spend(r, capacity / 32)); /* new memory takes longer than copying */
        TRY(jinja_alloc(r, 1, sizeof *room, &room));
        *room = (jv_room){.used = chars.size, .capacity = capacity};
        TRY(jinja_alloc(r, capacity, 1, &room->data));
        if (chars.size)
            memcpy(room->data, chars.data, chars.size);
    }
    *out = room;
    return LACE_OK;
}

lace_status jv_concat(jinja_run *r, jv a, marked b, jv *out)
{
    marked left = a.as.s->all;
    size_t n_left = left.chars.size, n_right = b.chars.size;
    bool is_mixed = left.marks || b.marks || (n_left && n_right && left.is_content != b.is_content);
    jv_room *room;
    TRY(make_room(r, a.as.s, n_right, &room));
    if (is_mixed && !room->marks) {
        TRY(jinja_spend(r, room->capacity / 32));
        TRY(jinja_alloc(r, room->capacity, 1, &room->marks));
        copy_marks(room->marks, left);
    }
    TRY(jinja_spend_bytes(r, n_right));
    if (n_right)
        memcpy(room->data + n_left, b.chars.data, n_right);
    if (is_mixed)
        copy_marks(room->marks + n_left, b);
    room->used += n_right;
    jv_string *s;
    TRY(jinja_alloc(r, 1, sizeof *s, &s));
    *s = (jv_string){{{room->data, n_left + n_right},
                      is_mixed ? room->marks : NULL,
                      n_left ? left.is_content : b.is_content},
                     room};
    *out = (jv){.kind = JV_STRING, .is_safe = a.is_safe, .as.s = s};
    return LACE_OK;
}

/* ---- Lists ----------------------------------------------------------------------------------- */

lace_status jv_list_new(jinja_run *r, jv_kind kind, size_t n, jv *out)
{
    jv_list *list;
    TRY(jinja_alloc(r, 1, sizeof *list, &list));
    if (n > 0)
        TRY(jinja_alloc(r, n, sizeof(jv), &list->items));
    list->capacity = n;
    *out = (jv){.kind = kind, .as.list = list};
    return LACE_OK;
}

lace_status jv_list_add(jinja_run *r, jv_list *list, jv item)
{
    TRY(jinja_spend(r, 1));
    TRY(jinja_grow(r, list->n, sizeof *list->items, &list->items, &list->capacity));
    list->items[list->n++] = item;
    return LACE_OK;
}

lace_status jv_pair(jinja_run *r, jv first, jv second, jv *out)
{
    TRY(jv_list_new(r, JV_TUPLE, 2, out));
    out->as.list->items[0] = first;
    out->as.list->items[1] = second;
    out->as.list->n = 2;
    return LACE_OK;
}

/* The characters of a string, one string each. */
static lace_status char_items(jinja_run *r, marked all, jv **items, size_t *n)
{
    text chars = all.chars;
    size_t count = chars_count(chars), at = 0;
    TRY(jinja_spend(r, count));
    TRY(jinja_alloc(r, count, sizeof **items, items));
    for (*n = 0; *n < count; ++*n) {
        text rest = {chars.data + at, chars.size - at};
        size_t size = chars_offset(rest, 1);
        TRY(jv_part(r, marked_part(all, (text){rest.data, size}), &(*items)[*n]));
        at += size;
    }
    return LACE_OK;
}

lace_status jv_items(jinja_run *r, jv v, jv **items, size_t *n)
{
    *items = NULL;
    *n = 0;
    switch (v.kind) {
    case JV_UNDEFINED:
        return LACE_OK;
    case JV_STRING:
        return char_items(r, jv_marked(v), items, n);
    case JV_LIST:
    case JV_TUPLE:
    case JV_GENERATOR:
        *items = v.as.list->items;
        *n = v.as.list->n;
        if (v.kind == JV_GENERATOR)
            v.as.list->n = 0;
        return jinja_spend(r, *n / 16);
    case JV_DICT:
        TRY(jinja_spend(r, v.as.dict->n));
        TRY(jinja_alloc(r, v.as.dict->n, sizeof **items, items));
        for (*n = 0; *n < v.as.dict->n; ++*n)
            (*items)[*n] = v.as.dict->entries[*n].key;
        return LACE_OK;
    default:
        return jinja_fail(r, "'%s' object is not iterable", jv_type_name(v));
    }
}

/* ---- Dicts ----------------------------------------------------------------------------------- */

enum { INDEX_FROM = 8 }; /* fewer entries are searched one by one */

static lace_status hash_value(jinja_run *r, jv v, uint32_t *out)
{
    double f;
    int64_t i;
    switch (v.kind) {
    case JV_STRING:
        TRY(jinja_spend_bytes(r, jv_chars(v).size));
        *out = hash_bytes(jv_chars(v).data, jv_chars(v).size);
        return LACE_OK;
    case JV_BOOL:
    case JV_INT:
        f = (double)jv_as_int(v); /* equal numbers of any type have one hash */
        *out = hash_bytes(&f, sizeof f);
        return LACE_OK;
    case JV_FLOAT:
        f = v.as.f + 0.0; /* -0 becomes 0 */
        *out = hash_bytes(&f, sizeof f);
        return LACE_OK;
    case JV_TUPLE:
        *out = 17;
        TRY(jinja_enter(r));
        TRY(jinja_spend(r, v.as.list->n));
        for (size_t k = 0; k < v.as.list->n; k++) {
            uint32_t part;
            TRY(hash_value(r, v.as.list->items[k], &part));
            *out = *out * 31 + part;
        }
        r->depth--;
        return LACE_OK;
    case JV_UNDEFINED:
    case JV_NONE:
    case JV_FUNCTION:
    case JV_MACRO:
        i = (int64_t)v.kind;
        *out = hash_bytes(&i, sizeof i);
        return LACE_OK;
    default:
        return jinja_fail(r, "unhashable type: '%s'", jv_type_name(v));
    }
}

static lace_status index_insert(jinja_run *r, jv_dict *d, size_t entry)
{
    size_t slot = d->entries[entry].hash & (d->n_slots - 1);
    for (; d->index[slot]; slot = (slot + 1) & (d->n_slots - 1))
        TRY(jinja_spend(r, 1));
    d->index[slot] = (uint32_t)entry + 1;
    return LACE_OK;
}

/* Make the index anew, for twice the room there is. */
static lace_status build_index(jinja_run *r, jv_dict *d)
{
    d->n_slots = 0;
    if (d->capacity <= INDEX_FROM)
        return LACE_OK;
    TRY(jinja_spend(r, d->n));
    TRY(jinja_alloc(r, d->capacity * 2, sizeof *d->index, &d->index));
    d->n_slots = d->capacity * 2;
    for (size_t i = 0; i < d->n; i++)
        TRY(index_insert(r, d, i));
    return LACE_OK;
}

static lace_status find_entry(jinja_run *r, const jv_dict *d, jv key, uint32_t hash, jv **out)
{
    size_t slot = hash & (d->n_slots - 1);
    *out = NULL;
    for (size_t i = 0;; i++) {
        size_t entry = i;
        if (d->n_slots > 0) {
            entry = (size_t)d->index[slot] - 1;
            slot = (slot + 1) & (d->n_slots - 1);
        }
        if (entry >= d->n)
            return LACE_OK;
        TRY(jinja_spend(r, 1));
        if (d->entries[entry].hash != hash)
            continue;
        bool is_equal;
        TRY(jv_equals(r, d->entries[entry].key, key, &is_equal));
        if (is_equal) {
            *out = &d->entries[entry].value;
            return LACE_OK;
        }
    }
}

lace_status jv_dict_new(jinja_run *r, jv_kind kind, jv *out)
{
    jv_dict *d;
    TRY(jinja_alloc(r, 1, sizeof *d, &d));
    *out = (jv){.kind = kind, .as.dict = d};
    return LACE_OK;
}

lace_status jv_dict_find(jinja_run *r, const jv_dict *d, jv key, jv **out)
{
    uint32_t hash = 0;
    TRY(hash_value(r, key, &hash));
    return find_entry(r, d, key, hash, out);
}

lace_status jv_dict_find_text(jinja_run *r, const jv_dict *d, text key, jv **out)
{
    jv_string s = {.all = marked_own(key)};
    return jv_dict_find(r, d, (jv){.kind = JV_STRING, .as.s = &s}, out);
}

lace_status jv_dict_set(jinja_run *r, jv_dict *d, jv key, jv value)
{
    uint32_t hash = 0;
    jv *found;
    TRY(jinja_spend(r, 1));
    TRY(hash_value(r, key, &hash));
    TRY(find_entry(r, d, key, hash, &found));
    if (found) {
        *found = value;
        return LACE_OK;
    }
    bool must_grow = d->n == d->capacity;
    TRY(jinja_grow(r, d->n, sizeof *d->entries, &d->entries, &d->capacity));
    d->entries[d->n++] = (jv_entry){key, value, hash};
    if (must_grow)
        return build_index(r, d);
    return d->n_slots > 0 ? index_insert(r, d, d->n - 1) : LACE_OK;
}

lace_status jv_dict_remove(jinja_run *r, jv_dict *d, const jv *value)
{
    for (size_t i = 0; i < d->n; i++) {
        if (&d->entries[i].value == value) {
            TRY(jinja_spend(r, d->n - i));
            memmove(d->entries + i, d->entries + i + 1, (d->n - i - 1) * sizeof *d->entries);
            d->n--;
            break;
        }
    }
    return build_index(r, d);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static lace_status lists_equal(jinja_run *r, const jv_list *a, const jv_list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++)
        TRY(jv_equals(r, a->items[i], b->items[i], out));
    return LACE_OK;
}

static lace_status dicts_equal(jinja_run *r, const jv_dict *a, const jv_dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        jv *other;
        TRY(find_entry(r, b, a->entries[i].key, a->entries[i].hash, &other));
        *out = other != NULL;
        if (other)
            TRY(jv_equals(r, a->entries[i].value, *other, out));
    }
    return LACE_OK;
}

lace_status jv_equals(jinja_run *r, jv a, jv b, bool *out)
{
    *out = false;
    TRY(jinja_spend(r, 1));
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = jv_is_int(a) && jv_is_int(b) ? jv_as_int(a) == jv_as_int(b)
                                            : jv_number(a) == jv_number(b);
        return LACE_OK;
    }
    if (a.kind != b.kind)
        return LACE_OK;
    TRY(jinja_enter(r));
    switch (a.kind) {
    case JV_UNDEFINED:
    case JV_NONE:
        *out = true;
        break;
    case JV_STRING:
        TRY(jinja_spend_bytes(r, jv_chars(a).size));
        *out = text_equals(jv_chars(a), jv_chars(b));
        break;
    case JV_LIST:
    case JV_TUPLE:
        TRY(lists_equal(r, a.as.list, b.as.list, out));
        break;
    case JV_DICT:
        TRY(dicts_equal(r, a.as.dict, b.as.dict, out));
        break;
    default:
        *out = a.as.list == b.as.list; /* the same object, whatever it is */
        break;
    }
    r->depth--;
    return LACE_OK;
}

static int sign_of(double d)
{
    return (d > 0) - (d < 0);
}

lace_status jv_compare(jinja_run *r, jv a, jv b, int *out)
{
    TRY(jinja_spend(r, 1));
    if (jv_is_int(a) && jv_is_int(b)) {
        int64_t x = jv_as_int(a), y = jv_as_int(b);
        *out = (x > y) - (x < y);
        return LACE_OK;
    }
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = sign_of(jv_number(a) - jv_number(b));
        return LACE_OK;
    }
    if (a.kind == JV_STRING && b.kind == JV_STRING) {
        text x = jv_chars(a), y = jv_chars(b);
        size_t n = x.size < y.size ? x.size : y.size;
        TRY(jinja_spend_bytes(r, n));
        int order = n ? memcmp(x.data, y.data, n) : 0; /* UTF-8 sorts as its characters do */
        *out = order ? sign_of(order) : (x.size > y.size) - (x.size < y.size);
        return LACE_OK;
    }
    if (!is_sequence(a) || a.kind != b.kind)
        return jinja_fail(r, "no order between '%s' and '%s'", jv_type_name(a), jv_type_name(b));
    TRY(jinja_enter(r));
    const jv_list *x = a.as.list, *y = b.as.list;
    *out = (x->n > y->n) - (x->n < y->n);
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        bool is_equal;
        TRY(jv_equals(r, x->items[i], y->items[i], &is_equal));
        if (!is_equal) {
            TRY(jv_compare(r, x->items[i], y->items[i], out));
            break;
        }
    }
    r->depth--;
    return LACE_OK;
}

lace_status jv_contains(jinja_run *r, jv container, jv item, bool *out)
{
    jv *found;
    *out = false;
    switch (container.kind) {
    case JV_STRING:
        if (item.kind != JV_STRING)
            return jinja_fail(r, "'in <string>' requires string as left operand, not %s",
                              jv_type_name(item));
        TRY(jinja_spend_find(r, jv_chars(container), jv_chars(item)));
        *out = chars_find(jv_chars(container), jv_chars(item), 0) != SIZE_MAX;
        return LACE_OK;
    case JV_DICT:
        TRY(jv_dict_find(r, container.as.dict, item, &found));
        *out = found != NULL;
        return LACE_OK;
    case JV_UNDEFINED:
        return LACE_OK;
    case JV_LIST:
    case JV_TUPLE:
    case JV_GENERATOR:
        for (size_t i = 0; i < container.as.list->n && !*out; i++)
            TRY(jv_equals(r, container.as.list->items[i], item, out));
        if (container.kind == JV_GENERATOR)
            container.as.list->n = 0;
        return LACE_OK;
    default:
        return jinja_fail(r, "argument of type '%s' is not iterable", jv_type_name(container));
    }
}
