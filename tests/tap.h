/*
 * The test harness: TAP lines for `prove`.
 *
 *     int main(void)
 *     {
 *         CASE(page_pool_reuses_freed_pages);
 *         return tap_end();
 *     }
 */
#ifndef LACE_TESTS_TAP_H
#define LACE_TESTS_TAP_H

#include <stdbool.h>
#include <stddef.h>

/* Run a function as one test case, named after it. */
#define CASE(fn) tap_case(#fn, fn)
void tap_case(const char *name, void (*fn)(void));

/* The same for a case made at run time, e.g. one per file of test data. */
void tap_case_arg(const char *name, void (*fn)(void *), void *arg);

/* Inside a case: the case fails if the condition is false; says where and what. Goes on. */
#define CHECK(cond) tap_check((cond), __FILE__, __LINE__, #cond)
bool tap_check(bool ok, const char *file, int line, const char *what);

/* Inside a case: print a line of explanation. */
__attribute__((format(printf, 1, 2))) void tap_note(const char *format, ...);

/* Inside a case: it cannot run here, and why. */
__attribute__((format(printf, 1, 2))) void tap_skip(const char *format, ...);

/* Prints the plan; returns main's exit code. */
int tap_end(void);

#endif
