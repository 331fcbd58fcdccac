/* Made-up architectures: their numbers, their plans, and running them. */
#include "made_up.h"

#include <string.h>

#include "base/mem.h"
#include "tap.h"

static void fill(float *x, size_t n, float scale, float middle)
{
    static unsigned seed = 7;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) / (1 << 24) - 0.5f) * scale + middle;
    }
}

const made_numbers *made_up_numbers(void)
{
    static made_numbers n;
    if (n.norm[0] != 0)
        return &n;
    fill(&n.table[0][0], sizeof n.table / 4, 1, 0);
    fill(n.head, sizeof n.head / 4, 0.5f, 0);
    fill(n.norm, MADE_WIDTH, 1, 1);
    fill(&n.matrices[0][0][0], sizeof n.matrices / 4, 0.5f, 0);
    fill(&n.taps[0][0], sizeof n.taps / 4, 2, 0);
    fill(&n.biases[0][0], sizeof n.biases / 4, 1, 0);
    for (int i = 0; i < MADE_K_DIM / 2; i++)
        n.frequencies[i] = 1.0f / (float)(1 + i);
    return &n;
}

/* Places a matrix, or loads one that was placed. */
static void bring(made *m, bool loads, const float *data, int64_t n_rows, int64_t n_cols,
                  bool is_table, weight *w)
{
    weight_rows rows = {.type = DTYPE_F32,
                        .kept = DTYPE_F32,
                        .blocks = (const uint8_t *)data,
                        .n_rows = n_rows,
                        .n_cols = n_cols,
                        .n_bytes = (uint64_t)(n_rows * n_cols) * 4,
                        .is_table = is_table};
    CHECK((loads ? device_load(m->d, &rows, w, m->workers, NULL)
                 : device_place(m->d, &rows, w, NULL)) == LACE_OK);
}

static void bring_all(made *m, bool loads)
{
    const architecture *a = m->a;
    const int64_t shapes[MADE_MATRICES][2] = {[MADE_WQ] = {a->n_heads * MADE_K_DIM, MADE_WIDTH},
                                              [MADE_WK] = {a->n_kv_heads * MADE_K_DIM, MADE_WIDTH},
                                              [MADE_WV] = {a->n_kv_heads * a->v_dim, MADE_WIDTH},
                                              [MADE_WO] = {MADE_WIDTH, a->n_heads * a->v_dim},
                                              [MADE_CONV_IN] = {MADE_CHANNELS, MADE_WIDTH},
                                              [MADE_CONV_OUT] = {MADE_WIDTH, MADE_CHANNELS}};
    bring(m, loads, made_up_numbers()->table[0], MADE_VOCAB, MADE_WIDTH, true, &m->table);
    bring(m, loads, made_up_numbers()->head, MADE_VOCAB, MADE_WIDTH, false, &m->head);
    for (int i = 0; i < a->n_layers; i++)
        for (int k = 0; k < MADE_MATRICES; k++)
            if ((a->layers[i] == CONVOLVES) == (k >= MADE_CONV_IN))
                bring(m, loads, made_up_numbers()->matrices[i][k], shapes[k][0], shapes[k][1],
                      false, &m->matrices[i][k]);
}

static states *make_states(const architecture *a)
{
    layer_state layers[MADE_LAYERS];
    for (int i = 0; i < a->n_layers; i++) {
        layers[i] = layer_state_paged(a->n_kv_heads, MADE_K_DIM, a->v_dim, 0);
        if (a->layers[i] == SHARES)
            layers[i].shares = a->of;
        if (a->layers[i] == CONVOLVES)
            layers[i] = (layer_state){.kind = STATE_RECURRENT,
                                      .n_bytes = conv_state_bytes(MADE_CHANNELS, MADE_TAPS)};
    }
    states_options o = {.type = DTYPE_F32,
                        .n_sequences = MADE_SEQUENCES,
                        .n_context = MADE_CONTEXT,
                        .n_batch = MADE_TOKENS,
                        .n_snapshots = 12};
    states *s;
    CHECK(states_create(layers, a->n_layers, &o, &s, NULL) == LACE_OK);
    CHECK(states_allocate(s, &host_queue, NULL) == LACE_OK);
    return s;
}

typedef struct kv_values {
    value k, v;
} kv_values;

/* What a layer with pages adds to x, of x's norm n. `of`: keys and values of all layers so far. */
static value add_attention(const made *m, plan *p, int i, value n, value angles, kv_values *of)
{
    const architecture *a = m->a;
    const kv_layer *kv = &m->s->layers[i].kv;
    rope_params rope = {.n_dims = MADE_K_DIM};
    attend_params attend = {.n_heads = a->n_heads, .scale = MADE_ATTEND_SCALE};
    value q = plan_linear(p, n, &m->matrices[i][MADE_WQ], NULL, 1);
    if (a->layers[i] == ATTENDS) {
        of[i].k = plan_linear(p, n, &m->matrices[i][MADE_WK], NULL, 1);
        of[i].v = plan_linear(p, n, &m->matrices[i][MADE_WV], NULL, 1);
    }
    if (a->is_rotated)
        q = plan_rope(p, q, angles, &rope, a->n_heads, MADE_K_DIM);
    if (a->is_rotated && a->layers[i] == ATTENDS)
        of[i].k = plan_rope(p, of[i].k, angles, &rope, a->n_kv_heads, MADE_K_DIM);
    if (a->layers[i] == COPIES)
        of[i] = of[a->of];
    if (a->layers[i] != SHARES)
        plan_kv_write(p, of[i].k, of[i].v, kv);
    return plan_linear(p, plan_attend(p, q, kv, &attend), &m->matrices[i][MADE_WO], NULL, 1);
}

static value add_conv(const made *m, plan *p, int i, value n)
{
    conv_params params = {.weight = made_up_numbers()->taps[i],
                          .bias = made_up_numbers()->biases[i],
                          .n_taps = MADE_TAPS};
    value c = plan_linear(p, n, &m->matrices[i][MADE_CONV_IN], NULL, 1);
    c = plan_conv(p, c, &m->s->layers[i].recurrent, &params);
    return plan_linear(p, c, &m->matrices[i][MADE_CONV_OUT], NULL, 1);
}

plan *made_up_plan(const made *m, int n_workers)
{
    const architecture *a = m->a;
    plan_limits limits = {.max_tokens = MADE_TOKENS,
                          .max_outputs = MADE_TOKENS,
                          .n_context = MADE_CONTEXT,
                          .n_workers = n_workers};
    rope_params rope = {
        .frequencies = made_up_numbers()->frequencies, .magnitude = 1, .n_dims = MADE_K_DIM};
    memcpy(rope.sections, a->sections, sizeof rope.sections);
    norm_params norm = {.kind = OP_RMS_NORM,
                        .scales = made_up_numbers()->norm,
                        .group = MADE_WIDTH,
                        .eps = MADE_EPS};
    kv_values of[MADE_LAYERS];
    plan *p;
    CHECK(plan_create(&limits, &p, NULL) == LACE_OK);
    value x = plan_embed(p, &m->table, MADE_EMBED_SCALE);
    value angles = a->is_rotated ? plan_rope_table(p, &rope) : -1;
    for (int i = 0; i < a->n_layers; i++) {
        p->layer = i;
        value n = plan_norm(p, x, &norm);
        value y = a->layers[i] == CONVOLVES ? add_conv(m, p, i, n)
                                            : add_attention(m, p, i, n, angles, of);
        x = plan_add(p, x, y, 1);
    }
    p->layer = -1;
    plan_result(p, plan_linear(p, plan_gather(p, x), &m->head, NULL, 1));
    CHECK(plan_check(p, NULL) == LACE_OK);
    return p;
}

made *made_up_create(const char *name, int n_workers, const architecture *a)
{
    made *m = mem_calloc(1, sizeof *m);
    device_options o = {.level = cpu_level_detect(), .mode = WEIGHTS_EXACT};
    m->a = a;
    CHECK(pool_create(n_workers, &m->workers, NULL) == LACE_OK);
    CHECK(device_open(name, &o, &m->d, NULL) == LACE_OK);
    bring_all(m, false);
    CHECK(device_begin_load(m->d, NULL) == LACE_OK);
    bring_all(m, true);
    CHECK(device_end_load(m->d, NULL) == LACE_OK);
    m->s = make_states(a);
    plan *p = made_up_plan(m, n_workers);
    program_options options = {.n_sequences = MADE_SEQUENCES,
                               .pages_per_sequence = m->s->pages_per_sequence,
                               .n_groups = m->s->n_groups};
    CHECK(device_compile(m->d, p, &options, &m->program, NULL) == LACE_OK);
    plan_free(p);
    uint8_t *pages[] = {m->s->groups[0].data},
            *recurrent[DEVICES_MAX] = {m->s->slots.parts[0].data};
    program_memory memory = {
        .queue = &host_queue, .workers = m->workers, .pages = pages, .slots = recurrent};
    CHECK(program_prepare(m->program, &memory, NULL) == LACE_OK);
    return m;
}

void made_up_free(made *m)
{
    program_free(m->program);
    states_free(m->s);
    device_close(m->d);
    pool_free(m->workers);
    mem_free(m);
}

/* ---- Running --------------------------------------------------------------------------------- */

void made_up_run(made *m, const made_input *in, made_row *out)
{
    int32_t positions[MADE_TOKENS], sequences[MADE_TOKENS], slot_of[MADE_TOKENS],
        outputs[MADE_TOKENS];
    int32_t lengths[MADE_SEQUENCES];
    const int32_t *tables[MADE_TOKENS], *const *groups[] = {tables};
    for (int i = 0; i < MADE_SEQUENCES; i++)
        lengths[i] = m->s->sequences[i].n_tokens;
    for (int t = 0; t < in->n; t++) {
        sequences[t] = in->sequences ? in->sequences[t] : 0;
        positions[t] = lengths[sequences[t]]++;
        slot_of[t] = states_slot(m->s, sequences[t]);
        tables[t] = m->s->sequences[sequences[t]].tables[0];
        outputs[t] = t;
    }
    CHECK(states_reserve_all(m->s, lengths, NULL) == LACE_OK);
    batch b = {.n_tokens = in->n,
               .n_outputs = in->n,
               .tokens = in->tokens,
               .positions = positions,
               .sequences = sequences,
               .outputs = outputs,
               .pages = groups,
               .slots = slot_of,
               .embeddings = in->embeddings,
               .seen = in->seen,
               .axes = in->axes,
               .n_axes = in->n_axes};
    CHECK(program_run(m->program, &b, NULL, false, NULL) == LACE_OK);
    for (int i = 0; i < MADE_SEQUENCES; i++)
        if (lengths[i] != m->s->sequences[i].n_tokens)
            states_set_length(m->s, i, lengths[i]);
    for (int t = 0; t < in->n; t++)
        memcpy(out[t], program_logits(m->program, t), sizeof out[t]);
}
