/*
 * Cooperative matrices of 16 x 16: A and B of halves, C of floats. They come out of and go to shared
 * memory; at and stride count elements of its array, and by columns means that these lie together.
 *
 * Compilers of stable distributions know only NVIDIA's extension; scripts/khr_matrix.pl makes KHR's of
 * it. For that, matrices have their sizes from constants 10, 11 (A), 12, 13 (B), and 14, 15 (C).
 *
 * EMULATED: threads play a matrix, 32 of them a subgroup. Each has half a row of C, and of A and B what
 * that takes. It is slow, but a processor can run it (whose driver ends all loops of a shader after 65,535
 * rounds), and it shows that all but the matrices themselves is right. Barriers of a subgroup are those of
 * the workgroup there.
 */
#define FRAG 16
#ifdef EMULATED
struct matrix_a {
    vec4 v[FRAG / 4]; /* row LANE / 2 */
};
struct matrix_b {
    vec4 v[2 * FRAG]; /* of each row, columns 8 (LANE % 2) to 8 (LANE % 2) + 7 */
};
struct matrix_c {
    vec4 v[2]; /* of row LANE / 2, columns as of B */
};
#define MAT_A matrix_a
#define MAT_B matrix_b
#define MAT_C matrix_c
#define SUBGROUP (THREAD / 32)
#define LANE (THREAD % 32)
#define HALF_COLUMN (LANE % 2 * (FRAG / 2))
#define MATRIX_CLEAR(m) m.v[0] = m.v[1] = vec4(0.0)
#define HALF_OF(array, at, e) unpackHalf2x16(array[(at) + (e) / 8][(e) % 8 / 2])[(e) & 1]
#define MATRIX_LOAD_A(m, array, at, stride)                                                        \
    for (uint k_ = 0; k_ < FRAG; k_++)                                                             \
    m.v[k_ / 4][k_ % 4] = HALF_OF(array, at, LANE / 2 * 8 * (stride) + k_)
#define MATRIX_LOAD_B(m, array, at, stride, by_columns)                                            \
    for (uint k_ = 0; k_ < FRAG; k_++) {                                                           \
        [[unroll]] for (uint i_ = 0; i_ < FRAG / 2; i_++) {                                        \
            uint c_ = HALF_COLUMN + i_;                                                            \
            uint e_ = by_columns ? c_ * 8 * (stride) + k_ : k_ * 8 * (stride) + c_;                \
            m.v[2 * k_ + i_ / 4][i_ % 4] = HALF_OF(array, at, e_);                                 \
        }                                                                                          \
    }
#define MATRIX_STORE(m, array, at, stride, by_columns)                                             \
    [[unroll]] for (uint i_ = 0; i_ < FRAG / 2; i_++) {                                            \
        uint r_ = LANE / 2, c_ = HALF_COLUMN + i_;                                                 \
        array[(at) + (by_columns ? c_ * (stride) + r_ : r_ * (stride) + c_)] = m.v[i_ / 4][i_ % 4]; \
    }
#define MATRIX_ADD_PRODUCT(c, a, b)                                                                \
    for (uint k_ = 0; k_ < FRAG; k_++) {                                                           \
        c.v[0] += a.v[k_ / 4][k_ % 4] * b.v[2 * k_];                                               \
        c.v[1] += a.v[k_ / 4][k_ % 4] * b.v[2 * k_ + 1];                                           \
    }
#define SUBGROUP_BARRIER() barrier()
#else
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
layout(constant_id = 10) const uint A_M = FRAG;
layout(constant_id = 11) const uint A_K = FRAG;
layout(constant_id = 12) const uint B_K = FRAG;
layout(constant_id = 13) const uint B_N = FRAG;
layout(constant_id = 14) const uint C_M = FRAG;
layout(constant_id = 15) const uint C_N = FRAG;
#define MAT_A fcoopmatNV<16, gl_ScopeSubgroup, A_M, A_K>
#define MAT_B fcoopmatNV<16, gl_ScopeSubgroup, B_K, B_N>
#define MAT_C fcoopmatNV<32, gl_ScopeSubgroup, C_M, C_N>
#define SUBGROUP gl_SubgroupID
#define LANE gl_SubgroupInvocationID
#define MATRIX_CLEAR(m) m = MAT_C(0.0)
#define MATRIX_LOAD_A(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define MATRIX_LOAD_B(m, array, at, stride, by_columns) coopMatLoadNV(m, array, at, stride, by_columns)
#define MATRIX_STORE(m, array, at, stride, by_columns) coopMatStoreNV(m, array, at, stride, by_columns)
#define MATRIX_ADD_PRODUCT(c, a, b) c = coopMatMulAddNV(a, b, c)
#define SUBGROUP_BARRIER()                                                                         \
    subgroupMemoryBarrierShared();                                                                 \
    subgroupBarrier()
#endif
