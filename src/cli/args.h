/*
 * Command lines, from a table: each option of a verb is a row that says its name, the kind of
 * value, the range allowed, where the value goes, and its line of help. Parsing, checking, help and
 * the guess after a typing error all come from that table.
 *
 *     typedef struct count_args { int32_t n; bool is_loud; const char *file; } count_args;
 *
 *     static const arg_option options[] = {
 *         {"number", 'n', ARG_INT, offsetof(count_args, n), .value = "N", .low = 1, .high = 99,
 *          .help = "how far to count (default 10)"},
 *         {"loud", 0, ARG_FLAG, offsetof(count_args, is_loud), .help = "with an exclamation mark"},
 *     };
 *
 * Written as --name VALUE, --name=VALUE, -n VALUE or -nVALUE. What is no option is a positional
 * argument; after "--" everything is. Of an option that is given twice, the last one counts.
 * Names that llama.cpp has for the same thing are understood too (foreign_names.h).
 */
#ifndef LACE_CLI_ARGS_H
#define LACE_CLI_ARGS_H

#include "base/buf.h"
#include "base/status.h"

typedef enum arg_kind {
    ARG_HEADING, /* no option: a line of help above those that follow; only .help is used */
    ARG_FLAG,    /* bool; takes no value */
    ARG_INT,     /* int32_t */
    ARG_U64,     /* uint64_t; no range */
    ARG_SEED,    /* the same; -1: a random one */
    ARG_FLOAT,   /* float */
    ARG_BYTES,   /* uint64_t; 800M and 800MiB: powers of 1,024; 2.5GB: of 1,000 */
    ARG_CHOICE,  /* int32_t: the index of the word in .value, "f32|f16|q8_0" */
    ARG_TEXT,    /* const char * into argv */
    ARG_TEXTS,   /* arg_texts; may be given several times */
    ARG_SCALED, /* the same for a file and a number, "FILE 0.5" or "FILE:0.5": two texts each time */
} arg_kind;

/* What an option was given, one after the other. */
enum { ARGS_MAX_TEXTS = 64 };
typedef struct arg_texts {
    const char *at[ARGS_MAX_TEXTS];
    size_t n;
} arg_texts;

typedef struct arg_option {
    const char *name; /* "temp" for --temp */
    char letter;      /* 'p' for -p; 0: none */
    arg_kind kind;
    size_t offset;     /* of the target in the verb's struct */
    double low, high;  /* ARG_INT, ARG_FLOAT: the range; high may be INFINITY */
    bool is_low_open;  /* low itself is outside */
    const char *value; /* what help calls the value; for ARG_CHOICE the words */
    const char *help;
    bool is_needed; /* ARG_TEXT: without it the verb cannot run */
} arg_option;

/* A verb of the program: what `lace VERB` runs, and what `lace help VERB` says. */
typedef struct verb {
    const char *name;
    const char *summary;     /* one line, for the list of verbs */
    const char *usage;       /* what follows the name: "MODEL [options]" */
    const char *description; /* paragraphs for help; "" for none */
    const char *examples;    /* lines, each ended by \n */
    const arg_option *options;
    size_t n_options;
    int min_positional; /* these are called as usage begins */
    int max_positional;
    lace_status (*run)(const struct verb *self, int argc, char **argv, lace_error *err);
} verb;

enum { ARGS_MAX_POSITIONAL = 16 };

/* The arguments that are no options, in their order; NULL behind the last. */
typedef struct positional {
    const char *at[ARGS_MAX_POSITIONAL + 1];
    int count;
} positional;

/*
 * Parse argv[0..argc) (without program and verb) into the struct at `target`, which holds the
 * defaults. LACE_E_ARG with one line that names the argument and ends in where to find help.
 */
lace_status args_parse(const verb *v, int argc, char **argv, void *target, positional *out,
                       lace_error *err);

/* "600M", "2.5GB": what ARG_BYTES takes. */
bool args_read_bytes(const char *value, uint64_t *out);

/* A seed short enough to be typed again. */
uint64_t args_random_seed(void);

/* A mistake on the command line that the table cannot know of; adds where to find help. */
__attribute__((format(printf, 3, 4))) lace_status args_error(const verb *v, lace_error *err,
                                                             const char *format, ...);

/* The whole help of a verb. */
lace_status args_help(const verb *v, buf *out);

/* All verbs, for what is written of the whole table: manuals and completion. */
typedef struct verb_table {
    const verb *const *at;
    size_t n;
} verb_table;

/* manual.c: the manual page of a verb as man(1) reads it; of the program if v is NULL. */
lace_status args_manual(verb_table verbs, const verb *v, buf *out);

/* completion.c: the shells that args_completion knows, as in "bash|zsh|fish". */
extern const char ARGS_SHELLS[];
/* What a shell reads to complete command lines. LACE_E_ARG for a shell that is not known. */
lace_status args_completion(verb_table verbs, const char *shell, buf *out);

/* What may stand behind an option, for completion. */
typedef enum arg_values {
    VALUES_NONE,  /* it takes none */
    VALUES_ANY,   /* nobody can guess */
    VALUES_FILES, /* paths */
    VALUES_WORDS, /* those of arg_next_word */
} arg_values;
arg_values arg_values_of(const arg_option *o);
/* The next of the words of an option's values, "auto|cpu|cuda[:N]"; false behind the last. What is
 * in brackets may be left out and is no part of a word. *at is o->value at first. */
bool arg_next_word(const char **at, const char **word, size_t *n);

/* How many characters must be inserted, deleted, replaced or swapped to make b of a. */
int args_distance(const char *a, const char *b);
/* With how many slips a word of so many characters may be another one: foo is no slip of fit. */
int args_slips(int n_characters);

#endif
