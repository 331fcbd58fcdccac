/*
 * lace inspect: what a token and a sequence take is what the mechanism needs, and no more. The
 * shapes are those of the golden models' config.json.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "golden_file.h"
#include "tap.h"

enum { HALF = 2, FLOAT = 4, KEYS_AND_VALUES = 2 };

/* A convolution keeps the inputs before the last, a head one matrix. */
#define CONV(width, taps)                 ((width) * ((taps)-1) * FLOAT)
#define HEADS(n, rows, columns)           ((n) * (rows) * (columns)*FLOAT)
#define ATTENDING(n_layers, n_heads, dim) ((n_layers) * (n_heads) * (dim)*KEYS_AND_VALUES * HALF)

typedef struct expected {
    const char *model;
    int token_bytes, sequence_bytes;
} expected;

static expected models[] = {
    /* One layer in four attends; a delta net has four heads of 12 x 12 behind 96 channels. */
    {"qwen3_5", ATTENDING(1, 2, 32), 3 * (CONV(96, 4) + HEADS(4, 12, 12))},
    {"qwen3_5_moe", ATTENDING(1, 2, 32), 3 * (CONV(96, 4) + HEADS(4, 12, 12))},
    {"qwen3_next", ATTENDING(1, 2, 32), 3 * (CONV(96, 4) + HEADS(4, 12, 12))},
    /* The last two of five layers share what earlier ones keep; heads are larger where all is seen. */
    {"gemma4-e2b", ATTENDING(2, 2, 16) + ATTENDING(1, 2, 32), 0},
    {"gemma3n", ATTENDING(3, 2, 16), 0},
    /* Latents: one row of the rank and the rotated part, which is key and value. */
    {"glm4_moe_lite", 3 * (24 + 8) * HALF, 0},
    {"deepseek_v3", 3 * (24 + 8) * HALF, 0},
    /* State spaces: one layer of three attends, none, both in each layer. */
    {"granitemoehybrid", ATTENDING(1, 2, 12), 2 * (CONV(128, 4) + HEADS(6, 16, 16))},
    {"mamba2", 0, 3 * (CONV(112, 4) + HEADS(5, 16, 16))},
    {"falcon_h1", ATTENDING(2, 2, 16), 2 * (CONV(128, 4) + HEADS(4, 16, 16))},
    /* Short convolutions. */
    {"lfm2", ATTENDING(2, 2, 12), 2 * CONV(48, 3)},
};

static void is_shown(void *arg)
{
    const expected *e = arg;
    char *path = golden_path(e->model, "model.gguf");
    char line[128];
    snprintf(line, sizeof line, "of the KV cache %d bytes a token%s", e->token_bytes,
             e->sequence_bytes ? "" : "\n");
    if (CHECK(path != NULL)) {
        command_run("inspect '%s'", path);
        CHECK(command_check_success() && strstr(ran.out, line));
        snprintf(line, sizeof line, " bytes a token, and %d a sequence, whatever its length\n",
                 e->sequence_bytes);
        CHECK(!e->sequence_bytes || strstr(ran.out, line));
    }
    free(path);
}

int main(void)
{
    if (!command_begin())
        return 1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        tap_case_arg(models[i].model, is_shown, &models[i]);
    command_end();
    return tap_end();
}
