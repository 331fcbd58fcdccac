/* Choosing a type for each tensor: what each costs, and what is bought. */
#include "compress/type_choice.h"

#include <assert.h>

#include "base/mem.h"

/* ---- The list -------------------------------------------------------------------------------- */

lace_status choices_init(choice_list *l, size_t n_most, lace_error *err)
{
    *l = (choice_list){.tensors = mem_calloc(n_most, sizeof *l->tensors),
                       .items = mem_calloc(n_most, sizeof *l->items)};
    if (l->tensors && l->items)
        return LACE_OK;
    choices_deinit(l);
    return error_nomem(err, "the list of tensors");
}

void choices_deinit(choice_list *l)
{
    mem_free_all(l->tensors, l->items);
    *l = (choice_list){0};
}

tensor_choices *choices_find(const choice_list *l, const tensor *t)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->tensors[i].t == t)
            return &l->tensors[i];
    return NULL;
}

type_choice *choices_add_type(tensor_choices *t, dtype type)
{
    assert(t->n < ALLOCATE_CHOICES);
    type_choice *c = &t->choices[t->n++];
    *c = (type_choice){.type = type, .n_bytes = row_bytes(type, (int64_t)t->t->n_values)};
    return c;
}

const type_choice *choices_chosen(const tensor_choices *t)
{
    return &t->choices[t->chosen];
}

void choices_count_values(const choice_list *l, uint64_t n_values[DTYPE_COUNT])
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        n_values[i] = 0;
    for (size_t i = 0; i < l->n; i++)
        n_values[choices_chosen(&l->tensors[i])->type] += l->tensors[i].t->n_values;
}

/* ---- What is not in the list ----------------------------------------------------------------- */

mix_context choices_context(const model *m)
{
    return (mix_context){.n_layers = m->config.n_layers,
                         .n_experts = m->config.n_experts,
                         .n_heads_per_kv = m->config.n_heads / m->config.n_kv_heads,
                         .is_tied = weights_find(m->files, "output.weight") == NULL,
                         .has_importance = true};
}

void choices_count_rest(choice_list *l, const model *m, const mix *rest)
{
    enum { NEW_METADATA = 512, ALIGNMENT = 32 }; /* room for what is new, and between tensors */
    mix_context context = choices_context(m);
    l->rest_bytes = weights_file_bytes(m->files) + NEW_METADATA;
    for (size_t i = 0; i < weights_count(m->files); i++) {
        const tensor *t = weights_at(m->files, i);
        dtype type = mix_is_matrix(t) ? mix_type_of(rest, &context, t) : DTYPE_F32;
        l->rest_bytes += ALIGNMENT - t->n_bytes;
        l->rest_bytes += choices_find(l, t) ? 0 : row_bytes(type, (int64_t)t->n_values);
    }
}

/* ---- Prices ---------------------------------------------------------------------------------- */

choice_point choices_now(const choice_list *l)
{
    choice_point p = {.n_bytes = l->rest_bytes, .us = l->rest_us};
    for (size_t i = 0; i < l->n; i++) {
        const type_choice *c = choices_chosen(&l->tensors[i]);
        p.n_bytes += c->n_bytes;
        p.us += c->us;
        p.kld += c->kld;
    }
    return p;
}

uint64_t choice_price(const type_choice *c, choice_unit unit)
{
    return unit == CHOICE_BYTES ? c->n_bytes : (uint64_t)(c->us * 1e3 + 0.5);
}

static double price_of_rest(const choice_list *l, choice_unit unit)
{
    return unit == CHOICE_BYTES ? (double)l->rest_bytes : l->rest_us * 1e3;
}

/* In the order of their price; order[k] is the choice that item's number k is. */
static void sort_choices(const tensor_choices *t, choice_unit unit, int order[ALLOCATE_CHOICES])
{
    for (int i = 0; i < t->n; i++) {
        uint64_t price = choice_price(&t->choices[i], unit);
        int at = i;
        for (; at > 0 && choice_price(&t->choices[order[at - 1]], unit) > price; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

void choices_range(const choice_list *l, choice_unit unit, double *least, double *most)
{
    *least = *most = price_of_rest(l, unit);
    for (size_t i = 0; i < l->n; i++) {
        int order[ALLOCATE_CHOICES];
        const tensor_choices *t = &l->tensors[i];
        sort_choices(t, unit, order);
        *least += (double)choice_price(&t->choices[order[0]], unit);
        *most += (double)choice_price(&t->choices[order[t->n - 1]], unit);
    }
    if (unit == CHOICE_TIME) {
        *least *= 1e-3;
        *most *= 1e-3;
    }
}

/* ---- Buying ---------------------------------------------------------------------------------- */

bool choices_allocate(choice_list *l, choice_unit unit, double budget)
{
    double left = (unit == CHOICE_TIME ? budget * 1e3 : budget) - price_of_rest(l, unit);
    for (size_t i = 0; i < l->n; i++) {
        int order[ALLOCATE_CHOICES];
        const tensor_choices *t = &l->tensors[i];
        sort_choices(t, unit, order);
        l->items[i].n = t->n;
        for (int k = 0; k < t->n; k++) {
            l->items[i].n_bytes[k] = choice_price(&t->choices[order[k]], unit);
            l->items[i].cost[k] = t->choices[order[k]].kld;
        }
    }
    uint64_t limit = left > 0 ? (uint64_t)left : 0;
    uint64_t used = allocate(l->items, l->n, limit);
    for (size_t i = 0; i < l->n; i++) {
        int order[ALLOCATE_CHOICES];
        sort_choices(&l->tensors[i], unit, order);
        l->tensors[i].chosen = order[l->items[i].chosen];
    }
    return left >= 0 && used <= limit;
}

bool choices_allocate_loss(choice_list *l, double kld)
{
    double low, high;
    choices_range(l, CHOICE_BYTES, &low, &high);
    choices_allocate(l, CHOICE_BYTES, high);
    if (choices_now(l).kld > kld)
        return false;
    while (high - low > 1e-4 * high) {
        double middle = (low + high) / 2;
        if (choices_allocate(l, CHOICE_BYTES, middle) && choices_now(l).kld <= kld)
            high = middle;
        else
            low = middle;
    }
    return choices_allocate(l, CHOICE_BYTES, high);
}
