/* Getting files over HTTP with libcurl: redirects, tokens, ranges, and trying again. */
#define _GNU_SOURCE
#include "hub/http_get.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hub/curl_api.h"

enum {
    MAX_CONNECTIONS = 16,
    MAX_REDIRECTS = 8,
    MAX_URL = 8192,
    MAX_FAILURES = 6,  /* in a row, without a byte that is new */
    MAX_UNREACHED = 1, /* before anybody has answered at all: most likely there is no network */
    CONNECT_S = 20,    /* to be connected */
    SILENCE_S = 30,    /* without a byte */
    POLL_MS = 100,
    FIRST_DELAY_MS = 500,  /* before the first new try; doubled for each further one */
    MOST_DELAY_MS = 20000, /* unless the server asks for more, up to: */
    MOST_ASKED_S = 120,
    BUFFER_BYTES = 256 << 10,
};

/* One request at a time, on one connection. */
typedef struct transfer {
    http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    char url[MAX_URL];
    int n_redirects;
    bool is_running;
    uint64_t not_before_ns; /* to be tried again then */
    uint64_t at, end;       /* bytes of the file that are wanted; at == end: idle */
    bool is_whole;          /* without a range */
    bool has_range;         /* the answer has a Content-Range that fits */
    const char *problem;    /* why the answer is not taken; a literal */
    uint64_t n_new;         /* bytes of this try */
} transfer;

struct http_client {
    const curl_api *curl;
    CURLM *multi;
    transfer transfers[MAX_CONNECTIONS];
    const http_source *from;
    const http_watch *watch;
    part_file *to; /* NULL: into `text` */
    buf *text;
    bool lacks_ranges; /* the server sends whole files only */
    int n_failures;    /* in a row */
    bool is_reached;   /* somebody has answered */
    int delay_ms;      /* before the first new try */
    int status;        /* of the last answer that was none */
    lace_error write_error;
};

/* ---- Life ------------------------------------------------------------------------------------ */

lace_status http_client_create(http_client **out, lace_error *err)
{
    *out = NULL;
    const curl_api *curl;
    TRY(curl_api_open(&curl, err));
    http_client *c = mem_calloc(1, sizeof *c);
    lace_status status = c ? LACE_OK : error_nomem(err, "a download");
    if (c) {
        const char *delay = getenv("LACE_HUB_DELAY_MS"); /* for tests that let much fail */
        c->delay_ms = delay && atoi(delay) > 0 ? atoi(delay) : FIRST_DELAY_MS;
        c->curl = curl;
        c->multi = curl->multi_init();
        status = c->multi ? LACE_OK : error_nomem(err, "a download");
    }
    return GIVE_OR_FREE(status, c, out, http_client_free);
}

static void end_transfer(transfer *t)
{
    const curl_api *curl = t->client ? t->client->curl : NULL;
    if (t->is_running)
        curl->multi_remove(t->client->multi, t->easy);
    t->is_running = false;
    if (t->headers)
        curl->slist_free_all(t->headers);
    t->headers = NULL;
}

void http_client_free(http_client *c)
{
    if (!c)
        return;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        end_transfer(&c->transfers[i]);
        if (c->transfers[i].easy)
            c->curl->easy_cleanup(c->transfers[i].easy);
    }
    if (c->multi)
        c->curl->multi_cleanup(c->multi);
    mem_free(c);
}

/* ---- What an answer brings ------------------------------------------------------------------- */

/* "Content-Range: bytes 100-199/5000": the range that was asked for, of a file of that size? */
static bool fits_range(const transfer *t, const char *value, size_t n)
{
    char line[128], total[32];
    uint64_t first, last;
    snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line - 1), value);
    if (sscanf(line, " bytes %" SCNu64 "-%" SCNu64 "/%31[0-9*]", &first, &last, total) != 3)
        return false;
    bool is_total = strcmp(total, "*") == 0 ||
                    (t->client->to && strtoull(total, NULL, 10) == t->client->to->size);
    return is_total && first == t->at && last == t->end - 1;
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    static const char name[] = "content-range:";
    transfer *t = user;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) {
        t->has_range = false; /* a new answer, behind a proxy's */
        t->client->is_reached = true;
    }
    if (n > sizeof name && strncasecmp(line, name, sizeof name - 1) == 0)
        t->has_range = fits_range(t, line + sizeof name - 1, n - (sizeof name - 1));
    return size * n;
}

static long status_of(const transfer *t)
{
    long status = 0;
    t->client->curl->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* Whether the body of this answer is what was asked for; if not, t->problem says why, or it is an
 * answer whose body does not matter. */
static bool is_wanted(transfer *t)
{
    long status = status_of(t);
    if (t->is_whole)
        return status == 200;
    if (status == 206 && !t->has_range)
        t->problem = "the server sent another part of the file than it was asked for";
    if (status == 200) {
        t->client->lacks_ranges = true;
        t->problem = "the server sends whole files only";
    }
    return status == 206 && t->has_range;
}

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    transfer *t = user;
    http_client *c = t->client;
    n *= size;
    if (!is_wanted(t))
        return t->problem ? 0 : n;
    if (!c->to) {
        if (buf_append(c->text, data, n) != LACE_OK) {
            t->problem = "the answer is too long";
            return 0;
        }
    } else {
        if (n > t->end - t->at) {
            t->problem = "the server sent more bytes than the file has";
            return 0;
        }
        if (part_file_write(c->to, t->at, data, n, &c->write_error) != LACE_OK)
            return 0;
        t->at += n;
    }
    t->n_new += n;
    if (c->to && !t->is_whole)
        c->n_failures = 0; /* these bytes stay, whatever comes */
    return n;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* The length of "https://host:port". */
static size_t origin_of(const char *url)
{
    const char *host = strstr(url, "://");
    return host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : strlen(url);
}

static bool has_same_origin(const char *a, const char *b)
{
    size_t n = origin_of(a);
    return n == origin_of(b) && strncasecmp(a, b, n) == 0;
}

static lace_status add_header(transfer *t, const char *name, const char *value, lace_error *err)
{
    buf line;
    buf_init(&line, MAX_URL);
    lace_status status = buf_printf(&line, "%s%s", name, value);
    struct curl_slist *more =
        status == LACE_OK ? t->client->curl->slist_append(t->headers, line.data) : NULL;
    if (line.data)
        memset(line.data, 0, line.size);
    buf_deinit(&line);
    if (!more)
        return error_nomem(err, "a request");
    t->headers = more;
    return LACE_OK;
}

static void set_options(transfer *t)
{
    const curl_api *curl = t->client->curl;
    const char *authorities = getenv("CURL_CA_BUNDLE");
    char range[64];
    curl->easy_reset(t->easy);
    curl->easy_setopt(t->easy, CURLOPT_URL, t->url);
    curl->easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl->easy_setopt(t->easy, CURLOPT_USERAGENT, "lace/" LACE_VERSION);
    curl->easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, 0L);
    /* HTTP/2 would put all ranges on one connection, which is slower than several. */
    curl->easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl->easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl->easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    curl->easy_setopt(t->easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl->easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl->easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl->easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl->easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl->easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    if (authorities && authorities[0])
        curl->easy_setopt(t->easy, CURLOPT_CAINFO, authorities);
    if (!t->is_whole) {
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, t->at, t->end - 1);
        curl->easy_setopt(t->easy, CURLOPT_RANGE, range);
    }
}

/* Send the request to t->url. */
static lace_status start(transfer *t, lace_error *err)
{
    http_client *c = t->client;
    const http_source *from = c->from;
    end_transfer(t);
    if (!t->easy && !(t->easy = c->curl->easy_init()))
        return error_nomem(err, "a request");
    if (from->token && from->token[0] && has_same_origin(from->url, t->url))
        TRY(add_header(t, "Authorization: Bearer ", from->token, err));
    if (from->accept)
        TRY(add_header(t, "Accept: ", from->accept, err));
    TRY(add_header(t, "Accept-Encoding: ", "identity", err));
    t->has_range = false;
    t->problem = NULL;
    t->n_new = 0;
    t->not_before_ns = 0;
    set_options(t);
    if (c->curl->multi_add(c->multi, t->easy) != CURLM_OK)
        return error_nomem(err, "a request");
    t->is_running = true;
    return LACE_OK;
}

static lace_status start_at_source(transfer *t, lace_error *err)
{
    if (strlen(t->client->from->url) >= sizeof t->url)
        return error_set(err, LACE_E_LIMIT, "a URL is longer than %d bytes", MAX_URL - 1);
    strcpy(t->url, t->client->from->url);
    t->n_redirects = 0;
    if (!t->client->to)
        buf_clear(t->client->text);
    return start(t, err);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static lace_status follow(transfer *t, lace_error *err)
{
    const char *to = NULL;
    t->client->curl->easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
    size_t n = to ? strlen(to) : 0;
    bool is_web = n && (strncasecmp(to, "http://", 7) == 0 || strncasecmp(to, "https://", 8) == 0);
    if (!is_web || n >= sizeof t->url || ++t->n_redirects > MAX_REDIRECTS)
        return error_set(err, LACE_E_IO, "%.200s: a redirect that leads nowhere", t->url);
    if (strncasecmp(t->url, "https:", 6) == 0 && strncasecmp(to, "https:", 6) != 0)
        return error_set(err, LACE_E_IO, "%.200s: a redirect from https to %.100s is refused",
                         t->url, to);
    memmove(t->url, to, n + 1);
    return start(t, err);
}

/* Statuses and failures after which a new try may help. */
static bool may_pass(const transfer *t, CURLcode code, long status)
{
    if (t->problem)
        return true;
    if (code != CURLE_OK && code != CURLE_HTTP_RETURNED_ERROR)
        return code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_URL_MALFORMAT &&
               code != CURLE_SSL_CACERT_BADFILE;
    bool is_signed = t->n_redirects > 0 && status == 403; /* the signature of a URL runs out */
    return status == 408 || status == 425 || status == 429 || status >= 500 || is_signed ||
           status == 200 || status == 206;
}

/* A try has failed for good: one line that says why. */
static lace_status give_up(transfer *t, CURLcode code, long status, lace_error *err)
{
    http_client *c = t->client;
    int n = (int)origin_of(t->url);
    c->status = (int)status;
    if (t->problem)
        return error_set(err, LACE_E_IO, "%.*s: %s", n, t->url, t->problem);
    if (code != CURLE_OK)
        return error_set(err, LACE_E_IO, "%.*s: %s%s", n, t->url, c->curl->easy_strerror(code),
                         c->is_reached ? "" : "; is there a network?");
    if (status == 200 || status == 206)
        return error_set(err, LACE_E_IO, "%.*s: the answer ended too early", n, t->url);
    return error_set(err, LACE_E_IO, "%.*s answered %ld%s", n, t->url, status,
                     status == 429   ? " (too many requests); try again later"
                     : status == 416 ? ": the file there is shorter than its list says"
                     : status >= 500 ? "; try again later"
                                     : "");
}

static lace_status try_again(transfer *t, CURLcode code, long status, lace_error *err)
{
    http_client *c = t->client;
    curl_off_t asked_s = 0;
    bool is_unreached =
        !c->is_reached && (code == CURLE_COULDNT_RESOLVE_HOST ||
                           code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_CONNECT);
    if (++c->n_failures > (is_unreached ? MAX_UNREACHED : MAX_FAILURES))
        return give_up(t, code, status, err);
    if (status == 429 || status == 503)
        c->curl->easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &asked_s);
    uint64_t wait_ms = (uint64_t)c->delay_ms << (c->n_failures - 1);
    wait_ms = wait_ms < MOST_DELAY_MS ? wait_ms : MOST_DELAY_MS;
    if (asked_s > 0)
        wait_ms = 1000 * (uint64_t)(asked_s < MOST_ASKED_S ? asked_s : MOST_ASKED_S);
    end_transfer(t);
    t->not_before_ns = clock_ns() + wait_ms * 1000000;
    return LACE_OK;
}

/* A request is over. */
static lace_status on_done(transfer *t, CURLcode code, lace_error *err)
{
    http_client *c = t->client;
    long status = status_of(t);
    end_transfer(t);
    if (c->write_error.status != LACE_OK) {
        if (err)
            *err = c->write_error;
        return c->write_error.status;
    }
    if (c->lacks_ranges && !t->is_whole) {
        t->at = t->end; /* all begin again, as one */
        return LACE_OK;
    }
    if (code == CURLE_OK && status >= 300 && status < 400 && status != 304)
        return follow(t, err);
    bool is_complete = code == CURLE_OK && !t->problem && (status == 200 || status == 206) &&
                       (!c->to || t->at == t->end);
    if (is_complete) {
        t->at = t->end;
        return LACE_OK;
    }
    if (!may_pass(t, code, status))
        return give_up(t, code, status, err);
    if (c->to && t->is_whole) { /* it cannot go on in the middle */
        TRY(part_file_reset(c->to, err));
        t->at = 0;
    }
    if (t->n_new > 0 && !t->problem && !t->is_whole && t->at < t->end)
        return start_at_source(t, err); /* it went well for a while: at once */
    return try_again(t, code, status, err);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static bool report(http_client *c)
{
    return !c->watch || !c->watch->on_tick || c->watch->on_tick(c->watch->user);
}

/* Requests that are over; *n_over counts them. */
static lace_status take_messages(http_client *c, int *n_over, lace_error *err)
{
    CURLMsg *message;
    int n_left;
    while ((message = c->curl->multi_info_read(c->multi, &n_left))) {
        CURLcode code = message->data.result; /* gone with the handle */
        char *user = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        c->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
        *n_over += 1;
        TRY(on_done((transfer *)(void *)user, code, err));
    }
    return LACE_OK;
}

/* A piece that nobody fetches; false: there is none. */
static bool find_piece(const http_client *c, uint64_t *at, uint64_t *end)
{
    const part_file *p = c->to;
    for (size_t i = 0; i < p->n_pieces; i++) {
        *at = i * p->piece_bytes + p->done[i];
        *end = i * p->piece_bytes + part_file_piece_size(p, i);
        bool is_taken = *at == *end;
        for (int k = 0; !is_taken && k < MAX_CONNECTIONS; k++)
            is_taken = c->transfers[k].at < c->transfers[k].end && c->transfers[k].end == *end;
        if (!is_taken)
            return true;
    }
    return false;
}

/* The server has no ranges: one request for everything. */
static lace_status begin_whole(http_client *c, lace_error *err)
{
    transfer *t = &c->transfers[0];
    if (t->is_whole)
        return LACE_OK;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        end_transfer(&c->transfers[i]);
        c->transfers[i].at = c->transfers[i].end = 0;
        c->transfers[i].not_before_ns = 0;
    }
    TRY(part_file_reset(c->to, err));
    t->is_whole = true;
    t->end = c->to->size;
    return start_at_source(t, err);
}

/* Give work to whoever has none. *is_over: there is none left, and nobody works. */
static lace_status hand_out(http_client *c, int n_connections, bool *is_over, lace_error *err)
{
    uint64_t now = clock_ns();
    *is_over = true;
    if (c->to && c->lacks_ranges)
        TRY(begin_whole(c, err));
    for (int i = 0; i < n_connections; i++) {
        transfer *t = &c->transfers[i];
        if (!t->is_running && t->at == t->end && c->to && !c->lacks_ranges) {
            uint64_t at, end;
            if (find_piece(c, &at, &end)) {
                t->at = at;
                t->end = end;
                TRY(start_at_source(t, err));
            }
        } else if (!t->is_running && t->at < t->end && now >= t->not_before_ns) {
            TRY(start_at_source(t, err));
        }
        if (t->at < t->end)
            *is_over = false;
    }
    return LACE_OK;
}

/* How long to wait for something to happen: until the next new try at most. */
static int poll_ms(const http_client *c)
{
    uint64_t now = clock_ns(), most = (uint64_t)POLL_MS * 1000000;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        const transfer *t = &c->transfers[i];
        bool waits = !t->is_running && t->at < t->end;
        uint64_t left = t->not_before_ns > now ? t->not_before_ns - now : 0;
        if (waits && left < most)
            most = left;
    }
    return (int)((most + 999999) / 1000000);
}

static lace_status run(http_client *c, int n_connections, lace_error *err)
{
    bool is_over = false;
    for (;;) {
        int n_running, n_over = 0;
        TRY(hand_out(c, n_connections, &is_over, err));
        if (is_over)
            return report(c) ? LACE_OK : error_set(err, LACE_E_CANCELLED, "stopped");
        if (c->curl->multi_perform(c->multi, &n_running) != CURLM_OK)
            return error_nomem(err, "a download");
        TRY(take_messages(c, &n_over, err));
        if (!report(c))
            return error_set(err, LACE_E_CANCELLED, "stopped");
        if (n_over == 0)
            c->curl->multi_poll(c->multi, NULL, 0, poll_ms(c), NULL);
    }
}

/* Begin with all transfers idle; http_status is what give_up leaves. */
static lace_status run_all(http_client *c, const http_source *from, const http_watch *watch,
                           int n_connections, int *http_status, lace_error *err)
{
    c->from = from;
    c->watch = watch;
    c->n_failures = 0;
    c->status = 0;
    c->write_error.status = LACE_OK;
    lace_status status = run(c, n_connections, err);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        end_transfer(&c->transfers[i]);
    *http_status = c->status;
    return status;
}

static void clear_transfers(http_client *c)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        transfer *t = &c->transfers[i];
        t->client = c;
        t->at = t->end = 0;
        t->not_before_ns = 0;
        t->is_whole = false;
    }
    c->lacks_ranges = false;
}

lace_status http_get_text(http_client *c, const http_source *from, const http_watch *watch,
                          buf *out, int *http_status, lace_error *err)
{
    clear_transfers(c);
    c->to = NULL;
    c->text = out;
    c->transfers[0].is_whole = true;
    c->transfers[0].end = 1; /* something is wanted */
    return run_all(c, from, watch, 1, http_status, err);
}

lace_status http_get_file(http_client *c, const http_source *from, const http_watch *watch,
                          part_file *to, int *http_status, lace_error *err)
{
    clear_transfers(c);
    c->to = to;
    int n = watch && watch->n_connections > 0 ? watch->n_connections : 1;
    return run_all(c, from, watch, n < MAX_CONNECTIONS ? n : MAX_CONNECTIONS, http_status, err);
}
