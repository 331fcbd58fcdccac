/* backend/cuda/lower: what plans become for batches, in what sizes, and in parts (cuda_plans.h). */
#include "base/mem.h"
#include "cuda_plans.h"
#include "plan/parts.h"

/* ---- Batches --------------------------------------------------------------------------------- */

static device_list batch_of(const lowered *l, int32_t n_tokens, bool has_runs, bool is_short)
{
    device_list out = {0};
    batch_shape of = {n_tokens, n_tokens < 8 ? n_tokens : 8, has_runs, is_short};
    CHECK(lower_batch(l->p, &l->g, false, &of, &out, NULL) == LACE_OK);
    CHECK(out.n_steps == l->p->n_steps);
    for (int32_t i = 0; i < out.n_steps; i++) {
        const device_step *d = &out.steps[i], *before = i > 0 ? d - 1 : NULL;
        CHECK(d->first == &l->p->steps[i] && d->n_steps == 1 && d->launch);
        /* What is taken was left, and what is left is taken. */
        CHECK(d->takes == ROWS_PLAIN || (before && before->leaves == d->takes));
        CHECK(!before || before->leaves == ROWS_PLAIN || before->leaves == d->takes);
    }
    return out;
}

/* The layer is rms_norm qkv rope_kv attend output rms_norm gate_up down, behind two other steps. */
static void check_forms(const device_list *l, const row_form leaves[8])
{
    for (int i = 0; i < 8; i++) {
        if (l->steps[2 + i].leaves != leaves[i])
            printf("# step %d leaves %d, expected %d\n", i, l->steps[2 + i].leaves, leaves[i]);
        CHECK(l->steps[2 + i].leaves == leaves[i]);
    }
}

static void single_rows_are_launched_alone(void)
{
    model_kind m = model_of(ordinary_layer());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 1, false, true);
    check_forms(&b, (row_form[8]){ROWS_PLAIN});
    device_list_free(&b);
    free_lowered(&l);
}

static void small_batches_go_in_slabs(void)
{
    model_kind m = model_of(ordinary_layer());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 8, false, true);
    check_forms(&b, (row_form[8]){ROWS_SLABS, ROWS_PARTS, ROWS_PLAIN, ROWS_SLABS, ROWS_PARTS,
                                  ROWS_SLABS, ROWS_SLABS, ROWS_PARTS});
    CHECK(b.steps[3].launch == gpu_launch_small_batch);
    device_list_free(&b);
    b = batch_of(&l, 8, true, true); /* a run of tokens is attended to otherwise */
    CHECK(b.steps[5].leaves == ROWS_PLAIN && b.steps[6].takes == ROWS_PLAIN);
    device_list_free(&b);
    b = batch_of(&l, 8, false, false); /* long contexts are cut into parts */
    CHECK(b.steps[5].leaves == ROWS_PLAIN && b.steps[6].takes == ROWS_PLAIN);
    device_list_free(&b);
    free_lowered(&l);
}

static void larger_batches_go_in_atoms(void)
{
    model_kind m = model_of(ordinary_layer());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 64, false, true);
    check_forms(&b, (row_form[8]){ROWS_ATOMS_INT, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_INT, ROWS_PLAIN, ROWS_PARTS});
    CHECK(b.steps[3].launch == gpu_launch_products && b.steps[2].n_k64 == WIDTH / 64);
    device_list_free(&b);
    b = batch_of(&l, 512, false, true); /* rotations of any number add up what products left */
    check_forms(&b, (row_form[8]){ROWS_ATOMS_INT, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_INT, ROWS_PLAIN, ROWS_PARTS});
    device_list_free(&b);
    free_lowered(&l);
    kind k = ordinary_layer();
    k.type = k.down = DTYPE_F16;
    m = model_of(k);
    lower_model(&m, &l);
    b = batch_of(&l, 8, false, true); /* slabs are for int kinds */
    check_forms(&b, (row_form[8]){ROWS_ATOMS_HALF, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_HALF, ROWS_PLAIN, ROWS_PARTS});
    device_list_free(&b);
    free_lowered(&l);
}

static void fast_prompts_go_in_bytes(void)
{
    model_kind m = model_of(ordinary_layer());
    lowered l;
    lower_model(&m, &l);
    l.g.fast_prompts = true;
    device_list b = batch_of(&l, 129, false, true);
    check_forms(&b, (row_form[8]){ROWS_BYTES, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_BYTES, ROWS_PLAIN, ROWS_PARTS});
    CHECK(gpu_product_is_bytes(&l.g, b.steps[3].first, 0, 129));
    for (int32_t i = 0; i < b.n_steps; i++) /* the logits stay as they are */
        CHECK(!step_is_matmul(b.steps[i].first) || b.steps[i].first->layer >= 0 ||
              !gpu_product_is_bytes(&l.g, b.steps[i].first, 0, 512));
    device_list_free(&b);
    b = batch_of(&l, 128, false, true); /* a step of texts */
    check_forms(&b, (row_form[8]){ROWS_ATOMS_INT, ROWS_PARTS, ROWS_PLAIN, ROWS_PLAIN, ROWS_PARTS,
                                  ROWS_ATOMS_INT, ROWS_PLAIN, ROWS_PARTS});
    device_list_free(&b);
    free_lowered(&l);
}

static void experts_of_batches_have_their_launcher(void)
{
    model_kind m = model_of(mixture_layer());
    lowered l;
    lower_model(&m, &l);
    device_list b = batch_of(&l, 64, false, true);
    int32_t n = 0;
    for (int32_t i = 0; i < b.n_steps; i++)
        n += b.steps[i].launch == gpu_launch_experts;
    CHECK(n == 4);
    for (int32_t i = 0; i < b.n_steps; i++) { /* choices are sorted once */
        CHECK((b.steps[i].leaves == ROWS_SLOTS) == (l.p->steps[i].op == OP_MOE_GLU));
        CHECK((b.steps[i].takes == ROWS_SLOTS) == (l.p->steps[i].op == OP_MOE_DOWN));
    }
    device_list_free(&b);
    free_lowered(&l);
}

/* Only down: the kernel of gate and up has pairs, and reads what is not weighed. */
static void experts_without_a_gate_have_it_for_down(void)
{
    for (int i = 0; i < 2; i++) {
        kind k = mixture_layer();
        k.has_no_gate = i == 0;
        k.weighs_inputs = i == 1;
        model_kind m = model_of(k);
        lowered l;
        lower_model(&m, &l);
        device_list b = batch_of(&l, 64, false, true);
        for (int32_t n = 0; n < b.n_steps; n++)
            CHECK((b.steps[n].launch == gpu_launch_experts) ==
                  (b.steps[n].first->op == OP_MOE_DOWN));
        device_list_free(&b);
        free_lowered(&l);
    }
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* 32 rows of tiles are 32 blocks; two of down do not fit beside each other on a processor. */
static void blocks_of_experts_have_rows_and_room(void)
{
    model_kind m = model_of(mixture_layer());
    lowered low;
    lower_model(&m, &low);
    const layer_steps *l = &low.form.segments[0].l;
    CHECK(gpu_experts_n_blocks(&low.g, l) == WIDTH / 16);
    CHECK(gpu_experts_bytes(l) == 4 * 3 * tile_matrix_bytes(TILE_Q4_K, FF, WIDTH));
    CHECK(gpu_experts_stride(l) >= gpu_act_bytes(GPU_ACT_INT, FF) &&
          gpu_experts_stride(l) % 256 == 0);
    uint32_t bytes = gpu_experts_down_bytes(&low.g, l);
    CHECK(2 * (bytes + 1024) > 232448 + 1024 && bytes <= 232448);
    free_lowered(&low);
}

static void more_blocks_share_longer_contexts(void)
{
    model_kind m = model_of(ordinary_layer());
    lowered l;
    lower_model(&m, &l);
    CHECK(token_list_cluster(&l.list, 0) == 1);
    CHECK(token_list_cluster(&l.list, 127) == 1 && token_list_cluster(&l.list, 128) == 2);
    CHECK(token_list_cluster(&l.list, 100000) == LOWER_MOST_CLUSTER);
    free_lowered(&l);
}

/* Rounds need little memory, and finish more rows than there are threads. */
static void rounds_have_room_for_many_rows(void)
{
    kind k = ordinary_layer();
    k.type = k.down = DTYPE_Q8_0;
    model_kind m = model_of(k);
    m.n_vocab = 262144;
    m.n_processors = 28;
    lowered_card.compiled_for = 80;
    lowered_card.shared_bytes = 166912;
    lowered l;
    lower_model(&m, &l);
    CHECK(l.list.has_best);
    free_lowered(&l);
    m = model_of(ordinary_layer());
    m.n_processors = 1;
    check_both(&m, DENSE);
    lowered_card.compiled_for = 90;
    lowered_card.shared_bytes = 232448;
}

/* ---- Parts of plans -------------------------------------------------------------------------- */

/* The parts of a plan; on the host are experts, or else the first layer. */
static void cut_plan(const model_kind *m, bool has_experts_apart, plan_parts *out)
{
    plan *p = write_plan(m);
    int32_t devices[256];
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        bool is_first = s->layer == 0;
        devices[i] =
            s->op == OP_EMBED || (has_experts_apart ? step_has_experts(s) : is_first) ? 0 : 1;
    }
    CHECK(plan_parts_create(p, devices, out, NULL) == LACE_OK);
    plan_free(p);
}

/* A part, lowered; addresses are such that those of the border are told from those of values. */
static void lower_part(const model_kind *m, plan_part *part, card_border *border, lowered *out)
{
    static uint8_t between[1 << 16];
    static border_token token;
    plan *p = part->p;
    part->p = NULL;
    *border = (card_border){.p = p,
                            .values = card_memory,
                            .border = between,
                            .shared = between,
                            .token = &token,
                            .token_on_card = &token};
    lower_plan(m, fuse_plan(p), border, out);
}

/* What a step of the list copies, of the kernel's copies and the engine's. */
static int32_t n_copied(const device_step *d)
{
    return d->a.border.n_large + d->a.border.by_kernel.n_values;
}

static void last_layers_of_a_part_are_fused_whole(void)
{
    model_kind m = model_of(ordinary_layer());
    m.n_layers = 3;
    m.layers[2] = m.layers[1];
    plan_parts parts;
    card_border border;
    lowered l;
    cut_plan(&m, false, &parts);
    CHECK(parts.n_parts == 2 && parts.parts[1].device == 1);
    CHECK(card_border_fits_token(parts.parts[1].p));
    lower_part(&m, &parts.parts[1], &border, &l);
    CHECK_NAMES(&l.list.list, 1, DENSE);
    CHECK_NAMES(&l.list.list, 2, DENSE);
    CHECK_NAMES(&l.list.list, -1, "border_enter begin head border_leave");
    const device_list *list = &l.list.list;
    const device_step *enter = &list->steps[0], *begin = &list->steps[1],
                      *leave = &list->steps[list->n_steps - 1],
                      *last = &list->steps[list->n_steps - 2];
    CHECK(n_copied(enter) == 1 && enter->a.border.by_kernel.said &&
          !enter->a.border.by_kernel.done);
    CHECK(enter->a.border.by_kernel.values[0].to == (const uint8_t *)l.layout.residual);
    CHECK(enter->a.border.by_kernel.values[0].n == WIDTH / 4);
    CHECK(begin->a.begin.table == (const uint8_t *)begin->a.begin.residual &&
          begin->a.begin.row_bytes == 0 && begin->a.begin.type == DTYPE_F32 &&
          begin->a.begin.angles[0] && begin->a.begin.next.planes);
    CHECK(n_copied(leave) == 1 && leave->a.border.by_kernel.done);
    CHECK(leave->a.border.by_kernel.values[0].from ==
          (const uint8_t *)last->a.product.parts[0].out);
    free_lowered(&l);
    plan_parts_free(&parts);
}

static void attention_between_experts_of_the_host_is_fused(void)
{
    model_kind m = model_of(mixture_layer());
    plan_parts parts;
    card_border border;
    lowered l;
    cut_plan(&m, true, &parts);
    CHECK(parts.n_parts == 6); /* embedding, attention, experts, attention, experts, the end */
    lower_part(&m, &parts.parts[3], &border, &l);
    CHECK_NAMES(&l.list.list, 1, "qkv attend output rms_norm rows route border_leave");
    const device_list *list = &l.list.list;
    const device_step *leave = &list->steps[list->n_steps - 1];
    CHECK(n_copied(&list->steps[0]) == 1);
    CHECK(n_copied(leave) == 3); /* the residual, its norm, the choices */
    CHECK(!list->steps[2].a.product.next_squares && list->steps[2].a.product.triggers_late);
    check_whole(&l);
    free_lowered(&l);
    lower_part(&m, &parts.parts[5], &border, &l);
    CHECK_NAMES(&l.list.list, -1, "border_enter begin head border_leave");
    free_lowered(&l);
    plan_parts_free(&parts);
}

static void other_cards_have_the_same_rows(void)
{
    on_other_cards(single_rows_are_launched_alone);
    on_other_cards(experts_of_batches_have_their_launcher);
}

int main(void)
{
    CASE(last_layers_of_a_part_are_fused_whole);
    CASE(attention_between_experts_of_the_host_is_fused);
    CASE(single_rows_are_launched_alone);
    CASE(small_batches_go_in_slabs);
    CASE(larger_batches_go_in_atoms);
    CASE(fast_prompts_go_in_bytes);
    CASE(experts_of_batches_have_their_launcher);
    CASE(experts_without_a_gate_have_it_for_down);
    CASE(blocks_of_experts_have_rows_and_room);
    CASE(more_blocks_share_longer_contexts);
    CASE(rounds_have_room_for_many_rows);
    CASE(other_cards_have_the_same_rows);
    return tap_end();
}
