/* What all shaders share: addresses, and the struct that a launch is told. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require

struct expert_choice {
    uint expert;
    float weight;
};

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer floats_at { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer words_at { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer choices_at { expert_choice v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer matrices_at { words_at v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer pieces_at { uvec4 v[]; };

#include "vulkan_params.h"

#define PARAMS(type)                                                                               \
    layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer params_at         \
    {                                                                                              \
        type value;                                                                                \
    };                                                                                             \
    layout(push_constant, scalar) uniform pushed { params_at params; };

#define IS_NULL(address) (uvec2(address) == uvec2(0))

#define GROUP gl_WorkGroupID
#define THREAD gl_LocalInvocationID.x

/* Of a row whose columns several workgroups (of y) share. */
#define FIRST_COLUMN (GROUP.y * THREADS + THREAD)
#define NEXT_COLUMN (gl_NumWorkGroups.y * THREADS)

/* HAS_OWN_SIZE: the shader says how many threads a workgroup has. */
#ifndef HAS_OWN_SIZE
#define THREADS 64
layout(local_size_x = THREADS) in;
#endif

/* address + n * size, where that may not fit into 32 bits. */
uvec2 address_plus(uvec2 address, uint n, uint size)
{
    uint high, low, carry;
    umulExtended(n, size, high, low);
    low = uaddCarry(address.x, low, carry);
    return uvec2(low, address.y + high + carry);
}
