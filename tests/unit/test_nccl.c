/*
 * NCCL by dlopen: what it brings between ranks, and each way in which it can be missing as one line. A
 * library in its place (tests/preload/nccl_stub.c) works without cards and fails as it is told; this
 * program runs itself with it.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/nccl.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"

static const char *program;

/* ---- With the library in place --------------------------------------------------------------- */

enum { N_RANKS = 3, MOST = 70, ROUNDS = 5 };

static const uint64_t sizes[N_RANKS] = {64, 1, 5};
static uint8_t id[NCCL_ID_BYTES];

typedef struct member {
    int32_t rank;
    pthread_t thread;
    lace_status status;
    lace_error err;
    bool is_right;
} member;

/* Each gives what names it and the round, and finds what all others have given. */
static lace_status take_part(member *m, lace_error *err)
{
    nccl_comm *c;
    uint8_t data[N_RANKS][MOST];
    void *parts[N_RANKS];
    m->is_right = true;
    TRY(nccl_join(NULL, id, N_RANKS, m->rank, &c, err));
    lace_status status = LACE_OK;
    for (int round = 0; round < ROUNDS && status == LACE_OK; round++) {
        memset(data, 0xEE, sizeof data);
        for (int k = 0; k < N_RANKS; k++)
            parts[k] = data[k];
        memset(data[m->rank], 16 * round + m->rank, sizes[m->rank]);
        status = nccl_share(c, NULL, parts, sizes, err);
        for (int k = 0; k < N_RANKS; k++)
            for (uint64_t i = 0; i < MOST; i++)
                m->is_right = m->is_right && data[k][i] == (i < sizes[k] ? 16 * round + k : 0xEE);
    }
    nccl_leave(c);
    return status;
}

static void *run_member(void *arg)
{
    member *m = arg;
    m->status = take_part(m, &m->err);
    return NULL;
}

static int run_as_child(void)
{
    member all[N_RANKS] = {{0}};
    lace_error err = {0};
    if (nccl_make_id(id, &err) != LACE_OK) {
        printf("%s\n", err.text);
        return 0;
    }
    for (int k = 0; k < N_RANKS; k++) {
        all[k].rank = k;
        pthread_create(&all[k].thread, NULL, run_member, &all[k]);
    }
    for (int k = 0; k < N_RANKS; k++)
        pthread_join(all[k].thread, NULL);
    for (int k = 0; k < N_RANKS; k++)
        if (all[k].status != LACE_OK || !all[k].is_right) {
            printf("%s\n", all[k].status != LACE_OK ? all[k].err.text : "other bytes");
            return 0;
        }
    printf("fine%s\n", nccl_can_be_recorded() ? ", recorded" : "");
    return 0;
}

/* ---- The cases ------------------------------------------------------------------------------- */

/* What the program says with this library as libnccl.so.2; NULL: a file that is none. */
static const char *say_with(const char *library, const char *wishes)
{
    static char line[512];
    char from[1024], command[4096];
    const char *tests = getenv("LACE_TESTS");
    line[0] = 0;
    CHECK(scratch_create() != NULL);
    if (library) {
        snprintf(command, sizeof command, "%s/preload/%s", tests ? tests : "build/tests", library);
        if (!CHECK(realpath(command, from) != NULL) ||
            !CHECK(symlink(from, scratch_path("libnccl.so.2")) == 0))
            return line;
    } else {
        FILE *f = fopen(scratch_path("libnccl.so.2"), "w");
        if (CHECK(f != NULL))
            fclose(f);
    }
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s %s child", scratch_path(""), wishes,
             program);
    FILE *f = popen(command, "r");
    if (CHECK(f != NULL)) {
        if (!fgets(line, sizeof line, f))
            line[0] = 0;
        CHECK(pclose(f) == 0);
    }
    line[strcspn(line, "\n")] = 0;
    scratch_remove();
    return line;
}

static void check_line(const char *library, const char *wishes, const char *expected)
{
    const char *line = say_with(library, wishes);
    if (!CHECK(strcmp(line, expected) == 0))
        tap_note("%s: \"%s\", expected \"%s\"", wishes, line, expected);
}

static void three_ranks_share_unequal_parts(void)
{
    check_line("nccl_stub.so", "", "fine");
    check_line("nccl_stub.so", "STUB_NCCL_VERSION=22304", "fine, recorded");
}

static void a_missing_library_is_one_line(void)
{
    check_line(NULL, "", "no NCCL: libnccl.so.2 cannot be opened");
}

static void an_old_library_is_one_line(void)
{
    check_line("deaf.so", "", "NCCL is too old: it has no ncclGetVersion");
    check_line("nccl_stub.so", "STUB_NCCL_VERSION=2408",
               "NCCL is too old: version 2.4.8, expected 2.7.0");
    check_line("nccl_stub.so", "STUB_NCCL_VERSION=20906 STUB_NCCL_FAIL=ncclGetVersion",
               "NCCL is too old: version 0.0.0, expected 2.7.0");
}

static void a_call_that_fails_is_named(void)
{
    static const char *const calls[] = {"ncclGetUniqueId", "ncclCommInitRank", "ncclGroupStart",
                                        "ncclBroadcast", "ncclGroupEnd"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char wish[128], expected[128];
        snprintf(wish, sizeof wish, "STUB_NCCL_FAIL=%s", calls[i]);
        snprintf(expected, sizeof expected, "NCCL: %s: internal error", calls[i]);
        check_line("nccl_stub.so", wish, expected);
    }
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 1)
        return run_as_child();
    CASE(three_ranks_share_unequal_parts);
    CASE(a_missing_library_is_one_line);
    CASE(an_old_library_is_one_line);
    CASE(a_call_that_fails_is_named);
    return tap_end();
}
