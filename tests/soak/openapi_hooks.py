"""For schemathesis: a stream that is followed never ends, so every stream is asked for what exists now."""

import schemathesis
from schemathesis.specs.openapi.negative import mutations

# Of JSON Schema's draft 4, where exclusiveMinimum is a flag beside minimum; here it is a number, as OpenAPI 3.1 has it, and may stand
# alone.  With the entries schemathesis 3.39.16 looks for a minimum that is not there as soon as it negates one of them (KeyError).
mutations.DEPENDENCIES.clear()


def short(text):
    """One cookie of at most 2,000 bytes, and more of it than a quotation mark: 8,000 bytes, or hundreds of small cookies (a comma parts
    them as well), do not fit into the memory of the library, and a value that is one quotation mark, or one and a NUL, confuses it; it
    refuses them (431) in words of its own."""
    text = str(text).partition("\0")[0].replace(";", "").replace(",", "").encode(errors="ignore")[:2000].decode(errors="ignore")
    return "" if text.strip() == '"' else text


@schemathesis.hook
def before_call(context, case):
    if case.path.endswith("/events"):
        case.query = {**(case.query or {}), "follow": "0"}
    if case.cookies:
        case.cookies = {name: short(value) for name, value in case.cookies.items() if isinstance(value, str)}
    for name in [name for name in case.headers or {} if name.lower() == "cookie"]:
        case.headers[name] = short(case.headers[name])
    if case.headers:  # a long poll waits as long as it is told to
        for name in [name for name in case.headers if name.lower() == "prefer"]:
            del case.headers[name]
