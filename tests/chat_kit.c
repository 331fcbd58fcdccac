/* Chat templates in tests. */
#include "chat_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "data.h"
#include "tap.h"

json_t *read_json(const char *chars)
{
    json_t *json = NULL;
    lace_error err;
    if (chars &&
        json_read((span){(const uint8_t *)chars, strlen(chars)}, 0, &json, &err) != LACE_OK) {
        tap_note("test data: %s", err.text);
        abort();
    }
    return json;
}

json_t *read_template_cases(void)
{
    char *path = data_path("templates/cases.json");
    json_t *cases = path ? json_load_file(path, 0, NULL) : NULL;
    CHECK(cases);
    free(path);
    return cases;
}

char *read_template(const char *name, size_t n_name)
{
    char relative[256];
    snprintf(relative, sizeof relative, "templates/%.*s", (int)n_name, name);
    char *path = data_path(relative), *source = calloc(1, 1 << 20);
    FILE *f = path ? fopen(path, "rb") : NULL;
    size_t n = f && source ? fread(source, 1, (1 << 20) - 1, f) : 0;
    if (f)
        fclose(f);
    free(path);
    CHECK(n > 0);
    return source;
}
