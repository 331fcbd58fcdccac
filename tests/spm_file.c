/* A small tokenizer.model of SentencePiece. */
#include "spm_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(buf *out, const void *data, size_t n)
{
    if (buf_append(out, data, n) != LACE_OK)
        abort();
}

static void put_varint(buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        append(out, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    append(out, &(uint8_t){(uint8_t)value}, 1);
}

void proto_bytes(buf *out, unsigned field, const void *data, size_t n)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, n);
    append(out, data, n);
}

void proto_number(buf *out, unsigned field, uint64_t value)
{
    put_varint(out, field << 3);
    put_varint(out, value);
}

static void put_piece(buf *out, const char *piece, float score, int type)
{
    buf message;
    buf_init(&message, 1024);
    proto_bytes(&message, 1, piece, strlen(piece));
    put_varint(&message, 2 << 3 | 5);
    append(&message, &score, sizeof score); /* little-endian, as our machines are */
    if (type != 1)
        proto_number(&message, 3, (uint64_t)type);
    proto_bytes(out, 1, message.data, message.size);
    buf_deinit(&message);
}

void spm_file(const spm_options *options, buf *out)
{
    static const char *const words[] = {"\xE2\x96\x81", "h", "i", "hi", "\xE2\x96\x81hi"};
    static const float scores[] = {-4, -5, -6, -1, -2};
    buf_init(out, 1 << 20);
    put_piece(out, "<unk>", 0, 2);
    put_piece(out, "<s>", 0, 3);
    put_piece(out, "</s>", 0, 3);
    for (unsigned i = 0; i < 256 && !options->is_short; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        put_piece(out, name, 0, 6);
    }
    for (int i = 0; i < 5; i++)
        put_piece(out, words[i], scores[i], 1);
    buf message;
    buf_init(&message, 1024);
    proto_number(&message, 3, (uint64_t)options->model_type);
    proto_number(&message, 35, 1);
    proto_number(&message, 43, UINT64_MAX); /* no padding */
    proto_bytes(out, 2, message.data, message.size);
    buf_clear(&message);
    proto_bytes(&message, 1, "identity", 8);
    proto_number(&message, 3, !options->has_no_prefix);
    if (options->model_type == 2)
        proto_number(&message, 4, 0);
    proto_bytes(out, 3, message.data, message.size);
    buf_deinit(&message);
}
