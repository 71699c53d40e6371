"""The demo opens with data in it: decisions, labels, rows that wait, and a token."""

from pathlib import Path

import numpy as np

from dubito.serve.demo import AUDIT_SHARE, N_WAITING, _demo_store, demo_policy, fill
from dubito.serve.monitor import monitor_figures
from dubito.serve.store import Store


def test_the_demo_fills_a_store_once(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/demo.db")
    token = store.find_token(_demo_store(store))
    assert token is not None
    assert token.scopes == {"decide", "review", "admin"}
    policy = demo_policy()
    newer = store.find_token(fill(store, policy))
    assert newer is not None
    assert [one.id for one in store.tokens() if one.is_valid] == [newer.id]
    assert len(store.policies().all) == 1
    rows = store.rows_for_monitor()
    assert len(rows) == 4000
    assert (np.diff(rows.created) >= 0).all()
    assert abs(rows.is_audit.mean() - AUDIT_SHARE) < 0.02
    assert store.queue_length() == N_WAITING
    item = store.next_review("anna")
    assert item is not None
    assert item.link is None
    figures = monitor_figures(rows, policy, store.history_of(1))
    assert all(window.log_loss.interval is not None for window in figures.windows)
    assert figures.alarms["doubt"].direction == "under"
    store.close()
