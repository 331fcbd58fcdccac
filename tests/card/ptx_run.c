/* Warps in lockstep, their turns, and the barriers at which they wait. */
#include "ptx_run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "card_options.h"
#include "ptx_async.h"
#include "ptx_races.h"
#include "ptx_hopper.h"

enum {
    WARP_TURN = 4000,    /* instructions until another warp of the block may go on */
    TEAM_TURN = 400000,  /* until another team may */
    POLLS_OF_A_TURN = 16 /* questions to memory, which only others can answer */
};

/* ---- Faults ---------------------------------------------------------------------------------- */

static void say_fault(warp *w, const instr *i, int lane, const char *what)
{
    const block *b = w->block;
    launch *l = b->team->launch;
    if (__atomic_exchange_n(&l->failed, true, __ATOMIC_SEQ_CST))
        return; /* one line is enough */
    size_t n = i ? strcspn(i->text, ";\n") : 0;
    fprintf(stderr, "card: %s, block (%u, %u, %u), thread %u, line %u of the PTX: %s: %.*s\n",
            w->kernel->name, b->index[0], b->index[1], b->index[2],
            w->index * N_LANES + (uint32_t)lane, i ? i->line : 0, what, (int)(n < 200 ? n : 200),
            i ? i->text : "");
}

void warp_fault(warp *w, const instr *i, int lane, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    say_fault(w, i, lane, what);
    w->block->team->failed = true;
}

/* ---- Barriers -------------------------------------------------------------------------------- */

static void open_barrier(block *b, uint32_t n)
{
    races_pass(b);
    b->arrived[n] = 0;
    b->expected[n] = 0;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        warp *w = &b->warps[k];
        w->waits_barrier &= ~w->barrier[n];
        w->barrier[n] = 0;
    }
}

static void look_at_barrier(block *b, uint32_t n)
{
    uint32_t expected = b->expected[n] ? b->expected[n] : b->n_alive;
    if (b->arrived[n] && b->arrived[n] >= expected)
        open_barrier(b, n);
}

static void look_at_cluster(team *t)
{
    uint32_t n_alive = 0;
    for (uint32_t k = 0; k < t->n_blocks; k++)
        n_alive += t->blocks[k].n_alive;
    if (t->cluster_arrived == 0 || t->cluster_arrived < n_alive)
        return;
    t->cluster_arrived = 0;
    t->cluster_phase++;
    for (uint32_t k = 0; k < t->n_blocks; k++)
        races_pass(&t->blocks[k]);
    for (uint32_t k = 0; k < t->n_blocks; k++)
        for (uint32_t n = 0; n < t->blocks[k].n_warps; n++) {
            warp *w = &t->blocks[k].warps[n];
            w->waits_barrier &= ~w->cluster_wait;
            w->cluster_wait = 0;
        }
}

/* The lanes are behind the instruction already. */
static void arrive(warp *w, const instr *i, uint32_t mask)
{
    block *b = w->block;
    const int first = __builtin_ctz(mask);
    const uint32_t n = row_of(w, i->op[0])[first];
    if (n >= N_BARRIERS) {
        warp_fault(w, i, first, "barrier %u", n);
        return;
    }
    uint32_t expected = i->is_wide ? row_of(w, i->op[1])[first] : 0;
    if (b->arrived[n] && b->expected[n] != expected) {
        warp_fault(w, i, first, "barrier %u is for %u threads, others say %u", n, expected,
                   b->expected[n]);
        return;
    }
    b->expected[n] = expected;
    b->arrived[n] += (uint32_t)__builtin_popcount(mask);
    if (!i->mode) {
        w->barrier[n] |= mask;
        w->waits_barrier |= mask;
    }
    look_at_barrier(b, n);
}

static void cluster_barrier(warp *w, const instr *i, uint32_t mask)
{
    team *t = w->block->team;
    if (i->mode) { /* wait */
        uint32_t waits = 0;
        for (int l = 0; l < N_LANES; l++)
            if (mask >> l & 1 && w->cluster_phase[l] == t->cluster_phase)
                waits |= 1u << l;
        w->cluster_wait |= waits;
        w->waits_barrier |= waits;
        return;
    }
    for (int l = 0; l < N_LANES; l++)
        if (mask >> l & 1)
            w->cluster_phase[l] = t->cluster_phase;
    t->cluster_arrived += (uint32_t)__builtin_popcount(mask);
    look_at_cluster(t);
}

static void leave(warp *w, const instr *i, uint32_t mask)
{
    block *b = w->block;
    w->alive &= ~mask;
    b->n_alive -= (uint32_t)__builtin_popcount(mask);
    const char *wrong = w->alive ? NULL : async_end(w);
    if (!w->alive && !wrong)
        wrong = group_end(w);
    if (!w->alive && !wrong)
        wrong = bulk_warp_end(w);
    if (wrong)
        warp_fault(w, i, __builtin_ctz(mask), "%s", wrong);
    for (uint32_t n = 0; n < N_BARRIERS; n++)
        look_at_barrier(b, n);
    look_at_cluster(b->team);
}

/* ---- A warp ---------------------------------------------------------------------------------- */

/* Lanes that can go on. */
static uint32_t runnable(const warp *w)
{
    const uint32_t can = w->alive & ~w->waits_barrier & ~w->waits_together;
    return w->block->team->launch->is_early ? can & ~w->waits_launch : can;
}

/* The lanes at the lowest instruction, and where the next ones of the others are. */
static uint32_t choose(const warp *w, uint32_t *pc, uint32_t *limit)
{
    const uint32_t can = runnable(w);
    uint32_t at[N_LANES], least = UINT32_MAX, next = UINT32_MAX, mask = 0;
    for (int l = 0; l < N_LANES; l++)
        at[l] = can >> l & 1 ? w->pc[l] : UINT32_MAX;
    for (int l = 0; l < N_LANES; l++)
        least = at[l] < least ? at[l] : least;
    for (int l = 0; l < N_LANES; l++)
        next = at[l] != least && at[l] < next ? at[l] : next;
    for (int l = 0; l < N_LANES; l++)
        mask |= (uint32_t)(at[l] == least) << l;
    *pc = least;
    *limit = next;
    return mask & can;
}

static void put_pc(warp *w, uint32_t mask, uint32_t pc)
{
    FOR_LANES(mask, w->pc[l] = pc;);
}

/*
 * Lanes at an instruction that others must reach. Returns those that do it now: all that are named,
 * or none. Lanes that have ended are not waited for.
 */
static uint32_t together(warp *w, const instr *i, uint32_t mask, uint32_t pc)
{
    const uint32_t members = row_of(w, i->op[4])[__builtin_ctz(mask)] & w->alive;
    if ((mask & members) != mask) {
        warp_fault(w, i, __builtin_ctz(mask & ~members), "the mask 0x%x does not name this lane",
                   members);
        return 0;
    }
    if ((members & ~mask) == 0)
        return mask;
    uint32_t there = mask;
    for (int l = 0; l < N_LANES; l++) {
        if (!(w->waits_together >> l & 1 & members >> l))
            continue;
        if (w->pc[l] == pc ||
            (i->kind == KIND_WARP_SYNC && w->kernel->code[w->pc[l]].kind == KIND_WARP_SYNC))
            there |= 1u << l;
    }
    if (members & ~there) {
        put_pc(w, mask, pc);
        w->waits_together |= mask;
        return 0;
    }
    w->waits_together &= ~there;
    return there;
}

/* Run until the turn is over or nothing can go on. Returns how many instructions were done. */
static uint32_t warp_run(warp *w, uint32_t turn)
{
    const instr *code = w->kernel->code;
    const team *t = w->block->team;
    uint32_t left = turn, polls = 0, lanes = 0, pc, limit;
    uint32_t mask = choose(w, &pc, &limit);
    w->polled = false;
    while (left && mask) {
        const instr *i = &code[pc];
        uint32_t active = mask;
        left--;
        lanes += (uint32_t)__builtin_popcount(mask);
        if (i->guard != NO_GUARD) {
            const uint32_t p = w->predicates[i->guard];
            active &= i->guard_not ? ~p : p;
        }
        if (i->kind == KIND_PLAIN) {
            if (active) {
                i->run(w, i, active);
                if (t->failed)
                    break;
            }
            if (++pc < limit)
                continue;
            put_pc(w, mask, pc);
            mask = choose(w, &pc, &limit);
            continue;
        }
        switch (i->kind) {
        case KIND_BRANCH:
            if (active == mask) {
                pc = i->target;
                if (pc < limit)
                    continue;
                put_pc(w, mask, pc);
            } else if (!active) {
                if (++pc < limit)
                    continue;
                put_pc(w, mask, pc);
            } else {
                put_pc(w, active, i->target);
                put_pc(w, mask & ~active, pc + 1);
            }
            break;
        case KIND_EXIT:
            put_pc(w, mask, pc + 1);
            if (active)
                leave(w, i, active);
            break;
        case KIND_TOGETHER:
        case KIND_WARP_SYNC: {
            const bool was_whole = (mask & ~active) == 0;
            if (!was_whole)
                put_pc(w, mask & ~active, pc + 1);
            uint32_t there = active ? together(w, i, active, pc) : 0;
            if (there) {
                i->run(w, i, there);
                if (there == mask && was_whole) {
                    if (++pc < limit)
                        continue;
                    put_pc(w, mask, pc);
                    break;
                }
                /* Those that waited elsewhere go on behind where they are. */
                for (int l = 0; l < N_LANES; l++)
                    if (there >> l & 1)
                        w->pc[l] = (mask >> l & 1 ? pc : w->pc[l]) + 1;
            }
            break;
        }
        case KIND_BARRIER:
        case KIND_CLUSTER_WAIT:
            put_pc(w, mask, pc + 1);
            if (active && i->kind == KIND_BARRIER)
                arrive(w, i, active);
            else if (active)
                cluster_barrier(w, i, active);
            break;
        case KIND_LAUNCH_WAIT: {
            const uint32_t waits = t->launch->is_early ? active : 0;
            put_pc(w, mask & ~waits, pc + 1);
            put_pc(w, waits, pc);
            w->waits_launch = waits ? w->waits_launch | waits : 0;
            break;
        }
        default: /* KIND_POLL */
            put_pc(w, mask, pc + 1);
            if (active)
                i->run(w, i, active);
            if (++polls == POLLS_OF_A_TURN) {
                w->polled = true;
                turn -= left;
                left = 0;
            }
            break;
        }
        if (t->failed)
            break;
        mask = choose(w, &pc, &limit);
    }
    if (mask)
        put_pc(w, mask, pc);
    w->n_done += turn - left;
    w->n_lanes += lanes;
    return turn - left;
}

/* ---- A team ---------------------------------------------------------------------------------- */

/* What a warp that cannot go on waits for, in words. */
static void say_stuck(team *t)
{
    for (uint32_t k = 0; k < t->n_blocks; k++)
        for (uint32_t n = 0; n < t->blocks[k].n_warps; n++) {
            warp *w = &t->blocks[k].warps[n];
            if (!w->alive)
                continue;
            int l = __builtin_ctz(w->alive);
            uint32_t pc = w->pc[l];
            if (w->waits_barrier >> l & 1)
                pc--;
            warp_fault(w, &w->kernel->code[pc], l, "all threads wait for each other");
            return;
        }
}

/* How long a warp may go on: WARP_TURN, or any time, also none. Short turns let warps be anywhere
 * beside each other, long ones let one be far ahead. */
static uint32_t turn_of_warp(team *t)
{
    if (!t->dice)
        return WARP_TURN;
    t->dice ^= t->dice << 13;
    t->dice ^= t->dice >> 7;
    t->dice ^= t->dice << 17;
    const uint32_t n = (uint32_t)(t->dice >> 34);
    static const uint32_t most[4] = {0, 16, 256, WARP_TURN};
    const uint32_t longest = most[t->dice >> 32 & 3];
    return longest ? 1 + n % longest : 0;
}

static bool run_turn(team *t)
{
    uint32_t turn = 0;
    while (!t->failed && !__atomic_load_n(&t->launch->failed, __ATOMIC_RELAXED)) {
        uint32_t done = 0, n_alive = 0;
        bool only_polled = true, left_out = false;
        for (uint32_t k = 0; k < t->n_blocks; k++) {
            block *b = &t->blocks[k];
            for (uint32_t n = 0; n < b->n_warps && !t->failed; n++) {
                warp *w = &b->warps[n];
                const uint32_t length = runnable(w) ? turn_of_warp(t) : 0;
                left_out = left_out || (runnable(w) && !length);
                if (!length)
                    continue;
                done += warp_run(w, length);
                if (runnable(w) && !w->polled)
                    only_polled = false;
            }
            n_alive += b->n_alive;
        }
        n_alive = 0;
        for (uint32_t k = 0; k < t->n_blocks; k++)
            n_alive += t->blocks[k].n_alive;
        if (n_alive == 0 || t->failed)
            return true;
        if (done == 0 && !left_out && t->launch->is_early)
            return false;
        if (done == 0 && !left_out) {
            say_stuck(t);
            return true;
        }
        turn += done;
        if (turn >= TEAM_TURN)
            return false;
        bool can = false;
        for (uint32_t k = 0; k < t->n_blocks; k++)
            for (uint32_t n = 0; n < t->blocks[k].n_warps; n++) {
                const warp *w = &t->blocks[k].warps[n];
                can = can || (runnable(w) && !w->polled);
            }
        if (only_polled && !left_out && !can)
            return false;
    }
    return true;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool team_run(team *t)
{
    kernel *k = (kernel *)t->launch->kernel;
    const uint64_t begin = cpu_ns();
    const bool ended = run_turn(t);
    uint64_t n_done = 0, n_lanes = 0;
    for (uint32_t b = 0; b < t->n_blocks; b++)
        for (uint32_t n = 0; n < t->blocks[b].n_warps; n++) {
            warp *w = &t->blocks[b].warps[n];
            n_done += w->n_done;
            n_lanes += w->n_lanes;
            w->n_done = w->n_lanes = 0;
        }
    __atomic_add_fetch(&k->n_done, n_done, __ATOMIC_RELAXED);
    __atomic_add_fetch(&k->n_lanes, n_lanes, __ATOMIC_RELAXED);
    __atomic_add_fetch(&k->cpu_ns, cpu_ns() - begin, __ATOMIC_RELAXED);
    return ended;
}

/* ---- Making teams ---------------------------------------------------------------------------- */

static size_t rounded(size_t n)
{
    return (n + 127) / 128 * 128;
}

team *team_make(launch *l)
{
    const kernel *k = l->kernel;
    const uint32_t n_threads = l->block[0] * l->block[1] * l->block[2];
    const uint32_t n_warps = (n_threads + N_LANES - 1) / N_LANES;
    const size_t registers = ((size_t)k->n_rows + 2) * N_LANES * 4;
    const size_t predicates = rounded(((size_t)k->n_predicates + 1) * 4);
    const size_t local = rounded((size_t)k->local_bytes * N_LANES);
    const size_t of_warp = registers + predicates + local;
    const size_t of_block = rounded(l->all_shared) + n_warps * of_warp;
    team *t = calloc(1, sizeof *t);
    void *memory = NULL;
    if (!t || posix_memalign(&memory, 128, l->cluster * of_block + 128) != 0) {
        free(t);
        return NULL;
    }
    t->launch = l;
    t->memory = memory;
    t->memory_bytes = l->cluster * of_block;
    t->n_blocks = l->cluster;
    uint8_t *p = memory;
    for (uint32_t n = 0; n < t->n_blocks; n++) {
        block *b = &t->blocks[n];
        b->team = t;
        b->rank = n;
        b->n_warps = n_warps;
        b->n_threads = n_threads;
        b->shared = p;
        p += rounded(l->all_shared);
        races_make(b);
        b->warps = calloc(n_warps, sizeof *b->warps);
        if (!b->warps) {
            team_free(t);
            return NULL;
        }
        for (uint32_t m = 0; m < n_warps; m++) {
            warp *w = &b->warps[m];
            w->base[0] = (uint32_t *)(void *)p;
            w->base[1] = k->constants;
            w->predicates = (uint32_t *)(void *)(p + registers);
            w->local = p + registers + predicates;
            w->block = b;
            w->kernel = k;
            w->index = m;
            p += of_warp;
        }
    }
    memset(memory, 0xFF, t->memory_bytes);
    return t;
}

void team_begin(team *t, uint32_t number)
{
    const launch *l = t->launch;
    const uint32_t clusters_x = l->grid[0] / l->cluster;
    t->cluster_arrived = t->cluster_phase = 0;
    t->dice = card_options_get()->turns * (0x9e3779b97f4a7c15 * (uint64_t)(number + 1));
    for (uint32_t n = 0; n < t->n_blocks; n++) {
        block *b = &t->blocks[n];
        b->index[0] = number % clusters_x * l->cluster + n;
        b->index[1] = number / clusters_x % l->grid[1];
        b->index[2] = number / clusters_x / l->grid[1];
        memset(b->shared, 0xFF, l->all_shared);
        races_pass(b);
        memset(b->arrived, 0, sizeof b->arrived);
        memset(b->expected, 0, sizeof b->expected);
        b->n_alive = b->n_threads;
        b->n_resized = b->spare = 0;
        for (uint32_t m = 0; m < b->n_warps; m++) {
            warp *w = &b->warps[m];
            const uint32_t left = b->n_threads - m * N_LANES;
            memset(w->pc, 0, sizeof w->pc);
            w->alive = left >= N_LANES ? FULL_MASK : (1u << left) - 1;
            w->waits_together = w->waits_barrier = w->cluster_wait = w->waits_launch = 0;
            w->registers = 0;
            memset(w->barrier, 0, sizeof w->barrier);
            memset(w->cluster_phase, 0xFF, sizeof w->cluster_phase);
        }
    }
}

void team_free(team *t)
{
    if (!t)
        return;
    for (uint32_t n = 0; n < t->n_blocks; n++) {
        block *b = &t->blocks[n];
        for (uint32_t m = 0; b->warps && m < b->n_warps; m++) {
            async_free(&b->warps[m]);
            group_free(&b->warps[m]);
        }
        free(b->warps);
        races_free(b);
    }
    async_team_free(t);
    bulk_team_free(t);
    free(t->memory);
    free(t);
}
