/* A record log gives back what was added, and nothing else, wherever it was cut or changed. */
#define _GNU_SOURCE
#include "base/record_log.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "tap.h"

enum { N_RECORDS = 5 };

static char seen[64]; /* the first byte of each record */
static size_t n_seen;

static void on_record(void *user, span record)
{
    CHECK(user == seen && record.size > 0 && n_seen < sizeof seen - 1);
    for (size_t i = 1; i < record.size; i++)
        CHECK(record.data[i] == record.data[0]);
    seen[n_seen++] = (char)record.data[0];
}

static record_log *reopen(uint64_t max_bytes)
{
    record_log *l;
    memset(seen, 0, sizeof seen);
    n_seen = 0;
    CHECK(record_log_open(scratch_path("log"), max_bytes, on_record, seen, &l, NULL) == LACE_OK);
    return l;
}

static void add(record_log *l, char c, size_t n)
{
    char bytes[100];
    memset(bytes, c, n);
    record_log_add(l, bytes, n);
}

static void write_five(void)
{
    unlink(scratch_path("log"));
    record_log *l = reopen(1 << 20);
    for (int i = 0; i < N_RECORDS; i++)
        add(l, (char)('a' + i), 10);
    record_log_close(l);
}

static void records_come_back_in_order(void)
{
    write_five();
    record_log *l = reopen(1 << 20);
    CHECK(strcmp(seen, "abcde") == 0);
    add(l, 'f', 100);
    record_log_close(l);
    record_log_close(reopen(1 << 20));
    CHECK(strcmp(seen, "abcdef") == 0);
}

static void a_log_that_was_cut_has_the_records_before(void)
{
    enum { EACH = 4 + 32 + 10 };
    for (off_t at = 0; at <= N_RECORDS * EACH; at += 7) {
        write_five();
        CHECK(truncate(scratch_path("log"), at) == 0);
        record_log *l = reopen(1 << 20);
        CHECK(n_seen == (size_t)(at / EACH));
        add(l, 'z', 3);
        record_log_close(l);
        record_log_close(reopen(1 << 20));
        CHECK(n_seen == (size_t)(at / EACH) + 1 && seen[n_seen - 1] == 'z');
    }
}

static void a_changed_byte_ends_the_log(void)
{
    for (long at = 0; at < 230; at += 9) {
        write_five();
        FILE *f = fopen(scratch_path("log"), "r+b");
        CHECK(f && fseek(f, at, SEEK_SET) == 0);
        int c = fgetc(f);
        CHECK(fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 0x80, f) != EOF && fclose(f) == 0);
        record_log_close(reopen(1 << 20));
        CHECK(n_seen == (size_t)(at / 46) && strncmp(seen, "abcde", n_seen) == 0);
    }
}

static void a_log_begins_anew_where_it_would_be_too_large(void)
{
    write_five();
    record_log *l = reopen(260);
    CHECK(n_seen == N_RECORDS);
    add(l, 'x', 20); /* 230 bytes and these are too many */
    add(l, 'y', 100);
    record_log_close(l);
    record_log_close(reopen(260));
    CHECK(strcmp(seen, "xy") == 0);
    record_log_close(reopen(100)); /* larger than allowed from the beginning */
    CHECK(n_seen == 0);
}

static void what_is_no_file_is_refused_by_name(void)
{
    record_log *l;
    lace_error err = {0};
    CHECK(mkdir(scratch_path("folder"), 0700) == 0);
    CHECK(record_log_open(scratch_path("folder"), 10, on_record, seen, &l, &err) == LACE_E_IO &&
          !l && strstr(err.text, "folder"));
    rmdir(scratch_path("folder"));
}

int main(void)
{
    if (!scratch_create())
        return 1;
    CASE(records_come_back_in_order);
    CASE(a_log_that_was_cut_has_the_records_before);
    CASE(a_changed_byte_ends_the_log);
    CASE(a_log_begins_anew_where_it_would_be_too_large);
    CASE(what_is_no_file_is_refused_by_name);
    scratch_remove();
    return tap_end();
}
