/* States: pages are counted, shared, copied on write, and given back; so are snapshots. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "state/states.h"
#include "tap.h"

static states *make(int32_t window, int32_t n_sequences, int32_t n_context, dtype type)
{
    layer_state layers[] = {layer_state_paged(2, 32, 32, 0), layer_state_paged(2, 32, 32, window)};
    states_options o = {.type = type,
                        .v_type = type,
                        .n_sequences = n_sequences,
                        .n_context = n_context,
                        .n_batch = 16};
    states *kv;
    CHECK(states_create(layers, 2, &o, &kv, NULL) == LACE_OK);
    CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK);
    return kv;
}

static lace_status append(states *kv, int32_t sequence, int32_t n)
{
    TRY(states_reserve(kv, sequence, n, NULL));
    states_set_length(kv, sequence, kv->sequences[sequence].n_tokens + n);
    return LACE_OK;
}

static void pages_are_taken_and_given_back(void)
{
    states *kv = make(0, 2, 128, DTYPE_F16);
    CHECK(kv->n_groups == 1 && kv->groups[0].n_pages == 8);
    CHECK(append(kv, 0, 33) == LACE_OK && states_pages_used(kv, 0) == 2);
    CHECK(append(kv, 1, 1) == LACE_OK && states_pages_used(kv, 0) == 3);
    states_set_length(kv, 0, 32);
    CHECK(states_pages_used(kv, 0) == 2);
    states_set_length(kv, 0, 0);
    states_set_length(kv, 1, 0);
    CHECK(states_pages_used(kv, 0) == 0);
    states_free(kv);
}

static void context_is_a_hard_end(void)
{
    states *kv = make(0, 1, 40, DTYPE_F16);
    CHECK(append(kv, 0, 40) == LACE_OK);
    CHECK(states_reserve(kv, 0, 1, NULL) == LACE_E_CONTEXT);
    CHECK(kv->sequences[0].n_tokens == 40);
    states_free(kv);
}

static void forks_share_until_one_writes(void)
{
    states *kv = make(0, 2, 128, DTYPE_F16);
    CHECK(append(kv, 0, 40) == LACE_OK);
    int32_t shared = kv->sequences[0].tables[0][1];
    kv->groups[0].data[(uint64_t)shared * kv->groups[0].page_bytes] = 77;
    CHECK(states_fork(kv, 0, 1, NULL) == LACE_OK);
    CHECK(states_pages_used(kv, 0) == 2);
    CHECK(append(kv, 1, 1) == LACE_OK);
    CHECK(states_pages_used(kv, 0) == 3);
    int32_t own = kv->sequences[1].tables[0][1];
    CHECK(own != shared && kv->sequences[0].tables[0][1] == shared);
    CHECK(kv->groups[0].data[(uint64_t)own * kv->groups[0].page_bytes] == 77);
    CHECK(kv->sequences[1].tables[0][0] == kv->sequences[0].tables[0][0]);
    states_set_length(kv, 0, 0);
    CHECK(states_pages_used(kv, 0) == 2);
    states_set_length(kv, 1, 0);
    CHECK(states_pages_used(kv, 0) == 0);
    states_free(kv);
}

static void windows_keep_only_what_they_see(void)
{
    states *kv = make(64, 1, 4096, DTYPE_F16);
    CHECK(kv->n_groups == 2);
    int32_t most = 0;
    while (kv->sequences[0].n_tokens + 16 <= 4096) {
        CHECK(append(kv, 0, 16) == LACE_OK);
        int32_t n = kv->sequences[0].n_tokens;
        /* Every position that the next token sees is still there. */
        for (int32_t i = n + 1 > 64 ? n + 1 - 64 : 0; i < n; i++)
            CHECK(kv->sequences[0].tables[1][i / PAGE_TOKENS] >= 0);
        most = states_pages_used(kv, 1) > most ? states_pages_used(kv, 1) : most;
    }
    CHECK(states_pages_used(kv, 0) == 4096 / PAGE_TOKENS);
    /* 64 seen and 32 that may be taken back, cut into pages anyhow. */
    CHECK(most <= 4);
    CHECK(states_can_truncate(kv, 0, 4096 - STATES_TAKE_BACK));
    CHECK(!states_can_truncate(kv, 0, 2048));
    CHECK(states_can_truncate(kv, 0, 0));
    states_set_length(kv, 0, 0);
    CHECK(states_pages_used(kv, 0) == 0 && states_pages_used(kv, 1) == 0);
    CHECK(append(kv, 0, 16) == LACE_OK);
    states_free(kv);
}

static void bytes_are_what_pages_take(void)
{
    /* 2 layers, K and V, 2 heads of 32 values, 128 positions. */
    uint64_t values = 2 * 2 * 2 * 32 * 128;
    states *f32 = make(0, 1, 128, DTYPE_F32), *f16 = make(0, 1, 128, DTYPE_F16);
    states *q8 = make(0, 1, 128, DTYPE_Q8_0);
    CHECK(states_bytes(f32) == 4 * values);
    CHECK(states_bytes(f16) == 2 * values);
    CHECK(states_bytes(q8) == values / 32 * 34);
    states_free(f32);
    states_free(f16);
    states_free(q8);
}

static states *lay_out(const layer_state *layers, int32_t n_layers, dtype type)
{
    states_options o = {
        .type = type, .v_type = type, .n_sequences = 2, .n_context = 64, .n_batch = 16};
    states *kv;
    states_create(layers, n_layers, &o, &kv, NULL);
    return kv;
}

static void keys_and_values_have_their_own_widths(void)
{
    layer_state layers[] = {layer_state_paged(3, 64, 32, 0), layer_state_paged(1, 32, 0, 0)};
    states *kv = lay_out(layers, 2, DTYPE_F16);
    const kv_layer *l = &kv->layers[0].kv, *next = &kv->layers[1].kv;
    CHECK(kv->layers[0].kind == STATE_PAGED && l->head_dim == 64 && l->v_dim == 32);
    CHECK(l->row_bytes == 128 && l->v_row_bytes == 64);
    CHECK(l->k_offset == 0 && l->v_offset == 3 * PAGE_TOKENS * 128);
    CHECK(next->k_offset == 3 * PAGE_TOKENS * (128 + 64)); /* whose values are its keys */
    CHECK(next->v_row_bytes == 0 && l->page_bytes == next->k_offset + PAGE_TOKENS * 64);
    CHECK(l->page_bytes == kv->groups[0].page_bytes && next->page_bytes == l->page_bytes);
    states_free(kv);
}

static void a_latent_layer_keeps_no_values(void)
{
    layer_state layers[] = {layer_state_latent(96, 64), layer_state_latent(96, 64)};
    states *kv = lay_out(layers, 2, DTYPE_Q8_0);
    const kv_layer *l = &kv->layers[0].kv, *next = &kv->layers[1].kv;
    CHECK(l->v_in_k && l->n_heads == 1 && l->head_dim == 96 && l->v_dim == 64);
    CHECK(l->row_bytes == 102 && l->v_row_bytes == l->row_bytes && l->v_offset == l->k_offset);
    CHECK(next->k_offset == PAGE_TOKENS * l->row_bytes && next->v_offset == next->k_offset);
    CHECK(l->page_bytes == 2 * PAGE_TOKENS * l->row_bytes);
    states_free(kv);
}

static layer_state shares(int32_t of, int32_t window)
{
    layer_state l = layer_state_paged(0, 0, 0, window);
    l.shares = of;
    return l;
}

static void layers_share_the_pages_of_others(void)
{
    layer_state layers[] = {layer_state_paged(2, 32, 32, 0),
                            layer_state_paged(1, 64, 64, 16),
                            {.kind = STATE_NONE},
                            shares(0, 0),
                            shares(1, 16),
                            shares(0, 16),
                            layer_state_paged(2, 32, 32, 48),
                            layer_state_paged(2, 32, 32, 0)};
    states *kv = lay_out(layers, 8, DTYPE_F16);
    CHECK(kv->n_groups == 3 && kv->layers[2].kind == STATE_NONE);
    CHECK(memcmp(&kv->layers[3], &kv->layers[0], sizeof *kv->layers) == 0);
    CHECK(memcmp(&kv->layers[4], &kv->layers[1], sizeof *kv->layers) == 0);
    CHECK(memcmp(&kv->layers[5], &kv->layers[0], sizeof *kv->layers) == 0);
    CHECK(kv->layers[6].kv.group == 2 && kv->layers[7].kv.group == 0);
    /* Only layers 0 and 7 take bytes of the first group, layer 1 of the second. */
    CHECK(kv->groups[0].page_bytes == 2 * 2 * 2 * PAGE_TOKENS * 64);
    CHECK(kv->groups[1].page_bytes == 2 * PAGE_TOKENS * 128);
    states_free(kv);
    /* What is shared must be there: pages, of an earlier layer, as long as they are seen. */
    layer_state later[] = {shares(1, 0), layer_state_paged(2, 32, 32, 0)};
    layer_state nothing[] = {{.kind = STATE_NONE}, shares(0, 0)};
    layer_state shorter[] = {layer_state_paged(2, 32, 32, 16), shares(0, 20)};
    CHECK(!lay_out(later, 2, DTYPE_F16) && !lay_out(nothing, 2, DTYPE_F16));
    CHECK(!lay_out(shorter, 2, DTYPE_F16));
}

static void odd_heads_cannot_be_q8(void)
{
    layer_state layer = layer_state_paged(1, 32, 48, 0);
    states_options o = {
        .type = DTYPE_Q8_0, .v_type = DTYPE_Q8_0, .n_sequences = 1, .n_context = 32, .n_batch = 1};
    states *kv;
    lace_error err;
    CHECK(states_create(&layer, 1, &o, &kv, &err) == LACE_E_UNSUPPORTED && kv == NULL);
    CHECK(strstr(err.text, "48") != NULL);
}

static void failing_allocations_are_clean(void)
{
    layer_state layers[] = {layer_state_paged(2, 32, 32, 0),
                            layer_state_paged(2, 32, 32, 64),
                            {.kind = STATE_RECURRENT, .n_bytes = 64}};
    states_options o = {.type = DTYPE_F16,
                        .v_type = DTYPE_F16,
                        .n_sequences = 3,
                        .n_context = 256,
                        .n_batch = 16,
                        .n_snapshots = 4};
    lace_status status = LACE_E_NOMEM;
    for (long i = 0; status != LACE_OK && i < 100; i++) {
        states *kv;
        mem_fail_at(i, false);
        status = states_create(layers, 3, &o, &kv, NULL);
        if (status == LACE_OK)
            status = states_allocate(kv, &host_queue, NULL);
        mem_fail_at(-1, false);
        CHECK(status == LACE_OK || status == LACE_E_NOMEM);
        states_free(kv);
    }
    CHECK(status == LACE_OK);
}

/* ---- Recurrent state ------------------------------------------------------------------------- */

/* One layer with pages and two with recurrent state. */
static states *make_recurrent(int32_t window, int32_t n_sequences, int32_t n_snapshots)
{
    layer_state layers[] = {{.kind = STATE_RECURRENT, .n_bytes = 100},
                            layer_state_paged(1, 32, 32, window),
                            {.kind = STATE_RECURRENT, .n_bytes = 8}};
    states_options o = {.type = DTYPE_F16,
                        .v_type = DTYPE_F16,
                        .n_sequences = n_sequences,
                        .n_context = 512,
                        .n_batch = 64,
                        .n_snapshots = n_snapshots};
    states *kv;
    CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK);
    CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK);
    return kv;
}

/* What the recurrent layers hold of a sequence: in this test, how many tokens it has seen. */
static uint64_t *state_of(const states *kv, int32_t sequence, int32_t layer)
{
    const recurrent_layer *l = &kv->layers[layer].recurrent;
    int32_t slot = states_slot(kv, sequence);
    return (uint64_t *)(kv->slots.parts[0].data + (uint64_t)slot * l->slot_bytes + l->offset);
}

/* Every token adds 1 to what the layers hold, as an evaluation would. */
static lace_status compute(states *kv, int32_t sequence, int32_t n)
{
    TRY(states_reserve(kv, sequence, n, NULL));
    *state_of(kv, sequence, 0) += (uint64_t)n;
    *state_of(kv, sequence, 2) += (uint64_t)n;
    states_set_length(kv, sequence, kv->sequences[sequence].n_tokens + n);
    uint64_t expected = (uint64_t)kv->sequences[sequence].n_tokens;
    CHECK(*state_of(kv, sequence, 0) == expected && *state_of(kv, sequence, 2) == expected);
    return LACE_OK;
}

static void expect_nothing_in_use(states *kv)
{
    for (int32_t i = 0; i < kv->options.n_sequences; i++)
        states_set_length(kv, i, 0);
    for (int32_t g = 0; g < kv->n_groups; g++)
        CHECK(states_pages_used(kv, g) == 0);
    CHECK(states_snapshots_used(kv) == 0);
    states_free(kv);
}

static void recurrent_layers_have_slots(void)
{
    states *kv = make_recurrent(0, 2, 3);
    const recurrent_layer *a = &kv->layers[0].recurrent, *b = &kv->layers[2].recurrent;
    CHECK(kv->layers[0].kind == STATE_RECURRENT && kv->layers[1].kind == STATE_PAGED);
    CHECK(a->offset == 0 && a->n_bytes == 100 && b->offset == 128 && b->n_bytes == 8);
    CHECK(a->slot_bytes == 192 && b->slot_bytes == 192);
    uint64_t pages = (uint64_t)kv->groups[0].n_pages * kv->groups[0].page_bytes;
    CHECK(states_bytes(kv) == pages + 5 * 192);
    expect_nothing_in_use(kv);
}

static void an_empty_sequence_begins_with_zeros(void)
{
    states *kv = make_recurrent(0, 2, 0);
    memset(kv->slots.parts[0].data, 0xAB, 2 * 192);
    CHECK(compute(kv, 0, 5) == LACE_OK); /* which looks at the sums */
    CHECK(compute(kv, 1, 7) == LACE_OK && compute(kv, 0, 3) == LACE_OK);
    states_set_length(kv, 0, 0);
    CHECK(compute(kv, 0, 9) == LACE_OK);
    /* An evaluation that failed: its tokens may be in the slot, so there is no way but to begin. */
    CHECK(states_reserve(kv, 0, 4, NULL) == LACE_OK);
    *state_of(kv, 0, 0) += 2;
    CHECK(states_reach(kv, 0, 9) == 0 && !states_can_truncate(kv, 0, 9));
    states_set_length(kv, 0, 0);
    CHECK(compute(kv, 0, 2) == LACE_OK);
    expect_nothing_in_use(kv);
}

static void recurrent_state_goes_back_to_snapshots(void)
{
    states *kv = make_recurrent(0, 1, 8);
    CHECK(compute(kv, 0, 30) == LACE_OK && states_snapshots_used(kv) == 0);
    CHECK(states_reach(kv, 0, 30) == 30 && states_reach(kv, 0, 29) == 0);
    CHECK(states_next_stop(kv, 0, 1) == 1 && states_next_stop(kv, 0, 2) == 2);
    CHECK(states_next_stop(kv, 0, 33) == 2 && states_next_stop(kv, 0, 34) == 34);
    CHECK(compute(kv, 0, 2) == LACE_OK);  /* a full page */
    CHECK(compute(kv, 0, 40) == LACE_OK); /* past the next one */
    CHECK(states_snapshots_used(kv) == 1 && states_reach(kv, 0, 71) == 32);

    /* Guesses: a snapshot, some tokens, and back. */
    int32_t before = states_snapshot(kv, 0);
    CHECK(before >= 0 && states_snapshots_used(kv) == 2);
    CHECK(compute(kv, 0, 6) == LACE_OK && states_reach(kv, 0, 75) == 72);
    states_set_length(kv, 0, 72);
    int32_t again = states_snapshot(kv, 0);
    CHECK(states_reach(kv, 0, 72) == 72 && again == before && states_snapshots_used(kv) == 2);
    CHECK(compute(kv, 0, 3) == LACE_OK); /* the accepted ones */
    CHECK(states_reach(kv, 0, 74) == 72 && states_reach(kv, 0, 71) == 32);
    snapshot_drop(&kv->slots, &before);
    snapshot_drop(&kv->slots, &again);
    CHECK(states_reach(kv, 0, 74) == 72); /* the sequence still keeps it */
    states_set_length(kv, 0, 32);
    CHECK(states_snapshots_used(kv) == 1 && compute(kv, 0, 1) == LACE_OK);
    CHECK(states_reach(kv, 0, 31) == 0);
    expect_nothing_in_use(kv);
}

static void a_sequence_keeps_its_last_pages(void)
{
    states *kv = make_recurrent(0, 1, 8);
    for (int i = 0; i < 10; i++)
        CHECK(compute(kv, 0, 32) == LACE_OK);
    CHECK(compute(kv, 0, 5) == LACE_OK && states_snapshots_used(kv) == 2);
    CHECK(states_reach(kv, 0, 324) == 320 && states_reach(kv, 0, 319) == 288);
    CHECK(states_reach(kv, 0, 287) == 0);
    states_set_length(kv, 0, 288);
    CHECK(compute(kv, 0, 31) == LACE_OK && compute(kv, 0, 1) == LACE_OK);
    CHECK(states_reach(kv, 0, 319) == 288);
    expect_nothing_in_use(kv);

    kv = make_recurrent(0, 1, 1); /* a pool that is too small keeps the latest one */
    for (int i = 0; i < 3; i++)
        CHECK(compute(kv, 0, 32) == LACE_OK);
    CHECK(compute(kv, 0, 1) == LACE_OK && states_reach(kv, 0, 96) == 96);
    CHECK(states_snapshot(kv, 0) == -1 && states_reach(kv, 0, 95) == 0);
    expect_nothing_in_use(kv);
}

static void forks_have_recurrent_state_of_their_own(void)
{
    states *kv = make_recurrent(0, 3, 8);
    CHECK(compute(kv, 0, 32) == LACE_OK && compute(kv, 0, 8) == LACE_OK);
    CHECK(states_fork(kv, 0, 1, NULL) == LACE_OK && states_snapshots_used(kv) == 1);
    CHECK(compute(kv, 1, 3) == LACE_OK && compute(kv, 0, 7) == LACE_OK);
    states_set_length(kv, 0, 32);
    /* One that has gone back and not computed yet can be forked, too. */
    CHECK(states_fork(kv, 0, 2, NULL) == LACE_OK);
    CHECK(compute(kv, 0, 9) == LACE_OK && compute(kv, 2, 2) == LACE_OK);
    CHECK(states_reach(kv, 1, 42) == 32 && states_snapshots_used(kv) == 1);
    states_set_length(kv, 0, 0);
    states_set_length(kv, 1, 32);
    CHECK(compute(kv, 1, 1) == LACE_OK);
    /* A snapshot of one is of use to another of the same length. */
    int32_t mine = states_snapshot(kv, 1);
    CHECK(mine >= 0 && compute(kv, 0, 33) == LACE_OK);
    *state_of(kv, 0, 0) = 1000;
    states_restore(kv, 0, mine);
    CHECK(compute(kv, 0, 1) == LACE_OK && states_reach(kv, 0, 33) == 33);
    snapshot_drop(&kv->slots, &mine);
    CHECK(mine == -1);
    expect_nothing_in_use(kv);
}

static void windows_limit_how_far_snapshots_reach(void)
{
    states *kv = make_recurrent(64, 1, 8);
    CHECK(compute(kv, 0, 64) == LACE_OK);
    for (int i = 0; i < 3; i++)
        CHECK(compute(kv, 0, 63) == LACE_OK); /* stops at no page */
    CHECK(kv->sequences[0].first_page[0] > 0);
    CHECK(states_reach(kv, 0, 252) == 0); /* the state of 64 tokens is there, the pages are not */
    states_set_length(kv, 0, 0);
    CHECK(compute(kv, 0, 64) == LACE_OK && compute(kv, 0, 64) == LACE_OK);
    CHECK(compute(kv, 0, 10) == LACE_OK && states_reach(kv, 0, 137) == 128);
    states_set_length(kv, 0, 128);
    CHECK(compute(kv, 0, 1) == LACE_OK);
    expect_nothing_in_use(kv);
}

static void a_batch_that_does_not_fit_changes_no_recurrent_state(void)
{
    layer_state layers[] = {{.kind = STATE_RECURRENT, .n_bytes = 8},
                            layer_state_paged(1, 32, 32, 0),
                            {.kind = STATE_RECURRENT, .n_bytes = 8}};
    states_options o = {.type = DTYPE_F16,
                        .v_type = DTYPE_F16,
                        .n_sequences = 2,
                        .n_context = 512,
                        .n_batch = 64,
                        .max_bytes = 18 * 2 * 32 * 64 + 2 * 128};
    states *kv;
    CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK);
    CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK && kv->groups[0].n_pages == 18);
    CHECK(states_bytes(kv) == o.max_bytes);
    CHECK(compute(kv, 0, 300) == LACE_OK && compute(kv, 1, 200) == LACE_OK);
    CHECK(states_reserve_all(kv, (int32_t[]){330, 300}, NULL) == LACE_E_CONTEXT);
    CHECK(states_reserve_all(kv, (int32_t[]){300, 513}, NULL) == LACE_E_CONTEXT);
    CHECK(states_reach(kv, 0, 300) == 300 && states_reach(kv, 1, 200) == 200);
    CHECK(states_reserve_all(kv, (int32_t[]){301, 240}, NULL) == LACE_OK);
    expect_nothing_in_use(kv);
}

/* Random lengths, snapshots and forks: states are what their tokens say (compute), and the counts
 * of users are what holds them. */
static void snapshots_are_counted(void)
{
    enum { N = 4 };
    states *kv = make_recurrent(64, N, 6);
    int32_t held[N] = {-1, -1, -1, -1};
    unsigned seed = 99;
    for (int round = 0; round < 20000; round++) {
        seed = seed * 1664525u + 1013904223u;
        int32_t s = (int32_t)(seed >> 8) % N, n = kv->sequences[s].n_tokens;
        int32_t more = 1 + (int32_t)(seed >> 20) % 40;
        switch (seed >> 16 & 7) {
        default:
            compute(kv, s, seed >> 30 ? states_next_stop(kv, s, more) : more);
            break;
        case 4:
            states_set_length(kv, s, states_reach(kv, s, n * (int32_t)(seed >> 20 & 15) / 15));
            break;
        case 5:
            snapshot_drop(&kv->slots, &held[s]);
            held[s] = states_snapshot(kv, s);
            break;
        case 6:
            snapshot_drop(&kv->slots, &held[s]);
            break;
        case 7:
            states_set_length(kv, s, 0);
            CHECK(states_fork(kv, (s + 1) % N, s, NULL) == LACE_OK);
            break;
        }
        int32_t users[6] = {0}, n_used = 0;
        for (int32_t i = 0; i < N; i++) {
            const slot_state *of = &kv->slots.of[i];
            for (int k = 0; k < SLOT_KEPT; k++)
                if (of->kept[k] >= 0)
                    users[of->kept[k]]++;
            if (of->source >= 0)
                users[of->source]++;
            if (held[i] >= 0)
                users[held[i]]++;
        }
        for (int k = 0; k < 6; k++) {
            n_used += users[k] > 0;
            if (!CHECK(users[k] == kv->slots.snapshots[k].n_users))
                round = 20000;
        }
        CHECK(n_used == states_snapshots_used(kv));
    }
    for (int32_t i = 0; i < N; i++)
        snapshot_drop(&kv->slots, &held[i]);
    expect_nothing_in_use(kv);
}

static void a_layer_may_have_pages_and_recurrent_state(void)
{
    layer_state both = layer_state_paged(2, 32, 64, 0);
    both.kind = STATE_BOTH;
    both.n_bytes = 100;
    layer_state layers[] = {both, layer_state_paged(1, 32, 32, 0), both};
    layers[2].shares = 1;
    layers[2].n_bytes = 8;
    states_options o = {.type = DTYPE_F16,
                        .v_type = DTYPE_F16,
                        .n_sequences = 2,
                        .n_context = 512,
                        .n_batch = 64,
                        .n_snapshots = 4};
    states *kv;
    CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK);
    CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK);
    const layer_memory *a = &kv->layers[0], *b = &kv->layers[1], *c = &kv->layers[2];
    CHECK(a->kind == STATE_BOTH && b->kind == STATE_PAGED && c->kind == STATE_BOTH);
    CHECK(a->kv.n_heads == 2 && a->kv.v_dim == 64 && a->kv.page_bytes == b->kv.page_bytes);
    CHECK(b->kv.k_offset == 2 * 32 * (32 + 64) * 2 && c->kv.k_offset == b->kv.k_offset);
    CHECK(a->recurrent.n_bytes == 100 && a->recurrent.slot_bytes == 192);
    CHECK(c->recurrent.offset == 128 && c->recurrent.n_bytes == 8 && b->recurrent.slot_bytes == 0);
    CHECK(compute(kv, 0, 32) == LACE_OK && compute(kv, 0, 8) == LACE_OK);
    CHECK(states_pages_used(kv, 0) == 2);
    CHECK(states_fork(kv, 0, 1, NULL) == LACE_OK && compute(kv, 1, 30) == LACE_OK);
    CHECK(states_reach(kv, 1, 50) == 32); /* behind the page that was full */
    states_set_length(kv, 1, 32);
    CHECK(compute(kv, 1, 3) == LACE_OK && compute(kv, 0, 1) == LACE_OK);
    expect_nothing_in_use(kv);
}

static void a_model_may_have_recurrent_layers_alone(void)
{
    layer_state layers[] = {{.kind = STATE_RECURRENT, .n_bytes = 8},
                            {.kind = STATE_NONE},
                            {.kind = STATE_RECURRENT, .n_bytes = 8}};
    states_options o = {.type = DTYPE_F16,
                        .v_type = DTYPE_F16,
                        .n_sequences = 1,
                        .n_context = 512,
                        .n_batch = 64,
                        .n_snapshots = 2};
    states *kv;
    CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK);
    CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK && kv->n_groups == 0);
    CHECK(compute(kv, 0, 32) == LACE_OK && compute(kv, 0, 8) == LACE_OK);
    states_set_length(kv, 0, states_reach(kv, 0, 39));
    CHECK(compute(kv, 0, 7) == LACE_OK && kv->sequences[0].n_tokens == 39);
    expect_nothing_in_use(kv);
}

/* ---- All together ---------------------------------------------------------------------------- */

/* Random appends, cuts and forks; the counts of users are checked against the tables. */
static void counts_match_the_tables(void)
{
    states *kv = make(64, 4, 256, DTYPE_F16);
    unsigned seed = 12345;
    for (int round = 0; round < 5000; round++) {
        seed = seed * 1664525u + 1013904223u;
        int32_t s = (int32_t)(seed >> 8) % 4, n = kv->sequences[s].n_tokens;
        switch (seed >> 16 & 3) {
        case 0:
        case 1:
            append(kv, s, 1 + (int32_t)(seed >> 20) % 16);
            break;
        case 2:
            n = n ? (int32_t)(seed >> 20) % (n + 1) : 0;
            if (states_can_truncate(kv, s, n))
                states_set_length(kv, s, n);
            break;
        default:
            if (kv->sequences[s].n_tokens == 0)
                states_fork(kv, (s + 1) % 4, s, NULL);
            break;
        }
        for (int32_t g = 0; g < kv->n_groups; g++) {
            int32_t users[64] = {0}, used = 0;
            for (int32_t i = 0; i < 4; i++)
                for (int32_t j = 0; j < kv->pages_per_sequence; j++)
                    if (kv->sequences[i].tables[g][j] >= 0)
                        used += users[kv->sequences[i].tables[g][j]]++ == 0;
            for (int32_t i = 0; i < kv->groups[g].n_pages; i++)
                if (!CHECK(users[i] == kv->groups[g].n_users[i]))
                    goto end;
            if (!CHECK(used == states_pages_used(kv, g)))
                goto end;
        }
    }
end:
    states_free(kv);
}

int main(void)
{
    CASE(pages_are_taken_and_given_back);
    CASE(context_is_a_hard_end);
    CASE(forks_share_until_one_writes);
    CASE(windows_keep_only_what_they_see);
    CASE(bytes_are_what_pages_take);
    CASE(keys_and_values_have_their_own_widths);
    CASE(a_latent_layer_keeps_no_values);
    CASE(layers_share_the_pages_of_others);
    CASE(odd_heads_cannot_be_q8);
    CASE(failing_allocations_are_clean);
    CASE(recurrent_layers_have_slots);
    CASE(an_empty_sequence_begins_with_zeros);
    CASE(recurrent_state_goes_back_to_snapshots);
    CASE(a_sequence_keeps_its_last_pages);
    CASE(forks_have_recurrent_state_of_their_own);
    CASE(windows_limit_how_far_snapshots_reach);
    CASE(a_batch_that_does_not_fit_changes_no_recurrent_state);
    CASE(snapshots_are_counted);
    CASE(a_layer_may_have_pages_and_recurrent_state);
    CASE(a_model_may_have_recurrent_layers_alone);
    CASE(counts_match_the_tables);
    return tap_end();
}
