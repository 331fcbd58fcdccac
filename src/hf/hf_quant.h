/*
 * How a Hugging Face directory says that its matrices are quantized: the object quantization_config
 * of config.json.
 *
 *     gptq                 "bits", "group_size", "sym", "checkpoint_format" ("gptq" or "gptq_v2")
 *     awq                  "bits", "group_size", "version" ("gemm")
 *     compressed-tensors   "format" and "config_groups"; "sparsity_config"
 *     fp8, fbgemm_fp8      "weight_block_size"
 *     mxfp4                nothing more: gpt-oss
 *
 * What is here says how to read the tensors; they must fit it (hf_packed.h).
 */
#ifndef LACE_HF_HF_QUANT_H
#define LACE_HF_HF_QUANT_H

#include "base/status.h"

struct source; /* config_json.h */

typedef enum hf_quant_method {
    HF_QUANT_NONE,
    HF_QUANT_MXFP4,
    HF_QUANT_GPTQ,
    HF_QUANT_AWQ,
    HF_QUANT_COMPRESSED, /* compressed-tensors */
    HF_QUANT_FP8,
} hf_quant_method;

enum { HF_QUANT_MAX_GROUPS = 8 };

typedef struct hf_quant {
    hf_quant_method method;
    int32_t bits;                            /* of gptq and awq */
    int32_t group_size;                      /* columns that share a scale; -1: all */
    bool stores_zero_minus_one;              /* gptq: a stored 7 is the zero 8 */
    bool is_symmetric;                       /* gptq: the zero is in the middle */
    int32_t block_rows, block_cols;          /* fp8: of a scale; 0: not in blocks */
    int32_t group_bits[HF_QUANT_MAX_GROUPS]; /* compressed-tensors: widths that occur */
    int32_t n_groups;
} hf_quant;

/* Read and check; a config without quantization gives HF_QUANT_NONE. */
lace_status hf_quant_read(const struct source *s, hf_quant *out);

#endif
