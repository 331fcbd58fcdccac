/*
 * A GPU through Vulkan 1.2: as much of it as running plans takes.
 *
 * libvulkan.so.1 is opened when the first device is asked for, so the same program runs where there
 * is none. Every failure is a lace_status (LACE_E_DEVICE, or LACE_E_MEMORY when the device is full)
 * with the call and Vulkan's own name for the error.
 *
 * Memory is used by device address: shaders are told addresses, so there are no descriptors and no
 * limit on how large a range they see. Devices need bufferDeviceAddress, timelineSemaphore and
 * scalarBlockLayout; what they have beyond that is asked for (vulkan_info), never guessed from a name.
 *
 * LACE_VULKAN_DEBUG, a list with commas: "validate" turns the validation layer on and makes each of its
 * messages a failure; "gpu" treats a processor as a GPU; "dot4" takes that instruction where it is
 * slow, and "suspect" lets the self-test find fault with it; "staging" treats memory that the host sees as if it did not; "refuse" lets no
 * pipeline be made; "lose" loses the device with the first list that is run; "lose-once" with the
 * fortieth, and not again once it is opened anew; "reverse" runs launches that may run at the same time
 * in the reverse order, and "forget" is a recorder that forgets some of what launches read: then texts
 * are wrong, which shows that "reverse" finds such mistakes; "memory=N" is a device with N MiB; "no-dot4" and
 * "no-matrices" do without these; "matrices" emulates them where there are none; "tile=N" takes shape N of matrices for all products of many rows.
 */
#ifndef LACE_BACKEND_VULKAN_VULKAN_H
#define LACE_BACKEND_VULKAN_VULKAN_H

#include "base/status.h"

typedef struct vulkan vulkan;                   /* an opened device */
typedef struct vulkan_queue vulkan_queue;       /* work that is done in order */
typedef struct vulkan_list vulkan_list;         /* recorded launches, to be run many times */
typedef struct vulkan_pipeline vulkan_pipeline; /* a shader with its constants */

typedef struct vulkan_info {
    char name[128], driver[128];
    uint32_t api_major, api_minor;
    uint32_t subgroup_lanes, shared_bytes, max_threads;
    bool is_cpu;                    /* Vulkan on the host's processor */
    bool is_unified;                /* the host sees all of its memory */
    bool has_f16, has_dot4;         /* arithmetic; products of four int8 by an instruction */
    bool has_matrices;              /* cooperative ones of 16 x 16 halves, with sums in f32 */
    bool emulates_matrices;         /* "matrices": shaders that play them, for checks */
    uint32_t matrix_lanes;          /* of a subgroup that multiplies matrices */
    bool dot4_fails, matrices_fail; /* the device says that it has them, and the self-test not */
    uint64_t max_allocation;
    uint64_t total_bytes, free_bytes; /* of its own memory; when asked */
} vulkan_info;

/* ---- Devices --------------------------------------------------------------------------------- */

/* Those that can be used, GPUs in front of processors; 0 without any, or without a loader. */
int vulkan_count(void);

/* Those that are GPUs. The loader, which takes a while to open, is left alone where there is no sign of any. */
int vulkan_count_gpus(void);

/* LACE_E_DEVICE, and why, if there is no such device. */
lace_status vulkan_open(int index, vulkan **out, lace_error *err);
void vulkan_close(vulkan *v); /* after everything made with it; NULL is fine */
lace_status vulkan_describe(vulkan *v, vulkan_info *out, lace_error *err);
bool vulkan_is_lost(vulkan *v); /* nothing can be done with it any more */
int vulkan_n_queues(vulkan *v);
const vulkan_info *vulkan_features(const vulkan *v); /* without what is free */

/* What the self-test has found right, now or when this driver and these shaders ran last. */
enum { VULKAN_PASSED_DOT4 = 1, VULKAN_PASSED_MATRICES = 2 };
bool vulkan_has_passed(const vulkan *v, uint32_t what); /* never with "suspect" */
void vulkan_note_passed(vulkan *v, uint32_t what);

/* Do without what a device says that it has: it does not do it right. */
void vulkan_distrust_dot4(vulkan *v);
void vulkan_distrust_matrices(vulkan *v);
bool vulkan_is_suspect(const vulkan *v); /* "suspect" of LACE_VULKAN_DEBUG, */
bool vulkan_reverses(const vulkan *v);   /* "reverse", */
bool vulkan_forgets(const vulkan *v);    /* "forget", */
uint32_t vulkan_tile(const vulkan *v);   /* and N of "tile=N"; 0: it is not there */

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef enum vulkan_place {
    VULKAN_LOCAL,   /* the device's own; the host sees it where it is unified */
    VULKAN_UPLOAD,  /* the host writes, the device reads */
    VULKAN_READBACK /* the device writes, the host reads */
} vulkan_place;

/* *out_host: where the host sees it, NULL if it does not; may be NULL if nobody asks. */
lace_status vulkan_alloc(vulkan *v, vulkan_place place, uint64_t n_bytes, uint64_t *out,
                         void **out_host, lace_error *err);
void vulkan_free(vulkan *v, uint64_t address); /* 0 is fine */

/* The host's address of memory that it sees, else NULL. */
void *vulkan_host_address(vulkan *v, uint64_t address);

/* ---- Pipelines ------------------------------------------------------------------------------- */

typedef enum vulkan_shader {
#define X(name) SHADER_##name,
#include "backend/vulkan/shaders.def"
#undef X
    SHADER_COUNT
} vulkan_shader;

enum { SHADER_MAX_CONSTANTS = 6 };

/*
 * A shader made for these constants (constant_id 0 to 5); the same one if it was asked for before.
 * Lives as long as the device.
 */
lace_status vulkan_find_pipeline(vulkan *v, vulkan_shader shader,
                                 const uint32_t constants[SHADER_MAX_CONSTANTS],
                                 const vulkan_pipeline **out, lace_error *err);

/* ---- Queues ---------------------------------------------------------------------------------- */

lace_status vulkan_queue_create(vulkan *v, vulkan_queue **out, lace_error *err);
void vulkan_queue_free(vulkan_queue *q); /* waits for what is in it; NULL is fine */
vulkan *vulkan_queue_device(const vulkan_queue *q);

/* Copies; the host's memory may be used again when they return. They come after all that is queued. */
lace_status vulkan_write(vulkan_queue *q, uint64_t to, const void *from, uint64_t n,
                         lace_error *err);
lace_status vulkan_read(vulkan_queue *q, void *to, uint64_t from, uint64_t n, lace_error *err);

/* These two are queued. n is a multiple of 4. */
lace_status vulkan_copy(vulkan_queue *q, uint64_t to, uint64_t from, uint64_t n, lace_error *err);
lace_status vulkan_fill(vulkan_queue *q, uint64_t to, uint32_t word, uint64_t n, lace_error *err);

/* Wait until everything in the queue is done. Reports what went wrong. */
lace_status vulkan_wait(vulkan_queue *q, lace_error *err);

/* Until a submission is done, and those in front of it. */
lace_status vulkan_wait_for(vulkan_queue *q, uint64_t number, lace_error *err);

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Between begin and end launches are recorded. What was queued before a list is over when it begins. */
lace_status vulkan_list_begin(vulkan_queue *q, vulkan_list **out, lace_error *err);
void vulkan_list_launch(vulkan_list *l, const vulkan_pipeline *p, const uint32_t grid[3],
                        uint64_t params);
void vulkan_list_barrier(vulkan_list *l); /* what is behind sees what is in front */
lace_status vulkan_list_end(vulkan_list *l, lace_error *err);

/*
 * Time: room for n stamps, before the first launch; a stamp, when all in front of it is over; and,
 * after a run that was waited for, the nanoseconds from each stamp to the next, [n - 1]. Zeros where
 * the device cannot tell.
 */
lace_status vulkan_list_time(vulkan_list *l, uint32_t n, lace_error *err);
void vulkan_list_stamp(vulkan_list *l);
lace_status vulkan_list_times(vulkan_list *l, uint64_t *ns, lace_error *err);

/*
 * Queue lists of one queue, in this order, as one submission. A list may be queued again before it is
 * over. *number: what vulkan_wait_for takes; may be NULL.
 */
enum { VULKAN_MOST_LISTS = 4 };
lace_status vulkan_lists_run(vulkan_list *const *lists, int n, uint64_t *number, lace_error *err);
lace_status vulkan_list_run(vulkan_list *l, lace_error *err);
void vulkan_list_free(vulkan_list *l); /* waits for it; NULL is fine */

#endif
