"""The parts of a vLLM import that need no tree: a hash of pages, element types, private packages, arguments kept."""

import builtins
import json
import subprocess
import sys

import pytest
import torch

from stress.engine.private_modules import PrivateModules
from stress.engine.stand_in import StandIn, StandInUsed, seal, unseal
from stress.engine.vllm.element_types import ITEM_SIZES, torch_substitute
from stress.engine.vllm.features import accepted
from stress.engine.vllm.substitutes import NONE_HASH, page_hash

PAGES = [
    (NONE_HASH, (1, 2), None),
    (NONE_HASH, (1, 2, 0), None),
    (NONE_HASH, (12,), None),
    (NONE_HASH, (1,), (2,)),
    (NONE_HASH, (1, 2), ()),
    (NONE_HASH, (1, 2), ("",)),
    (NONE_HASH, (1, 2), ("1",)),
    (NONE_HASH, (1, 2), (b"1",)),
    (NONE_HASH, (1, 2), (1,)),
    (NONE_HASH, (1, 2), (("1", 1),)),
    (NONE_HASH, (1, 2), ("1", 1)),
    (NONE_HASH[:-1], (NONE_HASH[-1], 1, 2), None),
    (b"", (1, 2), None),
    (None, (1, 2), None),
]


@pytest.fixture(autouse=True)
def unsealed():
    unseal()
    yield
    unseal()


def run(source, importer):
    """What the source's names are, where its imports go to `importer`."""
    names = {"__builtins__": {**vars(builtins), "__import__": importer}}
    exec(source, names)
    return names


def test_different_pages_have_different_hashes():
    hashes = [page_hash(page) for page in PAGES]
    assert {type(value) for value in hashes} == {bytes}
    assert len(set(hashes)) == len(PAGES)
    assert page_hash((NONE_HASH, [1, 2], None)) == page_hash(PAGES[0])


def test_a_hash_is_the_same_in_another_process():
    code = "from stress.engine.vllm.substitutes import NONE_HASH as none, page_hash;"
    code += "print(page_hash((none, (1, 2), ('salt',))).hex())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == page_hash((NONE_HASH, (1, 2), ("salt",))).hex(), done.stderr


def test_what_has_no_encoding_is_not_hashed_by_its_address():
    with pytest.raises(TypeError):
        page_hash((NONE_HASH, (1,), (object(),)))


@pytest.mark.parametrize("name", ITEM_SIZES)
def test_an_element_has_the_size_that_torch_gives_it(name):
    substitute = torch_substitute("")
    ours = getattr(substitute, name)
    assert isinstance(ours, substitute.dtype)
    assert repr(ours) == f"torch.{name}"
    assert substitute.tensor([], dtype=ours).element_size() == ours.itemsize
    if hasattr(torch, name):  # a torch of long ago has fewer
        assert ours.itemsize == torch.tensor([], dtype=getattr(torch, name)).element_size()


@pytest.mark.parametrize("name", ["double", "float", "half", "long", "int", "short"])
def test_an_element_type_s_other_name_is_the_same_type(name):
    substitute = torch_substitute("")
    assert repr(getattr(substitute, name)) == repr(getattr(torch, name))


def test_the_rest_of_torch_refuses():
    substitute = torch_substitute("the cure")
    seal()
    with pytest.raises(StandInUsed, match=r"torch\.zeros was called.*; the cure"):
        substitute.zeros(3)
    with pytest.raises(NotImplementedError, match="3 elements"):
        substitute.tensor([1, 2, 3], dtype=substitute.int64)


def test_each_form_of_import_gets_a_private_module():
    before = set(sys.modules)
    importer = PrivateModules(["msgspec"], {}, "")
    source = "import nowhere.a.b, nowhere.c as c\nfrom nowhere.a import b as name\nfrom other import part\n"
    names = run(source + "import json, msgspec.json\nfrom os import path\n", importer)
    assert repr(names["name"]) == "<stand-in for nowhere.a.b>"
    assert isinstance(names["part"], StandIn) and isinstance(names["c"], StandIn)
    assert names["json"] is json and names["msgspec"] is sys.modules["msgspec"]
    assert importer.stand_ins == ("nowhere", "nowhere.a", "other")
    assert {name for name in set(sys.modules) - before if name.startswith(("nowhere", "other"))} == set()


def test_a_function_s_late_import_is_private_too():
    importer = PrivateModules(["torch"], {"torch": torch_substitute("")}, "")
    late = run("def late():\n    import torch\n    return torch\n", importer)["late"]
    seal()
    assert late() is not torch
    assert late().float16.itemsize == 2
    assert importer.stand_ins == ()


def test_a_private_module_has_no_real_part():
    """numpy.linalg is in sys.modules, and is no part of a stand-in for numpy."""
    assert "numpy.linalg" in sys.modules
    assert isinstance(run("import numpy", PrivateModules([], {}, ""))["numpy"].linalg, StandIn)


def test_accepted_keeps_what_a_function_takes():
    def function(a, *, b=1):
        return a, b

    class Built:
        def __init__(self, a):
            self.a = a

    assert accepted(function, a=1, b=2, c=3) == {"a": 1, "b": 2}
    assert accepted(Built, a=1, self=2) == {"a": 1}
    assert accepted(lambda **named: named, a=1, c=3) == {"a": 1, "c": 3}
