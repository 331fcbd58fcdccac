/* One line of JSON for each request, on standard error. What was asked or answered is not in it. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/core.h"

void call_log(const call *c)
{
    if (!c->s->options.log_json)
        return;
    json_out out;
    json_out_init(&out, 4096);
    struct timespec now;
    struct tm parts;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    json_out_printf(&out, "{\"time\":\"%s.%03ldZ\",\"id\":\"%s\",\"method\":\"%s\",\"path\":\"%s\"",
                    when, now.tv_nsec / 1000000, c->id, c->route->method, c->route->path);
    json_out_printf(&out, ",\"status\":%d,\"ms\":%.3f,\"stream\":%s", c->status,
                    (double)(clock_ns() - c->begin_ns) / 1e6, c->is_streaming ? "true" : "false");
    json_out_printf(&out, ",\"prompt_tokens\":%zu}\n", c->request.n_prompt);
    if (!out.has_failed)
        (void)!write(STDERR_FILENO, out.b.data, out.b.size);
    json_out_deinit(&out);
}
