/* backend/cuda/lower: what layers become for one token on a card (cuda_plans.h). */
#include "cuda_plans.h"

static float biases[WIDTH * 4]; /* only their address is taken */

/* ---- All layers alike ------------------------------------------------------------------------ */

static void layers_of_llamas_are_fused_whole(void)
{
    model_kind m = model_of(ordinary_layer());
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, -1, "begin head");
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK(l.list.has_best && !l.list.has_plain && !l.list.attends_plain);
    CHECK(l.list.list.steps[1].a.product.triggers_late);
    CHECK(!l.list.list.steps[6].a.product.triggers_late);
    CHECK(l.list.list.steps[1].a.product.n_squares == 1);          /* begin's */
    CHECK(l.list.list.steps[6].a.product.n_squares == WIDTH / 16); /* of each block of down */
    CHECK(l.list.logits == l.layout.logits);
    check_whole(&l);
    free_lowered(&l);
    kind k = ordinary_layer();
    k.type = k.down = DTYPE_F16;
    k.head_dim = 64;
    m = model_of(k);
    check_both(&m, DENSE);
}

static void experts_are_fused(void)
{
    kind k = ordinary_layer();
    k.n_experts = 128;
    k.n_used = 8;
    model_kind m = model_of(k);
    check_both(&m, MIXED);
    m.layers[0].cache = m.layers[1].cache = DTYPE_Q8_0;
    check_both(&m, MIXED);
    m.layers[0].cache = m.layers[1].cache = DTYPE_F32;
    check_both(&m, "qkv rope_kv attend output router experts_gate_up experts_down");
}

#define MIXED_BY_STEPS "product rope_kv attend product_add rms_norm rows route moe_glu moe_down"

static void experts_without_room_are_not(void)
{
    kind k = ordinary_layer();
    k.n_experts = 600; /* more than a block can choose from */
    k.n_used = 8;
    model_kind m = model_of(k);
    check_pieces(&m, MIXED_BY_STEPS);
    k.n_experts = 64;
    k.n_used = 17; /* more than it can keep */
    m = model_of(k);
    check_pieces(&m, MIXED_BY_STEPS);
}

#define MIXED_PIECES "product rope_kv attend product_add rows experts_gate_up experts_down"

/* Where the form of a layer is not known, experts choose by any rule but those with groups and
 * SparseMixer's, whose choice is a step of its own. */
static void experts_by_other_rules_are_fused(void)
{
    static const route_rule others[] = {{.scores = ROUTE_SIGMOID},
                                        {.bias = biases},
                                        {.scales = biases},
                                        {.factor = 2.5f},
                                        {.norms = true, .norm_more = 1},
                                        {.norms = true, .norm_least = 0.1f}};
    static const route_rule steps[] = {{.scores = ROUTE_MIXER},
                                       {.n_groups = 4, .n_groups_used = 2, .n_ranking = 1}};
    model_kind m;
    kind k = mixture_layer();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        k.rule = others[i];
        m = model_of(k);
        check_pieces(&m, MIXED_PIECES);
    }
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        k.rule = steps[i];
        m = model_of(k);
        check_pieces(&m,
                     "product rope_kv attend product_add rows route experts_gate_up experts_down");
    }
    k.rule = (route_rule){.norms = true, .factor = 1};
    m = model_of(k);
    check_both(&m, MIXED);
    k.router = DTYPE_F16; /* routers of known layers are floats */
    m = model_of(k);
    check_pieces(&m, "product rope_kv attend product_add product experts_gate_up experts_down");
}

static void experts_without_a_gate_are_left_to_steps(void)
{
    for (int i = 0; i < 2; i++) {
        kind k = mixture_layer();
        k.has_no_gate = i == 0;
        k.weighs_inputs = i == 1;
        model_kind m = model_of(k);
        check_pieces(&m, MIXED_BY_STEPS);
    }
}

/* Blocks that make their input by themselves, and those of experts, do not know lace's own types. */
static void experts_of_own_types_are_left_to_steps(void)
{
    const dtype types[] = {DTYPE_S4, DTYPE_N24, DTYPE_M4};
    for (int i = 0; i < 3; i++) {
        kind k = ordinary_layer();
        k.type = k.down = types[i];
        model_kind m = model_of(k);
        check_both(&m, DENSE);
        k.n_experts = 8;
        k.n_used = 2;
        m = model_of(k);
        check_pieces(&m, "rms_norm matmul_group rope_kv attend matmul_add rms_norm rows route "
                         "moe_glu moe_down");
    }
}

/* In known layers whoever adds to the residual norms what goes on, or there is a norm behind it. */
static void layers_without_any_norms_are_pieces(void)
{
    kind k = ordinary_layer();
    k.has_no_norm_in_front = true;
    model_kind m = model_of(k);
    check_pieces(&m, PIECES);
}

/* A block keeps the sums of all its rows: 1 KB for 16 of them. */
static void vocabularies_without_room_are_left_to_steps(void)
{
    kind k = ordinary_layer();
    k.type = k.down = DTYPE_Q8_0;
    model_kind m = model_of(k);
    m.n_vocab = 262144;
    check_both(&m, DENSE);
    m.n_processors = 100;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, -1, "begin gather rms_norm matmul");
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK(!l.list.has_best && l.list.logits != l.layout.logits);
    check_whole(&l);
    free_lowered(&l);
}

/* One thread finishes one row of gate and up, and there are 512 of them. */
static void blocks_have_no_more_rows_than_threads(void)
{
    model_kind m = model_of(ordinary_layer());
    m.n_processors = 2;
    check_both(&m, DENSE);
    m.n_processors = 1;
    lowered l;
    lower_model(&m, &l);
    CHECK(l.form.n_layers == 0);
    CHECK_NAMES(&l.list.list, 0,
                "product rope_kv attend product_add rms_norm matmul_glu product_add");
    free_lowered(&l);
}

/* The sums of squares of 256 blocks have a place. */
static void cards_with_too_many_processors_are_left_to_steps(void)
{
    model_kind m = model_of(ordinary_layer());
    m.n_processors = 256;
    check_both(&m, DENSE);
    m.n_processors = 257;
    check_plain(&m);
}

static void norms_behind_products_are_known(void)
{
    kind k = ordinary_layer();
    k.norms_behind = true;
    model_kind m = model_of(k);
    check_both(&m, "qkv attend output norm_add gate_up down norm_add");
    k.has_no_norm_in_front = k.norms_all_heads = true;
    m = model_of(k);
    check_both(&m, "qkv rms_norm rms_norm rope_kv attend output norm_add gate_up down norm_add");
}

static void float_matrices_have_their_kernel(void)
{
    kind k = ordinary_layer();
    k.type = k.down = DTYPE_F32;
    model_kind m = model_of(k);
    check_pieces(&m, FLOATS);
}

/* ---- Layers that differ ---------------------------------------------------------------------- */

static void attention_of_other_kinds_goes_by_steps_in_its_layer(void)
{
    model_kind m = model_of(ordinary_layer());
    m.layers[1].head_dim = 512; /* the first layer's angles are for 128 of them */
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, BY_STEPS);
    CHECK(l.list.has_plain && l.list.attends_plain && l.list.most_cluster > 0);
    check_whole(&l);
    free_lowered(&l);
    kind k = ordinary_layer();
    k.cache = DTYPE_F32;
    m = model_of(k);
    check_both(&m, BY_STEPS);
}

/* Caches of q8_0 and heads of 256 values have kernels of their own, which any card has room for: of the
 * least, 99 KiB, 24 are for what a block has besides. */
static void attention_of_bytes_and_of_large_heads_is_one_launch(void)
{
    static const struct {
        dtype cache;
        int32_t head_dim;
        const char *kernel;
    } all[] = {{DTYPE_F16, 256, "decode_attend_256"},
               {DTYPE_Q8_0, 64, "decode_attend_64_bytes"},
               {DTYPE_Q8_0, 96, "decode_attend_96_bytes"},
               {DTYPE_Q8_0, 128, "decode_attend_128_bytes"},
               {DTYPE_Q8_0, 256, "decode_attend_256_bytes"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        kind k = ordinary_layer();
        k.cache = all[i].cache;
        k.head_dim = all[i].head_dim;
        model_kind m = model_of(k);
        check_both(&m, DENSE);
        lowered l;
        lower_model(&m, &l);
        const device_step *attend = &l.list.list.steps[2];
        CHECK(strcmp(attend->kernel, all[i].kernel) == 0);
        CHECK(attend->shared_bytes <= (99 - 24) * 1024);
        CHECK(!l.list.has_plain && !l.list.attends_plain);
        free_lowered(&l);
    }
}

static void a_dense_first_layer_goes_before_experts(void)
{
    model_kind m = model_of(ordinary_layer());
    m.n_layers = 3;
    m.layers[1] = m.layers[2] = mixture_layer();
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, MIXED);
    CHECK_NAMES(&l.list.list, 2, MIXED);
    CHECK(!l.list.has_plain && l.list.has_best);
    check_whole(&l);
    free_lowered(&l);
}

static void windows_that_alternate_change_parameters_alone(void)
{
    model_kind m = model_of(ordinary_layer());
    m.layers[1].window = 64;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK(l.list.list.steps[2].a.attention.in.window == 0);
    CHECK(l.list.list.steps[7].a.attention.in.window == 64);
    CHECK(l.list.list.steps[2].kernel == l.list.list.steps[7].kernel);
    free_lowered(&l);
}

/* What pads a vector must stay zero: other forms and other lengths have memory of their own. */
static void vectors_of_other_forms_have_their_own_memory(void)
{
    model_kind m = model_of(ordinary_layer());
    m.layers[1].down = DTYPE_F16;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    const decode_product *a = &l.list.list.steps[5].a.product,
                         *b = &l.list.list.steps[10].a.product;
    CHECK(a->mode == DECODE_RESIDUAL && b->mode == DECODE_RESIDUAL);
    CHECK(a->x.act == GPU_ACT_INT && b->x.act == GPU_ACT_F16 && a->x.planes != b->x.planes);
    free_lowered(&l);
    m.layers[1].down = DTYPE_Q6_K;
    lower_model(&m, &l);
    CHECK(l.list.list.steps[5].a.product.x.planes == l.list.list.steps[10].a.product.x.planes);
    free_lowered(&l);
    m = model_of(ordinary_layer());
    m.layers[1].n_kv_heads = 1;
    m.layers[1].head_dim = 64;
    lower_model(&m, &l);
    CHECK(l.list.list.steps[3].a.product.x.k == 512 && l.list.list.steps[8].a.product.x.k == 256);
    CHECK(l.list.list.steps[3].a.product.x.planes != l.list.list.steps[8].a.product.x.planes);
    free_lowered(&l);
}

static void a_layer_of_another_form_stands_among_fused_ones(void)
{
    model_kind m = model_of(ordinary_layer());
    m.n_layers = 3;
    m.layers[2] = m.layers[0];
    m.layers[1].has_softcap_amid = true;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, DENSE);
    CHECK_NAMES(&l.list.list, 1, "product rope_kv attend product_add softcap gate_up down");
    CHECK_NAMES(&l.list.list, 2, DENSE); /* its first product makes its input */
    CHECK(l.list.list.steps[13].a.any.is_any && l.list.list.steps[13].a.any.made.norm);
    CHECK_NAMES(&l.list.list, -1, "begin head");
    check_whole(&l);
    /* The residual is the plan's value, for all. */
    const float *residual = (const float *)l.p->steps[0].out[0].data;
    CHECK(l.list.list.steps[0].a.begin.residual == residual);
    CHECK(l.list.list.steps[5].a.product.residual == residual);
    CHECK(l.list.attends_plain && l.list.most_cluster > 0);
    free_lowered(&l);
}

static void other_layers_stand_at_both_ends_too(void)
{
    model_kind m = model_of(ordinary_layer());
    m.n_layers = 3;
    m.layers[2] = m.layers[0];
    m.layers[0].type = m.layers[2].type = m.head = DTYPE_F32;
    m.layers[0].down = m.layers[2].down = DTYPE_F32;
    lowered l;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, 0, FLOATS);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK_NAMES(&l.list.list, 2, FLOATS);
    CHECK_NAMES(&l.list.list, -1, "begin gather rows"); /* the head is of floats too */
    check_whole(&l);
    free_lowered(&l);
    m.head = DTYPE_Q6_K;
    lower_model(&m, &l);
    CHECK_NAMES(&l.list.list, -1, "begin head");
    check_whole(&l);
    free_lowered(&l);
}

/* What a card is decides how steps are launched, and not which ones are fused. */
static void other_cards_have_the_same_lists(void)
{
    static void (*const cases[])(void) = {layers_of_llamas_are_fused_whole,
                                          experts_are_fused,
                                          experts_by_other_rules_are_fused,
                                          layers_without_any_norms_are_pieces,
                                          cards_with_too_many_processors_are_left_to_steps,
                                          norms_behind_products_are_known,
                                          float_matrices_have_their_kernel,
                                          attention_of_other_kinds_goes_by_steps_in_its_layer,
                                          a_dense_first_layer_goes_before_experts,
                                          windows_that_alternate_change_parameters_alone,
                                          a_layer_of_another_form_stands_among_fused_ones,
                                          other_layers_stand_at_both_ends_too};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        on_other_cards(cases[i]);
}

int main(void)
{
    CASE(layers_of_llamas_are_fused_whole);
    CASE(experts_are_fused);
    CASE(experts_without_room_are_not);
    CASE(experts_by_other_rules_are_fused);
    CASE(experts_without_a_gate_are_left_to_steps);
    CASE(experts_of_own_types_are_left_to_steps);
    CASE(layers_without_any_norms_are_pieces);
    CASE(vocabularies_without_room_are_left_to_steps);
    CASE(blocks_have_no_more_rows_than_threads);
    CASE(cards_with_too_many_processors_are_left_to_steps);
    CASE(norms_behind_products_are_known);
    CASE(float_matrices_have_their_kernel);
    CASE(attention_of_other_kinds_goes_by_steps_in_its_layer);
    CASE(attention_of_bytes_and_of_large_heads_is_one_launch);
    CASE(a_dense_first_layer_goes_before_experts);
    CASE(windows_that_alternate_change_parameters_alone);
    CASE(vectors_of_other_forms_have_their_own_memory);
    CASE(a_layer_of_another_form_stands_among_fused_ones);
    CASE(other_layers_stand_at_both_ends_too);
    CASE(other_cards_have_the_same_lists);
    return tap_end();
}
