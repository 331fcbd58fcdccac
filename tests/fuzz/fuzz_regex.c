/*
 * Fuzzing regular expressions: whatever the text is, compiling says no with a line, or gives a
 * grammar in which every token that the mask allows is accepted.
 */
#include "grammar_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kit_fuzz(LACE_GRAMMAR_REGEX, data, size);
    return 0;
}
