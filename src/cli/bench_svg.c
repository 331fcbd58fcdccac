/* Pages of results: their style, text made safe, and the parts of charts. */
#include "cli/bench_svg.h"

#include <string.h>

#include "cli/cli.h"

const char bench_html_head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>lace bench</title>\n<style>\n"
    ":root{--page:#fbfaf8;--card:#fff;--ink:#1d2129;--soft:#667080;--line:#e3e1dc;--own:#0b7a75;"
    "--rival:#b4b8c0;--read:#0b7a75;--int8:#7256c6;--fp32:#c9761a}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14171c;--card:#1c2128;--ink:#e8eaee;"
    "--soft:#98a2b0;--line:#323a45;--own:#37b8ae;--rival:#5b6573;--read:#37b8ae;--int8:#a48bf0;"
    "--fp32:#eda44f}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}\n"
    "main{max-width:980px;margin:0 auto;padding:32px 20px 64px}\n"
    "h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 4px}\n"
    "p{margin:4px 0 12px;color:var(--soft);max-width:70ch}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}\n"
    ".card{flex:1 1 160px;background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:12px 16px}.card b{display:block;font-size:22px}.card span{color:var(--soft)}\n"
    ".chart{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;"
    "overflow-x:auto}\n"
    "svg{display:block;width:100%;min-width:640px;height:auto}svg text{fill:var(--ink);"
    "font:13px system-ui,sans-serif}svg .soft{fill:var(--soft);font-size:12px}"
    "svg .model{font-weight:600}svg .strong{font-weight:600}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}th,td{padding:6px 10px;"
    "text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{color:var(--soft);font-weight:600}th.l,td.l{text-align:left}\n"
    "code{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:2px 6px;"
    "overflow-wrap:anywhere}\n"
    ".key{display:inline-block;width:11px;height:11px;border-radius:3px;margin:0 5px 0 14px}\n"
    "</style>\n</head>\n<body>\n<main>\n";

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Text from outside, safe between tags and inside quotes. */
lace_status bench_put_text(buf *out, const char *s)
{
    buf clean;
    buf_init(&clean, 8192);
    lace_status status = cli_append_clean(&clean, s, strlen(s));
    for (size_t i = 0; i < clean.size && status == LACE_OK; i++) {
        char c = clean.data[i];
        const char *name = c == '&'   ? "&amp;"
                           : c == '<' ? "&lt;"
                           : c == '>' ? "&gt;"
                           : c == '"' ? "&quot;"
                                      : NULL;
        status = name ? buf_append_text(out, name) : buf_append(out, &c, 1);
    }
    buf_deinit(&clean);
    return status;
}

lace_status bench_svg_begin(buf *out, int height, const char *label)
{
    return buf_printf(out,
                      "<div class=\"chart\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                      "aria-label=\"%s\">\n",
                      BENCH_WIDTH, height, label);
}

lace_status bench_svg_end(buf *out)
{
    return buf_append_text(out, "</svg></div>\n");
}

lace_status bench_svg_bar(buf *out, double x, double y, double width, double height,
                          const char *color)
{
    return buf_printf(out,
                      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" "
                      "fill=\"%s\"/>\n",
                      x, y, width < 1 ? 1 : width, height, color);
}

lace_status bench_svg_text(buf *out, double x, double y, const char *more, const char *content)
{
    TRY(buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, *more ? " " : "", more));
    TRY(bench_put_text(out, content));
    return buf_append_text(out, "</text>\n");
}
