/*
 * What people type from habit: options of llama.cpp's programs and verbs of Ollama's, which lace
 * has under another name, always does, or does not have. A name that means the same is understood;
 * the others are an error that says what to type instead. One table; a verb's own options go first.
 */
#ifndef LACE_CLI_HABITS_H
#define LACE_CLI_HABITS_H

#include "cli/args.h"

typedef enum habit_kind {
    HABIT_OPTION, /* `means` is the name of lace's option */
    HABIT_MODEL,  /* the value is the verb's first argument, a model */
    HABIT_MODELS, /* the same; may be given for each of several */
    HABIT_LAYERS, /* layers for the GPU: none, or as many as there are */
    HABIT_ALWAYS, /* lace does it anyway: nothing to do */
    HABIT_SWITCH, /* the same with "on", "auto" or "1" behind it; "off" and "0" are refused */
    HABIT_NONE,   /* `means` says what to do instead */
} habit_kind;

typedef struct habit {
    const char *names; /* as typed, separated by spaces: "-np --parallel" */
    habit_kind kind;
    const char *means;
    const char *verbs; /* the verbs that it is for, separated by commas; NULL: all */
} habit;

/* The row for an option as typed, word[0..n), with its dashes; NULL: none for this verb. */
const habit *habits_find(const verb *v, const char *word, size_t n);

/* What to type in place of a verb that lace does not have; NULL if nothing is known. */
const char *habits_find_verb(const char *name);

#endif
