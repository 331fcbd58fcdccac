/*
 * States: what the layers of a model remember of the sequences. A layer keeps keys and values of
 * all tokens seen so far, in pages (the KV cache), or a piece of memory of a fixed size that every
 * token changes (recurrent state), or both, or nothing.
 *
 * A page holds 32 positions of one sequence for all layers of a group. Sequences hold tables of
 * page numbers; pages are counted, so sequences with a common beginning share them, and a shared
 * page is copied when one of them writes into it.
 *
 * A group is a set of layers that look equally far back. Layers that see everything form one group;
 * layers with a sliding window form another, whose pages are given back when they fall out of the
 * window. Layers on different devices (backend/mixed.h) are of different groups.
 *
 * Inside a page: for each layer of the group K, then V; in each, for every KV head, 32 rows of
 * k_dim or v_dim values. A latent layer has no V: it is the first v_dim values of K. A layer that
 * shares the pages of an earlier one adds nothing:
 *
 *     page -> layer 0 [K: head 0 [32 rows] head 1 [32 rows] ...][V: ...]  layer 1 ...
 *
 * Recurrent state lies in slots (slots.h). What pages hold of a token stays when the token is taken
 * back, and is written again; recurrent state can only return to a snapshot. So whoever takes
 * tokens back asks states_reach how far to go, and computes the tokens from there on again.
 */
#ifndef LACE_STATE_STATES_H
#define LACE_STATE_STATES_H

#include "backend/queue.h"
#include "base/status.h"
#include "ops/step.h"
#include "state/slots.h"

enum {
    PAGE_TOKENS = 32,
    STATES_MAX_GROUPS = 8,
    STATES_TAKE_BACK =
        32, /* tokens that can always be taken back: windows keep their pages longer by this */
};

/* Kinds are bits: a layer with pages and recurrent state is of both. */
typedef enum state_kind {
    STATE_NONE,
    STATE_PAGED = 1,
    STATE_RECURRENT = 2,
    STATE_BOTH = STATE_PAGED | STATE_RECURRENT
} state_kind;

/* What a layer remembers of a sequence. */
typedef struct layer_state {
    state_kind kind;

    /* STATE_PAGED */
    int32_t n_heads, k_dim, v_dim;
    int32_t n_total; /* heads of all ranks; 0: these are all */
    bool v_in_k;     /* V is the first v_dim values of K, and takes no room */
    int32_t window;  /* positions that the layer sees, its own included; 0: all */
    int32_t shares;  /* an earlier layer whose pages this one uses, which then says the rest, and
                       whose window is not shorter; -1: it has its own */

    uint64_t n_bytes; /* STATE_RECURRENT: for each sequence */
    int32_t device;   /* of a model on several: where the layer is */
} layer_state;

static inline layer_state layer_state_paged(int32_t n_heads, int32_t k_dim, int32_t v_dim,
                                            int32_t window)
{
    return (layer_state){.kind = STATE_PAGED,
                         .n_heads = n_heads,
                         .k_dim = k_dim,
                         .v_dim = v_dim,
                         .window = window,
                         .shares = -1};
}

/* One row of k_dim values for each position, whose first v_dim are V. */
static inline layer_state layer_state_latent(int32_t k_dim, int32_t v_dim)
{
    layer_state l = layer_state_paged(1, k_dim, v_dim, 0);
    l.v_in_k = true;
    return l;
}

/* Where that is, as plans are told. The address of the data is known when states are allocated. */
typedef struct layer_memory {
    state_kind kind;
    kv_layer kv;               /* STATE_PAGED */
    recurrent_layer recurrent; /* STATE_RECURRENT */
} layer_memory;

typedef struct states_options {
    dtype type, v_type; /* of keys and values: see kv_layer */
    int32_t n_sequences;
    int32_t n_context;   /* positions of a sequence */
    int32_t n_batch;     /* positions added at once: a window's pages must hold them too */
    int32_t n_snapshots; /* of recurrent state, if there is any; SLOT_KEPT for each sequence is
                            what they keep at most, more is of use to a prefix tree */
    int32_t max_tokens;  /* of all sequences together, at least n_context; 0: all may be full */
    uint64_t max_bytes;  /* of all that is remembered; 0: enough for every sequence to be full */
} states_options;

typedef struct page_group {
    int32_t window; /* 0: everything */
    uint64_t page_bytes;
    int32_t n_pages;     /* in the pool */
    int32_t *free_pages; /* [n_free] a stack */
    int32_t n_free;
    int32_t *n_users; /* [n_pages] sequences that hold the page */
    int32_t device;
    queue *queue;  /* whose memory it is, and in which pages are copied */
    uint8_t *data; /* [n_pages * page_bytes] */
} page_group;

typedef struct sequence_state {
    int32_t n_tokens;
    int32_t *tables[STATES_MAX_GROUPS];    /* [pages of a full context] page numbers; -1: none */
    int32_t first_page[STATES_MAX_GROUPS]; /* pages before this one were given back */
} sequence_state;

typedef struct states {
    states_options options;
    int32_t n_layers;
    layer_memory *layers; /* [n_layers] without addresses: those are in groups and slots */
    int32_t n_groups;
    page_group groups[STATES_MAX_GROUPS];
    int32_t pages_per_sequence; /* entries of a table */
    sequence_state *sequences;  /* [n_sequences] */
    slots slots;                /* recurrent state */
    queue *queue; /* whose memory all of it is; each group and slot has its device's */
} states;

/* Lay the memory out; states_bytes is then known, but nothing large is allocated. */
lace_status states_create(const layer_state *layers, int32_t n_layers,
                          const states_options *options, states **out, lace_error *err);
void states_free(states *kv);
uint64_t states_bytes(const states *kv);
uint64_t states_bytes_on(const states *kv, int32_t device);

/* What a token adds, and what a sequence takes whatever its length. */
uint64_t states_token_bytes(const states *kv);
uint64_t states_sequence_bytes(const states *kv);

/* How many pages every group has, [n_groups], in place of what was found. Before states_allocate. */
void states_set_pages(states *kv, const int32_t *n_pages);

/* Take the memory of all pages and slots, of a queue. Pages cost nothing until they are written. */
lace_status states_allocate(states *kv, queue *q, lace_error *err);

/*
 * Make room for n more tokens of a sequence: takes pages, and copies the last one if it is shared.
 * LACE_E_CONTEXT if the sequence or the pool is full; then nothing has changed. The length stays.
 *
 * Recurrent state counts as changed by all n tokens from now on: set the length that much longer
 * when they have been computed, or else go back to a length that states_reach allows.
 */
lace_status states_reserve(states *kv, int32_t sequence, int32_t n, lace_error *err);

/* The same for pages alone: recurrent state stays as it is. */
lace_status states_reserve_pages(states *kv, int32_t sequence, int32_t n, lace_error *err);

/*
 * states_reserve for all sequences, so that each can become as long as lengths says. With recurrent
 * layers, nothing has changed in any sequence if the pool cannot take all of them.
 */
lace_status states_reserve_all(states *kv, const int32_t *lengths, lace_error *err);

/* Pages that several sequences would take together. Starts as {0}. */
typedef struct page_demand {
    int32_t n_pages[STATES_MAX_GROUPS];
} page_demand;

/* What states_reserve(kv, sequence, n) would take is added to the demand. */
void states_add_demand(const states *kv, int32_t sequence, int32_t n, page_demand *demand);
bool states_can_meet(const states *kv, const page_demand *demand);

/*
 * The longest length, up to n_tokens, that a sequence can go back to. That is n_tokens itself; but
 * 0 if layers with a window have already given back what the sequence would need, and with recurrent
 * layers the length of the last snapshot. Tokens behind it are to be computed again by the caller.
 */
int32_t states_reach(const states *kv, int32_t sequence, int32_t n_tokens);

/* Whether that is n_tokens. */
bool states_can_truncate(const states *kv, int32_t sequence, int32_t n_tokens);

/*
 * How many of the next n tokens of a sequence to compute in one batch. All of them; with recurrent
 * layers up to the last page that they fill, because snapshots are made only where batches end.
 */
int32_t states_next_stop(const states *kv, int32_t sequence, int32_t n);

/*
 * Make the sequence n_tokens long; pages that it no longer needs are given back. A shorter length
 * is one that states_reach allows.
 */
void states_set_length(states *kv, int32_t sequence, int32_t n_tokens);

/* Let the empty sequence `to` share all pages of `from`, and have a copy of its slot. */
lace_status states_fork(states *kv, int32_t from, int32_t to, lace_error *err);

/* The slot of a sequence's recurrent state, for batch.slots. */
int32_t states_slot(const states *kv, int32_t sequence);

/*
 * Recurrent state of a sequence as it is, to go back to. The sequence keeps it as the one that was
 * asked for last, and the caller holds it until snapshot_drop(&kv->slots, ...). -1, which may be
 * dropped too: the sequence is empty, no layer is recurrent and so there is no need, or no slot is
 * free.
 */
int32_t states_snapshot(states *kv, int32_t sequence);

/* Let a sequence that is as long as the snapshot have its recurrent state. */
void states_restore(states *kv, int32_t sequence, int32_t snapshot);

/* The first page that layers of a group still see when a sequence has n_tokens. */
int32_t states_first_page(const states *kv, int32_t group, int32_t n_tokens);

/* Take a free page, of which there must be one, for one holder; and where its bytes are. */
int32_t page_take(page_group *group);
uint8_t *page_data(const page_group *group, int32_t page);

/* Let go of the page in *slot, which becomes -1; free when nobody else holds it. */
void page_drop(page_group *group, int32_t *slot);

int32_t states_pages_used(const states *kv, int32_t group);
int32_t states_snapshots_used(const states *kv);

#endif
