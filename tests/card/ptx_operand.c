/* Operands of instructions: registers, numbers, addresses and lists, read from the text. */
#include <stdlib.h>
#include <string.h>

#include "ptx_decoder.h"

/* ---- Names ----------------------------------------------------------------------------------- */

bool find_register(const decoder *d, const char *name, size_t n, operand *out)
{
    size_t digits = n;
    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    uint32_t number = digits < n ? (uint32_t)strtoul(name + digits, NULL, 10) : 0;
    for (size_t k = d->registers.n; k-- > 0;) {
        const declared_register *r = &d->registers.at[k];
        size_t length = r->count ? digits : n;
        if (r->n != length || memcmp(r->name, name, length) != 0 ||
            (r->count && (digits == n || number >= r->count)))
            continue;
        *out = (operand){.kind = OPERAND_REGISTER,
                         .class = r->class,
                         .number = r->first + (r->count ? number : 0),
                         .is_short = r->is_short};
        return true;
    }
    return false;
}

/* A shared variable of the module gets its place when the kernel first names it. */
static uint64_t shared_place(decoder *d, size_t k, const symbol *s, bool *is_dynamic)
{
    *is_dynamic = s->n_bytes == 0;
    if (*is_dynamic) {
        if (s->value > d->dynamic_align)
            d->dynamic_align = (uint32_t)s->value;
        return 0;
    }
    if (d->shared_places.at[k] == UINT64_MAX) {
        uint32_t align = (uint32_t)s->value;
        d->shared_bytes = (d->shared_bytes + align - 1) / align * align;
        d->shared_places.at[k] = d->shared_bytes;
        d->shared_bytes += (uint32_t)s->n_bytes;
    }
    return d->shared_places.at[k];
}

bool find_symbol(decoder *d, const char *name, size_t n, operand *out, bool *is_dynamic)
{
    *is_dynamic = false;
    for (size_t k = d->symbols.n; k-- > 0;) {
        const symbol *s = &d->symbols.at[k];
        if (s->n != n || memcmp(s->name, name, n) != 0)
            continue;
        *out = (operand){
            .kind = OPERAND_CONSTANT, .value = s->value, .has_space = true, .space = s->space};
        return true;
    }
    size_t n_symbols;
    const symbol *all = module_symbols(d->module, &n_symbols);
    for (size_t k = 0; k < n_symbols; k++) {
        if (all[k].n != n || memcmp(all[k].name, name, n) != 0)
            continue;
        uint64_t value =
            all[k].space == SPACE_SHARED ? shared_place(d, k, &all[k], is_dynamic) : all[k].value;
        *out = (operand){
            .kind = OPERAND_CONSTANT, .value = value, .has_space = true, .space = all[k].space};
        return true;
    }
    return false;
}

/* ---- Operands -------------------------------------------------------------------------------- */

static const char *read_number(const char *p, uint64_t *out)
{
    char *end;
    if (p[0] == '0' && (p[1] == 'f' || p[1] == 'F' || p[1] == 'd' || p[1] == 'D')) {
        size_t n = p[1] == 'f' || p[1] == 'F' ? 8 : 16;
        char digits[17] = {0};
        strncpy(digits, p + 2, n);
        *out = strtoull(digits, NULL, 16);
        return p + 2 + n;
    }
    if (*p == '-')
        *out = (uint64_t)strtoll(p, &end, 0);
    else
        *out = strtoull(p, &end, 0);
    if (*end == '.') { /* 1.0, a fraction of what is cached */
        while (*end == '.' || isdigit((unsigned char)*end))
            end++;
    } else if (*end == 'U') {
        end++;
    }
    return end;
}

/* The inside of [ ]: a register or a symbol, and what is added. Tensor maps have {coordinates}. */
static const char *read_memory(decoder *d, const statement *s, const char *p, operand *out)
{
    operand base;
    *out = (operand){.kind = OPERAND_MEMORY};
    p = read_operand(d, s, p, &base);
    if (!p)
        return NULL;
    p = skip_blanks(p);
    out->has_space = base.has_space;
    out->space = base.space;
    out->has_base = true;
    uint64_t more = 0;
    if (*p == '+') {
        p = read_number(skip_blanks(p + 1), &more);
        p = skip_blanks(p);
    }
    out->value = more;
    operand inside[2] = {base, {.kind = OPERAND_SINK}};
    out->n = 1;
    if (*p == ',') {
        p = read_operand(d, s, skip_blanks(p + 1), &inside[1]);
        if (!p)
            return NULL;
        p = skip_blanks(p);
        out->n = 2;
    }
    out->first = (uint32_t)d->list.n;
    for (uint32_t k = 0; k < out->n; k++)
        if (!PUSH(d->list, inside[k]))
            return NULL;
    return *p == ']' ? p + 1 : NULL;
}

static const char *read_list(decoder *d, const statement *s, const char *p, operand *out)
{
    operand all[160];
    uint32_t n = 0;
    for (p = skip_blanks(p); *p != '}'; p = skip_blanks(p)) {
        if (n == sizeof all / sizeof *all)
            return NULL;
        p = read_operand(d, s, p, &all[n++]);
        if (!p)
            return NULL;
        p = skip_blanks(p);
        if (*p == ',')
            p++;
        else if (*p != '}')
            return NULL;
    }
    *out = (operand){.kind = OPERAND_LIST, .first = (uint32_t)d->list.n, .n = n};
    for (uint32_t k = 0; k < n; k++)
        if (!PUSH(d->list, all[k]))
            return NULL;
    return p + 1;
}

const char *read_operand(decoder *d, const statement *s, const char *p, operand *out)
{
    bool is_not = false, is_dynamic;
    if (*p == '{')
        return read_list(d, s, p + 1, out);
    if (*p == '[')
        return read_memory(d, s, skip_blanks(p + 1), out);
    if (*p == '!') {
        is_not = true;
        p++;
    }
    if (isdigit((unsigned char)*p) || *p == '-') {
        *out = (operand){.kind = OPERAND_CONSTANT};
        return read_number(p, &out->value);
    }
    size_t n = name_length(p);
    if (n == 0)
        return NULL;
    if (n == 1 && *p == '_') {
        *out = (operand){.kind = OPERAND_SINK};
    } else if (find_register(d, p, n, out)) {
        out->is_not = is_not;
    } else if (find_symbol(d, p, n, out, &is_dynamic)) {
        out->first = is_dynamic ? IS_DYNAMIC : 0;
        /* `symbol+4` outside of brackets. */
        const char *q = skip_blanks(p + n);
        if (*q == '+' && isdigit((unsigned char)*skip_blanks(q + 1))) {
            /* In brackets it means the same. */
            uint64_t more;
            q = read_number(skip_blanks(q + 1), &more);
            out->value += more;
            return q;
        }
    } else {
        *out = (operand){.kind = *p == '%' ? OPERAND_SPECIAL : OPERAND_NAME};
        /* %tid.x */
        if (*p == '%' && p[n] == '.')
            n += 1 + name_length(p + n + 1);
        out->name = p;
        out->name_length = n;
    }
    return p + n;
}
