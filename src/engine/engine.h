/* What the public handles of lace.h are made of. */
#ifndef LACE_ENGINE_ENGINE_H
#define LACE_ENGINE_ENGINE_H

#include <pthread.h>

#include "base/work_limit.h"
#include "engine/placing.h"
#include "lace.h"
#include "runner/predictor.h"
#include "runner/runner.h"
#include "sampler/sampler.h"
#include "tokenizer/tokenizer.h"

struct lace_model {
    model *m;                      /* NULL: opened for its vocabulary alone */
    weights *files;                /* the model's; its own without one */
    struct together *others;       /* ranks that compute it with this one; NULL: none */
    int32_t n_vocab;               /* logits of a token; tokens of the vocabulary without a model */
    tokenizer *tokens;             /* NULL: the file has no vocabulary, or it was not asked for */
    char *name;                    /* general.name */
    char device_name[128];         /* of its own; "": the CPU */
    char note[PLACING_NOTE_BYTES]; /* what was chosen of where it runs; "": nothing */
    char *chat_template;
    const char *main_type; /* the type of most weights */
    uint64_t n_parameters, tensor_bytes;
    float *adapter_scales;     /* [m->n_adapters] of texts that are told nothing */
    pthread_mutex_t load_lock; /* the first session packs the weights, others wait for it */
    struct grammar_vocab *grammar_tokens; /* made for the first grammar, under load_lock */
    struct kept_grammar *kept_grammars;   /* the last ones used first, under load_lock */
};

/* grammar.c: give up the grammars that are kept. */
void grammars_forget(lace_model *lm);
/* lace_grammar_state_mask within a limit; LACE_E_LIMIT and limit->is_over: nothing has changed. */
lace_status grammar_state_mask_within(lace_grammar_state *s, work_limit *limit, float *logits,
                                      lace_error *err);

/* adapters.c: scales of all of the model's adapters, of what a text asks for; n_uses -1: the usual. */
lace_status adapters_choose(const lace_model *lm, const lace_adapter_use *uses, int32_t n_uses,
                            float *out, lace_error *err);
/* A number for texts that may share what they begin with: of one owner, with the same adapters. */
bool adapters_owner(const lace_model *lm, const float *scales, uint64_t owner, uint64_t *out);
/* Let an empty sequence use adapters by these scales, or by the usual ones (NULL). */
void adapters_apply(lace_session *s, int32_t sequence, const float *scales);

/* What the steps of a session took so far; trace.c. All functions take NULL: no trace. */
typedef struct session_trace session_trace;

void session_trace_free(session_trace *t);
/* After a traced run of this batch. */
lace_status session_trace_add(session_trace *t, const program *p, const batch *b, lace_error *err);

struct lace_decoder {
    decoder *d;
};

struct lace_session {
    lace_model *model;
    lace_session_options options; /* with defaults filled in */
    runner *runner;
    pool *workers;        /* the runner's */
    states *kv;           /* the runner's */
    predictor *predictor; /* NULL: not asked for */
    session_trace *trace; /* NULL: not asked for */
    int32_t *lengths;     /* [n_sequences] before an eval */
    int32_t *new_lengths; /* [n_sequences] after it */
    int32_t *history;     /* [n_sequences, n_context] tokens, which models with recurrent layers
                             compute again where they cannot go back; NULL: they are not kept */

    struct session_images *images; /* [n_sequences] those that lace_session_eval_image appended;
                                      NULL: none yet */
    const float **logits;          /* [n_outputs] rows of the last eval */
    int32_t n_logits;
    bool has_words;     /* the last eval was told how to choose: program_word has the words */
    float *kept_logits; /* [n_outputs, n_vocab], for evals of several batches */
};

/* Options with their defaults filled in; checked. given may be NULL. */
lace_status session_fill_options(const lace_model *lm, const lace_session_options *given,
                                 lace_session_options *out, lace_error *err);

/* How a card does what a sampler (NULL: the best) would; false if none can. */
bool session_rule(const lace_sampler *sampler, choice_rule *out);

/* Whether the session's device can choose by such a rule: some draw from few candidates alone. */
static inline bool session_follows(const lace_session *s, const choice_rule *rule)
{
    int32_t most = s->runner->program->most_drawn_from;
    return rule->temperature <= 0 || most == 0 || (rule->top_k >= 1 && rule->top_k <= most);
}

/*
 * What comes now may be taken back: recurrent layers remember the sequence as it is, so that few
 * tokens are computed again.
 */
void session_mark(lace_session *s, int32_t sequence);

/*
 * Tokens up to n_tokens that recurrent state has lost are computed again. They are those of evals,
 * and those that a device has chosen by itself, which session_remember is told of.
 */
lace_status session_compute_again(lace_session *s, int32_t sequence, int32_t n_tokens,
                                  lace_error *err);
void session_remember(lace_session *s, int32_t sequence, int32_t position, lace_token token);

/* The token with the largest of n logits, the first of equal ones. */
lace_token best_token(const float *logits, int32_t n);

/*
 * lace_session_eval for those who want tokens and not logits. rules: [outputs], see program_run.
 * On the CPU, and where a card has refused, there are logits only.
 */
lace_status session_eval_choosing(lace_session *s, const lace_item *items, size_t n_items,
                                  const choice_rule *rules, lace_error *err);

/*
 * The same in two parts, for up to n_batch items (program_submit): the sequences are longer at once,
 * and what comes of it is there when it is collected. A token of -1: see program_submit. n_outputs:
 * of the batch that is collected.
 */
lace_status session_submit(lace_session *s, const lace_item *items, size_t n_items,
                           const choice_rule *rules, lace_error *err);
lace_status session_collect(lace_session *s, int32_t n_outputs, lace_error *err);

/*
 * lace_session_eval of an encoder: segments [n_items] are those of the texts that tokens belong to,
 * each below the number that the model tells apart.
 */
lace_status session_eval_segments(lace_session *s, const lace_item *items, size_t n_items,
                                  const int32_t *segments, lace_error *err);

/* image_session.c: a sequence is cut to n_tokens, or becomes a copy; and the end. */
lace_status session_cut_images(lace_session *s, int32_t sequence, int32_t n_tokens,
                               lace_error *err);
lace_status session_copy_images(lace_session *s, int32_t from, int32_t to, lace_error *err);
void session_free_images(lace_session *s);

/* Let the layer that predicts see what was computed, where there is one: others may share it now. */
lace_status session_settle(lace_session *s, lace_error *err);

/*
 * Compute a batch of every kind and forget it (warm_up.c), so that the first request is answered as
 * fast as those that follow. The sequences must be empty.
 */
lace_status session_warm_up(lace_session *s, lace_error *err);

/* What was chosen for output k of the last eval, as backend/choice.h has it, or CHOICE_REFUSED. */
int32_t session_word(const lace_session *s, size_t k);

#endif
