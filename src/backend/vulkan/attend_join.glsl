/*
 * The parts of attend_parts.glsl as one, of a token and a head. The result also goes to `next`, in the
 * form of the product behind it, if there is a place for it.
 */
shared float values[MOST_WIDTH];

void join_parts(attend_args p, PARTS_AT parts, uint t, uint h)
{
    uint width = p.cache.v_dim, stride = width + 2, from = (t * p.n_heads + h) * p.n_parts * stride;
    bool has_sink = !IS_NULL(p.sinks);
    float most = has_sink ? p.sinks.v[h] : LEAST, sum = 0.0;
    for (uint i = 0; i < p.n_parts; i++)
        most = max(most, parts.v[from + i * stride]);
    for (uint i = 0; i < p.n_parts; i++)
        sum += parts.v[from + i * stride + 1] * exact_exp(parts.v[from + i * stride] - most);
    sum += has_sink ? exact_exp(p.sinks.v[h] - most) : 0.0;
    for (uint k = THREAD; k < width; k += THREADS) {
        float v = 0.0;
        for (uint i = 0; i < p.n_parts; i++) {
            uint at = from + i * stride;
            v += parts.v[at + 2 + k] * exact_exp(parts.v[at] - most);
        }
        values[k] = v / sum;
        p.result.v[t * p.out_stride + h * width + k] = v / sum;
    }
    barrier();
    if (IS_NULL(p.next))
        return; /* every thread does; the next one writes what this one has read itself */
    words_at to = words_at(address_plus(uvec2(p.next), t, 4 * p.next_stride));
    uint words = plane_words(p.n_heads * width);
    for (uint i = THREAD; i < width / 4; i += THREADS) {
        uint first = 4 * i / 32 * 32;
        float top = 0.0;
        for (uint k = 0; k < 32; k++)
            top = max(top, abs(values[first + k]));
        vec4 v = vec4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
        put_planes(to, (h * width) / 4 + i, words, v, top);
        if (i % 8 == 0) {
            vec2 sums = vec2(0.0);
            for (uint k = 0; k < 8; k++) {
                uint at = first + 4 * k;
                sums[k / 4] += plane_sum(
                    vec4(values[at], values[at + 1], values[at + 2], values[at + 3]), top);
            }
            put_plane_sums(to, (h * width + first) / 32, words, top, sums);
        }
    }
    barrier(); /* the next one may write */
}
