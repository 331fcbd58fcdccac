/* lace rerank: how well texts answer a query, by a reranker. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/texts.h"

typedef enum rerank_format { FORMAT_TABLE, FORMAT_JSON } rerank_format;

typedef struct rerank_args {
    embedder_args common;
    const char *query;
    int32_t top_n;
    bool normalize;
    int32_t format;
} rerank_args;

/* clang-format off */
static const arg_option options[] = {
    {"query", 'q', ARG_TEXT, offsetof(rerank_args, query), .value = "QUERY",
     .help = "what the texts are to answer", .is_needed = true},
    {"file", 'f', ARG_TEXT, offsetof(rerank_args, common.file), .value = "FILE",
     .help = "the texts are the lines of this file; - is standard input"},
    {"top-n", 'n', ARG_INT, offsetof(rerank_args, top_n), .low = 1, .high = INFINITY, .value = "N",
     .help = "print only the N best (default: all)"},
    {"normalize", 0, ARG_FLAG, offsetof(rerank_args, normalize),
     .help = "scores from 0 to 1: 1 / (1 + exp(-score))"},
    {"format", 0, ARG_CHOICE, offsetof(rerank_args, format), .value = "table|json",
     .help = "a table for people, or json as Jina's and Cohere's APIs have it (default table)"},
    EMBEDDER_OPTIONS(rerank_args),
};
/* clang-format on */

typedef struct ranked {
    size_t index;
    double score;
} ranked;

/* Best first; of equal ones the earlier first. */
static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index > y->index ? 1 : -1;
}

/* What is computed for: tokens and scores of all texts. */
typedef struct work {
    lace_embed_text *texts; /* [n] */
    lace_token *tokens;     /* of all texts */
    float *scores;          /* [n, n_classes] */
    ranked *order;          /* [n] */
    size_t n_tokens;
} work;

static void work_free(work *w)
{
    mem_free_all(w->texts, w->tokens, w->scores, w->order);
}

/* Tokens of all pairs, one after the other; each may fill the context. */
static lace_status tokenize(const lace_model *model, const char *query, const text_list *list,
                            size_t n_context, work *w, lace_error *err)
{
    size_t n_query = strlen(query);
    lace_token *pair = mem_calloc(n_context, sizeof *pair);
    lace_status status = pair ? LACE_OK : error_nomem(err, "tokens");
    for (size_t i = 0; status == LACE_OK && i < list->n; i++) {
        lace_embed_text *t = &w->texts[i];
        status = lace_tokenize_pair(model, query, n_query, list->data[i], list->sizes[i], n_context,
                                    pair, n_context, &t->n_tokens, &t->n_first, err);
        if (status == LACE_OK && t->n_tokens > n_context)
            status = error_set(err, LACE_E_CONTEXT,
                               "the query leaves no room in a context of %zu tokens", n_context);
        lace_token *grown =
            status == LACE_OK ? mem_realloc(w->tokens, (w->n_tokens + t->n_tokens) * sizeof *grown)
                              : NULL;
        if (status == LACE_OK && !grown)
            status = error_nomem(err, "tokens");
        if (status != LACE_OK)
            break;
        w->tokens = grown;
        memcpy(grown + w->n_tokens, pair, t->n_tokens * sizeof *pair);
        w->n_tokens += t->n_tokens;
    }
    mem_free(pair);
    return status;
}

static lace_status compute(lace_embedder *e, const rerank_args *a, size_t n, size_t n_classes,
                           work *w, lace_error *err)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        w->texts[i].tokens = w->tokens + at;
        w->texts[i].pooling = LACE_POOLING_RANK;
        w->texts[i].out = w->scores + i * n_classes;
        at += w->texts[i].n_tokens;
    }
    TRY(lace_embedder_run(e, w->texts, n, err));
    for (size_t i = 0; i < n; i++) {
        double score = w->scores[i * n_classes];
        w->order[i] = (ranked){i, a->normalize ? 1 / (1 + exp(-score)) : score};
    }
    qsort(w->order, n, sizeof *w->order, compare);
    return LACE_OK;
}

static lace_status append_rows(buf *out, const work *w, const text_list *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = w->order[i].index;
        TRY(buf_printf(out, "%10.4f  %4zu  ", w->order[i].score, k));
        TRY(cli_append_clean(out, list->data[k], list->sizes[k]));
        TRY(buf_append(out, "\n", 1));
    }
    return LACE_OK;
}

static lace_status append_json(buf *out, const work *w, size_t n)
{
    TRY(buf_append_text(out, "{\"object\":\"list\",\"results\":["));
    for (size_t i = 0; i < n; i++)
        TRY(buf_printf(out, "%s{\"index\":%zu,\"relevance_score\":%.9g}", i ? "," : "",
                       w->order[i].index, w->order[i].score));
    return buf_printf(out, "],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}\n",
                      w->n_tokens, w->n_tokens);
}

static lace_status print(const work *w, const text_list *list, const rerank_args *a,
                         lace_error *err)
{
    size_t n = a->top_n && (size_t)a->top_n < list->n ? (size_t)a->top_n : list->n;
    buf out;
    buf_init(&out, SIZE_MAX / 2);
    lace_status status =
        a->format == FORMAT_JSON ? append_json(&out, w, n) : append_rows(&out, w, list, n);
    status =
        status == LACE_OK ? cli_write(out.data, out.size, err) : error_nomem(err, "the output");
    buf_deinit(&out);
    return status;
}

static lace_status rank(const char *path, const rerank_args *a, const text_list *list,
                        lace_error *err)
{
    work w = {0};
    lace_model *model;
    lace_embedder *embedder;
    lace_model_info info;
    TRY(embedder_open(path, &a->common, true, &model, &embedder, err));
    lace_model_describe(model, &info);
    size_t n_classes = info.n_classes > 0 ? (size_t)info.n_classes : 1;
    w.texts = mem_calloc(list->n, sizeof *w.texts);
    w.scores = mem_calloc(list->n * n_classes, sizeof *w.scores);
    w.order = mem_calloc(list->n, sizeof *w.order);
    lace_status status = w.texts && w.scores && w.order ? LACE_OK : error_nomem(err, "texts");
    if (status == LACE_OK)
        status = tokenize(model, a->query, list, (size_t)lace_embedder_context(embedder), &w, err);
    if (status == LACE_OK)
        status = compute(embedder, a, list->n, n_classes, &w, err);
    if (status == LACE_OK)
        status = print(&w, list, a, err);
    work_free(&w);
    lace_embedder_free(embedder);
    lace_model_close(model);
    return status;
}

static lace_status rerank_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    rerank_args a = {.common = EMBEDDER_ARGS_DEFAULT};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    text_list list;
    lace_status status = texts_read(v, &words, 1, a.common.file, &list, err);
    if (status == LACE_OK)
        status = rank(words.at[0], &a, &list, err);
    texts_free(&list);
    return status;
}

VERB(rerank, "rerank", "MODEL -q QUERY [TEXT...] [options]",
     "order texts by how well they answer a query", 1, ARGS_MAX_POSITIONAL,
     .description =
         "Prints a score, the number of the text and the text, best first. The model is a "
         "reranker:\n"
         "an encoder with a classification head, such as bge-reranker. Texts that do not fit into\n"
         "its context are cut at their end. Without TEXT and -f, the lines of standard input are "
         "the\n"
         "texts.\n",
     .examples =
         "  lace rerank bge-reranker.gguf -q \"what is a panda?\" \"hi\" \"a bear of China\"\n"
         "  lace rerank bge-reranker.gguf -q \"opening hours\" -f passages.txt -n 3\n")
