/* Requests of HTTP/1.1 and 1.0, read strictly. */
#include "server/http_parse.h"

#include <string.h>

#include "base/mem.h"

void http_parser_init(http_parser *p, size_t max_body)
{
    memset(p, 0, sizeof *p);
    buf_init(&p->head, HTTP_MAX_HEAD);
    buf_init(&p->body, max_body);
}

void http_parser_deinit(http_parser *p)
{
    buf_deinit(&p->head);
    buf_deinit(&p->body);
}

bool http_parser_is_idle(const http_parser *p)
{
    return p->state == HTTP_HEAD && p->head.size == 0;
}

text http_parser_path(const http_parser *p)
{
    const char *data = p->head.data;
    size_t n = p->head.size, begin = 0;
    if (p->path.data)
        return p->path;
    while (begin < n && data[begin] != ' ' && data[begin] != '\r')
        begin++;
    if (begin == n || data[begin] != ' ')
        return (text){0};
    size_t end = ++begin;
    while (end < n && data[end] > ' ' && data[end] != '?')
        end++;
    return (text){data + begin, end - begin};
}

static void fail(http_parser *p, int status, const char *reason)
{
    p->state = HTTP_BAD;
    p->status = status;
    p->reason = reason;
}

/* ---- Characters ------------------------------------------------------------------------------ */

/* tchar of RFC 9110: what methods and names of headers are made of. */
static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(text t)
{
    for (size_t i = 0; i < t.size; i++)
        if (!is_token_char(t.data[i]))
            return false;
    return t.size > 0;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool http_name_is(text name, const char *expected)
{
    if (name.size != strlen(expected))
        return false;
    for (size_t i = 0; i < name.size; i++)
        if (lower(name.data[i]) != lower(expected[i]))
            return false;
    return true;
}

static text trim(text t)
{
    while (t.size && (t.data[0] == ' ' || t.data[0] == '\t'))
        t.data++, t.size--;
    while (t.size && (t.data[t.size - 1] == ' ' || t.data[t.size - 1] == '\t'))
        t.size--;
    return t;
}

/* ---- Headers --------------------------------------------------------------------------------- */

size_t http_parser_count(const http_parser *p, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_headers; i++)
        n += http_name_is(p->headers[i].name, name);
    return n;
}

text http_parser_header(const http_parser *p, const char *name)
{
    for (size_t i = 0; i < p->n_headers; i++)
        if (http_name_is(p->headers[i].name, name))
            return p->headers[i].value;
    return (text){NULL, 0};
}

/* Whether one of the elements of a comma-separated list is this word. */
static bool lists_word(text list, const char *word)
{
    while (list.size) {
        const char *comma = memchr(list.data, ',', list.size);
        size_t n = comma ? (size_t)(comma - list.data) : list.size;
        if (http_name_is(trim((text){list.data, n}), word))
            return true;
        n += comma != NULL;
        list.data += n;
        list.size -= n;
    }
    return false;
}

/* Plain digits that fit; nothing else. */
static bool parse_length(text t, uint64_t *out)
{
    uint64_t n = 0;
    if (t.size == 0 || t.size > 18)
        return false;
    for (size_t i = 0; i < t.size; i++) {
        if (t.data[i] < '0' || t.data[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(t.data[i] - '0');
    }
    *out = n;
    return true;
}

/* How long the body is, by the only two ways there are. */
static void read_framing(http_parser *p)
{
    size_t n_lengths = http_parser_count(p, "content-length");
    size_t n_codings = http_parser_count(p, "transfer-encoding");
    if (n_lengths && n_codings)
        return fail(p, 400, "the request has both Content-Length and Transfer-Encoding");
    if (n_lengths > 1 || n_codings > 1)
        return fail(p, 400, "the body's length is given twice");
    if (n_codings) {
        if (p->is_1_0)
            return fail(p, 400, "HTTP/1.0 has no Transfer-Encoding");
        if (!http_name_is(http_parser_header(p, "transfer-encoding"), "chunked"))
            return fail(p, 501, "Transfer-Encoding is not chunked");
        p->is_chunked = true;
    }
    if (n_lengths) {
        if (!parse_length(http_parser_header(p, "content-length"), &p->length))
            return fail(p, 400, "Content-Length is not a plain number");
        p->has_length = true;
    }
}

/* host[:port]: no path, no user, nothing that a name or an address is not made of. */
static bool is_host(text t)
{
    for (size_t i = 0; i < t.size; i++) {
        char c = t.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c && strchr("-._:[]", c))))
            return false;
    }
    return t.size > 0;
}

static void read_headers(http_parser *p)
{
    size_t n_hosts = http_parser_count(p, "host");
    if (n_hosts > 1 || (n_hosts == 0 && !p->is_1_0))
        return fail(p, 400,
                    n_hosts ? "there is more than one Host header" : "the Host header is missing");
    if (n_hosts && !is_host(http_parser_header(p, "host")))
        return fail(p, 400, "the Host header is not a host name");
    read_framing(p);
    if (p->state == HTTP_BAD)
        return;
    text connection = http_parser_header(p, "connection");
    p->keeps_alive = !p->is_1_0 && !(connection.data && lists_word(connection, "close"));
    text expect = http_parser_header(p, "expect");
    if (expect.data && !http_name_is(expect, "100-continue"))
        return fail(p, 417, "Expect is not 100-continue");
    p->expects_continue = expect.data && !p->is_1_0;
    p->state = HTTP_HEAD_DONE;
}

static void read_header_line(http_parser *p, text line)
{
    const char *colon = memchr(line.data, ':', line.size);
    text name = {line.data, colon ? (size_t)(colon - line.data) : 0};
    if (!is_token(name)) /* a folded line begins with white space and ends here, too */
        return fail(p, 400, "a header line is malformed");
    if (p->n_headers == HTTP_MAX_HEADERS)
        return fail(p, 431, "too many headers");
    text value = {colon + 1, line.size - name.size - 1};
    p->headers[p->n_headers++] = (http_header){name, trim(value)};
}

/* ---- The request line ------------------------------------------------------------------------ */

static void read_version(http_parser *p, text version)
{
    if (text_is(version, "HTTP/1.1"))
        return;
    p->is_1_0 = text_is(version, "HTTP/1.0");
    if (p->is_1_0)
        return;
    bool is_http = version.size == 8 && memcmp(version.data, "HTTP/", 5) == 0 &&
                   version.data[6] == '.' && version.data[5] >= '0' && version.data[5] <= '9' &&
                   version.data[7] >= '0' && version.data[7] <= '9';
    fail(p, is_http ? 505 : 400,
         is_http ? "the request is not HTTP/1.1" : "the request line is malformed");
}

static void read_request_line(http_parser *p, text line)
{
    const char *end = line.data + line.size;
    const char *first = memchr(line.data, ' ', line.size);
    const char *second = first ? memchr(first + 1, ' ', (size_t)(end - first - 1)) : NULL;
    if (!second)
        return fail(p, 400, "the request line is malformed");
    p->method = (text){line.data, (size_t)(first - line.data)};
    p->target = (text){first + 1, (size_t)(second - first - 1)};
    if (!is_token(p->method) || p->method.size > 32)
        return fail(p, 400, "the method is malformed");
    read_version(p, (text){second + 1, (size_t)(end - second - 1)});
    if (p->state == HTTP_BAD)
        return;
    for (size_t i = 0; i < p->target.size; i++)
        if (p->target.data[i] <= ' ' || p->target.data[i] > '~' || p->target.data[i] == '#')
            return fail(p, 400, "the request's target is malformed");
    bool is_star = text_is(p->target, "*") && text_is(p->method, "OPTIONS");
    if (p->target.size == 0 || (p->target.data[0] != '/' && !is_star))
        return fail(p, 400, "the request's target is not a path");
    const char *question = memchr(p->target.data, '?', p->target.size);
    size_t n_path = question ? (size_t)(question - p->target.data) : p->target.size;
    p->path = (text){p->target.data, n_path};
    p->query = (text){p->target.data + n_path + (question != NULL),
                      p->target.size - n_path - (question != NULL)};
}

/* The head is complete in p->head, its lines ended by CRLF. */
static void read_head(http_parser *p)
{
    const char *at = p->head.data, *end = at + p->head.size - 2;
    bool is_first = true;
    while (at < end && p->state == HTTP_HEAD) {
        const char *stop = memchr(at, '\r', (size_t)(end - at) + 1);
        text line = {at, (size_t)(stop - at)};
        if (is_first)
            read_request_line(p, line);
        else
            read_header_line(p, line);
        is_first = false;
        at = stop + 2;
    }
    if (p->state == HTTP_HEAD)
        read_headers(p);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* One byte of the head. Lines are checked as they grow, so that nothing is kept in vain. */
static void feed_head(http_parser *p, char c)
{
    bool after_cr = p->head.size && p->head.data[p->head.size - 1] == '\r';
    bool is_request_line = p->head.size == p->n_line;
    if (after_cr != (c == '\n'))
        return fail(p, 400, "a line does not end in CRLF");
    if ((unsigned char)c < ' ' && c != '\r' && c != '\n' && c != '\t')
        return fail(p, 400, "the head has a control character");
    if (c == 0x7F)
        return fail(p, 400, "the head has a control character");
    if (p->n_line >= HTTP_MAX_LINE)
        return fail(p, is_request_line ? 414 : 431, "a line of the head is too long");
    if (buf_append(&p->head, &c, 1) != LACE_OK)
        return fail(p, 431, "the head is too long");
    p->n_line++;
    if (c != '\n')
        return;
    bool is_empty = p->n_line == 2;
    p->n_line = 0;
    if (!is_empty)
        return;
    if (p->head.size == 2)
        return fail(p, 400, "the request begins with an empty line");
    read_head(p);
}

/* Whole stretches without line ends or control characters go in at once. */
static size_t feed_head_run(http_parser *p, const char *data, size_t n)
{
    size_t run = 0;
    while (run < n && (unsigned char)data[run] >= ' ' && data[run] != 0x7F)
        run++;
    bool after_cr = p->head.size && p->head.data[p->head.size - 1] == '\r';
    if (run == 0 || after_cr || p->n_line + run >= HTTP_MAX_LINE ||
        buf_append(&p->head, data, run) != LACE_OK) {
        feed_head(p, data[0]);
        return 1;
    }
    p->n_line += run;
    return run;
}

void http_parser_read_body(http_parser *p)
{
    if (p->is_chunked)
        p->state = HTTP_CHUNK_SIZE;
    else if (p->length > p->body.max)
        fail(p, 413, "the body is too large");
    else
        p->state = p->length ? HTTP_BODY : HTTP_DONE;
    p->n_line = 0;
}

static size_t feed_data(http_parser *p, const char *data, size_t n, http_state next)
{
    size_t take = p->length < n ? (size_t)p->length : n;
    lace_status status = buf_append(&p->body, data, take);
    if (status != LACE_OK) {
        fail(p, status == LACE_E_LIMIT ? 413 : 503, "the body is too large");
        return 0;
    }
    p->length -= take;
    if (p->length == 0)
        p->state = next;
    return take;
}

/* "1A" or "1A;extension": at most 15 hex digits, then nothing or a semicolon. */
static void read_chunk_size(http_parser *p)
{
    size_t n = p->n_line - 2, i = 0;
    uint64_t size = 0;
    for (; i < n && i < 16; i++) {
        char c = lower(p->chunk_line[i]);
        if (c >= '0' && c <= '9')
            size = size << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            size = size << 4 | (uint64_t)(c - 'a' + 10);
        else
            break;
    }
    if (i == 0 || i > 15 || (i < n && p->chunk_line[i] != ';'))
        return fail(p, 400, "a chunk's size is malformed");
    if (size > p->body.max - p->body.size)
        return fail(p, 413, "the body is too large");
    p->length = size;
    p->n_line = 0;
    p->n_trailer = 0;
    p->state = size ? HTTP_CHUNK_DATA : HTTP_TRAILER;
}

/* A byte of a line outside of the head; true when the line is complete. */
static bool feed_line(http_parser *p, char c, const char *reason)
{
    bool after_cr = p->n_line && p->chunk_line[p->n_line - 1] == '\r';
    bool is_control = (unsigned char)c < ' ' && c != '\r' && c != '\n' && c != '\t';
    if (p->n_line == HTTP_MAX_CHUNK_LINE || after_cr != (c == '\n') || is_control) {
        fail(p, 400, reason);
        return false;
    }
    p->chunk_line[p->n_line++] = c;
    return c == '\n';
}

static size_t feed_framing(http_parser *p, char c)
{
    if (p->state == HTTP_CHUNK_SIZE) {
        if (feed_line(p, c, "a chunk's size is malformed"))
            read_chunk_size(p);
    } else if (p->state == HTTP_CHUNK_END) {
        if (c != "\r\n"[p->n_line]) {
            fail(p, 400, "a chunk is longer than its size");
        } else if (++p->n_line == 2) {
            p->n_line = 0;
            p->state = HTTP_CHUNK_SIZE;
        }
    } else { /* HTTP_TRAILER: lines are read and ignored */
        if (++p->n_trailer > HTTP_MAX_TRAILER)
            fail(p, 431, "the trailer is too long");
        else if (feed_line(p, c, "the trailer is malformed")) {
            if (p->n_line == 2)
                p->state = HTTP_DONE;
            p->n_line = 0;
        }
    }
    return 1;
}

size_t http_parser_feed(http_parser *p, const char *data, size_t n)
{
    size_t at = 0;
    while (at < n) {
        switch (p->state) {
        case HTTP_HEAD:
            at += feed_head_run(p, data + at, n - at);
            break;
        case HTTP_BODY:
            at += feed_data(p, data + at, n - at, HTTP_DONE);
            break;
        case HTTP_CHUNK_DATA:
            at += feed_data(p, data + at, n - at, HTTP_CHUNK_END);
            break;
        case HTTP_CHUNK_SIZE:
        case HTTP_CHUNK_END:
        case HTTP_TRAILER:
            at += feed_framing(p, data[at]);
            break;
        case HTTP_HEAD_DONE:
        case HTTP_DONE:
        case HTTP_BAD:
            return at;
        }
    }
    return at;
}
