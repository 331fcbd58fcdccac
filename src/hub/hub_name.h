/*
 * Names of models at a hub, and what the environment says about it.
 *
 *     [hf:]ORG/REPO[:QUANT][@REVISION]    Hugging Face: hf:Qwen/Qwen3-0.6B-GGUF:Q8_0
 *     [https://]hf.co/ORG/REPO...         the same, and an address copied from a browser
 *     ollama:[OWNER/]MODEL[:TAG]          Ollama's registry: ollama:qwen3:0.6b
 *
 * Environment, as huggingface_hub reads it: HF_ENDPOINT, HF_TOKEN (else the file HF_TOKEN_PATH, else
 * HF_HOME/token, which `hf auth login` writes), HF_HUB_OFFLINE, HF_HUB_CACHE, HF_HOME. For Ollama:
 * OLLAMA_MODELS, and LACE_OLLAMA_REGISTRY in place of https://registry.ollama.ai.
 */
#ifndef LACE_HUB_HUB_NAME_H
#define LACE_HUB_HUB_NAME_H

#include "formats/store.h"

enum {
    HUB_MAX_PART = STORE_MAX_PART,
    HUB_MAX_TOKEN = 1024,
    HUB_MAX_ENDPOINT = 512,
    HUB_MAX_PATH = STORE_MAX_PATH
};

typedef struct hub_name {
    bool is_ollama;
    char owner[HUB_MAX_PART], model[HUB_MAX_PART];
    char tag[HUB_MAX_PART];      /* "": none was named */
    char revision[HUB_MAX_PART]; /* a branch, a tag or a commit; "main" unless named */
} hub_name;

/*
 * Whether a word says which hub it is at. Then out is it as the list of models has it:
 * "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0" and "https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/blob/main/Q8_0.gguf"
 * both become "Qwen/Qwen3-0.6B-GGUF:Q8_0".
 */
bool hub_name_without_prefix(const char *word, char out[HUB_MAX_PATH]);

lace_status hub_name_parse(const char *word, hub_name *out, lace_error *err);

typedef struct hub_place {
    char endpoint[HUB_MAX_ENDPOINT]; /* without a slash at its end */
    char token[HUB_MAX_TOKEN];       /* "": none */
    char root[HUB_MAX_PATH];         /* of the cache, or of Ollama's store; may not exist */
    bool is_offline;
} hub_place;

lace_status hub_place_read(const hub_name *name, hub_place *out, lace_error *err);

#endif
