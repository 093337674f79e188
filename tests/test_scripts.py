"""Every script in benchmarks/ and examples/ runs: small, each in a process of its own, as a user starts it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SMALL = {
    "benchmarks/compile_peer.py": """
        script.torch.compile = lambda step, fullgraph: step  # compiling takes minutes
        script.main(leaves=2, batch=2, batches=1, repetitions=1)""",
    "benchmarks/complexity.py": """
        script.EXPONENTS = script.PLAIN_EXPONENTS = script.OWN_EXPONENTS = range(1, 4, 2)
        script.ACCESSES = 4
        page = script.Path("page.md")
        marks = [f"<!-- {name} -->\\nold<!-- /{name} -->" for name in ("measured", "measured with own modules")]
        page.write_text(" between ".join(["before", *marks, "after"]))
        script.DOCUMENT, script.FIGURE = page, page.with_suffix(".svg")
        sys.argv = ["complexity.py"]
        script.main()
        assert "| 2^3 |" in page.read_text() and page.with_suffix(".svg").exists()
        sys.argv.append("--own")
        script.main()
        assert page.read_text().count("| 2^3 |") == 2 and "old" not in page.read_text()""",
    "benchmarks/jax_peer.py": """
        from ham.bench import peers
        from ham.bench.work import Trainer, Work
        work = Work.draw(script.np.random.default_rng(0), 2, 2)
        (step,) = peers.jax_job(script, [work])
        print(step())""",
    "benchmarks/models.py": """
        script.MODELS, script.BATCHES = ("sort", "queue-dham"), 1
        script.main()""",
    "benchmarks/soak.py": """
        script.BATCHES = {"native": 4, "reference": 4}
        sys.argv = ["soak.py", "--batches", "12"]
        assert script.main() == 0""",
    "examples/emptiness.py": "script.main()",
    "examples/largest.py": """
        import numpy
        task = script.Largest()
        assert task.sample(numpy.random.default_rng(0), 2, 4, numpy.array([4, 2])).counted.any()
        print(task.solve([0.3, 0.9, 0.4]))""",
    "examples/maximum.py": """
        import numpy
        task = script.Maximum()
        assert task.sample(numpy.random.default_rng(0), 2, 4, numpy.array([4, 2])).counted.any()
        print(task.solve([3, 9, 4]))""",
    "examples/own_controller.py": "script.main(steps=3)",
    "examples/own_estimator.py": """
        import torch
        returns, ran = torch.tensor([[1.0], [3.0]]), torch.ones(2, 1)
        outcomes = script.Outcomes(returns, ran, 1, lambda: returns)
        assert script.against_the_mean(outcomes).tolist() == [[-1.0], [1.0]]
        print("each against the mean of both")""",
    "examples/own_model.py": "print(script.train(script.LookUp(script.ham.HAM), batches=2))",
    "examples/own_transformations.py": "print(script.train(batches=2))",
    "examples/stream.py": "print(script.learn(script.Agent(), chunks=2))",
}
NEEDS = {"benchmarks/jax_peer.py": "jax", "benchmarks/complexity.py": "matplotlib"}


def test_every_script_is_among_them():
    there = {
        str(path.relative_to(ROOT))
        for name in ("benchmarks", "examples")
        for path in (ROOT / name).glob("*.py")
    }
    assert there == SMALL.keys()


@pytest.mark.parametrize("script", SMALL)
def test_it_runs(script, tmp_path):
    if (package := NEEDS.get(script)) and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    path = ROOT / script
    body = "\n".join(line.strip() for line in SMALL[script].splitlines())
    code = f"import sys; sys.path.insert(0, {str(path.parent)!r}); import {path.stem} as script\n{body}\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
