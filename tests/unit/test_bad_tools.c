/*
 * Bad files in the hands of every tool: one line that names the file and what is wrong,
 * exit code 1, and nothing written. What each class of damage is called is tested where it is
 * found (test_gguf_bad.c, test_config_bad.c, test_safetensors.c ...).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bad_file.h"
#include "command.h"
#include "tap.h"

/* What is done to the seed; offsets are those of the header. */
enum damage { CUT, HALF, MAGIC, VERSION, COUNT, KEY, N_DAMAGES };

static const struct {
    const char *name, *expected;
} damages[N_DAMAGES] = {
    [CUT] = {"cut.gguf", "it is incomplete"},
    [HALF] = {"half.gguf", "incomplete; get it again"},
    [MAGIC] = {"magic.gguf", "not a GGUF file"},
    [VERSION] = {"version.gguf", "version: 9"},
    [COUNT] = {"count.gguf", "n_kv"},
    [KEY] = {"key.gguf", "llama.block_count: is missing"},
};

static void write_damaged(int which)
{
    buf b;
    buf_init(&b, 1 << 22);
    CHECK(buf_append(&b, bad_seed.data, bad_seed.size) == LACE_OK);
    const gguf_value *key = gguf_find(bad_seed_gguf, "llama.block_count");
    switch (which) {
    case CUT:
        b.size -= 512;
        break;
    case HALF:
        b.size /= 2;
        break;
    case MAGIC:
        memcpy(b.data, "FUGG", 4);
        break;
    case VERSION:
        bad_set_u32(&b, 4, 9);
        break;
    case COUNT:
        bad_set_u64(&b, 16, UINT64_MAX);
        break;
    case KEY: /* its name: then there is no number of layers */
        b.data[key->key.data - bad_seed.data] ^= 1;
        break;
    }
    CHECK(command_write(damages[which].name, b.data, b.size));
    buf_deinit(&b);
}

/* %s is the bad file. */
static const char *const tools[] = {
    "inspect %s",
    "run %s -p a -n 1",
    "logits %s --tokens 1 -o $dir/made",
    "tokenize %s a",
    "quantize %s $dir/made q8_0",
    "quantize %s $dir/made s4 --calibrate $dir/text",
    "prune %s $dir/made --sparsity 0.5",
    "fit %s -o $dir/made --size 1M --calibrate $dir/text",
    "imatrix %s -f $dir/text -o $dir/made",
    "perplexity %s -f $dir/text",
    "perplexity $dir/good.gguf -f $dir/text -c 16 --against %s",
    "compare $dir/good.gguf %s -f $dir/text",
    "bench %s -n 1",
    "serve %s --port 0",
};

static void check_tool(const char *tool, const char *name, const char *expected)
{
    char command[512], path[128];
    snprintf(path, sizeof path, "$dir/%s", name);
    const char *at = strstr(tool, "%s");
    snprintf(command, sizeof command, "%.*s%s%s", (int)(at - tool), tool, path, at + 2);
    command_run("%s", command);
    bool is_good = ran.code == 1 && strstr(ran.err, name) && strstr(ran.err, expected) &&
                   strchr(ran.err, '\n') == ran.err + ran.n_err - 1;
    if (!CHECK(is_good))
        tap_note("%s: exit %d, %s", command, ran.code, ran.err);
    if (!CHECK(access(command_path("made"), F_OK) != 0)) {
        tap_note("%s left a file", command);
        unlink(command_path("made"));
    }
}

static void every_tool_refuses_a_bad_file_with_one_line(void)
{
    for (int i = 0; i < N_DAMAGES; i++) {
        write_damaged(i);
        for (size_t k = 0; k < sizeof tools / sizeof *tools; k++)
            /* These need no number of layers. */
            if (i != KEY || (!strstr(tools[k], "tokenize") && !strstr(tools[k], "inspect")))
                check_tool(tools[k], damages[i].name, damages[i].expected);
    }
}

static void every_tool_refuses_what_is_not_there(void)
{
    for (size_t k = 0; k < sizeof tools / sizeof *tools; k++)
        check_tool(tools[k], "none.gguf", "");
}

static void an_existing_output_stays_as_it_was(void)
{
    static const char *const writers[] = {
        "quantize $dir/cut.gguf $dir/old q8_0 -y", "prune $dir/cut.gguf $dir/old --sparsity 0.5 -y",
        "fit $dir/cut.gguf -o $dir/old --size 1M -y", "convert $dir/none -o $dir/old -y"};
    write_damaged(CUT);
    CHECK(command_write("old", "what was there", 14));
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        char found[32] = "";
        command_run("%s", writers[i]);
        CHECK(ran.code == 1);
        FILE *f = fopen(command_path("old"), "rb");
        size_t n = f ? fread(found, 1, sizeof found, f) : 0;
        if (f)
            fclose(f);
        if (!CHECK(n == 14 && memcmp(found, "what was there", 14) == 0))
            tap_note("%s changed it", writers[i]);
    }
}

int main(void)
{
    char words[32768];
    if (!command_begin() || !bad_seed_create())
        return 1;
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = "mostly holes "[i % 13];
    command_write("text", words, sizeof words);
    command_write("good.gguf", bad_seed.data, bad_seed.size);
    CASE(every_tool_refuses_a_bad_file_with_one_line);
    CASE(every_tool_refuses_what_is_not_there);
    CASE(an_existing_output_stays_as_it_was);
    bad_seed_free();
    command_end();
    return tap_end();
}
