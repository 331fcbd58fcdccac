/*
 * What pages of results share: the head with its style, text made safe, and the parts of charts as
 * SVG. Colours are the style's own variables: var(--own), var(--rival), var(--read), ...
 */
#ifndef LACE_CLI_BENCH_SVG_H
#define LACE_CLI_BENCH_SVG_H

#include "base/buf.h"

/* The charts' columns, in pixels. */
enum {
    BENCH_WIDTH = 920,
    BENCH_LABEL = 190,
    BENCH_BAR = 500,
    BENCH_BAR_X = BENCH_LABEL + 10,
    BENCH_BAR_END = BENCH_BAR_X + BENCH_BAR,
};

extern const char bench_html_head[]; /* from the doctype to the opening <main> */

/* Text from outside, safe between tags and inside quotes. */
lace_status bench_put_text(buf *out, const char *s);

/* A chart in its box; `label` is for those who do not see it. */
lace_status bench_svg_begin(buf *out, int height, const char *label);
lace_status bench_svg_end(buf *out);

lace_status bench_svg_bar(buf *out, double x, double y, double width, double height,
                          const char *color);
/* `more`: further attributes, or "". */
lace_status bench_svg_text(buf *out, double x, double y, const char *more, const char *content);

#endif
