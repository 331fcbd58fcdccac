/* Rows of a table, or of the batch itself: some workgroups for each token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "block_values.glsl"
PARAMS(embed_args)

void main()
{
    embed_args p = params.value;
    uint row = p.indices.v[GROUP.x];
    bool is_given = !IS_NULL(p.given) && int(row) == ID_GIVEN;
    words_at from = words_at(address_plus(uvec2(p.table), row < p.n_rows ? row : 0, p.row_bytes));
    for (uint i = FIRST_COLUMN; i < p.width; i += NEXT_COLUMN)
        p.result.v[GROUP.x * p.out_stride + i] = is_given ? p.given.v[GROUP.x * p.given_stride + i]
                                                          : p.scale * block_value(from, 0, i);
    for (uint i = THREAD; !IS_NULL(p.beside) && i < p.width; i += THREADS)
        p.result.v[GROUP.x * p.out_stride + p.width + i] = p.beside.v[GROUP.x * p.width + i];
}
