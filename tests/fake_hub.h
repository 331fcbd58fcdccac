/*
 * A hub on loopback that lies, breaks off and refuses when told to: Hugging Face's API and Ollama's
 * registry, in processes of its own. Large files come by a redirect from a second host.
 */
#ifndef LACE_TESTS_FAKE_HUB_H
#define LACE_TESTS_FAKE_HUB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_COMMIT "0123456789abcdef0123456789abcdef01234567"
#define FAKE_TOKEN  "hf_secret"

typedef enum fake_fault {
    FAULT_NONE,
    FAULT_CUT,         /* the body ends after `amount` bytes */
    FAULT_RESET,       /* the same, by a reset */
    FAULT_STALL,       /* the same, and then nothing for long */
    FAULT_STATUS,      /* `amount` is answered */
    FAULT_WHOLE,       /* 200 and everything, whatever the range */
    FAULT_OTHER_RANGE, /* 206 with bytes from elsewhere, and a Content-Range that says so */
    FAULT_NO_RANGE,    /* 206 without a Content-Range */
    FAULT_OTHER_TOTAL, /* 206 of a file of another size */
    FAULT_WRONG_BYTES, /* one bit is another */
    FAULT_LONGER,      /* more bytes than asked for */
    FAULT_GARBAGE,     /* no HTTP */
    FAULT_SILENCE,     /* closed without an answer */
    FAULT_LOOP,        /* a redirect to itself */
    FAULT_NOWHERE,     /* a redirect to a file: URL */
    FAULT_COUNT
} fake_fault;

/* Shared with the hub's processes. */
typedef struct fake_state {
    atomic_int fault, amount;
    atomic_int n_times;     /* requests for files that still get it; negative: all */
    atomic_bool is_gated;   /* asks for the token */
    atomic_bool is_chaotic; /* random faults, for lists too; every second request on average */
    atomic_bool lists_fail; /* lists are cut in the middle */
    atomic_uint seed;       /* of the chaos */
    atomic_int n_requests, n_files, n_faults, n_ranges, n_leaks; /* leaks: the token elsewhere */
    atomic_long n_bytes;                                         /* of files that were sent */
} fake_state;

extern fake_state *fake;

/* Files of a repository ("org/tiny"), before the hub starts. `data` stays. */
void fake_hub_add(const char *repository, const char *path, const void *data, size_t n,
                  bool is_large);
bool fake_hub_start(void); /* sets HF_ENDPOINT and LACE_OLLAMA_REGISTRY */
void fake_hub_stop(void);

/* SHA-256 in hexadecimal digits. */
void fake_sha256(const void *data, size_t n, char hex[65]);

#endif
