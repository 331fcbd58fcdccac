/*
 * Ranks over MPI, as a plugin: Open MPI and MPICH have different ABIs, and most machines have
 * neither. rank_mpi.c is built with mpicc into lace_mpi.so, alone, and opened with dlopen when ranks
 * were asked for (rank_mpi_open.c). It uses nothing of lace but the types of rank.h.
 */
#ifndef LACE_RANK_RANK_MPI_H
#define LACE_RANK_RANK_MPI_H

#include "rank/rank.h"

#define RANK_MPI_FILE   "lace_mpi.so"
#define RANK_MPI_SYMBOL "lace_rank_mpi"

typedef struct rank_mpi_options {
    const char *parts;   /* what each does of the work, "3,1"; NULL: equal parts */
    const char *net;     /* the network that ranks talk over, "10.8.0.0/24"; NULL: none was named */
    int32_t deadline_ms; /* how long an exchange may take */
} rank_mpi_options;

/* What the plugin gives: the symbol RANK_MPI_SYMBOL. */
typedef struct rank_mpi_plugin {
    char version[32]; /* LACE_VERSION, and the size of ranks: those of another build are refused */
    uint64_t ranks_bytes;
    lace_status (*open)(const rank_mpi_options *o, ranks **out, lace_error *err);
} rank_mpi_plugin;

/*
 * rank_mpi_open.c: find the plugin beside the program, in ../lib/lace, or where $LACE_MPI_PLUGIN
 * says, and open this process's end. Refuses to talk over a network that was not named.
 */
lace_status rank_mpi_open(const rank_mpi_options *o, ranks **out, lace_error *err);

/* Whether mpirun or srun has started this program as one of several. */
bool rank_mpi_is_started(void);

#endif
