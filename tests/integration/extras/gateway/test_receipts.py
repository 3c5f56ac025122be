"""The pages of receipts: who sees one, what a pasted one is told, and the keys of the hosts."""

from __future__ import annotations

from urllib.parse import quote

from runner.base.receipts import Signer
from runner.daemon.receipts import with_receipt
from runner.extras import receipts
from tests.integration.extras.gateway.conftest import Gate
from tests.integration.extras.gateway.test_pages import Browser, checked
from tests.integration.store.conftest import ranked

OURS, OTHERS = Signer(bytes(32)), Signer(bytes(31) + b"\1")


def test_a_receipt_is_shown_saved_and_checked(gate: Gate) -> None:
    """Its author's until the board is over, then everybody's; a pasted one is checked, whatever it is."""
    gate.bench.register("host-a", key=OURS.key)
    gate.bench.register("host-b", key=OTHERS.key)
    gate.submit("/submission/identity/CPU/leaderboard")
    signed = {}
    for host in ("host-a", "host-b"):
        job = gate.bench.claim(host=host, instance=host)
        result = with_receipt(job, ranked(job), host=host, signer=OURS if host == "host-a" else OTHERS)
        gate.bench.store.complete(job, result)
        signed[host] = result.receipt, job.id
    whole, job_id = signed["host-a"]
    secret, secret_id = signed["host-b"]
    assert whole is not None
    assert secret is not None
    ada, bob, nobody = Browser(gate, "ada-token"), Browser(gate, "bob-token"), Browser(gate)
    page = f"/receipts/{job_id}"
    assert [each.get(page).status for each in (ada, bob, nobody)] == [200, 404, 404]
    assert f'href="{page}"' in checked(ada.get("/view/1"))
    shown = checked(ada.get(page))
    assert "The signature is true." in shown
    assert "The result: stands" in shown
    saved = ada.get(f"{page}/file")
    assert receipts.read(saved.text) == whole
    assert saved.headers["content-disposition"] == f'attachment; filename="receipt-{job_id}.json"'
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now()")
    gate.sql("UPDATE leaderboard.runs SET score = score / 2 WHERE NOT secret")
    gate.sql("UPDATE leaderboard.user_info SET is_banned = true WHERE id = 'ada'")
    public = checked(nobody.get(page))
    assert "score_s: the receipt says 2.5e-06, the database 1.25e-06" in public
    assert public.count("its user is banned") == 1
    assert "score_s" not in checked(nobody.get(f"/receipts/{secret_id}"))
    assert nobody.get("/receipts/999").status == 404

    listed = receipts.read_keys(nobody.get("/keys").body)
    assert nobody.get("/keys").json == [
        {**vars(each), "registered_at": each.registered_at.isoformat()} for each in listed
    ]
    assert receipts.check(whole, listed)["host"] == "host-a"

    def pasted(text: str) -> str:
        return checked(nobody.post("/receipts", f"receipt={quote(text)}".encode()))

    checked(nobody.get("/receipts"))
    text = receipts.text_of(**vars(secret))
    assert "The signature is true." in pasted(f"{text}\r\n")
    wrong = (text.replace(OTHERS.key, OURS.key), text.replace("host-b", "host-a"), "<script>", "[" * 20_000, "")
    assert [("Not to be believed" in pasted(each)) for each in wrong] == [True] * len(wrong)
    foreign = Signer(b"\2" * 32).sign(whole.statement)
    assert "which is no host" in pasted(receipts.text_of(**vars(foreign)))
