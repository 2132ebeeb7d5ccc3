/* Topics and peers taken apart; every byte of both comes from outside. */
#include "wish.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOB "job/"
#define STATE "state/"

static bool take_token(xpd_wish *out, const char *text, size_t size)
{
    if (size > XPD_TOKEN_MAX)
        return false;
    for (size_t i = 0; i < size; i++)
        if (text[i] < 0x21 || text[i] > 0x7e) /* it becomes part of a header line */
            return false;
    memcpy(out->token, text, size);
    out->token[size] = '\0';
    return true;
}

bool xpd_wish_parse(xpd_wish *out, const char *data, size_t size)
{
    const size_t id_size = XPP_JOB_ID_SIZE - 1;
    size_t head;

    memset(out, 0, sizeof *out);
    if (size == 0 || (data[0] != 0 && data[0] != 1))
        return false;
    out->on = data[0] == 1;
    data++;
    size--;
    if (size >= strlen(STATE) && memcmp(data, STATE, strlen(STATE)) == 0) {
        head = strlen(STATE);
    } else {
        head = strlen(JOB) + id_size + 1;
        if (size < head || memcmp(data, JOB, strlen(JOB)) != 0 || data[head - 1] != '/')
            return false;
        memcpy(out->id, data + strlen(JOB), id_size);
        if (strlen(out->id) != id_size || !xpp_job_id_valid(out->id))
            return false;
    }
    memcpy(out->topic, data, head);
    return take_token(out, data + head, size - head);
}

void xpd_peer_decode(xpd_peer *out, const char *user_id)
{
    struct passwd entry, *found = NULL;
    char buffer[4096], *end = NULL;
    unsigned long uid = 0;
    bool has_uid = false;

    memset(out, 0, sizeof *out);
    if (user_id && strncmp(user_id, "uid:", 4) == 0 && user_id[4] >= '0' && user_id[4] <= '9') {
        errno = 0;
        uid = strtoul(user_id + 4, &end, 10);
        has_uid = *end == '\0' && errno == 0 && uid < (uid_t)-1;
        out->known = has_uid;
        if (has_uid && getpwuid_r((uid_t)uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
            snprintf(out->user, sizeof out->user, "%s", entry.pw_name);
        else
            snprintf(out->user, sizeof out->user, "%lu", uid);
    } else if (user_id && strncmp(user_id, "user:", 5) == 0 && user_id[5] &&
               strlen(user_id + 5) < sizeof out->user) {
        out->known = true;
        snprintf(out->user, sizeof out->user, "%s", user_id + 5);
        if (getpwnam_r(out->user, &entry, buffer, sizeof buffer, &found) == 0 && found) {
            uid = entry.pw_uid;
            has_uid = true;
        }
    }
    out->sees_all = has_uid && (uid == 0 || uid == geteuid());
}

bool xpd_peer_may_read(const xpd_peer *peer, const json_t *job)
{
    const char *owner = json_string_value(json_object_get(job, "user"));

    return peer->known && (peer->sees_all || (owner && strcmp(owner, peer->user) == 0));
}
