"""Browsers: one-time links, sessions by cookie, pages of other sites."""

import http.cookies
import re
import time

import pytest

import xptychod
from system_daemon import SystemDaemon

ADA, BOB = 4711, 4712
NAME = "ptycho.example.org"
DASHBOARD = "https://dashboard.example.org"


class Browser:
    """Cookies and the headers that a browser sends by itself."""

    def __init__(self, daemon, host=None, secure=False):
        self.daemon, self.cookies, self.secure = daemon, {}, secure
        self.host = host or daemon.ready["http"].removeprefix("http://")

    @property
    def origin(self):
        return f"http{'s' if self.secure else ''}://{self.host}"

    def send(self, method, path, body=None, **headers):
        """A header named with the value None is left out."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if method not in ("GET", "HEAD"):
            headers.setdefault("Origin", self.origin)
        if self.cookies:
            headers.setdefault("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        headers.setdefault("Host", self.host)
        answer = xptychod.Api(self.daemon.ready["http"]).call(method, path, body, {k: v for k, v in headers.items() if v is not None})
        for text in answer.headers.get_all("Set-Cookie") or []:
            for name, morsel in http.cookies.SimpleCookie(text).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return answer

    def login(self, path):
        answer = self.send("GET", path, Sec_Fetch_Site="none")
        assert answer.status == 303 and answer.headers["Location"] == "/", answer
        return self


@pytest.fixture(scope="module")
def shop(request, tmp_path_factory, scan_file):
    folder = tmp_path_factory.mktemp("shop")
    daemon = SystemDaemon(folder, f"host = {NAME}\norigin = {DASHBOARD}\n[limits]\nrate = 0\n[roots]\ndata = {scan_file.rpartition('/')[0]}\n")
    for token in (("ada", ADA), ("ada-reads", ADA, "read"), ("bob", BOB), ("operator", 0, "admin"), ("brief", ADA, "submit")):
        daemon.add_token(*token)
    try:
        yield daemon.start()
        daemon.stop()
    finally:
        print(daemon.log_tail())
        daemon.clean_up()


def link(daemon, name="ada", **body):
    answer = daemon.api_of(name).post("/v1/session/link", body)
    assert answer.status == 201 and answer.headers["Cache-Control"] == "no-store", answer
    return answer.json()


# --------------------------------------------------------------------------------------- links


def test_a_link_opens_a_session_once(shop):
    made = link(shop)
    assert made["scopes"] == ["read"] and made["kind"] == "link" and re.fullmatch(r"/login\?code=[0-9a-f]{64}", made["path"])
    assert [url for url in made["urls"] if url.startswith("https")] == [f"https://{NAME}{made['path']}"]
    assert shop.ready["http"] + made["path"] in made["urls"]
    browser = Browser(shop)
    answer = browser.send("GET", made["path"], Sec_Fetch_Site="none")
    assert answer.status == 303 and answer.headers["Location"] == "/"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and "Max-Age=43200" in cookie
    assert "Secure" not in cookie, "there is no TLS on this machine's own names, and a browser would drop it"
    assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
    who = browser.send("GET", "/v1/whoami").json()
    assert who["uid"] == ADA and who["scopes"] == ["read"] and who["token"] == "ada" and who["session"]
    again = Browser(shop).send("GET", made["path"])
    assert again.status == 401 and "used" in again.json()["detail"] and not again.headers["Set-Cookie"]


def test_the_page_behind_the_link_is_bare_and_may_be_framed_by_nobody(shop):
    answer = Browser(shop).send("GET", "/")
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/html") and "xptycho dashboard" in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"] and "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    browser = Browser(shop).login(link(shop)["path"])
    for path in re.findall(r'href="([^"]+)"', answer.text):
        assert browser.send("GET", path).status == 200, path


def test_through_a_proxy_the_cookie_is_for_tls_alone(shop):
    browser = Browser(shop, NAME, secure=True).login(link(shop)["path"])
    assert list(browser.cookies) == ["__Host-xptycho"]
    answer = Browser(shop, NAME, secure=True).send("GET", link(shop)["path"])
    assert re.search(r"; Secure(;|$)", answer.headers["Set-Cookie"])
    assert browser.send("GET", "/v1/whoami").json()["uid"] == ADA
    local = Browser(shop)
    local.cookies = dict(browser.cookies)
    assert local.send("GET", "/v1/whoami").status == 401, "that name of cookie counts under that name of host"


def test_what_looks_at_a_link_does_not_use_it_up(shop):
    made = link(shop)
    assert Browser(shop).send("HEAD", made["path"]).status == 204
    for wrong in ("/login", "/login?code=", "/login?code=" + "0" * 64, made["path"][:-1], made["path"] + "0", made["path"].upper().replace("/LOGIN?CODE", "/login?code")):
        answer = Browser(shop).send("GET", wrong)
        assert answer.status == 401 and not answer.headers["Set-Cookie"], (wrong, answer)
    stolen = Browser(shop).send("GET", made["path"], Host="evil.example")
    assert stolen.status == 403, "no other name leads here"
    framed = Browser(shop).send("GET", made["path"], Sec_Fetch_Site="cross-site")
    assert framed.status == 403 and "address bar" in framed.json()["detail"], "nobody is logged in by somebody else's page"
    Browser(shop).login(made["path"])


def test_a_link_is_void_after_its_time(shop):
    made, begin = link(shop, valid_s=1), time.monotonic()
    xptychod.wait_until(lambda: time.monotonic() > begin + 1.1, "a second is over", 10)
    late = Browser(shop).send("GET", made["path"])
    assert late.status == 401 and "too old" in late.json()["detail"]


def test_a_link_gives_no_more_than_its_maker_has(shop):
    for name, scope, pointer in (("ada", "admin", "/scope"), ("ada-reads", "submit", "/scope")):
        answer = shop.api_of(name).post("/v1/session/link", {"scope": scope})
        assert answer.status == 422 and answer.json()["errors"][0]["pointer"] == pointer, answer
    for body in ({"scope": "all"}, {"valid_s": 0}, {"valid_s": 3601}, {"valid_s": "60"}, {"ttl": 5}, {"scope": None}):
        assert shop.api_of("ada").post("/v1/session/link", body).status == 422, body
    assert shop.api_of("ada").post("/v1/session/link", []).status == 400
    assert link(shop, "ada-reads")["scopes"] == ["read"]
    assert link(shop, scope="submit")["scopes"] == ["read", "submit"]
    assert shop.unix.post("/v1/session/link", {"scope": "submit"}).json()["token"] is None


def test_the_cookie_that_a_browser_brings_is_not_taken_over(shop):
    browser = Browser(shop)
    name = f"xptycho-{shop.ready['http'].rpartition(':')[2]}"
    browser.cookies[name] = planted = "a" * 64
    assert browser.send("GET", "/v1/whoami").status == 401
    browser.login(link(shop)["path"])
    assert browser.cookies[name] != planted and len(browser.cookies[name]) == 64
    first = browser.cookies[name]
    assert browser.login(link(shop)["path"]).cookies[name] != first, "each login is a new session"
    twice = browser.send("GET", "/v1/whoami", Cookie=f"{name}={first}; {name}={browser.cookies[name]}")
    assert twice.status == 400 and "more than one session cookie" in twice.json()["detail"]


# ------------------------------------------------------------------------------------ sessions


def test_a_token_becomes_a_cookie_and_the_cookie_ends_on_request(shop):
    browser = Browser(shop)
    answer = browser.send("POST", "/v1/session", {}, Authorization=f"Bearer {shop.secrets['ada']}")
    assert answer.status == 201 and answer.json()["scopes"] == ["read", "submit"], answer
    assert shop.secrets["ada"] not in str(answer.headers) and browser.cookies
    kept = dict(browser.cookies)
    assert browser.send("GET", "/v1/whoami").json()["session"] == answer.json()["id"]
    assert browser.send("POST", "/v1/session", {}).status == 403, "a session is not made longer by itself"
    assert browser.send("POST", "/v1/session/link", {}).status == 403
    ended = browser.send("DELETE", "/v1/session")
    assert ended.status == 204 and not browser.cookies
    browser.cookies = kept
    over = browser.send("GET", "/v1/whoami")
    assert over.status == 401 and "over" in over.json()["detail"]


def test_sessions_are_listed_and_ended_by_their_user_and_the_administrator(shop):
    mine, other = Browser(shop).login(link(shop, scope="submit")["path"]), Browser(shop).login(link(shop, "bob")["path"])
    listed = mine.send("GET", "/v1/sessions").json()["sessions"]
    assert {s["user"] for s in listed} == {str(ADA)} and [s["current"] for s in listed].count(True) == 1
    everybody = shop.api_of("operator").get("/v1/sessions").json()["sessions"]
    foreign = next(s["id"] for s in everybody if s["user"] == str(BOB) and s["kind"] == "session")
    assert mine.send("DELETE", f"/v1/sessions/{foreign}").status == 404
    assert other.send("GET", "/v1/whoami").status == 200
    assert shop.api_of("operator").delete(f"/v1/sessions/{foreign}").status == 204
    assert other.send("GET", "/v1/whoami").status == 401
    current = next(s["id"] for s in listed if s["current"])
    assert shop.api_of("ada").delete(f"/v1/sessions/{current}").status == 204
    assert mine.send("GET", "/v1/whoami").status == 401
    assert shop.api_of("ada").delete(f"/v1/sessions/{current}").status == 404


def test_a_session_ends_with_the_token_that_made_it(shop):
    browser = Browser(shop).login(link(shop, "brief")["path"])
    waiting = link(shop, "brief")
    assert browser.send("GET", "/v1/whoami").status == 200
    before = shop.tokens.read_text()
    shop.tokens.write_text("".join(line + "\n" for line in before.splitlines() if not line.startswith("brief:")))
    try:
        assert shop.admin.post("/admin/reload").status == 200
        assert browser.send("GET", "/v1/whoami").status == 401
        assert Browser(shop).send("GET", waiting["path"]).status == 401
    finally:
        shop.tokens.write_text(before)
        assert shop.admin.post("/admin/reload").status == 200


def test_of_many_sessions_of_one_user_the_oldest_ends(shop):
    browsers = [Browser(shop).login(link(shop, "bob")["path"]) for _ in range(34)]
    assert [b.send("GET", "/v1/whoami").status for b in (browsers[0], browsers[1], browsers[2], browsers[33])] == [401, 401, 200, 200]
    assert Browser(shop).login(link(shop)["path"]).send("GET", "/v1/whoami").status == 200, "another user is not affected"


# ------------------------------------------------------------------------- pages of other sites


def test_what_changes_something_by_cookie_must_come_from_the_services_own_page(shop, scan_file):
    for browser in (Browser(shop), Browser(shop, NAME, secure=True)):
        browser.login(link(shop, scope="submit")["path"])
        job = {"scan": {"path": scan_file}, "recon": {"iterations": 1}}
        for origin in (None, "null", "http://evil.example", DASHBOARD, "https://" + browser.host + ".evil.example", browser.origin + "1"):
            refused = browser.send("POST", "/v1/jobs", job, Origin=origin)
            assert refused.status == 403, (origin, refused)
        assert browser.send("POST", "/v1/jobs", job, Sec_Fetch_Site="same-site").status == 403
        assert browser.send("GET", "/v1/jobs", Sec_Fetch_Site="cross-site").status == 403
        assert browser.send("GET", "/v1/jobs", Sec_Fetch_Site="same-site").status == 403, "another port of this machine is another site"
        assert browser.send("GET", "/v1/jobs", Origin=DASHBOARD).status == 403
        accepted = browser.send("POST", "/v1/jobs", job, Sec_Fetch_Site="same-origin")
        assert accepted.status == 201, accepted
    assert Browser(shop, NAME).login(link(shop, scope="submit")["path"]).send("POST", "/v1/jobs", {}).status == 403, "http:// is not the proxy's site"


def test_a_session_that_reads_changes_nothing(shop, scan_file):
    browser = Browser(shop).login(link(shop)["path"])
    assert browser.send("POST", "/v1/jobs", {"scan": {"path": scan_file}}).status == 403
    assert browser.send("GET", "/v1/jobs").status == 200


def test_a_cookie_is_nothing_on_the_unix_socket(shop):
    browser = Browser(shop).login(link(shop)["path"])
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    assert shop.unix.get("/v1/whoami", Cookie=cookie).json()["session"] is None


def ask_first(shop, path, origin, **headers):
    return xptychod.Api(shop.ready["http"]).call("OPTIONS", path, None, {"Origin": origin, "Access-Control-Request-Method": "POST",
                                                                        **{k.replace("_", "-"): v for k, v in headers.items()}})


def test_browsers_that_ask_first_are_told(shop):
    refused = ask_first(shop, "/v1/jobs", "http://evil.example")
    assert refused.status == 403 and "http.origin" in refused.json()["detail"]
    assert not refused.headers["Access-Control-Allow-Origin"]
    allowed = ask_first(shop, "/v1/jobs", DASHBOARD)
    assert allowed.status == 204 and allowed.headers["Access-Control-Allow-Origin"] == DASHBOARD
    assert allowed.headers["Access-Control-Allow-Methods"] == allowed.headers["Allow"] == "GET, HEAD, POST, OPTIONS"
    assert "Authorization" in allowed.headers["Access-Control-Allow-Headers"] and allowed.headers["Vary"] == "Origin"
    assert not allowed.headers["Access-Control-Allow-Credentials"]
    assert ask_first(shop, "/v1/nothing", DASHBOARD).status == 404
    assert ask_first(shop, "/v1/jobs", DASHBOARD, Host="evil.example").status == 403
    plain = xptychod.Api(shop.ready["http"]).call("OPTIONS", "/v1/queue")
    assert plain.status == 204 and plain.headers["Allow"] == "GET, HEAD, OPTIONS" and not plain.headers["Access-Control-Allow-Methods"]


def test_answers_to_an_allowed_site_say_so_and_to_others_not(shop):
    token = {"Authorization": f"Bearer {shop.secrets['ada']}"}
    api = xptychod.Api(shop.ready["http"])
    for path, status in (("/v1/queue", 200), ("/v1/jobs/none", 404), ("/v1/events?follow=0", 200)):
        answer = api.call("GET", path, None, {**token, "Origin": DASHBOARD})
        assert answer.status == status and answer.headers["Access-Control-Allow-Origin"] == DASHBOARD and answer.headers["Vary"] == "Origin"
        assert "ETag" in answer.headers["Access-Control-Expose-Headers"] and not answer.headers["Access-Control-Allow-Credentials"]
    nobody = api.call("GET", "/v1/queue", None, {"Origin": DASHBOARD})
    assert nobody.status == 401 and nobody.headers["Access-Control-Allow-Origin"] == DASHBOARD, "so that the page can read why"
    other = api.call("GET", "/v1/queue", None, token)
    assert other.status == 200 and other.headers["Vary"] == "Origin" and not other.headers["Access-Control-Allow-Origin"]
    for answer in (nobody, other):
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin", "nor as a picture or script of another site's page"
        assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Referrer-Policy"] == "no-referrer"


def test_no_code_and_no_cookie_is_in_the_log(shop):
    made = link(shop)
    browser = Browser(shop).login(made["path"])
    Browser(shop).send("GET", made["path"])
    browser.send("DELETE", "/v1/session")
    text = shop.log_text()
    assert made["id"] in text and "is opened" in text and "is ended" in text
    for secret in (made["path"].partition("=")[2], *browser.cookies.values(), *shop.secrets.values()):
        assert secret not in text
