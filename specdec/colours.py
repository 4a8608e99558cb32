"""One word and one colour for each role that a token can have, in the whole book. Needs nothing but Python: the checks draw with it too.

The colours are Okabe and Ito's: told apart by people who see colours differently, and readable on a light and on a dark page.
"""

from __future__ import annotations

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
GREY, DARK, LIGHT = "#888888", "#555555", "#BBBBBB"
INK = "#1c2333"  # text on a tint, on a light and on a dark page

# p and q are the target's and the draft's distribution. What was not judged is dropped; bars of it are hatched.
COLOURS = {
    "p": BLUE, "q": ORANGE,
    "drafted": ORANGE, "accepted": GREEN, "rejected": RED, "recovered": PURPLE, "bonus": SKY, "plain": DARK, "dropped": LIGHT,
}  # fmt: skip
# The same as grounds under dark text: coloured text itself would be hard to read on a dark page.
TINTS = {
    "p": "#B8D6EA", "q": "#FBE3AE",
    "drafted": "#FBE3AE", "accepted": "#BFE8DA", "rejected": "#F7C6A8", "recovered": "#F0D0E2", "bonus": "#CBE8FA", "plain": "#B4B4C0",
    "dropped": "#ECECF0",
}  # fmt: skip
