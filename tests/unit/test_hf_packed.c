/*
 * hf/hf_packed.c: checkpoints that others have quantized. A small llama is written twice, with
 * matrices in the layout of a quantizer and with the numbers that they stand for, and both must
 * give the same logits. The packers follow the documentation of the formats, bit by bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/convert.h"
#include "alloc_faults.h"
#include "lace.h"
#include "hf/hf_names.h"
#include "scratch.h"
#include "tap.h"
#include "tensor/half.h"
#include "tiny_hf.h"

enum { WIDTH = 64, FFN = 96, N_VOCAB = 16, MAX_COLS = FFN, MAX_ROWS = FFN };

/* ---- A matrix -------------------------------------------------------------------------------- */

/* codes[row][col], and for each row and group a zero and a scale. */
typedef struct matrix {
    int rows, cols, bits, group;
    int code[MAX_ROWS][MAX_COLS];
    int zero[MAX_ROWS][MAX_COLS];
    float scale[MAX_ROWS][MAX_COLS];
    int group_of[MAX_COLS];
    float dense[MAX_ROWS][MAX_COLS];
} matrix;

typedef struct layout layout;
struct layout {
    const char *name;
    const char *config; /* quantization_config */
    int bits, group;    /* of integers; group 0: the whole row */
    bool has_zeros, has_order;
    const char *scale_type;
    void (*pack)(st_file *f, const char *stem, matrix *m, const layout *l);
    double tolerance; /* of logits, relative to the largest */
    dtype shown;
};

static uint64_t state;

static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 40) % n;
}

static void fill(matrix *m, const layout *l, int rows, int cols)
{
    *m = (matrix){.rows = rows, .cols = cols, .bits = l->bits};
    m->group = l->group ? l->group : cols;
    int n_groups = cols / m->group, middle = 1 << (l->bits - 1);
    for (int c = 0; c < cols; c++)
        m->group_of[c] = l->has_order ? (c * 7 + 3) % n_groups : c / m->group;
    for (int r = 0; r < rows; r++) {
        for (int g = 0; g < n_groups; g++) {
            m->zero[r][g] = l->has_zeros ? (int)draw(1u << l->bits) : middle;
            /* Seven bits, so that it is the same as f16, bf16 and f32. */
            m->scale[r][g] = (float)(65 + draw(64)) * (l->bits == 8 ? 0x1p-17f : 0x1p-12f);
        }
        for (int c = 0; c < cols; c++) {
            int g = m->group_of[c];
            m->code[r][c] = (int)draw(1u << l->bits);
            m->dense[r][c] = (float)(m->code[r][c] - m->zero[r][g]) * m->scale[r][g];
        }
    }
}

/* ---- Writing tensors, rightly and wrongly ---------------------------------------------------- */

static struct damage {
    const char *suffix;                           /* of the tensor that is */
    enum { NONE, DROPPED, RESHAPED, FILLED } how; /* missing, of one dimension, all bytes 0xff */
} damage;

static void put(st_file *f, const char *stem, const char *suffix, const char *type, int rows,
                int cols, void *data, size_t n_bytes)
{
    char name[128], dims[64];
    snprintf(name, sizeof name, "%s.%s", stem, suffix);
    snprintf(dims, sizeof dims, cols ? "[%d,%d]" : "[%d]", rows, cols);
    if (damage.suffix && strcmp(damage.suffix, suffix) == 0) {
        if (damage.how == DROPPED)
            return;
        if (damage.how == RESHAPED)
            snprintf(dims, sizeof dims, "[1,1,%d]", rows * (cols ? cols : 1));
        if (damage.how == FILLED)
            memset(data, 0xff, n_bytes);
    }
    st_add(f, name, type, dims, data, n_bytes);
}

static void put_floats(st_file *f, const char *stem, const char *suffix, const char *type, int rows,
                       int cols, const float *values)
{
    static uint32_t out[MAX_ROWS * MAX_COLS];
    size_t n = (size_t)rows * (size_t)(cols ? cols : 1);
    bool is_f32 = strcmp(type, "F32") == 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t half =
            strcmp(type, "F16") == 0 ? f16_from_f32(values[i]) : bf16_from_f32(values[i]);
        if (is_f32)
            memcpy((char *)out + 4 * i, &values[i], 4);
        else
            memcpy((char *)out + 2 * i, &half, 2);
    }
    put(f, stem, suffix, type, rows, cols, out, n * (is_f32 ? 4 : 2));
}

/* Set bits [at, at + n) of a stream of words that lie `step` apart. */
static void put_bits(uint32_t *words, int step, int at, int n, int value)
{
    for (int i = 0; i < n; i++)
        words[(at + i) / 32 * step] |= (uint32_t)(value >> i & 1) << (at + i) % 32;
}

/* ---- The layouts ----------------------------------------------------------------------------- */

static void pack_gptq(st_file *f, const char *stem, matrix *m, const layout *l)
{
    static uint32_t words[MAX_ROWS * MAX_COLS], zeros[MAX_ROWS * MAX_COLS];
    static float scales[MAX_ROWS * MAX_COLS];
    static int32_t order[MAX_COLS];
    int n_groups = m->cols / m->group, b = m->bits, wide = m->rows * b / 32;
    int less = strstr(l->config, "gptq_v2") ? 0 : 1;
    memset(words, 0, sizeof words);
    memset(zeros, 0, sizeof zeros);
    for (int r = 0; r < m->rows; r++) {
        for (int c = 0; c < m->cols; c++)
            put_bits(words + r, m->rows, c * b, b, m->code[r][c]);
        for (int g = 0; g < n_groups; g++) {
            put_bits(zeros + g * wide, 1, r * b, b, (m->zero[r][g] - less) & ((1 << b) - 1));
            scales[g * m->rows + r] = m->scale[r][g];
        }
    }
    for (int c = 0; c < m->cols; c++)
        order[c] = m->group_of[c];
    put(f, stem, "qweight", "I32", m->cols * b / 32, m->rows, words,
        (size_t)(m->cols * b / 32 * m->rows) * 4);
    put(f, stem, "qzeros", "I32", n_groups, wide, zeros, (size_t)(n_groups * wide) * 4);
    put_floats(f, stem, "scales", l->scale_type, n_groups, m->rows, scales);
    put(f, stem, "g_idx", "I32", m->cols, 0, order, (size_t)m->cols * 4);
    float empty[MAX_ROWS] = {0}; /* as AutoGPTQ writes it */
    put_floats(f, stem, "bias", "F16", m->rows, 0, empty);
}

static void pack_awq(st_file *f, const char *stem, matrix *m, const layout *l)
{
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    static uint32_t words[MAX_ROWS * MAX_COLS], zeros[MAX_ROWS * MAX_COLS];
    static float scales[MAX_ROWS * MAX_COLS];
    int n_groups = m->cols / m->group, wide = m->rows / 8;
    memset(words, 0, sizeof words);
    memset(zeros, 0, sizeof zeros);
    for (int j = 0; j < wide; j++)
        for (int i = 0; i < 8; i++) {
            int r = 8 * j + order[i];
            for (int c = 0; c < m->cols; c++)
                words[c * wide + j] |= (uint32_t)m->code[r][c] << 4 * i;
            for (int g = 0; g < n_groups; g++) {
                zeros[g * wide + j] |= (uint32_t)m->zero[r][g] << 4 * i;
                scales[g * m->rows + r] = m->scale[r][g];
            }
        }
    put(f, stem, "qweight", "I32", m->cols, wide, words, (size_t)(m->cols * wide) * 4);
    put(f, stem, "qzeros", "I32", n_groups, wide, zeros, (size_t)(n_groups * wide) * 4);
    put_floats(f, stem, "scales", l->scale_type, n_groups, m->rows, scales);
}

static void put_row_scales(st_file *f, const char *stem, const matrix *m, const char *type)
{
    static float scales[MAX_ROWS * MAX_COLS];
    int n_groups = m->cols / m->group;
    for (int r = 0; r < m->rows; r++)
        for (int g = 0; g < n_groups; g++)
            scales[r * n_groups + g] = m->scale[r][g];
    put_floats(f, stem, "weight_scale", type, m->rows, n_groups, scales);
}

static void pack_words(st_file *f, const char *stem, matrix *m, const layout *l)
{
    static uint32_t words[MAX_ROWS * MAX_COLS], zeros[MAX_ROWS * MAX_COLS];
    static int32_t order[MAX_COLS];
    int per = 32 / m->bits, n_groups = m->cols / m->group;
    int wide = (m->cols + per - 1) / per, high = (m->rows + per - 1) / per;
    memset(words, 0, sizeof words);
    memset(zeros, 0, sizeof zeros);
    for (int r = 0; r < m->rows; r++) {
        for (int c = 0; c < m->cols; c++)
            words[r * wide + c / per] |= (uint32_t)m->code[r][c] << m->bits * (c % per);
        for (int g = 0; g < n_groups; g++)
            zeros[r / per * n_groups + g] |= (uint32_t)m->zero[r][g] << m->bits * (r % per);
    }
    for (int c = 0; c < m->cols; c++)
        order[c] = m->group_of[c];
    int64_t sizes[2] = {m->rows, m->cols};
    put(f, stem, "weight_packed", "I32", m->rows, wide, words, (size_t)(m->rows * wide) * 4);
    put(f, stem, "weight_shape", "I64", 2, 0, sizes, sizeof sizes);
    put_row_scales(f, stem, m, l->scale_type);
    if (l->has_zeros)
        put(f, stem, "weight_zero_point", "I32", high, n_groups, zeros,
            (size_t)(high * n_groups) * 4);
    if (l->has_order)
        put(f, stem, "weight_g_idx", "I32", m->cols, 0, order, (size_t)m->cols * 4);
}

static void pack_bytes(st_file *f, const char *stem, matrix *m, const layout *l)
{
    static int8_t bytes[MAX_ROWS * MAX_COLS];
    for (int r = 0; r < m->rows; r++)
        for (int c = 0; c < m->cols; c++)
            bytes[r * m->cols + c] = (int8_t)(m->code[r][c] - 128);
    put(f, stem, "weight", "I8", m->rows, m->cols, bytes, (size_t)(m->rows * m->cols));
    put_row_scales(f, stem, m, l->scale_type);
}

/* A byte of e4m3 as the format says: sign, four bits of exponent, three of mantissa. */
static float e4m3_value(int byte)
{
    int exponent = byte >> 3 & 15, mantissa = byte & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return (float)(byte & 128 ? -size : size);
}

static int random_e4m3(void)
{
    int byte = (int)draw(256);
    return (byte & 127) == 127 ? 0 : byte; /* no NaN */
}

/* Scales of blocks, rows or all, in the parts of the matrix that `high` and `wide` cut it into. */
static void put_fp8(st_file *f, const char *stem, matrix *m, const char *scale_name, int high,
                    int wide)
{
    static uint8_t bytes[MAX_ROWS * MAX_COLS];
    static float scales[MAX_ROWS * MAX_COLS];
    int n_high = (m->rows + high - 1) / high, n_wide = (m->cols + wide - 1) / wide;
    for (int i = 0; i < n_high * n_wide; i++)
        scales[i] = (float)(1000 + draw(1000)) * 1e-6f;
    for (int r = 0; r < m->rows; r++)
        for (int c = 0; c < m->cols; c++) {
            int byte = random_e4m3();
            bytes[r * m->cols + c] = (uint8_t)byte;
            m->dense[r][c] = e4m3_value(byte) * scales[r / high * n_wide + c / wide];
        }
    bool is_one = n_high == 1 && n_wide == 1;
    put(f, stem, "weight", "F8_E4M3", m->rows, m->cols, bytes, (size_t)(m->rows * m->cols));
    put_floats(f, stem, scale_name, "F32", n_high, is_one ? 0 : n_wide, scales);
}

static void pack_fp8_tensor(st_file *f, const char *stem, matrix *m, const layout *l)
{
    float one = 0.5f;
    put_fp8(f, stem, m, "weight_scale", m->rows, m->cols);
    put_floats(f, stem, "input_scale", "F32", 1, 0, &one);
}

static void pack_fp8_rows(st_file *f, const char *stem, matrix *m, const layout *l)
{
    put_fp8(f, stem, m, "weight_scale", 1, m->cols);
}

/* 40 divides none of the sizes: the last blocks are smaller, as in real files. */
static void pack_fp8_blocks(st_file *f, const char *stem, matrix *m, const layout *l)
{
    put_fp8(f, stem, m, "weight_scale_inv", 40, 40);
}

/* Half of the values go: any of them, or two of each four columns. */
static void put_mask(st_file *f, const char *stem, matrix *m, bool is_24)
{
    static float values[MAX_ROWS * MAX_COLS];
    static uint8_t mask[MAX_ROWS * MAX_COLS / 8];
    static int64_t offsets[MAX_ROWS];
    int n = 0, wide = (m->cols + 7) / 8;
    memset(mask, 0, sizeof mask);
    for (int r = 0; r < m->rows; r++) {
        offsets[r] = n;
        for (int c = 0; c < m->cols; c++) {
            int skipped = (r + c / 4) % 4;
            bool is_kept = is_24 ? c % 4 != skipped && c % 4 != (skipped + 1) % 4 : draw(2) == 0;
            if (is_kept) {
                mask[r * wide + c / 8] |= (uint8_t)(1 << c % 8);
                values[n++] = m->dense[r][c];
            } else {
                m->dense[r][c] = 0;
            }
        }
    }
    int64_t sizes[2] = {m->rows, m->cols};
    if (is_24)
        put_floats(f, stem, "compressed", "BF16", m->rows, m->cols / 2, values);
    else
        put_floats(f, stem, "compressed", "F32", n, 0, values);
    put(f, stem, "bitmask", "U8", m->rows, wide, mask, (size_t)(m->rows * wide));
    if (is_24)
        put(f, stem, "shape", "I64", 2, 1, sizes, sizeof sizes);
    else
        put(f, stem, "shape", "I64", 2, 0, sizes, sizeof sizes);
    if (!is_24)
        put(f, stem, "row_offsets", "I64", m->rows, 0, offsets, (size_t)m->rows * 8);
}

static void pack_mask(st_file *f, const char *stem, matrix *m, const layout *l)
{
    put_mask(f, stem, m, false);
}

static void pack_mask_24(st_file *f, const char *stem, matrix *m, const layout *l)
{
    /* Values that bf16 holds. */
    for (int r = 0; r < m->rows; r++)
        for (int c = 0; c < m->cols; c++)
            m->dense[r][c] = bf16_to_f32(bf16_from_f32(m->dense[r][c]));
    put_mask(f, stem, m, true);
}

#define GPTQ(bits, group, sym, more)                                                               \
    "{\"quant_method\":\"gptq\",\"bits\":" #bits ",\"group_size\":" #group ",\"sym\":" #sym        \
    ",\"desc_act\":false" more "}"
#define COMPRESSED(format, bits, type)                                                             \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                                \
    "\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":" #bits \
    ",\"type\":\"" type "\",\"strategy\":\"group\"}}},\"ignore\":[\"lm_head\"]}"
#define SPARSE(format)                                                                             \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"dense\",\"sparsity_config\":{"          \
    "\"format\":\"" format "\",\"targets\":[\"Linear\"]}}"

/*
 * Where the type that is shown holds the numbers as they are, only the order of additions differs;
 * F16 rounds each of them to 11 bits.
 */
#define EXACT   1e-5
#define ROUNDED 1e-3

/* clang-format off */
static const layout layouts[] = {
    {"gptq_of_4_bits_is_q4_0", GPTQ(4, 32, true, ""), 4, 32, false, false, "F16", pack_gptq, EXACT, DTYPE_Q4_0},
    {"gptq_with_zeros_is_q8_0", GPTQ(4, 32, false, ""), 4, 32, true, false, "F16", pack_gptq, EXACT, DTYPE_Q8_0},
    {"gptq_v2_stores_zeros_as_they_are", GPTQ(4, 32, false, ",\"checkpoint_format\":\"gptq_v2\""), 4, 32, true, false, "F16", pack_gptq, EXACT, DTYPE_Q8_0},
    {"gptq_of_whole_rows", GPTQ(4, -1, true, ""), 4, 0, false, false, "F16", pack_gptq, EXACT, DTYPE_Q4_0},
    {"gptq_of_groups_of_16_is_f16", GPTQ(4, 16, true, ""), 4, 16, false, false, "F16", pack_gptq, ROUNDED, DTYPE_F16},
    {"gptq_in_act_order_is_f16", GPTQ(4, 32, false, ",\"static_groups\":false"), 4, 32, true, true, "F16", pack_gptq, ROUNDED, DTYPE_F16},
    {"gptq_of_8_bits_is_q8_0", GPTQ(8, 32, true, ""), 8, 32, false, false, "F16", pack_gptq, EXACT, DTYPE_Q8_0},
    {"gptq_of_8_bits_with_zeros_is_f16", GPTQ(8, 32, false, ""), 8, 32, true, false, "F16", pack_gptq, ROUNDED, DTYPE_F16},
    {"gptq_of_3_bits_crosses_words", GPTQ(3, 32, false, ""), 3, 32, true, false, "F16", pack_gptq, EXACT, DTYPE_Q4_0},
    {"gptq_of_2_bits", GPTQ(2, 32, false, ""), 2, 32, true, false, "BF16", pack_gptq, EXACT, DTYPE_Q4_0},
    {"awq_undoes_the_interleave", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"zero_point\":true,\"version\":\"gemm\"}",
     4, 32, true, false, "F16", pack_awq, EXACT, DTYPE_Q8_0},
    {"pack_quantized_int4", COMPRESSED("pack-quantized", 4, "int"), 4, 32, false, false, "BF16", pack_words, EXACT, DTYPE_Q4_0},
    {"pack_quantized_int4_with_zeros", COMPRESSED("pack-quantized", 4, "int"), 4, 32, true, false, "BF16", pack_words, EXACT, DTYPE_Q8_0},
    {"pack_quantized_int4_in_act_order", COMPRESSED("pack-quantized", 4, "int"), 4, 32, false, true, "BF16", pack_words, ROUNDED, DTYPE_F16},
    {"pack_quantized_int8_of_channels", COMPRESSED("pack-quantized", 8, "int"), 8, 0, false, false, "BF16", pack_words, EXACT, DTYPE_Q8_0},
    {"pack_quantized_of_3_bits_leaves_two_over", COMPRESSED("pack-quantized", 3, "int"), 3, 32, false, false, "BF16", pack_words, EXACT, DTYPE_Q4_0},
    {"int_quantized", COMPRESSED("int-quantized", 8, "int"), 8, 0, false, false, "BF16", pack_bytes, EXACT, DTYPE_Q8_0},
    {"float_quantized_of_channels", COMPRESSED("float-quantized", 8, "float"), 8, 0, false, false, "F32", pack_fp8_rows, ROUNDED, DTYPE_F16},
    {"fp8_of_tensors", "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}", 8, 0, false, false, "F32", pack_fp8_tensor, ROUNDED, DTYPE_F16},
    {"fp8_of_blocks", "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[40,40]}", 8, 0, false, false, "F32", pack_fp8_blocks, ROUNDED, DTYPE_F16},
    {"sparse_bitmask", SPARSE("sparse-bitmask"), 4, 32, false, false, "F32", pack_mask, EXACT, DTYPE_F32},
    {"sparse_24_bitmask", SPARSE("sparse-24-bitmask"), 4, 32, false, false, "F32", pack_mask_24, EXACT, DTYPE_BF16},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static const struct {
    const char *stem;
    int rows, cols;
} linears[] = {
    {"self_attn.q_proj", WIDTH, WIDTH}, {"self_attn.k_proj", WIDTH, WIDTH},
    {"self_attn.v_proj", WIDTH, WIDTH}, {"self_attn.o_proj", WIDTH, WIDTH},
    {"mlp.gate_proj", FFN, WIDTH},      {"mlp.up_proj", FFN, WIDTH},
    {"mlp.down_proj", WIDTH, FFN},
};
/* clang-format on */

/* ---- The model ------------------------------------------------------------------------------- */

static void put_random(st_file *f, const char *stem, int rows, int cols)
{
    static float values[MAX_ROWS * MAX_COLS];
    int n = rows * (cols ? cols : 1);
    for (int i = 0; i < n; i++)
        values[i] = (float)((int)draw(255) - 127) / 128; /* bf16 holds it */
    put_floats(f, stem, "weight", "F32", rows, cols, values);
}

static bool write_config(const char *quantization)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"model_type\":\"llama\",\"hidden_size\":%d,\"num_hidden_layers\":1,"
             "\"num_attention_heads\":2,\"intermediate_size\":%d,\"vocab_size\":%d,"
             "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5%s%s}",
             WIDTH, FFN, N_VOCAB, quantization ? ",\"quantization_config\":" : "",
             quantization ? quantization : "");
    return scratch_write("config.json", json);
}

/* The same model each time: packed, or as the numbers that it stands for. */
static bool write_model(const layout *l, bool is_packed)
{
    static matrix m;
    st_file f;
    buf whole;
    state = 42;
    st_begin(&f);
    buf_init(&whole, 1 << 22);
    put_random(&f, "model.embed_tokens", N_VOCAB, WIDTH);
    put_random(&f, "lm_head", N_VOCAB, WIDTH);
    put_random(&f, "model.norm", WIDTH, 0);
    put_random(&f, "model.layers.0.input_layernorm", WIDTH, 0);
    put_random(&f, "model.layers.0.post_attention_layernorm", WIDTH, 0);
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        char stem[96];
        snprintf(stem, sizeof stem, "model.layers.0.%s", linears[i].stem);
        fill(&m, l, linears[i].rows, linears[i].cols);
        /* Packers of formats without integers choose the numbers themselves. */
        st_file dropped;
        st_begin(&dropped);
        l->pack(is_packed ? &f : &dropped, stem, &m, l);
        buf_deinit(&dropped.header);
        buf_deinit(&dropped.data);
        static float dense[MAX_ROWS * MAX_COLS];
        for (int r = 0; r < m.rows; r++)
            memcpy(dense + r * m.cols, m.dense[r], (size_t)m.cols * sizeof(float));
        if (!is_packed)
            put_floats(&f, stem, "weight", "F32", m.rows, m.cols, dense);
    }
    st_end(&f, &whole);
    bool ok =
        tiny_hf_write("model.safetensors", &whole) && write_config(is_packed ? l->config : NULL);
    buf_deinit(&whole);
    return ok;
}

/* Logits after a few tokens. */
static lace_status run(const char *path, float logits[N_VOCAB], lace_error *err)
{
    lace_model *model = NULL;
    lace_session *session = NULL;
    lace_model_options mo = lace_model_options_default();
    lace_session_options so = lace_session_options_default();
    mo.use_exact = true; /* activations as floats, for all types */
    so.n_threads = 1;
    so.kv_type = LACE_KV_F32;
    lace_item items[] = {{.token = 3}, {.token = 7}, {.token = 1, .want_logits = true}};
    lace_status status = lace_model_open(path, &mo, &model, err);
    if (status == LACE_OK)
        status = lace_session_create(model, &so, &session, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, items, 3, err);
    if (status == LACE_OK)
        memcpy(logits, lace_session_logits(session, 0), N_VOCAB * sizeof *logits);
    lace_session_free(session);
    lace_model_close(model);
    return status;
}

static bool is_ok(lace_status status, const lace_error *err)
{
    if (status != LACE_OK)
        tap_note("%s", err->text);
    return status == LACE_OK;
}

static double distance(const float *a, const float *b)
{
    double most = 0, far = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        most = fmax(most, fabs(b[i]));
        far = fmax(far, fabs((double)a[i] - b[i]));
    }
    return far / most;
}

static dtype type_of(const char *path, const char *name)
{
    weights *w = NULL;
    model_config c;
    dtype type = DTYPE_COUNT;
    if (weights_open(path, &w, NULL) == LACE_OK && config_from_weights(w, &c, NULL) == LACE_OK) {
        const tensor *t = weights_find(w, name);
        type = t ? t->type : DTYPE_COUNT;
    }
    weights_close(w);
    return type;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void layout_gives_the_logits_of_its_numbers(void *arg)
{
    const layout *l = arg;
    float expected[N_VOCAB], found[N_VOCAB];
    lace_error err;
    CHECK(scratch_create() && write_model(l, false));
    CHECK(is_ok(run(scratch_path(""), expected, &err), &err));
    CHECK(write_model(l, true));
    if (CHECK(is_ok(run(scratch_path(""), found, &err), &err)) &&
        !CHECK(distance(found, expected) <= l->tolerance))
        tap_note("distance %g", distance(found, expected));
    CHECK(type_of(scratch_path(""), "blk.0.ffn_up.weight") == l->shown);

    /* Converted it keeps its type, and with it the numbers. */
    CHECK(
        is_ok(convert_directory(scratch_path(""), scratch_path("o.gguf"), NULL, NULL, &err), &err));
    if (CHECK(is_ok(run(scratch_path("o.gguf"), found, &err), &err)))
        CHECK(distance(found, expected) <= l->tolerance);
    if (l->shown == DTYPE_Q4_0 || l->shown == DTYPE_Q8_0)
        CHECK(type_of(scratch_path("o.gguf"), "blk.0.ffn_up.weight") == l->shown);
    convert_options o = convert_options_default();
    o.has_type = true;
    o.type = DTYPE_F32;
    CHECK(is_ok(convert_directory(scratch_path(""), scratch_path("o.gguf"), &o, NULL, &err), &err));
    if (CHECK(is_ok(run(scratch_path("o.gguf"), found, &err), &err)))
        CHECK(distance(found, expected) <= l->tolerance);
    scratch_remove();
}

static void refuse(lace_status expected, const char *words)
{
    float logits[N_VOCAB];
    lace_error err;
    lace_status status = run(scratch_path(""), logits, &err);
    if (!CHECK(status == expected && strstr(err.text, words)))
        tap_note("%s, expected %s with \"%s\"", status ? err.text : "was opened",
                 lace_status_name(expected), words);
    CHECK(status == LACE_OK || !strchr(err.text, '\n'));
}

static const layout *find(const char *name)
{
    for (size_t i = 0; i < N_LAYOUTS; i++)
        if (strcmp(layouts[i].name, name) == 0)
            return &layouts[i];
    CHECK(!"a layout of that name");
    return &layouts[0];
}

static void parts_that_do_not_fit_are_named(void)
{
    static const struct {
        const char *layout, *suffix;
        int how;
        lace_status status;
        const char *words;
    } cases[] = {
        {"gptq_of_4_bits_is_q4_0", "scales", DROPPED, LACE_E_META, "q_proj.scales is missing"},
        {"gptq_of_4_bits_is_q4_0", "qzeros", DROPPED, LACE_E_META, "q_proj.qzeros is missing"},
        {"gptq_of_4_bits_is_q4_0", "scales", RESHAPED, LACE_E_SHAPE, "expected f16 of 64x2"},
        {"gptq_of_4_bits_is_q4_0", "qweight", RESHAPED, LACE_E_SHAPE, "q_proj.qweight: i32 of"},
        {"gptq_of_4_bits_is_q4_0", "scales", FILLED, LACE_E_NUMERIC, "scale 0 is not finite"},
        {"gptq_in_act_order_is_f16", "g_idx", FILLED, LACE_E_META,
         "column 0 is in group 4294967295, expected 0 to 1"},
        {"gptq_in_act_order_is_f16", "g_idx", RESHAPED, LACE_E_SHAPE, "one i32 for each column"},
        {"awq_undoes_the_interleave", "scales", DROPPED, LACE_E_META, "scales is missing"},
        {"awq_undoes_the_interleave", "qzeros", RESHAPED, LACE_E_SHAPE, "expected i32 of 8x2"},
        {"pack_quantized_int4", "weight_scale", DROPPED, LACE_E_META, "weight_scale is missing"},
        {"pack_quantized_int4", "weight_shape", DROPPED, LACE_E_META, "weight_shape is missing"},
        {"pack_quantized_int4", "weight_shape", FILLED, LACE_E_SHAPE,
         "expected the numbers of rows and columns"},
        {"pack_quantized_int4_with_zeros", "weight_zero_point", RESHAPED, LACE_E_SHAPE,
         "expected i32 of 2x8"},
        {"int_quantized", "weight_scale", DROPPED, LACE_E_META, "weight_scale is missing"},
        {"fp8_of_blocks", "weight_scale_inv", DROPPED, LACE_E_META, "weight_scale is missing"},
        {"fp8_of_blocks", "weight_scale_inv", RESHAPED, LACE_E_SHAPE, "a matrix of floats"},
        {"sparse_bitmask", "bitmask", DROPPED, LACE_E_META, "bitmask is missing"},
        {"sparse_bitmask", "bitmask", FILLED, LACE_E_META, "row 1 has 64 bits"},
        {"sparse_bitmask", "row_offsets", FILLED, LACE_E_META, "row 0 has"},
        {"sparse_24_bitmask", "bitmask", FILLED, LACE_E_META, "row 0 has 64 bits"},
    };
    CHECK(scratch_create() != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        damage.suffix = cases[i].suffix;
        damage.how = cases[i].how;
        CHECK(write_model(find(cases[i].layout), true));
        damage.suffix = NULL;
        refuse(cases[i].status, cases[i].words);
    }
    scratch_remove();
}

static void configs_that_lace_does_not_read_are_named(void)
{
    static const struct {
        const char *config;
        lace_status status;
        const char *words;
    } cases[] = {
        {"{\"quant_method\":\"hqq\"}", LACE_E_UNSUPPORTED,
         "quant_method: is \"hqq\", expected gptq, awq, compressed-tensors, fp8"},
        {"{}", LACE_E_UNSUPPORTED, "quant_method: is \"\""},
        {"[]", LACE_E_META, "quantization_config: expected an object"},
        {GPTQ(5, 32, true, ""), LACE_E_UNSUPPORTED, "bits: expected 2, 3, 4 or 8"},
        {GPTQ(16, 32, true, ""), LACE_E_META, "bits: is 16"},
        {GPTQ(4, 0, true, ""), LACE_E_META, "group_size"},
        {GPTQ(4, 32, 1, ""), LACE_E_META, "sym: is an integer"},
        {GPTQ(4, 32, true, ",\"checkpoint_format\":\"marlin\""), LACE_E_UNSUPPORTED,
         "checkpoint_format: is \"marlin\", expected gptq or gptq_v2"},
        {GPTQ(4, 32, true, ",\"dynamic\":{\"-:x\":{}}"), LACE_E_UNSUPPORTED, "dynamic"},
        {GPTQ(8, 32, true, ""), LACE_E_SHAPE, "q_proj.scales: f16 of shape 64x2, expected f16 of"},
        {"{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":32}", LACE_E_UNSUPPORTED,
         "bits: expected 4"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemv\"}",
         LACE_E_UNSUPPORTED, "version: is \"gemv\", expected gemm"},
        {COMPRESSED("marlin-24", 4, "int"), LACE_E_UNSUPPORTED, "format: is \"marlin-24\""},
        {COMPRESSED("pack-quantized", 4, "float"), LACE_E_UNSUPPORTED, "type: is \"float\""},
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", LACE_E_UNSUPPORTED, "fmt: is \"e5m2\""},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[0,4]}", LACE_E_META,
         "weight_block_size"},
        {"{\"quant_method\":\"mxfp4\"}", LACE_E_UNSUPPORTED, "gpt-oss"},
        {NULL, LACE_E_UNSUPPORTED, "does not belong to a model"},
    };
    CHECK(scratch_create() && write_model(&layouts[0], true));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(write_config(cases[i].config));
        refuse(cases[i].status, cases[i].words);
    }
    scratch_remove();
}

static lace_status run_once(lace_error *err)
{
    float logits[N_VOCAB];
    return run(scratch_path(""), logits, err);
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_create() && write_model(find("gptq_in_act_order_is_f16"), true));
    fail_each_allocation(run_once, false);
    scratch_remove();
}

int main(void)
{
    for (size_t i = 0; i < N_LAYOUTS; i++)
        tap_case_arg(layouts[i].name, layout_gives_the_logits_of_its_numbers, (void *)&layouts[i]);
    CASE(parts_that_do_not_fit_are_named);
    CASE(configs_that_lace_does_not_read_are_named);
    CASE(every_allocation_may_fail);
    return tap_end();
}
