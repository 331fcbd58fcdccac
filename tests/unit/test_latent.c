/* Latent attention: what files of other makers leave out or have in another form, and config.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "formats/gguf.h"
#include "hf/config_hf.h"
#include "lace.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_TOKENS = 8, N_VOCAB = 16, N_HEADS = 2, RANK = 4, K_DIM = 4, V_DIM = 6 };

/* How a file is changed. */
typedef struct change {
    bool joins;       /* attn_k_b and attn_v_b become attn_kv_b, and head sizes those of heads */
    bool has_no_bias; /* exp_probs_b is left out */
    const char *key;  /* a number that is added, or NULL */
    int x;
} change;

/* For each head the rows of k, which are the columns of its attn_k_b, then those of v. */
static void join(const float *k, const float *v, float *out)
{
    for (int h = 0; h < N_HEADS; h++) {
        for (int r = 0; r < K_DIM; r++)
            for (int c = 0; c < RANK; c++)
                *out++ = k[(h * RANK + c) * K_DIM + r];
        memcpy(out, v + h * V_DIM * RANK, V_DIM * RANK * sizeof *out);
        out += V_DIM * RANK;
    }
}

static bool ends(text name, const char *end)
{
    size_t n = strlen(end);
    return name.size >= n && memcmp(name.data + name.size - n, end, n) == 0;
}

static void add_tensor(gguf_writer *w, const gguf *g, const tensor *t, const change *c,
                       float *joined)
{
    char name[64];
    if (c->has_no_bias && ends(t->name, ".exp_probs_b.bias"))
        return;
    if (!c->joins || !(ends(t->name, ".attn_k_b.weight") || ends(t->name, ".attn_v_b.weight"))) {
        gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
        return;
    }
    if (ends(t->name, ".attn_v_b.weight"))
        return;
    int layer = atoi(t->name.data + strlen("blk."));
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", layer);
    const tensor *v = gguf_find_tensor(g, name);
    float *values = joined + layer * N_HEADS * (K_DIM + V_DIM) * RANK;
    join((const float *)t->data, (const float *)v->data, values);
    snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", layer);
    gguf_writer_add_tensor(w, text_of(name), DTYPE_F32,
                           &(shape){2, {RANK, N_HEADS * (K_DIM + V_DIM), 1, 1}}, values, NULL);
}

static buf build(const change *c)
{
    static float joined[2 * N_HEADS * (K_DIM + V_DIM) * RANK];
    tiny_options o = tiny_options_arch("deepseek2");
    o.type = DTYPE_F32;
    buf plain = tiny_model_bytes(o), out;
    gguf *g = NULL;
    gguf_writer *w = NULL;
    buf_init(&out, 1 << 20);
    CHECK(gguf_parse((span){(const uint8_t *)plain.data, plain.size}, &g, NULL) == LACE_OK);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        bool is_size = ends(v->key, "_length_mla") || ends(v->key, ".key_length") ||
                       ends(v->key, ".value_length") || ends(v->key, ".head_count_kv");
        if (!c->joins || !is_size)
            gguf_writer_add_value(w, v, NULL);
    }
    if (c->joins) {
        gguf_writer_add_int(w, "deepseek2.attention.head_count_kv", GGUF_U32, N_HEADS, NULL);
        gguf_writer_add_int(w, "deepseek2.attention.key_length", GGUF_U32, K_DIM + 4, NULL);
        gguf_writer_add_int(w, "deepseek2.attention.value_length", GGUF_U32, V_DIM, NULL);
    }
    if (c->key)
        gguf_writer_add_int(w, c->key, GGUF_U32, c->x, NULL);
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        add_tensor(w, g, gguf_tensor_at(g, i), c, joined);
    CHECK(gguf_writer_to_buf(w, &out, NULL) == LACE_OK);
    gguf_writer_free(w);
    gguf_free(g);
    buf_deinit(&plain);
    return out;
}

static void run(const change *c, float logits[N_VOCAB])
{
    buf file = build(c);
    lace_model *model = NULL;
    lace_session *session = NULL;
    lace_session_options o = lace_session_options_default();
    lace_error err = {0};
    lace_item items[N_TOKENS];
    o.n_threads = 1;
    o.n_context = 16;
    o.kv_type = LACE_KV_F32;
    memset(logits, 0, N_VOCAB * sizeof *logits);
    for (int i = 0; i < N_TOKENS; i++)
        items[i] = (lace_item){(5 * i + 3) % N_VOCAB, 0, i == N_TOKENS - 1};
    lace_status status = lace_model_open_memory(file.data, file.size, "m", NULL, &model, &err);
    if (status == LACE_OK)
        status = lace_session_create(model, &o, &session, &err);
    if (status == LACE_OK)
        status = lace_session_eval(session, items, N_TOKENS, &err);
    if (CHECK(status == LACE_OK))
        memcpy(logits, lace_session_logits(session, 0), N_VOCAB * sizeof *logits);
    else
        tap_note("%s", err.text);
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
}

static bool are_equal(const change *a, const change *b)
{
    float x[N_VOCAB], y[N_VOCAB];
    run(a, x);
    run(b, y);
    CHECK(isfinite(x[0]) && x[0] != 0);
    return memcmp(x, y, sizeof x) == 0;
}

static const change none = {0};

static void keys_and_values_may_lie_in_one_matrix(void)
{
    CHECK(are_equal(&none, &(change){.joins = true}));
}

static void a_bias_of_choices_means_a_sigmoid(void)
{
    const char *key = "deepseek2.expert_gating_func";
    CHECK(are_equal(&none, &(change){.key = key, .x = 2}));
    CHECK(!are_equal(&none, &(change){.key = key, .x = 1}));
    CHECK(are_equal(&(change){.has_no_bias = true},
                    &(change){.has_no_bias = true, .key = key, .x = 1}));
}

/* ---- Directories ----------------------------------------------------------------------------- */

/* A config.json of Mistral 4, which has every key, with more that win over its own. */
static lace_status read_config(const char *more, hf_config *out, lace_error *err)
{
    static const char base[] =
        "{\"model_type\":\"mistral4\",\"hidden_size\":60,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":7,\"num_key_value_heads\":7,\"intermediate_size\":128,"
        "\"vocab_size\":320,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":256,"
        "\"kv_lora_rank\":24,\"q_lora_rank\":null,\"qk_nope_head_dim\":10,"
        "\"qk_rope_head_dim\":6,\"v_head_dim\":12,\"n_routed_experts\":8,"
        "\"num_experts_per_tok\":2,\"moe_intermediate_size\":16,\"rope_parameters\":{"
        "\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":64,"
        "\"mscale\":1,\"mscale_all_dim\":0.5,\"llama_4_scaling_beta\":0.1}}";
    json_t *json = NULL, *other = NULL;
    CHECK(json_read((span){(const uint8_t *)base, strlen(base)}, 0, &json, NULL) == LACE_OK);
    CHECK(json_read((span){(const uint8_t *)more, strlen(more)}, 0, &other, NULL) == LACE_OK);
    json_object_update(json, other);
    lace_status status = hf_config_read(json, out, err);
    json_decref(json);
    json_decref(other);
    return status;
}

static void directories_say_how_long_latents_are(void)
{
    hf_config h;
    lace_error err = {0};
    const model_config *c = &h.model;
    if (!CHECK(read_config("{}", &h, &err) == LACE_OK))
        tap_note("%s", err.text);
    CHECK(c->head_dim == 30 && c->value_dim == 24 && c->n_kv_heads == 1 && c->n_heads == 7);
    CHECK(c->latent.kv_rank == 24 && c->latent.q_rank == 0 && c->latent.nope_dim == 10);
    CHECK(c->latent.value_dim == 12 && c->rope.n_dims == 6 && !c->latent.has_halves);
    CHECK(c->rope.yarn_mscale_all == 0.5 && c->temperature_length == 64);
    CHECK(c->temperature_scale == 0.1 && c->layers[1].has_experts);
    CHECK(read_config("{\"q_lora_rank\":5,\"rope_interleave\":false}", &h, &err) == LACE_OK);
    CHECK(c->latent.q_rank == 5 && c->latent.has_halves);
    CHECK(read_config("{\"model_type\":\"glm4_moe_lite\",\"mlp_layer_types\":[\"sparse\","
                      "\"dense\"]}",
                      &h, &err) == LACE_OK);
    CHECK(c->layers[0].has_experts && !c->layers[1].has_experts);
    CHECK(read_config("{\"model_type\":\"deepseek_v2\",\"n_group\":4,\"topk_group\":2,"
                      "\"topk_method\":\"greedy\"}",
                      &h, &err) == LACE_OK);
    CHECK(c->routing.n_groups <= 1 && !c->routing.norms);
}

static void impossible_latents_are_refused(void)
{
    static const struct {
        const char *more, *key;
        lace_status expected;
    } cases[] = {
        {"{\"kv_lora_rank\":null}", "kv_lora_rank", LACE_E_META},
        {"{\"kv_lora_rank\":25}", "kv_lora_rank", LACE_E_META},
        {"{\"kv_lora_rank\":1020}", "kv_lora_rank", LACE_E_META},
        {"{\"kv_lora_rank\":-2}", "kv_lora_rank", LACE_E_META},
        {"{\"q_lora_rank\":-1}", "q_lora_rank", LACE_E_META},
        {"{\"q_lora_rank\":\"8\"}", "q_lora_rank", LACE_E_META},
        {"{\"qk_rope_head_dim\":7,\"head_dim\":8}", "qk_rope_head_dim", LACE_E_META},
        {"{\"qk_rope_head_dim\":0,\"head_dim\":8}", "qk_rope_head_dim", LACE_E_META},
        {"{\"qk_nope_head_dim\":0}", "qk_nope_head_dim", LACE_E_META},
        {"{\"qk_nope_head_dim\":null,\"head_dim\":8}", "qk_nope_head_dim", LACE_E_META},
        {"{\"v_head_dim\":0}", "v_head_dim", LACE_E_META},
        {"{\"v_head_dim\":2000}", "v_head_dim", LACE_E_META},
        {"{\"rope_interleave\":2}", "rope_interleave", LACE_E_META},
        {"{\"model_type\":\"deepseek_v2\",\"topk_method\":\"noaux_tc\"}", "topk_method",
         LACE_E_UNSUPPORTED},
        {"{\"model_type\":\"glm4_moe_lite\",\"mlp_layer_types\":[\"dense\",\"moe\"]}",
         "mlp_layer_types", LACE_E_UNSUPPORTED},
        {"{\"model_type\":\"llama\",\"num_key_value_heads\":7,\"head_dim\":8,"
         "\"n_routed_experts\":0}",
         "kv_lora_rank", LACE_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_config h;
        lace_error err = {0};
        lace_status status = read_config(cases[i].more, &h, &err);
        if (!CHECK(status == cases[i].expected && strstr(err.text, cases[i].key)))
            tap_note("%s: %s", cases[i].more, err.text);
    }
}

int main(void)
{
    CASE(keys_and_values_may_lie_in_one_matrix);
    CASE(a_bias_of_choices_means_a_sigmoid);
    CASE(directories_say_how_long_latents_are);
    CASE(impossible_latents_are_refused);
    return tap_end();
}
