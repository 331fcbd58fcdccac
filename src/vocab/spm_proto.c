/* Reading SentencePiece's tokenizer.model. */
#include "vocab/spm_proto.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_PIECES = 1 << 22 };

/* How a field is written. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* One field of a message. */
typedef struct field {
    uint32_t number;
    uint32_t wire;
    uint64_t value; /* a varint, or the bits of a number of fixed size */
    span bytes;     /* WIRE_BYTES */
    size_t at;      /* where it begins in the file */
} field;

/* A message inside the file. */
typedef struct message {
    cursor c;
    size_t offset; /* of its first byte in the file */
} message;

static lace_status fail_at(lace_error *err, uint64_t at, const char *what)
{
    return error_at(err, LACE_E_VOCAB, at, "tokenizer.model: %s", what);
}

static lace_status read_varint(message *m, uint64_t *out, lace_error *err)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (cursor_left(&m->c) == 0)
            return error_at(err, LACE_E_TRUNC, m->offset + m->c.at,
                            "tokenizer.model: ends inside a number");
        uint8_t byte = m->c.bytes.data[m->c.at++];
        if (shift == 63 && byte > 1)
            break;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return LACE_OK;
    }
    return fail_at(err, m->offset + m->c.at, "has a number of more than 64 bits");
}

static lace_status take(message *m, uint64_t n, span *out, lace_error *err)
{
    if (n > cursor_left(&m->c))
        return error_at(err, LACE_E_TRUNC, m->offset + m->c.at,
                        "tokenizer.model: has a field of %llu bytes, but only %zu are left",
                        (unsigned long long)n, cursor_left(&m->c));
    return cursor_take(&m->c, n, out, "field", err);
}

static lace_status read_field(message *m, field *out, lace_error *err)
{
    uint64_t tag, n = 0;
    *out = (field){.at = m->offset + m->c.at};
    TRY(read_varint(m, &tag, err));
    out->number = (uint32_t)(tag >> 3);
    out->wire = (uint32_t)(tag & 7);
    if (tag >> 32 || out->number == 0)
        return fail_at(err, out->at, "has a field whose number is not allowed");
    switch (out->wire) {
    case WIRE_VARINT:
        return read_varint(m, &out->value, err);
    case WIRE_BYTES:
        TRY(read_varint(m, &n, err));
        return take(m, n, &out->bytes, err);
    case WIRE_64:
        TRY(take(m, 8, &out->bytes, err));
        out->value = load_u64(out->bytes.data);
        return LACE_OK;
    case WIRE_32:
        TRY(take(m, 4, &out->bytes, err));
        out->value = load_u32(out->bytes.data);
        return LACE_OK;
    default:
        return fail_at(err, out->at, "has a field of an unknown kind");
    }
}

/* A message that is the value of a field. */
static lace_status open_message(const field *f, const message *outer, message *out, lace_error *err)
{
    if (f->wire != WIRE_BYTES)
        return fail_at(err, f->at, "has a number where a message is expected");
    *out = (message){{f->bytes, 0}, outer->offset + outer->c.at - f->bytes.size};
    return LACE_OK;
}

static lace_status expect(const field *f, uint32_t wire, const char *what, lace_error *err)
{
    return f->wire == wire ? LACE_OK : fail_at(err, f->at, what);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* What the file says, in the order of its fields. */
typedef struct model_file {
    vocab *v;
    arena *memory;
    text *tokens;
    float *scores;
    int32_t *types;
    size_t n_pieces;
    uint64_t model_type;
} model_file;

/* Pieces that are found in the text itself are written as they stand there: U+2581 is a space. */
static lace_status write_spaces(model_file *f, text *piece, lace_error *err)
{
    char *copy = arena_alloc(f->memory, piece->size + 1, 1);
    if (!copy)
        return error_nomem(err, "the vocabulary");
    size_t n = 0;
    for (size_t i = 0; i < piece->size; n++) {
        bool is_mark = piece->size - i >= 3 && memcmp(piece->data + i, "\xE2\x96\x81", 3) == 0;
        copy[n] = is_mark ? ' ' : piece->data[i];
        i += is_mark ? 3 : 1;
    }
    *piece = (text){copy, n};
    return LACE_OK;
}

static lace_status read_piece(message m, size_t i, model_file *f, lace_error *err)
{
    size_t start = m.offset;
    f->types[i] = TOKEN_NORMAL;
    f->tokens[i] = (text){"", 0};
    while (cursor_left(&m.c) > 0) {
        field x;
        TRY(read_field(&m, &x, err));
        if (x.number == 1) {
            TRY(expect(&x, WIRE_BYTES, "piece: expected a text", err));
            f->tokens[i] = (text){(const char *)x.bytes.data, x.bytes.size};
        } else if (x.number == 2) {
            TRY(expect(&x, WIRE_32, "score: expected a float", err));
            f->scores[i] = load_f32(x.bytes.data);
        } else if (x.number == 3) {
            TRY(expect(&x, WIRE_VARINT, "type: expected a number", err));
            if (x.value < TOKEN_NORMAL || x.value > TOKEN_BYTE)
                return fail_at(err, x.at, "type: expected 1 to 6");
            f->types[i] = (int32_t)x.value;
        }
    }
    if (!utf8_is_valid(f->tokens[i].data, f->tokens[i].size))
        return fail_at(err, start, "has a piece that is not UTF-8");
    if (f->types[i] == TOKEN_USER_DEFINED)
        TRY(write_spaces(f, &f->tokens[i], err));
    if (!isfinite(f->scores[i]))
        return fail_at(err, start, "has a score that is not a finite number");
    return LACE_OK;
}

/* Negative ids are written as 64-bit numbers. */
static lace_status read_id(const field *x, const model_file *f, int32_t *out, lace_error *err)
{
    TRY(expect(x, WIRE_VARINT, "expected a token", err));
    int64_t id = (int64_t)x->value;
    if (id == UINT32_MAX)
        id = -1;
    if (id < -1 || id >= (int64_t)f->n_pieces)
        return fail_at(err, x->at, "trainer_spec: names a special token that does not exist");
    *out = (int32_t)id;
    return LACE_OK;
}

static lace_status read_trainer(message m, model_file *f, lace_error *err)
{
    int32_t *const ids[] = {&f->v->unk, &f->v->bos, &f->v->eos, &f->v->pad};
    while (cursor_left(&m.c) > 0) {
        field x;
        TRY(read_field(&m, &x, err));
        switch (x.number) {
        case 3:
            TRY(expect(&x, WIRE_VARINT, "model_type: expected a number", err));
            f->model_type = x.value;
            break;
        case 24:
            TRY(expect(&x, WIRE_VARINT, "treat_whitespace_as_suffix: expected a boolean", err));
            f->v->treat_whitespace_as_suffix = x.value != 0;
            break;
        case 40: /* ids, in their order */
        case 41:
        case 42:
        case 43:
            TRY(read_id(&x, f, ids[x.number - 40], err));
            break;
        default:
            break;
        }
    }
    return LACE_OK;
}

static lace_status read_normalizer(message m, model_file *f, lace_error *err)
{
    while (cursor_left(&m.c) > 0) {
        field x;
        TRY(read_field(&m, &x, err));
        if (x.number == 2) {
            TRY(expect(&x, WIRE_BYTES, "precompiled_charsmap: expected bytes", err));
            f->v->precompiled_charsmap = x.bytes;
        } else if (x.number == 3) {
            TRY(expect(&x, WIRE_VARINT, "add_dummy_prefix: expected a boolean", err));
            f->v->add_space_prefix = x.value != 0;
        } else if (x.number == 4) {
            TRY(expect(&x, WIRE_VARINT, "remove_extra_whitespaces: expected a boolean", err));
            f->v->remove_extra_whitespaces = x.value != 0;
        }
    }
    return LACE_OK;
}

/* ---- All together ---------------------------------------------------------------------------- */

static lace_status count_pieces(message m, size_t *out, lace_error *err)
{
    *out = 0;
    while (cursor_left(&m.c) > 0) {
        field x;
        TRY(read_field(&m, &x, err));
        *out += x.number == 1;
    }
    if (*out == 0 || *out > MAX_PIECES)
        return error_set(err, LACE_E_VOCAB, "tokenizer.model: has %zu pieces, expected 1 to %d",
                         *out, MAX_PIECES);
    return LACE_OK;
}

static lace_status read_fields(message m, model_file *f, lace_error *err)
{
    size_t i = 0;
    while (cursor_left(&m.c) > 0) {
        field x;
        message inner;
        TRY(read_field(&m, &x, err));
        if (x.number < 1 || x.number > 3)
            continue;
        TRY(open_message(&x, &m, &inner, err));
        if (x.number == 1)
            TRY(read_piece(inner, i++, f, err));
        else
            TRY(x.number == 2 ? read_trainer(inner, f, err) : read_normalizer(inner, f, err));
    }
    return LACE_OK;
}

/* Defaults of the format that fit the vocabulary. */
static void set_defaults(model_file *f)
{
    vocab *v = f->v;
    *v = vocab_default(VOCAB_SPM);
    v->add_space_prefix = true;
    v->remove_extra_whitespaces = true;
    v->unk = 0;
    v->bos = f->n_pieces > 1 ? 1 : -1;
    v->eos = f->n_pieces > 2 ? 2 : -1;
}

static lace_status set_kind(model_file *f, lace_error *err)
{
    enum { UNIGRAM = 1, BPE = 2 };
    vocab *v = f->v;
    if (f->model_type != UNIGRAM && f->model_type != BPE)
        return error_set(err, LACE_E_VOCAB,
                         "tokenizer.model: trainer_spec.model_type: %llu is not supported, "
                         "expected 1 (unigram) or 2 (BPE)",
                         (unsigned long long)f->model_type);
    v->kind = f->model_type == BPE ? VOCAB_SPM : VOCAB_UNIGRAM;
    if (v->kind == VOCAB_UNIGRAM)
        return LACE_OK;
    if (v->precompiled_charsmap.size > 0 || v->treat_whitespace_as_suffix)
        return error_set(err, LACE_E_VOCAB, "tokenizer.model: %s is not supported with BPE",
                         v->treat_whitespace_as_suffix ? "trainer_spec.treat_whitespace_as_suffix"
                                                       : "normalizer_spec.precompiled_charsmap");
    if (v->remove_extra_whitespaces)
        return error_set(err, LACE_E_VOCAB,
                         "tokenizer.model: normalizer_spec.remove_extra_whitespaces is "
                         "not supported with BPE");
    return LACE_OK;
}

lace_status spm_proto_read(span bytes, arena *memory, vocab *out, lace_error *err)
{
    message m = {{bytes, 0}, 0};
    model_file f = {.v = out, .memory = memory, .model_type = 1};
    *out = vocab_default(VOCAB_SPM);
    TRY(count_pieces(m, &f.n_pieces, err));
    set_defaults(&f);
    f.tokens = arena_alloc(memory, f.n_pieces, sizeof *f.tokens);
    f.scores = arena_alloc(memory, f.n_pieces, sizeof *f.scores);
    f.types = arena_alloc(memory, f.n_pieces, sizeof *f.types);
    if (!f.tokens || !f.scores || !f.types)
        return error_nomem(err, "the vocabulary");
    TRY(read_fields(m, &f, err));
    out->tokens = f.tokens;
    out->scores = f.scores;
    out->types = f.types;
    out->n_tokens = f.n_pieces;
    return set_kind(&f, err);
}
