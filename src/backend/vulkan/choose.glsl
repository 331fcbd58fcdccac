/*
 * The best of many logits, by integers: a float's place in the order of floats is its key, and what
 * is not a number, or infinite, is told by its bits. Of equal keys the first are better.
 *
 * The best k are found by the bits of their keys, eight at a time from the top: how many logits have
 * each value of these bits says which value the k-th has. KEY(i) is the key of logit i.
 */
#define HAS_OWN_SIZE
#define SIZE CHOOSE_THREADS
layout(local_size_x = SIZE) in;

const uint MASKED = 0x007fffffu; /* the key of -infinity; that of a number is larger */

shared uint counts[SIZE];
shared uint found_bin, found_above;

uint key_of(uint bits)
{
    bits = bits == 0x80000000u ? 0 : bits; /* -0 */
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

uint bits_of(uint key)
{
    return (key >> 31) != 0 ? key & 0x7fffffffu : ~key;
}

/* What no token can be chosen with: not a number, or +infinity. */
bool is_bad(uint bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u;
}

/* Each count becomes the sum of itself and all behind it. */
void sum_counts()
{
    barrier();
    for (uint n = 1; n < SIZE; n *= 2) {
        uint v = counts[THREAD] + (THREAD + n < SIZE ? counts[THREAD + n] : 0);
        barrier();
        counts[THREAD] = v;
        barrier();
    }
}

/* Of v, the sum of all threads before this one. */
uint sum_before(uint v)
{
    barrier();
    counts[SIZE - 1 - THREAD] = v;
    sum_counts();
    return counts[SIZE - 1 - THREAD] - v;
}

uint sum_of_all(uint v)
{
    barrier();
    counts[THREAD] = v;
    sum_counts();
    return counts[0];
}

/* Which logits are the best: those above a key, and the first few of those that are equal to it. */
struct cut {
    uint key, n_equal;
};

/* The best k of n; all that are not masked, if they are not more. */
cut find_cut(uint n, uint k)
{
    cut c = cut(0, k);
    for (int shift = 24; shift >= 0; shift -= 8) {
        barrier();
        counts[THREAD] = 0;
        barrier();
        for (uint i = THREAD; i < n; i += SIZE) {
            uint key = KEY(i);
            if (key > MASKED && (shift == 24 || key >> (shift + 8) == c.key >> (shift + 8)))
                atomicAdd(counts[(key >> shift) & 255], 1);
        }
        sum_counts();
        uint above = THREAD + 1 < SIZE ? counts[THREAD + 1] : 0;
        if (shift == 24 && counts[0] <= k)
            return cut(MASKED, 0);
        if (counts[THREAD] >= c.n_equal && above < c.n_equal) {
            found_bin = THREAD;
            found_above = above;
        }
        barrier();
        c.key |= found_bin << shift;
        c.n_equal -= found_above;
    }
    return c;
}

/* The logits of a cut, in their order: WRITE(place, i) for each. Returns how many there are. */
#define WRITE_CUT(c, n, total)                                                                     \
    {                                                                                              \
        uint each = ((n) + SIZE - 1) / SIZE, begin = min(THREAD * each, n);                        \
        uint last = min(begin + each, n), n_above = 0, n_equal = 0;                                \
        for (uint i = begin; i < last; i++) {                                                      \
            uint key = KEY(i);                                                                     \
            n_above += key > (c).key ? 1 : 0;                                                      \
            n_equal += key == (c).key ? 1 : 0;                                                     \
        }                                                                                          \
        uint before = sum_before(n_equal);                                                         \
        uint left = (c).n_equal - min(before, (c).n_equal);                                        \
        uint mine = n_above + min(n_equal, left);                                                  \
        uint place = sum_before(mine);                                                             \
        for (uint i = begin; i < last; i++) {                                                      \
            uint key = KEY(i);                                                                     \
            if (key > (c).key || (key == (c).key && left > 0)) {                                   \
                left -= key == (c).key ? 1 : 0;                                                    \
                WRITE(place, i);                                                                   \
                place++;                                                                           \
            }                                                                                      \
        }                                                                                          \
        total = sum_of_all(mine);                                                                  \
    }

/* The larger key of all threads, and of equal ones the smaller token. */
shared uint best_keys[SIZE], best_tokens[SIZE];

void find_best(inout uint key, inout uint token)
{
    best_keys[THREAD] = key;
    best_tokens[THREAD] = token;
    barrier();
    for (uint n = SIZE / 2; n > 0; n /= 2) {
        if (THREAD < n) {
            uint other = best_keys[THREAD + n], its = best_tokens[THREAD + n];
            if (other > best_keys[THREAD] ||
                (other == best_keys[THREAD] && its < best_tokens[THREAD])) {
                best_keys[THREAD] = other;
                best_tokens[THREAD] = its;
            }
        }
        barrier();
    }
    key = best_keys[0];
    token = best_tokens[0];
}

float rule_float(choose_args p, uint row, uint i)
{
    return uintBitsToFloat(p.rules.v[row * RULE_WORDS + i]);
}

uint rule_word(choose_args p, uint row, uint i)
{
    return p.rules.v[row * RULE_WORDS + i];
}
