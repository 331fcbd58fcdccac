/* Calibrated quantizing: matrix after matrix, on the inputs that the quantized model makes. */
#include "compress/calibrate.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "compress/finite.h"
#include "compress/gptq.h"
#include "compress/imatrix_collect.h"
#include "compress/size_types.h"
#include "compress/trellis.h"
#include "compress/type_choice.h"
#include "tensor/codec/unpack.h"

#define DAMPING 0.01

enum { AT_ONCE = 2048 }; /* inputs that are multiplied together */

calibrate_options calibrate_options_default(void)
{
    return (calibrate_options){.n_context = 512};
}

typedef struct calibration {
    const calibrate_options *o;
    walk *w;
    large_math *math; /* NULL: the host's */
    token_list tokens;
    int32_t n_windows;
    quantize_made *made;
    int32_t output_step; /* of the plan */
    bool is_tied;        /* the output is the embedding, too: it is quantized first */
    /* For each side, the original and the quantized: what is alive before step `at`. */
    uint8_t *states[2];
    uint64_t state_bytes; /* room of one window and side */
    int32_t at;
    weight *students; /* [n_matrices] what the quantized model multiplies with */
    weight *teachers; /* [n_matrices] */
    const uint8_t *tables[2];
    dtype table_types[2];
    double done, whole; /* progress, in units of work */
} calibration;

/* `more` is what is being done and not yet in c->done. */
static lace_status advance(calibration *c, const char *what, double more, lace_error *err)
{
    if (c->o->on_progress &&
        !c->o->on_progress(c->o->progress_user, what, (c->done + more) / c->whole))
        return error_set(err, LACE_E_CANCELLED, "cancelled");
    return LACE_OK;
}

/* ---- Work ------------------------------------------------------------------------------------ */

/*
 * What the parts of the way cost, for the progress bar: in multiplications of large products, which
 * are what most of it consists of. Other work is given in as many as take the same time.
 */
#define FEEDBACK_WORK 900.0  /* for each value, but for the products */
#define TRELLIS_WORK  1.5e6  /* the same for trellis types */
#define ENCODE_WORK   600.0  /* for each value without feedback */
#define JUDGE_WORK    2000.0 /* for each logit whose divergence is measured */
#define DOUBLE_WORK   2.5    /* a multiplication of doubles */

/* Values of the matrices of a step. */
static double step_values(const calibration *c, int32_t index)
{
    walk_matrices x;
    double sum = 0;
    walk_matrices_view(c->w, index, &x);
    for (int i = 0; i < x.n; i++)
        sum += (double)x.weights[i]->n_rows * (double)x.width * (x.n_experts ? 2 : 1);
    return sum;
}

/* One window, one side, steps [from, to). */
static double walk_work(const calibration *c, int32_t from, int32_t to)
{
    double n = c->w->n_context, sum = 0;
    for (int32_t i = from; (i = walk_next_matrix(c->w, i)) < to; i++)
        sum += step_values(c, i) * n * (walk_uses_int8(c->w) ? 0.6 : 1);
    return sum;
}

/* One window at a step: the walk to it, and the sums of products of its inputs. */
static double window_work(const calibration *c, int32_t from, int32_t to)
{
    double n = (double)c->w->p->steps[to].in[0].width;
    return 2 * walk_work(c, from, to) + 1.5 * c->w->n_context * n * n;
}

static double quantize_work(const calibration *c, int32_t index)
{
    double n = (double)c->w->p->steps[index].in[0].width, values = step_values(c, index);
    double each = trellis_bits_of(c->o->mix->type) ? TRELLIS_WORK : FEEDBACK_WORK;
    return DOUBLE_WORK * n * n * n / 3 + values * (3 * n + each);
}

/* ---- Two models in one ----------------------------------------------------------------------- */

enum { TEACHER, STUDENT };

/* Give the walk the weights of a side: it computes with them until the next call. */
static void use_weights_of(calibration *c, int side)
{
    model *m = c->w->m;
    for (int32_t i = 0; i < m->n_matrices; i++) {
        weight *from = side == STUDENT && c->students[i].impl ? c->students : c->teachers;
        *m->matrices[i].target = from[i];
    }
    m->table.data = c->tables[side];
    m->table.type = c->table_types[side];
}

static lace_status check_plain(const tensor *t, lace_error *err)
{
    if (t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16)
        return LACE_OK;
    return error_set(err, LACE_E_UNSUPPORTED,
                     "tensor %.*s is %s: calibration needs the original model (f16, bf16 or f32)",
                     text_width(t->name), t->name.data, dtype_describe(t->type)->name);
}

static lace_status find_steps(calibration *c, lace_error *err)
{
    walk *w = c->w;
    c->output_step = -1;
    for (int32_t i = 0; i < walk_end(w); i++)
        if (walk_next_matrix(w, i) == i && w->p->steps[i].layer < 0)
            c->output_step = i;
    if (c->output_step < 0)
        return error_set(err, LACE_E_UNSUPPORTED, "the model has no output matrix");
    for (int32_t i = 0; i < w->m->n_matrices; i++)
        TRY(check_plain(w->m->matrices[i].source, err));
    walk_matrices x;
    walk_matrices_view(w, c->output_step, &x);
    c->is_tied = w->m->embedding == x.sources[0]->source;
    return LACE_OK;
}

/* ---- Quantized tensors ----------------------------------------------------------------------- */

static struct quantize_made_tensor *find_made(const calibration *c, text name)
{
    return (struct quantize_made_tensor *)quantize_made_find(c->made, name);
}

typedef struct reading {
    dtype type;
    const uint8_t *blocks;
    int64_t n_rows, n_cols;
    float *out;
    handout pieces;
} reading;

static void read_pieces(void *arg, int me, int n_workers)
{
    reading *r = arg;
    uint64_t stride = row_bytes(r->type, r->n_cols);
    uint32_t row;
    while (handout_claim(&r->pieces, (uint32_t)r->n_rows, &row))
        unpack_row(r->type, r->blocks + row * stride, r->n_cols, r->out + row * r->n_cols);
}

/* The rows of a matrix as floats; to be freed. NULL: no memory. */
static float *read_rows(const calibration *c, dtype type, const uint8_t *blocks, int64_t n_rows,
                        int64_t n_cols)
{
    reading r = {.type = type, .blocks = blocks, .n_rows = n_rows, .n_cols = n_cols};
    r.out = mem_alloc((size_t)(n_rows * n_cols) * sizeof *r.out);
    if (r.out)
        pool_run(c->w->workers, read_pieces, &r);
    return r.out;
}

/* Where the blocks of a matrix are in the tensor that it is rows of. */
static uint8_t *made_blocks(const calibration *c, int32_t index,
                            const struct quantize_made_tensor *t)
{
    const model_matrix *mm = &c->w->m->matrices[index];
    const weight *old = &c->teachers[index];
    uint64_t skipped =
        (uint64_t)(mm->rows.blocks - mm->source->data) / row_bytes(old->type, old->n_cols);
    return t->blocks + skipped * row_bytes(t->type, old->n_cols);
}

/* Decode a matrix and let the student multiply with it. */
static lace_status use_quantized(calibration *c, int32_t index, lace_error *err)
{
    const struct quantize_made_tensor *t = find_made(c, c->w->m->matrices[index].source->name);
    const weight *old = &c->teachers[index];
    float *rows = read_rows(c, t->type, made_blocks(c, index, t), old->n_rows, old->n_cols);
    lace_status status = rows ? walk_weight_make(c->w, rows, old->n_rows, old->n_cols, old->type,
                                                 &c->students[index], err)
                              : error_nomem(err, "a matrix");
    mem_free(rows);
    return status;
}

/* Quantize one matrix, rows of a tensor, for the inputs that `s` has seen. */
static lace_status quantize_matrix(calibration *c, int32_t index, const hessian *s,
                                   hessian_factor factors[2], lace_error *err)
{
    const model_matrix *mm = &c->w->m->matrices[index];
    struct quantize_made_tensor *t = find_made(c, mm->source->name);
    const codec *how = t ? codec_find(t->type) : NULL;
    const weight *old = &c->teachers[index];
    int64_t n = old->n_cols;
    if (!how || n % how->n_values != 0)
        return LACE_OK;
    bool is_rotated = how->is_rotated;
    hessian_factor *f = &factors[is_rotated];
    if (!f->h)
        TRY(hessian_factorize(s, is_rotated, DAMPING, f, c->w->workers, err));
    float *rows = read_rows(c, old->type, mm->rows.blocks, old->n_rows, n);
    if (!rows)
        return error_nomem(err, "a matrix");
    lace_status status = LACE_OK;
    if (s->c)
        status = hessian_correct(s, f, rows, old->n_rows, c->w->workers, err);
    if (status == LACE_OK)
        status =
            gptq_quantize(how, f, rows, old->n_rows, made_blocks(c, index, t), c->w->workers, err);
    mem_free(rows);
    return status;
}

static int32_t index_of(const calibration *c, const model_matrix *mm)
{
    return (int32_t)(mm - c->w->m->matrices);
}

/* All matrices of a step; the student has them from now on. */
static lace_status quantize_step(calibration *c, int32_t step_index, const hessian *s,
                                 lace_error *err)
{
    walk_matrices x;
    hessian_factor factors[2] = {0};
    lace_status status = LACE_OK;
    walk_matrices_view(c->w, step_index, &x);
    double work = quantize_work(c, step_index), values = step_values(c, step_index), done = 0;
    for (int i = 0; i < x.n && status == LACE_OK && !x.n_experts; i++) {
        int32_t index = index_of(c, x.sources[i]);
        status = advance(c, "calibrating", work * done / values, err);
        done += (double)x.weights[i]->n_rows * (double)x.width;
        if (status == LACE_OK)
            status = quantize_matrix(c, index, s, factors, err);
        if (status == LACE_OK && find_made(c, x.sources[i]->source->name))
            status = use_quantized(c, index, err);
    }
    hessian_factor_deinit(&factors[0]);
    hessian_factor_deinit(&factors[1]);
    c->done += work;
    return status;
}

/* ---- The walk -------------------------------------------------------------------------------- */

static const lace_token *window(const calibration *c, int64_t i, int64_t n)
{
    return walk_spread_window(c->w, c->tokens.data, c->tokens.size, i, n);
}

static int32_t output_windows(const calibration *c)
{
    return c->n_windows < 64 ? c->n_windows : 64;
}

/* An output that is the embedding: inputs of the original's output, over some of the windows. */
static lace_status quantize_output(calibration *c, lace_error *err)
{
    walk_matrices x;
    hessian s;
    int32_t n = output_windows(c);
    walk_matrices_view(c->w, c->output_step, &x);
    TRY(hessian_init(&s, x.width, AT_ONCE, false, c->w->workers, err));
    hessian_use(&s, c->math);
    lace_status status = LACE_OK;
    for (int32_t i = 0; i < n && status == LACE_OK; i++) {
        status = advance(c, "reading", 0, err);
        if (status == LACE_OK)
            status = walk_begin(c->w, window(c, i, n), err);
        if (status != LACE_OK)
            break;
        walk_run(c->w, 0, c->output_step);
        hessian_add(&s, (const float *)x.s->in[0].data, NULL, (int64_t)(x.s->in[0].stride / 4),
                    x.n_rows, c->w->workers);
        c->done += walk_work(c, 0, c->output_step);
    }
    hessian_finish(&s, c->w->workers);
    if (status == LACE_OK)
        status = quantize_step(c, c->output_step, &s, err);
    hessian_deinit(&s);
    const struct quantize_made_tensor *table = find_made(c, c->w->m->embedding->name);
    if (status == LACE_OK && table) {
        c->tables[STUDENT] = table->blocks;
        c->table_types[STUDENT] = table->type;
    }
    return status;
}

/* Take both sides of a window from where they are to a step; their inputs of it are added to s. */
static lace_status walk_window(calibration *c, int32_t i, int32_t to, float *kept, hessian *s,
                               lace_error *err)
{
    walk_matrices x;
    for (int side = TEACHER; side <= STUDENT; side++) {
        uint8_t *state = c->states[side] + (uint64_t)i * c->state_bytes;
        TRY(walk_begin(c->w, window(c, i, c->n_windows), err)); /* recurrent layers start anew */
        use_weights_of(c, side);
        if (c->at > 0)
            walk_restore(c->w, c->at, state);
        walk_run(c->w, c->at, to);
        walk_save(c->w, to, state);
        walk_matrices_view(c->w, to, &x);
        if (side == TEACHER)
            memcpy(kept, x.s->in[0].data, (size_t)x.n_rows * x.s->in[0].stride);
    }
    hessian_add(s, (const float *)x.s->in[0].data, kept, (int64_t)(x.s->in[0].stride / 4), x.n_rows,
                c->w->workers);
    c->done += window_work(c, c->at, to);
    return LACE_OK;
}

/* All windows up to the next matrix step; then its matrices are quantized. */
static lace_status walk_to(calibration *c, int32_t to, lace_error *err)
{
    walk_matrices x;
    hessian s;
    walk_matrices_view(c->w, to, &x);
    float *kept = mem_alloc((size_t)x.n_rows * x.s->in[0].stride);
    lace_status status = hessian_init(&s, x.width, AT_ONCE, true, c->w->workers, err);
    if (status == LACE_OK && !kept)
        status = error_nomem(err, "the inputs of a window");
    if (status == LACE_OK)
        hessian_use(&s, c->math);
    for (int32_t i = 0; i < c->n_windows && status == LACE_OK; i++) {
        status = advance(c, "calibrating", 0, err);
        if (status == LACE_OK)
            status = walk_window(c, i, to, kept, &s, err);
    }
    use_weights_of(c, TEACHER);
    if (status == LACE_OK && !x.n_experts) {
        hessian_finish(&s, c->w->workers);
        status = quantize_step(c, to, &s, err);
    }
    c->at = to;
    mem_free(kept);
    hessian_deinit(&s);
    return status;
}

/* What an earlier layer multiplied with is not needed again. */
static void drop_before(calibration *c, int32_t layer)
{
    for (int32_t i = 0; i < c->output_step; i++) {
        walk_matrices x;
        if (walk_next_matrix(c->w, i) != i || c->w->p->steps[i].layer >= layer)
            continue;
        walk_matrices_view(c->w, i, &x);
        for (int k = 0; k < x.n; k++)
            walk_weight_free(c->w, &c->students[index_of(c, x.sources[k])]);
    }
}

/* The step behind the last whose matrices are quantized on the way. */
static int32_t way_end(const calibration *c)
{
    return c->is_tied ? c->output_step : c->output_step + 1;
}

static lace_status take_states(calibration *c, lace_error *err)
{
    for (int32_t i = 0; (i = walk_next_matrix(c->w, i)) < way_end(c); i++) {
        uint64_t n = walk_state_bytes(c->w, i);
        c->state_bytes = n > c->state_bytes ? n : c->state_bytes;
    }
    for (int side = 0; side < 2; side++) {
        c->states[side] = mem_map(c->state_bytes * (uint64_t)c->n_windows);
        if (!c->states[side])
            return error_nomem(err, "the states of windows");
    }
    return LACE_OK;
}

static lace_status quantize_layers(calibration *c, lace_error *err)
{
    TRY(take_states(c, err));
    for (int32_t i = 0; (i = walk_next_matrix(c->w, i)) < way_end(c); i++) {
        TRY(walk_to(c, i, err));
        if (i < c->output_step)
            drop_before(c, c->w->p->steps[i].layer);
    }
    return LACE_OK;
}

/* ---- Types ----------------------------------------------------------------------------------- */

/* The tensors to make: all matrices but experts, each once. */
static lace_status list_tensors(calibration *c, lace_error *err)
{
    const model *m = c->w->m;
    c->made = quantize_made_create((size_t)m->n_matrices);
    if (!c->made)
        return error_nomem(err, "the list of tensors");
    mix_context context = choices_context(m);
    for (int32_t i = 0; i < m->n_matrices; i++) {
        const tensor *t = m->matrices[i].source;
        if (t->shape.n_dims > 2 || !mix_is_matrix(t) || find_made(c, t->name))
            continue;
        const struct quantize_made_tensor *chosen = quantize_made_find(c->o->types, t->name);
        dtype type = chosen ? chosen->type : mix_type_of(c->o->mix, &context, t);
        if (codec_find(type))
            quantize_made_add(c->made, t, type);
    }
    return LACE_OK;
}

static lace_status take_memory(calibration *c, lace_error *err)
{
    for (size_t i = 0; i < c->made->n; i++) {
        struct quantize_made_tensor *t = &c->made->tensors[i];
        const tensor *from = weights_find(c->w->m->files, t->name);
        t->blocks = mem_calloc(1, (size_t)row_bytes(t->type, (int64_t)from->n_values));
        if (!t->blocks)
            return error_nomem(err, "the quantized tensors");
    }
    return LACE_OK;
}

/* Every tensor is rounded, and half of the model, on average, computed anew. */
static double sensitivity_work(const calibration *c)
{
    double n_logits = SIZE_TYPES_WINDOWS * (double)c->w->n_context * c->w->m->config.n_vocab;
    double sum = 0, walked = SIZE_TYPES_WINDOWS * walk_work(c, 0, walk_end(c->w));
    for (size_t i = 0; i < c->made->n; i++) {
        const tensor *t = weights_find(c->w->m->files, c->made->tensors[i].name);
        sum += 0.5 * walked + JUDGE_WORK * n_logits + ENCODE_WORK * (double)t->n_values;
    }
    return sum;
}

static double whole_work(const calibration *c)
{
    double sum = c->o->size ? sensitivity_work(c) : 0;
    int32_t at = 0;
    if (c->is_tied)
        sum +=
            output_windows(c) * walk_work(c, 0, c->output_step) + quantize_work(c, c->output_step);
    for (int32_t i = 0; (i = walk_next_matrix(c->w, i)) < way_end(c); at = i++)
        sum += c->n_windows * window_work(c, at, i) + quantize_work(c, i);
    return sum;
}

static bool report_sensitivity(void *user, double done)
{
    calibration *c = user;
    return advance(c, "measuring", sensitivity_work(c) * done, NULL) == LACE_OK;
}

/* Types by what they cost, for a file of o->size bytes. */
static lace_status choose_types(calibration *c, lace_error *err)
{
    TRY(size_types_choose(c->w, c->tokens.data, c->tokens.size, c->o->mix, c->o->size, c->made,
                          report_sensitivity, c, err));
    c->done += sensitivity_work(c);
    return LACE_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/*
 * Small models gain from more text (of tales-26m in S4, 64 windows leave 0.0104 and 256 0.0101),
 * and large ones take too long: 32 windows are three times the widest input of 1.1 billion
 * parameters.
 */
static int32_t default_windows(const model *m)
{
    enum { MOST = 128, LEAST = 32, SMALL = 256 << 20 };
    uint64_t n_values = 0;
    for (int32_t i = 0; i < m->n_matrices; i++)
        n_values +=
            (uint64_t)m->matrices[i].target->n_rows * (uint64_t)m->matrices[i].target->n_cols;
    if (n_values <= SMALL)
        return MOST;
    uint64_t n = (uint64_t)MOST * SMALL / n_values;
    return n > LEAST ? (int32_t)n : LEAST;
}

static lace_status prepare(calibration *c, lace_error *err)
{
    model *m = c->w->m;
    TRY(find_steps(c, err));
    TRY(finite_check(m->files, c->w->workers, err));
    TRY(walk_tokenize(c->w, c->o->text, c->o->n_bytes, &c->tokens, err));
    int64_t n_all = (int64_t)c->tokens.size / c->w->n_context;
    int32_t wanted = c->o->n_windows ? c->o->n_windows : default_windows(m);
    c->n_windows = wanted < n_all ? wanted : (int32_t)n_all;
    c->students = mem_calloc((size_t)m->n_matrices, sizeof *c->students);
    c->teachers = mem_calloc((size_t)m->n_matrices, sizeof *c->teachers);
    if (!c->students || !c->teachers)
        return error_nomem(err, "the list of matrices");
    for (int32_t i = 0; i < m->n_matrices; i++)
        c->teachers[i] = *m->matrices[i].target;
    for (int side = 0; side < 2; side++) {
        c->tables[side] = m->embedding->data;
        c->table_types[side] = m->embedding->type;
    }
    TRY(list_tensors(c, err));
    c->whole = whole_work(c);
    if (c->o->size)
        TRY(choose_types(c, err));
    return take_memory(c, err);
}

lace_status calibrate_model(const char *input, const calibrate_options *options,
                            quantize_made **out, lace_error *err)
{
    calibration c = {.o = options};
    weights *files;
    *out = NULL;
    TRY(weights_open(input, &files, err));
    if (!weights_gguf(files)) {
        weights_close(files);
        return error_set(err, LACE_E_UNSUPPORTED,
                         "%s: calibration needs a GGUF file; lace convert makes one", input);
    }
    walk_options o = walk_options_default();
    o.n_context = options->n_context;
    o.n_threads = options->n_threads;
    o.use_int8 = true; /* of the plain types that are taken: fixed point */
    TRY(walk_open(files, &o, &c.w, err));
    lace_status status = large_math_open(options->device, &c.math, err);
    if (status == LACE_OK)
        status = prepare(&c, err);
    if (status == LACE_OK && c.is_tied)
        status = quantize_output(&c, err);
    if (status == LACE_OK)
        status = quantize_layers(&c, err);
    for (int32_t i = 0; c.students && i < c.w->m->n_matrices; i++)
        walk_weight_free(c.w, &c.students[i]);
    for (int side = 0; side < 2; side++)
        mem_unmap(c.states[side], c.state_bytes * (uint64_t)c.n_windows);
    mem_free_all(c.students, c.teachers);
    token_list_deinit(&c.tokens);
    large_math_close(c.math);
    walk_close(c.w);
    if (status == LACE_OK)
        *out = c.made;
    else
        quantize_made_free(c.made);
    return status;
}
