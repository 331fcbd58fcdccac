/* GET /v1/models and /v1/models/{id}: there is one model. */
#include <inttypes.h>
#include <string.h>

#include "server/api.h"
#include "server/core.h"

static void write_model(const server *s, json_out *out)
{
    json_out_raw(out, "{\"id\":");
    json_out_string(out, s->model_id);
    json_out_printf(out,
                    ",\"object\":\"model\",\"created\":%" PRId64
                    ",\"owned_by\":\"lace\",\"context_length\":%d,\"max_model_len\":%d}",
                    s->started_at, s->limits.n_context, s->limits.n_context);
}

void api_models(call *c)
{
    json_out out;
    json_out_init(&out, 1 << 16);
    json_out_raw(&out, "{\"object\":\"list\",\"data\":[");
    write_model(call_server(c), &out);
    json_out_raw(&out, "]}");
    call_reply(c, 200, "application/json", &out);
}

static int hex_digit(char h)
{
    return h >= '0' && h <= '9'   ? h - '0'
           : h >= 'a' && h <= 'f' ? h - 'a' + 10
           : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                  : -1;
}

bool api_path_is_name(text given, const char *name)
{
    size_t n = strlen(name), at = 0;
    for (size_t i = 0; i < given.size; i++, at++) {
        char byte = given.data[i];
        if (byte == '%' && i + 2 < given.size + 0 && hex_digit(given.data[i + 1]) >= 0 &&
            hex_digit(given.data[i + 2]) >= 0) {
            byte = (char)(hex_digit(given.data[i + 1]) << 4 | hex_digit(given.data[i + 2]));
            i += 2;
        }
        if (at >= n || name[at] != byte)
            return false;
    }
    return at == n;
}

void api_model(call *c)
{
    const server *s = call_server(c);
    size_t n = strlen("/v1/models/");
    text path = call_path(c);
    if (!api_path_is_name((text){path.data + n, path.size - n}, s->model_id)) {
        call_fail(c, 404, "model", "model_not_found",
                  "there is no such model here; GET /v1/models lists the models");
        return;
    }
    json_out out;
    json_out_init(&out, 1 << 16);
    write_model(s, &out);
    call_reply(c, 200, "application/json", &out);
}

void api_models_load(call *c)
{
    call_fail(c, 400, NULL, NULL,
              "this server has one model, which is loaded (lace serve --models has several)");
}
