/*
 * Runs a fuzz target on files instead of a fuzzer's inputs: with any compiler, for a corpus that
 * must stay clean.
 *
 *     replay_gguf [FILE or FOLDER...]      by default tests/fuzz/corpus/gguf, after its own name
 *
 * Each input is in a block of exactly its size, so that a sanitizer sees every read past its end.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_files;

static void replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!CHECK(f != NULL)) {
        tap_note("cannot open %s", path);
        return;
    }
    if (CHECK(fstat(fileno(f), &st) == 0)) {
        size_t size = (size_t)st.st_size;
        uint8_t *data = malloc(size ? size : 1);
        /* The name first: if the target crashes, it is the last thing that was printed. */
        printf("# %s\n", path);
        fflush(stdout);
        if (CHECK(data && fread(data, 1, size, f) == size))
            LLVMFuzzerTestOneInput(data, size);
        free(data);
        n_files++;
    }
    fclose(f);
}

static void replay(void *arg)
{
    const char *path = arg;
    DIR *d = opendir(path);
    if (!d) {
        replay_file(path);
        return;
    }
    int before = n_files;
    for (struct dirent *e; (e = readdir(d));) {
        char file[1024];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            replay_file(file);
    }
    closedir(d);
    CHECK(n_files > before); /* an empty corpus is a mistake */
    tap_note("%d files", n_files - before);
}

int main(int argc, char **argv)
{
    char corpus[1024];
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s",
             strncmp(name, "replay_", 7) == 0 ? name + 7 : name);
    if (argc < 2)
        tap_case_arg(corpus, replay, corpus);
    for (int i = 1; i < argc; i++)
        tap_case_arg(argv[i], replay, argv[i]);
    return tap_end();
}
