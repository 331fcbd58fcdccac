/*
 * Images of a request: found in its messages, whatever API it came by, and put into its prompt.
 *
 *     OpenAI      {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}
 *                 {"type": "input_image", "image_url": "data:..."}
 *     Anthropic   {"type": "image", "source": {"type": "base64", "data": "..."}}
 *     Ollama      "images": ["..."], which ollama_in.c brings into Anthropic's form
 *
 * They may stand in messages of any role; what a template cannot show in a tool's result follows it
 * (chat/result_images.c).
 *
 * Templates get {"type": "image"} and write the model's own mark, which becomes the image's rows.
 */
#include <string.h>

#include "base/base64.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "server/core.h"

enum { MAX_IMAGES = 64 };

static bool is_image(const json_t *part)
{
    static const char *const types[] = {"image_url", "input_image", "image"};
    const char *type = json_type_word(part);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static size_t count_images(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; json_is_array(content) && k < json_array_size(content); k++)
            n += is_image(json_array_get(content, k));
    }
    return n;
}

static bool fail(call *c, size_t message, size_t part, const char *what)
{
    call_fail(c, 400, "messages", "invalid_image", "messages[%zu].content[%zu]: %s", message, part,
              what);
    return false;
}

/* The base64 of a part; NULL, with what is wrong. */
static const char *find_data(const json_t *part, const char **fault)
{
    const json_t *source = json_object_get(part, "source");
    const json_t *url = json_object_get(part, "image_url");
    const char *data = json_string_value(json_object_get(source, "data"));
    if (data)
        return data;
    if (json_is_object(url))
        url = json_object_get(url, "url");
    if (!url)
        url = json_object_get(source, "url");
    const char *address = json_string_value(url);
    const char *comma = address ? strchr(address, ',') : NULL;
    if (!address)
        *fault = "an image has neither a data: URL nor a source with data";
    else if (strncmp(address, "data:", 5) != 0)
        *fault = "images at other addresses are not fetched; send the image itself, as a data: URL "
                 "in base64";
    else if (!comma || comma - address < 7 || memcmp(comma - 7, ";base64", 7) != 0)
        *fault = "a data: URL of an image is not in base64";
    else
        return comma + 1;
    return NULL;
}

/* Images that do not fit into the context are refused before the next one is computed. */
static bool check_room(const gen_request *r, call *c)
{
    size_t n = 0, n_context = (size_t)call_server(c)->limits.n_context;
    for (size_t i = 0; i < r->n_images; i++)
        n += lace_image_n_tokens(r->images[i]);
    if (n < n_context)
        return true;
    call_fail(c, 400, "messages", "context_length_exceeded",
              "the first %zu images of the request have %zu tokens, the context has %zu",
              r->n_images, n, n_context);
    return false;
}

static bool read_image(gen_request *r, call *c, const json_t *part, size_t message, size_t number)
{
    const char *fault = "", *data = find_data(part, &fault);
    lace_error err = {0};
    size_t n = 0;
    if (call_is_unwanted(c))
        return false;
    if (!data)
        return fail(c, message, number, fault);
    text encoded = text_of(data);
    uint8_t *bytes = mem_alloc(encoded.size / 4 * 3 + 3);
    if (!bytes)
        return call_nomem(c);
    lace_status status = LACE_OK;
    bool is_base64 = base64_decode(encoded, bytes, &n);
    if (is_base64)
        status = lace_image_create(call_server(c)->options.batcher.session.tower, bytes, n,
                                   &r->images[r->n_images], &err);
    mem_free(bytes);
    if (!is_base64)
        return fail(c, message, number, "the data of an image is not base64");
    if (status == LACE_E_IMAGE)
        return fail(c, message, number, err.text);
    if (status != LACE_OK) {
        call_fail_error(c, "messages", &err);
        return false;
    }
    r->n_images++;
    return check_room(r, c);
}

/* The message with a place for each of its images; a new one. */
static json_t *read_message(gen_request *r, call *c, const json_t *message, size_t number)
{
    const json_t *content = json_object_get(message, "content");
    json_t *copy = json_copy((json_t *)message), *parts = json_array();
    bool ok = (copy && parts) || call_nomem(c);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        json_t *part = json_array_get(content, i);
        if (is_image(part))
            ok = read_image(r, c, part, number, i) &&
                 call_append(c, parts, json_pack("{s:s}", "type", "image"));
        else
            ok = call_append(c, parts, json_incref(part));
    }
    ok = ok && (json_object_set(copy, "content", parts) == 0 || call_nomem(c));
    json_decref(parts);
    if (ok)
        return copy;
    json_decref(copy);
    return NULL;
}

bool gen_take_images(gen_request *r, call *c)
{
    size_t n = count_images(r->messages);
    if (n == 0)
        return true;
    if (!call_server(c)->options.batcher.session.tower) {
        call_fail(c, 400, "messages", "images_unsupported",
                  "the request has an image, and the model reads text only: it has no vision tower "
                  "(lace serve --mmproj FILE)");
        return false;
    }
    if (n > MAX_IMAGES) {
        call_fail(c, 400, "messages", "invalid_value",
                  "the request has %zu images, more than the %d that are allowed", n, MAX_IMAGES);
        return false;
    }
    if (!c->is_slow) { /* once more, where it may take long */
        c->wants_time = true;
        return false;
    }
    json_t *messages = json_array();
    r->images = arena_alloc(&r->memory, n, sizeof *r->images);
    bool ok = (messages && r->images) || call_nomem(c);
    for (size_t i = 0; ok && i < json_array_size(r->messages); i++) {
        json_t *message = json_array_get(r->messages, i);
        bool has_parts = json_is_array(json_object_get(message, "content"));
        message = has_parts ? read_message(r, c, message, i) : json_incref(message);
        ok = message && call_append(c, messages, message);
    }
    if (!ok) {
        json_decref(messages);
        return false;
    }
    json_decref(r->messages);
    r->messages = messages;
    return true;
}

bool gen_place_images(gen_request *r, call *c)
{
    const lace_tower *tower = call_server(c)->options.batcher.session.tower;
    lace_error err = {0};
    size_t n = r->n_prompt;
    if (r->n_images == 0)
        return true;
    for (size_t i = 0; i < r->n_images; i++)
        n += lace_image_n_tokens(r->images[i]) + 2;
    lace_token *whole = arena_alloc(&r->memory, n, sizeof *whole);
    if (!whole)
        return call_nomem(c);
    if (lace_tower_place(tower, r->prompt, r->n_prompt, r->images, r->n_images, whole, n,
                         &r->n_prompt, &err) != LACE_OK) {
        call_fail_error(c, "messages", &err);
        return false;
    }
    r->prompt = whole;
    r->options.images = r->images;
    r->options.n_images = r->n_images;
    return gen_check_length(c, r->n_prompt);
}
