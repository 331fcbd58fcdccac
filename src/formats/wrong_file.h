/*
 * What a file is that was taken for a model: a web page, a git-lfs pointer, a cut download. People
 * meet these in their first hour, and "bad magic" does not tell them what to do.
 */
#ifndef LACE_FORMATS_WRONG_FILE_H
#define LACE_FORMATS_WRONG_FILE_H

#include "base/bytes.h"

/*
 * A file could not be read as `wanted` ("GGUF", "safetensors", "JSON"); `status` and *err say why. Where its
 * first bytes tell what it is, or it ends too early, *err becomes one sentence that says so and what
 * to do. `path` is only looked at for its name. Returns the status.
 */
lace_status wrong_file_explain(const char *path, span bytes, const char *wanted, lace_status status,
                               lace_error *err);

/* A directory that holds no model (`missing` is what it lacks): what is in it, and what to do. */
lace_status wrong_directory_explain(const char *path, const char *missing, lace_error *err);

#endif
