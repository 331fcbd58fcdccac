/*
 * Decoding of one kernel: what the text of a body becomes, while it is read.
 *
 * Registers get numbers of their own in the order in which they are declared; which rows they lie in
 * is decided at the end (ptx_slots.c), so each place that names a register is noted. Functions that a
 * kernel calls are decoded where they are called, with registers of their own.
 */
#ifndef TESTS_CARD_PTX_DECODE_H
#define TESTS_CARD_PTX_DECODE_H

#include "ptx_module.h"

typedef enum register_class { CLASS_ROW, CLASS_ROWS, CLASS_PREDICATE, N_CLASSES } register_class;

typedef enum operand_kind {
    OPERAND_REGISTER,
    OPERAND_CONSTANT,
    OPERAND_LIST,   /* {a, b, ...}: `list` */
    OPERAND_MEMORY, /* [base + value]; base in `list`, if it is a register */
    OPERAND_SPECIAL,
    OPERAND_NAME,
    OPERAND_SINK,
} operand_kind;

typedef struct operand {
    operand_kind kind;
    register_class class;
    uint32_t number; /* of the register */
    bool is_not;     /* !%p */
    bool is_short;   /* a register of 16 bits */
    uint64_t value;  /* of a constant, or added to an address */
    bool has_base;
    bool has_space; /* the address is a symbol's: `space` */
    space_kind space;
    uint32_t first, n; /* of a list: in decoder.list */
    const char *name;
    size_t name_length;
} operand;

enum { MAX_STATEMENT = 12 };

/* One statement: an operation and its operands. */
typedef struct statement {
    const char *op; /* a copy that ends with 0 */
    operand operands[MAX_STATEMENT];
    uint32_t n;
    uint32_t guard; /* register number, or NO_GUARD */
    bool guard_not;
    const char *text;
    uint32_t line;
} statement;

/* A place in the code that names a register. */
typedef struct reg_use {
    uint32_t instr;
    uint32_t where; /* op[where], or lists[where - N_OPERANDS], or GUARD_PLACE */
    uint32_t number;
    uint8_t class;
    bool is_write;
} reg_use;

#define GUARD_PLACE 0xFFFFFFFEu

typedef struct decoder decoder;

/* Add an instruction. Its address changes with the next one. NULL: no memory. */
instr *decode_add(decoder *d, const statement *s, instr_kind kind, op_run *run);

/* Its operand `where` is this one, of a class; false, and a message, if it cannot be. */
bool decode_operand(decoder *d, instr *i, uint32_t where, const operand *o, register_class class,
                    bool is_write);

/* All registers of a list, behind what instr.first says; of `class`. */
bool decode_list(decoder *d, instr *i, const operand *o, register_class class, bool is_write);

/* The register, if any, in `where`, and what is added to it. */
bool decode_address(decoder *d, instr *i, uint32_t where, const operand *o);

const operand *decode_element(const decoder *d, const operand *o, uint32_t n);
int decode_arch(const decoder *d);
void decode_lets_next(decoder *d); /* the kernel lets the next one begin early */

bool decode_error(decoder *d, const statement *s, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- What each file of operations decodes ---------------------------------------------------- */

typedef enum decoded { DECODED, NOT_MINE, DECODE_FAILED } decoded;

decoded decode_memory(decoder *d, const statement *s);
decoded decode_warp(decoder *d, const statement *s);
decoded decode_async(decoder *d, const statement *s);
decoded decode_matrix(decoder *d, const statement *s);
decoded decode_wgmma(decoder *d, const statement *s);
decoded decode_bulk(decoder *d, const statement *s);

/* Whether `op` begins with this, and the next character is a dot or the end. */
bool op_begins(const char *op, const char *with);
/* Whether one of the words between dots is this one. */
bool op_has(const char *op, const char *word);

/* ---- Registers ------------------------------------------------------------------------------- */

typedef struct slot_problem {
    instr *code;
    uint32_t n_code;
    uint32_t *lists;
    const reg_use *uses; /* in the order of the code */
    uint32_t n_uses;
    const uint8_t *classes; /* of registers */
    uint32_t n_registers;
} slot_problem;

/* Give each register a row (or two, or a place for a predicate) and write it where it is named.
 * false: no memory. */
bool slots_assign(const slot_problem *p, uint32_t *n_rows, uint32_t *n_predicates);

#endif
