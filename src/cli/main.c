/*
 * The program `lace`: finds the verb and runs it. Exit codes: 0 done, 1 an error (one line on
 * standard error says which), 130 stopped by Ctrl-C (128 and the signal's number, as in shells).
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/foreign_names.h"

/* A new verb is a file and a row of the list. */
static const verb *const verbs[] = {
#define X(id) &verb_##id,
#include "cli/verbs.def"
#undef X
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* The verb that the words begin with: one word, or two as in "bench serve", which goes first. */
static const verb *find_verb(int n_words, char **words, int *n_used)
{
    const verb *found = NULL;
    for (int i = 0; i < N_VERBS; i++) {
        const char *name = verbs[i]->name;
        size_t n = strlen(words[0]);
        if (strcmp(name, words[0]) == 0 && !found) {
            found = verbs[i];
            *n_used = 1;
        } else if (n_words > 1 && strncmp(name, words[0], n) == 0 && name[n] == ' ' &&
                   strcmp(name + n + 1, words[1]) == 0) {
            found = verbs[i];
            *n_used = 2;
        }
    }
    return found;
}

static lace_status unknown_verb(const char *name, lace_error *err)
{
    const char *instead = foreign_verb_find(name);
    if (instead)
        return error_set(err, LACE_E_ARG, "unknown verb \"%.40s\"; %s", name, instead);
    if (name[0] == '-')
        return error_set(err, LACE_E_ARG,
                         "\"%.40s\" needs a verb before it: lace run, lace chat, lace serve ... "
                         "(see: lace help)",
                         name);
    if (access(name, F_OK) == 0)
        return error_set(err, LACE_E_ARG,
                         "a verb is missing; use lace run %.200s, lace chat or lace serve (see: "
                         "lace help)",
                         name);
    const char *closest = NULL;
    int best = args_slips((int)strlen(name)) + 1;
    for (int i = 0; i < N_VERBS; i++) {
        int distance = args_distance(name, verbs[i]->name);
        if (distance < best) {
            best = distance;
            closest = verbs[i]->name;
        }
    }
    if (closest)
        return error_set(err, LACE_E_ARG,
                         "unknown verb \"%.40s\"; did you mean %s? (see: lace help)", name,
                         closest);
    return error_set(err, LACE_E_ARG, "unknown verb \"%.40s\" (see: lace help)", name);
}

static lace_status append_overview(buf *out)
{
    TRY(buf_append_text(out, "lace runs language models.\n\n"
                             "usage: lace VERB [arguments]\n\n"));
    for (int i = 0; i < N_VERBS; i++)
        TRY(buf_printf(out, "  %-11s %s\n", verbs[i]->name, verbs[i]->summary));
    return buf_append_text(out,
                           "\nExamples:\n"
                           "  lace run                          a story by the built-in model\n"
                           "  lace run model.gguf -p \"Dear Ada,\"\n"
                           "  lace inspect model.gguf           what is in it, what it needs\n\n"
                           "lace help VERB explains a verb; lace --version says which lace.\n"
                           "lace help --completion bash|zsh|fish and lace help --man [VERB] print\n"
                           "what shells and man read. Documents are in docs/ of the source; where\n"
                           "lace is installed, in share/doc/lace/docs.\n");
}

/* Print what was put together, if it was, and give it up. */
static lace_status print_text(lace_status status, buf *text, lace_error *err)
{
    if (status != LACE_OK)
        error_set(err, status, "cannot write help: %s", lace_status_text(status));
    else
        status = cli_write(text->data, text->size, err);
    buf_deinit(text);
    return status;
}

/* The help of a verb, or the overview if v is NULL. */
static lace_status print_help(const verb *v, lace_error *err)
{
    buf text;
    buf_init(&text, 1 << 16);
    lace_status status = v ? args_help(v, &text) : append_overview(&text);
    return print_text(status, &text, err);
}

static const verb_table all_verbs = {verbs, N_VERBS};

/* lace help --man [VERB]: a manual page; a package has one for each verb. */
static lace_status print_manual(int n_words, char **words, lace_error *err)
{
    int n_used;
    const verb *v = n_words > 0 ? find_verb(n_words, words, &n_used) : NULL;
    if (n_words > 0 && !v)
        return unknown_verb(words[0], err);
    buf text;
    buf_init(&text, 1 << 16);
    lace_status status = args_manual(all_verbs, v, &text);
    return print_text(status, &text, err);
}

/* lace help --completion SHELL */
static lace_status print_completion(const char *shell, lace_error *err)
{
    buf text;
    buf_init(&text, 1 << 20);
    lace_status status = shell ? args_completion(all_verbs, shell, &text) : LACE_E_ARG;
    if (status == LACE_E_ARG) {
        buf_deinit(&text);
        return error_set(err, LACE_E_ARG, "help --completion %.40s: expected one of %s",
                         shell ? shell : "", ARGS_SHELLS);
    }
    return print_text(status, &text, err);
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* --help anywhere before "--" asks for help, whatever else is there. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (is_help(argv[i]))
            return true;
    return false;
}

/* A comparison with a misspelt level would compare a level with itself. */
static lace_status check_environment(lace_error *err)
{
    if (cpu_limit_is_known())
        return LACE_OK;
    return error_set(err, LACE_E_ARG,
                     "LACE_CPU is \"%.40s\", expected plain, avx2, avx2vnni, avx512, avx512vnni, "
                     "avx512vbmi, neon, dotprod or i8mm",
                     getenv("LACE_CPU"));
}

static lace_status dispatch(int argc, char **argv, lace_error *err)
{
    if (argc < 2 || is_help(argv[1]))
        return print_help(NULL, err);
    if (strcmp(argv[1], "--version") == 0)
        return cli_write("lace " LACE_VERSION "\n", strlen("lace " LACE_VERSION "\n"), err);
    bool is_help_verb = strcmp(argv[1], "help") == 0;
    if (is_help_verb && argc == 2)
        return print_help(NULL, err);
    if (is_help_verb && strcmp(argv[2], "--man") == 0)
        return print_manual(argc - 3, argv + 3, err);
    if (is_help_verb && strcmp(argv[2], "--completion") == 0)
        return print_completion(argc > 3 ? argv[3] : NULL, err);
    int from = is_help_verb ? 2 : 1, n_used = 1;
    const verb *v = find_verb(argc - from, argv + from, &n_used);
    if (!v)
        return unknown_verb(argv[from], err);
    from += n_used;
    if (is_help_verb || asks_for_help(argc - from, argv + from))
        return print_help(v, err);
    TRY(check_environment(err));
    return v->run(v, argc - from, argv + from, err);
}

/* A mapped file was cut short by another program while we read it: say so, and
 * end like any error. */
static void on_bus_error(int number)
{
    static const char line[] =
        "lace: a model file was truncated while it was in use; restore it and start again\n";
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(1);
}

/*
 * Of several processes that mpirun or srun has started, the first speaks. The others end when it does, or
 * when it is silent.
 */
static void follow_quietly(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank)
        rank = getenv("PMIX_RANK");
    if (!lace_ranks_are_started() || !rank || strcmp(rank, "0") == 0)
        return;
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (!freopen("/dev/null", "w", stdout))
        fprintf(stderr, "lace: cannot open /dev/null\n");
}

int main(int argc, char **argv)
{
    follow_quietly();
    signal(SIGBUS, on_bus_error);
    signal(SIGPIPE, SIG_DFL); /* `lace run | head` ends quietly, whatever was inherited */
    lace_error err = {LACE_OK, ""};
    lace_status status = dispatch(argc, argv, &err);
    if (status == LACE_OK || status == LACE_E_FOLLOWED)
        return 0;
    if (status == LACE_E_CANCELLED && cli_stop)
        return 128 + cli_stop;
    fprintf(stderr, "lace: %s\n", err.text[0] ? err.text : lace_status_text(status));
    return status == LACE_E_RANK ? CLI_TRY_AGAIN : 1;
}
