/*
 * Products with matrices in tiles: rows of x are brought into the form that the product's shader
 * reads, then multiplied.
 */
#include "backend/vulkan/record_products.h"
#include "base/numbers.h"

enum {
    ROWS = 32,        /* of a matrix that a workgroup has */
    MOST_SHARES = 28, /* threads of a row: with 28 of them the longest rows are quickest */
    MOST_TOKENS = 8,  /* of a launch's workgroup, */
    CPU_TOKENS = 2,   /* and where a processor stands in for a GPU, whose compiler is slow */
    FORM_THREADS = 256
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_values(const weight *w)
{
    return w->type == DTYPE_F32 || w->type == DTYPE_F16 || w->type == DTYPE_BF16;
}

/* ---- Forms ----------------------------------------------------------------------------------- */

uint64_t record_form_row_bytes(row_form form, int64_t n_cols)
{
    uint64_t padded = (uint64_t)tiles_across(n_cols) * TILE_COLS;
    return form == FORM_PLANES   ? padded * 2 + padded / 32 * 16
           : form == FORM_HALVES ? padded * 2 + PIECE_BYTES
                                 : padded * 4;
}

row_form record_form_of(const recorder *r, const weight *w, int64_t n_rows)
{
    const vulkan_info *info = vulkan_features(r->v);
    if (record_is_many(n_rows))
        return info->has_matrices && w->type != DTYPE_F32 ? FORM_HALVES : FORM_FLOATS;
    return !is_values(w) && info->has_dot4 ? FORM_PLANES : FORM_FLOATS;
}

/* Sums of squares of a row that is yet to be normed. */
static int64_t squares_of(int64_t n_cols)
{
    return divide_up(n_cols, ROWS);
}

/* Rows that were brought into this form and have not changed since; NULL: there are none. */
static const formed_rows *find_formed(const recorder *r, const operand *x, int64_t n,
                                      int64_t n_cols, row_form form)
{
    for (int i = 0; i < RECORD_FORMED; i++) {
        const formed_rows *f = &r->formed[i];
        if (n > 0 && f->n_rows == n && f->source == address_of(x->data) && f->n_cols == n_cols &&
            f->form == form && f->n_heads == 1)
            return f;
    }
    return NULL;
}

formed_rows *record_new_formed(recorder *r, const operand *x, int64_t n, int64_t n_cols,
                               row_form form)
{
    int place = r->newest_formed = (r->newest_formed + 1) % RECORD_FORMED;
    r->formed[place] = (formed_rows){.source = address_of(x->data),
                                     .source_bytes = (uint64_t)n * x->stride,
                                     .at = r->forms + (uint64_t)place * r->form_bytes,
                                     .n_rows = n,
                                     .n_cols = n_cols,
                                     .n_heads = 1,
                                     .form = form};
    return &r->formed[place];
}

/* A single row has the whole device for itself. */
static uint32_t form_threads(const recorder *r, const formed_rows *f)
{
    const vulkan_info *info = vulkan_features(r->v);
    int64_t most = record_is_many(f->n_rows) || info->is_cpu ? FORM_THREADS : 4 * FORM_THREADS;
    return (uint32_t)smaller(most, info->max_threads);
}

lace_status record_form(recorder *r, const formed_rows *f, const struct form_args *p,
                        lace_error *err)
{
    record_writes_at(
        r, f->at, (uint64_t)(f->n_rows * f->n_heads) * record_form_row_bytes(f->form, f->n_cols));
    record_launch l = {SHADER_form, {f->form, form_threads(r, f)}, {f->n_rows * f->n_heads, 1, 1}};
    return record_start(r, &l, p, sizeof *p, err);
}

/* The rows of x in a form: as they are, formed before, or formed now. */
static lace_status form_rows(recorder *r, const product *d, row_form form, struct product_args *to,
                             lace_error *err)
{
    const operand *x = d->x;
    int64_t n_cols = d->w->n_cols;
    to->x_stride = (uint32_t)(record_form_row_bytes(form, n_cols) / PIECE_BYTES);
    const formed_rows *found = d->n_heads ? NULL : find_formed(r, x, d->n_x, n_cols, form);
    if (!found && form == FORM_FLOATS && !d->n_heads && n_cols % TILE_COLS == 0 &&
        address_of(x->data) % PIECE_BYTES == 0 && x->stride % PIECE_BYTES == 0) {
        to->x_stride = (uint32_t)(x->stride / PIECE_BYTES);
        to->x = address_of(x->data);
        return LACE_OK;
    }
    if (!found) {
        formed_rows *f = record_new_formed(r, x, d->n_x, n_cols, form);
        f->n_heads = d->n_heads ? d->n_heads : 1;
        struct form_args p = {.x = address_of(x->data),
                              .result = f->at,
                              .x_stride = floats_of(x),
                              .result_stride = to->x_stride * PIECE_BYTES / 4,
                              .n_cols = (uint32_t)n_cols,
                              .n_heads = (uint32_t)f->n_heads,
                              .x_head = (uint32_t)(n_cols + d->n_rest)};
        record_reads(r, x, d->n_x);
        TRY(record_form(r, f, &p, err));
        found = f;
    }
    to->x = found->at;
    if (found->squares) {
        to->squares = found->squares;
        to->n_squares = (uint32_t)squares_of(n_cols);
        to->eps = found->eps;
        record_reads_at(r, found->squares, 4 * (uint64_t)found->n_rows * to->n_squares);
    }
    return LACE_OK;
}

/* ---- Products -------------------------------------------------------------------------------- */

/*
 * Threads of a row: as many as it has tiles, or quarters of tiles of values, or so few that all have
 * as many of them.
 */
static uint32_t shares_of(const recorder *r, const product *d, uint32_t tokens)
{
    const weight *w = d->w;
    uint32_t n_sums = tokens * (d->pair ? 2 : 1);
    int64_t n_tiles = tiles_across(w->n_cols) * (is_values(w) ? 4 : 1);
    const vulkan_info *info = vulkan_features(r->v);
    int64_t most = smaller(MOST_SHARES, info->max_threads / ROWS);
    most = smaller(most, (info->shared_bytes - 4 * ROWS * tokens) / (4 * ROWS * (n_sums + 2)));
    int64_t each = divide_up(n_tiles, most < 1 ? 1 : most);
    return (uint32_t)divide_up(n_tiles, each < 1 ? 1 : each);
}

static uint32_t tokens_of(const recorder *r, const product *d)
{
    uint32_t tokens = 1, most = vulkan_features(r->v)->is_cpu ? CPU_TOKENS : MOST_TOKENS;
    while (!d->choices && !d->n_heads && tokens < most && tokens < d->n)
        tokens *= 2;
    return tokens;
}

static lace_status name_matrices(recorder *r, const product *d, struct product_args *p,
                                 lace_error *err)
{
    if (d->n_heads > 0)
        return record_matrices(r, d->w, d->n_heads, &p->matrices, err);
    if (!d->choices)
        return LACE_OK;
    TRY(record_matrices(r, d->w, d->n_experts, &p->matrices, err));
    if (d->pair)
        TRY(record_matrices(r, d->pair, d->n_experts, &p->pairs, err));
    p->choices = address_of(d->choices->data);
    p->choice_stride = floats_of(d->choices) / 2;
    p->n_used = (uint32_t)d->n_used;
    record_reads(r, d->choices, d->n / d->n_used);
    return LACE_OK;
}

row_form record_wanted(const recorder *r, const operand *o, int64_t n_rows)
{
    return record_wanted_by(r, 1, o, n_rows);
}

row_form record_wanted_by(const recorder *r, int32_t k, const operand *o, int64_t n_rows)
{
    const step *s = k < r->n_left ? r->s + k : NULL;
    op_weight w[OP_MAX_WEIGHTS];
    if (!s || !step_is_matmul(s) || s->in[0].value != o->value || o->width % TILE_COLS != 0 ||
        step_weights(s, w) < 1 || !weights_in_tiles(w[0].w->type, false))
        return FORM_COUNT;
    return record_form_of(r, w[0].w, n_rows);
}

/* The form in which a step multiplies the rows of its first operand; FORM_COUNT: not by tiles. */
static row_form form_read(const recorder *r, const step *s, int64_t n_rows)
{
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_is_matmul(s) ? step_weights(s, w) : 0;
    row_form form = FORM_COUNT;
    for (int i = 0; i < n; i++) {
        row_form its =
            weights_in_tiles(w[i].w->type, false) ? record_form_of(r, w[i].w, n_rows) : FORM_COUNT;
        if (its == FORM_COUNT || (i > 0 && its != form))
            return FORM_COUNT;
        form = its;
    }
    return form;
}

/* The form in which all steps behind the norm read its rows, if they are products and no others. */
static row_form form_behind(const recorder *r, const step *norm, int64_t n_rows)
{
    const operand *o = &norm->out[0];
    row_form form = FORM_COUNT;
    for (const step *s = norm + 1; s < r->s + r->n_left; s++) {
        for (int i = 0; i < STEP_MAX_IN; i++) {
            if (s->in[i].value < 0 || s->in[i].root != o->root)
                continue;
            row_form its =
                i == 0 && s->in[0].value == o->value ? form_read(r, s, n_rows) : FORM_COUNT;
            if (its == FORM_COUNT || (form != FORM_COUNT && its != form))
                return FORM_COUNT;
            form = its;
        }
        for (int i = 0; i < STEP_MAX_OUT; i++)
            if (s->out[i].value >= 0 && s->out[i].root == o->root)
                return FORM_COUNT; /* it may be changed in place */
    }
    return form;
}

const step *record_norm_behind(const recorder *r, const operand *out, int64_t n_rows)
{
    const step *norm = record_behind(r);
    batch b = {.n_tokens = r->batch->n_tokens};
    if (!norm || norm->op != OP_RMS_NORM || n_rows > RECORD_FEW ||
        norm->in[0].value != out->value || norm->a.norm.group != out->width || norm->a.norm.bias ||
        step_threshold(norm, &b) != 0 || norm->is_output != r->s->is_output ||
        norm->row_factor != r->s->row_factor)
        return NULL;
    if (record_is_given(r, norm->out[0].root))
        return NULL;
    row_form form = form_behind(r, norm, n_rows);
    bool fits = form == FORM_PLANES   ? out->width % TILE_COLS == 0
                : form == FORM_FLOATS ? out->width % 64 == 0
                                      : false;
    return fits ? norm : NULL;
}

/* A place for the result's rows, in a form: not where the rows lie that are multiplied now. */
static formed_rows *next_rows(recorder *r, const product *d, const operand *of, row_form form,
                              struct product_args *p)
{
    formed_rows *f;
    do
        f = record_new_formed(r, of, d->n, d->w->n_rows, form);
    while (p->x >= f->at && p->x < f->at + r->form_bytes);
    uint64_t row_bytes = record_form_row_bytes(form, d->w->n_rows);
    p->next = f->at;
    p->next_stride = (uint32_t)(row_bytes / 4);
    record_writes_at(r, f->at, (uint64_t)d->n * row_bytes);
    return f;
}

/* The rows for the products behind the norm: its weights in them, and their squares. */
static uint32_t write_normed(recorder *r, const product *d, struct product_args *p)
{
    const step *norm = d->norm;
    row_form form = form_behind(r, norm, d->n);
    record_skips(r, &norm->in[0], d->n);
    record_skips(r, &norm->out[0], d->n);
    formed_rows *f = next_rows(r, d, &norm->out[0], form, p);
    uint64_t squares = f->at + RECORD_FEW * record_form_row_bytes(form, d->w->n_rows);
    uint64_t bytes = 4 * (uint64_t)(d->n * squares_of(d->w->n_rows));
    record_writes_at(r, squares, bytes);
    f->squares = p->next_squares = squares;
    f->eps = norm->a.norm.eps;
    p->next_weight = address_of(norm->a.norm.weight);
    return form == FORM_PLANES ? 1 : 2;
}

/* What comes behind reads the result as planes: write them, too. */
static uint32_t write_next(recorder *r, const product *d, struct product_args *p)
{
    if (d->norm)
        return write_normed(r, d, p);
    if (d->result || d->n_heads || d->n_more > 0 || record_wanted(r, d->out, d->n) != FORM_PLANES)
        return 0;
    next_rows(r, d, d->out, FORM_PLANES, p);
    return 1;
}

/* Matrices side by side with the first. */
static int64_t add_more(recorder *r, const product *d, struct product_args *p)
{
    int64_t n_blocks = divide_up(d->w->n_rows, ROWS);
    for (int i = 0; i < d->n_more; i++) {
        p->more_matrix[i] = address_of(d->more[i]->data);
        p->more_bias[i] = address_of(d->more_bias[i]);
        p->more_result[i] = address_of(d->more_out[i]->data);
        p->more_stride[i] = floats_of(d->more_out[i]);
        p->more_rows[i] = (uint32_t)d->more[i]->n_rows;
        record_writes(r, d->more_out[i], d->n);
        n_blocks += divide_up(d->more[i]->n_rows, ROWS);
    }
    return n_blocks;
}

/* Subgroups of a workgroup that multiplies by matrices: along rows, along tokens; and matrices of each of them
 * along the tokens. */
typedef struct matrix_shape {
    uint32_t across, along, each;
} matrix_shape;

enum { MATRIX_SIDE = 16, MATRICES_ACROSS = 4, MATRIX_SHAPES = 4 };

static const matrix_shape matrix_shapes[MATRIX_SHAPES] = {
    {2, 4, 2}, {1, 4, 2}, {1, 2, 2}, {1, 2, 4}};

static int64_t shape_rows(matrix_shape m)
{
    return (int64_t)m.across * MATRICES_ACROSS * MATRIX_SIDE;
}

static int64_t shape_tokens(matrix_shape m)
{
    return (int64_t)m.along * m.each * MATRIX_SIDE;
}

/* The largest shape with enough workgroups for a large device. */
static matrix_shape shape_of(const recorder *r, const product *d)
{
    enum { ENOUGH = 200, SMALLEST = 2 };
    uint32_t wanted = vulkan_tile(r->v);
    if (vulkan_features(r->v)->emulates_matrices)
        return matrix_shapes[SMALLEST];
    if (wanted > 0)
        return matrix_shapes[(wanted - 1) % MATRIX_SHAPES];
    int i = 0;
    while (i < SMALLEST && divide_up(d->w->n_rows, shape_rows(matrix_shapes[i])) *
                                   divide_up(d->n, shape_tokens(matrix_shapes[i])) <
                               ENOUGH)
        i++;
    return matrix_shapes[i];
}

enum { FLOAT_ROWS = 64, FLOAT_TOKENS = 32, FLOAT_THREADS = 128 };

/* Tiles that choices of experts fill at most, of so many each. */
static int64_t expert_tiles(int64_t n, int64_t n_experts, int64_t tile)
{
    return n / tile + smaller(n, n_experts);
}

uint64_t record_sorted_bytes(int64_t n, int64_t n_experts)
{
    return 4 * (uint64_t)(n + 3 * expert_tiles(n, n_experts, FLOAT_TOKENS));
}

/* The choices of many tokens in the order of their experts. */
static lace_status sort_choices(recorder *r, const product *d, int64_t tile, struct product_args *p,
                                lace_error *err)
{
    uint64_t bytes = record_sorted_bytes(d->n, d->n_experts);
    p->order = d->sorted;
    p->tiles = d->sorted + 4 * (uint64_t)d->n;
    struct sort_args a = {.choices = address_of(d->choices->data),
                          .order = p->order,
                          .tiles = p->tiles,
                          .n = (uint32_t)d->n,
                          .n_used = (uint32_t)d->n_used,
                          .choice_stride = floats_of(d->choices) / 2,
                          .n_experts = (uint32_t)d->n_experts,
                          .tile = (uint32_t)tile,
                          .n_tiles = (uint32_t)expert_tiles(d->n, d->n_experts, tile)};
    if (!d->is_sorted) {
        record_reads(r, d->choices, d->n / d->n_used);
        record_writes_at(r, d->sorted, bytes);
        record_launch l = {SHADER_sort_experts, .grid = {1, 1, 1}};
        TRY(record_start(r, &l, &a, sizeof a, err));
    }
    record_reads_at(r, d->sorted, bytes);
    return LACE_OK;
}

static int64_t token_tiles(const product *d, int64_t tile)
{
    return d->choices ? expert_tiles(d->n, d->n_experts, tile) : divide_up(d->n, tile);
}

/* The launch of a product of many rows: of tiles of rows and tokens. */
static record_launch launch_of_many(const recorder *r, const product *d, row_form form)
{
    const vulkan_info *info = vulkan_features(r->v);
    uint32_t number = weights_number(d->w->type);
    if (form == FORM_HALVES) {
        matrix_shape m = shape_of(r, d);
        return (record_launch){
            info->emulates_matrices ? SHADER_many_emulated : SHADER_many_matrix,
            {number, m.across * m.along * info->matrix_lanes, m.across, m.along, m.each},
            {divide_up(d->w->n_rows, shape_rows(m)), token_tiles(d, shape_tokens(m)), 1}};
    }
    return (record_launch){SHADER_many,
                           {number, FLOAT_THREADS},
                           {divide_up(d->w->n_rows, FLOAT_ROWS), token_tiles(d, FLOAT_TOKENS), 1}};
}

/* The launch of a product of few rows. */
static record_launch launch_of_few(const recorder *r, const product *d, row_form form,
                                   int64_t n_blocks, uint32_t next)
{
    uint32_t tokens = tokens_of(r, d), shares = shares_of(r, d, tokens);
    return (record_launch){
        form == FORM_PLANES ? SHADER_product_dot4 : SHADER_product,
        {weights_number(d->w->type), ROWS * shares, shares, tokens, d->pair != NULL, next},
        {n_blocks, divide_up(d->n, tokens), d->n_heads ? d->n_heads : 1}};
}

lace_status record_tile_product(recorder *r, const product *d, lace_error *err)
{
    const weight *w = d->w;
    int64_t n_tiles = tiles_across(w->n_cols);
    int64_t n_tokens = d->choices ? d->n / d->n_used : d->n;
    bool is_many = record_is_many(n_tokens) && !d->n_heads && (!d->choices || d->sorted);
    row_form form = record_form_of(r, w, is_many ? n_tokens : 1);
    struct product_args p = {.matrix = address_of(w->data),
                             .pair = d->pair ? address_of(d->pair->data) : 0,
                             .bias = address_of(d->bias),
                             .pair_bias = address_of(d->pair_bias),
                             .n_rows = (uint32_t)w->n_rows,
                             .n_cols = (uint32_t)w->n_cols,
                             .n_tiles = (uint32_t)n_tiles,
                             .n_tokens = (uint32_t)d->n,
                             .n_heads = d->n_heads ? (uint32_t)d->n_heads : 1,
                             .adds = d->adds,
                             .n_used = 1,
                             .x_divisor = (uint32_t)(d->n / max_i64(d->n_x, 1)),
                             .out_head = (uint32_t)(w->n_rows + d->n_rest),
                             .weighs = d->weighs,
                             .glu = (uint32_t)d->glu,
                             .scale = d->scale};
    TRY(form_rows(r, d, form, &p, err));
    if (is_many && d->choices)
        TRY(sort_choices(r, d, form == FORM_HALVES ? shape_tokens(shape_of(r, d)) : FLOAT_TOKENS,
                         &p, err));
    TRY(name_matrices(r, d, &p, err));
    uint64_t x_bytes = (uint64_t)(d->n_x * p.n_heads) * p.x_stride * PIECE_BYTES;
    record_reads(r, d->x, d->n_x);
    record_reads_at(r, p.x, x_bytes);
    p.result = record_result(r, d, &p.out_stride);
    int64_t n_blocks = add_more(r, d, &p);
    uint32_t next = is_many ? 0 : write_next(r, d, &p);
    record_launch l =
        is_many ? launch_of_many(r, d, form) : launch_of_few(r, d, form, n_blocks, next);
    return record_start(r, &l, &p, sizeof p, err);
}

/* Rows of the widest form, and those that a workgroup reads beyond them. */
uint64_t record_form_bytes(const step *s, int64_t n_rows)
{
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(s, w);
    uint64_t most = 0;
    int64_t rows = n_rows;
    if (s->op == OP_MATMUL_HEADS)
        rows *= s->a.heads.n_heads;
    else if (s->op == OP_MOE_DOWN)
        rows *= s->a.moe.n_used;
    else if (s->row_factor > 1)
        rows *= s->row_factor;
    for (int i = 0; i < n; i++) {
        uint64_t bytes =
            record_form_row_bytes(FORM_FLOATS, w[i].w->n_cols) * (uint64_t)(rows + MOST_TOKENS);
        most = bytes > most ? bytes : most;
    }
    return round_up(most, 256);
}
