/* A folder for the files that a test writes, below $TMPDIR or /tmp. One at a time. */
#ifndef LACE_TESTS_SCRATCH_H
#define LACE_TESTS_SCRATCH_H

#include <stdbool.h>

const char *scratch_create(void);           /* its path; NULL on failure */
const char *scratch_path(const char *name); /* FOLDER/name; the last four results stay valid */
int scratch_count(void);                    /* files in it, hidden ones too */
void scratch_remove(void);                  /* with all files in it */

bool scratch_write(const char *name, const char *contents);
bool scratch_holds(const char *name, const char *contents);

#endif
