/*
 * Functions with the precision of float. What GLSL promises of its own is too little: 2^-11 for sines,
 * and cancellation in hyperbolic tangents near 0.
 */

/* e^x: 2^n times a polynomial of what is left, which is within ln(2) / 2. */
float exact_exp(float x)
{
    x = clamp(x, -104.0, 88.72);
    float n = floor(x * 1.44269504 + 0.5);
    precise float r = x - n * 0.693359375;
    r = r + n * 2.12194440e-4;
    float p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    precise float y = (p * r) * r + r + 1.0;
    /* In two steps: 2^n alone may be out of range. */
    int whole = int(n), half_of = whole / 2;
    return y * uintBitsToFloat(uint(half_of + 127) << 23) *
           uintBitsToFloat(uint(whole - half_of + 127) << 23);
}

/* e^x - 1, small where x is. */
float exact_expm1(float x)
{
    if (abs(x) > 0.35)
        return exact_exp(x) - 1.0;
    float p = 1.0 / 40320.0;
    p = p * x + 1.0 / 5040.0;
    p = p * x + 1.0 / 720.0;
    p = p * x + 1.0 / 120.0;
    p = p * x + 1.0 / 24.0;
    p = p * x + 1.0 / 6.0;
    p = p * x + 0.5;
    return (p * x) * x + x;
}

float exact_tanh(float x)
{
    if (!(abs(x) < 10.0))
        return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
    float e = exact_expm1(2.0 * abs(x));
    float y = e / (e + 2.0);
    return x < 0.0 ? -y : y;
}

/* ln((1 + s) / (1 - s)) for s up to 0.2: twice the area tangent. */
float log_series(float s)
{
    float z = s * s, p = 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    return 2.0 * ((p * z) * s + s);
}

/* ln(x) of a normal number above 0. */
float exact_log(float x)
{
    uint bits = floatBitsToUint(x);
    int n = (int(bits) - 0x3f3504f3) >> 23; /* so that what is left is within sqrt(2) of 1 */
    float m = uintBitsToFloat(bits - uint(n << 23));
    return float(n) * 0.693147181 + log_series((m - 1.0) / (m + 1.0));
}

/* ln(1 + x) for x >= 0 */
float exact_log1p(float x)
{
    return x < 0.4 ? log_series(x / (x + 2.0)) : exact_log(1.0 + x);
}

/* 1 - erf(x), within 2e-7 (Abramowitz and Stegun, 7.1.26). */
float exact_erfc(float x)
{
    float z = abs(x), t = 1.0 / (1.0 + 0.3275911 * z);
    float p = 1.061405429;
    p = p * t - 1.453152027;
    p = p * t + 1.421413741;
    p = p * t - 0.284496736;
    p = p * t + 0.254829592;
    float y = p * t * exact_exp(-z * z);
    return x < 0.0 ? 2.0 - y : y;
}

/* Divisors between 1 and 2: others may be taken as infinite if they are large. */
float sigmoid(float x)
{
    float e = exact_exp(-abs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

float softplus(float x)
{
    return max(x, 0.0) + exact_log1p(exact_exp(-abs(x)));
}

/*
 * The fraction of a turn that an angle of 1/2 to 2^31 is, in units of 2^-32: its 24 bits are
 * multiplied with 96 bits of 1 / (2 pi), and of the product those behind the point are taken.
 */
uint turn_of(float angle)
{
    const uint inverse[3] = uint[3](0x28be60dbu, 0x9391054au, 0x7f09d5f4u);
    uint bits = floatBitsToUint(angle), m = (bits & 0x7fffffu) | 0x800000u;
    int e = int(bits >> 23) - 150; /* angle = m 2^e */
    uint high[3], low[3], carry;
    for (int i = 0; i < 3; i++)
        umulExtended(m, inverse[i], high[i], low[i]);
    /* The product: words w[0] in front of the point, w[1], w[2], w[3] behind it. */
    uint w[4];
    w[3] = low[2];
    w[2] = uaddCarry(low[1], high[2], carry);
    w[1] = uaddCarry(low[0], high[1] + carry, carry);
    w[0] = high[0] + carry;
    if (e == 0)
        return w[1];
    if (e > 0)
        return (w[1] << e) | (w[2] >> (32 - e));
    return (w[1] >> -e) | (w[0] << (32 + e));
}

/* Cosine and sine of any angle below 2^31, by quarters of a turn and Taylor's series. */
vec2 exact_cos_sin(float angle)
{
    float x = abs(angle), r = x;
    uint quarter = 0;
    if (x > 0.785398) {
        uint turn = turn_of(x);
        quarter = (turn + 0x20000000u) >> 30;
        r = float(int(turn - (quarter << 30))) * 1.46291807927e-9; /* 2 pi / 2^32 */
    }
    float z = r * r, s = 1.0 / 362880.0, c = -1.0 / 3628800.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = (s * z) * r + r;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 0.5;
    c = c * z + 1.0;
    vec2 y = (quarter & 1) != 0 ? vec2(s, c) : vec2(c, s);
    if (quarter == 1 || quarter == 2)
        y.x = -y.x;
    if (((quarter & 2) != 0) != (angle < 0.0))
        y.y = -y.y;
    return y;
}

/* Every glu_kind of ops/step.h. */
float glu(uint kind, float g, float u)
{
    switch (kind) {
    case 0:
        return g * sigmoid(g) * u;
    case 1:
        return 0.5 * g * (1.0 + exact_tanh(0.7978845608 * (g + 0.044715 * g * g * g))) * u;
    case 2:
        g = min(g, 7.0);
        u = clamp(u, -7.0, 7.0) + 1.0;
        return g * sigmoid(1.702 * g) * u;
    case 3:
        return 0.5 * g * exact_erfc(-0.7071067812 * g) * u;
    case 4:
        return (g < 0.0 ? 0.0 : g * g) * u;
    case 5:
        return sigmoid(g) * u;
    case 6:
        return exact_tanh(g) * u;
    default:
        return g * u;
    }
}
