/* Manual pages and completion: they have what help has, and bash can use what it is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "tap.h"

static const char *const verbs[] = {
#define X(id) #id,
#include "cli/verbs.def"
#undef X
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

/* The name of a verb as it is typed. */
static const char *typed(const char *id)
{
    static char name[64];
    snprintf(name, sizeof name, "%s", id);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    return name;
}

/* A text without what roff or a shell puts before hyphens. */
static char *plain_copy(const char *text)
{
    char *copy = calloc(strlen(text) + 1, 1), *to = copy;
    for (; copy && *text; text++)
        if (*text != '\\')
            *to++ = *text;
    return copy;
}

/* Calls fn for each option "--name" at the beginning of a line of help. Returns how many. */
static int each_option(const char *help, void (*fn)(const char *option, const char *arg),
                       const char *arg)
{
    int n = 0;
    for (const char *line = help; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + strspn(line, " ");
        if (at - line != 6 && !(at - line == 2 && at[0] == '-' && at[2] == ','))
            continue;
        at += at[0] == '-' && at[1] != '-' ? 4 : 0;
        if (strncmp(at, "--", 2) != 0)
            continue;
        char option[64];
        snprintf(option, sizeof option, "%.*s", (int)strcspn(at, " \n"), at);
        fn(option, arg);
        n++;
    }
    return n;
}

static void check_has(const char *option, const char *text)
{
    if (!CHECK(strstr(text, option) != NULL))
        tap_note("%s is missing", option);
}

static void every_verb_has_a_manual_with_all_its_options(void)
{
    int n_options = 0;
    for (int i = 0; i < N_VERBS; i++) {
        command_run("help --man %s", typed(verbs[i]));
        command_check_success();
        char *page = plain_copy(ran.out);
        CHECK(strncmp(page, ".TH LACE-", 9) == 0 && strstr(page, ".SH EXAMPLES"));
        command_run("help %s", typed(verbs[i]));
        n_options += each_option(ran.out, check_has, page);
        free(page);
    }
    CHECK(n_options > 200);
}

static void the_program_has_a_manual_that_names_the_others(void)
{
    command_run("help --man");
    command_check_success();
    char *page = plain_copy(ran.out);
    for (int i = 0; i < N_VERBS; i++) {
        char name[96];
        snprintf(name, sizeof name, ".BR lace-%s (1)", typed(verbs[i]));
        for (char *c = name + 4; *c && *c != '('; c++)
            *c = *c == ' ' && c[1] != '(' ? '-' : *c;
        check_has(name, page);
    }
    free(page);
}

/* "--name " in a list of words, "--name[" or "--name}" of zsh, or "-l name " of fish. */
static void check_completes(const char *option, const char *script)
{
    bool is_there = false;
    char form[80];
    for (const char *end = " [}"; *end; end++) {
        snprintf(form, sizeof form, "%s%c", option, *end);
        is_there |= strstr(script, form) != NULL;
    }
    snprintf(form, sizeof form, "-l %s ", option + 2);
    if (!CHECK(is_there || strstr(script, form)))
        tap_note("%s is missing", option);
}

static void completion_has_all_options(void)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (int s = 0; s < 3; s++) {
        command_run("help --completion %s", shells[s]);
        command_check_success();
        char *script = plain_copy(ran.out);
        for (int i = 0; i < N_VERBS; i++) {
            command_run("help %s", typed(verbs[i]));
            each_option(ran.out, check_completes, script);
        }
        free(script);
    }
}

static void bash_completes_verbs_options_and_values(void)
{
    static const struct {
        const char *words, *gives;
    } cases[] = {
        {"lace ser", "serve\n"},
        {"lace help quan", "quantize\n"},
        {"lace run --no-dis", "--no-display-prompt\n"},
        {"lace run --device vu", "vulkan\n"},
        {"lace run --kv-type q", "q8_0 q5_0\n"},
        {"lace bench serve --conc", "--concurrency\n"},
        {"lace run models/tales", "models/tales-4m.gguf\n"},
        {"lace run -n 1", "\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        command_sh("LACE_MODELS=/nowhere bash -c '. <($lace help --completion bash); "
                   "lace() { \"$lace\" \"$@\"; }; COMP_WORDS=(%s); "
                   "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lace; echo \"${COMPREPLY[@]}\"'",
                   cases[i].words);
        if (!CHECK(ran.code == 0 && strcmp(ran.out, cases[i].gives) == 0))
            tap_note("%s: %s%s", cases[i].words, ran.out, ran.err);
    }
}

static void what_does_not_exist_is_refused(void)
{
    command_run("help --completion tcsh");
    command_check_error("expected one of bash|zsh|fish");
    command_run("help --completion");
    command_check_error("expected one of bash|zsh|fish");
    command_run("help --man frobnicate");
    command_check_error("unknown verb");
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(every_verb_has_a_manual_with_all_its_options);
    CASE(the_program_has_a_manual_that_names_the_others);
    CASE(completion_has_all_options);
    CASE(bash_completes_verbs_options_and_values);
    CASE(what_does_not_exist_is_refused);
    command_end();
    return tap_end();
}
