"""Small references of both forms, and a way to write candidates for them."""

from __future__ import annotations

from collections.abc import Mapping

_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def module(
    name: str, forward: str, init: str = "", *, args: str = "self, x", init_args: str = "self", pre: str = ""
) -> str:
    """The text of a file with one class; statements are separated by newlines."""
    lines = [f"class {name}(nn.Module):", f"    def __init__({init_args}):", "        super().__init__()"]
    lines += [f"        {line}" for line in init.splitlines()]
    lines += [f"    def forward({args}):", *(f"        {line}" for line in forward.splitlines())]
    return _HEAD + pre + "\n" + "\n".join(lines) + "\n"


def _problem(forward: str, inputs: str, init: str = "", init_inputs: str = "[]", **more: str) -> str:
    text = module("Model", forward, init, **more)
    return f"{text}\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {init_inputs}\n"


_X = "[torch.randn(8, 16)]"
_CHAIN = "y = x\nfor _ in range(60):\n    y = torch.tanh(y @ x)\nreturn y"

PROBLEMS: Mapping[str, str] = {
    "linear": _problem("return torch.relu(self.l(x))", _X, "self.l = nn.Linear(n, n)", "[16]", init_args="self, n"),
    "matmul": _problem("return a @ b", "[torch.randn(16, 32), torch.randn(32, 16)]", args="self, a, b"),
    "norm": _problem("return self.n(x)", _X, "self.n = nn.LayerNorm(n)", "[16]", init_args="self, n"),
    "batch_norm": _problem("return F.relu(self.b(x))", _X, "self.b = nn.BatchNorm1d(n)", "[16]", init_args="self, n"),
    "conv": _problem(
        "return self.b(self.c(x))",
        "[torch.randn(2, 3, 8, 8)]",
        "self.c = nn.Conv2d(3, 4, 3)\nself.b = nn.BatchNorm2d(4)",
    ),
    "softmax": _problem("return torch.softmax(x, dim=1)", _X),
    "swish": _problem(
        "return x * torch.sigmoid(self.beta * x)",
        "[torch.rand([4, 4, 4, 4])]",
        "self.beta = beta",
        "[[], {'beta': 1.5}]",
        init_args="self, beta=1.0",
    ),
    "config": _problem(
        "return self.l(x) * self.scale",
        "[torch.rand([4, 4])]",
        "self.l = nn.Linear(config.hidden, config.hidden)\nself.scale = config.scale",
        "[[], {'config': _mock_config(hidden=4, scale=0.5)}]",
        init_args="self, config",
        pre="from _paritybench_helpers import _mock_config\n",
    ),
    "dropout": _problem("return self.d(self.l(x))", _X, "self.l = nn.Linear(16, 16)\nself.d = nn.Dropout(0.5)"),
    "pair": _problem("return x.sum(1), x.max(1)[0]", _X),
    "dict": _problem("return {'mean': x.mean(1), 'all': [x + 1, x * 2]}", _X),
    "loss": _problem(
        "return F.cross_entropy(x, t)", "[torch.randn(8, 5), torch.randint(0, 5, (8,))]", args="self, x, t"
    ),
    "masked": _problem(
        "return torch.cumsum(x * m, dim=1)",
        "[torch.randn(8, 16), torch.randint(0, 2, (8, 16)).bool()]",
        args="self, x, m",
    ),
    "in_place": _problem("return x.mul_(2).add_(1)", _X),
    "embedding": _problem(
        "return self.e(i).sum(1)", "[torch.randint(0, 10, (4, 6))]", "self.e = nn.Embedding(10, 8)", args="self, i"
    ),
    "argmax": _problem("return x.argmax(1)", _X),
    "power": _problem("return x ** n", "[torch.rand(8, 16), 3]", args="self, x, n"),
    "small": _problem("return x * 1e-5", _X),
    "triangle": _problem(
        "return torch.tril(a @ b)", "[torch.randn(8, 8).tril(), torch.randn(8, 8).tril()]", args="self, a, b"
    ),
    "attention": _problem(
        "return torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v",
        "[torch.randn(2, 4, 16), torch.randn(2, 4, 16), torch.randn(2, 4, 16)]",
        args="self, q, k, v",
    ),
    "gru": _problem("return self.g(x)[0]", "[torch.randn(2, 3, 4)]", "self.g = nn.GRU(4, 4, batch_first=True)"),
    "gelu": _problem("return self.b(F.gelu(self.a(x)))", _X, "self.a = nn.Linear(16, 32)\nself.b = nn.Linear(32, 16)"),
    "noise": _problem("return x + torch.randn_like(x)", _X),
    "table": _problem("return x * self.mask", _X, "self.register_buffer('mask', (torch.arange(16) % 2).float())"),
    "constant": _problem("return torch.softmax(x.sum(1, keepdim=True), 1)", _X),
    "mean_power": _problem("return torch.mean(x**2.5).bfloat16()", "[torch.rand(512, 512)]"),
    "max_pool": _problem("return F.max_pool2d(x, 2)", "[torch.randn(2, 3, 8, 8)]"),
    "long": _problem(_CHAIN, "[torch.randn(64, 64) * 0.14]"),
    "heavy": _problem(_CHAIN, "[torch.randn(128, 128) * 0.1]"),
}
#: Of `sent`, one after the other.
_SENT = ("linear", "norm", "softmax", "swish", "matmul", "attention", "gelu", "triangle")


def candidate(problem: str, *changes: tuple[str, str]) -> str:
    """The reference's own text as a candidate, with parts of it replaced."""
    text = PROBLEMS[problem].partition("\ndef get_inputs")[0].replace("class Model(", "class ModelNew(")
    for old, new in changes:
        if old not in text:
            raise ValueError(f"{old!r} is not in problem {problem!r}")
        text = text.replace(old, new)
    return text


def sent(number: int, *, size: int = 8) -> tuple[str, list[str]]:
    """A reference and candidates as trainers send them: right ones, a wrong one, and one that is no Python."""
    name = _SENT[number % len(_SENT)]
    width = str(8 + 8 * (number // len(_SENT) % 4))
    right = candidate(name).replace("16", width)
    reference = f"{PROBLEMS[name].replace('16', width)}# {number}\n"
    copies = [f"{right}# {copy}\n" for copy in range(size - 2)]
    return reference, [*copies, right.replace("return ", "return 2 * ", 1), f"{right})"]


def new(
    forward: str, init: str = "", *, args: str = "self, x", init_args: str = "self, *_, **__", pre: str = ""
) -> str:
    """A candidate that is written from scratch."""
    return module("ModelNew", forward, init, args=args, init_args=init_args, pre=pre)


def of(problem: str, forward: str, init: str = "", **more: str) -> tuple[str, str]:
    """A problem and a candidate for it, which is written from scratch."""
    return problem, new(forward, init, **more)
