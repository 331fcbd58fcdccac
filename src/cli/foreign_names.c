/* Names of other programs: the table. */
#include "cli/foreign_names.h"

#include <string.h>

/* clang-format off */
static const foreign_name names[] = {
    {"-m --model", FOREIGN_MODEL, NULL,
     "run,chat,serve,inspect,tokenize,embed,rerank,logits,imatrix,perplexity,quantize,prune"},
    {"-m --model", FOREIGN_MODELS, NULL, "bench,compare"},
    {"-hf -hfr --hf-repo", FOREIGN_HUB, NULL, "run,chat,serve,embed,rerank"},
    {"-hf -hfr --hf-repo", FOREIGN_NONE, "use lace pull ORG/REPO:QUANT first", NULL},

    /* The same under another name. */
    {"--ctx",                                 FOREIGN_OPTION, "ctx-size",    NULL},
    {"--temperature",                         FOREIGN_OPTION, "temp",        NULL},
    {"--typical-p",                           FOREIGN_OPTION, "typical",     NULL},
    {"--predict --max-tokens",                FOREIGN_OPTION, "n-predict",   NULL},
    {"-sys --system-prompt",                  FOREIGN_OPTION, "system",      "chat"},
    {"-rea --reasoning --reasoning-effort",   FOREIGN_OPTION, "think",       "run,chat"},
    {"-np --parallel",                        FOREIGN_OPTION, "max-running", "serve"},
    {"-a",                                    FOREIGN_OPTION, "alias",       "serve"},
    {"-to",                                   FOREIGN_OPTION, "timeout",     "serve"},
    {"--ssl-cert-file",                       FOREIGN_OPTION, "tls-cert",    "serve"},
    {"--ssl-key-file",                        FOREIGN_OPTION, "tls-key",     "serve"},
    {"--models-dir",                          FOREIGN_OPTION, "models",      "serve"},
    {"--sleep-idle-seconds --keepalive",      FOREIGN_OPTION, "keep-alive",  "serve"},
    {"--cors-origins",                        FOREIGN_OPTION, "allow-origin", "serve"},
    {"--no-cache-prompt",                     FOREIGN_OPTION, "no-prefix-cache", "serve"},
    {"--no-mmproj-auto",                      FOREIGN_OPTION, "no-mmproj",   "serve"},
    {"-nr --no-repack",                       FOREIGN_OPTION, "mmap",        "run,chat,serve,bench,logits,perplexity"},
    {"-ub --ubatch-size",                     FOREIGN_OPTION, "ubatch",      "bench"},
    {"-ub --ubatch-size --batch-size",        FOREIGN_OPTION, "batch",       "run,serve,embed,rerank,logits,perplexity"},
    {"-mm",                                   FOREIGN_OPTION, "mmproj",      "run,chat,serve"},
    {"-md --model-draft --spec-draft-model",  FOREIGN_OPTION, "draft",       "run,chat,serve"},
    {"--draft-max --draft-n --spec-draft-n-max", FOREIGN_OPTION, "n-draft",     "run,chat,serve"},
    {"-ctk --cache-type-k",                   FOREIGN_OPTION, "kv-type",     "run,chat,serve,bench,perplexity,inspect,embed,rerank,logits"},
    {"-ctv --cache-type-v",                   FOREIGN_OPTION, "v-type",      "run,chat,serve,bench,perplexity,inspect,embed,rerank,logits"},
    {"-dev",                                  FOREIGN_OPTION, "device",      NULL},
    {"--chunks",                              FOREIGN_OPTION, "windows",     "perplexity,imatrix"},
    {"--predict --n-predict",                 FOREIGN_OPTION, "n-gen",       "bench"},
    {"--n-prompt",                            FOREIGN_OPTION, "prompt",      "bench"},
    {"--n-depth",                             FOREIGN_OPTION, "depth",       "bench"},
    {"--repetitions",                         FOREIGN_OPTION, "repeat",      "bench"},
    {"--allow-requantize",                    FOREIGN_OPTION, "requantize",  "quantize"},
    {"--output-file",                         FOREIGN_OPTION, "output",      "imatrix"},

    /* What lace always does. */
    {"--no-mmap",                             FOREIGN_ALWAYS, NULL, "run,chat,serve,bench,logits,perplexity"},
    {"-no-cnv --no-conversation",             FOREIGN_OPTION, "raw", "run"},
    {"-cnv --conversation -i --interactive -if --interactive-first --context-shift --no-display-prompt",
     FOREIGN_ALWAYS, NULL, "chat"},
    {"--jinja --no-mmproj-offload",           FOREIGN_ALWAYS, NULL, "run,chat,serve"},
    {"--display-prompt --perf --show-timings --no-mmproj --no-mmproj-auto", FOREIGN_ALWAYS, NULL, "run"},
    {"--no-mmproj --no-mmproj-auto",          FOREIGN_ALWAYS, NULL, "chat"},
    {"--warmup --no-warmup --no-escape --no-context-shift --mmproj-auto --repack -kvo --kv-offload "
     "-ndio --no-direct-io --log-disable --no-log-prefix --no-log-timestamps",
     FOREIGN_ALWAYS, NULL, "run,chat,serve,embed,rerank,perplexity,logits,imatrix"},
    {"-cb --cont-batching --metrics --props --embedding --embeddings --rerank --reranking", FOREIGN_ALWAYS, NULL, "serve"},
    {"--no-slots -kvu --kv-unified --cache-prompt --ui --webui --models-autoload", FOREIGN_ALWAYS, NULL, "serve"},
    {"--ids",                                 FOREIGN_ALWAYS, NULL, "tokenize"},
    {"-fa --flash-attn",                      FOREIGN_SWITCH, "lace always does this and cannot turn it off",
     "run,chat,serve,bench,perplexity,embed,rerank,logits,imatrix"},
    {"-co --color",                           FOREIGN_SWITCH, "NO_COLOR=1 in the environment turns colours off", "run,chat"},
    {"-fit --fit",                            FOREIGN_SWITCH, "--gpu-layers all puts every layer on the GPU, fitting or not",
     "run,chat,serve,bench,logits"},
    {"-ngl --n-gpu-layers",                   FOREIGN_OPTION, "gpu-layers",   "run,chat,serve,bench,logits"},
    {"-ngl --n-gpu-layers --gpu-layers",      FOREIGN_LAYERS, NULL, NULL},
    {"-cmoe",                                 FOREIGN_OPTION, "cpu-moe",      "run,chat,serve,bench,logits"},
    {"-ncmoe",                                FOREIGN_OPTION, "n-cpu-moe",    "run,chat,serve,bench,logits"},
    {"-ts",                                   FOREIGN_OPTION, "tensor-split", "run,chat,serve,bench,logits"},
    {"-sm",                                   FOREIGN_OPTION, "split-mode",   "run,chat,serve,bench,logits"},

    /* What it does in another way, or not at all. */
    {"-cnv --conversation -i --interactive -if --interactive-first -mli --multiline-input",
     FOREIGN_NONE, "use lace chat MODEL", "run"},
    {"-mli --multiline-input",                FOREIGN_NONE, "a line that ends with \\ goes on; \"\"\" begins and ends several lines", "chat"},
    {"-sys --system-prompt --system",         FOREIGN_NONE, "use lace chat MODEL --system TEXT -p QUESTION", "run"},
    {"-sysf --system-prompt-file",            FOREIGN_NONE, "use lace chat MODEL --system \"$(cat FILE)\"", "run,chat"},
    {"--no-perf --no-show-timings",           FOREIGN_NONE, "statistics go to standard error; 2>/dev/null leaves them out", "run"},
    {"--context-shift --keep",                FOREIGN_NONE, "a text ends where the context is full; use a larger --ctx-size", "run"},
    {"--verbose",                             FOREIGN_NONE, "/stats shows tokens and speed", "chat"},
    {"--nowordwrap",                          FOREIGN_NONE, "TERM=dumb in the environment leaves lines as they are", "run,chat"},
    {"--keepalive",                           FOREIGN_NONE, "the model is in memory until lace ends; lace serve keeps it", "run,chat"},
    {"-l --logit-bias",                       FOREIGN_NONE, "requests to lace serve have \"logit_bias\"", "run,chat"},
    {"--samplers --sampler-seq --sampling-seq", FOREIGN_NONE, "stages have one order; lace help run says which value turns each off", NULL},
    {"--verbose-prompt",                      FOREIGN_NONE, "lace tokenize MODEL TEXT --pieces shows the tokens of a prompt", NULL},
    {"--prompt-cache --prompt-cache-all --prompt-cache-ro", FOREIGN_NONE, "lace serve --cache-dir DIR keeps prompts in files", NULL},
    {"-bf --binary-file",                     FOREIGN_NONE, "use -f FILE", NULL},
    {"--in-prefix --in-suffix --in-prefix-bos --no-jinja", FOREIGN_NONE, "the chat template writes what stands around a message; --chat-template-file FILE gives another", NULL},
    {"-np --parallel",                        FOREIGN_NONE, "lace serve computes several texts at once", "run,chat"},
    {"-np --parallel -npl",                   FOREIGN_NONE, "use -b 1,4,8 for so many texts at once", "bench"},
    {"-npp -pps",                             FOREIGN_NONE, "use -p N,... for prompts of so many tokens", "bench"},
    {"-ntg -tgs",                             FOREIGN_NONE, "use -n N,... to generate so many tokens", "bench"},
    {"-pg",                                   FOREIGN_NONE, "use -p and -n, and -d for tokens that come before", "bench"},
    {"-mmp",                                  FOREIGN_NONE, "use --mmap", "bench"},
    {"-st --single-turn",                     FOREIGN_NONE, "for one answer: lace run MODEL TEXT", NULL},
    {"--format",                              FOREIGN_NONE, "use --json or --json-schema SCHEMA", "run,chat"},
    {"--hidethinking",                        FOREIGN_NONE, "use --think off; into a pipe only the answer is printed", "run,chat"},
    {"--verbose",                             FOREIGN_ALWAYS, NULL, "run"},
    {"--reasoning-budget --chat-template-kwargs", FOREIGN_NONE, "use --think on, off, low, medium or high", "run,chat"},
    {"-p --prompt",                           FOREIGN_NONE, "the text is an argument: lace tokenize MODEL TEXT", "tokenize"},
    {"--spec-type",                           FOREIGN_NONE, "use --mtp, --draft MODEL or --lookup", "run,chat,serve"},
    {"-lcs --lookup-cache-static -lcd --lookup-cache-dynamic --spec-default", FOREIGN_NONE, "use --lookup", "run,chat,serve"},
    {"--draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min --draft-p-split --spec-draft-p-split",
     FOREIGN_NONE, "how many tokens are guessed is chosen by itself; --n-draft N is the most", "run,chat,serve"},
    {"-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft --spec-draft-threads-batch",
     FOREIGN_NONE, "use --threads, for both models", "run,chat,serve"},
    {"-ctkd --cache-type-k-draft --spec-draft-type-k -ctvd --cache-type-v-draft --spec-draft-type-v",
     FOREIGN_NONE, "the draft has the --kv-type of the model", "run,chat,serve"},
    {"-hfd -hfrd --hf-repo-draft --spec-draft-hf", FOREIGN_NONE, "use --draft hf:ORG/REPO:QUANT", "run,chat,serve"},
    {"-e --escape",                           FOREIGN_NONE, "let the shell do it: -p $'one\\ntwo'", NULL},
    {"-hff --hf-file",                        FOREIGN_NONE, "name a part of the file's name: -hf ORG/REPO:Q8_0", NULL},
    {"-hft --hf-token",                       FOREIGN_NONE, "set HF_TOKEN, which nobody sees who lists processes", NULL},
    {"-mu --model-url -dr --docker-repo",     FOREIGN_NONE, "lace pull ORG/REPO:QUANT downloads from Hugging Face", NULL},
    {"-mmu --mmproj-url",                     FOREIGN_NONE, "lace pull fetches a model's mmproj with it", NULL},
    {"-mmdev --mmproj-device --mmproj-offload", FOREIGN_NONE, "images are computed on the CPU", NULL},
    {"--audio --video",                       FOREIGN_NONE, "only images are read: --image FILE", "run,chat"},
    {"--image-min-tokens --image-max-tokens", FOREIGN_NONE, "lace serve has it", "run,chat"},
    {"--list-devices",                        FOREIGN_NONE, "use lace list --devices", NULL},
    {"--top-nsigma --top-n-sigma --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp",
     FOREIGN_NONE, "there is no such stage; lace help run lists those that are", NULL},
    {"--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec "
     "--fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default "
     "--vision-gemma-12b-default --embd-gemma-default",
     FOREIGN_NONE, "name the model: -hf ORG/REPO:QUANT", NULL},
    {"--offline",                             FOREIGN_NONE, "HF_HUB_OFFLINE=1 in the environment forbids the network", NULL},
    {"-tb --threads-batch",                   FOREIGN_NONE, "use --threads, for prompts and text alike", NULL},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch",
     FOREIGN_NONE, "lace uses the cores that it may: taskset -c 0-7 lace ...", NULL},
    {"--prio --prio-batch",                   FOREIGN_NONE, "nice -n 10 lace ... lowers the priority", NULL},
    {"--poll --poll-batch",                   FOREIGN_NONE, "how long threads wait busily cannot be set", NULL},
    {"--numa",                                FOREIGN_NONE, "on a machine of two sockets: --ranks 2, or numactl", NULL},
    {"--mlock",                               FOREIGN_NONE, "without --mmap weights are a copy in memory", NULL},
    {"-lm --load-mode",                       FOREIGN_NONE, "use --mmap, or nothing for a copy in memory", NULL},
    {"-dio --direct-io",                      FOREIGN_NONE, "files are read through the system's cache", NULL},
    {"-nkvo --no-kv-offload",                 FOREIGN_NONE, "the KV cache lies with its layers; --gpu-layers N leaves layers on the CPU", NULL},
    {"-fitt --fit-target",                    FOREIGN_NONE, "use --gpu-memory BYTES", NULL},
    {"-fitc --fit-ctx",                       FOREIGN_NONE, "use --ctx-size N", NULL},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step --swa-full",
     FOREIGN_NONE, "what sliding windows and recurrent layers need is kept by itself", NULL},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor "
     "--yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n -gaw --grp-attn-w",
     FOREIGN_NONE, "positions are computed as the model's file says", NULL},
    {"--override-kv",                         FOREIGN_NONE, "metadata is used as it stands in the file", NULL},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", FOREIGN_NONE, "only LoRA adapters change a model: --lora FILE", NULL},
    {"--rpc -rpc",                            FOREIGN_NONE, "lace serve --hosts FILE divides a model among machines", NULL},
    {"--version",                             FOREIGN_NONE, "use lace --version", NULL},
    {"--usage",                               FOREIGN_NONE, "use --help", NULL},
    {"-cl --cache-list",                      FOREIGN_NONE, "use lace list", NULL},
    {"--completion-bash",                     FOREIGN_NONE, "use lace help --completion bash", NULL},
    {"-dt --defrag-thold",                    FOREIGN_NONE, "the KV cache has pages, which need no order", NULL},
    {"-mg --main-gpu -ot --override-tensor",
     FOREIGN_NONE, "layers are divided by --device cuda:0,cuda:1, --tensor-split, --gpu-layers and --n-cpu-moe", "run,chat,serve,bench,logits"},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe",
     FOREIGN_NONE, "here a model runs on one device, whole; use --device", NULL},
    {"--lora-modules",                        FOREIGN_OPTION, "lora",        "serve"},
    {"--lora --lora-scaled",                  FOREIGN_NONE, "lace lora merge MODEL ADAPTER -o FILE makes a model of both", NULL},
    {"-r --reverse-prompt",                   FOREIGN_NONE, "requests to lace serve have \"stop\"", "run,chat"},
    {"--chat-template",                       FOREIGN_NONE, "use --chat-template-file FILE", "run,chat,serve"},
    {"-r --reverse-prompt",                   FOREIGN_NONE, "requests have \"stop\"", "serve"},
    {"-p --prompt -f --file",                 FOREIGN_NONE, "prompts come in requests (docs/server-api.md)", "serve"},
    {"--typical --typical-p --xtc-probability --xtc-threshold --repeat-last-n --presence-penalty --frequency-penalty "
     "--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --mirostat "
     "--mirostat-lr --mirostat-ent --ignore-eos -l --logit-bias --grammar --grammar-file -j --json-schema -jf "
     "--json-schema-file --json --regex",
     FOREIGN_NONE, "each request has its own (docs/server-api.md)", "serve"},
    {"--chat-template-kwargs --reasoning-format --reasoning-effort", FOREIGN_NONE, "each request has its own, by the same name with _ for -", "serve"},
    {"-rea --reasoning",                      FOREIGN_NONE, "use --reasoning-budget 0 for none; requests have \"enable_thinking\"", "serve"},
    {"--cache-reuse -cram --cache-ram",       FOREIGN_NONE, "beginnings of prompts stay in the KV cache: --kv-memory BYTES, and --cache-dir DIR for files", "serve"},
    {"--pooling",                             FOREIGN_NONE, "requests for embeddings have \"pooling\"", "serve"},
    {"--models-preset",                       FOREIGN_NONE, "use --models FILE.toml (docs/server-api.md)", "serve"},
    {"--models-max",                          FOREIGN_NONE, "use --models-memory BYTES", "serve"},
    {"--no-models-autoload",                  FOREIGN_NONE, "a model is loaded by the first request that names it", "serve"},
    {"--no-ui --no-webui",                    FOREIGN_NONE, "the page is always there; with --api-key-file it needs a key to do anything", "serve"},
    {"--tools --tools-runtime --mcp-servers-config --mcp-servers-json -ag --agent", FOREIGN_NONE, "the server runs no tools; requests have \"tools\"", "serve"},
    {"--threads-http",                        FOREIGN_NONE, "connections need no threads of their own", "serve"},
    {"-v --verbose -lv --verbosity --log-verbosity --log-verbose --log-file --log-prefix --log-timestamps",
     FOREIGN_NONE, "use --log-json 2>FILE, a line for each request", "serve"},
    {"-v -lv --verbosity --log-verbosity --log-verbose --log-file", FOREIGN_NONE, "all messages are on standard error: 2>FILE", NULL},
    {"--slots --slot-save-path -sps",         FOREIGN_NONE, "there are no slots; /metrics says what runs", "serve"},
    {"--context-shift",                       FOREIGN_NONE, "no text is ever cut; use a larger --ctx-size", "serve"},
    {"-p --prompt",                           FOREIGN_NONE, "texts are arguments, or lines of -f: lace embed MODEL TEXT", "embed"},
    {"--embd-normalize",                      FOREIGN_NONE, "vectors have length 1; use --normalize off for others", "embed"},
    {"--embd-output-format --embd-separator", FOREIGN_NONE, "use --format json, text or f32; texts are arguments, or lines of -f", "embed"},
    {"--api-key",                             FOREIGN_NONE, "use --api-key-file FILE or $OPENAI_API_KEY", "bench serve"},
    {"-nocb --no-cont-batching",              FOREIGN_NONE, "use --max-running 1 to compute one request at a time", "serve"},
    {"--leave-output-tensor",                 FOREIGN_NONE, "use --output-tensor-type f16", "quantize"},
    {"--tensor-type-file",                    FOREIGN_NONE, "use --tensor-type PATTERN=TYPE, once for each", "quantize"},
    {"--keep-split",                          FOREIGN_NONE, "lace writes one file", "quantize"},
    {"--include-weights --exclude-weights",   FOREIGN_NONE, "--imatrix is used whole", "quantize"},
    {"--kl-divergence --kl-divergence-base --save-all-logits", FOREIGN_NONE, "use --against MODEL", "perplexity"},
};

static const struct { const char *names, *instead; } verbs[] = {
    {"info",                   "use lace show MODEL"},
    {"ls models",              "use lace list"},
    {"embedding embeddings",   "use lace embed MODEL TEXT"},
    {"server start",           "use lace serve MODEL"},
    {"cli generate complete",  "use lace run MODEL -p TEXT"},
    {"ppl",                    "use lace perplexity MODEL -f TEXT"},
    {"download get fetch",     "use lace pull ORG/REPO:QUANT"},
    {"remove delete",          "use lace rm NAME"},
    {"cp create push",         "models are files; lace list shows where they are"},
    {"version",                "use lace --version"},
};
/* clang-format on */

/* Whether word[0..n) is one of the words of a list. */
static bool is_listed(const char *list, char separator, const char *word, size_t n)
{
    const char separators[] = {separator, 0};
    while (*list) {
        size_t size = strcspn(list, separators);
        if (size == n && memcmp(list, word, n) == 0)
            return true;
        list += size + (list[size] == separator);
    }
    return false;
}

/* Whether there is what the row means: of a row for all verbs, not all have the option. */
static bool is_there(const verb *v, const foreign_name *f)
{
    if (f->kind != FOREIGN_OPTION)
        return true;
    for (size_t i = 0; i < v->n_options; i++)
        if (v->options[i].kind != ARG_HEADING && strcmp(v->options[i].name, f->means) == 0)
            return true;
    return false;
}

const foreign_name *foreign_name_find(const verb *v, const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const foreign_name *f = &names[i];
        bool is_for_verb = !f->verbs || is_listed(f->verbs, ',', v->name, strlen(v->name));
        if (is_for_verb && is_there(v, f) && is_listed(f->names, ' ', word, n))
            return f;
    }
    return NULL;
}

const char *foreign_verb_find(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (is_listed(verbs[i].names, ' ', name, strlen(name)))
            return verbs[i].instead;
    return NULL;
}
