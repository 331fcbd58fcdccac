/* From the text of a kernel to its instructions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_control.h"
#include "ptx_decoder.h"

bool decoder_grow(void **at, size_t *room, size_t n, size_t size)
{
    if (n < *room)
        return true;
    size_t more = *room ? 2 * *room : 64;
    void *p = realloc(*at, more * size);
    if (!p)
        return false;
    *at = p;
    *room = more;
    return true;
}

bool decode_error(decoder *d, const statement *s, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    size_t n = s && s->text ? strcspn(s->text, ";\n") : 0;
    fprintf(stderr, "card: %s, line %u of the PTX: %s: %.*s\n", d->name, s ? s->line : 0, what,
            (int)(n < 200 ? n : 200), n ? s->text : "");
    return false;
}

void decode_lets_next(decoder *d)
{
    d->kernel->lets_next = true;
}

int decode_arch(const decoder *d)
{
    return (int)d->kernel->arch;
}

const operand *decode_element(const decoder *d, const operand *o, uint32_t n)
{
    return &d->list.at[o->first + n];
}

bool op_begins(const char *op, const char *with)
{
    size_t n = strlen(with);
    return strncmp(op, with, n) == 0 && (op[n] == '.' || op[n] == 0);
}

bool op_has(const char *op, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = strchr(op, '.'); p; p = strchr(p + 1, '.'))
        if (strncmp(p + 1, word, n) == 0 && (p[n + 1] == '.' || p[n + 1] == 0))
            return true;
    return false;
}

/* ---- Instructions ---------------------------------------------------------------------------- */

instr *decode_add(decoder *d, const statement *s, instr_kind kind, op_run *run)
{
    instr i = {.run = run,
               .kind = (uint8_t)kind,
               .guard = s->guard,
               .guard_not = s->guard_not,
               .first = (uint32_t)d->lists.n,
               .text = s->text,
               .line = s->line};
    if (!PUSH(d->code, i))
        return NULL;
    if (s->guard != NO_GUARD && !PUSH(d->uses, (reg_use){.instr = (uint32_t)d->code.n - 1,
                                                         .where = GUARD_PLACE,
                                                         .number = s->guard,
                                                         .class = CLASS_PREDICATE}))
        return NULL;
    return &d->code.at[d->code.n - 1];
}

/* The row, or two, of a constant. */
static bool constant_row(decoder *d, uint64_t value, bool is_wide, bool is_dynamic, uint32_t *out)
{
    uint64_t hash = (value * 0x9E3779B97F4A7C15u) >> 52 ^ (unsigned)is_wide;
    uint32_t at = (uint32_t)(hash % CONSTANT_TABLE);
    for (; d->constant_table[at]; at = (at + 1) % CONSTANT_TABLE) {
        const constant *c = &d->constants.at[d->constant_table[at] - 1];
        if (c->value == value && c->is_wide == is_wide && c->is_dynamic == is_dynamic) {
            *out = c->row * N_LANES;
            return true;
        }
        if (d->constants.n > CONSTANT_TABLE / 2)
            break; /* a full table: constants are there more than once */
    }
    constant c = {value, is_wide, is_dynamic, d->n_constant_rows};
    d->n_constant_rows += is_wide ? 2 : 1;
    *out = c.row * N_LANES;
    if (!PUSH(d->constants, c))
        return false;
    if (!d->constant_table[at])
        d->constant_table[at] = (uint32_t)d->constants.n;
    return true;
}

/* What stands in the code for this operand; a register is noted for place `where`. */
static bool encode(decoder *d, uint32_t place, uint32_t where, const operand *o,
                   register_class class, bool is_write, uint32_t *out)
{
    if (o->kind == OPERAND_SINK && is_write) {
        *out = SINK;
        return true;
    }
    if (o->kind == OPERAND_CONSTANT && class != CLASS_PREDICATE && !is_write) {
        uint64_t value = class == CLASS_ROW ? (uint32_t)o->value : o->value;
        /* Only local and parameters' addresses say what they are. */
        if (o->has_space && o->space == SPACE_LOCAL)
            value |= WINDOW_BASE_LOCAL;
        if (!constant_row(d, value, class == CLASS_ROWS, o->first == IS_DYNAMIC, out))
            return false;
        *out |= CONSTANT;
        return true;
    }
    if (o->kind != OPERAND_REGISTER || o->class != class || o->is_not)
        return false;
    *out = o->number;
    return PUSH(d->uses, (reg_use){.instr = place,
                                   .where = where,
                                   .number = o->number,
                                   .class = (uint8_t) class,
                                   .is_write = is_write});
}

bool decode_operand(decoder *d, instr *i, uint32_t where, const operand *o, register_class class,
                    bool is_write)
{
    return encode(d, (uint32_t)(i - d->code.at), where, o, class, is_write, &i->op[where]);
}

bool decode_list(decoder *d, instr *i, const operand *o, register_class class, bool is_write)
{
    const uint32_t n = o->kind == OPERAND_LIST ? o->n : 1;
    for (uint32_t k = 0; k < n; k++) {
        const operand *each = o->kind == OPERAND_LIST ? decode_element(d, o, k) : o;
        uint32_t code;
        if (!encode(d, (uint32_t)(i - d->code.at), N_OPERANDS + (uint32_t)d->lists.n, each, class,
                    is_write, &code) ||
            !PUSH(d->lists, code))
            return false;
        i->n_list++;
    }
    return true;
}

bool decode_address(decoder *d, instr *i, uint32_t where, const operand *o)
{
    if (o->kind != OPERAND_MEMORY)
        return false;
    operand base = *decode_element(d, o, 0);
    i->offset = (int64_t)o->value;
    i->wide_address = base.kind != OPERAND_REGISTER || base.class == CLASS_ROWS;
    return decode_operand(d, i, where, &base, i->wide_address ? CLASS_ROWS : CLASS_ROW, false);
}

/* ---- Operations of tables -------------------------------------------------------------------- */

enum { OP_TABLE = 2048 };

static const op_entry *op_table[OP_TABLE];

static uint32_t hash_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h % OP_TABLE;
}

/* Called once, before anything is decoded. */
void decode_prepare(void)
{
    const op_entry *const lists[] = {math_ops, compare_ops, convert_ops, rounding_ops, bit_ops};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (const op_entry *e = lists[k]; e->name; e++) {
            uint32_t at = hash_of(e->name);
            while (op_table[at])
                at = (at + 1) % OP_TABLE;
            op_table[at] = e;
        }
}

static register_class class_of(char c)
{
    return c == 'r' ? CLASS_ROW : c == 'l' ? CLASS_ROWS : CLASS_PREDICATE;
}

/* Whether an operation takes these operands: mov and cvt have several forms of the same name. */
static bool fits(const op_entry *e, const statement *s)
{
    if (strlen(e->signature) != s->n)
        return false;
    for (uint32_t k = 0; k < s->n; k++) {
        const operand *o = &s->operands[k];
        const bool is_predicate = e->signature[k] == 'p';
        if (o->kind == OPERAND_REGISTER ? o->class != class_of(e->signature[k])
                                        : o->kind != OPERAND_CONSTANT || is_predicate)
            return false;
    }
    return true;
}

static const op_entry *find_op(const statement *s)
{
    for (uint32_t at = hash_of(s->op); op_table[at]; at = (at + 1) % OP_TABLE)
        if (strcmp(op_table[at]->name, s->op) == 0 && fits(op_table[at], s))
            return op_table[at];
    return NULL;
}

static decoded decode_table(decoder *d, const statement *s)
{
    const op_entry *e = find_op(s);
    if (!e)
        return NOT_MINE;
    instr *i = decode_add(d, s, KIND_PLAIN, e->run);
    if (!i)
        return DECODE_FAILED;
    for (uint32_t k = 0; k < s->n; k++) {
        const char c = e->signature[k];
        if (c == '.')
            i->offset = (int64_t)s->operands[k].value;
        else if (!decode_operand(d, i, k, &s->operands[k], class_of(c), k == 0))
            return DECODE_FAILED;
    }
    return DECODED;
}

/* ---- Control --------------------------------------------------------------------------------- */

static decoded decode_body(decoder *d, const module_function *f);

static bool branch_to(decoder *d, const statement *s, const char *name, size_t n)
{
    instr *i = decode_add(d, s, KIND_BRANCH, NULL);
    return i && PUSH(d->pending, (pending_branch){name, n, (uint32_t)d->code.n - 1});
}

/* The end of a function that was decoded where it is called. */
static const char return_label[] = "return";

/* call (result), function, (arguments): what it calls follows here, with its parameters where the
 * caller has them. */
static decoded decode_call(decoder *d, const statement *s)
{
    const char *p = strchr(s->text, '(');
    const char *names[MAX_STATEMENT + 4];
    size_t lengths[MAX_STATEMENT + 4], n = 0;
    p = s->text + strcspn(s->text, " \t\n");
    for (; *p != ';' && n < sizeof names / sizeof *names;) {
        size_t length = name_length(p);
        if (length) {
            names[n] = p;
            lengths[n++] = length;
        }
        p += length ? length : 1;
    }
    const module_function *f = NULL;
    size_t at = 0;
    for (; at < n && !f; at++)
        f = module_function_named(d->module, names[at], lengths[at]);
    if (!f || d->depth == MAX_CALL_DEPTH)
        return NOT_MINE;
    at--;
    /* Names in the head of the function, in the order of the call: results, then parameters. */
    symbol formal[MAX_STATEMENT + 4];
    size_t n_formal = 0;
    for (const char *q = f->head; (q = strstr(q, ".param")) != NULL && q < f->body;) {
        variable v;
        if (n_formal == sizeof formal / sizeof *formal || !variable_read(q + 6, f->body, &v))
            return DECODE_FAILED;
        formal[n_formal++] = (symbol){.name = v.name, .n = v.name_length, .space = SPACE_LOCAL};
        q = v.rest;
    }
    size_t k = 0;
    for (size_t a = 0; a < n; a++) {
        operand o;
        bool is_dynamic;
        if (a == at)
            continue;
        if (k == n_formal || !find_symbol(d, names[a], lengths[a], &o, &is_dynamic) ||
            o.space != SPACE_LOCAL)
            return DECODE_FAILED;
        formal[k++].value = o.value;
    }
    if (k != n_formal)
        return DECODE_FAILED;
    size_t symbols_before = d->symbols.n;
    for (k = 0; k < n_formal; k++)
        if (!PUSH(d->symbols, formal[k]))
            return DECODE_FAILED;
    d->depth++;
    decoded done = decode_body(d, f);
    d->depth--;
    d->symbols.n = symbols_before;
    return done;
}

static decoded decode_control(decoder *d, const statement *s)
{
    if (op_begins(s->op, "bra") && s->n == 1 && s->operands[0].kind == OPERAND_NAME)
        return branch_to(d, s, s->operands[0].name, s->operands[0].name_length) ? DECODED
                                                                                : DECODE_FAILED;
    if (strcmp(s->op, "ret") == 0 && d->depth > 0)
        return branch_to(d, s, return_label, 0) ? DECODED : DECODE_FAILED;
    if (strcmp(s->op, "ret") == 0 || strcmp(s->op, "exit") == 0)
        return decode_add(d, s, KIND_EXIT, NULL) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "call"))
        return decode_call(d, s);
    return NOT_MINE;
}

/* ---- Statements ------------------------------------------------------------------------------ */

static bool add_registers(decoder *d, const char *p)
{
    p = skip_blanks(p);
    if (*p != '.')
        return false;
    size_t n = name_length(p + 1);
    bool is_predicate = n == 4 && memcmp(p + 1, "pred", 4) == 0;
    unsigned bits = (unsigned)strtoul(p + 2, NULL, 10);
    register_class class = is_predicate ? CLASS_PREDICATE : bits == 64 ? CLASS_ROWS : CLASS_ROW;
    if (!is_predicate && bits > 64)
        return false;
    for (p = skip_blanks(p + 1 + n); *p != ';';) {
        n = name_length(p);
        if (!n)
            return false;
        declared_register r = {.name = p,
                               .n = n,
                               .class = class,
                               .is_short = bits == 16,
                               .first = (uint32_t)d->classes.n};
        p = skip_blanks(p + n);
        if (*p == '<') {
            char *end;
            r.count = (uint32_t)strtoul(p + 1, &end, 10);
            p = skip_blanks(end + 1);
        }
        for (uint32_t k = 0; k < (r.count ? r.count : 1); k++)
            if (!PUSH(d->classes, (uint8_t) class))
                return false;
        if (!PUSH(d->registers, r))
            return false;
        if (*p == ',')
            p = skip_blanks(p + 1);
    }
    return true;
}

static bool add_local_variable(decoder *d, const char *p, const char *end, bool is_shared)
{
    variable v;
    if (!variable_read(p, end, &v))
        return false;
    uint32_t *all = is_shared ? &d->shared_bytes : &d->local_bytes;
    *all = (*all + v.align - 1) / v.align * v.align;
    symbol s = {.name = v.name,
                .n = v.name_length,
                .value = *all,
                .n_bytes = v.n_bytes,
                .space = is_shared ? SPACE_SHARED : SPACE_LOCAL};
    *all += (uint32_t)v.n_bytes;
    return PUSH(d->symbols, s);
}

static bool read_directive(decoder *d, const char *p, const char *end)
{
    size_t n = name_length(p + 1);
    const char *rest = p + 1 + n;
    if (n == 3 && memcmp(p + 1, "reg", 3) == 0)
        return add_registers(d, rest);
    if ((n == 5 && memcmp(p + 1, "local", 5) == 0) || (n == 5 && memcmp(p + 1, "param", 5) == 0))
        return add_local_variable(d, rest, end, false);
    if (n == 6 && memcmp(p + 1, "shared", 6) == 0)
        return add_local_variable(d, rest, end, true);
    return n == 6 && memcmp(p + 1, "pragma", 6) == 0;
}

/* One statement from p to the semicolon at `end`. */
static bool read_statement(decoder *d, statement *s, const char *p, const char *end)
{
    s->text = p;
    s->guard = NO_GUARD;
    s->n = 0;
    d->list.n = 0;
    if (*p == '@') {
        operand o;
        s->guard_not = p[1] == '!';
        p += s->guard_not ? 2 : 1;
        size_t n = name_length(p);
        if (!find_register(d, p, n, &o) || o.class != CLASS_PREDICATE)
            return false;
        s->guard = o.number;
        p = skip_blanks(p + n);
    }
    size_t n = strcspn(p, " \t\n;");
    if (n >= sizeof d->op)
        return false;
    memcpy(d->op, p, n);
    d->op[n] = 0;
    s->op = d->op;
    if (op_begins(d->op, "call"))
        return true; /* has a form of its own */
    for (p = skip_blanks(p + n); p < end;) {
        if (s->n == MAX_STATEMENT)
            return false;
        p = read_operand(d, s, p, &s->operands[s->n++]);
        if (!p)
            return false;
        p = skip_blanks(p);
        if (*p == ',' || *p == '|') /* a|p: two results */
            p = skip_blanks(p + 1);
        else if (p < end)
            return false;
    }
    return true;
}

static decoded decode_statement(decoder *d, const statement *s)
{
    static decoded (*const all[])(decoder *, const statement *) = {
        decode_table, decode_control, decode_memory, decode_warp,
        decode_async, decode_matrix,  decode_wgmma,  decode_bulk,
    };
    const size_t n_code = d->code.n;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        decoded done = all[k](d, s);
        if (done == DECODED)
            return done;
        if (done == DECODE_FAILED) {
            if (n_code <= d->code.n)
                decode_error(d, s, "these operands are not known");
            return done;
        }
    }
    decode_error(d, s, "an instruction that is not known");
    return DECODE_FAILED;
}

/* Branches of a scope to labels in it get their targets; others are looked for outside. */
static void resolve(decoder *d, size_t first_label, size_t first_pending)
{
    size_t kept = first_pending;
    for (size_t k = first_pending; k < d->pending.n; k++) {
        const pending_branch b = d->pending.at[k];
        size_t l = first_label;
        while (l < d->labels.n &&
               (d->labels.at[l].n != b.n || memcmp(d->labels.at[l].name, b.name, b.n) != 0))
            l++;
        if (l < d->labels.n)
            d->code.at[b.instr].target = d->labels.at[l].at;
        else
            d->pending.at[kept++] = b;
    }
    d->pending.n = kept;
    d->labels.n = first_label;
}

typedef struct scope {
    size_t registers, symbols, labels, pending;
} scope;

static decoded decode_body(decoder *d, const module_function *f)
{
    scope scopes[32];
    int depth = 0;
    statement s = {.line = f->line};
    const char *p = f->body, *counted = p;
    for (;;) {
        p = skip_blanks(p);
        for (; counted < p; counted++)
            s.line += *counted == '\n';
        if (*p == '{') {
            if (depth == sizeof scopes / sizeof *scopes)
                return DECODE_FAILED;
            scopes[depth++] = (scope){d->registers.n, d->symbols.n, d->labels.n, d->pending.n};
            p++;
            continue;
        }
        if (*p == '}') {
            const scope *out = &scopes[--depth];
            if (depth == 0 && d->depth > 0 &&
                !PUSH(d->labels, (label){return_label, 0, (uint32_t)d->code.n}))
                return DECODE_FAILED;
            resolve(d, out->labels, out->pending);
            d->registers.n = out->registers;
            d->symbols.n = out->symbols;
            if (depth == 0)
                return DECODED;
            p++;
            continue;
        }
        size_t n = name_length(p);
        const char *after = skip_blanks(p + n);
        if (n && *after == ':' && after[1] != ':') {
            if (!PUSH(d->labels, (label){p, n, (uint32_t)d->code.n}))
                return DECODE_FAILED;
            p = after + 1;
            continue;
        }
        const char *end = strchr(p, ';');
        if (!end)
            return DECODE_FAILED;
        s.text = p;
        if (*p == ';') {
            p++;
            continue;
        }
        if (*p == '.') {
            if (!read_directive(d, p, end)) {
                decode_error(d, &s, "a directive that is not known");
                return DECODE_FAILED;
            }
        } else if (!read_statement(d, &s, p, end)) {
            decode_error(d, &s, "cannot be read");
            return DECODE_FAILED;
        } else if (decode_statement(d, &s) != DECODED) {
            return DECODE_FAILED;
        }
        p = end + 1;
    }
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static bool read_params(decoder *d, const module_function *f)
{
    kernel *k = d->kernel;
    const char *end = strchr(f->head, ')');
    for (const char *p = f->head; (p = strstr(p, ".param")) != NULL && p < f->body && p < end;) {
        variable v;
        if (k->n_params == MAX_PARAMS || !variable_read(p + 6, f->body, &v))
            return false;
        uint32_t at = (k->param_bytes + v.align - 1) / v.align * v.align;
        k->params[k->n_params++] = (kernel_param){at, (uint32_t)v.n_bytes};
        k->param_bytes = at + (uint32_t)v.n_bytes;
        if (!PUSH(d->symbols, (symbol){v.name, v.name_length, SPACE_PARAM, at, v.n_bytes}))
            return false;
        p = v.rest;
    }
    const struct {
        const char *word;
        uint32_t *to;
    } numbers[] = {{".maxntid", &k->max_threads},
                   {".reqntid", &k->max_threads},
                   {".reqnctapercluster", &k->cluster}};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        const char *p = strstr(f->head, numbers[n].word);
        if (!p || p > f->body)
            continue;
        *numbers[n].to = 1;
        for (p += strlen(numbers[n].word); p < f->body;) {
            char *after;
            *numbers[n].to *= (uint32_t)strtoul(p, &after, 10);
            after = (char *)skip_blanks(after);
            if (*after != ',')
                break;
            p = after + 1;
        }
    }
    return true;
}

/* Rows of constants; what the launch asks for begins behind what the kernel has. */
static bool make_constants(decoder *d)
{
    kernel *k = d->kernel;
    const uint32_t align = d->dynamic_align ? d->dynamic_align : 16;
    k->shared_bytes = d->shared_bytes;
    k->dynamic_begin = (d->shared_bytes + align - 1) / align * align;
    k->n_constants = d->n_constant_rows;
    k->constants = aligned_alloc(64, ((size_t)d->n_constant_rows + 1) * N_LANES * 4);
    if (!k->constants)
        return false;
    for (size_t n = 0; n < d->constants.n; n++) {
        const constant *c = &d->constants.at[n];
        uint64_t value = c->value + (c->is_dynamic ? k->dynamic_begin : 0);
        uint32_t *row = k->constants + (size_t)c->row * N_LANES;
        for (int l = 0; l < N_LANES; l++) {
            if (c->is_wide)
                ((uint64_t *)row)[l] = value;
            else
                row[l] = (uint32_t)value;
        }
    }
    return true;
}

static bool finish(decoder *d)
{
    kernel *k = d->kernel;
    slot_problem p = {.code = d->code.at,
                      .n_code = (uint32_t)d->code.n,
                      .lists = d->lists.at,
                      .uses = d->uses.at,
                      .n_uses = (uint32_t)d->uses.n,
                      .classes = d->classes.at,
                      .n_registers = (uint32_t)d->classes.n};
    if (d->pending.n) {
        fprintf(stderr, "card: %s: a branch to %.*s, which is not there\n", d->name,
                (int)d->pending.at[0].n, d->pending.at[0].name);
        return false;
    }
    if (!make_constants(d) || !slots_assign(&p, &k->n_rows, &k->n_predicates))
        return false;
    k->code = d->code.at;
    k->n_code = (uint32_t)d->code.n;
    k->lists = d->lists.at;
    k->local_bytes = (d->local_bytes + 15) / 16 * 16;
    d->code.at = NULL;
    d->lists.at = NULL;
    return true;
}

kernel *decode_kernel(const module *m, const module_function *f, uint32_t arch)
{
    decoder *d = calloc(1, sizeof *d);
    kernel *k = calloc(1, sizeof *k);
    bool done = d && k && (k->name = strndup(f->name, f->name_length)) != NULL;
    if (done) {
        size_t n_symbols;
        d->module = m;
        d->kernel = k;
        d->name = k->name;
        k->arch = arch;
        module_symbols(m, &n_symbols);
        for (size_t n = 0; done && n < n_symbols; n++)
            done = PUSH(d->shared_places, UINT64_MAX);
        /* Number 0 stands for operands that are not there. */
        statement last = {.text = "ret", .line = f->line, .guard = NO_GUARD};
        done = done && read_params(d, f) && decode_body(d, f) == DECODED &&
               decode_add(d, &last, KIND_EXIT, NULL) && finish(d);
    }
    if (d) {
        free(d->code.at);
        free(d->lists.at);
        free(d->uses.at);
        free(d->classes.at);
        free(d->registers.at);
        free(d->symbols.at);
        free(d->labels.at);
        free(d->pending.at);
        free(d->constants.at);
        free(d->list.at);
        free(d->shared_places.at);
        free(d);
    }
    if (!done) {
        kernel_free(k);
        return NULL;
    }
    return k;
}

void kernel_free(kernel *k)
{
    if (!k)
        return;
    free(k->code);
    free(k->lists);
    free(k->constants);
    free(k->name);
    free(k);
}
