/* Every allocation of jansson and of the library made to fail in turn: nothing crashes, nothing
 * leaks, and a job that could not be judged is never taken for a good one. */
#include "documents.h"

#include <unistd.h>

static const char filler[] =
    "01234567890123456789012345678901234567890123456789012345678901234567890123456789"
    "01234567890123456789012345678901234567890123456789012345678901234567890123456789"
    "01234567890123456789012345678901234567890123456789";
static long countdown; /* 0: fail from now on; < 0: never */
static long single;    /* the realloc that fails, once; 0: none */
static long lone;      /* the malloc that fails, once; 0: none */

static bool fails(void)
{
    if (countdown > 0)
        countdown--;
    return countdown == 0;
}

/* The linker sends the library's own calls here as well (--wrap). */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_realloc(void *block, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails() || (lone > 0 && --lone == 0) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return single > 0 && --single == 0 ? NULL : __real_realloc(block, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* Runs step with the n-th allocation and all after it failing, for n = 1, 2, ... until it says that
 * it had all it needed. */
static void until_enough(bool (*step)(void))
{
    long n = 1;

    do {
        countdown = n++;
        assert_true(n < 100000);
    } while (!step() && (countdown = -1));
    countdown = -1;
}

/* The names of members are written, too, or nothing is: one of jansson's own functions forgets. */
static void dump_is_whole_or_not_at_all(void **state)
{
    json_t *doc = json_object();
    char name[16];
    long refused = 0;
    (void)state;

    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "member %d", i);
        json_object_set_new(doc, name, json_integer(i));
    }
    char *whole = json_dumps(doc, JSON_COMPACT);
    for (long n = 1; n < 100; n++) {
        single = n;
        char *text = xpp_dump(doc, JSON_COMPACT);
        bool reached = single == 0;
        single = 0;
        assert_true(reached == (text == NULL));
        refused += reached;
        if (text)
            assert_string_equal(text, whole);
        free(text);
        if (!reached)
            break;
    }
    assert_true(refused > 3);
    free(whole);
    json_decref(doc);
    assert_null(xpp_dump(NULL, 0));
}

/* jansson goes on without the byte for which there was no room, and past the end of its buffer
 * where that is a closing quotation mark: words of every length end at one that does not fit. */
static void load_is_whole_or_not_at_all(void **state)
{
    char text[512];
    json_error_t error;
    (void)state;

    for (int size = 0; size < 200; size++) {
        int length = snprintf(text, sizeof text, "{\"%.*s\":[0.12345678901234567890, \"%.*s\"]}",
                              size, filler, 200 - size, filler);
        json_t *whole = json_loads(text, 0, NULL), *doc = NULL;
        long n = 0;

        assert_non_null(whole);
        for (bool reached = true; reached; json_decref(doc)) {
            lone = ++n;
            doc = xpp_load(text, (size_t)length, 0, &error);
            reached = lone == 0;
            lone = 0;
            assert_true(reached == (doc == NULL));
            if (reached)
                assert_int_equal(json_error_code(&error), json_error_out_of_memory);
            else
                assert_true(json_equal(doc, whole));
        }
        assert_true(n > 8);
        json_decref(whole);
    }
}

void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

/* What of it was read is not given back, which the leak sanitizer is not to find. */
static void a_word_beyond_the_reserve_is_refused(void **state)
{
    const size_t size = 1 << 20;
    char *text = __real_malloc(size);
    json_error_t error;
    (void)state;

    if (__lsan_disable)
        __lsan_disable();
    memset(text, 'x', size);
    text[0] = text[size - 1] = '"';
    for (countdown = 1;; countdown++) {
        long n = countdown;
        json_t *doc = xpp_load(text, size, JSON_DECODE_ANY, &error);
        countdown = n;
        json_decref(doc);
        if (doc)
            break;
        assert_int_equal(json_error_code(&error), json_error_out_of_memory);
    }
    assert_true(countdown > 10);
    countdown = -1;
    free(text);
    if (__lsan_enable)
        __lsan_enable();
}

static void a_document_that_lacks_a_member_is_not_written(void **state)
{
    json_t *doc = json_object();
    (void)state;

    lone = 1;
    json_object_set_new(doc, "state", json_string("running"));
    assert_int_equal(lone, 0);
    assert_null(xpp_dump(doc, 0));
    json_object_set_new(doc, "state", json_string("running")); /* another time */
    char *text = xpp_dump(doc, JSON_COMPACT);
    assert_string_equal(text, "{\"state\":\"running\"}");
    free(text);
    json_decref(doc);
}

static json_t *good_doc, *bad_doc;

static bool check_good(void)
{
    json_t *errors = xpp_job_check(good_doc);

    json_decref(errors);
    return errors == NULL;
}

static bool check_bad(void)
{
    json_t *errors = xpp_job_check(bad_doc);
    size_t count = json_array_size(errors);

    assert_non_null(errors);
    json_decref(errors);
    return count == 4;
}

static bool resolve(void)
{
    json_t *resolved = xpp_job_resolved(good_doc);

    json_decref(resolved);
    return resolved != NULL;
}

static bool decode(void)
{
    xpp_job *job = xpp_job_decode(good_doc);

    xpp_job_free(job);
    return job != NULL;
}

static bool problem(void)
{
    json_t *errors = json_array(), *made;

    xpp_errors_add(errors, "/a", "bad");
    made = xpp_problem(XPP_FAULT_INVALID_JOB, "x", errors, json_object());
    json_decref(made);
    return made != NULL;
}

static bool parse(void)
{
    static const char text[] = "{\"a\":[1,2,{\"b\":\"text\"}]}";
    json_t *why, *doc = xpp_parse(text, sizeof text - 1, &why);

    json_decref(why);
    json_decref(doc);
    return doc != NULL;
}

static bool event(void)
{
    char *line = xpp_event_line(1, 0, "log", good_doc);

    free(line);
    return line != NULL;
}

static bool message(void)
{
    int ends[2];
    xpp_ipc_message got;
    bool whole = false;

    assert_int_equal(xpp_ipc_pair(ends), 0);
    if (xpp_ipc_send(ends[0], XPP_IPC_START, good_doc, ends, 2) == XPP_IPC_OK) {
        whole = xpp_ipc_receive(ends[1], &got) == XPP_IPC_OK;
        xpp_ipc_message_release(&got);
    }
    close(ends[0]);
    close(ends[1]);
    return whole;
}

#define FAILING(name)                                                                              \
    static void name##_survives_a_lack_of_memory(void **state)                                     \
    {                                                                                              \
        (void)state;                                                                               \
        until_enough(name);                                                                        \
    }
FAILING(check_good)
FAILING(check_bad)
FAILING(resolve)
FAILING(decode)
FAILING(problem)
FAILING(parse)
FAILING(event)
FAILING(message)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_good_survives_a_lack_of_memory),
        cmocka_unit_test(check_bad_survives_a_lack_of_memory),
        cmocka_unit_test(resolve_survives_a_lack_of_memory),
        cmocka_unit_test(decode_survives_a_lack_of_memory),
        cmocka_unit_test(problem_survives_a_lack_of_memory),
        cmocka_unit_test(parse_survives_a_lack_of_memory),
        cmocka_unit_test(event_survives_a_lack_of_memory),
        cmocka_unit_test(message_survives_a_lack_of_memory),
        cmocka_unit_test(dump_is_whole_or_not_at_all),
        cmocka_unit_test(load_is_whole_or_not_at_all),
        cmocka_unit_test(a_word_beyond_the_reserve_is_refused),
        cmocka_unit_test(a_document_that_lacks_a_member_is_not_written),
    };
    int failed;

    countdown = -1;
    json_set_alloc_funcs(__wrap_malloc, free);
    xpp_init();
    good_doc =
        document("{'scan':{'path':'/"
                 "x'},'labels':{'a':'b'},'metadata':{'list':[1,2.5,'x']},'model':{'probe_modes':2},"
                 "'recon':[{'mode_schedule':[3]},{'algorithm':'refine_positions'}],'devices':{'"
                 "devices':['cpu','cpu']}}");
    bad_doc = document("{'scan':{'path':'x'},'zzz':1,'recon':{'relaxation':9},'priority':'a'}");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(good_doc);
    json_decref(bad_doc);
    return failed;
}
