/* Safetensors files and small Hugging Face directories, made on the spot. */
#include "tiny_hf.h"

#include <stdio.h>
#include <string.h>

#include "scratch.h"
#include "tap.h"

enum { MAX_BYTES = 64 << 20 };

/* ---- Files ----------------------------------------------------------------------------------- */

void st_begin(st_file *f)
{
    buf_init(&f->header, MAX_BYTES);
    buf_init(&f->data, MAX_BYTES);
}

/* Small numbers whatever the type: the exponents of F32, F16 and BF16 lie in the last byte. */
static void append_random(buf *out, size_t n_bytes)
{
    static uint64_t state = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint8_t byte = (uint8_t)(state >> 56);
        if (i % 2 == 1)
            byte = (uint8_t)((byte & 0x83) | 0x38);
        buf_append(out, &byte, 1);
    }
}

void st_add(st_file *f, const char *name, const char *type, const char *shape, const void *data,
            size_t n_bytes)
{
    size_t begin = f->data.size;
    if (data)
        buf_append(&f->data, data, n_bytes);
    else
        append_random(&f->data, n_bytes);
    CHECK(buf_printf(
              &f->header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
              f->header.size ? ',' : '{', name, type, shape, begin, f->data.size) == LACE_OK);
}

static void append_size(buf *out, uint64_t n)
{
    for (int i = 0; i < 8; i++, n >>= 8)
        buf_append(out, &(uint8_t){(uint8_t)n}, 1);
}

void st_end(st_file *f, buf *out)
{
    buf_append_text(&f->header, "}");
    append_size(out, f->header.size);
    buf_append(out, f->header.data, f->header.size);
    CHECK(buf_append(out, f->data.data, f->data.size) == LACE_OK);
    buf_deinit(&f->header);
    buf_deinit(&f->data);
}

void st_raw(const char *header, size_t n_data, buf *out)
{
    append_size(out, strlen(header));
    buf_append_text(out, header);
    for (size_t i = 0; i < n_data; i++)
        buf_append(out, "", 1);
}

bool tiny_hf_write(const char *name, const buf *contents)
{
    FILE *f = fopen(scratch_path(name), "wb");
    if (!f)
        return false;
    bool ok = fwrite(contents->data, 1, contents->size, f) == contents->size;
    return fclose(f) == 0 && ok;
}

static bool write_tensors(st_file *f)
{
    buf whole;
    buf_init(&whole, MAX_BYTES);
    st_end(f, &whole);
    bool ok = tiny_hf_write("model.safetensors", &whole);
    buf_deinit(&whole);
    return ok;
}

/* ---- Directories ----------------------------------------------------------------------------- */

static bool write_llama(const char *type, const char *more_tensor, const char *more_config)
{
    size_t size = strcmp(type, "F32") == 0 ? 4 : 2;
    char config[1024];
    st_file f;
    st_begin(&f);
    if (more_tensor)
        st_add(&f, more_tensor, type, "[8]", NULL, 8 * size);
    st_add(&f, "model.embed_tokens.weight", type, "[16,8]", NULL, 128 * size);
    st_add(&f, "lm_head.weight", type, "[16,8]", NULL, 128 * size);
    st_add(&f, "model.norm.weight", type, "[8]", NULL, 8 * size);
    st_add(&f, "model.layers.0.input_layernorm.weight", type, "[8]", NULL, 8 * size);
    st_add(&f, "model.layers.0.post_attention_layernorm.weight", type, "[8]", NULL, 8 * size);
    st_add(&f, "model.layers.0.self_attn.q_proj.weight", type, "[8,8]", NULL, 64 * size);
    st_add(&f, "model.layers.0.self_attn.k_proj.weight", type, "[8,8]", NULL, 64 * size);
    st_add(&f, "model.layers.0.self_attn.v_proj.weight", type, "[8,8]", NULL, 64 * size);
    st_add(&f, "model.layers.0.self_attn.o_proj.weight", type, "[8,8]", NULL, 64 * size);
    st_add(&f, "model.layers.0.mlp.gate_proj.weight", type, "[12,8]", NULL, 96 * size);
    st_add(&f, "model.layers.0.mlp.up_proj.weight", type, "[12,8]", NULL, 96 * size);
    st_add(&f, "model.layers.0.mlp.down_proj.weight", type, "[8,12]", NULL, 96 * size);
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"
             "\"num_attention_heads\":2,\"intermediate_size\":12,\"vocab_size\":16,"
             "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
             "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8},"
             "\"original_max_position_embeddings\":32%s}",
             more_config);
    return write_tensors(&f) && scratch_write("config.json", config);
}

bool tiny_hf_llama(const char *type)
{
    return write_llama(type, NULL, "");
}

bool tiny_hf_llama_and(const char *more_tensor, const char *more_config)
{
    return write_llama("F32", more_tensor, more_config);
}

bool tiny_hf_gpt_oss(void)
{
    st_file f;
    st_begin(&f);
    st_add(&f, "model.embed_tokens.weight", "F32", "[16,32]", NULL, 2048);
    st_add(&f, "lm_head.weight", "F32", "[16,32]", NULL, 2048);
    st_add(&f, "model.norm.weight", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.input_layernorm.weight", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.post_attention_layernorm.weight", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.self_attn.q_proj.weight", "F32", "[32,32]", NULL, 4096);
    st_add(&f, "model.layers.0.self_attn.q_proj.bias", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.self_attn.k_proj.weight", "F32", "[32,32]", NULL, 4096);
    st_add(&f, "model.layers.0.self_attn.k_proj.bias", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.self_attn.v_proj.weight", "F32", "[32,32]", NULL, 4096);
    st_add(&f, "model.layers.0.self_attn.v_proj.bias", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.self_attn.o_proj.weight", "F32", "[32,32]", NULL, 4096);
    st_add(&f, "model.layers.0.self_attn.o_proj.bias", "F32", "[32]", NULL, 128);
    st_add(&f, "model.layers.0.self_attn.sinks", "F32", "[2]", NULL, 8);
    st_add(&f, "model.layers.0.mlp.router.weight", "F32", "[2,32]", NULL, 256);
    st_add(&f, "model.layers.0.mlp.router.bias", "F32", "[2]", NULL, 8);
    st_add(&f, "model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "[2,64,1,16]", NULL, 2048);
    st_add(&f, "model.layers.0.mlp.experts.gate_up_proj_scales", "U8", "[2,64,1]", NULL, 128);
    st_add(&f, "model.layers.0.mlp.experts.gate_up_proj_bias", "F32", "[2,64]", NULL, 512);
    st_add(&f, "model.layers.0.mlp.experts.down_proj_blocks", "U8", "[2,32,1,16]", NULL, 1024);
    st_add(&f, "model.layers.0.mlp.experts.down_proj_scales", "U8", "[2,32,1]", NULL, 64);
    st_add(&f, "model.layers.0.mlp.experts.down_proj_bias", "F32", "[2,32]", NULL, 256);
    return write_tensors(&f) &&
           scratch_write("config.json",
                         "{\"model_type\":\"gpt_oss\",\"hidden_size\":32,\"num_hidden_layers\":1,"
                         "\"num_attention_heads\":2,\"head_dim\":16,\"intermediate_size\":32,"
                         "\"vocab_size\":16,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
                         "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"sliding_window\":8,"
                         "\"layer_types\":[\"sliding_attention\"],\"swiglu_limit\":7.0,"
                         "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,"
                         "\"truncate\":false,\"original_max_position_embeddings\":4096},"
                         "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}");
}
