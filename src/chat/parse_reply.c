/* A model's reply, taken apart while it streams: text, markers and harmony's messages. */
#include "chat/parse_reply.h"

#include <string.h>

#include "base/mem.h"
#include "chat/reply_parser.h"

enum { MAX_HEADER = 512, MAX_REREAD = 1024 };

bool reply_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool reply_ends_with(const buf *b, const char *end)
{
    size_t n = strlen(end);
    return b->size >= n && memcmp(b->data + b->size - n, end, n) == 0;
}

/* ---- Output ---------------------------------------------------------------------------------- */

static lace_status send(reply_parser *p, reply_event event)
{
    return p->sink(p->sink_arg, &event);
}

static lace_status flush(reply_parser *p)
{
    if (p->out.size == 0)
        return LACE_OK;
    lace_status status = send(
        p, (reply_event){.kind = p->kind, .chars = {p->out.data, p->out.size}, .call = p->n_calls});
    buf_clear(&p->out);
    return status;
}

/* Another kind of text begins; white space between the two belongs to neither. */
static lace_status change_kind(reply_parser *p, reply_event_kind kind)
{
    TRY(flush(p));
    buf_clear(&p->space);
    p->kind = kind;
    p->skips_space = true;
    return LACE_OK;
}

static lace_status put_char(reply_parser *p, reply_event_kind kind, char c)
{
    if (p->kind != kind)
        TRY(change_kind(p, kind));
    if (reply_is_space(c))
        return p->skips_space ? LACE_OK : buf_append(&p->space, &c, 1);
    TRY(buf_append(&p->out, p->space.data, p->space.size));
    buf_clear(&p->space);
    p->skips_space = false;
    return buf_append(&p->out, &c, 1);
}

/* "functions.get_weather:0" is get_weather; what is behind "[CALL_ID]" is an id. */
static void clean_name(reply_call *c)
{
    static const char prefix[] = "functions.", id_mark[] = "[CALL_ID]";
    size_t n = c->name.size, from = 0;
    char *name = c->name.data ? c->name.data : (char *)"";
    while (from < n && reply_is_space(name[from]))
        from++;
    for (size_t i = from; i + sizeof id_mark - 1 <= n; i++) {
        if (memcmp(name + i, id_mark, sizeof id_mark - 1) == 0) {
            /* An id that does not fit is only an id less. */
            if (buf_append(&c->id, name + i + sizeof id_mark - 1, n - i - sizeof id_mark + 1) != 0)
                buf_clear(&c->id);
            n = i;
        }
    }
    while (n > from && reply_is_space(name[n - 1]))
        n--;
    if (n - from > sizeof prefix - 1 && memcmp(name + from, prefix, sizeof prefix - 1) == 0) {
        from += sizeof prefix - 1;
        size_t digits = n;
        while (digits > from && name[digits - 1] >= '0' && name[digits - 1] <= '9')
            digits--;
        if (digits < n && digits > from && name[digits - 1] == ':')
            n = digits - 1;
    }
    if (n == from) /* nothing would be left: then it is a strange name */
        return;
    memmove(name, name + from, n - from);
    c->name.size = n - from;
}

lace_status reply_begin_call(reply_parser *p)
{
    reply_call *c = &p->call;
    clean_name(c);
    TRY(change_kind(p, REPLY_CALL_ARGS));
    c->is_begun = true;
    buf_clear(&p->raw);
    return send(p, (reply_event){.kind = REPLY_CALL_BEGIN,
                                 .chars = {c->name.data, c->name.size},
                                 .id = {c->id.data ? c->id.data : "", c->id.size},
                                 .call = p->n_calls});
}

lace_status reply_put_args(reply_parser *p, const char *data, size_t n)
{
    return buf_append(&p->out, data, n);
}

lace_status reply_end_call(reply_parser *p, bool is_complete)
{
    TRY(change_kind(p, REPLY_CONTENT));
    TRY(send(
        p, (reply_event){.kind = REPLY_CALL_END, .call = p->n_calls, .is_complete = is_complete}));
    p->n_calls++;
    p->call.is_begun = false;
    p->call.n_done++;
    return LACE_OK;
}

/* ---- Markers --------------------------------------------------------------------------------- */

static bool is_active(const reply_parser *p, marker m)
{
    switch (p->state) {
    case STATE_CONTENT:
        if (m == MARK_SAY_BEGIN)
            return p->is_at_start || (p->skips_space && !p->is_saying);
        if (m == MARK_SAY_END)
            return p->is_saying || p->format.answer->is_marked;
        return m <= MARK_CALL_BEGIN && m != MARK_THINK_END;
    case STATE_THINKING:
        return m == MARK_THINK_END;
    case STATE_SECTION:
        return m == MARK_CALL_BEGIN;
    case STATE_AFTER:
        return m == (p->ends_with_section ? MARK_SECTION_END : MARK_CALL_END);
    case STATE_HEADER:
        return m == MARK_MESSAGE;
    default:
        return m > MARK_MESSAGE;
    }
}

/* The longest marker that `held` begins with, or N_MARKERS; *may_be: more bytes could make one. */
static marker match_held(const reply_parser *p, bool *may_be)
{
    marker found = N_MARKERS;
    *may_be = false;
    for (marker m = 0; m < N_MARKERS; m++) {
        text t = p->markers[m];
        size_t n = t.size < p->held.size ? t.size : p->held.size;
        if (t.size == 0 || !is_active(p, m) || memcmp(t.data, p->held.data, n) != 0)
            continue;
        if (n < t.size)
            *may_be = true;
        else if (found == N_MARKERS || t.size > p->markers[found].size)
            found = m;
    }
    return found;
}

/* Begin to read a call, whose marker is in p->raw. */
static lace_status start_call(reply_parser *p, reply_state state)
{
    reply_call *c = &p->call;
    buf_clear(&c->name);
    buf_clear(&c->id);
    buf_clear(&c->key);
    buf_clear(&c->args);
    buf_clear(&p->word);
    c->place = PLACE_START;
    c->tagged = TAGGED_NAME;
    c->is_list = c->has_args = false;
    c->n_wrappers = c->n_done = c->n_args = 0;
    c->scan = (json_scan){0};
    p->state = state;
    return LACE_OK;
}

static lace_status keep_marker(reply_parser *p, marker m)
{
    TRY(buf_append(&p->raw, p->markers[m].data, p->markers[m].size));
    p->n_raw_marker = p->raw.size;
    return LACE_OK;
}

static lace_status begin_header(reply_parser *p, marker m)
{
    buf_clear(&p->word);
    if (p->call.is_begun)
        TRY(reply_end_call(p, m == MARK_CALL || m == MARK_END || m == MARK_RETURN));
    p->state = STATE_HEADER;
    return m == MARK_START || m == MARK_CHANNEL
               ? buf_append(&p->word, p->markers[m].data, p->markers[m].size)
               : LACE_OK;
}

/* What stands behind a word in a header, up to a blank or a '<'. */
static text header_value(const buf *header, const char *key)
{
    size_t n = strlen(key);
    text found = {NULL, 0};
    for (size_t i = 0; i + n <= header->size; i++) {
        if (memcmp(header->data + i, key, n) != 0)
            continue;
        found = (text){header->data + i + n, 0};
        while (i + n + found.size < header->size && !reply_is_space(found.data[found.size]) &&
               found.data[found.size] != '<')
            found.size++;
    }
    return found;
}

static lace_status begin_body(reply_parser *p)
{
    text channel = header_value(&p->word, "<|channel|>");
    text recipient = header_value(&p->word, "to=");
    p->state = STATE_BODY;
    if (recipient.size > 0 && !text_is(recipient, "assistant") && !p->options.keeps_calls) {
        TRY(start_call(p, STATE_BODY));
        TRY(buf_append(&p->call.name, recipient.data, recipient.size));
        return reply_begin_call(p);
    }
    bool is_thinking = text_is(channel, "analysis") && !p->options.keeps_thinking;
    return change_kind(p, is_thinking ? REPLY_REASONING : REPLY_CONTENT);
}

static lace_status on_marker(reply_parser *p, marker m)
{
    static const reply_state call_states[] = {
        [CALL_JSON] = STATE_JSON,    [CALL_NAME_JSON] = STATE_NAME, [CALL_TAGGED] = STATE_TAGGED,
        [CALL_PYTHON] = STATE_WHOLE, [CALL_XML] = STATE_WHOLE,
    };
    p->is_at_start = false;
    switch (m) {
    case MARK_THINK_BEGIN:
        p->state = STATE_THINKING;
        return change_kind(p, REPLY_REASONING);
    case MARK_THINK_END:
        p->state = STATE_CONTENT;
        return change_kind(p, REPLY_CONTENT);
    case MARK_SAY_BEGIN:
    case MARK_SAY_END:
        p->is_saying = m == MARK_SAY_BEGIN;
        return change_kind(p, REPLY_CONTENT);
    case MARK_TRAILER:
        return LACE_OK;
    case MARK_SECTION_BEGIN:
        p->state = STATE_SECTION;
        buf_clear(&p->raw);
        return keep_marker(p, m);
    case MARK_SECTION_END:
    case MARK_CALL_END:
        p->state = STATE_CONTENT;
        return LACE_OK;
    case MARK_CALL_BEGIN:
        if (p->state != STATE_SECTION)
            buf_clear(&p->raw);
        TRY(keep_marker(p, m));
        p->ends_with_section = false;
        return start_call(p, call_states[p->format.calls->style]);
    case MARK_MESSAGE:
        return begin_body(p);
    default:
        return begin_header(p, m);
    }
}

lace_status reply_leave_call(reply_parser *p)
{
    marker end = p->ends_with_section ? MARK_SECTION_END : MARK_CALL_END;
    p->state = p->markers[end].size > 0 ? STATE_AFTER : STATE_CONTENT;
    buf_clear(&p->raw);
    return LACE_OK;
}

lace_status reply_give_up(reply_parser *p)
{
    buf raw = p->raw;
    lace_status status = LACE_OK;
    size_t i = 0;
    buf_init(&p->raw, REPLY_MAX_HELD);
    p->state = STATE_CONTENT;
    p->is_at_start = false;
    /* The marker is no marker; behind it, another one may stand. */
    for (; i < raw.size && i < (p->n_raw_marker ? p->n_raw_marker : 1) && status == LACE_OK; i++)
        status = put_char(p, REPLY_CONTENT, raw.data[i]);
    bool is_short = raw.size <= MAX_REREAD;
    for (; i < raw.size && status == LACE_OK; i++)
        status = is_short ? reply_step(p, raw.data[i]) : put_char(p, REPLY_CONTENT, raw.data[i]);
    buf_deinit(&raw);
    return status;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* Take the first n bytes of `held` off and read the others in the state that is now. */
static lace_status drop_held(reply_parser *p, size_t n)
{
    char rest[64];
    size_t n_rest = p->held.size - n;
    memcpy(rest, p->held.data + n, n_rest);
    buf_clear(&p->held);
    for (size_t i = 0; i < n_rest; i++)
        TRY(reply_step(p, rest[i]));
    return LACE_OK;
}

/* Whether the byte at the front of `held` is no marker's and is read here;
 * else the state changed. */
static lace_status plain_byte(reply_parser *p, char c, bool *is_read)
{
    bool is_python = p->format.calls->style == CALL_PYTHON;
    *is_read = true;
    switch (p->state) {
    case STATE_CONTENT:
        if (p->is_at_start && p->format.calls->is_bare && !p->options.keeps_calls &&
            c == (is_python ? '[' : '{')) {
            p->is_at_start = false;
            p->n_raw_marker = 0;
            p->ends_with_section = false;
            buf_clear(&p->raw);
            TRY(start_call(p, is_python ? STATE_WHOLE : STATE_JSON));
            return drop_held(p, 0);
        }
        p->is_at_start = p->is_at_start && reply_is_space(c);
        return put_char(p, REPLY_CONTENT, c);
    case STATE_THINKING:
        return put_char(p, REPLY_REASONING, c);
    case STATE_SECTION:
        if (reply_is_space(c))
            return buf_append(&p->raw, &c, 1);
        if (c == '{' || c == '[') {
            p->ends_with_section = true;
            TRY(start_call(p, STATE_JSON));
            return drop_held(p, 0);
        }
        *is_read = false;
        for (size_t i = 0; i < p->raw.size; i++)
            TRY(put_char(p, REPLY_CONTENT, p->raw.data[i]));
        buf_clear(&p->raw);
        p->state = STATE_CONTENT;
        return LACE_OK;
    case STATE_AFTER:
        *is_read = reply_is_space(c) || c == '`'; /* some close a code block that they opened */
        if (!*is_read)
            p->state = STATE_CONTENT;
        return LACE_OK;
    case STATE_HEADER:
        TRY(buf_append(&p->word, &c, 1));
        if (p->word.size <= MAX_HEADER)
            return LACE_OK;
        p->state = STATE_BODY;
        TRY(change_kind(p, REPLY_CONTENT));
        for (size_t i = 0; i < p->word.size; i++)
            TRY(put_char(p, REPLY_CONTENT, p->word.data[i]));
        return LACE_OK;
    default:
        return p->call.is_begun ? reply_put_args(p, &c, 1) : put_char(p, p->kind, c);
    }
}

/* Read what is in `held` as far as it can be decided; at the end of the reply, all of it. */
static lace_status read_held(reply_parser *p, bool is_end)
{
    while (p->held.size > 0 && p->state < STATE_JSON) {
        bool may_be, is_read;
        marker m = match_held(p, &may_be);
        if (may_be && !is_end)
            return LACE_OK;
        if (m != N_MARKERS) {
            TRY(on_marker(p, m));
            return drop_held(p, p->markers[m].size);
        }
        size_t before = p->held.size;
        TRY(plain_byte(p, p->held.data[0], &is_read));
        if (!is_read || p->held.size != before || p->state >= STATE_JSON)
            continue; /* under other markers now, or read already */
        memmove(p->held.data, p->held.data + 1, --p->held.size);
    }
    return LACE_OK;
}

lace_status reply_step(reply_parser *p, char c)
{
    switch (p->state) {
    case STATE_JSON:
        return reply_step_json(p, c);
    case STATE_NAME:
        return reply_step_name(p, c);
    case STATE_ARGS:
        return reply_step_args(p, c);
    case STATE_TAGGED:
        return reply_step_tagged(p, c);
    case STATE_WHOLE:
        return reply_step_whole(p, c);
    default:
        TRY(buf_append(&p->held, &c, 1));
        return read_held(p, false);
    }
}

/* ---- The parser ------------------------------------------------------------------------------ */

static void set_markers(reply_parser *p)
{
    const reply_calls *c = p->format.calls;
    const reply_thinking *t = p->options.keeps_thinking ? NULL : p->format.thinking;
    const reply_answer *a = p->format.answer;
    bool is_harmony = c->style == CALL_HARMONY, has_calls = !is_harmony && !p->options.keeps_calls;
    const char *words[N_MARKERS] = {
        [MARK_THINK_BEGIN] = t ? t->begin : NULL,
        [MARK_THINK_END] = t ? t->end : NULL,
        [MARK_SAY_BEGIN] = a && t ? a->begin : NULL,
        [MARK_SAY_END] = a && t ? a->end : NULL,
        [MARK_TRAILER] = a && t ? a->trailer : NULL,
        [MARK_SECTION_BEGIN] = has_calls ? c->section_begin : NULL,
        [MARK_SECTION_END] = has_calls ? c->section_end : NULL,
        [MARK_CALL_BEGIN] = has_calls ? c->call_begin : NULL,
        [MARK_CALL_END] = has_calls ? c->call_end : NULL,
        [MARK_MESSAGE] = is_harmony ? "<|message|>" : NULL,
        [MARK_END] = is_harmony ? "<|end|>" : NULL,
        [MARK_RETURN] = is_harmony ? "<|return|>" : NULL,
        [MARK_CALL] = is_harmony ? "<|call|>" : NULL,
        [MARK_START] = is_harmony ? "<|start|>" : NULL,
        [MARK_CHANNEL] = is_harmony ? "<|channel|>" : NULL,
    };
    for (int m = 0; m < N_MARKERS; m++)
        if (words[m])
            p->markers[m] = text_of(words[m]);
    p->state = is_harmony ? STATE_HEADER : STATE_CONTENT;
}

/* Read the words that the reply goes on behind; they give no events. */
static lace_status read_opening(reply_parser *p, lace_error *err)
{
    const char *opening = p->options.opening;
    if (!opening || !*opening ||
        (p->options.keeps_thinking && p->format.calls->style != CALL_HARMONY))
        return LACE_OK;
    TRY(reply_parser_feed(p, text_of(opening), err));
    p->skips_space = false; /* what comes goes on with a text */
    return LACE_OK;
}

lace_status reply_parser_create(const reply_format *f, const reply_options *options,
                                reply_sink sink, void *arg, reply_parser **out, lace_error *err)
{
    reply_parser *p = *out = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "the parser of a reply");
    p->format = *f;
    p->options = *options;
    p->sink = sink;
    p->sink_arg = arg;
    p->is_at_start = true;
    buf *bufs[] = {&p->held,      &p->out,     &p->space,    &p->raw,      &p->word,
                   &p->call.name, &p->call.id, &p->call.key, &p->call.args};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        buf_init(bufs[i], REPLY_MAX_HELD);
    set_markers(p);
    if (options->is_thinking && p->markers[MARK_THINK_END].size > 0) {
        p->state = STATE_THINKING;
        p->kind = REPLY_REASONING;
        p->skips_space = true;
    }
    lace_status status = read_opening(p, err);
    if (status != LACE_OK) {
        reply_parser_free(p);
        *out = NULL;
    }
    return status;
}

void reply_parser_free(reply_parser *p)
{
    if (!p)
        return;
    buf *bufs[] = {&p->held,      &p->out,     &p->space,    &p->raw,      &p->word,
                   &p->call.name, &p->call.id, &p->call.key, &p->call.args};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        buf_deinit(bufs[i]);
    mem_free(p);
}

static lace_status explain(lace_status status, lace_error *err)
{
    if (status == LACE_E_NOMEM)
        return error_nomem(err, "the parser of a reply");
    if (status == LACE_E_LIMIT)
        return error_set(err, status, "a tool call is longer than %d MiB", REPLY_MAX_HELD >> 20);
    return status == LACE_OK ? status : error_set(err, status, "the reply could not be passed on");
}

lace_status reply_parser_feed(reply_parser *p, text piece, lace_error *err)
{
    lace_status status = LACE_OK;
    for (size_t i = 0; i < piece.size && status == LACE_OK; i++)
        status = reply_step(p, piece.data[i]);
    if (status == LACE_OK)
        status = flush(p);
    return explain(status, err);
}

static lace_status finish(reply_parser *p)
{
    /* Text that a given-up call leaves behind may look like another one, but it is shorter. */
    for (;;) {
        TRY(read_held(p, true));
        if (p->state >= STATE_JSON)
            TRY(reply_finish_call(p));
        else if (p->state == STATE_SECTION)
            TRY(reply_give_up(p));
        else
            break;
    }
    if (p->state == STATE_BODY && p->call.is_begun)
        TRY(reply_end_call(p, true)); /* <|call|> ends the generation and may not be shown */
    if (p->state == STATE_HEADER && p->word.size > 0 && p->word.data[0] != '<' && p->is_at_start)
        for (size_t i = 0; i < p->word.size; i++)
            TRY(put_char(p, REPLY_CONTENT, p->word.data[i]));
    if (p->kind == REPLY_CONTENT)
        TRY(buf_append(&p->out, p->space.data, p->space.size));
    return flush(p);
}

lace_status reply_parser_finish(reply_parser *p, lace_error *err)
{
    return explain(finish(p), err);
}
