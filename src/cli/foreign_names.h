/*
 * Names of other programs: options of llama.cpp and verbs of Ollama that people type from habit.
 * A name that means the same as one of lace's is understood. Any other is an error that says what
 * to type instead. One table; a verb's own options are looked up before it.
 */
#ifndef LACE_CLI_FOREIGN_NAMES_H
#define LACE_CLI_FOREIGN_NAMES_H

#include "cli/args.h"

typedef enum foreign_kind {
    FOREIGN_OPTION, /* `means` is the name of lace's option */
    FOREIGN_MODEL,  /* the value is the verb's first argument, a model */
    FOREIGN_MODELS, /* the same; may be given for each of several */
    FOREIGN_HUB,    /* the same for a name at Hugging Face */
    FOREIGN_LAYERS, /* layers for the GPU: none, or as many as there are */
    FOREIGN_ALWAYS, /* lace does it anyway: nothing to do */
    FOREIGN_SWITCH, /* the same with "on", "auto" or "1" behind it; "off" and "0" are refused with
                       the line `means` */
    FOREIGN_NONE,   /* `means` says what to do instead */
} foreign_kind;

typedef struct foreign_name {
    const char *names; /* as typed, separated by spaces: "-np --parallel" */
    foreign_kind kind;
    const char *means;
    const char *verbs; /* the verbs that it is for, separated by commas; NULL: all */
} foreign_name;

/* The row for an option as typed, word[0..n), with its dashes; NULL: none for this verb. */
const foreign_name *foreign_name_find(const verb *v, const char *word, size_t n);

/* What to type in place of a verb that lace does not have; NULL if nothing is known. */
const char *foreign_verb_find(const char *name);

#endif
