/*
 * lace embed and rerank: $LACE_BIN (by default build/lace) is run in a shell on a tiny encoder, and
 * what it prints and returns is looked at. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "tap.h"
#include "tiny_model.h"

#define CAUSAL "models/default.gguf"
#define SMALL  "--device cpu -t 1"
enum { WIDTH = 16 };

static void write_models(void)
{
    static const char *const names[] = {"bert", "nomic-bert"};
    for (int i = 0; i < 2; i++) {
        tiny_options o = tiny_options_default();
        char file[32];
        o.architecture = names[i];
        buf b = tiny_model_bytes(o);
        snprintf(file, sizeof file, "%s.gguf", names[i]);
        CHECK(command_write(file, b.data, b.size));
        buf_deinit(&b);
    }
    command_write("lines", "the sea\n\nand the hand\r\nit is\n", 28);
}

/* Vector i of the JSON that was printed; NULL if there is none. */
static json_t *parse(void)
{
    json_t *json = json_loads(ran.out, 0, NULL);
    CHECK(json != NULL);
    return json;
}

static const json_t *vector(const json_t *json, size_t i)
{
    return json_object_get(json_array_get(json_object_get(json, "data"), i), "embedding");
}

static double length(const json_t *x)
{
    double square = 0;
    for (size_t i = 0; i < json_array_size(x); i++)
        square += pow(json_number_value(json_array_get(x, i)), 2);
    return sqrt(square);
}

static void embed_prints_a_vector_for_each_text(void)
{
    command_run("embed $dir/bert.gguf 'the sea' 'and the hand' 'it is' " SMALL);
    command_check_success();
    json_t *json = parse();
    CHECK(json_array_size(json_object_get(json, "data")) == 3);
    CHECK(json_array_size(vector(json, 2)) == WIDTH);
    CHECK(fabs(length(vector(json, 1)) - 1) < 1e-5);
    CHECK(!json_equal(vector(json, 0), vector(json, 1)));
    command_run("embed $dir/bert.gguf -f $dir/lines " SMALL);
    json_t *lines = parse();
    CHECK(json_equal(json, lines));
    command_sh("\"$lace\" embed $dir/bert.gguf " SMALL " <$dir/lines");
    json_t *piped = parse();
    CHECK(json_equal(json, piped));
    json_decref(json);
    json_decref(lines);
    json_decref(piped);
}

static void embed_has_forms_poolings_and_lengths(void)
{
    command_run("embed $dir/bert.gguf --format text a b " SMALL);
    int n_lines = 0, n_spaces = 0;
    for (size_t i = 0; i < ran.n_out; i++) {
        n_lines += ran.out[i] == '\n';
        n_spaces += ran.out[i] == ' ';
    }
    CHECK(n_lines == 2 && n_spaces == 2 * (WIDTH - 1));
    command_run("embed $dir/bert.gguf --format f32 a b " SMALL);
    CHECK(ran.n_out == 2 * WIDTH * sizeof(float));
    command_run("embed $dir/bert.gguf 'the sea' --pooling cls --normalize off " SMALL);
    json_t *cls = parse();
    CHECK(fabs(length(vector(cls, 0)) - 1) > 1e-3);
    command_run("embed $dir/bert.gguf 'the sea' --pooling none --normalize off " SMALL);
    json_t *each = parse();
    CHECK(json_array_size(json_object_get(each, "data")) > 1);
    CHECK(json_equal(vector(cls, 0), vector(each, 0)));
    json_decref(cls);
    json_decref(each);
}

/* Tokens in place of a text are for models without a vocabulary. */
static void embed_reads_tokens(void)
{
    static const int32_t tokens[] = {1, 262, 270, 300};
    command_write("tokens", tokens, sizeof tokens);
    command_run(
        "embed $dir/nomic-bert.gguf --tokens $dir/tokens --format f32 --pooling none " SMALL);
    CHECK(ran.n_out == 4 * WIDTH * sizeof(float));
    command_write("tokens", tokens, 7);
    command_run("embed $dir/nomic-bert.gguf --tokens $dir/tokens " SMALL);
    command_check_error("a multiple of 4");
}

static void embed_takes_other_models(void)
{
    command_run("embed " CAUSAL " 'Once upon a time' --pooling last " SMALL);
    command_check_success();
    json_t *json = parse();
    CHECK(fabs(length(vector(json, 0)) - 1) < 1e-5);
    json_decref(json);
}

static void rerank_orders_texts(void)
{
    command_run("rerank $dir/bert.gguf -q 'the hand' --format json -f $dir/lines " SMALL);
    command_check_success();
    json_t *json = parse();
    const json_t *results = json_object_get(json, "results");
    double last = INFINITY;
    CHECK(json_array_size(results) == 3);
    for (size_t i = 0; i < 3; i++) {
        double score =
            json_number_value(json_object_get(json_array_get(results, i), "relevance_score"));
        CHECK(score <= last);
        last = score;
    }
    json_int_t best = json_integer_value(json_object_get(json_array_get(results, 0), "index"));
    json_decref(json);
    command_run("rerank $dir/bert.gguf -q 'the hand' 'the sea' 'and the hand' 'it is' -n 1 "
                "--normalize " SMALL);
    double score;
    int index;
    CHECK(sscanf(ran.out, "%lf %d", &score, &index) == 2);
    CHECK(index == (int)best && score > 0 && score < 1);
    const char *end = strchr(ran.out, '\n');
    CHECK(end && end[1] == 0);
}

static void what_is_missing_is_said(void)
{
    static const struct {
        const char *arguments, *part;
    } cases[] = {
        {"embed", "MODEL is missing"},
        {"embed $dir/bert.gguf a -f $dir/lines", "exclude each other"},
        {"embed $dir/bert.gguf a --tokens $dir/lines", "exclude each other"},
        {"embed $dir/bert.gguf -f /dev/null", "/dev/null has no text"},
        {"embed $dir/bert.gguf </dev/null", "standard input has no text"},
        {"embed $dir/bert.gguf a --pooling max", "--pooling"},
        {"embed $dir/bert.gguf a --embd-normalize 2", "--normalize off"},
        {"rerank", "MODEL is missing"},
        {"rerank $dir/bert.gguf a", "-q QUERY is missing"},
        {"rerank " CAUSAL " -q a b --device cpu", "not a reranker"},
        {"rerank $dir/nomic-bert.gguf -q a b --device cpu", "not a reranker"},
        {"run $dir/bert.gguf -p a --device cpu", "lace embed"},
        {"embeddings $dir/bert.gguf", "use lace embed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        command_run("%s </dev/null", cases[i].arguments);
        command_check_error(cases[i].part);
    }
}

static void encoders_are_inspected_and_quantized(void)
{
    command_run("inspect $dir/bert.gguf");
    command_check_success();
    CHECK(strstr(ran.out, "cannot run") == NULL);
    command_run("quantize $dir/bert.gguf $dir/small.gguf q8_0");
    command_check_success();
    command_run("embed $dir/small.gguf 'the sea' " SMALL);
    command_check_success();
    command_run("bench $dir/bert.gguf -p 8 -n 0 --device cpu -t 1 -r 1");
    command_check_success();
}

int main(void)
{
    if (!command_begin())
        return 1;
    write_models();
    CASE(embed_prints_a_vector_for_each_text);
    CASE(embed_has_forms_poolings_and_lengths);
    CASE(embed_reads_tokens);
    CASE(embed_takes_other_models);
    CASE(rerank_orders_texts);
    CASE(what_is_missing_is_said);
    CASE(encoders_are_inspected_and_quantized);
    command_end();
    return tap_end();
}
