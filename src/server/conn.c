/*
 * Connections: bytes in, requests out, and the deadlines that keep slow peers from holding on.
 *
 *   WAIT_REQUEST --first byte--> WAIT_HEAD --> WAIT_BODY --> a call is active --+
 *        ^                                                                       |
 *        +------------------- answered, and the connection is kept --------------+
 *
 * While a call is active nothing more is parsed, but the socket stays watched, so that a client
 * that goes away is noticed at once.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <assert.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/core.h"
#include "server/tls.h"

enum {
    HANDSHAKE_S = 10,       /* for TLS to be up */
    HEAD_S = 10,            /* for a head, from its first byte */
    BODY_S = 25,            /* for a body */
    IDLE_S = 300,           /* between requests */
    LINGER_S = 2,           /* reading on after a refusal */
    STALL_S = 20,           /* with output that the client does not take */
    MAX_AHEAD = 64 << 10,   /* bytes that a client may send before its turn */
    MAX_OUTPUT = 512 << 10, /* bytes of a stream that wait for a slow reader */
    LARGE_BODY = 64 << 10,  /* bytes; and how many such bodies are in memory at a time: */
    MAX_LARGE = 64,
    SOCKET_OUTPUT = 128 << 10, /* and in the system's buffer */
};

static const char *reason_of(int status)
{
    /* clang-format off */
    static const struct { int status; const char *reason; } rows[] = {
        {200, "OK"}, {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"},
        {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"},
        {408, "Request Timeout"}, {413, "Content Too Large"}, {414, "URI Too Long"},
        {415, "Unsupported Media Type"}, {417, "Expectation Failed"}, {421, "Misdirected Request"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"},
        {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return rows[i].reason;
    return "Unknown";
}

/* ---- Output ---------------------------------------------------------------------------------- */

static void wait_for(conn *c, conn_wait wait, uint64_t seconds)
{
    c->wait = wait;
    c->deadline_ns = seconds ? clock_ns() + clock_seconds(seconds) : 0;
}

void conn_write(conn *c, const void *data, size_t n)
{
    struct evbuffer *output = bufferevent_get_output(c->bev);
    if (evbuffer_add(output, data, n) != 0) {
        c->closes = true; /* what the client got is not the whole */
        return;
    }
    if (!c->output_since_ns)
        c->output_since_ns = clock_ns();
}

void conn_answer(conn *c, int status, const char *type, const char *extra_headers, const void *data,
                 size_t n, bool keeps_alive, bool is_head)
{
    char head[2048];
    int n_head = snprintf(head, sizeof head,
                          "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                          "X-Content-Type-Options: nosniff\r\n%s%s%s\r\n",
                          status, reason_of(status), type, n, extra_headers ? extra_headers : "",
                          c->cors, keeps_alive ? "" : "Connection: close\r\n");
    assert(n_head > 0 && (size_t)n_head < sizeof head);
    conn_write(c, head, (size_t)n_head);
    if (n && !is_head)
        conn_write(c, data, n);
}

/*
 * Before there is a call: refuse, in the form of the path's family, and read on for a while so that
 * the client sees the answer. `extra` are headers, or NULL.
 */
static void refuse_with(conn *c, int status, const char *reason, const char *extra)
{
    json_out body;
    json_out_init(&body, 4096);
    text path = c->parser ? http_parser_path(c->parser) : (text){0};
    errors_write(&body, errors_style_of(path), status, NULL,
                 status == 401 ? "invalid_api_key" : NULL, reason);
    bool is_head = c->parser && text_is(c->parser->method, "HEAD");
    conn_answer(c, status, "application/json", extra, body.b.data, body.b.size, false, is_head);
    metrics_count_status(&c->s->metrics, status);
    log_refusal(c, status, reason);
    json_out_deinit(&body);
    c->closes = c->lingers = true;
    wait_for(c, WAIT_LINGER, LINGER_S);
}

static void refuse(conn *c, int status, const char *reason)
{
    refuse_with(c, status, reason,
                status == 401                    ? "WWW-Authenticate: Bearer\r\n"
                : status == 429 || status == 503 ? "Retry-After: 1\r\n"
                                                 : NULL);
}

static void refuse_method(conn *c, const char *allow)
{
    char extra[64], reason[80];
    snprintf(extra, sizeof extra, "Allow: %s\r\n", allow);
    snprintf(reason, sizeof reason, "this path does not have this method; it has %s", allow);
    refuse_with(c, 405, reason, extra);
}

/* ---- Life ------------------------------------------------------------------------------------ */

void parser_free(server *s, http_parser *p)
{
    if (!p)
        return;
    s->n_large -= p->is_counted;
    s->has_freed_large = s->has_freed_large || p->is_counted;
    http_parser_deinit(p);
    mem_free(p);
}

static void free_parser(conn *c)
{
    parser_free(c->s, c->parser);
    c->parser = NULL;
}

void conn_close(conn *c)
{
    server *s = c->s;
    if (c->active) {
        call *active = c->active;
        c->active = NULL;
        call_abandon(active);
    }
    free_parser(c);
    *(c->prev ? &c->prev->next : &s->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (s->n_conns-- == s->options.max_connections)
        server_accept_again(s);
    bufferevent_free(c->bev);
    mem_free(c);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    conn *c = arg;
    c->output_since_ns = 0;
    if (!c->closes)
        return;
    if (!c->lingers)
        return conn_close(c);
    if (!c->s->tls)
        shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    conn *c = arg;
    if (what & BEV_EVENT_CONNECTED) {
        if (c->wait == WAIT_HANDSHAKE)
            wait_for(c, WAIT_REQUEST, IDLE_S);
        return;
    }
    bool is_partial = c->parser && !http_parser_is_idle(c->parser) && !c->closes &&
                      c->parser->state != HTTP_HEAD_DONE;
    if ((what & BEV_EVENT_EOF) && is_partial) {
        refuse(c, 400, "the request ends too early");
        c->lingers = false; /* nothing more will come */
        return;
    }
    if ((what & BEV_EVENT_EOF) && c->closes && evbuffer_get_length(bufferevent_get_output(bev)))
        return; /* a half-closed client still gets its answer */
    conn_close(c);
}

/* ---- Input ----------------------------------------------------------------------------------- */

/* A page of another origin, which was let in by name, may read the answer. */
static void set_cors(conn *c)
{
    text origin = http_parser_header(c->parser, "origin");
    c->cors[0] = 0;
    if (origin.data && origin.size <= 256 && access_allows_origin(c->s, origin))
        snprintf(c->cors, sizeof c->cors, "Access-Control-Allow-Origin: %.*s\r\nVary: Origin\r\n",
                 (int)origin.size, origin.data);
}

/* A browser asks before it lets such a page send more than a form could. */
static void answer_preflight(conn *c)
{
    text wanted = http_parser_header(c->parser, "access-control-request-headers");
    char extra[1024];
    snprintf(extra, sizeof extra,
             "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Max-Age: 600\r\n"
             "Access-Control-Allow-Headers: %.*s\r\n",
             wanted.size <= 512 ? (int)wanted.size : 0, wanted.data ? wanted.data : "");
    conn_answer(c, 204, "text/plain", extra, "", 0, c->parser->keeps_alive, false);
    metrics_count_status(&c->s->metrics, 204);
    bool keeps_alive = c->parser->keeps_alive;
    free_parser(c);
    conn_call_done(c, keeps_alive);
}

/* The head is complete: may this be served, and by whom? */
static void on_head(conn *c)
{
    http_parser *p = c->parser;
    const char *reason = "", *allow = NULL;
    set_cors(c);
    const route *r = route_find(p->method, p->path, &allow);
    int status = access_check(c->s, p, r, &reason);
    if (status)
        return refuse(c, status, reason);
    if (text_is(p->method, "OPTIONS") && c->cors[0] && !p->is_chunked && !p->length)
        return answer_preflight(c);
    if (!r && allow)
        return refuse_method(c, allow);
    if (!r)
        return refuse(c, 404, route_missing(p->path));
    bool is_post = text_is(p->method, "POST");
    if (http_parser_header(p, "content-encoding").data)
        return refuse(c, 415, "Content-Encoding is not supported");
    if (is_post && !access_is_json(http_parser_header(p, "content-type"), r->errors))
        return refuse(c, 415, "expected Content-Type: application/json");
    if ((r->flags & ROUTE_GENERATES) && server_is_draining(c->s))
        return refuse(c, 503, "the server is shutting down");
    if ((r->flags & ROUTE_GENERATES) && !(r->flags & ROUTE_EMBEDS) && c->s->info.is_encoder)
        return refuse(c, 400, "the model is an encoder: it gives embeddings and writes no text");
    if ((r->flags & ROUTE_GENERATES) && server_queue_is_full(c->s))
        return refuse(c, 429, "too many requests are waiting; try again later");
    p->is_counted = p->is_chunked || p->length > LARGE_BODY;
    if (p->is_counted && c->s->n_large == MAX_LARGE) {
        p->is_counted = false;
        return refuse(c, 503, "too many large requests are being read; try again later");
    }
    c->s->n_large += p->is_counted;
    if (p->expects_continue && (p->is_chunked || p->length))
        conn_write(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    http_parser_read_body(p);
    if (p->state != HTTP_DONE && p->state != HTTP_BAD)
        wait_for(c, WAIT_BODY, BODY_S);
}

static void start_call(conn *c)
{
    const char *allow;
    const route *r = route_find(c->parser->method, c->parser->path, &allow);
    call *made = call_create(c, r);
    if (!made)
        return refuse(c, 503, "out of memory");
    wait_for(c, WAIT_NOTHING, 0);
    if (r->flags & ROUTE_ON_LOOP) {
        call_run(made);
        call_dispatch(made);
    } else {
        bool embeds = !c->s->router && (r->flags & ROUTE_EMBEDS);
        bool is_large = made->parser->body.size > LARGE_BODY;
        made->is_working = true;
        c->s->n_jobs += embeds;
        workers_push(embeds     ? c->s->embedding
                     : is_large ? c->s->slow_workers
                                : c->s->workers,
                     made);
    }
}

/* A request that is none, or whose body is too large: then it says what would have been small enough. */
static void refuse_bad(conn *c)
{
    const http_parser *p = c->parser;
    char reason[160];
    uint64_t most = c->s->options.max_body;
    if (p->status == 413 && p->length > most && !p->is_chunked)
        snprintf(reason, sizeof reason,
                 "the body has %" PRIu64 " bytes, and this server takes %" PRIu64
                 " at most (--max-body)",
                 p->length, most);
    else if (p->status == 413)
        snprintf(reason, sizeof reason,
                 "the body has more than the %" PRIu64 " bytes that this server takes (--max-body)",
                 most);
    else
        snprintf(reason, sizeof reason, "%s", p->reason);
    refuse(c, p->status, reason);
}

static void feed_parser(conn *c, struct evbuffer *input)
{
    http_parser *p = c->parser;
    size_t n = evbuffer_get_contiguous_space(input);
    const char *data = (const char *)evbuffer_pullup(input, (ssize_t)n);
    evbuffer_drain(input, http_parser_feed(p, data, n));
    if (p->state == HTTP_HEAD_DONE)
        on_head(c);
    if (c->closes || !c->parser)
        return;
    if (p->state == HTTP_BAD)
        refuse_bad(c);
    else if (p->state == HTTP_DONE)
        start_call(c);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    conn *c = arg;
    struct evbuffer *input = bufferevent_get_input(bev);
    while (evbuffer_get_length(input) && !c->active && !c->closes) {
        if (!c->parser) {
            c->parser = mem_alloc(sizeof *c->parser);
            if (!c->parser)
                return conn_close(c);
            http_parser_init(c->parser, c->s->options.max_body);
            wait_for(c, WAIT_HEAD, HEAD_S);
        }
        feed_parser(c, input);
    }
    if (c->closes)
        evbuffer_drain(input, evbuffer_get_length(input));
    else if (evbuffer_get_length(input) >= MAX_AHEAD)
        conn_close(c); /* nothing more could be read, not even that the client leaves */
}

void conn_call_done(conn *c, bool keeps_alive)
{
    c->active = NULL;
    if (!keeps_alive || c->closes) {
        c->closes = true;
        wait_for(c, WAIT_LINGER, LINGER_S + STALL_S);
        /* Nothing is left to write: closed from the loop, because a caller may still look at it. */
        if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
            bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
        return;
    }
    wait_for(c, WAIT_REQUEST, IDLE_S);
    /* A request that came early is read from the loop, not from within this one. */
    if (evbuffer_get_length(bufferevent_get_input(c->bev)))
        bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
}

static void name_client(conn *c, const struct sockaddr *from)
{
    const void *address = NULL;
    if (from->sa_family == AF_INET)
        address = &((const struct sockaddr_in *)from)->sin_addr;
    else if (from->sa_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)from)->sin6_addr;
    if (!address || !inet_ntop(from->sa_family, address, c->client, sizeof c->client))
        snprintf(c->client, sizeof c->client, "unix");
}

void conn_accept(server *s, evutil_socket_t fd, const struct sockaddr *from)
{
    conn *c = mem_calloc(1, sizeof *c);
    int on = 1, size = SOCKET_OUTPUT;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (c)
        c->bev = s->tls ? tls_accept(s->base, fd, s->tls)
                        : bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c || !c->bev) {
        mem_free(c);
        evutil_closesocket(fd);
        return;
    }
    c->s = s;
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    name_client(c, from);
    if (s->tls)
        wait_for(c, WAIT_HANDSHAKE, HANDSHAKE_S);
    else
        wait_for(c, WAIT_REQUEST, IDLE_S);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, MAX_AHEAD);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static void on_deadline(conn *c)
{
    if (c->wait == WAIT_BODY)
        refuse(c, 408, "the body took too long to arrive");
    else
        conn_close(c);
}

void conn_tick(server *s, uint64_t now)
{
    conn *next;
    for (conn *c = s->conns; c; c = next) {
        next = c->next;
        size_t n_output = evbuffer_get_length(bufferevent_get_output(c->bev));
        bool is_stalled = c->output_since_ns && now - c->output_since_ns > clock_seconds(STALL_S);
        /* A stream that is read far slower than the model writes, or not at all. */
        bool is_behind = n_output > MAX_OUTPUT && c->active && call_is_streaming(c->active);
        if (is_behind || (n_output && is_stalled)) {
            s->metrics.n_slow_readers++;
            conn_close(c);
        } else if (c->deadline_ns && now > c->deadline_ns) {
            on_deadline(c);
        }
    }
}
