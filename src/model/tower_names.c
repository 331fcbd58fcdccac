/*
 * The tensors of vision towers under the names that a tower binds, which are those of an encoder:
 * what mmproj files and directories call them, and what is changed on the way.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "model/tower.h"
#include "tensor/codec/unpack.h"

enum { NAME_BYTES = 160 };

typedef enum change {
    SAME,
    FOLDED,     /* kernels of frames added up: an image is a film that stands still */
    TRANSPOSED, /* rows and columns swapped */
    PLUS_ONE    /* a norm stored as the difference from 1 */
} change;

/* Names without ".weight" and ".bias"; a %d stands for the layer. */
typedef struct tower_row {
    const char *from, *to;
    change change;
} tower_row;

/* clang-format off */
static const tower_row file_rows[] = {
    {"v.patch_embd", "patch_embd", FOLDED},
    {"v.position_embd", "position_embd", SAME},
    {"v.post_ln", "output_norm", SAME},
    {"v.blk.%d.ln1", "blk.%d.attn_norm", SAME},
    {"v.blk.%d.ln2", "blk.%d.ffn_norm", SAME},
    {"v.blk.%d.attn_q", "blk.%d.attn_q", SAME},
    {"v.blk.%d.attn_k", "blk.%d.attn_k", SAME},
    {"v.blk.%d.attn_v", "blk.%d.attn_v", SAME},
    {"v.blk.%d.attn_qkv", "blk.%d.attn_qkv", SAME},
    {"v.blk.%d.attn_out", "blk.%d.attn_output", SAME},
    {"v.blk.%d.ffn_up", "blk.%d.ffn_up", SAME},
    {"v.blk.%d.ffn_down", "blk.%d.ffn_down", SAME},
    {"v.deepstack.%d.norm", "deep.%d.norm", SAME},
    {"v.deepstack.%d.fc1", "deep.%d.up", SAME},
    {"v.deepstack.%d.fc2", "deep.%d.down", SAME},
    {"mm.input_projection", "projection", TRANSPOSED},
    {"mm.soft_emb_norm", "soft_norm", SAME},
    {"mm.0", "merge.up", SAME},
    {"mm.2", "merge.down", SAME},
    {NULL, NULL, SAME},
};

static const tower_row gemma_rows[] = {
    {"embeddings.patch_embedding", "patch_embd", FOLDED},
    {"embeddings.position_embedding", "position_embd", SAME},
    {"post_layernorm", "output_norm", SAME},
    {"encoder.layers.%d.layer_norm1", "blk.%d.attn_norm", SAME},
    {"encoder.layers.%d.layer_norm2", "blk.%d.ffn_norm", SAME},
    {"encoder.layers.%d.self_attn.q_proj", "blk.%d.attn_q", SAME},
    {"encoder.layers.%d.self_attn.k_proj", "blk.%d.attn_k", SAME},
    {"encoder.layers.%d.self_attn.v_proj", "blk.%d.attn_v", SAME},
    {"encoder.layers.%d.self_attn.out_proj", "blk.%d.attn_output", SAME},
    {"encoder.layers.%d.mlp.fc1", "blk.%d.ffn_up", SAME},
    {"encoder.layers.%d.mlp.fc2", "blk.%d.ffn_down", SAME},
    {"mm_input_projection_weight", "projection", TRANSPOSED},
    {"mm_soft_emb_norm", "soft_norm", PLUS_ONE},
    {NULL, NULL, SAME},
};

static const tower_row qwen_rows[] = {
    {"patch_embed.proj", "patch_embd", FOLDED},
    {"pos_embed", "position_embd", SAME},
    {"blocks.%d.norm1", "blk.%d.attn_norm", SAME},
    {"blocks.%d.norm2", "blk.%d.ffn_norm", SAME},
    {"blocks.%d.attn.qkv", "blk.%d.attn_qkv", SAME},
    {"blocks.%d.attn.proj", "blk.%d.attn_output", SAME},
    {"blocks.%d.mlp.linear_fc1", "blk.%d.ffn_up", SAME},
    {"blocks.%d.mlp.linear_fc2", "blk.%d.ffn_down", SAME},
    {"merger.norm", "output_norm", SAME},
    {"merger.linear_fc1", "merge.up", SAME},
    {"merger.linear_fc2", "merge.down", SAME},
    {"deepstack_merger_list.%d.norm", "deep.%d.norm", SAME},
    {"deepstack_merger_list.%d.linear_fc1", "deep.%d.up", SAME},
    {"deepstack_merger_list.%d.linear_fc2", "deep.%d.down", SAME},
    {NULL, NULL, SAME},
};

/* In front of the names in directories, of all generations. */
static const char *const prefixes[] = {
    "", "vision_tower.vision_model.", "model.vision_tower.vision_model.", "model.vision_tower.",
    "vision_tower.", "multi_modal_projector.", "model.multi_modal_projector.", "model.visual.", "visual."};
/* clang-format on */

/* How a tensor is made; sources[1] is a second frame's. */
typedef struct recipe {
    change change;
    const tensor *sources[2];
} recipe;

typedef struct tower_names {
    arena memory;
    tensor *tensors;
    recipe *recipes;
    size_t n, capacity;
} tower_names;

/* ---- Making ---------------------------------------------------------------------------------- */

/* out[i] = the sum over frames; kernels lie [row][channel][frame][pixel]. */
static void fold(const recipe *r, const tensor *to, float *out)
{
    int64_t n_out = (int64_t)to->n_values, area = to->shape.dims[0] / TOWER_CHANNELS;
    for (int k = 0; k < 2 && r->sources[k]; k++) {
        const tensor *t = r->sources[k];
        int64_t n_frames = (int64_t)t->n_values / n_out;
        for (int64_t at = 0; at < n_out; at += area)
            for (int64_t f = 0; f < n_frames; f++)
                for (int64_t i = 0; i < area; i++) {
                    float x;
                    uint64_t from = (uint64_t)((at / area * n_frames + f) * area + i);
                    unpack_row(t->type, t->data + row_bytes(t->type, (int64_t)from), 1, &x);
                    out[at + i] = k + f > 0 ? out[at + i] + x : x;
                }
    }
}

static void transpose(const tensor *t, uint8_t *out)
{
    int64_t n_cols = t->shape.dims[0], n_rows = t->shape.dims[1];
    size_t size = (size_t)(t->n_bytes / t->n_values);
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t col = 0; col < n_cols; col++)
            memcpy(out + (size_t)(col * n_rows + row) * size,
                   t->data + (size_t)(row * n_cols + col) * size, size);
}

static lace_status make(void *user, size_t index, uint8_t *out, lace_error *err)
{
    const tower_names *names = user;
    const recipe *r = &names->recipes[index];
    const tensor *to = &names->tensors[index];
    float *values = (float *)out;
    if (r->change == TRANSPOSED) {
        transpose(r->sources[0], out);
    } else if (r->change == FOLDED) {
        fold(r, to, values);
    } else {
        unpack_row(r->sources[0]->type, r->sources[0]->data, (int64_t)to->n_values, values);
        for (uint64_t i = 0; i < to->n_values; i++)
            values[i] += 1;
    }
    return LACE_OK;
}

static void free_names(void *user)
{
    tower_names *names = user;
    arena_deinit(&names->memory);
    mem_free_all(names->tensors, names->recipes, names);
}

/* ---- The list -------------------------------------------------------------------------------- */

static bool is_plain(const tensor *t)
{
    return t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16;
}

static lace_status bad_tensor(const tensor *t, const char *what, lace_error *err)
{
    char dims[96];
    return error_set(err, LACE_E_SHAPE, "tensor %.*s: type %s, shape %s, expected %s",
                     text_width(t->name), t->name.data, dtype_describe(t->type)->name,
                     shape_format(&t->shape, dims), what);
}

/* The type and the shape of what comes out. */
static lace_status shape_of(const recipe *r, const tower_config *c, tensor *out, lace_error *err)
{
    const tensor *t = r->sources[0];
    *out = *t;
    if (r->change == SAME)
        return LACE_OK;
    if (!is_plain(t) || (r->sources[1] && !is_plain(r->sources[1])))
        return bad_tensor(t, "f32, f16 or bf16", err);
    if (r->change == FOLDED) {
        int64_t width = tower_patch_width(c), n = width * c->n_embd;
        if ((int64_t)t->n_values % n != 0 || (int64_t)t->n_values / n > 16 ||
            (r->sources[1] && r->sources[1]->n_values != t->n_values))
            return bad_tensor(t, "a kernel of patches for each value", err);
        out->shape = (shape){2, {width, c->n_embd, 1, 1}};
    }
    if (r->change == TRANSPOSED) {
        if (t->shape.n_dims != 2)
            return bad_tensor(t, "two dimensions", err);
        out->shape = (shape){2, {t->shape.dims[1], t->shape.dims[0], 1, 1}};
    } else {
        out->type = DTYPE_F32;
    }
    out->data = NULL;
    return tensor_bytes(out->type, &out->shape, &out->n_values, &out->n_bytes, err);
}

static lace_status add(tower_names *names, const tower_config *c, const char *name, const recipe *r,
                       lace_error *err)
{
    if (names->n == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 256;
        tensor *tensors = mem_realloc(names->tensors, capacity * sizeof *tensors);
        names->tensors = tensors ? tensors : names->tensors;
        recipe *recipes = mem_realloc(names->recipes, capacity * sizeof *recipes);
        names->recipes = recipes ? recipes : names->recipes;
        if (!tensors || !recipes)
            return error_nomem(err, "the list of tensors");
        names->capacity = capacity;
    }
    tensor t;
    TRY(shape_of(r, c, &t, err));
    char *copy = arena_strndup(&names->memory, name, strlen(name));
    if (!copy)
        return error_nomem(err, "the names of tensors");
    t.name = text_of(copy);
    names->tensors[names->n] = t;
    names->recipes[names->n++] = *r;
    return LACE_OK;
}

/* The tensor of that name behind any of the prefixes. */
static const tensor *find(const weights *files, const char *name)
{
    char full[NAME_BYTES];
    size_t n = weights_gguf(files) ? 1 : sizeof prefixes / sizeof *prefixes;
    for (size_t i = 0; i < n; i++) {
        snprintf(full, sizeof full, "%s%s", prefixes[i], name);
        const tensor *t = weights_find(files, full);
        if (t)
            return t;
    }
    return NULL;
}

/* A name with the number of a layer in it, and an end. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void format_name(char out[NAME_BYTES], const char *pattern, int layer, const char *end)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, pattern, layer);
    snprintf(out, NAME_BYTES, "%.120s%s", name, end);
}
#pragma GCC diagnostic pop

/* Both tensors of a row: `from` is the number that the files have, `to` the layer. */
static lace_status add_row(tower_names *names, const weights *files, const tower_config *c,
                           const tower_row *row, int from, int to, lace_error *err)
{
    static const char *const ends[] = {".weight", ".bias"};
    char name[NAME_BYTES];
    for (int i = 0; i < 2; i++) {
        recipe r = {.change = i == 0 ? row->change : SAME};
        format_name(name, row->from, from, ends[i]);
        r.sources[0] = find(files, name);
        if (!r.sources[0] && i == 0 && row->change == TRANSPOSED) { /* a parameter by itself */
            format_name(name, row->from, from, "");
            r.sources[0] = find(files, name);
        }
        if (!r.sources[0])
            continue;
        if (r.change == FOLDED) {
            format_name(name, row->from, from, ".weight.1");
            r.sources[1] = find(files, name);
        }
        format_name(name, row->to, to, ends[i]);
        TRY(add(names, c, name, &r, err));
    }
    return LACE_OK;
}

static lace_status add_all(tower_names *names, const weights *files, const tower_config *c,
                           lace_error *err)
{
    bool is_file = weights_gguf(files) != NULL;
    const tower_row *rows = is_file ? file_rows : c->kind == TOWER_GEMMA3 ? gemma_rows : qwen_rows;
    for (const tower_row *row = rows; row->from; row++) {
        bool is_deep = strncmp(row->to, "deep.", 5) == 0, is_layers = strchr(row->to, '%') != NULL;
        int n_deep = 0;
        for (int i = 0; i < (is_layers ? c->n_layers : 1); i++) {
            if (is_deep && !c->is_deep[i])
                continue;
            /* Directories count those that are deep, files count layers. */
            TRY(add_row(names, files, c, row, is_deep && !is_file ? n_deep : i, i, err));
            n_deep++;
        }
    }
    return LACE_OK;
}

lace_status tower_set_names(weights *files, const tower_config *c, lace_error *err)
{
    tower_names *names = mem_calloc(1, sizeof *names);
    if (!names)
        return error_nomem(err, "the list of tensors");
    arena_init(&names->memory, (size_t)16 << 20);
    lace_status status = add_all(names, files, c, err);
    if (status == LACE_OK && names->n == 0)
        status = error_set(err, LACE_E_META, "has no tensors of a vision tower");
    if (status != LACE_OK) {
        free_names(names);
        return status;
    }
    weights_view view = {.tensors = names->tensors,
                         .n_tensors = names->n,
                         .make = make,
                         .free = free_names,
                         .user = names};
    return weights_set_view(files, &view, err);
}
