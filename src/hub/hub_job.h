/* Inside the hub: a pull under way, and a blob of it. */
#ifndef LACE_HUB_HUB_JOB_H
#define LACE_HUB_HUB_JOB_H

#include "hub/http_get.h"
#include "hub/hub.h"

typedef struct hub_job {
    hub_name name;
    hub_place place;
    const hub_options *options;
    http_client *client;
    part_file *part;   /* under way; NULL: none */
    const char *what;  /* it is */
    uint64_t n_before; /* bytes of the files before it */
    uint64_t n_total;
    hub_result *result;
} hub_job;

typedef struct hub_blob {
    const char *shown; /* for messages: the file's name */
    const char *url;
    const char *path; /* where it shall be */
    uint64_t size;
    part_hash kind;
    const char *hash;
} hub_blob;

__attribute__((format(printf, 2, 3))) bool hub_join(char out[HUB_MAX_PATH], const char *format,
                                                    ...);
/* Make all folders of a path up to its last '/'. */
lace_status hub_make_folders(const char *path, lace_error *err);

/* Get a small answer; what a status means is said by the caller. */
lace_status hub_get_text(hub_job *job, const char *url, const char *accept, buf *out,
                         int *http_status, lace_error *err);

/* Bytes of a blob that are still to be fetched, by what lies on the disk. */
uint64_t hub_blob_left(const hub_blob *blob);
/* Whether the folder's disk has room for so many bytes. LACE_E_IO with both numbers. */
lace_status hub_check_room(const char *folder, uint64_t n_needed, lace_error *err);

/* Fetch a blob, unless it is there. Waits while another process fetches it. */
lace_status hub_fetch_blob(hub_job *job, const hub_blob *blob, int *http_status, lace_error *err);

lace_status hub_pull_ollama(hub_job *job, lace_error *err);

#endif
