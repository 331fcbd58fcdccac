/* How many rows a step of the batcher has, by what waits and by the times that steps took. */
#include "engine/step_size.h"

#include "tap.h"

static const uint64_t MS = 1000000;

static step_size card(uint64_t next_ms, uint64_t first_ms)
{
    return (step_size){
        .tile_rows = 128, .step_rows = 256, .next_ns = next_ms * MS, .first_ns = first_ms * MS};
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
    step_load l = {.n_next = n_next,
                   .n_prompts = 1,
                   .n_unread = n_unread,
                   .most = 2048,
                   .waits_ns = waits_ms * MS};
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
    CHECK(rows(&s, 8, 1000, 0) == 256 && rows(&s, 8, 5000, 0) == 256);
    CHECK(rows(&s, 0, 5000, 0) == 512); /* nobody waits for the next token */
    CHECK(rows(&s, 8, 130, 0) == 128);  /* the rest comes later */
    CHECK(rows(&s, 30, 20, 0) == 256);  /* less than a tile: all of it */
    step_size_end(&s, 10, 8000);
    CHECK(rows(&s, 990, 1000, 0) == 1408); /* those that generate leave some to prompts */
    CHECK(rows(&s, 2040, 1000, 0) == 2048);
}

/* Where a token that is made brings 4 to be read, 100 texts bring 400 with each step. */
static void prompts_do_not_pile_up(void)
{
    step_size s = card(0, 0);
    CHECK(rows(&s, 99, 5000, 0) == 640); /* 4 to be read, and a quarter more: 599 rows */
    for (int i = 0; i < 200; i++)
        step_size_end(&s, 256, 128);
    CHECK(rows(&s, 30, 5000, 0) == 256);
    CHECK(rows(&s, 99, 5000, 0) == 384); /* close to 100 + 250 */
    step_load waits = {.n_next = 9, .n_prompts = 91, .n_unread = 9999, .most = 4096};
    CHECK(step_size_rows(&s, &waits) == 384); /* those that wait would make tokens */
    waits.n_prompts = 2000;
    CHECK(step_size_rows(&s, &waits) == 2048); /* no step takes longer than that */
    for (int i = 0; i < 200; i++)
        step_size_end(&s, 10, 1000); /* long answers to short questions */
    CHECK(rows(&s, 99, 5000, 0) == 256);
    step_size_end(&s, SIZE_MAX / 4, SIZE_MAX / 4); /* sums stay small */
    CHECK(s.n_read < 1 << 14 && s.n_made < 1 << 14);
}

static void a_target_for_the_next_token_limits_a_step(void)
{
    step_size s = card(18, 0);
    CHECK(rows(&s, 99, 5000, 0) == 640); /* nothing is known yet */
    learn(&s);
    CHECK(rows(&s, 99, 5000, 0) == 384);  /* 16 ms */
    CHECK(rows(&s, 300, 5000, 0) == 512); /* reading goes on, whatever it takes */
    s.next_ns = 100 * MS;
    CHECK(rows(&s, 99, 5000, 0) == 640);
}

static void a_target_for_the_first_token_makes_steps_larger(void)
{
    step_size s = card(0, 200);
    learn(&s);
    CHECK(rows(&s, 8, 1000, 0) == 256);    /* 5 steps of 12 ms */
    CHECK(rows(&s, 8, 4000, 0) == 384);    /* 11 of 16 ms; 17 of 12 would be late */
    CHECK(rows(&s, 8, 4000, 45) == 1024);  /* 4 of 36 ms */
    CHECK(rows(&s, 8, 4000, 190) == 2048); /* as fast as can be */
    s.next_ns = 30 * MS;
    CHECK(rows(&s, 8, 4000, 190) == 768); /* but the others wait no longer than that */
}

static void steps_take_what_steps_like_them_took(void)
{
    step_size s = card(0, 0), plain = {0};
    CHECK(step_size_time(&s, 3) == 0 && step_size_time(&s, 500) == 0);
    step_size_note(&s, 3, 2 * MS);
    CHECK(step_size_time(&s, 3) == 0); /* one is not enough */
    step_size_note(&s, 4, 3 * MS);
    CHECK(step_size_time(&s, 3) == 2 * MS && step_size_time(&s, 4) == 2 * MS);
    CHECK(step_size_time(&s, 2) == 0 && step_size_time(&s, 5) == 0);
    learn(&s); /* whole tiles do not say what few rows take */
    CHECK(step_size_time(&s, 3) == 2 * MS && step_size_time(&s, 128) == 8 * MS);
    CHECK(step_size_time(&s, 500) == 20 * MS && step_size_time(&s, 128 * 1000) == 0);
    step_size_note(&plain, 3, MS);
    CHECK(step_size_time(&plain, 3) == 0);
}

static void one_slow_step_is_not_believed(void)
{
    step_size s = card(25, 0);
    learn(&s);
    step_size_note(&s, 640, 900 * MS);
    CHECK(rows(&s, 99, 1000, 0) == 640);
    step_size_note(&s, 640, 900 * MS);
    CHECK(rows(&s, 99, 1000, 0) == 512);
    step_size_note(&s, 630, 24 * MS); /* of as many tiles */
    CHECK(rows(&s, 99, 1000, 0) == 640);
}

int main(void)
{
    CASE(where_every_row_costs_prompts_get_a_share);
    CASE(a_device_with_tiles_gets_whole_ones);
    CASE(prompts_do_not_pile_up);
    CASE(a_target_for_the_next_token_limits_a_step);
    CASE(a_target_for_the_first_token_makes_steps_larger);
    CASE(steps_take_what_steps_like_them_took);
    CASE(one_slow_step_is_not_believed);
    return tap_end();
}
