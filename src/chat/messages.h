/* Messages in OpenAI's form, brought into the form that a template takes. Inside src/chat only. */
#ifndef LACE_CHAT_MESSAGES_H
#define LACE_CHAT_MESSAGES_H

#include "chat/chat.h"

typedef struct message_rules {
    const chat_caps *caps;
    bool keeps_developer; /* the template knows the role "developer" */
    bool wants_thinking;  /* earlier reasoning is read from "thinking" */
} message_rules;

/* A new array, to be freed with json_decref. LACE_E_ARG, LACE_E_UNSUPPORTED, LACE_E_NOMEM. */
lace_status messages_adapt(const json_t *messages, const message_rules *rules, json_t **out,
                           lace_error *err);

#endif
