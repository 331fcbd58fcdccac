/* Placements as JSON. */
#include "place/place_file.h"

#include <jansson.h>
#include <string.h>

#include "base/json_read.h"

static lace_status append_list(buf *out, const char *key, const uint8_t *of, int32_t n)
{
    TRY(buf_printf(out, "  \"%s\": [", key));
    for (int32_t i = 0; i < n; i++)
        TRY(buf_printf(out, "%s%d", i ? ", " : "", of[i]));
    return buf_printf(out, "],\n");
}

lace_status placement_write(const placement *p, buf *out)
{
    TRY(buf_printf(out, "{\n  \"lace_place\": 1,\n  \"devices\": ["));
    for (int32_t i = 0; i < p->n_devices; i++)
        TRY(buf_printf(out, "%s\"%s\"", i ? ", " : "", p->devices[i]));
    TRY(buf_printf(out, "],\n"));
    TRY(append_list(out, "layers", p->layers, p->n_layers));
    TRY(append_list(out, "experts", p->experts, p->n_layers));
    return buf_printf(out, "  \"output\": %d\n}\n", p->output);
}

static lace_status wrong(lace_error *err, const char *what)
{
    return error_set(err, LACE_E_META, "not a placement that lace place wrote: %s", what);
}

/* Names go into messages and to device_open: letters, digits, and colons. */
static bool is_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n < PLACE_NAME_BYTES &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:") == n;
}

static lace_status read_devices(const json_t *list, placement *out, lace_error *err)
{
    size_t n = json_array_size(list);
    if (n < 1 || n > PLACE_MAX_DEVICES)
        return wrong(err, "\"devices\" must name 1 to 8");
    out->n_devices = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || !is_name(name))
            return wrong(err, "a name in \"devices\" is no device's");
        memcpy(out->devices[i], name, strlen(name) + 1);
    }
    return LACE_OK;
}

static bool read_device(const json_t *value, int32_t n_devices, uint8_t *out)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    *out = n >= 0 && n < n_devices ? (uint8_t)n : 0;
    return n >= 0 && n < n_devices;
}

static lace_status read_list(const json_t *root, const char *key, placement *p, uint8_t *out,
                             lace_error *err)
{
    const json_t *list = json_get(root, key);
    size_t n = json_array_size(list);
    if (n < 1 || n > PLACE_MAX_LAYERS || (p->n_layers && n != (size_t)p->n_layers))
        return wrong(err, "\"layers\" and \"experts\" must have a number for each layer");
    p->n_layers = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        if (!read_device(json_array_get(list, i), p->n_devices, &out[i]))
            return wrong(err, "a layer is on a device that is not named");
    return LACE_OK;
}

static lace_status read_all(const json_t *root, placement *out, lace_error *err)
{
    const json_t *version = json_get(root, "lace_place");
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return wrong(err, "\"lace_place\" must be 1");
    TRY(read_devices(json_get(root, "devices"), out, err));
    TRY(read_list(root, "layers", out, out->layers, err));
    TRY(read_list(root, "experts", out, out->experts, err));
    if (!read_device(json_get(root, "output"), out->n_devices, &out->output))
        return wrong(err, "\"output\" must be the number of a device");
    return LACE_OK;
}

lace_status placement_read(span bytes, placement *out, lace_error *err)
{
    json_t *root = NULL;
    *out = (placement){.stream_tokens = -1};
    TRY(json_read(bytes, 0, &root, err));
    lace_status status = read_all(root, out, err);
    json_decref(root);
    return status;
}
