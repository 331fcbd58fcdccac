/*
 * Getting files over HTTP: small answers whole, large files in several ranges at a time.
 *
 * Every request begins at the URL that was given. Redirects are followed here, and a token is sent
 * to the origin (scheme, host, port) of that URL alone. Proxies are those of the environment
 * (https_proxy, all_proxy, no_proxy). What fails in a way that may pass is tried again: broken
 * connections, 408, 429, 5xx, answers with the wrong range or length.
 *
 * libcurl does the work. It is opened when it is needed (curl_api.h), so a lace without it runs, and
 * says what is missing.
 */
#ifndef LACE_HUB_HTTP_GET_H
#define LACE_HUB_HTTP_GET_H

#include "base/buf.h"
#include "hub/part_file.h"

typedef struct http_source {
    const char *url;
    const char *token;  /* for "Authorization: Bearer"; NULL or "": none */
    const char *accept; /* types for the header Accept; NULL: any */
} http_source;

typedef struct http_watch {
    bool (*on_tick)(void *user); /* several times a second; false: stop. NULL is fine */
    void *user;
    int n_connections; /* at the same time */
} http_watch;

typedef struct http_client http_client;

/* LACE_E_UNSUPPORTED if there is no libcurl. */
lace_status http_client_create(http_client **out, lace_error *err);
void http_client_free(http_client *c); /* NULL is fine */

/*
 * A whole answer of at most out->max bytes. A status other than 200 is an error, which is left in
 * *http_status; 0 there: none was received.
 */
lace_status http_get_text(http_client *c, const http_source *from, const http_watch *watch,
                          buf *out, int *http_status, lace_error *err);

/* All bytes of a file that are not there yet. What came stays after a failure. */
lace_status http_get_file(http_client *c, const http_source *from, const http_watch *watch,
                          part_file *to, int *http_status, lace_error *err);

#endif
