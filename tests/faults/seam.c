/* Makes system calls and allocations fail on purpose.  Linked into copies of the programs that only
 * tests run (bin/faults), never into what is installed.
 *
 * The functions here have the names of libc's, so that everything in the process goes through them:
 * our own code, SQLite, HDF5, jansson, libmicrohttpd.  What libc calls inside itself does not.
 *
 *     XP_FAULT = RULE;RULE;...      RULE =
 * CALL:N:ACTION[:path=TEXT][:when=FILE][:in=PROGRAM][:stack=HASH][:once]
 *
 *     CALL     the name of a call below, `any` of the system calls, or `alloc`
 *     N        the N-th such call of the process that fits the rest of the rule; `N+` all from then
 *     ACTION   an errno (EIO); kill, stop, segv (before the call); killafter (when it has
 *              succeeded); delayMS; to=PATH (open another file instead)
 *     path     only calls on a file whose path contains TEXT (of a rename: the old or the new name)
 *     when     only while FILE exists
 *     in       only in the program of that name
 *     stack    only a call that was made through these callers; hashes are from XP_FAULT_STACKS
 *     once     not again in a process that starts after it has happened; needs XP_FAULT_LOG
 *
 *     XP_FAULT_LOG     file that gets a line "RULE PROGRAM PID PATH" for each fault, before it
 *     XP_FAULT_COUNT   file that gets a line "PROGRAM PID any=N alloc=N" when a process ends well
 *     XP_FAULT_STACKS  file that gets a line "PROGRAM any|alloc HASH CALL" for each call with
 *                      callers that are new in this process; HASH is the same in every process
 *     XP_FAULT_TRACE   file that gets the callers of each call that fails
 *
 * Any thread.  Nothing here allocates. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RULES_MAX 16
#define LOGGED_MAX 1000 /* faults of a rule that goes on */
#define FRAMES_MAX 100
#define STACKS_MAX (1 << 16) /* slots */
#define SEAM __attribute__((visibility("default")))

typedef enum action { FAIL, KILL, STOP, SEGV, KILL_AFTER, DELAY, REDIRECT } action;

typedef struct rule {
    char text[512]; /* as given, for the log */
    char call[24], path[256], when[256], to[256];
    uint64_t stack; /* 0: any */
    long at;
    bool more, armed;
    action act;
    int code; /* errno, or milliseconds */
    atomic_long count;
} rule;

static rule rules[RULES_MAX];
static int rule_count;
static int log_fd = -1, count_fd = -1, stacks_fd = -1, trace_fd = -1;
static atomic_int by_stack; /* rules that wait for a call by its callers */
static _Atomic uint64_t stacks_seen[STACKS_MAX];
static bool ready; /* rules are read; before that everything goes through */
static atomic_long total_any, total_alloc;

static const struct {
    const char *name;
    int code;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM},
              {"EMFILE", EMFILE}, {"ENFILE", ENFILE}, {"EACCES", EACCES}, {"EPERM", EPERM},
              {"EAGAIN", EAGAIN}, {"EINTR", EINTR},   {"EPIPE", EPIPE},   {"EROFS", EROFS}};

/* ---------------------------------------------------------------------------------------- rules */

static _Noreturn void give_up(const char *text)
{
    fprintf(stderr, "XP_FAULT: '%s' is not understood\n", text);
    _exit(2);
}

static bool take_action(rule *r, const char *word)
{
    static const struct {
        const char *name;
        action act;
    } words[] = {{"kill", KILL}, {"stop", STOP}, {"segv", SEGV}, {"killafter", KILL_AFTER}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i].name) == 0) {
            r->act = words[i].act;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strcmp(word, errors[i].name) == 0) {
            r->code = errors[i].code;
            return true;
        }
    }
    if (strncmp(word, "delay", 5) == 0) {
        r->act = DELAY;
        r->code = atoi(word + 5);
        return r->code > 0;
    }
    if (strncmp(word, "to=", 3) == 0) {
        r->act = REDIRECT;
        snprintf(r->to, sizeof r->to, "%s", word + 3);
        return true;
    }
    return false;
}

static bool happened(const char *text)
{
    static char log[1 << 16];
    const char *path = getenv("XP_FAULT_LOG");
    char line[sizeof rules[0].text + 2];
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
    long got = fd >= 0 ? syscall(SYS_read, fd, log, sizeof log - 1) : 0;

    if (fd >= 0)
        syscall(SYS_close, fd);
    log[got > 0 ? got : 0] = 0;
    snprintf(line, sizeof line, "%s ", text);
    return strstr(log, line) != NULL;
}

static void take_rule(char *text)
{
    rule *r = &rules[rule_count];
    char *rest = text, *word, *end;

    snprintf(r->text, sizeof r->text, "%s", text);
    r->armed = true;
    word = strsep(&rest, ":");
    snprintf(r->call, sizeof r->call, "%s", word);
    word = strsep(&rest, ":");
    r->at = word ? strtol(word, &end, 10) : 0;
    if (r->at < 1 || (*end && strcmp(end, "+") != 0))
        give_up(r->text);
    r->more = *end == '+';
    word = strsep(&rest, ":");
    if (!word || !take_action(r, word))
        give_up(r->text);
    while ((word = strsep(&rest, ":"))) {
        if (strncmp(word, "path=", 5) == 0)
            snprintf(r->path, sizeof r->path, "%s", word + 5);
        else if (strncmp(word, "when=", 5) == 0)
            snprintf(r->when, sizeof r->when, "%s", word + 5);
        else if (strncmp(word, "stack=", 6) == 0)
            r->stack = strtoull(word + 6, NULL, 16);
        else if (strncmp(word, "in=", 3) == 0)
            r->armed = r->armed && strcmp(word + 3, program_invocation_short_name) == 0;
        else if (strcmp(word, "once") == 0)
            r->armed = r->armed && !happened(r->text);
        else
            give_up(r->text);
    }
    by_stack += r->armed && r->stack;
    rule_count++;
}

/* Opened at once, out of the way: a sandbox comes later. */
static int open_for(const char *variable)
{
    const char *path = getenv(variable);
    int fd =
        path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
    int high = fd >= 0 ? (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 200) : -1;

    if (fd >= 0)
        syscall(SYS_close, fd);
    return high;
}

__attribute__((constructor)) static void read_rules(void)
{
    static char text[RULES_MAX * 512];
    const char *given = getenv("XP_FAULT");
    char *rest = text, *one;
    void *frame;

    if (given && snprintf(text, sizeof text, "%s", given) < (int)sizeof text) {
        while ((one = strsep(&rest, ";")) && rule_count < RULES_MAX) {
            if (*one)
                take_rule(one);
        }
    }
    log_fd = open_for("XP_FAULT_LOG");
    count_fd = open_for("XP_FAULT_COUNT");
    stacks_fd = open_for("XP_FAULT_STACKS");
    trace_fd = open_for("XP_FAULT_TRACE");
    if (by_stack || stacks_fd >= 0 || trace_fd >= 0)
        backtrace(&frame, 1); /* the first one allocates */
    ready = true;
}

static void say(int fd, const char *line, int length)
{
    if (fd >= 0)
        syscall(SYS_write, fd, line, (size_t)length);
}

__attribute__((destructor)) static void tell_counts(void)
{
    char line[128];

    ready = false; /* what runs after this is not ours */
    say(count_fd, line,
        snprintf(line, sizeof line, "%s %d any=%ld alloc=%ld\n", program_invocation_short_name,
                 (int)getpid(), atomic_load(&total_any), atomic_load(&total_alloc)));
}

/* The reader leaves so. */
SEAM void _exit(int code)
{
    tell_counts();
    syscall(SYS_exit_group, code);
    __builtin_unreachable();
}

/* ------------------------------------------------------------------------------------- deciding */

static void path_of(char *out, size_t size, int fd)
{
    char link[64];
    long length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, out, size - 1);
    out[length < 0 ? 0 : length] = 0;
}

static void log_fault(const rule *r, const char *path)
{
    char line[1400];

    say(log_fd, line,
        snprintf(line, sizeof line, "%s %s %d %.600s\n", r->text, program_invocation_short_name,
                 (int)getpid(), path));
}

static void end_here(int signal_number)
{
    syscall(SYS_kill, getpid(), signal_number);
    for (struct timespec ever = {1, 0}; signal_number != SIGSTOP;)
        nanosleep(&ever, NULL);
}

static void act_now(const rule *r)
{
    struct timespec pause = {r->code / 1000, r->code % 1000 * 1000000L};

    if (r->act == KILL)
        end_here(SIGKILL);
    if (r->act == STOP)
        end_here(SIGSTOP);
    if (r->act == SEGV) {
        signal(SIGSEGV, SIG_DFL);
        end_here(SIGSEGV);
    }
    if (r->act == DELAY)
        nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------------------------------- stacks
 */

/* FNV-1a over where the callers are in their modules. */
static uint64_t stack_of_call(void)
{
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int i = 0; i < count; i++) {
        struct dl_find_object module;
        uint64_t at = 0;

        if (_dl_find_object((char *)frames[i] - 1, &module) == 0) {
            at = (uint64_t)((char *)frames[i] - (char *)module.dlfo_map_start) ^
                 (uint64_t)((char *)module.dlfo_map_end - (char *)module.dlfo_map_start) << 32;
        }
        hash = (hash ^ at) * UINT64_C(0x100000001b3);
    }
    return hash ? hash : 1;
}

static void note_stack(const char *kind, const char *call, uint64_t stack)
{
    char line[128];

    for (uint64_t i = 0; i < STACKS_MAX; i++) {
        uint64_t was = 0;

        if (atomic_compare_exchange_strong(&stacks_seen[(stack + i) % STACKS_MAX], &was, stack)) {
            say(stacks_fd, line,
                snprintf(line, sizeof line, "%s %s %016llx %s\n", program_invocation_short_name,
                         kind, (unsigned long long)stack, call));
            return;
        }
        if (was == stack)
            return;
    }
}

static void trace(void)
{
    void *frames[FRAMES_MAX];

    if (trace_fd >= 0)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), trace_fd);
}

/* pwrite64 is pwrite to a rule. */
static bool is_call(const rule *r, const char *call, bool any)
{
    size_t length = strlen(call);

    if (length > 2 && strcmp(call + length - 2, "64") == 0)
        length -= 2;
    return (strlen(r->call) == length && strncmp(r->call, call, length) == 0) ||
           (any && strcmp(r->call, "any") == 0);
}

/* The rule that decides this call, or NULL.  fd or either path may be missing. */
static const rule *decide(const char *call, bool any, int fd, const char *path, const char *other)
{
    char name[PATH_MAX] = "";
    uint64_t stack = 0;

    if (!ready)
        return NULL;
    if (any)
        atomic_fetch_add(&total_any, 1);
    if (by_stack || stacks_fd >= 0)
        stack = stack_of_call();
    if (stacks_fd >= 0)
        note_stack(any ? "any" : "alloc", call, stack);
    for (int i = 0; i < rule_count; i++) {
        rule *r = &rules[i];
        long n;

        if (!r->armed || !is_call(r, call, any) || (r->stack && r->stack != stack))
            continue;
        if (r->when[0] && syscall(SYS_faccessat, AT_FDCWD, r->when, F_OK) != 0)
            continue;
        if (!path && fd >= 0 && !name[0])
            path_of(name, sizeof name, fd);
        if (r->path[0] && !strstr(path ? path : name, r->path) &&
            !(other && strstr(other, r->path)))
            continue;
        n = atomic_fetch_add(&r->count, 1) + 1;
        if (n != r->at && !(r->more && n > r->at))
            continue;
        if (r->stack && !r->more)
            atomic_fetch_sub(&by_stack, 1);
        if (n < r->at + LOGGED_MAX)
            log_fault(r, path ? path : name);
        trace();
        act_now(r);
        if (r->act == FAIL || r->act == KILL_AFTER || r->act == REDIRECT)
            return r;
    }
    return NULL;
}

static bool fails(const rule *r)
{
    if (!r || r->act != FAIL)
        return false;
    errno = r->code;
    return true;
}

static void after(const rule *r, bool good)
{
    if (r && r->act == KILL_AFTER && good)
        end_here(SIGKILL);
}

/* The function of that name in the library behind us.  ISO C has no cast from an object pointer. */
static void find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found)
        abort();
    memcpy(function, &found, sizeof found);
}

/* ------------------------------------------------------------------------------- system calls */

/* name(parameters), called as name(arguments), on a descriptor, and on up to two paths */
#define CALL(type, name, parameters, arguments, fd, path, other)                                   \
    SEAM type name parameters;                                                                     \
    SEAM type name parameters                                                                      \
    {                                                                                              \
        static type(*next) parameters;                                                             \
        const rule *r;                                                                             \
        type result;                                                                               \
        if (!next)                                                                                 \
            find(&next, #name);                                                                    \
        r = decide(#name, true, fd, path, other);                                                  \
        if (fails(r))                                                                              \
            return (type)-1;                                                                       \
        result = next arguments;                                                                   \
        after(r, result != (type)-1);                                                              \
        return result;                                                                             \
    }

#define CALL_FD(type, name, parameters, arguments)                                                 \
    CALL(type, name, parameters, arguments, fd, NULL, NULL)

/* those that return an error number */
#define CALL_CODE(name, parameters, arguments, fd)                                                 \
    SEAM int name parameters;                                                                      \
    SEAM int name parameters                                                                       \
    {                                                                                              \
        static int(*next) parameters;                                                              \
        const rule *r;                                                                             \
        if (!next)                                                                                 \
            find(&next, #name);                                                                    \
        r = decide(#name, true, fd, NULL, NULL);                                                   \
        return fails(r) ? errno : next arguments;                                                  \
    }

CALL_FD(int, fsync, (int fd), (fd))
CALL_FD(int, fdatasync, (int fd), (fd))
CALL_FD(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
CALL_FD(ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
CALL_FD(ssize_t, pread64, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
CALL_FD(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
CALL_FD(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL_FD(ssize_t, pwrite64, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL_FD(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
CALL_FD(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
CALL_FD(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
CALL_FD(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL_FD(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
CALL_FD(ssize_t, sendfile, (int fd, int from, off_t *at, size_t size), (fd, from, at, size))
CALL_FD(ssize_t, sendfile64, (int fd, int from, off_t *at, size_t size), (fd, from, at, size))
CALL_FD(int, ftruncate, (int fd, off_t size), (fd, size))
CALL_FD(int, ftruncate64, (int fd, off_t size), (fd, size))
CALL_FD(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
CALL_FD(int, accept4, (int fd, struct sockaddr *address, socklen_t *size, int flags),
        (fd, address, size, flags))
CALL(int, epoll_create1, (int flags), (flags), -1, NULL, NULL)
CALL(int, eventfd, (unsigned start, int flags), (start, flags), -1, NULL, NULL)
CALL(int, socketpair, (int domain, int type, int protocol, int fds[2]),
     (domain, type, protocol, fds), -1, NULL, NULL)
CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, NULL, NULL)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, path, NULL)
CALL(int, unlink, (const char *path), (path), -1, path, NULL)
CALL(int, rename, (const char *from, const char *to), (from, to), -1, from, to)
CALL(int, renameat2, (int at, const char *from, int to_at, const char *to, unsigned flags),
     (at, from, to_at, to, flags), -1, from, to)
CALL(int, linkat, (int at, const char *from, int to_at, const char *to, int flags),
     (at, from, to_at, to, flags), -1, from, to)
CALL(int, link, (const char *from, const char *to), (from, to), -1, from, to)
CALL(void *, mmap, (void *address, size_t size, int protection, int flags, int fd, off_t at),
     (address, size, protection, flags, fd, at), fd, NULL, NULL)
CALL(void *, mmap64, (void *address, size_t size, int protection, int flags, int fd, off_t at),
     (address, size, protection, flags, fd, at), fd, NULL, NULL)
CALL_CODE(posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), fd)
CALL_CODE(posix_fallocate64, (int fd, off_t at, off_t size), (fd, at, size), fd)
CALL_CODE(pthread_create,
          (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *),
           void *argument),
          (thread, attributes, run, argument), -1)
CALL_CODE(posix_spawn,
          (pid_t * pid, const char *program, const posix_spawn_file_actions_t *actions,
           const posix_spawnattr_t *attributes, char *const arguments[], char *const variables[]),
          (pid, program, actions, attributes, arguments, variables), -1)

/* close: the descriptor is gone, whatever it says */
SEAM int close(int fd)
{
    static int (*next)(int);
    const rule *r;
    int result;

    if (!next)
        find(&next, "close");
    r = decide("close", true, fd, NULL, NULL);
    result = next(fd);
    return fails(r) ? -1 : result;
}

/* epoll_ctl: so is what is taken out; the kernel needs nothing for that */
SEAM int epoll_ctl(int fd, int what, int other_fd, struct epoll_event *event)
{
    static int (*next)(int, int, int, struct epoll_event *);
    const rule *r;

    if (!next)
        find(&next, "epoll_ctl");
    r = decide("epoll_ctl", true, fd, NULL, NULL);
    if (!fails(r))
        return next(fd, what, other_fd, event);
    if (what == EPOLL_CTL_DEL && next(fd, what, other_fd, event) == 0)
        errno = r->code;
    return -1;
}

static int open_at(int at, const char *path, int flags, mode_t mode)
{
    static int (*next)(int, const char *, int, ...);
    const rule *r = decide("open", true, -1, path, NULL);
    int fd;

    if (!next)
        find(&next, "openat");
    if (fails(r))
        return -1;
    fd = next(at, r && r->act == REDIRECT ? r->to : path, flags, mode);
    after(r, fd >= 0);
    return fd;
}

#define OPEN(name, parameters, at)                                                                 \
    SEAM int name parameters                                                                       \
    {                                                                                              \
        mode_t mode = 0;                                                                           \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
            va_list more;                                                                          \
            va_start(more, flags);                                                                 \
            mode = va_arg(more, mode_t);                                                           \
            va_end(more);                                                                          \
        }                                                                                          \
        return open_at(at, path, flags, mode);                                                     \
    }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), folder)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder)

/* --------------------------------------------------------------------------------- allocations */

/* The allocator behind us: the address sanitizer's where it is linked, else libc's. */
extern void *__interceptor_malloc(size_t size) __attribute__((weak));
extern void *__interceptor_calloc(size_t count, size_t size) __attribute__((weak));
extern void *__interceptor_realloc(void *block, size_t size) __attribute__((weak));
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static bool refused(void)
{
    if (!ready)
        return false;
    atomic_fetch_add(&total_alloc, 1);
    return (rule_count > 0 || stacks_fd >= 0) && fails(decide("alloc", false, -1, NULL, NULL));
}

SEAM void *malloc(size_t size)
{
    if (refused())
        return NULL;
    return __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
}

SEAM void *calloc(size_t count, size_t size)
{
    if (refused())
        return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
}

SEAM void *realloc(void *block, size_t size)
{
    if (refused())
        return NULL;
    return __interceptor_realloc ? __interceptor_realloc(block, size) : __libc_realloc(block, size);
}
