/* Words repeat: a small cache of those of one text. */
#include "tokenizer/memo.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum {
    N_ENTRIES = 4096,     /* a power of two */
    MIN_TEXT_BYTES = 512, /* below, clearing the entries costs more than they save */
    MAX_WORD_BYTES = 64,
};

void memo_deinit(memo *m)
{
    mem_free(m->entries);
    *m = (memo){0};
}

void memo_reset(memo *m, size_t n_bytes)
{
    m->is_on = n_bytes >= MIN_TEXT_BYTES;
    if (!m->is_on)
        return;
    if (m->entries)
        memset(m->entries, 0, N_ENTRIES * sizeof *m->entries);
    else
        m->entries = mem_calloc(N_ENTRIES, sizeof *m->entries);
    m->is_on = m->entries != NULL; /* without memory it is only slower */
}

memo_entry *memo_find(memo *m, text word)
{
    if (!m->is_on || word.size > MAX_WORD_BYTES)
        return NULL;
    return &m->entries[hash_bytes(word.data, word.size) & (N_ENTRIES - 1)];
}

bool memo_is(const memo_entry *entry, text input, text word)
{
    return entry->n_bytes == word.size &&
           memcmp(input.data + entry->begin, word.data, word.size) == 0;
}
