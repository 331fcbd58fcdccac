/* TLS by OpenSSL under libevent's bufferevents. */
#include "server/tls.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

static lace_status describe(const char *what, const char *file, lace_error *err)
{
    char reason[160];
    ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
    return error_set(err, LACE_E_IO, "%s: cannot use it as %s: %s", file, what, reason);
}

lace_status tls_create(const char *cert_file, const char *key_file, SSL_CTX **out, lace_error *err)
{
    *out = NULL;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context)
        return error_nomem(err, "TLS");
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    lace_status status = LACE_OK;
    if (SSL_CTX_use_certificate_chain_file(context, cert_file) != 1)
        status = describe("a certificate", cert_file, err);
    else if (SSL_CTX_use_PrivateKey_file(context, key_file, SSL_FILETYPE_PEM) != 1)
        status = describe("a key", key_file, err);
    else if (SSL_CTX_check_private_key(context) != 1)
        status = describe("the certificate's key", key_file, err);
    return GIVE_OR_FREE(status, context, out, SSL_CTX_free);
}

void tls_free(SSL_CTX *context)
{
    SSL_CTX_free(context);
}

struct bufferevent *tls_accept(struct event_base *base, evutil_socket_t fd, SSL_CTX *context)
{
    SSL *ssl = SSL_new(context);
    if (!ssl)
        return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev)
        SSL_free(ssl);
    else
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}
