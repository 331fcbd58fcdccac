/* Devices timed with a model's parts. */
#include <stdlib.h>

#include "base/cpu.h"
#include "data.h"
#include "engine/engine.h"
#include "lace.h"
#include "runner/measure.h"
#include "runner/measure_time.h"
#include "tap.h"

static lace_model *open_model(const char *path)
{
    lace_model_options o = lace_model_options_default();
    lace_model *m = NULL;
    o.device = "cpu";
    o.use_vocab = false;
    CHECK(lace_model_open(path, &o, &m, NULL) == LACE_OK);
    return m;
}

static void the_middle_of_times_counts(void)
{
    double odd[] = {5, 1, 4, 2, 3}, one[] = {7};
    CHECK(median_of(odd, 5) == 3);
    CHECK(median_of(one, 1) == 7);
}

static void experts_and_attention_are_timed(void)
{
    device_options o = {.level = cpu_level_detect()};
    char *path = data_path("golden/qwen3moe/model.gguf");
    lace_model *mixture = open_model(path);
    lace_model *dense = open_model("models/default.gguf");
    pool *workers = NULL;
    type_speed speed;
    double one, other;
    CHECK(pool_create(2, &workers, NULL) == LACE_OK);
    if (mixture && dense && workers) {
        CHECK(measure_experts(mixture->m, &o, workers, &speed, NULL) == LACE_OK);
        CHECK(speed.bytes_s > 0 && speed.products_s > 0);
        CHECK(measure_experts(dense->m, &o, workers, &speed, NULL) == LACE_OK);
        CHECK(speed.bytes_s == 0 && speed.products_s == 0);
        CHECK(measure_attention(mixture->m, &o, workers, 512, &one, NULL) == LACE_OK && one > 0);
        CHECK(measure_attention(dense->m, &o, workers, 32, &other, NULL) == LACE_OK && other > 0);
    }
    pool_free(workers);
    lace_model_close(dense);
    lace_model_close(mixture);
    free(path);
}

/* To a device that computes in the host's memory no weights are brought. */
static void types_of_the_model_are_timed(void)
{
    device_options o = {.level = cpu_level_detect()};
    char *path = data_path("golden/qwen3moe/model.gguf");
    lace_model *m = open_model(path);
    pool *workers = NULL;
    type_speed *speeds = calloc(DTYPE_COUNT, sizeof *speeds);
    CHECK(pool_create(2, &workers, NULL) == LACE_OK);
    if (m && workers && speeds) {
        CHECK(measure_types(m->m, "cpu", &o, workers, speeds, NULL) == LACE_OK);
        int n_types = 0;
        for (int t = 0; t < DTYPE_COUNT; t++) {
            n_types += speeds[t].bytes_s > 0 && speeds[t].products_s > 0;
            CHECK(speeds[t].bring_bytes_s == 0);
        }
        CHECK(n_types > 0);
    }
    free(speeds);
    free(path);
    pool_free(workers);
    lace_model_close(m);
}

int main(void)
{
    CASE(the_middle_of_times_counts);
    CASE(experts_and_attention_are_timed);
    CASE(types_of_the_model_are_timed);
    return tap_end();
}
