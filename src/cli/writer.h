/*
 * What writes: one text after another, through a batcher of one sequence. lace run and lace chat
 * share it.
 *
 *     TRY(writer_init(&w, &options, model, &model_options, &session_options, false, err));
 *     TRY(writer_write(&w, &order, &report, err));
 */
#ifndef LACE_CLI_WRITER_H
#define LACE_CLI_WRITER_H

#include "base/bytes.h"
#include "cli/choose.h"

typedef struct writer {
    const choose_options *options;
    lace_model *model; /* borrowed */
    lace_model *draft; /* what follows is NULL where it is not needed */
    lace_grammar *form;
    lace_token *breakers; /* [n_breakers] over which DRY finds no repetition */
    size_t n_breakers;
    lace_batcher *batcher;
    uint64_t n_steps; /* tokens of all texts, but for those that follow a prompt */
} writer;

/*
 * For a model, and the options that it was opened with: a draft is opened in the same way. The
 * session's on_progress is the writer's. `options` must live as long. After a failure, too, deinit
 * is to be called.
 */
lace_status writer_init(writer *w, const choose_options *options, lace_model *model,
                        const lace_model_options *model_options,
                        const lace_session_options *session_options, bool use_prefixes,
                        lace_error *err);
void writer_deinit(writer *w);

/* A text to be written. */
typedef struct writer_order {
    const lace_token *prompt; /* [n_prompt] */
    size_t n_prompt;
    lace_image *const *images; /* [n_images] of the prompt, in its order */
    size_t n_images;
    uint64_t seed;
    int32_t max_tokens;       /* -1: until the text or the context ends */
    const volatile int *stop; /* ends the text when it becomes nonzero */
    /* The prompt is read. May be NULL. */
    lace_status (*on_begin)(void *user, lace_error *err);
    /* A token (-1: none, or one that ends the text) and the text that it completes. */
    lace_status (*on_piece)(void *user, lace_token token, text piece, lace_error *err);
    /* As in lace_generation_options; may be NULL. */
    size_t (*on_full)(void *user, const lace_token **tokens);
    void *user;
} writer_order;

typedef enum writer_end {
    WRITER_STOPPED,  /* by the caller */
    WRITER_ENDED,    /* the model has chosen an end */
    WRITER_COMPLETE, /* the text has its form, and cannot go on */
    WRITER_CUT,      /* max_tokens */
    WRITER_FULL,     /* the context */
} writer_end;

/* What a text took. */
typedef struct writer_report {
    bool is_read;                    /* the prompt */
    size_t n_cached;                 /* tokens of it that were computed for an earlier text */
    size_t n_generated;              /* tokens, without one that ends the text */
    size_t n_steps;                  /* tokens, with it, but for those that follow a prompt */
    size_t n_used;                   /* of the context, at the end */
    uint64_t prompt_ns, generate_ns; /* without what packing the weights took: */
    uint64_t packing_ns;
    writer_end end;
} writer_report;

lace_status writer_write(writer *w, const writer_order *order, writer_report *report,
                         lace_error *err);

/* Append " | 4 of 9 guesses right ..." to a line of statistics; nothing without guesses. */
void writer_append_counts(const writer *w, char *line, size_t size);

#endif
