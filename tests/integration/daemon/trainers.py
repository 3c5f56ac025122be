"""What trainers do with the adapters' rewards, with their real packages: `python -m tests.integration.daemon.trainers`.

Arguments: the trainer, and the database. Prints a JSON object with what the trainer has made of the candidates that
`CANDIDATES` names. Runs in an environment of its own, since these packages do not go together with those of the tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from runner.extras.trainers.client import AsyncClient, Client
from runner.extras.trainers.client.adapters import classic_reward, score, trl_reward, verl_score

REFERENCE = "class Model: pass"
#: What is found of each candidate is in its text (tests/integration/daemon/groups.py).
CANDIDATES = {
    "right": "class ModelNew: pass  # right",
    "wrong": '# found: {"verdict": "wrong_answer", "correct": false}\nclass ModelNew: pass  # wrong',
    "fault": '# found: {"verdict": "invalid", "correct": null}\nclass ModelNew: pass  # fault',
}
_REWARD = "kernelbook@1"


def _package(name: str) -> Any:  # noqa: ANN401 - the tests' environment has no types of it
    """A package of the trainers' environment."""
    return import_module(name)


def trl(url: str) -> Mapping[str, Any]:
    """Two optimisation steps of GRPO with a model of a few thousand parameters; what the trainer logs."""
    import torch

    dataset, tokenizers, transformers, package = (
        _package(name) for name in ("datasets", "tokenizers", "transformers", "trl")
    )
    words = {word: number for number, word in enumerate(("[PAD]", "[EOS]", "[UNK]", "a", "b", "c", "d"))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]", padding_side="left"
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"vocab_size": len(words), "pad_token_id": 0, "eos_token_id": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))
    seen: list[str] = []

    def extract(_: str) -> str:
        # What this model says is no code: each completion is taken for the next candidate.
        name = list(CANDIDATES)[len(seen) % len(CANDIDATES)]
        seen.append(name)
        return CANDIDATES[name]

    with tempfile.TemporaryDirectory() as folder, Client(url, gpu_type="CPU") as client:
        settings = package.GRPOConfig(
            output_dir=folder, use_cpu=True, per_device_train_batch_size=3, num_generations=3, max_steps=2,
            max_completion_length=4, logging_steps=1, report_to=[], save_strategy="no",
        )  # fmt: skip
        rows = [{"prompt": "a b", "python_code": REFERENCE}] * 4
        trainer = package.GRPOTrainer(
            model=model,
            reward_funcs=trl_reward(client, _REWARD, reference="python_code", extract=extract),
            args=settings,
            train_dataset=dataset.Dataset.from_list(rows),
            processing_class=fast,
        )
        trainer.train()
    logs = [line for line in trainer.state.log_history if "reward" in line]
    return {
        "rewards": [line["reward"] for line in logs],
        "names": sorted(key for key in logs[0] if "kernelbook" in key),
    }


def verl(url: str) -> Mapping[str, Any]:
    """A batch of the batch reward manager: its tensor, and what it hands on beside."""
    import numpy as np
    import torch

    package, managers = _package("verl"), _package("verl.workers.reward_manager.batch")
    texts = list(CANDIDATES.values())

    class Tokens:
        """Each response is the number of its text."""

        def decode(self, ids: Any, **_: object) -> str:  # noqa: ANN401 - a tensor
            """The text of a response; of a prompt nothing."""
            return texts[int(ids[0]) - 1] if len(ids) and 0 < int(ids[0]) <= len(texts) else ""

    count = len(texts)
    tensors = {
        "prompts": torch.zeros(count, 1, dtype=torch.long),
        "responses": torch.tensor([[number + 1, 0] for number in range(count)]),
        "attention_mask": torch.ones(count, 3, dtype=torch.long),
    }
    others = {
        "data_source": np.array(["kernels"] * count, dtype=object),
        "reward_model": np.array([{"ground_truth": REFERENCE}] * count, dtype=object),
        "extra_info": np.array([{"entry_point": "Model"} for _ in range(count)], dtype=object),
    }
    with Client(url, gpu_type="CPU") as client:
        manager = managers.BatchRewardManager(Tokens(), 0, verl_score(client, _REWARD, fault_score=-9.0))
        made = manager(package.DataProto.from_dict(tensors, non_tensors=others), return_dict=True)
    return {"rewards": made["reward_tensor"].sum(-1).tolist(), "fault": list(made["reward_extra_info"]["fault"])}


def verifiers(url: str) -> Mapping[str, Any]:
    """Scores of tasks of version 1: the rewards of each trace, or the error."""
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        reference: str = REFERENCE

    async def run() -> Mapping[str, Any]:
        async with AsyncClient(url, gpu_type="CPU") as client:

            class Kernel(vf.Task[Data]):
                @vf.reward
                async def kernel(self, trace: vf.Trace) -> float:
                    return await score(client, _REWARD, reference=self.data.reference, reply=trace.last_reply)

            found: dict[str, Any] = {}
            for name, code in CANDIDATES.items():
                data = Data(idx=0, prompt="write a kernel")
                trace = vf.Trace[Data].model_construct(rewards={}, metrics={}, root_reply=f"```python\n{code}\n```")
                try:
                    await Kernel(data).score(trace)
                    found[name] = {key: reward.score for key, reward in trace.rewards.items()}
                except vf.TaskError as error:
                    found[name] = {"error": str(error), "rewards": trace.rewards}
            return found

    return asyncio.run(run())


def classic(url: str) -> Mapping[str, Any]:
    """Scores of a Rubric, before version 1: reward and error of each state."""
    vf = _package("verifiers")

    async def run() -> Mapping[str, Any]:
        async with AsyncClient(url, gpu_type="CPU") as client:
            rubric = vf.Rubric(funcs=[classic_reward(client, _REWARD)])
            info = {"python_code": REFERENCE, "entry_point": "Model"}
            states = {
                name: vf.State(
                    input={}, prompt="write", completion=[{"role": "assistant", "content": code}], answer="",
                    task="kernels", info=info, example_id=0, timing={"scoring_ms": 0.0, "total_ms": 0.0}, trajectory=[],
                )
                for name, code in CANDIDATES.items()
            }  # fmt: skip
            await rubric.score_group(list(states.values()))
            return {name: {"reward": state["reward"], "error": state.get("error")} for name, state in states.items()}

    return asyncio.run(run())


TRAINERS: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "trl": trl,
    "verl": verl,
    "verifiers": verifiers,
    "classic": classic,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(TRAINERS[sys.argv[1]](sys.argv[2])) + "\n")
