/* Latent attention of prompts on the CPU: which batches are expanded, and with what scratch. */
#include "backend/cpu/latents_cpu.h"

#include "backend/cpu/ops.h"
#include "base/numbers.h"
#include "plan/latents.h"

enum { VALUES = 32 }; /* whatever is multiplied in vectors or groups has a multiple of these */

/*
 * What a multiply-add takes, in relation to one of attention. On a core of Zen 5, by processor time
 * (docs/journal/2026-11-18-cpu.md): 0.7, 1, 0.7, 1 with f16 caches and Q4_K_M; keys in floats, and other
 * levels, were not timed, so what is made counts as much as attention.
 */
static const latent_costs costs = {.matrices = 0.7, .absorbed = 1, .making = 1, .expanded = 1};

static bool is_whole(int32_t n)
{
    return n > 0 && n % VALUES == 0;
}

void latents_prepare(plan *p, const kernel_table *table)
{
    latent_form f;
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        if (!table->glu_row || table->ops[OP_ATTEND] == attend_ref ||
            !plan_find_latents(p, s, p->n_steps - i, &f) || !is_whole(f.rank) ||
            !is_whole(f.nope) || !is_whole(f.turned) || !is_whole(f.value) || s[1].kv.k_span > 0 ||
            s[1].kv.v_span > 0)
            continue;
        f.n_workers = p->limits.n_workers;
        s[0].a.heads.latents = s[1].a.attend.latents = s[2].a.heads.latents = f;
        s[1].a.attend.k_heads = s[0].a.heads.weights;
        s[1].a.attend.k_form = s[0].a.heads.form;
        s[1].a.attend.v_heads = s[2].a.heads.weights;
        s[1].a.attend.v_form = s[2].a.heads.form;
        s[1].in[1] = s[0].in[0];
        s[1].out[1] = s[2].out[0];
    }
}

bool latents_are_expanded(const latent_form *f, const batch *b)
{
    if (f->rank == 0 || b->n_tokens <= ATTEND_SAME || b->seen)
        return false;
    /* Workers have whole heads, and the last ones may be idle. */
    int64_t n_rounds = divide_up(f->n_heads, f->n_workers);
    latent_costs c = costs;
    double more = (double)(n_rounds * f->n_workers) / f->n_heads;
    c.making *= more;
    c.expanded *= more;
    const int32_t *const *pages = b->pages[f->group];
    for (int32_t t = 0, n; t < b->n_tokens; t += n) {
        n = 1;
        while (t + n < b->n_tokens && pages[t + n] == pages[t] &&
               b->positions[t + n] == b->positions[t] + n)
            n++;
        if (!latents_expand(f, &c, n, b->positions[t]))
            return false;
    }
    return true;
}

static void *take(uint64_t *used, uint8_t *scratch, uint64_t n_bytes)
{
    uint8_t *at = scratch ? scratch + *used : NULL;
    *used += round_up(n_bytes, 64);
    return at;
}

static uint64_t lay_out(const step *s, int64_t n_tokens, uint8_t *scratch, latent_room *out)
{
    const latent_form *f = &s->a.attend.latents;
    const uint64_t rank = (uint64_t)f->rank, nope = (uint64_t)f->nope, value = (uint64_t)f->value;
    const uint64_t dim = nope + (uint64_t)f->turned, rows = (uint64_t)n_tokens + 5;
    const uint64_t word_row = 2 * rank + rank / 8 + 64, q_row = 2 * dim + dim / 8 + 64;
    const uint64_t k = heads_product_bytes(s->a.attend.k_heads, f->nope);
    const uint64_t v = heads_product_bytes(s->a.attend.v_heads, LATENT_CHUNK);
    const int32_t most = (int32_t)(dim > value ? dim : value);
    uint64_t n = 0;
    out->latents = take(&n, scratch, 4 * LATENT_CHUNK * rank);
    out->k_matrix = take(&n, scratch, 4 * nope * rank);
    out->identity = take(&n, scratch, 4 * nope * nope);
    out->k_turned = take(&n, scratch, 4 * nope * rank);
    out->keys = take(&n, scratch, 4 * LATENT_CHUNK * dim);
    out->values = take(&n, scratch, 4 * LATENT_CHUNK * value);
    out->k_words = take(&n, scratch, nope / 16 * (rank / 32) * (1024 + 64));
    out->x_words = take(&n, scratch, (LATENT_CHUNK + 5) * word_row);
    out->queries = take(&n, scratch, rows * LATENT_QUERY_BYTES);
    out->product = take(&n, scratch, k > v ? k : v);
    out->attend = take(&n, scratch, attend_scratch_bytes(most) + rows * q_row);
    return n;
}

uint64_t latent_room_bytes(const step *s, int64_t n_tokens)
{
    latent_room room;
    return s->a.attend.latents.rank ? lay_out(s, n_tokens, NULL, &room) : 0;
}

latent_room latent_room_at(const step *s, int64_t n_tokens, uint8_t *scratch)
{
    latent_room room;
    lay_out(s, n_tokens, scratch, &room);
    return room;
}
