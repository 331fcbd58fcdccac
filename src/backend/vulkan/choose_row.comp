/*
 * The best of a row, of those of its parts: a workgroup for each row. The best token alone is a
 * choice; several go to the host, which draws from them.
 */
#version 460
#extension GL_GOOGLE_include_directive : require
#define HAS_OWN_SIZE
#include "common.glsl"
PARAMS(choose_args)

uint part_at(choose_args p, uint i)
{
    return (GROUP.x * p.n_parts + i) * CHOOSE_PART_WORDS;
}

uint top_k;

/* Candidate i of all parts, which have room for top_k each: its key, 0 where there is none. */
uint key_at(choose_args p, uint i)
{
    uint at = part_at(p, i / top_k), k = i % top_k;
    return k < p.parts.v[at + 1] ? p.parts.v[at + 2 + 2 * k] : 0;
}

uint token_at(choose_args p, uint i)
{
    return p.parts.v[part_at(p, i / top_k) + 3 + 2 * (i % top_k)];
}

#define KEY(i) key_at(params.value, i)
#include "choose.glsl"

void main()
{
    choose_args p = params.value;
    uint row = GROUP.x;
    if (rule_float(p, row, RULE_TEMPERATURE) < 0.0) {
        if (THREAD == 0)
            p.words.v[row] = CHOOSE_REFUSED;
        return;
    }
    uint n_bad = 0, best = 0, token = 0, total = 0;
    bool is_greedy = rule_float(p, row, RULE_TEMPERATURE) == 0.0;
    for (uint i = THREAD; i < p.n_parts; i += SIZE) {
        uint at = part_at(p, i);
        n_bad += p.parts.v[at];
        if (is_greedy && p.parts.v[at + 1] > 0 && p.parts.v[at + 2] > best) {
            best = p.parts.v[at + 2];
            token = p.parts.v[at + 3];
        }
    }
    n_bad = sum_of_all(n_bad);
    if (is_greedy) {
        find_best(best, token);
        total = best > MASKED ? 1 : 0;
    } else if (n_bad == 0) {
        top_k = rule_word(p, row, RULE_TOP_K);
        uint n = p.n_parts * top_k, to = row * CHOOSE_ROW_WORDS;
        cut c = find_cut(n, top_k);
#define WRITE(place, i)                                                                            \
    p.candidates.v[to + 1 + 2 * place] = token_at(p, i);                                           \
    p.candidates.v[to + 2 + 2 * place] = bits_of(KEY(i))
        WRITE_CUT(c, n, total)
        if (THREAD == 0)
            p.candidates.v[to] = total;
    }
    bool is_refused = n_bad > 0 || total == 0;
    if (THREAD == 0) {
        p.words.v[row] = is_refused ? CHOOSE_REFUSED : is_greedy ? token + 1 : 0;
        p.last_tokens.v[p.sequences.v[p.outputs.v[row]]] = is_greedy && !is_refused ? token : 0;
    }
    floats_at copy = floats_at(address_plus(uvec2(p.copy), row, 4 * p.n_vocab));
    for (uint i = THREAD; i < p.n_vocab && is_refused && !IS_NULL(p.copy); i += SIZE)
        copy.v[i] = p.logits.v[row * p.stride + i];
}
