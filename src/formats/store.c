/* Models that are already on this machine: lace's folder and those of other programs. */
#define _GNU_SOURCE
#include "formats/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json_read.h"

enum { MAX_PART = STORE_MAX_PART, MAX_MANIFEST = 1 << 20 };

/* ---- Names and folders ----------------------------------------------------------------------- */

/* True if a path fits; out is formatted. */
__attribute__((format(printf, 2, 3))) static bool join(char out[STORE_MAX_PATH], const char *format,
                                                       ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, STORE_MAX_PATH, format, args);
    va_end(args);
    return n >= 0 && n < STORE_MAX_PATH;
}

bool store_is_part(const char *s, size_t n)
{
    if (n == 0 || n >= MAX_PART || s[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
        if (!ok)
            return false;
    }
    return true;
}

/* "owner/model:tag"; owner and tag may be absent (""). */
typedef struct parts {
    char owner[MAX_PART], model[MAX_PART], tag[MAX_PART];
} parts;

static bool copy_part(char out[MAX_PART], const char *s, size_t n)
{
    if (!store_is_part(s, n))
        return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

static bool split_name(const char *name, parts *out)
{
    memset(out, 0, sizeof *out);
    const char *slash = strchr(name, '/');
    if (slash && !copy_part(out->owner, name, (size_t)(slash - name)))
        return false;
    const char *model = slash ? slash + 1 : name;
    const char *colon = strchr(model, ':');
    if (colon && !copy_part(out->tag, colon + 1, strlen(colon + 1)))
        return false;
    return copy_part(out->model, model, colon ? (size_t)(colon - model) : strlen(model));
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static uint64_t file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The number in "-00002-of-00003.gguf" at the end of a name; 0: it is no part. */
static unsigned part_number(const char *file)
{
    static const char form[] = "-00001-of-00001.gguf";
    size_t n = strlen(file), m = strlen(form);
    unsigned number = 0;
    if (n <= m)
        return 0;
    for (size_t i = 0; i < m; i++) {
        char c = file[n - m + i];
        bool is_digit = form[i] == '0' || form[i] == '1';
        if (is_digit ? c < '0' || c > '9' : c != form[i])
            return 0;
        if (is_digit && i < 6)
            number = 10 * number + (unsigned)(c - '0');
    }
    return number;
}

bool store_is_first_part(const char *file)
{
    return part_number(file) == 1;
}

bool store_is_later_part(const char *file)
{
    return part_number(file) > 1;
}

/* A GGUF file that can be opened as a model: no later part of one, no eyes of one. */
static bool is_model_file(const char *file)
{
    const char *slash = strrchr(file, '/');
    return ends_with(file, ".gguf") && !store_is_later_part(file) &&
           !strcasestr(slash ? slash + 1 : file, "mmproj");
}

/* A folder with a config.json is a model. */
static bool is_model_folder(const char *path)
{
    char config[STORE_MAX_PATH];
    return join(config, "%s/config.json", path) && is_file(config);
}

/* Calls fn for every entry of a folder that is_part accepts, in alphabetical order, until it
 * returns false. A folder that cannot be read is empty. */
typedef bool (*entry_fn)(void *user, const char *folder, const char *name);

static bool each_entry(const char *folder, entry_fn fn, void *user)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    bool goes_on = true;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (goes_on && store_is_part(name, strlen(name)))
            goes_on = fn(user, folder, name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return goes_on;
}

static bool add_size(void *user, const char *folder, const char *name)
{
    char path[STORE_MAX_PATH];
    if (join(path, "%s/%s", folder, name))
        *(uint64_t *)user += file_size(path);
    return true;
}

static uint64_t folder_size(const char *folder)
{
    uint64_t n = 0;
    each_entry(folder, add_size, &n);
    return n;
}

/* The best mmproj file so far, in `user`. */
static bool keep_mmproj(void *user, const char *folder, const char *name)
{
    char *best = user;
    if (!ends_with(name, ".gguf") || !strcasestr(name, "mmproj"))
        return true;
    bool is_usual = strcasestr(name, "f16") && !strcasestr(name, "bf16");
    if (!best[0] || is_usual)
        join(best, "%s/%s", folder, name);
    return !is_usual;
}

bool store_find_mmproj(const char *model_path, char path[STORE_MAX_PATH])
{
    char folder[STORE_MAX_PATH];
    const char *slash = strrchr(model_path, '/');
    path[0] = 0;
    if (!join(folder, "%.*s", slash ? (int)(slash - model_path) : 1, slash ? model_path : "."))
        return false;
    each_entry(folder[0] ? folder : "/", keep_mmproj, path);
    return path[0] != 0;
}

/* A listing under way. */
typedef struct listing {
    store_fn fn;
    void *user;
    const char *origin;
    const char *owner, *model; /* the folders that we are in */
    entry_fn list_file;        /* what lists a file of a model */
    bool is_below;             /* in a folder of a repository */
} listing;

/* ---- Folders of models: $LACE_MODELS, llama.cpp's cache -------------------------------------- */

static bool lace_root(char out[STORE_MAX_PATH])
{
    const char *root = getenv("LACE_MODELS");
    return root && root[0] && join(out, "%s", root) && is_folder(out);
}

static bool llama_root(char out[STORE_MAX_PATH])
{
    const char *given = getenv("LLAMA_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (given && given[0])
        return join(out, "%s", given) && is_folder(out);
    if (cache && cache[0])
        return join(out, "%s/llama.cpp", cache) && is_folder(out);
    return home && join(out, "%s/.cache/llama.cpp", home) && is_folder(out);
}

/* NAME.gguf, or NAME with config.json in it. */
static bool find_in_folder(const char *root, const char *name, char path[STORE_MAX_PATH])
{
    parts p;
    if (!split_name(name, &p) || p.tag[0])
        return false;
    if (join(path, "%s/%s.gguf", root, name) && is_file(path))
        return true;
    if (!join(path, "%s/%s", root, name))
        return false;
    return (ends_with(name, ".gguf") && is_file(path)) || is_model_folder(path);
}

static bool find_lace(const char *name, char path[STORE_MAX_PATH])
{
    char root[STORE_MAX_PATH];
    return lace_root(root) && find_in_folder(root, name, path);
}

static bool find_llama(const char *name, char path[STORE_MAX_PATH])
{
    char root[STORE_MAX_PATH];
    return llama_root(root) && find_in_folder(root, name, path);
}

static bool list_folder_entry(void *user, const char *folder, const char *name)
{
    const listing *l = user;
    char path[STORE_MAX_PATH], shown[MAX_PART];
    if (!join(path, "%s/%s", folder, name))
        return true;
    snprintf(shown, sizeof shown, "%s", name);
    store_entry e = {.name = shown, .path = path, .origin = l->origin};
    if (ends_with(name, ".gguf") && is_file(path)) {
        shown[strlen(shown) - strlen(".gguf")] = 0;
        e.n_bytes = file_size(path);
    } else if (is_model_folder(path)) {
        e.n_bytes = folder_size(path);
    } else {
        return true;
    }
    return l->fn(l->user, &e);
}

/* ---- The Ollama store ------------------------------------------------------------------------ */

/* The folder with "manifests" and "blobs" in it. */
bool store_ollama_root(char out[STORE_MAX_PATH])
{
    const char *given = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    if (given && given[0])
        return join(out, "%s", given);
    return home && join(out, "%s/.ollama/models", home);
}

static bool ollama_root(char out[STORE_MAX_PATH])
{
    const char *given = getenv("OLLAMA_MODELS");
    if ((store_ollama_root(out) && is_folder(out)) || (given && given[0]))
        return is_folder(out);
    return join(out, "/usr/share/ollama/.ollama/models") && is_folder(out);
}

/* The blob of the layer that holds the model, in what a manifest says. */
static lace_status find_layer(const json_t *json, const char *root, char path[STORE_MAX_PATH],
                              lace_error *err)
{
    size_t i;
    json_t *layer;
    lace_status status = error_set(err, LACE_E_JSON, "lists no layer of type model");
    json_array_foreach(json_object_get(json, "layers"), i, layer)
    {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        const char *digest = json_string_value(json_object_get(layer, "digest"));
        if (!type || !digest || !ends_with(type, ".image.model"))
            continue;
        if (strncmp(digest, "sha256:", 7) != 0 || !store_is_part(digest + 7, strlen(digest + 7)))
            status =
                error_set(err, LACE_E_JSON, "names a layer by something that is not a sha256 sum");
        else if (!join(path, "%s/blobs/sha256-%s", root, digest + 7) || !is_file(path))
            status =
                error_set(err, LACE_E_IO, "the file blobs/sha256-%.12s... is missing", digest + 7);
        else
            status = LACE_OK;
    }
    return status;
}

/* The blob that a manifest leads to, or what is wrong with the manifest. */
static lace_status read_manifest(const char *root, const char *manifest, char path[STORE_MAX_PATH],
                                 lace_error *err)
{
    buf bytes;
    json_t *json = NULL;
    buf_init(&bytes, MAX_MANIFEST);
    lace_status status = file_read_regular(manifest, &bytes, err);
    if (status == LACE_OK) {
        status = json_read((span){(const uint8_t *)bytes.data, bytes.size}, 0, &json, err);
        if (status == LACE_OK)
            status = find_layer(json, root, path, err);
        if (status != LACE_OK)
            error_prefix(err, status, manifest);
    }
    json_decref(json);
    buf_deinit(&bytes);
    return status;
}

/* While a manifest is looked for: in which of the hosts' folders does not matter. */
typedef struct manifest_search {
    const char *root;
    const parts *p;
    char *path;
    bool found;
    lace_error *problem; /* of a manifest that is there and leads to nothing */
} manifest_search;

static bool search_host(void *user, const char *folder, const char *host)
{
    manifest_search *s = user;
    char manifest[STORE_MAX_PATH];
    const char *owner = s->p->owner[0] ? s->p->owner : "library";
    const char *tag = s->p->tag[0] ? s->p->tag : "latest";
    s->found = join(manifest, "%s/%s/%s/%s/%s", folder, host, owner, s->p->model, tag) &&
               is_file(manifest) &&
               read_manifest(s->root, manifest, s->path, s->problem) == LACE_OK;
    return !s->found;
}

static bool search_ollama(const char *name, char path[STORE_MAX_PATH], lace_error *problem)
{
    char root[STORE_MAX_PATH], manifests[STORE_MAX_PATH];
    parts p;
    if (!split_name(name, &p) || !ollama_root(root) || !join(manifests, "%s/manifests", root))
        return false;
    manifest_search s = {root, &p, path, false, problem};
    each_entry(manifests, search_host, &s);
    return s.found;
}

static bool find_ollama(const char *name, char path[STORE_MAX_PATH])
{
    return search_ollama(name, path, NULL);
}

static bool list_tag(void *user, const char *folder, const char *tag)
{
    const listing *l = user;
    char root[STORE_MAX_PATH], manifest[STORE_MAX_PATH], path[STORE_MAX_PATH], name[3 * MAX_PART];
    if (!ollama_root(root) || !join(manifest, "%s/%s", folder, tag) ||
        read_manifest(root, manifest, path, NULL) != LACE_OK)
        return true;
    bool is_library = strcmp(l->owner, "library") == 0;
    snprintf(name, sizeof name, "%s%s%s:%s", is_library ? "" : l->owner, is_library ? "" : "/",
             l->model, tag);
    store_entry e = {.name = name, .path = path, .origin = l->origin, .n_bytes = file_size(path)};
    return l->fn(l->user, &e);
}

/* ---- The Hugging Face cache ------------------------------------------------------------------ */

bool store_hf_home(char out[STORE_MAX_PATH])
{
    const char *hf = getenv("HF_HOME"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (hf && hf[0])
        return join(out, "%s", hf);
    if (cache && cache[0])
        return join(out, "%s/huggingface", cache);
    return home && join(out, "%s/.cache/huggingface", home);
}

bool store_cache_root(char out[STORE_MAX_PATH])
{
    const char *given = getenv("HF_HUB_CACHE");
    char home[STORE_MAX_PATH];
    if (given && given[0])
        return join(out, "%s", given);
    return store_hf_home(home) && join(out, "%s/hub", home);
}

static bool cache_root(char out[STORE_MAX_PATH])
{
    return store_cache_root(out) && is_folder(out);
}

static bool keep_name(void *user, const char *folder, const char *name)
{
    snprintf(user, MAX_PART, "%s", name);
    return true; /* the last one wins */
}

/* The snapshot that refs/main names; without that, the last one. */
static bool find_snapshot(const char *repository, char out[STORE_MAX_PATH])
{
    char ref[STORE_MAX_PATH], revision[MAX_PART] = "";
    buf bytes;
    buf_init(&bytes, MAX_PART - 1);
    if (join(ref, "%s/refs/main", repository) && file_read_regular(ref, &bytes, NULL) == LACE_OK &&
        bytes.size > 0) {
        size_t n = strcspn(bytes.data, "\r\n");
        if (store_is_part(bytes.data, n))
            copy_part(revision, bytes.data, n);
    }
    buf_deinit(&bytes);
    char snapshots[STORE_MAX_PATH];
    if (!join(snapshots, "%s/snapshots", repository))
        return false;
    if (!revision[0])
        each_entry(snapshots, keep_name, revision);
    return revision[0] && join(out, "%s/%s", snapshots, revision) && is_folder(out);
}

/* The first GGUF file of a folder whose name has the tag in it, whatever the case. */
typedef struct file_search {
    const char *tag;
    char *path;
    bool found;
} file_search;

static bool search_file(void *user, const char *folder, const char *name)
{
    file_search *s = user;
    if (is_model_file(name) && (!s->tag[0] || strcasestr(name, s->tag)))
        s->found = join(s->path, "%s/%s", folder, name) && is_file(s->path);
    return !s->found;
}

/* The same in the folders of a folder: large models have one for each type. */
static bool search_below(void *user, const char *folder, const char *name)
{
    char path[STORE_MAX_PATH];
    if (join(path, "%s/%s", folder, name) && is_folder(path))
        each_entry(path, search_file, user);
    return !((file_search *)user)->found;
}

static bool find_in_snapshot(const char *snapshot, const char *tag, char path[STORE_MAX_PATH])
{
    if (!tag[0] && is_model_folder(snapshot)) {
        file_search has_tensors = {.tag = "", .path = path};
        char single[STORE_MAX_PATH], index[STORE_MAX_PATH];
        if (join(single, "%s/model.safetensors", snapshot) &&
            join(index, "%s/model.safetensors.index.json", snapshot) &&
            (is_file(single) || is_file(index)))
            return join(path, "%s", snapshot);
        each_entry(snapshot, search_file, &has_tensors);
        return has_tensors.found;
    }
    file_search s = {.tag = tag, .path = path};
    return !each_entry(snapshot, search_file, &s) || !each_entry(snapshot, search_below, &s);
}

static bool find_cached(const char *name, char path[STORE_MAX_PATH])
{
    char root[STORE_MAX_PATH], repository[STORE_MAX_PATH], snapshot[STORE_MAX_PATH];
    parts p;
    return split_name(name, &p) && p.owner[0] && cache_root(root) &&
           join(repository, "%s/models--%s--%s", root, p.owner, p.model) &&
           find_snapshot(repository, snapshot) && find_in_snapshot(snapshot, p.tag, path);
}

/* Adds the size of a part, if it is one of the model whose name up to the number is at hand. */
typedef struct part_sum {
    const char *first;
    uint64_t n_bytes;
} part_sum;

static bool add_part(void *user, const char *folder, const char *name)
{
    part_sum *sum = user;
    char path[STORE_MAX_PATH];
    size_t n = strlen(sum->first) - strlen("00001-of-00001.gguf");
    bool is_ours = strncmp(name, sum->first, n) == 0 && part_number(name) > 0;
    if (is_ours && join(path, "%s/%s", folder, name))
        sum->n_bytes += file_size(path);
    return true;
}

/* Of a GGUF file, with its parts. */
static uint64_t model_size(const char *folder, const char *file)
{
    char path[STORE_MAX_PATH];
    part_sum sum = {file, 0};
    if (!store_is_first_part(file))
        return join(path, "%s/%s", folder, file) ? file_size(path) : 0;
    each_entry(folder, add_part, &sum);
    return sum.n_bytes;
}

/* One GGUF file of a repository's folder: "org/model:its name without the end". */
static bool list_repository_file(void *user, const char *folder, const char *file)
{
    const listing *l = user;
    char path[STORE_MAX_PATH], name[4 * MAX_PART];
    if (!join(path, "%s/%s", folder, file))
        return true;
    if (is_folder(path) && !l->is_below) {
        listing below = *l;
        below.is_below = true;
        return each_entry(path, list_repository_file, &below);
    }
    if (!is_model_file(file) || !is_file(path))
        return true;
    snprintf(name, sizeof name, "%s/%s:%.*s", l->owner, l->model,
             (int)(strlen(file) - strlen(".gguf")), file);
    store_entry e = {
        .name = name, .path = path, .origin = l->origin, .n_bytes = model_size(folder, file)};
    return l->fn(l->user, &e);
}

static bool list_repository(void *user, const char *folder, const char *entry)
{
    listing l = *(const listing *)user;
    const char *rest = strncmp(entry, "models--", 8) == 0 ? entry + 8 : NULL;
    const char *dashes = rest ? strstr(rest, "--") : NULL;
    char repository[STORE_MAX_PATH], snapshot[STORE_MAX_PATH], path[STORE_MAX_PATH];
    char owner[MAX_PART], model[MAX_PART], name[2 * MAX_PART];
    if (!dashes || !copy_part(owner, rest, (size_t)(dashes - rest)) ||
        !copy_part(model, dashes + 2, strlen(dashes + 2)) ||
        !join(repository, "%s/%s", folder, entry) || !find_snapshot(repository, snapshot))
        return true;
    l.owner = owner;
    l.model = model;
    snprintf(name, sizeof name, "%s/%s", owner, model);
    if (find_in_snapshot(snapshot, "", path) && is_folder(path)) {
        store_entry e = {
            .name = name, .path = path, .origin = l.origin, .n_bytes = folder_size(path)};
        if (!l.fn(l.user, &e))
            return false;
    }
    return each_entry(snapshot, list_repository_file, &l);
}

/* ---- LM Studio ------------------------------------------------------------------------------- */

static bool studio_root(char out[STORE_MAX_PATH])
{
    const char *home = getenv("HOME");
    return home && ((join(out, "%s/.lmstudio/models", home) && is_folder(out)) ||
                    (join(out, "%s/.cache/lm-studio/models", home) && is_folder(out)));
}

static bool find_studio(const char *name, char path[STORE_MAX_PATH])
{
    char root[STORE_MAX_PATH], folder[STORE_MAX_PATH];
    parts p;
    return split_name(name, &p) && p.owner[0] && studio_root(root) &&
           join(folder, "%s/%s/%s", root, p.owner, p.model) && is_folder(folder) &&
           find_in_snapshot(folder, p.tag, path);
}

/* ---- Folders of folders ----------------------------------------------------------------------- */

/* All entries of a folder below. */
static bool list_below(const listing *l, const char *folder, const char *name, entry_fn list)
{
    char path[STORE_MAX_PATH];
    listing copy = *l;
    return !join(path, "%s/%s", folder, name) || each_entry(path, list, &copy);
}

static bool list_model(void *user, const char *folder, const char *model)
{
    listing l = *(const listing *)user;
    l.model = model;
    return list_below(&l, folder, model, l.list_file);
}

static bool list_owner(void *user, const char *folder, const char *owner)
{
    listing l = *(const listing *)user;
    l.owner = owner;
    return list_below(&l, folder, owner, list_model);
}

static bool list_host(void *user, const char *folder, const char *host)
{
    return list_below(user, folder, host, list_owner);
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* Ollama's manifests are a folder below its store's. */
static bool ollama_manifests(char out[STORE_MAX_PATH])
{
    char root[STORE_MAX_PATH];
    return ollama_root(root) && join(out, "%s/manifests", root);
}

/* The places, in the order in which a name is looked for. */
static const struct {
    const char *origin;
    bool (*find)(const char *name, char path[STORE_MAX_PATH]);
    bool (*root)(char out[STORE_MAX_PATH]);
    entry_fn list;
    entry_fn list_file; /* below host, owner and model; NULL: it is not sorted so */
} places[] = {
    {"lace", find_lace, lace_root, list_folder_entry, NULL},
    {"ollama", find_ollama, ollama_manifests, list_host, list_tag},
    {"huggingface", find_cached, cache_root, list_repository, NULL},
    {"llama.cpp", find_llama, llama_root, list_folder_entry, NULL},
    {"lmstudio", find_studio, studio_root, list_owner, list_repository_file},
};

static lace_status not_here(const char *name, lace_error *err)
{
    static const char what[] = "no such file, and no model of that name on this machine";
    parts p;
    if (strchr(name, ' ') && !strchr(name, '/'))
        return error_set(
            err, LACE_E_IO,
            "\"%.100s\": %s; if it is the text, it stands behind the model, or behind -p", name,
            what);
    bool is_name = split_name(name, &p) && !ends_with(name, ".gguf") && name[0] != '.';
    if (is_name && (p.owner[0] || p.tag[0]))
        return error_set(err, LACE_E_IO, "%.200s: %s; lace pull %s%.200s gets it, if there is one",
                         name, what, p.owner[0] ? "" : "ollama:", name);
    return error_set(err, LACE_E_IO,
                     "%.200s: %s (lace list shows all of them, lace pull gets others)", name, what);
}

lace_status store_find(const char *name, char path[STORE_MAX_PATH], lace_error *err)
{
    lace_error problem = {LACE_OK, ""};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].find(name, path))
            return LACE_OK;
    search_ollama(name, path, &problem);
    path[0] = 0;
    if (problem.status != LACE_OK)
        return error_set(err, LACE_E_IO,
                         "%.100s is in the Ollama store, but its manifest cannot be used: %.300s; "
                         "\"lace pull ollama:NAME\" fetches it again",
                         name, problem.text);
    return not_here(name, err);
}

lace_status store_resolve(const char *name_or_path, char path[STORE_MAX_PATH], lace_error *err)
{
    if (access(name_or_path, F_OK) != 0 && errno == ENOENT)
        return store_find(name_or_path, path, err);
    return join(path, "%s", name_or_path)
               ? LACE_OK
               : error_set(err, LACE_E_ARG, "%.64s...: the path is too long", name_or_path);
}

void store_list(store_fn fn, void *user)
{
    char root[STORE_MAX_PATH];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        listing l = {
            .fn = fn, .user = user, .origin = places[i].origin, .list_file = places[i].list_file};
        if (places[i].root(root) && !each_entry(root, places[i].list, &l))
            return;
    }
}
