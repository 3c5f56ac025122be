"""Wrong candidates: none may be accepted."""

from __future__ import annotations

from collections.abc import Mapping

from .problems import candidate, of

_L = ("self.l = nn.Linear(n, n)", "self, n")
_GELU = "self.a = nn.Linear(16, 32)\nself.b = nn.Linear(32, 16)"


def _linear(forward: str, more: str = "") -> tuple[str, str]:
    return of("linear", forward, _L[0] + more, init_args=_L[1])


#: Name -> problem, candidate.
WRONG: Mapping[str, tuple[str, str]] = {
    "zeros": _linear("return torch.zeros_like(x)"),
    "empty": _linear("return torch.empty_like(x)"),
    "the input": _linear("return x"),
    "nothing": _linear("pass"),
    "not a tensor": _linear("return 'right'"),
    "a list of numbers": _linear("return F.relu(self.l(x)).tolist()"),
    "in a tuple": _linear("return (F.relu(self.l(x)),)"),
    "without the activation": _linear("return self.l(x)"),
    "without the bias": _linear("return F.relu(x @ self.l.weight.t())"),
    "transposed": _linear("return F.relu(self.l(x)).t()"),
    "a row too few": _linear("return F.relu(self.l(x))[:-1]"),
    "in double": _linear("return F.relu(self.l(x)).double()"),
    "in half": _linear("return F.relu(self.l(x)).half()"),
    "the last row left out": _linear("y = F.relu(self.l(x))\ny[-1] = 0\nreturn y"),
    "one element off": _linear("y = F.relu(self.l(x))\ny[0, 0] += 0.01\nreturn y"),
    "one part in a thousand": _linear("return F.relu(self.l(x)) * 1.001"),
    "NaN": _linear("return F.relu(self.l(x)) * float('nan')"),
    "its own weights": of("linear", "return F.relu(x @ self.w)", "self.w = torch.randn(16, 16)"),
    "the first output for ever": _linear(
        "if self.y is None:\n    self.y = F.relu(self.l(x))\nreturn self.y", "\nself.y = None"
    ),
    "the input spoiled": _linear("y = F.relu(self.l(x))\nx.zero_()\nreturn y"),
    "no class": ("linear", "import torch\n"),
    "a syntax error": ("linear", "class ModelNew(nn.Module)\n    pass"),
    "an import that is not there": ("linear", "import nothing_of_this_name\n" + candidate("linear")),
    "an exception": _linear("raise ValueError('no')"),
    "a constructor that fails": of("linear", "return x", "raise ValueError('no')"),
    "an exit": _linear("import os\nos._exit(0)"),
    "too deep": _linear("return self.forward(x)"),
    "half precision": of("matmul", "return (a.half() @ b.half()).float()", args="self, a, b"),
    "part of the sum": of("matmul", "return a[:, :-1] @ b[:-1]", args="self, a, b"),
    "no epsilon": of("norm", "return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)"),
    "without its parameters": of("norm", "return F.layer_norm(x, (16,))", "self.n = nn.LayerNorm(16)"),
    "an unbiased variance": of(
        "norm",
        "m, v = x.mean(1, keepdim=True), x.var(1, keepdim=True)\n"
        "return (x - m) / torch.sqrt(v + 1e-5) * self.n.weight + self.n.bias",
        "self.n = nn.LayerNorm(n)",
        init_args="self, n",
    ),
    "always train mode": of(
        "batch_norm",
        "return F.relu(F.batch_norm(x, None, None, self.b.weight, self.b.bias, True))",
        "self.b = nn.BatchNorm1d(n)",
        init_args="self, n",
    ),
    "always eval mode": of(
        "batch_norm",
        "return F.relu(F.batch_norm(x, self.b.running_mean, self.b.running_var, self.b.weight, self.b.bias))",
        "self.b = nn.BatchNorm1d(n)",
        init_args="self, n",
    ),
    "batch norm left out": ("conv", candidate("conv", ("self.b(self.c(x))", "self.c(x)"))),
    "another dimension": of("softmax", "return torch.softmax(x, 0)"),
    "the default argument": of("swish", "return x * torch.sigmoid(x)"),
    "a configuration ignored": of("config", "return self.l(x)", "self.l = nn.Linear(4, 4)", init_args="self, config"),
    "no dropout": of("dropout", "return self.l(x)", "self.l = nn.Linear(16, 16)"),
    "dropout in eval mode": ("dropout", candidate("dropout", ("self.d(self.l(x))", "F.dropout(self.l(x), 0.5, True)"))),
    "another rate": ("dropout", candidate("dropout", ("nn.Dropout(0.5)", "nn.Dropout(0.2)"))),
    "dropout not scaled": (
        "dropout",
        candidate("dropout", ("self.d(self.l(x))", "self.d(self.l(x)) * (0.5 if self.training else 1)")),
    ),
    "noise without the input": of("noise", "return torch.randn_like(x)"),
    "less noise": of("noise", "return x + 0.5 * torch.randn_like(x)"),
    "a pair exchanged": of("pair", "return x.max(1)[0], x.sum(1)"),
    "a pair and its input made zero": of("pair", "y = x.sum(1), x.max(1)[0]\nx.zero_()\nreturn y"),
    "a pair and its input transposed": of("pair", "y = x.sum(1), x.max(1)[0]\nx.t_()\nreturn y"),
    "a pair as a list": of("pair", "return [x.sum(1), x.max(1)[0]]"),
    "a key missing": of("dict", "return {'mean': x.mean(1)}"),
    "a tuple in the dict": of("dict", "return {'mean': x.mean(1), 'all': (x + 1, x * 2)}"),
    "a sum for a mean": of("loss", "return F.cross_entropy(x, t, reduction='sum')", args="self, x, t"),
    "targets ignored": of("loss", "return -torch.log_softmax(x, 1)[:, 0].mean()", args="self, x, t"),
    "the mask ignored": of("masked", "return torch.cumsum(x, 1)", args="self, x, m"),
    "in place in another way": of("in_place", "x.mul_(3)\nreturn x / 3 * 2 + 1"),
    "an index off": of(
        "embedding", "return self.e((i + 1) % 10).sum(1)", "self.e = nn.Embedding(10, 8)", args="self, i"
    ),
    "argmin": of("argmax", "return x.argmin(1)"),
    "indices in another dtype": of("argmax", "return x.argmax(1).int()"),
    "a power of two": of("power", "return x ** 2", args="self, x, n"),
    "zeros for small numbers": of("small", "return torch.zeros_like(x)"),
    "a constant for small numbers": of("small", "return torch.full_like(x, 1e-6)"),
    "the upper half": of("triangle", "return torch.triu(a @ b)", args="self, a, b"),
    "attention not scaled": of(
        "attention", "return torch.softmax(q @ k.transpose(1, 2), -1) @ v", args="self, q, k, v"
    ),
    "a state kept": of(
        "gru", "y, self.h = self.g(x, self.h)\nreturn y", "self.g = nn.GRU(4, 4, batch_first=True)\nself.h = None"
    ),
    "a constant for a mean": of("mean_power", "return torch.tensor(2 / 7).bfloat16()"),
    "gelu by tanh": of("gelu", "return self.b(F.gelu(self.a(x), approximate='tanh') * 1.001)", _GELU),
    "a table left out": of("table", "return x", "self.register_buffer('mask', torch.ones(16))"),
    "average pooling": of("max_pool", "return F.avg_pool2d(x, 2)"),
}
