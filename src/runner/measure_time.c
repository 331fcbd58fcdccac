/* Programs timed. */
#include "runner/measure_time.h"

#include "base/clock.h"
#include "base/mem.h"

enum { SPOILED_BYTES = 512 << 20, LINE = 64, RUNS = 5 };

void spoiler_init(spoiler *s, pool *workers)
{
    *s = (spoiler){.workers = workers, .bytes = mem_map(SPOILED_BYTES)};
}

void spoiler_deinit(spoiler *s)
{
    mem_unmap(s->bytes, s->bytes ? SPOILED_BYTES : 0);
    s->bytes = NULL;
}

/* Every line is read and written: what memset writes may pass the caches by. */
static void spoil_share(void *arg, int worker, int n_workers)
{
    const spoiler *s = arg;
    int64_t begin, end;
    pool_share(SPOILED_BYTES, LINE, worker, n_workers, &begin, &end);
    for (int64_t i = begin; i < end; i += LINE)
        s->bytes[i]++;
}

double median_of(double *times, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && times[k] < times[k - 1]; k--) {
            double other = times[k];
            times[k] = times[k - 1];
            times[k - 1] = other;
        }
    return times[n / 2];
}

lace_status time_batch(program *p, const batch *b, const spoiler *s, double *out, lace_error *err)
{
    double times[RUNS];
    *out = 0;
    for (int i = 0; i < RUNS; i++) {
        if (s && s->bytes)
            pool_run(s->workers, spoil_share, (void *)(uintptr_t)s);
        uint64_t begin = clock_ns();
        TRY(program_run(p, b, NULL, false, err));
        times[i] = 1e-9 * (double)(clock_ns() - begin);
    }
    *out = median_of(times, RUNS);
    return LACE_OK;
}

lace_status time_rows(program *p, int32_t n, const spoiler *s, double *out, lace_error *err)
{
    int32_t tokens[MEASURE_MOST_ROWS] = {0}, positions[MEASURE_MOST_ROWS] = {0}, last = n - 1;
    batch b = {.n_tokens = n,
               .n_outputs = 1,
               .tokens = tokens,
               .positions = positions,
               .sequences = tokens,
               .slots = tokens,
               .outputs = &last};
    return time_batch(p, &b, s, out, err);
}
