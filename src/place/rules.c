/* Rules of where a model is to run, read from a text. */
#include "place/rules.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *at;
    size_t n;
} word;

static lace_status wrong(lace_error *err, word w, const char *expected)
{
    return error_set(err, LACE_E_ARG, "device rule \"%.*s\", expected %s",
                     (int)(w.n < 60 ? w.n : 60), w.at, expected);
}

/* A number of 0 or more, or "all". */
static lace_status read_count(word w, size_t skip, bool takes_all, int32_t *out, lace_error *err)
{
    char text[16] = "";
    if (w.n - skip < sizeof text)
        memcpy(text, w.at + skip, w.n - skip);
    char *end = text;
    long n = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : 0;
    if (takes_all && strcmp(text, "all") == 0)
        *out = PLACE_ALL;
    else if (end == text || *end || n > 1 << 30)
        return wrong(err, w, takes_all ? "a number or all" : "a number");
    else
        *out = (int32_t)n;
    return LACE_OK;
}

/* "8G", "8000M", or bytes. */
static lace_status read_bytes(word w, size_t skip, uint64_t *out, lace_error *err)
{
    static const char units[] = "KMG";
    char text[24] = "";
    if (w.n - skip < sizeof text)
        memcpy(text, w.at + skip, w.n - skip);
    char *end = text;
    uint64_t n = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (n == 0 || (*end && (!unit || end[1])) || n > ((uint64_t)1 << 50) >> shift)
        return wrong(err, w, "bytes, or so many K, M or G, such as 8G");
    *out = n << shift;
    return LACE_OK;
}

/* Shares, each above 0 and no more than a million: "3,1". */
static lace_status read_shares(word w, size_t skip, place_rules *out, lace_error *err)
{
    char text[256] = "";
    if (w.n - skip >= sizeof text)
        return wrong(err, w, "shares such as 3,1");
    memcpy(text, w.at + skip, w.n - skip);
    for (char *at = text;;) {
        char *end = at;
        double share = *at >= '0' && *at <= '9' ? strtod(at, &end) : 0;
        if (end == at || !(share >= 0 && share <= 1e6) || out->n_shares == PLACE_MAX_DEVICES)
            return wrong(err, w, "shares such as 3,1");
        out->shares[out->n_shares++] = share;
        if (!*end)
            return LACE_OK;
        if (*end != ',' && *end != '/')
            return wrong(err, w, "shares such as 3,1");
        at = end + 1;
    }
}

static bool begins(word w, const char *name, size_t *skip)
{
    *skip = strlen(name);
    return w.n > *skip && strncmp(w.at, name, *skip) == 0;
}

static lace_status read_rule(word w, place_rules *out, lace_error *err)
{
    size_t skip;
    if (begins(w, "layers=", &skip))
        return read_count(w, skip, true, &out->layers, err);
    if (begins(w, "host-experts=", &skip))
        return read_count(w, skip, true, &out->host_experts, err);
    if (begins(w, "tokens=", &skip))
        return read_count(w, skip, false, &out->n_tokens, err);
    if (begins(w, "split=", &skip))
        return read_shares(w, skip, out, err);
    if (begins(w, "stream=", &skip))
        return read_count(w, skip, false, &out->stream_tokens, err);
    if (begins(w, "memory=", &skip))
        return read_bytes(w, skip, &out->card_bytes, err);
    if (w.n == 4 && memcmp(w.at, "rows", 4) == 0) {
        out->by_rows = true;
        return LACE_OK;
    }
    return wrong(err, w,
                 "layers=N, host-experts=N, split=A,B, rows, memory=BYTES, stream=N or tokens=N");
}

/* A file says where everything goes: no rule beside it could change that. */
static lace_status refuse_beside_file(lace_error *err, word w)
{
    return error_set(err, LACE_E_ARG,
                     "device rule \"%.*s\" beside place=FILE, which says where everything goes: "
                     "leave one of them out",
                     (int)(w.n < 60 ? w.n : 60), w.at);
}

lace_status place_rules_parse(const char *text, place_rules *out, lace_error *err)
{
    *out = (place_rules){.layers = -1, .host_experts = -1, .stream_tokens = -1};
    word w = {text, strcspn(text, ";")};
    size_t skip;
    if (begins(w, "place=", &skip)) {
        if (w.n - skip >= sizeof out->file)
            return wrong(err, w, "a shorter path");
        memcpy(out->file, w.at + skip, w.n - skip);
    } else {
        if (w.n == 0 || w.n >= sizeof out->devices)
            return wrong(err, w, "names of devices");
        memcpy(out->devices, w.at, w.n);
    }
    for (const char *at = text + w.n; *at;) {
        w = (word){at + 1, strcspn(at + 1, ";")};
        if (out->file[0])
            return refuse_beside_file(err, w);
        if (begins(w, "place=", &skip))
            return refuse_beside_file(err, (word){text, (size_t)(at - text)});
        TRY(read_rule(w, out, err));
        at = w.at + w.n;
    }
    return LACE_OK;
}

bool place_rules_are_plain(const place_rules *r)
{
    return !r->file[0] && !strchr(r->devices, ',') && r->layers < 0 && r->host_experts < 0 &&
           r->n_shares == 0 && !r->by_rows;
}

lace_status place_rules_apply(const place_rules *r, int32_t n_layers, placement *out,
                              lace_error *err)
{
    TRY(placement_init(out, r->devices, n_layers, err));
    if (r->n_shares != 0 && r->n_shares != out->n_devices - 1)
        return error_set(err, LACE_E_ARG, "a split of %d shares for %d devices", r->n_shares,
                         out->n_devices - 1);
    double all = 0;
    for (int32_t i = 0; i < r->n_shares; i++)
        all += r->shares[i];
    if (r->n_shares != 0 && all == 0)
        return error_set(err, LACE_E_ARG, "a split in which nobody has a share");
    placement_last_layers(out, r->layers < 0 ? PLACE_ALL : r->layers,
                          r->n_shares ? r->shares : NULL);
    placement_host_experts(out, r->host_experts < 0 ? 0 : r->host_experts);
    out->stream_tokens = r->stream_tokens;
    return LACE_OK;
}
