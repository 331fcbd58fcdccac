/* compress/type_choice.c: a type for each tensor within a budget. */
#include "compress/type_choice.h"

#include <math.h>

#include "tap.h"

static tensor tensors[2] = {{.n_values = 1024, .type = DTYPE_F16},
                            {.n_values = 4096, .type = DTYPE_F16}};

/* Two tensors of three types; the faster ones are not the smaller ones. */
static void make_list(choice_list *l)
{
    static const dtype types[] = {DTYPE_S6, DTYPE_S2, DTYPE_S4}; /* in no order */
    static const double klds[] = {0.01, 1, 0.1}, us[] = {2, 3, 1};
    CHECK(choices_init(l, 2, NULL) == LACE_OK);
    for (int i = 0; i < 2; i++) {
        tensor_choices *c = &l->tensors[l->n++];
        c->t = &tensors[i];
        for (int k = 0; k < 3; k++) {
            type_choice *t = choices_add_type(c, types[k]);
            t->kld = klds[k];
            t->us = us[k] * (i + 1);
        }
    }
    l->rest_bytes = 1000;
    l->rest_us = 10;
}

static dtype chosen(const choice_list *l, int i)
{
    return choices_chosen(&l->tensors[i])->type;
}

static uint64_t bytes_of(dtype type, int i)
{
    return row_bytes(type, (int64_t)tensors[i].n_values);
}

static void bytes_go_where_they_lower_the_loss_most(void)
{
    choice_list l;
    double least, most;
    make_list(&l);
    choices_range(&l, CHOICE_BYTES, &least, &most);
    CHECK(least == 1000.0 + (double)(bytes_of(DTYPE_S2, 0) + bytes_of(DTYPE_S2, 1)));
    CHECK(most == 1000.0 + (double)(bytes_of(DTYPE_S6, 0) + bytes_of(DTYPE_S6, 1)));
    CHECK(!choices_allocate(&l, CHOICE_BYTES, least - 1));
    CHECK(choices_allocate(&l, CHOICE_BYTES, least) && chosen(&l, 0) == DTYPE_S2);
    CHECK(choices_allocate(&l, CHOICE_BYTES, most) && chosen(&l, 1) == DTYPE_S6);
    /* The small tensor gains as much for fewer bytes. */
    double some = least + (double)(bytes_of(DTYPE_S4, 0) - bytes_of(DTYPE_S2, 0));
    CHECK(choices_allocate(&l, CHOICE_BYTES, some));
    CHECK(chosen(&l, 0) == DTYPE_S4 && chosen(&l, 1) == DTYPE_S2);
    choice_point p = choices_now(&l);
    CHECK((double)p.n_bytes == some && fabs(p.kld - 1.1) < 1e-12 && p.us == 10 + 1 + 6);
    choices_deinit(&l);
}

static void time_is_a_budget_of_its_own(void)
{
    choice_list l;
    double least, most;
    make_list(&l);
    choices_range(&l, CHOICE_TIME, &least, &most);
    CHECK(fabs(least - (10 + 1 + 2)) < 1e-9 && fabs(most - (10 + 3 + 6)) < 1e-9);
    CHECK(!choices_allocate(&l, CHOICE_TIME, 12.9));
    CHECK(choices_allocate(&l, CHOICE_TIME, 13) && chosen(&l, 0) == DTYPE_S4);
    CHECK(choices_allocate(&l, CHOICE_TIME, 16) && chosen(&l, 1) == DTYPE_S6);
    choices_deinit(&l);
}

static void a_loss_is_kept_with_the_fewest_bytes(void)
{
    choice_list l;
    make_list(&l);
    CHECK(!choices_allocate_loss(&l, 0.01));
    CHECK(choices_allocate_loss(&l, 0.2));
    CHECK(chosen(&l, 0) == DTYPE_S4 && chosen(&l, 1) == DTYPE_S4);
    CHECK(choices_find(&l, &tensors[1]) == &l.tensors[1] && !choices_find(&l, NULL));
    uint64_t n_values[DTYPE_COUNT];
    choices_count_values(&l, n_values);
    CHECK(n_values[DTYPE_S4] == 1024 + 4096 && n_values[DTYPE_S6] == 0);
    choices_deinit(&l);
}

int main(void)
{
    CASE(bytes_go_where_they_lower_the_loss_most);
    CASE(time_is_a_budget_of_its_own);
    CASE(a_loss_is_kept_with_the_fewest_bytes);
    return tap_end();
}
