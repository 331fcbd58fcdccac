/* Results of a benchmark as a table for the terminal, CSV, Markdown or JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

const char *bench_format_rate(double per_second, const char *unit, char out[32])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int i = 0;
    while (per_second >= 999.5 && i < 4) {
        per_second /= 1000;
        i++;
    }
    snprintf(out, 32, per_second < 99.95 ? "%.1f %s%s" : "%.0f %s%s", per_second, prefixes[i],
             unit);
    return out;
}

static const char *format_speed(double speed, char out[32])
{
    snprintf(out, 32, speed < 100 ? "%.2f" : speed < 10000 ? "%.1f" : "%.0f", speed);
    return out;
}

static const char *format_share(const bench_row *row, char out[48])
{
    if (!row->limit_name)
        snprintf(out, 48, "-");
    else
        snprintf(out, 48, "%.0f %% of %s", 100 * row->limit_share, row->limit_name);
    return out;
}

static const char *format_ratio(const bench_row *row, char out[48])
{
    if (row->ratio.n == 0)
        snprintf(out, 48, "%s", row->problem[0] ? "n/a" : "-");
    else
        snprintf(out, 48, "%.2fx (%.2f-%.2f)", row->ratio.median, row->ratio.low, row->ratio.high);
    return out;
}

/* "1234.5 +- 6.7", or what stands for an empty series. */
static const char *format_series(const bench_series *s, const char *empty, char out[80])
{
    char speed[32], spread[32];
    if (s->n == 0)
        snprintf(out, 80, "%s", empty);
    else
        snprintf(out, 80, "%s +- %s", format_speed(s->median, speed),
                 format_speed(s->stddev, spread));
    return out;
}

static const char *format_rival(const bench_row *row, char out[80])
{
    return format_series(&row->rival, row->problem[0] ? "n/a" : "-", out);
}

/* The machine in a sentence. */
static lace_status append_machine(const bench_report *r, buf *out)
{
    char read[32], int8[32], fp32[32];
    TRY(cli_append_clean(out, r->cpu, strlen(r->cpu)));
    TRY(buf_printf(out, " (%s), %d thread%s, KV cache %s, lace " LACE_VERSION ", %s\n", r->level,
                   r->n_threads, r->n_threads == 1 ? "" : "s", r->kv_type, r->date));
    if (r->limits.read > 0)
        TRY(buf_printf(out, "limits: read %s, int8 %s, fp32 %s\n",
                       bench_format_rate(r->limits.read, "B/s", read),
                       bench_format_rate(r->limits.int8, "MAC/s", int8),
                       bench_format_rate(r->limits.fp32, "MAC/s", fp32)));
    return LACE_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

enum { MAX_NAME = 60 }; /* columns for the name of a model */

/* A line of the table; the last three columns may be empty, and no line ends in spaces. */
static lace_status table_line(const bench_report *r, const char *model, const char *type,
                              const char *size, const char *test, const char *own,
                              const char *share, const char *rival, const char *ratio, buf *out)
{
    int width = r->name_width < MAX_NAME ? r->name_width : MAX_NAME;
    TRY(buf_printf(out, "%-*.*s %-7s %9s  %-10s %18s", width, MAX_NAME, model, type, size, test,
                   own));
    if (r->limits.read > 0)
        TRY(buf_printf(out, "  %-*s", r->rival ? 14 : 0, share));
    if (r->rival)
        TRY(buf_printf(out, " %18s  %s", rival, ratio));
    return buf_append_text(out, "\n");
}

static lace_status table_begin(const bench_report *r, buf *out)
{
    TRY(append_machine(r, out));
    TRY(buf_append_text(out, "\n"));
    return table_line(r, "model", "type", "size", "test", "tok/s", "limit", "llama.cpp", "ratio",
                      out);
}

static lace_status table_trace(const bench_row *row, buf *out)
{
    uint64_t total = 0;
    for (int i = 0; i < row->n_ops; i++)
        total += row->ops[i].ns;
    TRY(buf_printf(out, "    %-20s %6s %8s %12s %10s %12s\n", "operation", "share", "calls",
                   "us a call", "GB/s", "GMAC/s"));
    for (int i = 0; i < row->n_ops; i++) {
        const bench_op *o = &row->ops[i];
        double ns = o->ns ? (double)o->ns : 1;
        TRY(buf_printf(out, "    %-20s %4.1f %% %8llu %12.2f %10.2f ", o->name,
                       100 * ns / (double)(total ? total : 1), (unsigned long long)o->n_calls,
                       ns / 1e3 / (double)(o->n_calls ? o->n_calls : 1), (double)o->n_bytes / ns));
        TRY(o->n_macs ? buf_printf(out, "%12.2f\n", (double)o->n_macs / ns)
                      : buf_printf(out, "%12s\n", "-"));
    }
    return LACE_OK;
}

static lace_status table_row(const bench_report *r, const bench_row *row, buf *out)
{
    char size[32], own[80], share[48], rival[80], ratio[48];
    buf name;
    buf_init(&name, 1024);
    lace_status status = cli_append_clean(&name, row->model, strlen(row->model));
    if (status == LACE_OK)
        status = table_line(r, name.data ? name.data : "", row->type,
                            cli_format_bytes(row->weight_bytes, size), row->name,
                            format_series(&row->own, "-", own), format_share(row, share),
                            format_rival(row, rival), format_ratio(row, ratio), out);
    buf_deinit(&name);
    TRY(status);
    return row->n_ops ? table_trace(row, out) : LACE_OK;
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static lace_status md_begin(const bench_report *r, buf *out)
{
    TRY(append_machine(r, out));
    TRY(buf_append_text(out, "\n| model | type | size | test | tok/s | share of the limit |"));
    TRY(buf_append_text(out, r->rival ? " llama.cpp | ratio (lowest-highest) |\n" : "\n"));
    TRY(buf_append_text(out, "| --- | --- | ---: | --- | ---: | --- |"));
    return buf_append_text(out, r->rival ? " ---: | --- |\n" : "\n");
}

static lace_status md_row(const bench_report *r, const bench_row *row, buf *out)
{
    char size[32], own[80], share[48], rival[80], ratio[48];
    TRY(buf_append_text(out, "| "));
    TRY(cli_append_clean(out, row->model, strlen(row->model)));
    TRY(buf_printf(out, " | %s | %s | %s | %s | %s |", row->type,
                   cli_format_bytes(row->weight_bytes, size), row->name,
                   format_series(&row->own, "-", own), format_share(row, share)));
    if (r->rival)
        TRY(buf_printf(out, " %s | %s |", format_rival(row, rival), format_ratio(row, ratio)));
    return buf_append_text(out, "\n");
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static lace_status csv_begin(const bench_report *r, buf *out)
{
    (void)r;
    return buf_append_text(
        out, "date,version,cpu,level,threads,kv_type,model,type,bytes,test,repeats,"
             "tokens_per_second,stddev,lowest,highest,limit,share,read_bytes_per_second,"
             "int8_macs_per_second,fp32_macs_per_second,llama_cpp,llama_cpp_stddev,ratio,"
             "ratio_lowest,ratio_highest\n");
}

/* A field in quotes, with quotes inside doubled. */
static lace_status csv_text(buf *out, const char *field)
{
    TRY(buf_append_text(out, "\""));
    for (const char *c = field; *c; c++)
        TRY(buf_append(out, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1));
    return buf_append_text(out, "\",");
}

static lace_status csv_row(const bench_report *r, const bench_row *row, buf *out)
{
    TRY(buf_printf(out, "%s," LACE_VERSION ",", r->date));
    bool is_cpu = strcmp(row->backend, "cpu") == 0;
    TRY(csv_text(out, is_cpu ? r->cpu : row->device));
    TRY(buf_printf(out, "%s,%d,%s,", is_cpu ? r->level : row->backend, r->n_threads, r->kv_type));
    TRY(csv_text(out, row->model));
    TRY(buf_printf(out, "%s,%llu,%s,%d,%.3f,%.3f,%.3f,%.3f,", row->type,
                   (unsigned long long)row->weight_bytes, row->name, row->own.n, row->own.median,
                   row->own.stddev, row->own.low, row->own.high));
    TRY(row->limit_name
            ? buf_printf(out, "%s,%.4f,%.4g,%.4g,%.4g,", row->limit_name, row->limit_share,
                         row->read.median, r->limits.int8, r->limits.fp32)
            : buf_append_text(out, ",,,,,"));
    return row->ratio.n
               ? buf_printf(out, "%.3f,%.3f,%.4f,%.4f,%.4f\n", row->rival.median, row->rival.stddev,
                            row->ratio.median, row->ratio.low, row->ratio.high)
               : buf_append_text(out, ",,,,\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *json_series(const bench_series *s)
{
    json_t *samples = json_array();
    for (int i = 0; i < s->n; i++)
        json_array_append_new(samples, json_real(s->at[i]));
    return samples;
}

static json_t *json_trace(const bench_row *row)
{
    json_t *ops = json_array();
    for (int i = 0; i < row->n_ops; i++) {
        const bench_op *o = &row->ops[i];
        json_array_append_new(ops,
                              json_pack("{s:s, s:I, s:I, s:I, s:I}", "operation", o->name, "calls",
                                        (json_int_t)o->n_calls, "ns", (json_int_t)o->ns, "bytes",
                                        (json_int_t)o->n_bytes, "macs", (json_int_t)o->n_macs));
    }
    return ops;
}

/* Text that may come from outside: jansson takes only UTF-8. */
static json_t *json_clean(const char *s)
{
    buf clean;
    buf_init(&clean, 4096);
    json_t *value = NULL;
    if (cli_append_clean(&clean, s, strlen(s)) == LACE_OK)
        value = json_string(clean.data ? clean.data : "");
    buf_deinit(&clean);
    return value;
}

static json_t *json_row(const bench_report *r, const bench_row *row)
{
    json_t *o = json_pack(
        "{s:o, s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:s, s:s, s:s, s:f, s:f, s:o,"
        " s:f, s:f}",
        "model", json_clean(row->model), "type", row->type, "weight_bytes",
        (json_int_t)row->weight_bytes, "parameters", (json_int_t)row->n_parameters, "test",
        row->name, "n_prompt", row->test.n_prompt, "n_gen", row->test.n_gen, "depth",
        row->test.depth, "sequences", row->test.n_sequences, "threads", r->n_threads, "device",
        row->device, "cpu", json_clean(r->cpu), "cpu_level", r->level, "kv_type", r->kv_type,
        "date", r->date, "tokens_per_second", row->own.median, "stddev", row->own.stddev, "samples",
        json_series(&row->own), "bytes_per_token", row->bytes, "macs_per_token", row->macs);
    if (o && row->limit_name)
        json_object_set_new(o, "limit",
                            json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", row->limit_name, "share",
                                      row->limit_share, "read_bytes_per_second", row->read.median,
                                      "int8_macs_per_second", r->limits.int8,
                                      "fp32_macs_per_second", r->limits.fp32));
    if (o && row->ratio.n > 0)
        json_object_set_new(
            o, "against",
            json_pack("{s:o, s:f, s:f, s:o, s:f, s:f, s:f}", "program", json_clean(r->rival),
                      "tokens_per_second", row->rival.median, "stddev", row->rival.stddev,
                      "samples", json_series(&row->rival), "ratio", row->ratio.median,
                      "ratio_lowest", row->ratio.low, "ratio_highest", row->ratio.high));
    if (o && row->problem[0])
        json_object_set_new(o, "against",
                            json_pack("{s:o, s:n, s:o}", "program", json_clean(r->rival),
                                      "tokens_per_second", "error", json_clean(row->problem)));
    if (o && row->n_ops > 0)
        json_object_set_new(o, "trace", json_trace(row));
    return o;
}

static lace_status json_begin(const bench_report *r, buf *out)
{
    (void)r;
    return buf_append_text(out, "[");
}

static lace_status json_add(const bench_report *r, const bench_row *row, buf *out)
{
    json_t *o = json_row(r, row);
    char *dump = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    lace_status status = LACE_E_NOMEM;
    if (dump)
        status = buf_printf(out, "%s\n%s", row == r->rows ? "" : ",", dump);
    free(dump);
    json_decref(o);
    return status;
}

static lace_status json_end(const bench_report *r, buf *out)
{
    (void)r;
    return buf_append_text(out, "\n]\n");
}

const bench_format bench_formats[] = {
    {"table", table_begin, table_row, NULL}, {"json", json_begin, json_add, json_end},
    {"csv", csv_begin, csv_row, NULL},       {"md", md_begin, md_row, NULL},
    {"html", NULL, NULL, bench_html_page},
};
