/* Sums and largest values of a workgroup: all threads call these, and all get the result. */
shared float reduce_parts[THREADS];

float group_sum(float v)
{
    reduce_parts[THREAD] = v;
    barrier();
    for (uint n = THREADS / 2; n > 0; n /= 2) {
        if (THREAD < n)
            reduce_parts[THREAD] += reduce_parts[THREAD + n];
        barrier();
    }
    v = reduce_parts[0];
    barrier(); /* the next one may write */
    return v;
}

float group_max(float v)
{
    reduce_parts[THREAD] = v;
    barrier();
    for (uint n = THREADS / 2; n > 0; n /= 2) {
        if (THREAD < n)
            reduce_parts[THREAD] = max(reduce_parts[THREAD], reduce_parts[THREAD + n]);
        barrier();
    }
    v = reduce_parts[0];
    barrier();
    return v;
}
