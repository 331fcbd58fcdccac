/* HTTP/1.1 as a client sees it: status line, headers, and a body by length, in chunks, or to the
 * end. */
#define _POSIX_C_SOURCE 200809L
#include "cli/bench_serve_http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

enum { MAX_LINE = 16 << 10, MAX_EVENT = 1 << 20 };

lace_status http_target_init(http_target *t, const char *url, lace_error *err)
{
    static const char scheme[] = "http://";
    char whole[sizeof t->url];
    *t = (http_target){.n_address = 0};
    const char *port_at = strrchr(url, ':');
    if (!strstr(url, "://") && port_at && port_at[1] >= '0' && port_at[1] <= '9' &&
        snprintf(whole, sizeof whole, "%s%s", scheme, url) < (int)sizeof whole)
        url = whole;
    if (strncasecmp(url, scheme, strlen(scheme)) != 0)
        return error_set(err, LACE_E_ARG, "%.80s: expected http://HOST:PORT", url);
    const char *from = url + strlen(scheme);
    size_t n_host = strcspn(from, "/");
    size_t n_prefix = strlen(from + n_host);
    while (n_prefix > 0 && from[n_host + n_prefix - 1] == '/')
        n_prefix--;
    if (n_prefix >= 3 && memcmp(from + n_host + n_prefix - 3, "/v1", 3) == 0)
        n_prefix -= 3;
    if (n_host == 0 || n_host >= sizeof t->host - 8 || n_prefix >= sizeof t->prefix ||
        strlen(url) >= sizeof t->url || strpbrk(url, " \t\r\n"))
        return error_set(err, LACE_E_ARG, "%.80s: expected http://HOST:PORT", url);
    memcpy(t->host, from, n_host);
    memcpy(t->prefix, from + n_host, n_prefix);
    memcpy(t->url, url, (size_t)(from - url) + n_host + n_prefix);

    char name[160], port[16] = "80";
    snprintf(name, sizeof name, "%s", t->host);
    char *colon = strrchr(name, ':');
    if (colon && !strchr(colon, ']')) {
        snprintf(port, sizeof port, "%.15s", colon + 1);
        *colon = 0;
    }
    char *bare = name[0] == '[' ? name + 1 : name; /* an IPv6 address stands in brackets */
    bare[strcspn(bare, "]")] = 0;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int failure = getaddrinfo(bare, port, &hints, &found);
    if (failure)
        return error_set(err, LACE_E_ARG, "%.80s: %s", url, gai_strerror(failure));
    memcpy(&t->address, found->ai_addr, found->ai_addrlen);
    t->n_address = found->ai_addrlen;
    freeaddrinfo(found);
    return LACE_OK;
}

/* ---- One call -------------------------------------------------------------------------------- */

typedef enum http_state {
    READ_STATUS,
    READ_HEADERS,
    READ_CHUNK_SIZE,
    READ_CHUNK,
    READ_CHUNK_END,
    READ_TRAILERS,
    READ_LENGTH,
    READ_TO_END,
    READ_NOTHING, /* all is there */
} http_state;

struct http_call {
    struct bufferevent *connection;
    http_handler handler;
    http_state state;
    int status;
    uint64_t n_left; /* of the chunk or the body */
    bool is_chunked, has_length;
};

void http_call_cancel(http_call *c)
{
    if (!c)
        return;
    bufferevent_free(c->connection);
    mem_free(c);
}

static void end(http_call *c, const char *problem)
{
    http_handler handler = c->handler;
    int status = c->status;
    http_call_cancel(c);
    handler.on_end(handler.user, status, problem);
}

static void read_header(http_call *c, const char *line)
{
    const char *colon = strchr(line, ':');
    if (!colon)
        return;
    size_t n = (size_t)(colon - line);
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (n == 14 && strncasecmp(line, "content-length", n) == 0) {
        c->has_length = true;
        c->n_left = strtoull(value, NULL, 10);
    } else if (n == 17 && strncasecmp(line, "transfer-encoding", n) == 0) {
        c->is_chunked = strncasecmp(value, "chunked", 7) == 0;
    }
}

/* One line of the answer, without its end. Returns what is wrong with it, or NULL. */
static const char *take_line(http_call *c, const char *line)
{
    switch (c->state) {
    case READ_STATUS:
        if (strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12)
            return "the answer is not HTTP";
        c->status = atoi(line + 9);
        c->state = READ_HEADERS;
        return NULL;
    case READ_HEADERS:
        if (*line)
            read_header(c, line);
        else if (c->status == 100) /* "go on": the answer itself follows */
            c->state = READ_STATUS;
        else if (c->is_chunked)
            c->state = READ_CHUNK_SIZE;
        else if (c->has_length)
            c->state = c->n_left ? READ_LENGTH : READ_NOTHING;
        else
            c->state = READ_TO_END;
        return NULL;
    case READ_CHUNK_SIZE: {
        char *rest;
        c->n_left = strtoull(line, &rest, 16);
        if (rest == line)
            return "a chunk without a size";
        c->state = c->n_left ? READ_CHUNK : READ_TRAILERS;
        return NULL;
    }
    case READ_CHUNK_END:
        c->state = READ_CHUNK_SIZE;
        return *line ? "a chunk longer than its size" : NULL;
    default: /* READ_TRAILERS */
        if (!*line)
            c->state = READ_NOTHING;
        return NULL;
    }
}

/* Bytes of the body that are there. */
static void take_body(http_call *c, struct evbuffer *in)
{
    char block[16 << 10];
    size_t n = evbuffer_get_length(in);
    if (c->state != READ_TO_END && n > c->n_left)
        n = c->n_left;
    int n_read = evbuffer_remove(in, block, n < sizeof block ? n : sizeof block);
    if (n_read <= 0)
        return;
    if (c->state != READ_TO_END) {
        c->n_left -= (uint64_t)n_read;
        if (c->n_left == 0)
            c->state = c->state == READ_CHUNK ? READ_CHUNK_END : READ_NOTHING;
    }
    c->handler.on_body(c->handler.user, block, (size_t)n_read);
}

static void on_read(struct bufferevent *connection, void *arg)
{
    http_call *c = arg;
    struct evbuffer *in = bufferevent_get_input(connection);
    while (c->state != READ_NOTHING && evbuffer_get_length(in) > 0) {
        if (c->state == READ_CHUNK || c->state == READ_LENGTH || c->state == READ_TO_END) {
            take_body(c, in);
            continue;
        }
        char *line = evbuffer_readln(in, NULL, EVBUFFER_EOL_CRLF);
        if (!line && evbuffer_get_length(in) < MAX_LINE)
            return; /* the rest of it will come */
        const char *problem = line ? take_line(c, line) : "a line of more than 16 KiB";
        free(line);
        if (problem) {
            end(c, problem);
            return;
        }
    }
    if (c->state == READ_NOTHING)
        end(c, NULL);
}

static void on_event(struct bufferevent *connection, short what, void *arg)
{
    http_call *c = arg;
    if (what & BEV_EVENT_CONNECTED)
        return;
    if (what & BEV_EVENT_TIMEOUT)
        end(c, "timeout");
    else if ((what & BEV_EVENT_EOF) && c->state == READ_TO_END)
        end(c, NULL);
    else if (what & BEV_EVENT_EOF)
        end(c, "the server closed the connection");
    else
        end(c, EVUTIL_SOCKET_ERROR() ? evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR())
                                     : "cannot connect"); /* Windows' error may be gone by then */
}

static int write_request(struct evbuffer *out, const http_target *t, const http_request *r)
{
    int n = evbuffer_add_printf(out,
                                "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: lace-bench\r\n"
                                "Accept: */*\r\nConnection: close\r\n",
                                r->body ? "POST" : "GET", t->prefix, r->path, t->host);
    if (n >= 0 && r->key)
        n = evbuffer_add_printf(out, "Authorization: Bearer %s\r\n", r->key);
    if (n >= 0 && r->body)
        n = evbuffer_add_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                                strlen(r->body));
    if (n >= 0)
        n = evbuffer_add(out, "\r\n", 2);
    if (n >= 0 && r->body)
        n = evbuffer_add(out, r->body, strlen(r->body));
    return n;
}

lace_status http_call_start(struct event_base *base, const http_target *t, const http_request *r,
                            const http_handler *handler, http_call **out, lace_error *err)
{
    *out = NULL;
    http_call *c = mem_calloc(1, sizeof *c);
    struct bufferevent *connection = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!c || !connection || write_request(bufferevent_get_output(connection), t, r) < 0)
        goto nomem;
    struct timeval silence = {.tv_sec = r->timeout_s};
    c->connection = connection;
    c->handler = *handler;
    bufferevent_setcb(connection, on_read, NULL, on_event, c);
    bufferevent_set_timeouts(connection, &silence, &silence);
    bufferevent_enable(connection, EV_READ | EV_WRITE);
    if (bufferevent_socket_connect(connection, (const struct sockaddr *)&t->address,
                                   (int)t->n_address) != 0) {
        error_set(err, LACE_E_IO, "%s: cannot connect: %s", t->url,
                  evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
        http_call_cancel(c);
        return LACE_E_IO;
    }
    *out = c;
    return LACE_OK;
nomem:
    if (connection)
        bufferevent_free(connection);
    mem_free(c);
    return error_nomem(err, "a request");
}

/* ---- Server-sent events ---------------------------------------------------------------------- */

void sse_reader_init(sse_reader *s)
{
    buf_init(&s->line, MAX_EVENT);
    buf_init(&s->data, MAX_EVENT);
    s->has_data = false;
}

void sse_reader_deinit(sse_reader *s)
{
    buf_deinit(&s->line);
    buf_deinit(&s->data);
}

/* A whole line: "data: ..." is kept, an empty one ends the event, comments and the rest are not. */
static lace_status
take_event_line(sse_reader *s, void (*fn)(void *user, const char *data, size_t n_bytes), void *user)
{
    const char *line = s->line.data ? s->line.data : "";
    size_t n = s->line.size;
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n == 0) {
        if (s->has_data)
            fn(user, s->data.data ? s->data.data : "", s->data.size);
        buf_clear(&s->data);
        s->has_data = false;
        return LACE_OK;
    }
    if (n < 5 || memcmp(line, "data:", 5) != 0)
        return LACE_OK;
    size_t from = n > 5 && line[5] == ' ' ? 6 : 5;
    if (s->has_data)
        TRY(buf_append(&s->data, "\n", 1));
    s->has_data = true;
    return buf_append(&s->data, line + from, n - from);
}

lace_status sse_reader_feed(sse_reader *s, const char *data, size_t n_bytes,
                            void (*fn)(void *user, const char *data, size_t n_bytes), void *user)
{
    while (n_bytes > 0) {
        const char *newline = memchr(data, '\n', n_bytes);
        size_t n = newline ? (size_t)(newline - data) : n_bytes;
        TRY(buf_append(&s->line, data, n));
        if (!newline)
            return LACE_OK;
        TRY(take_event_line(s, fn, user));
        buf_clear(&s->line);
        data += n + 1;
        n_bytes -= n + 1;
    }
    return LACE_OK;
}
