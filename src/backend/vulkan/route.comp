/* The experts of each token and their weights: a workgroup for each token, whose first thread chooses. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "math.glsl"
#define MAX_EXPERTS 2048
#define SIGMOID 1
#define MIXER 2
#define LEAST -1e30
PARAMS(route_args)

shared float keys[MAX_EXPERTS];
shared uint taken[MAX_EXPERTS]; /* experts that cannot be chosen any more */

/* The largest of n keys that is not taken, the first of equal ones. */
uint best_of(uint n)
{
    uint best = n;
    for (uint e = 0; e < n; e++)
        if (taken[e] == 0 && (best == n || keys[e] > keys[best]))
            best = e;
    return min(best, n - 1);
}

/* The rank of a group: its best, or the sum of its best two. */
float rank_of(route_args p, uint group)
{
    uint size = p.n_experts / p.n_groups;
    float first = LEAST, second = LEAST;
    for (uint e = group * size; e < (group + 1) * size; e++) {
        second = max(second, min(first, keys[e]));
        first = max(first, keys[e]);
    }
    return p.n_ranking > 1 && size > 1 ? first + second : first;
}

/* Takes the experts of all groups but the best: those before which as many groups as are used stand. */
void limit_groups(route_args p)
{
    uint size = p.n_experts / p.n_groups;
    for (uint g = 0; g < p.n_groups; g++) {
        float rank = rank_of(p, g);
        uint n_before = 0;
        for (uint other = 0; other < p.n_groups; other++) {
            float its = rank_of(p, other);
            n_before += its > rank || (its == rank && other < g) ? 1 : 0;
        }
        for (uint e = g * size; e < (g + 1) * size; e++)
            taken[e] = n_before >= p.n_groups_used ? 1 : 0;
    }
}

/* SparseMixer: the share of the best among those that are left and near it. */
float share_of_near(route_args p, uint x, uint best)
{
    float most = p.logits.v[x + best], sum = 0.0;
    for (uint e = 0; e < p.n_experts; e++) {
        float its = p.logits.v[x + e];
        if (taken[e] == 0 && most - its <= 2.0 * p.jitter * max(abs(its), most))
            sum += exact_exp(its - most);
    }
    return 1.0 / sum;
}

void main()
{
    route_args p = params.value;
    uint x = GROUP.x * p.logits_stride, to = GROUP.x * p.out_stride;
    float most = LEAST, sum = 0.0, chosen = 0.0;
    for (uint e = THREAD; e < p.n_experts; e += THREADS)
        most = max(most, p.logits.v[x + e]);
    most = group_max(most);
    for (uint e = THREAD; e < p.n_experts; e += THREADS)
        sum += exact_exp(p.logits.v[x + e] - most);
    sum = group_sum(sum);
    bool by_scores = !IS_NULL(p.bias) || p.n_groups > 1;
    for (uint e = THREAD; e < p.n_experts; e += THREADS) {
        float l = p.logits.v[x + e];
        float score = p.scores == SIGMOID ? sigmoid(l) : exact_exp(l - most) / sum;
        keys[e] = by_scores ? score + (IS_NULL(p.bias) ? 0.0 : p.bias.v[e]) : l;
        taken[e] = 0;
    }
    barrier();
    if (THREAD != 0)
        return;
    if (p.n_groups > 1)
        limit_groups(p);
    for (uint k = 0; k < p.n_used; k++) {
        uint best = best_of(p.n_experts);
        float l = p.logits.v[x + best];
        float share = p.scores == MIXER     ? share_of_near(p, x, best)
                      : p.scores == SIGMOID ? sigmoid(l)
                                            : exact_exp(l - most) / sum;
        taken[best] = 1;
        chosen += share;
        p.result.v[to + k] = expert_choice(best, share);
    }
    float divisor = p.norms != 0 ? max(chosen + p.norm_more, p.norm_least) : 1.0;
    for (uint k = 0; k < p.n_used; k++) {
        expert_choice c = p.result.v[to + k];
        c.weight = c.weight / divisor * p.factor * (IS_NULL(p.scales) ? 1.0 : p.scales.v[c.expert]);
        p.result.v[to + k] = c;
    }
}
