/*
 * POST /v1/rerank and its other names: documents ordered by how well they answer a query. Two forms
 * of requests: "documents", as Jina and Cohere have it, and "texts", as Text Embeddings Inference.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"
#include "server/embed_queue.h"

enum { MAX_DOCUMENTS = 2048, MAX_OUT = 64 << 20 };

typedef struct rerank_request {
    const json_t *query, *documents;
    size_t n, top_n;
    bool has_texts;     /* the form of Text Embeddings Inference */
    bool returns_texts; /* documents stand in the answer, too */
    bool is_raw;        /* scores as they are; else from 0 to 1, where the form asks for it */
} rerank_request;

typedef struct ranked {
    size_t index;
    double score;
} ranked;

/* What is computed. */
typedef struct rerank_work {
    lace_embed_text *texts; /* [n] */
    lace_token **tokens;    /* [n] */
    float *scores;          /* [n, n_classes] */
    ranked *order;          /* [n] */
    size_t n, n_tokens;
} rerank_work;

/* ---- The request ----------------------------------------------------------------------------- */

/* A document is a text, or an object with one. */
static const json_t *text_of_document(const json_t *document)
{
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

static bool read_flag(call *c, const json_t *body, const char *name, bool *out)
{
    const json_t *value = json_object_get(body, name);
    if (!value || json_is_null(value))
        return true;
    *out = json_is_true(value);
    return json_is_boolean(value) || call_refuse(c, name, "expected true or false");
}

static bool read_top(call *c, const json_t *body, rerank_request *q)
{
    const json_t *top = json_object_get(body, "top_n");
    q->top_n = q->n;
    if (!top || json_is_null(top))
        return true;
    if (!json_is_integer(top) || json_integer_value(top) < 1)
        return call_refuse(c, "top_n", "top_n is not a number from 1 on");
    if ((uint64_t)json_integer_value(top) < q->n)
        q->top_n = (size_t)json_integer_value(top);
    return true;
}

static bool read_request(call *c, const json_t *body, rerank_request *q)
{
    q->query = json_object_get(body, "query");
    q->has_texts = json_object_get(body, "texts") != NULL;
    q->documents = json_object_get(body, q->has_texts ? "texts" : "documents");
    q->n = json_array_size(q->documents);
    const char *name = q->has_texts ? "texts" : "documents";
    if (!json_is_string(q->query))
        return call_refuse(c, "query", "query is not a text");
    if (q->n == 0)
        return call_refuse(c, name, "there is no list of documents");
    if (q->n > MAX_DOCUMENTS)
        return call_refuse(c, name, "there are more than 2048 documents");
    for (size_t i = 0; i < q->n; i++)
        if (!json_is_string(text_of_document(json_array_get(q->documents, i))))
            return call_refuse(c, name, "a document is neither a text nor an object with one");
    q->is_raw = !q->has_texts;
    bool is_raw_asked = false;
    if (!read_flag(c, body, q->has_texts ? "return_text" : "return_documents", &q->returns_texts) ||
        !read_flag(c, body, "raw_scores", &is_raw_asked))
        return false;
    q->is_raw = q->is_raw || is_raw_asked;
    return read_top(c, body, q);
}

/* ---- Computing ------------------------------------------------------------------------------- */

static void work_free(rerank_work *w)
{
    for (size_t i = 0; w->tokens && i < w->n; i++)
        mem_free(w->tokens[i]);
    mem_free_all(w->texts, w->tokens, w->scores, w->order);
}

static bool make_room(call *c, rerank_work *w, size_t n, size_t n_classes)
{
    w->n = n;
    w->texts = mem_calloc(n, sizeof *w->texts);
    w->tokens = mem_calloc(n, sizeof *w->tokens);
    w->scores = mem_calloc(n * n_classes, sizeof *w->scores);
    w->order = mem_calloc(n, sizeof *w->order);
    return (w->texts && w->tokens && w->scores && w->order) || call_nomem(c);
}

/* Tokens of one pair; a document that is too long is cut. */
static bool read_pair(call *c, const rerank_request *q, size_t i, rerank_work *w)
{
    const server *s = call_server(c);
    lace_embed_text *t = &w->texts[i];
    const json_t *document = text_of_document(json_array_get(q->documents, i));
    size_t max = (size_t)embedder_context(s->embedder);
    lace_error err = {0};
    size_t n_bytes = json_string_length(q->query) + json_string_length(document);
    size_t capacity = n_bytes + 8 < max ? n_bytes + 8 : max;
    w->tokens[i] = mem_calloc(capacity, sizeof *w->tokens[i]);
    if (!w->tokens[i])
        return call_nomem(c);
    if (lace_tokenize_pair(s->model, json_string_value(q->query), json_string_length(q->query),
                           json_string_value(document), json_string_length(document), max,
                           w->tokens[i], capacity, &t->n_tokens, &t->n_first, &err) != LACE_OK) {
        call_fail_error(c, "query", &err);
        return false;
    }
    if (t->n_tokens > capacity) {
        call_fail(c, 400, "query", "context_length_exceeded",
                  "the query leaves no room in a context of %zu tokens", max);
        return false;
    }
    t->tokens = w->tokens[i];
    t->pooling = LACE_POOLING_RANK;
    w->n_tokens += t->n_tokens;
    return true;
}

/* Best first; of equal ones the earlier first. */
static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index > y->index ? 1 : -1;
}

static bool compute(call *c, const rerank_request *q, rerank_work *w)
{
    const server *s = call_server(c);
    size_t n_classes = (size_t)s->info.n_classes;
    lace_error err = {0};
    if (!make_room(c, w, q->n, n_classes))
        return false;
    for (size_t i = 0; i < q->n; i++) {
        if (!read_pair(c, q, i, w))
            return false;
        w->texts[i].out = w->scores + i * n_classes;
    }
    if (embedder_run(s->embedder, w->texts, q->n, &c->is_gone, &err) != LACE_OK) {
        call_fail_error(c, NULL, &err);
        return false;
    }
    for (size_t i = 0; i < q->n; i++) {
        double score = w->scores[i * n_classes];
        w->order[i] = (ranked){i, q->is_raw ? score : 1 / (1 + exp(-score))};
    }
    qsort(w->order, q->n, sizeof *w->order, compare);
    return true;
}

/* ---- The answer ------------------------------------------------------------------------------ */

static void write_document(json_out *out, const rerank_request *q, size_t i)
{
    const json_t *document = text_of_document(json_array_get(q->documents, i));
    json_out_raw(out, q->has_texts ? ",\"text\":" : ",\"document\":{\"text\":");
    json_out_text(out, json_string_value(document), json_string_length(document));
    json_out_raw(out, q->has_texts ? "" : "}");
}

static void write_results(json_out *out, const rerank_request *q, const rerank_work *w)
{
    json_out_raw(out, "[");
    for (size_t i = 0; i < q->top_n; i++) {
        json_out_printf(out, "%s{\"index\":%zu,\"%s\":%.9g", i ? "," : "", w->order[i].index,
                        q->has_texts ? "score" : "relevance_score", w->order[i].score);
        if (q->returns_texts)
            write_document(out, q, w->order[i].index);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "]");
}

void api_rerank(call *c)
{
    const json_t *body = call_json(c);
    rerank_request q = {0};
    rerank_work w = {0};
    if (!body || !gen_check_model(c, body) || !read_request(c, body, &q))
        return;
    if (call_server(c)->info.n_classes == 0) {
        call_fail(c, 501, NULL, "not_supported",
                  "the model is not a reranker: it has no head that gives scores");
        return;
    }
    json_out out;
    json_out_init(&out, MAX_OUT);
    if (compute(c, &q, &w)) {
        if (!q.has_texts) {
            json_out_raw(&out, "{\"object\":\"list\",\"model\":");
            json_out_string(&out, call_server(c)->model_id);
            json_out_printf(&out,
                            ",\"id\":\"rerank-%s\",\"usage\":{\"prompt_tokens\":%zu,"
                            "\"total_tokens\":%zu},\"results\":",
                            call_id(c), w.n_tokens, w.n_tokens);
        }
        write_results(&out, &q, &w);
        json_out_raw(&out, q.has_texts ? "" : "}");
        call_reply(c, 200, "application/json", &out);
    }
    json_out_deinit(&out);
    work_free(&w);
}
