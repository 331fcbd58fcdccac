/*
 * Conversations to prompts: a model's chat template, and what it can take.
 *
 * Templates differ in what they accept: content as a string or as parts, arguments of tool calls as
 * an object or as text, a system message or none. When a template is made, a few tiny conversations
 * are rendered to find out; messages in OpenAI's form are then brought into the form it wants.
 *
 *     TRY(chat_template_create(source, text_of("<s>"), text_of("</s>"), &t, err));
 *     chat_request request = chat_request_default();
 *     request.messages = messages, request.tools = tools, request.now = seconds;
 *     TRY(chat_template_render(t, &request, &prompt, err));
 *
 * A template is read-only once it is made and may be used by many threads.
 */
#ifndef LACE_CHAT_CHAT_H
#define LACE_CHAT_CHAT_H

#include <jansson.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "chat/parse_reply.h"

typedef struct chat_template chat_template;

/* What a template can do; what it cannot is made up for as noted. */
typedef struct chat_caps {
    bool has_own_template;    /* false: the fallback, ChatML */
    bool takes_strings;       /* content as a string; else it becomes one part */
    bool takes_parts;         /* content as parts; else their text is joined by line ends */
    bool takes_system;        /* else system messages go before the next user message */
    bool takes_late_system;   /* behind other messages; else it is the user's, and several at the
                                 beginning become one */
    bool takes_user_runs;     /* user messages in a row; else they become one */
    bool takes_tools;         /* shows the tools to the model; else see describes_tools */
    bool takes_calls;         /* shows earlier tool calls; else see describes_tools */
    bool takes_call_lists;    /* several in one message; else they become a message each */
    bool takes_results;       /* of role "tool"; else see describes_tools */
    bool takes_result_parts;  /* content of results as parts; else their text is joined, as above */
    bool takes_result_images; /* in their parts; else they follow in a message of the user */
    bool takes_object_args;   /* arguments of calls as objects; else as text */
    bool takes_null_content;  /* beside calls; else it becomes "" */
    bool takes_empty_content; /* beside calls; else it becomes null */
    bool takes_long_ids;      /* of calls; else they get 9 letters and digits */
} chat_caps;

/*
 * From the text of a model's template; an empty one gives ChatML. bos and eos are the texts of the
 * tokens, which templates may write. All texts are copied. LACE_E_TEMPLATE with the line for a
 * template that cannot be parsed.
 */
lace_status chat_template_create(text source, text bos, text eos, chat_template **out,
                                 lace_error *err);
void chat_template_free(chat_template *t);

const chat_caps *chat_template_caps(const chat_template *t);
/* How this model writes reasoning and tool calls, for reply_parser_create. */
const reply_format *chat_template_reply_format(const chat_template *t);
/* The same where tools were described because the template has no place for them. */
reply_format chat_template_described_format(const chat_template *t);
bool chat_template_uses(const chat_template *t, const char *variable);

typedef struct chat_request {
    const json_t *messages;     /* array: role, content, tool_calls, tool_call_id, ... */
    const json_t *tools;        /* array, or NULL: none */
    const json_t *kwargs;       /* object of further variables (enable_thinking...), or NULL */
    const json_t *documents;    /* array for templates that use it, or NULL */
    bool add_generation_prompt; /* end where the assistant's reply begins; default true */
    bool continues_last;        /* a last message of the assistant's is not ended; default false */
    bool describes_tools; /* a template without tools gets them in the system message, and calls
                             and results as plain messages; default false */
    bool gives_date;      /* date_string and datetime, as llama-server has them; default false */
    bool gives_thinking;  /* enable_thinking is true, as llama-server has it; false (default): as
                             the template has it. Of all these, kwargs go before */
    int64_t now;          /* seconds since 1970 in the time zone to be shown */
} chat_request;

chat_request chat_request_default(void);

/*
 * Append the prompt to `out`. LACE_E_ARG names the message that is malformed, LACE_E_UNSUPPORTED a
 * part that is not text, LACE_E_TEMPLATE and LACE_E_LIMIT are as for jinja_render; the budgets grow
 * with the messages. On failure `out` is as before.
 */
lace_status chat_template_render(const chat_template *t, const chat_request *request, buf *out,
                                 lace_error *err);

/*
 * A prompt, and where in it what users wrote stands: messages, tools and variables. Only the
 * template's own words may become control tokens (lace_tokenize_contents).
 */
typedef struct chat_prompt {
    buf chars;
    lace_range *contents; /* [n_contents], ascending */
    size_t n_contents;
    const char *opening; /* "", or what the reply's parser must read first: the message that is
                            continued has begun to think, or to speak in a channel */
} chat_prompt;

void chat_prompt_init(chat_prompt *p, size_t max_bytes);
void chat_prompt_deinit(chat_prompt *p);

/* The same as chat_template_render, to an empty prompt. */
lace_status chat_template_prompt(const chat_template *t, const chat_request *request,
                                 chat_prompt *out, lace_error *err);

#endif
