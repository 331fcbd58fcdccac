/* Pulling a model from Hugging Face into its cache. */
#define _GNU_SOURCE
#include "hub/hub.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_write.h"
#include "hub/hub_files.h"
#include "hub/hub_job.h"

enum { MAX_LISTING = 32 << 20, MAX_URL = 4096 };

hub_options hub_options_default(void)
{
    return (hub_options){.n_connections = 8};
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* What a status of the hub means for this model. */
static lace_status explain(const hub_job *job, int http_status, lace_status status, lace_error *err)
{
    const hub_name *n = &job->name;
    const char *has_token = job->place.token[0] ? "the token does not allow it" : "no token is set";
    if (http_status == 401 || http_status == 403)
        return error_set(err, LACE_E_IO,
                         "%s/%s: access is denied (%d), and %s. If the model is gated, accept its "
                         "terms at %s/%s/%s and set HF_TOKEN; it may also not exist",
                         n->owner, n->model, http_status, has_token, job->place.endpoint, n->owner,
                         n->model);
    if (http_status == 404)
        return error_set(err, LACE_E_IO, "%s has no model %s/%s with revision %s",
                         job->place.endpoint, n->owner, n->model, n->revision);
    return status;
}

/* ---- The cache ------------------------------------------------------------------------------- */

static bool repository_path(const hub_job *job, char out[HUB_MAX_PATH])
{
    return hub_join(out, "%s/models--%s--%s", job->place.root, job->name.owner, job->name.model);
}

/* snapshots/COMMIT/PATH becomes a link to the blob; one that leads elsewhere is replaced. */
static lace_status link_file(const char *repository, const char *commit, const hub_file *f,
                             lace_error *err)
{
    char at[HUB_MAX_PATH], to[HUB_MAX_PATH], made[HUB_MAX_PATH + 32], old[HUB_MAX_PATH];
    size_t n = 0;
    for (const char *slash = f->path; (slash = strchr(slash, '/')); slash++)
        n += (size_t)snprintf(to + n, sizeof to - n, "../");
    bool fits = hub_join(at, "%s/snapshots/%s/%s", repository, commit, f->path);
    snprintf(to + n, sizeof to - n, "../../blobs/%s", f->hash);
    if (!fits)
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", repository);
    TRY(hub_make_folders(at, err));
    ssize_t n_old = readlink(at, old, sizeof old - 1);
    if (n_old >= 0 && (size_t)n_old == strlen(to) && memcmp(old, to, (size_t)n_old) == 0)
        return LACE_OK;
    snprintf(made, sizeof made, "%s.%d.lace-link", at, (int)getpid());
    unlink(made);
    if (symlink(to, made) == 0 && rename(made, at) == 0)
        return LACE_OK;
    int code = errno;
    unlink(made);
    return error_set(err, LACE_E_IO, "cannot make the link %s: %s", at, strerror(code));
}

/* refs/main names the commit, once all of its files are there. A commit needs no name. */
static lace_status write_ref(const hub_job *job, const char *repository, const char *commit,
                             lace_error *err)
{
    char path[HUB_MAX_PATH];
    if (strcmp(job->name.revision, commit) == 0)
        return LACE_OK;
    if (!hub_join(path, "%s/refs/%s", repository, job->name.revision))
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", repository);
    TRY(hub_make_folders(path, err));
    return file_write_whole(path, NULL, commit, strlen(commit), err);
}

/* ---- Pulling --------------------------------------------------------------------------------- */

static lace_status get_listing(hub_job *job, hub_listing *out, lace_error *err)
{
    char url[MAX_URL];
    int http_status;
    buf answer;
    snprintf(url, sizeof url, "%s/api/models/%s/%s/revision/%s?blobs=true", job->place.endpoint,
             job->name.owner, job->name.model, job->name.revision);
    buf_init(&answer, MAX_LISTING);
    lace_status status = hub_get_text(job, url, "application/json", &answer, &http_status, err);
    if (status == LACE_OK) {
        status = hub_listing_parse((span){(const uint8_t *)answer.data, answer.size}, out, err);
        if (status != LACE_OK)
            error_prefix(err, status, job->place.endpoint);
    } else {
        status = explain(job, http_status, status, err);
    }
    buf_deinit(&answer);
    return status;
}

/* The URL of a file; what is not plain in a path is written as %XX. */
static bool make_url(const hub_job *job, const char *commit, const char *path, char out[MAX_URL])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~/";
    int n = snprintf(out, MAX_URL, "%s/%s/%s/resolve/%s/", job->place.endpoint, job->name.owner,
                     job->name.model, commit);
    for (; *path && n < MAX_URL - 4; path++)
        n += snprintf(out + n, (size_t)(MAX_URL - n), strchr(plain, *path) ? "%c" : "%%%02X",
                      (unsigned char)*path);
    return !*path;
}

static lace_status fetch_file(hub_job *job, const char *repository, const char *commit,
                              const hub_file *f, bool is_asked, uint64_t *n_left, lace_error *err)
{
    char url[MAX_URL], path[HUB_MAX_PATH];
    int http_status;
    if (!make_url(job, commit, f->path, url) || !hub_join(path, "%s/blobs/%s", repository, f->hash))
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", f->path);
    const char *slash = strrchr(f->path, '/');
    hub_blob blob = {.shown = slash ? slash + 1 : f->path,
                     .url = url,
                     .path = path,
                     .size = f->size,
                     .kind = f->kind,
                     .hash = f->hash};
    if (is_asked) {
        *n_left += hub_blob_left(&blob);
        return LACE_OK;
    }
    lace_status status = hub_fetch_blob(job, &blob, &http_status, err);
    if (status != LACE_OK)
        return explain(job, http_status, status, err);
    return link_file(repository, commit, f, err);
}

static lace_status fetch_files(hub_job *job, const hub_listing *list, lace_error *err)
{
    static const hub_file *chosen[HUB_MAX_CHOSEN];
    char repository[HUB_MAX_PATH], inside[HUB_MAX_PATH];
    size_t n;
    bool is_folder;
    uint64_t n_left = 0;
    if (!repository_path(job, repository) || !hub_join(inside, "%s/", repository))
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", job->place.root);
    TRY(hub_choose(list, job->name.tag, !job->options->skips_mmproj, chosen, &n, &is_folder, err));
    TRY(hub_make_folders(inside, err));
    for (size_t i = 0; i < n; i++) {
        job->n_total += chosen[i]->size;
        TRY(fetch_file(job, repository, list->commit, chosen[i], true, &n_left, err));
    }
    TRY(hub_check_room(repository, n_left, err));
    for (size_t i = 0; i < n; i++)
        TRY(fetch_file(job, repository, list->commit, chosen[i], false, NULL, err));
    TRY(write_ref(job, repository, list->commit, err));
    job->result->n_files = n;
    job->result->n_bytes = job->n_total;
    bool fits = is_folder ? hub_join(job->result->path, "%s/snapshots/%s", repository, list->commit)
                          : hub_join(job->result->path, "%s/snapshots/%s/%s", repository,
                                     list->commit, chosen[0]->path);
    return fits ? LACE_OK
                : error_set(err, LACE_E_ARG, "%.64s...: the path is too long", repository);
}

static lace_status pull_hugging_face(hub_job *job, lace_error *err)
{
    hub_listing list = {0};
    job->what = "asking the hub";
    lace_status status = get_listing(job, &list, err);
    if (status == LACE_OK)
        status = fetch_files(job, &list, err);
    hub_listing_deinit(&list);
    return status;
}

lace_status hub_pull(const char *name, const hub_options *options, hub_result *out, lace_error *err)
{
    hub_job job = {.options = options, .result = out};
    memset(out, 0, sizeof *out);
    TRY(hub_name_parse(name, &job.name, err));
    TRY(hub_place_read(&job.name, &job.place, err));
    if (job.place.is_offline)
        return error_set(err, LACE_E_IO,
                         "%.100s: HF_HUB_OFFLINE is set, so nothing is downloaded (lace list shows "
                         "what is here)",
                         name);
    TRY(http_client_create(&job.client, err));
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error like any other */
    lace_status status =
        job.name.is_ollama ? hub_pull_ollama(&job, err) : pull_hugging_face(&job, err);
    http_client_free(job.client);
    memset(job.place.token, 0, sizeof job.place.token);
    return status;
}
