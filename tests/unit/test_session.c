/* engine/session.c: what an evaluation leaves behind, above all when it fails. */
#include <string.h>

#include "engine/engine.h"
#include "formats/gguf_write.h"
#include "lace.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

enum { WINDOW = 8, BEFORE = 40, MORE = 200, CONTEXT = 512 };

static lace_item items[MORE + 64];

static void fill(size_t from, size_t n, int32_t sequence, int32_t position)
{
    for (size_t i = 0; i < n; i++)
        items[from + i] =
            (lace_item){.token = (position + (int32_t)i) * 7 % 300, .sequence = sequence};
}

/* A model all of whose layers see WINDOW positions. */
static lace_model *open_windowed(buf *file)
{
    tiny_options o = tiny_options_default();
    gguf_writer *w = NULL;
    lace_model *lm = NULL;
    lace_error err;
    o.n_context = CONTEXT;
    buf_init(file, 1 << 22);
    CHECK(is_ok(tiny_model_create(&o, &w, &err), &err));
    gguf_writer_add_int(w, "llama.attention.sliding_window", GGUF_U32, WINDOW, NULL);
    CHECK(is_ok(gguf_writer_to_buf(w, file, &err), &err));
    gguf_writer_free(w);
    CHECK(is_ok(lace_model_open_memory(file->data, file->size, "tiny", NULL, &lm, &err), &err));
    return lm;
}

/* The logits after the next token of a sequence are those of a fresh sequence with its text. */
static void check_text(lace_session *s, int32_t sequence, int32_t fresh)
{
    static float seen[320];
    int32_t n = lace_session_length(s, sequence);
    lace_error err;
    fill(0, 1, sequence, n);
    items[0].want_logits = true;
    if (!CHECK(is_ok(lace_session_eval(s, items, 1, &err), &err)))
        return;
    memcpy(seen, lace_session_logits(s, 0), sizeof seen);
    /* In the same steps, so that the sums are the same. */
    fill(0, (size_t)n + 1, fresh, 0);
    items[n].want_logits = true;
    CHECK(is_ok(lace_session_eval(s, items, (size_t)n, &err), &err));
    if (CHECK(is_ok(lace_session_eval(s, items + n, 1, &err), &err)))
        CHECK(memcmp(seen, lace_session_logits(s, 0), sizeof seen) == 0);
}

/*
 * The first batches of an eval move the window of sequence 0 on; then no pages are left for
 * sequence 1. What sequence 0 saw before is gone and cannot be given back.
 */
static void a_failed_eval_leaves_no_sequence_without_its_pages(void)
{
    buf file;
    lace_error err;
    lace_model *lm = open_windowed(&file);
    lace_session *s = NULL;
    lace_session_options o = lace_session_options_default();
    o.n_threads = 1;
    o.n_sequences = 3;
    o.n_context = CONTEXT;
    o.n_batch = 16;
    o.kv_type = LACE_KV_F32;
    o.kv_bytes = 3 * (2 * 2 * 32 * 8 * 4); /* 3 pages: what one sequence has at most */
    CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
    fill(0, BEFORE, 0, 0);
    CHECK(is_ok(lace_session_eval(s, items, BEFORE, &err), &err));
    fill(0, MORE, 0, BEFORE);
    fill(MORE, 64, 1, 0);
    CHECK(lace_session_eval(s, items, MORE + 64, &err) == LACE_E_CONTEXT);
    CHECK(lace_session_length(s, 0) == 0 && lace_session_length(s, 1) == 0);
    CHECK(lace_session_logits(s, 0) == NULL);
    check_text(s, 0, 2);
    lace_session_free(s);
    lace_model_close(lm);
    buf_deinit(&file);
}

/* Without a window everything is as before. */
static void a_failed_eval_can_be_tried_again(void)
{
    buf file = tiny_model_bytes(tiny_options_default());
    lace_error err;
    lace_model *lm = NULL;
    lace_session *s = NULL;
    lace_session_options o = lace_session_options_default();
    o.n_threads = 1;
    o.n_sequences = 2;
    o.n_context = 64;
    o.n_batch = 16;
    CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", NULL, &lm, &err), &err));
    CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
    fill(0, BEFORE, 0, 0);
    CHECK(is_ok(lace_session_eval(s, items, BEFORE, &err), &err));
    fill(0, 65, 0, BEFORE);
    CHECK(lace_session_eval(s, items, 65, &err) == LACE_E_CONTEXT);
    items[20].token = -1;
    CHECK(lace_session_eval(s, items, 21, &err) == LACE_E_ARG);
    CHECK(lace_session_length(s, 0) == BEFORE);
    check_text(s, 0, 1);
    lace_session_free(s);
    lace_model_close(lm);
    buf_deinit(&file);
}

/* A context of one token, a batch of one token. */
static void the_smallest_session_computes(void)
{
    buf file = tiny_model_bytes(tiny_options_default());
    lace_error err;
    lace_model *lm = NULL;
    lace_session *s = NULL;
    lace_session_options o = lace_session_options_default();
    o.n_threads = 1;
    o.n_context = o.n_batch = 1;
    CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", NULL, &lm, &err), &err));
    CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
    lace_item item = {.token = 1, .want_logits = true};
    CHECK(is_ok(lace_session_eval(s, NULL, 0, &err), &err));
    CHECK(is_ok(lace_session_eval(s, &item, 1, &err), &err));
    CHECK(lace_session_logits(s, 0) != NULL && lace_session_logits(s, 1) == NULL);
    CHECK(lace_session_eval(s, &item, 1, &err) == LACE_E_CONTEXT);
    lace_session_free(s);
    lace_model_close(lm);
    buf_deinit(&file);
}

/* What it takes tells how large a batch is that was not asked for. */
static void a_batch_that_is_not_asked_for_is_of_512_or_all_sequences(void)
{
    static const int32_t n_sequences[] = {1, 600};
    buf file = tiny_model_bytes(tiny_options_default());
    lace_error err;
    lace_model *lm = NULL;
    CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", NULL, &lm, &err), &err));
    for (int i = 0; i < 2; i++) {
        lace_session_options o = lace_session_options_default();
        lace_memory usual, same, less;
        o.n_context = 64;
        o.n_threads = 1;
        o.n_sequences = n_sequences[i];
        CHECK(is_ok(lace_session_memory(lm, &o, &usual, &err), &err));
        o.n_batch = n_sequences[i] > 512 ? n_sequences[i] : 512;
        CHECK(is_ok(lace_session_memory(lm, &o, &same, &err), &err));
        o.n_batch -= 256;
        CHECK(is_ok(lace_session_memory(lm, &o, &less, &err), &err));
        CHECK(usual.scratch == same.scratch && less.scratch < same.scratch);
    }
    lace_model_close(lm);
    buf_deinit(&file);
}

static int n_queues;

static lace_status count_queue(device *d, queue **out, lace_error *err)
{
    n_queues++;
    *out = &host_queue;
    return LACE_OK;
}

static void memory_is_counted_without_a_queue(void)
{
    buf file = tiny_model_bytes(tiny_options_default());
    lace_model *lm = NULL;
    lace_session *s = NULL;
    lace_memory memory;
    lace_error err;
    CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", NULL, &lm, &err), &err));
    backend counting = *lm->m->device->backend;
    counting.open_queue = count_queue;
    lm->m->device->backend = &counting;
    n_queues = 0;
    CHECK(is_ok(lace_session_memory(lm, NULL, &memory, &err), &err) && n_queues == 0);
    CHECK(is_ok(lace_session_create(lm, NULL, &s, &err), &err) && n_queues == 1);
    lace_session_free(s);
    lace_model_close(lm);
    buf_deinit(&file);
}

/* Two batches more than it takes to pack everything. */
static void weights_packed_later_give_the_same_logits(void)
{
    enum { N = 10 };
    static float seen[N][320];
    buf file = tiny_model_bytes(tiny_options_default());
    for (int is_later = 0; is_later < 2; is_later++) {
        lace_error err;
        lace_model *lm = NULL;
        lace_session *s = NULL;
        lace_model_options mo = lace_model_options_default();
        lace_session_options o = lace_session_options_default();
        mo.packs_later = is_later;
        o.n_context = 64;
        CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", &mo, &lm, &err), &err));
        CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
        for (int i = 0; i < N; i++) {
            fill(0, 3, 0, 3 * i);
            items[2].want_logits = true;
            CHECK(is_ok(lace_session_eval(s, items, 3, &err), &err));
            if (!is_later)
                memcpy(seen[i], lace_session_logits(s, 0), sizeof seen[i]);
            else
                CHECK(memcmp(seen[i], lace_session_logits(s, 0), sizeof seen[i]) == 0);
        }
        lace_session_free(s);
        lace_model_close(lm);
    }
    buf_deinit(&file);
}

int main(void)
{
    CASE(a_failed_eval_leaves_no_sequence_without_its_pages);
    CASE(a_failed_eval_can_be_tried_again);
    CASE(the_smallest_session_computes);
    CASE(a_batch_that_is_not_asked_for_is_of_512_or_all_sequences);
    CASE(memory_is_counted_without_a_queue);
    CASE(weights_packed_later_give_the_same_logits);
    return tap_end();
}
