// Continue a text: complete MODEL.gguf "Once upon a time"
#include <lace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lace_error err;

static void check(lace_status status)
{
    if (status != LACE_OK) {
        fprintf(stderr, "complete: %s\n", err.text);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *text = argc > 2 ? argv[2] : "Once upon a time";
    lace_model_options model_options = lace_model_options_default();
    lace_model *model;
    check(lace_model_open(argc > 1 ? argv[1] : "model.gguf", &model_options, &model, &err));

    lace_token tokens[1024];
    lace_item items[1024];
    size_t n;
    check(lace_tokenize(model, text, strlen(text), LACE_TOKENIZE_ADD_SPECIAL, tokens, 1024, &n,
                        &err));
    n = n < 1024 ? n : 1024;
    for (size_t i = 0; i < n; i++) // only the last token needs logits
        items[i] = (lace_item){.token = tokens[i], .want_logits = i + 1 == n};

    lace_session_options session_options = lace_session_options_default();
    lace_sampler_options sampler_options = lace_sampler_options_default();
    lace_model_info info;
    lace_session *session;
    lace_sampler *sampler;
    lace_decoder *decoder;
    lace_model_describe(model, &info);
    check(lace_session_create(model, &session_options, &session, &err));
    check(lace_sampler_create(&sampler_options, info.n_vocab, &sampler, &err));
    check(lace_decoder_create(model, &decoder, &err));
    check(lace_session_eval(session, items, n, &err));

    for (int i = 0; i < 100; i++) {
        lace_item next = {.want_logits = true};
        size_t n_bytes;
        check(lace_sampler_sample(sampler, lace_session_logits(session, 0), &next.token, &err));
        if (lace_token_is_end(model, next.token))
            break;
        check(lace_decoder_push(decoder, next.token, &text, &n_bytes, &err));
        fwrite(text, 1, n_bytes, stdout);
        check(lace_session_eval(session, &next, 1, &err));
    }

    lace_decoder_free(decoder);
    lace_sampler_free(sampler);
    lace_session_free(session);
    lace_model_close(model);
}
