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
    {"-np --parallel",                        FOREIGN_OPTION, "max-running", "serve"},
    {"-a",                                    FOREIGN_OPTION, "alias",       "serve"},
    {"-to",                                   FOREIGN_OPTION, "timeout",     "serve"},
    {"--ssl-cert-file",                       FOREIGN_OPTION, "tls-cert",    "serve"},
    {"--ssl-key-file",                        FOREIGN_OPTION, "tls-key",     "serve"},
    {"-ub --ubatch-size",                     FOREIGN_OPTION, "ubatch",      "bench"},
    {"-ub --ubatch-size --batch-size",        FOREIGN_OPTION, "batch",       "run,serve,embed,rerank,logits,perplexity"},
    {"-mm",                                   FOREIGN_OPTION, "mmproj",      "run,chat,serve"},
    {"-md --model-draft",                     FOREIGN_OPTION, "draft",       "run,chat,serve"},
    {"--draft-max --draft-n --spec-draft-n-max", FOREIGN_OPTION, "n-draft",     "run,chat,serve"},
    {"-ctk --cache-type-k",                   FOREIGN_OPTION, "kv-type",     "run,chat,serve,bench,perplexity,inspect,embed,rerank,logits"},
    {"-ctv --cache-type-v",                   FOREIGN_OPTION, "v-type",      "run,chat,serve,bench,perplexity,inspect,embed,rerank,logits"},
    {"-dev",                                  FOREIGN_OPTION, "device",      NULL},
    {"--chunks",                              FOREIGN_OPTION, "windows",     "perplexity,imatrix"},
    {"--n-prompt",                            FOREIGN_OPTION, "prompt",      "bench"},
    {"--n-depth",                             FOREIGN_OPTION, "depth",       "bench"},
    {"--repetitions",                         FOREIGN_OPTION, "repeat",      "bench"},
    {"--allow-requantize",                    FOREIGN_OPTION, "requantize",  "quantize"},
    {"--output-file",                         FOREIGN_OPTION, "output",      "imatrix"},

    /* What lace always does. */
    {"--no-mmap",                             FOREIGN_ALWAYS, NULL, "run,chat,serve,bench,logits,perplexity"},
    {"-no-cnv --no-conversation",             FOREIGN_OPTION, "raw", "run"},
    {"-cnv --conversation -i --interactive",  FOREIGN_ALWAYS, NULL, "chat"},
    {"--jinja",                               FOREIGN_ALWAYS, NULL, "run,chat,serve"},
    {"-cb --cont-batching --metrics --props --embedding --embeddings --rerank --reranking", FOREIGN_ALWAYS, NULL, "serve"},
    {"--no-slots --no-context-shift",         FOREIGN_ALWAYS, NULL, "serve"},
    {"--ids",                                 FOREIGN_ALWAYS, NULL, "tokenize"},
    {"-fa --flash-attn",                      FOREIGN_SWITCH, NULL, "run,chat,serve,bench,perplexity"},
    {"-ngl --n-gpu-layers",                   FOREIGN_OPTION, "gpu-layers",   "run,chat,serve,bench,logits"},
    {"-ngl --n-gpu-layers --gpu-layers",      FOREIGN_LAYERS, NULL, NULL},
    {"-cmoe",                                 FOREIGN_OPTION, "cpu-moe",      "run,chat,serve,bench,logits"},
    {"-ncmoe",                                FOREIGN_OPTION, "n-cpu-moe",    "run,chat,serve,bench,logits"},
    {"-ts",                                   FOREIGN_OPTION, "tensor-split", "run,chat,serve,bench,logits"},
    {"-sm",                                   FOREIGN_OPTION, "split-mode",   "run,chat,serve,bench,logits"},

    /* What it does in another way, or not at all. */
    {"-cnv --conversation -i --interactive",  FOREIGN_NONE, "use lace chat MODEL", "run"},
    {"-sys --system-prompt --system",         FOREIGN_NONE, "use lace chat MODEL --system TEXT -p QUESTION", "run"},
    {"-st --single-turn",                     FOREIGN_NONE, "for one answer: lace run MODEL TEXT", NULL},
    {"--format",                              FOREIGN_NONE, "use --json or --json-schema SCHEMA", "run,chat"},
    {"--hidethinking",                        FOREIGN_NONE, "use --think off; into a pipe only the answer is printed", "run,chat"},
    {"--verbose",                             FOREIGN_ALWAYS, NULL, "run"},
    {"--reasoning-budget --chat-template-kwargs", FOREIGN_NONE, "use --think on, off, low, medium or high", "run,chat"},
    {"-p --prompt",                           FOREIGN_NONE, "the text is an argument: lace tokenize MODEL TEXT", "tokenize"},
    {"--spec-type",                           FOREIGN_NONE, "use --mtp, --draft MODEL or --lookup", "run,chat,serve"},
    {"-e --escape",                           FOREIGN_NONE, "let the shell do it: -p $'one\\ntwo'", NULL},
    {"-hff --hf-file",                        FOREIGN_NONE, "name a part of the file's name: -hf ORG/REPO:Q8_0", NULL},
    {"-hft --hf-token",                       FOREIGN_NONE, "set HF_TOKEN, which nobody sees who lists processes", NULL},
    {"-mu --model-url",                       FOREIGN_NONE, "lace pull ORG/REPO:QUANT downloads from Hugging Face", NULL},
    {"-tb --threads-batch",                   FOREIGN_NONE, "use --threads, for prompts and text alike", NULL},
    {"--mlock",                               FOREIGN_NONE, "without --mmap weights are a copy in memory", NULL},
    {"-mg --main-gpu -ot --override-tensor",
     FOREIGN_NONE, "layers are divided by --device cuda:0,cuda:1, --tensor-split, --gpu-layers and --n-cpu-moe", "run,chat,serve,bench,logits"},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe",
     FOREIGN_NONE, "here a model runs on one device, whole; use --device", NULL},
    {"--lora-modules",                        FOREIGN_OPTION, "lora",        "serve"},
    {"--lora --lora-scaled",                  FOREIGN_NONE, "lace lora merge MODEL ADAPTER -o FILE makes a model of both", NULL},
    {"-r --reverse-prompt",                   FOREIGN_NONE, "requests to lace serve have \"stop\"", "run,chat"},
    {"--chat-template",                       FOREIGN_NONE, "use --chat-template-file FILE", "run,chat,serve"},
    {"--slots --slot-save-path -sps",         FOREIGN_NONE, "there are no slots; /metrics says what runs", "serve"},
    {"--context-shift",                       FOREIGN_NONE, "no text is ever cut; use a larger --ctx-size", "serve"},
    {"--embd-normalize",                      FOREIGN_NONE, "vectors have length 1; use --normalize off for others", "embed"},
    {"--embd-output-format --embd-separator", FOREIGN_NONE, "use --format json, text or f32; texts are arguments, or lines of -f", "embed"},
    {"--api-key",                             FOREIGN_NONE, "use --api-key-file FILE or $OPENAI_API_KEY", "bench serve"},
    {"-nocb --no-cont-batching",              FOREIGN_NONE, "use --max-running 1 to compute one request at a time", "serve"},
    {"--leave-output-tensor",                 FOREIGN_NONE, "use --output-tensor-type f16", "quantize"},
    {"--tensor-type-file",                    FOREIGN_NONE, "use --tensor-type PATTERN=TYPE, once for each", "quantize"},
    {"--keep-split",                          FOREIGN_NONE, "lace writes one file", "quantize"},
    {"--include-weights --exclude-weights",   FOREIGN_NONE, "--imatrix is used whole", "quantize"},
    {"--kl-divergence --kl-divergence-base",  FOREIGN_NONE, "use --against MODEL", "perplexity"},
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

const foreign_name *foreign_name_find(const verb *v, const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const foreign_name *f = &names[i];
        bool is_for_verb = !f->verbs || is_listed(f->verbs, ',', v->name, strlen(v->name));
        if (is_for_verb && is_listed(f->names, ' ', word, n))
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
