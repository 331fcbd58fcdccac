/* Pre-tokenizers: where the regexes of the models cut, and that they take linear time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tap.h"
#include "token_check.h"
#include "tokenizer/split.h"

/* What a long text may be made of. */
static const char *const units[] = {
    "a", " ", "\n", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "7", "A", "'", "\xCC\x81", "<", "aB ",
};
enum { N_UNITS = sizeof units / sizeof *units };

static splitter *create_splitter(const char *name)
{
    const pre_tokenizer *pre = pre_tokenizer_find(text_of(name));
    if (!CHECK(pre != NULL)) {
        tap_note("no pre-tokenizer %s", name);
        return NULL;
    }
    text regexes[8];
    size_t n = 0;
    for (; pre->regexes[n]; n++)
        regexes[n] = text_of(pre->regexes[n]);
    splitter *s;
    lace_error err;
    if (!CHECK(splitter_create(regexes, n, &s, &err) == LACE_OK))
        tap_note("%s: %s", name, err.text);
    return s;
}

static void check_split(const char *name, const char *input, const char *expected)
{
    splitter *s = create_splitter(name);
    split_scratch scratch = {0};
    lace_error err;
    CHECK(splitter_run(s, &scratch, text_of(input), &err) == LACE_OK);
    char out[500];
    size_t n = 0, begin = 0;
    for (size_t i = 0; i < scratch.n_ends; begin = scratch.ends[i++])
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", i ? "|" : "",
                              (int)(scratch.ends[i] - begin), input + begin);
    if (!CHECK(strcmp(out, expected) == 0))
        tap_note("%s: \"%s\" becomes %s, expected %s", name, input, out, expected);
    split_scratch_deinit(&scratch);
    splitter_free(s);
}

#define HAN "\xE4\xBD\xA0\xE5\xA5\xBD" /* two characters */

static void regexes_cut_as_the_models_do(void)
{
    check_split("gpt-2", "I'll go  now 1234\n\n", "I|'ll| go| | now| 1234|\n\n");
    check_split("llama-bpe", "I'LL go  now 1234\n\nx", "I|'LL| go| | now| |123|4|\n\n|x");
    check_split("qwen2", "(a) 12!!\n", "(a|)| |1|2|!!\n");
    check_split("qwen35", "e\xCC\x81t\xC3\xA9 a", "e\xCC\x81t\xC3\xA9| a");
    check_split("gpt-4o", "HelloWorld's XML 1234/", "Hello|World's| XML| |123|4|/");
    check_split("tekken", "HelloWorld's 12", "Hello|World|'s| |1|2");
    check_split("tekken", "\xC3\x89t\xC3\xA9\xC3\x89t\xC3\xA9",
                "\xC3\x89t\xC3\xA9|\xC3\x89t\xC3\xA9");
    check_split("kimi-k2", HAN "abc" HAN "Def's 1234", HAN "|abc|" HAN "|Def's| |123|4");
    check_split("deepseek-v3", "a" HAN "b1234 .x", "a|" HAN "|b|123|4| .|x");
    check_split("starcoder", "a 123", "a| |1|2|3");
    check_split("falcon", "a 12345", "a| |123|45");
    check_split("default", "x==1234", "x|==|123|4");
    check_split("bloom", "Hi there, you.", "Hi| there|,| you|.");
    check_split("command-r", "x 10", "x| |1|0");
    check_split("gemma4", "a b\n\nc", "a b|\n\n|c");
    check_split("exaone-moe", "ab c 1", "ab c| |1");
    check_split("bailingmoe", "it'S\n\n", "it|'S|\n\n");
}

static void digits_are_grouped_from_the_right(void)
{
    check_split("superbpe", "1234567", "1|234|567");
    check_split("superbpe", "123456", "123|456");
    check_split("superbpe", "10\xC2\xB2", "10\xC2\xB2"); /* not followed by three */
    check_split("tiny_aya", "1234 123a", "1|234| |123|a");
    check_split("tiny_aya", "12345a", "123|45|a"); /* no end of a word behind the digits */
    check_split("afmoe", "12345a", "12|345|a");
    check_split("afmoe", "\xD9\xA1\xD9\xA2\xD9\xA3\xD9\xA4", "\xD9\xA1|\xD9\xA2\xD9\xA3\xD9\xA4");
}

static void white_space_is_that_of_unicode(void)
{
    /* U+180E is no space: it joins the sign before it. U+3000 is one. */
    check_split("gpt-2", "!\xE1\xA0\x8E!", "!\xE1\xA0\x8E!");
    check_split("gpt-2", "!\xE3\x80\x80!", "!|\xE3\x80\x80|!");
}

static const char *const pre_names[] = {
    "default",        "gpt-2",       "starcoder",    "falcon",     "llama3",     "llama-bpe",
    "dbrx",           "smaug-bpe",   "chatglm-bpe",  "jais-2",     "qwen2",      "qwen35",
    "minicpm5",       "laguna",      "seed-coder",   "bailingmoe", "exaone-moe", "deepseek-llm",
    "deepseek-coder", "deepseek-v3", "afmoe",        "youtu",      "tekken",     "gpt-4o",
    "llama4",         "tiny_aya",    "kimi-k2",      "superbpe",   "bloom",      "viking",
    "chameleon",      "gemma4",      "mpt",          "refact",     "command-r",  "olmo",
    "smollm",         "codeshell",   "jina-v2-code", "sarvam-moe",
};

static void every_pre_tokenizer_compiles_and_is_linear(void)
{
    enum { QUARTER = 1 << 18 }; /* of a megabyte */
    for (size_t k = 0; k < sizeof pre_names / sizeof *pre_names; k++) {
        splitter *s = create_splitter(pre_names[k]);
        split_scratch scratch = {0};
        for (int i = 0; s && i < 3 * N_UNITS; i++) {
            size_t n;
            char *input = repeat_text(units[i / 3],
                                      "\0"
                                      "5x"[i % 3],
                                      QUARTER, &n);
            lace_error err = {0};
            clock_t begin = clock();
            lace_status status = splitter_run(s, &scratch, (text){input, n}, &err);
            double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
            if (!CHECK(status == LACE_OK && seconds < SLOW_SECONDS))
                tap_note("%s, unit %d: %.1f s, %s", pre_names[k], i / 3, seconds, err.text);
            CHECK(scratch.n_ends > 0 && scratch.ends[scratch.n_ends - 1] == n);
            free(input);
        }
        split_scratch_deinit(&scratch);
        splitter_free(s);
    }
    CHECK(pre_tokenizer_find(text_of("xyz")) == NULL);
    CHECK(pre_tokenizer_find(text_of("gpt-2 phi-2")) == NULL);
    CHECK(pre_tokenizer_find(text_of("")) == pre_tokenizer_find(text_of("default")));
}

static void evil_regexes_end_in_a_status(void)
{
    static const char *const evil[] = {"(?:a|aa)+c", "(?:(?:a)|b)*", "((a+)+)+b", "(?=a*)", "a*"};
    size_t n;
    char *input = repeat_text("a", 0, 1 << 20, &n);
    for (size_t i = 0; i < sizeof evil / sizeof *evil; i++) {
        text regex = text_of(evil[i]);
        splitter *s;
        CHECK(splitter_create(&regex, 1, &s, NULL) == LACE_OK);
        split_scratch scratch = {0};
        lace_error err = {0};
        /* Short enough that empty matches at each place, each looking to the end, stay bearable. */
        lace_status status = splitter_run(s, &scratch, (text){input, i == 3 ? 4096 : n}, &err);
        CHECK(status == LACE_OK || status == LACE_E_LIMIT);
        CHECK(i != 0 || status == LACE_E_LIMIT);
        split_scratch_deinit(&scratch);
        splitter_free(s);
    }
    free(input);
    text broken = text_of("(unclosed");
    splitter *s;
    lace_error err = {0};
    CHECK(splitter_create(&broken, 1, &s, &err) == LACE_E_VOCAB && !s);
    CHECK(strstr(err.text, "(unclosed") != NULL);
}

int main(void)
{
    CASE(regexes_cut_as_the_models_do);
    CASE(digits_are_grouped_from_the_right);
    CASE(white_space_is_that_of_unicode);
    CASE(every_pre_tokenizer_compiles_and_is_linear);
    CASE(evil_regexes_end_in_a_status);
    return tap_end();
}
