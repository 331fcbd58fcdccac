/* lace serve --hosts: the same command on several machines, by mpirun. */
#ifndef LACE_CLI_RANKS_START_H
#define LACE_CLI_RANKS_START_H

#include "base/status.h"

/*
 * Become mpirun, which starts this program once for each line of the file `hosts`: `serve` with the
 * arguments, but without --hosts. Returns only on failure. Ranks need a network, `net`.
 */
lace_status ranks_start(const char *hosts, const char *net, int argc, char **argv, lace_error *err);

#endif
