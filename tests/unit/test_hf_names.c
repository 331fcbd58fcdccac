/* hf/hf_names.c: a directory's tensors under the names of GGUF, made only when needed. */
#include <stdlib.h>
#include <string.h>

#include "alloc_faults.h"
#include "lace.h"
#include "hf/hf_names.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_hf.h"

static weights *open_scratch(model_config *config)
{
    weights *w = NULL;
    lace_error err = {0};
    CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK);
    if (w && !CHECK(config_from_weights(w, config, &err) == LACE_OK))
        tap_note("%s", err.text);
    return w;
}

static void matrices_are_used_where_they_lie(void)
{
    weights *files = NULL;
    model_config c;
    lace_error err;
    CHECK(scratch_create() && tiny_hf_llama("F16"));
    CHECK(weights_open(scratch_path(""), &files, &err) == LACE_OK);
    const uint8_t *q = weights_find(files, "model.layers.0.self_attn.q_proj.weight")->data;
    CHECK(config_from_weights(files, &c, &err) == LACE_OK && c.rope.is_neox);
    const tensor *t = weights_find(files, "blk.0.attn_q.weight");
    CHECK(t && t->data == q && weights_prepare(files, t, &err) == LACE_OK && t->data == q);
    CHECK(!weights_find(files, "model.layers.0.self_attn.q_proj.weight"));
    /* llama3's divisors come from the config. */
    const tensor *factors = weights_find(files, "rope_freqs.weight");
    CHECK(factors && factors->type == DTYPE_F32 && factors->n_values == 2);
    weights_release(files, t);
    CHECK(t->data == q);
    weights_close(files);
    scratch_remove();
}

/*
 * Of families whose prediction layers lace does not use, they are left out; any other tensor that
 * nobody knows is refused.
 */
static void layers_behind_the_last_are_left_out(void)
{
    static const struct {
        const char *tensor, *config;
        lace_status expected;
    } cases[] = {
        {"model.layers.1.enorm.weight", ",\"num_nextn_predict_layers\":1", LACE_OK},
        {"model.layers.1.enorm.weight", ",\"num_nextn_predict_layers\":0", LACE_E_UNSUPPORTED},
        {"model.layers.2.enorm.weight", ",\"num_nextn_predict_layers\":1", LACE_E_UNSUPPORTED},
        {"model.layers.0.enorm.weight", ",\"num_nextn_predict_layers\":1", LACE_E_UNSUPPORTED},
        {"model.layers.1.enorm.weight", "", LACE_E_UNSUPPORTED},
        {"model.layers.1.enorm.weight", ",\"num_nextn_predict_layers\":-1", LACE_E_META},
        {"mtp.norm.weight", ",\"mtp_num_hidden_layers\":1", LACE_OK},
        {"mtp.norm.weight", ",\"mtp_num_hidden_layers\":-1", LACE_E_META},
        {"mtp.norm.weight", ",\"mtp_num_hidden_layers\":513", LACE_E_META},
        {"mtp.norm.weight", ",\"mtp_num_hidden_layers\":\"1\"", LACE_E_META},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weights *w = NULL;
        model_config c;
        lace_error err = {0};
        CHECK(scratch_create() && tiny_hf_llama_and(cases[i].tensor, cases[i].config));
        CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK);
        if (!CHECK(config_from_weights(w, &c, &err) == cases[i].expected))
            tap_note("case %zu: %s", i, err.text);
        weights_close(w);
        scratch_remove();
    }
}

static void what_must_be_made_comes_and_goes(void)
{
    model_config c;
    lace_error err;
    CHECK(scratch_create() && tiny_hf_gpt_oss());
    weights *w = open_scratch(&c);
    const tensor *t = w ? weights_find(w, "blk.0.ffn_up_exps.weight") : NULL;
    static const uint8_t zeros[17];
    static uint8_t kept[64 * 17];
    if (CHECK(t && t->type == DTYPE_MXFP4 && t->n_bytes == sizeof kept)) {
        CHECK(memcmp(t->data, zeros, 17) == 0); /* not yet */
        CHECK(weights_prepare(w, t, &err) == LACE_OK && memcmp(t->data, zeros, 17) != 0);
        memcpy(kept, t->data, sizeof kept);
        weights_release(w, t);
        CHECK(memcmp(t->data, zeros, 17) == 0);
        CHECK(weights_prepare(w, t, &err) == LACE_OK && memcmp(t->data, kept, sizeof kept) == 0);
    }
    weights_close(w);
    scratch_remove();
}

static void pieces_make_the_whole(void)
{
    static hf_config config;
    weights *w = NULL;
    hf_tensors *h = NULL;
    lace_error err;
    CHECK(scratch_create() && tiny_hf_llama("BF16"));
    CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK);
    CHECK(hf_config_read(weights_config(w), &config, &err) == LACE_OK);
    CHECK(hf_tensors_create(w, &config, HF_AS_GGUF, &h, &err) == LACE_OK);
    for (size_t i = 0; h && i < hf_tensors_count(h); i++) {
        const tensor *t = hf_tensors_at(h, i);
        uint64_t size = t->n_bytes / t->n_values;
        uint8_t whole[1024], pieces[1024];
        hf_tensors_make(h, i, 0, t->n_values, whole);
        for (uint64_t at = 0; at < t->n_values; at += 5) {
            uint64_t n = t->n_values - at < 5 ? t->n_values - at : 5;
            hf_tensors_make(h, i, at, n, pieces + at * size);
        }
        CHECK(memcmp(whole, pieces, (size_t)t->n_bytes) == 0);
    }
    hf_tensors_free(h);
    weights_close(w);
    scratch_remove();
}

/* Open the directory as a model and compute one token. */
static lace_status run_once(lace_error *err)
{
    lace_model *model;
    lace_session *session = NULL;
    lace_session_options o = lace_session_options_default();
    o.n_threads = 1;
    lace_item item = {.token = 3, .want_logits = true};
    lace_status status = lace_model_open(scratch_path(""), NULL, &model, err);
    if (status == LACE_OK)
        status = lace_session_create(model, &o, &session, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, &item, 1, err);
    lace_session_free(session);
    lace_model_close(model);
    return status;
}

static void every_allocation_of_running_may_fail(void)
{
    CHECK(scratch_create() && tiny_hf_gpt_oss());
    fail_each_allocation(run_once, false);
    scratch_remove();
}

int main(void)
{
    CASE(matrices_are_used_where_they_lie);
    CASE(layers_behind_the_last_are_left_out);
    CASE(what_must_be_made_comes_and_goes);
    CASE(pieces_make_the_whole);
    CASE(every_allocation_of_running_may_fail);
    return tap_end();
}
