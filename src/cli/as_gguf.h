/*
 * A Hugging Face directory as a GGUF file, for tools that read a model several times: converted
 * beside the output, without a name, and gone with the process.
 */
#ifndef LACE_CLI_AS_GGUF_H
#define LACE_CLI_AS_GGUF_H

#include "cli/progress.h"
#include "formats/store.h"

typedef struct as_gguf {
    char path[STORE_MAX_PATH]; /* of the file to read: the input itself, if that is no directory */
    int fd;                    /* -1: none was made */
} as_gguf;

/* `output` says where there is room. On failure there is nothing to close. */
lace_status as_gguf_open(const char *input, const char *output, progress *bar, as_gguf *out,
                         lace_error *err);
void as_gguf_close(as_gguf *a);

#endif
