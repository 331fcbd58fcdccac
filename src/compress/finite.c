/* Whether the weights of a model are numbers. */
#include "compress/finite.h"

#include <math.h>
#include <stdatomic.h>

#include "tensor/codec/unpack.h"

enum { PIECE = 4096 }; /* values: whole blocks of every type */

typedef struct looking {
    const tensor *t;
    handout pieces;
    _Atomic uint64_t first; /* index of a value that is not finite; UINT64_MAX: none */
} looking;

static void look_at_pieces(void *arg, int me, int n_workers)
{
    looking *l = arg;
    const tensor *t = l->t;
    uint32_t n_pieces = (uint32_t)((t->n_values + PIECE - 1) / PIECE), piece;
    while (handout_claim(&l->pieces, n_pieces, &piece)) {
        float x[PIECE], sum = 0;
        uint64_t at = (uint64_t)piece * PIECE;
        uint64_t n = t->n_values - at < PIECE ? t->n_values - at : PIECE;
        unpack_row(t->type, t->data + row_bytes(t->type, (int64_t)at), (int64_t)n, x);
        for (uint64_t i = 0; i < n; i++)
            sum += x[i] * 0; /* 0, or NaN from then on */
        for (uint64_t i = 0; i < n && !(sum == 0); i++) {
            uint64_t seen = atomic_load(&l->first);
            if (isfinite(x[i]))
                continue;
            while (at + i < seen && !atomic_compare_exchange_weak(&l->first, &seen, at + i))
                ;
            break;
        }
    }
}

lace_status finite_refuse(const tensor *t, uint64_t index, float value, const char *why,
                          lace_error *err)
{
    uint64_t n_cols = (uint64_t)t->shape.dims[0];
    return error_set(err, LACE_E_NUMERIC, "tensor %.*s: value %llu (row %llu, column %llu) is %g%s",
                     text_width(t->name), t->name.data, (unsigned long long)index,
                     (unsigned long long)(index / n_cols), (unsigned long long)(index % n_cols),
                     (double)value, why);
}

static lace_status check_tensor(const tensor *t, pool *workers, lace_error *err)
{
    looking l = {.t = t, .first = UINT64_MAX};
    pool_run(workers, look_at_pieces, &l);
    uint64_t at = atomic_load(&l.first);
    if (at == UINT64_MAX)
        return LACE_OK;
    float x[PIECE];
    uint64_t begin = at / PIECE * PIECE;
    uint64_t n = t->n_values - begin < PIECE ? t->n_values - begin : PIECE;
    unpack_row(t->type, t->data + row_bytes(t->type, (int64_t)begin), (int64_t)n, x);
    return finite_refuse(t, at, x[at - begin], ", expected a finite number", err);
}

lace_status finite_check(const weights *files, pool *workers, lace_error *err)
{
    for (size_t i = 0; i < weights_count(files); i++)
        if (unpack_ref[weights_at(files, i)->type])
            TRY(check_tensor(weights_at(files, i), workers, err));
    return LACE_OK;
}
