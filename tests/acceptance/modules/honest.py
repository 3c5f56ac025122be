"""Honest styles: every one must be accepted, always."""

from __future__ import annotations

from collections.abc import Mapping

from .problems import PROBLEMS, candidate, of

_N = "self, n"


def _linear(forward: str, *, more: str = "", pre: str = "", init: str = "self.l = nn.Linear(n, n)") -> tuple[str, str]:
    """A candidate for the linear layer; `more`: further statements of its constructor."""
    return of("linear", forward, f"{init}\n{more}", init_args=_N, pre=pre)


#: Name -> problem, candidate.
HONEST: Mapping[str, tuple[str, str]] = {
    **{f"{name} as it is": (name, candidate(name)) for name in PROBLEMS},
    "functional": _linear("return F.linear(x, self.l.weight, self.l.bias).clamp(min=0)"),
    "addmm": _linear("return torch.addmm(self.l.bias, x, self.l.weight.t()).relu_()"),
    "einsum": _linear("return F.relu(torch.einsum('bi,oi->bo', x, self.l.weight) + self.l.bias)"),
    "renamed parameters": _linear("return F.relu(self.other(x))", init="self.other = nn.Linear(n, n)"),
    "sequential": _linear("return self.s(x)", init="self.s = nn.Sequential(nn.Linear(n, n), nn.ReLU())"),
    "packed parameters": _linear(
        "return F.relu(x @ self.p[:, :-1].t() + self.p[:, -1])",
        init="l = nn.Linear(n, n)\nself.p = nn.Parameter(torch.cat([l.weight, l.bias[:, None]], 1).detach())",
    ),
    "own initialisation": _linear(
        "return F.relu(F.linear(x, self.l.weight, self.l.bias))",
        init="self.l = nn.Linear(n, n)\nnn.init.zeros_(self.l.weight)\nnn.init.zeros_(self.l.bias)",
    ),
    "another order of parameters": of(
        "gelu", "return self.b(F.gelu(self.a(x)))", "self.b = nn.Linear(32, 16)\nself.a = nn.Linear(16, 32)"
    ),
    "a plain tensor of weights": _linear(
        "return F.relu(x @ self.w.t() + self.c)",
        init="l = nn.Linear(n, n)\nself.w = l.weight.detach()\nself.c = l.bias.detach()",
    ),
    "an extra buffer": _linear(
        "return F.relu(self.l(x)) * self.one", more="self.register_buffer('one', torch.ones(1))"
    ),
    "weights cached by version": _linear(
        "if self.seen != self.l.weight._version:\n    self.t = self.l.weight.detach().t().contiguous()\n"
        "    self.seen = self.l.weight._version\nreturn F.relu(x @ self.t + self.l.bias)",
        more="self.seen = None",
    ),
    "in double": _linear("return F.relu(F.linear(x.double(), self.l.weight.double(), self.l.bias.double())).float()"),
    "a buffer that is used again": _linear(
        "if self.o is None:\n    self.o = torch.empty(x.shape[0], self.l.out_features)\n"
        "torch.addmm(self.l.bias, x, self.l.weight.t(), out=self.o)\nreturn self.o.clamp_(min=0)",
        more="self.o = None",
    ),
    "numpy": _linear(
        "y = x.numpy() @ self.l.weight.detach().numpy().T + self.l.bias.detach().numpy()\n"
        "return torch.from_numpy(np.maximum(y, 0))",
        pre="import numpy as np\n",
    ),
    "two threads that are joined": _linear(
        "with ThreadPoolExecutor(2) as pool:\n    parts = list(pool.map(self.l, (x[:4], x[4:])))\n"
        "return F.relu(torch.cat(parts))",
        pre="from concurrent.futures import ThreadPoolExecutor\n",
    ),
    "inference mode": _linear("with torch.inference_mode():\n    return F.relu(self.l(x))"),
    "with gradients": _linear("with torch.enable_grad():\n    return F.relu(self.l(x))"),
    "a script": _linear("return act(self.l(x))", pre="@torch.jit.script\ndef act(x):\n    return torch.relu(x)\n"),
    "an autograd function": _linear(
        "return Act.apply(self.l(x))",
        pre="class Act(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return x.clamp(min=0)\n",
    ),
    "a fallback that is never used": _linear("try:\n    return F.relu(self.l(x))\nexcept RuntimeError:\n    return x"),
    "much printed": _linear("print('x' * 1000)\nreturn F.relu(self.l(x))"),
    "a test of its own": ("linear", candidate("linear") + "\nif __name__ == '__main__':\n    raise SystemExit(1)\n"),
    "a view": _linear("return F.relu(self.l(x)).t().contiguous().t()"),
    "a parameter returned as a subclass": _linear("return nn.Parameter(F.relu(self.l(x)))"),
    "a name that is given later": (
        "linear",
        candidate("linear").replace("class ModelNew(", "class Mine(") + "\nModelNew = Mine\n",
    ),
    "blocks of a product": of(
        "matmul", "return sum(a[:, i:i + 8] @ b[i:i + 8] for i in range(0, 32, 8))", args="self, a, b"
    ),
    "norm by hand": of(
        "norm",
        "m = x.mean(1, keepdim=True)\nv = ((x - m) ** 2).mean(1, keepdim=True)\n"
        "return (x - m) * torch.rsqrt(v + 1e-5) * self.n.weight + self.n.bias",
        "self.n = nn.LayerNorm(n)",
        init_args=_N,
    ),
    "norm in one pass": of(
        "norm",
        "m = x.mean(1, keepdim=True)\nv = (x * x).mean(1, keepdim=True) - m * m\n"
        "return (x - m) / torch.sqrt(v + 1e-5) * self.n.weight + self.n.bias",
        "self.n = nn.LayerNorm(n)",
        init_args=_N,
    ),
    "batch norm without its bookkeeping": of(
        "batch_norm",
        "if self.training:\n    m, v = x.mean(0), x.var(0, unbiased=False)\n"
        "else:\n    m, v = self.b.running_mean, self.b.running_var\n"
        "return F.relu((x - m) / torch.sqrt(v + 1e-5) * self.b.weight + self.b.bias)",
        "self.b = nn.BatchNorm1d(n)",
        init_args=_N,
    ),
    "convolution by unfolding": of(
        "conv",
        "p = F.unfold(x, 3)\ny = self.c.weight.view(4, -1) @ p + self.c.bias[:, None]\n"
        "return self.b(y.view(x.shape[0], 4, 6, 6))",
        "self.c = nn.Conv2d(3, 4, 3)\nself.b = nn.BatchNorm2d(4)",
    ),
    "channels last": (
        "conv",
        candidate("conv", ("self.c(x)", "self.c(x.contiguous(memory_format=torch.channels_last))")),
    ),
    "softmax without the maximum": of("softmax", "e = x.exp()\nreturn e / e.sum(1, keepdim=True)"),
    "swish under KernelBook's arguments": of(
        "swish", "return x * (x * self.b).sigmoid()", "self.b = kwargs['beta']", init_args="self, *args, **kwargs"
    ),
    "a configuration read by key": of(
        "config",
        "return self.l(x) * self.s",
        "self.l = nn.Linear(config['hidden'], config.get('hidden'))\nself.s = config.scale",
        init_args="self, config",
    ),
    "dropout with another generator": of(
        "dropout",
        "y = self.l(x)\nif not self.training:\n    return y\n"
        "u = torch.from_numpy(np.random.default_rng().random(y.shape))\nreturn torch.where(u < 0.5, 2.0 * y, 0.0)",
        "self.l = nn.Linear(16, 16)",
        pre="import numpy as np\n",
    ),
    "dropout by hand with torch's generator": of(
        "dropout",
        "y = self.l(x)\nreturn y * torch.bernoulli(torch.full_like(y, 0.5)) * 2 if self.training else y",
        "self.l = nn.Linear(16, 16)",
    ),
    "noise of its own": of(
        "noise", "return x + torch.from_numpy(np.random.standard_normal(x.shape)).float()", pre="import numpy as np\n"
    ),
    "a pair by sorting": of("pair", "return x @ torch.ones(16), x.sort(1)[0][:, -1]"),
    "a dict in another order": of("dict", "return {'all': [1 + x, x + x], 'mean': x.sum(1) / 16}"),
    "a mean by a sum": of("mean_power", "return ((x * x * x.sqrt()).sum() / x.numel()).bfloat16()"),
    "a loss by hand": of("loss", "return -torch.log_softmax(x, 1)[torch.arange(8), t].mean()", args="self, x, t"),
    "a sum along a loop": of(
        "masked",
        "o, s = torch.empty_like(x), 0\nfor i in range(16):\n    s = s + x[:, i] * m[:, i]\n    o[:, i] = s\nreturn o",
        args="self, x, m",
    ),
    "not in place": of("in_place", "return x * 2 + 1"),
    "in place as well": of("in_place", "x *= 2\nx += 1\nreturn x"),
    "one-hot instead of a table": of(
        "embedding",
        "return (F.one_hot(i, 10).float() @ self.e.weight).sum(1)",
        "self.e = nn.Embedding(10, 8)",
        args="self, i",
    ),
    "argmax by sorting": of("argmax", "return x.sort(dim=1, descending=True, stable=True)[1][:, 0]"),
    "a power by products": of("power", "y = x\nfor _ in range(n - 1):\n    y = y * x\nreturn y", args="self, x, n"),
    "only the lower half": of("triangle", "return a @ b", args="self, a, b"),
    "torch's attention": of("attention", "return F.scaled_dot_product_attention(q, k, v)", args="self, q, k, v"),
    "gelu by its formula": of(
        "gelu",
        "h = self.a(x)\nreturn self.b(0.5 * h * (1 + torch.erf(h * 0.7071067811865475)))",
        "self.a = nn.Linear(16, 32)\nself.b = nn.Linear(32, 16)",
    ),
    "a mask instead of a table": of("table", "y = x.clone()\ny[:, ::2] = 0\nreturn y"),
    "ones": of("constant", "return torch.ones(x.shape[0], 1)"),
    "pooling by reshaping": of("max_pool", "return x.view(2, 3, 4, 2, 4, 2).amax((3, 5))"),
}
