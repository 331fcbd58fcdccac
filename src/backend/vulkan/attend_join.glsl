/*
 * The parts of attend_parts.glsl as one: of a token and JOIN_HEADS heads from `first` on. The result also
 * goes to `next`, in the form of the product behind it, if there is a place for it.
 *
 * Parts are [n_tokens, n_heads, n_parts] sums of v_dim, and behind them all the largest score of
 * each and the sum of its weights. The includer has joined[], four values of a head each.
 */
#define MOST_PARTS 16
shared vec2 marks[JOIN_HEADS * MOST_PARTS]; /* of each part: the largest score, the sum of weights */
shared float shares[JOIN_HEADS * MOST_PARTS];

/* In floats. */
uint part_sums(attend_args p, uint t, uint h, uint part)
{
    return ((t * p.n_heads + h) * p.n_parts + part) * p.cache.v_dim;
}

uint part_marks(attend_args p, uint t, uint h, uint part)
{
    return p.n_tokens * p.n_heads * p.n_parts * p.cache.v_dim +
           2 * ((t * p.n_heads + h) * p.n_parts + part);
}

/* The largest score of a head's parts, and what all weights add up to. */
vec2 whole_marks(attend_args p, uint i, uint h, uint n)
{
    bool has_sink = !IS_NULL(p.sinks);
    float sink = has_sink ? p.sinks.v[h] : LEAST, most = sink, sum;
    for (uint k = 0; k < n; k++)
        most = max(most, marks[i * MOST_PARTS + k].x);
    sum = has_sink ? exact_exp(sink - most) : 0.0;
    for (uint k = 0; k < n; k++)
        sum += marks[i * MOST_PARTS + k].y * exact_exp(marks[i * MOST_PARTS + k].x - most);
    return vec2(most, sum);
}

/* What each part's sums are multiplied with. The marks are there; all threads call this. */
void weigh_parts(attend_args p, uint first, uint n)
{
    for (uint e = THREAD; e < JOIN_HEADS * n; e += THREADS) {
        uint i = e / n, k = e % n;
        vec2 whole = whole_marks(p, i, first + i, n);
        shares[i * MOST_PARTS + k] = exact_exp(marks[i * MOST_PARTS + k].x - whole.x) / whole.y;
    }
    barrier();
}

/* What joined[] has goes to the result and to `next`. */
void put_joined(attend_args p, uint t, uint first)
{
    uint fours = p.cache.v_dim / 4, n = JOIN_HEADS * fours;
    barrier();
    for (uint i = THREAD; i < n; i += THREADS)
        for (uint k = 0; k < 4; k++)
            p.result.v[t * p.out_stride + first * p.cache.v_dim + 4 * i + k] = joined[i][k];
    if (IS_NULL(p.next))
        return;
    words_at to = words_at(address_plus(uvec2(p.next), t, 4 * p.next_stride));
    uint words = plane_words(p.n_heads * p.cache.v_dim);
    for (uint i = THREAD; i < n; i += THREADS) {
        uint block = i / 8 * 8;
        vec4 tops = vec4(0.0);
        for (uint k = 0; k < 8; k++)
            tops = max(tops, abs(joined[block + k]));
        float top = max(max(tops.x, tops.y), max(tops.z, tops.w));
        put_planes(to, first * fours + i, words, joined[i], top);
        if (i == block) {
            vec2 sums = vec2(0.0);
            for (uint k = 0; k < 8; k++)
                sums[k / 4] += plane_sum(joined[i + k], top);
            put_plane_sums(to, (first * fours + i) / 8, words, top, sums);
        }
    }
}

void join_parts(attend_args p, PARTS_AT parts, PART_MARKS_AT part_marks_of, uint t, uint first, uint n)
{
    uint fours = p.cache.v_dim / 4;
    for (uint e = THREAD; e < JOIN_HEADS * n; e += THREADS) {
        uint at = part_marks(p, t, first + e / n, e % n);
        marks[e / n * MOST_PARTS + e % n] = vec2(part_marks_of.v[at], part_marks_of.v[at + 1]);
    }
    barrier();
    weigh_parts(p, first, n);
    for (uint e = THREAD; e < JOIN_HEADS * fours; e += THREADS) {
        uint i = e / fours, from = part_sums(p, t, first + i, 0) / 4 + e % fours;
        vec4 all = vec4(0.0);
        for (uint k = 0; k < n; k += 8) {
            uvec4 v[8]; /* asked for at once */
            [[unroll]] for (uint j = 0; j < 8; j++)
                v[j] = parts.v[from + min(k + j, n - 1) * fours];
            [[unroll]] for (uint j = 0; j < 8; j++)
                if (k + j < n)
                    all += shares[i * MOST_PARTS + k + j] * uintBitsToFloat(v[j]);
        }
        joined[e] = all;
    }
    put_joined(p, t, first);
}
