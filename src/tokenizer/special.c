/*
 * Special tokens: which ones end a generation, and where they stand in a text.
 *
 * Files often forget to say that a token ends a turn, or mark it as an ordinary one; the names
 * below are those that models use.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

enum {
    ENDS = 1,    /* a generation ends after it */
    SURE = 2,    /* nobody writes this in a text: it is special whatever its type says */
    PRINTED = 4, /* its name matters to whoever reads the text */
};

/* clang-format off */
static const struct {
    const char *name;
    int what;
} known[] = {
    {"<|eot_id|>", ENDS | SURE},         {"<|eom_id|>", ENDS | SURE},
    {"<|im_end|>", ENDS | SURE},         {"<|end|>", ENDS | SURE},
    {"<|endoftext|>", ENDS | SURE},      {"<|end_of_text|>", ENDS | SURE},
    {"<|return|>", ENDS | SURE},         {"<|call|>", ENDS | SURE},
    {"<|calls|>", ENDS | SURE},          {"<|flush|>", ENDS | SURE},
    {"<end_of_turn>", ENDS | SURE},      {"<end_of_utterance>", ENDS | SURE},
    {"<turn|>", ENDS | SURE},            {"<|tool_response>", ENDS | SURE},
    {"<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", ENDS | SURE}, /* DeepSeek */
    {"[e~[", ENDS},
    {"</s>", ENDS},                      {"<eos>", ENDS},
    {"<EOT>", ENDS},                     {"_<EOT>", ENDS},
    {"[EOT]", ENDS},                     {"[EOS]", ENDS},
    {"<|fim_pad|>", ENDS | SURE},        {"<fim-pad>", ENDS},
    {"<fim_pad>", ENDS},                 {"<|fim_repo|>", ENDS | SURE},
    {"<|repo_name|>", ENDS | SURE},      {"<fim-repo>", ENDS},
    {"<reponame>", ENDS},                {"<|file_sep|>", ENDS | SURE},
    {"<|channel|>", PRINTED},            {"<|message|>", PRINTED},
    {"<|start|>", PRINTED},              {"<|constrain|>", PRINTED},
};
/* clang-format on */

static bool is_special(int type)
{
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
}

static void correct(tokenizer *t, size_t id, int what)
{
    if (!is_special(t->types[id]) && !(what & SURE))
        return;
    if (what & PRINTED)
        t->flags[id] |= TOKEN_IS_PRINTED;
    if (what & ENDS) {
        t->types[id] = TOKEN_CONTROL;
        t->flags[id] |= TOKEN_IS_END;
    }
}

/* In formats where other tokens end the answer, these only separate its parts. */
static void correct_exceptions(tokenizer *t, const vocab *v)
{
    bool has_call = false, has_return_or_flush = false, has_tool_response = false;
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (!(t->flags[i] & TOKEN_IS_END))
            continue;
        text name = v->tokens[i];
        has_call = has_call || text_is(name, "<|call|>") || text_is(name, "<|calls|>");
        has_return_or_flush =
            has_return_or_flush || text_is(name, "<|return|>") || text_is(name, "<|flush|>");
        has_tool_response = has_tool_response || text_is(name, "<|tool_response>");
    }
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (!(t->flags[i] & TOKEN_IS_END))
            continue;
        if (has_call && has_return_or_flush && text_is(v->tokens[i], "<|end|>"))
            t->flags[i] = (uint8_t)((t->flags[i] & ~TOKEN_IS_END) | TOKEN_IS_PRINTED);
        if (has_tool_response && text_is(v->tokens[i], "</s>"))
            t->flags[i] &= (uint8_t)~TOKEN_IS_END;
    }
}

void special_correct(tokenizer *t, const vocab *v)
{
    for (size_t i = 0; i < t->n_tokens; i++) {
        text name = v->tokens[i];
        if (name.size == 0 || (name.data[0] != '<' && name.data[0] != '[' && name.data[0] != '_'))
            continue;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (text_is(name, known[k].name))
                correct(t, i, known[k].what);
    }
    correct_exceptions(t, v);
    if (v->eos >= 0)
        t->flags[v->eos] |= TOKEN_IS_END;
    if (v->eot >= 0)
        t->flags[v->eot] |= TOKEN_IS_END;
    for (size_t i = 0; i < v->n_ends; i++)
        t->flags[v->ends[i]] |= TOKEN_IS_END;
}

/* Keys are written from the back: so a scan from the back finds tokens where they begin. */
static char *reversed(arena *memory, text t)
{
    char *out = arena_alloc(memory, t.size, 1);
    for (size_t i = 0; out && i < t.size; i++)
        out[i] = t.data[t.size - 1 - i];
    return out;
}

lace_status special_init(tokenizer *t, lace_error *err)
{
    size_t n = 0;
    arena scratch;
    arena_init(&scratch, SIZE_MAX / 2);
    lace_status status = LACE_OK;
    for (size_t i = 0; i < t->n_tokens; i++)
        n += is_special(t->types[i]) && t->bytes[i].size > 0;
    scan_entry *entries = arena_alloc(&scratch, n, sizeof *entries);
    n = 0;
    for (size_t i = 0; entries && i < t->n_tokens; i++) {
        if (!is_special(t->types[i]) || t->bytes[i].size == 0)
            continue;
        char *key = reversed(&scratch, t->bytes[i]);
        if (!key) {
            status = LACE_E_NOMEM;
            break;
        }
        entries[n++] = (scan_entry){{key, t->bytes[i].size}, (int32_t)i};
    }
    if (!entries)
        status = LACE_E_NOMEM;
    if (status == LACE_OK)
        status = scan_init(&t->specials, entries, n, &t->memory);
    arena_deinit(&scratch);
    if (status == LACE_E_LIMIT)
        return error_set(err, LACE_E_VOCAB,
                         "tokens: special tokens are longer than %d MiB in all, or more than %d of "
                         "them begin alike",
                         SCAN_MAX_BYTES >> 20, SCAN_MAX_NESTED);
    return status == LACE_OK ? status : error_nomem(err, "the special tokens");
}

static bool is_word_at(text input, size_t at)
{
    uint32_t code;
    if (at >= input.size)
        return false;
    utf8_decode(input.data + at, input.size - at, &code);
    return code_is_word(code);
}

static bool is_word_before(text input, size_t at)
{
    if (at == 0)
        return false;
    do
        at--;
    while (at > 0 && ((unsigned char)input.data[at] & 0xC0) == 0x80);
    return is_word_at(input, at);
}

/* The longest token that counts, of those that begin at a place: `m` is the longest. -1: none. */
static lace_token choose(const tokenizer *t, text input, size_t at, uint32_t m, size_t parsed_end)
{
    int is_in_word = -1; /* not known yet */
    for (; m; m = t->specials.shorter[m]) {
        lace_token id = t->specials.ids[m];
        if (at + t->bytes[id].size > parsed_end && t->types[id] != TOKEN_USER_DEFINED)
            continue;
        if (!(t->flags[id] & TOKEN_SINGLE_WORD))
            return id;
        if (is_in_word < 0)
            is_in_word = is_word_before(input, at);
        if (!is_in_word && !is_word_at(input, at + t->bytes[id].size))
            return id;
    }
    return -1;
}

static lace_status add_place(encoding *e, size_t begin, lace_token id)
{
    if (!mem_grow(&e->specials, e->n_specials, &e->specials_capacity, sizeof *e->specials, 64))
        return LACE_E_NOMEM;
    e->specials[e->n_specials++] = (special_place){begin, id};
    return LACE_OK;
}

/*
 * How far control tokens that begin at a place may go: to where the next content begins, or not at
 * all inside of one. Places come from the back; the contents from *n_before on end behind them.
 */
static size_t frame_end(const encoding *e, size_t at, size_t size, size_t *n_before)
{
    while (*n_before > 0 && e->contents[*n_before - 1].end > at)
        --*n_before;
    if (*n_before == e->n_contents)
        return size;
    size_t begin = e->contents[*n_before].begin;
    return begin <= at ? 0 : begin;
}

lace_status special_scan(encoding *e, text input, bool is_parsed)
{
    const tokenizer *t = e->t;
    const scan_index *s = &t->specials;
    uint32_t state = 0;
    size_t n_before = e->n_contents;
    e->n_specials = 0;
    for (size_t at = input.size; at-- > 0;) {
        state = scan_next(s, state, (unsigned char)input.data[at]);
        uint32_t longest = scan_longest(s, state);
        size_t parsed_end = longest && is_parsed ? frame_end(e, at, input.size, &n_before) : 0;
        lace_token id = longest ? choose(t, input, at, longest, parsed_end) : -1;
        if (id >= 0)
            TRY(add_place(e, at, id));
    }
    return LACE_OK;
}

lace_token tokenizer_find_special(const tokenizer *t, text name)
{
    uint32_t state = 0;
    for (size_t i = name.size; i-- > 0;) {
        state = scan_child(&t->specials, state, (unsigned char)name.data[i]);
        if (state == 0)
            return -1;
    }
    return t->specials.ids[state];
}
