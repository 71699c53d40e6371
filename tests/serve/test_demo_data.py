"""The demo opens with data in it: decisions, labels, rows that wait, and a token."""

from pathlib import Path

import numpy as np

from dubito.serve.demo_data import AUDIT_FRACTION, N_WAITING, demo_policy, fill_demo
from dubito.serve.policies import deploy_policy
from dubito.serve.policy_metrics import monitor_classes
from dubito.serve.store import Store


def test_the_demo_fills_a_store_once(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/demo.db")
    policy = demo_policy()
    deploy_policy(store, policy)
    token = store.find_token(fill_demo(store, policy))
    assert token is not None
    assert token.scopes == {"decide", "review", "admin"}
    newer = store.find_token(fill_demo(store, policy))
    assert newer is not None
    assert [one.id for one in store.list_tokens() if one.is_valid] == [newer.id]
    assert len(store.list_policies()) == 1
    rows = store.decisions_since()
    assert len(rows) == 4000
    assert (np.diff(rows.created) >= 0).all()
    assert abs(rows.is_audit.mean() - AUDIT_FRACTION) < 0.02
    assert store.queue_length() == N_WAITING
    item = store.claim_review("anna")
    assert item is not None
    assert item.link is None
    report = monitor_classes(rows, policy, store.alarm_history(1))
    assert all(window.log_loss.interval is not None for window in report.windows)
    assert report.alarms["uncertainty"].direction == "under"
    store.close()
