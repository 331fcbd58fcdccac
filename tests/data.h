/*
 * Where the test data is: beside the checkout ($LACE_SHARED, by default ../shared), if there is such
 * a folder, and otherwise the checkout's own, a smaller choice (tests/data/README.md).
 */
#ifndef LACE_TESTS_DATA_H
#define LACE_TESTS_DATA_H

#include <stddef.h>

/*
 * The path of a file or folder of the test data, e.g. "golden/llama"; for the caller to free(). The
 * first one of each place is told in a note. A file that is in neither place fails the case, and the
 * result is NULL.
 */
char *data_path(const char *relative);

/* The same for what a clone need not have: NULL says that it is not there. */
char *data_path_if_there(const char *relative);

/*
 * The names in a folder of the test data, of both places, sorted, each once. Returns how many. The
 * caller frees the list with free(), which frees the names, too.
 */
size_t data_names(const char *folder, const char ***names);

#endif
