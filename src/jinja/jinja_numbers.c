/* Filters of templates on numbers, and strftime. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja_eval.h"

/* ---- Reading numbers ------------------------------------------------------------------------- */

enum { NUMBER_CHARS = 64 };

/* The characters of a number without underscores and white space around; false if too many. */
static bool number_chars(text chars, char out[NUMBER_CHARS])
{
    size_t n = 0;
    chars = chars_strip(chars, true, true);
    for (size_t i = 0; i < chars.size; i++) {
        if (n == NUMBER_CHARS - 1)
            return false;
        if (chars.data[i] != '_')
            out[n++] = chars.data[i];
    }
    out[n] = 0;
    return n > 0 && strlen(out) == n;
}

static bool read_int(text chars, int base, int64_t *out)
{
    char digits[NUMBER_CHARS], *p = digits, *end;
    if (!number_chars(chars, digits))
        return false;
    bool is_negative = *p == '-';
    p += *p == '-' || *p == '+';
    char prefix = (char)(p[0] == '0' ? p[1] | 0x20 : 0);
    if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') ||
        (base == 2 && prefix == 'b'))
        p += 2;
    /* strtoll would take a second sign, white space or a prefix. */
    if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) ||
        (p[0] == '0' && (p[1] | 0x20) == 'x'))
        return false;
    errno = 0;
    *out = strtoll(p, &end, base);
    if (*end != 0 || errno == ERANGE)
        return false;
    if (is_negative)
        *out = -*out;
    return true;
}

static bool read_float(text chars, double *out)
{
    char digits[NUMBER_CHARS], *end;
    /* Python reads no hexadecimal floats. */
    if (!number_chars(chars, digits) || strpbrk(digits, "xXpP(") || digits[0] == ' ')
        return false;
    *out = strtod(digits, &end);
    return *end == 0;
}

/* White space and underscores around and in a number are passed over one by one. */
static lace_status spend_number(jinja_run *r, jv v)
{
    return v.kind == JV_STRING ? jinja_spend(r, 16 + jv_chars(v).size / 4) : LACE_OK;
}

static lace_status filter_int(jinja_run *r, const jinja_call *c, jv *out)
{
    int64_t base, i;
    double f = NAN;
    TRY(spend_number(r, c->self));
    TRY(jinja_param_int(r, c->p[1], 10, &base));
    *out = c->p[0].kind == JV_UNSET ? jv_int(0) : c->p[0];
    if (c->self.kind == JV_STRING && base >= 2 && base <= 36 &&
        read_int(jv_chars(c->self), (int)base, &i))
        *out = jv_int(i);
    else if (jv_is_int(c->self))
        *out = jv_int(jv_as_int(c->self));
    else if (c->self.kind == JV_FLOAT)
        f = c->self.as.f;
    else if (c->self.kind == JV_STRING && !read_float(jv_chars(c->self), &f))
        f = NAN;
    else if (c->self.kind == JV_UNDEFINED)
        return jinja_binary(r, BINARY_SUB, c->self, c->self, out); /* says what is undefined */
    if (f > -9.2e18 && f < 9.2e18)
        *out = jv_int((int64_t)f);
    return LACE_OK;
}

static lace_status filter_float(jinja_run *r, const jinja_call *c, jv *out)
{
    double f;
    TRY(spend_number(r, c->self));
    *out = c->p[0].kind == JV_UNSET ? jv_float(0) : c->p[0];
    if (jv_is_number(c->self))
        *out = jv_float(jv_number(c->self));
    else if (c->self.kind == JV_STRING && read_float(jv_chars(c->self), &f))
        *out = jv_float(f);
    return LACE_OK;
}

static lace_status filter_abs(jinja_run *r, const jinja_call *c, jv *out)
{
    if (c->self.kind == JV_FLOAT) {
        *out = jv_float(fabs(c->self.as.f));
        return LACE_OK;
    }
    if (!jv_is_int(c->self))
        return jinja_fail(r, "bad operand type for abs(): '%s'", jv_type_name(c->self));
    if (jv_as_int(c->self) < 0)
        return jinja_binary(r, BINARY_SUB, jv_int(0), c->self, out);
    *out = jv_int(jv_as_int(c->self));
    return LACE_OK;
}

static lace_status filter_round(jinja_run *r, const jinja_call *c, jv *out)
{
    int64_t precision;
    text method;
    TRY(jinja_param_int(r, c->p[0], 0, &precision));
    TRY(jinja_param_text(r, c->p[1], "common", &method));
    bool is_common = text_is(method, "common"), is_ceil = text_is(method, "ceil");
    if (!is_common && !is_ceil && !text_is(method, "floor"))
        return jinja_fail(r, "method must be common, ceil or floor");
    if (!jv_is_number(c->self))
        return jinja_fail(r, "type %s doesn't define __round__ method", jv_type_name(c->self));
    double f = jv_number(c->self), scale = pow(10, (double)precision);
    if (is_common && jv_is_int(c->self) && precision >= 0) {
        *out = jv_int(jv_as_int(c->self));
    } else if (!is_common) {
        *out = jv_float((is_ceil ? ceil(f * scale) : floor(f * scale)) / scale);
    } else if (precision < 0) {
        *out = jv_float(rint(f * scale) / scale);
        if (jv_is_int(c->self))
            *out = jv_int((int64_t)out->as.f);
    } else if (fabs(f) >= 9007199254740992.0 || !isfinite(f)) {
        *out = jv_float(f); /* has no decimals */
    } else {
        TRY(jinja_spend(r, 100));
        /* Through decimal digits, so that halves fall to the side on which the number really is. */
        char digits[160];
        snprintf(digits, sizeof digits, "%.*f", (int)(precision < 100 ? precision : 100), f);
        *out = jv_float(strtod(digits, NULL));
    }
    return LACE_OK;
}

const jinja_builtin jinja_number_filters[] = {
    {"int", "default base", filter_int, 0},
    {"float", "default", filter_float, 0},
    {"abs", "", filter_abs, 0},
    {"round", "precision method", filter_round, 0},
    {0},
};

/* ---- Time ------------------------------------------------------------------------------------ */

typedef struct date {
    int64_t year;
    int month, day;  /* from 1 */
    int day_of_week; /* 0: Sunday */
    int day_of_year; /* from 1 */
    int hour, minute, second;
} date;

/* The civil date of days since 1970 (Howard Hinnant, "chrono-compatible date algorithms"). */
static date date_of(int64_t seconds)
{
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        days--;
        rest += 86400;
    }
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t day_of_era = z - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * from_march + 2) / 153;
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    date d = {
        .year = year_of_era + era * 400 + (month >= 10),
        .month = (int)(month < 10 ? month + 3 : month - 9),
        .day = (int)(from_march - (153 * month + 2) / 5 + 1),
        .day_of_week = (int)(((days + 4) % 7 + 7) % 7),
        .hour = (int)(rest / 3600),
        .minute = (int)(rest / 60 % 60),
        .second = (int)(rest % 60),
    };
    bool is_leap = d.year % 4 == 0 && (d.year % 100 != 0 || d.year % 400 == 0);
    d.day_of_year = before[d.month - 1] + d.day + (is_leap && d.month > 2);
    return d;
}

/* One directive, in English whatever the locale is. Returns false for an unknown one. */
static bool format_directive(const date *d, char directive, char *out, size_t size)
{
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                           "Thursday", "Friday", "Saturday"};
    int hour12 = d->hour % 12 == 0 ? 12 : d->hour % 12;
    int year2 = (int)(d->year % 100);
    long long year = (long long)d->year;
    switch (directive) {
    case 'Y':
        return snprintf(out, size, "%lld", year) > 0;
    case 'y':
        return snprintf(out, size, "%02d", year2) > 0;
    case 'm':
        return snprintf(out, size, "%02d", d->month) > 0;
    case 'd':
        return snprintf(out, size, "%02d", d->day) > 0;
    case 'e':
        return snprintf(out, size, "%2d", d->day) > 0;
    case 'B':
        return snprintf(out, size, "%s", months[d->month - 1]) > 0;
    case 'b':
    case 'h':
        return snprintf(out, size, "%.3s", months[d->month - 1]) > 0;
    case 'A':
        return snprintf(out, size, "%s", weekdays[d->day_of_week]) > 0;
    case 'a':
        return snprintf(out, size, "%.3s", weekdays[d->day_of_week]) > 0;
    case 'w':
        return snprintf(out, size, "%d", d->day_of_week) > 0;
    case 'j':
        return snprintf(out, size, "%03d", d->day_of_year) > 0;
    case 'H':
        return snprintf(out, size, "%02d", d->hour) > 0;
    case 'I':
        return snprintf(out, size, "%02d", hour12) > 0;
    case 'M':
        return snprintf(out, size, "%02d", d->minute) > 0;
    case 'S':
        return snprintf(out, size, "%02d", d->second) > 0;
    case 'f':
        return snprintf(out, size, "000000") > 0;
    case 'p':
        return snprintf(out, size, d->hour < 12 ? "AM" : "PM") > 0;
    case 'F':
        return snprintf(out, size, "%lld-%02d-%02d", year, d->month, d->day) > 0;
    case 'D':
    case 'x':
        return snprintf(out, size, "%02d/%02d/%02d", d->month, d->day, year2) > 0;
    case 'T':
    case 'X':
        return snprintf(out, size, "%02d:%02d:%02d", d->hour, d->minute, d->second) > 0;
    case 'R':
        return snprintf(out, size, "%02d:%02d", d->hour, d->minute) > 0;
    case 'c':
        return snprintf(out, size, "%.3s %.3s %2d %02d:%02d:%02d %lld", weekdays[d->day_of_week],
                        months[d->month - 1], d->day, d->hour, d->minute, d->second, year) > 0;
    case 'n':
        return snprintf(out, size, "\n") > 0;
    case 't':
        return snprintf(out, size, "\t") > 0;
    case '%':
        return snprintf(out, size, "%%") > 0;
    case 'Z': /* no zone is known, and Python's naive times print none */
    case 'z':
        out[0] = 0;
        return true;
    default:
        return false;
    }
}

lace_status jinja_strftime(jinja_run *r, marked given, int64_t seconds, jv *out)
{
    size_t start = r->out->size;
    text format = given.chars;
    /* Years of up to four digits: anything else is a broken clock. */
    date d = date_of(seconds < -62135596800   ? -62135596800
                     : seconds > 253402300799 ? 253402300799
                                              : seconds);
    for (size_t i = 0; i < format.size; i++) {
        char shown[64];
        if (format.data[i] != '%' || i + 1 == format.size) {
            TRY(jinja_write_marked(r, marked_part(given, (text){format.data + i, 1})));
            continue;
        }
        TRY(jinja_spend(r, 16));
        bool is_bare = format.data[i + 1] == '-' && i + 2 < format.size; /* without padding */
        i += is_bare ? 2 : 1;
        if (!format_directive(&d, format.data[i], shown, sizeof shown)) {
            TRY(jinja_write(r, text_of(is_bare ? "%-" : "%")));
            TRY(jinja_write_marked(r, marked_part(given, (text){format.data + i, 1})));
            continue;
        }
        const char *p = shown;
        while (is_bare && (*p == '0' || *p == ' ') && p[1])
            p++;
        TRY(jinja_write(r, text_of(p)));
    }
    return jinja_take_output(r, start, out);
}
