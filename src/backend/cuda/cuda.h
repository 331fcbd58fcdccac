/*
 * An NVIDIA GPU, through the driver's C interface.
 *
 * libcuda.so.1 is opened when the first device is asked for, so the same program runs where there
 * is none. Every failure of the driver is a lace_status (LACE_E_DEVICE, or LACE_E_MEMORY when the
 * card is full) with the call and the driver's own name for the error.
 *
 * Addresses on the card are plain `void *`: they are passed to kernels and never read by the host.
 * Functions may be called from any thread; work in one queue is done in order.
 */
#ifndef LACE_BACKEND_CUDA_CUDA_H
#define LACE_BACKEND_CUDA_CUDA_H

#include "base/status.h"

typedef struct cuda_device cuda_device;
typedef struct cuda_queue cuda_queue;   /* a stream */
typedef struct cuda_event cuda_event;   /* a mark in a queue */
typedef struct cuda_module cuda_module; /* a loaded image of kernels */
typedef struct cuda_kernel cuda_kernel;
typedef struct cuda_graph cuda_graph; /* recorded launches, ready to be replayed */

typedef struct cuda_info {
    char name[128];
    int index;
    int major, minor;     /* compute capability */
    int n_processors;     /* multiprocessors */
    int max_shared_bytes; /* that one block may ask for */
    uint64_t total_bytes; /* of memory */
    uint64_t free_bytes;  /* when asked */
    int driver_major, driver_minor;
} cuda_info;

/* ---- Devices --------------------------------------------------------------------------------- */

int cuda_count(void); /* 0 without a GPU or a driver */

/* LACE_E_DEVICE, and why, if there is no such device. */
lace_status cuda_open(int index, cuda_device **out, lace_error *err);
void cuda_close(cuda_device *d); /* after everything made with it; NULL is fine */
lace_status cuda_describe(cuda_device *d, cuda_info *out, lace_error *err);

/* Let this thread's calls of other libraries mean this device; functions here do so by themselves. */
lace_status cuda_enter(const cuda_device *d, lace_error *err);

/* ---- Memory ---------------------------------------------------------------------------------- */

lace_status cuda_alloc(cuda_device *d, uint64_t n_bytes, void **out, lace_error *err);
void cuda_free(cuda_device *d, void *address);

/* Memory of the host that the card can copy from and to, and write by itself: *out_device is the
 * address that kernels use (may be NULL if nobody asks). */
lace_status cuda_alloc_host(cuda_device *d, uint64_t n_bytes, void **out, void **out_device,
                            lace_error *err);
void cuda_free_host(cuda_device *d, void *address);

/* How kernels of this card name memory that cuda_alloc_host gave, of whichever card. */
lace_status cuda_host_address(cuda_device *d, void *address, void **out, lace_error *err);

/*
 * How the copy engine (compute capability 9.0) takes boxes of 64 columns and box_rows rows out of
 * pages, in each of which n_rows rows of f16 follow each other; the first ones begin at `rows`, which
 * is a multiple of 16, as page_bytes is. A box comes swizzled: 16-byte chunk n of row i lies in place
 * n ^ i % 8. `out`: 128 bytes at a multiple of 64, which kernels get as a parameter.
 */
lace_status cuda_describe_boxes(const void *rows, uint32_t n_cols, uint32_t n_rows,
                                uint64_t page_bytes, uint32_t box_rows, void *out, lace_error *err);

/* ---- Queues ---------------------------------------------------------------------------------- */

lace_status cuda_queue_create(cuda_device *d, cuda_queue **out, lace_error *err);
void cuda_queue_free(cuda_queue *q); /* waits for what is in it; NULL is fine */
cuda_device *cuda_queue_device(const cuda_queue *q);
void *cuda_queue_stream(const cuda_queue *q); /* the driver's own, for other libraries */

/* These return at once; the host's side of a copy must be pinned to make that true. */
lace_status cuda_copy_to(cuda_queue *q, void *device, const void *host, uint64_t n,
                         lace_error *err);
lace_status cuda_copy_from(cuda_queue *q, void *host, const void *device, uint64_t n,
                           lace_error *err);
lace_status cuda_copy_on(cuda_queue *q, void *to, const void *from, uint64_t n, lace_error *err);
lace_status cuda_fill(cuda_queue *q, void *device, uint8_t byte, uint64_t n, lace_error *err);

/* Wait until everything in the queue is done. Reports what went wrong in kernels. */
lace_status cuda_wait(cuda_queue *q, lace_error *err);

lace_status cuda_event_create(cuda_device *d, cuda_event **out, lace_error *err);
void cuda_event_free(cuda_event *e);
lace_status cuda_event_record(cuda_event *e, cuda_queue *q, lace_error *err);
lace_status cuda_event_wait(cuda_event *e, lace_error *err); /* by the host */
/* What is put into the queue from now on begins when the mark, of any queue, has been passed. */
lace_status cuda_queue_wait_event(cuda_queue *q, const cuda_event *e, lace_error *err);
/* Microseconds between two marks that have been passed. */
lace_status cuda_event_elapsed(cuda_event *from, cuda_event *to, double *out, lace_error *err);

/* ---- Kernels --------------------------------------------------------------------------------- */

/* `image`: what nvcc -fatbin made. It must stay where it is. */
lace_status cuda_module_load(cuda_device *d, const void *image, cuda_module **out, lace_error *err);
void cuda_module_free(cuda_module *m);

/* Load all its kernels, which is done when they are wanted otherwise. LACE_E_DEVICE: the driver cannot,
 * and CUDA_MODULE_LOADING=EAGER is not set either. */
lace_status cuda_module_load_all(cuda_module *m, lace_error *err);

/* NULL if the module has no kernel of that name. Lives as long as the module. */
cuda_kernel *cuda_module_find(cuda_module *m, const char *name);

/* The compute capability that it was compiled for, times 10. */
lace_status cuda_kernel_compiled_for(cuda_kernel *k, int *out, lace_error *err);

/* Let blocks ask for this much shared memory, and for clusters of 16. */
lace_status cuda_kernel_allow(cuda_kernel *k, uint32_t shared_bytes, bool large_clusters,
                              lace_error *err);

typedef struct cuda_launch {
    cuda_kernel *kernel;
    uint32_t grid[3];  /* 0 means 1 */
    uint32_t block[3]; /* 0 means 1 */
    uint32_t shared_bytes;
    uint32_t cluster; /* blocks of a cluster, along x; 0 or 1: none */
    bool overlaps; /* may begin before the launch in front of it has ended; the kernel waits itself
                      (programmatic dependent launch) */
} cuda_launch;

/* params[i] points to the i-th argument. */
lace_status cuda_run(cuda_queue *q, const cuda_launch *l, void **params, lace_error *err);

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* Between these two, launches and copies in the queue are recorded and not done. */
lace_status cuda_record_begin(cuda_queue *q, lace_error *err);
lace_status cuda_record_end(cuda_queue *q, cuda_graph **out, lace_error *err);
lace_status cuda_graph_upload(cuda_queue *q, const cuda_graph *g, lace_error *err); /* before it */
lace_status cuda_graph_run(cuda_queue *q, const cuda_graph *g, lace_error *err);
void cuda_graph_free(cuda_graph *g);

#endif
