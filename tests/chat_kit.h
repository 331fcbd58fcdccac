/* Chat templates in tests: JSON from text, and the templates of the test data. */
#ifndef LACE_TESTS_CHAT_KIT_H
#define LACE_TESTS_CHAT_KIT_H

#include <jansson.h>
#include <stddef.h>

/* The JSON, for json_decref(); NULL for NULL. Text that is none ends the program. */
json_t *read_json(const char *chars);

/* templates/cases.json, for json_decref(). */
json_t *read_template_cases(void);

/* The file of this name in templates/, for free(); empty, and the case fails, if it is not there. */
char *read_template(const char *name, size_t n_name);

#endif
