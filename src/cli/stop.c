/* lace stop: let a running server unload a model. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_read.h"
#include "cli/ask_server.h"
#include "cli/cli.h"

typedef struct stop_args {
    const char *url;
} stop_args;

static const arg_option options[] = {ASK_SERVER_OPTION(stop_args)};

static lace_status stop_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    stop_args a = {0};
    positional words;
    json_t *answer = NULL;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    json_t *request = json_pack("{s:s, s:i}", "model", words.at[0], "keep_alive", 0);
    char *body = request ? json_dumps(request, 0) : NULL;
    lace_status status =
        body ? ask_server(a.url, "/api/generate", body, &answer, err)
             : error_set(err, LACE_E_UTF8, "the name of the model is not valid UTF-8");
    free(body);
    json_decref(request);
    json_decref(answer);
    return status;
}

VERB(stop, "stop", "MODEL [options]", "let a running server unload a model", 1, 1,
     .description =
         "The model goes when it has answered what it is answering now. The next request\n"
         "that names it loads it again. A server that Ollama runs understands it, too.\n",
     .examples = "  lace stop small\n"
                 "  lace stop small --url http://127.0.0.1:9000\n")
