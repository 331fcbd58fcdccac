/* The files of the page, by their path. */
#include "server/page.h"

#include <string.h>

#define PAGE_ASSET(name, path, type, file)                                                         \
    extern const char page_file_##name[], page_file_##name##_end[];
#include "server/page_assets.def"
#undef PAGE_ASSET

static const web_asset assets[] = {
#define PAGE_ASSET(name, path, type, file) {path, type, page_file_##name, page_file_##name##_end},
#include "server/page_assets.def"
#undef PAGE_ASSET
};

const char *const page_headers[] = {
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options",
    "nosniff",
    "Referrer-Policy",
    "no-referrer",
    "Cross-Origin-Opener-Policy",
    "same-origin",
    "Cache-Control",
    "no-cache", /* a new lace brings a new page */
    NULL,
};

const web_asset *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof assets / sizeof assets[0]; i++)
        if (strcmp(assets[i].path, path) == 0)
            return &assets[i];
    return NULL;
}
