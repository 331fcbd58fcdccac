/* What people type from habit: the table. */
#include "cli/habits.h"

#include <string.h>

/* clang-format off */
static const habit habits[] = {
    {"-m --model", HABIT_MODEL, NULL,
     "run,chat,serve,inspect,tokenize,logits,imatrix,perplexity,quantize,prune"},
    {"-m --model", HABIT_MODELS, NULL, "bench,compare"},

    /* The same under another name. */
    {"--ctx",                                 HABIT_OPTION, "ctx-size",    NULL},
    {"--temperature",                         HABIT_OPTION, "temp",        NULL},
    {"--typical-p",                           HABIT_OPTION, "typical",     NULL},
    {"--predict --max-tokens",                HABIT_OPTION, "n-predict",   NULL},
    {"-sys --system-prompt",                  HABIT_OPTION, "system",      "chat"},
    {"-np --parallel",                        HABIT_OPTION, "max-running", "serve"},
    {"-a",                                    HABIT_OPTION, "alias",       "serve"},
    {"-to",                                   HABIT_OPTION, "timeout",     "serve"},
    {"--ssl-cert-file",                       HABIT_OPTION, "tls-cert",    "serve"},
    {"--ssl-key-file",                        HABIT_OPTION, "tls-key",     "serve"},
    {"-ub --ubatch-size",                     HABIT_OPTION, "ubatch",      "bench"},
    {"-ub --ubatch-size --batch-size",        HABIT_OPTION, "batch",       "run,serve,logits,perplexity"},
    {"-md --model-draft",                     HABIT_OPTION, "draft",       "run,chat"},
    {"--draft-max --draft-n",                 HABIT_OPTION, "n-draft",     "run,chat"},
    {"-dev",                                  HABIT_OPTION, "device",      NULL},
    {"--chunks",                              HABIT_OPTION, "windows",     "perplexity,imatrix"},
    {"--n-prompt",                            HABIT_OPTION, "prompt",      "bench"},
    {"--n-depth",                             HABIT_OPTION, "depth",       "bench"},
    {"--repetitions",                         HABIT_OPTION, "repeat",      "bench"},
    {"--allow-requantize",                    HABIT_OPTION, "requantize",  "quantize"},
    {"--output-file",                         HABIT_OPTION, "output",      "imatrix"},

    /* What lace always does. */
    {"--no-mmap",                             HABIT_ALWAYS, NULL, "run,chat,serve,bench,logits,perplexity"},
    {"-no-cnv --no-conversation",             HABIT_OPTION, "raw", "run"},
    {"-cnv --conversation -i --interactive",  HABIT_ALWAYS, NULL, "chat"},
    {"--jinja",                               HABIT_ALWAYS, NULL, "run,chat,serve"},
    {"-cb --cont-batching --metrics --props --embedding --embeddings", HABIT_ALWAYS, NULL, "serve"},
    {"--no-slots --no-context-shift",         HABIT_ALWAYS, NULL, "serve"},
    {"--ids",                                 HABIT_ALWAYS, NULL, "tokenize"},
    {"-fa --flash-attn",                      HABIT_SWITCH, NULL, "run,chat,serve,bench,perplexity"},
    {"-ngl --n-gpu-layers --gpu-layers",      HABIT_LAYERS, NULL, NULL},

    /* What it does in another way, or not at all. */
    {"-cnv --conversation -i --interactive",  HABIT_NONE, "use lace chat MODEL", "run"},
    {"-sys --system-prompt --system",         HABIT_NONE, "use lace chat MODEL --system TEXT -p QUESTION", "run"},
    {"-st --single-turn",                     HABIT_NONE, "for one answer: lace run MODEL TEXT", NULL},
    {"--format",                              HABIT_NONE, "use --json or --json-schema SCHEMA", "run,chat"},
    {"--hidethinking",                        HABIT_NONE, "use --think off; into a pipe only the answer is printed", "run,chat"},
    {"--verbose",                             HABIT_ALWAYS, NULL, "run"},
    {"--reasoning-budget --chat-template-kwargs", HABIT_NONE, "use --think on, off, low, medium or high", "run,chat"},
    {"-p --prompt",                           HABIT_NONE, "the text is an argument: lace tokenize MODEL TEXT", "tokenize"},
    {"-e --escape",                           HABIT_NONE, "let the shell do it: -p $'one\\ntwo'", NULL},
    {"-hf -hfr -hff --hf-repo --hf-file -mu --model-url", HABIT_NONE,
     "lace downloads nothing; what Hugging Face's or Ollama's own tools have fetched is in lace list", NULL},
    {"-ctk -ctv --cache-type-k --cache-type-v", HABIT_NONE, "keys and values have one type: use --kv-type", NULL},
    {"-tb --threads-batch",                   HABIT_NONE, "use --threads, for prompts and text alike", NULL},
    {"--mlock",                               HABIT_NONE, "without --mmap weights are a copy in memory", NULL},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe",
     HABIT_NONE, "a model runs on one device, whole; use --device", NULL},
    {"--lora --lora-scaled",                  HABIT_NONE, "adapters are not supported; merge them into the model", NULL},
    {"-mm --mmproj --image",                  HABIT_NONE, "lace reads text only", NULL},
    {"-r --reverse-prompt",                   HABIT_NONE, "requests to lace serve have \"stop\"", "run,chat"},
    {"--chat-template",                       HABIT_NONE, "use --chat-template-file FILE", "run,chat,serve"},
    {"--slots --slot-save-path -sps",         HABIT_NONE, "there are no slots; /metrics says what runs", "serve"},
    {"--context-shift",                       HABIT_NONE, "no text is ever cut; use a larger --ctx-size", "serve"},
    {"--rerank --reranking",                  HABIT_NONE, "reranking is not supported", "serve"},
    {"--api-key",                             HABIT_NONE, "use --api-key-file FILE or $OPENAI_API_KEY", "bench serve"},
    {"-nocb --no-cont-batching",              HABIT_NONE, "use --max-running 1 to compute one request at a time", "serve"},
    {"--leave-output-tensor",                 HABIT_NONE, "use --output-tensor-type f16", "quantize"},
    {"--tensor-type-file",                    HABIT_NONE, "use --tensor-type PATTERN=TYPE, once for each", "quantize"},
    {"--keep-split",                          HABIT_NONE, "lace writes one file", "quantize"},
    {"--include-weights --exclude-weights",   HABIT_NONE, "--imatrix is used whole", "quantize"},
    {"--kl-divergence --kl-divergence-base",  HABIT_NONE, "use --against MODEL", "perplexity"},
};

static const struct { const char *names, *instead; } verb_habits[] = {
    {"show info",              "use lace inspect MODEL"},
    {"ls models",              "use lace list"},
    {"server start",           "use lace serve MODEL"},
    {"cli generate complete",  "use lace run MODEL -p TEXT"},
    {"ppl",                    "use lace perplexity MODEL -f TEXT"},
    {"ps",                     "what a server does is at its /metrics and /api/ps"},
    {"pull download push",     "lace downloads nothing; what Hugging Face's or Ollama's own tools have fetched is in lace list"},
    {"rm cp create",           "models are files; lace list shows where they are"},
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

const habit *habits_find(const verb *v, const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
        const habit *h = &habits[i];
        bool is_for_verb = !h->verbs || is_listed(h->verbs, ',', v->name, strlen(v->name));
        if (is_for_verb && is_listed(h->names, ' ', word, n))
            return h;
    }
    return NULL;
}

const char *habits_find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof verb_habits / sizeof *verb_habits; i++)
        if (is_listed(verb_habits[i].names, ' ', name, strlen(name)))
            return verb_habits[i].instead;
    return NULL;
}
