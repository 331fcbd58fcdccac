/* Ollama's API: what reading and answering share. */
#ifndef LACE_SERVER_OLLAMA_H
#define LACE_SERVER_OLLAMA_H

#include "server/generate.h"

/* Whole requests, for gen_start. False: answered. */
bool ollama_read_chat(gen_request *r, call *c, json_t *body);
bool ollama_read_generate(gen_request *r, call *c, json_t *body);

/* Check "model", or "name", against what is served. False: answered. */
bool ollama_check_model(call *c, const json_t *body);
bool ollama_check_name(call *c, const json_t *body, bool is_strict); /* the same; strict or not */

/* The answer to a request without a prompt: the model is there. */
void ollama_reply_loaded(call *c, bool is_chat, bool is_unload);

#endif
