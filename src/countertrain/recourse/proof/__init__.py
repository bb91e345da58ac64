"""Whether any option exists at all: bounds over parts of what people can reach, or a program solved exactly."""

from countertrain.recourse.proof.prove import Proof, Prover, name_existence

__all__ = ["Proof", "Prover", "name_existence"]
