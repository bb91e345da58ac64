"""Whether any option exists at all: `bounds` over `parts` of what people can reach, `prove` them away, `exact` beyond."""

from countertrain.recourse.proof.prove import FOUND, NONE, OPEN, Existence, Proof, Prover

__all__ = ["FOUND", "NONE", "OPEN", "Existence", "Proof", "Prover"]
