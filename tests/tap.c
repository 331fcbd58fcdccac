/* The test harness: TAP lines for `prove`. */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>

static int n_cases;
static int n_failed;
static bool case_failed;
static char skip_reason[256];

void tap_case_arg(const char *name, void (*fn)(void *), void *arg)
{
    case_failed = false;
    skip_reason[0] = 0;
    fn(arg);
    n_cases++;
    if (case_failed)
        n_failed++;
    printf("%sok %d - %s%s%s\n", case_failed ? "not " : "", n_cases, name,
           skip_reason[0] && !case_failed ? " # SKIP " : "", case_failed ? "" : skip_reason);
    fflush(stdout);
}

static void call_plain(void *arg)
{
    void (**fn)(void) = arg;
    (*fn)();
}

void tap_case(const char *name, void (*fn)(void))
{
    tap_case_arg(name, call_plain, &fn);
}

bool tap_check(bool ok, const char *file, int line, const char *what)
{
    if (!ok) {
        printf("# %s:%d: %s\n", file, line, what);
        case_failed = true;
    }
    return ok;
}

void tap_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("# ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

void tap_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(skip_reason, sizeof skip_reason, format, args);
    va_end(args);
}

int tap_end(void)
{
    printf("1..%d\n", n_cases);
    return n_failed ? 1 : 0;
}
