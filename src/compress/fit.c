/* Choosing types: what each costs, and what is bought. */
#include "compress/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "compress/fit_impl.h"

/* ---- Points ---------------------------------------------------------------------------------- */

static const fit_choice *chosen(const fit_tensor *t)
{
    return &t->choices[t->chosen];
}

fit_point fit_now(const fit *f)
{
    fit_point p = {.n_bytes = f->rest_bytes, .us = f->rest_us};
    for (size_t i = 0; i < f->n_tensors; i++) {
        const fit_choice *c = chosen(&f->tensors[i]);
        p.n_bytes += c->n_bytes;
        p.us += c->us;
        p.kld += c->kld;
    }
    return p;
}

/* Prices are whole numbers there: bytes, or nanoseconds. */
static uint64_t price(const fit_choice *c, fit_unit unit)
{
    return unit == FIT_BYTES ? c->n_bytes : (uint64_t)(c->us * 1e3 + 0.5);
}

static double rest_of(const fit *f, fit_unit unit)
{
    return unit == FIT_BYTES ? (double)f->rest_bytes : f->rest_us * 1e3;
}

/* In the order of their price; order[k] is the choice that item's number k is. */
static void sort_choices(const fit_tensor *t, fit_unit unit, int order[ALLOCATE_CHOICES])
{
    for (int i = 0; i < t->n; i++) {
        int at = i;
        for (; at > 0 && price(&t->choices[order[at - 1]], unit) > price(&t->choices[i], unit);
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

void fit_range(fit *f, fit_unit unit, double *least, double *most)
{
    *least = *most = rest_of(f, unit);
    for (size_t i = 0; i < f->n_tensors; i++) {
        int order[ALLOCATE_CHOICES];
        const fit_tensor *t = &f->tensors[i];
        sort_choices(t, unit, order);
        *least += (double)price(&t->choices[order[0]], unit);
        *most += (double)price(&t->choices[order[t->n - 1]], unit);
    }
    if (unit == FIT_TIME) {
        *least *= 1e-3;
        *most *= 1e-3;
    }
}

bool fit_allocate(fit *f, fit_unit unit, double budget)
{
    double left = (unit == FIT_TIME ? budget * 1e3 : budget) - rest_of(f, unit);
    for (size_t i = 0; i < f->n_tensors; i++) {
        int order[ALLOCATE_CHOICES];
        const fit_tensor *t = &f->tensors[i];
        sort_choices(t, unit, order);
        f->items[i].n = t->n;
        for (int k = 0; k < t->n; k++) {
            f->items[i].n_bytes[k] = price(&t->choices[order[k]], unit);
            f->items[i].cost[k] = t->choices[order[k]].kld;
        }
    }
    uint64_t limit = left > 0 ? (uint64_t)left : 0;
    uint64_t used = allocate(f->items, f->n_tensors, limit);
    for (size_t i = 0; i < f->n_tensors; i++) {
        int order[ALLOCATE_CHOICES];
        sort_choices(&f->tensors[i], unit, order);
        f->tensors[i].chosen = order[f->items[i].chosen];
    }
    return left >= 0 && used <= limit;
}

bool fit_allocate_loss(fit *f, double kld)
{
    double low, high;
    fit_range(f, FIT_BYTES, &low, &high);
    fit_allocate(f, FIT_BYTES, high);
    if (fit_now(f).kld > kld)
        return false;
    while (high - low > 1e-4 * high) {
        double middle = (low + high) / 2;
        if (fit_allocate(f, FIT_BYTES, middle) && fit_now(f).kld <= kld)
            high = middle;
        else
            low = middle;
    }
    return fit_allocate(f, FIT_BYTES, high);
}

/* ---- The whole, measured --------------------------------------------------------------------- */

lace_status fit_advance(const fit *f, const char *what, double done, lace_error *err)
{
    const fit_options *o = &f->options;
    if (o->on_progress && !o->on_progress(o->progress_user, what, done))
        return error_set(err, LACE_E_CANCELLED, "cancelled");
    return LACE_OK;
}

lace_status fit_measure(fit *f, double *kld, lace_error *err)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        TRY(trial_set(f->trial, f->tensors[i].t, chosen(&f->tensors[i])->type, err));
    return trial_measure(f->trial, kld, err);
}

/* One tensor better and another worse. */
typedef struct swap {
    size_t up, down;
    int up_choice, down_choice;
    double gain; /* predicted */
} swap;

/* The most promising exchanges that fit, best first. Returns how many. */
static int list_swaps(const fit *f, fit_unit unit, double left, swap *out, int max)
{
    int n = 0;
    for (size_t i = 0; i < f->n_tensors; i++)
        for (size_t k = 0; k < f->n_tensors; k++)
            for (int a = 0; a < f->tensors[i].n && i != k; a++)
                for (int b = 0; b < f->tensors[k].n; b++) {
                    const fit_choice *up = &f->tensors[i].choices[a], *now = chosen(&f->tensors[i]);
                    const fit_choice *down = &f->tensors[k].choices[b];
                    const fit_choice *then = chosen(&f->tensors[k]);
                    if (up->kld >= now->kld || down->kld <= then->kld)
                        continue;
                    double growth = (double)price(up, unit) - (double)price(now, unit) +
                                    (double)price(down, unit) - (double)price(then, unit);
                    double gain = now->kld - up->kld + then->kld - down->kld;
                    if (growth > left || (n == max && gain <= out[n - 1].gain))
                        continue;
                    int at = n < max ? n++ : n - 1;
                    for (; at > 0 && out[at - 1].gain < gain; at--)
                        out[at] = out[at - 1];
                    out[at] = (swap){i, k, a, b, gain};
                }
    return n;
}

lace_status fit_exchange(fit *f, fit_unit unit, double budget, int n_tries, double *kld,
                         lace_error *err)
{
    enum { MAX_SWAPS = 64 };
    swap list[MAX_SWAPS];
    int max = n_tries < MAX_SWAPS ? n_tries : MAX_SWAPS;
    double scale = unit == FIT_TIME ? 1e3 : 1;
    TRY(fit_measure(f, kld, err));
    for (int tries = 0; tries < n_tries;) {
        fit_point p = fit_now(f);
        double used = unit == FIT_TIME ? p.us * 1e3 : (double)p.n_bytes;
        int n = list_swaps(f, unit, budget * scale - used, list, max);
        bool has_changed = false;
        for (int i = 0; i < n && tries < n_tries && !has_changed; i++, tries++) {
            fit_tensor *up = &f->tensors[list[i].up], *down = &f->tensors[list[i].down];
            int was_up = up->chosen, was_down = down->chosen;
            double now;
            char what[64];
            snprintf(what, sizeof what, "exchanging types: KLD %.5f", *kld);
            TRY(fit_advance(f, what, (double)tries / n_tries, err));
            up->chosen = list[i].up_choice;
            down->chosen = list[i].down_choice;
            TRY(fit_measure(f, &now, err));
            has_changed = now < *kld;
            if (has_changed) {
                *kld = now;
            } else {
                up->chosen = was_up;
                down->chosen = was_down;
            }
        }
        if (!has_changed)
            break;
    }
    return LACE_OK;
}

/* ---- GGUF's mixes ---------------------------------------------------------------------------- */

lace_status fit_mix(fit *f, const mix *m, fit_point *out, lace_error *err)
{
    mix_context context = fit_context(f->w->m);
    *out = (fit_point){.n_bytes = f->rest_bytes, .us = f->rest_us};
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tensor *t = f->tensors[i].t;
        dtype type = mix_type_of(m, &context, t);
        double us;
        TRY(fit_time(f, t, type, &us, err));
        out->n_bytes += row_bytes(type, (int64_t)t->n_values);
        out->us += us;
        TRY(trial_set(f->trial, t, type, err));
    }
    return trial_measure(f->trial, &out->kld, err);
}

lace_status fit_mix_time(fit *f, const mix *m, double *us, lace_error *err)
{
    mix_context context = fit_context(f->w->m);
    *us = f->rest_us;
    for (size_t i = 0; i < f->n_tensors; i++) {
        double one;
        TRY(fit_time(f, f->tensors[i].t, mix_type_of(m, &context, f->tensors[i].t), &one, err));
        *us += one;
    }
    return LACE_OK;
}

/* ---- Handing on ------------------------------------------------------------------------------ */

static dtype type_for(const fit *f, const tensor *t)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].t == t)
            return chosen(&f->tensors[i])->type;
    return fit_rest_type(f, t);
}

lace_status fit_types(const fit *f, quantize_made **out, lace_error *err)
{
    const weights *files = f->w->m->files;
    quantize_made *m = mem_calloc(1, sizeof *m);
    *out = m;
    if (m)
        m->tensors = mem_calloc(weights_count(files), sizeof *m->tensors);
    if (!m || !m->tensors) {
        mem_free(m);
        *out = NULL;
        return error_nomem(err, "the list of tensors");
    }
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        if (!mix_is_matrix(t))
            continue;
        struct quantize_made_tensor *next = &m->tensors[m->n++];
        snprintf(next->name, sizeof next->name, "%.*s", (int)t->name.size, t->name.data);
        next->type = type_for(f, t);
    }
    return LACE_OK;
}

const mix *fit_main_mix(const fit *f)
{
    uint64_t n_values[DTYPE_COUNT] = {0};
    const mix *best = mix_at(0);
    for (size_t i = 0; i < f->n_tensors; i++)
        n_values[chosen(&f->tensors[i])->type] += f->tensors[i].t->n_values;
    for (size_t i = 0; mix_at(i); i++)
        if (n_values[mix_at(i)->type] > n_values[best->type])
            best = mix_at(i);
    return best;
}
