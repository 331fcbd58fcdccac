/*
 * lace tokenize, inspect and logits: $LACE_BIN (by default build/lace) is run in a shell, and what it prints and
 * returns is looked at. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "command.h"
#include "tap.h"

#define MODEL "models/default.gguf" /* also the one inside the program */

static bool is_one_line(const char *s)
{
    const char *end = strchr(s, '\n');
    return end && end[1] == 0;
}

static char before[sizeof ran.out]; /* of an earlier command, to compare with */

static void remember(void)
{
    memcpy(before, ran.out, sizeof before);
}

/* ---- tokenize -------------------------------------------------------------------------------- */

static void tokenize_prints_a_json_array(void)
{
    command_run("tokenize " MODEL " 'Once upon a time'");
    command_check_success();
    CHECK(is_one_line(ran.out));
    CHECK(strncmp(ran.out, "[0,", 3) == 0); /* BOS is token 0 of this model */
    CHECK(strspn(ran.out, "[0123456789,]\n") == ran.n_out);
    remember();
    command_run("tokenize " MODEL " 'Once upon a time' --no-special");
    CHECK(ran.out[0] == '[' && strcmp(ran.out + 1, before + 3) == 0);
    command_run("tokenize " MODEL " '' --no-special");
    CHECK(strcmp(ran.out, "[]\n") == 0);
}

static void tokenize_reads_files_whole(void)
{
    command_write("text", "Once upon\0a time", 16); /* a zero byte is a byte like others */
    command_run("tokenize " MODEL " -f $dir/text --no-special");
    command_check_success();
    remember();
    command_sh("\"$lace\" tokenize " MODEL " -f - --no-special <$dir/text");
    CHECK(strcmp(before, ran.out) == 0);
    command_run("tokenize " MODEL " 'Once upon' --no-special");
    CHECK(strncmp(before, ran.out, ran.n_out - 2) == 0); /* without "]\n" */
    CHECK(strlen(before) > ran.n_out);
}

/* A malformed byte may become more tokens than bytes: one U+FFFD each. */
static void tokenize_reads_malformed_bytes_as_replacements(void)
{
    char bad[50], good[150];
    memset(bad, 0xFF, sizeof bad);
    for (int i = 0; i < 50; i++)
        memcpy(good + 3 * i, "\xEF\xBF\xBD", 3);
    command_write("good", good, sizeof good);
    command_write("bad", bad, sizeof bad);
    command_run("tokenize models/default.gguf -f $dir/good");
    command_check_success();
    remember();
    command_run("tokenize models/default.gguf -f $dir/bad");
    command_check_success();
    CHECK(strcmp(ran.out, before) == 0);
}

static void tokenize_takes_special_tokens_as_text_if_asked(void)
{
    command_run("tokenize " MODEL " '<|endoftext|>' --no-special");
    CHECK(strcmp(ran.out, "[0]\n") == 0);
    command_run("tokenize " MODEL " '<|endoftext|>' --no-special --no-parse-special");
    command_check_success();
    CHECK(strchr(ran.out, ',') != NULL);
}

/* ---- inspect --------------------------------------------------------------------------------- */

/* Only where there is none; bench/gpu-check.py has the rest. */
static void every_verb_with_a_model_says_that_there_is_no_gpu(void)
{
    static const char *const commands[] = {
        "run %s -p x -n 1",
        "chat %s",
        "serve %s --port 0",
        "bench %s -p 4 -n 4 --no-limits",
        "perplexity %s -f $dir/words.txt",
        "logits %s --tokens $dir/words.txt -o $dir/logits -y",
        "compare %s %s -f $dir/words.txt",
        "inspect %s",
    };
    command_sh("nvidia-smi -L");
    if (ran.code == 0) {
        tap_skip("there is a GPU");
        return;
    }
    command_write("words.txt", "1234", 4);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[512];
        size_t n = (size_t)snprintf(line, sizeof line, commands[i], MODEL, MODEL);
        snprintf(line + n, sizeof line - n, " --device cuda");
        command_run("%s", line);
        if (!CHECK(ran.code == 1 && is_one_line(ran.err) && strncmp(ran.err, "lace: ", 6) == 0))
            tap_note("%s: %d, %s", line, ran.code, ran.err);
        snprintf(line + n, sizeof line - n, " --device card");
        command_run("%s", line);
        if (!CHECK(ran.code == 1 && strstr(ran.err, "expected auto, cpu, cuda")))
            tap_note("%s: %d, %s", line, ran.code, ran.err);
    }
    command_run("run -p \"Once\" -n 2 --temp 0 --device auto");
    CHECK(ran.code == 0);
}

static void inspect_describes_the_built_in_model(void)
{
    static const char *const parts[] = {"llama",   "8 layers", "4096 tokens", "t3",   "%",
                                        "weights", "KV cache", "scratch",     "total"};
    command_run("inspect");
    command_check_success();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!CHECK(strstr(ran.out, parts[i]) != NULL))
            tap_note("missing: %s", parts[i]);
    CHECK(strstr(ran.out, "token_embd.weight") == NULL);
    command_run("inspect " MODEL " --tensors");
    CHECK(strstr(ran.out, "token_embd.weight") != NULL);
}

static void inspect_counts_experts(void)
{
    command_run("inspect tests/fuzz/corpus/load/dots1.gguf");
    command_check_success();
    CHECK(strstr(ran.out, "experts       4 of width 8, 2 of them for a token\n"));
    command_run("inspect tests/fuzz/corpus/load/dots1.gguf -o json");
    CHECK(strstr(ran.out, "\"n_experts\": 4") && strstr(ran.out, "\"n_experts_used\": 2"));
    command_run("inspect " MODEL);
    CHECK(!strstr(ran.out, "experts"));
}

static void inspect_writes_json(void)
{
    command_run("inspect " MODEL " -o json --tensors");
    command_check_success();
    static const char *const parts[] = {
        "\"architecture\": \"llama\"", "\"n_layers\": 8", "\"n_vocab\": 4096",
        "\"runnable\": true",          "\"total\": ",     "\"name\": \"token_embd.weight\""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!CHECK(strstr(ran.out, parts[i]) != NULL))
            tap_note("missing: %s", parts[i]);
    CHECK(ran.out[0] == '{' && strcmp(ran.out + ran.n_out - 2, "}\n") == 0);
}

static void inspect_describes_what_cannot_be_run(void)
{
    char *path = data_path("vocab/gpt-2.gguf");
    if (!path)
        return;
    char line[512];
    snprintf(line, sizeof line, "inspect %s", path);
    command_run("%s", line);
    command_check_success();
    CHECK(strstr(ran.out, "cannot run") != NULL);
    free(path);
}

static long memory_figure(const char *arguments)
{
    command_run("%s", arguments);
    const char *at = strstr(ran.out, "\"kv\": ");
    return CHECK(at != NULL) ? atol(at + 6) : -1;
}

static void inspect_computes_memory_for_the_context_asked_for(void)
{
    long small = memory_figure("inspect -o json -c 256");
    long large = memory_figure("inspect -o json -c 1024");
    long exact = memory_figure("inspect -o json -c 1024 --kv-type f32");
    CHECK(small > 0);
    CHECK(large > 3 * small && large < 5 * small); /* pages round up a little */
    CHECK(exact > large);
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* The mean square of differences between two files of n logits, as a share of their squares. */
static double compare_logits(const char *x, const char *y, size_t n)
{
    static char one[64 * 4096 * 4 + 16], other[sizeof one];
    if (!CHECK(command_read(x, one, sizeof one) == n * 4) ||
        !CHECK(command_read(y, other, sizeof other) == n * 4))
        return INFINITY;
    const float *a = (const float *)one, *b = (const float *)other;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)a[i] * a[i];
    }
    return norm > 0 ? difference / norm : INFINITY;
}

static void logits_writes_a_row_for_each_token(void)
{
    static const int32_t tokens[5] = {0, 7, 300, 4095, 12};
    command_write("tokens", tokens, sizeof tokens);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/whole");
    command_check_success();
    CHECK(ran.n_out == 0 && ran.n_err == 0);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/steps -b 1 -t 1");
    /* Another order of f32 sums of some hundred terms: 1e-6 relative, 1e-12 squared, and room. */
    CHECK(compare_logits("whole", "steps", 5 * 4096) < 1e-10);
}

/*
 * Attention to prompts may be in fixed point, which would differ by 2e-8 here. What is left are
 * keys and values that another order of sums rounds to the next f16: 5e-10.
 */
static void exact_logits_do_not_depend_on_the_batch(void)
{
    int32_t tokens[64];
    for (int i = 0; i < 64; i++)
        tokens[i] = 1 + 60 * i;
    command_write("tokens", tokens, sizeof tokens);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/whole --exact --kv-type f16 -y");
    command_check_success();
    command_run("logits " MODEL
                " --tokens $dir/tokens -o $dir/steps --exact --kv-type f16 -b 1 -y");
    CHECK(compare_logits("whole", "steps", 64 * 4096) < 4e-9);
}

static void logits_refuses_bad_tokens_and_leaves_the_file(void)
{
    static const int32_t tokens[3] = {1, 4096, 2};
    command_write("tokens", tokens, sizeof tokens);
    command_write("logits", "old", 3);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/logits -y");
    command_check_error("token 1 is 4096, expected 0 to 4095");
    char old[16];
    CHECK(command_read("logits", old, sizeof old) == 3);
    command_write("tokens", "abcde", 5);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/logits -y");
    command_check_error("5 bytes");
    command_write("tokens", "", 0);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/logits -y");
    command_check_error("0 bytes");
    command_write("tokens", tokens, 4);
    command_run("logits " MODEL " --tokens $dir/tokens -o $dir/absent/logits");
    command_check_error("absent");
}

static void devices_are_listed_the_cpu_first(void)
{
    command_run("list --devices");
    CHECK(command_check_success() && strncmp(ran.out, "DEVICE ", 7) == 0);
    CHECK(strstr(ran.out, "\ncpu  ") != NULL && strstr(ran.out, " cores") != NULL);
    command_run("list --devices -o names");
    CHECK(command_check_success() && strncmp(ran.out, "cpu\n", 4) == 0);
    command_run("list --devices -o json");
    json_t *all = json_loads(ran.out, 0, NULL), *cpu = json_array_get(all, 0);
    CHECK(json_integer_value(json_object_get(cpu, "bytes")) > 0);
    json_decref(all);
    /* Where no driver shows a card, an option for one says so. */
    command_sh("VK_ICD_FILENAMES=/nowhere CUDA_VISIBLE_DEVICES= \"$lace\" list --devices -o names");
    if (strcmp(ran.out, "cpu\n") != 0) {
        tap_note("a card is there in spite of the environment");
        return;
    }
    command_sh("VK_ICD_FILENAMES=/nowhere CUDA_VISIBLE_DEVICES= \"$lace\" run -p hi -n 1 -ngl 4");
    CHECK(command_check_success() && strstr(ran.err, "note: there is no GPU here"));
    command_sh("VK_ICD_FILENAMES=/nowhere CUDA_VISIBLE_DEVICES= \"$lace\" run -p hi -n 1 -ngl 0");
    CHECK(command_check_success() && !strstr(ran.err, "note"));
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(tokenize_prints_a_json_array);
    CASE(tokenize_reads_files_whole);
    CASE(tokenize_reads_malformed_bytes_as_replacements);
    CASE(tokenize_takes_special_tokens_as_text_if_asked);
    CASE(every_verb_with_a_model_says_that_there_is_no_gpu);
    CASE(inspect_describes_the_built_in_model);
    CASE(inspect_counts_experts);
    CASE(inspect_writes_json);
    CASE(inspect_describes_what_cannot_be_run);
    CASE(inspect_computes_memory_for_the_context_asked_for);
    CASE(logits_writes_a_row_for_each_token);
    CASE(exact_logits_do_not_depend_on_the_batch);
    CASE(logits_refuses_bad_tokens_and_leaves_the_file);
    CASE(devices_are_listed_the_cpu_first);
    command_end();
    return tap_end();
}
