/* lace tokenize: the ids that a model sees for a text. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"

typedef struct tokenize_args {
    const char *file;
    bool no_special, no_parse_special, pieces;
} tokenize_args;

/* clang-format off */
static const arg_option options[] = {
    {"file", 'f', ARG_TEXT, offsetof(tokenize_args, file), .value = "FILE",
     .help = "the text is in this file, taken whole; - is standard input"},
    {"no-special", 0, ARG_FLAG, offsetof(tokenize_args, no_special),
     .help = "do not add the model's tokens for beginning and end (BOS, EOS)"},
    {"no-parse-special", 0, ARG_FLAG, offsetof(tokenize_args, no_parse_special),
     .help = "\"<s>\" in the text is three characters, not a token"},
    {"pieces", 0, ARG_FLAG, offsetof(tokenize_args, pieces),
     .help = "a table for people: each id and its text"},
};
/* clang-format on */

static lace_status append_ids(buf *out, const lace_token *tokens, size_t n)
{
    TRY(buf_append(out, "[", 1));
    for (size_t i = 0; i < n; i++)
        TRY(buf_printf(out, i ? ",%d" : "%d", tokens[i]));
    return buf_append_text(out, "]\n");
}

/* One line: the id and its text as it would be written in C, so that every byte can be seen. */
static lace_status append_piece(buf *out, lace_token id, const char *piece, size_t n)
{
    TRY(buf_printf(out, "%8d  \"", id));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)piece[i];
        if (c == '\n')
            TRY(buf_append_text(out, "\\n"));
        else if (c == '"' || c == '\\')
            TRY(buf_printf(out, "\\%c", c));
        else if (c < 0x20 || c == 0x7f)
            TRY(buf_printf(out, "\\x%02x", c));
        else
            TRY(buf_append(out, &piece[i], 1));
    }
    return buf_append_text(out, "\"\n");
}

/*
 * A table of ids and texts. A character may need several tokens: its text then stands beside the
 * last of them, and the others have "".
 */
static lace_status append_pieces(const lace_model *model, buf *out, const lace_token *tokens,
                                 size_t n, lace_error *err)
{
    lace_decoder *decoder;
    TRY(lace_decoder_create(model, &decoder, err));
    lace_status status = LACE_OK;
    const char *piece;
    size_t n_bytes;
    for (size_t i = 0; i < n && status == LACE_OK; i++) {
        status = lace_decoder_push(decoder, tokens[i], &piece, &n_bytes, err);
        if (status == LACE_OK)
            status = append_piece(out, tokens[i], piece, n_bytes);
    }
    lace_decoder_free(decoder);
    return status;
}

static lace_status print_tokens(const lace_model *model, const tokenize_args *a, const char *input,
                                size_t n_bytes, lace_error *err)
{
    unsigned flags = (a->no_special ? 0 : LACE_TOKENIZE_ADD_SPECIAL) |
                     (a->no_parse_special ? 0 : LACE_TOKENIZE_PARSE_SPECIAL);
    lace_token *tokens;
    size_t n;
    TRY(cli_tokenize(model, input, n_bytes, flags, &tokens, &n, err));
    buf out;
    buf_init(&out, SIZE_MAX / 2);
    lace_status status =
        a->pieces ? append_pieces(model, &out, tokens, n, err) : append_ids(&out, tokens, n);
    if (status == LACE_OK)
        status = cli_write(out.data ? out.data : "", out.size, err);
    else if (status == LACE_E_NOMEM)
        error_nomem(err, "the output");
    buf_deinit(&out);
    mem_free(tokens);
    return status;
}

static lace_status tokenize_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    tokenize_args a = {0};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (!a.file && words.count == 1)
        return args_error(v, err, "TEXT or -f FILE is missing");
    if (a.file && words.count == 2)
        return args_error(v, err, "TEXT and -f exclude each other");
    buf input;
    buf_init(&input, CLI_MAX_TEXT);
    lace_model *model = NULL;
    lace_status status =
        a.file ? file_read(a.file, &input, err) : buf_append_text(&input, words.at[1]);
    lace_model_options model_options = lace_model_options_default();
    model_options.vocab_only = true;
    if (status == LACE_OK)
        status = lace_model_open(words.at[0], &model_options, &model, err);
    if (status == LACE_OK)
        status = print_tokens(model, &a, input.data ? input.data : "", input.size, err);
    lace_model_close(model);
    buf_deinit(&input);
    return status;
}

VERB(tokenize, "tokenize", "MODEL (TEXT | -f FILE) [options]", "show the tokens of a text", 1, 2,
     .description = "Prints the ids as a JSON array on one line.\n",
     .examples = "  lace tokenize model.gguf \"Hello, world\"\n"
                 "  lace tokenize model.gguf --pieces \"Hello, world\"\n"
                 "  lace tokenize model.gguf -f book.txt --no-special | jq length\n")
