/* Programs of the Vulkan backend: a plan, its memory on the device, and lists of launches. */
#ifndef LACE_BACKEND_VULKAN_VULKAN_PROGRAM_H
#define LACE_BACKEND_VULKAN_VULKAN_PROGRAM_H

#include "backend/backend.h"
#include "backend/vulkan/vulkan.h"

lace_status vulkan_program_compile(device *d, vulkan *v, const plan *p, const program_options *o,
                                   program **out, lace_error *err);
lace_status vulkan_program_prepare(program *p, const program_memory *m, lace_error *err);
void vulkan_program_free(program *p);
lace_status vulkan_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                               lace_error *err);
lace_status vulkan_program_submit(program *p, const batch *b, const choice_rule *rules,
                                  lace_error *err);
lace_status vulkan_program_collect(program *p, lace_error *err);
lace_status vulkan_program_begin(program *p, const ahead_start *start, const choice_rule *rule,
                                 lace_error *err);
lace_status vulkan_program_ahead(program *p, const int32_t *const *pages, int32_t sequence,
                                 int32_t position, lace_error *err);
lace_status vulkan_program_next(program *p, int32_t *word, lace_error *err);
int32_t vulkan_program_word(const program *p, int32_t row);
const float *vulkan_program_logits(const program *p, int32_t row);
const float *vulkan_program_hidden(const program *p, int32_t row);
int32_t vulkan_program_n_steps(const program *p);
program_step vulkan_program_step_at(const program *p, int32_t i, const batch *b);

/* The queue behind one of this backend's (queue.h). */
lace_status vulkan_open_queue(vulkan *v, queue **out, lace_error *err);
vulkan_queue *vulkan_queue_of(const queue *q);

/* Before anything else is queued there, `fn` is called: it queues what waits on the host. NULL: nobody. */
void vulkan_queue_settle(queue *q, lace_status (*fn)(void *arg, lace_error *err), void *arg);

#endif
