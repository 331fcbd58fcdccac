/* Adapters to a device's memory. */
#include "backend/lora_pieces.h"

#include "base/mem.h"
#include "base/numbers.h"

_Static_assert((int)LORA_PIECE_PANEL == (int)LORA_PANEL, "kernels know how columns lie");

enum { ALIGN = 256 };

uint64_t lora_down_size(const lora_site *site, const lora_pair *p)
{
    return site->is_table ? row_bytes(p->type, site->n_in * p->rank)
                          : (uint64_t)p->rank * row_bytes(p->type, lora_padded(site->n_in));
}

uint64_t lora_up_size(const lora_site *site, const lora_pair *p)
{
    return (uint64_t)p->rank * row_bytes(p->type, lora_padded(site->n_out));
}

lora_piece lora_piece_of(const lora_pair *p, uint64_t down, uint64_t up)
{
    int32_t type = p->type == DTYPE_F32   ? LORA_PIECE_F32
                   : p->type == DTYPE_F16 ? LORA_PIECE_F16
                                          : LORA_PIECE_BF16;
    return (lora_piece){.down = down,
                        .up = up,
                        .adapter = p->adapter,
                        .rank = p->rank,
                        .first = p->first,
                        .type = type,
                        .factor = p->factor};
}

static bool is_of_adapters(const step *s)
{
    return s->op == OP_LORA_DOWN || s->op == OP_LORA_UP;
}

static uint64_t list_bytes(const lora_site *site)
{
    return round_up((uint64_t)site->n_pairs * sizeof(lora_piece), ALIGN);
}

static uint64_t site_bytes(const lora_site *site)
{
    uint64_t bytes = list_bytes(site);
    for (int32_t i = 0; i < site->n_pairs; i++)
        bytes += round_up(lora_down_size(site, &site->pairs[i]), ALIGN) +
                 round_up(lora_up_size(site, &site->pairs[i]), ALIGN);
    return bytes;
}

/* The step before i that has the same site; -1: none. Both steps of a product have one. */
static int32_t find_same(const plan *p, int32_t i)
{
    for (int32_t k = i - 1; k >= 0; k--)
        if (is_of_adapters(&p->steps[k]) && p->steps[k].a.lora.site == p->steps[i].a.lora.site)
            return k;
    return -1;
}

uint64_t lora_memory_bytes(const plan *p)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < p->n_steps; i++)
        if (is_of_adapters(&p->steps[i]) && find_same(p, i) < 0)
            bytes += site_bytes(p->steps[i].a.lora.site);
    return bytes;
}

static lace_status fill_site(const lora_site *site, uint64_t at, lora_write *write, void *user,
                             lace_error *err)
{
    lora_piece *list = mem_calloc((size_t)site->n_pairs + 1, sizeof *list);
    lace_status status = list ? LACE_OK : error_nomem(err, "an adapter");
    uint64_t to = at + list_bytes(site);
    for (int32_t i = 0; status == LACE_OK && i < site->n_pairs; i++) {
        const lora_pair *p = &site->pairs[i];
        uint64_t n_down = lora_down_size(site, p), n_up = lora_up_size(site, p);
        uint64_t up = to + round_up(n_down, ALIGN);
        list[i] = lora_piece_of(p, to, up);
        status = write(user, to, p->down, n_down, err);
        if (status == LACE_OK)
            status = write(user, up, p->up, n_up, err);
        to = up + round_up(n_up, ALIGN);
    }
    if (status == LACE_OK)
        status = write(user, at, list, (uint64_t)site->n_pairs * sizeof *list, err);
    mem_free(list);
    return status;
}

lace_status lora_memory_fill(plan *p, uint64_t at, lora_write *write, void *user, lace_error *err)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        if (!is_of_adapters(s))
            continue;
        int32_t same = find_same(p, i);
        if (same >= 0) {
            s->a.lora.pieces = p->steps[same].a.lora.pieces;
            continue;
        }
        TRY(fill_site(s->a.lora.site, at, write, user, err));
        s->a.lora.pieces = at;
        at += site_bytes(s->a.lora.site);
    }
    return LACE_OK;
}
