/* TLS by OpenSSL under libevent's bufferevents. */
#ifndef LACE_SERVER_TLS_H
#define LACE_SERVER_TLS_H

#include <event2/util.h>

#include "base/status.h"

struct bufferevent;
struct event_base;
struct ssl_ctx_st;

/* A server's context from files in PEM: TLS 1.2 and newer. */
lace_status tls_create(const char *cert_file, const char *key_file, struct ssl_ctx_st **out,
                       lace_error *err);
void tls_free(struct ssl_ctx_st *context);

/* A connection that waits for a client's greeting; NULL without memory. */
struct bufferevent *tls_accept(struct event_base *base, evutil_socket_t fd,
                               struct ssl_ctx_st *context);

#endif
