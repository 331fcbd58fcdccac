/* Fitting: what is chosen, measured as a whole and exchanged. */
#include "compress/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "compress/fit_impl.h"

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
    for (size_t i = 0; i < f->list.n; i++) {
        const tensor_choices *t = &f->list.tensors[i];
        TRY(trial_set(f->trial, t->t, choices_chosen(t)->type, err));
    }
    return trial_measure(f->trial, kld, err);
}

/* One tensor better and another worse. */
typedef struct swap {
    size_t up, down;
    int up_choice, down_choice;
    double gain; /* predicted */
} swap;

/* The most promising exchanges that fit, best first. Returns how many. */
static int list_swaps(const fit *f, choice_unit unit, double left, swap *out, int max)
{
    const tensor_choices *tensors = f->list.tensors;
    int n = 0;
    for (size_t i = 0; i < f->list.n; i++)
        for (size_t k = 0; k < f->list.n; k++)
            for (int a = 0; a < tensors[i].n && i != k; a++)
                for (int b = 0; b < tensors[k].n; b++) {
                    const type_choice *up = &tensors[i].choices[a];
                    const type_choice *now = choices_chosen(&tensors[i]);
                    const type_choice *down = &tensors[k].choices[b];
                    const type_choice *then = choices_chosen(&tensors[k]);
                    if (up->kld >= now->kld || down->kld <= then->kld)
                        continue;
                    double growth =
                        (double)choice_price(up, unit) - (double)choice_price(now, unit) +
                        (double)choice_price(down, unit) - (double)choice_price(then, unit);
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

lace_status fit_exchange(fit *f, choice_unit unit, double budget, int n_tries, double *kld,
                         lace_error *err)
{
    enum { MAX_SWAPS = 64 };
    swap list[MAX_SWAPS];
    int max = n_tries < MAX_SWAPS ? n_tries : MAX_SWAPS;
    double scale = unit == CHOICE_TIME ? 1e3 : 1;
    TRY(fit_measure(f, kld, err));
    for (int tries = 0; tries < n_tries;) {
        choice_point p = choices_now(&f->list);
        double used = unit == CHOICE_TIME ? p.us * 1e3 : (double)p.n_bytes;
        int n = list_swaps(f, unit, budget * scale - used, list, max);
        bool has_changed = false;
        for (int i = 0; i < n && tries < n_tries && !has_changed; i++, tries++) {
            tensor_choices *up = &f->list.tensors[list[i].up];
            tensor_choices *down = &f->list.tensors[list[i].down];
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

lace_status fit_mix(fit *f, const mix *m, choice_point *out, lace_error *err)
{
    mix_context context = choices_context(f->w->m);
    *out = (choice_point){.n_bytes = f->list.rest_bytes, .us = f->list.rest_us};
    for (size_t i = 0; i < f->list.n; i++) {
        const tensor *t = f->list.tensors[i].t;
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
    mix_context context = choices_context(f->w->m);
    *us = f->list.rest_us;
    for (size_t i = 0; i < f->list.n; i++) {
        const tensor *t = f->list.tensors[i].t;
        double one;
        TRY(fit_time(f, t, mix_type_of(m, &context, t), &one, err));
        *us += one;
    }
    return LACE_OK;
}

/* ---- Handing on ------------------------------------------------------------------------------ */

static dtype type_for(const fit *f, const tensor *t)
{
    const tensor_choices *listed = choices_find(&f->list, t);
    return listed ? choices_chosen(listed)->type : fit_rest_type(f, t);
}

lace_status fit_types(const fit *f, quantize_made **out, lace_error *err)
{
    const weights *files = f->w->m->files;
    quantize_made *m = *out = quantize_made_create(weights_count(files));
    if (!m)
        return error_nomem(err, "the list of tensors");
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        if (mix_is_matrix(t))
            quantize_made_add(m, t, type_for(f, t));
    }
    return LACE_OK;
}

const mix *fit_main_mix(const fit *f)
{
    uint64_t n_values[DTYPE_COUNT];
    const mix *best = mix_at(0);
    choices_count_values(&f->list, n_values);
    for (size_t i = 0; mix_at(i); i++)
        if (n_values[mix_at(i)->type] > n_values[best->type])
            best = mix_at(i);
    return best;
}
