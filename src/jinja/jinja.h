/*
 * Jinja templates, as models bring them to lay out a conversation.
 *
 * The language is that of Jinja2 in the environment of Hugging Face's transformers: trim_blocks and
 * lstrip_blocks are on, `break`, `continue` and `generation` exist, tojson writes what json.dumps
 * writes, and the globals raise_exception and strftime_now are there. Nothing can be included or
 * imported. A template is parsed once and may then be rendered by many threads.
 *
 * Templates come from strangers, so a render has budgets. Every byte that is written or copied and
 * every node that is walked is paid for.
 */
#ifndef LACE_JINJA_JINJA_H
#define LACE_JINJA_JINJA_H

#include <jansson.h>

#include "base/buf.h"
#include "base/bytes.h"

typedef struct jinja jinja;

enum {
    JINJA_MAX_SOURCE = 1 << 20, /* bytes of a template */
    JINJA_MAX_NESTING = 128,    /* tags in tags, brackets in brackets */
};

/*
 * Parse a template; the source is copied. LACE_E_TEMPLATE with the line ("line 3: ...") for what is
 * not Jinja, not UTF-8 or nested too deeply, LACE_E_LIMIT for a source that is too long.
 */
lace_status jinja_parse(text source, jinja **out, lace_error *err);
void jinja_free(jinja *t);

bool jinja_names(const jinja *t, text variable); /* whether it has such a name anywhere */

typedef struct jinja_options {
    uint64_t max_steps; /* nodes walked, items and groups of 64 bytes touched, of 32 written */
    size_t max_output;  /* bytes of the result */
    size_t max_heap;    /* bytes of values made on the way */
    int max_depth;      /* of calls, expressions and nested values */
    int64_t now;        /* for strftime_now: seconds since 1970 in the time zone to be shown */
} jinja_options;

jinja_options jinja_options_default(void); /* `now` is 0 */

/*
 * Append the template's text for a context (an object; its members are the variables) to `out`.
 * LACE_E_TEMPLATE for what the template does wrong or raises, LACE_E_LIMIT for a budget used up,
 * both with the line; `out` is then as before.
 */
lace_status jinja_render(const jinja *t, const json_t *context, const jinja_options *options,
                         buf *out, lace_error *err);

/*
 * And append to `marks` a byte for each byte of the text: 1 if it comes from the context, however
 * it was cut, joined or changed on the way, 0 if the template wrote it. bos_token and eos_token are
 * the template's words, and so are the usual roles: templates write '<|' + message.role + '|>'.
 */
lace_status jinja_render_marked(const jinja *t, const json_t *context, const jinja_options *options,
                                buf *out, buf *marks, lace_error *err);

#endif
