/* The few words of cmocka that the backend tests use, for a machine that has a GPU and no cmocka
 * and from which nothing can be fetched (tests/gpu/run.sh).  Everywhere else the real cmocka is
 * used; nothing is mocked here. */
#ifndef XPT_SMALL_CMOCKA_H
#define XPT_SMALL_CMOCKA_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

/* One test at a time, on the thread that runs them.  Every file that includes this in one program
 * shares the one jump target, which is why it is weak and not static. */
__attribute__((weak)) jmp_buf xpt_failed;

#define cmocka_unit_test(function)                                                                 \
    {                                                                                              \
#function, function                                                                        \
    }

static inline void xpt_fail(const char *text, const char *file, int line)
{
    printf("%s:%d: %s\n", file, line, text);
    longjmp(xpt_failed, 1);
}

#define xpt_assert(right, text)                                                                    \
    do {                                                                                           \
        if (!(right))                                                                              \
            xpt_fail(text, __FILE__, __LINE__);                                                    \
    } while (0)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf(__VA_ARGS__);                                                                       \
        xpt_fail(" ", __FILE__, __LINE__);                                                         \
    } while (0)
#define print_error(...) (void)printf(__VA_ARGS__)
#define print_message(...) (void)printf(__VA_ARGS__)
#define fail() xpt_fail("failed", __FILE__, __LINE__)
#define assert_true(x) xpt_assert((x), "not true: " #x)
#define assert_false(x) xpt_assert(!(x), "not false: " #x)
#define assert_null(x) xpt_assert(!(x), "not NULL: " #x)
#define assert_non_null(x) xpt_assert((x), "NULL: " #x)
#define assert_int_equal(a, b) xpt_assert((intmax_t)(a) == (intmax_t)(b), #a " is not " #b)
#define assert_int_not_equal(a, b) xpt_assert((intmax_t)(a) != (intmax_t)(b), #a " is " #b)
#define assert_in_range(x, low, high)                                                              \
    xpt_assert((x) >= (low) && (x) <= (high), #x " is out of " #low ".." #high)
#define assert_string_equal(a, b) xpt_assert(strcmp((a), (b)) == 0, #a " is not " #b)
#define assert_memory_equal(a, b, size) xpt_assert(memcmp((a), (b), (size)) == 0, #a " is not " #b)
#define _assert_true(x, text, file, line)                                                          \
    do {                                                                                           \
        if (!(x))                                                                                  \
            xpt_fail(text, file, line);                                                            \
    } while (0)
#define _fail(file, line) xpt_fail("failed", file, line)
#define cast_ptr_to_largest_integral_type(x) ((uintptr_t)(x))

static inline int xpt_run_all(const struct CMUnitTest *tests, size_t count)
{
    int failures = 0;

    for (size_t i = 0; i < count; i++) {
        void *state = NULL;
        printf("[ RUN      ] %s\n", tests[i].name);
        (void)fflush(stdout);
        if (setjmp(xpt_failed) == 0) {
            tests[i].run(&state);
            printf("[       OK ] %s\n", tests[i].name);
        } else {
            printf("[  FAILED  ] %s\n", tests[i].name);
            failures++;
        }
    }
    printf("[==========] %zu tests, %d failed\n", count, failures);
    return failures;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    xpt_run_all(tests, sizeof(tests) / sizeof *(tests))

#endif
