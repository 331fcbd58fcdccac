/*
 * exp, tanh, softplus and erfc of vectors, and storing a part of one, in the words of vec_<level>.h, which is
 * included before this file.
 *
 * The polynomials interpolate at Chebyshev nodes; what they leave is below the rounding of the
 * floats. Measured against double over all floats in the range: exp within 1.1 ulp, tanh within 2.2
 * ulp.
 */
#ifndef LACE_BACKEND_CPU_VEC_MATH_H
#define LACE_BACKEND_CPU_VEC_MATH_H

#include "backend/cpu/unroll.h"

/*
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is taken off in two parts, the
 * first with few bits, so that n times it is exact. Polynomial: relative error 1.1e-8.
 * Infinity above 88.7, 0 below -104; a NaN stays one.
 */
static inline vf v_exp(vf x)
{
    x = v_max(v_set(-104.0f), v_min(v_set(89.0f), x)); /* x second: keeps a NaN */
    vf n = v_round(v_mul(x, v_set(1.442695022f)));
    vf r = v_fma(n, v_set(-0.693359375f), x);
    r = v_fma(n, v_set(2.1219444170e-4f), r);
    vf p = v_fma(r, v_set(1.392618404e-3f), v_set(8.363178931e-3f));
    p = v_fma(p, r, v_set(4.166655615e-2f));
    p = v_fma(p, r, v_set(1.666657627e-1f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, v_mul(r, r), r);
    return v_scale_exponent(v_add(p, v_set(1.0f)), n);
}

/*
 * tanh(x) = 1 - 2 / (exp(2x) + 1); near 0, where that loses digits, x + x^3 p(x^2), with a relative
 * error of 4.3e-9.
 */
static inline vf v_tanh(vf x)
{
    vf size = v_abs(x), z = v_mul(x, x);
    vf p = v_fma(z, v_set(2.292557620e-3f), v_set(-8.343780413e-3f));
    p = v_fma(p, z, v_set(2.176886797e-2f));
    p = v_fma(p, z, v_set(-5.395925418e-2f));
    p = v_fma(p, z, v_set(1.333330423e-1f));
    p = v_fma(p, z, v_set(-3.333333433e-1f));
    vf near = v_fma(v_mul(p, z), x, x);
    vf e = v_exp(v_add(size, size));
    vf far = v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(e, v_set(1.0f))));
    return v_select_less(size, v_set(0.625f), near, v_copysign(far, x));
}

/*
 * Rounded with halves away from 0, as roundf does it, for |x| < 2^22. The largest float below 1/2
 * is added: 1/2 itself would lift 0.49999997 to 1.
 */
static inline vf v_round_away(vf x)
{
    return v_truncate(v_add(x, v_copysign(v_set(0.49999997f), x)));
}

/* 1 / (1 + exp(-x)) */
static inline vf v_sigmoid(vf x)
{
    return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_sub(v_set(0.0f), x))));
}

/*
 * log(1 + exp(x)) = max(x, 0) + log(1 + z), z = exp(-|x|); and log(1 + z) is twice the area tangent
 * of w = z / (2 + z), which is at most a third: w + w^3 / 3 + ... + w^17 / 17 leaves 3e-10 of it.
 */
static inline vf v_softplus(vf x)
{
    vf z = v_exp(v_sub(v_set(0.0f), v_abs(x)));
    vf w = v_div(z, v_add(z, v_set(2.0f))), w2 = v_mul(w, w), p = v_set(1.0f / 17);
    UNROLL
    for (int k = 15; k > 0; k -= 2)
        p = v_fma(p, w2, v_set(1.0f / (float)k));
    return v_fma(v_add(w, w), p, v_max(x, v_set(0.0f)));
}

/*
 * 1 - erf(x), with t = 1 / (1 + |x| / 2): t exp(-x^2 + p(t)), p fitted by Chebyshev polynomials
 * (Numerical Recipes, erfcc). Relative error 1.2e-7, and where x^2 is large its rounding.
 */
static inline vf v_erfc(vf x)
{
    vf size = v_abs(x), t = v_div(v_set(1.0f), v_fma(size, v_set(0.5f), v_set(1.0f)));
    vf p = v_fma(t, v_set(0.17087277f), v_set(-0.82215223f));
    p = v_fma(p, t, v_set(1.48851587f));
    p = v_fma(p, t, v_set(-1.13520398f));
    p = v_fma(p, t, v_set(0.27886807f));
    p = v_fma(p, t, v_set(-0.18628806f));
    p = v_fma(p, t, v_set(0.09678418f));
    p = v_fma(p, t, v_set(0.37409196f));
    p = v_fma(p, t, v_set(1.00002368f));
    p = v_fma(p, t, v_set(-1.26551223f));
    vf y = v_mul(t, v_exp(v_sub(p, v_mul(size, size))));
    return v_select_less(x, v_set(0.0f), v_sub(v_set(2.0f), y), y);
}

/* The first n values, which may be none, or more than there are. */
ALWAYS_INLINE void v_store_some(float *p, vf x, int64_t n)
{
    if (n >= VW)
        v_store(p, x);
    else if (n > 0)
        v_store_n(p, x, n);
}

#endif
