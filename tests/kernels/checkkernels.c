/* checkkernels: options, the walk over CPU levels, and the lines that it prints. */
#define _GNU_SOURCE
#include "checkkernels.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"
#include "check_internal.h"

static const check_case cases[] = {
#define X(name) {#name, check_##name},
#include "check_cases.def"
#undef X
};

enum { MAX_SEEN = 4096, MAX_TIMES = 4096, MAX_THREADS = 256 };

static struct {
    const char *ops, *types, *level; /* NULL: all */
    uint64_t seed;
    int n_repeats, n_threads;
    bool is_bench, is_quick;
} options = {.n_repeats = 1, .n_threads = 1};

/* Versions that have been checked, and how long the plain version of a shape took. */
static struct {
    char name[80];
    const void *version;
} seen[MAX_SEEN];
static int n_seen;
static struct {
    char name[160];
    double ns;
} plain_times[MAX_TIMES];
static int n_plain_times;

static struct {
    char op[32], type[32], shape[160];
    cpu_level level;
    int n_shapes;
    bool has_failed, is_open;
} now;
static int n_lines, n_failed;
static const char *device; /* whose kernels are checked; NULL: the CPU's */
static pool *pools[MAX_THREADS + 1];

/* The checks of devices, where the program is built with them; false: there is none. */
bool check_gpu(const kernel_table *ref, const check_wish *wish) __attribute__((weak));
bool check_vulkan(const kernel_table *ref, const check_wish *wish) __attribute__((weak));

/* ---- Cases ----------------------------------------------------------------------------------- */

static const char *level_name(void)
{
    return device ? device : cpu_level_name(now.level);
}

/* Whether a comma-separated list holds the word; NULL holds everything. */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0))
            return true;
    return !list;
}

/* The name of the case without the level: "matmul q4_0". */
static const char *case_name(char out[80])
{
    snprintf(out, 80, "%s%s%s", now.op, now.type[0] ? " " : "", now.type);
    return out;
}

bool check_begin(const char *name_of_op, const char *type, const void *version)
{
    char name[80];
    snprintf(now.op, sizeof now.op, "%s", name_of_op);
    snprintf(now.type, sizeof now.type, "%s", type ? type : "");
    case_name(name);
    if (!version)
        return false;
    for (int i = 0; i < n_seen; i++)
        if (seen[i].version == version && strcmp(seen[i].name, name) == 0)
            return false;
    if (n_seen < MAX_SEEN) {
        snprintf(seen[n_seen].name, sizeof seen[n_seen].name, "%s", name);
        seen[n_seen++].version = version;
    }
    if (!list_has(options.ops, now.op) || (type && !list_has(options.types, type)) ||
        !list_has(options.level, level_name()))
        return false;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (const char *p = name; *p; p++)
        h = (h ^ (uint8_t)*p) * 1099511628211u;
    check_seed(options.seed ^ h);
    now.n_shapes = 0;
    now.shape[0] = 0;
    now.has_failed = false;
    now.is_open = true;
    return true;
}

void check_shape(const char *format, ...)
{
    check_release();
    va_list args;
    va_start(args, format);
    vsnprintf(now.shape, sizeof now.shape, format, args);
    va_end(args);
    now.n_shapes++;
}

void check_end(void)
{
    char name[80];
    check_release();
    n_lines++;
    n_failed += now.has_failed;
    printf("%sok %d - %s %s # %d shapes\n", now.has_failed ? "not " : "", n_lines, case_name(name),
           level_name(), now.n_shapes);
    fflush(stdout);
    now.is_open = false;
}

void check_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("# %s: ", now.shape);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    if (!now.has_failed)
        printf("# repeat with: checkkernels --op %s%s%s --level %s --seed %llu\n", now.op,
               now.type[0] ? " --type " : "", now.type, level_name(),
               (unsigned long long)options.seed);
    now.has_failed = true;
}

/* A kernel that crashes still says which one it was. */
static void on_signal(int number)
{
    char line[512];
    int n = snprintf(line, sizeof line,
                     "not ok %d - %s %s %s # signal %d at shape: %s\n# repeat with: checkkernels "
                     "--op %s --level %s --seed %llu\n",
                     n_lines + 1, now.op, now.type, level_name(), number, now.shape, now.op,
                     level_name(), (unsigned long long)options.seed);
    ssize_t ignored = write(STDOUT_FILENO, line, (size_t)n);
    (void)ignored;
    _exit(1);
}

/* ---- Running and timing ---------------------------------------------------------------------- */

static pool *get_pool(int n_threads)
{
    lace_error err;
    if (!pools[n_threads] && pool_create(n_threads, &pools[n_threads], &err) != LACE_OK) {
        fprintf(stderr, "checkkernels: %s\n", err.text);
        exit(2);
    }
    return pools[n_threads];
}

typedef struct run_args {
    kernel_fn fn;
    const step *s;
    const batch *b;
    uint8_t *scratch[MAX_THREADS];
    uint64_t scratch_bytes;
    uint8_t *shared;
} run_args;

static void run_worker(void *arg, int index, int count)
{
    run_args *r = arg;
    worker w = {.index = index,
                .count = count,
                .scratch = r->scratch[index],
                .scratch_bytes = r->scratch_bytes,
                .shared = r->shared};
    r->fn(r->s, r->b, &w);
}

static void prepare(run_args *r, kernel_fn fn, const step *s, const batch *b, int n_workers,
                    int64_t n_context)
{
    r->fn = fn;
    r->s = s;
    r->b = b;
    r->scratch_bytes = step_scratch_bytes(s, b->n_tokens, n_context);
    for (int i = 0; i < n_workers; i++)
        r->scratch[i] = check_alloc(r->scratch_bytes);
    uint64_t n_shared = step_shared_bytes(s, n_context);
    r->shared = memset(check_alloc(n_shared), 0, n_shared);
}

void check_run(kernel_fn fn, const step *s, const batch *b, int n_workers, int64_t n_context)
{
    run_args r;
    prepare(&r, fn, s, b, n_workers, n_context);
    if (options.n_threads > 1) {
        pool_run(get_pool(n_workers), run_worker, &r);
        return;
    }
    for (int i = 0; i < n_workers; i++)
        run_worker(&r, i, n_workers);
}

bool check_is_bench(void)
{
    return options.is_bench;
}

bool check_is_gpu(void)
{
    return device != NULL;
}

bool check_is_quick(void)
{
    return options.is_quick;
}

/* With one thread the time that it ran, so that others on the machine are not measured. */
static double now_ns(void)
{
    struct timespec t;
    clock_gettime(options.n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The best of several rounds, each of as many runs as take some
 * milliseconds: the least disturbed. */
static double time_ns(void (*run)(void *arg, int worker, int n_workers), void *arg)
{
    pool *p = get_pool(options.n_threads);
    int64_t n = 1;
    double best = INFINITY;
    pool_run(p, run, arg);
    for (double spent = 0; spent < 1e8;) {
        double start = now_ns();
        for (int64_t i = 0; i < n; i++)
            pool_run(p, run, arg);
        double ns = now_ns() - start;
        if (ns < 2e6) {
            n = ns < 2e5 ? n * 8 : n * 2;
            continue;
        }
        best = fmin(best, ns / (double)n);
        spent += ns;
    }
    return best;
}

void check_bench(const char *what, void (*run)(void *arg, int worker, int n_workers), void *arg,
                 check_rate rate)
{
    static bool has_head;
    char name[80], key[256], rates[64] = "";
    if (!options.is_bench)
        return;
    if (!has_head)
        printf("# %-28s %-30s %-11s %12s %9s\n", "operation", "shape", "level", "ns", "speed-up");
    has_head = true;
    snprintf(key, sizeof key, "%s|%s", case_name(name), what);
    double ns = time_ns(run, arg), plain = 0;
    if (now.level == CPU_PLAIN && n_plain_times < MAX_TIMES) {
        snprintf(plain_times[n_plain_times].name, sizeof plain_times[0].name, "%.159s", key);
        plain_times[n_plain_times++].ns = ns;
    }
    for (int i = 0; i < n_plain_times; i++)
        if (strcmp(plain_times[i].name, key) == 0)
            plain = plain_times[i].ns;
    int n = 0;
    if (rate.n_bytes > 0)
        n += snprintf(rates, sizeof rates, " %7.2f GB/s", rate.n_bytes / ns);
    if (rate.n_macs > 0)
        snprintf(rates + n, sizeof rates - (size_t)n, " %7.2f GMAC/s", rate.n_macs / ns);
    printf("# %-28s %-30s %-11s %12.0f ", name, what, level_name(), ns);
    if (plain > 0)
        printf("%8.1fx%s\n", plain / ns, rates);
    else
        printf("%9s%s\n", "", rates);
    fflush(stdout);
}

void check_bench_step(const char *what, kernel_fn fn, const step *s, const batch *b,
                      int64_t n_context, check_rate rate)
{
    if (!options.is_bench)
        return;
    run_args r;
    prepare(&r, fn, s, b, options.n_threads, n_context);
    check_bench(what, run_worker, &r, rate);
}

/* ---- Options --------------------------------------------------------------------------------- */

static const char usage[] =
    "checkkernels: run every kernel of this CPU against the plain version of its operation.\n"
    "\n"
    "  --op LIST     only these operations (rms_norm,attend)\n"
    "  --type LIST   only these types, where an operation has several (f16,q8_0)\n"
    "  --level NAME  only versions of this CPU level (plain, avx2, avx512, ...), of NVIDIA's GPUs\n"
    "                (gpu), or of Vulkan (vulkan)\n"
    "  --seed N      start of the random numbers (default: 1)\n"
    "  --repeat N    do everything N times, with the seeds that follow\n"
    "  --threads N   run on threads, and time with N of them (default: 1)\n"
    "  --quick       fewer shapes, for emulated processors\n"
    "  --bench       also time each version on shapes that models have\n"
    "  -h, --help    this text\n";

static const char *want_value(int argc, char **argv, int *i)
{
    if (*i + 1 >= argc) {
        fprintf(stderr, "checkkernels: %s needs a value\n", argv[*i]);
        exit(2);
    }
    return argv[++*i];
}

static int want_count(int argc, char **argv, int *i, int max)
{
    const char *name = argv[*i];
    long n = strtol(want_value(argc, argv, i), NULL, 10);
    if (n < 1 || n > max) {
        fprintf(stderr, "checkkernels: %s: 1 to %d\n", name, max);
        exit(2);
    }
    return (int)n;
}

static void read_options(int argc, char **argv)
{
    options.seed = 1;
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i];
        if (strcmp(o, "--op") == 0)
            options.ops = want_value(argc, argv, &i);
        else if (strcmp(o, "--type") == 0)
            options.types = want_value(argc, argv, &i);
        else if (strcmp(o, "--level") == 0)
            options.level = want_value(argc, argv, &i);
        else if (strcmp(o, "--seed") == 0)
            options.seed = strtoull(want_value(argc, argv, &i), NULL, 0);
        else if (strcmp(o, "--repeat") == 0)
            options.n_repeats = want_count(argc, argv, &i, 1000000);
        else if (strcmp(o, "--threads") == 0)
            options.n_threads = want_count(argc, argv, &i, MAX_THREADS);
        else if (strcmp(o, "--bench") == 0)
            options.is_bench = true;
        else if (strcmp(o, "--quick") == 0)
            options.is_quick = true;
        else {
            bool is_help = strcmp(o, "-h") == 0 || strcmp(o, "--help") == 0;
            if (!is_help)
                fprintf(stderr, "checkkernels: unknown option '%s'\n", o);
            fputs(usage, is_help ? stdout : stderr);
            exit(is_help ? 0 : 2);
        }
    }
}

/* Those that are not CPUs, behind all levels. Returns how many are not there. */
static int check_devices(const kernel_table *ref)
{
    static const struct {
        const char *name;
        bool (*run)(const kernel_table *ref, const check_wish *wish);
        const char *why_not;
    } devices[] = {
        {"gpu", check_gpu, "there is none, or no kernels for it"},
        {"vulkan", check_vulkan, "there is no GPU for it; --level vulkan takes a processor, too"},
    };
    int n_skipped = 0;
    options.seed -= (uint64_t)options.n_repeats; /* the first again */
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        device = devices[i].name;
        if (!list_has(options.level, device))
            continue;
        check_wish wish = {.is_named = options.level, .is_all = !options.ops && !options.types};
        if (!devices[i].run || !devices[i].run(ref, &wish)) {
            printf("ok %d - %s # SKIP %s\n", ++n_lines, device, devices[i].why_not);
            n_skipped++;
        }
    }
    return n_skipped;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
#if !defined(__SANITIZE_ADDRESS__) /* which says more about a crash than we can */
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
    signal(SIGABRT, on_signal);
#endif
    signal(SIGILL, on_signal);
    printf("# checkkernels --seed %llu, on %s\n", (unsigned long long)options.seed,
           cpu_level_name(cpu_level_detect()));

    kernel_table ref, table;
    kernels_init(&ref, CPU_PLAIN);
    cpu_level top = cpu_level_detect();
    for (int repeat = 0; repeat < options.n_repeats; repeat++, options.seed++) {
        n_seen = 0;
        for (int level = 0; level <= (int)top; level++) {
            if (!cpu_has_level((cpu_level)level))
                continue;
            now.level = (cpu_level)level;
            kernels_init(&table, now.level);
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
                cases[i].run(&ref, &table);
        }
    }
    int n_skipped = check_devices(&ref);
    for (int i = 0; i <= MAX_THREADS; i++)
        pool_free(pools[i]);
    if (n_lines == 0) {
        fprintf(stderr, "checkkernels: no kernel of this machine is meant by these options\n");
        return 2;
    }
    printf("1..%d\n", n_lines);
    printf("# %d passed, %d failed, %d skipped\n", n_lines - n_failed - n_skipped, n_failed,
           n_skipped);
    return n_failed ? 1 : 0;
}
