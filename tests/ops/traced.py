"""Programs around the memory that are traced: compiled whole, exported, transformed. Prints what differs.

    python tests/ops/traced.py compile|models|export|transforms|operations

A process of its own: the shape checks that tests install are not for tracing.
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn

import ham

warnings.simplefilter("ignore")
torch.set_num_threads(1)
SIZE, QUERY, DEPTH = 6, 7, 4
BACKENDS = ("aot_eager", "inductor")


class Network(nn.Module):
    """A network of one's own, with a memory."""

    def __init__(self, **parts):
        super().__init__()
        self.memory = ham.HAM(features=4, query=QUERY, size=SIZE, hidden=8, **parts)
        self.cell = nn.GRUCell(SIZE, QUERY)

    def forward(self, x, uniforms):
        state, h, loss = self.memory.init(x), x.new_zeros(x.shape[0], QUERY), 0.0
        for step in range(3):
            read = self.memory.attend(state, h, uniforms=uniforms[step])
            h = self.cell(read.value, h)
            state = self.memory.update(state, read, h)
            loss = loss + read.log_probs.sum() + read.value.square().sum()
        return loss + h.sum() + state.tree.square().sum()


class Greedy(nn.Module):
    """What the memory finds, greedily."""

    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def forward(self, x, h):
        state = self.memory.init(x)
        read = self.memory.attend(state, h, greedy=True)
        return self.memory.update(state, read, h).tree, read.leaf


def differs(name, found, right, tolerance=1e-4):
    for one, other in zip(found, right, strict=True):
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance):
            return [f"{name}: differs by {float((one - other).abs().max().detach()):.3g}"]
    return []


def run_with_gradients(run, network, *given):
    network.zero_grad()
    loss = run(*given)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]


def compiled():
    problems = []
    parts = {
        "the paper's": {},
        "highway": {"join": "highway"},
        "own": {"search": nn.Sequential(nn.Linear(SIZE + QUERY, 5), nn.Tanh(), nn.Linear(5, 1))},
    }
    for name, given in parts.items():
        torch.manual_seed(0)
        network = Network(**given)
        x, uniforms = torch.rand(3, 16, 4), torch.rand(3, 3, DEPTH)
        right = run_with_gradients(network, network, x, uniforms)
        for backend in BACKENDS:
            torch._dynamo.reset()
            run = torch.compile(network, fullgraph=True, backend=backend)
            problems += differs(f"{name}, {backend}", run_with_gradients(run, network, x, uniforms), right)
    return problems


def models():
    problems = []
    # Without this PyTorch traces no nn.LSTM, which the baselines are made of.
    torch._dynamo.config.allow_rnn = True
    for name in ("sort", "stack", "sort-dham", "stack-dham", "sort-lstm", "sort-lstm+a"):
        model = ham.load(name).model
        torch.manual_seed(0)
        x = torch.randint(0, 2, (2, 8, ham.load(name).task.features)).float()
        given = (x, torch.tensor([8, 5]), torch.tensor([8, 4]))
        with torch.no_grad():
            right = model(*given, leaves=8, symbols=8).outputs
            for backend in BACKENDS:
                torch._dynamo.reset()
                run = torch.compile(model, fullgraph=True, backend=backend)
                problems += differs(f"{name}, {backend}", [run(*given, leaves=8, symbols=8).outputs], [right])
        loss = model(*given, leaves=8, symbols=8).outputs.sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        torch._dynamo.reset()
        run = torch.compile(model, fullgraph=True, backend="aot_eager")
        loss = run(*given, leaves=8, symbols=8).outputs.sum()
        found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        pairs = [(one, other) for one, other in zip(found, gradients, strict=True) if other is not None]
        problems += differs(f"{name}, gradients", *zip(*pairs, strict=True))
    return problems


def export():
    torch.manual_seed(0)
    network = Greedy(ham.HAM(features=4, query=QUERY, size=SIZE)).eval()
    x, h = torch.rand(3, 16, 4), torch.rand(3, QUERY)
    with torch.no_grad():
        program = torch.export.export(network, (x, h))
        return differs("exported", program.module()(x, h), network(x, h))


def transforms():
    """On the reference, which is plain PyTorch there."""
    torch.manual_seed(0)
    network = Network()
    x, uniforms = torch.rand(3, 16, 4), torch.rand(3, 3, DEPTH)
    right = run_with_gradients(network, network, x, uniforms)[1:]
    weights = dict(network.named_parameters())
    by_func = torch.func.grad(lambda w: torch.func.functional_call(network, w, (x, uniforms)))(weights)
    found = [by_func[name] for name, p in network.named_parameters() if p.grad is not None]
    problems = differs("torch.func.grad", found, right)
    greedy = Greedy(network.memory).eval()
    many = torch.rand(5, 3, 16, 4)
    queries = torch.rand(5, 3, QUERY)
    with torch.no_grad():
        mapped = torch.func.vmap(greedy)(many, queries)
        each = [greedy(one, query) for one, query in zip(many, queries, strict=True)]
        problems += differs(
            "torch.func.vmap", mapped, [torch.stack(parts) for parts in zip(*each, strict=True)]
        )
    return problems


def operations():
    """PyTorch's own check of registered operations."""
    from ham.ops import native
    from ham.ops.native.networks import tensors_of

    assert native.available()
    ham.set_backend("native")
    torch.manual_seed(0)
    memory = ham.HAM(features=4, query=QUERY, size=SIZE, hidden=8)
    search, networks = tensors_of(memory.search), tensors_of(memory.write, memory.join)
    with torch.no_grad():
        tree = memory.init(torch.rand(3, 16, 4)).tree
    query, uniforms = torch.rand(3, QUERY), torch.rand(3, DEPTH)
    leaf, active = torch.tensor([0, 5, 15]), torch.tensor([True, False, True])
    plain = [tensor.detach() for tensor in search]
    others = [tensor.detach() for tensor in networks]
    form = (0, 0.0, 0.0)
    searching = (*torch.ops.ham.pack(plain, True, False), 8)
    updating = (*torch.ops.ham.pack(others, False, False), 8)
    of_attend = torch.ops.ham.attend_forward(tree, query, uniforms, *searching, True)
    of_update = torch.ops.ham.update_forward(tree.clone(), leaf, query, active, *updating, *form, True)
    d_tree = torch.rand_like(tree)
    calls = {
        "attend_forward": (tree, query, uniforms, *searching, True),
        "update_forward": (tree.clone(), leaf, query, active, *updating, *form, True),
        "attend_backward": (
            d_tree.clone(),
            torch.rand(3, DEPTH),
            torch.rand(3, DEPTH),
            torch.rand(3, SIZE),
            of_attend[5],
            searching[0],
            QUERY,
            8,
        ),
        "update_backward": (d_tree.clone(), of_update, active, updating[0], QUERY, 8, *form),
    }
    for name, call in calls.items():
        # Memory that nobody has written yet differs from one call to the next: only what is read is compared.
        utils = ("test_schema", "test_autograd_registration")
        torch.library.opcheck(getattr(torch.ops.ham, name).default, call, test_utils=utils)
    for name, call in {
        "pack": (plain, True, False),
        "pack_forward": (others, False, False),
        "pack_backward": (torch.rand_like(updating[0]), False, False, SIZE + QUERY, SIZE, 8),
        "attend_": (tree.clone(), query, uniforms, *searching),
        "update_": (tree.clone(), leaf, query, active, *updating, *form),
    }.items():
        utils = ("test_schema", "test_faketensor")
        torch.library.opcheck(getattr(torch.ops.ham, name).default, call, test_utils=utils)
    sort = ham.load("sort").model
    baseline = ham.load("sort-lstm").model
    recorded = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            if operation.namespace == "ham" and operation._opname in (
                "episode",
                "read_rows",
                "write_symbols",
            ):
                recorded.append((operation, args))
            return operation(*args, **(kwargs or {}))

    x = torch.rand(2, 8, 10)
    given = (x, torch.tensor([8, 5]), torch.tensor([8, 4]))
    with Watch(), torch.no_grad():
        sort(*given, leaves=8, uniforms=torch.rand(2, 8, 3))
        baseline(*given, leaves=8)
    assert {operation._opname for operation, _ in recorded} == {"episode", "read_rows", "write_symbols"}
    for operation, args in recorded:
        utils = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(operation, args, test_utils=utils)
    return []


def main() -> int:
    run = {"compile": compiled, "models": models, "export": export, "transforms": transforms}
    problems = (run | {"operations": operations})[sys.argv[1]]()
    print("; ".join(problems) or "all hold")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
