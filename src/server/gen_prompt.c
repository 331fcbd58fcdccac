/* From messages or text to the tokens of a prompt. */
#include <string.h>

#include "base/mem.h"
#include "server/core.h"

enum { MAX_PROMPT = 256 << 20 }; /* bytes of a rendered prompt */

/* The field that a prompt came by. */
static const char *prompt_field(const call *c)
{
    return json_object_get(c->json, "prompt") ? "prompt" : "messages";
}

/* The prompt must leave room for a reply; said with both numbers. */
bool gen_check_length(call *c, size_t n_prompt)
{
    int32_t n_context = call_server(c)->limits.n_context;
    if (n_prompt == 0) {
        call_fail(c, 400, "prompt", "invalid_value", "the prompt is empty");
        return false;
    }
    if (n_prompt < (size_t)n_context)
        return true;
    call_fail(c, 400, prompt_field(c), "context_length_exceeded",
              "the prompt has %zu tokens, the context has %d, of which a reply needs at least one",
              n_prompt, n_context);
    return false;
}

/* Where contents stand in a text: what users wrote there never becomes a control token. */
typedef struct text_parts {
    const lace_range *contents; /* NULL: the text is of one author */
    size_t n_contents;
} text_parts;

static bool tokenize(gen_request *r, call *c, text input, text_parts parts, unsigned flags)
{
    const server *s = call_server(c);
    lace_error err = {0};
    for (size_t capacity = input.size / 2 + 16;; capacity = r->n_prompt) {
        r->prompt = arena_alloc(&r->memory, capacity, sizeof *r->prompt);
        if (!r->prompt)
            return call_nomem(c);
        if (lace_tokenize_contents(s->model, input.data, input.size, parts.contents,
                                   parts.n_contents, flags, r->prompt, capacity, &r->n_prompt,
                                   &err) != LACE_OK) {
            call_fail_error(c, NULL, &err);
            return false;
        }
        if (r->n_prompt <= capacity)
            break;
    }
    /* A model computes what follows something; if there is nothing, BOS stands for it. */
    if (r->n_prompt == 0 && s->info.bos >= 0)
        r->prompt[r->n_prompt++] = s->info.bos;
    return gen_check_length(c, r->n_prompt);
}

bool gen_request_text(gen_request *r, call *c, const char *prompt, size_t n_bytes)
{
    r->prompt_text = prompt;
    r->n_prompt_text = n_bytes;
    return tokenize(r, c, (text){prompt, n_bytes}, (text_parts){0},
                    LACE_TOKENIZE_ADD_SPECIAL | LACE_TOKENIZE_PARSE_SPECIAL);
}

lace_status gen_decode(const lace_model *model, const lace_token *tokens, size_t n, buf *out,
                       lace_error *err)
{
    lace_decoder *decoder;
    const char *piece;
    size_t n_bytes;
    TRY(lace_decoder_create(model, &decoder, err));
    lace_status status = LACE_OK;
    for (size_t i = 0; i <= n && status == LACE_OK; i++) {
        status = i < n ? lace_decoder_push(decoder, tokens[i], &piece, &n_bytes, err)
                       : lace_decoder_flush(decoder, &piece, &n_bytes, err);
        if (status == LACE_OK)
            status = buf_append(out, piece, n_bytes);
    }
    lace_decoder_free(decoder);
    return status;
}

/* ---- Infilling ------------------------------------------------------------------------------- */

/* The words around a prefix, a suffix and what is between them, by family; each is one token. */
static const struct {
    const char *before, *hole, *after; /* before PREFIX hole SUFFIX after MIDDLE */
} infill_words[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen2.5-Coder, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder, Granite, SantaCoder */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, /* GLM */
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "hole\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>"},                                            /* DeepSeek */
    {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>"}, /* CodeLlama */
};

bool gen_has_token(const call *c, const char *word)
{
    const server *s = call_server(c);
    lace_token token;
    size_t n = 0, n_bytes = 0;
    if (lace_tokenize(s->model, word, strlen(word), LACE_TOKENIZE_PARSE_SPECIAL, &token, 1, &n,
                      NULL) != LACE_OK ||
        n != 1)
        return false;
    const char *bytes = lace_token_bytes(s->model, token, &n_bytes);
    return n_bytes == strlen(word) && memcmp(bytes, word, n_bytes) == 0;
}

bool gen_request_infill(gen_request *r, call *c, text prompt, text suffix)
{
    gen_hole hole = {text_of(""), prompt, suffix, text_of(""), "suffix"};
    return gen_request_hole(r, c, &hole);
}

bool gen_request_hole(gen_request *r, call *c, const gen_hole *hole)
{
    size_t n = sizeof infill_words / sizeof infill_words[0], i = 0;
    while (i < n &&
           !(gen_has_token(c, infill_words[i].before) && gen_has_token(c, infill_words[i].hole) &&
             gen_has_token(c, infill_words[i].after)))
        i++;
    if (i == n) {
        call_fail(c, 400, hole->param, NULL,
                  "%s is given, but the model has no tokens for filling in", hole->param);
        return false;
    }
    const text parts[] = {
        hole->before, text_of(infill_words[i].before), hole->prefix, text_of(infill_words[i].hole),
        hole->suffix, text_of(infill_words[i].after),  hole->middle};
    size_t n_bytes = 0, n_parts = sizeof parts / sizeof parts[0];
    for (size_t k = 0; k < n_parts; k++)
        n_bytes += parts[k].size;
    char *whole = arena_alloc(&r->memory, n_bytes + 1, 1), *at = whole;
    if (!whole)
        return call_nomem(c);
    for (size_t k = 0; k < n_parts; k++) {
        memcpy(at, parts[k].data, parts[k].size);
        at += parts[k].size;
    }
    return gen_request_text(r, c, whole, n_bytes);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Render the messages, and turn the text into tokens. */
static bool render_chat(gen_request *r, call *c, unsigned flags)
{
    chat_prompt prompt;
    chat_prompt_init(&prompt, MAX_PROMPT);
    bool is_done = gen_render(r, c, &prompt);
    if (is_done) {
        const buf *chars = &prompt.chars;
        r->prompt_text = arena_strndup(&r->memory, chars->data ? chars->data : "", chars->size);
        r->n_prompt_text = chars->size;
        r->reply_opening = prompt.opening;
        is_done = r->prompt_text || call_nomem(c);
    }
    is_done = is_done && tokenize(r, c, (text){r->prompt_text, r->n_prompt_text},
                                  (text_parts){prompt.contents, prompt.n_contents}, flags);
    chat_prompt_deinit(&prompt);
    return is_done;
}

bool gen_request_chat(gen_request *r, call *c)
{
    /* A model's own template writes BOS itself. */
    unsigned flags = LACE_TOKENIZE_PARSE_SPECIAL;
    if (!chat_template_caps(call_server(c)->chat)->has_own_template)
        flags |= LACE_TOKENIZE_ADD_SPECIAL;
    r->options.show_special = true; /* formats of calls and reasoning use control tokens */
    r->splits_thinking = !r->keeps_reasoning;
    r->wants_calls = r->tools != NULL;
    if (!gen_take_images(r, c))
        return false;
    /* Replies of conversations with images are not kept: their prompts are more than tokens. */
    bool is_replayed = r->n_images == 0 && gen_replay(r, c, flags);
    if (!is_replayed && (!render_chat(r, c, flags) || !gen_place_images(r, c)))
        return false;
    if (r->n_images == 0)
        gen_prepare_note(r, c);
    if (!gen_limit_reasoning(r, c))
        return false;
    return r->forces_call ? gen_use_call(r, c) : gen_hold_calls(r, c);
}

lace_status gen_make_parser(call *c, int choice, reply_sink sink, void *arg, reply_parser **out)
{
    const gen_request *r = call_request(c);
    const reply_format *format = chat_template_reply_format(call_server(c)->chat);
    reply_format described = chat_template_described_format(call_server(c)->chat);
    text prompt = {r->prompt_text, r->n_prompt_text};
    if (r->forces_call || r->holds_calls)
        format = &r->call_format;
    else if (r->tools && !chat_template_caps(call_server(c)->chat)->takes_tools)
        format = &described;
    reply_options options = {
        /* A reply that is held to a form has no room for reasoning, unless it may be a call. */
        .is_thinking = (r->forces_call || r->holds_calls || !r->options.grammar) &&
                       reply_opens_thinking(format, prompt),
        .keeps_thinking = !r->splits_thinking,
        .keeps_calls = !r->wants_calls,
        .opening = r->reply_opening,
        .tools = r->tools,
    };
    if (!c->notes)
        return reply_parser_create(format, &options, sink, arg, out, NULL);
    c->notes[choice].sink = sink;
    c->notes[choice].arg = arg;
    return reply_parser_create(format, &options, reply_note_part, &c->notes[choice], out, NULL);
}
