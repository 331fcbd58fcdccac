/* The numbers of a vision tower, from an mmproj file or a directory, each checked. */
#include <math.h>
#include <string.h>

#include "base/numbers.h"
#include "hf/config_json.h"
#include "model/config_source.h"
#include "model/tower.h"

enum {
    MAX_SIDE = 4096, /* pixels or patches */
    /* Images of any size, where a file does not say it: rows that one becomes. As llama.cpp has it. */
    LEAST_ROWS = 8,
    MOST_ROWS = 4096,
};

#define MAX_PIXELS (INT64_C(1) << 26)

static tower_config config_of(tower_kind kind)
{
    tower_config c = {.kind = kind, .norm_eps = 1e-6, .rope_base = 10000};
    c.resample = kind == TOWER_GEMMA3 ? RESAMPLE_BILINEAR : RESAMPLE_BICUBIC;
    for (int i = 0; i < TOWER_CHANNELS; i++)
        c.mean[i] = c.deviation[i] = 0.5;
    return c;
}

int64_t tower_max_patches(const tower_config *c)
{
    return tower_is_fixed(c) ? (int64_t)c->side * c->side
                             : c->max_pixels / ((int64_t)c->patch * c->patch);
}

/* What follows from the rest, and whether all of it fits together. */
static lace_status finish(tower_config *c, lace_error *err)
{
    int64_t unit = (int64_t)c->patch * c->merge;
    if (c->n_embd % c->n_heads != 0 || c->n_embd / c->n_heads % 2 != 0 ||
        (c->kind == TOWER_QWEN3VL && c->n_embd / c->n_heads % 4 != 0))
        return error_set(err, LACE_E_META,
                         "vision: %d values cannot be divided into %d heads that are rotated",
                         c->n_embd, c->n_heads);
    if (tower_is_fixed(c) && (int64_t)c->side * c->side > TOWER_MAX_PATCHES)
        return error_set(err, LACE_E_LIMIT, "vision: images of %d x %d patches are more than %d",
                         c->side, c->side, TOWER_MAX_PATCHES);
    if (tower_is_fixed(c) && c->side % c->merge != 0)
        return error_set(err, LACE_E_META,
                         "vision: %d patches along a side cannot be divided into squares of %d",
                         c->side, c->merge);
    for (int32_t i = 0; i < c->n_layers; i++)
        c->n_deep += c->is_deep[i];
    if (c->n_deep > 0 && tower_is_fixed(c))
        return error_set(err, LACE_E_UNSUPPORTED, "vision: rows of inner layers");
    if (c->min_pixels == 0)
        c->min_pixels = LEAST_ROWS * unit * unit;
    if (c->max_pixels == 0)
        c->max_pixels = MOST_ROWS * unit * unit;
    c->max_pixels = min_i64(c->max_pixels, MAX_PIXELS);
    c->max_pixels = min_i64(c->max_pixels, (int64_t)TOWER_MAX_PATCHES * c->patch * c->patch);
    if (c->max_pixels < unit * unit || c->min_pixels > c->max_pixels)
        return error_set(err, LACE_E_META,
                         "vision: images have at least %lld and at most %lld "
                         "pixels, and a square %lld",
                         (long long)c->min_pixels, (long long)c->max_pixels,
                         (long long)(unit * unit));
    for (int i = 0; i < TOWER_CHANNELS; i++)
        if (!(c->deviation[i] > 0))
            return error_set(err, LACE_E_META, "vision: a deviation of pixels is not above 0");
    return LACE_OK;
}

/* ---- mmproj files ---------------------------------------------------------------------------- */

static bool has_projector(const gguf *g, const char *name)
{
    text found = {NULL, 0};
    bool is_there = false;
    return gguf_get_text(g, "clip.projector_type", &found, &is_there, NULL) == LACE_OK &&
           is_there && text_is(found, name);
}

static lace_status read_colours(const config_source *s, const char *key, double out[TOWER_CHANNELS])
{
    const gguf_value *list = NULL;
    TRY(gguf_get_array(s->g, config_key_of(s, key).text, GGUF_F32, &list, s->err));
    if (!list)
        return LACE_OK;
    if (list->n_items != TOWER_CHANNELS)
        return config_bad(s, key, LACE_E_META, "expected 3 numbers");
    for (int i = 0; i < TOWER_CHANNELS; i++) {
        float number;
        memcpy(&number, list->bytes.data + 4 * i, sizeof number);
        if (!isfinite(number))
            return config_bad(s, key, LACE_E_META, "holds what is no number");
        out[i] = number;
    }
    return LACE_OK;
}

static lace_status read_deep(const config_source *s, tower_config *c)
{
    const gguf_value *list = NULL;
    const char *key = "is_deepstack_layers";
    TRY(gguf_get_array(s->g, config_key_of(s, key).text, GGUF_BOOL, &list, s->err));
    if (!list)
        return LACE_OK;
    if (list->n_items != (uint64_t)c->n_layers)
        return config_bad(s, key, LACE_E_META, "has not as many items as there are layers");
    for (int32_t i = 0; i < c->n_layers; i++)
        c->is_deep[i] = list->bytes.data[i] != 0;
    return LACE_OK;
}

static lace_status read_gguf(const gguf *g, tower_config *out, lace_error *err)
{
    config_source s = {.g = g, .architecture = "clip.vision", .err = err};
    bool is_gemma = has_projector(g, "gemma3"), has_silu = false;
    if (!is_gemma && !has_projector(g, "qwen3vl_merger"))
        return error_set(err, LACE_E_UNSUPPORTED,
                         "clip.projector_type: is none of those that lace computes: gemma3, "
                         "qwen3vl_merger");
    tower_config c = config_of(is_gemma ? TOWER_GEMMA3 : TOWER_QWEN3VL);
    int32_t size = 0;
    TRY(config_need_int(&s, "block_count", 1, TOWER_MAX_LAYERS, &c.n_layers));
    TRY(config_need_int(&s, "embedding_length", 2, CONFIG_MAX_WIDTH / 4, &c.n_embd));
    TRY(config_need_int(&s, "attention.head_count", 1, CONFIG_MAX_HEADS, &c.n_heads));
    TRY(config_need_int(&s, "feed_forward_length", 1, CONFIG_MAX_WIDTH, &c.n_ff));
    TRY(config_need_int(&s, "projection_dim", 1, CONFIG_MAX_WIDTH / 4, &c.n_out));
    TRY(config_need_int(&s, "patch_size", 1, TOWER_MAX_PATCH, &c.patch));
    TRY(config_need_int(&s, "image_size", c.patch, MAX_SIDE, &size));
    TRY(config_float(&s, "attention.layer_norm_epsilon", 1e-30, 0.999, &c.norm_eps, NULL));
    TRY(gguf_get_bool(g, "clip.use_silu", &has_silu, NULL, err));
    if (has_silu)
        return config_bad(&s, "use_silu", LACE_E_UNSUPPORTED, "expected false");
    c.merge = is_gemma ? 4 : 2;
    TRY(config_int(&s, is_gemma ? "projector.scale_factor" : "spatial_merge_size", 1,
                   TOWER_MAX_MERGE, &c.merge, NULL));
    c.side = size / c.patch;
    TRY(read_colours(&s, "image_mean", c.mean));
    TRY(read_colours(&s, "image_std", c.deviation));
    TRY(read_deep(&s, &c));
    TRY(finish(&c, err));
    *out = c;
    return LACE_OK;
}

/* ---- Directories ----------------------------------------------------------------------------- */

static lace_status read_numbers(const source *s, const char *key, double out[TOWER_CHANNELS])
{
    const json_t *list = source_get(s, key);
    if (!list)
        return LACE_OK;
    for (size_t i = 0; i < TOWER_CHANNELS; i++) {
        const json_t *item = json_array_get(list, i);
        if (json_array_size(list) != TOWER_CHANNELS || !json_is_number(item))
            return source_fail(s, LACE_E_META, key, "expected 3 numbers");
        out[i] = json_number_value(item);
    }
    return LACE_OK;
}

/* Sizes of images: a number of pixels at least and at most. */
static lace_status read_pixels(const source *s, tower_config *c)
{
    const json_t *size = source_get(s, "size");
    source inner = {.object = size, .outer = s->object, .name = s->name, .err = s->err};
    int32_t least = 0, most = 0;
    if (!json_is_object(size))
        inner.object = s->object;
    TRY(source_int(&inner, SOURCE_SPELLING(&inner, "shortest_edge", "min_pixels"), 1, INT32_MAX,
                   &least, NULL));
    TRY(source_int(&inner, SOURCE_SPELLING(&inner, "longest_edge", "max_pixels"), 1, INT32_MAX,
                   &most, NULL));
    c->min_pixels = least;
    c->max_pixels = most;
    return LACE_OK;
}

static lace_status read_preprocessor(const json_t *config, tower_config *c, lace_error *err)
{
    const json_t *object = json_object_get(config, "preprocessor_config");
    source s = {.object = object, .name = "preprocessor_config", .err = err};
    int32_t resample = (int32_t)c->resample;
    double factor = 0;
    bool found = false;
    if (!json_is_object(object))
        return LACE_OK;
    TRY(read_numbers(&s, "image_mean", c->mean));
    TRY(read_numbers(&s, "image_std", c->deviation));
    TRY(source_int(&s, "resample", 0, 5, &resample, NULL));
    if (resample != RESAMPLE_BILINEAR && resample != RESAMPLE_BICUBIC)
        return source_fail(&s, LACE_E_UNSUPPORTED, "resample", "expected 2 or 3");
    c->resample = (resample_kind)resample;
    TRY(source_float(&s, "rescale_factor", 1e-9, 1e9, &factor, &found));
    if (found && fabs(factor * 255 - 1) > 1e-6)
        return source_fail(&s, LACE_E_UNSUPPORTED, "rescale_factor", "expected 1/255");
    return tower_is_fixed(c) ? LACE_OK : read_pixels(&s, c);
}

/* Squares of SigLIP's patches: as many as there are tokens of an image. */
static lace_status read_gemma(const source *s, const json_t *config, tower_config *c)
{
    source outer = {.object = config, .err = s->err};
    int32_t size = 0, n_tokens = 256, side = 1;
    TRY(source_need_int(s, "image_size", c->patch, MAX_SIDE, &size));
    TRY(source_int(&outer, "mm_tokens_per_image", 1, 1 << 20, &n_tokens, NULL));
    c->side = size / c->patch;
    while (side * side < n_tokens)
        side++;
    if (side * side != n_tokens || c->side % side != 0 || c->side / side > TOWER_MAX_MERGE)
        return source_fail(&outer, LACE_E_META, "mm_tokens_per_image",
                           "is no square that divides the patches of an image");
    c->merge = c->side / side;
    return source_expect_bool(s, "vision_use_head", false);
}

static lace_status read_deep_list(const source *s, tower_config *c)
{
    bool is_listed[CONFIG_MAX_LAYERS];
    TRY(source_layer_list(s, "deepstack_visual_indexes", c->n_layers, is_listed));
    memcpy(c->is_deep, is_listed, (size_t)c->n_layers * sizeof *c->is_deep);
    return LACE_OK;
}

static lace_status read_qwen(const source *s, tower_config *c)
{
    int32_t n = 0, frames = 2;
    const json_t *rope = source_get(s, "rope_parameters");
    source inner = {.object = rope, .name = "rope_parameters", .err = s->err};
    TRY(source_need_int(s, "num_position_embeddings", 1, MAX_SIDE * MAX_SIDE, &n));
    TRY(source_need_int(s, "out_hidden_size", 1, CONFIG_MAX_WIDTH / 4, &c->n_out));
    c->merge = 2;
    TRY(source_int(s, "spatial_merge_size", 1, TOWER_MAX_MERGE, &c->merge, NULL));
    TRY(source_int(s, "temporal_patch_size", 1, 16, &frames, NULL));
    c->side = (int32_t)(sqrt((double)n) + 0.5);
    if (c->side * c->side != n)
        return source_fail(s, LACE_E_META, "num_position_embeddings", "is no square");
    if (json_is_object(rope))
        TRY(source_float(&inner, "rope_theta", 2, 1e15, &c->rope_base, NULL));
    return read_deep_list(s, c);
}

/* The part of config.json about vision; NULL: there is none that lace knows. */
static const json_t *find_vision(const json_t *config, tower_kind *kind)
{
    static const struct {
        const char *model_type;
        tower_kind kind;
    } types[] = {{"siglip_vision_model", TOWER_GEMMA3},
                 {"qwen3_vl", TOWER_QWEN3VL},
                 {"qwen3_vl_vision", TOWER_QWEN3VL},
                 {"qwen3_vl_moe", TOWER_QWEN3VL},
                 {"qwen3_vl_moe_vision", TOWER_QWEN3VL}};
    const json_t *vision = json_object_get(config, "vision_config");
    const char *type = json_string_value(json_object_get(vision, "model_type"));
    const char *whole = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].model_type) == 0) {
            *kind = types[i].kind;
            bool is_gemma = whole && strcmp(whole, "gemma3") == 0;
            return *kind != TOWER_GEMMA3 || is_gemma ? vision : NULL;
        }
    return NULL;
}

static lace_status read_directory(const json_t *config, tower_config *out, lace_error *err)
{
    tower_kind kind;
    const json_t *vision = find_vision(config, &kind);
    if (!vision)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "config.json: has no vision_config that lace computes: those of Gemma 3 "
                         "and Qwen3-VL");
    source s = {.object = vision, .name = "vision_config", .err = err};
    tower_config c = config_of(kind);
    int32_t channels = TOWER_CHANNELS;
    TRY(source_need_int(&s, SOURCE_SPELLING(&s, "num_hidden_layers", "depth"), 1, TOWER_MAX_LAYERS,
                        &c.n_layers));
    TRY(source_need_int(&s, "hidden_size", 2, CONFIG_MAX_WIDTH / 4, &c.n_embd));
    TRY(source_need_int(&s, SOURCE_SPELLING(&s, "num_attention_heads", "num_heads"), 1,
                        CONFIG_MAX_HEADS, &c.n_heads));
    TRY(source_need_int(&s, "intermediate_size", 1, CONFIG_MAX_WIDTH, &c.n_ff));
    TRY(source_need_int(&s, "patch_size", 1, TOWER_MAX_PATCH, &c.patch));
    TRY(source_int(&s, SOURCE_SPELLING(&s, "num_channels", "in_channels"), 3, 3, &channels, NULL));
    TRY(source_float(&s, "layer_norm_eps", 1e-30, 0.999, &c.norm_eps, NULL));
    TRY(source_expect_text(&s, "hidden_act", "gelu_pytorch_tanh"));
    if (kind == TOWER_GEMMA3) {
        source text_part = {
            .object = json_object_get(config, "text_config"), .name = "text_config", .err = err};
        if (!json_is_object(text_part.object))
            text_part.object = config;
        TRY(source_need_int(&text_part, "hidden_size", 1, CONFIG_MAX_WIDTH / 4, &c.n_out));
        TRY(read_gemma(&s, config, &c));
    } else {
        TRY(read_qwen(&s, &c));
    }
    TRY(read_preprocessor(config, &c, err));
    TRY(finish(&c, err));
    *out = c;
    return LACE_OK;
}

bool tower_is_there(const weights *files)
{
    tower_config c;
    return tower_config_read(files, &c, NULL) == LACE_OK;
}

lace_status tower_config_read(const weights *files, tower_config *out, lace_error *err)
{
    char architecture[64];
    if (!weights_gguf(files))
        return read_directory(weights_config(files), out, err);
    TRY(config_architecture(weights_gguf(files), architecture, err));
    if (strcmp(architecture, "clip") != 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "is a model of the architecture \"%s\" and no vision tower (an mmproj "
                         "file, of the architecture \"clip\")",
                         architecture);
    return read_gguf(weights_gguf(files), out, err);
}
