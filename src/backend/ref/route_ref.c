/* The plain router: which experts a token goes through, and with which weights. */
#include <math.h>

#include "base/threads.h"
#include "backend/ref/ref.h"

/* The scratch of a worker, cut up; all have room for n_experts. */
typedef struct route_room {
    double *scores; /* what weights are made of */
    double *keys;   /* what is compared for the choice */
    double *ranks;  /* of groups */
    uint8_t *taken; /* experts that can not be chosen any more */
} route_room;

uint64_t route_scratch_bytes(int32_t n_experts)
{
    return (3 * sizeof(double) + 1) * (uint64_t)n_experts;
}

static route_room cut_scratch(const step *s, const worker *w)
{
    int32_t n = s->a.moe.n_experts;
    double *at = (double *)w->scratch;
    return (route_room){at, at + n, at + 2 * n, (uint8_t *)(at + 3 * n)};
}

/* The index of the largest that is not taken, the first of equal ones; -1: none is left. */
static int32_t best_of(const double *keys, const uint8_t *taken, int32_t n)
{
    int32_t best = -1;
    for (int32_t e = 0; e < n; e++)
        if (!taken[e] && (best < 0 || keys[e] > keys[best]))
            best = e;
    return best;
}

static void make_scores(const route_rule *rule, const float *logits, int32_t n, route_room *r)
{
    float most = logits[0];
    for (int32_t e = 1; e < n; e++)
        most = logits[e] > most ? logits[e] : most;
    double sum = 0;
    for (int32_t e = 0; e < n; e++) {
        bool is_sigmoid = rule->scores == ROUTE_SIGMOID;
        r->scores[e] =
            is_sigmoid ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e] - most);
        sum += r->scores[e];
    }
    for (int32_t e = 0; e < n && rule->scores == ROUTE_SOFTMAX; e++)
        r->scores[e] /= sum;
    /* Logits have the order of the scores, and keep it where scores are as good as equal. */
    bool by_scores = rule->bias || rule->n_groups > 1;
    for (int32_t e = 0; e < n; e++) {
        r->keys[e] = by_scores ? r->scores[e] + (rule->bias ? rule->bias[e] : 0) : logits[e];
        r->taken[e] = 0;
    }
}

/* Takes the experts of all groups but the best. */
static void limit_groups(const route_rule *rule, int32_t n, route_room *r)
{
    int32_t size = n / rule->n_groups;
    for (int32_t g = 0; g < rule->n_groups; g++) {
        const double *keys = r->keys + g * size;
        double first = -INFINITY, second = -INFINITY;
        for (int32_t e = 0; e < size; e++) {
            if (keys[e] > first) {
                second = first;
                first = keys[e];
            } else if (keys[e] > second) {
                second = keys[e];
            }
        }
        r->ranks[g] = rule->n_ranking > 1 && size > 1 ? first + second : first;
    }
    for (int32_t k = 0; k < rule->n_groups_used; k++)
        r->taken[best_of(r->ranks, r->taken, rule->n_groups)] = 1;
    /* From the last on: the marks of groups stand where those of the first experts will. */
    for (int32_t e = n - 1; e >= 0; e--)
        r->taken[e] = !r->taken[e / size];
}

/* SparseMixer: the share of the best among those that are left and near it. */
static double share_of_near(const route_rule *rule, const float *logits, int32_t best, int32_t n,
                            const uint8_t *taken)
{
    double most = logits[best], sum = 0;
    for (int32_t e = 0; e < n; e++)
        if (!taken[e] && most - logits[e] <= 2 * (double)rule->jitter * fmax(fabs(logits[e]), most))
            sum += exp(logits[e] - most);
    return 1 / sum;
}

static void route_row(const step *s, const float *logits, route_room *r, expert_choice *out)
{
    const route_rule *rule = &s->a.moe.rule;
    int32_t n = s->a.moe.n_experts, n_used = s->a.moe.n_used;
    make_scores(rule, logits, n, r);
    if (rule->n_groups > 1)
        limit_groups(rule, n, r);
    double chosen = 0;
    for (int32_t k = 0; k < n_used; k++) {
        int32_t best = best_of(r->keys, r->taken, n);
        double share = rule->scores == ROUTE_MIXER ? share_of_near(rule, logits, best, n, r->taken)
                                                   : r->scores[best];
        r->taken[best] = 1;
        chosen += share;
        out[k] = (expert_choice){best, (float)share};
    }
    double divisor = rule->norms ? fmax(chosen + rule->norm_more, rule->norm_least) : 1;
    double factor = rule->factor != 0 ? rule->factor : 1;
    for (int32_t k = 0; k < n_used; k++) {
        double scale = rule->scales ? rule->scales[out[k].expert] : 1;
        out[k].weight = (float)(out[k].weight / divisor * factor * scale);
    }
}

void route_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    route_room room = cut_scratch(s, w);
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        route_row(s, operand_row(&s->in[0], t), &room, (expert_choice *)operand_row(&s->out[0], t));
}
