/* A hub on loopback that lies, breaks off and refuses when told to. */
#define _GNU_SOURCE
#include "fake_hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FILES = 64, MAX_ANSWER = 1 << 16 };

typedef struct fake_file {
    const char *repository, *path;
    const char *data;
    size_t n;
    bool is_large;
    char sha256[65], blob_id[65];
} fake_file;

fake_state *fake;
static fake_file files[MAX_FILES];
static int n_files, ports[2];
static pid_t hub;

/* ---- Files ----------------------------------------------------------------------------------- */

static void digest(const EVP_MD *kind, const char *begin, size_t n_begin, const void *data,
                   size_t n, char hex[65])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    EVP_DigestInit_ex(c, kind, NULL);
    EVP_DigestUpdate(c, begin, n_begin);
    EVP_DigestUpdate(c, data, n);
    EVP_DigestFinal_ex(c, sum, &size);
    EVP_MD_CTX_free(c);
    for (unsigned i = 0; i < size; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
}

void fake_sha256(const void *data, size_t n, char hex[65])
{
    digest(EVP_sha256(), "", 0, data, n, hex);
}

void fake_hub_add(const char *repository, const char *path, const void *data, size_t n,
                  bool is_large)
{
    char begin[64];
    fake_file *f = &files[n_files++];
    *f = (fake_file){
        .repository = repository, .path = path, .data = data, .n = n, .is_large = is_large};
    int n_begin = snprintf(begin, sizeof begin, "blob %zu", n) + 1;
    fake_sha256(data, n, f->sha256);
    digest(EVP_sha1(), begin, (size_t)n_begin, data, n, f->blob_id);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static void send_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        data += sent;
        n -= (size_t)sent;
    }
}

__attribute__((format(printf, 2, 3))) static void say(int fd, const char *format, ...)
{
    static char text[MAX_ANSWER];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    send_all(fd, text, (size_t)n);
}

static void say_status(int fd, int status, const char *headers)
{
    say(fd, "HTTP/1.1 %d X\r\nContent-Length: 4\r\n%sConnection: close\r\n\r\nbody", status,
        headers);
}

static void say_json(int fd, const char *json, bool is_cut)
{
    say(fd,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
        "Connection: close\r\n\r\n%.*s",
        strlen(json), (int)(is_cut ? strlen(json) / 2 : strlen(json)), json);
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

/* ---- Requests -------------------------------------------------------------------------------- */

typedef struct request {
    char text[8192];
    char path[2048];
    bool has_token, has_range;
    size_t first, last;
} request;

static bool read_request(int fd, request *r)
{
    size_t n = 0;
    memset(r, 0, sizeof *r);
    while (n < sizeof r->text - 1 && !strstr(r->text, "\r\n\r\n")) {
        ssize_t got = recv(fd, r->text + n, sizeof r->text - 1 - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
    }
    const char *range = strcasestr(r->text, "\r\nRange: bytes=");
    r->has_range = range && sscanf(range + 15, "%zu-%zu", &r->first, &r->last) == 2;
    r->has_token = strcasestr(r->text, "\r\nAuthorization: Bearer " FAKE_TOKEN "\r\n") != NULL;
    /* Through a proxy, which this then is, comes the whole URL. */
    return sscanf(r->text, "GET http://%*[^/]%2047s", r->path) == 1 ||
           sscanf(r->text, "GET %2047s", r->path) == 1;
}

/* What this request meets. */
static fake_fault choose_fault(const fake_file *f, int *amount)
{
    *amount = atomic_load(&fake->amount);
    if (atomic_load(&fake->is_chaotic)) {
        static const int statuses[] = {500, 502, 503, 429, 408, 403, 404, 401, 416, 204, 301, 418};
        unsigned x = atomic_fetch_add(&fake->seed, 1) * 2654435761u;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        if (x % 2)
            return FAULT_NONE;
        fake_fault fault = (fake_fault)(1 + (x >> 1) % (FAULT_COUNT - 1));
        /* What ends a pull for good is rarer than what only delays it. */
        bool is_hard = (x >> 9) % 8 == 0;
        *amount = fault == FAULT_STATUS ? statuses[(x >> 12) % (is_hard ? 12 : 5)]
                                        : (int)((x >> 7) % (f && f->n ? f->n : 1000));
        bool is_soft = fault == FAULT_CUT || fault == FAULT_RESET || fault == FAULT_STATUS ||
                       fault == FAULT_GARBAGE || fault == FAULT_SILENCE;
        return fault != FAULT_STALL && (is_soft || is_hard) ? fault : FAULT_CUT;
    }
    int left = atomic_load(&fake->n_times);
    if (left == 0)
        return FAULT_NONE;
    if (left > 0)
        atomic_store(&fake->n_times, left - 1);
    return (fake_fault)atomic_load(&fake->fault);
}

/* Faults that are no answer at all; false: there is to be one. */
static bool spoil(int fd, const request *r, fake_fault fault, int amount)
{
    switch (fault) {
    case FAULT_STATUS:
        say_status(fd, amount, amount == 429 ? "Retry-After: 0\r\n" : "");
        return true;
    case FAULT_GARBAGE:
        say(fd, "\x01\x02 what? \r\n\r\n");
        return true;
    case FAULT_SILENCE:
        return true;
    case FAULT_LOOP:
        say(fd, "HTTP/1.1 302 X\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            r->path);
        return true;
    case FAULT_NOWHERE:
        say_status(fd, 302, "Location: file:///etc/passwd\r\n");
        return true;
    default:
        return false;
    }
}

static void send_file(int fd, const request *r, const fake_file *f, fake_fault fault, int amount)
{
    bool is_part = r->has_range && fault != FAULT_WHOLE;
    size_t first = is_part ? r->first : 0, last = is_part ? r->last : f->n - 1;
    if (f->n == 0)
        return say_status(fd, 416, "");
    if (last >= f->n || first > last)
        return say_status(fd, 416, "");
    size_t n = last - first + 1, shift = fault == FAULT_OTHER_RANGE && first > 0 ? 1 : 0;
    size_t extra = fault == FAULT_LONGER ? 100 : 0;
    char range[128] = "";
    if (is_part && fault != FAULT_NO_RANGE)
        snprintf(range, sizeof range, "Content-Range: bytes %zu-%zu/%zu\r\n", first - shift,
                 last - shift, f->n + (fault == FAULT_OTHER_TOTAL));
    say(fd, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
        is_part ? 206 : 200, n + extra, range);
    bool is_cut = fault == FAULT_CUT || fault == FAULT_RESET || fault == FAULT_STALL;
    size_t n_sent = is_cut && (size_t)amount < n ? (size_t)amount : n;
    atomic_fetch_add(&fake->n_bytes, (long)n_sent);
    if (fault == FAULT_WRONG_BYTES) {
        char *copy = malloc(n);
        memcpy(copy, f->data + first, n);
        copy[(size_t)amount % n] ^= 4;
        send_all(fd, copy, n);
        free(copy);
    } else {
        send_all(fd, f->data + first - shift, n_sent);
    }
    for (size_t i = 0; i < extra; i++)
        send_all(fd, "!", 1);
    if (fault == FAULT_RESET)
        reset(fd);
    if (fault == FAULT_STALL)
        sleep(10);
}

static void send_listing(int fd, const char *repository)
{
    static char json[MAX_ANSWER];
    bool is_found = false;
    size_t n = (size_t)snprintf(json, sizeof json, "{\"id\":\"%s\",\"sha\":\"%s\",\"siblings\":[",
                                repository, FAKE_COMMIT);
    for (int i = 0; i < n_files; i++) {
        const fake_file *f = &files[i];
        if (strcmp(f->repository, repository) != 0)
            continue;
        n += (size_t)snprintf(json + n, sizeof json - n,
                              "%s{\"rfilename\":\"%s\",\"size\":%zu,\"blobId\":\"%.40s\"",
                              is_found ? "," : "", f->path, f->n, f->blob_id);
        if (f->is_large)
            n += (size_t)snprintf(json + n, sizeof json - n,
                                  ",\"lfs\":{\"sha256\":\"%s\",\"size\":%zu,\"pointerSize\":130}",
                                  f->sha256, f->n);
        n += (size_t)snprintf(json + n, sizeof json - n, "}");
        is_found = true;
    }
    snprintf(json + n, sizeof json - n, "]}");
    if (!is_found)
        return say_status(fd, 404, "");
    say_json(fd, json, atomic_load(&fake->lists_fail));
}

/* Ollama's manifest: all files of the repository "ollama/NAME" are layers, the first is the model. */
static void send_manifest(int fd, const char *name)
{
    char json[4096], repository[400];
    size_t n = (size_t)snprintf(json, sizeof json, "{\"schemaVersion\":2,\"layers\":[");
    const fake_file *last = NULL;
    snprintf(repository, sizeof repository, "ollama/%s", name);
    for (int i = 0; i < n_files; i++) {
        if (strcmp(files[i].repository, repository) != 0)
            continue;
        n += (size_t)snprintf(json + n, sizeof json - n,
                              "%s{\"mediaType\":\"application/vnd.ollama.image.%s\",\"digest\":"
                              "\"sha256:%s\",\"size\":%zu}",
                              last ? "," : "", files[i].path, files[i].sha256, files[i].n);
        last = &files[i];
    }
    if (!last)
        return say_status(fd, 404, "");
    snprintf(json + n, sizeof json - n, "],\"config\":{\"digest\":\"sha256:%s\",\"size\":%zu}}",
             last->sha256, last->n);
    say_json(fd, json, false);
}

static void answer_file(int fd, const request *r, const fake_file *f, bool is_elsewhere)
{
    char location[200];
    int amount;
    if (f->is_large && !is_elsewhere) {
        snprintf(location, sizeof location, "Location: http://127.0.0.1:%d/blob/%d?signature=1\r\n",
                 ports[1], (int)(f - files));
        return say_status(fd, 302, location);
    }
    atomic_fetch_add(&fake->n_files, 1);
    atomic_fetch_add(&fake->n_ranges, r->has_range);
    fake_fault fault = choose_fault(f, &amount);
    atomic_fetch_add(&fake->n_faults, fault != FAULT_NONE);
    if (!spoil(fd, r, fault, amount))
        send_file(fd, r, f, fault, amount);
}

static void answer(int fd, bool is_elsewhere)
{
    static request r;
    char one[300], two[300], path[600];
    int index, amount;
    if (!read_request(fd, &r))
        return;
    atomic_fetch_add(&fake->n_requests, 1);
    bool has_any_token = strcasestr(r.text, "\r\nAuthorization:") != NULL;
    if (is_elsewhere && has_any_token)
        atomic_fetch_add(&fake->n_leaks, 1);
    if (is_elsewhere && sscanf(r.path, "/blob/%d", &index) == 1 && index >= 0 && index < n_files)
        return answer_file(fd, &r, &files[index], true);
    if (atomic_load(&fake->is_gated) && !r.has_token)
        return say_status(fd, 401, "");
    bool is_file =
        sscanf(r.path, "/%299[^/]/%299[^/]/resolve/" FAKE_COMMIT "/%599s", one, two, path) == 3;
    if (is_file || sscanf(r.path, "/v2/library/%299[^/]/blobs/sha256:%299s", one, two) == 2) {
        char repository[700];
        snprintf(repository, sizeof repository, is_file ? "%s/%s" : "ollama/%s", one, two);
        for (int i = 0; i < n_files; i++)
            if (strcmp(files[i].repository, repository) == 0 &&
                strcmp(is_file ? files[i].path : files[i].sha256, is_file ? path : two) == 0)
                return answer_file(fd, &r, &files[i], false);
        return say_status(fd, 404, "");
    }
    if (atomic_load(&fake->is_chaotic)) {
        fake_fault fault = choose_fault(NULL, &amount);
        if (spoil(fd, &r, fault, amount)) {
            atomic_fetch_add(&fake->n_faults, 1);
            return;
        }
    }
    if (sscanf(r.path, "/api/models/%299[^/]/%299[^/]/revision/", one, two) == 2) {
        char repository[700];
        snprintf(repository, sizeof repository, "%s/%s", one, two);
        return send_listing(fd, repository);
    }
    if (sscanf(r.path, "/v2/library/%299[^/]/manifests/", one) == 1)
        return send_manifest(fd, one);
    say_status(fd, 404, "");
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int listen_somewhere(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 256) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0)
        return -1;
    *port = ntohs(at.sin_port);
    return fd;
}

/* A process for each connection. */
static void serve(int listeners[2])
{
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        struct pollfd each[2] = {{listeners[0], POLLIN, 0}, {listeners[1], POLLIN, 0}};
        poll(each, 2, -1);
        for (int i = 0; i < 2; i++) {
            int fd = each[i].revents ? accept(listeners[i], NULL, NULL) : -1;
            if (fd >= 0 && fork() == 0) {
                answer(fd, i == 1);
                close(fd);
                _exit(0);
            }
            if (fd >= 0)
                close(fd);
        }
    }
}

bool fake_hub_start(void)
{
    char url[64];
    fake = mmap(NULL, sizeof *fake, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int listeners[2] = {listen_somewhere(&ports[0]), listen_somewhere(&ports[1])};
    if (fake == MAP_FAILED || listeners[0] < 0 || listeners[1] < 0)
        return false;
    hub = fork();
    if (hub == 0)
        serve(listeners);
    close(listeners[0]);
    close(listeners[1]);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ports[0]);
    setenv("HF_ENDPOINT", url, 1);
    setenv("LACE_OLLAMA_REGISTRY", url, 1);
    return hub > 0;
}

void fake_hub_stop(void)
{
    if (hub > 0) {
        kill(hub, SIGKILL);
        waitpid(hub, NULL, 0);
    }
    hub = 0;
}
