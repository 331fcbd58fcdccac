/* base/: bytes, buf, arena, numbers, hash, utf8, threads, file. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "scratch.h"
#include "tap.h"

static void cursor_stops_at_the_end_and_says_where(void)
{
    const uint8_t bytes[] = {1, 2, 3, 4, 5};
    cursor c = {{bytes, sizeof bytes}, 0};
    lace_error err;
    uint32_t value;
    CHECK(cursor_u32(&c, &value, "first", &err) == LACE_OK && value == 0x04030201);
    CHECK(cursor_u32(&c, &value, "second", &err) == LACE_E_TRUNC);
    CHECK(strcmp(err.text, "at byte 4: second: needs 4 bytes, 1 are left") == 0);
    span s;
    CHECK(cursor_take(&c, UINT64_MAX, &s, "huge", &err) == LACE_E_TRUNC && s.data == NULL);
    CHECK(c.at == 4);
}

static void error_text_is_one_line(void)
{
    lace_error err;
    error_set(&err, LACE_E_NAME, "name '%s'", "a\nb\x1b[2J");
    CHECK(strchr(err.text, '\n') == NULL && strchr(err.text, 0x1b) == NULL);
    error_prefix(&err, LACE_E_NAME, "file.gguf");
    CHECK(strncmp(err.text, "file.gguf: name", 15) == 0);
}

static void buffer_keeps_its_maximum(void)
{
    buf b;
    buf_init(&b, 10);
    CHECK(buf_append_text(&b, "12345") == LACE_OK);
    CHECK(buf_append_text(&b, "123456") == LACE_E_LIMIT);
    CHECK(buf_printf(&b, "%d", 67890) == LACE_OK);
    CHECK(b.size == 10 && strcmp(b.data, "1234567890") == 0);
    CHECK(buf_append(&b, "x", 1) == LACE_E_LIMIT);
    buf_deinit(&b);
}

static void arena_hands_out_zeroed_aligned_memory(void)
{
    arena a;
    arena_init(&a, 1 << 20);
    for (size_t n = 1; n < 300; n += 7) {
        unsigned char *p = arena_alloc(&a, n, 1);
        CHECK(p && (uintptr_t)p % 16 == 0);
        CHECK(n < 64 || (uintptr_t)p % 64 == 0);
        for (size_t i = 0; p && i < n; i++)
            CHECK(p[i] == 0);
        memset(p, 0xAA, n);
    }
    CHECK(arena_alloc(&a, SIZE_MAX, 2) == NULL);
    CHECK(arena_alloc(&a, 2 << 20, 1) == NULL);
    arena_deinit(&a);
}

static void map_finds_what_was_added_and_refuses_twins(void)
{
    map m;
    map_init(&m);
    static char keys[5000][16];
    for (int i = 0; i < 5000; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        CHECK(map_add(&m, text_of(keys[i]), i) == LACE_OK);
    }
    for (int i = 0; i < 5000; i++)
        CHECK(map_find(&m, text_of(keys[i])) == i);
    CHECK(map_add(&m, text_of("k17"), 1) == LACE_E_DUP);
    CHECK(map_find(&m, text_of("absent")) == -1);
    /* Counted, not terminated: a NUL inside is part of the name. */
    CHECK(map_find(&m, (text){"k1\0", 3}) == -1);
    map_deinit(&m);
}

static void utf8_rejects_what_unicode_forbids(void)
{
    const char *bad[] = {"\xC0\x80", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                         "\xFF",     "\xE2\x82",     "\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!utf8_is_valid(bad[i], strlen(bad[i])));
    const char *good = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\xA6\x99\xEF\xBF\xBD";
    CHECK(utf8_is_valid(good, strlen(good)));
    for (uint32_t code = 0; code < 0x110000; code += code == 0xD7FF ? 0x801 : 1) {
        char out[4];
        uint32_t back;
        int n = utf8_encode(code, out);
        if (utf8_decode(out, (size_t)n, &back) != n || back != code) {
            CHECK(!"round trip");
            break;
        }
    }
}

static void utf8_holds_back_cut_characters(void)
{
    const char *s = "a\xF0\x9F\xA6\x99";
    CHECK(utf8_complete_prefix(s, 2) == 1);
    CHECK(utf8_complete_prefix(s, 3) == 1);
    CHECK(utf8_complete_prefix(s, 4) == 1);
    CHECK(utf8_complete_prefix(s, 5) == 5);
    CHECK(utf8_complete_prefix("a\x80", 2) == 2);
    CHECK(utf8_complete_prefix("a\xFF", 2) == 2);
}

typedef struct count_job {
    pool *p;
    atomic_int phase_counts[100];
    atomic_int n_errors;
} count_job;

static void count_phases(void *arg, int worker, int n_workers)
{
    count_job *job = arg;
    for (int i = 0; i < 100; i++) {
        atomic_fetch_add(&job->phase_counts[i], 1);
        pool_barrier(job->p);
        if (atomic_load(&job->phase_counts[i]) != n_workers)
            atomic_fetch_add(&job->n_errors, 1);
        pool_barrier(job->p);
    }
}

static void pool_barrier_separates_phases(void)
{
    for (int n = 1; n <= 5; n++) {
        pool *p;
        static count_job job;
        CHECK(pool_create(n, &p, NULL) == LACE_OK);
        for (int round = 0; round < 20; round++) {
            memset(&job, 0, sizeof job);
            job.p = p;
            pool_run(p, count_phases, &job);
            CHECK(atomic_load(&job.n_errors) == 0);
            CHECK(atomic_load(&job.phase_counts[99]) == n);
        }
        pool_free(p);
    }
}

typedef struct piece_job {
    pool *p;
    handout phases[50];
    atomic_int done[50][37];
    atomic_int n_errors;
} piece_job;

static void take_pieces(void *arg, int index, int count)
{
    piece_job *job = arg;
    for (int i = 0; i < 50; i++) {
        uint32_t piece;
        while (handout_claim(&job->phases[i], 37, &piece)) {
            atomic_fetch_add(&job->done[i][piece], 1);
            handout_finish(job->p, &job->phases[i], 37);
        }
        handout_wait(job->p, &job->phases[i], 37);
        for (int k = 0; k < 37; k++)
            if (atomic_load(&job->done[i][k]) != 1)
                atomic_fetch_add(&job->n_errors, 1);
    }
}

static void pieces_are_done_once_and_before_the_next_phase(void)
{
    for (int n = 1; n <= 5; n++) {
        static piece_job job;
        pool *p;
        CHECK(pool_create(n, &p, NULL) == LACE_OK);
        for (int round = 0; round < 20; round++) {
            memset(&job, 0, sizeof job);
            job.p = p;
            pool_run(p, take_pieces, &job);
            CHECK(atomic_load(&job.n_errors) == 0);
        }
        pool_free(p);
    }
}

static void shares_cover_everything_once(void)
{
    for (int64_t n = 0; n < 200; n += 13)
        for (int w = 1; w < 7; w++) {
            int64_t next = 0;
            for (int i = 0; i < w; i++) {
                int64_t begin, end;
                pool_share(n, 16, i, w, &begin, &end);
                CHECK(begin == next && end >= begin);
                next = end;
            }
            CHECK(next == n);
        }
}

static void failing_allocation_is_reported(void)
{
    mem_fail_at(0, false);
    CHECK(mem_alloc(10) == NULL);
    void *p = mem_alloc(10);
    CHECK(p != NULL);
    mem_free(p);
    mem_fail_at(-1, false);
}

/* What is no file is refused at once: a pipe that nobody writes into, too. */
static void only_files_are_mapped(void)
{
    file_map file;
    lace_error err;
    CHECK(scratch_create() != NULL);
    bool has_pipes = mkfifo(scratch_path("pipe"), 0600) == 0;
    CHECK(has_pipes || errno == ENOSYS);
    CHECK(!has_pipes || file_map_open(scratch_path("pipe"), &file, &err) == LACE_E_IO);
    CHECK(!has_pipes || strstr(err.text, "not a regular file") != NULL);
    CHECK(file_map_open("/dev/null", &file, &err) == LACE_E_IO);
    CHECK(scratch_write("file", "abc") && file_map_open(scratch_path("file"), &file, &err) == 0);
    CHECK(file.bytes.size == 3 && memcmp(file.bytes.data, "abc", 3) == 0);
    file_map_close(&file);
    scratch_remove();
}

static void numbers_round_up_to_whole_groups(void)
{
    CHECK(round_up(0, 64) == 0 && round_up(1, 64) == 64 && round_up(64, 64) == 64);
    CHECK(round_up(65, 64) == 128 && round_up(7, 3) == 9);
    CHECK(divide_up(0, 256) == 0 && divide_up(1, 256) == 1 && divide_up(256, 256) == 1);
    CHECK(divide_up(257, 256) == 2);
    CHECK(min_i64(-1, 1) == -1 && max_i64(-1, 1) == 1);
}

static void arrays_grow_and_stay_when_memory_is_out(void)
{
    uint32_t *items = NULL;
    size_t capacity = 0, n = 0;
    for (; n < 100; n++) {
        if (!CHECK(mem_grow(&items, n, &capacity, sizeof *items, 3)))
            return;
        items[n] = (uint32_t)n;
    }
    CHECK(capacity == 192 && items[0] == 0 && items[99] == 99);
    mem_fail_at(0, false);
    CHECK(mem_grow(&items, n, &capacity, sizeof *items, 3)); /* there is room */
    CHECK(!mem_grow(&items, capacity, &capacity, sizeof *items, 3) && capacity == 192);
    mem_fail_at(-1, false);
    CHECK(items[99] == 99 && !mem_grow(&items, capacity, &capacity, SIZE_MAX / 4, 3));
    mem_free(items);
}

int main(void)
{
    CASE(cursor_stops_at_the_end_and_says_where);
    CASE(error_text_is_one_line);
    CASE(buffer_keeps_its_maximum);
    CASE(arena_hands_out_zeroed_aligned_memory);
    CASE(numbers_round_up_to_whole_groups);
    CASE(arrays_grow_and_stay_when_memory_is_out);
    CASE(map_finds_what_was_added_and_refuses_twins);
    CASE(utf8_rejects_what_unicode_forbids);
    CASE(utf8_holds_back_cut_characters);
    CASE(pool_barrier_separates_phases);
    CASE(pieces_are_done_once_and_before_the_next_phase);
    CASE(shares_cover_everything_once);
    CASE(failing_allocation_is_reported);
    CASE(only_files_are_mapped);
    return tap_end();
}
