/* chat/result_images: images of tools' results come into prompts, in the order of the messages. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/chat.h"
#include "chat_kit.h"
#include "tap.h"

/* clang-format off */
#define TOOLS "[{\"type\": \"function\", \"function\": {\"name\": \"look\"}}]"
#define CALL(id, name) "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name "\", \"arguments\": {}}}"
#define CALLS(calls) "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" calls "]}"
#define RESULT(id, content) ", {\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": " content "}"
#define TEXT(t) "{\"type\": \"text\", \"text\": \"" t "\"}"
#define IMAGE "{\"type\": \"image\"}"

/* Calls and contents; a list of parts as such, where `shows` says for which role. */
#define TEMPLATE(shows)                                                                            \
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}"               \
    "{% elif " shows " %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}"       \
    "{{ p.text }}{% endif %}{% endfor %}{% else %}{{ m.content }}{% endif %}"                       \
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments }})"           \
    "{% endfor %};{% endfor %}"
#define SHOWN_EVERYWHERE TEMPLATE("true")
#define SHOWN_OF_USERS TEMPLATE("m.role == 'user'")
/* clang-format on */

static const char described[] =
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}[{{ p.text }}]{% endif %}"
    "{% endfor %}{% endif %};{% endfor %}";

/* Render as the server does; what stands behind the question is compared. NULL: the error is. */
static void check(const char *source, const char *messages, const char *expected, const char *error)
{
    chat_template *t;
    chat_request request = chat_request_default();
    lace_error err = {0};
    buf out;
    buf_init(&out, 1 << 20);
    if (!CHECK(chat_template_create(text_of(source), text_of(""), text_of(""), &t, &err) ==
               LACE_OK))
        return;
    json_t *list = read_json(messages), *tools = read_json(TOOLS);
    request.messages = list;
    request.tools = tools;
    request.describes_tools = true;
    lace_status status = chat_template_render(t, &request, &out, &err);
    const char *at = status == LACE_OK && out.data ? strstr(out.data, "user:q;") : NULL;
    bool is_right = expected ? at && strcmp(at + 7, expected) == 0
                             : status != LACE_OK && strstr(err.text, error);
    if (!CHECK(is_right))
        tap_note("%s\n#   not %s", status == LACE_OK ? out.data : err.text,
                 expected ? expected : error);
    json_decref(list);
    json_decref(tools);
    buf_deinit(&out);
    chat_template_free(t);
}

static void images_stand_in_results_where_the_template_shows_them(void)
{
    check(SHOWN_EVERYWHERE,
          "[" CALLS(CALL("a", "look"))
              RESULT("a", "[" TEXT("one") "," IMAGE "," TEXT("two") "]") "]",
          "assistant:(look {});tool:one<image>two;", NULL);
}

/* The words of Qwen's own template, which renders results as it does what users say. */
static void the_template_of_qwen_shows_images_of_results(void)
{
    static const char name[] = "Qwen3.5-4B.jinja";
    chat_template *t;
    chat_request request = chat_request_default();
    lace_error err = {0};
    buf out;
    buf_init(&out, 1 << 20);
    char *source = read_template(name, sizeof name - 1);
    json_t *messages = read_json("[" CALLS(CALL("a", "look")) RESULT(
        "a", "[" TEXT("one") "," IMAGE "]") RESULT("b", "[" IMAGE "," TEXT("two") "]") "]");
    request.messages = messages;
    request.describes_tools = true;
    if (CHECK(chat_template_create(text_of(source), text_of(""), text_of(""), &t, &err) ==
              LACE_OK)) {
        CHECK(chat_template_render(t, &request, &out, &err) == LACE_OK);
        CHECK(out.data &&
              strstr(out.data, "<|im_start|>user\n<tool_response>\none<|vision_start|><|image_pad|>"
                               "<|vision_end|>\n</tool_response>\n<tool_response>\n<|vision_start|>"
                               "<|image_pad|><|vision_end|>two\n</tool_response><|im_end|>\n"));
        chat_template_free(t);
    }
    json_decref(messages);
    free(source);
    buf_deinit(&out);
}

static void images_follow_results_that_are_texts(void)
{
    check(SHOWN_OF_USERS,
          "[" CALLS(CALL("a", "look"))
              RESULT("a", "[" TEXT("one") "," IMAGE "," TEXT("two") "]") "]",
          "assistant:(look {});tool:one\ntwo;user:Image of the result of look:\n<image>;", NULL);
    /* Behind all results that stand together, in their order, and before what is said then. */
    check(SHOWN_OF_USERS,
          "[" CALLS(CALL("a", "look") "," CALL("b", "see")) RESULT("a", "[" IMAGE
                                                                        "]") RESULT("c", "\"none\"")
              RESULT("b",
                     "[" IMAGE "," IMAGE "," TEXT(
                         "two") "]") ", {\"role\": \"user\", \"content\": \"so?\"}" RESULT("d",
                                                                                           "[" IMAGE
                                                                                           "]") "]",
          "assistant:(look {})(see {});tool:;tool:none;tool:two;"
          "user:Image of the result of look:\n<image>Images of the result of see:\n<image><image>;"
          "user:so?;tool:;user:Image of the result of the tool:\n<image>;",
          NULL);
}

static void images_stand_in_results_that_are_described(void)
{
    check(described,
          "[" CALLS(CALL("a", "look"))
              RESULT("a", "[" TEXT("one") "," TEXT("two") "," IMAGE "," TEXT("three") "]") "]",
          "assistant:{\"name\":\"look\",\"arguments\":{}};"
          "user:[Result of look:\none\ntwo]<image>[three];",
          NULL);
    /* Further results, and what the user says and shows, are of the same message. */
    check(described,
          "[" CALLS(CALL("a", "look")) RESULT("a", "\"zero\"") RESULT("a", "[" IMAGE "]")
              RESULT("b", "\"one\"") ", {\"role\": \"user\", \"content\": [" TEXT("so?") "," IMAGE
                                                                                         "]}]",
          "assistant:{\"name\":\"look\",\"arguments\":{}};"
          "user:[Result of look:\nzero\n\nResult of look:\n]<image>"
          "[Result of the tool:\none\n\nso?]<image>;",
          NULL);
}

static void results_without_images_are_as_before(void)
{
    static const char texts[] = "[" CALLS(CALL("a", "look"))
        RESULT("a", "[" TEXT("one") "," TEXT("two") "]") RESULT("b", "\"three\"") "]";
    check(SHOWN_EVERYWHERE, texts, "assistant:(look {});tool:onetwo;tool:three;", NULL);
    check(described, texts,
          "assistant:{\"name\":\"look\",\"arguments\":{}};"
          "user:Result of look:\none\ntwo\n\nResult of the tool:\nthree;",
          NULL);
}

/* Images are told apart by their order alone. */
static void results_with_images_do_not_change_places(void)
{
    static const char one_call[] =
        "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}"
        "{{ raise_exception('one call') }}{% endif %}{{ m.role }}:"
        "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
        "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
        "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments }})"
        "{% endfor %};{% endfor %}";
    check(one_call,
          "[" CALLS(CALL("a", "look") "," CALL("b", "see")) RESULT("a", "[" IMAGE "]")
              RESULT("b", "[" IMAGE "," TEXT("two") "]") "]",
          "assistant:(look {});tool:<image>;assistant:(see {});tool:<image>two;", NULL);
    check(one_call,
          "[" CALLS(CALL("a", "look") "," CALL("b", "see")) RESULT("b", "[" IMAGE "]")
              RESULT("a", "\"one\"") "]",
          "assistant:(look {});tool:one;assistant:(see {});tool:<image>;", NULL);
    check(one_call,
          "[" CALLS(CALL("a", "look") "," CALL("b", "see")) RESULT("b", "[" IMAGE "]")
              RESULT("a", "[" IMAGE "]") "]",
          NULL, "messages[2]: the model's chat template shows one call at a time");
}

static void what_cannot_be_shown_is_named(void)
{
    check("{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}",
          "[" CALLS(CALL("a", "look")) RESULT("a", "[" IMAGE "]") "]", NULL,
          "the model's chat template has no place for images");
    check(SHOWN_OF_USERS,
          "[" CALLS(CALL("a", "look")) RESULT("a", "[" IMAGE ",{\"type\": \"sound\"}]") "]", NULL,
          "].content[1]: a text or an image is expected");
    check(described,
          "[" CALLS(CALL("a", "look")) RESULT("a", "[" IMAGE ",{\"type\": \"text\"}]") "]", NULL,
          "messages[2].content[1]: a text or an image is expected");
}

static void fail_allocations(const char *source)
{
    json_t *tools = read_json(TOOLS);
    json_t *messages = read_json("[" CALLS(CALL("a", "look")) RESULT(
        "a", "[" TEXT("one") "," IMAGE "," TEXT("two") "]") RESULT("b", "[" IMAGE "]") "]");
    chat_template *t = NULL;
    lace_error err = {0};
    long n = 0, i = 0;
    CHECK(chat_template_create(text_of(source), text_of(""), text_of(""), &t, &err) == LACE_OK);
    for (; t && i < 5000; i++) {
        chat_request request = chat_request_default();
        buf out;
        request.messages = messages;
        request.tools = tools;
        request.describes_tools = true;
        buf_init(&out, 1 << 20);
        err = (lace_error){0};
        mem_fail_at(i, false);
        lace_status status = chat_template_render(t, &request, &out, &err);
        n = mem_count();
        mem_fail_at(-1, false);
        if (!CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.status == status)))
            tap_note("%ld: %s", i, err.text);
        const char *first = status == LACE_OK ? strstr(out.data, "<image>") : NULL;
        if (status == LACE_OK)
            CHECK(first && strstr(first + 1, "<image>"));
        buf_deinit(&out);
        if (n <= i)
            break;
    }
    tap_note("%ld allocations", n);
    CHECK(i > 50);
    chat_template_free(t);
    json_decref(messages);
    json_decref(tools);
}

static void every_allocation_may_fail(void)
{
    fail_allocations(SHOWN_EVERYWHERE);
    fail_allocations(SHOWN_OF_USERS);
    fail_allocations(described);
}

int main(void)
{
    CASE(images_stand_in_results_where_the_template_shows_them);
    CASE(the_template_of_qwen_shows_images_of_results);
    CASE(images_follow_results_that_are_texts);
    CASE(images_stand_in_results_that_are_described);
    CASE(results_without_images_are_as_before);
    CASE(results_with_images_do_not_change_places);
    CASE(what_cannot_be_shown_is_named);
    CASE(every_allocation_may_fail);
    return tap_end();
}
