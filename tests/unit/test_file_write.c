/* base/file_write: a file is there whole or not at all. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_write.h"
#include "scratch.h"
#include "tap.h"

static char block[300000];

/* Write 4 bytes, a block longer than the buffer, 4 bytes. */
static lace_status write_file(const char *path, lace_error *err)
{
    file_writer *w = NULL;
    lace_status status = file_writer_create(path, &w, err);
    for (int i = 0; status == LACE_OK && i < 3; i++)
        status = file_writer_write(w, i == 1 ? block : "tiny", i == 1 ? sizeof block : 4, err);
    if (status == LACE_OK)
        return file_writer_commit(w, err);
    file_writer_abort(w);
    return status;
}

static bool is_complete(const char *path)
{
    static char got[sizeof block + 9];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(got, 1, sizeof got, f) : 0;
    if (f)
        fclose(f);
    return n == sizeof block + 8 && memcmp(got, "tiny", 4) == 0 &&
           memcmp(got + 4, block, sizeof block) == 0 && memcmp(got + n - 4, "tiny", 4) == 0;
}

/* A full disk at every call: with a free name and over an old file, with whole and short writes. */
static void a_full_disk_leaves_the_old_file(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    for (int mode = 0; mode < 4; mode++) {
        bool has_old = mode & 1, is_short = mode & 2;
        long i = 0;
        for (; CHECK(i < 1000); i++) {
            const char *path = scratch_path("out");
            lace_error err = {0};
            unlink(path);
            if (has_old)
                CHECK(scratch_write("out", "old"));
            file_writer_fail_at(i, is_short);
            lace_status status = write_file(path, &err);
            bool is_over = file_writer_calls() <= i;
            file_writer_fail_at(-1, false);
            if (is_over) {
                CHECK(status == LACE_OK && is_complete(path));
                break;
            }
            CHECK(status == LACE_E_IO && strstr(err.text, "No space left") != NULL);
            bool was_last_step = strstr(err.text, "directory") != NULL;
            if (was_last_step)
                CHECK(is_complete(path));
            else if (has_old)
                CHECK(scratch_holds("out", "old"));
            else
                CHECK(access(path, F_OK) != 0);
            CHECK(scratch_count() == (has_old || was_last_step));
        }
        CHECK(i >= 7); /* create, write three times, flush, link, flush the directory */
        tap_note("%s, %s writes: %ld calls failed", has_old ? "over an old file" : "new file",
                 is_short ? "short" : "whole", i);
    }
    scratch_remove();
}

/* A child writes the same file again and again; whenever it is killed, the file is whole. */
static void a_killed_writer_leaves_no_partial_file(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    int n_there = 0;
    for (int i = 0; i < 100; i++) {
        const char *path = scratch_path("out");
        unlink(path);
        pid_t child = fork();
        if (child < 0 && errno == ENOSYS) {
            tap_skip("this system copies no process");
            scratch_remove();
            return;
        }
        if (child == 0) {
            for (;;)
                write_file(path, NULL);
        }
        if (!CHECK(child > 0))
            break;
        /* From "hardly begun" to "many times". */
        usleep((useconds_t)(i * 97 % 5000));
        for (int wait = 0; i >= 90 && access(path, F_OK) != 0 && wait < 10000; wait++)
            usleep(1000); /* the last ones until there is a file, however slow the machine */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        bool is_there = access(path, F_OK) == 0;
        n_there += is_there;
        CHECK(!is_there || is_complete(path));
    }
    tap_note("killed 100 times, %d with a file", n_there);
    CHECK(n_there >= 10);
    scratch_remove();
}

static void file_writer_refuses_what_is_no_file(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    file_writer *w;
    lace_error err;
    CHECK(file_writer_create("/dev/null", &w, &err) == LACE_E_IO && !w);
    CHECK(file_writer_create(scratch_path("."), &w, &err) == LACE_E_IO && !w);
    CHECK(file_writer_create(scratch_path("no/such/folder"), &w, &err) == LACE_E_IO && !w);
    CHECK(file_writer_create("", &w, &err) == LACE_E_ARG && !w);
    CHECK(scratch_count() == 0);
    scratch_remove();
}

static void file_writer_follows_links(void)
{
    file_writer *w;
    lace_error err;
    if (!CHECK(scratch_create() != NULL))
        return;
    int made = symlink("target", scratch_path("link"));
    if (made != 0 && errno == ENOSYS) {
        tap_skip("this system has no symbolic links");
        scratch_remove();
        return;
    }
    CHECK(made == 0);
    CHECK(scratch_write("target", "old"));
    CHECK(chmod(scratch_path("target"), 0600) == 0);
    CHECK(file_writer_create(scratch_path("link"), &w, &err) == LACE_OK);
    CHECK(file_writer_write(w, "new!", 4, &err) == LACE_OK);
    CHECK(file_writer_commit(w, &err) == LACE_OK);
    struct stat st;
    CHECK(lstat(scratch_path("link"), &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(stat(scratch_path("target"), &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(scratch_holds("target", "new!"));
    CHECK(scratch_count() == 2);
    scratch_remove();
}

/* ---- Rules ----------------------------------------------------------------------------------- */

static lace_status write_by(const file_rules *rules, const char *while_written, lace_error *err)
{
    file_writer *w;
    TRY(file_writer_create_by(scratch_path("out"), rules, &w, err));
    CHECK(file_writer_write(w, "new", 3, err) == LACE_OK);
    if (while_written)
        CHECK(scratch_write("out", while_written));
    return file_writer_commit(w, err);
}

static void a_file_that_comes_meanwhile_stays(void)
{
    file_rules rules = {.keeps_old = true};
    lace_error err;
    if (!CHECK(scratch_create() != NULL))
        return;
    CHECK(write_by(&rules, "theirs", &err) == LACE_E_IO && strstr(err.text, "exists already"));
    CHECK(scratch_holds("out", "theirs") && scratch_count() == 1);
    CHECK(write_by(&rules, NULL, &err) == LACE_E_IO && scratch_holds("out", "theirs"));
    rules.keeps_old = false;
    CHECK(write_by(&rules, "theirs", &err) == LACE_OK && scratch_holds("out", "new"));
    CHECK(scratch_count() == 1);
    scratch_remove();
}

static lace_status refuse(void *user, span bytes, lace_error *err)
{
    *(bool *)user = bytes.size == 3 && memcmp(bytes.data, "new", 3) == 0;
    return error_set(err, LACE_E_META, "not good enough");
}

static void a_file_that_is_refused_gets_no_name(void)
{
    bool was_seen = false;
    file_rules rules = {.check = refuse, .user = &was_seen};
    lace_error err;
    if (!CHECK(scratch_create() != NULL))
        return;
    CHECK(write_by(&rules, NULL, &err) == LACE_E_META && strcmp(err.text, "not good enough") == 0);
    CHECK(was_seen && scratch_count() == 0);
    scratch_remove();
}

static void a_file_can_do_without_a_name(void)
{
    int fd = -1;
    char found[8] = "";
    file_rules rules = {.fd = &fd};
    lace_error err;
    if (!CHECK(scratch_create() != NULL))
        return;
    CHECK(scratch_write("out", "theirs"));
    CHECK(write_by(&rules, NULL, &err) == LACE_OK && fd >= 0);
    CHECK(scratch_holds("out", "theirs") && scratch_count() == 1);
    CHECK(pread(fd, found, sizeof found, 0) == 3 && memcmp(found, "new", 3) == 0);
    close(fd);
    scratch_remove();
}

/* What a mapped file has lost is not what the disk could not take. */
static void a_source_cut_while_it_is_copied_is_named_as_the_cause(void)
{
    file_writer *w;
    file_map map;
    lace_error err;
    if (!CHECK(scratch_create() != NULL))
        return;
    FILE *f = fopen(scratch_path("source"), "wb");
    CHECK(f && fwrite(block, 1, sizeof block, f) == sizeof block);
    if (f)
        fclose(f);
    CHECK(file_map_open(scratch_path("source"), &map, &err) == LACE_OK);
    int cut = scratch_empty(scratch_path("source"));
    if (cut == EACCES) {
        tap_skip("this system cuts no file that is mapped");
        file_map_close(&map);
        scratch_remove();
        return;
    }
    CHECK(cut == 0);
    CHECK(file_writer_create(scratch_path("out"), &w, &err) == LACE_OK);
    CHECK(file_writer_write(w, map.bytes.data, map.bytes.size, &err) == LACE_E_IO);
    if (!CHECK(strstr(err.text, "truncated while it was read") && !strstr(err.text, "cannot")))
        tap_note("%s", err.text);
    file_writer_abort(w);
    file_map_close(&map);
    CHECK(access(scratch_path("out"), F_OK) != 0);
    scratch_remove();
}

int main(void)
{
    memset(block, 'n', sizeof block);
    CASE(a_full_disk_leaves_the_old_file);
    CASE(a_killed_writer_leaves_no_partial_file);
    CASE(file_writer_refuses_what_is_no_file);
    CASE(file_writer_follows_links);
    CASE(a_file_that_comes_meanwhile_stays);
    CASE(a_file_that_is_refused_gets_no_name);
    CASE(a_file_can_do_without_a_name);
    CASE(a_source_cut_while_it_is_copied_is_named_as_the_cause);
    return tap_end();
}
