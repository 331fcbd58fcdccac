/* OpenAI's Responses API: what reading and answering share. */
#ifndef LACE_SERVER_RESPONSES_H
#define LACE_SERVER_RESPONSES_H

#include "server/generate.h"

/* A whole request, for gen_start. False: answered. */
bool responses_read(gen_request *r, call *c, json_t *body);

#endif
