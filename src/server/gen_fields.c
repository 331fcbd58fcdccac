/*
 * The fields that control a generation, by the rows of fields.def. A value outside of its range is
 * refused, never bent. null is as good as absent. Fields that are in no row are passed over, as
 * clients send all kinds of notes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/system.h"
#include "server/core.h"

typedef enum field_kind { FIELD_INT, FIELD_FLOAT, FIELD_ABOVE, FIELD_BOOL, FIELD_SEED } field_kind;

/* What -1 stands for, where llama.cpp, vLLM and Ollama have it. */
typedef enum field_minus { NO_MINUS, MINUS_IS_ZERO, MINUS_IS_MINUS, MINUS_IS_CONTEXT } field_minus;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset; /* in gen_request */
    double low, high;
    field_minus minus;
} field;

/* Fields that are not read by the first table: on which routes they are done or refused. */
typedef struct other_field {
    const char *name;
    unsigned routes;     /* a bit for each gen_kind */
    const char *neutral; /* values that ask for nothing, separated by spaces */
    const char *instead; /* "": nothing */
} other_field;

#define AT(member)      offsetof(gen_request, member)
#define SAMPLER(member) offsetof(gen_request, options.sampler.member)
#define ON(kind)        (1u << (kind))
#define ANY_ROUTE       (~0u)

static const field fields[] = {
#define FIELD(name, kind, place, low, high, minus) {name, FIELD_##kind, place, low, high, minus},
#define OWN(name, routes)
#define NOT_DONE(name, routes, neutral, instead)
#define NOTE(name)
#include "server/fields.def"
#undef FIELD
#undef OWN
#undef NOT_DONE
};

static const other_field own_fields[] = {
#define FIELD(name, kind, place, low, high, minus)
#define OWN(name, routes) {name, routes, "false 0", " on this route"},
#define NOT_DONE(name, routes, neutral, instead)
#include "server/fields.def"
#undef OWN
#undef NOT_DONE
};

static const other_field not_done[] = {
#define OWN(name, routes)
#define NOT_DONE(name, routes, neutral, instead) {name, routes, neutral, instead},
#include "server/fields.def"
};

static bool is_neutral(const json_t *value, const char *word, size_t n)
{
    char text_of_it[32];
    if (n == 0 || n >= sizeof text_of_it)
        return false;
    memcpy(text_of_it, word, n);
    text_of_it[n] = 0;
    switch (json_typeof(value)) {
    case JSON_TRUE:
        return strcmp(text_of_it, "true") == 0;
    case JSON_FALSE:
        return strcmp(text_of_it, "false") == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return strcspn(word, "-0123456789") == 0 &&
               json_number_value(value) == strtod(text_of_it, NULL);
    case JSON_STRING:
        return strcmp(json_string_value(value), text_of_it) == 0;
    default:
        return false;
    }
}

static bool asks_for_nothing(const json_t *value, const char *neutral)
{
    if (json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0) ||
        (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return true;
    for (size_t n; *neutral; neutral += n + (neutral[n] == ' ')) {
        n = strcspn(neutral, " ");
        if (is_neutral(value, neutral, n))
            return true;
    }
    return false;
}

static bool check_field(call *c, const json_t *body, const other_field *f)
{
    const json_t *value = json_object_get(body, f->name);
    if (!value || asks_for_nothing(value, f->neutral))
        return true;
    call_fail(c, 400, f->name, "unsupported_value", "%s is not supported%s", f->name, f->instead);
    return false;
}

static bool check_not_done(call *c, const json_t *body, gen_kind kind)
{
    for (size_t i = 0; i < sizeof not_done / sizeof not_done[0]; i++)
        if ((not_done[i].routes & ON(kind)) && !check_field(c, body, &not_done[i]))
            return false;
    for (size_t i = 0; i < sizeof own_fields / sizeof own_fields[0]; i++)
        if (!(own_fields[i].routes & ON(kind)) && !check_field(c, body, &own_fields[i]))
            return false;
    const json_t *modalities = json_object_get(body, "modalities"), *one;
    size_t i;
    json_array_foreach((json_t *)modalities, i, one)
    {
        if (!json_is_string(one) || strcmp(json_string_value(one), "text") != 0)
            return call_refuse(c, "modalities", "modalities may only have \"text\"");
    }
    return true;
}

static bool refuse_kind(call *c, const char *name, const char *expected, const json_t *found)
{
    call_fail(c, 400, name, "invalid_type", "%s is %s, expected %s", name, json_kind(found),
              expected);
    return false;
}

static bool read_number(call *c, const field *f, const json_t *value, double *out)
{
    bool is_int = f->kind == FIELD_INT, is_above = f->kind == FIELD_ABOVE;
    if (is_int ? !json_is_integer(value) : !json_is_number(value))
        return refuse_kind(c, f->name, is_int ? "an integer" : "a number", value);
    double x = json_number_value(value);
    bool is_minus = f->minus != NO_MINUS && x == -1;
    if (!is_minus && (!(x >= f->low && x <= f->high) || (is_above && x == f->low))) {
        call_fail(c, 400, f->name, "invalid_value", "%s is %.10g, expected %s%.10g to %.10g%s",
                  f->name, x, is_above ? "above " : "", f->low, f->high,
                  f->minus != NO_MINUS ? ", or -1" : "");
        return false;
    }
    if (is_minus && f->minus == MINUS_IS_ZERO)
        x = 0;
    else if (is_minus && f->minus == MINUS_IS_CONTEXT)
        x = fmin(call_server(c)->limits.n_context, f->high);
    *out = x;
    return true;
}

static bool read_field(call *c, const field *f, const json_t *value, gen_request *r)
{
    void *target = (char *)r + f->offset;
    double x = 0;
    switch (f->kind) {
    case FIELD_INT:
        if (!read_number(c, f, value, &x))
            return false;
        *(int32_t *)target = (int32_t)x;
        return true;
    case FIELD_FLOAT:
    case FIELD_ABOVE:
        if (!read_number(c, f, value, &x))
            return false;
        *(float *)target = (float)x;
        return true;
    case FIELD_BOOL:
        if (!json_is_boolean(value))
            return refuse_kind(c, f->name, "a boolean", value);
        *(bool *)target = json_is_true(value);
        return true;
    case FIELD_SEED:
        if (!json_is_integer(value))
            return refuse_kind(c, f->name, "an integer", value);
        if (json_integer_value(value) != -1) /* -1: a random one, as if there were none */
            *(uint64_t *)target = (uint64_t)json_integer_value(value);
        return true;
    }
    return true;
}

/* ---- Stops ----------------------------------------------------------------------------------- */

static bool add_stop(gen_request *r, call *c, const json_t *value, const char **stops)
{
    if (!json_is_string(value))
        return refuse_kind(c, "stop", "a string or a list of strings", value);
    size_t n = json_string_length(value);
    if (n == 0 || n > 256 || strlen(json_string_value(value)) != n) {
        call_fail(c, 400, "stop", "invalid_value", "stop: a text has %zu bytes, expected 1 to 256",
                  n);
        return false;
    }
    stops[r->options.n_stops] = arena_strndup(&r->memory, json_string_value(value), n);
    if (!stops[r->options.n_stops])
        return call_nomem(c);
    r->options.n_stops++;
    return true;
}

bool gen_read_stops(gen_request *r, call *c, const json_t *stop)
{
    if (!stop)
        return true;
    const char **stops = arena_alloc(&r->memory, GEN_MAX_STOPS, sizeof *stops);
    if (!stops)
        return call_nomem(c);
    r->options.stops = stops;
    if (!json_is_array(stop))
        return add_stop(r, c, stop, stops);
    if (json_array_size(stop) > GEN_MAX_STOPS) {
        call_fail(c, 400, "stop", "invalid_value", "stop: %zu texts, expected at most %d",
                  json_array_size(stop), GEN_MAX_STOPS);
        return false;
    }
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (!add_stop(r, c, json_array_get(stop, i), stops))
            return false;
    return true;
}

static bool read_token(call *c, const char *name, const json_t *value, lace_token *out)
{
    int32_t n_vocab = call_server(c)->info.n_vocab;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= n_vocab) {
        call_fail(c, 400, name, "invalid_value", "%s: a token is an integer from 0 to %d", name,
                  n_vocab - 1);
        return false;
    }
    *out = (lace_token)json_integer_value(value);
    return true;
}

bool gen_read_tokens(gen_request *r, call *c, const char *name, const json_t *list, size_t max,
                     lace_token **out, size_t *n_out)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > max) {
        call_fail(c, 400, name, "invalid_value", "%s is not a list of at most %zu tokens", name,
                  max);
        return false;
    }
    *out = arena_alloc(&r->memory, n ? n : 1, sizeof **out);
    if (!*out)
        return call_nomem(c);
    for (size_t i = 0; i < n; i++)
        if (!read_token(c, name, json_array_get(list, i), &(*out)[i]))
            return false;
    *n_out = n;
    return true;
}

/* ---- Biases ---------------------------------------------------------------------------------- */

/* The biases of a request while they are read: of tokens by number, and of all tokens of a text. */
typedef struct bias_list {
    gen_request *r;
    call *c;
    lace_bias *biases; /* [capacity] */
    size_t capacity;
} bias_list;

/* Of all choices together: each of them is applied in every step. */
enum { MAX_BIASES = 1 << 18 };

static bool refuse_many_biases(call *c)
{
    call_fail(c, 400, "logit_bias", "invalid_value",
              "logit_bias has more than %d tokens, counted for each choice", MAX_BIASES);
    return false;
}

static bool check_biases(const gen_request *r, call *c)
{
    return r->options.n_biases * (size_t)r->n_choices <= MAX_BIASES || refuse_many_biases(c);
}

static bool add_bias(bias_list *l, lace_token token, float bias)
{
    size_t *n = &l->r->options.n_biases;
    if (*n == MAX_BIASES)
        return refuse_many_biases(l->c);
    if (*n == l->capacity) {
        size_t more = l->capacity * 2 + 16;
        lace_bias *grown = arena_alloc(&l->r->memory, more, sizeof *grown);
        if (!grown)
            return call_nomem(l->c);
        if (*n)
            memcpy(grown, l->biases, *n * sizeof *grown);
        l->biases = grown;
        l->capacity = more;
        l->r->options.biases = grown;
    }
    l->biases[(*n)++] = (lace_bias){token, bias};
    return true;
}

static bool refuse_bias(call *c)
{
    call_fail(c, 400, "logit_bias", "invalid_value",
              "logit_bias: a token is a number from 0 to %d, or a text",
              call_server(c)->info.n_vocab - 1);
    return false;
}

/* -100 is how OpenAI's clients ban a token, false how llama.cpp's do. */
static bool read_bias(call *c, const json_t *value, float *out)
{
    double bias = json_is_false(value) ? -100 : json_number_value(value);
    if (!(json_is_number(value) || json_is_false(value)) || !(bias >= -100 && bias <= 100)) {
        call_fail(c, 400, "logit_bias", "invalid_value",
                  "logit_bias: a bias is a number from -100 to 100");
        return false;
    }
    *out = bias == -100 ? -INFINITY : (float)bias;
    return true;
}

/* Each token of a text. */
static bool add_text_biases(bias_list *l, const char *chars, size_t n_bytes, float bias)
{
    enum { MAX_TOKENS = 256 };
    lace_token tokens[MAX_TOKENS];
    size_t n = 0;
    if (n_bytes == 0 || n_bytes > MAX_TOKENS ||
        lace_tokenize(call_server(l->c)->model, chars, n_bytes, 0, tokens, MAX_TOKENS, &n, NULL) !=
            LACE_OK ||
        n > MAX_TOKENS)
        return refuse_bias(l->c);
    for (size_t i = 0; i < n; i++)
        if (!add_bias(l, tokens[i], bias))
            return false;
    return true;
}

static bool add_number_bias(bias_list *l, int64_t token, float bias)
{
    if (token < 0 || token >= call_server(l->c)->info.n_vocab)
        return refuse_bias(l->c);
    return add_bias(l, (lace_token)token, bias);
}

/* {"15": -100, " word": 5} */
static bool add_member(bias_list *l, const char *key, const json_t *value)
{
    int64_t token = 0;
    size_t i = 0;
    float bias;
    if (!read_bias(l->c, value, &bias))
        return false;
    for (; key[i] >= '0' && key[i] <= '9' && i < 10; i++)
        token = token * 10 + (key[i] - '0');
    return i > 0 && !key[i] ? add_number_bias(l, token, bias)
                            : add_text_biases(l, key, strlen(key), bias);
}

/* [[15, -100], [" word", false]], as llama.cpp has it */
static bool add_pair(bias_list *l, const json_t *pair)
{
    const json_t *what = json_array_get(pair, 0), *value = json_array_get(pair, 1);
    float bias;
    if (json_array_size(pair) != 2)
        return call_refuse(l->c, "logit_bias", "logit_bias: an entry is a token and a bias");
    if (!read_bias(l->c, value, &bias))
        return false;
    if (json_is_string(what))
        return add_text_biases(l, json_string_value(what), json_string_length(what), bias);
    return json_is_integer(what) ? add_number_bias(l, json_integer_value(what), bias)
                                 : refuse_bias(l->c);
}

static bool read_biases(gen_request *r, call *c, const json_t *given)
{
    bias_list l = {.r = r, .c = c};
    const char *key;
    json_t *value;
    size_t i;
    if (!given)
        return true;
    if (!json_is_object(given) && !json_is_array(given))
        return refuse_kind(c, "logit_bias", "an object or a list", given);
    json_object_foreach((json_t *)given, key, value)
    {
        if (!add_member(&l, key, value))
            return false;
    }
    json_array_foreach((json_t *)given, i, value)
    {
        if (!add_pair(&l, value))
            return false;
    }
    return true;
}

/* ---- DRY's breakers -------------------------------------------------------------------------- */

/* A list of texts over which no repetition goes; by default those that llama.cpp uses. */
static bool read_breakers(gen_request *r, call *c, const json_t *given)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    enum { MAX_BREAKERS = 64, MAX_BREAKER_BYTES = 256 };
    const char *texts[MAX_BREAKERS];
    size_t n = sizeof usual / sizeof usual[0];
    if (given && (!json_is_array(given) || json_array_size(given) > MAX_BREAKERS))
        return refuse_kind(c, "dry_sequence_breakers", "a list of at most 64 strings", given);
    if (!(r->options.sampler.dry_multiplier > 0))
        return true;
    memcpy(texts, usual, sizeof usual);
    if (given)
        n = json_array_size(given);
    for (size_t i = 0; given && i < n; i++) {
        texts[i] = json_string_value(json_array_get(given, i));
        if (!texts[i])
            return refuse_kind(c, "dry_sequence_breakers", "a list of strings", given);
        if (strlen(texts[i]) > MAX_BREAKER_BYTES)
            return call_refuse(c, "dry_sequence_breakers",
                               "dry_sequence_breakers: a text has more than 256 bytes");
    }
    size_t capacity = (size_t)call_server(c)->info.n_vocab;
    lace_token *tokens = arena_alloc(&r->memory, capacity, sizeof *tokens);
    if (!tokens)
        return call_nomem(c);
    r->options.sampler.dry_breakers = tokens;
    r->options.sampler.n_dry_breakers =
        lace_tokens_with(call_server(c)->model, texts, n, tokens, capacity);
    return true;
}

/* ---- Log-probabilities ----------------------------------------------------------------------- */

/* Chat: logprobs true or false, top_logprobs 0 to 20. Text: logprobs 0 to 20. */
static bool read_logprobs(gen_request *r, call *c, const json_t *body, gen_kind kind)
{
    static const field top = {"top_logprobs", FIELD_INT, 0, 0, LACE_MAX_TOP, NO_MINUS};
    static const field count = {"logprobs", FIELD_INT, 0, 0, LACE_MAX_TOP, NO_MINUS};
    const json_t *logprobs = json_get(body, "logprobs"), *n_top = json_get(body, "top_logprobs");
    double x = 0;
    if (kind == GEN_LLAMA) {
        static const field n_probs = {"n_probs", FIELD_INT, 0, 0, LACE_MAX_TOP, NO_MINUS};
        const json_t *given = json_get(body, "n_probs");
        if (given ? !read_number(c, &n_probs, given, &x)
                  : logprobs && !read_number(c, &count, logprobs, &x))
            return false;
        r->wants_logprobs = x > 0;
    } else if (kind == GEN_TEXT && logprobs && !json_is_false(logprobs)) {
        if (!read_number(c, &count, logprobs, &x))
            return false;
        r->wants_logprobs = true;
    } else if (kind == GEN_CHAT && logprobs) {
        if (!json_is_boolean(logprobs))
            return refuse_kind(c, "logprobs", "a boolean", logprobs);
        r->wants_logprobs = json_is_true(logprobs);
    }
    if (kind == GEN_CHAT && n_top) {
        if (!read_number(c, &top, n_top, &x))
            return false;
        if (!r->wants_logprobs) {
            call_fail(c, 400, "top_logprobs", "invalid_value",
                      "top_logprobs is given, but logprobs is not true");
            return false;
        }
    }
    if (r->wants_logprobs)
        r->options.n_top = (int32_t)x;
    return true;
}

static bool read_stream_options(gen_request *r, call *c, const json_t *given)
{
    if (!given)
        return true;
    const json_t *usage = json_get(given, "include_usage");
    if (!json_is_object(given) || (usage && !json_is_boolean(usage)))
        return refuse_kind(c, "stream_options", "an object with include_usage", given);
    r->wants_usage = json_is_true(usage);
    return true;
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* Of 53 bits, which every client's numbers can hold. */
static uint64_t random_seed(void)
{
    uint64_t seed;
    return (system_random(&seed, sizeof seed) ? seed : clock_ns()) >> 11;
}

void gen_request_init(gen_request *r)
{
    memset(r, 0, sizeof *r);
    arena_init(&r->memory, 256 << 20);
    r->options = lace_generation_options_default();
    r->options.sampler.seed = random_seed();
    r->n_choices = 1;
    r->parallel_calls = true;
    r->add_generation_prompt = true;
    r->continues_last = true;
}

/* What the server was started with, for requests that do not say otherwise. */
static void use_defaults(gen_request *r, const server_options *o)
{
    uint64_t seed = o->has_seed ? o->sampler.seed : r->options.sampler.seed;
    r->options.sampler = o->sampler;
    r->options.sampler.seed = seed;
    r->options.max_tokens = o->max_tokens;
}

void gen_write_defaults(const server *s, json_out *out)
{
    gen_request r = {.options = lace_generation_options_default()};
    use_defaults(&r, &s->options);
    const size_t begin = AT(options.sampler), end = begin + sizeof r.options.sampler;
    const char *comma = "";
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const field *f = &fields[i];
        const char *at = (const char *)&r + f->offset;
        if (f->offset < begin || f->offset >= end || f->kind == FIELD_SEED)
            continue;
        if (f->kind == FIELD_FLOAT || f->kind == FIELD_ABOVE)
            json_out_printf(out, "%s\"%s\":%.6g", comma, f->name, *(const float *)at);
        else
            json_out_printf(out, "%s\"%s\":%d", comma, f->name, *(const int32_t *)at);
        comma = ",";
    }
}

void gen_request_deinit(gen_request *r)
{
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->kwargs);
    json_decref(r->documents);
    lace_grammar_free(r->options.grammar);
    for (size_t i = 0; i < r->n_images; i++)
        lace_image_free(r->images[i]);
    arena_deinit(&r->memory);
    memset(r, 0, sizeof *r);
}

/* The body and an empty request; false: answered. */
static bool begin_request(call *c, gen_request *r, json_t **body)
{
    *body = call_json(c);
    if (*body)
        gen_request_init(r);
    return *body != NULL;
}

void gen_start(call *c, gen_reader read, const gen_sink *sink)
{
    json_t *body;
    gen_request r;
    if (!begin_request(c, &r, &body))
        return;
    use_defaults(&r, &call_server(c)->options);
    if (gen_read_adapters(&r, c, body) && read(&r, c, body) && check_biases(&r, c))
        call_generate(c, &r, sink);
    gen_request_deinit(&r);
}

void gen_count(call *c, gen_reader read, const char *object)
{
    json_t *body;
    gen_request r;
    if (!begin_request(c, &r, &body))
        return;
    if (read(&r, c, body)) {
        json_out out;
        json_out_init(&out, 256);
        json_out_printf(&out, "{\"object\":\"%s\",\"input_tokens\":%zu}", object, r.n_prompt);
        call_reply(c, 200, "application/json", &out);
        json_out_deinit(&out);
    }
    gen_request_deinit(&r);
}

/* What two fields say together. */
static bool check_together(gen_request *r, call *c, const json_t *body)
{
    const json_t *best_of = json_get(body, "best_of");
    lace_generation_options *o = &r->options;
    if (best_of && !(json_is_integer(best_of) && json_integer_value(best_of) == r->n_choices))
        return call_refuse(c, "best_of", "best_of other than n is not supported");
    if (o->max_tokens >= 0 && o->min_tokens > o->max_tokens) {
        call_fail(c, 400, "min_tokens", "invalid_value", "min_tokens is %d, but max_tokens is %d",
                  o->min_tokens, o->max_tokens);
        return false;
    }
    if (o->sampler.dry_last_n == 0) { /* nothing is looked at */
        o->sampler.dry_multiplier = 0;
        o->sampler.dry_last_n = 1;
    }
    return true;
}

bool gen_request_read(gen_request *r, call *c, const json_t *body, gen_kind kind)
{
    if (!check_not_done(c, body, kind))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = json_get(body, fields[i].name);
        if (value && !read_field(c, &fields[i], value, r))
            return false;
    }
    if (!check_together(r, c, body))
        return false;
    lace_token *stop_tokens = NULL;
    const json_t *ids = json_get(body, "stop_token_ids");
    if (ids && !gen_read_tokens(r, c, "stop_token_ids", ids, 1024, &stop_tokens,
                                &r->options.n_stop_tokens))
        return false;
    r->options.stop_tokens = stop_tokens;
    return gen_read_stops(r, c, json_get(body, "stop")) &&
           read_biases(r, c, json_get(body, "logit_bias")) && read_logprobs(r, c, body, kind) &&
           read_breakers(r, c, json_get(body, "dry_sequence_breakers")) &&
           read_stream_options(r, c, json_get(body, "stream_options")) &&
           gen_read_format(r, c, body);
}

bool gen_check_model(call *c, const json_t *body)
{
    const json_t *name = json_object_get(body, "model");
    if (!name || json_is_null(name))
        return true;
    if (!json_is_string(name))
        return refuse_kind(c, "model", "a string", name);
    if ((c->route->flags & ROUTE_EMBEDS) &&
        adapter_by_name(call_server(c), json_string_value(name)) >= 0)
        return call_refuse(c, "model", "adapters that are models change text, not embeddings");
    if (!call_server(c)->options.is_strict)
        return true;
    const char *given = json_string_value(name), *own = call_server(c)->model_id;
    if (strlen(given) == json_string_length(name) &&
        (strcmp(given, own) == 0 || strcmp(given, SERVER_ANY_MODEL) == 0 ||
         adapter_by_name(call_server(c), given) >= 0))
        return true;
    call_fail(c, 404, "model", "model_not_found",
              "there is no such model here; this server has \"%s\", also called \"%s\"", own,
              SERVER_ANY_MODEL);
    return false;
}
