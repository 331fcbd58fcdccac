/*
 * What verbs write: what is written loads and runs, an output is never an input, and nothing is
 * replaced or unlinked that the verb did not make.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/gguf.h"
#include "data.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Files ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static void sh(const char *format, ...)
{
    char command[1024], line[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(line, sizeof line, "dir=%s; %s", command_path(""), command);
    if (!CHECK(system(line) == 0))
        tap_note("failed: %s", command);
}

/* A checksum of a file's bytes; 0 if it is not there. */
static uint64_t sum_of(const char *name)
{
    FILE *f = fopen(command_path(name), "rb");
    uint64_t sum = 1469598103934665603u;
    for (int c; f && (c = getc(f)) != EOF;)
        sum = (sum ^ (uint64_t)c) * 1099511628211u;
    if (f)
        fclose(f);
    return f ? sum : 0;
}

/* An older importance matrix with one entry, which no model here has. */
static void write_dat(const char *name)
{
    const char data[] = "\1\0\0\0"
                        "\1\0\0\0x"
                        "\1\0\0\0"
                        "\1\0\0\0"
                        "\0\0\200\77";
    CHECK(command_write(name, data, sizeof data - 1));
}

static tiny_options options(void)
{
    tiny_options o = tiny_options_default();
    o.n_embd = 64;
    o.n_heads = 4;
    o.n_kv_heads = 2;
    o.n_ff = 64;
    return o;
}

/* Part i of a model in two files: the second has the last tensor. */
static void write_part(const char *name, int i, const char *architecture)
{
    gguf_writer *w = NULL;
    float values[64] = {0};
    shape s = {1, {64}};
    buf b;
    buf_init(&b, 1 << 24);
    tiny_options o = options();
    if (i == 0) {
        CHECK(tiny_model_create(&o, &w, NULL) == LACE_OK);
    } else {
        CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
        gguf_writer_add_tensor(w, text_of("a.bias"), DTYPE_F32, &s, values, NULL);
        if (architecture)
            gguf_writer_add_text(w, "general.architecture", text_of(architecture), NULL);
    }
    gguf_writer_add_int(w, "split.no", GGUF_U16, i, NULL);
    gguf_writer_add_int(w, "split.count", GGUF_U16, 2, NULL);
    CHECK(gguf_writer_to_buf(w, &b, NULL) == LACE_OK && command_write(name, b.data, b.size));
    gguf_writer_free(w);
    buf_deinit(&b);
}

static void write_inputs(void)
{
    static char words[20000];
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = "mostly holes and it still holds. "[i % 33];
    buf b = tiny_model_bytes(options());
    int32_t ids[4] = {1, 5, 7, 9};
    CHECK(command_write("m.gguf", b.data, b.size));
    CHECK(command_write("text", words, sizeof words) && command_write("held", words, 9000));
    CHECK(command_write("ids", ids, sizeof ids));
    static const char rules[] = "[[rule]]\ntensors = \"blk.*.weight\"\nmethod = \"magnitude\"\n"
                                "sparsity = 0.5\n";
    CHECK(command_write("rules", rules, sizeof rules - 1));
    write_dat("i.dat");
    write_part("s-00001-of-00002.gguf", 0, NULL);
    write_part("s-00002-of-00002.gguf", 1, "llama");
    buf_deinit(&b);
}

/* ---- Outputs that are inputs ----------------------------------------------------------------- */

/* Every verb that writes, with OUT for its output; `inputs` are the names of what it reads. */
static const struct {
    const char *command, *inputs;
} writers[] = {
    {"quantize $dir/m.gguf OUT q8_0 --imatrix $dir/i.dat", "m.gguf i.dat"},
    {"quantize $dir/m.gguf OUT s4 --calibrate $dir/text --windows 1", "m.gguf text"},
    {"quantize $dir/s-00001-of-00002.gguf OUT q8_0", "s-00001-of-00002.gguf s-00002-of-00002.gguf"},
    {"prune $dir/m.gguf OUT --config $dir/rules --imatrix $dir/i.dat --accept-loss",
     "m.gguf rules i.dat"},
    {"prune $dir/m.gguf OUT --sparsity 0.5 --method wanda --calibrate $dir/text -f $dir/held "
     "--calibrate-windows 1 --windows 1 --accept-loss",
     "m.gguf text held"},
    {"fit $dir/m.gguf -o OUT --size 200000 --calibrate $dir/text -f $dir/held --plain "
     "--exchanges 0 --windows 1 --types quick",
     "m.gguf text held"},
    {"imatrix $dir/m.gguf -f $dir/text -o OUT -c 64 --windows 1", "m.gguf text"},
    {"logits $dir/m.gguf --tokens $dir/ids -o OUT", "m.gguf ids"},
    {"sparsify $dir/m.gguf OUT --calibrate $dir/text --calibrate-windows 1 --uniform",
     "m.gguf text"},
};
enum { N_WRITERS = sizeof writers / sizeof *writers };

/* The command with its output at a path below the scratch folder. */
static void run_with_output(const char *command, const char *output, const char *more)
{
    char line[700];
    const char *at = strstr(command, "OUT");
    snprintf(line, sizeof line, "%.*s$dir/%s%s %s", (int)(at - command), command, output, at + 3,
             more);
    command_run("%s", line);
}

static void check_refused(const char *command, const char *output, const char *input)
{
    uint64_t before = sum_of(input);
    run_with_output(command, output, "--force");
    if (!CHECK(ran.code == 1 && strstr(ran.err, "is an input") && before &&
               sum_of(input) == before))
        tap_note("%s with OUT %s: %d %s", command, output, ran.code, ran.err);
}

static void an_output_is_never_an_input_under_any_name(void)
{
    for (int i = 0; i < N_WRITERS; i++) {
        char names[128], *save = NULL;
        snprintf(names, sizeof names, "%s", writers[i].inputs);
        for (char *in = strtok_r(names, " ", &save); in; in = strtok_r(NULL, " ", &save)) {
            sh("ln -f $dir/%s $dir/hard && ln -sf %s $dir/soft", in, in);
            check_refused(writers[i].command, in, in);
            check_refused(writers[i].command, "./hard", in);
            check_refused(writers[i].command, "soft", in);
            sh("rm $dir/hard $dir/soft");
        }
    }
    sh("\"$lace\" imatrix $dir/m.gguf -f - -o $dir/text -y <$dir/text 2>$dir/said; "
       "[ $? = 1 ] && grep -q 'standard input' $dir/said");
    /* A model may be given by the name that lace list shows. */
    sh("LACE_MODELS=$dir \"$lace\" quantize m $dir/m.gguf q8_0 -y 2>$dir/said; "
       "[ $? = 1 ] && grep -q 'is an input' $dir/said");
}

static void a_curve_is_no_input_and_no_output(void)
{
    const char *fit = "fit $dir/m.gguf -o $dir/x.gguf --size 200000 --calibrate $dir/text.svg "
                      "--curve OUT";
    sh("cp $dir/text $dir/text.svg");
    check_refused(fit, "text.svg", "text.svg");
    run_with_output("fit $dir/m.gguf -o $dir/x.svg --size 200000 --curve OUT", "x.svg", "");
    command_check_error("the same file");
    run_with_output("fit $dir/m.gguf -o $dir/./x.svg --size 200000 --curve OUT", "x.svg", "");
    command_check_error("the same file");
    run_with_output("fit $dir/m.gguf -o $dir/x.gguf --size 200000 --curve OUT", "x.png", "");
    command_check_error("must end in .svg");
    CHECK(!command_exists("x.svg") && !command_exists("x.gguf") && !command_exists("x.png"));
}

static void a_file_of_a_directory_is_an_input_of_convert(void)
{
    char *golden = data_path("golden/llama/config.json");
    if (!golden)
        return;
    sh("mkdir $dir/hf && cp \"$(dirname %s)\"/*.json $dir/hf/ && "
       "cp \"$(dirname %s)\"/model.safetensors $dir/blob && ln -s ../blob "
       "$dir/hf/model.safetensors",
       golden, golden);
    check_refused("convert $dir/hf -o OUT --no-vocab", "hf/config.json", "hf/config.json");
    check_refused("convert $dir/hf -o OUT --no-vocab", "blob", "blob");
    check_refused("quantize $dir/hf OUT q8_0", "blob", "blob");
    /* What a directory is made into on the way has no name that could be somebody's. */
    sh("sh -c 'printf mine >'$dir'/o.gguf.source-$$; exec "
       "\"$lace\" fit '$dir'/hf -o '$dir'/o.gguf --size 100' >/dev/null 2>&1; "
       "[ \"$(cat $dir/o.gguf.source-*)\" = mine ]");
    free(golden);
}

/* ---- Outputs that exist ---------------------------------------------------------------------- */

static void an_existing_file_is_replaced_only_by_force(void)
{
    for (int i = 0; i < N_WRITERS; i++) {
        CHECK(command_write("old", "what was there", 14));
        uint64_t before = sum_of("old");
        run_with_output(writers[i].command, "old", "");
        if (!CHECK(ran.code == 1 && strstr(ran.err, "--force") && sum_of("old") == before))
            tap_note("%s: %d %s", writers[i].command, ran.code, ran.err);
        run_with_output(writers[i].command, "old", "-y");
        if (!CHECK(ran.code == 0 && sum_of("old") != before))
            tap_note("%s: %d %s", writers[i].command, ran.code, ran.err);
    }
}

/* ---- What is written runs -------------------------------------------------------------------- */

static const char *const architectures[] = {
    "gemma2", "gpt-oss", "granite", "llama-tied-headdim", "llama3-rope", "mixtral", "olmo2",
    "phi3",   "qwen2",   "qwen3",   "qwen3moe",           "smollm3"};

/* %s is the source, and what may not be possible says so with one line and writes nothing. */
static const struct {
    const char *command;
    bool may_refuse;
} makers[] = {
    {"quantize %s $dir/made q4_0", false},
    {"quantize %s $dir/made s4 --pure", false},
    {"prune %s $dir/made --sparsity 0.5 --method magnitude --accept-loss", true},
    {"prune %s $dir/made --sparsity 0.5 --method magnitude --store m4 --accept-loss", true},
    {"prune %s $dir/made --sparsity 0.5 --method heads --imatrix $dir/i.dat --accept-loss", true},
    {"prune %s $dir/made --sparsity 0.5 --method neurons --imatrix $dir/i.dat --accept-loss", true},
};

static void check_runs(const char *command, const char *architecture, bool may_refuse, int *n_made)
{
    if (ran.code == 1 && may_refuse && !command_exists("made") &&
        strchr(ran.err, '\n') == ran.err + ran.n_err - 1 && !strstr(ran.err, "does not run"))
        return; /* not possible with this architecture, said in a line */
    if (!CHECK(ran.code == 0 && command_exists("made"))) {
        tap_note("%s of %s: %d %s", command, architecture, ran.code, ran.err);
        return;
    }
    *n_made += 1;
    command_run("logits $dir/made --tokens $dir/ids -o $dir/logits -y");
    if (!CHECK(ran.code == 0))
        tap_note("%s of %s cannot be run: %s", command, architecture, ran.err);
    unlink(command_path("made"));
}

static void what_is_written_runs_in_every_architecture(void)
{
    int n_made = 0, n_there = 0;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        char relative[128], command[600];
        snprintf(relative, sizeof relative, "golden/%s/model.gguf", architectures[i]);
        char *path = data_path_if_there(relative);
        for (size_t k = 0; path && k < sizeof makers / sizeof *makers; k++) {
            const char *at = strstr(makers[k].command, "%s");
            snprintf(command, sizeof command, "%.*s%s%s", (int)(at - makers[k].command),
                     makers[k].command, path, at + 2);
            command_run("%s", command);
            check_runs(makers[k].command, architectures[i], makers[k].may_refuse, &n_made);
        }
        n_there += path != NULL;
        free(path);
    }
    /* Of 6 for each architecture; experts and fused matrices cannot be cut. */
    if (!CHECK(n_there >= 9 && n_made >= 15 * n_there / 4))
        tap_note("only %d files of %d architectures were made", n_made, n_there);
}

static void converted_directories_run(void)
{
    int n_there = 0;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        int n_made = 0;
        char relative[128];
        snprintf(relative, sizeof relative, "golden/%s", architectures[i]);
        char *path = data_path_if_there(relative);
        if (path) {
            n_there++;
            command_run("convert %s -o $dir/made --no-vocab", path);
            check_runs("convert", architectures[i], false, &n_made);
        }
        free(path);
    }
    CHECK(n_there >= 9);
}

/* olmo2 norms all heads of q and k together, so these norms are cut with the heads. */
static void heads_of_olmo2_take_their_norms_with_them(void)
{
    char *path = data_path("golden/olmo2/model.gguf");
    if (!path)
        return;
    command_run("prune %s $dir/made --sparsity 0.5 --method heads --imatrix $dir/i.dat "
                "--accept-loss",
                path);
    CHECK(ran.code == 0);
    file_map map;
    gguf *g = NULL;
    if (CHECK(file_map_open(command_path("made"), &map, NULL) == LACE_OK) &&
        CHECK(gguf_parse(map.bytes, &g, NULL) == LACE_OK)) {
        const tensor *q = gguf_find_tensor(g, "blk.0.attn_q.weight");
        const tensor *norm = gguf_find_tensor(g, "blk.0.attn_q_norm.weight");
        const tensor *k = gguf_find_tensor(g, "blk.1.attn_k.weight");
        const tensor *k_norm = gguf_find_tensor(g, "blk.1.attn_k_norm.weight");
        CHECK(q && norm && q->shape.dims[1] == norm->shape.dims[0]);
        CHECK(k && k_norm && k->shape.dims[1] == k_norm->shape.dims[0]);
    }
    gguf_free(g);
    file_map_close(&map);
    unlink(command_path("made"));
    free(path);
}

/* ---- What does not run is not written -------------------------------------------------------- */

/* The tiny model with all values of an F32 tensor changed. */
static void write_changed(const char *name, const char *tensor_name, float value)
{
    buf b = tiny_model_bytes(options());
    gguf *g = NULL;
    if (CHECK(gguf_parse((span){(const uint8_t *)b.data, b.size}, &g, NULL) == LACE_OK)) {
        const tensor *t = gguf_find_tensor(g, tensor_name);
        for (uint64_t i = 0; i < t->n_values; i++)
            memcpy(b.data + (t->data - (const uint8_t *)b.data) + 4 * i, &value, sizeof value);
        CHECK(command_write(name, b.data, b.size));
    }
    gguf_free(g);
    buf_deinit(&b);
}

static void what_computes_no_numbers_gets_no_name(void)
{
    write_changed("wild.gguf", "output_norm.weight", 3e38f);
    static const char *const commands[] = {
        "quantize $dir/wild.gguf $dir/made q8_0 --output-tensor-type f16",
        "prune $dir/wild.gguf $dir/made --sparsity 0.5 --method magnitude --accept-loss"};
    for (int i = 0; i < 2; i++) {
        command_run("%s", commands[i]);
        if (!CHECK(ran.code == 1 && strstr(ran.err, "does not run") && !command_exists("made")))
            tap_note("%s: %d %s", commands[i], ran.code, ran.err);
    }
}

/* The tiny model with a number of its metadata changed. */
static void write_with_number(const char *name, const char *key, uint32_t value)
{
    buf b = tiny_model_bytes(options());
    gguf *g = NULL;
    if (CHECK(gguf_parse((span){(const uint8_t *)b.data, b.size}, &g, NULL) == LACE_OK)) {
        const gguf_value *v = gguf_find(g, key);
        memcpy(b.data + (v->bytes.data - (const uint8_t *)b.data), &value, sizeof value);
        CHECK(command_write(name, b.data, b.size));
    }
    gguf_free(g);
    buf_deinit(&b);
}

static void shapes_that_contradict_the_metadata_are_refused(void)
{
    static const char *const commands[] = {
        "quantize $dir/odd.gguf $dir/made q8_0",
        "prune $dir/odd.gguf $dir/made --sparsity 0.5 --method magnitude --accept-loss",
        "fit $dir/odd.gguf -o $dir/made --size 200000 --calibrate $dir/text"};
    write_with_number("odd.gguf", "llama.attention.head_count_kv", 4);
    for (int i = 0; i < 3; i++) {
        command_run("%s", commands[i]);
        if (!CHECK(ran.code == 1 && strstr(ran.err, "blk.0.attn_k.weight: shape 64x32") &&
                   !command_exists("made")))
            tap_note("%s: %d %s", commands[i], ran.code, ran.err);
    }
    write_with_number("odd.gguf", "llama.block_count", 3);
    command_run("quantize $dir/odd.gguf $dir/made q8_0");
    command_check_error("blk.2.attn_norm.weight is missing");
}

static void a_part_of_another_architecture_is_refused(void)
{
    command_run("quantize $dir/s-00001-of-00002.gguf $dir/made q8_0");
    CHECK(ran.code == 0 && command_exists("made"));
    unlink(command_path("made"));
    write_part("s-00002-of-00002.gguf", 1, "qwen2");
    command_run("quantize $dir/s-00001-of-00002.gguf $dir/made q8_0");
    command_check_error("is a part of another model: general.architecture is \"qwen2\"");
    CHECK(!command_exists("made"));
    write_part("s-00002-of-00002.gguf", 1, NULL);
    command_run("quantize $dir/s-00001-of-00002.gguf $dir/made q8_0");
    CHECK(ran.code == 0);
    unlink(command_path("made"));
}

/* They hold for the model in all its types; only using them needs a kernel. */
static void thresholds_may_come_from_a_type_without_a_kernel(void)
{
    command_run("quantize $dir/m.gguf $dir/m-q5.gguf q5_0 --pure");
    CHECK(ran.code == 0);
    command_run(
        "sparsify $dir/m-q5.gguf $dir/m-q5.json --calibrate $dir/text --calibrate-windows 1 "
        "--uniform");
    if (!CHECK(ran.code == 0))
        tap_note("%s", ran.err);
    command_run("run $dir/m.gguf --activation-sparsity $dir/m-q5.json -p a -n 1");
    if (!CHECK(ran.code == 0))
        tap_note("%s", ran.err);
}

int main(void)
{
    if (!command_begin())
        return 1;
    write_inputs();
    CASE(an_output_is_never_an_input_under_any_name);
    CASE(a_curve_is_no_input_and_no_output);
    CASE(a_file_of_a_directory_is_an_input_of_convert);
    CASE(an_existing_file_is_replaced_only_by_force);
    CASE(what_is_written_runs_in_every_architecture);
    CASE(converted_directories_run);
    CASE(heads_of_olmo2_take_their_norms_with_them);
    CASE(what_computes_no_numbers_gets_no_name);
    CASE(shapes_that_contradict_the_metadata_are_refused);
    CASE(a_part_of_another_architecture_is_refused);
    CASE(thresholds_may_come_from_a_type_without_a_kernel);
    command_end();
    return tap_end();
}
