/* Models on the curve of a fit: bytes, divergence and speed. */
#ifndef LACE_COMPRESS_FIT_DOT_H
#define LACE_COMPRESS_FIT_DOT_H

typedef enum fit_mark {
    FIT_CURVE,  /* the best of each size; joined by a line */
    FIT_RIVAL,  /* a mix of GGUF's types */
    FIT_RESULT, /* what was made */
} fit_mark;

/* A model on the curve. */
typedef struct fit_dot {
    fit_mark mark;
    char name[24];
    double n_bytes;
    double kld;   /* above 0 */
    double speed; /* tokens a second */
} fit_dot;

#endif
