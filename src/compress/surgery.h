/*
 * The surgery file: what may be taken out of a model, rule by rule.
 *
 *     # Half of the feed-forward weights, nothing of the first layer.
 *     [limits]
 *     kld = 0.05                        # the model may not drift further than this
 *     protect = ["blk.0.*"]             # no rule touches these
 *
 *     [[rule]]
 *     tensors = "blk.*.ffn_*.weight"    # a glob, or several: ["...", "..."]
 *     method = "wanda"                  # how weights are chosen
 *     sparsity = 0.5                    # how many go; or pattern = "2:4"
 *     store = "m4"                      # how what is left is stored
 *
 *     [[rule]]
 *     tensors = "blk.*"
 *     method = "neurons"                # smaller matrices: whole neurons go
 *     sparsity = 0.1
 *     kld = 0.01                        # what this rule alone may cost
 *
 * The syntax is a part of TOML: sections, `key = value` with strings, numbers and arrays of
 * strings, comments. An unknown section, key or word is an error that names its line.
 *
 * Weights are matched by the last rule that names them, except that a protected tensor is never
 * touched. Structured rules (heads, neurons) match layers: "blk.3", "blk.*".
 */
#ifndef LACE_COMPRESS_SURGERY_H
#define LACE_COMPRESS_SURGERY_H

#include "base/arena.h"
#include "base/bytes.h"

/*
 * How the weights that go are chosen, by score; the lowest go.
 *   magnitude  |w|
 *   wanda      |w| * norm of the input, in each row
 *   ria        |w| / sum of its row + |w| / sum of its column, times the root of the input's norm
 *   sparsegpt  the error that remains after the others have been corrected; needs Hessians
 *   heads      attention heads by the norm of what they add to the residual
 *   neurons    feed-forward neurons, likewise
 */
typedef enum prune_method {
    PRUNE_MAGNITUDE,
    PRUNE_WANDA,
    PRUNE_RIA,
    PRUNE_SPARSEGPT,
    PRUNE_HEADS,
    PRUNE_NEURONS,
    PRUNE_N_METHODS
} prune_method;

const char *prune_method_name(prune_method method);
bool prune_method_find(text name, prune_method *out);
bool prune_method_is_structured(prune_method method);

/* How a pruned matrix is stored. STORE_SAME: in its own type, zeros included. */
typedef enum prune_store {
    STORE_SAME,
    STORE_M4,
    STORE_M8,
    STORE_N24,
    STORE_CSR,
    STORE_N
} prune_store;

const char *prune_store_name(prune_store store);
bool prune_store_find(text name, prune_store *out);

/* Patterns n:m keep n of each m weights that follow each other in a row; m is at most this. */
enum { PRUNE_MAX_GROUP = 32 };

typedef struct surgery_rule {
    const char *const *tensors; /* [n_tensors] globs */
    int32_t n_tensors;
    prune_method method;
    double sparsity;      /* share that goes, 0 to below 1 */
    int32_t keep, out_of; /* the pattern keep:out_of; 0:0: none */
    prune_store store;
    double max_kld; /* of this rule; infinite: no limit of its own */
    int32_t line;   /* where it begins, for messages; 0: not from a file */
} surgery_rule;

typedef struct surgery {
    arena memory;
    surgery_rule *rules;
    int32_t n_rules;
    const char *const *protect; /* globs */
    int32_t n_protect;
    double max_kld; /* of the whole model; infinite: none */
} surgery;

/* Parse. `name` is for messages: "name:3: ...". LACE_E_META for what is wrong with it. */
lace_status surgery_parse(text source, const char *name, surgery **out, lace_error *err);

/* The one rule that command-line options stand for, for all matrices of the layers. */
lace_status surgery_simple(prune_method method, double sparsity, int32_t keep, int32_t out_of,
                           prune_store store, surgery **out, lace_error *err);

void surgery_free(surgery *s);

/* The rule for a tensor, or -1. Structured rules are asked for by the layer's name, "blk.3". */
int32_t surgery_match(const surgery *s, const char *name, bool is_structured);

/* The last rule of that method for a name, or -1. */
int32_t surgery_match_method(const surgery *s, const char *name, prune_method method);

/* "2:4" to keep and out_of; LACE_E_ARG if it is no pattern. */
lace_status surgery_pattern(text t, int32_t *keep, int32_t *out_of, lace_error *err);

#endif
