/* formats/store: models on this machine are found by name and nowhere else. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/store.h"
#include "tap.h"

static char root[256];

static void write_file(const char *relative, const char *contents)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, relative);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0755);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    if (CHECK(f != NULL)) {
        fputs(contents, f);
        fclose(f);
    }
}

static void set_root(const char *variable, const char *relative)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, relative);
    setenv(variable, path, 1);
}

/* Five little stores; the contents of model files do not matter here. */
static void make_stores(void)
{
    snprintf(root, sizeof root, "/tmp/lace-store-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    write_file("own/small.gguf", "12345");
    write_file("own/folder/config.json", "{}");
    write_file("own/folder/model.safetensors", "1234567");
    write_file("own/notes.txt", "no model");
    write_file("ollama/manifests/registry.example/library/mistral/latest",
               "{\"layers\":[{\"mediaType\":\"application/vnd.x.image.template\",\"digest\":"
               "\"sha256:00\"},{\"mediaType\":\"application/vnd.x.image.model\",\"digest\":"
               "\"sha256:abc\"}]}");
    write_file("ollama/manifests/registry.example/someone/tiny/q4",
               "{\"layers\":[{\"mediaType\":\"application/vnd.x.image.model\",\"digest\":"
               "\"sha256:def\"}]}");
    write_file("ollama/manifests/registry.example/library/evil/latest",
               "{\"layers\":[{\"mediaType\":\"application/vnd.x.image.model\",\"digest\":"
               "\"sha256:../../own/small.gguf\"}]}");
    write_file("ollama/manifests/registry.example/library/broken/latest", "{\"layers\":[");
    write_file("ollama/blobs/sha256-abc", "0123456789");
    write_file("ollama/blobs/sha256-def", "012");
    write_file("hub/models--org--full/refs/main", "rev1\n");
    write_file("hub/models--org--full/snapshots/rev1/config.json", "{}");
    write_file("hub/models--org--full/snapshots/rev1/model.safetensors", "x");
    write_file("hub/models--org--full/snapshots/rev0/config.json", "{}");
    write_file("hub/models--org--quants/snapshots/r/model-Q4_K_M.gguf", "1");
    write_file("hub/models--org--quants/snapshots/r/model-Q8_0.gguf", "22");
    write_file("llama/ggml-org_tiny_tiny-q8_0.gguf", "4444");
    write_file("home/.lmstudio/models/maker/studio/studio-Q4_K_M.gguf", "55555");
    write_file("home/.lmstudio/models/maker/studio/studio-Q8_0.gguf", "666666");
    set_root("LLAMA_CACHE", "llama");
    set_root("HOME", "home");
    set_root("LACE_MODELS", "own");
    set_root("OLLAMA_MODELS", "ollama");
    set_root("HF_HUB_CACHE", "hub");
}

static void is_found_at(const char *name, const char *relative)
{
    char path[STORE_MAX_PATH], expected[1024];
    lace_error err;
    snprintf(expected, sizeof expected, "%s/%s", root, relative);
    lace_status status = store_find(name, path, &err);
    if (!CHECK(status == LACE_OK && strcmp(path, expected) == 0))
        tap_note("%s: %s", name, status == LACE_OK ? path : err.text);
}

static void names_lead_to_files(void)
{
    is_found_at("small", "own/small.gguf");
    is_found_at("small.gguf", "own/small.gguf");
    is_found_at("folder", "own/folder");
    is_found_at("mistral", "ollama/blobs/sha256-abc");
    is_found_at("mistral:latest", "ollama/blobs/sha256-abc");
    is_found_at("someone/tiny:q4", "ollama/blobs/sha256-def");
    is_found_at("org/full", "hub/models--org--full/snapshots/rev1");
    is_found_at("org/quants:q8_0", "hub/models--org--quants/snapshots/r/model-Q8_0.gguf");
    is_found_at("ggml-org_tiny_tiny-q8_0", "llama/ggml-org_tiny_tiny-q8_0.gguf");
    is_found_at("maker/studio:q8_0", "home/.lmstudio/models/maker/studio/studio-Q8_0.gguf");
    is_found_at("maker/studio:studio-Q4_K_M",
                "home/.lmstudio/models/maker/studio/studio-Q4_K_M.gguf");
    is_found_at("org/quants", "hub/models--org--quants/snapshots/r/model-Q4_K_M.gguf");
}

static void nothing_else_is_found(void)
{
    const char *names[] = {"absent",
                           "notes",
                           "../own/small",
                           "..",
                           "",
                           "mistral:none",
                           "evil",
                           "broken",
                           "org/absent",
                           "a/b/c:d",
                           "org/full/snapshots",
                           "small:latest",
                           "/etc/passwd",
                           "mistral:../x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[STORE_MAX_PATH];
        lace_error err;
        if (!CHECK(store_find(names[i], path, &err) == LACE_E_IO && path[0] == 0))
            tap_note("\"%s\" gave %s", names[i], path);
    }
}

static void refused_with(const char *name, const char *part)
{
    char path[STORE_MAX_PATH];
    lace_error err;
    CHECK(store_find(name, path, &err) == LACE_E_IO);
    if (!CHECK(strstr(err.text, part) && strstr(err.text, "manifest") &&
               !strstr(err.text, "no such file")))
        tap_note("%s: %s", name, err.text);
}

static void a_broken_manifest_is_named_with_what_is_wrong(void)
{
    write_file("ollama/manifests/registry.example/library/empty/latest", "");
    write_file("ollama/manifests/registry.example/library/none/latest", "{\"layers\":[]}");
    write_file("ollama/manifests/registry.example/library/gone/latest",
               "{\"layers\":[{\"mediaType\":\"application/vnd.x.image.model\",\"digest\":"
               "\"sha256:0123456789abcdef\"}]}");
    refused_with("broken", "broken/latest");
    refused_with("empty", "the text is empty");
    refused_with("none", "no layer of type model");
    refused_with("gone", "blobs/sha256-0123456789ab");
    refused_with("evil", "not a sha256 sum");
}

typedef struct seen {
    char names[1024];
    uint64_t n_bytes;
    int n;
} seen;

static bool see(void *user, const store_entry *e)
{
    seen *s = user;
    strcat(strcat(s->names, e->name), " ");
    s->n_bytes += e->n_bytes;
    s->n++;
    return s->n < 100;
}

static void list_shows_what_can_be_found(void)
{
    seen s = {.n = 0};
    store_list(see, &s);
    CHECK(strcmp(s.names, "folder small mistral:latest someone/tiny:q4 org/full "
                          "org/quants:model-Q4_K_M org/quants:model-Q8_0 ggml-org_tiny_tiny-q8_0 "
                          "maker/studio:studio-Q4_K_M maker/studio:studio-Q8_0 ") == 0);
    tap_note("%s", s.names);
    /* 2 + 7, 5, 10, 3, 2 + 1, 1, 2, 4, 5, 6 */
    CHECK(s.n_bytes == 48);
}

static bool see_one(void *user, const store_entry *e)
{
    ++*(int *)user;
    return false;
}

static void list_ends_when_told(void)
{
    int n = 0;
    store_list(see_one, &n);
    CHECK(n == 1);
}

int main(void)
{
    make_stores();
    CASE(names_lead_to_files);
    CASE(nothing_else_is_found);
    CASE(a_broken_manifest_is_named_with_what_is_wrong);
    CASE(list_shows_what_can_be_found);
    CASE(list_ends_when_told);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
    return tap_end();
}
