/* embed, gather, rope_table: rows that are fetched, or made from positions. */
#include <string.h>

#include "checkkernels.h"
#include "tensor/codec/unpack.h"
#include "tensor/codec/pack.h"

enum { MAX_TOKENS = 37 };

/* The same values from the same blocks: every decoder rounds in the same places. */
static void check_embed_type(const kernel_table *ref, const kernel_table *table, dtype type)
{
    static const int widths[] = {32, 256, 288, 2048};
    const char *name = dtype_describe(type)->name;
    if (!check_begin("embed", name, CHECK_FN(table->ops[OP_EMBED])))
        return;
    for (int i = 0; i < 4; i++)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int width = widths[i], n_rows = 50, n_tokens = check_random_int(0, MAX_TOKENS);
            if (width % dtype_describe(type)->block_values)
                continue;
            check_shape("%s width %d tokens %d by %d workers %d", name, width, n_tokens,
                        (i + n) % 4, n);
            uint8_t *blocks = check_alloc(row_bytes(type, width) * (uint64_t)n_rows);
            float *x = check_alloc((uint64_t)width * 4);
            for (int r = 0; r < n_rows; r++) {
                check_fill_f32(x, width, CHECK_NORMAL);
                pack_row(type, x, width, blocks + row_bytes(type, width) * (uint64_t)r);
            }
            int32_t tokens[MAX_TOKENS];
            for (int t = 0; t < n_tokens; t++)
                tokens[t] = t == 0 ? n_rows - 1 : check_random_int(0, n_rows - 1);
            embed_index by = (embed_index)((i + n) % 4);
            batch b = {.n_tokens = n_tokens};
            *(by == EMBED_BY_POSITION  ? &b.positions
              : by == EMBED_BY_SEGMENT ? &b.segments
                                       : &b.tokens) = tokens;
            if (by == EMBED_BY_KNOWN_TOKEN) /* and two that the table does not have */
                tokens[0] = n % 2 ? -1 : n_rows;
            operand want = check_operand(ACT_F32, width, n_tokens);
            operand got = check_operand_copy(&want, n_tokens);
            step s = {.op = OP_EMBED, .out = {want}};
            weight embedding = {.type = type, .n_rows = n_rows, .n_cols = width, .data = blocks};
            s.a.embed.table = &embedding;
            s.a.embed.by = by;
            s.a.embed.scale = n == 2 ? 45.254834f : 1.0f;
            check_run(ref->ops[OP_EMBED], &s, &b, 1, 0);
            unpack_row(type, blocks, width, x);
            for (int k = 0; k < width && n_tokens > 0 && by == EMBED_BY_KNOWN_TOKEN; k++)
                check_true(check_row(&want, 0)[k] == x[k] * s.a.embed.scale, "the first row");
            s.out[0] = got;
            check_run(table->ops[OP_EMBED], &s, &b, n, 0);
            check_bytes("out", want.data, got.data, want.stride * (uint64_t)n_tokens);
        }
    check_end();
}

static void check_gather(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("gather", NULL, CHECK_FN(table->ops[OP_GATHER])))
        return;
    for (int width = 1; width < 5000; width = width * 3 + 2)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int n_tokens = check_random_int(1, MAX_TOKENS),
                n_outputs = check_random_int(0, n_tokens);
            check_shape("width %d tokens %d outputs %d workers %d", width, n_tokens, n_outputs, n);
            operand in = check_operand(ACT_F32, width, n_tokens);
            check_fill_bytes(in.data, in.stride * (uint64_t)n_tokens);
            int32_t outputs[MAX_TOKENS];
            for (int i = 0; i < n_outputs; i++)
                outputs[i] = check_random_int(0, n_tokens - 1);
            batch b = {.n_tokens = n_tokens, .n_outputs = n_outputs, .outputs = outputs};
            operand want = check_operand(ACT_F32, width, n_outputs);
            operand got = check_operand_copy(&want, n_outputs);
            step s = {.op = OP_GATHER, .is_output = true, .in = {in}, .out = {want}};
            check_run(ref->ops[OP_GATHER], &s, &b, 1, 0);
            s.out[0] = got;
            check_run(table->ops[OP_GATHER], &s, &b, n, 0);
            check_bytes("out", want.data, got.data, want.stride * (uint64_t)n_outputs);
            for (int i = 0; i < n_outputs; i++)
                check_bytes("row", check_row(&in, outputs[i]), check_row(&got, i),
                            4u * (unsigned)width);
        }
    check_end();
}

static void check_rope_table(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("rope_table", NULL, CHECK_FN(table->ops[OP_ROPE_TABLE])))
        return;
    for (int width = 2; width <= 256; width = width * 2 + 4)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int n_tokens = check_random_int(1, MAX_TOKENS);
            check_shape("width %d tokens %d workers %d", width, n_tokens, n);
            float *frequencies = check_alloc((uint64_t)width / 2 * 4);
            int32_t positions[MAX_TOKENS];
            for (int i = 0; i < width / 2; i++)
                frequencies[i] = check_random_f32(0, 1);
            for (int t = 0; t < n_tokens; t++)
                positions[t] = check_random_int(0, 131072);
            batch b = {.n_tokens = n_tokens, .positions = positions};
            operand want = check_operand(ACT_F32, width, n_tokens);
            operand got = check_operand_copy(&want, n_tokens);
            step s = {.op = OP_ROPE_TABLE, .out = {want}};
            s.a.rope_table.frequencies = frequencies;
            s.a.rope_table.magnitude = 1.25f;
            check_run(ref->ops[OP_ROPE_TABLE], &s, &b, 1, 0);
            s.out[0] = got;
            check_run(table->ops[OP_ROPE_TABLE], &s, &b, n, 0);
            /* Values lie within +-1.25; libraries differ in the last bit or two: (1.2e-7)^2. */
            check_rows("out", &want, &got, n_tokens, 1e-13);
        }
    check_end();
}

void check_embed(const kernel_table *ref, const kernel_table *table)
{
    for (int type = 0; type < DTYPE_COUNT; type++)
        if (pack_ref[type] && unpack_ref[type])
            check_embed_type(ref, table, (dtype)type);
    check_gather(ref, table);
    check_rope_table(ref, table);
}
