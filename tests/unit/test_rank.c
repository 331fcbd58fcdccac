/*
 * Ranks: who has how much, what rank 0 may tell, and that ranks which do not fit together say so.
 * That they compute the same bits is tests/golden/test_ranks.c.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/hello.h"
#include "rank/rank.h"
#include "rank/rank_mpi.h"
#include "rank/record.h"
#include "runner/leader.h"
#include "tap.h"

/* ---- Shares ---------------------------------------------------------------------------------- */

static void shares_are_read(void)
{
    rank_shares s;
    lace_error err;
    CHECK(rank_shares_parse("4", &s, NULL) == LACE_OK && s.n_ranks == 4 && s.parts[3] == 1);
    CHECK(rank_shares_parse("3,1", &s, NULL) == LACE_OK && s.n_ranks == 2 && s.parts[0] == 3);
    const char *const bad[] = {"",  "0",  "-1", "2,",   ",2",       "1,0",
                               "a", "2x", "65", "1,,1", "9999999,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(rank_shares_parse(bad[i], &s, &err) == LACE_E_ARG);
}

/* Units are given out without gaps, and nobody goes without where there are enough. */
static void units_are_divided_among_all(void)
{
    const char *const texts[] = {"1", "2", "3", "3,1", "1,2,4", "1000000,1"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        rank_shares s;
        rank_shares_parse(texts[k], &s, NULL);
        for (int64_t n = 1; n < 200; n += 7) {
            CHECK(rank_begin(&s, n, 0) == 0 && rank_begin(&s, n, s.n_ranks) == n);
            for (int32_t r = 0; r < s.n_ranks; r++) {
                int64_t has = rank_begin(&s, n, r + 1) - rank_begin(&s, n, r);
                CHECK(has >= (n >= s.n_ranks ? 1 : 0));
            }
        }
        CHECK(rank_column(&s, 33, 2, s.n_ranks) == 33);
    }
    rank_shares s;
    rank_shares_parse("3,1", &s, NULL);
    CHECK(rank_begin(&s, 100, 1) > 70 && rank_begin(&s, 100, 1) < 80);
}

/* ---- Records --------------------------------------------------------------------------------- */

static const record_limits limits = {.n_batch = 8,
                                     .n_outputs = 4,
                                     .n_sequences = 2,
                                     .n_context = 64,
                                     .n_vocab = 100,
                                     .n_segments = 2,
                                     .pages_per_sequence = 2,
                                     .n_groups = 1,
                                     .n_pages = {4},
                                     .n_slots = 3};

/* A batch of two tokens, an output and an edit. */
static void write_batch(record_writer *w)
{
    record_begin(w, RECORD_RUN, 0);
    record_add(w,
               (int32_t[]){2, 1, 1, 0, /* tokens */ 5, 6, /* sequences */ 0, 1, /* positions */ 0,
                           63, /* outputs */ 1, /* edit */ 1, 0, 1, 3},
               15);
}

static lace_status read_words(const record_writer *w, int64_t n)
{
    record r;
    lace_error err;
    return record_read(w->words, n, &limits, &r, &err);
}

static void a_batch_is_read(void)
{
    record_writer w = {0};
    record r;
    write_batch(&w);
    CHECK(record_read(w.words, w.n, &limits, &r, NULL) == LACE_OK);
    CHECK(r.kind == RECORD_RUN && r.run.n_tokens == 2 && r.run.tokens[1] == 6);
    CHECK(r.run.positions[1] == 63 && r.run.outputs[0] == 1 && r.run.edits[0].page == 3);
    CHECK(!r.run.seen);
    record_deinit(&w);
}

/* Every word of a batch with a value that no rank may tell, and every shorter record. */
static void wrong_numbers_are_refused(void)
{
    const int32_t bad[] = {INT32_MIN, -2, 101, 1 << 20, INT32_MAX};
    record_writer w = {0};
    write_batch(&w);
    for (int64_t n = 0; n < w.n; n++)
        CHECK(read_words(&w, n) != LACE_OK);
    for (int64_t i = 0; i < w.n; i++)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            int32_t was = w.words[i];
            w.words[i] = bad[k];
            CHECK(read_words(&w, w.n) != LACE_OK);
            w.words[i] = was;
        }
    CHECK(read_words(&w, w.n) == LACE_OK);
    record_deinit(&w);
}

static lace_status read_copy(int32_t what, int32_t from, int32_t to)
{
    record_writer w = {0};
    record_begin(&w, RECORD_COPY, 0);
    record_add(&w, (int32_t[]){what, from, to}, 3);
    lace_status status = read_words(&w, w.n);
    record_deinit(&w);
    return status;
}

static void copies_stay_within_their_memory(void)
{
    CHECK(read_copy(0, 0, 3) == LACE_OK && read_copy(RECORD_SLOTS, 2, 0) == LACE_OK);
    CHECK(read_copy(RECORD_SLOTS, RECORD_NOTHING, 1) == LACE_OK);
    CHECK(read_copy(0, 4, 0) != LACE_OK && read_copy(0, 0, 4) != LACE_OK);
    CHECK(read_copy(0, RECORD_NOTHING, 0) != LACE_OK && read_copy(1, 0, 1) != LACE_OK);
    CHECK(read_copy(RECORD_SLOTS, 3, 0) != LACE_OK && read_copy(0, 1, 1) != LACE_OK);
}

/* ---- Agreement ------------------------------------------------------------------------------- */

/* What one of two ranks does. */
typedef struct part {
    ranks *end;
    hello own;
    lace_status given, status;
    cpu_level level;
    lace_error err;
} part;

static void *say_hello(void *arg)
{
    part *p = arg;
    p->level = (cpu_level)p->own.level;
    p->status = hello_exchange(p->end, &p->own, &p->level, &p->err);
    return NULL;
}

static void *say_how_it_went(void *arg)
{
    part *p = arg;
    if (p->given != LACE_OK)
        error_set(&p->err, p->given, "no room here");
    p->status = ranks_agree(p->end, p->given, &p->err);
    return NULL;
}

static void run_both(part p[2], void *(*fn)(void *))
{
    rank_shares s;
    ranks *ends[RANKS_MAX];
    pthread_t other;
    rank_shares_parse("2", &s, NULL);
    if (!CHECK(rank_threads_open(&s, ends, NULL) == LACE_OK))
        return;
    p[0].end = ends[0];
    p[1].end = ends[1];
    if (CHECK(pthread_create(&other, NULL, fn, &p[1]) == 0)) {
        fn(&p[0]);
        pthread_join(other, NULL);
    }
    ranks_close(ends[0]);
    ranks_close(ends[1]);
}

static hello some_hello(void)
{
    return (hello){.magic = "lacerank",
                   .protocol = HELLO_PROTOCOL,
                   .endian = 0x01020304,
                   .version = LACE_VERSION,
                   .host = "here",
                   .model = 1,
                   .options = 2,
                   .level = CPU_AVX512};
}

static void ranks_that_fit_take_the_lowest_level(void)
{
    part p[2] = {{.own = some_hello()}, {.own = some_hello()}};
    p[1].own.level = CPU_AVX2;
    run_both(p, say_hello);
    for (int i = 0; i < 2; i++)
        CHECK(p[i].status == LACE_OK && p[i].level == CPU_AVX2);
}

static void ranks_that_do_not_fit_are_named(void)
{
    static const struct {
        const char *word;
        lace_status status;
    } cases[] = {{"is lace 0.0.9", LACE_E_VERSION},
                 {"another model", LACE_E_META},
                 {"other options", LACE_E_ARG}};
    for (size_t k = 0; k < 3; k++) {
        part p[2] = {{.own = some_hello()}, {.own = some_hello()}};
        strcpy(p[1].own.host, "there");
        if (k == 0)
            strcpy(p[1].own.version, "0.0.9");
        p[1].own.model += k == 1;
        p[1].own.options += k == 2;
        run_both(p, say_hello);
        for (int i = 0; i < 2; i++) {
            CHECK(p[i].status == cases[k].status);
            CHECK(strstr(p[i].err.text, cases[k].word) && strstr(p[i].err.text, "rank 1 (there)"));
        }
    }
}

static void a_failure_of_one_rank_is_that_of_all(void)
{
    part p[2] = {{.given = LACE_OK}, {.given = LACE_E_NOMEM}};
    run_both(p, say_how_it_went);
    CHECK(p[0].status == LACE_E_NOMEM && strstr(p[0].err.text, "rank 1"));
    CHECK(p[1].status == LACE_E_NOMEM);
}

static void *hear_nothing(void *arg)
{
    part *p = arg;
    const int32_t *words;
    int64_t n;
    if (p->given != LACE_OK)
        ranks_fail(p->end, p->given, "gone");
    else
        p->status = ranks_hear(p->end, &words, &n);
    return NULL;
}

static void a_rank_that_gives_up_wakes_the_others(void)
{
    part p[2] = {{.given = LACE_E_IO}, {.given = LACE_OK}};
    run_both(p, hear_nothing);
    CHECK(p[1].status == LACE_E_IO);
}

/* ---- Networks -------------------------------------------------------------------------------- */

static void open_mpi(const char *net, const char *why)
{
    lace_error err = {0};
    ranks *r;
    rank_mpi_options o = {.net = net, .deadline_ms = 1000};
    CHECK(rank_mpi_open(&o, &r, &err) == LACE_E_ARG && !r);
    if (!CHECK(strstr(err.text, why)))
        tap_note("%s", err.text);
}

/* As mpirun would have started this program on two machines. */
static void networks_must_be_named_and_be_there(void)
{
    if (!system_has_children()) {
        tap_skip("this system has no ranks on several machines");
        return;
    }
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
    CHECK(rank_mpi_is_started());
    open_mpi(NULL, "need --rank-net");
    open_mpi("10.8.0.0", "expected a network");
    open_mpi("10.8.0.0/33", "expected a network");
    open_mpi("10.8.0/24x", "expected a network");
    open_mpi("203.0.113.77/32", "no address there"); /* kept for documents (RFC 5737) */
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    CHECK(!rank_mpi_is_started());
}

int main(void)
{
    CASE(shares_are_read);
    CASE(units_are_divided_among_all);
    CASE(a_batch_is_read);
    CASE(wrong_numbers_are_refused);
    CASE(copies_stay_within_their_memory);
    CASE(ranks_that_fit_take_the_lowest_level);
    CASE(ranks_that_do_not_fit_are_named);
    CASE(a_failure_of_one_rank_is_that_of_all);
    CASE(a_rank_that_gives_up_wakes_the_others);
    CASE(networks_must_be_named_and_be_there);
    return tap_end();
}
