/* Command lines, from a table: parsing and checking. Help is written in help.c. */
#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lace_status args_error(const verb *v, lace_error *err, const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return error_set(err, LACE_E_ARG, "%s (see: lace help %s)", line, v->name);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static int min3(int a, int b, int c)
{
    return a < b ? (a < c ? a : c) : (b < c ? b : c);
}

int args_distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    size_t na = strlen(a), nb = strlen(b);
    if (na > MAX || nb > MAX)
        return MAX;
    /* rows[i % 3][j]: the distance of the first i characters of a and the first j of b. */
    int rows[3][MAX + 1];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *before_last = rows[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (is_swap && before_last[j - 2] + 1 < now[j])
                now[j] = before_last[j - 2] + 1;
        }
    }
    return rows[na % 3][nb];
}

static lace_status unknown_option(const verb *v, const char *word, size_t n_name, lace_error *err)
{
    char name[48];
    snprintf(name, sizeof name, "%.*s", (int)(n_name < 40 ? n_name : 40), word);
    const arg_option *closest = NULL;
    int best = 3; /* more than two slips are another word */
    for (size_t i = 0; i < v->n_options; i++) {
        if (v->options[i].kind == ARG_HEADING)
            continue;
        int distance = args_distance(name, v->options[i].name);
        if (distance < best && distance < (int)strlen(name)) {
            best = distance;
            closest = &v->options[i];
        }
    }
    if (closest)
        return args_error(v, err, "unknown option --%s; did you mean --%s?", name, closest->name);
    return args_error(v, err, "unknown option --%s", name);
}

static const arg_option *find_long(const verb *v, const char *name, size_t n)
{
    for (size_t i = 0; i < v->n_options; i++) {
        const arg_option *o = &v->options[i];
        if (o->kind != ARG_HEADING && strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

static const arg_option *find_letter(const verb *v, char letter)
{
    for (size_t i = 0; i < v->n_options; i++)
        if (v->options[i].kind != ARG_HEADING && v->options[i].letter == letter)
            return &v->options[i];
    return NULL;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static void describe_range(const arg_option *o, char out[128])
{
    const char *number = o->kind == ARG_INT ? "a whole number" : "a number";
    if (isinf(o->low) && isinf(o->high))
        snprintf(out, 128, "%s", number);
    else if (isinf(o->high))
        snprintf(out, 128, o->is_low_open ? "%s above %g" : "%s, %g or more", number, o->low);
    else if (o->is_low_open)
        snprintf(out, 128, "%s above %g, at most %g", number, o->low, o->high);
    else
        snprintf(out, 128, "%s from %.10g to %.10g", number, o->low, o->high);
}

static lace_status parse_number(const verb *v, const arg_option *o, const char *value, void *target,
                                lace_error *err)
{
    char *end;
    double x;
    errno = 0;
    if (o->kind == ARG_INT)
        x = (double)strtoll(value, &end, 10);
    else
        x = strtod(value, &end);
    /* strto* skip leading spaces; a value with any is a mistake in quoting. */
    bool is_number = end != value && *end == 0 && errno == 0 && isfinite(x) && value[0] > ' ';
    if (!is_number || x < o->low || x > o->high || (o->is_low_open && x == o->low)) {
        char range[128];
        describe_range(o, range);
        return args_error(v, err, "--%s \"%.60s\": expected %s", o->name, value, range);
    }
    if (o->kind == ARG_INT)
        *(int32_t *)target = (int32_t)x;
    else
        *(float *)target = (float)x;
    return LACE_OK;
}

static bool parse_u64(const char *value, uint64_t *out, char **end)
{
    errno = 0;
    if (value[0] < '0' || value[0] > '9')
        return false;
    *out = strtoull(value, end, 10);
    return errno == 0;
}

static lace_status parse_bytes(const verb *v, const arg_option *o, const char *value,
                               uint64_t *target, lace_error *err)
{
    static const char suffixes[] = "KMGT";
    char *end = NULL;
    uint64_t n = 0;
    bool is_valid = parse_u64(value, &n, &end);
    int shift = 0;
    if (is_valid && *end) {
        const char *suffix = strchr(suffixes, *end >= 'a' ? *end - ('a' - 'A') : *end);
        is_valid = suffix && (strcmp(end + 1, "") == 0 || strcmp(end + 1, "iB") == 0);
        shift = is_valid ? 10 * (int)(suffix - suffixes + 1) : 0;
    }
    if (!is_valid || n > UINT64_MAX >> shift)
        return args_error(v, err, "--%s \"%.60s\": expected bytes, like 1500000, 600M or 4G",
                          o->name, value);
    *target = n << shift;
    return LACE_OK;
}

static lace_status parse_choice(const verb *v, const arg_option *o, const char *value,
                                int32_t *target, lace_error *err)
{
    const char *word = o->value;
    for (int32_t i = 0; *word; i++) {
        size_t n = strcspn(word, "|");
        if (strlen(value) == n && memcmp(value, word, n) == 0) {
            *target = i;
            return LACE_OK;
        }
        word += n + (word[n] == '|');
    }
    return args_error(v, err, "--%s \"%.60s\": expected one of %s", o->name, value, o->value);
}

static lace_status parse_value(const verb *v, const arg_option *o, const char *value, void *target,
                               lace_error *err)
{
    char *end;
    switch (o->kind) {
    case ARG_INT:
    case ARG_FLOAT:
        return parse_number(v, o, value, target, err);
    case ARG_U64:
        if (!parse_u64(value, target, &end) || *end)
            return args_error(v, err, "--%s \"%.60s\": expected a whole number, 0 or more", o->name,
                              value);
        return LACE_OK;
    case ARG_BYTES:
        return parse_bytes(v, o, value, target, err);
    case ARG_CHOICE:
        return parse_choice(v, o, value, target, err);
    case ARG_TEXT:
        *(const char **)target = value;
        return LACE_OK;
    case ARG_FLAG:
    case ARG_HEADING:
        break;
    }
    *(bool *)target = true;
    return LACE_OK;
}

/* ---- The line -------------------------------------------------------------------------------- */

/* Find the option that a word names, and the value written in the same word, if any. */
static lace_status match_option(const verb *v, const char *word, const arg_option **out,
                                const char **value, lace_error *err)
{
    *value = NULL;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        *out = find_long(v, word + 2, n);
        if (!*out)
            return unknown_option(v, word + 2, n, err);
        if (word[2 + n] == '=')
            *value = word + 2 + n + 1;
        if (*value && (*out)->kind == ARG_FLAG)
            return args_error(v, err, "--%s takes no value", (*out)->name);
        return LACE_OK;
    }
    *out = find_letter(v, word[1]);
    if (!*out)
        return args_error(v, err, "unknown option %.40s", word);
    if (word[2])
        *value = word + 2;
    if (*value && (*out)->kind == ARG_FLAG)
        return args_error(v, err, "unknown option %.40s", word);
    return LACE_OK;
}

lace_status args_parse(const verb *v, int argc, char **argv, void *target, positional *out,
                       lace_error *err)
{
    *out = (positional){0};
    uint64_t seen = 0;
    bool only_positional = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_positional && strcmp(word, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (only_positional || word[0] != '-' || !word[1]) {
            if (out->count == v->max_positional)
                return args_error(v, err, "one argument too many: \"%.60s\"", word);
            out->at[out->count++] = word;
            continue;
        }
        const arg_option *o;
        const char *value;
        TRY(match_option(v, word, &o, &value, err));
        uint64_t bit = UINT64_C(1) << (o - v->options);
        if (seen & bit)
            return args_error(v, err, "--%s is given twice", o->name);
        seen |= bit;
        if (o->kind != ARG_FLAG && !value) {
            if (i + 1 == argc)
                return args_error(v, err, "--%s needs a value: %s", o->name, o->value);
            value = argv[++i];
        }
        TRY(parse_value(v, o, value, (char *)target + o->offset, err));
    }
    return LACE_OK;
}
