/* The table of families of Hugging Face directories. */
#include <string.h>

#include "hf/hf_family.h"

#define X(name, type, class, arch) extern const hf_family family_##name;
#include "hf/families.def"
#undef X

static const hf_model_type types[] = {
#define X(name, type, class, arch) {type, class, arch, &family_##name},
#include "hf/families.def"
#undef X
};

lace_status hf_family_find(const source *s, const hf_model_type **out)
{
    const char *type = json_string_value(source_get(s, "model_type"));
    const char *name = json_string_value(json_array_get(source_get(s, "architectures"), 0));
    const hf_model_type *found =
        NULL; /* of several of one type the one of this class, or the first */
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const hf_model_type *t = &types[i];
        bool is_class = name && strcmp(name, t->class_name) == 0;
        bool is_type = type ? strcmp(type, t->model_type) == 0 : is_class;
        if (is_type && (!found || is_class))
            found = t;
    }
    if (found) {
        *out = found;
        return LACE_OK;
    }
    if (!type && !name)
        return source_fail(s, LACE_E_META, "model_type", "is missing");
    return error_set(s->err, LACE_E_UNSUPPORTED,
                     "config.json: %s: is \"%.64s\", which lace does not know",
                     type ? "model_type" : "architectures", type ? type : name);
}

const hf_model_type *hf_model_type_of(const char *architecture, size_t i)
{
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (strcmp(types[k].architecture, architecture) == 0 && i-- == 0)
            return &types[k];
    return NULL;
}
