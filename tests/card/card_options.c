#include "card_options.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static card_options options;

static void refuse(const char *word, size_t n)
{
    fprintf(stderr, "card: LACE_CARD: %.*s is not known\n", (int)n, word);
    exit(1);
}

static void read_word(const char *word, size_t n)
{
    const struct {
        const char *name;
        uint32_t *to;
    } numbers[] = {
        {"major", &options.major},   {"minor", &options.minor}, {"processors", &options.processors},
        {"shared", &options.shared}, {"cards", &options.cards}, {"threads", &options.threads},
        {"report", &options.report}, {"races", &options.races}, {"early", &options.early},
        {"turns", &options.turns},
    };
    const char *equals = memchr(word, '=', n);
    if (!equals)
        refuse(word, n);
    char *end;
    uint64_t value = strtoull(equals + 1, &end, 10);
    const char *units = "KMG", *unit = *end ? strchr(units, *end) : NULL;
    if (unit && end < word + n) {
        value <<= 10 * (unit - units + 1);
        end++;
    }
    if (end != word + n || end == equals + 1)
        refuse(word, n);
    const size_t length = (size_t)(equals - word);
    if (length == 6 && memcmp(word, "memory", 6) == 0) {
        options.memory = value;
        return;
    }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (strlen(numbers[k].name) == length && memcmp(word, numbers[k].name, length) == 0) {
            *numbers[k].to = (uint32_t)value;
            return;
        }
    refuse(word, n);
}

static void read_options(void)
{
    const char *p = getenv("LACE_CARD");
    options = (card_options){.major = 8, .processors = 4, .memory = (uint64_t)4 << 30, .cards = 1};
    while (p && *p) {
        size_t n = strcspn(p, ",");
        if (n)
            read_word(p, n);
        p += n + (p[n] == ',');
    }
    if (!options.shared) {
        /* 8.6 and 8.9 have 99 KiB, 8.0 has 163 KiB, 9.0 and later 227 KiB; 12.x has 99 KiB. */
        uint32_t kib = options.major == 8 && options.minor % 10 == 0 ? 163
                       : options.major == 8 || options.major == 12   ? 99
                                                                     : 227;
        options.shared = kib << 10;
    }
    if (!options.threads) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        options.threads = n > 0 ? (uint32_t)n : 1;
    }
    if (options.cards > 8 || options.cards == 0 || options.processors == 0)
        refuse("this number", 11);
}

const card_options *card_options_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_options);
    return &options;
}
