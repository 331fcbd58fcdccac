/*
 * LoRA adapters for tests: random matrices for the tensors of a model, written as llama.cpp and as
 * PEFT have them, and the model with them merged into its weights, by plain loops in double.
 */
#ifndef LACE_TESTS_LORA_KIT_H
#define LACE_TESTS_LORA_KIT_H

#include "formats/gguf_write.h"
#include "formats/weights.h"

enum { KIT_MOST = 96 };

/* For one tensor: a [rank, n_in] and b [n_out, rank]; of a table of embeddings a is [n_in, rank]. */
typedef struct kit_pair {
    char name[160]; /* of the tensor */
    int64_t n_in, n_out;
    bool is_table;
    float *a, *b;
} kit_pair;

typedef struct kit_adapter {
    int rank;
    float alpha;
    dtype type; /* of the matrices in the file: F32 or F16, whose values they then have */
    kit_pair pairs[KIT_MOST];
    int n_pairs;
} kit_adapter;

/* For all matrices of a file whose names contain one of the words, which end with NULL. */
void kit_make(kit_adapter *k, const weights *files, const char *const *words, int rank, float alpha,
              dtype type, uint32_t seed);
void kit_free(kit_adapter *k);

/* What an adapter adds with this scale. */
typedef struct kit_use {
    const kit_adapter *k;
    float scale;
} kit_use;

/* The model with adapters merged, as a GGUF file in memory. */
buf kit_merge_gguf(const weights *files, const kit_use *uses, int n_uses);

/* The adapter as a GGUF file for an architecture. */
gguf_writer *kit_gguf_writer(const kit_adapter *k, const char *architecture);
bool kit_write_gguf(const kit_adapter *k, const char *architecture, const char *path);

/* Tensors of a safetensors file, f32. */
typedef struct kit_tensor {
    char name[256];
    int64_t n_rows, n_cols; /* n_rows 0: a vector */
    const float *data;
} kit_tensor;

bool kit_write_safetensors(const kit_tensor *t, int n, const char *path);

/* The adapter of a directory's tensors ("model.layers.0.mlp.up_proj.weight") in the directory `to`,
 * which is made, as PEFT writes it. more: members of the config, with a comma behind each. */
bool kit_write_peft(const kit_adapter *k, const char *more, const char *to);

/* A directory's model.safetensors with adapters merged, and a link to its config.json. */
bool kit_merge_directory(const char *from, const weights *files, const kit_use *uses, int n_uses,
                         const char *to);

/* Remove a directory that was made here, with its files. */
void kit_remove(const char *directory);

#endif
