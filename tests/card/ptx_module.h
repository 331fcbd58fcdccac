/*
 * A module: the text of PTX, its functions and variables. A kernel is decoded when it is first asked
 * for, because a program has hundreds and uses few.
 */
#ifndef TESTS_CARD_PTX_MODULE_H
#define TESTS_CARD_PTX_MODULE_H

#include "ptx_code.h"

typedef struct module module;
typedef struct module_kernel module_kernel;

/* `text`: taken over, made by malloc, ends with 0; of PTX for `arch` (80, 90). NULL: no module; one
 * line on stderr says why. */
module *module_read(char *text, uint32_t arch);
void module_free(module *m);

uint32_t module_count(const module *m);
module_kernel *module_at(module *m, uint32_t n);
module_kernel *module_find(module *m, const char *name);

/* The decoded kernel; NULL, and one line on stderr, if it has an instruction that is not known. */
kernel *module_kernel_code(module_kernel *k);
/* The same if it was asked for before; NULL otherwise. */
const kernel *module_kernel_done(const module_kernel *k);
uint32_t module_kernel_arch(const module_kernel *k);

/* ---- For the decoder ------------------------------------------------------------------------- */

/* A variable: name[0..n) is in `space` at `value`. In shared memory it gets a place from each kernel
 * that names it: n_bytes at a multiple of `value`; 0 bytes: what the launch asks for. */
typedef struct symbol {
    const char *name;
    size_t n;
    space_kind space;
    uint64_t value;
    uint64_t n_bytes;
} symbol;

/* A function of the text, not decoded. */
typedef struct module_function {
    const char *name;
    size_t name_length;
    const char *head, *body, *end; /* `.entry ...(`, `{ ... }` */
    uint32_t line;                 /* of the body */
} module_function;

const module_function *module_function_named(const module *m, const char *name, size_t n);
const symbol *module_symbols(const module *m, size_t *n);

/* Decode `f`. NULL, and one line on stderr, if that cannot be done. */
kernel *decode_kernel(const module *m, const module_function *f, uint32_t arch);
void kernel_free(kernel *k);

/* A declaration `.align A .type name[N]` behind the word for its space: what it needs. */
typedef struct variable {
    const char *name;
    size_t name_length;
    uint32_t align;
    uint64_t n_bytes; /* 0: as many as the launch says */
    uint32_t element_bytes;
    const char *rest; /* behind it: `=`, `,`, `;` or `)` */
} variable;

bool variable_read(const char *text, const char *end, variable *out);

#endif
