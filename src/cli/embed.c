/* lace embed: texts to vectors. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/texts.h"

typedef enum embed_format { FORMAT_JSON, FORMAT_TEXT, FORMAT_F32 } embed_format;

typedef struct embed_args {
    embedder_args common;
    const char *tokens;
    int32_t pooling;
    int32_t keeps_length; /* on, off */
    int32_t format;
} embed_args;

/* clang-format off */
static const arg_option options[] = {
    {"file", 'f', ARG_TEXT, offsetof(embed_args, common.file), .value = "FILE",
     .help = "the texts are the lines of this file; - is standard input"},
    {"tokens", 0, ARG_TEXT, offsetof(embed_args, tokens), .value = "FILE",
     .help = "one text, as tokens: raw little-endian int32"},
    {"pooling", 0, ARG_CHOICE, offsetof(embed_args, pooling), .value = "model|none|mean|cls|last",
     .help = "how the vectors of a text's tokens become one: their mean, the first or the last; none: a "
             "vector for each token (default model: as the model's file says)"},
    {"normalize", 0, ARG_CHOICE, offsetof(embed_args, keeps_length), .value = "on|off",
     .help = "vectors of length 1 (default on)"},
    {"format", 0, ARG_CHOICE, offsetof(embed_args, format), .value = "json|text|f32",
     .help = "json as OpenAI's API has it, a line of numbers for each vector, or raw little-endian f32 "
             "(default json)"},
    EMBEDDER_OPTIONS(embed_args),
};
/* clang-format on */

/* Texts as the embedder reads them, and where their vectors go. */
typedef struct work {
    lace_embed_text *texts; /* [n] */
    lace_token **tokens;    /* [n] */
    size_t n;
    size_t n_tokens;  /* of all */
    size_t n_vectors; /* the same with --pooling none, else n */
    float *vectors;   /* [n_vectors, width] */
    size_t width;
} work;

static void work_free(work *w)
{
    for (size_t i = 0; w->tokens && i < w->n; i++)
        mem_free(w->tokens[i]);
    mem_free_all(w->texts, w->tokens, w->vectors);
}

static lace_status make_room(work *w, size_t n, lace_error *err)
{
    w->n = n;
    w->texts = mem_calloc(n, sizeof *w->texts);
    w->tokens = mem_calloc(n, sizeof *w->tokens);
    return w->texts && w->tokens ? LACE_OK : error_nomem(err, "texts");
}

static lace_status tokenize(const lace_model *model, const text_list *list, work *w,
                            lace_error *err)
{
    TRY(make_room(w, list->n, err));
    for (size_t i = 0; i < list->n; i++) {
        TRY(cli_tokenize(model, list->data[i], list->sizes[i], LACE_TOKENIZE_ADD_SPECIAL,
                         &w->tokens[i], &w->texts[i].n_tokens, err));
        w->texts[i].tokens = w->tokens[i];
    }
    return LACE_OK;
}

static lace_status read_tokens(const char *path, work *w, lace_error *err)
{
    buf raw;
    TRY(make_room(w, 1, err));
    buf_init(&raw, CLI_MAX_TEXT);
    lace_status status = file_read(path, &raw, err);
    size_t n = raw.size / sizeof(lace_token);
    if (status == LACE_OK && (n == 0 || raw.size % sizeof(lace_token) != 0))
        status =
            error_set(err, LACE_E_ARG, "%.200s: %zu bytes, expected int32 tokens: a multiple of 4",
                      path, raw.size);
    if (status == LACE_OK && !(w->tokens[0] = mem_calloc(n, sizeof(lace_token))))
        status = error_nomem(err, "tokens");
    if (status == LACE_OK) {
        memcpy(w->tokens[0], raw.data, n * sizeof(lace_token));
        w->texts[0].tokens = w->tokens[0];
        w->texts[0].n_tokens = n;
    }
    buf_deinit(&raw);
    return status;
}

static lace_status compute(lace_embedder *e, const embed_args *a, work *w, lace_error *err)
{
    size_t at = 0;
    bool is_each = a->pooling == LACE_POOLING_NONE;
    for (size_t i = 0; i < w->n; i++)
        w->n_tokens += w->texts[i].n_tokens;
    w->n_vectors = is_each ? w->n_tokens : w->n;
    w->vectors = mem_calloc(w->n_vectors * w->width, sizeof *w->vectors);
    if (!w->vectors)
        return error_nomem(err, "vectors");
    for (size_t i = 0; i < w->n; i++) {
        lace_embed_text *t = &w->texts[i];
        t->pooling = (lace_pooling)a->pooling;
        t->normalize = a->keeps_length == 0;
        t->out = w->vectors + at * w->width;
        at += is_each ? t->n_tokens : 1;
    }
    return lace_embedder_run(e, w->texts, w->n, err);
}

static lace_status append_numbers(buf *out, const float *x, size_t n, const char *separator)
{
    for (size_t i = 0; i < n; i++)
        TRY(buf_printf(out, "%s%.9g", i ? separator : "", (double)x[i]));
    return LACE_OK;
}

static lace_status append_json(buf *out, const work *w)
{
    TRY(buf_append_text(out, "{\"object\":\"list\",\"data\":["));
    for (size_t i = 0; i < w->n_vectors; i++) {
        TRY(buf_printf(out, "%s\n{\"object\":\"embedding\",\"index\":%zu,\"embedding\":[",
                       i ? "," : "", i));
        TRY(append_numbers(out, w->vectors + i * w->width, w->width, ","));
        TRY(buf_append_text(out, "]}"));
    }
    return buf_printf(out, "\n],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}\n",
                      w->n_tokens, w->n_tokens);
}

static lace_status print(const work *w, int32_t format, lace_error *err)
{
    if (format == FORMAT_F32)
        return cli_write(w->vectors, w->n_vectors * w->width * sizeof *w->vectors, err);
    buf out;
    buf_init(&out, SIZE_MAX / 2);
    lace_status status = format == FORMAT_JSON ? append_json(&out, w) : LACE_OK;
    for (size_t i = 0; format == FORMAT_TEXT && status == LACE_OK && i < w->n_vectors; i++) {
        status = append_numbers(&out, w->vectors + i * w->width, w->width, " ");
        if (status == LACE_OK)
            status = buf_append(&out, "\n", 1);
    }
    status =
        status == LACE_OK ? cli_write(out.data, out.size, err) : error_nomem(err, "the output");
    buf_deinit(&out);
    return status;
}

static lace_status embed_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    embed_args a = {.common = EMBEDDER_ARGS_DEFAULT};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (a.tokens && (a.common.file || words.count > 1))
        return args_error(v, err, "--tokens and texts exclude each other");
    if (a.format == FORMAT_F32 && isatty(STDOUT_FILENO))
        return args_error(v, err, "--format f32 is not for a terminal; send it to a file");
    text_list list = {0};
    work w = {0};
    lace_model *model = NULL;
    lace_embedder *embedder = NULL;
    lace_model_info info;
    lace_status status;
    if (!a.tokens)
        TRY_GOTO(status, end, texts_read(v, &words, 1, a.common.file, &list, err));
    TRY_GOTO(status, end, embedder_open(words.at[0], &a.common, !a.tokens, &model, &embedder, err));
    lace_model_describe(model, &info);
    w.width = (size_t)info.n_embd;
    TRY_GOTO(status, end,
             a.tokens ? read_tokens(a.tokens, &w, err) : tokenize(model, &list, &w, err));
    TRY_GOTO(status, end, compute(embedder, &a, &w, err));
    status = print(&w, a.format, err);
end:
    work_free(&w);
    lace_embedder_free(embedder);
    lace_model_close(model);
    texts_free(&list);
    return status;
}

VERB(embed, "embed", "MODEL [TEXT...] [options]", "turn texts into vectors", 1, ARGS_MAX_POSITIONAL,
     .description =
         "Prints the embedding of each text. Encoders (BERT, Nomic, ModernBERT, XLM-RoBERTa) are "
         "made\n"
         "for it; of other models the last layer's states are used. Texts are computed together.\n"
         "Without TEXT and -f, the lines of standard input are the texts.\n",
     .examples = "  lace embed nomic-embed.gguf \"search_query: what is lace?\"\n"
                 "  lace embed bge-m3.gguf -f passages.txt --format f32 >passages.f32\n"
                 "  lace embed model.gguf --pooling last a b c | jq '.data[].embedding[:3]'\n")
