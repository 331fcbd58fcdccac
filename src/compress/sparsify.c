/* Thresholds for activation sparsity, from a text. */
#include "compress/sparsify.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "compress/imatrix_collect.h"
#include "compress/trial.h"

enum { TRIAL_WINDOWS = 4, SHIFT = 15 };
#define MOST_SHARE 0.95 /* of one input */

/* ---- Sizes ----------------------------------------------------------------------------------- */

static uint32_t size_bin(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bits & 0x7fffffff) >> SHIFT;
}

/* Where a bin begins. */
static float bin_begin(uint32_t bin)
{
    uint32_t bits = bin << SHIFT;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

void sizes_add(sizes *s, float x)
{
    s->counts[size_bin(x)]++;
    s->n++;
}

float sizes_threshold(const sizes *s, double share)
{
    double most = share * (double)s->n, sum = 0;
    uint32_t bin = 0;
    while (bin + 1 < SIZES && sum + s->counts[bin] <= most)
        sum += s->counts[bin++];
    float x = bin_begin(bin);
    return isfinite(x) ? x : 0;
}

double sizes_share(const sizes *s, float threshold)
{
    uint64_t sum = 0;
    for (uint32_t bin = 0; bin < size_bin(threshold); bin++)
        sum += s->counts[bin];
    return s->n ? (double)sum / (double)s->n : 0;
}

double sizes_energy(const sizes *s, float threshold)
{
    double sum = 0;
    for (uint32_t bin = 0; bin < size_bin(threshold); bin++) {
        double middle = 0.5 * ((double)bin_begin(bin) + (double)bin_begin(bin + 1));
        sum += s->counts[bin] * middle * middle;
    }
    return s->n ? sum / (double)s->n : 0;
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* One input of a layer. */
typedef struct input {
    int32_t layer;
    sparsity_input kind;
    int64_t n_rows, n_cols; /* of the matrices that read it, one below the other */
    sizes *counted;
    double cost;  /* divergence for each unit of mean energy lost */
    double share; /* of it that is to go */
    uint64_t n_zeros, n_seen;
} input;

typedef struct work {
    walk *w;
    const sparsify_options *o;
    input *inputs;
    size_t n;
    double n_weights;
} work;

static input *find_input(const work *k, const weight *w)
{
    for (size_t i = 0; i < k->n; i++)
        if (w->sparsity == sparsity_of(k->w->m, k->inputs[i].layer, k->inputs[i].kind))
            return &k->inputs[i];
    return NULL;
}

static void work_deinit(work *k)
{
    for (size_t i = 0; i < k->n; i++)
        mem_free(k->inputs[i].counted);
    mem_free(k->inputs);
}

static lace_status work_init(work *k, walk *w, const sparsify_options *o, lace_error *err)
{
    model *m = w->m;
    *k = (work){.w = w, .o = o};
    k->inputs = mem_calloc((size_t)m->config.n_layers * SPARSITY_INPUTS, sizeof *k->inputs);
    if (!k->inputs)
        return error_nomem(err, "inputs");
    for (int32_t layer = 0; layer < m->config.n_layers; layer++)
        for (int kind = 0; kind < SPARSITY_INPUTS; kind++) {
            weight *list[SPARSITY_MAX_WEIGHTS];
            int n = sparsity_weights(m, layer, kind, list);
            if (n == 0)
                continue;
            input *in = &k->inputs[k->n++];
            *in = (input){.layer = layer, .kind = (sparsity_input)kind, .n_cols = list[0]->n_cols};
            for (int i = 0; i < n; i++)
                in->n_rows += list[i]->n_rows;
            k->n_weights += (double)in->n_rows * (double)in->n_cols;
        }
    if (k->n == 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the model has no matrices for which activation sparsity has kernels");
    return LACE_OK;
}

static bool report(const work *k, const char *what, double done)
{
    return !k->o || !k->o->on_progress || k->o->on_progress(k->o->progress_user, what, done);
}

/*
 * What a matrix step reads, as floats: where they were quantized just before, what that was made
 * of, which is still there. *drops is the step that drops them.
 */
static operand floats_of(const walk *w, int32_t s, int32_t *drops)
{
    const step *steps = w->p->steps;
    operand in = steps[s].in[0];
    int32_t i = s - 1;
    for (; i > 0 && !(in.format == ACT_F32 && steps[i].sparsity); i--)
        if (in.format != ACT_F32 && steps[i].out[0].value == in.value)
            in = steps[i].in[0];
    *drops = i;
    return in;
}

static void set_threshold(const work *k, const input *in, float threshold)
{
    sparsity_of(k->w->m, in->layer, in->kind)->threshold = threshold;
}

/*
 * Walk over windows and show every row of every input to `see`. drops: inputs are shown as they are
 * with what stands before them dropped, each by its share, and are dropped themselves then.
 */
static lace_status visit(work *k, const lace_token *tokens, size_t n_tokens, int64_t n_windows,
                         void (*see)(input *in, const float *x, int64_t n), bool drops,
                         lace_error *err)
{
    walk *w = k->w;
    int64_t n_all = (int64_t)n_tokens / w->n_context;
    int64_t n = n_windows > 0 && n_windows < n_all ? n_windows : n_all;
    for (int64_t i = 0; i < n; i++) {
        if (!report(k, "reading", (double)i / (double)n))
            return error_set(err, LACE_E_CANCELLED, "cancelled");
        TRY(walk_begin(w, walk_spread_window(w, tokens, n_tokens, i, n), err));
        for (size_t j = 0; j < k->n && drops; j++)
            set_threshold(k, &k->inputs[j], 0);
        int32_t at = 0, dropping_step;
        for (int32_t s; (s = walk_next_matrix(w, at)) < walk_end(w); at = s + 1) {
            walk_matrices x;
            walk_run(w, at, s);
            walk_matrices_view(w, s, &x);
            input *in = find_input(k, x.weights[0]);
            operand floats = floats_of(w, s, &dropping_step);
            for (int64_t r = 0; r < x.n_rows && in; r++)
                see(in, operand_row(&floats, r), x.width);
            if (in && drops) {
                set_threshold(k, in, sizes_threshold(in->counted, in->share));
                walk_run(w, dropping_step, s);
            }
            if (s + 1 < walk_end(w))
                walk_run(w, s, s + 1);
        }
    }
    return LACE_OK;
}

static void count_sizes(input *in, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sizes_add(in->counted, x[i]);
}

static void count_zeros(input *in, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        in->n_zeros += x[i] == 0;
    in->n_seen += (uint64_t)n;
}

/* ---- Thresholds ------------------------------------------------------------------------------ */

/* What every input alone costs at the share asked for. */
static lace_status measure_costs(work *k, trial *t, lace_error *err)
{
    for (size_t i = 0; i < k->n; i++) {
        input *in = &k->inputs[i];
        float threshold = sizes_threshold(in->counted, k->o->sparsity);
        double kld, energy = sizes_energy(in->counted, threshold);
        if (!report(k, "measuring", (double)i / (double)k->n))
            return error_set(err, LACE_E_CANCELLED, "cancelled");
        set_threshold(k, in, threshold);
        trial_begin_at(t, in->layer);
        lace_status status = trial_measure(t, &kld, err);
        set_threshold(k, in, 0);
        TRY(status);
        /* What is lost in the noise of rounding costs little, but not nothing. */
        in->cost = energy > 0 ? fmax(kld, 1e-7) / energy : 0;
    }
    return LACE_OK;
}

/* The threshold of an input where the next activation costs `price` for each weight it saves. */
static float threshold_at(const input *in, double price)
{
    float most = sizes_threshold(in->counted, MOST_SHARE);
    /* A mean over n_cols values: each counts for 1 / n_cols. */
    double t2 = in->cost > 0 ? price * (double)in->n_rows * (double)in->n_cols / in->cost : 0;
    double t = sqrt(t2);
    return t < (double)most ? bin_begin(size_bin((float)t)) : most;
}

static double share_at(const work *k, double price)
{
    double sum = 0;
    for (size_t i = 0; i < k->n; i++) {
        const input *in = &k->inputs[i];
        sum += (double)in->n_rows * (double)in->n_cols *
               sizes_share(in->counted, threshold_at(in, price));
    }
    return sum / k->n_weights;
}

/* The price at which the share asked for is saved, by halving its range. */
static double find_price(const work *k)
{
    double low = -120, high = 60; /* log2 */
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (share_at(k, exp2(middle)) < k->o->sparsity)
            low = middle;
        else
            high = middle;
    }
    return exp2(high);
}

static void set_all(const work *k, bool is_uniform, double price)
{
    for (size_t i = 0; i < k->n; i++) {
        input *in = &k->inputs[i];
        float t =
            is_uniform ? sizes_threshold(in->counted, k->o->sparsity) : threshold_at(in, price);
        set_threshold(k, in, t);
        in->share = is_uniform ? k->o->sparsity : sizes_share(in->counted, t);
    }
}

/*
 * Thresholds for the shares that were chosen, when everything before is dropped too: what it leaves
 * is smaller than it was.
 */
static lace_status settle(work *k, const lace_token *tokens, size_t n_tokens, lace_error *err)
{
    for (size_t i = 0; i < k->n; i++)
        memset(k->inputs[i].counted, 0, sizeof *k->inputs[i].counted);
    return visit(k, tokens, n_tokens, k->o->n_windows, count_sizes, true, err);
}

static lace_status choose(work *k, const lace_token *tokens, size_t n_tokens, sparsify_result *out,
                          lace_error *err)
{
    trial *t;
    out->is_uniform = k->o->is_uniform;
    out->kld = out->kld_uniform = -1;
    if (k->o->is_uniform) {
        set_all(k, true, 0);
        return LACE_OK;
    }
    TRY(trial_create(k->w, tokens, n_tokens, TRIAL_WINDOWS, &t, err));
    lace_status status = measure_costs(k, t, err);
    double price = status == LACE_OK ? find_price(k) : 0;
    trial_begin_at(t, 0);
    for (int i = 0; i < 2 && status == LACE_OK; i++) {
        set_all(k, i == 0, price);
        status = trial_measure(t, i == 0 ? &out->kld_uniform : &out->kld, err);
    }
    trial_free(t);
    if (status == LACE_OK && out->kld > out->kld_uniform) {
        set_all(k, true, 0);
        out->is_uniform = true;
        out->kld = out->kld_uniform;
    }
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* by_zeros: from what was seen, else from the sizes counted. */
static void summarize(const work *k, bool by_zeros, sparsify_result *out)
{
    double saved[SPARSITY_INPUTS] = {0}, all = 0;
    for (int kind = 0; kind < SPARSITY_INPUTS; kind++)
        out->rows[kind] = (sparsify_row){.least = 1};
    for (size_t i = 0; i < k->n; i++) {
        const input *in = &k->inputs[i];
        sparsify_row *row = &out->rows[in->kind];
        float threshold = sparsity_of(k->w->m, in->layer, in->kind)->threshold;
        double share = by_zeros ? (in->n_seen ? (double)in->n_zeros / (double)in->n_seen : 0)
                                : sizes_share(in->counted, threshold);
        double n = (double)in->n_rows * (double)in->n_cols;
        row->n_weights += (uint64_t)(in->n_rows * in->n_cols);
        row->least = share < row->least ? share : row->least;
        row->most = share > row->most ? share : row->most;
        saved[in->kind] += share * n;
        all += share * n;
    }
    for (int kind = 0; kind < SPARSITY_INPUTS; kind++) {
        sparsify_row *row = &out->rows[kind];
        row->mean = row->n_weights ? saved[kind] / (double)row->n_weights : 0;
        row->least = row->n_weights ? row->least : 0;
    }
    out->sparsity = all / k->n_weights;
}

lace_status sparsify(walk *w, const lace_token *tokens, size_t n_tokens, const sparsify_options *o,
                     sparsify_result *out, lace_error *err)
{
    work k;
    *out = (sparsify_result){0};
    lace_status status = work_init(&k, w, o, err);
    for (size_t i = 0; i < k.n && status == LACE_OK; i++)
        if (!(k.inputs[i].counted = mem_calloc(1, sizeof *k.inputs[i].counted)))
            status = error_nomem(err, "sizes of activations");
    if (status == LACE_OK && !o->is_uniform)
        status = visit(&k, tokens, n_tokens, o->n_windows, count_sizes, false, err);
    if (status == LACE_OK)
        status = choose(&k, tokens, n_tokens, out, err);
    if (status == LACE_OK)
        status = settle(&k, tokens, n_tokens, err);
    if (status == LACE_OK)
        summarize(&k, false, out);
    work_deinit(&k);
    return status;
}

lace_status sparsify_count(walk *w, const lace_token *tokens, size_t n_tokens, int32_t n_windows,
                           sparsify_result *out, lace_error *err)
{
    work k;
    lace_status status = work_init(&k, w, NULL, err);
    if (status == LACE_OK)
        status = visit(&k, tokens, n_tokens, n_windows, count_zeros, false, err);
    if (status == LACE_OK)
        summarize(&k, true, out);
    work_deinit(&k);
    return status;
}
