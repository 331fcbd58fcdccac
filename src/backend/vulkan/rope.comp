/* Rotary position embedding of a head, and keys and values into the cache: a workgroup for each head of q, then of k. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "block_values.glsl"
#include "cache.glsl"
#define MAX_HEAD_DIM 1024
PARAMS(rope_args)

shared float head_row[MAX_HEAD_DIM];
#define ROW(i) head_row[i]
#include "cache_store.glsl"
#include "turn.glsl"

/* Load n values of a head, turn them, and write them back; they stay in head_row, too. */
void turn(rope_args p, floats_at data, uint at, uint n, uint table, bool is_turned)
{
    for (uint i = THREAD; i < n; i += THREADS)
        head_row[i] = data.v[at + i];
    barrier();
    uint stride = p.is_neox != 0 ? 1 : 2, apart = p.is_neox != 0 ? p.n_dims / 2 : 1;
    for (uint i = THREAD; is_turned && i < p.n_dims / 2; i += THREADS) {
        float c = p.table.v[table + 2 * i], s = p.table.v[table + 2 * i + 1];
        vec2 x = turned(vec2(head_row[i * stride], head_row[i * stride + apart]), c, s);
        head_row[i * stride] = data.v[at + i * stride] = x.x;
        head_row[i * stride + apart] = data.v[at + i * stride + apart] = x.y;
    }
    barrier();
}

uint bytes_of(uint n)
{
    return TYPE == DTYPE_F32 ? 4 * n : TYPE == DTYPE_F16 ? 2 * n : n / 32 * 34;
}

/* A row of values, through head_row. */
void store_values(rope_args p, uint from, uint n, words_at page, uint at)
{
    barrier(); /* the one before has been stored */
    for (uint i = THREAD; i < n; i += THREADS)
        head_row[i] = p.v.v[from + i];
    barrier();
    store_row(page, at, n, 0);
}

void main()
{
    rope_args p = params.value;
    cache_args c = p.cache;
    uint t = GROUP.x, table = t * p.table_stride;
    if (GROUP.y < p.n_heads) {
        turn(p, p.q, t * p.q_stride + GROUP.y * p.head_dim, p.head_dim, table, true);
        return;
    }
    uint h = GROUP.y - p.n_heads;
    turn(p, p.k, t * p.k_stride + h * p.k_dim, p.k_dim, table, p.turns != 0);
    uint position = c.positions.v[t];
    words_at page = cache_page(c, c.sequences.v[t], position);
    if (c.v_in_k != 0) { /* the two parts of one key */
        uint row = key_offset(c, 0, position);
        store_row(page, row, c.v_dim, 0);
        store_values(p, t * p.v_stride, c.head_dim - c.v_dim, page, row + bytes_of(c.v_dim));
        return;
    }
    store_row(page, key_offset(c, h, position), c.head_dim, 0);
    store_values(p, t * p.v_stride + h * c.v_dim, c.v_dim, page, value_offset(c, h, position));
}
