/* The prefix tree: pages and snapshots of states by the tokens they were computed from. */
#include "state/prefix_tree.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

typedef struct node node;
struct node {
    node *parent, *children, *sibling;
    node *older, *newer;              /* by last use */
    int32_t n_tokens;                 /* PAGE_TOKENS, but for a leaf */
    int32_t pages[STATES_MAX_GROUPS]; /* -1: given back */
    int32_t snapshot;                 /* of recurrent state where the node ends; -1: none */
    bool is_stored;                   /* in the store; a snapshot that came later is not */
    int32_t tokens[PAGE_TOKENS];
};

/* Where the texts of an owner begin: a node without a page and tokens. It goes
 * with its last child. */
typedef struct root {
    node n;
    uint64_t owner;
    struct root *next;
} root;

struct prefix_tree {
    states *kv;
    root *roots;
    node *oldest, *newest;
    const node *held; /* not to be given up, as more is loaded behind it; NULL: none */
    uint64_t n_evicted;
    page_store *store; /* NULL: none */
    page_shape shape;  /* of what is stored */
    buf file;          /* that is being read */
};

/* ---- By last use ----------------------------------------------------------------------------- */

static void unlink_use(prefix_tree *t, node *n)
{
    *(n->older ? &n->older->newer : &t->oldest) = n->newer;
    *(n->newer ? &n->newer->older : &t->newest) = n->older;
}

static void link_newest(prefix_tree *t, node *n)
{
    n->older = t->newest;
    n->newer = NULL;
    *(t->newest ? &t->newest->newer : &t->oldest) = n;
    t->newest = n;
}

static bool is_root(const node *n)
{
    return !n->parent;
}

/* From the leaf to the root, so that ends of branches are the oldest. */
static void touch_path(prefix_tree *t, node *n)
{
    for (; !is_root(n); n = n->parent) {
        unlink_use(t, n);
        link_newest(t, n);
    }
}

/* ---- Owners ---------------------------------------------------------------------------------- */

static root *find_root(const prefix_tree *t, uint64_t owner)
{
    root *r = t->roots;
    while (r && r->owner != owner)
        r = r->next;
    return r;
}

static root *add_root(prefix_tree *t, uint64_t owner)
{
    root *r = mem_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->owner = owner;
    r->next = t->roots;
    t->roots = r;
    return r;
}

static void remove_root(prefix_tree *t, node *n)
{
    root **at = &t->roots;
    while (&(*at)->n != n)
        at = &(*at)->next;
    root *gone = *at;
    *at = gone->next;
    mem_free(gone);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static int32_t common(const node *n, const int32_t *tokens, int32_t n_tokens)
{
    int32_t i = 0, end = n->n_tokens < n_tokens ? n->n_tokens : n_tokens;
    while (i < end && n->tokens[i] == tokens[i])
        i++;
    return i;
}

/* The child that shares most of the tokens; NULL if none shares any. */
static node *best_child(const node *parent, const int32_t *tokens, int32_t n_tokens, int32_t *n_out)
{
    node *best = NULL;
    *n_out = 0;
    for (node *n = parent->children; n && *n_out < n_tokens; n = n->sibling) {
        int32_t shared = common(n, tokens, n_tokens);
        if (shared > *n_out) {
            *n_out = shared;
            best = n;
        }
    }
    return best;
}

/* Take those pages of the sequence that the node lacks. */
static void take_pages(prefix_tree *t, node *n, int32_t sequence, int32_t index)
{
    for (int32_t g = 0; g < t->kv->n_groups; g++) {
        if (n->pages[g] >= 0)
            continue;
        n->pages[g] = t->kv->sequences[sequence].tables[g][index];
        if (n->pages[g] >= 0)
            t->kv->groups[g].n_users[n->pages[g]]++;
    }
}

/* All that the node holds. */
static void drop_state(prefix_tree *t, node *n)
{
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        if (n->pages[g] >= 0)
            page_drop(&t->kv->groups[g], &n->pages[g]);
    snapshot_drop(&t->kv->slots, &n->snapshot);
}

static bool is_empty(const prefix_tree *t, const node *n)
{
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        if (n->pages[g] >= 0)
            return false;
    return n->snapshot < 0;
}

static node *add_child(prefix_tree *t, node *parent, const int32_t *tokens, int32_t n_tokens)
{
    node *n = mem_calloc(1, sizeof *n);
    if (!n)
        return NULL;
    memcpy(n->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    memset(n->pages, 0xFF, sizeof n->pages); /* -1 */
    n->snapshot = -1;
    n->n_tokens = n_tokens;
    n->parent = parent;
    n->sibling = parent->children;
    parent->children = n;
    link_newest(t, n);
    return n;
}

static void remove_leaf(prefix_tree *t, node *n)
{
    assert(!n->children);
    node *parent = n->parent, **at = &parent->children;
    while (*at != n)
        at = &(*at)->sibling;
    *at = n->sibling;
    unlink_use(t, n);
    drop_state(t, n);
    mem_free(n);
    if (is_root(parent) && !parent->children)
        remove_root(t, parent);
}

/* A branch that has given up all its pages is of no use, up to where another one leaves it. */
static void remove_empty(prefix_tree *t, node *n)
{
    while (!n->children && is_empty(t, n) && n != t->held) {
        node *parent = n->parent;
        bool was_last = is_root(parent); /* which may go with it */
        t->n_evicted += (uint64_t)n->n_tokens;
        remove_leaf(t, n);
        if (was_last)
            return;
        n = parent;
    }
}

/* ---- Looking up ------------------------------------------------------------------------------ */

/* The deepest node on the way of the tokens, and how many tokens it ends behind. NULL: none. */
static node *walk(const prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n,
                  int32_t *n_out)
{
    root *begin = find_root(t, owner);
    node *at = begin ? &begin->n : NULL;
    *n_out = 0;
    while (at) {
        int32_t shared;
        node *child = best_child(at, tokens + *n_out, n - *n_out, &shared);
        if (!child)
            return is_root(at) ? NULL : at;
        *n_out += shared;
        at = child;
        if (shared < PAGE_TOKENS)
            return child;
    }
    return NULL;
}

/*
 * The first page from which on a group has all pages of the path that ends at n, whose index is
 * `last`.
 */
static int32_t first_kept(const node *n, int32_t last, int32_t g)
{
    int32_t first = last + 1;
    for (; !is_root(n) && n->pages[g] >= 0; n = n->parent)
        first--;
    return first;
}

static void share_path(prefix_tree *t, int32_t sequence, const node *n, int32_t last, int32_t found)
{
    sequence_state *s = &t->kv->sequences[sequence];
    for (int32_t g = 0; g < t->kv->n_groups; g++) {
        int32_t first = first_kept(n, last, g);
        const node *at = n;
        for (int32_t i = last; i >= first; i--, at = at->parent) {
            s->tables[g][i] = at->pages[g];
            t->kv->groups[g].n_users[at->pages[g]]++;
        }
        s->first_page[g] = first;
    }
    s->n_tokens = found;
}

static bool has_recurrent(const prefix_tree *t)
{
    return t->kv->slots.slot_bytes > 0;
}

/* Whether the tree has all that a text needs to go on behind `found` tokens, the last in n. */
static bool is_whole(const prefix_tree *t, const node *n, int32_t found)
{
    int32_t last = (found - 1) / PAGE_TOKENS;
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        if (first_kept(n, last, g) > states_first_page(t->kv, g, found))
            return false;
    return !has_recurrent(t) ||
           (n->snapshot >= 0 && t->kv->slots.snapshots[n->snapshot].n_tokens == found);
}

/* The deepest node on the way of the tokens behind which a text can begin. */
static node *walk_to_whole(const prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n,
                           int32_t *found)
{
    node *at = walk(t, owner, tokens, n, found);
    while (at && !is_root(at) && !is_whole(t, at, *found)) {
        *found = (*found - 1) / PAGE_TOKENS * PAGE_TOKENS; /* where the parent ends */
        at = at->parent;
    }
    return at && !is_root(at) ? at : NULL;
}

int32_t prefix_tree_find(const prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n)
{
    int32_t found;
    if (has_recurrent(t))
        return walk_to_whole(t, owner, tokens, n, &found) ? found : 0;
    walk(t, owner, tokens, n, &found);
    return found;
}

static void load_path(prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n);

/* Why a text of n tokens cannot begin with more than `found` of them. */
static lace_reuse_end find_end(const prefix_tree *t, uint64_t owner, const int32_t *tokens,
                               int32_t n, int32_t found)
{
    int32_t known;
    const node *at = walk(t, owner, tokens, n, &known);
    const root *begin = find_root(t, owner);
    if (found == n)
        return LACE_REUSE_ALL;
    if (known > found)
        return LACE_REUSE_LOST;
    if (!at)
        return begin ? LACE_REUSE_DIFFERS : LACE_REUSE_NEW;
    bool goes_on = at->children || (known - 1) % PAGE_TOKENS + 1 < at->n_tokens;
    return goes_on ? LACE_REUSE_DIFFERS : LACE_REUSE_NEW;
}

int32_t prefix_tree_begin(prefix_tree *t, uint64_t owner, int32_t sequence, const int32_t *tokens,
                          int32_t n, lace_reuse_end *end)
{
    int32_t found = 0;
    assert(t->kv->sequences[sequence].n_tokens == 0);
    if (t->store)
        load_path(t, owner, tokens, n);
    node *at = walk_to_whole(t, owner, tokens, n, &found);
    if (end)
        *end = find_end(t, owner, tokens, n, at ? found : 0);
    if (!at)
        return 0;
    share_path(t, sequence, at, (found - 1) / PAGE_TOKENS, found);
    states_restore(t->kv, sequence, at->snapshot);
    touch_path(t, at);
    return found;
}

/* ---- Keeping --------------------------------------------------------------------------------- */

/* The child for these tokens: one that has them all, one that they continue, or a new one. */
static node *keep_page(prefix_tree *t, node *parent, int32_t sequence, int32_t index,
                       const int32_t *tokens, int32_t n_tokens)
{
    int32_t shared;
    node *child = best_child(parent, tokens, n_tokens, &shared);
    if (child && shared == n_tokens) {
        if (n_tokens == child->n_tokens)
            take_pages(t, child, sequence, index); /* a window may have dropped some */
        return child;
    }
    if (child && shared == child->n_tokens) {
        /* A page that was not full: the sequence has more of it. */
        drop_state(t, child);
        child->is_stored = false;
        memcpy(child->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
        child->n_tokens = n_tokens;
    } else {
        child = add_child(t, parent, tokens, n_tokens);
    }
    if (child)
        take_pages(t, child, sequence, index);
    return child;
}

/* Hold what the sequence keeps of recurrent state behind `end` tokens, where the node ends. */
static void take_snapshot(prefix_tree *t, node *n, int32_t sequence, int32_t end)
{
    int32_t kept = slot_kept_at(&t->kv->slots, sequence, end);
    if (kept >= 0 && n->snapshot < 0)
        n->snapshot = snapshot_hold(&t->kv->slots, kept);
}

/* Down the way of the tokens; the node behind which what is kept ends. */
static node *keep_path(prefix_tree *t, node *at, int32_t sequence, const int32_t *tokens, int32_t n,
                       bool with_part)
{
    for (int32_t i = 0; i * PAGE_TOKENS < n; i++) {
        int32_t left = n - i * PAGE_TOKENS;
        if (left < PAGE_TOKENS && !with_part)
            break;
        node *next = keep_page(t, at, sequence, i, tokens + i * PAGE_TOKENS,
                               left < PAGE_TOKENS ? left : PAGE_TOKENS);
        if (!next)
            break; /* no memory: what is kept so far is of use */
        at = next;
        if (left >= at->n_tokens)
            take_snapshot(t, at, sequence, i * PAGE_TOKENS + at->n_tokens);
        if (left < PAGE_TOKENS)
            break;
    }
    return at;
}

void prefix_tree_keep(prefix_tree *t, uint64_t owner, int32_t sequence, const int32_t *tokens,
                      int32_t n, bool with_part)
{
    int32_t length = t->kv->sequences[sequence].n_tokens;
    assert(n <= length);
    /* Before any node is looked at: other nodes may go to make room for it. */
    int32_t end = with_part && n == length ? states_snapshot(t->kv, sequence) : -1;
    root *begin = find_root(t, owner);
    if (!begin)
        begin = add_root(t, owner);
    if (begin) {
        node *at = keep_path(t, &begin->n, sequence, tokens, n, with_part);
        touch_path(t, at);
        if (!is_root(at))
            remove_empty(t, at);
        else if (!at->children)
            remove_root(t, at);
    }
    snapshot_drop(&t->kv->slots, &end); /* the sequence and the node hold it */
}

/* ---- Giving up ------------------------------------------------------------------------------- */

static bool is_unused(const prefix_tree *t, const node *n)
{
    if (n == t->held)
        return false;
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        if (n->pages[g] >= 0 && t->kv->groups[g].n_users[n->pages[g]] > 1)
            return false;
    return true;
}

static bool evict_leaf(prefix_tree *t)
{
    for (node *n = t->oldest; n; n = n->newer)
        if (!n->children && is_unused(t, n)) {
            t->n_evicted += (uint64_t)n->n_tokens;
            remove_leaf(t, n);
            return true;
        }
    return false;
}

/* A page of a group with a window can go alone. */
static bool evict_window_page(prefix_tree *t, int32_t g)
{
    page_group *group = &t->kv->groups[g];
    for (node *n = t->oldest; n; n = n->newer)
        if (n->pages[g] >= 0 && group->n_users[n->pages[g]] == 1) {
            page_drop(group, &n->pages[g]);
            remove_empty(t, n);
            return true;
        }
    return false;
}

/* A snapshot can go alone, too, if no sequence holds it. */
static bool give_up_snapshot(void *keeper)
{
    prefix_tree *t = keeper;
    for (node *n = t->oldest; n; n = n->newer)
        if (n->snapshot >= 0 && t->kv->slots.snapshots[n->snapshot].n_users == 1) {
            snapshot_drop(&t->kv->slots, &n->snapshot);
            remove_empty(t, n);
            return true;
        }
    return false;
}

bool prefix_tree_make_room(prefix_tree *t, const page_demand *demand)
{
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        while (demand->n_pages[g] > t->kv->groups[g].n_free)
            if (!(t->kv->groups[g].window ? evict_window_page(t, g) : evict_leaf(t)))
                return false;
    return true;
}

int64_t prefix_tree_unused_pages(const prefix_tree *t)
{
    int64_t n_unused = 0;
    for (const node *n = t->oldest; n; n = n->newer)
        n_unused += n->pages[0] >= 0 && t->kv->groups[0].n_users[n->pages[0]] == 1;
    return n_unused;
}

uint64_t prefix_tree_n_evicted(const prefix_tree *t)
{
    return t->n_evicted;
}

/* ---- The store ------------------------------------------------------------------------------- */

void prefix_tree_use_store(prefix_tree *t, page_store *store)
{
    t->store = store;
    t->shape = page_shape_of(t->kv);
}

/* The bytes of a page that was read become a node's; false: there is no room for them. */
static bool fill_node(prefix_tree *t, node *n, const page_file *file, int32_t end)
{
    states *kv = t->kv;
    for (int32_t g = 0; g < kv->n_groups; g++) {
        page_group *group = &kv->groups[g];
        if (!file->has_part[g])
            continue;
        if (group->n_free == 0)
            return false;
        n->pages[g] = page_take(group);
        if (queue_write(group->queue, page_data(group, n->pages[g]), file->parts[g],
                        group->page_bytes, NULL) != LACE_OK)
            return false;
    }
    if (file->has_part[kv->n_groups])
        n->snapshot = snapshot_load(&kv->slots, end, file->parts[kv->n_groups]);
    return true;
}

/* Whether the file is that of these tokens, with all that layers without a window remember. */
static bool is_of_text(const prefix_tree *t, const page_file *file, const digest *parent,
                       const int32_t *tokens)
{
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        if (!file->has_part[g] && t->kv->groups[g].window == 0)
            return false;
    return digest_equals(&file->parent, parent) &&
           memcmp(file->tokens, tokens, sizeof file->tokens) == 0;
}

/* Read the page behind `parent`, if it is in the store. NULL: it is not, or there is no room. */
static node *load_child(prefix_tree *t, node *parent, const digest *parent_key, const digest *key,
                        const int32_t *tokens, int32_t end)
{
    static const bool all[PAGE_FILE_MOST_PARTS] = {true, true, true, true, true,
                                                   true, true, true, true};
    _Static_assert(PAGE_FILE_MOST_PARTS == 9, "all of them");
    page_file file;
    page_demand demand = {0};
    if (!page_store_read(t->store, key, page_file_bytes(&t->shape, all), &t->file))
        return NULL;
    span bytes = {(const uint8_t *)t->file.data, t->file.size};
    if (page_file_read(bytes, &t->shape, &file, NULL) != LACE_OK ||
        !is_of_text(t, &file, parent_key, tokens)) {
        page_store_remove(t->store, key);
        return NULL;
    }
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        demand.n_pages[g] = file.has_part[g];
    t->held = parent;
    node *n = prefix_tree_make_room(t, &demand) ? add_child(t, parent, tokens, PAGE_TOKENS) : NULL;
    t->held = n;
    if (n && !fill_node(t, n, &file, end)) {
        remove_leaf(t, n);
        n = NULL;
    }
    t->held = NULL;
    if (n)
        n->is_stored = true;
    return n;
}

/* Load what the store has of a text behind what the tree has, a whole page at a time. */
static void load_path(prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n)
{
    digest key, next;
    root *begin = find_root(t, owner);
    if (!page_store_root(t->store, owner, &key) || (!begin && !(begin = add_root(t, owner))))
        return;
    node *at = &begin->n;
    for (int32_t i = 0; i + PAGE_TOKENS <= n; i += PAGE_TOKENS) {
        int32_t shared;
        node *child = best_child(at, tokens + i, PAGE_TOKENS, &shared);
        if (!page_key(&key, tokens + i, &next))
            break;
        if (!child || shared < PAGE_TOKENS)
            child = load_child(t, at, &key, &next, tokens + i, i + PAGE_TOKENS);
        if (!child)
            break;
        at = child;
        key = next;
    }
    if (is_root(at) && !at->children)
        remove_root(t, at);
}

/* Copy what a node holds into a file that waits to be written. False: too much waits. */
static bool store_node(prefix_tree *t, const node *n, const digest *parent, const digest *key)
{
    states *kv = t->kv;
    page_file file = {.parent = *parent};
    memcpy(file.tokens, n->tokens, sizeof file.tokens);
    for (int32_t g = 0; g < kv->n_groups; g++)
        file.has_part[g] = n->pages[g] >= 0;
    file.has_part[kv->n_groups] = n->snapshot >= 0;
    uint64_t n_bytes = page_file_bytes(&t->shape, file.has_part);
    uint8_t *bytes = page_store_take(t->store, n_bytes);
    if (!bytes)
        return false;
    page_file_lay_out(&t->shape, &file, bytes);
    for (int32_t i = 0; i <= kv->n_groups; i++) {
        if (!file.has_part[i])
            continue;
        uint8_t *to = bytes + (file.parts[i] - bytes);
        const page_group *group = &kv->groups[i];
        lace_status status = i < kv->n_groups
                                 ? queue_read(group->queue, to, page_data(group, n->pages[i]),
                                              group->page_bytes, NULL)
                                 : snapshot_read(&kv->slots, n->snapshot, to, NULL);
        if (status != LACE_OK) { /* the card says so with the next run */
            page_store_give_back(t->store, bytes, n_bytes);
            return false;
        }
    }
    page_store_write(t->store, key, bytes, n_bytes);
    return true;
}

/* Layers without a window need their page. */
static bool is_worth_storing(const prefix_tree *t, const node *n)
{
    for (int32_t g = 0; g < t->kv->n_groups; g++)
        if (n->pages[g] < 0 && t->kv->groups[g].window == 0)
            return false;
    return !n->is_stored && n->n_tokens == PAGE_TOKENS;
}

void prefix_tree_store(prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n)
{
    digest key, next;
    root *begin = find_root(t, owner);
    if (!t->store || !begin || !page_store_root(t->store, owner, &key))
        return;
    node *at = &begin->n;
    for (int32_t i = 0; i + PAGE_TOKENS <= n; i += PAGE_TOKENS) {
        int32_t shared;
        at = best_child(at, tokens + i, PAGE_TOKENS, &shared);
        if (!at || shared < PAGE_TOKENS || !page_key(&key, tokens + i, &next))
            return;
        if (is_worth_storing(t, at)) {
            if (!store_node(t, at, &key, &next))
                return;
            at->is_stored = true;
        }
        key = next;
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

lace_status prefix_tree_create(states *kv, prefix_tree **out, lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "a prefix tree");
    (*out)->kv = kv;
    buf_init(&(*out)->file, SIZE_MAX / 2);
    kv->slots.give_up = give_up_snapshot;
    kv->slots.keeper = *out;
    return LACE_OK;
}

void prefix_tree_free(prefix_tree *t)
{
    if (!t)
        return;
    while (t->oldest) {
        node *n = t->oldest;
        while (n->children)
            n = n->children;
        remove_leaf(t, n);
    }
    t->kv->slots.give_up = NULL;
    buf_deinit(&t->file);
    mem_free(t);
}
