/* States: pages are counted, shared, copied on write, and given back. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "state/states.h"
#include "tap.h"

static states *make(int32_t window, int32_t n_sequences, int32_t n_context, dtype type)
{
    layer_state layers[] = {layer_state_paged(2, 32, 32, 0), layer_state_paged(2, 32, 32, window)};
    states_options o = {.queue = &host_queue,
                        .type = type,
                        .n_sequences = n_sequences,
                        .n_context = n_context,
                        .n_batch = 16};
    states *kv;
    CHECK(states_create(layers, 2, &o, &kv, NULL) == LACE_OK);
    CHECK(states_allocate(kv, NULL) == LACE_OK);
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
    states_fork(kv, 0, 1);
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
        .queue = &host_queue, .type = type, .n_sequences = 2, .n_context = 64, .n_batch = 16};
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
        .queue = &host_queue, .type = DTYPE_Q8_0, .n_sequences = 1, .n_context = 32, .n_batch = 1};
    states *kv;
    lace_error err;
    CHECK(states_create(&layer, 1, &o, &kv, &err) == LACE_E_UNSUPPORTED && kv == NULL);
    CHECK(strstr(err.text, "48") != NULL);
}

static void failing_allocations_are_clean(void)
{
    layer_state layers[] = {layer_state_paged(2, 32, 32, 0), layer_state_paged(2, 32, 32, 64)};
    states_options o = {
        .queue = &host_queue, .type = DTYPE_F16, .n_sequences = 3, .n_context = 256, .n_batch = 16};
    lace_status status = LACE_E_NOMEM;
    for (long i = 0; status != LACE_OK && i < 100; i++) {
        states *kv;
        mem_fail_at(i, false);
        status = states_create(layers, 2, &o, &kv, NULL);
        if (status == LACE_OK)
            status = states_allocate(kv, NULL);
        mem_fail_at(-1, false);
        CHECK(status == LACE_OK || status == LACE_E_NOMEM);
        states_free(kv);
    }
    CHECK(status == LACE_OK);
}

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
                states_fork(kv, (s + 1) % 4, s);
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
    CASE(layers_share_the_pages_of_others);
    CASE(odd_heads_cannot_be_q8);
    CASE(failing_allocations_are_clean);
    CASE(counts_match_the_tables);
    return tap_end();
}
