/*
 * A server whose device is lost answers 503, opens it anew, and answers as before. The device is
 * Vulkan's; on lavapipe, where no device is ever lost, LACE_VULKAN_DEBUG says when.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "backend/vulkan/vulkan_device.h"
#include "served.h"
#include "tap.h"

enum { MOST_REQUESTS = 12 };

static void a_lost_device_is_503_and_opened_anew(void)
{
    served s = {0};
    answer a = {0};
    int n_lost = 0, n_behind = 0;
    char *first = NULL;
    if (backend_vulkan.count() == 0) {
        tap_skip("no Vulkan device, or a build without Vulkan");
        return;
    }
    setenv("LACE_VULKAN_DEBUG", "lose-once", 1);
    if (!CHECK(served_start(&s, "models/tales-4m.gguf -c 256 --device vulkan")))
        return;
    for (int i = 0; i < MOST_REQUESTS && n_behind < 2; i++) {
        served_post(&s, "/v1/completions",
                    "{\"prompt\":\"Once upon a time\",\"max_tokens\":6,\"temperature\":0}", &a);
        if (a.status == 503) {
            n_lost++;
            CHECK(strstr(a.body, "the device is lost"));
            continue;
        }
        char *text = answer_text(&a);
        CHECK(a.status == 200 && text && (!first || strcmp(text, first) == 0));
        n_behind += n_lost > 0;
        free(first);
        first = text;
    }
    CHECK(n_lost == 1 && n_behind == 2);
    free(first);
    answer_free(&a);
    served_stop(&s);
}

int main(void)
{
    CASE(a_lost_device_is_503_and_opened_anew);
    return tap_end();
}
