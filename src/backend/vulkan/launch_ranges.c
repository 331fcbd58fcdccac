/* Ranges of memory that launches read and write, and whether two of them overlap. */
#include "backend/vulkan/launch_ranges.h"

static void add(launch_ranges *r, memory_range *list, int *n, uint64_t begin, uint64_t n_bytes)
{
    if (n_bytes == 0)
        return;
    if (*n == RANGES_MAX)
        r->is_full = true;
    else
        list[(*n)++] = (memory_range){begin, begin + n_bytes};
}

void ranges_read(launch_ranges *r, uint64_t begin, uint64_t n_bytes)
{
    add(r, r->reads, &r->n_reads, begin, n_bytes);
}

void ranges_write(launch_ranges *r, uint64_t begin, uint64_t n_bytes)
{
    add(r, r->writes, &r->n_writes, begin, n_bytes);
}

void ranges_clear(launch_ranges *r)
{
    r->n_reads = r->n_writes = 0;
    r->is_full = false;
}

static bool overlap(const memory_range *a, int n_a, const memory_range *b, int n_b)
{
    for (int i = 0; i < n_a; i++)
        for (int k = 0; k < n_b; k++)
            if (a[i].begin < b[k].end && b[k].begin < a[i].end)
                return true;
    return false;
}

bool ranges_conflict(const launch_ranges *since, const launch_ranges *next)
{
    return since->is_full || next->is_full ||
           overlap(since->writes, since->n_writes, next->reads, next->n_reads) ||
           overlap(since->writes, since->n_writes, next->writes, next->n_writes) ||
           overlap(since->reads, since->n_reads, next->writes, next->n_writes);
}

bool ranges_collide(const launch_ranges *one)
{
    for (int i = 0; i < one->n_writes; i++)
        for (int k = 0; k < one->n_reads; k++) {
            const memory_range *w = &one->writes[i], *r = &one->reads[k];
            bool is_same = w->begin == r->begin && w->end == r->end;
            if (!is_same && overlap(w, 1, r, 1))
                return true;
        }
    return false;
}

void ranges_join(launch_ranges *since, const launch_ranges *next)
{
    for (int i = 0; i < next->n_reads; i++)
        ranges_read(since, next->reads[i].begin, next->reads[i].end - next->reads[i].begin);
    for (int i = 0; i < next->n_writes; i++)
        ranges_write(since, next->writes[i].begin, next->writes[i].end - next->writes[i].begin);
    since->is_full |= next->is_full;
}
