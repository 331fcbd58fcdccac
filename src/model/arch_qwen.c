/*
 * Qwen: like llama, with biases on q, k and v (Qwen2) or norms on the heads of q and k (Qwen3), and
 * experts in its MoE form. Qwen3-VL is either of Qwen3 whose frequencies turn by three axes of
 * positions, which are the same for text; rows of images are added behind its first layers
 * (model/tower.h).
 */
#include "model/config_source.h"
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    config_set_windows(c, 0); /* the window in the files of Qwen2 is not used */
    return LACE_OK;
}

static lace_status read_vl(const config_source *s, model_config *c)
{
    return config_sections(s, &c->rope);
}

static lace_status configure_vl(model_config *c, lace_error *err)
{
    c->rope.interleaves_sections = true;
    return configure(c, err);
}

#define QWEN(takes_) .takes = takes_, .configure = configure, .form = &llama_form

const arch arch_qwen2 = {.name = "qwen2", QWEN(ARCH_WINDOW)};
const arch arch_qwen3 = {.name = "qwen3", QWEN(ARCH_WINDOW)};
const arch arch_qwen3moe = {.name = "qwen3moe", QWEN(ARCH_WINDOW | ARCH_EXPERTS)};

#define QWEN_VL(takes_)                                                                            \
    .takes = ARCH_WINDOW | ARCH_SECTIONS | (takes_), .read = read_vl, .configure = configure_vl,   \
    .form = &llama_form

const arch arch_qwen3vl = {.name = "qwen3vl", QWEN_VL(0)};
const arch arch_qwen3vlmoe = {.name = "qwen3vlmoe", QWEN_VL(ARCH_EXPERTS)};
