/* Tokenizers: the rules of each kind, on small vocabularies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/mem.h"
#include "tap.h"
#include "tiny_vocab.h"
#include "token_check.h"

static tokenizer *create_tiny(tiny_vocab_kind kind)
{
    arena memory;
    arena_init(&memory, MEGABYTE);
    vocab v = tiny_vocab(kind, &memory);
    tokenizer *t = check_create(&v);
    arena_deinit(&memory); /* the tokenizer has its own copies */
    return t;
}

/* The pieces that a text becomes, between bars; special tokens as #id. Static storage. */
static const char *pieces(const tokenizer *t, const char *input, unsigned flags)
{
    static char out[1000];
    token_list list = check_encode(t, input, strlen(input), flags);
    size_t n = 0;
    for (size_t i = 0; i < list.size && n < 800; i++) {
        text bytes = tokenizer_token_bytes(t, list.data[i]);
        if (list.data[i] < TINY_N_SPECIAL)
            n += (size_t)snprintf(out + n, 100, "%s#%d", i ? "|" : "", list.data[i]);
        else
            n +=
                (size_t)snprintf(out + n, 100, "%s%.*s", i ? "|" : "", (int)bytes.size, bytes.data);
    }
    out[n] = 0;
    token_list_deinit(&list);
    return out;
}

static void check_pieces(const tokenizer *t, const char *input, unsigned flags,
                         const char *expected)
{
    const char *found = pieces(t, input, flags);
    if (!CHECK(strcmp(found, expected) == 0))
        tap_note("\"%s\" gives %s, expected %s", input, found, expected);
}

static void bpe_merges_by_rank(void)
{
    tokenizer *t = create_tiny(TINY_BYTE_BPE);
    check_pieces(t, "hello world", 0, "hello| world");
    check_pieces(t, "helld", 0, "hell|d");
    tokenizer_free(t);
}

static void ignored_merges_take_whole_words(void)
{
    /* "hello" cannot be merged without its halves, but it is a token. */
    text tokens[] = {text_of("h"), text_of("e"), text_of("l"), text_of("o"), text_of("hello")};
    text merges[] = {text_of("l l")};
    vocab v = vocab_default(VOCAB_BPE);
    v.tokens = tokens;
    v.n_tokens = 5;
    v.merges = merges;
    v.n_merges = 1;
    for (int is_ignoring = 0; is_ignoring < 2; is_ignoring++) {
        v.ignore_merges = is_ignoring;
        tokenizer *t = check_create(&v);
        token_list list = check_encode(t, "hello", 5, 0);
        CHECK(list.size == (is_ignoring ? 1 : 5)); /* "ll" is in merges only: bytes again */
        CHECK(list.data[0] == (is_ignoring ? 4 : 0));
        token_list_deinit(&list);
        tokenizer_free(t);
    }
}

static void raw_bpe_falls_back_to_bytes(void)
{
    tokenizer *t = create_tiny(TINY_RAW_BPE);
    check_pieces(t, "hello world", 0, "hello| world");
    token_list list = check_encode(t, "\xC3\xA9", 2, 0);
    CHECK(list.size == 2 && list.data[0] == TINY_N_SPECIAL + 0xC3 &&
          list.data[1] == TINY_N_SPECIAL + 0xA9);
    token_list_deinit(&list);
    tokenizer_free(t);
}

static void spm_prefixes_a_space_at_the_start_and_after_special_tokens(void)
{
    tokenizer *t = create_tiny(TINY_SPM);
    check_pieces(t, "world", 0, " world");
    check_pieces(t, "the[TOOL]the", 0, " the|#5| the");
    check_pieces(t, "[TOOL][TOOL]", 0, "#5|#5");
    check_pieces(t, "the", LACE_TOKENIZE_ADD_SPECIAL, "#1| the");
    tokenizer_free(t);
}

static void spm_without_bytes_says_unknown(void)
{
    tokenizer *t = create_tiny(TINY_SPM_BARE);
    check_pieces(t, "a\xC3\xA9", 0, " |a|#0");
    tokenizer_free(t);
}

static void wordpiece_takes_the_longest_tokens(void)
{
    tokenizer *t = create_tiny(TINY_WORDPIECE);
    check_pieces(t, "HELLO worlds", 0, " hello| world|s");
    check_pieces(t, "h\xC3\xA9llo!", 0, " hello| !"); /* accents fall away */
    check_pieces(t, "the \xE4\xBD\xA0", 0, " the|#0");
    check_pieces(t, "the", LACE_TOKENIZE_ADD_SPECIAL, "#1| the|#2");
    char word[102];
    memset(word, 'a', 101);
    word[101] = 0;
    check_pieces(t, word, 0, "#0"); /* longer than 100 characters */
    tokenizer_free(t);
}

static void unigram_normalizes_and_finds_the_best_cut(void)
{
    tokenizer *t = create_tiny(TINY_UNIGRAM);
    check_pieces(t, "hello   world ", 0, " |hello| world"); /* runs of spaces are one */
    check_pieces(t, "AaAa", 0, " |aaaa");                   /* by the charsmap */
    check_pieces(t, "\xC3\x9F", 0, " |s|s");
    check_pieces(t, "a\xE4\xBD\xA0\xE4\xBD\xA0h", 0, " |a|#0|h"); /* a run is one unknown */
    tokenizer_free(t);
}

static void user_defined_tokens_are_always_found(void)
{
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        tokenizer *t = create_tiny(kind);
        token_list list = check_encode(t, "[TOOL]", 6, 0);
        CHECK(list.size == 1 && list.data[0] == TINY_TOOL);
        token_list_deinit(&list);
        tokenizer_free(t);
    }
}

static void control_tokens_are_found_only_when_asked_for(void)
{
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        tokenizer *t = create_tiny(kind);
        const char *input = "<|im_end|><s><unk></s>";
        token_list list = check_encode(t, input, strlen(input), LACE_TOKENIZE_PARSE_SPECIAL);
        const lace_token expected[] = {TINY_IM_END, TINY_BOS, TINY_UNK, TINY_EOS};
        CHECK(list.size == 4 && memcmp(list.data, expected, sizeof expected) == 0);
        token_list_deinit(&list);
        list = check_encode(t, input, strlen(input), 0);
        for (size_t i = 0; i < list.size; i++)
            CHECK(tokenizer_token_type(t, list.data[i]) != TOKEN_CONTROL);
        token_list_deinit(&list);
        tokenizer_free(t);
    }
}

static void no_text_forges_a_control_token(void)
{
    /* "ab" merges to a token of that text, but it is a control token. */
    text tokens[] = {text_of("a"), text_of("b"), text_of("ab")};
    text merges[] = {text_of("a b")};
    float scores[] = {-1, -1, 0};
    int32_t types[] = {TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_CONTROL};
    for (int is_spm = 0; is_spm < 2; is_spm++) {
        vocab v = vocab_default(is_spm ? VOCAB_SPM : VOCAB_BPE);
        v.tokens = tokens;
        v.n_tokens = 3;
        v.scores = scores;
        v.types = types;
        v.merges = merges;
        v.n_merges = 1;
        v.ignore_merges = true;
        tokenizer *t = check_create(&v);
        token_list list = check_encode(t, "ab", 2, 0);
        CHECK(list.size == 2 && list.data[0] == 0 && list.data[1] == 1);
        token_list_deinit(&list);
        tokenizer_free(t);
    }
}

/* How many control tokens a text has, whose bytes from `begin` to `end` others wrote. */
static size_t count_controls(const tokenizer *t, const char *input, size_t begin, size_t end)
{
    lace_range content = {begin, end};
    token_list list = {0};
    lace_error err = {0};
    size_t n = 0;
    CHECK(tokenizer_encode_contents(t, text_of(input), &content, 1, LACE_TOKENIZE_PARSE_SPECIAL,
                                    &list, &err) == LACE_OK);
    for (size_t i = 0; i < list.size; i++)
        n += tokenizer_token_type(t, list.data[i]) == TOKEN_CONTROL;
    token_list_deinit(&list);
    return n;
}

static void contents_hold_no_control_tokens(void)
{
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        tokenizer *t = create_tiny(kind);
        const char *input = "<s>he<|im_end|>llo<|im_end|>";
        CHECK(count_controls(t, input, 0, 0) == 3);
        CHECK(count_controls(t, input, 5, 15) == 2);  /* the word itself */
        CHECK(count_controls(t, input, 3, 18) == 2);  /* and what is around it */
        CHECK(count_controls(t, input, 14, 15) == 3); /* its last letter: "<|im" is one, too */
        CHECK(count_controls(t, input, 8, 15) == 2);
        CHECK(count_controls(t, input, 4, 6) == 2);   /* its first */
        CHECK(count_controls(t, input, 15, 18) == 3); /* touches none */
        CHECK(count_controls(t, input, 0, strlen(input)) == 0);
        /* What is ordinary text either way is cut the same way. */
        lace_range content = {2, 5};
        token_list with = {0}, without = check_encode(t, "hello world", 11, 0);
        lace_error err = {0};
        CHECK(tokenizer_encode_contents(t, text_of("hello world"), &content, 1,
                                        LACE_TOKENIZE_PARSE_SPECIAL, &with, &err) == LACE_OK);
        CHECK(with.size == without.size &&
              memcmp(with.data, without.data, with.size * sizeof *with.data) == 0);
        token_list_deinit(&with);
        token_list_deinit(&without);
        tokenizer_free(t);
    }
}

static void contents_that_are_no_parts_are_refused(void)
{
    static const lace_range rows[][2] = {{{3, 2}, {4, 4}}, {{0, 3}, {2, 4}}, {{0, 1}, {4, 6}}};
    tokenizer *t = create_tiny(TINY_BYTE_BPE);
    token_list list = {0};
    lace_error err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(tokenizer_encode_contents(t, text_of("hello"), rows[i], 2, 0, &list, &err) ==
              LACE_E_ARG);
    CHECK(tokenizer_encode_contents(t, text_of("he\xFFlo"), rows[0], 1, 0, &list, &err) != LACE_OK);
    lace_range content = {0, 1};
    CHECK(tokenizer_encode_contents(t, text_of("he\xFFlo"), &content, 1, 0, &list, &err) ==
          LACE_E_UTF8);
    CHECK(list.size == 0);
    tokenizer_free(t);
}

static void the_longest_special_token_wins(void)
{
    tokenizer *t = create_tiny(TINY_BYTE_BPE);
    check_pieces(t, "<|im<|im_end|><|im_en", LACE_TOKENIZE_PARSE_SPECIAL, "#4|#3|#4|_|e|n");
    tokenizer_free(t);
}

static void special_tokens_strip_and_respect_words(void)
{
    tokenizer *t = create_tiny(TINY_BYTE_BPE);
    check_pieces(t, "a \t<L> a", 0, "a|#6| |a");
    check_pieces(t, "a <R> \xE3\x80\x80\na", 0, "a| |#7|a"); /* U+3000 is a space too */
    check_pieces(t, "cat a_cat cats cat", 0, "#8| |a|_|c|a|t| |c|a|t|s| |#8");
    tokenizer_free(t);
}

static void malformed_utf8_is_the_replacement_character(void)
{
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        tokenizer *t = create_tiny(kind);
        token_list bad = check_encode(t, "a\xFFh\xC3", 4, 0);
        token_list good = check_encode(t, "a\xEF\xBF\xBDh\xEF\xBF\xBD", 8, 0);
        CHECK(bad.size == good.size &&
              memcmp(bad.data, good.data, good.size * sizeof *good.data) == 0);
        token_list_deinit(&bad);
        token_list_deinit(&good);
        tokenizer_free(t);
    }
}

static void tiny_vocabularies_round_trip(void)
{
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        if (!tiny_vocab_is_lossless(kind))
            continue;
        tokenizer *t = create_tiny(kind);
        check_round_trips(t, 300, 0x110000);
        tokenizer_free(t);
    }
}

static void tiny_megabytes_are_fast(void)
{
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        tokenizer *t = create_tiny(kind);
        check_speed(t, tokenizer_kind_name(t));
        tokenizer_free(t);
    }
}

static void append_tokens(token_list *all, const tokenizer *t, const char *input)
{
    token_list list = check_encode(t, input, strlen(input), 0);
    for (size_t i = 0; i < list.size; i++)
        CHECK(token_list_add(all, list.data[i]) == LACE_OK);
    token_list_deinit(&list);
}

/* In a long text words are remembered; the result must be that of each word alone. */
static void repeated_words_give_the_same_tokens(void)
{
    static const char *const some[] = {"hello",   "world",     "the",    "aaaaa",
                                       "hellthe", "\xC3\xA9x", "worlds", "x"};
    for (int kind = TINY_BYTE_BPE; kind <= TINY_SPM; kind++) {
        if (kind == TINY_RAW_BPE)
            continue; /* it has no words */
        tokenizer *t = create_tiny(kind);
        char input[8000] = "";
        token_list expected = {0};
        uint32_t seed = 7;
        for (int i = 0; i < 1000; i++) {
            char word[16];
            snprintf(word, sizeof word, "%s%s", i ? " " : "",
                     some[(seed = seed * 1664525 + 1013904223) >> 29]);
            strcat(input, word);
            append_tokens(&expected, t, kind == TINY_SPM && i ? word + 1 : word);
        }
        token_list list = check_encode(t, input, strlen(input), 0);
        CHECK(list.size == expected.size &&
              memcmp(list.data, expected.data, list.size * sizeof *list.data) == 0);
        token_list_deinit(&list);
        token_list_deinit(&expected);
        tokenizer_free(t);
    }
}

static void spm_tokens_may_contain_spaces(void)
{
    text tokens[] = {text_of("a"), text_of("\xE2\x96\x81"), text_of("a\xE2\x96\x81"),
                     text_of("a\xE2\x96\x81"
                             "a")};
    float scores[] = {-3, -4, -2, -1};
    vocab v = vocab_default(VOCAB_SPM);
    v.tokens = tokens;
    v.scores = scores;
    v.n_tokens = 4;
    tokenizer *t = check_create(&v);
    token_list list = check_encode(t, "a aa", 4, 0);
    CHECK(list.size == 2 && list.data[0] == 3 && list.data[1] == 0);
    token_list_deinit(&list);
    tokenizer_free(t);
}

static void duplicate_tokens_are_harmless(void)
{
    text tokens[] = {text_of("a"), text_of("a"), text_of("aa"), text_of("aa"), text_of("")};
    text merges[] = {text_of("a a"), text_of("a a")};
    float scores[5] = {0};
    for (int kind = VOCAB_BPE; kind <= VOCAB_UNIGRAM; kind++) {
        vocab v = vocab_default(kind);
        v.tokens = tokens;
        v.n_tokens = 5;
        v.scores = scores;
        v.merges = merges;
        v.n_merges = 2;
        tokenizer *t = check_create(&v);
        token_list list = check_encode(t, "aa", 2, 0);
        if (kind != VOCAB_WORDPIECE) /* which has no token that begins a word */
            CHECK(list.size == 1 && list.data[0] == 2);
        token_list_deinit(&list);
        tokenizer_free(t);
    }
}

static void ends_are_known_by_id_and_by_name(void)
{
    text tokens[] = {text_of("a"),        text_of("<|eot_id|>"), text_of("<|end|>"),
                     text_of("</s>"),     text_of("<|return|>"), text_of("<|call|>"),
                     text_of("ordinary"), text_of("<eos>")};
    int32_t types[] = {1, 1, 3, 1, 3, 3, 1, 3}, ends[] = {6};
    vocab v = vocab_default(VOCAB_BPE);
    v.tokens = tokens;
    v.n_tokens = 8;
    v.types = types;
    v.ends = ends;
    v.n_ends = 1;
    tokenizer *t = check_create(&v);
    CHECK(!tokenizer_is_end(t, 0));
    CHECK(tokenizer_is_end(t, 1));  /* by name, though its type is normal */
    CHECK(!tokenizer_is_end(t, 2)); /* <|return|> and <|call|> end an answer, <|end|> a part */
    CHECK(!tokenizer_is_end(t, 3)); /* an ordinary token may well read </s> */
    CHECK(tokenizer_is_end(t, 4));
    CHECK(tokenizer_is_end(t, 6)); /* listed */
    CHECK(tokenizer_is_end(t, 7));
    CHECK(!tokenizer_is_end(t, -1) && !tokenizer_is_end(t, 8));
    CHECK(tokenizer_token_bytes(t, 8).size == 0 && tokenizer_token_bytes(t, -1).size == 0);
    tokenizer_free(t);
    v.n_ends = 0;
    v.eos = 0;
    v.eot = 6;
    v.n_tokens = 7;
    t = check_create(&v);
    CHECK(tokenizer_is_end(t, 0) && tokenizer_is_end(t, 6));
    tokenizer_free(t);
}

static void normal_forms_are_applied(void)
{
    arena memory;
    arena_init(&memory, MEGABYTE);
    vocab v = tiny_vocab(TINY_BYTE_BPE, &memory);
    static const struct {
        normal_form form;
        const char *input, *expected;
    } cases[] = {
        {FORM_NFC, "e\xCC\x81\xEF\xAC\x81", "\xC3\xA9\xEF\xAC\x81"},
        {FORM_NFD, "\xC3\xA9", "e\xCC\x81"},
        {FORM_NFKC, "e\xCC\x81\xEF\xAC\x81",
         "\xC3\xA9"
         "fi"},
        {FORM_NFKD, "\xC3\xA9\xEF\xAC\x81",
         "e\xCC\x81"
         "fi"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        v.form = cases[i].form;
        tokenizer *t = check_create(&v);
        token_list list = check_encode(t, cases[i].input, strlen(cases[i].input), 0);
        buf out;
        buf_init(&out, MEGABYTE);
        check_decode(t, &list, &out);
        CHECK(out.data && strcmp(out.data, cases[i].expected) == 0);
        buf_deinit(&out);
        token_list_deinit(&list);
        if (v.form == FORM_NFC)
            check_speed(t, "NFC");
        /* Marks in the wrong order, which sorting would take quadratic time for. */
        size_t n;
        char *marks = repeat_text("\xCC\x81\xCC\xA7", 0, MEGABYTE, &n);
        clock_t begin = clock();
        list = check_encode(t, marks, n, 0);
        CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < SLOW_SECONDS);
        token_list_deinit(&list);
        free(marks);
        tokenizer_free(t);
    }
    arena_deinit(&memory);
}

static void bad_arguments_are_refused(void)
{
    tokenizer *t = create_tiny(TINY_SPM);
    token_list list = check_encode(t, "a", 1, 0);
    size_t n = list.size;
    lace_error err;
    CHECK(tokenizer_encode(t, "a", 1, 4, &list, &err) == LACE_E_ARG);
    CHECK(tokenizer_encode(t, "a", (size_t)TOKENIZER_MAX_TEXT + 1, 0, &list, &err) == LACE_E_LIMIT);
    CHECK(list.size == n);
    token_list_deinit(&list);
    tokenizer_free(t);
}

/* Every allocation fails once; nothing leaks (which the sanitizer sees) and the status says it. */
static void running_out_of_memory_is_a_status(void)
{
    const char *input = "hello \xFF world<|im_end|>";
    for (int kind = 0; kind < TINY_N_KINDS; kind++) {
        arena memory;
        arena_init(&memory, MEGABYTE);
        vocab v = tiny_vocab(kind, &memory);
        v.form = FORM_NFC;
        bool is_done = false;
        for (long i = 0; i < 5000 && !is_done; i++) {
            tokenizer *t = NULL;
            decoder *d = NULL;
            token_list list = {0};
            text piece;
            lace_error err = {0};
            mem_fail_at(i, false);
            lace_status status = tokenizer_create(&v, &t, &err);
            if (status == LACE_OK)
                status = tokenizer_encode(t, input, strlen(input), 3, &list, &err);
            if (status == LACE_OK)
                status = decoder_create(t, false, &d, &err);
            for (size_t k = 0; status == LACE_OK && k < list.size; k++)
                status = decoder_push(d, list.data[k], &piece, &err);
            is_done = mem_count() <= i;
            mem_fail_at(-1, false);
            CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.status == LACE_E_NOMEM));
            CHECK(status == LACE_OK || !is_done);
            decoder_free(d);
            token_list_deinit(&list);
            tokenizer_free(t);
        }
        CHECK(is_done);
        arena_deinit(&memory);
    }
}

static void only_the_first_space_is_stripped(void)
{
    tokenizer *t = create_tiny(TINY_SPM);
    token_list list = check_encode(t, "the the", 7, LACE_TOKENIZE_ADD_SPECIAL);
    CHECK(list.size == 3 && list.data[1] == list.data[2]);
    buf out;
    buf_init(&out, MEGABYTE);
    check_decode(t, &list, &out);
    CHECK(strcmp(out.data, "the the") == 0);
    buf_deinit(&out);
    token_list_deinit(&list);
    tokenizer_free(t);
}

int main(void)
{
    CASE(bpe_merges_by_rank);
    CASE(ignored_merges_take_whole_words);
    CASE(raw_bpe_falls_back_to_bytes);
    CASE(spm_prefixes_a_space_at_the_start_and_after_special_tokens);
    CASE(spm_without_bytes_says_unknown);
    CASE(wordpiece_takes_the_longest_tokens);
    CASE(unigram_normalizes_and_finds_the_best_cut);
    CASE(user_defined_tokens_are_always_found);
    CASE(control_tokens_are_found_only_when_asked_for);
    CASE(no_text_forges_a_control_token);
    CASE(contents_hold_no_control_tokens);
    CASE(contents_that_are_no_parts_are_refused);
    CASE(the_longest_special_token_wins);
    CASE(special_tokens_strip_and_respect_words);
    CASE(malformed_utf8_is_the_replacement_character);
    CASE(tiny_vocabularies_round_trip);
    CASE(tiny_megabytes_are_fast);
    CASE(repeated_words_give_the_same_tokens);
    CASE(spm_tokens_may_contain_spaces);
    CASE(duplicate_tokens_are_harmless);
    CASE(ends_are_known_by_id_and_by_name);
    CASE(normal_forms_are_applied);
    CASE(bad_arguments_are_refused);
    CASE(running_out_of_memory_is_a_status);
    CASE(only_the_first_space_is_stripped);
    return tap_end();
}
