/*
 * Verbs that write files, killed at random moments: the file is there whole or not at all, and
 * nothing else is left beside it. $LACE_KILLS moments for each verb, by default 10.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_read.h"
#include "formats/weights.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_hf.h"
#include "tiny_model.h"

enum { MAX_ARGS = 24 };

/* "IN", "TEXT", "DIR" and "OUT" stand for paths. */
typedef struct command {
    const char *name;
    const char *args[MAX_ARGS];
} command;

static const command commands[] = {
    {"a_killed_quantize_leaves_all_or_nothing", {"quantize", "IN", "OUT", "q4_k_m"}},
    {"a_killed_calibration_leaves_all_or_nothing",
     {"quantize", "IN", "OUT", "s4", "--calibrate", "TEXT", "--windows", "2"}},
    {"a_killed_prune_leaves_all_or_nothing",
     {"prune", "IN", "OUT", "--sparsity", "0.5", "--method", "magnitude", "--store", "m4",
      "--accept-loss"}},
    {"a_killed_fit_leaves_all_or_nothing",
     {"fit", "IN", "-o", "OUT", "--size", "700000", "--calibrate", "TEXT", "--plain", "--exchanges",
      "1", "--windows", "1", "--types", "quick"}},
    {"a_killed_convert_leaves_all_or_nothing",
     {"convert", "DIR", "-o", "OUT", "--type", "q8_0", "--no-vocab"}},
    {"a_killed_sparsify_leaves_all_or_nothing",
     {"sparsify", "IN", "OUT", "--calibrate", "TEXT", "--calibrate-windows", "1"}},
};

static const char *program_path(void)
{
    return getenv("LACE_BIN") ? getenv("LACE_BIN") : "build/lace";
}

static char paths[4][512]; /* IN, TEXT, DIR, OUT */

static const char *path_of(const char *word)
{
    static const char *const names[] = {"IN", "TEXT", "DIR", "OUT"};
    for (int i = 0; i < 4; i++)
        if (strcmp(word, names[i]) == 0)
            return paths[i];
    return word;
}

static pid_t start(const command *c)
{
    const char *argv[MAX_ARGS + 2] = {program_path()};
    for (int i = 0; i < MAX_ARGS && c->args[i]; i++)
        argv[i + 1] = path_of(c->args[i]);
    pid_t child = fork();
    if (child == 0) {
        int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, 0);
        dup2(nothing, 1);
        dup2(nothing, 2);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    return child;
}

/* Files in the folder of OUT. */
static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(scratch_path("out"));
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

/* Without nameless files, a killed process leaves its temporary one, though
 * never under the name. */
static bool has_nameless_files(void)
{
    int fd = open(scratch_path("out"), O_TMPFILE | O_WRONLY, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static off_t size_of_output(void)
{
    struct stat s;
    return stat(paths[3], &s) == 0 ? s.st_size : -1;
}

/* A model; of sparsify it is JSON. */
static bool can_read_output(void)
{
    weights *w = NULL;
    json_t *json = NULL;
    buf content;
    buf_init(&content, 1 << 20);
    bool ok = weights_open(paths[3], &w, NULL) == LACE_OK;
    if (!ok && file_read(paths[3], &content, NULL) == LACE_OK)
        ok = json_read((span){(const uint8_t *)content.data, content.size}, 0, &json, NULL) ==
             LACE_OK;
    weights_close(w);
    json_decref(json);
    buf_deinit(&content);
    return ok;
}

static void is_whole_or_absent_when_killed(void *arg)
{
    const command *c = arg;
    int n_tries = getenv("LACE_KILLS") ? atoi(getenv("LACE_KILLS")) : 10;
    int n_whole = 0, n_left = 0, status = 0;
    uint64_t begin = clock_ns();
    waitpid(start(c), &status, 0);
    double whole_us = (double)(clock_ns() - begin) / 1000, most_us = whole_us;
    off_t n_bytes = size_of_output();
    if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && n_bytes > 0))
        return;
    unlink(paths[3]);
    for (int i = 0; i < n_tries; i++) {
        pid_t child = start(c);
        usleep((useconds_t)(most_us * drand48()));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        off_t now = size_of_output();
        if (now >= 0) {
            CHECK(now == n_bytes && can_read_output());
            unlink(paths[3]);
            n_whole++;
            most_us *= 0.7; /* too late: the first run was slower, as on a busy machine */
        }
        n_left += count_files();
    }
    tap_note("%d moments within %.0f ms: %d whole files, %d partial ones", n_tries, whole_us / 1000,
             n_whole, n_left);
    CHECK(n_whole < n_tries); /* or nothing was killed in the middle */
    if (has_nameless_files())
        CHECK(n_left == 0);
}

static bool write_inputs(void)
{
    tiny_options o = tiny_options_default();
    o.n_embd = o.n_ff = 256;
    o.n_heads = 4;
    o.n_kv_heads = 2;
    buf b = tiny_model_bytes(o);
    bool ok = tiny_hf_write("in.gguf", &b) && tiny_hf_llama("F32");
    char words[4096];
    for (size_t i = 0; i < sizeof words - 1; i++)
        words[i] = "lace is mostly holes\n"[(i * i + i / 5) % 21];
    words[sizeof words - 1] = 0;
    buf_deinit(&b);
    return scratch_write("text", words) && mkdir(scratch_path("out"), 0700) == 0 && ok;
}

int main(void)
{
    if (access(program_path(), X_OK) != 0) {
        printf("Bail out! no program at %s\n", program_path());
        return 1;
    }
    srand48(1);
    if (!scratch_create() || !write_inputs())
        return 1;
    snprintf(paths[0], sizeof paths[0], "%s", scratch_path("in.gguf"));
    snprintf(paths[1], sizeof paths[1], "%s", scratch_path("text"));
    snprintf(paths[2], sizeof paths[2], "%s", scratch_path(""));
    snprintf(paths[3], sizeof paths[3], "%s", scratch_path("out/made.gguf"));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        tap_case_arg(commands[i].name, is_whole_or_absent_when_killed, (void *)&commands[i]);
    rmdir(scratch_path("out"));
    scratch_remove();
    return tap_end();
}
