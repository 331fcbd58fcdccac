/*
 * The list of fields (src/server/fields.def) against the server and against docs/server-api.md: each
 * field acts, is refused by name, or is a note that is passed over; and the page says which.
 */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "served.h"
#include "tap.h"

static served s;
static answer a;

enum { CHAT = 1, TEXT = 2, LLAMA = 4, ANY = 7 };

/* Which routes a field is for; the names are those of fields.def. */
#define GEN_CHAT  0
#define GEN_TEXT  1
#define GEN_LLAMA 2
#define ON(kind)  (1u << (kind))
#define ANY_ROUTE 7u

typedef enum row_kind { ROW_FIELD, ROW_OWN, ROW_NOT_DONE, ROW_NOTE } row_kind;

static const struct {
    const char *name;
    row_kind kind;
    unsigned routes;
    const char *neutral;
} rows[] = {
#define FIELD(name, kind, place, low, high, minus) {name, ROW_FIELD, ANY_ROUTE, ""},
#define OWN(name, routes)                          {name, ROW_OWN, routes, ""},
#define NOT_DONE(name, routes, neutral, instead)   {name, ROW_NOT_DONE, routes, neutral},
#define NOTE(name)                                 {name, ROW_NOTE, ANY_ROUTE, ""},
#include "server/fields.def"
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const struct {
    const char *path, *body;
} routes[] = {
    {"/v1/chat/completions",
     "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of the king, the king, the king\"}]"},
    {"/v1/completions", "\"prompt\":\"The king and the king and the king\""},
    {"/completion", "\"prompt\":\"The king and the king and the king\""},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

#define WARM "\"seed\":5,\"max_tokens\":16,\"temperature\":1.2"

/*
 * How a field shows: a request with it is answered otherwise than one without it. `with` is what is
 * sent beside it in both; "" for the usual. A field without a row here fails the test.
 */
typedef struct probe {
    const char *name, *with, *value;
    unsigned routes;
} probe;

/* clang-format off */
static const probe probes[] = {
    {"temperature", "\"seed\":5,\"max_tokens\":16", "0", ANY},
    {"top_k", WARM, "1", ANY},
    {"top_p", WARM, "0", ANY},
    {"min_p", WARM, "1", ANY},
    {"typical_p", WARM, "0.05", ANY},
    {"repeat_penalty", WARM, "9", ANY},
    {"repetition_penalty", WARM, "9", ANY},
    {"repeat_last_n", WARM ",\"repeat_penalty\":9", "0", ANY},
    {"presence_penalty", WARM, "2", ANY},
    {"frequency_penalty", WARM, "2", ANY},
    {"dry_multiplier", "\"temperature\":0,\"max_tokens\":48", "90", ANY},
    {"dry_base", "\"temperature\":0,\"max_tokens\":48,\"dry_multiplier\":0.5,\"dry_allowed_length\":1", "90", ANY},
    {"dry_allowed_length", "\"temperature\":0,\"max_tokens\":48,\"dry_multiplier\":90", "100", ANY},
    {"dry_penalty_last_n", "\"temperature\":0,\"max_tokens\":48,\"dry_multiplier\":90", "0", ANY},
    {"dry_sequence_breakers", "\"temperature\":0,\"max_tokens\":48,\"dry_multiplier\":90,\"dry_allowed_length\":1", "[\" \",\"a\",\"e\",\"i\",\"o\",\"u\",\"\\n\"]", ANY},
    {"xtc_probability", WARM, "1", ANY},
    {"xtc_threshold", WARM ",\"xtc_probability\":1", "0.9", ANY},
    {"mirostat", WARM, "2", ANY},
    {"mirostat_tau", WARM ",\"mirostat\":2", "0.1", ANY},
    {"mirostat_eta", WARM ",\"mirostat\":2,\"mirostat_tau\":1", "5", ANY},
    {"seed", "\"max_tokens\":16,\"temperature\":1.2", "5", 0}, /* the same text twice: below */
    {"n_predict", "\"temperature\":0,\"max_tokens\":16", "3", 0}, /* the last one wins; below */
    {"max_tokens", "\"temperature\":0", "3", ANY},
    {"max_completion_tokens", "\"temperature\":0", "3", ANY},
    {"min_tokens", "\"temperature\":0,\"max_tokens\":40,\"logit_bias\":{\"</s>\":100}", "8", 0},
    {"ignore_eos", "\"temperature\":0", "true", 0}, /* as min_tokens; both in test_batcher */
    {"cache_prompt", "\"temperature\":0,\"max_tokens\":4", "false", 0}, /* below */
    {"parallel_tool_calls", "", "false", 0}, /* test_fields */
    {"n", WARM, "2", ANY},
    {"stream", WARM, "true", ANY},
    {"timings_per_token", WARM ",\"stream\":true", "true", 0}, /* times are left out here: test_llama */
    {"return_progress", WARM ",\"stream\":true", "true", ANY},
    {"messages", NULL, "", 0}, {"prompt", NULL, "", 0}, /* every request has one of them */
    {"model", NULL, "", 0},                             /* test_access */
    {"stop", "\"temperature\":0,\"max_tokens\":32", "\" the\"", ANY},
    {"stop_token_ids", "\"temperature\":0,\"max_tokens\":32", "[12,13,262,265]", ANY},
    {"logit_bias", "\"temperature\":0,\"max_tokens\":16", "{\" the\":-100,\" a\":-100,\",\":-100}", ANY},
    {"logprobs", WARM, "true", CHAT}, {"logprobs", WARM, "2", TEXT | LLAMA},
    {"top_logprobs", WARM ",\"logprobs\":true", "3", CHAT},
    {"n_probs", WARM, "3", LLAMA},
    {"stream_options", WARM ",\"stream\":true", "{\"include_usage\":true}", CHAT | TEXT},
    {"response_format", WARM, "{\"type\":\"json_object\"}", ANY},
    {"json_schema", WARM, "{\"const\":\"x\"}", ANY},
    {"grammar", WARM, "\"root ::= \\\"yes\\\"\"", ANY},
    {"regex", WARM, "\"no+\"", ANY},
    {"structured_outputs", WARM, "{\"choice\":[\"left\"]}", ANY},
    {"best_of", NULL, "", 0}, /* refused unless it is n: test_fields */
    {"lora", NULL, "", 0}, /* test_adapters */
    {"tools", WARM, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", 0}, /* test_families */
    {"tool_choice", WARM ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", "\"required\"", CHAT},
    {"reasoning_effort", NULL, "", 0}, {"chat_template_kwargs", NULL, "", 0}, /* templates': test_chat */
    {"reasoning_format", NULL, "", 0}, /* test_llama */
    {"enable_thinking", NULL, "", 0}, {"thinking_budget_tokens", NULL, "", 0}, /* test_templates, as all to continue_final_message */
    {"reasoning_budget_tokens", NULL, "", 0}, {"reasoning_budget", NULL, "", 0},
    {"documents", NULL, "", 0}, {"add_generation_prompt", NULL, "", 0},
    {"continue_final_message", NULL, "", 0},
    {"suffix", NULL, "", 0},           /* test_fields */
    {"echo", WARM, "true", TEXT},
    {"return_tokens", WARM, "true", LLAMA},
    {"response_fields", WARM, "[\"content\"]", LLAMA},
    {"t_max_predict_ms", NULL, "", 0}, {"n_indent", NULL, "", 0}, /* test_llama, with the rest */
    {"samplers", WARM, "[\"top_k\"]", LLAMA},
    {"input_prefix", NULL, "", 0}, {"input_suffix", NULL, "", 0}, {"input_extra", NULL, "", 0},
};
/* clang-format on */

static void ask(size_t route, const char *with, const char *name, const char *value)
{
    char request[1024];
    snprintf(request, sizeof request, "{%s%s%s%s%s%s%s}", routes[route].body,
             with && *with ? "," : "", with ? with : "", name ? ",\"" : "", name ? name : "",
             name ? "\":" : "", name ? value : "");
    served_post(&s, routes[route].path, request, &a);
}

/* The answer without what differs every time: identity and times. */
static char *plain_answer(void)
{
    static const char *const cut[] = {
        "\"id\":\"",    "\"created\":",       "\"timings\":{",
        "\"time_ms\":", "\"cached_tokens\":", "\"tokens_cached\":",
        "\"cache\":",   "\"processed\":",     "\"generation_settings\":{"};
    char *plain = strdup(a.body ? a.body : "");
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++)
        for (char *at = plain; (at = strstr(at, cut[i])) != NULL;) {
            char *from = at + strlen(cut[i]);
            size_t n = strcspn(from, from[-1] == '{' ? "}" : ",}\"");
            memmove(at, from + n, strlen(from + n) + 1);
        }
    return plain;
}

static void every_field_has_a_probe(void)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        bool is_found = rows[i].kind == ROW_NOT_DONE || rows[i].kind == ROW_NOTE;
        for (size_t k = 0; k < sizeof probes / sizeof probes[0]; k++)
            is_found = is_found || strcmp(probes[k].name, rows[i].name) == 0;
        if (!CHECK(is_found))
            tap_note("%s has no probe", rows[i].name);
    }
}

static void every_field_acts(void)
{
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
        for (size_t k = 0; k < N_ROUTES; k++) {
            const probe *p = &probes[i];
            if (!(p->routes & 1u << k))
                continue;
            ask(k, p->with, NULL, NULL);
            bool ok = CHECK(a.status == 200);
            char *without = plain_answer();
            ask(k, p->with, p->name, p->value);
            ok = CHECK(a.status == 200) && ok;
            char *with = plain_answer();
            if (!CHECK(strcmp(with, without) != 0) || !ok)
                tap_note("%s does nothing at %s: %.300s", p->name, routes[k].path, with);
            free(with);
            free(without);
        }
}

static void a_field_of_a_wrong_kind_is_refused_by_name(void)
{
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t k = 0; k < N_ROUTES; k++) {
            bool is_input = strncmp(rows[i].name, "input_", 6) == 0 || /* of /infill */
                            strcmp(rows[i].name, "messages") == 0 ||
                            strcmp(rows[i].name, "prompt") == 0;
            if (rows[i].kind == ROW_NOTE || is_input)
                continue;
            bool is_object = strcmp(rows[i].name, "stream_options") == 0 ||
                             strcmp(rows[i].name, "chat_template_kwargs") == 0;
            ask(k, "\"max_tokens\":1", rows[i].name,
                is_object ? "[5]" : "{\"no such\":[\"value\"]}");
            if (!CHECK(a.status == 400 && strstr(a.body, rows[i].name)))
                tap_note("%s at %s: %d %.200s", rows[i].name, routes[k].path, a.status, a.body);
        }
}

static void a_field_of_another_route_is_refused_by_name(void)
{
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t k = 0; k < N_ROUTES; k++) {
            if (rows[i].kind != ROW_OWN || (rows[i].routes & 1u << k))
                continue;
            ask(k, "\"max_tokens\":1", rows[i].name, "\"x\"");
            if (!CHECK(a.status == 400 && strstr(a.body, rows[i].name)))
                tap_note("%s at %s: %d %.200s", rows[i].name, routes[k].path, a.status, a.body);
            ask(k, "\"max_tokens\":1", rows[i].name, "null");
            CHECK(a.status == 200);
        }
}

static void what_is_not_done_is_refused_unless_it_asks_for_nothing(void)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].kind != ROW_NOT_DONE)
            continue;
        ask(0, "\"max_tokens\":1", rows[i].name, "7");
        if (!CHECK(a.status == 400 && strstr(a.body, rows[i].name)))
            tap_note("%s: %d", rows[i].name, a.status);
        ask(0, "\"max_tokens\":1", rows[i].name, "null");
        CHECK(a.status == 200);
        char list[64];
        snprintf(list, sizeof list, "%s", rows[i].neutral);
        for (char *word = strtok(list, " "); word; word = strtok(NULL, " ")) {
            char value[64];
            bool is_text = !strchr("-0123456789", word[0]) && strcmp(word, "true") != 0 &&
                           strcmp(word, "false") != 0;
            snprintf(value, sizeof value, is_text ? "\"%s\"" : "%s", word);
            ask(0, "\"max_tokens\":1", rows[i].name, value);
            if (!CHECK(a.status == 200))
                tap_note("%s: %s is refused", rows[i].name, value);
        }
    }
}

static void notes_change_nothing(void)
{
    ask(0, WARM, NULL, NULL);
    char *without = plain_answer();
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].kind != ROW_NOTE)
            continue;
        ask(0, WARM, rows[i].name, "\"x\"");
        char *with = plain_answer();
        if (!CHECK(a.status == 200 && strcmp(with, without) == 0))
            tap_note("%s: %d", rows[i].name, a.status);
        free(with);
    }
    free(without);
}

static void a_seed_gives_the_same_text_and_a_limit_its_length(void)
{
    for (size_t k = 0; k < N_ROUTES; k++) {
        ask(k, "\"max_tokens\":16,\"temperature\":1.2", "seed", "5");
        char *first = plain_answer();
        ask(k, "\"max_tokens\":16,\"temperature\":1.2", "seed", "5");
        char *second = plain_answer();
        CHECK(strcmp(first, second) == 0);
        free(second);
        ask(k, "\"max_tokens\":16,\"temperature\":1.2", "seed", "6");
        second = plain_answer();
        CHECK(strcmp(first, second) != 0);
        free(first);
        free(second);
        ask(k, "\"temperature\":0", "n_predict", "3");
        CHECK(strstr(a.body, k == 2 ? "\"tokens_predicted\":3" : "\"completion_tokens\":3"));
        ask(k, "\"temperature\":0,\"max_tokens\":2", "cache_prompt", "false");
        CHECK(strstr(a.body, "\"cache_n\":0"));
    }
}

/* ---- The page -------------------------------------------------------------------------------- */

/* Whether `name` stands in the page as `name`. */
static bool is_in(const char *page, const char *name)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "`%s`", name);
    return strstr(page, quoted) != NULL;
}

static bool is_row(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
            return true;
    return false;
}

/* Names in the first column of the tables of fields, which begin with "| field |". */
static void check_table(const char *table)
{
    for (const char *line = table; line && line[0] == '|';) {
        const char *end = strchr(line + 1, '|');
        for (const char *at = strchr(line, '`'); at && at < end;) {
            size_t n = strcspn(at + 1, "`.");
            if (!CHECK(is_row(at + 1, n)))
                tap_note("the page has %.*s, the list of fields has not", (int)n, at + 1);
            at = strchr(at + 1, '`'); /* its end */
            at = at ? strchr(at + 1, '`') : NULL;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
}

static void the_page_and_the_list_have_the_same_fields(void)
{
    buf page;
    buf_init(&page, 1 << 20);
    lace_error err = {0};
    if (!CHECK(file_read("docs/server-api.md", &page, &err) == LACE_OK &&
               buf_append(&page, "", 1) == LACE_OK))
        return;
    for (size_t i = 0; i < N_ROWS; i++)
        if (!CHECK(is_in(page.data, rows[i].name)))
            tap_note("docs/server-api.md does not have `%s`", rows[i].name);
    int n_tables = 0;
    for (const char *at = page.data; (at = strstr(at, "\n| field |")) != NULL; n_tables++)
        check_table(++at);
    CHECK(n_tables >= 2);
    buf_deinit(&page);
}

int main(void)
{
    if (!served_start(&s, "-c 512 --threads 2")) {
        printf("1..0 # SKIP the server does not start\n");
        return 1;
    }
    CASE(every_field_has_a_probe);
    CASE(every_field_acts);
    CASE(a_field_of_a_wrong_kind_is_refused_by_name);
    CASE(a_field_of_another_route_is_refused_by_name);
    CASE(what_is_not_done_is_refused_unless_it_asks_for_nothing);
    CASE(notes_change_nothing);
    CASE(a_seed_gives_the_same_text_and_a_limit_its_length);
    CASE(the_page_and_the_list_have_the_same_fields);
    CHECK(served_stop(&s) == 0);
    answer_free(&a);
    return tap_end();
}
