"""The client of batches: from candidates to results and rewards. docs/trainers.md is its manual.

    from runner.extras.trainers.client import Client, Item

    with Client(dsn, gpu_type="H100") as client:
        rewards = client.rewards([Item(reference=r, candidate=c) for r, c in pairs], "kernelbook@1")

A reward is None where the candidate is not to blame: mask such a sample.
"""

from runner.extras.trainers.client.aio import AsyncClient, OnProgress
from runner.extras.trainers.client.home import ClientHomeError
from runner.extras.trainers.client.items import EvaluationFaultError, Item, Result
from runner.extras.trainers.client.rewards import REWARDS, reward
from runner.extras.trainers.client.sync import Client

__all__ = [
    "REWARDS",
    "AsyncClient",
    "Client",
    "ClientHomeError",
    "EvaluationFaultError",
    "Item",
    "OnProgress",
    "Result",
    "reward",
]
