/*
 * A request on its way through a child: sent over its socket in a head of our own, so that nothing of
 * what a client wrote but the body, the path and its key reaches the child; and the answer, which is
 * read in full or as a stream and sent on as if it were made here.
 */
#define _GNU_SOURCE
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/router.h"

enum {
    MAX_HEAD = 64 << 10,
    MAX_CHUNK_LINE = 64,
    MAX_PIECE = 64 << 10, /* bytes sent on at a time */
};
static const uint64_t MAX_ANSWER = UINT64_C(512) << 20;

void forward_close(forward *f)
{
    if (f->bev)
        bufferevent_free(f->bev);
    f->bev = NULL;
}

/* ---- How it ends ----------------------------------------------------------------------------- */

/* The answer is complete: of a stream, or c->body with a status. */
static void complete(forward *f)
{
    call *c = f->c;
    int status = f->status;
    if (f->is_chunked) {
        call_end(c);
        router_cancel(c);
        return call_finish(c);
    }
    char type[sizeof f->type];
    memcpy(type, f->type, sizeof type);
    c->outcome = OUTCOME_REPLY;
    c->status = status;
    c->type = type;
    c->extra_headers = status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL;
    router_cancel(c);
    call_send_reply(c);
}

/* The child has ended, or says what no server says. If nothing was sent on, once more. */
static void fail(forward *f, const char *why)
{
    call *c = f->c;
    bool may_try_again = !c->is_streaming && !f->was_cut && !server_is_draining(c->s);
    forward_close(f);
    router_leave(f);
    if (!may_try_again) {
        char message[ROUTER_MAX_LINE];
        snprintf(message, sizeof message, "the process of model %.100s %s", f->model->entry->name,
                 why);
        return call_end_with_error(c, 503, "model_failed", message);
    }
    f->was_cut = true;
    f->has_head = f->in_chunk = f->is_chunked = false;
    buf_clear(&c->body.b);
    router_wait(f);
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* The value of a header of a child's answer; data is NULL if it is absent. */
static text find_header(text head, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = head.data, *end = head.data + head.size; at < end;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        size_t size = line_end ? (size_t)(line_end - at) : (size_t)(end - at);
        if (size > n + 1 && strncasecmp(at, name, n) == 0 && at[n] == ':') {
            const char *value = at + n + 1;
            while (value < at + size && *value == ' ')
                value++;
            return (text){value, (size_t)(at + size - value)};
        }
        at += size + 2;
    }
    return (text){0};
}

/* The head is there: what comes behind it? False: it cannot be used. */
static bool read_head(forward *f, text head)
{
    text type = find_header(head, "Content-Type"), length = find_header(head, "Content-Length");
    text coding = find_header(head, "Transfer-Encoding");
    char digits[24] = "";
    if (sscanf(head.data, "HTTP/1.1 %3d ", &f->status) != 1 || f->status < 200 || f->status > 599 ||
        type.size >= sizeof f->type || length.size >= sizeof digits)
        return false;
    snprintf(f->type, sizeof f->type, "%.*s", (int)type.size, type.data ? type.data : "");
    f->is_chunked = coding.data && http_name_is(coding, "chunked");
    f->has_head = true;
    if (f->is_chunked) {
        call_begin_stream(f->c, f->type);
        return f->status == 200;
    }
    memcpy(digits, length.data ? length.data : "", length.size);
    f->n_left = strtoull(digits, NULL, 10);
    return length.size > 0 && f->n_left <= MAX_ANSWER;
}

/* Bytes of the body that are there, at most n, to the client or into c->body. */
static bool take(forward *f, struct evbuffer *input, uint64_t n)
{
    json_out piece;
    bool ok = true;
    while (ok && n > 0 && evbuffer_get_length(input) > 0) {
        size_t now = evbuffer_get_length(input) < n ? evbuffer_get_length(input) : (size_t)n;
        now = now < MAX_PIECE ? now : MAX_PIECE;
        const void *data = evbuffer_pullup(input, (ssize_t)now);
        if (f->is_chunked) {
            json_out_init(&piece, MAX_PIECE);
            json_out_bytes(&piece, data, now);
            ok = data && !piece.has_failed;
            if (ok)
                call_write(f->c, &piece);
            json_out_deinit(&piece);
        } else {
            ok = data && buf_append(&f->c->body.b, data, now) == LACE_OK;
        }
        evbuffer_drain(input, now);
        n -= now;
        f->n_left -= now;
    }
    return ok;
}

typedef enum step_result { STEP_MORE, STEP_AGAIN, STEP_DONE, STEP_BAD } step_result;

/* The size of a chunk; behind each one's data is an empty line. */
static step_result read_chunk_line(forward *f, struct evbuffer *input)
{
    size_t n;
    char *line = evbuffer_readln(input, &n, EVBUFFER_EOL_CRLF_STRICT), *end;
    if (!line)
        return evbuffer_get_length(input) > MAX_CHUNK_LINE ? STEP_BAD : STEP_MORE;
    step_result result = STEP_AGAIN;
    if (n > 0) {
        f->n_left = strtoull(line, &end, 16);
        if (end == line || *end || f->n_left > MAX_ANSWER)
            result = STEP_BAD;
        else if (f->n_left == 0)
            result = STEP_DONE;
        else
            f->in_chunk = true;
    }
    free(line);
    return result;
}

static step_result read_step(forward *f, struct evbuffer *input)
{
    if (!f->has_head) {
        struct evbuffer_ptr end = evbuffer_search(input, "\r\n\r\n", 4, NULL);
        if (end.pos < 0)
            return evbuffer_get_length(input) > MAX_HEAD ? STEP_BAD : STEP_MORE;
        size_t n = (size_t)end.pos + 4;
        const char *data = (const char *)evbuffer_pullup(input, (ssize_t)n);
        bool ok = data && read_head(f, (text){data, n - 4});
        evbuffer_drain(input, n);
        return ok ? STEP_AGAIN : STEP_BAD;
    }
    if (f->is_chunked && !f->in_chunk)
        return read_chunk_line(f, input);
    if (!take(f, input, f->n_left))
        return STEP_BAD;
    if (f->n_left > 0)
        return STEP_MORE;
    f->in_chunk = false;
    return f->is_chunked ? STEP_AGAIN : STEP_DONE;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    forward *f = arg;
    step_result result;
    do {
        result = read_step(f, bufferevent_get_input(bev));
    } while (result == STEP_AGAIN);
    if (result == STEP_DONE)
        complete(f);
    else if (result == STEP_BAD)
        fail(f, "gave an answer that cannot be read");
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    if (what & BEV_EVENT_CONNECTED)
        return;
    fail(arg, "has ended before its answer was complete");
}

/* ---- The request ----------------------------------------------------------------------------- */

/* A header of the client's that the child has to know. */
static void copy_header(struct evbuffer *out, const http_parser *p, const char *name)
{
    text value = http_parser_header(p, name);
    if (value.data && http_parser_count(p, name) == 1)
        evbuffer_add_printf(out, "%s: %.*s\r\n", name, (int)value.size, value.data);
}

/* A socket that is connected to the child; -1: it does not take it now. */
static int connect_child(const router_model *m)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, m->socket, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void forward_send(forward *f)
{
    const http_parser *p = f->c->parser;
    bool is_post = text_is(p->method, "POST");
    int fd = connect_child(f->model);
    f->bev = fd < 0 ? NULL : bufferevent_socket_new(f->c->s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!f->bev) { /* it has just ended, or has too many connections: at the next tick */
        if (fd >= 0)
            close(fd);
        router_leave(f);
        return router_wait(f);
    }
    bufferevent_setcb(f->bev, on_read, NULL, on_event, f);
    struct evbuffer *out = bufferevent_get_output(f->bev);
    evbuffer_add_printf(out, "%s %.*s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                        is_post ? "POST" : "GET", (int)p->path.size, p->path.data);
    copy_header(out, p, "authorization");
    copy_header(out, p, "x-api-key");
    if (is_post)
        evbuffer_add_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                            p->body.size);
    evbuffer_add(out, "\r\n", 2);
    if (p->body.size)
        evbuffer_add(out, p->body.data, p->body.size);
    bufferevent_enable(f->bev, EV_READ | EV_WRITE);
}
