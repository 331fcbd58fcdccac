/*
 * backend/cuda/decode_steps: what single tokens of every architecture become on a card. Models are
 * tiny, their plans real; no GPU is needed, since addresses are never followed.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/lower.h"
#include "formats/weights.h"
#include "model/model.h"
#include "ops/lora.h"
#include "ops/op_info.h"
#include "plan/adapt.h"
#include "plan/parts.h"
#include "tap.h"
#include "tiny_model.h"

static uint8_t card_memory[1 << 22]; /* stands for the card's: only addresses are taken */

/* A model's plan and what it becomes for one token. */
typedef struct lowered {
    buf file;
    model *m;
    states *s;
    plan *p;
    gpu g;
    decode_form form;
    bool is_known;
    decode_layout layout;
    token_list list;
} lowered;

/* Rows in sixteens, and heads that the fused attention knows. */
static tiny_options options_of(const char *architecture)
{
    tiny_options o = tiny_options_arch(architecture);
    o.n_embd = 128;
    o.n_heads = 2;
    o.n_kv_heads = 2;
    o.n_ff = 64;
    o.n_vocab = 64;
    o.type = DTYPE_F16;
    return o;
}

/* What an adapter has for every matrix that stands alone; NULL: there is none. */
static const lora_site *site;

static void adapt(plan *p)
{
    for (int32_t i = 0; i < p->n_steps && site; i++)
        if (p->steps[i].op == OP_MATMUL && p->steps[i].layer >= 0)
            ((weight *)(uintptr_t)p->steps[i].a.matmul.weights[0])->lora = site;
    plan_adapt(p);
}

static bool build_plan(lowered *l, const tiny_options *o, lace_error *err)
{
    weights *files = NULL;
    device_options where = {0};
    states_options kept = {
        .type = DTYPE_F16, .v_type = DTYPE_F16, .n_sequences = 1, .n_context = 32, .n_batch = 16};
    plan_limits limits = {.max_tokens = 16, .max_outputs = 4, .n_context = 32, .n_workers = 1};
    l->file = tiny_model_bytes(*o);
    if (weights_open_memory((span){(const uint8_t *)l->file.data, l->file.size}, "tiny", &files,
                            err) != LACE_OK ||
        model_create(files, "cpu", &where, &l->m, err) != LACE_OK ||
        model_states(l->m, &kept, &l->s, err) != LACE_OK ||
        plan_create(&limits, &l->p, err) != LACE_OK)
        return false;
    model_build(l->m, l->p, l->s->layers);
    adapt(l->p);
    return plan_check(l->p, err) == LACE_OK;
}

/* An H200, where no other card is named. */
static struct {
    int compiled_for, n_processors, shared_bytes;
} card = {90, 132, 232448};

/* What the plan becomes. border: of a part of a plan; else NULL. */
static void lower_plan(lowered *l, card_border *border)
{
    l->g.can = gpu_abilities_of(card.compiled_for);
    l->g.info.n_processors = card.n_processors;
    l->g.info.max_shared_bytes = card.shared_bytes;
    plan_count_reads(l->p); /* as cuda_device.c does */
    l->p->last_fused = GPU_LAST_FUSED_GLU;
    l->p->kept_phases = GPU_KEPT_PHASES;
    l->p->has_copies = true;
    plan_fuse(l->p);
    plan_place(l->p, NULL);
    uint8_t *pages[] = {card_memory, card_memory, card_memory, card_memory};
    uint8_t *recurrent[] = {card_memory};
    plan_locate(l->p, &(plan_memory){.values = card_memory, .pages = pages, .slots = recurrent});
    l->is_known = decode_form_match(l->p, &l->g, &l->form);
    const decode_form *f = l->is_known ? &l->form : NULL;
    gpu_batch tables = {.pages_per_sequence = 32};
    if (border)
        border->p = l->p;
    CHECK(decode_layout_init(f, &l->g, &l->layout, NULL) == LACE_OK);
    decode_layout_place(&l->layout, f, &l->g, card_memory);
    CHECK(lower_token(l->p, &l->g, false, &tables, f, &l->layout, border, NULL, &l->list, NULL) ==
          LACE_OK);
}

static void lower_model(const tiny_options *o, lowered *l)
{
    memset(l, 0, sizeof *l);
    lace_error err;
    bool is_built = build_plan(l, o, &err);
    if (!is_built)
        printf("# %s\n", err.text);
    CHECK(is_built);
    lower_plan(l, NULL);
}

static void lower_arch(const char *architecture, lowered *l)
{
    tiny_options o = options_of(architecture);
    lower_model(&o, l);
}

static void free_lowered(lowered *l)
{
    token_list_free(&l->list);
    decode_layout_free(&l->layout);
    decode_form_free(&l->form);
    plan_free(l->p);
    states_free(l->s);
    model_free(l->m);
    buf_deinit(&l->file);
}

static bool is_encoder(const char *architecture)
{
    return strstr(architecture, "bert") != NULL;
}

/* ---- All architectures ----------------------------------------------------------------------- */

/* Each step of the plan is stood for once, in its order. */
static void every_step_is_stood_for(void)
{
    for (int i = 0; i < tiny_n_archs; i++) {
        if (is_encoder(tiny_archs[i]))
            continue;
        lowered l;
        lower_arch(tiny_archs[i], &l);
        int32_t next = 0;
        bool is_whole = true;
        for (int32_t n = 0; n < l.list.list.n_steps; n++) {
            const device_step *d = &l.list.list.steps[n];
            is_whole &= d->launch && d->name;
            is_whole &= d->n_steps == 0 || d->first == &l.p->steps[next];
            next += d->n_steps;
        }
        if (!is_whole || next != l.p->n_steps)
            printf("# %s\n", tiny_archs[i]);
        CHECK(is_whole && next == l.p->n_steps);
        free_lowered(&l);
    }
}

/* Products are fused wherever one stands, whatever is around it; experts without a gate, and those
 * whose inputs are weighed, are not. */
static void no_product_is_launched_alone(void)
{
    for (int i = 0; i < tiny_n_archs; i++) {
        if (is_encoder(tiny_archs[i]))
            continue;
        lowered l;
        lower_arch(tiny_archs[i], &l);
        CHECK(l.is_known);
        for (int32_t n = 0; n < l.list.list.n_steps; n++) {
            const device_step *d = &l.list.list.steps[n];
            bool is_alone = strcmp(d->name, "matmul") == 0 ||
                            strncmp(d->name, "matmul_a", 8) == 0 ||
                            strncmp(d->name, "matmul_g", 8) == 0;
            is_alone &= d->first->in[0].width % 4 == 0; /* vectors are read in fours */
            if (is_alone)
                printf("# %s, layer %d: %s\n", tiny_archs[i], d->layer, d->name);
            CHECK(!is_alone);
            if (strcmp(d->name, "moe_glu") == 0)
                CHECK(!d->first->a.moe.gate || d->first->a.moe.weighs_inputs);
        }
        free_lowered(&l);
    }
}

/*
 * A product that takes steps along reads what they would have read: nobody writes there between them
 * and the launch, and the launch itself neither.
 */
static void what_is_taken_along_is_still_there(void)
{
    for (int i = 0; i < tiny_n_archs; i++) {
        if (is_encoder(tiny_archs[i]))
            continue;
        lowered l;
        lower_arch(tiny_archs[i], &l);
        for (int32_t n = 0; n < l.p->n_steps && l.is_known; n++) {
            const step_form *f = &l.form.forms[n];
            const step *taken[] = {f->norm, f->glu, f->pick};
            for (int t = 0; t < 3; t++)
                for (int k = 0; taken[t] && k < STEP_MAX_IN; k++)
                    for (const step *s = taken[t] + 1; s <= &l.p->steps[n]; s++)
                        for (int o = 0; o < STEP_MAX_OUT; o++)
                            CHECK(taken[t]->in[k].value < 0 || s->out[o].value < 0 ||
                                  s->out[o].data != taken[t]->in[k].data ||
                                  l.form.forms[s - l.p->steps].use == USE_NOTHING);
        }
        free_lowered(&l);
    }
}

/* A product does not do a convolution of its result that an adapter adds to first. */
static void adapters_come_before_convolutions(void)
{
    static const lora_site any = {.n_low = 4};
    int n_found = 0;
    site = &any;
    for (int i = 0; i < tiny_n_archs; i++) {
        if (is_encoder(tiny_archs[i]))
            continue;
        lowered l;
        lower_arch(tiny_archs[i], &l);
        for (int32_t n = 0; n < l.p->n_steps && l.is_known; n++) {
            bool is_adapted = false;
            for (int32_t k = 0; k < n; k++)
                is_adapted |= l.p->steps[k].op == OP_LORA_UP &&
                              l.p->steps[k].out[0].value == l.p->steps[n].in[0].value;
            if (l.p->steps[n].op != OP_CONV || !is_adapted)
                continue;
            n_found++;
            CHECK(l.form.forms[n].use != USE_NOTHING);
        }
        free_lowered(&l);
    }
    CHECK(n_found > 0);
    every_step_is_stood_for();
    what_is_taken_along_is_still_there();
    site = NULL;
}

/* ---- What launches find ---------------------------------------------------------------------- */

/*
 * A plan that is not computed: each word of values has a number that says which step made it of what. The
 * plan is gone through in its order, then as it is launched, where steps that are taken along leave
 * nothing behind; each must find what it found before. Sums have no order.
 */
enum { WORDS = 1 << 20, MOST_TAKEN = 24, MOST_WORDS = 8192 };

static uint64_t words[WORDS];

typedef struct launch {
    const step *steps[MOST_TAKEN]; /* in the plan's order */
    uint32_t kept[MOST_TAKEN];     /* bits: which of its results are written */
    int n;
} launch;

enum { NONE = 0, ALL = ~0 };

static void take(launch *l, const step *s, int kept)
{
    int at = l->n;
    for (int i = 0; i < l->n; i++)
        if (l->steps[i] == s)
            return;
    if (!s || !CHECK(l->n < MOST_TAKEN))
        return;
    for (; at > 0 && l->steps[at - 1] > s; at--) {
        l->steps[at] = l->steps[at - 1];
        l->kept[at] = l->kept[at - 1];
    }
    l->steps[at] = s;
    l->kept[at] = (uint32_t)kept;
    l->n++;
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    return ((a ^ b) * 0x9e3779b97f4a7c15 + (a >> 29)) ^ b << 7;
}

/* Words of an operand of one token; returns how many, and calls for each. */
typedef void word_fn(uint64_t *word, uint64_t number, uint64_t *arg);

static void each_word(const plan *p, const operand *o, word_fn *fn, uint64_t *arg)
{
    const plan_value *v = o->value >= 0 ? &p->values[o->value] : NULL;
    int32_t n_rows = !v ? 0 : v->row_factor > 1 ? v->row_factor : 1;
    if (!CHECK(n_rows * o->width <= MOST_WORDS))
        return;
    for (int32_t row = 0; row < n_rows; row++)
        for (int64_t i = 0; i < o->width; i++) {
            int64_t at = (o->data + (uint64_t)row * o->stride - card_memory) / 4 + i;
            if (CHECK(at >= 0 && at < WORDS))
                fn(&words[at], (uint64_t)(row * o->width + i), arg);
        }
}

static void read_word(uint64_t *word, uint64_t number, uint64_t *hash)
{
    *hash = mixed(*hash, *word + number);
}

static void write_word(uint64_t *word, uint64_t number, uint64_t *hash)
{
    *word = mixed(*hash, number);
}

static void add_word(uint64_t *word, uint64_t number, uint64_t *hash)
{
    *word += mixed(*hash, number);
}

static void save_word(uint64_t *word, uint64_t number, uint64_t *to)
{
    to[number] = *word;
}

static void restore_word(uint64_t *word, uint64_t number, uint64_t *from)
{
    *word = from[number];
}

static bool adds(const step *s)
{
    return s->op == OP_ADD || s->op == OP_MATMUL_ADD || s->op == OP_LORA_UP ||
           s->op == OP_ADD_GIVEN || (s->op == OP_MOE_DOWN && !s->a.moe.makes);
}

/* Returns what says all that it found. */
static uint64_t do_step(const plan *p, const step *s)
{
    bool turns = s->op == OP_ROPE || s->op == OP_ROPE_KV || s->op == OP_TEMPERATURE;
    uint64_t hash = mixed(1, (uint64_t)(s - p->steps));
    for (int k = 0; k < STEP_MAX_IN; k++)
        each_word(p, &s->in[k], read_word, &hash);
    for (int k = 0; k < STEP_MAX_OUT && turns; k++)
        each_word(p, &s->out[k], read_word, &hash);
    for (int k = 0; k < STEP_MAX_OUT; k++) {
        uint64_t of = mixed(hash, (uint64_t)k);
        each_word(p, &s->out[k], adds(s) ? add_word : write_word, &of);
    }
    return hash;
}

/* All that goes with a step that is launched. */
static launch launch_of(const plan *p, const step_form *forms, const step *s)
{
    const step_form *f = &forms[s - p->steps];
    launch l = {.n = 0};
    take(&l, f->pick, NONE);
    take(&l, f->glu, NONE);
    take(&l, f->norm, NONE);
    const step_form *experts = s->op == OP_MOE_DOWN && f->use == USE_EXPERTS ? f - 1 : f;
    take(&l, experts->routes ? experts->route : NULL, NONE); /* whose blocks choose by themselves */
    for (int k = 0; k < 3; k++) {
        take(&l, f->heads[k].pick, NONE);
        take(&l, f->heads[k].norm, NONE);
        take(&l, f->heads[k].rope, k == 0 ? ALL : NONE);
    }
    for (int n = -1; n < f->n_joined; n++) {
        const step *of = n < 0 ? s : f->joined[n];
        int kept = (n < 0 && f->add) || f->use == USE_JOIN ? NONE : ALL;
        for (int k = 0; k < STEP_MAX_OUT; k++)
            kept &= f->conv && f->conv->in[0].value == of->out[k].value ? ~(1 << k) : ALL;
        take(&l, of, kept);
    }
    take(&l, f->share, NONE);
    take(&l, f->use == USE_JOIN ? s + 1 : f->add, ALL);
    take(&l, f->conv, ALL);
    return l;
}

/* A layer of a known form, of which nothing but the residual is left, if it attends in one kernel. Other
 * steps of known layers and ends one by one. */
static launch layer_at(const lowered *l, const step *s)
{
    launch out = {.n = 0};
    for (int32_t i = 0; i < l->form.n_segments; i++) {
        const decode_segment *of = &l->form.segments[i];
        if (!of->is_fused || of->l.attends_by_steps || s < of->first ||
            s >= of->first + of->n_steps)
            continue;
        for (int32_t n = 0; n < of->n_steps && s == of->first; n++) {
            int kept = NONE;
            for (int k = 0; k < STEP_MAX_OUT; k++)
                kept |= (s[n].out[k].value == l->form.entry.value) << k;
            take(&out, &s[n], kept);
        }
        return out;
    }
    take(&out, s, ALL);
    return out;
}

/* What is not kept was never there. */
static void do_launch(const char *name, const plan *p, const launch *l, const uint64_t *expected)
{
    static uint64_t before[MOST_TAKEN][STEP_MAX_OUT][MOST_WORDS],
        after[MOST_TAKEN][STEP_MAX_OUT][MOST_WORDS];
    for (int i = 0; i < l->n; i++) {
        const step *s = l->steps[i];
        for (int k = 0; k < STEP_MAX_OUT; k++)
            each_word(p, &s->out[k], save_word, before[i][k]);
        bool is_same = do_step(p, s) == expected[s - p->steps];
        if (!is_same)
            printf("# %s, step %d, %s, finds something else\n", name, (int)(s - p->steps),
                   op_name(s->op));
        CHECK(is_same);
        for (int k = 0; k < STEP_MAX_OUT; k++)
            each_word(p, &s->out[k], save_word, after[i][k]);
    }
    for (int i = l->n - 1; i >= 0; i--)
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (!(l->kept[i] >> k & 1))
                each_word(p, &l->steps[i]->out[k], restore_word, before[i][k]);
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < STEP_MAX_OUT; k++)
            if (l->kept[i] >> k & 1)
                each_word(p, &l->steps[i]->out[k], restore_word, after[i][k]);
}

/* What a part of a plan gives to others is there in the end. */
static void check_leaves(const char *name, const lowered *l, const uint64_t *expected)
{
    for (int32_t v = 0; v < l->p->n_values; v++) {
        const plan_value *its = &l->p->values[v];
        int32_t n_rows = !its->leaves ? 0 : its->row_factor > 1 ? its->row_factor : 1;
        for (int32_t row = 0; row < n_rows; row++) {
            uint64_t stride = act_row_bytes(its->format, its->width);
            uint64_t at = (its->offset + (uint64_t)row * stride) / 4;
            bool is_there =
                memcmp(words + at, expected + at, (size_t)its->width * sizeof *words) == 0;
            if (!is_there)
                printf("# %s, value %d leaves as something else\n", name, v);
            CHECK(is_there);
        }
    }
}

static void check_finds(const char *name, const lowered *l)
{
    static uint64_t expected[4096], end[WORDS];
    for (uint64_t i = 0; i < WORDS; i++) /* of a part, something is there */
        words[i] = mixed(i, 7);
    if (!CHECK(l->p->n_steps <= 4096))
        return;
    for (int32_t i = 0; i < l->p->n_steps; i++)
        expected[i] = do_step(l->p, &l->p->steps[i]);
    memcpy(end, words, sizeof words);
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = mixed(i, 7);
    for (int32_t i = 0; i < l->p->n_steps; i++) {
        const step_form *f = &l->form.forms[i];
        launch one = {.n = 0};
        if (f->is_layers)
            one = layer_at(l, &l->p->steps[i]);
        else if (f->use != USE_NOTHING)
            one = launch_of(l->p, l->form.forms, &l->p->steps[i]);
        do_launch(name, l->p, &one, expected);
    }
    check_leaves(name, l, end);
}

static void launches_find_what_steps_find(void)
{
    static const lora_site any = {.n_low = 4};
    for (int way = 0; way < 2; way++) {
        site = way ? &any : NULL;
        for (int i = 0; i < tiny_n_archs; i++) {
            if (is_encoder(tiny_archs[i]))
                continue;
            lowered l;
            lower_arch(tiny_archs[i], &l);
            if (l.is_known)
                check_finds(tiny_archs[i], &l);
            free_lowered(&l);
        }
    }
    site = NULL;
}

/* ---- Parts of plans -------------------------------------------------------------------------- */

enum { LAYER_APART, EXPERTS_APART, STATES_APART, N_CUTS };

static bool is_on_card(const step *s, int cut)
{
    return s->op != OP_EMBED && (cut == LAYER_APART     ? s->layer != 0
                                 : cut == EXPERTS_APART ? !step_has_experts(s)
                                                        : op_describe(s->op)->state == OP_NO_STATE);
}

static void check_parts(const char *name, int cut)
{
    static uint8_t between[1 << 20];
    static border_token token;
    tiny_options o = options_of(name);
    lowered whole = {0};
    int32_t devices[4096];
    lace_error err;
    plan_parts parts;
    CHECK(build_plan(&whole, &o, &err) && whole.p->n_steps <= 4096);
    for (int32_t i = 0; i < whole.p->n_steps; i++)
        devices[i] = is_on_card(&whole.p->steps[i], cut);
    CHECK(plan_parts_create(whole.p, devices, &parts, NULL) == LACE_OK);
    for (int32_t i = 0; i < parts.n_parts; i++) {
        lowered l = {.p = parts.parts[i].p};
        card_border border = {.values = card_memory,
                              .border = between,
                              .shared = between,
                              .token = &token,
                              .token_on_card = &token};
        parts.parts[i].p = NULL;
        if (parts.parts[i].device == 1 && card_border_fits_token(l.p)) {
            lower_plan(&l, &border);
            if (l.is_known)
                check_finds(name, &l);
            token_list_free(&l.list);
            decode_layout_free(&l.layout);
            decode_form_free(&l.form);
        }
        plan_free(l.p);
    }
    plan_parts_free(&parts);
    free_lowered(&whole);
}

static void parts_find_what_steps_find(void)
{
    for (int i = 0; i < tiny_n_archs; i++)
        for (int cut = 0; cut < N_CUTS && !is_encoder(tiny_archs[i]); cut++)
            check_parts(tiny_archs[i], cut);
}

/* ---- Some of them ---------------------------------------------------------------------------- */

/* The names of a layer's device steps, with spaces between them. */
static const char *names(const device_list *l, int32_t layer)
{
    static char joined[2048];
    size_t at = 0;
    joined[0] = 0;
    for (int32_t i = 0; i < l->n_steps; i++)
        if (l->steps[i].layer == layer)
            at += (size_t)snprintf(joined + at, sizeof joined - at, "%s%s", at ? " " : "",
                                   l->steps[i].name);
    return joined;
}

static void layers_of_other_forms_are_fused(void)
{
    static const struct {
        const char *architecture;
        int32_t layer;
        const char *names;
    } rows[] = {
        {"qwen35", 0, "product delta rms_norm product_add gate_up down"},
        {"qwen35", 1, "product heads attend product_add gate_up down"},
        {"qwen35moe", 0,
         "product delta rms_norm product_add rms_norm rows experts_gate_up experts_down rows "
         "gate_up down"},
        {"deepseek2", 1,
         "product product heads matmul_heads attend matmul_heads product_add rms_norm rows "
         "experts_gate_up experts_down gate_up down"},
        {"glm4moe", 1,
         "product heads attend product_add rms_norm rows experts_gate_up experts_down gate_up "
         "down"},
        {"command-r", 0, "layer_norm product rope_kv attend product_add gate_up down"},
        {"falcon", 0, "layer_norm product rope_kv attend product_add product product_add"},
        {"gpt2", 0, "product kv_write attend product_add product product_add"},
        {"apertus", 0, "product heads attend product_add product xielu product_add"},
        {"nemotron", 0, "product rope_kv attend product_add product product_add"},
        {"gemma3n", 0,
         "product glu matmul mix rms_norm product matmul rms_norm heads attend product norm_add "
         "add add gate_up product norm_add product glu matmul add mix embed product product "
         "norm_add"},
        {"gemma4", 0,
         "qkv heads attend output norm_add gate_up down norm_add product product norm_add"},
        {"gemma4", -1, "begin embed product rms_norm add rope_table rope_table head"},
        {"granitehybrid", 0, "product scan product_add gate_up down"},
        {"falcon-h1", 0,
         "rms_norm product rope_kv attend product_add product scan product_add gate_up down"},
        {"lfm2", 0, "product glu conv product_add gate_up down"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lowered l;
        lower_arch(rows[i].architecture, &l);
        const char *got = names(&l.list.list, rows[i].layer);
        if (strcmp(got, rows[i].names) != 0)
            printf("# %s, layer %d: %s\n", rows[i].architecture, rows[i].layer, got);
        CHECK(strcmp(got, rows[i].names) == 0);
        free_lowered(&l);
    }
}

/* A shared expert that is like the others is one more of them, and its gate one more row of the
 * router; then nobody is left who needs the norm in memory. */
static void shared_experts_are_multiplied_with_the_chosen(void)
{
    static const struct {
        const char *architecture;
        int32_t layer;
        bool is_gated;
        const char *names;
    } rows[] = {
        {"qwen35moe", 0, true,
         "product delta rms_norm product_add rows experts_gate_up experts_down"},
        {"deepseek2", 1, false,
         "product product heads matmul_heads attend matmul_heads product_add rows "
         "experts_gate_up experts_down"},
        {"glm4moe", 1, false, "product heads attend product_add rows experts_gate_up experts_down"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_options o = options_of(rows[i].architecture);
        lowered l;
        o.n_ff_shared = o.n_ff;
        lower_model(&o, &l);
        const char *got = names(&l.list.list, rows[i].layer);
        if (strcmp(got, rows[i].names) != 0)
            printf("# %s, layer %d: %s\n", rows[i].architecture, rows[i].layer, got);
        CHECK(strcmp(got, rows[i].names) == 0);
        for (int32_t n = 0; n < l.list.list.n_steps; n++) {
            const device_step *d = &l.list.list.steps[n];
            const decode_experts *p = &d->a.experts;
            if (strncmp(d->name, "experts_", 8) != 0)
                continue;
            CHECK(p->n_all == p->n_used + 1 && p->shared);
            CHECK(!p->shared_pair == (strcmp(d->name, "experts_down") == 0));
            CHECK(!p->shared_by == !rows[i].is_gated);
        }
        free_lowered(&l);
    }
}

/* The same on an RTX 3060. */
static void lesser_cards_have_the_same_lists(void)
{
    card.compiled_for = 80;
    card.n_processors = 28;
    card.shared_bytes = 101376;
    every_step_is_stood_for();
    no_product_is_launched_alone();
    layers_of_other_forms_are_fused();
    card.compiled_for = 90;
    card.n_processors = 132;
    card.shared_bytes = 232448;
}

int main(void)
{
    CASE(every_step_is_stood_for);
    CASE(no_product_is_launched_alone);
    CASE(what_is_taken_along_is_still_there);
    CASE(adapters_come_before_convolutions);
    CASE(launches_find_what_steps_find);
    CASE(parts_find_what_steps_find);
    CASE(layers_of_other_forms_are_fused);
    CASE(shared_experts_are_multiplied_with_the_chosen);
    CASE(lesser_cards_have_the_same_lists);
    return tap_end();
}
