/* The HTTP server, as the verb `lace serve` starts it. */
#ifndef LACE_SERVER_SERVER_H
#define LACE_SERVER_SERVER_H

#include "base/status.h"

typedef struct server_options {
    const char *host;      /* to listen at; default "127.0.0.1" */
    int32_t port;          /* default 8080; 0: any that is free */
    const char *unix_path; /* a socket in the file system in place of host and port; NULL: none */
    const char *alias;     /* the model's name for clients; NULL: from the file */
    const char *const *adapter_names; /* [adapters of the model] those that are models for clients;
                                         NULL: one that is not, or none is */
    bool is_strict;                   /* refuse requests for models of other names; default false */
    const char *api_key_file;         /* one key a line; NULL: none */
    const char *api_keys;             /* further ones, separated by commas; NULL: none */
    bool shares_prefixes; /* what texts begin with is shared among keys, too; default false */
    int32_t
        reasoning_budget; /* tokens of reasoning, of requests that do not say otherwise; 0: none;
                                 default -1: any number */
    bool breaks_loops;    /* chats that only repeat themselves are ended; default true */
    bool keeps_replies;   /* earlier replies stand in prompts as the model wrote them; default
                                 true */
    const char *chat_template_file; /* in place of the model's own; NULL: none */
    const char *tls_cert, *tls_key; /* files in PEM; both or none */
    const char *allowed_hosts;      /* further names for Host, separated by commas; NULL: none */
    const char *allowed_origins;    /* pages that may call, separated by commas; NULL: none */
    int32_t max_queue;              /* generations that may wait; default 1,024 */
    int32_t max_connections;        /* default 16,384 */
    int32_t timeout_s;              /* of a request, from its last byte to its answer's; 0: none */
    int32_t drain_s;                /* for streams to end after SIGTERM; default 30 */
    uint64_t max_body;              /* bytes; default 8 MiB */
    int32_t n_workers;              /* threads that read small requests; default 4 */
    bool log_json;                  /* a line for each request, on standard error */
    lace_sampler_options sampler;   /* of requests that do not say otherwise */
    bool has_seed;                  /* sampler.seed is one; default false: a random one for each */
    int32_t max_tokens;             /* likewise; default -1 */
    lace_batcher_options batcher;
} server_options;

/* One of several models. */
typedef struct router_entry {
    const char *name;        /* for clients */
    const char *path;        /* for `lace serve` */
    const char *const *args; /* [n_args] further arguments of it */
    size_t n_args;
    bool is_pinned;       /* loaded at the beginning, and never unloaded to make room */
    int64_t keep_alive_s; /* after its last request; negative: for ever */
} router_entry;

typedef struct router_options {
    const router_entry *entries;
    size_t n_entries;
    size_t default_index;    /* for requests that name none */
    uint64_t memory_bytes;   /* of all models that are loaded */
    int32_t load_timeout_s;  /* how long a request may wait for its model */
    const char *program;     /* that serves a model: lace itself */
    const char *const *args; /* [n_args] arguments of all models */
    size_t n_args;
} router_options;

server_options server_options_default(void);
uint64_t server_default_kv_bytes(void); /* a quarter of the machine's memory */

/*
 * Serve a model until SIGTERM or SIGINT. `model_path` gives the model its name where the file does
 * not. Prints one line when it takes requests.
 */
lace_status server_run(lace_model *model, const char *model_path, const server_options *options,
                       lace_error *err);

/*
 * Serve several models, each in a process of its own (router.h). Of the options, those that speak of
 * a model are not used.
 */
lace_status server_run_models(const router_options *models, const server_options *options,
                              lace_error *err);

/* "5m", "1h30m", "300", "-1": seconds as Ollama's keep_alive has them; -1: for ever. False: it is
 * none. */
bool server_parse_keep_alive(const char *word, int64_t *out);

/*
 * The variable by which a child knows that it has a router: it says on standard output what memory
 * it needs ("needs N"), and waits for a line on standard input before it loads.
 */
#define SERVER_CHILD_VARIABLE "LACE_SERVE_CHILD"

#endif
