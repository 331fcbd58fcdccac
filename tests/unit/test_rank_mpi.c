/*
 * Ranks as processes under mpirun: the bits of one process, on equal and unequal shares; ranks that do
 * not fit end with a line that names them; one that is killed ends the others. Longer ones are in
 * bench/ranks-faults.py.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "data.h"
#include "sanitized.h"
#include "tap.h"

#define MPIRUN                                                                                     \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 2 60 mpirun "            \
    "--oversubscribe --bind-to none "

static char *model;

/* Whether ranks over MPI can be tried here; otherwise says why not. */
static bool has_mpi(void)
{
    if (IS_SANITIZED) {
        tap_skip("Open MPI's own leaks fail under a sanitizer; threads are tried in test_ranks");
        return false;
    }
    command_sh("test -e $(dirname $lace)/lace_mpi.so && command -v mpirun");
    if (ran.code == 0)
        return true;
    tap_skip(
        "no mpicc or no mpirun here: ranks over MPI are not built (libopenmpi-dev, openmpi-bin)");
    return false;
}

static bool write_tokens(void)
{
    int32_t tokens[40];
    for (int i = 0; i < 40; i++)
        tokens[i] = 3 + i * 7 % 50;
    return command_write("ids", tokens, sizeof tokens);
}

/* A script that a rank runs: other words for rank 1. */
static void run_ranks(int n, const char *before, const char *first, const char *second,
                      const char *options)
{
    command_sh("printf '#!/bin/sh\\nm=%s\\n[ $OMPI_COMM_WORLD_RANK = 1 ] && { m=%s; %s; }\\n"
               "exec %%s logits $m --tokens %%s/ids -o %%s/many -t 1 --force %s\\n' "
               "$lace $dir $dir > $dir/rank.sh && chmod +x $dir/rank.sh && " MPIRUN
               "-n %d $dir/rank.sh",
               first, second, before, options, n);
}

static void same_bits(void)
{
    if (!has_mpi() || !CHECK(write_tokens()))
        return;
    command_run("logits %s --tokens $dir/ids -o $dir/one -t 1", model);
    CHECK(ran.code == 0);
    run_ranks(2, ":", model, model, "");
    CHECK(ran.code == 0);
    command_sh("cmp $dir/one $dir/many");
    CHECK(ran.code == 0);
    run_ranks(3, ":", model, model, "--ranks 3,1,2");
    CHECK(ran.code == 0);
    command_sh("cmp $dir/one $dir/many");
    CHECK(ran.code == 0);
}

static void lowest_level(void)
{
    if (!has_mpi() || !CHECK(write_tokens()))
        return;
    command_sh("LACE_CPU=plain $lace logits %s --tokens $dir/ids -o $dir/one -t 1 --force", model);
    CHECK(ran.code == 0);
    run_ranks(2, "export LACE_CPU=plain", model, model, "");
    CHECK(ran.code == 0);
    command_sh("cmp $dir/one $dir/many");
    CHECK(ran.code == 0);
}

static void another_model(void)
{
    char *other = data_path("golden/qwen3/model.gguf");
    if (has_mpi() && CHECK(other && write_tokens())) {
        run_ranks(2, ":", model, other, "");
        CHECK(ran.code == 1 && strstr(ran.err, "has another model than rank 0"));
    }
    free(other);
}

static void another_count(void)
{
    if (!has_mpi() || !CHECK(write_tokens()))
        return;
    run_ranks(2, ":", model, model, "--ranks 1,2,3");
    CHECK(ran.code == 1 && strstr(ran.err, "names 3 ranks, and 2 have been started"));
}

/* Without the plugin mpirun would start two programs that know nothing of each other. */
static void without_the_plugin(void)
{
    if (!has_mpi() || !CHECK(write_tokens()))
        return;
    command_sh("LACE_MPI_PLUGIN=/nowhere OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 $lace "
               "logits %s --tokens $dir/ids -o $dir/x",
               model);
    CHECK(ran.code == 1 && strstr(ran.err, "need lace_mpi.so, which cannot be opened"));
}

int main(void)
{
    model = data_path("golden/llama/model.gguf");
    if (model && command_begin()) {
        CASE(same_bits);
        CASE(lowest_level);
        CASE(another_model);
        CASE(another_count);
        CASE(without_the_plugin);
        command_end();
    }
    free(model);
    return tap_end();
}
