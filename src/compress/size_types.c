/* Types for a file of a given size. */
#include "compress/size_types.h"

#include "compress/codec.h"
#include "compress/trellis.h"
#include "compress/trial.h"
#include "compress/type_choice.h"

#define S3_ERROR 0.03454 /* mean square, for a normal distribution */

enum { N_TYPES = 5 };

/* Types to choose from, and their mean square errors for a normal distribution. */
typedef struct family {
    dtype types[N_TYPES];
    double errors[N_TYPES];
} family;

static const family tables = {{DTYPE_S2, DTYPE_S3, DTYPE_S4, DTYPE_S5, DTYPE_S6},
                              {0.1175, S3_ERROR, 0.009501, 0.002505, 0.000645}};
static const family trellises = {{DTYPE_T2, DTYPE_T3, DTYPE_T4, DTYPE_T5, DTYPE_S6},
                                 {0.0824, 0.0212, 0.00556, 0.00145, 0.000645}};

/* The tensors with the types that they may have. */
static void list_choices(const family *from, const weights *files, const quantize_made *made,
                         choice_list *out)
{
    for (size_t i = 0; i < made->n; i++) {
        tensor_choices *c = &out->tensors[out->n++];
        c->t = weights_find(files, made->tensors[i].name);
        bool is_whole = c->t->shape.dims[0] % dtype_describe(from->types[0])->block_values == 0;
        for (int k = 0; is_whole && k < N_TYPES; k++)
            choices_add_type(c, from->types[k]);
        if (!is_whole)
            choices_add_type(c, made->tensors[i].type);
    }
}

/* The divergence of each tensor, measured with S3; that of other types follows their errors. */
static lace_status measure(trial *m, const family *from, choice_list *l,
                           bool (*report)(void *user, double done), void *user, lace_error *err)
{
    for (size_t i = 0; i < l->n; i++) {
        tensor_choices *c = &l->tensors[i];
        double kld;
        if (c->t->shape.dims[0] % codec_find(DTYPE_S3)->n_values != 0)
            continue;
        if (!report(user, (double)i / (double)l->n))
            return error_set(err, LACE_E_CANCELLED, "cancelled");
        TRY(trial_measure_alone(m, c->t, DTYPE_S3, &kld, err));
        for (int k = 0; k < c->n; k++)
            c->choices[k].kld = kld * from->errors[k] / S3_ERROR;
    }
    return LACE_OK;
}

lace_status size_types_choose(walk *w, const lace_token *tokens, size_t n_tokens, const mix *m,
                              uint64_t size, quantize_made *list,
                              bool (*report)(void *user, double done), void *user, lace_error *err)
{
    const family *from = trellis_bits_of(m->type) ? &trellises : &tables;
    choice_list all;
    trial *t = NULL;
    TRY(choices_init(&all, list->n, err));
    list_choices(from, w->m->files, list, &all);
    choices_count_rest(&all, w->m, m);
    lace_status status = trial_create(w, tokens, n_tokens, SIZE_TYPES_WINDOWS, &t, err);
    if (status == LACE_OK)
        status = measure(t, from, &all, report, user, err);
    if (status == LACE_OK && !choices_allocate(&all, CHOICE_BYTES, (double)size))
        status = error_set(err, LACE_E_ARG, "no types are small enough for %llu bytes",
                           (unsigned long long)size);
    for (size_t i = 0; i < list->n && status == LACE_OK; i++)
        list->tensors[i].type = choices_chosen(&all.tensors[i])->type;
    trial_free(t);
    choices_deinit(&all);
    return status;
}
