/*
 * Models that are already on this machine, by name: nothing is copied or changed.
 *
 * Five places, in this order:
 *
 *   $LACE_MODELS        NAME.gguf, or NAME with config.json in it
 *   Ollama's store      "mistral", "mistral:7b", "someone/model:tag": manifests that name a blob;
 *                       $OLLAMA_MODELS, else ~/.ollama/models, else /usr/share/ollama/.ollama/models
 *   Hugging Face cache  "org/model", "org/model:Q4_K_M": a snapshot with config.json, or the GGUF file
 *                       in it whose name has the tag; $HF_HUB_CACHE, else $HF_HOME/hub, else
 *                       $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub
 *   llama.cpp's cache   NAME.gguf; $LLAMA_CACHE, else ~/.cache/llama.cpp
 *   LM Studio           "org/model", "org/model:Q4_K_M": org/model/NAME.gguf; ~/.lmstudio/models, else
 *                       ~/.cache/lm-studio/models
 *
 * The parts of a name are letters, digits and "._-", so no name reaches out of these folders.
 */
#ifndef LACE_FORMATS_STORE_H
#define LACE_FORMATS_STORE_H

#include "base/status.h"

enum { STORE_MAX_PATH = 4096, STORE_MAX_PART = 256 };

typedef struct store_entry {
    const char *name; /* as store_find takes it */
    const char *path;
    const char *origin; /* "lace", "ollama", "huggingface", "llama.cpp", "lmstudio" */
    uint64_t n_bytes;   /* of all its files */
} store_entry;

/* The path of a model by name. LACE_E_IO, and a line that says where was looked, if there is none. */
lace_status store_find(const char *name, char path[STORE_MAX_PATH], lace_error *err);

/* The path of what a user calls a model: a path where there is something, or else a name. */
lace_status store_resolve(const char *name_or_path, char path[STORE_MAX_PATH], lace_error *err);

/* A part of a name or of a path: letters, digits and "._-", not beginning with a dot. */
bool store_is_part(const char *s, size_t n);

/* "x-00001-of-00003.gguf", and a name of the parts behind it. */
bool store_is_first_part(const char *file);
bool store_is_later_part(const char *file);

/*
 * Folders of other programs, by the environment; they need not exist. False: nothing says where.
 * Hugging Face's own folder, its cache of models, and Ollama's store.
 */
bool store_hf_home(char out[STORE_MAX_PATH]);
bool store_cache_root(char out[STORE_MAX_PATH]);
bool store_ollama_root(char out[STORE_MAX_PATH]);

/*
 * The mmproj file (a vision tower) in the folder of a model's file; of several one of f16, or the
 * first. False: there is none, or the path has no room.
 */
bool store_find_mmproj(const char *model_path, char path[STORE_MAX_PATH]);

/* Calls fn for every model until it returns false. */
typedef bool (*store_fn)(void *user, const store_entry *entry);
void store_list(store_fn fn, void *user);

#endif
