/*
 * lace run: $LACE_BIN (by default build/lace) is run in a shell, and what it prints and
 * returns is looked at. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- run ------------------------------------------------------------------------------------- */

static void a_seed_of_minus_one_is_a_random_one(void)
{
    command_run("run -p 'Once upon a time' -n 40 --seed -1");
    command_check_success();
    remember();
    command_run("run -p 'Once upon a time' -n 40 --seed -1");
    command_check_success();
    CHECK(strcmp(before, ran.out) != 0);
}

static void the_same_seed_gives_the_same_text(void)
{
    command_run("run -p 'Once upon a time' -n 40 --seed 5");
    command_check_success();
    CHECK(strncmp(ran.out, "Once upon a time", 16) == 0);
    CHECK(ran.n_out > 60);
    CHECK(ran.out[ran.n_out - 1] == '\n');
    remember();
    command_run("run " MODEL
                " -p 'Once upon a time' -n 40 --seed 5 -t 1"); /* threads change nothing */
    CHECK(strcmp(before, ran.out) == 0);
    command_run("run -p 'Once upon a time' -n 40 --seed 6");
    CHECK(strcmp(before, ran.out) != 0);
    command_run("run -p 'Once upon a time' -n 40 --seed 5 --no-display-prompt");
    CHECK(strcmp(before + 16, ran.out) == 0);
}

static void statistics_are_one_line_with_the_seed_to_repeat_it(void)
{
    /* The seed is random here, and some end the text early: of 1 to 300, seed 268 does. */
    command_run("run -p 'Once upon a time' -n 20 --ignore-eos");
    command_check_success();
    CHECK(is_one_line(ran.err));
    CHECK(strncmp(ran.err, "prompt ", 7) == 0);
    CHECK(strstr(ran.err, " tok/s | generated 20 tokens ") != NULL);
    const char *seed = strstr(ran.err, "| seed ");
    if (!CHECK(seed != NULL))
        return;
    remember();
    char line[128];
    snprintf(line, sizeof line, "run -p 'Once upon a time' -n 20 --ignore-eos --seed %llu",
             strtoull(seed + 7, NULL, 10));
    command_run("%s", line);
    CHECK(strcmp(before, ran.out) == 0);
    command_run("run -p 'Once upon a time' -n 20 --ignore-eos");
    CHECK(strcmp(before, ran.out) != 0); /* the default seed is another each time */
    command_run("run -p 'Once upon a time' -n 20 --ignore-eos --temp 0");
    CHECK(strstr(ran.err, "seed") == NULL);
}

static void prompts_come_from_text_file_or_pipe(void)
{
    command_run("run -p 'The king' -n 8 --temp 0");
    command_check_success();
    remember();
    command_write("prompt", "The king\n", 9);
    command_run("run -f $dir/prompt -n 8 --temp 0");
    CHECK(strcmp(before, ran.out) == 0);
    command_sh("echo 'The king' | \"$lace\" run -n 8 --temp 0");
    CHECK(strcmp(before, ran.out) == 0);
}

static void generating_nothing_prints_the_prompt(void)
{
    command_run("run -p 'The king' -n 0");
    command_check_success();
    CHECK(strcmp(ran.out, "The king\n") == 0);
    CHECK(strstr(ran.err, "generated 0 tokens") != NULL);
    command_run("run -p 'The king' -n 0 --no-display-prompt");
    CHECK(ran.n_out == 0);
}

static void memory_that_is_not_there_is_counted(void)
{
    command_run("run -p hi -n 1 -c 134217728 --kv-type f32"); /* 1 TiB */
    command_check_error("out of memory: needs ");
    CHECK(strstr(ran.err, "a shorter context or a smaller batch needs less") != NULL);
}

static void an_empty_prompt_begins_with_bos(void)
{
    command_run("run -p '' -n 10 --seed 1");
    command_check_success();
    CHECK(ran.n_out > 10);
    CHECK(strstr(ran.err, "prompt 1 token ") != NULL);
    command_run("run -n 10 --seed 1"); /* standard input is empty here */
    command_check_success();
    CHECK(strstr(ran.err, "prompt 1 token ") != NULL);
}

static void a_prompt_longer_than_the_context_is_refused_with_both_numbers(void)
{
    command_run(
        "run -c 16 -p 'one two three four five six seven eight nine ten eleven twelve thirteen "
        "fourteen fifteen sixteen seventeen'");
    command_check_error("the context has 16");
    CHECK(strstr(ran.err, "the prompt has ") != NULL);
}

static void a_context_longer_than_the_model_was_made_for_is_noted(void)
{
    command_run("run " MODEL " -p Hello -n 1 -c 1025");
    CHECK(command_check_success() &&
          strstr(ran.err, "lace: note: the model was made for 1024 tokens; of a context of 1025"));
    command_run("run " MODEL " -p Hello -n 1 -c 1024");
    CHECK(command_check_success() && !strstr(ran.err, "note"));
}

static void generation_stops_at_the_end_of_the_context(void)
{
    command_run("run -c 32 -p 'Once upon a time' --ignore-eos --seed 3");
    command_check_success();
    CHECK(strstr(ran.err, "| context full") != NULL);
    int n_prompt = 0, n_generated = 0;
    const char *generated = strstr(ran.err, "generated ");
    CHECK(sscanf(ran.err, "prompt %d", &n_prompt) == 1);
    CHECK(generated && sscanf(generated, "generated %d", &n_generated) == 1);
    CHECK(n_prompt + n_generated == 33); /* the last token is said, but has no place any more */
}

static void a_memory_budget_too_small_is_refused_with_the_three_parts(void)
{
    command_run("run -p x --memory 1M");
    command_check_error("weights");
    CHECK(strstr(ran.err, "KV") != NULL);
    CHECK(strstr(ran.err, "scratch") != NULL);
    int n_numbers = 0;
    for (const char *p = ran.err; (p = strpbrk(p, "0123456789")); p += strspn(p, "0123456789.,"))
        n_numbers++;
    CHECK(n_numbers >= 3);
    command_run("run -p x -n 1 --memory 1G");
    command_check_success();
}

static void every_sampler_option_reaches_the_sampler(void)
{
    /* clang-format off */
    static const char *const rows[] = {
        "--top-k 1", "--temp 0.1 --top-k 0 --top-p 1 --min-p 0", "--top-p 0.1", "--top-p 0", "--min-p 1",
        "--typical 0.2", "--repeat-penalty 1.5", "--presence-penalty 2", "--frequency-penalty -1.5",
    };
    /* clang-format on */
    command_run("run -p 'Once upon a time' -n 60 --seed 5");
    remember();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "run -p 'Once upon a time' -n 60 --seed 5 %s", rows[i]);
        command_run("%s", line);
        command_check_success();
        if (!CHECK(strcmp(before, ran.out) != 0))
            tap_note("%s changes nothing", rows[i]);
    }
    command_run("run -p 'Once upon a time' -n 60 --seed 5 --repeat-penalty 1.5 --repeat-last-n 0");
    CHECK(strcmp(before, ran.out) == 0);
}

static void every_kv_type_and_mmap_run(void)
{
    static const char *const rows[] = {"--kv-type f32",
                                       "--kv-type q8_0",
                                       "--kv-type q5_0",
                                       "-ctk iq4_nl -ctv q8_0",
                                       "--mmap",
                                       "-b 2",
                                       "-t 2"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "run -p 'Once upon a time' -n 10 --temp 0 %s", rows[i]);
        command_run("%s", line);
        if (command_check_success())
            CHECK(ran.n_out > 20);
    }
}

static void nothing_but_plain_text_is_printed_into_a_pipe(void)
{
    command_run("run -p 'Once upon a time' -n 20 --seed 5");
    CHECK(strchr(ran.out, '\x1b') == NULL && strchr(ran.out, '\r') == NULL);
    CHECK(strchr(ran.err, '\x1b') == NULL && strchr(ran.err, '\r') == NULL);
    command_run("inspect");
    CHECK(strchr(ran.out, '\x1b') == NULL && ran.n_err == 0);
}

static void a_closed_pipe_ends_quietly(void)
{
    command_sh(
        "\"$lace\" run -p 'Once upon a time' -n 500 --ignore-eos --seed 1 </dev/null | head -c 5");
    CHECK(strcmp(ran.out, "Once ") == 0);
    CHECK(ran.n_err == 0);
}

/* With --mmap every token reads the whole file; 900 of them take seconds. */
static void a_file_cut_short_in_use_is_an_error(void)
{
    command_sh("cp " MODEL " $dir/cut.gguf; : >$dir/cut.txt; "
               "(until [ -s $dir/cut.txt ]; do sleep 0.05; done; truncate -s 4096 $dir/cut.gguf) & "
               "\"$lace\" run $dir/cut.gguf --mmap -p 'Once upon a time' -n 900 --ignore-eos -t 1 "
               "</dev/null >$dir/cut.txt");
    command_check_error("truncated while it was in use");
}

static void a_full_disk_is_an_error(void)
{
    if (access("/dev/full", W_OK) != 0) {
        tap_skip("no /dev/full");
        return;
    }
    command_sh("\"$lace\" run -p 'Once upon a time' -n 5 </dev/null >/dev/full");
    command_check_error("cannot write to standard output: No space left");
}

static void an_interrupt_keeps_the_text_and_the_statistics(void)
{
    /* Shells start background jobs with SIGINT ignored; a program sets it up for itself again. */
    command_sh(
        "\"$lace\" run -p 'Once upon a time' -c 100000 --ignore-eos </dev/null >$dir/story & "
        "pid=$!; while ! [ -s $dir/story ]; do sleep 0.02; done; sleep 0.2; "
        "kill -INT $pid; wait $pid; code=$?; head -c 16 $dir/story; exit $code");
    CHECK(ran.code == 130);
    CHECK(strcmp(ran.out, "Once upon a time") == 0);
    CHECK(strstr(ran.err, "| stopped") != NULL);
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(a_seed_of_minus_one_is_a_random_one);
    CASE(the_same_seed_gives_the_same_text);
    CASE(statistics_are_one_line_with_the_seed_to_repeat_it);
    CASE(prompts_come_from_text_file_or_pipe);
    CASE(generating_nothing_prints_the_prompt);
    CASE(memory_that_is_not_there_is_counted);
    CASE(an_empty_prompt_begins_with_bos);
    CASE(a_prompt_longer_than_the_context_is_refused_with_both_numbers);
    CASE(a_context_longer_than_the_model_was_made_for_is_noted);
    CASE(generation_stops_at_the_end_of_the_context);
    CASE(a_memory_budget_too_small_is_refused_with_the_three_parts);
    CASE(every_sampler_option_reaches_the_sampler);
    CASE(every_kv_type_and_mmap_run);
    CASE(nothing_but_plain_text_is_printed_into_a_pipe);
    CASE(a_closed_pipe_ends_quietly);
    CASE(a_file_cut_short_in_use_is_an_error);
    CASE(a_full_disk_is_an_error);
    CASE(an_interrupt_keeps_the_text_and_the_statistics);
    command_end();
    return tap_end();
}
