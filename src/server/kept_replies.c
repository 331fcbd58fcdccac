/* Kept replies: a list of what was written, newest first, with an upper limit of memory. */
#include "server/kept_replies.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/record_log.h"

enum {
    MAX_KEPT_BYTES = 64 << 20, /* of all replies */
    MAX_NOTE_BYTES = 16 << 20, /* of one */
    MAX_LOG_BYTES = 256 << 20, /* of the file */
};

typedef struct entry {
    struct entry *older, *newer;
    digest said;
    kept_reply reply; /* its pointers are into this entry */
    size_t n_bytes;
} entry;

struct kept_replies {
    int32_t n_vocab;
    record_log *log; /* of records as make_record writes them; NULL: none */
    pthread_mutex_t lock;
    entry *newest, *oldest;
    size_t n_bytes;
};

static void drop_oldest(kept_replies *k)
{
    entry *e = k->oldest;
    k->oldest = e->newer;
    *(e->newer ? &e->newer->older : &k->newest) = NULL;
    k->n_bytes -= e->n_bytes;
    mem_free(e);
}

void kept_replies_free(kept_replies *k)
{
    if (!k)
        return;
    while (k->oldest)
        drop_oldest(k);
    record_log_close(k->log);
    pthread_mutex_destroy(&k->lock);
    mem_free(k);
}

/* ---- What a reply says ----------------------------------------------------------------------- */

static text trim(const char *chars, size_t n)
{
    while (n > 0 && isspace((unsigned char)chars[n - 1]))
        n--;
    while (n > 0 && isspace((unsigned char)*chars)) {
        chars++;
        n--;
    }
    return (text){chars, n};
}

/* Takes calls, which may be NULL: memory is out. */
static bool digest_said(text content, json_t *calls, digest *out)
{
    char *chars = calls ? json_dumps(calls, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    bool is_done = chars && digest_of(content.data, content.size, chars, strlen(chars) + 1, out);
    free(chars);
    json_decref(calls);
    return is_done;
}

/* [name, arguments]: as a value, where they are JSON. */
static json_t *pack_call(const char *name, const char *arguments, size_t n)
{
    json_t *value = json_loadb(arguments, n, JSON_DECODE_ANY, NULL);
    if (!value)
        value = json_stringn(arguments, n);
    return value ? json_pack("[s, o]", name, value) : NULL;
}

static json_t *read_calls(const json_t *message)
{
    json_t *calls = json_array();
    const json_t *given = json_object_get(message, "tool_calls");
    for (size_t i = 0; calls && i < json_array_size(given); i++) {
        const json_t *function = json_object_get(json_array_get(given, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        json_t *arguments = json_object_get(function, "arguments"), *packed = NULL;
        if (name && json_is_string(arguments))
            packed = pack_call(name, json_string_value(arguments), json_string_length(arguments));
        else if (name)
            packed = json_pack("[s, O]", name, arguments);
        if (json_array_append_new(calls, packed) != 0) {
            json_decref(calls);
            calls = NULL;
        }
    }
    return calls;
}

/* Content as a string, or as parts, whose texts are put together. */
static bool read_content(const json_t *content, buf *out)
{
    bool ok = true;
    if (json_is_string(content))
        return buf_append(out, json_string_value(content), json_string_length(content)) == LACE_OK;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_object_get(json_array_get(content, i), "text");
        ok = json_is_string(part) &&
             buf_append(out, json_string_value(part), json_string_length(part)) == LACE_OK;
    }
    return ok;
}

bool kept_replies_read(const json_t *message, digest *out)
{
    buf content;
    buf_init(&content, MAX_NOTE_BYTES);
    bool is_done =
        read_content(json_object_get(message, "content"), &content) &&
        digest_said(trim(content.data ? content.data : "", content.size), read_calls(message), out);
    buf_deinit(&content);
    return is_done;
}

/* ---- Looking up ------------------------------------------------------------------------------ */

static bool copy_reply(const entry *e, arena *memory, kept_reply *out)
{
    lace_token *tokens = arena_alloc(memory, e->reply.n_tokens, sizeof *tokens);
    *out = e->reply;
    out->opening = arena_strndup(memory, e->reply.opening, e->reply.n_opening);
    if (!tokens || !out->opening)
        return false;
    memcpy(tokens, e->reply.tokens, e->reply.n_tokens * sizeof *tokens);
    out->tokens = tokens;
    return true;
}

bool kept_replies_find(kept_replies *k, const digest *said, size_t *at, arena *memory,
                       kept_reply *out)
{
    size_t i = 0;
    bool is_found = false;
    pthread_mutex_lock(&k->lock);
    for (entry *e = k->newest; e && !is_found; e = e->older)
        if (digest_equals(&e->said, said) && i++ == *at)
            is_found = copy_reply(e, memory, out);
    pthread_mutex_unlock(&k->lock);
    ++*at;
    return is_found;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

void reply_note_init(reply_note *n)
{
    *n = (reply_note){.calls = json_array()};
    n->has_failed = !n->calls;
    buf_init(&n->content, MAX_NOTE_BYTES);
    buf_init(&n->arguments, MAX_NOTE_BYTES);
}

void reply_note_deinit(reply_note *n)
{
    json_decref(n->calls);
    buf_deinit(&n->content);
    buf_deinit(&n->arguments);
    mem_free(n->tokens);
}

void reply_note_token(reply_note *n, lace_token token)
{
    if (n->has_failed || !mem_grow(&n->tokens, n->n_tokens, &n->capacity, sizeof *n->tokens, 64)) {
        n->has_failed = true;
        return;
    }
    n->tokens[n->n_tokens++] = token;
}

/* False: memory is out, or the reply is too long to be kept. */
static bool note_part(reply_note *n, const reply_event *part)
{
    switch (part->kind) {
    case REPLY_CONTENT:
        return buf_append(&n->content, part->chars.data, part->chars.size) == LACE_OK;
    case REPLY_CALL_BEGIN:
        buf_clear(&n->arguments);
        return json_array_append_new(n->calls, json_stringn(part->chars.data, part->chars.size)) ==
               0;
    case REPLY_CALL_ARGS:
        return buf_append(&n->arguments, part->chars.data, part->chars.size) == LACE_OK;
    case REPLY_CALL_END: {
        size_t last = json_array_size(n->calls) - 1;
        const char *name = json_string_value(json_array_get(n->calls, last));
        const buf *a = &n->arguments;
        return json_array_set_new(n->calls, last,
                                  pack_call(name, a->data ? a->data : "", a->size)) == 0;
    }
    case REPLY_REASONING:
        return true;
    }
    return false;
}

lace_status reply_note_part(void *note, const reply_event *part)
{
    reply_note *n = note;
    if (!n->has_failed && !note_part(n, part))
        n->has_failed = true;
    return n->sink(n->arg, part);
}

/* An entry that says nothing yet. */
static entry *make_entry(const kept_reply *r)
{
    size_t n_bytes = sizeof(entry) + r->n_tokens * sizeof(lace_token) + r->n_opening;
    entry *e = mem_alloc(n_bytes);
    if (!e)
        return NULL;
    lace_token *tokens = (lace_token *)(e + 1);
    char *chars = (char *)(tokens + r->n_tokens);
    memcpy(tokens, r->tokens, r->n_tokens * sizeof *tokens);
    memcpy(chars, r->opening, r->n_opening);
    *e = (entry){.n_bytes = n_bytes, .reply = *r};
    e->reply.opening = chars;
    e->reply.tokens = tokens;
    return e;
}

/* Takes the entry. */
static void insert(kept_replies *k, entry *e)
{
    pthread_mutex_lock(&k->lock);
    e->older = k->newest;
    *(k->newest ? &k->newest->newer : &k->oldest) = e;
    k->newest = e;
    k->n_bytes += e->n_bytes;
    while (k->n_bytes > MAX_KEPT_BYTES && k->oldest != e)
        drop_oldest(k);
    pthread_mutex_unlock(&k->lock);
}

/* ---- In a file ------------------------------------------------------------------------------- */

/* What an entry is in the log: its digests, n_opening, n_tokens, the tokens and the opening. */
enum { RECORD_HEAD = 2 * DIGEST_BYTES + 2 * 4 };

static void write_record(kept_replies *k, const entry *e)
{
    const kept_reply *r = &e->reply;
    uint32_t sizes[2] = {(uint32_t)r->n_opening, (uint32_t)r->n_tokens};
    size_t n_bytes = RECORD_HEAD + r->n_tokens * sizeof(lace_token) + r->n_opening;
    uint8_t *bytes = mem_alloc(n_bytes);
    if (!bytes)
        return;
    memcpy(bytes, e->said.bytes, DIGEST_BYTES);
    memcpy(bytes + DIGEST_BYTES, r->behind.bytes, DIGEST_BYTES);
    memcpy(bytes + 2 * DIGEST_BYTES, sizes, sizeof sizes);
    memcpy(bytes + RECORD_HEAD, r->tokens, r->n_tokens * sizeof *r->tokens);
    memcpy(bytes + n_bytes - r->n_opening, r->opening, r->n_opening);
    record_log_add(k->log, bytes, n_bytes);
    mem_free(bytes);
}

static bool has_only_tokens(const kept_replies *k, span tokens)
{
    for (size_t i = 0; i < tokens.size; i += sizeof(lace_token))
        if (load_u32(tokens.data + i) >= (uint32_t)k->n_vocab)
            return false;
    return tokens.size > 0;
}

/* A record that is none of these is passed over. */
static void read_record(void *user, span record)
{
    kept_replies *k = user;
    cursor c = {.bytes = record};
    span said, behind, tokens, opening;
    uint32_t n_opening, n_tokens;
    if (cursor_take(&c, DIGEST_BYTES, &said, "said", NULL) != LACE_OK ||
        cursor_take(&c, DIGEST_BYTES, &behind, "behind", NULL) != LACE_OK ||
        cursor_u32(&c, &n_opening, "n_opening", NULL) != LACE_OK ||
        cursor_u32(&c, &n_tokens, "n_tokens", NULL) != LACE_OK ||
        cursor_take(&c, (uint64_t)n_tokens * sizeof(lace_token), &tokens, "tokens", NULL) !=
            LACE_OK ||
        cursor_take(&c, n_opening, &opening, "opening", NULL) != LACE_OK || cursor_left(&c) != 0 ||
        !has_only_tokens(k, tokens))
        return;
    lace_token *aligned = mem_alloc(tokens.size);
    kept_reply r = {.opening = (const char *)opening.data,
                    .n_opening = n_opening,
                    .tokens = aligned,
                    .n_tokens = n_tokens};
    memcpy(r.behind.bytes, behind.data, DIGEST_BYTES);
    if (aligned)
        memcpy(aligned, tokens.data, tokens.size);
    entry *e = aligned ? make_entry(&r) : NULL;
    mem_free(aligned);
    if (!e)
        return;
    memcpy(e->said.bytes, said.data, DIGEST_BYTES);
    insert(k, e);
}

/* ---- Keeping --------------------------------------------------------------------------------- */

lace_status kept_replies_create(const char *path, int32_t n_vocab, kept_replies **out,
                                lace_error *err)
{
    *out = NULL;
    kept_replies *k = mem_calloc(1, sizeof *k);
    if (!k)
        return error_nomem(err, "kept replies");
    k->n_vocab = n_vocab;
    pthread_mutex_init(&k->lock, NULL);
    lace_status status =
        path ? record_log_open(path, MAX_LOG_BYTES, read_record, k, &k->log, err) : LACE_OK;
    return GIVE_OR_FREE(status, k, out, kept_replies_free);
}

void kept_replies_add(kept_replies *k, const reply_note *n, text opening, const digest *behind)
{
    const buf *content = &n->content;
    kept_reply r = {.behind = *behind,
                    .opening = opening.data,
                    .n_opening = opening.size,
                    .tokens = n->tokens,
                    .n_tokens = n->n_tokens};
    entry *e = n->has_failed || n->n_tokens == 0 ? NULL : make_entry(&r);
    if (!e || !digest_said(trim(content->data ? content->data : "", content->size),
                           json_incref(n->calls), &e->said)) {
        mem_free(e);
        return;
    }
    if (k->log)
        write_record(k, e);
    insert(k, e);
}
