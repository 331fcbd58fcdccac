/* The page's files as bytes of the program. Built from the project's root. */
    .section .rodata
#define PAGE_ASSET(name, path, type, file)                                                         \
    .globl page_file_##name; .globl page_file_##name##_end;                                        \
    page_file_##name: .incbin file; page_file_##name##_end: .byte 0;
#include "server/page_assets.def"

/* The stack of this program need not be executable. */
    .section .note.GNU-stack, "", %progbits
