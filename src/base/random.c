/* Random numbers that are the same on every platform: xoshiro256** and splitmix64. */
#include "base/random.h"

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void random_init(random_state *r, uint64_t seed)
{
    /* splitmix64 is a bijection of a counter, so four outputs in a row cannot all be zero. */
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix64(&seed);
}

static uint64_t rotate_left(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

uint64_t random_bits(random_state *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double random_unit(random_state *r)
{
    return (double)(random_bits(r) >> 11) * 0x1p-53;
}
