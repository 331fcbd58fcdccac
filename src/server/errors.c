/* Errors as JSON, in the form of a family of clients. */
#include "server/errors.h"

#include <string.h>

static bool begins(text path, const char *with)
{
    size_t n = strlen(with);
    return path.size >= n && memcmp(path.data, with, n) == 0;
}

error_style errors_style_of(text path)
{
    return begins(path, "/v1/messages") ? ERRORS_ANTHROPIC
           : begins(path, "/api/")      ? ERRORS_OLLAMA
                                        : ERRORS_OPENAI;
}

static const char *type_of(int status, error_style style)
{
    bool is_anthropic = style == ERRORS_ANTHROPIC;
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return is_anthropic ? "not_found_error" : "invalid_request_error";
    case 413:
        return is_anthropic ? "request_too_large" : "invalid_request_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return is_anthropic ? "overloaded_error" : "server_error";
    case 504:
        return is_anthropic ? "timeout_error" : "server_error";
    default:
        if (status >= 500)
            return is_anthropic ? "api_error" : "server_error";
        return "invalid_request_error";
    }
}

static void write_or_null(json_out *out, const char *name, const char *value)
{
    json_out_printf(out, ",\"%s\":", name);
    if (value)
        json_out_string(out, value);
    else
        json_out_raw(out, "null");
}

void errors_write(json_out *out, error_style style, int status, const char *param, const char *code,
                  const char *message)
{
    if (style == ERRORS_OLLAMA) {
        json_out_raw(out, "{\"error\":");
        json_out_string(out, message);
        json_out_raw(out, "}");
        return;
    }
    json_out_raw(out, style == ERRORS_ANTHROPIC ? "{\"type\":\"error\",\"error\":{\"message\":"
                                                : "{\"error\":{\"message\":");
    json_out_string(out, message);
    write_or_null(out, "type", type_of(status, style));
    if (style == ERRORS_OPENAI) {
        write_or_null(out, "param", param);
        write_or_null(out, "code", code);
    }
    json_out_raw(out, "}}");
}
