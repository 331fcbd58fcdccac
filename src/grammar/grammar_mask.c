/* Which tokens may come next: local sets, and masks made from them. See grammar_match.h. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar_match_impl.h"

enum {
    MAX_MASKS = 64,               /* kept; when there are more, all are forgotten */
    MAX_LOCAL_BYTES = 8 << 20,    /* the same for local sets */
    MAX_PREPARED_BYTES = 8 << 20, /* of local sets in a core */
    FEW = 32,                     /* a set of less than 1/32 of the tokens is a list */
    MAX_ROUNDS = 255,             /* of one token; tokens that need more are left out */
};

#define PREPARE_NS (UINT64_C(10) * 1000000) /* to make local sets for a core */

/* ---- Walking the tree ------------------------------------------------------------------------ */

static void add_exit(grammar_matcher *m, uint32_t node)
{
    if (!mem_grow(&m->exits, m->n_exits, &m->exits_capacity, sizeof *m->exits, 256)) {
        m->is_out_of_memory = true;
        return;
    }
    m->exits[m->n_exits++] = (local_exit){node, m->is_relative ? m->left_rounds : 0};
}

/* Rounds that a token needs which ends where the walk is now: a begun one counts. */
static uint32_t rounds_needed(const grammar_matcher *m, uint32_t begin, uint32_t end)
{
    if (!m->is_relative || begin == end)
        return 0;
    grammar_thread t = m->walk.data[begin];
    return t.count + (t.state != m->a->counters[m->a->counter_of[t.state] - 1].start);
}

/*
 * All tokens below `root` that match from the threads m->walk.data[0..m->walk.n) on go to m->found,
 * and, if asked for, the nodes where the base rule may be left to m->exits.
 */
static void walk_tree(grammar_matcher *m, uint32_t root, bool wants_exits)
{
    const grammar_vocab *v = m->v;
    uint32_t base = v->depth[root], end = v->next[root];
    m->begin[0] = 0;
    m->begin[1] = m->walk.n;
    for (uint32_t i = root + 1; i < end && !m->is_too_ambiguous && !m->is_stopped;) {
        uint32_t d = v->depth[i] - base;
        m->walk.n = m->begin[d];
        m->is_stopped |= !work_goes_on(m->limit, 1);
        if (!matcher_step(m, &m->walk, m->begin[d - 1], m->begin[d], v->byte[i], &m->walk)) {
            i = v->next[i];
            continue;
        }
        m->begin[d + 1] = m->walk.n;
        bool is_leaf = v->next[i] == i + 1;
        if (v->first[i] < v->first[i + 1]) {
            uint32_t need = rounds_needed(m, m->begin[d], m->walk.n);
            for (uint32_t k = v->first[i]; k < v->first[i + 1] && need <= MAX_ROUNDS; k++) {
                m->needs[m->n_found] = (uint8_t)need;
                m->found[m->n_found++] = v->order[k];
            }
        }
        if (wants_exits && m->is_left && !is_leaf)
            add_exit(m, i);
        i = m->walk.n == m->begin[d] ? v->next[i] : i + 1;
    }
}

/* ---- Local sets ------------------------------------------------------------------------------ */

static void set_bit(uint64_t *bits, lace_token t)
{
    bits[t / 64] |= (uint64_t)1 << (t % 64);
}

void local_set_free(local_set *l)
{
    if (!l)
        return;
    mem_free_all(l->tokens, l->n_within, l->bits, l->exits, l);
}

static void clear_locals(grammar_matcher *m)
{
    for (uint32_t s = 0; m->locals && m->local_bytes > 0 && s < m->a->n_states; s++) {
        local_set_free(m->locals[s]);
        m->locals[s] = NULL;
    }
    m->local_bytes = 0;
}

/* The found tokens in the order of the rounds they need, and how many need at most so many. */
static bool sort_by_rounds(const grammar_matcher *m, local_set *l)
{
    l->n_within = mem_calloc(MAX_ROUNDS + 1, sizeof *l->n_within);
    l->tokens = mem_calloc(m->n_found ? m->n_found : 1, sizeof *l->tokens);
    if (!l->n_within || !l->tokens)
        return false;
    uint32_t at[MAX_ROUNDS + 1] = {0}, sum = 0;
    for (uint32_t i = 0; i < m->n_found; i++)
        l->n_within[m->needs[i]]++;
    for (int k = 0; k <= MAX_ROUNDS; k++) {
        at[k] = sum;
        sum += l->n_within[k];
        l->n_within[k] = sum;
    }
    for (uint32_t i = 0; i < m->n_found; i++)
        l->tokens[at[m->needs[i]]++] = m->found[i];
    return true;
}

static bool store_local(grammar_matcher *m, local_set *l, bool counts)
{
    bool is_few = m->n_found < (uint32_t)m->v->n_vocab / FEW;
    l->n_tokens = m->n_found;
    l->n_exits = m->n_exits;
    l->exits = mem_calloc(m->n_exits ? m->n_exits : 1, sizeof *l->exits);
    if (!l->exits)
        return false;
    if (m->n_exits)
        memcpy(l->exits, m->exits, m->n_exits * sizeof *l->exits);
    m->local_bytes += sizeof *l + m->n_exits * sizeof *l->exits;
    if (counts && !sort_by_rounds(m, l))
        return false;
    if (!counts && is_few) {
        l->tokens = mem_calloc(m->n_found ? m->n_found : 1, sizeof *l->tokens);
        if (!l->tokens)
            return false;
        if (m->n_found)
            memcpy(l->tokens, m->found, m->n_found * sizeof *l->tokens);
    }
    if (l->tokens)
        m->local_bytes += m->n_found * sizeof *l->tokens;
    if (!is_few) {
        l->bits = mem_calloc(m->n_words, sizeof *l->bits);
        if (!l->bits)
            return false;
        for (uint32_t i = 0; i < m->n_found; i++)
            set_bit(l->bits, m->found[i]);
        m->local_bytes += m->n_words * sizeof *l->bits;
    }
    return true;
}

static const local_set *find_local(const grammar_matcher *m, uint32_t state)
{
    return m->core->prepared[state] ? m->core->prepared[state] : m->locals[state];
}

static lace_status make_local(grammar_matcher *m, uint32_t state, lace_error *err)
{
    if (find_local(m, state))
        return LACE_OK;
    bool counts = m->a->counter_of[state] != 0;
    m->n_found = m->n_exits = 0;
    m->walk.n = 0;
    m->is_relative = counts;
    if (!thread_list_add(&m->walk, (grammar_thread){state, 0, FRAME_UNKNOWN}))
        m->is_out_of_memory = true;
    else
        walk_tree(m, 0, true);
    m->is_relative = false;
    TRY(matcher_check(m, err));
    m->counts.n_locals++;
    local_set *l = mem_calloc(1, sizeof *l);
    if (!l || !store_local(m, l, counts)) {
        local_set_free(l);
        return error_nomem(err, "a grammar's tokens");
    }
    m->locals[state] = l;
    return LACE_OK;
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static void add_bits(uint64_t *out, const uint64_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] |= bits[i];
}

/* What a thread of a counting rule takes: tokens that need no more rounds than are left. */
static void add_counted(grammar_matcher *m, const local_set *l, uint32_t left, uint64_t *out)
{
    uint32_t n = l->n_within[left < MAX_ROUNDS ? left : MAX_ROUNDS];
    if (l->bits && n > l->n_tokens / 2) {
        /* All but the few that need more. */
        uint64_t *bits = m->scratch_mask;
        memcpy(bits, l->bits, m->n_words * sizeof *bits);
        for (uint32_t i = n; i < l->n_tokens; i++)
            bits[l->tokens[i] / 64] &= ~((uint64_t)1 << (l->tokens[i] % 64));
        add_bits(out, bits, m->n_words);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        set_bit(out, l->tokens[i]);
}

static void add_local(const grammar_matcher *m, const local_set *l, uint64_t *out)
{
    if (l->bits)
        add_bits(out, l->bits, m->n_words);
    else
        for (uint32_t i = 0; i < l->n_tokens; i++)
            set_bit(out, l->tokens[i]);
}

/* Tokens that leave the thread's rule in their middle, and go on where its stack says. */
static void add_exits(grammar_matcher *m, const local_set *l, grammar_thread t, uint32_t least,
                      uint32_t most, uint64_t *out)
{
    if (t.frame == FRAME_BOTTOM || l->n_exits == 0)
        return; /* nothing can follow */
    grammar_frame f = m->frames[t.frame];
    m->walk.n = 0;
    matcher_begin_closure(m);
    matcher_close(m, (grammar_thread){f.then, 0, f.below}, &m->walk);
    uint32_t n_threads = m->walk.n;
    m->n_found = 0;
    for (uint32_t i = 0; i < l->n_exits && n_threads > 0; i++) {
        if (l->exits[i].n_rounds < least || l->exits[i].n_rounds > most)
            continue;
        m->walk.n = n_threads;
        walk_tree(m, l->exits[i].node, false);
        for (uint32_t k = 0; k < m->n_found; k++)
            set_bit(out, m->found[k]);
        m->n_found = 0;
    }
}

/* Without the local set: near the top of the stack, where not everything local is possible. */
static lace_status add_by_walking(grammar_matcher *m, grammar_thread t, uint64_t *out,
                                  lace_error *err)
{
    m->walk.n = m->n_found = 0;
    if (!thread_list_add(&m->walk, t))
        return error_nomem(err, "a grammar's tokens");
    walk_tree(m, 0, false);
    for (uint32_t i = 0; i < m->n_found; i++)
        set_bit(out, m->found[i]);
    return matcher_check(m, err);
}

static lace_status add_thread(grammar_matcher *m, grammar_thread t, uint64_t *out, lace_error *err)
{
    if (m->frames[t.frame].depth + 2 * m->v->max_depth >= MAX_DEPTH)
        return add_by_walking(m, t, out, err);
    TRY(make_local(m, t.state, err));
    const local_set *l = find_local(m, t.state);
    uint32_t k = m->a->counter_of[t.state], least = 0, most = UINT32_MAX;
    if (k != 0) {
        const grammar_counter *c = &m->a->counters[k - 1];
        least = t.count < c->min ? c->min - t.count : 0;
        most = c->max == GRAMMAR_NO_MAX ? UINT32_MAX : c->max - t.count;
        add_counted(m, l, most, out);
    } else {
        add_local(m, l, out);
    }
    add_exits(m, l, t, least, most, out);
    return matcher_check(m, err);
}

static lace_status make_mask(grammar_position *p, uint64_t *out, lace_error *err)
{
    grammar_matcher *m = p->m;
    memset(out, 0, m->n_words * sizeof *out);
    m->n_steps = 0;
    for (uint32_t i = 0; i < p->threads.n; i++)
        TRY(add_thread(m, p->threads.data[i], out, err));
    if (p->is_complete)
        for (uint32_t i = 0; i < m->v->n_ends; i++)
            set_bit(out, m->v->ends[i]);
    return LACE_OK;
}

/* Keep the mask that lies behind the others under the position's key, until all are forgotten. */
static lace_status keep_mask(grammar_matcher *m, text key, lace_error *err)
{
    char *copy = arena_strndup(&m->mask_memory, key.data, key.size);
    if (!copy || map_add(&m->mask_of, (text){copy, key.size}, (int32_t)m->n_masks) != LACE_OK)
        return error_nomem(err, "a grammar's tokens");
    m->n_masks++;
    return LACE_OK;
}

static bool is_empty(const uint64_t *mask, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (mask[i])
            return false;
    return true;
}

lace_status grammar_position_allowed(grammar_position *p, const uint64_t **out, lace_error *err)
{
    grammar_matcher *m = p->m;
    *out = NULL;
    if (m->local_bytes > MAX_LOCAL_BYTES)
        clear_locals(m);
    /* The threads and whether the text is complete say all; the first thread of none
     * is a key too. */
    if (!thread_list_add(&p->threads, (grammar_thread){0, p->is_complete, 0}))
        return error_nomem(err, "a grammar's tokens");
    text key = {(const char *)p->threads.data, p->threads.n * sizeof *p->threads.data};
    p->threads.n--;
    int32_t at = map_find(&m->mask_of, key);
    if (at >= 0) {
        m->counts.n_masks_found++;
        *out = m->masks[at];
        return LACE_OK;
    }
    if (m->n_masks >= MAX_MASKS)
        masks_forget(m);
    if (!m->masks[m->n_masks])
        m->masks[m->n_masks] = mem_calloc(m->n_words + 1, sizeof **m->masks);
    uint64_t *mask = m->masks[m->n_masks];
    if (!mask)
        return error_nomem(err, "a grammar's tokens");
    m->counts.n_masks_made++;
    TRY(make_mask(p, mask, err));
    if (is_empty(mask, m->n_words))
        return p->is_complete || p->is_ended
                   ? error_set(err, LACE_E_GRAMMAR,
                               "the text is complete by the grammar, but the model has no token "
                               "that ends a text")
                   : error_set(err, LACE_E_GRAMMAR,
                               "no token of the vocabulary fits the grammar at this place");
    TRY(keep_mask(m, key, err));
    *out = mask;
    return LACE_OK;
}

void masks_forget(grammar_matcher *m)
{
    map_deinit(&m->mask_of);
    map_init(&m->mask_of);
    arena_deinit(&m->mask_memory);
    arena_init(&m->mask_memory, SIZE_MAX / 4);
    m->n_masks = 0;
}

/* ---- Lifetime -------------------------------------------------------------------------------- */

void masks_prepare(grammar_matcher *m)
{
    grammar_core *core = m->core;
    work_limit limit;
    work_limit_init(&limit, PREPARE_NS, NULL, NULL);
    m->limit = &limit;
    /* Failures come back when the set is needed. */
    for (uint32_t s = 1; s < m->a->n_states && m->local_bytes < MAX_PREPARED_BYTES; s++) {
        m->n_steps = 0;
        if (m->a->flags[s] & STATE_HAS_BYTES && make_local(m, s, NULL) != LACE_OK)
            break;
    }
    for (uint32_t s = 1; s < m->a->n_states; s++) {
        core->prepared[s] = m->locals[s];
        m->locals[s] = NULL;
    }
    core->n_bytes += m->local_bytes + m->a->n_states * sizeof *core->prepared;
    m->local_bytes = 0;
    m->limit = NULL;
}

lace_status masks_init(grammar_matcher *m, lace_error *err)
{
    size_t n_vocab = (size_t)m->v->n_vocab;
    map_init(&m->mask_of);
    arena_init(&m->mask_memory, SIZE_MAX / 4);
    m->n_words = (n_vocab + 63) / 64;
    bool ok = (m->begin = mem_calloc(m->v->max_depth + 2, sizeof *m->begin)) &&
              (m->found = mem_calloc(n_vocab + 1, sizeof *m->found)) &&
              (m->needs = mem_calloc(n_vocab + 1, sizeof *m->needs)) &&
              (m->locals = mem_calloc(m->a->n_states, sizeof(local_set *))) &&
              (m->masks = mem_calloc(MAX_MASKS, sizeof *m->masks)) &&
              (m->scratch_mask = mem_calloc(m->n_words + 1, sizeof *m->scratch_mask));
    if (!ok)
        return error_nomem(err, "a grammar's tokens");
    return LACE_OK;
}

void masks_deinit(grammar_matcher *m)
{
    clear_locals(m);
    map_deinit(&m->mask_of);
    arena_deinit(&m->mask_memory);
    for (uint32_t i = 0; m->masks && i < MAX_MASKS; i++)
        mem_free(m->masks[i]);
    mem_free_all(m->masks, m->locals, m->begin, m->found, m->needs, m->exits, m->scratch_mask,
                 m->walk.data);
}
