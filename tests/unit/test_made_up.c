/*
 * What plans, states and batches can say and no model in the tree says yet, proved by made-up
 * architectures on the CPU and on the reference.
 */
#include "made_up.h"

#include <math.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/gpu.h"
#include "state/prefix_tree.h"
#include "tap.h"

enum { MAX_V_DIM = 48 };

static const double NEAR = 1e-4; /* of logits around 1, summed in float in another order */
static const made_numbers *numbers;

/* ---- Running --------------------------------------------------------------------------------- */

/* Tokens of one sequence, as one batch. */
static void append(made *m, int32_t sequence, const int32_t *tokens, int32_t n, made_row *out)
{
    int32_t sequences[MADE_TOKENS];
    for (int t = 0; t < n; t++)
        sequences[t] = sequence;
    made_up_run(m, &(made_input){.n = n, .tokens = tokens, .sequences = sequences}, out);
}

static void clear(made *m)
{
    for (int i = 0; i < MADE_SEQUENCES; i++)
        states_set_length(m->s, i, 0);
}

/* One batch from empty sequences. */
static void evaluate_anew(made *m, const made_input *in, made_row *out)
{
    clear(m);
    made_up_run(m, in, out);
}

static double apart(const made_row *a, const made_row *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n * MADE_VOCAB; i++) {
        double d =
            fabs((double)a[i / MADE_VOCAB][i % MADE_VOCAB] - b[i / MADE_VOCAB][i % MADE_VOCAB]);
        if (!(d <= worst))
            worst = d < INFINITY ? d : INFINITY; /* a NaN, too */
    }
    return worst;
}

static bool are_near(const made_row *a, const made_row *b, int n)
{
    return apart(a, b, n) < NEAR;
}

static bool are_same(const made_row *a, const made_row *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* The reference gives the same bits however a text is cut; the CPU sums up in another order. */
static bool agree(const made *m, const made_row *a, const made_row *b, int n)
{
    return strcmp(m->d->backend->name, "ref") == 0 ? are_same(a, b, n) : are_near(a, b, n);
}

static const int32_t written[MADE_TOKENS] = {
    3,  1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7, 9,  3, 2, 38, 4, 6,  2, 6,  4, 33, 8,
    32, 7, 9, 5, 0, 2, 8, 8, 4, 19, 7, 1, 6, 39, 9, 3, 9,  9, 37, 5, 10, 5, 8,  20};

static const char *const devices[] = {"ref", "cpu"};
static const int n_workers_of[] = {1, 3};
static made_row want[MADE_TOKENS], got[MADE_TOKENS], other[MADE_TOKENS];

/* ---- A model of one layer, written out ------------------------------------------------------- */

static void product(const float *w, const float *x, int n_rows, int n_cols, float *y)
{
    for (int r = 0; r < n_rows; r++) {
        double sum = 0;
        for (int i = 0; i < n_cols; i++)
            sum += (double)w[r * n_cols + i] * x[i];
        y[r] = (float)sum;
    }
}

/* One head without rotation. h: [n, MADE_WIDTH] -> y: [n, v_dim] */
static void plain_head(const float (*h)[MADE_WIDTH], int n, int v_dim, float (*y)[MADE_CHANNELS])
{
    static float k[MADE_TOKENS][MADE_K_DIM], v[MADE_TOKENS][MAX_V_DIM];
    for (int t = 0; t < n; t++) {
        float q[MADE_K_DIM];
        double shares[MADE_TOKENS], sum = 0;
        product(numbers->matrices[0][MADE_WQ], h[t], MADE_K_DIM, MADE_WIDTH, q);
        product(numbers->matrices[0][MADE_WK], h[t], MADE_K_DIM, MADE_WIDTH, k[t]);
        product(numbers->matrices[0][MADE_WV], h[t], v_dim, MADE_WIDTH, v[t]);
        for (int p = 0; p <= t; p++) {
            double dot = 0;
            for (int i = 0; i < MADE_K_DIM; i++)
                dot += (double)q[i] * k[p][i];
            sum += shares[p] = exp((double)MADE_ATTEND_SCALE * dot);
        }
        for (int i = 0; i < v_dim; i++) {
            double mean = 0;
            for (int p = 0; p <= t; p++)
                mean += shares[p] / sum * v[p][i];
            y[t][i] = (float)mean;
        }
    }
}

/* h: [n, MADE_WIDTH] -> y: [n, MADE_CHANNELS] */
static void plain_conv(const float (*h)[MADE_WIDTH], int n, float (*y)[MADE_CHANNELS])
{
    static float x[MADE_TOKENS][MADE_CHANNELS];
    for (int t = 0; t < n; t++) {
        product(numbers->matrices[0][MADE_CONV_IN], h[t], MADE_CHANNELS, MADE_WIDTH, x[t]);
        for (int c = 0; c < MADE_CHANNELS; c++) {
            double sum = numbers->biases[0][c];
            for (int k = 0; k < MADE_TAPS; k++)
                if (t - MADE_TAPS + 1 + k >= 0)
                    sum +=
                        (double)numbers->taps[0][c * MADE_TAPS + k] * x[t - MADE_TAPS + 1 + k][c];
            y[t][c] = (float)sum;
        }
    }
}

static void plain_model(const architecture *a, const int32_t *tokens, int n, made_row *out)
{
    static float x[MADE_TOKENS][MADE_WIDTH], h[MADE_TOKENS][MADE_WIDTH],
        y[MADE_TOKENS][MADE_CHANNELS];
    bool convolves = a->layers[0] == CONVOLVES;
    for (int t = 0; t < n; t++) {
        double sum = 0;
        for (int i = 0; i < MADE_WIDTH; i++) {
            x[t][i] = numbers->table[tokens[t]][i] * MADE_EMBED_SCALE;
            sum += (double)x[t][i] * x[t][i];
        }
        for (int i = 0; i < MADE_WIDTH; i++)
            h[t][i] =
                (float)(x[t][i] / sqrt(sum / MADE_WIDTH + (double)MADE_EPS) * numbers->norm[i]);
    }
    if (convolves)
        plain_conv((const float(*)[MADE_WIDTH])h, n, y);
    else
        plain_head((const float(*)[MADE_WIDTH])h, n, a->v_dim, y);
    for (int t = 0; t < n; t++) {
        float z[MADE_WIDTH];
        product(numbers->matrices[0][convolves ? MADE_CONV_OUT : MADE_WO], y[t], MADE_WIDTH,
                convolves ? MADE_CHANNELS : a->v_dim, z);
        for (int i = 0; i < MADE_WIDTH; i++)
            x[t][i] += z[i];
        product(numbers->head, x[t], MADE_VOCAB, MADE_WIDTH, out[t]);
    }
}

/* On both devices, in one batch and token by token. */
static void check_formula(const architecture *a)
{
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], a);
        plain_model(a, written, MADE_TOKENS, want);
        evaluate_anew(m, &(made_input){.n = MADE_TOKENS, .tokens = written}, got);
        CHECK(are_near(want, got, MADE_TOKENS) && fabsf(got[1][0]) > 1e-3f);
        clear(m);
        for (int t = 0; t < MADE_TOKENS; t++)
            append(m, 0, written + t, 1, got + t);
        CHECK(are_near(want, got, MADE_TOKENS));
        made_up_free(m);
    }
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static const architecture plain_attention = {.n_layers = 2,
                                             .layers = {ATTENDS, ATTENDS},
                                             .n_heads = 4,
                                             .n_kv_heads = 2,
                                             .v_dim = 32,
                                             .is_rotated = true};

static void keys_and_values_may_have_different_widths(void)
{
    static const int32_t widths[] = {16, 48};
    for (int i = 0; i < 2; i++) {
        architecture one = {
            .n_layers = 1, .layers = {ATTENDS}, .n_heads = 1, .n_kv_heads = 1, .v_dim = widths[i]};
        check_formula(&one);
        architecture a = plain_attention;
        a.v_dim = widths[i];
        made *ref = made_up_create("ref", 1, &a), *cpu = made_up_create("cpu", 3, &a);
        CHECK(ref->s->groups[0].page_bytes ==
              2u * 2 * PAGE_TOKENS * (MADE_K_DIM + (unsigned)a.v_dim) * 4);
        made_up_run(ref, &(made_input){.n = 40, .tokens = written}, want);
        made_up_run(cpu, &(made_input){.n = 40, .tokens = written}, got);
        CHECK(are_near(want, got, 40));
        made_up_run(ref, &(made_input){.n = 1, .tokens = written + 40}, want);
        made_up_run(cpu, &(made_input){.n = 1, .tokens = written + 40}, got);
        CHECK(are_near(want, got, 1));
        made_up_free(ref);
        made_up_free(cpu);
    }
}

/* A text in two batches, so that pages are read that an earlier batch has written. */
static void evaluate_in_two(made *m, made_row *out)
{
    clear(m);
    append(m, 0, written, 35, out);
    append(m, 0, written + 35, 5, out + 35);
}

static void a_layer_may_share_the_pages_of_an_earlier_one(void)
{
    for (int d = 0; d < 2; d++) {
        architecture shares = plain_attention, copies, own;
        shares.n_layers = 3;
        own = copies = shares;
        shares.layers[2] = SHARES;
        copies.layers[2] = COPIES;
        own.layers[2] = ATTENDS;
        made *m = made_up_create(devices[d], n_workers_of[d], &shares);
        made *with_copies = made_up_create(devices[d], n_workers_of[d], &copies);
        made *with_own = made_up_create(devices[d], n_workers_of[d], &own);
        CHECK(2 * with_copies->s->groups[0].page_bytes == 3 * m->s->groups[0].page_bytes);
        CHECK(m->s->layers[2].kv.k_offset == m->s->layers[0].kv.k_offset);
        evaluate_in_two(m, got);
        evaluate_in_two(with_copies, want);
        evaluate_in_two(with_own, other);
        CHECK(are_same(want, got, 40));
        CHECK(!are_near(other, got, 40));
        made_up_free(m);
        made_up_free(with_copies);
        made_up_free(with_own);
    }
}

/* ---- Batches --------------------------------------------------------------------------------- */

static void tokens_see_up_to_their_own_position_if_nothing_is_said(void)
{
    int32_t seen[MADE_TOKENS], changed[40];
    memcpy(changed, written, sizeof changed);
    changed[39] = 0;
    for (int t = 0; t < MADE_TOKENS; t++)
        seen[t] = t + 1;
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &plain_attention);
        evaluate_anew(m, &(made_input){.n = 40, .tokens = written}, want);
        evaluate_anew(m, &(made_input){.n = 40, .tokens = written, .seen = seen}, got);
        CHECK(agree(m, want, got, 40));
        evaluate_anew(m, &(made_input){.n = 40, .tokens = changed}, got);
        CHECK(are_same(want, got, 39) && !are_near(want + 39, got + 39, 1));
        made_up_free(m);
    }
}

/* Without rotation, an encoder does not know the order of its tokens. */
static void an_encoders_tokens_see_their_whole_sequence(void)
{
    architecture a = plain_attention;
    int32_t seen[MADE_TOKENS], reversed[40], changed[40];
    a.is_rotated = false;
    memcpy(changed, written, sizeof changed);
    changed[39] = 0;
    for (int t = 0; t < 40; t++) {
        seen[t] = 40;
        reversed[t] = written[39 - t];
    }
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &a);
        evaluate_anew(m, &(made_input){.n = 40, .tokens = written, .seen = seen}, want);
        evaluate_anew(m, &(made_input){.n = 40, .tokens = reversed, .seen = seen}, got);
        for (int t = 0; t < 40; t++)
            CHECK(are_near(want + t, got + 39 - t, 1));
        evaluate_anew(m, &(made_input){.n = 40, .tokens = changed, .seen = seen}, got);
        CHECK(apart(want, got, 1) > NEAR); /* the first token sees the last */
        evaluate_anew(m, &(made_input){.n = 40, .tokens = written}, got);
        CHECK(apart(want, got, 1) > NEAR); /* which it does not by itself */
        made_up_free(m);
    }
}

static void an_encoders_sequences_do_not_see_each_other(void)
{
    enum { FIRST = 34, SECOND = 9, ALL = FIRST + SECOND };
    int32_t tokens[ALL], sequences[ALL], seen[ALL], whole[MADE_TOKENS];
    for (int t = 0; t < ALL; t++) { /* every fourth token is of sequence 1, as long as it lasts */
        bool is_second = t % 4 == 1 && t / 4 < SECOND;
        sequences[t] = is_second;
        seen[t] = is_second ? SECOND : FIRST;
        tokens[t] = written[t];
    }
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &plain_attention);
        evaluate_anew(
            m, &(made_input){.n = ALL, .tokens = tokens, .sequences = sequences, .seen = seen},
            got);
        for (int s = 0; s < 2; s++) {
            int32_t mine[ALL], n = 0;
            for (int t = 0; t < ALL; t++)
                if (sequences[t] == s)
                    mine[n++] = tokens[t];
            CHECK(n == (s ? SECOND : FIRST));
            for (int t = 0; t < n; t++)
                whole[t] = n;
            evaluate_anew(m, &(made_input){.n = n, .tokens = mine, .seen = whole}, want);
            n = 0;
            for (int t = 0; t < ALL; t++)
                if (sequences[t] == s)
                    CHECK(agree(m, want + n++, got + t, 1));
        }
        made_up_free(m);
    }
}

static void rows_may_be_embeddings(void)
{
    static float embeddings[20][MADE_WIDTH];
    int32_t tokens[20];
    for (int t = 0; t < 20; t++) {
        tokens[t] = t % 3 ? TOKEN_GIVEN : written[t];
        for (int i = 0; i < MADE_WIDTH; i++) /* rows of tokens are not looked at */
            embeddings[t][i] = t % 3 ? numbers->table[written[t]][i] * MADE_EMBED_SCALE : NAN;
    }
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &plain_attention);
        made_input in = {.n = 20, .tokens = tokens, .embeddings = embeddings[0]};
        evaluate_anew(m, &(made_input){.n = 20, .tokens = written}, want);
        evaluate_anew(m, &in, got);
        CHECK(are_same(want, got, 20));
        embeddings[1][5] += 1;
        evaluate_anew(m, &in, got);
        embeddings[1][5] -= 1;
        CHECK(are_same(want, got, 1) && !are_near(want + 1, got + 1, 1));
        made_up_free(m);
    }
}

static void positions_may_have_several_axes(void)
{
    enum { TOKENS = 20 };
    architecture three = plain_attention, one = plain_attention;
    int32_t axes[3][TOKENS];
    memcpy(three.sections, (int32_t[]){8, 4, 4}, 3 * sizeof(int32_t));
    one.sections[0] = MADE_K_DIM / 2;
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &three);
        made *with_one = made_up_create(devices[d], n_workers_of[d], &one);
        made_input plain = {.n = TOKENS, .tokens = written};
        made_input in = {.n = TOKENS, .tokens = written, .axes = axes[0], .n_axes = 3};
        for (int t = 0; t < TOKENS; t++)
            axes[0][t] = axes[1][t] = axes[2][t] = t;
        evaluate_anew(with_one, &plain, want);
        evaluate_anew(m, &plain, got);
        CHECK(are_same(want, got, TOKENS));
        evaluate_anew(m, &in, got);
        CHECK(are_same(want, got, TOKENS));
        in.n_axes = 2; /* the third is then the position */
        evaluate_anew(m, &in, got);
        CHECK(are_same(want, got, TOKENS));
        in.n_axes = 3;
        for (int axis = 0; axis < 3; axis++) {
            axes[axis][1] = 5;
            evaluate_anew(m, &in, got);
            CHECK(are_same(want, got, 1) && !are_near(want + 1, got + 1, 1));
            evaluate_anew(with_one, &in, got); /* all of its frequencies are of the first */
            CHECK(are_same(want, got, TOKENS) == (axis > 0));
            axes[axis][1] = 1;
        }
        made_up_free(m);
        made_up_free(with_one);
    }
}

/* ---- Recurrent state ------------------------------------------------------------------------- */

static const architecture recurrent = {.n_layers = 3,
                                       .layers = {CONVOLVES, ATTENDS, CONVOLVES},
                                       .n_heads = 4,
                                       .n_kv_heads = 2,
                                       .v_dim = 32,
                                       .is_rotated = true};
static const architecture only_recurrent = {.n_layers = 2, .layers = {CONVOLVES, CONVOLVES}};

static void a_convolution_is_the_sum_that_it_is_said_to_be(void)
{
    architecture a = {.n_layers = 1, .layers = {CONVOLVES}};
    check_formula(&a);
}

static void batches_and_neighbours_do_not_change_recurrent_layers(void)
{
    enum { EACH = 20 };
    int32_t tokens[2 * EACH], sequences[2 * EACH];
    for (int t = 0; t < 2 * EACH; t++) {
        sequences[t] = t % 2;
        tokens[t] = written[t / 2 + (t % 2 ? EACH : 0)];
    }
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &recurrent);
        append(m, 0, written, EACH, want);
        append(m, 1, written + EACH, EACH, want + EACH);
        clear(m);
        for (int t = 0; t < EACH; t++)
            append(m, 0, written + t, 1, got + t);
        CHECK(agree(m, want, got, EACH));
        evaluate_anew(m, &(made_input){.n = 2 * EACH, .tokens = tokens, .sequences = sequences},
                      got);
        for (int t = 0; t < 2 * EACH; t++)
            CHECK(agree(m, want + t / 2 + (t % 2 ? EACH : 0), got + t, 1));
        made_up_free(m);
    }
}

static void workers_do_not_change_results(void)
{
    made *one = made_up_create("cpu", 1, &recurrent), *three = made_up_create("cpu", 3, &recurrent);
    made_up_run(one, &(made_input){.n = 40, .tokens = written}, want);
    made_up_run(three, &(made_input){.n = 40, .tokens = written}, got);
    CHECK(are_same(want, got, 40));
    made_up_run(one, &(made_input){.n = 1, .tokens = written}, want);
    made_up_run(three, &(made_input){.n = 1, .tokens = written}, got);
    CHECK(are_same(want, got, 1));
    made_up_free(one);
    made_up_free(three);
}

static void tokens_are_taken_back_to_a_snapshot(void)
{
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &recurrent);
        append(m, 0, written, 10, want);
        int32_t snapshot = states_snapshot(m->s, 0);
        CHECK(snapshot >= 0);
        append(m, 0, written + 10, 5, want);
        for (int i = 0; i < 2; i++) {
            CHECK(states_reach(m->s, 0, 14) == 10 && states_can_truncate(m->s, 0, 10));
            states_set_length(m->s, 0, 10);
            append(m, 0, written + 20, 7, other); /* another end, which is taken back too */
            CHECK(states_reach(m->s, 0, 16) == 10);
            states_set_length(m->s, 0, states_reach(m->s, 0, 16));
            append(m, 0, written + 10, 5, got);
            CHECK(are_same(want, got, 5) && !are_near(other, got, 5));
        }
        snapshot_drop(&m->s->slots, &snapshot);
        made_up_free(m);
    }
}

/* A page that is full has a snapshot of its own; behind it tokens are computed again. */
static void tokens_are_taken_back_to_a_full_page(void)
{
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &recurrent);
        append(m, 0, written, PAGE_TOKENS, want);
        append(m, 0, written + PAGE_TOKENS, 6, want);
        int32_t at = states_reach(m->s, 0, PAGE_TOKENS + 4);
        CHECK(at == PAGE_TOKENS && states_reach(m->s, 0, PAGE_TOKENS - 1) == 0);
        states_set_length(m->s, 0, at);
        append(m, 0, written + at, 6, got);
        CHECK(are_same(want, got, 6));
        made_up_free(m);
    }
}

static void a_snapshot_serves_another_sequence(void)
{
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &only_recurrent);
        CHECK(m->s->n_groups == 0);
        append(m, 0, written, 10, want);
        int32_t snapshot = states_snapshot(m->s, 0);
        append(m, 0, written + 10, 5, want);
        append(m, 1, written + 20, 10, other); /* as long, but of other tokens */
        states_restore(m->s, 1, snapshot);
        snapshot_drop(&m->s->slots, &snapshot);
        append(m, 1, written + 10, 5, got);
        CHECK(are_same(want, got, 5));
        made_up_free(m);
    }
}

static void forks_go_their_own_ways(void)
{
    enum { MORE = 4 };
    int32_t tokens[2 * MORE], sequences[2 * MORE];
    for (int t = 0; t < 2 * MORE; t++) {
        sequences[t] = t % 2;
        tokens[t] = written[(t % 2 ? 20 : 10) + t / 2];
    }
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &recurrent);
        append(m, 0, written, 10, other);
        append(m, 0, written + 10, MORE, want);
        clear(m);
        append(m, 0, written, 10, other);
        append(m, 0, written + 20, MORE, want + MORE);
        clear(m);
        append(m, 0, written, 10, other);
        CHECK(states_fork(m->s, 0, 1, NULL) == LACE_OK);
        made_up_run(m, &(made_input){.n = 2 * MORE, .tokens = tokens, .sequences = sequences}, got);
        for (int t = 0; t < 2 * MORE; t++)
            CHECK(agree(m, want + t / 2 + (t % 2 ? MORE : 0), got + t, 1));
        made_up_free(m);
    }
}

/* A text that ends in the middle of its second page is kept, and two others begin like it. */
static void kept_prefixes_are_continued(void)
{
    enum { LENGTH = 40, OWNER = 1 };
    for (int d = 0; d < 2; d++) {
        made *m = made_up_create(devices[d], n_workers_of[d], &recurrent);
        prefix_tree *tree;
        int32_t branch[LENGTH];
        memcpy(branch, written, sizeof branch);
        branch[36] = 30;
        CHECK(prefix_tree_create(m->s, &tree, NULL) == LACE_OK);
        append(m, 0, written, PAGE_TOKENS, other);
        append(m, 0, branch + PAGE_TOKENS, LENGTH - PAGE_TOKENS, want);
        states_set_length(m->s, 0, 0);
        append(m, 0, written, PAGE_TOKENS, other);
        append(m, 0, written + PAGE_TOKENS, LENGTH - PAGE_TOKENS, other);
        int32_t snapshot = states_snapshot(m->s, 0);
        prefix_tree_keep(tree, OWNER, 0, written, LENGTH, true);
        snapshot_drop(&m->s->slots, &snapshot);
        append(m, 0, written + LENGTH, 5, want + 20);
        states_set_length(m->s, 0, 0);

        CHECK(prefix_tree_begin(tree, OWNER, 1, written, LENGTH + 5, NULL) == LENGTH);
        append(m, 1, written + LENGTH, 5, got);
        CHECK(are_same(want + 20, got, 5));
        CHECK(prefix_tree_begin(tree, OWNER, 2, branch, LENGTH, NULL) == PAGE_TOKENS);
        append(m, 2, branch + PAGE_TOKENS, LENGTH - PAGE_TOKENS, got);
        CHECK(are_same(want, got, LENGTH - PAGE_TOKENS));

        clear(m);
        prefix_tree_free(tree);
        CHECK(states_pages_used(m->s, 0) == 0 && states_snapshots_used(m->s) == 0);
        made_up_free(m);
    }
}

/* ---- Cards ----------------------------------------------------------------------------------- */

static void cards_have_kernels_for_recurrent_layers(void)
{
    CHECK(gpu_has_kernel(OP_CONV) && gpu_has_kernel(OP_SCAN) && gpu_has_kernel(OP_DELTA));
}

/* That is decided by the plan alone, so an empty device does for the card. */
static void cards_refuse_plans_and_say_what_they_lack(void)
{
    architecture wide = {
        .n_layers = 1, .layers = {ATTENDS}, .n_heads = 1, .n_kv_heads = 1, .v_dim = MAX_V_DIM};
    static struct {
        device base;
        uint8_t rest[4096];
    } card = {.base = {.backend = &backend_cuda}};
    made *m = made_up_create("ref", 1, &wide);
    plan *p = made_up_plan(m, 1);
    program_options options = {.n_sequences = MADE_SEQUENCES};
    program *compiled;
    lace_error err = {0};
    CHECK(device_compile(&card.base, p, &options, &compiled, &err) == LACE_E_UNSUPPORTED);
    CHECK(!compiled && strstr(err.text, "layer 0") &&
          strstr(err.text, "keys of 32 and values of 48"));
    plan_free(p);
    made_up_free(m);
}

int main(void)
{
    numbers = made_up_numbers();
    CASE(keys_and_values_may_have_different_widths);
    CASE(a_layer_may_share_the_pages_of_an_earlier_one);
    CASE(tokens_see_up_to_their_own_position_if_nothing_is_said);
    CASE(an_encoders_tokens_see_their_whole_sequence);
    CASE(an_encoders_sequences_do_not_see_each_other);
    CASE(rows_may_be_embeddings);
    CASE(positions_may_have_several_axes);
    CASE(a_convolution_is_the_sum_that_it_is_said_to_be);
    CASE(batches_and_neighbours_do_not_change_recurrent_layers);
    CASE(workers_do_not_change_results);
    CASE(tokens_are_taken_back_to_a_snapshot);
    CASE(tokens_are_taken_back_to_a_full_page);
    CASE(a_snapshot_serves_another_sequence);
    CASE(forks_go_their_own_ways);
    CASE(kept_prefixes_are_continued);
    CASE(cards_have_kernels_for_recurrent_layers);
    CASE(cards_refuse_plans_and_say_what_they_lack);
    return tap_end();
}
