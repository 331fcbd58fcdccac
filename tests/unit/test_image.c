/*
 * Images: decoders in a process of their own, what broken files cost, and how sizes change. The files
 * are those of the fuzzer's corpus.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sandbox.h"
#include "image/decode.h"
#include "sanitized.h"
#include "tap.h"

#define CORPUS "tests/fuzz/corpus/image/"

static lace_status decode(const char *name, pixels *out, lace_error *err)
{
    buf bytes;
    char path[200];
    snprintf(path, sizeof path, CORPUS "%s", name);
    buf_init(&bytes, 1 << 20);
    CHECK(file_read(path, &bytes, err) == LACE_OK);
    lace_status status = decode_apart(bytes.data, bytes.size, NULL, out, err);
    buf_deinit(&bytes);
    return status;
}

static void good_files_are_decoded(void)
{
    static const struct {
        const char *name;
        int32_t width, height;
    } files[] = {{"rgb.jpg", 20, 14},    {"progressive.jpg", 20, 14}, {"gray.jpg", 9, 9},
                 {"cmyk.jpg", 9, 7},     {"rgb.png", 16, 12},         {"interlaced.png", 16, 12},
                 {"alpha.png", 16, 12},  {"gray.png", 16, 12},        {"palette.png", 16, 12},
                 {"deep.png", 16, 6},    {"lossy.webp", 24, 18},      {"lossless.webp", 24, 18},
                 {"alpha.webp", 10, 10}, {"turned.jpg", 14, 20}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        pixels p;
        lace_error err = {0};
        if (!CHECK(decode(files[i].name, &p, &err) == LACE_OK && p.width == files[i].width &&
                   p.height == files[i].height))
            tap_note("%s: %d x %d %s", files[i].name, p.width, p.height, err.text);
        pixels_free(&p);
    }
}

/* The values that the corpus was made of: x * 7 + y * 13 + colour * 60 + x * y % 31. */
static void pixels_are_what_was_drawn(void)
{
    static const char *const exact[] = {"rgb.png", "interlaced.png"};
    lace_error err = {0};
    pixels p, q;
    for (int k = 0; k < 2; k++) {
        CHECK(decode(exact[k], &p, &err) == LACE_OK);
        for (int i = 0; i < 16 * 12 * 3; i++) {
            int x = i / 3 % 16, y = i / 3 / 16;
            CHECK(p.rgb[i] == (uint8_t)(x * 7 + y * 13 + i % 3 * 60 + x * y % 31));
        }
        pixels_free(&p);
    }
    /* A photo on its side is turned: the first row becomes the last column. */
    CHECK(decode("rgb.jpg", &p, &err) == LACE_OK && decode("turned.jpg", &q, &err) == LACE_OK);
    for (int y = 0; y < 14; y++)
        for (int x = 0; x < 20; x++)
            CHECK(memcmp(p.rgb + 3 * (y * 20 + x), q.rgb + 3 * (x * 14 + 13 - y), 3) == 0);
    pixels_free(&p);
    pixels_free(&q);
}

/* Bytes of no meaning in front of the end, as some cameras leave them. */
static void photos_may_have_bytes_to_spare(void)
{
    lace_error err = {0};
    pixels p, q = {0};
    buf bytes;
    buf_init(&bytes, 1 << 20);
    CHECK(decode("rgb.jpg", &p, &err) == LACE_OK);
    CHECK(file_read(CORPUS "rgb.jpg", &bytes, &err) == LACE_OK && bytes.size > 2);
    bytes.size -= 2; /* the end's marker */
    CHECK(buf_append(&bytes, "\0\0\0\0\xff\xd9", 6) == LACE_OK);
    if (CHECK(decode_apart(bytes.data, bytes.size, NULL, &q, &err) == LACE_OK && p.rgb))
        CHECK(memcmp(p.rgb, q.rgb, 3 * 20 * 14) == 0);
    else
        tap_note("%s", err.text);
    buf_deinit(&bytes);
    pixels_free(&p);
    pixels_free(&q);
}

static void bad_files_cost_a_line(void)
{
    static const char *const files[] = {"bomb.png",          "bomb.jpg",       "bomb.webp",
                                        "cut_rgb.jpg",       "cut_rgb.png",    "cut_lossy.webp",
                                        "cut_lossless.webp", "broken_rgb.png", "magic.bin",
                                        "empty.bin",         "head.jpg",       "riff.webp"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        pixels p;
        lace_error err = {0};
        uint64_t begin = clock_ns();
        lace_status status = decode(files[i], &p, &err);
        double ms = (double)(clock_ns() - begin) / 1e6;
        tap_note("%s: %s (%.1f ms)", files[i], err.text, ms);
        CHECK(status == LACE_E_IMAGE && !p.rgb && err.text[0] && !strchr(err.text, '\n'));
        CHECK(ms < 5000);
    }
}

/* Many broken files: each byte of good ones changed. All end, and none takes this process along. */
static void changed_files_end(void)
{
    static const char *const files[] = {"rgb.jpg", "progressive.jpg", "rgb.png", "lossy.webp",
                                        "lossless.webp"};
    enum { ROOM = 3 << 20 };
    uint8_t *room = malloc(ROOM);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        buf bytes;
        char path[200];
        int32_t width, height;
        snprintf(path, sizeof path, CORPUS "%s", files[i]);
        buf_init(&bytes, 1 << 20);
        CHECK(file_read(path, &bytes, NULL) == LACE_OK);
        for (size_t k = 0; k < bytes.size; k++) {
            bytes.data[k] ^= (char)0x55;
            decode_here((uint8_t *)bytes.data, bytes.size, ROOM / 3, room, ROOM, &width, &height,
                        NULL);
            bytes.data[k] ^= (char)0x55;
        }
        buf_deinit(&bytes);
    }
    free(room);
}

/* 67 million pixels of one colour: they take longer than this process may have to wait for a core. */
static const uint8_t many_pixels[] =
    "RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\xfe\x9f\xff\x07\x28\x5e\x79"
    "\xea\xd1\xff\x02\0";

static void time_is_limited(void)
{
    decode_limits limits = decode_limits_default();
    lace_error err = {0};
    pixels p;
    buf bytes;
    limits.max_ns = 1;
    CHECK(decode_apart(many_pixels, sizeof many_pixels, &limits, &p, &err) == LACE_E_IMAGE);
    if (!CHECK(strstr(err.text, "takes longer")))
        tap_note("%s", err.text);
    buf_init(&bytes, 1 << 20);
    CHECK(file_read(CORPUS "rgb.png", &bytes, &err) == LACE_OK);
    limits = decode_limits_default();
    limits.max_pixels = 100;
    CHECK(decode_apart(bytes.data, bytes.size, &limits, &p, &err) == LACE_E_IMAGE);
    CHECK(strstr(err.text, "more than the 100"));
    buf_deinit(&bytes);
}

/* Programs that ignore SIGCHLD pass that on: the system then keeps no status of what has ended. */
static void a_status_that_is_not_kept_is_not_needed(void)
{
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    pixels p;
    lace_error err = {0};
    if (!CHECK(decode("rgb.png", &p, &err) == LACE_OK && p.width == 16))
        tap_note("%s", err.text);
    pixels_free(&p);
    CHECK(decode("cut_rgb.png", &p, &err) == LACE_E_IMAGE);
    CHECK(strstr(err.text, "cannot be read"));
    signal(SIGCHLD, before);
}

/* In the child: what must not work. Its exit code is the number of the first thing that did. */
static void try_to_leave(void)
{
    if (!sandbox_enter(UINT64_C(64) << 20, UINT64_C(5000000000)))
        _exit(1);
    if (open("/etc/passwd", O_RDONLY) >= 0)
        _exit(2);
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0)
        _exit(3);
    if (fork() >= 0)
        _exit(4);
    if (write(1, "x", 1) >= 0)
        _exit(5);
    if (kill(getppid(), 0) == 0)
        _exit(6);
    execl("/bin/true", "true", (char *)NULL);
    void *volatile large = malloc((size_t)512 << 20);
    if (large)
        _exit(7);
    _exit(0);
}

static void the_sandbox_holds(void)
{
    if (IS_SANITIZED) {
        tap_skip("a sanitizer's memory is larger than what the sandbox allows");
        return;
    }
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        try_to_leave();
    CHECK(waitpid(child, &status, 0) == child);
    if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        tap_note("exit %d", WEXITSTATUS(status));
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

static void resize_row(const uint8_t *from, int n, int to, bool is_cubic, uint8_t *out)
{
    pixels p, q;
    CHECK(pixels_create(n, 1, &p, NULL) == LACE_OK);
    for (int i = 0; i < 3 * n; i++)
        p.rgb[i] = from[i / 3];
    CHECK(pixels_resize(&p, to, 1, is_cubic, &q, NULL) == LACE_OK);
    for (int i = 0; i < to; i++)
        out[i] = q.rgb[3 * i + 1];
    pixels_free(&p);
    pixels_free(&q);
}

static void sizes_change_as_in_pillow(void)
{
    uint8_t out[8];
    resize_row((uint8_t[]){0, 255}, 2, 4, false, out);
    CHECK(memcmp(out, (uint8_t[]){0, 64, 191, 255}, 4) == 0);
    /* A triangle as wide as the image shrinks: (3 * 0 + 3 * 70 + 140) / 7. */
    resize_row((uint8_t[]){0, 70, 140, 210}, 4, 2, false, out);
    CHECK(out[0] == 50 && out[1] == 160);
    /* A cubic goes beyond what is there, and is held. */
    resize_row((uint8_t[]){0, 255}, 2, 4, true, out);
    CHECK(out[0] == 0 && out[1] > 0 && out[1] < 64 && out[2] > 191 && out[3] == 255);
    resize_row((uint8_t[]){9, 9, 9, 9, 9}, 5, 3, true, out);
    CHECK(memcmp(out, (uint8_t[]){9, 9, 9}, 3) == 0);
}

/* In a child: a high image within so much more of memory than there is now. */
static void resize_within(uint64_t n_bytes)
{
    enum { HIGH = 40000, WIDTH = 640 };
    pixels p, q;
    lace_error err = {0};
    char line[32] = {0};
    int fd = open("/proc/self/statm", O_RDONLY);
    if (fd < 0 || read(fd, line, sizeof line - 1) <= 0)
        _exit(2);
    n_bytes += strtoull(line, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct rlimit most = {n_bytes, n_bytes};
    if (setrlimit(RLIMIT_AS, &most) != 0 || pixels_create(32, HIGH, &p, &err) != LACE_OK)
        _exit(3);
    for (int y = 0; y < HIGH; y++)
        memset(p.rgb + 96 * y, y / (HIGH / 8) * 30, 96);
    if (pixels_resize(&p, WIDTH, 8, false, &q, &err) != LACE_OK)
        _exit(4);
    for (int y = 0; y < 8; y++) /* bands of one colour, which blur at their ends */
        for (int i = 0; i < 3 * WIDTH; i++)
            if (q.rgb[3 * WIDTH * y + i] != q.rgb[3 * WIDTH * y] ||
                abs(q.rgb[3 * WIDTH * y] - 30 * y) > 8)
                _exit(5);
    _exit(0);
}

/* Of another width alone it would have 77 MB. */
static void high_images_take_little_memory(void)
{
    if (IS_SANITIZED) {
        tap_skip("a sanitizer's memory is larger than what is allowed");
        return;
    }
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        resize_within(UINT64_C(48) << 20);
    CHECK(waitpid(child, &status, 0) == child);
    if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        tap_note("exit %d", WEXITSTATUS(status));
    pixels p, q;
    lace_error err = {0};
    CHECK(pixels_create(1, 1 << 20, &p, &err) == LACE_OK);
    CHECK(pixels_resize(&p, 1000, 10, false, &q, &err) == LACE_E_LIMIT && !q.rgb);
    pixels_free(&p);
}

static void sizes_are_chosen(void)
{
    static const struct {
        int32_t width, height, unit, min, max, out_width, out_height;
    } cases[] = {
        {48, 64, 16, 1024, 1 << 20, 48, 64},    {1000, 1000, 28, 3136, 12845056, 1008, 1008},
        {70, 126, 28, 1, 1 << 20, 56, 112}, /* 2.5 and 4.5 go to even numbers */
        {10, 10, 32, 65536, 1 << 24, 256, 256}, {4000, 3000, 32, 65536, 1 << 20, 1152, 864},
        {1, 200, 16, 1, 1 << 20, 16, 192},
    };
    lace_error err = {0};
    int32_t w, h;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(pixels_choose_size(cases[i].width, cases[i].height, cases[i].unit, cases[i].min,
                                 cases[i].max, &w, &h, &err) == LACE_OK);
        if (!CHECK(w == cases[i].out_width && h == cases[i].out_height))
            tap_note("case %zu: %d x %d", i, w, h);
    }
    CHECK(pixels_choose_size(1, 201, 16, 1, 1 << 20, &w, &h, &err) == LACE_E_IMAGE);
    CHECK(pixels_choose_size(200, 1, 16, 1, 4096, &w, &h, &err) == LACE_OK && w * h <= 4096);
}

/* Without a file more this process's children cannot see their own size, and so have no sandbox. */
static void no_sandbox_is_said_in_a_line(void)
{
    pixels p;
    lace_error err = {0};
    buf bytes;
    buf_init(&bytes, 1 << 20);
    CHECK(file_read(CORPUS "rgb.png", &bytes, &err) == LACE_OK);
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    lace_status status = decode_apart(bytes.data, bytes.size, NULL, &p, &err);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (!CHECK(status == LACE_E_IMAGE && strstr(err.text, "cannot make one")))
        tap_note("%s", err.text);
    pixels_free(&p);
    buf_deinit(&bytes);
}

int main(void)
{
    tap_case("good_files_are_decoded", good_files_are_decoded);
    tap_case("pixels_are_what_was_drawn", pixels_are_what_was_drawn);
    tap_case("photos_may_have_bytes_to_spare", photos_may_have_bytes_to_spare);
    tap_case("bad_files_cost_a_line", bad_files_cost_a_line);
    tap_case("changed_files_end", changed_files_end);
    tap_case("time_is_limited", time_is_limited);
    tap_case("a_status_that_is_not_kept_is_not_needed", a_status_that_is_not_kept_is_not_needed);
    tap_case("the_sandbox_holds", the_sandbox_holds);
    tap_case("no_sandbox_is_said_in_a_line", no_sandbox_is_said_in_a_line);
    tap_case("sizes_change_as_in_pillow", sizes_change_as_in_pillow);
    tap_case("high_images_take_little_memory", high_images_take_little_memory);
    tap_case("sizes_are_chosen", sizes_are_chosen);
    return tap_end();
}
