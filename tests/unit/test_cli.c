/*
 * The program as people meet it: $LACE_BIN (by default build/lace) is run in a shell, and what it
 * prints and returns is looked at. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "tap.h"

#define MODEL "models/default.gguf" /* also the one inside the program */

static char scratch[] = "/tmp/lace-test-cli-XXXXXX"; /* a folder for this run */

/* What a command did. Output is cut at the size of the arrays; no test prints more. */
typedef struct result {
    int code; /* of the exit; 128 and more: a signal */
    size_t n_out, n_err;
    char out[65536];
    char err[8192];
} result;

static result r;                  /* of the last command */
static char before[sizeof r.out]; /* standard output of an earlier one, to compare with */

static void remember(void)
{
    memcpy(before, r.out, sizeof before);
}

static size_t read_file(const char *name, char *into, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(into, 1, size - 1, f) : 0;
    into[n] = 0;
    if (f)
        fclose(f);
    return n;
}

static void write_file(const char *name, const void *data, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "wb");
    if (CHECK(f != NULL)) {
        CHECK(fwrite(data, 1, n, f) == n);
        fclose(f);
    }
}

/* Run a shell command in which $lace is the program and $dir the scratch folder. */
static void sh(const char *command)
{
    char line[2048];
    snprintf(line, sizeof line, "dir=%s; { %s ; } >%s/out 2>%s/err", scratch, command, scratch,
             scratch);
    int status = system(line);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    r.n_out = read_file("out", r.out, sizeof r.out);
    r.n_err = read_file("err", r.err, sizeof r.err);
}

static void lace(const char *arguments)
{
    char line[1024];
    snprintf(line, sizeof line, "\"$lace\" %s </dev/null", arguments);
    sh(line);
}

static bool is_one_line(const char *s)
{
    const char *end = strchr(s, '\n');
    return end && end[1] == 0;
}

/* The last command failed with one line that contains `part`, and printed nothing else. */
static void check_error(const char *part)
{
    bool ok = CHECK(r.code == 1);
    ok = CHECK(is_one_line(r.err)) && ok;
    ok = CHECK(strncmp(r.err, "lace: ", 6) == 0) && ok;
    ok = CHECK(strstr(r.err, part) != NULL) && ok;
    ok = CHECK(r.n_out == 0) && ok;
    if (!ok)
        tap_note("code %d, expected \"%s\" in: %s", r.code, part, r.err);
}

static bool check_success(void)
{
    bool ok = CHECK(r.code == 0);
    if (!ok)
        tap_note("code %d: %s", r.code, r.err);
    return ok;
}

/* ---- Help ------------------------------------------------------------------------------------ */

static const char *const verbs[] = {"run", "inspect", "tokenize", "logits"};

static void lace_alone_lists_every_verb(void)
{
    static const char *const ways[] = {"", "--help", "-h", "help"};
    for (size_t w = 0; w < 4; w++) {
        lace(ways[w]);
        check_success();
        for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
            CHECK(strstr(r.out, verbs[i]) != NULL);
        CHECK(strstr(r.out, "Examples:") != NULL);
        CHECK(r.n_err == 0);
    }
}

static void help_of_a_verb_shows_each_flag(void)
{
    static const char *const flags[][24] = {
        {"-p, --prompt",
         "-f, --file",
         "-n, --n-predict",
         "--temp",
         "--top-k",
         "--top-p",
         "--min-p",
         "--typical",
         "--repeat-penalty",
         "--presence-penalty",
         "--frequency-penalty",
         "--repeat-last-n",
         "--seed",
         "-c, --ctx-size",
         "-t, --threads",
         "-b, --batch",
         "--kv-type",
         "--memory",
         "--mmap",
         "--ignore-eos",
         "--no-display-prompt"},
        {"--tensors", "-o, --output", "-c, --ctx-size", "--kv-type"},
        {"-f, --file", "--no-special", "--no-parse-special", "--pieces"},
        {"--tokens", "-o, --output", "-b, --batch", "-t, --threads", "--kv-type", "--exact",
         "--mmap"},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "help %s", verbs[i]);
        lace(line);
        check_success();
        remember();
        for (size_t k = 0; flags[i][k]; k++)
            if (!CHECK(strstr(r.out, flags[i][k]) != NULL))
                tap_note("help %s lacks %s", verbs[i], flags[i][k]);
        CHECK(strstr(r.out, "Examples:\n  lace ") != NULL);
        for (const char *p = r.out; *p; p += strcspn(p, "\n"), p += *p == '\n')
            if (!CHECK(strcspn(p, "\n") <= 100))
                tap_note("too wide: %.100s", p);
        snprintf(line, sizeof line, "%s --help", verbs[i]);
        lace(line);
        CHECK(strcmp(before, r.out) == 0);
    }
}

static void version_is_one_line(void)
{
    lace("--version");
    check_success();
    CHECK(strncmp(r.out, "lace ", 5) == 0 && is_one_line(r.out));
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

static void mistakes_get_one_line_and_a_hint(void)
{
    /* clang-format off */
    static const struct { const char *arguments, *part; } rows[] = {
        {"rnu", "did you mean run?"},
        {"frobnicate", "unknown verb \"frobnicate\" (see: lace help)"},
        {"help frobnicate", "unknown verb"},
        {"run --tmep 1", "unknown option --tmep; did you mean --temp? (see: lace help run)"},
        {"run --zzzzzzzz", "unknown option --zzzzzzzz (see: lace help run)"},
        {"run -x", "unknown option -x"},
        {"run -n", "--n-predict needs a value: N"},
        {"run -n five", "--n-predict \"five\": expected a whole number from -1"},
        {"run -n 5x", "\"5x\""},
        {"run -n ''", "\"\""},
        {"run -n 99999999999", "expected a whole number"},
        {"run -n 99999999999999999999", "expected a whole number"},
        {"run --temp nan", "--temp \"nan\": expected a number, 0 or more"},
        {"run --temp inf", "--temp \"inf\""},
        {"run --temp -1", "--temp \"-1\""},
        {"run --top-p -0.1", "--top-p \"-0.1\""},
        {"run --top-p 1.5", "--top-p \"1.5\""},
        {"run --repeat-penalty 0", "expected a number above 0"},
        {"run --seed -2", "--seed \"-2\": expected a whole number, 0 or more"},
        {"run --seed 18446744073709551616", "--seed"},
        {"run --memory 4X", "--memory \"4X\": expected bytes"},
        {"run --memory -4", "--memory"},
        {"run --memory 99999999999G", "--memory"},
        {"run --kv-type q9", "--kv-type \"q9\": expected one of f32|f16|q8_0"},
        {"run --mmap=yes", "--mmap takes no value"},
        {"run -t 0", "--threads \"0\": expected a whole number from 1 to 1024"},
        {"run a b c", "one argument too many: \"c\""},
        {"run a b -p c", "-p and the argument \"b\" exclude each other"},
        {"run -temp 0", "unknown option -temp; did you mean --temp?"},
        {"run -p x -f y", "-p and -f exclude each other"},
        {"tokenize", "MODEL is missing"},
        {"tokenize " MODEL, "TEXT or -f FILE is missing"},
        {"tokenize " MODEL " a -f b", "exclude each other"},
        {"logits " MODEL, "--tokens FILE is missing"},
        {"logits " MODEL " --tokens x", "-o OUT is missing"},
        {"inspect -o xml", "--output \"xml\": expected one of table|json"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lace(rows[i].arguments);
        check_error(rows[i].part);
    }
}

/* So that an alias with defaults can be overruled. */
static void an_option_given_twice_takes_the_last(void)
{
    lace("run -p no -p 'The king' -n 1 --n-predict=9 -n 0 --mmap --mmap -m none.gguf -m " MODEL);
    if (check_success())
        CHECK(strcmp(r.out, "The king\n") == 0);
    lace("run -p x -n 5 -n five"); /* every value is checked, not only the last */
    check_error("--n-predict \"five\"");
}

static void t_is_the_number_of_threads_in_every_verb(void)
{
    static const char *const all[] = {"run",      "chat",     "serve",   "bench",
                                      "fit",      "quantize", "imatrix", "prune",
                                      "sparsify", "compare",  "logits",  "perplexity"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "help %s", all[i]);
        lace(line);
        if (!CHECK(strstr(r.out, "  -t, --threads ") != NULL))
            tap_note("%s", line);
    }
}

static void a_misspelt_cpu_level_is_refused(void)
{
    sh("LACE_CPU=avx2000 \"$lace\" tokenize " MODEL " a </dev/null");
    check_error("LACE_CPU is \"avx2000\", expected plain, avx2,");
    sh("LACE_CPU=plain \"$lace\" tokenize " MODEL " a </dev/null");
    check_success();
}

static void files_that_are_no_models_are_refused(void)
{
    lace("run $dir/absent.gguf -p x");
    check_error("absent.gguf");
    CHECK(strstr(r.err, "o such file") != NULL);
    lace("run $dir -p x");
    check_error("config.json"); /* a directory may be a model, but this one is not */
    lace("inspect $dir/absent.gguf");
    check_error("absent.gguf");
    lace("tokenize README.md x");
    check_error("README.md");
    write_file("empty", "", 0);
    lace("run $dir/empty -p x");
    check_error("empty");
    lace("run -f $dir/absent.txt");
    check_error("absent.txt");
    lace("run -f $dir");
    check_error("Is a directory");
}

/* ---- tokenize -------------------------------------------------------------------------------- */

static void tokenize_prints_a_json_array(void)
{
    lace("tokenize " MODEL " 'Once upon a time'");
    check_success();
    CHECK(is_one_line(r.out));
    CHECK(strncmp(r.out, "[0,", 3) == 0); /* BOS is token 0 of this model */
    CHECK(strspn(r.out, "[0123456789,]\n") == r.n_out);
    remember();
    lace("tokenize " MODEL " 'Once upon a time' --no-special");
    CHECK(r.out[0] == '[' && strcmp(r.out + 1, before + 3) == 0);
    lace("tokenize " MODEL " '' --no-special");
    CHECK(strcmp(r.out, "[]\n") == 0);
}

static void tokenize_reads_files_whole(void)
{
    write_file("text", "Once upon\0a time", 16); /* a zero byte is a byte like others */
    lace("tokenize " MODEL " -f $dir/text --no-special");
    check_success();
    remember();
    sh("\"$lace\" tokenize " MODEL " -f - --no-special <$dir/text");
    CHECK(strcmp(before, r.out) == 0);
    lace("tokenize " MODEL " 'Once upon' --no-special");
    CHECK(strncmp(before, r.out, r.n_out - 2) == 0); /* without "]\n" */
    CHECK(strlen(before) > r.n_out);
}

/* A malformed byte may become more tokens than bytes: one U+FFFD each. */
static void tokenize_reads_malformed_bytes_as_replacements(void)
{
    char bad[50], good[150];
    memset(bad, 0xFF, sizeof bad);
    for (int i = 0; i < 50; i++)
        memcpy(good + 3 * i, "\xEF\xBF\xBD", 3);
    write_file("good", good, sizeof good);
    write_file("bad", bad, sizeof bad);
    lace("tokenize models/default.gguf -f $dir/good");
    check_success();
    remember();
    lace("tokenize models/default.gguf -f $dir/bad");
    check_success();
    CHECK(strcmp(r.out, before) == 0);
}

static void tokenize_takes_special_tokens_as_text_if_asked(void)
{
    lace("tokenize " MODEL " '<|endoftext|>' --no-special");
    CHECK(strcmp(r.out, "[0]\n") == 0);
    lace("tokenize " MODEL " '<|endoftext|>' --no-special --no-parse-special");
    check_success();
    CHECK(strchr(r.out, ',') != NULL);
}

/* ---- Habits ---------------------------------------------------------------------------------- */

/* Both commands print the same text and succeed. */
static void check_same(const char *ours, const char *theirs)
{
    lace(ours);
    bool ok = check_success() && CHECK(r.n_out > 0);
    remember();
    lace(theirs);
    if (!(check_success() && CHECK(strcmp(before, r.out) == 0) && ok))
        tap_note("lace %s\nlace %s: %s", ours, theirs, r.err);
}

static void names_of_llama_cpp_mean_the_same(void)
{
#define HERE "-p Hello -n 8 --temp 0"
    check_same("run " MODEL " " HERE, "run -m " MODEL " " HERE " -ngl 99 --no-mmap -fa on -no-cnv");
    check_same("run " MODEL " " HERE, "run " HERE " --model=" MODEL " -ngl 0 -fa -ub 64");
    check_same("run " MODEL " " HERE, "run " MODEL " Hello --predict 8 --temperature 0");
    check_same("tokenize " MODEL " Hello", "tokenize Hello -m " MODEL " --ids");
    check_same("inspect " MODEL " -c 64", "inspect -m " MODEL " --ctx 64");
#undef HERE
}

static void names_that_lace_does_not_have_say_what_to_use(void)
{
    /* clang-format off */
    static const struct { const char *arguments, *part; } rows[] = {
        {"serve --slots", "unknown option --slots; there are no slots; /metrics says what runs"},
        {"serve --context-shift", "no text is ever cut"},
        {"serve --reranking", "reranking is not supported"},
        {"run -m " MODEL " -cnv", "unknown option -cnv; use lace chat MODEL (see: lace help run)"},
        {"run -ngl 20 -p x", "-ngl 20: lace runs a whole model on one device; use --device"},
        {"run -ngl", "-ngl needs a value"},
        {"run -p x -fa off", "-fa off: lace always does this"},
        {"run -hf a/b", "lace downloads nothing"},
        {"run -ctk q8_0", "use --kv-type"},
        {"serve -tb 4", "use --threads"},
        {"serve -np none", "--max-running \"none\": expected a whole number"},
        {"bench -sys x", "unknown option -sys"},
        {"chat -st", "for one answer: lace run MODEL TEXT"},
        {"pull mistral", "unknown verb \"pull\"; lace downloads nothing"},
        {"show mistral", "use lace inspect MODEL"},
        {"-m x", "needs a verb before it: lace run"},
        {MODEL, "use lace run " MODEL},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lace(rows[i].arguments);
        check_error(rows[i].part);
    }
}

static void tokenize_pieces_shows_the_text_of_each_token(void)
{
    lace("tokenize " MODEL " 'said \"no\"' --no-special --pieces");
    check_success();
    CHECK(strstr(r.out, "  \"said\"\n") != NULL || strstr(r.out, "  \"s") != NULL);
    CHECK(strstr(r.out, "\\\"") != NULL);
    lace("tokenize " MODEL " -- --help --no-special"); /* after --, everything is text */
    check_error("one argument too many");
}

/* ---- run ------------------------------------------------------------------------------------- */

static void a_seed_of_minus_one_is_a_random_one(void)
{
    lace("run -p 'Once upon a time' -n 40 --seed -1");
    check_success();
    remember();
    lace("run -p 'Once upon a time' -n 40 --seed -1");
    check_success();
    CHECK(strcmp(before, r.out) != 0);
}

static void the_same_seed_gives_the_same_text(void)
{
    lace("run -p 'Once upon a time' -n 40 --seed 5");
    check_success();
    CHECK(strncmp(r.out, "Once upon a time", 16) == 0);
    CHECK(r.n_out > 60);
    CHECK(r.out[r.n_out - 1] == '\n');
    remember();
    lace("run " MODEL " -p 'Once upon a time' -n 40 --seed 5 -t 1"); /* threads change nothing */
    CHECK(strcmp(before, r.out) == 0);
    lace("run -p 'Once upon a time' -n 40 --seed 6");
    CHECK(strcmp(before, r.out) != 0);
    lace("run -p 'Once upon a time' -n 40 --seed 5 --no-display-prompt");
    CHECK(strcmp(before + 16, r.out) == 0);
}

static void statistics_are_one_line_with_the_seed_to_repeat_it(void)
{
    /* The seed is random here, and some end the text early: of 1 to 300, seed 268 does. */
    lace("run -p 'Once upon a time' -n 20 --ignore-eos");
    check_success();
    CHECK(is_one_line(r.err));
    CHECK(strncmp(r.err, "prompt ", 7) == 0);
    CHECK(strstr(r.err, " tok/s | generated 20 tokens ") != NULL);
    const char *seed = strstr(r.err, "| seed ");
    if (!CHECK(seed != NULL))
        return;
    remember();
    char line[128];
    snprintf(line, sizeof line, "run -p 'Once upon a time' -n 20 --ignore-eos --seed %llu",
             strtoull(seed + 7, NULL, 10));
    lace(line);
    CHECK(strcmp(before, r.out) == 0);
    lace("run -p 'Once upon a time' -n 20 --ignore-eos");
    CHECK(strcmp(before, r.out) != 0); /* the default seed is another each time */
    lace("run -p 'Once upon a time' -n 20 --ignore-eos --temp 0");
    CHECK(strstr(r.err, "seed") == NULL);
}

static void prompts_come_from_text_file_or_pipe(void)
{
    lace("run -p 'The king' -n 8 --temp 0");
    check_success();
    remember();
    write_file("prompt", "The king\n", 9);
    lace("run -f $dir/prompt -n 8 --temp 0");
    CHECK(strcmp(before, r.out) == 0);
    sh("echo 'The king' | \"$lace\" run -n 8 --temp 0");
    CHECK(strcmp(before, r.out) == 0);
}

static void generating_nothing_prints_the_prompt(void)
{
    lace("run -p 'The king' -n 0");
    check_success();
    CHECK(strcmp(r.out, "The king\n") == 0);
    CHECK(strstr(r.err, "generated 0 tokens") != NULL);
    lace("run -p 'The king' -n 0 --no-display-prompt");
    CHECK(r.n_out == 0);
}

static void an_empty_prompt_begins_with_bos(void)
{
    lace("run -p '' -n 10 --seed 1");
    check_success();
    CHECK(r.n_out > 10);
    CHECK(strstr(r.err, "prompt 1 tokens") != NULL);
    lace("run -n 10 --seed 1"); /* standard input is empty here */
    check_success();
    CHECK(strstr(r.err, "prompt 1 tokens") != NULL);
}

static void a_prompt_longer_than_the_context_is_refused_with_both_numbers(void)
{
    lace("run -c 16 -p 'one two three four five six seven eight nine ten eleven twelve thirteen "
         "fourteen fifteen sixteen seventeen'");
    check_error("the context has 16");
    CHECK(strstr(r.err, "the prompt has ") != NULL);
}

static void generation_stops_at_the_end_of_the_context(void)
{
    lace("run -c 32 -p 'Once upon a time' --ignore-eos --seed 3");
    check_success();
    CHECK(strstr(r.err, "| context full") != NULL);
    int n_prompt = 0, n_generated = 0;
    const char *generated = strstr(r.err, "generated ");
    CHECK(sscanf(r.err, "prompt %d", &n_prompt) == 1);
    CHECK(generated && sscanf(generated, "generated %d", &n_generated) == 1);
    CHECK(n_prompt + n_generated == 33); /* the last token is said, but has no place any more */
}

static void a_memory_budget_too_small_is_refused_with_the_three_parts(void)
{
    lace("run -p x --memory 1M");
    check_error("weights");
    CHECK(strstr(r.err, "KV") != NULL);
    CHECK(strstr(r.err, "scratch") != NULL);
    int n_numbers = 0;
    for (const char *p = r.err; (p = strpbrk(p, "0123456789")); p += strspn(p, "0123456789.,"))
        n_numbers++;
    CHECK(n_numbers >= 3);
    lace("run -p x -n 1 --memory 1G");
    check_success();
}

static void every_sampler_option_reaches_the_sampler(void)
{
    /* clang-format off */
    static const char *const rows[] = {
        "--top-k 1", "--temp 0.1 --top-k 0 --top-p 1 --min-p 0", "--top-p 0.1", "--top-p 0", "--min-p 1",
        "--typical 0.2", "--repeat-penalty 1.5", "--presence-penalty 2", "--frequency-penalty -1.5",
    };
    /* clang-format on */
    lace("run -p 'Once upon a time' -n 60 --seed 5");
    remember();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "run -p 'Once upon a time' -n 60 --seed 5 %s", rows[i]);
        lace(line);
        check_success();
        if (!CHECK(strcmp(before, r.out) != 0))
            tap_note("%s changes nothing", rows[i]);
    }
    lace("run -p 'Once upon a time' -n 60 --seed 5 --repeat-penalty 1.5 --repeat-last-n 0");
    CHECK(strcmp(before, r.out) == 0);
}

static void every_kv_type_and_mmap_run(void)
{
    static const char *const rows[] = {"--kv-type f32", "--kv-type q8_0", "--mmap", "-b 2", "-t 2"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "run -p 'Once upon a time' -n 10 --temp 0 %s", rows[i]);
        lace(line);
        if (check_success())
            CHECK(r.n_out > 20);
    }
}

static void nothing_but_plain_text_is_printed_into_a_pipe(void)
{
    lace("run -p 'Once upon a time' -n 20 --seed 5");
    CHECK(strchr(r.out, '\x1b') == NULL && strchr(r.out, '\r') == NULL);
    CHECK(strchr(r.err, '\x1b') == NULL && strchr(r.err, '\r') == NULL);
    lace("inspect");
    CHECK(strchr(r.out, '\x1b') == NULL && r.n_err == 0);
}

static void a_closed_pipe_ends_quietly(void)
{
    sh("\"$lace\" run -p 'Once upon a time' -n 500 --ignore-eos --seed 1 </dev/null | head -c 5");
    CHECK(strcmp(r.out, "Once ") == 0);
    CHECK(r.n_err == 0);
}

/* With --mmap every token reads the whole file; 900 of them take seconds. */
static void a_file_cut_short_in_use_is_an_error(void)
{
    sh("cp " MODEL " $dir/cut.gguf; : >$dir/cut.txt; "
       "(until [ -s $dir/cut.txt ]; do sleep 0.05; done; truncate -s 4096 $dir/cut.gguf) & "
       "\"$lace\" run $dir/cut.gguf --mmap -p 'Once upon a time' -n 900 --ignore-eos -t 1 "
       "</dev/null >$dir/cut.txt");
    check_error("truncated while it was in use");
}

static void a_full_disk_is_an_error(void)
{
    if (access("/dev/full", W_OK) != 0) {
        tap_skip("no /dev/full");
        return;
    }
    sh("\"$lace\" run -p 'Once upon a time' -n 5 </dev/null >/dev/full");
    check_error("cannot write to standard output: No space left");
}

static void an_interrupt_keeps_the_text_and_the_statistics(void)
{
    /* Shells start background jobs with SIGINT ignored; a program sets it up for itself again. */
    sh("\"$lace\" run -p 'Once upon a time' -c 100000 --ignore-eos </dev/null >$dir/story & "
       "pid=$!; while ! [ -s $dir/story ]; do sleep 0.02; done; sleep 0.2; "
       "kill -INT $pid; wait $pid; code=$?; head -c 16 $dir/story; exit $code");
    CHECK(r.code == 130);
    CHECK(strcmp(r.out, "Once upon a time") == 0);
    CHECK(strstr(r.err, "| stopped") != NULL);
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
    sh("nvidia-smi -L");
    if (r.code == 0) {
        tap_skip("there is a GPU");
        return;
    }
    write_file("words.txt", "1234", 4);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[512];
        size_t n = (size_t)snprintf(line, sizeof line, commands[i], MODEL, MODEL);
        snprintf(line + n, sizeof line - n, " --device cuda");
        lace(line);
        if (!CHECK(r.code == 1 && is_one_line(r.err) && strncmp(r.err, "lace: ", 6) == 0))
            tap_note("%s: %d, %s", line, r.code, r.err);
        snprintf(line + n, sizeof line - n, " --device card");
        lace(line);
        if (!CHECK(r.code == 1 && strstr(r.err, "expected auto, cpu, cuda")))
            tap_note("%s: %d, %s", line, r.code, r.err);
    }
    lace("run -p \"Once\" -n 2 --temp 0 --device auto");
    CHECK(r.code == 0);
}

static void inspect_describes_the_built_in_model(void)
{
    static const char *const parts[] = {"llama",   "8 layers", "4096 tokens", "t3",   "%",
                                        "weights", "KV cache", "scratch",     "total"};
    lace("inspect");
    check_success();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!CHECK(strstr(r.out, parts[i]) != NULL))
            tap_note("missing: %s", parts[i]);
    CHECK(strstr(r.out, "token_embd.weight") == NULL);
    lace("inspect " MODEL " --tensors");
    CHECK(strstr(r.out, "token_embd.weight") != NULL);
}

static void inspect_writes_json(void)
{
    lace("inspect " MODEL " -o json --tensors");
    check_success();
    static const char *const parts[] = {
        "\"architecture\": \"llama\"", "\"n_layers\": 8", "\"n_vocab\": 4096",
        "\"runnable\": true",          "\"total\": ",     "\"name\": \"token_embd.weight\""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!CHECK(strstr(r.out, parts[i]) != NULL))
            tap_note("missing: %s", parts[i]);
    CHECK(r.out[0] == '{' && strcmp(r.out + r.n_out - 2, "}\n") == 0);
}

static void inspect_describes_what_cannot_be_run(void)
{
    char *path = data_path("vocab/gpt-2.gguf");
    if (!path)
        return;
    char line[512];
    snprintf(line, sizeof line, "inspect %s", path);
    lace(line);
    check_success();
    CHECK(strstr(r.out, "cannot run") != NULL);
    free(path);
}

static long memory_figure(const char *arguments)
{
    lace(arguments);
    const char *at = strstr(r.out, "\"kv\": ");
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
    if (!CHECK(read_file(x, one, sizeof one) == n * 4) ||
        !CHECK(read_file(y, other, sizeof other) == n * 4))
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
    write_file("tokens", tokens, sizeof tokens);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/whole");
    check_success();
    CHECK(r.n_out == 0 && r.n_err == 0);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/steps -b 1 -t 1");
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
    write_file("tokens", tokens, sizeof tokens);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/whole --exact --kv-type f16 -y");
    check_success();
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/steps --exact --kv-type f16 -b 1 -y");
    CHECK(compare_logits("whole", "steps", 64 * 4096) < 4e-9);
}

static void logits_refuses_bad_tokens_and_leaves_the_file(void)
{
    static const int32_t tokens[3] = {1, 4096, 2};
    write_file("tokens", tokens, sizeof tokens);
    write_file("logits", "old", 3);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/logits -y");
    check_error("token 1 is 4096, expected 0 to 4095");
    char old[16];
    CHECK(read_file("logits", old, sizeof old) == 3);
    write_file("tokens", "abcde", 5);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/logits -y");
    check_error("5 bytes");
    write_file("tokens", "", 0);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/logits -y");
    check_error("0 bytes");
    write_file("tokens", tokens, 4);
    lace("logits " MODEL " --tokens $dir/tokens -o $dir/absent/logits");
    check_error("absent");
}

int main(void)
{
    setenv("lace", getenv("LACE_BIN") ? getenv("LACE_BIN") : "build/lace", 1);
    if (access(getenv("lace"), X_OK) != 0 || !mkdtemp(scratch)) {
        printf("Bail out! no program at %s\n", getenv("lace"));
        return 1;
    }
    CASE(lace_alone_lists_every_verb);
    CASE(help_of_a_verb_shows_each_flag);
    CASE(version_is_one_line);
    CASE(mistakes_get_one_line_and_a_hint);
    CASE(names_of_llama_cpp_mean_the_same);
    CASE(names_that_lace_does_not_have_say_what_to_use);
    CASE(an_option_given_twice_takes_the_last);
    CASE(t_is_the_number_of_threads_in_every_verb);
    CASE(a_misspelt_cpu_level_is_refused);
    CASE(files_that_are_no_models_are_refused);
    CASE(tokenize_prints_a_json_array);
    CASE(tokenize_reads_files_whole);
    CASE(tokenize_reads_malformed_bytes_as_replacements);
    CASE(tokenize_takes_special_tokens_as_text_if_asked);
    CASE(tokenize_pieces_shows_the_text_of_each_token);
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
    CASE(every_verb_with_a_model_says_that_there_is_no_gpu);
    CASE(inspect_describes_the_built_in_model);
    CASE(inspect_writes_json);
    CASE(inspect_describes_what_cannot_be_run);
    CASE(inspect_computes_memory_for_the_context_asked_for);
    CASE(logits_writes_a_row_for_each_token);
    CASE(exact_logits_do_not_depend_on_the_batch);
    CASE(logits_refuses_bad_tokens_and_leaves_the_file);
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", scratch);
    int removed = system(line);
    return removed == 0 ? tap_end() : 1;
}
