/*
 * lace run: $LACE_BIN (by default build/lace) is run in a shell, and what it prints and
 * returns is looked at. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "tap.h"

#define MODEL "models/default.gguf" /* also the one inside the program */

static bool is_one_line(const char *s)
{
    const char *end = strchr(s, '\n');
    return end && end[1] == 0;
}

static char before[sizeof program.out]; /* of an earlier command, to compare with */

static void remember(void)
{
    memcpy(before, program.out, sizeof before);
}

/* ---- run ------------------------------------------------------------------------------------- */

static void a_seed_of_minus_one_is_a_random_one(void)
{
    program_run("run -p 'Once upon a time' -n 40 --seed -1");
    program_check_success();
    remember();
    program_run("run -p 'Once upon a time' -n 40 --seed -1");
    program_check_success();
    CHECK(strcmp(before, program.out) != 0);
}

static void the_same_seed_gives_the_same_text(void)
{
    program_run("run -p 'Once upon a time' -n 40 --seed 5");
    program_check_success();
    CHECK(strncmp(program.out, "Once upon a time", 16) == 0);
    CHECK(program.n_out > 60);
    CHECK(program.out[program.n_out - 1] == '\n');
    remember();
    program_run("run " MODEL
                " -p 'Once upon a time' -n 40 --seed 5 -t 1"); /* threads change nothing */
    CHECK(strcmp(before, program.out) == 0);
    program_run("run -p 'Once upon a time' -n 40 --seed 6");
    CHECK(strcmp(before, program.out) != 0);
    program_run("run -p 'Once upon a time' -n 40 --seed 5 --no-display-prompt");
    CHECK(strcmp(before + 16, program.out) == 0);
}

static void statistics_are_one_line_with_the_seed_to_repeat_it(void)
{
    /* The seed is random here, and some end the text early: of 1 to 300, seed 268 does. */
    program_run("run -p 'Once upon a time' -n 20 --ignore-eos");
    program_check_success();
    CHECK(is_one_line(program.err));
    CHECK(strncmp(program.err, "prompt ", 7) == 0);
    CHECK(strstr(program.err, " tok/s | generated 20 tokens ") != NULL);
    const char *seed = strstr(program.err, "| seed ");
    if (!CHECK(seed != NULL))
        return;
    remember();
    char line[128];
    snprintf(line, sizeof line, "run -p 'Once upon a time' -n 20 --ignore-eos --seed %llu",
             strtoull(seed + 7, NULL, 10));
    program_run("%s", line);
    CHECK(strcmp(before, program.out) == 0);
    program_run("run -p 'Once upon a time' -n 20 --ignore-eos");
    CHECK(strcmp(before, program.out) != 0); /* the default seed is another each time */
    program_run("run -p 'Once upon a time' -n 20 --ignore-eos --temp 0");
    CHECK(strstr(program.err, "seed") == NULL);
}

static void prompts_come_from_text_file_or_pipe(void)
{
    program_run("run -p 'The king' -n 8 --temp 0");
    program_check_success();
    remember();
    program_write("prompt", "The king\n", 9);
    program_run("run -f $dir/prompt -n 8 --temp 0");
    CHECK(strcmp(before, program.out) == 0);
    program_sh("echo 'The king' | \"$lace\" run -n 8 --temp 0");
    CHECK(strcmp(before, program.out) == 0);
}

static void generating_nothing_prints_the_prompt(void)
{
    program_run("run -p 'The king' -n 0");
    program_check_success();
    CHECK(strcmp(program.out, "The king\n") == 0);
    CHECK(strstr(program.err, "generated 0 tokens") != NULL);
    program_run("run -p 'The king' -n 0 --no-display-prompt");
    CHECK(program.n_out == 0);
}

static void an_empty_prompt_begins_with_bos(void)
{
    program_run("run -p '' -n 10 --seed 1");
    program_check_success();
    CHECK(program.n_out > 10);
    CHECK(strstr(program.err, "prompt 1 tokens") != NULL);
    program_run("run -n 10 --seed 1"); /* standard input is empty here */
    program_check_success();
    CHECK(strstr(program.err, "prompt 1 tokens") != NULL);
}

static void a_prompt_longer_than_the_context_is_refused_with_both_numbers(void)
{
    program_run(
        "run -c 16 -p 'one two three four five six seven eight nine ten eleven twelve thirteen "
        "fourteen fifteen sixteen seventeen'");
    program_check_error("the context has 16");
    CHECK(strstr(program.err, "the prompt has ") != NULL);
}

static void generation_stops_at_the_end_of_the_context(void)
{
    program_run("run -c 32 -p 'Once upon a time' --ignore-eos --seed 3");
    program_check_success();
    CHECK(strstr(program.err, "| context full") != NULL);
    int n_prompt = 0, n_generated = 0;
    const char *generated = strstr(program.err, "generated ");
    CHECK(sscanf(program.err, "prompt %d", &n_prompt) == 1);
    CHECK(generated && sscanf(generated, "generated %d", &n_generated) == 1);
    CHECK(n_prompt + n_generated == 33); /* the last token is said, but has no place any more */
}

static void a_memory_budget_too_small_is_refused_with_the_three_parts(void)
{
    program_run("run -p x --memory 1M");
    program_check_error("weights");
    CHECK(strstr(program.err, "KV") != NULL);
    CHECK(strstr(program.err, "scratch") != NULL);
    int n_numbers = 0;
    for (const char *p = program.err; (p = strpbrk(p, "0123456789"));
         p += strspn(p, "0123456789.,"))
        n_numbers++;
    CHECK(n_numbers >= 3);
    program_run("run -p x -n 1 --memory 1G");
    program_check_success();
}

static void every_sampler_option_reaches_the_sampler(void)
{
    /* clang-format off */
    static const char *const rows[] = {
        "--top-k 1", "--temp 0.1 --top-k 0 --top-p 1 --min-p 0", "--top-p 0.1", "--top-p 0", "--min-p 1",
        "--typical 0.2", "--repeat-penalty 1.5", "--presence-penalty 2", "--frequency-penalty -1.5",
    };
    /* clang-format on */
    program_run("run -p 'Once upon a time' -n 60 --seed 5");
    remember();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "run -p 'Once upon a time' -n 60 --seed 5 %s", rows[i]);
        program_run("%s", line);
        program_check_success();
        if (!CHECK(strcmp(before, program.out) != 0))
            tap_note("%s changes nothing", rows[i]);
    }
    program_run("run -p 'Once upon a time' -n 60 --seed 5 --repeat-penalty 1.5 --repeat-last-n 0");
    CHECK(strcmp(before, program.out) == 0);
}

static void every_kv_type_and_mmap_run(void)
{
    static const char *const rows[] = {"--kv-type f32", "--kv-type q8_0", "--mmap", "-b 2", "-t 2"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "run -p 'Once upon a time' -n 10 --temp 0 %s", rows[i]);
        program_run("%s", line);
        if (program_check_success())
            CHECK(program.n_out > 20);
    }
}

static void nothing_but_plain_text_is_printed_into_a_pipe(void)
{
    program_run("run -p 'Once upon a time' -n 20 --seed 5");
    CHECK(strchr(program.out, '\x1b') == NULL && strchr(program.out, '\r') == NULL);
    CHECK(strchr(program.err, '\x1b') == NULL && strchr(program.err, '\r') == NULL);
    program_run("inspect");
    CHECK(strchr(program.out, '\x1b') == NULL && program.n_err == 0);
}

static void a_closed_pipe_ends_quietly(void)
{
    program_sh(
        "\"$lace\" run -p 'Once upon a time' -n 500 --ignore-eos --seed 1 </dev/null | head -c 5");
    CHECK(strcmp(program.out, "Once ") == 0);
    CHECK(program.n_err == 0);
}

/* With --mmap every token reads the whole file; 900 of them take seconds. */
static void a_file_cut_short_in_use_is_an_error(void)
{
    program_sh("cp " MODEL " $dir/cut.gguf; : >$dir/cut.txt; "
               "(until [ -s $dir/cut.txt ]; do sleep 0.05; done; truncate -s 4096 $dir/cut.gguf) & "
               "\"$lace\" run $dir/cut.gguf --mmap -p 'Once upon a time' -n 900 --ignore-eos -t 1 "
               "</dev/null >$dir/cut.txt");
    program_check_error("truncated while it was in use");
}

static void a_full_disk_is_an_error(void)
{
    if (access("/dev/full", W_OK) != 0) {
        tap_skip("no /dev/full");
        return;
    }
    program_sh("\"$lace\" run -p 'Once upon a time' -n 5 </dev/null >/dev/full");
    program_check_error("cannot write to standard output: No space left");
}

static void an_interrupt_keeps_the_text_and_the_statistics(void)
{
    /* Shells start background jobs with SIGINT ignored; a program sets it up for itself again. */
    program_sh(
        "\"$lace\" run -p 'Once upon a time' -c 100000 --ignore-eos </dev/null >$dir/story & "
        "pid=$!; while ! [ -s $dir/story ]; do sleep 0.02; done; sleep 0.2; "
        "kill -INT $pid; wait $pid; code=$?; head -c 16 $dir/story; exit $code");
    CHECK(program.code == 130);
    CHECK(strcmp(program.out, "Once upon a time") == 0);
    CHECK(strstr(program.err, "| stopped") != NULL);
}

int main(void)
{
    if (!program_begin())
        return 1;
    CASE(a_seed_of_minus_one_is_a_random_one);
    CASE(the_same_seed_gives_the_same_text);
    CASE(statistics_are_one_line_with_the_seed_to_repeat_it);
    CASE(prompts_come_from_text_file_or_pipe);
    CASE(generating_nothing_prints_the_prompt);
    CASE(an_empty_prompt_begins_with_bos);
    CASE(a_prompt_longer_than_the_context_is_refused_with_both_numbers);
    CASE(generation_stops_at_the_end_of_the_context);
    CASE(a_memory_budget_too_small_is_refused_with_the_three_parts);
    CASE(every_sampler_option_reaches_the_sampler);
    CASE(every_kv_type_and_mmap_run);
    CASE(nothing_but_plain_text_is_printed_into_a_pipe);
    CASE(a_closed_pipe_ends_quietly);
    CASE(a_file_cut_short_in_use_is_an_error);
    CASE(a_full_disk_is_an_error);
    CASE(an_interrupt_keeps_the_text_and_the_statistics);
    program_end();
    return tap_end();
}
