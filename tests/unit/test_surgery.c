/* The surgery file: what it may say, and what is said to those who get it wrong. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compress/surgery.h"
#include "alloc_faults.h"
#include "tap.h"

static const char whole[] = "# half of the feed-forward weights\n"
                            "[limits]\n"
                            "kld = 0.05   # of the model\n"
                            "protect = [\"blk.0.*\",\n"
                            "           \"output.weight\"] # two\n"
                            "\n"
                            "[[rule]]\n"
                            "tensors = \"blk.*.ffn_*.weight\"\r\n"
                            "method = \"wanda\"\n"
                            "sparsity = 0.5\n"
                            "store = \"m4\"\n"
                            "[[rule]]\n"
                            "tensors = [\"blk.?.ffn_down.weight\"]\n"
                            "method = \"sparsegpt\"\n"
                            "pattern = \"2:4\"\n"
                            "store = \"n24\"\n"
                            "kld = 1e-2\n"
                            "[[rule]]\n"
                            "tensors = \"blk.*\"\n"
                            "method = \"neurons\"\n"
                            "sparsity = .25";

static void every_key_is_read(void)
{
    surgery *s;
    lace_error err = {0};
    if (!CHECK(surgery_parse(text_of(whole), "a.conf", &s, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        return;
    }
    CHECK(s->n_rules == 3 && s->n_protect == 2 && s->max_kld == 0.05);
    const surgery_rule *r = s->rules;
    CHECK(r[0].method == PRUNE_WANDA && r[0].sparsity == 0.5 && r[0].store == STORE_M4);
    CHECK(r[0].line == 7 && isinf(r[0].max_kld) && r[0].out_of == 0);
    CHECK(r[1].method == PRUNE_SPARSEGPT && r[1].keep == 2 && r[1].out_of == 4);
    CHECK(r[1].sparsity == 0.5 && r[1].max_kld == 0.01 && r[1].store == STORE_N24);
    CHECK(r[2].method == PRUNE_NEURONS && r[2].sparsity == 0.25);
    surgery_free(s);
}

static void the_last_rule_that_names_a_tensor_counts_and_protection_wins(void)
{
    surgery *s;
    if (!CHECK(surgery_parse(text_of(whole), "a.conf", &s, NULL) == LACE_OK))
        return;
    CHECK(surgery_match(s, "blk.1.ffn_up.weight", false) == 0);
    CHECK(surgery_match(s, "blk.1.ffn_down.weight", false) == 1);
    CHECK(surgery_match(s, "blk.11.ffn_down.weight", false) == 0); /* ? is one character */
    CHECK(surgery_match(s, "blk.0.ffn_down.weight", false) == -1);
    CHECK(surgery_match(s, "blk.1.attn_q.weight", false) == -1);
    CHECK(surgery_match(s, "output.weight", false) == -1);
    CHECK(surgery_match(s, "blk.7", true) == 2);
    CHECK(surgery_match(s, "blk.0", true) == -1);
    surgery_free(s);
}

static void a_hostile_glob_takes_no_time(void)
{
    char source[1200] = "[[rule]]\nmethod=\"ria\"\nsparsity=0.1\ntensors=\"";
    for (int i = 0; i < 250; i++)
        strcat(source, "*a");
    strcat(source, "b\"\n");
    surgery *s;
    if (!CHECK(surgery_parse(text_of(source), "a.conf", &s, NULL) == LACE_OK))
        return;
    CHECK(surgery_match(s, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                        false) == -1);
    surgery_free(s);
}

#define RULE "[[rule]]\ntensors = \"blk.*\"\n"

static void what_is_wrong_is_named_with_its_line(void)
{
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"", "empty"},
        {"# nothing\n", "no [[rule]]"},
        {"kld = 1\n", "a.conf:1: \"kld\" stands before"},
        {"[limits]\nkdl = 1\n", "a.conf:2: unknown key \"kdl\""},
        {"[limit]\n", "a.conf:1: unknown section [limit]"},
        {"[rule]\n", "a.conf:1: unknown section [rule]"},
        {"[limits]\nkld = 1 2\n", "a.conf:2: unexpected \"2\""},
        {"[limits]\nkld = -1\n", "a.conf:2: kld is -1"},
        {"[limits]\nkld = nan\n", "is not a number"},
        {"[limits]\nkld = 1e999\n", "is not a number"},
        {"[limits]\nkld = 0x10\n", "is not a number"},
        {"[limits]\nkld = 1\nkld = 2\n", "a.conf:3: kld is given twice"},
        {"[limits]\nprotect = []\n", "a list is empty"},
        {"[limits]\nprotect = [\"a\" \"b\"]\n", "expected , or ] in a list"},
        {"[limits]\nprotect = [1]\n", "a list holds strings"},
        {"[limits]\nprotect = \"abc\n", "no closing quote"},
        {"[limits]\nprotect = \"\"\n", "1 to 512 bytes"},
        {RULE "method = \"wnda\"\nsparsity = 0.5\n", "a.conf:3: method \"wnda\" is unknown"},
        {RULE "method = \"wanda\"\n", "a.conf:1: the rule needs sparsity or pattern"},
        {RULE "method = \"wanda\"\nsparsity = 0.5\npattern = \"2:4\"\n", "and not both"},
        {RULE "method = \"wanda\"\nsparsity = 1\n", "sparsity is 1, expected 0 or more"},
        {RULE "method = \"wanda\"\npattern = \"4:2\"\n", "\"4:2\" is not a pattern"},
        {RULE "method = \"wanda\"\npattern = \"2:64\"\n", "is not a pattern"},
        {RULE "method = \"wanda\"\npattern = \"2:4:8\"\n", "is not a pattern"},
        {RULE "method = \"heads\"\npattern = \"2:4\"\n", "takes a sparsity"},
        {RULE "method = \"heads\"\nsparsity = 0.1\nstore = \"m4\"\n", "store does not apply"},
        {RULE "method = \"wanda\"\nsparsity = 0.5\nstore = \"n24\"\n", "needs pattern"},
        {RULE "method = \"wanda\"\nsparsity = 0.5\nstore = \"m5\"\n", "store \"m5\" is unknown"},
        {RULE "sparsity = 0.5\n", "a.conf:1: the rule has no method"},
        {"[[rule]]\nmethod = \"ria\"\nsparsity = 0.5\n", "the rule has no tensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        surgery *s = (surgery *)1;
        lace_error err = {0};
        lace_status status = surgery_parse(text_of(cases[i].source), "a.conf", &s, &err);
        if (!CHECK(status == LACE_E_META && s == NULL && strstr(err.text, cases[i].message)))
            tap_note("\"%s\": %s", cases[i].source, err.text);
    }
}

/* It parses, or it says in one line why not. */
static bool is_answered(text source)
{
    surgery *s;
    lace_error err = {0};
    if (surgery_parse(source, "a.conf", &s, &err) != LACE_OK)
        return s == NULL && err.text[0] && !strchr(err.text, '\n');
    surgery_free(s);
    return true;
}

static void no_prefix_of_a_file_and_no_changed_bit_does_harm(void)
{
    char copy[sizeof whole];
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        CHECK(is_answered((text){whole, n}));
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, whole, sizeof whole);
            copy[n] = (char)(copy[n] ^ 1 << bit);
            CHECK(is_answered((text){copy, sizeof whole - 1}));
        }
    }
}

static lace_status parse_once(lace_error *err)
{
    surgery *s;
    lace_status status = surgery_parse(text_of(whole), "a.conf", &s, err);
    CHECK((s != NULL) == (status == LACE_OK));
    surgery_free(s);
    return status;
}

static void every_failing_allocation_is_an_error(void)
{
    CHECK(fail_each_allocation(parse_once, false) > 2);
}

int main(void)
{
    CASE(every_key_is_read);
    CASE(the_last_rule_that_names_a_tensor_counts_and_protection_wins);
    CASE(a_hostile_glob_takes_no_time);
    CASE(what_is_wrong_is_named_with_its_line);
    CASE(no_prefix_of_a_file_and_no_changed_bit_does_harm);
    CASE(every_failing_allocation_is_an_error);
    return tap_end();
}
