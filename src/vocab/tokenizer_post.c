/* The post-processor of a tokenizer.json: which tokens it puts around a text. */
#include "base/json_read.h"
#include "vocab/tokenizer_json_impl.h"

static const char WHERE[] = "post_processor";

static lace_status set_id(json_reader *r, const json_t *name, const json_t *id, int32_t *out)
{
    if (!json_is_string(name) || !json_is_integer(id))
        return json_fail(r, WHERE, "expected a token and its id");
    text token = {json_string_value(name), json_string_length(name)};
    json_int_t value = json_integer_value(id);
    if (value < 0 || (uint64_t)value >= r->n_tokens || !r->tokens[value].data)
        return json_fail(r, WHERE, "\"%.*s\": %lld is not the id of a token", text_width(token),
                         token.data, (long long)value);
    if (*out >= 0)
        return json_fail(r, WHERE,
                         "\"%.*s\": more than one token before or after a text is not supported",
                         text_width(token), token.data);
    *out = (int32_t)value;
    return LACE_OK;
}

/* A template: {"SpecialToken": {"id": NAME}} and {"Sequence": {"id": "A"}} in some order. */
static lace_status read_template(json_reader *r, const json_t *object)
{
    const json_t *single = json_get(object, "single"), *known = json_get(object, "special_tokens");
    if (!json_is_array(single))
        return json_fail(r, WHERE, "single: is %s, expected an array", json_kind(single));
    bool is_behind = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_get(item, "SpecialToken");
        if (!special && (!json_get(item, "Sequence") || is_behind))
            return json_fail(r, WHERE, "single[%zu]: is not supported", i);
        if (!special) {
            is_behind = true;
            continue;
        }
        const json_t *name = json_get(special, "id");
        const json_t *ids =
            json_get(json_get(known, json_is_string(name) ? json_string_value(name) : ""), "ids");
        if (json_array_size(ids) != 1)
            return json_fail(r, WHERE, "single[%zu]: expected a token of special_tokens", i);
        TRY(set_id(r, name, json_array_get(ids, 0), is_behind ? &r->out->last : &r->out->first));
    }
    return is_behind ? LACE_OK : json_fail(r, WHERE, "single: has no Sequence");
}

/* "cls" and "sep" are pairs of a token and its id. */
static lace_status read_bert(json_reader *r, const json_t *object)
{
    const json_t *cls = json_get(object, "cls"), *sep = json_get(object, "sep");
    TRY(set_id(r, json_array_get(cls, 0), json_array_get(cls, 1), &r->out->first));
    return set_id(r, json_array_get(sep, 0), json_array_get(sep, 1), &r->out->last);
}

lace_status rules_read_post_processor(json_reader *r, const json_t *object)
{
    text type = {"", 0};
    if (!object)
        return LACE_OK;
    if (!json_is_object(object))
        return json_fail(r, WHERE, "is %s, expected an object", json_kind(object));
    TRY(json_get_text(r, object, WHERE, "type", &type));
    if (text_is(type, "TemplateProcessing"))
        return read_template(r, object);
    if (text_is(type, "BertProcessing") || text_is(type, "RobertaProcessing"))
        return read_bert(r, object);
    if (text_is(type, "ByteLevel"))
        return LACE_OK; /* it only moves offsets */
    if (!text_is(type, "Sequence"))
        return json_refuse(r, WHERE, "type", json_get(object, "type"));
    const json_t *list = json_get(object, "processors");
    if (!json_is_array(list))
        return json_fail(r, WHERE, "processors: is %s, expected an array", json_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(rules_read_post_processor(r, json_array_get(list, i)));
    return LACE_OK;
}
