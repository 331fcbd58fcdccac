/* Plain LoRA: see ops/lora.h. */
#include "ops/lora.h"

#include "base/threads.h"
#include "backend/ref/ref.h"

static float value_at(dtype type, const uint8_t *values, int64_t i)
{
    float x;
    unpack_row(type, values + row_bytes(type, i), 1, &x);
    return x;
}

/* What an adapter makes of one row: its rank values. */
static void down_row(const step *s, const batch *b, const lora_pair *p, int64_t row)
{
    const lora_site *site = s->a.lora.site;
    float *low = operand_row(&s->out[0], row) + p->first;
    int32_t token = site->is_table ? b->tokens[lora_token(s, b, row)] : 0;
    for (int32_t r = 0; r < p->rank; r++) {
        double sum = 0;
        if (site->is_table) /* a row that is given as an embedding is none of the table */
            sum = token < 0 ? 0 : value_at(p->type, p->down, (int64_t)token * p->rank + r);
        else
            for (int64_t i = 0; i < site->n_in; i++)
                sum += (double)value_at(p->type, p->down, r * lora_padded(site->n_in) + i) *
                       (double)operand_row(&s->in[0], row)[i];
        low[r] = (float)sum;
    }
}

void lora_down_ref(const step *s, const batch *b, const worker *w)
{
    const lora_site *site = s->a.lora.site;
    int64_t begin, end;
    if (!b->adapter_scales)
        return;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        for (int32_t i = 0; i < site->n_pairs; i++)
            if (lora_scale(s, b, &site->pairs[i], row) != 0)
                down_row(s, b, &site->pairs[i], row);
}

void lora_up_ref(const step *s, const batch *b, const worker *w)
{
    const lora_site *site = s->a.lora.site;
    int64_t begin, end, n = step_rows(s, b);
    if (!b->adapter_scales)
        return;
    pool_share(site->n_out, 1, w->index, w->count, &begin, &end);
    for (int64_t row = 0; row < n; row++)
        for (int32_t i = 0; i < site->n_pairs; i++) {
            const lora_pair *p = &site->pairs[i];
            const float *low = operand_row(&s->in[0], row) + p->first;
            float *y = operand_row(&s->out[0], row);
            float scale = lora_scale(s, b, p, row);
            for (int64_t c = begin; scale != 0 && c < end; c++) {
                double sum = 0;
                for (int32_t r = 0; r < p->rank; r++)
                    sum += (double)value_at(p->type, p->up, lora_up_at(p, r, c)) * (double)low[r];
                y[c] += (float)(sum * (double)(scale * p->factor * s->a.lora.scale));
            }
        }
}
