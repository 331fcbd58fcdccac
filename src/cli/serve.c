/* The verb `serve`: a model behind HTTP. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/ranks_start.h"
#include "cli/serve_models.h"
#include "server/server.h"

typedef struct serve_args {
    server_options server;
    int32_t seed, n_context, max_running, n_batch, n_threads, kv_type, v_type;
    uint64_t kv_memory, memory;
    bool no_mmproj;
    const char *mmproj;
    lace_tower_options tower;
    bool mmap, no_prefixes, rewrites_replies, keeps_looping, deterministic;
    const char *device, *activation_sparsity, *draft, *hosts;
    cli_ranks ranks;
    cli_place place;
    cli_loras loras;
    const char *adapter_names[2 * ARGS_MAX_TEXTS];
    char adapter_room[8192]; /* of the names */
    serve_models_args several;
} serve_args;

#define SERVER(member) offsetof(serve_args, server.member)
#define HERE(member)   offsetof(serve_args, member)

/* clang-format off */
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "Address"},
    {"host", 0, ARG_TEXT, SERVER(host), .value = "ADDRESS", .help = "address to listen at (default 127.0.0.1: this machine only)"},
    {"port", 0, ARG_INT, SERVER(port), .value = "N", .low = 0, .high = 65535, .help = "port to listen at (default 8080; 0: any free one)"},
    {"unix", 0, ARG_TEXT, SERVER(unix_path), .value = "PATH", .help = "listen at a Unix socket at this path instead"},
    {"alias", 0, ARG_TEXT, SERVER(alias), .value = "NAME", .help = "what clients call the model (default: its file's name)"},
    {"strict-model", 0, ARG_FLAG, SERVER(is_strict), .help = "refuse requests that name another model (default: accept any name)"},
    {.kind = ARG_HEADING, .help = "Several models"},
    {"models", 0, ARG_TEXT, HERE(several.models), .value = "DIR|FILE", .help = "serve all models of a folder, or those that a TOML file lists; each is loaded when a request names it"},
    {"models-memory", 0, ARG_BYTES, HERE(several.memory), .value = "BYTES", .help = "memory for all loaded models together (default: three quarters of memory); those used longest ago go first"},
    {"keep-alive", 0, ARG_TEXT, HERE(several.keep_alive), .value = "TIME", .help = "unload a model after so long without a request, as 90s, 5m or 1h; -1: never (default 5m)"},
    {"load-timeout", 0, ARG_INT, HERE(several.load_timeout_s), .value = "S", .low = 1, .high = 1 << 20, .help = "seconds that a request may wait for its model to be loaded (default 300)"},
    {.kind = ARG_HEADING, .help = "Access"},
    {"api-key-file", 0, ARG_TEXT, SERVER(api_key_file), .value = "FILE", .help = "API keys, one a line; every route needs one of them, except /health and the page"},
    {"api-key", 0, ARG_TEXT, SERVER(api_keys), .value = "KEYS", .help = "API keys, separated by commas; anybody on this machine who lists processes sees them"},
    {"share-prefixes", 0, ARG_FLAG, SERVER(shares_prefixes), .help = "reuse the common beginning of prompts across API keys; a faster answer then shows that somebody sent the same text"},
    {"tls-cert", 0, ARG_TEXT, SERVER(tls_cert), .value = "FILE", .help = "certificate chain in PEM; serves HTTPS"},
    {"tls-key", 0, ARG_TEXT, SERVER(tls_key), .value = "FILE", .help = "private key of the certificate"},
    {"allow-host", 0, ARG_TEXT, SERVER(allowed_hosts), .value = "NAMES", .help = "further host names that requests may use for this server"},
    {"allow-origin", 0, ARG_TEXT, SERVER(allowed_origins), .value = "ORIGINS", .help = "origins whose web pages may call this server; *: all"},
    {.kind = ARG_HEADING, .help = "Limits"},
    {"ctx-size", 'c', ARG_INT, HERE(n_context), .value = "N", .low = 1, .high = CLI_MAX_CONTEXT, .help = "tokens of prompt and reply together (default: as many as the model has)"},
    {"kv-memory", 0, ARG_BYTES, HERE(kv_memory), .value = "BYTES", .help = "memory for the KV cache of all requests (default: a quarter of memory, or most of a GPU)"},
    {"kv-type", 0, ARG_CHOICE, HERE(kv_type), .value = CLI_KV_TYPES, .help = "type of the KV cache (default f16)"},
    {"v-type", 0, ARG_CHOICE, HERE(v_type), .value = CLI_KV_TYPES, .help = CLI_V_TYPE_HELP},
    {"memory", 0, ARG_BYTES, HERE(memory), .value = "BYTES", .help = "do not start if more memory than this is needed"},
    {"max-running", 0, ARG_INT, HERE(max_running), .value = "N", .low = 1, .high = 4096, .help = "requests computed together (default 32, on a GPU up to 256 by what the KV cache holds)"},
    {"itl-target", 0, ARG_INT, SERVER(batcher.next_target_ms), .value = "MS", .low = 1, .high = 1 << 20, .help = "on a GPU, read prompts in steps that leave at most this time between tokens (default: steps of 256 rows, up to 2048 where prompts would pile up)"},
    {"ttft-target", 0, ARG_INT, SERVER(batcher.first_target_ms), .value = "MS", .low = 1, .high = 1 << 20, .help = "on a GPU, read prompts in larger steps where first tokens would come later than this"},
    {"max-queue", 0, ARG_INT, SERVER(max_queue), .value = "N", .low = 0, .high = 1 << 20, .help = "requests that may wait; more get 429 (default 1024)"},
    {"max-connections", 0, ARG_INT, SERVER(max_connections), .value = "N", .low = 1, .high = 1 << 20, .help = "connections open at a time (default 16384)"},
    {"max-body", 0, ARG_BYTES, SERVER(max_body), .value = "BYTES", .help = "largest request (default 8M, of models that see images 64M)"},
    {"timeout", 0, ARG_INT, SERVER(timeout_s), .value = "S", .low = 0, .high = 1 << 20, .help = "seconds for a request (default 0: no limit)"},
    {"drain", 0, ARG_INT, SERVER(drain_s), .value = "S", .low = 0, .high = 1 << 20, .help = "seconds for streams to end after SIGTERM (default 30)"},
    {"threads", 't', ARG_INT, HERE(n_threads), .value = "N", .low = 1, .high = CLI_MAX_THREADS, .help = "threads (default: one per core)"},
    {"batch", 'b', ARG_INT, HERE(n_batch), .value = "N", .low = 1, .high = CLI_MAX_BATCH, .help = "tokens computed together (default 512, on a GPU 2048)"},
    {.kind = ARG_HEADING, .help = "Defaults for requests"},
    {"temp", 0, ARG_FLOAT, SERVER(sampler.temperature), .value = "T", .low = 0, .high = 100, .help = "temperature; 0: always the best token (default 0.8)"},
    {"top-k", 0, ARG_INT, SERVER(sampler.top_k), .value = "K", .low = 0, .high = 1 << 30, .help = "keep the K best tokens; 0: all (default 40)"},
    {"top-p", 0, ARG_FLOAT, SERVER(sampler.top_p), .value = "P", .low = 0, .high = 1, .help = "keep the best tokens whose probabilities add up to P; 1: off (default 0.95)"},
    {"min-p", 0, ARG_FLOAT, SERVER(sampler.min_p), .value = "M", .low = 0, .high = 1, .help = "keep tokens with at least this share of the best token's probability (default 0.05)"},
    {"repeat-penalty", 0, ARG_FLOAT, SERVER(sampler.repeat_penalty), .value = "X", .low = 0, .high = 100, .is_low_open = true, .help = "divide the logits of recent tokens by this (default 1: off)"},
    {"seed", 's', ARG_INT, HERE(seed), .value = "S", .low = -1, .high = INT32_MAX, .help = "the same seed gives the same text (default -1: a random one for each request)"},
    {"n-predict", 'n', ARG_INT, SERVER(max_tokens), .value = "N", .low = -1, .high = INT32_MAX, .help = "tokens of an answer (default -1: as many as the context takes)"},
    {"reasoning-budget", 0, ARG_INT, SERVER(reasoning_budget), .value = "N", .low = -1, .high = INT32_MAX, .help = "tokens of reasoning, after which it is closed; 0: no reasoning (default -1: any number)"},
    {"no-loop-breaker", 0, ARG_FLAG, HERE(keeps_looping), .help = "let chats go on that only repeat themselves (default: such reasoning is closed, such an answer ends)"},
    {.kind = ARG_HEADING, .help = "Speed by guessing ahead; the text stays the same"},
    {"draft", 0, ARG_TEXT, HERE(draft), .value = "MODEL", .help = "a smaller model with the same vocabulary guesses tokens, this one checks them together, while up to 4 requests run"},
    {"lookup", 0, ARG_FLAG, SERVER(batcher.use_lookup), .help = "guess that a text continues as it did after an earlier occurrence of its last words"},
    {"mtp", 0, ARG_FLAG, SERVER(batcher.use_mtp), .help = "guess by the model's own prediction layer, where it has one (MTP, NextN)"},
    {"n-draft", 0, ARG_INT, SERVER(batcher.n_draft), .value = "N", .low = 1, .high = 32, .help = "the most tokens to guess at once (default 8)"},
    {.kind = ARG_HEADING, .help = "Images"},
    {"mmproj", 0, ARG_TEXT, HERE(mmproj), .value = "FILE", .help = "the model's vision tower (default: in its directory, or the mmproj file beside it)"},
    {"no-mmproj", 0, ARG_FLAG, HERE(no_mmproj), .help = "leave it out: the model reads text only"},
    {"image-min-tokens", 0, ARG_INT, HERE(tower.min_tokens), .value = "N", .low = 1, .high = 65536, .help = "tokens that an image becomes at least, where its size is free (default: as the model says)"},
    {"image-max-tokens", 0, ARG_INT, HERE(tower.max_tokens), .value = "N", .low = 1, .high = 65536, .help = "and at most (default: as the model says, up to 4096 and half of --ctx-size)"},
    {.kind = ARG_HEADING, .help = "Other"},
    {"chat-template-file", 0, ARG_TEXT, SERVER(chat_template_file), .value = "FILE", .help = "chat template in Jinja to use in place of the model's own"},
    {"no-prefix-cache", 0, ARG_FLAG, HERE(no_prefixes), .help = "compute every prompt from its beginning"},
    {"rewrite-replies", 0, ARG_FLAG, HERE(rewrites_replies), .help = "let the chat template write earlier replies anew (default: they stand in prompts as the model wrote them, with their reasoning, so that nothing is computed twice)"},
    {"cache-dir", 0, ARG_TEXT, SERVER(batcher.cache_dir), .value = "DIR", .help = "also keep what prompts began with in files of this directory, for when memory is short and for the next start"},
    {"cache-size", 0, ARG_BYTES, SERVER(batcher.cache_bytes), .value = "BYTES", .help = "room for these files; the oldest go first (default 16G)"},
    {"deterministic", 0, ARG_FLAG, HERE(deterministic), .help = "the same text whatever else is running; slower under load"},
    CLI_DEVICE_OPTION(serve_args),
    CLI_RANKS_OPTIONS(offsetof(serve_args, ranks)),
    CLI_PLACE_OPTIONS(offsetof(serve_args, place)),
    {"hosts", 0, ARG_TEXT, HERE(hosts), .value = "FILE", .help = "start a rank on each machine that the file names, a line each, with mpirun over ssh; needs --rank-net"},
    {"lora", 0, ARG_TEXTS, HERE(loras.files), .value = "[NAME=]FILE", .help = "a LoRA adapter (GGUF, or a directory of PEFT): as a model of its own that requests ask for by NAME, or for all requests; may be given several times"},
    {"lora-scaled", 0, ARG_SCALED, HERE(loras.scaled), .value = "FILE SCALE", .help = "an adapter for all requests, with this much of it: 0.5 is half"},
    CLI_SPARSITY_OPTION(serve_args),
    {"mmap", 0, ARG_FLAG, HERE(mmap), .help = "use the weights as they are in the file: less memory, slower"},
    {"log-json", 0, ARG_FLAG, SERVER(log_json), .help = "a line for each request, on standard error"},
};
/* clang-format on */

/* The bar goes away when the weights are packed: the server prints a line of its own next. */
static bool show_progress(void *user, const char *what, double done)
{
    bool goes_on = progress_report(user, what, done);
    if (done >= 1)
        progress_end(user);
    return goes_on;
}

static lace_model_info describe(const lace_model *model)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    return info;
}

/*
 * Room for the KV cache: on a GPU three quarters of what the model leaves there; of that a fifth is
 * for a draft's.
 */
static lace_status choose_kv_bytes(const lace_model *model, const lace_model *draft,
                                   lace_session_options *o, lace_error *err)
{
    const uint64_t spare = (uint64_t)512 << 20; /* for loading, and what grows with the context */
    lace_session_options least = *o;
    lace_memory need;
    least.n_context = 256;
    TRY(lace_session_memory(model, &least, &need, err));
    o->kv_bytes = server_default_kv_bytes();
    uint64_t used = need.weights + need.scratch + spare, available = need.available;
    if (draft) {
        least.tower = NULL;
        TRY(lace_session_memory(draft, &least, &need, err));
        used += need.weights + need.scratch;
    }
    if (available)
        o->kv_bytes =
            available > used ? (available - used) / (draft ? 20 : 4) * (draft ? 12 : 3) : need.kv;
    return LACE_OK;
}

enum {
    RUNNING_USUAL = 32,   /* requests computed together */
    RUNNING_MOST = 256,   /* on a GPU, which computes them for little more than one */
    SERVE_TOKENS = 16384, /* that room is left for on a card where a model does not fit whole */
    TEXT_TOKENS = 1024,   /* that a text may have on average, so that none must wait for memory */
    STATES_KEPT = 4       /* of recurrent layers, for each sequence */
};

/* Requests computed together, if no number was asked for: on a GPU as many as its memory holds. */
static lace_status choose_running(const lace_model *model, lace_session_options *o, lace_error *err)
{
    lace_memory need;
    lace_session_options least = *o;
    least.n_context = 256;
    least.n_sequences = 1;
    TRY(lace_session_memory(model, &least, &need, err));
    uint64_t each = TEXT_TOKENS * need.token_bytes + STATES_KEPT * need.sequence_bytes;
    uint64_t n = need.available && each ? o->kv_bytes / each : 0;
    n = n > RUNNING_USUAL ? n : RUNNING_USUAL;
    o->n_sequences = (int32_t)(n < RUNNING_MOST ? n : RUNNING_MOST);
    return LACE_OK;
}

/*
 * The context of a request, if none was asked for: the model's own, or as much of it as the KV
 * cache can hold, said in a line.
 */
static lace_status choose_context(const lace_model *model, lace_session_options *o, lace_error *err)
{
    lace_model_info info;
    lace_memory need;
    lace_model_describe(model, &info);
    lace_session_options one = *o;
    one.n_context = o->n_context = info.n_context;
    one.n_sequences = 1;
    one.kv_bytes = 0;
    TRY(lace_session_memory(model, &one, &need, err));
    if (need.kv <= o->kv_bytes)
        return LACE_OK;
    double share = (double)o->kv_bytes / (double)need.kv;
    o->n_context = (int32_t)(share * info.n_context) / 256 * 256;
    if (o->n_context < 256)
        o->n_context = 256;
    fprintf(stderr,
            "lace: the context is %d tokens, not the model's %d: more do not fit into the KV cache "
            "(--kv-memory)\n",
            o->n_context, info.n_context);
    return LACE_OK;
}

/* Addresses that only this machine reaches. */
static bool is_local(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* Open to a network, and nobody is asked for a key: allowed, but hardly ever meant. */
static void warn_of_open_door(const server_options *o)
{
    if (o->unix_path || is_local(o->host) || o->api_keys || o->api_key_file)
        return;
    fprintf(stderr,
            "lace: warning: anybody who can reach %s can use this model without a key; "
            "--api-key-file FILE demands one\n",
            o->host);
}

static lace_status open_draft(const serve_args *a, lace_model **out, lace_error *err)
{
    lace_model_options o = lace_model_options_default();
    o.use_mmap = a->mmap;
    o.device = a->device;
    return a->draft ? cli_open_model(a->draft, &o, out, err) : LACE_OK;
}

/* Requests with images are larger. */
static void allow_images(server_options *o)
{
    if (o->max_body == server_options_default().max_body)
        o->max_body = (uint64_t)64 << 20;
}

/*
 * The model's vision tower. One that nobody has named and that is not there, or does not fit, is
 * left out; with it, requests may be larger.
 */
static lace_status open_tower(serve_args *a, const lace_model *model, lace_error *err)
{
    lace_session_options *session = &a->server.batcher.session;
    if (a->no_mmproj)
        return LACE_OK;
    a->tower.n_threads = a->n_threads;
    lace_status status =
        cli_open_tower(model, a->mmproj, a->tower, a->n_context, &session->tower, err);
    if (status != LACE_OK && (a->mmproj || (status != LACE_E_UNSUPPORTED && status != LACE_E_ARG)))
        return status;
    if (!session->tower)
        return LACE_OK;
    allow_images(&a->server);
    lace_tower_info info;
    lace_tower_describe(session->tower, &info);
    uint64_t need = info.weights + info.scratch;
    if (a->memory && need >= a->memory)
        return error_set(err, LACE_E_MEMORY,
                         "the vision tower needs %.1f MiB, and --memory gives %.1f; --no-mmproj "
                         "leaves it out",
                         (double)need / 1048576, (double)a->memory / 1048576);
    session->memory_bytes = a->memory ? a->memory - need : 0;
    return LACE_OK;
}

/* Of a model among several: it says what it needs, before it has it. */
static lace_status wait_for_leave(const lace_model *model, const lace_model *draft,
                                  const lace_session_options *o, lace_error *err)
{
    lace_memory need, draft_need = {0};
    lace_tower_info tower = {0};
    if (o->tower)
        lace_tower_describe(o->tower, &tower);
    lace_session_options own = *o;
    lace_session_options plain = *o;
    plain.tower = NULL;
    own.wants_hidden = describe(model).is_encoder;
    TRY(lace_session_memory(model, &own, &need, err));
    if (draft)
        TRY(lace_session_memory(draft, &plain, &draft_need, err));
    return serve_wait_for_leave(
        need.total + draft_need.weights + draft_need.scratch + tower.weights + tower.scratch, err);
}

static lace_status serve_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    serve_args a = {.server = server_options_default(),
                    .seed = -1,
                    .kv_type = LACE_KV_F16,
                    .v_type = LACE_KV_SAME,
                    .device = "auto",
                    .several.load_timeout_s = 300};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (a.deterministic && a.activation_sparsity)
        return args_error(
            v, err,
            "--deterministic and --activation-sparsity exclude each other: activation sparsity "
            "changes tokens that are computed alone, so the text would depend on the load");
    if (a.server.batcher.cache_dir && (a.no_prefixes || a.deterministic || a.activation_sparsity))
        return args_error(v, err,
                          "--cache-dir keeps what prompts began with, which is not possible with "
                          "--no-prefix-cache, --deterministic or --activation-sparsity");
    if (a.several.models && words.count)
        return args_error(v, err, "--models names the models, and %.100s is one more", words.at[0]);
    if (a.several.models && a.server.alias)
        return args_error(v, err, "--alias names one model; --models FILE has a name for each");
    if (a.several.models) {
        warn_of_open_door(&a.server);
        allow_images(&a.server); /* a model without a tower refuses them by itself */
        return serve_models(v, &a.several, &a.server, argc, argv, err);
    }
    if (a.hosts)
        return ranks_start(a.hosts, a.ranks.net, argc, argv, err);
    lace_model_options model_options = lace_model_options_default();
    model_options.use_mmap = a.mmap;
    model_options.device = a.device;
    cli_use_ranks(&a.ranks, &model_options);
    int32_t room = a.server.batcher.session.n_context;
    TRY(cli_use_place(&a.place, room ? room : SERVE_TOKENS, &model_options, err));
    model_options.activation_sparsity = a.activation_sparsity;
    model_options.use_mtp = a.server.batcher.use_mtp;
    lace_model *model, *draft = NULL;
    TRY(cli_open_model(words.at[0], &model_options, &model, err));
    lace_status status = cli_add_named_loras(model, &a.loras, a.adapter_names, a.adapter_room,
                                             sizeof a.adapter_room, err);
    a.server.adapter_names = a.adapter_names;
    progress bar;
    progress_init(&bar, &cli_stop);
    lace_session_options *session = &a.server.batcher.session;
    session->n_context = a.n_context;
    session->n_sequences = a.max_running ? a.max_running : RUNNING_USUAL;
    session->n_batch = a.n_batch;
    session->n_threads = a.n_threads;
    session->kv_type = (lace_kv_type)a.kv_type;
    session->v_type = (lace_kv_type)a.v_type;
    session->kv_bytes = a.kv_memory;
    session->memory_bytes = a.memory;
    session->use_mtp = a.server.batcher.use_mtp;
    session->on_progress = show_progress;
    session->progress_user = &bar;
    a.server.has_seed = a.seed >= 0;
    a.server.sampler.seed = a.seed >= 0 ? (uint64_t)a.seed : 0;
    a.server.batcher.use_prefixes = !a.no_prefixes;
    a.server.keeps_replies = !a.rewrites_replies;
    a.server.breaks_loops = !a.keeps_looping;
    a.server.batcher.is_deterministic = a.deterministic;
    if (status == LACE_OK)
        status = open_draft(&a, &draft, err);
    a.server.batcher.draft = draft;
    if (status == LACE_OK)
        status = open_tower(&a, model, err);
    bool is_encoder = describe(model).is_encoder; /* whose texts need no room beside each other */
    if (status == LACE_OK && !a.kv_memory && !is_encoder)
        status = choose_kv_bytes(model, draft, session, err);
    if (status == LACE_OK && !a.max_running && !is_encoder)
        status = choose_running(model, session, err);
    if (status == LACE_OK && !a.n_context && !is_encoder)
        status = choose_context(model, session, err);
    if (status == LACE_OK)
        status = wait_for_leave(model, draft, session, err);
    if (status == LACE_OK) {
        cli_note_long_context(model, a.n_context);
        warn_of_open_door(&a.server);
    }
    if (status == LACE_OK)
        status = server_run(model, words.at[0], &a.server, err);
    lace_tower_close(session->tower);
    lace_model_close(model);
    lace_model_close(draft);
    return status;
}

VERB(serve, "serve", "[MODEL] [options]", "answer over HTTP, as OpenAI, Anthropic and Ollama do", 0,
     1,
     .description =
         "Serves a model to many clients at once: /v1/chat/completions, /v1/completions and more\n"
         "(docs/server-api.md). Prints where it listens when it is ready. SIGTERM or Ctrl-C lets\n"
         "running requests end and refuses new ones; a second one ends the server at once.\n",
     .examples = "  lace serve\n"
                 "  lace serve model.gguf --port 9000 -c 8192\n"
                 "  lace serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
                 "  lace serve large.gguf --draft small.gguf --lookup\n"
                 "  lace serve model.gguf --lora sql=sql.gguf --lora poems=adapters/poems\n"
                 "  lace serve --models ~/models --models-memory 24G\n"
                 "  lace serve large.gguf --hosts hosts.txt --rank-net 10.8.0.0/24\n")
