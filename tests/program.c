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

bool program_write(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(program_path(name), "wb");
    bool ok = f && fwrite(data, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

size_t program_read(const char *name, char *into, size_t size)
{
    FILE *f = fopen(program_path(name), "rb");
    size_t n = f ? fread(into, 1, size - 1, f) : 0;
    into[n] = 0;
    if (f)
        fclose(f);
    return n;
}

bool program_exists(const char *name)
{
    return access(program_path(name), F_OK) == 0;
}

static void run_line(const char *before, const char *format, va_list args, const char *after)
{
    char command[2048], line[2400];
    vsnprintf(command, sizeof command, format, args);
    snprintf(line, sizeof line, "dir=%s; { %s%s%s ; } >%s/out 2>%s/err", folder, before, command,
             after, folder, folder);
    int status = system(line);
    program.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    program.n_out = program_read("out", program.out, sizeof program.out);
    program.n_err = program_read("err", program.err, sizeof program.err);
}

void program_run(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    run_line("\"$lace\" ", format, args, " </dev/null");
    va_end(args);
}

void program_sh(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    run_line("", format, args, "");
    va_end(args);
}

bool program_check_success(void)
{
    bool ok = CHECK(program.code == 0);
    if (!ok)
        tap_note("code %d: %s", program.code, program.err);
    return ok;
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
