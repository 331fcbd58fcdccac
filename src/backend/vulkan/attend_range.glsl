/* The positions that a token sees, in parts for workgroups: as many as are worth it. */
#define COLS       64  /* positions that a workgroup has at a time */
#define PART_LEAST 128 /* fewer than these are not worth joining */

struct part_range {
    uint begin, end; /* of all parts */
    uint size, n;    /* positions of a part; parts, at least one */
};

part_range find_parts(attend_args p, uint own, uint seen)
{
    part_range r;
    r.begin = p.window != 0 && own + 1 > p.window ? own + 1 - p.window : 0;
    if (p.chunk != 0)
        r.begin = max(r.begin, own / p.chunk * p.chunk);
    r.end = p.ahead != 0 ? min(seen, own + 1 + p.ahead) : seen;
    uint all = max(r.end, r.begin) - r.begin;
    r.size = max((all + p.n_parts - 1) / p.n_parts, PART_LEAST);
    r.size = (r.size + COLS - 1) / COLS * COLS;
    r.n = max((all + r.size - 1) / r.size, 1);
    return r;
}
