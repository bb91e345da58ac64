import math

import torch
from torch.nn import functional

from countertrain.search.losses import cross_entropy, energy, predict


def logits_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 7, 4, generator=stream, dtype=torch.float64)
    return logits, torch.randint(4, (2, 7), generator=stream)


def test_cross_entropy_of_a_row_is_minus_the_log_of_its_softmax_at_the_label() -> None:
    logits, label = logits_and_labels()
    loss = cross_entropy(logits, label)
    assert loss.shape == (2, 7)
    for p in range(2):
        for i in range(7):
            scores = logits[p, i].tolist()
            by_hand = math.log(sum(math.exp(s) for s in scores)) - scores[label[p, i]]
            assert math.isclose(loss[p, i].item(), by_hand, rel_tol=1e-12)


def test_cross_entropy_agrees_with_torch_without_the_population_axis() -> None:
    logits, label = logits_and_labels()
    expected = functional.cross_entropy(logits[0], label[0], reduction="none")
    torch.testing.assert_close(cross_entropy(logits[0], label[0]), expected)


def test_cross_entropy_of_huge_logits_stays_finite() -> None:
    logits = torch.tensor([[1e4, 0.0], [-1e4, 1e4]], dtype=torch.float32)
    loss = cross_entropy(logits, torch.tensor([1, 1]))
    assert loss.tolist() == [1e4, 0.0]


def test_energy_is_minus_the_logit_of_the_label() -> None:
    logits, label = logits_and_labels()
    expected = torch.tensor([[-logits[p, i, label[p, i]] for i in range(7)] for p in range(2)], dtype=torch.float64)
    assert torch.equal(energy(logits, label), expected)
    assert len(expected.unique()) == 14


def test_predict_is_the_class_with_the_largest_logit() -> None:
    logits, _ = logits_and_labels()
    assert torch.equal(predict(logits), logits.argmax(-1))
    assert len(predict(logits).unique()) > 1
