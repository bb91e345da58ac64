"""The numbers printed in the paper, for comparison with ours."""

from dataclasses import dataclass

__all__ = ["COSTS", "IG", "NAMES", "TABLE1", "TABLE_CI", "VALIDITY", "Published"]

NAMES = {
    "ls": "LS",
    "circles": "Circ",
    "moons": "Moon",
    "ol": "OL",
    "adult": "Adult",
    "california": "CH",
    "credit": "Cred",
    "gmsc": "GMSC",
    "mnist": "MNIST",
}
"""Our names of the nine data sets and the paper's, in the paper's order."""


@dataclass(frozen=True)
class Published:
    """A printed percentage reduction: its value, its +- (over evaluation rounds of one trained pair), its star."""

    percent: float
    spread: float
    star: bool


def _table(
    rows: dict[str, tuple[tuple[float, float, bool], ...]], metrics: tuple[str, ...]
) -> dict[tuple[str, str], Published]:
    return {(data, m): Published(*cell) for data, cells in rows.items() for m, cell in zip(metrics, cells, strict=True)}


TABLE1 = _table(
    {
        "ls": ((26.26, 0.67, True), (51.28, 2.01, True), (16.41, 0.57, True)),
        "circles": ((58.88, 0.37, True), (93.84, 6.7, True), (42.99, 0.85, True)),
        "moons": ((19.59, 0.73, True), (8.0, 9.44, False), (5.16, 1.0, True)),
        "ol": ((-1.93, 1.12, False), (-27.7, 14.59, False), (40.86, 2.3, True)),
        "adult": ((0.19, 1.05, False), (34.35, 5.61, True), (4.03, 4.03, False)),
        "california": ((10.65, 1.47, True), (63.06, 4.25, True), (44.23, 1.43, True)),
        "credit": ((10.14, 1.59, True), (50.35, 12.26, True), (-18.17, 4.4, True)),
        "gmsc": ((10.65, 2.28, True), (24.75, 4.84, True), (66.01, 1.41, True)),
        "mnist": ((6.36, 1.7, True), (-70.31, 217.6, False), (-35.11, 6.96, True)),
    },
    ("ip", "ip_star", "cost"),
)
"""Table 1: reductions of IP and IP* (no constraints), and of cost with the protected feature."""

COSTS = _table(
    {
        "ls": ((-27.11, 0.75, True),),
        "circles": ((40.17, 0.85, True),),
        "moons": ((32.54, 1.23, True),),
        "ol": ((12.08, 1.58, True),),
        "adult": ((-4.59, 2.54, False),),
        "california": ((-33.04, 1.96, True),),
        "credit": ((27.43, 1.05, True),),
        "gmsc": ((-22.4, 3.64, True),),
        "mnist": ((-40.71, 7.02, True),),
    },
    ("cost",),
)
"""Appendix: reduction of cost without constraints."""

TABLE_CI = {
    "cost": {
        "adult": (2.19, 2.28, -0.32, 0.11),
        "california": (1.37, 2.46, -1.18, -1.0),
        "circles": (0.7, 1.22, -0.55, -0.49),
        "credit": (2.7, 2.29, 0.16, 0.6),
        "gmsc": (1.03, 3.04, -2.37, -1.86),
        "ls": (3.75, 4.48, -0.8, -0.67),
        "mnist": (72.08, 53.42, 11.15, 26.68),
        "moons": (1.52, 1.6, -0.12, -0.05),
        "ol": (1.55, 2.62, -1.25, -0.9),
    },
    "ip_star": {
        "adult": (0.07, 0.11, -0.06, -0.02),
        "california": (0.02, 0.06, -0.05, -0.03),
        "circles": (0.0, 0.0, -0.01, -0.0),
        "credit": (0.03, 0.06, -0.05, -0.01),
        "gmsc": (0.05, 0.07, -0.02, -0.01),
        "ls": (0.11, 0.23, -0.13, -0.11),
        "mnist": (0.02, 0.02, -0.07, 0.07),
        "moons": (0.02, 0.02, -0.01, 0.0),
        "ol": (0.12, 0.09, -0.01, 0.05),
    },
    "ip": {
        "adult": (15.13, 15.16, -0.42, 0.39),
        "california": (6.72, 7.52, -1.05, -0.6),
        "circles": (0.97, 2.36, -1.44, -1.35),
        "credit": (19.79, 22.02, -3.17, -1.42),
        "gmsc": (7.24, 8.1, -1.26, -0.38),
        "ls": (2.51, 3.4, -0.95, -0.84),
        "mnist": (261.05, 278.84, -27.38, -7.51),
        "moons": (1.37, 1.71, -0.36, -0.3),
        "ol": (4.52, 4.44, -0.03, 0.19),
    },
}
"""Appendix: mean of CT, mean of BL, and the 99 % interval of their difference."""

VALIDITY = {
    "ls": (1.0, 1.0, 1.0, 1.0),
    "circles": (1.0, 0.51, 0.71, 0.48),
    "moons": (1.0, 1.0, 1.0, 0.98),
    "ol": (0.86, 0.98, 0.34, 0.56),
    "adult": (0.68, 0.99, 0.7, 0.99),
    "california": (1.0, 1.0, 1.0, 1.0),
    "credit": (0.72, 1.0, 0.74, 1.0),
    "gmsc": (0.94, 1.0, 0.97, 1.0),
    "mnist": (1.0, 1.0, 1.0, 1.0),
}
"""Average validity of CT and BL, free and constrained."""

IG = {
    "ls": ((0.21, 0.20, 0.22), (30.69, 12.92, 629.20)),
    "circles": ((6.96, 4.88, 20.62), (19.20, 6.48, 193.92)),
    "moons": ((0.54, 0.41, 0.68), (0.66, 0.53, 0.92)),
    "ol": ((0.59, 0.38, 0.79), (24.55, 8.31, 466.26)),
    "adult": ((0.48, 0.41, 0.52), (0.74, 0.56, 0.91)),
    "california": ((0.04, 0.01, 0.06), (0.05, 0.03, 0.09)),
    "credit": ((0.00, 0.00, 0.00), (0.20, 0.18, 0.25)),
    "gmsc": ((0.71, 0.58, 0.85), (0.16, 0.11, 0.23)),
    "mnist": ((0.17, 0.16, 0.17), (0.35, 0.33, 0.37)),
}
"""Sensitivity to protected features: median and 95 % interval over rounds, CT and BL."""
