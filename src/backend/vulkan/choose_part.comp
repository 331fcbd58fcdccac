/*
 * The best of a part of a row's logits: a workgroup for each part and row. What a rule adds to logits
 * is added before. A row without a rule goes to where the host sees it.
 */
#version 460
#extension GL_GOOGLE_include_directive : require
#define HAS_OWN_SIZE
#include "common.glsl"
PARAMS(choose_args)

shared uint part[CHOOSE_PART]; /* bits of floats */
#define KEY(i) key_of(part[i])
#include "choose.glsl"

void main()
{
    choose_args p = params.value;
    uint row = GROUP.y, first = GROUP.x * CHOOSE_PART, n = min(CHOOSE_PART, p.n_vocab - first);
    uint from = row * p.stride + first, to = (row * gl_NumWorkGroups.x + GROUP.x) * CHOOSE_PART_WORDS;
    bool is_refused = IS_NULL(p.rules) || rule_float(p, row, RULE_TEMPERATURE) < 0.0;
    if (is_refused) {
        floats_at copy = floats_at(address_plus(uvec2(p.copy), row, 4 * p.n_vocab));
        for (uint i = THREAD; i < n && !IS_NULL(p.copy); i += SIZE)
            copy.v[first + i] = p.logits.v[from + i];
        return;
    }
    uint n_bad = 0;
    for (uint i = THREAD; i < n; i += SIZE)
        part[i] = floatBitsToUint(p.logits.v[from + i]);
    barrier();
    uint n_edits = rule_word(p, row, RULE_N_EDITS);
    for (uint e = 0; e < n_edits; e++) {
        uint i = rule_word(p, row, RULE_EDITS + 2 * e) - first;
        uint bias = rule_word(p, row, RULE_EDITS + 2 * e + 1);
        if (i < n && i % SIZE == THREAD && !is_bad(part[i]) && key_of(part[i]) > MASKED)
            part[i] = bias == 0xff800000u
                          ? bias
                          : floatBitsToUint(uintBitsToFloat(part[i]) + uintBitsToFloat(bias));
    }
    barrier();
    uint best = 0, token = 0;
    for (uint i = THREAD; i < n; i += SIZE) {
        uint key = key_of(part[i]);
        n_bad += is_bad(part[i]) ? 1 : 0;
        if (key > best) {
            best = key;
            token = first + i;
        }
    }
    n_bad = sum_of_all(n_bad);
    uint total = 0;
    if (n_bad == 0 && rule_float(p, row, RULE_TEMPERATURE) == 0.0) {
        find_best(best, token);
        total = best > MASKED ? 1 : 0;
        if (THREAD == 0) {
            p.parts.v[to + 2] = best;
            p.parts.v[to + 3] = token;
        }
    } else if (n_bad == 0) {
        cut c = find_cut(n, rule_word(p, row, RULE_TOP_K));
#define WRITE(place, i)                                                                            \
    p.parts.v[to + 2 + 2 * place] = key_of(part[i]);                                               \
    p.parts.v[to + 3 + 2 * place] = first + i
        WRITE_CUT(c, n, total)
    }
    if (THREAD == 0) {
        p.parts.v[to] = n_bad;
        p.parts.v[to + 1] = total;
    }
}
