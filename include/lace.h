/*
 * lace.h: the public interface of lace, a language-model inference engine.
 *
 * Seven things, in the order in which a program meets them:
 *
 *   lace_model    a model file, opened: checked, described, able to tokenize. Opening maps the
 *                 file and copies no weights. A model is read-only and may serve many sessions.
 *   lace_session  worker threads, a KV cache and a compiled plan. It holds one or more sequences of
 *                 tokens and computes logits for the next one. One thread at a time may use it.
 *   lace_sampler  turns logits into a token, by a chain of rules and a seed.
 *   lace_decoder  turns tokens back into text, never giving out half a character.
 *   lace_batcher  does all of that for many texts at once, for a server or a chat.
 *   lace_chat     makes prompts of messages, and takes replies apart into reasoning, text and calls.
 *   lace_embedder turns texts into vectors, or scores how well a text answers a query.
 *
 * Every function that can fail returns a lace_status: LACE_OK is 0, errors are negative. Results go
 * through pointers named `out`; on failure *out is NULL. The last parameter `err` may be NULL;
 * otherwise it receives one line for a person to read. The library never prints, exits or aborts.
 *
 * Threads: a model, a grammar and a lace_chat may be used by several threads at once. Every other
 * object belongs to one thread at a time, and may be handed from one to another.
 *
 * Lifetimes: a model is closed last, after everything that was made of it. An object that is made of
 * others says so, and is freed before them. Strings and arrays that are given to the library are
 * read during the call, unless it says otherwise.
 *
 * To link: cc program.c $(pkg-config --cflags --libs lace); with --static, the archive.
 *
 * examples/ has complete programs: complete.c, chat.c, and more; installed, in share/doc/lace.
 */
#ifndef LACE_H
#define LACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* These functions are all that the shared library shows. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define LACE_VERSION "0.1.0"

/* The version of the library that is loaded, which may be newer than LACE_VERSION. */
const char *lace_version(void);

/* ---- Status ---------------------------------------------------------------------------------- */

/* Every status once: name, value, and the sentence that explains it. */
#define LACE_STATUS_LIST(X)                                                                        \
    X(OK, 0, "success")                                                                            \
    X(E_ARG, -1, "an argument is outside its documented range")                                    \
    X(E_NOMEM, -2, "out of memory")                                                                \
    X(E_IO, -3, "the operating system could not read or write")                                    \
    X(E_LIMIT, -4, "a stated limit would be exceeded")                                             \
    X(E_TRUNC, -5, "the data ends too early")                                                      \
    X(E_MAGIC, -6, "not a file of the expected kind")                                              \
    X(E_VERSION, -7, "lace does not support this version of the format")                           \
    X(E_COUNT, -8, "a count is larger than the data can hold")                                     \
    X(E_STRLEN, -9, "a string is longer than the data can hold")                                   \
    X(E_TYPE, -10, "a value has an unknown type")                                                  \
    X(E_ARRAY, -11, "an array has an element type or length that is not allowed")                  \
    X(E_ALIGN, -12, "an alignment is not allowed")                                                 \
    X(E_NAME, -13, "a name is empty, too long or not valid UTF-8")                                 \
    X(E_DUP, -14, "a name is given twice")                                                         \
    X(E_DIMS, -15, "the dimensions of a tensor are not allowed")                                   \
    X(E_OVERFLOW, -16, "a size does not fit into 64 bits")                                         \
    X(E_TENSOR_TYPE, -17, "a tensor has an unknown type")                                          \
    X(E_OFFSET, -18, "a tensor lies outside the data")                                             \
    X(E_OVERLAP, -19, "tensors overlap")                                                           \
    X(E_TAIL, -20, "unexpected bytes follow the end of the data")                                  \
    X(E_META, -21, "metadata is missing or has a value that is not allowed")                       \
    X(E_SHAPE, -22, "a tensor does not have the shape that the model needs")                       \
    X(E_VOCAB, -23, "the vocabulary is missing or inconsistent")                                   \
    X(E_JSON, -24, "the JSON is malformed")                                                        \
    X(E_UTF8, -25, "the text is not valid UTF-8")                                                  \
    X(E_TEMPLATE, -26, "a chat template is malformed or raised an error")                          \
    X(E_GRAMMAR, -27, "a grammar or schema cannot be used")                                        \
    X(E_UNSUPPORTED, -28, "lace does not support this")                                            \
    X(E_MEMORY, -29, "the memory budget is too small")                                             \
    X(E_CONTEXT, -30, "the context is full")                                                       \
    X(E_NUMERIC, -31, "a computation gave a value that is not finite")                             \
    X(E_CANCELLED, -32, "cancelled by the caller")                                                 \
    X(E_DEVICE, -33, "the accelerator reported an error")                                          \
    X(E_RANK, -34, "another rank does not answer or does not fit")                                 \
    X(E_FOLLOWED, -35, "this rank has followed rank 0 to its end")                                 \
    X(E_IMAGE, -36, "an image cannot be read")

typedef enum lace_status {
#define LACE_STATUS_ENUM(name, value, text) LACE_##name = value,
    LACE_STATUS_LIST(LACE_STATUS_ENUM)
#undef LACE_STATUS_ENUM
} lace_status;

/* What went wrong, for a person: one line, without a newline. Storage is the caller's. */
typedef struct lace_error {
    lace_status status;
    char text[508];
} lace_error;

const char *lace_status_name(lace_status status); /* "E_TRUNC" */
const char *lace_status_text(lace_status status); /* "the data ends too early" */

/* ---- Devices --------------------------------------------------------------------------------- */

/* Something that models can run on. */
typedef struct lace_device {
    char id[32];          /* as lace_model_options.device takes it: "cpu", "cuda:0", "vulkan:1" */
    char name[128];       /* for people */
    uint64_t total_bytes; /* of its memory; of the CPU, the machine's */
    uint64_t free_bytes;  /* at this moment; 0: not known */
} lace_device;

/*
 * The devices of this machine that this build can use; the CPU is the first. Writes at most
 * `capacity` of them and returns how many there are in all. Looking at a GPU may take a second.
 */
size_t lace_device_list(lace_device *devices, size_t capacity);

/* ---- Model ----------------------------------------------------------------------------------- */

typedef int32_t lace_token; /* an id in the model's vocabulary, 0 to n_vocab - 1 */

typedef struct lace_model lace_model;

/* Called while something long happens. `done` runs from 0 to 1. Return false to cancel. */
typedef bool (*lace_progress_fn)(void *user, const char *what, double done);

typedef struct lace_model_options {
    bool use_mmap;      /* use the weights as they are in the file: less memory, slower; default
                           false */
    bool packs_later;   /* start with the weights as they are in the file, and copy them into the
                           faster layout between the first evals: the first token comes sooner.
                           For one session at a time; default false */
    bool use_exact;     /* f32 arithmetic for every weight type, not int8 or int16; default false */
    bool use_vocab;     /* read the vocabulary, if there is one; default true */
    bool vocab_only;    /* read nothing but the vocabulary. It works for models that lace cannot
                           run, too; sessions are not possible; default false */
    const char *device; /* where it runs: "cpu" (NULL, the default), "cuda", "cuda:1", "vulkan";
                           several: "cuda:0,cuda:1", "cuda;layers=20", the rest on the CPU, or rows
                           of every matrix on each, "cuda:0,cuda:1;rows" (see docs/scale.md); "auto": a GPU, and the CPU for what has no room there */
    const char *activation_sparsity; /* thresholds that `lace sparsify` wrote: the path of the file,
                           or its text, which begins with "{". A token that is computed alone skips
                           the weights whose inputs are below them. On the CPU, for f16, q8_0,
                           q6_k, q4_k and q4_0; these weights take twice the memory. NULL
                           (default): off */
    bool sparse_in_batches; /* apply the thresholds to all tokens, to measure what they cost; not
                               faster; default false */
    const char
        *ranks; /* compute with several groups of threads, ranks, each of which has some rows of
                          every matrix and its part of the KV cache: "2", or what each does of the
                          work, "3,1". Results are the same to the bit. n_threads of a session are
                          those of each rank. "mpi", or "mpi:3,1": this process is one of those
                          that mpirun has started; in all but the first, lace_model_open follows
                          that one and returns LACE_E_FOLLOWED. With `device` "cuda" each has the
                          GPU of its number. NULL (default): one */
    const char *rank_net; /* the network over which ranks of several machines talk: "10.8.0.0/24" */
    int32_t rank_timeout_ms; /* how long one may be silent before it counts as lost, which is
                                LACE_E_RANK; 0 (default): 5,000 */
    bool use_mtp; /* also read the layer that predicts further tokens (multi-token prediction): its
                     sessions may guess with it. LACE_E_UNSUPPORTED if there is none; default
                     false */
    bool
        fast_prompts; /* compute prompts in int8 where the device can (CUDA): weights and activations
                          are rounded to bytes, 256 columns at a time; steps of up to 128 rows, with
                          them all generated tokens, and the logits stay as they are.
                          LACE_E_UNSUPPORTED where the device cannot; default false */
} lace_model_options;

lace_model_options lace_model_options_default(void);

/*
 * Open a GGUF file (for split files, any of the parts) or a Hugging Face directory. If `path` is
 * neither, it is looked up as the name of a model on this machine; see lace_model_list.
 */
lace_status lace_model_open(const char *path, const lace_model_options *options, lace_model **out,
                            lace_error *err);

/* The same for bytes in memory, which must outlive the model. `name` is used in messages. */
lace_status lace_model_open_memory(const void *data, size_t n_bytes, const char *name,
                                   const lace_model_options *options, lace_model **out,
                                   lace_error *err);

/* A model that was found on this machine: in $LACE_MODELS, Ollama's store, the Hugging Face cache,
 * llama.cpp's cache or LM Studio's folder. */
typedef struct lace_model_entry {
    const char *name; /* as lace_model_open takes it: "mistral:latest" */
    const char *path;
    const char *origin; /* "lace", "ollama", "huggingface", "llama.cpp", "lmstudio" */
    uint64_t n_bytes;
} lace_model_entry;

/* Calls fn for each model until fn returns false. An entry is valid during its call. */
void lace_model_list(bool (*fn)(void *user, const lace_model_entry *entry), void *user);

/*
 * The process has been told to end: ranks wait for each other a moment at most. Any thread may call
 * it.
 */
void lace_model_hurry(lace_model *model);

/* Whether mpirun or srun has started this program as one of several (lace_model_options.ranks). */
bool lace_ranks_are_started(void);

void lace_model_close(lace_model *model); /* after its sessions; NULL is fine */

/*
 * How the hidden states of a text's tokens become one vector.
 */
typedef enum lace_pooling {
    LACE_POOLING_MODEL, /* as the model's file says; where it does not, LACE_POOLING_MEAN */
    LACE_POOLING_NONE,  /* not at all: a vector for each token */
    LACE_POOLING_MEAN,  /* their mean */
    LACE_POOLING_CLS,   /* that of the first token */
    LACE_POOLING_LAST,  /* that of the last token */
    LACE_POOLING_RANK,  /* scores, by the head of a reranker: n_classes values */
} lace_pooling;

/* A description of a model. Strings live as long as the model; unknown ones are "". */
typedef struct lace_model_info {
    const char *name;
    const char *architecture;  /* "llama" */
    const char *type;          /* the type of most weights: "q4_k" */
    const char *tokenizer;     /* "bpe", "spm", "wordpiece", "unigram", or "" without one */
    const char *chat_template; /* Jinja source */
    uint64_t n_parameters;
    uint64_t weight_bytes; /* of all tensors in the file */
    const char *device;    /* where it runs: "cpu", or the name of a GPU */
    const char *backend;   /* what runs it: "cpu", "cuda", "vulkan", "mixed", "ref"; "": none */
    uint64_t packing_ns;   /* with packs_later: time that packing has taken so far */
    int32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff;
    int32_t n_experts, n_experts_used, n_ff_expert; /* of a mixture; 0: it is none */
    int32_t n_vocab;
    int32_t n_context;    /* the longest context it was trained for */
    lace_token bos, eos;  /* -1 if the model has none */
    bool is_encoder;      /* tokens see all of their text: it gives hidden states and no logits */
    lace_pooling pooling; /* what LACE_POOLING_MODEL stands for */
    int32_t n_classes;    /* scores of its head; 0: it has none */
    int32_t n_predicting; /* layers that predict further tokens, behind n_layers others */
} lace_model_info;

void lace_model_describe(const lace_model *model, lace_model_info *out);

/* ---- Adapters -------------------------------------------------------------------------------- */

/*
 * LoRA adapters: small matrices that are added to those of a model, and change what it says. A model
 * may have many, and each text chooses: texts with different adapters, and with none, are computed
 * together in one batch.
 *
 *     lace_model_add_adapter(model, "sql.gguf", 0, &sql, &err);    // before the first session
 *     lace_adapter_use use = {.adapter = sql, .scale = 1};
 *     options.adapters = &use, options.n_adapters = 1;             // of a generation
 */

/*
 * Read an adapter: a GGUF file, or a directory as PEFT writes it. *out is its number, from 0 on.
 * Texts that are told nothing about adapters use it with this scale; 0: they do not. Only before the
 * first session of the model. LACE_E_SHAPE or LACE_E_META if it is for another model,
 * LACE_E_UNSUPPORTED names what of it cannot be used.
 */
lace_status lace_model_add_adapter(lace_model *model, const char *path, float scale, int32_t *out,
                                   lace_error *err);

/* Strings live as long as the model. */
typedef struct lace_adapter_info {
    const char *name; /* general.name, or the name of the file */
    const char *path;
    int32_t rank;      /* the largest of its matrices */
    float alpha;       /* as its file says; its products are multiplied with alpha / rank */
    float scale;       /* of texts that are told nothing */
    size_t n_matrices; /* of the model that it changes */
    uint64_t n_bytes;
} lace_adapter_info;

/* Writes at most `capacity` of the model's adapters and returns how many there are in all. */
size_t lace_model_adapters(const lace_model *model, lace_adapter_info *out, size_t capacity);

/* How much of an adapter is added: 1 as it was trained, 0.5 half of it. */
typedef struct lace_adapter_use {
    int32_t adapter;
    float scale;
} lace_adapter_use;

/* ---- Tokens ---------------------------------------------------------------------------------- */

enum {
    LACE_TOKENIZE_ADD_SPECIAL = 1,   /* BOS and EOS where the model's metadata asks for them */
    LACE_TOKENIZE_PARSE_SPECIAL = 2, /* "<s>" in the text is the token, not four characters */
};

/*
 * Text to tokens. Writes at most `capacity` of them and sets *n_out to how many there are in all,
 * so a call with capacity 0 counts. Bytes that are not UTF-8 are read as U+FFFD, which some
 * vocabularies write as several tokens.
 */
lace_status lace_tokenize(const lace_model *model, const char *text, size_t n_bytes, unsigned flags,
                          lace_token *tokens, size_t capacity, size_t *n_out, lace_error *err);

/* A part of a text, in bytes. */
typedef struct lace_range {
    size_t begin, end;
} lace_range;

/*
 * The same for a text that contains parts by others, like a chat prompt with the messages of users.
 * `contents` are these parts. With LACE_TOKENIZE_PARSE_SPECIAL, control tokens are found only
 * outside of them, so that a user cannot forge one. The ranges must ascend and not overlap; a text
 * that is not UTF-8 is LACE_E_UTF8.
 */
lace_status lace_tokenize_contents(const lace_model *model, const char *text, size_t n_bytes,
                                   const lace_range *contents, size_t n_contents, unsigned flags,
                                   lace_token *tokens, size_t capacity, size_t *n_out,
                                   lace_error *err);

/*
 * The tokens that contain one of the texts. They can be the breakers of DRY: usually line ends,
 * quotes, colons and asterisks. Writes at most `capacity` of them and returns how many there are.
 */
size_t lace_tokens_with(const lace_model *model, const char *const *texts, size_t n_texts,
                        lace_token *tokens, size_t capacity);

/* True for the tokens after which a generation ends. */
bool lace_token_is_end(const lace_model *model, lace_token token);

/*
 * The bytes that a token stands for, which need not be whole characters; for a control token its
 * name. Valid as long as the model. An id outside the vocabulary gives no bytes.
 */
const char *lace_token_bytes(const lace_model *model, lace_token token, size_t *n_bytes);

/* Tokens to text, as a stream: bytes are held back until they complete a character. */
typedef struct lace_decoder lace_decoder;

lace_status lace_decoder_create(const lace_model *model, lace_decoder **out, lace_error *err);
void lace_decoder_free(lace_decoder *decoder);

/* The text that `token` completes. *text is valid until the next call; it is not terminated. */
lace_status lace_decoder_push(lace_decoder *decoder, lace_token token, const char **text,
                              size_t *n_bytes, lace_error *err);

/* The rest of the text; an incomplete character becomes U+FFFD. The decoder is then empty. */
lace_status lace_decoder_flush(lace_decoder *decoder, const char **text, size_t *n_bytes,
                               lace_error *err);

/* ---- Session --------------------------------------------------------------------------------- */

/* Of 5 and 4 bits, values are rotated before they are rounded; heads must have multiples of 32. */
typedef enum lace_kv_type {
    LACE_KV_SAME = -1, /* values as keys */
    LACE_KV_F32,
    LACE_KV_F16,
    LACE_KV_Q8_0,
    LACE_KV_Q5_0,
    LACE_KV_IQ4_NL
} lace_kv_type;

typedef struct lace_session_options {
    int32_t n_context;    /* tokens a sequence may hold; 0: the model's own, at most 4,096 */
    int32_t n_sequences;  /* how many sequences; default 1 */
    int32_t n_batch;      /* tokens computed together in prefill; 0 (default): 512, on a GPU 2,048
                              where they fit */
    int32_t n_outputs;    /* rows of logits that one eval may ask for; default n_sequences */
    int32_t n_threads;    /* 0: one per core */
    lace_kv_type kv_type; /* of keys; default LACE_KV_F16 */
    lace_kv_type v_type;  /* of values; default LACE_KV_SAME */
    uint64_t
        memory_bytes;  /* the most that weights, KV cache and scratch may take together; 0: any */
    uint64_t kv_bytes; /* size of the KV cache, which all sequences share; at least one whole
                              context; 0: as much as all sequences could fill */
    int32_t kv_tokens; /* tokens that the KV cache can hold, of all sequences together; at least
                          one whole context; 0: see kv_bytes */
    bool wants_hidden; /* give hidden states after the last norm, [n_embd], in place of logits: for
                          embeddings; default false */
    bool wants_scores; /* of a reranker: give the scores of its head, [n_classes], in place of
                          logits; default false */
    bool use_mtp;      /* the layer that predicts further tokens reads along, for a speculator; of a
                          model that was opened with use_mtp; default false */
    struct lace_tower *tower; /* whose images sequences may have; NULL (default): none. It outlives
                                 the session */
    /* While weights are packed, and while a batcher on a GPU computes a batch of every kind before
     * the first request; may be NULL. */
    lace_progress_fn on_progress;
    void *progress_user;
} lace_session_options;

lace_session_options lace_session_options_default(void);

/* What a session needs, in bytes. */
typedef struct lace_memory {
    uint64_t weights;
    uint64_t kv;
    uint64_t scratch;
    uint64_t total;
    uint64_t token_bytes;    /* of kv: what a token adds, in layers that keep something of each */
    uint64_t sequence_bytes; /* of kv: what a sequence takes whatever its length: recurrent state */
    uint64_t available; /* free on the model's GPU before its weights are loaded; 0 on the CPU */
} lace_memory;

/* What lace_session_create with these options will take; nothing is allocated. */
lace_status lace_session_memory(const lace_model *model, const lace_session_options *options,
                                lace_memory *out, lace_error *err);

typedef struct lace_session lace_session;

/*
 * Create a session. The first one of a model packs its weights. If memory_bytes would be exceeded,
 * fails with LACE_E_MEMORY before loading anything.
 */
lace_status lace_session_create(lace_model *model, const lace_session_options *options,
                                lace_session **out, lace_error *err);
void lace_session_free(lace_session *session);

/* One token to append to a sequence. Its position is the sequence's length. */
typedef struct lace_item {
    lace_token token;
    int32_t sequence; /* 0 to n_sequences - 1 */
    bool want_logits; /* compute the logits for the token after this one */
} lace_item;

/*
 * Append the items to their sequences and compute them. Items of different sequences may be in any
 * order; more than n_batch items are computed in several steps. On failure the sequences are as
 * before. With layers that have a sliding window, a sequence may be empty then.
 *
 * Encoders compute whole texts: an eval forgets what the sequences held, and all of its items must
 * fit into one batch; more is LACE_E_LIMIT. Sessions of an encoder give hidden states or scores.
 */
lace_status lace_session_eval(lace_session *session, const lace_item *items, size_t n_items,
                              lace_error *err);

/*
 * Logits of the k-th item of the last eval that wanted them, [n_vocab]; NULL if there is none.
 * Valid until the next eval.
 */
const float *lace_session_logits(const lace_session *session, size_t k);

/*
 * Append `first`, choose the token after it, append that one, and so on, for n tokens. The sampler
 * chooses (NULL: always the best token). Each token is given to on_token, which returns false to
 * stop. The last token given is not appended to the sequence. No logits are kept. When the context
 * is full, the call ends early with LACE_OK.
 *
 * The tokens are those of lace_session_eval, lace_sampler_sample and lace_sampler_accept in turn,
 * but on a GPU this is faster: the GPU chooses the token itself and works ahead of the caller. It
 * does so for greedy choice, temperature, top_k up to 1024, top_p and min_p; with other stages the
 * host chooses.
 */
struct lace_sampler;
lace_status lace_session_continue(lace_session *session, int32_t sequence, lace_token first,
                                  int32_t n, struct lace_sampler *sampler,
                                  bool (*on_token)(void *user, lace_token token), void *user,
                                  lace_error *err);

/*
 * The same for sequences 0 to n_sequences - 1 together, with the best token of each: n steps, each of
 * which appends one token to every sequence, beginning with firsts[n_sequences]. on_tokens is given
 * what each step chose, [n_sequences], and returns false to stop. The session's n_outputs must be
 * n_sequences at least, and all contexts must have room for n tokens.
 */
lace_status lace_session_continue_all(lace_session *session, const lace_token *firsts,
                                      int32_t n_sequences, int32_t n,
                                      bool (*on_tokens)(void *user, const lace_token *tokens),
                                      void *user, lace_error *err);

int32_t lace_session_length(const lace_session *session, int32_t sequence);

/*
 * Keep the first n_tokens of a sequence and forget the rest. Models whose layers have a sliding
 * window can go back by up to 32 tokens, or to 0; anything between is LACE_E_UNSUPPORTED. Models with
 * recurrent layers go back to the last snapshot, behind a multiple of 32 tokens, and compute the
 * tokens from there on again; the logits of the last evaluation are gone then.
 */
lace_status lace_session_truncate(lace_session *session, int32_t sequence, int32_t n_tokens,
                                  lace_error *err);

/* Make `to` (which must be empty) a copy of `from`, sharing its KV pages. */
lace_status lace_session_fork(lace_session *session, int32_t from, int32_t to, lace_error *err);

/*
 * Which adapters an empty sequence uses from now on; of others, nothing. LACE_E_ARG if it is not
 * empty: what it holds was computed with others.
 */
lace_status lace_session_set_adapters(lace_session *session, int32_t sequence,
                                      const lace_adapter_use *uses, size_t n_uses, lace_error *err);

/* ---- Trace ----------------------------------------------------------------------------------- */

/* One step of the session's plan, added up over all evaluations since the trace was switched on. */
typedef struct lace_trace_row {
    const char *operation; /* "matmul_glu"; the string is the library's */
    int32_t layer;         /* -1: outside of layers */
    uint64_t n_calls;
    uint64_t ns;      /* time, including the wait for the slowest thread */
    uint64_t n_bytes; /* bytes to read and write: weights, cache, activations */
    uint64_t n_macs;  /* multiply-adds with weights */
} lace_trace_row;

/* Start a trace from zero, or stop it. A running trace reads the clock after each step. */
lace_status lace_session_trace(lace_session *session, bool is_on, lace_error *err);

/*
 * Writes at most `capacity` rows, one for each step that has run since the trace was started, in the
 * order in which they run. Returns how many there are in all.
 */
size_t lace_session_trace_rows(const lace_session *session, lace_trace_row *rows, size_t capacity);

/* ---- Sampler --------------------------------------------------------------------------------- */

/*
 * The chain, in its order: penalties, DRY, top_k, typical_p, top_p, min_p, XTC, temperature, draw.
 * With mirostat, the stages between DRY and the temperature are off.
 */
typedef struct lace_sampler_options {
    uint64_t seed;           /* the same seed gives the same text; default 0 */
    float temperature;       /* 0: greedy; default 0.8 */
    int32_t top_k;           /* keep the k best; 0: all; default 40 */
    float typical_p;         /* locally typical sampling; 1: off (default) */
    float top_p;             /* keep the best tokens whose probabilities add up to this; 0: only
                               the best; 1: off; default 0.95 */
    float min_p;             /* keep tokens with at least this share of the best one's probability;
                               default 0.05 */
    float repeat_penalty;    /* divides logits of recent tokens; 1: off (default) */
    float presence_penalty;  /* subtracted once from recent tokens; default 0 */
    float frequency_penalty; /* subtracted for each occurrence; default 0 */
    int32_t penalty_last_n;  /* how many tokens are recent, at most 2^20; 0: none; default 64 */

    /* DRY: a token that would make a repetition longer loses
     * multiplier * base^(length - allowed). */
    float dry_multiplier;           /* 0: off (default) */
    float dry_base;                 /* 1 or more; default 1.75 */
    int32_t dry_allowed_length;     /* shorter repetitions have no penalty; default 2 */
    int32_t dry_last_n;             /* how far back to look, 1 to 2^20 tokens; default 1024 */
    const lace_token *dry_breakers; /* a repetition ends at these tokens; copied; see
                                       lace_tokens_with */
    size_t n_dry_breakers;

    /* XTC: of the tokens above the threshold all but the least probable one are left out. */
    float xtc_probability; /* how often; 0: off (default) */
    float xtc_threshold;   /* default 0.1; above 0.5 it does nothing */

    int32_t mirostat;   /* 0: off (default); 1 or 2: the version */
    float mirostat_tau; /* the surprise to keep, in bits; default 5 */
    float mirostat_eta; /* how quickly it adapts; default 0.1 */
} lace_sampler_options;

lace_sampler_options lace_sampler_options_default(void);

typedef struct lace_sampler lace_sampler;

lace_status lace_sampler_create(const lace_sampler_options *options, int32_t n_vocab,
                                lace_sampler **out, lace_error *err);
void lace_sampler_free(lace_sampler *sampler);

/* Choose a token. `logits` is not changed. A logit that is NaN or +inf is LACE_E_NUMERIC. */
lace_status lace_sampler_sample(lace_sampler *sampler, const float *logits, lace_token *out,
                                lace_error *err);

/* Tell the sampler that a token now belongs to the text. The penalties need it. */
void lace_sampler_accept(lace_sampler *sampler, lace_token token);

/* ---- Grammars -------------------------------------------------------------------------------- */

/*
 * A grammar confines generated text to a form. It is compiled for a model's vocabulary; a state
 * follows one text through it:
 *
 *     lace_grammar_create(model, LACE_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &grammar, &err);
 *     lace_grammar_state_create(grammar, &state, &err);
 *     for (;;) {
 *         ... copy the logits ...
 *         lace_grammar_state_mask(state, logits, &err);
 *         ... choose a token from them ...
 *         lace_grammar_state_accept(state, token, &err);
 *         if (lace_grammar_state_is_finished(state))
 *             break;
 *     }
 *
 * A grammar may be shared by threads; a state is used by one at a time.
 */
typedef struct lace_grammar lace_grammar;
typedef struct lace_grammar_state lace_grammar_state;

typedef enum lace_grammar_kind {
    LACE_GRAMMAR_GBNF, /* llama.cpp's notation, with some words of our own (docs/structured-output.md) */
    LACE_GRAMMAR_JSON_SCHEMA, /* a JSON value that is valid for the schema */
    LACE_GRAMMAR_REGEX,       /* the whole text must match; JavaScript's syntax */
    LACE_GRAMMAR_JSON_OBJECT, /* any JSON object; the text of the grammar is not used */
} lace_grammar_kind;

/* Limits for compiling a grammar. */
typedef struct lace_grammar_options {
    int32_t max_ms; /* processor time; more is LACE_E_LIMIT. Default 1,000; 0: no limit */
    /* Called now and then; true cancels the compilation. NULL (default): never called. */
    bool (*is_unwanted)(void *user);
    void *user;
} lace_grammar_options;

lace_grammar_options lace_grammar_options_default(void);

/*
 * Compile a grammar. LACE_E_GRAMMAR if it is malformed or not supported; the error says what, and
 * where, and nothing is ever ignored. A schema that is not JSON is LACE_E_JSON, LACE_E_DUP,
 * LACE_E_UTF8 or LACE_E_LIMIT. The model keeps the grammars that were used last, so that the same
 * text is compiled once.
 */
lace_status lace_grammar_create(lace_model *model, lace_grammar_kind kind, const char *text,
                                size_t n_bytes, lace_grammar **out, lace_error *err);
/* The same with options (NULL: the default ones). */
lace_status lace_grammar_create_within(lace_model *model, lace_grammar_kind kind, const char *text,
                                       size_t n_bytes, const lace_grammar_options *options,
                                       lace_grammar **out, lace_error *err);
/* States may outlive their grammar. Free grammars and states before the model. */
void lace_grammar_free(lace_grammar *grammar);

lace_status lace_grammar_state_create(lace_grammar *grammar, lace_grammar_state **out,
                                      lace_error *err);
lace_status lace_grammar_state_clone(const lace_grammar_state *state, lace_grammar_state **out,
                                     lace_error *err);
void lace_grammar_state_free(lace_grammar_state *state);

/*
 * Set the logits [n_vocab] of all tokens that may not come next to -inf. Tokens that end a text
 * remain only if it may end here; other special tokens never do. LACE_E_GRAMMAR if none remain.
 */
lace_status lace_grammar_state_mask(lace_grammar_state *state, float *logits, lace_error *err);

/* The token that was chosen. LACE_E_GRAMMAR if it may not come next; the state stays as it was. */
lace_status lace_grammar_state_accept(lace_grammar_state *state, lace_token token, lace_error *err);

bool lace_grammar_state_is_complete(const lace_grammar_state *state); /* the text may end here */
bool lace_grammar_state_is_finished(const lace_grammar_state *state); /* and cannot go on */

/* ---- Speculation ----------------------------------------------------------------------------- */

/*
 * A speculator guesses several tokens ahead and checks them in one evaluation, which takes little
 * longer than one token does. When the prompt is in the session, it takes the place of
 * lace_session_eval and lace_session_logits:
 *
 *     lace_speculator_begin(speculator, tokens, n_tokens, &err);
 *     for (;;) {
 *         ... choose a token from lace_speculator_logits(speculator) ...
 *         lace_speculator_push(speculator, token, &err);
 *     }
 *
 * The logits are always those of the session's own model after the text so far. A guess only
 * decides whether they are there already, so the text does not depend on it, whatever chooses the
 * tokens.
 */
typedef struct lace_speculator lace_speculator;

typedef struct lace_speculator_options {
    lace_session *draft; /* of a smaller model with the same vocabulary: guesses; default NULL */
    bool use_lookup; /* guess that the text continues as it did after an earlier occurrence of its
                        last tokens; tried before all others; default false */
    bool use_mtp;    /* guess by the model's own prediction layer, in a session with use_mtp; tried
                        before `draft`; default false */
    int32_t n_draft; /* the most tokens to guess at once, 1 to 32; default 8 */
} lace_speculator_options;

lace_speculator_options lace_speculator_options_default(void);

/*
 * Create a speculator for one sequence of a session. The session's n_outputs and n_batch must be
 * larger than n_draft. The draft uses sequence 0 of its session. Both sessions must outlive the
 * speculator. LACE_E_VOCAB if the draft has another vocabulary.
 */
lace_status lace_speculator_create(lace_session *session, int32_t sequence,
                                   const lace_speculator_options *options, lace_speculator **out,
                                   lace_error *err);

/* The sequence keeps the text; guesses are removed from it. NULL is fine. */
void lace_speculator_free(lace_speculator *speculator);

/*
 * Start from the sequence as it is. `tokens` are all its tokens. The last one must be the last item
 * that wanted logits in the last eval.
 */
lace_status lace_speculator_begin(lace_speculator *speculator, const lace_token *tokens,
                                  size_t n_tokens, lace_error *err);

/* Logits for the token after the text so far, [n_vocab]. Valid until the next push. */
const float *lace_speculator_logits(const lace_speculator *speculator);

/* Append the token that was chosen. LACE_E_CONTEXT if the sequence is full. */
lace_status lace_speculator_push(lace_speculator *speculator, lace_token token, lace_error *err);

typedef struct lace_speculation {
    uint64_t n_tokens;   /* pushed */
    uint64_t n_evals;    /* evaluations of the session that they took */
    uint64_t n_guessed;  /* guesses that were checked */
    uint64_t n_accepted; /* guesses that were right */
} lace_speculation;

void lace_speculator_count(const lace_speculator *speculator, lace_speculation *out);

/* ---- Batcher --------------------------------------------------------------------------------- */

/*
 * A batcher continues many texts at once. Each of its steps computes one batch: the next token of
 * every generation that is under way, and as much of the prompts of new ones as fits. Generations
 * share one pool of KV memory, each takes what its text needs, and what several texts begin with is
 * computed and kept once. When the pool is full, the youngest generation waits and is computed
 * again later; its text stays the same.
 *
 *     lace_batcher_add(batcher, &options, &generation, &err);
 *     while (lace_batcher_step(batcher)) // calls options.on_piece
 *         ... add more, cancel some ...
 *
 * One thread at a time may use a batcher.
 */
typedef struct lace_batcher lace_batcher;
typedef struct lace_generation lace_generation;

typedef struct lace_batcher_options {
    lace_session_options session; /* n_sequences: generations computed together; default 32.
                                     n_context: tokens of each. n_outputs is not used */
    bool use_prefixes;            /* keep the beginnings of texts for later texts; default true */
    const char *cache_dir; /* a directory that also keeps them, in files, for when memory is short
                              and for later processes; NULL (default): none. Read at the start */
    uint64_t cache_bytes;  /* that these files may take; 0 (default): 16 GiB */
    bool is_deterministic; /* compute each text as if it were alone. Otherwise others beside it
                              change how sums are rounded, and so, rarely, a token. Prompts are
                              read one after the other, and tokens computed together as far as a
                              row does not depend on the others (on the CPU); turns prefixes off.
                              Default false */
    /*
     * Targets on a GPU, in milliseconds; 0 (default): none. Prompts get as many rows of a step as
     * leave the next tokens of others in time, and more where first tokens would be late.
     */
    int32_t next_target_ms, first_target_ms;
    /*
     * Guesses, as a speculator makes them: several tokens of a generation are checked in one
     * evaluation. For each generation as many are made as pay, by how many of its guesses were right
     * and by the time that steps of so many rows take. The texts stay the same.
     */
    lace_model *draft; /* a smaller model with the same vocabulary, which must outlive the batcher;
                          NULL (default): none */
    bool use_lookup;   /* guess from the text itself; tried before all others; default false */
    bool use_mtp;      /* guess by the model's own prediction layer, of a model that was opened with
                          use_mtp; tried before `draft`; default false */
    int32_t n_draft;   /* the most tokens to guess for a generation in a step, 1 to 32; default 8 */
    bool guesses_always; /* while up to four generations run, guess whether it pays or not, and for
                            all together no more than n_draft; with more, not at all. Default false */
} lace_batcher_options;

lace_batcher_options lace_batcher_options_default(void);

lace_status lace_batcher_create(lace_model *model, const lace_batcher_options *options,
                                lace_batcher **out, lace_error *err);
void lace_batcher_free(lace_batcher *batcher); /* ends every generation, without a last piece */

typedef enum lace_finish {
    LACE_FINISH_NONE,      /* not finished */
    LACE_FINISH_STOP,      /* an end token, or one of the stops */
    LACE_FINISH_LENGTH,    /* max_tokens, or the context is full */
    LACE_FINISH_CANCELLED, /* by lace_batcher_cancel */
    LACE_FINISH_ERROR,     /* see error */
} lace_finish;

typedef struct lace_bias {
    lace_token token;
    float bias; /* added to the token's logit; -INFINITY bans it */
} lace_bias;

typedef struct lace_logprob {
    lace_token token;
    float logprob; /* natural logarithm of the probability, before the sampler's chain */
} lace_logprob;

/* Why a text is computed from a token on, and not found in the cache. */
typedef enum lace_reuse_end {
    LACE_REUSE_OFF,     /* the cache is not used */
    LACE_REUSE_ALL,     /* nothing: all but the last token was found */
    LACE_REUSE_NEW,     /* what is kept ends there */
    LACE_REUSE_DIFFERS, /* what is kept goes on with another token */
    LACE_REUSE_LOST,    /* it was kept, but what the next token needs was given up */
} lace_reuse_end;

const char *lace_reuse_text(lace_reuse_end end); /* a word or two: "differs" */

/* Why a text, or its reasoning, was ended though the model would have gone on. */
typedef enum lace_cut {
    LACE_CUT_NONE,
    LACE_CUT_BUDGET, /* reasoning has used up its tokens */
    LACE_CUT_LOOP,   /* it only repeated itself */
} lace_cut;

const char *lace_cut_text(lace_cut cut); /* "budget", "repetition"; "" for none */

/* Counts and times of a generation. */
typedef struct lace_generation_stats {
    int32_t n_prompt;         /* tokens given */
    int32_t n_cached;         /* tokens of the prompt that were in the cache already */
    lace_reuse_end reuse_end; /* why not more of them */
    int32_t n_read;           /* tokens of the prompt that are done, computed or cached */
    int32_t n_generated;      /* tokens chosen, including an end token */
    uint64_t queue_ns;        /* time before its first step */
    uint64_t prompt_ns;       /* from its first step to the first token */
    uint64_t generate_ns;     /* from the first token to the last */
    int32_t n_guessed;        /* guesses that were checked */
    int32_t n_accepted;       /* guesses that were right */
    lace_cut reasoning_cut;   /* reasoning was ended by its limit, or because it repeated itself */
    lace_cut text_cut; /* the text was ended because it repeated itself, with LACE_FINISH_LENGTH */
} lace_generation_stats;

/* What a step brought for one generation. Pointers are valid during the call. */
typedef struct lace_piece {
    lace_token token; /* chosen in this step; -1: none */
    bool is_prompt;   /* no token yet: stats->n_read tokens of the prompt are read */
    const char *text; /* text to show: whole characters, and nothing that may belong to a stop */
    size_t n_bytes;
    float logprob; /* of the token; NAN unless asked for */
    const lace_logprob *top;
    size_t n_top;
    lace_finish finish; /* other than LACE_FINISH_NONE: this is the last piece, and the generation
                           does not exist after it */
    const char *stop;   /* the stop that was found, or NULL */
    const lace_error *error; /* with LACE_FINISH_ERROR */
    const lace_generation_stats *stats;
} lace_piece;

typedef void (*lace_piece_fn)(void *user, const lace_piece *piece);

enum { LACE_MAX_TOP = 20 };

/* How reasoning is found in a text, and limited. */
typedef struct lace_reasoning {
    const char *begin, *end;   /* the words around it; NULL (default): it is not looked for */
    bool is_open;              /* the prompt ends inside of it */
    int32_t max_tokens;        /* of it, before it is closed; -1 (default): any number */
    const lace_token *closing; /* what is said to close it, with `end` in it; without, it is not */
    size_t n_closing;
} lace_reasoning;

/* All arrays and strings are copied. */
typedef struct lace_generation_options {
    const lace_token *prompt; /* at least one token */
    size_t n_prompt;
    lace_sampler_options sampler;
    int32_t max_tokens; /* -1 (default): as many as fit into the context; 0: only the prompt is
                           read */
    int32_t min_tokens; /* no end token is chosen before this many tokens; default 0 */
    bool ignore_end;    /* end tokens are never chosen; default false */
    const lace_token *stop_tokens;
    size_t n_stop_tokens;
    const char *const *stops; /* the text ends before the first of these */
    size_t n_stops;
    const lace_bias *biases;
    size_t n_biases;
    lace_grammar *grammar;    /* the text must match it; NULL (default): any. Not copied, but may be
                              freed once the generation is added */
    lace_reasoning reasoning; /* not with a grammar */
    bool breaks_loops; /* close reasoning, or end a text, that only repeats itself; default false */
    int32_t n_top;     /* -1 (default): no log-probabilities; 0: of the token; up to LACE_MAX_TOP */
    bool shows_prompt; /* call on_piece, without a token, before the prompt and after each part of
                          it, too; default false */
    bool show_special; /* control tokens print their names; default false */
    bool use_prefixes; /* reuse the common beginning of other texts; default true */
    uint64_t owner;    /* reuse it only from texts with the same number; default 0. What texts with
                          other adapters began with is never reused */
    const lace_adapter_use *adapters; /* that change the model for this text */
    int32_t n_adapters; /* -1 (default): those that the model was opened with; 0: none */
    bool fills_context; /* the prompt may fill the context; one more token is chosen after it, which
                           the context does not hold; default false */
    struct lace_image *const *images; /* those of the prompt, in its order; see below, "Images" */
    size_t n_images;
    /*
     * Called when the context is full. It gives the tokens after which the text goes on, such as a
     * shorter prompt and the reply so far. They are read at once. It returns
     * how many there are. 0 ends the text with LACE_FINISH_LENGTH, as NULL (default) does.
     */
    size_t (*on_full)(void *user, const lace_token **tokens);
    lace_piece_fn on_piece;
    void *user;
} lace_generation_options;

lace_generation_options lace_generation_options_default(void);

/*
 * Add a generation. LACE_E_CONTEXT if the prompt leaves no room for a token, LACE_E_ARG if an
 * option is outside its range.
 */
lace_status lace_batcher_add(lace_batcher *batcher, const lace_generation_options *options,
                             lace_generation **out, lace_error *err);

/* End a generation. Its last piece is given from within this call. */
void lace_batcher_cancel(lace_batcher *batcher, lace_generation *generation);

/* Compute one batch. False if there was nothing to do. Errors end the generations they concern. */
bool lace_batcher_step(lace_batcher *batcher);

/*
 * How many nanoseconds to wait for more generations, between two steps: where a device computes one batch
 * and the next one need not be put together yet. What is added meanwhile is in it. 0: no longer.
 */
uint64_t lace_batcher_rest_ns(const lace_batcher *batcher);

typedef struct lace_batcher_stats {
    int32_t n_running, n_waiting;
    int32_t n_context;                 /* tokens that a generation may have */
    int64_t kv_tokens, kv_tokens_used; /* tokens that the pool can hold; held for generations */
    int64_t kv_tokens_kept;            /* held only for later texts with the same beginning */
    /* From here on: counts since the start. */
    uint64_t n_steps, n_preempted; /* preempted: generations that had to wait for room */
    uint64_t n_prompt_tokens;      /* computed, not found in the cache */
    uint64_t n_generated_tokens;
    uint64_t n_prefix_hits, n_prefix_queries; /* tokens found, tokens looked up */
    uint64_t n_prefix_evicted;                /* tokens dropped to make room */
    uint64_t n_guessed, n_accepted;           /* guesses that were checked; that were right */
} lace_batcher_stats;

void lace_batcher_count(const lace_batcher *batcher, lace_batcher_stats *out);

/* ---- Images ---------------------------------------------------------------------------------- */

/*
 * A model that sees has a vision tower beside it: a second model that turns an image into rows,
 * which stand in a prompt where tokens stand. Those of Gemma 3 and Qwen3-VL are known, in mmproj
 * files (GGUF, as llama.cpp writes them) and in Hugging Face directories.
 *
 *     lace_tower_open(model, NULL, NULL, &tower, &err); // what lies in or beside the model
 *     session.tower = tower;                            // before the session or batcher is made
 *     lace_image_create(tower, bytes, n_bytes, &image, &err); // a JPEG, PNG or WebP file
 *     lace_tower_place(tower, tokens, n_tokens, &image, 1, placed, capacity, &n_placed, &err);
 *     options.images = &image, options.n_images = 1; // of a generation; placed is its prompt
 *
 * In a list of tokens a row of an image is a number below -1. It is made of the image's bytes, so
 * prompts that begin with the same image share what was computed for it.
 *
 * A tower is computed on the CPU, wherever the model is, and may be used by several threads: one after
 * the other.
 */
typedef struct lace_tower lace_tower;
typedef struct lace_image lace_image;

typedef struct lace_tower_options {
    int32_t n_threads;   /* 0 (default): one per core */
    int32_t min_tokens;  /* rows that an image becomes at least, where its size may be chosen;
                            0 (default): as the tower's files say, or 8 */
    int32_t max_tokens;  /* and at most; 0 (default): as the files say, but no more than 4,096 */
    uint64_t max_pixels; /* of a file; 0 (default): 64 Mi. Larger ones are refused */
} lace_tower_options;

lace_tower_options lace_tower_options_default(void);

/*
 * Open the tower of a model. path: an mmproj file, or a directory; NULL: the model's directory, or
 * the mmproj file beside the model's. LACE_E_UNSUPPORTED: there is none, or lace does not know it;
 * LACE_E_ARG: it is another model's. The model must outlive it. Its weights are loaded for the first
 * image.
 */
lace_status lace_tower_open(const lace_model *model, const char *path,
                            const lace_tower_options *options, lace_tower **out, lace_error *err);
void lace_tower_close(lace_tower *tower); /* after its images; NULL is fine */

typedef struct lace_tower_info {
    const char *name;          /* "gemma3", "qwen3vl" */
    int32_t max_tokens;        /* rows of the largest image */
    int32_t row_width;         /* values of a row */
    bool sees_both_ways;       /* rows of an image see each other; it is computed in one batch */
    uint64_t weights, scratch; /* memory in bytes */
} lace_tower_info;

void lace_tower_describe(const lace_tower *tower, lace_tower_info *out);

/*
 * Make an image of a file's bytes. They are decoded in a process of its own, which can reach
 * nothing; what is wrong with them is LACE_E_IMAGE. An image that was made lately is found again.
 */
lace_status lace_image_create(lace_tower *tower, const void *bytes, size_t n_bytes,
                              lace_image **out, lace_error *err);

/* The same of pixels, row by row, 3 bytes each: red, green, blue. */
lace_status lace_image_create_rgb(lace_tower *tower, const uint8_t *pixels, int32_t width,
                                  int32_t height, lace_image **out, lace_error *err);
void lace_image_free(lace_image *image); /* generations that were given it keep it; NULL is fine */

size_t lace_image_n_tokens(const lace_image *image);
const float *lace_image_row(const lace_image *image,
                            size_t i); /* [row_width]; NULL behind the last */

/* The tokens that stand for its rows, [lace_image_n_tokens]. */
void lace_image_tokens(const lace_image *image, lace_token *out);

/*
 * Put images into a prompt, each where the tower's mark for one stands: <start_of_image> of Gemma,
 * <|image_pad|> of Qwen. What chat templates write for a part of the type "image" is such a mark.
 * n_out: how many tokens there are then, even if `capacity` has no room for them. LACE_E_ARG if
 * there are more marks than images, or fewer.
 */
lace_status lace_tower_place(const lace_tower *tower, const lace_token *tokens, size_t n_tokens,
                             lace_image *const *images, size_t n_images, lace_token *out,
                             size_t capacity, size_t *n_out, lace_error *err);

/* The text of such a mark, for prompts that no template writes. */
const char *lace_tower_mark(const lace_tower *tower);

/* Append an image to a sequence; want_logits: of every row. See lace_session_eval. */
lace_status lace_session_eval_image(lace_session *session, int32_t sequence,
                                    const lace_image *image, bool want_logits, lace_error *err);

/* ---- Chat ------------------------------------------------------------------------------------ */

/*
 * A conversation in three steps: messages become a prompt by the model's chat template, a batcher or
 * a session continues it, and the text is taken apart while it comes:
 *
 *     lace_chat_create(model, NULL, &chat, &err);
 *     lace_chat_prompt(chat, &request, &prompt, &err);
 *     lace_reply_create(chat, prompt, on_event, user, &reply, &err);
 *     ... options.prompt = prompt->tokens, options.n_prompt = prompt->n_tokens ...
 *     ... lace_reply_push(reply, piece->text, piece->n_bytes, &err), for each piece ...
 *     lace_reply_finish(reply, &message, &err);
 *
 * What users write never becomes a control token of the prompt. Several threads may use a lace_chat.
 */
typedef struct lace_chat lace_chat;

/*
 * template_source: Jinja to use in place of the model's own; NULL: the model's own, or ChatML if it
 * has none. The model must outlive the chat. LACE_E_TEMPLATE names the line of a template that cannot
 * be parsed.
 */
lace_status lace_chat_create(const lace_model *model, const char *template_source, lace_chat **out,
                             lace_error *err);
void lace_chat_free(lace_chat *chat); /* after its prompts and replies; NULL is fine */

typedef struct lace_message {
    const char *role;    /* "system", "user", "assistant", "tool" */
    const char *content; /* text */
} lace_message;

typedef struct lace_chat_request {
    const lace_message *messages;
    size_t n_messages;
    const char *messages_json; /* in place of messages: an array as OpenAI's API has it, with parts,
                                   tool_calls and results; default NULL */
    const char *tools_json;    /* tools that the model may call, as OpenAI's API has them; NULL
                                   (default): none */
    const char *variables_json; /* an object with further variables of the template, such as
                                   {"enable_thinking": false}; NULL (default): none */
    bool continues_last;  /* the reply goes on with the last message, which is the assistant's;
                                   default false */
    bool keeps_reasoning; /* do not take reasoning out of the reply; default false */
} lace_chat_request;

lace_chat_request lace_chat_request_default(void);

/* A prompt. The library owns what it points to. */
typedef struct lace_prompt {
    const char *text; /* terminated */
    size_t n_bytes;
    const lace_token *tokens;
    size_t n_tokens;
    bool is_thinking; /* the reply begins inside of reasoning. A grammar for it leaves no room for
                         that: turn reasoning off in variables_json */
} lace_prompt;

/*
 * LACE_E_ARG names a message that is malformed, LACE_E_UNSUPPORTED a part that is not text,
 * LACE_E_TEMPLATE is an error that the template raised, LACE_E_JSON a field that is not JSON.
 */
lace_status lace_chat_prompt(const lace_chat *chat, const lace_chat_request *request,
                             lace_prompt **out, lace_error *err);
void lace_prompt_free(lace_prompt *prompt); /* after its replies; NULL is fine */

/*
 * A grammar under which the reply is one call of the prompt's tools, with arguments that are valid
 * for their schemas. name: the tool to be called; NULL: any. LACE_E_UNSUPPORTED if the way in which
 * this model writes calls cannot be held to it.
 */
lace_status lace_chat_call_grammar(const lace_chat *chat, const lace_prompt *prompt,
                                   const char *name, lace_grammar **out, lace_error *err);

typedef enum lace_reply_kind {
    LACE_REPLY_CONTENT,    /* text: a piece of what is said */
    LACE_REPLY_REASONING,  /* text: a piece of the reasoning */
    LACE_REPLY_CALL_BEGIN, /* text: the name of the tool */
    LACE_REPLY_CALL_ARGS,  /* text: a piece of the JSON of its arguments */
    LACE_REPLY_CALL_END,   /* is_complete says whether the model wrote the call to its end */
} lace_reply_kind;

typedef struct lace_reply_event {
    lace_reply_kind kind;
    const char *text; /* not terminated; valid during the call */
    size_t n_bytes;
    int32_t call; /* number of the call, from 0 */
    bool is_complete;
} lace_reply_event;

typedef void (*lace_reply_fn)(void *user, const lace_reply_event *event);

/* A reply that is taken apart. Where the text is cut into pieces makes no difference. */
typedef struct lace_reply lace_reply;

/* on_event may be NULL: only the message is wanted. */
lace_status lace_reply_create(const lace_chat *chat, const lace_prompt *prompt,
                              lace_reply_fn on_event, void *user, lace_reply **out,
                              lace_error *err);
lace_status lace_reply_push(lace_reply *reply, const char *text, size_t n_bytes, lace_error *err);

/*
 * The reply is over: what was held back is given to on_event. *message_json, unless that is NULL, is
 * the message as OpenAI's API has it, to stand in messages_json next time: {"role": "assistant",
 * "content": ..., "reasoning_content": ..., "tool_calls": [...]}. Valid until the reply is freed.
 */
lace_status lace_reply_finish(lace_reply *reply, const char **message_json, lace_error *err);
void lace_reply_free(lace_reply *reply); /* NULL is fine */

/* ---- Embeddings ------------------------------------------------------------------------------ */

/*
 * An embedder turns texts into vectors. Encoders (BERT and its kin) are made for it; other models
 * have hidden states, too. Texts of any lengths are computed together, as many as fit into a batch.
 *
 *     lace_embedder_create(model, NULL, &embedder, &err);
 *     lace_embed_text texts[2] = {{.tokens = a, .n_tokens = n_a, .out = vectors},
 *                                 {.tokens = b, .n_tokens = n_b, .out = vectors + n_embd}};
 *     lace_embedder_run(embedder, texts, 2, &err);
 *
 * Sessions are made when they are first needed. One thread at a time may use an embedder.
 */
typedef struct lace_embedder lace_embedder;

typedef struct lace_embedder_options {
    lace_session_options session; /* n_context: tokens of a text. n_batch: tokens computed together.
                                     n_sequences: texts computed together; 0 (default): 64, or 16 of
                                     models that are no encoders. n_outputs, kv_bytes, kv_tokens and
                                     what it wants are not used */
} lace_embedder_options;

lace_embedder_options lace_embedder_options_default(void);

/* options may be NULL: the default ones. The model must outlive the embedder. */
lace_status lace_embedder_create(lace_model *model, const lace_embedder_options *options,
                                 lace_embedder **out, lace_error *err);
void lace_embedder_free(lace_embedder *embedder); /* NULL is fine */

/* The most tokens that a text may have, and that are computed together. */
int32_t lace_embedder_context(const lace_embedder *embedder);
int32_t lace_embedder_batch(const lace_embedder *embedder);

typedef struct lace_embed_text {
    const lace_token *tokens;
    size_t n_tokens;      /* at least 1 */
    size_t n_first;       /* of a pair of texts: tokens of the first one, as lace_tokenize_pair has
                             it; 0 (default): it is no pair */
    lace_pooling pooling; /* LACE_POOLING_RANK only of models with n_classes */
    bool normalize;       /* divide by the length, so that a product of two vectors is the cosine of
                             their angle; not for scores; default false */
    float *out;           /* [n_embd], with LACE_POOLING_NONE [n_tokens, n_embd], with
                             LACE_POOLING_RANK [n_classes] */
    /* Called between the batches of a long text; true cancels everything. NULL: never called. */
    bool (*is_unwanted)(void *user);
    void *user;
} lace_embed_text;

/*
 * Compute the vectors of all texts. LACE_E_CONTEXT if a text is too long, LACE_E_NUMERIC if a
 * vector is not finite; then none of them is to be used.
 */
lace_status lace_embedder_run(lace_embedder *embedder, const lace_embed_text *texts, size_t n_texts,
                              lace_error *err);

/* One text to its vector [n_embd], pooled as the model says, of length 1. */
lace_status lace_embedder_embed(lace_embedder *embedder, const char *text, size_t n_bytes,
                                float *vector, lace_error *err);

/* How well a text answers a query, by a reranker: the first of its scores. Larger is better. */
lace_status lace_embedder_score(lace_embedder *embedder, const char *query, size_t n_query,
                                const char *text, size_t n_text, float *score, lace_error *err);

/*
 * The tokens of a query and a text, as rerankers read them: "[CLS] query [SEP] text [SEP]" of BERT,
 * "<s> query </s></s> text </s>" of RoBERTa. *n_first is how many belong to the query. Writes at
 * most `capacity` tokens and sets *n_out to how many there are. A text that does not fit into
 * max_tokens (0: any) is cut at its end.
 */
lace_status lace_tokenize_pair(const lace_model *model, const char *query, size_t n_query,
                               const char *text, size_t n_text, size_t max_tokens,
                               lace_token *tokens, size_t capacity, size_t *n_out, size_t *n_first,
                               lace_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
