/*
 * The values of a running template, with Python's meaning: how they are made, compared and printed.
 *
 * All of them live in the arena of one render and are never freed before its end. Functions that
 * can fail (a budget, a type) take the render first; `jinja_run` is described in jinja_eval.h.
 */
#ifndef LACE_JINJA_JINJA_VALUE_H
#define LACE_JINJA_JINJA_VALUE_H

#include <jansson.h>

#include "base/bytes.h"

typedef struct jinja_run jinja_run;
typedef struct jinja_builtin jinja_builtin;

typedef enum jv_kind {
    JV_UNSET, /* 0: no value at all, an argument that was not given */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STRING,
    JV_LIST,
    JV_TUPLE,
    JV_GENERATOR, /* what map and select give: always true, and empty after one walk */
    JV_DICT,
    JV_NAMESPACE, /* a dict whose members are attributes that can be set */
    JV_LOOP,
    JV_MACRO,
    JV_FUNCTION, /* a builtin */
    JV_METHOD,   /* a builtin and the value that it belongs to */
    JV_CYCLER,
    JV_JOINER,
} jv_kind;

/*
 * Text, and for each byte whether the template wrote it or the context brought it (messages, tools
 * and whatever else users send). Only what templates write may become special tokens, so every
 * filter passes on where its bytes came from. Parts of a text share its bytes and marks.
 */
typedef struct marked {
    text chars;
    const uint8_t *marks; /* [chars.size], 1: the context's; NULL: all are as is_content says */
    bool is_content;
} marked;

marked marked_own(text chars); /* the template's words */
marked marked_part(marked whole, text part);
bool marked_is_content(marked m, size_t at); /* the byte at an offset */

/*
 * Text of UTF-8. Parts of a string share its bytes. A string that grows at its end has room behind
 * it, so that `x = x + "..."` in a loop takes linear time and memory: if this string ends where the
 * used part of the room ends, more can be written there without disturbing anyone.
 */
typedef struct jv_room {
    char *data;
    uint8_t *marks; /* NULL while all bytes come from one side */
    size_t used, capacity;
} jv_room;

typedef struct jv_string {
    marked all;
    jv_room *room; /* NULL: none */
} jv_string;

typedef struct jv_list jv_list;
typedef struct jv_dict jv_dict;
typedef struct jv_bound jv_bound;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;

typedef struct jv {
    jv_kind kind;
    bool is_safe; /* of a string: Markup, which escapes what is added to it */
    union {
        bool b;
        int64_t i;
        double f;
        const jv_string *s; /* of JV_UNDEFINED: what is undefined, or NULL */
        jv_list *list;      /* list, tuple, generator, cycler (its items) */
        jv_dict *dict;      /* dict, namespace */
        jinja_loop *loop;
        const jinja_macro *macro;
        const jinja_builtin *builtin;
        const jv_bound *bound; /* method */
    } as;
} jv;

struct jv_list {
    jv *items; /* [n], room for `capacity` */
    size_t n, capacity;
    size_t at; /* of a cycler: the current item */
};

typedef struct jv_entry {
    jv key, value;
    uint32_t hash;
} jv_entry;

/* In the order of insertion; an index of entry numbers + 1 once there are more than a few. */
struct jv_dict {
    jv_entry *entries; /* [n], room for `capacity` */
    size_t n, capacity;
    uint32_t *index; /* [n_slots], a power of two */
    size_t n_slots;
};

struct jv_bound {
    const jinja_builtin *builtin;
    jv self;
};

/* ---- Making ---------------------------------------------------------------------------------- */

jv jv_none(void);
jv jv_bool(bool b);
jv jv_int(int64_t i);
jv jv_float(double f);

lace_status jv_view(jinja_run *r, text chars, jv *out);  /* the template's; shares the bytes */
lace_status jv_part(jinja_run *r, marked part, jv *out); /* shares bytes and marks */
lace_status jv_copy(jinja_run *r, marked m, jv *out);
lace_status jv_undefined(jinja_run *r, text what, jv *out);
lace_status jv_concat(jinja_run *r, jv a, marked b, jv *out); /* a is a string */

/* An empty list, tuple or generator with room for n items. */
lace_status jv_list_new(jinja_run *r, jv_kind kind, size_t n, jv *out);
lace_status jv_list_add(jinja_run *r, jv_list *list, jv item);
lace_status jv_pair(jinja_run *r, jv first, jv second, jv *out); /* a tuple */

lace_status jv_dict_new(jinja_run *r, jv_kind kind, jv *out);
/* The value of a key, or *out is NULL. Keys that Python cannot hash are an error. */
lace_status jv_dict_find(jinja_run *r, const jv_dict *d, jv key, jv **out);
lace_status jv_dict_find_text(jinja_run *r, const jv_dict *d, text key, jv **out);
lace_status jv_dict_set(jinja_run *r, jv_dict *d, jv key, jv value);
lace_status jv_dict_remove(jinja_run *r, jv_dict *d, const jv *value); /* which find gave */

/* Shares its strings, which are the context's or the template's. */
lace_status jv_from_json(jinja_run *r, const json_t *json, bool is_content, jv *out);

/* ---- Asking ---------------------------------------------------------------------------------- */

bool jv_is_number(jv v);        /* a bool is one, too */
double jv_number(jv v);         /* of a number */
text jv_chars(jv v);            /* of a string */
marked jv_marked(jv v);         /* of a string */
const char *jv_type_name(jv v); /* as Python says it */
bool jv_is_true(jv v);
bool jv_is_sized(jv v);  /* has a length */
size_t jv_length(jv v);  /* of a sized one; in characters */
bool jv_is_int(jv v);    /* an int or a bool */
int64_t jv_as_int(jv v); /* of such */

lace_status jv_equals(jinja_run *r, jv a, jv b, bool *out);
/* -1, 0, 1; values without an order are an error. */
lace_status jv_compare(jinja_run *r, jv a, jv b, int *out);
lace_status jv_contains(jinja_run *r, jv container, jv item, bool *out);

/* What a `for` walks through; empties a generator. What cannot be walked is an error. */
lace_status jv_items(jinja_run *r, jv v, jv **items, size_t *n);

/* ---- Text ------------------------------------------------------------------------------------ */

/* Write a value to the output as str() and repr() do. */
lace_status jv_print(jinja_run *r, jv v);
lace_status jv_print_repr(jinja_run *r, jv v);
lace_status jv_to_string(jinja_run *r, jv v, jv *out); /* strings stay as they are */
lace_status jv_escape(jinja_run *r, jv v, jv *out);    /* a safe string */
/* The shortest digits that read back as f, as Python writes them. */
enum { JV_FLOAT_CHARS = 32 };
size_t jv_float_text(double f, char out[JV_FLOAT_CHARS]);

typedef struct jv_json_style {
    bool is_ascii, is_sorted;
    const jv *indent; /* NULL or none: on one line; a number of spaces or a string */
    marked between_items, before_value;
} jv_json_style;

lace_status jv_print_json(jinja_run *r, jv v, const jv_json_style *style);

/* Characters, not bytes. */
size_t chars_count(text t);
size_t chars_offset(text t, size_t n_chars);     /* in bytes, of character number n_chars */
bool chars_is_space(uint32_t code);              /* as Python's str.isspace */
text chars_strip(text t, bool left, bool right); /* without the white space there */
/* Take one character of the set (NULL: white space) off an end; false if there is none. */
bool chars_strip_one(text *t, const text *set, bool at_end);
size_t chars_find(text t, text needle, size_t from); /* an offset, or SIZE_MAX */

#endif
