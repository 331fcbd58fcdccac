/* Decoding in a process that can do nothing else. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/sandbox.h"
#include "base/system.h"
#include "image/decode.h"

decode_limits decode_limits_default(void)
{
    return (decode_limits){.max_pixels = UINT64_C(64) << 20,
                           .max_bytes = UINT64_C(768) << 20,
                           .max_ns = UINT64_C(20) * 1000000000};
}

/* What both processes see: this, and pixels behind it. */
typedef struct answer {
    bool is_done;
    lace_status status;
    int32_t width, height;
    lace_error err;
} answer;

enum { ANSWER_BYTES = 4096 };

static void child_main(const uint8_t *bytes, size_t n_bytes, const decode_limits *limits, answer *a,
                       uint8_t *room, size_t n_room)
{
    system_end_with_parent();
    if (sandbox_enter(limits->max_bytes, limits->max_ns)) {
        a->status = decode_here(bytes, n_bytes, limits->max_pixels, room, n_room, &a->width,
                                &a->height, &a->err);
    } else {
        a->status = error_set(&a->err, LACE_E_IMAGE,
                              "images are decoded in a process that can reach nothing, and this "
                              "system cannot make one; that takes Linux's seccomp and /proc");
    }
    a->is_done = true;
    _exit(0);
}

/*
 * Wait for the child, no longer than it may take. Its status, or -1 if it had to be killed. Where
 * somebody else has taken the status (SIGCHLD is ignored, which programs inherit): 0, it has ended.
 */
static int wait_for(pid_t child, uint64_t max_ns)
{
    uint64_t begin = clock_ns();
    struct timespec nap = {0, 200000};
    for (;;) {
        int status;
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child)
            return status;
        if (done < 0 && errno != EINTR)
            return 0;
        if (clock_ns() - begin > max_ns) {
            kill(child, SIGKILL);
            while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                continue;
            return -1;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 5000000)
            nap.tv_nsec += nap.tv_nsec / 4;
    }
}

/* What the child has left; its memory is not to be trusted. */
static lace_status take_answer(const answer *shared, int ended, const uint8_t *room, size_t n_room,
                               const decode_limits *limits, pixels *out, lace_error *err)
{
    answer a = *shared;
    if (ended < 0)
        return error_set(err, LACE_E_IMAGE, "the image takes longer than %.0f s to decode",
                         (double)limits->max_ns / 1e9);
    if (!a.is_done)
        return error_set(err, LACE_E_IMAGE,
                         "the image cannot be read: its decoder has failed (%s %d)",
                         WIFSIGNALED(ended) ? "signal" : "exit",
                         WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended));
    if (a.status != LACE_OK) {
        a.err.text[sizeof a.err.text - 1] = 0;
        return error_set(err, LACE_E_IMAGE, "%s", a.err.text);
    }
    if (a.width < 1 || a.height < 1 || (uint64_t)a.width * (uint64_t)a.height > n_room / 3)
        return error_set(err, LACE_E_IMAGE, "the image cannot be read: its decoder has failed");
    TRY(pixels_create(a.width, a.height, out, err));
    memcpy(out->rgb, room, 3 * (size_t)a.width * (size_t)a.height);
    return LACE_OK;
}

lace_status decode_apart(const void *bytes, size_t n_bytes, const decode_limits *given, pixels *out,
                         lace_error *err)
{
    decode_limits limits = given ? *given : decode_limits_default();
    size_t n_room = (size_t)round_up(3 * limits.max_pixels, ANSWER_BYTES);
    *out = (pixels){0};
    uint8_t *shared = sandbox_share(ANSWER_BYTES + n_room);
    if (!shared)
        return error_nomem(err, "an image");
    answer *a = (answer *)shared;
    uint8_t *room = shared + ANSWER_BYTES;
    pid_t child = fork();
    if (child == 0)
        child_main(bytes, n_bytes, &limits, a, room, n_room);
    lace_status status =
        child < 0
            ? error_set(err, LACE_E_IO, "no process to decode an image in: %s", strerror(errno))
            : take_answer(a, wait_for(child, limits.max_ns), room, n_room, &limits, out, err);
    sandbox_unshare(shared, ANSWER_BYTES + n_room);
    return status;
}
