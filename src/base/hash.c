/* A seeded map from text to a number. */
#include "base/hash.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"

static uint64_t seed;
static pthread_once_t seed_once = PTHREAD_ONCE_INIT;

static void draw_seed(void)
{
    if (!system_random(&seed, sizeof seed))
        seed = (uintptr_t)&seed * 0x9E3779B97F4A7C15u;
}

/* Two rounds of multiply-and-fold over 8 bytes at a time (the idea of wyhash). */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t low = a * b;
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t high = ah * bh + (ah * bl >> 32) + (al * bh >> 32);
    return low ^ high;
}

uint32_t hash_bytes(const void *data, size_t n)
{
    pthread_once(&seed_once, draw_seed);
    const uint8_t *p = data;
    uint64_t h = seed ^ n * 0x9E3779B97F4A7C15u;
    for (; n >= 8; n -= 8, p += 8)
        h = mix(h ^ load_u64(p), 0xD6E8FEB86659FD93u ^ seed);
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++)
        tail |= (uint64_t)p[i] << 8 * i;
    h = mix(h ^ tail, 0xA0761D6478BD642Fu ^ seed);
    return (uint32_t)(h ^ h >> 32);
}

void map_init(map *m)
{
    *m = (map){0};
}

void map_deinit(map *m)
{
    mem_free(m->entries);
    map_init(m);
}

static map_entry *slot_of(const map *m, text key, uint32_t hash)
{
    for (size_t i = hash & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
        map_entry *e = &m->entries[i];
        if (e->value < 0 || (e->hash == hash && text_equals(e->key, key)))
            return e;
    }
}

lace_status map_reserve(map *m, size_t n)
{
    size_t n_slots = m->n_slots ? m->n_slots : 16;
    while (n_slots / 4 * 3 < n) {
        if (n_slots > SIZE_MAX / 4)
            return LACE_E_NOMEM;
        n_slots *= 2;
    }
    if (n_slots == m->n_slots)
        return LACE_OK;
    map_entry *entries = mem_calloc(n_slots, sizeof *entries);
    if (!entries)
        return LACE_E_NOMEM;
    for (size_t i = 0; i < n_slots; i++)
        entries[i].value = -1;
    map grown = {entries, n_slots, m->n_used};
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->entries[i].value >= 0)
            *slot_of(&grown, m->entries[i].key, m->entries[i].hash) = m->entries[i];
    mem_free(m->entries);
    *m = grown;
    return LACE_OK;
}

lace_status map_add(map *m, text key, int32_t value)
{
    TRY(map_reserve(m, m->n_used + 1));
    uint32_t hash = hash_bytes(key.data, key.size);
    map_entry *e = slot_of(m, key, hash);
    if (e->value >= 0)
        return LACE_E_DUP;
    *e = (map_entry){key, hash, value};
    m->n_used++;
    return LACE_OK;
}

int32_t map_find(const map *m, text key)
{
    if (m->n_used == 0)
        return -1;
    return slot_of(m, key, hash_bytes(key.data, key.size))->value;
}
