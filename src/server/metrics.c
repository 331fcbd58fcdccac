/* What the server counts, in the text format of Prometheus. */
#include "server/metrics.h"

#include <inttypes.h>

#include "server/core.h"

/* Upper ends in seconds: from the step of a tiny model to a long answer. */
static const double bounds[METRICS_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

void metrics_observe(histogram *h, uint64_t ns)
{
    double seconds = (double)ns / 1e9;
    int i = 0;
    while (i < METRICS_BUCKETS && seconds > bounds[i])
        i++;
    h->buckets[i]++;
    h->n++;
    h->sum += seconds;
}

void metrics_count_status(metrics *m, int status)
{
    int i = 0;
    while (i + 1 < METRICS_STATUSES && m->statuses[i].status && m->statuses[i].status != status)
        i++;
    m->statuses[i].status = status;
    m->statuses[i].n++;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_head(json_out *out, const char *name, const char *type, const char *help)
{
    json_out_printf(out, "# HELP lace_%s %s\n# TYPE lace_%s %s\n", name, help, name, type);
}

static void write_value(json_out *out, const char *name, const char *type, const char *help,
                        double value)
{
    write_head(out, name, type, help);
    json_out_printf(out, "lace_%s %.17g\n", name, value);
}

static void write_histogram(json_out *out, const char *name, const char *help, const histogram *h)
{
    uint64_t sum = 0;
    write_head(out, name, "histogram", help);
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        sum += h->buckets[i];
        json_out_printf(out, "lace_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], sum);
    }
    json_out_printf(out, "lace_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->n);
    json_out_printf(out, "lace_%s_sum %.9g\nlace_%s_count %" PRIu64 "\n", name, h->sum, name, h->n);
}

static void write_labelled(server *s, json_out *out)
{
    static const char *const reasons[] = {NULL, "stop", "length", "cancelled", "error"};
    const metrics *m = &s->metrics;
    write_head(out, "http_responses_total", "counter", "Responses by HTTP status.");
    for (int i = 0; i < METRICS_STATUSES && m->statuses[i].status; i++)
        json_out_printf(out, "lace_http_responses_total{status=\"%d\"} %" PRIu64 "\n",
                        m->statuses[i].status, m->statuses[i].n);
    write_head(out, "generations_total", "counter", "Generations by how they ended.");
    for (int i = 1; i < 5; i++)
        json_out_printf(out, "lace_generations_total{reason=\"%s\"} %" PRIu64 "\n", reasons[i],
                        m->n_finished[i]);
    write_head(out, "build_info", "gauge", "Which lace serves which model.");
    json_out_raw(out, "lace_build_info{version=\"" LACE_VERSION "\",model=");
    json_out_string(out, s->model_id); /* the escapes of a label are among those of JSON */
    json_out_raw(out, "} 1\n");
}

void metrics_write(server *s, json_out *out)
{
    const metrics *m = &s->metrics;
    inference_state state;
    inference_read(s->inference, &state);
    const lace_batcher_stats *t = &state.stats;
    double kv_use = t->kv_tokens ? (double)t->kv_tokens_used / (double)t->kv_tokens : 0;
    /* clang-format off */
    const struct { const char *name, *type, *help; double value; } rows[] = {
        {"requests_running", "gauge", "Generations being computed.", t->n_running},
        {"requests_waiting", "gauge", "Generations that wait for their turn.", t->n_waiting},
        {"connections", "gauge", "Open connections.", s->n_conns},
        {"kv_tokens", "gauge", "Room in the KV pool, in tokens.", (double)t->kv_tokens},
        {"kv_tokens_used", "gauge", "Tokens in the KV pool that generations hold.", (double)t->kv_tokens_used},
        {"kv_tokens_kept", "gauge", "Tokens in the KV pool that are kept for prompts to come.", (double)t->kv_tokens_kept},
        {"kv_use_ratio", "gauge", "The part of the KV pool that generations hold, 0 to 1.", kv_use},
        {"steps_total", "counter", "Batches computed.", (double)t->n_steps},
        {"preemptions_total", "counter", "Generations put back because the KV pool was full.", (double)t->n_preempted},
        {"prompt_tokens_total", "counter", "Tokens of prompts, computed or found.", (double)m->n_prompt_tokens},
        {"prompt_tokens_computed_total", "counter", "Tokens of prompts that were computed.", (double)t->n_prompt_tokens},
        {"generated_tokens_total", "counter", "Tokens generated.", (double)t->n_generated_tokens},
        {"prefix_hit_tokens_total", "counter", "Tokens of prompts found in the prefix tree.", (double)t->n_prefix_hits},
        {"prefix_query_tokens_total", "counter", "Tokens of prompts looked up in the prefix tree.", (double)t->n_prefix_queries},
        {"prefix_evicted_tokens_total", "counter", "Tokens that the prefix tree gave up.", (double)t->n_prefix_evicted},
        {"guessed_tokens_total", "counter", "Tokens that were guessed (--draft, --lookup, --mtp) and checked.", (double)t->n_guessed},
        {"guessed_tokens_accepted_total", "counter", "Guessed tokens that were right.", (double)t->n_accepted},
        {"timeouts_total", "counter", "Requests that took longer than allowed.", (double)m->n_timed_out},
        {"slow_readers_total", "counter", "Clients cut off because they read too slowly.", (double)m->n_slow_readers},
        {"disconnects_total", "counter", "Clients that left before their answer was complete.", (double)m->n_disconnected},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        write_value(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    write_histogram(out, "time_to_first_token_seconds", "From the request to its first token.",
                    &m->first_token);
    write_histogram(out, "inter_token_seconds", "Between two tokens of a generation.",
                    &m->inter_token);
    write_histogram(out, "queue_seconds", "From the request to its first step.", &m->queue);
    write_histogram(out, "prompt_seconds", "From the first step to the first token.", &m->prompt);
    write_histogram(out, "request_seconds", "From the request to the end of its answer.",
                    &m->end_to_end);
    write_labelled(s, out);
}
