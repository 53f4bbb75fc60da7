"""The account must tell: servers and routines that lose or double on purpose are found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.figures import Figures
from tests.faults.load import Load
from tests.faults.servers import Programs, Server, server
from tests.faults.verdict import conclude, database, judge

LOSING_READY = """
CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM infra.outbox_message WHERE id = NEW.id;
    RETURN NULL;
END;
$$;
CREATE TRIGGER lose BEFORE INSERT ON infra.outbox_ready
    FOR EACH ROW WHEN (NEW.id % 50 = 0 AND NEW.span = 1) EXECUTE FUNCTION public.lose();
"""
"""One in fifty messages is gone with its message row, so that no rule of the tables is broken."""
DOUBLING_ACK = """
CREATE TABLE public.given_back (id bigint PRIMARY KEY);
CREATE FUNCTION public.give_back() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last bigint := NEW.id + NEW.span - 1;
    its_topic text := (
        SELECT m.topic FROM infra.outbox_message AS m WHERE m.id = last AND m.group_id IS NULL
    );
BEGIN
    IF its_topic IS NULL OR EXISTS (SELECT FROM public.given_back AS g WHERE g.id = last) THEN
        RETURN NULL;
    END IF;
    INSERT INTO public.given_back (id) VALUES (last);
    IF NEW.span = 1 THEN
        DELETE FROM infra.outbox_done WHERE id = NEW.id;
    ELSE
        UPDATE infra.outbox_done SET span = span - 1 WHERE id = NEW.id;
    END IF;
    INSERT INTO infra.outbox_tally (no, topic, done) VALUES (nextval('infra._outbox_ids'), its_topic, -1);
    INSERT INTO infra.outbox_ready (lane, ticket, id, topic)
    VALUES (0, nextval('infra._outbox_ids'), last, its_topic);
    RETURN NULL;
END;
$$;
CREATE TRIGGER give_back AFTER INSERT ON infra.outbox_done
    FOR EACH ROW EXECUTE FUNCTION public.give_back();
"""
"""The last of what was acknowledged together waits again, once."""
ORDERS_ONLY = """
CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END;
$$;
CREATE TRIGGER forget BEFORE INSERT ON public.orders
    FOR EACH ROW WHEN (NEW.key LIKE '%%7') EXECUTE FUNCTION public.forget();
"""
"""Messages whose business row is not there, as if the two had not been one transaction."""


def load_and_judge(running: Server, planted: str | None = None) -> Figures:
    """The figures of a load on a server with a fault."""
    if planted is not None:
        running.sql(planted.replace("%%", "%"))
    with Load(running.url) as load:
        load.hold(300 if planted is None else 1500)  # a planted fault strikes some messages only
    return conclude(running, load, Figures("planted", running.known.id))


def test_a_sound_server_passes(running: Server) -> None:
    """Without a fault there is nothing to find."""
    load_and_judge(running).check()


def test_lost_commits_are_found(known: Programs, template: Path) -> None:
    """A server that confirms before it has written, and is killed: `synchronous_commit = off`."""
    assert any(_loses_commits(known, template) for _ in range(6)), "nothing was lost: this shows nothing"


def _loses_commits(known: Programs, template: Path) -> bool:
    """Whether such a server has lost anything, which the account then has to find."""
    late = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "wal_buffers": "16MB"}
    with server(known, template, synchronous_commit="off", **late) as running:
        running.start()
        with Load(running.url) as load:
            load.hold(300)
            running.kill()
        running.start()
        with database(running) as db:
            db.advance(1)
            figures = Figures("planted", known.id)
            confirmed = load.account.confirmed
            there = {str(row["key"]) for row in db.sql("SELECT key FROM public.orders")}
            if not confirmed - there:  # a checkpoint may have come just before
                return False
        figures = conclude(running, load, figures)
        assert figures.lost
        with pytest.raises(AssertionError, match="lost"):
            figures.check()
    return True


@pytest.mark.parametrize(
    ("planted", "found"),
    [(LOSING_READY, "lost"), (DOUBLING_ACK, "doubled"), (ORDERS_ONLY, "phantoms")],
    ids=["losing", "doubling", "without its order"],
)
def test_planted_faults_are_found(running: Server, planted: str, found: str) -> None:
    """Routines that lose, double or tear in a way that breaks no rule of the tables."""
    figures = load_and_judge(running, planted)
    with pytest.raises(AssertionError, match=found):
        figures.check()


def test_a_group_out_of_order_is_found(running: Server) -> None:
    """Two effects of a group that changed places."""
    with Load(running.url) as load:
        load.hold(300)
    figures = Figures("planted", running.known.id)
    conclude(running, load, figures).check()
    with database(running) as db:
        db.sql("UPDATE public.effects SET no = -no WHERE group_id IS NOT NULL")
        with pytest.raises(AssertionError, match="disordered"):
            judge(db, load.account, figures).check()
