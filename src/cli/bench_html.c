/*
 * Results of a benchmark as one page: no scripts, nothing to download, charts as SVG. It is meant
 * to be sent to somebody who was not there, so it says what was measured, where, and how to repeat
 * it.
 */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/bench_svg.h"
#include "cli/cli.h"

/* ---- Pieces ---------------------------------------------------------------------------------- */

static const char *speed(double x, char out[32])
{
    snprintf(out, 32, x < 100 ? "%.1f" : "%.0f", x);
    return out;
}

static bool is_first_of_model(const bench_report *r, size_t i)
{
    return i == 0 || strcmp(r->rows[i].model, r->rows[i - 1].model) != 0;
}

static int count_models(const bench_report *r)
{
    int n = 0;
    for (size_t i = 0; i < r->n_rows; i++)
        n += is_first_of_model(r, i);
    return n;
}

/* The model's line above its first test; moves *y below it. */
static lace_status put_model(const bench_report *r, size_t i, double *y, buf *out)
{
    char line[256], size[32];
    if (!is_first_of_model(r, i))
        return LACE_OK;
    *y += 26;
    snprintf(line, sizeof line, "%s (%s, %s)", r->rows[i].model, r->rows[i].type,
             cli_format_bytes(r->rows[i].weight_bytes, size));
    return bench_svg_text(out, 0, *y - 8, "class=\"model\"", line);
}

/* ---- Sections -------------------------------------------------------------------------------- */

static lace_status put_intro(const bench_report *r, buf *out)
{
    char rate[32];
    TRY(buf_append_text(out, "<h1>lace bench</h1>\n<p>"));
    TRY(bench_put_text(out, r->cpu));
    TRY(buf_printf(out,
                   " (%s), %d thread%s, KV cache %s. lace " LACE_VERSION
                   ", %s. Medians of %d run%s after one to warm up.</p>\n",
                   r->level, r->n_threads, r->n_threads == 1 ? "" : "s", r->kv_type, r->date,
                   r->n_repeats, r->n_repeats == 1 ? "" : "s"));
    TRY(buf_append_text(out, "<p>Repeat it: <code>"));
    TRY(bench_put_text(out, r->command));
    TRY(buf_append_text(out, "</code></p>\n"));
    if (r->limits.read <= 0)
        return LACE_OK;
    TRY(buf_printf(out,
                   "<div class=\"cards\"><div class=\"card\"><b>%s</b><span>memory read</span>"
                   "</div>",
                   bench_format_rate(r->limits.read, "B/s", rate)));
    TRY(buf_printf(out, "<div class=\"card\"><b>%s</b><span>int8 multiply-adds</span></div>",
                   bench_format_rate(r->limits.int8, "MAC/s", rate)));
    return buf_printf(out,
                      "<div class=\"card\"><b>%s</b><span>fp32 multiply-adds</span></div></div>\n"
                      "<p>What this machine can do at most, measured just before, on the same "
                      "threads.</p>\n",
                      bench_format_rate(r->limits.fp32, "MAC/s", rate));
}

/* The highest speed in a test, of all models and both programs. */
static double most_of_test(const bench_report *r, const char *name)
{
    double most = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const bench_row *row = &r->rows[i];
        if (strcmp(row->name, name) != 0)
            continue;
        most = row->own.median > most ? row->own.median : most;
        most = row->rival.median > most ? row->rival.median : most;
    }
    return most;
}

/* Tokens per second; each test has its own scale, as prompts are read much faster. */
static lace_status put_speed(const bench_report *r, buf *out)
{
    double row_height = r->rival ? 44 : 28, y = 0;
    TRY(buf_append_text(out, "<h2>Speed</h2>\n<p>Tokens per second; longer is better. pp512 reads "
                             "a prompt of 512 tokens, tg128 generates 128. Each test has its own "
                             "scale, the same for all models."));
    if (r->rival)
        TRY(buf_append_text(out, "<span class=\"key\" style=\"background:var(--own)\"></span>lace"
                                 "<span class=\"key\" style=\"background:var(--rival)\"></span>"
                                 "llama.cpp"));
    TRY(buf_append_text(out, "</p>\n"));
    TRY(bench_svg_begin(out, (int)(row_height * (double)r->n_rows) + 26 * count_models(r) + 4,
                        "Tokens per second of every test"));
    for (size_t i = 0; i < r->n_rows; i++, y += row_height) {
        const bench_row *row = &r->rows[i];
        double most = most_of_test(r, row->name);
        double width = BENCH_BAR * row->own.median / most;
        char value[80], number[32], spread[32];
        TRY(put_model(r, i, &y, out));
        TRY(bench_svg_text(out, BENCH_LABEL, y + 15, "text-anchor=\"end\"", row->name));
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 2, width, 18, "var(--own)"));
        snprintf(value, sizeof value, "%s \xc2\xb1 %s", speed(row->own.median, number),
                 speed(row->own.stddev, spread));
        TRY(bench_svg_text(out, BENCH_BAR_X + width + 8, y + 16, "class=\"strong\"", value));
        if (row->problem[0])
            TRY(bench_svg_text(out, BENCH_BAR_X, y + 33, "class=\"soft\"", "n/a"));
        if (row->rival.n == 0)
            continue;
        width = BENCH_BAR * row->rival.median / most;
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 22, width, 12, "var(--rival)"));
        snprintf(value, sizeof value, "%s \xc2\xb1 %s", speed(row->rival.median, number),
                 speed(row->rival.stddev, spread));
        TRY(bench_svg_text(out, BENCH_BAR_X + width + 8, y + 33, "class=\"soft\"", value));
    }
    return bench_svg_end(out);
}

static lace_status put_shares(const bench_report *r, buf *out)
{
    double y = 0;
    if (r->limits.read <= 0)
        return LACE_OK;
    TRY(buf_append_text(
        out, "<h2>Share of the limit</h2>\n<p>No program on this machine can go beyond the full "
             "bar, unless the caches hold the weights. Generating is bound by "
             "<span class=\"key\" style=\"background:var(--read)\"></span>memory, reading prompts "
             "by arithmetic in <span class=\"key\" style=\"background:var(--int8)\"></span>int8 or "
             "<span class=\"key\" style=\"background:var(--fp32)\"></span>fp32.</p>\n"));
    TRY(bench_svg_begin(out, 28 * (int)r->n_rows + 26 * count_models(r) + 4,
                        "Share of the machine's limit that every test reaches"));
    for (size_t i = 0; i < r->n_rows; i++, y += 28) {
        const bench_row *row = &r->rows[i];
        char color[32], value[80], rate[32];
        double share = row->limit_share < 1 ? row->limit_share : 1;
        bool is_read = strcmp(row->limit_name, "read") == 0;
        double done = (is_read ? row->bytes : row->macs) * row->own.median;
        TRY(put_model(r, i, &y, out));
        TRY(bench_svg_text(out, BENCH_LABEL, y + 15, "text-anchor=\"end\"", row->name));
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 2, BENCH_BAR, 18, "var(--line)"));
        snprintf(color, sizeof color, "var(--%s)", row->limit_name);
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 2, BENCH_BAR * share, 18, color));
        snprintf(value, sizeof value, "%.0f %%: %s", 100 * row->limit_share,
                 bench_format_rate(done, is_read ? "B/s" : "MAC/s", rate));
        TRY(bench_svg_text(out, BENCH_BAR_END + 8, y + 16, "class=\"strong\"", value));
    }
    return bench_svg_end(out);
}

static lace_status put_ratios(const bench_report *r, buf *out)
{
    double most = 2, y = 0;
    if (!r->rival)
        return LACE_OK;
    for (size_t i = 0; i < r->n_rows; i++)
        most = r->rows[i].ratio.high > most ? r->rows[i].ratio.high : most;
    int tick = 1; /* at most eight of them */
    while (most / tick > 8)
        tick *= 2;
    int n_ticks = (int)(most / tick) + 1;
    double scale = BENCH_BAR / (double)(n_ticks * tick);
    int height = 28 * (int)r->n_rows + 26 * count_models(r) + 24;
    TRY(buf_append_text(out, "<h2>Ratio to llama.cpp</h2>\n<p>Same file, same threads, runs in "
                             "turn. The dot is the median of the pairs, the line reaches from the "
                             "lowest to the highest; right of 1x lace is faster.</p>\n"));
    TRY(bench_svg_begin(out, height, "Speed of lace divided by that of llama.cpp"));
    for (int t = 0; t <= n_ticks; t++) {
        char label[16];
        double x = BENCH_BAR_X + scale * t * tick;
        snprintf(label, sizeof label, "%dx", t * tick);
        TRY(buf_printf(out,
                       "<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%d\" stroke=\"var(--%s)\"/>\n",
                       x, x, height - 20, t * tick == 1 ? "soft" : "line"));
        TRY(bench_svg_text(out, x, height - 5, "class=\"soft\" text-anchor=\"middle\"", label));
    }
    for (size_t i = 0; i < r->n_rows; i++, y += 28) {
        const bench_row *row = &r->rows[i];
        char value[80];
        TRY(put_model(r, i, &y, out));
        TRY(bench_svg_text(out, BENCH_LABEL, y + 15, "text-anchor=\"end\"", row->name));
        if (row->ratio.n == 0) {
            TRY(bench_svg_text(out, BENCH_BAR_END + 8, y + 15, "class=\"soft\"",
                               row->problem[0] ? "n/a" : "not compared"));
            continue;
        }
        TRY(buf_printf(out,
                       "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                       "stroke=\"var(--own)\" stroke-width=\"3\"/>\n"
                       "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"6\" fill=\"var(--own)\"/>\n",
                       BENCH_BAR_X + scale * row->ratio.low, y + 11,
                       BENCH_BAR_X + scale * row->ratio.high, y + 11,
                       BENCH_BAR_X + scale * row->ratio.median, y + 11));
        snprintf(value, sizeof value, "%.2fx (%.2f-%.2f)", row->ratio.median, row->ratio.low,
                 row->ratio.high);
        TRY(bench_svg_text(out, BENCH_BAR_END + 8, y + 15, "class=\"strong\"", value));
    }
    return bench_svg_end(out);
}

/* Where the time of one test went: a stacked bar and a table. */
static lace_status put_trace_row(const bench_row *row, buf *out)
{
    static const char *const colors[] = {"#0b7a75", "#7256c6", "#c9761a", "#3c78c8",
                                         "#b8436d", "#7a8f2a", "#8a6d52", "#5f7d8c"};
    enum { N_COLORS = sizeof colors / sizeof colors[0] };
    double total = 0, x = 0;
    for (int i = 0; i < row->n_ops; i++)
        total += (double)row->ops[i].ns;
    total = total > 0 ? total : 1;
    TRY(buf_append_text(out, "<p><b>"));
    TRY(bench_put_text(out, row->model));
    TRY(buf_printf(out, "</b>, %s</p>\n", row->name));
    TRY(bench_svg_begin(out, 26, "Time by operation"));
    for (int i = 0; i < row->n_ops; i++) {
        double width = BENCH_WIDTH * (double)row->ops[i].ns / total;
        TRY(buf_printf(out,
                       "<rect x=\"%.1f\" y=\"2\" width=\"%.1f\" height=\"22\" fill=\"%s\">"
                       "<title>%s</title></rect>\n",
                       x, width, colors[i % N_COLORS], row->ops[i].name));
        x += width;
    }
    TRY(buf_append_text(out, "</svg>\n<table><tr><th class=\"l\">operation</th><th>share</th>"
                             "<th>calls</th><th>us a call</th><th>GB/s</th><th>GMAC/s</th>"
                             "</tr>\n"));
    for (int i = 0; i < row->n_ops; i++) {
        const bench_op *o = &row->ops[i];
        double ns = o->ns ? (double)o->ns : 1;
        TRY(buf_printf(out,
                       "<tr><td class=\"l\"><span class=\"key\" style=\"margin-left:0;"
                       "background:%s\"></span>%s</td><td>%.1f %%</td><td>%llu</td><td>%.2f</td>"
                       "<td>%.2f</td>",
                       colors[i % N_COLORS], o->name, 100 * ns / total,
                       (unsigned long long)o->n_calls,
                       ns / 1e3 / (double)(o->n_calls ? o->n_calls : 1), (double)o->n_bytes / ns));
        TRY(o->n_macs ? buf_printf(out, "<td>%.2f</td></tr>\n", (double)o->n_macs / ns)
                      : buf_append_text(out, "<td>-</td></tr>\n"));
    }
    return buf_append_text(out, "</table></div>\n");
}

static lace_status put_traces(const bench_report *r, buf *out)
{
    if (r->n_rows == 0 || r->rows[0].n_ops == 0)
        return LACE_OK;
    TRY(buf_append_text(out, "<h2>Where the time goes</h2>\n<p>One more run of each test, by "
                             "operation. Bytes are what the operation must move, caches not "
                             "considered.</p>\n"));
    for (size_t i = 0; i < r->n_rows; i++)
        TRY(put_trace_row(&r->rows[i], out));
    return LACE_OK;
}

static lace_status put_table(const bench_report *r, buf *out)
{
    TRY(buf_append_text(out, "<h2>All numbers</h2>\n<div class=\"chart\"><table><tr>"
                             "<th class=\"l\">model</th><th class=\"l\">test</th><th>tok/s</th>"
                             "<th>std. dev.</th><th>lowest</th><th>highest</th>"));
    if (r->rival)
        TRY(buf_append_text(out, "<th>llama.cpp</th><th>std. dev.</th><th>ratio</th>"));
    TRY(buf_append_text(out, "</tr>\n"));
    for (size_t i = 0; i < r->n_rows; i++) {
        const bench_row *row = &r->rows[i];
        TRY(buf_append_text(out, "<tr><td class=\"l\">"));
        TRY(bench_put_text(out, row->model));
        TRY(buf_printf(out,
                       "</td><td class=\"l\">%s</td><td>%.2f</td><td>%.2f</td><td>%.2f</td>"
                       "<td>%.2f</td>",
                       row->name, row->own.median, row->own.stddev, row->own.low, row->own.high));
        if (r->rival && row->ratio.n)
            TRY(buf_printf(out, "<td>%.2f</td><td>%.2f</td><td>%.2fx</td>", row->rival.median,
                           row->rival.stddev, row->ratio.median));
        else if (r->rival)
            TRY(buf_append_text(out, row->problem[0] ? "<td>n/a</td><td>n/a</td><td>n/a</td>"
                                                     : "<td>-</td><td>-</td><td>-</td>"));
        TRY(buf_append_text(out, "</tr>\n"));
    }
    return buf_append_text(out, "</table></div>\n");
}

lace_status bench_html_page(const bench_report *r, buf *out)
{
    TRY(buf_append_text(out, bench_html_head));
    TRY(put_intro(r, out));
    TRY(put_speed(r, out));
    TRY(put_shares(r, out));
    TRY(put_ratios(r, out));
    TRY(put_traces(r, out));
    TRY(put_table(r, out));
    return buf_append_text(out, "</main>\n</body>\n</html>\n");
}
