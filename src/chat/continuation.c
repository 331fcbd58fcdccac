/*
 * An assistant's message at the end of a conversation is continued: the prompt goes on behind the
 * words that open a reply with what the message says, and the model with that.
 */
#include <string.h>

#include "chat/messages.h"
#include "chat/reply_formats.h"

/* Where the prompt is written, and of each byte who wrote it; marks may be NULL. */
typedef struct pen {
    buf *out, *marks;
} pen;

static lace_status add(const pen *p, text chars, char is_content)
{
    TRY(buf_append(p->out, chars.data, chars.size));
    if (!p->marks)
        return LACE_OK;
    TRY(buf_reserve(p->marks, chars.size));
    memset(p->marks->data + p->marks->size, is_content, chars.size);
    p->marks->size += chars.size;
    return LACE_OK;
}

static lace_status add_own(const pen *p, const char *chars)
{
    return add(p, text_of(chars), 0);
}

static lace_status add_content(const pen *p, const buf *b)
{
    return add(p, (text){b->data ? b->data : "", b->size}, 1);
}

/* gpt-oss: each part of a reply is a message in a channel. */
static lace_status continue_harmony(const pen *p, const buf *thought, const buf *said,
                                    const char **opening)
{
    static const char analysis[] = "<|channel|>analysis<|message|>";
    static const char final[] = "<|channel|>final<|message|>";
    if (thought->size > 0) {
        *opening = analysis;
        TRY(add_own(p, analysis));
        TRY(add_content(p, thought));
        if (said->size == 0)
            return LACE_OK;
        TRY(add_own(p, "<|end|><|start|>assistant"));
    }
    *opening = final;
    TRY(add_own(p, final));
    return add_content(p, said);
}

static lace_status continue_tagged(const pen *p, const reply_format *f, const buf *thought,
                                   const buf *said, const char **opening)
{
    bool is_open = reply_opens_thinking(f, (text){p->out->data, p->out->size});
    bool has_thought = f->thinking && thought->size > 0;
    if (has_thought && !is_open) {
        TRY(add_own(p, f->thinking->begin));
        TRY(add_own(p, "\n"));
    }
    if (has_thought) {
        *opening = f->thinking->begin;
        TRY(add_content(p, thought));
    }
    if (said->size == 0)
        return LACE_OK;
    if (has_thought || is_open) {
        *opening = "";
        TRY(reply_close_thinking(f, p->out, p->marks));
    }
    return add_content(p, said);
}

lace_status reply_close_thinking(const reply_format *f, buf *out, buf *marks)
{
    pen p = {out, marks};
    TRY(add_own(&p, "\n"));
    TRY(add_own(&p, f->thinking->end));
    return add_own(&p, "\n\n");
}

bool message_is_continued(const json_t *messages)
{
    size_t n = json_array_size(messages);
    const json_t *last = n > 1 ? json_array_get(messages, n - 1) : NULL;
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "assistant") == 0 &&
           json_array_size(json_object_get(last, "tool_calls")) == 0;
}

lace_status message_continue(const json_t *messages, const reply_format *f, buf *out, buf *marks,
                             const char **opening, lace_error *err)
{
    size_t last = json_array_size(messages) - 1;
    const json_t *message = json_array_get(messages, last);
    const json_t *reasoning = json_object_get(message, "reasoning_content");
    buf thought, said;
    pen p = {out, marks};
    if (!json_is_string(reasoning))
        reasoning = json_object_get(message, "reasoning");
    *opening = "";
    buf_init(&thought, SIZE_MAX / 2);
    buf_init(&said, SIZE_MAX / 2);
    lace_status status = message_text(json_object_get(message, "content"), last, &said, err);
    if (status == LACE_OK)
        status = buf_append(&thought, json_string_value(reasoning), json_string_length(reasoning));
    if (status == LACE_OK)
        status = f->calls->style == CALL_HARMONY ? continue_harmony(&p, &thought, &said, opening)
                                                 : continue_tagged(&p, f, &thought, &said, opening);
    buf_deinit(&thought);
    buf_deinit(&said);
    return status == LACE_E_NOMEM || status == LACE_E_LIMIT ? error_nomem(err, "a prompt") : status;
}
