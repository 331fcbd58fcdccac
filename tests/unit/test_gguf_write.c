/* formats/: writing GGUF files. */
#include <string.h>

#include "formats/gguf_write.h"
#include "formats/weights.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Writing --------------------------------------------------------------------------------- */

static void a_copy_of_a_file_is_the_same_file(void)
{
    buf b = tiny_model_bytes(tiny_options_default()), copy;
    gguf *g = NULL;
    gguf_writer *w = NULL;
    lace_error err;
    buf_init(&copy, 1 << 24);
    CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err));
    CHECK(gguf_writer_create(&w, &err) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(g); i++)
        CHECK(gguf_writer_add_value(w, gguf_value_at(g, i), &err) == LACE_OK);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const tensor *t = gguf_tensor_at(g, i);
        CHECK(gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, &err) == LACE_OK);
    }
    CHECK(is_ok(gguf_writer_to_buf(w, &copy, &err), &err));
    CHECK(copy.size == b.size && memcmp(copy.data, b.data, b.size) == 0);
    gguf_writer_free(w);
    gguf_free(g);
    buf_deinit(&b);
    buf_deinit(&copy);
}

static void writer_reports_its_first_failure(void)
{
    static const float data[4];
    shape good = {1, {4, 1, 1, 1}}, bad = {1, {0, 1, 1, 1}}, part = {1, {33, 1, 1, 1}};
    struct {
        lace_status expected;
        int what;
    } cases[] = {{LACE_E_DUP, 0},   {LACE_E_ARG, 1}, {LACE_E_ARG, 2},  {LACE_E_NAME, 3},
                 {LACE_E_ALIGN, 4}, {LACE_E_DUP, 5}, {LACE_E_DIMS, 6}, {LACE_E_NAME, 7},
                 {LACE_E_DIMS, 8},  {LACE_E_ARG, 9}, {LACE_E_ARG, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_writer *w;
        lace_error err, err2;
        lace_status s = LACE_OK;
        CHECK(gguf_writer_create(&w, &err) == LACE_OK);
        gguf_writer_add_int(w, "k", GGUF_U8, 1, &err);
        gguf_writer_add_tensor(w, text_of("t"), DTYPE_F32, &good, data, &err);
        /* clang-format off */
        switch (cases[i].what) {
        case 0: s = gguf_writer_add_bool(w, "k", true, &err); break;
        case 1: s = gguf_writer_add_int(w, "n", GGUF_U8, 256, &err); break;
        case 2: s = gguf_writer_add_int(w, "n", GGUF_F32, 1, &err); break;
        case 3: s = gguf_writer_add_text(w, "", text_of("v"), &err); break;
        case 4: s = gguf_writer_set_alignment(w, 24, &err); break;
        case 5: s = gguf_writer_add_tensor(w, text_of("t"), DTYPE_F32, &good, data, &err); break;
        case 6: s = gguf_writer_add_tensor(w, text_of("u"), DTYPE_F32, &bad, data, &err); break;
        case 7: s = gguf_writer_add_tensor(w, text_of("a\nb"), DTYPE_F32, &good, data, &err); break;
        case 8: s = gguf_writer_add_tensor(w, text_of("u"), DTYPE_Q8_0, &part, data, &err); break;
        case 9: s = gguf_writer_add_array(w, "n", GGUF_STRING, data, 1, &err); break;
        case 10: s = gguf_writer_add_float(w, "n", GGUF_U8, 1, &err); break;
        }
        /* clang-format on */
        CHECK(s == cases[i].expected && err.status == s);
        gguf_writer_add_int(w, "k", GGUF_U8, 1,
                            NULL); /* a second failure does not hide the first */
        buf b;
        buf_init(&b, 1 << 20);
        CHECK(gguf_writer_to_buf(w, &b, &err2) == s && strcmp(err.text, err2.text) == 0);
        CHECK(b.size == 0);
        buf_deinit(&b);
        gguf_writer_free(w);
    }
}

static bool cancel_at_half(void *user, const char *what, double done)
{
    *(double *)user = done;
    return done < 0.5;
}

static bool count_up(void *user, const char *what, double done)
{
    double *last = user;
    bool is_rising = done >= *last && done <= 1;
    *last = done;
    return is_rising;
}

static void file_is_written_whole_or_not_at_all(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    const char *path = scratch_path("model.gguf");
    tiny_options o = tiny_options_default();
    gguf_writer *w;
    lace_error err;
    double progress = 0;
    CHECK(tiny_model_create(&o, &w, &err) == LACE_OK);
    CHECK(gguf_writer_to_file(w, path, cancel_at_half, &progress, &err) == LACE_E_CANCELLED);
    CHECK(scratch_count() == 0);
    progress = 0;
    CHECK(is_ok(gguf_writer_to_file(w, path, count_up, &progress, &err), &err) && progress == 1);
    CHECK(scratch_count() == 1);
    CHECK(is_ok(gguf_writer_to_file(w, path, NULL, NULL, &err), &err)); /* replaces */
    CHECK(scratch_count() == 1);
    gguf_writer_free(w);
    weights *opened;
    buf b = tiny_model_bytes(o);
    CHECK(is_ok(weights_open(path, &opened, &err), &err));
    CHECK(weights_file_bytes(opened) == b.size);
    const tensor *t = weights_find(opened, "blk.0.attn_q.weight");
    CHECK(t && t->n_values == 16 * 16 && weights_find(opened, "blk.0.attn_q.weigh") == NULL);
    /* What was released comes back from the file. */
    uint8_t before[64], after[64];
    memcpy(before, t->data, sizeof before);
    weights_release(opened, t);
    memcpy(after, t->data, sizeof after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    weights_close(opened);
    buf_deinit(&b);
    scratch_remove();
}

int main(void)
{
    CASE(a_copy_of_a_file_is_the_same_file);
    CASE(writer_reports_its_first_failure);
    CASE(file_is_written_whole_or_not_at_all);
    return tap_end();
}
