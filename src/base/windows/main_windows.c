/*
 * How programs start on Windows: with their words in UTF-8. In a file of its own, so that it is linked
 * only into programs that ask for it (--wrap=main).
 */
#include "base/windows/wide.h"

#include <shellapi.h>

int __real_main(int n, char **words);
int __wrap_main(int n, char **words);

/* Bytes stay as they are, a console shows UTF-8 and colours, and sockets work. */
static void prepare(void)
{
    WSADATA unused;
    DWORD mode;
    HANDLE outputs[] = {GetStdHandle(STD_OUTPUT_HANDLE), GetStdHandle(STD_ERROR_HANDLE)};
    _setmode(0, _O_BINARY);
    _setmode(1, _O_BINARY);
    _setmode(2, _O_BINARY);
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    for (int i = 0; i < 2; i++)
        if (GetConsoleMode(outputs[i], &mode))
            SetConsoleMode(outputs[i], mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    setvbuf(stderr, NULL, _IONBF, 0);
    WSAStartup(MAKEWORD(2, 2), &unused);
}

static char *to_utf8(const wchar_t *word)
{
    int n = WideCharToMultiByte(CP_UTF8, 0, word, -1, NULL, 0, NULL, NULL);
    char *out = n > 0 ? malloc((size_t)n) : NULL;
    if (out)
        WideCharToMultiByte(CP_UTF8, 0, word, -1, out, n, NULL, NULL);
    return out;
}

/*
 * A word that names what exists, or a place in a folder that exists, is a path: '/' separates its
 * parts from now on. Others may mean the '\\' that is in them.
 */
static void tidy_path(char *word)
{
    char *last = word ? strrchr(word, '\\') : NULL;
    if (!last)
        return;
    bool is_path = access(word, F_OK) == 0;
    if (!is_path && last > word) {
        *last = 0;
        is_path = access(word, F_OK) == 0;
        *last = '\\';
    }
    for (char *at = word; is_path && *at; at++)
        if (*at == '\\')
            *at = '/';
}

/* The linker puts it in front of every main (--wrap=main): words in UTF-8. */
int __wrap_main(int n, char **words)
{
    int n_wide = 0;
    prepare();
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n_wide);
    char **utf8 = calloc((size_t)n_wide + 1, sizeof *utf8);
    for (int i = 0; utf8 && wide && i < n_wide; i++)
        tidy_path(utf8[i] = to_utf8(wide[i]));
    return utf8 && wide ? __real_main(n_wide, utf8) : __real_main(n, words);
}
