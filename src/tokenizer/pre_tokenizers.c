/*
 * The table of pre-tokenizers: the names that files use, and the regexes of the models' own
 * tokenizers that they stand for.
 *
 * Class intersections, which PCRE2 does not have, are written as complements: "letters and marks
 * but not Han and not lower case" is everything but other categories, Han and lower case.
 * Characters beyond ASCII are written as numbers, as many look like others.
 */
#include <string.h>

#include "tokenizer/tokenizer.h"

/* clang-format off */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER_KIMI  "[^\\p{C}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{Ll}\\p{sc:Han}]"
#define LOWER_KIMI  "[^\\p{C}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{Lu}\\p{Lt}\\p{sc:Han}]"
#define LEAD        "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words that change from upper to lower case, in the way of GPT-4o. */
#define CASED(upper, lower, tail) \
    LEAD upper "*" lower "+" tail "|" LEAD upper "+" lower "*" tail

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define GPT4(numbers) \
    CONTRACTION "|" LEAD "\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define GPT4O(numbers, tail) \
    CASED(UPPER, LOWER, tail) "|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define DEEPSEEK3 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define CJK_DEEPSEEK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define CJK_DEEPSEEK3 "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

#define REGEXES(...) (const char *const[]){__VA_ARGS__, NULL}

static const pre_tokenizer table[] = {
    {.names = " default ",
     .regexes = REGEXES("[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]")},
    {.names = " gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum"
              " modern-bert jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code"
              " roberta-bpe ",
     .regexes = REGEXES(GPT2)},
    {.names = " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     .regexes = REGEXES("\\p{N}", GPT2)},
    {.names = " falcon ",
     .regexes = REGEXES("[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]")},
    {.names = " llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     .regexes = REGEXES(GPT4("\\p{N}{1,3}")),
     .ignore_merges = true, .add_bos = true},
    {.names = " dbrx smaug smaug-bpe glm4 chatglm4 chatglm-bpe ",
     .regexes = REGEXES(GPT4("\\p{N}{1,3}"))},
    {.names = " jais-2 ",
     .regexes = REGEXES(CONTRACTION "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                        "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|"
                        "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|"
                        "\\s{1,2}(?!\\S)|\\s{1}")},
    {.names = " qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 ",
     .regexes = REGEXES(GPT4("\\p{N}"))},
    {.names = " qwen35 ",
     .regexes = REGEXES(CONTRACTION "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}|"
                        " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES)},
    {.names = " minicpm5 ",
     .regexes = REGEXES("\\p{N}{1,3}", GPT4("\\p{N}+")),
     .ignore_merges = true},
    {.names = " laguna ",
     .regexes = REGEXES("[^\\n]+|[\\n]+", GPT4("\\p{N}"))},
    {.names = " seed-coder ",
     .regexes = REGEXES(CONTRACTION "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES)},
    {.names = " bailingmoe bailingmoe2 llada-moe ",
     .regexes = REGEXES("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
                        " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+")},
    {.names = " exaone-moe ",
     .regexes = REGEXES(CONTRACTION "|" LEAD "(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|"
                        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+")},
    {.names = " deepseek-llm ",
     .regexes = REGEXES("[\\r\\n]",
                        "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}"
                        "\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}"
                        "\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"
                        "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"
                        "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"
                        "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"
                        "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"
                        "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"
                        "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"
                        "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"
                        "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
                        "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"
                        "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"
                        "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}"
                        "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"
                        "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"
                        "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}"
                        "\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"
                        "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"
                        "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"
                        "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"
                        "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"
                        "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+",
                        "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
                        "\\x{3000}-\\x{3002}]+", "\\s+$", CJK_DEEPSEEK, "\\p{N}+")},
    {.names = " deepseek-coder ",
     .regexes = REGEXES("[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_DEEPSEEK, "\\p{N}")},
    {.names = " deepseek-v3 hunyuan-dense joyai-llm ",
     .regexes = REGEXES("\\p{N}{1,3}", CJK_DEEPSEEK3, DEEPSEEK3)},
    {.names = " afmoe ",
     .regexes = REGEXES("\\d{1,3}(?=(?:\\d{3})*(?!\\d))",
                        "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}"
                        "\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}"
                        "\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}"
                        "\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"
                        "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+", DEEPSEEK3)},
    {.names = " youtu ",
     .regexes = REGEXES("[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}"
                        "\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
                        "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|["
                        "\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
                        GPT4O("\\p{N}", CONTRACTION "?")),
     .ignore_merges = true},
    {.names = " tekken ",
     .regexes = REGEXES(GPT4O("\\p{N}", "")),
     .ignore_merges = true, .add_bos = true},
    {.names = " gpt-4o llama4 kanana2 talkie minimax-m2 ",
     .regexes = REGEXES(GPT4O("\\p{N}{1,3}", CONTRACTION "?"))},
    {.names = " granite-embed-multi-97m ",
     .regexes = REGEXES(GPT4O("\\p{N}{1,3}", CONTRACTION "?")),
     .ignore_merges = true},
    {.names = " tiny_aya cohere2moe ",
     .regexes = REGEXES("\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O("\\p{N}{1,3}", CONTRACTION "?"))},
    {.names = " kimi-k2 ",
     .regexes = REGEXES("\\p{sc:Han}+|" CASED(UPPER_KIMI, LOWER_KIMI, CONTRACTION "?")
                        "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES)},
    {.names = " superbpe ",
     .regexes = REGEXES("\\p{N}+", "(?=(\\d{3})+(?!\\d))")},
    {.names = " bloom poro-chat gpt3-finnish ",
     .regexes = REGEXES(BLOOM)},
    {.names = " viking ",
     .regexes = REGEXES(BLOOM, "\\p{N}")},
    {.names = " chameleon ",
     .regexes = REGEXES("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                        "([\\t\\n]|    |  )", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2),
     .add_bos = true},
    {.names = " gemma4 granite-embed-multi-311m ",
     .regexes = REGEXES("[^\\n]+|[\\n]+"),
     .add_bos = true, .is_raw = true},
    {.names = " sarvam-moe ",
     .regexes = REGEXES("[^\\n]+|[\\n]+"),
     .is_raw = true},
};
/* clang-format on */

static bool has_name(const char *names, text name)
{
    for (const char *at = names + 1; *at;) {
        size_t n = strcspn(at, " ");
        if (n == name.size && memcmp(at, name.data, n) == 0)
            return true;
        at += n + 1;
    }
    return false;
}

const pre_tokenizer *pre_tokenizer_find(text name)
{
    if (name.size == 0)
        return &table[0];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (has_name(table[i].names, name))
            return &table[i];
    return NULL;
}
