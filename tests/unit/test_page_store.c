/* Pages in files: they come back as they were, in another process too, or not at all. */
#define _GNU_SOURCE
#include "state/page_store.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "scratch.h"
#include "state/prefix_tree.h"
#include "tap.h"

enum { CONTEXT = 256, N_TOKENS = 200, WINDOW = 40 };

static states *kv;
static prefix_tree *tree;
static page_store *store;
static int32_t tokens[CONTEXT];
static const digest model = {.bytes = {1, 2, 3}};

/* As a process begins: nothing is in memory. */
static bool start(const digest *of, uint64_t max_bytes)
{
    layer_state layers[] = {layer_state_paged(1, 32, 32, 0),
                            layer_state_paged(1, 32, 32, WINDOW),
                            {.kind = STATE_RECURRENT, .n_bytes = 64}};
    states_options o = {.type = DTYPE_F32,
                        .n_sequences = 2,
                        .n_context = CONTEXT,
                        .n_batch = 64,
                        .n_snapshots = 12};
    for (int32_t i = 0; i < CONTEXT; i++)
        tokens[i] = 500 + i;
    if (!CHECK(states_create(layers, 3, &o, &kv, NULL) == LACE_OK) ||
        !CHECK(states_allocate(kv, &host_queue, NULL) == LACE_OK) ||
        !CHECK(prefix_tree_create(kv, &tree, NULL) == LACE_OK) ||
        !CHECK(page_store_open(scratch_path("pages"), max_bytes, of, &store, NULL) == LACE_OK))
        return false;
    prefix_tree_use_store(tree, store);
    return true;
}

static void stop(void)
{
    for (int32_t i = 0; i < 2; i++)
        states_set_length(kv, i, 0);
    prefix_tree_free(tree);
    page_store_close(store);
    states_free(kv);
}

/* What page i of a group holds, of which every byte is the same. */
static uint8_t mark(int32_t g, int32_t i)
{
    return (uint8_t)(16 * (g + 1) + i);
}

static uint8_t *slot(int32_t sequence)
{
    return kv->slots.parts[0].data + (uint64_t)states_slot(kv, sequence) * kv->slots.slot_bytes;
}

/* A text as an evaluation leaves it, kept and written to the store. */
static void compute(uint64_t owner, int32_t n)
{
    for (int32_t at = 0; at < n; at += PAGE_TOKENS) {
        int32_t more = n - at < PAGE_TOKENS ? n - at : PAGE_TOKENS;
        page_demand demand = {0};
        states_add_demand(kv, 0, more, &demand);
        if (!CHECK(prefix_tree_make_room(tree, &demand)) ||
            !CHECK(states_reserve(kv, 0, more, NULL) == LACE_OK))
            return;
        for (int32_t g = 0; g < kv->n_groups; g++)
            memset(page_data(&kv->groups[g], kv->sequences[0].tables[g][at / PAGE_TOKENS]),
                   mark(g, at / PAGE_TOKENS), kv->groups[g].page_bytes);
        memset(slot(0), mark(2, at / PAGE_TOKENS), kv->slots.slot_bytes);
        states_set_length(kv, 0, at + more);
        prefix_tree_keep(tree, owner, 0, tokens, at + more, at + more == n);
    }
    prefix_tree_store(tree, owner, tokens, n);
    states_set_length(kv, 0, 0);
}

/* How much of the text is found; all of it must be as it was computed. */
static int32_t begin(uint64_t owner)
{
    int32_t found = prefix_tree_begin(tree, owner, 1, tokens, N_TOKENS, NULL);
    for (int32_t g = 0; g < kv->n_groups; g++)
        for (int32_t i = states_first_page(kv, g, found); i < found / PAGE_TOKENS; i++) {
            const uint8_t *data = page_data(&kv->groups[g], kv->sequences[1].tables[g][i]);
            uint64_t n = kv->groups[g].page_bytes;
            CHECK(data[0] == mark(g, i) && data[n / 2] == mark(g, i) && data[n - 1] == mark(g, i));
        }
    if (found > 0) {
        CHECK(states_reserve(kv, 1, 1, NULL) == LACE_OK);
        CHECK(slot(1)[0] == mark(2, found / PAGE_TOKENS - 1) && slot(1)[63] == slot(1)[0]);
        states_set_length(kv, 1, found + 1);
    }
    states_set_length(kv, 1, 0);
    return found;
}

/* Files of the store; calls fn for each. */
static int each_file(void (*fn)(const char *path))
{
    int n = 0;
    DIR *d = opendir(scratch_path("pages"));
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", scratch_path("pages"), e->d_name);
        n++;
        if (fn)
            fn(path);
    }
    if (d)
        closedir(d);
    return n;
}

static void remove_file(const char *path)
{
    unlink(path);
}

static void clear(void)
{
    each_file(remove_file);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void a_later_process_begins_where_the_last_one_was(void)
{
    if (!start(&model, 1 << 30))
        return;
    compute(3, N_TOKENS);
    stop();
    CHECK(each_file(NULL) == N_TOKENS / PAGE_TOKENS);
    if (!start(&model, 1 << 30))
        return;
    CHECK(begin(3) == N_TOKENS / PAGE_TOKENS * PAGE_TOKENS);
    CHECK(begin(3) == N_TOKENS / PAGE_TOKENS * PAGE_TOKENS); /* now from memory */
    CHECK(begin(4) == 0);                                    /* another owner */
    tokens[70]++;
    CHECK(begin(3) == 64);
    stop();
    digest other = {.bytes = {9}};
    if (!start(&other, 1 << 30))
        return;
    CHECK(begin(3) == 0);
    stop();
    clear();
}

static void what_memory_gave_up_comes_back(void)
{
    if (!start(&model, 1 << 30))
        return;
    compute(0, N_TOKENS);
    page_demand all = {.n_pages = {kv->groups[0].n_pages, kv->groups[1].n_pages}};
    CHECK(prefix_tree_make_room(tree, &all));
    CHECK(prefix_tree_find(tree, 0, tokens, N_TOKENS) == 0);
    page_store_close(store); /* so that all is written */
    CHECK(page_store_open(scratch_path("pages"), 1 << 30, &model, &store, NULL) == LACE_OK);
    prefix_tree_use_store(tree, store);
    CHECK(begin(0) == N_TOKENS / PAGE_TOKENS * PAGE_TOKENS);
    stop();
    clear();
}

static void spoil(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "r+b");
    if (!CHECK(f && fstat(fileno(f), &st) == 0))
        return;
    CHECK(fseek(f, st.st_size / 2, SEEK_SET) == 0);
    int c = fgetc(f);
    CHECK(fseek(f, st.st_size / 2, SEEK_SET) == 0 && fputc(c ^ 1, f) != EOF);
    fclose(f);
}

static void cut(const char *path)
{
    struct stat st;
    CHECK(stat(path, &st) == 0 && truncate(path, st.st_size - 1) == 0);
}

static void damaged_files_are_not_used_and_go(void)
{
    void (*const damages[])(const char *) = {spoil, cut};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        if (!start(&model, 1 << 30))
            return;
        compute(0, N_TOKENS);
        stop();
        int n = each_file(damages[i]);
        if (!start(&model, 1 << 30))
            return;
        CHECK(begin(0) == 0);
        CHECK(each_file(NULL) == n - 1); /* the first one, which was looked at */
        stop();
        clear();
    }
}

static void files_stay_within_their_room(void)
{
    if (!start(&model, 1 << 30))
        return;
    page_shape sizes = page_shape_of(kv);
    bool all[PAGE_FILE_MOST_PARTS] = {true, true, true};
    uint64_t each = page_file_bytes(&sizes, all);
    stop();
    if (!start(&model, 4 * each))
        return;
    for (uint64_t owner = 0; owner < 4; owner++)
        compute(owner, N_TOKENS);
    stop();
    CHECK(each_file(NULL) >= 1 && each_file(NULL) <= 4);
    clear();
}

/* ---- Bad values ------------------------------------------------------------------------------ */

static uint8_t *make_file(const page_shape *sizes, uint64_t *n_bytes)
{
    page_file p = {.parent = model, .has_part = {true, false, true}};
    *n_bytes = page_file_bytes(sizes, p.has_part);
    uint8_t *bytes = mem_calloc(1, *n_bytes);
    if (CHECK(bytes))
        page_file_lay_out(sizes, &p, bytes);
    if (CHECK(bytes && page_file_seal(bytes, *n_bytes)))
        return bytes;
    mem_free(bytes);
    return NULL;
}

static void every_bad_byte_is_refused(void)
{
    page_shape sizes = {.n_parts = 3, .part_bytes = {64, 64, 32}};
    page_file p;
    uint64_t n;
    uint8_t *bytes = make_file(&sizes, &n);
    if (!bytes)
        return;
    CHECK(page_file_read((span){bytes, n}, &sizes, &p, NULL) == LACE_OK && p.has_part[0] &&
          !p.has_part[1] && p.has_part[2]);
    for (uint64_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        CHECK(page_file_read((span){bytes, n}, &sizes, &p, NULL) != LACE_OK);
        bytes[i] ^= 1;
        CHECK(page_file_read((span){bytes, i}, &sizes, &p, NULL) != LACE_OK);
    }
    mem_free(bytes);
}

static void sizes_that_do_not_fit_are_refused_though_the_digest_is_right(void)
{
    static const struct {
        size_t at;
        uint8_t value;
        lace_status status;
    } cases[] = {{8, 2, LACE_E_VERSION}, {12, 2, LACE_E_COUNT},  {16, 31, LACE_E_COUNT},
                 {20, 1, LACE_E_COUNT},  {56, 63, LACE_E_SHAPE}, {64, 64, LACE_E_TRUNC},
                 {72, 0, LACE_E_TAIL}};
    page_shape sizes = {.n_parts = 3, .part_bytes = {64, 64, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        page_file p;
        lace_error err = {0};
        uint64_t n;
        uint8_t *bytes = make_file(&sizes, &n);
        if (!bytes)
            return;
        bytes[cases[i].at] = cases[i].value;
        CHECK(page_file_seal(bytes, n));
        lace_status status = page_file_read((span){bytes, n}, &sizes, &p, &err);
        if (!CHECK(status == cases[i].status && err.text[0]))
            tap_note("case %zu: %s", i, err.text);
        mem_free(bytes);
    }
}

static void a_directory_that_cannot_be_used_is_named(void)
{
    lace_error err = {0};
    page_store *none;
    CHECK(scratch_write("file", "x"));
    CHECK(page_store_open(scratch_path("file"), 1, &model, &none, &err) == LACE_E_IO && !none);
    CHECK(strstr(err.text, "file"));
    CHECK(page_store_open(scratch_path("no/such"), 1, &model, &none, &err) == LACE_E_IO);
}

int main(void)
{
    if (!scratch_create())
        return 1;
    CASE(a_later_process_begins_where_the_last_one_was);
    CASE(what_memory_gave_up_comes_back);
    CASE(damaged_files_are_not_used_and_go);
    CASE(files_stay_within_their_room);
    CASE(every_bad_byte_is_refused);
    CASE(sizes_that_do_not_fit_are_refused_though_the_digest_is_right);
    CASE(a_directory_that_cannot_be_used_is_named);
    rmdir(scratch_path("pages"));
    scratch_remove();
    return tap_end();
}
