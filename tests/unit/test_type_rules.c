/* compress/type_rules: types of single tensors, and what lace says of types that it only reads. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compress/type_rules.h"
#include "formats/weights.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

static void write_model(void)
{
    tiny_options o = tiny_options_default();
    o.n_embd = o.n_ff = 256;
    o.n_heads = 4;
    buf b = tiny_model_bytes(o);
    FILE *f = fopen(command_path("in.gguf"), "wb");
    CHECK(f && fwrite(b.data, 1, b.size, f) == b.size);
    if (f)
        fclose(f);
    buf_deinit(&b);
}

/* Quantize with these options; what tensors got which type is checked by `expected`. */
static void check_types(const char *type_and_options, const char *const (*expected)[2], size_t n)
{
    weights *w = NULL;
    unlink(command_path("out.gguf"));
    command_run("quantize $dir/in.gguf $dir/out.gguf %s", type_and_options);
    if (!CHECK(ran.code == 0 && weights_open(command_path("out.gguf"), &w, NULL) == LACE_OK)) {
        tap_note("%s: %s", type_and_options, ran.err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const tensor *t = weights_find(w, expected[i][0]);
        const char *found = t ? dtype_describe(t->type)->name : "missing";
        if (!CHECK(strcmp(found, expected[i][1]) == 0))
            tap_note("%s: %s is %s, not %s", type_and_options, expected[i][0], found,
                     expected[i][1]);
    }
    weights_close(w);
}

#define TYPES(options, ...)                                                                        \
    do {                                                                                           \
        static const char *const expected[][2] = {__VA_ARGS__};                                    \
        check_types(options, expected, sizeof expected / sizeof *expected);                        \
    } while (0)

static void patterns_name_the_types_of_tensors(void)
{
    TYPES("q4_0", {"blk.0.attn_v.weight", "q4_0"}, {"output.weight", "q6_k"},
          {"blk.1.ffn_down.weight", "q4_0"});
    TYPES("q4_0 --tensor-type attn_v=q8_0 --tensor-type 'blk\\.[1-9]\\.ffn_(up|down)=F16'",
          {"blk.0.attn_v.weight", "q8_0"}, {"blk.1.ffn_down.weight", "f16"},
          {"blk.1.ffn_up.weight", "f16"}, {"blk.0.ffn_up.weight", "q4_0"},
          {"output.weight", "q6_k"});
    /* The first that matches counts, and before the options for one tensor. */
    TYPES("s4 --tensor-type attn_v=q8_0 --tensor-type attn=s6 --tensor-type output.weight=q5_k "
          "--output-tensor-type q4_0",
          {"blk.0.attn_v.weight", "q8_0"}, {"blk.0.attn_q.weight", "s6"}, {"output.weight", "q5_k"},
          {"blk.0.ffn_up.weight", "s4"});
}

static void the_output_and_the_table_have_options(void)
{
    TYPES("q4_k_m --output-tensor-type q8_0 --token-embedding-type q3_k", {"output.weight", "q8_0"},
          {"token_embd.weight", "q3_k"});
    TYPES("q4_k_m --pure", {"output.weight", "q4_k"}, {"token_embd.weight", "q4_k"},
          {"blk.0.attn_v.weight", "q4_k"}, {"blk.0.ffn_down.weight", "q4_k"});
    TYPES("s3 --pure --output-tensor-type f16", {"output.weight", "f16"},
          {"token_embd.weight", "s3"});
}

static void calibration_keeps_the_types_that_were_named(void)
{
    FILE *f = fopen(command_path("text"), "w");
    for (int i = 0; i < 400; i++)
        fprintf(f, "the lace is mostly holes, %d of them. ", i);
    fclose(f);
    TYPES("s4 --calibrate $dir/text --windows 1 --tensor-type attn_v=s8 --tensor-type ffn_up=f16",
          {"blk.0.attn_v.weight", "s8"}, {"blk.1.ffn_up.weight", "f16"},
          {"blk.1.ffn_down.weight", "s4"}, {"output.weight", "s6"});
}

static void check_refused(const char *arguments, const char *part)
{
    unlink(command_path("out.gguf"));
    command_run("quantize $dir/in.gguf $dir/out.gguf %s", arguments);
    command_check_error(part);
    CHECK(access(command_path("out.gguf"), F_OK) != 0);
}

static void rules_that_cannot_be_kept_are_named(void)
{
    check_refused("q4_0 --tensor-type attn_w=q8_0", "attn_w=q8_0: no matrix has such a name");
    check_refused("q4_0 --tensor-type 'attn_(v=q8_0'", "closing parenthesis, at character 8");
    check_refused("q4_0 --tensor-type attn_v", "expected PATTERN=TYPE");
    check_refused("q4_0 --tensor-type attn_v=q4_k_m", "a single tensor needs one type, like q4_k");
    check_refused("q4_0 --tensor-type attn_v=q9", "unknown type q9");
    check_refused("q4_0 --output-tensor-type iq1_s",
                  "--output-tensor-type: lace reads iq1_s but does not write it");
    check_refused("s4 --calibrate $dir/text --size 100K --pure", "--size chooses the types");
}

/* A type that does not fit the rows is not exchanged for another without a word. */
static void blocks_that_do_not_fit_are_named(void)
{
    tiny_options o = tiny_options_default();
    buf b = tiny_model_bytes(o);
    FILE *f = fopen(command_path("narrow.gguf"), "wb");
    CHECK(f && fwrite(b.data, 1, b.size, f) == b.size);
    if (f)
        fclose(f);
    buf_deinit(&b);
    command_run("quantize $dir/narrow.gguf $dir/out.gguf q8_0 --tensor-type attn_v=q6_k");
    command_check_error(
        "blk.0.attn_v.weight has rows of 16 values, but q6_k needs a multiple of 256");
}

static void types_that_lace_only_reads_say_what_to_use(void)
{
    static const char *const names[] = {"iq1_s", "iq1_m",   "iq2_xxs", "iq2_xs", "iq2_s",
                                        "iq2_m", "iq3_xxs", "iq3_xs",  "iq3_s",  "IQ3_M",
                                        "tq1_0", "tq2_0",   "nvfp4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char part[64];
        snprintf(part, sizeof part, "lace reads %s but does not write it; use ", names[i]);
        check_refused(names[i], part);
    }
    check_refused("f16", "for f16 use lace convert");
    check_refused("q4_z", "unknown type q4_z; common ones are q4_k_m");
}

static void a_size_with_a_type_of_gguf_names_fit(void)
{
    check_refused("q4_k_m --calibrate $dir/text --size 400000", "lace fit --types gguf");
    check_refused("--type q8_0 --calibrate $dir/text --size 400000", "lace fit --types gguf");
}

int main(void)
{
    if (!command_begin())
        return 1;
    write_model();
    CASE(patterns_name_the_types_of_tensors);
    CASE(the_output_and_the_table_have_options);
    CASE(calibration_keeps_the_types_that_were_named);
    CASE(rules_that_cannot_be_kept_are_named);
    CASE(blocks_that_do_not_fit_are_named);
    CASE(types_that_lace_only_reads_say_what_to_use);
    CASE(a_size_with_a_type_of_gguf_names_fit);
    command_end();
    return tap_end();
}
