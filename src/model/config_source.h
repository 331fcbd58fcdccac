/*
 * Checked values of GGUF metadata, for those who read a model's numbers from it: config.c, and
 * architectures with keys of their own. Names stand without the architecture in front of them.
 */
#ifndef LACE_MODEL_CONFIG_SOURCE_H
#define LACE_MODEL_CONFIG_SOURCE_H

#include "model/model.h"

/* Where the numbers come from: a file, and the prefix of its keys. */
struct config_source {
    const gguf *g;
    const char *architecture;
    lace_error *err;
};

typedef struct config_key {
    char text[160]; /* an architecture of up to 63 bytes, a dot, and a name */
} config_key;

config_key config_key_of(const config_source *s, const char *name);

/* "key: what", with the place of the value in the file. */
lace_status config_bad(const config_source *s, const char *name, lace_status status,
                       const char *what);

/*
 * Optional values: *out keeps its value when the key is absent; found may be NULL. A value of another
 * kind or outside [low, high] is LACE_E_META.
 */
lace_status config_int(const config_source *s, const char *name, int64_t low, int64_t high,
                       int32_t *out, bool *found);
lace_status config_float(const config_source *s, const char *name, double low, double high,
                         double *out, bool *found);
lace_status config_bool(const config_source *s, const char *name, bool *out, bool *found);

/* The same, but the key must be there. */
lace_status config_need_int(const config_source *s, const char *name, int64_t low, int64_t high,
                            int32_t *out);

/*
 * A number for each layer, stored as an array or as one number for all: into out[0], out[stride],
 * ... where stride is in bytes, so that it can be a field of layer_config. Absent: out stays as it
 * is.
 */
lace_status config_layers_int(const config_source *s, const char *name, int32_t n_layers,
                              int64_t low, int64_t high, int32_t *out, size_t stride, bool *found);

/* rope.dimension_sections: frequencies of each axis of positions, no more than there are. */
lace_status config_sections(const config_source *s, rope_config *out);

#endif
