/* The examples: they run, and the snippets in the comments of lace.h compile. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/file.h"
#include "tap.h"

static bool read_whole(const char *path, buf *out)
{
    lace_error err = {0};
    buf_init(out, 1 << 20);
    if (file_read(path, out, &err) == LACE_OK)
        return true;
    tap_note("%s", err.text);
    return false;
}

/* What the snippets of lace.h use and do not declare. */
static const char declarations[] =
    "#include <lace.h>\n"
    "#include <string.h>\n"
    "extern lace_model *model; extern lace_error err; extern lace_token token; extern float "
    "*logits;\n"
    "extern const char *schema; extern lace_grammar *grammar; extern lace_grammar_state *state;\n"
    "extern lace_speculator *speculator; extern const lace_token *tokens; extern size_t n_tokens;\n"
    "extern lace_batcher *batcher; extern lace_generation_options options;\n"
    "extern lace_generation *generation; extern lace_embedder *embedder; extern int32_t n_embd;\n"
    "extern const lace_token *a, *b; extern size_t n_a, n_b; extern float vectors[];\n"
    "extern lace_chat *chat; extern lace_chat_request request; extern lace_prompt *prompt;\n"
    "extern lace_reply *reply; extern lace_reply_fn on_event; extern void *user;\n"
    "extern const char *message; extern int32_t sql; extern lace_session_options session;\n"
    "extern lace_tower *tower; extern lace_image *image; extern const void *bytes;\n"
    "extern size_t n_bytes, capacity, n_placed; extern lace_token placed[];\n";

/*
 * The snippets in the comments of lace.h as functions: lines that stand five columns behind the
 * comment's star, and those below them that stand further in. A line in dots ("... choose a token ...") is for the reader, and does nothing.
 */
static int snippets_of(const char *header, buf *out)
{
    int n_snippets = 0;
    bool is_inside = false;
    const char *end = strstr(header, "#ifdef __cplusplus\n}"); /* behind the last declaration */
    buf_append(out, declarations, sizeof declarations - 1);
    for (const char *line = header; line && line < end; line = strchr(line, '\n') + 1) {
        bool is_snippet = strncmp(line, " *     ", 7) == 0 && (is_inside || line[7] != ' ');
        if (is_snippet && !is_inside)
            buf_printf(out, "void snippet_%d(void);\nvoid snippet_%d(void)\n{\n", n_snippets,
                       n_snippets);
        if (!is_snippet && is_inside)
            buf_append(out, "}\n", 2);
        n_snippets += is_inside && !is_snippet;
        is_inside = is_snippet;
        if (!is_snippet)
            continue;
        const char *code = line + 2 + strspn(line + 2, " ");
        if (strncmp(code, "...", 3) == 0)
            buf_append(out, ";\n", 2);
        else
            buf_append(out, code, strcspn(code, "\n") + 1);
    }
    return n_snippets;
}

static void the_snippets_of_the_header_compile(void)
{
    buf header, code;
    buf_init(&code, 1 << 20);
    if (!CHECK(read_whole("include/lace.h", &header)))
        return;
    /* adapters, grammars, speculation, batcher, images, chat, embedder */
    CHECK(snippets_of(header.data, &code) == 7);
    const char *compiler = getenv("CC");
    char command[600];
    snprintf(command, sizeof command,
             "%s -std=c17 -Wall -Wextra -Werror -fsyntax-only -Iinclude -x c -",
             compiler ? compiler : "cc");
    FILE *pipe = popen(command, "w");
    if (!CHECK(pipe != NULL))
        return;
    CHECK(fwrite(code.data, 1, code.size, pipe) == code.size);
    CHECK(pclose(pipe) == 0);
    buf_deinit(&header);
    buf_deinit(&code);
}

static void complete_continues_a_text(void)
{
    const char *folder = getenv("LACE_EXAMPLES");
    char command[600];
    snprintf(command, sizeof command, "%s/complete models/tales-4m.gguf 'Once upon a time'",
             folder ? folder : "build/examples");
    char printed[4096];
    FILE *pipe = popen(command, "r");
    if (!CHECK(pipe != NULL))
        return;
    size_t n = fread(printed, 1, sizeof printed, pipe);
    int status = pclose(pipe);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(n > 100); /* 100 tokens of English */
}

int main(void)
{
    CASE(the_snippets_of_the_header_compile);
    CASE(complete_continues_a_text);
    return tap_end();
}
