/*
 * Plans of made-up models and what they become on a card, for tests of backend/cuda/lower. No GPU is
 * needed: the card's numbers are an H200's where no other is named, and addresses are never followed.
 */
#ifndef LACE_TESTS_CUDA_PLANS_H
#define LACE_TESTS_CUDA_PLANS_H

#include <stdio.h>
#include <string.h>

#include "backend/cuda/decode_experts.h"
#include "backend/cuda/handover.h"
#include "plan/build.h"
#include "tap.h"

enum { WIDTH = 512, FF = 768, VOCAB = 1000, MAX_EXPERTS = 600, MAX_LAYERS = 4 };

/* What a layer is like. */
typedef struct kind {
    dtype type, cache, router, down;
    int32_t head_dim, n_kv_heads, n_experts, n_used, window;
    bool norms_behind, norms_all_heads, has_no_norm_in_front, has_softcap_amid;
    bool has_no_gate, weighs_inputs;
    route_rule rule;
} kind;

/* A model: its layers, and its card. */
typedef struct model_kind {
    kind layers[MAX_LAYERS];
    int32_t n_layers, n_vocab, n_processors;
    dtype head;
} model_kind;

/* A plan and what it becomes for one token. */
typedef struct lowered {
    plan *p;
    gpu g;
    decode_form form;
    bool is_known;
    decode_layout layout;
    token_list list;
} lowered;

/* The card that models are lowered for; its processors are the model's. */
typedef struct card_kind {
    int compiled_for, shared_bytes;
} card_kind;

extern card_kind lowered_card;
extern uint8_t card_memory[1 << 22]; /* stands for the card's: only addresses are taken */

/* Runs a case with other cards in place of an H200: kernels for 8.0 with 99 and 163 KiB, for 12.0 with 99. */
void on_other_cards(void (*run)(void));

kind ordinary_layer(void);
kind mixture_layer(void);
model_kind model_of(kind k); /* two layers of a kind */

plan *write_plan(const model_kind *m);
plan *fuse_plan(plan *p); /* as cuda_device.c has it */
plan *make_plan(const model_kind *m);

/* p: fused, and taken. */
void lower_plan(const model_kind *m, plan *p, const card_border *border, lowered *out);
void lower_model(const model_kind *m, lowered *out);
void free_lowered(lowered *l);

/* The names of a layer's device steps, or of those outside of layers, with spaces between them. */
const char *step_names(const device_list *l, int32_t layer);

#define CHECK_NAMES(list, layer, expected)                                                         \
    do {                                                                                           \
        const char *got_ = step_names(list, layer);                                                \
        if (strcmp(got_, expected) != 0)                                                           \
            printf("# %s\n", got_);                                                                \
        CHECK(strcmp(got_, expected) == 0);                                                        \
    } while (0)

#define DENSE    "qkv attend output gate_up down"
#define MIXED    "qkv attend output router experts_gate_up experts_down"
#define BY_STEPS "qkv rope_kv attend output gate_up down"
#define PIECES   "product rope_kv attend product_add gate_up down"
#define FLOATS   "rows rope_kv attend rows_add rms_norm matmul_glu rows_add"

/* Each step of the plan is stood for once, in its order. */
void check_whole(const lowered *l);

/* Two layers that become these. */
void check_both(const model_kind *m, const char *expected);

/* Nothing is fused. */
void check_plain(const model_kind *m);

/* No layer is of a known form, but its products are fused. */
void check_pieces(const model_kind *m, const char *expected);

#endif
