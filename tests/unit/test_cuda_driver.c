/*
 * Drivers and cards that fail: each is one line that says what to do. A library in the place of the
 * driver's (tests/preload/cuda_stub.c, cuda_old.c) fails as it is told; this program runs itself
 * with it.
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"

static const char *program;

/* ---- With the driver in place ---------------------------------------------------------------- */

/* All that a session does with a card, in short. */
static lace_status use_card(cuda_device *d, lace_error *err)
{
    cuda_queue *q = NULL;
    cuda_module *m = NULL;
    void *memory = NULL;
    uint8_t byte = 0;
    lace_status status;
    TRY_GOTO(status, done, cuda_module_load(d, "", &m, err));
    TRY_GOTO(status, done, cuda_alloc(d, (uint64_t)64 << 20, &memory, err));
    TRY_GOTO(status, done, cuda_queue_create(d, &q, err));
    TRY_GOTO(status, done, cuda_copy_to(q, memory, &byte, 1, err));
    cuda_launch l = {.kernel = cuda_module_find(m, "any")};
    void *no_params[] = {NULL};
    TRY_GOTO(status, done, cuda_run(q, &l, no_params, err));
    TRY_GOTO(status, done, cuda_wait(q, err));
done:
    cuda_queue_free(q);
    cuda_free(d, memory);
    cuda_module_free(m);
    return status;
}

static int run_as_child(void)
{
    lace_error err = {0};
    cuda_device *d = NULL;
    lace_status status = cuda_open(0, &d, &err);
    if (status == LACE_OK)
        status = use_card(d, &err);
    cuda_close(d);
    printf("%d %s\n", (int)status, status == LACE_OK ? "fine" : err.text);
    return 0;
}

/* ---- The cases ------------------------------------------------------------------------------- */

/* What the program says with this library as its driver. */
static const char *say_with(const char *library, const char *wish)
{
    static char line[512];
    char from[1024], command[4096];
    const char *tests = getenv("LACE_TESTS");
    line[0] = 0;
    CHECK(scratch_create() != NULL);
    snprintf(command, sizeof command, "%s/preload/%s", tests ? tests : "build/tests", library);
    if (!CHECK(realpath(command, from) != NULL) ||
        !CHECK(symlink(from, scratch_path("libcuda.so.1")) == 0))
        return line;
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s LACE_STUB=%s %s child", scratch_path(""),
             wish, program);
    FILE *f = popen(command, "r");
    CHECK(f && fgets(line, sizeof line, f) != NULL);
    CHECK(f && pclose(f) == 0);
    scratch_remove();
    line[strcspn(line, "\n")] = 0;
    tap_note("%s", line);
    return line;
}

static void check_says(const char *library, const char *wish, lace_status status, const char *words)
{
    const char *line = say_with(library, wish);
    CHECK(atoi(line) == (int)status && strstr(line, words));
}

static void a_driver_that_works_is_used(void)
{
    check_says("cuda_stub.so", "", LACE_OK, "fine");
}

static void a_driver_that_is_too_old_is_named(void)
{
    check_says("cuda_old.so", "", LACE_E_DEVICE,
               "the NVIDIA driver is too old: it has no cuDriverGetVersion");
    check_says("cuda_stub.so", "cuModuleLoadData=222", LACE_E_DEVICE,
               "the NVIDIA driver (CUDA 12.4) is too old for the kernels of this lace");
    check_says("cuda_stub.so", "cuInit=100", LACE_E_DEVICE,
               "the NVIDIA driver does not start: CUDA_ERROR_NO_DEVICE");
}

static void a_full_card_says_what_is_free(void)
{
    check_says("cuda_stub.so", "cuMemAlloc_v2=2", LACE_E_MEMORY,
               "64.0 MiB are needed, but only 3.0 of 1024.0 MiB are free");
    check_says("cuda_stub.so", "cuDevicePrimaryCtxRetain=2", LACE_E_MEMORY, "OUT_OF_MEMORY");
}

static void a_kernel_that_fails_ends_the_use_of_the_card(void)
{
    static const char *const wishes[] = {"cuStreamSynchronize=700", "cuStreamSynchronize=719",
                                         "cuLaunchKernelEx=719", "cuMemcpyHtoDAsync_v2=700"};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        check_says("cuda_stub.so", wishes[i], LACE_E_DEVICE,
                   "the GPU computes nothing more for this process; start lace again");
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 1)
        return run_as_child();
    CASE(a_driver_that_works_is_used);
    CASE(a_driver_that_is_too_old_is_named);
    CASE(a_full_card_says_what_is_free);
    CASE(a_kernel_that_fails_ends_the_use_of_the_card);
    return tap_end();
}
