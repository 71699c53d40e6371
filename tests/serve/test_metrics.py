from threading import Thread

from dubito.serve.metrics import Metrics


def test_counts_are_told_by_label() -> None:
    metrics = Metrics()
    metrics.count("dubito_decisions_total", 3, action='say "no"\n')
    metrics.count("dubito_decisions_total", 1_234_567, action="a")
    lines = metrics.text({"dubito_review_waiting": 12}).splitlines()
    assert r'dubito_decisions_total{action="say \"no\"\n"} 3' in lines
    assert 'dubito_decisions_total{action="a"} 1234567' in lines
    assert "# TYPE dubito_decisions_total counter" in lines
    assert "dubito_review_waiting 12" in lines


def test_a_histogram_counts_all_below_each_bound() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.03, 100.0):
        metrics.took(seconds)
    lines = metrics.text({}).splitlines()
    assert 'dubito_request_seconds_bucket{le="0.001"} 2' in lines
    assert 'dubito_request_seconds_bucket{le="0.05"} 3' in lines
    assert 'dubito_request_seconds_bucket{le="+Inf"} 4' in lines
    assert "dubito_request_seconds_count 4" in lines
    assert "dubito_request_seconds_sum 100.031500" in lines


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def many() -> None:
        for _ in range(2000):
            metrics.count("dubito_labels_total")

    threads = [Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "dubito_labels_total 8000" in metrics.text({})
