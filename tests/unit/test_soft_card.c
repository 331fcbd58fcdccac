/*
 * The card made of software (tests/card): small kernels, written as PTX here, of which the answers are
 * known, and kernels that are wrong, which it must refuse. The library is opened by its path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

enum { ILLEGAL_ADDRESS = 700, INVALID_PTX = 218, OUT_OF_MEMORY = 2, N_WORDS = 4096 };

typedef unsigned long long address;

typedef struct launch_attribute {
    int id;
    char pad[4];
    int value[16];
} launch_attribute;

typedef struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    launch_attribute *attributes;
    unsigned n_attributes;
} launch_config;

#define DRIVER_LIST(X)                                                                             \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDevicePrimaryCtxRetain, (void **out, int device))                                          \
    X(cuCtxSetCurrent, (void *context))                                                            \
    X(cuMemAlloc_v2, (address * out, size_t n))                                                    \
    X(cuMemHostAlloc, (void **out, size_t n, unsigned flags))                                      \
    X(cuStreamCreate, (void **out, unsigned flags))                                                \
    X(cuStreamSynchronize, (void *stream))                                                         \
    X(cuMemcpyHtoDAsync_v2, (address to, const void *from, size_t n, void *stream))                \
    X(cuMemcpyDtoHAsync_v2, (void *to, address from, size_t n, void *stream))                      \
    X(cuStreamBeginCapture_v2, (void *stream, int mode))                                           \
    X(cuStreamEndCapture, (void *stream, void **graph))                                            \
    X(cuGraphLaunch, (void *graph, void *stream))                                                  \
    X(cuModuleLoadData, (void **out, const void *image))                                           \
    X(cuModuleGetFunction, (void **out, void *module, const char *name))                           \
    X(cuLaunchKernelEx, (const launch_config *c, void *function, void **params, void **extra))

static struct {
#define X(name, args) int(*name) args;
    DRIVER_LIST(X)
#undef X
    void *stream;
} driver;

/* ---- A fat binary with one text --------------------------------------------------------------- */

static void put(uint8_t *p, uint64_t x, int n_bytes)
{
    memcpy(p, &x, (size_t)n_bytes);
}

/* Images stay, because modules do. */
static void *image_of(const char *body)
{
    enum { OUTER = 16, INNER = 64 };
    const char *head = ".version 8.0\n.target sm_80\n.address_size 64\n"
                       ".visible .entry test(.param .u64 out, .param .u32 number)\n"
                       ".maxntid 1024, 1, 1\n{\n"
                       ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>;\n"
                       "ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [number];\n"
                       "mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x;\n"
                       "mad.lo.s32 %r5, %r3, %r4, %r2; mul.wide.u32 %rd2, %r5, 4;\n"
                       "add.s64 %rd3, %rd1, %rd2;\n";
    const char *tail = "\nst.global.u32 [%rd3], %r10;\nret;\n}\n";
    size_t n = strlen(head) + strlen(body) + strlen(tail);
    static void *kept[64];
    static int n_kept;
    uint8_t *image = calloc(1, OUTER + INNER + n + 1);
    CHECK(image && n_kept < 64);
    kept[n_kept] = image;
    put(image, 0xBA55ED50, 4);
    put(image + 4, 1, 2);
    put(image + 6, OUTER, 2);
    put(image + 8, INNER + n, 8);
    uint8_t *entry = image + OUTER;
    put(entry, 1, 2);
    put(entry + 4, INNER, 4);
    put(entry + 8, n, 8);
    put(entry + 28, 80, 4);
    snprintf((char *)entry + INNER, n + 1, "%s%s%s", head, body, tail);
    return kept[n_kept++];
}

/* Run a kernel with this body, which leaves a word for each thread in %r10. Returns the driver's answer. */
static int run_on(const char *body, unsigned blocks, unsigned threads, uint32_t number,
                  uint32_t shared_bytes, address out)
{
    void *module, *function, *params[] = {&out, &number};
    launch_config c = {{blocks, 1, 1}, {threads, 1, 1}, shared_bytes, driver.stream, NULL, 0};
    int r = driver.cuModuleLoadData(&module, image_of(body));
    if (r == 0)
        r = driver.cuModuleGetFunction(&function, module, "test");
    if (r == 0)
        r = driver.cuLaunchKernelEx(&c, function, params, NULL);
    return r ? r : driver.cuStreamSynchronize(driver.stream);
}

static uint32_t got[N_WORDS];

static int run(const char *body, unsigned blocks, unsigned threads, uint32_t number)
{
    static address out;
    if (!out)
        CHECK(driver.cuMemAlloc_v2(&out, sizeof got) == 0);
    int r = run_on(body, blocks, threads, number, 0, out);
    if (r == 0)
        r = driver.cuMemcpyDtoHAsync_v2(got, out, sizeof got, driver.stream);
    return r;
}

static bool start(void)
{
    char path[512];
    const char *tests = getenv("LACE_TESTS");
    snprintf(path, sizeof path, "%s/card/libcuda.so.1", tests ? tests : "build/tests");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *context;
    if (!library) {
        tap_note("%s", dlerror());
        return false;
    }
#define X(name, args)                                                                              \
    *(void **)&driver.name = dlsym(library, #name);                                                \
    if (!driver.name)                                                                              \
        return false;
    DRIVER_LIST(X)
#undef X
    return driver.cuInit(0) == 0 && driver.cuDevicePrimaryCtxRetain(&context, 0) == 0 &&
           driver.cuCtxSetCurrent(context) == 0 && driver.cuStreamCreate(&driver.stream, 0) == 0;
}

/* ---- What is right --------------------------------------------------------------------------- */

static void lanes_meet_again_behind_branches(void)
{
    /* Odd lanes loop as often as their number says; then all vote. */
    CHECK(run("mov.u32 %r10, 0; and.b32 %r6, %r2, 1; setp.eq.s32 %p1, %r6, 0; @%p1 bra $DONE;\n"
              "$AGAIN: add.s32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, %r2; @%p2 bra $AGAIN;\n"
              "$DONE: setp.ne.s32 %p3, %r10, 0; vote.sync.ballot.b32 %r7, %p3, -1;\n"
              "add.s32 %r10, %r10, %r7;",
              2, 64, 0) == 0);
    for (uint32_t i = 0; i < 128; i++)
        CHECK(got[i] == (i % 2 ? i % 64 : 0) + 0xAAAAAAAAu);
}

static void arithmetic_is_exact(void)
{
    static const struct {
        const char *text;
        uint32_t want;
    } cases[] = {
        {"mov.f32 %f1, 0f7F7FFFFF; add.rz.f32 %f2, %f1, %f1; mov.b32 %r10, %f2;", 0x7F7FFFFF},
        {"mov.f32 %f1, 0f3F800001; fma.rn.f32 %f2, %f1, %f1, 0fBF800002; mov.b32 %r10, %f2;",
         0x28800000},
        {"mov.f32 %f1, 0f7FC00000; max.f32 %f2, %f1, 0f3F800000; mov.b32 %r10, %f2;", 0x3F800000},
        {"mov.f32 %f1, 0f40200000; cvt.rni.s32.f32 %r10, %f1;", 2},
        {"mov.f32 %f1, 0f4F800000; cvt.rzi.s32.f32 %r10, %f1;", 0x7FFFFFFF},
        {"mov.f32 %f1, 0f477FF000; cvt.rn.f16x2.f32 %r10, %f1, 0f33000001;", 0x7C000001},
        {"mov.u32 %r6, 305419896; prmt.b32 %r10, %r6, -2128831036, 12108;", 0x34FFC4FF},
        {"mov.u32 %r6, 240; lop3.b32 %r10, %r6, 204, 170, 0xE8;", 0xE8},
        {"mov.u32 %r6, 1; mov.u32 %r7, 33; shl.b32 %r8, %r6, %r7; add.s32 %r10, %r8, 7;", 7},
        {"mov.u32 %r6, -7; div.s32 %r10, %r6, 2;", 0xFFFFFFFD},
        {"mov.u32 %r6, 255; bfi.b32 %r10, %r6, 0, 4, 4;", 0xF0},
        {"ex2.approx.ftz.f32 %f1, 0f40400000; mov.b32 %r10, %f1;", 0x41000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(run(cases[i].text, 1, 32, 0) == 0);
        if (!CHECK(got[31] == cases[i].want))
            tap_note("%s: %08x, expected %08x", cases[i].text, got[31], cases[i].want);
    }
}

static void blocks_that_wait_for_each_other_end(void)
{
    /* The first block waits for a word that the last one writes. Neither is of the same turn. */
    CHECK(run("mov.u32 %r10, 5; setp.ne.s32 %p1, %r3, 0; @%p1 bra $LAST;\n"
              "$WAIT: ld.volatile.global.u32 %r6, [%rd1+12]; setp.ne.s32 %p2, %r6, 5;\n"
              "@%p2 bra $WAIT;\n$LAST:",
              4, 1, 0) == 0);
    CHECK(got[0] == 5 && got[3] == 5);
}

static void memory_is_not_a_number_before_it_is_written(void)
{
    address out;
    CHECK(driver.cuMemAlloc_v2(&out, 4096) == 0);
    CHECK(run_on("ld.global.u32 %r10, [%rd3+512];", 1, 32, 0, 0, out) == 0);
    CHECK(driver.cuMemcpyDtoHAsync_v2(got, out, 128, driver.stream) == 0 && got[5] == 0xFFFFFFFF);
}

static void copies_arrive_when_they_are_waited_for(void)
{
    const char *both[2] = {"", "cp.async.commit_group; cp.async.wait_group 0;"};
    for (int waits = 0; waits < 2; waits++) {
        char body[512];
        snprintf(body, sizeof body,
                 ".shared .align 16 .b8 room[512]; st.global.u32 [%%rd3], %%r2;\n"
                 "mov.u32 %%r6, room; shl.b32 %%r7, %%r2, 2; add.s32 %%r8, %%r6, %%r7;\n"
                 "cp.async.ca.shared.global [%%r8], [%%rd3], 4;\n%s\nld.shared.u32 %%r10, [%%r8];",
                 both[waits]);
        CHECK(run(body, 1, 32, 0) == 0);
        CHECK(got[9] == (waits ? 9 : 0xFFFFFFFF));
    }
}

static void memory_of_a_card_has_an_end(void)
{
    address out;
    CHECK(driver.cuMemAlloc_v2(&out, (size_t)1 << 40) == OUT_OF_MEMORY);
}

/* ---- What is wrong --------------------------------------------------------------------------- */

static void what_is_not_known_is_refused(void)
{
    CHECK(run("tensormap.replace.tile.rank.global.b1024.b32 [%rd3], 2;", 1, 32, 0) == INVALID_PTX);
    CHECK(run("mov.u32 %r10, 1; bra $NOWHERE;", 1, 32, 0) == INVALID_PTX);
}

/* A card that failed computes nothing more, so each of these has a process of its own. `says`: what is
 * told; NULL: nothing is wrong. */
static void check_fault(const char *options, const char *body, unsigned threads, const char *says)
{
    char line[512] = "";
    fflush(stdout);
    FILE *told = tmpfile();
    CHECK(told);
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(told), STDERR_FILENO);
        setenv("LACE_CARD", options, 1);
        const int want = says ? ILLEGAL_ADDRESS : 0;
        int r = start() ? run(body, 1, threads, 0) : -1;
        int later = run("mov.u32 %r10, 1;", 1, 1, 0);
        _exit(r == want && later == want ? 0 : 1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    rewind(told);
    if (says)
        CHECK(fgets(line, sizeof line, told));
    if (says && !CHECK(strstr(line, says)))
        tap_note("expected: %s; told: %s", says, line);
    fclose(told);
}

static void faults_are_told_and_end_the_card(void)
{
    check_fault("", "ld.global.u32 %r10, [%rd3+1048576];", 32,
                "thread 0, line 12 of the PTX: 4 bytes");
    check_fault("",
                "setp.ne.s32 %p1, %r2, 17; @%p1 bra $END; st.global.u32 [%rd3+2], %r2;\n$END:", 32,
                "thread 17, line 12 of the PTX: address");
    check_fault("",
                ".shared .align 4 .b8 room[64]; mov.u32 %r6, room; shl.b32 %r7, %r2, 2;\n"
                "add.s32 %r8, %r6, %r7; st.shared.u32 [%r8], %r2;",
                32, "thread 16");
    check_fault("", "setp.lt.u32 %p1, %r2, 32; @%p1 bra $END; bar.sync 0; $END: bar.sync 1;", 64,
                "wait for each other");
    check_fault("", "setp.lt.u32 %p1, %r2, 16; @%p1 bra $END; bar.warp.sync -1; $END: bar.sync 1;",
                32, "wait for each other");
    /* 8 warps are launched with 248 registers for each thread. */
    check_fault("",
                "setp.lt.u32 %p1, %r2, 128; @%p1 bra $LESS;\n"
                "setmaxnreg.inc.sync.aligned.u32 256; bra $END;\n"
                "$LESS: setmaxnreg.dec.sync.aligned.u32 240;\n$END:",
                256, NULL);
    check_fault("",
                "setp.lt.u32 %p1, %r2, 128; @%p1 bra $LESS;\n"
                "setmaxnreg.inc.sync.aligned.u32 256; bra $END;\n"
                "$LESS: setmaxnreg.dec.sync.aligned.u32 248;\n$END:",
                256, "1024 registers too few are given back");
}

static void races_are_told_where_they_are_asked_for(void)
{
    /* Each thread reads what one of the other warp has written. */
    static const char body[] = ".shared .align 4 .b8 room[256]; mov.u32 %%r6, room;\n"
                               "shl.b32 %%r7, %%r2, 2; add.s32 %%r8, %%r6, %%r7;\n"
                               "xor.b32 %%r9, %%r7, 128; add.s32 %%r9, %%r6, %%r9;\n"
                               "st.shared.u32 [%%r8], %%r2; %s ld.shared.u32 %%r10, [%%r9];";
    char wrong[512], right[512];
    snprintf(wrong, sizeof wrong, body, "");
    snprintf(right, sizeof right, body, "bar.sync 0;");
    check_fault("races=1", wrong, 64, "no barrier lies between");
    check_fault("races=1", right, 64, NULL);
    check_fault("", wrong, 64, NULL);
}

/* Two launches of a graph, of which the second may begin early, read the word of a thread before or
 * behind their wait. */
static void check_early(const char *options, const char *waits, uint32_t want)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        static const char *const bodies[2] = {
            "griddepcontrol.launch_dependents; mov.u32 %r10, 7;",
            "%s ld.global.u32 %%r10, [%%rd3]; add.s32 %%r10, %%r10, 1;"};
        launch_attribute overlaps = {.id = 6, .value = {1}};
        address out = 0;
        uint32_t number = 0;
        void *graph, *params[] = {&out, &number};
        setenv("LACE_CARD", options, 1);
        bool done = start() && driver.cuMemAlloc_v2(&out, 128) == 0 &&
                    driver.cuStreamBeginCapture_v2(driver.stream, 1) == 0;
        for (int n = 0; done && n < 2; n++) {
            char body[256];
            void *module, *function;
            launch_config c = {{1, 1, 1}, {32, 1, 1}, 0, driver.stream, &overlaps, (unsigned)n};
            snprintf(body, sizeof body, bodies[n], waits);
            done = driver.cuModuleLoadData(&module, image_of(body)) == 0 &&
                   driver.cuModuleGetFunction(&function, module, "test") == 0 &&
                   driver.cuLaunchKernelEx(&c, function, params, NULL) == 0;
        }
        done = done && driver.cuStreamEndCapture(driver.stream, &graph) == 0 &&
               driver.cuGraphLaunch(graph, driver.stream) == 0 &&
               driver.cuMemcpyDtoHAsync_v2(got, out, 128, driver.stream) == 0;
        _exit(done && got[31] == want ? 0 : 1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void launches_that_begin_early_must_wait(void)
{
    check_early("major=9,early=1", "griddepcontrol.wait;", 8);
    check_early("major=9,early=1", "", 7); /* the second one has ended before the first began */
    check_early("major=9", "", 8);
    check_early("major=8,early=1", "", 8);
}

int main(void)
{
    /* Before there are threads. */
    CASE(faults_are_told_and_end_the_card);
    CASE(races_are_told_where_they_are_asked_for);
    CASE(launches_that_begin_early_must_wait);
    if (!CHECK(start()))
        return tap_end();
    CASE(lanes_meet_again_behind_branches);
    CASE(arithmetic_is_exact);
    CASE(blocks_that_wait_for_each_other_end);
    CASE(memory_is_not_a_number_before_it_is_written);
    CASE(copies_arrive_when_they_are_waited_for);
    CASE(memory_of_a_card_has_an_end);
    CASE(what_is_not_known_is_refused);
    return tap_end();
}
