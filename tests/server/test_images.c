/*
 * Images in requests: a tiny model that sees, with a vocabulary of bytes, answers OpenAI's, Anthropic's
 * and Ollama's clients; broken images and bombs cost the request alone.
 */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "command.h"
#include "data.h"
#include "golden_file.h"
#include "scratch.h"
#include "served.h"
#include "tap.h"

#define CORPUS "tests/fuzz/corpus/image/"

static served s;
static answer a;

/* ---- A model --------------------------------------------------------------------------------- */

/* GPT-2's characters for bytes: those that can be seen stand for themselves. */
static int char_of_byte(int byte)
{
    int n = 0;
    for (int b = 0; b < 256; b++) {
        bool is_seen = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte)
            return is_seen ? b : 256 + n;
        n += !is_seen;
    }
    return 0;
}

static json_t *char_json(int code)
{
    char utf8[3] = {(char)code, 0, 0};
    if (code >= 128) {
        utf8[0] = (char)(0xc0 | code >> 6);
        utf8[1] = (char)(0x80 | (code & 63));
    }
    return json_string(utf8);
}

/* 256 bytes, and tokens with the ids that the golden models have for images. */
static bool write_tokenizer(void)
{
    static const struct {
        int id;
        const char *name;
    } special[] = {{256, "<|endoftext|>"},    {257, "<|im_start|>"},   {258, "<|im_end|>"},
                   {300, "<|vision_start|>"}, {301, "<|vision_end|>"}, {310, "<|image_pad|>"}};
    json_t *vocab = json_object(), *added = json_array();
    for (int b = 0; b < 256; b++) {
        json_t *name = char_json(char_of_byte(b));
        json_object_set_new(vocab, json_string_value(name), json_integer(b));
        json_decref(name);
    }
    for (int id = 256; id < 320; id++) {
        char name[32];
        snprintf(name, sizeof name, "<|unused_%d|>", id);
        for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
            if (special[i].id == id)
                snprintf(name, sizeof name, "%s", special[i].name);
        json_array_append_new(
            added, json_pack("{s:i, s:s, s:b}", "id", id, "content", name, "special", 1));
    }
    json_t *all = json_pack("{s:o, s:{s:s, s:b, s:b, s:b}, s:{s:s}, s:{s:s, s:o, s:[]}}",
                            "added_tokens", added, "pre_tokenizer", "type", "ByteLevel",
                            "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 1, "decoder",
                            "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    char *dump = json_dumps(all, JSON_COMPACT);
    bool ok = dump && scratch_write("tokenizer.json", dump);
    free(dump);
    json_decref(all);
    return ok && scratch_write("tokenizer_config.json",
                               "{\"eos_token\":\"<|im_end|>\",\"chat_template\":\""
                               "{%- for m in messages -%}<|im_start|>{{ m.role }}\\n"
                               "{%- if m.content is string -%}{{ m.content }}{%- else -%}"
                               "{%- for p in m.content -%}{%- if p.type == 'image' -%}"
                               "<|vision_start|><|image_pad|><|vision_end|>"
                               "{%- else -%}{{ p.text }}{%- endif -%}{%- endfor -%}{%- endif -%}"
                               "<|im_end|>\\n{%- endfor -%}<|im_start|>assistant\\n\"}");
}

static bool make_model(void)
{
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "preprocessor_config.json"};
    bool ok = scratch_create() != NULL;
    for (size_t i = 0; ok && i < sizeof files / sizeof files[0]; i++) {
        char *path = golden_path("qwen3_vl", files[i]), *whole = path ? realpath(path, NULL) : NULL;
        ok = whole && symlink(whole, scratch_path(files[i])) == 0;
        free(path);
        free(whole);
    }
    return ok && write_tokenizer();
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Bytes in base64; `out` has room. */
static void encode(const char *bytes, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (uint8_t)bytes[i + k] : 0);
        for (int k = 0; k < 4; k++)
            *out++ = i + (size_t)k > n ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    *out = 0;
}

/* A file of the corpus; for the caller to end. */
static buf read_image(const char *name)
{
    char path[200];
    buf bytes;
    snprintf(path, sizeof path, CORPUS "%s", name);
    buf_init(&bytes, 8192);
    CHECK(file_read(path, &bytes, NULL) == LACE_OK);
    return bytes;
}

/* A file in base64; valid until the next call. */
static const char *base64(const char *name)
{
    static char out[16384];
    buf bytes = read_image(name);
    encode(bytes.data, bytes.size, out);
    buf_deinit(&bytes);
    return out;
}

/* OpenAI's request with a URL for an image. */
static void ask(const char *prefix, const char *url)
{
    static char request[20000];
    snprintf(request, sizeof request,
             "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"What is "
             "this?\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"%s%s\"}}]}],\"max_tokens\":"
             "4,\"temperature\":0,\"ignore_eos\":true}",
             prefix, url);
    served_post(&s, "/v1/chat/completions", request, &a);
}

static void ask_file(const char *name)
{
    ask("data:image/png;base64,", base64(name));
}

/* A number of the answer, by its path. */
static long number(const char *first, const char *second, const char *third)
{
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL), *at = json_object_get(json, first);
    at = second ? json_object_get(at, second) : at;
    at = third ? json_object_get(at, third) : at;
    long n = json_is_integer(at) ? (long)json_integer_value(at) : -1;
    json_decref(json);
    return n;
}

static void images_are_seen(void)
{
    static const char *const files[] = {"rgb.png", "rgb.jpg", "lossy.webp", "turned.jpg"};
    served_get(&s, "/props", &a);
    answer_check(&a, 200, "\"modalities\":{\"vision\":true,\"audio\":false}");
    served_post(&s, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"What "
                "is this?\"}]}],\"max_tokens\":4}",
                &a);
    answer_check(&a, 200, NULL);
    long n_text = number("usage", "prompt_tokens", NULL);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ask_file(files[i]);
        answer_check(&a, 200, "\"finish_reason\":\"length\"");
        /* Two tokens around the rows, of which there are at least four (1,024 pixels). */
        CHECK(number("usage", "prompt_tokens", NULL) >= n_text + 6);
    }
}

static void an_image_is_not_computed_twice(void)
{
    ask_file("interlaced.png");
    long n = number("usage", "prompt_tokens", NULL);
    CHECK(number("usage", "prompt_tokens_details", "cached_tokens") < n - 1);
    ask_file("interlaced.png");
    CHECK(number("usage", "prompt_tokens_details", "cached_tokens") == n - 1);
    ask_file("alpha.png"); /* of the same size, and another */
    CHECK(number("usage", "prompt_tokens", NULL) == n);
    CHECK(number("usage", "prompt_tokens_details", "cached_tokens") < n - 1);
}

/* A JPEG as large as cameras make them: what makes it so is comments. */
static void large_files_are_seen(void)
{
    enum { N_COMMENTS = 200, COMMENT = 65537 };
    static const char begin[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{"
        "\"url\":\"data:image/jpeg;base64,";
    buf small = read_image("rgb.jpg");
    size_t n = small.size + (size_t)N_COMMENTS * COMMENT;
    char *large = calloc(n, 1), *to = large + 2, *request = calloc(2 * n, 1);
    memcpy(large, small.data, 2);
    for (int i = 0; i < N_COMMENTS; i++, to += COMMENT)
        memcpy(to, "\xFF\xFE\xFF\xFF", 4);
    memcpy(to, small.data + 2, small.size - 2);
    strcpy(request, begin);
    encode(large, n, request + strlen(begin));
    strcat(request, "\"}}]}],\"max_tokens\":3,\"ignore_eos\":true}");
    CHECK(strlen(request) > 16u << 20);
    served_post(&s, "/v1/chat/completions", request, &a);
    answer_check(&a, 200, "\"finish_reason\":\"length\"");
    free(large);
    free(request);
    buf_deinit(&small);
}

/* 4,032 x 3,024 pixels of one colour: as many tokens as are allowed, and room for the question. */
static void photos_leave_room_for_their_question(void)
{
    ask("data:image/webp;base64,", "UklGRhoAAABXRUJQVlA4TA0AAAAvv8/zAiheeerR/wIAAA==");
    answer_check(&a, 200, "\"finish_reason\":\"length\"");
    long n = number("usage", "prompt_tokens", NULL);
    CHECK(n > 100 && n < 200); /* of 256 */
}

static void other_apis_have_images(void)
{
    static char request[20000];
    snprintf(request, sizeof request,
             "{\"model\":\"x\",\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":["
             "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\","
             "\"data\":\"%s\"}},{\"type\":\"text\",\"text\":\"Hm?\"}]}]}",
             base64("rgb.png"));
    served_post(&s, "/v1/messages", request, &a);
    answer_check(&a, 200, "\"type\":\"message\"");
    served_post(&s, "/v1/messages/count_tokens", request, &a);
    answer_check(&a, 200, "\"input_tokens\"");
    CHECK(number("input_tokens", NULL, NULL) > 20);
    snprintf(request, sizeof request,
             "{\"model\":\"x\",\"stream\":false,\"options\":{\"num_predict\":3},\"messages\":[{"
             "\"role\":\"user\",\"content\":\"Hm?\",\"images\":[\"%s\"]}]}",
             base64("rgb.png"));
    served_post(&s, "/api/chat", request, &a);
    answer_check(&a, 200, "\"done\":true");
    CHECK(number("prompt_eval_count", NULL, NULL) > 20);
    snprintf(request, sizeof request,
             "{\"model\":\"x\",\"stream\":false,\"options\":{\"num_predict\":3},\"prompt\":\"Hm?\","
             "\"images\":[\"%s\"]}",
             base64("rgb.png"));
    served_post(&s, "/api/generate", request, &a);
    answer_check(&a, 200, "\"done\":true");
    snprintf(request, sizeof request,
             "{\"model\":\"x\",\"max_output_tokens\":3,\"input\":[{\"role\":\"user\",\"content\":[{"
             "\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,%s\"},{\"type\":"
             "\"input_text\",\"text\":\"Hm?\"}]}]}",
             base64("rgb.png"));
    served_post(&s, "/v1/responses", request, &a);
    answer_check(&a, 200, "\"object\":\"response\"");
    served_post(&s, "/api/show", "{\"model\":\"default\"}", &a);
    answer_check(&a, 200, "\"vision\"");
}

/* ---- Images in tools' results ---------------------------------------------------------------- */

/* A call and its result, "one" and perhaps an image, as the clients of each API send them. */
/* clang-format off */
static const struct api {
    const char *path, *begin, *text, *image, *end; /* begin text [, image] end */
    const char *count[2];                          /* where the answer has the prompt's tokens */
} apis[] = {
    {"/v1/chat/completions",
     "{\"max_tokens\":3,\"ignore_eos\":true,\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
     "null,\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"{}\"}}]},"
     "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"one\"}",
     ",{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,%s\"}}", "]}]}",
     {"usage", "prompt_tokens"}},
    {"/v1/messages/count_tokens",
     "{\"model\":\"x\",\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":["
     "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"look\",\"input\":{}}]},{\"role\":\"user\",\"content\":["
     "{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"one\"}",
     ",{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"%s\"}}", "]}]}]}",
     {"input_tokens", NULL}},
    {"/v1/responses",
     "{\"model\":\"x\",\"max_output_tokens\":3,\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"function_call\","
     "\"call_id\":\"a\",\"name\":\"look\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"a\",\"output\":[",
     "{\"type\":\"input_text\",\"text\":\"one\"}",
     ",{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,%s\"}", "]}]}",
     {"usage", "input_tokens"}},
};
/* clang-format on */

enum { N_APIS = sizeof apis / sizeof apis[0] };

/* The tokens of the prompt; data: of an image, or NULL. */
static long ask_result(const served *to, const struct api *api, const char *data)
{
    static char request[20000];
    size_t n = (size_t)snprintf(request, sizeof request, "%s%s", api->begin, api->text);
    if (data)
        n += (size_t)snprintf(request + n, sizeof request - n, api->image, data);
    snprintf(request + n, sizeof request - n, "%s", api->end);
    served_post(to, api->path, request, &a);
    return number(api->count[0], api->count[1], NULL);
}

/* An image in a result has as many tokens as in a question, and is the same image. */
static void check_results(const served *to)
{
    static char request[20000];
    served_post(to, "/v1/chat/completions",
                "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", &a);
    long n = number("usage", "prompt_tokens", NULL);
    snprintf(request, sizeof request,
             "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
             "\"text\":\"q\"},{\"type\":\"image_url\",\"image_url\":{\"url\":"
             "\"data:image/png;base64,%s\"}}]}]}",
             base64("rgb.png"));
    served_post(to, "/v1/chat/completions", request, &a);
    long n_image = number("usage", "prompt_tokens", NULL) - n;
    CHECK(n > 0 && n_image >= 6);
    for (int i = 0; i < N_APIS; i++) {
        long n_text = ask_result(to, &apis[i], NULL);
        answer_check(&a, 200, NULL);
        long n_both = ask_result(to, &apis[i], base64("rgb.png"));
        answer_check(&a, 200, NULL);
        if (!CHECK(n_text > n && n_both == n_text + n_image))
            tap_note("%s: %ld, with an image of %ld %ld", apis[i].path, n_text, n_image, n_both);
        ask_result(to, &apis[i], base64("cut_rgb.png"));
        answer_check(&a, 400, "content[1]: the ");
    }
}

static void tools_without_a_place_show_images(void)
{
    check_results(&s);
}

/* Qwen's own template. */
static void tools_with_a_place_show_images(void)
{
    served with;
    char arguments[1000], *path = data_path("templates/Qwen3.5-4B.jinja");
    snprintf(arguments, sizeof arguments, "%s -c 256 --chat-template-file %s", scratch_path(""),
             path);
    free(path);
    if (!CHECK(served_start(&with, arguments)))
        return;
    check_results(&with);
    CHECK(served_stop(&with) == 0);
}

/* What a client of Anthropic sends beside a result stands behind it; the images keep their order. */
static void images_of_results_come_before_those_of_the_user(void)
{
    static char request[40000];
    static const char form[] =
        "{\"max_tokens\":2,\"model\":\"x\",\"temperature\":0,\"messages\":[{\"role\":\"user\","
        "\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":"
        "\"a\","
        "\"name\":\"look\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"image\","
        "\"source\":{\"type\":\"base64\",\"data\":\"%s\"}},{\"type\":\"text\",\"text\":\"so?\"},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\","
        "\"source\":{\"type\":\"base64\",\"data\":\"%s\"}}]}]}]}";
    char *first = strdup(base64("rgb.png"));
    snprintf(request, sizeof request, form, first, base64("broken_rgb.png"));
    served_post(&s, "/v1/messages", request, &a);
    answer_check(&a, 400, "messages[2].content[0]: the ");
    snprintf(request, sizeof request, form, base64("broken_rgb.png"), first);
    served_post(&s, "/v1/messages", request, &a);
    answer_check(&a, 400, "messages[3].content[0]: the ");
    snprintf(request, sizeof request, form, base64("alpha.png"), first);
    served_post(&s, "/v1/messages", request, &a);
    answer_check(&a, 200, "\"type\":\"message\"");
    free(first);
}

static void bad_images_cost_the_request(void)
{
    static const char *const files[] = {"bomb.png",    "bomb.jpg",       "bomb.webp",
                                        "cut_rgb.jpg", "cut_rgb.png",    "cut_lossy.webp",
                                        "magic.bin",   "broken_rgb.png", "head.jpg"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ask_file(files[i]);
        answer_check(&a, 400, "messages[0].content[1]: the ");
        CHECK(answer_has(&a, "invalid_image"));
    }
    ask("", "https://example.com/cat.png");
    answer_check(&a, 400, "not fetched");
    ask("", "file:///etc/passwd");
    answer_check(&a, 400, "not fetched");
    ask("data:image/png,", "abc");
    answer_check(&a, 400, "not in base64");
    ask("data:image/png;base64,", "&&&&");
    answer_check(&a, 400, "not base64");
    ask("data:image/png;base64,", "");
    answer_check(&a, 400, "the image is empty");
    ask_file("rgb.png");
    answer_check(&a, 200, "\"finish_reason\":\"length\"");
    CHECK(served_look(&s).n_files < 64);
}

/* What does not fit is known before all of it is computed; the last image is not even read. */
static void images_without_end_are_refused_soon(void)
{
    static char request[300000];
    const char *photo = "UklGRhoAAABXRUJQVlA4TA0AAAAvv8/zAiheeerR/wIAAA==";
    size_t n = (size_t)snprintf(request, sizeof request,
                                "{\"messages\":[{\"role\":\"user\",\"content\":[");
    for (int i = 0; i < 63; i++)
        n += (size_t)snprintf(
            request + n, sizeof request - n,
            "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/webp;base64,%s\"}},",
            photo);
    snprintf(request + n, sizeof request - n,
             "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,&\"}}]}]}");
    served_post(&s, "/v1/chat/completions", request, &a);
    answer_check(&a, 400, "context_length_exceeded");
    CHECK(answer_has(&a, "the first 3 images"));
}

static void a_model_without_a_tower_says_so(void)
{
    served plain;
    if (!CHECK(served_start(&plain, "models/tales-4m.gguf")))
        return;
    served_get(&plain, "/props", &a);
    answer_check(&a, 200, "\"modalities\":{\"vision\":false,\"audio\":false}");
    served_post(&plain, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                "\"image_url\":{\"url\":\"data:image/png;base64,aaaa\"}}]}]}",
                &a);
    answer_check(&a, 400, "images_unsupported");
    served_post(&plain, "/api/chat",
                "{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":["
                "\"aaaa\"]}]}",
                &a);
    answer_check(&a, 400, "no vision tower");
    for (int i = 0; i < N_APIS; i++) {
        ask_result(&plain, &apis[i], "aaaa");
        answer_check(&a, 400, "no vision tower");
        ask_result(&plain, &apis[i], NULL);
        answer_check(&a, 200, NULL);
    }
    CHECK(served_stop(&plain) == 0);
}

/* ---- The terminal ---------------------------------------------------------------------------- */

static void the_terminal_shows_images(void)
{
    char folder[400];
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    if (!command_begin())
        return;
    command_run("run %s --image " CORPUS "rgb.png,tests/fuzz/corpus/image/rgb.jpg -n 3 --temp 0 Hm",
                folder);
    if (!CHECK(ran.code == 0))
        tap_note("%s", ran.err);
    command_run("chat %s --image " CORPUS "lossy.webp -n 3 --temp 0 -p Hm", folder);
    CHECK(ran.code == 0);
    command_run("run %s --image " CORPUS "bomb.png -n 3 Hm", folder);
    CHECK(ran.code == 1 && strstr(ran.err, "100000 x 100000"));
    command_run("run models/tales-4m.gguf --image " CORPUS "rgb.png -n 3 Hm");
    CHECK(ran.code == 1 && strstr(ran.err, "--image"));
    command_end();
}

int main(void)
{
    char arguments[600];
    if (!make_model()) {
        tap_note("there is no model that sees");
        return 1;
    }
    snprintf(arguments, sizeof arguments, "%s -c 256 --max-running 4", scratch_path(""));
    if (!served_start(&s, arguments))
        return 1;
    tap_case("images_are_seen", images_are_seen);
    tap_case("an_image_is_not_computed_twice", an_image_is_not_computed_twice);
    tap_case("large_files_are_seen", large_files_are_seen);
    tap_case("photos_leave_room_for_their_question", photos_leave_room_for_their_question);
    tap_case("other_apis_have_images", other_apis_have_images);
    tap_case("tools_without_a_place_show_images", tools_without_a_place_show_images);
    tap_case("tools_with_a_place_show_images", tools_with_a_place_show_images);
    tap_case("images_of_results_come_before_those_of_the_user",
             images_of_results_come_before_those_of_the_user);
    tap_case("bad_images_cost_the_request", bad_images_cost_the_request);
    tap_case("images_without_end_are_refused_soon", images_without_end_are_refused_soon);
    CHECK(served_stop(&s) == 0);
    tap_case("a_model_without_a_tower_says_so", a_model_without_a_tower_says_so);
    tap_case("the_terminal_shows_images", the_terminal_shows_images);
    answer_free(&a);
    scratch_remove();
    return tap_end();
}
