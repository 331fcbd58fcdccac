/* In the place of libcuda.so.1: a driver that lacks most of what is asked of it. */
int cuInit(unsigned flags);

int cuInit(unsigned flags)
{
    return flags == 0 ? 0 : 1;
}
