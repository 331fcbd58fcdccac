/*
 * What people meet in their first hour: files that are not what they took them for, models by name
 * in every verb, a machine without models, and vocabularies that come without a model.
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "command.h"
#include "tap.h"
#include "tiny_model.h"

static void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(command_path(name), "wb");
    if (CHECK(f != NULL)) {
        CHECK(fwrite(data, 1, n, f) == n);
        fclose(f);
    }
}

static void put_text(const char *name, const char *contents)
{
    put(name, contents, strlen(contents));
}

/* ---- Wrong files ----------------------------------------------------------------------------- */

static void a_wrong_file_is_named_with_what_to_do(void)
{
    static const struct {
        const char *name, *contents;
        size_t n;
        const char *says;
    } files[] = {
        {"page.gguf", "\n<!DOCTYPE html>\n<html><head>", 29, "is a web page"},
        {"pointer.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", 63,
         "git lfs pull"},
        {"answer.gguf", "Entry not found", 15, "\"Entry not found\""},
        {"empty.gguf", "", 0, "is empty"},
        {"zeros.gguf", "\0\0\0\0\0\0\0\0\0\0\0\0", 12, "not finished"},
        {"archive.gguf", "PK\3\4................", 20, "PyTorch"},
        {"packed.gguf", "\x1f\x8b\x08\0\0\0\0\0\xff\xff\xff\xff", 12, "gunzip"},
        {"old.bin", "tjgg\1\0\0\0\xff\xff\xff\xff", 12, "before GGUF"},
        {"config.json", "{\"model_type\": \"llama\"}", 23, "is a JSON file"},
        {"model.safetensors", "\2\0\0\0\0\0\0\0{}......", 16, "give the directory"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put(files[i].name, files[i].contents, files[i].n);
        command_run("run $dir/%s -p a -n 1", files[i].name);
        command_check_error(files[i].says);
        CHECK(strstr(ran.err, files[i].name) != NULL);
    }
}

static void a_cut_download_is_called_one_at_every_length(void)
{
    buf whole = tiny_model_bytes(tiny_options_small());
    for (size_t n = 100; n < whole.size; n += whole.size / 23) {
        put("cut.gguf", whole.data, n);
        command_run("inspect $dir/cut.gguf");
        command_check_error("incomplete; get it again");
    }
    buf_deinit(&whole);
}

static void a_directory_says_what_is_in_it(void)
{
    mkdir(command_path("folder"), 0755);
    command_run("run $dir/folder -p a");
    command_check_error("empty directory");
    put_text("folder/notes.txt", "x");
    command_run("run $dir/folder -p a");
    command_check_error("without config.json");
    put_text("folder/b.gguf", "x");
    command_run("run $dir/folder -p a");
    command_check_error("give the file: ");
    CHECK(strstr(ran.err, "/folder/b.gguf") != NULL);
    put_text("folder/a.gguf", "x");
    command_run("run $dir/folder -p a");
    command_check_error("/folder/a.gguf");
    CHECK(strstr(ran.err, "2 GGUF files") != NULL);
    mkdir(command_path("torch"), 0755);
    put_text("torch/config.json", "{}");
    put_text("torch/pytorch_model.bin", "x");
    command_run("run $dir/torch -p a");
    command_check_error("PyTorch");
}

static void parts_of_a_directory_are_named_too(void)
{
    mkdir(command_path("hf"), 0755);
    put_text("hf/config.json", "<html>");
    put_text("hf/model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    command_run("run $dir/hf -p a");
    command_check_error("config.json: is a web page");
    put_text("hf/config.json", "{\"model_type\": \"llama\"}");
    command_run("run $dir/hf -p a");
    command_check_error("model.safetensors: is a git-lfs pointer");
}

/* The header's size, which comes first, may be how a file of another kind begins. */
static void a_cut_safetensors_file_is_called_one(void)
{
    enum { HEADER = 640 }; /* 80 02, as a pickle begins */
    static const char entry[] =
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [16], \"data_offsets\": [0, 64]}}";
    char file[8 + HEADER + 64] = {(char)(HEADER & 255), HEADER >> 8};
    memset(file + 8, ' ', HEADER);
    memcpy(file + 8, entry, sizeof entry - 1);
    mkdir(command_path("short"), 0755);
    put_text("short/config.json", "{\"model_type\": \"llama\"}");
    static const size_t sizes[] = {20, 8 + HEADER - 1, 8 + HEADER, sizeof file - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put("short/model.safetensors", file, sizes[i]);
        command_run("inspect $dir/short");
        command_check_error("model.safetensors: at byte");
        CHECK(strstr(ran.err, "the file is incomplete; get it again") != NULL);
    }
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* The model is $LACE_MODELS/tiny.gguf; each verb is to get past opening it. */
static void a_name_works_in_every_verb(void)
{
    static const char *const verbs[] = {
        "inspect tiny",
        "run tiny -p a -n 1",
        "tokenize tiny a",
        "logits tiny --tokens $dir/ids -o $dir/logits",
        "quantize tiny $dir/q.gguf q8_0",
        "quantize tiny $dir/c.gguf s4 --calibrate $dir/text --windows 1",
        "imatrix tiny -f $dir/text -o $dir/imatrix.gguf -c 16",
        "prune tiny $dir/p.gguf --sparsity 0.5 --method magnitude --accept-loss",
        "sparsify tiny $dir/s.json --sparsity 0.5 --calibrate $dir/text",
        "perplexity tiny -f $dir/text -c 16",
        "compare tiny tiny -f $dir/text -c 16",
        "bench tiny -p 8 -n 1 -r 1 --no-limits",
        "convert folder -o $dir/converted.gguf",
    };
    char words[4000];
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = (char)(i % 7 == 0 ? ' ' : 'a' + (int)(i * 31 % 26));
    put("text", words, sizeof words);
    put("ids", (const int32_t[]){1, 4}, 8);
    tiny_options o = tiny_options_default();
    o.n_embd = 32; /* thresholds go by groups of 32 columns */
    o.n_ff = 64;
    buf whole = tiny_model_bytes(o);
    mkdir(command_path("models"), 0755);
    put("models/tiny.gguf", whole.data, whole.size);
    buf_deinit(&whole);
    mkdir(command_path("models/folder"), 0755);
    put_text("models/folder/config.json", "{\"model_type\": \"llama\"}");
    setenv("LACE_MODELS", command_path("models"), 1);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        command_run("%s", verbs[i]);
        /* The folder is no whole model, but it was found: what it lacks is said of its path. */
        bool is_found = strncmp(verbs[i], "convert", 7) == 0
                            ? strstr(ran.err, "/models/folder: ") != NULL
                            : ran.code == 0;
        if (!CHECK(is_found))
            tap_note("%s: %d, %s", verbs[i], ran.code, ran.err);
    }
}

static void a_name_that_is_nowhere_says_where_to_look(void)
{
    command_run("inspect nothing-of-that-name");
    command_check_error("lace list");
}

static void list_without_models_says_how_to_get_one(void)
{
    mkdir(command_path("home"), 0755);
    setenv("HOME", command_path("home"), 1);
    unsetenv("LACE_MODELS");
    command_run("list");
    CHECK(ran.code == 0);
    CHECK(strstr(ran.out, "lace pull Qwen/") && strstr(ran.out, "lace pull ollama:"));
    CHECK(strstr(ran.out, "lace chat"));
}

/* ---- Vocabularies ---------------------------------------------------------------------------- */

enum { N_TOKENS = 3 + 256 };

/* <unk>, <s>, </s> and the byte tokens, no tensors, and the name of an architecture. */
static void put_vocab(const char *name, const char *architecture)
{
    gguf_writer *w = NULL;
    lace_error err;
    text items[N_TOKENS] = {text_of("<unk>"), text_of("<s>"), text_of("</s>")};
    float scores[N_TOKENS] = {0};
    int32_t types[N_TOKENS] = {2, 3, 3}; /* unknown, control, control */
    char bytes[256][8];
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        items[3 + i] = text_of(bytes[i]);
        types[3 + i] = 6; /* a byte */
    }
    buf out;
    buf_init(&out, 1 << 20);
    CHECK(gguf_writer_create(&w, &err) == LACE_OK);
    gguf_writer_add_text(w, "general.architecture", text_of(architecture), NULL);
    gguf_writer_add_text(w, "tokenizer.ggml.model", text_of("llama"), NULL);
    gguf_writer_add_texts(w, "tokenizer.ggml.tokens", items, N_TOKENS, NULL);
    gguf_writer_add_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, N_TOKENS, NULL);
    gguf_writer_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, N_TOKENS, NULL);
    CHECK(gguf_writer_to_buf(w, &out, &err) == LACE_OK);
    put(name, out.data, out.size);
    buf_deinit(&out);
    gguf_writer_free(w);
}

static void a_vocabulary_alone_can_be_used(void)
{
    static const char *const architectures[] = {"llama", "an-unknown-one"};
    for (int i = 0; i < 2; i++) {
        put_vocab("vocab.gguf", architectures[i]);
        command_run("tokenize $dir/vocab.gguf --no-special a");
        CHECK(ran.code == 0 && ran.out[0] == '[');
        command_run("inspect $dir/vocab.gguf");
        CHECK(ran.code == 0 && strstr(ran.out, "spm, 259 tokens"));
        command_run("inspect $dir/vocab.gguf -o json");
        CHECK(ran.code == 0 && strstr(ran.out, "\"n_vocab\": 259"));
        command_run("run $dir/vocab.gguf -p a");
        command_check_error(i ? "an-unknown-one" : "only lace tokenize can use it");
        command_run("quantize $dir/vocab.gguf $dir/never.gguf q8_0");
        command_check_error(i ? "an-unknown-one\", which lace does not run"
                              : "only lace tokenize can use it");
    }
}

/* ---- Special files --------------------------------------------------------------------------- */

/* Exit code of a command that is ended after 20 s; then it is 124. Nobody writes into the pipes. */
static int code_in_time(const char *arguments)
{
    char line[512];
    snprintf(line, sizeof line, "cd %s && timeout 20 \"$lace_here\" %s >/dev/null 2>&1",
             command_path(""), arguments);
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void make_pipe(const char *folder, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(command_path(path));
    CHECK(mkfifo(command_path(path), 0644) == 0);
}

static void pipes_in_place_of_files_are_never_waited_for(void)
{
    static const char *const names[] = {
        "config.json",    "model.safetensors",     "model.safetensors.index.json",
        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mkdir(command_path("pipe"), 0755);
        put_text("pipe/config.json", "{\"model_type\": \"llama\"}");
        make_pipe("pipe", names[i]);
        if (!CHECK(code_in_time("run pipe -p a -n 1") == 1))
            tap_note("%s", names[i]);
        char path[64];
        snprintf(path, sizeof path, "pipe/%s", names[i]);
        remove(command_path(path));
    }
    make_pipe(".", "pipe.gguf");
    CHECK(code_in_time("inspect pipe.gguf") == 1);
    CHECK(code_in_time("inspect /dev/zero") == 1);
    /* A whole model with a pipe beside it. */
    make_pipe("models", "config.json");
    CHECK(code_in_time("run models/tiny.gguf -p a -n 1") == 0);
}

static void list_passes_over_pipes_in_stores(void)
{
    static const char *const folders[] = {
        "home/.ollama/models/manifests/host/library/m",
        "home/.cache/huggingface/hub/models--a--b/refs",
        "home/.cache/huggingface/hub/models--a--b/snapshots/r",
    };
    char line[512];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(line, sizeof line, "mkdir -p %s", command_path(folders[i]));
        CHECK(system(line) == 0);
    }
    make_pipe(folders[0], "latest");
    make_pipe(folders[1], "main");
    make_pipe(folders[2], "config.json");
    CHECK(code_in_time("list") == 0);
}

int main(void)
{
    if (!command_begin())
        return 1;
    char here[4096];
    setenv("lace_here", realpath(getenv("lace"), here), 1);
    CASE(a_wrong_file_is_named_with_what_to_do);
    CASE(a_cut_download_is_called_one_at_every_length);
    CASE(a_directory_says_what_is_in_it);
    CASE(parts_of_a_directory_are_named_too);
    CASE(a_cut_safetensors_file_is_called_one);
    CASE(a_name_works_in_every_verb);
    CASE(a_name_that_is_nowhere_says_where_to_look);
    CASE(list_without_models_says_how_to_get_one);
    CASE(a_vocabulary_alone_can_be_used);
    CASE(pipes_in_place_of_files_are_never_waited_for);
    CASE(list_passes_over_pipes_in_stores);
    command_end();
    return tap_end();
}
