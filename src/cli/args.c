/* Command lines, from a table: parsing and checking. Help is written in help.c. */
#include "cli/args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/system.h"
#include "cli/foreign_names.h"

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

int args_slips(int n_characters)
{
    return n_characters < 5 ? 1 : 2;
}

static lace_status unknown_option(const verb *v, const char *word, size_t n_name, lace_error *err)
{
    char name[48];
    snprintf(name, sizeof name, "%.*s", (int)(n_name < 40 ? n_name : 40), word);
    const arg_option *closest = NULL;
    int best = args_slips((int)n_name) + 1;
    for (size_t i = 0; i < v->n_options; i++) {
        if (v->options[i].kind == ARG_HEADING)
            continue;
        int distance = args_distance(name, v->options[i].name);
        if (distance < best) {
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

uint64_t args_random_seed(void)
{
    uint32_t seed;
    if (!system_random(&seed, sizeof seed))
        seed = (uint32_t)clock_ns();
    return seed;
}

static bool parse_u64(const char *value, uint64_t *out, char **end)
{
    errno = 0;
    if (value[0] < '0' || value[0] > '9')
        return false;
    *out = strtoull(value, end, 10);
    return errno == 0;
}

/* 3G and 3GiB are powers of 1,024, 3GB of 1,000; with a unit, 2.5 is fine too. */
bool args_read_bytes(const char *value, uint64_t *out)
{
    static const char suffixes[] = "KMGT";
    char *end = NULL;
    uint64_t n = 0;
    bool is_valid = parse_u64(value, &n, &end);
    double x = (double)n, unit = 1;
    if (is_valid && *end == '.') {
        errno = 0;
        x = strtod(value, &end);
        is_valid = errno == 0 && *end != 0;
    }
    if (is_valid && *end) {
        const char *suffix = strchr(suffixes, *end >= 'a' ? *end - ('a' - 'A') : *end);
        bool is_decimal = strcmp(end + 1, "B") == 0;
        is_valid = suffix && (is_decimal || strcmp(end + 1, "") == 0 || strcmp(end + 1, "iB") == 0);
        for (int i = 0; is_valid && i <= (int)(suffix - suffixes); i++)
            unit *= is_decimal ? 1000 : 1024;
    }
    if (!is_valid || x * unit >= 0x1p64)
        return false;
    *out = unit == 1 ? n : (uint64_t)(x * unit);
    return true;
}

static lace_status parse_bytes(const verb *v, const arg_option *o, const char *value,
                               uint64_t *target, lace_error *err)
{
    if (args_read_bytes(value, target))
        return LACE_OK;
    return args_error(v, err, "--%s \"%.60s\": expected bytes, like 1500000, 600M or 2.5GB",
                      o->name, value);
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

static lace_status add_text(const verb *v, const arg_option *o, const char *value, arg_texts *out,
                            lace_error *err)
{
    if (out->n == ARGS_MAX_TEXTS)
        return args_error(v, err, "--%s: given more than %d times", o->name, ARGS_MAX_TEXTS);
    out->at[out->n++] = value;
    return LACE_OK;
}

static lace_status parse_value(const verb *v, const arg_option *o, const char *value, void *target,
                               lace_error *err)
{
    char *end;
    switch (o->kind) {
    case ARG_INT:
    case ARG_FLOAT:
        return parse_number(v, o, value, target, err);
    case ARG_SEED:
        if (strcmp(value, "-1") == 0) {
            *(uint64_t *)target = args_random_seed();
            return LACE_OK;
        }
        /* fall through */
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
    case ARG_TEXTS:
        return add_text(v, o, value, target, err);
    case ARG_SCALED: /* give_scaled */
    case ARG_FLAG:
    case ARG_HEADING:
        break;
    }
    *(bool *)target = true;
    return LACE_OK;
}

/* ---- The line -------------------------------------------------------------------------------- */

/* A command line while it is read. */
typedef struct line {
    const verb *verb;
    int argc;
    char **argv;
    int at;       /* the next word */
    char *target; /* the verb's struct */
    int n_models; /* arguments that came as -m MODEL: the first ones */
    positional *words;
    lace_error *err;
} line;

/* The value of an option: what stood in the same word, or the next word. NULL: there is none. */
static const char *take_value(line *l, const char *attached)
{
    if (attached)
        return attached;
    return l->at < l->argc ? l->argv[l->at++] : NULL;
}

static bool is_number(const char *word)
{
    char *end;
    strtod(word, &end);
    return end != word && *end == 0;
}

/* A file, and its number behind it: the next word, or what follows the last colon. */
static lace_status give_scaled(line *l, const arg_option *o, const char *file)
{
    const char *colon = strrchr(file, ':'), *next = l->at < l->argc ? l->argv[l->at] : NULL;
    arg_texts *out = (arg_texts *)(l->target + o->offset);
    bool is_joined = colon && is_number(colon + 1);
    if (!is_joined && !(next && is_number(next)))
        return args_error(l->verb, l->err, "--%s needs a file and a number: %s", o->name, o->value);
    TRY(add_text(l->verb, o, file, out, l->err));
    if (is_joined)
        return add_text(l->verb, o, colon + 1, out, l->err);
    l->at++;
    return add_text(l->verb, o, next, out, l->err);
}

static lace_status give_option(line *l, const arg_option *o, const char *attached)
{
    const char *value = attached;
    if (o->kind == ARG_FLAG && value)
        return args_error(l->verb, l->err, "--%s takes no value", o->name);
    if (o->kind != ARG_FLAG && !(value = take_value(l, attached)))
        return args_error(l->verb, l->err, "--%s needs a value: %s", o->name, o->value);
    if (o->kind == ARG_SCALED)
        return give_scaled(l, o, value);
    return parse_value(l->verb, o, value, l->target + o->offset, l->err);
}

/* Put an argument that is no option at its place among the others. */
static lace_status give_argument(line *l, const char *word, int place)
{
    positional *out = l->words;
    if (out->count == l->verb->max_positional) {
        const char *usage = l->verb->usage;
        bool is_text = strstr(usage, "[TEXT") || strstr(usage, "(TEXT");
        return args_error(l->verb, l->err, "one argument too many: \"%.60s\"%s", word,
                          is_text ? "; a text of several words needs quotes" : "");
    }
    memmove(out->at + place + 1, out->at + place, (size_t)(out->count - place) * sizeof *out->at);
    out->at[place] = word;
    out->count++;
    return LACE_OK;
}

/* "ORG/REPO:QUANT" of Hugging Face as lace calls it. The last one counts, so one place is enough. */
static const char *name_at_hub(const char *value)
{
    static char named[600];
    snprintf(named, sizeof named, "%s%.500s", strncmp(value, "hf:", 3) == 0 ? "" : "hf:", value);
    return named;
}

/* Of verbs without --gpu-layers: "-ngl 0" is the CPU, "-ngl 99" whatever there is. */
static lace_status give_layers(line *l, const char *name, const char *value)
{
    const arg_option *device = find_long(l->verb, "device", 6);
    if (!device)
        return args_error(l->verb, l->err, "%s: lace %s runs on the CPU", name, l->verb->name);
    char *end;
    long n = strtol(value, &end, 10);
    bool is_number = end != value && *end == 0;
    bool is_all = strcmp(value, "all") == 0 || strcmp(value, "auto") == 0 ||
                  (is_number && (n == -1 || n >= 99));
    if (!is_all && !(is_number && n == 0))
        return args_error(
            l->verb, l->err,
            "%s %.40s: here a model runs on one device, whole; use --device cpu or cuda", name,
            value);
    return give_option(l, device, is_all ? "auto" : "cpu");
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return word && (strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0);
}

/* An option of another program; `name` is how it was typed. */
static lace_status give_foreign(line *l, const foreign_name *f, const char *name,
                                const char *attached)
{
    const verb *v = l->verb;
    const char *value;
    const arg_option *o;
    switch (f->kind) {
    case FOREIGN_OPTION:
        o = find_long(v, f->means, strlen(f->means));
        return give_option(l, o, attached);
    case FOREIGN_MODEL:
    case FOREIGN_MODELS:
    case FOREIGN_HUB:
    case FOREIGN_LAYERS:
        if (!(value = take_value(l, attached)))
            return args_error(v, l->err, "%s needs a value", name);
        if (f->kind == FOREIGN_HUB)
            value = name_at_hub(value);
        if (f->kind == FOREIGN_LAYERS)
            return give_layers(l, name, value);
        if (f->kind != FOREIGN_MODELS && l->n_models > 0) {
            l->words->at[0] = value; /* the last one counts, as for every option */
            return LACE_OK;
        }
        return give_argument(l, value, l->n_models++);
    case FOREIGN_SWITCH:
        value = attached ? attached : l->at < l->argc ? l->argv[l->at] : NULL;
        if (is_one_of(value, "off", "0", "false"))
            return args_error(v, l->err, "%s %s: %s", name, value, f->means);
        if (!attached && is_one_of(value, "on", "auto", "1"))
            l->at++;
        return LACE_OK;
    case FOREIGN_ALWAYS:
        return LACE_OK;
    case FOREIGN_NONE:
        break;
    }
    return args_error(v, l->err, "unknown option %s; %s", name, f->means);
}

static bool takes_number(const arg_option *o)
{
    return o->kind == ARG_INT || o->kind == ARG_U64 || o->kind == ARG_SEED ||
           o->kind == ARG_FLOAT || o->kind == ARG_BYTES;
}

/*
 * A word that begins with a dash. Short names of other programs have several letters (-ngl); as a
 * letter with its value behind it (-n gl) they would not make sense.
 */
static lace_status read_option(line *l, const char *word)
{
    const verb *v = l->verb;
    bool is_long = word[1] == '-';
    size_t n = strcspn(word, "=");
    const char *attached = word[n] ? word + n + 1 : NULL;
    const arg_option *o = is_long ? find_long(v, word + 2, n - 2) : NULL;
    if (o)
        return give_option(l, o, attached);
    o = is_long ? NULL : find_letter(v, word[1]);
    if (o && !word[2])
        return give_option(l, o, NULL);
    const foreign_name *f = foreign_name_find(v, word, n);
    if (f) {
        char name[48];
        snprintf(name, sizeof name, "%.*s", (int)(n < 40 ? n : 40), word);
        return give_foreign(l, f, name, attached);
    }
    if (is_long)
        return unknown_option(v, word + 2, n - 2, l->err);
    if (find_long(v, word + 1, n - 1))
        return args_error(v, l->err, "unknown option %.40s; did you mean -%.40s?", word, word);
    if (!o || o->kind == ARG_FLAG || (takes_number(o) && isalpha((unsigned char)word[2])))
        return args_error(v, l->err, "unknown option %.40s", word);
    return give_option(l, o, word + 2);
}

/* What the verb cannot run without: arguments, by their names in its usage, then options. */
static lace_status check_needed(const line *l)
{
    const verb *v = l->verb;
    const char *name = v->usage;
    for (int i = 0; i < l->words->count && i < v->min_positional; i++)
        name += strcspn(name, " ") + 1;
    if (l->words->count < v->min_positional)
        return args_error(v, l->err, "%.*s is missing", (int)strcspn(name, " "), name);
    for (size_t i = 0; i < v->n_options; i++) {
        const arg_option *o = &v->options[i];
        char letter[2] = {o->letter, 0};
        if (o->is_needed && !*(const char *const *)((const char *)l->target + o->offset))
            return args_error(v, l->err, "%s%s %s is missing", o->letter ? "-" : "--",
                              o->letter ? letter : o->name, o->value);
    }
    return LACE_OK;
}

lace_status args_parse(const verb *v, int argc, char **argv, void *target, positional *out,
                       lace_error *err)
{
    *out = (positional){0};
    line l = {.verb = v, .argc = argc, .argv = argv, .target = target, .words = out, .err = err};
    bool only_positional = false;
    while (l.at < argc) {
        const char *word = argv[l.at++];
        if (!only_positional && strcmp(word, "--") == 0)
            only_positional = true;
        else if (only_positional || word[0] != '-' || !word[1])
            TRY(give_argument(&l, word, out->count));
        else
            TRY(read_option(&l, word));
    }
    return check_needed(&l);
}
