/* Placements, made by the rules that users name. */
#include "place/placement.h"

#include <string.h>

lace_status placement_init(placement *p, const char *cards, int32_t n_layers, lace_error *err)
{
    *p = (placement){.n_devices = 1, .n_layers = n_layers, .stream_tokens = -1};
    memcpy(p->devices[0], "cpu", 4);
    if (n_layers > PLACE_MAX_LAYERS)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "%d layers are more than the %d that several "
                         "devices can share",
                         n_layers, PLACE_MAX_LAYERS);
    for (const char *at = cards; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= PLACE_NAME_BYTES || p->n_devices == PLACE_MAX_DEVICES)
            return error_set(err, LACE_E_ARG,
                             "devices \"%s\", expected up to %d names with commas between them",
                             cards, PLACE_MAX_DEVICES - 1);
        memcpy(p->devices[p->n_devices], at, n);
        p->devices[p->n_devices++][n] = 0;
        at += n + (at[n] == ',');
    }
    return LACE_OK;
}

void placement_last_layers(placement *p, int32_t n, const double *shares)
{
    int32_t n_cards = p->n_devices - 1, on_cards = n < p->n_layers ? n : p->n_layers;
    double all = 0, before = 0;
    for (int32_t d = 0; d < n_cards; d++)
        all += shares ? shares[d] : 1;
    int32_t first = p->n_layers - on_cards, begin = first;
    for (int32_t d = 0; d < n_cards; d++) {
        before += shares ? shares[d] : 1;
        int32_t end =
            d + 1 == n_cards ? p->n_layers : first + (int32_t)(before / all * on_cards + 0.5);
        for (int32_t i = begin; i < end; i++)
            p->layers[i] = p->experts[i] = (uint8_t)(d + 1);
        begin = end > begin ? end : begin;
    }
    for (int32_t i = 0; i < first; i++)
        p->layers[i] = p->experts[i] = 0;
    p->output = n > p->n_layers ? (uint8_t)n_cards : 0;
}

void placement_host_experts(placement *p, int32_t n)
{
    for (int32_t i = 0; i < n && i < p->n_layers; i++)
        p->experts[i] = 0;
}

bool placement_uses_cards(const placement *p)
{
    for (int32_t i = 0; i < p->n_layers; i++)
        if (p->layers[i] || p->experts[i])
            return true;
    return p->output > 0;
}

bool placement_uses_host(const placement *p)
{
    for (int32_t i = 0; i < p->n_layers; i++)
        if (!p->layers[i] || !p->experts[i])
            return true;
    return p->output == 0;
}
