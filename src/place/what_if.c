/* Predictions for machines that one does not have. */
#include "place/what_if.h"

#include <stdlib.h>
#include <string.h>

static lace_status wrong(lace_error *err, const char *said)
{
    return error_set(err, LACE_E_ARG,
                     "machines \"%.60s\", expected such as 4x60GB/s,10GbE: how many, what each "
                     "reads, and the link between them (1GbE, 10GbE, 25GbE, 100GbE); or "
                     "60GB/s,card:24GB,1000GB/s,pcie:25GB/s: one, with a card",
                     said);
}

/* A number above 0 at *at, which moves behind it. */
static bool read_number(const char **at, double *out)
{
    char digits[16] = "";
    size_t n = strspn(*at, "0123456789.");
    if (**at < '0' || **at > '9' || n >= sizeof digits)
        return false;
    memcpy(digits, *at, n); /* alone: 0x60 is none and sixty, not a number of base 16 */
    *out = strtod(digits, NULL);
    *at += n;
    return *out > 0 && *out < 1e9;
}

static bool skip(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

/* Of a link's bits, what is left behind the heads of Ethernet, IP and TCP. */
static const double GOODPUT = 0.936;

/* What an exchange takes beside its bytes: measured for slow links, assumed for fast ones. */
static double exchange_of(double gbit)
{
    return gbit < 5 ? 50e-6 : gbit < 20 ? 25e-6 : 20e-6;
}

/* ",card:24GB,1000GB/s,pcie:25GB/s" */
static bool read_card(const char **at, what_if_machines *out)
{
    double room, read, link;
    if (!skip(at, ",card:") || !read_number(at, &room) || !skip(at, "GB,") ||
        !read_number(at, &read) || !skip(at, "GB/s,pcie:") || !read_number(at, &link) ||
        !skip(at, "GB/s"))
        return false;
    out->card_bytes = 1e9 * room;
    out->card_bytes_s = 1e9 * read;
    out->pcie_bytes_s = 1e9 * link;
    return true;
}

lace_status what_if_parse(const char *said, what_if_machines *out, lace_error *err)
{
    const char *at = said;
    double n = 1, read = 0, gbit;
    *out = (what_if_machines){0};
    if (!read_number(&at, &read))
        return wrong(err, said);
    if (skip(&at, "x")) {
        n = read;
        if (!read_number(&at, &read))
            return wrong(err, said);
    }
    if (!skip(&at, "GB/s") || n != (double)(int)n || n > 1024)
        return wrong(err, said);
    out->n = (int32_t)n;
    out->read_bytes_s = 1e9 * read;
    if (n == 1 && *at && !read_card(&at, out))
        return wrong(err, said);
    if (n > 1) {
        if (!skip(&at, ",") || !read_number(&at, &gbit) || !skip(&at, "GbE"))
            return wrong(err, said);
        out->link_bytes_s = GOODPUT * 1e9 * gbit / 8;
        out->exchange_s = exchange_of(gbit);
    }
    return *at ? wrong(err, said) : LACE_OK;
}

void what_if_facts(const what_if_machines *m, place_facts *out)
{
    const double kept_back = 0.4e9; /* for loading, and for streamed weights */
    out->card_free = m->card_bytes > kept_back ? (uint64_t)(m->card_bytes - kept_back) : 0;
    out->link_bytes_s = m->pcie_bytes_s;
    out->switch_s = 10e-6; /* assumed, as the steps are */
    out->step_s[ON_HOST] = 4e-6;
    out->step_s[ON_CARD] = 3e-6;
    out->streams = true;
    out->n_prompt = 512;
    out->n_write = 128;
}

/* Bytes that a token sends through each machine's link. */
static double travelling(const what_if_machines *m, const what_if_model *of)
{
    double each = 1.25 * (of->n_heads_values + of->n_ff_values) + 8 * of->n_embd;
    return of->n_layers * (m->n - 1) / (double)m->n * each;
}

double what_if_one(const what_if_machines *m, const what_if_model *of)
{
    return of->token_bytes / m->read_bytes_s;
}

double what_if_all(const what_if_machines *m, const what_if_model *of)
{
    if (m->n == 1)
        return what_if_one(m, of);
    return of->token_bytes / (m->n * m->read_bytes_s) + of->n_layers * 4 * m->exchange_s +
           travelling(m, of) / m->link_bytes_s;
}

double what_if_prompts(const what_if_machines *m, const what_if_model *of)
{
    return m->n == 1 ? 0 : m->link_bytes_s / travelling(m, of);
}
