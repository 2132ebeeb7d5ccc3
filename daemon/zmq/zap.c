/* One REP socket; libzmq waits for each answer before it goes on with that connection. */
#include "zap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define PARTS_MAX 8
#define PART_MAX 256

struct xpd_zap {
    void *context, *socket;
    const char *keys_file;
    pthread_t thread;
};

typedef struct part {
    char data[PART_MAX + 1]; /* ends with a zero */
    size_t size;
} part;

/* Every part of one request; 0 = none will come any more. */
static int receive(void *socket, part parts[PARTS_MAX])
{
    int count = 0, more = 1;
    size_t size = sizeof more;

    while (more) {
        part *p = &parts[count < PARTS_MAX ? count : PARTS_MAX - 1];
        int n = zmq_recv(socket, p->data, PART_MAX, 0);

        if (n < 0)
            return errno == EINTR && count == 0 ? -1 : 0;
        p->size = n > PART_MAX ? PART_MAX : (size_t)n;
        p->data[p->size] = '\0';
        if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) != 0)
            return 0;
        count++;
    }
    return count;
}

static bool judge(const xpd_zap *z, const part *p, int count, char *user, size_t user_size)
{
    const char *domain = p[2].data, *address = p[3].data, *mechanism = p[5].data;
    char key[41], name[64];

    user[0] = '\0';
    if (strcmp(mechanism, "CURVE") == 0)
        return z->keys_file && count == 7 && p[6].size == 32 &&
               zmq_z85_encode(key, (const uint8_t *)p[6].data, 32) &&
               xpd_keys_find(z->keys_file, key, name, sizeof name) &&
               snprintf(user, user_size, "user:%s", name) < (int)user_size;
    if (strcmp(mechanism, "NULL") != 0)
        return false;
    if (strcmp(domain, XPD_ZAP_IPC) == 0)
        (void)xpd_zap_uid(address, user, user_size);
    return true;
}

static void *zap_main(void *argument)
{
    xpd_zap *z = argument;
    part parts[PARTS_MAX];
    int count;

    while ((count = receive(z->socket, parts)) != 0) {
        char user[80] = "";
        bool good;

        if (count < 0)
            continue;
        good = count >= 6 && count < PARTS_MAX && strcmp(parts[0].data, "1.0") == 0 &&
               judge(z, parts, count, user, sizeof user);
        if (!good)
            user[0] = '\0';
        zmq_send(z->socket, "1.0", 3, ZMQ_SNDMORE);
        zmq_send(z->socket, parts[count > 1].data, count > 1 ? parts[1].size : 0, ZMQ_SNDMORE);
        zmq_send(z->socket, good ? "200" : "400", 3, ZMQ_SNDMORE);
        zmq_send(z->socket, good ? "OK" : "not allowed", good ? 2 : 11, ZMQ_SNDMORE);
        zmq_send(z->socket, user, strlen(user), ZMQ_SNDMORE);
        zmq_send(z->socket, "", 0, 0);
    }
    zmq_close(z->socket);
    return NULL;
}

xpd_zap *xpd_zap_start(void *context, const char *keys_file)
{
    xpd_zap *z = calloc(1, sizeof *z);
    const int now = 0;

    if (!z)
        return NULL;
    z->context = context;
    z->keys_file = keys_file;
    z->socket = zmq_socket(context, ZMQ_REP);
    if (z->socket && zmq_setsockopt(z->socket, ZMQ_LINGER, &now, sizeof now) == 0 &&
        zmq_bind(z->socket, "inproc://zeromq.zap.01") == 0 &&
        pthread_create(&z->thread, NULL, zap_main, z) == 0) /* from here on the thread's socket */
        return z;
    if (z->socket)
        zmq_close(z->socket);
    free(z);
    return NULL;
}

void xpd_zap_stop(xpd_zap *z)
{
    if (!z)
        return;
    zmq_ctx_shutdown(z->context); /* ends the wait of its thread */
    pthread_join(z->thread, NULL);
    free(z);
}
