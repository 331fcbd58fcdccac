/* The page's files as bytes of the program. Built from the project's root. */
#include "base/read_only.h"
    READ_ONLY
#define PAGE_ASSET(name, path, type, file)                                                         \
    .globl page_file_##name; .globl page_file_##name##_end;                                        \
    page_file_##name: .incbin file; page_file_##name##_end: .byte 0;
#include "server/page_assets.def"

    QUIET_STACK
