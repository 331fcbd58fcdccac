/* Pulling a model from Ollama's registry into its store. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/file_write.h"
#include "base/json_read.h"
#include "hub/hub_job.h"

enum { MAX_MANIFEST = 1 << 20, MAX_LAYERS = 64, MAX_URL = 4096, MAX_SHOWN = 80 };

/* One blob of a manifest, with room for what hub_blob points to. */
typedef struct layer {
    char url[MAX_URL], path[HUB_MAX_PATH], hash[PART_MAX_HEX + 1], shown[MAX_SHOWN];
    uint64_t size;
    bool is_model;
} layer;

/* {"digest": "sha256:...", "size": N}; false: it is none. */
static bool read_layer(const hub_job *job, const json_t *json, layer *out)
{
    const char *digest = json_string_value(json_get(json, "digest"));
    const char *type = json_string_value(json_get(json, "mediaType"));
    const json_t *size = json_get(json, "size");
    if (!digest || strncmp(digest, "sha256:", 7) != 0 || strlen(digest + 7) != PART_MAX_HEX ||
        strspn(digest + 7, "0123456789abcdef") != PART_MAX_HEX || !json_is_integer(size) ||
        json_integer_value(size) < 0)
        return false;
    const char *kind = type ? strrchr(type, '.') : NULL;
    strcpy(out->hash, digest + 7);
    out->size = (uint64_t)json_integer_value(size);
    out->is_model = kind && strcmp(kind, ".model") == 0;
    snprintf(out->shown, sizeof out->shown, "%.30s %.12s", kind ? kind + 1 : "layer", out->hash);
    snprintf(out->url, sizeof out->url, "%s/v2/%s/%s/blobs/%s", job->place.endpoint,
             job->name.owner, job->name.model, digest);
    return hub_join(out->path, "%s/blobs/sha256-%s", job->place.root, out->hash);
}

static hub_blob blob_of(const layer *l)
{
    return (hub_blob){.shown = l->shown,
                      .url = l->url,
                      .path = l->path,
                      .size = l->size,
                      .kind = PART_SHA256,
                      .hash = l->hash};
}

/* The blobs of a manifest: its layers and its configuration. */
static lace_status read_layers(const hub_job *job, const json_t *json, layer *layers, size_t *n,
                               lace_error *err)
{
    size_t i;
    json_t *each;
    bool ok = json_array_size(json_get(json, "layers")) < MAX_LAYERS;
    json_array_foreach(json_get(json, "layers"), i, each) ok =
        ok && read_layer(job, each, &layers[(*n)++]);
    ok = ok && *n > 0 && read_layer(job, json_get(json, "config"), &layers[(*n)++]);
    return ok ? LACE_OK : error_set(err, LACE_E_JSON, "the registry's answer is no manifest");
}

static lace_status fetch_layers(hub_job *job, const layer *layers, size_t n, lace_error *err)
{
    uint64_t n_left = 0;
    int http_status;
    for (size_t i = 0; i < n; i++) {
        hub_blob blob = blob_of(&layers[i]);
        job->n_total += blob.size;
        n_left += hub_blob_left(&blob);
    }
    TRY(hub_make_folders(layers[0].path, err));
    TRY(hub_check_room(job->place.root, n_left, err));
    for (size_t i = 0; i < n; i++) {
        hub_blob blob = blob_of(&layers[i]);
        TRY(hub_fetch_blob(job, &blob, &http_status, err));
        if (layers[i].is_model)
            strcpy(job->result->path, layers[i].path);
    }
    job->result->n_files = n;
    job->result->n_bytes = job->n_total;
    return LACE_OK;
}

/* The manifest itself goes last, as it came: by it the store knows the model. */
static lace_status keep_manifest(const hub_job *job, const buf *manifest, lace_error *err)
{
    char path[HUB_MAX_PATH];
    if (!hub_join(path, "%s/manifests/registry.ollama.ai/%s/%s/%s", job->place.root,
                  job->name.owner, job->name.model, job->name.tag[0] ? job->name.tag : "latest"))
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", job->place.root);
    TRY(hub_make_folders(path, err));
    return file_write_whole(path, NULL, manifest->data, manifest->size, err);
}

lace_status hub_pull_ollama(hub_job *job, lace_error *err)
{
    static layer layers[MAX_LAYERS + 1];
    const char *tag = job->name.tag[0] ? job->name.tag : "latest";
    char url[MAX_URL];
    size_t n = 0;
    int http_status;
    json_t *json = NULL;
    buf manifest;
    buf_init(&manifest, MAX_MANIFEST);
    job->what = "asking the registry";
    snprintf(url, sizeof url, "%s/v2/%s/%s/manifests/%s", job->place.endpoint, job->name.owner,
             job->name.model, tag);
    lace_status status =
        hub_get_text(job, url, "application/vnd.docker.distribution.manifest.v2+json", &manifest,
                     &http_status, err);
    if (status != LACE_OK && (http_status == 404 || http_status == 401))
        status = error_set(err, LACE_E_IO, "%s has no model %s:%s", job->place.endpoint,
                           job->name.model, tag);
    if (status == LACE_OK)
        status = json_read((span){(const uint8_t *)manifest.data, manifest.size}, 0, &json, err);
    if (status == LACE_OK)
        status = read_layers(job, json, layers, &n, err);
    json_decref(json);
    if (status == LACE_OK)
        status = fetch_layers(job, layers, n, err);
    if (status == LACE_OK)
        status = keep_manifest(job, &manifest, err);
    buf_deinit(&manifest);
    return status;
}
