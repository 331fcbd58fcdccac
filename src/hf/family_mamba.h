/* What families with the state spaces of Mamba-2 share: the names of their tensors, and keys. */
#ifndef LACE_HF_FAMILY_MAMBA_H
#define LACE_HF_FAMILY_MAMBA_H

#include "hf/hf_family.h"

/* A = -exp(A_log) */
float mamba_decay(float a_log);

/* clang-format off */
/* The tensors of a state space, behind `at`; and without its matrices. */
#define MAMBA_ROWS(at)                                                                             \
    WITH_BIAS(at "in_proj", "ssm_in"),                                                        \
    WITH_BIAS(at "out_proj", "ssm_out"),                                                      \
    MAMBA_STATE_ROWS(at)

#define MAMBA_STATE_ROWS(at)                                                                       \
    SHAPED(at "conv1d.weight", "ssm_conv1d.weight", SHAPE_SQUEEZED),                               \
    COPY(at "conv1d.bias", "ssm_conv1d.bias"),                                                     \
    COPY(at "dt_bias", "ssm_dt.bias"),                                                             \
    {.hf = at "A_log", .gguf = "ssm_a", .kind = RECIPE_VALUES, .value_of = mamba_decay,            \
     .shape = SHAPE_COLUMN},                                                                       \
    SHAPED(at "D", "ssm_d", SHAPE_COLUMN),                                                         \
    SHAPED(at "norm.weight", "ssm_norm.weight", SHAPE_GROUPS)
/* clang-format on */

/* How a family calls the numbers of its state spaces. */
typedef struct mamba_keys {
    const char *n_taps, *n_state, *n_heads, *head_dim, *n_groups;
    const char *n_inner; /* NULL, or the key absent: n_heads heads of head_dim */
    int32_t default_heads, default_state, default_groups;
} mamba_keys;

extern const mamba_keys mamba2_keys, mamba_nemotron_keys;
extern const mamba_keys mamba_d_keys; /* of Granite and Falcon-H1 */

/* The sizes, and the limits of time steps where they are used. */
lace_status read_mamba(const source *s, const mamba_keys *keys, model_config *c);
lace_status read_time_step_limit(const source *s, model_config *c);

#endif
