/* formats/: models of one and of several files. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/gguf_write.h"
#include "formats/weights.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Split files ----------------------------------------------------------------------------- */

/* Write the tiny model in parts; `fault` spoils one thing. */
enum { NO_FAULT, WRONG_COUNT, WRONG_NUMBER, WRONG_TOTAL, SAME_TENSOR, NO_KEYS };

static void write_parts(int n_parts, int fault)
{
    buf b = tiny_model_bytes(tiny_options_default());
    gguf *g = NULL;
    lace_error err;
    CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err));
    size_t n = gguf_n_tensors(g);
    for (int part = 0; part < n_parts; part++) {
        gguf_writer *w;
        char name[64];
        CHECK(gguf_writer_create(&w, &err) == LACE_OK);
        for (size_t i = 0; part == 0 && i < gguf_n_values(g); i++)
            gguf_writer_add_value(w, gguf_value_at(g, i), NULL);
        bool is_spoiled = part == 1;
        if (!(fault == NO_KEYS && is_spoiled)) {
            gguf_writer_add_int(w, "split.no", GGUF_U16,
                                fault == WRONG_NUMBER && is_spoiled ? 0 : part, NULL);
            gguf_writer_add_int(w, "split.count", GGUF_U16,
                                n_parts + (fault == WRONG_COUNT && is_spoiled), NULL);
            gguf_writer_add_int(w, "split.tensors.count", GGUF_I32,
                                (int64_t)n + (fault == WRONG_TOTAL), NULL);
        }
        for (size_t i = 0; i < n; i++) {
            const tensor *t = gguf_tensor_at(g, i);
            if ((int)(i * (size_t)n_parts / n) == part ||
                (i == 0 && fault == SAME_TENSOR && is_spoiled))
                gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
        }
        snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", part + 1, n_parts);
        CHECK(is_ok(gguf_writer_to_file(w, scratch_path(name), NULL, NULL, &err), &err));
        gguf_writer_free(w);
    }
    gguf_free(g);
    buf_deinit(&b);
}

static void any_part_of_a_split_model_opens_it(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    write_parts(3, NO_FAULT);
    buf b = tiny_model_bytes(tiny_options_default());
    gguf *g = NULL;
    lace_error err;
    CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err));
    for (int part = 1; part <= 3; part++) {
        char name[64];
        weights *w;
        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", part);
        if (!CHECK(is_ok(weights_open(scratch_path(name), &w, &err), &err)))
            continue;
        CHECK(weights_count(w) == gguf_n_tensors(g));
        CHECK(gguf_find(weights_gguf(w), "llama.block_count") != NULL);
        for (size_t i = 0; i < weights_count(w); i++) {
            const tensor *want = gguf_tensor_at(g, i), *got = weights_at(w, i);
            CHECK(text_equals(want->name, got->name) && want->n_bytes == got->n_bytes);
            CHECK(memcmp(want->data, got->data, (size_t)want->n_bytes) == 0);
            weights_release(w, got);
        }
        weights_close(w);
    }
    gguf_free(g);
    buf_deinit(&b);
    scratch_remove();
}

static void split_model_with_a_fault_is_refused_by_name(void)
{
    static const struct {
        int fault;
        lace_status expected;
        const char *text;
    } cases[] = {
        {WRONG_COUNT, LACE_E_META, "m-00002-of-00003.gguf"},
        {WRONG_NUMBER, LACE_E_META, "m-00002-of-00003.gguf"},
        {NO_KEYS, LACE_E_META, "m-00002-of-00003.gguf"},
        {WRONG_TOTAL, LACE_E_COUNT, "split.tensors.count"},
        {SAME_TENSOR, LACE_E_DUP, "part 2 of 3: tensor token_embd.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(scratch_create() != NULL);
        weights *w;
        lace_error err;
        write_parts(3, cases[i].fault);
        CHECK(weights_open(scratch_path("m-00003-of-00003.gguf"), &w, &err) == cases[i].expected);
        CHECK(w == NULL && strstr(err.text, cases[i].text) != NULL);
        scratch_remove();
    }
    CHECK(scratch_create() != NULL);
    weights *w;
    lace_error err;
    write_parts(3, NO_FAULT);
    unlink(scratch_path("m-00002-of-00003.gguf"));
    CHECK(weights_open(scratch_path("m-00001-of-00003.gguf"), &w, &err) == LACE_E_IO);
    CHECK(!w && strstr(err.text, "m-00002-of-00003.gguf: cannot open") != NULL);
    CHECK(scratch_write("m-00004-of-00003.gguf", "") && scratch_write("m-00000-of-00003.gguf", ""));
    CHECK(weights_open(scratch_path("m-00004-of-00003.gguf"), &w, &err) == LACE_E_NAME && !w);
    CHECK(weights_open(scratch_path("m-00000-of-00003.gguf"), &w, &err) == LACE_E_NAME && !w);
    CHECK(rename(scratch_path("m-00001-of-00003.gguf"), scratch_path("m.gguf")) == 0);
    CHECK(weights_open(scratch_path("m.gguf"), &w, &err) == LACE_E_NAME && !w);
    CHECK(strstr(err.text, "is part 1 of 3") != NULL);
    scratch_remove();
}

static void memory_and_errors_carry_the_name(void)
{
    buf b = tiny_model_bytes(tiny_options_default());
    weights *w;
    lace_error err;
    CHECK(is_ok(weights_open_memory(span_of(&b), "built-in", &w, &err), &err));
    CHECK(w && strcmp(weights_name(w), "built-in") == 0 && weights_count(w) == 21);
    if (w)
        weights_release(w, weights_at(w, 0)); /* nothing to release, nothing lost */
    weights_close(w);
    b.data[0] = 'X';
    CHECK(weights_open_memory(span_of(&b), "built-in", &w, &err) == LACE_E_MAGIC && !w);
    CHECK(strncmp(err.text, "built-in: at byte 0: ", 21) == 0);
    CHECK(weights_open("/nonexistent/x.gguf", &w, &err) == LACE_E_IO && !w);
    CHECK(strncmp(err.text, "/nonexistent/x.gguf: ", 21) == 0);
    buf_deinit(&b);
    weights_close(NULL);
    gguf_free(NULL);
}

int main(void)
{
    CASE(any_part_of_a_split_model_opens_it);
    CASE(split_model_with_a_fault_is_refused_by_name);
    CASE(memory_and_errors_carry_the_name);
    return tap_end();
}
