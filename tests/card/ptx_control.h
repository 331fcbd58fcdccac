/* What the decoder and the files of operations share beside ptx_decode.h. */
#ifndef TESTS_CARD_PTX_CONTROL_H
#define TESTS_CARD_PTX_CONTROL_H

#include "ptx_run.h"

#define WINDOW_BASE_LOCAL WINDOW_BASE(WINDOW_LOCAL)

/* Before anything is decoded, once. */
void decode_prepare(void);

#endif
