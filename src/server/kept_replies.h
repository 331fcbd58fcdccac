/*
 * Kept replies: the exact tokens that the model wrote, for prompts that show them again.
 *
 * A client sends a reply back as a message, and the template writes it anew: without its reasoning,
 * with the arguments of a call in another order or other spaces. The tokens then differ from those
 * in the KV cache, and all that stands behind them would be computed again. So replies are kept as
 * they were written. A reply is found by what it says (content, names and arguments of calls) and
 * by all the tokens before it, so that it can only ever stand where it was written.
 *
 * A note is taken while a reply is written, on the event loop. Workers ask for kept replies.
 */
#ifndef LACE_SERVER_KEPT_REPLIES_H
#define LACE_SERVER_KEPT_REPLIES_H

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "chat/parse_reply.h"

typedef struct kept_replies kept_replies;

typedef struct kept_reply {
    digest behind;       /* the owner, and all tokens before it */
    const char *opening; /* what the prompt ended with, where the reply began */
    size_t n_opening;
    const lace_token *tokens; /* the last is one that ends a text */
    size_t n_tokens;
} kept_reply;

/*
 * path: a file that also keeps them, for a model with n_vocab tokens, or NULL; what is in it is read.
 */
lace_status kept_replies_create(const char *path, int32_t n_vocab, kept_replies **out,
                                lace_error *err);
void kept_replies_free(kept_replies *k); /* NULL is fine */

/* What a message of the assistant's says, whatever the order and spaces of its calls. */
bool kept_replies_read(const json_t *message, digest *out);

/*
 * The next reply that says this, the newest first: number *at, which is counted on. Its text and
 * tokens are in `memory`. False: there is none.
 */
bool kept_replies_find(kept_replies *k, const digest *said, size_t *at, arena *memory,
                       kept_reply *out);

/* ---- Notes ----------------------------------------------------------------------------------- */

/* Of a reply that is being written. */
typedef struct reply_note {
    reply_sink sink; /* gets the parts, too */
    void *arg;
    buf content, arguments;
    json_t *calls; /* [[name, arguments], ...] */
    lace_token *tokens;
    size_t n_tokens, capacity;
    bool has_failed;
} reply_note;

void reply_note_init(reply_note *n);
void reply_note_deinit(reply_note *n);
void reply_note_token(reply_note *n, lace_token token);
lace_status reply_note_part(void *note, const reply_event *part); /* a reply_sink */

/* The reply is complete. `opening` and `behind` are of its prompt. */
void kept_replies_add(kept_replies *k, const reply_note *n, text opening, const digest *behind);

#endif
