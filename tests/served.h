/*
 * A running `lace serve` in a test, and a client that sends what it is told to, byte by byte.
 * Tests run from the project's root; $LACE_BIN is the program (by default build/lace).
 */
#ifndef LACE_TESTS_SERVED_H
#define LACE_TESTS_SERVED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct served {
    pid_t pid;
    int port;
} served;

/*
 * Start it with arguments for a shell; waits until it listens. False if it does not. With
 * LACE_SERVED_MODELS=1 a model that the arguments do not name is behind a router (--models).
 */
bool served_start(served *s, const char *arguments);
/* Send SIGTERM and wait. Returns the exit code, 128 and more for a signal. */
int served_stop(served *s);
int served_wait(served *s); /* only wait; one that does not end in two minutes is killed */

/* What the process holds now. */
typedef struct served_state {
    int n_files, n_threads;
    long rss_kb;
} served_state;

served_state served_look(const served *s);

int served_connect(const served *s); /* a socket, or -1 */
bool served_send(int fd, const char *data, size_t n);

/* An answer, read to its end: by its length, its chunks (put together) or the end of the stream. */
typedef struct answer {
    int status; /* 0: the connection ended without one; -1: nothing came in time */
    char head[4096];
    char *body; /* terminated; the answer's, freed by the next one */
    size_t n_body;
    bool is_closed; /* the server has closed the connection after it */
} answer;

/* Waits at most timeout_s for it. */
void served_read(int fd, answer *a, double timeout_s);
void answer_free(answer *a);

/* The text of a completion, or NULL; the caller frees it. */
char *answer_text(const answer *a);

bool answer_has(const answer *a, const char *part);  /* in its body */
int answer_count(const answer *a, const char *part); /* how often */

/* Fails the case, with a note, if the answer has another status or not this part (NULL: any body). */
void answer_check(const answer *a, int status, const char *part);

/* One request on a connection of its own. `headers` are further lines with CRLF, or NULL. */
void served_request(const served *s, const char *method, const char *path, const char *headers,
                    const char *body, size_t n_body, answer *a);
void served_post(const served *s, const char *path, const char *json, answer *a);
void served_get(const served *s, const char *path, answer *a);

/* The value of a metric, or -1. */
double served_metric(const served *s, const char *name);

#endif
