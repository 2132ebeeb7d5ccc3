"""Make the C tables and texts of the protocol library from openapi.json.

    generate.py openapi.json OUT.c

Writes one C file: the tables of tables.h for the schema JobRequest, the text of openapi.json byte for byte, and the
JSON Schema of a job with its references resolved.  A keyword that the tables cannot express ends the build: what the
document says and what the program checks never differ.  Standard library only.
"""
import json
import sys

ROOT = "JobRequest"
# Judged by functions of check.c: glibc 2.36 frees twice in regcomp where memory is short.
PATTERNS = {"^/": "xpp_is_absolute", "^(cpu|cuda:[0-9]{1,4})$": "xpp_is_device"}
IGNORED = {"title", "description", "examples", "x-wanted"}  # said to people; x-wanted names what a pattern stands for
KNOWN = {
    "text": {"type", "minLength", "maxLength", "pattern"},
    "choice": {"enum", "const", "type"},
    "number": {"type", "minimum", "exclusiveMinimum", "maximum"},
    "boolean": {"type"},
    "object": {"type", "additionalProperties", "required", "properties", "allOf"},
    "map": {"type", "additionalProperties", "maxProperties", "propertyNames"},
    "array": {"type", "items", "minItems", "maxItems", "uniqueItems"},
    "one_of": {"oneOf", "discriminator"},
    "any": set(),
}


def resolve(node, document):
    """node with every reference replaced by what it names; members beside a reference go first."""
    if isinstance(node, list):
        return [resolve(item, document) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return {**resolve(target, document), **{k: v for k, v in node.items() if k != "$ref"}}
    return {key: value if key in ("default", "examples") else resolve(value, document) for key, value in node.items()}


def text(value):
    """A C string literal, cut into lines so that an editor and a compiler can hold it."""
    if value is None:
        return "NULL"
    data = value.encode()
    lines = [data[i:i + 96] for i in range(0, len(data), 96)] or [b""]
    return "\n    ".join('"' + "".join(escape(byte) for byte in line) + '"' for line in lines)


def escape(byte):
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 and byte != ord("?") else f"\\{byte:03o}"


class Tables:
    """C definitions, innermost first; each method returns the name or the initialiser of what it defined."""

    def __init__(self):
        self.lines, self.count, self.names = [], 0, []

    def define(self, kind, body):
        name = f"t{self.count}"
        self.count += 1
        self.lines.append(f"static const {kind.replace('@', name)} = {body};")
        return name

    def table(self, schema, where):
        required = set(schema.get("required", []))
        unknown = required - set(schema["properties"])
        if unknown or schema.get("additionalProperties") is not False:
            raise SystemExit(f"{where or ROOT}: required {sorted(unknown)} not listed, or other members allowed")
        rules = [self.rule(child, name, f"{where}.{name}" if where else name, name in required)
                 for name, child in schema["properties"].items()]
        pairs = [self.pair(entry, where) for entry in schema.get("allOf", [])]
        rules = self.define("xpp_rule @[]", "{" + ", ".join(rules) + "}")
        pair_name = self.define("xpp_pair @[]", "{" + ", ".join(pairs) + "}") if pairs else "NULL"
        name = self.define("xpp_table @", f"{{{text(where)}, {rules}, {len(schema['properties'])}, {pair_name}, {len(pairs)}}}")
        self.names.append(name)
        return name

    @staticmethod
    def pair(entry, where):
        if set(entry) != {"description", "not"} or set(entry["not"]) != {"required"} or len(entry["not"]["required"]) != 2:
            raise SystemExit(f"{where or ROOT}: allOf may only say that two members exclude each other, and why")
        first, second = entry["not"]["required"]
        return f"{{{text(first)}, {text(second)}, {text(entry['description'])}}}"

    def choices(self, values):
        return self.define("char *const @[]", "{" + ", ".join(text(value) for value in values) + ", NULL}")

    def rule(self, schema, name, where, required=False):
        """The initialiser of a rule."""
        kind = kind_of(schema, where)
        extra = set(schema) - KNOWN[kind] - IGNORED - {"default"}
        if extra:
            raise SystemExit(f"{where}: the tables cannot express {sorted(extra)}")
        fields = {"name": text(name), "maximum": "INFINITY", "minimum": "-INFINITY", "count_max": "SIZE_MAX"}
        if required:
            fields["required"] = "true"
        if "default" in schema:
            fields["fallback"] = text(json.dumps(schema["default"], separators=(",", ":")))
        getattr(self, "rule_" + kind)(schema, where, fields)
        return "{" + ", ".join(f".{key} = {value}" for key, value in fields.items()) + "}"

    def rule_text(self, schema, _where, fields):
        fields |= {"kind": "XPP_KIND_TEXT", "count_min": str(schema.get("minLength", 0))}
        if "maxLength" in schema:
            fields["count_max"] = str(schema["maxLength"])
        if "pattern" in schema:
            fields |= {"matches": PATTERNS[schema["pattern"]], "wanted": text(schema["x-wanted"])}

    def rule_choice(self, schema, _where, fields):
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        fields |= {"kind": "XPP_KIND_TEXT", "choices": self.choices(values)}

    def rule_number(self, schema, _where, fields):
        fields["kind"] = "XPP_KIND_INTEGER" if schema["type"] == "integer" else "XPP_KIND_NUMBER"
        for key, field in (("minimum", "minimum"), ("exclusiveMinimum", "minimum"), ("maximum", "maximum")):
            if key in schema:
                fields[field] = repr(float(schema[key]))
        if "exclusiveMinimum" in schema:
            fields["above_minimum"] = "true"

    def rule_boolean(self, _schema, _where, fields):
        fields["kind"] = "XPP_KIND_BOOLEAN"

    def rule_any(self, _schema, _where, fields):
        fields["kind"] = "XPP_KIND_ANY"

    def rule_object(self, schema, where, fields):
        table = self.table(schema, where)
        fields |= {"kind": "XPP_KIND_OBJECT", "table_count": "1",
                   "tables": self.define("xpp_table *const @[]", f"{{&{table}}}")}

    def rule_map(self, schema, where, fields):
        if set(schema["propertyNames"]) != {"minLength", "maxLength"} or schema["propertyNames"]["minLength"] != 1:
            raise SystemExit(f"{where}: names of a map have 1 to maxLength characters")
        fields |= {"kind": "XPP_KIND_MAP", "count_max": str(schema["maxProperties"]),
                   "name_max": str(schema["propertyNames"]["maxLength"]),
                   "items": "&" + self.define("xpp_rule @", self.rule(schema["additionalProperties"], f"an entry of {where}", where))}

    def rule_array(self, schema, where, fields):
        fields |= {"kind": "XPP_KIND_ARRAY", "count_min": str(schema.get("minItems", 0)), "count_max": str(schema["maxItems"]),
                   "items": "&" + self.define("xpp_rule @", self.rule(schema["items"], f"an entry of {where}", where))}
        if schema.get("uniqueItems"):
            fields["unique"] = "true"

    def rule_one_of(self, schema, where, fields):
        if "discriminator" in schema:
            selector = schema["discriminator"]["propertyName"]
            tables = [self.table(choice, where) for choice in schema["oneOf"]]
            fields |= {"kind": "XPP_KIND_ONE_OF", "selector": text(selector), "table_count": str(len(tables)),
                       "tables": self.define("xpp_table *const @[]", "{" + ", ".join("&" + t for t in tables) + "}")}
            return
        one, many = schema["oneOf"]
        if many.get("type") != "array" or many["items"] != one:
            raise SystemExit(f"{where}: oneOf without a discriminator is a value or an array of such values")
        fields |= {"kind": "XPP_KIND_ONE_OR_MORE", "count_min": str(many["minItems"]), "count_max": str(many["maxItems"]),
                   "items": "&" + self.define("xpp_rule @", self.rule(one, where, where))}


def kind_of(schema, where):
    if "enum" in schema or "const" in schema:
        return "choice"
    if "oneOf" in schema:
        return "one_of"
    kind = {"string": "text", "number": "number", "integer": "number", "boolean": "boolean", "array": "array",
            "object": "object" if "properties" in schema else "map", None: "any"}.get(schema.get("type"))
    if kind is None:
        raise SystemExit(f"{where}: type {schema['type']!r} is not known to the tables")
    return kind


def main(source, target):
    with open(source, encoding="utf-8") as file:
        raw = file.read()
    document = json.loads(raw)
    schema = resolve(document["components"]["schemas"][ROOT], document)
    tables = Tables()
    root = tables.rule(schema, "", "")
    served = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:xptychod:schema:job", **schema}
    with open(target, "w", encoding="ascii") as file:
        file.write('/* Made by generate.py from openapi.json; not to be edited. */\n'
                   '#include "tables.h"\n\n#include <math.h>\n#include <stdint.h>\n\n')
        file.write("\n".join(tables.lines))
        file.write(f"\n\nconst xpp_rule xpp_job_rule = {root};\n")
        file.write("const xpp_table *const xpp_tables[] = {" + ", ".join("&" + name for name in tables.names) + ", NULL};\n")
        file.write(f"const char xpp_openapi_text[] =\n    {text(raw)};\n")
        file.write(f"const char xpp_schema_job_text[] =\n    {text(json.dumps(served, separators=(',', ':')) + chr(10))};\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
