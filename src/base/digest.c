/* Digests: SHA-256, by OpenSSL. A digest_stream is an EVP_MD_CTX under another name. */
#include "base/digest.h"

#include <openssl/evp.h>
#include <string.h>

bool digest_equals(const digest *a, const digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static EVP_MD_CTX *begin(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1)
        return c;
    EVP_MD_CTX_free(c);
    return NULL;
}

static bool end(EVP_MD_CTX *c, const void *more, size_t n_more, digest *out)
{
    bool is_done =
        c && EVP_DigestUpdate(c, more, n_more) == 1 && EVP_DigestFinal_ex(c, out->bytes, NULL) == 1;
    EVP_MD_CTX_free(c);
    return is_done;
}

bool digest_of(const void *data, size_t n_bytes, const void *more, size_t n_more, digest *out)
{
    EVP_MD_CTX *c = begin();
    if (c && EVP_DigestUpdate(c, data, n_bytes) != 1) {
        EVP_MD_CTX_free(c);
        c = NULL;
    }
    return end(c, more, n_more, out);
}

digest_stream *digest_stream_create(void)
{
    return (digest_stream *)begin();
}

void digest_stream_free(digest_stream *s)
{
    EVP_MD_CTX_free((EVP_MD_CTX *)s);
}

bool digest_stream_add(digest_stream *s, const void *data, size_t n_bytes)
{
    return EVP_DigestUpdate((EVP_MD_CTX *)s, data, n_bytes) == 1;
}

bool digest_stream_peek(const digest_stream *s, const void *more, size_t n_more, digest *out)
{
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    if (copy && EVP_MD_CTX_copy_ex(copy, (const EVP_MD_CTX *)s) != 1) {
        EVP_MD_CTX_free(copy);
        copy = NULL;
    }
    return end(copy, more, n_more, out);
}
