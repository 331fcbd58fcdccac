/* The program in a test: run by a shell, with its output kept. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

program_result program;
static char folder[] = "/tmp/lace-test-XXXXXX";

bool program_begin(void)
{
    setenv("lace", getenv("LACE_BIN") ? getenv("LACE_BIN") : "build/lace", 1);
    if (access(getenv("lace"), X_OK) != 0 || !mkdtemp(folder)) {
        printf("Bail out! no program at %s\n", getenv("lace"));
        return false;
    }
    return true;
}

void program_end(void)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    if (system(line) != 0)
        tap_note("%s is left behind", folder);
}

const char *program_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t read_output(const char *name, char *into, size_t size)
{
    FILE *f = fopen(program_path(name), "rb");
    size_t n = f ? fread(into, 1, size - 1, f) : 0;
    into[n] = 0;
    if (f)
        fclose(f);
    return n;
}

void program_run(const char *format, ...)
{
    char arguments[1024], line[1400];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(line, sizeof line, "dir=%s; \"$lace\" %s </dev/null >%s/out 2>%s/err", folder,
             arguments, folder, folder);
    int status = system(line);
    program.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    program.n_out = read_output("out", program.out, sizeof program.out);
    program.n_err = read_output("err", program.err, sizeof program.err);
}

void program_check_error(const char *part)
{
    const char *end = strchr(program.err, '\n');
    bool ok = CHECK(program.code == 1);
    ok = CHECK(end && end[1] == 0) && ok;
    ok = CHECK(strncmp(program.err, "lace: ", 6) == 0) && ok;
    ok = CHECK(strstr(program.err, part) != NULL) && ok;
    ok = CHECK(program.n_out == 0) && ok;
    if (!ok)
        tap_note("code %d, expected \"%s\" in: %s", program.code, part, program.err);
}
