/*
 * The fields that control a generation: one table with the name, the kind, the range and the place
 * of each. A value outside of its range is refused, never bent. null is as good as absent.
 */
#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "server/core.h"

typedef enum field_kind { FIELD_INT, FIELD_FLOAT, FIELD_BOOL, FIELD_SEED } field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset; /* in gen_request */
    double low, high;
    bool is_low_open; /* low itself is outside */
} field;

#define AT(member)      offsetof(gen_request, member)
#define SAMPLER(member) offsetof(gen_request, options.sampler.member)

/* clang-format off */
static const field fields[] = {
    {"temperature",           FIELD_FLOAT, SAMPLER(temperature),       0, 100, false},
    {"top_k",                 FIELD_INT,   SAMPLER(top_k),             0, 1 << 30, false},
    {"top_p",                 FIELD_FLOAT, SAMPLER(top_p),             0, 1, true},
    {"min_p",                 FIELD_FLOAT, SAMPLER(min_p),             0, 1, false},
    {"typical_p",             FIELD_FLOAT, SAMPLER(typical_p),         0, 1, true},
    {"repeat_penalty",        FIELD_FLOAT, SAMPLER(repeat_penalty),    0, 100, true},
    {"repetition_penalty",    FIELD_FLOAT, SAMPLER(repeat_penalty),    0, 100, true},
    {"repeat_last_n",         FIELD_INT,   SAMPLER(penalty_last_n),    0, 1 << 20, false},
    {"presence_penalty",      FIELD_FLOAT, SAMPLER(presence_penalty),  -2, 2, false},
    {"frequency_penalty",     FIELD_FLOAT, SAMPLER(frequency_penalty), -2, 2, false},
    {"dry_multiplier",        FIELD_FLOAT, SAMPLER(dry_multiplier),    0, 100, false},
    {"dry_base",              FIELD_FLOAT, SAMPLER(dry_base),          1, 100, false},
    {"dry_allowed_length",    FIELD_INT,   SAMPLER(dry_allowed_length), 0, 1 << 20, false},
    {"dry_penalty_last_n",    FIELD_INT,   SAMPLER(dry_last_n),        1, 1 << 20, false},
    {"xtc_probability",       FIELD_FLOAT, SAMPLER(xtc_probability),   0, 1, false},
    {"xtc_threshold",         FIELD_FLOAT, SAMPLER(xtc_threshold),     0, 1, false},
    {"mirostat",              FIELD_INT,   SAMPLER(mirostat),          0, 2, false},
    {"mirostat_tau",          FIELD_FLOAT, SAMPLER(mirostat_tau),      0, 100, false},
    {"mirostat_eta",          FIELD_FLOAT, SAMPLER(mirostat_eta),      0, 100, false},
    {"seed",                  FIELD_SEED,  SAMPLER(seed),              0, 0, false},
    {"max_tokens",            FIELD_INT,   AT(options.max_tokens),     1, INT32_MAX, false},
    {"max_completion_tokens", FIELD_INT,   AT(options.max_tokens),     1, INT32_MAX, false},
    {"min_tokens",            FIELD_INT,   AT(options.min_tokens),     0, INT32_MAX, false},
    {"ignore_eos",            FIELD_BOOL,  AT(options.ignore_end),     0, 0, false},
    {"cache_prompt",          FIELD_BOOL,  AT(options.use_prefixes),   0, 0, false},
    {"parallel_tool_calls",   FIELD_BOOL,  AT(parallel_calls),         0, 0, false},
    {"n",                     FIELD_INT,   AT(n_choices),              1, GEN_MAX_CHOICES, false},
    {"stream",                FIELD_BOOL,  AT(is_stream),              0, 0, false},
};
/* clang-format on */

/*
 * What clients of other servers may send, would change the text, and is not done here. Null, false,
 * zero, emptiness and the neutral value ask for nothing. Fields that are in no list are passed
 * over, as clients send all kinds of notes.
 */
static const struct {
    const char *name;
    double neutral;
    const char *instead; /* "": nothing */
} not_done[] = {
    {"functions", 0, "; use tools"},
    {"function_call", 0, "; use tool_choice"},
    {"guided_json", 0, "; use structured_outputs.json"},
    {"guided_regex", 0, "; use structured_outputs.regex"},
    {"guided_choice", 0, "; use structured_outputs.choice"},
    {"guided_grammar", 0, "; use structured_outputs.grammar"},
    {"n_predict", -1, "; use max_tokens"},
    {"n_probs", 0, "; use logprobs"},
    {"n_keep", 0, ": no text is ever cut"},
    {"truncate_prompt_tokens", 0, ": no text is ever cut"},
    {"prompt_logprobs", 0, ""},
    {"audio", 0, ""},
    {"web_search_options", 0, ""},
    {"use_beam_search", 0, ""},
    {"length_penalty", 1, ""},
    {"bad_words", 0, "; use logit_bias"},
    {"allowed_token_ids", 0, "; use logit_bias"},
    {"include_stop_str_in_output", 0, ""},
    {"continue_final_message", 0, ""},
    {"samplers", 0, ""},
    {"top_n_sigma", -1, ""},
    {"top_a", 0, ""},
    {"tfs_z", 1, ""},
    {"dynatemp_range", 0, ""},
    {"smoothing_factor", 0, ""},
    {"lora", 0, ""},
};

static bool asks_for_nothing(const json_t *value, double neutral)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) == 0 || json_number_value(value) == neutral;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    default:
        return false;
    }
}

static bool check_not_done(call *c, const json_t *body)
{
    for (size_t i = 0; i < sizeof not_done / sizeof not_done[0]; i++) {
        const json_t *value = json_object_get(body, not_done[i].name);
        if (value && !asks_for_nothing(value, not_done[i].neutral)) {
            call_fail(c, 400, not_done[i].name, "unsupported_value", "%s is not supported%s",
                      not_done[i].name, not_done[i].instead);
            return false;
        }
    }
    const json_t *modalities = json_object_get(body, "modalities"), *one;
    size_t i;
    json_array_foreach((json_t *)modalities, i, one)
    {
        if (!json_is_string(one) || strcmp(json_string_value(one), "text") != 0)
            return call_refuse(c, "modalities", "modalities has something else than \"text\"");
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
    bool is_int = f->kind == FIELD_INT;
    if (is_int ? !json_is_integer(value) : !json_is_number(value))
        return refuse_kind(c, f->name, is_int ? "an integer" : "a number", value);
    double x = json_number_value(value);
    if (!(x >= f->low && x <= f->high) || (f->is_low_open && x == f->low)) {
        call_fail(c, 400, f->name, "invalid_value", "%s is %.10g, expected %s%.10g to %.10g",
                  f->name, x, f->is_low_open ? "above " : "", f->low, f->high);
        return false;
    }
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

/* A field that is there and not null. */
static const json_t *get(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
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

static bool read_bias(call *c, const char *key, const json_t *value, lace_bias *out)
{
    int32_t n_vocab = call_server(c)->info.n_vocab;
    int64_t token = 0;
    size_t i = 0;
    for (; key[i] >= '0' && key[i] <= '9' && i < 10; i++)
        token = token * 10 + (key[i] - '0');
    double bias = json_number_value(value);
    if (i == 0 || key[i] || token >= n_vocab) {
        call_fail(c, 400, "logit_bias", "invalid_value",
                  "logit_bias: a token is a number from 0 to %d", n_vocab - 1);
        return false;
    }
    if (!json_is_number(value) || !(bias >= -100 && bias <= 100)) {
        call_fail(c, 400, "logit_bias", "invalid_value",
                  "logit_bias: a bias is a number from -100 to 100");
        return false;
    }
    /* -100 is how OpenAI's clients ban a token. */
    *out = (lace_bias){(lace_token)token, bias == -100 ? -INFINITY : (float)bias};
    return true;
}

static bool read_biases(gen_request *r, call *c, const json_t *given)
{
    if (!given)
        return true;
    if (!json_is_object(given))
        return refuse_kind(c, "logit_bias", "an object", given);
    lace_bias *biases = arena_alloc(&r->memory, json_object_size(given) + 1, sizeof *biases);
    if (!biases)
        return call_nomem(c);
    r->options.biases = biases;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)given, key, value)
    {
        if (!read_bias(c, key, value, &biases[r->options.n_biases]))
            return false;
        r->options.n_biases++;
    }
    return true;
}

/* ---- DRY's breakers -------------------------------------------------------------------------- */

/* A list of texts over which no repetition goes; by default those that llama.cpp uses. */
static bool read_breakers(gen_request *r, call *c, const json_t *given)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    enum { MAX_BREAKERS = 64 };
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
    static const field top = {"top_logprobs", FIELD_INT, 0, 0, LACE_MAX_TOP, false};
    static const field count = {"logprobs", FIELD_INT, 0, 0, LACE_MAX_TOP, false};
    const json_t *logprobs = get(body, "logprobs"), *n_top = get(body, "top_logprobs");
    double x = 0;
    if (kind == GEN_TEXT && logprobs && !json_is_false(logprobs)) {
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
    const json_t *usage = get(given, "include_usage");
    if (!json_is_object(given) || (usage && !json_is_boolean(usage)))
        return refuse_kind(c, "stream_options", "an object with include_usage", given);
    r->wants_usage = json_is_true(usage);
    return true;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static uint64_t random_seed(void)
{
    uint64_t seed;
    return getrandom(&seed, sizeof seed, 0) == sizeof seed ? seed : clock_ns();
}

void gen_request_init(gen_request *r)
{
    memset(r, 0, sizeof *r);
    arena_init(&r->memory, 256 << 20);
    r->options = lace_generation_options_default();
    r->options.sampler.seed = random_seed();
    r->n_choices = 1;
    r->parallel_calls = true;
}

void gen_write_defaults(json_out *out)
{
    gen_request r = {.options = lace_generation_options_default()};
    const size_t begin = AT(options.sampler), end = begin + sizeof r.options.sampler;
    const char *comma = "";
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const field *f = &fields[i];
        const char *at = (const char *)&r + f->offset;
        if (f->offset < begin || f->offset >= end || f->kind == FIELD_SEED)
            continue;
        if (f->kind == FIELD_FLOAT)
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
    lace_grammar_free(r->options.grammar);
    arena_deinit(&r->memory);
    memset(r, 0, sizeof *r);
}

void gen_start(call *c, gen_reader read, const gen_sink *sink)
{
    json_t *body = call_json(c);
    if (!body)
        return;
    gen_request r;
    gen_request_init(&r);
    if (read(&r, c, body))
        call_generate(c, &r, sink);
    gen_request_deinit(&r);
}

bool gen_request_read(gen_request *r, call *c, const json_t *body, gen_kind kind)
{
    if (!check_not_done(c, body))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = get(body, fields[i].name);
        if (value && !read_field(c, &fields[i], value, r))
            return false;
    }
    lace_token *stop_tokens = NULL;
    const json_t *ids = get(body, "stop_token_ids");
    if (ids && !gen_read_tokens(r, c, "stop_token_ids", ids, 1024, &stop_tokens,
                                &r->options.n_stop_tokens))
        return false;
    r->options.stop_tokens = stop_tokens;
    return gen_read_stops(r, c, get(body, "stop")) && read_biases(r, c, get(body, "logit_bias")) &&
           read_logprobs(r, c, body, kind) &&
           read_breakers(r, c, get(body, "dry_sequence_breakers")) &&
           read_stream_options(r, c, get(body, "stream_options")) && gen_read_format(r, c, body);
}

bool gen_check_model(call *c, const json_t *body)
{
    const json_t *name = json_object_get(body, "model");
    if (!name || json_is_null(name))
        return true;
    if (!json_is_string(name))
        return refuse_kind(c, "model", "a string", name);
    const char *given = json_string_value(name), *own = call_server(c)->model_id;
    if (strlen(given) == json_string_length(name) &&
        (strcmp(given, own) == 0 || strcmp(given, SERVER_ANY_MODEL) == 0))
        return true;
    call_fail(c, 404, "model", "model_not_found",
              "there is no such model here; this server has \"%s\", also called \"%s\"", own,
              SERVER_ANY_MODEL);
    return false;
}
