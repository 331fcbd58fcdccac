/* POST /v1/embeddings, /api/embed and the older /api/embeddings: texts to vectors. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"
#include "server/embed_queue.h"
#include "server/ollama.h"

enum { MAX_INPUTS = 2048, MAX_OUT = 256 << 20 };

/* What is asked for, and what it costs. */
typedef struct embed_request {
    const json_t *input; /* a text, or tokens, or a list of these */
    size_t n_inputs;
    bool is_list;
    bool is_base64;
    lace_pooling pooling;
    size_t n_tokens; /* of all inputs */
} embed_request;

static bool read_input(call *c, const json_t *body, embed_request *q)
{
    q->input = json_object_get(body, "input");
    const json_t *first = json_array_get(q->input, 0);
    q->is_list = json_is_string(first) || json_is_array(first);
    q->n_inputs = q->is_list ? json_array_size(q->input) : 1;
    if (!json_is_string(q->input) && !first)
        return call_refuse(c, "input", "input is not a text, a list of tokens, or a list of these");
    if (q->n_inputs > MAX_INPUTS)
        return call_refuse(c, "input", "input has more than 2048 entries");
    return true;
}

/* What would change the vectors and is not done here. */
static bool check_not_done(call *c, const json_t *body)
{
    static const char *const names[] = {"embd_normalize", "normalize", "truncate_prompt_tokens",
                                        "add_special_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *value = json_object_get(body, names[i]);
        bool is_neutral = !value || json_is_null(value) ||
                          (i == 0 ? json_integer_value(value) == 2 : /* of unit length */
                               i == 2 ? json_is_integer(value) && json_integer_value(value) == 0
                                      : json_is_true(value));
        if (!is_neutral) {
            call_fail(c, 400, names[i], "unsupported_value", "%s is not supported", names[i]);
            return false;
        }
    }
    return true;
}

static bool read_choices(call *c, const json_t *body, embed_request *q)
{
    if (!check_not_done(c, body))
        return false;
    const json_t *encoding = json_object_get(body, "encoding_format");
    const json_t *pooling = json_object_get(body, "pooling");
    const json_t *dimensions = json_object_get(body, "dimensions");
    const char *word = json_string_value(encoding), *how = json_string_value(pooling);
    q->is_base64 = word && strcmp(word, "base64") == 0;
    if (encoding && !json_is_null(encoding) && !q->is_base64 &&
        !(word && strcmp(word, "float") == 0))
        return call_refuse(c, "encoding_format",
                           "encoding_format is neither \"float\" nor \"base64\"");
    if (dimensions && !json_is_null(dimensions) &&
        json_integer_value(dimensions) != call_server(c)->info.n_embd)
        return call_refuse(c, "dimensions", "the model's embeddings cannot be shortened");
    if (!pooling || json_is_null(pooling))
        return true;
    if (how && strcmp(how, "mean") == 0)
        q->pooling = LACE_POOLING_MEAN;
    else if (how && strcmp(how, "last") == 0)
        q->pooling = LACE_POOLING_LAST;
    else if (how && strcmp(how, "cls") == 0)
        q->pooling = LACE_POOLING_CLS;
    else
        return call_refuse(c, "pooling", "pooling is not \"mean\", \"last\" or \"cls\"");
    return true;
}

/* Where a model's own pooling gives no vector of a text. */
static lace_pooling pooling_for(const server *s, lace_pooling asked)
{
    bool has_none = s->info.pooling == LACE_POOLING_NONE || s->info.pooling == LACE_POOLING_RANK;
    return asked == LACE_POOLING_MODEL && has_none ? LACE_POOLING_CLS : asked;
}

/*
 * One input's tokens, in the request's memory; `scratch` has room for those of a context. A prompt
 * may fill the context: no reply follows.
 */
static bool read_tokens(gen_request *r, call *c, const json_t *input, lace_token *scratch,
                        lace_embed_text *out)
{
    lace_error err = {0};
    const server *s = call_server(c);
    size_t n_max = (size_t)embedder_context(s->embedder);
    lace_token *tokens;
    if (json_is_array(input)) {
        if (!gen_read_tokens(r, c, "input", input, n_max, &tokens, &out->n_tokens))
            return false;
        out->tokens = tokens;
        return out->n_tokens > 0 || call_refuse(c, "input", "a list of tokens is empty");
    }
    if (!json_is_string(input))
        return call_refuse(c, "input", "an entry is neither a text nor a list of tokens");
    if (lace_tokenize(s->model, json_string_value(input), json_string_length(input),
                      LACE_TOKENIZE_ADD_SPECIAL, scratch, n_max, &out->n_tokens, &err) != LACE_OK) {
        call_fail_error(c, "input", &err);
        return false;
    }
    if (out->n_tokens > n_max) {
        call_fail(c, 400, "input", "context_length_exceeded",
                  "the input has %zu tokens, the context has %zu", out->n_tokens, n_max);
        return false;
    }
    if (out->n_tokens == 0)
        return call_refuse(c, "input", "the input is empty");
    tokens = arena_alloc(&r->memory, out->n_tokens, sizeof *tokens);
    if (!tokens)
        return call_nomem(c);
    memcpy(tokens, scratch, out->n_tokens * sizeof *tokens);
    out->tokens = tokens;
    return true;
}

static void write_base64(json_out *out, const void *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = data;
    json_out_raw(out, "\"");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                        (i + 2 < n ? p[i + 2] : 0);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                        i + 1 < n ? digits[word >> 6 & 63] : '=',
                        i + 2 < n ? digits[word & 63] : '='};
        json_out_bytes(out, four, 4);
    }
    json_out_raw(out, "\"");
}

static void write_vector(json_out *out, const float *x, size_t n, bool is_base64)
{
    if (is_base64)
        return write_base64(out, x, n * sizeof *x); /* little-endian, as every machine we run on */
    json_out_raw(out, "[");
    for (size_t i = 0; i < n; i++)
        json_out_printf(out, i ? ",%.9g" : "%.9g", (double)x[i]);
    json_out_raw(out, "]");
}

/* What is computed for a request. */
typedef struct embed_work {
    gen_request r;          /* whose memory holds the tokens */
    lace_embed_text *texts; /* [n_inputs] */
    float *vectors;         /* [n_inputs, n_embd] */
    lace_token *scratch;
} embed_work;

/* The vectors of all inputs. */
static bool compute(call *c, embed_request *q, embed_work *w)
{
    const server *s = call_server(c);
    size_t n_embd = (size_t)s->info.n_embd;
    lace_error err = {0};
    w->texts = mem_calloc(q->n_inputs, sizeof *w->texts);
    w->vectors = mem_calloc(q->n_inputs * n_embd, sizeof *w->vectors);
    w->scratch = mem_calloc((size_t)embedder_context(s->embedder), sizeof *w->scratch);
    if (!w->texts || !w->vectors || !w->scratch)
        return call_nomem(c);
    for (size_t i = 0; i < q->n_inputs; i++) {
        lace_embed_text *t = &w->texts[i];
        if (!read_tokens(&w->r, c, q->is_list ? json_array_get(q->input, i) : q->input, w->scratch,
                         t))
            return false;
        t->pooling = pooling_for(s, q->pooling);
        t->normalize = true;
        t->out = w->vectors + i * n_embd;
        q->n_tokens += t->n_tokens;
    }
    if (embedder_run(s->embedder, w->texts, q->n_inputs, &c->is_gone, &err) == LACE_OK)
        return true;
    call_fail_error(c, NULL, &err);
    return false;
}

/* All vectors, each between `before` (which may show its number) and `after`. */
static bool write_vectors(call *c, embed_request *q, json_out *out, const char *before,
                          const char *after)
{
    size_t n_embd = (size_t)call_server(c)->info.n_embd;
    embed_work w = {0};
    gen_request_init(&w.r);
    bool ok = compute(c, q, &w);
    for (size_t i = 0; ok && i < q->n_inputs; i++) {
        json_out_raw(out, i ? "," : "");
        json_out_raw(out, before);
        if (*before)
            json_out_printf(out, "%zu,\"embedding\":%s", i, after[0] == ']' ? "[" : "");
        write_vector(out, w.vectors + i * n_embd, n_embd, q->is_base64);
        json_out_raw(out, after);
    }
    gen_request_deinit(&w.r);
    mem_free_all(w.texts, w.vectors, w.scratch);
    return ok;
}

/* How an API asks for vectors and writes them: what stands before, between and behind them. */
typedef struct embed_form {
    bool (*check_model)(call *c, const json_t *body);
    void (*begin)(call *c, json_out *out);
    const char *before, *after; /* each vector */
    void (*end)(call *c, const embed_request *q, json_out *out);
} embed_form;

static void reply_vectors(call *c, const json_t *body, const embed_form *f)
{
    embed_request q = {0};
    if (!body || !f->check_model(c, body) || !read_input(c, body, &q) || !read_choices(c, body, &q))
        return;
    json_out out;
    json_out_init(&out, MAX_OUT);
    f->begin(c, &out);
    if (write_vectors(c, &q, &out, f->before, f->after)) {
        f->end(c, &q, &out);
        call_reply(c, 200, "application/json", &out);
    }
    json_out_deinit(&out);
}

static void begin_list(call *c, json_out *out)
{
    json_out_raw(out, "{\"object\":\"list\",\"data\":[");
}

static void end_list(call *c, const embed_request *q, json_out *out)
{
    json_out_raw(out, "],\"model\":");
    json_out_string(out, call_server(c)->model_id);
    json_out_printf(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", q->n_tokens,
                    q->n_tokens);
}

void api_embeddings(call *c)
{
    static const embed_form form = {gen_check_model, begin_list,
                                    "{\"object\":\"embedding\",\"index\":", "}", end_list};
    reply_vectors(c, call_json(c), &form);
}

static void begin_plain(call *c, json_out *out)
{
    json_out_raw(out, "[");
}

static void end_plain(call *c, const embed_request *q, json_out *out)
{
    json_out_raw(out, "]");
}

/* llama.cpp's own form: a list, each entry with a list of vectors, which is one where they are
 * pooled. */
void api_llama_embeddings(call *c)
{
    static const embed_form form = {gen_check_model, begin_plain, "{\"index\":", "]}", end_plain};
    json_t *body = call_json(c);
    if (body && !json_object_get(body, "input") && json_object_get(body, "content"))
        json_object_set(body, "input", json_object_get(body, "content"));
    reply_vectors(c, body, &form);
}

static void begin_ollama(call *c, json_out *out)
{
    json_out_raw(out, "{\"model\":");
    json_out_string(out, call_server(c)->model_id);
    json_out_raw(out, ",\"embeddings\":[");
}

static void end_ollama(call *c, const embed_request *q, json_out *out)
{
    json_out_printf(
        out, "],\"total_duration\":%" PRIu64 ",\"load_duration\":0,\"prompt_eval_count\":%zu}",
        clock_ns() - call_begin_ns(c), q->n_tokens);
}

void api_ollama_embed(call *c)
{
    static const embed_form form = {ollama_check_model, begin_ollama, "", "", end_ollama};
    reply_vectors(c, call_json(c), &form);
}

/* Ollama's older route: one text, "prompt", and one vector. */
void api_ollama_embeddings(call *c)
{
    json_t *body = call_json(c);
    embed_request q = {.n_inputs = 1};
    if (!body || !ollama_check_model(c, body))
        return;
    q.input = json_object_get(body, "prompt");
    if (q.input && !json_is_string(q.input)) {
        call_refuse(c, "prompt", "prompt is not a text");
        return;
    }
    json_out out;
    json_out_init(&out, MAX_OUT);
    json_out_raw(&out, "{\"embedding\":");
    if (json_string_length(q.input) == 0)
        json_out_raw(&out, "[]"); /* the model is there: that was the question */
    if (json_string_length(q.input) == 0 || write_vectors(c, &q, &out, "", "")) {
        json_out_raw(&out, "}");
        call_reply(c, 200, "application/json", &out);
    }
    json_out_deinit(&out);
}
