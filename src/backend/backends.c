/* The table of backends, and devices by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cuda/cuda_device.h"
#include "backend/mixed.h"
#include "backend/ref/ref_device.h"
#include "backend/vulkan/vulkan_device.h"
#include "base/mem.h"
#include "rank/rank.h"

/* In the order in which "auto" asks; the CPU takes whatever nobody else has room for. */
static const backend *const backends[] = {&backend_cuda, &backend_vulkan, &backend_cpu,
                                          &backend_ref};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

/* Room for weights and something beside them. */
static bool has_room(device *d, uint64_t weight_bytes)
{
    device_info info;
    return device_describe(d, &info, NULL) == LACE_OK &&
           info.free_bytes > weight_bytes + weight_bytes / 8 + ((uint64_t)512 << 20);
}

static int count_gpus(const backend *b)
{
    return b->count_gpus ? b->count_gpus() : b->count();
}

/* A card's name in LACE_DEVICES, which stands for those that the machine has; false: there is none. */
static bool find_listed(const char *list, char out[DEVICE_NAME_BYTES])
{
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n > 0 && n < DEVICE_NAME_BYTES && !(n == 3 && memcmp(at, "cpu", 3) == 0)) {
            memcpy(out, at, n);
            out[n] = 0;
            return true;
        }
        at += n + (at[n] == ',');
    }
    return false;
}

bool device_find_card(const device_options *o, char out[DEVICE_NAME_BYTES], bool *has_all)
{
    const char *list = getenv("LACE_DEVICES");
    device *d = NULL;
    if (list) {
        if (!find_listed(list, out) || device_open(out, o, &d, NULL) != LACE_OK)
            return false;
    } else {
        for (int i = 0; !d && backends[i] != &backend_cpu; i++)
            if (count_gpus(backends[i]) > 0 && backends[i]->open(0, o, &d, NULL) == LACE_OK)
                snprintf(out, DEVICE_NAME_BYTES, "%s:0", backends[i]->name);
    }
    if (!d)
        return false;
    *has_all = has_room(d, o->weight_bytes);
    device_close(d);
    return true;
}

static lace_status open_best(const device_options *o, device **out, lace_error *err)
{
    for (int i = 0; backends[i] != &backend_cpu; i++) {
        if (count_gpus(backends[i]) == 0 || (o->has_columns && !backends[i]->place_columns) ||
            backends[i]->open(0, o, out, NULL) != LACE_OK)
            continue;
        if (has_room(*out, o->weight_bytes))
            return LACE_OK;
        device_close(*out);
    }
    return backend_cpu.open(0, o, out, err);
}

/* The number behind a colon; 0 without one, -1 if it is none. */
static int parse_index(const char *at)
{
    if (!*at)
        return 0;
    char *end = NULL;
    long n = *at == ':' ? strtol(at + 1, &end, 10) : -1;
    return !end || end == at + 1 || *end || n < 0 || n > 1023 ? -1 : (int)n;
}

/* "cpu:8M": so many bytes, KiB (K), MiB (M) or GiB (G); 0: it is none. */
static uint64_t parse_size(const char *at)
{
    static const char units[] = "KMG";
    char *end = NULL;
    uint64_t n = *at >= '1' && *at <= '9' ? strtoull(at, &end, 10) : 0;
    const char *unit = end && *end ? strchr(units, *end) : NULL;
    if (n == 0 || n > (uint64_t)1 << 30 || !unit || end[1])
        return 0;
    return n << 10 * (unit - units + 1);
}

lace_status device_open(const char *name, const device_options *o, device **out, lace_error *err)
{
    *out = NULL;
    if (!name)
        return backend_cpu.open(0, o, out, err);
    if (strcmp(name, "auto") == 0)
        return open_best(o, out, err);
    if (strncmp(name, "cpu:", 4) == 0 && parse_size(name + 4))
        return cpu_device_open_apart(parse_size(name + 4), o, out, err);
    for (int i = 0; i < N_BACKENDS; i++) {
        size_t n = strlen(backends[i]->name);
        int index = strncmp(name, backends[i]->name, n) == 0 ? parse_index(name + n) : -1;
        if (index >= 0)
            return backends[i]->open(index, o, out, err);
    }
    return error_set(err, LACE_E_ARG,
                     "device \"%s\", expected auto, cpu, cuda, vulkan, the last two with : and a "
                     "number or without, or ref",
                     name);
}

/* What a device says of itself. One that cannot be opened is not one that models run on. */
static bool look_at(const backend *b, int index, lace_device *out)
{
    device_options options = {.level = cpu_level_detect()};
    device_info info = {.name = ""};
    device *d;
    if (b->open(index, &options, &d, NULL) != LACE_OK)
        return false;
    bool is_fine = device_describe(d, &info, NULL) == LACE_OK;
    bool is_cpu = b == &backend_cpu;
    *out = (lace_device){.total_bytes = is_cpu ? mem_machine_total() : info.total_bytes,
                         .free_bytes = is_cpu ? mem_machine_available() : info.free_bytes};
    if (is_cpu)
        snprintf(out->id, sizeof out->id, "%s", b->name);
    else
        snprintf(out->id, sizeof out->id, "%s:%d", b->name, index);
    if (is_cpu)
        snprintf(out->name, sizeof out->name, "CPU, %d cores, %s", cpu_count(),
                 cpu_level_name(options.level));
    else
        snprintf(out->name, sizeof out->name, "%s", info.name);
    device_close(d);
    return is_fine;
}

size_t device_show_all(lace_device *out, size_t capacity)
{
    static const backend *const shown[] = {&backend_cpu, &backend_cuda, &backend_vulkan};
    size_t n = 0;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        for (int k = 0, n_devices = shown[i]->count(); k < n_devices; k++) {
            lace_device found;
            if (!look_at(shown[i], k, &found))
                continue;
            if (n < capacity)
                out[n] = found;
            n++;
        }
    return n;
}

void device_close(device *d)
{
    if (d)
        d->backend->close(d);
}

lace_status device_join(device *d, struct ranks *r, char note[DEVICE_NOTE_BYTES], lace_error *err)
{
    uint64_t bytes[RANKS_MAX];
    const backend *kind = d->backend, *other;
    bool is_same = true;
    note[0] = 0;
    if (!r->is_here)
        return LACE_OK;
    memcpy(ranks_mine(r), &kind, sizeof kind);
    for (int32_t k = 0; k < r->shares.n_ranks; k++)
        bytes[k] = sizeof kind;
    ranks_exchange(r, bytes);
    TRY(ranks_status(r, err));
    for (int32_t k = 0; k < r->shares.n_ranks; k++) {
        memcpy(&other, ranks_part(r, k), sizeof other);
        is_same = is_same && other == kind;
    }
    return is_same && kind->join ? kind->join(d, r, note, err) : LACE_OK;
}
