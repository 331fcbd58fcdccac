/* Anthropic's API: what its two routes share. */
#ifndef LACE_SERVER_ANTHROPIC_H
#define LACE_SERVER_ANTHROPIC_H

#include "server/generate.h"

/* "system" and "messages" as OpenAI's messages: a new array, set even
 * on failure. False: answered. */
bool anthropic_messages(call *c, const json_t *body, json_t **out);

/* "tools" as OpenAI's tools: a new array, or NULL if there are none. False: answered. */
bool anthropic_tools(call *c, const json_t *body, json_t **out);

#endif
