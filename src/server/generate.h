/*
 * From a request's JSON to generations, and their events on the way back.
 *
 * A route's function, on a worker thread, names a reader, which fills a gen_request, and a sink:
 *
 *     static bool read_request(gen_request *r, call *c, json_t *body)
 *     {
 *         r->messages = json_incref(json_object_get(body, "messages"));
 *         return gen_check_model(c, body) && gen_request_read(r, c, body, GEN_CHAT) &&
 *                gen_request_chat(r, c);
 *     }
 *     void api_chat(call *c) { gen_start(c, read_request, &sink); }
 *
 * On the event loop the sink then gets an event for every token of every choice, the last one with
 * `finish` set. When all choices have finished, `on_end` closes the answer.
 */
#ifndef LACE_SERVER_GENERATE_H
#define LACE_SERVER_GENERATE_H

#include "base/arena.h"
#include "base/digest.h"
#include "chat/chat.h"
#include "server/call.h"

enum {
    GEN_MAX_CHOICES = 128,
    GEN_MAX_STOPS = 16,
};

/* Tokens to be continued. */
typedef struct gen_prompt {
    lace_token *tokens;
    size_t n;
} gen_prompt;

/* A request for text, whatever API it came by. */
struct gen_request {
    arena memory;                    /* of everything below */
    lace_generation_options options; /* sampler, limits, stops, biases; prompt is set below */
    int32_t n_choices;               /* default 1 */
    bool is_stream;
    bool wants_usage;         /* with a stream: say the counts at the end */
    bool wants_logprobs;      /* options.n_top is set, too */
    bool times_tokens;        /* with a stream: say the times in every chunk */
    bool parallel_calls;      /* more than one tool call in a reply; default true */
    bool forces_call;         /* the reply is a tool call; options.grammar sees to it */
    bool holds_calls;         /* it may be one, and is held to its form then, likewise */
    const char *forced_name;  /* of this function; NULL: of any */
    reply_format call_format; /* in which it is written */

    lace_token *prompt;
    size_t n_prompt;
    const char *prompt_text; /* what the tokens were made of, where there is a text */
    size_t n_prompt_text;
    lace_image **images; /* [n_images] of the messages, in their order; owned */
    size_t n_images;
    json_t *messages;           /* owned, as the two below; array */
    json_t *tools;              /* array, or NULL */
    json_t *kwargs;             /* variables for the template; object, or NULL */
    json_t *documents;          /* array for templates that take it, or NULL */
    bool add_generation_prompt; /* end where a reply begins; default true */
    bool continues_last;        /* a last message of the assistant's is continued; default true */
    int32_t thinking_budget;    /* tokens of reasoning; -1: as the server has it */
    bool keeps_reasoning;       /* leave it in the content */
    const char *reply_opening;  /* what the parser of the reply reads first; static, or NULL */
    size_t n_replies;           /* earlier ones that the prompt shows */
    size_t n_replies_kept;      /* as the model wrote them */
    bool is_noted;              /* replies are kept (kept_replies.h), with the two below */
    digest behind;              /* of the owner and the prompt */
    text opening_text;          /* the end of prompt_text, which asks for a reply */
    bool wants_calls;           /* look for tool calls in the reply */
    bool splits_thinking;       /* look for reasoning in the reply */
    text *echoes;               /* [n_choices / n_each] texts that choices begin with; NULL: none */
    gen_prompt *prompts;    /* where there are several: choice k continues prompts[k / n_each] */
    int32_t n_each;         /* choices for each of them; without prompts, all */
    void *user;             /* of the route; in `memory` */
    const char *model_name; /* of the adapter that was asked for as a model; NULL: none */
};

/* Families of routes whose fields differ; GEN_LLAMA: llama.cpp's own. */
typedef enum gen_kind { GEN_CHAT, GEN_TEXT, GEN_LLAMA } gen_kind;

void gen_request_init(gen_request *r);
void gen_request_deinit(gen_request *r);

/* Read the body as a request and generate. The reader returns false when it has answered. */
typedef bool (*gen_reader)(gen_request *r, call *c, json_t *body);
void gen_start(call *c, gen_reader read, const gen_sink *sink);
/* The same without generating: {"object":..,"input_tokens":N}, the tokens of the prompt. */
void gen_count(call *c, gen_reader read, const char *object);

/* The members of a JSON object: each field of the sampler with the value that it has unasked. */
void gen_write_defaults(const server *s, json_out *out);

/* Read all fields that control generation, by the rows of fields.def. False: answered. */
bool gen_request_read(gen_request *r, call *c, const json_t *body, gen_kind kind);

/*
 * gen_format.c: what holds the text to a form ("response_format", "grammar", "regex" and others) to
 * options.grammar, which belongs to the request. False: answered.
 */
bool gen_read_format(gen_request *r, call *c, const json_t *body);
/* A schema (or, if it is NULL, any JSON object) likewise. `param` is for messages. */
bool gen_use_schema(gen_request *r, call *c, const char *param, const json_t *schema);
/* The reply must be a call of one of the request's tools, or of the one that `name` names; NULL:
 * any. */
bool gen_force_call(gen_request *r, call *c, const char *name);
/* The grammar of the call that is demanded, once the prompt is there. */
bool gen_use_call(gen_request *r, call *c);
/*
 * The grammar of calls that are up to the model, where a tool is "strict": they begin where they like.
 * Without one, where the model's format cannot be held to it.
 */
bool gen_hold_calls(gen_request *r, call *c);

/* gen_adapters.c: which adapters it uses, by "model" and "lora". False: answered. */
bool gen_read_adapters(gen_request *r, call *c, const json_t *body);
/* What an answer calls the model: its name, or that of the adapter that was asked for. */
const char *call_model_id(const call *c);

/* Check "model": any name will do, unless the server is strict. False: answered. */
bool gen_check_model(call *c, const json_t *body);

/*
 * gen_template.c: what speaks to the template ("chat_template_kwargs", "enable_thinking",
 * "documents" and others), behind `messages`. False: answered.
 */
bool gen_read_template(gen_request *r, call *c, const json_t *body);

/* The request's messages and tools to a prompt, by the model's template. False: answered. */
bool gen_request_chat(gen_request *r, call *c);

/*
 * gen_replay.c: the same with replies as the model wrote them, where they are kept; the flags are
 * those of lace_tokenize. False: none is, and nothing was done.
 */
bool gen_replay(gen_request *r, call *c, unsigned flags);
/* What is needed to keep the replies of a request whose prompt is there. */
void gen_prepare_note(gen_request *r, call *c);

/*
 * gen_images.c: images of the messages are decoded and computed, and places stand for them; and
 * their rows, once the prompt is there. False: answered, or to be read again where it may take long.
 */
bool gen_take_images(gen_request *r, call *c);
bool gen_place_images(gen_request *r, call *c);

/* gen_template.c: how the reasoning of a reply is found and limited. False: answered. */
bool gen_limit_reasoning(gen_request *r, call *c);

/* A text, which must outlive the request, to a prompt. False: answered. */
bool gen_request_text(gen_request *r, call *c, const char *prompt, size_t n_bytes);
/* What stands between a text and a suffix, for models that were trained for it. False: answered. */
bool gen_request_infill(gen_request *r, call *c, text prompt, text suffix);

/* The same with a text before all of it, and what the filling begins with. */
typedef struct gen_hole {
    text before, prefix, suffix, middle;
    const char *param; /* for messages */
} gen_hole;

bool gen_request_hole(gen_request *r, call *c, const gen_hole *hole);
bool gen_has_token(const call *c, const char *word); /* it is one token of the model */

/* Parts of the above, for routes that need them alone. False: answered. */
bool gen_render(const gen_request *r, call *c, chat_prompt *out);
lace_status gen_render_messages(const gen_request *r, call *c, const json_t *messages,
                                chat_prompt *out, lace_error *err); /* answers nothing */
bool gen_check_length(call *c, size_t n_prompt);
bool gen_read_stops(gen_request *r, call *c, const json_t *stop); /* a string or a list; or NULL */
bool gen_read_tokens(gen_request *r, call *c, const char *name, const json_t *list, size_t max,
                     lace_token **out, size_t *n_out);

/* Tokens to text, behind what is in `out`. */
lace_status gen_decode(const lace_model *model, const lace_token *tokens, size_t n, buf *out,
                       lace_error *err);

/*
 * A parser of one choice's text into content, reasoning and tool calls (chat/parse_reply.h), set up
 * as the request wants it. To be fed with the text of events, and finished at the end.
 */
lace_status gen_make_parser(call *c, int choice, reply_sink sink, void *arg, reply_parser **out);

/* ---- Events ---------------------------------------------------------------------------------- */

/* What a step brought for one choice. */
struct gen_event {
    gen_event *next;
    call *c;
    int choice;
    lace_token token; /* -1: none */
    bool is_prompt;   /* tells how far the prompt is read, and nothing else */
    float logprob;
    lace_logprob top[LACE_MAX_TOP];
    size_t n_top;
    lace_finish finish;
    const char *stop;   /* the stop that was found, or NULL */
    lace_status status; /* with LACE_FINISH_ERROR */
    lace_generation_stats stats;
    size_t n_text;
    char text[]; /* of the error, with LACE_FINISH_ERROR */
};

/* How an API writes what was generated; on the event loop. */
struct gen_sink {
    /* One of the two: how reply.h makes and frees the state, one reply or several choices. */
    const struct reply_kind *reply;
    const struct choices_kind *choices;
    void (*on_event)(call *c, const gen_event *e);  /* of choices; a reply is taken apart */
    void (*on_prompt)(call *c, const gen_event *e); /* with is_prompt; may be NULL */
    void (*on_end)(call *c); /* all choices have finished, and none with an error */
};

const gen_request *call_request(const call *c);

/*
 * Whether a part of a reply is wanted: without parallel_calls, what follows the first tool call is
 * not, and its generation ends there.
 */
bool call_wants_part(call *c, int choice, const reply_event *part);
void call_satisfy(call *c, int choice); /* enough was said: a good end */
void *call_state(const call *c);        /* of the sink, kept between events */
void call_set_state(call *c, void *state);

#endif
