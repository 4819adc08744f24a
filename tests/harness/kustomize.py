"""Renders the part of kustomize that deploy/k8s uses, for machines without kubectl.

Known: resources, components, namespace, configMapGenerator (literals, files, merge), patches (strategic merge, by file
or inline, with a target). Anything else is refused. `tests/deploy/test_kubectl.py` compares it with kubectl.
"""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
CLUSTER_KINDS = {"Namespace"}
_FIELDS = {"apiVersion", "kind", "resources", "components", "namespace", "configMapGenerator", "patches"}
# The fields that identify an entry of a list; other lists are replaced as a whole.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
}
_HASH_LETTERS = str.maketrans("013ae", "ghkmt")


class KustomizeError(Exception):
    """A kustomization uses what this renderer does not know, or names what does not exist."""


def render(folder: Path) -> list[Manifest]:
    """Return the objects that `kubectl kustomize` prints for a folder, in no particular order."""
    objects = _accumulate(folder, [])
    renamed = {}
    for each in objects:
        if each.pop("_generated", False):
            name = each["metadata"]["name"]
            renamed[_namespace(each), name] = each["metadata"]["name"] = f"{name}-{_hash(each)}"
    for each in objects:
        _rename(each, _namespace(each), renamed)
    return objects


def _accumulate(folder: Path, objects: list[Manifest]) -> list[Manifest]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := kustomization.keys() - _FIELDS:
        raise KustomizeError(f"{folder}: {sorted(unknown)}")
    own = list(objects) if kustomization["kind"] == "Component" else []
    for name in kustomization.get("resources", ()):
        _add(own, _load(folder / name))
    for generator in kustomization.get("configMapGenerator", ()):
        _generate(own, folder, generator)
    for name in kustomization.get("components", ()):
        own = _accumulate(folder / name, own)
    for patch in kustomization.get("patches", ()):
        _patch(own, folder, patch)
    if namespace := kustomization.get("namespace"):
        for each in own:
            if each["kind"] not in CLUSTER_KINDS:
                each["metadata"]["namespace"] = namespace
    return own


def _load(place: Path) -> list[Manifest]:
    if place.is_dir():
        return _accumulate(place, [])
    return [document for document in yaml.safe_load_all(place.read_text()) if document]


def _add(objects: list[Manifest], more: list[Manifest]) -> None:
    known = {_identity(each) for each in objects}
    for each in more:
        if _identity(each) in known:
            raise KustomizeError(f"twice: {_identity(each)}")
        objects.append(each)


def _identity(manifest: Manifest) -> tuple[str, str, str]:
    return manifest["kind"], _namespace(manifest), manifest["metadata"]["name"]


def _namespace(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("namespace", ""))


def _generate(objects: list[Manifest], folder: Path, generator: Manifest) -> None:
    data = dict(literal.split("=", 1) for literal in generator.get("literals", ()))
    data |= {name: (folder / name).read_text() for name in generator.get("files", ())}
    metadata = {key: generator[key] for key in ("name", "namespace") if key in generator}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "_generated": True}
    if generator.get("behavior", "create") != "merge":
        _add(objects, [made])
        return
    found = [each for each in objects if _identity(each) == _identity(made)]
    if len(found) != 1:
        raise KustomizeError(f"nothing to merge with: {_identity(made)}")
    found[0]["data"] |= data


def _patch(objects: list[Manifest], folder: Path, patch: Manifest) -> None:
    text = patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text()
    change = {
        key: value for key, value in yaml.safe_load(text).items() if key not in ("apiVersion", "kind", "metadata")
    }
    target = patch["target"]
    matched = [
        each
        for each in objects
        if each["kind"] == target["kind"] and target.get("name", each["metadata"]["name"]) == each["metadata"]["name"]
    ]
    if not matched:
        raise KustomizeError(f"no target: {target}")
    for each in matched:
        _merge(each, copy.deepcopy(change))


def _merge(into: Manifest, change: Manifest) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list) and key in _MERGE_KEYS:
            _merge_lists(into[key], value, _MERGE_KEYS[key])
        else:
            into[key] = value


def _merge_lists(into: list[Manifest], change: list[Manifest], key: str) -> None:
    """Merge entries of the same key. The patch's entries stand first, in its order."""
    first = []
    for value in change:
        same = next((each for each in into if each.get(key) == value[key]), None)
        if same is not None:
            into.remove(same)
            _merge(same, value)
        first.append(value if same is None else same)
    into[:0] = first


def _hash(manifest: Manifest) -> str:
    content = {"data": manifest["data"], "kind": "ConfigMap", "name": ""}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(text.encode()).hexdigest()[:10].translate(_HASH_LETTERS)


def _rename(value: Any, namespace: str, renamed: dict[tuple[str, str], str]) -> None:
    if isinstance(value, list):
        for each in value:
            _rename(each, namespace, renamed)
    elif isinstance(value, dict):
        for key, child in value.items():
            if key in ("configMapRef", "configMap", "configMapKeyRef") and "name" in child:
                child["name"] = renamed.get((namespace, child["name"]), child["name"])
            else:
                _rename(child, namespace, renamed)
