/* The program in a test: run by a shell, with its output kept. */
#define _POSIX_C_SOURCE 200809L
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

command_result ran;
static char folder[] = "/tmp/lace-test-XXXXXX";

bool command_begin(void)
{
    setenv("lace", getenv("LACE_BIN") ? getenv("LACE_BIN") : "build/lace", 1);
    if (access(getenv("lace"), X_OK) != 0 || !mkdtemp(folder)) {
        printf("Bail out! no program at %s\n", getenv("lace"));
        return false;
    }
    return true;
}

void command_end(void)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    if (system(line) != 0)
        tap_note("%s is left behind", folder);
}

const char *command_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

bool command_write(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(command_path(name), "wb");
    bool ok = f && fwrite(data, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

size_t command_read(const char *name, char *into, size_t size)
{
    FILE *f = fopen(command_path(name), "rb");
    size_t n = f ? fread(into, 1, size - 1, f) : 0;
    into[n] = 0;
    if (f)
        fclose(f);
    return n;
}

bool command_exists(const char *name)
{
    return access(command_path(name), F_OK) == 0;
}

static void run_line(const char *before, const char *format, va_list args, const char *after)
{
    char command[2048], line[2400];
    vsnprintf(command, sizeof command, format, args);
    snprintf(line, sizeof line, "dir=%s; { %s%s%s ; } >%s/out 2>%s/err", folder, before, command,
             after, folder, folder);
    int status = system(line);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ran.n_out = command_read("out", ran.out, sizeof ran.out);
    ran.n_err = command_read("err", ran.err, sizeof ran.err);
}

void command_run(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    run_line("\"$lace\" ", format, args, " </dev/null");
    va_end(args);
}

void command_sh(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    run_line("", format, args, "");
    va_end(args);
}

bool command_check_success(void)
{
    bool ok = CHECK(ran.code == 0);
    if (!ok)
        tap_note("code %d: %s", ran.code, ran.err);
    return ok;
}

void command_check_error(const char *part)
{
    const char *end = strchr(ran.err, '\n');
    bool ok = CHECK(ran.code == 1);
    ok = CHECK(end && end[1] == 0) && ok;
    ok = CHECK(strncmp(ran.err, "lace: ", 6) == 0) && ok;
    ok = CHECK(strstr(ran.err, part) != NULL) && ok;
    ok = CHECK(ran.n_out == 0) && ok;
    if (!ok)
        tap_note("code %d, expected \"%s\" in: %s", ran.code, part, ran.err);
}
