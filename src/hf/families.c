/* The table of families of Hugging Face directories. */
#include <string.h>

#include "hf/hf_family.h"

/* clang-format off */
/* Every family once, by its model_type. */
#define FAMILY_LIST(X)                                                                             \
    X(llama) X(mistral) X(mixtral) X(granite) X(smollm3) X(qwen2) X(qwen3) X(qwen3_moe) X(gemma2)  \
    X(gemma3_text) X(gemma3) X(phi3) X(olmo2) X(gpt_oss) X(mamba2) X(granitemoehybrid)            \
    X(nemotron_h) X(falcon_h1) X(lfm2)
/* clang-format on */

#define DECLARE(name) extern const hf_family family_##name;
FAMILY_LIST(DECLARE)
#undef DECLARE

static const hf_family *const families[] = {
#define ROW(name) &family_##name,
    FAMILY_LIST(ROW)
#undef ROW
};

lace_status hf_family_find(const source *s, const hf_family **out)
{
    const char *type = json_string_value(source_get(s, "model_type"));
    const char *name = json_string_value(json_array_get(source_get(s, "architectures"), 0));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const hf_family *f = families[i];
        if (type ? strcmp(type, f->model_type) == 0 : name && strcmp(name, f->class_name) == 0) {
            *out = f;
            return LACE_OK;
        }
    }
    if (!type && !name)
        return source_fail(s, LACE_E_META, "model_type", "is missing");
    return error_set(s->err, LACE_E_UNSUPPORTED,
                     "config.json: %s: is \"%.64s\", which lace does not know",
                     type ? "model_type" : "architectures", type ? type : name);
}
