import torch

from countertrain.search.rules import SGD, Adam

NO_SEED = torch.zeros(1, 1, dtype=torch.int64)


def gradients(n: int) -> torch.Tensor:
    return torch.randn(12, 1, n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_sgd_goes_down_the_gradient_by_the_step_size() -> None:
    rule, grad = SGD(0.25), gradients(4)[0]
    delta, memory = rule.step(grad, rule.init(grad, NO_SEED), 1)
    torch.testing.assert_close(delta, -0.25 * grad)
    assert memory == ()
    assert SGD().step_size == 0.1


def test_adam_makes_the_steps_of_torchs_adam() -> None:
    rule = Adam(0.05, beta1=0.8, beta2=0.95, eps=1e-3)
    z = torch.zeros(1, 4, 3, dtype=torch.float64)
    theirs = z.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.05, betas=(0.8, 0.95), eps=1e-3)
    memory = rule.init(z, NO_SEED)
    for k, grad in enumerate(gradients(4), 1):
        delta, memory = rule.step(grad, memory, k)
        z = z + delta
        theirs.grad = grad
        optimizer.step()
        torch.testing.assert_close(z, theirs.detach())
    assert z.abs().min() > 1e-3


def test_adam_remembers_each_row_by_itself() -> None:
    rule, steps = Adam(), gradients(4)
    together, alone = rule.init(steps[0], NO_SEED), rule.init(steps[0][:, 2:3], NO_SEED)
    for k, grad in enumerate(steps, 1):
        delta, together = rule.step(grad, together, k)
        delta_alone, alone = rule.step(grad[:, 2:3], alone, k)
        assert torch.equal(delta[:, 2:3], delta_alone)
    assert not torch.allclose(delta[:, 2], delta[:, 1])


def test_a_rule_changes_neither_the_gradient_nor_the_memory_it_was_given() -> None:
    for rule in (SGD(), Adam()):
        grad = gradients(4)[0]
        kept, memory = grad.clone(), rule.init(grad, NO_SEED)
        rule.step(grad, memory, 1)
        assert torch.equal(grad, kept)
        assert not any(m.any() for m in memory)
