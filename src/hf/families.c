/* The table of families of Hugging Face directories. */
#include <string.h>

#include "hf/hf_family.h"

#define X(name) extern const hf_family family_##name;
#include "hf/families.def"
#undef X

static const hf_family *const families[] = {
#define X(name) &family_##name,
#include "hf/families.def"
#undef X
};

lace_status hf_family_find(const source *s, const hf_family **out)
{
    const char *type = json_string_value(source_get(s, "model_type"));
    const char *name = json_string_value(json_array_get(source_get(s, "architectures"), 0));
    const hf_family *found = NULL; /* of several of one type the one of this class, or the first */
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const hf_family *f = families[i];
        bool is_class = name && strcmp(name, f->class_name) == 0;
        bool is_type = type ? strcmp(type, f->model_type) == 0 : is_class;
        if (is_type && (!found || is_class))
            found = f;
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
