/*
 * Backends: where plans run. cpu, cuda, vulkan, ref stand behind this interface; above it nobody names
 * one of them, but by the names that people type (device_open).
 *
 *     device    opened by name; keeps the weights of one model
 *     queue     work on a device, done in order, and its memory (queue.h)
 *     program   a plan lowered to the backend's own list of named steps, and run batch by batch
 *
 * Several devices can be one (mixed.h).
 *
 * The life of a program: device_compile copies the plan, lowers it and says what memory it will
 * take; program_prepare takes it; program_run computes a batch. The same list is run whether it is
 * timed, traced, recorded or replayed. A batch can also be queued (program_submit) and waited for
 * later (program_collect); where program->queues, the next one may be queued meanwhile.
 *
 * A backend is a table of functions. One that may be absent is NULL where the backend cannot do it:
 * a function is the claim of support.
 */
#ifndef LACE_BACKEND_BACKEND_H
#define LACE_BACKEND_BACKEND_H

#include "backend/choice.h"
#include "backend/queue.h"
#include "base/cpu.h"
#include "base/threads.h"
#include "plan/plan.h"

typedef struct backend backend;
typedef struct device device;
typedef struct program program;

/* ---- Devices --------------------------------------------------------------------------------- */

/* WEIGHTS_PACKED_LATER: in place at first, packed by and by; see device_pack. */
typedef enum weight_mode {
    WEIGHTS_PACKED,
    WEIGHTS_PACKED_LATER,
    WEIGHTS_IN_PLACE,
    WEIGHTS_EXACT
} weight_mode;

typedef struct device_options {
    cpu_level level; /* of the CPU's kernels */
    weight_mode mode;
    uint64_t weight_bytes; /* about what the model takes: "auto" looks for a device with room */
    bool has_columns;      /* "auto" looks for a device that can place columns */
    bool fast_prompts;     /* products of prompts in int8, where device_info says so */
} device_options;

typedef struct device_info {
    char name[128];         /* for people; "" for the CPU */
    uint64_t total_bytes;   /* of its own memory; 0: it uses the host's */
    uint64_t free_bytes;    /* when asked */
    uint64_t loading_bytes; /* that loading takes beside the weights */
    int32_t usual_batch;    /* tokens computed together, if nobody says */
    /*
     * Where rows of a batch are multiplied by tiles, and a tile that is not full costs as much: how
     * many rows it has, and how many make a step that is worth its time while texts wait for its
     * end. 0: every row costs.
     */
    int32_t tile_rows, step_rows;
    bool computes_late;    /* what is queued is computed when somebody waits for it */
    bool has_fast_prompts; /* device_options.fast_prompts */
    bool has_all_caches;   /* KV caches of 4 and 5 bits, keys and values of different types */
} device_info;

enum { DEVICE_NOTE_BYTES = 256 };

struct device {
    const backend *backend;
    uint64_t weight_bytes; /* of all that was placed */
    bool is_host;          /* its memory is the host's: what lies there can be looked at */
    bool collects; /* its programs compute COLLECT (plan/cut.h), which others leave to a host
                              beside them (mixed.h) */
};

/* Rows of a tensor that become a weight of the device. */
typedef struct weight_rows {
    dtype type; /* in the file */
    dtype kept; /* device_kept_as says it */
    const uint8_t *blocks;
    int64_t n_rows, n_cols;
    uint64_t n_bytes; /* of the blocks */
    int32_t device;   /* of several (mixed.h): where they go */
    bool is_table;    /* rows are looked up, not multiplied with */
    bool is_shared;   /* another weight is made of the same blocks, and counts them */
} weight_rows;

/* ---- Programs -------------------------------------------------------------------------------- */

/* What is known of the sequences before there is memory for them (state/states.h). */
typedef struct program_options {
    int32_t n_sequences, pages_per_sequence, n_groups;
} program_options;

/* Where everything is that the program does not take itself. */
typedef struct program_memory {
    queue *queue;
    pool *workers;
    uint8_t *const *pages; /* [n_groups] */
    uint8_t *const *slots; /* [DEVICES_MAX] of recurrent state; NULL where there is none */

    /* Of a part of a plan (plan/parts.h); else NULL: */
    uint8_t *border; /* memory of the host where values enter and leave */
    bool is_shared;  /* it is what queue_take_shared gave */
    uint8_t *room;   /* program.room_bytes of its device's memory, which programs that do not run
                        at the same time share; NULL: it takes its own */
} program_memory;

/* Where a plan's steps find everything, in a program's own memory of values. */
static inline plan_memory program_plan_memory(const program_memory *m, uint8_t *values)
{
    return (plan_memory){
        .values = values, .pages = m->pages, .slots = m->slots, .border = m->border};
}

/* A step of the list that the last run went through, for traces. */
typedef struct program_step {
    const char *name;
    int32_t layer;                /* -1: outside of layers */
    uint64_t n_bytes, n_products; /* what it must move and multiply */
    uint64_t ns;                  /* what it took, if the run was traced */
} program_step;

/* What a backend may keep of each step of a traced run. */
typedef struct step_cost {
    uint64_t ns, n_bytes;
} step_cost;

enum { PROGRAM_SLOTS = 2 }; /* batches under way */

struct program {
    const backend *backend;
    uint64_t n_bytes;        /* memory on its device */
    uint64_t room_bytes;     /* of it: what is of no use behind the end of a run */
    uint64_t exchange_bytes; /* of several ranks: the largest part that one gives (plan/cut.h) */
    bool chooses;            /* tokens, by rules */
    int32_t most_drawn_from; /* it draws by rules whose top_k is 1 to this; 0: by any */
    bool queues; /* PROGRAM_SLOTS batches may be submitted before the first is collected; never
                    where the plan gives hidden rows out */
    /*
     * A row of a batch is the same to the bit in batches of up to so many tokens, whatever the
     * others are; 0 and 1: only where it is alone.
     */
    int32_t same_tokens;
    /*
     * Where the device is the host: the steps that are run, whose operands can be looked at between
     * two of them (program_run_steps), and the memory of their values. Else NULL.
     */
    plan *lowered;
    uint8_t *values;
};

/*
 * A matrix whose product is timed: of 16 rows of blocks, repeated, in copies that together take
 * `room` bytes, so that weights come from where those of a model of that size come from.
 */
enum { TIMED_ROWS = 16 };
typedef struct timed_rows {
    dtype type;
    const uint8_t *blocks; /* [TIMED_ROWS, n_cols] */
    int64_t n_rows, n_cols;
    uint64_t room;
} timed_rows;

/* Where a device begins to work ahead. */
typedef struct ahead_start {
    int32_t token, position, sequence; /* what is to be computed first */
    int32_t turn;                      /* rotation is by position + turn, for all that follow */
    const float *adapter_scales;       /* as in a batch, for all that follow; NULL: none is used */
    int32_t n_adapters;
} ahead_start;

/* ---- What a backend provides ----------------------------------------------------------------- */

struct backend {
    const char *name;
    int (*count)(void); /* devices of this kind; 0: there is none, or this build cannot use it */
    /* NULL: count. Those that are no processor in disguise; "auto" takes no other. */
    int (*count_gpus)(void);
    lace_status (*open)(int index, const device_options *o, device **out, lace_error *err);
    void (*close)(device *d);
    lace_status (*describe)(device *d, device_info *out, lace_error *err);
    /* May be NULL: it cannot be lost, or stays so. See device_renew. */
    lace_status (*renew)(device *d, bool *is_new, lace_error *err);
    /* NULL: programs of this kind of device do not exchange columns with others. See device_join. */
    lace_status (*join)(device *d, struct ranks *r, char note[DEVICE_NOTE_BYTES], lace_error *err);
    /* NULL: the host's queue. */
    lace_status (*open_queue)(device *d, queue **out, lace_error *err);

    /* NULL: every type is kept as it is. */
    dtype (*kept_as)(device *d, dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols);
    lace_status (*place)(device *d, const weight_rows *rows, weight *out, lace_error *err);
    bool (*place_columns)(device *d, weight *w); /* may be NULL */
    /* How rows lie that are brought there for each step (weight.streamed), which count no memory of the
     * device's weights. NULL: it has no programs with such. */
    lace_status (*place_streamed)(device *d, const weight_rows *rows, weight *out, lace_error *err);
    /* Loading; NULL where nothing is to be done. */
    lace_status (*begin_load)(device *d, lace_error *err);
    lace_status (*load)(device *d, const weight_rows *rows, weight *w, pool *workers,
                        lace_error *err);
    lace_status (*end_load)(device *d, lace_error *err);
    bool (*pack)(device *d, const weight_rows *rows, weight *w, pool *workers); /* may be NULL */

    lace_status (*compile)(device *d, const plan *p, const program_options *o, program **out,
                           lace_error *err);
    lace_status (*prepare)(program *p, const program_memory *m, lace_error *err);
    void (*free)(program *p);
    lace_status (*run)(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                       lace_error *err);
    /* NULL: run, at once. */
    lace_status (*submit)(program *p, const batch *b, const choice_rule *rules, lace_error *err);
    lace_status (*collect)(program *p, lace_error *err);
    /* What a run would record or load when it is needed first; NULL: nothing is. */
    lace_status (*warm_up)(program *p, lace_error *err);
    const float *(*logits)(const program *p, int32_t row);
    const float *(*hidden)(const program *p, int32_t row); /* NULL: it refuses such plans */
    int32_t (*n_steps)(const program *p);
    program_step (*step_at)(const program *p, int32_t i, const batch *b);

    /* Of hosts alone. */
    void (*run_steps)(program *p, const batch *b, int32_t begin, int32_t end);
    lace_status (*make_weight)(device *d, const float *rows, int64_t n_rows, int64_t n_cols,
                               bool is_half, pool *workers, weight *out, lace_error *err);
    void (*free_weight)(device *d, weight *w);
    lace_status (*time_product)(device *d, pool *workers, const timed_rows *rows, double *us,
                                lace_error *err);

    /* Of those whose programs choose; the last three of those that work ahead of the host. */
    int32_t (*word)(const program *p, int32_t row);
    lace_status (*begin)(program *p, const ahead_start *start, const choice_rule *rule,
                         lace_error *err);
    lace_status (*ahead)(program *p, const int32_t *const *pages, int32_t sequence,
                         int32_t position, lace_error *err);
    lace_status (*next)(program *p, int32_t *word, lace_error *err);
};

/* ---- Calls ----------------------------------------------------------------------------------- */

/*
 * By name: "cpu", "ref", a GPU's kind ("cuda") with an optional number ("cuda:1"), or "auto", which
 * is the first GPU of a kind if it has room for the model, else the CPU. NULL is the CPU.
 * LACE_E_ARG for a name that says nothing, LACE_E_DEVICE for a device that is not there.
 */
lace_status device_open(const char *name, const device_options *o, device **out, lace_error *err);
void device_close(device *d); /* after everything made with it; NULL is fine */

/* The devices that models are run on, all of them: the CPU, then each kind of GPU. Those of `ref`, for
 * comparisons, are none. Returns how many there are; at most `capacity` are written. */
size_t device_show_all(lace_device *out, size_t capacity);

static inline lace_status device_describe(device *d, device_info *out, lace_error *err)
{
    return d->backend->describe(d, out, err);
}

/*
 * Before something is made with a device: if it has been lost since (a driver that was restarted, a
 * card that fell off), open it anew. Weights are placed as they were then, and must be loaded again.
 * LACE_E_DEVICE if that fails, or while something that was made before is still there.
 */
static inline lace_status device_renew(device *d, bool *is_new, lace_error *err)
{
    *is_new = false;
    return d->backend->renew ? d->backend->renew(d, is_new, err) : LACE_OK;
}

/*
 * All ranks at the same time, each with its device, before anything is placed: let devices of one kind
 * exchange columns by themselves, where they can (device.collects). `note`: why they do it in another
 * way than one might expect; "": they do not.
 */
lace_status device_join(device *d, struct ranks *r, char note[DEVICE_NOTE_BYTES], lace_error *err);

static inline lace_status device_open_queue(device *d, queue **out, lace_error *err)
{
    *out = &host_queue;
    return d->backend->open_queue ? d->backend->open_queue(d, out, err) : LACE_OK;
}

/* The type that stands for these rows on the device; mostly their own. */
static inline dtype device_kept_as(device *d, dtype type, const uint8_t *blocks, int64_t n_rows,
                                   int64_t n_cols)
{
    return d->backend->kept_as ? d->backend->kept_as(d, type, blocks, n_rows, n_cols) : type;
}

/* Decide how rows will lie on the device, and count the memory. No weight is read. */
static inline lace_status device_place(device *d, const weight_rows *rows, weight *out,
                                       lace_error *err)
{
    return d->backend->place(d, rows, out, err);
}

/* Let a matrix lie in columns as well, for activation sparsity. False: there is no kernel for it. */
static inline bool device_place_columns(device *d, weight *w)
{
    return d->backend->place_columns && d->backend->place_columns(d, w);
}

/*
 * Bring all weights to the device: begin, each in the order of placing, end. End also behind a load
 * that failed; it may be begun again then.
 */
static inline lace_status device_begin_load(device *d, lace_error *err)
{
    return d->backend->begin_load ? d->backend->begin_load(d, err) : LACE_OK;
}

static inline lace_status device_load(device *d, const weight_rows *rows, weight *w, pool *workers,
                                      lace_error *err)
{
    return d->backend->load ? d->backend->load(d, rows, w, workers, err) : LACE_OK;
}

static inline lace_status device_end_load(device *d, lace_error *err)
{
    return d->backend->end_load ? d->backend->end_load(d, err) : LACE_OK;
}

/* Pack a weight that was left in place at first, between two runs. False: it was not one. */
static inline bool device_pack(device *d, const weight_rows *rows, weight *w, pool *workers)
{
    return d->backend->pack && d->backend->pack(d, rows, w, workers);
}

/* LACE_E_UNSUPPORTED names an operation or a shape that the backend has no kernel for. */
static inline lace_status device_compile(device *d, const plan *p, const program_options *o,
                                         program **out, lace_error *err)
{
    if (p->hidden >= 0 && !d->backend->hidden)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the device cannot compute a prediction layer; use --device cpu");
    return d->backend->compile(d, p, o, out, err);
}

/* The weights must be loaded. */
static inline lace_status program_prepare(program *p, const program_memory *m, lace_error *err)
{
    return p->backend->prepare(p, m, err);
}

static inline void program_free(program *p) /* waits for what is under way; NULL is fine */
{
    if (p)
        p->backend->free(p);
}

/*
 * Run a batch and wait for its results: logits, or where the program chooses and rules are given
 * ([n_outputs]; a temperature below 0 means none) choices. Traced, every step is waited for.
 */
static inline lace_status program_run(program *p, const batch *b, const choice_rule *rules,
                                      bool is_traced, lace_error *err)
{
    return p->backend->run(p, b, rules, is_traced, err);
}

/*
 * Queue a batch, which is copied: what was queued earlier is over before it begins, so pages that
 * are given back now may be taken by the next one. Where the program queues, TOKEN_CHOSEN is the one
 * chosen last for its sequence. Collect waits for the oldest batch that is queued; its results
 * stay until the next submit.
 */
static inline lace_status program_submit(program *p, const batch *b, const choice_rule *rules,
                                         lace_error *err)
{
    return p->backend->submit ? p->backend->submit(p, b, rules, err)
                              : p->backend->run(p, b, rules, false, err);
}

static inline lace_status program_collect(program *p, lace_error *err)
{
    return p->backend->collect ? p->backend->collect(p, err) : LACE_OK;
}

static inline bool program_can_warm_up(const program *p)
{
    return p->backend->warm_up;
}

/* Record and load what runs may need, once some batches have been run: none waits for it then. */
static inline lace_status program_warm_up(program *p, lace_error *err)
{
    return p->backend->warm_up ? p->backend->warm_up(p, err) : LACE_OK;
}

/* A row of the result of the last run or collect, on the host. */
static inline const float *program_logits(const program *p, int32_t row)
{
    return p->backend->logits(p, row);
}

/* The same of what the plan gives out beside it (plan_hidden), of the last run or collect. */
static inline const float *program_hidden(const program *p, int32_t row)
{
    return p->backend->hidden(p, row);
}

/* What was chosen for a row of the last run or collect (choice.h). */
static inline int32_t program_word(const program *p, int32_t row)
{
    return p->backend->word ? p->backend->word(p, row) : CHOICE_REFUSED;
}

/* The list that the last run, which was of this batch, went through. */
static inline int32_t program_n_steps(const program *p)
{
    return p->backend->n_steps(p);
}

static inline program_step program_step_at(const program *p, int32_t i, const batch *b)
{
    return p->backend->step_at(p, i, b);
}

/*
 * Only the steps [begin, end), where program->lowered is there: what a run has left in memory up to
 * `begin` is taken as it is.
 */
static inline void program_run_steps(program *p, const batch *b, int32_t begin, int32_t end)
{
    p->backend->run_steps(p, b, begin, end);
}

/*
 * Of hosts alone: a matrix of our own, of floats, to stand in a step in place of one of the model's.
 * is_half: as F16, if products with those are fast; else as it is. To be freed with its device.
 */
static inline lace_status device_make_weight(device *d, const float *rows, int64_t n_rows,
                                             int64_t n_cols, bool is_half, pool *workers,
                                             weight *out, lace_error *err)
{
    return d->backend->make_weight(d, rows, n_rows, n_cols, is_half, workers, out, err);
}

static inline void device_free_weight(device *d, weight *w) /* zeros are fine */
{
    d->backend->free_weight(d, w);
}

/* Of hosts alone: microseconds of a product with one row, with all workers; 0 without a kernel. */
static inline lace_status device_time_product(device *d, pool *workers, const timed_rows *rows,
                                              double *us, lace_error *err)
{
    return d->backend->time_product(d, workers, rows, us, err);
}

/*
 * Choosing tokens on the device ahead of the host, where program_works_ahead. Begin with a token that
 * is to be computed; each `ahead` queues the computation of the newest token, at this position, and
 * the choice of the one behind it (rule NULL: the best); `next` waits for the next word. pages:
 * [group] the sequence's page numbers, up to this position at least. Before pages are given to
 * somebody else, wait for the queue.
 */
static inline bool program_works_ahead(const program *p)
{
    return p->chooses && p->backend->ahead;
}

static inline lace_status program_begin(program *p, const ahead_start *start,
                                        const choice_rule *rule, lace_error *err)
{
    return p->backend->begin(p, start, rule, err);
}

static inline lace_status program_ahead(program *p, const int32_t *const *pages, int32_t sequence,
                                        int32_t position, lace_error *err)
{
    return p->backend->ahead(p, pages, sequence, position, err);
}

static inline lace_status program_next(program *p, int32_t *word, lace_error *err)
{
    return p->backend->next(p, word, err);
}

#endif
