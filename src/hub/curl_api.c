/* libcurl by dlopen: whichever of its builds this machine has. */
#include "hub/curl_api.h"

#include <dlfcn.h>
#include <string.h>

/* The function at a name; object and function pointers are copied as POSIX has them. */
static bool find(void *library, const char *symbol, void *out)
{
    void *at = dlsym(library, symbol);
    memcpy(out, &at, sizeof at);
    return at != NULL;
}

lace_status curl_api_open(const curl_api **out, lace_error *err)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};
    static curl_api api;
    static bool is_open;
    void *library = NULL;
    for (size_t i = 0; !is_open && !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library) {
        bool has_all = true;
#define X(name, symbol, result, arguments) has_all = find(library, #symbol, &api.name) && has_all;
        CURL_FUNCTIONS(X)
#undef X
        is_open = has_all && api.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    }
    *out = is_open ? &api : NULL;
    return is_open ? LACE_OK
                   : error_set(err, LACE_E_UNSUPPORTED,
                               "downloading needs libcurl 7.66 or newer, which is not on this "
                               "machine (Debian: apt install libcurl4)");
}
