/* JSON schemas as grammars: what is written for each keyword, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cost.h"
#include "grammar_kit.h"
#include "tap.h"

/* A schema and texts, each with + in front if it must match, - if not. */
typedef struct schema_row {
    const char *schema;
    const char *texts[12];
} schema_row;

static void check_rows(const schema_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 12 && rows[i].texts[k]; k++) {
            const char *t = rows[i].texts[k];
            if (!CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, rows[i].schema, t + 1) == (*t == '+')))
                tap_note("%s: %s", rows[i].schema, t);
        }
}

#define CHECK_ROWS(...)                                                                            \
    do {                                                                                           \
        static const schema_row rows[] = {__VA_ARGS__};                                            \
        check_rows(rows, sizeof rows / sizeof rows[0]);                                            \
    } while (0)

/* clang-format off */
static void scalars_match_their_types(void)
{
    CHECK_ROWS(
        {"{\"type\":\"null\"}", {"+null", "-0", "-"}},
        {"{\"type\":\"boolean\"}", {"+true", "+false", "-null"}},
        {"{\"type\":\"integer\"}", {"+0", "+-7", "+123456789012345", "-01", "-1.5", "-1e3", "--", "-\"1\""}},
        {"{\"type\":\"number\"}", {"+0", "+-1.5", "+1e-5", "+2E+10", "-.5", "-1.", "-1e999", "-+1"}},
        {"{\"type\":\"string\"}", {"+\"\"", "+\"a\\n\\u00e9\\\"\xC3\xA9\"", "-\"\n\"", "-\"\\x\"", "-\"\\ud800\"", "-a"}},
        {"{\"type\":[\"string\",\"null\"]}", {"+\"x\"", "+null", "-1"}},
        {"{\"type\":[\"integer\",\"number\"]}", {"+1.5", "+2"}},
        {"{\"type\":\"string\",\"nullable\":true}", {"+null", "+\"a\""}},
        {"{}", {"+1", "+[{\"a\": [null]}]", "+\"x\"", "-", "-[1,]"}},
    );
}

static void strings_keep_their_length(void)
{
    CHECK_ROWS(
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"+\"ab\"", "+\"abc\"", "-\"a\"", "-\"abcd\"", "+\"\xC3\xA9\xE2\x82\xAC\"", "+\"\\n\\u0041\"", "-\"\\n\""}},
        {"{\"type\":\"string\",\"minLength\":12,\"maxLength\":14}",
         {"+\"abcdefghijkl\"", "+\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\"", "-\"abcdefghijk\"", "-\"abcdefghijklmno\""}},
        {"{\"maxLength\":1}", {"+\"\"", "+\"a\"", "-\"ab\""}},
    );
}

static void patterns_are_searched_for_unless_tied(void)
{
    CHECK_ROWS(
        {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-\\\\d+$\"}", {"+\"ABC-12\"", "-\"xABC-12\"", "-\"ABC-\""}},
        {"{\"type\":\"string\",\"pattern\":\"ab\"}", {"+\"ab\"", "+\"xxabyy\"", "-\"axb\""}},
        {"{\"type\":\"string\",\"pattern\":\"^ab\"}", {"+\"abc\"", "-\"cab\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"+\"axx\"", "+\"xxb\"", "-\"xax\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(a\\\"|\\\\\\\\)+$\"}", {"+\"a\\\"\\\\\\\\\"", "-\"a\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^.{2,4}$\",\"minLength\":1,\"maxLength\":8}", {"+\"abc\"", "-\"a\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\s+$\"}", {"+\" \\n\"", "-\"\n\""}},
    );
}

static void formats_are_what_they_say(void)
{
    CHECK_ROWS(
        {"{\"type\":\"string\",\"format\":\"date\"}", {"+\"2026-02-28\"", "-\"2026-02-30\"", "-\"2026-13-01\"", "-\"2026-04-31\"", "+\"2026-12-31\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}", {"+\"23:59:59Z\"", "+\"10:00:00.5+02:00\"", "-\"24:00:00Z\"", "-\"10:00:00\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", {"+\"2026-11-15T08:00:00Z\"", "-\"2026-11-15\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", {"+\"123e4567-e89b-12d3-a456-426614174000\"", "-\"123e4567\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}", {"+\"a.b@example.org\"", "-\"a@b\"", "-\"@x.org\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"+\"192.168.0.255\"", "-\"256.1.1.1\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}", {"+\"https://a.example/b/c\"", "+\"http://localhost\"", "+\"https://1.a-b.C3/\"", "-\"https://2.81\"", "-\"https://xn--a.b\"", "-\"a b\""}},
        {"{\"type\":\"integer\",\"format\":\"int32\"}", {"+2147483647", "-2147483648", "+-2147483648"}},
    );
}

/* What zod 4 writes for its types, and what it wrote in earlier versions. */
static void formats_and_patterns_hold_together(void)
{
    CHECK_ROWS(
        {"{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$\"}",
         {"+\"a.b@example.org\"", "+\"o'neill@a-b.co.uk\"", "-\".a@example.org\"", "-\"a..b@example.org\"", "-\"a@b\"", "-\"a@b.c\"", "-\"a.@b.org\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\",\"pattern\":\"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$\"}",
         {"+\"123e4567-e89b-42d3-a456-426614174000\"", "-\"123e4567-e89b-12d3-a456-426614174000\"", "-\"123e4567-e89b-42d3-7456-426614174000\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\",\"pattern\":\"^\\\\d{4}-\\\\d\\\\d-\\\\d\\\\dT(?:(?:[01]\\\\d|2[0-3]):[0-5]\\\\d:[0-5]\\\\d(?:\\\\.\\\\d+)?(?:Z))$\"}",
         {"+\"2026-11-15T08:00:00Z\"", "+\"2026-11-15T08:00:00.25Z\"", "-\"2026-11-15T08:00:00+01:00\"", "-\"2026-02-30T08:00:00Z\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}", {"+\"::\"", "+\"fe80::1\"", "+\"1:2:3:4:5:6:7:8\"", "-\"1:2:3:4:5:6:7\"", "-\"1::2::3\""}},
        {"{\"type\":\"string\",\"format\":\"duration\",\"pattern\":\"^P(?:(\\\\d+W)|(?!.*W)(?=\\\\d|T\\\\d)(\\\\d+Y)?(\\\\d+M)?(\\\\d+D)?(T(?=\\\\d)(\\\\d+H)?(\\\\d+M)?(\\\\d+([.,]\\\\d+)?S)?)?)$\"}",
         {"+\"P3W\"", "+\"P1Y2M3D\"", "+\"PT5M\"", "+\"P2DT3H\"", "-\"P\"", "-\"PT\"", "-\"P1WT1H\""}},
        {"{\"type\":\"string\",\"format\":\"starts_with\",\"pattern\":\"^ab\\\\.c.*\"}", {"+\"ab.c\"", "+\"ab.cde\"", "-\"abxc\""}},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":5,\"format\":\"ends_with\",\"allOf\":[{\"pattern\":\"^a.*\"},{\"pattern\":\".*z$\"}]}", {"+\"abz\"", "+\"abcdz\"", "-\"az\"", "-\"abcdez\"", "-\"bcz\"", "-\"abc\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":4}", {"+\"ab\"", "+\"abcd\"", "-\"a\"", "-\"abcde\"", "-\"aB\""}},
        {"{\"allOf\":[{\"pattern\":\"1\"},{\"pattern\":\"9\"},{\"format\":\"date\"}]}", {"+\"2019-02-03\"", "-\"2020-02-09\"", "-\"19\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!.*\\\"\\\").*$\"}", {"+\"a\\\"b\"", "-\"a\\\"\\\"b\"", "+\"\xC3\xA9\"", "+\"\\t\""}},
    );
}

static void numbers_stay_in_their_range(void)
{
    CHECK_ROWS(
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":120}", {"+3", "+10", "+99", "+120", "-2", "-121", "-003", "-3.0"}},
        {"{\"type\":\"integer\",\"minimum\":-15,\"maximum\":5}", {"+-15", "+-9", "+0", "+5", "--16", "-6", "--0"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0}", {"+1", "+999999999999999", "-0", "--1"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0.5,\"maximum\":2.5}", {"+1", "+2", "-0", "-3"}},
        {"{\"type\":\"integer\",\"maximum\":-10}", {"+-10", "+-123", "--9", "-0"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", {"+0", "+1", "+0.5", "+1.0", "+0.000001", "-1.1", "-1.000001", "--0.1", "-2"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}", {"+0.5", "+0.999999", "-0", "-0.0", "-1", "-1.0"}},
        {"{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":-0.25}", {"+-2.5", "+-1", "+-0.25", "--0.2", "--2.6", "-0"}},
        {"{\"type\":\"number\",\"minimum\":99.95}", {"+99.95", "+100", "+123456.5", "-99.9", "-99.949"}},
        {"{\"type\":\"number\",\"maximum\":12.5}", {"+12.5", "+12.49", "+-1000", "-12.51", "-13"}},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}", {"+0", "+-5"}},
        {"{\"type\":\"integer\",\"minimum\":7,\"maximum\":7}", {"+7", "-6", "-8"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true,\"maximum\":3,\"exclusiveMaximum\":false}", {"+1", "+3", "-0", "-4"}},
        {"{\"type\":\"integer\",\"minimum\":2,\"exclusiveMinimum\":0,\"maximum\":9,\"exclusiveMaximum\":5}", {"+2", "+4", "-1", "-5"}},
    );
}

static void enums_and_constants_are_literal(void)
{
    CHECK_ROWS(
        {"{\"enum\":[\"red\",\"green\",5,null,[1,{\"a\":true}]]}", {"+\"red\"", "+5", "+null", "+[1,{\"a\":true}]", "-\"blue\"", "-6"}},
        {"{\"const\":\"a\\\"b\"}", {"+\"a\\\"b\"", "-\"a\""}},
        {"{\"type\":\"string\",\"enum\":[\"x\",1]}", {"+\"x\"", "-1"}},
    );
}

static void objects_have_their_properties_in_order(void)
{
    CHECK_ROWS(
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}",
         {"+{\"a\":1,\"b\":\"x\"}", "+{\"a\": 1, \"b\": \"x\"}", "+{\n  \"a\": 1,\n  \"b\": \"x\"\n}", "-{\"a\":1}", "-{\"b\":\"x\",\"a\":1}", "-{\"a\":1,\"b\":\"x\",}", "-{\"a\":1,\"b\":\"x\",\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
         {"+{\"b\":null}", "+{\"a\":null,\"b\":null,\"c\":null}", "+{\"b\":null,\"c\":null}", "-{\"a\":null,\"c\":null}", "-{}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}}", {"+{}", "+{\"a\":null}", "-{,\"a\":null}"}},
        {"{\"type\":\"object\"}", {"+{}", "+{\"x\": [1, {\"y\": null}]}", "-[]"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", {"+{\"k\":1,\"l\":2}", "-{\"k\":\"v\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
         {"+{\"ab\":null,\"a\":1,\"abc\":2,\"x\":3}", "+{\"b\":1}", "-{\"ab\":1}", "-{\"x\":1,\"ab\":1}", "-{\"\\u0061b\":1}"}},
        {"{\"type\":\"object\",\"required\":[\"z\"]}", {"+{\"z\":1}", "+{\"z\":[],\"y\":2}", "-{}", "-{\"y\":2}"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1,\"maxProperties\":2}",
         {"+{\"a\":null}", "+{\"a\":null,\"b\":null}", "-{}", "-{\"a\":null,\"b\":null,\"c\":null}"}},
        {"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}", {"+{}", "-{\"a\":1}"}},
    );
}

static void arrays_have_their_items(void)
{
    CHECK_ROWS(
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", {"+[]", "+[1]", "+[1, 2,3]", "-[1,]", "-[\"a\"]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", {"-[]", "-[1]", "+[1,2]", "+[1,2,3]", "-[1,2,3,4]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":0}", {"+[]", "-[null]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":false}", {"+[]", "+[\"a\"]", "+[\"a\",1]", "-[1]", "-[\"a\",1,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"null\"},\"minItems\":2}", {"+[\"a\",null]", "+[\"a\",null,null]", "-[\"a\"]"}},
        {"{\"type\":\"array\",\"minItems\":1}", {"+[1]", "+[\"x\",{}]", "-[]"}},
    );
}

static void choices_and_references_are_followed(void)
{
    CHECK_ROWS(
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", {"+5", "+null", "-true"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],\"anyOf\":[{\"properties\":{\"x\":{\"type\":\"null\"}},\"required\":[\"x\"]},{\"properties\":{\"y\":{\"type\":\"null\"}}}]}",
         {"+{\"k\":\"\",\"x\":null}", "+{\"k\":\"\",\"y\":null}", "+{\"k\":\"\"}", "-{\"x\":null}"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"}},\"required\":[\"t\"]},{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"b\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"t\",\"n\"]}]}",
         {"+{\"t\":\"a\"}", "+{\"t\":\"b\",\"n\":1}", "-{\"t\":\"b\"}", "-{\"t\":\"c\"}"}},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", {"+\"x\"", "+1"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"maximum\":3},\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]}",
         {"+{\"a\":3,\"b\":null}", "-{\"a\":4,\"b\":null}", "-{\"a\":2}"}},
        {"{\"$defs\":{\"p\":{\"type\":\"integer\"}},\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/p\"}}", {"+[1,2]", "-[null]"}},
        {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}",
         {"+{\"v\":1,\"next\":{\"v\":2,\"next\":null}}", "-{\"v\":1}"}},
        {"{\"definitions\":{\"a/b\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/a~1b\"}", {"+null", "-1"}},
        {"{\"$defs\":{\"s\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/s\",\"maxLength\":1}", {"+\"a\"", "-\"ab\""}},
        {"{\"properties\":{\"x\":{\"items\":{\"type\":\"null\"}}},\"required\":[\"x\"],\"title\":\"T\",\"x-own\":1}", {"+{\"x\":[null]}", "-{}"}},
    );
}

static void schemas_that_must_all_hold_become_one(void)
{
    CHECK_ROWS(
        {"{\"allOf\":[{\"enum\":[1,2,\"a\",{\"k\":[1]}]},{\"enum\":[{\"k\":[1]},2.0,\"b\"]}]}", {"+2", "+{\"k\":[1]}", "-1", "-\"a\"", "-\"b\""}},
        {"{\"const\":1,\"allOf\":[{\"enum\":[1,2]}]}", {"+1", "-2"}},
        {"{\"allOf\":[{\"type\":\"string\",\"nullable\":true},{\"type\":\"string\"}]}", {"+\"a\"", "-null"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":1}}},{\"properties\":{\"a\":{\"maximum\":5}}},{\"properties\":{\"a\":{\"type\":\"integer\"}}}]}", {"+{\"a\":3}", "-{\"a\":6}", "-{\"a\":0}", "-{\"a\":1.5}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{},\"b\":{}}},{\"properties\":{\"b\":{\"type\":\"null\"}},\"additionalProperties\":false}]}", {"+{\"b\":null}", "+{}", "-{\"a\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"b\":{\"type\":\"null\"}},\"additionalProperties\":false},{\"properties\":{\"a\":{},\"b\":{}}}]}", {"+{\"b\":null}", "+{}", "-{\"a\":1}"}},
        {"{\"allOf\":[{\"additionalProperties\":{\"type\":\"integer\"}},{\"properties\":{\"x\":{\"maximum\":3}}}]}", {"+{\"x\":2}", "-{\"x\":2.5}", "-{\"x\":4}", "+{\"y\":4}"}},
        {"{\"allOf\":[{\"properties\":{\"x\":{\"maximum\":3}}},{\"additionalProperties\":{\"type\":\"integer\"}}]}", {"+{\"x\":2}", "-{\"x\":2.5}", "-{\"x\":4}"}},
        {"{\"items\":{\"minimum\":1},\"allOf\":[{\"items\":{\"maximum\":2}},{\"items\":{\"type\":\"integer\"}}]}", {"+[1,2]", "-[0]", "-[3]", "-[1.5]"}},
        {"{\"properties\":{\"p\":{\"allOf\":[{\"minimum\":1},{\"maximum\":2}]}},\"anyOf\":[{\"properties\":{\"p\":{\"type\":\"integer\"}}},{\"required\":[\"q\"],\"properties\":{\"q\":{\"type\":\"null\"}}}]}",
         {"+{\"p\":2}", "-{\"p\":3}", "+{\"p\":1.5,\"q\":null}", "-{\"p\":1.5}"}},
        {"{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[\"a\",\"b\"]},{\"type\":\"null\"}]}", {"+1", "+\"b\"", "+null", "-3"}},
        {"{\"anyOf\":[false,{\"type\":\"null\"}]}", {"+null", "-1"}},
        {"{\"properties\":{\"a\":{\"not\":{}},\"b\":{\"type\":\"null\"}}}", {"+{\"b\":null}", "+{}", "-{\"a\":1}"}},
    );
}

static void names_of_properties_have_a_form(void)
{
    CHECK_ROWS(
        {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"type\":\"number\"}}", {"+{}", "+{\"any thing\":1.5}", "-{\"a\":\"b\"}"}},
        {"{\"propertyNames\":{\"pattern\":\"^[a-z]{2}$\"},\"additionalProperties\":{\"type\":\"boolean\"}}", {"+{\"ab\":true}", "+{\"ab\":true,\"cd\":false}", "-{\"abc\":true}", "-{\"AB\":true}"}},
        {"{\"propertyNames\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{\"type\":\"null\"},\"required\":[\"b\"]}", {"+{\"a\":null,\"b\":null}", "+{\"b\":null}", "-{\"a\":null}", "-{\"b\":null,\"c\":null}"}},
        {"{\"propertyNames\":{\"minLength\":2,\"maxLength\":3}}", {"+{\"ab\":1}", "-{\"a\":1}", "-{\"abcd\":1}"}},
    );
}

/* What can come behind a property depends on it; names that begin alike must not be mixed up. */
static void optional_properties_share_their_names(void)
{
    const char *schema = "{\"properties\":{\"a\":{\"const\":1},\"ab\":{\"const\":2},\"b\":{\"const\":3},\"abc\":{\"const\":4},\"\\\"q\":{\"const\":5}},\"required\":[\"b\"]";
    static const char *const texts[] = {
        "+{\"b\":3}", "+{\"a\":1,\"ab\":2,\"b\":3,\"abc\":4,\"\\\"q\":5}", "+{\"ab\":2,\"b\":3,\"\\\"q\":5}", "+{\"b\":3,\"abc\":4}",
        "-{\"a\":1}", "-{\"ab\":2,\"a\":1,\"b\":3}", "-{\"abc\":4,\"b\":3}", "-{\"b\":3,\"b\":3}", "-{\"b\":3,\"ab\":2}", "-{\"a\":2,\"b\":3}", "-{\"b\":3,}", "-{\"b\":3,\"\\\"q\":4}"};
    static const char *const others[] = {"+{\"b\":3,\"abcd\":null,\"bb\":null}", "+{\"a\":1,\"b\":3,\"\xC3\xA9\":null}", "+{\"b\":3,\"c\":null,\"c\":null}",
        "-{\"c\":null,\"b\":3}", "-{\"b\":3,\"a\":null}", "-{\"b\":3,\"abc\":null}", "-{\"b\":3,\"x\":null,\"abc\":4}", "-{\"b\":3,\"\":null}"};
    char closed[512], open[512];
    snprintf(closed, sizeof closed, "%s}", schema);
    snprintf(open, sizeof open, "%s,\"additionalProperties\":{\"type\":\"null\"}}", schema);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, closed, texts[i] + 1) == (texts[i][0] == '+'));
        CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, open, texts[i] + 1) == (texts[i][0] == '+'));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK(!kit_matches(LACE_GRAMMAR_JSON_SCHEMA, closed, others[i] + 1));
        if (!CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, open, others[i] + 1) == (others[i][0] == '+')))
            tap_note("%s", others[i]);
    }
}

static void what_is_not_supported_is_named(void)
{
    static const struct { const char *schema, *words; } rows[] = {
        {"{\"type\":\"banana\"}", "type: \"banana\" is not a type"},
        {"{\"type\":[]}", "type: "},
        {"{\"type\":null}", "type: "},
        {"true", "JSON"},
        {"false", "JSON"},
        {"5", "JSON"},
        {"{", "JSON"},
        {"{\"type\":\"integer\",\"multipleOf\":3}", "multipleOf: this keyword is not supported"},
        {"{\"not\":{\"type\":\"null\"}}", "not: "},
        {"{\"if\":{}}", "if: "},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems: "},
        {"{\"type\":\"array\",\"contains\":{}}", "contains: "},
        {"{\"type\":\"object\",\"patternProperties\":{}}", "patternProperties: "},
        {"{\"properties\":{\"ab\":{}},\"propertyNames\":{\"maxLength\":3}}", "propertyNames: together with properties"},
        {"{\"properties\":{\"c\":{}},\"propertyNames\":{\"enum\":[\"a\"]}}", "propertyNames: forbids the property \"c\""},
        {"{\"propertyNames\":{\"enum\":[\"a\"]},\"required\":[\"b\"]}", "required: \"b\" is not among the properties"},
        {"{\"allOf\":{}}", "allOf: expected a list that is not empty"},
        {"{\"allOf\":[{\"enum\":[1]},{\"enum\":[2]}]}", "enum: no value satisfies all"},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"required\":[\"b\"]}]}", "required: \"b\" is not among the properties"},
        {"{\"type\":\"string\",\"\\u0001strings\":[]}", "JSON schema: a name begins with U+0001"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"b\":{\"wrong\":1}}}}}", "wrong: "},
        {"{\"$ref\":\"#\"}", "left recursion"},
        {"{\"$ref\":\"https://example.org/x.json\"}", "$ref: \"https://example.org/x.json\": only references inside"},
        {"{\"$ref\":\"#/nowhere\"}", "$ref: \"#/nowhere\" points to nothing"},
        {"{\"$ref\":5}", "$ref: "},
        {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}", "left recursion"},
        {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\",\"type\":\"string\"}},\"$ref\":\"#/$defs/a\"}", "leads to itself"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text matches"},
        {"{\"type\":\"string\",\"pattern\":\"(?<=x)*\"}", "pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"*\"}", "pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"a{2,1}\"}", "pattern: "},
        {"{\"type\":\"string\",\"pattern\":5}", "pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"^a{5}$\",\"maxLength\":3}", "pattern: no text matches"},
        {"{\"type\":\"string\",\"pattern\":\"^a$\",\"format\":\"uuid\"}", "pattern: no text matches"},
        {"{\"type\":\"string\",\"pattern\":\"^(a|b[cd])*$\",\"maxLength\":90000}", "pattern: the regex is too large"},
        {"{\"type\":\"string\",\"format\":\"color\"}", "format: \"color\" is not supported"},
        {"{\"type\":\"string\",\"minLength\":-1}", "minLength: "},
        {"{\"type\":\"string\",\"minLength\":5,\"maxLength\":2}", "maxLength: is 2, but minLength is 5"},
        {"{\"type\":\"string\",\"maxLength\":99999999999}", "maxLength: "},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":2}", "no number is in the range"},
        {"{\"type\":\"integer\",\"minimum\":\"5\"}", "minimum: "},
        {"{\"enum\":[]}", "enum: "},
        {"{\"enum\":[1],\"type\":\"string\"}", "enum: none of the values has the schema's type"},
        {"{\"anyOf\":[]}", "anyOf: "},
        {"{\"anyOf\":{}}", "anyOf: "},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf: a value of branch 0 may also match branch 1"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "type: no type satisfies"},
        {"{\"required\":[5]}", "required: "},
        {"{\"properties\":[]}", "properties: "},
        {"{\"type\":\"object\",\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":false}", "required: \"a\" is not among the properties"},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "maxItems: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(kit_refuses(LACE_GRAMMAR_JSON_SCHEMA, rows[i].schema, rows[i].words));
}
/* clang-format on */

static void depth_is_refused_without_recursing(void)
{
    static const char *const open[] = {"{\"items\":", "{\"properties\":{\"a\":", "[",
                                       "{\"anyOf\":["};
    for (size_t k = 0; k < 4; k++) {
        size_t n = 10000, length = strlen(open[k]);
        char *deep = malloc(n * length + 1);
        for (size_t i = 0; i < n; i++)
            memcpy(deep + i * length, open[k], length);
        CHECK(kit_refuses_n(LACE_GRAMMAR_JSON_SCHEMA, deep, n * length, "nested deeper"));
        free(deep);
    }
}

/* Each level would double what is written out, were it not for rules. */
static void depth_that_is_allowed_stays_small(void)
{
    char schema[2048] = "";
    for (int i = 0; i < 14; i++)
        strcat(schema, "{\"type\":\"object\",\"properties\":{\"a\":");
    strcat(schema, "{\"type\":\"integer\"}");
    for (int i = 0; i < 14; i++)
        strcat(schema, "}}");
    char deep[512] = "";
    for (int i = 0; i < 14; i++)
        strcat(deep, "{\"a\":");
    strcat(deep, "1");
    for (int i = 0; i < 14; i++)
        strcat(deep, "}");
    CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, schema, deep));
    CHECK(!kit_matches(LACE_GRAMMAR_JSON_SCHEMA, schema, deep + 1));
}

static void merging_has_a_budget(void)
{
    /* Each definition demands the next one twice: 2^30 schemas, were they all merged. */
    char *schema = malloc(1 << 16);
    size_t n = (size_t)sprintf(schema, "{\"$defs\":{");
    for (int i = 0; i < 30; i++)
        n += (size_t)sprintf(schema + n,
                             "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":"
                             "\"#/$defs/d%d\"}]},",
                             i, i + 1, i + 1);
    sprintf(schema + n, "\"d30\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/d0\"}");
    CHECK(kit_refuses(LACE_GRAMMAR_JSON_SCHEMA, schema, "JSON schema: has more than"));
    free(schema);
}

/* 9,000 objects that must all hold: each merging keeps what it adds, not all that was before. */
static void merging_takes_memory_in_proportion(void)
{
    char *schema = malloc(1 << 20);
    size_t n = (size_t)sprintf(schema, "{\"allOf\":[");
    for (int i = 0; i < 9000; i++)
        n += (size_t)sprintf(schema + n,
                             "%s{\"type\":\"object\",\"properties\":{\"k%d\":{\"type\":"
                             "\"null\"}}}",
                             i ? "," : "", i);
    sprintf(schema + n, "]}");
    double before = cost_peak_bytes();
    CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, schema, "{\"k7\":null,\"k8999\":null}"));
    tap_note("%zu bytes of schema took %.0f MB", n, (cost_peak_bytes() - before) * 1e-6);
    CHECK(cost_peak_bytes() - before < 500e6); /* of which the automaton's tables are the most */
    free(schema);
}

/* A definition that demands itself is a $ref's fault; a list that is deep is not. */
static void a_long_all_of_is_not_blamed_on_a_reference(void)
{
    char schema[8192] = "";
    for (int i = 0; i < 20; i++)
        strcat(schema, "{\"allOf\":[{\"maxLength\":9},");
    strcat(schema, "{\"type\":\"string\"}");
    for (int i = 0; i < 20; i++)
        strcat(schema, "]}");
    CHECK(kit_matches(LACE_GRAMMAR_JSON_SCHEMA, schema, "\"abc\""));
    CHECK(!kit_matches(LACE_GRAMMAR_JSON_SCHEMA, schema, "\"abcdefghij\""));
}

static bool accepts(grammar_matcher *m, const char *input)
{
    grammar_position *p = NULL;
    lace_error err = {0};
    bool ok = grammar_position_create(m, &p, &err) == LACE_OK &&
              grammar_position_advance(p, text_of(input), &err) == LACE_OK &&
              grammar_position_is_complete(p);
    grammar_position_free(p);
    return ok;
}

/* With one allocation failed, a schema is refused for that reason, or it is the whole schema. */
static void no_failed_allocation_drops_a_constraint(void)
{
    static const struct {
        const char *schema, *yes, *no[4];
    } all[] = {
        {"{\"allOf\":[{\"type\":[\"object\",\"null\"],\"required\":[\"a\"]},{\"type\":\"object\","
         "\"properties\":{\"a\":{\"enum\":[1,2]},\"b\":{\"maxLength\":3}},\"required\":[\"b\"]},"
         "{\"properties\":{\"a\":{\"enum\":[2,3]},\"b\":{\"minLength\":1}}}]}",
         "{\"a\":2,\"b\":\"x\"}",
         {"{\"a\":1,\"b\":\"x\"}", "{\"a\":2}", "{\"a\":2,\"b\":\"\"}", "null"}},
        {"{\"oneOf\":[{\"properties\":{\"t\":{\"const\":1}},\"required\":[\"t\"]},{\"properties\":"
         "{\"t\":{\"const\":2}},\"required\":[\"t\",\"u\"]},{\"enum\":[5,6]}]}",
         "{\"t\":1}",
         {"{}", "{\"t\":2}", "{\"t\":3}", "7"}},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        bool is_done = false;
        for (long i = 0; i < 100000 && !is_done; i++) {
            lace_error err = {0};
            mem_fail_at(i, false);
            grammar_matcher *m = kit_compile(LACE_GRAMMAR_JSON_SCHEMA, all[k].schema, &err);
            is_done = m && mem_count() <= i;
            mem_fail_at(-1, false);
            if (!CHECK(m || err.status == LACE_E_NOMEM))
                tap_note("allocation %ld: %s", i, err.text);
            bool is_exact = !m || accepts(m, all[k].yes);
            for (int j = 0; m && j < 4; j++)
                is_exact = is_exact && !accepts(m, all[k].no[j]);
            if (!CHECK(is_exact))
                tap_note("allocation %ld of %s", i, all[k].schema);
            grammar_matcher_free(m);
        }
        CHECK(is_done);
    }
}

int main(void)
{
    kit_vocab();
    CASE(scalars_match_their_types);
    CASE(strings_keep_their_length);
    CASE(patterns_are_searched_for_unless_tied);
    CASE(formats_are_what_they_say);
    CASE(formats_and_patterns_hold_together);
    CASE(numbers_stay_in_their_range);
    CASE(enums_and_constants_are_literal);
    CASE(objects_have_their_properties_in_order);
    CASE(arrays_have_their_items);
    CASE(choices_and_references_are_followed);
    CASE(schemas_that_must_all_hold_become_one);
    CASE(names_of_properties_have_a_form);
    CASE(optional_properties_share_their_names);
    CASE(what_is_not_supported_is_named);
    CASE(depth_is_refused_without_recursing);
    CASE(depth_that_is_allowed_stays_small);
    CASE(merging_has_a_budget);
    CASE(merging_takes_memory_in_proportion);
    CASE(a_long_all_of_is_not_blamed_on_a_reference);
    CASE(no_failed_allocation_drops_a_constraint);
    grammar_vocab_free(kit_vocab());
    return tap_end();
}
