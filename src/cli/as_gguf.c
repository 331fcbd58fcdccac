/* A Hugging Face directory as a GGUF file. */
#define _DEFAULT_SOURCE
#include "cli/as_gguf.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "base/system.h"
#include "compress/convert.h"
#include "formats/store.h"

/* Converted to a file in the output's folder that never gets a name. */
static lace_status convert(const char *input, const char *output, progress *bar, as_gguf *out,
                           lace_error *err)
{
    convert_options o = convert_options_default();
    file_rules rules = {.fd = &out->fd};
    o.rules = &rules;
    o.on_progress = progress_report;
    o.progress_user = bar;
    lace_status status = convert_directory(input, output, &o, NULL, err);
    progress_end(bar);
    TRY(status);
    system_fd_path(out->fd, out->path, sizeof out->path);
    return LACE_OK;
}

lace_status as_gguf_open(const char *input, const char *output, progress *bar, as_gguf *out,
                         lace_error *err)
{
    struct stat st;
    *out = (as_gguf){.fd = -1};
    TRY(store_resolve(input, out->path, err));
    bool is_directory = stat(out->path, &st) == 0 && S_ISDIR(st.st_mode);
    return is_directory ? convert(input, output, bar, out, err) : LACE_OK;
}

void as_gguf_close(as_gguf *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}
