/* Cutting text into words with regexes, run by PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/split.h"

#include <pcre2.h>

#include "base/buf.h"
#include "base/mem.h"

enum {
    MAX_REGEX_BYTES = 16 * 1024,
    JIT_STACK_START = 32 * 1024,
    JIT_STACK_MAX = 64 * 1024 * 1024,
    HEAP_LIMIT_KIB = 256 * 1024, /* of the interpreter, when the JIT's stack does not do */
    MATCH_LIMIT_BASE = 10 * 1000 * 1000,
    MATCH_LIMIT_PER_BYTE = 16,
};

/* What becomes of a match. */
typedef enum step_kind {
    STEP_PIECE,     /* it is a piece */
    STEP_THOUSANDS, /* a run of digits: pieces of three, counted from the right */
    STEP_CUTS,      /* the same, but without a cut at its start (unless three divide it) and end */
} step_kind;

typedef struct step {
    pcre2_code *code;
    step_kind kind;
} step;

struct splitter {
    pcre2_general_context *memory;
    size_t n_steps;
    step steps[];
};

/*
 * Regexes that take quadratic time in any engine that backtracks, each with an equal that looks at
 * every character once: a lookbehind keeps attempts away from the inside of a run.
 */
static const struct {
    const char *slow, *fast;
    step_kind kind;
} replacements[] = {
    {"\\d{1,3}(?=(?:\\d{3})*\\b)", "(?<!\\d)\\d++\\b", STEP_THOUSANDS},
    {"\\d{1,3}(?=(?:\\d{3})*(?!\\d))", "(?<!\\d)\\d++", STEP_THOUSANDS},
    {"(?=(\\d{3})+(?!\\d))", "(?<!\\d)\\d++", STEP_CUTS},
    {"\\s+$", "(?<!\\s)\\s++$", STEP_PIECE},
};

/* ---- Compiling ------------------------------------------------------------------------------- */

/*
 * White space as Unicode (and the regex engines of the models) has it. PCRE2's own \s also holds
 * U+180E, which is none since Unicode 6.3.
 */
#define SPACE_RANGES                                                                               \
    "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"   \
    "\\x{3000}"

/* Rewrites \s and \S; everything else that the models use means the same to PCRE2. */
static lace_status translate(text regex, buf *out)
{
    bool in_class = false;
    size_t class_start = 0;
    for (size_t i = 0; i < regex.size; i++) {
        char c = regex.data[i];
        if (c == '\\' && i + 1 < regex.size) {
            char next = regex.data[++i];
            if (next == 's')
                TRY(buf_append_text(out, in_class ? SPACE_RANGES : "[" SPACE_RANGES "]"));
            else if (next == 'S' && !in_class)
                TRY(buf_append_text(out, "[^" SPACE_RANGES "]"));
            else
                TRY(buf_append(out, regex.data + i - 1, 2));
            continue;
        }
        if (!in_class && c == '[') {
            in_class = true;
            class_start = i + 1;
            if (class_start < regex.size && regex.data[class_start] == '^')
                class_start++;
        } else if (in_class && c == ']' && i > class_start) {
            in_class = false;
        }
        TRY(buf_append(out, &c, 1));
    }
    return LACE_OK;
}

static lace_status compile(text regex, pcre2_general_context *memory, step *out, lace_error *err)
{
    for (size_t i = 0; i < sizeof replacements / sizeof *replacements; i++) {
        if (text_is(regex, replacements[i].slow)) {
            out->kind = replacements[i].kind;
            regex = text_of(replacements[i].fast);
            break;
        }
    }
    buf translated;
    buf_init(&translated, MAX_REGEX_BYTES);
    lace_status status = translate(regex, &translated);
    if (status != LACE_OK) {
        buf_deinit(&translated);
        return error_set(err, status == LACE_E_LIMIT ? LACE_E_VOCAB : status,
                         "pre-tokenizer: a regex of %zu bytes is too long", regex.size);
    }
    pcre2_compile_context *context = pcre2_compile_context_create(memory);
    int code = 0;
    PCRE2_SIZE offset = 0;
    if (context)
        out->code =
            pcre2_compile((PCRE2_SPTR)(translated.data ? translated.data : ""), translated.size,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C |
                              PCRE2_NO_AUTO_CAPTURE,
                          &code, &offset, context);
    pcre2_compile_context_free(context);
    buf_deinit(&translated);
    if (out->code) {
        /* Without a JIT (a hardened system may forbid it) the interpreter does the same, slower. */
        pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE);
        return LACE_OK;
    }
    if (!context || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return error_nomem(err, "a pre-tokenizer's regex");
    char message[120] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    return error_set(err, LACE_E_VOCAB, "pre-tokenizer: regex \"%.*s\": %s", text_width(regex),
                     regex.data, message);
}

static void *allocate(PCRE2_SIZE n_bytes, void *user)
{
    (void)user;
    return mem_alloc(n_bytes);
}

static void release(void *p, void *user)
{
    (void)user;
    mem_free(p);
}

lace_status splitter_create(const text *regexes, size_t n_regexes, splitter **out, lace_error *err)
{
    *out = NULL;
    if (n_regexes > 64)
        return error_set(err, LACE_E_VOCAB, "pre-tokenizer: %zu regexes, expected at most 64",
                         n_regexes);
    splitter *s = mem_calloc(1, sizeof *s + n_regexes * sizeof *s->steps);
    if (!s)
        return error_nomem(err, "the pre-tokenizer");
    s->n_steps = n_regexes;
    s->memory = pcre2_general_context_create(allocate, release, NULL);
    lace_status status = s->memory ? LACE_OK : error_nomem(err, "the pre-tokenizer");
    for (size_t i = 0; i < n_regexes && status == LACE_OK; i++)
        status = compile(regexes[i], s->memory, &s->steps[i], err);
    return GIVE_OR_FREE(status, s, out, splitter_free);
}

void splitter_free(splitter *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_steps; i++)
        pcre2_code_free(s->steps[i].code);
    pcre2_general_context_free(s->memory);
    mem_free(s);
}

/* ---- Running --------------------------------------------------------------------------------- */

void split_scratch_deinit(split_scratch *scratch)
{
    mem_free_all(scratch->ends, scratch->previous);
    pcre2_match_data_free(scratch->match_data);
    pcre2_match_context_free(scratch->match_context);
    pcre2_jit_stack_free(scratch->jit_stack);
    *scratch = (split_scratch){0};
}

static lace_status scratch_prepare(const splitter *s, split_scratch *scratch, size_t n_bytes)
{
    if (!scratch->match_data) {
        scratch->match_data = pcre2_match_data_create(1, s->memory);
        scratch->match_context = pcre2_match_context_create(s->memory);
        scratch->jit_stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, s->memory);
        if (!scratch->match_data || !scratch->match_context)
            return LACE_E_NOMEM;
        /* Without a stack of its own the JIT has 32 KiB; then the interpreter steps in. */
        if (scratch->jit_stack)
            pcre2_jit_stack_assign(scratch->match_context, NULL, scratch->jit_stack);
        pcre2_set_heap_limit(scratch->match_context, HEAP_LIMIT_KIB);
    }
    uint64_t limit = MATCH_LIMIT_BASE + (uint64_t)MATCH_LIMIT_PER_BYTE * n_bytes;
    pcre2_set_match_limit(scratch->match_context,
                          limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    return LACE_OK;
}

/* A piece ends here; nothing happens if the last one ended there already. */
static lace_status add_end(split_scratch *scratch, size_t end)
{
    size_t last = scratch->n_ends ? scratch->ends[scratch->n_ends - 1] : 0;
    if (end <= last)
        return LACE_OK;
    if (!mem_grow(&scratch->ends, scratch->n_ends, &scratch->ends_capacity, sizeof *scratch->ends,
                  256))
        return LACE_E_NOMEM;
    scratch->ends[scratch->n_ends++] = (uint32_t)end;
    return LACE_OK;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Cut a run of digits [begin, end) before each of those behind which three divide the rest. */
static lace_status add_thousands(split_scratch *scratch, text input, size_t begin, size_t end)
{
    size_t n_digits = 0;
    for (size_t i = begin; i < end; i++)
        n_digits += !is_continuation(input.data[i]);
    for (size_t i = begin; i < end; i++)
        if (!is_continuation(input.data[i]) && n_digits-- % 3 == 0)
            TRY(add_end(scratch, i));
    return LACE_OK;
}

static lace_status add_match(split_scratch *scratch, step_kind kind, text input, size_t begin,
                             size_t end)
{
    if (kind != STEP_CUTS)
        TRY(add_end(scratch, begin));
    if (kind != STEP_PIECE)
        TRY(add_thousands(scratch, input, begin, end));
    if (kind != STEP_CUTS)
        TRY(add_end(scratch, end));
    return LACE_OK;
}

static lace_status match_failed(int code, lace_error *err)
{
    if (code == PCRE2_ERROR_NOMEMORY)
        return error_nomem(err, "a pre-tokenizer's match");
    char message[120] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    return error_set(err, LACE_E_LIMIT, "pre-tokenizer: %s", message);
}

/* Apply one regex to the piece [begin, end). */
static lace_status cut_piece(const step *s, split_scratch *scratch, text input, size_t begin,
                             size_t end, lace_error *err)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)input.data + begin;
    size_t n = end - begin, at = 0;
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(scratch->match_data);
    while (at < n) {
        int code = pcre2_match(s->code, subject, n, at, PCRE2_NO_UTF_CHECK, scratch->match_data,
                               scratch->match_context);
        if (code == PCRE2_ERROR_JIT_STACKLIMIT)
            code = pcre2_match(s->code, subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                               scratch->match_data, scratch->match_context);
        if (code == PCRE2_ERROR_NOMATCH)
            break;
        if (code < 0)
            return match_failed(code, err);
        if (add_match(scratch, s->kind, input, begin + match[0], begin + match[1]) != LACE_OK)
            return error_nomem(err, "the pieces of a text");
        at = match[1];
        /* After an empty match, go on behind the next character. */
        if (match[0] == match[1])
            for (at++; at < n && is_continuation((char)subject[at]); at++)
                ;
    }
    return add_end(scratch, end) == LACE_OK ? LACE_OK : error_nomem(err, "the pieces of a text");
}

lace_status splitter_run(const splitter *s, split_scratch *scratch, text input, lace_error *err)
{
    scratch->n_ends = 0;
    if (scratch_prepare(s, scratch, input.size) != LACE_OK ||
        add_end(scratch, input.size) != LACE_OK)
        return error_nomem(err, "the pieces of a text");
    for (size_t i = 0; i < s->n_steps; i++) {
        split_scratch old = *scratch;
        scratch->ends = old.previous;
        scratch->ends_capacity = old.previous_capacity;
        scratch->previous = old.ends;
        scratch->previous_capacity = old.ends_capacity;
        scratch->n_ends = 0;
        for (size_t k = 0; k < old.n_ends; k++)
            TRY(cut_piece(&s->steps[i], scratch, input, k ? old.ends[k - 1] : 0, old.ends[k], err));
    }
    return LACE_OK;
}
