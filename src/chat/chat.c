/* Conversations to prompts: templates, what they can take, and rendering. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r */
#include "chat/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "jinja/jinja.h"
#include "chat/messages.h"
#include "chat/reply_writer.h"

struct chat_template {
    jinja *parsed;
    char *bos, *eos;
    chat_caps caps;
    message_rules rules;
    bool wants_tool_list; /* no tools are [] instead of none */
    bool is_costly;       /* a tiny conversation took a whole budget: no further ones are tried */
    reply_format format;
};

static const char chatml[] =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

chat_request chat_request_default(void)
{
    return (chat_request){.add_generation_prompt = true};
}

const chat_caps *chat_template_caps(const chat_template *t)
{
    return &t->caps;
}

const reply_format *chat_template_reply_format(const chat_template *t)
{
    return &t->format;
}

reply_format chat_template_described_format(const chat_template *t)
{
    return described_in_own_form(&t->caps, &t->format) ? t->format
                                                       : reply_format_described(&t->format);
}

bool chat_template_uses(const chat_template *t, const char *variable)
{
    return jinja_names(t->parsed, text_of(variable));
}

/* ---- Rendering ------------------------------------------------------------------------------- */

/* The values in a JSON and the bytes of its strings; its depth is bounded by who read it. */
static void measure(const json_t *json, size_t *n_values, size_t *n_bytes)
{
    size_t i;
    const char *key;
    json_t *value;
    ++*n_values;
    *n_bytes += json_is_string(json) ? json_string_length(json) : 0;
    json_array_foreach(json, i, value) measure(value, n_values, n_bytes);
    json_object_foreach((json_t *)json, key, value) measure(value, n_values, n_bytes);
}

/* Long conversations may cost more; some templates look back at all messages for each one. */
static jinja_options budgets(const json_t *messages, const json_t *tools, int64_t now)
{
    enum { STEPS_PER_VALUE = 2000, MAX_STEPS = 100000000 };
    size_t n_values = 0, n_bytes = 0;
    jinja_options o = jinja_options_default();
    measure(messages, &n_values, &n_bytes);
    if (tools)
        measure(tools, &n_values, &n_bytes);
    o.max_steps += (uint64_t)n_values * STEPS_PER_VALUE + n_bytes;
    if (o.max_steps > MAX_STEPS)
        o.max_steps = MAX_STEPS;
    o.max_heap += n_values * 512 + n_bytes * 12;
    o.max_output += n_bytes * 2;
    o.now = now;
    return o;
}

static bool add_date(json_t *context, int64_t now)
{
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = (time_t)now;
    struct tm day;
    char dates[2][64];
    if (!gmtime_r(&seconds, &day))
        return true; /* a clock without a date */
    snprintf(dates[0], sizeof dates[0], "%02d %s %d", day.tm_mday, months[day.tm_mon % 12],
             day.tm_year + 1900);
    snprintf(dates[1], sizeof dates[1], "%s %02d %d", months[day.tm_mon % 12], day.tm_mday,
             day.tm_year + 1900);
    return json_object_set_new(context, "date_string", json_string(dates[0])) == 0 &&
           json_object_set_new(context, "datetime", json_string(dates[1])) == 0;
}

/* Variables of the caller, which cannot replace those that are made of other things. */
static bool add_kwargs(json_t *context, const json_t *kwargs)
{
    static const char *const reserved[] = {"messages",  "tools",     "add_generation_prompt",
                                           "bos_token", "eos_token", "documents"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)kwargs, key, value)
    {
        bool is_reserved = false;
        for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
            is_reserved = is_reserved || strcmp(key, reserved[i]) == 0;
        if (!is_reserved && json_object_set(context, key, value) != 0)
            return false;
    }
    return true;
}

static json_t *make_context(const chat_template *t, json_t *messages, const chat_request *request)
{
    bool is_described = request->describes_tools && !t->caps.takes_tools;
    bool has_tools = json_array_size(request->tools) > 0 && !is_described;
    json_t *tools = has_tools            ? json_incref((json_t *)request->tools)
                    : t->wants_tool_list ? json_array()
                                         : json_null();
    json_t *documents =
        request->documents ? json_incref((json_t *)request->documents) : json_null();
    json_t *context = json_pack("{s:s, s:s, s:O, s:o, s:o, s:b}", "bos_token", t->bos, "eos_token",
                                t->eos, "messages", messages, "tools", tools, "documents",
                                documents, "add_generation_prompt", request->add_generation_prompt);
    bool ok = context && (!request->gives_date || add_date(context, request->now)) &&
              (!request->gives_thinking ||
               json_object_set_new(context, "enable_thinking", json_true()) == 0) &&
              add_kwargs(context, request->kwargs);
    if (!ok) {
        json_decref(context);
        context = NULL;
    }
    return context;
}

/* `marks` may be NULL: nobody asks. */
static lace_status render(const chat_template *t, json_t *messages, const chat_request *request,
                          buf *out, buf *marks, lace_error *err)
{
    jinja_options options = budgets(messages, request->tools, request->now);
    json_t *context = make_context(t, messages, request);
    if (!context)
        return error_nomem(err, "a chat template's variables");
    lace_status status = jinja_render_marked(t->parsed, context, &options, out, marks, err);
    json_decref(context);
    return status;
}

/* The messages before the last one, which is continued. */
static lace_status all_but_last(const json_t *messages, json_t **out, lace_error *err)
{
    size_t n = json_array_size(messages);
    const json_t *before = json_array_get(messages, n - 2);
    const char *role = json_string_value(json_object_get(before, "role"));
    if (role && strcmp(role, "assistant") == 0)
        return error_set(err, LACE_E_ARG,
                         "messages[%zu]: the last two messages are both the assistant's; only one "
                         "can be continued",
                         n - 1);
    *out = json_copy((json_t *)messages);
    if (json_array_size(*out) != n || json_array_remove(*out, n - 1) != 0) {
        json_decref(*out);
        *out = NULL;
        return error_nomem(err, "messages");
    }
    return LACE_OK;
}

/* The messages as the template takes them. */
static lace_status adapt(const chat_template *t, const chat_request *request,
                         const json_t *messages, json_t **out, lace_error *err)
{
    bool describes = request->describes_tools && !(t->caps.takes_tools && t->caps.takes_calls);
    bool splits = t->caps.takes_calls && !t->caps.takes_call_lists;
    json_t *changed = NULL;
    if (json_is_array(messages) && splits)
        TRY(messages_split_calls(messages, &changed, err));
    else if (json_is_array(messages) && describes)
        TRY(messages_describe_tools(messages, request->tools, &t->caps, &t->format, &changed, err));
    const json_t *shown = changed ? changed : messages;
    json_t *moved = NULL;
    lace_status status = LACE_OK;
    if (json_is_array(shown) && !t->caps.takes_result_images)
        status = messages_move_images(shown, &moved, err);
    if (status == LACE_OK)
        status = messages_adapt(moved ? moved : shown, &t->rules, out, err);
    json_decref(moved);
    json_decref(changed);
    return status;
}

/*
 * Without reasoning, though the template has no switch for it: what it opens is closed at once, as
 * templates with a switch do it.
 */
static lace_status close_thinking(const chat_template *t, const chat_request *request, buf *out,
                                  buf *marks, lace_error *err)
{
    text opened = {out->data ? out->data : "", out->size};
    if (!json_is_false(json_object_get(request->kwargs, "enable_thinking")) ||
        !reply_opens_thinking(&t->format, opened))
        return LACE_OK;
    return reply_close_thinking(&t->format, out, marks) == LACE_OK ? LACE_OK
                                                                   : error_nomem(err, "a prompt");
}

static lace_status render_request(const chat_template *t, const chat_request *request, buf *out,
                                  buf *marks, const char **opening, lace_error *err)
{
    json_t *messages = NULL, *before = NULL;
    size_t n_before = out->size;
    bool is_continued = request->continues_last && request->add_generation_prompt &&
                        message_is_continued(request->messages);
    *opening = "";
    if (request->tools && !json_is_null(request->tools) && !json_is_array(request->tools))
        return error_set(err, LACE_E_ARG, "tools: an array is expected");
    if (is_continued)
        TRY(all_but_last(request->messages, &before, err));
    lace_status status = adapt(t, request, before ? before : request->messages, &messages, err);
    if (status == LACE_OK)
        status = render(t, messages, request, out, marks, err);
    if (status == LACE_OK && request->describes_tools && !t->caps.takes_calls)
        reply_settle_words(out, marks, n_before);
    if (status == LACE_OK && !is_continued)
        status = close_thinking(t, request, out, marks, err);
    if (status == LACE_OK && is_continued)
        status = message_continue(request->messages, &t->format, out, marks, opening, err);
    if (status != LACE_OK)
        out->size = n_before;
    json_decref(messages);
    json_decref(before);
    return status;
}

lace_status chat_template_render(const chat_template *t, const chat_request *request, buf *out,
                                 lace_error *err)
{
    const char *opening;
    return render_request(t, request, out, NULL, &opening, err);
}

void chat_prompt_init(chat_prompt *p, size_t max_bytes)
{
    *p = (chat_prompt){.opening = ""};
    buf_init(&p->chars, max_bytes);
}

void chat_prompt_deinit(chat_prompt *p)
{
    buf_deinit(&p->chars);
    mem_free(p->contents);
    p->contents = NULL;
    p->n_contents = 0;
}

/* The runs of marked bytes. */
static lace_status find_contents(const buf *marks, chat_prompt *out, lace_error *err)
{
    size_t n = 0, n_bytes;
    for (size_t i = 0; i < marks->size; i++)
        n += marks->data[i] && (i == 0 || !marks->data[i - 1]);
    lace_range *ranges =
        mem_mul(n + 1, sizeof *ranges, &n_bytes) ? mem_alloc(n_bytes) : NULL; /* never of 0 bytes */
    if (!ranges)
        return error_nomem(err, "a prompt");
    n = 0;
    for (size_t i = 0; i < marks->size; i++) {
        if (!marks->data[i])
            continue;
        if (i == 0 || !marks->data[i - 1])
            ranges[n++].begin = i;
        ranges[n - 1].end = i + 1;
    }
    out->contents = ranges;
    out->n_contents = n;
    return LACE_OK;
}

lace_status chat_template_prompt(const chat_template *t, const chat_request *request,
                                 chat_prompt *out, lace_error *err)
{
    buf marks;
    buf_init(&marks, SIZE_MAX / 2);
    lace_status status = render_request(t, request, &out->chars, &marks, &out->opening, err);
    if (status == LACE_OK)
        status = find_contents(&marks, out, err);
    buf_deinit(&marks);
    return status;
}

/* ---- Finding out ----------------------------------------------------------------------------- */

#define PROBE_USER "{\"role\": \"user\", \"content\": \"probe_user\"}"
#define PROBE_USER_PARTS                                                                           \
    "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"one\"},"                 \
    " {\"type\": \"text\", \"text\": \"probe_part\"}]}]"
#define PROBE_CALL_SHOWS(id, content, result)                                                      \
    "[" PROBE_USER ", {\"role\": \"assistant\", \"content\": " content                             \
    ", \"tool_calls\": [{\"id\": \"" id "\", \"type\": \"function\", \"function\":"                \
    " {\"name\": \"probe_tool\", \"arguments\": {\"probe_key\": \"probe_value\"}}}]},"             \
    " {\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"name\": \"probe_tool\","                \
    " \"content\": " result "}]"
#define PROBE_CALL_ID(id, content) PROBE_CALL_SHOWS(id, content, "\"probe_result\"")
#define PROBE_LATE                                                                                 \
    "[{\"role\": \"system\", \"content\": \"probe_early\"}, " PROBE_USER                           \
    ", {\"role\": \"assistant\", \"content\": \"probe_answer\"},"                                  \
    " {\"role\": \"system\", \"content\": \"probe_late\"}, " PROBE_USER "]"
#define PROBE_CALL(content) PROBE_CALL_ID("call00001", content)
#define PROBE_CALL_PAIR                                                                            \
    "[" PROBE_USER ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": ["              \
    "{\"id\": \"call00001\", \"type\": \"function\", \"function\":"                                \
    " {\"name\": \"probe_tool\", \"arguments\": {\"probe_key\": \"probe_value\"}}},"               \
    " {\"id\": \"call00002\", \"type\": \"function\", \"function\":"                               \
    " {\"name\": \"probe_tool\", \"arguments\": {\"probe_key\": \"probe_second\"}}}]},"            \
    " {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"probe_tool\","             \
    " \"content\": \"probe_result\"},"                                                             \
    " {\"role\": \"tool\", \"tool_call_id\": \"call00002\", \"name\": \"probe_tool\","             \
    " \"content\": \"probe_other\"}]"
#define PROBE_RESULT_SHOWS(result)                                                                 \
    "[" PROBE_USER ", {\"role\": \"assistant\", \"content\": \"probe_call\"},"                     \
    " {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"probe_tool\","             \
    " \"content\": " result "}]"
#define PROBE_RESULT      PROBE_RESULT_SHOWS("\"probe_result\"")
#define PROBE_PARTS(more) "[{\"type\": \"text\", \"text\": \"probe_result\"}" more "]"

static const char probe_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"probe_tool\", \"description\":"
    " \"probe_description\", \"parameters\": {\"type\": \"object\", \"properties\":"
    " {\"probe_param\": {\"type\": \"string\", \"description\": \"a key\"}}, \"required\":"
    " [\"probe_param\"]}}}]";

/* A conversation, as far as it can be rendered; empty if that raises an error. */
static lace_status probe_render(chat_template *t, const char *messages_text, bool with_tools,
                                buf *out, lace_error *err)
{
    json_t *messages = NULL, *tools = NULL, *adapted = NULL;
    chat_request request = chat_request_default();
    lace_status status;
    buf_clear(out);
    if (t->is_costly)
        return LACE_OK;
    TRY_GOTO(status, done,
             json_read((span){(const uint8_t *)messages_text, strlen(messages_text)}, 0, &messages,
                       err));
    TRY_GOTO(status, done,
             json_read((span){(const uint8_t *)probe_tools, strlen(probe_tools)}, 0, &tools, err));
    /* As the caps say so far: finding out sets them one after the other. */
    TRY_GOTO(status, done, messages_adapt(messages, &t->rules, &adapted, err));
    request.tools = with_tools ? tools : NULL;
    status = render(t, adapted, &request, out, NULL, err);
    t->is_costly = status == LACE_E_LIMIT;
    if (status != LACE_OK)
        buf_clear(out);
    if (status != LACE_E_NOMEM)
        status = LACE_OK;
done:
    json_decref(adapted);
    json_decref(messages);
    json_decref(tools);
    return status;
}

static bool contains(const buf *prompt, const char *word)
{
    return prompt->size > 0 && strstr(prompt->data, word);
}

/*
 * Whether a conversation renders to something that contains `wanted` and not `unwanted`, which is
 * how it looks when a value of Python is printed where text was wanted. A raised error is a "no".
 */
static lace_status probe(chat_template *t, const char *messages_text, bool with_tools,
                         const char *wanted, const char *unwanted, bool *out, lace_error *err)
{
    buf prompt;
    buf_init(&prompt, 1 << 24);
    lace_status status = probe_render(t, messages_text, with_tools, &prompt, err);
    *out = contains(&prompt, wanted) && !contains(&prompt, unwanted);
    buf_deinit(&prompt);
    return status;
}

/* Content that is a string, and what a template without tools wants to see in their place. */
static lace_status probe_strings(chat_template *t, lace_error *err)
{
    bool takes_strings;
    TRY(probe(t, "[" PROBE_USER "]", false, "probe_user", "{'role'", &takes_strings, err));
    if (!takes_strings) {
        t->wants_tool_list = true;
        TRY(probe(t, "[" PROBE_USER "]", false, "probe_user", "{'role'", &takes_strings, err));
        t->wants_tool_list = takes_strings;
    }
    t->caps.takes_strings = takes_strings;
    return LACE_OK;
}

/* Whether an earlier call is shown; its content and arguments are as the caps say. */
static lace_status probe_call(chat_template *t, bool is_null, bool *out, lace_error *err)
{
    const char *messages = is_null ? PROBE_CALL("null") : PROBE_CALL("\"\"");
    bool prints_none;
    TRY(probe(t, messages, t->caps.takes_tools, "probe_value", "{'probe_key'", out, err));
    if (!*out)
        return LACE_OK;
    TRY(probe(t, messages, t->caps.takes_tools, "None", "nothing", &prints_none, err));
    *out = !prints_none;
    return LACE_OK;
}

static lace_status probe_calls(chat_template *t, lace_error *err)
{
    chat_caps *c = &t->caps;
    bool takes_null, takes_empty;
    TRY(probe_call(t, true, &takes_null, err));
    TRY(probe_call(t, false, &takes_empty, err));
    if (!takes_null && !takes_empty) {
        c->takes_object_args = false;
        TRY(probe_call(t, true, &takes_null, err));
        TRY(probe_call(t, false, &takes_empty, err));
    }
    c->takes_calls = takes_null || takes_empty;
    c->takes_object_args = c->takes_object_args || !c->takes_calls;
    c->takes_null_content = takes_null;
    c->takes_empty_content = takes_empty || !takes_null;
    bool takes_long_ids;
    TRY(probe(t, PROBE_CALL_ID("call_0123456789", "\"\""), c->takes_tools, "probe_value",
              "{'probe_key'", &takes_long_ids, err));
    c->takes_long_ids = takes_long_ids || !c->takes_calls;
    TRY(probe(t, PROBE_CALL_PAIR, c->takes_tools, "probe_second", "{'probe_key'",
              &c->takes_call_lists, err));
    return c->takes_calls ? LACE_OK
                          : probe(t, PROBE_RESULT, c->takes_tools, "probe_result", "{'role'",
                                  &c->takes_results, err);
}

/* A result of parts behind a call, or behind a text where calls are not shown. */
#define PROBE_PARTS_BEHIND(more)                                                                   \
    {                                                                                              \
        PROBE_CALL_SHOWS("call00001", "\"\"", PROBE_PARTS(more)),                                  \
            PROBE_RESULT_SHOWS(PROBE_PARTS(more))                                                  \
    }

/*
 * Whether a result of two texts shows both, and whether an image in it changes what is rendered; not
 * because they are printed as values.
 */
static lace_status probe_result_parts(chat_template *t, lace_error *err)
{
    static const char *const one[] = PROBE_PARTS_BEHIND("");
    static const char *const two[] =
        PROBE_PARTS_BEHIND(", {\"type\": \"text\", \"text\": \"probe_more\"}");
    static const char *const image[] = PROBE_PARTS_BEHIND(", {\"type\": \"image\"}");
    chat_caps *c = &t->caps;
    int form = c->takes_calls ? 0 : 1;
    buf with, without;
    c->takes_result_images = false;
    if (!c->takes_parts || (!c->takes_calls && !c->takes_results))
        return LACE_OK;
    buf_init(&with, 1 << 24);
    buf_init(&without, 1 << 24);
    lace_status status = probe_render(t, two[form], c->takes_tools, &with, err);
    c->takes_result_parts = contains(&with, "probe_result") && contains(&with, "probe_more") &&
                            !contains(&with, "'text'") && !contains(&with, "\"text\"");
    if (status == LACE_OK && c->takes_result_parts)
        status = probe_render(t, one[form], c->takes_tools, &without, err);
    if (status == LACE_OK && c->takes_result_parts) {
        status = probe_render(t, image[form], c->takes_tools, &with, err);
        c->takes_result_images = contains(&with, "probe_result") && without.size > 0 &&
                                 !contains(&with, "'image'") && !contains(&with, "\"image\"") &&
                                 strcmp(with.data, without.data) != 0;
    }
    buf_deinit(&with);
    buf_deinit(&without);
    return status;
}

/* Whether a role that the template has a word for is one that it takes, and in which order turns may
 * stand. */
static lace_status probe_turns(chat_template *t, lace_error *err)
{
    bool takes_late, takes_early, takes_runs, takes_developer;
    if (t->rules.keeps_developer) {
        TRY(probe(t, "[{\"role\": \"developer\", \"content\": \"probe_system\"}, " PROBE_USER "]",
                  false, "probe_system", "{'role'", &takes_developer, err));
        t->rules.keeps_developer = takes_developer;
    }
    /* Some templates take the last system message for the only one, so both are looked for. */
    TRY(probe(t, PROBE_LATE, false, "probe_late", "{'role'", &takes_late, err));
    TRY(probe(t, PROBE_LATE, false, "probe_early", "{'role'", &takes_early, err));
    TRY(probe(t, "[{\"role\": \"user\", \"content\": \"probe_first\"}, " PROBE_USER "]", false,
              "probe_first", "{'role'", &takes_runs, err));
    t->caps.takes_late_system = takes_late && takes_early && t->caps.takes_system;
    t->caps.takes_user_runs = takes_runs;
    return LACE_OK;
}

static lace_status find_caps(chat_template *t, lace_error *err)
{
    chat_caps *c = &t->caps;
    bool takes_parts, takes_system;
    /* Messages are passed on as they are until something is found that they must not be. */
    c->takes_strings = c->takes_parts = c->takes_system = c->takes_object_args = true;
    c->takes_null_content = c->takes_empty_content = c->takes_long_ids = true;
    c->takes_late_system = c->takes_user_runs = true;
    c->takes_results = c->takes_result_parts = true;
    TRY(probe_strings(t, err));
    TRY(probe(t, PROBE_USER_PARTS, false, "probe_part", "{'type'", &takes_parts, err));
    if (takes_parts) /* or as JSON */
        TRY(probe(t, PROBE_USER_PARTS, false, "probe_part", "\"type\"", &takes_parts, err));
    c->takes_parts = takes_parts;
    if (!takes_parts)
        c->takes_strings = true; /* whatever it does with them */
    TRY(probe(t, "[{\"role\": \"system\", \"content\": \"probe_system\"}, " PROBE_USER "]", false,
              "probe_system", "{'role'", &takes_system, err));
    c->takes_system = takes_system;
    TRY(probe_turns(t, err));
    TRY(probe(t, "[" PROBE_USER "]", true, "probe_tool", "{'role'", &c->takes_tools, err));
    TRY(probe_calls(t, err));
    return probe_result_parts(t, err);
}

static bool mentions(text source, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; n <= source.size && i <= source.size - n; i++)
        if (source.data[i] == word[0] && memcmp(source.data + i, word, n) == 0)
            return true;
    return false;
}

lace_status chat_template_create(text source, text bos, text eos, chat_template **out,
                                 lace_error *err)
{
    *out = NULL;
    chat_template *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a chat template");
    bool is_own = source.size > 0;
    lace_status status = LACE_E_NOMEM;
    text used = is_own ? source : text_of(chatml);
    t->caps.has_own_template = is_own;
    t->bos = mem_strndup(bos.data ? bos.data : "", bos.size);
    t->eos = mem_strndup(eos.data ? eos.data : "", eos.size);
    if (!t->bos || !t->eos) {
        error_nomem(err, "a chat template");
        goto done;
    }
    TRY_GOTO(status, done, jinja_parse(used, &t->parsed, err));
    t->format = reply_format_choose(used);
    t->rules = (message_rules){.caps = &t->caps,
                               .keeps_developer = mentions(used, "developer"),
                               .wants_thinking = mentions(used, "thinking") &&
                                                 !mentions(used, "reasoning_content")};
    status = find_caps(t, err);
done:
    if (status == LACE_OK)
        *out = t;
    else
        chat_template_free(t);
    return status;
}

void chat_template_free(chat_template *t)
{
    if (!t)
        return;
    jinja_free(t->parsed);
    mem_free_all(t->bos, t->eos, t);
}
