/* Statuses and bytes, as tests look at them. */
#include "status_check.h"

#include "tap.h"

bool is_ok(lace_status status, const lace_error *err)
{
    if (status != LACE_OK)
        tap_note("%s", err->text);
    return status == LACE_OK;
}

span span_of(const buf *b)
{
    return (span){(const uint8_t *)b->data, b->size};
}
