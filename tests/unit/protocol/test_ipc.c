/* Messages between processes: what arrives, what is refused, and that no descriptor is ever lost.
 */
#include "documents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALL_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* The header as ipc.c lays it out; written again here, since a change of it is a new version. */
typedef struct raw_header {
    uint32_t magic;
    uint16_t version, type;
    uint32_t length;
    uint16_t fd_count, flags;
} raw_header;

static const raw_header good = {0x43507458u, XPP_IPC_VERSION, XPP_IPC_PING, 2, 0, 0};

typedef struct fixture {
    int ends[2];
    int open_before;
} fixture;

static int open_count(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    f->open_before = open_count();
    *state = f;
    return xpp_ipc_pair(f->ends);
}

/* Every test leaves as many descriptors as it found. */
static int teardown(void **state)
{
    fixture *f = *state;
    int left;

    close(f->ends[0]);
    if (f->ends[1] >= 0)
        close(f->ends[1]);
    left = open_count() - f->open_before;
    if (left != 0)
        print_error("%d descriptors left open\n", left);
    free(f);
    return left;
}

static int file_with(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

/* Sends bytes and descriptors without any of ipc.c's rules. */
static void send_raw(int socket, const void *bytes, size_t size, const int *fds, int count)
{
    union {
        char bytes[CMSG_SPACE(64 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    memcpy(&part.iov_base, &bytes,
           sizeof bytes); /* sendmsg only reads what its interface calls writable */
    part.iov_len = size;
    if (count > 0) {
        struct cmsghdr *rights;

        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, (size_t)count * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), size);
}

static void send_header(fixture *f, raw_header header, const char *text, const int *fds, int count)
{
    char packet[256];
    size_t length = strlen(text);

    memcpy(packet, &header, sizeof header);
    memcpy(packet + sizeof header, text, length);
    send_raw(f->ends[0], packet, sizeof header + length, fds, count);
}

static void arrives(fixture *f, xpp_ipc_result wanted)
{
    xpp_ipc_message message;

    assert_int_equal(xpp_ipc_receive(f->ends[1], &message), wanted);
    if (wanted != XPP_IPC_OK) {
        assert_null(message.body);
        assert_int_equal(message.fd_count, 0);
    }
    xpp_ipc_message_release(&message);
}

/* ------------------------------------------------------------------------------ what works */

static void a_message_arrives_as_it_was_sent(void **state)
{
    fixture *f = *state;
    json_t *body = document("{'id':'x','number':0.1,'deep':[{'a':null}]}");
    int fds[2] = {file_with("first"), file_with("second")};
    xpp_ipc_message message;
    char text[16] = "";

    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_START, body, fds, 2), XPP_IPC_OK);
    assert_int_equal(xpp_ipc_receive(f->ends[1], &message), XPP_IPC_OK);
    assert_int_equal(message.type, XPP_IPC_START);
    assert_true(json_equal(message.body, body));
    assert_int_equal(message.fd_count, 2);
    assert_int_equal(pread(message.fds[1], text, sizeof text, 0), 6);
    assert_string_equal(text, "second");
    for (int i = 0; i < 2; i++)
        assert_true(fcntl(message.fds[i], F_GETFD) & FD_CLOEXEC);
    for (int i = 2; i < XPP_IPC_FDS_MAX; i++)
        assert_int_equal(message.fds[i], -1);
    xpp_ipc_message_release(&message);
    close(fds[0]);
    close(fds[1]);
    json_decref(body);
}

static void both_ends_close_on_exec(void **state)
{
    fixture *f = *state;

    assert_true(fcntl(f->ends[0], F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(f->ends[1], F_GETFD) & FD_CLOEXEC);
}

static void no_body_is_an_empty_object(void **state)
{
    fixture *f = *state;
    xpp_ipc_message message;

    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_QUIT, NULL, NULL, 0), XPP_IPC_OK);
    assert_int_equal(xpp_ipc_receive(f->ends[1], &message), XPP_IPC_OK);
    assert_int_equal(json_object_size(message.body), 0);
    xpp_ipc_message_release(&message);
}

/* Bodies around the size where a memfd takes over, with every descriptor place in use. */
static void long_bodies_travel_in_a_memfd(void **state)
{
    static const size_t sizes[] = {60 * 1024 - 9, 60 * 1024 - 8, 60 * 1024 - 7, 1 << 20};
    fixture *f = *state;
    int fds[XPP_IPC_FDS_MAX];

    for (int i = 0; i < XPP_IPC_FDS_MAX; i++)
        fds[i] = file_with("x");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *text = calloc(1, sizes[i] + 1);
        json_t *body = json_object();
        xpp_ipc_message message;

        memset(text, 'b', sizes[i]);
        json_object_set_new(body, "t", json_string(text));
        assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_SCAN, body, fds, XPP_IPC_FDS_MAX),
                         XPP_IPC_OK);
        assert_int_equal(xpp_ipc_receive(f->ends[1], &message), XPP_IPC_OK);
        assert_true(json_equal(message.body, body));
        assert_int_equal(message.fd_count, XPP_IPC_FDS_MAX);
        xpp_ipc_message_release(&message);
        json_decref(body);
        free(text);
    }
    for (int i = 0; i < XPP_IPC_FDS_MAX; i++)
        close(fds[i]);
}

static void numbers_keep_every_bit(void **state)
{
    fixture *f = *state;
    json_t *body = json_object();
    xpp_ipc_message message;
    double value = 0.1 + 0.2;

    json_object_set_new(body, "v", json_real(value));
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_EVENTS, body, NULL, 0), XPP_IPC_OK);
    assert_int_equal(xpp_ipc_receive(f->ends[1], &message), XPP_IPC_OK);
    assert_true(json_real_value(json_object_get(message.body, "v")) == value);
    xpp_ipc_message_release(&message);
    json_decref(body);
}

static void a_descriptor_can_be_taken_over(void **state)
{
    fixture *f = *state;
    int fd = file_with("mine"), mine;
    xpp_ipc_message message;

    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_SCAN, NULL, &fd, 1), XPP_IPC_OK);
    close(fd);
    assert_int_equal(xpp_ipc_receive(f->ends[1], &message), XPP_IPC_OK);
    mine = message.fds[0];
    message.fds[0] = -1;
    xpp_ipc_message_release(&message);
    assert_int_equal(lseek(mine, 0, SEEK_END), 4);
    close(mine);
}

static void every_type_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(xpp_ipc_type_name(XPP_IPC_HELLO), "hello");
    assert_string_equal(xpp_ipc_type_name(XPP_IPC_QUIT), "quit");
    assert_string_equal(xpp_ipc_type_name(XPP_IPC_TYPES), "unknown");
    assert_string_equal(xpp_ipc_type_name((xpp_ipc_type)-1), "unknown");
}

/* ------------------------------------------------------------------------- the other side */

static void a_closed_end_is_told(void **state)
{
    fixture *f = *state;

    close(f->ends[1]);
    f->ends[1] = f->ends[0];
    arrives(f, XPP_IPC_CLOSED);
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_PING, NULL, NULL, 0), XPP_IPC_CLOSED);
    f->ends[1] = -1;
}

static void what_was_sent_before_the_close_still_arrives(void **state)
{
    fixture *f = *state;

    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_DONE, NULL, NULL, 0), XPP_IPC_OK);
    shutdown(f->ends[0], SHUT_RDWR);
    arrives(f, XPP_IPC_OK);
    arrives(f, XPP_IPC_CLOSED);
}

static void an_empty_non_blocking_socket_says_again(void **state)
{
    fixture *f = *state;

    fcntl(f->ends[1], F_SETFL, O_NONBLOCK);
    arrives(f, XPP_IPC_AGAIN);
}

static void a_full_non_blocking_socket_says_again(void **state)
{
    fixture *f = *state;
    int fd = file_with("x"), sent = 0;
    xpp_ipc_result result;

    fcntl(f->ends[0], F_SETFL, O_NONBLOCK);
    while ((result = xpp_ipc_send(f->ends[0], XPP_IPC_PING, NULL, &fd, 1)) == XPP_IPC_OK)
        assert_true(++sent < 1000000);
    assert_int_equal(result, XPP_IPC_AGAIN);
    assert_true(sent > 0);
    for (; sent > 0; sent--)
        arrives(f, XPP_IPC_OK);
    close(fd);
}

static void something_that_is_no_socket_fails_with_errno(void **state)
{
    fixture *f = *state;
    int fd = file_with("x");
    xpp_ipc_message message;

    (void)f;
    assert_int_equal(xpp_ipc_receive(fd, &message), XPP_IPC_FAILED);
    assert_int_equal(errno, ENOTSOCK);
    assert_int_equal(xpp_ipc_send(fd, XPP_IPC_PING, NULL, NULL, 0), XPP_IPC_FAILED);
    assert_int_equal(errno, ENOTSOCK);
    close(fd);
}

static void what_the_sender_may_not_send_is_refused_there(void **state)
{
    fixture *f = *state;
    int fds[XPP_IPC_FDS_MAX + 1];
    json_t *array = json_array(), *huge = json_object();
    char *text = calloc(1, XPP_IPC_JSON_MAX + 1);

    for (int i = 0; i <= XPP_IPC_FDS_MAX; i++)
        fds[i] = f->ends[0];
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_SCAN, NULL, fds, XPP_IPC_FDS_MAX + 1),
                     XPP_IPC_FAILED);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_SCAN, NULL, fds, -1), XPP_IPC_FAILED);
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_TYPES, NULL, NULL, 0), XPP_IPC_FAILED);
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_PING, array, NULL, 0), XPP_IPC_FAILED);
    memset(text, 'h', XPP_IPC_JSON_MAX);
    json_object_set_new(huge, "t", json_string(text));
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_PING, huge, NULL, 0), XPP_IPC_FAILED);
    assert_int_equal(errno, EMSGSIZE);
    fds[0] = -1;
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_PING, NULL, fds, 1), XPP_IPC_FAILED);
    assert_int_equal(errno, EBADF);
    fcntl(f->ends[1], F_SETFL, O_NONBLOCK);
    arrives(f, XPP_IPC_AGAIN); /* none of them left */
    json_decref(array);
    json_decref(huge);
    free(text);
}

/* Without a free descriptor a long body cannot be sent, and descriptors that come are cut off by
 * the kernel: told, not lost. */
static void a_lack_of_descriptors_is_told(void **state)
{
    fixture *f = *state;
    char *text = calloc(1, 70000);
    json_t *body = json_object();
    int fd = file_with("x"), lowest = dup(fd);
    struct rlimit before, none;

    close(lowest);
    memset(text, 'b', 69999);
    json_object_set_new(body, "t", json_string(text));
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_SCAN, NULL, &fd, 1), XPP_IPC_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_SCAN, body, NULL, 0), XPP_IPC_FAILED);
    assert_int_equal(errno, EMFILE);
    arrives(f, XPP_IPC_BROKEN);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(fd);
    json_decref(body);
    free(text);
}

/* ----------------------------------------------------------------------------- broken packets */

static void the_raw_header_of_these_tests_is_the_real_one(void **state)
{
    fixture *f = *state;

    send_header(f, good, "{}", NULL, 0);
    arrives(f, XPP_IPC_OK);
}

static void short_packets_are_broken(void **state)
{
    fixture *f = *state;
    const char bytes[sizeof good] = "Xt";

    for (size_t size = 1; size < sizeof good; size++) {
        send_raw(f->ends[0], bytes, size, NULL, 0);
        arrives(f, XPP_IPC_BROKEN);
    }
}

static void every_wrong_header_field_is_broken(void **state)
{
    fixture *f = *state;
    raw_header bad[10];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        bad[i] = good;
    bad[0].magic ^= 1;
    bad[1].version++;
    bad[2].version = 0;
    bad[3].type = XPP_IPC_TYPES;
    bad[4].type = UINT16_MAX;
    bad[5].length = 1; /* says less than there is */
    bad[6].length = 3; /* says more */
    bad[7].length = UINT32_MAX;
    bad[8].fd_count = 1; /* none came */
    bad[9].flags = 2;    /* not known */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        send_header(f, bad[i], "{}", NULL, 0);
        arrives(f, XPP_IPC_BROKEN);
    }
}

static void bodies_that_are_no_objects_are_broken(void **state)
{
    static const char *const texts[] = {"", "[]", "5", "{", "{\"a\":1,\"a\":2}", "nonsense"};
    fixture *f = *state;
    char deep[128] = "";

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        raw_header header = good;

        header.length = (uint32_t)strlen(texts[i]);
        send_header(f, header, texts[i], NULL, 0);
        arrives(f, XPP_IPC_BROKEN);
    }
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', 40);
    memset(deep + 45, ']', 40);
    deep[85] = '}';
    raw_header header = good;
    header.length = 86;
    send_header(f, header, deep, NULL, 0);
    arrives(f, XPP_IPC_BROKEN);
}

/* A document as deep as one from outside may be goes on to reader and worker inside of an object.
 */
static void a_document_of_the_greatest_depth_is_carried(void **state)
{
    fixture *f = *state;
    char deep[2 * XPP_DEPTH_MAX + 16] = "{\"job\":";
    size_t at = strlen(deep);
    raw_header header = good;

    memset(deep + at, '[', XPP_DEPTH_MAX);
    memset(deep + at + XPP_DEPTH_MAX, ']', XPP_DEPTH_MAX);
    deep[at + 2 * XPP_DEPTH_MAX] = '}';
    header.length = (uint32_t)strlen(deep);
    send_header(f, header, deep, NULL, 0);
    arrives(f, XPP_IPC_OK);
}

static void packets_longer_than_allowed_are_broken(void **state)
{
    fixture *f = *state;
    size_t size = 100 * 1024;
    char *packet = calloc(1, size);
    raw_header header = good;
    int fd = file_with("x");

    header.length = (uint32_t)(size - sizeof header);
    memcpy(packet, &header, sizeof header);
    send_raw(f->ends[0], packet, size, &fd, 1);
    arrives(f, XPP_IPC_BROKEN);
    close(fd);
    free(packet);
}

static void descriptors_that_were_not_announced_are_broken_and_closed(void **state)
{
    fixture *f = *state;
    raw_header header = good;
    int fds[60];

    for (int i = 0; i < 60; i++)
        fds[i] = f->ends[0];
    send_header(f, header, "{}", fds, 1); /* announced: none */
    arrives(f, XPP_IPC_BROKEN);
    header.fd_count = XPP_IPC_FDS_MAX + 1;
    send_header(f, header, "{}", fds, XPP_IPC_FDS_MAX + 1);
    arrives(f, XPP_IPC_BROKEN);
    header.fd_count = 1;
    for (int count = XPP_IPC_FDS_MAX + 2; count <= 60; count++) { /* more than the buffer holds */
        send_header(f, header, "{}", fds, count);
        arrives(f, XPP_IPC_BROKEN);
    }
}

/* A memfd body: the descriptor must be a sealed memfd of the length that the header states. */
static void body_in(fixture *f, int fd, uint32_t length, const char *extra, xpp_ipc_result wanted)
{
    raw_header header = good;

    header.flags = 1;
    header.length = length;
    send_header(f, header, extra, &fd, fd >= 0 ? 1 : 0);
    arrives(f, wanted);
}

static void memfd_bodies_are_checked(void **state)
{
    fixture *f = *state;
    int fd = file_with("{}"), pipe_ends[2], truncated = file_with("{}");

    body_in(f, fd, 2, "", XPP_IPC_BROKEN); /* not sealed: it could change while it is read */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, ALL_SEALS & ~F_SEAL_SEAL), 0);
    body_in(f, fd, 2, "", XPP_IPC_BROKEN); /* not every seal */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
    body_in(f, fd, 2, "", XPP_IPC_OK);
    body_in(f, fd, 1, "", XPP_IPC_BROKEN);
    body_in(f, fd, 3, "", XPP_IPC_BROKEN);
    body_in(f, fd, 0, "", XPP_IPC_BROKEN);
    body_in(f, fd, 2, "{}", XPP_IPC_BROKEN); /* a body in both places */
    body_in(f, -1, 2, "", XPP_IPC_BROKEN);   /* no descriptor */
    assert_int_equal(pipe(pipe_ends), 0);
    body_in(f, pipe_ends[0], 2, "", XPP_IPC_BROKEN);
    body_in(f, f->ends[0], 2, "", XPP_IPC_BROKEN);
    assert_int_equal(ftruncate(truncated, XPP_IPC_JSON_MAX + 1), 0);
    assert_int_equal(fcntl(truncated, F_ADD_SEALS, ALL_SEALS), 0);
    body_in(f, truncated, XPP_IPC_JSON_MAX + 1, "", XPP_IPC_BROKEN);
    close(fd);
    close(truncated);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void a_broken_packet_does_not_spoil_the_next(void **state)
{
    fixture *f = *state;

    send_raw(f->ends[0], "garbage", 7, NULL, 0);
    assert_int_equal(xpp_ipc_send(f->ends[0], XPP_IPC_PONG, NULL, NULL, 0), XPP_IPC_OK);
    arrives(f, XPP_IPC_BROKEN);
    arrives(f, XPP_IPC_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_message_arrives_as_it_was_sent),
        TEST(both_ends_close_on_exec),
        TEST(no_body_is_an_empty_object),
        TEST(long_bodies_travel_in_a_memfd),
        TEST(numbers_keep_every_bit),
        TEST(a_descriptor_can_be_taken_over),
        TEST(every_type_has_a_name),
        TEST(a_closed_end_is_told),
        TEST(what_was_sent_before_the_close_still_arrives),
        TEST(an_empty_non_blocking_socket_says_again),
        TEST(a_full_non_blocking_socket_says_again),
        TEST(something_that_is_no_socket_fails_with_errno),
        TEST(what_the_sender_may_not_send_is_refused_there),
        TEST(a_lack_of_descriptors_is_told),
        TEST(the_raw_header_of_these_tests_is_the_real_one),
        TEST(short_packets_are_broken),
        TEST(every_wrong_header_field_is_broken),
        TEST(bodies_that_are_no_objects_are_broken),
        TEST(a_document_of_the_greatest_depth_is_carried),
        TEST(packets_longer_than_allowed_are_broken),
        TEST(descriptors_that_were_not_announced_are_broken_and_closed),
        TEST(memfd_bodies_are_checked),
        TEST(a_broken_packet_does_not_spoil_the_next),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
