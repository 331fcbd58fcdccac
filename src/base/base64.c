/* Base64. */
#include "base/base64.h"

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool base64_decode(text in, uint8_t *out, size_t *n_out)
{
    size_t n = 0;
    if (in.size % 4 != 0)
        return false;
    for (size_t i = 0; i < in.size; i += 4) {
        uint32_t bits = 0;
        int n_bytes = 3;
        for (size_t k = 0; k < 4; k++) {
            char c = in.data[i + k];
            bool is_end = c == '=' && i + 4 == in.size && k >= 2;
            int digit = is_end ? 0 : digit_of(c);
            if (digit < 0 || (!is_end && n_bytes < 3))
                return false;
            n_bytes -= is_end;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (int k = 0; k < n_bytes; k++)
            out[n++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    *n_out = n;
    return true;
}
