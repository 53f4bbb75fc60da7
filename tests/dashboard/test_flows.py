"""Groups, joins, schedules, the ledger, workers, doctor and the audit log, on every engine."""

from __future__ import annotations

import re

from markupsafe import escape

import pysqlbox
from pysqlbox.dashboard import Dashboard
from tests.dashboard.support import HOSTILE, OWNER, Audited, Visitor, kill


def test_groups_tell_what_holds_them_up(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    box = deployment.outbox
    assert "No group has messages." in visitor.text("/groups")
    head = box.enqueue("t", "{}", group_id=HOSTILE, delay=600).id
    box.enqueue("t", "{}", group_id=HOSTILE)
    box.enqueue("t", "{}", group_id="free")
    page = visitor.text("/groups")
    assert escape(HOSTILE) in page
    assert HOSTILE not in page
    assert re.search(rf'/messages/outbox/{head}">{head}</a>\s*waits for its time', page)
    assert "free" in page
    assert "free" not in visitor.text("/groups?blocked=1")
    assert "No group is held up." in visitor.text("/groups?box=inbox&blocked=1")


def test_joins_and_their_steps(visitor: Visitor, deployment: pysqlbox.Deployment, audited: Audited) -> None:
    db = deployment
    assert "No join is Pending here." in visitor.text("/joins")
    sent = db.outbox.enqueue_many([{"topic": "t", "payload": ""}] * 120)
    join = db.joins.start(HOSTILE, 120)
    db.joins.attach_many(join, [each.message_id for each in sent])
    db.outbox.ack(OWNER, [each.id for each in db.outbox.claim(OWNER, batch_size=30)])
    page = visitor.text("/joins")
    assert str(join) in page
    assert "30 of 120" in page
    assert HOSTILE not in page
    assert "No join is" in visitor.text("/joins?tenant=other")
    steps: list[str] = []
    path = f"/joins/{join}"
    for _ in range(2):
        page = visitor.text(path)
        steps += re.findall(r'/messages/outbox/(\d+)"', page)
        more = re.search(r'href="([^"]+)">next page', page)
        path = more[1] if more else path
    assert sorted(map(int, steps)) == sorted(each.id for each in sent)
    visitor.post(f"/joins/{join}/cancel")
    assert db.joins.get(join).status == "Cancelled"
    assert audited() == [("the operator", "cancel join", f"join {join}", 1)]
    assert visitor.get("/joins/none").status_code == 404
    assert visitor.get("/joins/00000000-0000-0000-0000-000000000001").status_code == 404
    assert visitor.get("/joins?status=Odd").status_code == 400


def test_schedules_are_listed_and_removed(
    visitor: Visitor, deployment: pysqlbox.Deployment, audited: Audited
) -> None:
    assert "No schedules in outbox." in visitor.text("/schedules")
    deployment.schedules.set("nightly", "t", "{}", cron="0 3 * * *", timezone="Europe/Berlin")
    deployment.schedules.set(HOSTILE, "t", "{}", every=300)
    page = visitor.text("/schedules")
    assert "0 3 * * *" in page
    assert "Europe/Berlin" in page
    assert HOSTILE not in page
    visitor.post("/schedules/outbox/remove", {"name": HOSTILE})
    assert [each.name for each in deployment.schedules.list()] == ["nightly"]
    assert audited() == [("the operator", "remove schedule", f"box outbox, schedule {HOSTILE}", 1)]
    assert visitor.post("/schedules/outbox/remove", {"name": "none"}).status_code == 404
    assert len(audited()) == 1


def test_the_ledger_by_prefix_and_status(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    assert "No keys here." in visitor.text("/ledger")
    for number in range(60):
        deployment.ledger.try_begin(f"a:{number:02}", handler="h")
    deployment.ledger.try_begin(f"b:{HOSTILE}", lease_seconds=60)
    deployment.ledger.mark_processed("a:07")
    page = visitor.text("/ledger")
    assert "a:00" in page
    assert "a:59" not in page
    assert "a:59" in visitor.text("/ledger?after=a:49")
    assert "a:07" in visitor.text("/ledger?status=Processed")
    assert "a:08" not in visitor.text("/ledger?status=Processed")
    page = visitor.text("/ledger?prefix=b:")
    assert escape(HOSTILE) in page
    assert HOSTILE not in page


def test_workers_that_are_seen(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    assert "Nobody works on outbox." in visitor.text("/workers")
    deployment.outbox.enqueue_many([{"topic": "t", "payload": ""}] * 5)
    deployment.outbox.claim(OWNER, batch_size=3)
    page = visitor.text("/workers")
    assert re.search(rf"{OWNER}</span></th>\s*<td class=\"n busy\">3</td>", page)
    assert "seen here" in page
    topics = [HOSTILE[:200], *"abcdef"]
    deployment.register.report(OWNER, ["outbox"], topics, HOSTILE[:200], "node-1", 4711, "0.1", 8)
    page = visitor.text("/workers")
    assert "node-1, pid 4711, 8 threads, 0.1" in page
    assert "seen here" not in page
    assert "a, b, c, d <span" in page
    assert "and 2 more" in page
    assert "<script>document" not in page


def test_doctor_and_its_advice(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    kill(deployment, 1)
    page = visitor.text("/doctor")
    assert "<b>dead_letters</b>, box outbox" in page
    assert "<code>" in page
    assert re.search(r"<(td|b)>(indexes|drift)</", page)


def test_the_audit_log_is_for_admins(dashboard: Dashboard, deployment: pysqlbox.Deployment) -> None:
    admin = Visitor(dashboard).log_in("admin")
    assert "Nothing was changed here yet." in admin.text("/audit")
    for number in range(120):
        deployment.audit.write("ada" if number % 2 else HOSTILE[:200], "replay", subject=f"subject {number}")
    page = admin.text("/audit")
    assert "subject 119" in page
    assert "subject 19<" not in page
    assert HOSTILE[:200] not in page
    more = re.search(r'href="([^"]+)">earlier ones', page)
    assert more is not None
    assert "subject 19<" in admin.text(more[1].replace("&amp;", "&"))
    assert "subject 118" not in admin.text("/audit?actor=ada")
    assert Visitor(dashboard).log_in("operator").get("/audit").status_code == 403
    assert '"/audit"' not in Visitor(dashboard).log_in("operator").text("/")
