/* Forms of a model on a host and a card. */
#include "place/forms.h"

/* Steps of a layer one behind the other: norm, q k v, rotation, attention, output, norm, gate and up,
 * down; of a mixture router and choice, and what experts do. */
enum { STEPS_DENSE = 8, STEPS_REST = 8, STEPS_EXPERTS = 2, STEPS_OUTPUT = 3 };

/* ---- What a form costs ----------------------------------------------------------------------- */

/* A prompt's token where its weights are brought to the card once for all of its tokens. */
static double streamed_s(const place_facts *f, const place_item *item)
{
    if (!f->streams || f->link_bytes_s <= 0 || f->n_prompt <= 0)
        return item->prompt_s[ON_HOST];
    double by_link = (double)item->bytes[ON_HOST] / f->link_bytes_s;
    double bring = (item->bring_s > 0 ? item->bring_s : by_link) / f->n_prompt;
    double both = bring > item->prompt_s[ON_CARD] ? bring : item->prompt_s[ON_CARD];
    return both < item->prompt_s[ON_HOST] ? both : item->prompt_s[ON_HOST];
}

/* Attention stays with its cache. On a card it is a small part. */
static void add_attention(const place_facts *f, place_form *form, const place_layer *l, int at)
{
    if (at == ON_CARD)
        return;
    form->prompt_s += l->attend_s;
    if (form->uses_card && f->streams && f->link_bytes_s > 0)
        form->prompt_s += (double)l->attend_bytes / f->link_bytes_s;
}

static void add_item(const place_facts *f, place_form *form, const place_item *item, int at,
                     int n_steps)
{
    *(at == ON_CARD ? &form->card_bytes : &form->host_bytes) += item->bytes[at];
    form->token_s += item->token_s[at] + n_steps * f->step_s[at];
    form->prompt_s += at == ON_HOST && form->uses_card ? streamed_s(f, item) : item->prompt_s[at];
}

/* Where the parts of a layer are. */
static int rest_at(const place_facts *f, const place_form *form, int32_t i)
{
    return i >= f->n_layers - form->layers_on_card ? ON_CARD : ON_HOST;
}

static int experts_at(const place_facts *f, const place_form *form, int32_t i)
{
    return i < form->host_experts ? ON_HOST : rest_at(f, form, i);
}

/* A way from `from` to `to` and what travels on it. */
static void add_switch(const place_facts *f, place_form *form, int from, int to)
{
    if (from == to)
        return;
    double travel = f->link_bytes_s > 0 ? (double)f->border_bytes / f->link_bytes_s : 0;
    form->token_s += f->switch_s + travel;
    form->prompt_s += travel; /* a switch is one for a whole batch */
}

static void add_up(const place_facts *f, place_goal goal, place_form *form)
{
    int at = ON_HOST; /* embeddings are there */
    form->uses_card = form->layers_on_card > 0 || form->has_output_on_card;
    form->host_bytes = f->host_bytes;
    form->card_bytes = 0;
    form->token_s = form->prompt_s = 0;
    for (int32_t i = 0; i < f->n_layers; i++) {
        const place_layer *l = &f->layers[i];
        int rest = rest_at(f, form, i), experts = experts_at(f, form, i);
        *(rest == ON_CARD ? &form->card_bytes : &form->host_bytes) += l->state_bytes;
        add_item(f, form, &l->rest, rest, l->experts.bytes[ON_HOST] ? STEPS_REST : STEPS_DENSE);
        add_attention(f, form, l, rest);
        add_switch(f, form, at, rest);
        at = rest;
        if (l->experts.bytes[ON_HOST] == 0)
            continue;
        add_item(f, form, &l->experts, experts, STEPS_EXPERTS);
        add_switch(f, form, at, experts);
        at = experts;
    }
    int output = form->has_output_on_card ? ON_CARD : ON_HOST;
    add_item(f, form, &f->output, output, STEPS_OUTPUT);
    add_switch(f, form, at, output);
    add_switch(f, form, output, ON_HOST); /* the logits */
    form->fits =
        form->card_bytes <= f->card_free && (f->host_free == 0 || form->host_bytes <= f->host_free);
    form->task_s = f->n_prompt * form->prompt_s + f->n_write * form->token_s;
    if (goal == PLACE_THROUGHPUT) /* in batches weights are read once for many tokens */
        form->task_s = (f->n_prompt + f->n_write) * form->prompt_s;
}

/* ---- Forms ----------------------------------------------------------------------------------- */

static bool has_experts(const place_facts *f)
{
    for (int32_t i = 0; i < f->n_layers; i++)
        if (f->layers[i].experts.bytes[ON_HOST] > 0)
            return true;
    return false;
}

static place_form *add_form(const place_facts *f, place_goal goal, place_forms *out,
                            place_form form)
{
    add_up(f, goal, &form);
    out->forms[out->n_forms] = form;
    return &out->forms[out->n_forms++];
}

/*
 * Experts of as few layers as possible in the host's memory. All else saves more time for each byte:
 * every token uses it.
 */
static void add_some_experts(const place_facts *f, place_goal goal, place_forms *out)
{
    place_form form = {.name = "experts of some layers in RAM",
                       .layers_on_card = f->n_layers,
                       .has_output_on_card = true};
    for (form.host_experts = 0; form.host_experts < f->n_layers; form.host_experts++) {
        add_up(f, goal, &form);
        if (form.card_bytes <= f->card_free)
            break;
    }
    if (form.host_experts > 0 && form.host_experts < f->n_layers)
        add_form(f, goal, out, form);
}

/* What of the output and a layer saves more time for each byte? */
static double gain(const place_item *a, const place_item *b, const place_facts *f)
{
    double saved = 0;
    const place_item *items[] = {a, b};
    uint64_t bytes = 1;
    for (int i = 0; i < 2; i++)
        if (items[i]) {
            saved += f->n_write * (items[i]->token_s[ON_HOST] - items[i]->token_s[ON_CARD]) +
                     f->n_prompt * (items[i]->prompt_s[ON_HOST] - items[i]->prompt_s[ON_CARD]);
            bytes += items[i]->bytes[ON_CARD];
        }
    return saved / (double)bytes;
}

/* As many of the last layers as fit; the output first or last, by what it saves for each byte. */
static void add_last_layers(const place_facts *f, place_goal goal, place_forms *out)
{
    const place_layer *last = &f->layers[f->n_layers - 1];
    place_form form = {.name = "the last layers on the card"};
    bool is_output_first = gain(&f->output, NULL, f) > gain(&last->rest, &last->experts, f);
    for (int round = 0; round < 2; round++) {
        if (is_output_first == (round == 0)) {
            place_form more = form;
            more.has_output_on_card = true;
            add_up(f, goal, &more);
            form = more.card_bytes <= f->card_free ? more : form;
            continue;
        }
        while (form.layers_on_card < f->n_layers) {
            place_form more = form;
            more.layers_on_card++;
            add_up(f, goal, &more);
            if (more.card_bytes > f->card_free)
                break;
            form = more;
        }
    }
    if (form.layers_on_card < f->n_layers || !form.has_output_on_card)
        add_form(f, goal, out, form);
}

void place_forms_find(const place_facts *f, place_goal goal, place_forms *out)
{
    *out = (place_forms){0};
    add_form(f, goal, out, (place_form){.name = "all on the CPU"});
    add_form(f, goal, out,
             (place_form){.name = "all on the card",
                          .layers_on_card = f->n_layers,
                          .has_output_on_card = true});
    if (has_experts(f)) {
        add_form(f, goal, out,
                 (place_form){.name = "all experts in RAM",
                              .layers_on_card = f->n_layers,
                              .host_experts = f->n_layers,
                              .has_output_on_card = true});
        add_some_experts(f, goal, out);
    }
    add_last_layers(f, goal, out);
    for (int32_t i = 1; i < out->n_forms; i++)
        if (out->forms[i].fits && out->forms[i].task_s < out->forms[out->chosen].task_s)
            out->chosen = i;
}

void place_form_apply(const place_form *form, placement *out)
{
    placement_last_layers(out, form->layers_on_card, NULL);
    placement_host_experts(out, form->host_experts);
    out->output = form->has_output_on_card ? (uint8_t)(out->n_devices - 1) : 0;
}
