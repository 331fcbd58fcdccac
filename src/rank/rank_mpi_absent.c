/* In the place of ranks over MPI, on a system that has none. */
#include "rank/rank_mpi.h"

lace_status rank_mpi_open(const rank_mpi_options *o, ranks **out, lace_error *err)
{
    *out = NULL;
    return error_set(err, LACE_E_UNSUPPORTED, "lace for Windows has no ranks on several machines");
}

bool rank_mpi_is_started(void)
{
    return false;
}
