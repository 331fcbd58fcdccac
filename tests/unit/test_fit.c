/* lace fit: goals that are met, and goals that are refused. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "compress/fit.h"
#include "formats/weights.h"
#include "data.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

/* What every command here begins with; small, so that a run takes a second. */
#define START                                                                                      \
    "fit $dir/in.gguf -o $dir/out.gguf -y --exchanges 1 --windows 1 --calibrate-windows 4 "
#define FIT  START "--types quick "
#define TEXT "--calibrate $dir/text "

static tiny_options model_options(void)
{
    tiny_options o = tiny_options_default();
    o.n_embd = 256;
    o.n_ff = 256;
    o.n_heads = 4;
    o.n_kv_heads = 2;
    return o;
}

static void write_inputs(void)
{
    buf b = tiny_model_bytes(model_options());
    char words[8192];
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = "the lace is mostly holes and still it holds\n"[(i * i + i / 7) % 44];
    CHECK(command_write("in.gguf", b.data, b.size) && command_write("text", words, sizeof words));
    buf_deinit(&b);
}

static bool has_output(void)
{
    return access(command_path("out.gguf"), F_OK) == 0;
}

static long output_bytes(void)
{
    FILE *f = fopen(command_path("out.gguf"), "rb");
    long n = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (f)
        fclose(f);
    return n;
}

static double number_behind(const char *word)
{
    const char *at = strstr(ran.out, word);
    return at ? strtod(at + strlen(word), NULL) : -1;
}

static bool is_done(void)
{
    if (ran.code != 0)
        tap_note("%s", ran.err);
    return ran.code == 0;
}

static void a_size_is_met_and_used(void)
{
    static const long sizes[] = {350000, 500000, 800000};
    double last = 1e9;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        command_run(FIT TEXT "--size %ld", sizes[i]);
        if (!CHECK(is_done()))
            return;
        long n = output_bytes();
        double kld = number_behind("KLD ");
        tap_note("%ld of %ld bytes, KLD %g", n, sizes[i], kld);
        CHECK(n <= sizes[i] && n > sizes[i] * 9 / 10);
        CHECK(kld > 0 && kld < last);
        last = kld;
        command_run("run $dir/out.gguf -p holes -n 4");
        CHECK(ran.code == 0);
    }
    unlink(command_path("out.gguf"));
}

static void a_loss_is_kept_with_fewer_bytes_than_a_smaller_one(void)
{
    command_run(FIT TEXT "--loss 0.5 --plain");
    CHECK(is_done() && number_behind("KLD ") <= 0.5);
    long strict = output_bytes();
    command_run(FIT TEXT "--loss 3 --plain");
    CHECK(is_done() && number_behind("KLD ") <= 3);
    CHECK(output_bytes() < strict);
    unlink(command_path("out.gguf"));
}

/* So low that it is met on the busiest machine: one token in a quarter of an hour. */
static void a_low_speed_leaves_the_largest_types(void)
{
    command_run(FIT TEXT "--speed 0.001 --plain");
    if (!CHECK(is_done() && strstr(ran.out, "types: s8 100 %")))
        tap_note("%s", ran.out);
    CHECK(number_behind(" (was ") > 0 && strstr(ran.out, "tokens a second"));
    unlink(command_path("out.gguf"));
}

static void gguf_types_alone_make_a_file_without_own_ones(void)
{
    command_run(START TEXT "--types gguf --size 600000 --plain");
    CHECK(is_done() && strstr(ran.out, "types: q") && !strstr(ran.out, " s3"));
    weights *w = NULL;
    if (CHECK(weights_open(command_path("out.gguf"), &w, NULL) == LACE_OK)) {
        CHECK(!gguf_find(weights_gguf(w), "lace.format.version"));
        for (size_t i = 0; i < weights_count(w); i++)
            CHECK(dtype_describe(weights_at(w, i)->type)->number < DTYPE_OWN);
    }
    weights_close(w);
    unlink(command_path("out.gguf"));
}

static void trellis_types_are_among_those_to_choose_from(void)
{
    command_run(START TEXT "--size 400000 --plain");
    CHECK(is_done() && strstr(ran.out, "t3 "));
    unlink(command_path("out.gguf"));
}

static void a_goal_that_cannot_be_met_is_refused_with_numbers(void)
{
    command_run(FIT TEXT "--size 100000");
    command_check_error("--size 100000 cannot be reached: the smallest types make a file of 2");
    CHECK(!has_output());
    command_run(FIT TEXT "--speed 100000000");
    command_check_error("cannot be reached: the fastest types give ");
    CHECK(!has_output());
    command_run(FIT TEXT "--loss 1e-9 --plain");
    command_check_error("--loss 1e-09 cannot be reached: with the largest types the KLD is 0.");
    CHECK(!has_output());
}

/* ---- The curve ------------------------------------------------------------------------------- */

typedef struct mark {
    double left, top, right, bottom;
    char name[32];
} mark;

/* The dots and labels of an SVG; labels by the width that letters have at least. */
static int read_marks(const char *svg, const char *what, mark *out, int n_max)
{
    int n = 0;
    for (const char *at = svg; n < n_max && (at = strstr(at, what)); at++) {
        mark *m = &out[n];
        double x, y;
        if (at[0] == '<' && sscanf(strstr(at, "cx="), "cx=\"%lf\" cy=\"%lf\"", &x, &y) == 2) {
            *m = (mark){x - 5, y - 5, x + 5, y + 5, "dot"};
            n += strstr(at, "r=\"5\"/>") == strstr(at, "r=\"") && y > 60; /* not in the legend */
        } else if (at[0] != '<' && sscanf(strstr(at, "x="), "x=\"%lf\" y=\"%lf\"", &x, &y) == 2) {
            const char *words = strchr(at, '>') + 1;
            bool is_end = strstr(at, "text-anchor") && strstr(at, "text-anchor") < words;
            double width = 6.0 * (double)strcspn(words, "<");
            *m = (mark){is_end ? x - width : x, y - 9, is_end ? x : x + width, y + 2, ""};
            snprintf(m->name, sizeof m->name, "%.*s", (int)strcspn(words, "<"), words);
            n++;
        }
    }
    return n;
}

static bool do_meet(const mark *a, const mark *b)
{
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

static void check_labels(const char *svg)
{
    mark labels[64], dots[64];
    int n = read_marks(svg, "class=\"label\"", labels, 64);
    int n_dots = read_marks(svg, "<circle class=", dots, 64);
    if (!CHECK(n == 18 && n_dots == 18)) /* eight mixes and the result, in two plots */
        tap_note("%d labels, %d dots", n, n_dots);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            if (!CHECK(!do_meet(&labels[i], &labels[k])))
                tap_note("%s lies on %s", labels[i].name, labels[k].name);
        for (int k = 0; k < n_dots; k++)
            if (!CHECK(!do_meet(&labels[i], &dots[k])))
                tap_note("%s lies on a dot", labels[i].name);
    }
    CHECK(strstr(svg, "class=\"legend\"") && strstr(svg, ">the best of each size</text>") &&
          strstr(svg, ">GGUF's types</text>") && strstr(svg, ">written</text>"));
}

/* In the chart of characters a name is whole, or only in the table below. */
static void check_text_labels(const char *chart)
{
    static const char names[] = " q2_k q3_k_m iq4_xs q4_0 q4_k_m q5_k_m q6_k q8_0 ";
    const char *line = strchr(chart, '\n'), *end = strstr(chart, "+-----");
    CHECK(line && end);
    for (; line && line < end; line = strchr(line + 1, '\n'))
        for (const char *at = strchr(line, '|'); at && *at != '\n'; at++) {
            size_t n = strcspn(at, " .o#|\n");
            char word[40];
            snprintf(word, sizeof word, " %.*s ", (int)n, at);
            if (n && !CHECK(strstr(names, word)))
                tap_note("a part of a name: %s", word);
            at += n ? n - 1 : 0;
        }
}

static void the_curve_has_gguf_types_on_the_same_axes(void)
{
    command_run(FIT TEXT "--size 500000 --plain --curve $dir/c.svg");
    CHECK(is_done());
    static const char *const names[] = {"q2_k", "q4_0", "q6_k", "q8_0", "written", "fit"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!CHECK(strstr(ran.out, names[i])))
            tap_note("%s is missing", names[i]);
    FILE *f = fopen(command_path("c.svg"), "rb");
    static char svg[1 << 16];
    size_t n = f ? fread(svg, 1, sizeof svg - 1, f) : 0;
    if (f)
        fclose(f);
    CHECK(n > 4000 && strncmp(svg, "<svg ", 5) == 0 && strcmp(svg + n - 7, "</svg>\n") == 0);
    CHECK(!strstr(svg, "nan") && !strstr(svg, "inf") && strstr(svg, ">q4_k_m</text>"));
    check_labels(svg);
    check_text_labels(ran.out);
    unlink(command_path("out.gguf"));
}

static void without_a_text_the_model_writes_one(void)
{
    command_run(FIT "--size 500000 --plain");
    CHECK(is_done() && has_output());
    char first[256];
    snprintf(first, sizeof first, "%.255s", strchr(ran.out, ':') ? strchr(ran.out, ':') : "");
    *strstr(first, ", perplexity") = 0;
    unlink(command_path("out.gguf"));
    command_run(FIT "--size 500000 --plain");
    if (!CHECK(strstr(ran.out, first))) /* the same each time */
        tap_note("%s, not %s", ran.out, first);
    unlink(command_path("out.gguf"));
}

static void experts_are_chosen_for_too(void)
{
    static const long sizes[] = {700000, 1000000};
    tiny_options o = model_options();
    o.n_experts = 3;
    buf b = tiny_model_bytes(o);
    CHECK(command_write("moe.gguf", b.data, b.size));
    buf_deinit(&b);
    double last = 1e9;
    for (size_t i = 0; i < 2; i++) { /* experts in s4 alone would take 608,256 bytes */
        command_run("fit $dir/moe.gguf -o $dir/out.gguf -y --exchanges 1 --windows 1 "
                    "--calibrate-windows 4 --types quick " TEXT "--size %ld",
                    sizes[i]);
        if (!CHECK(is_done()))
            return;
        double kld = number_behind("KLD ");
        tap_note("%ld of %ld bytes, KLD %g", output_bytes(), sizes[i], kld);
        CHECK(output_bytes() <= sizes[i] && output_bytes() > sizes[i] * 9 / 10 && kld < last);
        last = kld;
    }
    command_run("inspect $dir/out.gguf");
    CHECK(is_done() && unlink(command_path("out.gguf")) == 0);
}

static int count_files(const char *part)
{
    DIR *d = opendir(command_path(""));
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, part) != NULL;
    if (d)
        closedir(d);
    return d ? n : -1;
}

static void a_directory_is_fitted_and_leaves_nothing_beside_the_file(void)
{
    char *directory = data_path("models/tales-4m"), *words = data_path("text/calib.txt");
    if (directory && words) {
        command_run("fit %s -o $dir/of.gguf --size 3MB --plain --types quick --exchanges 0 "
                    "--windows 1 --calibrate %s",
                    directory, words);
        CHECK(is_done() && strstr(ran.out, "of.gguf: "));
        CHECK(count_files("of.gguf") == 1);
    }
    free(directory);
    free(words);
}

static void mistakes_are_named(void)
{
    command_run("fit");
    command_check_error("MODEL is missing");
    command_run("fit $dir/in.gguf --size 1M");
    command_check_error("-o OUT is missing");
    command_run("fit $dir/in.gguf -o $dir/out.gguf");
    command_check_error("give one goal: --size, --speed or --loss");
    command_run("fit $dir/in.gguf -o $dir/out.gguf --size 1M --loss 0.1");
    command_check_error("one goal");
    command_run("fit $dir/in.gguf -o $dir/out.gguf --size 1.5");
    command_check_error("expected bytes, like 1500000, 600M or 2.5GB");
    command_run("fit $dir/none.gguf -o $dir/out.gguf --size 1M");
    command_check_error("none.gguf");
    command_run("fit $dir/in.gguf -o $dir/out.gguf --size 1M --calibrate $dir/none");
    command_check_error("none");
    command_run("quantize $dir/in.gguf $dir/small.gguf q4_0");
    CHECK(ran.code == 0);
    command_run("fit $dir/small.gguf -o $dir/out.gguf --size 1M " TEXT);
    command_check_error(" already; fitting starts from f16, bf16 or f32");
    CHECK(!has_output());
}

int main(void)
{
    if (!command_begin())
        return 1;
    write_inputs();
    CASE(a_size_is_met_and_used);
    CASE(a_loss_is_kept_with_fewer_bytes_than_a_smaller_one);
    CASE(a_low_speed_leaves_the_largest_types);
    CASE(gguf_types_alone_make_a_file_without_own_ones);
    CASE(trellis_types_are_among_those_to_choose_from);
    CASE(a_goal_that_cannot_be_met_is_refused_with_numbers);
    CASE(the_curve_has_gguf_types_on_the_same_axes);
    CASE(without_a_text_the_model_writes_one);
    CASE(experts_are_chosen_for_too);
    CASE(a_directory_is_fitted_and_leaves_nothing_beside_the_file);
    CASE(mistakes_are_named);
    command_end();
    return tap_end();
}
