/*
 * A running template: its budgets, variables and output, and how builtins are called.
 */
#ifndef LACE_JINJA_JINJA_EVAL_H
#define LACE_JINJA_JINJA_EVAL_H

#include "base/arena.h"
#include "jinja/jinja.h"
#include "jinja/jinja_ast.h"
#include "jinja/jinja_value.h"

/* ---- Variables ------------------------------------------------------------------------------- */

typedef struct jinja_binding {
    uint32_t name;
    jv value;
} jinja_binding;

/*
 * The variables of a for, a macro, a block. The outermost scope has a place for every name of the
 * template; inner ones list what was set in them.
 */
typedef struct jinja_scope {
    struct jinja_scope *parent; /* NULL: the outermost */
    jinja_binding *vars;
    size_t n, capacity;
    bool is_captured; /* a macro was defined here and may outlive it */
} jinja_scope;

typedef enum jinja_flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } jinja_flow;

struct jinja_run {
    const jinja *template;
    const jinja_options *options;
    arena heap;
    uint64_t steps_left;
    int depth;
    uint32_t line; /* of what is evaluated now */
    jinja_flow flow;
    buf *out;
    size_t out_start; /* what was in `out` before */
    buf marks;        /* a byte for each one written since: 1 if it is the context's */
    jinja_scope *scope;
    jv *globals; /* [n_names], JV_UNSET where nothing is set */
    lace_error *err;
};

struct jinja_loop {
    jv *items;
    size_t n, at;
    int depth;        /* from 0; of recursive loops */
    jv last_changed;  /* arguments of the last loop.changed() */
    const node *body; /* the for, if it is recursive */
    jinja_scope *scope;
};

struct jinja_macro {
    const node *definition; /* a macro or call statement */
    jinja_scope *scope;     /* where it was defined */
};

/* ---- Budgets and errors ---------------------------------------------------------------------- */

/* A failure of the template at the current line. */
__attribute__((format(printf, 2, 3))) lace_status jinja_fail(jinja_run *r, const char *format, ...);
lace_status jinja_limit(jinja_run *r, const char *what); /* LACE_E_LIMIT: "more than ..." */
lace_status jinja_spend(jinja_run *r, uint64_t n_steps);
lace_status jinja_spend_bytes(jinja_run *r, size_t n_bytes); /* copied, compared or searched */
lace_status jinja_spend_find(jinja_run *r, text chars, text part);
lace_status jinja_spend_chars(jinja_run *r, size_t n_bytes); /* looked at one by one */
lace_status jinja_enter(jinja_run *r); /* one level deeper; r->depth-- leaves it */
lace_status jinja_alloc(jinja_run *r, size_t n, size_t size, void *out /* a pointer's address */);
/* Room for one more behind n items of `size` bytes. */
lace_status jinja_grow(jinja_run *r, size_t n, size_t size, void *items /* a pointer's address */,
                       size_t *capacity);

/* ---- Output ---------------------------------------------------------------------------------- */

lace_status jinja_write(jinja_run *r, text chars); /* the template's words */
lace_status jinja_write_byte(jinja_run *r, char c);
lace_status jinja_write_marked(jinja_run *r, marked m);
lace_status jinja_write_char(jinja_run *r, uint32_t code, bool is_content);
lace_status jinja_write_fill(jinja_run *r, marked unit, size_t n); /* n times */

/*
 * The output is also where strings are built: what was written since `start` (r->out->size before)
 * is taken off again and becomes a value.
 */
lace_status jinja_take_output(jinja_run *r, size_t start, jv *out);

/* ---- Evaluation ------------------------------------------------------------------------------ */

lace_status jinja_eval(jinja_run *r, const node *n, jv *out);
lace_status jinja_exec_list(jinja_run *r, const node *first);
lace_status jinja_lookup(jinja_run *r, uint32_t name, jv *out);
lace_status jinja_set(jinja_run *r, uint32_t name, jv value);
lace_status jinja_scope_push(jinja_run *r, jinja_scope *parent, jinja_scope **out);

/* x.name and x[key], undefined if there is no such thing. */
lace_status jinja_get_attr(jinja_run *r, jv object, text name, jv *out);
lace_status jinja_get_item(jinja_run *r, jv object, jv key, jv *out);
lace_status jinja_get_slice(jinja_run *r, jv object, const jv bounds[3], jv *out);
lace_status jinja_run_loop(jinja_run *r, const node *n, jv iterable, int depth);

lace_status jinja_binary(jinja_run *r, binary_op op, jv a, jv b, jv *out);
lace_status jinja_compare(jinja_run *r, compare_op op, jv a, jv b, bool *out);

/* ---- Calls ----------------------------------------------------------------------------------- */

typedef struct jinja_named_arg {
    marked name;
    jv value;
} jinja_named_arg;

typedef struct jinja_args {
    const jv *items; /* [n], by position */
    size_t n;
    const jinja_named_arg *named; /* [n_named] */
    size_t n_named;
} jinja_args;

/* `self` is what a filter is applied to, what a test asks about or whose method it is. */
typedef struct jinja_call {
    jv self;
    const jv *p;            /* by the names in `params`; JV_UNSET where not given */
    const jinja_args *args; /* as they were given */
    int mode;               /* of the row */
} jinja_call;

typedef lace_status (*jinja_builtin_fn)(jinja_run *r, const jinja_call *c, jv *out);

/* One row of a table of filters, tests, methods or functions. */
struct jinja_builtin {
    const char *name;
    const char *params; /* names between blanks, at most JINJA_MAX_PARAMS; "*": reads c->args */
    jinja_builtin_fn fn;
    int mode; /* tells names apart that share a function; that says what it means */
};

enum { JINJA_MAX_PARAMS = 6 };

/* The tables end with a row without a name. */
const jinja_builtin *jinja_find_filter(text name); /* NULL: no such */
const jinja_builtin *jinja_find_test(text name);
const jinja_builtin *jinja_find_function(text name);
const jinja_builtin *jinja_find_method(jv_kind kind, text name);
const jinja_builtin *jinja_find_row(const jinja_builtin *rows, text name);
extern const jinja_builtin jinja_text_filters[], jinja_list_filters[], jinja_number_filters[];
extern const jinja_builtin jinja_tests[], jinja_functions[];
extern const jinja_builtin jinja_string_methods[], jinja_list_methods[], jinja_tuple_methods[];
extern const jinja_builtin jinja_dict_methods[], jinja_loop_methods[], jinja_cycler_methods[];

lace_status jinja_call_builtin(jinja_run *r, const jinja_builtin *b, jv self,
                               const jinja_args *args, jv *out);
lace_status jinja_call_value(jinja_run *r, jv callee, const jinja_args *args, jv *out);

/* Arguments of builtins: what was given, or what is used otherwise. Wrong types are errors. */
bool jinja_param_is_set(jv v); /* given, and not none */
lace_status jinja_param_int(jinja_run *r, jv v, int64_t otherwise, int64_t *out);
lace_status jinja_param_text(jinja_run *r, jv v, const char *otherwise, text *out);
lace_status jinja_param_marked(jinja_run *r, jv v, const char *otherwise, marked *out);

/* Shared by filters and methods of strings. */
typedef enum jinja_case { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE } jinja_case;
lace_status jinja_change_case(jinja_run *r, marked m, jinja_case wanted, jv *out);
/* At most `count` of them; negative: all. */
lace_status jinja_replace(jinja_run *r, marked m, text old, marked new, int64_t count, jv *out);
lace_status jinja_strip(jinja_run *r, jv string, jv set, bool left, bool right, jv *out);

/* "%5d" % args, and "{:>5}".format(...). */
lace_status jinja_format_percent(jinja_run *r, marked format, const jinja_args *args, jv *out);
lace_status jinja_format_braces(jinja_run *r, marked format, const jinja_args *args, jv *out);
lace_status jinja_strftime(jinja_run *r, marked format, int64_t seconds, jv *out);

#endif
