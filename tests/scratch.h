/* A folder for the files that a test writes, below $TMPDIR or /tmp. One at a time. */
#ifndef LACE_TESTS_SCRATCH_H
#define LACE_TESTS_SCRATCH_H

#include <stdbool.h>

const char *scratch_create(void);           /* its path; NULL on failure */
const char *scratch_path(const char *name); /* FOLDER/name; the last four results stay valid */
int scratch_count(void);                    /* files in it, hidden ones too */
void scratch_remove(void);                  /* with all files in it */

bool scratch_write(const char *name, const char *contents);
bool scratch_copy(const char *from, const char *to); /* whole paths, both */
bool scratch_holds(const char *name, const char *contents);
bool scratch_are_same(const char *a, const char *b); /* both are there and hold the same bytes */

/* Cuts a file to nothing. 0, or an errno: EACCES where Windows does not, because it is mapped. */
int scratch_empty(const char *path);

#endif
