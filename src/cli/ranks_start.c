/* lace serve --hosts: the same command on several machines, by mpirun. */
#define _POSIX_C_SOURCE 200809L
#include "cli/ranks_start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { MAX_FILE = 1 << 20, OWN_WORDS = 20 };

/* Lines that name a machine: not empty, and no comment. */
static int count_hosts(const buf *file)
{
    int n = 0;
    bool is_new = true, is_comment = false;
    for (size_t i = 0; i < file->size; i++) {
        char c = (char)file->data[i];
        if (c == '\n') {
            is_new = true;
            is_comment = false;
        } else if (c == '#' && is_new) {
            is_comment = true;
        } else if (is_new && !is_comment && c != ' ' && c != '\t' && c != '\r') {
            n++;
            is_new = false;
        }
    }
    return n;
}

static lace_status read_count(const char *hosts, int *n, lace_error *err)
{
    buf file;
    buf_init(&file, MAX_FILE);
    lace_status status = file_read(hosts, &file, err);
    *n = status == LACE_OK ? count_hosts(&file) : 0;
    buf_deinit(&file);
    if (status == LACE_OK && *n == 0)
        status =
            error_set(err, LACE_E_ARG, "%s: names no machine, expected one on each line", hosts);
    return status;
}

/* --hosts FILE or --hosts=FILE: how many words to leave out. */
static int hosts_words(const char *word)
{
    return strcmp(word, "--hosts") == 0 ? 2 : strncmp(word, "--hosts=", 8) == 0 ? 1 : 0;
}

lace_status ranks_start(const char *hosts, const char *net, int argc, char **argv, lace_error *err)
{
    int n_hosts, n = 0;
    char count[16], self[4096];
    if (!net)
        return error_set(err, LACE_E_ARG,
                         "--hosts needs --rank-net, the network that ranks talk over and strangers "
                         "do not reach, as in 10.8.0.0/24");
    TRY(read_count(hosts, &n_hosts, err));
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char **words = mem_calloc((size_t)argc + OWN_WORDS + 8, sizeof *words);
    if (length < 0 || !words) {
        mem_free(words);
        return error_nomem(err, "a command");
    }
    self[length] = 0;
    snprintf(count, sizeof count, "%d", n_hosts);
    const char *const own[] = {"mpirun",
                               "-n",
                               count,
                               "--hostfile",
                               hosts,
                               "--map-by",
                               "node",
                               "--bind-to",
                               "none",
                               "--mca",
                               "oob_tcp_if_include",
                               net,
                               "--mca",
                               "btl_tcp_if_include",
                               net,
                               "--mca",
                               "odls_base_sigkill_timeout",
                               "10",
                               self,
                               "serve"};
    _Static_assert(sizeof own / sizeof *own == OWN_WORDS, "there is room for them");
    for (; n < OWN_WORDS; n++)
        words[n] = own[n];
    for (int i = 0; i < argc;) {
        int skip = hosts_words(argv[i]);
        if (!skip)
            words[n++] = argv[i++];
        else
            i += skip;
    }
    execvp("mpirun", (char *const *)words);
    mem_free(words);
    return error_set(err, LACE_E_UNSUPPORTED, "cannot start mpirun (Debian: openmpi-bin): %s",
                     strerror(errno));
}
