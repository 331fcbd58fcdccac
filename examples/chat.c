// A conversation: chat MODEL.gguf. One line is one message; an empty line ends it.
#include <lace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lace_error err;
static char said[100][8192]; // by the user and the model in turn

static void check(lace_status status)
{
    if (status != LACE_OK) {
        fprintf(stderr, "chat: %s\n", err.text);
        exit(1);
    }
}

static void show(void *answer, const lace_reply_event *e) // reasoning is an event, too
{
    if (e->kind != LACE_REPLY_CONTENT || strlen(answer) + e->n_bytes >= sizeof said[0])
        return;
    strncat(answer, e->text, e->n_bytes);
    printf("%.*s", (int)e->n_bytes, e->text);
    fflush(stdout);
}

static void on_piece(void *reply, const lace_piece *piece)
{
    check(piece->error ? (err = *piece->error).status : LACE_OK);
    check(lace_reply_push(reply, piece->text, piece->n_bytes, &err));
}

int main(int argc, char **argv)
{
    lace_model_options model_options = lace_model_options_default();
    lace_batcher_options batcher_options = lace_batcher_options_default();
    lace_message messages[100];
    lace_model *model;
    lace_chat *chat;
    lace_batcher *batcher; // keeps what prompts begin with, so each message is read once
    check(lace_model_open(argc > 1 ? argv[1] : "model.gguf", &model_options, &model, &err));
    check(lace_chat_create(model, NULL, &chat, &err));
    batcher_options.session.n_sequences = 1;
    check(lace_batcher_create(model, &batcher_options, &batcher, &err));

    for (size_t n = 0; n < 100 && fgets(said[n], sizeof said[n], stdin); n += 2) {
        said[n][strcspn(said[n], "\n")] = 0;
        if (!said[n][0])
            break;
        messages[n] = (lace_message){"user", said[n]};
        messages[n + 1] = (lace_message){"assistant", said[n + 1]};
        lace_chat_request request = {.messages = messages, .n_messages = n + 1};
        lace_generation_options options = lace_generation_options_default();
        lace_prompt *prompt;
        lace_reply *reply;
        lace_generation *generation;
        check(lace_chat_prompt(chat, &request, &prompt, &err));
        check(lace_reply_create(chat, prompt, show, said[n + 1], &reply, &err));
        options.prompt = prompt->tokens;
        options.n_prompt = prompt->n_tokens;
        options.max_tokens = 200;
        options.on_piece = on_piece;
        options.user = reply;
        check(lace_batcher_add(batcher, &options, &generation, &err));
        while (lace_batcher_step(batcher))
            ;
        check(lace_reply_finish(reply, NULL, &err));
        puts("");
        lace_reply_free(reply);
        lace_prompt_free(prompt);
    }
    lace_batcher_free(batcher);
    lace_chat_free(chat);
    lace_model_close(model);
}
