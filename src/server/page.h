/*
 * The page that the server offers: the files of web/, carried in the program.
 *
 * They are the same for everybody and hold no secret, so they are given out without a key; the page
 * asks for the key itself when an API route answers 401.
 */
#ifndef LACE_SERVER_PAGE_H
#define LACE_SERVER_PAGE_H

#include "base/bytes.h"

typedef struct web_asset {
    const char *path; /* "/app.js"; the page itself is "/" */
    const char *type; /* for Content-Type */
    const char *data; /* not terminated */
    const char *end;  /* behind the last byte */
} web_asset;

/* The file at a path (without a query), or NULL if it is none of the page's. */
const web_asset *page_find(text path);

#endif
