"""What a browser would see of an HTML page, as far as a parser can see."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "link", "br"}


@dataclass
class Element:
    """A tag with its attributes."""

    tag: str
    attributes: dict[str, str | None]


@dataclass
class Seen(HTMLParser):
    """Elements in their order, and the text that is not script or style."""

    elements: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    raw: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, html: str) -> "Seen":
        """Parse a page whose elements are all closed properly."""
        seen = cls()
        seen.feed(html)
        seen.close()
        assert not seen.open, seen.open
        return seen

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), "an attribute is there twice"
        self.elements.append(Element(tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw[self.open[-1]] = self.raw.get(self.open[-1], "") + data
        else:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        """All text."""
        return "".join(self.pieces)

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Tags and names of their attributes, without any text."""
        return [(element.tag, tuple(element.attributes)) for element in self.elements]

    def all(self, tag: str) -> list[Element]:
        """Return all elements of a tag."""
        return [element for element in self.elements if element.tag == tag]
