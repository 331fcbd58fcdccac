/* What sm_90 has beside other cards: groups of warps (ptx_group.c), and barriers and copies in shared
 * memory (ptx_bulk.c). Both decode what decode_wgmma and decode_bulk say in ptx_decode.h. */
#ifndef TESTS_CARD_PTX_HOPPER_H
#define TESTS_CARD_PTX_HOPPER_H

#include "ptx_run.h"
#include "ptx_decode.h"

/* The last lane of a warp has ended: NULL, or what it must not leave behind. */
const char *group_end(warp *w);
const char *bulk_warp_end(warp *w);

void group_free(warp *w);
void bulk_team_free(team *t);

#endif
