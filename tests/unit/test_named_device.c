/*
 * Programs of tests that LACE_DEVICE sends to another device: where that is not there they fail, and
 * say so.
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static void a_device_that_is_not_there_is_one_failed_case(void *arg)
{
    const char *build = getenv("LACE_TESTS") ? getenv("LACE_TESTS") : "build/tests";
    char command[4096], output[1 << 14];
    snprintf(command, sizeof command, "%s/%s", build, (const char *)arg);
    if (access(command, X_OK) != 0) {
        tap_skip("no %s", command);
        return;
    }
    snprintf(command, sizeof command, "LACE_DEVICE=cuda:77 '%s/%s' 2>&1", build, (const char *)arg);
    FILE *f = popen(command, "r");
    if (!CHECK(f != NULL))
        return;
    size_t n = fread(output, 1, sizeof output - 1, f);
    output[n] = 0;
    int status = pclose(f);
    bool ok = CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ok = CHECK(strstr(output, "\n1..1\n") != NULL) && ok;
    ok = CHECK(strstr(output, "CUDA") || strstr(output, "driver") ||
               strstr(output, "GPU number 77")) &&
         ok;
    if (!ok)
        tap_note("status %d: %.2000s", status, output);
}

int main(void)
{
    static const char *const programs[] = {
        "unit/test_batcher", "unit/test_calibrate", "unit/test_cuda_types", "unit/test_guess",
        "unit/test_lora",    "unit/test_mtp",       "unit/test_overlap"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        tap_case_arg(programs[i], a_device_that_is_not_there_is_one_failed_case,
                     (void *)(uintptr_t)programs[i]);
    return tap_end();
}
