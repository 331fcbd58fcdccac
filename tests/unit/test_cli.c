/*
 * Help, mistakes and other programs' names of options: $LACE_BIN (by default build/lace) is run in a shell, and what it prints and
 * returns is looked at. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "lora_kit.h"
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

/* ---- Help ------------------------------------------------------------------------------------ */

static const char *const verbs[] = {"run", "inspect", "tokenize", "logits"};

static void lace_alone_lists_every_verb(void)
{
    static const char *const ways[] = {"", "--help", "-h", "help"};
    for (size_t w = 0; w < 4; w++) {
        command_run("%s", ways[w]);
        command_check_success();
        for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
            CHECK(strstr(ran.out, verbs[i]) != NULL);
        CHECK(strstr(ran.out, "Examples:") != NULL);
        CHECK(ran.n_err == 0);
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
        command_run("%s", line);
        command_check_success();
        remember();
        for (size_t k = 0; flags[i][k]; k++)
            if (!CHECK(strstr(ran.out, flags[i][k]) != NULL))
                tap_note("help %s lacks %s", verbs[i], flags[i][k]);
        CHECK(strstr(ran.out, "Examples:\n  lace ") != NULL);
        for (const char *p = ran.out; *p; p += strcspn(p, "\n"), p += *p == '\n')
            if (!CHECK(strcspn(p, "\n") <= 100))
                tap_note("too wide: %.100s", p);
        snprintf(line, sizeof line, "%s --help", verbs[i]);
        command_run("%s", line);
        CHECK(strcmp(before, ran.out) == 0);
    }
}

static void verbs_without_options_have_no_place_for_them(void)
{
    static const char *const bare[] = {"rm", "show"};
    for (size_t i = 0; i < 2; i++) {
        char words[64];
        snprintf(words, sizeof words, "help %s", bare[i]);
        command_run("%s", words);
        CHECK(command_check_success() && !strstr(ran.out, ":\n\nExamples:"));
        snprintf(words, sizeof words, "help --man %s", bare[i]);
        command_run("%s", words);
        CHECK(command_check_success() && strstr(ran.out, ".SH EXAMPLES"));
        CHECK(!strstr(ran.out, "OPTIONS"));
    }
}

static void version_is_one_line(void)
{
    command_run("--version");
    command_check_success();
    CHECK(strncmp(ran.out, "lace ", 5) == 0 && is_one_line(ran.out));
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

static void mistakes_get_one_line_and_a_hint(void)
{
    /* clang-format off */
    static const struct { const char *arguments, *part; } rows[] = {
        {"rnu", "did you mean run?"},
        {"foo", "unknown verb \"foo\" (see: lace help)"},
        {"frobnicate", "unknown verb \"frobnicate\" (see: lace help)"},
        {"help frobnicate", "unknown verb"},
        {"run --tmep 1", "unknown option --tmep; did you mean --temp? (see: lace help run)"},
        {"run --zzzzzzzz", "unknown option --zzzzzzzz (see: lace help run)"},
        {"run -x", "unknown option -x"},
        {"run --foo", "unknown option --foo (see: lace help run)"},
        {"run -sx", "unknown option -sx (see: lace help run)"},
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
        {"run 'Dear Ada'", "if it is the text, it stands behind the model, or behind -p"},
        {"run a b c", "one argument too many: \"c\"; a text of several words needs quotes"},
        {"inspect a b", "one argument too many: \"b\" (see: lace help inspect)"},
        {"run a b -p c", "-p and the argument \"b\" exclude each other"},
        {"run -temp 0", "unknown option -temp; did you mean --temp?"},
        {"run -p x -f y", "-p and -f exclude each other"},
        {"tokenize", "MODEL is missing"},
        {"tokenize " MODEL, "TEXT or -f FILE is missing"},
        {"tokenize " MODEL " a -f b", "exclude each other"},
        {"lora", "use lace lora merge MODEL ADAPTER -o OUT"},
        {"lora frob x", "use lace lora merge MODEL ADAPTER -o OUT"},
        {"logits " MODEL, "--tokens FILE is missing"},
        {"logits " MODEL " --tokens x", "-o OUT is missing"},
        {"inspect -o xml", "--output \"xml\": expected one of table|json"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        command_run("%s", rows[i].arguments);
        command_check_error(rows[i].part);
    }
}

/* So that an alias with defaults can be overruled. */
static void an_option_given_twice_takes_the_last(void)
{
    command_run(
        "run -p no -p 'The king' -n 1 --n-predict=9 -n 0 --mmap --mmap -m none.gguf -m " MODEL);
    if (command_check_success())
        CHECK(strcmp(ran.out, "The king\n") == 0);
    command_run("run -p x -n 5 -n five"); /* every value is checked, not only the last */
    command_check_error("--n-predict \"five\"");
}

static void t_is_the_number_of_threads_in_every_verb(void)
{
    static const char *const all[] = {"run",      "chat",     "serve",   "bench",
                                      "fit",      "quantize", "imatrix", "prune",
                                      "sparsify", "compare",  "logits",  "perplexity"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "help %s", all[i]);
        command_run("%s", line);
        if (!CHECK(strstr(ran.out, "  -t, --threads ") != NULL))
            tap_note("%s", line);
    }
}

static void a_misspelt_cpu_level_is_refused(void)
{
    command_sh("LACE_CPU=avx2000 \"$lace\" tokenize " MODEL " a </dev/null");
    command_check_error("LACE_CPU is \"avx2000\", expected plain, avx2,");
    command_sh("LACE_CPU=plain \"$lace\" tokenize " MODEL " a </dev/null");
    command_check_success();
}

static void files_that_are_no_models_are_refused(void)
{
    command_run("run $dir/absent.gguf -p x");
    command_check_error("absent.gguf");
    CHECK(strstr(ran.err, "o such file") != NULL);
    command_run("run $dir -p x");
    command_check_error("config.json"); /* a directory may be a model, but this one is not */
    /* An adapter of PEFT's is said to be one. */
    static const float ones[6] = {1, 1, 1, 1, 1, 1};
    static const kit_tensor parts[] = {
        {"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", 2, 3, ones},
        {"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight", 3, 2, ones}};
    command_sh("mkdir -p $dir/peft && echo '{\"peft_type\": \"LORA\", \"r\": 2, "
               "\"lora_alpha\": 2}' > $dir/peft/adapter_config.json");
    CHECK(kit_write_safetensors(parts, 2, command_path("peft/adapter_model.safetensors")));
    command_run("inspect $dir/peft");
    CHECK(command_check_success() && strstr(ran.out, "is a LoRA adapter, no model"));
    command_write("peft/adapter_model.safetensors", "broken", 6);
    command_run("inspect $dir/peft");
    command_check_error("adapter_model.safetensors");
    command_run("inspect $dir/absent.gguf");
    command_check_error("absent.gguf");
    command_run("tokenize README.md x");
    command_check_error("README.md");
    command_write("empty", "", 0);
    command_run("run $dir/empty -p x");
    command_check_error("empty");
    command_run("run -f $dir/absent.txt");
    command_check_error("absent.txt");
    command_run("run -f $dir");
    command_check_error("Is a directory");
}

/* ---- Other programs' names ----------------------------------------------------------------- */

/* Both commands print the same text and succeed. */
static void check_same(const char *ours, const char *theirs)
{
    command_run("%s", ours);
    bool ok = command_check_success() && CHECK(ran.n_out > 0);
    remember();
    command_run("%s", theirs);
    if (!(command_check_success() && CHECK(strcmp(before, ran.out) == 0) && ok))
        tap_note("lace %s\nlace %s: %s", ours, theirs, ran.err);
}

static void names_of_llama_cpp_mean_the_same(void)
{
#define HERE "-p Hello -n 8 --temp 0"
    check_same("run " MODEL " " HERE, "run -m " MODEL " " HERE " -ngl 99 --no-mmap -fa on -no-cnv");
    check_same("run " MODEL " " HERE,
               "run -m " MODEL " " HERE " --no-warmup --perf --color auto -fit on -nr");
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
        {"run -m " MODEL " -cnv", "unknown option -cnv; use lace chat MODEL (see: lace help run)"},
        {"perplexity -ngl 20 -f x", "-ngl 20: here a model runs on one device, whole; use --device"},
        {"run -ngl", "--gpu-layers needs a value"},
        {"run -p x -ngl few", "--gpu-layers few, expected a number or all"},
        {"run -p x -ngl 2 --ranks 2", "--ranks divides every layer"},
        {"run -p x --place f.json -ngl 2", "--place says where everything goes: it excludes --gpu-layers"},
        {"run -p x --place f.json --gpu-memory 8G", "--place says where everything goes: it excludes --gpu-layers"},
        {"run -p x --place f.json --device cpu", "--device cpu beside --place, which says where everything goes: leave one"},
        {"run -p x --device \"cuda;place=f.json\"", "rule \"cuda\" beside place=FILE, which says where everything goes: leave"},
        {"run -p x --device \"place=f.json;layers=3\"", "rule \"layers=3\" beside place=FILE, which says where everything goes"},
        {"run -p x -fa off", "-fa off: lace always does this"},
        {"run -hff b.gguf", "name a part of the file's name: -hf ORG/REPO:Q8_0"},
        {"inspect -hf a/b", "use lace pull ORG/REPO:QUANT first"},
        {"serve -tb 4", "use --threads"},
        {"serve -np none", "--max-running \"none\": expected a whole number"},
        {"bench -sys x", "unknown option -sys"},
        {"chat -st", "for one answer: lace run MODEL TEXT"},
        {"download mistral", "unknown verb \"download\"; use lace pull ORG/REPO:QUANT"},
        {"info mistral", "use lace show MODEL"},
        {"delete mistral", "use lace rm NAME"},
        {"show mistral", "no model of that name"},
        {"rm mistral", "no model of that name"},
        {"rm " MODEL, MODEL " is a path; lace rm takes names of lace list"},
        {"run org/tiny:Q8_0", "lace pull org/tiny:Q8_0 gets it"},
        {"run qwen3:0.6b", "lace pull ollama:qwen3:0.6b gets it"},
        {"run models/tiny.gguf", "on this machine (lace list shows"},
        {"chat -sysf x", "unknown option -sysf; use lace chat MODEL --system \"$(cat FILE)\""},
        {"run -ctxcp 4", "unknown option -ctxcp; what sliding windows"},
        {"run -p x --color off", "--color off: NO_COLOR=1 in the environment"},
        {"run --reasoning maybe", "--think \"maybe\": expected one of auto|on|off"},
        {"serve --typical-p 1", "each request has its own (docs/server-api.md)"},
        {"serve --models-max 2", "use --models-memory BYTES"},
        {"bench -npp 128", "use -p N,... for prompts"},
        {"serve --tls-cert a.pem " MODEL, "TLS needs both --tls-cert and --tls-key"},
        {"serve --api-key x --host localhost:80 " MODEL, "--host is an address or a name, --port the port"},
        {"ps --url http://127.0.0.1:1", "is lace serve running there (--url)?"},
        {"bench serve 127.0.0.1:1", "Connection refused; is a server running there?"},
        {"ps --url 127.0.0.1:1", "http://127.0.0.1:1: Connection refused"},
        {"stop a --url nowhere", "expected http://HOST:PORT"},
        {"-m x", "needs a verb before it: lace run"},
        {MODEL, "use lace run " MODEL},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        command_run("%s", rows[i].arguments);
        command_check_error(rows[i].part);
    }
}

static void tokenize_pieces_shows_the_text_of_each_token(void)
{
    command_run("tokenize " MODEL " 'said \"no\"' --no-special --pieces");
    command_check_success();
    CHECK(strstr(ran.out, "  \"said\"\n") != NULL || strstr(ran.out, "  \"s") != NULL);
    CHECK(strstr(ran.out, "\\\"") != NULL);
    command_run("tokenize " MODEL " -- --help --no-special"); /* after --, everything is text */
    command_check_error("one argument too many");
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(lace_alone_lists_every_verb);
    CASE(help_of_a_verb_shows_each_flag);
    CASE(verbs_without_options_have_no_place_for_them);
    CASE(version_is_one_line);
    CASE(mistakes_get_one_line_and_a_hint);
    CASE(names_of_llama_cpp_mean_the_same);
    CASE(names_that_lace_does_not_have_say_what_to_use);
    CASE(an_option_given_twice_takes_the_last);
    CASE(t_is_the_number_of_threads_in_every_verb);
    CASE(a_misspelt_cpu_level_is_refused);
    CASE(files_that_are_no_models_are_refused);
    CASE(tokenize_pieces_shows_the_text_of_each_token);
    command_end();
    return tap_end();
}
