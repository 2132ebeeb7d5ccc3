"""openapi.json is a valid document, its examples fit its schemas, the C check says what python-jsonschema says, the tables
refuse what they cannot express, and docs/protocol.md names every key, endpoint and problem.

    test_schema.py XPP_CHECK_TOOL PROTOCOL_FOLDER DOCS_PROTOCOL_MD

Where python-jsonschema is not installed, what needs it is skipped and the rest runs.
"""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    from jsonschema import Draft202012Validator as Validator
except ImportError:
    Validator = None
needs_jsonschema = unittest.skipUnless(Validator, "python3-jsonschema is not installed")

TOOL, FOLDER, DOCS = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
sys.path.insert(0, str(FOLDER))
import generate  # noqa: E402

API = json.loads((FOLDER / "openapi.json").read_text())
SCHEMAS = API["components"]["schemas"]


def resolved(node):
    return generate.resolve(node, API)


JOB = resolved(SCHEMAS["JobRequest"])
PATH = {"scan": {"path": "/x.h5"}}

# What jsonschema cannot know: rules between members.  Good by the schema, refused by the check.
BEYOND = [
    {**PATH, "model": {"probe_modes": 2}},
    {**PATH, "probe": {"path": "/p"}, "recon": {"mode_schedule": [3]}},
    {**PATH, "recon": {"iterations": 5, "mode_schedule": [6]}},
    {**PATH, "devices": {"devices": ["cuda:0", "cuda:0"]}},
    {**PATH, "devices": {"devices": ["cpu", "cuda:0"]}},
    {**PATH, "metadata": "m" * 70000},
]


def set_at(document, path, value):
    """A copy of document with value at a path of keys and indices."""
    document = copy.deepcopy(document)
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return document


def places(value, path=()):
    """Every path in a document."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from places(child, path + (key,))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from places(child, path + (index,))
    if path:
        yield path


def mutations():
    """Each value of each example replaced by values of every kind, near and beyond every bound."""
    values = [None, True, False, "", "x", "/x", "cpu", "cuda:0", "auto", "pmace", [], {}, [1], ["cpu"], {"a": 1}, {"path": "/y"},
              -101, -100, -2, -1, 0, 0.05, 0.5, 1, 1.0, 1.5, 2, 3, 64, 65, 100, 101, 4096, 4097, 65536, 65537, 100000, 100001,
              86400, 86401, 1e6, 1000001, 2147483647, 2147483648, 1e-9, 1e300, [2, 2], [2, 2, 2], [0, 1], "n" * 256, "n" * 257,
              [{}], [{"algorithm": "refine_positions"}], [{}] * 33, {"k": "v"}]
    for example in JOB["examples"]:
        yield example
        for path in places(example):
            for value in values:
                yield set_at(example, path, value)
            if not isinstance(path[-1], int):
                yield set_at(example, path[:-1] + ("zz_unknown",), 1)


def verdicts(documents):
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    out = subprocess.run([TOOL], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in out]


class Schema(unittest.TestCase):
    @needs_jsonschema
    def test_every_schema_is_valid(self):
        for name, schema in SCHEMAS.items():
            with self.subTest(name):
                Validator.check_schema(resolved(schema))

    @needs_jsonschema
    def test_every_example_fits(self):
        seen = 0
        for name, schema in SCHEMAS.items():
            for example in schema.get("examples", []):
                with self.subTest(name):
                    Validator(resolved(schema)).validate(example)
                    seen += 1
        self.assertGreater(seen, 15)

    def test_every_document_has_an_example(self):
        served = set(re.findall(r'"schema": {"\$ref": "#/components/schemas/(\w+)"}', (FOLDER / "openapi.json").read_text()))
        missing = [name for name in served & set(SCHEMAS) if "examples" not in SCHEMAS[name] and name not in ("State", "JobId")]
        self.assertEqual(missing, [])

    @needs_jsonschema
    def test_every_default_fits(self):
        def walk(node, where):
            if isinstance(node, dict):
                if "default" in node:
                    with self.subTest(where):
                        Validator(node).validate(node["default"])
                for key, child in node.items():
                    if key not in ("default", "examples"):
                        walk(child, f"{where}/{key}")
        walk(JOB, "")

    def test_what_is_not_built_is_not_in_the_schema(self):
        for key in ("mapping", "preprocess", "selection", "live", "negatives"):
            self.assertNotIn(key, JOB["properties"]["scan"]["properties"])
        for path in API["paths"]:
            self.assertNotRegex(path, "checkpoint$")

    def test_every_fault_of_the_header_has_a_documented_status(self):
        header = (FOLDER / "include/xptychod/protocol.h").read_text()
        statuses = set(re.findall(r"X\([A-Z_]+, (\d+),\s*\"[a-z]", header))
        documented = {status for path in API["paths"].values() for method, call in path.items() if method != "parameters"
                      for status in call["responses"]}
        self.assertEqual(statuses - documented - {"405", "403", "500"}, set())  # those three are in the default answer

    def test_every_call_may_answer_a_problem(self):
        for path, calls in API["paths"].items():
            for method, call in calls.items():
                if method != "parameters":
                    with self.subTest(f"{method} {path}"):
                        self.assertEqual(call["responses"]["default"], {"$ref": "#/components/responses/Problem"})


@needs_jsonschema
class Check(unittest.TestCase):
    def test_agrees_with_jsonschema(self):
        documents = [document for document in mutations()]
        validator, disagreements, good = Validator(JOB), [], 0
        for document, errors in zip(documents, verdicts(documents), strict=True):
            valid = validator.is_valid(document)
            good += valid
            if valid != (errors == []) and not self.beyond(errors):
                disagreements.append((valid, document, errors))
        self.assertEqual(disagreements[:3], [])
        self.assertGreater(good, 200)
        self.assertGreater(len(documents) - good, 1000)

    @staticmethod
    def beyond(errors):
        """Whether every error is one of the rules between members."""
        rules = ("the probe starts with 1 mode", "a known probe is held fixed, so", "of a stage of", "only 'cpu' may be repeated",
                 "a job runs on one kind", "are carried, keep the rest")
        return bool(errors) and all(any(rule in error["detail"] for rule in rules) for error in errors)

    def test_refuses_what_jsonschema_cannot_see(self):
        for document, errors in zip(BEYOND, verdicts(BEYOND), strict=True):
            with self.subTest(str(document)[:80]):
                self.assertTrue(Validator(JOB).is_valid(document))
                self.assertEqual(len(errors), 1, errors)

    def test_pointers_lead_into_the_document(self):
        documents = [document for document in mutations()][::7]
        for document, errors in zip(documents, verdicts(documents), strict=True):
            for error in errors:
                at = document
                steps = [step.replace("~1", "/").replace("~0", "~") for step in error["pointer"].split("/")[1:]]
                for step in steps[:-1]:  # the last one may be what is missing
                    at = at[int(step)] if isinstance(at, list) else at[step]


class Generator(unittest.TestCase):
    def refused(self, change):
        document = copy.deepcopy(API)
        change(document["components"]["schemas"])
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder, "in.json"), pathlib.Path(folder, "out.c")
            source.write_text(json.dumps(document))
            run = subprocess.run([sys.executable, str(FOLDER / "generate.py"), str(source), str(target)], capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        return run.stderr

    def test_refuses_keywords_that_the_tables_cannot_express(self):
        self.assertIn("multipleOf", self.refused(lambda s: s["Scan"]["properties"]["saturation"].update(multipleOf=2)))
        self.assertIn("exclude each other", self.refused(lambda s: s["Scan"].update(allOf=[{"required": ["format"]}])))
        self.assertIn("other members allowed", self.refused(lambda s: s["Scan"].pop("additionalProperties")))
        self.assertIn("type", self.refused(lambda s: s["Scan"]["properties"]["saturation"].update(type="null")))


class Docs(unittest.TestCase):
    def leaves(self, schema):
        """Name and schema of every member of a job that holds no further members."""
        for choice in schema.get("oneOf", []):
            yield from self.leaves(choice)
        for name, child in schema.get("properties", {}).items():
            inside = list(self.leaves(child))
            yield from inside or [(name, child)]

    def test_name_every_key_of_a_job_with_its_range_and_default(self):
        """Some line names the key and has the numbers of its schema."""
        lines = DOCS.read_text().splitlines()
        checked = 0
        for key, schema in self.leaves(JOB):
            wanted = {schema[word] for word in ("minimum", "exclusiveMinimum", "maximum", "minItems", "maxItems", "default")
                      if isinstance(schema.get(word), (int, float)) and not isinstance(schema[word], bool)}
            wanted -= {2} if key in ("object_shape", "object_origin_m") else set()  # "two"
            wanted -= {0} if schema.get("type") == "array" else set()
            found = [set(map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", line))) for line in lines
                     if f"{key}`" in line]
            with self.subTest(key):
                self.assertTrue(any(wanted <= numbers for numbers in found), (wanted, found))
            checked += 1
        self.assertGreater(checked, 35)

    def test_name_every_endpoint(self):
        text = DOCS.read_text()
        self.assertEqual([path for path in API["paths"] if path not in text], [])

    def test_name_every_problem(self):
        header, text = (FOLDER / "include/xptychod/protocol.h").read_text(), DOCS.read_text()
        suffixes = re.findall(r"X\([A-Z_]+, \d+,\s*\"([a-z-]+)\"", header)
        self.assertGreater(len(suffixes), 15)
        self.assertEqual([suffix for suffix in suffixes if f"`{suffix}`" not in text], [])

    def test_name_every_event_state_and_reason(self):
        text = DOCS.read_text()
        words = SCHEMAS["Event"]["properties"]["type"]["enum"] + SCHEMAS["State"]["enum"] + SCHEMAS["Reason"]["enum"][1:]
        self.assertEqual([word for word in words if f"`{word}`" not in text], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
