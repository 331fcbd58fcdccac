/* The event loop: listening, the mailbox, the clock, and ending in good order. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_guard.h"
#include "base/mem.h"
#include "base/system.h"
#include "server/core.h"
#include "server/embed_queue.h"
#include "server/router.h"
#include "server/tls.h"

enum {
    TICK_MS = 250,
    FLUSH_S = 2,
    TRIM_S = 1,
    MAX_TEMPLATE = 1 << 20,
    SLOW_WORKERS = 2,
    EMBED_WORKERS = 16
};

server_options server_options_default(void)
{
    return (server_options){
        .host = "127.0.0.1",
        .port = 8080,
        .max_queue = 1024,
        .max_connections = 16384,
        .drain_s = 30,
        .max_body = 8 << 20,
        .n_workers = 4,
        .reasoning_budget = -1,
        .breaks_loops = true,
        .keeps_replies = true,
        .sampler = lace_sampler_options_default(),
        .max_tokens = -1,
        .batcher = lace_batcher_options_default(),
    };
}

uint64_t server_default_kv_bytes(void)
{
    uint64_t total = mem_machine_total();
    return total ? total / 4 : UINT64_C(1) << 30;
}

/* ---- The mailbox ----------------------------------------------------------------------------- */

static void wake(server *s)
{
    system_bell_ring(s->mail.fd);
}

void server_post_call(server *s, call *c)
{
    pthread_mutex_lock(&s->mail.lock);
    c->next_posted = s->mail.calls;
    s->mail.calls = c;
    pthread_mutex_unlock(&s->mail.lock);
    wake(s);
}

void server_post_events(server *s, gen_event *list)
{
    pthread_mutex_lock(&s->mail.lock);
    *s->mail.events_end = list;
    while (*s->mail.events_end)
        s->mail.events_end = &(*s->mail.events_end)->next;
    pthread_mutex_unlock(&s->mail.lock);
    wake(s);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

bool server_is_draining(const server *s)
{
    return s->n_signals > 0;
}

bool server_queue_is_full(const server *s)
{
    if (s->router)
        return router_queue_is_full(s->router);
    return s->n_jobs >= s->options.batcher.session.n_sequences + s->options.max_queue;
}

static bool has_output(const server *s)
{
    for (const conn *c = s->conns; c; c = c->next)
        if (evbuffer_get_length(bufferevent_get_output(c->bev)))
            return true;
    return false;
}

/*
 * Requests are refused first and the listener stays, so that balancers see /ready turn red. When the
 * time is over, those who still wait are told so, and get a moment to read it.
 */
static void drain(server *s, uint64_t now)
{
    if (!s->is_cut && s->n_calls > 0 && now >= s->drain_until_ns) {
        s->is_cut = true;
        s->drain_until_ns = now + clock_seconds(FLUSH_S);
        call_cut_all(s);
    }
    bool is_over = (s->is_cut || s->n_calls == 0) && (!has_output(s) || now >= s->drain_until_ns);
    if (is_over)
        event_base_loopbreak(s->base);
}

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    server *s = arg;
    if (s->model)
        lace_model_hurry(s->model);
    if (s->n_signals++ == 0) {
        s->drain_until_ns = clock_ns() + clock_seconds(s->options.drain_s);
        if (s->n_calls > 0 && !s->options.log_json)
            fprintf(stderr,
                    "lace: waiting for %d request%s, at most %d s; a second signal ends at once\n",
                    s->n_calls, s->n_calls == 1 ? "" : "s", s->options.drain_s);
        /* Connections that wait for a request would wait for ever; an answer is still sent. */
        conn *next;
        for (conn *c = s->conns; c; c = next) {
            next = c->next;
            if (c->active || c->wait != WAIT_REQUEST || c->parser)
                continue;
            if (evbuffer_get_length(bufferevent_get_output(c->bev)))
                c->closes = true; /* once it is written */
            else
                conn_close(c);
        }
    } else {
        s->drain_until_ns = clock_ns();
    }
    drain(s, clock_ns()); /* at once, if nobody waits for anything */
}

/*
 * A rank is lost, and nothing can be computed any more: everybody is told, and the program ends, to be
 * started again.
 */
static void end_without_rank(server *s, const char *why)
{
    if (s->lost_rank.status != LACE_OK)
        return;
    error_set(&s->lost_rank, LACE_E_RANK, "%s", why);
    if (s->n_signals == 0)
        on_signal(0, 0, s);
    s->drain_until_ns = clock_ns() + clock_seconds(FLUSH_S);
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    server *s = arg;
    system_bell_silence((int)fd);
    pthread_mutex_lock(&s->mail.lock);
    gen_event *events = s->mail.events;
    call *calls = s->mail.calls;
    s->mail.events = NULL;
    s->mail.events_end = &s->mail.events;
    s->mail.calls = NULL;
    pthread_mutex_unlock(&s->mail.lock);
    while (calls) {
        call *c = calls;
        calls = c->next_posted;
        call_dispatch(c);
    }
    while (events) {
        gen_event *e = events;
        events = e->next;
        if (e->status == LACE_E_RANK)
            end_without_rank(s, e->text);
        call_event(e);
    }
}

/* Large bodies and what was made of them are gone: so is their memory. */
static void trim(server *s, uint64_t now)
{
    if (!s->has_freed_large || now - s->trimmed_ns < clock_seconds(TRIM_S))
        return;
    mem_trim();
    s->has_freed_large = false;
    s->trimmed_ns = now;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    server *s = arg;
    uint64_t now = clock_ns();
    conn_tick(s, now);
    call_tick(s, now);
    trim(s, now);
    if (s->router)
        router_tick(s->router, now);
    if (s->is_deaf)
        server_accept_again(s);
    if (server_is_draining(s))
        drain(s, now);
}

/* ---- Listening ------------------------------------------------------------------------------- */

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                      int n_from, void *arg)
{
    server *s = arg;
    conn_accept(s, fd, from);
    if (s->n_conns >= s->options.max_connections)
        evconnlistener_disable(listener);
}

void server_accept_again(server *s)
{
    s->is_deaf = s->listener && evconnlistener_enable(s->listener) != 0;
}

/* Out of descriptors: stop for a tick and not for ever. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

static void raise_file_limit(int32_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)wanted)
        return;
    limit.rlim_cur = limit.rlim_max < (rlim_t)wanted ? limit.rlim_max : (rlim_t)wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static lace_status listen_at(server *s, const struct sockaddr *address, socklen_t n,
                             const char *name, lace_error *err)
{
    s->listener = evconnlistener_new_bind(s->base, on_accept, s,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE |
                                              LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_DISABLED,
                                          4096, address, (int)n);
    if (!s->listener)
        return error_set(err, LACE_E_IO, "cannot listen at %s: %s%s", name, strerror(errno),
                         errno == EADDRINUSE ? " (--port chooses another)" : "");
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    /* Turned on here, because libevent does not say when that fails while it is made. */
    if (evconnlistener_enable(s->listener) != 0)
        return error_set(err, LACE_E_IO, "cannot watch %s: %s", name, strerror(errno));
    return LACE_OK;
}

/* Whether nobody holds a socket any more: only then a connection is refused. One that is full, of
 * another kind or another user's is alive. */
static bool is_left_behind(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
              errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return is;
}

/* A socket that nobody listens at is what a server left that was killed. All else stays. */
static lace_status make_room(const struct sockaddr_un *address, lace_error *err)
{
    const char *path = address->sun_path;
    struct stat st;
    if (lstat(path, &st) != 0)
        return LACE_OK;
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, LACE_E_IO,
                         "cannot listen at %s: a file of that name exists and is not a socket",
                         path);
    if (!is_left_behind(address))
        return error_set(err, LACE_E_IO, "cannot listen at %s: another program listens there",
                         path);
    return unlink(path) == 0
               ? LACE_OK
               : error_set(err, LACE_E_IO, "cannot remove %s: %s", path, strerror(errno));
}

static lace_status listen_unix(server *s, lace_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = s->options.unix_path;
    if (!system_has_unix_sockets())
        return error_set(err, LACE_E_UNSUPPORTED,
                         "lace has no Unix sockets on this system; use --host and --port");
    if (strlen(path) >= sizeof address.sun_path)
        return error_set(err, LACE_E_ARG, "the path of a socket may have %zu bytes at most",
                         sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    TRY(make_room(&address, err));
    s->is_loopback = false; /* no web page can reach it: any Host will do */
    mode_t mask = umask(0077);
    lace_status status = listen_at(s, (struct sockaddr *)&address, sizeof address, path, err);
    umask(mask);
    struct stat st;
    s->has_socket = status == LACE_OK && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
    if (s->has_socket) {
        s->socket_id.device = (uint64_t)st.st_dev;
        s->socket_id.inode = (uint64_t)st.st_ino;
    }
    return status;
}

/* Only the socket that this server has made, and not what may be there instead by now. */
static void remove_socket(const server *s)
{
    struct stat st;
    if (s->has_socket && lstat(s->options.unix_path, &st) == 0 &&
        (uint64_t)st.st_dev == s->socket_id.device && (uint64_t)st.st_ino == s->socket_id.inode)
        unlink(s->options.unix_path);
}

static bool is_loopback_address(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    uint32_t ip = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr);
    return ip >> 24 == 127;
}

static lace_status listen_tcp(server *s, lace_error *err)
{
    char port[16], name[300];
    snprintf(port, sizeof port, "%d", s->options.port);
    snprintf(name, sizeof name, "%.200s:%s", s->options.host, port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(s->options.host, port, &hints, &found);
    if (code != 0)
        return error_set(err, LACE_E_ARG,
                         "cannot listen at %s: %s; --host is an address or a name, --port the port",
                         name, gai_strerror(code));
    s->is_loopback = is_loopback_address(found->ai_addr);
    lace_status status = listen_at(s, found->ai_addr, found->ai_addrlen, name, err);
    freeaddrinfo(found);
    return status;
}

/* The one line on standard output: where it listens, by which a script finds the port. */
static void announce(const server *s)
{
    const char *scheme = s->tls ? "https" : "http";
    if (s->options.unix_path) {
        printf("lace serves %s at unix:%s\n", s->model_id, s->options.unix_path);
    } else {
        struct sockaddr_storage address;
        socklen_t n = sizeof address;
        int port = s->options.port;
        if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&address, &n) == 0)
            port =
                ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                    : ((struct sockaddr_in *)&address)->sin_port);
        printf("lace serves %s at %s://%s:%d\n", s->model_id, scheme, s->options.host, port);
    }
    fflush(stdout);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* The alias, the name in the file, or the file's name without its ending. */
static lace_status name_model(server *s, const char *path, lace_error *err)
{
    const char *name = s->options.alias;
    if (!name && path) {
        const char *slash = strrchr(path, '/');
        name = slash && slash[1] ? slash + 1 : path;
        size_t n = strlen(name);
        if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
            n -= 5;
        s->model_id = mem_strndup(name, n);
    } else {
        s->model_id = mem_strdup(name ? name : s->info.name);
    }
    for (char *at = s->model_id; at && *at; at++)
        if (*at == ' ')
            *at = '-'; /* a name that can be typed */
    return s->model_id ? LACE_OK : error_nomem(err, "a name");
}

static lace_status load_template(server *s, lace_error *err)
{
    size_t n_bos = 0, n_eos = 0;
    const char *bos = lace_token_bytes(s->model, s->info.bos, &n_bos);
    const char *eos = lace_token_bytes(s->model, s->info.eos, &n_eos);
    text source = text_of(s->info.chat_template);
    buf file;
    buf_init(&file, MAX_TEMPLATE);
    lace_status status = LACE_OK;
    if (s->options.chat_template_file) {
        status = file_read(s->options.chat_template_file, &file, err);
        source = (text){file.data ? file.data : "", file.size};
    }
    if (status == LACE_OK) {
        s->chat_source = mem_strndup(source.data, source.size);
        status = s->chat_source ? LACE_OK : error_nomem(err, "a chat template");
    }
    if (status == LACE_OK)
        status =
            chat_template_create(source, (text){bos, n_bos}, (text){eos, n_eos}, &s->chat, err);
    if (status == LACE_E_TEMPLATE)
        error_prefix(err, status, "chat template (--chat-template-file gives another)");
    buf_deinit(&file);
    return status;
}

static lace_status make_events(server *s, lace_error *err)
{
    struct timeval tick = {.tv_usec = TICK_MS * 1000};
    s->mail.events_end = &s->mail.events;
    pthread_mutex_init(&s->mail.lock, NULL);
    s->mail.fd = system_bell_open();
    s->base = event_base_new();
    if (s->mail.fd < 0 || !s->base)
        return error_set(err, LACE_E_IO, "cannot make an event loop: %s", strerror(errno));
    s->mail_event = event_new(s->base, s->mail.fd, EV_READ | EV_PERSIST, on_mail, s);
    s->tick_event = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    s->term_event = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->int_event = evsignal_new(s->base, SIGINT, on_signal, s);
    bool ok = s->mail_event && s->tick_event && s->term_event && s->int_event &&
              event_add(s->mail_event, NULL) == 0 && event_add(s->tick_event, &tick) == 0 &&
              event_add(s->term_event, NULL) == 0 && event_add(s->int_event, NULL) == 0;
    return ok ? LACE_OK : error_nomem(err, "an event loop");
}

/* Replies as the model wrote them; in a file of the cache's directory, by what is known of the model. */
static lace_status keep_replies(server *s, lace_error *err)
{
    const char *directory = s->options.batcher.cache_dir;
    char path[4096], known[512];
    digest d = {0};
    int n =
        snprintf(known, sizeof known, "%s %s %s %d %llu %llu", s->info.name, s->info.architecture,
                 s->info.type, s->info.n_vocab, (unsigned long long)s->info.n_parameters,
                 (unsigned long long)s->info.weight_bytes);
    if (!s->options.keeps_replies || !s->options.batcher.use_prefixes)
        return LACE_OK;
    if (!digest_of(known, (size_t)n < sizeof known ? (size_t)n : sizeof known, s->chat_source,
                   strlen(s->chat_source), &d))
        return error_nomem(err, "kept replies");
    snprintf(path, sizeof path, "%s/%02x%02x%02x%02x%02x%02x%02x%02x.replies",
             directory ? directory : "", d.bytes[0], d.bytes[1], d.bytes[2], d.bytes[3], d.bytes[4],
             d.bytes[5], d.bytes[6], d.bytes[7]);
    return kept_replies_create(directory ? path : NULL, s->info.n_vocab, &s->replies, err);
}

/* What both kinds of servers begin with. */
static lace_status start_loop(server *s, lace_error *err)
{
    const server_options *o = &s->options;
    if (o->api_key_file || o->api_keys)
        TRY(access_read_keys(s, o->api_key_file, o->api_keys, err));
    if (o->tls_cert || o->tls_key) {
        if (!o->tls_cert || !o->tls_key)
            return error_set(err, LACE_E_ARG, "TLS needs both --tls-cert and --tls-key");
        TRY(tls_create(o->tls_cert, o->tls_key, &s->tls, err));
    }
    raise_file_limit(o->max_connections + 256);
    TRY(make_events(s, err));
    TRY(workers_create(s, o->n_workers, false, &s->workers, err));
    return workers_create(s, SLOW_WORKERS, true, &s->slow_workers, err);
}

static lace_status start(server *s, const char *model_path, lace_error *err)
{
    const server_options *o = &s->options;
    TRY(name_model(s, model_path, err));
    TRY(adapters_create(s, err));
    TRY(load_template(s, err));
    TRY(start_loop(s, err));
    TRY(workers_create(s, EMBED_WORKERS, false, &s->embedding, err));
    TRY(inference_create(s, &s->inference, err)); /* makes the cache's directory */
    TRY(keep_replies(s, err));
    TRY(embedder_create(s->model, &o->batcher.session, &s->embedder, err));
    inference_state state;
    inference_read(s->inference, &state);
    s->limits = state.stats;
    if (s->info.is_encoder)
        s->limits.n_context = embedder_context(s->embedder);
    return o->unix_path ? listen_unix(s, err) : listen_tcp(s, err);
}

static lace_status start_models(server *s, const router_options *models, lace_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%zu model%s", models->n_entries,
             models->n_entries == 1 ? "" : "s");
    s->model_id = mem_strdup(name);
    if (!s->model_id)
        return error_nomem(err, "a name");
    TRY(start_loop(s, err));
    TRY(router_create(s, models, &s->router, err));
    return s->options.unix_path ? listen_unix(s, err) : listen_tcp(s, err);
}

static void stop(server *s)
{
    s->is_cut = true;
    while (s->conns)
        conn_close(s->conns);
    inference_free(s->inference); /* no more events after this */
    workers_free(s->workers);     /* first: they push to the slow ones */
    workers_free(s->slow_workers);
    workers_free(s->embedding);
    embedder_free(s->embedder);
    while (s->mail.events) {
        gen_event *e = s->mail.events;
        s->mail.events = e->next;
        mem_free(e);
    }
    call_free_all(s);
    router_free(s->router);
    if (s->listener)
        evconnlistener_free(s->listener);
    remove_socket(s);
    struct event *events[] = {s->mail_event, s->tick_event, s->term_event, s->int_event};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i])
            event_free(events[i]);
    if (s->base)
        event_base_free(s->base);
    if (s->mail.fd > 0)
        system_bell_close(s->mail.fd);
    if (s->mail.events_end)
        pthread_mutex_destroy(&s->mail.lock);
    tls_free(s->tls);
    kept_replies_free(s->replies);
    chat_template_free(s->chat);
    mem_free(s->chat_source);
    access_free(s);
    mem_free_all(s->model_id, s->adapters, (void *)s->adapter_scales, s);
}

static server *create(const server_options *options)
{
    server *s = mem_calloc(1, sizeof *s);
    signal(SIGPIPE, SIG_IGN);
    file_guard_install();
    mem_keep_little();
    if (s) {
        s->options = *options;
        s->started_at = (int64_t)time(NULL);
    }
    return s;
}

/* Until it is told to end; frees the server. */
static lace_status run(server *s, lace_status status, lace_error *err)
{
    if (status == LACE_OK) {
        announce(s);
        if (event_base_dispatch(s->base) < 0)
            status = error_set(err, LACE_E_IO, "the event loop has failed: %s", strerror(errno));
    }
    if (s->lost_rank.status != LACE_OK)
        status = error_set(err, s->lost_rank.status, "%s", s->lost_rank.text);
    stop(s);
    return status;
}

lace_status server_run(lace_model *model, const char *model_path, const server_options *options,
                       lace_error *err)
{
    server *s = create(options);
    if (!s)
        return error_nomem(err, "a server");
    s->model = model;
    lace_model_describe(model, &s->info);
    return run(s, start(s, model_path, err), err);
}

lace_status server_run_models(const router_options *models, const server_options *options,
                              lace_error *err)
{
    server *s = create(options);
    return s ? run(s, start_models(s, models, err), err) : error_nomem(err, "a server");
}
