/* One table says which verb is which HTTP call and which members it takes. */
#include "verb.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xptychod/protocol.h"

#define PARAMS_MAX 3

typedef struct verb {
    const char *name, *method, *path; /* %s = the job's id */
    bool id, body;
    xpd_answer answer;
    const char *query;              /* always there */
    const char *params[PARAMS_MAX]; /* members that become query parameters */
} verb;

static const verb verbs[] = {
    {"submit", "POST", "/v1/jobs", false, true, XPD_ANSWER_JSON, NULL, {"probe"}},
    {"dry_run", "POST", "/v1/jobs", false, true, XPD_ANSWER_JSON, "dry_run=true", {"probe"}},
    {"list", "GET", "/v1/jobs", false, false, XPD_ANSWER_JSON, NULL, {"state", "limit", "cursor"}},
    {"show", "GET", "/v1/jobs/%s", true, false, XPD_ANSWER_JSON, NULL, {NULL}},
    {"events", "GET", "/v1/jobs/%s/events", true, false, XPD_ANSWER_EVENTS, "follow=0", {"from"}},
    {"cancel", "POST", "/v1/jobs/%s/cancel", true, false, XPD_ANSWER_JSON, NULL, {NULL}},
    {"delete", "DELETE", "/v1/jobs/%s", true, false, XPD_ANSWER_JSON, NULL, {NULL}},
    {"log", "GET", "/v1/jobs/%s/log", true, false, XPD_ANSWER_TEXT, NULL, {"tail"}},
    {"rerun", "POST", "/v1/jobs/%s/rerun", true, true, XPD_ANSWER_JSON, NULL, {NULL}},
    {"result", "GET", "/v1/jobs/%s/result", true, false, XPD_ANSWER_JSON, NULL, {NULL}},
    {"queue", "GET", "/v1/queue", false, false, XPD_ANSWER_JSON, NULL, {NULL}},
    {"devices", "GET", "/v1/devices", false, false, XPD_ANSWER_JSON, NULL, {NULL}},
    {"version", "GET", "/v1/version", false, false, XPD_ANSWER_JSON, NULL, {NULL}},
};
#define VERBS (sizeof verbs / sizeof verbs[0])

static const verb *verb_find(const char *name)
{
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static json_t *refuse(xpp_fault fault, const char *detail)
{
    return xpp_problem(fault, detail, NULL, NULL);
}

static json_t *refuse_verb(const char *name)
{
    char detail[512];
    size_t used =
        (size_t)snprintf(detail, sizeof detail, "verb '%.40s' is not known; there are", name);

    for (size_t i = 0; i < VERBS && used < sizeof detail; i++)
        used += (size_t)snprintf(detail + used, sizeof detail - used, "%s %s", i ? "," : "",
                                 verbs[i].name);
    return refuse(XPP_FAULT_BAD_REQUEST, detail);
}

/* Visible ASCII only: it becomes part of a header line. */
static bool is_header_value(const char *text, size_t size, size_t max)
{
    if (size == 0 || size > max)
        return false;
    for (size_t i = 0; i < size; i++)
        if (text[i] < 0x21 || text[i] > 0x7e)
            return false;
    return true;
}

/* Every member the verb does not take, in one answer. */
static json_t *check_members(const verb *v, json_t *request)
{
    json_t *errors = json_array();
    const char *key;
    json_t *value;

    json_object_foreach (request, key, value) {
        bool known = strcmp(key, "verb") == 0 || strcmp(key, "token") == 0 ||
                     (v->id && strcmp(key, "id") == 0) || (v->body && strcmp(key, "body") == 0) ||
                     (v->body && strcmp(key, "idempotency_key") == 0);

        for (int i = 0; i < PARAMS_MAX && v->params[i]; i++)
            known = known || strcmp(key, v->params[i]) == 0;
        if (!known && errors) {
            char pointer[80];

            snprintf(pointer, sizeof pointer, "/%.60s", key);
            xpp_errors_add(errors, pointer, "verb '%s' takes no member '%.60s'", v->name, key);
        }
    }
    if (errors && json_array_size(errors) == 0) {
        json_decref(errors);
        return NULL;
    }
    return xpp_problem(XPP_FAULT_BAD_REQUEST, "the request has members that its verb does not take",
                       errors, NULL);
}

static bool append(xpd_call *call, const char *text)
{
    size_t used = strlen(call->path), size = strlen(text);

    if (used + size >= sizeof call->path)
        return false;
    memcpy(call->path + used, text, size + 1);
    return true;
}

static bool append_query(xpd_call *call, const char *name, const char *value)
{
    char *escaped = curl_easy_escape(NULL, value, 0);
    bool ok = escaped && append(call, strchr(call->path, '?') ? "&" : "?") && append(call, name) &&
              append(call, "=") && append(call, escaped);

    curl_free(escaped);
    return ok;
}

/* A query parameter is a number or a text, or an array of texts: the parameter several times. */
static json_t *add_param(xpd_call *call, const char *name, const json_t *value)
{
    char detail[160];

    if (json_is_integer(value)) {
        char number[32];

        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        if (append_query(call, name, number))
            return NULL;
    } else if (json_is_string(value)) {
        if (append_query(call, name, json_string_value(value)))
            return NULL;
    } else if (json_is_array(value)) {
        bool ok = true;

        for (size_t i = 0; ok && i < json_array_size(value); i++) {
            const json_t *item = json_array_get(value, i);

            ok = json_is_string(item) && append_query(call, name, json_string_value(item));
        }
        if (ok)
            return NULL;
    }
    snprintf(detail, sizeof detail,
             "member '%s' is not usable; give a number, a short text or a few texts", name);
    return refuse(XPP_FAULT_BAD_REQUEST, detail);
}

static json_t *take_token(xpd_call *call, const json_t *request)
{
    const json_t *token = json_object_get(request, "token");
    const char *text = json_string_value(token);

    if (!token)
        return refuse(XPP_FAULT_UNAUTHENTICATED,
                      "the request has no token; give the caller's own in member 'token'");
    if (!text || !is_header_value(text, json_string_length(token), XPD_TOKEN_MAX))
        return refuse(XPP_FAULT_UNAUTHENTICATED,
                      "member 'token' is not a token; give 1 to 512 visible ASCII characters");
    memcpy(call->token, text, json_string_length(token) + 1);
    return NULL;
}

static json_t *take_path(xpd_call *call, const verb *v, const json_t *request)
{
    const json_t *id = json_object_get(request, "id");
    json_t *problem;

    call->method = v->method;
    call->answer = v->answer;
    if (v->id) {
        const char *text = json_string_value(id);
        const char *rest = strstr(v->path, "%s") + 2;

        if (!id)
            return refuse(XPP_FAULT_BAD_REQUEST, "the verb needs member 'id', a job's id");
        if (!text || !xpp_job_id_valid(text))
            return refuse(
                XPP_FAULT_NOT_FOUND,
                "member 'id' is not a job's id; give the 26 characters that submit answered");
        snprintf(call->path, sizeof call->path, "%.*s%s%s", (int)(rest - 2 - v->path), v->path,
                 text, rest);
    } else {
        snprintf(call->path, sizeof call->path, "%s", v->path);
    }
    if (v->query)
        (void)(append(call, "?") && append(call, v->query));
    for (int i = 0; i < PARAMS_MAX && v->params[i]; i++) {
        const json_t *value = json_object_get(request, v->params[i]);

        if (value && (problem = add_param(call, v->params[i], value)))
            return problem;
    }
    return NULL;
}

static json_t *take_body(xpd_call *call, const verb *v, const json_t *request)
{
    const json_t *body = json_object_get(request, "body");
    const json_t *key = json_object_get(request, "idempotency_key");

    if (v->body && !v->id && !body)
        return refuse(XPP_FAULT_BAD_REQUEST, "the verb needs member 'body', the job document");
    if (key) {
        const char *text = json_string_value(key);

        if (!text ||
            !is_header_value(text, json_string_length(key), sizeof call->idempotency_key - 1))
            return refuse(
                XPP_FAULT_BAD_REQUEST,
                "member 'idempotency_key' is not usable; give 1 to 255 visible ASCII characters");
        memcpy(call->idempotency_key, text, json_string_length(key) + 1);
    }
    if (body) {
        call->body = xpp_dump(body, JSON_COMPACT | JSON_ENCODE_ANY);
        if (!call->body)
            return refuse(XPP_FAULT_UNAVAILABLE, "memory is exhausted");
    }
    return NULL;
}

json_t *xpd_call_decode(xpd_call *out, const char *text, size_t size)
{
    json_t *problem = NULL;
    json_t *request = xpp_parse(text, size, &problem);
    const char *name;
    const verb *v;

    memset(out, 0, sizeof *out);
    if (!request)
        return problem;
    name = json_string_value(json_object_get(request, "verb"));
    if (!json_is_object(request) || !name)
        problem = refuse(XPP_FAULT_BAD_REQUEST, "the request has no text member 'verb'; send "
                                                "{\"verb\": ..., \"token\": ..., \"id\": ...}");
    else if (!(v = verb_find(name)))
        problem = refuse_verb(name);
    else if (!(problem = take_token(out, request)) && !(problem = check_members(v, request)) &&
             !(problem = take_path(out, v, request)))
        problem = take_body(out, v, request);
    json_decref(request);
    if (problem)
        xpd_call_release(out);
    return problem;
}

void xpd_call_release(xpd_call *call)
{
    free(call->body);
    call->body = NULL;
}

static bool is_json(const char *text, size_t size)
{
    json_t *value = xpp_load(text, size, JSON_DECODE_ANY, NULL);

    json_decref(value);
    return value != NULL;
}

/* Complete lines only; a torn last one is left for the next request. */
static void print_events(FILE *out, const char *body, size_t size, bool cut)
{
    const char *between = "";

    fputs("{\"events\":[", out);
    for (size_t at = 0; at < size;) {
        const char *line = body + at, *end = memchr(line, '\n', size - at);

        if (!end)
            break;
        if (is_json(line, (size_t)(end - line))) { /* an empty line is a heartbeat */
            fprintf(out, "%s%.*s", between, (int)(end - line), line);
            between = ",";
        }
        at += (size_t)(end - line) + 1;
    }
    fprintf(out, "],\"more\":%s}", cut ? "true" : "false");
}

/* Prints the body of an answer; NULL, or the problem that takes its place.  JSON is handed on as
 * the broker wrote it, so numbers keep their digits. */
static json_t *print_body(FILE *out, xpd_answer kind, bool good, const char *body, size_t size,
                          bool cut)
{
    if (good && kind == XPD_ANSWER_EVENTS) {
        print_events(out, body, size, cut);
    } else if (cut) {
        return refuse(XPP_FAULT_TOO_LARGE,
                      "the answer is longer than a message may be; ask for less");
    } else if (good && kind == XPD_ANSWER_TEXT) {
        json_t *text = json_pack("{s:s%}", "text", body, size);

        if (!text)
            return refuse(XPP_FAULT_INTERNAL, "the text is not UTF-8; fetch it over HTTP");
        json_dumpf(text, out, JSON_COMPACT);
        json_decref(text);
    } else if (size == 0) {
        fputs("null", out);
    } else if (is_json(body, size)) {
        fwrite(body, 1, size, out);
    } else {
        return refuse(XPP_FAULT_INTERNAL, "the broker's answer is not JSON");
    }
    return NULL;
}

char *xpd_answer_problem(json_t *problem)
{
    json_int_t status = json_integer_value(json_object_get(problem, "status"));
    json_t *answer = json_pack("{s:I, s:o?}", "status", status ? status : 500, "body", problem);
    char *text = answer ? xpp_dump(answer, JSON_COMPACT) : NULL;

    json_decref(answer);
    return text;
}

char *xpd_answer_encode(xpd_answer kind, long status, const char *body, size_t size, bool cut)
{
    char *text = NULL;
    size_t room = 0;
    FILE *out = open_memstream(&text, &room);
    json_t *problem;
    bool whole;

    if (!out)
        return NULL;
    fprintf(out, "{\"status\":%ld,\"body\":", status);
    problem = print_body(out, kind, status < 400, body, size, cut);
    fputc('}', out);
    whole = !ferror(out);
    whole = fclose(out) == 0 && whole;
    if (problem || !whole) {
        free(text);
        text = problem ? xpd_answer_problem(problem) : NULL;
    }
    return text;
}
