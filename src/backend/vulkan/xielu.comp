/* xIELU: squares above 0 and exponentials below. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(xielu_args)

void main()
{
    xielu_args p = params.value;
    for (uint i = THREAD; i < p.width; i += THREADS) {
        uint at = GROUP.x * p.y_stride + i;
        float x = p.y.v[at];
        p.y.v[at] = x > 0.0 ? p.alpha_p * x * x + p.beta * x
                            : (exact_expm1(min(x, p.eps)) - x) * p.alpha_n + p.beta * x;
    }
}
