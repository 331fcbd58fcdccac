/* A server of an encoder: scores in the forms of several APIs, embeddings of many requests at once. */
#define _GNU_SOURCE
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scratch.h"
#include "served.h"
#include "tap.h"
#include "tiny_model.h"

static served s;
static answer a;

static void post(const char *path, const char *json)
{
    served_post(&s, path, json, &a);
}

static json_t *body(void)
{
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    if (!CHECK(json != NULL))
        tap_note("%s", a.body ? a.body : "");
    return json;
}

#define QUERY     "\"query\":\"the hand\""
#define DOCUMENTS "[\"the sea\",{\"text\":\"and the hand\"},\"it is\"]"
#define REQUEST   "{" QUERY ",\"documents\":" DOCUMENTS

static double number(const json_t *list, size_t i, const char *name)
{
    return json_number_value(json_object_get(json_array_get(list, i), name));
}

static void documents_are_ordered(void)
{
    static const char *const paths[] = {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"};
    for (size_t i = 0; i < 4; i++) {
        post(paths[i], REQUEST ",\"model\":\"any\"}");
        answer_check(&a, 200, "\"object\":\"list\"");
        json_t *json = body();
        const json_t *results = json_object_get(json, "results");
        CHECK(json_array_size(results) == 3);
        for (size_t k = 0; k + 1 < json_array_size(results); k++)
            CHECK(number(results, k, "relevance_score") >=
                  number(results, k + 1, "relevance_score"));
        CHECK(json_integer_value(json_object_get(json_object_get(json, "usage"), "total_tokens")) >
              9);
        json_decref(json);
    }
}

static void the_best_are_given_with_their_texts(void)
{
    post("/v1/rerank", REQUEST ",\"top_n\":2,\"return_documents\":true}");
    json_t *json = body();
    const json_t *results = json_object_get(json, "results");
    CHECK(json_array_size(results) == 2);
    CHECK(json_is_string(
        json_object_get(json_object_get(json_array_get(results, 0), "document"), "text")));
    json_decref(json);
}

/* Text Embeddings Inference: a list, and scores from 0 to 1 unless they are wanted raw. */
static void texts_are_ordered(void)
{
    post("/rerank", "{" QUERY ",\"texts\":" DOCUMENTS ",\"return_text\":true}");
    json_t *soft = body();
    post("/rerank", "{" QUERY ",\"texts\":" DOCUMENTS ",\"raw_scores\":true}");
    json_t *raw = body();
    CHECK(json_array_size(soft) == 3 && json_array_size(raw) == 3);
    for (size_t i = 0; i < 3; i++) {
        double x = number(raw, i, "score");
        CHECK(fabs(number(soft, i, "score") - 1 / (1 + exp(-x))) < 1e-6);
    }
    CHECK(json_is_string(json_object_get(json_array_get(soft, 0), "text")));
    CHECK(!json_object_get(json_array_get(raw, 0), "text"));
    json_decref(soft);
    json_decref(raw);
}

static void bad_requests_are_refused(void)
{
    static const char *const bad[] = {
        "{}",
        "{" QUERY "}",
        "{" QUERY ",\"documents\":[]}",
        "{" QUERY ",\"documents\":\"one\"}",
        "{" QUERY ",\"documents\":[5]}",
        "{" QUERY ",\"documents\":[{\"title\":\"x\"}]}",
        "{\"query\":5,\"documents\":[\"a\"]}",
        REQUEST ",\"top_n\":0}",
        REQUEST ",\"top_n\":\"2\"}",
        REQUEST ",\"return_documents\":1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        post("/v1/rerank", bad[i]);
        if (!CHECK(a.status == 400))
            tap_note("%s: %d", bad[i], a.status);
    }
}

/* A document is cut at its end; a query that fills the context leaves nothing. */
static void long_documents_are_cut(void)
{
    char *longer = malloc(40000);
    size_t n = (size_t)sprintf(longer, "{" QUERY ",\"documents\":[\"");
    while (n < 30000)
        n += (size_t)sprintf(longer + n, "the sea and ");
    sprintf(longer + n, "\"]}");
    post("/v1/rerank", longer);
    answer_check(&a, 200, "relevance_score");
    n = (size_t)sprintf(longer, "{\"query\":\"");
    while (n < 30000)
        n += (size_t)sprintf(longer + n, "the sea and ");
    sprintf(longer + n, "\",\"documents\":[\"a\"]}");
    post("/v1/rerank", longer);
    answer_check(&a, 400, "context_length_exceeded");
    free(longer);
}

static void text_is_refused(void)
{
    post("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    answer_check(&a, 400, "encoder");
    post("/api/generate", "{\"model\":\"x\",\"prompt\":\"Hi\"}");
    answer_check(&a, 400, "encoder");
    served_get(&s, "/health", &a);
    answer_check(&a, 200, NULL);
    served_get(&s, "/metrics", &a);
    answer_check(&a, 200, NULL);
    served_get(&s, "/v1/models", &a);
    answer_check(&a, 200, NULL);
}

enum { N_CLIENTS = 12 };

static void request_text(int i, char *out, size_t size)
{
    int n = snprintf(out, size, "{\"input\":[\"the sea\"");
    for (int k = 0; k < i % 4; k++)
        n += snprintf(out + n, size - (size_t)n, ",\"%.*s hand\"", 3 + 5 * (i % 3),
                      "and the other the the one");
    snprintf(out + n, size - (size_t)n, "]}");
}

/* Values of two answers with the same vectors; batches of other texts round in other places. */
static double difference(const json_t *x, const json_t *y)
{
    double most = 0;
    const json_t *one = json_object_get(x, "data"), *two = json_object_get(y, "data");
    if (json_array_size(one) != json_array_size(two) || json_array_size(one) == 0)
        return 1;
    for (size_t i = 0; i < json_array_size(one); i++) {
        const json_t *u = json_object_get(json_array_get(one, i), "embedding");
        const json_t *v = json_object_get(json_array_get(two, i), "embedding");
        for (size_t k = 0; k < json_array_size(u); k++)
            most = fmax(most, fabs(json_number_value(json_array_get(u, k)) -
                                   json_number_value(json_array_get(v, k))));
    }
    return most;
}

/* Requests that come at the same time are answered as if each had come alone. */
static void requests_share_batches(void)
{
    json_t *alone[N_CLIENTS];
    int sockets[N_CLIENTS];
    char request[1024], whole[1400];
    for (int i = 0; i < N_CLIENTS; i++) {
        request_text(i, request, sizeof request);
        post("/v1/embeddings", request);
        answer_check(&a, 200, "\"object\":\"embedding\"");
        alone[i] = body();
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        request_text(i, request, sizeof request);
        int n = snprintf(whole, sizeof whole,
                         "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         strlen(request), request);
        sockets[i] = served_connect(&s);
        CHECK(sockets[i] >= 0 && served_send(sockets[i], whole, (size_t)n));
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        served_read(sockets[i], &a, 60);
        answer_check(&a, 200, "\"object\":\"embedding\"");
        json_t *json = body();
        CHECK(difference(alone[i], json) < 1e-4);
        json_decref(json);
        json_decref(alone[i]);
        close(sockets[i]);
    }
}

static void ollama_and_llama_embed(void)
{
    post("/api/embed", "{\"model\":\"x\",\"input\":[\"the sea\",\"it is\"]}");
    answer_check(&a, 200, "\"embeddings\":[[");
    post("/embedding", "{\"content\":\"the sea\"}");
    answer_check(&a, 200, "\"embedding\":[[");
}

static void other_models_are_no_rerankers(void)
{
    served other;
    if (!CHECK(served_start(&other, "models/default.gguf --device cpu")))
        return;
    served_post(&other, "/v1/rerank", REQUEST "}", &a);
    answer_check(&a, 501, "not a reranker");
    CHECK(served_stop(&other) == 0);
}

int main(void)
{
    tiny_options o = tiny_options_default();
    o.architecture = "bert";
    buf model = tiny_model_bytes(o);
    char arguments[512];
    scratch_create();
    FILE *f = fopen(scratch_path("bert.gguf"), "wb");
    if (!f || fwrite(model.data, 1, model.size, f) != model.size || fclose(f) != 0)
        return 1;
    buf_deinit(&model);
    snprintf(arguments, sizeof arguments, "%s --device cpu -t 2", scratch_path("bert.gguf"));
    if (!served_start(&s, arguments)) {
        printf("Bail out! the server does not start\n");
        return 1;
    }
    CASE(documents_are_ordered);
    CASE(the_best_are_given_with_their_texts);
    CASE(texts_are_ordered);
    CASE(bad_requests_are_refused);
    CASE(long_documents_are_cut);
    CASE(text_is_refused);
    CASE(requests_share_batches);
    CASE(ollama_and_llama_embed);
    CASE(other_models_are_no_rerankers);
    served_stop(&s);
    scratch_remove();
    return tap_end();
}
