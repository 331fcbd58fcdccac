/*
 * dot_words for the levels of Advanced SIMD that multiply 4 bytes of weights with a lane of
 * activations: sdot and usdot. A part of dot_dotprod.h and dot_i8mm.h, which define
 *
 *     DOT_LANE(sum, w, x, lane, most)   sum + the products of w with lane number `lane` of x
 */
#ifndef LACE_BACKEND_CPU_DOT_LANES_H
#define LACE_BACKEND_CPU_DOT_LANES_H

/* The vectors of words come in fours: a lane of x meets each. */
ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    int32x4_t a = vreinterpretq_s32_u8(start.a), b = vreinterpretq_s32_u8(start.b);
    UNROLL
    for (int i = 0; i < n; i += 4) {
        int8x16_t four = vreinterpretq_s8_u8(vld1q_u8(x + 4 * i));
        a = DOT_LANE(a, w[i].a, four, 0, most);
        b = DOT_LANE(b, w[i].b, four, 0, most);
        a = DOT_LANE(a, w[i + 1].a, four, 1, most);
        b = DOT_LANE(b, w[i + 1].b, four, 1, most);
        a = DOT_LANE(a, w[i + 2].a, four, 2, most);
        b = DOT_LANE(b, w[i + 2].b, four, 2, most);
        a = DOT_LANE(a, w[i + 3].a, four, 3, most);
        b = DOT_LANE(b, w[i + 3].b, four, 3, most);
    }
    return vi_of(a, b);
}

#endif
