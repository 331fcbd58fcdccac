/* What several tests of the tokenizer do. */
#include "token_check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "tap.h"

tokenizer *check_create(const vocab *v)
{
    tokenizer *t;
    lace_error err = {0};
    if (!CHECK(tokenizer_create(v, &t, &err) == LACE_OK))
        tap_note("%s", err.text);
    return t;
}

token_list check_encode(const tokenizer *t, const char *data, size_t n, unsigned flags)
{
    token_list list = {0};
    lace_error err = {0};
    if (!CHECK(tokenizer_encode(t, data, n, flags, &list, &err) == LACE_OK))
        tap_note("%s", err.text);
    return list;
}

void check_decode(const tokenizer *t, const token_list *list, buf *out)
{
    decoder *d;
    text piece;
    CHECK(decoder_create(t, false, &d, NULL) == LACE_OK);
    for (size_t i = 0; i < list->size; i++) {
        CHECK(decoder_push(d, list->data[i], &piece, NULL) == LACE_OK);
        CHECK(buf_append(out, piece.data, piece.size) == LACE_OK);
    }
    CHECK(decoder_flush(d, &piece, NULL) == LACE_OK);
    CHECK(buf_append(out, piece.data, piece.size) == LACE_OK);
    decoder_free(d);
}

static uint64_t random_state;

static uint32_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* Random valid UTF-8 below a code point: ASCII, spaces, and characters from everywhere. */
static size_t random_text(char *out, size_t max, uint32_t n_codes)
{
    size_t n = 0, limit = next_random() % (max - 8);
    while (n < limit) {
        uint32_t code;
        switch (next_random() % 6) {
        case 0:
            code = next_random() % 128;
            break;
        case 1:
            code = "  \n\t\r.'0123aehlotw"[next_random() % 18];
            break;
        case 2:
            code = next_random() % 0x800;
            break;
        case 3:
            code = 0x4E00 + next_random() % 0x5000;
            break;
        case 4:
            code = 0x1F300 + next_random() % 0x400;
            break;
        default:
            code = next_random() % n_codes;
        }
        if ((code >= 0xD800 && code < 0xE000) || code == 0x2581)
            continue; /* not a character; SentencePiece's own mark for a space */
        if (n_codes < 0x110000 && code < 0x20 && !strchr("\t\n\r", (int)code))
            continue;
        n += (size_t)utf8_encode(code, out + n);
    }
    return n;
}

void check_round_trips(const tokenizer *t, int n_texts, uint32_t n_codes)
{
    random_state = (uint64_t)clock_ns();
    uint64_t seed = random_state;
    for (int k = 0; k < n_texts; k++) {
        char input[512];
        size_t n = random_text(input, sizeof input, n_codes);
        token_list list = check_encode(t, input, n, 0);
        buf out;
        buf_init(&out, MEGABYTE);
        check_decode(t, &list, &out);
        bool is_same = out.size == n && memcmp(out.data ? out.data : "", input, n) == 0;
        if (!CHECK(is_same)) {
            tap_note("seed %llu, text %d", (unsigned long long)seed, k);
            tap_note("%.*s", (int)n, input);
            tap_note("%.*s", (int)out.size, out.data ? out.data : "");
        }
        buf_deinit(&out);
        token_list_deinit(&list);
        if (!is_same)
            break;
    }
}

/* What a megabyte may be made of. */
static const char *const units[] = {
    "a", " ",        "\n", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "\xFF", "7", "A",
    "'", "\xCC\x81", "<",  "aB ",
};
enum { N_UNITS = sizeof units / sizeof *units };

char *repeat_text(const char *unit, char last, size_t n, size_t *n_out)
{
    char *out = malloc(n);
    size_t n_unit = strlen(unit), size = (n - 1) / n_unit * n_unit;
    for (size_t i = 0; i < size; i++)
        out[i] = unit[i % n_unit];
    if (last)
        out[size++] = last;
    *n_out = size;
    return out;
}

void check_speed(const tokenizer *t, const char *name)
{
    for (int i = 0; i < N_UNITS; i++) {
        size_t n;
        char *input = repeat_text(units[i], i % 2 ? '5' : 0, MEGABYTE, &n);
        clock_t begin = clock();
        token_list list = check_encode(t, input, n, LACE_TOKENIZE_PARSE_SPECIAL);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (!CHECK(seconds < SLOW_SECONDS))
            tap_note("%s: %zu bytes of unit %d take %.1f s", name, n, i, seconds);
        CHECK(list.size <= 3 * n + 1);
        token_list_deinit(&list);
        free(input);
    }
}
