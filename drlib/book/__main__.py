"""``python -m drlib.book`` writes the reference run from the executed book of the laptop profile."""

from drlib.book.layout import Book
from drlib.book.reference import PROFILE, export_reference

print(export_reference(Book.of(PROFILE)))
