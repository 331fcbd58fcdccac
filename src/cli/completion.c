/*
 * Completion of command lines for bash, zsh and fish, from the tables of options that help is made
 * of. A script has all verbs and options in it; only the names of models are asked for when they are
 * needed, of `lace list -o names`.
 */
#include <string.h>

#include "cli/args.h"

const char ARGS_SHELLS[] = "bash|zsh|fish";

/* ---- What can stand where -------------------------------------------------------------------- */

arg_values arg_values_of(const arg_option *o)
{
    static const char *const paths[] = {"FILE",  "PATH",     "OUT",    "DIR",
                                        "MODEL", "FILE.svg", "PROGRAM"};
    if (o->kind == ARG_FLAG || !o->value)
        return VALUES_NONE;
    if (o->kind == ARG_CHOICE || strchr(o->value, '|'))
        return VALUES_WORDS;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(o->value, paths[i]) == 0)
            return VALUES_FILES;
    return VALUES_ANY;
}

bool arg_next_word(const char **at, const char **word, size_t *n)
{
    if (!**at)
        return false;
    *word = *at;
    *n = strcspn(*at, "|[");
    *at += strcspn(*at, "|");
    *at += **at == '|';
    return true;
}

/* The words of an option's values with spaces between them. */
static lace_status append_words(buf *out, const arg_option *o)
{
    const char *at = o->value, *word;
    size_t n;
    for (bool is_first = true; arg_next_word(&at, &word, &n); is_first = false) {
        TRY(buf_append_text(out, is_first ? "" : " "));
        TRY(buf_append(out, word, n));
    }
    return LACE_OK;
}

/* The first line of what an option is for, without what quotes it in a shell or ends it there. */
static lace_status append_plain(buf *out, const char *chars)
{
    for (; *chars; chars++) {
        char c = *chars == '\'' || *chars == '`' ? ' ' : *chars;
        if (strchr("[]:\\\"", c))
            c = ' ';
        TRY(buf_append(out, &c, 1));
    }
    return LACE_OK;
}

static lace_status append_verbs(buf *out, verb_table verbs)
{
    for (size_t i = 0; i < verbs.n; i++)
        if (!strchr(verbs.at[i]->name, ' '))
            TRY(buf_printf(out, "%s ", verbs.at[i]->name));
    return buf_append_text(out, "help");
}

/* ---- bash ------------------------------------------------------------------------------------ */

static const char bash_begin[] = "# Completion for lace; made by: lace help --completion bash\n"
                                 "_lace() {\n"
                                 "    local cur=${COMP_WORDS[COMP_CWORD]} "
                                 "prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
                                 "    COMPREPLY=()\n"
                                 "    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then "
                                 "prev=${COMP_WORDS[COMP_CWORD-2]}; "
                                 "fi\n"
                                 "    [[ $verb == bench && ${COMP_WORDS[2]} == serve && COMP_CWORD "
                                 "-gt 2 ]] && verb='bench serve'\n";

static const char bash_end[] =
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options --help\" -- \"$cur\"))\n"
    "    else\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        COMPREPLY=($(compgen -W \"$(lace list -o names 2>/dev/null)\" -- \"$cur\")\n"
    "                   $(compgen -f -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -F _lace lace\n";

/* A branch for the value behind an option: "run --device" | "run -d"). */
static lace_status append_bash_values(buf *out, const verb *v, const arg_option *o)
{
    arg_values values = arg_values_of(o);
    if (o->kind == ARG_HEADING || values == VALUES_NONE)
        return LACE_OK;
    TRY(buf_printf(out, "        '%s --%s'", v->name, o->name));
    if (o->letter)
        TRY(buf_printf(out, "|'%s -%c'", v->name, o->letter));
    if (values == VALUES_WORDS) {
        TRY(buf_append_text(out, ") COMPREPLY=($(compgen -W '"));
        TRY(append_words(out, o));
        return buf_append_text(out, "' -- \"$cur\")); return ;;\n");
    }
    return buf_append_text(out, values == VALUES_FILES
                                    ? ") compopt -o filenames 2>/dev/null; "
                                      "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
                                    : ") return ;;\n");
}

static lace_status append_bash(buf *out, verb_table verbs)
{
    TRY(buf_append_text(out, bash_begin));
    TRY(buf_append_text(out,
                        "    if [[ $COMP_CWORD == 1 || ($COMP_CWORD == 2 && $verb == help) ]]; "
                        "then\n        COMPREPLY=($(compgen -W '"));
    TRY(append_verbs(out, verbs));
    TRY(buf_append_text(out, "' -- \"$cur\")); return\n    fi\n    case \"$verb $prev\" in\n"));
    for (size_t i = 0; i < verbs.n; i++)
        for (size_t k = 0; k < verbs.at[i]->n_options; k++)
            TRY(append_bash_values(out, verbs.at[i], &verbs.at[i]->options[k]));
    TRY(buf_append_text(out, "    esac\n    local options=\n    case $verb in\n"));
    for (size_t i = 0; i < verbs.n; i++) {
        TRY(buf_printf(out, "        '%s') options='", verbs.at[i]->name));
        for (size_t k = 0; k < verbs.at[i]->n_options; k++)
            if (verbs.at[i]->options[k].kind != ARG_HEADING)
                TRY(buf_printf(out, "--%s ", verbs.at[i]->options[k].name));
        TRY(buf_append_text(out, "' ;;\n"));
    }
    TRY(buf_append_text(out, "    esac\n"));
    return buf_append_text(out, bash_end);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static const char zsh_begin[] =
    "#compdef lace\n"
    "# Completion for lace; made by: lace help --completion zsh\n"
    "_lace_models() {\n"
    "    local -a names; names=(${(f)\"$(lace list -o names 2>/dev/null)\"})\n"
    "    _alternative \"models:model:compadd -a names\" 'files:file:_files'\n"
    "}\n"
    "_lace() {\n"
    "    local verb=$words[2]\n"
    "    if (( CURRENT == 2 )) || [[ $CURRENT == 3 && $verb == help ]]; then\n"
    "        local -a verbs; verbs=(\n";

static lace_status append_zsh_option(buf *out, const arg_option *o)
{
    if (o->kind == ARG_HEADING)
        return LACE_OK;
    if (o->letter)
        TRY(buf_printf(out, "            '(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter,
                       o->name));
    else
        TRY(buf_printf(out, "            '--%s[", o->name));
    TRY(append_plain(out, o->help));
    TRY(buf_append_text(out, "]"));
    arg_values values = arg_values_of(o);
    if (values != VALUES_NONE) {
        TRY(buf_append_text(out, ":"));
        TRY(append_plain(out, values == VALUES_WORDS ? o->name : o->value));
        TRY(buf_append_text(out, values == VALUES_FILES ? ":_files" : ":"));
    }
    if (values == VALUES_WORDS) {
        TRY(buf_append_text(out, "("));
        TRY(append_words(out, o));
        TRY(buf_append_text(out, ")"));
    }
    return buf_append_text(out, "' \\\n");
}

static lace_status append_zsh(buf *out, verb_table verbs)
{
    TRY(buf_append_text(out, zsh_begin));
    for (size_t i = 0; i < verbs.n; i++)
        if (!strchr(verbs.at[i]->name, ' ')) {
            TRY(buf_printf(out, "            '%s:", verbs.at[i]->name));
            TRY(append_plain(out, verbs.at[i]->summary));
            TRY(buf_append_text(out, "'\n"));
        }
    TRY(buf_append_text(out,
                        "            'help:explain a verb')\n"
                        "        _describe verb verbs\n        return\n    fi\n"
                        "    [[ $verb == bench && $words[3] == serve ]] && (( CURRENT > 3 )) && "
                        "verb='bench serve'\n"
                        "    shift words; (( CURRENT-- ))\n    case $verb in\n"));
    for (size_t i = 0; i < verbs.n; i++) {
        TRY(buf_printf(out, "        '%s') _arguments -s \\\n", verbs.at[i]->name));
        for (size_t k = 0; k < verbs.at[i]->n_options; k++)
            TRY(append_zsh_option(out, &verbs.at[i]->options[k]));
        TRY(buf_append_text(out, "            '--help[explain]' '*:argument:_lace_models' ;;\n"));
    }
    /* The file is the function's body where zsh loads it by itself, and is sourced otherwise. */
    return buf_append_text(out, "    esac\n}\n"
                                "if [[ $funcstack[1] == _lace ]]; then _lace \"$@\"; "
                                "else compdef _lace lace; fi\n");
}

/* ---- fish ------------------------------------------------------------------------------------ */

static const char fish_begin[] =
    "# Completion for lace; made by: lace help --completion fish\n"
    "function __lace_verb\n"
    "    set -l words (commandline -opc)\n"
    "    set -l verb $words[2]\n"
    "    test \"$words[2] $words[3]\" = 'bench serve'; and set verb 'bench serve'\n"
    "    test \"$verb\" = \"$argv[1]\"\n"
    "end\n"
    "function __lace_no_verb\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -eq 1; or test \"$words[2]\" = help\n"
    "end\n"
    "complete -c lace -n __lace_no_verb -f\n"
    "complete -c lace -n 'not __lace_no_verb' -a '(lace list -o names 2>/dev/null)' -F\n";

static lace_status append_fish_option(buf *out, const verb *v, const arg_option *o)
{
    if (o->kind == ARG_HEADING)
        return LACE_OK;
    TRY(buf_printf(out, "complete -c lace -n '__lace_verb \"%s\"' -l %s", v->name, o->name));
    if (o->letter)
        TRY(buf_printf(out, " -s %c", o->letter));
    arg_values values = arg_values_of(o);
    if (values == VALUES_WORDS) {
        TRY(buf_append_text(out, " -x -a '"));
        TRY(append_words(out, o));
        TRY(buf_append_text(out, "'"));
    } else if (values != VALUES_NONE) {
        TRY(buf_append_text(out, values == VALUES_FILES ? " -r -F" : " -x"));
    }
    TRY(buf_append_text(out, " -d '"));
    TRY(append_plain(out, o->help));
    return buf_append_text(out, "'\n");
}

static lace_status append_fish(buf *out, verb_table verbs)
{
    TRY(buf_append_text(out, fish_begin));
    for (size_t i = 0; i < verbs.n; i++) {
        const verb *v = verbs.at[i];
        if (!strchr(v->name, ' ')) {
            TRY(buf_printf(out, "complete -c lace -n __lace_no_verb -a %s -d '", v->name));
            TRY(append_plain(out, v->summary));
            TRY(buf_append_text(out, "'\n"));
        }
        for (size_t k = 0; k < v->n_options; k++)
            TRY(append_fish_option(out, v, &v->options[k]));
    }
    return buf_append_text(out, "complete -c lace -n __lace_no_verb -a help -d 'explain a verb'\n");
}

lace_status args_completion(verb_table verbs, const char *shell, buf *out)
{
    static const struct {
        const char *name;
        lace_status (*append)(buf *out, verb_table verbs);
    } shells[] = {{"bash", append_bash}, {"zsh", append_zsh}, {"fish", append_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0)
            return shells[i].append(out, verbs);
    return LACE_E_ARG;
}
