/*
 * The program in a test: $LACE_BIN (by default build/lace) is run by a shell, and what it prints
 * and returns is kept to be looked at. Tests run from the project's root.
 */
#ifndef LACE_TESTS_COMMAND_H
#define LACE_TESTS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* What the last command did; output is cut at the size of the arrays. */
typedef struct command_result {
    int code; /* of the exit; 128 and more: a signal */
    size_t n_out, n_err;
    char out[1 << 18];
    char err[8192];
} command_result;

extern command_result ran;

/* Make a scratch folder. False, with a line for the harness, if there is no program to run. */
bool command_begin(void);
void command_end(void); /* removes the folder */

/* A path in the scratch folder; valid until the next call. */
const char *command_path(const char *name);

/* Run lace with arguments, in which $dir is the scratch folder. */
__attribute__((format(printf, 1, 2))) void command_run(const char *format, ...);

/* The same with a whole shell command, in which $lace is the program. */
__attribute__((format(printf, 1, 2))) void command_sh(const char *format, ...);

/* Files of the scratch folder: write one, read one (ended by a zero), ask for one. */
bool command_write(const char *name, const void *data, size_t n);
size_t command_read(const char *name, char *into, size_t size);
bool command_exists(const char *name);

/* The last command ended with 0. */
bool command_check_success(void);

/* The last command failed with one line that contains `part`, and printed nothing else. */
void command_check_error(const char *part);

#endif
