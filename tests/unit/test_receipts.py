"""Receipts: what is signed, and which texts are believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.base.errors import ConfigError, DataError, ReceiptError
from runner.base.model import JobResult, Mode, Receipt, RunRecord, Verdict
from runner.base.receipts import Signer, canonical
from runner.daemon.receipts import signer, with_receipt
from runner.extras.receipts import HostKey, check, read, read_keys
from runner.extras.receipts import listed as listed_keys
from runner.extras.receipts import text_of as text_of_parts
from tests.unit.samples import job

OURS, OTHERS = Signer(bytes(32)), Signer(bytes(31) + b"\1")
REGISTERED = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = tuple(
    HostKey(host=host, key=each.key, registered_at=REGISTERED) for host, each in (("ours", OURS), ("others", OTHERS))
)
SECRETS = ("123456", "canary-seed", "canary-output", "0.25", "canary-case")


def result(**changes: Any) -> JobResult:  # noqa: ANN401 - fields of the run
    """An accepted ranked result whose texts hold canaries where a receipt must not look."""
    fields: dict[str, Any] = {
        "mode": "leaderboard",
        "start_offset_ns": 10**9,
        "end_offset_ns": 2_000_001_000,
        "passed": True,
        "score_s": 0.25,
        "compilation": None,
        "meta": {"stdout": "canary-output"},
        "result": {
            "benchmark-count": "1",
            "benchmark.0.spec": "canary-case",
            "benchmark.0.mean": "250000000.0",
            "benchmark.0.runner.mean_ci95": "[240000000.0, 260000000.0]",
            "benchmark.0.runner.interval": "[230000000.0, 270000000.0]",
            "benchmark.0.runner.timing": "audited",
        },
        "system_info": {
            "gpu": "H100 \udc80 \0 é",
            "torch": "2.13",
            "runner": {
                "harness": "abc",
                "assurance": {"timing": "audited", "correctness": "judge"},
                "devices": [{"uuid": "GPU-1", "name": "H100", "driver": "580.1", "before": {}}],
            },
        },
        **changes,
    }
    return JobResult(
        verdict=Verdict.ACCEPTED, runs=(RunRecord(**fields),), error=None, report={}, build_ns=1, eval_ns=1
    )


def text_of(receipt: Receipt) -> str:
    """As people keep it."""
    return text_of_parts(**vars(receipt))


def receipt(*, secret: bool = False, host: str = "ours", by: Signer = OURS) -> Receipt:
    """What a host signs of it."""
    task = {"files": {"reference.py": "canary-seed"}}
    hidden = {"hidden": [{"seed": "canary-seed"}], "cases": {"H100": {"hidden": [{"seed": "canary-seed"}]}}}
    ranked = replace(job(secret=secret), task=task, extra={"bytes": "n", **hidden})
    signed = with_receipt(ranked, result(), host=host, signer=by).receipt
    assert signed is not None
    return signed


def test_a_receipt_says_what_pages_show_and_of_a_secret_run_no_more_than_its_verdict() -> None:
    """No seed, case or output is in one; a secret run's has no score or time, and its end is rounded up to a second."""
    public, secret = (check(receipt(secret=each), KEYS) for each in (False, True))
    assert public["score_s"] == 0.25
    assert (public["timing"], public["correctness"]) == ("audited", "judge")
    assert public["cases"] == [
        {"mean_ns": 250e6, "mean_ci95_ns": [240e6, 260e6], "bounds_ns": [230e6, 270e6], "timing": "audited"}
    ]
    assert public["system"]["devices"] == [{"uuid": "GPU-1", "name": "H100", "driver": "580.1"}]
    assert public["code_sha256"] == hashlib.sha256(b"x = 1\n").hexdigest()
    assert (public["submission_id"], public["user_id"], public["attempt"]) == (3, "u", 2)
    assert public["evaluated_at"] == "2026-01-02T00:00:02.000001+00:00"
    assert secret["evaluated_at"] == "2026-01-02T00:00:03.000000+00:00"
    assert public.keys() - secret.keys() == {"score_s", "timing", "correctness", "cases", "system"}
    assert not [word for word in SECRETS if word in receipt(secret=True).statement]
    assert not [word for word in SECRETS if word != "0.25" and word in receipt().statement]
    hidden = replace(job(), task={}, extra={"bytes": "n", "hidden": [{"seed": 1}]})
    plain = replace(hidden, extra={"bytes": "n"})
    hashes = [with_receipt(each, result(), host="ours", signer=OURS).receipt for each in (hidden, plain)]
    assert hashes[0] == hashes[1], "guesses at hidden cases could be compared with the hash"


def test_only_accepted_ranked_results_are_signed() -> None:
    """No other result gets a receipt; one that is less than its board demands does."""
    failed = replace(result(), verdict=Verdict.WRONG_ANSWER, error="wrong")
    for which, what in ((job(mode=Mode.TEST), result()), (job(mode=Mode.PRIVATE), result()), (job(), failed)):
        assert with_receipt(which, what, host="ours", signer=OURS).receipt is None
    unranked = result(score_s=None, system_info={"runner": {"unranked": {"score_s": 0.5}}})
    signed = with_receipt(job(), unranked, host="ours", signer=OURS).receipt
    assert signed is not None
    assert check(signed, KEYS)["score_s"] == 0.5


def changed(whole: Receipt) -> Iterator[tuple[str, str]]:
    """Texts that are not the receipt, though some would be read alike by a lenient reader."""
    text, values = text_of(whole), dict(vars(whole))
    for position in range(len(text)):
        for bit in range(7):
            flipped = chr(ord(text[position]) ^ 1 << bit)
            yield f"bit {bit} of byte {position}", text[:position] + flipped + text[position + 1 :]
        yield f"without byte {position}", text[:position] + text[position + 1 :]
        yield f"byte {position} twice", text[:position] + text[position] + text[position:]

    def wrapped(**changes: object) -> str:
        return json.dumps({**values, **changes}, sort_keys=True, separators=(",", ":"))

    def stated(statement: str) -> str:
        return wrapped(statement=statement)

    yield "spaces", json.dumps(values, sort_keys=True)
    yield "indented", json.dumps(values, sort_keys=True, indent=1)
    yield "another order", json.dumps(dict(sorted(values.items(), reverse=True)), separators=(",", ":"))
    yield "a key twice", text.replace('{"key"', f'{{"key":"{OTHERS.key}","key"', 1)
    yield "one more key", wrapped(more=1)
    for name, value in values.items():
        wide = "".join(chr(ord(each) + 0xFEE0) for each in value)
        yield f"without {name}", json.dumps({key: each for key, each in values.items() if key != name})
        yield f"{name} is null", wrapped(**{name: None})
        yield f"{name} in full-width letters", wrapped(**{name: wide})
        yield f"{name} with a space", wrapped(**{name: f"{value} "})
        yield f"{name} in capitals", wrapped(**{name: value.upper()})
    yield "an escape where a letter does", text.replace('"key"', '"\\u006bey"', 1)
    yield "a mark of byte order", "\ufeff" + text
    yield "two line ends", text + "\n\n"
    yield "another host's key", wrapped(key=OTHERS.key)
    fields = json.loads(whole.statement)
    for name, value in fields.items():
        yield f"statement without {name}", stated(canonical({key: each for key, each in fields.items() if key != name}))
        yield (
            f"{name} is another field's",
            stated(canonical({**fields, name: fields["run" if name != "run" else "host"]})),
        )
        yield f"{name} twice", stated(whole.statement[:-1] + f',"{name}":{json.dumps(value)}}}')
    yield "statement with spaces", stated(json.dumps(fields, sort_keys=True))
    yield "statement is a list", stated("[]")
    deep = '{"a":' * 100_000
    yield "deep", deep
    yield "a deep statement", stated(deep)


@pytest.mark.parametrize("secret", [False, True])
def test_a_changed_receipt_is_refused(*, secret: bool) -> None:
    """Each bit of each byte, each byte less or more, and each way to write the same or another thing."""
    whole = receipt(secret=secret)
    assert check(read(text_of(whole) + "\n"), KEYS)["host"] == "ours"
    believed = []
    for what, text in changed(whole):
        if text == text_of(whole):
            continue
        try:
            check(read(text), KEYS)
        except ReceiptError:
            continue
        believed.append(what)
    # A line end alone: removing it changes nothing that was signed.
    assert believed == []


def test_what_a_host_signs_is_believed_of_itself_alone() -> None:
    """A statement needs a key of the host that it names, every field of its kind, and one form."""
    cases: list[tuple[Receipt, str]] = [
        (receipt(host="others", by=OURS), "which is a key of host ours; expected a key of host 'others'"),
        (receipt(host="nobody", by=OURS), "expected a key of host 'nobody'"),
        (receipt(by=Signer(b"\2" * 32)), "which is no host's"),
    ]
    fields = json.loads(receipt().statement)
    for name in fields:
        without = {key: value for key, value in fields.items() if key != name}
        cases += [(OURS.sign(canonical(each)), "none of format") for each in (without, {**fields, name: None})]
    cases += [
        (OURS.sign(canonical({**fields, "more": 1})), "none of format"),
        (OURS.sign(canonical({**fields, "run": "secret"})), "none of format"),
        (OURS.sign(canonical({**fields, "attempt": True})), "none of format"),
        (OURS.sign(canonical({**fields, "evaluated_at": "2026-01-02T00:00:00"})), "no time of day"),
        (OURS.sign(canonical({**fields, "evaluated_at": "yesterday"})), "no time of day"),
    ]
    for text in (receipt().statement.replace('{"', '{ "', 1), receipt().statement[:-1] + ',"host":"others"}'):
        cases.append((OURS.sign(text), "not in the form"))
    for signed, reason in cases:
        with pytest.raises(ReceiptError, match=reason):
            check(read(text_of(signed)), KEYS)


def test_a_key_counts_in_its_time() -> None:
    """Not before it was registered, not after it was replaced, and not where an operator revoked it."""
    at = datetime.fromisoformat(json.loads(receipt().statement)["evaluated_at"])
    second = timedelta(seconds=1)
    believed: list[dict[str, Any]] = [{}, {"registered_at": at}, {"replaced_at": at}, {"revoked_from": at + second}]
    refused: list[dict[str, Any]] = [
        {"registered_at": at + second},
        {"replaced_at": at - second},
        {"revoked_from": at, "revoked_reason": "stolen"},
        {"revoked_from": datetime.min.replace(tzinfo=UTC), "revoked_reason": "stolen"},
    ]
    for changes in believed:
        check(receipt(), [replace(KEYS[0], **changes)])
    # That of a secret run has its time rounded up; its key may have been replaced before.
    rounded = receipt(secret=True)
    ended_at = job().started_at + timedelta(seconds=2, microseconds=1)
    assert datetime.fromisoformat(json.loads(rounded.statement)["evaluated_at"]) > ended_at
    check(rounded, [replace(KEYS[0], replaced_at=ended_at)])
    early = OURS.sign(canonical({**json.loads(rounded.statement), "evaluated_at": "0001-01-01T00:00:00+00:00"}))
    with pytest.raises(ReceiptError, match="used the key from"):
        check(early, KEYS)
    for changes in refused:
        with pytest.raises(ReceiptError, match="used the key from" if "revoked_from" not in changes else "stolen"):
            check(receipt(), [replace(KEYS[0], **changes)])


@pytest.mark.parametrize("name", ["registered_at", "replaced_at", "revoked_from"])
def test_a_time_of_a_key_has_a_zone(name: str) -> None:
    """A list that was written by hand may lack it."""
    (listed, *_) = json.loads(json.dumps(listed_keys(KEYS)))
    assert read_keys(json.dumps([listed])) == KEYS[:1]
    with pytest.raises(DataError, match="no list of keys"):
        read_keys(json.dumps([{**listed, name: "2026-01-01T00:00:00"}]))


def test_the_private_key_is_a_file_of_the_daemons_user_alone(tmp_path: Path) -> None:
    """Made at the first start, the same at the next; what is no key is not replaced in silence."""
    first = signer(tmp_path)
    path = tmp_path / "receipt.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["receipt.key"]
    assert signer(tmp_path).key == first.key
    path.write_text("torn")
    with pytest.raises(ConfigError, match=r"receipt\.key is no key"):
        signer(tmp_path)
