/* Choosing the weights that go. */
#include "compress/prune_choose.h"

#include <math.h>
#include <string.h>

void prune_column_sums(const prune_matrix *m, float *out)
{
    memset(out, 0, (size_t)m->n_cols * sizeof *out);
    for (int64_t r = 0; r < m->n_rows; r++)
        for (int64_t c = 0; c < m->n_cols; c++)
            out[c] += fabsf(m->w[r * m->n_cols + c]);
}

/* scores[n_cols] of a row. */
static void score_row(prune_method method, const prune_matrix *m, int64_t row, float *scores)
{
    const float *w = m->w + row * m->n_cols;
    float row_sum = 0;
    for (int64_t c = 0; c < m->n_cols; c++)
        row_sum += fabsf(w[c]);
    for (int64_t c = 0; c < m->n_cols; c++) {
        float size = fabsf(w[c]), input = m->inputs ? sqrtf(m->inputs[c]) : 1;
        switch (method) {
        case PRUNE_MAGNITUDE:
            scores[c] = size;
            break;
        case PRUNE_RIA:
            scores[c] = size > 0 ? (size / row_sum + size / m->columns[c]) * sqrtf(input) : 0;
            break;
        default: /* wanda; and sparsegpt, whose inputs are what a weight that goes costs */
            scores[c] = size * input;
        }
    }
}

/* The k-th smallest (from 0) of x[n]; x is reordered. Quickselect, the pivot from the middle. */
static float select_smallest(float *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i <= j) {
                float t = x[i];
                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return x[k];
}

/* Drop the n_gone lowest of scores[n]. */
static void drop_lowest(const float *scores, int64_t n, int64_t n_gone, uint8_t *keeps,
                        float *scratch)
{
    memset(keeps, 1, (size_t)n);
    if (n_gone == 0)
        return;
    memcpy(scratch, scores, (size_t)n * sizeof *scratch);
    float limit = select_smallest(scratch, n, n_gone - 1);
    int64_t left = n_gone;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] < limit) {
            keeps[i] = 0;
            left--;
        }
    for (int64_t i = 0; i < n && left > 0; i++)
        if (scores[i] == limit) {
            keeps[i] = 0;
            left--;
        }
}

void prune_choose_row(const surgery_rule *rule, const prune_matrix *m, int64_t row, uint8_t *keeps,
                      float *scratch)
{
    float *scores = scratch + m->n_cols;
    score_row(rule->method, m, row, scores);
    if (!rule->out_of) {
        int64_t n_gone = (int64_t)((double)m->n_cols * rule->sparsity);
        drop_lowest(scores, m->n_cols, n_gone, keeps, scratch);
        return;
    }
    for (int64_t c = 0; c < m->n_cols; c += rule->out_of) {
        int64_t n = m->n_cols - c < rule->out_of ? m->n_cols - c : rule->out_of;
        int64_t n_gone = n > rule->keep ? n - rule->keep : 0;
        drop_lowest(scores + c, n, n_gone, keeps + c, scratch);
    }
}
