/* The built-in model: models/default.gguf as bytes of the program. Built from the project's root. */
#include "base/read_only.h"
    READ_ONLY
    .globl cli_builtin_model
    .globl cli_builtin_model_end
    .balign 64
cli_builtin_model:
    .incbin "models/default.gguf"
cli_builtin_model_end:
    .byte 0

    QUIET_STACK
