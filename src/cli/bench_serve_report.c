/* Results of load: a table for the terminal, JSON, and a page with charts. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_svg.h"
#include "cli/bench_serve.h"

const char *bench_serve_level_name(const bench_serve_level *level, char out[32])
{
    if (level->concurrency)
        snprintf(out, 32, "%d at once", level->concurrency);
    else
        snprintf(out, 32, "%g/s", level->rate);
    return out;
}

/* Milliseconds with the digits that mean something. */
static const char *format_ms(double seconds, char out[32])
{
    double ms = seconds * 1e3;
    snprintf(out, 32, ms < 10 ? "%.2f" : ms < 100 ? "%.1f" : "%.0f", ms);
    return out;
}

static double per_second(double n, const bench_serve_row *row)
{
    return row->seconds > 0 ? n / row->seconds : 0;
}

static bool has_slo(const bench_serve_plan *p)
{
    return p->slo_first_s > 0 || p->slo_between_s > 0 || p->slo_total_s > 0;
}

/* "128", "64 to 256", "128 +- 32": tokens. */
static const char *format_length(const bench_serve_length *l, char out[64])
{
    if (l->deviation > 0)
        snprintf(out, 64, "%.0f +- %.0f", l->mean, l->deviation);
    else if (l->low < l->high)
        snprintf(out, 64, "%.0f to %.0f", l->low, l->high);
    else
        snprintf(out, 64, "%.0f", l->low);
    return out;
}

/* ---- Table ----------------------------------------------------------------------------------- */

lace_status bench_serve_report_head(const bench_serve_report *r, buf *out)
{
    const bench_serve_plan *p = r->plan;
    char input[64], output[64];
    TRY(buf_printf(out, "%s tokens in, %s out", format_length(&p->input, input),
                   format_length(&p->output, output)));
    if (p->n_prefix)
        TRY(buf_printf(out, ", the first %d shared", p->n_prefix));
    TRY(buf_printf(out, ", seed %llu, %s\n", (unsigned long long)p->seed,
                   p->is_chat ? "chat" : "completions"));
    for (int i = 0; i < r->n_servers; i++)
        TRY(buf_printf(out, "%c  %s  %s%s\n", 'A' + i, r->servers[i].target.url,
                       r->servers[i].model,
                       r->servers[i].counts ? "" : "  (does not count tokens: a word is one)"));
    return buf_printf(out,
                      "\n%30s %6s %6s %11s %11s %11s\n"
                      "  %-11s %5s %3s %6s %6s %6s %5s %5s %5s %5s %5s %5s\n",
                      "", "in", "out", "first, ms", "between, ms", "answer, ms", "load", "ok",
                      "bad", "req/s", "tok/s", "tok/s", "p50", "p99", "p50", "p99", "p50", "p99");
}

/* 80 columns; the page and JSON have more. */
lace_status bench_serve_report_row(const bench_serve_report *r, const bench_serve_row *row,
                                   buf *out)
{
    char name[32], a[32], b[32];
    TRY(buf_printf(out, "%c %-11s %5d %3d %6.2f %6.0f %6.0f", 'A' + row->server,
                   bench_serve_level_name(&row->level, name), row->n_ok, row->n_failed,
                   per_second(row->n_ok, row), per_second((double)row->n_input, row),
                   per_second((double)row->n_output, row)));
    const bench_serve_stats *all[] = {&row->first, &row->between, &row->total};
    for (int i = 0; i < 3; i++)
        TRY(buf_printf(out, " %5s %5s", format_ms(all[i]->p50, a), format_ms(all[i]->p99, b)));
    TRY(buf_append_text(out, "\n"));
    if (has_slo(r->plan))
        TRY(buf_printf(out, "  goodput %.2f/s (%.0f %%)\n", per_second(row->n_good, row),
                       row->n_ok + row->n_failed ? 100.0 * row->n_good / (row->n_ok + row->n_failed)
                                                 : 0));
    if (row->problem[0])
        TRY(buf_printf(out, "  failed, the first one: %s\n", row->problem));
    return LACE_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *json_stats(const bench_serve_stats *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "mean", s->mean, "p50", s->p50, "p90",
                     s->p90, "p99", s->p99, "max", s->max, "n", (json_int_t)s->n);
}

static json_t *json_row(const bench_serve_report *r, const bench_serve_row *row)
{
    const bench_serve_server *server = &r->servers[row->server];
    return json_pack(
        "{s:s, s:s, s:i, s:f, s:i, s:i, s:i, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, "
        "s:o, s:s}",
        "server", server->target.url, "model", server->model, "concurrency", row->level.concurrency,
        "rate", row->level.rate, "ok", row->n_ok, "failed", row->n_failed, "good", row->n_good,
        "seconds", row->seconds, "input_tokens", (json_int_t)row->n_input, "cached_tokens",
        (json_int_t)row->n_cached, "output_tokens", (json_int_t)row->n_output,
        "requests_per_second", per_second(row->n_ok, row), "input_tokens_per_second",
        per_second((double)row->n_input, row), "output_tokens_per_second",
        per_second((double)row->n_output, row), "goodput_per_second", per_second(row->n_good, row),
        "first_token_seconds", json_stats(&row->first), "inter_token_seconds",
        json_stats(&row->between), "request_seconds", json_stats(&row->total), "problem",
        row->problem);
}

lace_status bench_serve_report_json(const bench_serve_report *r, buf *out)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < r->n_rows; i++)
        json_array_append_new(rows, json_row(r, &r->rows[i]));
    char input[64], output[64];
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:o}", "lace", LACE_VERSION, "date", r->date,
                  "command", r->command, "input_tokens", format_length(&r->plan->input, input),
                  "output_tokens", format_length(&r->plan->output, output), "prefix_tokens",
                  r->plan->n_prefix, "seed", (json_int_t)r->plan->seed, "results", rows);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    lace_status status = LACE_E_NOMEM;
    if (text)
        status = buf_printf(out, "%s\n", text);
    free(text);
    json_decref(all);
    return status;
}

/* ---- Page ------------------------------------------------------------------------------------ */

static const char *const colors[BENCH_SERVE_MAX_SERVERS] = {"var(--own)", "var(--rival)",
                                                            "var(--int8)", "var(--fp32)"};

static lace_status put_key(const bench_serve_report *r, buf *out)
{
    for (int i = 0; i < r->n_servers && r->n_servers > 1; i++) {
        TRY(buf_printf(out, "<span class=\"key\" style=\"background:%s\"></span>", colors[i]));
        TRY(bench_put_text(out, r->servers[i].target.url));
    }
    return buf_append_text(out, "</p>\n");
}

/* Bars of one figure, a row each. */
static lace_status put_bars(const bench_serve_report *r, const char *title, const char *text,
                            double (*value)(const bench_serve_row *row), const char *unit, buf *out)
{
    double most = 0, y = 0;
    for (size_t i = 0; i < r->n_rows; i++)
        most = value(&r->rows[i]) > most ? value(&r->rows[i]) : most;
    TRY(buf_printf(out, "<h2>%s</h2>\n<p>%s", title, text));
    TRY(put_key(r, out));
    TRY(bench_svg_begin(out, (int)(26 * r->n_rows) + 4, title));
    for (size_t i = 0; i < r->n_rows; i++, y += 26) {
        const bench_serve_row *row = &r->rows[i];
        char name[32], number[64];
        double width = most > 0 ? BENCH_BAR * value(row) / most : 0;
        TRY(bench_svg_text(out, BENCH_LABEL, y + 15, "text-anchor=\"end\"",
                           bench_serve_level_name(&row->level, name)));
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 2, width, 18, colors[row->server]));
        snprintf(number, sizeof number, value(row) < 100 ? "%.2f %s" : "%.0f %s", value(row), unit);
        TRY(bench_svg_text(out, BENCH_BAR_X + width + 8, y + 16, "class=\"strong\"", number));
    }
    return bench_svg_end(out);
}

/* Half of all, nine of ten, 99 of 100: three bars inside each other. */
static lace_status put_latency(const bench_serve_report *r, const char *title, const char *text,
                               const bench_serve_stats *(*stats)(const bench_serve_row *row),
                               buf *out)
{
    double most = 0, y = 0;
    for (size_t i = 0; i < r->n_rows; i++)
        most = stats(&r->rows[i])->p99 > most ? stats(&r->rows[i])->p99 : most;
    TRY(buf_printf(out, "<h2>%s</h2>\n<p>%s", title, text));
    TRY(put_key(r, out));
    TRY(bench_svg_begin(out, (int)(26 * r->n_rows) + 4, title));
    for (size_t i = 0; i < r->n_rows; i++, y += 26) {
        const bench_serve_row *row = &r->rows[i];
        const bench_serve_stats *s = stats(row);
        double scale = most > 0 ? BENCH_BAR / most : 0;
        char name[32], a[32], b[32], c[32], line[160];
        TRY(bench_svg_text(out, BENCH_LABEL, y + 15, "text-anchor=\"end\"",
                           bench_serve_level_name(&row->level, name)));
        TRY(buf_printf(out, "<g opacity=\"0.3\">"));
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 6, scale * s->p99, 10, colors[row->server]));
        TRY(buf_printf(out, "</g><g opacity=\"0.55\">"));
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 4, scale * s->p90, 14, colors[row->server]));
        TRY(buf_printf(out, "</g>"));
        TRY(bench_svg_bar(out, BENCH_BAR_X, y + 2, scale * s->p50, 18, colors[row->server]));
        snprintf(line, sizeof line, "%s / %s / %s ms", format_ms(s->p50, a), format_ms(s->p90, b),
                 format_ms(s->p99, c));
        TRY(bench_svg_text(out, BENCH_BAR_X + scale * s->p99 + 8, y + 16, "class=\"strong\"",
                           line));
    }
    return bench_svg_end(out);
}

static double output_rate(const bench_serve_row *row)
{
    return per_second((double)row->n_output, row);
}
static double request_rate(const bench_serve_row *row)
{
    return per_second(row->n_ok, row);
}
static double good_rate(const bench_serve_row *row)
{
    return per_second(row->n_good, row);
}
static const bench_serve_stats *first_of(const bench_serve_row *row)
{
    return &row->first;
}
static const bench_serve_stats *between_of(const bench_serve_row *row)
{
    return &row->between;
}
static const bench_serve_stats *total_of(const bench_serve_row *row)
{
    return &row->total;
}

static lace_status put_intro(const bench_serve_report *r, buf *out)
{
    char input[64], output[64];
    TRY(buf_append_text(out, "<h1>lace bench serve</h1>\n<p>"));
    for (int i = 0; i < r->n_servers; i++) {
        TRY(buf_printf(out, "%s<b>", i ? ", " : ""));
        TRY(bench_put_text(out, r->servers[i].target.url));
        TRY(buf_append_text(out, "</b> ("));
        TRY(bench_put_text(out, r->servers[i].model));
        TRY(buf_append_text(out, ")"));
    }
    TRY(buf_printf(
        out,
        ". %s tokens in, %s out, of which %d are shared by all prompts. lace " LACE_VERSION
        ", %s.</p>\n<p>Repeat it: <code>",
        format_length(&r->plan->input, input), format_length(&r->plan->output, output),
        r->plan->n_prefix, r->date));
    TRY(bench_put_text(out, r->command));
    return buf_append_text(out, "</code></p>\n");
}

static lace_status put_table(const bench_serve_report *r, buf *out)
{
    TRY(buf_append_text(out, "<h2>All numbers</h2>\n<div class=\"chart\"><table><tr>"
                             "<th class=\"l\">server</th><th class=\"l\">load</th><th>ok</th>"
                             "<th>failed</th><th>req/s</th><th>in tok/s</th><th>out tok/s</th>"
                             "<th>cached</th><th>good</th></tr>\n"));
    for (size_t i = 0; i < r->n_rows; i++) {
        const bench_serve_row *row = &r->rows[i];
        char name[32];
        TRY(buf_append_text(out, "<tr><td class=\"l\">"));
        TRY(bench_put_text(out, r->servers[row->server].target.url));
        TRY(buf_printf(out,
                       "</td><td class=\"l\">%s</td><td>%d</td><td>%d</td><td>%.2f</td>"
                       "<td>%.0f</td><td>%.0f</td><td>%.0f %%</td><td>%d</td></tr>\n",
                       bench_serve_level_name(&row->level, name), row->n_ok, row->n_failed,
                       request_rate(row), per_second((double)row->n_input, row), output_rate(row),
                       row->n_input ? 100.0 * (double)row->n_cached / (double)row->n_input : 0,
                       row->n_good));
    }
    return buf_append_text(out, "</table></div>\n");
}

lace_status bench_serve_report_html(const bench_serve_report *r, buf *out)
{
    static const char nested[] = "Half of all within the strong bar, 90 and 99 % within the paler "
                                 "ones; shorter is better.";
    TRY(buf_append_text(out, bench_html_head));
    TRY(put_intro(r, out));
    TRY(put_bars(r, "Tokens generated per second", "All requests together; longer is better.",
                 output_rate, "tok/s", out));
    TRY(put_bars(r, "Requests per second", "Answered to their end.", request_rate, "/s", out));
    if (has_slo(r->plan))
        TRY(put_bars(r, "Goodput", "Requests per second that were as fast as asked for.", good_rate,
                     "/s", out));
    TRY(put_latency(r, "Time to the first token", nested, first_of, out));
    TRY(put_latency(r, "Between tokens", nested, between_of, out));
    TRY(put_latency(r, "Whole answer", nested, total_of, out));
    TRY(put_table(r, out));
    return buf_append_text(out, "</main>\n</body>\n</html>\n");
}
