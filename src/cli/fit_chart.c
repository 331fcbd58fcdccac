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

enum { PLOT_X = 70, PLOT_W = 760, PLOT_H = 300, TOP = 86, GAP = 70, MAX_DOTS = 64 };

static const char *const classes[] = {"own", "rival", "result"};
static const char *const legend[] = {"the best of each size", "GGUF's types", "written"};

static const char svg_head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 806\" font-family=\"system-ui, "
    "sans-serif\" font-size=\"12\">\n"
    "<style>.page{fill:#fbfaf8}.plot{fill:#fff;stroke:#e3e1dc}.grid{stroke:#e9e7e2}"
    "text{fill:#1d2129}.soft{fill:#667080}.curve{fill:none;stroke:#0b7a75;stroke-width:2}"
    ".own{fill:#0b7a75}.rival{fill:#7256c6}.result{fill:#c9361a}.lead{stroke:#b4b8c0}</style>\n"
    "<rect class=\"page\" width=\"860\" height=\"806\"/>\n";

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

/* ---- Labels ---------------------------------------------------------------------------------- */

typedef struct box {
    double x, y, width, height;
} box;

/* Where things are in a plot, so that labels find a place beside them. */
typedef struct layout {
    box inside; /* labels stay in it */
    double x[MAX_DOTS], y[MAX_DOTS];
    size_t n_dots;
    size_t curve[MAX_DOTS]; /* dots that a line joins, in its order */
    size_t n_curve;
    box labels[MAX_DOTS];
    size_t n_labels;
} layout;

static bool meets(const box *a, const box *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height &&
           b->y < a->y + a->height;
}

static bool meets_curve(const layout *l, const box *b)
{
    enum { STEPS = 64 };
    for (size_t i = 1; i < l->n_curve; i++)
        for (int k = 0; k <= STEPS; k++) {
            double part = (double)k / STEPS;
            size_t from = l->curve[i - 1], to = l->curve[i];
            box point = {l->x[from] + part * (l->x[to] - l->x[from]) - 1,
                         l->y[from] + part * (l->y[to] - l->y[from]) - 1, 2, 2};
            if (meets(b, &point))
                return true;
        }
    return false;
}

static bool is_free(const layout *l, const box *b, bool avoids_curve)
{
    enum { RADIUS = 6 };
    if (b->x < l->inside.x || b->y < l->inside.y ||
        b->x + b->width > l->inside.x + l->inside.width ||
        b->y + b->height > l->inside.y + l->inside.height)
        return false;
    for (size_t i = 0; i < l->n_dots; i++) {
        box dot = {l->x[i] - RADIUS, l->y[i] - RADIUS, 2 * RADIUS, 2 * RADIUS};
        if (meets(b, &dot))
            return false;
    }
    for (size_t i = 0; i < l->n_labels; i++)
        if (meets(b, &l->labels[i]))
            return false;
    return !avoids_curve || !meets_curve(l, b);
}

/*
 * The nearest place for a label beside dot i: around it in rings that grow, off the curve if that is
 * possible. False if there is none.
 */
static bool find_place(const layout *l, size_t i, double width, box *out)
{
    static const int around[][2] = {{1, -1}, {1, 1}, {-1, -1}, {-1, 1},
                                    {0, -1}, {0, 1}, {1, 0},   {-1, 0}};
    enum { N_RINGS = 12, HEIGHT = 14 };
    for (int avoids_curve = 1; avoids_curve >= 0; avoids_curve--)
        for (int ring = 0; ring < N_RINGS; ring++)
            for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
                int dx = around[k][0], dy = around[k][1];
                double away = 7 + 10 * ring, x = l->x[i], y = l->y[i];
                double up = dx ? 1 + 10 * ring : away;
                *out = (box){.width = width, .height = HEIGHT};
                out->x = dx > 0 ? x + away : dx < 0 ? x - away - width : x - width / 2;
                out->y = dy > 0 ? y + up : dy < 0 ? y - up - HEIGHT : y - HEIGHT / 2.0;
                if (is_free(l, out, avoids_curve))
                    return true;
            }
    return false;
}

/* A line from a dot to a label that is not beside it. */
static lace_status svg_lead(buf *out, double x, double y, const box *label)
{
    double to_x = fmin(fmax(x, label->x), label->x + label->width);
    double to_y = fmin(fmax(y, label->y), label->y + label->height);
    if (hypot(to_x - x, to_y - y) < 12)
        return LACE_OK;
    return buf_printf(out, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x, y, to_x, to_y);
}

static lace_status svg_labels(buf *out, layout *l, const fit_dot *dots)
{
    for (size_t i = 0; i < l->n_dots; i++) {
        box at;
        /* Letters of this font are less than 7.5 wide, but for the widest. */
        double width = 7.5 * (double)strlen(dots[i].name);
        if (dots[i].mark == FIT_CURVE || !find_place(l, i, width, &at))
            continue;
        l->labels[l->n_labels++] = at;
        bool is_left = at.x + at.width <= l->x[i];
        TRY(svg_lead(out, l->x[i], l->y[i], &at));
        TRY(buf_printf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\"%s>",
                       is_left ? at.x + at.width : at.x, at.y + at.height - 3,
                       is_left ? " text-anchor=\"end\"" : ""));
        TRY(put_name(out, dots[i].name));
        TRY(buf_append_text(out, "</text>\n"));
    }
    return LACE_OK;
}

static lace_status svg_dots(buf *out, const fit_dot *dots, size_t n, value_fn value, const axis *x,
                            const axis *y)
{
    layout l = {.inside = {PLOT_X + 2, y->last + 2, PLOT_W - 4, PLOT_H - 4},
                .n_dots = n < MAX_DOTS ? n : MAX_DOTS};
    TRY(buf_append_text(out, "<path class=\"curve\" d=\""));
    for (size_t i = 0; i < l.n_dots; i++) {
        l.x[i] = place(x, bytes_of(&dots[i]));
        l.y[i] = place(y, value(&dots[i]));
        if (dots[i].mark != FIT_CURVE)
            continue;
        TRY(buf_printf(out, "%c%.1f %.1f", l.n_curve ? 'L' : 'M', l.x[i], l.y[i]));
        l.curve[l.n_curve++] = i;
    }
    TRY(buf_append_text(out, "\"/>\n"));
    for (size_t i = 0; i < l.n_dots; i++)
        TRY(buf_printf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n",
                       classes[dots[i].mark], l.x[i], l.y[i], dots[i].mark == FIT_CURVE ? 3 : 5));
    return svg_labels(out, &l, dots);
}

/* What the colours are. */
static lace_status svg_legend(buf *out)
{
    double x = PLOT_X + 6;
    for (int i = FIT_CURVE; i <= FIT_RESULT; i++) {
        if (i == FIT_CURVE)
            TRY(buf_printf(out, "<path class=\"curve\" d=\"M%.1f 47h18\"/>", x - 9));
        TRY(buf_printf(out,
                       "<circle class=\"%s\" cx=\"%.1f\" cy=\"47\" r=\"%d\"/><text "
                       "class=\"legend\" x=\"%.1f\" y=\"51\">%s</text>\n",
                       classes[i], x, i == FIT_CURVE ? 3 : 5, x + 14, legend[i]));
        x += 14 + 7.5 * (double)strlen(legend[i]) + 20;
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
    TRY(buf_printf(out, "<text x=\"%d\" y=\"28\" font-size=\"17\" font-weight=\"600\">", PLOT_X));
    TRY(put_name(out, model));
    TRY(buf_append_text(out, "</text>\n"));
    TRY(svg_legend(out));
    TRY(svg_plot(out, dots, n, kld_of, true, TOP,
                 "KL divergence from the original, against megabytes of the file"));
    TRY(svg_plot(out, dots, n, speed_of, false, TOP + PLOT_H + GAP,
                 "tokens a second on this machine, against megabytes of the file"));
    return buf_append_text(out, "</svg>\n");
}

/* ---- Text ------------------------------------------------------------------------------------ */

enum { COLUMNS = 64, LINES = 18, MARGIN = 9 };

typedef char text_grid[LINES][COLUMNS + 1];

/* Write a name at a place, if all of it is free there, and the columns at both of its ends. */
static bool put_in_grid(text_grid grid, int line, int column, const char *name)
{
    int n = (int)strlen(name);
    if (line < 0 || line >= LINES || column < 0 || column + n > COLUMNS)
        return false;
    for (int i = column > 0 ? column - 1 : 0; i < column + n + 1 && i < COLUMNS; i++)
        if (grid[line][i] != ' ')
            return false;
    memcpy(grid[line] + column, name, (size_t)n);
    return true;
}

/* The name of a dot beside it, or above or below; where there is no room, only the table has it. */
static void label_in_grid(text_grid grid, int line, int column, const char *name)
{
    int n = (int)strlen(name);
    const int places[][2] = {{0, 2},   {0, -1 - n}, {-1, 1},      {1, 1},
                             {-1, -n}, {1, -n},     {-1, -n / 2}, {1, -n / 2}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (put_in_grid(grid, line + places[i][0], column + places[i][1], name))
            return;
}

lace_status fit_chart_text(buf *out, const fit_dot *dots, size_t n)
{
    static const char marks[] = {'.', 'o', '#'};
    text_grid grid;
    axis x = axis_for(dots, n, bytes_of, false, 0, COLUMNS - 1);
    axis y = axis_for(dots, n, kld_of, true, LINES - 1, 0);
    memset(grid, ' ', sizeof grid);
    /* All dots first: names go where none is. */
    for (int is_label = 0; is_label < 2; is_label++)
        for (int mark = FIT_CURVE; mark <= FIT_RESULT; mark++)
            for (size_t i = 0; i < n; i++) {
                int column = (int)lround(place(&x, bytes_of(&dots[i])));
                int line = (int)lround(place(&y, dots[i].kld));
                if ((int)dots[i].mark == mark && !is_label)
                    grid[line][column] = marks[mark];
                else if ((int)dots[i].mark == mark && mark == FIT_RIVAL)
                    label_in_grid(grid, line, column, dots[i].name);
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
