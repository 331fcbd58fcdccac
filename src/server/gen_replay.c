/*
 * Prompts that show earlier replies with the tokens that the model wrote (kept_replies.h), where a
 * template would write them anew.
 *
 * Messages whose text is known get a mark in place of what they say, in their content or in the name
 * of their first call. The template is rendered, and the marks show where it put them:
 *
 *     ...<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nMARK<|im_end|>\n<|im_start|>user...
 *                    ^ where the reply was opened                   ^ where it ended
 *
 * What lies between is replaced by the opening and the tokens of the reply, if all tokens before
 * are those behind which it was written. From the first reply on that is not, the template has its
 * way. So does it where the prompt would not leave room for an answer.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"
#include "server/core.h"
#include "server/kept_replies.h"

enum {
    MAX_PROMPT = 256 << 20, /* bytes of a rendered prompt */
    MARK_BYTES = 48,
    OPENING_REACH = 512, /* bytes before a mark in which a reply was opened */
    LEAST_ROOM = 1024,   /* tokens for an answer, where none are asked for */
};

typedef struct replay {
    gen_request *r;
    call *c;
    size_t *known; /* [n_known] numbers of messages that may be replaced */
    digest *said;  /* [n_known] */
    size_t n_known;
    uint64_t nonce; /* in the marks: nobody can know them before */

    /* The prompt so far. */
    lace_token *tokens;
    size_t n_tokens, capacity;
    buf chars;
    digest_stream *seen; /* of the owner and the tokens */
} replay;

/* ---- Marks ----------------------------------------------------------------------------------- */

static void write_mark(const replay *p, size_t i, char mark[MARK_BYTES])
{
    snprintf(mark, MARK_BYTES, "reply-%016llx-%zu-", (unsigned long long)p->nonce, i);
}

/* The message with a mark for what it says. */
static json_t *mark_message(const json_t *message, const char *mark)
{
    json_t *marked = json_deep_copy(message);
    json_t *first = json_array_get(json_object_get(marked, "tool_calls"), 0);
    json_t *function = json_object_get(first, "function");
    json_object_del(marked, "reasoning_content");
    json_object_del(marked, "reasoning");
    json_object_del(marked, "thinking");
    bool is_done = function ? json_object_set_new(function, "name", json_string(mark)) == 0 &&
                                  json_object_set_new(marked, "content", json_string("")) == 0
                            : json_object_set_new(marked, "content", json_string(mark)) == 0;
    if (is_done)
        return marked;
    json_decref(marked);
    return NULL;
}

/* The messages, the first n known ones with marks. */
static json_t *mark_messages(const replay *p, size_t n)
{
    json_t *all = json_copy(p->r->messages);
    for (size_t i = 0; all && i < n; i++) {
        char mark[MARK_BYTES];
        write_mark(p, i, mark);
        json_t *marked = mark_message(json_array_get(p->r->messages, p->known[i]), mark);
        if (!marked || json_array_set_new(all, p->known[i], marked) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* Which messages say what a kept reply says. */
static bool find_known(replay *p)
{
    kept_replies *kept = call_server(p->c)->replies;
    size_t n = json_array_size(p->r->messages);
    p->known = arena_alloc(&p->r->memory, n, sizeof *p->known);
    p->said = arena_alloc(&p->r->memory, n, sizeof *p->said);
    for (size_t i = 0; p->known && p->said && i < n; i++) {
        const json_t *m = json_array_get(p->r->messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        kept_reply reply;
        size_t at = 0;
        if (!role || strcmp(role, "assistant") != 0 || i + 1 == n)
            continue;
        p->r->n_replies++;
        if (!kept_replies_read(m, &p->said[p->n_known]) ||
            !kept_replies_find(kept, &p->said[p->n_known], &at, &p->r->memory, &reply))
            continue;
        p->known[p->n_known++] = i;
    }
    return p->n_known > 0;
}

/* ---- Places in a text ------------------------------------------------------------------------ */

/* The first place of a word at or behind `from`; the size of the text: there is none. */
static size_t find_word(text in, size_t from, text word)
{
    const char *at =
        from < in.size ? memmem(in.data + from, in.size - from, word.data, word.size) : NULL;
    return at ? (size_t)(at - in.data) : in.size;
}

static bool is_content(const chat_prompt *prompt, size_t at)
{
    for (size_t i = 0; i < prompt->n_contents && prompt->contents[i].begin <= at; i++)
        if (at < prompt->contents[i].end)
            return true;
    return false;
}

/* The same, of a word that nobody but the template wrote. */
static size_t find_own_word(const chat_prompt *prompt, size_t from, text word)
{
    text in = {prompt->chars.data, prompt->chars.size};
    size_t at = find_word(in, from, word);
    while (at < in.size && is_content(prompt, at))
        at = find_word(in, at + 1, word);
    return at;
}

/*
 * Where a reply was opened whose text stands at `end`: where most of the opening is written, the
 * last such place. What follows may differ: templates open reasoning only where they ask for a reply.
 */
static size_t find_opening(text in, size_t from, size_t end, text opening)
{
    size_t best = end, most = 3; /* fewer bytes are nothing to go by */
    from = end > OPENING_REACH && end - OPENING_REACH > from ? end - OPENING_REACH : from;
    for (size_t at = from; at < end; at++) {
        size_t n = 0;
        while (n < opening.size && at + n < end && in.data[at + n] == opening.data[n])
            n++;
        if (n >= most) {
            most = n;
            best = at;
        }
    }
    return best;
}

/* ---- Putting it together --------------------------------------------------------------------- */

static bool reserve(replay *p, size_t n)
{
    size_t needed = p->n_tokens + n;
    if (needed <= p->capacity)
        return true;
    size_t more = needed + needed / 2;
    lace_token *grown = mem_realloc(p->tokens, more * sizeof *grown);
    if (!grown)
        return false;
    p->tokens = grown;
    p->capacity = more;
    return true;
}

static bool add_tokens(replay *p, const lace_token *tokens, size_t n)
{
    if (!reserve(p, n) || !digest_stream_add(p->seen, tokens, n * sizeof *tokens))
        return false;
    memmove(p->tokens + p->n_tokens, tokens, n * sizeof *tokens);
    p->n_tokens += n;
    return true;
}

/*
 * The tokens of a part of the rendered prompt and of an opening behind it are put behind p->tokens,
 * but not yet counted.
 */
static bool tokenize_part(replay *p, const chat_prompt *prompt, lace_range part, text opening,
                          unsigned flags, size_t *n_out)
{
    buf b;
    size_t n = 0;
    lace_range *contents = mem_calloc(prompt->n_contents + 1, sizeof *contents);
    buf_init(&b, MAX_PROMPT);
    for (size_t i = 0; contents && i < prompt->n_contents; i++) {
        lace_range c = prompt->contents[i];
        c.begin = c.begin > part.begin ? c.begin : part.begin;
        c.end = c.end < part.end ? c.end : part.end;
        if (c.begin < c.end)
            contents[n++] = (lace_range){c.begin - part.begin, c.end - part.begin};
    }
    bool is_done =
        contents &&
        buf_append(&b, prompt->chars.data + part.begin, part.end - part.begin) == LACE_OK &&
        buf_append(&b, opening.data, opening.size) == LACE_OK && reserve(p, b.size / 2 + 16);
    while (is_done) {
        is_done = lace_tokenize_contents(call_server(p->c)->model, b.data ? b.data : "", b.size,
                                         contents, n, flags, p->tokens + p->n_tokens,
                                         p->capacity - p->n_tokens, n_out, NULL) == LACE_OK;
        if (!is_done || *n_out <= p->capacity - p->n_tokens)
            break;
        is_done = reserve(p, *n_out);
    }
    is_done = is_done && buf_append(&p->chars, b.data, b.size) == LACE_OK;
    mem_free(contents);
    buf_deinit(&b);
    return is_done;
}

/* The text of a reply, for those who look at how the prompt ends. */
static bool add_chars(replay *p, const kept_reply *reply)
{
    bool ok = true;
    for (size_t i = 0; ok && i < reply->n_tokens; i++) {
        size_t n;
        const char *bytes = lace_token_bytes(call_server(p->c)->model, reply->tokens[i], &n);
        ok = buf_append(&p->chars, bytes, n) == LACE_OK;
    }
    return ok;
}

/*
 * Replace what stands around a mark by one of the replies that say the same. *at is where the prompt
 * goes on in the rendered text. False: none of them was written behind these tokens.
 */
static bool replace_one(replay *p, const chat_prompt *prompt, size_t i, size_t mark_at, size_t *at,
                        unsigned flags)
{
    const server *s = call_server(p->c);
    text in = {prompt->chars.data, prompt->chars.size};
    kept_reply reply;
    for (size_t k = 0; kept_replies_find(s->replies, &p->said[i], &k, &p->r->memory, &reply);) {
        text opening = {reply.opening, reply.n_opening}, end;
        size_t from = find_opening(in, *at, mark_at, opening), n, n_chars = p->chars.size;
        digest behind;
        end.data = lace_token_bytes(s->model, reply.tokens[reply.n_tokens - 1], &end.size);
        size_t end_at = find_own_word(prompt, mark_at, end);
        if (from == mark_at || end_at == in.size)
            continue;
        if (tokenize_part(p, prompt, (lace_range){*at, from}, opening, flags, &n) &&
            digest_stream_peek(p->seen, p->tokens + p->n_tokens, n * sizeof(lace_token), &behind) &&
            digest_equals(&behind, &reply.behind)) {
            *at = end_at + end.size;
            return add_tokens(p, p->tokens + p->n_tokens, n) &&
                   add_tokens(p, reply.tokens, reply.n_tokens) && add_chars(p, &reply);
        }
        p->chars.size = n_chars;
    }
    return false;
}

static bool start(replay *p)
{
    uint64_t owner = call_owner(p->c);
    digest_stream_free(p->seen);
    p->seen = digest_stream_create();
    p->n_tokens = 0;
    buf_clear(&p->chars);
    return p->seen && digest_stream_add(p->seen, &owner, sizeof owner);
}

/*
 * The prompt, with the first n known messages replaced. Returns how many could be; the prompt is
 * complete if that is all of them.
 */
static size_t replace_all(replay *p, size_t n, unsigned flags, chat_prompt *prompt)
{
    json_t *messages = mark_messages(p, n);
    size_t at = 0, i = 0, n_last;
    if (messages && start(p) &&
        gen_render_messages(p->r, p->c, messages, prompt, NULL) == LACE_OK) {
        text in = {prompt->chars.data, prompt->chars.size};
        for (; i < n; i++, flags &= ~(unsigned)LACE_TOKENIZE_ADD_SPECIAL) {
            char mark[MARK_BYTES];
            write_mark(p, i, mark);
            size_t mark_at = find_word(in, at, text_of(mark));
            if (mark_at == in.size || !replace_one(p, prompt, i, mark_at, &at, flags))
                break;
        }
        if (i == n &&
            !(tokenize_part(p, prompt, (lace_range){at, in.size}, text_of(""), flags, &n_last) &&
              add_tokens(p, p->tokens + p->n_tokens, n_last)))
            i = 0;
    }
    json_decref(messages);
    return i;
}

/* An answer must find room behind what the template would leave out. */
static bool has_room(const replay *p)
{
    int32_t most = p->r->options.max_tokens;
    size_t wanted = most >= 0 && most < LEAST_ROOM ? (size_t)most : LEAST_ROOM;
    return p->n_tokens + wanted < (size_t)call_server(p->c)->limits.n_context;
}

static bool give_prompt(replay *p, const chat_prompt *prompt, size_t n_kept)
{
    gen_request *r = p->r;
    r->prompt = arena_alloc(&r->memory, p->n_tokens, sizeof *r->prompt);
    r->prompt_text = arena_strndup(&r->memory, p->chars.data, p->chars.size);
    if (!r->prompt || !r->prompt_text)
        return false;
    memcpy(r->prompt, p->tokens, p->n_tokens * sizeof *r->prompt);
    r->n_prompt = p->n_tokens;
    r->n_replies_kept = n_kept;
    r->n_prompt_text = p->chars.size;
    r->reply_opening = prompt->opening;
    return true;
}

bool gen_replay(gen_request *r, call *c, unsigned flags)
{
    replay p = {.r = r, .c = c};
    bool is_done = false;
    if (!call_server(c)->replies || !r->options.use_prefixes || !json_is_array(r->messages) ||
        !system_random(&p.nonce, sizeof p.nonce) || !find_known(&p))
        return false;
    buf_init(&p.chars, MAX_PROMPT);
    for (size_t n = p.n_known; n > 0 && !is_done;) {
        chat_prompt prompt;
        chat_prompt_init(&prompt, MAX_PROMPT);
        size_t n_done = replace_all(&p, n, flags, &prompt);
        is_done = n_done == n && has_room(&p) && give_prompt(&p, &prompt, n);
        n = n_done < n ? n_done : 0;
        chat_prompt_deinit(&prompt);
    }
    buf_deinit(&p.chars);
    digest_stream_free(p.seen);
    mem_free(p.tokens);
    return is_done;
}

/* ---- What is kept ---------------------------------------------------------------------------- */

/* What the template writes to ask for a reply: the difference that asking makes. */
static bool render_opening(gen_request *r, call *c, buf *out)
{
    chat_prompt asked, told;
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
    bool adds = r->add_generation_prompt;
    chat_prompt_init(&asked, MAX_PROMPT);
    chat_prompt_init(&told, MAX_PROMPT);
    bool is_done = messages && gen_render_messages(r, c, messages, &asked, NULL) == LACE_OK;
    r->add_generation_prompt = false;
    is_done = is_done && gen_render_messages(r, c, messages, &told, NULL) == LACE_OK;
    r->add_generation_prompt = adds;
    size_t n = told.chars.size;
    is_done = is_done && asked.chars.size > n &&
              (n == 0 || memcmp(asked.chars.data, told.chars.data, n) == 0) &&
              buf_append(out, asked.chars.data + n, asked.chars.size - n) == LACE_OK;
    chat_prompt_deinit(&asked);
    chat_prompt_deinit(&told);
    json_decref(messages);
    return is_done;
}

void gen_prepare_note(gen_request *r, call *c)
{
    buf opening;
    uint64_t owner = call_owner(c);
    text prompt = {r->prompt_text, r->n_prompt_text};
    if (!call_server(c)->replies || !r->add_generation_prompt || r->options.grammar ||
        (r->reply_opening && *r->reply_opening))
        return;
    buf_init(&opening, MAX_PROMPT);
    if (render_opening(r, c, &opening)) {
        size_t at = find_opening(prompt, 0, prompt.size, (text){opening.data, opening.size});
        r->opening_text = (text){prompt.data + at, prompt.size - at};
        r->is_noted = at < prompt.size && digest_of(&owner, sizeof owner, r->prompt,
                                                    r->n_prompt * sizeof *r->prompt, &r->behind);
    }
    buf_deinit(&opening);
}
