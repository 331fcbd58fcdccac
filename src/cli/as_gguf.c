/* A Hugging Face directory as a GGUF file. */
#define _DEFAULT_SOURCE
#include "cli/as_gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "compress/convert.h"
#include "formats/store.h"

/* Converted to a name, which goes away while the file stays open. */
static lace_status convert(const char *input, const char *name, progress *bar, as_gguf *out,
                           lace_error *err)
{
    convert_options o = convert_options_default();
    o.on_progress = progress_report;
    o.progress_user = bar;
    lace_status status = convert_directory(input, name, &o, NULL, err);
    progress_end(bar);
    TRY(status);
    out->fd = open(name, O_RDONLY | O_CLOEXEC);
    int reason = errno;
    unlink(name);
    if (out->fd < 0)
        return error_set(err, LACE_E_IO, "%s: %s", name, strerror(reason));
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", out->fd);
    return LACE_OK;
}

lace_status as_gguf_open(const char *input, const char *output, progress *bar, as_gguf *out,
                         lace_error *err)
{
    struct stat st;
    *out = (as_gguf){.fd = -1};
    TRY(store_resolve(input, out->path, err));
    if (stat(out->path, &st) == 0 && S_ISDIR(st.st_mode)) {
        char name[4096];
        int n = snprintf(name, sizeof name, "%s.source-%d", output, (int)getpid());
        if (n >= (int)sizeof name)
            return error_set(err, LACE_E_ARG, "the name of the output is too long");
        return convert(input, name, bar, out, err);
    }
    return LACE_OK;
}

void as_gguf_close(as_gguf *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}
