/* UTF-8: decoding, encoding and repair. */
#include "base/utf8.h"

/*
 * Length that the lead byte promises, and the range of the second byte (Unicode table 3-7), which
 * is what excludes overlong forms, surrogates and code points above U+10FFFF.
 */
static int lead_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0)
            *low = 0xA0;
        if (lead == 0xED)
            *high = 0x9F;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (lead == 0xF0)
            *low = 0x90;
        if (lead == 0xF4)
            *high = 0x8F;
        return 4;
    }
    return 0;
}

/* Decodes; *is_cut says that the bytes end before the character does, with no fault so far. */
static int decode(const unsigned char *s, size_t n, uint32_t *out, bool *is_cut)
{
    unsigned char low, high;
    int length = lead_length(s[0], &low, &high);
    *out = UTF8_REPLACEMENT;
    *is_cut = false;
    if (length == 0)
        return 1;
    if (length == 1) {
        *out = s[0];
        return 1;
    }
    uint32_t code = s[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n) {
            *is_cut = true;
            return i;
        }
        if (s[i] < low || s[i] > high)
            return i;
        code = code << 6 | (s[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *out = code;
    return length;
}

int utf8_decode(const char *s, size_t n, uint32_t *out)
{
    bool is_cut;
    return decode((const unsigned char *)s, n, out, &is_cut);
}

int utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

bool utf8_is_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int length = utf8_decode(s + i, n - i, &code);
        /* A real U+FFFD has three bytes and begins with EF BF BD. */
        if (code == UTF8_REPLACEMENT &&
            !(length == 3 && (unsigned char)s[i + 1] == 0xBF && (unsigned char)s[i + 2] == 0xBD))
            return false;
        i += (size_t)length;
    }
    return true;
}

size_t utf8_complete_prefix(const char *s, size_t n)
{
    /* Only the last three bytes can begin a character that is cut. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xC0) == 0x80)
            continue;
        uint32_t code;
        bool is_cut;
        decode((const unsigned char *)s + n - back, back, &code, &is_cut);
        return is_cut ? n - back : n;
    }
    return n;
}
