"""`dubito demo`: what dubito does, on predictions that ship with it."""

__all__ = ["demo"]


def demo() -> None:
    """Audit the sample that ships with dubito: an over-confident network, and what it never saw.

    Example: dubito demo
    """
    from dubito import Logits, audit
    from dubito.data import Batch, load_fashion_mnist

    sample = load_fashion_mnist()
    print("A small network learnt to tell eight kinds of clothes apart. Is its confidence true?\n")
    names = [sample.classes[label] for label in sample.test_labels]
    print(audit(names, Logits(sample.test_logits, sample.classes)))
    print("\nHow sure is it of what it should not be sure of?\n")
    strangers = {
        "bags and boots, never seen": sample.unseen_classes_logits,
        "handwritten digits": sample.digits_logits,
        "corrupted clothes": sample.corrupted_logits,
    }
    for name, logits in strangers.items():
        confidence = Batch.of(None, Logits(logits)).rows.confidence.mean()
        print(f"  {name:<28} {len(logits):>6,} images   it says {confidence:.1%}")
    print("\nTry it on your own predictions: dubito audit FILE --label y --logits 'logit_*'")
