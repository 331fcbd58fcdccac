/* One question to a running server, for verbs that look after it. */
#include "cli/ask_server.h"

#include <event2/event.h>
#include <stdlib.h>

#include "base/json_read.h"
#include "cli/bench_serve_http.h"

enum { MAX_ANSWER = 8 << 20, TIMEOUT_S = 60 };

typedef struct question {
    buf answer;
    int status;
    bool is_over;
    char problem[200];
} question;

static void on_body(void *user, const char *data, size_t n_bytes)
{
    question *q = user;
    (void)buf_append(&q->answer, data, n_bytes); /* one that is too long is no JSON */
}

static void on_end(void *user, int status, const char *problem)
{
    question *q = user;
    q->status = status;
    q->is_over = true;
    snprintf(q->problem, sizeof q->problem, "%s", problem ? problem : "");
}

/* The message of an error, in the form of any family. */
static const char *message_of(const json_t *json)
{
    const json_t *error = json_get(json, "error");
    const char *line =
        json_string_value(json_is_object(error) ? json_get(error, "message") : error);
    return line ? line : "no reason is given";
}

static lace_status read_answer(const http_target *t, const question *q, json_t **out,
                               lace_error *err)
{
    if (!q->is_over || q->problem[0] || q->status == 0)
        return error_set(err, LACE_E_IO, "%s: %s; is lace serve running there (--url)?", t->url,
                         q->problem[0] ? q->problem : "no answer");
    lace_status status =
        json_read((span){(const uint8_t *)q->answer.data, q->answer.size}, 0, out, err);
    if (q->status != 200) {
        status = error_set(err, LACE_E_IO, "%s answered %d: %.300s", t->url, q->status,
                           message_of(*out));
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

lace_status ask_server(const char *url, const char *path, const char *body, json_t **out,
                       lace_error *err)
{
    const char *usual = getenv("LACE_URL");
    http_target target;
    http_call *call;
    question q = {.status = 0};
    http_handler handler = {.on_body = on_body, .on_end = on_end, .user = &q};
    http_request request = {
        .path = path, .key = getenv("OPENAI_API_KEY"), .body = body, .timeout_s = TIMEOUT_S};
    *out = NULL;
    TRY(http_target_init(&target, url ? url : usual && usual[0] ? usual : ASK_SERVER_URL, err));
    struct event_base *base = event_base_new();
    if (!base)
        return error_nomem(err, "an event loop");
    buf_init(&q.answer, MAX_ANSWER);
    lace_status status = http_call_start(base, &target, &request, &handler, &call, err);
    if (status == LACE_OK) {
        event_base_dispatch(base);
        status = read_answer(&target, &q, out, err);
    }
    buf_deinit(&q.answer);
    event_base_free(base);
    return status;
}
