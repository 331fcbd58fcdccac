/* One question to a running server, for verbs that look after it. */
#ifndef LACE_CLI_ASK_SERVER_H
#define LACE_CLI_ASK_SERVER_H

#include <jansson.h>

#include "base/status.h"

#define ASK_SERVER_URL "http://127.0.0.1:8080"

/* The options of such a verb, whose arguments have a field `const char *url`. */
#define ASK_SERVER_OPTION(args)                                                                    \
    {                                                                                              \
        "url", 'u', ARG_TEXT, offsetof(args, url),                                                 \
            .value = "URL",                                                                        \
            .help = "where the server listens (default $LACE_URL, or " ASK_SERVER_URL ")"          \
    }

/*
 * GET a path, or POST a body to it, and read the answer as JSON; *out is to be freed with
 * json_decref. url is NULL for $LACE_URL or the usual one; $OPENAI_API_KEY is the key. An answer
 * other than 200 is an error with its message.
 */
lace_status ask_server(const char *url, const char *path, const char *body, json_t **out,
                       lace_error *err);

#endif
