/*
 * Bad models, all the way through the library: what parses may still be no model. Whatever opens
 * must also run: one token is evaluated.
 */
#include <stdlib.h>
#include <string.h>

#include "bad_file.h"
#include "base/mem.h"
#include "formats/gguf_write.h"
#include "lace.h"
#include "tap.h"
#include "tensor/sparse.h"
#include "tiny_model.h"

/* Open from a block of exactly this size, create a session and evaluate a token. */
static lace_status open_and_run(const void *data, size_t n_bytes, bool runs, lace_error *err)
{
    lace_model *model = NULL;
    lace_session *session = NULL;
    void *copy = malloc(n_bytes ? n_bytes : 1);
    if (n_bytes)
        memcpy(copy, data, n_bytes);
    lace_status status = lace_model_open_memory(copy, n_bytes, "bad", NULL, &model, err);
    if (status == LACE_OK && runs) {
        lace_session_options o = lace_session_options_default();
        lace_item item = {0, 0, true};
        o.n_context = 8;
        o.n_batch = 4;
        o.n_threads = 1;
        o.memory_bytes = 1 << 26; /* a flipped bit may ask for much; that is refused, not tried */
        status = lace_session_create(model, &o, &session, err);
        if (status == LACE_OK)
            status = lace_session_eval(session, &item, 1, err);
    }
    lace_session_free(session);
    lace_model_close(model);
    free(copy);
    return status;
}

static void the_good_one_runs(void)
{
    lace_error err;
    lace_status status = open_and_run(bad_seed.data, bad_seed.size, true, &err);
    if (!CHECK(status == LACE_OK))
        tap_note("%s", err.text);
}

static void only_the_whole_file_opens(void)
{
    lace_error err;
    size_t n_opened = 0, step = bad_seed.size > 4000 ? 7 : 1;
    for (size_t n = 0; n < bad_seed.size; n += n < 2000 ? 1 : step)
        n_opened += open_and_run(bad_seed.data, n, false, &err) == LACE_OK;
    CHECK(n_opened == 0);
}

/* Every single-bit flip before the data: refused with one line, or the model runs. */
static void flipped_bits_never_crash(void)
{
    size_t n = (size_t)gguf_data_offset(bad_seed_gguf), n_refused = 0, n_opened = 0;
    char *copy = malloc(bad_seed.size);
    memcpy(copy, bad_seed.data, bad_seed.size);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        lace_error err;
        copy[bit / 8] ^= (char)(1 << bit % 8);
        /* Running every one would take minutes under a sanitizer; a prime step takes all kinds. */
        bool is_ok = open_and_run(copy, bad_seed.size, bit % 13 == 0, &err) == LACE_OK;
        copy[bit / 8] ^= (char)(1 << bit % 8);
        n_opened += is_ok;
        n_refused += !is_ok;
        if (!is_ok && (strncmp(err.text, "bad: ", 5) != 0 && err.status != LACE_E_MEMORY))
            CHECK(!"the message begins with the file's name");
    }
    tap_note("%zu flips: %zu refused, %zu open", 8 * n, n_refused, n_opened);
    CHECK(n_refused > 0 && n_opened > 0);
    free(copy);
}

/* A tensor of another shape is named, with what it has and what was expected. */
static void transposed_tensor_is_named(void)
{
    tiny_options o = tiny_options_small();
    buf file;
    lace_error err;
    buf_init(&file, 1 << 20);
    CHECK(tiny_model_build(&o, &file, NULL) == LACE_OK);
    gguf *g;
    CHECK(gguf_parse((span){(const uint8_t *)file.data, file.size}, &g, NULL) == LACE_OK);
    /* In the directory the dimensions follow name and count: swap them. */
    const char *name = "blk.0.ffn_gate.weight";
    const tensor *t = gguf_find_tensor(g, name);
    char *at = (char *)t->name.data + t->name.size + 4, swap[8];
    memcpy(swap, at, 8);
    memmove(at, at + 8, 8);
    memcpy(at + 8, swap, 8);
    CHECK(open_and_run(file.data, file.size, false, &err) == LACE_E_SHAPE);
    CHECK(strstr(err.text, name) && strstr(err.text, "32x16") && strstr(err.text, "16x32"));
    gguf_free(g);
    buf_deinit(&file);
}

static void missing_tensor_is_named(void)
{
    buf file;
    lace_error err;
    tiny_options o = tiny_options_small();
    buf_init(&file, 1 << 20);
    CHECK(tiny_model_build(&o, &file, NULL) == LACE_OK);
    gguf *g;
    CHECK(gguf_parse((span){(const uint8_t *)file.data, file.size}, &g, NULL) == LACE_OK);
    const tensor *t = gguf_find_tensor(g, "blk.1.attn_k.weight");
    ((char *)t->name.data)[t->name.size - 1] = 'x';
    CHECK(open_and_run(file.data, file.size, false, &err) == LACE_E_META);
    CHECK(strstr(err.text, "blk.1.attn_k.weight is missing") != NULL);
    gguf_free(g);
    buf_deinit(&file);
}

/* A vector in the form of a sparse matrix: it fits by its size, but nothing decodes it. */
static void sparse_vector_is_refused(void)
{
    tiny_options o = tiny_options_small();
    static const float values[32] = {1, 2, 3};
    sparse_source source = {.n_rows = 1, .n_cols = 32, .values = values};
    gguf_writer *w = NULL;
    buf blob, file;
    lace_error err;
    o.n_embd = 128; /* heads of 64 values, 32 frequencies */
    buf_init(&blob, 1 << 12);
    buf_init(&file, 1 << 20);
    CHECK(tiny_model_create(&o, &w, NULL) == LACE_OK);
    CHECK(sparse_write(SPARSE_CSR, &source, &blob, NULL) == LACE_OK);
    shape s = {1, {(int64_t)blob.size}};
    gguf_writer_add_tensor(w, text_of("rope_freqs.weight.sparse"), DTYPE_I8, &s, blob.data, NULL);
    CHECK(gguf_writer_to_buf(w, &file, NULL) == LACE_OK);
    CHECK(open_and_run(file.data, file.size, true, &err) == LACE_E_TENSOR_TYPE);
    CHECK(strstr(err.text, "rope_freqs.weight: lace cannot compute with type csr") != NULL);
    gguf_writer_free(w);
    buf_deinit(&blob);
    buf_deinit(&file);
}

/* Texts that would be copied, and read by others, without end. */
static void long_texts_are_refused(void)
{
    static const struct {
        const char *key;
        size_t n_bytes;
    } cases[] = {{"tokenizer.chat_template", (4 << 20) + 1}, {"general.description", 257 << 20}};
    char *letters = malloc(257 << 20);
    memset(letters, 'a', 257 << 20);
    for (int i = 0; i < 2; i++) {
        tiny_options o = tiny_options_least();
        gguf_writer *w = NULL;
        buf file;
        lace_error err = {0};
        buf_init(&file, (size_t)300 << 20);
        CHECK(tiny_model_create(&o, &w, NULL) == LACE_OK);
        gguf_writer_add_text(w, cases[i].key, (text){letters, cases[i].n_bytes}, NULL);
        CHECK(gguf_writer_to_buf(w, &file, NULL) == LACE_OK);
        gguf_writer_free(w);
        CHECK(open_and_run(file.data, file.size, false, &err) == LACE_E_LIMIT);
        CHECK(strstr(err.text, cases[i].key) != NULL);
        buf_deinit(&file);
    }
    free(letters);
}

/*
 * Every allocation of opening, a session and a token fails once: a clean error, and no leak.
 * (Looking for a config.json beside the file may do without its memory; then all goes well.)
 */
static void failing_allocations_are_clean(void)
{
    long i = 0, n_failed = 0;
    for (bool is_done = false; !is_done; i++) {
        lace_error err = {0};
        mem_fail_at(i, false);
        lace_status status = open_and_run(bad_seed.data, bad_seed.size, true, &err);
        is_done = mem_count() <= i; /* there were not so many */
        mem_fail_at(-1, false);
        n_failed += status == LACE_E_NOMEM;
        if (!CHECK(status == LACE_E_NOMEM || status == LACE_OK))
            tap_note("allocation %ld: %s", i, err.text);
    }
    tap_note("%ld allocations, %ld of them needed", i - 1, n_failed);
    CHECK(n_failed > 30);
}

/* A logit that is not finite is an error of the sampler, whatever else is asked for. */
static void not_a_number_is_not_sampled(void)
{
    buf file;
    tiny_options o = tiny_options_small();
    o.type = DTYPE_F32;
    buf_init(&file, 1 << 20);
    CHECK(tiny_model_build(&o, &file, NULL) == LACE_OK);
    gguf *g;
    CHECK(gguf_parse((span){(const uint8_t *)file.data, file.size}, &g, NULL) == LACE_OK);
    const tensor *t = gguf_find_tensor(g, "output_norm.weight");
    memset((void *)t->data, 0xFF, 4); /* a NaN */
    lace_model *model;
    lace_session *session;
    lace_sampler *sampler;
    lace_model_info info;
    lace_session_options so = lace_session_options_default();
    so.n_threads = 1;
    CHECK(lace_model_open_memory(file.data, file.size, "nan", NULL, &model, NULL) == LACE_OK);
    lace_model_describe(model, &info);
    CHECK(lace_session_create(model, &so, &session, NULL) == LACE_OK);
    lace_item item = {1, 0, true};
    CHECK(lace_session_eval(session, &item, 1, NULL) == LACE_OK);
    lace_sampler_options greedy = lace_sampler_options_default();
    greedy.temperature = 0;
    CHECK(lace_sampler_create(&greedy, info.n_vocab, &sampler, NULL) == LACE_OK);
    lace_token token;
    CHECK(lace_sampler_sample(sampler, lace_session_logits(session, 0), &token, NULL) ==
          LACE_E_NUMERIC);
    lace_sampler_free(sampler);
    lace_session_free(session);
    lace_model_close(model);
    gguf_free(g);
    buf_deinit(&file);
}

int main(void)
{
    if (!bad_seed_create())
        return 1;
    CASE(the_good_one_runs);
    CASE(only_the_whole_file_opens);
    CASE(flipped_bits_never_crash);
    CASE(transposed_tensor_is_named);
    CASE(missing_tensor_is_named);
    CASE(sparse_vector_is_refused);
    CASE(long_texts_are_refused);
    CASE(failing_allocations_are_clean);
    CASE(not_a_number_is_not_sampled);
    bad_seed_free();
    return tap_end();
}
