"""A memory in a folder as the Hub has one: written, read again, and read and written by the Hub's own mixin."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import ham
from ham.core.errors import InputError

SETTINGS = {
    "features": 3,
    "query": 4,
    "size": 5,
    "hidden": 6,
    "depth": 1,
    "join": "highway",
    "top": 1.5,
    "grid": 64,
}


class OwnJoin(nn.Module):
    """A JOIN that the library does not know."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(10, 5)

    def forward(self, pair):
        return torch.tanh(self.mix(pair))


def same(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kind", [ham.HAM, ham.SoftHAM])
@pytest.mark.parametrize("settings", [{"features": 3, "query": 4}, SETTINGS])
def test_it_comes_back(tmp_path, kind, settings):
    memory = kind(**settings)
    assert memory.save_pretrained(tmp_path / "new" / "folder") == tmp_path / "new" / "folder"
    again = kind.from_pretrained(tmp_path / "new" / "folder")
    assert type(again) is kind
    assert not again.training
    assert same(again, memory)
    assert again.config == memory.config
    x, query = torch.rand(2, 6, 3), torch.rand(2, 4)
    ours, theirs = memory.eval().attend(memory.init(x), query), again.attend(again.init(x), query)
    assert torch.equal(ours.value, theirs.value)


def test_soft_and_hard_read_each_other(tmp_path):
    soft = ham.SoftHAM(3, 4)
    soft.save_pretrained(tmp_path)
    assert same(ham.HAM.from_pretrained(tmp_path), soft)


def test_another_precision_comes_back(tmp_path):
    memory = ham.HAM(3, 4).double()
    memory.save_pretrained(tmp_path)
    again = ham.HAM.from_pretrained(tmp_path)
    assert same(again, memory)
    assert next(again.parameters()).dtype == torch.float64


def test_transformations_of_ones_own_are_given_again(tmp_path):
    memory = ham.HAM(3, 4, 5, join=OwnJoin())
    memory.search = nn.Linear(9, 1)
    assert memory.own == ("join", "search")
    assert repr(memory) == "HAM(features=3, query=4, size=5, hidden=20, depth=2, join=OwnJoin, search=Linear)"
    memory.save_pretrained(tmp_path)
    again = ham.HAM.from_pretrained(tmp_path, join=OwnJoin(), search=nn.Linear(9, 1))
    assert same(again, memory)
    with pytest.raises(InputError, match="its own SEARCH, which must be given: search="):
        ham.HAM.from_pretrained(tmp_path, join=OwnJoin())
    with pytest.raises(InputError, match=r"should be torch.float32 \(1, 8\)"):
        ham.HAM.from_pretrained(tmp_path, join=OwnJoin(), search=nn.Linear(8, 1))


def test_the_folder_is_what_the_hub_documents(tmp_path):
    yaml = pytest.importorskip("yaml")
    memory = ham.HAM(**SETTINGS)
    memory.save_pretrained(tmp_path, license="mit")
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    # The arguments of the class, by their names, so that the Hub's mixin can make one too.
    assert json.loads((tmp_path / "config.json").read_text()) == SETTINGS
    assert load_file(tmp_path / "model.safetensors").keys() == memory.state_dict().keys()
    _, header, text = (tmp_path / "README.md").read_text("utf-8").split("---\n", 2)
    about = yaml.safe_load(header)
    assert about["library_name"] == "ham-memory"
    assert about["license"] == "mit"
    assert "hierarchical-attentive-memory" in about["tags"]
    assert "ham.HAM.from_pretrained(folder)" in text


def test_a_folder_as_the_hubs_mixin_writes_it_is_read(tmp_path):
    memory = ham.HAM(**SETTINGS)
    absent = dict.fromkeys(("embed", "search", "write"))
    (tmp_path / "config.json").write_text(json.dumps({**SETTINGS, **absent}, sort_keys=True, indent=2))
    save_file(memory.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    assert same(ham.HAM.from_pretrained(tmp_path), memory)


def test_the_hubs_own_mixin_reads_and_writes_it(tmp_path):
    hub = pytest.importorskip("huggingface_hub")

    class OnHub(hub.PyTorchModelHubMixin, ham.HAM):
        pass

    memory = OnHub(**SETTINGS)
    hub.PyTorchModelHubMixin.save_pretrained(memory, tmp_path / "theirs")
    assert same(ham.HAM.from_pretrained(tmp_path / "theirs"), memory)
    ham.HAM.save_pretrained(memory, tmp_path / "ours")
    assert same(OnHub.from_pretrained(tmp_path / "ours"), memory)
    card = hub.ModelCard.load(tmp_path / "ours" / "README.md")
    assert card.data.library_name == "ham-memory"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "not valid JSON"),
        *((text, "does not hold the settings of a memory") for text in ("[]", "5", "null", "true", '"task"')),
        ('{"task": "sort"}', r"ham.load\(folder\).model"),
        ('{"features": 3, "query": 4, "colour": 1}', "colour"),
        ('{"features": 3, "query": "x"}', "does not hold the settings of a HAM"),
        ('{"features": 3, "query": 4, "size": 1000000000}', "should be"),
        ('{"features": 3, "query": 9223372036854775808}', "does not hold the settings of a HAM"),
        ('{"features": 3, "query": 4, "own": 5}', "own must be a list of some of embed, join, .*, got 5"),
        ('{"features": 3, "query": 4, "own": null}', "own must be a list"),
        ('{"features": 3, "query": 4, "own": [5]}', r"own must be a list .*, got \[5\]"),
        ('{"features": 3, "query": 4, "own": ["sideways"]}', "own must be a list"),
        ('{"features": 3, "query": 4, "embed": "x"}', "embed must be null, got 'x'; give a module: embed="),
        ('{"features": 3, "query": 4, "search": 5}', "search must be null, got 5"),
        ('{"features": 3, "query": 4, "join": 5}', "no JOIN is named 5"),
        ('{"features": 3, "query": 4, "join": "sideways"}', "no JOIN is named 'sideways'"),
    ],
)
def test_a_strange_folder_is_refused_in_a_line(unchecked, tmp_path, config, said):
    ham.HAM(3, 4).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(InputError, match=said) as raised:
        ham.HAM.from_pretrained(tmp_path)
    assert "\n" not in str(raised.value)


def test_weights_of_several_types_are_refused_in_a_line(tmp_path):
    memory = ham.HAM(3, 4)
    memory.save_pretrained(tmp_path)
    memory.search.double()
    save_file(memory.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        InputError, match=r"weights of several types, torch.float32, torch.float64, not of one"
    ):
        ham.HAM.from_pretrained(tmp_path)


def test_a_transformation_that_counts_comes_back(tmp_path):
    memory = ham.HAM(3, 4, 5, embed=nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)))
    memory.save_pretrained(tmp_path)
    given = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    assert same(ham.HAM.from_pretrained(tmp_path, embed=given), memory)


def test_what_is_not_there_is_refused_in_a_line(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        ham.HAM.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot read"):
        ham.HAM.from_pretrained(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot make the folder"):
        ham.HAM(3, 4).save_pretrained(tmp_path / "file" / "inside")


def test_a_memory_is_no_trained_model(tmp_path):
    ham.HAM(3, 4).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"a memory alone is read by ham\.HAM\.from_pretrained"):
        ham.load(tmp_path)
