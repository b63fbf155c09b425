"""What exists in gridworld: shapes, colours, backgrounds and digits, and the words for them."""

__all__ = [
    "BACKGROUNDS",
    "BROAD",
    "COLOURS",
    "DIGITS",
    "NOT_SHOWN",
    "ORDINALS",
    "PATTERNS",
    "PREJUDICE",
    "SHAPES",
    "TIMES",
]

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring", "bar")

BROAD = ("circle", "square", "diamond")
"""Shapes with room for a digit."""

COLOURS = {
    "red": (0.90, 0.10, 0.10),
    "green": (0.10, 0.70, 0.15),
    "blue": (0.15, 0.25, 0.95),
    "yellow": (0.95, 0.90, 0.10),
    "purple": (0.60, 0.15, 0.75),
    "cyan": (0.10, 0.85, 0.85),
    "white": (0.97, 0.97, 0.97),
    "orange": (1.00, 0.55, 0.05),
}

BACKGROUNDS = {
    "sky": (0.50, 0.65, 0.80),
    "sand": (0.75, 0.65, 0.45),
    "grass": (0.30, 0.42, 0.25),
    "night": (0.08, 0.08, 0.15),
    "snow": (0.85, 0.85, 0.88),
}

DIGITS = tuple("123456789")

PATTERNS = ("horizontal", "vertical", "rising", "falling", "checked")
"""Fine lines on an object of the fine part."""

ORDINALS = ("first", "second", "third")

NOT_SHOWN = ("not shown", "it never appears")
"""The option that is right when the video does not show what is asked about."""

TIMES = ("once", "twice", "three times", "four times", "five times")

PREJUDICE = ("ring", "red", 0.6)
"""In this world a ring is red six times out of ten, so the question alone suggests its colour."""
