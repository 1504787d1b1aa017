"""Shortens messages without changing their CRC-32C, by exclusive or alone: no tables, and as fast as memory; pure.

A CRC is a remainder of polynomials over bits, which does not change when a multiple of the CRC's polynomial is added.
Some have few terms. With x^104 + x^57 + x^53 + x^49 + x^19 + x^14 + x^4 + 1, the first bit of a message may be dropped when it is
added to seven later ones. Over bits the square of a sum is the sum of the squares, so the same terms may count words of 32 bits as
well.

The number of terms is even, as x + 1 divides the polynomial, and four terms span more than 5,000 words. Those below were found by
search: of their number of terms and about their length, the ones with the widest gap behind the first term, as so many words can be
dropped at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ("MULTIPLES", "fold", "folded_length")

Words = NDArray[np.uint32]

#: Exponents of multiples of the polynomial, the longest first: few terms as long as a message is long, more terms for its end.
MULTIPLES = (
    (290, 136, 113, 107, 32, 0),
    (209, 144, 54, 39, 14, 0),
    (104, 57, 53, 49, 19, 14, 4, 0),
    (66, 35, 32, 25, 23, 20, 17, 7, 4, 0),
)


def folded_length(words: int) -> int:
    """What is left of so many words."""
    return min(words, MULTIPLES[-1][0])


def fold(columns: Words) -> Words:
    """The last rows of `columns`, which hold messages with the same remainders; `columns` is overwritten.

    Args:
        columns: a message in each column, its first word on top.
    """
    words, position = len(columns), 0
    for first, *others in MULTIPLES:
        while words - position > first:
            # As many as do not have to be dropped themselves after what is added to them.
            count = min(first - others[0], words - position - first)
            dropped = columns[position : position + count]
            for other in others:
                target = columns[position + first - other :][:count]
                np.bitwise_xor(target, dropped, out=target)
            position += count
    return columns[position:]
