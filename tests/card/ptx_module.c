#include "ptx_module.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card_memory.h"

struct module_kernel {
    module *module;
    const module_function *function;
    pthread_mutex_t lock;
    kernel *code;
    bool is_bad;
};

struct module {
    char *text;
    uint32_t arch;
    module_function *functions;
    size_t n_functions, functions_room;
    symbol *symbols;
    size_t n_symbols, symbols_room;
    module_kernel *kernels;
    uint32_t n_kernels;
    void *variables[64]; /* .global and .const */
    size_t n_variables;
};

/* ---- Text ------------------------------------------------------------------------------------ */

/* Blanks in the place of comments; lines stay. */
static void blank_comments(char *p)
{
    while ((p = strchr(p, '/')) != NULL) {
        if (p[1] == '/') {
            while (*p && *p != '\n')
                *p++ = ' ';
        } else if (p[1] == '*') {
            char *end = strstr(p + 2, "*/");
            end = end ? end + 2 : p + strlen(p);
            for (; p < end; p++)
                if (*p != '\n')
                    *p = ' ';
        } else {
            p++;
        }
    }
}

static const char *skip_blanks(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static size_t name_length(const char *p)
{
    size_t n = 0;
    while (is_name(p[n]))
        n++;
    return n;
}

static bool is_word(const char *p, const char *word)
{
    size_t n = strlen(word);
    return strncmp(p, word, n) == 0 && !is_name(p[n]) && p[n] != '.';
}

bool variable_read(const char *p, const char *end, variable *out)
{
    *out = (variable){.align = 1};
    p = skip_blanks(p);
    while (*p == '.' && p < end) {
        if (is_word(p, ".align")) {
            char *after;
            out->align = (uint32_t)strtoul(p + 6, &after, 10);
            p = after;
        } else {
            size_t n = name_length(p + 1);
            unsigned bits = (unsigned)strtoul(p + 2, NULL, 10);
            if (bits >= 8)
                out->element_bytes = bits / 8;
            p += 1 + n;
        }
        p = skip_blanks(p);
    }
    out->name = p;
    out->name_length = name_length(p);
    if (!out->name_length || !out->element_bytes)
        return false;
    p = skip_blanks(p + out->name_length);
    out->n_bytes = out->element_bytes;
    if (*p == '[') {
        char *after;
        out->n_bytes = out->element_bytes * strtoull(p + 1, &after, 10);
        p = skip_blanks(after);
        if (*p != ']')
            return false;
        p = skip_blanks(p + 1);
    }
    if (out->align < out->element_bytes)
        out->align = out->element_bytes;
    out->rest = p;
    return p <= end;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool add_function(module *m, module_function f)
{
    if (m->n_functions == m->functions_room) {
        size_t room = m->functions_room ? 2 * m->functions_room : 32;
        module_function *more = realloc(m->functions, room * sizeof *more);
        if (!more)
            return false;
        m->functions = more;
        m->functions_room = room;
    }
    m->functions[m->n_functions++] = f;
    return true;
}

static bool add_symbol(module *m, symbol s)
{
    if (m->n_symbols == m->symbols_room) {
        size_t room = m->symbols_room ? 2 * m->symbols_room : 32;
        symbol *more = realloc(m->symbols, room * sizeof *more);
        if (!more)
            return false;
        m->symbols = more;
        m->symbols_room = room;
    }
    m->symbols[m->n_symbols++] = s;
    return true;
}

static uint32_t count_lines(const char *from, const char *to)
{
    uint32_t n = 0;
    for (; (from = memchr(from, '\n', (size_t)(to - from))) != NULL; from++)
        n++;
    return n;
}

/* `.global .align 4 .b8 name[24] = {1, 2};`, behind the first word: memory that every card may read. */
static bool add_variable(module *m, const char *p, const char *end)
{
    variable v;
    if (!variable_read(p, end, &v) || m->n_variables == sizeof m->variables / sizeof *m->variables)
        return false;
    uint8_t *memory = memory_take(EVERY_CARD, v.n_bytes, 0);
    if (!memory)
        return false;
    memset(memory, 0, v.n_bytes);
    m->variables[m->n_variables++] = memory;
    if (*v.rest == '=') {
        const char *q = skip_blanks(v.rest + 1);
        uint64_t at = 0;
        if (*q == '{')
            q = skip_blanks(q + 1);
        while (q < end && (isdigit((unsigned char)*q) || *q == '-') && at < v.n_bytes) {
            char *after;
            uint64_t value = (uint64_t)strtoll(q, &after, 0);
            memcpy(memory + at, &value, v.element_bytes);
            at += v.element_bytes;
            q = skip_blanks(after);
            if (*q == ',')
                q = skip_blanks(q + 1);
        }
        if (*q != '}' && *q != ';')
            return false;
    }
    return add_symbol(m,
                      (symbol){v.name, v.name_length, SPACE_GLOBAL, (uintptr_t)memory, v.n_bytes});
}

static bool add_shared(module *m, const char *p, const char *end, bool is_extern)
{
    variable v;
    if (!variable_read(p, end, &v))
        return false;
    return add_symbol(m, (symbol){.name = v.name,
                                  .n = v.name_length,
                                  .space = SPACE_SHARED,
                                  .value = v.align,
                                  .n_bytes = is_extern ? 0 : v.n_bytes});
}

/* The end of what begins with this bracket. */
static const char *closing(const char *p)
{
    int depth = 0;
    for (; (p = strpbrk(p, "{}")) != NULL; p++) {
        depth += *p == '{' ? 1 : -1;
        if (depth == 0)
            return p;
    }
    return NULL;
}

/* `.entry name (...) directives {` or `.func (...) name (...)`, whose body may be missing. */
static const char *read_function(module *m, const char *p, bool is_entry, const char **line_from,
                                 uint32_t *line)
{
    const char *head = p, *at = skip_blanks(p + (is_entry ? 6 : 5));
    if (!is_entry && *at == '(') {
        at = strchr(at, ')');
        if (!at)
            return NULL;
        at = skip_blanks(at + 1);
    }
    module_function f = {.name = at, .name_length = name_length(at), .head = head};
    const char *end = strpbrk(at, "{;");
    if (!end || !f.name_length)
        return NULL;
    if (*end == ';')
        return end + 1;
    f.body = end;
    f.end = closing(end);
    if (!f.end)
        return NULL;
    *line += count_lines(*line_from, end);
    *line_from = end;
    f.line = *line;
    if (is_entry)
        m->n_kernels++;
    return add_function(m, f) ? f.end + 1 : NULL;
}

static bool read_text(module *m)
{
    const char *p = m->text, *line_from = p;
    uint32_t line = 1;
    bool is_extern = false;
    for (p = skip_blanks(p); *p; p = skip_blanks(p)) {
        if (is_word(p, ".visible") || is_word(p, ".weak") || is_word(p, ".extern")) {
            is_extern = is_word(p, ".extern");
            p += 1 + name_length(p + 1);
            continue;
        }
        if (is_word(p, ".entry") || is_word(p, ".func")) {
            p = read_function(m, p, is_word(p, ".entry"), &line_from, &line);
            if (!p)
                return false;
        } else if (is_word(p, ".global") || is_word(p, ".const") || is_word(p, ".shared")) {
            const char *end = strchr(p, ';'), *after = p + 1 + name_length(p + 1);
            if (!end || !(is_word(p, ".shared") ? add_shared(m, after, end, is_extern)
                                                : add_variable(m, after, end)))
                return false;
            p = end + 1;
        } else {
            /* .version, .target, .address_size, .file: a line each */
            p = strchr(p, '\n');
            if (!p)
                return true;
        }
        is_extern = false;
    }
    return true;
}

module *module_read(char *text, uint32_t arch)
{
    module *m = calloc(1, sizeof *m);
    if (!m) {
        free(text);
        return NULL;
    }
    m->text = text;
    m->arch = arch;
    blank_comments(text);
    if (!read_text(m) || !(m->kernels = calloc(m->n_kernels + 1, sizeof *m->kernels))) {
        fprintf(stderr, "card: a module of kernels cannot be read\n");
        module_free(m);
        return NULL;
    }
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_functions; i++)
        if (strncmp(m->functions[i].head, ".entry", 6) == 0) {
            m->kernels[n] = (module_kernel){.module = m, .function = &m->functions[i]};
            pthread_mutex_init(&m->kernels[n++].lock, NULL);
        }
    return m;
}

void module_free(module *m)
{
    if (!m)
        return;
    for (uint32_t n = 0; m->kernels && n < m->n_kernels; n++) {
        kernel_free(m->kernels[n].code);
        pthread_mutex_destroy(&m->kernels[n].lock);
    }
    for (size_t n = 0; n < m->n_variables; n++)
        memory_give(m->variables[n]);
    free(m->kernels);
    free(m->functions);
    free(m->symbols);
    free(m->text);
    free(m);
}

/* ---- What is in it --------------------------------------------------------------------------- */

uint32_t module_count(const module *m)
{
    return m->n_kernels;
}

module_kernel *module_at(module *m, uint32_t n)
{
    return &m->kernels[n];
}

module_kernel *module_find(module *m, const char *name)
{
    for (uint32_t n = 0; n < m->n_kernels; n++) {
        const module_function *f = m->kernels[n].function;
        if (f->name_length == strlen(name) && memcmp(f->name, name, f->name_length) == 0)
            return &m->kernels[n];
    }
    return NULL;
}

kernel *module_kernel_code(module_kernel *k)
{
    pthread_mutex_lock(&k->lock);
    if (!k->code && !k->is_bad) {
        k->code = decode_kernel(k->module, k->function, k->module->arch);
        k->is_bad = !k->code;
    }
    pthread_mutex_unlock(&k->lock);
    return k->code;
}

const kernel *module_kernel_done(const module_kernel *k)
{
    return k->code;
}

uint32_t module_kernel_arch(const module_kernel *k)
{
    return k->module->arch;
}

const module_function *module_function_named(const module *m, const char *name, size_t n)
{
    for (size_t i = 0; i < m->n_functions; i++)
        if (m->functions[i].name_length == n && memcmp(m->functions[i].name, name, n) == 0)
            return &m->functions[i];
    return NULL;
}

const symbol *module_symbols(const module *m, size_t *n)
{
    *n = m->n_symbols;
    return m->symbols;
}
