/* Rows into the cache. ROW(i), which the includer has, is a value in shared memory. */

/* Two bytes of a word, whose other half another thread may write at the same time. */
void store_u16(words_at base, uint i, uint value)
{
    uint shift = 8 * (i & 2);
    atomicAnd(base.v[i / 4], ~(0xffffu << shift));
    atomicOr(base.v[i / 4], value << shift);
}

/* A value as Q8_0 has it in units of the block's largest / 127: halves go away from 0. */
int byte_of(float x)
{
    float whole = trunc(x);
    return int(whole + sign(x) * step(0.5, abs(x - whole)));
}

/* n values, from value `first` of ROW on, to byte `at` of a page. */
void store_row(words_at base, uint at, uint n, uint first)
{
    if (TYPE == DTYPE_F32)
        for (uint i = THREAD; i < n; i += THREADS)
            base.v[at / 4 + i] = floatBitsToUint(ROW(first + i));
    else if (TYPE == DTYPE_F16 && ((at | 2 * n) & 3) == 0) /* whole words */
        for (uint i = THREAD; i < n / 2; i += THREADS)
            base.v[at / 4 + i] =
                half_of_float(ROW(first + 2 * i)) | half_of_float(ROW(first + 2 * i + 1)) << 16;
    else if (TYPE == DTYPE_F16)
        for (uint i = THREAD; i < n; i += THREADS)
            store_u16(base, at + 2 * i, half_of_float(ROW(first + i)));
    else
        for (uint block = THREAD; block < n / 32; block += THREADS) {
            uint from = first + 32 * block, to = at + 34 * block;
            float most = 0.0;
            for (uint i = 0; i < 32; i++)
                most = max(most, abs(ROW(from + i)));
            float d = most / 127.0, inverse = d > 0.0 ? 1.0 / d : 0.0;
            store_u16(base, to, half_of_float(d));
            for (uint i = 0; i < 32; i += 2) {
                int a = byte_of(ROW(from + i) * inverse),
                    b = byte_of(ROW(from + i + 1) * inverse);
                store_u16(base, to + 2 + i, uint(a & 255) | uint(b & 255) << 8);
            }
        }
}
