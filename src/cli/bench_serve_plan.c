/*
 * What is asked of a server: lengths from a distribution, prompts made of common words, and the
 * body of each request. All of it follows from the seed and the number of the request.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_serve.h"

/* Words that most vocabularies hold as one token. */
static const char *const words[] = {
    "the",  "of",    "and",   "to",    "in",    "was",   "that",  "it",    "his",   "her",
    "had",  "with",  "as",    "for",   "she",   "not",   "at",    "but",   "on",    "him",
    "they", "be",    "have",  "there", "all",   "which", "were",  "so",    "when",  "one",
    "from", "would", "this",  "them",  "who",   "into",  "been",  "could", "then",  "little",
    "time", "man",   "house", "old",   "great", "good",  "came",  "went",  "again", "water",
    "day",  "night", "over",  "down",  "like",  "back",  "after", "never", "long",  "way",
    "see",  "made",  "said",  "where",
};
enum { N_WORDS = sizeof words / sizeof words[0] };

/* splitmix64: the seed is all of its state. */
static uint64_t random_bits(bench_serve_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double bench_serve_random_unit(bench_serve_random *r)
{
    return ((double)(random_bits(r) >> 11) + 1) / 9007199254740992.0;
}

/* ---- Lengths --------------------------------------------------------------------------------- */

lace_status bench_serve_length_parse(bench_serve_length *out, const char *option, const char *text,
                                     lace_error *err)
{
    enum { MAX_TOKENS = 1 << 20 };
    char *rest;
    double a = strtod(text, &rest), b = a;
    char mark = *rest;
    if (rest != text && (mark == '-' || mark == '~')) {
        const char *second = rest + 1;
        b = strtod(second, &rest);
        if (rest == second)
            a = -1;
    }
    bool is_normal = mark == '~';
    if (*rest || rest == text || !(a >= 1 && a <= MAX_TOKENS) || !(b >= 0 && b <= MAX_TOKENS) ||
        (mark == '-' && b < a))
        return error_set(err, LACE_E_ARG,
                         "--%s %.40s: expected tokens as 128, 64-256 (evenly) or 128~32 (mean and "
                         "deviation)",
                         option, text);
    *out = is_normal ? (bench_serve_length){.low = 1, .high = 4 * a, .mean = a, .deviation = b}
                     : (bench_serve_length){.low = a, .high = b, .mean = (a + b) / 2};
    return LACE_OK;
}

static int32_t draw_length(const bench_serve_length *length, bench_serve_random *r)
{
    double x = length->low + (length->high - length->low + 1) * (1 - bench_serve_random_unit(r));
    if (length->deviation > 0) { /* Box and Muller, 1958 */
        double radius = sqrt(-2 * log(bench_serve_random_unit(r)));
        x = length->mean +
            length->deviation * radius * cos(6.283185307179586 * bench_serve_random_unit(r));
        x = round(x);
    }
    x = floor(x);
    return (int32_t)(x < length->low ? length->low : x > length->high ? length->high : x);
}

lace_status bench_serve_slo_parse(bench_serve_plan *plan, const char *text, lace_error *err)
{
    const struct {
        const char *name;
        double *target;
    } names[] = {{"ttft:", &plan->slo_first_s},
                 {"itl:", &plan->slo_between_s},
                 {"e2e:", &plan->slo_total_s}};
    for (const char *at = text; *at;) {
        double *target = NULL;
        for (size_t i = 0; i < sizeof names / sizeof names[0] && !target; i++)
            if (strncmp(at, names[i].name, strlen(names[i].name)) == 0) {
                target = names[i].target;
                at += strlen(names[i].name);
            }
        char *rest = NULL;
        double ms = target ? strtod(at, &rest) : 0;
        if (!target || rest == at || !(ms > 0) || (*rest && *rest != ','))
            return error_set(err, LACE_E_ARG,
                             "--slo %.60s: expected milliseconds as ttft:500,itl:50,e2e:10000",
                             text);
        *target = ms / 1e3;
        at = *rest ? rest + 1 : rest;
    }
    return LACE_OK;
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static lace_status put_words(bench_serve_random *r, int32_t n, buf *out)
{
    for (int32_t i = 0; i < n; i++)
        TRY(buf_printf(out, "%s%s", out->size && out->data[out->size - 1] != '"' ? " " : "",
                       words[random_bits(r) % N_WORDS]));
    return LACE_OK;
}

/* A body up to the opening quote of the prompt. */
static lace_status begin_body(const bench_serve_plan *plan, const bench_serve_server *server,
                              buf *out)
{
    json_t *name = json_string(server->model);
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    lace_status status = LACE_E_NOMEM;
    if (quoted)
        status = buf_printf(out, "{\"model\":%s,%s\"", quoted,
                            plan->is_chat ? "\"messages\":[{\"role\":\"user\",\"content\":"
                                          : "\"prompt\":");
    free(quoted);
    json_decref(name);
    return status;
}

static lace_status end_body(const bench_serve_plan *plan, int32_t n_output, uint64_t seed, buf *out)
{
    return buf_printf(out,
                      "\"%s,\"max_tokens\":%d,\"temperature\":%g,\"seed\":%llu,\"stream\":true,"
                      "\"stream_options\":{\"include_usage\":true}%s}",
                      plan->is_chat ? "}]" : "", n_output, (double)plan->temperature,
                      (unsigned long long)seed, plan->ends_early ? "" : ",\"ignore_eos\":true");
}

static int32_t words_for(const bench_serve_server *server, double n_tokens)
{
    double n = n_tokens / (server->tokens_per_word > 0 ? server->tokens_per_word : 1);
    return n < 1 ? 0 : (int32_t)lround(n);
}

lace_status bench_serve_plan_body(const bench_serve_plan *plan, const bench_serve_server *server,
                                  int32_t i, buf *out)
{
    bench_serve_random shared = {plan->seed}, own = {plan->seed + 1 + (uint64_t)i};
    own.state = random_bits(&own); /* neighbours have nothing in common */
    int32_t n_input = draw_length(&plan->input, &own);
    int32_t n_output = draw_length(&plan->output, &own);
    int32_t n_prefix = plan->n_prefix < n_input ? plan->n_prefix : n_input;
    int32_t n_shared = words_for(server, n_prefix);
    int32_t n_words = words_for(server, n_input - server->tokens_around);
    TRY(begin_body(plan, server, out));
    TRY(put_words(&shared, n_shared < n_words ? n_shared : n_words, out));
    if (n_words > n_shared)
        TRY(put_words(&own, n_words - n_shared, out));
    if (n_words < 1)
        TRY(put_words(&own, 1, out));
    return end_body(plan, n_output, (plan->seed + (uint64_t)i) & 0x7fffffff, out);
}
