/*
 * Fuzzing placements: whatever a file or the text of a device says, it is refused, or every layer is on a
 * device that has a name.
 */
#include <stdlib.h>
#include <string.h>

#include "place/place_file.h"
#include "place/rules.h"
#include "place/what_if.h"

static void need(bool ok)
{
    if (!ok)
        abort();
}

static void check(const placement *p)
{
    need(p->n_devices >= 1 && p->n_devices <= PLACE_MAX_DEVICES);
    need(p->n_layers >= 1 && p->n_layers <= PLACE_MAX_LAYERS && p->output < p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++)
        need(p->devices[i][0] && memchr(p->devices[i], 0, PLACE_NAME_BYTES));
    for (int32_t i = 0; i < p->n_layers; i++)
        need(p->layers[i] < p->n_devices && p->experts[i] < p->n_devices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    placement p;
    place_rules rules;
    what_if_machines machines;
    if (placement_read((span){data, size}, &p, NULL) == LACE_OK)
        check(&p);
    char *said = malloc(size + 1);
    if (!said)
        return 0;
    memcpy(said, data, size);
    said[size] = 0;
    if (place_rules_parse(said, &rules, NULL) == LACE_OK && !rules.file[0] &&
        place_rules_apply(&rules, 12, &p, NULL) == LACE_OK)
        check(&p);
    if (what_if_parse(said, &machines, NULL) == LACE_OK)
        need(machines.n >= 1 && machines.read_bytes_s > 0);
    free(said);
    return 0;
}
