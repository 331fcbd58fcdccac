/*
 * SentencePiece's tokenizer.model: a protocol buffer, read with a small parser of our own.
 *
 *     ModelProto      1 pieces*, 2 trainer_spec, 3 normalizer_spec
 *     SentencePiece   1 piece, 2 score (f32), 3 type
 *     TrainerSpec     3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback,
 *                     40 unk_id, 41 bos_id, 42 eos_id, 43 pad_id
 *     NormalizerSpec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces
 *
 * Other fields are passed over. Types of pieces have the numbers of token_type.
 */
#ifndef LACE_VOCAB_SPM_PROTO_H
#define LACE_VOCAB_SPM_PROTO_H

#include "base/arena.h"
#include "tokenizer/tokenizer.h"

/*
 * Describe the vocabulary. It points into the bytes and into `memory`. LACE_E_TRUNC or LACE_E_VOCAB
 * with the place. Text that this kind of model is rewritten for is refused.
 */
lace_status spm_proto_read(span bytes, arena *memory, vocab *out, lace_error *err);

#endif
