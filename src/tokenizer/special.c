/*
 * Special tokens: which ones end a generation, and where they stand in a text.
 *
 * Files often forget to say that a token ends a turn, or mark it as an ordinary one; the names
 * below are those that models use.
 */
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

lace_status special_init(tokenizer *t, lace_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++)
        n += is_special(t->types[i]) && t->bytes[i].size > 0;
    prefix_entry *entries = arena_alloc(&t->memory, n, sizeof *entries);
    if (!entries)
        return error_nomem(err, "the special tokens");
    n = 0;
    for (size_t i = 0; i < t->n_tokens; i++)
        if (is_special(t->types[i]) && t->bytes[i].size > 0)
            entries[n++] = (prefix_entry){t->bytes[i], (int32_t)i};
    prefix_index_init(&t->specials, entries, n);
    return LACE_OK;
}

/* The character before input[at] is part of a word, or the one that begins there is. */
static bool touches_word(text input, size_t begin, size_t end)
{
    uint32_t code;
    if (end < input.size) {
        utf8_decode(input.data + end, input.size - end, &code);
        if (code_is_word(code))
            return true;
    }
    if (begin == 0)
        return false;
    size_t before = begin - 1;
    while (before > 0 && ((unsigned char)input.data[before] & 0xC0) == 0x80)
        before--;
    utf8_decode(input.data + before, begin - before, &code);
    return code_is_word(code);
}

lace_token special_match(const tokenizer *t, text input, size_t at, bool is_parsed)
{
    lace_token best = -1;
    prefix_walk walk = prefix_begin(&t->specials, (unsigned char)input.data[at]);
    for (size_t end = at + 1; walk.low < walk.high; end++) {
        int32_t id = prefix_id(&t->specials, &walk);
        if (id >= 0 && (is_parsed || t->types[id] == TOKEN_USER_DEFINED) &&
            !((t->flags[id] & TOKEN_SINGLE_WORD) && touches_word(input, at, end)))
            best = id;
        if (end == input.size)
            break;
        prefix_next(&t->specials, &walk, (unsigned char)input.data[end]);
    }
    return best;
}

lace_token tokenizer_find_special(const tokenizer *t, text name)
{
    if (name.size == 0)
        return -1;
    prefix_walk walk = prefix_begin(&t->specials, (unsigned char)name.data[0]);
    for (size_t i = 1; i < name.size; i++)
        if (!prefix_next(&t->specials, &walk, (unsigned char)name.data[i]))
            return -1;
    return prefix_id(&t->specials, &walk);
}
