/* softmax(q k) v over the cache: a workgroup for each token and head. Positions come in chunks, sums are kept online. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "block_values.glsl"
#include "cache.glsl"
#include "math.glsl"
#define MAX_HEAD_DIM 1024
#define LEAST -1e30
PARAMS(attend_args)

shared float q[MAX_HEAD_DIM], sums[MAX_HEAD_DIM], scores[THREADS];
shared uvec2 pages[THREADS]; /* of the positions that the scores are of */

float score_of(attend_args p, words_at page, uint head, uint position)
{
    uint at = key_offset(p.cache, head, position);
    float dot = 0.0;
    for (uint i = 0; i < p.cache.head_dim; i++)
        dot += q[i] * block_value(page, at, i);
    dot *= p.scale;
    return p.softcap > 0.0 ? p.softcap * exact_tanh(dot / p.softcap) : dot;
}

void main()
{
    attend_args p = params.value;
    cache_args c = p.cache;
    uint t = GROUP.x, h = GROUP.y, head = h / (p.n_heads / c.n_heads), sequence = c.sequences.v[t];
    uint own = c.positions.v[t], end = c.seen.v[t];
    uint first = p.window != 0 && own + 1 > p.window ? own + 1 - p.window : 0;
    if (p.chunk != 0)
        first = max(first, own / p.chunk * p.chunk);
    if (p.ahead != 0)
        end = min(end, own + 1 + p.ahead);
    for (uint i = THREAD; i < c.head_dim; i += THREADS)
        q[i] = p.q.v[t * p.q_stride + h * c.head_dim + i];
    for (uint i = THREAD; i < c.v_dim; i += THREADS)
        sums[i] = 0.0;
    barrier();
    bool has_sink = !IS_NULL(p.sinks);
    float most = has_sink ? p.sinks.v[h] : LEAST, sum = has_sink ? 1.0 : 0.0;
    for (uint at = first; at < end; at += THREADS) {
        uint n = min(THREADS, end - at);
        float score = LEAST;
        if (THREAD < n) {
            words_at page = cache_page(c, sequence, at + THREAD);
            pages[THREAD] = uvec2(page);
            score = score_of(p, page, head, at + THREAD);
        }
        float now = max(most, group_max(score)), fade = exact_exp(most - now);
        float weight = THREAD < n ? exact_exp(score - now) : 0.0;
        scores[THREAD] = weight;
        sum = sum * fade + group_sum(weight); /* its barriers show scores and pages, too */
        most = now;
        for (uint i = THREAD; i < c.v_dim; i += THREADS) {
            float v = sums[i] * fade;
            for (uint k = 0; k < n; k++)
                v += scores[k] *
                     block_value(words_at(pages[k]), value_offset(c, head, at + k), i);
            sums[i] = v;
        }
        barrier();
    }
    for (uint i = THREAD; i < c.v_dim; i += THREADS)
        p.result.v[t * p.out_stride + h * c.v_dim + i] = sums[i] / sum;
}
