/* The same test by an installed llama-bench, as a child process that prints JSON. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_read.h"
#include "cli/bench.h"
#include "cli/cli.h"

extern char **environ;

enum { MAX_OUTPUT = 1 << 20, MAX_WORDS = 24 };

/* Read until the child closes its end. */
static lace_status read_all(int fd, buf *out)
{
    for (;;) {
        char block[4096];
        ssize_t n = read(fd, block, sizeof block);
        if (n == 0)
            return LACE_OK;
        if (n < 0 && errno != EINTR)
            return LACE_E_IO;
        if (n > 0)
            TRY(buf_append(out, block, (size_t)n));
    }
}

/* Run a program with its standard output in *out, and what it says of itself thrown away. */
static lace_status run_program(char **words, buf *out, lace_error *err)
{
    int ends[2];
    if (pipe(ends) != 0)
        return error_set(err, LACE_E_IO, "cannot make a pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child;
    int failure = posix_spawnp(&child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failure) {
        close(ends[0]);
        return error_set(err, LACE_E_IO, "--against %s: %s", words[0], strerror(failure));
    }
    lace_status status = read_all(ends[0], out);
    close(ends[0]);
    int code = 0;
    while (waitpid(child, &code, 0) < 0 && errno == EINTR)
        continue;
    if (cli_stop)
        return LACE_E_CANCELLED;
    if (status != LACE_OK)
        return error_set(err, status, "--against %s: cannot read what it prints", words[0]);
    if (code == 0)
        return LACE_OK;
    char line[400] = "";
    for (int i = 0; words[i]; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s", words[i]);
    return error_set(err, LACE_E_IO, "--against: this failed:%s", line);
}

/* The speed in what llama-bench prints: [{"samples_ts": [123.4], "avg_ts": 123.4, ...}]. */
static lace_status parse_speed(const char *program, const buf *printed, double *out,
                               lace_error *err)
{
    json_t *rows = NULL;
    span bytes = {(const uint8_t *)printed->data, printed->size};
    lace_status status = json_read(bytes, 0, &rows, err);
    if (status == LACE_OK) {
        *out = json_number_value(json_object_get(json_array_get(rows, 0), "avg_ts"));
        if (!(*out > 0))
            status = error_set(err, LACE_E_JSON, "no avg_ts above 0 in the first row");
    }
    json_decref(rows);
    if (status != LACE_OK)
        error_prefix(err, status, program);
    return status;
}

lace_status bench_rival_run(const char *program, const char *model, const bench_test *test,
                            int32_t n_threads, lace_kv_type kv_type, double *out, lace_error *err)
{
    static const char *const kv_names[] = {
        [LACE_KV_F32] = "f32", [LACE_KV_F16] = "f16", [LACE_KV_Q8_0] = "q8_0"};
    char prompt[16], gen[16], depth[16], threads[16];
    snprintf(prompt, sizeof prompt, "%d", test->n_prompt);
    snprintf(gen, sizeof gen, "%d", test->n_gen);
    snprintf(depth, sizeof depth, "%d", test->depth);
    snprintf(threads, sizeof threads, "%d", n_threads);
    const char *words[MAX_WORDS] = {program, "-m", model, "-o", "json", "-r", "1",    "-p",
                                    prompt,  "-n", gen,   "-d", depth,  "-t", threads};
    int n = 15;
    /* Its default is f16 too; other types need its flash attention. */
    if (kv_type != LACE_KV_F16) {
        const char *const more[] = {
            "-fa", "1", "-ctk", kv_names[kv_type], "-ctv", kv_names[kv_type]};
        for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
            words[n++] = more[i];
    }
    buf printed;
    buf_init(&printed, MAX_OUTPUT);
    lace_status status = run_program((char **)(uintptr_t)words, &printed, err);
    if (status == LACE_OK)
        status = parse_speed(program, &printed, out, err);
    buf_deinit(&printed);
    return status;
}
