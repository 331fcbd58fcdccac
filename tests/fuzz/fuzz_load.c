/*
 * Fuzzing the whole way of a model: whatever the bytes are, opening says no, or a session can be
 * made of it and a token evaluated, from packed weights, in place, exactly, and with a layer that
 * predicts reading along. The corpus has the smallest model of every architecture.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sum up the logits so that the compiler must read them. */
static volatile float sum;

static void check_error(lace_status status, const lace_error *err)
{
    /* One line, of the same status, that says something. */
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

static lace_status evaluate(lace_model *model, bool use_mtp, lace_error *err)
{
    lace_session_options o = lace_session_options_default();
    lace_session *session = NULL;
    lace_model_info info;
    lace_item items[3] = {{0, 0, false}, {0, 0, true}, {0, 0, true}};
    o.n_context = 8;
    o.n_batch = 4;
    o.n_threads = 1;
    o.use_mtp = use_mtp;
    o.memory_bytes = 1 << 26; /* what asks for much is refused, not tried */
    lace_model_describe(model, &info);
    items[1].token = info.n_vocab - 1;
    lace_status status = lace_session_create(model, &o, &session, err);
    if (status == LACE_OK) /* two as a batch, and one alone: other kernels */
        status = lace_session_eval(session, items, 2, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, items + 2, 1, err);
    float s = 0;
    for (int32_t i = 0; status == LACE_OK && i < info.n_vocab; i++)
        s += lace_session_logits(session, 0)[i];
    sum = s;
    lace_session_free(session);
    return status;
}

static void run(const uint8_t *data, size_t size, const lace_model_options *o)
{
    lace_model *model = NULL;
    lace_error err = {0};
    lace_status status = lace_model_open_memory(data, size, "fuzz", o, &model, &err);
    if (status != LACE_OK) {
        check_error(status, &err);
        if (model)
            abort();
        return;
    }
    status = evaluate(model, o->use_mtp, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    lace_model_close(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int mode = 0; mode < 4; mode++) {
        lace_model_options o = lace_model_options_default();
        o.use_mmap = mode == 1;
        o.use_exact = mode == 2;
        o.use_mtp = mode == 3;
        run(data, size, &o);
    }
    return 0;
}
