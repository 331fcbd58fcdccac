/*
 * lace inspect: what a token and a sequence take is what the mechanism needs, and no more. The
 * models are tiny ones: 8 wide, with two heads of 4 of which one is of keys and values.
 */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "tap.h"
#include "tiny_model.h"

enum { HALF = 2, FLOAT = 4, KEYS_AND_VALUES = 2 };

/* A convolution keeps the inputs before the last, a head one matrix. */
#define CONV(width, taps)                 ((width) * ((taps)-1) * FLOAT)
#define HEADS(n, rows, columns)           ((n) * (rows) * (columns)*FLOAT)
#define ATTENDING(n_layers, n_heads, dim) ((n_layers) * (n_heads) * (dim)*KEYS_AND_VALUES * HALF)

/* A state space 16 wide has 4 heads of 4 x 2, a delta net two of 4 x 2. Heads begin at a multiple of
 * 64 bytes. */
#define LINES(bytes) (((bytes) + 63) / 64 * 64)
#define STATE_SPACE  (LINES(CONV(16 + 2 * 2 * 2, 3)) + HEADS(4, 4, 2))
#define DELTA_NET    (LINES(CONV(2 * 4 + 4, 2)) + HEADS(2, 4, 2))

typedef struct expected {
    const char *architecture;
    int token_bytes, sequence_bytes;
} expected;

static expected models[] = {
    {"llama", ATTENDING(2, 1, 4), 0},
    /* One layer of two attends. */
    {"qwen35", ATTENDING(1, 1, 4), DELTA_NET},
    {"qwen35moe", ATTENDING(1, 1, 4), DELTA_NET},
    {"qwen3next", ATTENDING(1, 1, 4), DELTA_NET},
    /* The first layer of three has a window, and in Gemma 4 larger heads. */
    {"gemma4", ATTENDING(1, 1, 8) + ATTENDING(2, 1, 4), 0},
    {"gemma3n", ATTENDING(3, 1, 4), 0},
    /* Latents: one row of the rank and the rotated part, which is key and value. */
    {"deepseek2", 2 * (4 + 4) * HALF, 0},
    /* State spaces: one layer of two attends, none, both in each layer. */
    {"granitehybrid", ATTENDING(1, 1, 4), STATE_SPACE},
    {"mamba2", 0, 2 * STATE_SPACE},
    {"falcon-h1", ATTENDING(2, 1, 4), 2 * STATE_SPACE},
    /* Short convolutions. */
    {"lfm2", ATTENDING(1, 1, 4), CONV(8, 3)},
};

static void is_shown(void *arg)
{
    const expected *e = arg;
    buf file = tiny_model_bytes(tiny_options_arch(e->architecture));
    char line[128];
    snprintf(line, sizeof line, "of the KV cache %d bytes a token%s", e->token_bytes,
             e->sequence_bytes ? "" : "\n");
    CHECK(command_write("tiny.gguf", file.data, file.size));
    command_run("inspect $dir/tiny.gguf");
    CHECK(command_check_success() && strstr(ran.out, line));
    snprintf(line, sizeof line, " bytes a token, and %d a sequence, whatever its length\n",
             e->sequence_bytes);
    CHECK(!e->sequence_bytes || strstr(ran.out, line));
    buf_deinit(&file);
}

int main(void)
{
    if (!command_begin())
        return 1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        tap_case_arg(models[i].architecture, is_shown, &models[i]);
    command_end();
    return tap_end();
}
