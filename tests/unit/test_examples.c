/* The examples: they run, and the one at the end of lace.h is the file in examples/. */
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

/* The comment that ends lace.h, without its frame. */
static void unframe(const char *header, buf *out)
{
    buf_init(out, 1 << 20);
    const char *line = strstr(header, "/* ---- Example");
    for (int i = 0; line && i < 2; i++) /* the title and the empty line below it */
        line = strchr(line, '\n') + 1;
    for (; line && strncmp(line, " */", 3) != 0; line = strchr(line, '\n') + 1) {
        size_t n = strcspn(line, "\n");
        size_t frame = n < 3 ? n : 3; /* " * " */
        buf_append(out, line + frame, n - frame);
        buf_append(out, "\n", 1);
    }
}

static void the_header_ends_with_the_example(void)
{
    buf header, example, comment;
    if (!CHECK(read_whole("include/lace.h", &header)) ||
        !CHECK(read_whole("examples/complete.c", &example)))
        return;
    unframe(header.data, &comment);
    CHECK(example.size > 500);
    CHECK(comment.size == example.size);
    CHECK(comment.data && memcmp(comment.data, example.data, example.size) == 0);
    buf_deinit(&header);
    buf_deinit(&example);
    buf_deinit(&comment);
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
    CASE(the_header_ends_with_the_example);
    CASE(complete_continues_a_text);
    return tap_end();
}
