/* The chart of a fit: size against divergence and speed, as SVG and as text. */
#ifndef LACE_CLI_FIT_CHART_H
#define LACE_CLI_FIT_CHART_H

#include "base/buf.h"
#include "compress/fit_dot.h"

/* A whole SVG file: KLD (logarithmic) and speed against size, one above the other. */
lace_status fit_chart_svg(buf *out, const char *model, const fit_dot *dots, size_t n);

/* KLD against size in characters, and below it the table of all dots. */
lace_status fit_chart_text(buf *out, const fit_dot *dots, size_t n);

#endif
