/* A blob of a pull: fetched, checked, named. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "hub/hub_job.h"

enum { WAIT_MS = 100 };
static const uint64_t SPARE_BYTES = 16 << 20; /* to be left on a disk */

bool hub_join(char out[HUB_MAX_PATH], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, HUB_MAX_PATH, format, args);
    va_end(args);
    return n >= 0 && n < HUB_MAX_PATH;
}

lace_status hub_make_folders(const char *path, lace_error *err)
{
    char folder[HUB_MAX_PATH];
    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        if (!hub_join(folder, "%.*s", (int)(at - path), path))
            return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", path);
        if (mkdir(folder, 0755) != 0 && errno != EEXIST)
            return error_set(err, LACE_E_IO, "cannot make the folder %s: %s", folder,
                             strerror(errno));
    }
    return LACE_OK;
}

/* ---- Room ------------------------------------------------------------------------------------ */

static bool is_there(const hub_blob *blob)
{
    struct stat st;
    return stat(blob->path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == blob->size;
}

static bool part_path(const hub_blob *blob, char out[HUB_MAX_PATH])
{
    return hub_join(out, "%s.lace-part", blob->path);
}

uint64_t hub_blob_left(const hub_blob *blob)
{
    char part[HUB_MAX_PATH];
    struct stat st;
    if (is_there(blob))
        return 0;
    uint64_t taken =
        part_path(blob, part) && stat(part, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    return taken < blob->size ? blob->size - taken : 0;
}

lace_status hub_check_room(const char *folder, uint64_t n_needed, lace_error *err)
{
    struct statvfs disk;
    if (n_needed == 0 || statvfs(folder, &disk) != 0)
        return LACE_OK;
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (free_bytes >= n_needed + SPARE_BYTES)
        return LACE_OK;
    return error_set(err, LACE_E_IO,
                     "the disk of %s has %.1f GB free, and %.1f GB are needed; make room, or set "
                     "HF_HOME to a folder on another disk",
                     folder, (double)free_bytes / 1e9, (double)(n_needed + SPARE_BYTES) / 1e9);
}

/* ---- Fetching -------------------------------------------------------------------------------- */

static bool tell(hub_job *job)
{
    const hub_options *o = job->options;
    uint64_t n = job->n_before + (job->part ? job->part->n_done : 0);
    return !o->on_progress || o->on_progress(o->user, job->what, n, job->n_total);
}

static bool on_tick(void *user)
{
    return tell(user);
}

static bool on_checked(void *user, uint64_t n_bytes)
{
    return tell(user);
}

lace_status hub_get_text(hub_job *job, const char *url, const char *accept, buf *out,
                         int *http_status, lace_error *err)
{
    http_source from = {.url = url, .token = job->place.token, .accept = accept};
    http_watch watch = {.on_tick = on_tick, .user = job};
    return http_get_text(job->client, &from, &watch, out, http_status, err);
}

/* Have the part alone. *out stays NULL if another process has completed the blob meanwhile. */
static lace_status open_part(hub_job *job, const hub_blob *blob, part_file **out, lace_error *err)
{
    char path[HUB_MAX_PATH];
    bool is_told = false;
    if (!part_path(blob, path))
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", blob->path);
    while (!is_there(blob)) {
        TRY(part_file_open(path, blob->size, out, err));
        if (*out && is_there(blob)) { /* completed before it was ours */
            part_file_remove(*out);
            *out = NULL;
        }
        if (*out || is_there(blob))
            return LACE_OK;
        if (!is_told && job->options->on_note)
            job->options->on_note(job->options->user, "another lace fetches this file; waiting");
        is_told = true;
        struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
        nanosleep(&pause, NULL);
        if (!tell(job))
            return error_set(err, LACE_E_CANCELLED, "stopped");
    }
    return LACE_OK;
}

/* All bytes, and their hash. Bytes of an earlier try that prove wrong are fetched again, once. */
static lace_status fill_part(hub_job *job, const hub_blob *blob, int *http_status, lace_error *err)
{
    http_source from = {.url = blob->url, .token = job->place.token};
    http_watch watch = {
        .on_tick = on_tick, .user = job, .n_connections = job->options->n_connections};
    char checking[300];
    snprintf(checking, sizeof checking, "checking %.200s", blob->shown);
    for (;;) {
        bool was_resumed = job->part->was_resumed;
        uint64_t n_before = job->part->n_done;
        job->what = blob->shown;
        TRY(http_get_file(job->client, &from, &watch, job->part, http_status, err));
        job->result->n_fetched += job->part->n_done - n_before;
        job->what = checking;
        lace_status status =
            part_file_check(job->part, blob->kind, blob->hash, on_checked, job, err);
        job->what = blob->shown;
        if (status != LACE_E_MAGIC || !was_resumed)
            return status;
        TRY(part_file_reset(job->part, err));
    }
}

lace_status hub_fetch_blob(hub_job *job, const hub_blob *blob, int *http_status, lace_error *err)
{
    *http_status = 0;
    job->what = blob->shown;
    TRY(hub_make_folders(blob->path, err));
    TRY(open_part(job, blob, &job->part, err));
    lace_status status = LACE_OK;
    if (job->part) {
        status = fill_part(job, blob, http_status, err);
        if (status == LACE_OK)
            status = part_file_finish(job->part, blob->path, err);
        if (status == LACE_E_MAGIC)
            part_file_remove(job->part); /* no byte of it can be trusted */
        else
            part_file_close(job->part);
        job->part = NULL;
    }
    if (status == LACE_OK)
        job->n_before += blob->size;
    else
        error_prefix(err, status, blob->shown);
    return status;
}
