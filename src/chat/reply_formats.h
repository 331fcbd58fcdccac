/* The rows of the tables of reply formats, for the parser. Inside src/chat only. */
#ifndef LACE_CHAT_REPLY_FORMATS_H
#define LACE_CHAT_REPLY_FORMATS_H

#include "chat/parse_reply.h"

typedef enum call_style {
    CALL_JSON,      /* {"name": ..., "arguments": {...}}, or a list of these */
    CALL_NAME_JSON, /* name, name_end, then the arguments as JSON */
    CALL_TAGGED,    /* name, then a key and a value between tags for each argument */
    CALL_PYTHON,    /* [name(key=value, ...), ...], or call:name{key:value,...}; value_begin stands
                       on both sides of strings, in place of quotes */
    CALL_XML,       /* name, then an element for each argument, objects and lists as elements too */
    CALL_HARMONY,   /* messages with channels and recipients */
} call_style;

/*
 * A call in one of these formats, each part of which may be missing (NULL):
 *
 *     section_begin
 *         call_begin [... name_begin] NAME name_end
 *             JSON, or for each argument: key_begin KEY key_end value_begin VALUE value_end
 *         call_end
 *     section_end
 */
struct reply_calls {
    const char *name;
    const char *clues[2]; /* a template that contains these is of this format */
    call_style style;
    const char *section_begin, *section_end;
    const char *call_begin, *call_end;
    const char *name_begin, *name_end;
    const char *key_begin, *key_end, *value_begin, *value_end;
    bool is_bare; /* a JSON object, or a list in Python, that begins the reply is a call, too */

    /*
     * How a call is written when it is demanded (call_grammar.c): $n is the name, $a the arguments as
     * JSON, $p an argument after the other as `param` says, $y and $g the arguments in Python and in
     * Gemma's form. In `param` $k is the key, $v the value, $t its type, $s whether it is a string. A
     * '\v' is a line end or nothing. NULL: as a JSON object alone.
     */
    const char *shape, *param;
};

struct reply_thinking {
    const char *begin, *end;
    const char *clue; /* NULL: begin or end */
};

/* Words around what is said to the user, which are no part of it. */
struct reply_answer {
    const char *begin, *end; /* either may be NULL */
    const char *clue;        /* NULL: begin */
    const char *trailer;     /* NULL, or a word that may stand anywhere else */
    bool is_marked;          /* nobody writes these words in a text: the end counts alone */
};

#endif
