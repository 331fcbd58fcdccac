/*
 * Fuzzing conversations: whatever JSON a client sends as messages, tools and variables, it is
 * refused with a line or becomes a prompt in valid UTF-8, by templates of all habits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/utf8.h"
#include "chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const sources[] = {
    "", /* ChatML */
    /* Parts only, no system, arguments as text. */
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    "[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}"
    "{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}"
    "{% endfor %}",
    /* Tools, thinking, arguments as objects. */
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: "
    "{{ m.thinking }}{{ m.content | trim }}{% for c in m.tool_calls or [] %}"
    "{% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson }}{% endfor %}"
    "{% endfor %}{% endfor %}{% if enable_thinking %}<think>{% endif %}",
};

enum { N_TEMPLATES = sizeof sources / sizeof sources[0] };

static void render(const chat_template *t, const json_t *body, bool is_served)
{
    chat_request request = chat_request_default();
    lace_error err = {0};
    buf out;
    request.messages = json_object_get(body, "messages");
    request.tools = json_object_get(body, "tools");
    request.kwargs = json_object_get(body, "kwargs");
    request.now = 1768480200;
    request.continues_last = request.describes_tools = request.gives_date = is_served;
    buf_init(&out, 1 << 20);
    lace_status status = chat_template_render(t, &request, &out, &err);
    if (status != LACE_OK &&
        (err.status != status || err.text[0] == 0 || strchr(err.text, '\n') || out.size != 0))
        abort();
    if (status == LACE_OK && out.data && !utf8_is_valid(out.data, out.size))
        abort();
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static chat_template *templates[N_TEMPLATES];
    json_t *body = NULL;
    for (int i = 0; i < N_TEMPLATES; i++)
        if (!templates[i] && chat_template_create(text_of(sources[i]), text_of("<s>"),
                                                  text_of("</s>"), &templates[i], NULL) != LACE_OK)
            abort();
    if (json_read((span){data, size}, 0, &body, NULL) != LACE_OK)
        return 0;
    for (int i = 0; i < N_TEMPLATES; i++) {
        render(templates[i], body, false);
        render(templates[i], body, true);
    }
    json_decref(body);
    return 0;
}
