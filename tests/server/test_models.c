/*
 * Several models behind one port: loaded by name, within a budget, and none hurts another.
 * $LACE_REQUESTS: how many at random, by default 40. bench/model-switching.py does it in full size.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/models_file.h"
#include "command.h"
#include "sanitized.h"
#include "served.h"
#include "tap.h"

static served s;
static answer a;

#define SMALL "path = \"models/tales-4m.gguf\"\nthreads = 1\nctx-size = 256\nkv-memory = \"16M\"\n"

/* Three models, two of which fit. */
static const char three[] = "memory = \"120M\"\nkeep_alive = \"10m\"\n[models.a]\n" SMALL
                            "[models.b]\n" SMALL "[models.c]\n" SMALL;

static bool start(const char *toml, const char *more)
{
    char arguments[512];
    if (!CHECK(command_write("m.toml", toml, strlen(toml))))
        return false;
    snprintf(arguments, sizeof arguments, "--models %s --threads 1 %s", command_path("m.toml"),
             more);
    return CHECK(served_start(&s, arguments));
}

static void ask(const char *model)
{
    char body[300];
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"Once\",\"max_tokens\":4,\"temperature\":0}", model);
    served_post(&s, "/v1/completions", body, &a);
}

/* A member of a model in /v1/models, as text. */
static const char *look(const char *model, const char *member)
{
    static char word[64];
    char path[100];
    snprintf(path, sizeof path, "/v1/models/%s", model);
    served_get(&s, path, &a);
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL),
           *value = json_object_get(json, member);
    snprintf(word, sizeof word, "%s", json_is_string(value) ? json_string_value(value) : "");
    if (json_is_integer(value))
        snprintf(word, sizeof word, "%lld", (long long)json_integer_value(value));
    json_decref(json);
    return word;
}

static bool is_in_state(const char *model, const char *state)
{
    for (int i = 0; i < 400; i++) {
        if (strcmp(look(model, "state"), state) == 0)
            return true;
        usleep(25000);
    }
    tap_note("%s is %s, expected %s", model, look(model, "state"), state);
    return false;
}

/* The processes of models: calls fn for each child of the router. */
static int each_child(pid_t *pids, int most)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], line[300] = "";
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
        const char *end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        if (end && sscanf(end, ") %*c %d", &parent) == 1 && parent == s.pid && n < most)
            pids[n++] = atoi(e->d_name);
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return n;
}

static pid_t child_of(const char *model)
{
    pid_t pids[16];
    int n = each_child(pids, 16);
    for (int i = 0; i < n; i++) {
        char path[64], line[4096] = "", wanted[64];
        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pids[i]);
        snprintf(wanted, sizeof wanted, "--alias=%s=", model);
        FILE *f = fopen(path, "r");
        size_t size = f ? fread(line, 1, sizeof line - 1, f) : 0;
        for (size_t k = 0; k < size; k++)
            line[k] = line[k] ? line[k] : '=';
        if (f)
            fclose(f);
        if (strstr(line, wanted))
            return pids[i];
    }
    return 0;
}

/* ---- Loading by name ------------------------------------------------------------------------- */

static void models_are_loaded_when_they_are_named(void)
{
    if (!start(three, ""))
        return;
    CHECK(strcmp(look("a", "state"), "unloaded") == 0);
    ask("a");
    answer_check(&a, 200, "\"model\":\"a\"");
    CHECK(strcmp(look("a", "state"), "ready") == 0);
    CHECK(strcmp(look("b", "state"), "unloaded") == 0);
    served_post(&s, "/v1/chat/completions",
                "{\"model\":\"b\",\"stream\":true,\"max_tokens\":4,\"messages\":"
                "[{\"role\":\"user\",\"content\":\"Hi\"}]}",
                &a);
    answer_check(&a, 200, "data: [DONE]");
    served_post(&s, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":1}", &a);
    answer_check(&a, 200, "\"model\":\"a\"");
    served_post(&s, "/api/generate",
                "{\"model\":\"b:latest\",\"prompt\":\"Once\",\"stream\":false,\"options\":"
                "{\"num_predict\":2}}",
                &a);
    answer_check(&a, 200, "\"done\":true");
    /* The third one takes the place of the one that was used longest ago. */
    ask("a");
    ask("c");
    answer_check(&a, 200, "\"model\":\"c\"");
    CHECK(is_in_state("b", "unloaded"));
    CHECK(strcmp(look("a", "state"), "ready") == 0);
    served_get(&s, "/api/ps", &a);
    CHECK(answer_count(&a, "\"name\"") == 2);
    served_get(&s, "/props?model=c", &a);
    answer_check(&a, 200, "\"architecture\"");
    served_get(&s, "/props?model=b", &a);
    answer_check(&a, 200, "\"state\":\"unloaded\"");
    served_get(&s, "/metrics", &a);
    answer_check(&a, 200, "lace_connections");
    CHECK(served_stop(&s) == 0);
}

static void wrong_names_and_bodies_are_refused(void)
{
    static const struct {
        const char *path, *body, *part;
        int status;
    } rows[] = {
        {"/v1/completions", "{\"model\":\"none\",\"prompt\":\"x\"}", "model_not_found", 404},
        {"/v1/messages", "{\"model\":\"none\",\"max_tokens\":1}", "\"type\":\"error\"", 404},
        {"/api/chat", "{\"model\":\"none\",\"messages\":[]}", "{\"error\":\"", 404},
        {"/v1/completions", "{\"model\":7,\"prompt\":\"x\"}", "not the name of a model", 400},
        {"/v1/completions", "{\"model\":", "the body", 400},
        {"/v1/completions", "[]", "expected a JSON object", 400},
        {"/api/generate", "{\"model\":\"a\",\"keep_alive\":\"soon\"}", "keep_alive", 400},
        {"/models/unload", "{\"model\":\"none\"}", "model_not_found", 404},
        {"/v1/completions", "{\"model\":\"a\",\"prompt\":\"x\",\"max_tokens\":-5}", "max_tokens",
         400},
    };
    if (!start(three, ""))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        served_post(&s, rows[i].path, rows[i].body, &a);
        answer_check(&a, rows[i].status, rows[i].part);
    }
    served_get(&s, "/v1/models/none", &a);
    answer_check(&a, 404, "model_not_found");
    CHECK(served_stop(&s) == 0);
}

static void idle_models_go_and_pinned_ones_stay(void)
{
    static const char toml[] =
        "memory = \"120M\"\nkeep_alive = 600\ndefault = \"a\"\n"
        "[models.'x/y']\n" SMALL "pin = true\n[models.a]\n" SMALL
        "keep_alive = \"1s\"\n[models.b]\n" SMALL "[models.big]\npath = \"models/tales-4m.gguf\"\n"
        "kv-memory = \"100M\"\n";
    if (!start(toml, ""))
        return;
    CHECK(is_in_state("x%2Fy", "ready"));
    ask("a");
    answer_check(&a, 200, NULL);
    CHECK(is_in_state("a", "unloaded")); /* after its second */
    ask("b");
    CHECK(strcmp(look("b", "state"), "ready") == 0);
    served_post(&s, "/api/generate", "{\"model\":\"b\",\"keep_alive\":0}", &a);
    answer_check(&a, 200, "\"done_reason\":\"unload\"");
    CHECK(is_in_state("b", "unloaded"));
    served_post(&s, "/models/load", "{\"model\":\"b\"}", &a);
    answer_check(&a, 200, "\"success\":true");
    CHECK(strcmp(look("b", "state"), "ready") == 0);
    command_run("ps --url http://127.0.0.1:%d", s.port);
    CHECK(command_check_success() && strstr(ran.out, "x/y") && strstr(ran.out, "pinned"));
    CHECK(strstr(ran.out, "2 of 4 models"));
    command_run("stop b --url http://127.0.0.1:%d", s.port);
    CHECK(command_check_success() && is_in_state("b", "unloaded"));
    command_run("stop none --url http://127.0.0.1:%d", s.port);
    command_check_error("answered 404: there is no such model here");
    ask("big");
    answer_check(&a, 503, "--models-memory");
    CHECK(strcmp(look("x%2Fy", "state"), "ready") == 0);
    CHECK(served_stop(&s) == 0);
}

/* ---- Accidents ------------------------------------------------------------------------------- */

static void a_killed_model_answers_again(void)
{
    if (!start(three, ""))
        return;
    ask("a");
    ask("b");
    pid_t pid = child_of("a"), other = child_of("b");
    CHECK(pid > 0 && other > 0);
    kill(pid, SIGKILL);
    ask("a"); /* at once: it may meet the dead one */
    answer_check(&a, 200, "\"model\":\"a\"");
    CHECK(child_of("a") != pid && child_of("b") == other);
    /* In the middle of a stream: that one ends with an error, a new one is well. */
    int fd = served_connect(&s);
    static const char body[] = "{\"model\":\"a\",\"prompt\":\"Once\",\"stream\":true,"
                               "\"ignore_eos\":true,\"max_tokens\":240}";
    char head[400], first[64];
    snprintf(head, sizeof head,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
             "\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    pid = child_of("a");
    kill(pid, SIGSTOP);
    served_send(fd, head, strlen(head));
    usleep(50000);
    kill(pid, SIGCONT);
    CHECK(read(fd, first, sizeof first) > 0);
    kill(pid, SIGKILL);
    char rest[1 << 16];
    while (read(fd, rest, sizeof rest) > 0 && !strstr(rest, "\r\n0\r\n\r\n"))
        memset(rest, 0, sizeof rest);
    close(fd);
    ask("a");
    answer_check(&a, 200, "\"model\":\"a\"");
    CHECK(child_of("b") == other);
    CHECK(served_stop(&s) == 0);
}

/* A request whose answer is not waited for: a connection. */
static int send_to(const char *model)
{
    char body[100], request[400];
    int fd = served_connect(&s);
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"x\",\"max_tokens\":9}", model);
    snprintf(request, sizeof request,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
             "\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    served_send(fd, request, strlen(request));
    return fd;
}

static void requests_wait_for_room_until_their_deadline(void)
{
    static const char toml[] = "memory = \"70M\"\n[models.a]\n" SMALL "[models.b]\n" SMALL;
    if (!start(toml, "--load-timeout 1 --max-queue 2"))
        return;
    ask("a");
    pid_t pid = child_of("a");
    CHECK(pid > 0);
    kill(pid, SIGSTOP); /* it answers nothing, and so it cannot go */
    int fd = send_to("a"), late[2];
    usleep(100000);
    ask("b");
    answer_check(&a, 503, "not loaded in time (--load-timeout)");
    /* More than may wait are refused at once. */
    for (int i = 0; i < 2; i++)
        late[i] = send_to("b");
    usleep(200000);
    ask("b");
    answer_check(&a, 429, "too many requests");
    kill(pid, SIGCONT);
    answer first = {0};
    served_read(fd, &first, 30);
    answer_check(&first, 200, "\"model\":\"a\"");
    answer_free(&first);
    close(fd);
    for (int i = 0; i < 2; i++)
        close(late[i]); /* they need no answer any more */
    ask("b");
    answer_check(&a, 200, "\"model\":\"b\"");
    CHECK(served_stop(&s) == 0);
}

static void a_model_that_cannot_be_loaded_says_why(void)
{
    static const char toml[] = "[models.good]\n" SMALL "[models.gone]\npath = \"nothing.gguf\"\n"
                               "[models.odd]\n" SMALL "temp = \"hot\"\n";
    if (!start(toml, "2>/dev/null"))
        return;
    ask("gone");
    answer_check(&a, 503, "nothing.gguf: no such file");
    ask("odd");
    answer_check(&a, 503, "cannot be loaded: --temp");
    ask("good");
    answer_check(&a, 200, NULL);
    CHECK(served_stop(&s) == 0);
}

static void children_end_with_their_server(void)
{
    for (int signal_no = 0; signal_no < 2; signal_no++) {
        if (!start(three, ""))
            return;
        ask("a");
        pid_t pid = child_of("a");
        CHECK(pid > 0);
        if (signal_no) {
            kill(s.pid, SIGKILL);
            served_wait(&s);
        } else {
            CHECK(served_stop(&s) == 0);
        }
        int waited = 0;
        while (kill(pid, 0) == 0 && waited++ < 200)
            usleep(20000);
        CHECK(waited < 200);
    }
}

/* ---- Load ------------------------------------------------------------------------------------ */

static atomic_int n_left, n_good, n_bad;

static void *client(void *arg)
{
    unsigned seed = (unsigned)(size_t)arg;
    answer mine = {0};
    while (atomic_fetch_sub(&n_left, 1) > 0) {
        char body[200];
        seed = seed * 1664525 + 1013904223;
        snprintf(body, sizeof body, "{\"model\":\"%c\",\"prompt\":\"Once\",\"max_tokens\":3}",
                 "abc"[(seed >> 16) % 3]);
        served_post(&s, "/v1/completions", body, &mine);
        atomic_fetch_add(mine.status == 200 ? &n_good : &n_bad, 1);
    }
    answer_free(&mine);
    return NULL;
}

/* What the children have of their own, in kB. */
static long memory_of_children(void)
{
    pid_t pids[16];
    long sum = 0;
    int n = each_child(pids, 16);
    for (int i = 0; i < n; i++) {
        char path[64], line[256];
        long own = 0;
        snprintf(path, sizeof path, "/proc/%d/status", (int)pids[i]);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "RssAnon: %ld", &own) == 1)
                sum += own;
        if (f)
            fclose(f);
    }
    return sum;
}

static void random_requests_stay_within_the_budget(void)
{
    enum { N_CLIENTS = 4 };
    pthread_t threads[N_CLIENTS];
    int n = getenv("LACE_REQUESTS") ? atoi(getenv("LACE_REQUESTS")) : 40;
    long most = 0;
    if (!start(three, ""))
        return;
    atomic_store(&n_left, n);
    for (size_t i = 0; i < N_CLIENTS; i++)
        pthread_create(&threads[i], NULL, client, (void *)(i + 1));
    while (atomic_load(&n_left) > 0) {
        long now = memory_of_children();
        most = now > most ? now : most;
        usleep(5000);
    }
    for (size_t i = 0; i < N_CLIENTS; i++)
        pthread_join(threads[i], NULL);
    tap_note("%d good, %d bad; at most %ld kB of 122880", atomic_load(&n_good), atomic_load(&n_bad),
             most);
    CHECK(atomic_load(&n_good) == n && atomic_load(&n_bad) == 0);
    CHECK(most < 122880 || IS_SANITIZED);
    CHECK(served_stop(&s) == 0);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void files_are_read_strictly(void)
{
    static const struct {
        const char *source, *error;
    } rows[] = {
        {"", "there is no model"},
        {"[models.a]\n", "has no path"},
        {"[models.a]\npath = 3\n", "line 2: path: expected a text in quotes"},
        {"[models.a]\npath = \"x\n", "line 2: a text without its end"},
        {"[models.a]\npath = \"\\q\"\n", "unknown escape"},
        {"[models.a]\npath = \"x\" y\n", "unexpected text behind the value"},
        {"[models.a]\npath = \"x\"\npin = 1\n", "pin: expected true or false"},
        {"[models.a]\npath = \"x\"\nport = 1\n", "of the whole server"},
        {"[models.a]\npath = \"x\"\nctx-size = many\n", "line 3: expected a text in quotes"},
        {"[models.a]\npath='x'\n[models.a]\n", "a second model of the name"},
        {"[models.]\n", "expected a name"},
        {"[models.a\n", "expected ']'"},
        {"[other.a]\n", "unknown table \"other\""},
        {"[models.\"\"]\npath='x'\n", "a model without a name"},
        {"memory = \"lots\"\n", "memory: expected bytes"},
        {"colour = \"red\"\n", "unknown key \"colour\""},
        {"path\n", "expected '='"},
        {"default = \"b\"\n[models.a]\npath = \"x\"\n", "there is no model \"b\""},
    };
    models_list list;
    lace_error err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&err, 0, sizeof err);
        CHECK(models_parse(text_of(rows[i].source), ".", &list, &err) == LACE_E_ARG);
        if (!CHECK(strstr(err.text, rows[i].error) != NULL))
            tap_note("%s: %s", rows[i].source, err.text);
    }
    static const char good[] = "# all of it\nmemory = \"2G\"\r\nkeep_alive = -1\n"
                               "default = 'b'\n\n[ models . a ] # one\n path = \"a\\\\b\"\n"
                               "pin=true\nlookup = true\nmmap = false\n"
                               "[models.\"b\"]\npath = 'models'\nctx_size = 12\ntemp = 0.5\n";
    if (!CHECK(models_parse(text_of(good), ".", &list, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        return;
    }
    CHECK(list.n_entries == 2 && list.default_index == 1 && list.memory_bytes == UINT64_C(2) << 30);
    CHECK(list.entries[0].is_pinned && strcmp(list.entries[0].path, "a\\b") == 0);
    CHECK(list.entries[0].n_args == 1 && strcmp(list.entries[0].args[0], "--lookup") == 0);
    CHECK(strcmp(list.entries[1].path, "./models") == 0 && list.entries[1].n_args == 4);
    CHECK(strcmp(list.entries[1].args[0], "--ctx-size") == 0);
    CHECK(strcmp(list.entries[1].args[1], "12") == 0);
    models_deinit(&list);
    command_run("serve --models models --models-memory 1 --port 99999");
    command_check_error("--port");
    static const char sise[] = "[models.a]\npath = \"x\"\nctx-sise = 12\n";
    static const char absent[] = "[models.a]\npath = \"absent.gguf\"\n";
    command_write("sise.toml", sise, sizeof sise - 1);
    command_run("serve --models $dir/sise.toml");
    command_check_error("the model \"a\": unknown key \"ctx-sise\"; it has path, pin");
    command_write("absent.toml", absent, sizeof absent - 1);
    command_run("serve --models $dir/absent.toml --port 0 --host 256.1.1.1");
    CHECK(ran.code == 1 && strstr(ran.err, "warning: the model \"a\": absent.gguf: no such file"));
    command_run("serve --models src");
    command_check_error("has no model (NAME.gguf) in it");
    command_run("serve --models models x.gguf");
    command_check_error("x.gguf is one more");
    command_run("serve --models models --alias x");
    command_check_error("--alias names one model");
    command_run("serve --models models --keep-alive never");
    command_check_error("keep-alive \"never\": expected a time");
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(files_are_read_strictly);
    CASE(models_are_loaded_when_they_are_named);
    CASE(wrong_names_and_bodies_are_refused);
    CASE(idle_models_go_and_pinned_ones_stay);
    CASE(a_killed_model_answers_again);
    CASE(requests_wait_for_room_until_their_deadline);
    CASE(a_model_that_cannot_be_loaded_says_why);
    CASE(children_end_with_their_server);
    CASE(random_requests_stay_within_the_budget);
    answer_free(&a);
    command_end();
    return tap_end();
}
