/* The prefix tree: whoever shares pages finds in them what it would have written. */
#include "state/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tap.h"

enum { CONTEXT = 256, N_SEQUENCES = 4, WINDOW = 40, BATCH = 64 };

static states *kv;
static prefix_tree *tree;
static unsigned state;

static unsigned draw(unsigned n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* Two layers with pages, for a third of all contexts, and one with recurrent state or nothing. */
static bool start_layers(layer_state first, layer_state second, layer_state third,
                         int32_t n_snapshots)
{
    layer_state layers[] = {first, second, third};
    states_options o = {.type = DTYPE_F32,
                        .n_sequences = N_SEQUENCES,
                        .n_context = CONTEXT,
                        .n_batch = BATCH,
                        .n_snapshots = n_snapshots};
    if (!CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK))
        return false;
    uint64_t fixed = slots_bytes(&kv->slots);
    o.max_bytes = fixed + (states_bytes(kv) - fixed) * 45 / 100;
    states_free(kv);
    return CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK) &&
           CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK) &&
           CHECK(prefix_tree_create(kv, &tree, NULL) == LACE_OK);
}

static const layer_state no_state = {.kind = STATE_NONE};
static const layer_state recurrent = {.kind = STATE_RECURRENT, .n_bytes = 4};

/* The second layer has a window. */
static bool start_with(int32_t first_window)
{
    return start_layers(layer_state_paged(1, 32, 32, first_window),
                        layer_state_paged(1, 32, 32, WINDOW), no_state, 0);
}

/* Two groups of layers, one with a window. */
static bool start(void)
{
    return start_with(0) && CHECK(kv->n_groups == 2);
}

static int n_used(void)
{
    return states_pages_used(kv, 0) + (kv->n_groups > 1 ? states_pages_used(kv, 1) : 0);
}

static void stop(void)
{
    for (int32_t i = 0; i < N_SEQUENCES; i++)
        states_set_length(kv, i, 0);
    prefix_tree_free(tree);
    CHECK(n_used() == 0 && states_snapshots_used(kv) == 0);
    states_free(kv);
}

/* What a position holds depends on all tokens up to it. */
static uint32_t mark(const int32_t *tokens, int32_t n)
{
    uint32_t h = 2166136261u;
    for (int32_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)tokens[i]) * 16777619u;
    return h;
}

static uint32_t *place(int32_t sequence, int32_t g, int32_t position)
{
    page_group *group = &kv->groups[g];
    int32_t page = kv->sequences[sequence].tables[g][position / PAGE_TOKENS];
    uint8_t *data = group->data + (uint64_t)page * group->page_bytes;
    return (uint32_t *)data + position % PAGE_TOKENS;
}

static uint32_t *recurrent_place(int32_t sequence)
{
    int32_t slot = states_slot(kv, sequence);
    return (uint32_t *)(kv->slots.parts[0].data + (uint64_t)slot * kv->slots.slot_bytes);
}

/* What recurrent state holds behind n tokens, from zeros on. */
static uint32_t recur(uint32_t from, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        from = (from ^ (uint32_t)(tokens[i] + 1)) * 16777619u;
    return from;
}

/* Append tokens as an evaluation does; false if there is no room. */
static bool append(int32_t sequence, const int32_t *tokens, int32_t n)
{
    int32_t from = kv->sequences[sequence].n_tokens;
    page_demand demand = {0};
    states_add_demand(kv, sequence, n, &demand);
    if (!states_can_meet(kv, &demand) && !prefix_tree_make_room(tree, &demand))
        return false;
    if (!CHECK(states_reserve(kv, sequence, n, NULL) == LACE_OK))
        return false;
    for (int32_t g = 0; g < kv->n_groups; g++)
        for (int32_t i = from; i < from + n; i++)
            *place(sequence, g, i) = mark(tokens, i + 1);
    if (kv->slots.slot_bytes) {
        uint32_t *at = recurrent_place(sequence);
        *at = recur(*at, tokens + from, n);
        CHECK(*at == recur(0, tokens, from + n));
    }
    states_set_length(kv, sequence, from + n);
    return true;
}

/* All that the layers can see of a sequence is what its tokens say. */
static bool is_intact(int32_t sequence, const int32_t *tokens)
{
    int32_t n = kv->sequences[sequence].n_tokens;
    for (int32_t g = 0; g < kv->n_groups; g++) {
        int32_t window = kv->groups[g].window;
        int32_t from = window && n + 1 > window ? n + 1 - window : 0;
        for (int32_t i = from; i < n; i++)
            if (*place(sequence, g, i) != mark(tokens, i + 1))
                return false;
    }
    return true;
}

static void fill(int32_t *tokens, int32_t first, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = first + i;
}

static void a_text_that_was_kept_is_found_up_to_the_token(void)
{
    if (!start())
        return;
    int32_t tokens[CONTEXT];
    fill(tokens, 1000, CONTEXT);
    CHECK(append(0, tokens, 50));
    prefix_tree_keep(tree, 0, 0, tokens, 50, true);
    states_set_length(kv, 0, 0);
    CHECK(prefix_tree_find(tree, 0, tokens, 200) == 50);
    CHECK(prefix_tree_find(tree, 0, tokens, 40) == 40);
    CHECK(prefix_tree_find(tree, 0, tokens + 1, 40) == 0);
    CHECK(prefix_tree_begin(tree, 0, 1, tokens, 45, NULL) == 45);
    CHECK(is_intact(1, tokens));
    /* It goes on in its own way; the kept page stays as it was. */
    int32_t other[CONTEXT];
    fill(other, 1000, CONTEXT);
    for (int32_t i = 45; i < CONTEXT; i++)
        other[i] = 5000 + i;
    CHECK(append(1, other, 20) && is_intact(1, other));
    CHECK(prefix_tree_begin(tree, 0, 2, tokens, 200, NULL) == 50 && is_intact(2, tokens));
    stop();
}

static void a_longer_text_takes_the_place_of_the_part_it_continues(void)
{
    if (!start())
        return;
    int32_t tokens[CONTEXT];
    fill(tokens, 0, CONTEXT);
    CHECK(append(0, tokens, 40));
    prefix_tree_keep(tree, 0, 0, tokens, 40, true);
    CHECK(append(0, tokens, 20));
    prefix_tree_keep(tree, 0, 0, tokens, 60, true);
    states_set_length(kv, 0, 0);
    CHECK(prefix_tree_find(tree, 0, tokens, CONTEXT) == 60);
    CHECK(prefix_tree_unused_pages(tree) == 2); /* not three: the part became the page */
    stop();
}

static void pages_in_use_are_never_given_up(void)
{
    if (!start())
        return;
    int32_t tokens[CONTEXT], other[CONTEXT];
    fill(tokens, 0, CONTEXT);
    fill(other, 9000, CONTEXT);
    CHECK(append(0, tokens, 64));
    prefix_tree_keep(tree, 0, 0, tokens, 64, true);
    CHECK(append(1, other, 64));
    prefix_tree_keep(tree, 0, 1, other, 64, true);
    states_set_length(kv, 1, 0);
    page_demand all = {{kv->groups[0].n_pages - 2, 0}};
    CHECK(prefix_tree_make_room(tree, &all));
    CHECK(is_intact(0, tokens) && prefix_tree_find(tree, 0, tokens, 64) == 64);
    CHECK(prefix_tree_find(tree, 0, other, 64) == 0);
    all.n_pages[0]++;
    CHECK(!prefix_tree_make_room(tree, &all));
    CHECK(prefix_tree_n_evicted(tree) == 64);
    stop();
}

static void why_reuse_ends_is_told(void)
{
    if (!start())
        return;
    int32_t tokens[CONTEXT], other[CONTEXT];
    lace_reuse_end end;
    fill(tokens, 1000, CONTEXT);
    fill(other, 1000, CONTEXT);
    other[45] = 7;
    CHECK(prefix_tree_begin(tree, 0, 1, tokens, 64, &end) == 0 && end == LACE_REUSE_NEW);
    CHECK(append(0, tokens, 64));
    prefix_tree_keep(tree, 0, 0, tokens, 64, true);
    states_set_length(kv, 0, 0);
    static const struct {
        int32_t n, found;
        bool is_other;
        lace_reuse_end end;
    } cases[] = {{64, 64, false, LACE_REUSE_ALL},
                 {40, 40, false, LACE_REUSE_ALL},
                 {90, 64, false, LACE_REUSE_NEW},
                 {90, 45, true, LACE_REUSE_DIFFERS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int32_t *given = cases[i].is_other ? other : tokens;
        int32_t found = prefix_tree_begin(tree, 0, 1, given, cases[i].n, &end);
        CHECK(found == cases[i].found && end == cases[i].end);
        states_set_length(kv, 1, 0);
    }
    CHECK(prefix_tree_begin(tree, 0, 1, tokens + 1, 40, &end) == 0 && end == LACE_REUSE_DIFFERS);
    stop();
}

static void what_one_owner_has_is_not_found_for_another(void)
{
    if (!start())
        return;
    int32_t tokens[CONTEXT];
    fill(tokens, 1000, CONTEXT);
    CHECK(append(0, tokens, 64));
    prefix_tree_keep(tree, 7, 0, tokens, 64, true);
    states_set_length(kv, 0, 0);
    CHECK(prefix_tree_find(tree, 7, tokens, 64) == 64);
    CHECK(prefix_tree_find(tree, 8, tokens, 64) == 0);
    CHECK(prefix_tree_begin(tree, 8, 1, tokens, 64, NULL) == 0);
    CHECK(append(1, tokens, 32));
    prefix_tree_keep(tree, 8, 1, tokens, 32, true);
    states_set_length(kv, 1, 0);
    CHECK(prefix_tree_find(tree, 7, tokens, 64) == 64);
    CHECK(prefix_tree_find(tree, 8, tokens, 64) == 32);
    page_demand all = {.n_pages = {kv->groups[0].n_pages, kv->groups[1].n_pages}};
    CHECK(prefix_tree_make_room(tree, &all)); /* room is made among all of them */
    CHECK(prefix_tree_find(tree, 7, tokens, 64) == 0 && prefix_tree_find(tree, 8, tokens, 64) == 0);
    stop();
}

/* Recurrent state, and pages of a layer that sees everything. */
static bool start_recurrent(int32_t n_snapshots)
{
    return start_layers(layer_state_paged(1, 32, 32, 0), no_state, recurrent, n_snapshots);
}

static void recurrent_texts_begin_behind_snapshots(void)
{
    if (!start_recurrent(16))
        return;
    int32_t tokens[CONTEXT], other[CONTEXT];
    fill(tokens, 1000, CONTEXT);
    memcpy(other, tokens, sizeof other);
    other[70] = 9;
    /* A prompt in two batches, of which the first ends with a page, and an answer. */
    CHECK(append(0, tokens, 64));
    prefix_tree_keep(tree, 0, 0, tokens, 64, false);
    CHECK(append(0, tokens, 36));
    prefix_tree_keep(tree, 0, 0, tokens, 100, false); /* page 3 ends where no batch did */
    CHECK(append(0, tokens, 10));
    CHECK(prefix_tree_find(tree, 0, tokens, CONTEXT) == 64);
    prefix_tree_keep(tree, 0, 0, tokens, 110, true); /* where the text ends */
    states_set_length(kv, 0, 0);
    CHECK(states_snapshots_used(kv) == 2);

    CHECK(prefix_tree_begin(tree, 0, 1, tokens, CONTEXT, NULL) == 110);
    CHECK(append(1, tokens, 3) && is_intact(1, tokens)); /* append looks at the state */
    CHECK(states_reach(kv, 1, 112) == 110);              /* it may go back to where it began */
    CHECK(prefix_tree_begin(tree, 0, 2, tokens, 109, NULL) == 64);
    CHECK(append(2, tokens, 40) && is_intact(2, tokens));
    CHECK(prefix_tree_find(tree, 0, other, CONTEXT) == 64);
    CHECK(prefix_tree_find(tree, 0, tokens, 63) == 0 &&
          prefix_tree_find(tree, 0, tokens, 64) == 64);
    lace_reuse_end end;
    CHECK(prefix_tree_begin(tree, 0, 3, tokens, 63, &end) == 0 && end == LACE_REUSE_LOST);
    CHECK(append(3, tokens, 63) && is_intact(3, tokens));
    stop();
}

static void snapshots_go_least_recently_used_first(void)
{
    if (!start_recurrent(3))
        return;
    int32_t a[CONTEXT], b[CONTEXT], c[CONTEXT];
    fill(a, 1000, CONTEXT);
    fill(b, 2000, CONTEXT);
    fill(c, 3000, CONTEXT);
    CHECK(append(0, a, 40));
    prefix_tree_keep(tree, 0, 0, a, 40, true);
    states_set_length(kv, 0, 0);
    CHECK(append(0, b, 40));
    prefix_tree_keep(tree, 0, 0, b, 40, true);
    states_set_length(kv, 0, 0);
    CHECK(prefix_tree_begin(tree, 0, 1, a, 50, NULL) == 40); /* used again */
    states_set_length(kv, 1, 0);
    CHECK(append(0, c, 32) && append(0, c, 32)); /* needs two: one is free, one is given up */
    prefix_tree_keep(tree, 0, 0, c, 64, false);
    CHECK(prefix_tree_find(tree, 0, a, 50) == 40 && prefix_tree_find(tree, 0, b, 50) == 0);
    CHECK(prefix_tree_find(tree, 0, c, 70) == 64 && states_snapshots_used(kv) == 3);
    CHECK(prefix_tree_n_evicted(tree) == 0); /* pages stay, for another snapshot to come */
    /* What a sequence can go back to is not taken from it. */
    CHECK(append(1, b, 32) && append(1, b, 32));
    CHECK(states_reach(kv, 0, 63) == 32 && prefix_tree_find(tree, 0, a, 50) == 0);
    CHECK(prefix_tree_find(tree, 0, c, 70) == 64); /* nor from the tree, which would free no slot */
    /* Pages take their snapshots with them. */
    states_set_length(kv, 0, 0);
    states_set_length(kv, 1, 0);
    page_demand all = {.n_pages = {kv->groups[0].n_pages}};
    CHECK(prefix_tree_make_room(tree, &all) && states_snapshots_used(kv) == 0);
    stop();
}

/* Without pages, texts are remembered by snapshots alone, and go with the last one. */
static void recurrent_layers_alone_have_prefixes(void)
{
    if (!start_layers(no_state, no_state, recurrent, 4) || !CHECK(kv->n_groups == 0))
        return;
    int32_t tokens[CONTEXT], n_found = 0;
    for (int32_t i = 0; i < 20; i++) {
        fill(tokens, 1000 * i, 100);
        CHECK(append(0, tokens, 32) && append(0, tokens, 50));
        prefix_tree_keep(tree, (uint64_t)i, 0, tokens, 82, true);
        states_set_length(kv, 0, 0);
        CHECK(prefix_tree_begin(tree, (uint64_t)i, 1, tokens, 99, NULL) == 82);
        CHECK(append(1, tokens, 1));
        states_set_length(kv, 1, 0);
    }
    for (int32_t i = 0; i < 20; i++) {
        fill(tokens, 1000 * i, 100);
        n_found += prefix_tree_find(tree, (uint64_t)i, tokens, 100) > 0;
    }
    CHECK(n_found == 2 && states_snapshots_used(kv) == 4); /* two for each */
    CHECK(prefix_tree_n_evicted(tree) == 18 * 82);
    stop();
}

static void random_texts_find_their_own(void)
{
    static int32_t texts[N_SEQUENCES][CONTEXT];
    uint64_t owners[N_SEQUENCES] = {0};
    int n_shared = 0, n_full = 0;
    state = 7;
    for (int round = 0; round < 20000; round++) {
        int32_t s = (int32_t)draw(N_SEQUENCES), n = kv->sequences[s].n_tokens;
        if (n == 0) {
            /* Few different beginnings, which part ways at any token. */
            int32_t first = (int32_t)draw(3), parts = (int32_t)draw(CONTEXT);
            for (int32_t i = 0; i < CONTEXT; i++)
                texts[s][i] = 1000 * first + i + (i >= parts ? 100000 * (int32_t)draw(2) : 0);
            owners[s] = draw(2);
            int32_t found = prefix_tree_begin(tree, owners[s], s, texts[s],
                                              1 + (int32_t)draw(CONTEXT - 2), NULL);
            n_shared += found > 0;
            if (!append(s, texts[s], 1)) {
                n_full++;
                states_set_length(kv, s, 0);
            }
        } else if (draw(8) == 0 || n + BATCH > CONTEXT) {
            if (draw(4))
                prefix_tree_keep(tree, owners[s], s, texts[s], n, true);
            states_set_length(kv, s, 0);
        } else if (append(s, texts[s], states_next_stop(kv, s, 1 + (int32_t)draw(BATCH)))) {
            if (draw(3) == 0)
                prefix_tree_keep(tree, owners[s], s, texts[s], kv->sequences[s].n_tokens, false);
        } else {
            n_full++;
            states_set_length(kv, s, 0);
        }
        for (int32_t i = 0; i < N_SEQUENCES; i++)
            if (!is_intact(i, texts[i])) {
                CHECK(!"a sequence holds what it did not write");
                tap_note("round %d, sequence %d", round, i);
                stop();
                return;
            }
    }
    tap_note("%d texts began with pages of others, %d times the pool was full, %d tokens given up",
             n_shared, n_full, (int)prefix_tree_n_evicted(tree));
    CHECK(n_shared > 500 && prefix_tree_n_evicted(tree) > 1000);
    stop();
}

static void random_texts_always_find_their_own(void)
{
    if (start())
        random_texts_find_their_own();
}

static void random_recurrent_texts_find_their_own(void)
{
    if (start_layers(layer_state_paged(1, 32, 32, 0), layer_state_paged(1, 32, 32, WINDOW),
                     recurrent, 12))
        random_texts_find_their_own();
}

/* Where all layers have a window, no page of a text is left in the end: then neither is the text,
 * or a server would keep all that it ever read. */
static void a_text_without_pages_is_forgotten(void)
{
    enum { N_TEXTS = 64 };
    if (!start_with(WINDOW) || !CHECK(kv->n_groups == 1))
        return;
    int32_t tokens[CONTEXT], n_found = 0;
    for (int32_t i = 0; i < N_TEXTS; i++) {
        fill(tokens, 1000 * i, 100);
        for (int32_t at = 0; at < 100; at += 50) {
            CHECK(append(0, tokens, 50));
            prefix_tree_keep(tree, 0, 0, tokens, at + 50, at == 50);
        }
        states_set_length(kv, 0, 0);
    }
    CHECK(prefix_tree_find(tree, 0, tokens, 100) == 100);
    for (int32_t i = 0; i < N_TEXTS; i++) {
        fill(tokens, 1000 * i, 100);
        n_found += prefix_tree_find(tree, 0, tokens, 100) > 0;
    }
    tap_note("%d of %d texts, %d pages", n_found, N_TEXTS, kv->groups[0].n_pages);
    CHECK(n_found <= kv->groups[0].n_pages); /* each has one at least */
    stop();
}

int main(void)
{
    CASE(a_text_that_was_kept_is_found_up_to_the_token);
    CASE(a_longer_text_takes_the_place_of_the_part_it_continues);
    CASE(pages_in_use_are_never_given_up);
    CASE(why_reuse_ends_is_told);
    CASE(what_one_owner_has_is_not_found_for_another);
    CASE(recurrent_texts_begin_behind_snapshots);
    CASE(snapshots_go_least_recently_used_first);
    CASE(recurrent_layers_alone_have_prefixes);
    CASE(random_texts_always_find_their_own);
    CASE(random_recurrent_texts_find_their_own);
    CASE(a_text_without_pages_is_forgotten);
    return tap_end();
}
