/* formats/: GGUF files that are right, and what is read from them; model/config. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_write.h"
#include "formats/weights.h"
#include "model/config.h"
#include "data.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Real files ------------------------------------------------------------------------------ */

/* clang-format off */
static const char *const real_files[] = {
    "golden/gemma2/model.gguf",      "golden/gpt-oss/model.gguf",
    "golden/granite/model.gguf",     "golden/llama-linear/model.gguf",
    "golden/llama-yarn/model.gguf",  "golden/llama-tied-headdim/model.gguf",
    "golden/llama/model.gguf",       "golden/llama3-rope/model.gguf",
    "golden/mistral/model.gguf",     "golden/mixtral/model.gguf",
    "golden/olmo2/model.gguf",       "golden/phi3/model.gguf",
    "golden/phi4-partial/model.gguf","golden/qwen2/model.gguf",
    "golden/qwen3/model.gguf",       "golden/qwen3moe/model.gguf",
    "golden/smollm3/model.gguf",     "models/tales-4m-f16.gguf",
    "vocab/baichuan.gguf",           "vocab/bert-bge.gguf",
    "vocab/deepseek-coder.gguf",     "vocab/deepseek-llm.gguf",
    "vocab/falcon.gguf",             "vocab/gpt-2.gguf",
    "vocab/gpt-neox.gguf",           "vocab/llama-bpe.gguf",
    "vocab/llama-spm.gguf",          "vocab/mpt.gguf",
    "vocab/phi-3.gguf",              "vocab/qwen2.gguf",
    "vocab/refact.gguf",             "vocab/starcoder.gguf",
};
/* clang-format on */

static void real_files_open(void)
{
    int n_opened = 0;
    for (size_t i = 0; i < sizeof real_files / sizeof real_files[0]; i++) {
        char *path = data_path_if_there(real_files[i]);
        if (!path)
            continue;
        weights *w;
        lace_error err;
        if (CHECK(is_ok(weights_open(path, &w, &err), &err))) {
            const gguf *g = weights_gguf(w);
            text arch = {NULL, 0};
            CHECK(gguf_get_text(g, "general.architecture", &arch, NULL, &err) == LACE_OK);
            CHECK(arch.size > 0 && strcmp(weights_name(w), path) == 0);
            bool is_model = strncmp(real_files[i], "vocab/", 6) != 0;
            CHECK(is_model == (weights_find(w, "token_embd.weight") != NULL));
            n_opened++;
        }
        weights_close(w);
        free(path);
    }
    tap_note("%d files", n_opened);
    CHECK(n_opened >= 26); /* a clone has 11 models of golden/, tales-4m and 14 vocabularies */
}

/* The last tensor of these files ends where the file ends: the data section begins right. */
static void data_section_begins_after_the_directory_rounded_up(void)
{
    char *path = data_path("models/tales-4m-f16.gguf");
    if (!path)
        return;
    weights *w;
    lace_error err;
    if (CHECK(is_ok(weights_open(path, &w, &err), &err))) {
        const gguf *g = weights_gguf(w);
        const tensor *first = weights_at(w, 0), *last = weights_at(w, weights_count(w) - 1);
        const uint8_t *begin = first->data - gguf_data_offset(g);
        CHECK(gguf_data_offset(g) % 32 == 0);
        CHECK(last->data + last->n_bytes == begin + weights_file_bytes(w));
        /* A norm's weights lie around 1; 32 bytes off they would be another tensor's. */
        const tensor *norm = weights_find(w, "output_norm.weight");
        double mean = 0;
        for (uint64_t i = 0; CHECK(norm != NULL) && i < norm->n_values; i++)
            mean += (double)load_f32(norm->data + 4 * i) / (double)norm->n_values;
        CHECK(mean > 0.1 && mean < 100);
    }
    weights_close(w);
    free(path);
}

static bool read_config(const char *relative, model_config *out)
{
    char *path = data_path_if_there(relative);
    if (!path)
        return false;
    weights *w;
    lace_error err;
    bool ok = is_ok(weights_open(path, &w, &err), &err) &&
              is_ok(config_from_gguf(weights_gguf(w), out, &err), &err);
    CHECK(ok);
    weights_close(w);
    free(path);
    return ok;
}

static void configs_of_real_files_are_read(void)
{
    model_config c;
    if (!CHECK(read_config("golden/llama/model.gguf", &c)))
        return;
    CHECK(strcmp(c.architecture, "llama") == 0 && c.n_layers == 2 && c.n_embd == 64);
    CHECK(c.n_heads == 4 && c.n_kv_heads == 2 && c.head_dim == 16 && c.n_ff == 128);
    CHECK(c.n_vocab == 320 && c.n_context == 256 && fabs(c.norm_eps - 1e-6) < 1e-12);
    CHECK(c.rope.n_dims == 16 && c.rope.base == 10000 && c.rope.scaling == ROPE_PLAIN);
    CHECK(c.rope.factor == 1 && c.rope.attention_factor == 0);
    if (read_config("golden/llama-tied-headdim/model.gguf", &c))
        CHECK(c.head_dim == 32 && c.n_heads * c.head_dim == 2 * c.n_embd);
    if (read_config("golden/llama-linear/model.gguf", &c))
        CHECK(c.rope.scaling == ROPE_LINEAR && c.rope.factor == 2);
    if (read_config("golden/llama-yarn/model.gguf", &c)) {
        CHECK(c.rope.scaling == ROPE_YARN && c.rope.factor == 4 && c.rope.original_context == 64);
        CHECK(c.rope.yarn_beta_fast == 32 && c.rope.yarn_beta_slow == 1);
    }
    if (read_config("golden/llama3-rope/model.gguf", &c))
        CHECK(c.rope.scaling == ROPE_PLAIN && c.rope.base == 500000);
    if (read_config("golden/phi4-partial/model.gguf", &c))
        CHECK(c.rope.n_dims == 12 && c.head_dim == 16);
    if (read_config("vocab/deepseek-coder.gguf",
                    &c)) /* uses the old key rope.scale_linear or a type */
        CHECK(c.rope.scaling == ROPE_LINEAR && c.rope.factor == 4);
    if (read_config("models/tales-4m-f16.gguf", &c))
        CHECK(c.n_vocab == 4096 && c.n_layers == 4 && c.n_context == 1024);
}

/* ---- Parsing and getters --------------------------------------------------------------------- */

/* One value of every type, and arrays. */
static gguf_writer *writer_with_values(void)
{
    gguf_writer *w;
    static const int16_t numbers[] = {-3, 0, 32767};
    static const double doubles[] = {0.5, -1e300};
    text texts[] = {text_of("a"), {"", 0}, {"\xFF\0z", 3}};
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    gguf_writer_add_int(w, "u8", GGUF_U8, 255, NULL);
    gguf_writer_add_int(w, "i8", GGUF_I8, -128, NULL);
    gguf_writer_add_int(w, "u16", GGUF_U16, 65535, NULL);
    gguf_writer_add_int(w, "i16", GGUF_I16, -32768, NULL);
    gguf_writer_add_int(w, "u32", GGUF_U32, 4294967295, NULL);
    gguf_writer_add_int(w, "i32", GGUF_I32, INT32_MIN, NULL);
    gguf_writer_add_int(w, "u64", GGUF_U64, -1, NULL);
    gguf_writer_add_int(w, "i64", GGUF_I64, INT64_MIN, NULL);
    gguf_writer_add_float(w, "f32", GGUF_F32, 0.25, NULL);
    gguf_writer_add_float(w, "f64", GGUF_F64, 1e300, NULL);
    gguf_writer_add_float(w, "nan", GGUF_F32, NAN, NULL);
    gguf_writer_add_bool(w, "yes", true, NULL);
    gguf_writer_add_bool(w, "no", false, NULL);
    gguf_writer_add_text(w, "text", text_of("h\xC3\xA9llo"), NULL);
    gguf_writer_add_array(w, "numbers", GGUF_I16, numbers, 3, NULL);
    gguf_writer_add_array(w, "doubles", GGUF_F64, doubles, 2, NULL);
    gguf_writer_add_array(w, "empty", GGUF_U8, NULL, 0, NULL);
    gguf_writer_add_texts(w, "texts", texts, 3, NULL);
    return w;
}

static gguf *parse_writer(gguf_writer *w, buf *storage)
{
    gguf *g = NULL;
    lace_error err;
    buf_init(storage, 1 << 24);
    if (CHECK(is_ok(gguf_writer_to_buf(w, storage, &err), &err)))
        CHECK(is_ok(gguf_parse(span_of(storage), &g, &err), &err));
    gguf_writer_free(w);
    return g;
}

static int64_t int_of(const gguf *g, const char *key)
{
    int64_t value = 77;
    lace_error err;
    CHECK(is_ok(gguf_get_int(g, key, INT64_MIN, INT64_MAX, &value, NULL, &err), &err));
    return value;
}

static void getters_take_every_type(void)
{
    buf b;
    gguf *g = parse_writer(writer_with_values(), &b);
    if (!g)
        return;
    CHECK(gguf_version(g) == 3 && gguf_n_values(g) == 18 && gguf_n_tensors(g) == 0);
    CHECK(int_of(g, "u8") == 255 && int_of(g, "i8") == -128);
    CHECK(int_of(g, "u16") == 65535 && int_of(g, "i16") == -32768);
    CHECK(int_of(g, "u32") == 4294967295 && int_of(g, "i32") == INT32_MIN);
    CHECK(int_of(g, "i64") == INT64_MIN);
    double x = 0;
    CHECK(gguf_get_float(g, "f32", 0, 1, &x, NULL, NULL) == LACE_OK && x == 0.25);
    CHECK(gguf_get_float(g, "f64", 0, HUGE_VAL, &x, NULL, NULL) == LACE_OK && x == 1e300);
    bool yes = false, no = true;
    CHECK(gguf_get_bool(g, "yes", &yes, NULL, NULL) == LACE_OK && yes);
    CHECK(gguf_get_bool(g, "no", &no, NULL, NULL) == LACE_OK && !no);
    text t = {NULL, 0};
    CHECK(gguf_get_text(g, "text", &t, NULL, NULL) == LACE_OK && text_is(t, "h\xC3\xA9llo"));
    const gguf_value *v;
    int64_t item;
    CHECK(gguf_get_array(g, "numbers", GGUF_I16, &v, NULL) == LACE_OK && v && v->n_items == 3);
    CHECK(v && gguf_value_int(v, 0, &item) && item == -3 && gguf_value_int(v, 2, &item) &&
          item == 32767 && !gguf_value_int(v, 3, &item));
    CHECK(gguf_get_array(g, "empty", GGUF_U8, &v, NULL) == LACE_OK && v && v->n_items == 0);
    text texts[3];
    CHECK(gguf_get_array(g, "texts", GGUF_STRING, &v, NULL) == LACE_OK && v && v->n_items == 3);
    gguf_array_texts(v, texts);
    CHECK(text_is(texts[0], "a") && texts[1].size == 0);
    CHECK(texts[2].size == 3 && memcmp(texts[2].data, "\xFF\0z", 3) == 0);
    gguf_free(g);
    buf_deinit(&b);
}

static void getters_refuse_other_types_and_ranges(void)
{
    buf b;
    gguf *g = parse_writer(writer_with_values(), &b);
    if (!g)
        return;
    lace_error err;
    int64_t n = 42;
    double x = 42;
    bool yes = true, found = true;
    text t = {"kept", 4};
    const gguf_value *v;
    CHECK(gguf_get_int(g, "absent", 0, 1, &n, &found, &err) == LACE_OK && !found && n == 42);
    CHECK(gguf_get_int(g, "u64", INT64_MIN, INT64_MAX, &n, &found, &err) == LACE_E_META && found);
    CHECK(strstr(err.text, "18446744073709551615") != NULL);
    CHECK(gguf_get_int(g, "u8", 0, 254, &n, NULL, &err) == LACE_E_META);
    CHECK(strstr(err.text, "u8: is 255, expected 0 to 254") != NULL &&
          strstr(err.text, "at byte "));
    CHECK(gguf_get_int(g, "i8", 0, 254, &n, NULL, &err) == LACE_E_META);
    static const char *const not_ints[] = {"f32",     "f64",   "yes",  "text",
                                           "numbers", "empty", "texts"};
    for (size_t i = 0; i < sizeof not_ints / sizeof not_ints[0]; i++)
        CHECK(gguf_get_int(g, not_ints[i], INT64_MIN, INT64_MAX, &n, NULL, &err) == LACE_E_META);
    CHECK(n == 42);
    CHECK(gguf_get_float(g, "nan", -HUGE_VAL, HUGE_VAL, &x, NULL, &err) == LACE_E_META);
    CHECK(gguf_get_float(g, "u8", -1e9, 1e9, &x, NULL, &err) == LACE_E_META);
    CHECK(gguf_get_float(g, "f32", 0.3, 1, &x, NULL, &err) == LACE_E_META && x == 42);
    CHECK(gguf_get_bool(g, "u8", &yes, NULL, &err) == LACE_E_META && yes);
    CHECK(gguf_get_text(g, "texts", &t, NULL, &err) == LACE_E_META && text_is(t, "kept"));
    CHECK(gguf_get_array(g, "numbers", GGUF_U16, &v, &err) == LACE_E_META && !v);
    CHECK(gguf_get_array(g, "text", GGUF_STRING, &v, &err) == LACE_E_META && !v);
    CHECK(gguf_get_array(g, "absent", GGUF_STRING, &v, &err) == LACE_OK && !v);
    CHECK(gguf_value_at(g, 18) == NULL && gguf_tensor_at(g, 0) == NULL);
    gguf_free(g);
    buf_deinit(&b);
}

static void version_2_is_read(void)
{
    buf b = tiny_model_bytes(tiny_options_default());
    gguf *g = NULL;
    lace_error err;
    b.data[4] = 2;
    CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err) && gguf_version(g) == 2);
    CHECK(g && gguf_find_tensor(g, "blk.1.ffn_down.weight") != NULL);
    gguf_free(g);
    buf_deinit(&b);
}

/* A boolean of 2 or 255 is true. */
static void odd_booleans_are_true(void)
{
    for (int value = 1; value < 256; value += 127) {
        buf b = tiny_model_bytes(tiny_options_default());
        gguf *g = NULL;
        lace_error err;
        bool yes = false;
        CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err));
        const gguf_value *v = gguf_find(g, "tokenizer.ggml.add_bos_token");
        b.data[v->offset] = (char)value;
        CHECK(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &yes, NULL, &err) == LACE_OK && yes);
        gguf_free(g);
        buf_deinit(&b);
    }
}

static void alignments_from_1_to_65536_are_read(void)
{
    for (uint32_t alignment = 1; alignment <= 65536; alignment *= 2) {
        tiny_options o = tiny_options_default();
        o.alignment = alignment;
        buf b = tiny_model_bytes(o);
        gguf *g = NULL;
        lace_error err;
        if (!CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err)))
            break;
        CHECK(gguf_alignment(g) == alignment && gguf_data_offset(g) % alignment == 0);
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const tensor *t = gguf_tensor_at(g, i);
            CHECK((size_t)(t->data - (const uint8_t *)b.data) % alignment == 0);
        }
        /* The same values wherever they lie: the norm is made of 1 +- 0.1. */
        const tensor *norm = gguf_find_tensor(g, "output_norm.weight");
        CHECK(fabsf(load_f32(norm->data) - 1) <= 0.1f);
        gguf_free(g);
        buf_deinit(&b);
    }
}

static void bytes_after_the_end_are_ignored_and_padding_may_be_missing(void)
{
    buf b = tiny_model_bytes(tiny_options_default());
    gguf *g = NULL;
    lace_error err;
    CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err));
    const tensor *last = gguf_tensor_at(g, gguf_n_tensors(g) - 1);
    size_t end = (size_t)(last->data + last->n_bytes - (const uint8_t *)b.data);
    gguf_free(g);
    CHECK(is_ok(gguf_parse((span){(uint8_t *)b.data, end}, &g, &err), &err));
    gguf_free(g);
    static char garbage[1 << 20];
    memset(garbage, 0xA5, sizeof garbage);
    CHECK(buf_append(&b, garbage, sizeof garbage) == LACE_OK);
    CHECK(is_ok(gguf_parse(span_of(&b), &g, &err), &err));
    gguf_free(g);
    buf_deinit(&b);
}

int main(void)
{
    CASE(real_files_open);
    CASE(data_section_begins_after_the_directory_rounded_up);
    CASE(configs_of_real_files_are_read);
    CASE(getters_take_every_type);
    CASE(getters_refuse_other_types_and_ranges);
    CASE(version_2_is_read);
    CASE(odd_booleans_are_true);
    CASE(alignments_from_1_to_65536_are_read);
    CASE(bytes_after_the_end_are_ignored_and_padding_may_be_missing);
    return tap_end();
}
