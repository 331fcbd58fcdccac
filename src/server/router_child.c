/* The process of a model: started, listened to, ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system.h"
#include "base/mem.h"
#include "server/router.h"

enum { MAX_LINE = 64 << 10 };

/* ---- What it says ---------------------------------------------------------------------------- */

/* "needs N" before it loads, and "lace serves ..." when it is ready. */
static void on_out(struct bufferevent *bev, void *arg)
{
    router_model *m = arg;
    char *line;
    while (m->out && (line = evbuffer_readln(bufferevent_get_input(bev), NULL, EVBUFFER_EOL_LF))) {
        uint64_t n;
        if (sscanf(line, "needs %" SCNu64, &n) == 1)
            router_on_needs(m, n);
        else if (strncmp(line, "lace serves ", 12) == 0)
            router_on_ready(m);
        free(line);
    }
}

/* Errors are told on, with the model's name; the last one is what clients are told. */
static void on_err(struct bufferevent *bev, void *arg)
{
    router_model *m = arg;
    char *line;
    while ((line = evbuffer_readln(bufferevent_get_input(bev), NULL, EVBUFFER_EOL_LF))) {
        const char *said = strncmp(line, "lace: ", 6) == 0 ? line + 6 : line;
        if (line[0] == '{')
            fprintf(stderr, "%s\n", line); /* of --log-json */
        else
            fprintf(stderr, "lace: %s: %s\n", m->entry->name, said);
        snprintf(m->last_line, sizeof m->last_line, "%s", said);
        free(line);
    }
    struct evbuffer *rest = bufferevent_get_input(bev);
    if (evbuffer_get_length(rest) > MAX_LINE)
        evbuffer_drain(rest, evbuffer_get_length(rest));
}

/* A pipe that is closed is seen by waitpid, too. */
static void on_end(struct bufferevent *bev, short what, void *arg)
{
    bufferevent_disable(bev, EV_READ);
}

static struct bufferevent *listen_to(router_model *m, int fd, bufferevent_data_cb fn)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    struct bufferevent *bev = bufferevent_socket_new(m->r->s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        close(fd);
        return NULL;
    }
    bufferevent_setcb(bev, fn, NULL, on_end, m);
    bufferevent_enable(bev, EV_READ);
    return bev;
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* serve PATH --unix SOCKET --alias NAME, what all models have, and what this one has. */
static const char **make_arguments(const router_model *m)
{
    const router_options *o = m->r->options;
    const router_entry *e = m->entry;
    const char *fixed[] = {o->program, "serve", e->path, "--unix", m->socket, "--alias", e->name};
    size_t n = sizeof fixed / sizeof *fixed;
    const char **argv = mem_calloc(n + o->n_args + e->n_args + 1, sizeof *argv);
    if (!argv)
        return NULL;
    memcpy(argv, fixed, sizeof fixed);
    if (o->n_args)
        memcpy(argv + n, o->args, o->n_args * sizeof *argv);
    if (e->n_args)
        memcpy(argv + n + o->n_args, e->args, e->n_args * sizeof *argv);
    return argv;
}

/* Between fork and exec: only what may be called there. A child ends with the router, whatever ends
 * that, and the terminal's Ctrl-C is for the router alone. */
static void become(const char *const *argv, const int fds[3], pid_t parent)
{
    setpgid(0, 0);
    system_end_with_parent();
    if (getppid() != parent || dup2(fds[0], 0) < 0 || dup2(fds[1], 1) < 0 || dup2(fds[2], 2) < 0)
        _exit(127);
    system_close_from(3);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static lace_status make_pipes(int pipes[3][2], lace_error *err)
{
    for (int i = 0; i < 3; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) == 0)
            continue;
        int code = errno;
        while (i-- > 0) {
            close(pipes[i][0]);
            close(pipes[i][1]);
        }
        return error_set(err, LACE_E_IO, "cannot make a pipe: %s", strerror(code));
    }
    return LACE_OK;
}

lace_status child_start(router_model *m, lace_error *err)
{
    int pipes[3][2];
    const char **argv = make_arguments(m);
    if (!argv)
        return error_nomem(err, "a process");
    lace_status status = make_pipes(pipes, err);
    if (status != LACE_OK) {
        mem_free(argv);
        return status;
    }
    m->last_line[0] = 0;
    setenv(SERVER_CHILD_VARIABLE, "1", 1);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        const int fds[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};
        become(argv, fds, parent);
    }
    mem_free(argv);
    if (pid < 0)
        status = error_set(err, LACE_E_IO, "cannot start a process: %s", strerror(errno));
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    m->pid = pid > 0 ? pid : 0;
    m->in_fd = pipes[0][1];
    m->out = listen_to(m, pipes[1][0], on_out);
    m->err = listen_to(m, pipes[2][0], on_err);
    if (status == LACE_OK && (!m->out || !m->err)) {
        child_end(m, SIGKILL); /* it is reaped as any other */
        status = error_nomem(err, "a process");
    }
    if (status != LACE_OK && !m->pid)
        child_forget(m);
    return status;
}

void child_go(router_model *m)
{
    (void)!write(m->in_fd, "go\n", 3); /* one that is gone is seen by waitpid */
}

/* ---- Ending ---------------------------------------------------------------------------------- */

void child_end(router_model *m, int signal_no)
{
    if (m->pid)
        kill(m->pid, signal_no);
}

void child_forget(router_model *m)
{
    if (m->err)
        on_err(m->err, m); /* its last words */
    if (m->out)
        bufferevent_free(m->out);
    if (m->err)
        bufferevent_free(m->err);
    if (m->in_fd >= 0)
        close(m->in_fd);
    m->out = m->err = NULL;
    m->in_fd = -1;
    m->pid = 0;
    unlink(m->socket);
}

/* What is in the pipe of its errors and was not read yet. */
static void read_last_words(router_model *m)
{
    char bytes[4096];
    ssize_t n;
    while (m->err && (n = read(bufferevent_getfd(m->err), bytes, sizeof bytes)) > 0)
        evbuffer_add(bufferevent_get_input(m->err), bytes, (size_t)n);
}

void child_reap(router *r)
{
    for (size_t i = 0; i < r->options->n_entries; i++) {
        router_model *m = &r->models[i];
        int status;
        if (!m->pid || waitpid(m->pid, &status, WNOHANG) != m->pid)
            continue;
        read_last_words(m);
        child_forget(m);
        router_on_exit(m, status);
    }
}
