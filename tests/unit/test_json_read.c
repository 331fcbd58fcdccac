/* JSON from outside: what is refused, and what becomes of it when memory runs out. */
#include "base/json_read.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tap.h"

static lace_status read_text(const char *s, json_t **out, lace_error *err)
{
    return json_read((span){(const uint8_t *)s, strlen(s)}, 0, out, err);
}

/* Reads with every allocation failing in its turn. Returns how many did. */
static long fail_each(const char *s, bool forever)
{
    lace_error err;
    json_t *value;
    long i = 0;
    for (lace_status status = LACE_E_NOMEM; status != LACE_OK; i++) {
        mem_fail_at(i, forever);
        status = read_text(s, &value, &err);
        mem_fail_at(-1, false);
        if (status != LACE_OK && status != LACE_E_NOMEM) {
            tap_note("allocation %ld of %.40s: %s", i, s, err.text);
            return -1;
        }
        if (status == LACE_OK)
            json_decref(value);
        else if (value)
            return -1;
    }
    return i - 1;
}

/*
 * jansson keeps the token that it reads in a buffer which grows at 16, 32, 64... bytes, and where
 * it cannot grow, it loses characters, looks for a quote that is not there, or aborts. So: tokens
 * of all kinds around these lengths, behind values that make the buffer grow and such that do not.
 */
static void every_allocation_that_fails_while_json_is_read_is_a_clean_error(void)
{
    static const char *const before[] = {"",    "true,",       "\"ab\",",
                                         "[],", "{\"a\":{}},", "[1,[2,[3]]],"};
    static const int lengths[] = {1, 14, 15, 16, 17, 30, 31, 32, 33, 62, 63, 64, 65, 95};
    bool all_clean = true;
    long n_failed = 0;
    for (size_t b = 0; b < sizeof before / sizeof before[0]; b++)
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
            for (int kind = 0; kind < 4; kind++) {
                char token[300] = "", whole[700];
                int n = lengths[l];
                if (kind == 0) /* a number with a fraction: as long as one likes */
                    snprintf(token, sizeof token, "0.%0*d", n, 1);
                else if (kind == 1)
                    snprintf(token, sizeof token, "\"%0*d\"", n, 1);
                else if (kind == 2)
                    snprintf(token, sizeof token, "{\"%0*d\":0.%0*d}", n, 1, n, 2);
                else
                    snprintf(token, sizeof token, "\"%0*d\\u00e4\\n\"", n, 1);
                snprintf(whole, sizeof whole, "[%s%s,12345678901234567,%s]", before[b], token,
                         token);
                for (int forever = 0; forever < 2 && all_clean; forever++) {
                    long n_here = fail_each(whole, forever);
                    all_clean = n_here > 0;
                    n_failed += n_here;
                }
            }
    tap_note("%ld allocations failed", n_failed);
    CHECK(all_clean);
}

static void json_that_is_none_is_refused_with_a_line(void)
{
    static const struct {
        const char *name, *json;
    } rows[] = {
        {"a control character in a text", "{\"a\":\"b\x01\"}"},
        {"a line end in a text", "{\"a\":\"b\n\"}"},
        {"a number of 200 digits",
         "[1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678"
         "90123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
         "8901234567890]"},
        {"two documents", "{}{}"},
        {"nothing", ""},
        {"a word", "hello"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *value;
        lace_error err = {0};
        lace_status status = read_text(rows[i].json, &value, &err);
        tap_note("%s: %.60s", rows[i].name, err.text);
        CHECK(status != LACE_OK && !value && err.text[0]);
        json_decref(value);
    }
}

/* What is put together without looking at each call can still be asked for at the end. */
static void memory_that_runs_out_while_values_are_made_is_remembered(void)
{
    json_t *list, *value;
    span empty = {(const uint8_t *)"[]", 2};
    CHECK(json_read(empty, 0, &list, NULL) == LACE_OK);
    json_heap_failed();
    json_array_append_new(list, json_string("kept"));
    CHECK(!json_heap_failed());
    mem_fail_at(0, false);
    json_array_append_new(list, json_string("lost"));
    mem_fail_at(-1, false);
    CHECK(json_array_size(list) == 1 && json_heap_failed() && !json_heap_failed());
    mem_fail_at(0, true);
    CHECK(json_read(empty, 0, &value, NULL) == LACE_E_NOMEM && !json_heap_failed());
    mem_fail_at(-1, false);
    json_decref(list);
}

static void members_that_are_null_are_absent(void)
{
    static const char json[] = "{\"type\":\"word\",\"none\":null,\"n\":1}";
    json_t *value = NULL;
    CHECK(json_read((span){(const uint8_t *)json, sizeof json - 1}, 0, &value, NULL) == LACE_OK);
    CHECK(json_get(value, "none") == NULL && json_get(value, "other") == NULL);
    CHECK(json_integer_value(json_get(value, "n")) == 1);
    CHECK(strcmp(json_type_word(value), "word") == 0);
    CHECK(json_type_word(NULL)[0] == 0 && json_type_word(json_get(value, "n"))[0] == 0);
    json_decref(value);
}

int main(void)
{
    CASE(members_that_are_null_are_absent);
    CASE(json_that_is_none_is_refused_with_a_line);
    CASE(every_allocation_that_fails_while_json_is_read_is_a_clean_error);
    CASE(memory_that_runs_out_while_values_are_made_is_remembered);
    return tap_end();
}
