/*
 * LoRA adapters on disk, whatever they lie in: a GGUF file as llama.cpp has them (general.type
 * "adapter", tensors NAME.lora_a and NAME.lora_b) or a directory of PEFT. All bytes come from
 * outside: what this opens has two matrices of fitting shapes for every tensor that it names, and
 * each of those is a tensor of the model that it is opened for.
 */
#ifndef LACE_MODEL_ADAPTER_FILE_H
#define LACE_MODEL_ADAPTER_FILE_H

#include "base/digest.h"
#include "formats/weights.h"
#include "hf/peft.h"

/* The model that an adapter is for. */
typedef struct adapter_base {
    peft_base names;
    /* The shape of its tensor of that name in GGUF; NULL: it has none. */
    const shape *(*find)(const void *user, const char *name);
    const void *user;
} adapter_base;

/* What it adds to one tensor: factor * b a, with a: [rank, n_in] and b: [n_out, rank]. */
typedef struct adapter_part {
    char name[128]; /* the tensor of the model, as in GGUF */
    int32_t rank;
    int64_t n_in, n_out;
    bool is_table; /* the table of embeddings, whose rows are looked up: n_in of them */
    float factor;
    dtype type; /* F32, F16 or BF16: holds both matrices exactly */
    const tensor *a, *b;
    peft_map map;
    bool is_a_turned; /* a is stored as [n_in, rank] */
} adapter_part;

typedef struct adapter_file {
    weights *files;
    char name[128];  /* for people: general.name, or that of the file */
    peft_base names; /* its config is the model's, borrowed */
    adapter_part *parts;
    size_t n_parts;
    int32_t rank;     /* the largest */
    double alpha;     /* as its file says */
    uint64_t n_bytes; /* of all matrices, in their types */
    digest digest;    /* of all that it says: the same in every process */
} adapter_file;

/* The config of the base must outlive it. */
lace_status adapter_open(const char *path, const adapter_base *base, adapter_file **out,
                         lace_error *err);

/* The same of files that are open. Takes `files`, also on failure. */
lace_status adapter_open_files(weights *files, const adapter_base *base, adapter_file **out,
                               lace_error *err);
void adapter_close(adapter_file *f); /* NULL is fine */

/*
 * The matrices of a part as floats, in the order that the model's tensor has: a [rank, n_in], of a
 * table [n_in, rank]; b [n_out, rank]. LACE_E_NUMERIC if a value is not finite.
 */
lace_status adapter_read(const adapter_file *f, const adapter_part *part, float *a, float *b,
                         lace_error *err);

/* Whether the files are an adapter, and not a model: for those who describe files. */
bool adapter_is(const weights *files);

#endif
