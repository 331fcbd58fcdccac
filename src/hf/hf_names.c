/* The tensors of a Hugging Face directory as those of a GGUF file. */
#include "hf/hf_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/codec/unpack.h"
#include "hf/hf_family.h"

enum { NAME_BYTES = 320, START_BYTES = 128 };

/* clang-format off */
/* In front of every name: plain models, then two generations of those that also see, then older ones. */
const char *const hf_name_prefixes[] = {"model.", "language_model.model.", "model.language_model.",
                                            "transformer.", "gpt_neox.", "backbone.", "bert.",
                                            "roberta.", "model.model.", "", NULL};

/* What is no part of the model, or of its language part. */
static const char *const ignored_starts[] = {"vision_tower.", "multi_modal_projector.", "visual.",
                                             "vision_model.", "model.vision_tower.", "model.multi_modal_projector.",
                                             "model.visual.", "audio_tower.", "model.audio_tower.",
                                             "mtp.", "embed_vision.", "model.embed_vision.",
                                             "embed_audio.", "model.embed_audio."};
static const char *const ignored_ends[] = {".rotary_emb.inv_freq", ".attention.masked_bias",
                                           ".attention.bias", ".attn.bias",
                                           ".attn.masked_bias", ".k_scale", ".v_scale"};

static const name_row llama_ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    COPY("norm.weight", "output_norm.weight"),
};

static const name_row llama_heads[] = {
    COPY("lm_head.weight", "output.weight"),
    COPY("language_model.lm_head.weight", "output.weight"),
};
/* clang-format on */

/* While a list is made. */
typedef struct builder {
    hf_tensors *h;
    const weights *files;
    const hf_config *config;
    hf_layout layout;
    const char *prefix;
    bool *is_used; /* [weights_count] */
    lace_error *err;
} builder;

/* ---- The list -------------------------------------------------------------------------------- */

static lace_status add(builder *b, const char *name, dtype type, const shape *s, const void *data,
                       const recipe *r)
{
    hf_tensors *h = b->h;
    if (h->count == h->capacity) {
        size_t capacity = h->capacity ? 2 * h->capacity : 256;
        tensor *tensors = mem_realloc(h->tensors, capacity * sizeof *tensors);
        if (tensors)
            h->tensors = tensors;
        recipe *recipes = mem_realloc(h->recipes, capacity * sizeof *recipes);
        if (recipes)
            h->recipes = recipes;
        if (!tensors || !recipes)
            return error_nomem(b->err, "the list of tensors");
        h->capacity = capacity;
    }
    tensor t = {.type = type, .shape = *s, .data = data};
    char *copy = arena_strndup(&h->memory, name, strlen(name));
    if (!copy)
        return error_nomem(b->err, "the names of tensors");
    t.name = text_of(copy);
    lace_status status = tensor_bytes(type, s, &t.n_values, &t.n_bytes, b->err);
    if (status != LACE_OK)
        return error_prefix(b->err, status, name);
    h->tensors[h->count] = t;
    h->recipes[h->count++] = *r;
    return LACE_OK;
}

/* A tensor of the files, which is then accounted for; NULL if it is not there. */
static const tensor *take_plain(builder *b, const char *name)
{
    size_t i = weights_index(b->files, name);
    const tensor *t = weights_at(b->files, i);
    if (t)
        b->is_used[i] = true;
    return t;
}

/* The same, also for matrices that others have quantized. */
static lace_status take(builder *b, const char *name, const tensor **out)
{
    hf_packed_search search = {.files = b->files,
                               .quant = &b->config->quant,
                               .memory = &b->h->memory,
                               .is_used = b->is_used,
                               .err = b->err};
    TRY(hf_packed_find(&search, name, out));
    if (!*out)
        *out = take_plain(b, name);
    return LACE_OK;
}

static lace_status wrong(const builder *b, const tensor *t, const char *expected)
{
    char dims[96];
    return error_set(b->err, LACE_E_SHAPE, "tensor %.*s: shape %s, expected %s",
                     text_width(t->name), t->name.data, shape_format(&t->shape, dims), expected);
}

static lace_status add_floats(builder *b, const char *name, const float *values, int32_t n)
{
    float *copy = arena_alloc(&b->h->memory, (size_t)n, sizeof *copy);
    if (!copy)
        return error_nomem(b->err, name);
    memcpy(copy, values, (size_t)n * sizeof *copy);
    recipe r = {.kind = RECIPE_COPY};
    return add(b, name, DTYPE_F32, &(shape){1, {n, 1, 1, 1}}, copy, &r);
}

/* ---- Recipes --------------------------------------------------------------------------------- */

static lace_status add_copy(builder *b, const char *name, const tensor *t, recipe *r)
{
    r->kind = RECIPE_COPY;
    return add(b, name, t->type, &t->shape, t->data, r);
}

static float plus_one(float x)
{
    return x + 1;
}

static lace_status add_values(builder *b, const char *name, const tensor *t, recipe *r)
{
    if (r->rows &&
        (t->shape.n_dims != 1 || t->shape.dims[0] != r->rows->count(&b->config->model, r->layer)))
        return wrong(b, t, "a vector of as many values as there are heads");
    if (!unpack_ref[t->type])
        return error_set(b->err, LACE_E_TENSOR_TYPE,
                         "tensor %.*s: lace cannot compute with type %s", text_width(t->name),
                         t->name.data, dtype_describe(t->type)->name);
    return add(b, name, DTYPE_F32, &t->shape, NULL, r);
}

static lace_status add_permuted(builder *b, const char *name, const tensor *t, recipe *r)
{
    const model_config *c = &b->config->model;
    if (b->layout != HF_AS_GGUF || !b->config->family->is_permuted)
        return add_copy(b, name, t, r);
    r->n_heads = r->kind == RECIPE_PERMUTE_Q ? c->n_heads : c->n_kv_heads;
    /* Of a vector, the values are the rows. */
    int64_t n_rows = t->shape.n_dims == 1 ? t->shape.dims[0] : t->shape.dims[1];
    if (t->shape.n_dims > 2 || n_rows != (int64_t)r->n_heads * c->head_dim)
        return wrong(b, t, "heads x head_dim rows");
    return add(b, name, t->type, &t->shape, NULL, r);
}

/* Rows that who runs the directory multiplies by himself. */
static lace_status add_scaled(builder *b, const char *name, const tensor *t, recipe *r)
{
    if (b->layout != HF_AS_GGUF)
        return add_copy(b, name, t, r);
    if (t->type != DTYPE_F32 && t->type != DTYPE_F16 && t->type != DTYPE_BF16)
        return wrong(b, t, "f32, f16 or bf16: its rows are multiplied with factors");
    return add(b, name, t->type, &t->shape, NULL, r);
}

/* The newest tensor of the list in another shape of as many values. */
static lace_status reshape(builder *b, shape_kind kind, size_t count)
{
    if (kind == SHAPE_SAME || b->h->count == count)
        return LACE_OK;
    tensor *t = &b->h->tensors[b->h->count - 1];
    int64_t n = (int64_t)t->n_values, n_groups = b->config->model.ssm.n_groups;
    if (kind == SHAPE_GROUPS && (n_groups < 1 || n % n_groups != 0))
        return wrong(b, t, "a multiple of the number of groups");
    shape out = {2, {1, n, 1, 1}};
    if (kind == SHAPE_GROUPS)
        out = (shape){2, {n / n_groups, n_groups, 1, 1}};
    if (kind == SHAPE_SQUEEZED) {
        out = (shape){0, {1, 1, 1, 1}};
        for (int i = 0; i < t->shape.n_dims; i++)
            if (t->shape.dims[i] != 1 || (i + 1 == t->shape.n_dims && out.n_dims == 0))
                out.dims[out.n_dims++] = t->shape.dims[i];
    }
    t->shape = out;
    return LACE_OK;
}

static lace_status add_transposed(builder *b, const char *name, const tensor *t, recipe *r)
{
    bool is_matrix = t->shape.n_dims == 2;
    if ((!is_matrix && t->shape.n_dims != 3) || t->shape.dims[0] % r->n_parts != 0)
        return wrong(b, t,
                     "two or three dimensions whose last is a multiple of the number of parts");
    if (dtype_describe(t->type)->block_values != 1)
        return wrong(b, t, "a type that does not pack values into blocks");
    shape s = {
        t->shape.n_dims,
        {t->shape.dims[1], t->shape.dims[0] / r->n_parts, is_matrix ? 1 : t->shape.dims[2], 1}};
    return add(b, name, t->type, &s, NULL, r);
}

static lace_status add_strided(builder *b, const char *name, const tensor *t, recipe *r)
{
    shape s = t->shape;
    if (s.dims[0] % r->n_parts != 0 || dtype_describe(t->type)->block_values != 1)
        return wrong(b, t, "rows that can be cut into equal parts");
    s.dims[0] /= r->n_parts;
    return add(b, name, t->type, &s, NULL, r);
}

static lace_status add_halved(builder *b, const char *name, const tensor *t, recipe *r)
{
    shape s = t->shape;
    if (s.n_dims != 3 || s.dims[1] % r->n_parts != 0)
        return wrong(b, t, "three dimensions whose second is a multiple of the number of parts");
    s.dims[1] /= r->n_parts;
    return add(b, name, t->type, &s, NULL, r);
}

/* Blocks: [n_experts, rows, n_blocks, 16] bytes with two quants each; scales: one byte a block. */
static lace_status add_mxfp4(builder *b, const char *name, const tensor *t, recipe *r)
{
    char scales_name[NAME_BYTES];
    size_t stem = t->name.size - strlen("blocks");
    snprintf(scales_name, sizeof scales_name, "%.*sscales", (int)stem, t->name.data);
    r->scales = take_plain(b, scales_name);
    if (!r->scales)
        return error_set(b->err, LACE_E_META, "tensor %.64s is missing", scales_name);
    const shape *s = &t->shape, *k = &r->scales->shape;
    if (t->type != DTYPE_U8 || s->n_dims != 4 || s->dims[0] != 16 || s->dims[2] % r->n_parts != 0 ||
        s->dims[1] > INT64_MAX / 32)
        return wrong(b, t, "four dimensions of u8 whose last is 16");
    if ((r->scales->type != DTYPE_U8 && r->scales->type != DTYPE_F8_E8M0) || k->n_dims != 3 ||
        k->dims[0] != s->dims[1] || k->dims[1] != s->dims[2] || k->dims[2] != s->dims[3])
        return wrong(b, r->scales, "one byte for each block");
    shape out = {3, {32 * s->dims[1], s->dims[2] / r->n_parts, s->dims[3], 1}};
    return add(b, name, DTYPE_MXFP4, &out, NULL, r);
}

/*
 * Rows in another order: each must be one of the source. Of a vector, the values are the rows; of a
 * convolution of channels by themselves, the channels.
 */
static lace_status add_mapped(builder *b, const char *name, const tensor *t, recipe *r)
{
    const model_config *c = &b->config->model;
    shape s = t->shape;
    if (s.n_dims == 3 && s.dims[1] == 1)
        s = (shape){2, {s.dims[0], s.dims[2], 1, 1}};
    if (s.n_dims > 2)
        return wrong(b, t, "one or two dimensions");
    bool is_columns = r->kind == RECIPE_COLUMNS || s.n_dims == 1;
    int64_t *n_rows = is_columns ? &s.dims[0] : &s.dims[1];
    int64_t n_source = *n_rows;
    *n_rows = r->rows->count(c, r->layer);
    for (int64_t row = 0; row < *n_rows; row++) {
        int64_t from = r->rows->source(c, r->layer, row);
        if (from < 0 || from >= n_source) {
            char expected[64];
            snprintf(expected, sizeof expected, "more than %" PRId64 " %s", from,
                     is_columns ? "columns" : "rows");
            return wrong(b, t, expected);
        }
    }
    return add(b, name, t->type, &s, NULL, r);
}

/* For each head the rows of k, whose columns become rows, then those of v. */
static lace_status add_heads(builder *b, const char *name, const tensor *t, recipe *r)
{
    const model_config *c = &b->config->model;
    int64_t k = c->latent.nope_dim, v = c->latent.value_dim, rank = c->latent.kv_rank;
    if (t->shape.n_dims != 2 || t->shape.dims[0] != rank ||
        t->shape.dims[1] != c->n_heads * (k + v))
        return wrong(b, t, "heads x (qk_nope_head_dim + v_head_dim) rows of kv_lora_rank values");
    if (r->part == 0 && dtype_describe(t->type)->block_values != 1)
        return wrong(b, t, "a type that does not pack values into blocks");
    shape s = {3, {r->part == 0 ? k : rank, r->part == 0 ? rank : v, c->n_heads, 1}};
    return add(b, name, t->type, &s, NULL, r);
}

/* The matrices of all experts; none at all is fine, some is not. */
static lace_status add_stack(builder *b, const char *name, const char *before, const char *after,
                             recipe *r)
{
    const model_config *c = &b->config->model;
    int32_t n = r->part == STACK_EXPERTS   ? c->n_experts
                : r->part == STACK_HEADS   ? c->n_heads
                : r->part == STACK_STREAMS ? c->n_streams - 1
                                           : c->n_kv_heads;
    char expert_name[2 * NAME_BYTES];
    r->sources = arena_alloc(&b->h->memory, (size_t)n, sizeof *r->sources);
    if (!r->sources)
        return error_nomem(b->err, "the list of experts");
    for (int32_t e = 0; e < n; e++) {
        snprintf(expert_name, sizeof expert_name, "%s%d%s", before, e, after);
        const tensor *t;
        TRY(take(b, expert_name, &t));
        if (!t && e == 0)
            return LACE_OK;
        if (!t)
            return error_set(b->err, LACE_E_META, "tensor %.100s is missing", expert_name);
        r->sources[e] = t;
        const tensor *first = r->sources[0];
        if (t->shape.n_dims != (r->part == STACK_EXPERTS || r->part == STACK_STREAMS ? 2 : 1) ||
            t->shape.dims[0] != first->shape.dims[0] || t->shape.dims[1] != first->shape.dims[1] ||
            t->type != first->type)
            return wrong(b, t, "the shape and type of the first expert");
    }
    r->source = r->sources[0];
    shape s = r->source->shape;
    s.dims[s.n_dims++] = n;
    return add(b, name, r->source->type, &s, NULL, r);
}

static const struct {
    lace_status (*add)(builder *b, const char *name, const tensor *t, recipe *r);
    bool takes_packed; /* matrices that others have quantized */
} kinds[] = {
    [RECIPE_COPY] = {add_copy, true},
    [RECIPE_ADD_ONE] = {add_values, false},
    [RECIPE_VALUES] = {add_values, false},
    [RECIPE_PERMUTE_Q] = {add_permuted, true},
    [RECIPE_PERMUTE_K] = {add_permuted, true},
    [RECIPE_TRANSPOSE] = {add_transposed, false},
    [RECIPE_TRANSPOSE_HALF] = {add_transposed, false},
    [RECIPE_STRIDE] = {add_strided, false},
    [RECIPE_HALVE] = {add_halved, false},
    [RECIPE_MXFP4] = {add_mxfp4, false},
    [RECIPE_HEADS] = {add_heads, true},
    [RECIPE_ROWS] = {add_mapped, true},
    [RECIPE_COLUMNS] = {add_mapped, true},
    [RECIPE_SCALE] = {add_scaled, true},
};

/* One row of a table, in the shape that it has in the files. */
static lace_status add_as_is(builder *b, int32_t layer, const name_row *row, char *hf,
                             const char *name)
{
    recipe r = {.kind = row->kind,
                .part = row->part,
                .n_parts = row->n_parts ? row->n_parts : 1,
                .rows = row->rows,
                .value_of = row->kind == RECIPE_ADD_ONE ? plus_one : row->value_of,
                .factor_of = row->factor_of,
                .layer = layer};
    if (row->kind == RECIPE_STACK) {
        char *star = strchr(hf, '*');
        *star = 0;
        return add_stack(b, name, hf, star + 1, &r);
    }
    const tensor *t = NULL;
    if (kinds[row->kind].takes_packed)
        TRY(take(b, hf, &t));
    else
        t = take_plain(b, hf);
    r.source = t;
    return t ? kinds[row->kind].add(b, name, t, &r) : LACE_OK;
}

/* One row of a table. `hf` and `name` are whole names. */
static lace_status add_named(builder *b, int32_t layer, const name_row *row, char *hf,
                             const char *name)
{
    size_t count = b->h->count;
    TRY(add_as_is(b, layer, row, hf, name));
    return reshape(b, row->shape, count);
}

/* All rows of a table, of a layer whose names begin with `start`. */
static lace_status add_layer(builder *b, int32_t layer, const name_table *rows, const char *start)
{
    char hf[NAME_BYTES], name[NAME_BYTES];
    for (size_t i = 0; i < rows->n_rows; i++) {
        snprintf(hf, sizeof hf, "%s%s", start, rows->rows[i].hf);
        snprintf(name, sizeof name, "blk.%d.%s", layer, rows->rows[i].gguf);
        TRY(add_named(b, layer, &rows->rows[i], hf, name));
    }
    return LACE_OK;
}

static void format_layer_start(const builder *b, int32_t layer, char out[START_BYTES])
{
    const char *start = b->config->family->layer_start;
    snprintf(out, START_BYTES, "%s%s%d.", b->prefix, start ? start : "layers.", layer);
}

/* Layers behind the last that predict further tokens, as far as the files have them. */
static lace_status add_predicting(builder *b)
{
    const hf_family *f = b->config->family;
    const char *own = f->predicting_start;
    char start[START_BYTES], layer_start[START_BYTES];
    int32_t n_layers = b->config->model.n_layers, n = b->config->n_later_layers;
    if (own && n == 0) /* configs may be silent about it */
        n = 1;
    for (int32_t i = 0; f->predicting.n_rows > 0 && i < n; i++) {
        format_layer_start(b, n_layers + i, layer_start);
        snprintf(start, sizeof start, "%s", own ? own : layer_start);
        if (own)
            snprintf(layer_start, sizeof layer_start, "%slayers.%d.", own, i);
        size_t count = b->h->count;
        TRY(add_layer(b, n_layers + i, &f->predicting, start));
        if (b->h->count == count)
            return LACE_OK;
        TRY(add_layer(b, n_layers + i, &f->layers, layer_start));
        b->h->config.n_predicting++;
    }
    return LACE_OK;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static name_table table_or(name_table t, const name_row *rows, size_t n_rows)
{
    return t.n_rows > 0 ? t : (name_table){rows, n_rows};
}

name_table hf_family_ends(const hf_family *f)
{
    return table_or(f->ends, llama_ends, sizeof llama_ends / sizeof *llama_ends);
}

name_table hf_family_heads(const hf_family *f)
{
    return table_or(f->heads, llama_heads, sizeof llama_heads / sizeof *llama_heads);
}

/*
 * What lies outside of layers. A tied output matrix is accounted for and left out, unless a file has
 * factors in it that the embedding does not have.
 */
static lace_status add_ends(builder *b)
{
    const hf_config *c = b->config;
    char hf[NAME_BYTES];
    int32_t n_factors = c->model.rope.n_dims / 2;
    if (c->has_rope_factors)
        TRY(add_floats(b, "rope_freqs.weight", c->rope_factors, n_factors));
    if (c->has_long_factors) {
        TRY(add_floats(b, "rope_factors_long.weight", c->long_factors, n_factors));
        TRY(add_floats(b, "rope_factors_short.weight", c->short_factors, n_factors));
    }
    name_table ends = hf_family_ends(c->family);
    for (size_t i = 0; i < ends.n_rows; i++) {
        snprintf(hf, sizeof hf, "%s%s", b->prefix, ends.rows[i].hf);
        TRY(add_named(b, -1, &ends.rows[i], hf, ends.rows[i].gguf));
    }
    name_table heads = hf_family_heads(c->family);
    for (size_t i = 0; i < heads.n_rows; i++) {
        const name_row *row = &heads.rows[i];
        snprintf(hf, sizeof hf, "%s", row->hf);
        size_t count = b->h->count;
        TRY(add_named(b, -1, row, hf, row->gguf));
        if (!c->is_tied || strcmp(row->gguf, "output.weight") != 0)
            continue;
        b->h->count = count;
        if (row->kind == RECIPE_SCALE && b->layout == HF_AS_GGUF) { /* by another factor */
            snprintf(hf, sizeof hf, "%s%s", b->prefix, ends.rows[0].hf);
            TRY(add_named(b, -1, row, hf, row->gguf));
        }
    }
    return LACE_OK;
}

static bool begins_with(text name, const char *start)
{
    size_t n = strlen(start);
    return name.size >= n && memcmp(name.data, start, n) == 0;
}

static bool is_ignored(const hf_family *f, text name)
{
    for (size_t i = 0; f->ignores && f->ignores[i]; i++)
        if (begins_with(name, f->ignores[i]))
            return true;
    for (size_t i = 0; i < sizeof ignored_starts / sizeof *ignored_starts; i++)
        if (begins_with(name, ignored_starts[i]))
            return true;
    for (size_t i = 0; i < sizeof ignored_ends / sizeof *ignored_ends; i++) {
        size_t n = strlen(ignored_ends[i]);
        if (name.size >= n && memcmp(name.data + name.size - n, ignored_ends[i], n) == 0)
            return true;
    }
    return false;
}

/* Layers behind the last, which predict further tokens (GLM-4.5, DeepSeek V3). */
static bool is_of_later_layer(const builder *b, text name)
{
    char start[NAME_BYTES];
    const char *layers =
        b->config->family->layer_start ? b->config->family->layer_start : "layers.";
    int n = snprintf(start, sizeof start, "%s%s", b->prefix, layers);
    if (b->config->n_later_layers == 0 || name.size <= (size_t)n ||
        memcmp(name.data, start, (size_t)n) != 0)
        return false;
    int32_t layer = 0, at = n;
    while ((size_t)at < name.size && name.data[at] >= '0' && name.data[at] <= '9' && layer < 100000)
        layer = 10 * layer + (name.data[at++] - '0');
    int32_t first = b->config->model.n_layers;
    return at > n && layer >= first && layer < first + b->config->n_later_layers;
}

/* Quantizers of gptq write zeros where a matrix has no bias. */
static bool is_empty_bias(const builder *b, const tensor *t)
{
    static const char end[] = ".bias";
    size_t n = sizeof end - 1;
    if (b->config->quant.method != HF_QUANT_GPTQ || t->name.size < n ||
        memcmp(t->name.data + t->name.size - n, end, n) != 0)
        return false;
    for (uint64_t i = 0; i < t->n_bytes; i++)
        if (t->data[i] != 0)
            return false;
    return true;
}

/* A tensor that nobody took would change the model if it were computed with. */
static lace_status check_all_used(const builder *b)
{
    for (size_t i = 0; i < weights_count(b->files); i++) {
        const tensor *t = weights_at(b->files, i);
        if (!b->is_used[i] && !is_ignored(b->config->family, t->name) &&
            !is_of_later_layer(b, t->name) && !is_empty_bias(b, t))
            return error_set(
                b->err, LACE_E_UNSUPPORTED,
                "tensor %.*s (%s): does not belong to a model of architecture %s with %d layers",
                text_width(t->name), t->name.data, dtype_describe(t->type)->name,
                b->config->model.architecture, b->config->model.n_layers);
    }
    return LACE_OK;
}

static lace_status build(builder *b)
{
    char name[NAME_BYTES];
    for (size_t i = 0; hf_name_prefixes[i]; i++) {
        b->prefix = hf_name_prefixes[i];
        snprintf(name, sizeof name, "%s%s", b->prefix,
                 hf_family_ends(b->config->family).rows[0].hf);
        if (weights_find(b->files, name))
            break;
    }
    TRY(add_ends(b));
    for (int32_t i = 0; i < b->config->model.n_layers; i++) {
        char start[START_BYTES];
        format_layer_start(b, i, start);
        TRY(add_layer(b, i, &b->config->family->layers, start));
    }
    TRY(add_predicting(b));
    return check_all_used(b);
}

lace_status hf_tensors_create(const weights *files, const hf_config *config, hf_layout layout,
                              hf_tensors **out, lace_error *err)
{
    *out = NULL;
    hf_tensors *h = mem_calloc(1, sizeof *h);
    bool *is_used = mem_calloc(weights_count(files), sizeof *is_used);
    lace_status status = LACE_OK;
    if (!h || !is_used) {
        status = error_nomem(err, "the list of tensors");
    } else {
        h->config = config->model;
        arena_init(&h->memory, (size_t)256 << 20);
        builder b = {.h = h,
                     .files = files,
                     .config = config,
                     .layout = layout,
                     .is_used = is_used,
                     .err = err};
        status = build(&b);
    }
    mem_free(is_used);
    return GIVE_OR_FREE(status, h, out, hf_tensors_free);
}

void hf_tensors_free(hf_tensors *h)
{
    if (!h)
        return;
    arena_deinit(&h->memory);
    mem_free_all(h->tensors, h->recipes, h);
}

int32_t hf_tensors_n_predicting(const hf_tensors *h)
{
    return h->config.n_predicting;
}

size_t hf_tensors_count(const hf_tensors *h)
{
    return h->count;
}

tensor *hf_tensors_at(hf_tensors *h, size_t i)
{
    return i < h->count ? &h->tensors[i] : NULL;
}
