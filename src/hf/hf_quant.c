/* Reading quantization_config, each value checked against what lace can read. */
#include "hf/hf_quant.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "hf/config_json.h"

static lace_status refuse_word(const source *q, const char *key, const char *found,
                               const char *expected)
{
    return error_set(q->err, LACE_E_UNSUPPORTED, "config.json: %s.%s: is \"%.48s\", expected %s",
                     q->name, key, found, expected);
}

/* A word of the object, which may be absent: then *out is `otherwise`. */
static lace_status get_word(const source *q, const char *key, const char *otherwise,
                            const char **out)
{
    const json_t *value = source_get(q, key);
    char what[64];
    *out = value ? json_string_value(value) : otherwise;
    if (value && !*out) {
        snprintf(what, sizeof what, "is %s, expected a string", json_kind(value));
        return source_fail(q, LACE_E_META, key, what);
    }
    return LACE_OK;
}

static lace_status read_group_size(const source *q, const char *key, hf_quant *out)
{
    out->group_size = 0;
    TRY(source_int(q, key, -1, 1 << 20, &out->group_size, NULL));
    if (out->group_size == 0)
        return source_fail(q, LACE_E_META, key, "is missing, expected a number of columns or -1");
    return LACE_OK;
}

static lace_status read_gptq(const source *q, hf_quant *out)
{
    const char *format;
    TRY(source_need_int(q, "bits", 2, 8, &out->bits));
    if (out->bits != 2 && out->bits != 3 && out->bits != 4 && out->bits != 8)
        return source_fail(q, LACE_E_UNSUPPORTED, "bits", "expected 2, 3, 4 or 8");
    TRY(read_group_size(q, "group_size", out));
    TRY(source_bool(q, "sym", &out->is_symmetric));
    TRY(get_word(q, "checkpoint_format", "gptq", &format));
    out->stores_zero_minus_one = strcmp(format, "gptq") == 0;
    if (!out->stores_zero_minus_one && strcmp(format, "gptq_v2") != 0)
        return refuse_word(q, "checkpoint_format", format, "gptq or gptq_v2");
    const json_t *dynamic = source_get(q, "dynamic");
    if (dynamic && json_object_size(dynamic) > 0)
        return source_fail(q, LACE_E_UNSUPPORTED, "dynamic",
                           "has rules for single modules, which lace does not support");
    return LACE_OK;
}

static lace_status read_awq(const source *q, hf_quant *out)
{
    const char *version;
    bool has_old_names = !source_get(q, "bits") && source_get(q, "w_bit");
    const char *bits = has_old_names ? "w_bit" : "bits";
    TRY(source_need_int(q, bits, 1, 16, &out->bits));
    if (out->bits != 4)
        return source_fail(q, LACE_E_UNSUPPORTED, bits, "expected 4");
    TRY(read_group_size(q, has_old_names ? "q_group_size" : "group_size", out));
    TRY(get_word(q, "version", "gemm", &version));
    if (strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return refuse_word(q, "version", version, "gemm");
    return LACE_OK;
}

/* ---- FP8 ------------------------------------------------------------------------------------- */

static lace_status read_fp8(const source *q, hf_quant *out)
{
    const char *format;
    TRY(get_word(q, "fmt", "e4m3", &format));
    if (strcmp(format, "e4m3") != 0)
        return refuse_word(q, "fmt", format, "e4m3");
    const json_t *block = source_get(q, "weight_block_size");
    if (!block)
        return LACE_OK;
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t cols = json_integer_value(json_array_get(block, 1));
    if (json_array_size(block) != 2 || rows < 1 || cols < 1 || rows > 1 << 20 || cols > 1 << 20)
        return source_fail(q, LACE_E_META, "weight_block_size", "expected two numbers above 0");
    out->block_rows = (int32_t)rows;
    out->block_cols = (int32_t)cols;
    return LACE_OK;
}

/* ---- compressed-tensors ---------------------------------------------------------------------- */

/* The formats whose tensors hf_packed.c knows; the tensors themselves say which one it is. */
static bool is_known_format(const char *format)
{
    static const char *const formats[] = {
        "dense",           "pack-quantized",  "int-quantized",  "float-quantized",
        "naive-quantized", "mixed-precision", "sparse-bitmask", "sparse-24-bitmask",
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i]) == 0)
            return true;
    return false;
}

static lace_status read_scheme(const source *q, const char *name, const json_t *group,
                               hf_quant *out)
{
    char where[96];
    snprintf(where, sizeof where, "%s.config_groups.%.32s.weights", q->name, name);
    source w = {.object = json_object_get(group, "weights"), .name = where, .err = q->err};
    const char *type, *order;
    int32_t bits = 0;
    if (!json_is_object(w.object))
        return source_fail(q, LACE_E_META, "config_groups", "a group has no \"weights\"");
    TRY(source_need_int(&w, "num_bits", 2, 16, &bits));
    TRY(get_word(&w, "type", "int", &type));
    TRY(get_word(&w, "actorder", "", &order));
    if (bits > 8)
        return source_fail(&w, LACE_E_UNSUPPORTED, "num_bits", "expected 2 to 8");
    if (strcmp(type, "int") != 0 && !(strcmp(type, "float") == 0 && bits == 8))
        return refuse_word(&w, "type", type, "int, or float with 8 bits");
    if (out->n_groups == HF_QUANT_MAX_GROUPS)
        return source_fail(q, LACE_E_LIMIT, "config_groups", "has more than 8 groups");
    out->group_bits[out->n_groups++] = bits;
    return LACE_OK;
}

static lace_status read_compressed(const source *q, hf_quant *out)
{
    static const char *const expected = "dense, pack-quantized, int-quantized, float-quantized, "
                                        "sparse-bitmask or sparse-24-bitmask";
    const char *format;
    TRY(get_word(q, "format", "dense", &format));
    if (!is_known_format(format))
        return refuse_word(q, "format", format, expected);
    const json_t *sparsity = source_get(q, "sparsity_config");
    if (sparsity) {
        source s = {
            .object = sparsity, .name = "quantization_config.sparsity_config", .err = q->err};
        TRY(get_word(&s, "format", "dense", &format));
        if (!is_known_format(format))
            return refuse_word(&s, "format", format, expected);
    }
    const json_t *groups = source_get(q, "config_groups");
    const char *name;
    json_t *group;
    if (groups && !json_is_object(groups))
        return source_fail(q, LACE_E_META, "config_groups", "expected an object");
    json_object_foreach((json_t *)groups, name, group)
    {
        TRY(read_scheme(q, name, group, out));
    }
    return LACE_OK;
}

/* ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    hf_quant_method method;
    lace_status (*read)(const source *q, hf_quant *out);
} methods[] = {
    {"gptq", HF_QUANT_GPTQ, read_gptq},
    {"awq", HF_QUANT_AWQ, read_awq},
    {"compressed-tensors", HF_QUANT_COMPRESSED, read_compressed},
    {"fp8", HF_QUANT_FP8, read_fp8},
    {"fbgemm_fp8", HF_QUANT_FP8, read_fp8},
    {"mxfp4", HF_QUANT_MXFP4, NULL},
};

lace_status hf_quant_read(const source *s, hf_quant *out)
{
    *out = (hf_quant){0};
    const char *key = "quantization_config", *found;
    const json_t *object = source_get(s, key);
    if (!object) /* as compressed-tensors called it first */
        object = source_get(s, key = "compression_config");
    if (!object)
        return LACE_OK;
    source q = {.object = object, .name = key, .err = s->err};
    if (!json_is_object(object))
        return source_fail(s, LACE_E_META, key, "expected an object");
    bool is_old = strcmp(key, "compression_config") == 0;
    TRY(get_word(&q, "quant_method", is_old ? "compressed-tensors" : "", &found));
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(found, methods[i].name) == 0) {
            out->method = methods[i].method;
            return methods[i].read ? methods[i].read(&q, out) : LACE_OK;
        }
    return refuse_word(&q, "quant_method", found,
                       "gptq, awq, compressed-tensors, fp8, fbgemm_fp8 or mxfp4");
}
