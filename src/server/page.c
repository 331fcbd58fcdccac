/* The files of the page, by their path: GET / and what it loads. */
#include "server/page.h"

#include "server/api.h"

#define PAGE_ASSET(name, path, type, file)                                                         \
    extern const char page_file_##name[], page_file_##name##_end[];
#include "server/page_assets.def"
#undef PAGE_ASSET

static const web_asset assets[] = {
#define PAGE_ASSET(name, path, type, file) {path, type, page_file_##name, page_file_##name##_end},
#include "server/page_assets.def"
#undef PAGE_ASSET
};

/*
 * The policy lets the page load its own files and talk to this server, and nothing else, so that
 * text of a model cannot become a script. Images may also come from data: URLs, as those of messages
 * do: such an image asks nobody for anything. A new lace brings a new page, hence no cache.
 */
static const char headers[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cache-Control: no-cache\r\n";

const web_asset *page_find(text path)
{
    for (size_t i = 0; i < sizeof assets / sizeof assets[0]; i++)
        if (text_is(path, assets[i].path))
            return &assets[i];
    return NULL;
}

void api_page(call *c)
{
    const web_asset *a = page_find(call_path(c));
    if (a)
        call_reply_static(c, 200, a->type, headers, a->data, (size_t)(a->end - a->data));
    else
        call_fail(c, 404, NULL, NULL, "there is no such file");
}
