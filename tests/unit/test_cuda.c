/*
 * GPUs: what happens without one, what the names of devices mean, and continuing a text, which must
 * be what evaluating token by token gives, on the CPU and (LACE_DEVICE=cuda) on a card.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gpu.h"
#include "tensor/codec/unpack.h"
#include "data.h"
#include "lace.h"
#include "tap.h"
#include "tensor/sparse.h"

enum { N_TOKENS = 24 };

static lace_model *open_tales(const char *device, lace_error *err)
{
    char *path = data_path("models/tales-4m-f16.gguf");
    lace_model_options o = lace_model_options_default();
    o.device = device;
    lace_model *model = NULL;
    if (path && lace_model_open(path, &o, &model, err) != LACE_OK)
        tap_note("%s", err->text);
    free(path);
    return model;
}

static void names_of_devices_are_checked(void)
{
    static const char *const bad[] = {"gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "CUDA"};
    char *path = data_path("models/tales-4m-f16.gguf");
    if (!path)
        return;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lace_model_options o = lace_model_options_default();
        lace_model *model;
        lace_error err;
        o.device = bad[i];
        CHECK(lace_model_open(path, &o, &model, &err) == LACE_E_ARG);
        CHECK(model == NULL && strstr(err.text, bad[i]));
    }
    free(path);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* The files that have batched products, one behind the other. */
static const char *batched_sources(void)
{
    static const char *const names[] = {"byte", "half", "k2", "k4", "k6", "own", "small"};
    static char sources[32 * 1024];
    size_t at = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "src/backend/cuda/matmul_batch_%s.cu", names[i]);
        FILE *f = fopen(path, "rb");
        CHECK(f != NULL);
        if (!f)
            continue;
        at += fread(sources + at, 1, sizeof sources - 1 - at, f);
        fclose(f);
    }
    sources[at] = 0;
    return sources;
}

/* Who launches them makes their names up from the kind and the number of tokens. */
static void every_kind_of_tile_has_its_batched_kernels(void)
{
    struct stat found;
    if (stat("src/backend/cuda", &found) != 0) {
        tap_skip("there are no sources beside the program: no src/backend/cuda");
        return;
    }
    const char *sources = batched_sources();
#define X(id, name, n_bytes, n_cols)                                                               \
    if (TILE_##id != TILE_F32)                                                                     \
        CHECK(strstr(sources, "MATMUL_BATCH_ALL(" #id ")") != NULL);                               \
    if (TILE_##id != TILE_F32 && TILE_##id != TILE_F16 && TILE_##id != TILE_BF16)                  \
        CHECK(strstr(sources, "MATMUL_WIDE_ALL(" #id ")") != NULL);
    TILE_LIST(X)
#undef X
}

static void a_missing_card_is_an_error_and_auto_is_not(void)
{
    lace_error err;
    if (cuda_count() > 0) {
        tap_skip("there is a GPU");
        return;
    }
    cuda_device *d;
    gpu *g;
    CHECK(cuda_open(0, &d, &err) == LACE_E_DEVICE && d == NULL);
    CHECK(gpu_open(0, &g, &err) == LACE_E_DEVICE && g == NULL);
    lace_model *model = open_tales("auto", &err);
    if (!model)
        return;
    lace_model_info info;
    lace_model_describe(model, &info);
    CHECK(strcmp(info.device, "cpu") == 0);
    lace_model_close(model);
}

static void a_card_can_be_a_lesser_one_for_tests(void)
{
    static const char *const bad[] = {"",
                                      "8.6",
                                      "8.6,28",
                                      "8.6,28,x",
                                      "8,28,99000",
                                      "8.6,0,101376",
                                      "8.6,28,1000",
                                      "8.6,28,99000,",
                                      "10.0,28,99000",
                                      "9.1,28,99000",
                                      "8.6,133,99000",
                                      "8.6,28,232449"};
    const cuda_info card = {
        .name = "a card", .major = 9, .n_processors = 132, .max_shared_bytes = 232448};
    lace_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cuda_info info = card;
        CHECK(gpu_pretend(bad[i], &info, &err) == LACE_E_ARG && strstr(err.text, "PRETEND"));
        CHECK(info.major == 9 && info.n_processors == 132 && info.max_shared_bytes == 232448);
    }
    cuda_info info = card;
    CHECK(gpu_pretend("8.6,28,101376", &info, &err) == LACE_OK);
    CHECK(info.major == 8 && info.minor == 6 && info.n_processors == 28);
    CHECK(info.max_shared_bytes == 101376);
}

static void kernels_have_what_they_were_compiled_for(void)
{
    gpu_abilities ampere = gpu_abilities_of(80), hopper = gpu_abilities_of(90);
    gpu_abilities geforce = gpu_abilities_of(120);
    CHECK(!ampere.overlaps && !ampere.bulk && !ampere.wgmma && ampere.most_cluster == 1);
    CHECK(hopper.overlaps && hopper.bulk && hopper.wgmma && hopper.most_cluster == 16);
    CHECK(geforce.overlaps && geforce.bulk && !geforce.wgmma && geforce.most_cluster == 8);
}

static void every_type_of_weights_has_tiles(void)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (!unpack_ref[i])
            continue;
        tile_kind kind = tile_kind_of((dtype)i);
        CHECK(kind >= 0 && kind < TILE_COUNT);
        /* 17 rows and one column more than a tile has need four tiles. */
        if (kind != TILE_F32)
            CHECK(tile_matrix_bytes(kind, 17, tile_cols(kind) + 1) ==
                  4 * (uint64_t)tile_bytes(kind));
        CHECK(gpu_act_bytes(tile_kind_act(kind), 300) > 0);
    }
}

/* A nibble of tiles: a magnitude and a sign. */
static int level_of(int nibble)
{
    static const int levels[8] = {6, 18, 31, 44, 58, 75, 96, 127};
    return nibble & 8 ? -levels[nibble & 7] : levels[nibble];
}

/* The number that a tile of M4 has at a place, read as gpu_tiles.h says. */
static float m4_at(const uint8_t *tile, int row, int col)
{
    int sub = col / 32, c = col / 8 % 4, i = row / 8 + 2 * (col / 4 % 2);
    const uint8_t *word = tile + 512 * (sub / 2) + 16 * (4 * (row % 8) + c) + 4 * i;
    int nibble = word[2 * (sub % 2) + col % 4 / 2] >> 4 * (col % 2) & 15;
    return nibble ? sparse_scale(tile[2048 + 2 * row + col / 128]) * (float)level_of(nibble) : 0;
}

static void m4_tiles_hold_what_panels_hold_unless_there_is_a_6(void)
{
    enum { ROWS = 40, COLS = 320, ACROSS = 2 };
    static uint8_t keeps[ROWS * COLS], codes[ROWS * COLS], scales[ROWS * 3],
        tiles[3 * ACROSS * 2080];
    uint32_t seed = 1;
    for (int i = 0; i < ROWS * COLS; i++) {
        seed = seed * 1664525 + 1013904223;
        codes[i] = seed >> 28 == 8 ? 9 : seed >> 28;
        keeps[i] = seed >> 16 & 1;
    }
    for (int i = 0; i < ROWS * 3; i++)
        scales[i] = (uint8_t)(100 + i);
    sparse_source source = {ROWS, COLS, keeps, codes, scales, NULL};
    buf blob;
    sparse s;
    buf_init(&blob, 1 << 20);
    CHECK(sparse_write(SPARSE_M4, &source, &blob, NULL) == LACE_OK);
    CHECK(sparse_parse((span){(const uint8_t *)blob.data, blob.size}, &s, NULL) == LACE_OK);
    CHECK(gpu_kept_as(DTYPE_M4, s.where, ROWS, COLS) == DTYPE_M4);
    gpu_pack_m4(s.where, 0, s.n_panels, COLS, tiles);
    for (int row = 0; row < ROWS; row++) {
        float want[COLS];
        int n_wrong = 0;
        sparse_unpack_row(SPARSE_M4, sparse_panel(s.where, row / 16), COLS, row % 16, want);
        for (int col = 0; col < COLS; col++)
            n_wrong += m4_at(tiles + (row / 16 * ACROSS + col / 256) * 2080, row % 16, col % 256) !=
                       want[col];
        CHECK(n_wrong == 0);
    }
    codes[ROWS * COLS - 1] = 8;
    keeps[ROWS * COLS - 1] = 1;
    buf_deinit(&blob);
    buf_init(&blob, 1 << 20);
    CHECK(sparse_write(SPARSE_M4, &source, &blob, NULL) == LACE_OK);
    CHECK(sparse_parse((span){(const uint8_t *)blob.data, blob.size}, &s, NULL) == LACE_OK);
    CHECK(gpu_kept_as(DTYPE_M4, s.where, ROWS, COLS) == DTYPE_M8);
    buf_deinit(&blob);
}

/* The number that a tile of N24 has at a place, read as gpu_tiles.h says. */
static float n24_at(const uint8_t *tile, int row, int col)
{
    int j = col / 64, h = col / 32 % 2, c = col / 8 % 4, four = col / 4 % 8, r = row % 8,
        high = row / 8;
    const uint8_t *word = tile + 512 * (j / 2) + 16 * (4 * r + c) + 4 * (2 * (j % 2) + h);
    const uint8_t *places = tile + 1024 + 16 * (4 * r + high + 2 * h) + 4 * j;
    uint32_t all;
    memcpy(&all, places, 4);
    float scale = sparse_scale(tile[1536 + 2 * row + col / 128]);
    for (int n = 0; n < 2; n++)
        if ((int)(all >> (4 * four + 2 * n) & 3) == col % 4) {
            int nibble = word[2 * high + four % 2] >> 4 * n & 15;
            return scale * (float)level_of(nibble);
        }
    return 0;
}

static void n24_tiles_hold_what_panels_hold(void)
{
    enum { ROWS = 40, COLS = 320, ACROSS = 2 }; /* panels and tiles that are not full */
    static uint8_t keeps[ROWS * COLS], codes[ROWS * COLS], scales[ROWS * 3],
        tiles[3 * ACROSS * 1568];
    uint32_t seed = 1;
    for (int i = 0; i < ROWS * COLS; i += 4) {
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525 + 1013904223;
            codes[i + k] = seed >> 28;
        }
        int first = (int)(seed >> 8 & 3), second = (first + 1 + (int)(seed >> 16) % 3) % 4;
        keeps[i + first] = keeps[i + second] = 1;
    }
    for (int i = 0; i < ROWS * 3; i++)
        scales[i] = (uint8_t)(100 + i);
    sparse_source source = {ROWS, COLS, keeps, codes, scales, NULL};
    buf blob;
    sparse s;
    buf_init(&blob, 1 << 20);
    CHECK(sparse_write(SPARSE_N24, &source, &blob, NULL) == LACE_OK);
    CHECK(sparse_parse((span){(const uint8_t *)blob.data, blob.size}, &s, NULL) == LACE_OK);
    gpu_pack_n24(s.where, 0, s.n_panels, COLS, tiles);
    for (int row = 0; row < ROWS; row++) {
        float want[COLS];
        int n_wrong = 0;
        sparse_unpack_row(SPARSE_N24, sparse_panel(s.where, row / 16), COLS, row % 16, want);
        for (int col = 0; col < COLS; col++)
            n_wrong += n24_at(tiles + (row / 16 * ACROSS + col / 256) * 1568, row % 16,
                              col % 256) != want[col];
        CHECK(n_wrong == 0);
    }
    buf_deinit(&blob);
}

typedef struct heard {
    lace_token tokens[N_TOKENS];
    int n, stop_at;
} heard;

static bool hear(void *user, lace_token token)
{
    heard *h = user;
    h->tokens[h->n++] = token;
    return h->n < h->stop_at;
}

static lace_token best(const float *logits, int32_t n)
{
    lace_token at = 0;
    for (lace_token i = 1; i < n; i++)
        at = logits[i] > logits[at] ? i : at;
    return at;
}

static void continuing_is_evaluating_and_stops_where_told(void)
{
    lace_error err;
    lace_model *model = open_tales(getenv("LACE_DEVICE"), &err);
    if (!model)
        return;
    lace_model_info info;
    lace_model_describe(model, &info);
    lace_session_options o = lace_session_options_default();
    o.n_context = 64;
    o.n_threads = 2;
    lace_session *session;
    if (!CHECK(lace_session_create(model, &o, &session, &err) == LACE_OK)) {
        lace_model_close(model);
        return;
    }
    lace_token wanted[N_TOKENS], token = 300;
    for (int i = 0; i < N_TOKENS; i++) {
        lace_item item = {.token = token, .want_logits = true};
        CHECK(lace_session_eval(session, &item, 1, &err) == LACE_OK);
        token = wanted[i] = best(lace_session_logits(session, 0), info.n_vocab);
    }
    for (int stop = 1; stop <= N_TOKENS; stop += 5) {
        heard h = {.stop_at = stop};
        CHECK(lace_session_truncate(session, 0, 0, &err) == LACE_OK);
        CHECK(lace_session_continue(session, 0, 300, N_TOKENS, NULL, hear, &h, &err) == LACE_OK);
        CHECK(h.n == stop && memcmp(h.tokens, wanted, (size_t)stop * sizeof *wanted) == 0);
        CHECK(lace_session_length(session, 0) == stop);
        /* The text goes on from there as if nothing had been computed ahead. */
        lace_item item = {.token = h.tokens[stop - 1], .want_logits = true};
        CHECK(lace_session_eval(session, &item, 1, &err) == LACE_OK);
        if (stop < N_TOKENS)
            CHECK(best(lace_session_logits(session, 0), info.n_vocab) == wanted[stop]);
    }
    heard h = {.stop_at = N_TOKENS};
    CHECK(lace_session_continue(session, 1, 300, 4, NULL, hear, &h, &err) == LACE_E_ARG);
    CHECK(lace_session_continue(session, 0, -1, 4, NULL, hear, &h, &err) == LACE_E_ARG);
    lace_session_free(session);
    lace_model_close(model);
}

/* Tokens that a session draws by itself are those that a sampler draws from its logits. */
static void continuing_draws_what_the_sampler_draws(void)
{
    lace_error err;
    lace_model *model = open_tales(getenv("LACE_DEVICE"), &err);
    if (!model)
        return;
    lace_model_info info;
    lace_model_describe(model, &info);
    lace_session_options o = lace_session_options_default();
    o.n_context = 64;
    o.n_threads = 2;
    lace_session *session;
    if (!CHECK(lace_session_create(model, &o, &session, &err) == LACE_OK)) {
        lace_model_close(model);
        return;
    }
    for (int kind = 0; kind < 4; kind++) {
        lace_sampler_options so = lace_sampler_options_default();
        so.seed = 5;
        so.top_k = kind == 1 ? 0 : 40;
        so.repeat_penalty = kind == 2 ? 1.3f : 1;
        so.temperature = kind == 3 ? 0 : 0.8f;
        lace_sampler *sampler;
        CHECK(lace_sampler_create(&so, info.n_vocab, &sampler, &err) == LACE_OK);
        lace_token wanted[N_TOKENS], token = 300;
        CHECK(lace_session_truncate(session, 0, 0, &err) == LACE_OK);
        for (int i = 0; i < N_TOKENS; i++) {
            lace_item item = {.token = token, .want_logits = true};
            CHECK(lace_session_eval(session, &item, 1, &err) == LACE_OK);
            CHECK(lace_sampler_sample(sampler, lace_session_logits(session, 0), &token, &err) ==
                  LACE_OK);
            lace_sampler_accept(sampler, token);
            wanted[i] = token;
        }
        lace_sampler_free(sampler);
        /* In two parts: the sampler's state is where the first one stopped. */
        heard h = {.stop_at = 9};
        CHECK(lace_sampler_create(&so, info.n_vocab, &sampler, &err) == LACE_OK);
        CHECK(lace_session_truncate(session, 0, 0, &err) == LACE_OK);
        CHECK(lace_session_continue(session, 0, 300, N_TOKENS, sampler, hear, &h, &err) == LACE_OK);
        CHECK(h.n == 9 && lace_session_length(session, 0) == 9);
        h.stop_at = N_TOKENS;
        CHECK(lace_session_continue(session, 0, h.tokens[8], N_TOKENS - 9, sampler, hear, &h,
                                    &err) == LACE_OK);
        CHECK(h.n == N_TOKENS && memcmp(h.tokens, wanted, sizeof wanted) == 0);
        lace_sampler_free(sampler);
    }
    lace_session_free(session);
    lace_model_close(model);
}

static void cards_run(void)
{
    if (cuda_count() == 0)
        tap_skip("no GPU: run the golden tests and this one with LACE_DEVICE=cuda on a machine "
                 "that has one, and bench/gpu-check.py");
}

int main(void)
{
    CASE(names_of_devices_are_checked);
    CASE(every_kind_of_tile_has_its_batched_kernels);
    CASE(a_missing_card_is_an_error_and_auto_is_not);
    CASE(a_card_can_be_a_lesser_one_for_tests);
    CASE(kernels_have_what_they_were_compiled_for);
    CASE(every_type_of_weights_has_tiles);
    CASE(n24_tiles_hold_what_panels_hold);
    CASE(m4_tiles_hold_what_panels_hold_unless_there_is_a_6);
    CASE(continuing_is_evaluating_and_stops_where_told);
    CASE(continuing_draws_what_the_sampler_draws);
    CASE(cards_run);
    return tap_end();
}
