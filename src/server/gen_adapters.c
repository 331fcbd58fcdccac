/*
 * Adapters: which of them a request uses, and GET and POST /lora-adapters.
 *
 * A request that names an adapter as its model uses that one alone. One with "lora" uses what it
 * lists. All others use what the server was started with, or was told by POST /lora-adapters.
 */
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"
#include "server/generate.h"

lace_status adapters_create(server *s, lace_error *err)
{
    size_t n = lace_model_adapters(s->model, NULL, 0);
    s->n_adapters = n;
    s->adapters = mem_calloc(n + 1, sizeof *s->adapters);
    s->adapter_scales = mem_calloc(n + 1, sizeof *s->adapter_scales);
    if (!s->adapters || !s->adapter_scales)
        return error_nomem(err, "the list of adapters");
    lace_model_adapters(s->model, s->adapters, n);
    for (size_t i = 0; i < n; i++)
        atomic_init(&s->adapter_scales[i], s->adapters[i].scale);
    return LACE_OK;
}

const char *adapter_model_name(const server *s, size_t i)
{
    return s->options.adapter_names ? s->options.adapter_names[i] : NULL;
}

int32_t adapter_by_name(const server *s, const char *name)
{
    size_t n = strlen(name), tag = strlen(":latest");
    if (n > tag && strcmp(name + n - tag, ":latest") == 0) /* Ollama's */
        n -= tag;
    for (size_t i = 0; i < s->n_adapters; i++) {
        const char *own = adapter_model_name(s, i);
        if (own && (strcmp(own, name) == 0 || (strlen(own) == n && memcmp(own, name, n) == 0)))
            return (int32_t)i;
    }
    return -1;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Scales of all adapters from a list of {"id", "scale"}; others are 0. False: answered. */
static bool read_list(call *c, const json_t *list, float *scales)
{
    const server *s = call_server(c);
    size_t i;
    json_t *item;
    if (!json_is_array(list))
        return call_refuse(c, "lora", "lora is a list of {\"id\": N, \"scale\": X}");
    json_array_foreach((json_t *)list, i, item)
    {
        const json_t *id = json_get(item, "id"), *scale = json_get(item, "scale");
        if (!json_is_integer(id) || !json_is_number(scale))
            return call_refuse(c, "lora", "each item of lora has an \"id\" and a \"scale\"");
        json_int_t at = json_integer_value(id);
        double x = json_number_value(scale);
        if (at < 0 || (size_t)at >= s->n_adapters) {
            call_fail(c, 400, "lora", "invalid_value",
                      "there is no adapter %lld: this server has %zu (lace serve --lora)",
                      (long long)at, s->n_adapters);
            return false;
        }
        if (!(x >= -1e6 && x <= 1e6))
            return call_refuse(c, "lora", "the scale of an adapter is -1000000 to 1000000");
        scales[at] = (float)x;
    }
    return true;
}

bool gen_read_adapters(gen_request *r, call *c, const json_t *body)
{
    server *s = call_server(c);
    size_t n = s->n_adapters;
    const char *name = json_string_value(json_object_get(body, "model"));
    const json_t *list = json_get(body, "lora");
    int32_t named = name ? adapter_by_name(s, name) : -1;
    float *scales = arena_alloc(&r->memory, n + 1, sizeof *scales);
    lace_adapter_use *uses = arena_alloc(&r->memory, n + 1, sizeof *uses);
    if (!scales || !uses)
        return call_nomem(c);
    if (named >= 0)
        r->model_name = adapter_model_name(s, (size_t)named);
    if (list && !read_list(c, list, scales))
        return false;
    for (size_t i = 0; !list && i < n; i++)
        scales[i] = named < 0 ? atomic_load(&s->adapter_scales[i]) : (int32_t)i == named;
    r->options.adapters = uses;
    r->options.n_adapters = 0;
    for (size_t i = 0; i < n; i++)
        if (scales[i] != 0)
            uses[r->options.n_adapters++] = (lace_adapter_use){(int32_t)i, scales[i]};
    return true;
}

const char *call_model_id(const call *c)
{
    const gen_request *r = call_request(c);
    return r && r->model_name ? r->model_name : call_server(c)->model_id;
}

/* ---- The routes ------------------------------------------------------------------------------ */

/* The last part of a path: clients need not know where files lie. */
static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

void api_adapters(call *c)
{
    server *s = call_server(c);
    json_out out;
    json_out_init(&out, 1 << 20);
    json_out_raw(&out, "[");
    for (size_t i = 0; i < s->n_adapters; i++) {
        const char *name = adapter_model_name(s, i);
        json_out_printf(&out, "%s{\"id\":%zu,\"path\":", i ? "," : "", i);
        json_out_string(&out, file_of(s->adapters[i].path));
        json_out_printf(&out,
                        ",\"scale\":%.7g,\"name\":", (double)atomic_load(&s->adapter_scales[i]));
        json_out_string(&out, name ? name : s->adapters[i].name);
        json_out_printf(&out, ",\"rank\":%d,\"alpha\":%.7g}", s->adapters[i].rank,
                        (double)s->adapters[i].alpha);
    }
    json_out_raw(&out, "]");
    call_reply(c, 200, "application/json", &out);
}

void api_adapters_set(call *c)
{
    server *s = call_server(c);
    const json_t *list = call_json_list(c);
    if (!list)
        return;
    float *scales = mem_calloc(s->n_adapters + 1, sizeof *scales);
    if (!scales)
        call_nomem(c);
    else if (read_list(c, list, scales)) {
        json_out out;
        json_out_init(&out, 256);
        for (size_t i = 0; i < s->n_adapters; i++)
            atomic_store(&s->adapter_scales[i], scales[i]);
        json_out_raw(&out, "{\"success\":true}");
        call_reply(c, 200, "application/json", &out);
    }
    mem_free(scales);
}
