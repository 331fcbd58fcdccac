/* The chart of a fit. */
#include "cli/fit_chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Scales ---------------------------------------------------------------------------------- */

/* From values to pixels, or to columns and lines. */
typedef struct axis {
    double low, high;   /* values; of their logarithms if is_log */
    double first, last; /* where those are */
    bool is_log;
} axis;

static double place(const axis *a, double value)
{
    double x = a->is_log ? log10(value) : value;
    return a->first + (x - a->low) / (a->high - a->low) * (a->last - a->first);
}

typedef double (*value_fn)(const fit_dot *d);

static double bytes_of(const fit_dot *d)
{
    return d->n_bytes * 1e-6;
}

static double kld_of(const fit_dot *d)
{
    return d->kld;
}

static double speed_of(const fit_dot *d)
{
    return d->speed;
}

/* An axis that holds all dots, with some room at both ends. */
static axis axis_for(const fit_dot *dots, size_t n, value_fn value, bool is_log, double first,
                     double last)
{
    axis a = {.low = INFINITY, .high = -INFINITY, .first = first, .last = last, .is_log = is_log};
    for (size_t i = 0; i < n; i++) {
        double x = is_log ? log10(value(&dots[i])) : value(&dots[i]);
        a.low = fmin(a.low, x);
        a.high = fmax(a.high, x);
    }
    double room = fmax((a.high - a.low) * 0.06, 1e-9);
    a.low -= room;
    a.high += room;
    return a;
}

/* Round steps of 1, 2 or 5, about `n` of them. */
static double step_of(const axis *a, int n)
{
    double raw = (a->high - a->low) / n, power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

/* ---- SVG ------------------------------------------------------------------------------------- */

enum { WIDTH = 860, PLOT_X = 70, PLOT_W = 760, PLOT_H = 300, TOP = 70, GAP = 70 };

static const char svg_head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 790\" font-family=\"system-ui, "
    "sans-serif\" font-size=\"12\">\n"
    "<style>.page{fill:#fbfaf8}.plot{fill:#fff;stroke:#e3e1dc}.grid{stroke:#e9e7e2}"
    "text{fill:#1d2129}.soft{fill:#667080}.curve{fill:none;stroke:#0b7a75;stroke-width:2}"
    ".own{fill:#0b7a75}.rival{fill:#7256c6}.result{fill:#c9361a}</style>\n"
    "<rect class=\"page\" width=\"860\" height=\"790\"/>\n";

static lace_status put_name(buf *out, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '<':
            TRY(buf_append_text(out, "&lt;"));
            break;
        case '&':
            TRY(buf_append_text(out, "&amp;"));
            break;
        default:
            TRY(buf_append(out, (unsigned char)*s < ' ' ? "?" : s, 1));
        }
    return LACE_OK;
}

static lace_status svg_grid(buf *out, const axis *x, const axis *y, double top)
{
    double step = step_of(x, 8);
    for (double v = ceil(x->low / step) * step; v <= x->high; v += step)
        TRY(buf_printf(out,
                       "<path class=\"grid\" d=\"M%.1f %.1fv%d\"/><text class=\"soft\" x=\"%.1f\" "
                       "y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                       place(x, v), top, PLOT_H, place(x, v), top + PLOT_H + 16, v));
    if (y->is_log) {
        static const int leads[] = {1, 2, 5};
        for (int power = (int)floor(y->low); power <= (int)ceil(y->high); power++)
            for (int i = 0; i < 3; i++) {
                double v = leads[i] * pow(10, power), at = place(y, v);
                if (at < top || at > top + PLOT_H)
                    continue;
                TRY(buf_printf(out,
                               "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"soft\" "
                               "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                               PLOT_X, at, PLOT_W, PLOT_X - 6, at + 4, v));
            }
        return LACE_OK;
    }
    step = step_of(y, 6);
    for (double v = ceil(y->low / step) * step; v <= y->high; v += step)
        TRY(buf_printf(out,
                       "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"soft\" x=\"%d\" "
                       "y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                       PLOT_X, place(y, v), PLOT_W, PLOT_X - 6, place(y, v) + 4, v));
    return LACE_OK;
}

static lace_status svg_dots(buf *out, const fit_dot *dots, size_t n, value_fn value, const axis *x,
                            const axis *y)
{
    static const char *const classes[] = {"own", "rival", "result"};
    bool is_first = true;
    TRY(buf_append_text(out, "<path class=\"curve\" d=\""));
    for (size_t i = 0; i < n; i++)
        if (dots[i].mark == FIT_CURVE) {
            TRY(buf_printf(out, "%c%.1f %.1f", is_first ? 'M' : 'L', place(x, bytes_of(&dots[i])),
                           place(y, value(&dots[i]))));
            is_first = false;
        }
    TRY(buf_append_text(out, "\"/>\n"));
    for (size_t i = 0; i < n; i++) {
        double at_x = place(x, bytes_of(&dots[i])), at_y = place(y, value(&dots[i]));
        TRY(buf_printf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>",
                       classes[dots[i].mark], at_x, at_y, dots[i].mark == FIT_CURVE ? 3 : 5));
        if (dots[i].mark != FIT_CURVE) {
            TRY(buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", at_x + 8, at_y - 5));
            TRY(put_name(out, dots[i].name));
            TRY(buf_append_text(out, "</text>"));
        }
        TRY(buf_append_text(out, "\n"));
    }
    return LACE_OK;
}

static lace_status svg_plot(buf *out, const fit_dot *dots, size_t n, value_fn value, bool is_log,
                            double top, const char *title)
{
    axis x = axis_for(dots, n, bytes_of, false, PLOT_X, PLOT_X + PLOT_W);
    axis y = axis_for(dots, n, value, is_log, top + PLOT_H, top);
    TRY(buf_printf(out,
                   "<text x=\"%d\" y=\"%.1f\" font-weight=\"600\">%s</text>\n"
                   "<rect class=\"plot\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n",
                   PLOT_X, top - 10, title, PLOT_X, top, PLOT_W, PLOT_H));
    TRY(svg_grid(out, &x, &y, top));
    return svg_dots(out, dots, n, value, &x, &y);
}

lace_status fit_chart_svg(buf *out, const char *model, const fit_dot *dots, size_t n)
{
    TRY(buf_append_text(out, svg_head));
    TRY(buf_printf(out, "<text x=\"%d\" y=\"30\" font-size=\"17\" font-weight=\"600\">", PLOT_X));
    TRY(put_name(out, model));
    TRY(buf_append_text(out, "</text>\n"));
    TRY(svg_plot(out, dots, n, kld_of, true, TOP,
                 "KL divergence from the original, against megabytes of the file"));
    TRY(svg_plot(out, dots, n, speed_of, false, TOP + PLOT_H + GAP,
                 "tokens a second on this machine, against megabytes of the file"));
    return buf_append_text(out, "</svg>\n");
}

/* ---- Text ------------------------------------------------------------------------------------ */

enum { COLUMNS = 64, LINES = 18, MARGIN = 9 };

lace_status fit_chart_text(buf *out, const fit_dot *dots, size_t n)
{
    static const char marks[] = {'.', 'o', '#'};
    char grid[LINES][COLUMNS + 1];
    axis x = axis_for(dots, n, bytes_of, false, 0, COLUMNS - 1);
    axis y = axis_for(dots, n, kld_of, true, LINES - 1, 0);
    memset(grid, ' ', sizeof grid);
    for (int mark = FIT_CURVE; mark <= FIT_RESULT; mark++)
        for (size_t i = 0; i < n; i++) {
            if ((int)dots[i].mark != mark)
                continue;
            int column = (int)lround(place(&x, bytes_of(&dots[i])));
            int line = (int)lround(place(&y, dots[i].kld));
            grid[line][column] = marks[mark];
            /* The name beside it, as far as there is room. */
            for (int k = 0; mark == FIT_RIVAL && dots[i].name[k]; k++)
                if (column + 2 + k < COLUMNS && grid[line][column + 2 + k] == ' ')
                    grid[line][column + 2 + k] = dots[i].name[k];
        }
    TRY(buf_printf(out, "%*s KLD   . the best of each size   o GGUF's types   # written\n", MARGIN,
                   ""));
    for (int i = 0; i < LINES; i++) {
        double value = pow(10, y.high + (y.low - y.high) * i / (LINES - 1));
        grid[i][COLUMNS] = 0;
        if (i % 4 == 0)
            TRY(buf_printf(out, "%*.5f |%s\n", MARGIN - 1, value, grid[i]));
        else
            TRY(buf_printf(out, "%*s|%s\n", MARGIN, "", grid[i]));
    }
    TRY(buf_printf(out, "%*s+%.*s\n%*s%-*.1f%*.1f MB\n\n", MARGIN, "", COLUMNS,
                   "------------------------------------------------------------------------",
                   MARGIN, "", COLUMNS / 2, x.low, COLUMNS / 2 - 3, x.high));
    TRY(buf_printf(out, "%-12s %14s %10s %10s\n", "", "bytes", "KLD", "tokens/s"));
    for (size_t i = 0; i < n; i++)
        TRY(buf_printf(out, "%-12s %14.0f %10.5f %10.1f\n", dots[i].name, dots[i].n_bytes,
                       dots[i].kld, dots[i].speed));
    return LACE_OK;
}
