/* The decoder of a kernel while it works: for ptx_decode.c and ptx_operand.c. */
#ifndef TESTS_CARD_PTX_DECODER_H
#define TESTS_CARD_PTX_DECODER_H

#include <ctype.h>

#include "ptx_decode.h"

/* What a scope declares. A range: %r<23>. */
typedef struct declared_register {
    const char *name;
    size_t n;
    uint32_t count; /* of a range; 0: one register */
    uint32_t first;
    register_class class;
    bool is_short;
} declared_register;

typedef struct label {
    const char *name;
    size_t n;
    uint32_t at;
} label;

typedef struct pending_branch {
    const char *name;
    size_t n;
    uint32_t instr;
} pending_branch;

typedef struct constant {
    uint64_t value;
    bool is_wide, is_dynamic;
    uint32_t row;
} constant;

/* An array that grows. */
#define ARRAY(T)                                                                                   \
    struct {                                                                                       \
        T *at;                                                                                     \
        size_t n, room;                                                                            \
    }

enum { CONSTANT_TABLE = 4096, MAX_CALL_DEPTH = 8 };

struct decoder {
    const module *module;
    kernel *kernel;
    const char *name;
    ARRAY(instr) code;
    ARRAY(uint32_t) lists;
    ARRAY(reg_use) uses;
    ARRAY(uint8_t) classes; /* of registers */
    ARRAY(declared_register) registers;
    ARRAY(symbol) symbols;
    ARRAY(label) labels;
    ARRAY(pending_branch) pending;
    ARRAY(constant) constants;
    ARRAY(operand) list;
    ARRAY(uint64_t) shared_places;           /* of the module's variables; UINT64_MAX: none yet */
    uint32_t constant_table[CONSTANT_TABLE]; /* 1 + a number; 0: free */
    uint32_t n_constant_rows;
    uint32_t local_bytes, shared_bytes, dynamic_align;
    uint32_t n_calls;
    int depth;
    char op[256];
};

bool decoder_grow(void **at, size_t *room, size_t n, size_t size);

/* Add an element; false: no memory. */
#define PUSH(array, ...)                                                                           \
    (decoder_grow((void **)&(array).at, &(array).room, (array).n, sizeof *(array).at)              \
         ? ((array).at[(array).n++] = (__VA_ARGS__), true)                                         \
         : false)

/* operand.first of a constant says that what the launch asks for begins there. */
enum { IS_DYNAMIC = 1 };

static inline bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static inline const char *skip_blanks(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static inline size_t name_length(const char *p)
{
    size_t n = 0;
    while (is_name(p[n]))
        n++;
    return n;
}

/* The innermost declaration of a register. */
bool find_register(const decoder *d, const char *name, size_t n, operand *out);

/* A variable. *is_dynamic: its place is counted from where what the launch asks for begins. */
bool find_symbol(decoder *d, const char *name, size_t n, operand *out, bool *is_dynamic);

/* The operand that begins at p, and the end of it; NULL: that is none. */
const char *read_operand(decoder *d, const statement *s, const char *p, operand *out);

#endif
