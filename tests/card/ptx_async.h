/* Copies that go on while threads compute, and what waits for them. */
#ifndef TESTS_CARD_PTX_ASYNC_H
#define TESTS_CARD_PTX_ASYNC_H

#include "ptx_run.h"

/* The last lane of a warp has ended: NULL, or what it must not leave behind. */
const char *async_end(warp *w);

void async_free(warp *w);
void async_team_free(team *t);

#endif
