/*
 * Fuzzing mmproj files: whatever the bytes are, opening one as a vision tower says no with a line, or
 * binds all of it.
 */
#include <assert.h>

#include "model/tower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weights *files;
    model *m;
    lace_error err = {0};
    device_options o = {.level = CPU_PLAIN, .mode = WEIGHTS_PACKED};
    if (weights_open_memory((span){data, size}, "input", &files, &err) != LACE_OK)
        return 0;
    if (tower_create(files, &o, &m, &err) == LACE_OK) {
        assert(tower_max_patches(&m->tower->config) <= TOWER_MAX_PATCHES);
        model_free(m);
    } else {
        assert(err.text[0]);
    }
    return 0;
}
