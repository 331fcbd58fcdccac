/*
 * Fuzzing templates: whatever the text is, parsing says no with a line, or gives a template that
 * renders a conversation or fails within its budgets and leaves the output alone.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be nice.\"},"
    " {\"role\": \"user\", \"content\": \"  Hi \\u00e9 \\ud83d\\ude00\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c1\", \"function\":"
    " {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true, null]}}}]}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}],"
    " \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true,"
    " \"s\": \"abc\", \"l\": [3, 1, 2], \"d\": {\"k\": \"v\"}, \"i\": 5, \"f\": 2.5}";

static void check_error(lace_status status, const lace_error *err)
{
    bool is_ours = status == LACE_E_TEMPLATE || status == LACE_E_LIMIT;
    if (!is_ours || err->status != status || strchr(err->text, '\n'))
        abort();
    if (strncmp(err->text, "line ", 5) != 0 && strncmp(err->text, "a template of", 13) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *context;
    if (!context)
        context = json_loads(context_text, 0, NULL);
    jinja *t;
    lace_error err = {0};
    lace_status status = jinja_parse((text){(const char *)data, size}, &t, &err);
    if (status != LACE_OK) {
        check_error(status, &err);
        if (t)
            abort();
        return 0;
    }
    jinja_options options = jinja_options_default();
    options.max_steps = 20000;
    options.max_output = 100000;
    options.max_heap = 2 << 20;
    options.now = 1768480200;
    buf out;
    buf_init(&out, 1 << 20);
    if (buf_append_text(&out, "before") != LACE_OK)
        abort();
    status = jinja_render(t, context, &options, &out, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    /* Valid text in, valid text out. */
    if ((status != LACE_OK && out.size != 6) || !utf8_is_valid(out.data, out.size))
        abort();
    buf_deinit(&out);
    jinja_free(t);
    return 0;
}
