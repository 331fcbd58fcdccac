/*
 * lace pull against a hub that lies and breaks off: whatever happens, a file under its final name
 * has the hash that the hub lists. $LACE_FAULTS: how many faults at random, by default 50.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "command.h"
#include "fake_hub.h"
#include "tap.h"

enum { N_BIG = 2500000, N_SMALL = 3000 };
static char big[N_BIG], small[N_SMALL];

#define REPOSITORY "hub/models--org--tiny"

static void fill(char *data, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (char)(seed >> 24);
    }
}

static void add_files(void)
{
    static buf tales;
    fill(big, sizeof big, 1);
    fill(small, sizeof small, 2);
    fake_hub_add("org/tiny", "tiny-Q4_K_M.gguf", big, N_BIG, true);
    fake_hub_add("org/tiny", "tiny-Q4_K.gguf", small, 100, true);
    fake_hub_add("org/tiny", "README.md", small, 200, false);
    fake_hub_add("org/eyes", "eyes-Q8_0.gguf", small, 300, true);
    fake_hub_add("org/eyes", "mmproj-BF16.gguf", small, 301, true);
    fake_hub_add("org/eyes", "mmproj-F16.gguf", small, 302, true);
    fake_hub_add("org/split", "Q8_0/s-00001-of-00002.gguf", small, 400, true);
    fake_hub_add("org/split", "Q8_0/s-00002-of-00002.gguf", small, 401, true);
    fake_hub_add("org/lacking", "s-00001-of-00002.gguf", small, 400, true);
    fake_hub_add("org/folder", "config.json", small, 500, false);
    fake_hub_add("org/folder", "model.safetensors", small, 501, true);
    fake_hub_add("org/folder", "tokenizer.json", small, 502, false);
    fake_hub_add("org/folder", "original/params.json", small, 503, false);
    fake_hub_add("org/evil", "../../../evil.gguf", small, 600, true);
    fake_hub_add("org/evil", "/tmp/evil.gguf", small, 600, true);
    fake_hub_add("ollama/small", "model", small, 700, true);
    fake_hub_add("ollama/small", "template", small, 20, false);
    buf_init(&tales, 64 << 20);
    if (file_read("models/tales-4m.gguf", &tales, NULL) == LACE_OK)
        fake_hub_add("org/tales", "tales-f16.gguf", tales.data, tales.size, true);
}

/* ---- What is on the disk --------------------------------------------------------------------- */

static void clear(void)
{
    command_sh("rm -rf $dir/hub $dir/ollama");
    atomic_store(&fake->fault, FAULT_NONE);
    atomic_store(&fake->n_times, 0);
    atomic_store(&fake->n_files, 0);
    atomic_store(&fake->n_bytes, 0);
    atomic_store(&fake->n_leaks, 0);
    atomic_store(&fake->is_gated, false);
}

static void set_fault(fake_fault fault, int amount, int n_times)
{
    atomic_store(&fake->amount, amount);
    atomic_store(&fake->fault, fault);
    atomic_store(&fake->n_times, n_times);
}

/* Every blob that has its final name has the hash that is its name, or, of small files, the size
 * that only one file has. Returns how many there are. */
static int check_blobs(const char *folder)
{
    int n = 0;
    DIR *d = opendir(command_path(folder));
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[700], hex[65];
        buf bytes;
        if (e->d_name[0] == '.' || strchr(e->d_name, '.'))
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", command_path(folder), e->d_name);
        buf_init(&bytes, 64 << 20);
        CHECK(file_read(path, &bytes, NULL) == LACE_OK);
        fake_sha256(bytes.data, bytes.size, hex);
        const char *name = strncmp(e->d_name, "sha256-", 7) == 0 ? e->d_name + 7 : e->d_name;
        if (strlen(name) == 64 && !CHECK(strcmp(hex, name) == 0))
            tap_note("%s has %zu bytes with the hash %s", path, bytes.size, hex);
        buf_deinit(&bytes);
    }
    if (d)
        closedir(d);
    return n;
}

static bool has_big(void)
{
    static char got[N_BIG + 1];
    return command_read(REPOSITORY "/snapshots/" FAKE_COMMIT "/tiny-Q4_K_M.gguf", got,
                        sizeof got) == N_BIG &&
           memcmp(got, big, N_BIG) == 0;
}

static void pull_tiny(void)
{
    command_run("pull org/tiny");
}

/* ---- Good weather ---------------------------------------------------------------------------- */

static void the_cache_is_hugging_faces_own(void)
{
    char link[300], ref[100];
    clear();
    pull_tiny();
    if (!CHECK(command_check_success() && has_big()))
        return;
    CHECK(check_blobs(REPOSITORY "/blobs") == 1);
    ssize_t n = readlink(command_path(REPOSITORY "/snapshots/" FAKE_COMMIT "/tiny-Q4_K_M.gguf"),
                         link, sizeof link - 1);
    CHECK(n > 64 && strncmp(link, "../../blobs/", 12) == 0);
    CHECK(command_read(REPOSITORY "/refs/main", ref, sizeof ref) == 40);
    CHECK(strcmp(ref, FAKE_COMMIT) == 0);
    CHECK(atomic_load(&fake->n_files) == 3); /* pieces, of 1 MiB */
    pull_tiny();
    CHECK(strstr(ran.out, "all here already") && atomic_load(&fake->n_files) == 3);
    command_run("list");
    CHECK(strstr(ran.out, "org/tiny:tiny-Q4_K_M") != NULL);
}

static void a_tag_names_one_file(void)
{
    clear();
    command_run("pull hf:org/tiny:q4_k");
    CHECK(command_check_success() && strstr(ran.out, "tiny-Q4_K.gguf"));
    command_run("pull org/tiny:Q2_K");
    command_check_error("has \"Q2_K\" in its name; it has tiny-Q4_K.gguf, tiny-Q4_K_M.gguf");
    command_run("pull org/none");
    command_check_error("has no model org/none with revision main");
    command_run("pull nonsense");
    command_check_error("nonsense is no name at a hub; use ollama:nonsense");
    command_run("pull 'two words'");
    command_check_error("is no name at a hub");
    command_run("pull hf.co/org");
    command_check_error("hf.co/org is no name at a hub; expected ORG/REPO or");
    /* Addresses that a browser shows, and Ollama's spelling. */
    static const char *const addresses[] = {
        "hf.co/org/tiny:Q4_K", "huggingface.co/org/tiny:q4_k",
        "https://huggingface.co/org/tiny/blob/main/tiny-Q4_K.gguf?download=true",
        "https://hf.co/org/tiny/resolve/" FAKE_COMMIT "/tiny-Q4_K.gguf"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        command_run("pull %s", addresses[i]);
        if (!(command_check_success() && CHECK(strstr(ran.out, "/tiny-Q4_K.gguf"))))
            tap_note("%s: %s", addresses[i], ran.err);
    }
    command_run("pull https://huggingface.co/org/tiny/tree/main/");
    CHECK(command_check_success() && strstr(ran.out, "tiny-Q4_K_M.gguf"));
    command_run("pull ../../x");
    command_check_error("is no name at a hub");
}

static void parts_eyes_and_folders_come_along(void)
{
    clear();
    command_run("pull org/split");
    CHECK(command_check_success() && strstr(ran.out, "2 files"));
    CHECK(check_blobs("hub/models--org--split/blobs") == 2);
    command_run("pull org/eyes");
    CHECK(command_check_success() && strstr(ran.out, "2 files"));
    CHECK(command_exists("hub/models--org--eyes/snapshots/" FAKE_COMMIT "/mmproj-F16.gguf"));
    command_run("pull org/folder");
    CHECK(command_check_success() && strstr(ran.out, "3 files"));
    CHECK(command_exists("hub/models--org--folder/snapshots/" FAKE_COMMIT "/config.json"));
    command_run("pull org/lacking");
    command_check_error("lacks s-00002-of-00002.gguf");
    command_run("pull org/evil");
    command_check_error("neither GGUF files nor");
    command_run("list");
    CHECK(strstr(ran.out, "org/split:s-00001-of-00002") && !strstr(ran.out, "mmproj"));
    CHECK(strstr(ran.out, "801 bytes") && !strstr(ran.out, "00002-of-00002"));
}

static void a_pulled_model_runs_by_its_name(void)
{
    clear();
    command_run("run hf:org/tales -p 'Once upon a time' -n 4 --temp 0");
    CHECK(command_check_success() && ran.n_out > 4);
    command_sh("HF_HUB_OFFLINE=1 \"$lace\" run -hf org/tales -p 'Once' -n 2");
    command_check_success();
    command_sh("HF_HUB_OFFLINE=1 \"$lace\" run -hf org/tiny -p 'Once' -n 2");
    command_check_error("HF_HUB_OFFLINE is set");
}

static void ollamas_registry_fills_its_store(void)
{
    clear();
    command_run("pull ollama:small:v1");
    CHECK(command_check_success() && check_blobs("ollama/blobs") == 2);
    CHECK(command_exists("ollama/manifests/registry.ollama.ai/library/small/v1"));
    command_run("list");
    CHECK(strstr(ran.out, "small:v1") != NULL);
    command_run("pull ollama:none");
    command_check_error("has no model none:latest");
}

static void removed_models_leave_what_others_need(void)
{
    clear();
    command_run("pull org/tiny");
    command_run("pull org/tiny:Q4_K");
    command_run("show org/tiny:q4_k"); /* no real model: it says where it is, and what is wrong */
    command_run("rm org/tiny:tiny-Q4_K");
    CHECK(command_check_success() && strstr(ran.out, "100 bytes"));
    CHECK(check_blobs(REPOSITORY "/blobs") == 1 && has_big());
    command_run("rm org/tiny:q4_k_m");
    CHECK(command_check_success() && !command_exists(REPOSITORY));
    command_run("rm org/tiny:q4_k_m");
    command_check_error("no model of that name");
    command_run("pull org/split");
    command_run("pull org/eyes");
    command_run("pull org/folder");
    command_run("pull ollama:small:v1");
    command_run("pull ollama:small:v2");
    command_run("rm org/split:s-00001-of-00002 org/eyes:Q8_0 org/folder small:v1");
    CHECK(command_check_success() && !command_exists("hub/models--org--split"));
    CHECK(!command_exists("hub/models--org--eyes") && !command_exists("hub/models--org--folder"));
    CHECK(check_blobs("ollama/blobs") == 2); /* v2 has the same ones */
    command_run("rm small:v2");
    CHECK(command_check_success() && check_blobs("ollama/blobs") == 0);
    command_run("list");
    CHECK(strstr(ran.out, "There are no models") != NULL);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static void the_token_goes_to_the_hub_alone(void)
{
    clear();
    atomic_store(&fake->is_gated, true);
    pull_tiny();
    command_check_error("access is denied (401), and no token is set");
    command_sh("HF_TOKEN=hf_wrong \"$lace\" pull org/tiny");
    command_check_error("the token does not allow it");
    command_sh("mkdir -p $dir/home && echo " FAKE_TOKEN " >$dir/home/token && "
               "HF_HOME=$dir/home \"$lace\" pull org/tiny");
    CHECK(command_check_success() && has_big());
    CHECK(atomic_load(&fake->n_leaks) == 0);
    command_sh("HF_TOKEN='a b' \"$lace\" pull org/tiny");
    command_check_error("HF_TOKEN does not hold a token");
}

static void proxies_and_mirrors_are_those_of_the_environment(void)
{
    clear();
    command_sh("http_proxy=$HF_ENDPOINT no_proxy=127.0.0.1 HF_ENDPOINT=http://hub.invalid "
               "\"$lace\" pull org/tiny");
    CHECK(command_check_success() && has_big());
    command_sh("HF_ENDPOINT=ftp://x \"$lace\" pull org/tiny");
    command_check_error("HF_ENDPOINT is \"ftp://x\", expected https://HOST");
    command_sh("HF_ENDPOINT=http://127.0.0.1:1 \"$lace\" pull org/tiny");
    command_check_error("http://127.0.0.1:1: ");
}

/* ---- Bad weather ----------------------------------------------------------------------------- */

/* Cut after every so many bytes; the next try goes on there. */
/* Somebody without a network is not let wait for half a minute. */
static void nobody_there_is_said_soon(void)
{
    clear();
    uint64_t begin = clock_ns();
    command_sh("env -u LACE_HUB_DELAY_MS HF_ENDPOINT=http://127.0.0.1:1 \"$lace\" pull org/tiny");
    command_check_error("is there a network?");
    CHECK(clock_ns() - begin < UINT64_C(15000000000));
}

static void cuts_cost_only_what_was_cut(void)
{
    static const int lengths[] = {0, 1, 511, 65536, 1048575, 1048576};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        clear();
        set_fault(i % 2 ? FAULT_RESET : FAULT_CUT, lengths[i], 5);
        pull_tiny();
        if (!CHECK(command_check_success() && has_big()))
            tap_note("cut after %d bytes: %s", lengths[i], ran.err);
        CHECK(atomic_load(&fake->n_bytes) < N_BIG + 5 * 1100000);
    }
}

/* A pull that is given up, and a second one. */
static void a_second_pull_goes_on(void)
{
    clear();
    set_fault(FAULT_STATUS, 404, 1);
    command_run("pull org/tiny -j 1");
    CHECK(ran.code == 1 && check_blobs(REPOSITORY "/blobs") == 0);
    clear();
    set_fault(FAULT_STALL, 700000, 1);
    command_sh("timeout -s KILL 0.4 \"$lace\" pull org/tiny -j 1; true");
    CHECK(check_blobs(REPOSITORY "/blobs") == 0);
    long n_first = atomic_load(&fake->n_bytes);
    set_fault(FAULT_NONE, 0, 0);
    pull_tiny();
    CHECK(command_check_success() && has_big());
    CHECK(n_first == 700000 && atomic_load(&fake->n_bytes) < N_BIG + 300000);
}

static void what_may_pass_is_tried_again(void)
{
    static const int statuses[] = {500, 502, 503, 504, 429, 408};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        clear();
        set_fault(FAULT_STATUS, statuses[i], 3);
        pull_tiny();
        if (!CHECK(command_check_success() && has_big()))
            tap_note("%d: %s", statuses[i], ran.err);
    }
    static const fake_fault faults[] = {FAULT_OTHER_RANGE, FAULT_NO_RANGE, FAULT_OTHER_TOTAL,
                                        FAULT_LONGER,      FAULT_GARBAGE,  FAULT_SILENCE};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        clear();
        set_fault(faults[i], 0, 2);
        pull_tiny();
        if (!CHECK(command_check_success() && has_big()))
            tap_note("fault %d: %s", faults[i], ran.err);
    }
}

static void what_will_not_pass_is_said_in_a_line(void)
{
    static const struct {
        fake_fault fault;
        int amount;
        const char *line;
    } rows[] = {
        {FAULT_STATUS, 403, "403"},       {FAULT_STATUS, 404, "has no model"},
        {FAULT_STATUS, 416, "shorter"},   {FAULT_STATUS, 429, "too many requests"},
        {FAULT_STATUS, 500, "500"},       {FAULT_NO_RANGE, 0, "another part of the file"},
        {FAULT_LOOP, 0, "leads nowhere"}, {FAULT_NOWHERE, 0, "leads nowhere"},
        {FAULT_SILENCE, 0, "127.0.0.1"},  {FAULT_WRONG_BYTES, 5, "have the hash"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clear();
        set_fault(rows[i].fault, rows[i].amount, -1);
        pull_tiny();
        command_check_error(rows[i].line);
        CHECK(check_blobs(REPOSITORY "/blobs") == 0);
    }
}

static void lists_that_are_cut_are_no_lists(void)
{
    clear();
    atomic_store(&fake->lists_fail, true);
    pull_tiny();
    command_check_error("127.0.0.1");
    CHECK(!command_exists("hub"));
    atomic_store(&fake->lists_fail, false);
}

static void servers_without_ranges_will_do(void)
{
    clear();
    set_fault(FAULT_WHOLE, 0, -1);
    pull_tiny();
    if (!CHECK(command_check_success() && has_big()))
        tap_note("%s", ran.err);
}

/* Wrong bytes that an earlier try has left are found, and fetched again. */
static void damaged_remains_are_fetched_again(void)
{
    clear();
    set_fault(FAULT_STALL, 900000, 1);
    command_sh("timeout -s KILL 0.4 \"$lace\" pull org/tiny -j 1; true");
    command_sh("for f in $dir/" REPOSITORY "/blobs/*.lace-part; do "
               "printf XXXX | dd of=$f bs=1 seek=1000 conv=notrunc; done");
    set_fault(FAULT_NONE, 0, 0);
    pull_tiny();
    CHECK(command_check_success() && has_big());
    char hash[65];
    fake_sha256(big, N_BIG, hash);
    for (int size = 0; size < 3; size++) { /* files that are no part, one as long as the whole */
        clear();
        command_sh("mkdir -p $dir/" REPOSITORY "/blobs; head -c %d /dev/zero >$dir/" REPOSITORY
                   "/blobs/%s.lace-part",
                   size == 2 ? N_BIG : size * 5000, hash);
        pull_tiny();
        CHECK(command_check_success() && has_big());
    }
}

static void full_disks_are_said(void)
{
    clear();
    command_sh("ulimit -f 1000; \"$lace\" pull org/tiny");
    command_check_error("ulimit -f");
    CHECK(check_blobs(REPOSITORY "/blobs") == 0);
    pull_tiny();
    CHECK(command_check_success() && has_big());
}

static void two_pulls_at_once_do_the_work_once(void)
{
    clear();
    command_sh("\"$lace\" pull org/tiny >$dir/a & \"$lace\" pull org/tiny >$dir/b & "
               "\"$lace\" pull org/tiny; code=$?; wait; exit $code");
    CHECK(ran.code == 0 && has_big());
    CHECK(check_blobs(REPOSITORY "/blobs") == 1);
    CHECK(atomic_load(&fake->n_bytes) == N_BIG);
    command_sh("ls $dir/" REPOSITORY "/blobs | wc -l");
    CHECK(atoi(ran.out) == 1);
}

/* ---- Chaos ----------------------------------------------------------------------------------- */

/* A pull that is killed after so many ms; 0: not. Returns its exit code. */
static int pull_killed(int after_ms)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stdout);
        (void)!freopen("/dev/null", "w", stderr);
        execl(getenv("lace"), getenv("lace"), "pull", "org/tiny", (char *)NULL);
        _exit(127);
    }
    if (after_ms) {
        usleep((useconds_t)after_ms * 1000);
        kill(pid, SIGKILL);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void no_fault_puts_wrong_bytes_under_a_name(void)
{
    int n_wanted = getenv("LACE_FAULTS") ? atoi(getenv("LACE_FAULTS")) : 50;
    int n_pulls = 0, n_good = 0, n_killed = 0, n_begin = atomic_load(&fake->n_faults);
    clear();
    atomic_store(&fake->seed, 12345);
    atomic_store(&fake->is_chaotic, true);
    while (atomic_load(&fake->n_faults) - n_begin + n_killed < n_wanted) {
        int after_ms = n_pulls % 4 == 3 ? 5 + n_pulls * 7 % 60 : 0;
        int code = pull_killed(after_ms);
        n_killed += code == 128 + SIGKILL;
        n_pulls++;
        CHECK(code == 0 || code == 1 || code == 128 + SIGKILL);
        int n = check_blobs(REPOSITORY "/blobs");
        if (code == 0) {
            CHECK(n == 1 && has_big());
            n_good++;
            command_sh("rm -rf $dir/hub");
        }
    }
    atomic_store(&fake->is_chaotic, false);
    tap_note("%d faults of the hub and %d kills in %d pulls, of which %d ended well",
             atomic_load(&fake->n_faults) - n_begin, n_killed, n_pulls, n_good);
    CHECK(n_good > 0 && atomic_load(&fake->n_leaks) == 0);
    pull_tiny();
    CHECK(command_check_success() && has_big());
}

int main(void)
{
    static const char *const gone[] = {"HF_HOME",     "HF_TOKEN",   "HF_TOKEN_PATH",
                                       "LACE_MODELS", "http_proxy", "https_proxy",
                                       "all_proxy",   "ALL_PROXY",  "HTTPS_PROXY"};
    if (!command_begin())
        return 1;
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        unsetenv(gone[i]);
    add_files();
    if (!fake_hub_start()) {
        printf("Bail out! no hub\n");
        return 1;
    }
    setenv("HF_HUB_CACHE", command_path("hub"), 1);
    setenv("OLLAMA_MODELS", command_path("ollama"), 1);
    setenv("HOME", command_path("nobody"), 1);
    setenv("LACE_HUB_DELAY_MS", "1", 1);
    CASE(the_cache_is_hugging_faces_own);
    CASE(a_tag_names_one_file);
    CASE(parts_eyes_and_folders_come_along);
    CASE(a_pulled_model_runs_by_its_name);
    CASE(ollamas_registry_fills_its_store);
    CASE(removed_models_leave_what_others_need);
    CASE(the_token_goes_to_the_hub_alone);
    CASE(proxies_and_mirrors_are_those_of_the_environment);
    CASE(nobody_there_is_said_soon);
    CASE(cuts_cost_only_what_was_cut);
    CASE(a_second_pull_goes_on);
    CASE(what_may_pass_is_tried_again);
    CASE(what_will_not_pass_is_said_in_a_line);
    CASE(lists_that_are_cut_are_no_lists);
    CASE(servers_without_ranges_will_do);
    CASE(damaged_remains_are_fetched_again);
    CASE(full_disks_are_said);
    CASE(two_pulls_at_once_do_the_work_once);
    CASE(no_fault_puts_wrong_bytes_under_a_name);
    fake_hub_stop();
    command_end();
    return tap_end();
}
