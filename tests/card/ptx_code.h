/*
 * A kernel as the software card runs it: PTX text decoded once into an array of small instructions.
 *
 * Registers of a warp are rows of 32 lanes: a 32-bit register (and one of 16 bits, whose upper half
 * is 0) is one row of uint32_t, a 64-bit register two rows, read as 32 uint64_t. A predicate is one
 * word with a bit for each lane. Constants are rows too, so that an operand is always an array.
 */
#ifndef TESTS_CARD_PTX_CODE_H
#define TESTS_CARD_PTX_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct warp warp;
typedef struct instr instr;

/* Does the instruction for the lanes in `mask`. */
typedef void op_run(warp *w, const instr *i, uint32_t mask);

typedef enum instr_kind {
    KIND_PLAIN,
    KIND_BRANCH,
    KIND_EXIT,
    KIND_TOGETHER,  /* waits until all lanes that an operand names are there, then runs */
    KIND_WARP_SYNC, /* the same, and lanes may wait at different places */
    KIND_BARRIER,   /* of the block */
    KIND_CLUSTER_WAIT,
    KIND_LAUNCH_WAIT, /* until the launch in front of this one has ended */
    KIND_POLL,        /* reads what another thread may change: gives others a turn */
} instr_kind;

/* Where an address points. */
typedef enum space_kind {
    SPACE_GENERIC,
    SPACE_GLOBAL,
    SPACE_SHARED,
    SPACE_LOCAL,
    SPACE_PARAM
} space_kind;

enum {
    N_LANES = 32,
    N_OPERANDS = 6,
    NO_GUARD = 0xFFFFFFFFu,
    SINK = 0x7FFFFFE0u,  /* an operand of which nobody wants to know: `_` */
    CONSTANT = 1u << 31, /* this bit of an operand: a row of the kernel's constants */
};

struct instr {
    op_run *run;
    uint8_t kind;
    bool guard_not;
    uint8_t space;
    uint8_t n_bytes;         /* of one element in memory */
    uint8_t n_elements;      /* of a vector */
    bool is_signed;          /* an element is widened with its sign */
    bool is_wide;            /* registers of elements have 64 bits */
    bool wide_address;       /* the register of an address has 64 bits */
    uint8_t mode;            /* what else the operation wants to know */
    uint32_t guard;          /* number of the predicate, or NO_GUARD */
    uint32_t op[N_OPERANDS]; /* rows * 32, or numbers of predicates */
    uint32_t first;          /* in the kernel's lists: registers of vectors and tiles */
    uint32_t n_list;
    uint32_t target; /* of a branch */
    int64_t offset;  /* added to an address */
    const char *text;
    uint32_t line;
};

typedef struct kernel_param {
    uint32_t offset, n_bytes;
} kernel_param;

enum { MAX_PARAMS = 64 };

typedef struct kernel {
    char *name;
    instr *code;
    uint32_t n_code;
    uint32_t *lists;
    uint32_t n_rows, n_predicates;
    uint32_t *constants; /* rows */
    uint32_t n_constants;
    kernel_param params[MAX_PARAMS];
    uint32_t n_params, param_bytes;
    uint32_t local_bytes;
    uint32_t shared_bytes;  /* of its own */
    uint32_t dynamic_begin; /* where what the launch asks for begins, behind that */
    uint32_t max_threads;   /* 0: not said */
    uint32_t cluster;       /* blocks of a cluster that the kernel itself wants; 0: not said */
    uint32_t max_shared;    /* set by cuFuncSetAttribute */
    bool lets_next;         /* begin before it has ended: griddepcontrol.launch_dependents */
    uint32_t arch;          /* 80, 90 */
    uint64_t n_done, n_lanes, cpu_ns; /* what it has computed, for a report */
} kernel;

/* ---- Operations ------------------------------------------------------------------------------ */

/*
 * What an instruction is called, and what its operands are. Signature: a letter for each operand:
 * r a row, l two rows, p a predicate, R L P the same written, . nothing more is read here.
 */
typedef struct op_entry {
    const char *name;
    const char *signature;
    op_run *run;
} op_entry;

/* Tables of operations whose whole name says what they do; each ends with a name of NULL. */
extern const op_entry math_ops[], compare_ops[], convert_ops[], rounding_ops[], bit_ops[];

#endif
