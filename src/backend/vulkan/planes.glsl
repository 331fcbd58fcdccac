/*
 * Rows of numbers for dot4: each value as two int8, x = d * (256 high + low), in planes of as many
 * bytes as the row has columns, filled up to 256; then for each 32 columns d, the sums of x of each
 * half, and of both.
 */
const float PLANES_MOST = 32512.0;

/* Words of a row with so many columns. */
uint plane_words(uint n_cols)
{
    return (n_cols + 255) / 256 * 64;
}

/* Word i of both planes: four values, with the largest of their 32. */
void put_planes(words_at to, uint i, uint words, vec4 v, float top)
{
    ivec4 q = ivec4(roundEven(v * (top > 0.0 ? PLANES_MOST / top : 0.0)));
    ivec4 high = (q + 128) >> 8, low = q - 256 * high;
    uvec4 h = uvec4(high) & 255, l = uvec4(low) & 255;
    to.v[i] = h.x | h.y << 8 | h.z << 16 | h.w << 24;
    to.v[words + i] = l.x | l.y << 8 | l.z << 16 | l.w << 24;
}

/* What the planes have of four values, as it is added up. */
float plane_sum(vec4 v, float top)
{
    vec4 q = roundEven(v * (top > 0.0 ? PLANES_MOST / top : 0.0));
    return ((q.x + q.y) + (q.z + q.w)) * (top / PLANES_MOST);
}

/* Of block c: the sums of its halves. */
void put_plane_sums(words_at to, uint c, uint words, float top, vec2 sums)
{
    uint at = 2 * words + 4 * c;
    to.v[at] = floatBitsToUint(top / PLANES_MOST);
    to.v[at + 1] = floatBitsToUint(sums.x);
    to.v[at + 2] = floatBitsToUint(sums.y);
    to.v[at + 3] = floatBitsToUint(sums.x + sums.y);
}
