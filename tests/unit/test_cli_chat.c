/*
 * Questions and conversations: lace run with a chat model, and lace chat from a pipe. What a
 * terminal shows is in test_terminal. Runs from the project's root.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "formats/gguf_write.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

/* Names who speaks; says OFF, ON or an effort where it is told about reasoning. */
static const char plain[] =
    "{{ bos_token }}{% if enable_thinking is defined %}{{ 'ON' if enable_thinking else 'OFF' }}"
    "{% endif %}{% if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]";

#define TALES "models/tales-4m.gguf"
#define CHAT  TALES " --chat-template-file $dir/plain.jinja "

static char before[sizeof ran.out];
static size_t n_before;

static void remember(void)
{
    memcpy(before, ran.out, sizeof before);
    n_before = ran.n_out;
}

static bool is_same(void)
{
    return ran.n_out == n_before && memcmp(before, ran.out, n_before) == 0;
}

static void write_text(const char *name, const char *contents)
{
    FILE *f = fopen(command_path(name), "wb");
    if (CHECK(f != NULL)) {
        fputs(contents, f);
        fclose(f);
    }
}

static void slurp(const char *name, char *into, size_t size, size_t *n)
{
    FILE *f = fopen(command_path(name), "rb");
    *n = f ? fread(into, 1, size - 1, f) : 0;
    into[*n] = 0;
    if (f)
        fclose(f);
}

/* A conversation: lines for lace chat. The result is in `program`. */
static void talk(const char *arguments, const char *lines)
{
    char command[1200];
    write_text("in", lines);
    snprintf(command, sizeof command,
             "dir=%s; \"$lace\" chat %s <\"$dir/in\" >\"$dir/out\" 2>\"$dir/err\"",
             command_path(""), arguments);
    int status = system(command);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp("out", ran.out, sizeof ran.out, &ran.n_out);
    slurp("err", ran.err, sizeof ran.err, &ran.n_err);
}

static bool check_success(void)
{
    if (CHECK(ran.code == 0))
        return true;
    tap_note("code %d: %s", ran.code, ran.err);
    return false;
}

/* A model with a chat template of its own at $dir/chat.gguf. */
static bool write_chat_model(void)
{
    tiny_options o = tiny_options_default();
    gguf_writer *w = NULL;
    o.n_context = 512;
    bool ok = tiny_model_create(&o, &w, NULL) == LACE_OK &&
              gguf_writer_add_text(w, "tokenizer.chat_template", text_of(plain), NULL) == LACE_OK &&
              gguf_writer_to_file(w, command_path("chat.gguf"), NULL, NULL, NULL) == LACE_OK;
    gguf_writer_free(w);
    return CHECK(ok);
}

/* ---- One question ---------------------------------------------------------------------------- */

static void run_asks_a_chat_model_and_continues_a_base_model(void)
{
    if (!write_chat_model())
        return;
    command_run("run $dir/chat.gguf --raw -p '[user] Why?\n[assistant]' --temp 0 -n 12 "
                "--no-display-prompt");
    check_success();
    CHECK(strstr(ran.err, "chat template") == NULL);
    remember();
    static const char *const ways[] = {"run $dir/chat.gguf 'Why?'", "run $dir/chat.gguf -p 'Why?'",
                                       "run $dir/chat.gguf -f $dir/why",
                                       "chat $dir/chat.gguf -p 'Why?'",
                                       "chat $dir/chat.gguf -f $dir/why"};
    write_text("why", "Why?\n");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        command_run("%s --temp 0 -n 12", ways[i]);
        if (!(check_success() && CHECK(is_same())))
            tap_note("%s", ways[i]);
        bool says_so = strstr(ran.err, "| by its chat template (--raw: not)") != NULL;
        CHECK(says_so == (ways[i][0] == 'r'));
    }
    command_run("run " TALES " 'Why?' --temp 0 -n 4");
    check_success();
    CHECK(strncmp(ran.out, "Why?", 4) == 0 && !strstr(ran.err, "chat template"));
}

static void raw_text_is_printed_with_what_follows_it(void)
{
    if (!write_chat_model())
        return;
    command_run("run $dir/chat.gguf --raw 'Why?' -n 0");
    check_success();
    CHECK(strcmp(ran.out, "Why?\n") == 0);
    command_run("run -m $dir/chat.gguf -no-cnv -p 'Why?' -n 0"); /* llama.cpp's word for it */
    check_success();
    CHECK(strcmp(ran.out, "Why?\n") == 0);
    command_run("run $dir/chat.gguf 'Why?' -n 0"); /* a question is not printed */
    check_success();
    CHECK(ran.n_out == 0);
    command_run("run $dir/chat.gguf --raw 'Why?' --think off");
    command_check_error("--raw uses no chat template");
    command_run("chat " TALES " -p a -f b");
    command_check_error("-p and -f exclude each other");
}

static void a_template_file_takes_the_place_of_the_models(void)
{
    write_text("other.jinja", "{{ bos_token }}{{ messages[0].content }}, once upon a time");
    command_run("run " TALES " 'A king, once upon a time' --temp 0 -n 12 --no-display-prompt");
    check_success();
    remember();
    command_run("run " TALES " --chat-template-file $dir/other.jinja 'A king' --temp 0 -n 12");
    CHECK(check_success() && is_same());
    command_run("chat " TALES " --chat-template-file $dir/other.jinja -p 'A king' --temp 0 -n 12");
    CHECK(check_success() && is_same());
    command_run("chat " TALES " --chat-template-file $dir/absent.jinja -p x");
    command_check_error("absent.jinja");
    write_text("bad.jinja", "{% if %}");
    command_run("run " TALES " --chat-template-file $dir/bad.jinja x");
    command_check_error("bad.jinja");
}

static void think_tells_the_template(void)
{
    static const struct {
        const char *word, *rendered;
    } rows[] = {{"off", "OFF[user] Why?\n[assistant]"},
                {"on", "ON[user] Why?\n[assistant]"},
                {"auto", "[user] Why?\n[assistant]"},
                {"low", "ONlow[user] Why?\n[assistant]"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        command_run("run " TALES " -p '%s' --temp 0 -n 12 --no-display-prompt", rows[i].rendered);
        check_success();
        remember();
        command_run("chat " CHAT "-p 'Why?' --temp 0 -n 12 --think %s", rows[i].word);
        if (!CHECK(check_success() && is_same()))
            tap_note("--think %s", rows[i].word);
    }
    write_text("none.jinja", "{{ messages[0].content }}");
    command_run("chat " TALES " --chat-template-file $dir/none.jinja -p x --think off");
    command_check_error("--think: the chat template of this model has no switch for reasoning");
    command_run("run " TALES " x --think off");
    command_check_error("--think: the model has no chat template, so it cannot be told");
    command_run("chat " CHAT "-p x --think maybe");
    command_check_error("expected one of auto|on|off|low|medium|high");
}

static void reasoning_is_no_part_of_the_answer_unless_asked_for(void)
{
    write_text("think.jinja", "{{ bos_token }}{{ messages[0].content }}<think>\n");
    for (int i = 0; i < 2; i++) {
        const char *verb = i ? "chat" : "run";
        command_run("%s " TALES " --chat-template-file $dir/think.jinja -p Why? -n 9 --temp 0",
                    verb);
        CHECK(check_success() && ran.n_out == 0);
        command_run("%s " TALES " --chat-template-file $dir/think.jinja -p Why? -n 9 --temp 0 "
                    "--show-tags",
                    verb);
        CHECK(check_success() && ran.n_out > 9);
    }
    command_run("chat " CHAT "--mode text -p x");
    command_check_error("--mode text uses no template");
}

/* ---- Conversations --------------------------------------------------------------------------- */

static void each_answer_has_the_form_that_was_asked_for(void)
{
    talk(CHAT "--temp 0 --json-schema '{\"enum\":[\"yes\",\"no\"]}'", "One?\nTwo?\nThree?\n");
    check_success();
    int n = 0;
    for (char *save = NULL, *line = strtok_r(ran.out, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), n++)
        CHECK(strcmp(line, "\"yes\"") == 0 || strcmp(line, "\"no\"") == 0);
    CHECK(n == 3);
    talk(CHAT "--temp 0 --regex '[a-f]{7}'", "One?\n");
    CHECK(check_success() && ran.n_out == 8 && strspn(ran.out, "abcdef") == 7);
    talk(CHAT "--grammar 'root ::= \"A\" \"B\"+ \"C\"' -n 40", "One?\n");
    CHECK(check_success() && strncmp(ran.out, "AB", 2) == 0);
    talk(CHAT "--json --regex a", "");
    CHECK(ran.code == 1 && strstr(ran.err, "exclude each other"));
}

static void guesses_ahead_do_not_change_a_conversation(void)
{
    static const char lines[] = "Once upon a time\nOnce upon a time\nAnd then?\n";
    static const char *const ways[] = {"--lookup", "--draft " TALES, "-md " TALES " --lookup"};
    talk(CHAT "--seed 5 -n 24", lines);
    check_success();
    CHECK(ran.n_out > 100);
    remember();
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, CHAT "--seed 5 -n 24 %s", ways[i]);
        talk(arguments, lines);
        if (!CHECK(check_success() && is_same()))
            tap_note("%s", ways[i]);
    }
}

/*
 * Every answer must have 40 characters, so that one which is cut is seen. The contexts are such that
 * they become full between answers and in the middle of them.
 */
static void a_full_context_drops_the_oldest_turns_and_says_so(void)
{
    static const char lines[] = "Tell 1\nTell 2\nTell 3\nTell 4\nTell 5\nTell 6\nTell 7\n"
                                "/save $FILE\n/stats\n";
    static const int contexts[] = {50, 57, 64, 71};
    char input[1024], arguments[512];
    const char *file = strstr(lines, "$FILE");
    snprintf(input, sizeof input, "%.*s%s%s", (int)(file - lines), lines, command_path("all.json"),
             file + 5);
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        snprintf(arguments, sizeof arguments, CHAT "--seed 3 --regex '[a-zA-Z ]{40}' -c %d",
                 contexts[i]);
        talk(arguments, input);
        if (!check_success())
            continue;
        int n_whole = 0, n_used = 0, n_context = 0;
        for (char *save = NULL, *line = strtok_r(ran.out, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
            n_whole += strlen(line) == 40;
            const char *used = strstr(line, "generated, ");
            if (used)
                CHECK(sscanf(used, "generated, %d of %d tokens", &n_used, &n_context) == 2);
        }
        if (!CHECK(n_whole == 7 && n_used > 0 && n_used <= n_context && n_context == contexts[i]))
            tap_note("-c %d: %d whole answers, %d of %d", contexts[i], n_whole, n_used, n_context);
        CHECK(strncmp(ran.err, "lace: the context is full: ", 27) == 0);
        CHECK(strstr(ran.err, " older messages were dropped") != NULL);
        char saved[8192]; /* nothing is lost for the user */
        size_t n;
        slurp("all.json", saved, sizeof saved, &n);
        CHECK(strstr(saved, "Tell 1") != NULL && strstr(saved, "Tell 7") != NULL);
    }
    talk(CHAT "-c 32", "one two three four five six seven eight nine ten eleven twelve thirteen "
                       "fourteen fifteen sixteen seventeen eighteen nineteen twenty\n");
    CHECK(ran.code == 1 && strstr(ran.err, "tokens, the context 32: ") != NULL);
}

static void clear_resets_the_statistics(void)
{
    talk(CHAT "-n 8 --seed 1", "Hello\nAnd?\n/stats\n/clear\n/stats\n");
    check_success();
    const char *first = strstr(ran.out, "conversation: 2 answers, ");
    const char *second = first ? strstr(first, "last answer: ") : NULL;
    if (!CHECK(second &&
               strncmp(second, "last answer: prompt 0 tokens (0 of them cached)", 47) == 0 &&
               strstr(second, "conversation: 0 answers, 0 tokens generated, 0 of ")))
        tap_note("%s", ran.out);
}

int main(void)
{
    if (!command_begin())
        return 1;
    write_text("plain.jinja", plain);
    CASE(run_asks_a_chat_model_and_continues_a_base_model);
    CASE(raw_text_is_printed_with_what_follows_it);
    CASE(a_template_file_takes_the_place_of_the_models);
    CASE(think_tells_the_template);
    CASE(reasoning_is_no_part_of_the_answer_unless_asked_for);
    CASE(each_answer_has_the_form_that_was_asked_for);
    CASE(guesses_ahead_do_not_change_a_conversation);
    CASE(a_full_context_drops_the_oldest_turns_and_says_so);
    CASE(clear_resets_the_statistics);
    command_end();
    return tap_end();
}
