/* Measuring what each type would cost each tensor: bytes, microseconds, divergence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "compress/codec.h"
#include "compress/finite.h"
#include "compress/fit_impl.h"
#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"

/* A new type is a row here. */
static const struct candidate {
    dtype type;
    fit_family family;
} candidates[] = {
    /* clang-format off */
    {DTYPE_S2, FIT_QUICK}, {DTYPE_S3, FIT_QUICK}, {DTYPE_S4, FIT_QUICK}, {DTYPE_S5, FIT_QUICK},
    {DTYPE_S6, FIT_QUICK}, {DTYPE_S8, FIT_QUICK},
    {DTYPE_T2, FIT_LACE}, {DTYPE_T3, FIT_LACE}, {DTYPE_T4, FIT_LACE}, {DTYPE_T5, FIT_LACE},
    {DTYPE_Q2_K, FIT_GGUF}, {DTYPE_Q3_K, FIT_GGUF}, {DTYPE_Q4_K, FIT_GGUF},
    {DTYPE_Q5_K, FIT_GGUF}, {DTYPE_Q6_K, FIT_GGUF}, {DTYPE_Q8_0, FIT_GGUF},
    /* clang-format on */
};

/* Where rows are no whole blocks of these. */
static const dtype small_types[] = {DTYPE_Q4_0, DTYPE_Q5_0, DTYPE_Q8_0};

enum { N_CANDIDATES = sizeof candidates / sizeof *candidates, N_SAMPLED = 16 };
_Static_assert((int)N_CANDIDATES <= (int)ALLOCATE_CHOICES, "each tensor may choose from all");

static const double reference_bits = 3.5; /* near what divergence is measured with */

/* ---- Time ------------------------------------------------------------------------------------ */

/* What was timed. */
typedef struct timed {
    dtype type;
    int64_t n_rows, n_cols;
    double us;
} timed;

struct fit_times {
    timed list[1024];
    size_t n;
};

static lace_status encode_rows(dtype type, const float *x, int64_t n_values, uint8_t *out,
                               lace_error *err)
{
    const codec *c = codec_find(type);
    if (c)
        return codec_encode(c, x, NULL, n_values, out, err);
    pack_row(type, x, n_values, out);
    return LACE_OK;
}

/* One matrix of the tensor, from its first rows. */
static lace_status time_matrix(fit *f, const tensor *t, dtype type, int64_t n_rows, double *out,
                               lace_error *err)
{
    struct fit_times *known = f->times;
    int64_t n_cols = t->shape.dims[0];
    for (size_t i = 0; i < known->n; i++) {
        const timed *k = &known->list[i];
        if (k->type == type && k->n_rows == n_rows && k->n_cols == n_cols) {
            *out = k->us;
            return LACE_OK;
        }
    }
    int64_t n_values = n_cols * TIMED_ROWS;
    if (n_values > (int64_t)t->n_values)
        n_values = (int64_t)t->n_values / n_cols * n_cols;
    float *x = mem_calloc((size_t)n_cols * TIMED_ROWS, sizeof *x);
    uint8_t *blocks = mem_calloc(TIMED_ROWS, (size_t)row_bytes(type, n_cols));
    lace_status status = x && blocks ? LACE_OK : error_nomem(err, "rows of a tensor");
    if (status == LACE_OK) {
        unpack_row(t->type, t->data, n_values, x);
        status = encode_rows(type, x, n_cols * TIMED_ROWS, blocks, err);
    }
    /* As many bytes as the whole model would take in that type, up to where memory is memory. */
    double bits = 8.0 * (double)row_bytes(type, n_cols) / (double)n_cols;
    double room = (double)f->n_values * bits / 8;
    if (status == LACE_OK)
        status = device_time_product(
            f->w->m->device, f->w->workers,
            &(timed_rows){type, blocks, n_rows, n_cols, (uint64_t)(room < 256e6 ? room : 256e6)},
            out, err);
    mem_free_all(x, blocks);
    if (status == LACE_OK && known->n < sizeof known->list / sizeof *known->list)
        known->list[known->n++] = (timed){type, n_rows, n_cols, *out};
    return status;
}

/* Matrices of heads lie together too, but all of them are needed. */
static bool is_of_experts(const tensor *t)
{
    static const char part[] = "_exps.";
    const size_t n = sizeof part - 1;
    for (size_t i = 0; i + n <= t->name.size; i++)
        if (memcmp(t->name.data + i, part, n) == 0)
            return true;
    return false;
}

lace_status fit_time(fit *f, const tensor *t, dtype type, double *out, lace_error *err)
{
    const model *m = f->w->m;
    *out = 0;
    for (int32_t i = 0; i < m->n_matrices; i++) {
        double us;
        if (m->matrices[i].source != t)
            continue;
        TRY(time_matrix(f, t, type, m->matrices[i].target->n_rows, &us, err));
        *out += us;
    }
    if (is_of_experts(t) && m->config.n_experts > 0) /* of experts a token needs but a few */
        *out *= (double)m->config.n_experts_used / m->config.n_experts;
    return LACE_OK;
}

/* ---- Divergence ------------------------------------------------------------------------------ */

/* The squared error that a type leaves in some rows of the tensor. */
static lace_status error_of(const tensor *t, dtype type, double *out, lace_error *err)
{
    int64_t n = t->shape.dims[0], n_rows = (int64_t)t->n_values / n;
    int64_t n_sampled = n_rows < N_SAMPLED ? n_rows : N_SAMPLED;
    float *x = mem_alloc((size_t)n * sizeof *x), *y = mem_alloc((size_t)n * sizeof *y);
    uint8_t *blocks = mem_alloc((size_t)row_bytes(type, n));
    lace_status status = x && y && blocks ? LACE_OK : error_nomem(err, "rows of a tensor");
    *out = 0;
    for (int64_t i = 0; i < n_sampled && status == LACE_OK; i++) {
        int64_t row = i * n_rows / n_sampled;
        unpack_row(t->type, t->data + (uint64_t)row * row_bytes(t->type, n), n, x);
        status = encode_rows(type, x, n, blocks, err);
        if (status != LACE_OK)
            break;
        unpack_row(type, blocks, n, y);
        for (int64_t k = 0; k < n; k++)
            *out += (double)(x[k] - y[k]) * (x[k] - y[k]);
    }
    mem_free_all(x, y, blocks);
    return status;
}

static void add_choice(tensor_choices *t, dtype type)
{
    if (t->t->shape.dims[0] % dtype_describe(type)->block_values == 0 && codec_find(type))
        choices_add_type(t, type);
}

static void list_choices(const fit *f, tensor_choices *t)
{
    fit_family family = f->options.family;
    t->n = 0;
    for (size_t i = 0; i < N_CANDIDATES; i++)
        if (family == FIT_ALL || candidates[i].family == family ||
            (family == FIT_LACE && candidates[i].family == FIT_QUICK))
            add_choice(t, candidates[i].type);
    bool has_none = t->n == 0;
    for (size_t i = 0; has_none && i < sizeof small_types / sizeof *small_types; i++)
        add_choice(t, small_types[i]);
}

/* The type of about 3 bits that divergence is measured with. */
static int reference_of(const tensor_choices *t)
{
    int best = 0;
    for (int i = 1; i < t->n; i++) {
        double bits = 8.0 * (double)t->choices[i].n_bytes / (double)t->t->n_values;
        double best_bits = 8.0 * (double)t->choices[best].n_bytes / (double)t->t->n_values;
        if (fabs(bits - reference_bits) < fabs(best_bits - reference_bits))
            best = i;
    }
    return best;
}

static lace_status measure_tensor(fit *f, tensor_choices *t, lace_error *err)
{
    int reference = reference_of(t);
    double kld, most;
    TRY(trial_measure_alone(f->trial, t->t, t->choices[reference].type, &kld, err));
    TRY(error_of(t->t, t->choices[reference].type, &most, err));
    for (int i = 0; i < t->n; i++) {
        double left;
        TRY(fit_time(f, t->t, t->choices[i].type, &t->choices[i].us, err));
        TRY(error_of(t->t, t->choices[i].type, &left, err));
        t->choices[i].kld = most > 0 ? kld * left / most : 0;
    }
    return LACE_OK;
}

/* ---- The model ------------------------------------------------------------------------------- */

fit_options fit_options_default(void)
{
    return (fit_options){.n_context = 512, .n_windows = 4};
}

static lace_status add_tensor(fit *f, const tensor *t, lace_error *err)
{
    tensor_choices *next = &f->list.tensors[f->list.n];
    bool is_plain = t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16;
    if (!mix_is_matrix(t) || choices_find(&f->list, t))
        return LACE_OK;
    if (!is_plain)
        return error_set(err, LACE_E_ARG,
                         "tensor %.*s is %s already; fitting starts from f16, bf16 or f32",
                         text_width(t->name), t->name.data, dtype_describe(t->type)->name);
    next->t = t;
    list_choices(f, next);
    f->list.n += next->n > 0;
    return LACE_OK;
}

/* All matrices and the table of embeddings, each once. */
static lace_status list_tensors(fit *f, lace_error *err)
{
    const model *m = f->w->m;
    TRY(choices_init(&f->list, (size_t)m->n_matrices + 1, err));
    TRY(add_tensor(f, m->embedding, err));
    for (int32_t i = 0; i < m->n_matrices; i++)
        TRY(add_tensor(f, m->matrices[i].source, err));
    if (f->list.n == 0)
        return error_set(err, LACE_E_ARG, "no matrix of this model can be quantized");
    return LACE_OK;
}

const mix *fit_rest_mix(const fit *f)
{
    return mix_find(f->options.family == FIT_GGUF ? "q4_k_m" : "s4");
}

dtype fit_rest_type(const fit *f, const tensor *t)
{
    mix_context context = choices_context(f->w->m);
    return mix_type_of(fit_rest_mix(f), &context, t);
}

/* What the model has besides the list, and what it takes as it is. */
static lace_status survey_rest(fit *f, lace_error *err)
{
    const weights *files = f->w->m->files;
    choices_count_rest(&f->list, f->w->m, fit_rest_mix(f));
    for (size_t i = 0; i < weights_count(files); i++)
        f->n_values += weights_at(files, i)->n_values;
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        double us = 0;
        if (!choices_find(&f->list, t) && mix_is_matrix(t))
            TRY(fit_time(f, t, fit_rest_type(f, t), &us, err));
        f->list.rest_us += us;
    }
    for (size_t i = 0; i < f->list.n; i++) {
        double us;
        TRY(fit_time(f, f->list.tensors[i].t, f->list.tensors[i].t->type, &us, err));
        f->original_us += us;
    }
    f->original_us += f->list.rest_us;
    return LACE_OK;
}

static lace_status measure_all(fit *f, lace_error *err)
{
    for (size_t i = 0; i < f->list.n; i++) {
        char what[80];
        snprintf(what, sizeof what, "measuring tensor %zu of %zu", i + 1, f->list.n);
        TRY(fit_advance(f, what, (double)i / (double)f->list.n, err));
        TRY(measure_tensor(f, &f->list.tensors[i], err));
    }
    return LACE_OK;
}

static lace_status open_model(fit *f, const char *input, lace_error *err)
{
    weights *files;
    TRY(weights_open(input, &files, err));
    if (!weights_gguf(files)) {
        weights_close(files);
        return error_set(err, LACE_E_UNSUPPORTED,
                         "%s: fitting needs a GGUF file; lace convert makes one", input);
    }
    walk_options o = walk_options_default();
    o.n_context = f->options.n_context;
    o.n_threads = f->options.n_threads;
    o.use_int8 = true; /* of the plain types that are taken: fixed point */
    o.on_progress = f->options.on_progress;
    o.progress_user = f->options.progress_user;
    TRY(walk_open(files, &o, &f->w, err));
    TRY(finite_check(f->w->m->files, f->w->workers, err));
    TRY(walk_tokenize(f->w, f->options.text, f->options.n_text, &f->tokens, err));
    f->times = mem_calloc(1, sizeof *f->times);
    return f->times ? LACE_OK : error_nomem(err, "the times of kernels");
}

lace_status fit_create(const char *input, const fit_options *options, fit **out, lace_error *err)
{
    *out = NULL;
    fit *f = mem_calloc(1, sizeof *f);
    if (!f)
        return error_nomem(err, "a model");
    f->options = *options;
    lace_status status = open_model(f, input, err);
    if (status == LACE_OK)
        status = list_tensors(f, err);
    if (status == LACE_OK)
        status = survey_rest(f, err);
    if (status == LACE_OK)
        status = fit_advance(f, "reading the text", 0, err);
    if (status == LACE_OK)
        status = trial_create(f->w, f->tokens.data, f->tokens.size, f->options.n_windows, &f->trial,
                              err);
    if (status == LACE_OK)
        status = measure_all(f, err);
    return GIVE_OR_FREE(status, f, out, fit_free);
}

void fit_free(fit *f)
{
    if (!f)
        return;
    trial_free(f->trial);
    token_list_deinit(&f->tokens);
    if (f->w)
        walk_close(f->w);
    mem_free(f->times);
    choices_deinit(&f->list);
    mem_free(f);
}
