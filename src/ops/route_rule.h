/* How a router chooses experts and weighs them: an argument of ROUTE, and part of a model's config. */
#ifndef LACE_OPS_ROUTE_RULE_H
#define LACE_OPS_ROUTE_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* What a router makes of its logits. */
typedef enum route_scores {
    ROUTE_SOFTMAX, /* over all experts; normed, the same as over the chosen ones */
    ROUTE_SIGMOID, /* of each by itself */
    ROUTE_MIXER,   /* SparseMixer: each choice has its share of a softmax over the experts that are
                      left and whose logits are near its own, see route_rule.jitter */
    ROUTE_N_SCORES
} route_scores;

/*
 * How a router chooses experts and weighs them: scores of the logits; the best n_used by score plus
 * bias, the lower number on a tie, out of the best groups; weights are the scores without bias,
 * normed, times the factor and the expert's own scale. All zeros: a softmax as it is.
 */
typedef struct route_rule {
    route_scores scores;
    const float *bias;     /* [n_experts] for the choice alone, or NULL */
    int32_t n_groups;      /* of experts with neighbouring numbers; 0 or 1: no groups */
    int32_t n_groups_used; /* groups that the choice is limited to */
    int32_t n_ranking;     /* a group's rank: the sum of its best 1 or 2 */
    bool norms;            /* weights are divided by their sum */
    float norm_more;       /* that is added to the sum first */
    float norm_least;      /* and the sum is at least this */
    float factor;          /* multiplies all weights; 0: 1 */
    const float *scales;   /* [n_experts] multiply the weights of each, or NULL */
    float jitter;          /* ROUTE_MIXER: x is near the best m if m - x <= 2 jitter max(|x|, m) */
} route_rule;

/* Whether it is a softmax, normed or not, and nothing else. */
static inline bool route_is_plain(const route_rule *r)
{
    return r->scores == ROUTE_SOFTMAX && !r->bias && r->n_groups <= 1 && r->norm_more == 0 &&
           r->norm_least == 0 && (r->factor == 0 || r->factor == 1) && !r->scales;
}

#endif
