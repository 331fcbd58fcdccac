/*
 * Barriers in shared memory and the copies that they count (sm_90): mbarrier, cp.async.bulk and its
 * form for boxes of tensors.
 *
 * A copy is done as late as can be: its place is filled with 0xff at once, and with the bytes when
 * somebody waits for its barrier in vain. So whoever reads without a wait reads nothing, and whoever
 * fills a place again while it is read is seen.
 *
 * Functions that can be called wrongly by a kernel return NULL, or a sentence that says what was
 * wrong.
 */
#ifndef LACE_TESTS_CARD_BULK_COPY_H
#define LACE_TESTS_CARD_BULK_COPY_H

#include <stdbool.h>
#include <stdint.h>

/* ---- Barriers -------------------------------------------------------------------------------- */

/* A barrier is 8 bytes of shared memory. What is in them is for these functions alone. Several
 * threads may call them. */
const char *barrier_init(uint64_t *bar, uint32_t n_arrivals);
const char *barrier_arrive(uint64_t *bar, uint32_t n);         /* mbarrier.arrive */
const char *barrier_expect(uint64_t *bar, uint32_t n_bytes);   /* mbarrier.expect_tx */
const char *barrier_complete(uint64_t *bar, uint32_t n_bytes); /* complete_tx, by st.async, too */

/* mbarrier.test_wait.parity: whether the phase of this parity has ended. */
const char *barrier_test(uint64_t *bar, uint32_t parity, bool *out);

/* ---- Copies ---------------------------------------------------------------------------------- */

/* The copies under way of a block, or of the blocks of a cluster. One thread at a time. */
typedef struct bulk_copies bulk_copies;

bulk_copies *bulk_create(void); /* NULL: no memory */
void bulk_free(bulk_copies *c);

/* Whether a kernel may read these bytes of memory; it has said so itself if not. */
typedef bool bulk_may_read(void *context, const void *from, uint64_t n_bytes);

/*
 * cp.async.bulk.shared.global: n_bytes, counted by `bar`. `address` is that of `to` in shared memory.
 * Whoever calls has checked that memory is there on both sides.
 */
const char *bulk_load(bulk_copies *c, uint8_t *to, uint32_t address, const void *from,
                      uint32_t n_bytes, uint64_t *bar);

/* st.async: these bytes, 16 at most, to the shared memory of a block of the cluster. */
const char *bulk_store(bulk_copies *c, uint8_t *to, const void *bytes, uint32_t n_bytes,
                       uint64_t *bar);

/*
 * mbarrier.try_wait.parity: as barrier_test, but what is under way for this barrier is brought first
 * if the phase has not ended.
 */
const char *bulk_wait(bulk_copies *c, uint64_t *bar, uint32_t parity, bool *out);

/* The block, or the cluster, has ended: nothing may be under way. Forgets what is. */
const char *bulk_end(bulk_copies *c);

/* ---- Boxes of tensors ------------------------------------------------------------------------ */

enum { TENSOR_MAP_BYTES = 128, TENSOR_MOST_DIMS = 5 };

/*
 * cuTensorMapEncodeTiled, with its arguments: a map in a form of its own. Returns NULL, or what the
 * driver would refuse (CUDA_ERROR_INVALID_VALUE).
 */
const char *tensor_map_encode(void *map, int type, uint32_t n_dims, void *address,
                              const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                              const uint32_t *steps, int interleave, int swizzle, int promotion,
                              int fill);

/* The bytes of a box: what its barrier counts, also for those outside of the tensor. */
const char *tensor_box_bytes(const void *map, uint32_t *out);

/*
 * cp.async.bulk.tensor.Nd.shared.global.tile: the box at these coordinates, the innermost first;
 * zeros where it is outside of the tensor. n_dims: those that the instruction names. `may_read` is
 * asked for each row of the box; NULL: everything.
 */
const char *bulk_load_box(bulk_copies *c, uint8_t *to, uint32_t address, const void *map,
                          uint32_t n_dims, const int32_t *at, uint64_t *bar,
                          bulk_may_read *may_read, void *context);

#endif
