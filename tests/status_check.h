/* What tests of the library's calls say the same way. */
#ifndef LACE_TESTS_STATUS_CHECK_H
#define LACE_TESTS_STATUS_CHECK_H

#include "base/buf.h"
#include "base/bytes.h"
#include "lace.h"

/* Whether a call succeeded; notes its error if not. */
bool is_ok(lace_status status, const lace_error *err);

span span_of(const buf *b);

#endif
