/* POST /tokenize, /detokenize, /apply-template: what a generation would see, without one. */
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"

enum { MAX_OUT = 256 << 20 };

/* A boolean field with a default. False: answered. */
static bool read_flag(call *c, const json_t *body, const char *name, bool *flag)
{
    const json_t *value = json_object_get(body, name);
    if (!value || json_is_null(value))
        return true;
    if (!json_is_boolean(value)) {
        call_fail(c, 400, name, "invalid_type", "%s is %s, expected a boolean", name,
                  json_kind(value));
        return false;
    }
    *flag = json_is_true(value);
    return true;
}

static void write_tokens(call *c, const lace_token *tokens, size_t n, bool with_pieces)
{
    json_out out;
    json_out_init(&out, MAX_OUT);
    json_out_raw(&out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        if (!with_pieces) {
            json_out_printf(&out, i ? ",%d" : "%d", tokens[i]);
            continue;
        }
        size_t n_bytes;
        const char *bytes = lace_token_bytes(call_server(c)->model, tokens[i], &n_bytes);
        json_out_printf(&out, "%s{\"id\":%d,\"piece\":", i ? "," : "", tokens[i]);
        json_out_text(&out, bytes, n_bytes);
        json_out_raw(&out, "}");
    }
    json_out_printf(&out, "],\"count\":%zu}", n);
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
}

void api_tokenize(call *c)
{
    const json_t *body = call_json(c);
    bool add_special = false, parse_special = true, with_pieces = false;
    if (!body || !gen_check_model(c, body) || !read_flag(c, body, "add_special", &add_special) ||
        !read_flag(c, body, "parse_special", &parse_special) ||
        !read_flag(c, body, "with_pieces", &with_pieces))
        return;
    const json_t *content = json_object_get(body, "content");
    const char *name = "content";
    if (!content && json_object_get(body, "prompt")) {
        name = "prompt";
        content = json_object_get(body, name);
    }
    if (!json_is_string(content)) {
        call_fail(c, 400, name, "invalid_type", "%s is %s, expected a string", name,
                  json_kind(content));
        return;
    }
    unsigned flags = (add_special ? LACE_TOKENIZE_ADD_SPECIAL : 0) |
                     (parse_special ? LACE_TOKENIZE_PARSE_SPECIAL : 0);
    const char *chars = json_string_value(content);
    size_t n_bytes = json_string_length(content), n = 0;
    lace_error err = {0};
    const lace_model *model = call_server(c)->model;
    lace_token *tokens = NULL;
    lace_status status = lace_tokenize(model, chars, n_bytes, flags, NULL, 0, &n, &err);
    if (status == LACE_OK) {
        tokens = mem_calloc(n + 1, sizeof *tokens);
        status = tokens ? lace_tokenize(model, chars, n_bytes, flags, tokens, n, &n, &err)
                        : error_nomem(&err, "tokens");
    }
    if (status == LACE_OK)
        write_tokens(c, tokens, n, with_pieces);
    else
        call_fail_error(c, name, &err);
    mem_free(tokens);
}

void api_detokenize(call *c)
{
    const json_t *body = call_json(c);
    if (!body || !gen_check_model(c, body))
        return;
    gen_request r;
    gen_request_init(&r);
    lace_token *tokens;
    size_t n;
    buf content;
    buf_init(&content, MAX_OUT);
    if (gen_read_tokens(&r, c, "tokens", json_object_get(body, "tokens"), 4 << 20, &tokens, &n)) {
        lace_error err = {0};
        json_out out;
        json_out_init(&out, MAX_OUT);
        lace_status status = gen_decode(call_server(c)->model, tokens, n, &content, &err);
        json_out_raw(&out, "{\"content\":");
        json_out_text(&out, content.data, content.size);
        json_out_raw(&out, "}");
        if (status == LACE_OK)
            call_reply(c, 200, "application/json", &out);
        else
            call_fail_error(c, "tokens", &err);
        json_out_deinit(&out);
    }
    buf_deinit(&content);
    gen_request_deinit(&r);
}

void api_apply_template(call *c)
{
    const json_t *body = call_json(c);
    if (!body || !gen_check_model(c, body))
        return;
    json_t *tools = json_object_get(body, "tools");
    gen_request r;
    chat_prompt prompt;
    gen_request_init(&r);
    chat_prompt_init(&prompt, MAX_OUT);
    r.messages = json_incref(json_object_get(body, "messages"));
    r.tools = json_array_size(tools) > 0 ? json_incref(tools) : NULL;
    bool ok = !tools || json_is_null(tools) || json_is_array(tools) ||
              call_refuse(c, "tools", "tools is not a list");
    if (ok && gen_read_template(&r, c, body) && gen_render(&r, c, &prompt)) {
        json_out out;
        json_out_init(&out, MAX_OUT);
        json_out_raw(&out, "{\"prompt\":");
        json_out_text(&out, prompt.chars.data, prompt.chars.size);
        json_out_raw(&out, "}");
        call_reply(c, 200, "application/json", &out);
        json_out_deinit(&out);
    }
    chat_prompt_deinit(&prompt);
    gen_request_deinit(&r);
}
