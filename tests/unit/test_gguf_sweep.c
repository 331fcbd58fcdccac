/*
 * formats/gguf and model/config in bulk: every length, every bit, random mutations, files at the
 * limits, and every allocation failing.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_faults.h"
#include "bad_file.h"
#include "formats/gguf_write.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_model.h"

static size_t place(const void *p)
{
    return (size_t)((const char *)p - bad_seed.data);
}

/* ---- Sweeps ---------------------------------------------------------------------------------- */

static void only_the_whole_file_loads(void)
{
    const tensor *last = gguf_tensor_at(bad_seed_gguf, gguf_n_tensors(bad_seed_gguf) - 1);
    size_t end = place(last->data + last->n_bytes), n_loaded = 0;
    for (size_t n = 0; n <= bad_seed.size; n++) {
        lace_error err = {0};
        lace_status status = bad_load_exact(bad_seed.data, n, &err);
        n_loaded += status == LACE_OK;
        if (!CHECK((status == LACE_OK) == (n >= end)))
            break;
        if (status != LACE_OK && !CHECK(bad_message_is_good(&err, status)))
            break;
    }
    CHECK(n_loaded == bad_seed.size - end + 1);
    tap_note("%zu lengths", bad_seed.size + 1);
}

static void every_flipped_bit_is_refused_or_harmless(void)
{
    size_t n_bits = (size_t)gguf_data_offset(bad_seed_gguf) * 8, n_refused = 0;
    char *copy = malloc(bad_seed.size);
    memcpy(copy, bad_seed.data, bad_seed.size);
    for (size_t i = 0; i < n_bits; i++) {
        lace_error err = {0};
        copy[i / 8] ^= (char)(1 << i % 8);
        lace_status status = bad_load(copy, bad_seed.size, &err);
        copy[i / 8] ^= (char)(1 << i % 8);
        n_refused += status != LACE_OK;
        if (status != LACE_OK && !CHECK(err.status == status && !strchr(err.text, '\n')))
            break;
    }
    free(copy);
    tap_note("%zu bits, %zu refused", n_bits, n_refused);
    CHECK(n_refused > n_bits / 4); /* names and structure are most of it */
}

/* xorshift64*, seeded: the same files on every run. */
static uint64_t random_state;

static uint64_t random_u64(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545F4914F6CDD1Du;
}

static size_t random_below(size_t n)
{
    return (size_t)(random_u64() % n);
}

static uint64_t interesting(void)
{
    static const uint64_t values[] = {
        0,
        1,
        2,
        7,
        8,
        9,
        12,
        13,
        31,
        32,
        63,
        64,
        127,
        128,
        255,
        256,
        65535,
        65536,
        0x7FFFFFFF,
        0x80000000,
        0xFFFFFFFF,
        1ull << 32,
        1ull << 60,
        1ull << 61,
        INT64_MAX,
        1ull << 63,
        UINT64_MAX - 31,
        UINT64_MAX - 7,
        UINT64_MAX,
    };
    return values[random_below(sizeof values / sizeof values[0])];
}

/* One random change; most strike the metadata and the directory, where the structure is. */
static void mutate(buf *b, size_t n_front)
{
    if (b->size < 16)
        return;
    size_t front = n_front < b->size ? n_front : b->size;
    size_t at = random_below(random_below(8) ? front : b->size);
    switch (random_below(8)) {
    case 0:
        b->data[at] = (char)random_u64();
        break;
    case 1:
        b->data[at] ^= (char)(1 << random_below(8));
        break;
    case 2:
        if (at + 4 <= b->size)
            bad_set_u32(b, at, interesting());
        break;
    case 3:
        if (at + 8 <= b->size)
            bad_set_u64(b, at, interesting());
        break;
    case 4: { /* a length field: n_tensors, n_kv, or one before a name of the bad_seed */
        size_t value = random_below(gguf_n_values(bad_seed_gguf) + 2);
        size_t field = value < 2 ? 8 + 8 * value
                                 : place(gguf_value_at(bad_seed_gguf, value - 2)->key.data) - 8;
        if (field + 8 <= b->size)
            bad_set_u64(b, field, random_below(2) ? interesting() : random_below(b->size));
        break;
    }
    case 5: { /* a piece copied to another place */
        size_t from = random_below(b->size), n = random_below(64) + 1;
        if (from + n <= b->size && at + n <= b->size)
            memmove(b->data + at, b->data + from, n);
        break;
    }
    case 6: { /* a piece taken out */
        size_t n = random_below(32) + 1;
        if (at + n <= b->size) {
            memmove(b->data + at, b->data + at + n, b->size - at - n);
            b->size -= n;
        }
        break;
    }
    case 7: /* cut, or a piece put in */
        if (random_below(4) == 0) {
            b->size = at;
        } else {
            uint64_t piece = interesting();
            bad_insert(b, at, &piece, random_below(8) + 1);
        }
        break;
    }
}

static void random_malformed_files_never_break_anything(void)
{
    enum { N_FILES = 200000 };
    const uint64_t first_state = 0x1ACE5EED;
    int n_refused = 0;
    double worst = 0, start = bad_cpu_ms();
    buf b;
    buf_init(&b, 1 << 20);
    random_state = first_state;
    for (int i = 0; i < N_FILES; i++) {
        lace_error err = {0};
        buf_clear(&b);
        CHECK(buf_append(&b, bad_seed.data, bad_seed.size) == LACE_OK);
        for (size_t n = random_below(6) + 1; n > 0; n--)
            mutate(&b, (size_t)gguf_data_offset(bad_seed_gguf));
        double before = bad_cpu_ms();
        lace_status status = bad_load_exact(b.data, b.size, &err);
        double took = bad_cpu_ms() - before;
        worst = took > worst ? took : worst;
        n_refused += status != LACE_OK;
        if (status != LACE_OK && !CHECK(err.status == status && !strchr(err.text, '\n')))
            break;
    }
    buf_deinit(&b);
    double seconds = (bad_cpu_ms() - start) / 1000;
    tap_note("%d files (seed %" PRIx64 "), %d refused, %.1f s, the slowest %.2f ms", N_FILES,
             first_state, n_refused, seconds, worst);
    CHECK(worst <= 100);
    CHECK(n_refused > N_FILES / 2 && n_refused < N_FILES);
    CHECK(seconds < 60);
}

/* ---- Size ------------------------------------------------------------------------------------ */

/* A file with many keys of 10 bytes and values of one. */
static buf many_keys(size_t n)
{
    buf b;
    buf_init(&b, 1 << 26);
    CHECK(buf_append(&b, bad_seed.data, 24) == LACE_OK);
    bad_set_u64(&b, 8, 0);
    bad_set_u64(&b, 16, n);
    for (size_t i = 0; i < n; i++) {
        char value[8 + 10 + 4 + 1] = {10}; /* ends in the type u8 and 0 */
        char key[24];
        snprintf(key, sizeof key, "k%09zu", i);
        memcpy(value + 8, key, 10);
        CHECK(buf_append(&b, value, sizeof value) == LACE_OK);
    }
    return b;
}

static void sixty_thousand_keys_parse_in_a_moment(void)
{
    buf b = many_keys(60000);
    gguf *g = NULL;
    lace_error err;
    double start = bad_cpu_ms();
    CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &g, &err) == LACE_OK);
    double took = bad_cpu_ms() - start;
    CHECK(g && gguf_n_values(g) == 60000 && gguf_find(g, "k000059999") != NULL);
    CHECK(took < 1000);
    tap_note("%.1f ms", took);
    gguf_free(g);
    buf_deinit(&b);
}

static void a_file_at_the_limits_costs_little(void)
{
    buf b = many_keys(GGUF_MAX_VALUES);
    gguf *g = NULL;
    lace_error err;
    double start = bad_cpu_ms();
    CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &g, &err) == LACE_OK);
    double took = bad_cpu_ms() - start;
#ifndef __SANITIZE_ADDRESS__
    struct mallinfo2 info = mallinfo2();
    double used = (double)(info.uordblks + info.hblkhd);
    gguf_free(g);
    info = mallinfo2();
    used -= (double)(info.uordblks + info.hblkhd);
    tap_note("%d values: %.1f ms, %.1f MiB", GGUF_MAX_VALUES, took, used / 0x1p20);
    CHECK(used < 64 * 0x1p20);
#else
    gguf_free(g);
    tap_note("%d values: %.1f ms", GGUF_MAX_VALUES, took);
#endif
    CHECK(took < 1000); /* about 60 ms where this was written */
    buf_deinit(&b);
    b = many_keys(GGUF_MAX_VALUES + 1);
    CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &g, &err) == LACE_E_LIMIT && !g);
    buf_deinit(&b);
}

/* ---- Memory that runs out -------------------------------------------------------------------- */

static lace_status load_all(lace_error *err)
{
    return bad_load(bad_seed.data, bad_seed.size, err);
}

static lace_status write_all(lace_error *err)
{
    tiny_options o = tiny_options_least();
    buf b;
    buf_init(&b, 1 << 20);
    lace_status status = tiny_model_build(&o, &b, err);
    CHECK(status == LACE_OK || b.size == 0);
    buf_deinit(&b);
    return status;
}

static lace_status write_file(lace_error *err)
{
    tiny_options o = tiny_options_least();
    gguf_writer *w;
    TRY(tiny_model_create(&o, &w, err));
    lace_status status = gguf_writer_to_file(w, scratch_path("x"), NULL, NULL, err);
    gguf_writer_free(w);
    return status;
}

static void every_failing_allocation_is_reported(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    for (int forever = 0; forever < 2; forever++) {
        CHECK(fail_each_allocation(load_all, forever) > 3);
        CHECK(fail_each_allocation(write_all, forever) > 3);
        CHECK(fail_each_allocation(write_file, forever) > 3);
    }
    CHECK(scratch_count() == 1);
    scratch_remove();
}

int main(void)
{
    if (!bad_seed_create())
        return 1;
    CASE(only_the_whole_file_loads);
    CASE(every_flipped_bit_is_refused_or_harmless);
    CASE(random_malformed_files_never_break_anything);
    CASE(sixty_thousand_keys_parse_in_a_moment);
    CASE(a_file_at_the_limits_costs_little);
    CASE(every_failing_allocation_is_reported);
    bad_seed_free();
    return tap_end();
}
