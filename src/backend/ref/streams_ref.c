/* Plain operations on residual streams, and the cutoff of gates. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "backend/ref/ref.h"

void mix_ref(const step *s, const batch *b, const worker *w)
{
    int64_t width = s->a.mix.width, n_in = s->in[0].width / width, begin, end;
    pool_share(width, 16, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < step_rows(s, b); t++)
        for (int64_t i = 0; i < s->out[0].width / width; i++) {
            const float *by = operand_row(&s->in[1], t) + i * n_in;
            const float *base = operand_row(&s->in[2], t) + i * width;
            float *y = operand_row(&s->out[0], t) + i * width;
            for (int64_t col = begin; col < end; col++) {
                float sum = base[col];
                for (int64_t k = 0; k < n_in; k++)
                    sum += by[k] * operand_row(&s->in[0], t)[k * width + col];
                y[col] = sum;
            }
        }
}

static double mean_square(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum / (double)n;
}

void match_ref(const step *s, const batch *b, const worker *w)
{
    int64_t width = s->in[1].width, begin, end;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *target = operand_row(&s->in[1], t);
        float *y = operand_row(&s->out[0], t);
        double size = s->a.match.scale * sqrt(mean_square(target, width));
        if (s->a.match.leads) {
            memcpy(y, target, (size_t)width * sizeof *y);
            y += width;
        }
        for (int64_t at = 0; at < s->in[0].width; at += width) {
            const float *x = operand_row(&s->in[0], t) + at;
            double square = mean_square(x, width), least = s->a.match.least;
            float scale = (float)(size / sqrt(square > least ? square : least));
            for (int64_t i = 0; i < width; i++)
                y[at + i] = x[i] * scale;
        }
    }
}

void cutoff_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, n = s->out[0].width;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *x = operand_row(&s->out[0], t);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[i];
        double mean = sum / (double)n;
        for (int64_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        float least = (float)(mean + s->a.cutoff.factor * sqrt(squares / (double)n));
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] < least ? 0 : x[i] - least; /* a NaN stays */
    }
}
