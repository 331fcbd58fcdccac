/* libcurl, opened by name when it is needed: its functions as a table. */
#ifndef LACE_HUB_CURL_API_H
#define LACE_HUB_CURL_API_H

#include <curl/curl.h>

#include "base/status.h"

/* Every function once: X(name in the table, name in the library, type of its result, arguments). */
#define CURL_FUNCTIONS(X)                                                                          \
    X(global_init, curl_global_init, CURLcode, (long))                                             \
    X(easy_init, curl_easy_init, CURL *, (void))                                                   \
    X(easy_setopt, curl_easy_setopt, CURLcode, (CURL *, CURLoption, ...))                          \
    X(easy_getinfo, curl_easy_getinfo, CURLcode, (CURL *, CURLINFO, ...))                          \
    X(easy_reset, curl_easy_reset, void, (CURL *))                                                 \
    X(easy_cleanup, curl_easy_cleanup, void, (CURL *))                                             \
    X(easy_strerror, curl_easy_strerror, const char *, (CURLcode))                                 \
    X(multi_init, curl_multi_init, CURLM *, (void))                                                \
    X(multi_add, curl_multi_add_handle, CURLMcode, (CURLM *, CURL *))                              \
    X(multi_remove, curl_multi_remove_handle, CURLMcode, (CURLM *, CURL *))                        \
    X(multi_perform, curl_multi_perform, CURLMcode, (CURLM *, int *))                              \
    X(multi_poll, curl_multi_poll, CURLMcode,                                                      \
      (CURLM *, struct curl_waitfd *, unsigned, int, int *))                                       \
    X(multi_info_read, curl_multi_info_read, CURLMsg *, (CURLM *, int *))                          \
    X(multi_cleanup, curl_multi_cleanup, CURLMcode, (CURLM *))                                     \
    X(slist_append, curl_slist_append, struct curl_slist *, (struct curl_slist *, const char *))   \
    X(slist_free_all, curl_slist_free_all, void, (struct curl_slist *))

typedef struct curl_api {
#define X(name, symbol, result, arguments) result(*name) arguments;
    CURL_FUNCTIONS(X)
#undef X
} curl_api;

/* The same table every time; LACE_E_UNSUPPORTED with a line that says what to install. */
lace_status curl_api_open(const curl_api **out, lace_error *err);

#endif
