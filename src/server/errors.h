/* How an error looks to each family of clients. */
#ifndef LACE_SERVER_ERRORS_H
#define LACE_SERVER_ERRORS_H

#include "base/bytes.h"
#include "server/json_out.h"

typedef enum error_style {
    ERRORS_OPENAI,    /* {"error":{"message","type","param","code"}} */
    ERRORS_ANTHROPIC, /* {"type":"error","error":{"type","message"}} */
    ERRORS_OLLAMA,    /* {"error":"message"} */
} error_style;

/* The family of a path, whether or not there is something at it. */
error_style errors_style_of(text path);

/* `param` and `code` may be NULL. The type of the error follows from the status. */
void errors_write(json_out *out, error_style style, int status, const char *param, const char *code,
                  const char *message);

#endif
