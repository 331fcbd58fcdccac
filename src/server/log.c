/*
 * One line of JSON for each request, on standard error: also for those that are refused before they
 * have a route. What was asked or answered is not in it.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/core.h"

enum { MAX_LINE = 4096, MAX_PATH = 256 };

static void begin(json_out *out, const char *client)
{
    struct timespec now;
    struct tm parts;
    char when[32];
    json_out_init(out, MAX_LINE);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    json_out_printf(out, "{\"time\":\"%s.%03ldZ\",\"client\":\"%s\"", when, now.tv_nsec / 1000000,
                    client);
}

/* A line is dropped where nobody reads them: the loop would wait for a pipe that is full. */
static void end(json_out *out)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    json_out_raw(out, "}\n");
    if (!out->has_failed && poll(&room, 1, 0) == 1 && (room.revents & POLLOUT))
        (void)!write(STDERR_FILENO, out->b.data, out->b.size);
    json_out_deinit(out);
}

void log_call(call *c)
{
    if (!c->s->options.log_json || c->is_logged)
        return;
    json_out out;
    c->is_logged = true;
    begin(&out, c->client);
    json_out_printf(&out, ",\"id\":\"%s\",\"method\":\"%.*s\",\"path\":\"%s\"", c->id,
                    (int)c->parser->method.size, c->parser->method.data, c->route->path);
    json_out_printf(&out, ",\"status\":%d,\"ms\":%.3f,\"stream\":%s", c->status,
                    (double)(clock_ns() - c->begin_ns) / 1e6, c->is_streaming ? "true" : "false");
    json_out_printf(&out, ",\"prompt_tokens\":%zu,\"generated_tokens\":%d", c->request.n_prompt,
                    c->n_generated);
    if (c->n_generated > 0)
        json_out_printf(&out, ",\"reused_tokens\":%d,\"reuse_end\":\"%s\"", c->n_reused,
                        lace_reuse_text(c->reuse_end));
    if (c->text_cut != LACE_CUT_NONE)
        json_out_printf(&out, ",\"text_end\":\"%s\"", lace_cut_text(c->text_cut));
    if (c->reasoning_cut != LACE_CUT_NONE)
        json_out_printf(&out, ",\"reasoning_end\":\"%s\"", lace_cut_text(c->reasoning_cut));
    if (c->request.n_replies > 0)
        json_out_printf(&out, ",\"replies\":%zu,\"replies_kept\":%zu", c->request.n_replies,
                        c->request.n_replies_kept);
    if (c->has_error) /* in a stream, its status was sent before */
        json_out_raw(&out, ",\"failed\":true");
    end(&out);
}

void log_refusal(const conn *c, int status, const char *reason)
{
    if (!c->s->options.log_json)
        return;
    json_out out;
    begin(&out, c->client);
    text method = c->parser ? c->parser->method : (text){0};
    text path = c->parser ? http_parser_path(c->parser) : (text){0};
    json_out_raw(&out, ",\"method\":");
    json_out_text(&out, method.data ? method.data : "", method.size < 16 ? method.size : 16);
    json_out_raw(&out, ",\"path\":");
    json_out_text(&out, path.data ? path.data : "", path.size < MAX_PATH ? path.size : MAX_PATH);
    json_out_printf(&out, ",\"status\":%d,\"why\":", status);
    json_out_string(&out, reason);
    end(&out);
}
