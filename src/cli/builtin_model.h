/* The built-in model: a small story teller that the program carries, as a GGUF file in memory. */
#ifndef LACE_CLI_BUILTIN_MODEL_H
#define LACE_CLI_BUILTIN_MODEL_H

/* The bytes lie from cli_builtin_model to cli_builtin_model_end. */
extern const unsigned char cli_builtin_model[];
extern const unsigned char cli_builtin_model_end[];

/* How messages call it. */
#define CLI_BUILTIN_NAME "the built-in model"

#endif
