/* lace rm: remove a model from the disk. */
#include <stdio.h>

#include "cli/cli.h"
#include "formats/store_remove.h"

static lace_status rm_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    struct {
        char none;
    } a = {0};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    for (int i = 0; i < words.count; i++) {
        uint64_t n_bytes;
        char line[400], size[32];
        TRY(store_remove(words.at[i], &n_bytes, err));
        int n = snprintf(line, sizeof line, "removed %.300s, %s\n", words.at[i],
                         cli_format_bytes(n_bytes, size));
        TRY(cli_write(line, (size_t)n, err));
    }
    return LACE_OK;
}

BARE_VERB(rm, "rm", "NAME...", "remove models from the disk, by their names in lace list", 1,
          ARGS_MAX_POSITIONAL,
          .description =
              "A model goes with what only it needs: in Hugging Face's cache and in Ollama's "
              "store, data\n"
              "that another model shares stays. Other programs no longer see it, either. Nothing "
              "is asked:\n"
              "what is named is gone.\n",
          .examples = "  lace rm Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0\n"
                      "  lace rm qwen3:0.6b\n")
