/* Page files: how a page of the prefix tree is written and read. */
#include "state/page_file.h"

#include <string.h>

enum { VERSION = 1, HEAD_BYTES = 24 + DIGEST_BYTES };

static const char magic[8] = {'L', 'A', 'C', 'E', 'P', 'A', 'G', 'E'};

page_shape page_shape_of(const states *kv)
{
    page_shape sizes = {.n_parts = kv->n_groups + 1};
    for (int32_t g = 0; g < kv->n_groups; g++)
        sizes.part_bytes[g] = kv->groups[g].page_bytes;
    sizes.part_bytes[kv->n_groups] = kv->slots.slot_bytes;
    return sizes;
}

bool page_key(const digest *parent, const int32_t tokens[PAGE_TOKENS], digest *out)
{
    return digest_of(parent->bytes, sizeof parent->bytes, tokens, PAGE_TOKENS * sizeof *tokens,
                     out);
}

/* Where the parts begin. */
static uint64_t parts_begin(const page_shape *sizes)
{
    return HEAD_BYTES + (uint64_t)sizes->n_parts * sizeof(uint64_t) + PAGE_TOKENS * sizeof(int32_t);
}

uint64_t page_file_bytes(const page_shape *sizes, const bool *has_part)
{
    uint64_t n = parts_begin(sizes) + DIGEST_BYTES;
    for (int32_t i = 0; i < sizes->n_parts; i++)
        n += has_part[i] ? sizes->part_bytes[i] : 0;
    return n;
}

static uint8_t *put_u32(uint8_t *at, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        *at++ = (uint8_t)(x >> 8 * i);
    return at;
}

static uint8_t *put_u64(uint8_t *at, uint64_t x)
{
    at = put_u32(at, (uint32_t)x);
    return put_u32(at, (uint32_t)(x >> 32));
}

void page_file_lay_out(const page_shape *sizes, page_file *p, uint8_t *bytes)
{
    uint8_t *at = bytes;
    memcpy(at, magic, sizeof magic);
    at = put_u32(at + sizeof magic, VERSION);
    at = put_u32(at, (uint32_t)sizes->n_parts);
    at = put_u32(at, PAGE_TOKENS);
    at = put_u32(at, 0);
    memcpy(at, p->parent.bytes, sizeof p->parent.bytes);
    at += sizeof p->parent.bytes;
    for (int32_t i = 0; i < sizes->n_parts; i++)
        at = put_u64(at, p->has_part[i] ? sizes->part_bytes[i] : 0);
    for (int32_t i = 0; i < PAGE_TOKENS; i++)
        at = put_u32(at, (uint32_t)p->tokens[i]);
    for (int32_t i = 0; i < sizes->n_parts; i++) {
        p->parts[i] = p->has_part[i] ? at : NULL;
        at += p->has_part[i] ? sizes->part_bytes[i] : 0;
    }
}

bool page_file_seal(uint8_t *bytes, uint64_t n_bytes)
{
    digest d;
    if (!digest_of(bytes, n_bytes - DIGEST_BYTES, NULL, 0, &d))
        return false;
    memcpy(bytes + n_bytes - DIGEST_BYTES, d.bytes, sizeof d.bytes);
    return true;
}

static lace_status check_digest(span bytes, lace_error *err)
{
    digest d;
    if (bytes.size < HEAD_BYTES + DIGEST_BYTES)
        return error_set(err, LACE_E_TRUNC, "a page file of %zu bytes is too short", bytes.size);
    if (memcmp(bytes.data, magic, sizeof magic) != 0)
        return error_set(err, LACE_E_MAGIC, "not a page file");
    size_t n = bytes.size - DIGEST_BYTES;
    if (!digest_of(bytes.data, n, NULL, 0, &d))
        return error_nomem(err, "a page file");
    return memcmp(d.bytes, bytes.data + n, sizeof d.bytes) == 0
               ? LACE_OK
               : error_set(err, LACE_E_META, "a page file has bytes that were not written so");
}

static lace_status read_head(cursor *c, const page_shape *sizes, page_file *out, lace_error *err)
{
    uint32_t version, n_parts, n_tokens, zero, token;
    span skipped, parent;
    TRY(cursor_take(c, sizeof magic, &skipped, "magic", err));
    TRY(cursor_u32(c, &version, "version", err));
    TRY(cursor_u32(c, &n_parts, "n_parts", err));
    TRY(cursor_u32(c, &n_tokens, "n_tokens", err));
    TRY(cursor_u32(c, &zero, "reserved", err));
    if (version != VERSION)
        return error_set(err, LACE_E_VERSION, "a page file of version %u", version);
    if (n_parts != (uint32_t)sizes->n_parts || n_tokens != PAGE_TOKENS || zero != 0)
        return error_set(err, LACE_E_COUNT, "a page file with %u parts and %u tokens", n_parts,
                         n_tokens);
    TRY(cursor_take(c, DIGEST_BYTES, &parent, "parent", err));
    memcpy(out->parent.bytes, parent.data, DIGEST_BYTES);
    for (int32_t i = 0; i < sizes->n_parts; i++) {
        uint64_t n;
        TRY(cursor_u64(c, &n, "a part's size", err));
        if (n != 0 && n != sizes->part_bytes[i])
            return error_set(err, LACE_E_SHAPE, "part %d of a page file has %llu bytes", i,
                             (unsigned long long)n);
        out->has_part[i] = n != 0;
    }
    for (int32_t i = 0; i < PAGE_TOKENS; i++) {
        TRY(cursor_u32(c, &token, "a token", err));
        out->tokens[i] = (int32_t)token;
    }
    return LACE_OK;
}

lace_status page_file_read(span bytes, const page_shape *sizes, page_file *out, lace_error *err)
{
    *out = (page_file){0};
    TRY(check_digest(bytes, err));
    cursor c = {.bytes = {bytes.data, bytes.size - DIGEST_BYTES}};
    TRY(read_head(&c, sizes, out, err));
    for (int32_t i = 0; i < sizes->n_parts; i++) {
        span part;
        if (!out->has_part[i])
            continue;
        TRY(cursor_take(&c, sizes->part_bytes[i], &part, "a part", err));
        out->parts[i] = part.data;
    }
    return cursor_left(&c) == 0 ? LACE_OK : error_set(err, LACE_E_TAIL, "a page file is too long");
}
