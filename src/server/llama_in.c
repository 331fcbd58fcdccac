/* Requests in llama.cpp's own words: POST /completion and /infill. */
#include <math.h>
#include <string.h>

#include "base/json_read.h"
#include "server/core.h"
#include "server/llama.h"

enum { MAX_SEQUENCE = 1 << 20, MAX_FIELDS = 256 };

static text text_in(const json_t *value)
{
    return (text){json_string_value(value), json_string_length(value)};
}

/* ---- Samplers -------------------------------------------------------------------------------- */

/*
 * "samplers" names the stages that are wanted; the others are switched off. Their order is always
 * lace's own. "infill" is taken and does nothing.
 */
static bool read_samplers(gen_request *r, call *c, const json_t *given)
{
    static const char *const names[] = {"penalties", "dry", "top_k",       "typ_p", "top_p",
                                        "min_p",     "xtc", "temperature", "infill"};
    enum { N_NAMES = sizeof names / sizeof names[0] };
    bool is_on[N_NAMES] = {false};
    if (!given)
        return true;
    if (!json_is_array(given))
        return call_refuse(c, "samplers", "samplers is not a list");
    for (size_t i = 0; i < json_array_size(given); i++) {
        const char *name = json_string_value(json_array_get(given, i));
        size_t k = 0;
        if (name && strcmp(name, "typical_p") == 0)
            name = "typ_p";
        while (name && k < N_NAMES && strcmp(name, names[k]) != 0)
            k++;
        if (!name || k == N_NAMES) {
            call_fail(c, 400, "samplers", "invalid_value", "samplers[%zu] is unknown", i);
            return false;
        }
        is_on[k] = true;
    }
    lace_sampler_options *o = &r->options.sampler;
    if (!is_on[0]) {
        o->repeat_penalty = 1;
        o->presence_penalty = o->frequency_penalty = 0;
    }
    o->dry_multiplier = is_on[1] ? o->dry_multiplier : 0;
    o->top_k = is_on[2] ? o->top_k : 0;
    o->typical_p = is_on[3] ? o->typical_p : 1;
    o->top_p = is_on[4] ? o->top_p : 1;
    o->min_p = is_on[5] ? o->min_p : 0;
    o->xtc_probability = is_on[6] ? o->xtc_probability : 0;
    o->temperature = is_on[7] ? o->temperature : 1;
    return true;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static bool read_limit(call *c, const json_t *body, const char *name, double *out)
{
    const json_t *value = json_get(body, name);
    if (value && (!json_is_integer(value) || json_integer_value(value) < -1)) {
        call_fail(c, 400, name, "invalid_value", "%s is not an integer, -1 or more", name);
        return false;
    }
    *out = value ? (double)json_integer_value(value) : -1;
    return true;
}

static bool read_own(gen_request *r, call *c, const json_t *body, llama_request *q)
{
    const json_t *tokens = json_get(body, "return_tokens"),
                 *fields = json_get(body, "response_fields");
    double n_indent = -1;
    if (tokens && !json_is_boolean(tokens))
        return call_refuse(c, "return_tokens", "return_tokens is not a boolean");
    if (fields && !json_is_array(fields))
        return call_refuse(c, "response_fields", "response_fields is not a list");
    if (json_array_size(fields) > MAX_FIELDS)
        return call_refuse(c, "response_fields", "response_fields has more than 256 entries");
    for (size_t i = 0; i < json_array_size(fields); i++)
        if (!json_is_string(json_array_get(fields, i)))
            return call_refuse(c, "response_fields", "response_fields may only have texts");
    q->returns_tokens = json_is_true(tokens);
    q->fields = json_array_size(fields) ? fields : NULL;
    if (!read_limit(c, body, "t_max_predict_ms", &q->max_ms) ||
        !read_limit(c, body, "n_indent", &n_indent))
        return false;
    q->n_indent = (int)fmin(n_indent, 1 << 20);
    return read_samplers(r, c, json_get(body, "samplers"));
}

/* All fields but the prompt's. n_predict 0 only reads the prompt; a token must be computed. */
static bool read_fields(gen_request *r, call *c, const json_t *body)
{
    llama_request *q = arena_alloc(&r->memory, 1, sizeof *q);
    if (!q)
        return call_nomem(c);
    memset(q, 0, sizeof *q);
    r->user = q;
    json_t *ours = json_copy((json_t *)body);
    static const char *const limits[] = {"n_predict", "max_tokens", "max_completion_tokens"};
    for (size_t i = 0; ours && i < sizeof limits / sizeof limits[0]; i++) {
        const json_t *n = json_get(body, limits[i]);
        if (json_is_integer(n) && json_integer_value(n) == 0) {
            q->is_empty = true;
            json_object_set_new(ours, limits[i], json_integer(1));
        }
    }
    const json_t *grammar = json_get(body, "grammar");
    if (json_is_string(grammar) && json_string_length(grammar) == 0)
        json_object_del(ours, "grammar"); /* as llama.cpp has it */
    bool ok = ours ? gen_request_read(r, c, ours, GEN_LLAMA) : call_nomem(c);
    json_decref(ours);
    return ok && read_own(r, c, body, q);
}

/* ---- Prompts --------------------------------------------------------------------------------- */

/* Tokens and texts in one list are one prompt. */
static bool is_sequence(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_integer(json_array_get(list, i)))
            return true;
    return false;
}

static bool append_text(gen_request *r, call *c, const json_t *value, bool is_first,
                        size_t capacity)
{
    lace_error err = {0};
    size_t n = 0;
    unsigned flags = LACE_TOKENIZE_PARSE_SPECIAL | (is_first ? LACE_TOKENIZE_ADD_SPECIAL : 0);
    if (lace_tokenize(call_server(c)->model, json_string_value(value), json_string_length(value),
                      flags, r->prompt + r->n_prompt, capacity - r->n_prompt, &n,
                      &err) != LACE_OK) {
        call_fail_error(c, "prompt", &err);
        return false;
    }
    r->n_prompt += n; /* may be more than there is room for */
    return r->n_prompt < capacity || gen_check_length(c, r->n_prompt);
}

static bool read_sequence(gen_request *r, call *c, const json_t *list)
{
    size_t n = json_array_size(list), capacity = (size_t)call_server(c)->limits.n_context + 1;
    int32_t n_vocab = call_server(c)->info.n_vocab;
    if (n > MAX_SEQUENCE)
        return call_refuse(c, "prompt", "prompt has too many parts");
    r->prompt = arena_alloc(&r->memory, capacity, sizeof *r->prompt);
    r->n_prompt = 0;
    if (!r->prompt)
        return call_nomem(c);
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(list, i);
        if (json_is_string(part)) {
            if (!append_text(r, c, part, i == 0, capacity))
                return false;
            continue;
        }
        if (!json_is_integer(part) || json_integer_value(part) < 0 ||
            json_integer_value(part) >= n_vocab) {
            call_fail(c, 400, "prompt", "invalid_value",
                      "prompt: a token is an integer from 0 to %d", n_vocab - 1);
            return false;
        }
        if (r->n_prompt + 1 >= capacity)
            return gen_check_length(c, r->n_prompt + 1); /* one too many */
        r->prompt[r->n_prompt++] = (lace_token)json_integer_value(part);
    }
    return gen_check_length(c, r->n_prompt);
}

/* A text, a sequence, or {"prompt_string": text}. */
static bool read_prompt(gen_request *r, call *c, const json_t *prompt)
{
    if (json_is_object(prompt)) {
        const json_t *media = json_get(prompt, "multimodal_data");
        if (media && json_array_size(media) + json_string_length(media) > 0)
            return call_refuse(c, "prompt",
                               "prompt has images or sound, but this model reads text only");
        prompt = json_object_get(prompt, "prompt_string");
    }
    if (json_is_string(prompt))
        return gen_request_text(r, c, json_string_value(prompt), json_string_length(prompt));
    if (json_is_array(prompt) && is_sequence(prompt))
        return read_sequence(r, c, prompt);
    return call_refuse(c, "prompt",
                       "prompt is not a text, a list of tokens and texts, or a list of "
                       "these");
}

static bool read_prompts(gen_request *r, call *c, const json_t *list)
{
    size_t n = json_array_size(list);
    if (n == 0 || n * (size_t)r->n_choices > GEN_MAX_CHOICES)
        return call_refuse(c, "prompt", "a request may have 1 to 128 prompts and choices");
    r->prompts = arena_alloc(&r->memory, n, sizeof *r->prompts);
    if (!r->prompts)
        return call_nomem(c);
    for (size_t i = 0; i < n; i++) {
        if (!read_prompt(r, c, json_array_get(list, i)))
            return false;
        r->prompts[i] = (gen_prompt){r->prompt, r->n_prompt};
    }
    r->n_choices *= (int32_t)n;
    return true;
}

bool llama_read_completion(gen_request *r, call *c, json_t *body)
{
    const json_t *prompt = json_object_get(body, "prompt");
    if (!gen_check_model(c, body) || !read_fields(r, c, body))
        return false;
    r->n_each = r->n_choices;
    if (json_is_array(prompt) && !is_sequence(prompt))
        return read_prompts(r, c, prompt);
    return read_prompt(r, c, prompt);
}

/* ---- Infilling ------------------------------------------------------------------------------- */

/* Other files, in front of the one with the hole. */
static bool read_extra(gen_request *r, call *c, const json_t *extra, buf *out)
{
    bool has_files = gen_has_token(c, "<|file_sep|>");
    lace_status status = LACE_OK;
    (void)r;
    if (extra && !json_is_array(extra))
        return call_refuse(c, "input_extra", "input_extra is not a list");
    if (json_array_size(extra) > 0 && gen_has_token(c, "<|repo_name|>"))
        status = buf_append(out, "<|repo_name|>myproject\n", 23);
    for (size_t i = 0; status == LACE_OK && i < json_array_size(extra); i++) {
        const json_t *file = json_array_get(extra, i);
        const json_t *name = json_get(file, "filename"), *content = json_object_get(file, "text");
        if (!json_is_string(content) || (name && !json_is_string(name)))
            return call_refuse(c, "input_extra",
                               "an entry of input_extra has a text, and may have a filename");
        text before = has_files ? text_of("<|file_sep|>") : text_of("\n\n--- snippet ---\n\n");
        text title = has_files ? name ? text_in(name) : text_of("tmp") : text_of("");
        text parts[] = {before, title, text_of(has_files ? "\n" : ""), text_in(content)};
        for (size_t k = 0; status == LACE_OK && k < sizeof parts / sizeof parts[0]; k++)
            status = buf_append(out, parts[k].data, parts[k].size);
    }
    if (status == LACE_OK && json_array_size(extra) > 0 && has_files)
        status = buf_append(out, "<|file_sep|>filename\n", 21);
    return status == LACE_OK || call_nomem(c);
}

bool llama_read_infill(gen_request *r, call *c, json_t *body)
{
    const json_t *prefix = json_get(body, "input_prefix"), *suffix = json_get(body, "input_suffix");
    const json_t *prompt = json_get(body, "prompt");
    if (!gen_check_model(c, body) || !read_fields(r, c, body))
        return false;
    if (!json_is_string(prefix))
        return call_refuse(c, "input_prefix", "input_prefix is not a text");
    if (!json_is_string(suffix))
        return call_refuse(c, "input_suffix", "input_suffix is not a text");
    if (prompt && !json_is_string(prompt))
        return call_refuse(c, "prompt", "prompt is not a text");
    r->n_each = r->n_choices;
    buf extra;
    buf_init(&extra, 64 << 20);
    bool ok = read_extra(r, c, json_get(body, "input_extra"), &extra);
    text before = {ok ? arena_strndup(&r->memory, extra.data ? extra.data : "", extra.size) : "",
                   ok ? extra.size : 0};
    buf_deinit(&extra);
    if (ok && !before.data)
        return call_nomem(c);
    gen_hole hole = {before, text_in(prefix), text_in(suffix),
                     prompt ? text_in(prompt) : text_of(""), "input_suffix"};
    return ok && gen_request_hole(r, c, &hole);
}
