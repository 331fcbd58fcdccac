/* The plugin that speaks MPI: found, checked, opened. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rank/rank_mpi.h"

static int32_t number_in(const char *name)
{
    const char *value = getenv(name);
    return value ? (int32_t)strtol(value, NULL, 10) : 0;
}

/* Processes of the job: Open MPI's mpirun says it, and Slurm. */
static int32_t job_size(void)
{
    int32_t n = number_in("OMPI_COMM_WORLD_SIZE");
    return n > 0 ? n : getenv("PMIX_RANK") ? number_in("SLURM_NTASKS") : 0;
}

bool rank_mpi_is_started(void)
{
    return job_size() > 1;
}

/* Whether all of them are on this machine. */
static bool is_all_here(void)
{
    return number_in("OMPI_COMM_WORLD_LOCAL_SIZE") == job_size();
}

/* ---- The network ----------------------------------------------------------------------------- */

/* "10.8.0.0/24" as a number and a mask; false: it is no such text. */
static bool parse_net(const char *net, uint32_t *address, uint32_t *mask)
{
    char text[32];
    const char *slash = strchr(net, '/');
    struct in_addr parsed;
    char *end;
    if (!slash || (size_t)(slash - net) >= sizeof text)
        return false;
    memcpy(text, net, (size_t)(slash - net));
    text[slash - net] = 0;
    long bits = slash[1] >= '0' && slash[1] <= '9' ? strtol(slash + 1, &end, 10) : -1;
    if (bits < 1 || bits > 32 || *end || inet_pton(AF_INET, text, &parsed) != 1)
        return false;
    *mask = (uint32_t)(0xFFFFFFFFull << (32 - bits));
    *address = ntohl(parsed.s_addr) & *mask;
    return true;
}

static bool has_address_in(uint32_t address, uint32_t mask)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
            const struct sockaddr_in *in = (const struct sockaddr_in *)i->ifa_addr;
            found = (ntohl(in->sin_addr.s_addr) & mask) == address;
        }
    freeifaddrs(all);
    return found;
}

static lace_status check_net(const char *net, lace_error *err)
{
    uint32_t address, mask;
    if (!net && is_all_here())
        return LACE_OK;
    if (!net)
        return error_set(err, LACE_E_ARG,
                         "ranks on several machines need --rank-net, the network that they talk "
                         "over and strangers do not reach, as in 10.8.0.0/24");
    if (!parse_net(net, &address, &mask))
        return error_set(err, LACE_E_ARG, "--rank-net %s, expected a network as in 10.8.0.0/24",
                         net);
    if (!has_address_in(address, mask))
        return error_set(err, LACE_E_ARG, "--rank-net %s: this machine has no address there", net);
    return LACE_OK;
}

/* ---- The plugin ------------------------------------------------------------------------------ */

/* The folder that the program lies in, with a slash; "" if that is not known. */
static void own_folder(char out[4096])
{
    ssize_t n = readlink("/proc/self/exe", out, 4095);
    out[n > 0 ? n : 0] = 0;
    char *slash = strrchr(out, '/');
    out[slash ? slash + 1 - out : 0] = 0;
}

static void *open_library(void)
{
    char folder[4096], path[4200];
    const char *given = getenv("LACE_MPI_PLUGIN");
    if (given)
        return dlopen(given, RTLD_NOW | RTLD_GLOBAL);
    own_folder(folder);
    snprintf(path, sizeof path, "%s%s", folder, RANK_MPI_FILE);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    snprintf(path, sizeof path, "%s../lib/lace/%s", folder, RANK_MPI_FILE);
    return library ? library : dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

lace_status rank_mpi_open(const rank_mpi_options *o, ranks **out, lace_error *err)
{
    *out = NULL;
    TRY(check_net(o->net, err));
    rank_shares shares = {0};
    if (o->parts)
        TRY(rank_shares_parse(o->parts, &shares, err));
    void *library = open_library();
    if (!library)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "ranks over MPI need %s, which cannot be opened (%s); it is built where "
                         "mpicc is (Debian: libopenmpi-dev), and lies beside lace",
                         RANK_MPI_FILE, dlerror());
    const rank_mpi_plugin *plugin = dlsym(library, RANK_MPI_SYMBOL);
    if (!plugin || strcmp(plugin->version, LACE_VERSION) != 0 ||
        plugin->ranks_bytes != sizeof(ranks))
        return error_set(err, LACE_E_VERSION, "%s is not of this lace, " LACE_VERSION,
                         RANK_MPI_FILE);
    ranks *r;
    TRY(plugin->open(o, &r, err));
    int32_t n = r->shares.n_ranks, rank = r->shares.rank;
    if (o->parts && shares.n_ranks != n) {
        lace_status status =
            error_set(err, LACE_E_ARG, "--ranks %s names %d ranks, and %d have been started",
                      o->parts, shares.n_ranks, n);
        ranks_close(r);
        return status;
    }
    if (o->parts) {
        r->shares = shares;
        r->shares.rank = rank;
    }
    *out = r;
    return LACE_OK;
}
