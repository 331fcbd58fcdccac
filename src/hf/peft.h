/*
 * LoRA adapters as PEFT writes them (adapter_config.json, adapter_model.safetensors): what the
 * config says, and which tensors of GGUF the modules of Hugging Face's models are, by the tables of
 * the families.
 */
#ifndef LACE_HF_PEFT_H
#define LACE_HF_PEFT_H

#include <jansson.h>

#include "model/config.h"
#include "hf/hf_names.h"

struct name_row;

/* How the model's own tensors lie: as in a GGUF file, or as a directory's are run. */
typedef struct peft_base {
    const model_config *config;
    hf_layout layout;
} peft_base;

/* How the matrices for a module become those for a tensor. All zero: they stay as they are. */
typedef struct peft_map {
    const struct name_row *row;
    int32_t layer;
    int32_t n_permuted; /* heads whose rows are put into another order; 0: none */
    bool is_unpermuted; /* the order is undone, for an adapter that was made for a GGUF file */
} peft_map;

typedef struct peft_target {
    char name[128]; /* the tensor of GGUF */
    peft_map map;
} peft_target;

enum { PEFT_MOST_TARGETS = 8 }; /* tensors that are made of one module */

/*
 * The tensors that a module ("model.layers.3.self_attn.q_proj") becomes. LACE_E_META if models of
 * this architecture have no such module, LACE_E_UNSUPPORTED if its parts cannot be changed.
 */
lace_status peft_find(const peft_base *base, const char *module, peft_target *out, int *n_out,
                      lace_error *err);

/* How an adapter in GGUF's order fits the tensor of that name. */
lace_status peft_map_gguf(const peft_base *base, const char *name, peft_map *out, lace_error *err);

/* Of a matrix with n_source rows: how many the tensor has, and which one row r of it is. */
int64_t peft_n_rows(const peft_base *base, const peft_map *m, int64_t n_source);
int64_t peft_row(const peft_base *base, const peft_map *m, int64_t n_rows, int64_t r);

/* The same for columns. */
int64_t peft_n_columns(const peft_base *base, const peft_map *m, int64_t n_source);
int64_t peft_column(const peft_base *base, const peft_map *m, int64_t column);

/* What row r is multiplied with. */
double peft_row_factor(const peft_base *base, const peft_map *m, int64_t r);

/* What adapter_config.json says. */
typedef struct peft_config {
    double alpha;
    bool is_rank_stabilized;     /* alpha / sqrt(rank) in place of alpha / rank */
    const json_t *alpha_pattern; /* alphas of modules whose names end in a key, or NULL */
    const char *base_model;      /* "" if it is not said */
} peft_config;

/* LACE_E_UNSUPPORTED names what would change the results and is not LoRA. Borrows the JSON. */
lace_status peft_config_read(const json_t *config, peft_config *out, lace_error *err);

/* What the products of a module's two matrices are multiplied with. */
double peft_factor(const peft_config *c, const char *module, int32_t rank);

#endif
