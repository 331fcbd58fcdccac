/* Who may call, and what happens to a server whose model or machine fails it. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file_write.h"
#include "formats/gguf_write.h"
#include "data.h"
#include "scratch.h"
#include "served.h"
#include "tap.h"
#include "tiny_model.h"

static served s;
static answer a;

static void get_with(const char *path, const char *headers)
{
    served_request(&s, "GET", path, headers, "", 0, &a);
}

static bool start(const char *format, const char *path)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments, format, path, path);
    return CHECK(served_start(&s, arguments));
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void a_key_is_needed_on_every_route_but_health(void)
{
    scratch_write("keys", "# comment\nsecret-1\r\nsecret-2\n\n");
    if (!start("--threads 1 -c 64 --api-key-file %s", scratch_path("keys")))
        return;
    /* clang-format off */
    static const struct { const char *path, *headers; int status; } rows[] = {
        {"/health", "", 200},
        {"/ready", "", 401}, {"/metrics", "", 401}, {"/props", "", 401}, {"/v1/models", "", 401},
        {"/nowhere", "", 401}, {"/v1/", "", 401}, {"/metrics/", "", 401},
        {"/v1/models", "Authorization: Bearer secret-1\r\n", 200},
        {"/v1/models", "authorization: bearer secret-2\r\n", 200},
        {"/v1/models", "x-api-key: secret-1\r\n", 200},
        {"/nowhere", "x-api-key: secret-1\r\n", 404},
        {"/v1/models", "Authorization: Bearer\r\n", 401},
        {"/v1/models", "Authorization: Bearer \r\n", 401},
        {"/v1/models", "Authorization: Bearer x\r\n", 401},
        {"/v1/models", "Authorization: Bearer secret-11\r\n", 401},
        {"/v1/models", "Authorization: Bearer secret-\r\n", 401},
        {"/v1/models", "Authorization: Bearer secret-1secret-1\r\n", 401},
        {"/v1/models", "Authorization: Basic secret-1\r\n", 401},
        {"/v1/models", "Authorization: secret-1\r\n", 401},
        {"/v1/models", "Authorization: Bearer secret-1\r\nAuthorization: Bearer secret-1\r\n", 401},
        {"/v1/models", "Authorization: Bearer # comment\r\n", 401},
        {"/v1/models", "x-api-key: \r\n", 401},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        get_with(rows[i].path, rows[i].headers);
        if (!CHECK(a.status == rows[i].status))
            tap_note("%s %s: %d, expected %d", rows[i].path, rows[i].headers, a.status,
                     rows[i].status);
        CHECK(a.status != 401 || !strstr(a.body, "secret"));
    }
    served_post(&s, "/v1/completions", "{\"prompt\":\"a\"}", &a);
    CHECK(a.status == 401);
    CHECK(served_stop(&s) == 0);
}

static void keys_of_the_command_line_join_those_of_the_file(void)
{
    scratch_write("keys", "secret-1\n");
    if (!start("--threads 1 -c 64 --api-key one,two --api-key-file %s", scratch_path("keys")))
        return;
    static const char *const keys[] = {"one", "two", "secret-1", "one,two", "three"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char header[64];
        snprintf(header, sizeof header, "x-api-key: %s\r\n", keys[i]);
        get_with("/v1/models", header);
        CHECK(a.status == (i < 3 ? 200 : 401));
    }
    CHECK(served_stop(&s) == 0);
    CHECK(!served_start(&s, "--api-key , 2>/dev/null"));
}

/* Tokens of a prompt that were found computed, for the holder of a key. */
static int n_cached(const char *path, const char *body, const char *key)
{
    char headers[128];
    snprintf(headers, sizeof headers, "Content-Type: application/json\r\n%s\r\n", key);
    served_request(&s, "POST", path, headers, body, strlen(body), &a);
    const char *at = a.body ? strstr(a.body, "cached_tokens\":") : NULL;
    CHECK(a.status == 200 && at);
    return at ? atoi(at + 15) : -1;
}

static void one_key_does_not_learn_what_another_has_asked(void)
{
    static const char body[] =
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"The "
        "king has a secret that nobody in the land may know of\"}]}";
    static const char chat[] = "/v1/chat/completions";
    for (int shares = 0; shares < 2; shares++) {
        if (!start(shares ? "--threads 1 -c 256 --api-key one,two,one --share-prefixes"
                          : "--threads 1 -c 256 --api-key one,two,one",
                   ""))
            return;
        CHECK(n_cached(chat, body, "x-api-key: one") == 0);
        CHECK(n_cached(chat, body, "Authorization: Bearer one") > 0);
        CHECK((n_cached(chat, body, "x-api-key: two") > 0) == shares);
        CHECK(n_cached(chat, body, "x-api-key: two") > 0);
        CHECK(served_stop(&s) == 0);
    }
    if (!start("--threads 1 -c 256", ""))
        return;
    CHECK(n_cached(chat, body, "x-api-key: one") == 0);
    CHECK(n_cached(chat, body, "x-api-key: two") > 0); /* without keys all are one */
    CHECK(served_stop(&s) == 0);
}

static void any_name_is_the_model_unless_the_server_is_strict(void)
{
    static const struct {
        const char *path, *body;
    } rows[] = {
        {"/v1/chat/completions",
         "\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"},
        {"/v1/completions", "\"max_tokens\":1,\"prompt\":\"x\""},
        {"/v1/responses", "\"max_output_tokens\":1,\"input\":\"x\""},
        {"/v1/messages", "\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"},
        {"/v1/embeddings", "\"input\":\"x\""},
        {"/api/generate", "\"prompt\":\"x\",\"options\":{\"num_predict\":1}"},
        {"/tokenize", "\"content\":\"x\""},
    };
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        if (!start(is_strict ? "--threads 1 -c 64 --alias tale --strict-model"
                             : "--threads 1 -c 64 --alias tale",
                   ""))
            return;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            static const char *const names[] = {"tale", "default", "gpt-4o", "../../x", ""};
            for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
                char request[256];
                snprintf(request, sizeof request, "{\"model\":\"%s\",%s}", names[k], rows[i].body);
                served_post(&s, rows[i].path, request, &a);
                if (!CHECK(a.status == (is_strict && k > 1 ? 404 : 200)))
                    tap_note("%s %s: %d %s", rows[i].path, request, a.status, a.body);
            }
        }
        get_with("/v1/models/gpt-4o", "");
        CHECK(a.status == 404);
        CHECK(served_stop(&s) == 0);
    }
}

static void a_file_without_keys_is_refused(void)
{
    scratch_write("keys", "# nothing\n\n");
    char arguments[512];
    snprintf(arguments, sizeof arguments, "--api-key-file %s 2>/dev/null", scratch_path("keys"));
    CHECK(!served_start(&s, arguments));
}

static void an_open_address_without_a_key_warns(void)
{
    static const struct {
        const char *arguments;
        bool warns;
    } rows[] = {
        {"--host 0.0.0.0", true},
        {"--host 0.0.0.0 --api-key one", false},
        {"--host 127.0.0.1", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char arguments[512], line[512] = "";
        snprintf(arguments, sizeof arguments, "--threads 1 -c 64 %s 2>%s", rows[i].arguments,
                 scratch_path("said"));
        if (!CHECK(served_start(&s, arguments)))
            continue;
        CHECK(served_stop(&s) == 0);
        FILE *f = fopen(scratch_path("said"), "r");
        bool warned =
            f && fgets(line, sizeof line, f) && strstr(line, "warning: anybody who can reach ");
        if (!CHECK(warned == rows[i].warns))
            tap_note("%s: %s", rows[i].arguments, line);
        CHECK(!warned || strstr(line, "--api-key-file FILE"));
        if (f)
            fclose(f);
    }
}

static void named_hosts_and_origins_are_let_in(void)
{
    if (!start("--threads 1 -c 64 --allow-host my.example --allow-origin https://a.example", ""))
        return;
    get_with("/v1/models", "Origin: https://a.example\r\n");
    CHECK(a.status == 200);
    CHECK(strstr(a.head, "\r\nAccess-Control-Allow-Origin: https://a.example\r\n") != NULL);
    get_with("/v1/models", "Origin: https://b.example\r\n");
    CHECK(a.status == 403 && !strstr(a.head, "Access-Control"));
    served_request(&s, "OPTIONS", "/v1/chat/completions",
                   "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
                   "Access-Control-Request-Headers: authorization,x-stainless-os\r\n",
                   "", 0, &a);
    CHECK(a.status == 204 && strstr(a.head, "Allow-Headers: authorization,x-stainless-os\r\n"));
    served_request(&s, "OPTIONS", "/v1/chat/completions", "Origin: https://b.example\r\n", "", 0,
                   &a);
    CHECK(a.status == 403);
    static const char request[] = "GET /health HTTP/1.1\r\nHost: my.example:80\r\n\r\n";
    int fd = served_connect(&s);
    served_send(fd, request, strlen(request));
    served_read(fd, &a, 30);
    CHECK(a.status == 200);
    close(fd);
    CHECK(served_stop(&s) == 0);
}

static void the_log_has_a_line_for_a_request_and_not_its_text(void)
{
    if (!start("--threads 1 -c 64 --log-json 2>%s", scratch_path("log")))
        return;
    served_post(&s, "/v1/completions", "{\"prompt\":\"xyzzy\",\"max_tokens\":2}", &a);
    CHECK(a.status == 200);
    const char *id = strcasestr(a.head, "\r\nX-Request-Id: ");
    CHECK(served_stop(&s) == 0);
    char line[1024] = "";
    FILE *log = fopen(scratch_path("log"), "r");
    size_t n = log ? fread(line, 1, sizeof line - 1, log) : 0;
    if (log)
        fclose(log);
    CHECK(n > 0 && line[n - 1] == '\n' && strchr(line, '\n') == line + n - 1);
    CHECK(strstr(line, "\"path\":\"/v1/completions\",\"status\":200,") != NULL);
    CHECK(id && memmem(line, n, id + 16, 24) != NULL);
    CHECK(!strstr(line, "xyzzy"));
}

static void a_socket_in_the_file_system_serves_and_goes_away(void)
{
    char path[108];
    snprintf(path, sizeof path, "%s", scratch_path("socket"));
    if (!start("--threads 1 -c 64 --unix %s", path))
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    static const char request[] = "GET /health HTTP/1.1\r\nHost: any\r\n\r\n";
    served_send(fd, request, strlen(request));
    served_read(fd, &a, 30);
    CHECK(a.status == 200);
    close(fd);
    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 077) == 0);
    CHECK(served_stop(&s) == 0);
    CHECK(stat(path, &st) != 0);
}

static void https_is_served_with_a_certificate(void)
{
    char command[1024];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey rsa:2048 -nodes -keyout %s -out %s -days 2 -subj "
             "/CN=localhost 2>/dev/null",
             scratch_path("key"), scratch_path("cert"));
    if (system(command) != 0)
        return tap_skip("no openssl");
    char arguments[512];
    snprintf(arguments, sizeof arguments, "--threads 1 -c 64 --tls-key %s --tls-cert %s",
             scratch_path("key"), scratch_path("cert"));
    if (!CHECK(served_start(&s, arguments)))
        return;
    snprintf(
        command, sizeof command,
        "printf 'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | "
        "openssl s_client -quiet -connect 127.0.0.1:%d 2>/dev/null | grep -q '\"ok\"'",
        s.port);
    CHECK(system(command) == 0);
    served_get(&s, "/health", &a); /* plain text at the TLS port */
    CHECK(a.status == 0);
    CHECK(served_stop(&s) == 0);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* A copy of the model in the scratch folder. */
static bool copy_model(const char *name)
{
    char *model = data_path("models/tales-4m-f16.gguf");
    if (!model)
        return false;
    char command[1024];
    snprintf(command, sizeof command, "cp %s %s && chmod u+w %s", model, scratch_path(name),
             scratch_path(name));
    free(model);
    return CHECK(system(command) == 0);
}

static const char request[] = "{\"prompt\":\"Once upon a time\",\"max_tokens\":12,"
                              "\"temperature\":0,\"cache_prompt\":false}";

static void a_truncated_model_gives_500_and_a_red_health(void)
{
    if (!copy_model("cut.gguf") || !start("%s --threads 2 -c 256", scratch_path("cut.gguf")))
        return;
    served_post(&s, "/v1/completions", request, &a);
    CHECK(a.status == 200);
    CHECK(truncate(scratch_path("cut.gguf"), 4096) == 0);
    /* Words that were not used before: their rows are still in the file. */
    int status = 200;
    for (int i = 0; i < 20 && status == 200; i++) {
        char other[256];
        snprintf(other, sizeof other,
                 "{\"prompt\":[%d,%d,%d,%d],\"max_tokens\":4,\"cache_prompt\":false}", 97 * i + 5,
                 200 * i + 7, 2000 - 60 * i, 300 + 31 * i);
        served_post(&s, "/v1/completions", other, &a);
        status = a.status;
    }
    CHECK(status == 500 && strstr(a.body, "truncated"));
    served_get(&s, "/health", &a);
    CHECK(a.status == 503);
    served_get(&s, "/ready", &a);
    CHECK(a.status == 503);
    CHECK(served_stop(&s) == 0);
}

static void a_model_that_is_removed_or_replaced_is_used_on(void)
{
    if (!copy_model("gone.gguf") || !start("%s --threads 2 -c 256", scratch_path("gone.gguf")))
        return;
    served_post(&s, "/v1/completions", request, &a);
    CHECK(a.status == 200);
    char *first = strdup(strstr(a.body, "\"text\""));
    *strstr(first, "\"usage\"") = 0; /* what follows has times */
    CHECK(unlink(scratch_path("gone.gguf")) == 0);
    CHECK(scratch_write("gone.gguf", "something else"));
    served_post(&s, "/v1/completions", request, &a);
    CHECK(a.status == 200 && strncmp(strstr(a.body, "\"text\""), first, strlen(first)) == 0);
    free(first);
    CHECK(served_stop(&s) == 0);
}

/* A model in which one token's embedding is no number. */
static bool write_nan_model(const char *path)
{
    tiny_options options = tiny_options_default();
    options.type = DTYPE_F32;
    buf file;
    lace_error err = {0};
    buf_init(&file, 1 << 24);
    file_writer *w = NULL;
    bool ok = tiny_model_build(&options, &file, &err) == LACE_OK;
    const tensor *t = NULL;
    gguf *g = NULL;
    ok = ok && gguf_parse((span){(uint8_t *)file.data, file.size}, &g, &err) == LACE_OK;
    t = ok ? gguf_find_tensor(g, "token_embd.weight") : NULL;
    if (t) {
        float nan = NAN;
        size_t row = (size_t)(t->data - (const uint8_t *)file.data) + 300 * 16 * sizeof nan;
        memcpy(file.data + row, &nan, sizeof nan);
    }
    gguf_free(g);
    ok = t && file_writer_create(path, &w, &err) == LACE_OK &&
         file_writer_write(w, file.data, file.size, &err) == LACE_OK &&
         file_writer_commit(w, &err) == LACE_OK;
    buf_deinit(&file);
    return ok;
}

static void a_value_that_is_no_number_fails_its_request_alone(void)
{
    if (!CHECK(write_nan_model(scratch_path("nan.gguf"))) ||
        !start("%s --threads 2 -c 64", scratch_path("nan.gguf")))
        return;
    served_post(&s, "/v1/completions", "{\"prompt\":[5,6,7],\"max_tokens\":3,\"temperature\":0}",
                &a);
    CHECK(a.status == 200);
    char *first = strdup(a.status == 200 ? strstr(a.body, "\"text\"") : "");
    served_post(&s, "/v1/completions", "{\"prompt\":[5,300,7],\"max_tokens\":3}", &a);
    if (!CHECK(a.status == 500 && strstr(a.body, "numeric_error")))
        tap_note("%d %s", a.status, a.body);
    served_post(&s, "/v1/completions", "{\"prompt\":[5,6,7],\"max_tokens\":3,\"temperature\":0}",
                &a);
    CHECK(a.status == 200 && strncmp(strstr(a.body, "\"text\""), first, 20) == 0);
    free(first);
    CHECK(served_stop(&s) == 0);
}

static void banning_every_token_is_an_error(void)
{
    if (!CHECK(write_nan_model(scratch_path("tiny.gguf"))) ||
        !start("%s --threads 1 -c 64", scratch_path("tiny.gguf")))
        return;
    char body[8192], *at = body;
    at += sprintf(at, "{\"prompt\":[5],\"max_tokens\":1,\"logit_bias\":{");
    for (int i = 0; i < 320; i++)
        at += sprintf(at, "%s\"%d\":-100", i ? "," : "", i);
    sprintf(at, "}}");
    served_post(&s, "/v1/completions", body, &a);
    CHECK(a.status == 400 && strstr(a.body, "no token is left"));
    CHECK(served_stop(&s) == 0);
}

int main(void)
{
    if (!scratch_create())
        return 1;
    CASE(a_key_is_needed_on_every_route_but_health);
    CASE(keys_of_the_command_line_join_those_of_the_file);
    CASE(one_key_does_not_learn_what_another_has_asked);
    CASE(any_name_is_the_model_unless_the_server_is_strict);
    CASE(a_file_without_keys_is_refused);
    CASE(an_open_address_without_a_key_warns);
    CASE(named_hosts_and_origins_are_let_in);
    CASE(the_log_has_a_line_for_a_request_and_not_its_text);
    CASE(a_socket_in_the_file_system_serves_and_goes_away);
    CASE(https_is_served_with_a_certificate);
    CASE(a_truncated_model_gives_500_and_a_red_health);
    CASE(a_model_that_is_removed_or_replaced_is_used_on);
    CASE(a_value_that_is_no_number_fails_its_request_alone);
    CASE(banning_every_token_is_an_error);
    answer_free(&a);
    scratch_remove();
    return tap_end();
}
