/* Names of models at a hub, and what the environment says about it. */
#define _POSIX_C_SOURCE 200809L
#include "hub/hub_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "formats/store.h"

/* ---- Names ----------------------------------------------------------------------------------- */

static const char HF[] = "hf:", OLLAMA[] = "ollama:";

static bool begins(const char *word, const char *with)
{
    return strncmp(word, with, strlen(with)) == 0;
}

/* Behind https://huggingface.co/ in an address; NULL if it is none. */
static const char *behind_host(const char *word)
{
    static const char *const hosts[] = {"hf.co/", "huggingface.co/", "www.huggingface.co/"};
    if (begins(word, "https://"))
        word += strlen("https://");
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (begins(word, hosts[i]))
            return word + strlen(hosts[i]);
    return NULL;
}

/*
 * "ORG/REPO/blob/REVISION/folder/FILE.gguf?download=true" as "ORG/REPO:FILE@REVISION". What is no
 * such path stays as it is.
 */
static bool take_address(const char *path, char out[HUB_MAX_PATH])
{
    static const char *const views[] = {"/tree/", "/blob/", "/resolve/"};
    size_t n = strcspn(path, "?#");
    while (n && path[n - 1] == '/')
        n--;
    size_t n_repo = strcspn(path, "/");
    n_repo += path[n_repo] == '/';
    n_repo += strcspn(path + n_repo, "/");
    for (size_t i = 0; i < sizeof views / sizeof *views && n_repo < n; i++) {
        if (!begins(path + n_repo, views[i]))
            continue;
        const char *revision = path + n_repo + strlen(views[i]), *end = path + n;
        const char *file = memchr(revision, '/', revision < end ? (size_t)(end - revision) : 0);
        size_t n_revision = (size_t)((file ? file : end) - revision);
        for (const char *next = file; next; next = memchr(next, '/', (size_t)(end - next)))
            file = ++next;
        size_t n_file = file ? (size_t)(end - file) : 0;
        if (n_file > 5 && memcmp(end - 5, ".gguf", 5) == 0)
            n_file -= 5;
        bool is_main = n_revision == 4 && memcmp(revision, "main", 4) == 0;
        return snprintf(out, HUB_MAX_PATH, "%.*s%s%.*s%s%.*s", (int)n_repo, path, n_file ? ":" : "",
                        (int)n_file, n_file ? file : "", is_main ? "" : "@",
                        is_main ? 0 : (int)n_revision, revision) < HUB_MAX_PATH;
    }
    return snprintf(out, HUB_MAX_PATH, "%.*s", (int)n, path) < HUB_MAX_PATH;
}

bool hub_name_without_prefix(const char *word, char out[HUB_MAX_PATH])
{
    const char *path = behind_host(word);
    if (strlen(word) >= HUB_MAX_PATH)
        return false;
    if (path)
        return take_address(path, out);
    if (!begins(word, HF) && !begins(word, OLLAMA))
        return false;
    strcpy(out, strchr(word, ':') + 1);
    return true;
}

static bool copy_part(char out[HUB_MAX_PART], const char *from, size_t n)
{
    if (!store_is_part(from, n))
        return false;
    memcpy(out, from, n);
    out[n] = 0;
    return true;
}

lace_status hub_name_parse(const char *word, hub_name *out, lace_error *err)
{
    memset(out, 0, sizeof *out);
    out->is_ollama = begins(word, OLLAMA);
    char named[HUB_MAX_PATH];
    bool has_prefix = hub_name_without_prefix(word, named);
    const char *rest = has_prefix ? named : word;
    size_t n = strlen(rest), n_owner = strcspn(rest, "/");
    const char *at = out->is_ollama ? NULL : strchr(rest, '@');
    bool ok = !at || copy_part(out->revision, at + 1, strlen(at + 1));
    n = at ? (size_t)(at - rest) : n;
    if (n_owner < n) {
        ok = ok && copy_part(out->owner, rest, n_owner);
        rest += n_owner + 1;
        n -= n_owner + 1;
    } else if (out->is_ollama) {
        strcpy(out->owner, "library");
    }
    size_t n_model = strcspn(rest, ":");
    n_model = n_model < n ? n_model : n;
    ok = ok && copy_part(out->model, rest, n_model);
    if (ok && n_model < n)
        ok = copy_part(out->tag, rest + n_model + 1, n - n_model - 1);
    if (ok && !out->owner[0] && !has_prefix)
        return error_set(err, LACE_E_ARG,
                         "%.100s is no name at a hub; use ollama:%.100s for Ollama's registry, or "
                         "ORG/REPO:QUANT for Hugging Face",
                         word, word);
    if (!ok || !out->owner[0])
        return error_set(err, LACE_E_ARG,
                         "%.100s is no name at a hub; expected ORG/REPO or ORG/REPO:QUANT of "
                         "Hugging Face, or ollama:MODEL:TAG",
                         word);
    if (!at)
        strcpy(out->revision, "main");
    return LACE_OK;
}

/* ---- The environment ------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static bool is_on(const char *value)
{
    return value && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 ||
                     strcasecmp(value, "yes") == 0 || strcasecmp(value, "on") == 0);
}

static lace_status set_token(hub_place *p, const char *value, const char *from, lace_error *err)
{
    size_t n = strcspn(value, "\r\n");
    bool ok = n < sizeof p->token;
    for (size_t i = 0; ok && i < n; i++)
        ok = value[i] > ' ' && value[i] < 127;
    if (!ok)
        return error_set(err, LACE_E_ARG, "%s does not hold a token", from);
    memcpy(p->token, value, n);
    p->token[n] = 0;
    return LACE_OK;
}

/* The token of the environment, or of the file that the hub's own program keeps. */
static lace_status read_token(hub_place *p, lace_error *err)
{
    const char *given = variable("HF_TOKEN"), *path = variable("HF_TOKEN_PATH");
    char usual[HUB_MAX_PATH];
    if (!given)
        given = variable("HUGGING_FACE_HUB_TOKEN");
    if (given)
        return set_token(p, given, "HF_TOKEN", err);
    if (!path && store_hf_home(usual)) {
        size_t n = strlen(usual);
        snprintf(usual + n, sizeof usual - n, "/token");
        path = usual;
    }
    if (!path || access(path, R_OK) != 0)
        return LACE_OK;
    buf bytes;
    buf_init(&bytes, HUB_MAX_TOKEN);
    lace_status status = file_read_regular(path, &bytes, err);
    if (status == LACE_OK && bytes.size > 0)
        status = set_token(p, bytes.data, path, err);
    if (bytes.data)
        memset(bytes.data, 0, bytes.size);
    buf_deinit(&bytes);
    return status;
}

static lace_status set_endpoint(hub_place *p, const char *name, const char *usual, lace_error *err)
{
    const char *given = variable(name);
    const char *value = given ? given : usual;
    size_t n = strlen(value);
    while (n && value[n - 1] == '/')
        n--;
    bool ok = n < sizeof p->endpoint && (begins(value, "http://") || begins(value, "https://"));
    for (size_t i = 0; ok && i < n; i++)
        ok = value[i] > ' ' && value[i] < 127;
    if (!ok)
        return error_set(err, LACE_E_ARG, "%s is \"%.100s\", expected https://HOST", name, value);
    memcpy(p->endpoint, value, n);
    p->endpoint[n] = 0;
    return LACE_OK;
}

lace_status hub_place_read(const hub_name *name, hub_place *out, lace_error *err)
{
    memset(out, 0, sizeof *out);
    out->is_offline = is_on(variable("HF_HUB_OFFLINE"));
    bool has_root;
    if (name->is_ollama) {
        TRY(set_endpoint(out, "LACE_OLLAMA_REGISTRY", "https://registry.ollama.ai", err));
        has_root = store_ollama_root(out->root);
    } else {
        TRY(set_endpoint(out, "HF_ENDPOINT", "https://huggingface.co", err));
        TRY(read_token(out, err));
        has_root = store_cache_root(out->root);
    }
    return has_root ? LACE_OK
                    : error_set(err, LACE_E_ARG,
                                "there is no folder for models: neither HOME nor %s is set",
                                name->is_ollama ? "OLLAMA_MODELS" : "HF_HOME");
}
