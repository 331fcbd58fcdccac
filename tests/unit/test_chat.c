/* chat/chat: OpenAI's messages become the prompts that models' templates would give. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "chat_kit.h"
#include "cost.h"
#include "tap.h"

/* Render and compare; `expected` NULL: the status is what counts. */
static lace_status render(const char *source, const char *messages, const char *tools,
                          const char *kwargs, const char *expected, lace_error *err)
{
    chat_template *t;
    chat_request request = chat_request_default();
    buf out;
    buf_init(&out, 1 << 24);
    lace_status status =
        chat_template_create(text_of(source), text_of("<s>"), text_of("</s>"), &t, err);
    if (status != LACE_OK)
        return status;
    json_t *parts[] = {read_json(messages), read_json(tools), read_json(kwargs)};
    request.messages = parts[0];
    request.tools = parts[1];
    request.kwargs = parts[2];
    status = chat_template_render(t, &request, &out, err);
    if (expected && !CHECK(status == LACE_OK && out.data && strcmp(out.data, expected) == 0))
        tap_note("%s\n#   not %s", status == LACE_OK ? out.data : err->text, expected);
    CHECK(status == LACE_OK || out.size == 0);
    for (int i = 0; i < 3; i++)
        json_decref(parts[i]);
    buf_deinit(&out);
    chat_template_free(t);
    return status;
}

static void check(const char *source, const char *messages, const char *expected)
{
    lace_error err = {0};
    render(source, messages, NULL, NULL, expected, &err);
}

static void a_model_without_a_template_gets_chatml(void)
{
    check("",
          "[{\"role\": \"system\", \"content\": \"Be nice.\"},"
          " {\"role\": \"user\", \"content\": \" Hi \"}]",
          "<|im_start|>system\nBe nice.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
          "<|im_start|>assistant\n");
}

static const char plain[] = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
                            "{% if add_generation_prompt %}{{ bos_token }}{% endif %}";

static void parts_are_joined_for_a_template_of_strings(void)
{
    check(plain,
          "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
          " {\"type\": \"input_text\", \"text\": \"b\"}]}]",
          "user:a\nb;<s>");
}

static void parts_are_kept_for_a_template_of_parts(void)
{
    static const char source[] =
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}";
    check(source,
          "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
          " {\"type\": \"text\", \"text\": \"b\"}]}, {\"role\": \"user\", \"content\": \"c\"}]",
          "<a><b>c");
}

static void strings_become_parts_where_only_parts_are_taken(void)
{
    static const char source[] = "{% for m in messages %}{% for p in m.content %}"
                                 "<{{ p.text }}>{% endfor %}{% endfor %}";
    check(source, "[{\"role\": \"user\", \"content\": \"abc\"}]", "<abc>");
}

static void a_system_message_goes_to_the_user_where_it_is_refused(void)
{
    static const char source[] =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.role }}:{{ m.content }};{% endfor %}";
    check(source,
          "[{\"role\": \"developer\", \"content\": \"A\"}, {\"role\": \"system\", \"content\":"
          " \"B\"}, {\"role\": \"user\", \"content\": \"C\"}, {\"role\": \"user\", \"content\":"
          " \"D\"}]",
          "user:A\n\nB\n\nC;user:D;");
    check(source, "[{\"role\": \"system\", \"content\": \"A\"}]", "user:A;");
}

static void a_late_system_message_is_the_users_where_it_is_refused(void)
{
    static const char messages[] =
        "[{\"role\": \"system\", \"content\": \"A\"}, {\"role\": \"developer\", \"content\":"
        " [{\"type\": \"text\", \"text\": \"B\"}]}, {\"role\": \"user\", \"content\": \"C\"},"
        " {\"role\": \"system\", \"content\": \"D\"}, {\"role\": \"assistant\", \"content\":"
        " \"E\"}]";
    /* Raised as by Qwen 3.5, left out as by gpt-oss, in place of the first as by DeepSeek R1, and
     * taken as by most. */
    check("{% set ns = namespace(rule='') %}{% for m in messages %}{% if m.role == 'system' %}"
          "{% set ns.rule = m.content %}{% endif %}{% endfor %}system:{{ ns.rule }};"
          "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}:{{ m.content }};"
          "{% endif %}{% endfor %}",
          messages, "system:A\n\nB;user:C;user:D;assistant:E;");
    check("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
          "{{ raise_exception('first') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}",
          messages, "system:A\n\nB;user:C;user:D;assistant:E;");
    check("{% for m in messages %}{% if m.role != 'system' or loop.first %}"
          "{{ m.role }}:{{ m.content }};{% endif %}{% endfor %}",
          messages, "system:A\n\nB;user:C;user:D;assistant:E;");
    check("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", messages,
          "system:A;system:B;user:C;system:D;assistant:E;");
}

static const char alternating[] =
    "{% set ns = namespace(last='') %}{% for m in messages %}{% if m.role == ns.last or"
    " m.role not in ['user', 'assistant'] %}{{ raise_exception('alternate') }}{% endif %}"
    "{% set ns.last = m.role %}{{ m.role }}:{{ m.content }};{% endfor %}";

static void users_in_a_row_are_one_where_turns_must_alternate(void)
{
    check(alternating,
          "[{\"role\": \"system\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"B\"},"
          " {\"role\": \"user\", \"content\": \"C\"}, {\"role\": \"system\", \"content\": \"D\"},"
          " {\"role\": \"assistant\", \"content\": \"E\"}]",
          "user:A\n\nB\n\nC\n\nD;assistant:E;");
    /* Texts before and behind a list of parts, where parts are taken. */
    check(
        "{% for m in messages %}{% if m.role == 'user' and not loop.first and"
        " messages[loop.index0 - 1].role == 'user' %}{{ raise_exception('alternate') }}{% endif %}"
        "{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %};{% endfor %}",
        "[{\"role\": \"user\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"B\"},"
        " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"C\"}]},"
        " {\"role\": \"user\", \"content\": \"D\"}, {\"role\": \"assistant\", \"content\": \"E\"},"
        " {\"role\": \"user\", \"content\": \"F\"}, {\"role\": \"user\", \"content\": \"\"}]",
        "user:[A\n\nB][C][D];assistant:E;user:F\n\n;");
}

static void make_users_in_a_row(size_t n_bytes, buf *out)
{
    buf_append_text(out, "[{\"role\":\"user\",\"content\":\"a\"}");
    while (out->size < n_bytes)
        buf_append_text(out, ",{\"role\":\"user\",\"content\":\"a\"}");
    buf_append_text(out, "]");
}

static void render_alternating(span input)
{
    static chat_template *t; /* in the process of the measurement */
    chat_request request = chat_request_default();
    json_t *messages = NULL;
    buf out;
    buf_init(&out, 1 << 24);
    CHECK(t || chat_template_create(text_of(alternating), text_of(""), text_of(""), &t, NULL) ==
                   LACE_OK);
    CHECK(json_read(input, 0, &messages, NULL) == LACE_OK);
    request.messages = messages;
    CHECK(chat_template_render(t, &request, &out, NULL) == LACE_OK);
    json_decref(messages);
    buf_deinit(&out);
}

/* As Mistral's templates want them. */
static void ids_of_calls_are_short_where_a_template_wants_them_so(void)
{
    static const char source[] =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}"
        "{{ raise_exception('9') }}{% endif %}{{ c.function.arguments|tojson }}{% set first = c.id "
        "%}"
        "{{ '=' if c.id == messages[-1].tool_call_id else '!' }}{{ c.id == 'abcDEF123' }}"
        "{% endfor %}{% endfor %}";
#define WITH_ID(id)                                                                                \
    "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"\","      \
    " \"tool_calls\": [{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\":"      \
    " \"f\", \"arguments\": {}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"" id                  \
    "\", \"content\": \"r\"}]"
    check(source, WITH_ID("call_0123456789abcdef"), "{}=False");
    check(source, WITH_ID("abcDEF123"), "{}=True");
#undef WITH_ID
}

#define CALL                                                                                       \
    "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": null,"      \
    " \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\","   \
    " \"arguments\": \"{\\\"a\\\": [1, \\\"x\\\"]}\"}}]}]"

/* A system message of several parts: all of them go, not the first alone. */
static void all_parts_of_a_system_message_go_to_the_user(void)
{
    check("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
          "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
          "[{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"Be\"},"
          " {\"type\": \"text\", \"text\": \"nice.\"}]},"
          " {\"role\": \"user\", \"content\": \"Hi\"}]",
          "[Be\nnice.][Hi]");
}

static void arguments_are_objects_or_text_as_the_template_wants_them(void)
{
    check("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
          "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}",
          CALL, "qf{\"a\": [1, \"x\"]}");
    check("{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
          "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}",
          CALL, "qf{\"a\": [1, \"x\"]}");
    check("{% for m in messages %}{{ m.content if m.content is not none else '-' }}"
          "{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}"
          "{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}",
          CALL, "q-a=[1, 'x']");
}

static void further_variables_reach_the_template(void)
{
    lace_error err = {0};
    render("{{ enable_thinking }}{{ messages[0].content }}{{ tools is none }}{{ eos_token }}",
           "[{\"role\": \"user\", \"content\": \"u\"}]", NULL,
           "{\"enable_thinking\": false, \"messages\": 5, \"eos_token\": \"E\"}", "FalseuTrue</s>",
           &err);
    render("{{ messages[0].content }}{{ tools[0].function.name }}",
           "[{\"role\": \"user\", \"content\": \"u\"}]", "[{\"function\": {\"name\": \"f\"}}]",
           NULL, "uf", &err);
}

static void malformed_messages_are_named(void)
{
    static const struct {
        const char *messages, *expected;
        lace_status status;
    } rows[] = {
        {"[]", "messages: an array", LACE_E_ARG},
        {"{}", "messages: an array", LACE_E_ARG},
        {"[5]", "messages[0]: an object", LACE_E_ARG},
        {"[{}]", "messages[0].role", LACE_E_ARG},
        {"[{\"role\": 5}]", "messages[0].role", LACE_E_ARG},
        {"[{\"role\": \"user\", \"content\": 5}]", "messages[0].content", LACE_E_ARG},
        {"[{\"role\": \"user\", \"content\": [5]}]", "messages[0].content[0]", LACE_E_ARG},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
         "messages[0].content[0]: parts of type 'image_url'", LACE_E_UNSUPPORTED},
        {"[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": 5}]",
         "messages[0].tool_calls", LACE_E_ARG},
        {"[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": 1}]}]",
         "messages[0].tool_calls[0].function.name", LACE_E_ARG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lace_error err = {0};
        CHECK(render(plain, rows[i].messages, NULL, NULL, NULL, &err) == rows[i].status);
        if (!CHECK(strstr(err.text, rows[i].expected)))
            tap_note("%s: %s", rows[i].messages, err.text);
    }
    lace_error err = {0};
    CHECK(render(plain, "[{\"role\": \"user\", \"content\": \"u\"}]", "{}", NULL, NULL, &err) ==
          LACE_E_ARG);
    CHECK(render("a\n{{", "[]", NULL, NULL, NULL, &err) == LACE_E_TEMPLATE);
    CHECK(strncmp(err.text, "line 2:", 7) == 0);
}

/* A file may bring a template that only burns time: it is tried once, not
 * once for each question. */
static void a_template_that_uses_up_its_budget_is_tried_once(void)
{
    static const char source[] = "{% for i in range(99999) %}{% for j in range(99999) %}"
                                 "{% set x = i * j %}{% endfor %}{% endfor %}";
    lace_error err = {0};
    chat_template *t = NULL;
    buf out;
    buf_init(&out, 1 << 20);
    json_t *messages = read_json("[{\"role\": \"user\", \"content\": \"u\"}]");
    chat_request request = chat_request_default();
    request.messages = messages;
    clock_t begin = clock();
    CHECK(chat_template_create(text_of(source), text_of(""), text_of(""), &t, &err) == LACE_OK);
    clock_t made = clock();
    CHECK(chat_template_render(t, &request, &out, &err) == LACE_E_LIMIT);
    clock_t rendered = clock();
    CHECK(made - begin < 4 * (rendered - made));
    chat_template_free(t);
    json_decref(messages);
    buf_deinit(&out);
}

static void reasoning_is_closed_where_the_template_has_no_switch(void)
{
    lace_error err = {0};
    render("{{ messages[0].content }}{% if add_generation_prompt %}<think>{% endif %}",
           "[{\"role\": \"user\", \"content\": \"u\"}]", NULL, "{\"enable_thinking\": false}",
           "u<think>\n</think>\n\n", &err);
    render("{{ messages[0].content }}{% if add_generation_prompt %}<think>{% endif %}",
           "[{\"role\": \"user\", \"content\": \"u\"}]", NULL, NULL, "u<think>", &err);
}

/* What the server asks for beyond rendering: tools described, a message continued. */
static void every_allocation_of_a_served_prompt_may_fail(void)
{
    json_t *body = read_json(
        "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}], \"messages\":"
        " [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"q\"},"
        " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c\","
        " \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\","
        " \"tool_call_id\": \"c\", \"content\": \"r\"}, {\"role\": \"tool\", \"tool_call_id\":"
        " \"d\", \"content\": \"s\"}, {\"role\": \"assistant\", \"content\": \"Once\"}]}");
    long n = 0;
    chat_template *t = NULL;
    lace_error err = {0};
    CHECK(chat_template_create(text_of(""), text_of(""), text_of(""), &t, &err) == LACE_OK);
    for (long i = 0; i < 5000; i++) {
        chat_request request = chat_request_default();
        chat_prompt prompt;
        request.messages = json_object_get(body, "messages");
        request.tools = json_object_get(body, "tools");
        request.continues_last = request.describes_tools = request.gives_date = true;
        chat_prompt_init(&prompt, 1 << 20);
        err = (lace_error){0};
        mem_fail_at(i, false);
        lace_status status = chat_template_prompt(t, &request, &prompt, &err);
        n = mem_count();
        mem_fail_at(-1, false);
        if (!CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.status == status)))
            tap_note("%ld: %s", i, err.text);
        if (status == LACE_OK) {
            static const char ending[] =
                "<|im_start|>assistant\n{\"name\":\"f\",\"arguments\":{}}<|im_end|>\n"
                "<|im_start|>user\nResult of f:\nr\n\nResult of the tool:\ns<|im_end|>\n"
                "<|im_start|>assistant\nOnce";
            const char *end = strstr(prompt.chars.data, "<|im_start|>assistant\n{");
            if (!CHECK(end && strcmp(end, ending) == 0))
                tap_note("%ld: %s", i, prompt.chars.data);
        }
        chat_prompt_deinit(&prompt);
        if (n <= i)
            break;
    }
    tap_note("%ld allocations", n);
    chat_template_free(t);
    json_decref(body);
}

static void every_allocation_may_fail(void)
{
    static const char source[] =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}";
    json_t *messages =
        read_json("[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\":"
                  " [{\"type\": \"text\", \"text\": \"a\"}]}, {\"role\": \"assistant\","
                  " \"reasoning\": \"r\", \"tool_calls\": [{\"function\": {\"name\": \"f\","
                  " \"arguments\": {\"a\": 1}}}]}]");
    long n = 0;
    for (long i = 0; i < 5000; i++) {
        chat_template *t;
        chat_request request = chat_request_default();
        lace_error err = {0};
        buf out;
        buf_init(&out, 1 << 20);
        request.messages = messages;
        mem_fail_at(i, false);
        lace_status status =
            chat_template_create(text_of(source), text_of("<s>"), text_of("</s>"), &t, &err);
        if (status == LACE_OK)
            status = chat_template_render(t, &request, &out, &err);
        n = mem_count();
        mem_fail_at(-1, false);
        if (!CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.status == status)))
            tap_note("%ld: %s", i, err.text);
        if (status == LACE_OK && n <= i)
            CHECK(strcmp(out.data, "S\n\naf{\"a\": 1}") == 0);
        buf_deinit(&out);
        chat_template_free(t);
        if (n <= i)
            break;
    }
    tap_note("%ld allocations", n);
    CHECK(n > 100);
    json_decref(messages);
}

int main(void)
{
    CASE(a_model_without_a_template_gets_chatml);
    CASE(parts_are_joined_for_a_template_of_strings);
    CASE(parts_are_kept_for_a_template_of_parts);
    CASE(strings_become_parts_where_only_parts_are_taken);
    CASE(a_system_message_goes_to_the_user_where_it_is_refused);
    CASE(all_parts_of_a_system_message_go_to_the_user);
    CASE(a_late_system_message_is_the_users_where_it_is_refused);
    CASE(users_in_a_row_are_one_where_turns_must_alternate);
    CASE(ids_of_calls_are_short_where_a_template_wants_them_so);
    CASE(arguments_are_objects_or_text_as_the_template_wants_them);
    CASE(further_variables_reach_the_template);
    CASE(malformed_messages_are_named);
    CASE(a_template_that_uses_up_its_budget_is_tried_once);
    CASE(reasoning_is_closed_where_the_template_has_no_switch);
    CASE(every_allocation_of_a_served_prompt_may_fail);
    CASE(every_allocation_may_fail);
    cost_check(&(cost_subject){.name = "users in a row become one in linear time",
                               .make = make_users_in_a_row,
                               .run = render_alternating,
                               .max_bytes = 1 << 20});
    return tap_end();
}
