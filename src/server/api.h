/* The functions of all routes, as the table in routes.c names them. */
#ifndef LACE_SERVER_API_H
#define LACE_SERVER_API_H

#include "server/call.h"

/* api_status.c: how the server is */
void api_health(call *c);
void api_ready(call *c);
void api_metrics(call *c);
void api_props(call *c);

/* api_models.c */
void api_models(call *c);
void api_model(call *c);
/* gen_adapters.c: adapters by number, as llama-server has them */
void api_adapters(call *c);
void api_adapters_set(call *c);

void api_models_load(call *c); /* of a server that has several: router_api.c */
/* Whether a path's end, in which %XX may stand for bytes, is this name. */
bool api_path_is_name(text given, const char *name);

/* api_chat.c, api_completions.c: OpenAI's text generation */
void api_chat_completions(call *c);
void api_completions(call *c);
void api_chat_count(call *c);

/* api_responses.c: the same without state */
void api_responses(call *c);
void api_responses_count(call *c);

/* api_llama.c: llama.cpp's own routes */
void api_llama_completion(call *c);
void api_llama_infill(call *c);

/* api_embeddings.c */
void api_embeddings(call *c);
void api_ollama_embed(call *c);
void api_llama_embeddings(call *c);
void api_ollama_embeddings(call *c);

/* api_rerank.c */
void api_rerank(call *c);

/* api_anthropic.c */
void api_messages(call *c);
void api_count_tokens(call *c);

/* api_ollama.c */
void api_ollama_version(call *c);
void api_ollama_tags(call *c);
void api_ollama_ps(call *c);
void api_ollama_show(call *c);
void api_ollama_chat(call *c);
void api_ollama_generate(call *c);

/* api_tokens.c: tokens and templates without a generation */
void api_tokenize(call *c);
void api_detokenize(call *c);
void api_apply_template(call *c);

/* page.c */
void api_page(call *c);

#endif
