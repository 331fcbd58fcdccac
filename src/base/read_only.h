/* For assembly: where bytes of the program stand, as the system's object files name it. */
#ifndef LACE_BASE_READ_ONLY_H
#define LACE_BASE_READ_ONLY_H

/* It does not know assembly. */
/* clang-format off */
#ifdef _WIN32
#define READ_ONLY .section .rdata, "dr"
#define QUIET_STACK
#else
#define READ_ONLY .section .rodata
/* The stack of this program need not be executable. */
#define QUIET_STACK .section .note.GNU-stack, "", %progbits
#endif
/* clang-format on */

#endif
