/* lace perplexity as people meet it: $LACE_BIN (by default build/lace) on the built-in model. */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

/* 300 short sentences, some thousand tokens. */
static void write_text(void)
{
    static const char *const words[] = {"king",   "fox",      "child", "witch",
                                        "miller", "princess", "bear"};
    FILE *f = fopen(command_path("text"), "w");
    if (!CHECK(f != NULL))
        return;
    for (int i = 0; i < 300; i++)
        fprintf(f, "Once there was a %s who met a %s in the wood. ", words[i % 7],
                words[i * i % 5]);
    fputc('\n', f);
    fclose(f);
}

static json_t *measure(const char *arguments)
{
    command_run("perplexity -f $dir/text -c 64 -o json %s", arguments);
    CHECK(ran.code == 0);
    json_t *o = json_loads(ran.out, 0, NULL);
    if (!CHECK(json_is_object(o)))
        tap_note("%s%s", ran.out, ran.err);
    return o;
}

static double number(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    if (!CHECK(json_is_number(value)))
        tap_note("no number: %s", key);
    return json_number_value(value);
}

static void json_has_the_perplexity_and_its_error(void)
{
    json_t *o = measure("--windows 5");
    CHECK(number(o, "tokens") == 5 * 31); /* positions 32 to 62 of each window predict the next */
    CHECK(number(o, "windows") == 5 && number(o, "context") == 64);
    double ppl = number(o, "perplexity"), error = number(o, "perplexity_error");
    CHECK(ppl > 1 && ppl < 4096); /* better than a guess among all tokens */
    CHECK(error > 0 && error < ppl);
    CHECK(!json_object_get(o, "kld_mean"));
    json_decref(o);
}

static void batches_and_threads_do_not_change_the_result(void)
{
    json_t *whole = measure("--windows 4 --exact --kv-type f32 -t 1");
    json_t *parts = measure("--windows 4 --exact --kv-type f32 -t 2 -b 10");
    /*
     * Another order of f32 sums in the model: about 1e-6 of each logit. Without --exact, batches of
     * 24 tokens and more are multiplied in fixed point and fewer are not.
     */
    double a = number(whole, "perplexity"), b = number(parts, "perplexity");
    CHECK(fabs(a - b) < 1e-4 * a);
    CHECK(number(whole, "tokens") == number(parts, "tokens"));
    json_decref(whole);
    json_decref(parts);
}

static void a_model_against_itself_does_not_differ(void)
{
    json_t *o = measure("--windows 3 --against models/default.gguf");
    CHECK(fabs(number(o, "kld_mean")) < 1e-6);
    CHECK(fabs(number(o, "kld_max")) < 1e-5);
    CHECK(number(o, "same_top") == 1 && number(o, "same_top_error") == 0);
    CHECK(number(o, "ln_ppl_ratio") == 0);
    CHECK(number(o, "perplexity") == number(o, "perplexity_base"));
    number(o, "kld_median");
    number(o, "kld_p99");
    number(o, "kld_p999");
    number(o, "kld_mean_error");
    json_decref(o);
}

static void people_get_lines(void)
{
    command_run("perplexity -f $dir/text -c 64 --windows 2 --against models/default.gguf");
    CHECK(ran.code == 0);
    CHECK(strncmp(ran.out, "perplexity ", 11) == 0);
    CHECK(strstr(ran.out, "(62 tokens in 2 windows of 64)") != NULL);
    CHECK(strstr(ran.out, "KLD mean   0.000000") != NULL);
    CHECK(strstr(ran.out, "same top   100.000 %") != NULL);
}

/* A model that computes no numbers has no perplexity: an error, not "nan". */
static void a_model_without_numbers_is_an_error(void)
{
    tiny_options o = tiny_options_default();
    gguf *g = NULL;
    o.n_context = 128;
    buf b = tiny_model_bytes(o);
    CHECK(gguf_parse((span){(const uint8_t *)b.data, b.size}, &g, NULL) == LACE_OK);
    memset((void *)gguf_find_tensor(g, "output_norm.weight")->data, 0xFF, 4); /* a NaN */
    FILE *f = fopen(command_path("nan.gguf"), "wb");
    CHECK(f && fwrite(b.data, 1, b.size, f) == b.size && fclose(f) == 0);
    gguf_free(g);
    buf_deinit(&b);
    command_run("perplexity $dir/nan.gguf -f $dir/text -c 64 --windows 1");
    command_check_error("nan.gguf computes logits that are not finite numbers");
}

static void mistakes_are_explained(void)
{
    command_run("perplexity");
    command_check_error("-f TEXT is missing (see: lace help perplexity)");
    command_run("perplexity -f $dir/absent");
    command_check_error("absent");
    command_run("perplexity -f $dir/text -c 3");
    command_check_error("--ctx-size \"3\": expected a whole number from 4");
    command_run("perplexity -f $dir/text -c 100000");
    command_check_error("fewer than one window of 100000");
    command_run("perplexity -f $dir/text -c 64 --windows 100000");
    command_check_error("not 100000: use --windows ");
    command_run("perplexity -f $dir/text -o xml");
    command_check_error("expected one of text|json");
    command_run("perplexity $dir/absent.gguf -f $dir/text");
    command_check_error("absent.gguf");
    command_run("perplexity -f $dir/text -c 64 --against $dir/absent.gguf");
    command_check_error("absent.gguf");
}

int main(void)
{
    if (!command_begin())
        return 1;
    write_text();
    CASE(json_has_the_perplexity_and_its_error);
    CASE(batches_and_threads_do_not_change_the_result);
    CASE(a_model_against_itself_does_not_differ);
    CASE(people_get_lines);
    CASE(a_model_without_numbers_is_an_error);
    CASE(mistakes_are_explained);
    command_end();
    return tap_end();
}
