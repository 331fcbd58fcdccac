/*
 * In the place of libcuda.so.1: a driver with one card that computes nothing. $LACE_STUB is
 * "FUNCTION=CODE": that function fails with this code, all others do what they should.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int result_of(const char *function)
{
    const char *wish = getenv("LACE_STUB");
    size_t n = strlen(function);
    return wish && strncmp(wish, function, n) == 0 && wish[n] == '=' ? atoi(wish + n + 1) : 0;
}

/* Functions that only say whether they worked. */
#define PLAIN(name)                                                                                \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return result_of(#name);                                                                   \
    }

/* Those whose first argument is where an object goes: any address will do. */
#define MAKER(name)                                                                                \
    int name(void **out);                                                                          \
    int name(void **out)                                                                           \
    {                                                                                              \
        static char object;                                                                        \
        *out = &object;                                                                            \
        return result_of(#name);                                                                   \
    }

/* The same with a number. */
#define NUMBER(name, value)                                                                        \
    int name(int *out);                                                                            \
    int name(int *out)                                                                             \
    {                                                                                              \
        *out = value;                                                                              \
        return result_of(#name);                                                                   \
    }

PLAIN(cuInit)
NUMBER(cuDriverGetVersion, 12040)
NUMBER(cuDeviceGetCount, 1)
NUMBER(cuDeviceGet, 0)
NUMBER(cuDeviceGetAttribute, 9)
MAKER(cuDevicePrimaryCtxRetain)
PLAIN(cuDevicePrimaryCtxRelease_v2)
PLAIN(cuCtxSetCurrent)
MAKER(cuMemAlloc_v2)
PLAIN(cuMemFree_v2)
MAKER(cuMemHostAlloc)
PLAIN(cuMemFreeHost)
MAKER(cuMemHostGetDevicePointer_v2)
MAKER(cuStreamCreate)
PLAIN(cuStreamDestroy_v2)
PLAIN(cuStreamSynchronize)
PLAIN(cuStreamWaitEvent)
PLAIN(cuStreamBeginCapture_v2)
PLAIN(cuStreamEndCapture)
PLAIN(cuMemcpyHtoDAsync_v2)
PLAIN(cuMemcpyDtoHAsync_v2)
PLAIN(cuMemcpyDtoDAsync_v2)
PLAIN(cuMemsetD8Async)
MAKER(cuEventCreate)
PLAIN(cuEventDestroy_v2)
PLAIN(cuEventRecord)
PLAIN(cuEventSynchronize)
PLAIN(cuEventElapsedTime)
MAKER(cuModuleLoadData)
PLAIN(cuModuleUnload)
MAKER(cuModuleGetFunction)
NUMBER(cuFuncGetAttribute, 90)
PLAIN(cuFuncSetAttribute)
PLAIN(cuLaunchKernelEx)
PLAIN(cuTensorMapEncodeTiled)
MAKER(cuGraphInstantiateWithFlags)
PLAIN(cuGraphUpload)
PLAIN(cuGraphLaunch)
PLAIN(cuGraphExecDestroy)
PLAIN(cuGraphDestroy)

int cuDeviceGetName(char *out, int size);
int cuDeviceGetName(char *out, int size)
{
    snprintf(out, (size_t)size, "a card of paper");
    return result_of("cuDeviceGetName");
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = (size_t)3 << 20;
    *total_bytes = (size_t)1 << 30;
    return 0;
}

int cuGetErrorName(int code, const char **out);
int cuGetErrorName(int code, const char **out)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {{2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) {
            *out = names[i].name;
            return 0;
        }
    return 1;
}
