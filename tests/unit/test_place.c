/* Where models lie: rules that users write, forms and which one is chosen, placements in files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "data.h"
#include "lace.h"
#include "place/forms.h"
#include "place/place_file.h"
#include "place/rules.h"
#include "place/what_if.h"
#include "tap.h"

static void rules_are_read(void)
{
    place_rules r;
    CHECK(place_rules_parse("cuda", &r, NULL) == LACE_OK && place_rules_are_plain(&r));
    CHECK(place_rules_parse("auto;tokens=99", &r, NULL) == LACE_OK && place_rules_are_plain(&r));
    CHECK(r.n_tokens == 99);
    CHECK(place_rules_parse("cuda;memory=8G", &r, NULL) == LACE_OK && place_rules_are_plain(&r));
    CHECK(r.card_bytes == (uint64_t)8 << 30);
    CHECK(place_rules_parse("a;memory=123", &r, NULL) == LACE_OK && r.card_bytes == 123);
    CHECK(place_rules_parse("cuda;layers=3;host-experts=all", &r, NULL) == LACE_OK);
    CHECK(!place_rules_are_plain(&r) && r.layers == 3 && r.host_experts == PLACE_ALL);
    CHECK(place_rules_parse("a,b;split=3,1", &r, NULL) == LACE_OK && r.n_shares == 2);
    CHECK(place_rules_parse("a;rows", &r, NULL) == LACE_OK && r.by_rows &&
          !place_rules_are_plain(&r));
    CHECK(place_rules_parse("place=x/y.json", &r, NULL) == LACE_OK && !strcmp(r.file, "x/y.json"));
}

static void wrong_rules_are_named(void)
{
    static const char *const wrong[] = {"",
                                        ";layers=1",
                                        "a;",
                                        "a;layers=",
                                        "a;layers",
                                        "a;layers=-1",
                                        "a;layers=x",
                                        "a;split=",
                                        "a;split=1,",
                                        "a;split=x",
                                        "a;what=1",
                                        "a;tokens=all",
                                        "a;memory=0",
                                        "a;memory=",
                                        "a;memory=8Q",
                                        "a;memory=8GB",
                                        "a;memory=99999999999999999999",
                                        "a;memory=9999999999G",
                                        "a;layers=99999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        place_rules r;
        lace_error err = {0};
        if (!CHECK(place_rules_parse(wrong[i], &r, &err) == LACE_E_ARG && err.text[0]))
            tap_note("%s", wrong[i]);
    }
    place_rules r;
    placement p;
    CHECK(place_rules_parse("a,b;split=1", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 8, &p, NULL) == LACE_E_ARG);
    CHECK(place_rules_parse("a,b;split=0,0", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 8, &p, NULL) == LACE_E_ARG);
    CHECK(place_rules_parse("a,,b", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 8, &p, NULL) == LACE_E_ARG);
}

/* They were passed over in silence. */
static void no_rule_stands_beside_a_file(void)
{
    static const char *const wrong[][2] = {
        {"place=x.json;layers=3", "\"layers=3\" beside place=FILE"},
        {"place=x.json;tokens=99", "\"tokens=99\" beside place=FILE"},
        {"place=x.json;rows", "\"rows\" beside place=FILE"},
        {"place=x.json;place=y.json", "\"place=y.json\" beside place=FILE"},
        {"cuda;place=x.json", "\"cuda\" beside place=FILE"},
        {"cuda;place=x.json;layers=3", "\"cuda\" beside place=FILE"},
        {"cuda;layers=3;place=x.json", "\"cuda;layers=3\" beside place=FILE"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        place_rules r;
        lace_error err = {0};
        CHECK(place_rules_parse(wrong[i][0], &r, &err) == LACE_E_ARG);
        if (!CHECK(strstr(err.text, wrong[i][1]) && strstr(err.text, "leave one of them out")))
            tap_note("%s: %s", wrong[i][0], err.text);
    }
}

static void layers_go_where_rules_say(void)
{
    place_rules r;
    placement p;
    CHECK(place_rules_parse("a;layers=3;host-experts=6", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 8, &p, NULL) == LACE_OK && p.n_devices == 2);
    CHECK(p.layers[4] == 0 && p.layers[5] == 1 && p.layers[7] == 1 && p.output == 0);
    CHECK(p.experts[5] == 0 && p.experts[6] == 1);
    CHECK(placement_uses_cards(&p) && placement_uses_host(&p));
    CHECK(place_rules_parse("a,b;split=3,1", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 8, &p, NULL) == LACE_OK && p.n_devices == 3 && p.output == 2);
    CHECK(p.layers[0] == 1 && p.layers[5] == 1 && p.layers[6] == 2 && !placement_uses_host(&p));
    CHECK(place_rules_parse("a;layers=0", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 8, &p, NULL) == LACE_OK && !placement_uses_cards(&p));
}

/* A model of 10 layers: 1 MB and, of a mixture, 9 MB of experts of which a token uses a ninth. */
static place_facts *made_facts(bool is_mixture, uint64_t card_mb)
{
    const uint64_t mb = 1000000;
    const double speed[] = {10e9, 100e9};
    place_facts *f = calloc(1, sizeof *f);
    f->n_layers = 10;
    f->card_free = card_mb * mb;
    f->switch_s = 10e-6;
    f->link_bytes_s = 10e9;
    f->border_bytes = 4096;
    f->n_prompt = 512;
    f->n_write = 128;
    for (int at = 0; at < N_PLACES; at++) {
        for (int i = 0; i < 10; i++) {
            place_layer *l = &f->layers[i];
            l->state_bytes = mb;
            uint64_t rest = is_mixture ? mb : 10 * mb, experts = is_mixture ? 9 * mb : 0;
            l->rest.bytes[at] = rest;
            l->rest.token_s[at] = l->rest.prompt_s[at] = (double)rest / speed[at];
            l->experts.bytes[at] = experts;
            l->experts.token_s[at] = l->experts.prompt_s[at] = (double)experts / 9 / speed[at];
        }
        f->output.bytes[at] = 2 * mb;
        f->output.token_s[at] = f->output.prompt_s[at] = 2 * (double)mb / speed[at];
    }
    return f;
}

static place_form chosen(bool is_mixture, uint64_t card_mb)
{
    place_forms forms;
    place_facts *f = made_facts(is_mixture, card_mb);
    place_forms_find(f, PLACE_LATENCY, &forms);
    place_form form = forms.forms[forms.chosen];
    CHECK(form.card_bytes <= f->card_free);
    for (int32_t i = 0; i < forms.n_forms; i++)
        CHECK(!forms.forms[i].fits || forms.forms[i].task_s >= form.task_s);
    free(f);
    return form;
}

static void the_fastest_form_that_fits_is_chosen(void)
{
    place_form form = chosen(false, 1000);
    CHECK(form.layers_on_card == 10 && form.has_output_on_card && form.host_experts == 0);
    form = chosen(false, 60); /* 11 MB a layer with its states, 2 the output */
    CHECK(form.layers_on_card == 5 && form.card_bytes >= 55 * 1000000);
    form = chosen(false, 0);
    CHECK(form.layers_on_card == 0 && !form.has_output_on_card);
    form = chosen(true, 60); /* 22 MB without experts: those of 4 layers fit */
    CHECK(form.layers_on_card == 10 && form.host_experts == 6 && form.has_output_on_card);
    form = chosen(true, 25);
    CHECK(form.layers_on_card == 10 && form.host_experts == 10);
}

static void switches_are_priced(void)
{
    place_forms forms;
    place_facts *f = made_facts(true, 25);
    f->switch_s = 1; /* whatever the card saves, it is not worth that */
    f->n_prompt = 0;
    place_forms_find(f, PLACE_LATENCY, &forms);
    CHECK(forms.chosen == 0);
    f->n_prompt = 512;
    place_forms_find(f, PLACE_THROUGHPUT, &forms); /* of batches a switch is nothing */
    CHECK(forms.chosen != 0);
    free(f);
}

/* Of a prompt's token, with all layers on the host and the output on the card. */
static double prompt_of_host_layers(const place_facts *f)
{
    place_forms forms;
    place_forms_find(f, PLACE_LATENCY, &forms);
    for (int32_t i = 0; i < forms.n_forms; i++)
        if (forms.forms[i].uses_card && forms.forms[i].layers_on_card == 0)
            return forms.forms[i].prompt_s;
    return 0;
}

/* The link's speed was taken for what the way of weights to the card brings. */
static void prompts_wait_for_weights_and_attention(void)
{
    place_forms forms;
    place_facts *f = made_facts(false, 3); /* room for the output alone */
    f->streams = true;
    f->output.token_s[ON_HOST] = 1; /* so that it goes first */
    double by_link = prompt_of_host_layers(f);
    /* 100 MB by 10 GB/s for 512 tokens, but at least what the card computes: 10 x 0.1 ms. */
    CHECK(fabs(by_link - (10 * 0.1e-3 + 0.02e-3)) < 2e-6);
    for (int i = 0; i < 10; i++)
        f->layers[i].rest.bring_s = 512 * 0.5e-3;
    double brought = prompt_of_host_layers(f);
    CHECK(fabs(brought - by_link - 10 * 0.4e-3) < 1e-9);
    for (int i = 0; i < 10; i++)
        f->layers[i].rest.bring_s = 512; /* the host multiplies itself then: 10 MB at 10 GB/s */
    CHECK(fabs(prompt_of_host_layers(f) - by_link - 10 * 0.9e-3) < 1e-9);
    for (int i = 0; i < 10; i++) {
        f->layers[i].rest.bring_s = 512 * 0.5e-3;
        f->layers[i].attend_s = 0.2e-3;
        f->layers[i].attend_bytes = 1000000; /* 0.1 ms */
    }
    CHECK(fabs(prompt_of_host_layers(f) - brought - 10 * 0.3e-3) < 1e-9);
    place_forms_find(f, PLACE_LATENCY, &forms);
    double alone = forms.forms[0].prompt_s; /* all on the CPU: nothing crosses */
    CHECK(fabs(alone - 10 * (1e-3 + 0.2e-3) - 0.2e-3) < 1e-9);
    f->layers[0].attend_s = 0;
    place_forms_find(f, PLACE_LATENCY, &forms);
    CHECK(fabs(alone - forms.forms[0].prompt_s - 0.2e-3) < 1e-9);
    free(f);
}

static void placements_survive_files(void)
{
    place_rules r;
    placement p, read;
    buf json;
    buf_init(&json, 1 << 20);
    CHECK(place_rules_parse("cuda:0,cpu:8M;split=1,1;host-experts=2", &r, NULL) == LACE_OK);
    CHECK(place_rules_apply(&r, 7, &p, NULL) == LACE_OK);
    CHECK(placement_write(&p, &json) == LACE_OK);
    CHECK(placement_read((span){(const uint8_t *)json.data, json.size}, &read, NULL) == LACE_OK);
    CHECK(memcmp(&p, &read, sizeof p) == 0);
    buf_deinit(&json);
}

static void wrong_files_are_refused(void)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"lace_place\":2}",
        "{\"lace_place\":1,\"devices\":[],\"layers\":[0],\"experts\":[0],\"output\":0}",
        "{\"lace_place\":1,\"devices\":[\"a;b\"],\"layers\":[0],\"experts\":[0],\"output\":0}",
        "{\"lace_place\":1,\"devices\":[\"cpu\"],\"layers\":[1],\"experts\":[0],\"output\":0}",
        "{\"lace_place\":1,\"devices\":[\"cpu\"],\"layers\":[0],\"experts\":[0,0],\"output\":0}",
        "{\"lace_place\":1,\"devices\":[\"cpu\"],\"layers\":[0],\"experts\":[0],\"output\":-1}",
        "{\"lace_place\":1,\"devices\":[\"cpu\"],\"layers\":[],\"experts\":[],\"output\":0}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        placement p;
        lace_error err = {0};
        span bytes = {(const uint8_t *)wrong[i], strlen(wrong[i])};
        if (!CHECK(placement_read(bytes, &p, &err) != LACE_OK && err.text[0]))
            tap_note("%s", wrong[i]);
    }
}

/* What a model on two devices is said to need is within what the small one has, or it is refused. */
static void a_small_device_is_kept_to(void)
{
    lace_model_options o = lace_model_options_default();
    lace_session_options so = lace_session_options_default();
    lace_model *m = NULL;
    lace_session *s = NULL;
    lace_error err = {0};
    o.device = "cpu:4M;layers=8";
    so.n_context = 512;
    CHECK(lace_model_open("models/default.gguf", &o, &m, &err) == LACE_OK);
    CHECK(m && lace_session_create(m, &so, &s, &err) == LACE_E_MEMORY);
    CHECK(strstr(err.text, "on cpu:4M") && strstr(err.text, "--gpu-layers"));
    lace_model_close(m);
    o.device = "cpu:60M;layers=8";
    CHECK(lace_model_open("models/default.gguf", &o, &m, &err) == LACE_OK);
    CHECK(m && lace_session_create(m, &so, &s, &err) == LACE_OK);
    lace_session_free(s);
    lace_model_close(m);
}

/* gpt-oss-120b in MXFP4 on a card of 24 GB, with what two channels of DDR5-5600 or DDR4-3200 read. */
static double mixture_speed(const char *said)
{
    what_if_machines m;
    place_forms forms;
    place_facts *f = calloc(1, sizeof *f);
    CHECK(what_if_parse(said, &m, NULL) == LACE_OK && m.card_bytes > 0);
    const double speed[] = {m.read_bytes_s, m.card_bytes_s};
    const uint64_t expert = 3 * 2880 * 2880 / 32 * 17, rest = 28 * 1000000, output = 615 * 1000000;
    what_if_facts(&m, f);
    f->n_layers = 36;
    f->border_bytes = 2 * 4 * 2880;
    for (int at = 0; at < N_PLACES; at++) {
        for (int i = 0; i < f->n_layers; i++) {
            f->layers[i].rest.bytes[at] = rest;
            f->layers[i].rest.token_s[at] = (double)rest / speed[at];
            f->layers[i].experts.bytes[at] = 128 * expert;
            f->layers[i].experts.token_s[at] = 4 * (double)expert / speed[at];
        }
        f->output.bytes[at] = output;
        f->output.token_s[at] = (double)output / speed[at];
    }
    place_forms_find(f, PLACE_LATENCY, &forms);
    const place_form *form = &forms.forms[forms.chosen];
    CHECK(form->layers_on_card == 36 && form->host_experts > 18 && form->host_experts < 30);
    double found = 1 / form->token_s;
    tap_note("%s: %.1f tokens/s with experts of %d layers in RAM", said, found, form->host_experts);
    free(f);
    return found;
}

static void a_card_that_is_not_here_is_computed(void)
{
    double ddr5 = mixture_speed("70GB/s,card:24GB,936GB/s,pcie:25GB/s"),
           ddr4 = mixture_speed("40GB/s,card:24GB,936GB/s,pcie:25GB/s");
    CHECK(ddr5 > 36 && ddr5 < 50 && ddr4 > 23 && ddr4 < 33);
}

/* The table of docs/scale.md: Llama-3-8B Q4_K_M on machines that read 60 GB/s. */
static void machines_that_are_not_here_are_computed(void)
{
    const what_if_model of = {60e9 / 12.2, 32, 4096, 4096, 14336};
    what_if_machines m;
    CHECK(what_if_parse("4x60GB/s,10GbE", &m, NULL) == LACE_OK && m.n == 4);
    CHECK(fabs(1 / what_if_one(&m, &of) - 12.2) < 0.05);
    CHECK(fabs(1 / what_if_all(&m, &of) - 40.4) < 0.2);
    CHECK(fabs(what_if_prompts(&m, &of) - 874) < 5);
    CHECK(what_if_parse("2x60GB/s,1GbE", &m, NULL) == LACE_OK);
    CHECK(fabs(1 / what_if_all(&m, &of) - 18.2) < 0.2);
    CHECK(what_if_parse("100GB/s", &m, NULL) == LACE_OK && what_if_prompts(&m, &of) == 0);
    static const char *const wrong[] = {"",
                                        "x",
                                        "4x",
                                        "4x60",
                                        "0x60GB/s",
                                        "4x60GB/s",
                                        "4x60GB/s,10",
                                        "1.5x60GB/s,1GbE",
                                        "4x60GB/s,10GbE,",
                                        "60GB/s,",
                                        "60GB/s,card:24GB",
                                        "60GB/s,card:0GB,1000GB/s,pcie:25GB/s",
                                        "60GB/s,card:24GB,1000GB/s,pcie:25GB/s,",
                                        "2x60GB/s,card:24GB,1000GB/s,pcie:25GB/s"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!CHECK(what_if_parse(wrong[i], &m, NULL) == LACE_E_ARG))
            tap_note("%s", wrong[i]);
}

int main(void)
{
    CASE(machines_that_are_not_here_are_computed);
    CASE(a_card_that_is_not_here_is_computed);
    CASE(rules_are_read);
    CASE(wrong_rules_are_named);
    CASE(no_rule_stands_beside_a_file);
    CASE(layers_go_where_rules_say);
    CASE(the_fastest_form_that_fits_is_chosen);
    CASE(switches_are_priced);
    CASE(prompts_wait_for_weights_and_attention);
    CASE(placements_survive_files);
    CASE(wrong_files_are_refused);
    CASE(a_small_device_is_kept_to);
    return tap_end();
}
