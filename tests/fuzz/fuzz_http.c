/*
 * Fuzzing requests of HTTP: whatever comes, the parser ends in a state that fits, uses no more
 * memory than its limits, and reads the same however the bytes are cut.
 *
 * The first byte chooses the length of the pieces.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BODY = 4096 };

/* Parses one request; returns how many bytes it took. */
static size_t parse(http_parser *p, const char *data, size_t n, size_t step)
{
    size_t at = 0;
    http_parser_init(p, MAX_BODY);
    while (at < n && p->state != HTTP_DONE && p->state != HTTP_BAD) {
        size_t take = n - at < step ? n - at : step;
        size_t used = http_parser_feed(p, data + at, take);
        if (used > take || (used < take && p->state < HTTP_HEAD_DONE))
            abort();
        at += used;
        if (p->state == HTTP_HEAD_DONE)
            http_parser_read_body(p);
        if (p->head.size > HTTP_MAX_HEAD || p->body.size > MAX_BODY ||
            p->n_headers > HTTP_MAX_HEADERS)
            abort();
    }
    if (p->state == HTTP_BAD && (p->status < 400 || p->status > 505 || !p->reason))
        abort();
    if (p->state == HTTP_DONE && (!p->path.data || p->path.size == 0))
        abort();
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *bytes = (const char *)data + 1;
    http_parser whole, cut;
    size_t n_whole = parse(&whole, bytes, size - 1, size);
    size_t n_cut = parse(&cut, bytes, size - 1, 1 + data[0] % 64);
    /* A refusal may come some bytes later; everything else is the same. */
    if (whole.state != cut.state || whole.status != cut.status)
        abort();
    if (whole.state == HTTP_DONE &&
        (n_whole != n_cut || whole.body.size != cut.body.size ||
         (whole.body.size && memcmp(whole.body.data, cut.body.data, whole.body.size) != 0)))
        abort();
    http_parser_deinit(&whole);
    http_parser_deinit(&cut);
    return 0;
}
