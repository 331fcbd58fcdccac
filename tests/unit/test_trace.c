/* Traces: every step is there, and what it moved can be worked out by hand. */
#include <string.h>

#include "base/buf.h"
#include "lace.h"
#include "tap.h"
#include "tiny_model.h"

enum { MAX_ROWS = 256 };

static buf file;
static lace_model *model;
static lace_session *session;

static void set_up_with(int n_experts)
{
    tiny_options o = tiny_options_default();
    lace_model_options mo = lace_model_options_default();
    o.n_experts = n_experts;
    mo.use_exact = n_experts > 0; /* weights count as they are in the file */
    lace_session_options so = lace_session_options_default();
    so.n_threads = 2;
    so.n_batch = 8;
    so.kv_type = LACE_KV_F32;
    buf_init(&file, 1 << 20);
    CHECK(tiny_model_build(&o, &file, NULL) == LACE_OK);
    CHECK(lace_model_open_memory(file.data, file.size, "tiny", &mo, &model, NULL) == LACE_OK);
    CHECK(lace_session_create(model, &so, &session, NULL) == LACE_OK);
}

static void set_up(void)
{
    set_up_with(0);
}

static void tear_down(void)
{
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
}

static void eval(size_t n)
{
    lace_item items[32] = {0};
    for (size_t i = 0; i < n; i++)
        items[i] = (lace_item){.token = (lace_token)(i + 3), .want_logits = i + 1 == n};
    CHECK(lace_session_eval(session, items, n, NULL) == LACE_OK);
}

static void without_a_trace_there_are_no_rows(void)
{
    set_up();
    lace_trace_row row;
    eval(2);
    CHECK(lace_session_trace_rows(session, &row, 1) == 0);
    tear_down();
}

static void rows_are_the_steps_with_their_layers(void)
{
    set_up();
    CHECK(lace_session_trace(session, true, NULL) == LACE_OK);
    eval(3);
    eval(1);
    static lace_trace_row rows[MAX_ROWS];
    size_t n = lace_session_trace_rows(session, rows, MAX_ROWS);
    CHECK(n > 10 && n <= MAX_ROWS);
    CHECK(lace_session_trace_rows(session, rows, 0) == n);
    CHECK(strcmp(rows[0].operation, "embed") == 0 && rows[0].layer == -1);
    uint64_t ns = 0;
    int n_attend = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(rows[i].n_calls == 2);
        CHECK(rows[i].layer >= -1 && rows[i].layer < 2);
        ns += rows[i].ns;
        n_attend += strcmp(rows[i].operation, "attend") == 0;
    }
    CHECK(n_attend == 2); /* one for each layer */
    CHECK(ns > 0);
    tear_down();
}

static void products_and_bytes_follow_from_the_shapes(void)
{
    set_up();
    CHECK(lace_session_trace(session, true, NULL) == LACE_OK);
    eval(5);
    static lace_trace_row rows[MAX_ROWS];
    size_t n = lace_session_trace_rows(session, rows, MAX_ROWS);
    uint64_t macs = 0, attended = 0;
    for (size_t i = 0; i < n && i < MAX_ROWS; i++) {
        macs += rows[i].n_macs;
        if (strcmp(rows[i].operation, "attend") == 0 && rows[i].layer == 0)
            attended = rows[i].n_bytes;
    }
    /* q and o 16x16, k and v 8x16, gate, up and down 32x16, twice; 320x16 for one output. */
    uint64_t layer = 2 * 16 * 16 + 2 * 8 * 16 + 3 * 32 * 16;
    CHECK(macs == 5 * 2 * layer + 320 * 16);
    /* 5 positions of 1 head of 8 f32, keys and values; rows of q and of the
     * result, 64 bytes each. */
    CHECK(attended == 2 * 5 * 8 * 4 + 2 * 5 * 64);
    tear_down();
}

/* A token has 2 of 8 experts; what they were is known when the step runs, and lost by the end. */
static void bytes_of_experts_are_those_of_the_chosen_ones(void)
{
    set_up_with(8);
    CHECK(lace_session_trace(session, true, NULL) == LACE_OK);
    eval(1);
    static lace_trace_row rows[MAX_ROWS];
    size_t n = lace_session_trace_rows(session, rows, MAX_ROWS);
    uint64_t matrix = 32 * 16 * 2;
    int n_found = 0;
    for (size_t i = 0; i < n && i < MAX_ROWS; i++) {
        bool is_glu = strcmp(rows[i].operation, "moe_glu") == 0;
        if (!is_glu && strcmp(rows[i].operation, "moe_down") != 0)
            continue;
        uint64_t n_matrices = is_glu ? 4 : 2;
        n_found++;
        CHECK(rows[i].n_bytes > n_matrices * matrix && rows[i].n_bytes < (n_matrices + 1) * matrix);
    }
    CHECK(n_found == 4);
    tear_down();
}

static void a_new_trace_starts_from_zero(void)
{
    set_up();
    static lace_trace_row rows[MAX_ROWS];
    CHECK(lace_session_trace(session, true, NULL) == LACE_OK);
    eval(20); /* three batches */
    lace_session_trace_rows(session, rows, MAX_ROWS);
    CHECK(rows[0].n_calls == 3);
    CHECK(lace_session_trace(session, true, NULL) == LACE_OK);
    CHECK(lace_session_trace_rows(session, rows, MAX_ROWS) == 0); /* nothing has run yet */
    eval(1);
    CHECK(lace_session_trace_rows(session, rows, MAX_ROWS) > 0 && rows[0].n_calls == 1);
    CHECK(lace_session_trace(session, false, NULL) == LACE_OK);
    CHECK(lace_session_trace_rows(session, rows, MAX_ROWS) == 0);
    tear_down();
}

int main(void)
{
    CASE(without_a_trace_there_are_no_rows);
    CASE(rows_are_the_steps_with_their_layers);
    CASE(products_and_bytes_follow_from_the_shapes);
    CASE(bytes_of_experts_are_those_of_the_chosen_ones);
    CASE(a_new_trace_starts_from_zero);
    return tap_end();
}
