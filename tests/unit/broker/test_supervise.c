/* Children: their messages, their end, and the order of both. */
#include "support.h"

#include "supervise.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

typedef struct seen {
    int messages, exits, status;
    bool refuse;
} seen;

static bool on_message(xpd_child *child, xpp_ipc_message *message)
{
    seen *s = child->context;
    assert_int_equal(s->exits, 0);
    assert_int_equal(message->type, XPP_IPC_HELLO);
    s->messages++;
    return !s->refuse;
}

static void on_exit_(xpd_child *child, int status)
{
    seen *s = child->context;
    s->exits++;
    s->status = status;
}

static void script(char *path, size_t size, const void *folder, const char *text)
{
    path_in(path, size, folder, "child.sh");
    write_text(path, text);
    assert_int_equal(chmod(path, 0755), 0);
}

static void until_exit(const seen *s)
{
    for (int i = 0; i < 1000 && !s->exits; i++) {
        usleep(5000);
        xpd_children_reap();
    }
    assert_int_equal(s->exits, 1);
}

static void run(const char *path, seen *s, xpd_broker *b, xpd_child *child)
{
    xpd_error err = XPD_ERROR_INIT;
    memset(b, 0, sizeof *b);
    assert_true(xpd_loop_init(&b->loop));
    *child = (xpd_child){
        .b = b, .name = "child", .on_message = on_message, .on_exit = on_exit_, .context = s};
    if (!xpd_child_start(child, path, NULL, true, 0, &err))
        fail_msg("%s", err.text);
}

static xpd_broker broker;

static void a_program_that_is_not_there_is_an_error(void **state)
{
    xpd_child child = {.b = &broker, .name = "child"};
    xpd_error err = XPD_ERROR_INIT;
    (void)state;
    assert_true(xpd_loop_init(&broker.loop));
    assert_false(xpd_child_start(&child, "/nowhere/program", NULL, true, 0, &err));
    assert_non_null(strstr(err.text, "/nowhere/program"));
    assert_int_equal(child.pid, 0);
    xpd_loop_release(&broker.loop);
}

static void the_socket_is_descriptor_3_and_the_status_is_told(void **state)
{
    char path[256];
    seen s = {0};
    xpd_child child;
    script(path, sizeof path, *state,
           "#!/bin/sh\n[ \"$1\" = --socket ] && [ \"$2\" = 3 ] && [ -S /proc/self/fd/3 ] && exit "
           "7\nexit 8\n");
    run(path, &s, &broker, &child);
    until_exit(&s);
    assert_true(WIFEXITED(s.status));
    assert_int_equal(WEXITSTATUS(s.status), 7);
    assert_int_equal(child.source.fd, -1);
    xpd_loop_release(&broker.loop);
}

static void garbage_on_the_socket_ends_the_child(void **state)
{
    char path[256], how[128];
    seen s = {0};
    xpd_child child;
    script(path, sizeof path, *state, "#!/bin/sh\necho garbage >&3\nexec sleep 30\n");
    run(path, &s, &broker, &child);
    while (child.source.fd >= 0)
        xpd_loop_turn(&broker.loop);
    until_exit(&s);
    assert_int_equal(s.messages, 0);
    assert_true(WIFSIGNALED(s.status));
    xpd_exit_text(how, sizeof how, s.status);
    assert_non_null(strstr(how, "signal 9"));
    xpd_loop_release(&broker.loop);
}

/* This program again, as a child that says hello twice and is gone. */
static int be_a_child(void)
{
    json_t *body = json_object();
    for (int i = 0; i < 2; i++) {
        if (xpp_ipc_send(3, XPP_IPC_HELLO, body, NULL, 0) != XPP_IPC_OK)
            return 1;
    }
    json_decref(body);
    return 5;
}

static void what_a_child_said_before_its_end_is_heard(void **state)
{
    char path[256];
    seen s = {0};
    xpd_child child;
    json_t *body = json_object();
    (void)state;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    run(path, &s, &broker, &child);
    until_exit(&s);
    assert_int_equal(s.messages, 2);
    assert_int_equal(WEXITSTATUS(s.status), 5);
    assert_false(xpd_child_send(&child, XPP_IPC_QUIT, body, NULL, 0));
    json_decref(body);
    xpd_loop_release(&broker.loop);
}

static void a_message_that_is_refused_ends_the_child(void **state)
{
    char path[256];
    seen s = {.refuse = true};
    xpd_child child;
    (void)state;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    run(path, &s, &broker, &child);
    until_exit(&s);
    assert_int_equal(s.messages, 1);
    xpd_loop_release(&broker.loop);
}

static void one_that_does_not_leave_is_killed(void **state)
{
    char path[256];
    seen s = {0};
    xpd_child child;
    script(path, sizeof path, *state,
           "#!/bin/sh\ntrap '' TERM\nexec 3>&-\nwhile :; do read line; done\n");
    run(path, &s, &broker, &child);
    xpd_child_kill_after(&child, 50);
    while (xpd_timer_armed(&child.kill_timer))
        xpd_loop_turn(&broker.loop);
    until_exit(&s);
    assert_true(WIFSIGNALED(s.status) && WTERMSIG(s.status) == SIGKILL);
    xpd_loop_release(&broker.loop);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--socket") == 0)
        return be_a_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_is_not_there_is_an_error),
        cmocka_unit_test(the_socket_is_descriptor_3_and_the_status_is_told),
        cmocka_unit_test(garbage_on_the_socket_ends_the_child),
        cmocka_unit_test(what_a_child_said_before_its_end_is_heard),
        cmocka_unit_test(a_message_that_is_refused_ends_the_child),
        cmocka_unit_test(one_that_does_not_leave_is_killed),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
