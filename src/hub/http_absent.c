/* In the place of http_get.c where the build found no headers of libcurl. */
#include "hub/http_get.h"

static lace_status refuse(lace_error *err)
{
    return error_set(err, LACE_E_UNSUPPORTED,
                     "this lace was built without libcurl and downloads nothing; install "
                     "libcurl4-openssl-dev and build it again");
}

lace_status http_client_create(http_client **out, lace_error *err)
{
    *out = NULL;
    return refuse(err);
}

void http_client_free(http_client *c)
{
}

lace_status http_get_text(http_client *c, const http_source *from, const http_watch *watch,
                          buf *out, int *http_status, lace_error *err)
{
    *http_status = 0;
    return refuse(err);
}

lace_status http_get_file(http_client *c, const http_source *from, const http_watch *watch,
                          part_file *to, int *http_status, lace_error *err)
{
    *http_status = 0;
    return refuse(err);
}
