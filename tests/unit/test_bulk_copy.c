/* Barriers in shared memory, bulk copies and boxes of tensors on the CPU (tests/card/bulk_copy.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "card/bulk_copy.h"
#include "tap.h"

enum { TENSOR_F16 = 6, SWIZZLE_32 = 1, SWIZZLE_64, SWIZZLE_128 };

static random_state dice;

static int roll(int n)
{
    return (int)(random_bits(&dice) >> 33) % n;
}

static bool has_ended(uint64_t *bar, uint32_t parity)
{
    bool out = false;
    CHECK(!barrier_test(bar, parity, &out));
    return out;
}

/* ---- Barriers -------------------------------------------------------------------------------- */

static void a_phase_ends_with_its_last_arrival(void)
{
    uint64_t bar = 0;
    CHECK(!barrier_init(&bar, 3));
    CHECK(has_ended(&bar, 1)); /* the one before the first */
    for (uint32_t phase = 0; phase < 5; phase++) {
        CHECK(!has_ended(&bar, phase & 1));
        CHECK(!barrier_arrive(&bar, 2) && !has_ended(&bar, phase & 1));
        CHECK(!barrier_arrive(&bar, 1) && has_ended(&bar, phase & 1));
    }
}

static void a_phase_ends_with_its_last_byte(void)
{
    uint64_t bar = 0;
    CHECK(!barrier_init(&bar, 1));
    CHECK(!barrier_complete(&bar, 100)); /* before anybody expects it */
    CHECK(!barrier_expect(&bar, 1000000) && !barrier_arrive(&bar, 1));
    CHECK(!barrier_complete(&bar, 999800) && !has_ended(&bar, 0));
    CHECK(!barrier_complete(&bar, 100) && has_ended(&bar, 0));
    CHECK(!has_ended(&bar, 1));
}

static void what_is_wrong_with_barriers_is_said(void)
{
    uint64_t bar = 0;
    bool out;
    CHECK(barrier_test(&bar, 0, &out) != NULL);
    CHECK(barrier_arrive(&bar, 1) != NULL);
    memset(&bar, 0xff, sizeof bar);
    CHECK(barrier_init(&bar, 0) != NULL);
    CHECK(!barrier_init(&bar, 1));
    CHECK(barrier_arrive(&bar, 2) != NULL);
    CHECK(!barrier_expect(&bar, (1 << 20) - 1));
    CHECK(barrier_expect(&bar, 1) != NULL);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void a_copy_comes_with_the_wait_for_it(void)
{
    static _Alignas(16) uint8_t from[64], to[64];
    uint64_t bars[2] = {0, 0};
    bulk_copies *c = bulk_create();
    bool out = true;
    for (int i = 0; i < 64; i++)
        from[i] = (uint8_t)i;
    for (int i = 0; i < 2; i++) {
        CHECK(!barrier_init(&bars[i], 1));
        CHECK(!barrier_expect(&bars[i], 32) && !barrier_arrive(&bars[i], 1));
        CHECK(!bulk_load(c, to + 32 * i, (uint32_t)(1024 + 32 * i), from + 32 * i, 32, &bars[i]));
    }
    CHECK(to[0] == 0xff && to[63] == 0xff);
    CHECK(!has_ended(&bars[1], 0));
    CHECK(!bulk_wait(c, &bars[1], 0, &out) && out);
    CHECK(to[0] == 0xff && !memcmp(to + 32, from + 32, 32));
    CHECK(bulk_end(c) != NULL); /* the other one is under way */
    CHECK(bulk_end(c) == NULL);
    bulk_free(c);
}

static void stores_come_with_the_wait_for_them(void)
{
    uint32_t to[6] = {0};
    uint64_t bars[2] = {0, 0};
    bulk_copies *c = bulk_create();
    bool out = true;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(!barrier_init(&bars[i], 1));
        CHECK(!barrier_expect(&bars[i], 24) && !barrier_arrive(&bars[i], 1));
    }
    for (uint32_t i = 0; i < 6; i++) /* those of both barriers in turns */
        CHECK(!bulk_store(c, (uint8_t *)(to + i), &(uint32_t){i + 7}, 4, &bars[i % 2]));
    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t which = 1 - n; /* the last one first */
        CHECK(!bulk_wait(c, &bars[which], 0, &out) && !out);
        for (uint32_t i = 0; i < 6; i++)
            CHECK(to[i] == (i % 2 == which || n == 1 ? i + 7 : UINT32_MAX));
        CHECK(!bulk_store(c, (uint8_t *)(to + which), &(uint32_t){99}, 4, &bars[which]));
        CHECK(!barrier_complete(&bars[which], 8));
        CHECK(!bulk_wait(c, &bars[which], 0, &out) && out && to[which] == 99);
        to[which] = which + 7;
    }
    CHECK(!bulk_end(c));
    bulk_free(c);
}

static void a_wait_for_nothing_goes_on_waiting(void)
{
    uint64_t bar = 0;
    bulk_copies *c = bulk_create();
    bool out = true;
    CHECK(!barrier_init(&bar, 1));
    CHECK(!bulk_wait(c, &bar, 0, &out) && !out);
    CHECK(!bulk_wait(c, &bar, 1, &out) && out);
    bulk_free(c);
}

static void what_is_wrong_with_copies_is_said(void)
{
    static _Alignas(16) uint8_t from[64], to[64];
    uint64_t bar = 0;
    bulk_copies *c = bulk_create();
    CHECK(bulk_load(c, to, 0, from, 16, &bar) != NULL); /* no barrier */
    CHECK(!barrier_init(&bar, 1));
    CHECK(bulk_load(c, to, 8, from, 16, &bar) != NULL);
    CHECK(bulk_load(c, to, 0, from + 8, 16, &bar) != NULL);
    CHECK(bulk_load(c, to, 0, from, 8, &bar) != NULL);
    CHECK(!bulk_end(c));
    bulk_free(c);
}

/* ---- Boxes ----------------------------------------------------------------------------------- */

enum { COLS = 72, ROWS = 20, PAGES = 3, ROW_BYTES = 160, PAGE_BYTES = 3392 };

/* What a value is: no two are the same, and none is 0. */
static uint16_t value_at(int col, int row, int page)
{
    return (uint16_t)(1 + col + COLS * (row + ROWS * page));
}

static uint8_t *tensor_create(void)
{
    uint8_t *out = aligned_alloc(16, PAGES * PAGE_BYTES);
    memset(out, 0xee, PAGES * PAGE_BYTES);
    for (int page = 0; page < PAGES; page++)
        for (int row = 0; row < ROWS; row++)
            for (int col = 0; col < COLS; col++) {
                const uint16_t v = value_at(col, row, page);
                memcpy(out + page * PAGE_BYTES + row * ROW_BYTES + 2 * col, &v, sizeof v);
            }
    return out;
}

/* Chunk n of row i of a swizzle's rows, in units of 8 rows. */
static int place_of(int swizzle, int row_bytes, int row, int byte)
{
    static const int apart[4] = {8, 4, 2, 1}; /* rows with the same pattern; 8: none */
    const int chunk = byte / 16 ^ row % 8 / apart[swizzle];
    return row * row_bytes + chunk * 16 + byte % 16;
}

static bool asked_outside;

static bool may_read(void *context, const void *from, uint64_t n_bytes)
{
    const uint8_t *tensor = context, *at = from;
    if (at < tensor || at + n_bytes > tensor + PAGES * PAGE_BYTES)
        asked_outside = true;
    return !asked_outside;
}

static void check_box(uint8_t *tensor, int swizzle, const uint32_t *box, const int32_t *at)
{
    static _Alignas(64) uint8_t map[TENSOR_MAP_BYTES];
    static uint8_t shared[64 * 1024];
    const uint64_t dims[3] = {COLS, ROWS, PAGES}, strides[2] = {ROW_BYTES, PAGE_BYTES};
    const uint32_t steps[3] = {1, 1, 1};
    uint64_t bar = 0;
    uint32_t n_bytes = 0;
    bool out = false;
    bulk_copies *c = bulk_create();
    memset(shared, 0, sizeof shared);
    CHECK(!barrier_init(&bar, 1));
    CHECK(!tensor_map_encode(map, TENSOR_F16, 3, tensor, dims, strides, box, steps, 0, swizzle, 3,
                             0));
    CHECK(!tensor_box_bytes(map, &n_bytes) && n_bytes == 2 * box[0] * box[1] * box[2]);
    CHECK(!barrier_expect(&bar, n_bytes) && !barrier_arrive(&bar, 1));
    CHECK(!bulk_load_box(c, shared + 1024, 2048, map, 3, at, &bar, may_read, tensor));
    CHECK(shared[1023] == 0 && shared[1024] == 0xff && shared[1023 + n_bytes] == 0xff &&
          shared[1024 + n_bytes] == 0);
    CHECK(!bulk_wait(c, &bar, 0, &out) && out && !asked_outside);
    int n_wrong = 0;
    for (int page = 0; page < (int)box[2]; page++)
        for (int row = 0; row < (int)box[1]; row++)
            for (int col = 0; col < (int)box[0]; col++) {
                const int x = at[0] + col, y = at[1] + row, z = at[2] + page;
                const bool is_inside =
                    x >= 0 && x < COLS && y >= 0 && y < ROWS && z >= 0 && z < PAGES;
                const int line = page * (int)box[1] + row;
                uint16_t is;
                memcpy(&is, shared + 1024 + place_of(swizzle, 2 * (int)box[0], line, 2 * col),
                       sizeof is);
                n_wrong += is != (is_inside ? value_at(x, y, z) : 0);
            }
    if (!CHECK(n_wrong == 0))
        tap_note("swizzle %d, box %u x %u x %u at %d %d %d", swizzle, box[0], box[1], box[2], at[0],
                 at[1], at[2]);
    bulk_free(c);
}

static void boxes_are_what_the_tensor_has_there(void)
{
    uint8_t *tensor = tensor_create();
    for (int n = 0; n < 200; n++) {
        const int swizzle = n % 4; /* a row is one of the swizzle's */
        const uint32_t box[3] = {swizzle ? 8u << swizzle : 8 * (1 + (uint32_t)roll(4)),
                                 1 + (uint32_t)roll(32), 1 + (uint32_t)roll(2)};
        const int32_t at[3] = {roll(COLS + 80) - 40, roll(ROWS + 20) - 10, roll(PAGES + 3) - 2};
        check_box(tensor, swizzle, box, at);
    }
    free(tensor);
}

static void what_a_driver_refuses_is_refused(void)
{
    static _Alignas(64) uint8_t map[TENSOR_MAP_BYTES];
    static _Alignas(16) uint8_t tensor[TENSOR_MAP_BYTES];
    const uint64_t dims[2] = {64, 64}, strides[1] = {128};
    const uint32_t box[2] = {64, 8}, steps[2] = {1, 1};
#define ENCODE(dims, strides, box, swizzle, at)                                                    \
    tensor_map_encode(map, TENSOR_F16, 2, at, dims, strides, box, steps, 0, swizzle, 0, 0)
    CHECK(!ENCODE(dims, strides, box, SWIZZLE_128, tensor));
    CHECK(ENCODE(dims, strides, box, SWIZZLE_64, tensor) != NULL);
    CHECK(ENCODE(dims, strides, box, SWIZZLE_128, tensor + 8) != NULL);
    CHECK(ENCODE(dims, ((uint64_t[]){136}), box, SWIZZLE_128, tensor) != NULL);
    CHECK(ENCODE(dims, ((uint64_t[]){112}), box, SWIZZLE_128, tensor) != NULL);
    CHECK(ENCODE(((uint64_t[]){0, 64}), strides, box, SWIZZLE_128, tensor) != NULL);
    CHECK(ENCODE(dims, strides, ((uint32_t[]){60, 8}), SWIZZLE_128, tensor) != NULL);
    CHECK(ENCODE(dims, strides, ((uint32_t[]){64, 257}), SWIZZLE_128, tensor) != NULL);
    uint64_t bar = 0;
    bulk_copies *c = bulk_create();
    static uint8_t shared[8192];
    const int32_t at[3] = {0, 0, 0};
    CHECK(!barrier_init(&bar, 1));
    CHECK(bulk_load_box(c, shared, 0, tensor, 2, at, &bar, NULL, NULL) != NULL); /* no map */
    CHECK(!ENCODE(dims, strides, box, SWIZZLE_128, tensor));
    CHECK(bulk_load_box(c, shared, 0, map, 3, at, &bar, NULL, NULL) != NULL);
    CHECK(bulk_load_box(c, shared, 512, map, 2, at, &bar, NULL, NULL) != NULL);
    CHECK(!bulk_end(c));
    bulk_free(c);
}

int main(int argc, char **argv)
{
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    random_init(&dice, seed);
    tap_note("seed %llu: repeat with %s %llu", (unsigned long long)seed, argv[0],
             (unsigned long long)seed);
    CASE(a_phase_ends_with_its_last_arrival);
    CASE(a_phase_ends_with_its_last_byte);
    CASE(what_is_wrong_with_barriers_is_said);
    CASE(a_copy_comes_with_the_wait_for_it);
    CASE(stores_come_with_the_wait_for_them);
    CASE(a_wait_for_nothing_goes_on_waiting);
    CASE(what_is_wrong_with_copies_is_said);
    CASE(boxes_are_what_the_tensor_has_there);
    CASE(what_a_driver_refuses_is_refused);
    return tap_end();
}
