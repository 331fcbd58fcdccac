/* JSON of any kind: read as the only item of an array, which json_read accepts. */
#include "jinja/json_any.h"

#include "base/buf.h"
#include "base/json_read.h"

lace_status json_read_any(text chars, json_t **out, lace_error *err)
{
    buf b;
    json_t *list = NULL;
    *out = NULL;
    buf_init(&b, SIZE_MAX / 2);
    lace_status status = buf_reserve(&b, chars.size + 2);
    if (status != LACE_OK) {
        buf_deinit(&b);
        return error_nomem(err, "JSON");
    }
    buf_append(&b, "[", 1);
    buf_append(&b, chars.data, chars.size);
    buf_append(&b, "]", 1);
    status = json_read((span){(const uint8_t *)b.data, b.size}, 0, &list, err);
    if (status == LACE_OK && json_array_size(list) == 1)
        *out = json_incref(json_array_get(list, 0));
    else if (status == LACE_OK)
        status = error_set(err, LACE_E_JSON, "JSON: expected one value");
    json_decref(list);
    buf_deinit(&b);
    return status;
}
