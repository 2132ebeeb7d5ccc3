/* See bridge.h. */
#include "bridge.h"

#include "http.h"
#include "log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS 30000

static void on_exit_(xpd_child *child, int wait_status)
{
    xpd_bridge *bridge = child->context;
    char how[128];

    if (child->b->stopping)
        return;
    xpd_exit_text(how, sizeof how, wait_status);
    unlink(bridge->ready_file); /* its addresses are those of the dead one */
    bridge->router[0] = bridge->pub[0] = '\0';
    child->b->addresses_changed = true;
    xpd_log(XPD_LOG_WARNING, NULL, "xptycho-zmq %s; it is started again in %lld ms", how,
            (long long)bridge->backoff_ms);
    if (xpd_now_ms() - bridge->started_ms > 60000)
        bridge->backoff_ms = BACKOFF_FIRST_MS;
    xpd_timer_set(&child->b->loop, &bridge->restart, bridge->backoff_ms);
    bridge->backoff_ms =
        bridge->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : bridge->backoff_ms * 2;
}

static void start(void *context)
{
    xpd_bridge *bridge = context;
    xpd_broker *b = bridge->child.b;
    char broker[PATH_MAX + 8];
    xpd_error err = XPD_ERROR_INIT;

    snprintf(broker, sizeof broker, "unix:%s", xpd_http_unix_path(b->http));
    const char *arguments[16] = {
        "--broker",        broker,         "--router",        b->config.zmq_router, "--pub",
        b->config.zmq_pub, "--ready-file", bridge->ready_file};
    const char *token = b->config.zmq_token_file ? b->config.zmq_token_file
                        : b->config.user         ? b->config.token_file
                                                 : NULL;
    size_t count = 8;
    if (token) {
        arguments[count++] = "--token-file";
        arguments[count++] = token;
    }
    if (b->config.zmq_curve_secret) {
        arguments[count++] = "--curve-secret";
        arguments[count++] = b->config.zmq_curve_secret;
        arguments[count++] = "--curve-keys";
        arguments[count++] = b->config.zmq_curve_keys;
    }
    unlink(bridge->ready_file);
    bridge->started_ms = xpd_now_ms();
    if (!xpd_child_start(&bridge->child, b->config.zmq_program, arguments, false, 200, &err)) {
        xpd_log(XPD_LOG_ERROR, NULL, "%s", err.text);
        xpd_timer_set(&b->loop, &bridge->restart, BACKOFF_MAX_MS);
    }
}

bool xpd_bridge_create(xpd_broker *b)
{
    if (!b->config.zmq_router)
        return true;
    xpd_bridge *bridge = calloc(1, sizeof *bridge);
    if (!bridge)
        return false;
    bridge->child = (xpd_child){
        .b = b, .name = "xptycho-zmq", .source.fd = -1, .on_exit = on_exit_, .context = bridge};
    bridge->restart = (xpd_timer){.fire = start, .context = bridge};
    bridge->backoff_ms = BACKOFF_FIRST_MS;
    snprintf(bridge->ready_file, sizeof bridge->ready_file, "%s/zmq.json", b->config.runtime_dir);
    b->bridge = bridge;
    start(bridge);
    return true;
}

bool xpd_bridge_ready(xpd_bridge *bridge)
{
    json_t *doc = json_load_file(bridge->ready_file, 0, NULL);
    const char *router = json_string_value(json_object_get(doc, "zmq_router")),
               *pub = json_string_value(json_object_get(doc, "zmq_pub")),
               *curve = json_string_value(json_object_get(doc, "curve_public"));

    if (router && pub) {
        snprintf(bridge->router, sizeof bridge->router, "%s", router);
        snprintf(bridge->pub, sizeof bridge->pub, "%s", pub);
        snprintf(bridge->curve_public, sizeof bridge->curve_public, "%s", curve ? curve : "");
    }
    json_decref(doc);
    return bridge->router[0] != '\0';
}

bool xpd_bridge_alive(const xpd_bridge *bridge)
{
    return bridge && bridge->child.pid > 0;
}

void xpd_bridge_quit(xpd_bridge *bridge, int64_t delay_ms)
{
    if (!bridge)
        return;
    xpd_timer_cancel(&bridge->restart);
    xpd_child_signal(&bridge->child, SIGTERM);
    xpd_child_kill_after(&bridge->child, delay_ms);
}

void xpd_bridge_destroy(xpd_bridge *bridge)
{
    if (!bridge)
        return;
    xpd_timer_cancel(&bridge->restart);
    unlink(bridge->ready_file);
    free(bridge);
}
