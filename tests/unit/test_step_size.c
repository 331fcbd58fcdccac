/* How many rows a step of the batcher has, by what waits and by the times that steps took. */
#include "engine/step_size.h"

#include "tap.h"

static const uint64_t MS = 1000000;

static step_size card(uint64_t next_ms, uint64_t first_ms)
{
    return (step_size){
        .tile_rows = 128, .step_rows = 512, .next_ns = next_ms * MS, .first_ns = first_ms * MS};
}

/* A step takes 4 ms, and 4 more for each tile. */
static void learn(step_size *s)
{
    for (size_t n = 1; n <= 16; n++)
        for (int i = 0; i < 2; i++)
            step_size_note(s, 128 * n, (4 + 4 * n) * MS);
}

static size_t rows(const step_size *s, size_t n_next, size_t n_unread, uint64_t waits_ms)
{
    step_load l = {.n_next = n_next, .n_unread = n_unread, .most = 2048, .waits_ns = waits_ms * MS};
    return step_size_rows(s, &l);
}

static void where_every_row_costs_prompts_get_a_share(void)
{
    step_size s = {0};
    CHECK(rows(&s, 0, 5000, 0) == 128 && rows(&s, 31, 5000, 0) == 159);
    CHECK(rows(&s, 2000, 5000, 0) == 2048);
    step_size_note(&s, 100, 5);
}

static void a_device_with_tiles_gets_whole_ones(void)
{
    step_size s = card(0, 0);
    CHECK(rows(&s, 8, 1000, 0) == 512);
    CHECK(rows(&s, 8, 5000, 0) == 1024);  /* many prompts wait */
    CHECK(rows(&s, 8, 130, 0) == 128);    /* the rest comes later */
    CHECK(rows(&s, 100, 20, 0) == 512);   /* less than a tile: all of it */
    CHECK(rows(&s, 500, 1000, 0) == 640); /* those that generate leave a tile to prompts */
    CHECK(rows(&s, 2040, 1000, 0) == 2048);
}

static void a_target_for_the_next_token_limits_a_step(void)
{
    step_size s = card(18, 0);
    CHECK(rows(&s, 8, 5000, 0) == 1024); /* nothing is known yet */
    learn(&s);
    CHECK(rows(&s, 8, 5000, 0) == 384);   /* 16 ms */
    CHECK(rows(&s, 300, 5000, 0) == 512); /* reading goes on, whatever it takes */
    s.next_ns = 100 * MS;
    CHECK(rows(&s, 8, 5000, 0) == 1024);
}

static void a_target_for_the_first_token_makes_steps_larger(void)
{
    step_size s = card(0, 200);
    learn(&s);
    CHECK(rows(&s, 8, 1000, 0) == 512);    /* 2 steps of 20 ms */
    CHECK(rows(&s, 8, 4000, 0) == 512);    /* 8 of them */
    CHECK(rows(&s, 8, 4000, 45) == 1024);  /* 4 of 36 ms; 8 of 20 would be late by now */
    CHECK(rows(&s, 8, 4000, 190) == 2048); /* as fast as can be */
    s.next_ns = 30 * MS;
    CHECK(rows(&s, 8, 4000, 190) == 768); /* but the others wait no longer than that */
}

static void one_slow_step_is_not_believed(void)
{
    step_size s = card(25, 0);
    learn(&s);
    step_size_note(&s, 512, 900 * MS);
    CHECK(rows(&s, 8, 1000, 0) == 512);
    step_size_note(&s, 512, 900 * MS);
    CHECK(rows(&s, 8, 1000, 0) == 384);
    step_size_note(&s, 500, 20 * MS); /* of as many tiles */
    CHECK(rows(&s, 8, 1000, 0) == 512);
}

int main(void)
{
    CASE(where_every_row_costs_prompts_get_a_share);
    CASE(a_device_with_tiles_gets_whole_ones);
    CASE(a_target_for_the_next_token_limits_a_step);
    CASE(a_target_for_the_first_token_makes_steps_larger);
    CASE(one_slow_step_is_not_believed);
    return tap_end();
}
