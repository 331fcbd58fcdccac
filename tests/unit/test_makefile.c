/*
 * The build file as those meet it who try lace, install it or unpack it without git: `make demo`,
 * `make install` and `make check`, run in a shell. Runs from the project's root, on what is built there.
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "sanitized.h"
#include "scratch.h"
#include "tap.h"

static char output[1 << 16]; /* of the last command, both streams */

/*
 * Run a shell command, in which $dir is the scratch folder and $make a make that knows nothing of
 * the one that may have started this test. Returns the exit code.
 */
static int sh(const char *dir, const char *command)
{
    char line[2048];
    snprintf(line, sizeof line,
             "dir='%s'; make='env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u NVCC -u DESTDIR -u PREFIX "
             "make --no-print-directory'; { %s ; } 2>&1",
             dir, command);
    FILE *f = popen(line, "r");
    if (!CHECK(f != NULL))
        return -1;
    size_t n = fread(output, 1, sizeof output - 1, f);
    output[n] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void remove_all(const char *dir)
{
    CHECK(sh(dir, "rm -rf \"$dir\"") == 0);
}

static bool check_code(int code, int expected)
{
    bool ok = CHECK(code == expected);
    if (!ok)
        tap_note("code %d: %.2000s", code, output);
    return ok;
}

/* The folder that this run was built in: that of the program. */
static const char *build_folder(void)
{
    static char folder[256];
    const char *program = getenv("LACE_BIN");
    snprintf(folder, sizeof folder, "%s", program ? program : "build/lace");
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    return folder;
}

/* A compiler for GPU kernels that tells on whoever calls it stands first in the PATH. */
static void install_takes_what_was_built(void)
{
    const char *dir = scratch_create();
    if (!CHECK(dir != NULL))
        return;
    CHECK(scratch_write("nvcc", "#!/bin/sh\ntouch \"$(dirname \"$0\")/called\"\nexit 1\n"));
    chmod(scratch_path("nvcc"), 0755);
    char line[512];
    snprintf(line, sizeof line, "PATH=\"$dir:$PATH\" $make install B=%s PREFIX=\"$dir/usr\"",
             build_folder());
    if (check_code(sh(dir, line), 0)) {
        static const char *const compilers[] = {"  cc ", "  as ", "  nvcc ", "  link "};
        for (size_t i = 0; i < sizeof compilers / sizeof compilers[0]; i++)
            if (!CHECK(strstr(output, compilers[i]) == NULL))
                tap_note("%.2000s", output);
        check_code(sh(dir, "test ! -e \"$dir/called\" && \"$dir/usr/bin/lace\" --version"), 0);
    }
    remove_all(dir);
}

static void install_takes_places_with_spaces_and_quotes(void)
{
    const char *dir = scratch_create();
    if (!CHECK(dir != NULL))
        return;
    char line[512];
    snprintf(line, sizeof line,
             "$make install B=%s DESTDIR=\"$dir/a stage\" PREFIX=\"/it's my place\"",
             build_folder());
    check_code(sh(dir, line), 0);
    check_code(sh(dir, "cd \"$dir/a stage/it's my place\" && bin/lace --version && "
                       "test -s lib/liblace.a && test -s include/lace.h"),
               0);
    snprintf(line, sizeof line,
             "$make uninstall B=%s DESTDIR=\"$dir/a stage\" PREFIX=\"/it's my place\"",
             build_folder());
    check_code(sh(dir, line), 0);
    check_code(sh(dir, "find \"$dir/a stage\" ! -type d"), 0);
    if (!CHECK(output[0] == 0))
        tap_note("left: %.2000s", output);
    remove_all(dir);
}

/* As a program of others does it: by pkg-config, with the shared library and with the archive. */
static void programs_of_others_are_built_with_pkg_config(void)
{
    const char *dir = scratch_create();
    if (!CHECK(dir != NULL))
        return;
    if (IS_SANITIZED) {
        tap_skip("the library is built for a sanitizer, and programs of others are not");
        remove_all(dir);
        return;
    }
    char line[512];
    snprintf(line, sizeof line, "$make install B=%s PREFIX=\"$dir/usr\"", build_folder());
    check_code(sh(dir, line), 0);
    /* What help and errors name is there, too. */
    check_code(sh(dir, "for f in README.md docs/server-api.md docs/models.md docs/scale.md; do "
                       "test -s \"$dir/usr/share/doc/lace/$f\" || exit 3; done"),
               0);
    static const char *const kinds[] = {"chat story $(pkg-config --exists sqlite3 && echo search)",
                                        "LINK=static"};
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "cp -r \"$dir/usr/share/doc/lace/examples\" \"$dir/out %d\" && "
                 "PKG_CONFIG_PATH=\"$dir/usr/lib/pkgconfig\" $make -C \"$dir/out %d\" %s "
                 "complete && LD_LIBRARY_PATH=\"$dir/usr/lib\" \"$dir/out %d/complete\" "
                 "models/tales-4m.gguf",
                 i, i, kinds[i], i);
        if (check_code(sh(dir, line), 0))
            CHECK(strlen(output) > 100);
    }
    remove_all(dir);
}

/* Where clang-format is not installed: a script that wants single spaces takes its name. */
static void use_stand_in(const char *dir)
{
    static const char make_it[] =
        "mkdir $dir/bin && echo '! grep -n \"[^ ]  \" /dev/null src/base/*.h' "
        ">$dir/bin/clang-format "
        "&& sed -i '1i#!/bin/sh' $dir/bin/clang-format && chmod +x $dir/bin/clang-format";
    char path[4096];
    check_code(sh(dir, make_it), 0);
    snprintf(path, sizeof path, "%s/bin:%s", dir, getenv("PATH"));
    setenv("PATH", path, 1);
}

/* Only the format: the layers and the levels that `make check` also looks at need a whole tree. */
static void check_without_git_looks_at_the_files(void)
{
    const char *dir = scratch_create();
    if (!CHECK(dir != NULL))
        return;
    static const char copy[] = "mkdir -p $dir/src/base && cp -r .clang-format scripts $dir";
    check_code(sh(dir, copy), 0);
    if (sh(dir, "command -v clang-format") != 0)
        use_stand_in(dir);
    CHECK(sh(dir, "cd $dir && scripts/check-format.sh") != 0 &&
          strstr(output, "no C files") != NULL);
    check_code(sh(dir, "echo 'int x;' >$dir/src/base/x.h; cd $dir && scripts/check-format.sh"), 0);
    CHECK(strstr(output, "format: 1 files clean") != NULL);
    CHECK(sh(dir, "echo 'int   y;' >$dir/src/base/y.h; cd $dir && scripts/check-format.sh") != 0);
    CHECK(strstr(output, "y.h") != NULL && strstr(output, "clean") == NULL);
    remove_all(dir);
}

/* What `make demo` would do where no kernel is compiled yet, with a compiler for them in the PATH. */
static void demo_has_kernels_of_gpus_only_for_a_card(void)
{
    const char *dir = scratch_create();
    if (!CHECK(dir != NULL))
        return;
    CHECK(scratch_write("nvcc", "#!/bin/sh\n"));
    chmod(scratch_path("nvcc"), 0755);
    static const struct {
        const char *given;
        bool left_out;
    } demos[] = {{"CARD=", true}, {"CARD=/dev/a-card", false}, {"CARD= NVCC=\"$dir/nvcc\"", false}};
    for (size_t i = 0; i < sizeof demos / sizeof demos[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "PATH=\"$dir:$PATH\" $make -n demo B=\"$dir\" CUDA_B=\"$dir\" %s >\"$dir/out\" && "
                 "grep -c 'NVCC= CPU_ONLY=\"no NVIDIA card here: ' \"$dir/out\"",
                 demos[i].given);
        check_code(sh(dir, line), demos[i].left_out ? 0 : 1);
        CHECK(strcmp(output, demos[i].left_out ? "1\n" : "0\n") == 0);
    }
    remove_all(dir);
}

/* A compiler that finds no header stands for a machine without them. */
static void headers_that_are_missing_leave_their_files_out(void)
{
    const char *dir = scratch_create();
    if (!CHECK(dir != NULL))
        return;
    static const char list[] =
        "$make -n NVCC= B=\"$dir\" CC=\"%s\" \"$dir/liblace.a\" >\"$dir/out\" "
        "&& grep -o -e '-o [^ ]*/hub/http_[a-z]*' -e '-o [^ ]*/vulkan_absent' "
        "\"$dir/out\" | sed 's,.*/,,' | tr '\\n' ' '";
    char line[512];
    snprintf(line, sizeof line, list, "cc -nostdinc");
    check_code(sh(dir, line), 0);
    CHECK(strstr(output, "http_absent") && strstr(output, "vulkan_absent"));
    CHECK(!strstr(output, "http_get"));
    tap_note("without headers: %s", output);
    snprintf(line, sizeof line, list, "cc");
    check_code(sh(dir, line), 0);
    CHECK(strstr(output, "http_get") && !strstr(output, "http_absent"));
    remove_all(dir);
}

int main(void)
{
    CASE(install_takes_what_was_built);
    CASE(install_takes_places_with_spaces_and_quotes);
    CASE(programs_of_others_are_built_with_pkg_config);
    CASE(demo_has_kernels_of_gpus_only_for_a_card);
    CASE(headers_that_are_missing_leave_their_files_out);
    CASE(check_without_git_looks_at_the_files);
    return tap_end();
}
