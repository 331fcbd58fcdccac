/*
 * Recording: the steps of a plan as launches of a list, for batches of one shape. What differs from
 * one batch to the next (tokens, positions, pages) is read from memory, so a list is recorded once and
 * run as often as batches of its shape come.
 *
 * Each operation has a function that records its launches. Before each launch it says what the launch
 * reads and writes (record_reads, record_writes); where barriers go follows from that
 * (launch_ranges.h). A step is not done before all of its operands have been named.
 */
#ifndef LACE_BACKEND_VULKAN_RECORDER_H
#define LACE_BACKEND_VULKAN_RECORDER_H

#include "backend/vulkan/launch_ranges.h"
#include "backend/vulkan/vulkan.h"
#include "backend/vulkan/vulkan_params.h"
#include "ops/op_info.h"
#include "plan/plan.h"

enum { RECORD_MAX_GROUPS = 8 }; /* of page tables */

/* A batch on the device: addresses of [n_tokens] numbers each, and how many there are. */
typedef struct vulkan_batch {
    int32_t n_tokens, n_outputs;
    uint64_t tokens, positions, sequences, slots, seen, segments;
    uint64_t outputs;    /* [n_outputs] */
    uint64_t given;      /* floats: the rows that tokens bring along */
    int64_t given_width; /* of such a row; 0: there are none */
    uint64_t scales;     /* [n_sequences, n_adapters] how much of each adapter */
    int32_t n_adapters;
    bool has_adapters;                  /* some row uses one: otherwise their steps do nothing */
    uint64_t axes;                      /* [ROPE_MAX_AXES, axis_stride] */
    uint64_t tables[RECORD_MAX_GROUPS]; /* [n_sequences, pages_per_sequence] */
    int32_t pages_per_sequence, axis_stride;
    bool is_spread; /* no two tokens are of one sequence */
} vulkan_batch;

/*
 * Rows in the form that products with tiles read. FORM_FLOATS: filled up to whole tiles with zeros.
 * FORM_PLANES: bytes for dot4 (planes.glsl). FORM_HALVES: for cooperative matrices; 16 bytes behind
 * them begin with what they are multiples of.
 */
typedef enum row_form { FORM_FLOATS, FORM_PLANES, FORM_HALVES, FORM_COUNT } row_form;

typedef struct formed_rows {
    uint64_t source, source_bytes; /* of the rows that they are made of */
    uint64_t at;
    int64_t n_rows, n_cols, n_heads; /* no rows: there are none */
    row_form form;
    /* Rows that are yet to be normed, and are multiplied with the norm's weights: the sums of squares
     * of each 32 values of them. 0: there is nothing to do. */
    uint64_t squares;
    float eps;
} formed_rows;

enum {
    RECORD_FORMED = 3,
    RECORD_FEW = 8,
    RECORD_MOST_TAKEN = 2,
    RECORD_COUNTS_BYTES = 4096,
    RECORD_MOST_HELD = 32
};

/* A launch of a list that is traced: the steps that it is of, and whether it is their first. */
typedef struct record_trace {
    const step *first; /* NULL: a copy */
    int32_t n_steps;
    bool is_first;
} record_trace;

typedef struct recorder {
    vulkan *v;
    vulkan_list *list;
    const vulkan_batch *batch;
    uint64_t scratch; /* as record_scratch_bytes says */

    /* RECORD_FORMED places of form_bytes each, as record_form_bytes says, and what lies there. */
    uint64_t forms, form_bytes;
    formed_rows formed[RECORD_FORMED];
    int newest_formed;

    /* Where parameters go: memory that the host writes, as record_params_bytes says. */
    uint64_t params, params_bytes, params_used;
    uint8_t *params_host;

    /* What was launched since the last barrier, what the next launch will do, operands named. */
    launch_ranges since, next;
    const step *s;   /* the one that is recorded, and behind it others: */
    int32_t n_left;  /* so many, with it */
    int32_t n_taken; /* of them recorded together */
    uint32_t named_in[RECORD_MOST_TAKEN], named_out[RECORD_MOST_TAKEN];
    int32_t n_launches, n_barriers;
    /* Launches since the last barrier that are held back, where they are reversed to find mistakes. */
    struct held_launch {
        const vulkan_pipeline *pipeline;
        uint32_t grid[3];
        uint64_t params;
    } held[RECORD_MOST_HELD];
    int n_held;

    uint64_t counts; /* RECORD_COUNTS_BYTES of zeros, which launches leave as zeros; 0: none */
    const plan_value *values; /* of the plan */
    int32_t given[2];         /* values that the host reads; -1: none */

    /* Not NULL: each launch ends before the next begins, and is written down here. */
    record_trace *trace; /* [most_traced] */
    int32_t n_traced, most_traced;
} recorder;

/*
 * The launches of the first of n_left steps, and of those behind it that are computed along with it:
 * n_taken says how many. LACE_E_UNSUPPORTED if a shape is beyond what shaders can do.
 */
lace_status record_step(recorder *r, const step *s, int32_t n_left, lace_error *err);

/*
 * Before a plan is placed: attention also reads the keys and values of its own tokens, so that they
 * are still there if it brings them to the cache.
 */
void record_keep_keys(plan *p);

/* Whether there are shaders for it; and why not, of a step with such an operation. */
bool record_has_shader(op o);
lace_status record_check(const step *s, lace_error *err);

/* What a step needs, with so many rows. */
uint64_t record_scratch_bytes(const step *s, int64_t n_rows);
uint64_t record_attend_bytes(const step *s, int64_t n_rows); /* of record_scratch_bytes */
uint64_t record_form_bytes(const step *s, int64_t n_rows);
uint64_t record_params_bytes(const step *s);

enum { RECORD_MOST_LAUNCHES = 6 }; /* of a step */

/* Rows of f32 from one place to another. Strides in floats. */
lace_status record_copy(recorder *r, uint64_t to, uint32_t to_stride, uint64_t from,
                        uint32_t from_stride, uint32_t width, int64_t n_rows, lace_error *err);

/* ---- For the functions of operations --------------------------------------------------------- */

/* One of them: r->s is s. */
typedef lace_status (*record_fn)(recorder *r, const step *s, lace_error *err);

lace_status record_matmul(recorder *r, const step *s, lace_error *err);
lace_status record_heads(recorder *r, const step *s, lace_error *err);
lace_status record_moe(recorder *r, const step *s, lace_error *err);
lace_status record_rope(recorder *r, const step *s, lace_error *err);
lace_status record_attend(recorder *r, const step *s, lace_error *err);
lace_status record_conv(recorder *r, const step *s, lace_error *err);
lace_status record_delta(recorder *r, const step *s, lace_error *err);
lace_status record_scan(recorder *r, const step *s, lace_error *err);

/* Operands of the step that the next launch uses, with so many rows. Changed in place: written. */
void record_reads(recorder *r, const operand *o, int64_t n_rows);
void record_writes(recorder *r, const operand *o, int64_t n_rows);
void record_reads_at(recorder *r, uint64_t address, uint64_t n_bytes);
void record_writes_at(recorder *r, uint64_t address, uint64_t n_bytes);

/* An operand that is not touched: it is only between steps that one launch computes. What was formed of it is no more. */
void record_skips(recorder *r, const operand *o, int64_t n_rows);

/* Whether others than steps read a value: the host, or another part of the plan. */
bool record_is_given(const recorder *r, int32_t root);

/* Whether a step behind the first n reads a value's memory, or changes it, or others read it. */
bool record_is_read_behind(const recorder *r, int32_t n, const operand *o);

/* The step behind, or NULL. */
static inline const step *record_behind(const recorder *r)
{
    return r->n_left > 1 ? r->s + 1 : NULL;
}

/* Rows in a form: the one that products with a matrix in tiles read, and the bytes of a row. */
row_form record_form_of(const recorder *r, const weight *w, int64_t n_rows);
uint64_t record_form_row_bytes(row_form form, int64_t n_cols);

/*
 * The form in which the next step multiplies these rows, whole tiles of them: then it is quicker to
 * write them in that form where they are made. FORM_COUNT: in none.
 */
row_form record_wanted(const recorder *r, const operand *o, int64_t n_rows);
row_form record_wanted_by(const recorder *r, int32_t k, const operand *o,
                          int64_t n_rows); /* step k */

/* So many rows that tiles of them are multiplied. */
static inline bool record_is_many(int64_t n_rows)
{
    return n_rows > RECORD_FEW;
}

/* A place for rows of an operand in a form, which a launch now makes; and form.comp's launch. */
formed_rows *record_new_formed(recorder *r, const operand *x, int64_t n, int64_t n_cols,
                               row_form form);
lace_status record_form(recorder *r, const formed_rows *f, const struct form_args *p,
                        lace_error *err);

/* Numbers that shaders read: where they lie. */
uint64_t record_numbers(recorder *r, const void *data, uint64_t n_bytes);

/* A launch of workgroups; none if one of the three is 0. The constants are those of the shader. */
typedef struct record_launch {
    vulkan_shader shader;
    uint32_t constants[SHADER_MAX_CONSTANTS];
    int64_t grid[3];
} record_launch;

/* All is recorded: ends the list. */
lace_status record_end(recorder *r, lace_error *err);

lace_status record_start(recorder *r, const record_launch *l, const void *params, uint64_t n_bytes,
                         lace_error *err);

/* How many rows a step has. */
static inline int64_t record_rows(const recorder *r, const step *s)
{
    int64_t n = s->is_output ? r->batch->n_outputs : r->batch->n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

static inline uint64_t address_of(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static inline uint32_t floats_of(const operand *o)
{
    return (uint32_t)(o->stride / 4);
}

#endif
