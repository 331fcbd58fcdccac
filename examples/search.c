// Search a folder of texts by meaning, with the vectors kept in SQLite:
//
//     search MODEL.gguf texts.db add FOLDER      each paragraph of each .txt and .md becomes a vector
//     search MODEL.gguf texts.db find "QUERY"    the five paragraphs closest to it
#include <dirent.h>
#include <lace.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lace_error err;
static sqlite3 *db;
static lace_embedder *embedder;
static int n_embd;

static void fail(const char *why)
{
    fprintf(stderr, "search: %s\n", why);
    exit(1);
}

static void check(lace_status status)
{
    if (status != LACE_OK)
        fail(err.text);
}

static sqlite3_stmt *prepare(const char *sql)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
        fail(sqlite3_errmsg(db));
    return s;
}

static void add_paragraph(sqlite3_stmt *insert, const char *file, const char *text, size_t n)
{
    float vector[16384];
    if (n < 20)
        return; // a heading
    check(lace_embedder_embed(embedder, text, n < 1000 ? n : 1000, vector, &err));
    sqlite3_bind_text(insert, 1, file, -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(insert, 2, text, (int)n, SQLITE_TRANSIENT);
    sqlite3_bind_blob(insert, 3, vector, n_embd * (int)sizeof(float), SQLITE_TRANSIENT);
    if (sqlite3_step(insert) != SQLITE_DONE)
        fail(sqlite3_errmsg(db));
    sqlite3_reset(insert);
}

static void add_file(sqlite3_stmt *insert, const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    if (!f)
        fail(path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    for (char *p = text, *end; *p; p = end) {
        end = strstr(p, "\n\n");
        end = end ? end : p + strlen(p);
        add_paragraph(insert, path, p, (size_t)(end - p));
        end += strspn(end, "\n");
    }
}

static void add_folder(const char *folder)
{
    sqlite3_stmt *insert = prepare("INSERT INTO parts VALUES (?, ?, ?)");
    DIR *d = opendir(folder);
    if (!d)
        fail(folder);
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (struct dirent *e; (e = readdir(d));) {
        char path[4096];
        const char *kind = strrchr(e->d_name, '.');
        if (!kind || (strcmp(kind, ".txt") && strcmp(kind, ".md")))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        add_file(insert, path);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    closedir(d);
    sqlite3_finalize(insert);
}

// A function for SQL: the cosine of two vectors of length 1.
static void similarity(sqlite3_context *c, int n, sqlite3_value **v)
{
    const float *a = sqlite3_value_blob(v[0]), *b = sqlite3_value_blob(v[1]);
    int bytes = sqlite3_value_bytes(v[0]);
    double sum = 0;
    for (int i = 0; n == 2 && bytes == sqlite3_value_bytes(v[1]) && i < bytes / 4; i++)
        sum += a[i] * b[i];
    sqlite3_result_double(c, sum);
}

static void find(const char *query)
{
    float vector[16384];
    sqlite3_stmt *s = prepare("SELECT similarity(vector, ?) AS s, file, text FROM parts "
                              "ORDER BY s DESC LIMIT 5");
    check(lace_embedder_embed(embedder, query, strlen(query), vector, &err));
    sqlite3_bind_blob(s, 1, vector, n_embd * (int)sizeof(float), SQLITE_STATIC);
    while (sqlite3_step(s) == SQLITE_ROW)
        printf("%.3f  %s\n       %.70s\n", sqlite3_column_double(s, 0), sqlite3_column_text(s, 1),
               sqlite3_column_text(s, 2));
    sqlite3_finalize(s);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        fail("usage: search MODEL.gguf DATABASE add FOLDER | find QUERY");
    lace_model_options options = lace_model_options_default();
    lace_model_info info;
    lace_model *model;
    check(lace_model_open(argv[1], &options, &model, &err));
    lace_model_describe(model, &info);
    n_embd = info.n_embd;
    if (n_embd > 16384)
        fail("the model's vectors are too long");
    check(lace_embedder_create(model, NULL, &embedder, &err));
    if (sqlite3_open(argv[2], &db) != SQLITE_OK)
        fail(sqlite3_errmsg(db));
    sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS parts (file, text, vector)", NULL, NULL, NULL);
    sqlite3_create_function(db, "similarity", 2, SQLITE_UTF8, NULL, similarity, NULL, NULL);
    if (strcmp(argv[3], "add") == 0)
        add_folder(argv[4]);
    else
        find(argv[4]);
    sqlite3_close(db);
    lace_embedder_free(embedder);
    lace_model_close(model);
}
