/* Models by the names of hubs, for verbs: what is on this machine already, or a download. */
#ifndef LACE_CLI_PULL_H
#define LACE_CLI_PULL_H

#include "base/status.h"

enum { PULL_MAX_PATH = 4096 };

/*
 * The path of a model whose name says which hub it is at ("hf:ORG/REPO:QUANT", "ollama:NAME:TAG"):
 * where it is on this machine, or else where it was downloaded to, with a bar. Other names stay as
 * they are.
 */
lace_status pull_find(const char *name, char path[PULL_MAX_PATH], lace_error *err);

/* Whether a name is a path, a model of this machine, or one at a hub, where nobody has looked yet. */
bool pull_could_find(const char *name, lace_error *err);

#endif
