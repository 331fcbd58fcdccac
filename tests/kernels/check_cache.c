/* A paged cache with a batch of sequences in it. */
#include "check_cache.h"

#include <string.h>

#include "base/numbers.h"
#include "tensor/cache_row.h"

enum { GAP_BYTES = 64 }; /* between the parts of a page, where nothing may be written */

static void shuffle(int32_t *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = check_random_int(0, i);
        int32_t t = x[i];
        x[i] = x[k];
        x[k] = t;
    }
}

void check_cache_init(check_cache *c, const cache_shape *cs)
{
    kv_layer *kv = &c->kv;
    memset(c, 0, sizeof *c);
    kv->type = cs->type;
    kv->v_type = cs->is_mixed && !cs->v_in_k ? cs->v_type : cs->type;
    kv->n_heads = cs->n_heads;
    kv->head_dim = cs->head_dim;
    kv->v_dim = cs->v_dim ? cs->v_dim : cs->head_dim;
    kv->v_in_k = cs->v_in_k;
    kv->page_tokens = cs->page_tokens;
    kv->row_bytes = row_bytes(cs->type, cs->head_dim);
    kv->v_row_bytes = kv->v_in_k ? kv->row_bytes : row_bytes(kv->v_type, kv->v_dim);
    kv->k_span = cache_span(kv->type, kv->head_dim);
    kv->v_span = cache_span(kv->v_type, kv->v_in_k ? kv->head_dim : kv->v_dim);
    kv->group = 1;
    uint64_t n_rows = (uint64_t)kv->n_heads * (uint64_t)kv->page_tokens;
    kv->k_offset = GAP_BYTES;
    kv->v_offset = kv->v_in_k ? GAP_BYTES : 2 * GAP_BYTES + n_rows * kv->row_bytes;
    kv->page_bytes = round_up(kv->v_offset + n_rows * kv->v_row_bytes + GAP_BYTES, 4);

    int n_pages = 0;
    for (int i = 0; i < cs->n_sequences; i++) {
        int n = cs->n_past[i] + cs->n_new[i];
        n_pages += (n + kv->page_tokens - 1) / kv->page_tokens;
        c->n_context = n > c->n_context ? n : c->n_context;
        c->b.n_tokens += cs->n_new[i];
    }
    c->n_bytes = kv->page_bytes * (uint64_t)n_pages;
    kv->data = check_alloc(c->n_bytes);

    int32_t *pages = check_alloc(4 * (uint64_t)n_pages);
    int32_t *positions = check_alloc(4 * (uint64_t)c->b.n_tokens);
    const int32_t **tables = check_alloc(sizeof *tables * (uint64_t)c->b.n_tokens);
    const int32_t *const **groups = check_alloc(2 * sizeof *groups);
    for (int i = 0; i < n_pages; i++)
        pages[i] = i;
    shuffle(pages, n_pages);
    int t = 0;
    for (int i = 0; i < cs->n_sequences; i++) {
        int n = cs->n_past[i] + cs->n_new[i];
        for (int k = 0; k < cs->n_new[i]; k++, t++) {
            positions[t] = cs->n_past[i] + k;
            tables[t] = pages;
        }
        pages += (n + kv->page_tokens - 1) / kv->page_tokens;
    }
    groups[0] = NULL;
    groups[1] = tables;
    c->b.positions = positions;
    c->b.pages = groups;
}

static void fill_row(dtype type, int32_t span, int n, float size, uint8_t *out)
{
    float x[1024];
    check_fill_f32(x, n, CHECK_NORMAL);
    for (int i = 0; i < n; i++)
        x[i] *= size;
    cache_put(type, span, x, n, out);
}

void check_cache_fill(check_cache *c, float size)
{
    const kv_layer *kv = &c->kv;
    uint64_t n_rows = (uint64_t)kv->n_heads * (uint64_t)kv->page_tokens;
    for (uint64_t at = 0; at < c->n_bytes; at += kv->page_bytes)
        for (uint64_t r = 0; r < n_rows; r++) {
            if (!kv->v_in_k)
                fill_row(kv->v_type, kv->v_span, kv->v_dim, size,
                         kv->data + at + kv->v_offset + r * kv->v_row_bytes);
            fill_row(kv->type, kv->k_span, kv->head_dim, size,
                     kv->data + at + kv->k_offset + r * kv->row_bytes);
        }
}

kv_layer check_cache_copy(const check_cache *c)
{
    kv_layer copy = c->kv;
    copy.data = check_alloc(c->n_bytes);
    memcpy(copy.data, c->kv.data, c->n_bytes);
    return copy;
}
