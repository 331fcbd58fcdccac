/* A text for calibration, written by the model itself. */
#include "compress/fit_text.h"

#include "base/mem.h"

enum { MAX_TEXTS = 64 };

typedef struct author {
    lace_decoder *decoder;
    buf text;
    lace_token next;
} author;

static lace_status begin(lace_model *model, lace_session *session, author *authors, int32_t n,
                         lace_error *err)
{
    lace_token first[4];
    size_t n_first;
    TRY(lace_tokenize(model, "", 0, LACE_TOKENIZE_ADD_SPECIAL, first, 4, &n_first, err));
    if (n_first == 0) /* no BOS: a line end, which most texts have before their first word */
        TRY(lace_tokenize(model, "\n", 1, 0, first, 4, &n_first, err));
    for (int32_t i = 0; i < n; i++) {
        buf_init(&authors[i].text, 1 << 20);
        authors[i].next = first[0];
        TRY(lace_decoder_create(model, &authors[i].decoder, err));
    }
    return LACE_OK;
}

/* One more token of each. */
static lace_status step(lace_model *model, lace_session *session, lace_sampler *sampler,
                        author *authors, int32_t n, lace_error *err)
{
    lace_item items[MAX_TEXTS];
    for (int32_t i = 0; i < n; i++)
        items[i] = (lace_item){.token = authors[i].next, .sequence = i, .want_logits = true};
    TRY(lace_session_eval(session, items, (size_t)n, err));
    for (int32_t i = 0; i < n; i++) {
        const char *piece;
        size_t n_bytes;
        TRY(lace_sampler_sample(sampler, lace_session_logits(session, (size_t)i), &authors[i].next,
                                err));
        if (lace_token_is_end(model, authors[i].next)) {
            TRY(buf_append_text(&authors[i].text, "\n"));
            continue;
        }
        TRY(lace_decoder_push(authors[i].decoder, authors[i].next, &piece, &n_bytes, err));
        TRY(buf_append(&authors[i].text, piece, n_bytes));
    }
    return LACE_OK;
}

lace_status fit_text_write(lace_model *model, int32_t n_texts, int32_t n_tokens, int32_t n_threads,
                           lace_progress_fn on_progress, void *progress_user, buf *out,
                           lace_error *err)
{
    lace_session *session = NULL;
    lace_sampler *sampler = NULL;
    author authors[MAX_TEXTS] = {0};
    lace_model_info info;
    lace_session_options so = lace_session_options_default();
    lace_sampler_options sampling = lace_sampler_options_default();
    int32_t n = n_texts < MAX_TEXTS ? n_texts : MAX_TEXTS;
    lace_model_describe(model, &info);
    if (n_tokens > info.n_context)
        n_tokens = info.n_context;
    so.n_context = n_tokens;
    so.n_sequences = so.n_outputs = n;
    so.n_threads = n_threads;
    sampling.seed = 1;
    sampling.temperature = 1;
    sampling.top_k = 0;
    sampling.top_p = 1;
    sampling.min_p = 0;
    lace_status status = lace_session_create(model, &so, &session, err);
    if (status == LACE_OK)
        status = lace_sampler_create(&sampling, info.n_vocab, &sampler, err);
    if (status == LACE_OK)
        status = begin(model, session, authors, n, err);
    for (int32_t i = 0; i < n_tokens && status == LACE_OK; i++) {
        if (on_progress &&
            !on_progress(progress_user, "writing a text to calibrate on", (double)i / n_tokens))
            status = LACE_E_CANCELLED;
        else
            status = step(model, session, sampler, authors, n, err);
    }
    for (int32_t i = 0; i < n; i++) {
        if (status == LACE_OK)
            status = buf_append(out, authors[i].text.data ? authors[i].text.data : "",
                                authors[i].text.size);
        if (status == LACE_OK)
            status = buf_append_text(out, "\n");
        lace_decoder_free(authors[i].decoder);
        buf_deinit(&authors[i].text);
    }
    lace_sampler_free(sampler);
    lace_session_free(session);
    return status;
}
