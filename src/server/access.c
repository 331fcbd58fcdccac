/*
 * Who may call: keys, and the checks that keep web pages of strangers from using a server on
 * localhost (DNS rebinding and cross-site requests).
 */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "server/core.h"

/* ---- Keys ------------------------------------------------------------------------------------ */

enum { MAX_KEY_FILE = 1 << 20 };

static lace_status add_key(server *s, const char *line, size_t n, lace_error *err)
{
    while (n && (line[n - 1] == '\r' || line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    if (n == 0 || line[0] == '#')
        return LACE_OK;
    if (s->n_keys == MAX_KEYS)
        return error_set(err, LACE_E_LIMIT, "more than %d keys", MAX_KEYS);
    s->keys[s->n_keys] = mem_strndup(line, n);
    if (!s->keys[s->n_keys])
        return error_nomem(err, "keys");
    s->n_keys++;
    return LACE_OK;
}

/* The keys of a text, one after the other; `separator` is between them. */
static lace_status add_keys(server *s, text keys, char separator, lace_error *err)
{
    for (size_t at = 0; at < keys.size;) {
        const char *key = keys.data + at;
        const char *end = memchr(key, separator, keys.size - at);
        size_t n = end ? (size_t)(end - key) : keys.size - at;
        TRY(add_key(s, key, n, err));
        at += n + 1;
    }
    return LACE_OK;
}

lace_status access_read_keys(server *s, const char *path, const char *list, lace_error *err)
{
    buf content;
    buf_init(&content, MAX_KEY_FILE);
    s->keys = mem_calloc(MAX_KEYS, sizeof *s->keys);
    lace_status status = s->keys ? LACE_OK : error_nomem(err, "keys");
    if (status == LACE_OK && path)
        status = file_read(path, &content, err);
    if (status == LACE_OK && content.data)
        status = add_keys(s, (text){content.data, content.size}, '\n', err);
    if (status == LACE_OK && path && s->n_keys == 0)
        status = error_set(err, LACE_E_ARG, "%s: the file has no key in it", path);
    if (content.data)
        memset(content.data, 0, content.size);
    buf_deinit(&content);
    if (status == LACE_OK && list)
        status = add_keys(s, (text){list, strlen(list)}, ',', err);
    if (status == LACE_OK && s->n_keys == 0)
        status = error_set(err, LACE_E_ARG, "--api-key: the list has no key");
    return status;
}

void access_free(server *s)
{
    for (size_t i = 0; i < s->n_keys; i++)
        mem_free(s->keys[i]);
    mem_free(s->keys);
}

/* Takes as long for a wrong key as for a right one, whatever they share. */
static bool is_same(text given, const char *key)
{
    size_t n = strlen(key);
    unsigned difference = given.size != n;
    for (size_t i = 0; i < given.size; i++)
        difference |= (unsigned char)given.data[i] ^ (unsigned char)key[n ? i % n : 0];
    return difference == 0;
}

/* The number of a key, from 1; 0: it is none. */
static size_t find_key(const server *s, text given)
{
    size_t found = 0;
    for (size_t i = s->n_keys; i > 0; i--)
        found = is_same(given, s->keys[i - 1]) ? i : found;
    return found;
}

size_t access_key(const server *s, const http_parser *p)
{
    size_t n_bearers = http_parser_count(p, "authorization");
    size_t n_plain = http_parser_count(p, "x-api-key");
    if (n_bearers > 1 || n_plain > 1)
        return 0;
    text bearer = http_parser_header(p, "authorization");
    bool is_bearer = bearer.size > 7 && http_name_is((text){bearer.data, 7}, "bearer ");
    size_t found = is_bearer ? find_key(s, (text){bearer.data + 7, bearer.size - 7}) : 0;
    return found || !n_plain ? found : find_key(s, http_parser_header(p, "x-api-key"));
}

/* ---- Hosts and origins ----------------------------------------------------------------------- */

static bool is_in_list(const char *list, text name)
{
    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (http_name_is(name, "") || (n == name.size && strncasecmp(list, name.data, n) == 0))
            return name.size > 0;
        list += n + (list[n] == ',');
    }
    return false;
}

/* Without the port. */
static text host_name(text host)
{
    if (host.size && host.data[0] == '[') {
        const char *end = memchr(host.data, ']', host.size);
        return (text){host.data, end ? (size_t)(end - host.data) + 1 : host.size};
    }
    const char *colon = memchr(host.data, ':', host.size);
    return (text){host.data, colon ? (size_t)(colon - host.data) : host.size};
}

static bool is_local_name(text name)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (http_name_is(name, names[i]))
            return true;
    return false;
}

/* A server that only this machine reaches is called by the machine's names alone. */
static bool allows_host(const server *s, text host)
{
    if (!host.data || !s->is_loopback)
        return true;
    text name = host_name(host);
    return is_local_name(name) || is_in_list(s->options.allowed_hosts, name) ||
           http_name_is(name, s->options.host);
}

bool access_allows_origin(const server *s, text origin)
{
    return is_in_list(s->options.allowed_origins, origin) ||
           is_in_list(s->options.allowed_origins, text_of("*"));
}

/* Pages of this server itself, and those that were named. */
static bool is_own_origin(const server *s, text origin, text host)
{
    for (int i = 0; i < 2; i++) {
        const char *scheme = i ? "https://" : "http://";
        size_t n = strlen(scheme);
        if (origin.size > n && strncasecmp(origin.data, scheme, n) == 0) {
            text rest = {origin.data + n, origin.size - n};
            return host.data && rest.size == host.size &&
                   strncasecmp(rest.data, host.data, rest.size) == 0;
        }
    }
    return access_allows_origin(s, origin);
}

bool access_is_json(text type, error_style family)
{
    /* Ollama does not look, and its users write curl -d, which says that it is a form. What forms
     * of strangers' pages send has an Origin, and was refused before. */
    if (family == ERRORS_OLLAMA &&
        (!type.data || http_name_is(type, "application/x-www-form-urlencoded")))
        return true;
    if (!type.data)
        return false;
    const char *semicolon = memchr(type.data, ';', type.size);
    size_t n = semicolon ? (size_t)(semicolon - type.data) : type.size;
    while (n && type.data[n - 1] == ' ')
        n--;
    if (!http_name_is((text){type.data, n}, "application/json"))
        return false;
    if (!semicolon)
        return true;
    text rest = {semicolon + 1, type.size - (size_t)(semicolon + 1 - type.data)};
    while (rest.size && rest.data[0] == ' ')
        rest.data++, rest.size--;
    return http_name_is(rest, "charset=utf-8") || http_name_is(rest, "charset=\"utf-8\"");
}

int access_check(const server *s, const http_parser *p, const route *r, const char **reason)
{
    text host = http_parser_header(p, "host"), origin = http_parser_header(p, "origin");
    if (!allows_host(s, host)) {
        *reason = "this Host is not served here (--allow-host adds one)";
        return 403;
    }
    if (origin.data && !is_own_origin(s, origin, host) && !access_allows_origin(s, origin)) {
        *reason = "pages of this Origin may not call (--allow-origin adds one)";
        return 403;
    }
    bool is_open = r && (r->flags & ROUTE_NO_KEY);
    bool is_preflight = text_is(p->method, "OPTIONS") && origin.data;
    if (s->n_keys && !is_open && !is_preflight && !access_key(s, p)) {
        *reason = "a valid API key is needed";
        return 401;
    }
    return 0;
}
