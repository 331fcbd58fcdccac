/* The table of routes. A new one is a function in an api_*.c file, a line in api.h
 * and a row here. */
#include <string.h>

#include "server/api.h"

/* clang-format off */
static const route routes[] = {
    {"GET",  "/health",              api_health,           ROUTE_ON_LOOP | ROUTE_NO_KEY, ERRORS_OPENAI},
    {"GET",  "/ready",               api_ready,            ROUTE_ON_LOOP,   ERRORS_OPENAI},
    {"GET",  "/metrics",             api_metrics,          ROUTE_ON_LOOP,   ERRORS_OPENAI},
    {"GET",  "/props",               api_props,            ROUTE_ON_LOOP,   ERRORS_OPENAI},
    {"GET",  "/v1/models",           api_models,           ROUTE_ON_LOOP,   ERRORS_OPENAI},
    {"GET",  "/v1/models/",          api_model,            ROUTE_ON_LOOP | ROUTE_PREFIX, ERRORS_OPENAI},
    {"POST", "/v1/chat/completions", api_chat_completions, ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/v1/completions",      api_completions,      ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/v1/responses",        api_responses,        ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/v1/embeddings",       api_embeddings,       ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/v1/rerank",           api_rerank,           ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/v1/chat/completions/input_tokens", api_chat_count, 0,        ERRORS_OPENAI},
    {"POST", "/v1/responses/input_tokens", api_responses_count, 0,          ERRORS_OPENAI},
    /* As llama-server has them: the same without /v1, and its own. */
    {"GET",  "/v1/health",           api_health,           ROUTE_ON_LOOP | ROUTE_NO_KEY, ERRORS_OPENAI},
    {"GET",  "/models",              api_models,           ROUTE_ON_LOOP,   ERRORS_OPENAI},
    {"POST", "/chat/completions",    api_chat_completions, ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/chat/completions/input_tokens", api_chat_count, 0,           ERRORS_OPENAI},
    {"POST", "/responses",           api_responses,        ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/responses/input_tokens", api_responses_count, 0,             ERRORS_OPENAI},
    {"POST", "/completion",          api_llama_completion, ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/completions",         api_llama_completion, ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/infill",              api_llama_infill,     ROUTE_GENERATES, ERRORS_OPENAI},
    {"POST", "/embedding",           api_llama_embeddings, ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/embeddings",          api_llama_embeddings, ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/rerank",              api_rerank,           ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/reranking",           api_rerank,           ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/v1/reranking",        api_rerank,           ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OPENAI},
    {"POST", "/v1/messages",         api_messages,         ROUTE_GENERATES, ERRORS_ANTHROPIC},
    {"POST", "/v1/messages/count_tokens", api_count_tokens, 0,              ERRORS_ANTHROPIC},
    {"GET",  "/api/version",         api_ollama_version,   ROUTE_ON_LOOP,   ERRORS_OLLAMA},
    {"GET",  "/api/tags",            api_ollama_tags,      ROUTE_ON_LOOP,   ERRORS_OLLAMA},
    {"GET",  "/api/ps",              api_ollama_ps,        ROUTE_ON_LOOP,   ERRORS_OLLAMA},
    {"POST", "/api/show",            api_ollama_show,      0,               ERRORS_OLLAMA},
    {"POST", "/api/chat",            api_ollama_chat,      ROUTE_GENERATES, ERRORS_OLLAMA},
    {"POST", "/api/generate",        api_ollama_generate,  ROUTE_GENERATES, ERRORS_OLLAMA},
    {"POST", "/api/embed",           api_ollama_embed,     ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OLLAMA},
    {"POST", "/api/embeddings",      api_ollama_embeddings, ROUTE_GENERATES | ROUTE_EMBEDS, ERRORS_OLLAMA},
    {"POST", "/models/load",         api_models_load,      0,               ERRORS_OPENAI},
    {"POST", "/models/unload",       api_models_load,      0,               ERRORS_OPENAI},
    {"GET",  "/lora-adapters",       api_adapters,         ROUTE_ON_LOOP,   ERRORS_OPENAI},
    {"POST", "/lora-adapters",       api_adapters_set,     0,               ERRORS_OPENAI},
    {"POST", "/tokenize",            api_tokenize,         0,               ERRORS_OPENAI},
    {"POST", "/detokenize",          api_detokenize,       0,               ERRORS_OPENAI},
    {"POST", "/apply-template",      api_apply_template,   0,               ERRORS_OPENAI},
#define PAGE_ASSET(name, path, type, file) {"GET", path, api_page, ROUTE_ON_LOOP | ROUTE_NO_KEY, ERRORS_OPENAI},
#include "server/page_assets.def"
};
/* clang-format on */

static bool has_path(const route *r, text path)
{
    size_t n = strlen(r->path);
    if (r->flags & ROUTE_PREFIX)
        return path.size > n && memcmp(path.data, r->path, n) == 0;
    return path.size == n && memcmp(path.data, r->path, n) == 0;
}

const route *route_find(text method, text path, const char **allow)
{
    enum { HAS_GET = 1, HAS_POST = 2 };
    static const char *const methods[] = {NULL, "GET, HEAD", "POST", "GET, HEAD, POST"};
    unsigned has = 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const route *r = &routes[i];
        bool is_get = strcmp(r->method, "GET") == 0;
        if (!has_path(r, path))
            continue;
        if (text_is(method, r->method) || (is_get && text_is(method, "HEAD")))
            return r;
        has |= is_get ? HAS_GET : HAS_POST;
    }
    *allow = methods[has];
    return NULL;
}

const char *route_missing(text path)
{
    static const struct {
        const char *begins, *reason;
    } known[] = {
        {"/v1/v1/", "/v1 stands twice in this path: give the client a base URL without /v1"},
        {"/v1/api/", "give clients of Ollama a base URL without /v1"},
        {"/api/pull", "models are fetched on the server's machine: lace pull NAME"},
        {"/api/delete", "models are removed on the server's machine: lace rm NAME"},
        {"/api/create", "models are files: lace serve --models FILE gives them names and options"},
        {"/api/copy", "models are files: lace serve --models FILE gives them names and options"},
        {"/api/push", "models are not uploaded"},
        {"/slots", "there are no slots; /metrics says what runs"},
        {"/v1/audio/", "the server reads and writes no sound"},
        {"/v1/images/", "the server makes no images; it reads them in messages"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].begins);
        if (path.size >= n && memcmp(path.data, known[i].begins, n) == 0)
            return known[i].reason;
    }
    return "there is nothing at this path (docs/server-api.md has those that there are)";
}
