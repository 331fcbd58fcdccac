/*
 * The same test by llama.cpp, as a child process that prints JSON: llama-bench for one sequence, or
 * llama-batched-bench for several at once.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_read.h"
#include "base/numbers.h"
#include "base/system.h"
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
    if (!system_has_children())
        return error_set(err, LACE_E_UNSUPPORTED,
                         "--against %s: lace cannot start other programs on this system", words[0]);
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
        return error_set(err, LACE_E_ARG, "--against %s: %s", words[0], strerror(failure));
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
    return error_set(err, LACE_E_IO, "--against: this command failed:%s", line);
}

/*
 * The speed in what was printed: [{"avg_ts": 123.4, ...}] by llama-bench, {"speed_tg": 123.4, ...}
 * by llama-batched-bench.
 */
static lace_status parse_speed(const char *program, const buf *printed, double *out,
                               lace_error *err)
{
    json_t *root = NULL;
    span bytes = {(const uint8_t *)printed->data, printed->size};
    lace_status status = json_read(bytes, 0, &root, err);
    if (status == LACE_OK) {
        const json_t *row = json_is_array(root) ? json_array_get(root, 0) : root;
        *out = json_number_value(json_object_get(row, json_is_array(root) ? "avg_ts" : "speed_tg"));
        if (!(*out > 0))
            status = error_set(err, LACE_E_JSON, "its output has no speed above 0");
    }
    json_decref(root);
    if (status != LACE_OK)
        error_prefix(err, status, program);
    return status;
}

static bool is_batched(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strstr(slash ? slash : program, "batched-bench") != NULL;
}

lace_status bench_rival_find(const char *program, lace_error *err)
{
    if (strchr(program, '/') && access(program, F_OK) != 0)
        return error_set(err, LACE_E_ARG, "--against %.200s: %s", program, strerror(errno));
    return LACE_OK;
}

bool bench_rival_can(const char *program, const bench_test *test)
{
    return is_batched(program) ? test->n_gen > 0 : test->n_sequences == 1;
}

/* A command line: words, and storage for the numbers among them. */
typedef struct command {
    const char *words[MAX_WORDS + 1];
    char numbers[MAX_WORDS][24];
    int n;
} command;

static void add_word(command *c, const char *word)
{
    c->words[c->n++] = word;
}

static void add_number(command *c, const char *option, int64_t number)
{
    add_word(c, option);
    snprintf(c->numbers[c->n], sizeof c->numbers[0], "%lld", (long long)number);
    add_word(c, c->numbers[c->n]);
}

/* The prompt of llama-batched-bench is the depth; it needs one token at least. */
static void add_batched(command *c, const bench_test *test)
{
    int32_t n_prompt = test->depth > 0 ? test->depth : 1;
    int64_t n_context = 256 * divide_up((int64_t)n_prompt + test->n_gen, 256);
    add_number(c, "-npp", n_prompt);
    add_number(c, "-ntg", test->n_gen);
    add_number(c, "-npl", test->n_sequences);
    add_number(c, "-c", n_context * test->n_sequences);
    add_word(c, "--output-format");
    add_word(c, "jsonl");
}

static void add_single(command *c, const bench_test *test)
{
    add_word(c, "-o");
    add_word(c, "json");
    add_number(c, "-r", 1);
    add_number(c, "-p", test->n_prompt);
    add_number(c, "-n", test->n_gen);
    add_number(c, "-d", test->depth);
}

lace_status bench_rival_run(const char *program, const char *model, const bench_test *test,
                            int32_t n_threads, lace_kv_type kv_type, double *out, lace_error *err)
{
    command c = {.words = {program, "-m", model}, .n = 3};
    if (is_batched(program))
        add_batched(&c, test);
    else
        add_single(&c, test);
    add_number(&c, "-t", n_threads);
    /* Its default is f16 too; other types need its flash attention. */
    if (kv_type != LACE_KV_F16) {
        const char *const more[] = {
            "-fa", "1", "-ctk", cli_kv_names[kv_type], "-ctv", cli_kv_names[kv_type]};
        for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
            add_word(&c, more[i]);
    }
    buf printed;
    buf_init(&printed, MAX_OUTPUT);
    lace_status status = run_program((char **)(uintptr_t)c.words, &printed, err);
    if (status == LACE_OK)
        status = parse_speed(program, &printed, out, err);
    buf_deinit(&printed);
    return status;
}
