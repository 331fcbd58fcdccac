/*
 * The Vulkan backend: where barriers go; and, where there is a device (lavapipe, Mesa's Vulkan on the
 * processor, is one), that texts are the CPU's, with memory that the host sees and without, and that
 * everything that goes wrong is one clear line. The validation layer watches all of it.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vulkan/launch_ranges.h"
#include "backend/vulkan/vulkan_device.h"
#include "command.h"
#include "tap.h"

/* ---- Barriers -------------------------------------------------------------------------------- */

/* What one launch reads and writes: 16 bytes each; 0: nothing. */
static launch_ranges launch(uint64_t read, uint64_t write)
{
    launch_ranges r = {0};
    ranges_read(&r, read, read ? 16 : 0);
    ranges_write(&r, write, write ? 16 : 0);
    return r;
}

/* Whether a barrier stands between two launches. */
static bool waits(uint64_t read, uint64_t write, uint64_t next_read, uint64_t next_write)
{
    launch_ranges since = launch(read, write), next = launch(next_read, next_write);
    return ranges_conflict(&since, &next);
}

static void launches_wait_for_what_they_touch(void)
{
    CHECK(waits(0, 100, 100, 0)); /* reads what was written */
    CHECK(waits(100, 0, 0, 100)); /* writes what was read */
    CHECK(waits(0, 100, 0, 100)); /* writes it again */
    CHECK(waits(0, 100, 115, 0)); /* the last byte of it */
    CHECK(waits(0, 100, 85, 0));  /* the first byte of it */
}

static void launches_do_not_wait_for_others(void)
{
    CHECK(!waits(100, 200, 100, 300)); /* both read the same */
    CHECK(!waits(0, 100, 116, 0));     /* right behind it */
    CHECK(!waits(0, 100, 84, 0));      /* right in front of it */
    CHECK(!waits(0, 0, 100, 100));
}

static void a_launch_waits_for_any_since_the_last_barrier(void)
{
    launch_ranges since = {0}, next = launch(100, 0);
    for (uint64_t i = 0; i < 10; i++) {
        launch_ranges one = launch(1000 + 100 * i, i == 3 ? 100 : 5000 + 100 * i);
        ranges_join(&since, &one);
    }
    CHECK(ranges_conflict(&since, &next));
    ranges_clear(&since);
    CHECK(!ranges_conflict(&since, &next));
}

static void a_launch_may_change_rows_in_their_place_but_write_over_nothing_else(void)
{
    launch_ranges in_place = launch(100, 100), beside = launch(100, 116), over = launch(100, 0);
    ranges_write(&over, 100, 64);
    CHECK(!ranges_collide(&in_place) && !ranges_collide(&beside) && ranges_collide(&over));
}

static void more_than_can_be_remembered_is_waited_for(void)
{
    launch_ranges since = {0}, next = launch(1, 0);
    for (uint64_t i = 0; i < RANGES_MAX; i++)
        ranges_write(&since, 1000 + 100 * i, 16);
    CHECK(!ranges_conflict(&since, &next));
    ranges_write(&since, 100000, 16);
    CHECK(ranges_conflict(&since, &next));
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* In LACE_VULKAN_DEBUG of runs that are to succeed. */
static const char *watched = "validate";

/*
 * A few words of a small model, greedily. debug: LACE_VULKAN_DEBUG; environment: more of it. What
 * drivers keep lies in the scratch folder.
 */
static void tell_in(const char *environment, const char *debug, const char *options)
{
    command_sh("XDG_CACHE_HOME=$dir LACE_VULKAN_DEBUG=%s %s $lace run models/tales-4m.gguf "
               "-p 'Once upon a time' -n 16 --temp 0 %s",
               debug, environment, options);
}

static void tell(const char *debug, const char *options)
{
    tell_in("", debug, options);
}

/* The story of the CPU and of Vulkan, with the same options, is the same. */
static void check_story(const char *debug, const char *options)
{
    char wanted[4096], here[256];
    snprintf(here, sizeof here, "--device cpu %s", options);
    tell("", here);
    if (!command_check_success())
        return;
    snprintf(wanted, sizeof wanted, "%.4000s", ran.out);
    snprintf(here, sizeof here, "--device vulkan %s", options);
    tell(debug, here);
    CHECK(command_check_success() && strlen(wanted) > 40 && strcmp(ran.out, wanted) == 0);
}

static void stories_are_those_of_the_cpu(void)
{
    check_story(watched, "");
    check_story(watched, "--kv-type f32");
    check_story(watched, "--kv-type q8_0 -b 3");
    check_story(watched, "--temp 0.8 --seed 7"); /* the device finds candidates, the host draws */
    check_story(watched, "--temp 0.8 --seed 7 --top-k 0");
}

/* Of four layers five launches each, and the first and the last norm. */
static void a_token_takes_five_launches_a_layer(void)
{
    command_sh(
        "XDG_CACHE_HOME=$dir $lace bench models/tales-4m.gguf --device vulkan --trace -p 0 -n 1 "
        "-r 1 --no-limits | awk '/matmul_|rope_kv|attend|rms_norm/ {n += $4} END {print n}'");
    CHECK(strcmp(ran.out, "22\n") == 0);
}

static void stories_are_the_same_without_memory_that_the_host_sees(void)
{
    char debug[64];
    snprintf(debug, sizeof debug, "%s,staging", watched);
    check_story(debug, "");
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Launches that may run at the same time run in the reverse order: all say what they read. */
static void stories_are_the_same_in_the_reverse_order(void)
{
    char debug[64];
    snprintf(debug, sizeof debug, "%s,reverse", watched);
    check_story(debug, "");
}

/* A recorder that forgets some of what launches read puts too few barriers, and that is seen. */
static void a_missing_barrier_is_seen_in_the_reverse_order(void)
{
    char wanted[4096];
    tell("", "--device vulkan");
    CHECK(command_check_success());
    snprintf(wanted, sizeof wanted, "%.4000s", ran.out);
    tell("reverse,forget", "--device vulkan");
    CHECK(strcmp(ran.out, wanted) != 0);
    tell("forget", "--device vulkan"); /* in order, a processor does not mind */
    CHECK(command_check_success() && strcmp(ran.out, wanted) == 0);
}

/* The line of inspect that says where a model would run. */
static void ask_where(const char *debug, const char *where)
{
    command_sh("XDG_CACHE_HOME=$dir LACE_VULKAN_DEBUG=%s $lace inspect models/tales-4m.gguf "
               "--device %s | grep 'memory of a run'",
               debug, where);
}

/* ---- Bad days -------------------------------------------------------------------------------- */

static void a_damaged_cache_of_pipelines_is_made_anew(void)
{
    tell(watched, "--device vulkan");
    CHECK(command_check_success());
    command_sh("ls $dir/lace/*.pipelines | wc -l");
    CHECK(strcmp(ran.out, "1\n") == 0);
    for (int i = 0; i < 3; i++) {
        static const char *const damage[] = {
            "head -c 40 $file",                                /* it is cut */
            "(head -c 40 $file; printf x; tail -c +42 $file)", /* a byte is another */
            "echo nonsense"};
        command_sh(
            "file=$(ls $dir/lace/*.pipelines); cp $file $dir/good; %s >$dir/bad; mv $dir/bad $file",
            damage[i]);
        check_story(watched, "");
        command_sh("cmp -n 16 $dir/lace/*.pipelines $dir/good");
        CHECK(ran.code == 0);
    }
}

static void a_pipeline_that_fails_is_named(void)
{
    tell("refuse", "--device vulkan");
    command_check_error(": Vulkan: vkCreateComputePipelines: the driver refuses the shader");
}

static void a_lost_device_is_an_error(void)
{
    tell("lose", "--device vulkan");
    command_check_error("vkQueueSubmit: the device is lost");
}

static void too_little_memory_is_said_with_numbers(void)
{
    tell("memory=4", "--device vulkan");
    command_check_error("on the GPU (weights 10.0");
    CHECK(strstr(ran.err, "which has 4.0 MiB free"));
    tell("gpu,memory=4", "--device auto"); /* has no room: the CPU has */
    CHECK(command_check_success());
}

/* In this process the device has 64 MiB. */
static void an_allocation_beyond_the_budget_is_refused(void)
{
    device *d = NULL;
    queue *q = NULL;
    uint8_t *some = NULL, *more = NULL;
    lace_error err = {0};
    device_options o = {0};
    if (!CHECK(device_open("vulkan", &o, &d, &err) == LACE_OK))
        return;
    CHECK(device_open_queue(d, &q, &err) == LACE_OK);
    CHECK(queue_take(q, 40 << 20, &some, &err) == LACE_OK);
    CHECK(queue_take(q, 40 << 20, &more, &err) == LACE_E_MEMORY && !more);
    CHECK(strstr(err.text, "40.0 MiB are needed, but only 24.0 of 64.0 MiB are free"));
    queue_give_back(q, some, 40 << 20);
    CHECK(queue_take(q, 40 << 20, &more, &err) == LACE_OK);
    queue_give_back(q, more, 40 << 20);
    queue_close(q);
    device_close(d);
}

static void a_device_that_is_not_there_is_an_error_that_lists_those_that_are(void)
{
    tell("", "--device vulkan:77");
    command_check_error("there is no Vulkan device number 77: 0 is ");
}

static void without_a_driver_it_says_so(void)
{
    tell_in("VK_ICD_FILENAMES=/nowhere VK_DRIVER_FILES=/nowhere", "", "--device vulkan");
    command_check_error("Vulkan does not start: no driver is installed");
}

static void without_a_loader_it_says_so(void)
{
    command_sh("mkdir -p $dir/none && echo nothing >$dir/none/libvulkan.so.1");
    tell_in("LD_LIBRARY_PATH=$dir/none", "", "--device vulkan");
    command_check_error("no Vulkan: libvulkan.so.1 cannot be opened");
}

/* ---- Choices --------------------------------------------------------------------------------- */

static void auto_does_not_take_a_processor(void)
{
    tell("lose", "--device auto");
    CHECK(command_check_success());
    ask_where("", "auto");
    CHECK(!strstr(ran.out, "Vulkan"));
}

/* Where there is a card with CUDA, that one is taken. */
static void auto_takes_a_gpu(void)
{
    ask_where("", "auto");
    bool has_card = !strstr(ran.out, "run on cpu");
    ask_where("gpu", "auto");
    CHECK(has_card || strstr(ran.out, "Vulkan"));
}

static void a_device_is_described(void)
{
    ask_where("", "vulkan");
    CHECK(strstr(ran.out, "(Vulkan 1.") && strstr(ran.out, "; subgroups of "));
    ask_where("dot4", "vulkan");
    CHECK(strstr(ran.out, "; dot4)") || strstr(ran.out, "; dot4;"));
}

static void what_the_self_test_finds_wrong_is_not_used(void)
{
    char debug[64];
    snprintf(debug, sizeof debug, "%s,dot4,suspect", watched);
    ask_where(debug, "vulkan");
    CHECK(strstr(ran.out, "; dot4 fails"));
    check_story(debug, "");
}

/* ---- All of them ----------------------------------------------------------------------------- */

static bool has_device;

/* Whether the validation layer is there. Without it the cases run unwatched, and a line says so. */
static bool has_layer(void)
{
    tell("validate", "--device vulkan");
    return !strstr(ran.err, "the validation layer is not installed");
}

static void on_device(void *arg)
{
    void (**fn)(void) = arg;
    if (has_device)
        (*fn)();
    else
        tap_skip("no Vulkan device, or a build without Vulkan; Debian's mesa-vulkan-drivers has "
                 "one that runs on the processor");
}

#define ON_DEVICE(fn)                                                                              \
    do {                                                                                           \
        void (*case_)(void) = fn;                                                                  \
        tap_case_arg(#fn, on_device, &case_);                                                      \
    } while (0)

int main(void)
{
    CASE(launches_wait_for_what_they_touch);
    CASE(launches_do_not_wait_for_others);
    CASE(a_launch_waits_for_any_since_the_last_barrier);
    CASE(a_launch_may_change_rows_in_their_place_but_write_over_nothing_else);
    CASE(more_than_can_be_remembered_is_waited_for);
    if (!command_begin())
        return 1;
    setenv("LACE_VULKAN_DEBUG", "memory=64", 1); /* of this process, not of those that it starts */
    has_device = backend_vulkan.count() > 0;
    unsetenv("LACE_VULKAN_DEBUG");
    if (has_device && !has_layer()) {
        tap_note("the validation layer is not installed: nobody watches");
        watched = "";
    }
    ON_DEVICE(stories_are_those_of_the_cpu);
    ON_DEVICE(a_token_takes_five_launches_a_layer);
    ON_DEVICE(stories_are_the_same_without_memory_that_the_host_sees);
    ON_DEVICE(stories_are_the_same_in_the_reverse_order);
    ON_DEVICE(a_missing_barrier_is_seen_in_the_reverse_order);
    ON_DEVICE(too_little_memory_is_said_with_numbers);
    ON_DEVICE(an_allocation_beyond_the_budget_is_refused);
    ON_DEVICE(a_damaged_cache_of_pipelines_is_made_anew);
    ON_DEVICE(a_pipeline_that_fails_is_named);
    ON_DEVICE(a_lost_device_is_an_error);
    ON_DEVICE(a_device_that_is_not_there_is_an_error_that_lists_those_that_are);
    ON_DEVICE(without_a_driver_it_says_so);
    ON_DEVICE(without_a_loader_it_says_so);
    ON_DEVICE(auto_does_not_take_a_processor);
    ON_DEVICE(auto_takes_a_gpu);
    ON_DEVICE(a_device_is_described);
    ON_DEVICE(what_the_self_test_finds_wrong_is_not_used);
    command_end();
    return tap_end();
}
